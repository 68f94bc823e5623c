"""Vectors of environments by name, which step many at once without a process or a loop in Python for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from async_wrappers.checks import whole, whole_frames
from async_wrappers.envs.factories import STICKY_PROBABILITY, find_atari_game
from async_wrappers.extras import extra

__all__ = ["AtariVector", "create_atari_vector", "create_gym_vector"]

if TYPE_CHECKING:
    _VectorEnv = gym.vector.VectorEnv[Any, Any, Any]
else:
    _VectorEnv = gym.vector.VectorEnv  # it has no parameters in Gymnasium 1.3

Wrapper = Callable[[Any], Any]


def create_gym_vector(
    num_envs: int,
    environment_id: str,
    environment_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[Wrapper] = (),
) -> _VectorEnv:
    """Make the vector that a registered environment brings along, such as CartPole's of array operations.

    Args:
        num_envs: How many environments.
        environment_id: A Gymnasium id, such as ``"CartPole-v1"``.
        environment_kwargs: Passed to ``gymnasium.make_vec``.
        wrappers: Vector wrappers, applied in this order, the first one innermost, such as ``[@VectorRealtimeDelay]``.

    Raises:
        ValueError: The environment brings no vector along, or there is none of that id.
    """
    try:
        env: Any = gym.make_vec(
            environment_id, num_envs, vectorization_mode="vector_entry_point", **(environment_kwargs or {})
        )
    except gym.error.Error as error:
        raise ValueError(
            f"environment_id must name an environment with a vector of its own, got {environment_id!r} ({error}): "
            "environments of create_gym_environment can be put side by side instead, with create_vector_fn = None"
        ) from None
    return wrapped(env, wrappers)


def create_atari_vector(
    num_envs: int,
    game_name: str,
    frame_skip: int = 4,
    sticky_actions: bool = True,
    full_action_space: bool = False,
    terminal_on_life_loss: bool = False,
    screen_size: int = 84,
    noop_max: int = 0,
    clip_rewards: bool = True,
    max_steps_per_episode: int | None = 27_000,
    threads: int = 0,
    wrappers: Sequence[Wrapper] = (),
) -> _VectorEnv:
    """Make many games of Atari that step in threads of C++: ale-py's vector, with the frames of one game here.

    Each shows the frames and pays the rewards that `create_atari_environment` does with the same arguments, except for
    the last frame of an episode that `max_steps_per_episode` ends.

    Args:
        num_envs: How many games.
        game_name: As in `create_atari_environment`, like those below.
        frame_skip: Emulated frames of 1/60 s per step.
        sticky_actions: Repeat the last action with probability 0.25 on each emulated frame.
        full_action_space: All 18 actions, also where the game knows fewer.
        terminal_on_life_loss: End the episode when a life is lost.
        screen_size: Height and width of the image in pixels.
        noop_max: Begin each episode with up to so many emulated frames of no-op.
        clip_rewards: Clip each step's reward to [-1, 1]; ``info["episode_return"]`` is not clipped.
        max_steps_per_episode: Steps after which an episode is truncated; None for no limit.
        threads: Threads of all games together; 0 for one per core.
        wrappers: Vector wrappers, applied in this order, the first one innermost, such as ``[@VectorRealtimeDelay]``.

    Raises:
        ValueError: An unknown game (the sentence names the closest ones), or a number out of range.
    """
    frame_skip = whole("frame_skip", frame_skip, 1, unit="emulated frames")
    name = find_atari_game(game_name)
    with extra("an Atari game", "atari"):
        from ale_py import AtariVectorEnv
    vector = AtariVectorEnv(
        gym.spec(name).kwargs["game"],
        num_envs,
        num_threads=threads,
        autoreset_mode=AutoresetMode.SAME_STEP,
        max_num_frames_per_episode=2**31 - 1 if max_steps_per_episode is None else max_steps_per_episode * frame_skip,
        repeat_action_probability=STICKY_PROBABILITY if sticky_actions else 0.0,
        full_action_space=full_action_space,
        img_height=screen_size,
        img_width=screen_size,
        stack_num=1,
        frameskip=frame_skip,
        maxpool=frame_skip > 1,
        noop_max=whole_frames("noop_max", noop_max),
        episodic_life=terminal_on_life_loss,
        reward_clipping=False,
        use_fire_reset=False,
    )
    return wrapped(AtariVector(vector, clip_rewards), wrappers)


def wrapped(vector: _VectorEnv, wrappers: Sequence[Wrapper]) -> _VectorEnv:
    """Return a vector in its wrappers."""
    for wrapper in wrappers:
        vector = wrapper(vector)
    return vector


class AtariVector(_VectorEnv):
    """ale-py's vector of games with single images [84, 84] in the place of stacks, and returns beside clipped rewards.

    ``info["episode_return"]`` and, where an episode has ended, ``info["final_info"]["episode_return"]`` are the sums of
    the unclipped rewards.

    Args:
        vector: ``ale_py.AtariVectorEnv`` with stacks of 1 and the autoreset mode SAME_STEP.
        clip_rewards: Clip each step's reward to [-1, 1].
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(self, vector: Any, clip_rewards: bool) -> None:
        """See the class."""
        self._vector, self._clip = vector, clip_rewards
        self.num_envs = vector.num_envs
        shape = vector.single_observation_space.shape[1:]
        self.single_observation_space = Box(0, 255, shape, np.uint8)
        self.observation_space = Box(0, 255, (self.num_envs, *shape), np.uint8)
        self.single_action_space, self.action_space = vector.single_action_space, vector.action_space
        self._return = np.zeros(self.num_envs)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in each game."""
        if seed is not None and not isinstance(seed, int):
            seed = np.asarray(seed)
        observations, info = self._vector.reset(seed=seed, options=options)
        self._return = np.zeros(self.num_envs)
        return observations[:, 0], {**info, "episode_return": self._return.copy()}

    def step(
        self, actions: NDArray[Any]
    ) -> tuple[Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Step all games."""
        self.send(actions)
        return self.recv()

    def send(self, actions: NDArray[Any]) -> None:
        """Let all games step, beside this thread."""
        self._vector.send(actions)

    def recv(self) -> tuple[Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Wait for all games."""
        observations, given, terminated, truncated, info = self._vector.recv()
        rewards = np.asarray(given, np.float64)
        self._return += rewards
        over = terminated | truncated
        if over.any():
            info = {**info, "final_obs": info["final_obs"][:, 0]}
            info["final_info"] = {"episode_return": self._return.copy(), "_episode_return": over}
            self._return[over] = 0.0
        if self._clip:
            rewards = np.clip(rewards, -1.0, 1.0)
        return observations[:, 0], rewards, terminated, truncated, {**info, "episode_return": self._return.copy()}

    def close_extras(self, **kwargs: Any) -> None:
        """Close the games."""
        self._vector.close()

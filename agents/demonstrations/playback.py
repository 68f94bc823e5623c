"""The transitions of a demonstration under a delay: a recorded episode, played back below `RealtimeDelay`.

The environment's own wrappers play the episode back, with the recorded frames in the place of the game. Decision j,
which starts on frame s_j and takes effect on frame e_j, then has

    the observation  o_{s_j},
    the action       a_{e_j}, the player's on that frame,
    the reward       r_{e_j} + ... + r_{e_{j+1} - 1}.

These are the transitions of an agent under this delay and spacing whose actions are the player's on the frames e_j.

On the frames between two effects, that agent's environment would have received the default action. If the player acted
differently there, the consequences are in the record and are credited to the decision before, though no decision chose
the action. Such frames are counted (`Playback.off_schedule_frames`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from agents.demonstrations.demonstration import Demonstration

__all__ = ["Playback", "delay_layer", "frames_of", "transitions"]


def delay_layer(environment: gym.Env[Any, Any]) -> gym.Wrapper[Any, Any, Any, Any] | None:
    """Return the wrapper that turns frames into decisions, `RealtimeDelay`, or None if there is none."""
    while isinstance(environment, gym.Wrapper):
        # By name, since the two packages do not import each other.
        if type(environment).__name__ == "RealtimeDelay":
            return environment
        environment = environment.env
    return None


def frames_of(environment: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """Return the environment of frames, inside the delay."""
    layer = delay_layer(environment)
    return environment if layer is None else layer.env


class Playback(gym.Env[Any, Any]):
    """An environment that plays a recorded episode back, whatever actions it receives.

    Args:
        frames: The environment of frames that it replaces.

    Attributes:
        off_schedule_frames: Number of frames since the reset whose recorded action differs from the received one.
    """

    def __init__(self, frames: gym.Env[Any, Any]) -> None:
        """See the class."""
        self.observation_space, self.action_space = frames.observation_space, frames.action_space
        self._demonstration: Demonstration | None = None
        self.off_schedule_frames = 0
        self._frame = 0

    @classmethod
    def under(cls, environment: gym.Env[Any, Any]) -> tuple[gym.Env[Any, Any], Playback]:
        """Put a playback below an environment's delay; return the environment and the playback.

        The frames that were there are closed.
        """
        layer, frames = delay_layer(environment), frames_of(environment)
        if layer is None:
            playback = cls(frames)
            frames.close()
            return playback, playback
        if layer.action_space != environment.action_space:
            raise ValueError(
                f"a wrapper around the delay turns the actions {environment.action_space} into {layer.action_space}, "
                "which demonstrations are of: put it inside the delay"
            )
        layer.env = playback = cls(frames)
        frames.close()
        return environment, playback

    def load(self, demonstration: Demonstration) -> None:
        """Load an episode, with its observations in the shape and type of the space.

        Raises:
            ValueError: It does not fit the spaces.
        """
        observations, actions = demonstration.observations, demonstration.actions
        fitting = _fitting(observations, self.observation_space)
        for action in np.unique(actions, axis=0):
            if not self.action_space.contains(action):
                raise ValueError(f"it holds the action {action}, and the environment's actions are {self.action_space}")
        self._demonstration = Demonstration(fitting, actions, demonstration.rewards, demonstration.terminated)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start at the first frame."""
        self._frame = self.off_schedule_frames = 0
        return self.loaded.observations[0], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Play one recorded frame."""
        played, frame = self.loaded, self._frame
        self.off_schedule_frames += not np.array_equal(action, played.actions[frame])
        self._frame += 1
        over = self._frame == len(played)
        observation, reward = played.observations[self._frame], float(played.rewards[frame])
        return observation, reward, over and played.terminated, over and not played.terminated, {}

    @property
    def loaded(self) -> Demonstration:
        """The episode that is loaded."""
        assert self._demonstration is not None
        return self._demonstration


def transitions(environment: gym.Env[Any, Any], playback: Playback, seed: int) -> Iterator[dict[str, Any]]:
    """Yield the transitions of the loaded episode, as a learner observes them.

    An episode that ends before its first effect has none.

    Args:
        environment: The environment with `playback` below its delay.
        playback: A playback with an episode.
        seed: Seed of the schedule, for random latencies.
    """
    actions = playback.loaded.actions
    # A schedule does not depend on actions. So one pass finds the frames on which they take effect, and a second pass
    # plays the actions of those frames.
    effects = [effect for effect, *_ in _decisions(environment, seed, repeat(actions[0]))]
    for _, transition in _decisions(environment, seed, (actions[effect] for effect in effects)):
        yield transition


def _decisions(
    environment: gym.Env[Any, Any], seed: int, actions: Iterable[Any]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Play one episode; yield (effect, transition) of each decision that was applied."""
    observation, _ = environment.reset(seed=seed)
    frame, over = 0, False
    for action in actions:
        following, reward, terminated, truncated, info = environment.step(action)
        realtime = info.get("realtime", {"interval": 1, "frame": frame + 1, "applied": True})
        frame, interval, over = int(realtime["frame"]), int(realtime["interval"]), terminated or truncated
        if realtime["applied"]:
            yield (
                frame - interval,
                {
                    "observation": observation,
                    "action": action,
                    "reward": float(reward),
                    "interval": interval,
                    "terminal": bool(terminated),
                    "truncated": bool(truncated and not terminated),
                    "next_observation": following,
                },
            )
        if over:
            return
        observation = following


def _fitting(observations: npt.NDArray[Any], space: gym.Space[Any]) -> npt.NDArray[Any]:
    """Return observations in the shape and type of a space; they may differ by axes of length 1 and by the type."""
    recorded, shape, kind = observations.shape[1:], space.shape, space.dtype
    if shape is not None and kind is not None and _without_ones(recorded) == _without_ones(shape):
        floating = all(np.issubdtype(each, np.floating) for each in (observations.dtype, kind))
        with np.errstate(invalid="ignore"):
            converted = observations.astype(kind, copy=False).reshape(-1, *shape)
        if floating or np.array_equal(converted, observations.reshape(-1, *shape)):
            return converted
    raise ValueError(
        f"its observations are {observations.dtype} {list(recorded)}, and the environment's {kind} {list(shape or ())}"
    )


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(length for length in shape if length != 1)

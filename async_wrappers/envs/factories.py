"""Environments and vectors by their Gymnasium id, and their wrappers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import gymnasium as gym
import numpy as np

from async_wrappers.checks import flag, reward_to_clip, whole
from async_wrappers.extras import ignored_warnings, needs_extra
from async_wrappers.gymnasium_api import stepped

Wrapper = Callable[[gym.Env[Any, Any]], gym.Env[Any, Any]]
VectorEnv = gym.vector.VectorEnv[Any, Any, Any]

# The extras that bring a library of Gymnasium's own environments, by the library.
_EXTRAS = {"Box2D": "box2d", "mujoco": "mujoco"}

_ATARI_ID = re.compile(r"^ALE/|(-ram)?(NoFrameskip|Deterministic)-v\d+$")


def create_gym_environment(
    environment_id: str,
    environment_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[Wrapper] = (),
    clip_rewards: bool = False,
    render_mode: str | None = None,
) -> gym.Env[Any, Any]:
    """Make a registered environment and wrap it.

    An environment of your own works too: register it in a module beside the gin file, and import that module in the gin
    file (``import my_environments``), or give ``"my_environments:MyEnv-v0"``.

    Args:
        environment_id: A Gymnasium id, such as ``"CartPole-v1"``.
        environment_kwargs: Passed to ``gymnasium.make``.
        wrappers: Applied in this order, the first one innermost, such as ``[@AppliedActions, @RealtimeDelay]``.
        clip_rewards: Clip each frame's reward to [-1, 1], inside all `wrappers`.
        render_mode: Gymnasium's, such as ``"human"`` or ``"rgb_array"``.

    Raises:
        ValueError: No environment has that id (the sentence names the closest ones), a library is missing, or
            it has no such `render_mode`.
    """
    if not isinstance(environment_id, str):
        raise ValueError(f"environment_id must be a text, such as 'CartPole-v1', got {environment_id!r}")
    if environment_id.count(":") > 1 or environment_id.startswith(":"):
        raise ValueError(f"environment_id must read 'Name-v0' or 'module:Name-v0', got {environment_id!r}")
    if environment_kwargs is not None and not isinstance(environment_kwargs, Mapping):
        raise ValueError(f"environment_kwargs must be a dict, such as {{'gravity': 1.62}}, got {environment_kwargs!r}")
    if render_mode is not None and not isinstance(render_mode, str):
        raise ValueError(_no_such_mode(environment_id, render_mode, []))
    kwargs = dict(environment_kwargs or {})
    if render_mode is not None:  # an environment that cannot render need not take the argument
        kwargs["render_mode"] = render_mode
    try:
        with ignored_warnings(".*that is not in the possible render_modes"):  # refused below
            env = gym.make(environment_id, **kwargs)
    except TypeError as error:
        if render_mode is not None and "'render_mode'" in str(error):
            raise ValueError(_no_such_mode(environment_id, render_mode, [])) from None
        raise
    except (gym.error.Error, ImportError) as error:
        if environment_id in gym.registry:
            raise ValueError(_missing(environment_id, error)) from None
        if _ATARI_ID.search(environment_id):
            game = re.sub(r"(-ram)?-v\d+$", "", _ATARI_ID.sub("", environment_id))
            raise ValueError(
                f"environment_id {environment_id!r} is an Atari game, made by create_atari_environment: in gin bind "
                "Runner.create_environment_fn = @create_atari_environment and create_atari_environment.game_name = "
                f"{game!r}, whose frame skip, sticky actions and wrappers are its other parameters"
            ) from None
        close = get_close_matches(environment_id, list(gym.registry), n=3, cutoff=0.5)
        hint = f"; close names are {', '.join(close)}" if close else ""
        raise ValueError(
            f"environment_id must be registered with Gymnasium, got {environment_id!r}{hint} ({error})"
        ) from None
    modes = env.metadata.get("render_modes") or []
    if render_mode is not None and render_mode not in modes:
        raise ValueError(_no_such_mode(environment_id, render_mode, modes))
    return wrap(env, clip_rewards, wrappers)


def _missing(environment_id: str, error: Exception) -> str:
    """Return the message about a missing library, or about an outdated version and the newest one in its place."""
    if isinstance(error, gym.error.Error) and not isinstance(error, gym.error.DependencyNotInstalled):
        return f"environment_id {environment_id!r} cannot be made ({error})"
    missing = error.__cause__ if isinstance(error, gym.error.DependencyNotInstalled) else error
    if isinstance(missing, ImportError) and missing.name in _EXTRAS:
        return needs_extra(f"environment_id {environment_id!r}", _EXTRAS[missing.name], missing)
    name, _, version = environment_id.rpartition("-v")
    newer = [
        f"{name}-v{spec.version}"
        for spec in gym.registry.values()
        if spec.version is not None and spec.id == f"{name}-v{spec.version}" and spec.version > int(version or 0)
    ]
    what = str(error).strip().rstrip(".")
    if isinstance(error, gym.error.DependencyNotInstalled) or not newer:
        return f"environment_id {environment_id!r} needs a module that is missing ({what})"
    return f"environment_id {environment_id!r} cannot be made ({what}): use {max(newer)!r}"


def _no_such_mode(environment_id: str, render_mode: Any, modes: Sequence[str]) -> str:
    known = f"one of {', '.join(map(repr, modes))}" if modes else "None"
    return f"render_mode of {environment_id!r} must be {known}, got {render_mode!r}"


def create_gym_vector(
    environment_id: str,
    num_envs: int,
    environment_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[Callable[[VectorEnv], VectorEnv]] = (),
) -> VectorEnv:
    """Make the vector that a registered environment brings along, such as CartPole's of array operations.

    Args:
        environment_id: A Gymnasium id, such as ``"CartPole-v1"``.
        num_envs: How many environments.
        environment_kwargs: Passed to ``gymnasium.make_vec``.
        wrappers: Of the vector, the first one innermost, such as ``[@VectorRealtimeDelay]``.

    Raises:
        ValueError: The environment brings no vector along, or there is none of that id.
    """
    try:
        env: VectorEnv = gym.make_vec(
            environment_id,
            whole("num_envs", num_envs, 1),
            vectorization_mode="vector_entry_point",
            **(environment_kwargs or {}),
        )
    except gym.error.Error as error:
        raise ValueError(
            f"environment_id must name an environment with a vector of its own, got {environment_id!r} ({error}): "
            "put environments of create_gym_environment side by side instead, with VectorRunner.create_vector_fn = None"
        ) from None
    vector: VectorEnv = wrapped(env, wrappers)
    return vector


def wrap(env: gym.Env[Any, Any], clip_rewards: bool, wrappers: Sequence[Wrapper] | None) -> gym.Env[Any, Any]:
    """Return `env` wrapped: reward clipping innermost, then `wrappers` in the order given, the first one innermost.

    Raises:
        ValueError: `clip_rewards` is neither True nor False.
        TypeError: `wrappers` is not a list of callables (in gin: ``wrappers = [@AppliedActions, @RealtimeDelay]``).
    """
    made: gym.Env[Any, Any] = wrapped(ClipReward(env) if flag("clip_rewards", clip_rewards) else env, wrappers)
    return made


def wrapped(env: Any, wrappers: Sequence[Callable[[Any], Any]] | None) -> Any:
    """Return `env`, an environment or a vector, in `wrappers`, the first one innermost.

    Raises:
        TypeError: See `wrap`.
    """
    wrappers = () if wrappers is None else wrappers
    if callable(wrappers) or not all(callable(wrapper) for wrapper in wrappers):
        raise TypeError(
            f"wrappers must be a list of wrapper classes or functions, such as [@RealtimeDelay], got {wrappers!r}"
        )
    with ignored_warnings(".*precision lowered by casting"):  # which DtypeObservation was asked to do
        for wrapper in wrappers:
            env = wrapper(env)
            _refuse_before_clipping(env)
    return env


def _refuse_before_clipping(env: Any) -> None:
    """Let Gymnasium's `ClipReward`, of an environment or a vector, refuse infinite rewards."""
    clip = env if isinstance(env, gym.Env) else getattr(env, "wrapper", None)
    if isinstance(clip, gym.wrappers.ClipReward):
        clips = clip.func
        clip.func = lambda reward: clips(reward_to_clip(reward))


class ClipReward(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Clips each frame's reward and reports the unclipped return in ``info["episode_return"]``, unless one is there.

    It belongs inside `RealtimeDelay`: a decision's reward is the sum of its frames' clipped rewards, not the clipped
    sum. ``info["episode_return"]`` is the sum of the unclipped rewards of the episode so far.

    Args:
        env: The environment to wrap.
        low: The least reward of a frame.
        high: The largest reward of a frame.
    """

    changes_rewards = reports_returns = True  # see `async_wrappers.own_returns`

    def __init__(self, env: gym.Env[Any, Any], low: float = -1.0, high: float = 1.0) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, low=low, high=high)
        gym.Wrapper.__init__(self, env)
        if not low < high:
            raise ValueError(f"low must be < high, got low={low} and high={high}")
        self._low, self._high = low, high
        self._episode_return = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment and the return."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._episode_return = 0.0
        return observation, {"episode_return": 0.0, **info}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step the environment by one frame and clip its reward.

        Raises:
            BrokenEnvironment: The reward is no number, or infinite.
        """
        observation, reward, terminated, truncated, info = stepped(self.env, action)
        reward = reward_to_clip(reward)
        self._episode_return += reward
        clipped = float(np.clip(reward, self._low, self._high))
        return observation, clipped, terminated, truncated, {"episode_return": self._episode_return, **info}


class KeepEntries(gym.ObservationWrapper[Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Shows some entries of a vector alone, such as the positions of CartPole without its velocities.

    Hidden entries have to be remembered, so a task becomes one for agents with memory::

        create_gym_environment.environment_id = "CartPole-v1"
        create_gym_environment.wrappers = [@KeepEntries]
        KeepEntries.entries = (0, 2)

    Args:
        env: An environment whose observations are a Box `[n]`.
        entries: Which entries are shown, from 0, in this order.
        scale: Factor of each entry, above 0; None shows them as they are.

    Raises:
        ValueError: The observations are no vector, there is no such entry, or there is not a scale above 0 for each.
    """

    def __init__(self, env: gym.Env[Any, Any], entries: Sequence[int], scale: Sequence[float] | None = None) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, entries=entries, scale=scale)
        gym.ObservationWrapper.__init__(self, env)
        space = env.observation_space
        if not isinstance(space, gym.spaces.Box) or len(space.shape) != 1:
            raise ValueError(f"KeepEntries needs observations that are a Box [n], got {space}")
        self._entries = [whole("entries", entry, 0, space.shape[0] - 1) for entry in entries]
        if not self._entries:
            raise ValueError("entries must name at least one entry, got none")
        factors = np.ones(len(self._entries)) if scale is None else np.asarray(scale, np.float64)
        if factors.shape != (len(self._entries),) or not (factors > 0).all():
            raise ValueError(f"scale must be a number > 0 for each of {len(self._entries)} entries, got {scale!r}")
        self._scale = factors.astype(space.dtype)
        low, high = (bound[self._entries] * self._scale for bound in (space.low, space.high))
        self.observation_space = gym.spaces.Box(low, high, dtype=space.dtype.type)

    def observation(self, observation: Any) -> Any:
        """Return the entries."""
        return observation[self._entries] * self._scale

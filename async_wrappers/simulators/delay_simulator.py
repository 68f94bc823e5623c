"""`delay_simulator`: thousands of robots under delay, by the interface of the simulator that steps them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym

from async_wrappers.checks import whole
from async_wrappers.simulators.action_window import SentActions, ToldActions
from async_wrappers.simulators.groups import DelayedGroups, GroupsAsVector, looks_like_groups
from async_wrappers.simulators.vec_env import DelayedVecEnv, VecEnvAsVector, looks_like_vec_env
from async_wrappers.wrappers.chunk import Chunk
from async_wrappers.wrappers.copies import VectorEnv
from async_wrappers.wrappers.measured_latencies import Latencies
from async_wrappers.wrappers.row_terms import RowTerms
from async_wrappers.wrappers.sensor_delay import VectorSensorDelay
from async_wrappers.wrappers.vector_delay import VectorRealtimeDelay

LONGEST_WINDOW = 1_000  # frames


def delay_simulator(
    env: Any,
    delay: Any = 0,
    noops: Any = 0,
    default_action: Any = "noop",
    *,
    latency: Any = None,
    fps: Any = None,
    per: str = "episode",
    playout: int = 0,
    sensors: Mapping[str, Any] | Latencies | None = None,
    action_window: int = 0,
) -> Any:
    """Return a simulator's environment under delay, with the interface that it has.

    ================================================ ==================================================================
    what has                                         comes back as
    ================================================ ==================================================================
    the class `gymnasium.vector.VectorEnv`           a vector (ManiSkill's ``ManiSkillVectorEnv``)
    ``num_envs``, ``single_action_space``,           the same ``reset`` and ``step``, of dicts of tensors and extras
    ``episode_length_buf``                           (Isaac Lab, mjlab)
    ``num_envs``, ``num_actions``,                   a ``VecEnv`` (rsl_rl); episodes begin where it stands
    ``get_observations``, ``episode_length_buf``
    ``observation_size``, ``action_size``            pure ``reset(rng)`` and ``step(state, action)`` (Brax, Playground):
                                                     inside or outside of the wrappers for training, which ``vmap`` and
                                                     reset it
    ``default_params``                               pure ``reset(key, params)`` and ``step(key, state, action,
                                                     params)`` (gymnax)
    ================================================ ==================================================================

    A step is one frame. Each robot is under the delay of a `RealtimeDelay` of its own; delays, rewards and
    ``["realtime"]`` of infos or extras are those of `VectorRealtimeDelay`. Before an episode's first action lands, the
    robot receives the default action whatever the policy answers, and the reward is carried.

    A pure environment carries what it knows in its state, so it goes through ``jit``, ``vmap`` and ``scan``. Each copy
    takes its delays by a number that its ``rng`` draws.

    Args:
        env: The environment.
        delay: Frames, as in `VectorRealtimeDelay`.
        noops: As there.
        default_action: As there. Of a pure environment ``"noop"``, which is 0, ``"repeat"`` or an action.
        latency: As there.
        fps: With a latency or sensors: frames a second; None for the environment's own (``step_dt``, ``dt``).
        per: As there.
        playout: As there.
        sensors: As in `VectorSensorDelay`; they stand inside of the delay. Not of pure environments.
        action_window: The actions that were sent on so many last frames are joined to each vector of real numbers of
            the observation, newest last; with as many as the delay it is Markov again.

    Raises:
        ValueError: No interface fits, or an argument does not fit the interface.
    """
    window = whole("action_window", action_window, 0, LONGEST_WINDOW, unit="frames")
    needs_rate = latency is not None or sensors is not None
    rate = _rate_of(env) if fps is None and needs_rate else fps
    terms = RowTerms(delay, noops, latency, None if latency is None else rate, per, playout)
    if isinstance(env, gym.vector.VectorEnv):
        return _delayed(env, terms, default_action, sensors, rate, window)
    is_pure = _is_pure(env)
    if is_pure and sensors is not None:
        raise ValueError("sensors need an environment that steps arrays of many robots, got a pure one: leave them out")
    if isinstance(default_action, Chunk):
        raise ValueError(f"default_action={default_action!r} needs a gymnasium.vector.VectorEnv, got {type(env)}")
    if looks_like_vec_env(env):  # around Isaac Lab's or mjlab's too, whose groups are found through it
        vec_env = VecEnvAsVector(env)
        return DelayedVecEnv(vec_env, _delayed(vec_env, terms, default_action, sensors, rate, window))
    if looks_like_groups(env):
        groups = GroupsAsVector(env)
        return DelayedGroups(groups, _delayed(groups, terms, default_action, sensors, rate, window), window)
    if is_pure:
        from async_wrappers.simulators.pure import DelayedPureEnv, DelayedPureGame  # with JAX

        kind = DelayedPureEnv if _has_sizes(env) else DelayedPureGame
        return kind(env, terms, default_action, window)
    raise ValueError(
        f"env must be a gymnasium.vector.VectorEnv, or have what environments of Isaac Lab, mjlab, rsl_rl, Brax, "
        f"Playground or gymnax have (delay_simulator's table), got {type(env)}: make it a gymnasium.vector.VectorEnv"
    )


def _is_pure(env: Any) -> bool:
    """Return whether it has what pure environments have."""
    steps = hasattr(env, "reset") and hasattr(env, "step")
    return steps and (_has_sizes(env) or hasattr(env, "default_params"))


def _has_sizes(env: Any) -> bool:
    """Return whether it tells sizes, as Brax does; of its class, because to compute one may take a reset."""
    return all(hasattr(type(env), name) for name in ("observation_size", "action_size"))


def _delayed(env: VectorEnv, terms: RowTerms, default_action: Any, sensors: Any, fps: Any, window: int) -> Any:
    """Return a vector under delay: what is sent is kept innermost, and told outermost."""
    sent = SentActions(env, window) if window else None
    inner: VectorEnv = env if sent is None else sent
    if sensors is not None:
        inner = VectorSensorDelay(inner, sensors, fps)
    drawn = {name: value for name, value in terms._asdict().items() if name not in ("delay", "noops")}
    delayed = VectorRealtimeDelay(inner, terms.delay, terms.noops, default_action, **drawn)
    return delayed if sent is None else ToldActions(delayed, sent)


def _rate_of(env: Any) -> Any:
    """Return an environment's own frames per second, whole where float32's rounding of a period hides it; else None."""
    inner = getattr(env, "unwrapped", env)
    period = next((getattr(inner, name) for name in ("step_dt", "dt") if hasattr(inner, name)), None)
    if period is None:
        return None
    rate = 1 / float(period)
    if _is_pure(env):
        rate /= getattr(env, "action_repeat", 1)  # of Brax's `EpisodeWrapper`, whose step has so many
    return round(rate) if abs(rate - round(rate)) < 1e-4 * rate else rate

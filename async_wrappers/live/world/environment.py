"""The environment in a live run: refusals, its sensors, what it keeps from phase to phase, the status of each frame."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym

from async_wrappers.checks import plain_data
from async_wrappers.live.report.report import Measurements
from async_wrappers.live.world.machine import as_environment
from async_wrappers.own_returns import with_own_returns
from async_wrappers.schedule.frames import as_fraction
from async_wrappers.wrappers.action_history import CommittedActions, DecisionDelay
from async_wrappers.wrappers.committed_prefix import CommittedPrefix


def made_environment(make_env: Callable[[], Any]) -> gym.Env[Any, Any]:
    """Return the environment that `make_env` makes, or the `MachineEnv` of the machine that it makes.

    Raises:
        ValueError: `make_env` returns neither, a vector of environments, or a machine that lacks a method.
    """
    return with_own_returns(as_environment(make_env()))  # type: ignore[no-any-return]


def refuse_oracles(env: gym.Env[Any, Any]) -> None:
    """Refuse wrappers that show the delay of a `RealtimeDelay`: they cannot know the runner's.

    Raises:
        ValueError: `env` contains `CommittedActions`, `CommittedPrefix` or `DecisionDelay`.
    """
    layer: Any = env
    while isinstance(layer, gym.Wrapper):
        if isinstance(layer, CommittedActions) and not layer.known:
            raise ValueError(
                "make_env must not use CommittedActions(known=False) in AsyncRunner, whose workers compute the actions "
                "in flight and cannot know them: leave it out, or simulate a delay of transport with RealtimeDelay"
            )
        if isinstance(layer, CommittedPrefix):
            raise ValueError(
                "make_env must not use CommittedPrefix in AsyncRunner, whose delay lies outside all wrappers: leave it "
                "and its RealtimeDelay out, and give AsyncRunner committed_prefix"
            )
        if isinstance(layer, CommittedActions | DecisionDelay):
            name = type(layer).__name__
            raise ValueError(
                f"make_env must not use {name} in AsyncRunner, whose delay lies outside all wrappers: "
                f"leave {name} and its RealtimeDelay out, or use AppliedActions"
            )
        layer = layer.env


def timed_sensors_of(env: gym.Env[Any, Any]) -> dict[str, slice | None]:
    """Return the sensors whose ages an environment or a machine reports, each with its numbers of a Box.

    Its attribute ``timed_sensors`` says so: names, which are keys of a Dict observation, or a dict from names to slices
    of a Box.

    Raises:
        ValueError: It has something else, or sensors that are no part of the observations.
    """
    if not env.has_wrapper_attr("timed_sensors"):
        return {}
    given, space = env.get_wrapper_attr("timed_sensors"), env.observation_space
    sensors = dict(given) if isinstance(given, Mapping) else {}
    if not isinstance(given, Mapping | str) and isinstance(given, Collection):
        sensors = dict.fromkeys(given)
    kinds = all(isinstance(name, str) and isinstance(of, slice | None) for name, of in sensors.items())
    if not sensors or not kinds:
        raise ValueError(
            f"timed_sensors must be names of sensors, or a dict from names to slices of a Box, got {given!r}"
        )
    for name, of in sensors.items():
        if isinstance(space, gym.spaces.Dict) and (name not in space.spaces or of is not None):
            raise ValueError(f"timed_sensors must be keys of {list(space.spaces)}, got {name!r}: {of}")
        if of is not None and not (isinstance(space, gym.spaces.Box) and range(space.shape[0])[of]):
            raise ValueError(f"timed_sensors must be slices of the numbers of {space}, got {name!r}: {of}")
    return sensors


def refuse_other_rate(env: gym.Env[Any, Any], fps: Any) -> None:
    """Refuse sensors that are late at another frame rate than the run's: their seconds would not be the run's.

    Raises:
        ValueError: The environment's ``fps``, as `SensorDelay` has it, is another.
    """
    its = env.get_wrapper_attr("fps") if env.has_wrapper_attr("fps") else None
    if its is not None and abs(float(as_fraction(its) / as_fraction(fps)) - 1) > 1e-6:
        raise ValueError(
            f"fps must be {float(its):g}, that of the environment's sensors, got {float(fps):g}: give "
            f"SensorDelay(fps={float(fps):g}), or play at {float(its):g}"
        )


def score_of(info: Mapping[str, Any], rewards: float) -> float:
    """Return an episode's return so far: ``info["episode_return"]`` where the environment gives it, as `ClipReward`.

    Args:
        info: Of the newest reset or step.
        rewards: The sum of the rewards so far.
    """
    return float(info.get("episode_return", rewards))


def phase_state_of(env: gym.Env[Any, Any]) -> Any:
    """Return an environment's attribute ``phase_state``, which it keeps from phase to phase; None if it has none."""
    return env.get_wrapper_attr("phase_state") if env.has_wrapper_attr("phase_state") else None


def set_phase_state(env: gym.Env[Any, Any], state: Any) -> None:
    """Set an environment's ``phase_state`` to that of another phase.

    Raises:
        ValueError: It has no attribute ``phase_state``, or one that cannot be set.
    """
    refusal = "phase_state must be None for an environment {}, got {!r}"
    if not env.has_wrapper_attr("phase_state"):
        raise ValueError(refusal.format("that has no attribute phase_state", state))
    try:
        env.set_wrapper_attr("phase_state", plain_data("phase_state", state), force=False)
    except AttributeError:
        raise ValueError(refusal.format("whose phase_state cannot be set", state)) from None


@dataclass(slots=True, eq=False, repr=False)
class FrameStatus:
    """The status of a run as a frame begins; counts are computed when they are read.

    Attributes:
        frame: Frames of this kind of phase before it, those of earlier runs included.
        score: Return of the running episode so far, unclipped where the environment says it (``"episode_return"``).
        paused: Whether the run is paused, unless it is resumed on this frame.
        missed: Frames in a row before it that received no action of the policy's, in the episode and since a pause.
    """

    frame: int
    score: float
    missed: int
    paused: bool
    _applied: int  # actions in the running episode
    _record: Measurements
    _env: gym.Env[Any, Any]
    _updates: Callable[[], int]
    _pause: Callable[[bool], None]

    def pause(self) -> None:
        """Pause from this frame on; see `AsyncRunner.pause`."""
        self._pause(True)

    def resume(self) -> None:
        """Go on from this frame on; see `AsyncRunner.resume`."""
        self._pause(False)

    @property
    def episodes(self) -> int:
        """Episodes of this phase that are over."""
        return len(self._record.episodes)

    @property
    def wins(self) -> int:
        """Of them, those that were won (``info["won"]``)."""
        return sum(episode.won is True for episode in self._record.episodes)

    @property
    def losses(self) -> int:
        """Of them, those that were lost."""
        return sum(episode.won is False for episode in self._record.episodes)

    @property
    def actions(self) -> int:
        """Actions of the policy's that were applied in this phase."""
        return self._applied + sum(map(len, self._record.effects)) + (self._record.held or 0)

    @property
    def updates(self) -> int:
        """Updates of all learners in this phase."""
        return self._updates()

    @property
    def phase_state(self) -> Any:
        """The environment's ``phase_state`` if the phase ended now."""
        return phase_state_of(self._env)

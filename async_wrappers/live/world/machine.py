"""A machine: a world that does not wait for its step. It is sent an action at once, and read as a frame begins."""

# Why a machine has two halves
# ============================
#
# `step` of a simulator sends an action, lets a frame pass and reads what came of it. A simulator's frame passes as
# quickly as it computes, so its loop keeps the reading back until the next frame begins. A robot's frame takes its
# time. Its `step` would either read the sensors at once, so that each policy works on a reading that is one frame old
# (20 ms at 50 Hz), or sleep for the frame, during which nobody hears of actions that arrive. So its step is cut where
# the frame passes:
#
#   frame k      send(a_k)                                      the wait is the environment loop's (or `MachineEnv`'s)
#   frame k + 1              observe() -> o_k+1, r_k, the end?  before o_k+1 is shown, and a_k+1 is chosen
#
# An environment has the same halves: its `send` makes the step, whose result is there at once. So the environment loop
# plays both alike (`Halves`), and asks one question, whether to wait before the second half (`reads_late`).

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, ClassVar, Protocol, runtime_checkable

import gymnasium as gym

from async_wrappers.checks import BrokenEnvironment, flag, reward_of
from async_wrappers.frame_rate import frame_rate
from async_wrappers.gymnasium_api import OLDER, refuse_ends, stepped
from async_wrappers.schedule.frames import FrameClock, Spacing
from async_wrappers.wrappers.action_conversion import RefusedAction, as_action, refusal
from async_wrappers.wrappers.copies import own_copy

Outcome = tuple[Any, Any, bool, bool, dict[str, Any]]

_METHODS = ("reset", "send", "observe", "close")
_AHEAD = 0.001  # seconds by which the clock of a sensor may be ahead of the machine's


@runtime_checkable
class Machine(Protocol):
    """A robot, or anything else that moves on by itself; `AsyncRunner(make_env=...)` takes a function that makes one.

    It may also have ``fps``, the frames per second that it is driven with, ``metadata`` and ``phase_state``, as an
    environment may. Zeros may be a place far away, so a machine says itself what it is sent before its first action, by
    one of:

    * ``noop_action``: an action that is safe at any time, such as zeros, for a machine that is driven by speeds or
      torques.
    * ``hold_action(observation)``: returns the action that holds it where it was read, for a machine that is driven by
      places; called at each reset. ``"repeat"`` and limits begin there.

    Sensors are late, each by a time of its own. A machine that knows when its readings were taken stamps them: the
    infos of `reset` and `observe` have ``"sensor_stamps"``, a dict from names to seconds on the clock of
    `time.monotonic`, or on another one that ``now()`` reads. They become ``info["sensor_ages"]``, in seconds. A live
    run reports and records the ages of those that ``timed_sensors`` names: keys of a Dict observation, or a dict from
    names to slices of a Box.

    Attributes:
        observation_space: Of what `reset` and `observe` return.
        action_space: Of what `send` takes.
    """

    observation_space: gym.Space[Any]
    action_space: gym.Space[Any]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Bring it to where an episode begins; return the reading there, and an info."""

    def send(self, action: Any) -> Any:
        """Send an action, at once and without waiting; return what was really sent if it differs, else None."""

    def observe(self) -> Outcome:
        """Read it now; return the reading, the reward since the last one, terminated, truncated and an info.

        It is called once as each frame begins, and also after frames on which nothing was sent.
        """

    def close(self) -> None:
        """Bring it to rest, and let it go; it may be called more than once."""


class MachineFailed(RuntimeError):
    """A machine's method raised, or returned what it must not; the machine has been closed."""


class _SteppedHalves:
    """An environment: its step is made when the result is asked for, as soon as the action has been recorded.

    Attributes:
        reads_late: Whether the frame has to pass between the halves.
    """

    reads_late = False

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        self._env = env

    def send(self, action: Any) -> None:
        """Take an action; a machine returns what was really sent if it differs, else None."""
        self._action = action

    def observe(self) -> Outcome:
        """Return what came of it: observation, reward, terminated, truncated and info."""
        return stepped(self._env, self._action)

    def abandon(self) -> None:
        """An environment is left as it is; its backend closes it."""


class _CheckedMachine:
    """A machine whose answers are checked. It is closed once, and as soon as anything goes wrong with it."""

    reads_late = True

    def __init__(self, machine: Any, must: str) -> None:
        missing = [name for name in _METHODS if not callable(getattr(machine, name, None))]
        for name in ("observation_space", "action_space"):
            if not isinstance(getattr(machine, name, None), gym.Space):
                missing.append(name)
        if missing:
            raise ValueError(f"{must} a Machine, with {', '.join(missing)} besides what it has, got {machine!r}")
        self.machine, self.name = machine, type(machine).__name__
        self.observation_space, self.action_space = machine.observation_space, machine.action_space
        self.holds = getattr(machine, "hold_action", None) is not None
        if self.holds and not callable(machine.hold_action):
            raise ValueError(
                f"hold_action of {self.name} must be a function of an observation, got {machine.hold_action!r}: name "
                "an action that is safe at any time noop_action"
            )
        self._closed = False

    def reset(self, seed: int | None, options: dict[str, Any] | None) -> tuple[Any, dict[str, Any]]:
        answer = self._call("reset", seed=seed, options=options)
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise self._failed(f"reset must return (observation, info), got {answer!r:.200}")
        observation = self._element("reset", self.observation_space, answer[0], "observation")
        return observation, self._aged("reset", answer[1])

    def held(self, observation: Any) -> Any:
        """Return the action that holds it where it was read; None if it does not say."""
        if not self.holds:
            return None
        answer = self._call("hold_action", own_copy(observation))
        return own_copy(self._element("hold_action", self.action_space, answer, "action"))

    def send(self, action: Any) -> Any:
        try:
            action = as_action(self.action_space, action)
        except RefusedAction as reason:
            shown = " ".join(repr(action).split())
            raise self._failed(f"send takes no {shown:.100}, no action of {self.action_space}: {reason}") from None
        sent = self._call("send", own_copy(action))
        return None if sent is None else self._element("send", self.action_space, sent, "action")

    def observe(self) -> Outcome:
        answer = self._call("observe")
        if not isinstance(answer, tuple) or len(answer) != 5:
            wanted = "(observation, reward, terminated, truncated, info)"
            raise self._failed(f"observe must return {wanted}, got {answer!r:.200}")
        observation, reward, terminated, truncated, info = answer
        try:
            reward = reward_of(reward)
        except ValueError:
            raise self._failed(f"observe must return a reward that is a number, got {reward!r:.100}") from None
        try:
            refuse_ends(terminated, truncated, info)
        except BrokenEnvironment:
            ends = f"terminated={terminated!r:.50}, truncated={truncated!r:.50} and info={info!r:.50}"
            raise self._failed(f"observe must return two of True and False and then a dict, got {ends}") from None
        observation = self._element("observe", self.observation_space, observation, "observation")
        return observation, reward, bool(terminated), bool(truncated), self._aged("observe", info)

    def close(self) -> None:
        closed, self._closed = self._closed, True
        if not closed:
            self.machine.close()

    def abandon(self) -> None:
        """Close it, whatever else goes wrong: an error is on its way already."""
        with suppress(Exception):
            self.close()

    def _aged(self, method: str, info: Any) -> Any:
        """Return an info with the ages of the readings that it has the stamps of."""
        if not isinstance(info, Mapping) or "sensor_stamps" not in info:
            return info
        now, stamps = self._now(), info["sensor_stamps"]
        try:
            ages = {name: float(now - stamp) for name, stamp in stamps.items()}
        except (AttributeError, TypeError, ValueError):
            raise self._failed(f"{method} must stamp sensors by a dict of seconds, got {stamps!r:.200}") from None
        for name, age in ages.items():
            if not -_AHEAD <= age < math.inf:
                raise self._failed(
                    f"{method} must stamp {name!r} with the time of its reading, on a clock that is at {now:.3f} s, "
                    f"got {stamps[name]!r}"
                )
        return {**info, "sensor_ages": {name: max(age, 0.0) for name, age in ages.items()}}

    def _now(self) -> float:
        """Return the time of the clock that stamps readings."""
        if not hasattr(self.machine, "now"):
            return time.monotonic()
        try:
            return float(now := self._call("now"))
        except (TypeError, ValueError):
            raise self._failed(f"now must return seconds, got {now!r:.200}") from None

    def _call(self, method: str, *arguments: Any, **named: Any) -> Any:
        if self._closed:
            raise MachineFailed(f"{self.name} is closed, so there is no {method}: make a new one (a new `with` block)")
        try:
            return getattr(self.machine, method)(*arguments, **named)
        except Exception as error:
            raise self._failed(f"{method} raised {type(error).__name__}: {error}") from error
        except BaseException:
            self.abandon()
            raise

    def _element(self, method: str, space: gym.Space[Any], value: Any, what: str) -> Any:
        """Return a value that a method answered as an element of its space."""
        try:
            return as_action(space, value)
        except RefusedAction as reason:
            raise self._failed(refusal(method, value, space, reason, what)) from None

    def _failed(self, sentence: str) -> MachineFailed:
        self.abandon()
        return MachineFailed(f"{self.name} was closed, as its {sentence}")


Halves = _SteppedHalves | _CheckedMachine
"""A world that the environment loop plays, in two halves."""


class MachineEnv(gym.Env[Any, Any]):
    """A machine as a Gymnasium environment, for trainers that take turns.

    ``step`` sends the action, waits for the end of the frame and reads the machine. Frames end on the deadlines ``t_0 +
    k / fps``, where t_0 is when `reset` returned, so that errors do not add up. A step ends on the first of them after
    its action was sent: a trainer that was away for longer than a frame misses some (`missed_frames`). No frame is
    hurried afterwards: an action waits until nearly a frame has passed since the last one
    (`async_wrappers.schedule.frames`).

    ``info["sent"]`` is what was really sent, where that differs from the action.

    Give `AsyncRunner` the machine itself, or this without wrappers around it, whose machine it then plays.

    Example:
        >>> import gymnasium as gym
        >>> from async_wrappers import MachineEnv
        >>> class Lamp:
        ...     observation_space, action_space, fps = gym.spaces.Discrete(2), gym.spaces.Discrete(2), 100
        ...     def reset(self, *, seed=None, options=None):
        ...         self.on = 0
        ...         return self.on, {}
        ...     def send(self, action):
        ...         self.on = action
        ...     def observe(self):
        ...         return self.on, float(self.on), False, False, {}
        ...     def close(self):
        ...         self.on = 0
        >>> env = MachineEnv(Lamp())
        >>> env.reset()
        (0, {})
        >>> env.step(1)  # returns after 10 ms
        (1, 1.0, False, False, {})

    Args:
        machine: The `Machine`.
        fps: Frames per second; None for the machine's own: its ``fps``, or what
            `async_wrappers.frame_rate.frame_rate` finds.
        waits: Whether a step waits for the end of its frame; False for a machine on simulated time.
        now: Returns the time, in nanoseconds.
        sleep: Waits for a number of seconds.

    Attributes:
        machine: As given.
        holds: Whether it has ``hold_action``.
        held: The action that holds it where the last `reset` read it; None before that, or if it does not say.
        missed_frames: Frames since the reset that passed without an action, as the trainer was away.

    Raises:
        ValueError: `machine` lacks a part of a Machine, or there is no positive frame rate for one that waits.
        MachineFailed: From its methods: one of the machine's raised, or returned what is not in its space.
    """

    metadata: dict[str, Any] = {}
    reports_sent = is_machine = True
    _ours: ClassVar[frozenset[str]] = frozenset({"noop_action", "get_action_meanings", "dt", "timed_sensors"})

    def __init__(
        self,
        machine: Any,
        fps: Any = None,
        *,
        waits: bool = True,
        now: Callable[[], int] = time.monotonic_ns,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.halves = _CheckedMachine(machine, "machine must be")
        self.holds, self.held = self.halves.holds, None
        self.machine, self.waits = machine, flag("waits", waits)
        self.observation_space, self.action_space = machine.observation_space, machine.action_space
        self.metadata = dict(getattr(machine, "metadata", None) or {})
        self._now, self._sleep = now, sleep
        self._given_fps = fps if fps is not None else getattr(machine, "fps", None)
        self._frames = FrameClock(self.fps) if self.waits else None
        self._spacing = None if self._frames is None else Spacing(self._frames.fps)
        self._begin = self._frame = self.missed_frames = 0

    @property
    def fps(self) -> Any:
        """Frames per second: as given, else the machine's.

        Raises:
            ValueError: The machine does not say.
        """
        return frame_rate(self) if self._given_fps is None else self._given_fps

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing was sent for more than a frame and a half, so that what moved has had to stop."""
        return self._spacing is not None and self._spacing.is_at_rest(self._now())

    @property
    def phase_state(self) -> Any:
        """The machine's attribute of that name, which it keeps from phase to phase."""
        return self.machine.phase_state

    @phase_state.setter
    def phase_state(self, value: Any) -> None:
        self.machine.phase_state = value

    def __getattr__(self, name: str) -> Any:
        """Return what the machine says of its actions and its time, where it does."""
        if name in MachineEnv._ours:
            return getattr(self.machine, name)
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the machine; the first frame begins now."""
        super().reset(seed=seed)
        observation, info = self.halves.reset(seed, options)
        self.held = self.halves.held(observation)
        self._begin, self._frame, self.missed_frames = self._now(), 0, 0
        return observation, info

    def step(self, action: Any) -> Outcome:
        """Send an action, wait for the frame's end, and read the machine."""
        sent = self.halves.send(action) if self._spacing is None else self._send(self._spacing, action)
        if self._frames is not None:
            self._pass_frame(self._frames)
        observation, reward, terminated, truncated, info = self.halves.observe()
        return observation, reward, terminated, truncated, info if sent is None else {**info, "sent": sent}

    def wait_to_send(self) -> None:
        """Wait until the machine may be sent to, as `step` does before it sends."""
        if self._spacing is not None:
            self._wait_until(self._spacing.next_send)

    def close(self) -> None:
        """Bring the machine to rest."""
        self.halves.close()

    def _pass_frame(self, frames: FrameClock) -> None:
        """Wait for the first deadline that is still to come."""
        ends = frames.frame_in(self._now() - self._begin) + 1
        self.missed_frames += max(0, ends - self._frame - 1)
        self._frame = ends
        self._wait_until(self._begin + frames.begin(ends))

    def _send(self, spacing: Spacing, action: Any) -> Any:
        """Send an action as soon as the machine may be sent to."""
        self.wait_to_send()
        began = self._now()
        sent = self.halves.send(action)
        spacing.sent(began, self._now())
        return sent

    def _wait_until(self, time: int) -> None:
        while (rest := time - self._now()) > 0:
            self._sleep(rest / 1e9)


def as_environment(made: Any, simulated: bool = True) -> gym.Env[Any, Any]:
    """Return what `make_env` has made as an environment: itself, or a `MachineEnv` of a machine.

    Args:
        made: By `make_env`.
        simulated: Whether it is played on the virtual clock.

    Raises:
        ValueError: It is neither, lacks a part of a Machine, or holds a MachineEnv in wrappers: their step waits, or
            on a real clock would be hurried after a stall, as an environment's is.
    """
    if isinstance(made, gym.Env):
        inner: Any = made
        while isinstance(inner, gym.Wrapper):
            inner = inner.env
        if isinstance(inner, MachineEnv) and inner is not made and (inner.waits or not simulated):
            why = "waits for the frame's end" if inner.waits else "would be hurried after a stall"
            raise ValueError(
                f"make_env must return the Machine itself where AsyncRunner plays it, got a MachineEnv in wrappers, "
                f"whose step {why}: {made}"
            )
        return made
    if not any(hasattr(made, name) for name in ("send", "observe")):
        raise ValueError(
            f"make_env must return a gymnasium.Env (one, not a vector of them), got {made!r}, which is no Machine "
            f"either; {OLDER}"
        )
    _CheckedMachine(made, "make_env must return")
    return MachineEnv(made, waits=False)


def halves_of(env: gym.Env[Any, Any]) -> Halves:
    """Return the halves in which the environment loop plays an environment or a machine."""
    return env.halves if isinstance(env, MachineEnv) else _SteppedHalves(env)

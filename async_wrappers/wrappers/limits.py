"""Limits of what a machine is sent: bounds, the rate of change, and the change of that rate; in a wrapper and live."""

# How an action is limited
# ========================
#
# With a_k what is sent on frame k, v_k = a_k - a_k-1 its change, r and j the largest |v_k| and |v_k - v_k-1|: of all
# a_k that are allowed the one nearest to the action asked for is sent from which the way still comes to rest there, and
# so before the bounds. From a change v > 0 the changes v - j, v - 2 j, ... come to rest after another
#
#     D(v) = sum_i max(0, v - i j) = n v - j n (n + 1) / 2,   n = floor(v / j)
#
# so with the distance d to where the action must have stopped (the action asked for, within the bounds) the change is
# the largest v with v + D(v) <= d: v = (d + j n (n + 1) / 2) / (n + 1) with n = floor((sqrt(1 + 8 d / j) - 1) / 2).
# This v is clipped to v_k-1 +- j and to +- r. Nothing has to be given up later: if v + D(v) <= d held on one frame, the
# change v - j holds it on the next one. So bounds, rate and jerk are all kept, always, whatever is asked for. Where the
# action asked for turns round it may be overshot, since a change cannot end at once.
#
# All are kept exactly by the numbers that are sent, in the action's own type: a_k is rounded towards a_k-1, r and j are
# reduced by what rounding can add, and the way to rest is planned with a little less than j.

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from fractions import Fraction
from itertools import takewhile
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from async_wrappers.checks import number
from async_wrappers.frame_rate import frame_rate
from async_wrappers.gymnasium_api import stepped
from async_wrappers.needs import Words, refuse
from async_wrappers.schedule.frames import FrameClock, fastest
from async_wrappers.wrappers.default_action import find_noop, holding_machine, is_machine, nothing_safe
from async_wrappers.wrappers.recorded import given, recorded

_UNITS = ("per second", "per frame")
_SOFT = 0.1  # share of rate and jerk at the beginning of a soft start
_ROUNDINGS = 16  # steps of the action's type that rate and jerk must be larger than, to be kept exactly
_FASTEST = 1e9  # frames per second

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Limits:
    """What a machine may be sent, in each dimension of a Box; None is no limit.

    The sent action lies within `low` and `high`. It changes by no more than `rate`, and its rate of change by no more
    than `jerk`. It comes to rest at the action that was asked for as soon as these let it. An episode begins at the
    no-op (without one, at the number nearest to 0), or where a machine's ``hold_action`` holds it, at rest.

    A second is `fps` frames. For a machine it is a second of the wall clock, even where the loop is held up
    (`async_wrappers.schedule.frames`); on the virtual clock a machine is sent the same actions.

    Example:
        >>> from async_wrappers import Limits
        >>> Limits(low=-0.5, high=0.5, rate=2.0, jerk=40.0, soft_start=2.0)
        Limits(low=-0.5, high=0.5, rate=2.0, jerk=40.0, unit='per second', soft_start=2.0)

    Args:
        low: Smallest action, in the action's unit: a number, or an array of the action's shape.
        high: Largest action, as `low`.
        rate: Largest change of the action in a second, or from one frame to the next, as `unit` says; > 0.
        jerk: Largest change of the rate in a second, or from one frame to the next, as `unit` says; > 0.
        unit: ``"per second"`` or ``"per frame"``: the time over which `rate` and `jerk` are counted.
        soft_start: Seconds at the beginning of a run in which rate and jerk grow evenly, from a tenth to all.

    Raises:
        ValueError: A limit is no number, not positive, or `low` lies above `high`; an unknown unit; a soft start
            without a rate or a jerk.
    """

    low: Any = None
    high: Any = None
    rate: Any = None
    jerk: Any = None
    unit: str = "per second"
    soft_start: float = 0.0

    def __post_init__(self) -> None:
        """Check the limits, as far as they can be without an action space."""
        for name, wanted in (("low", ""), ("high", ""), ("rate", " > 0"), ("jerk", " > 0")):
            value = getattr(self, name)
            if value is None:
                continue
            array = _numbers(value)
            if array is None or not array.size or np.isnan(array).any() or (wanted and not (array > 0).all()):
                raise ValueError(f"{name} must be a number{wanted}, an array of such, or None, got {value!r}")
        if self.low is not None and self.high is not None:
            low, high = np.asarray(self.low, np.float64), np.asarray(self.high, np.float64)
            if low.ndim and high.ndim and low.shape != high.shape:
                raise ValueError(f"low and high must have one shape, got {list(low.shape)} and {list(high.shape)}")
            if (low > high).any():
                raise ValueError(f"low must be <= high, got low={self.low!r} and high={self.high!r}")
        if not isinstance(self.unit, str) or self.unit not in _UNITS:
            raise ValueError(f"unit must be 'per second' or 'per frame', got {self.unit!r}")
        number("soft_start", self.soft_start, "a number of seconds from 0 to 1e6", lambda given: 0 <= given <= 1e6)
        if self.soft_start and self.rate is None and self.jerk is None:
            raise ValueError(f"soft_start={self.soft_start!r} needs a rate or a jerk, which it reduces: both are None")


def _numbers(value: Any) -> Array | None:
    """Return real numbers as an array; None if they are none."""
    try:
        array = np.asarray(value)
    except ValueError:  # ragged
        return None
    return array.astype(np.float64) if array.dtype.kind in "iuf" else None


class Limited(NamedTuple):
    """What a limiter lets through: the action to send, and whether it is another one than was asked for."""

    action: NDArray[Any]
    changed: bool


class Limiter:
    """Applies limits frame by frame; see the module for the rule.

    Args:
        limits: The limits.
        env: Whose actions they are of.
        fps: Frames per second.
        warns: Called once with a sentence, where an action is no number.

    Raises:
        ValueError: Actions are not of a Box of floats, a limit has another shape or leaves nothing of the Box, or rate
            or jerk is smaller than what the action's type can tell apart.
    """

    def __init__(
        self, limits: Limits, env: gym.Env[Any, Any], fps: Any, warns: Callable[[str], None] = warnings.warn
    ) -> None:
        space = env.action_space
        if not isinstance(space, Box) or not np.issubdtype(space.dtype, np.floating):
            raise ValueError(f"limits need actions of a Box of floats, got {space}")
        self._space, self._dtype, self._warns, self._warned = space, space.dtype, warns, False
        rate = FrameClock(fps).fps if limits.unit == "per second" else Fraction(1)
        if rate > _FASTEST:
            raise ValueError(f"fps must be at most {_FASTEST:g} frames per second for limits per second, got {fps!r}")
        low, high = self._shaped("low", limits.low, -np.inf), self._shaped("high", limits.high, np.inf)
        self._low, self._high = self._inwards(low, 1), self._inwards(high, -1)
        if (self._low > self._high).any():
            raise ValueError(f"limits must leave some actions of {space}, got low={limits.low!r}, high={limits.high!r}")
        self._rate = self._shaped("rate", limits.rate, np.inf) / float(rate)
        self._jerk = self._shaped("jerk", limits.jerk, np.inf) / float(rate) ** 2
        self._refuse_too_fine(limits, fps)
        self._is_finite = bool(np.isfinite(self._low).all() and np.isfinite(self._high).all())
        self._limits_jerk = bool(np.isfinite(self._jerk).any())
        self._terms = self._reduced(1.0)
        self._soft = max(0, FrameClock(fps).frame_at(round(limits.soft_start * 1e9)))
        self._machine, noop = holding_machine(env), find_noop(env)
        if noop is None and self._machine is None and is_machine(env):
            raise nothing_safe("limits need", env)
        rest = np.zeros(self._low.shape) if noop is None else np.asarray(noop, np.float64)
        self._rest = np.clip(rest, self._low, self._high)
        self.begin_run()
        self.begin()

    def begin_run(self) -> None:
        """Begin a run, with a soft start if there is one."""
        self._frame = 0

    def begin(self) -> None:
        """Begin an episode: the machine is at rest."""
        if self._machine is not None and self._machine.held is not None:
            self._rest = self._place(np.asarray(self._machine.held, np.float64))
        self._sent = self._rest
        self.rest()

    def rest(self) -> None:
        """Begin anew where the machine is, at rest: nothing was sent for so long that what moved has had to stop."""
        self._change = np.zeros_like(self._rest)

    def __call__(self, asked: Any, is_at_rest: Callable[[], bool] = lambda: False) -> Limited:
        """Return what is sent on the next frame.

        Args:
            asked: The action asked for. Where it is NaN, the limiter goes to the no-op, or holds a machine that has
                ``hold_action`` where it is.
            is_at_rest: Asked last, once all is reckoned, whether nothing was sent for so long that what moved has
                stopped.

        Raises:
            ValueError: It has another shape than the actions.
        """
        wanted = np.asarray(asked, np.float64)
        if wanted.shape != self._rest.shape:
            raise ValueError(f"action must have the shape {list(self._rest.shape)}, got {list(wanted.shape)}")
        missing = np.isnan(wanted)
        lacks = _any(missing)
        if lacks:
            self._warn(asked)
            wanted = np.where(missing, self._rest if self._machine is None else self._sent, wanted)
        sent = self._limited(wanted.clip(self._low, self._high))
        if is_at_rest():
            self.rest()
            sent = self._limited(wanted.clip(self._low, self._high))
        self._frame += 1
        # An infinite action, of a Box without bounds or limits, has no distance to the next one.
        before, self._sent = self._sent, sent if self._is_finite else np.where(np.isfinite(sent), sent, 0.0)
        self._change = self._sent - before
        action = sent.astype(self._dtype)
        return Limited(action, lacks or _any(action != np.asarray(asked).astype(self._dtype, copy=False)))

    def _place(self, held: Array) -> Array:
        """Return where a machine begins, which rounding alone may put beyond the bounds.

        Raises:
            ValueError: It begins beyond them, so that the first action would be a jump.
        """
        place = np.clip(held, self._low, self._high)
        if _any(np.abs(held - place) > self._step):
            raise ValueError(
                f"limits must hold the place where the machine begins, got low={self._low}, high={self._high} for "
                f"hold_action {held}: move it there first, or widen low and high"
            )
        return place

    def ahead(self) -> Limiter:
        """Return a copy that goes on by itself, without a warning."""
        ahead = copy(self)
        ahead._warned = True
        return ahead

    def _limited(self, wanted: Array) -> Array:
        """Return the allowed action that is nearest to one within the bounds."""
        before = self._sent
        rate, jerk, planned = self._now()
        new = way = wanted - before
        if self._limits_jerk:
            new = np.copysign(_quickest(np.abs(new), planned), new)
            new = new.clip(self._change - jerk, self._change + jerk)
        new = new.clip(-rate, rate)
        aimed: Array = np.asarray(before + new)  # of the shape (), a sum is no array
        # Not before + way, which rounding may make a neighbour of what was asked for.
        np.copyto(aimed, wanted, where=new == way)
        return self._rounded(np.asarray(aimed.clip(self._low, self._high)), before)

    def _now(self) -> tuple[Array, Array, Array]:
        """Return rate and jerk on this frame, less what rounding can add, and the jerk that the way to rest has."""
        if self._frame >= self._soft:
            return self._terms
        return self._reduced(_SOFT + (1 - _SOFT) * self._frame / self._soft)

    def _reduced(self, share: float) -> tuple[Array, Array, Array]:
        rate, jerk = self._rate * share - self._step, self._jerk * share - 2 * self._step
        return rate, jerk, jerk - 6 * self._step

    def _rounded(self, aimed: Array, before: Array) -> Array:
        """Return numbers of the action's type, towards what was sent before: no change is larger than planned."""
        sent = aimed.astype(self._dtype)
        rounded: Array = sent.astype(np.float64)
        beyond = np.abs(rounded - before) > np.abs(aimed - before)
        if not _any(beyond):
            return rounded
        towards: Array = np.nextafter(sent, before.astype(self._dtype), out=sent, where=beyond).astype(np.float64)
        return towards

    def _warn(self, asked: Any) -> None:
        if not self._warned:
            self._warned = True
            shown = " ".join(repr(asked).split())
            way = "go to the no-op" if self._machine is None else "hold the machine where it is"
            self._warns(f"limits {way} where an action is NaN, got {shown:.100}")

    def _shaped(self, name: str, value: Any, none: float) -> Array:
        """Return a limit in the shape of an action."""
        shape = self._space.shape
        array = np.asarray(none if value is None else value, np.float64)
        if array.ndim and array.shape != shape:
            raise ValueError(f"{name} must be a number or have the actions' shape {list(shape)}, got {value!r}")
        return np.broadcast_to(array, shape).astype(np.float64)

    def _inwards(self, bound: Array, sign: int) -> Array:
        """Return a bound, or the Box's where that is tighter, as a number of the action's type that lies within."""
        dtype = self._space.dtype
        tighter = np.maximum(bound, self._space.low) if sign > 0 else np.minimum(bound, self._space.high)
        rounded = tighter.astype(dtype)
        outside = rounded.astype(np.float64) < tighter if sign > 0 else rounded.astype(np.float64) > tighter
        inner: Array = np.where(outside, np.nextafter(rounded, dtype.type(sign * np.inf)), rounded).astype(np.float64)
        return inner

    def _refuse_too_fine(self, limits: Limits, fps: Any) -> None:
        """Set the step of the action's type at its largest number, and refuse limits that it cannot keep."""
        largest = np.maximum(np.abs(self._low), np.abs(self._high))
        finite = np.isfinite(largest)
        limited = np.isfinite(self._rate) | np.isfinite(self._jerk)
        if (limited & ~finite).any():
            refuse("limits of a rate", {"low and high": Words(f"{limits} for {self._space}")})
        dtype = self._space.dtype
        self._step = np.spacing(np.where(finite, largest, 1).astype(dtype)).astype(np.float64)
        for name, each in (("rate", self._rate), ("jerk", self._jerk)):
            least = _ROUNDINGS * self._step / (_SOFT if limits.soft_start else 1)
            if (each < least).any():
                shown = f"{float(fps):g}" if isinstance(fps, Fraction) else repr(fps)
                raise ValueError(
                    f"{name} must be >= {float(least.max()):.2g} per frame, which {dtype} can tell apart, got "
                    f"{getattr(limits, name)!r} {limits.unit} at fps={shown}"
                )


def _quickest(distance: Array, jerk: Array) -> Array:
    """Return the largest change that can still come to rest within a distance, if it is reduced by `jerk` a frame."""
    if _any(endless := np.isinf(jerk)):
        finite = np.where(endless, 1.0, jerk)
        return np.where(endless, distance, _quickest(distance, finite))
    frames = np.floor((np.sqrt(1 + 8 * distance / jerk) - 1) / 2)
    change: Array = (distance + jerk * frames * (frames + 1) / 2) / (frames + 1)
    return change


def _any(flags: NDArray[np.bool_]) -> bool:
    """Return whether any is set; `any` takes eight times as long for a few."""
    return bool(np.count_nonzero(flags))


class LimitAction(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Limits the actions that an environment receives, as ``AsyncRunner(limits=...)`` does, bit for bit.

    Put it inside `RealtimeDelay`, so that default actions are limited too, and so that agents learn from what was sent
    (``info["realtime"]["sent"]``). After a step ``info["limited"]`` tells whether another action was sent than was
    asked for; if so, ``info["sent"]`` holds it. The run that a soft start begins with starts when the wrapper is made.

    Example:
        >>> import gymnasium as gym
        >>> from async_wrappers import LimitAction, Limits, RealtimeDelay
        >>> env = RealtimeDelay(LimitAction(gym.make("Pendulum-v1"), Limits(rate=10.0)), delay=2)
        >>> observation, info = env.reset(seed=0)

    Args:
        env: The environment to wrap.
        limits: The limits.
        fps: Frames per second; None for the environment's own (`async_wrappers.frame_rate.frame_rate`).

    Raises:
        ValueError: See `Limits` and `Limiter`; or there is no frame rate.
    """

    reports_sent = True

    def __init__(self, env: gym.Env[Any, Any], limits: Limits, fps: Any = None) -> None:
        limits, fps = given(limits), given(fps)
        if not isinstance(limits, Limits):
            raise ValueError(f"limits must be Limits(...), got {limits!r}")
        gym.utils.RecordConstructorArgs.__init__(self, **recorded(limits=limits, fps=fps))
        gym.Wrapper.__init__(self, env)
        fps = frame_rate(env) if fps is None else fps
        # A simulator's second is so many frames, however long they take. A machine's is reckoned as for the wall, also
        # where it is on simulated time, so that it is sent the same there.
        machine: Any = env.unwrapped
        self._machine = machine if getattr(machine, "waits", False) and hasattr(machine, "is_at_rest") else None
        self._limiter = Limiter(limits, env, fastest(fps) if is_machine(env) else fps)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment; it is at rest."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._limiter.begin()  # where the reset has brought a machine
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Limit the action, and take a step."""
        machine = self._machine
        if machine is None:
            sent, changed = self._limiter(action)
        else:
            machine.wait_to_send()
            sent, changed = self._limiter(action, lambda: machine.is_at_rest)
        observation, reward, terminated, truncated, info = stepped(self.env, sent)
        told = {**info, "limited": changed}
        if changed:
            told.setdefault("sent", sent.copy())  # a machine's own is what was really sent
        return observation, reward, terminated, truncated, told


def limiters_of(env: gym.Env[Any, Any]) -> list[Limiter]:
    """Return the limiters that an environment's actions pass, outermost first, as far as they are in its own units."""
    found, layer = [], env
    while isinstance(layer, gym.Wrapper) and not isinstance(layer, gym.ActionWrapper):
        if isinstance(layer, LimitAction):
            found.append(layer._limiter)
        layer = layer.env
    return found


def foreseen(limiters: Iterable[Limiter], actions: Sequence[Any]) -> list[Any]:
    """Return what will be sent on the next frames, up to the first whose action is not known; None from there on.

    Args:
        limiters: What the actions pass, outermost first; they stay as they are.
        actions: Of the next frames, None where it is not known.
    """
    known = list(takewhile(lambda action: action is not None, actions))
    for limiter in limiters:
        ahead = limiter.ahead()
        known = [ahead(action).action for action in known]
    return known + [None] * (len(actions) - len(known))


def reports_sent(env: Any) -> bool:
    """Return whether ``info["sent"]`` of an environment, or of a vector's environments, is an action of its own.

    It is what was really sent, where that differs from the action: `LimitAction` and
    `async_wrappers.live.world.machine.MachineEnv` report it. A wrapper that changes actions on the way there
    (Gymnasium's ``RescaleAction``) would have it in other units.
    """
    layer = env
    while not getattr(type(layer), "reports_sent", False):
        if isinstance(layer, gym.ActionWrapper | gym.vector.VectorActionWrapper):
            return False
        if isinstance(layer, gym.Wrapper | gym.vector.VectorWrapper):
            layer = layer.env
        elif isinstance(layer, gym.vector.SyncVectorEnv):
            layer = layer.envs[0]
        elif isinstance(layer, gym.vector.AsyncVectorEnv):
            made = layer.env_fns[0]()
            try:
                return reports_sent(made)
            finally:
                made.close()
        else:
            return False
    return True

"""Stagger strategies: when workers start, and when their actions are due.

Plain objects that are given times (in whole nanoseconds since the episode began) and return times. They hold no clock,
hold no lock and never sleep, so the same object serves the simulation, the virtual clock and a real one.

================= ===================================== ====================== =========================================
name              a worker starts                       its action is due      result
================= ===================================== ====================== =========================================
``sequential``    on the frame after the last action's  when it has finished   the paper's baseline: one at a time
``none``          as soon as it is free                 when it has finished   the contrast: equal latencies bunch up
``max_time``      as soon as it is free and its offset  start + the largest    even spacing once the largest latency has
                  has passed                            latency so far         been seen; every action is that late
``expected_time`` as soon as it is free and its offset  when it has finished   fewer workers; spacing is even on average
                  has passed                                                   only, and phases drift
``tickets``       when the loop offers a ticket         start + playout frames even starts, one constant delay; slower
                                                                               inferences than the playout come late
================= ===================================== ====================== =========================================
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from async_wrappers.checks import whole, whole_frames
from async_wrappers.latency import nanoseconds, seconds_of
from async_wrappers.schedule.frames import FrameClock

# Nanoseconds after a frame's beginning at which crowded starts lag; see the cases above `_Offsets`. Rounding the
# latency down may take one of them, so one would not be enough.
_LAG = 2


@dataclass(frozen=True)
class Conditions:
    """The workers, the frames and the latency that a strategy may know before the first episode.

    Attributes:
        workers: How many there are.
        clock: The world's frames.
        mean_latency: Of an inference, in nanoseconds.
        quantile: From q in [0, 1] to that quantile of the latency, in nanoseconds.
    """

    workers: int
    clock: FrameClock
    mean_latency: int
    quantile: Callable[[float], int]


class Stagger:
    """A strategy; this one lets every worker start when it is free, and apply its action when it has finished.

    A subclass overrides the methods in which it differs. Times are whole nanoseconds since the episode began, workers
    are numbered from 0. Under every strategy a worker reads the newest frame when it starts, and never the same frame
    twice.
    """

    playout: int | None = None
    """Frames from a start to the frame on which its action is due; later it is late. None: due when it is released."""

    def prepare(self, conditions: Conditions) -> None:
        """Take the conditions: before the first episode and, if they are measured, before each."""
        self.workers = conditions.workers

    def restart(self) -> None:
        """Forget all estimates."""

    def begin(self) -> None:
        """Begin an episode: all workers are free at time 0, estimates go on."""

    def start(self, worker: int, now: int) -> int:
        """A worker is free: return when it may start, `now` or later."""
        return now

    def finish(self, worker: int, started: int, now: int) -> int:
        """An inference has ended: return when its action is released and its worker free, `now` or later."""
        return now

    def offers(self, frame: int) -> int | None:
        """Return how many workers may start on this frame, None for all; asked at most once, when the frame begins."""
        return None

    def opens(self, frame: int) -> int | None:
        """Return the first frame, `frame` or later, on which a start may be offered; None: not before an action.

        `frame` itself is always right. A later frame saves time, because the simulation jumps to it.
        """
        return frame

    def taken(self, frame: int) -> None:
        """A worker has started on this frame."""

    def applied(self, frame: int) -> None:
        """An action was applied on this frame."""

    def lost(self, frame: int) -> None:
        """The inference that began on this frame gives no action: a real worker died, or its action was refused.

        Refused as no action of the environment's, or as older than ``max_age``.
        """

    @property
    def granted(self) -> int | None:
        """Turns that learners may have taken in all by now; None: they learn whenever they can."""
        return None

    def learned(self, turns: int) -> None:
        """Note the turns that learners have taken in all."""


class NoStagger(Stagger):
    """No staggering: the contrast. Workers with equal latencies start together and stay together."""


class Sequential(Stagger):
    """One inference at a time: observe, think, act, and observe the result on the next frame.

    The sequential interaction of arXiv 2412.14355, section 3.1: with a delay of d frames, d of every d + 1 frames
    receive the default action. More workers change nothing. With `learn`, learning has its place in the cycle too, as
    in the paper's baselines: nothing is observed during an update.

    Args:
        learn: ``"after"``: one update once an inference has ended, before the next observation is read ("inference
            then learning"); ``"before"``: one update once an action was applied, and one before the first observation
            ("learning then inference"); None: learners run beside the interaction.

    Raises:
        ValueError: Another `learn`.
    """

    def __init__(self, learn: str | None = None) -> None:
        if learn is not None and not (isinstance(learn, str) and learn in ("after", "before")):
            raise ValueError(f"learn must be 'after' or 'before' the inference, or None, got {learn!r}")
        self._learn = learn
        self._granted = self._turns = 0

    @property
    def granted(self) -> int | None:
        """Turns that the learner may have taken in all by now."""
        return None if self._learn is None else self._granted

    def learned(self, turns: int) -> None:
        """Note the turns that the learner has taken in all."""
        self._turns = turns

    def begin(self) -> None:
        """Begin an episode with nothing in flight."""
        self._next = 0
        self._thinking = False
        self._granted += self._learn == "before"

    def offers(self, frame: int) -> int:
        """Offer one start, on the first frame after the last action's, and after the update."""
        return int(not self._thinking and frame >= self._next and self._turns >= self._granted)

    def opens(self, frame: int) -> int | None:
        """Return when the next start may be offered."""
        return None if self._thinking else max(frame, self._next)

    def taken(self, frame: int) -> None:
        """Offer nothing until the action is applied."""
        self._thinking = True

    def finish(self, worker: int, started: int, now: int) -> int:
        """Release the action; it may be the turn to learn."""
        self._granted += self._learn == "after"
        return now

    def applied(self, frame: int) -> None:
        """Offer the next frame."""
        self._thinking, self._next = False, frame + 1
        self._granted += self._learn == "before"

    def lost(self, frame: int) -> None:
        """Offer again at once: without an action, nothing else would end the wait."""
        self._thinking = False

    def __repr__(self) -> str:
        return f"Sequential(learn={self._learn!r})"


# Why a nanosecond matters to offsets
# ===================================
#
# Worker p of N waits p / N of the latency L. Let L be exactly d frames: the usual case of a constant latency in a
# configuration. Then every start lies on the beginning of a frame, or at a fixed place between two, in every
# cycle of the episode. A start that is one nanosecond early reads the frame before, and its action is a frame older, in
# every cycle. So rounding must not decide where a start lies. With P nanoseconds per frame, frame k begins at
# ceil(k P):
#
# 1. Offsets are kept as exact multiples of 1 / N nanosecond and rounded up once. An offset that belongs on frame k is
#    at most k P, so its ceiling is at most ceil(k P): it is never too late for frame k.
# 2. It may be too early: a latency is drawn as floor(d P). That makes the offset p floor(d P) / N smaller than p d P /
#    N by less than a nanosecond, and each later start, an earlier one plus floor(d P), by less than another one.
#    `FrameClock.aligned` moves a start that is up to two nanoseconds before a frame to the frame's beginning.
#
# By 1 and 2 a start that belongs on frame k is at begin(k), and the worker's next one is at begin(k + d): no drift.
# Which frames receive an action then depends on the distance of two neighbours' starts, d / N frames:
#
# * N <= d. The distance is a frame or more: each start has a frame of its own, and N of every d frames receive an
#   action.
# * N > d and N is a multiple of d. One start in N / d lies at the beginning of a frame, so every frame has one. Its
#   action lands d frames later, on a frame's beginning. Every frame receives an action.
# * N > d otherwise. Every frame is read, but only some at their very beginning. Those actions land d frames later; an
#   action that starts within its frame lands d + 1 frames later. So the action of a start at begin(k) lands on the same
#   frame as that of frame k - 1 and replaces it, and the frame after may receive none. All starts at a frame's
#   beginning therefore wait `_LAG`: every action lands d + 1 frames later, and every frame receives one, as with a
#   latency just below d frames.


class _Offsets(Stagger):
    """The base of Algorithms 1 and 2: each worker waits for its own offset before it starts; offsets are corrected."""

    def __init__(self, initial_latency: float = 0.01) -> None:
        self.initial_latency = seconds_of("initial_latency", initial_latency)
        self.restart()

    def prepare(self, conditions: Conditions) -> None:
        """Take the number of workers and the frames."""
        super().prepare(conditions)
        self._clock = conditions.clock
        self._cycle = np.tile(np.arange(self.workers), 2)

    def restart(self) -> None:
        """Forget the latencies that were seen."""
        self._latency = nanoseconds(self.initial_latency)

    def begin(self) -> None:
        """Spread the starts over the latency L as far as it is known: worker p of N waits ``p L / N``."""
        # An offset is whole nanoseconds plus N-ths of one. As a single number of N-ths it would not fit into 64 bits.
        self._offsets = np.zeros(self.workers, np.int64)
        self._nths = np.zeros(self.workers, np.int64)
        self._add(self._latency, self._cycle[: self.workers])
        self._lag = 0
        self._look_for_crowding()

    def start(self, worker: int, now: int) -> int:
        """Let a worker wait for its offset; a negative offset stays, and shortens the next ones."""
        offset = self._offsets.item(worker) + -(-self._nths.item(worker) // self.workers)
        if offset <= 0:
            # The nanoseconds that aligning adds make up for the rounding of the latency. They are not taken off the
            # offset: a worker would start earlier by them in its next cycle.
            return self._clock.aligned(now, self._lag)
        ready = self._clock.aligned(now + offset, self._lag)
        self._offsets[worker] -= ready - now
        return ready

    def _correct(self, worker: int, change: int) -> None:
        """Move worker q by ``((q - p) mod N) change / N``, so that spacings grow by change / N and p stays."""
        self._latency += change
        if change:
            self._add(change, self._cycle[self.workers - worker : 2 * self.workers - worker])
            self._look_for_crowding()

    def _add(self, latency: int, places: NDArray[np.int_]) -> None:
        """Add `places` N-ths of a latency to the offsets."""
        whole, nths = divmod(latency, self.workers)
        self._offsets += whole * places
        self._nths += nths * places

    def _look_for_crowding(self) -> None:
        """Let starts lag for the rest of the episode, if only some frames would be read at their beginning."""
        frames = self._clock.whole(self._latency)
        if 0 < frames < self.workers and self.workers % frames:
            self._lag = _LAG

    def __repr__(self) -> str:
        return f"{type(self).__name__}(initial_latency={self.initial_latency})"


class MaxTime(_Offsets):
    """Algorithm 1, "maximum time inference staggering" (arXiv 2412.14355, section 3.2).

    Every cycle lasts as long as the longest inference so far; when a longer one is seen, the other workers wait in
    proportion to their distance behind this one. Guarantees evenly spaced actions once the maximum is known, needs
    ``ceil(max latency * fps)`` workers for an action on each frame, and delays every action by the maximum. In the
    published code the distance is counted the other way round, and the observation is read before the wait. The paper
    leaves two rules open: here a sleeping worker learns of a new maximum when it wakes, and a reset spreads the workers
    anew over the known maximum.

    Args:
        initial_latency: The maximum assumed before the first inference, in seconds.
    """

    def finish(self, worker: int, started: int, now: int) -> int:
        """Release at ``started + max(latency, longest so far)``; a new maximum moves the other workers."""
        longer = now - started - self._latency
        if longer <= 0:
            return now - longer
        self._correct(worker, longer)
        return now


class ExpectedTime(_Offsets):
    """Algorithm 2, "expected time inference staggering" (arXiv 2412.14355, appendix A).

    Offsets follow the running mean of the latencies, and an action is released when it is ready. Needs
    ``ceil(mean latency * fps)`` workers; spacing is even only on average, and as nothing corrects a single worker's
    deviation, phases drift apart over a long episode. The published code leaves this algorithm out; this is a
    reconstruction from the text.

    Args:
        initial_latency: The mean assumed before the first inference, in seconds; the first one replaces it.
    """

    def restart(self) -> None:
        """Forget the latencies that were seen."""
        super().restart()
        self._count = self._sum = 0

    def finish(self, worker: int, started: int, now: int) -> int:
        """Release at once; update the mean, and move the other workers by the change."""
        self._count += 1
        self._sum += now - started
        # The mean of the exact sum: a running mean would add up its roundings.
        change = self._sum // self._count - self._latency
        self._correct(worker, change)
        if self._count == 1 and change < 0 < self._latency:
            self._skip_cycles(-change * (self.workers - 1))
        return now

    def _skip_cycles(self, owed: int) -> None:
        """Let all workers skip whole cycles, because the first guess of the latency was too long.

        The first latency shortens all offsets, and some become negative. But a worker whose start is in the past
        cannot start earlier, so the phases would be wrong for as long as the debts last. If all wait for the same
        whole number of cycles, more than the largest debt, the phases are right at once.

        Args:
            owed: The largest debt, that of the last worker in the cycle, in N-ths of a nanosecond.
        """
        cycles = 1 - (-owed // (self.workers * self._latency))
        frames = self._clock.whole(self._latency)
        # For a latency of whole frames, `cycles` of them are rounded down once, not once in each cycle.
        together = -self._clock.begin(-frames * cycles) if frames else self._latency * cycles
        self._offsets += together - self._latency


_PLACES = 1000  # of a distribution of latencies, when its mean over a function is taken


# How even slots keep all workers busy
# ====================================
#
# Let the latency L be 2.3 frames and two workers infer: they sustain a start every L / N = 1.15 frames. Starts lie on
# frames, so a whole slot must be 2 frames, and each worker rests for 1.7 of every 4. Even slots count in fractions:
# ticket j is due at j L / N, and offered from the first frame k >= j L / N on until a worker takes it.
#
#   due              0   1.15   2.3   3.45   4.6   5.75   6.9   8.05
#   offered on frame 0   2      3     4      5     6      7     9       one a frame at most, 1 / 1.15 of the frames
#
# 1. A worker that becomes free in the middle of frame k takes the ticket at once and reads frame k, without a wait for
#    the next frame. Its action is due on frame k + playout all the same, so the playout must hold a latency and up to a
#    frame of lateness.
# 2. With a constant latency each ticket is taken on the first frame on which it is offered. Let s_j be the start of
#    ticket j, T_j = ceil(j L / N) its frame and y_j = s_j - j L / N its distance from even, in frames. The worker of
#    ticket j - N takes ticket j as soon as it can: s_j = max(s_{j-N} + L, T_j). So y_j = max(y_{j-N}, T_j - j L / N).
#    By induction y_j < 1, hence s_j < j L / N + 1 <= T_j + 1: the start lies in frame T_j. Frames begin on whole
#    nanoseconds, which may take up the whole margin, so L counts one nanosecond more; where L is whole frames there is
#    no rounding, and all starts lie at a frame's beginning.
# 3. With random latencies a ticket may be taken late. If all later tickets moved by as much, the time would be lost; if
#    none moved, one slow inference would be followed by starts on many successive frames. So they move by the excess
#    over one slot: `due = max(due, frame - slot) + slot`. `python -m benchmarks.schedules slots` prints the results.
#
# `due` is a whole number of q-ths of a frame, where the slot is p / q: exact, however long the episode.


class Tickets(Stagger):
    """The environment loop offers tickets; any free worker takes one; actions wait in a playout buffer.

    At frame k, if a slot has passed since the last ticket was taken, ticket k is offered, until the next frame begins.
    The worker that takes it reads frame k, and its action is due on frame k + playout, however late it was taken: like
    packets in the jitter buffer of internet telephony. A late one is applied on arrival if it is newer than the last
    one applied, else dropped.

    Guarantees that no two inferences read the same frame, that starts are at least a slot apart, and that all actions
    that are in time have the same delay. ``ceil(mean latency * fps) + 2`` workers give an action on each frame where an
    inference lasts up to about ten frames; a few more, less than the square root of that number, where it lasts longer
    (`async_wrappers.plan` finds how many). It does not guarantee that an action is in time: that is the playout's
    quantile.

    With fewer workers than an inference has frames, whole slots leave workers idle: two workers of 2.3 frames start on
    every second frame, half of the frames. ``slot="even"`` lets them start every 1.15 frames, on 0.87 of the frames.
    Starts then lie within a frame of even spacing if latencies are constant; if they are random, a start that comes
    late is made up for by the next ones, up to a slot.

    Args:
        playout: Frames from an observation to the frame on which its action is due, or a quantile of the latency such
            as ``"p99"``. With even slots of more than a frame it is the quantile of latency and lateness together, up
            to a frame more, as a worker may start late in the frame that it reads.
        slot: Least distance between two starts, in frames; None means ``max(1, ceil(mean latency * fps / workers))``.
            ``"even"``: starts are ``max(1, mean latency * fps / workers)`` frames apart on average, at least one; the
            delay may be a frame longer, so it is not the default.

    Attributes:
        slot: Frames between two starts, once the strategy is prepared; a fraction if they are even.

    Raises:
        ValueError: A playout or slot that is none of these, or a slot below one frame.
    """

    slot: int | Fraction

    def __init__(self, playout: int | str = "p99", slot: int | str | None = None) -> None:
        self._quantile: float | None = None
        if isinstance(playout, str):
            written = re.fullmatch(r"p(\d+(?:\.\d+)?)", playout)
            if written is None or not 0 < float(written[1]) <= 100:
                raise ValueError(f"playout must be frames or a quantile such as 'p99', got {playout!r}")
            self._quantile = float(written[1]) / 100
        else:
            self.playout = whole_frames("playout", playout)
        self.even = isinstance(slot, str) and slot == "even"
        self._slot = None if slot is None or self.even else _whole_slot(slot)

    def prepare(self, conditions: Conditions) -> None:
        """Set ``playout = ceil(quantile * fps)`` and ``slot = max(1, ceil(mean latency * fps / workers))``.

        With even slots ``slot = max(1, mean latency * fps / workers)``. If that is more than a frame, workers start
        anywhere in a frame, and the playout is the quantile of latency and lateness together, at most a frame more.
        """
        super().prepare(conditions)
        clock, mean = conditions.clock, conditions.mean_latency
        if self.even:
            cycle = clock.frames(mean)
            self.slot = max(
                Fraction(1), (cycle if cycle.denominator == 1 else clock.frames(mean + 1)) / conditions.workers
            )
        else:
            self.slot = self._slot or max(1, -(-clock.frame_at(mean) // conditions.workers))
        self._ratio = self.slot.as_integer_ratio()
        if self._quantile is not None:
            self.playout = clock.frame_at(conditions.quantile(self._quantile))
            if self.even and self.slot > 1:
                self.playout += not self._holds_lateness(conditions, self.playout, self._quantile)

    def _holds_lateness(self, conditions: Conditions, playout: int, quantile: float) -> bool:
        """Return whether a playout that holds a quantile of the latency holds a start's lateness in its frame, too."""
        clock, mean = conditions.clock, conditions.mean_latency
        if conditions.quantile(1.0) == mean:  # constant: every start is on a frame, or some as late as can be
            return clock.frames(mean).denominator == 1
        # A worker that never rests becomes free anywhere in a frame. With u uniform in [0, 1] and a latency of l frames
        # P(l + u <= playout) is the mean of playout - l, cut to [0, 1].
        latencies = [conditions.quantile((place + 0.5) / _PLACES) for place in range(_PLACES)]
        room = sum(min(max(playout - clock.fps * latency / 10**9, Fraction(0)), Fraction(1)) for latency in latencies)
        return room >= Fraction(quantile) * _PLACES

    def begin(self) -> None:
        """Offer the first ticket on frame 0."""
        self._opens, self._due = 0, 0

    def offers(self, frame: int) -> int:
        """Offer one ticket, if a slot has passed since the last was taken."""
        return int(frame >= self._opens)

    def opens(self, frame: int) -> int:
        """Return when the next ticket is offered."""
        return max(frame, self._opens)

    def taken(self, frame: int) -> None:
        """Count the slot from this frame; even slots from when the ticket was due."""
        self._opens, self._due = self.following(frame, self._due)

    def following(self, frame: int, due: int) -> tuple[int, int]:
        """Return when the next ticket is offered, after one that was taken.

        Args:
            frame: On which it was taken.
            due: When it was due, in q-ths of a frame for even slots of p / q frames; 0 in an episode's beginning.

        Returns:
            The first frame on which the next ticket is offered, and when that is due: `due` for the next call.
        """
        slot, per = self._ratio
        if not self.even:
            return frame + slot, 0
        due = max(due, frame * per - slot) + slot
        return max(frame + 1, -(-due // per)), due


def _whole_slot(slot: Any) -> int:
    """Return a slot of whole frames, or raise a ValueError that names the possible slots."""
    try:
        return whole("slot", slot, 1)
    except ValueError:
        raise ValueError(f"slot must be a whole number of frames >= 1, 'even', or None, got {slot!r}") from None


def keeps_playout(stagger: Stagger) -> bool:
    """Return whether an action that is computed by the frame on which it is due is applied on that frame for certain.

    Of tickets it is. Elsewhere the strategy may hold it back, and a newer one may overtake it meanwhile; and so it may
    if a subclass changes a rule.
    """
    return type(stagger) is Tickets


STRATEGIES: dict[str, Callable[[], Stagger]] = {
    "sequential": Sequential,
    "none": NoStagger,
    "max_time": MaxTime,
    "expected_time": ExpectedTime,
}


def make_stagger(stagger: Any, playout: int | str = "p99", slot: int | str | None = None) -> Stagger:
    """Return the strategy that `stagger` names or is.

    Args:
        stagger: ``"tickets"``, ``"sequential"``, ``"none"``, ``"max_time"``, ``"expected_time"``, a `Stagger`, or a
            function that makes one (a class, a gin reference).
        playout: For ``"tickets"``.
        slot: For ``"tickets"``.

    Raises:
        ValueError: Anything else, a playout or slot that ``"tickets"`` cannot use, or a slot for another strategy.
    """
    if slot is not None and not (isinstance(stagger, str) and stagger == "tickets"):
        Tickets(slot=slot)  # refuses a value that is no slot
        raise ValueError(f"slot={slot!r} needs stagger='tickets' or Tickets(slot={slot!r}), got stagger={stagger!r}")
    strategies = {"tickets": partial(Tickets, playout, slot), **STRATEGIES}
    made = strategies.get(stagger, stagger) if isinstance(stagger, str) else stagger
    if callable(made) and not isinstance(made, Stagger):
        made = made()
    if isinstance(made, Stagger):
        return made
    close = get_close_matches(str(made), strategies, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise ValueError(f"stagger must be one of {', '.join(map(repr, strategies))} or a Stagger, got {made!r}{hint}")

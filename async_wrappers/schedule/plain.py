"""The decision schedule: which observation a decision reads, and on which frame its action lands.

A *frame* is one ``step`` of the wrapped environment. A *decision* is one run of the policy: it reads the observation at
the beginning of frame ``start`` and its action is applied on frame ``effect >= start``. A schedule is the stream of
decisions that take effect; starts and effects both strictly increase. It knows no environment, clock or policy.

Three rules give a schedule its meaning, and every consumer keeps them:

1. On frame ``e_j`` the environment receives action j; on every other frame it receives the default action.
2. Decision j is computed from ``o_{s_j}``, the observation at the start of frame ``s_j``, and from nothing newer.
3. The reward of decision j is the sum over frames ``e_j .. e_{j+1} - 1``; rewards before ``e_0`` go to decision 0.

`PlainSchedule` has constants. `async_wrappers.schedule.simulated.SimulatedSchedule` has N workers whose inferences take
random times. Both have the same methods, by which a wrapper plays one episode after another, frame by frame; they are
described here. `make_schedule` makes the one that a wrapper's arguments ask for.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, count, cycle, repeat
from typing import TYPE_CHECKING, Any

from async_wrappers.checks import whole_frames

if TYPE_CHECKING:
    from async_wrappers.schedule.simulated import SimulatedSchedule


class PlainSchedule:
    """Constant delay and spacing: ``s_j = j (noops + 1)``, ``e_j = s_j + delay``.

    ======================================================== ======== ============================
    interaction                                              delay    noops
    ======================================================== ======== ============================
    turn-based (ordinary Gymnasium)                          0        0
    sequential: observe, think ``d`` frames, act, observe    ``d``    ``d``
    one worker that never rests                              ``d``    ``d - 1``
    N staggered workers                                      ``d``    ``max(1, ceil(d / N)) - 1``
    an action on every frame                                 ``d``    0
    ======================================================== ======== ============================

    Args:
        delay: Age of the observation behind an action, in frames.
        noops: Frames between two actions, filled by the default action.

    Raises:
        ValueError: An argument is negative or not a whole number of frames.
    """

    def __init__(self, delay: int = 0, noops: int = 0) -> None:
        self.delay = whole_frames("delay", delay)
        self.noops = whole_frames("noops", noops)

    max_age = None
    """Most frames from a start to its effect; a simulated schedule refuses older actions. None for no limit."""

    keeps_playout = True
    """Whether each action lands exactly `playout` frames after its start, or never."""

    finished = None
    """Returns the first frame that began when the inference behind the action applied last had ended; None here, where
    that is the frame on which it was applied."""

    counts = None
    """Frames, actions and inferences so far; None here, where they follow from the constants."""

    @property
    def playout(self) -> int:
        """Frames from a start until its action is due; None in schedules where it is due when it has finished."""
        return self.delay

    @property
    def most_in_flight(self) -> int:
        """Most decisions in flight as one more starts, ``ceil(delay / (noops + 1))``.

        Their transitions are not complete by then. In a simulated schedule None stands for no limit.
        """
        return -(-self.delay // (self.noops + 1))

    @property
    def decision_interval(self) -> int:
        """Frames from one decision's effect to the next one's; None in schedules where they vary."""
        return self.noops + 1

    def frames(self, seed: int | None = None) -> Iterator[tuple[int | None, bool]]:
        """Begin an episode; yield (start of the action applied or None, is the frame read) of frames 0, 1, 2, ...

        A frame is computed when it is asked for. A seed restarts all randomness and estimates.
        """
        return self.frames_from(0)

    def frames_from(self, frame: int) -> Iterator[tuple[int | None, bool]]:
        """Return the rest of the running episode from `frame` on, the first that was not asked for: for a copy."""
        # Iterators that run in C, since the time of each frame counts.
        interval, due = self.noops + 1, max(0, frame - self.delay)
        if interval == 1:
            return chain(repeat((None, True), self.delay - frame), zip(count(due), repeat(True)))
        start = -(-due // interval) * interval  # of the first decision that lands
        lands = chain.from_iterable(zip(count(start, interval), *[repeat(None)] * self.noops, strict=False))
        reads = cycle([at % interval == 0 for at in range(frame, frame + interval)])
        return zip(chain(repeat(None, start + self.delay - frame), lands), reads, strict=False)

    def first(self) -> tuple[int, int]:
        """Return (start, effect) of the first decision that takes effect; asked before any frame of the episode."""
        return 0, self.delay

    def in_flight(self, after: int, end: int) -> int | None:
        """Return the start of the decision that would be applied first, of those begun before frame `end`.

        Only decisions that start later than `after` count; None if there is none. Call it before asking for `end`.
        """
        following = after + self.noops + 1
        return following if following < end else None

    def keep_log(self) -> list[Any]:
        """Log every inference from now on, for `unfinished`; return the log, which stays empty for constants."""
        return []

    def unfinished(self, frame: int, landed: int = -1) -> list[tuple[int, int]]:
        """Return the decisions started before `frame` whose effect is unknown when it begins.

        Args:
            frame: It never decreases within an episode.
            landed: Start of the newest action that lands by `frame`; older ones do not matter.

        Returns:
            (start, first frame on which its action may land) of each decision, oldest first.
        """
        interval = self.noops + 1
        oldest = max(0, landed + 1, frame - self.delay + 1)
        starts = range(-(-oldest // interval) * interval, frame, interval)
        return [(start, start + self.delay) for start in starts]

    def decisions(self) -> Iterator[tuple[int, int]]:
        """Yield ``(s_j, e_j) = (j (noops + 1), s_j + delay)``, without end."""
        return ((start, start + self.delay) for start in count(0, self.noops + 1))

    def __repr__(self) -> str:
        """Return the constructor call."""
        return f"PlainSchedule(delay={self.delay}, noops={self.noops})"


def make_schedule(
    delay: int = 0,
    noops: int = 0,
    *,
    latency: Any = None,
    workers: int | None = None,
    fps: Any = None,
    stagger: Any = "tickets",
    playout: int | str = "p99",
    slot: int | str | None = None,
    max_age: int | None = None,
) -> PlainSchedule | SimulatedSchedule:
    """Return the schedule of two constants, or of a latency model.

    Args:
        delay: Age of the observation behind an action, in frames.
        noops: Frames between two actions.
        latency: How long an inference takes: a model, or seconds; None for constants. The arguments after it need it;
            `async_wrappers.schedule.simulated.SimulatedSchedule` explains them.
        workers: How many infer at a time; 1 if not given.
        fps: Frames per second; it must be given.
        stagger: A strategy, or its name.
        playout: Of tickets: frames, or a quantile of the latency.
        slot: Of tickets: least distance between two starts, in frames, or ``"even"``.
        max_age: Age, in frames, beyond which an action is refused; None for no limit.

    Raises:
        ValueError: An argument out of range, constants and a latency at the same time, or an argument that needs a
            latency without one.
    """
    plain = PlainSchedule(delay, noops)
    if latency is None:
        asked = {"workers": workers, "fps": fps, "stagger": stagger, "playout": playout, "slot": slot}
        for name, value in {**asked, "max_age": max_age}.items():
            # `==` alone would give an array for an array.
            if type(value) is not type(_DEFAULTS.get(name)) or value != _DEFAULTS.get(name):
                raise ValueError(f"{name}={value!r} needs a latency: give latency=, or delay and noops alone")
        return plain
    # Imported here, because it is half of the package's import time and constants need none of it.
    from async_wrappers.latency import as_latency
    from async_wrappers.schedule.simulated import SimulatedSchedule

    if plain.delay or plain.noops:
        raise ValueError(f"give delay and noops or a latency, got delay={delay}, noops={noops} and {latency!r}")
    as_latency(latency)
    if fps is None:
        raise ValueError("fps must be given with a latency, in frames per second, got None")
    return SimulatedSchedule(latency, 1 if workers is None else workers, fps, stagger, playout, slot, max_age=max_age)


_DEFAULTS = {"stagger": "tickets", "playout": "p99"}  # of arguments that need a latency; None for the others

"""The rules of a simulated schedule under every strategy: subclass `StaggerContract` and give it `make_stagger`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice, pairwise
from typing import Any

from async_wrappers.extras import extra
from async_wrappers.latency import Correlated, LogNormal, Spikes, Uniform
from async_wrappers.schedule.simulated import SimulatedInference, SimulatedSchedule
from async_wrappers.schedule.stagger import Conditions, Stagger

with extra("StaggerContract", "testing"):
    from hypothesis import HealthCheck, given, settings
    from hypothesis import strategies as st

HORIZON = 60  # frames
FAR = 1000  # frames: by then all that was in flight at the horizon has landed


class Closing(Stagger):
    """Another strategy, which offers nothing any more from frame `closed_from` on."""

    def __init__(self, inner: Stagger) -> None:
        self.inner = inner
        self.closed_from: int | None = None

    def prepare(self, conditions: Conditions) -> None:
        self.inner.prepare(conditions)
        self.playout = self.inner.playout

    def restart(self) -> None:
        self.inner.restart()

    def begin(self) -> None:
        self.inner.begin()

    def start(self, worker: int, now: int) -> int:
        return self.inner.start(worker, now)

    def finish(self, worker: int, started: int, now: int) -> int:
        return self.inner.finish(worker, started, now)

    def offers(self, frame: int) -> int | None:
        return 0 if self.closed_from is not None and frame >= self.closed_from else self.inner.offers(frame)

    def taken(self, frame: int) -> None:
        self.inner.taken(frame)

    def applied(self, frame: int) -> None:
        self.inner.applied(frame)


@dataclass(frozen=True)
class Workshop:
    """All that a simulated schedule depends on, except the strategy."""

    latency: Any
    workers: int
    fps: Any

    def schedule(self, stagger: Stagger) -> SimulatedSchedule:
        return SimulatedSchedule(self.latency, self.workers, self.fps, stagger, seed=0)


RATES = st.sampled_from([60, 59.7275, 50, 1000, Fraction(60_000, 1001), 0.5])


@st.composite
def played(draw: st.DrawFn, fps: Any) -> list[int]:
    """Draw latencies of up to 12 frames, in nanoseconds: zero, whole frames, a nanosecond off, anything."""
    frame = 1e9 / float(fps)
    whole = st.builds(lambda k, off: max(0, int(k * frame) + off), st.integers(0, 12), st.integers(-1, 2))
    return draw(st.lists(st.one_of(st.just(0), whole, st.integers(0, int(12 * frame))), min_size=1, max_size=40))


@st.composite
def workshops(draw: st.DrawFn) -> Workshop:
    """Draw a frame rate, one to six workers, and the latencies of their inferences."""
    fps = draw(RATES)
    return Workshop(Played(draw(played(fps))), draw(st.integers(1, 6)), fps)


MODELS = st.sampled_from(
    [
        LogNormal(mean=0.120, cv=0.2),
        LogNormal(mean=0.030, cv=1.0),
        Uniform(0.0, 0.1),
        Spikes(0.050, 0.1, 5),
        Correlated(LogNormal(mean=0.05, cv=0.5), 0.9),
    ]
)
# An example is some thousand events, and a strategy's own class inherits the tests.
UNHEALTHY = [HealthCheck.too_slow, HealthCheck.differing_executors]
EXAMPLES = settings(max_examples=30, deadline=None, database=None, suppress_health_check=UNHEALTHY)
Shown = tuple[tuple[int, int] | None, list[int]]  # (start, worker) that a frame receives, and the workers that read it
Frames = list[Shown]


def first_frames(schedule: SimulatedSchedule, frames: int = HORIZON, seed: int | None = None) -> Frames:
    """Return an episode's first frames: (start, worker) that each receives, and the workers that read it."""
    return list(islice(schedule.steps(seed), frames))


def applied_of(shown: Iterable[Shown]) -> list[tuple[int, int, int]]:
    """Return (start, worker, effect) of the actions applied."""
    return [(*applied, frame) for frame, (applied, _) in enumerate(shown) if applied is not None]


class StaggerContract:
    """Tests of one strategy in simulated schedules."""

    def make_stagger(self) -> Stagger:
        """Return a new strategy."""
        raise NotImplementedError

    def play(self, workshop: Workshop) -> tuple[SimulatedSchedule, list[SimulatedInference], Frames]:
        """Play an episode's first frames; return the schedule, its log and the frames."""
        schedule = workshop.schedule(self.make_stagger())
        log = schedule.keep_log()
        return schedule, log, first_frames(schedule)

    @EXAMPLES
    @given(workshop=workshops())
    def test_starts_and_effects_strictly_increase_and_no_effect_comes_before_its_start(
        self, workshop: Workshop
    ) -> None:
        schedule, log, shown = self.play(workshop)
        landed = applied_of(shown)
        assert all(before < after for (before, *_), (after, *_) in pairwise(landed))
        for start, worker, effect in landed:
            assert start <= effect
            assert worker in shown[start][1]  # only a frame that was read has an action
        by_start = {(inference.start, inference.worker): inference for inference in log}
        for start, worker, effect in landed:
            assert by_start[start, worker].finished <= schedule.clock.begin(effect)

    @EXAMPLES
    @given(workshop=workshops())
    def test_a_worker_reads_the_newest_frame_never_one_twice_and_has_one_inference_at_a_time(
        self, workshop: Workshop
    ) -> None:
        schedule, log, shown = self.play(workshop)
        assert sorted((i.start, i.worker) for i in log) == sorted(
            (frame, worker) for frame, (_, readers) in enumerate(shown) for worker in readers
        )
        for inference in log:
            assert inference.start == schedule.clock.frame_in(inference.started)
        for worker in range(workshop.workers):
            mine = [inference for inference in log if inference.worker == worker]
            for before, after in pairwise(mine):
                assert before.start < after.start
                assert before.finished <= after.started

    @EXAMPLES
    @given(workshop=workshops())
    def test_latencies_are_drawn_in_the_order_of_the_starts(self, workshop: Workshop) -> None:
        _, log, _ = self.play(workshop)
        assert [inference.started for inference in log] == sorted(inference.started for inference in log)
        expected = (workshop.latency.nanoseconds * (len(log) + 1))[: len(log)]
        assert [inference.finished - inference.started for inference in log] == expected

    @EXAMPLES
    @given(workshop=workshops(), data=st.data())
    def test_nothing_depends_on_the_future(self, workshop: Workshop, data: st.DataObject) -> None:
        same = data.draw(st.integers(0, 40), label="draws that stay the same")
        latency = ChangesLater(workshop.latency.nanoseconds, same, data.draw(played(workshop.fps), label="others"))
        shown = []
        for changed in (False, True):
            latency.changed = False
            schedule = SimulatedSchedule(latency, workshop.workers, workshop.fps, self.make_stagger())
            latency.changed = changed
            shown.append(first_frames(schedule, seed=1))
        drawn = 0
        for frame, (one, other) in enumerate(zip(*shown, strict=True)):
            drawn += len(one[1])
            if drawn > same:
                break
            assert one == other, f"frame {frame} after {drawn} draws"

    @EXAMPLES
    @given(workshop=workshops())
    def test_a_longer_run_begins_as_a_shorter_one(self, workshop: Workshop) -> None:
        longer = first_frames(workshop.schedule(self.make_stagger()), HORIZON)
        assert first_frames(workshop.schedule(self.make_stagger()), HORIZON // 2) == longer[: HORIZON // 2]

    @EXAMPLES
    @given(workshop=workshops())
    def test_first_is_the_first_decision_that_the_frames_then_tell(self, workshop: Workshop) -> None:
        schedule = workshop.schedule(self.make_stagger())
        expected = next(workshop.schedule(self.make_stagger()).decisions())
        shown = schedule.steps()
        assert schedule.first() == expected
        assert schedule.first() == expected  # asking changes nothing
        assert [(start, effect) for start, _, effect in applied_of(islice(shown, expected[1] + 1))] == [expected]

    @EXAMPLES
    @given(workshop=workshops(), frames=st.integers(1, HORIZON))
    def test_in_flight_is_what_a_twin_that_starts_nothing_more_applies_first(
        self, workshop: Workshop, frames: int
    ) -> None:
        schedule = workshop.schedule(self.make_stagger())
        steps = schedule.steps()
        first, _ = schedule.first()
        newest = max((start for start, *_ in applied_of(islice(steps, frames))), default=first)

        twin = workshop.schedule(Closing(self.make_stagger()))
        assert isinstance(twin.stagger, Closing)
        twin.stagger.closed_from = frames
        landed = applied_of(first_frames(twin, FAR))
        expected = next((start for start, _, effect in landed if effect >= frames and start > newest), None)
        assert schedule.in_flight(newest, frames) == expected
        if expected is not None:
            assert newest < expected < frames

    @EXAMPLES
    @given(workshop=workshops(), asked=st.lists(st.integers(0, HORIZON - 1), max_size=5))
    def test_looking_ahead_changes_nothing(self, workshop: Workshop, asked: Sequence[int]) -> None:
        schedule = workshop.schedule(self.make_stagger())
        log = schedule.keep_log()
        steps = schedule.steps()
        schedule.first()
        shown: Frames = []
        for frame in range(HORIZON):
            shown.append(next(steps))
            if frame in asked:
                newest = max((start for start, *_ in applied_of(shown)), default=-1)
                schedule.in_flight(newest, frame + 1)
        twin, twin_log, twin_shown = self.play(workshop)
        assert (twin_shown, twin.counts, twin_log) == (shown, schedule.counts, log)

    @EXAMPLES
    @given(latency=MODELS, workers=st.integers(1, 6), fps=RATES, before=st.integers(0, 30), seed=st.integers(0, 2**32))
    def test_a_seed_restarts_latencies_and_estimates(
        self, latency: Any, workers: int, fps: Any, before: int, seed: int
    ) -> None:
        workshop = Workshop(latency, workers, fps)
        schedule = workshop.schedule(self.make_stagger())
        first_frames(schedule, before)
        again = first_frames(schedule, seed=seed)
        assert first_frames(workshop.schedule(self.make_stagger()), seed=seed) == again
        first_frames(schedule, before)
        assert first_frames(schedule, seed=seed) == again

    @EXAMPLES
    @given(workshop=workshops(), frames=st.integers(0, 30))
    def test_without_a_seed_the_latencies_go_on_and_all_workers_are_free_at_frame_0(
        self, workshop: Workshop, frames: int
    ) -> None:
        schedule = workshop.schedule(self.make_stagger())
        log = schedule.keep_log()
        first_frames(schedule, frames)
        before = len(log)
        first_frames(schedule, frames)
        drawn = [inference.finished - inference.started for inference in log]
        assert drawn == (workshop.latency.nanoseconds * (len(log) + 1))[: len(log)]
        assert all(0 <= inference.start < frames for inference in log[before:])
        for worker in range(workshop.workers):
            mine = [inference for inference in log[before:] if inference.worker == worker]
            assert all(one.finished <= other.started for one, other in pairwise(mine))

    @EXAMPLES
    @given(workshop=workshops())
    def test_counts_are_of_what_happened(self, workshop: Workshop) -> None:
        schedule, log, shown = self.play(workshop)
        counts, landed = schedule.counts, applied_of(shown)
        assert (counts.frames, counts.fresh) == (HORIZON, len(landed))
        assert counts.fresh_share == len(landed) / HORIZON
        ages = [effect - start for start, _, effect in landed]
        assert counts.delay == {age: ages.count(age) for age in ages}
        assert sum(counts.inferences.values()) == len(log)
        assert sum(counts.busy.values()) == sum(inference.finished - inference.started for inference in log)
        finished = sum(inference.finished <= schedule.clock.begin(HORIZON - 1) for inference in log)
        assert counts.fresh + counts.dropped <= finished
        assert counts.late <= len(log)
        if landed:
            assert counts.mean_delay == sum(ages) / len(ages)

    def test_a_latency_beyond_all_time_is_looked_past_at_once(self) -> None:
        schedule = SimulatedSchedule(1e9, 3, 60, self.make_stagger())
        steps = schedule.steps()
        start, effect = schedule.first()
        assert effect - start >= 60e9
        assert all(applied is None for applied, _ in islice(steps, 100))


# `Played`: a latency that plays a list of whole nanoseconds, for tests that set the duration of each inference.


MS = 1_000_000  # nanoseconds


class Played:
    """The n-th inference takes the n-th number; each stream starts with the first one, for any seed.

    Args:
        nanoseconds: Latencies, played round and round.
    """

    def __init__(self, nanoseconds: Sequence[int]) -> None:
        self.nanoseconds = list(nanoseconds)
        self.mean = sum(self.nanoseconds) / len(self.nanoseconds) / 1e9  # seconds

    def stream(self, seed: Any) -> PlayedStream:
        """Return the list from its beginning."""
        return PlayedStream(self.nanoseconds)

    def __repr__(self) -> str:
        return f"Played({self.nanoseconds})"


class ChangesLater(Played):
    """Plays the list as far as `same` draws and, once `changed` is set, other latencies from there on."""

    def __init__(self, nanoseconds: Sequence[int], same: int, others: Sequence[int]) -> None:
        super().__init__(nanoseconds)
        self.same, self.others, self.changed = same, others, False

    def stream(self, seed: Any) -> PlayedStream:
        """Return the list from its beginning, the rest of which is another one if `changed`."""
        if not self.changed:
            return super().stream(seed)
        beginning = [self.nanoseconds[n % len(self.nanoseconds)] for n in range(self.same)]
        return PlayedStream(self.others, beginning)


class PlayedStream:
    """Plays `beginning` once and then `rest` round and round."""

    def __init__(self, rest: Sequence[int], beginning: Sequence[int] = ()) -> None:
        self._beginning, self._rest, self._drawn = beginning, rest, 0

    def draw(self) -> int:
        """Return the next latency in nanoseconds."""
        number = self._drawn
        self._drawn += 1
        if number < len(self._beginning):
            return self._beginning[number]
        return self._rest[(number - len(self._beginning)) % len(self._rest)]

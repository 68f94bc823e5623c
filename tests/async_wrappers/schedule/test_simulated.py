"""Two oracles, each written from the design's text alone, agree with `SimulatedSchedule` and `RealtimeDelay`.

The first one simulates workers on a naive list of events (chapters 3, "the simulated schedule" and "time", and 4). The
second one is a plain loop over frames from the three rules, for whatever (start, effect) the schedule yields.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import islice
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from async_wrappers import RealtimeDelay
from async_wrappers.latency import Correlated, Gamma, LogNormal, Spikes, Trace, Uniform
from async_wrappers.schedule.simulated import SimulatedSchedule
from async_wrappers.schedule.stagger import MaxTime, make_stagger
from async_wrappers.testing.staggers import MS, Closing, Played
from tests.worlds.hashing_policy import DEFAULTS, policy
from tests.worlds.recording_env import RecordingEnv
from tests.worlds.schedule_cases import CASES

SETTINGS = settings(
    max_examples=CASES,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
RATES = [Fraction(60), Fraction("59.7275"), Fraction(50), Fraction(60_000, 1001), Fraction(1000), Fraction(3, 7)]


# The simulated schedule.


class Run(NamedTuple):
    """One inference: times in nanoseconds since the episode began."""

    worker: int
    start: int  # the frame that it read
    began: int
    finished: int
    released: int


@dataclass(frozen=True)
class Shop:
    """N workers, the world's frames, and a strategy with what it needs."""

    strategy: str
    workers: int
    fps: Fraction
    latencies: list[int]  # of the first inference, the second, ...; round and round
    playout: int | str
    slot: int | str | None
    initial: int  # largest latency assumed by max_time, in nanoseconds

    def begin(self, frame: int) -> int:
        return math.ceil(frame / self.fps * 10**9)

    def frame_of(self, time: int) -> int:
        """Return the frame that goes on at a time."""
        frame = int(time * self.fps / 10**9)
        while self.begin(frame + 1) <= time:
            frame += 1
        while self.begin(frame) > time:
            frame -= 1
        return frame

    def in_time_for(self, time: int) -> int:
        """Return the first frame for which what is finished at a time is in time."""
        frame = self.frame_of(time)
        return frame if self.begin(frame) == time else frame + 1

    def put_on_a_frame(self, time: int, lag: int) -> int:
        """Return when a start at a time takes place that may have been rounded down twice, unless frames are not."""
        early = 2 if (10**9 / self.fps).denominator > 1 else 0
        return max(time, self.begin(self.frame_of(time + early)) + lag)

    def is_crowded(self, latency: int) -> bool:
        """Return whether a latency is whole frames, and some of them but not all would have two starts or more."""
        frame = 10**9 / self.fps
        frames = round(latency / frame)
        return abs(latency - frames * frame) < 1 and 0 < frames < self.workers and self.workers % frames != 0

    def mean_in_frames(self) -> Fraction:
        """Return the mean latency in frames, which is whole if it was rounded down from whole frames."""
        mean = sum(self.latencies) // len(self.latencies)
        frame = 10**9 / self.fps
        whole = math.ceil(mean / frame)
        return Fraction(whole) if math.floor(whole * frame) == mean else mean / frame

    def even_slot(self) -> Fraction:
        """Return what N workers sustain, with a nanosecond to spare unless all starts lie on frames."""
        mean = self.mean_in_frames()
        if mean.denominator > 1:
            longer = sum(self.latencies) // len(self.latencies) + 1
            mean = replace(self, latencies=[longer]).mean_in_frames()
        return max(Fraction(1), mean / self.workers)

    def holds_lateness(self, playout: int, quantile: float) -> bool:
        """Return whether such a share of inferences is in time that start anywhere in a frame."""
        if max(self.latencies) == min(self.latencies):
            return self.mean_in_frames().denominator == 1
        frames = [latency * self.fps / 10**9 for latency in self.latencies]
        shares = [min(Fraction(1), max(Fraction(0), playout - latency)) for latency in frames]
        return sum(shares) >= Fraction(quantile) * len(shares)

    def latency(self, number: int) -> int:
        return self.latencies[number % len(self.latencies)]

    def simulated(self) -> SimulatedSchedule:
        stagger = MaxTime(self.initial / 1e9) if self.strategy == "max_time" else self.strategy
        slot = self.slot if stagger == "tickets" else None
        return SimulatedSchedule(Played(self.latencies), self.workers, self.fps, stagger, self.playout, slot)


class Result(NamedTuple):
    """The result of an episode of so many frames."""

    landed: list[tuple[int, int, int]]  # (effect, start, worker)
    drawn: int  # draws so far, over all episodes
    largest: int  # latency so far, over all episodes


def by_the_design(shop: Shop, frames: int, drawn: int = 0, largest: int | None = None) -> Result:
    """Return what happens in the first frames of an episode that finds `drawn` and `largest` as they are."""
    largest = shop.initial if largest is None else largest
    if shop.strategy == "sequential":
        return sequential(shop, frames, drawn, largest)
    if shop.strategy == "tickets":
        runs = tickets(shop, frames, drawn)
        slowest = sorted(shop.latencies)
        playout = shop.playout
        if isinstance(playout, str):  # the list is played round and round: its own quantile
            playout = shop.in_time_for(slowest[int(int(playout[1:]) * len(slowest) / 100)])
            if shop.slot == "even" and shop.even_slot() > 1:
                playout += not shop.holds_lateness(playout, int(str(shop.playout)[1:]) / 100)
        return Result(thinned(shop, runs, frames, playout), drawn + len(runs), largest)
    runs, largest = free_running(shop, frames, drawn, largest)
    return Result(thinned(shop, runs, frames, 0), drawn + len(runs), largest)


def sequential(shop: Shop, frames: int, drawn: int, largest: int) -> Result:
    landed = []
    waiting_since = [0] * shop.workers
    start = 0
    while start < frames:
        worker = min(range(shop.workers), key=lambda w: (waiting_since[w], w))
        finished = waiting_since[worker] = shop.begin(start) + shop.latency(drawn)
        drawn += 1
        effect = shop.in_time_for(finished)
        if effect < frames:
            landed.append((effect, start, worker))
        start = effect + 1
    return Result(landed, drawn, largest)


def tickets(shop: Shop, frames: int, drawn: int) -> list[Run]:
    if shop.slot == "even":
        return even_tickets(shop, frames, drawn)
    mean = sum(shop.latencies) // len(shop.latencies)  # whole nanoseconds, as all times here
    slot = shop.slot or max(1, math.ceil(Fraction(shop.in_time_for(mean), shop.workers)))
    assert isinstance(slot, int)
    runs: list[Run] = []
    free_at = [0] * shop.workers
    taken = -slot
    for frame in range(frames):
        if frame - taken < slot:
            continue
        worker = min(range(shop.workers), key=lambda w: (free_at[w], w))
        if free_at[worker] >= shop.begin(frame + 1):
            continue  # nobody is free while the ticket is good
        began = max(free_at[worker], shop.begin(frame))
        finished = free_at[worker] = began + shop.latency(drawn + len(runs))
        runs.append(Run(worker, frame, began, finished, finished))
        taken = frame
    return runs


def even_tickets(shop: Shop, frames: int, drawn: int) -> list[Run]:
    """A ticket is due a slot after the last was, but at most a slot before the last was taken."""
    slot = shop.even_slot()
    runs: list[Run] = []
    free_at = [0] * shop.workers
    due = Fraction(0)
    for frame in range(frames):
        worker = min(range(shop.workers), key=lambda w: (free_at[w], w))
        if frame < due or free_at[worker] >= shop.begin(frame + 1):
            continue
        began = max(free_at[worker], shop.begin(frame))
        finished = free_at[worker] = began + shop.latency(drawn + len(runs))
        runs.append(Run(worker, frame, began, finished, finished))
        due = max(due, frame - slot) + slot
    return runs


FINISHES, IS_RELEASED, IS_READY = range(3)  # at the same time, in this order


def free_running(shop: Shop, frames: int, drawn: int, largest: int) -> tuple[list[Run], int]:
    """`none` and `max_time`: a worker starts when it is free and its own delay, if it has one, has passed."""
    staggered = shop.strategy == "max_time"
    delays = [Fraction(largest * worker, shop.workers) if staggered else Fraction(0) for worker in range(shop.workers)]
    lag = 2 if staggered and shop.is_crowded(largest) else 0
    todo: list[tuple[int, int, int]] = []  # (time, what, worker)
    idle: dict[int, int] = {}  # since when, by worker
    running: dict[int, tuple[int, int]] = {}  # (frame, began), by worker
    finished: dict[int, int] = {}
    read = [-1] * shop.workers
    runs: list[Run] = []
    end = shop.begin(frames)

    def is_free(worker: int, now: int) -> None:
        ready = now + max(0, math.ceil(delays[worker]))  # a negative delay shortens the next one, not the past
        if staggered:
            ready = shop.put_on_a_frame(ready, lag)
        if delays[worker] > 0:
            delays[worker] -= ready - now
        todo.append((ready, IS_READY, worker))

    for worker in range(shop.workers):
        is_free(worker, 0)
    now = 0
    while now < end:
        while due := sorted(event for event in todo if event[0] <= now):
            time, what, worker = due[0]
            todo.remove(due[0])
            frame, began = running.get(worker, (0, 0))
            if what == FINISHES:
                finished[worker] = time
                release = time
                if staggered and time - began > largest:
                    for other in range(shop.workers):
                        behind = (other - worker) % shop.workers
                        delays[other] += Fraction(behind * (time - began - largest), shop.workers)
                    largest = time - began
                    lag = 2 if shop.is_crowded(largest) else lag
                elif staggered:
                    release = began + largest
                todo.append((release, IS_RELEASED, worker))
            elif what == IS_RELEASED:
                runs = [replace_release(run, time) if run[:3] == (worker, frame, began) else run for run in runs]
                is_free(worker, time)
            else:
                idle[worker] = time
        may = sorted((since, worker) for worker, since in idle.items() if read[worker] < shop.frame_of(now))
        if may:
            worker = may[0][1]
            del idle[worker]
            read[worker] = shop.frame_of(now)
            running[worker] = (read[worker], now)
            takes = shop.latency(drawn + len(runs))
            runs.append(Run(worker, read[worker], now, now + takes, NEVER))
            todo.append((now + takes, FINISHES, worker))
            continue  # it may have taken no time
        now = min([time for time, *_ in todo] + [shop.begin(shop.frame_of(now) + 1)])
    return runs, largest


NEVER = 10**30


def replace_release(run: Run, time: int) -> Run:
    return Run(run.worker, run.start, run.began, run.finished, time) if run.released == NEVER else run


def thinned(shop: Shop, runs: list[Run], frames: int, playout: int) -> list[tuple[int, int, int]]:
    """Keep what starts later than all actions applied before: newest start, earliest finish, lowest worker."""
    landed: list[tuple[int, int, int]] = []
    due = {run: max(shop.in_time_for(run.released), run.start + playout) for run in runs if run.released < NEVER}
    newest = -1
    for frame in range(frames):
        possible = [run for run in due if due[run] <= frame and run.start > newest]
        if possible:
            best = min(possible, key=lambda run: (-run.start, run.released, run.worker))
            landed.append((frame, best.start, best.worker))
            newest = best.start
    return landed


@st.composite
def latency_lists(draw: st.DrawFn, fps: Fraction) -> list[int]:
    """Draw latencies of up to eight frames: zero, on a boundary, a nanosecond off one, anything."""
    frame = 10**9 / fps
    off_by = st.sampled_from([0, 0, -1, 1])
    near = st.builds(lambda k, off: max(0, math.ceil(k * frame) + off), st.integers(0, 8), off_by)
    anything = st.integers(0, int(8 * frame))
    even = st.integers(0, 5).map(lambda k: 12 * k * MS)  # so that workers are ready at the same time
    one = st.one_of(st.just(0), even, near, anything)
    length = draw(st.sampled_from([1, 5, 25]))  # of 10,000 draws, each is drawn as often
    return draw(st.lists(one, min_size=length, max_size=length))


WHOLE_SLOTS = st.one_of(st.none(), st.integers(1, 3))


@st.composite
def shops(draw: st.DrawFn, strategy: str, slots: Any = WHOLE_SLOTS) -> Shop:
    fps = draw(st.sampled_from(RATES))
    shop = Shop(
        strategy=strategy,
        workers=draw(st.integers(1, 5)),
        fps=fps,
        latencies=draw(latency_lists(fps)),
        playout=draw(st.one_of(st.integers(0, 6), st.sampled_from(["p50", "p90", "p99", "p75"]))),
        slot=draw(slots),
        initial=draw(st.sampled_from([0, 3 * MS, 12 * MS, 60 * MS])),
    )
    mean = sum(shop.latencies) // len(shop.latencies)
    on_the_edge = shop.in_time_for(max(mean - 1, 0)) != shop.in_time_for(mean)  # a mean in seconds is a float
    return replace(shop, slot=1) if shop.slot is None and on_the_edge else shop


def landed_of(schedule: SimulatedSchedule, frames: int, seed: int | None = None) -> list[tuple[int, int, int]]:
    steps = enumerate(islice(schedule.steps(seed), frames))
    return [(frame, *applied) for frame, (applied, _) in steps if applied is not None]


@pytest.mark.parametrize("strategy", ["none", "sequential", "tickets", "max_time"])
def test_the_simulated_schedule_is_what_a_naive_simulation_of_the_design_gives(strategy: str) -> None:
    naive_simulation_agrees(shops(strategy))


def test_even_slots_are_what_a_naive_simulation_gives() -> None:
    naive_simulation_agrees(shops("tickets", st.just("even")))


def naive_simulation_agrees(shops: st.SearchStrategy[Shop]) -> None:
    @SETTINGS
    @given(shop=shops, frames=st.lists(st.integers(1, 40), min_size=1, max_size=3), seed=st.booleans())
    def agrees(shop: Shop, frames: list[int], seed: bool) -> None:
        schedule = shop.simulated()
        result = Result([], 0, shop.initial)
        for episode in frames:
            result = by_the_design(shop, episode, 0 if seed else result.drawn, shop.initial if seed else result.largest)
            assert landed_of(schedule, episode, 1 if seed else None) == result.landed

    agrees()


def test_the_naive_simulation_notices_a_nanosecond() -> None:
    """A check of the check: what ends on a boundary is in time for it, a nanosecond later it is not."""
    shop = Shop("none", 1, Fraction(50), [40 * MS], 0, None, 0)
    assert by_the_design(shop, 6).landed == [(2, 0, 0), (4, 2, 0)]
    late = replace(shop, latencies=[40 * MS + 1])
    assert by_the_design(late, 6).landed == [(3, 0, 0), (5, 2, 0)]
    assert by_the_design(replace(late, strategy="sequential"), 8).landed == [(3, 0, 0), (7, 4, 0)]
    assert by_the_design(replace(late, strategy="tickets", playout=4, slot=1), 8).landed == [(4, 0, 0), (6, 2, 0)]
    assert by_the_design(replace(late, strategy="tickets", playout=4), 8).landed == [(4, 0, 0), (7, 3, 0)]  # slot 3


def test_a_start_with_a_negative_delay_is_put_on_the_frame_as_any_other() -> None:
    """Worker 2 is free a nanosecond after frame 14 begins, two nanoseconds before its delay says."""
    shop = Shop("max_time", 4, Fraction(50), [0, 0, 0, 99_999_999, 0], 0, None, 60 * MS)
    landed = [(4, 0, 0), (5, 1, 2), (7, 3, 0), (8, 4, 2), (10, 6, 0), (13, 7, 3), (15, 9, 2), (18, 12, 3)]
    assert landed_of(shop.simulated(), 20) == by_the_design(shop, 20).landed == landed


# The wrapper on a simulated schedule.


@dataclass(frozen=True)
class Episode:
    """What the environment and the agent do in one episode."""

    length: int  # frames
    ends: tuple[bool, bool]  # terminated, truncated
    steps: int  # decisions after which the agent resets, if the episode has not ended by then
    seed: int | None


@dataclass(frozen=True)
class World:
    """All that a run depends on, except the default action."""

    latency: Any
    workers: int
    fps: Any
    stagger: Any
    playout: int | str
    slot: int | None
    episodes: list[Episode]
    rewards: list[float]
    reuse: bool

    def make(self, reuse: bool) -> RecordingEnv:
        return RecordingEnv(
            length=[episode.length for episode in self.episodes],
            ends=[episode.ends for episode in self.episodes],
            rewards=self.rewards,
            reuse=reuse,
        )

    def schedule(self, history: list[tuple[int | None, int]], closed_from: int | None = None) -> SimulatedSchedule:
        """Return a schedule that has been asked for so many frames of earlier episodes, (seed, frames) each."""
        stagger = Closing(make_stagger(self.stagger, self.playout, self.slot))
        schedule = SimulatedSchedule(self.latency, self.workers, self.fps, stagger, seed=None)
        for seed, frames in history:
            for _ in islice(schedule.frames(seed), frames):
                pass
        assert isinstance(schedule.stagger, Closing)
        schedule.stagger.closed_from = closed_from
        return schedule


FAR = 500  # frames after the end of an episode


class Schedule:
    """One episode's (start, effect), as far as anybody asks."""

    def __init__(self, schedule: SimulatedSchedule, seed: int | None) -> None:
        self._clock, self._log = schedule.clock, schedule.keep_log()
        self._source: Iterator[tuple[int, int]] = schedule.decisions(seed)
        self._known: list[tuple[int, int]] = []

    def __getitem__(self, decision: int) -> tuple[int, int]:
        while len(self._known) <= decision:
            self._known.append(next(self._source))
        return self._known[decision]

    def finished(self, start: int) -> set[int]:
        """Return the frames that began when an inference of this start had ended; several workers may have read it."""
        return {self._clock.frame_at(inference.finished) for inference in self._log if inference.start == start}


def by_the_rules(world: World, rule: Callable[[int, Any, Any], int]) -> tuple[list[Any], list[list[int]]]:
    """Return what the agent gets in each reset and step, and the actions that the environment receives."""
    env = world.make(reuse=False)
    returned: list[Any] = []
    history: list[tuple[int | None, int]] = []
    for episode in world.episodes:
        decided = Schedule(world.schedule(history), episode.seed)
        observation, info = env.reset()
        sights = [(observation, info)]  # sights[k] is what the environment showed at the start of frame k
        rewards: list[float] = []
        ended = (False, False)
        last_action, decision = None, 0
        # The frames that the agent's calls cover.
        last_frame = decided[episode.steps][1] if episode.steps else decided[0][0]
        while len(rewards) < last_frame and not any(ended):
            frame = len(rewards)
            start, effect = decided[decision]
            if effect == frame:
                action = last_action = policy(sights[start][0])  # rules 1 and 2
                decision += 1
            else:
                action = rule(frame, sights[frame][0], last_action)
            observation, reward, *ended, info = env.step(action)
            sights.append((observation, info))
            rewards.append(reward)
        frames = len(rewards)
        asked = frames if any(ended) else frames + 1  # the last frame has begun, and is not stepped

        in_reset = min(decided[0][0], frames)  # the agent waits for the first observation that will be acted on
        realtime = {"frame": in_reset, "start": in_reset, "observation_info": sights[in_reset][1]}
        returned.append((sights[in_reset][0].tolist(), {**sights[in_reset][1], "realtime": realtime}))
        for j in range(episode.steps):
            (start, effect), (following, next_effect) = decided[j], decided[j + 1]
            mine = [k for k in range(frames) if (k >= effect or j == 0) and k < next_effect]  # rule 3
            if not mine:
                break  # the episode ended in an earlier step
            closing = mine[-1] + 1  # the frame that would come next
            end = list(ended) if closing == frames else [False, False]
            shown = following
            if any(end):
                closed = world.schedule(history, closed_from=closing)
                later = enumerate(islice(closed.frames(episode.seed), closing + FAR))
                landing = [s for k, (s, _) in later if k >= closing and s is not None and s > start]
                shown = landing[0] if landing else closing
            applied = effect < closing
            stepped = closing - (in_reset if j == 0 else effect)
            realtime = {
                "delay": effect - start,
                "interval": closing - effect if applied else 0,
                "default_frames": stepped - applied,
                "frame": closing,
                "start": shown,
                "applied": applied,
                "finished": decided.finished(start) if applied else {closing},
                "observation_info": sights[shown][1],
            }
            returned.append(
                (
                    sights[shown][0].tolist(),
                    sum(rewards[k] for k in mine),
                    *end,
                    {**sights[closing][1], "realtime": realtime},
                )
            )
        history.append((episode.seed, asked))
    return returned, env.episodes


def by_the_wrapper(world: World, default_action: Any) -> tuple[list[Any], list[list[int]]]:
    """Return the same of a real run."""
    recorder = world.make(reuse=world.reuse)
    terms: dict[str, Any] = {"default_action": default_action, "latency": world.latency, "workers": world.workers}
    terms |= {"fps": world.fps, "stagger": world.stagger, "playout": world.playout, "slot": world.slot}
    env = RealtimeDelay(recorder, **terms)
    returned: list[Any] = []
    for episode in world.episodes:
        observation, info = env.reset(seed=episode.seed)
        returned.append((observation.tolist(), deepcopy(info)))
        for _ in range(episode.steps):
            observation, reward, terminated, truncated, info = env.step(policy(observation))
            returned.append((observation.tolist(), reward, terminated, truncated, deepcopy(info)))
            if terminated or truncated:
                break
    return returned, recorder.episodes


LATENCIES = st.one_of(
    latency_lists(Fraction(50)).map(Played),
    st.sampled_from(
        [
            0.0,
            0.1,
            Uniform(0.0, 0.2),
            LogNormal(mean=0.08, cv=1.0),
            Gamma(mean=0.1, cv=0.5),
            Spikes(0.04, 0.2, 6),
            Trace([0.01, 0.3, 0.02, 0.02, 0.1]),
            Correlated(LogNormal(mean=0.08, cv=1.0), 0.9),
        ]
    ),
)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    first_seed = draw(st.integers(0, 2**31))  # the stream that no seed began is nobody's to foresee
    seeds = [first_seed, *draw(st.lists(st.one_of(st.none(), st.integers(0, 2**31)), max_size=3))]
    ends = st.sampled_from([(True, False), (False, True), (True, True)])
    stagger = draw(st.sampled_from(["tickets", "tickets", "none", "sequential", "max_time", "expected_time"]))
    return World(
        latency=draw(LATENCIES),
        workers=draw(st.integers(1, 5)),
        fps=draw(st.sampled_from([50, 59.7275, 20])),
        stagger=stagger,
        playout=draw(st.one_of(st.integers(0, 8), st.just("p75"))),
        slot=draw(st.one_of(st.none(), st.integers(1, 3))) if stagger == "tickets" else None,
        episodes=[
            Episode(draw(st.integers(1, 40)), draw(ends), draw(st.one_of(st.just(50), st.integers(0, 8))), seed)
            for seed in seeds
        ],
        rewards=draw(st.lists(st.integers(-1000, 1000).map(float), min_size=1, max_size=41)),
        reuse=draw(st.booleans()),
    )


@SETTINGS
@given(world=worlds(), name=st.sampled_from(list(DEFAULTS)))
def test_the_wrapper_on_any_schedule_gives_the_actions_observations_rewards_ends_and_infos_of_the_three_rules(
    world: World, name: str
) -> None:
    default_action, rule = DEFAULTS[name]
    assert_follows_the_rules(world, by_the_wrapper(world, default_action), by_the_rules(world, rule))


def assert_follows_the_rules(world: World, real: Any, expected: Any) -> None:
    (returned, received), (expected_returned, expected_received) = real, expected
    assert received == expected_received
    for step, expected_step in zip(returned, expected_returned, strict=True):
        may_be = expected_step[-1]["realtime"].pop("finished", None)
        if may_be is not None:
            finished = step[-1]["realtime"].pop("finished")
            if world.stagger != "max_time":  # its actions are held back: a test of its own, below
                assert finished in may_be
    assert returned == expected_returned


@pytest.mark.parametrize("stagger", ["tickets", "none", "sequential", "max_time", "expected_time"])
def test_finished_is_when_the_inference_had_ended_however_long_its_action_was_held_back(stagger: str) -> None:
    latency = Played([40 * MS, 20 * MS, 20 * MS, 20 * MS])
    env = RealtimeDelay(RecordingEnv(), latency=latency, workers=1, fps=50, stagger=stagger, playout=3)
    env.reset(seed=0)
    env.step(0)
    realtime = env.step(0)[-1]["realtime"]
    assert (realtime["delay"], realtime["finished"]) == {
        "tickets": (3, 3),  # starts on frame 2, is ready on frame 3 and applied on frame 5
        "none": (1, 3),
        "sequential": (1, 4),  # starts on frame 3
        "max_time": (2, 3),
        "expected_time": (1, 3),
    }[stagger]


def overtaken(length: int, steps: int = 50) -> World:
    """Return a world where decision 0 starts on frame 2: worker 0's first inference is overtaken by worker 1's."""
    return World(
        latency=Played([200 * MS, 20 * MS, 40 * MS, 40 * MS, 40 * MS]),
        workers=2,
        fps=50,
        stagger="tickets",
        playout=3,
        slot=2,
        episodes=[Episode(length, (False, True), steps, 0)],
        rewards=[1.0, 2.0, 4.0, 8.0, 16.0, 32.0],
        reuse=True,
    )


@pytest.mark.parametrize("length", range(1, 12))
def test_an_episode_that_ends_before_the_first_start_or_effect_ends_in_the_first_step(length: int) -> None:
    world = overtaken(length)
    returned, received = by_the_wrapper(world, "noop")
    assert_follows_the_rules(world, (returned, received), by_the_rules(world, DEFAULTS["noop"][1]))
    assert next(world.schedule([]).decisions(0)) == (2, 5)
    reset, first = returned[0], returned[1]
    assert reset[-1]["realtime"]["frame"] == min(length, 2)  # frames 0 and 1 run inside the reset
    assert reset[0][1] == min(length, 2)
    assert first[-1]["realtime"]["applied"] is (length > 5)
    assert sum(step[1] for step in returned[1:]) == sum(2.0 ** (frame % 6) for frame in range(length))
    if length <= 5:
        assert (first[2], first[3]) == (False, True)
        assert first[-1]["realtime"]["frame"] == length
        assert len(returned) == 2


def test_a_reset_without_a_step_runs_the_frames_before_the_first_start_and_no_more() -> None:
    world = overtaken(10, steps=0)
    returned, received = by_the_wrapper(world, "noop")
    assert len(received[0]) == 2
    assert_follows_the_rules(world, (returned, received), by_the_rules(world, DEFAULTS["noop"][1]))

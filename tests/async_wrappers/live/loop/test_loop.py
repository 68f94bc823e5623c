"""`EnvironmentLoop` on a clock of the test, with workers of the test: no time passes but where it is waited for."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import takewhile
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from async_wrappers.fleet.block import Block
from async_wrappers.latency import Constant
from async_wrappers.live.backends.virtual import VirtualBackend
from async_wrappers.live.loop.loop import EnvironmentLoop, episode_seed
from async_wrappers.live.loop.workers import NoWorkers
from async_wrappers.live.memory.exchange import Controls, Fate
from async_wrappers.live.report.report import Measurements
from async_wrappers.live.run_spec import LoopConfig, PhaseSpec, RunSpec
from async_wrappers.policy import Decision
from async_wrappers.schedule.simulated import SimulatedSchedule
from async_wrappers.schedule.stagger import ExpectedTime, MaxTime, Sequential, Stagger, Tickets
from async_wrappers.testing.staggers import MS, Played
from tests.worlds.fake_transport import BEGIN, FakeTransport, Stage, Timed
from tests.worlds.recording_env import FRAME, MEANINGS, NOOP, RecordingEnv, mixed
from tests.worlds.schedule_cases import CASES, Case, cases


def noisy(observation: Any, decision: Decision) -> int:
    assert observation[FRAME] == decision.start
    return mixed(decision.episode, decision.start, decision.frame, *observation.tolist()) % len(MEANINGS)


@pytest.fixture(autouse=True, scope="module")
def quick_collections() -> Iterator[None]:
    """A collection in the middle of a test session takes 100 ms and more."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gc, "collect", lambda: 0)
        yield


class Noisy:
    act = staticmethod(noisy)


SETTINGS = settings(
    max_examples=-(-CASES // 6), deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
BRISK = st.sampled_from([60, 59.7275, 1000, Fraction(60_000, 1001)])

# The loop and the virtual clock.


def by_the_loop(case: Case, phase: PhaseSpec, default_action: Any) -> tuple[Measurements, list[list[Any]]]:
    env = Timed(case.episodes)
    transport = env.transport = FakeTransport(noisy, case.latencies, [0] * case.workers)
    config = LoopConfig(case.workers, case.fps, case.stagger(), default_action, latency=Played(case.latencies), seed=5)
    return EnvironmentLoop(env, transport, config, now=transport.now).play(phase), env.episodes


def by_the_virtual_clock(case: Case, phase: PhaseSpec, default_action: Any) -> tuple[Measurements, list[list[Any]]]:
    env = RecordingEnv(case.episodes)
    config = LoopConfig(case.workers, case.fps, case.stagger(), default_action, latency=Played(case.latencies), seed=5)
    return VirtualBackend(RunSpec(lambda: env, Noisy, config)).play(phase), env.episodes


@SETTINGS
@given(
    case=cases(shortest=1, rates=BRISK), default_action=st.sampled_from(["noop", "repeat", "random"]), data=st.data()
)
def test_the_loop_plays_what_the_virtual_clock_plays_where_each_inference_takes_some_time(
    case: Case, default_action: Any, data: st.DataObject
) -> None:
    if isinstance(case.stagger(), MaxTime | ExpectedTime):  # whose estimates a seeded reset restarts in a simulation
        case = replace(case, episodes=case.episodes[:1])
    phase = data.draw(
        st.one_of(
            st.just(PhaseSpec(episodes=len(case.episodes))),
            st.builds(
                lambda n: PhaseSpec(frames=n, frames_before=7, first_episode=3), st.integers(1, sum(case.episodes))
            ),
            st.just(PhaseSpec(frames=1, whole_episodes=True, eval_mode=True, number=1)),
            st.just(PhaseSpec(episodes=1, max_episode_frames=5)),
        )
    )
    looped, actions = by_the_loop(case, phase, default_action)
    virtual, expected = by_the_virtual_clock(case, phase, default_action)
    assert actions == expected
    assert looped.episodes == virtual.episodes
    assert looped.effects == virtual.effects
    assert (looped.dropped, looped.playout) == (virtual.dropped, virtual.playout)
    # What comes late while the last frame of an episode goes on counts in the simulation alone: of each worker, what it
    # was at before that frame, and what it began on it.
    assert 0 <= virtual.late - looped.late <= 2 * case.workers * len(virtual.episodes)
    assert set(looped.lateness) == {0}


# The order of things, and their times.


def test_on_each_frame_the_loop_publishes_collects_starts_and_steps_in_this_order() -> None:
    stage = Stage(latencies=[1_700_000], workers=2)
    stage.play(frames=20)
    log = stage.transport.log
    log = log[next(n for n, (what, time, *_) in enumerate(log) if (what, time) == ("show", stage.begin) and n) :]
    frames: list[list[str]] = []
    for what, time, *rest in log:
        if what == "show":
            frames.append([])
            begin = time
        if what == "collect" and frames[-1] == ["show"]:
            assert rest == [0]  # at its deadline the loop does not wait
        frames[-1].append(what if time == begin else f"later {what}")
    assert len(frames) == 20
    for frame in frames:
        now = [what for what in frame if not what.startswith("later")]
        now = now[: now.index("step") + 1]  # then it waits
        assert now in (
            ["show", "collect", "step"],
            *(["show", "collect", *["start"] * n, "step"] for n in (1, 2)),
        )
        assert frame.count("step") == 1
    assert any("later start" in frame for frame in frames)  # a worker that becomes free in between starts at once


def test_deadlines_are_absolute_so_that_a_late_frame_shifts_no_later_one() -> None:
    stage = Stage(workers=1)
    stage.env.durations[3] = 2_600_000
    record = stage.play(frames=10)
    times = [time - stage.begin for time, _ in stage.env.steps]
    assert times == [0, MS, 2 * MS, 3 * MS, 5_600_000, 5_600_000, 6 * MS, 7 * MS, 8 * MS, 9 * MS]
    assert record.lateness == [0, 0, 0, 0, 1_600_000, 600_000, 0, 0, 0, 0]
    report = record.report()
    assert report.drift_ms == 0
    assert report.frames["missed_deadlines"] == 2
    assert report.fps == 1000


def test_frames_begin_on_the_clock_of_a_rate_that_is_no_whole_number_of_nanoseconds() -> None:
    stage = Stage(workers=1, fps=59.7275)
    stage.play(frames=500)
    period = 1_000_000_000 / 59.7275
    assert [time - stage.begin for time, _ in stage.env.steps] == [int(np.ceil(k * period)) for k in range(500)]


def test_an_environment_that_is_slower_than_its_frames_is_reported_as_slow() -> None:
    stage = Stage(workers=1, stagger="tickets")
    stage.env.durations = dict.fromkeys(range(100), 2 * MS)
    report = stage.play(frames=100).report()
    assert report.fps == pytest.approx(500)
    assert report.drift_ms == 99


def test_an_observation_is_held_back_until_its_frames_deadline() -> None:
    stage = Stage(workers=1)
    stage.play(frames=4)
    shown = [time - stage.begin for what, time, *_ in stage.transport.log if what == "show"][1:]
    assert shown == [0, MS, 2 * MS, 3 * MS]


def test_the_smallest_delay_is_one_frame() -> None:
    record = Stage(latencies=[1], workers=1).play(frames=10)
    assert record.effects == [[(k, k + 1) for k in range(9)]]


def test_an_inference_that_ends_exactly_on_a_boundary_is_in_time_for_it() -> None:
    assert Stage(latencies=[2 * MS], workers=1).play(frames=5).effects == [[(0, 2), (2, 4)]]
    assert Stage(latencies=[2 * MS + 1], workers=1).play(frames=7).effects == [[(0, 3), (2, 5)]]


def test_a_frame_on_which_nothing_is_due_receives_the_default_action() -> None:
    stage = Stage(latencies=[3 * MS], workers=1)
    record = stage.play(frames=8)
    assert stage.env.actions == [NOOP, NOOP, NOOP, 1, NOOP, NOOP, 1, NOOP]
    assert record.report().frames["default"] == 6


def test_the_default_action_is_shown_the_newest_observation_and_the_last_action() -> None:
    shown: list[tuple[int, Any]] = []

    def reflex(observation: Any, last_action: Any) -> int:
        shown.append((int(observation[FRAME]), last_action))
        return 0

    Stage(latencies=[3 * MS], workers=1, default_action=reflex).play(frames=6)
    assert shown == [(0, None), (1, None), (2, None), (4, 1), (5, 1)]


def test_every_inference_is_told_its_episode_frame_and_mode() -> None:
    stage = Stage(latencies=[MS], workers=1, length=[4, 3])
    stage.play(episodes=2, first_episode=6, frames_before=100, eval_mode=False)
    told = [ticket.decision[:4] for _, _, ticket in stage.starts()]
    assert told == [
        *((6, k, 100 + k, False) for k in range(4)),
        *((7, k, 104 + k, False) for k in range(3)),
    ]


# Ends and lengths.


def test_nothing_is_stepped_after_the_end_and_the_next_episode_has_its_own_seed() -> None:
    stage = Stage(length=[3, 5, 1], env={"ends": [(True, False), (False, True)]}, seed=9)
    record = stage.play(episodes=3, number=4, first_episode=2)
    assert [len(actions) for actions in stage.env.episodes] == [3, 5, 1]
    assert [seed for _, seed in stage.env.resets] == [episode_seed(9, 4, n) for n in (2, 3, 4)]
    assert [episode.frames for episode in record.episodes] == [3, 5, 1]
    assert [episode.score for episode in record.episodes] == [3, 5, 1]


def test_a_limit_of_frames_ends_a_run_in_the_middle_of_an_episode() -> None:
    stage = Stage(length=10)
    assert [episode.frames for episode in stage.play(frames=25).episodes] == [10, 10, 5]
    assert [episode.frames for episode in stage.play(frames=10).episodes] == [10]
    assert [len(actions) for actions in stage.env.episodes] == [10, 10, 5, 10]


def test_with_whole_episodes_the_last_one_is_played_to_its_end() -> None:
    assert [episode.frames for episode in Stage(length=10).play(frames=25, whole_episodes=True).episodes] == [10] * 3


class Notes:
    """A journal that writes down what it is told."""

    chunk_length = 0

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.effects: list[int] = []

    def begin_writing(self) -> None:
        self.told.append(("begin_writing",))

    def apply(self, observation: Any, action: Any, extras: Any, effect: Any) -> None:
        self.effects.append(int(effect[FRAME]))
        self.told.append(("apply", int(observation[FRAME]), action))

    def close(self, reward: float, interval: int, executed: Any, sent: Any) -> None:
        self.told.append(("close", reward, interval))

    def end(
        self, reward: float, interval: int, executed: Any, sent: Any, *, terminal: bool, final: Any, effect: Any
    ) -> None:
        self.effects.append(int(effect[FRAME]))
        self.told.append(("end", reward, interval, terminal, int(final[FRAME])))

    def abandon(self) -> None:
        self.told.append(("abandon",))


@pytest.mark.parametrize("reuse", [False, True])
def test_transitions_are_keyed_by_decision_and_a_cut_episode_bootstraps_on_what_is_in_flight(reuse: bool) -> None:
    notes = Notes()
    stage = Stage(latencies=[2_500_000], workers=1, journal=notes, env={"rewards": [1, 10, 100], "reuse": reuse})
    stage.play(episodes=1, max_episode_frames=8)  # starts at 0, 2.5, 5 and 7.5 ms; effects on 3, 5, 8
    assert notes.told == [
        ("begin_writing",),
        ("apply", 0, 1),
        ("apply", 2, 1),
        ("close", 1 + 10 + 100 + 1 + 10, 2),
        ("end", 100 + 1 + 10, 3, False, 5),
    ]
    assert notes.effects == [3, 5, 8]


def test_a_terminated_episode_and_one_that_the_run_cuts_off_are_told_apart() -> None:
    notes = Notes()
    Stage(latencies=[MS], workers=1, length=3, journal=notes).play(episodes=1)
    assert notes.told[-1][:4] == ("end", 1, 1, True)
    notes = Notes()
    Stage(latencies=[MS], workers=1, length=3, journal=notes).play(frames=2)
    assert notes.told[-1] == ("abandon",)


def test_nothing_is_learnt_from_an_evaluation() -> None:
    notes = Notes()
    Stage(length=5, journal=notes).play(episodes=2, eval_mode=True)
    assert notes.told == [("begin_writing",)]


def test_a_run_that_is_told_to_stop_ends_before_the_next_frame() -> None:
    stopped: list[bool] = []
    stage = Stage(length=10, stops=lambda: bool(stopped), happens=[(5_500_000, lambda _: stopped.append(True))])
    record = stage.play(episodes=3)
    assert record.stopped
    assert len(record.episodes) == 1
    assert record.episodes[0].frames < 10


# Between episodes.


def test_draining_waits_for_all_inferences_and_begins_with_all_workers_free() -> None:
    stage = Stage(latencies=[4 * MS, 9 * MS], workers=2, length=5)
    record = stage.play(episodes=2)
    starts = stage.starts()
    first = [entry for entry in starts if entry[2].decision.episode == 0]
    second = [entry for entry in starts if entry[2].decision.episode == 1]
    assert [(time, worker) for time, worker, _ in first] == [(0, 0), (0, 1), (4 * MS, 0)]
    assert [(time, worker) for time, worker, _ in second][:2] == [(9 * MS, 0), (9 * MS, 1)]
    assert [(span.worker, span.episode) for span in record.spans] == [(0, 0), (0, 0), (1, 0), (0, 1)]
    assert record.dropped == 0
    assert record.effects == [[(0, 4)], [(0, 4)]]


def test_a_reset_after_a_drain_comes_no_earlier_than_the_last_frames_end() -> None:
    stage = Stage(latencies=[100], workers=1, length=3)
    record = stage.play(episodes=4)
    assert [time - stage.begin for time, _ in stage.env.steps] == [k * MS for k in range(12)]
    assert record.report().fps == 1000


def test_continuing_begins_on_the_next_frame_of_the_same_clock_and_drops_the_old_actions() -> None:
    stage = Stage(latencies=[2_500_000], workers=1, length=4, between_episodes="continue", act=noisy)
    record = stage.play(episodes=3)
    assert [time - stage.begin for time, _ in stage.env.steps] == [k * MS for k in range(12)]
    # Frame 2 of the first episode is inferred until 5 ms, frame 1 of the second (which began at 4) until 7.5: too late.
    assert record.effects == [[(0, 3)], [], [(0, 3)]]
    assert record.dropped == 2
    assert [(span.episode, span.start) for span in record.spans] == [(0, 0), (0, 2), (1, 1), (2, 0)]


@pytest.mark.parametrize("between_episodes", ["drain", "continue"])
@SETTINGS
@given(case=cases(shortest=1, rates=BRISK), data=st.data())
def test_no_action_of_another_episode_or_phase_is_ever_applied(
    between_episodes: str, case: Case, data: st.DataObject
) -> None:
    """Each action tells the episode of the environment, and the frame, whose observation it was computed from."""
    env = Told(case.episodes)
    transport = env.transport = FakeTransport(lambda o, d: o[:2].copy(), case.latencies, [0] * case.workers)
    config = LoopConfig(
        case.workers, case.fps, case.stagger(), np.array([-1, -1]), between_episodes, calibration_time=data.draw(TIMES)
    )
    loop = EnvironmentLoop(env, transport, config, now=transport.now)
    for phase in range(3):
        before = len(env.episodes)
        record = loop.play(PhaseSpec(frames=data.draw(st.integers(1, 80)), number=phase % 2, eval_mode=bool(phase % 2)))
        assert len(record.episodes) == len(env.episodes) - before
        for episode, effects in enumerate(record.effects, start=before):
            applied = [(a.tolist(), frame) for frame, a in enumerate(env.episodes[episode]) if a[0] >= 0]
            assert applied == [([episode, start], frame) for start, frame in effects]
            assert all(start < frame for start, frame in effects)
        assert sum(map(len, record.effects)) + record.dropped <= len(record.spans)
        assert all(record.begin <= span.began <= span.ended for span in record.spans)


TIMES = st.sampled_from([0.0, 0.01])


class Told(Timed):
    """Takes actions of two numbers."""

    def __init__(self, lengths: list[int]) -> None:
        super().__init__(lengths, action_space=Box(-1, 10_000, (2,), np.int64))


def test_a_worker_that_never_ends_does_not_hold_up_a_drain_for_ever() -> None:
    hangs = {0: 2 * MS, 1: 2 * MS}
    stage = Stage(hangs, 2, length=5, start_timeout=0.5, happens=[(MS, lambda _: hangs.update({1: 10**15}))])
    with pytest.warns(UserWarning, match=r"^workers 1 have inferred for more than 0\.5 s: not waited for$") as warned:
        record = stage.play(episodes=3)
    assert len(warned) == 1  # it is waited for once
    assert [len(effects) for effects in record.effects] == [2, 2, 2]
    assert {entry[1] for entry in stage.starts() if entry[2].decision.episode > 0} == {0}
    assert stage.env.resets[2][0] - stage.env.resets[1][0] < 600 * MS
    assert stage.transport.time - stage.env.resets[2][0] < 20 * MS


# Warm-up and calibration.


def test_frame_zero_waits_until_each_worker_has_inferred_once() -> None:
    stage = Stage(latencies=[4 * MS], workers=3, ready=[0, 7 * MS, 2 * MS])
    stage.play(frames=2)
    assert stage.begin == BEGIN + 11 * MS
    warm = [entry for entry in stage.starts(warm_up=True) if entry[0] < 0]
    assert sorted(worker for _, worker, _ in warm) == [0, 1, 2]
    assert {ticket.decision[:4] for *_, ticket in warm} == {(0, 0, 0, True)}


def test_a_worker_that_hangs_in_its_first_inference_is_waited_for_once() -> None:
    stage = Stage({0: 2 * MS, 1: 10**15}, 2, start_timeout=0.25)
    with pytest.warns(UserWarning, match="workers 1 have not inferred within") as warned:
        stage.play(frames=3)
    assert len(warned) == 1
    assert stage.begin - BEGIN < 300 * MS


def test_workers_that_are_missing_at_the_start_timeout_are_named_and_left_out() -> None:
    stage = Stage(latencies=[2 * MS], workers=4, ready=[0, None, 0, None], start_timeout=0.25)
    with pytest.warns(UserWarning, match=r"^workers 1, 3 have not inferred within 0\.25 s: not waited for$"):
        record = stage.play(frames=6)
    assert 250 * MS < stage.begin - BEGIN < 300 * MS
    assert record.effects == [[(0, 2), (2, 4)]]


def test_without_any_worker_a_run_ends_with_an_error_that_names_them() -> None:
    stage = Stage(workers=2, ready=[None, None], start_timeout=0.25)
    with pytest.raises(NoWorkers, match=r"no worker has inferred within start_timeout=0\.25 s; missing: 0, 1"):
        stage.play(frames=6)


def test_a_worker_that_comes_up_late_joins() -> None:
    stage = Stage(latencies=[2 * MS], workers=2, ready=[0, 30 * MS], start_timeout=0.02)
    with pytest.warns(UserWarning, match="workers 1 have"):
        stage.play(frames=20)
    begun = [time for time, worker, _ in stage.starts() if worker == 1]
    assert begun[0] == BEGIN + 30 * MS - stage.begin


def test_the_warm_up_ends_when_it_is_told_to() -> None:
    stage = Stage(workers=2, ready=[None, None], stops=lambda: stage.transport.time > BEGIN + 100 * MS)
    record = stage.play(frames=6)
    assert record.stopped
    assert stage.env.steps == []


@pytest.mark.parametrize("fate", [Fate.REFUSED, Fate.PASSED, Fate.DISCARDED])
def test_a_calibration_without_a_single_action_ends_too(fate: Fate) -> None:
    stage = Stage(latencies=[2 * MS], workers=2, calibration_time=1.0)
    stage.transport.fates = dict.fromkeys(range(10_000), fate)
    with pytest.warns(
        RuntimeWarning, match=r"^the policy gave no action in calibration_time=1 s, so the first episode"
    ):
        record = stage.play(frames=6)
    assert stage.begin - BEGIN <= 1100 * MS
    assert record.effects == [[]]


def test_answers_that_are_refused_are_not_among_those_that_are_measured() -> None:
    """The server of a policy is away for the first half of the warm-up."""
    stage = Stage(latencies=[5 * MS], workers=2, calibration_time=1.0, stagger=Tickets("p99"))
    stage.transport.fates = dict.fromkeys(range(200), Fate.REFUSED)
    record = stage.play(frames=20)
    assert record.playout == 5
    assert record.late == 0


def test_a_warm_up_that_was_stopped_is_made_up_for_by_the_next_run() -> None:
    stop = [True]
    terms: dict[str, Any] = {"latencies": [5 * MS], "workers": 2, "ready": [200 * MS, 200 * MS]}
    terms |= {"calibration_time": 1.0, "stagger": Tickets("p99")}
    terms |= {"stops": lambda: stop[0] and stage.transport.time > BEGIN + 10 * MS}
    stage = Stage(**terms)
    assert stage.play(frames=6).stopped and stage.env.steps == []
    stop[0] = False
    record = stage.play(frames=20)
    assert record.playout == 5
    assert record.late == 0


def test_a_warm_up_without_any_worker_is_made_up_for_by_the_next_run() -> None:
    stage = Stage(latencies=[5 * MS], workers=1, ready=[300 * MS], start_timeout=0.25)
    with pytest.raises(NoWorkers):
        stage.play(frames=6)
    record = stage.play(frames=20)
    assert record.begin >= BEGIN + 305 * MS
    assert record.effects[0][0] == (0, 5)


def test_a_calibration_ends_though_a_worker_never_does() -> None:
    hangs = {0: 2 * MS}
    happens = [(MS, lambda _: hangs.update({0: 10**15}))]
    stage = Stage(hangs, workers=1, calibration_time=1.0, start_timeout=3.0, happens=happens)
    with pytest.warns(UserWarning, match=r"^workers 0 have inferred for more than 3\.0 s"):
        stage.play(frames=3)
    assert stage.begin - BEGIN < 8000 * MS


def test_calibration_measures_at_least_three_inferences_however_long_they_take() -> None:
    stage = Stage(latencies=[700 * MS], workers=1, calibration_time=1.0, stagger=Tickets("p99"), fps=10)
    record = stage.play(frames=20)
    warm = [entry for entry in stage.starts(warm_up=True) if entry[0] < 0]
    assert len(warm) == 1 + 3
    assert record.playout == 7


def test_calibration_measures_fifty_inferences_at_most() -> None:
    stage = Stage(latencies=[MS], workers=1, calibration_time=1.0)
    stage.play(frames=1)
    assert len([entry for entry in stage.starts(warm_up=True) if entry[0] < 0]) == 1 + 50


def test_the_playout_is_estimated_again_at_each_reset_and_never_within_an_episode() -> None:
    class Told(Tickets):
        prepared: list[int] = []

        def prepare(self, conditions: Any) -> None:
            super().prepare(conditions)
            self.prepared.append(self.playout)

    stage = Stage(latencies=[2 * MS] * 20 + [6 * MS] * 30, workers=8, calibration_time=0.05, stagger=Told(), length=40)
    record = stage.play(episodes=2)
    assert Told.prepared[0] == 6
    assert len(Told.prepared) == 2
    assert record.playout == Told.prepared[-1]


def test_a_latency_model_takes_the_place_of_calibration() -> None:
    stage = Stage(latencies=[MS], workers=2, calibration_time=5.0, latency=Constant(0.004), stagger="tickets")
    record = stage.play(frames=10)
    assert record.playout == 4
    assert stage.begin == BEGIN + MS  # one inference of each
    assert record.effects == [[(k, k + 4) for k in range(0, 6, 2)]]  # a slot of two frames


@pytest.mark.parametrize("given", [True, False])
def test_even_slots_of_a_given_or_a_measured_latency_are_those_of_the_simulation(given: bool) -> None:
    latency = Constant(0.0023)
    terms: dict[str, Any] = {"workers": 2, "stagger": Tickets(slot="even"), "length": 60, "calibration_time": 0.05}
    terms |= {"latency": latency if given else None}
    stage = Stage([2_300_000], **terms)
    effects = stage.play(episodes=1).effects
    simulated = SimulatedSchedule(latency, 2, 1000, slot="even").decisions()
    assert effects == [list(takewhile(lambda decision: decision[1] < 60, simulated))]
    assert len(effects[0]) == 48  # one start in 1.15 frames, of frames 0 to 55


def test_the_warm_up_is_no_part_of_the_record() -> None:
    for between_episodes in ("drain", "continue"):
        stage = Stage([5 * MS], workers=3, calibration_time=0.012, between_episodes=between_episodes)
        record = stage.play(frames=4)
        assert record.spans == []
        assert record.dropped == 0
        assert record.latencies == []


# Workers that die, and inferences that give no action.


def test_a_worker_that_dies_at_work_is_lost_and_counted_and_comes_back() -> None:
    stage = Stage([3 * MS], workers=1, happens=[(3 * MS + 4_500_000, lambda s: s.transport.kill(0, 5 * MS))])
    record = stage.play(frames=20)
    assert record.fates == {"lost": 1}
    assert [time for time, *_ in stage.starts()][:3] == [0, 3 * MS, 9_500_000]
    assert record.effects == [[(0, 3), (9, 13), (12, 16), (15, 19)]]


def test_a_worker_that_dies_idle_is_free_once_when_it_is_up_again() -> None:
    # Tickets every 4 frames: the two workers wait most of the time.
    stage = Stage(
        [3 * MS], 2, Tickets(3, slot=4), happens=[(9 * MS, lambda s: s.transport.kill(0, MS)) for _ in range(1)]
    )
    record = stage.play(frames=60)  # the transport asserts that a worker has one inference at a time
    assert record.fates == {}
    assert [start for start, _ in record.effects[0]] == list(range(0, 57, 4))
    assert {worker for _, worker, _ in stage.starts()} == {0, 1}


@SETTINGS
@given(
    case=cases(shortest=1, rates=BRISK),
    deaths=st.lists(st.tuples(st.floats(0, 60), st.integers(0, 6), st.floats(0.1, 20)), max_size=12),
    drain=st.booleans(),
)
def test_whoever_dies_when_each_worker_has_one_inference_at_a_time_and_all_come_back(
    case: Case, deaths: list[tuple[float, int, float]], drain: bool
) -> None:
    frame = int(1e9 / float(case.fps))
    dead_until: dict[int, int] = {}

    def killer(worker: int, frames: float) -> Any:
        def kill(stage: Stage) -> None:
            if dead_until.get(worker, 0) < stage.transport.time:
                dead_until[worker] = stage.transport.time + int(frames * frame)
                stage.transport.kill(worker, int(frames * frame))

        return kill

    happens = [(int(at * frame), killer(worker % case.workers, frames)) for at, worker, frames in deaths]
    stage = Stage(
        case.latencies,
        case.workers,
        case.stagger(),
        case.episodes,
        case.fps,
        noisy,
        happens=happens,
        between_episodes="drain" if drain else "continue",
        start_timeout=3600.0,
    )
    first, second = stage.play(frames=60), stage.play(frames=200)
    for record in (first, second):
        for effects in record.effects:
            assert [start for start, _ in effects] == sorted({start for start, _ in effects})
    while stage.transport.coming:
        stage.loop.clock.pool.collect(stage.transport.time + 10**12)
    assert stage.loop.clock.pool.free == list(range(case.workers))


@pytest.mark.parametrize("fate", [Fate.REFUSED, Fate.PASSED, Fate.DISCARDED])
@pytest.mark.parametrize("stagger", ["none", "sequential", Tickets(2, slot=1)])
def test_an_inference_without_an_action_is_counted_and_its_worker_goes_on(fate: Fate, stagger: Any) -> None:
    stage = Stage([2 * MS], workers=1, stagger=stagger)
    stage.transport.fates = {1: fate, 3: fate}  # 0 is the warm-up
    record = stage.play(frames=12)
    assert record.fates == {fate.name.lower(): 2}
    assert 0 not in [start for start, _ in record.effects[0]]
    assert len(record.effects[0]) >= 2
    assert len(stage.starts()) >= 5
    assert record.report().lost == record.fates


def test_a_refused_action_is_not_dropped_and_the_frame_receives_the_default() -> None:
    stage = Stage([MS], workers=1)
    stage.transport.fates = dict.fromkeys(range(1, 100), Fate.REFUSED)
    record = stage.play(frames=10)
    assert set(stage.env.actions) == {NOOP}
    assert record.dropped == 0
    assert record.fates == {"refused": 9}


# Learning that has its place in the cycle.


def learning_stage(learn: str, turn: int, **kwargs: Any) -> tuple[Stage, Controls]:
    """Return a stage on which each granted turn is taken `turn` nanoseconds after it was granted."""
    block = Block(shared=False)
    block.resize(Controls.size(1, 1))
    controls = Controls(block, 1, 1)

    def look(stage: Stage) -> None:
        due = stage.taking  # type: ignore[attr-defined]
        if due is None and controls.granted > controls.turns[0]:
            stage.taking = stage.transport.time + turn  # type: ignore[attr-defined]
        elif due is not None and stage.transport.time >= due:
            controls.turns[0] += 1
            stage.taking = None  # type: ignore[attr-defined]

    happens = [(k * MS // 20, look) for k in range(20 * 40)]
    stage = Stage(stagger=Sequential(learn), controls=controls, workers=1, happens=happens, **kwargs)
    stage.taking = None  # type: ignore[attr-defined]
    return stage, controls


def test_inference_then_learning_reads_the_next_observation_after_the_update() -> None:
    stage, controls = learning_stage("after", 1_200_000, latencies=[2 * MS])
    record = stage.play(frames=16)
    # 0 .. 2 inference, effect on 2; update until 3.2; observed on 4, effect on 6, update until 7.2, observed on 8 ...
    assert record.effects == [[(0, 2), (4, 6), (8, 10), (12, 14)]]
    assert controls.turns[0] == controls.granted - (controls.granted > controls.turns[0])


def test_learning_then_inference_updates_once_before_the_first_observation_too() -> None:
    stage, _ = learning_stage("before", 1_200_000, latencies=[2 * MS])
    record = stage.play(frames=16)
    # update until 1.2, observed on 2, effect on 4, update until 5.2, observed on 6 ...
    assert record.effects == [[(2, 4), (6, 8), (10, 12)]]


def test_an_update_shorter_than_a_frame_costs_no_frame() -> None:
    stage, _ = learning_stage("before", 200_000, latencies=[2 * MS])
    plain = Stage(latencies=[2 * MS], workers=1, stagger="sequential").play(frames=16)
    record = stage.play(frames=16)
    assert [start for start, _ in record.effects[0]] == [1 + start for start, _ in plain.effects[0]][:5]


def test_learning_never_runs_ahead_of_its_turn() -> None:
    for learn in ("after", "before"):
        stage, controls = learning_stage(learn, 200_000, latencies=[2 * MS], length=7)
        record = stage.play(episodes=2)
        finished = len(record.spans)
        applied = sum(map(len, record.effects))
        assert controls.turns[0] <= (finished if learn == "after" else applied + 2)


# What the loop leaves as it was.


@pytest.mark.parametrize("collects", [True, False])
def test_garbage_collection_is_afterwards_as_it_was(collects: bool) -> None:
    seen: list[bool] = []
    was = gc.isenabled()
    try:
        (gc.enable if collects else gc.disable)()
        Stage(default_action=lambda o, a: seen.append(gc.isenabled()) or 0, latencies=[50 * MS]).play(frames=2)
        assert gc.isenabled() is collects
    finally:
        (gc.enable if was else gc.disable)()
    assert seen == [False, False]


@pytest.mark.parametrize(("frozen", "calls"), [(0, 1), (5, 0)])
def test_objects_that_a_program_has_frozen_stay_frozen(
    frozen: int, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    unfrozen: list[None] = []
    monkeypatch.setattr(gc, "get_freeze_count", lambda: frozen)
    monkeypatch.setattr(gc, "unfreeze", lambda: unfrozen.append(None))
    Stage(latencies=[3 * MS]).play(frames=2)
    assert len(unfrozen) == calls


def test_a_strategy_serves_one_loop() -> None:
    stagger = MaxTime(0.0)
    records = [Stage(latencies=[3 * MS], workers=2, stagger=stagger).play(frames=20) for _ in range(2)]
    assert records[0].spans == records[1].spans


class Clipping(Timed):
    """Writes into the action that it receives."""

    def step(self, action: Any) -> Any:
        result = super().step(action.copy())
        action *= 0
        return result


def test_an_environment_may_write_into_the_action_that_it_receives() -> None:
    env = Clipping(None, action_space=Box(-9, 9, (1,), np.int64))
    transport = env.transport = FakeTransport(lambda o, d: np.array([7]), [3 * MS], [0])
    config = LoopConfig(1, 1000, Stagger(), "repeat", calibration_time=0.0)
    EnvironmentLoop(env, transport, config, now=transport.now).play(PhaseSpec(frames=6))
    assert [int(action[0]) for action in env.actions] == [0, 0, 0, 7, 7, 7]

"""Learners on the virtual clock: when updates begin and end, what they see, and that a seed decides the weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from async_wrappers import AsyncRunner
from async_wrappers.latency import Constant, LogNormal, Trace
from async_wrappers.live import Decision
from async_wrappers.live.report.report import TimingReport
from async_wrappers.schedule.stagger import Sequential
from tests.worlds.recording_env import FRAME, RecordingEnv

MS = 1e-3


class Drawing:
    """Learns from transitions that it draws: its weights depend on all that it has observed, and when."""

    def __init__(self, ready_at: int = 1) -> None:
        self.count = np.zeros(2)
        self.seen: list[float] = []
        self.begun: list[int] = []  # transitions observed when each update began
        self.updates = 0
        self.closed = False
        self._ready_at, self._random = ready_at, np.random.default_rng(0)

    @property
    def ready(self) -> bool:
        return len(self.seen) >= self._ready_at

    def observe(self, transition: Mapping[str, Any]) -> None:
        self.seen.append(float(transition["observation"][FRAME]))

    def update(self) -> Mapping[str, float]:
        return self.apply(self.gradients())

    def gradients(self) -> Any:
        self.begun.append(len(self.seen))
        return self._random.choice(self.seen) * self._random.random() - 0.1 * self.count[1]

    def apply(self, gradients: Any) -> Mapping[str, float]:
        self.count = self.count + np.array([1.0, gradients])
        self.updates += 1
        return {"sum": float(self.count[1])}

    def weights(self) -> Mapping[str, Any]:
        return {"count": self.count}

    def load_weights(self, weights: Mapping[str, Any]) -> None:
        self.count = weights["count"].copy()

    def state_dict(self) -> dict[str, Any]:
        random = json.dumps(self._random.bit_generator.state)
        return {"count": self.count, "seen": np.array(self.seen), "updates": self.updates, "random": random}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.count, self.seen, self.updates = state["count"].copy(), list(state["seen"]), state["updates"]
        self._random.bit_generator.state = json.loads(state["random"])

    def close(self) -> None:
        self.closed = True


class Reading:
    """Acts by its weights, and keeps of each inference (episode, start, updates behind the weights)."""

    def __init__(self) -> None:
        self.read: list[tuple[int, int, int]] = []

    def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        self._count = weights["count"]

    def act(self, observation: Any, decision: Decision) -> int:
        self.read.append((decision.episode, decision.start, int(self._count[0])))
        return int(abs(self._count[1]) * 7 + observation[FRAME]) % 3


class Room:
    """A runner on the virtual clock at 1,000 frames a second, its policies and its learners."""

    def __init__(self, length: Any = 20, learners: int = 1, ready_at: int = 1, workers: int = 1, **terms: Any) -> None:
        self.env = RecordingEnv(length)
        self.policies: list[Reading] = []
        self.learners: list[Drawing] = []
        given = {"latency": 0.0, "stagger": "none", "learner_latency": 2.5 * MS, **terms}
        self.runner = AsyncRunner(
            lambda: self.env,
            lambda: self._kept(self.policies, Reading()),
            workers,
            1000,
            backend="virtual",
            make_learner=lambda: self._kept(self.learners, Drawing(ready_at)),
            learners=learners,
            **given,
        )

    @staticmethod
    def _kept(made: list[Any], one: Any) -> Any:
        made.append(one)
        return one

    @property
    def versions(self) -> list[int]:
        """Updates behind the weights of each inference."""
        return [version for _, _, version in self.policies[0].read]


def test_an_update_begins_with_the_first_transition_and_its_weights_are_read_from_its_end_on() -> None:
    room = Room(length=12)
    room.runner.run(episodes=1)
    # Latency 0: decision k takes effect on frame k. Its transition is complete on frame k + 1, and observed on frame
    # k + 2, once the one after it is complete, too. Updates begin at 2, 4.5, 7 and 9.5 ms.
    assert room.versions == [0, 0, 0, 0, 0, 1, 1, 2, 2, 2, 3, 3]
    assert room.learners[0].begun == [1, 3, 6, 8]


def test_an_update_that_ends_as_a_frame_begins_is_seen_on_that_frame() -> None:
    room = Room(length=8, learner_latency=2 * MS)
    room.runner.run(episodes=1)
    assert room.versions == [0, 0, 0, 0, 1, 1, 2, 2]
    assert room.learners[0].begun == [1, 3, 5]


def test_an_inference_keeps_the_weights_of_its_start() -> None:
    room = Room(length=24, latency=4 * MS)
    report = room.runner.run(episodes=1)
    # The first transition is observed at 12 ms; updates end at 14.5, 17, 19.5 and 22 ms, and one where the run ends.
    assert room.policies[0].read == [(0, 0, 0), (0, 4, 0), (0, 8, 0), (0, 12, 0), (0, 16, 1), (0, 20, 3)]
    assert report.updates == 5


@pytest.mark.parametrize(("ratio", "updates"), [(0.25, 5), (0.5, 9), (1.0, 18), (3.0, 18)])
def test_updates_are_owed_per_transition_and_as_many_are_made_as_there_is_time_for(ratio: float, updates: int) -> None:
    room = Room(length=20, learner_latency=1 * MS, updates_per_transition=ratio)
    report = room.runner.run(episodes=1)
    # 18 of the 20 transitions are observed within the run; of a fraction owed a whole update is made.
    assert report.updates == updates
    assert all(begun > index / ratio for index, begun in enumerate(room.learners[0].begun))


def test_nothing_is_learnt_before_the_learner_is_ready_nor_in_an_evaluation() -> None:
    room = Room(length=10, ready_at=5)
    report = room.runner.run(episodes=1)
    assert room.learners[0].begun[0] == 5
    assert report.updates == room.learners[0].updates > 0
    evaluation = room.runner.run(episodes=1, eval_mode=True)
    assert evaluation.updates == 0
    assert set(room.versions[-10:]) == {report.updates}  # one set of weights: those of the last update
    assert len(room.learners[0].seen) == 10


def test_the_report_has_the_updates_and_how_long_they_took() -> None:
    report = Room(length=30, learner_latency=Trace([0.002, 0.004])).runner.run(episodes=1)
    assert report.learner_step_ms is not None
    assert (report.learner_step_ms["mean"], report.learner_step_ms["max"]) == (pytest.approx(3.0, abs=0.2), 4.0)
    assert report.scalars.keys() == {"sum"}
    assert "updates" in str(report)


def test_of_several_learners_each_applies_its_gradients_to_the_newest_weights_in_the_order_of_ending() -> None:
    room = Room(length=300, learners=3, learner_latency=LogNormal(mean=0.004, cv=0.5))
    report = room.runner.run(episodes=1)
    assert report.updates == sum(learner.updates for learner in room.learners)
    assert all(learner.updates > 0 for learner in room.learners)
    assert max(learner.count[0] for learner in room.learners) == report.updates  # none is lost, none overwritten
    assert room.versions == sorted(room.versions)


def outcome(room: Room, reports: list[TimingReport]) -> Any:
    return (
        [repr(report.to_dict()) for report in reports],
        [report.spans for report in reports],
        [learner.count.tolist() for learner in room.learners],
        room.env.episodes,
        [policy.read for policy in room.policies],
    )


@settings(max_examples=40, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    learners=st.integers(1, 3),
    workers=st.integers(1, 3),
    ratio=st.sampled_from([None, 0.25, 2.0]),
    latency=st.sampled_from([0.0, 0.0035, LogNormal(mean=0.003, cv=0.6)]),
    learner_latency=st.sampled_from([0.0025, 0.001, LogNormal(mean=0.003, cv=0.6)]),
    stagger=st.sampled_from(["tickets", "none", "expected_time", lambda: Sequential("after")]),
    seed=st.integers(0, 1000),
)
def test_a_run_is_a_function_of_its_seed(seed: int, **terms: Any) -> None:
    ratio = terms.pop("ratio")

    def play() -> Any:
        room = Room([40, 7, 25], seed=seed, updates_per_transition=ratio, **terms)
        return outcome(room, [room.runner.run(episodes=2), room.runner.run(frames=15), room.runner.run(episodes=1)])

    assert play() == play()


def test_another_latency_of_updates_gives_other_weights() -> None:
    weights = []
    for latency in (0.002, 0.002, 0.003, LogNormal(mean=0.002, cv=0.3)):
        room = Room([40, 7, 25], learner_latency=latency)
        room.runner.run(episodes=3)
        weights.append(room.learners[0].count.tolist())
    assert weights[0] == weights[1]
    assert len({str(each) for each in weights}) == 3


@pytest.mark.parametrize("learners", [1, 2, 3])
@pytest.mark.parametrize("learn", [None, "after", "before"])
def test_a_run_goes_on_from_its_files_as_one_that_was_never_ended(
    tmp_path: Path, learners: int, learn: str | None
) -> None:
    terms = {"learners": learners, "stagger": lambda: Sequential(learn), "updates_per_transition": 0.3}

    def play(room: Room, first_episode: int) -> TimingReport:
        return room.runner.run(episodes=2, first_episode=first_episode, frames_before=30 * first_episode)

    whole = Room(30, **terms)
    play(whole, 0)
    whole.runner.save(tmp_path, 1)
    expected = play(whole, 2)
    assert expected.updates > 0

    resumed = Room(30, **terms)
    resumed.runner.restore(tmp_path, 1)
    report = play(resumed, 2)
    assert repr(report.to_dict()) == repr(expected.to_dict())
    for one, other in zip(whole.learners, resumed.learners, strict=True):
        assert one.count.tolist() == other.count.tolist()
        assert one.seen == other.seen
    assert whole.env.episodes[2:] == resumed.env.episodes


def test_a_learner_without_its_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^learner 0 cannot be restored: .*there is no file"):
        Room().runner.restore(tmp_path, 3)


@pytest.mark.parametrize("learn", ["after", "before"])
def test_learning_has_its_turn_in_the_cycle(learn: str) -> None:
    room = Room(length=40, stagger=lambda: Sequential(learn), latency=2 * MS, learner_latency=3 * MS)
    room.runner.run(episodes=1)
    starts = [start for _, start, _ in room.policies[0].read]
    # Two frames of inference and three of learning, once the first transition is complete.
    assert set(np.diff(starts[4:])) == {5}
    assert np.diff(room.versions[4:]).tolist() == [1] * (len(starts) - 5)  # one update in each cycle


def test_an_interrupted_update_is_not_saved() -> None:
    room = Room(length=20)
    room.learners[0].update = lambda: (_ for _ in ()).throw(KeyboardInterrupt)  # type: ignore[method-assign]
    with room.runner as runner:
        with pytest.raises(KeyboardInterrupt):
            runner.run(episodes=1)
        assert not runner.is_open
    assert room.learners[0].closed


def test_what_a_learner_raises_comes_out() -> None:
    room = Room(length=20)
    room.learners[0].observe = lambda transition: 1 / 0  # type: ignore[method-assign,assignment]
    with pytest.raises(ZeroDivisionError):
        room.runner.run(episodes=1)


def make(**terms: Any) -> AsyncRunner:
    given = {"backend": "virtual", "latency": 0.01, "make_learner": Drawing, **terms}
    return AsyncRunner(RecordingEnv, Reading, 1, 60, **given)


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({}, "learner_latency must be given where learners work on the virtual clock, .* got None"),
        ({"learner_latency": -1}, "learner_latency must be .*got -1"),
        ({"learner_latency": "slow"}, "learner_latency must be .*got 'slow'"),
        (
            {"learner_latency": 0.0},
            "learner_latency must be > 0 where updates_per_transition is None or infinite, .* got 0.0",
        ),
        ({"learner_latency": Constant(0)}, "learner_latency must be > 0 where updates_per_transition is None"),
        ({"learner_latency": 0.1, "make_learner": None}, "learner_latency=0.1 needs a learner: give make_learner"),
        ({"learner_latency": 0.1, "backend": "process"}, "learner_latency=0.1 needs backend='virtual', got backend='p"),
    ],
)
def test_a_latency_of_updates_that_cannot_be_is_refused_in_a_sentence(terms: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}") as error:
        make(**terms)
    assert "\n" not in str(error.value)


def test_updates_that_take_no_time_are_allowed_where_they_are_counted() -> None:
    room = Room(length=10, learner_latency=0.0, updates_per_transition=1.0)
    assert room.runner.run(episodes=1).updates == 8
    assert room.versions == [0, 0, 0, 1, 2, 3, 4, 5, 6, 7]


def test_a_policy_that_cannot_load_weights_is_refused() -> None:
    with pytest.raises(ValueError, match="a policy needs load_weights"):
        terms: dict[str, Any] = {"backend": "virtual", "latency": 0.01, "make_learner": Drawing}
        terms |= {"learner_latency": 0.01}
        AsyncRunner(RecordingEnv, lambda: lambda observation: 1, 1, 60, **terms)


@pytest.mark.parametrize("learners", [1, 2, 5])
def test_all_learners_observe_every_transition_and_owe_the_updates_together(learners: int) -> None:
    room = Room(length=200, learners=learners, learner_latency=0.5 * MS, updates_per_transition=0.5)
    report = room.runner.run(episodes=1)
    seen = room.learners[0].seen
    assert seen == [float(frame) for frame in range(len(seen))]
    assert all(learner.seen == seen for learner in room.learners)
    assert 0.5 * len(seen) <= report.updates <= 0.5 * len(seen) + learners
    assert {learner.updates for learner in room.learners} <= {
        report.updates // learners,
        report.updates // learners + 1,
    }

"""Prioritised replay against a slow reference, and how often it draws what.

Set HYPOTHESIS_CASES to try more or fewer sequences of operations than the 25 of every day.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box
from hypothesis import given, settings
from hypothesis import strategies as st

from async_wrappers.agents.replay.replay import Replay, create_replay
from tests.contracts.replay_contract import (
    SPACE,
    Batch,
    Config,
    Episode,
    Oracle,
    ReplayContract,
    Transition,
    assert_same_transition,
    configs,
    some_stream,
    streams,
    transitions,
)

CASES = int(os.environ.get("HYPOTHESIS_CASES", "25"))
Sampling = Literal["stratified", "iid"]


def prioritized(
    config: Config,
    *,
    space: gym.Space[Any] = SPACE,
    alpha: float = 0.7,
    beta: float = 0.6,
    **arguments: Any,
) -> Replay:
    """A replay of the oracle's observations."""
    return create_replay(
        space,
        extras=config.extras,
        selector="prioritized",
        capacity=config.capacity,
        stack_size=config.stack_size,
        update_horizon=config.update_horizon,
        gamma=config.gamma,
        discount_by=config.discount_by,
        action_window=config.action_window,
        priority_exponent=alpha,
        importance_exponent=beta,
        **arguments,
    )


def filled(stream: list[Transition], **arguments: Any) -> Replay:
    """A replay, one step, no stack, that has observed a stream."""
    replay = prioritized(Config(), **arguments)
    for transition in stream:
        replay.observe(transition)
    return replay


def probabilities(replay: Replay) -> dict[int, float]:
    """P(i) of every transition that comes up in many draws, by its index."""
    batch = replay.sample(4096)
    return dict(zip(batch["index"].tolist(), batch["probability"].tolist(), strict=True))


class TestPrioritizedKeepsTheContract(ReplayContract):
    batch_keys = ReplayContract.batch_keys | {"probability", "weight"}

    def make_replay(self, config: Config, **arguments: Any) -> Replay:
        return prioritized(config, **arguments)

    def learn(self, replay: Replay) -> Batch | None:
        if not len(replay):
            return None
        batch = replay.sample(4)
        replay.set_priorities(batch["index"], batch["action"] % 5 + 0.25)
        return batch


@dataclass
class Slow:
    """Prioritised replay as its paper defines it: lists, a sum over everything at every draw."""

    config: Config
    alpha: float
    beta: float
    sampling: Sampling
    oracle: Oracle = field(init=False)
    priority: dict[int, float] = field(default_factory=dict)
    largest: float = 1.0

    def __post_init__(self) -> None:
        self.oracle = Oracle(self.config)
        self.rng = np.random.Generator(np.random.PCG64(0))

    def observe(self, transition: Transition) -> None:
        """What becomes valid has the largest priority so far; what is no longer valid has none."""
        self.oracle.observe(transition)
        valid = self.oracle.valid()
        self.priority = {slot: self.priority.get(slot, self.largest) for slot in valid}

    def set_priorities(self, index: list[int], priority: list[float]) -> None:
        """One after the other; those of slots that are gone only count for the largest."""
        for slot, value in zip(index, priority, strict=True):
            if slot in self.priority:
                self.priority[slot] = value
            self.largest = max(self.largest, value)

    def sample(self, batch_size: int) -> tuple[list[int], list[float], list[float]]:
        """Indexes, probabilities and weights; the ring is walked from its first place to its last."""
        slots = sorted(self.priority, key=lambda slot: slot % self.config.capacity)
        value = {slot: self.priority[slot] ** self.alpha for slot in slots}
        total = sum(value.values())
        index = []
        for i, share in enumerate(self.rng.random(batch_size).tolist()):
            mass = total * ((i + share) / batch_size if self.sampling == "stratified" else share)
            for slot in slots:
                mass -= value[slot]
                if mass < 0.0:
                    break
            index.append(slot)
        probability = [value[slot] / total for slot in index]
        weight = [(len(slots) * p) ** -self.beta for p in probability]
        return index, probability, [w / max(weight) for w in weight]


@st.composite
def operations(draw: st.DrawFn, transitions_: list[Transition]) -> list[Any]:
    """The transitions in turn, with draws and new priorities of a recent or an old batch in between."""
    found: list[Any] = []
    for transition in transitions_:
        found.append(("observe", transition))
        for _ in range(draw(st.integers(0, 2))):
            if draw(st.booleans()):
                found.append(("sample", draw(st.integers(1, 6))))
            else:
                priority = st.sampled_from([0.0, 0.125, 0.5, 1.0, 1.75, 3.0, 40.0])
                found.append(("set", draw(st.integers(1, 4)), draw(st.lists(priority, min_size=6, max_size=6))))
    return found


class TestAgainstTheSlowReference:
    @given(
        configs,
        streams(),
        st.sampled_from([0.0, 0.5, 0.7, 1.0]),
        st.sampled_from([0.0, 0.4, 1.0]),
        st.sampled_from(["stratified", "iid"]),
        st.data(),
    )
    @settings(max_examples=CASES, deadline=None)
    def test_same_draws_probabilities_and_weights(
        self,
        config: Config,
        stream: list[Transition],
        alpha: float,
        beta: float,
        sampling: Sampling,
        data: st.DataObject,
    ) -> None:
        replay, slow = (
            prioritized(config, alpha=alpha, beta=beta, sampling=sampling),
            Slow(config, alpha, beta, sampling),
        )
        batches: list[list[int]] = []
        for name, *arguments in data.draw(operations(stream)):
            if name == "observe":
                replay.observe(arguments[0])
                slow.observe(arguments[0])
                assert len(replay) == len(slow.priority)
            elif name == "set" and batches:
                index = batches[-min(arguments[0], len(batches))]  # perhaps overwritten since, and with repeats
                replay.set_priorities(np.array(index), np.array(arguments[1][: len(index)]))
                slow.set_priorities(index, arguments[1][: len(index)])
            elif name == "sample" and any(p**alpha for p in slow.priority.values()):
                batches.append(self._compare(replay, slow, arguments[0]))

    def _compare(self, replay: Replay, slow: Slow, batch_size: int) -> list[int]:
        batch = replay.sample(batch_size)
        index, probability, weight = slow.sample(batch_size)
        assert batch["index"].tolist() == index
        np.testing.assert_allclose(batch["probability"], probability, rtol=1e-12)
        np.testing.assert_allclose(batch["weight"], weight, rtol=1e-6)
        expected = slow.oracle.valid()
        for row, slot in enumerate(index):
            assert_same_transition(batch, row, expected[slot])
        return index


class TestFrequencies:
    """Many draws; the statistic of right frequencies has mean `freedom` and variance 2 `freedom`."""

    def setup_method(self) -> None:
        self.replay: dict[Sampling, Replay] = {}
        self.expected: dict[int, float] = {}
        stream = some_stream(episodes=30)
        for sampling in ("stratified", "iid"):
            replay = filled(stream, sampling=sampling, alpha=0.6, seed=5)
            slots = replay.valid_slots()
            priority = np.random.default_rng(3).gamma(0.5, size=len(slots)) + 0.01
            replay.set_priorities(slots, priority)
            value = priority**0.6
            self.expected = dict(zip(slots.tolist(), (value / value.sum()).tolist(), strict=True))
            self.replay[sampling] = replay

    def _chi_square(self, counts: np.ndarray, draws: int) -> float:
        mean = draws * np.array(list(self.expected.values()))
        assert mean.min() > 100
        return float(((counts - mean) ** 2 / mean).sum())

    def _count(self, index: np.ndarray) -> np.ndarray:
        slots = np.array(list(self.expected))
        place = np.searchsorted(slots, index)
        assert (slots[place] == index).all()
        return np.bincount(place, minlength=len(slots))

    def test_independent_draws_come_up_as_often_as_their_priorities_say(self) -> None:
        counts = sum(self._count(self.replay["iid"].sample(10_000)["index"]) for _ in range(100))
        freedom = len(self.expected) - 1
        assert abs(self._chi_square(counts, 1_000_000) - freedom) < 4.0 * np.sqrt(2.0 * freedom)

    def test_stratified_draws_come_up_more_evenly_than_that(self) -> None:
        counts = sum(self._count(self.replay["stratified"].sample(32)["index"]) for _ in range(12_000))
        freedom = len(self.expected) - 1
        chi_square = self._chi_square(counts, 384_000)
        assert 0.2 * freedom < chi_square < freedom

    def test_each_of_the_equal_ranges_is_drawn_from_once(self) -> None:
        share = np.array(list(self.expected.values()))
        for batch_size in (32, 500):
            counts = self._count(self.replay["stratified"].sample(batch_size)["index"])
            assert (np.abs(counts - batch_size * share) < 2.0).all()


class TestPriorities:
    @pytest.mark.parametrize(
        ("alpha", "beta", "probability", "weight"),
        [
            (1.0, 1.0, [1 / 22, 4 / 22, 16 / 22, 1 / 22], [1, 1 / 4, 1 / 16, 1]),
            (0.5, 1.0, [1 / 8, 2 / 8, 4 / 8, 1 / 8], [1, 1 / 2, 1 / 4, 1]),
            (1.0, 0.5, [1 / 22, 4 / 22, 16 / 22, 1 / 22], [1, 1 / 2, 1 / 4, 1]),
            (0.0, 1.0, [1 / 4] * 4, [1] * 4),
            (1.0, 0.0, [1 / 22, 4 / 22, 16 / 22, 1 / 22], [1] * 4),
        ],
    )
    def test_a_table_worked_by_hand(
        self, alpha: float, beta: float, probability: list[float], weight: list[float]
    ) -> None:
        replay = filled(some_stream(episodes=1, length=4), alpha=alpha, beta=beta)
        replay.set_priorities([0, 1, 2], [1.0, 4.0, 16.0])  # the fourth keeps the 1 that it came with
        batch = replay.sample(1000)
        assert set(batch["index"].tolist()) == {0, 1, 2, 3}
        np.testing.assert_allclose(batch["probability"], np.array(probability)[batch["index"]], rtol=1e-12)
        np.testing.assert_allclose(batch["weight"], np.array(weight)[batch["index"]], rtol=1e-6)
        assert (batch["probability"].dtype, batch["weight"].dtype) == (np.float64, np.float32)

    def test_weights_are_divided_by_the_largest_of_their_batch(self) -> None:
        replay = filled(some_stream(episodes=1), alpha=1.0, beta=1.0)
        replay.set_priorities(np.arange(7), [0.0, 0.0, 0.0, 0.0, 0.0, 5.0, 0.0])
        assert replay.sample(3)["weight"].tolist() == [1.0, 1.0, 1.0]

    def test_a_batch_may_have_an_exponent_of_its_own(self) -> None:
        replay = filled(some_stream(episodes=1, length=2), alpha=1.0, beta=0.0)
        replay.set_priorities([0, 1], [1.0, 4.0])
        assert set(replay.sample(100)["weight"].tolist()) == {1.0}
        assert set(replay.sample(100, importance_exponent=0.5)["weight"].tolist()) == {1.0, 0.5}
        assert set(replay.sample(100)["weight"].tolist()) == {1.0}
        with pytest.raises(ValueError, match=r"importance_exponent must lie in \[0, 1\], got 1\.5"):
            replay.sample(100, importance_exponent=1.5)

    def test_what_is_new_has_the_largest_priority_so_far(self) -> None:
        stream = some_stream(episodes=2, length=2)  # slots 0 1 (2) 3 4 (5)
        replay = filled(stream[:2], alpha=1.0)
        assert probabilities(replay) == {0: 0.5, 1: 0.5}
        replay.set_priorities([0, 1], [3.0, 0.5])
        replay.set_priorities([0], [1.0])
        for transition in stream[2:]:
            replay.observe(transition)
        assert probabilities(replay) == pytest.approx({0: 1 / 7.5, 1: 0.5 / 7.5, 3: 3 / 7.5, 4: 3 / 7.5})

    def test_priorities_below_one_leave_the_largest_at_one(self) -> None:
        stream = some_stream(episodes=2, length=1)  # slots 0 (1) 2 (3)
        replay = filled(stream[:1], alpha=1.0)
        replay.set_priorities([0], [0.25])
        replay.observe(stream[1])
        assert probabilities(replay) == pytest.approx({0: 0.2, 2: 0.8})

    @pytest.mark.parametrize("steps", [3, 10])
    def test_an_overwritten_slot_does_not_get_the_old_transitions_priority(self, steps: int) -> None:
        stream = list(transitions([Episode([0.0] * 20, [1] * 20, "running")]))
        replay = prioritized(Config(capacity=8), alpha=1.0)
        for transition in stream[:8]:
            replay.observe(transition)
        index = replay.valid_slots()  # 0 to 6
        for transition in stream[8 : 8 + steps]:
            replay.observe(transition)
        replay.set_priorities(index, [100.0] * 7)
        valid = replay.valid_slots().tolist()
        value = {slot: 100.0 if slot < 7 else 1.0 for slot in valid}
        expected = {slot: each / sum(value.values()) for slot, each in value.items()}
        assert probabilities(replay) == pytest.approx(expected)

    def test_a_slot_whose_stack_is_overwritten_stays_out(self) -> None:
        stream = list(transitions([Episode([0.0] * 20, [1] * 20, "running")]))
        replay = prioritized(Config(capacity=10, stack_size=4), alpha=1.0)
        for transition in stream[:10]:
            replay.observe(transition)
        index = replay.valid_slots()
        for transition in stream[10:12]:
            replay.observe(transition)
        replay.set_priorities(index, np.full(len(index), 9.0))  # slots 2, 3 and 4 live, but 3 and 4 lack a stack
        assert set(probabilities(replay)) == set(replay.valid_slots().tolist()) == set(range(5, 11))

    def test_priority_zero_is_never_drawn(self) -> None:
        replay = filled(some_stream(episodes=1), alpha=0.5)
        replay.set_priorities(np.arange(7), [0.0, 1.0, 0.0, 0.0, 1e-300, 2.0, 0.0])
        assert set(replay.sample(10_000)["index"].tolist()) == {1, 5}

    def test_nothing_can_be_drawn_when_every_priority_is_zero(self) -> None:
        replay = filled(some_stream(episodes=1), alpha=0.5)
        replay.set_priorities(np.arange(7), np.zeros(7))
        with pytest.raises(ValueError, match="every priority is 0, so nothing can be drawn, add a small constant"):
            replay.sample()

    def test_exponent_zero_draws_even_priority_zero(self) -> None:
        replay = filled(some_stream(episodes=1), alpha=0.0)
        replay.set_priorities(np.arange(7), np.zeros(7))
        assert set(replay.sample(1000)["probability"].tolist()) == {1 / 7}

    def test_of_an_index_given_twice_the_last_priority_stays(self) -> None:
        replay = filled(some_stream(episodes=1, length=2), alpha=1.0)
        replay.set_priorities([0, 1, 0], [9.0, 1.0, 3.0])
        assert probabilities(replay) == {0: 0.75, 1: 0.25}

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), -0.5, 1e300])
    def test_a_wrong_priority_is_named_and_changes_nothing(self, value: float) -> None:
        replay = filled(some_stream(episodes=1, length=3), alpha=1.0)
        before = probabilities(replay)
        message = f"priority must be finite, >= 0 and <= 1e+290, got {value}"
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            replay.set_priorities([0, 1, 2], [5.0, value, 2.0])
        assert probabilities(replay) == before

    @pytest.mark.parametrize(
        ("index", "priority", "message"),
        [
            ([0, -1], [1.0, 2.0], r"index must be a batch's, in \[0, 4\), got -1"),
            ([0, 4], [1.0, 2.0], r"index must be a batch's, in \[0, 4\), got 4"),
            ([0, 1], [2.0], r"priority must have the shape \[B\] of index, \(2,\), got \(1,\)"),
            ([[0]], [[2.0]], r"priority must have the shape \[B\] of index, \(1, 1\), got \(1, 1\)"),
        ],
    )
    def test_an_index_that_fits_no_batch_changes_nothing(self, index: Any, priority: Any, message: str) -> None:
        replay = filled(some_stream(episodes=1, length=3), alpha=1.0)
        with pytest.raises(ValueError, match=message):
            replay.set_priorities(index, priority)
        assert set(probabilities(replay).values()) == {1 / 3}

    def test_an_empty_batch_of_priorities_changes_nothing(self) -> None:
        replay = filled(some_stream(episodes=1, length=3), alpha=1.0)
        replay.set_priorities([], [])
        assert set(probabilities(replay).values()) == {1 / 3}

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"alpha": -0.1}, r"priority_exponent must lie in \[0, 1\], got -0\.1"),
            ({"alpha": float("nan")}, r"priority_exponent must lie in \[0, 1\], got nan"),
            ({"beta": 1.1}, r"importance_exponent must lie in \[0, 1\], got 1\.1"),
            ({"sampling": "greedy"}, "sampling must be 'stratified' or 'iid', got 'greedy'"),
            ({"batch_size": 0}, "batch_size must be >= 1 transition, got 0"),
        ],
    )
    def test_wrong_arguments_are_refused(self, arguments: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            prioritized(Config(), **arguments)

    def test_bytes(self) -> None:
        replay = create_replay(Box(0, 255, (84, 84), np.uint8), selector="prioritized", capacity=10_000, stack_size=4)
        assert replay.nbytes * 100 <= 7.2e9


class TestFiles:
    def test_the_largest_priority_is_kept(self, tmp_path: Path) -> None:
        stream = some_stream(episodes=2, length=1)
        replay, resumed = filled(stream[:1], alpha=1.0), prioritized(Config(), alpha=1.0)
        replay.set_priorities([0], [8.0])
        replay.set_priorities([0], [2.0])
        replay.save(tmp_path, 0)
        resumed.load(tmp_path, 0)
        resumed.observe(stream[1])
        assert probabilities(resumed) == {0: 0.2, 2: 0.8}

    def test_priorities_of_old_slots_are_written_at_each_save(self, tmp_path: Path) -> None:
        replay, resumed = filled(some_stream(episodes=1, length=2), alpha=1.0), prioritized(Config(), alpha=1.0)
        for number, priority in enumerate(([1.0, 3.0], [4.0, 1.0])):
            replay.set_priorities([0, 1], priority)
            replay.save(tmp_path, number)
        for number, expected in enumerate(({0: 0.25, 1: 0.75}, {0: 0.8, 1: 0.2})):
            resumed.load(tmp_path, number)
            assert probabilities(resumed) == expected
        assert [len(json.loads((tmp_path / f"index_{n}.json").read_text())["segments"]) for n in (0, 1)] == [1, 1]

    @pytest.mark.parametrize(
        ("saved", "loaded", "name"),
        [
            ({"alpha": 0.5}, {"alpha": 1.0}, "priority_exponent must be as in the saved replay, 0.5, got 1.0"),
            ({"beta": 0.5}, {"beta": 1.0}, "importance_exponent must be as in the saved replay, 0.5, got 1.0"),
            ({}, {"sampling": "iid"}, "sampling must be as in the saved replay, 'stratified', got 'iid'"),
        ],
    )
    def test_files_of_other_exponents_are_refused(
        self, tmp_path: Path, saved: dict[str, Any], loaded: dict[str, Any], name: str
    ) -> None:
        filled(some_stream(), **saved).save(tmp_path, 0)
        with pytest.raises(ValueError, match=name):
            prioritized(Config(), **loaded).load(tmp_path, 0)

    def test_files_of_another_kind_of_replay_are_refused(self, tmp_path: Path) -> None:
        uniform = create_replay(SPACE, capacity=1000, gamma=0.9)
        for transition in some_stream():
            uniform.observe(transition)
        uniform.save(tmp_path / "uniform", 0)
        filled(some_stream()).save(tmp_path / "prioritized", 0)
        with pytest.raises(ValueError, match=r"saved replay must be of the same kind, but .* priority_exponent, sampl"):
            prioritized(Config()).load(tmp_path / "uniform", 0)
        with pytest.raises(ValueError, match=r"saved replay must be of the same kind, .* priority_exponent, sampling"):
            uniform.load(tmp_path / "prioritized", 0)
        assert uniform.add_count == 70

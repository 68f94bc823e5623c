"""Epsilon against a table worked by hand, and random draws that depend on nothing but their key."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

import gin
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import async_wrappers.agents.value_based.dqn  # noqa: F401 - the gin names
from async_wrappers.agents.acting.decisions import Decisions
from async_wrappers.agents.acting.exploration import (
    DecisionRandom,
    Epsilon,
    has_warmup,
    identity_epsilon,
    linearly_decaying_epsilon,
    per_actor_epsilon,
    zero_epsilon,
)
from async_wrappers.policy import Decision

KEYS = st.tuples(st.integers(0, 2**40), st.integers(0, 2**40), st.booleans())
Key = tuple[int, int, bool]


class TestEpsilon:
    @pytest.mark.parametrize(
        ("frame", "expected"),
        [(0, 1.0), (50, 1.0), (100, 1.0), (300, 0.8), (600, 0.5), (1000, 0.1), (1100, 0.0), (9999, 0.0)],
    )
    def test_falls_to_zero(self, frame: int, expected: float) -> None:
        assert linearly_decaying_epsilon(1000, frame, 100, 0.0) == pytest.approx(expected, abs=1e-12)

    @pytest.mark.parametrize(
        ("frame", "expected"), [(0, 1.0), (80_000, 1.0), (580_000, 0.55), (1_080_000, 0.1), (2_000_000, 0.1)]
    )
    def test_falls_to_a_tenth(self, frame: int, expected: float) -> None:
        assert linearly_decaying_epsilon(1_000_000, frame, 80_000, 0.1) == pytest.approx(expected, abs=1e-12)

    @pytest.mark.parametrize(("frame", "expected"), [(0, 1.0), (9, 1.0), (10, 0.2), (11, 0.2)])
    def test_without_a_period_falls_at_once(self, frame: int, expected: float) -> None:
        assert linearly_decaying_epsilon(0, frame, 10, 0.2) == expected

    def test_negative_period_is_refused(self) -> None:
        with pytest.raises(ValueError, match="decay_period must be >= 0 frames, got -1"):
            linearly_decaying_epsilon(-1, 0, 0, 0.1)

    @given(st.integers(0, 1000), st.integers(0, 5000), st.integers(0, 1000), st.floats(0.0, 1.0))
    def test_stays_in_its_range_and_never_rises(self, period: int, frame: int, warmup: int, epsilon: float) -> None:
        now = linearly_decaying_epsilon(period, frame, warmup, epsilon)
        later = linearly_decaying_epsilon(period, frame + 1, warmup, epsilon)
        assert epsilon <= later <= now + 1e-12
        assert now <= 1.0 + 1e-12

    def test_identity_and_zero(self) -> None:
        assert [identity_epsilon(10, frame, 5, 0.3) for frame in (0, 7, 99)] == [0.3, 0.3, 0.3]
        assert [zero_epsilon(10, frame, 5, 0.3) for frame in (0, 7, 99)] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("scope", ["", "slow/"])
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("linearly_decaying_epsilon", True),
        ("identity_epsilon", False),
        ("zero_epsilon", False),
        ("per_actor_epsilon", False),
    ],
)
def test_gins_references_to_a_schedule_tell_whether_it_has_a_warmup(name: str, expected: bool, scope: str) -> None:
    gin.clear_config()
    gin.parse_config(f"DQNAgent.epsilon_fn = @{scope}{name}")
    schedule = gin.get_bindings("DQNAgent")["epsilon_fn"]
    gin.clear_config()
    assert has_warmup(schedule) == has_warmup(partial(schedule, 10)) == expected


def test_a_schedule_of_the_users_own_is_taken_to_have_a_warmup() -> None:
    assert has_warmup(lambda decay, frame, warmup, final: final)


class TestPerActorEpsilon:
    @pytest.mark.parametrize(
        ("actor", "actors", "expected"),
        [(0, 1, 0.4), (0, 8, 0.4), (1, 8, 0.4**2), (7, 8, 0.4**8), (1, 3, 0.4**4.5), (2, 3, 0.4**8)],
    )
    def test_table(self, actor: int, actors: int, expected: float) -> None:
        for frame in (0, 10**6):
            assert per_actor_epsilon(10, frame, 5, 0.01, actor, actors) == pytest.approx(expected)

    def test_it_falls_from_actor_to_actor(self) -> None:
        epsilons = [per_actor_epsilon(0, 0, 0, 0.0, actor, 20) for actor in range(20)]
        assert epsilons == sorted(epsilons, reverse=True)

    def test_wrong_arguments_are_refused(self) -> None:
        with pytest.raises(ValueError, match=r"^actor must lie in \[0, 2\), one for each of the actors, got 2"):
            per_actor_epsilon(0, 0, 0, 0.0, 2, 2)
        with pytest.raises(ValueError, match=r"^base must lie in \[0, 1\], got 2"):
            per_actor_epsilon(0, 0, 0, 0.0, base=2)


class TestDecisionRandom:
    @given(st.integers(0, 2**70), st.lists(KEYS, min_size=1, max_size=8), st.randoms(use_true_random=False))
    def test_draws_do_not_depend_on_the_order(self, seed: int, keys: list[Key], shuffler: Random) -> None:
        random = DecisionRandom(seed)
        expected = {key: random.uniform_and_action(18, *key) for key in keys}
        shuffled = list(keys)
        shuffler.shuffle(shuffled)
        assert {key: random.uniform_and_action(18, *key) for key in shuffled} == expected
        assert {key: DecisionRandom(seed).uniform_and_action(18, *key) for key in keys} == expected

    @given(KEYS, KEYS, st.integers(0, 9), st.integers(0, 9))
    def test_another_key_or_seed_draws_otherwise(self, key: Key, other: Key, seed: int, other_seed: int) -> None:
        first = DecisionRandom(seed).draw(*key).integers(2**63, size=4)
        second = DecisionRandom(other_seed).draw(*other).integers(2**63, size=4)
        assert (first == second).all() == ((key, seed) == (other, other_seed))

    @pytest.mark.parametrize("other", [(4, 5, False), (3, 6, False), (3, 5, True), (5, 3, False)])
    def test_each_part_of_the_key_matters(self, other: Key) -> None:
        random = DecisionRandom(0)
        assert random.uniform_and_action(18, 3, 5, False)[0] != random.uniform_and_action(18, *other)[0]

    def test_unread_and_half_read_streams_leave_no_trace(self) -> None:
        random = DecisionRandom(1)
        expected = random.uniform_and_action(7, 2, 3, False)
        # A 32-bit draw leaves the other half of a word behind in the generator.
        random.draw(9, 9, True).integers(5, size=3, dtype=np.uint32)
        assert random.uniform_and_action(7, 2, 3, False) == expected

    def test_neighbouring_streams_do_not_overlap(self) -> None:
        random = DecisionRandom(0)
        draws = [random.draw(episode, start, False).integers(2**63, size=50) for episode in (0, 1) for start in (0, 1)]
        assert len(np.unique(draws)) == 200

    def test_is_philox_at_the_documented_counter(self) -> None:
        key = np.random.SeedSequence(11).generate_state(2, np.uint64)
        expected = np.random.Generator(np.random.Philox(key=key, counter=[0, 5, 3, 1])).random(6)
        np.testing.assert_array_equal(DecisionRandom(11).draw(3, 5, True).random(6), expected)

    @given(
        st.integers(0, 2**70),
        st.one_of(st.integers(1, 40), st.integers(2**31, 2**33), st.integers(1, 2**63 - 1)),
        st.lists(
            st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1), st.booleans(), st.integers(0, 2**32 - 1)),
            max_size=8,
        ),
    )
    def test_many_decisions_at_once_draw_as_one_by_one(
        self, seed: int, num_actions: int, keys: list[tuple[int, int, bool, int]]
    ) -> None:
        random = DecisionRandom(seed)
        episodes, starts, modes, env_ids = np.array(keys, np.int64).reshape(-1, 4).T
        drawn = random.uniforms_and_actions(num_actions, episodes, starts, modes == 1, env_ids)
        assert list(zip(*(column.tolist() for column in drawn), strict=True)) == [
            random.uniform_and_action(num_actions, *key) for key in keys
        ]

    def test_environment_0_draws_as_an_environment_alone(self) -> None:
        random = DecisionRandom(3)
        assert random.uniform_and_action(7, 2, 5, True, 0) == random.uniform_and_action(7, 2, 5, True)
        drawn = {random.uniform_and_action(7, 2, 5, mode, env_id) for env_id in range(50) for mode in (False, True)}
        assert len(drawn) == 100

    @pytest.mark.parametrize("eval_mode", [False, True])
    def test_draws_over_neighbouring_keys_are_uniform(self, eval_mode: bool) -> None:
        random = DecisionRandom(2)
        keys = [(episode, start) for episode in range(40) for start in range(100)]
        draws = [random.uniform_and_action(10, *key, eval_mode) for key in keys]
        tenths = np.array([[int(10 * uniform), action] for uniform, action in draws])
        for column in tenths.T:
            assert chi_square(np.bincount(column, minlength=10)) < 33.7  # 9 degrees of freedom, p = 1e-4
        cells = tenths[:, 0] * 10 + tenths[:, 1]
        assert chi_square(np.bincount(cells, minlength=100)) < 160.1  # 99 degrees of freedom, p = 1e-4

    def test_bad_arguments_are_refused(self) -> None:
        random = DecisionRandom(0)
        with pytest.raises(ValueError, match="seed must be >= 0, got -1"):
            DecisionRandom(-1)
        with pytest.raises(ValueError, match=r"episode must lie in \[0, 2\*\*64\), got -1"):
            random.draw(-1, 0, False)
        with pytest.raises(ValueError, match="start must lie in"):
            random.draw(0, 2**64, False)
        with pytest.raises(ValueError, match="num_actions must be >= 1, got 0"):
            random.uniform_and_action(0, 0, 0, False)
        some = np.arange(2)
        with pytest.raises(ValueError, match="num_actions must be >= 1, got 0"):
            random.uniforms_and_actions(0, some, some, False, some)
        with pytest.raises(ValueError, match=r"env_ids must lie in \[0, 2\*\*32\), got 0 to 4294967296"):
            random.uniforms_and_actions(2, some, some, False, some * 2**32)


class TestEpsilonOfRows:
    @given(
        st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.integers(0, 3)), min_size=1, max_size=12),
        st.sampled_from([per_actor_epsilon, identity_epsilon, linearly_decaying_epsilon]),
        st.booleans(),
    )
    def test_rows_have_the_epsilon_of_their_decision(
        self, rows: list[tuple[int, bool, int]], schedule: Any, by_environment: bool
    ) -> None:
        epsilon = Epsilon(schedule, 4, 1, 0.1, 0.01, per_actor=schedule is per_actor_epsilon)
        if by_environment:
            epsilon = epsilon.of_environments(4)
        decisions = [Decision(0, 0, frame, mode, env_id) for frame, mode, env_id in rows]
        assert epsilon.of_rows(Decisions.of(decisions)).tolist() == [epsilon(decision) for decision in decisions]

    def test_each_environment_is_an_actor_of_ape_x(self) -> None:
        epsilon = Epsilon(per_actor_epsilon, 0, 0, 0.0, 0.0, per_actor=True).of_environments(20)
        decisions = Decisions.of([Decision(0, 0, 0, False, env_id) for env_id in range(20)])
        np.testing.assert_allclose(epsilon.of_rows(decisions), 0.4 ** np.linspace(1, 8, 20))

    def test_a_schedule_is_called_once_for_each_frame(self) -> None:
        asked: list[int] = []

        def schedule(decay_period: int, frame: int, warmup_frames: int, epsilon: float) -> float:
            asked.append(frame)
            return frame / 10

        epsilon = Epsilon(schedule, 0, 0, 0.0, 0.5)
        decisions = [Decision(0, 0, frame, frame == 9, 5) for frame in (3, 9, 1, 3, 1)]
        assert epsilon.of_rows(Decisions.of(decisions)).tolist() == [0.3, 0.5, 0.1, 0.3, 0.1]
        assert sorted(asked) == [1, 3]


def chi_square(counts: npt.NDArray[np.int64]) -> float:
    """The chi-square statistic of `counts` against equal ones."""
    mean = counts.mean()
    return float(((counts - mean) ** 2 / mean).sum())

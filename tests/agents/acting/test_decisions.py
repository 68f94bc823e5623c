"""Random draws depend on nothing but their key."""

from __future__ import annotations

from random import Random

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_wrappers.agents.acting.decisions import DecisionRandom

KEYS = st.tuples(st.integers(0, 2**40), st.integers(0, 2**40), st.booleans())
Key = tuple[int, int, bool]
DECISION = st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1), st.booleans(), st.integers(0, 2**32 - 1))


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
        # Few decisions are drawn for one by one, more of them at once.
        st.one_of(st.lists(DECISION, max_size=3), st.lists(DECISION, min_size=17, max_size=20)),
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


def chi_square(counts: npt.NDArray[np.int64]) -> float:
    """The chi-square statistic of `counts` against equal ones."""
    mean = counts.mean()
    return float(((counts - mean) ** 2 / mean).sum())

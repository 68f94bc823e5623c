"""Epsilon against a table worked by hand, one decision at a time and many."""

from __future__ import annotations

from functools import partial
from typing import Any

import gin
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import async_wrappers.agents.families.value_based.dqn  # noqa: F401 - the gin names
from async_wrappers.agents.acting.decisions import Decisions
from async_wrappers.agents.acting.exploration import (
    Epsilon,
    has_warmup,
    identity_epsilon,
    linearly_decaying_epsilon,
    per_actor_epsilon,
    zero_epsilon,
)
from async_wrappers.policy import Decision


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

"""Scores, and intervals whose bounds are known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_wrappers.agents.experiment.evaluate import (
    STATISTICS,
    bootstrap_interval,
    difference_interval,
    evaluate,
    interquartile_mean,
    words_of_equal_episodes,
)
from async_wrappers.agents.experiment.progress import different_episodes
from async_wrappers.agents.play.play import EpisodeResult, Phase, environment_seed
from tests.worlds.drifting_env import DriftingEnv
from tests.worlds.lives_env import LivesEnv
from tests.worlds.scripted_agent import ScriptedAgent

SCORES = st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=20)


class TestInterquartileMean:
    @pytest.mark.parametrize(
        ("scores", "value"),
        [([5.0], 5.0), ([1.0, 2.0, 9.0], 4.0), ([0.0, 1.0, 3.0, 100.0], 2.0), ([9, 0, 1, 2, 3, 4, 5, 100], 3.5)],
    )
    def test_the_interquartile_mean_leaves_out_a_quarter_at_each_end(self, scores: list[float], value: float) -> None:
        assert interquartile_mean(scores) == value

    def test_it_is_taken_along_the_last_axis(self) -> None:
        assert interquartile_mean([[0.0, 1.0, 3.0, 100.0], [4.0, 4.0, 4.0, 4.0]]).tolist() == [2.0, 4.0]

    def test_intervals_are_those_of_the_statistic(self) -> None:
        scores, iqm = [*[1.0] * 15, 1000.0], STATISTICS["iqm"]
        assert bootstrap_interval(scores, iqm) == (1.0, 1.0)
        assert bootstrap_interval(scores)[1] > 100
        low, high = difference_interval([value + 5 for value in scores], scores, iqm)
        assert (low, high) == (5.0, 5.0)


class TestIntervals:
    @pytest.mark.parametrize("scores", [[7.5], [-3.0] * 40])
    def test_constant_scores_leave_no_doubt(self, scores: list[float]) -> None:
        assert bootstrap_interval(scores) == (scores[0], scores[0])
        assert difference_interval(scores, [1.0, 1.0]) == (scores[0] - 1, scores[0] - 1)

    def test_two_scores_are_resampled_into_three_means(self) -> None:
        # 0, 1/2 and 1 with probabilities 1/4, 1/2, 1/4: the 2.5 % and 97.5 % quantiles are the ends.
        assert bootstrap_interval([0.0, 1.0]) == (0.0, 1.0)

    @given(SCORES)
    def test_an_interval_is_the_middle_of_10_000_resamples(self, scores: list[float]) -> None:
        drawn = np.random.default_rng(0).integers(len(scores), size=(10_000, len(scores)))
        expected = np.percentile(np.asarray(scores)[drawn].mean(axis=1), (2.5, 97.5))
        assert bootstrap_interval(scores) == pytest.approx(tuple(expected), rel=1e-12, abs=1e-12)

    def test_many_scores_agree_with_the_normal_interval(self) -> None:
        scores = [float(score) for score in range(100)]
        deviation = math.sqrt((100**2 - 1) / 12) / math.sqrt(100)
        low, high = bootstrap_interval(scores)
        assert low == pytest.approx(49.5 - 1.96 * deviation, abs=0.3)
        assert high == pytest.approx(49.5 + 1.96 * deviation, abs=0.3)

    def test_the_two_sides_of_a_difference_are_resampled_independently(self) -> None:
        scores = [float(score) for score in range(100)]
        deviation = math.sqrt(2 * (100**2 - 1) / 12) / math.sqrt(100)
        low, high = difference_interval([score + 10 for score in scores], scores)
        assert low == pytest.approx(10 - 1.96 * deviation, abs=0.4)
        assert high == pytest.approx(10 + 1.96 * deviation, abs=0.4)

    def test_a_difference_takes_numbers_of_episodes_that_differ(self) -> None:
        low, high = difference_interval([4.0] * 3, [1.0] * 8)
        assert (low, high) == (3.0, 3.0)

    @given(SCORES)
    def test_the_same_scores_always_give_the_same_interval(self, scores: list[float]) -> None:
        assert bootstrap_interval(scores) == bootstrap_interval(list(scores))
        low, high = bootstrap_interval(scores)
        assert min(scores) - 1e-9 <= low <= high <= max(scores) + 1e-9


class TestEvaluate:
    def test_episodes_are_seeded_by_the_runs_seed_and_their_number_alone(self) -> None:
        env, agent = DriftingEnv(), ScriptedAgent()
        first = evaluate(agent, env, 4, seed=9)
        assert [life.seed for life in env.lives] == [environment_seed(9, Phase.FINAL, number) for number in range(4)]
        assert evaluate(ScriptedAgent(), env, 4, seed=9) == first != evaluate(ScriptedAgent(), env, 4, seed=8)

    def test_the_agent_is_in_evaluation(self) -> None:
        agent = ScriptedAgent()
        evaluate(agent, DriftingEnv(), 3, seed=0)
        assert agent.modes == [True] * 3

    def test_scores_and_frames_are_the_environments(self) -> None:
        env = DriftingEnv(lengths=[3, 5])
        episodes = evaluate(ScriptedAgent(), env, 2, seed=0)
        assert [episode.frames for episode in episodes] == [3, 5]
        assert [episode.score for episode in episodes] == [sum(life.rewards) for life in env.lives]

    def test_it_knows_which_episodes_are_one_and_the_same(self) -> None:
        assert different_episodes(evaluate(ScriptedAgent(), DriftingEnv(lengths=[3]), 4, seed=0)) == 4
        same = evaluate(ScriptedAgent(), LivesEnv(), 4, seed=0)
        assert different_episodes(same) == 1
        other = evaluate(ScriptedAgent(1), LivesEnv(), 2, seed=0)  # the same returns and lengths
        assert different_episodes([*same, *other]) == 2
        assert different_episodes([*same, EpisodeResult(1.0, 2)]) is None
        assert words_of_equal_episodes(4, 1, "trained").startswith("trained: 4 episodes, 1 different: the others ")
        assert words_of_equal_episodes(4, 4) == words_of_equal_episodes(4, None) == ""

    def test_the_limit_cuts_every_episode(self) -> None:
        episodes = evaluate(ScriptedAgent(), DriftingEnv(lengths=[20]), 3, seed=0, max_frames=6)
        assert [episode.frames for episode in episodes] == [6, 6, 6]

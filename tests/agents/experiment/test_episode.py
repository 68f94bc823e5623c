"""The loop between an agent and an environment, call by call."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.experiment.episode import Episode, Phase, episode_seed, play_episode
from async_wrappers import RealtimeDelay
from async_wrappers.envs import ClipReward
from tests.worlds.drifting_env import DriftingEnv
from tests.worlds.scripted_agent import ScriptedAgent

TRUNCATED, TERMINATED, BOTH = (False, True), (True, False), (True, True)


def rewards(calls: list[tuple[Any, ...]]) -> list[float]:
    return [call[1] for call in calls if call[0] != "begin"]


class TestTurnBased:
    def test_each_observation_and_reward_is_passed_once_and_in_order(self) -> None:
        env, agent = DriftingEnv(lengths=[4], ends=[TERMINATED]), ScriptedAgent(action=2)
        episode = play_episode(agent, env, seed=7)
        [life] = env.lives
        assert life.seed == 7
        assert life.actions == [2] * 4
        seen = [observation.tolist() for observation in life.observations]
        assert agent.calls == [
            ("begin", seen[0], None),
            ("step", life.rewards[0], seen[1], None),
            ("step", life.rewards[1], seen[2], None),
            ("step", life.rewards[2], seen[3], None),
            ("end", life.rewards[3], True, seen[4], None),
        ]
        assert episode == Episode(sum(life.rewards), 4, actions=4)

    @pytest.mark.parametrize(("end", "terminal"), [(TERMINATED, True), (TRUNCATED, False), (BOTH, True)])
    def test_an_end_is_terminal_if_the_environment_terminated(self, end: tuple[bool, bool], terminal: bool) -> None:
        agent = ScriptedAgent()
        play_episode(agent, DriftingEnv(lengths=[3], ends=[end]), seed=0)
        assert agent.calls[-1][:1] + agent.calls[-1][2:3] == ("end", terminal)

    @pytest.mark.parametrize(
        ("limit", "frames", "terminal"), [(1, 1, False), (4, 4, False), (5, 5, True), (6, 5, True)]
    )
    def test_the_limit_cuts_an_episode_without_ending_it(self, limit: int, frames: int, terminal: bool) -> None:
        env, agent = DriftingEnv(lengths=[5], ends=[TERMINATED]), ScriptedAgent()
        episode = play_episode(agent, env, 0, max_frames=limit)
        [life] = env.lives
        assert (episode.frames, len(life.actions)) == (frames, frames)
        assert agent.calls[-1] == ("end", life.rewards[-1], terminal, life.observations[-1].tolist(), None)


class TestUnderDelay:
    def test_the_report_of_the_very_step_is_passed_along(self) -> None:
        # s = 0 2 4, e = 3 5 7; T = 6
        agent = ScriptedAgent()
        episode = play_episode(agent, RealtimeDelay(DriftingEnv(lengths=[6]), 3, 1, 0), seed=0)
        told = [(call[0], call[-1]["start"], call[-1]["frame"]) for call in agent.calls]
        assert told == [("begin", 0, 0), ("step", 2, 5), ("end", 4, 6)]
        assert episode.frames == 6

    @pytest.mark.parametrize(("limit", "frames"), [(1, 5), (5, 5), (6, 7), (7, 7), (8, 9), (100, 20)])
    def test_the_limit_cuts_at_the_end_of_the_step_that_reaches_it(self, limit: int, frames: int) -> None:
        env, agent = DriftingEnv(lengths=[20], ends=[TERMINATED]), ScriptedAgent()
        episode = play_episode(agent, RealtimeDelay(env, 3, 1, 0), 0, max_frames=limit)
        assert (episode.frames, len(env.lives[0].actions)) == (frames, frames)
        kind, _, terminal, observation, realtime = agent.calls[-1]
        assert (kind, terminal) == ("end", frames == 20)
        assert observation == env.lives[0].observations[realtime["start"]].tolist()

    def test_the_score_is_all_that_the_environment_paid(self) -> None:
        env = DriftingEnv(lengths=[2, 9, 15])
        delayed = RealtimeDelay(env, 4, 2, 1)
        scores = [play_episode(ScriptedAgent(), delayed, seed).score for seed in range(3)]
        assert scores == [sum(life.rewards) for life in env.lives]


class Paying(gym.Wrapper[Any, Any, Any, Any]):
    """Pays ten times as much, so that clipping matters."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, *rest = self.env.step(action)
        return observation, 10 * float(reward), *rest


@pytest.mark.parametrize("limit", [None, 7])
@pytest.mark.parametrize(("delay", "noops"), [(0, 0), (2, 3)])
def test_the_score_is_unclipped_where_the_environment_clips_inside_the_delay(
    delay: int, noops: int, limit: int | None
) -> None:
    env, agent = DriftingEnv(lengths=[12]), ScriptedAgent(action=2)
    episode = play_episode(agent, RealtimeDelay(ClipReward(Paying(env)), delay, noops, 2), 0, limit)
    paid = [10 * reward for reward in env.lives[0].rewards]
    assert episode.score == sum(paid)
    assert sum(rewards(agent.calls)) == sum(max(-1.0, min(1.0, reward)) for reward in paid) != sum(paid)


class TestSeeds:
    @given(st.integers(0, 2**40), st.sampled_from(Phase), st.integers(0, 10**6))
    def test_they_are_ones_that_gymnasium_takes(self, seed: int, phase: Phase, number: int) -> None:
        assert 0 <= episode_seed(seed, phase, number) < 2**31
        assert episode_seed(seed, phase, number) == episode_seed(seed, phase, number)

    def test_runs_phases_and_episodes_have_seeds_of_their_own(self) -> None:
        seeds = [episode_seed(seed, phase, number) for seed in range(10) for phase in Phase for number in range(50)]
        assert len(set(seeds)) == len(seeds)

    def test_they_never_change_between_versions(self) -> None:
        # A run that is resumed with a later version must go on as it would have.
        asked = [(0, Phase.TRAIN, 0), (3, Phase.EVAL, 7), (1, Phase.FINAL, 2)]
        assert [episode_seed(*question) for question in asked] == [821_328_062, 912_422_222, 1_718_757_946]

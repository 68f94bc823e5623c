"""The agents that do not learn."""

from __future__ import annotations

from collections import Counter
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete

from async_wrappers import CommittedPrefix, RealtimeDelay
from async_wrappers.agents.experiment.closing_report import why_no_noop
from async_wrappers.agents.play.turns.agents import Agent
from async_wrappers.agents.play.turns.baselines import NoopAgent, RandomAgent
from async_wrappers.agents.spaces.actions import discrete_actions
from tests.contracts.agent_contract import AgentContract, play
from tests.worlds.drifting_env import DriftingEnv


class TestRandomContract(AgentContract):
    def make_agent(self, environment: gym.Env[Any, Any], seed: int) -> Agent:
        return RandomAgent(environment, seed=seed)


class TestNoopContract(AgentContract):
    explores = False

    def make_agent(self, environment: gym.Env[Any, Any], seed: int) -> Agent:
        return NoopAgent(environment, seed=seed)


class Narrowed(gym.ActionWrapper[Any, Any, Any]):
    """Only the first two of the environment's actions, whose names it does not mend."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.action_space = Discrete(2)

    def action(self, action: Any) -> Any:
        return action


class TestRandom:
    def test_each_action_comes_about_equally_often(self) -> None:
        env = DriftingEnv(lengths=[1000], actions=4)
        [actions] = play(RandomAgent(env, seed=1), env, range(1))
        counts = Counter(actions)
        assert sorted(counts) == [0, 1, 2, 3]
        assert all(190 < count < 310 for count in counts.values())

    def test_training_and_evaluation_draw_different_actions(self) -> None:
        env = DriftingEnv(lengths=[40])
        training, evaluation = (play(RandomAgent(env), env, range(1), eval_mode) for eval_mode in (False, True))
        assert training != evaluation

    def test_the_action_does_not_depend_on_the_observation_or_the_reward(self) -> None:
        env = DriftingEnv(lengths=[20])
        agent, other = RandomAgent(env, seed=2), RandomAgent(env, seed=2)
        assert agent.begin_episode(np.zeros(3)) == other.begin_episode(np.ones(3))
        assert [agent.step(0.0, np.zeros(3)) for _ in range(20)] == [other.step(5.0, np.ones(3)) for _ in range(20)]

    def test_cartpole_is_played(self) -> None:
        env = gym.make("CartPole-v1")
        assert all(play(RandomAgent(env), env, range(3)))

    @pytest.mark.parametrize(
        "space",
        [
            MultiDiscrete([2] * 11),
            MultiDiscrete([3, 2, 5], start=[4, -1, 0]),
            Box(-1, 1, (2,)),
            Box(-np.inf, np.inf, (3,)),
            MultiBinary(4),
        ],
        ids=str,
    )
    def test_any_space_is_played_as_a_function_of_seed_episode_and_start(self, space: gym.Space[Any]) -> None:
        env = DriftingEnv()
        env.action_space = space
        begun, drawn = np.random.get_state(), [self.actions(env, seed) for seed in (1, 1, 2)]
        assert all(space.contains(action) for action in drawn[0])
        assert np.array_equal(drawn[0], drawn[1])
        assert not np.array_equal(drawn[0], drawn[2])
        assert len({str(action) for action in drawn[0]}) > 5
        assert np.array_equal(begun[1], np.random.get_state()[1])

    def actions(self, env: gym.Env[Any, Any], seed: int) -> list[Any]:
        agent = RandomAgent(env, seed)
        return [agent.begin_episode(0), *(agent.step(0.0, 0) for _ in range(30))]

    def test_each_entry_of_a_chunk_comes_about_equally_often(self) -> None:
        env = DriftingEnv()
        env.action_space = MultiDiscrete([3] * 5)
        counts = np.bincount(np.concatenate([np.stack(self.actions(env, seed)).ravel() for seed in range(10)]))
        assert len(counts) == 3 and all(430 < count < 605 for count in counts)


class TestNoop:
    @pytest.mark.parametrize("first", [0, 4])
    def test_it_always_chooses_the_action_that_is_named_noop(self, first: int) -> None:
        env = DriftingEnv(lengths=[10], actions=4, first_action=first, noop=True)
        assert play(NoopAgent(env), env, range(1)) == [[first + 1] * 10]

    @pytest.mark.parametrize("outside", [False, True])
    def test_of_chunks_it_chooses_one_of_no_ops_alone(self, outside: bool) -> None:
        env: Any = RealtimeDelay(DriftingEnv(actions=4, noop=True), delay=1, noops=1, default_action="chunk")
        env = CommittedPrefix(env) if outside else env
        action = NoopAgent(env).begin_episode(0)
        assert env.action_space.contains(action) and action.tolist() == [1, 1, 1]

    def test_the_environment_may_say_itself_which_action_does_nothing(self) -> None:
        env = DriftingEnv(lengths=[10])
        env.noop_action = 2  # type: ignore[attr-defined]
        assert play(NoopAgent(RealtimeDelay(env, 0)), env, range(1)) == [[2] * 10]
        assert why_no_noop(env) == ""
        assert why_no_noop(Narrowed(env)) != ""  # its actions are others

    @pytest.mark.parametrize(
        "env", [DriftingEnv(), DriftingEnv(actions=1, noop=True), Narrowed(DriftingEnv(actions=5, noop=True))]
    )
    def test_an_environment_without_a_noop_of_its_own_actions_is_refused_in_one_sentence(self, env: Any) -> None:
        with pytest.raises(ValueError) as caught:
            NoopAgent(env)
        assert str(caught.value) == (
            "agent 'noop' needs an environment that says which action does nothing, and of "
            f"{env.action_space} none is known: give the environment an attribute noop_action, or use 'random'"
        )

    @pytest.mark.parametrize("space", [Box(-2, 2, (1,)), Box(-1, np.inf, (5, 2)), Box(0, 9, (3,), np.uint8)], ids=str)
    def test_of_real_numbers_it_chooses_zeros(self, space: Box) -> None:
        env = DriftingEnv()
        env.action_space = space
        action = NoopAgent(env).begin_episode(0)
        assert space.contains(action) and not action.any()

    def test_real_numbers_that_cannot_be_zeros_are_refused(self) -> None:
        env = DriftingEnv()
        env.action_space = Box(0.5, 1, (2,))
        space = "Box(0.5, 1.0, (2,), float32)"
        assert why_no_noop(env) == f"no-op is not in the table: no action of {space} is known to do nothing"


def test_the_first_action_and_their_number_are_read_from_the_space() -> None:
    actions = discrete_actions(Discrete(7, start=-2), "any")
    assert (actions.first, actions.number) == (-2, 7)

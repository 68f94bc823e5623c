"""What every agent keeps, whatever it learns: subclass `AgentContract` in a test file and give it `make_agent`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from async_wrappers import AsyncRunner, RealtimeDelay
from async_wrappers.agents.play.turns.agents import Agent
from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent
from tests.worlds.agents import ApartAgent
from tests.worlds.drifting_env import DriftingEnv
from tests.worlds.plain_data import assert_identical

Environment = gym.Env[Any, Any]
World = Callable[[Environment], Environment]

WORLDS: dict[str, World] = {
    "turn-based": lambda env: env,
    **{
        f"delay {delay}, noops {noops}": lambda env, delay=delay, noops=noops: RealtimeDelay(
            env, delay, noops, "random"
        )
        for delay in (0, 2, 5)
        for noops in (0, 3)
    },
}


def play(agent: Agent, environment: Environment, seeds: Iterable[int], eval_mode: bool = False) -> list[list[Any]]:
    """Play an episode for each seed and return the actions that the agent chose."""
    agent.eval_mode = eval_mode
    episodes = []
    for seed in seeds:
        observation, info = environment.reset(seed=seed)
        actions = [agent.begin_episode(observation, info.get("realtime"))]
        while True:
            observation, reward, terminated, truncated, info = environment.step(actions[-1])
            if terminated or truncated:
                break
            actions.append(agent.step(float(reward), observation, info.get("realtime")))
        agent.end_episode(float(reward), bool(terminated), observation, info.get("realtime"))
        # Chunks of actions as lists, which can be compared.
        episodes.append([action if isinstance(action, int) else action.tolist() for action in actions])
    return episodes


def in_a_file(bundle: dict[str, Any], directory: Path) -> dict[str, Any]:
    """Return what a file without code keeps of a bundle."""
    torch.save(bundle, directory / "bundle")
    kept: dict[str, Any] = torch.load(directory / "bundle", weights_only=True)
    return kept


def assert_apart_as_in_turn(
    make: Callable[[Environment], TurnBasedAgent], world: Callable[[], Environment], directory: Path
) -> None:
    """Play with a policy and a learner that are one, then apart: actions and all that is kept are the same."""
    runs = []
    for apart in (False, True):
        env = world()
        agent = make(env)
        if apart:
            ApartAgent(agent)
        actions = play(agent, env, range(10)) + play(agent, env, range(100, 103), eval_mode=True)
        assert agent.learner.updates > 2
        runs.append((actions, agent.bundle_and_checkpoint(directory / str(apart), 0)))
    assert_identical(*runs)


def assert_virtual_as_simulated(
    make: Callable[[Environment], TurnBasedAgent], world: Callable[[], Any], episodes: int = 6
) -> None:
    """Play an agent that does not learn on the virtual clock and under the delay: the frames are the same."""
    schedule: dict[str, Any] = {"latency": 0.25, "workers": 3, "fps": 10, "playout": 3}
    worlds = [world(), world()]
    spec = make(worlds[0]).spec
    virtually: dict[str, Any] = {"backend": "virtual", "seed": 5, "default_action": "random", **schedule}
    AsyncRunner(lambda: worlds[0], spec.make_policy, features=spec.features, **virtually).run(episodes=episodes)
    delayed = RealtimeDelay(worlds[1], default_action="random", **schedule)
    seeds = [int(np.random.SeedSequence((5, 0, n)).generate_state(1)[0]) & 0x7FFFFFFF for n in range(episodes)]
    play(make(delayed), delayed, seeds)
    one, other = ([(life.seed, life.actions, life.rewards) for life in each.lives] for each in worlds)
    assert one == other
    assert sum(len(actions) for _, actions, _ in one) > 5 * episodes


class AgentContract:
    """Tests of one agent, in one of `WORLDS`: turns are the same code for all agents, and DQN's are taken in each."""

    explores = True  # whether another seed gives other actions
    played = "delay 2, noops 3"  # the name of the world

    @pytest.fixture
    def world(self) -> World:
        """A function that puts an environment under a delay, or leaves it turn-based."""
        return WORLDS[self.played]

    def make_agent(self, environment: Environment, seed: int) -> Agent:
        """Make the agent; where it learns, its updates begin within the first few episodes."""
        raise NotImplementedError

    def make_environment(self, **arguments: Any) -> Any:
        """Make the environment, which takes the arguments of `DriftingEnv`."""
        return DriftingEnv(**arguments)

    def state(self, agent: Agent, directory: Path, iteration: int = 0) -> dict[str, Any]:
        """All that the agent remembers between two episodes."""
        kept = agent.bundle_and_checkpoint(directory, iteration)
        if isinstance(agent, TurnBasedAgent):
            kept["learner's replay"] = agent.learner.replay.state_dict()
        return kept

    def test_the_same_seed_gives_the_same_actions_and_state(self, world: World, tmp_path: Path) -> None:
        runs = []
        for name in ("one", "other"):
            env = world(self.make_environment(noop=True))
            agent = self.make_agent(env, 3)
            runs.append((play(agent, env, range(6)), self.state(agent, tmp_path / name)))
        assert_identical(*runs)

    def test_another_seed_gives_other_actions_if_the_agent_explores(self, world: World) -> None:
        env = world(self.make_environment(noop=True))
        one, other = (play(self.make_agent(env, seed), env, range(4)) for seed in (0, 1))
        assert (one != other) == self.explores

    @pytest.mark.parametrize("first", [0, -3])
    def test_actions_are_elements_of_the_space(self, world: World, first: int) -> None:
        env = world(self.make_environment(actions=4, first_action=first, noop=True))
        agent = self.make_agent(env, 0)
        for eval_mode in (True, False):
            chosen = [a for actions in play(agent, env, range(4), eval_mode) for a in actions]
            if isinstance(env.action_space, gym.spaces.Discrete):
                assert {type(action) for action in chosen} == {int}
            else:
                chosen = [np.array(action, env.action_space.dtype) for action in chosen]
            assert all(env.action_space.contains(action) for action in chosen)

    def test_evaluation_changes_nothing_that_training_later_sees(self, world: World, tmp_path: Path) -> None:
        runs = []
        for evaluations in (0, 2):
            env = world(self.make_environment(noop=True))
            agent = self.make_agent(env, 0)
            actions = play(agent, env, range(5))
            play(agent, env, range(100, 100 + evaluations), eval_mode=True)
            actions += play(agent, env, range(5, 9))
            state = self.state(agent, tmp_path / str(evaluations))
            state["turns"].pop("eval_episodes")
            runs.append((actions, state))
        assert_identical(*runs)

    def test_a_restored_agent_goes_on_bit_for_bit(self, world: World, tmp_path: Path) -> None:
        env = world(self.make_environment(noop=True))
        agent, restored = self.make_agent(env, 0), self.make_agent(env, 0)
        play(agent, env, range(5))
        play(agent, env, range(100, 101), eval_mode=True)
        bundle = in_a_file(agent.bundle_and_checkpoint(tmp_path / "one", 4), tmp_path)
        restored.unbundle(tmp_path / "one", 4, bundle)
        runs = []
        for name, player in (("one", agent), ("other", restored)):
            actions = play(player, env, range(5, 9)) + play(player, env, range(101, 102), eval_mode=True)
            runs.append((actions, self.state(player, tmp_path / f"{name} later", 5)))
        assert_identical(*runs)

    def test_a_bundle_is_tensors_and_plain_data_that_survive_a_file(self, tmp_path: Path) -> None:
        env = self.make_environment(noop=True)
        agent = self.make_agent(env, 0)
        play(agent, env, range(5))
        bundle = agent.bundle_and_checkpoint(tmp_path, 0)
        assert_identical(in_a_file(bundle, tmp_path), bundle)

    def test_a_bundle_is_of_its_moment_once_it_is_in_a_file(self, tmp_path: Path) -> None:
        env = self.make_environment(noop=True)
        agent, restored = self.make_agent(env, 0), self.make_agent(env, 0)
        play(agent, env, range(5))
        bundle = in_a_file(agent.bundle_and_checkpoint(tmp_path, 0), tmp_path)
        expected = play(agent, env, range(5, 8))
        agent.bundle_and_checkpoint(tmp_path, 1)
        restored.unbundle(tmp_path, 0, bundle)
        assert play(restored, env, range(5, 8)) == expected

    def test_forgetting_leaves_what_is_kept(self, tmp_path: Path) -> None:
        env = self.make_environment(noop=True)
        agent, restored = self.make_agent(env, 0), self.make_agent(env, 0)
        for iteration in range(3):
            play(agent, env, range(2))
            bundle = in_a_file(agent.bundle_and_checkpoint(tmp_path, iteration), tmp_path)
        agent.forget_checkpoints(tmp_path, {2})
        restored.unbundle(tmp_path, 2, bundle)
        assert play(restored, env, range(6, 9)) == play(agent, env, range(6, 9))

    def test_an_identity_is_plain_and_the_same_for_agents_alike(self) -> None:
        env = self.make_environment(noop=True)
        one, other = self.make_agent(env, 0), self.make_agent(env, 1)
        play(one, env, range(2))
        assert one.identity() == other.identity()
        assert json.loads(json.dumps(one.identity())) == one.identity()

    def test_an_agent_that_loads_a_policy_evaluates_like_the_one_it_came_from(
        self, world: World, tmp_path: Path
    ) -> None:
        env = world(self.make_environment(noop=True))
        agent, other = self.make_agent(env, 0), self.make_agent(env, 0)
        play(agent, env, range(6))
        other.load_policy(agent.bundle_and_checkpoint(tmp_path, 0))
        runs = [play(player, env, range(100, 103), eval_mode=True) for player in (agent, other)]
        assert runs[0] == runs[1]

    def test_reports_are_a_name_a_number_and_the_training_frames(self) -> None:
        env = self.make_environment(noop=True)
        agent, reports = self.make_agent(env, 0), []
        agent.set_report(lambda *report: reports.append(report))
        play(agent, env, range(6))
        lived = sum(len(life.actions) for life in env.lives)
        assert [tuple(map(type, report)) for report in reports] == [(str, float, int)] * len(reports)
        assert [frames for *_, frames in reports] == sorted(frames for *_, frames in reports)
        assert all(0 < frames <= lived for *_, frames in reports)

    def test_an_environment_that_reuses_its_arrays_makes_no_difference(self, world: World, tmp_path: Path) -> None:
        runs = []
        for reuse in (False, True):
            env = world(self.make_environment(noop=True, reuse=reuse))
            agent = self.make_agent(env, 0)
            runs.append((play(agent, env, range(6)), self.state(agent, tmp_path / str(reuse))))
        assert_identical(*runs)

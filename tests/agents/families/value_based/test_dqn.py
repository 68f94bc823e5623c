"""Turn-based DQN: what reaches the learner, and when, against a model written from the rules of the schedule."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Text, Tuple
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from async_wrappers import RealtimeDelay
from async_wrappers.agents.acting.exploration import (
    identity_epsilon,
    linearly_decaying_epsilon,
    per_actor_epsilon,
    zero_epsilon,
)
from async_wrappers.agents.networks.q_network import create_network
from async_wrappers.agents.play.turns.agents import Agent
from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent
from async_wrappers.agents.play.turns.turns import play_episode
from async_wrappers.latency import LogNormal
from tests.contracts.agent_contract import WORLDS as PLAYED
from tests.contracts.agent_contract import AgentContract, Environment, play
from tests.worlds.agents import make_dqn, tiny_network
from tests.worlds.drifting_env import SHAPE, DriftingEnv, Life
from tests.worlds.plain_data import assert_identical, differs

TRUNCATED, TERMINATED = (False, True), (True, False)


# Each delay and each number of no-ops is in a world that is always played.
PLAYED_BY_HAND = ("delay 0, noops 0", "delay 2, noops 3", "delay 5, noops 0")


class TestContract(AgentContract):
    @pytest.fixture(params=[pytest.param(name, marks=[pytest.mark.slow] * (name in PLAYED_BY_HAND)) for name in PLAYED])
    def world(self, request: pytest.FixtureRequest) -> Any:
        return PLAYED[request.param]

    def make_agent(self, environment: gym.Env[Any, Any], seed: int) -> Agent:
        return make_dqn(
            environment,
            stack_size=2,
            min_replay_history=5,
            update_period=2,
            optimizer=lambda parameters: torch.optim.Adam(parameters, lr=0.01),
            epsilon_eval=0.3,
            summary_writing_frequency=3,
            seed=seed,
        )

    def test_the_agent_of_these_tests_learns_and_reports(self) -> None:
        env, reports = DriftingEnv(noop=True), []
        agent, untrained = self.make_agent(env, 0), self.make_agent(env, 0)
        agent.set_report(lambda *report: reports.append(report))
        play(agent, env, range(12))
        assert {name for name, *_ in reports} == {"Loss", "LearningRate", "GradientNorm", "ReplaySize"}
        assert isinstance(agent, TurnBasedAgent) and isinstance(untrained, TurnBasedAgent)
        assert differs(dict(agent.learner.weights()), dict(untrained.learner.weights()))

    def test_forgotten_replays_cannot_be_loaded(self, tmp_path: Path) -> None:
        env = DriftingEnv()
        agent = self.make_agent(env, 0)
        play(agent, env, range(4))
        bundles = [agent.bundle_and_checkpoint(tmp_path, iteration) for iteration in range(2)]
        agent.forget_checkpoints(tmp_path, {1})
        with pytest.raises(OSError):
            self.make_agent(env, 0).unbundle(tmp_path, 0, bundles[0])

    def test_a_state_of_another_agent_is_refused(self, tmp_path: Path) -> None:
        env = DriftingEnv()
        bundle = make_dqn(env, gamma=0.9).bundle_and_checkpoint(tmp_path, 0)
        with pytest.raises(ValueError, match=r"gamma must be as in the saved replay, 0\.9, got 0\.5"):
            make_dqn(env, gamma=0.5).unbundle(tmp_path, 0, bundle)

    def test_another_network_has_another_identity(self) -> None:
        env = DriftingEnv()
        one, other = make_dqn(env).identity(), make_dqn(env, network=create_network).identity()
        assert one["network"] != other["network"]
        assert one != make_dqn(env, stack_size=2).identity()


# What reaches the learner, and when.


class Transition(NamedTuple):
    """One decision that took effect, as the rules tell it."""

    observation: list[float]
    action: int
    reward: float
    interval: int
    terminal: bool
    truncated: bool
    following: list[float]  # the observation that it led to
    closed: int  # frame of the episode on which it was complete


def transitions(life: Life, delay: int, noops: int) -> list[Transition]:
    """The transitions of an episode of T frames: s_j = j (noops + 1), e_j = s_j + delay."""
    end, found = len(life.actions), []
    for start in range(0, end, noops + 1):
        effect, next_effect = start + delay, min(start + noops + 1 + delay, end)
        if effect >= end:
            break
        last = next_effect == end
        found.append(
            Transition(
                observation=life.observations[start].tolist(),
                action=life.actions[effect],
                reward=sum(life.rewards[effect if start else 0 : next_effect]),
                interval=next_effect - effect,
                terminal=last and life.terminated,
                truncated=last and not life.terminated,
                following=life.observations[min(start + noops + 1, end)].tolist(),
                closed=next_effect,
            )
        )
    return found


def starts(life: Life, delay: int, noops: int) -> list[int]:
    """The starts of the decisions that the agent is asked for: those whose effect comes before the end, and s_0."""
    return [
        0,
        *(start for start in range(noops + 1, len(life.actions), noops + 1) if start + delay < len(life.actions)),
    ]


def stack(life: Life, frames: list[int], size: int) -> list[list[float]]:
    """The last `size` of the observations at `frames`, zeros before the first."""
    seen = [life.observations[frame].tolist() for frame in frames]
    return [[0.0] * SHAPE[0]] * max(0, size - len(seen)) + seen[-size:]


def told_by_the_rules(lives: list[tuple[Life, bool]], delay: int, noops: int, stack_size: int) -> list[Any]:
    """The stacks that the policy sees and the transitions that the learner observes, in order."""
    told: list[Any] = []
    lived = 0
    for life, eval_mode in lives:
        waiting = [] if eval_mode else transitions(life, delay, noops)
        asked = starts(life, delay, noops)
        for j, start in enumerate(asked):
            told += [waiting.pop(0) for transition in waiting[:j] if transition.closed <= start]
            frame = lived if eval_mode else lived + start
            told.append((stack(life, asked[: j + 1], stack_size), start, frame, eval_mode))
        told += waiting
        lived += 0 if eval_mode else len(life.actions)
    return [item._replace(closed=0) if isinstance(item, Transition) else item for item in told]


def spy(agent: TurnBasedAgent) -> list[Any]:
    """A list that fills with what the policy sees and the learner observes, in the terms of `told_by_the_rules`."""
    told: list[Any] = []
    observe, act = agent.learner.observe, agent.policy.act

    def observe_and_tell(transition: Any) -> None:
        told.append(
            Transition(
                observation=transition["observation"].tolist(),
                action=transition["action"],
                reward=transition["reward"],
                interval=transition["interval"],
                terminal=transition["terminal"],
                truncated=transition["truncated"],
                following=transition["next_observation"].tolist(),
                closed=0,
            )
        )
        observe(transition)

    def act_and_tell(inputs: Any, state: Any, decisions: Any) -> Any:
        (decision,) = decisions
        told.append((inputs[0].tolist(), decision.start, decision.frame, decision.eval_mode))
        return act(inputs, state, decisions)

    agent.learner.observe, agent.policy.act = observe_and_tell, act_and_tell  # type: ignore[method-assign]
    return told


@dataclass(frozen=True)
class World:
    """All that a run depends on."""

    delay: int
    noops: int
    stack_size: int
    reuse: bool
    episodes: list[tuple[int, bool, bool, int | None]]  # frames, terminated, in evaluation, cut by the runner

    def live(self, **arguments: Any) -> tuple[TurnBasedAgent, list[Any], list[tuple[Life, bool]]]:
        """Play the episodes and return the agent, what it told and what happened."""
        ends = [TERMINATED if terminated else TRUNCATED for _, terminated, *_ in self.episodes]
        inner = DriftingEnv([frames for frames, *_ in self.episodes], ends, reuse=self.reuse)
        env = RealtimeDelay(inner, self.delay, self.noops, "random")
        agent = make_dqn(env, stack_size=self.stack_size, **arguments)
        told = spy(agent)
        for seed, (_, _, agent.eval_mode, cut) in enumerate(self.episodes):
            play_episode(agent, env, seed, cut)
        modes = [eval_mode for _, _, eval_mode, _ in self.episodes]
        return agent, told, list(zip(inner.lives, modes, strict=True))


EPISODES = st.lists(
    st.tuples(st.integers(1, 20), st.booleans(), st.booleans(), st.none() | st.integers(1, 12)), min_size=1, max_size=5
)
WORLDS = st.builds(World, st.integers(0, 6), st.integers(0, 4), st.integers(1, 4), st.booleans(), EPISODES)
SMALL = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])


class TestAgainstTheRules:
    @SMALL
    @given(WORLDS)
    def test_the_learner_observes_exactly_what_is_known_when_a_decision_starts(self, world: World) -> None:
        _, told, lives = world.live()
        assert told == told_by_the_rules(lives, world.delay, world.noops, world.stack_size)

    @SMALL
    @given(WORLDS)
    def test_the_replay_samples_the_stacks_that_the_policy_saw(self, world: World) -> None:
        agent, _, lives = world.live()
        expected = {}
        slot = 0
        for life in (life for life, eval_mode in lives if not eval_mode):
            asked, lived = starts(life, world.delay, world.noops), transitions(life, world.delay, world.noops)
            for j, transition in enumerate(lived):
                saw = stack(life, asked[: j + 1], world.stack_size)
                ended = transition.terminal or transition.truncated
                finals = [*saw, transition.following] if ended else stack(life, asked[: j + 2], world.stack_size)
                expected[slot + j] = (saw, finals[-world.stack_size :], transition)
            slot += len(lived) + bool(lived)  # the final observation takes a slot too
        assert agent.learner.replay.valid_slots().tolist() == sorted(expected)
        assert agent.learner.replay.add_count == len(expected)
        if not expected:
            return
        batch = agent.learner.replay.sample(100)
        for row, index in enumerate(batch["index"].tolist()):
            saw, then, transition = expected[index]
            assert batch["observation"][row].tolist() == saw
            assert batch["next_observation"][row].tolist() == then
            assert (int(batch["action"][row]), float(batch["reward"][row])) == (transition.action, transition.reward)
            assert int(batch["interval"][row]) == transition.interval
            assert float(batch["discount"][row]) == pytest.approx(0.0 if transition.terminal else 0.99)

    def test_an_episode_that_ends_before_the_first_effect_teaches_nothing(self) -> None:
        agent, told, lives = World(5, 0, 1, False, [(3, True, False, None), (5, False, False, None)]).live()
        assert [len(life.actions) for life, _ in lives] == [3, 5]
        assert not any(isinstance(item, Transition) for item in told)
        assert (agent.learner.replay.add_count, agent.state()["clock"]["frames"]) == (0, 8)

    def test_under_delay_a_transition_waits_for_a_decision_that_starts_after_it(self) -> None:
        # s = 0 1 2 3..., e = 3 4 5 6...: transition 0 is complete on frame 4, when decision 1 of s = 1 is made;
        # the decision of s = 4 is the first one that may know it.
        _, told, _ = World(3, 0, 1, False, [(20, True, False, None)]).live()
        kinds = "".join("o" if isinstance(item, Transition) else "a" for item in told)
        assert kinds == "aaaa" + "oa" * 13 + "oooo"


# Updates.


class TestUpdates:
    def updates(self, agent: TurnBasedAgent) -> list[tuple[int, int]]:
        """A list that fills with (training decisions made before, transitions observed) at each update."""
        found: list[tuple[int, int]] = []
        update = agent.learner.update

        def update_and_tell() -> Any:
            found.append((agent.state()["training_steps"], agent.learner.replay.add_count))
            return update()

        agent.learner.update = update_and_tell  # type: ignore[method-assign]
        return found

    @pytest.mark.parametrize(
        ("delay", "noops", "history", "period"),
        [(0, 0, 20, 4), (0, 2, 0, 1), (3, 0, 0, 3), (3, 2, 20, 1)],
    )
    def test_they_begin_after_the_history_and_come_every_period(
        self, delay: int, noops: int, history: int, period: int
    ) -> None:
        inner = DriftingEnv(lengths=[46, 7, 61])
        env = RealtimeDelay(inner, delay, noops, "random")
        agent = make_dqn(env, min_replay_history=history, update_period=period)
        found = self.updates(agent)
        for number in range(9):
            agent.eval_mode = number % 3 == 2
            play_episode(agent, env, number)
        # The transitions that are known at each training decision, and those whose next observation is known as well.
        known, observed = [], 0
        for number, life in enumerate(inner.lives):
            if number % 3 == 2:
                continue
            complete = transitions(life, delay, noops)
            for start in starts(life, delay, noops):
                here = sum(transition.closed <= start for transition in complete)
                known.append((observed + here, observed + max(0, here - 1)))
            observed += len(complete)
        assert found == [
            (i, count) for i, (count, usable) in enumerate(known) if i % period == 0 and count > history and usable > 0
        ]
        assert len(found) > 3

    @pytest.mark.parametrize(
        ("target_update_period", "update_period", "updates"), [(12, 4, 3), (10, 4, 2), (14, 4, 4), (3, 4, 1), (5, 1, 5)]
    )
    def test_the_target_is_copied_every_so_many_updates(
        self, target_update_period: int, update_period: int, updates: int
    ) -> None:
        env = DriftingEnv(lengths=[100])
        agent = make_dqn(
            env,
            min_replay_history=2,
            update_period=update_period,
            target_update_period=target_update_period,
        )
        copied: list[int] = []
        synchronize = agent.learner.synchronize_target
        agent.learner.synchronize_target = lambda: [copied.append(agent.learner.updates), synchronize()]  # type: ignore[method-assign, assign, return-value, func-returns-value]
        play(agent, env, range(1))
        assert agent.learner.updates >= 3 * updates
        assert copied == list(range(updates, agent.learner.updates + 1, updates))

    def test_a_round_may_have_several_updates(self) -> None:
        env = DriftingEnv(lengths=[46])
        agent = make_dqn(
            env, min_replay_history=5, update_period=4, num_updates_per_train_step=3, target_update_period=8
        )
        found = self.updates(agent)
        copied: list[int] = []
        synchronize = agent.learner.synchronize_target
        agent.learner.synchronize_target = lambda: [copied.append(agent.learner.updates), synchronize()]  # type: ignore[method-assign, assign, return-value, func-returns-value]
        play(agent, env, range(1))
        rounds = [steps for steps, _ in found]
        assert rounds == [steps for steps in range(8, 46, 4) for _ in range(3)]
        # Eight decisions are two rounds: the target's period is one of decisions.
        assert copied == list(range(6, agent.learner.updates + 1, 6)) and len(copied) > 3

    def test_the_learning_rate_falls_and_stays_at_its_end(self) -> None:
        env = DriftingEnv(lengths=[60])
        agent = make_dqn(
            env,
            min_replay_history=5,
            update_period=1,
            learning_rate_decay=20,
            learning_rate_power=2.0,
            learning_rate_end=0.25,
        )
        update = agent.learner.update

        def rate() -> float:
            return float(agent.learner.state_dict()["optimizer"]["param_groups"][0]["lr"])

        first, rates = rate(), list[float]()
        agent.learner.update = lambda: [update(), rates.append(rate())][0]  # type: ignore[method-assign, func-returns-value, assign, return-value]
        play(agent, env, range(1))
        expected = [first * (0.25 + 0.75 * (1 - min(done, 20) / 20) ** 2) for done in range(len(rates))]
        assert rates == pytest.approx(expected, rel=1e-12) and len(rates) > 40
        assert rates[-1] == first * 0.25

    @pytest.mark.parametrize("horizon", [2, 5])
    def test_they_wait_until_an_n_step_return_is_complete(self, horizon: int) -> None:
        env = DriftingEnv(lengths=[20])
        agent = make_dqn(env, min_replay_history=0, update_horizon=horizon)
        found = self.updates(agent)
        play(agent, env, range(2))
        assert found[0][1] >= horizon

    def test_losses_and_targets_differ_in_what_they_teach(self) -> None:
        learnt = [dict(make_dqn(DriftingEnv()).learner.weights())]
        for loss_type in ("huber", "mse"):
            for double in (False, True):
                env = DriftingEnv()
                agent = make_dqn(env, min_replay_history=2, loss_type=loss_type, double_dqn=double)
                play(agent, env, range(5))
                learnt.append(dict(agent.learner.weights()))
        assert all(tensor.isfinite().all() for weights in learnt for tensor in weights.values())
        for one, other in combinations(learnt, 2):
            assert all(differs(one[name], other[name]) for name in one)

    def test_the_gradient_is_clipped_to_the_norm(self) -> None:
        env = DriftingEnv(lengths=[4])
        norms = []
        for max_gradient_norm in (None, 1e-3):
            agent = make_dqn(
                env,
                min_replay_history=2,
                loss_type="mse",
                max_gradient_norm=max_gradient_norm,
                optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1.0),
            )
            before = nn.utils.parameters_to_vector(agent.learner.network.parameters()).detach().clone()
            play(agent, env, range(1))
            assert agent.learner.updates == 1
            after = nn.utils.parameters_to_vector(agent.learner.network.parameters()).detach()
            norms.append(float((after - before).norm()))
        assert norms[0] > 1e-2
        assert norms[1] == pytest.approx(1e-3, rel=0.01)

    def test_n_step_returns_and_frames_reach_the_replay(self) -> None:
        # s = 0 3 6 9, e = 1 4 7 10, T = 12: intervals 3 3 3 2, rewards of frames 0-3, 4-6, 7-9, 10-11.
        inner = DriftingEnv(lengths=[12], ends=[TRUNCATED])
        env = RealtimeDelay(inner, 1, 2, "random")
        agent = make_dqn(env, gamma=0.5, update_horizon=2, discount_by="frame")
        play(agent, env, range(1))
        frames = inner.lives[0].rewards
        rewards = [sum(frames[0:4]), sum(frames[4:7]), sum(frames[7:10]), sum(frames[10:12])]
        expected = {
            0: (rewards[0] + rewards[1] / 8, 0.5**6),
            1: (rewards[1] + rewards[2] / 8, 0.5**6),
            2: (rewards[2] + rewards[3] / 8, 0.5**5),
            3: (rewards[3], 0.5**2),
        }
        batch = agent.learner.replay.sample(64)
        got = zip(batch["index"].tolist(), batch["reward"].tolist(), batch["discount"].tolist(), strict=True)
        assert {index: (reward, discount) for index, reward, discount in got} == expected


# Acting.


def constant_network(shape: Sequence[int], actions: int) -> nn.Module:
    """Q-values that prefer the last action, whatever the observation."""
    network = tiny_network(shape, actions)
    for parameter in network.parameters():
        nn.init.zeros_(parameter)
    network[1].bias.data[-1] = 1.0  # type: ignore[index, union-attr, operator]
    return network


class TestEpsilon:
    @pytest.mark.parametrize(("delay", "noops"), [(0, 0), (0, 3), (4, 0), (3, 2)])
    def test_in_training_it_is_asked_for_with_the_frames_lived_through(self, delay: int, noops: int) -> None:
        inner = DriftingEnv(lengths=[17, 9, 30])
        env = RealtimeDelay(inner, delay, noops, "random")
        asked: list[tuple[int, int, int, float]] = []

        def epsilon_fn(*arguments: Any) -> float:
            asked.append(arguments)
            return 0.0

        agent = make_dqn(env, epsilon_fn=epsilon_fn, epsilon_decay_period=77, epsilon_warmup=None, epsilon_train=0.25)
        for number in range(6):
            play(agent, env, range(1), eval_mode=number % 2 == 1)
        expected, lived = [], 0
        for life in inner.lives[::2]:
            expected += [lived + start for start in starts(life, delay, noops)]
            lived += len(life.actions)
        assert [frame for _, frame, _, _ in asked] == expected
        assert {(decay, warmup, final) for decay, _, warmup, final in asked} == {(77, 10**6 * (noops + 1), 0.25)}

    def test_a_warmup_of_its_own_is_taken_instead_of_the_history(self) -> None:
        env, asked = DriftingEnv(), []
        epsilon_fn = lambda decay, frame, warmup, final: asked.append(warmup) or 0.0  # noqa: E731
        play(make_dqn(env, epsilon_fn=epsilon_fn, epsilon_warmup=0), env, range(1))
        assert set(asked) == {0}

    @pytest.mark.parametrize("wrapped", [False, True])
    @pytest.mark.parametrize(("delay", "noops"), [(0, 0), (0, 8), (8, 8), (3, 1)])
    def test_it_begins_to_fall_when_learning_begins(self, delay: int, noops: int, wrapped: bool) -> None:
        env: Environment = RealtimeDelay(DriftingEnv(lengths=[1000]), delay, noops, "random")
        env = gym.wrappers.TransformObservation(env, lambda seen: seen, None) if wrapped else env
        asked: list[float] = []

        def epsilon_fn(*arguments: Any) -> float:
            asked.append(linearly_decaying_epsilon(*arguments))
            return asked[-1]

        agent = make_dqn(env, epsilon_fn=epsilon_fn, min_replay_history=20, epsilon_decay_period=250)
        observation, info = env.reset(seed=0)
        action = agent.begin_episode(observation, info.get("realtime"))
        while not agent.updates:
            observation, reward, *_, info = env.step(action)
            action = agent.step(float(reward), observation, info.get("realtime"))
        learning_starts = 21 + -(-delay // (noops + 1))  # a decision: the first that starts when 21 rewards are known
        assert len(asked) == learning_starts + 1
        assert asked[20] == 1.0
        assert 1.0 - 0.5 * (delay + 2 * noops + 2) / 250 < asked[-1] < 1.0

    @pytest.mark.parametrize("latency", [0.1, LogNormal(mean=0.120, cv=0.2)])
    def test_a_warmup_must_be_given_where_the_frames_between_decisions_vary(self, latency: Any) -> None:
        env = RealtimeDelay(DriftingEnv(noop=True), latency=latency, workers=3, fps=60)
        expected = (
            r"^DQNAgent.epsilon_warmup must be bound, in frames, where the frames between two decisions vary .*, got "
            r"None, which stands for min_replay_history = 20 decisions: bind DQNAgent.epsilon_warmup = 20 for an action"
        )
        with pytest.raises(ValueError, match=expected):
            make_dqn(env, min_replay_history=20, epsilon_fn=linearly_decaying_epsilon)
        make_dqn(env, min_replay_history=20, epsilon_fn=linearly_decaying_epsilon, epsilon_warmup=20)
        make_dqn(env, min_replay_history=0, epsilon_fn=linearly_decaying_epsilon)
        for epsilon_fn in (identity_epsilon, zero_epsilon, partial(per_actor_epsilon, base=0.3)):
            make_dqn(env, min_replay_history=20, epsilon_fn=epsilon_fn)

    @pytest.mark.parametrize("first", [0, 7])
    def test_training_and_evaluation_have_an_epsilon_each(self, first: int) -> None:
        env = DriftingEnv(lengths=[60], actions=4, first_action=first)
        arguments = {"network": constant_network, "epsilon_fn": zero_epsilon}
        greedy, random = (make_dqn(env, epsilon_eval=epsilon, **arguments) for epsilon in (0.0, 1.0))
        assert play(greedy, env, range(1)) == [[first + 3] * 60]
        assert play(greedy, env, range(1), eval_mode=True) == [[first + 3] * 60]
        assert set(*play(random, env, range(1), eval_mode=True)) == set(range(first, first + 4))

    def test_exploration_differs_between_episodes_and_modes(self) -> None:
        env = DriftingEnv(lengths=[30])
        agent = make_dqn(env, epsilon_train=1.0, epsilon_eval=1.0)
        runs = [*play(agent, env, range(2)), *play(agent, env, range(2), eval_mode=True)]
        assert len({tuple(actions) for actions in runs}) == 4


class TestSpaces:
    def test_images_are_stacked_and_learnt_from_in_both_formats_and_precisions(self) -> None:
        class Images(gym.ObservationWrapper[Any, Any, Any]):
            def __init__(self) -> None:
                super().__init__(DriftingEnv(lengths=[12]))
                self.observation_space = Box(0, 255, (36, 36), np.uint8)

            def observation(self, observation: Any) -> Any:
                return np.full((36, 36), 100 + 10 * observation[0], np.uint8)

        for channels_last in (False, True):
            for bf16 in (False, True):
                agent = make_dqn(
                    Images(),
                    stack_size=2,
                    network=create_network,
                    min_replay_history=2,
                    channels_last=channels_last,
                    bf16=bf16,
                    update_period=4,
                )
                play(agent, Images(), range(1))
                weights = agent.learner.weights()
                assert agent.learner.updates == 2
                assert all(tensor.isfinite().all() and tensor.dtype == torch.float32 for tensor in weights.values())

    @pytest.mark.parametrize(
        ("space", "place", "wrong"),
        [
            (Text(3), "", Text(3)),
            (Tuple([Text(3)]), "['0']", Text(3)),
            (Dict(a=Box(0, 1, (2,)), b=Dict(c=Text(3))), "['b']['c']", Text(3)),
        ],
    )
    def test_observations_that_are_no_arrays_are_refused_in_one_sentence(
        self, space: gym.Space[Any], place: str, wrong: gym.Space[Any]
    ) -> None:
        env = DriftingEnv()
        env.observation_space = space
        with pytest.raises(ValueError) as caught:
            make_dqn(env)
        assert str(caught.value).splitlines()[0] == (
            f"agent 'dqn': observation space{place} must be a Box, Discrete, MultiDiscrete, MultiBinary, or a Dict "
            f"or Tuple of these, got {wrong}: flatten it with Gymnasium's FlattenObservation, in gin "
            "create_gym_environment.wrappers = [@FlattenObservation, @RealtimeDelay]"
        )

    def test_continuous_actions_are_refused_in_one_sentence(self) -> None:
        env = DriftingEnv()
        env.action_space = Box(-1, 1, (2,))
        with pytest.raises(ValueError) as caught:
            make_dqn(env)
        assert str(caught.value).splitlines()[0] == (
            f"agent 'dqn' needs Discrete actions, got {env.action_space}: take agent 'sac' or 'ppo', or discretise "
            "them with Gymnasium's DiscretizeAction, in gin create_gym_environment.wrappers = [@DiscretizeAction, "
            "@RealtimeDelay] and DiscretizeAction.bins = 3"
        )


class TestArguments:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"stack_size": 0}, "stack_size must be >= 1"),
            ({"stack_size": -1}, "stack_size must be >= 1"),
            ({"gamma": 1.5}, r"gamma must lie in \[0, 1\], got 1.5$"),
            ({"discount_by": "second"}, "discount_by must be 'decision' or 'frame', got 'second'$"),
            ({"update_horizon": 0}, "update_horizon must be >= 1 decision, got 0$"),
            ({"min_replay_history": -1}, "min_replay_history must be >= 0 transitions, got -1$"),
            ({"update_period": 0}, "update_period must be >= 1 decision, got 0$"),
            ({"num_updates_per_train_step": 0}, "num_updates_per_train_step must be >= 1 update, got 0$"),
            ({"learning_rate_decay": 0}, "learning_rate_decay must be >= 1 update, or None for a fixed rate, got 0$"),
            ({"learning_rate_decay": 9, "learning_rate_power": 0.0}, "learning_rate_power must be > 0 and finite, got"),
            ({"learning_rate_decay": 9, "learning_rate_end": 1.5}, r"learning_rate_end must lie in \[0, 1\], got 1.5$"),
            (
                {"learning_rate_power": 2.0},
                "learning_rate_decay must be bound, in updates, where learning_rate_power or learning_rate_end is, "
                "got None beside 2.0 and 0.0$",
            ),
            ({"target_update_period": 0}, "target_update_period must be >= 1 decision, got 0$"),
            ({"replay_capacity": 1}, "(replay_)?capacity must be >= 2 slots .*, got 1$"),
            ({"batch_size": 0}, "batch_size must be >= 1 transition, got 0$"),
            ({"loss_type": "l1"}, "loss_type must be 'huber' or 'mse', got 'l1'$"),
            ({"device": "gpu"}, "device must be 'auto', 'cpu' or 'cuda', got 'gpu'$"),
            ({"epsilon_train": 5}, "epsilon_train must "),
            ({"epsilon_eval": -0.1}, "epsilon_eval must "),
            ({"epsilon_decay_period": -1}, "epsilon_decay_period must be >= 0"),
            ({"max_gradient_norm": -1.0}, "max_gradient_norm must be > 0"),
            ({"summary_writing_frequency": 0}, "summary_writing_frequency must be >= 1"),
        ],
    )
    def test_those_out_of_range_are_refused_in_one_sentence(self, arguments: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError) as caught:
            make_dqn(DriftingEnv(), **arguments)
        first_line = str(caught.value).splitlines()[0]
        assert re.match(message, first_line), first_line

    def test_cuda_is_refused_where_there_is_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        with pytest.raises(ValueError, match=r"^device='cuda' needs a CUDA device, and torch sees none: use"):
            make_dqn(DriftingEnv(), device="cuda")

    def test_making_an_agent_draws_nothing_from_torchs_generator(self) -> None:
        before = torch.random.get_rng_state()
        make_dqn(DriftingEnv(), seed=5)
        assert torch.equal(torch.random.get_rng_state(), before)

    def test_the_seed_decides_the_weights_the_exploration_and_what_the_replay_samples(self) -> None:
        found = []
        for seed in (1, 1, 2):
            env = DriftingEnv(lengths=[40])
            agent = make_dqn(env, epsilon_train=1.0, min_replay_history=100, seed=seed)
            actions, samples = play(agent, env, range(1)), agent.learner.replay.sample(20)["index"].tolist()
            found.append([dict(agent.learner.weights()), actions, samples])
        assert_identical(found[0], found[1])
        assert all(differs(one, other) for one, other in zip(found[0], found[2], strict=True))

    def test_a_cut_episode_needs_its_last_observation(self) -> None:
        agent = make_dqn(DriftingEnv())
        agent.begin_episode(np.zeros(SHAPE, np.float32))
        with pytest.raises(ValueError, match=r"^observation must be given where terminal=False"):
            agent.end_episode(1.0, terminal=False)

"""PPO: what every agent keeps, in all worlds; its rounds and minibatches; its gradient beside Stable-Baselines3's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete

from async_wrappers import Chunk, RealtimeDelay
from async_wrappers.agents.experiment.checkpoint import Checkpointer
from async_wrappers.agents.families.actor_critic.ppo import PPO
from async_wrappers.agents.learning.diverged import DivergedError
from async_wrappers.agents.learning.making import make_learner
from async_wrappers.agents.losses.actor_critic import normalized
from async_wrappers.agents.losses.loss import Networks
from async_wrappers.agents.networks.cores import LSTMCore
from async_wrappers.agents.networks.policy_value import create_policy_value_network
from async_wrappers.agents.play.many.vector_agent import VectorAgent
from async_wrappers.agents.play.turns.agents import Agent
from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent
from async_wrappers.agents.play.turns.turns import play_episode
from async_wrappers.batched.vector_envs import VectorEnvs
from async_wrappers.policy import Decision, Memory
from tests.contracts.agent_contract import AgentContract, play
from tests.worlds.dict_env import DictEnv
from tests.worlds.experiments import load_gin
from tests.worlds.many_worlds import rounds, vector_envs
from tests.worlds.plain_data import assert_identical
from tests.worlds.steered_env import SteeredEnv

small = partial(create_policy_value_network, hidden=(6, 6))
lstm = partial(create_policy_value_network, core=lambda size: LSTMCore(size, 4), feed_previous=True)


def hyperparameters(**arguments: Any) -> dict[str, Any]:
    return {
        "network": small,
        "update_period": 24,
        "batch_size": 6,
        "num_epochs": 2,
        "unroll_length": 3,
        "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.02),
        "device": "cpu",
        "summary_writing_frequency": 1,
        **arguments,
    }


class PPOContract(AgentContract):
    """Two minibatches a pass: what they hold is tested below."""

    arguments: dict[str, Any] = {}
    played = "turn-based"

    def make_agent(self, environment: gym.Env[Any, Any], seed: int) -> Agent:
        few = {"batch_size": 12, "unroll_length": 6, **self.arguments}
        return TurnBasedAgent.playing(PPO, environment, **hyperparameters(seed=seed, **few))


class RealPPOContract(PPOContract):
    """Of actions that are real numbers."""

    def make_environment(self, **arguments: Any) -> Any:
        return SteeredEnv(**arguments)


class TestDiscrete(PPOContract):
    played = "delay 5, noops 3"


class TestDiscreteWithMemory(PPOContract):
    arguments = {"network": lstm, "clip_critic_loss": True, "entropy_coefficient": 0.1}


class TestOnADict(PPOContract):
    arguments = {"stack_size": 2, "target_kl": 0.01}

    def make_environment(self, **arguments: Any) -> Any:
        return DictEnv(picture=False, **arguments)


class TestRealWithAWindow(RealPPOContract):
    arguments = {"network": partial(small, action_window=2), "unroll_length": 1}
    played = "delay 5, noops 3"


class Chunked(RealtimeDelay):
    """An environment that takes chunks of real-valued actions."""

    def __init__(self, **arguments: Any) -> None:
        self.inside = SteeredEnv(**arguments)
        super().__init__(self.inside, 2, 3, "chunk")

    @property
    def lives(self) -> Any:
        """Those of the environment inside."""
        return self.inside.lives


class TestOnChunksOfABox(RealPPOContract):
    arguments = {"network": partial(lstm, std="network"), "normalize_rewards": False}

    def make_environment(self, **arguments: Any) -> Any:
        return Chunked(**arguments)


# Rounds.


def vector(num_envs: int, make_env: Callable[[], Any] = SteeredEnv, **arguments: Any) -> tuple[VectorAgent, VectorEnvs]:
    envs = vector_envs(num_envs, make_env)
    spec = PPO(envs.observation_space, envs.action_space, **hyperparameters(**arguments))
    return VectorAgent(spec, num_envs), envs


def watched(agent: Any) -> list[dict[str, Any]]:
    """The minibatches that the agent's loss sees from now on."""
    seen: list[dict[str, Any]] = []
    learner, spec = agent.learner, agent.spec
    loss = learner._loss

    def keep(networks: Networks, batch: Any, rng: Any) -> Any:
        with torch.no_grad():
            (parameters, _), _ = spec._forward(networks, batch["read"], batch["state"])
            log_ratios = spec._log_prob(parameters, batch) - batch["log_mu"]
        mask = batch.get("mask", torch.ones_like(log_ratios))
        seen.append({**batch, "log_ratios": log_ratios * mask, "mask": mask, "updates": learner.updates})
        return loss(networks, batch, rng)

    learner._loss = keep
    return seen


@pytest.mark.parametrize(("network", "num_envs"), [(small, 1), (lstm, 5)])
def test_each_decision_is_in_one_minibatch_of_each_pass(network: Any, num_envs: int) -> None:
    agent, envs = vector(num_envs, lambda: SteeredEnv(lengths=[7, 2, 11]), network=network)
    seen = watched(agent)
    rounds(agent, envs, 240 // num_envs)
    assert agent.learner.updates >= 6
    size = -(-24 // num_envs) * num_envs
    for update in range(agent.learner.updates):
        of_update = [batch for batch in seen if batch["updates"] == update]
        assert len(of_update) == 2 * 4  # epochs and minibatches
        passes = []
        for half in (of_update[:4], of_update[4:]):
            drifts = []
            for batch in half:
                drifts += batch["read"]["observation"][batch["mask"] > 0][:, 0, 0].tolist()
            assert len(set(drifts)) == len(drifts) == size
            passes.append(drifts)
        assert sorted(passes[0]) == sorted(passes[1]) and passes[0] != passes[1]


@pytest.mark.parametrize("network", [small, partial(small, std="network")])
def test_in_the_first_pass_the_policy_is_the_one_that_acted(network: Any) -> None:
    agent, envs = vector(
        4, network=network, optimizer=lambda p: torch.optim.SGD(p, lr=0.3), num_epochs=1, store_version=True
    )
    seen = watched(agent)
    rounds(agent, envs, 100)
    assert agent.learner.updates > 5
    first = [next(batch for batch in seen if batch["updates"] == update) for update in range(agent.learner.updates)]
    for batch in first[1:]:
        # The decision that began before the update was made by the weights before.
        fresh = batch["version"] == batch["updates"]
        assert batch["log_ratios"][fresh].abs().max() < 1e-4
    assert max(batch["log_ratios"].abs().max() for batch in seen) > 3e-2


def test_before_the_first_update_the_statistics_are_those_of_its_round() -> None:
    agent, envs = vector(4, lambda: SteeredEnv(lengths=[6]))
    network: Any = agent.learner.network
    seen = watched(agent)
    rounds(agent, envs, 8)
    assert agent.learner.updates == 1
    moments = network.observations.moments[0]
    assert moments.count.item() == 24
    # What the network reads in the first pass is normalised by them.
    rows = torch.cat([batch["read"]["observation"].flatten(0, 1) for batch in seen[:4]])
    torch.testing.assert_close(rows.mean(0), torch.zeros(1, 3), atol=1e-5, rtol=0)
    torch.testing.assert_close(rows.var(0, correction=0), torch.ones(1, 3), atol=1e-4, rtol=0)


def test_statistics_change_between_two_updates_alone_and_are_published_and_saved() -> None:
    agent, envs = vector(4)
    seen: list[tuple[int, float]] = []
    learner: Any = agent.learner
    loss = learner._loss

    def keep(networks: Networks, batch: Any, rng: Any) -> Any:
        seen.append((learner.updates, learner.network.observations.moments[0].count.item()))
        return loss(networks, batch, rng)

    learner._loss = keep
    rounds(agent, envs, 60)
    counts = [{count for update, count in seen if update == each} for each in range(learner.updates)]
    assert counts[:4] == [{24.0}, {24.0}, {48.0}, {72.0}]
    names = set(learner.weights()) & set(learner.state_dict()["network"])
    assert {"observations.moments.0.mean", "rewards.returns.variance"} <= names


def test_rewards_are_divided_by_the_deviation_of_the_discounted_return() -> None:
    agent, envs = vector(2, lambda: SteeredEnv(lengths=[9, 4]), gamma=0.5, lambda_=0.0)
    learner: Any = agent.learner
    batches = []
    sample = learner.source.sample

    def keep() -> Any:
        batches.append(sample())
        return batches[-1]

    learner.source.sample = keep
    rounds(agent, envs, 90)
    returns = np.concatenate([batch["return"][batch["mask"] > 0] for batch in batches])
    moments = learner.network.rewards.returns
    assert moments.variance.item() == pytest.approx(returns.var(), rel=1e-4)
    assert moments.count.item() == len(returns) > 100
    # Each environment's returns by hand, from its rows in their order.
    for batch in batches:
        for column in range(batch["mask"].shape[1]):
            for t in range(1, len(batch["mask"])):
                if batch["mask"][t, column]:
                    before = 0.0 if batch["first"][t, column] else batch["return"][t - 1, column]
                    expected = 0.5 * before + batch["reward"][t, column]
                    assert batch["return"][t, column] == pytest.approx(expected, rel=1e-6)


def test_passes_end_where_the_policy_has_moved_too_far() -> None:
    for target, passes in ((1e-6, 1), (1e6, 3)):
        agent, envs = vector(4, optimizer=lambda p: torch.optim.SGD(p, lr=0.3), num_epochs=3, target_kl=target)
        seen = watched(agent)
        rounds(agent, envs, 30)
        assert agent.learner.updates > 2 and len(seen) == 4 * passes * agent.learner.updates


def test_the_loss_learns_from_what_was_drawn_and_the_environment_gets_it_clipped() -> None:
    agent, envs = vector(1, normalize_observations=False)
    network: Any = agent.learner.network
    with torch.no_grad():
        network.network.parameters_of.log_std.fill_(1.0)
    seen = watched(agent)
    rounds(agent, envs, 60)
    drawn = torch.cat([batch["action"].flatten(0, 1) for batch in seen])
    # Stored actions have the bounds -1 and 1; the world refuses one out of its box.
    assert (drawn.abs() > 1).float().mean() > 0.3


def test_evaluation_takes_the_mean_unless_actions_are_drawn() -> None:
    env = SteeredEnv(lengths=[60])
    agent = TurnBasedAgent.playing(PPO, env, **hyperparameters(update_period=10_000, batch_size=100))
    (actions,) = play(agent, env, [0], eval_mode=True)
    # The first policy's mean is near the middle of the box, [0, 3/2], whatever is observed.
    assert np.abs(np.array(actions) - [0.0, 1.5]).max() < 0.3
    agent.spec.drawn_evaluation = True  # type: ignore[attr-defined]
    (actions,) = play(agent, env, [0], eval_mode=True)
    assert np.array(actions).std(0).min() > 0.3


def test_unbounded_actions_are_passed_on_as_they_are() -> None:
    env = SteeredEnv(bounded=False)
    agent = TurnBasedAgent.playing(PPO, env, **hyperparameters())
    play(agent, env, range(12))
    assert agent.updates > 3
    assert np.abs(np.array(env.received)).max() > 1.5


def test_each_of_several_learners_has_its_part_of_a_round() -> None:
    spec = PPO(Box(-1, 1, (3,)), Box(-1, 1, (2,)), device="cpu")
    assert spec.share_of(2) == {"update_period": 1024, "batch_size": 32}
    with pytest.raises(ValueError, match=r"^update_period must be a multiple of the 3 learners, got 2048$"):
        spec.share_of(3)


@pytest.mark.parametrize(
    ("arguments", "num_envs", "message"),
    [
        ({"batch_size": 25}, 1, r"batch_size must be <= update_period, the 24 decisions of a round, got 25"),
        (
            {"network": lstm, "unroll_length": 7},
            1,
            r"unroll_length must be <= batch_size, the 6 rows of a minibatch, got 7",
        ),
        ({"sources": [("standard", 1.0)]}, 1, r"sources must be None with agent 'ppo', which learns from a round once"),
        ({"prefetch": True}, 1, r"prefetch must be False with agent 'ppo', which learns from a round once, got True"),
    ],
)
def test_settings_that_do_not_fit_are_refused(arguments: dict[str, Any], num_envs: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        vector(num_envs, **arguments)


@pytest.mark.parametrize("space", [MultiBinary(3), Dict(a=Discrete(2))])
def test_other_action_spaces_are_refused(space: Any) -> None:
    with pytest.raises(ValueError, match=r"agent 'ppo' needs Discrete or real-valued \(Box\) actions, or a chunk of"):
        PPO(Box(-1, 1, (3,)), space)


def test_entries_of_a_chunk_that_differ_are_refused() -> None:
    with pytest.raises(ValueError, match=r"agent 'ppo' needs Discrete actions, or a chunk of them that are alike"):
        PPO(Box(-1, 1, (3,)), MultiDiscrete([2, 3]))


def test_a_mean_of_chunks_is_refused_in_learning_and_played_in_evaluation() -> None:
    env = RealtimeDelay(SteeredEnv(), 2, 1, Chunk(8, mean="average"))
    agent = TurnBasedAgent.playing(PPO, env, **hyperparameters())
    sentence = r"^Chunk\.mean must be None where agent 'ppo' learns, .* got 'average': "
    with pytest.raises(ValueError, match=sentence):
        play_episode(agent, env, 0)
    with pytest.raises(ValueError, match=sentence):
        VectorAgent(agent.spec, 1).observe(SimpleNamespace())
    agent.eval_mode = True
    play_episode(agent, env, 0)


def test_a_run_that_would_learn_from_a_mean_of_chunks_is_refused_before_it_begins(tmp_path: Path) -> None:
    from async_wrappers.agents.registry import create_runner

    chunk = ("RealtimeDelay.default_action = @Chunk()", "Chunk.length = 4", "Chunk.mean = 'average'")
    load_gin("configs/ppo/pendulum.gin", bindings=["create_gym_environment.wrappers = [@RealtimeDelay]", *chunk])
    with pytest.raises(ValueError, match=r"^Chunk\.mean must be None where agent 'ppo' learns"):
        create_runner(tmp_path).resume()


def test_a_learner_that_is_one_of_several_is_refused() -> None:
    spec = PPO(Box(-1, 1, (3,)), Box(-1, 1, (2,)), **hyperparameters())
    with pytest.raises(ValueError, match=r"learners must be 1 with agent 'ppo', whose update has several gradient st"):
        make_learner(spec, 0, 2)


def test_an_action_that_is_no_number_is_refused() -> None:
    env = SteeredEnv()
    agent = TurnBasedAgent.playing(PPO, env, **hyperparameters())
    with torch.no_grad():
        agent.learner.network.network.biases[-1].fill_(torch.nan)
    with pytest.raises(DivergedError, match=r"agent 'ppo' chose an action that is no finite number, .*: its weights"):
        play(agent, env, [0])


class SpoiltEnv(gym.Wrapper[Any, Any, Any, Any]):
    """Returns a number in the place of one of its observation, once.

    Args:
        value: The number.
        when: The observation's number.
    """

    def __init__(self, value: float, when: int) -> None:
        super().__init__(SteeredEnv())
        self.observation_space = Box(-np.inf, np.inf, self.env.observation_space.shape)
        self._value, self._left = value, when

    def reset(self, **arguments: Any) -> Any:
        observation, info = self.env.reset(**arguments)
        return self._spoilt(observation), info

    def step(self, action: Any) -> Any:
        observation, *others = self.env.step(action)
        return self._spoilt(observation), *others

    def _spoilt(self, observation: Any) -> Any:
        self._left -= 1
        spoilt = np.array(observation, np.float32)
        spoilt.flat[0] = self._value if self._left == 0 else spoilt.flat[0]
        return spoilt


@pytest.mark.parametrize("core", [None, "lstm"])
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.nan, r"^the environment returned nan as its observation\[0\], for which agent 'ppo' chose an acti"),
        (np.inf, r"^the environment returned inf as its observation\[0\], which spoils the running statistics"),
        (3e38, r"^the environment returned an observation that is too large for float32, which spoils the running sta"),
    ],
)
def test_an_observation_that_is_not_finite_is_the_environments_fault(
    value: float, message: str, core: str | None
) -> None:
    network = partial(create_policy_value_network, core=core)
    env = SpoiltEnv(value, 5)
    agent = TurnBasedAgent.playing(PPO, env, **hyperparameters(network=network, normalize_observations=True))
    with pytest.raises(DivergedError, match=message):
        play(agent, env, range(99))


def test_features_that_are_not_finite_are_no_fault_of_finite_weights() -> None:
    env = SteeredEnv()
    network = partial(create_policy_value_network, core="lstm")
    policy = PPO(env.observation_space, env.action_space, **hyperparameters(network=network)).make_policy()
    decision = Decision(0, 0, 0, False)
    features = policy.encode(env.reset(seed=0)[0], decision)
    spoilt = np.full_like(features, np.nan)
    memory = Memory(None, 0.0, True, None)
    with pytest.raises(DivergedError, match=r"though its weights are finite: what it observed is not, or is too large"):
        policy.release(spoilt, memory, decision)


@pytest.mark.parametrize("std", ["parameter", "network"])
@pytest.mark.parametrize("log_std", [-1e4, 1e4])
def test_a_standard_deviation_neither_vanishes_nor_explodes(std: str, log_std: float) -> None:
    spec = PPO(Box(-1, 1, (3,)), Box(-1, 1, (2,)), **hyperparameters(network=partial(small, std=std)))
    network: Any = spec.make_network()
    with torch.no_grad():
        if std == "parameter":
            network.network.parameters_of.log_std.fill_(log_std)
        else:
            network.network.biases[-1][0, :, 2:] = log_std
    (parameters, _), _ = network(
        torch.zeros(1, 1, 1, 3), torch.zeros(1, 1, 2), torch.zeros(1, 1), torch.ones(1, 1).bool(), torch.zeros(1, 0)
    )
    assert parameters[0, 0, 2:].tolist() == ([-10.0] * 2 if log_std < 0 else [4.0] * 2)


def test_a_reward_that_is_not_finite_stops_learning(tmp_path: Path) -> None:
    agent, envs = vector(4, diverged_dir=str(tmp_path))
    extend = agent.learner.extend
    agent.learner.extend = lambda block: extend({**block, "reward": block["reward"] * np.nan})
    with pytest.raises(DivergedError, match=r"^the environment returned nan as its reward"):
        rounds(agent, envs, 60)


def test_a_worker_stores_the_version_that_it_was_given() -> None:
    spec = PPO(Box(-1, 1, (3,)), Box(-1, 1, (2,)), **hyperparameters(store_version=True))
    policy = spec.make_policy()
    policy.load_weights(policy.weights(), 17)
    output = policy.act(np.zeros(3, np.float32), Decision(episode=0, start=0, frame=0, eval_mode=False))
    assert output.extras["version"] == 17 and output.extras["drawn"].dtype == np.float32


@pytest.mark.parametrize("network", [small, lstm])
def test_the_lag_is_reported(network: Any) -> None:
    agent, envs = vector(4, network=network, store_version=True)
    rounds(agent, envs, 30)
    # Of the 6 decisions of each environment, the first began before the update.
    assert agent.learner.updates > 2 and agent.learner.scalars["Lag"].item() == pytest.approx(1 / 6, abs=0.03)


def test_overlapping_updates_learn_from_the_same_rounds() -> None:
    agent, envs = vector(4, store_version=True)
    agent.overlap_learning()
    rounds(agent, envs, 60)
    agent.finish_update()
    assert agent.learner.updates > 6
    assert 0 < agent.learner.scalars["Lag"].item() <= 2


# Beside Stable-Baselines3.


class Still(gym.Env[Any, Any]):
    """Spaces alone."""

    def __init__(self, action_space: Any) -> None:
        self.observation_space, self.action_space = Box(-np.inf, np.inf, (5,), np.float32), action_space

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(5, np.float32), {}


@pytest.mark.parametrize("clipped", [False, True])
@pytest.mark.parametrize("space", [Box(-1, 1, (2,)), Discrete(3)], ids=["Box", "Discrete"])
def test_the_gradient_of_a_minibatch_is_that_of_stable_baselines3(space: Any, clipped: bool) -> None:
    """Departures: none in the loss; with a clipped value, SB3 lacks the maximum of the two errors (Huang et al.)."""
    stable_baselines3 = pytest.importorskip("stable_baselines3")
    from torch.nn.functional import mse_loss

    theirs = stable_baselines3.PPO("MlpPolicy", Still(space), device="cpu", seed=0).policy
    spec = PPO(Box(-np.inf, np.inf, (5,), np.float32), space, device="cpu", entropy_coefficient=0.01,
               normalize_observations=False, normalize_rewards=False, clip_critic_loss=clipped)  # fmt: skip
    ours: Any = spec.make_network()
    extractor = theirs.mlp_extractor
    layers = [
        (extractor.policy_net[0], extractor.value_net[0]),
        (extractor.policy_net[2], extractor.value_net[2]),
        (theirs.action_net, theirs.value_net),
    ]
    with torch.no_grad():
        for weight, bias, pair in zip(ours.weights, ours.biases, layers, strict=True):
            for part, layer in enumerate(pair):
                weight[part, :, : layer.out_features] = layer.weight.T
                bias[part, 0, : layer.out_features] = layer.bias
    rng = torch.Generator().manual_seed(1)
    rows = 64
    observation = torch.randn(rows, 5, generator=rng)
    advantage, target, old_value, noise = torch.randn(4, rows, generator=rng)
    action = torch.randn(rows, 2, generator=rng) if spec.real else torch.randint(3, (rows,), generator=rng)
    values, log_prob, entropy = theirs.evaluate_actions(observation, action)
    log_mu = log_prob.detach() + 0.3 * noise
    # The loss of PPO.train.
    ratio, normal = (log_prob - log_mu).exp(), (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    policy_loss = -torch.min(normal * ratio, normal * ratio.clamp(0.8, 1.2)).mean()
    value = values.flatten()
    value_loss = mse_loss(target, value)
    if clipped:
        held = old_value + (value - old_value).clamp(-0.2, 0.2)
        value_loss = torch.maximum((value - target) ** 2, (held - target) ** 2).mean()
    (policy_loss - 0.01 * entropy.mean() + 0.5 * value_loss).backward()
    columns = {"action": action, "log_mu": log_mu, "target": target, "old_value": old_value}
    columns["advantage"] = normalized(advantage.unsqueeze(0), torch.ones(1, rows), [rows])[0]
    batch = {
        "read": {"observation": observation.view(1, rows, 1, 5), "first": torch.zeros(1, rows, dtype=torch.bool)},
        "state": torch.zeros(rows, 0),
        **{name: column.unsqueeze(0) for name, column in columns.items()},
    }
    networks = Networks(ours, ours, ours)
    spec.loss(networks, batch, np.random.default_rng(0)).loss.mean().backward()
    for weight, bias, pair in zip(ours.weights, ours.biases, layers, strict=True):
        for part, layer in enumerate(pair):
            outputs = layer.out_features
            torch.testing.assert_close(weight.grad[part, :, :outputs], layer.weight.grad.T, atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(bias.grad[part, 0, :outputs], layer.bias.grad, atol=1e-5, rtol=1e-5)
    if spec.real:
        torch.testing.assert_close(ours.parameters_of.log_std.grad, theirs.log_std.grad, atol=1e-5, rtol=1e-5)


def test_it_learns_to_steer() -> None:
    adam = partial(torch.optim.Adam, lr=3e-3)
    agent, envs = vector(8, lambda: SteeredEnv(lengths=[10]), update_period=160, batch_size=32, num_epochs=6,
                         optimizer=adam)  # fmt: skip
    envs.begin(list(range(8)))
    scores: list[float] = []
    for _ in range(300):
        shown = envs.recv()
        scores += [each.score for each in agent.observe(shown)]
        envs.send(shown.env_ids, agent.act(shown))
    assert np.mean(scores[-80:]) > np.mean(scores[:80]) + 5


# Live, on the virtual clock.


def live(base_dir: Path, iterations: int) -> list[Any]:
    """The learners that a live run ends with."""
    from async_wrappers.agents.registry import create_runner

    every = (
        "create_runner.schedule = 'realtime'",
        "create_gym_environment.wrappers = []",
        "LiveRunner.create_async_runner_fn = @AsyncRunner",
        "AsyncRunner.backend = 'virtual'",
        "AsyncRunner.workers = 2",
        "AsyncRunner.fps = 50",
        "AsyncRunner.latency = 0.03",
        "AsyncRunner.learner_latency = 0.015",
        "AsyncRunner.default_action = 'repeat'",
        "create_policy_value_network.hidden = (6, 6)",
        "PPOAgent.update_period = 12",
        "PPOAgent.batch_size = 6",
        "PPOAgent.unroll_length = 1",
        "create_policy_value_network.action_window = 2",
        "PPOAgent.num_epochs = 2",
        "PPOAgent.when_full = 'drop_oldest'",
        "PPOAgent.store_version = True",
        "PPOAgent.learning_rate_decay = None",
        "Runner.training_steps = 60",
        "Runner.max_steps_per_episode = 20",
        "Runner.evaluation_episodes = None",
        "Runner.evaluation_steps = 10",
        "Runner.report_episodes = 0",
        f"Runner.num_iterations = {iterations}",
    )
    load_gin("configs/ppo/pendulum.gin", bindings=every)
    runner = create_runner(base_dir)
    runner.resume()
    runner.run_experiment()
    learners: list[Any] = next(Checkpointer(base_dir).load_each())[1]["learners"]
    return learners


def test_it_learns_live_with_a_window_and_goes_on_bit_for_bit(tmp_path: Path) -> None:
    whole, first = live(tmp_path / "whole", 2), live(tmp_path / "pieces", 1)
    assert 3 < first[0]["updates"] < whole[0]["updates"]
    assert_identical(live(tmp_path / "pieces", 2), whole)


def test_several_learners_are_refused_before_the_run_begins(tmp_path: Path) -> None:
    from async_wrappers.agents.registry import create_runner

    load_gin("configs/live/pendulum_ppo.gin", bindings=["AsyncRunner.learners = 2"])
    with pytest.raises(ValueError, match=r"^AsyncRunner\.learners must be 1 with agent 'ppo', whose update has sev"):
        create_runner(tmp_path)

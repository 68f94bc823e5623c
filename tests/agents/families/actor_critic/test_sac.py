"""SAC: the agent contract in all worlds, its loss on one batch, what it draws and what it refuses."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from pathlib import Path
from typing import Any

import gin
import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from scipy.stats import kstest

from async_wrappers import AsyncRunner
from async_wrappers.agents.acting.decisions import DecisionRandom, Decisions
from async_wrappers.agents.families.actor_critic.sac import SAC
from async_wrappers.agents.hyperparameters import SHARE, agent, number
from async_wrappers.agents.learning.diverged import DivergedError
from async_wrappers.agents.learning.learner import NotShared
from async_wrappers.agents.learning.making import make_learner, maker_of_learners
from async_wrappers.agents.losses.actor_critic import critic_loss, policy_loss, soft_target, temperature_loss
from async_wrappers.agents.losses.values import importance_weighted
from async_wrappers.agents.networks.q_network import create_network
from async_wrappers.agents.networks.sequence_network import create_actor_critic
from async_wrappers.agents.play.many.environments import NumberedEpisodes
from async_wrappers.agents.play.many.vector_agent import VectorAgent
from async_wrappers.agents.play.turns.agents import Agent
from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent
from async_wrappers.agents.play.turns.turns import play_episode
from async_wrappers.agents.registry import create_agent
from async_wrappers.batched.vector_envs import VectorEnvs
from async_wrappers.policy import Decision
from tests.contracts.agent_contract import (
    WORLDS,
    AgentContract,
    assert_apart_as_in_turn,
    assert_virtual_as_simulated,
    play,
)
from tests.worlds.dict_env import DictEnv
from tests.worlds.drifting_env import DriftingEnv
from tests.worlds.many_worlds import vector_envs
from tests.worlds.plain_data import assert_identical
from tests.worlds.recording_env import RecordingEnv

SMALL: dict[str, Any] = {
    "hidden_units": 8,
    "num_layers": 1,
    "min_replay_history": 10,
    "update_period": 6,
    "batch_size": 8,
    "replay_capacity": 2000,
    "target_smoothing_coefficient": 0.1,
    "optimizer": lambda parameters: torch.optim.Adam(parameters, lr=0.03),
    "device": "cpu",
    "summary_writing_frequency": 1,
}


def make_spec(env: Any, **arguments: Any) -> SAC:
    return SAC(env.observation_space, env.action_space, **{**SMALL, **arguments})


def make_agent(env: Any, **arguments: Any) -> TurnBasedAgent:
    return TurnBasedAgent.playing(SAC, env, **{**SMALL, **arguments})


LIVE: dict[str, Any] = {
    "backend": "virtual",
    "seed": 5,
    "fps": 10,
    "latency": 0.05,
    "learner_latency": 0.1,
    "workers": 1,
    "default_action": "random",
}


# The contract.


class SACContract(AgentContract):
    arguments: dict[str, Any] = {}

    def make_environment(self, **arguments: Any) -> Any:
        return DriftingEnv(numbers=2, **arguments)

    def make_agent(self, environment: gym.Env[Any, Any], seed: int) -> Agent:
        return make_agent(environment, seed=seed, **self.arguments)


class TestSAC(SACContract):
    pass


class TestPrioritizedInNSteps(SACContract):
    played = "turn-based"
    arguments = {"replay_scheme": "prioritized", "update_horizon": 3, "stack_size": 2, "num_critics": 3}


class TestWithAWindow(SACContract):
    arguments = {"action_window": 3, "update_horizon": 2}


class TestWithACriticAtTheEffect(SACContract):
    arguments = {"action_window": 2, "critic_at": "effect", "replay_scheme": "prioritized"}


class TestCriticsFirst(SACContract):
    played = "turn-based"
    arguments = {"replay_scheme": "prioritized", "critics_first": True}


class TestOfADict(SACContract):
    arguments = {"replay_eviction": "reservoir", "replay_capacity": 30}

    def make_environment(self, **arguments: Any) -> Any:
        return DictEnv(picture=False, numbers=2, **arguments)


# Policy and learner.


@pytest.mark.parametrize("world", ["turn-based", "delay 2, noops 3"])
def test_policy_and_learner_apart_do_the_same_as_in_turn(world: str, tmp_path: Path) -> None:
    assert_apart_as_in_turn(
        lambda env: make_agent(env, seed=4), lambda: WORLDS[world](DriftingEnv(noop=True, numbers=2)), tmp_path
    )


def test_an_update_computed_in_parallel_acts_one_update_later() -> None:
    runs: dict[str, list[Any]] = {}
    for name, overlaps in (("one", True), ("other", True), ("in turn", False)):
        env = DriftingEnv(noop=True, numbers=2)
        agent = make_agent(env, seed=4)
        if overlaps:
            agent.overlap_learning()
        runs[name] = play(agent, env, range(12))
    assert runs["one"] == runs["other"] != runs["in turn"]


@pytest.mark.parametrize("action_window", [None, 3])
def test_the_runner_on_the_virtual_clock_gives_the_frames_of_the_simulated_delay(action_window: int | None) -> None:
    frozen = {"min_replay_history": 10**6, "random_frames": 20, "seed": 2, "action_window": action_window}
    assert_virtual_as_simulated(lambda env: make_agent(env, **frozen), lambda: DriftingEnv(noop=True, numbers=2))


@pytest.mark.parametrize("arguments", [{}, {"action_window": 2, "critic_at": "effect"}])
def test_it_learns_live_and_workers_receive_the_actor_alone(arguments: dict[str, Any]) -> None:
    env = DriftingEnv(noop=True, numbers=2)
    made = make_spec(env, random_frames=0, decision_interval=None, **arguments)
    terms = {"features": made.features, "report_effect": made.needs_effect, **LIVE}
    with AsyncRunner(lambda: env, made.make_policy, make_learner=maker_of_learners(made), **terms) as runner:
        report = runner.run(episodes=8)
    assert report.updates > 10
    weights = make_learner(made).weights()
    assert weights.keys() == made.make_policy().weights().keys()
    assert not any("critic" in name or "temperature" in name for name in weights)


def test_several_live_learners_are_refused() -> None:
    env = DriftingEnv(noop=True, numbers=2)
    made = make_spec(env, random_frames=0, decision_interval=None)
    message = r"SACLearner publishes the acting part .*, so AsyncRunner\.learners must be 1"
    learners = maker_of_learners(made)
    with (
        AsyncRunner(lambda: env, made.make_policy, make_learner=learners, learners=2, **LIVE) as runner,
        pytest.raises(NotShared, match=message),
    ):
        runner.run(episodes=20)


def numbered(num_envs: int) -> VectorEnvs:
    return vector_envs(num_envs, lambda: NumberedEpisodes(DriftingEnv(numbers=2), 5, 0, num_envs))


@pytest.mark.parametrize("overlap", [False, True])
def test_many_environments_play_and_learn_alike_each_time(overlap: bool) -> None:
    runs = []
    for _ in range(2):
        env = DriftingEnv(numbers=2)
        agent = VectorAgent(make_spec(env, replay_scheme="prioritized", update_horizon=2), 3)
        if overlap:
            agent.overlap_learning()
        envs = numbered(3)
        envs.begin(range(3))
        for _ in range(60):
            shown = envs.recv()
            agent.observe(shown)
            envs.send(shown.env_ids, agent.act(shown))
        agent.observe(envs.cut())
        agent.finish_update()
        runs.append((agent.learner.state_dict(), agent.learner.replay.state_dict()))
        envs.close()
    assert agent.learner.updates > 10
    assert_identical(*runs)


@agent("HeldAgent")
class Held(SAC):
    """A user's own agent: SAC that holds each action near the one that its policy draws, and is bound by gin."""

    name = "held"
    reach: float = number(0.5, "Largest size of a stored action.", SHARE)

    def choose(self, *given: Any) -> Any:
        actions, extras = super().choose(*given)
        return actions.clip(-self.reach, self.reach), extras


OWN = """
create_agent.agent_name = @HeldAgent
HeldAgent.reach = 0.25
SACAgent.hidden_units = 8
SACAgent.batch_size = 4
SACAgent.min_replay_history = 10
SACAgent.replay_capacity = 200
create_adam.learning_rate = 0.125
"""


def test_a_users_own_agent_in_gin_has_the_settings_of_both(no_bindings: None) -> None:
    gin.parse_config(OWN)
    env = DriftingEnv(numbers=2)
    own: Any = create_agent(env, seed=1)
    actions = np.array([action for actions in play(own, env, range(6)) for action in actions])
    np.testing.assert_allclose(np.abs(own.spec.actions.stored(actions)).max(), 0.25, atol=1e-6)
    assert own.learner.updates > 10
    assert own.learner.summary()["LearningRate"] == 0.125


# What is drawn.


def rows(count: int, frame: int, eval_mode: bool = False) -> Decisions:
    return Decisions.of([Decision(0, start, frame, eval_mode) for start in range(count)])


def test_the_first_frames_are_uniform_between_the_bounds_and_then_the_policys() -> None:
    spec = make_spec(DriftingEnv(numbers=2), min_replay_history=50, decision_interval=3, hidden_units=4)
    policy = spec.make_policy_of(make_learner(spec))
    observation = np.zeros((2000, 1, 3), np.float32)
    uniform = policy.act(observation, (), rows(2000, 149)).action
    for place, (low, high) in enumerate(((-1.0, 1.0), (-0.5, 2.0))):
        assert kstest(uniform[:, place], "uniform", (low, high - low)).pvalue > 1e-3
    drawn, mode = (policy.act(observation, (), rows(2000, 150, evaluates)).action for evaluates in (False, True))
    assert len(np.unique(drawn, axis=0)) == 2000 and len(np.unique(mode, axis=0)) == 1
    assert kstest(drawn[:, 0], "uniform", (-1, 2)).pvalue < 1e-3
    early = policy.act(observation, (), rows(2000, 0, True)).action
    np.testing.assert_array_equal(early, mode)  # nothing is random in evaluation


def test_a_decision_alone_is_the_same_as_among_others() -> None:
    spec = make_spec(DriftingEnv(numbers=2), random_frames=6)
    policy = spec.make_policy()
    rng = np.random.default_rng(0)
    asked = [(rng.normal(size=3).astype(np.float32), Decision(i % 5, i, i % 12, bool(i % 3 == 0))) for i in range(40)]
    answers = [policy.act(*question).tolist() for question in asked]
    order = rng.permutation(40)
    assert [policy.act(*asked[i]).tolist() for i in order] == [answers[i] for i in order]


# The loss.


def filled(spec: SAC, count: int = 60, reward: float = 1.0) -> Any:
    learner, rng = make_learner(spec), np.random.default_rng(0)
    for step in range(count):
        learner.observe(
            {
                "observation": rng.normal(size=3).astype(np.float32),
                "action": spec.action_space.low + rng.random(2, np.float32),
                "reward": reward,
                "interval": 1,
                "terminal": step % 10 == 9,
                "truncated": False,
                "next_observation": rng.normal(size=3).astype(np.float32) if step % 10 == 9 else None,
            }
        )
    return learner


def test_the_loss_is_the_sum_of_the_three_with_the_same_draws() -> None:
    spec = make_spec(DriftingEnv(numbers=2), reward_scale_factor=0.5, target_entropy=-3.0, num_critics=3)
    learner = filled(spec)
    network: Any = learner.network
    with torch.no_grad():
        network.log_temperature.fill_(0.5)
    batch = learner.tensors(learner.draw().arrays)
    output = spec.loss(learner.networks, batch, np.random.default_rng(7))

    noise = torch.from_numpy(np.random.default_rng(7).standard_normal((2, 8, 2), dtype=np.float32))
    (next_action, next_log_prob), (drawn, log_prob) = (
        spec.distribution.sample_with_log_prob(
            network.actor(batch[name][None], None, None, None, torch.zeros(8, 0))[0][0], noise[place]
        )
        for place, name in enumerate(("next_observation", "observation"))
    )
    alpha = torch.tensor(0.5).exp()
    target = soft_target(
        0.5 * batch["reward"],
        batch["discount"],
        learner.target(batch["next_observation"], next_action).detach(),
        next_log_prob.detach(),
        alpha,
    )
    of_critics = critic_loss(network.critics(batch["observation"], batch["action"]), target)
    of_policy = policy_loss(log_prob, network.critics(batch["observation"], drawn), alpha)
    of_temperature = temperature_loss(network.log_temperature, log_prob, -3.0)
    torch.testing.assert_close(output.loss, of_critics + of_policy + of_temperature)
    error = (network.critics(batch["observation"], batch["action"]) - target).abs().mean(0)
    assert output.priority is not None
    torch.testing.assert_close(output.priority, error.detach())

    # Each loss's gradient reaches its own weights and no others.
    wanted = {
        **_gradients(of_critics.mean(), network.critics, "critics."),
        **_gradients(of_policy.mean(), network.actor, "actor."),
    }
    output.loss.mean().backward()
    for name, gradient in wanted.items():
        torch.testing.assert_close(dict(network.named_parameters())[name].grad, gradient)
    entropy = -log_prob.mean().item()
    assert network.log_temperature.grad.item() == pytest.approx(entropy + 3, abs=1e-5)


def at_effect(spec: SAC) -> dict[str, Any]:
    """Return a batch of a spec with a critic at the effect, from random observations."""
    rng = torch.Generator().manual_seed(3)

    def observation() -> dict[str, torch.Tensor]:
        return {name: torch.randn((8, 1, 3), generator=rng) for name in ("start", "effect")}

    of_window = {} if spec.action_window is None else dict.fromkeys(("action_window", "next_action_window"))
    return {
        "observation": observation(),
        "next_observation": observation(),
        "action": torch.rand((8, 2), generator=rng) * 2 - 1,
        "reward": torch.randn(8, generator=rng),
        "discount": torch.full((8,), 0.9),
        **{name: torch.rand((8, 2, 2), generator=rng) * 2 - 1 for name in of_window},
    }


@pytest.mark.parametrize("action_window", [None, 2])
def test_where_starts_are_effects_and_no_window_is_read_both_critics_learn_alike(action_window: int | None) -> None:
    spec = make_spec(DriftingEnv(numbers=2), critic_at="effect", action_window=action_window)
    networks = make_learner(spec).networks
    batch = at_effect(spec)
    for name in ("observation", "next_observation"):
        batch[name]["effect"] = batch[name]["start"]
    plain = {**batch, **{name: batch[name]["start"] for name in ("observation", "next_observation")}}
    of_start = make_spec(DriftingEnv(numbers=2), action_window=None)
    if action_window is None:
        wanted = of_start.loss(networks, plain, np.random.default_rng(1)).loss
        torch.testing.assert_close(spec.loss(networks, batch, np.random.default_rng(1)).loss, wanted)
    else:  # the critics read no window, so those of an agent without one fit
        network: Any = networks.module
        assert network.critics(batch["observation"]["effect"], batch["action"]).shape == (2, 8)


@pytest.mark.parametrize("action_window", [None, 2])
def test_the_critics_read_the_effect_alone_and_the_policy_the_start_and_the_window(action_window: int | None) -> None:
    spec = make_spec(DriftingEnv(numbers=2), critic_at="effect", action_window=action_window)
    networks = make_learner(spec).networks
    batch = at_effect(spec)

    def metrics(changed: Any) -> dict[str, torch.Tensor]:
        return dict(spec.loss(networks, changed, np.random.default_rng(1)).metrics)

    before = metrics(batch)
    other = {**batch["observation"], "effect": batch["observation"]["effect"] + 1}
    effect = metrics({**batch, "observation": other})
    assert effect["Entropy"] == before["Entropy"] and effect["Value"] != before["Value"]
    other = {**batch["observation"], "start": batch["observation"]["start"] + 1}
    start = metrics({**batch, "observation": other})
    assert start["Entropy"] != before["Entropy"] and start["Value"] == before["Value"]
    if action_window is not None:
        moved = metrics({**batch, "action_window": -batch["action_window"]})
        assert moved["Entropy"] != before["Entropy"] and moved["Value"] == before["Value"]


def test_critics_at_the_start_read_the_window_too() -> None:
    spec = make_spec(DriftingEnv(numbers=2), action_window=2)
    networks = make_learner(spec).networks
    batch = at_effect(spec)
    batch |= {name: batch[name]["start"] for name in ("observation", "next_observation")}
    moved = {**batch, "action_window": -batch["action_window"]}
    values = [spec.loss(networks, each, np.random.default_rng(1)).metrics["Value"] for each in (batch, moved)]
    assert values[0] != values[1]


def test_with_critics_first_the_policy_is_learnt_on_the_critics_after_their_step() -> None:
    steps: dict[str, Any] = {"optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.1)}
    spec = make_spec(DriftingEnv(numbers=2), critics_first=True, replay_scheme="prioritized", **steps)
    learner, by_hand = filled(spec), filled(spec)
    learner.update()

    batch, rng = by_hand.tensors(by_hand.draw().arrays), DecisionRandom(spec.learning_seed).draw(0, 0, False)
    network: Any = by_hand.network
    learnt = {
        "critics": [*network.critics.parameters()],
        "policy": [*network.actor.parameters(), network.log_temperature],
    }
    for step, parameters in learnt.items():
        output = spec.loss(by_hand.networks, {**batch, "step": step}, rng)
        found = torch.autograd.grad(importance_weighted(output.loss, batch["weight"]), parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, found, strict=True):
                parameter.sub_(0.1 * gradient)
    torch.testing.assert_close(learner.network.state_dict(), network.state_dict())
    before, after = by_hand.target.state_dict(), network.critics.state_dict()
    target = {name: before[name].lerp(after[name], 0.1) for name in before}  # one step of it, not two
    torch.testing.assert_close(dict(learner.target.state_dict()), target)
    assert learner.updates == 1


def _gradients(loss: torch.Tensor, module: torch.nn.Module, prefix: str) -> dict[str, torch.Tensor]:
    found = torch.autograd.grad(loss, list(module.parameters()), retain_graph=True)
    return {prefix + name: each for (name, _), each in zip(module.named_parameters(), found, strict=True)}


def test_the_temperature_falls_where_the_entropy_is_above_its_target_and_rises_below() -> None:
    for target, rises in ((-20.0, False), (20.0, True)):
        learner = filled(make_spec(DriftingEnv(numbers=2), target_entropy=target))
        for _ in range(5):
            scalars = learner.update()
        assert (float(scalars["Temperature"]) > 1) == rises


def test_values_become_the_discounted_rewards() -> None:
    spec = make_spec(DriftingEnv(numbers=2), gamma=0.0)
    learner = filled(spec)
    for _ in range(150):
        scalars = learner.update()
    assert float(scalars["Value"]) == pytest.approx(1.0, abs=0.1)


def test_the_target_entropy_is_by_default_minus_the_numbers_of_an_action() -> None:
    assert make_spec(DriftingEnv(numbers=2)).entropy_target == -2.0
    assert make_spec(DriftingEnv(numbers=2), target_entropy=-1).entropy_target == -1


@pytest.mark.parametrize("scheme", ["uniform", "prioritized"])
def test_a_loss_that_is_not_finite_ends_the_run(scheme: str, tmp_path: Path) -> None:
    learner = filled(make_spec(DriftingEnv(numbers=2), replay_scheme=scheme), reward=float("inf"))
    learner.diverged_dir = tmp_path
    with pytest.raises(DivergedError):
        learner.update()


def test_deviations_that_explode_or_collapse_are_clipped() -> None:
    spec = make_spec(DriftingEnv(numbers=2))
    learner = filled(spec)
    head = learner.network.actor.head.layers[-1]
    for log_std in (-1e9, 1e9):
        with torch.no_grad():
            head.bias[2:] = log_std
        loss = learner.update()["Loss"]
        assert bool(loss.isfinite())
        action = spec.make_policy_of(learner).act(np.zeros((4, 1, 3), np.float32), (), rows(4, 10**6)).action
        assert all(spec.action_space.contains(each) for each in action)


# Refusals.

SPACES: Iterable[tuple[gym.Space[Any], str]] = (
    (Discrete(3), r"agent 'sac' needs a Box of real-valued actions, got Discrete\(3\): take agent 'dqn' or 'ppo'"),
    (MultiDiscrete([3, 3]), r"agent 'sac' needs a Box of real-valued actions, got Multi.*: take agent 'ppo' or 'vtrac"),
    (MultiDiscrete([2, 3]), r"agent 'sac' needs a Box .*, got MultiDiscrete.*: turn them into such a Box in an Action"),
    (
        MultiBinary(2),
        r"agent 'sac' needs a Box of real-valued actions, got MultiBinary\(2\): turn them into such a Box",
    ),
    (Box(-np.inf, 1, (2,)), r"agent 'sac' needs a Box with finite bounds, got Box.*: take agent 'ppo'"),
    (Box(-np.inf, 1, (4, 2)), r"agent 'sac' needs a Box with finite bounds, got Box.*: take agent 'ppo'"),
    (
        Box(-1, 1, (0,)),
        r"agent 'sac' needs an action of one number at least, got Box\(\[\], \[\], \(0,\), float32\): give",
    ),
    (Box(-1, 1, (4, 2)), r"agent 'sac' needs a Box of one dimension, got Box.*: take agent 'ppo', or flatten"),
)


@pytest.mark.parametrize(("space", "message"), SPACES)
def test_other_actions_are_refused_with_the_agent_to_take(space: gym.Space[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SAC(Box(-1, 1, (3,)), space, **SMALL)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"actor_priorities": True, "replay_scheme": "prioritized"}, "actor_priorities must be False with agent 'sac'"),
        (
            {"compile": True},
            "compile must be False with agent 'sac', whose losses compute no faster",
        ),
        ({"target_smoothing_coefficient": 0}, r"target_smoothing_coefficient must lie in \(0, 1\], got 0"),
        ({"decision_interval": None}, r"SACAgent\.random_frames must be bound, in frames, where .* min_replay_history"),
        ({"num_critics": 0}, "num_critics must be >= 1 critic, got 0"),
    ],
)
def test_settings_that_it_cannot_use_are_refused_in_one_sentence(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_spec(DriftingEnv(numbers=2), **arguments)


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (lambda *given: torch.nn.Linear(3, 4), "network must have actor, critics, log_temperature with agent 'sac'"),
        (lambda shape, actions, *sizes: create_network(shape, 4), "network must have actor, critics, log_temperature"),
        (
            lambda shape, actions, *sizes: _with_actor(create_actor_critic(shape, 4, feed_previous=False)),
            r"network must give \[\(1, 1, 4\)\]",
        ),
    ],
)
def test_a_network_that_does_not_fit_is_refused(network: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_spec(DriftingEnv(numbers=2), network=network).make_network()


def _with_actor(actor: Any) -> torch.nn.Module:
    network = torch.nn.Module()
    network.actor, network.critics, network.log_temperature = actor, torch.nn.Identity(), torch.zeros(())
    return network


def test_an_action_that_is_no_number_is_refused() -> None:
    spec = make_spec(DriftingEnv(numbers=2))
    learner = make_learner(spec)
    policy = spec.make_policy_of(learner)
    with torch.no_grad():
        for parameter in learner.network.actor.parameters():
            parameter.fill_(torch.nan)
    with pytest.raises(DivergedError, match="agent 'sac' chose an action that is no finite number"):
        policy.act(np.zeros((1, 1, 3), np.float32), (), rows(1, 10**6))
    transition = {"observation": np.zeros(3, np.float32), "reward": 0.0, "interval": 1, "terminal": True}
    transition |= {"truncated": False, "next_observation": np.zeros(3, np.float32)}
    with pytest.raises(ValueError, match="action must be finite float32 numbers with agent 'sac', got"):
        learner.observe({**transition, "action": np.array([np.nan, 0.0], np.float32)})


def test_the_agent_on_another_device_acts_on_a_copy_of_the_actor() -> None:
    spec = make_spec(DriftingEnv(numbers=2))
    learner = make_learner(spec)
    policy = spec.make_device_policy(learner, 2, "cpu")
    before = deepcopy(dict(policy.weights()))
    with torch.no_grad():
        for parameter in learner.network.parameters():
            parameter.add_(1.0)
    assert_identical(dict(policy.weights()), before)
    policy.load_weights(learner.weights(), 1)
    assert_identical(dict(policy.weights()), dict(learner.network.actor.state_dict()))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_an_action_of_shape_nothing_has_the_dtype_of_its_space(dtype: Any) -> None:
    env = RecordingEnv(3, action_space=Box(-2, 3, (), dtype))
    agent = TurnBasedAgent.playing(SAC, env, device="cpu", min_replay_history=9, replay_capacity=50)
    play_episode(agent, env, 0)
    of_worker = agent.spec.make_policy().act(np.zeros(3, np.int64), Decision(0, 0, 0, False))
    for action in [*env.actions, of_worker]:
        assert isinstance(action, np.ndarray) and action.dtype == dtype and env.action_space.contains(action)

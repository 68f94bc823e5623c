"""V-trace: what every agent keeps, with memory and without; what it remembers, and that each step is learnt once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle
import gin
import gymnasium as gym
import numpy as np
import pytest
import torch

from async_wrappers import RealtimeDelay
from async_wrappers.agents.experiment.checkpoint import Checkpointer
from async_wrappers.agents.families.actor_critic.terms import TargetEntropy
from async_wrappers.agents.families.actor_critic.vtrace import VTrace
from async_wrappers.agents.learning.diverged import DivergedError
from async_wrappers.agents.learning.making import make_learner
from async_wrappers.agents.networks.cores import LSTMCore
from async_wrappers.agents.networks.sequence_network import create_actor_critic
from async_wrappers.agents.networks.torsos import MLPTorso
from async_wrappers.agents.play.many.vector_agent import VectorAgent
from async_wrappers.agents.play.play import DifferentExperiment
from async_wrappers.agents.play.turns.agents import Agent
from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent
from async_wrappers.agents.replay.elite import EliteReplay
from async_wrappers.agents.replay.unrolls import StandardReplay
from async_wrappers.batched.vector_envs import VectorEnvs
from async_wrappers.policy import Decision
from tests.contracts.agent_contract import AgentContract, play
from tests.worlds import host_runs
from tests.worlds.dict_env import DictEnv
from tests.worlds.drifting_env import DriftingEnv
from tests.worlds.experiments import load_gin
from tests.worlds.many_worlds import rounds, vector_envs
from tests.worlds.plain_data import assert_identical, differs


def tiny(shape: Any, actions: int, core: Any = None, feed_previous: bool = True, **chunk: int) -> torch.nn.Module:
    made = None if core is None else lambda size: LSTMCore(size, 4)
    return create_actor_critic(
        shape, actions, torso=lambda s: MLPTorso(s, (6,)), core=made, feed_previous=feed_previous, **chunk
    )


def lstm(shape: Any, actions: int, **chunk: int) -> torch.nn.Module:
    return tiny(shape, actions, "lstm", **chunk)


def without_memory(shape: Any, actions: int) -> torch.nn.Module:
    return tiny(shape, actions, feed_previous=False)


def hyperparameters(**arguments: Any) -> dict[str, Any]:
    return {
        "stack_size": 2,
        "network": lstm,
        "unroll_length": 5,
        "batch_size": 2,
        "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.02),
        "device": "cpu",
        "summary_writing_frequency": 1,
        **arguments,
    }


class VTraceContract(AgentContract):
    network: Callable[..., torch.nn.Module]

    def make_agent(self, environment: gym.Env[Any, Any], seed: int) -> Agent:
        arguments = hyperparameters(network=type(self).network, seed=seed)
        return TurnBasedAgent.playing(VTrace, environment, **arguments)


class TestWithMemory(VTraceContract):
    network = staticmethod(lstm)


class TestWithoutMemory(VTraceContract):
    network = staticmethod(without_memory)
    played = "turn-based"


class TestOnADict(VTraceContract):
    network = staticmethod(lstm)
    played = "turn-based"

    def make_environment(self, **arguments: Any) -> Any:
        return DictEnv(picture=False, **arguments)


class Chunked(RealtimeDelay):
    """An environment that takes chunks of actions."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(DriftingEnv(**arguments), 2, 3, "chunk")

    @property
    def lives(self) -> Any:
        """Those of the environment inside."""
        inside: Any = self.unwrapped
        return inside.lives


class TestOnChunks(VTraceContract):
    network = staticmethod(lstm)
    played = "turn-based"

    def make_environment(self, **arguments: Any) -> Any:
        return Chunked(**arguments)


# Many environments.


def vector(num_envs: int, **arguments: Any) -> tuple[VectorAgent, VectorEnvs]:
    """An agent of many environments, and these."""
    envs = vector_envs(num_envs, lambda: DriftingEnv(noop=True))
    spec = VTrace(envs.observation_space, envs.action_space, **hyperparameters(**arguments))
    return VectorAgent(spec, num_envs), envs


def watched(agent: VectorAgent) -> list[dict[str, Any]]:
    """The batches that the agent's learner draws from now on."""
    drawn: list[dict[str, Any]] = []
    queue: Any = agent.learner.replay
    sample = queue.sample

    def keep() -> dict[str, Any]:
        drawn.append(sample())
        return drawn[-1]

    queue.sample = keep
    return drawn


def test_each_step_of_every_environment_is_learnt_from_once() -> None:
    agent, envs = vector(5)
    drawn = watched(agent)
    rounds(agent, envs, 120)
    queue: Any = agent.learner.replay
    # An observation of this world belongs to one decision alone: its drift is a random number.
    newest = np.concatenate([batch["observation"][1:-1][batch["mask"] > 0] for batch in drawn])
    assert len(np.unique(newest[:, 0])) == len(newest)
    waiting = queue.state_dict()
    waits = waiting["sources"][0]["waiting"]["mask"].sum()
    runs = sum(
        waiting["arrays"]["running/mask"][env_id, :rows].sum()
        for env_id, rows in enumerate(waiting["arrays"]["running/position"])
    )
    assert len(newest) + waits + runs == queue.add_count == agent.meters.added
    assert len(queue) < 2 and agent.learner.updates == len(drawn) > 50
    assert agent.meters.sampled == 10 * len(drawn)


def test_stored_states_and_logits_are_those_computed_from_an_episodes_first_observation() -> None:
    agent, envs = vector(3, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.0), stack_size=1)
    drawn = watched(agent)
    rounds(agent, envs, 150)
    network, by_env = agent.learner.network, dict[int, list[Any]]()
    # Follow each environment through its unrolls: the first row of the next is the row after the last of this one.
    rows = 0
    for batch in drawn:
        for column in range(batch["mask"].shape[1]):
            one = {name: batch[name][:, column] for name in ("previous_action", "previous_reward", "first", "mask")}
            frames = batch["observation"][:, column]
            key = next((env for env, (last, _) in by_env.items() if np.array_equal(last, frames[0])), len(by_env))
            state = by_env[key][1] if key in by_env else network.initial_state(1)
            stored = torch.from_numpy(batch["state"][column])
            for t in range(5):
                if t == 0 and not one["first"][0]:
                    torch.testing.assert_close(stored, state[0], rtol=1e-5, atol=1e-6)
                inputs = (torch.from_numpy(np.asarray(one[name][t])).view(1, 1) for name in list(one)[:3])
                with torch.no_grad():
                    (logits, _), state = network(torch.from_numpy(frames[t]).view(1, 1, 1, -1), *inputs, state)
                if one["mask"][t]:
                    rows += 1
                    found = torch.from_numpy(batch["extras"]["logits"][t, column])
                    torch.testing.assert_close(logits[0, 0], found, rtol=1e-5, atol=1e-6)
            by_env[key] = [frames[5], state]
    assert len(by_env) == 3 and rows > 200


def test_with_weights_that_do_not_change_the_ratio_is_1() -> None:
    agent, envs = vector(4, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.0))
    rounds(agent, envs, 60)
    assert agent.learner.scalars["Rho"].item() == pytest.approx(1.0, abs=1e-5)


def test_actions_are_drawn_as_often_as_the_policy_says_and_the_likeliest_in_evaluation() -> None:
    env = DriftingEnv(lengths=[500, 40], noop=True)
    agent = TurnBasedAgent.playing(VTrace, env, **hyperparameters(network=without_memory, unroll_length=9000))
    bias = torch.tensor([0.1, 0.6, 0.3]).log()
    with torch.no_grad():
        agent.learner.network.head.policy.weight.zero_()
        agent.learner.network.head.policy.bias.copy_(bias)
    (actions,) = play(agent, env, [0])
    assert np.bincount(actions) / len(actions) == pytest.approx([0.1, 0.6, 0.3], abs=0.06)
    (actions,) = play(agent, env, [0], eval_mode=True)
    assert set(actions) == {1} and len(actions) == 40
    agent.spec.drawn_evaluation = True  # type: ignore[attr-defined]
    (actions,) = play(agent, env, [0], eval_mode=True)
    assert np.bincount(actions) / len(actions) == pytest.approx([0.1, 0.6, 0.3], abs=0.06)


def test_the_learning_rate_falls_to_0() -> None:
    agent, envs = vector(4, learning_rate_decay=40)
    learner: Any = agent.learner
    rounds(agent, envs, 30)
    done = learner.updates
    assert learner.state_dict()["optimizer"]["param_groups"][0]["lr"] == pytest.approx(0.02 * (1 - (done - 1) / 40))
    before = {name: weight.clone() for name, weight in learner.network.state_dict().items()}
    learner.updates = 40
    learner.replay.load_state_dict(_waiting(learner))
    learner.update()
    assert_identical(dict(learner.network.state_dict()), before)


def test_the_learning_rate_falls_as_a_polynomial() -> None:
    agent, envs = vector(4, learning_rate_decay=40, learning_rate_power=2.0, learning_rate_end=0.1)
    learner: Any = agent.learner
    rounds(agent, envs, 30)
    share = 0.1 + 0.9 * (1 - (learner.updates - 1) / 40) ** 2
    assert 1 < learner.updates < 40
    assert learner.state_dict()["optimizer"]["param_groups"][0]["lr"] == pytest.approx(0.02 * share)


def _waiting(learner: Any) -> dict[str, Any]:
    """The state of a queue in which the oldest batch waits again."""
    state: dict[str, Any] = learner.replay.state_dict()
    (queue,) = state["sources"]
    waiting = {
        name: np.repeat(array[:1], 2, axis=0) if len(array) else np.zeros((2, *array.shape[1:]), array.dtype)
        for name, array in queue["waiting"].items()
    }
    return {**state, "sources": [{**queue, "tail": queue["head"] - 2, "waiting": waiting}]}


@pytest.mark.parametrize("reward", ["nan", "inf"])
@pytest.mark.parametrize("clip", [None, 1.0])
def test_a_reward_that_is_not_finite_stops_learning_and_the_batch_is_kept(
    clip: float | None, reward: str, tmp_path: Path
) -> None:
    agent, envs = vector(4, diverged_dir=str(tmp_path), max_abs_reward=clip)
    extend = agent.learner.extend
    agent.learner.extend = lambda block: extend({**block, "reward": block["reward"] + float(reward)})
    says = rf"^the environment returned {reward} as its reward \(sequence \d+ of the repl"
    with pytest.raises(DivergedError, match=says):
        rounds(agent, envs, 60)
    assert (tmp_path / "diverged_batch_0.pt").is_file()


@pytest.mark.parametrize("when_full", ["drop_oldest", "drop_newest", "alternate"])
def test_a_slow_learner_lets_unrolls_be_dropped(when_full: str) -> None:
    agent, envs = vector(4, when_full=when_full, update_period=40, queue_capacity=3)
    rounds(agent, envs, 100)
    queue: Any = agent.learner.replay
    assert queue.sources[0].dropped > 0 and agent.learner.updates <= 10 and len(queue) <= 3


def test_the_stored_version_is_the_updates_of_the_weights_that_acted() -> None:
    for overlapping in (False, True):
        agent, envs = vector(1, store_version=True)
        if overlapping:
            agent.overlap_learning()
        drawn, acted = watched(agent), []
        decide = agent.rows.decide

        def decide_and_note(*arguments: Any, agent: Any = agent, decide: Any = decide, acted: Any = acted) -> Any:
            acted.append(agent.meters.updates - (agent._overlap is not None and agent._overlap.under_way))
            return decide(*arguments)

        agent.rows.decide = decide_and_note  # type: ignore[method-assign]
        rounds(agent, envs, 90)
        # One environment's unrolls are drawn in their order; a final row has no version.
        stored = [batch["extras"]["version"][:, b][batch["mask"][:, b] > 0] for batch in drawn for b in range(2)]
        learnt = np.concatenate(stored)
        assert len(drawn) > 6 and learnt.tolist() == acted[: len(learnt)]
        agent.finish_update()
        assert agent.learner.scalars["Lag"].item() == pytest.approx(len(drawn) - 1 - np.concatenate(stored[-2:]).mean())


def test_a_worker_stores_the_version_that_it_was_given() -> None:
    env = DriftingEnv(noop=True)
    arguments = hyperparameters(network=without_memory, stack_size=1, store_version=True)
    policy = VTrace(env.observation_space, env.action_space, **arguments).make_policy()
    decision, observation = Decision(episode=0, start=0, frame=0, eval_mode=False), env.reset(seed=0)[0]
    assert policy.act(observation, decision).extras["version"] == 0
    policy.load_weights(policy.weights(), 17)
    assert policy.act(observation, decision).extras["version"] == 17


def test_a_learnt_entropy_cost_is_in_the_checkpoint_and_moves() -> None:
    agent, envs = vector(4, terms=(TargetEntropy(target=0.3),), entropy_cost=0.01)
    before = agent.learner.state_dict()["network"]["entropy_parameter"].item()
    rounds(agent, envs, 40)
    assert agent.learner.state_dict()["network"]["entropy_parameter"].item() < before


def updates_begun(agent: VectorAgent, envs: VectorEnvs, count: int) -> list[int]:
    """Updates that were begun in each round."""
    begun: list[int] = []
    act = agent.act

    def act_and_count(shown: Any) -> Any:
        before = agent.meters.updates
        actions = act(shown)
        begun.append(agent.meters.updates - before)
        return actions

    agent.act = act_and_count  # type: ignore[method-assign]
    rounds(agent, envs, count)
    return begun


def test_updates_beside_environments_that_go_in_step_are_spread_over_the_rounds() -> None:
    # 12 unrolls of 5 rows, 6 batches, are whole in round 6 (from 0): without a thread all are learnt from in it.
    begun = {}
    for overlapping in (False, True):
        agent, envs = vector(12)
        if overlapping:
            agent.overlap_learning()
        begun[overlapping] = updates_begun(agent, envs, 40)
    assert begun[False][6] == 6 and begun[True][6:16] == [1] * 10
    assert max(begun[True]) <= 3
    # What waits is a batch at most, beside what a round may complete; here a round completes more than one batch.
    assert len(agent.learner.replay) <= 2 + 12
    assert 2 * (sum(begun[False]) - sum(begun[True])) <= 2 + 12


def test_updates_beside_short_episodes_keep_up_and_each_step_is_learnt_from_once() -> None:
    # Episodes of one decision have two rows each: unrolls come twice as fast as decisions.
    envs = vector_envs(12, lambda: DriftingEnv(noop=True, lengths=[1]))
    agent = VectorAgent(VTrace(envs.observation_space, envs.action_space, **hyperparameters()), 12)
    agent.overlap_learning()
    drawn = watched(agent)
    rounds(agent, envs, 80)
    learnt = sum(batch["mask"].sum() for batch in drawn)
    assert learnt >= agent.meters.added - 12 * 6 - 14 * 5


# Runs.


def make(base_dir: Path, *bindings: str, schedule: str = "vector") -> Any:
    return host_runs.make(base_dir, "vtrace", *bindings, schedule=schedule)


def test_one_environment_is_the_turn_based_run(tmp_path: Path) -> None:
    every = ("Runner.training_episodes = 6", "VectorRunner.num_envs = 1", "VectorRunner.evaluation_envs = 1")
    one = make(tmp_path / "vector", *every)
    in_turn = make(tmp_path / "in_turn", *every, schedule="continuous_train_and_eval")
    for runner in (one, in_turn):
        runner.run_experiment()
    learners = [runner.agent.learner for runner in (one, in_turn)]
    assert learners[0].updates > 5
    assert_identical(*(learner.state_dict()["network"] for learner in learners))
    assert_identical(*(learner.replay.state_dict() for learner in learners))


def test_what_was_trained_plays_alike_one_environment_at_a_time(tmp_path: Path) -> None:
    runner = make(tmp_path, "Runner.num_iterations = 1")
    runner.run_experiment()
    trained = runner.trained_agent()
    assert isinstance(trained, TurnBasedAgent)
    assert_identical(trained.learner.state_dict()["network"], runner.agent.learner.state_dict()["network"])
    assert len(runner.evaluation(trained, 3)) == 3


def test_a_checkpoint_of_another_core_is_refused(tmp_path: Path) -> None:
    make(tmp_path, "Runner.num_iterations = 1").run_experiment()
    with pytest.raises(DifferentExperiment, match="network"):
        make(tmp_path, "create_actor_critic.core = 'gru'").resume()


def test_a_run_begins_warm_under_new_settings(tmp_path: Path) -> None:
    make(tmp_path / "old").run_experiment()
    old = ("Runner.num_iterations = 1", f"Runner.initial_checkpoint = '{tmp_path / 'old'}'")
    new = (*old, "VTraceAgent.gamma = 0.5", "create_optimizer.learning_rate = 0.125", "VectorRunner.num_envs = 3")
    warm = make(tmp_path / "warm", *new, "Runner.initial_optimizer = True")
    before, cold = (make(tmp_path / name, *new) for name in ("before", "cold"))
    assert not warm.resume() and not cold.resume()
    learners = [runner.agent.learner for runner in (make(tmp_path / "old"), warm, cold)]
    there = torch.load(tmp_path / "old" / "checkpoints" / "ckpt.1", weights_only=True)["agent"]["learner"]
    for learner in learners[1:]:
        assert_identical(dict(learner.state_dict()["network"]), dict(there["network"]))
        assert learner.updates == 0 and len(learner.replay) == 0
        assert learner.state_dict()["optimizer"]["param_groups"][0]["lr"] == 0.125
    assert differs(dict(before.agent.learner.state_dict()["network"]), dict(there["network"]))
    assert_identical(learners[1].state_dict()["optimizer"]["state"], there["optimizer"]["state"])
    assert not learners[2].state_dict()["optimizer"]["state"]
    warm.run_experiment()
    assert warm.agent.updates > 0
    with pytest.raises(ValueError, match=r"does not fit this agent \(network: .* there, .* here\)"):
        make(tmp_path / "gru", *old, "create_actor_critic.core = 'gru'").resume()


# Live, on the virtual clock.


def live(name: str, base_dir: Path, *bindings: str) -> list[Any]:
    """The learners that a live run of a file ends with."""
    from async_wrappers.agents.registry import create_runner

    every = (
        "AsyncRunner.backend = 'virtual'",
        "AsyncRunner.latency = 0.03",
        "AsyncRunner.learner_latency = 0.015",
        "MLPTorso.hidden = (8,)",
        "VTraceAgent.unroll_length = 6",
        "Runner.training_steps = 200",
        "Runner.evaluation_steps = 20",
    )
    load_gin(f"configs/live/{name}.gin", bindings=[*every, *bindings])
    runner = create_runner(base_dir)
    runner.resume()
    runner.run_experiment()
    learners: list[Any] = next(Checkpointer(base_dir).load_each())[1]["learners"]
    return learners


@pytest.mark.parametrize("name", ["cartpole_chunk", "cartpole_vtrace_lstm"])
def test_it_learns_live_and_goes_on_bit_for_bit(name: str, tmp_path: Path) -> None:
    whole = live(name, tmp_path / "whole", "Runner.num_iterations = 2")
    first = live(name, tmp_path / "pieces", "Runner.num_iterations = 1")
    assert 3 < first[0]["updates"] < whole[0]["updates"]
    assert_identical(live(name, tmp_path / "pieces", "Runner.num_iterations = 2"), whole)


# Sources.


def replays(**arguments: Any) -> list[tuple[Any, float]]:
    attentive = partial(EliteReplay, capacity=8, run_updates=50, sample_strategy="attentive_sampling", **arguments)
    return [("queue", 0.5), (attentive, 0.5)]


def test_fresh_rows_are_learnt_from_once_beside_replayed_ones() -> None:
    agent, envs = vector(5, sources=replays(), batch_size=3, prefetch=True)
    drawn = watched(agent)
    rounds(agent, envs, 120)
    assert agent.learner.updates == len(drawn) > 50 and agent.spec.learns_once
    fresh = [batch["observation"][1:-1][:, batch["replayed"] == 0] for batch in drawn]
    masks = [batch["mask"][:, batch["replayed"] == 0] for batch in drawn]
    newest = np.concatenate([each[mask > 0] for each, mask in zip(fresh, masks, strict=True)])
    assert len(np.unique(newest[:, 0])) == len(newest)
    assert sum(batch["replayed"].sum() for batch in drawn) == 3 * len(drawn) // 2


@pytest.mark.parametrize("network", [lstm, without_memory])
def test_one_environment_in_turn_learns_from_sources_too(network: Any) -> None:
    env = DriftingEnv(noop=True)
    agent = TurnBasedAgent.playing(VTrace, env, **hyperparameters(network=network, sources=replays()))
    play(agent, env, range(12))
    assert agent.updates > 5


def test_without_a_queue_the_update_period_ties_learning_to_acting() -> None:
    standard = [(partial(StandardReplay, capacity=10, training_fill_in_factor=0.0), 1.0)]
    agent, envs = vector(4, sources=standard, update_period=8)
    rounds(agent, envs, 100)
    assert not agent.spec.learns_once
    assert 40 < agent.learner.updates <= 50


@pytest.mark.parametrize(
    "bindings",
    [
        "VTraceAgent.sources = [('queue', 0.5), (@small/StandardReplay, 0.5)]\nsmall/StandardReplay.capacity = 7",
        "VTraceAgent.sources = [('queue', 0.5), ('standard', 0.5)]\nStandardReplay.capacity = 7",
    ],
)
def test_a_spec_with_sources_of_gin_makes_learners_where_gin_is_empty(bindings: str) -> None:
    gin.parse_config(bindings)
    spec = VTrace(DriftingEnv().observation_space, DriftingEnv().action_space, **hyperparameters())
    sent = cloudpickle.dumps(spec)
    gin.clear_config()
    sources = make_learner(cloudpickle.loads(sent)).replay.sources
    assert [source.facts()["capacity"] for source in sources] == [3, 7]


# What is refused.


def test_a_replay_ratio_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^VectorRunner.replay_ratio must be None with agent 'vtrace', which learns"):
        make(tmp_path, "VectorRunner.replay_ratio = 2.0")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"unroll_length": 0}, "unroll_length must be >= 1 row, got 0"),
        ({"sources": [("queue", 0.9)]}, "VTraceAgent.sources must have shares that sum to 1, got 0.9: give 1 for the"),
        ({"prefetch": 1}, "prefetch must be True or False, got 1"),
        ({"batch_size": 0}, "batch_size must be >= 1 unroll, got 0"),
        ({"unroll_length": 1, "batch_size": 1}, "unroll_length and batch_size must not both be 1: give batch_size"),
        ({"lambda_": 1.5}, "lambda_ must lie in [0, 1], got 1.5"),
        ({"clip_rho": 0.0}, "clip_rho must be > 0, got 0.0"),
        ({"max_abs_reward": -1.0}, "max_abs_reward must be > 0, or None for rewards as they are, got -1.0"),
        ({"entropy_cost": -1.0}, "entropy_cost must be >= 0 and finite, got -1.0"),
        ({"when_full": "drop"}, "when_full must be one of 'wait', 'drop_oldest', 'drop_newest', 'alternate', got"),
        ({"update_period": 2}, "update_period must be 1 where when_full='wait', got 2"),
        ({"queue_capacity": 1}, "queue_capacity must be >= 2 unrolls, those of a batch, got 1"),
        ({"learning_rate_decay": 0}, "learning_rate_decay must be >= 1 update, or None for a fixed rate, got 0"),
        ({"discount_by": "hour"}, "discount_by must be 'decision' or 'frame', got 'hour'"),
        ({"network": 3}, "VTraceAgent.network must be a function or a class, such as @create_actor_critic, got 3"),
    ],
)
def test_arguments_out_of_range_are_refused_in_one_sentence(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        TurnBasedAgent.playing(VTrace, DriftingEnv(), **hyperparameters(**arguments))
    assert str(caught.value).splitlines()[0].startswith(message)

"""R2D2: what every agent keeps; stored states, burn-in, priorities, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gin
import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from async_wrappers.agents.families.value_based.r2d2 import R2D2
from async_wrappers.agents.losses.loss import Networks
from async_wrappers.agents.networks.cores import LSTMCore
from async_wrappers.agents.networks.q_network import create_network
from async_wrappers.agents.networks.sequence_network import create_recurrent_q_network
from async_wrappers.agents.networks.torsos import MLPTorso
from async_wrappers.agents.play.many.vector_agent import VectorAgent
from async_wrappers.agents.play.turns.agents import Agent
from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent
from async_wrappers.batched.vector_envs import VectorEnvs
from async_wrappers.policy import Decision
from tests.contracts.agent_contract import AgentContract, play
from tests.worlds.agents import selector_values
from tests.worlds.dict_env import DictEnv
from tests.worlds.drifting_env import DriftingEnv


def lstm(shape: Any, actions: int) -> torch.nn.Module:
    return create_recurrent_q_network(
        shape, actions, torso=lambda s: MLPTorso(s, (6,)), core=lambda size: LSTMCore(size, 4)
    )


def without_memory(shape: Any, actions: int) -> torch.nn.Module:
    return create_recurrent_q_network(shape, actions, torso=lambda s: MLPTorso(s, (6,)), core=None, feed_previous=False)


def hyperparameters(**arguments: Any) -> dict[str, Any]:
    return {
        "stack_size": 2,
        "network": lstm,
        "burn_in": 3,
        "unroll_length": 6,
        "state_period": 4,
        "update_horizon": 2,
        "batch_size": 4,
        "min_replay_history": 20,
        "update_period": 5,
        "target_update_period": 20,
        "replay_capacity": 400,
        "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.01),
        "device": "cpu",
        "summary_writing_frequency": 1,
        **arguments,
    }


class R2D2Contract(AgentContract):
    network: Callable[..., torch.nn.Module]

    def make_agent(self, environment: gym.Env[Any, Any], seed: int) -> Agent:
        few = {"min_replay_history": 8, "update_period": 12}
        return TurnBasedAgent.playing(
            R2D2, environment, **hyperparameters(network=type(self).network, seed=seed, **few)
        )


class TestWithMemory(R2D2Contract):
    network = staticmethod(lstm)


class TestWithoutMemory(R2D2Contract):
    network = staticmethod(without_memory)
    played = "turn-based"


class TestOnADict(R2D2Contract):
    network = staticmethod(lstm)
    played = "turn-based"

    def make_environment(self, **arguments: Any) -> Any:
        return DictEnv(picture=False, **arguments)


def played(num_envs: int, rounds: int, ends: Any = None, **arguments: Any) -> VectorAgent:
    """An agent that has played so many rounds of many environments."""
    envs = VectorEnvs(
        SyncVectorEnv([lambda: DriftingEnv(noop=True, ends=ends)] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)
    )
    spec = R2D2(envs.observation_space, envs.action_space, **hyperparameters(**arguments))
    agent = VectorAgent(spec, num_envs)
    envs.begin(list(range(num_envs)))
    for _ in range(rounds):
        shown = envs.recv()
        agent.observe(shown)
        envs.send(shown.env_ids, agent.act(shown))
    envs.close()
    return agent


def test_stored_states_are_those_computed_from_an_episodes_first_observation() -> None:
    agent = played(1, 150, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.0), stack_size=1)
    replay, network = agent.learner.replay, agent.learner.network
    batch = replay.transitions(replay.valid_slots())
    rows: dict[str, list[Any]] = {}
    names = ("previous_action", "previous_reward", "first")
    for number in range(len(batch["index"])):  # four rows of each sequence are new
        for name in ("observation", *names):
            rows.setdefault(name, []).extend(batch[name][:4, number])
    state, stored = network.initial_state(1), []
    with torch.no_grad():
        for t in range(len(rows["first"])):
            stored.append(torch.zeros_like(state) if rows["first"][t] else state)
            inputs = (torch.from_numpy(np.asarray(rows[name][t])).view(1, 1) for name in names)
            _, state = network(torch.from_numpy(rows["observation"][t]).view(1, 1, 1, -1), *inputs, state)
    expected = torch.cat(stored[::4])
    assert len(expected) > 20 and (expected != 0).any()
    torch.testing.assert_close(torch.from_numpy(batch["state"]), expected, rtol=1e-5, atol=1e-6)


def test_the_burn_in_is_not_learnt_from_and_warms_both_networks() -> None:
    agent = played(3, 60)
    spec, learner = agent.spec, agent.learner
    assert isinstance(spec, R2D2)
    batch = learner.tensors(learner.replay.sample())
    networks, rng = Networks(learner.network, learner.target), np.random.default_rng(0)
    output = spec.loss(networks, batch, rng)
    for name in ("action", "reward", "discount"):
        changed = {**batch, name: batch[name].clone()}
        changed[name][:3] = 1 - changed[name][:3].clamp(0, 1)
        assert torch.equal(spec.loss(networks, changed, rng).loss, output.loss)
    # The state before the burn-in tells; so do its observations.
    carried = (~batch["first"]).float().cumprod(dim=0)[3].bool()  # sequences whose episode lasts beyond the burn-in
    assert carried.any()
    for changed in ({**batch, "state": batch["state"] + 1}, {**batch, "observation": batch["observation"] + 1}):
        assert (spec.loss(networks, changed, rng).loss != output.loss)[carried].all()
    assert output.priority is not None and (output.priority >= 0).all()


@pytest.mark.parametrize("loss_type", ["mse", "huber"])
def test_a_sequences_loss_is_the_sum_of_those_of_its_errors(loss_type: str) -> None:
    agent = played(3, 60, loss_type=loss_type, value_rescaling=None)
    spec, learner = agent.spec, agent.learner
    assert isinstance(spec, R2D2)
    batch = learner.tensors(learner.replay.sample())
    batch = {**batch, "reward": batch["reward"] * 3}  # some errors are above 1, some below
    networks = Networks(learner.network, learner.target)
    output = spec.loss(networks, batch, np.random.default_rng(0))
    with torch.no_grad():
        q = spec.unrolled_values(learner.network, batch)
        q_target = spec.unrolled_values(learner.target, batch)
    expected = []
    for b in range(q.shape[1]):
        total = 0.0
        for t in range(len(q) - 1):
            if not batch["mask"][3 + t, b]:
                continue
            value, factor, row = 0.0, 1.0, t
            while row < min(t + 2, len(q) - 1) and batch["mask"][3 + row, b]:
                value += factor * float(batch["reward"][3 + row, b])
                factor *= float(batch["discount"][3 + row, b])
                row += 1
            value += factor * float(q_target[row, b, q[row, b].argmax()])
            error = abs(value - float(q[t, b, batch["action"][3 + t, b]]))
            total += error - 0.5 if loss_type == "huber" and error > 1 else 0.5 * error**2
        expected.append(total)
    torch.testing.assert_close(output.loss.detach(), torch.tensor(expected), rtol=1e-4, atol=1e-5)


def test_without_burn_in_the_first_rows_are_learnt_from() -> None:
    agent = played(3, 60, burn_in=0, state_period=6)
    assert agent.learner.updates > 0


@pytest.mark.parametrize("network", [lstm, without_memory])
def test_sequences_enter_with_the_priority_that_the_learner_would_give_them(network: Any) -> None:
    # The weights stay, and episodes terminate, so that all but the last errors of a sequence are those of learning.
    still: dict[str, Any] = {"optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.0), "network": network}
    agent = played(3, 150, actor_priorities=True, ends=[(True, False)], **still)
    spec, learner = agent.spec, agent.learner
    assert isinstance(spec, R2D2)
    replay = learner.replay
    slots = replay.valid_slots()
    batch = learner.tensors(replay.transitions(slots))
    learnt = spec.loss(Networks(learner.network, learner.target), batch, np.random.default_rng(0)).priority
    assert learnt is not None
    entered = np.array([*selector_values(replay).values()])
    assert len(slots) > 80 and np.ptp(entered) > 0
    agree = np.isclose(np.power(entered, 1 / 0.9), learnt.numpy(), rtol=1e-3)
    assert agree.mean() > 0.9  # the others end with an episode: their last value is not that of a decision


def test_an_actor_that_gives_no_values_lets_sequences_enter_with_the_largest_priority() -> None:
    env = DriftingEnv(noop=True)
    agent = TurnBasedAgent.playing(R2D2, env, **hyperparameters(actor_priorities=True, min_replay_history=10_000))
    play(agent, env, range(12))
    replay = agent.learner.replay
    assert len(replay) > 5 and {*selector_values(replay).values()} == {1.0}


def test_each_environment_has_its_own_epsilon() -> None:
    agent = played(3, 2)
    epsilon: Any = agent.policy._choose.args[0]
    assert epsilon.environments == 3
    of_each = [epsilon(Decision(episode=0, start=0, frame=0, eval_mode=False, env_id=i)) for i in range(3)]
    assert of_each == pytest.approx([0.4, 0.4**4.5, 0.4**8])


def test_a_priority_bound_to_dqn_is_refused_too() -> None:
    gin.parse_config("DQNAgent.priority = 'error'")
    with pytest.raises(ValueError, match=r"^priority must be 'loss' with agent 'r2d2', .* got 'error'"):
        TurnBasedAgent.playing(R2D2, DriftingEnv(), **hyperparameters())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"burn_in": -1}, "burn_in must be >= 0 rows, got -1"),
        ({"unroll_length": 1}, "unroll_length must be >= 2 rows, got 1"),
        ({"state_period": 10}, "state_period must be <= burn_in + unroll_length = 9 rows, or some would be in no seq"),
        ({"eta": 1.5}, "eta must lie in [0, 1], got 1.5"),
        ({"value_rescaling": -1.0}, "value_rescaling must lie in [0, 1], or None for no rescaling, got -1.0"),
        ({"one_step_loss": True}, "one_step_loss must be False with agent 'r2d2', whose returns end with the sequence"),
        ({"replay_eviction": "reservoir"}, "replay_eviction must be 'oldest' with agent 'r2d2', whose oldest"),
        ({"priority": "error"}, "priority must be 'loss' with agent 'r2d2', whose sequences have one made by R2D2A"),
        ({"loss_type": "l1"}, "loss_type must be 'huber' or 'mse', got 'l1'"),
        ({"replay_capacity": 3}, "replay_capacity must be >= 4 rows, state_period for each of 1 environments, got 3"),
        ({"network": create_network}, "network must be one over sequences with agent 'r2d2', such as "),
    ],
)
def test_arguments_out_of_range_are_refused_in_one_sentence(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        TurnBasedAgent.playing(R2D2, DriftingEnv(), **hyperparameters(**arguments))
    assert str(caught.value).splitlines()[0].startswith(message)

"""Chunks of actions: what a decision's log-probability is a sum over, and which entries are said to be executed."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import Categorical

from async_wrappers import RealtimeDelay, VectorRealtimeDelay
from async_wrappers.agents.acting.decisions import DecisionRandom
from async_wrappers.agents.families.actor_critic.terms import KLMask, TargetEntropy
from async_wrappers.agents.families.actor_critic.vtrace import VTrace
from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.families.value_based.r2d2 import R2D2
from async_wrappers.agents.losses.actor_critic import log_prob, over_executed
from async_wrappers.agents.losses.loss import LossOutput, Networks
from async_wrappers.agents.networks.sequence_network import create_actor_critic
from async_wrappers.agents.networks.torsos import MLPTorso
from async_wrappers.agents.play.many.vector_agent import VectorAgent
from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent
from async_wrappers.batched.double_buffered import DoubleBuffered
from async_wrappers.batched.processes import ProcessEnvs
from async_wrappers.batched.vector_envs import VectorEnvs
from async_wrappers.policy import Decision
from async_wrappers.wrappers.chunk import Chunk
from tests.contracts.agent_contract import play
from tests.worlds.drifting_env import DriftingEnv
from tests.worlds.latency_models import FAST

OBSERVATION = Box(-1, 1, (2,), np.float32)
T, B, A = 5, 3, 4


def network(shape: Any, actions: int, **chunk: int) -> torch.nn.Module:
    return create_actor_critic(shape, actions, torso=lambda s: MLPTorso(s, (6,)), feed_previous=False, **chunk)


def make(actions: Any, observation: Any = OBSERVATION, **arguments: Any) -> VTrace:
    every = {"stack_size": 1, "network": network, "device": "cpu", "unroll_length": 5, "batch_size": 2}
    return VTrace(observation, actions, **{**every, **arguments})


# The log-probability. Two actions: logits (0, log 3) give 1/4 and 3/4, (log 4, 0) give 4/5 and 1/5, (0, 0) halves.
LOGITS = torch.tensor([[0.0, math.log(3)], [math.log(4), 0.0], [0.0, 0.0]])
TABLE = [
    ((1, 0, 1), (1, 1, 1), 3 / 4 * 4 / 5 * 1 / 2),
    ((1, 0, 1), (0, 1, 1), 4 / 5 * 1 / 2),
    ((0, 1, 0), (1, 1, 0), 1 / 4 * 1 / 5),
    ((0, 1, 0), (0, 0, 1), 1 / 2),
    ((1, 1, 1), (0, 0, 0), 1.0),  # nothing was executed: nothing was chosen
]


@pytest.mark.parametrize(("actions", "executed", "probability"), TABLE)
def test_the_probability_of_a_chunk_is_the_product_over_what_was_executed(
    actions: tuple[int, ...], executed: tuple[int, ...], probability: float
) -> None:
    found = over_executed(log_prob(LOGITS, torch.tensor(actions)), torch.tensor(executed) == 1)
    assert found.item() == pytest.approx(math.log(probability), abs=1e-6)


def loss_of(spec: VTrace, logits: torch.Tensor, values: torch.Tensor, batch: dict[str, Any]) -> LossOutput:
    read = dict.fromkeys(("observation", "previous_action", "previous_reward", "first", "state"))
    networks: Any = Networks(lambda *_: ((logits, values), None), lambda *_: None)  # type: ignore[arg-type, return-value]
    return spec.loss(networks, {**read, **batch}, np.random.default_rng(0))


def scene(seed: int, length: int) -> tuple[torch.Tensor, torch.Tensor, dict[str, Any]]:
    rng = np.random.default_rng(seed)
    executed = torch.from_numpy(rng.integers(0, 2, (T, B, length)) == 1)
    batch = {
        "reward": torch.from_numpy(rng.normal(size=(T, B))),
        "action": torch.from_numpy(rng.integers(0, A, (T, B, length))),
        "discount": torch.full((T, B), 0.9, dtype=torch.float64),
        "mask": torch.ones(T, B, dtype=torch.float64),
        "extras": {"logits": torch.from_numpy(rng.normal(size=(T, B, length, A)))},
        "executed": executed,
    }
    logits = torch.from_numpy(rng.normal(size=(T + 1, B, length, A))).requires_grad_()
    return logits, torch.from_numpy(rng.normal(size=(T + 1, B))).requires_grad_(), batch


@settings(FAST, max_examples=30)
@given(seed=st.integers(0, 2**31), length=st.integers(1, 5))
def test_ratio_entropy_and_divergence_are_of_executed_entries_alone(seed: int, length: int) -> None:
    logits, values, batch = scene(seed, length)
    output = loss_of(make(MultiDiscrete([A] * length)), logits, values, batch)
    executed = batch["executed"].double()
    pi, mu = Categorical(logits=logits[:-1]), Categorical(logits=batch["extras"]["logits"])
    ratio = ((pi.log_prob(batch["action"]) - mu.log_prob(batch["action"])) * executed).sum(-1).exp()
    assert output.metrics["Rho"].item() == pytest.approx(ratio.mean().item())
    assert output.metrics["Entropy"].item() == pytest.approx((pi.entropy() * executed).sum(-1).mean().item())
    divergence = (torch.distributions.kl_divergence(pi, mu) * executed).sum(-1).mean().item()
    assert output.metrics["KL"].item() == pytest.approx(divergence)
    (gradient,) = torch.autograd.grad(output.loss.mean(), logits)
    assert (gradient[:-1][executed == 0] == 0).all()
    assert (gradient[:-1][executed == 1].abs().sum(-1) > 0).all()
    # What was drawn for an entry that was not executed makes no difference.
    other = torch.where(executed == 0, (batch["action"] + 1) % A, batch["action"])
    assert torch.equal(
        loss_of(make(MultiDiscrete([A] * length)), logits, values, {**batch, "action": other}).loss, output.loss
    )


@pytest.mark.parametrize("seed", range(3))
def test_a_chunk_of_one_action_is_that_action(seed: int) -> None:
    logits, values, batch = scene(seed, 1)
    batch["executed"] = torch.ones(T, B, 1, dtype=torch.bool)
    alone = {
        **batch,
        "executed": None,
        "action": batch["action"][..., 0],
        "extras": {"logits": batch["extras"]["logits"][..., 0, :]},
    }
    losses = (
        loss_of(make(MultiDiscrete([A])), logits, values, batch),
        loss_of(make(Discrete(A)), logits[:, :, 0], values, alone),
    )
    assert torch.equal(losses[0].loss, losses[1].loss)
    for name, metric in losses[0].metrics.items():
        assert torch.equal(metric, losses[1].metrics[name]), name


def test_the_first_number_of_a_decisions_stream_is_that_of_one_action() -> None:
    random, rows = DecisionRandom(3), [Decision(4, 7, 0, False, 1), Decision(0, 0, 0, True, 2)]
    drawn = random.uniforms(3, rows)
    one = [
        random.uniform_and_action(5, *(getattr(row, name) for name in ("episode", "start", "eval_mode", "env_id")))[0]
        for row in rows
    ]
    assert drawn[:, 0].tolist() == one and len(np.unique(drawn)) == 6


# What is stored.


def watch(learner: Any) -> list[dict[str, Any]]:
    """Return the transitions that a learner observes from now on, those of a block one by one."""
    stored: list[dict[str, Any]] = []
    observe, extend = learner.observe, learner.extend

    def keep(transition: Any) -> None:
        executed = transition.get("executed", np.ones(len(transition["action"]), bool))
        ended = transition["terminal"] or transition["truncated"]
        stored.append({"env_id": 0, "ended": ended, "applied": np.asarray(transition["action"])[executed].tolist()})
        observe(transition)

    def keep_all(block: Any) -> None:
        for row, env_id in enumerate(block["env_ids"].tolist()):
            executed = block["executed"][row]
            ended = block["terminal"][row] or block["truncated"][row]
            stored.append({"env_id": env_id, "ended": ended, "applied": block["action"][row][executed].tolist()})
        extend(block)

    learner.observe, learner.extend = keep, keep_all
    return stored


def episodes_of(stored: list[dict[str, Any]], env_id: int) -> list[list[int]]:
    """Return the actions that were executed in each of an environment's episodes that have ended."""
    episodes: list[list[int]] = [[]]
    for transition in stored:
        if transition["env_id"] == env_id:
            episodes[-1] += transition["applied"]
            if transition["ended"]:
                episodes.append([])
    return episodes[:-1]


NOOP = 1


def lived(world: DriftingEnv, delay: int, count: int) -> list[list[int]]:
    """Return what the environment received after the first chunk had landed, in so many episodes with a decision."""
    assert all(set(life.actions[:delay]) <= {NOOP} for life in world.lives)
    return [life.actions[delay:] for life in world.lives if len(life.actions) > delay][:count]


@pytest.mark.parametrize(("delay", "noops", "length"), [(2, 3, None), (0, 2, None), (4, 0, 9), (3, 3, 7)])
def test_executed_entries_are_what_the_environment_received(delay: int, noops: int, length: int | None) -> None:
    world = DriftingEnv(noop=True)
    env = RealtimeDelay(world, delay, noops, "chunk" if length is None else Chunk(length))
    agent = TurnBasedAgent(make(env.action_space, env.observation_space))
    stored = watch(agent.learner)
    play(agent, env, range(20))
    episodes = episodes_of(stored, 0)
    assert len(episodes) > 8 and episodes == lived(world, delay, len(episodes))
    assert agent.learner.updates > 3


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_executed_entries_of_many_environments_are_what_each_received(inside: bool, mode: AutoresetMode) -> None:
    delay, noops = 3, 1

    def make_env() -> gym.Env[Any, Any]:
        world = DriftingEnv(noop=True, lengths=[13, 3, 18] if inside else [13, 18, 15])
        return RealtimeDelay(world, delay, noops, "chunk") if inside else world

    vector: Any = SyncVectorEnv([make_env] * 3, autoreset_mode=mode)
    worlds = [each.unwrapped for each in vector.envs]
    envs = VectorEnvs(vector if inside else VectorRealtimeDelay(vector, delay, noops, "chunk"))
    agent = VectorAgent(make(envs.action_space, envs.observation_space), 3)
    stored = watch(agent.learner)
    envs.begin([0, 1, 2])
    for _ in range(60):
        shown = envs.recv()
        agent.observe(shown)
        envs.send(shown.env_ids, agent.act(shown))
    for env_id, world in enumerate(worlds):
        episodes = episodes_of(stored, env_id)
        received = [life.actions for life in world.lives if len(life.actions) > delay][: len(episodes)]
        assert len(episodes) > 3
        for executed, actions in zip(episodes, received, strict=True):
            # In lockstep an episode may begin between two boundaries: its first chunk then lands a frame later.
            assert executed == actions[len(actions) - len(executed) :]
            assert len(actions) - len(executed) <= delay + (0 if inside else noops + delay)
    assert agent.learner.updates > 3


def chunked() -> gym.Env[Any, Any]:
    return RealtimeDelay(DriftingEnv(noop=True, lengths=[9, 3, 6]), 2, 1, "chunk")


@pytest.mark.usefixtures("children_of_a_server")
def test_environments_in_processes_and_in_halves_show_the_same() -> None:
    alike = SyncVectorEnv([chunked] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    shown = []
    for envs in (VectorEnvs(alike), ProcessEnvs(chunked, 2, 1)):
        envs.begin([3, 4])
        executed = []
        for call in range(8):
            rows = envs.recv()
            none = np.zeros((2, 4), bool)
            executed.append(np.where(rows.realtime["applied"][:, None], rows.realtime.get("executed", none), False))
            envs.send(rows.env_ids, np.full((2, 4), call % 3))
        envs.close()
        shown.append(np.array(executed))
    np.testing.assert_array_equal(*shown)
    assert shown[0].any(axis=2).sum() > 8
    halves = DoubleBuffered(
        *(VectorEnvs(SyncVectorEnv([chunked], autoreset_mode=AutoresetMode.SAME_STEP)) for _ in "ab")
    )
    halves.begin([3, 4])
    rows = halves.recv()
    halves.send(rows.env_ids, np.zeros((1, 4), int))
    assert halves.cut().realtime["executed"].tolist() == [[False, False, True, True], [False] * 4]
    halves.close()


def test_where_nobody_delays_a_decisions_actions_are_all_executed() -> None:
    class Two(gym.ActionWrapper[Any, Any, Any]):
        action_space = MultiDiscrete([3, 3])

        def action(self, action: Any) -> int:
            return int(action[0])

    env = Two(DriftingEnv())
    agent = TurnBasedAgent(make(env.action_space, env.observation_space))
    stored = watch(agent.learner)
    play(agent, env, range(4))
    assert {len(each["applied"]) for each in stored} == {2}


# What is refused.


@pytest.mark.parametrize("kind", [DQN, R2D2])
def test_agents_of_values_refuse_chunks(kind: Any) -> None:
    with pytest.raises(
        ValueError, match=r"agent '\w+' needs Discrete actions, got MultiDiscrete\(\[4 4\]\): turn them"
    ):
        kind(OBSERVATION, MultiDiscrete([A, A]))


@pytest.mark.parametrize(
    "space", [MultiDiscrete([2, 3]), MultiDiscrete([[2, 2], [2, 2]]), MultiDiscrete([2, 2], start=[0, 1])]
)
def test_entries_that_differ_are_refused(space: MultiDiscrete) -> None:
    with pytest.raises(
        ValueError, match="agent 'vtrace' needs Discrete actions, or a chunk of them that are alike, got"
    ):
        make(space)


def test_the_implied_policy_of_a_chunk_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"KLMask\.to must be 'behaviour' where decisions give chunks of actions, got 'implied'"
    ):
        make(MultiDiscrete([A, A]), terms=(KLMask(to="implied"),))
    with pytest.raises(
        ValueError, match=r"between 0 and 2\.77 nats, those of 2 times 4 actions that are equally likely"
    ):
        make(MultiDiscrete([A, A]), terms=(TargetEntropy(target=3.0),))

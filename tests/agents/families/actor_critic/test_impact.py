"""IMPACT: what every agent keeps, with memory and without; its loss by hand; how often each step is learnt from."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from async_wrappers.agents.families.actor_critic.impact import Impact
from async_wrappers.agents.families.actor_critic.vtrace import VTrace
from async_wrappers.agents.learning.making import make_learner
from async_wrappers.agents.losses.loss import LossOutput, Networks
from async_wrappers.agents.play.many.vector_agent import VectorAgent
from async_wrappers.agents.play.turns.agents import Agent
from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent
from tests.agents.families.actor_critic.test_vtrace import Chunked, hyperparameters, lstm, without_memory
from tests.contracts.agent_contract import AgentContract, play
from tests.worlds.dict_env import DictEnv
from tests.worlds.drifting_env import DriftingEnv
from tests.worlds.many_worlds import rounds, vector_envs


def small(**arguments: Any) -> dict[str, Any]:
    return hyperparameters(**{"buffer_size": 3, "replay_coefficient": 2, **arguments})


class ImpactContract(AgentContract):
    network: Callable[..., torch.nn.Module]

    def make_agent(self, environment: gym.Env[Any, Any], seed: int) -> Agent:
        return TurnBasedAgent.playing(Impact, environment, **small(network=type(self).network, seed=seed))


class TestWithMemory(ImpactContract):
    network = staticmethod(lstm)


class TestWithoutMemory(ImpactContract):
    network = staticmethod(without_memory)
    played = "turn-based"


class TestOnADict(ImpactContract):
    network = staticmethod(lstm)
    played = "turn-based"

    def make_environment(self, **arguments: Any) -> Any:
        return DictEnv(picture=False, **arguments)


class TestOnChunks(ImpactContract):
    network = staticmethod(lstm)
    played = "turn-based"

    def make_environment(self, **arguments: Any) -> Any:
        return Chunked(**arguments)


# The loss.


def make(kind: type = Impact, actions: int = 2, **arguments: Any) -> Any:
    how = {"stack_size": 1, "network": without_memory, "device": "cpu", **arguments}
    return kind(Box(-1, 1, (2,), np.float32), Discrete(actions), **how)


Given = tuple[Tensor, Tensor]  # logits [T + 1, B, A] and values [T + 1, B]


def loss_of(spec: Any, online: Given, target: Given, batch: dict[str, Any]) -> LossOutput:
    """The loss where the two networks give these."""
    read = dict.fromkeys(("observation", "previous_action", "previous_reward", "first", "state"))
    networks: Any = Networks(lambda *_: (online, None), lambda *_: (target, None))  # type: ignore[arg-type]
    output: LossOutput = spec.loss(networks, {**read, **batch}, np.random.default_rng(0))
    return output


def of_probabilities(*taken: float) -> Tensor:
    """Logits [T, 1, 2] of policies that take action 0 with these probabilities."""
    return torch.tensor([[[math.log(each), math.log(1 - each)]] for each in taken], dtype=torch.float64)


def column(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)[:, None]


def test_the_loss_is_that_of_a_table() -> None:
    """Three steps, of which mu is four times the target policy in the last one, and rho is 2.

    mu    pi'   pi    V'   r    pi'/mu  delta   v         A          mu/pi'  w     min(w A, clip A)
    0.5   0.25  0.5   1    1    0.5      0.5    0.828125  -0.171875  2       2     -0.34375   (2 A)
    0.5   0.6   0.75  2   -1    1.2     -3     -0.6875    -2.6875    0.833   1.25  -3.359375  (1.25 A)
    0.8   0.2   0.5   0    2    0.25     0.625  0.625      0.625     2 of 4  1.25   0.75      (1.2 A)
                      1
    """
    online = of_probabilities(0.5, 0.75, 0.5, 0.5).requires_grad_(), column(0.0, 1.0, 1.0, 7.0).requires_grad_()
    target = of_probabilities(0.25, 0.6, 0.2, 0.5), column(1.0, 2.0, 0.0, 1.0)
    batch = {
        "reward": column(1.0, -1.0, 2.0),
        "discount": column(0.5, 0.5, 0.5),
        "mask": torch.ones(3, 1, dtype=torch.float64),
        "action": torch.zeros(3, 1, dtype=torch.int64),
        "extras": {"logits": of_probabilities(0.5, 0.5, 0.8)},
    }
    output = loss_of(make(epsilon=0.2, rho=2.0, entropy_cost=0.01), online, target, batch)
    policy_loss = (0.34375 + 3.359375 - 0.75) / 3
    value_loss = 0.5 * (0.828125**2 + 1.6875**2 + 0.375**2) / 3
    entropy = (2 * math.log(2) - 0.75 * math.log(0.75) - 0.25 * math.log(0.25)) / 3
    found = {name: output.metrics[name].item() for name in ("PolicyLoss", "ValueLoss", "Entropy")}
    assert found == pytest.approx({"PolicyLoss": policy_loss, "ValueLoss": value_loss, "Entropy": entropy}, abs=1e-6)
    assert output.loss.mean().item() == pytest.approx(policy_loss + 0.5 * value_loss - 0.01 * entropy, abs=1e-6)
    assert output.metrics["TargetRatioClipped"].item() == pytest.approx(1 / 3)
    assert output.metrics["RatioClipped"].item() == 1.0  # w is 2, 1.25 and 1.25
    output.metrics["PolicyLoss"].backward()  # type: ignore[no-untyped-call]
    assert online[0].grad is not None  # the last step is clipped, and no gradient is left
    assert online[0].grad[:2].any(dim=2).all() and not online[0].grad[2:].any()


def test_ratios_are_reported_as_clipped_where_the_loss_clips_them() -> None:
    """Epsilon is 0.4 and rho 2.

    mu    pi'   pi    mu/pi'    w     of [0.6, 1.4]
    0.6   0.2   0.3   2 of 3    1     within, though pi/pi' is 1.5
    0.5   0.5   0.8   1         1.6   above
    0.8   0.2   0.2   2 of 4    0.5   below, though pi/pi' is 1
    0.5   0.5   0.6   1         1.2   within
    """
    pi, target, mu = (0.3, 0.8, 0.2, 0.6), (0.2, 0.5, 0.2, 0.5), (0.6, 0.5, 0.8, 0.5)
    values = column(*[0.0] * 5)
    batch = {
        "reward": column(*[1.0] * 4),
        "discount": column(*[0.5] * 4),
        "action": torch.zeros(4, 1, dtype=torch.int64),
        "extras": {"logits": of_probabilities(*mu)},
    }
    for mask, clipped, of_target in ((1, 2 / 4, 2 / 4), (0, 2 / 3, 1 / 3)):
        batch["mask"] = column(mask, 1.0, 1.0, 1.0)
        policies = ((of_probabilities(*each, 0.5), values) for each in (pi, target))
        metrics = loss_of(make(epsilon=0.4, rho=2.0), *policies, batch).metrics
        assert metrics["RatioClipped"].item() == pytest.approx(clipped)
        assert metrics["TargetRatioClipped"].item() == pytest.approx(of_target)


def scene(seed: int, steps: int = 6, rows: int = 4, actions: int = 3) -> tuple[Given, Given, dict[str, Any]]:
    """What two networks give, and a batch with an episode's end in its second row."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> Tensor:
        return torch.from_numpy(rng.normal(size=shape))

    mask, discount = torch.ones(steps, rows, dtype=torch.float64), torch.full((steps, rows), 0.9, dtype=torch.float64)
    mask[3, 1] = discount[3, 1] = 0.0
    batch = {
        "reward": normal(steps, rows),
        "action": torch.from_numpy(rng.integers(0, actions, (steps, rows))),
        "discount": discount,
        "mask": mask,
        "extras": {"logits": normal(steps, rows, actions)},
    }
    online, target = ((normal(steps + 1, rows, actions), normal(steps + 1, rows)) for _ in range(2))
    return online, target, batch


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.1, 0.4]), st.sampled_from([1.0, 2.0]), st.sampled_from([1.0, 0.7]))
def test_the_loss_is_the_equation_step_by_step(seed: int, epsilon: float, rho: float, lambda_: float) -> None:
    (logits, values), (target_logits, target_values), batch = scene(seed)
    spec = make(actions=3, epsilon=epsilon, rho=rho, lambda_=lambda_, entropy_cost=0.0)
    metrics = loss_of(spec, (logits, values), (target_logits, target_values), batch).metrics
    policies = [each.softmax(2) for each in (logits[:-1], target_logits[:-1], batch["extras"]["logits"])]
    policy_loss = value_loss = 0.0
    steps, rows = batch["mask"].shape
    for b in range(rows):
        r, g, a, real = (batch[name][:, b].tolist() for name in ("reward", "discount", "action", "mask"))
        v = target_values[:, b].tolist()
        pi, target, mu = ([each[t, b, a[t]].item() for t in range(steps)] for each in policies)
        for s in range(steps):
            if not real[s]:
                continue
            error, weight = 0.0, 1.0
            for t in range(s, steps):
                if not real[t]:
                    break
                ratio = min(1.0, target[t] / mu[t])
                error += weight * ratio * (r[t] + g[t] * v[t + 1] - v[t])
                weight *= g[t] * lambda_ * ratio
            w = min(mu[s] / target[s], rho) * pi[s] / mu[s]
            policy_loss -= min(w * error, min(max(w, 1 - epsilon), 1 + epsilon) * error)
            value_loss += 0.5 * (v[s] + error - values[s, b].item()) ** 2
    decisions = batch["mask"].sum().item()
    assert metrics["PolicyLoss"].item() == pytest.approx(policy_loss / decisions, rel=1e-8, abs=1e-9)
    assert metrics["ValueLoss"].item() == pytest.approx(value_loss / decisions, rel=1e-8, abs=1e-9)


def test_where_the_three_policies_are_one_the_gradient_is_that_of_vtrace() -> None:
    gradients = []
    for kind in (Impact, VTrace):
        (logits, values), _, batch = scene(1)
        batch["extras"] = {"logits": logits[:-1].clone()}
        target = logits.clone(), values.clone()
        online = logits.requires_grad_(), values.requires_grad_()
        loss = loss_of(make(kind, actions=3, entropy_cost=0.01), online, target, batch).loss.mean()
        loss.backward()  # type: ignore[no-untyped-call]
        gradients.append([each.grad for each in online])
    torch.testing.assert_close(*gradients)


# How often each step is learnt from, and by which target network.


@pytest.mark.parametrize(("size", "times"), [(1, 1), (3, 1), (1, 4), (3, 2)])
def test_each_step_of_every_environment_is_learnt_from_as_often_as_is_told(size: int, times: int) -> None:
    envs = vector_envs(5, lambda: DriftingEnv(noop=True))
    settings = small(buffer_size=size, replay_coefficient=times)
    agent = VectorAgent(Impact(envs.observation_space, envs.action_space, **settings), 5)
    mixture: Any = agent.learner.replay
    drawn: Counter[float] = Counter()
    sample = mixture.sample

    def keep() -> dict[str, Any]:
        batch: dict[str, Any] = sample()
        # An observation of this world belongs to one decision alone: its drift is a random number.
        drawn.update(batch["observation"][1:-1][batch["mask"] > 0][:, 0].tolist())
        return batch

    mixture.sample = keep
    rounds(agent, envs, 240)
    learnt, most = sum(drawn.values()), max(drawn.values())
    assert most == times and agent.learner.updates > 60
    # What is in the buffer was learnt from less often; all that has left it, as often as is told.
    fewer = sum(count < times for count in drawn.values())
    assert fewer <= (size * 2 * 5 if times > 1 else 0) and learnt > 0.9 * times * (
        mixture.add_count - size * 2 * 5 - 50
    )
    assert mixture.sources[0].dropped == 0


def test_the_target_network_follows_once_all_batches_were_replaced() -> None:
    assert make().learning.target_update_period == 8
    assert make(buffer_size=3, replay_coefficient=5).learning.target_update_period == 15
    assert make(target_update_period=7).learning.target_update_period == 7
    env = DriftingEnv(noop=True)
    agent = TurnBasedAgent.playing(Impact, env, **small(network=without_memory))
    learner, copies = agent.learner, list[int]()
    copy = learner.synchronize_target

    def noted() -> None:
        copies.append(learner.updates)
        copy()

    learner.synchronize_target = noted
    play(agent, env, range(25))
    assert copies[:3] == [6, 12, 18]


# What is refused.


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            {"sources": [("standard", 1.0)]},
            "sources must be None with agent 'impact', whose batches a circular buffer gives, got [('standard', 1.0)]",
        ),
        ({"prefetch": True}, "prefetch must be False with agent 'impact', whose batches a circular buffer gives, got"),
        ({"rho": 0.5}, "rho must be >= 1, got 0.5"),
        ({"epsilon": 0.0}, "epsilon must be > 0, got 0.0"),
        ({"buffer_size": 0}, "buffer_size must be >= 1 batch, got 0"),
        (
            {"unroll_length": 3, "batch_size": 2, "replay_coefficient": 4},
            "replay_coefficient must be <= 3, half of the 6 rows of a batch, since there is at most one update for",
        ),
        (
            {"batch_size": 8, "queue_capacity": 31, "when_full": "drop_oldest"},
            "queue_capacity must be >= 32 unrolls, those of 4 batches, got 31",
        ),
    ],
)
def test_what_it_cannot_use_is_refused_in_one_sentence(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError) as caught:
        make(**arguments)
    assert str(caught.value).startswith(sentence)


def test_a_replay_ratio_is_refused() -> None:
    envs = vector_envs(2, lambda: DriftingEnv(noop=True))
    spec = Impact(envs.observation_space, envs.action_space, **small())
    with pytest.raises(ValueError, match="agent 'impact', which learns from each step 2 times, got 1"):
        VectorAgent(spec, 2, replay_ratio=1.0)


def test_a_learner_made_for_another_process_has_the_buffer_and_the_target() -> None:
    learner: Any = make_learner(make(batch_size=2, when_full="drop_oldest"))
    assert learner.replay.sources[0].facts() == {
        "kind": "queue",
        "capacity": 64,
        "when_full": "drop_oldest",
        "batches": 4,
        "replay_coefficient": 2,
    }
    assert learner.target is not None

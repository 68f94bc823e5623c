"""Two learners with a half of a batch each step as one learner with the whole, to 1e-6."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from async_wrappers.agents.families.actor_critic.impact import Impact
from async_wrappers.agents.families.actor_critic.ppo import PPO
from async_wrappers.agents.families.actor_critic.sac import SAC
from async_wrappers.agents.families.actor_critic.terms import KLMask, PolicyCloning, TargetEntropy, ValueCloning
from async_wrappers.agents.families.actor_critic.vtrace import VTrace
from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.families.value_based.r2d2 import R2D2
from async_wrappers.agents.families.value_based.rainbow import Rainbow
from async_wrappers.agents.learning.learner import Learner
from async_wrappers.agents.learning.making import make_vector_learner
from async_wrappers.agents.losses.loss import Batch, LossOutput, Networks
from async_wrappers.agents.networks.policy_value import create_policy_value_network
from async_wrappers.agents.networks.sequence_network import create_actor_critic, create_recurrent_q_network
from async_wrappers.agents.networks.torsos import MLPTorso
from async_wrappers.agents.play.many.vector_agent import VectorAgent
from async_wrappers.agents.replay.elite import EliteReplay
from async_wrappers.agents.replay.prefetch import SampledBatch
from async_wrappers.agents.replay.unrolls import StandardReplay
from async_wrappers.agents.spaces.schema import STATE, each_array
from async_wrappers.batched.vector_envs import VectorEnvs
from tests.worlds.agents import tiny
from tests.worlds.drifting_env import DriftingEnv
from tests.worlds.learners_in_threads import InThreads

ENVS = 4


class SAC_(SAC):
    """Draws its noise from the rewards of a batch, so that it is a transition's own."""

    def loss(self, networks: Networks, batch: Batch, rng: Any) -> LossOutput:
        return super().loss(networks, batch, _NoiseOf(batch["reward"].numpy()))  # type: ignore[arg-type]


class _NoiseOf:
    def __init__(self, rewards: Any) -> None:
        self._rewards, self._drawn = rewards, 0

    def standard_normal(self, shape: tuple[int, int], dtype: Any) -> Any:
        draws = shape[0] // len(self._rewards)
        phases = np.arange(self._drawn, self._drawn + draws)[:, None, None] + np.arange(shape[1])
        self._drawn += draws
        return np.sin(13 * self._rewards[:, None] + 7 * phases).reshape(shape).astype(dtype)


def recurrent(make: Any, *sizes: Any) -> torch.nn.Module:
    network: torch.nn.Module = make(*sizes, torso=lambda s: MLPTorso(s, (6,)), core="lstm")
    return network


def of_policy(*sizes: Any) -> Any:
    return create_policy_value_network(*sizes, torso=lambda s: MLPTorso(s, (6,)))


VALUES = {"network": tiny, "min_replay_history": 10, "replay_capacity": 400, "batch_size": 12}
VTRACE = {"network": partial(recurrent, create_actor_critic), "unroll_length": 5, "batch_size": 12}
ELITE = partial(EliteReplay, capacity=12, lambda_batch_multiplier=1.0)
STANDARD = partial(StandardReplay, capacity=12)
MIXED = {**VTRACE, "sources": [("queue", 0.5), (ELITE, 0.25), (STANDARD, 0.25)]}
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "vtrace": (VTrace, VTRACE),
    "impact": (Impact, {**VTRACE, "buffer_size": 2, "replay_coefficient": 3}),
    "CLEAR": (VTrace, {**MIXED, "terms": (PolicyCloning(cost=0.7), ValueCloning(cost=0.9))}),
    "LASER": (VTrace, {**MIXED, "terms": (KLMask(threshold=0.05),), "entropy_rows": "fresh", "entropy_cost": 0.5}),
    "target entropy": (VTrace, {**MIXED, "terms": (TargetEntropy(target=0.8),), "entropy_rows": "fresh"}),
    "dqn": (DQN, VALUES),
    "rainbow": (Rainbow, {**VALUES, "num_atoms": 7, "vmax": 50.0}),
    "apex": (DQN, {**VALUES, "double_dqn": True, "replay_scheme": "prioritized", "actor_priorities": True}),
    "r2d2": (
        R2D2,
        {
            **VALUES,
            "network": partial(recurrent, create_recurrent_q_network),
            "burn_in": 2,
            "unroll_length": 5,
            "state_period": 4,
        },
    ),
    "ppo": (PPO, {"network": of_policy, "update_period": 96, "batch_size": 96, "num_epochs": 1}),
    "sac": (SAC_, {"hidden_units": 8, "num_layers": 1, "min_replay_history": 10, "batch_size": 12}),
}


def environments(numbers: int) -> VectorEnvs:
    make = partial(DriftingEnv, noop=True, numbers=numbers)
    return VectorEnvs(SyncVectorEnv([make] * ENVS, autoreset_mode=AutoresetMode.SAME_STEP))


def spec_of(case: str, envs: VectorEnvs) -> Any:
    kind, arguments = CASES[case]
    sgd = partial(torch.optim.SGD, lr=1.0)  # weights then differ as gradients do
    return kind(
        envs.observation_space, envs.action_space, **{"stack_size": 1, "optimizer": sgd, "device": "cpu", **arguments}
    )


def batch_of(spec: Any, envs: VectorEnvs) -> Mapping[str, Any]:
    """A batch of one learner, drawn after it has played a while; no update is made."""
    agent = VectorAgent(spec, ENVS)
    replay = agent.learner.replay
    envs.begin(range(ENVS))
    for _ in range(400):
        shown = envs.recv()
        agent.observe(shown)
        if agent.learner.ready and (replay.add_count > 200 or spec.learns_once):
            sampled: Mapping[str, Any] = replay.sample()
            return sampled
        envs.send(shown.env_ids, agent.decide(shown))
    raise AssertionError("the learner is never ready")


def part_of(arrays: Mapping[str, Any], rows: Sequence[int]) -> dict[str, Any]:
    """Some sequences or transitions of a batch."""
    whole = len(arrays["index"])
    picked = {}
    for name, each in arrays.items():
        time_first = "mask" in arrays and name != STATE

        def some(array: Any, time_first: bool = time_first) -> Any:
            return array[:, rows] if time_first and array.ndim > 1 else array[rows]

        picked[name] = each_array(some, each)
    assert len(picked["index"]) == len(rows) < whole
    return picked


def step(learners: Sequence[Learner], parts: Sequence[Mapping[str, Any]]) -> None:
    group = InThreads(len(learners))
    for number, learner in enumerate(learners):
        learner.average, learner.learners = group.one(number).average, len(learners)
    threads = [
        threading.Thread(target=learner.learn, args=(SampledBatch(0, part, None),))
        for learner, part in zip(learners, parts, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)


def learn_elsewhere(learner: Learner) -> None:
    """Change the weights, so that the policy is not the one that acted."""
    with torch.no_grad():
        for parameter in learner.network.parameters():
            parameter += 0.1 * torch.arange(parameter.numel()).sin().view(parameter.shape)


def change(learner: Learner, before: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: (after - before[name]).detach() for name, after in learner.network.named_parameters()}


@pytest.mark.parametrize("case", CASES)
def test_two_learners_on_half_a_batch_step_as_one_on_the_whole(case: str) -> None:
    envs = environments(2 if case == "sac" else 0)
    spec = spec_of(case, envs)
    arrays = batch_of(spec, envs)
    rows = len(arrays["index"])
    # The replayed rows, which come last, are not shared out equally.
    first = [*range(rows // 6), *range(rows // 2 + rows // 6, rows)]
    halves = [part_of(arrays, first), part_of(arrays, [row for row in range(rows) if row not in first])]
    assert [len(half["index"]) for half in halves] == [rows // 2] * 2
    one, two = make_vector_learner(spec, ENVS), [make_vector_learner(spec, 2, number, 2) for number in range(2)]
    for learner in (one, *two):
        learn_elsewhere(learner)
    before = {name: weight.detach().clone() for name, weight in one.network.named_parameters()}
    one.learn(SampledBatch(0, arrays, None))
    step(two, halves)
    whole = change(one, before)
    assert max(each.abs().max() for each in whole.values()) > 1e-3
    for learner in two:
        for name, each in change(learner, before).items():
            torch.testing.assert_close(each, whole[name], rtol=0, atol=1e-6)

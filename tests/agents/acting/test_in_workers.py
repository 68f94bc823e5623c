"""A policy of rows as a worker calls it, with one observation, and the reverse."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from async_wrappers.agents.acting.decisions import OneRow, PolicyOutput, WorkerPolicy
from async_wrappers.agents.acting.exploration import EpsilonGreedyPolicy
from async_wrappers.agents.networks.q_network import create_network
from async_wrappers.agents.spaces.compute import Compute
from async_wrappers.policy import Decision

ACTIONS = 5


def values(network: torch.nn.Module, observation: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    of_actions: torch.Tensor = network(observation)
    return of_actions


def policy(epsilon: float, kind: type[EpsilonGreedyPolicy] = EpsilonGreedyPolicy) -> EpsilonGreedyPolicy:
    torch.manual_seed(0)
    network = create_network((1, 3), ACTIONS)
    return kind(network, values, ACTIONS, lambda decision: epsilon, 0, Compute("cpu"), first_action=3)


def test_a_worker_asks_for_one_observation_and_receives_a_plain_number() -> None:
    rows = policy(0.5)
    worker, rng = WorkerPolicy(rows), np.random.default_rng(0)
    for i in range(20):
        observation, decision = rng.normal(size=3).astype(np.float32), Decision(i % 7, 3 * i, 100 + i, bool(i % 2))
        answer = worker.act(observation, decision)
        assert type(answer) is int and answer == rows.act(observation[None, None], (), (decision,)).action[0]


def test_extras_come_with_the_workers_action() -> None:
    class Leaving(EpsilonGreedyPolicy):
        def act(self, inputs: Any, state: Any, decisions: Any) -> PolicyOutput:
            return super().act(inputs, state, decisions)._replace(extras={"value": np.array([0.25], np.float32)})

    output = WorkerPolicy(policy(0.0, Leaving)).act(np.ones(3, np.float32), Decision(0, 0, 0, False))
    assert output.action in range(3, 3 + ACTIONS) and output.extras == {"value": np.float32(0.25)}


def test_one_row_passes_a_workers_answer_on_with_its_extras() -> None:
    class Leaving:
        def act(self, observation: Any, decision: Decision) -> Any:
            return PolicyOutput(np.int64(observation.sum()), (), {"value": np.float32(0.5)})

    output = OneRow(Leaving()).act(np.full((1, 1, 3), 2), (), (Decision(0, 0, 0, False),))
    assert output.action.tolist() == [6] and output.extras == {"value": np.array([0.5], np.float32)}

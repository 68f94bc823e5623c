"""Epsilon-greedy policies: pure functions of (observation, weights, decision), by rows and one at a time."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
import torch

from async_wrappers.agents.acting.decisions import Decisions
from async_wrappers.agents.acting.exploration import EpsilonGreedyPolicy
from async_wrappers.agents.networks.q_network import create_network
from async_wrappers.agents.spaces.compute import Compute
from async_wrappers.policy import Decision

ACTIONS = 5


class OneByOne(EpsilonGreedyPolicy):
    """Is asked for one stack at a time."""

    def answer(self, observation: np.ndarray, decision: Decision) -> int:
        return int(self.act(observation[None], (), (decision,)).action[0])

    def values_of(self, observation: np.ndarray) -> torch.Tensor:
        return self.q_values(observation[None])[0]


def greedy_values(network: torch.nn.Module, observation: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    values: torch.Tensor = network(observation)
    return values


def policy(epsilon: float = 0.5, seed: int = 0, weights: int = 0) -> OneByOne:
    torch.manual_seed(weights)
    network = create_network((2, 3), ACTIONS)
    return OneByOne(network, greedy_values, ACTIONS, lambda decision: epsilon, seed, Compute("cpu"))


def questions(count: int) -> list[tuple[np.ndarray, Decision]]:
    rng = np.random.default_rng(0)
    return [
        (rng.normal(size=(2, 3)).astype(np.float32), Decision(i % 7, 3 * i, 100 + i, bool(i % 2))) for i in range(count)
    ]


def test_the_order_of_the_questions_changes_no_answer() -> None:
    asked, acting = questions(60), policy()
    answers = [acting.answer(*question) for question in asked]
    order = list(range(60))
    Random(0).shuffle(order)
    assert {i: acting.answer(*asked[i]) for i in order} == dict(enumerate(answers))
    assert len(set(answers)) > 1


def test_acting_draws_nothing_from_torchs_generator_and_keeps_no_gradient() -> None:
    acting = policy()
    before = torch.random.get_rng_state()
    for question in questions(10):
        acting.answer(*question)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert not acting.values_of(questions(1)[0][0]).requires_grad


def test_without_epsilon_the_largest_value_is_chosen() -> None:
    acting = policy(epsilon=0.0)
    for observation, decision in questions(20):
        assert acting.answer(observation, decision) == int(acting.values_of(observation).argmax())


@pytest.mark.parametrize("epsilon", [0.2, 1.0])
def test_epsilon_is_the_share_of_random_actions(epsilon: float) -> None:
    acting, greedy = policy(epsilon), policy(0.0)
    observation = np.ones((2, 3), np.float32)
    decisions = [Decision(0, start, start, False) for start in range(4000)]
    chosen = acting.act(np.stack([observation] * 4000), (), decisions).action
    others = chosen != greedy.answer(observation, decisions[0])
    share = epsilon * (ACTIONS - 1) / ACTIONS  # a random action may be the greedy one
    assert np.mean(others) == pytest.approx(share, abs=4 * np.sqrt(share * (1 - share) / 4000))


def test_an_inference_to_warm_up_belongs_to_no_episode() -> None:
    assert policy().answer(np.ones((2, 3), np.float32), Decision(-1, 0, 0, False)) in range(ACTIONS)


def test_epsilon_is_asked_for_with_the_decision() -> None:
    asked = []
    network = create_network((2, 3), ACTIONS)
    acting = OneByOne(
        network, greedy_values, ACTIONS, lambda decision: asked.append(decision) or 0.0, 0, Compute("cpu")
    )
    for question in questions(5):
        acting.answer(*question)
    assert asked == [decision for _, decision in questions(5)]


def test_loaded_weights_are_acted_on_in_place() -> None:
    acting, other, third = policy(weights=0), policy(weights=1), policy(weights=2)
    observation = questions(1)[0][0]
    weights = {name: tensor.clone() for name, tensor in other.weights().items()}
    assert not torch.equal(acting.values_of(observation), other.values_of(observation))
    acting.load_weights(weights, version=1)
    assert torch.equal(acting.values_of(observation), other.values_of(observation))
    for name, tensor in weights.items():  # somebody else writes new ones into the same memory
        tensor.copy_(third.weights()[name])
    assert torch.equal(acting.values_of(observation), third.values_of(observation))
    assert {name: tensor.data_ptr() for name, tensor in acting.weights().items()} == {
        name: tensor.data_ptr() for name, tensor in weights.items()
    }
    assert not any(tensor.requires_grad for tensor in acting.weights().values())


def test_actions_are_numbered_from_the_first_one() -> None:
    network = create_network((2, 3), ACTIONS)
    numbered = [
        OneByOne(network, greedy_values, ACTIONS, lambda d: 0.5, 0, Compute("cpu"), first_action=first)
        for first in (0, 7)
    ]
    for question in questions(20):
        assert numbered[1].answer(*question) == numbered[0].answer(*question) + 7


def test_rows_are_answered_as_one_by_one() -> None:
    asked, acting = questions(60), policy()
    stacks, decisions = (list(each) for each in zip(*asked, strict=True))
    answers = acting.act(np.stack(stacks), (), decisions)
    assert answers.action.tolist() == [acting.answer(*question) for question in asked]
    assert (answers.state, answers.extras) == ((), None)


@pytest.mark.parametrize("epsilon", [0.1, 0.9, 1.0])
def test_rows_of_several_environments_are_answered_as_one_by_one(epsilon: float) -> None:
    acting = policy(epsilon)
    asked = [(stack, decision._replace(env_id=i % 4)) for i, (stack, decision) in enumerate(questions(40))]
    stacks, decisions = (list(each) for each in zip(*asked, strict=True))
    in_arrays = Decisions.of(decisions)
    assert list(in_arrays) == decisions
    answers = acting.act(np.stack(stacks), (), in_arrays).action.tolist()
    assert answers == [acting.answer(*question) for question in asked]

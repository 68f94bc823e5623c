"""DQN's policy: epsilon-greedy, and a pure function of (observation, weights, decision)."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
import torch
from agents.dqn import DQNPolicy

from agents.compute import Compute
from agents.decision import Decision
from agents.networks.q_network import create_network

ACTIONS = 5


def policy(epsilon: float = 0.5, seed: int = 0, weights: int = 0) -> DQNPolicy:
    torch.manual_seed(weights)
    network = create_network((2, 3), ACTIONS)
    return DQNPolicy(network, ACTIONS, lambda decision: epsilon, seed, Compute("cpu"))


def questions(count: int) -> list[tuple[np.ndarray, Decision]]:
    rng = np.random.default_rng(0)
    return [
        (rng.normal(size=(2, 3)).astype(np.float32), Decision(i % 7, 3 * i, 100 + i, bool(i % 2))) for i in range(count)
    ]


def test_the_order_of_the_questions_changes_no_answer() -> None:
    asked, acting = questions(60), policy()
    answers = [acting.act(*question) for question in asked]
    order = list(range(60))
    Random(0).shuffle(order)
    assert {i: acting.act(*asked[i]) for i in order} == dict(enumerate(answers))
    assert len(set(answers)) > 1


def test_asking_twice_gives_the_same_answer() -> None:
    acting = policy()
    assert all(acting.act(*question) == acting.act(*question) for question in questions(40))


def test_acting_draws_nothing_from_torchs_generator_and_keeps_no_gradient() -> None:
    acting = policy()
    before = torch.random.get_rng_state()
    for question in questions(10):
        acting.act(*question)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert not acting.q_values(questions(1)[0][0]).requires_grad


def test_without_epsilon_the_largest_value_is_chosen() -> None:
    acting = policy(epsilon=0.0)
    for observation, decision in questions(20):
        assert acting.act(observation, decision) == int(acting.q_values(observation).argmax())


@pytest.mark.parametrize("epsilon", [0.2, 1.0])
def test_epsilon_is_the_share_of_random_actions(epsilon: float) -> None:
    acting, greedy = policy(epsilon), policy(0.0)
    observation = np.ones((2, 3), np.float32)
    decisions = [Decision(0, start, start, False) for start in range(4000)]
    others = [acting.act(observation, d) != greedy.act(observation, d) for d in decisions]
    share = epsilon * (ACTIONS - 1) / ACTIONS  # a random action may be the greedy one
    assert np.mean(others) == pytest.approx(share, abs=4 * np.sqrt(share * (1 - share) / 4000))


def test_an_inference_to_warm_up_belongs_to_no_episode() -> None:
    assert policy().act(np.ones((2, 3), np.float32), Decision(-1, 0, 0, False)) in range(ACTIONS)


def test_epsilon_is_asked_for_with_the_decision() -> None:
    asked = []
    network = create_network((2, 3), ACTIONS)
    acting = DQNPolicy(network, ACTIONS, lambda decision: asked.append(decision) or 0.0, 0, Compute("cpu"))
    for question in questions(5):
        acting.act(*question)
    assert asked == [decision for _, decision in questions(5)]


def test_loaded_weights_are_acted_on_in_place() -> None:
    acting, other, third = policy(weights=0), policy(weights=1), policy(weights=2)
    observation = questions(1)[0][0]
    weights = {name: tensor.clone() for name, tensor in other.weights().items()}
    assert not torch.equal(acting.q_values(observation), other.q_values(observation))
    acting.load_weights(weights, version=1)
    assert torch.equal(acting.q_values(observation), other.q_values(observation))
    for name, tensor in weights.items():  # somebody else writes new ones into the same memory
        tensor.copy_(third.weights()[name])
    assert torch.equal(acting.q_values(observation), third.q_values(observation))
    assert {name: tensor.data_ptr() for name, tensor in acting.weights().items()} == {
        name: tensor.data_ptr() for name, tensor in weights.items()
    }
    assert not any(tensor.requires_grad for tensor in acting.weights().values())


def test_actions_are_numbered_from_the_first_one() -> None:
    network = create_network((2, 3), ACTIONS)
    numbered = [DQNPolicy(network, ACTIONS, lambda d: 0.5, 0, Compute("cpu"), first_action=first) for first in (0, 7)]
    for question in questions(20):
        assert numbered[1].act(*question) == numbered[0].act(*question) + 7

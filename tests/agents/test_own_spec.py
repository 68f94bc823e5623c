"""What a spec of a user's own meets in turn: mistakes in one sentence, overlap, extras."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from async_wrappers.agents.acting.decisions import PolicyOutput
from async_wrappers.agents.learning.learner import Learner
from async_wrappers.agents.losses.loss import Learning, LossOutput
from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent
from async_wrappers.agents.replay.replay import create_replay
from async_wrappers.agents.spec import LearnerInterface, Spec
from tests.contracts.agent_contract import play
from tests.worlds.drifting_env import DriftingEnv


class Zero:
    """Always chooses action 0, and remembers which weights it was given."""

    def __init__(self) -> None:
        self.versions: list[int] = []

    def act(self, observation: Any, decision: Any) -> Any:
        assert observation.shape == (3,)
        return 0

    def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        self.versions.append(version)

    def weights(self) -> Mapping[str, Any]:
        return {}


class Counting(LearnerInterface):
    def __init__(self, counts: bool = True) -> None:
        self.counts, self.observed = counts, list[Mapping[str, Any]]()

    def observe(self, transition: Mapping[str, Any]) -> None:
        self.observed.append(transition)

    def update(self) -> Mapping[str, Any]:
        self.updates += self.counts
        return {}

    def weights(self) -> Mapping[str, Any]:
        return {"updates": np.array(self.updates)}

    def state_dict(self) -> dict[str, Any]:
        return {"updates": self.updates}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.updates = state["updates"]


class Own(Spec):
    def make_policy(self, number: int = 0, workers: int = 1) -> Any:
        self.policy = Zero()
        return self.policy

    def make_learner(self, number: int = 0, learners: int = 1) -> Any:
        return Counting()


def test_its_policy_loads_the_weights_of_each_update_and_every_transition_has_its_next_observation() -> None:
    env = DriftingEnv(lengths=[4])
    agent = TurnBasedAgent.playing(Own, env)
    play(agent, env, range(1))
    assert agent.spec.policy.versions == [1, 2, 3, 4]  # type: ignore[attr-defined]
    observed = agent.learner.observed
    assert len(observed) == 4
    for one, then in pairwise(observed):
        assert np.array_equal(one["next_observation"], then["observation"])


def test_an_update_that_does_not_count_is_refused() -> None:
    class Forgetful(Own):
        def make_learner(self, number: int = 0, learners: int = 1) -> Any:
            return Counting(counts=False)

    env = DriftingEnv()
    with pytest.raises(ValueError, match=r"^update\(\) of Counting must add 1 to its `updates`, got 0 before"):
        play(TurnBasedAgent.playing(Forgetful, env), env, range(1))


@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [
        (type("Stacked", (Own,), {"stack_size": 3}), ValueError, "^stack_size must be 1 for a policy that reads one"),
        (type("Bare", (Spec,), {}), TypeError, r"^Bare must have a method make_learner\(number, learners\)$"),
    ],
)
def test_what_it_lacks_is_said_in_one_sentence(kind: type[Spec], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        TurnBasedAgent.playing(kind, DriftingEnv())


def test_overlap_is_refused_where_its_learner_has_no_part_for_a_thread() -> None:
    agent = TurnBasedAgent.playing(Own, DriftingEnv())
    with pytest.raises(ValueError, match=r"^Runner.overlap must be False with agent 'agent', whose learner is no"):
        agent.overlap_learning()


class Regressing(Own):
    """A network, a replay and a loss of one's own, with extras that the policy leaves."""

    extras = gym.spaces.Dict(guess=gym.spaces.Box(-1, 1, ()))

    def make_policy(self, number: int = 0, workers: int = 1) -> Any:
        class Guessing(Zero):
            def act(self, observation: Any, decision: Any) -> Any:
                return PolicyOutput(np.int64(0), (), {"guess": np.float32(0.25)})

        return Guessing()

    def make_learner(self, number: int = 0, learners: int = 1) -> Learner:
        def loss(networks: Any, batch: Any, rng: Any) -> LossOutput:
            assert batch["extras"]["guess"].tolist() == [0.25] * 4
            return LossOutput((networks.online(batch["observation"])[:, 0] - batch["reward"]) ** 2)

        network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3, 1))
        replay = create_replay(self.observation_space, capacity=50, stack_size=1, batch_size=4, extras=self.extras)
        return Learner(network, loss, replay, Learning(target_update_period=None, min_replay_history=5))


@pytest.mark.parametrize("overlap", [False, True])
def test_a_loss_of_ones_own_reads_the_extras_that_the_policy_left(overlap: bool) -> None:
    env = DriftingEnv(lengths=[30])
    agent = TurnBasedAgent.playing(Regressing, env)
    if overlap:
        agent.overlap_learning()
    play(agent, env, range(2))
    assert agent.updates > 20

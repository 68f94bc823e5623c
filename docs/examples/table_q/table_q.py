"""Q-learning with a table (Watkins 1989), for environments with Discrete observations and actions."""

from collections.abc import Mapping
from typing import Any

import gin
import torch

from async_wrappers.agents.acting.decisions import DecisionRandom
from async_wrappers.agents.spec import LearnerInterface, Spec


@gin.configurable
class TableQ(Spec):
    """Makes policies and learners apart from each other."""

    name = "table_q"

    def __init__(
        self, observations: Any, actions: Any, gamma: float = 0.95, epsilon: float = 0.1, **shared: Any
    ) -> None:
        super().__init__(observations, actions, **shared)
        self.gamma, self.epsilon = gamma, epsilon
        self.shape = (int(observations.n), int(actions.n))

    def make_policy(self, number: int = 0, workers: int = 1) -> "TablePolicy":
        return TablePolicy(self)

    def make_learner(self, number: int = 0, learners: int = 1) -> "TableLearner":
        return TableLearner(self)


class TablePolicy:
    def __init__(self, spec: TableQ) -> None:
        self.spec, self.random, self.table = spec, DecisionRandom(spec.seed), torch.zeros(spec.shape)

    def act(self, observation: Any, decision: Any) -> int:
        rng = self.random.draw(max(decision.episode, 0), decision.start, decision.eval_mode)
        if rng.random() < self.spec.epsilon and not decision.eval_mode:
            return int(rng.integers(self.spec.shape[1]))
        return int(self.table[int(observation)].argmax())

    def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        self.table = weights["table"]


class TableLearner(LearnerInterface):
    def __init__(self, spec: TableQ) -> None:
        self.spec, self.table, self.observed = spec, torch.zeros(spec.shape), list[Mapping[str, Any]]()

    @property
    def ready(self) -> bool:
        return bool(self.observed)

    def observe(self, transition: Mapping[str, Any]) -> None:
        self.observed.append(transition)

    def update(self) -> Mapping[str, Any]:
        """Q(o, a) += 0.5 (r + gamma max_a' Q(o', a') - Q(o, a)), without bootstrap at a terminal."""
        step = self.observed.pop(0)
        bootstrap = 0.0 if step["terminal"] else self.spec.gamma * self.table[int(step["next_observation"])].max()
        place = int(step["observation"]), int(step["action"])
        error = step["reward"] + bootstrap - self.table[place]
        self.table[place] += 0.5 * error
        self.updates += 1
        return {"Error": error.abs()}

    def weights(self) -> Mapping[str, Any]:
        return {"table": self.table}

    def state_dict(self) -> dict[str, Any]:
        return {"table": self.table.clone(), "updates": self.updates}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.table.copy_(state["table"])
        self.updates = int(state["updates"])

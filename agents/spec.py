"""The seam between an agent and everything that plays it: what makes its policies and its learners.

An agent is a `Spec`: its hyperparameters, from which policies are made without a learner and learners without a policy.
Turn-based play (`agents.turn_based.TurnBasedAgent`), live runs and sweeps depend on `Spec` alone, so an agent of a
user's own is a subclass with two methods, `make_policy` and `make_learner`, that gin names::

    # mine.gin, beside mine.py with `class TableQ(Spec)` under @gin.configurable
    import mine
    create_agent.agent_name = @mine.TableQ

Policies and learners are pickled for other processes with their values of gin written down.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Protocol

import gymnasium as gym

from agents.decision import Decision
from agents.observations import blank_observation
from agents.policy import OneRow, Policy

__all__ = ["LearnerInterface", "OnePolicy", "Spec"]


class OnePolicy(Protocol):
    """A policy as a worker calls it: a pure function of one observation, the decision and the weights."""

    def act(self, observation: Any, decision: Decision) -> Any:
        """Return the environment's action."""
        ...

    def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        """Act on these arrays or tensors from now on; they are not copied."""
        ...


class LearnerInterface:
    """What learns: subclass it and give it `observe`, `update`, `weights`, `state_dict` and `load_state_dict`.

    The other methods have defaults for a learner that keeps no replay on disk. For several learners of a live run see
    the runner's own `Learner` protocol.

    Attributes:
        updates: Updates done.
    """

    updates: int = 0

    @property
    def ready(self) -> bool:
        """Whether there is enough to learn from."""
        return True

    def observe(self, transition: Mapping[str, Any]) -> None:
        """Store a transition: observation, action, reward, interval, terminal, truncated, next_observation."""
        raise NotImplementedError

    def update(self) -> Mapping[str, Any]:
        """Learn once; return scalars by name."""
        raise NotImplementedError

    def weights(self) -> Mapping[str, Any]:
        """Return the arrays or tensors that policies load."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        """Return weights and counts: tensors and plain data."""
        raise NotImplementedError

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        raise NotImplementedError

    def load_policy(self, state: Mapping[str, Any]) -> None:
        """Take over from `state_dict` what acting needs; all of it, unless there is less."""
        self.load_state_dict(state)

    def check_state(self, state: Mapping[str, Any]) -> None:
        """Refuse the state of another kind of learner with a ValueError, before anything is changed."""

    def save_replay(self, directory: Path, iteration: int) -> None:
        """Write what `state_dict` leaves out, for `load_replay` of the same number."""

    def load_replay(self, directory: Path, iteration: int, partial: bool = False) -> int:
        """Restore what `save_replay` wrote; return how many transitions are lost with damaged files."""
        return 0

    def forget_replays(self, directory: Path, keep: set[int]) -> None:
        """Delete the files that no iteration in `keep` needs."""

    def close(self) -> None:
        """Release what is held."""


class Spec:
    """An agent's hyperparameters; a subclass gives `make_policy` and `make_learner`.

    Args:
        observation_space: The environment's.
        action_space: The environment's.
        decision_interval: Frames from one decision to the next; None where they vary (random latencies, a real clock).
        seed: Of the weights, the exploration and the replay.

    Attributes:
        name: In error messages.
        stack_size: Observations of the last k decisions that the policy reads.
        update_period: Decisions between two updates.
        batch_size: Transitions of an update.
        summary_writing_frequency: Updates between two reports of the scalars.
        extras: What the policy leaves for the learner beside its action, a Dict space; None for nothing, which then
            takes no byte anywhere.
    """

    name: ClassVar[str] = "agent"
    stack_size: int = 1
    update_period: int = 1
    batch_size: int = 1
    summary_writing_frequency: int = 500
    extras: gym.spaces.Dict | None = None

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        decision_interval: int | None = 1,
        seed: int = 0,
    ) -> None:
        """See the class."""
        self.observation_space, self.action_space = observation_space, action_space
        self.seed = seed

    def make_policy(self, number: int = 0, workers: int = 1) -> OnePolicy:
        """Make the policy of worker `number` of `workers`, with weights of its own."""
        raise NotImplementedError

    def make_learner(self, number: int = 0, learners: int = 1) -> Any:
        """Make learner `number` of `learners`, a `LearnerInterface`; all begin with the same weights."""
        raise NotImplementedError

    def make_policy_of(self, learner: Any) -> Policy:
        """Make the policy of a turn-based agent, which acts on the learner's weights."""
        return _Following(self.make_policy(), learner)

    def identity(self, learner: Any) -> dict[str, Any]:
        """Return plain facts that two runs must share to continue one another."""
        shapes = {name: list(weight.shape) for name, weight in learner.weights().items()}
        return {"agent": type(self).__name__, "network": shapes}

    def blank(self) -> Any:
        """Return the observation that stands where there is none."""
        return blank_observation(self.observation_space)

    def check_warmup(self) -> None:
        """Refuse settings that need a fixed number of frames per decision, with a ValueError."""

    def keep_diverged_in(self, directory: str | Path) -> None:
        """Let learners write the batch of a loss that is not finite into a run's directory."""


class _Following(OneRow):
    """A policy that loads the learner's weights again after each update."""

    def __init__(self, policy: OnePolicy, learner: Any) -> None:
        super().__init__(policy)
        self._learner, self._updates = learner, -1

    def act(self, inputs: Any, state: Any, decisions: Any) -> Any:
        """See `Policy.act`."""
        if self._updates != self._learner.updates:
            self._updates = self._learner.updates
            self._policy.load_weights(self._learner.weights(), self._updates)
        return super().act(inputs, state, decisions)

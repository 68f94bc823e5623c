"""What a policy is asked, and what it answers: the contract of everything here that runs one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

__all__ = ["Decision", "Policy", "as_act"]


class Decision(NamedTuple):
    """All that a policy may depend on besides the observation and its weights.

    Attributes:
        episode: Number of the episode in the run, from 0.
        start: Frame of the episode whose observation is read.
        frame: Frames played before the decision starts, over all episodes.
        eval_mode: True in evaluation.
        env_id: Number of the environment among those that are played side by side; a runner has one.
    """

    episode: int
    start: int
    frame: int
    eval_mode: bool
    env_id: int = 0


class Policy(Protocol):
    """A pure function of (observation, weights, decision): an inference that is never applied changes nothing.

    A policy whose weights are learnt also has ``load_weights(weights, version)``: it takes over the mapping of tensors
    without copying them, as they lie in memory that all workers share.
    """

    def act(self, observation: Any, decision: Decision) -> Any:
        """Return an action; where extras are declared, an object with the attributes ``action`` and ``extras``."""
        ...


def as_act(policy: Any) -> Callable[[Any, Decision], Any]:
    """Return ``act`` of a policy, or of a plain function of the observation.

    Raises:
        ValueError: `policy` is neither.
    """
    if hasattr(policy, "act"):
        act: Callable[[Any, Decision], Any] = policy.act
        return act
    if callable(policy):
        return lambda observation, decision: policy(observation)
    raise ValueError(f"make_policy must return a policy with act(observation, decision) or a function, got {policy!r}")

"""A policy as a worker of an asynchronous runner wants it: one observation in, one action of the environment out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from torch import Tensor

from agents.decision import Decision
from agents.observations import stacked

__all__ = ["WorkerPolicy"]


class StackPolicy(Protocol):
    """A policy that reads stacks of observations."""

    def act(self, observation: Any, decision: Decision) -> int:
        """Return an action for one stack [k, *shape], or for a dict of them."""
        ...

    def load_weights(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Act on these weights from now on."""
        ...

    def weights(self) -> Mapping[str, Tensor]:
        """Return the weights."""
        ...


class WorkerPolicy:
    """Reads one observation as the environment returned it, which is a stack of one.

    Args:
        policy: Reads stacks [1, *shape].
    """

    def __init__(self, policy: StackPolicy) -> None:
        """See the class."""
        self._policy = policy

    def act(self, observation: Any, decision: Decision) -> int:
        """Return the environment's action for one observation, [*shape] or a dict of such.

        `decision` is any object with the attributes of `agents.decision.Decision`.
        """
        return self._policy.act(stacked([observation]), decision)

    def load_weights(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Read these tensors in place from now on; those on another device are copied."""
        self._policy.load_weights(weights, version)

    def weights(self) -> Mapping[str, Tensor]:
        """Return the weights in the layout that inference reads; not a copy."""
        return self._policy.weights()

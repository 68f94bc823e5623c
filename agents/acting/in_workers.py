"""Policies of rows for callers that have one row at a time: workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from async_wrappers.agents.acting.decisions import PolicyOutput
from async_wrappers.agents.spaces.box_actions import BoxActions
from async_wrappers.agents.spaces.schema import batch_of_one, each_array, stacked
from async_wrappers.policy import Decision


class OfWorker:
    """A policy of rows as a worker has it, whose observations come one at a time.

    Args:
        policy: Reads stacks of observations.
        without_tuples: Turns an observation into an array or dicts of arrays; None for one that always is.
        whole_stacks: Whether an observation is a stack already, [k, *shape].

    Attributes:
        policy: As given.
    """

    def __init__(
        self, policy: Any, without_tuples: Callable[[Any], Any] | None = None, whole_stacks: bool = False
    ) -> None:
        """See the class."""
        self.policy = policy
        self._without_tuples, self._whole_stacks = without_tuples, whole_stacks

    def row_of(self, observation: Any) -> Any:
        """Return an observation, [*shape] or a dict of such, as the policy reads it: [1, k, *shape]."""
        if self._without_tuples is not None:
            observation = self._without_tuples(observation)
        return batch_of_one(observation if self._whole_stacks else stacked([observation]))

    def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        """Read these tensors in place from now on; those on another device are copied."""
        self.policy.load_weights(weights, version)

    def note_updates(self, updates: int) -> None:
        """Set the weights' number of updates; see `RecurrentPolicy.note_updates`."""
        if hasattr(self.policy, "note_updates"):
            self.policy.note_updates(updates)

    def weights(self) -> Mapping[str, Any]:
        """Return the weights in the layout that inference reads; not a copy."""
        weights: Mapping[str, Any] = self.policy.weights()
        return weights


class WorkerPolicy(OfWorker):
    """A policy without memory as a worker calls it: one observation in, one action out. The arguments: `OfWorker`."""

    def act(self, observation: Any, decision: Decision) -> Any:
        """Return the environment's action for one observation, [*shape] or a dict of such.

        Where the policy leaves extras, the action comes with them: an object with ``action`` and ``extras``.
        """
        output = self.policy.act(self.row_of(observation), (), (decision,))
        if output.extras is None:
            of_box = output.action.ndim > 1 or isinstance(getattr(self.policy, "actions", None), BoxActions)
            return np.asarray(output.action[0]) if of_box else output.action[0].item()
        extras = {name: values[0] for name, values in output.extras.items()}
        return PolicyOutput(output.action[0], (), extras)


class OneRow:
    """The reverse of `WorkerPolicy`: a worker's policy, which reads one observation, as a policy of one row.

    Args:
        policy: With ``act(observation, decision)`` and, if it learns, ``load_weights(weights, version)``.
    """

    def __init__(self, policy: Any) -> None:
        """See the class."""
        self._policy = policy

    def act(self, inputs: Any, state: Any, decisions: Sequence[Decision]) -> PolicyOutput:
        """Return the action of one stack of one observation [1, 1, *shape]."""
        (decision,) = decisions
        answer = self._policy.act(each_array(lambda array: array[0, 0], inputs), decision)
        if not hasattr(answer, "extras"):
            return PolicyOutput(np.asarray([answer]))
        extras = {name: np.asarray(value)[None] for name, value in answer.extras.items()}
        return PolicyOutput(np.asarray([answer.action]), (), extras)

    def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        """See `RowsPolicy.load_weights`."""
        self._policy.load_weights(weights, version)

    def weights(self) -> Mapping[str, Any]:
        """See `RowsPolicy.weights`."""
        weights: Mapping[str, Any] = self._policy.weights()
        return weights

"""Copies of a policy of rows, each of which acts on a share of them at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
from torch import Tensor

from async_wrappers.agents.acting.decisions import Decisions, PolicyOutput, RowsPolicy
from async_wrappers.agents.spaces.schema import each_array
from async_wrappers.policy import Decision


class PolicyCopies:
    """Copies of a policy, such as one on each of some devices, each of which acts on a share of the rows at a time.

    The rows are cut into shares of equal size, one row more or less, in their order; all copies compute at once.

    Args:
        policies: At least one; their weights are their own.
    """

    def __init__(self, policies: Sequence[RowsPolicy]) -> None:
        self._policies = policies
        self._threads = ThreadPoolExecutor(len(policies), thread_name_prefix="act")

    def act(self, inputs: Any, state: Any, decisions: Sequence[Decision]) -> PolicyOutput:
        """The policies are without memory."""
        rows = Decisions.of(decisions)
        begins = [len(rows) * part // len(self._policies) for part in range(len(self._policies) + 1)]
        shares = [(policy, slice(*cut)) for policy, cut in zip(self._policies, pairwise(begins), strict=True)]

        def act_on(share: tuple[RowsPolicy, slice]) -> PolicyOutput:
            policy, part = share
            return policy.act(each_array(lambda array: array[part], inputs), (), rows[part])

        # Where there are fewer rows than copies, some have nothing to do.
        outputs = list(self._threads.map(act_on, [(policy, part) for policy, part in shares if part.start < part.stop]))
        left = [output.extras or {} for output in outputs]
        extras = {name: np.concatenate([each[name] for each in left]) for name in left[0]}
        return PolicyOutput(np.concatenate([output.action for output in outputs]), extras=extras or None)

    def load_weights(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Act on copies of these tensors from now on."""
        for policy in self._policies:
            policy.load_weights({name: tensor.detach().clone() for name, tensor in weights.items()}, version)

    def weights(self) -> Mapping[str, Tensor]:
        """Return the weights that act; not a copy."""
        return self._policies[0].weights()

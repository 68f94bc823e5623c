"""Policies: from rows of observations to rows of actions, as pure functions.

A *row* is one decision's observation. A worker has one row at a time; a batch of environments has many. A policy holds
weights and nothing that acting changes: what it remembers from decision to decision is its `state`, which it is given
and returns, and what it draws is a function of the decision. So an inference whose action is never applied changes
nothing, and a resumed run acts as an uninterrupted one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from agents.compute import Compute
from agents.decision import Decision
from agents.exploration import DecisionRandom
from agents.networks.noisy import noisy_layers, resample_noise
from agents.observations import batch_of_one, stacked
from agents.trees import each_array

__all__ = ["EpsilonGreedyPolicy", "OneRow", "Policy", "PolicyOutput", "WorkerPolicy"]

Values = Callable[[nn.Module, Any, np.random.Generator], Tensor]
"""From (network, inputs, generator) to Q-values [R, A]."""


class PolicyOutput(NamedTuple):
    """What a policy returns for R rows.

    Attributes:
        action: The environment's actions, [R, ...].
        state: What the policy remembers, [R, ...]; () for one without memory.
        extras: What it leaves for the learner beside the actions, by name, each [R, ...]; None for nothing.
    """

    action: npt.NDArray[Any]
    state: Any = ()
    extras: Mapping[str, npt.NDArray[Any]] | None = None


class Policy(Protocol):
    """A pure function of (inputs, state, decisions) and the weights."""

    def act(self, inputs: Any, state: Any, decisions: Sequence[Decision]) -> PolicyOutput:
        """Choose an action for each row.

        Args:
            inputs: Stacks of observations [R, k, *shape], or a dict of them.
            state: What the policy returned for these rows before, [R, ...]; () without memory.
            decisions: R of them.
        """
        ...

    def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        """Read these tensors in place from now on."""
        ...

    def weights(self) -> Mapping[str, Any]:
        """Return the weights in the layout that inference reads; not a copy."""
        ...


class EpsilonGreedyPolicy:
    """Chooses ``argmax_a Q(o, a)``, or with probability epsilon an action drawn uniformly.

    All that it draws (epsilon's coin, the noise of noisy layers, quantiles) comes from the decision's own stream, a
    function of (seed, episode, start). Evaluation is without noise.

    Args:
        network: Read in place.
        values: From (network, inputs, generator) to Q-values [R, A].
        num_actions: A.
        epsilon: The probability of a random action, as a function of the decision.
        seed: Of the exploration.
        compute: Where the forward pass runs; the network must have been placed there.
        first_action: Number of the first action.
        read: Turns batches of stacks into what the network reads; None is for arrays that it reads as they are.
        values_draw: Whether `values` draws from its generator; each row then has a forward pass of its own.
    """

    def __init__(
        self,
        network: nn.Module,
        values: Values,
        num_actions: int,
        epsilon: Callable[[Decision], float],
        seed: int = 0,
        compute: Compute | None = None,
        first_action: int = 0,
        read: Callable[[Any], Any] | None = None,
        values_draw: bool = False,
    ) -> None:
        """See the class."""
        self.network = network
        self._values = values
        self._noisy_layers = noisy_layers(network)
        self._num_actions = num_actions
        self.epsilon = epsilon
        self._random = DecisionRandom(seed)
        self.compute = compute or Compute()
        self._first_action = first_action
        self._read = read or self.compute.tensor
        self._row_by_row = values_draw or bool(self._noisy_layers)

    def act(self, inputs: Any, state: Any, decisions: Sequence[Decision]) -> PolicyOutput:
        """Return the chosen actions [R] for stacks [R, k, *shape], or for a dict of them."""
        rows = len(decisions)
        actions = np.empty(rows, np.int64)
        greedy: list[int] = []
        for row, decision in enumerate(decisions):
            # A worker's warm-up inference belongs to no episode and has the number -1.
            rng = self._random.draw(max(decision.episode, 0), decision.start, decision.eval_mode)
            uniform, random_action = rng.random(), int(rng.integers(self._num_actions))
            if uniform < self.epsilon(decision):
                actions[row] = random_action
            elif rows == 1 or self._row_by_row:
                # The generator is at the place after this decision's coin: noise and quantiles are drawn from there.
                one = inputs if rows == 1 else each_array(lambda array, row=row: array[row : row + 1], inputs)
                actions[row] = int(self._q_values(one, rng, noisy=not decision.eval_mode)[0].argmax())
            else:
                greedy.append(row)
        if greedy:
            chosen = each_array(lambda array: array[greedy], inputs)
            actions[greedy] = self._q_values(chosen, rng, noisy=False).argmax(dim=1).cpu().numpy()
        return PolicyOutput(actions + self._first_action)

    def q_values(self, inputs: Any) -> Tensor:
        """Return the Q-values [R, A] of stacks [R, k, *shape], without noise."""
        return self._q_values(inputs, self._random.draw(0, 0, eval_mode=True), noisy=False)

    @torch.inference_mode()
    def _q_values(self, inputs: Any, rng: np.random.Generator, noisy: bool) -> Tensor:
        resample_noise(self._noisy_layers, rng if noisy else None)
        with self.compute.autocast():
            return self._values(self.network, self._read(inputs), rng)

    def load_weights(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Read these tensors in place from now on; those on another device are copied. `version` is not needed."""
        device = self.compute.torch_device
        here = {name: tensor.to(device) for name, tensor in weights.items()}
        self.network.requires_grad_(False).load_state_dict(here, assign=True)

    def weights(self) -> Mapping[str, Tensor]:
        """Return the weights in the layout that inference reads; not a copy."""
        weights: dict[str, Tensor] = self.network.state_dict()
        return weights


class WorkerPolicy:
    """A policy of rows as a worker of an asynchronous runner calls it: one observation in, one action out.

    Args:
        policy: Reads stacks of one observation, and has no memory.

    Attributes:
        policy: As given.
    """

    def __init__(self, policy: Policy) -> None:
        """See the class."""
        self.policy = policy

    def act(self, observation: Any, decision: Decision) -> Any:
        """Return the environment's action for one observation, [*shape] or a dict of such.

        Where the policy leaves extras, the action comes with them: an object with ``action`` and ``extras``.
        `decision` is any object with the attributes of `agents.decision.Decision`.
        """
        output = self.policy.act(batch_of_one(stacked([observation])), (), (decision,))
        if output.extras is None:
            return output.action[0].item() if output.action.ndim == 1 else output.action[0]
        extras = {name: values[0] for name, values in output.extras.items()}
        return PolicyOutput(output.action[0], (), extras)

    def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        """Read these tensors in place from now on; those on another device are copied."""
        self.policy.load_weights(weights, version)

    def weights(self) -> Mapping[str, Any]:
        """Return the weights in the layout that inference reads; not a copy."""
        return self.policy.weights()


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
        return PolicyOutput(np.asarray([self._policy.act(each_array(lambda array: array[0, 0], inputs), decision)]))

    def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        """See `Policy.load_weights`."""
        self._policy.load_weights(weights, version)

    def weights(self) -> Mapping[str, Any]:
        """See `Policy.weights`."""
        weights: Mapping[str, Any] = self._policy.weights()
        return weights

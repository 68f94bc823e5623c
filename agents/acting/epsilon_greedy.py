"""The epsilon-greedy policy of agents whose networks give a value to each action."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from async_wrappers.agents.acting.decisions import DecisionRandom, Decisions, PolicyOutput
from async_wrappers.agents.acting.exploration import Epsilon, noisy_layers, resample_noise
from async_wrappers.agents.spaces.compute import Compute
from async_wrappers.agents.spaces.schema import MAX_VALUE, VALUE, each_array
from async_wrappers.policy import Decision

Values = Callable[[nn.Module, Any, np.random.Generator], Tensor]
"""From (network, inputs, generator) to Q-values [R, A]."""


class EpsilonGreedyPolicy:
    """Chooses ``argmax_a Q(o, a)``, or with probability epsilon an action drawn uniformly.

    All that it draws (epsilon's coin, the noise of noisy layers, quantiles) comes from the decision's own stream
    (`DecisionRandom`). Evaluation is without noise.

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
        leaves_values: Leave ``value``, Q(o, a) of the chosen action, and ``max_value``, the largest Q(o, .), as extras,
            float32 [R] each.
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
        leaves_values: bool = False,
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
        self._leaves_values = leaves_values

    def act(self, inputs: Any, state: Any, decisions: Sequence[Decision]) -> PolicyOutput:
        """Return the chosen actions [R] for stacks [R, k, *shape], or for a dict of them."""
        if len(decisions) == 1 and not self._leaves_values:
            return PolicyOutput(np.array([self._first_action + self._act_on_one(inputs, decisions[0])]))
        rows = Decisions.of(decisions)
        # A worker's warm-up inference belongs to no episode and has the number -1.
        episodes = np.maximum(rows.episode, 0)
        uniforms, actions = self._random.uniforms_and_actions(
            self._num_actions, episodes, rows.start, rows.eval_mode, rows.env_id
        )
        greedy = uniforms >= self._epsilons(rows)
        if self._leaves_values:
            return self._act_with_values(inputs, rows, greedy, actions)
        chosen = np.flatnonzero(greedy)
        if self._row_by_row:  # noise and quantiles of a row come from its own stream
            for row in chosen:
                one = each_array(lambda array, row=row: array[row : row + 1], inputs)
                actions[row] = self._act_on_one(one, rows[row])
        elif 2 * len(chosen) > len(rows):
            # A few unused values cost less than selecting the other rows.
            np.copyto(actions, self._greedy_actions(inputs), where=greedy)
        elif len(chosen):
            actions[chosen] = self._greedy_actions(each_array(lambda array: array[chosen], inputs))
        return PolicyOutput(actions + self._first_action)

    def _act_with_values(
        self, inputs: Any, rows: Decisions, greedy: npt.NDArray[np.bool_], actions: npt.NDArray[np.int64]
    ) -> PolicyOutput:
        """Return the greedy actions, the given ones where a row is not greedy, with their values as extras."""
        if self._row_by_row:
            each = [
                self._values_of_row(each_array(lambda array, row=row: array[row : row + 1], inputs), rows[row])
                for row in range(len(rows))
            ]
            values = torch.cat(each)
        else:
            values = self.q_values(inputs)
        q = values.float().cpu().numpy()
        actions = np.where(greedy, q.argmax(axis=1), actions)
        extras = {VALUE: q[np.arange(len(q)), actions], MAX_VALUE: q.max(axis=1)}
        return PolicyOutput(actions + self._first_action, extras=extras)

    def _greedy_actions(self, inputs: Any) -> npt.NDArray[np.int64]:
        actions: npt.NDArray[np.int64] = self.q_values(inputs).argmax(dim=1).cpu().numpy()
        return actions

    def _epsilons(self, rows: Decisions) -> npt.NDArray[np.float64]:
        if isinstance(self.epsilon, Epsilon):
            return self.epsilon.of_rows(rows)
        return np.array([self.epsilon(decision) for decision in rows], np.float64)

    def _act_on_one(self, one: Any, decision: Decision) -> int:
        """Return an action for a stack [1, k, *shape]."""
        rng, uniform, random_action = self._coin(decision)
        if uniform < self.epsilon(decision):
            return random_action
        return int(self._q_values(one, rng, noisy=not decision.eval_mode)[0].argmax())

    def _values_of_row(self, one: Any, decision: Decision) -> Tensor:
        """Return the values [1, A] that `_act_on_one` chooses by."""
        return self._q_values(one, self._coin(decision)[0], noisy=not decision.eval_mode)

    def _coin(self, decision: Decision) -> tuple[np.random.Generator, float, int]:
        """Return a decision's generator and coin: noise and quantiles are drawn after the coin."""
        rng = self._random.draw(max(decision.episode, 0), decision.start, decision.eval_mode, decision.env_id)
        return rng, rng.random(), int(rng.integers(self._num_actions))

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
        return self.network.state_dict()

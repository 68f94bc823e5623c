"""C51's hyperparameters, and the parts that they make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gin
import gymnasium as gym
import torch
from torch import Tensor, nn

from agents.c51.learner import C51Learner
from agents.c51.policy import C51Policy
from agents.dqn.parts import DQN, check_count, check_numbers
from agents.epsilon_greedy import EpsilonGreedyPolicy
from agents.learner import Learner, Replay

__all__ = ["C51"]


@gin.configurable("C51Agent", module="agents")
class C51(DQN):
    """The hyperparameters of C51 (Bellemare et al. 2017), ``C51Agent`` in gin.

    The network is called with (observation shape, number of actions, number of atoms) and gives logits [B, A, N].

    Args:
        observation_space: As in `DQN`.
        action_space: Discrete.
        num_atoms: N, how many atoms the support has, equally spaced from `vmin` to `vmax`.
        vmax: The largest return that is told apart.
        vmin: The least; None means ``-vmax``.
        shared: Those of `DQN`; `loss_type` has no effect.

    Raises:
        ValueError: A space that the agent cannot use, or an argument out of range.
    """

    name = "c51"

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        num_atoms: int = 51,
        vmax: float = 10.0,
        vmin: float | None = None,
        **shared: Any,
    ) -> None:
        """See the class."""
        super().__init__(observation_space, action_space, **shared)
        check_count("num_atoms", num_atoms, 2)
        check_numbers(vmax=vmax)
        if vmin is not None:
            check_numbers(vmin=vmin)
        self.num_atoms = num_atoms
        self._range = (-float(vmax) if vmin is None else float(vmin), float(vmax))
        if not self._range[0] < self._range[1]:
            raise ValueError(
                f"vmin must be < vmax, got vmin={self._range[0] if vmin is None else vmin} and vmax={vmax}"
            )

    @property
    def support(self) -> Tensor:
        """The atoms, [N]."""
        return torch.linspace(*self._range, self.num_atoms, device=self.compute.torch_device)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of what the network gives for one observation, [A, N]."""
        return (self.num_actions, self.num_atoms)

    def build_network(self, network: Callable[..., nn.Module]) -> nn.Module:
        """Make the network of logits."""
        return network(self.observation_shape, self.num_actions, self.num_atoms)

    def learner_of(self, network: nn.Module, replay: Replay, **arguments: Any) -> Learner:
        """Make a learner that updates `network` in place."""
        discount = {name: self._replay[name] for name in ("gamma", "discount_by")}
        return C51Learner(network, replay, support=self.support, **discount, **arguments)

    def policy_of(self, network: nn.Module, **actor: int) -> EpsilonGreedyPolicy:
        """Make a policy that reads `network` in place; `actor` are the arguments of `acting`."""
        return C51Policy(network, support=self.support, **self.acting(**actor))

"""Rainbow with all six of its components (Hessel et al., "Rainbow: combining improvements in deep RL", AAAI 2018).

C51, n-step returns, prioritised replay, double Q-learning, dueling heads and noisy layers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import gin
import gymnasium as gym
import numpy as np
from torch import Tensor, nn

from agents.learner import Batch, LossOutput, Monitor, Networks
from agents.networks.torsos import make_noisy
from agents.policy import linearly_decaying_epsilon, zero_epsilon
from agents.spec import check_flags, check_numbers
from agents.value_based.c51 import C51
from agents.value_based.dqn import DQN
from agents.value_based.rainbow import Rainbow

__all__ = ["FullRainbow"]


@gin.configurable("FullRainbowAgent", module="agents")
class FullRainbow(Rainbow):
    """Rainbow with all six (Hessel et al. 2018), ``FullRainbowAgent`` in gin; each can be left out.

    Args:
        observation_space: As in `DQN`.
        action_space: Discrete.
        noisy: Every linear layer is a noisy one (Fortunato et al. 2018).
        noisy_sigma: Its scale of noise, sigma_0; Dopamine's is 0.1, the paper's 0.5.
        dueling: The dueling head (Wang et al. 2016); the network is then called with ``head="dueling"``.
        double_dqn: The online network chooses the next action (van Hasselt et al. 2016).
        distributional: C51; otherwise DQN with `loss_type`.
        epsilon_fn: As in `DQN`; None means `zero_epsilon` where noise explores, else `linearly_decaying_epsilon`.
        shared: Those of `Rainbow`, `C51` and `DQN`.

    Raises:
        ValueError: A space that the agent cannot use, or an argument out of range.
    """

    name: ClassVar[str] = "full_rainbow"

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        noisy: bool = True,
        noisy_sigma: float = 0.1,
        dueling: bool = True,
        double_dqn: bool = True,
        distributional: bool = True,
        epsilon_fn: Callable[[int, int, int, float], float] | None = None,
        **shared: Any,
    ) -> None:
        """See the class."""
        check_flags(noisy=noisy, dueling=dueling, distributional=distributional)
        check_numbers(noisy_sigma=noisy_sigma)
        if epsilon_fn is None:
            epsilon_fn = zero_epsilon if noisy else linearly_decaying_epsilon
        super().__init__(observation_space, action_space, double_dqn=double_dqn, epsilon_fn=epsilon_fn, **shared)
        if not 0 <= noisy_sigma < float("inf"):
            raise ValueError(f"noisy_sigma must be >= 0 and finite, got {noisy_sigma}")
        self._noisy_sigma = noisy_sigma if noisy else None
        self._dueling, self._distributional = dueling, distributional
        self.learner_kind = (C51 if distributional else DQN).learner_kind

    def values(self, network: Callable[..., Tensor], observation: Any, rng: np.random.Generator) -> Tensor:
        """Return Q-values [B, A]: means of distributions, or those of DQN."""
        return (C51 if self._distributional else DQN).values(self, network, observation, rng)

    def loss(self, networks: Networks, batch: Batch, rng: np.random.Generator) -> LossOutput:
        """Return C51's loss, or DQN's."""
        return (C51 if self._distributional else DQN).loss(self, networks, batch, rng)

    def make_monitor(self) -> Monitor | None:
        """Make what warns of returns outside the support, if there is one."""
        return super().make_monitor() if self._distributional else None

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of the network's output for one observation, [A, N] or [A]."""
        return super().output_shape if self._distributional else (self.num_actions,)

    def build_network(self, network: Callable[..., nn.Module]) -> nn.Module:
        """Make the network, with a dueling head and noisy layers where they are asked for."""
        atoms = [self.num_atoms] if self._distributional else []
        head = {"head": "dueling"} if self._dueling else {}
        built = network(self.observation_shape, self.num_actions, *atoms, **head)
        return built if self._noisy_sigma is None else make_noisy(built, self._noisy_sigma)

"""Rainbow: Dopamine's (Castro et al. 2018) of three components, and that with all six.

Hessel et al., "Rainbow: combining improvements in deep reinforcement learning", AAAI 2018, put together C51, n-step
returns and prioritised replay, which matter most and are Dopamine's, with double Q-learning, dueling heads and noisy
layers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np
from torch import Tensor, nn

from async_wrappers.agents.acting.exploration import linearly_decaying_epsilon, zero_epsilon
from async_wrappers.agents.families.value_based.c51 import C51
from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.hyperparameters import NOT_NEGATIVE, again, agent, factory, flag, number
from async_wrappers.agents.losses.loss import Batch, LossOutput, Networks
from async_wrappers.agents.losses.support import SupportMonitor
from async_wrappers.agents.networks.noisy import make_noisy


@agent("RainbowAgent")
class Rainbow(C51):
    """Dopamine's Rainbow (Castro et al. 2018; Hessel et al. 2018), ``RainbowAgent`` in gin."""

    name: ClassVar[str] = "rainbow"

    update_horizon: int = again(DQN, "update_horizon", 3)
    replay_scheme: str | Callable[..., Any] = again(DQN, "replay_scheme", "prioritized")


@agent("FullRainbowAgent")
class FullRainbow(Rainbow):
    """Rainbow with all six components (Hessel et al. 2018), ``FullRainbowAgent`` in gin; each can be left out."""

    name: ClassVar[str] = "full_rainbow"

    noisy: bool = flag(True, "Every linear layer is a noisy one (Fortunato et al. 2018).")
    noisy_sigma: float = number(0.1, "Its scale of noise, sigma_0; Dopamine's is 0.1, the paper's 0.5.", NOT_NEGATIVE)
    dueling: bool = flag(
        True, 'The dueling head (Wang et al. 2016); the network is then called with ``head="dueling"``.'
    )
    double_dqn: bool = again(DQN, "double_dqn", True)
    distributional: bool = flag(True, "C51; otherwise DQN with `loss_type`.")
    epsilon_fn: Callable[..., float] | None = factory(  # type: ignore[assignment]
        None,
        "As in `DQN`; None means `zero_epsilon` where noise explores, else `linearly_decaying_epsilon`.",
        "@linearly_decaying_epsilon",
    )

    def settle(self) -> None:
        if self.epsilon_fn is None:
            self.epsilon_fn = zero_epsilon if self.noisy else linearly_decaying_epsilon
        super().settle()
        self.learner_kind = self._values_and_loss.learner_kind
        if not self.distributional:
            self.outputs = ()

    @property
    def _values_and_loss(self) -> type[DQN]:
        return C51 if self.distributional else DQN

    def values(self, network: Callable[..., Tensor], observation: Any, rng: np.random.Generator) -> Tensor:
        """Return Q-values [B, A]: means of distributions, or those of DQN."""
        return self._values_and_loss.values(self, network, observation, rng)

    def loss(self, networks: Networks, batch: Batch, rng: np.random.Generator) -> LossOutput:
        """Return C51's loss, or DQN's."""
        return self._values_and_loss.loss(self, networks, batch, rng)

    def make_monitor(self) -> SupportMonitor | None:
        """Make the monitor that warns of returns outside the support, if there is one."""
        return self._values_and_loss.make_monitor(self)

    def build_network(self, network: Callable[..., nn.Module]) -> nn.Module:
        """Make the network, with a dueling head and noisy layers if they are enabled."""
        built = super().build_network(partial(network, head="dueling") if self.dueling else network)
        return make_noisy(built, self.noisy_sigma) if self.noisy else built

"""Rainbow: Dopamine's (Castro et al. 2018) of three components, and that with all six.

Hessel et al., "Rainbow: combining improvements in deep reinforcement learning", AAAI 2018, put together C51, n-step
returns and prioritised replay, which matter most and are Dopamine's, with double Q-learning, dueling heads and noisy
layers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import gin
import gymnasium as gym
import numpy as np
from torch import Tensor, nn

from async_wrappers.agents.learner import Batch, LossOutput, Monitor, Networks
from async_wrappers.agents.networks.torsos import make_noisy
from async_wrappers.agents.policy import linearly_decaying_epsilon, zero_epsilon
from async_wrappers.agents.replay.selectors import Selector
from async_wrappers.agents.spec import check_flags, check_numbers
from async_wrappers.agents.value_based.c51 import C51
from async_wrappers.agents.value_based.dqn import DQN

__all__ = ["FullRainbow", "Rainbow"]


@gin.configurable("RainbowAgent", module="agents")
class Rainbow(C51):
    """Dopamine's Rainbow (Castro et al. 2018; Hessel et al. 2018), ``RainbowAgent`` in gin.

    Args:
        observation_space: As in `DQN`.
        action_space: Discrete.
        update_horizon: n of the n-step return, in decisions.
        replay_scheme: ``"prioritized"``, ``"uniform"``, or a selector of your own.
        shared: Those of `C51` and `DQN`.
    """

    name: ClassVar[str] = "rainbow"

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        update_horizon: int = 3,
        replay_scheme: str | Callable[..., Selector] = "prioritized",
        **shared: Any,
    ) -> None:
        """See the class."""
        super().__init__(
            observation_space, action_space, update_horizon=update_horizon, replay_scheme=replay_scheme, **shared
        )


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
        self.distributional = bool(distributional)
        super().__init__(observation_space, action_space, double_dqn=double_dqn, epsilon_fn=epsilon_fn, **shared)
        if not 0 <= noisy_sigma < float("inf"):
            raise ValueError(f"noisy_sigma must be >= 0 and finite, got {noisy_sigma}")
        self._noisy_sigma = noisy_sigma if noisy else None
        self._dueling = dueling
        self._values_and_loss = C51 if distributional else DQN
        self.learner_kind = self._values_and_loss.learner_kind
        if not distributional:
            self.outputs = ()

    def values(self, network: Callable[..., Tensor], observation: Any, rng: np.random.Generator) -> Tensor:
        """Return Q-values [B, A]: means of distributions, or those of DQN."""
        return self._values_and_loss.values(self, network, observation, rng)

    def loss(self, networks: Networks, batch: Batch, rng: np.random.Generator) -> LossOutput:
        """Return C51's loss, or DQN's."""
        return self._values_and_loss.loss(self, networks, batch, rng)

    def make_monitor(self) -> Monitor | None:
        """Make what warns of returns outside the support, if there is one."""
        return self._values_and_loss.make_monitor(self)

    def build_network(self, network: Callable[..., nn.Module]) -> nn.Module:
        """Make the network, with a dueling head and noisy layers where they are asked for."""
        built = super().build_network(partial(network, head="dueling") if self._dueling else network)
        return built if self._noisy_sigma is None else make_noisy(built, self._noisy_sigma)

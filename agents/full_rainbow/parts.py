"""The hyperparameters of Rainbow with all six of its parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gin
import gymnasium as gym
from torch import nn

from agents.dqn.parts import DQN, check_flags, check_numbers
from agents.epsilon_greedy import EpsilonGreedyPolicy
from agents.exploration import linearly_decaying_epsilon, zero_epsilon
from agents.learner import Learner, Replay
from agents.networks.noisy import make_noisy
from agents.rainbow.parts import Rainbow

__all__ = ["FullRainbow"]


@gin.configurable("FullRainbowAgent", module="agents")
class FullRainbow(Rainbow):
    """The hyperparameters of Rainbow (Hessel et al. 2018), ``FullRainbowAgent`` in gin.

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

    name = "full_rainbow"

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

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of what the network gives for one observation, [A, N] or [A]."""
        return super().output_shape if self._distributional else (self.num_actions,)

    def build_network(self, network: Callable[..., nn.Module]) -> nn.Module:
        """Make the network, with a dueling head and noisy layers where they are asked for."""
        atoms = [self.num_atoms] if self._distributional else []
        head = {"head": "dueling"} if self._dueling else {}
        built = network(self.observation_shape, self.num_actions, *atoms, **head)
        return built if self._noisy_sigma is None else make_noisy(built, self._noisy_sigma)

    def learner_of(self, network: nn.Module, replay: Replay, **arguments: Any) -> Learner:
        """Make a learner that updates `network` in place."""
        if self._distributional:
            return super().learner_of(network, replay, **arguments)
        return DQN.learner_of(self, network, replay, **arguments)

    def policy_of(self, network: nn.Module, **actor: int) -> EpsilonGreedyPolicy:
        """Make a policy that reads `network` in place; `actor` are the arguments of `acting`."""
        return super().policy_of(network, **actor) if self._distributional else DQN.policy_of(self, network, **actor)

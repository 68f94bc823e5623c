"""C51 (Bellemare, Dabney, Munos, "A distributional perspective on reinforcement learning", ICML 2017)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from async_wrappers.agents.families.value_based.dqn import DQN, refuse_loss_type
from async_wrappers.agents.hyperparameters import WIDEST, agent, must, number, whole
from async_wrappers.agents.losses import values as losses
from async_wrappers.agents.losses.loss import Batch, LossOutput, Networks
from async_wrappers.agents.losses.support import SupportMonitor
from async_wrappers.agents.losses.support import SupportWarning as SupportWarning  # filters of warnings name it here


def _refuse_loss_type(agent: str, given: Mapping[str, Any]) -> None:
    distributional = given.get("distributional", True)  # full Rainbow may leave the distributions out
    if not isinstance(distributional, bool | np.bool_) or distributional:
        refuse_loss_type(agent, given)


@agent("C51Agent", refuse=_refuse_loss_type)
class C51(DQN):
    """C51 (Bellemare et al. 2017), ``C51Agent`` in gin: a categorical distribution of each action's return.

    The network is called with (observation shape, number of actions, number of atoms) and gives logits [B, A, N].
    """

    name: ClassVar[str] = "c51"
    learner_kind: str = "C51Learner"

    num_atoms: int = whole(
        51, "N, how many atoms the support has, equally spaced from `vmin` to `vmax`.", 2, "atoms", most=WIDEST
    )
    vmax: float = number(10.0, "The largest return of the support; larger ones count as this one.")
    vmin: float | None = number(None, "The least one.", none="-vmax")

    def settle(self) -> None:
        super().settle()
        self.outputs = (self.num_atoms,)
        low, high = self.range
        must(
            low < high, f"vmin must be < vmax, got vmin={low if self.vmin is None else self.vmin} and vmax={self.vmax}"
        )

    @property
    def range(self) -> tuple[float, float]:
        """The least and the largest atom."""
        return -float(self.vmax) if self.vmin is None else float(self.vmin), float(self.vmax)

    def values(self, network: Callable[..., Tensor], observation: Any, rng: np.random.Generator) -> Tensor:
        """Return the distributions' means [B, A]."""
        return losses.expected_value(network(observation), self.support)

    def loss(self, networks: Networks, batch: Batch, rng: np.random.Generator) -> LossOutput:
        """Return the cross-entropy to ``r + discount Z_target(o', a*)``, projected (Bellemare et al., Algorithm 1)."""
        with torch.no_grad():
            logits_t = networks.target(batch["next_observation"])
            logits_t_selector = networks.online(batch["next_observation"]) if self.double_dqn else logits_t
            q_t_selector = losses.expected_value(logits_t_selector, self.support)
        logits_tm1 = networks.online(batch["observation"])
        step = (batch["action"], batch["reward"], batch["discount"])
        loss = losses.categorical_q_learning(self.support, logits_tm1, *step, logits_t, q_t_selector)
        return LossOutput(loss, priority=loss)

    @cached_property
    def support(self) -> Tensor:
        """The atoms, [N], on the network's device."""
        with torch.inference_mode(False):  # acting asks first, and autograd cannot save a tensor of inference mode
            return torch.linspace(*self.range, *self.outputs, device=self.compute.torch_device)

    def make_monitor(self) -> SupportMonitor | None:
        """Make the monitor that warns of returns outside the support."""
        return SupportMonitor(*self.range, self.gamma, self.discount_by)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the support, which lies on this machine's device."""
        return {name: value for name, value in super().__getstate__().items() if name != "support"}

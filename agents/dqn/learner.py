"""DQN's learner: from transitions to weights."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import numpy.typing as npt
import torch
from torch import Tensor, nn

from agents import losses
from agents.compute import Compute
from agents.optimizers import create_optimizer

__all__ = ["DQNLearner", "Replay"]

Optimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
LOSSES: Mapping[str, Callable[[Tensor], Tensor]] = {"huber": losses.huber, "mse": losses.squared}


class Replay(Protocol):
    """What the learner needs of a replay memory."""

    def observe(self, transition: Mapping[str, Any]) -> None:
        """Store a transition."""
        ...

    def sample(self) -> Mapping[str, npt.NDArray[Any]]:
        """Return a batch: observation, action, reward, discount, next_observation."""
        ...


class DQNLearner:
    """Steps the weights towards ``r + discount * max_a Q_target(o', a)`` (Mnih et al. 2015, Algorithm 1).

    Args:
        network: From observations [B, k, *shape] to Q-values [B, A]; updated in place.
        replay: Where transitions go and batches come from.
        target_update_period: Updates between two copies of the weights into the target network.
        optimizer: Makes the optimiser from the parameters.
        loss_type: ``"huber"``, or ``"mse"`` (the squared error).
        double: Let the online network choose the action that the target network values (van Hasselt et al. 2016).
        max_gradient_norm: Clip the gradient to this norm; None leaves it as it is.
        compute: Where updates run; the network must have been placed there.

    Raises:
        ValueError: An unknown loss, or a period below one update.
    """

    def __init__(
        self,
        network: nn.Module,
        replay: Replay,
        *,
        target_update_period: int = 2000,
        optimizer: Optimizer = create_optimizer,
        loss_type: str = "huber",
        double: bool = False,
        max_gradient_norm: float | None = None,
        compute: Compute | None = None,
    ) -> None:
        """See the class."""
        if loss_type not in LOSSES:
            raise ValueError(f"loss_type must be one of {', '.join(map(repr, LOSSES))}, got {loss_type!r}")
        if target_update_period < 1:
            raise ValueError(f"target_update_period must be >= 1 update, got {target_update_period}")
        self._compute = compute or Compute()
        self._network = network
        self._target = copy.deepcopy(network).requires_grad_(False)
        self._replay = replay
        self._optimizer = optimizer(network.parameters())
        self._loss = LOSSES[loss_type]
        self._double = double
        self._max_gradient_norm = max_gradient_norm
        self._target_update_period = target_update_period
        self.updates = 0

    def observe(self, transition: Mapping[str, Any]) -> None:
        """Store a transition."""
        self._replay.observe(transition)

    def update(self) -> Mapping[str, Tensor]:
        """Learn from one batch.

        Returns:
            Scalars by name, as tensors: reading one waits for the device.
        """
        batch = {
            name: self._compute.tensor(array) for name, array in self._replay.sample().items() if name in _LEARNT_FROM
        }
        loss = self._loss(self._td_error(batch)).mean()
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        if self._max_gradient_norm is not None:
            nn.utils.clip_grad_norm_(self._network.parameters(), self._max_gradient_norm)
        self._optimizer.step()
        self.updates += 1
        if self.updates % self._target_update_period == 0:
            self.synchronize_target()
        return {"Loss": loss.detach()}

    def synchronize_target(self) -> None:
        """Copy the weights into the target network."""
        self._target.load_state_dict(self._network.state_dict())

    def weights(self) -> Mapping[str, Tensor]:
        """Return the weights that a policy needs; not a copy."""
        weights: dict[str, Tensor] = self._network.state_dict()
        return weights

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Take over weights into both networks; the optimiser stays as it is."""
        self._network.load_state_dict(weights)
        self.synchronize_target()

    @property
    def optimizer_name(self) -> str:
        """Name of the optimiser's class: its state fits no other one."""
        return type(self._optimizer).__name__

    def state_dict(self) -> dict[str, Any]:
        """Return weights, target, optimiser and count; not the replay."""
        return {
            "network": self._network.state_dict(),
            "target": self._target.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "updates": self.updates,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self._network.load_state_dict(state["network"])
        self._target.load_state_dict(state["target"])
        settings = [{**group} for group in self._optimizer.param_groups]
        self._optimizer.load_state_dict(state["optimizer"])
        for group, setting in zip(self._optimizer.param_groups, settings, strict=True):
            group.update(setting, params=group["params"])  # a new learning rate is taken, the moments are kept
        self.updates = state["updates"]

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def _td_error(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Return the errors [B]."""
        with self._compute.autocast():
            with torch.no_grad():
                q_t = self._target(batch["next_observation"])
                q_t_selector = self._network(batch["next_observation"]) if self._double else None
            q_tm1 = self._network(batch["observation"])
        step = (q_tm1, batch["action"], batch["reward"], batch["discount"])
        if q_t_selector is not None:
            return losses.td_error_double_q_learning(*step, q_t, q_t_selector)
        return losses.td_error_q_learning(*step, q_t)


_LEARNT_FROM = frozenset({"observation", "action", "reward", "discount", "next_observation"})

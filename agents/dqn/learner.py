"""DQN's learner: from transitions to weights."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
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

    def __len__(self) -> int:
        """Return how many transitions can be sampled."""
        ...

    @property
    def add_count(self) -> int:
        """Transitions ever observed."""
        ...

    def save(self, directory: Path, number: int) -> object:
        """Write what is new, and an index of this moment."""
        ...

    def load(self, directory: Path, number: int) -> None:
        """Restore the moment of an index."""
        ...

    def facts(self) -> dict[str, Any]:
        """Return what two replays must share to load one another's files."""
        ...

    def prune(self, directory: Path, keep: Iterable[int]) -> None:
        """Delete what no index in `keep` needs."""
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
        min_replay_history: Transitions observed before it is ready to update.
        first_action: Number of the first action.

    Attributes:
        updates: Updates done.
        scalars: What the last batch gave, by name, as tensors: reading one waits for the device.

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
        min_replay_history: int = 0,
        first_action: int = 0,
    ) -> None:
        """See the class."""
        if loss_type not in LOSSES:
            raise ValueError(f"loss_type must be one of {', '.join(map(repr, LOSSES))}, got {loss_type!r}")
        if target_update_period < 1:
            raise ValueError(f"target_update_period must be >= 1 update, got {target_update_period}")
        self._compute = compute or Compute()
        self.network = network
        self._target = copy.deepcopy(network).requires_grad_(False)
        self.replay = replay
        self._optimizer = optimizer(network.parameters())
        self._loss = LOSSES[loss_type]
        self._double = double
        self._max_gradient_norm = max_gradient_norm
        self._target_update_period = target_update_period
        self._min_replay_history = min_replay_history
        self._first_action = first_action
        self.updates = 0
        self.scalars: Mapping[str, Tensor] = {}

    def observe(self, transition: Mapping[str, Any]) -> None:
        """Store a transition, whose action is the environment's."""
        self.replay.observe({**transition, "action": transition["action"] - self._first_action})

    @property
    def ready(self) -> bool:
        """Whether the replay holds enough to learn from."""
        return len(self.replay) > 0 and self.replay.add_count > self._min_replay_history

    def update(self) -> Mapping[str, Tensor]:
        """Learn from one batch.

        Returns:
            Scalars by name, as tensors: reading one waits for the device.
        """
        self.apply(self.gradients())
        return self.scalars

    def gradients(self) -> Mapping[str, Tensor]:
        """Return the gradient of a batch's loss on the present weights, by the parameter's name."""
        batch = {
            name: self._compute.tensor(array) for name, array in self.replay.sample().items() if name in _LEARNT_FROM
        }
        loss = self._loss(self._td_error(batch)).mean()
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self.scalars = {"Loss": loss.detach()}
        named = self.network.named_parameters()
        return {name: parameter.grad for name, parameter in named if parameter.grad is not None}

    def apply(self, gradients: Mapping[str, Tensor]) -> None:
        """Step the weights by gradients, which may come from another learner."""
        for name, parameter in self.network.named_parameters():
            parameter.grad = gradients.get(name)
        if self._max_gradient_norm is not None:
            nn.utils.clip_grad_norm_(self.network.parameters(), self._max_gradient_norm)
        self._optimizer.step()
        self.updates += 1
        if self.updates % self._target_update_period == 0:
            self.synchronize_target()

    def synchronize_target(self) -> None:
        """Copy the weights into the target network."""
        self._target.load_state_dict(self.network.state_dict())

    def weights(self) -> Mapping[str, Tensor]:
        """Return the weights that a policy needs; not a copy."""
        weights: dict[str, Tensor] = self.network.state_dict()
        return weights

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Copy weights into the network that is updated; target and optimiser stay as they are."""
        self.network.load_state_dict(weights)

    @property
    def optimizer_name(self) -> str:
        """Name of the optimiser's class: its state fits no other one."""
        return type(self._optimizer).__name__

    def state_dict(self) -> dict[str, Any]:
        """Return weights, target, optimiser and count; not the replay."""
        return {
            "network": self.network.state_dict(),
            "target": self._target.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "updates": self.updates,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.network.load_state_dict(state["network"])
        self._target.load_state_dict(state["target"])
        settings = [{**group} for group in self._optimizer.param_groups]
        self._optimizer.load_state_dict(state["optimizer"])
        for group, setting in zip(self._optimizer.param_groups, settings, strict=True):
            group.update(setting, params=group["params"])  # a new learning rate is taken, the moments are kept
        self.updates = state["updates"]

    def save_replay(self, directory: Path, iteration: int) -> None:
        """Write the replay into `directory`, for `load_replay` of the same number."""
        self.replay.save(directory, iteration)

    def load_replay(self, directory: Path, iteration: int) -> None:
        """Restore the replay.

        Raises:
            OSError: A file is missing.
            ValueError: A file is torn, or of another kind of replay.
        """
        self.replay.load(directory, iteration)

    def forget_replays(self, directory: Path, keep: set[int]) -> None:
        """Delete the replay files that no iteration in `keep` needs."""
        self.replay.prune(directory, keep)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def _td_error(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Return the errors [B]."""
        with self._compute.autocast():
            with torch.no_grad():
                q_t = self._target(batch["next_observation"])
                q_t_selector = self.network(batch["next_observation"]) if self._double else None
            q_tm1 = self.network(batch["observation"])
        step = (q_tm1, batch["action"], batch["reward"], batch["discount"])
        if q_t_selector is not None:
            return losses.td_error_double_q_learning(*step, q_t, q_t_selector)
        return losses.td_error_q_learning(*step, q_t)


_LEARNT_FROM = frozenset({"observation", "action", "reward", "discount", "next_observation"})

"""The interface of an agent's learning: the loss, its inputs, and the settings of the learner."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from async_wrappers.agents.losses.optimizers import create_optimizer, polynomial_decay
from async_wrappers.agents.losses.values import importance_weighted
from async_wrappers.agents.settings import (
    NOT_NEGATIVE,
    POSITIVE,
    POSITIVE_SHARE,
    SHARE,
    Range,
    choice,
    factory,
    flag,
    number,
    record,
    setting,
    whole,
)
from async_wrappers.agents.spaces.schema import each_array

Batch = Mapping[str, Any]  # tensors; "observation" and "next_observation" may be dicts of them


class Networks(NamedTuple):
    """The networks that a loss may call, under the learner's precision.

    Attributes:
        online: The network whose weights are updated.
        target: The same, or its part that has a target (`Learner`), with older weights; without gradient.
        module: `online` as a module, for a loss that calls its parts or a term that has parameters of its own in it.
        updates: Updates made so far, by all learners that share the weights.
        average: Averages tensors by name over several synchronous learners, in place, each weighted by a number of
            items; None for one learner.
        learners: How many these are.
    """

    online: Callable[..., Tensor]
    target: Callable[..., Tensor]
    module: nn.Module | None = None
    updates: int = 0
    average: Callable[[Mapping[str, Tensor], Tensor | int], Mapping[str, Tensor]] | None = None
    learners: int = 1

    @property
    def total(self) -> Callable[[Tensor], Tensor] | None:
        """What sums a tensor over all learners; None for one."""
        average = self.average
        return None if average is None else lambda each: average({"": each.clone()}, 1)[""] * self.learners


class LossOutput(NamedTuple):
    """A loss's result for the B transitions of a batch.

    Attributes:
        loss: [B], whose mean (weighted, where the batch has weights) is descended.
        priority: [B], how much each transition is worth, for a replay with priorities; None for one without.
        metrics: Scalars to report, by name.
        mean_over: The number of items that the mean of `loss` averages, if it is not B: it weights the gradients of
            several learners.
    """

    loss: Tensor
    priority: Tensor | None = None
    metrics: Mapping[str, Tensor] = {}
    mean_over: Tensor | None = None


def mean_loss(output: LossOutput, batch: Batch) -> Tensor:
    """Return the mean of a loss, weighted where the batch has weights.

    Raises:
        ValueError: The batch has weights, and the loss returned no priorities.
    """
    if "weight" not in batch:
        return output.loss.mean()
    if output.priority is None:
        raise ValueError("the loss must return priorities, as the replay draws by them, got None: give priority=[B]")
    return importance_weighted(output.loss, batch["weight"])


def sum_of_losses(one: LossOutput, other: LossOutput) -> LossOutput:
    """Add two losses of the same transitions; the metrics are those of the first."""
    priority = None if one.priority is None or other.priority is None else one.priority + other.priority
    return LossOutput(one.loss + other.loss, priority, one.metrics)


Loss = Callable[[Networks, Batch, np.random.Generator], LossOutput]
"""From networks, a batch of tensors on the device and a generator, another one for each batch, to `LossOutput`."""

Passes = Callable[[Networks, Batch, np.random.Generator], Generator[Batch, None, Mapping[str, Tensor] | None]]
"""From the same to the minibatches of an update, whose loss each makes a gradient step, and further scalars to report.
What it does after a minibatch sees the weights after that step. Several synchronous learners must give as many each."""


class Monitor(Protocol):
    """Watches the transitions that a learner observes of one environment.

    With many environments a transition holds its reward, interval, terminal and truncated alone.
    """

    def observe(self, transition: Mapping[str, Any]) -> None:
        """Observe a transition; within an episode each follows the previous one."""

    def cut(self) -> None:
        """Forget the running episode, the rest of which is missing."""


def _check_path(name: str, value: Any) -> None:
    if value is not None and not isinstance(value, str | Path):
        raise ValueError(f"{name} must be a path, or None for the run's base_dir, got {value!r}")


@record
class Discounting:
    """The discount of later rewards."""

    gamma: float = number(0.99, "Discount.", SHARE)
    discount_by: Literal["decision", "frame"] = choice(
        "decision", '``"decision"``: gamma per decision, as in the papers; ``"frame"``: gamma ** interval.',
        "decision", "frame",
    )  # fmt: skip

    def of(self, interval: Any) -> Any:
        """Return the discount of decisions of `interval` frames, a number or `[B]`; by ``"decision"`` gamma alone."""
        return self.gamma if self.discount_by == "decision" else self.gamma**interval


@record
class Learning:
    """The settings of a `Learner`. Agents declare most of them again, so that gin binds them."""

    target_update_period: int | None = whole(
        2000,
        "Updates between two copies of the weights into the target network; those of all learners that share the "
        "weights, where there are several.",
        1,
        "update",
        none="a loss that asks for no target",
    )
    target_smoothing: float | None = number(
        None,
        "tau: after each update the target network's weights w' become w' + tau (w - w') (Lillicrap et al. 2016), in "
        "the place of copies.",
        POSITIVE_SHARE,
        none="copies every `target_update_period`",
    )
    optimizer: Callable[..., torch.optim.Optimizer] = factory(
        create_optimizer, "Makes an optimiser from parameters.", "@create_optimizer"
    )
    learning_rate_decay: int | None = whole(
        None,
        "Updates over which the learning rate falls, to 0 unless `learning_rate_end` is given.",
        1,
        "update",
        none="a fixed rate",
    )
    learning_rate_power: float = number(
        1.0,
        "Exponent of this fall: 1 for a line, 2 for a parabola, as in TensorFlow's ``PolynomialDecay``.",
        Range("be > 0 and finite", lambda value: 0 < value < float("inf")),
    )
    learning_rate_end: float = number(
        0.0, "Share of the learning rate that is left after `learning_rate_decay` updates.", SHARE
    )
    max_gradient_norm: float | None = number(None, "Clip the gradient to this norm.", POSITIVE, none="no clipping")
    min_replay_history: int = whole(0, "Transitions observed before the first update.", 0, "transitions")
    one_step_loss: bool = flag(False, "Add the loss of the 1-step return to that of the n-step return.")
    priority_epsilon: float = number(
        1e-10, "Added to the loss or the error to make a transition's priority.", NOT_NEGATIVE
    )
    diverged_dir: str | Path | None = setting(
        None,
        "Directory for a batch whose loss is not finite; such a loss ends the run. None: the run's base_dir, or the "
        "working directory where there is none.",
        _check_path,
    )

    def learning_rate_scale(self, updates: int) -> float:
        """Return the factor of the optimiser's learning rate after a number of updates."""
        over = self.learning_rate_decay
        return (
            1.0 if over is None else polynomial_decay(updates, over, self.learning_rate_power, self.learning_rate_end)
        )


# Batches of sequences, time first.


_STACKS = ("observation", "next_observation")
_NUMBERS = ("action", "reward", "discount", "weight", "action_window", "next_action_window")


def batch_tensors(batch: Mapping[str, Any], read: Callable[[Any], Any], tensor: Callable[[Any], Any]) -> dict[str, Any]:
    """Return a batch's tensors for a loss.

    Args:
        batch: a batch of a replay. `interval`, `index` and `probability` are left out.
        read: makes the network's inputs from stacks [B, k, *shape], or from a dict of such.
        tensor: makes a tensor from an array: used for all that is not a stack, each array of the extras too.

    Returns:
        "observation" and "next_observation" as `read` gives them; tensors of "action" [B, ...], as it is stored, and
        [B] of "reward", "discount" and, if the batch has it, "weight"; of "action_window" and "next_action_window"
        [B, K, ...], if the batch has them; "extras", tensors in dicts like those of the batch, if it has them.
    """
    # The order is that of the batch: on another device it decides what is copied first.
    tensors: dict[str, Any] = {}
    for name, array in batch.items():
        if name in _STACKS:
            tensors[name] = read(array)
        elif name in _NUMBERS:
            tensors[name] = tensor(array)
        elif name == "extras":
            tensors[name] = each_array(tensor, array)
    return tensors

"""The interface of an agent's learning: the loss, its inputs, optimisers, and the settings of the learner."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Generator, Iterable, Mapping
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, NamedTuple

import gin
import numpy as np
import torch
from torch import Tensor, nn

from async_wrappers.agents.hyperparameters import (
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
from async_wrappers.agents.losses.values import importance_weighted
from async_wrappers.agents.spaces.schema import each_array

# Optimisers by name, with Dopamine's parameter names; the clip of a gradient, and how a learning rate falls.


OPTIMIZERS = ("adam", "rmsprop", "sgd")


def _plain(method: Any) -> Any:
    """Return a method of PyTorch's optimizers as it was before PyTorch wrapped it.

    The wrapper keeps PyTorch's compiler off the method, and imports the compiler to do so: a second, and 85 MB, in each
    process that learns. Nothing here compiles an optimizer.
    """
    return getattr(method, "__wrapped__", method)


# PyTorch's own `Adam.step` and `clip_grad_norm_` look for devices, dtypes and hooks on each call, which takes
# longer than the arithmetic of a small network (`benchmarks/learning_speed.py`). These two do the same operations, bit
# for bit, on parameters of one device and dtype.


class Adam(torch.optim.Adam):
    """PyTorch's fused Adam (Kingma and Ba 2015), for parameters of one device and dtype; hooks of steps are not called.

    Args:
        parameters: What it updates.
        arguments: Of PyTorch's.
    """

    add_param_group = _plain(torch.optim.Optimizer.add_param_group)
    zero_grad = _plain(torch.optim.Optimizer.zero_grad)
    state_dict = _plain(torch.optim.Optimizer.state_dict)
    load_state_dict = _plain(torch.optim.Optimizer.load_state_dict)

    def __init__(self, parameters: Iterable[nn.Parameter], **arguments: Any) -> None:
        super().__init__(parameters, fused=True, **arguments)

    @torch.no_grad()
    def step(self, host: Host | None = None) -> None:  # type: ignore[override]  # PyTorch's may compute the loss too
        """Step the parameters that have a gradient.

        Args:
            host: Gives the learning rates, where a graph replays the step; None for the present ones.
        """
        self._begin_moments()
        for place, group in enumerate(self.param_groups):
            stepped: list[Tensor] = []
            gradients: list[Tensor] = []
            averages: list[Tensor] = []
            squares: list[Tensor] = []
            steps: list[Tensor] = []
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                moments = self.state[parameter]
                stepped.append(parameter)
                gradients.append(parameter.grad)
                averages.append(moments["exp_avg"])
                squares.append(moments["exp_avg_sq"])
                steps.append(moments["step"])
            if not stepped:
                continue
            rate: Any = group["lr"]
            if host is not None:
                rate = host.now(partial(self._rate, place))
            if stepped[0].is_cuda:  # where a rate that is a tensor is one of float32, so that all have this precision
                rate = rate.float() if isinstance(rate, Tensor) else float(np.float32(rate))
            torch._foreach_add_(steps, 1)
            torch._fused_adam_(
                stepped,
                gradients,
                averages,
                squares,
                [],
                steps,
                lr=rate,
                beta1=group["betas"][0],
                beta2=group["betas"][1],
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                amsgrad=False,
                maximize=False,
            )

    step.hooked = True  # type: ignore[attr-defined]  # so PyTorch does not wrap it

    def _rate(self, place: int) -> float:
        rate: float = self.param_groups[place]["lr"]
        return rate

    def _begin_moments(self) -> None:
        """Begin the moments of parameters that have their first gradient: zeros, all of them in a few operations."""
        new = [
            parameter
            for group in self.param_groups
            for parameter in group["params"]
            if parameter.grad is not None and parameter not in self.state
        ]
        if not new:
            return
        averages, squares = torch._foreach_sub(new, new), torch._foreach_sub(new, new)  # in the weights' layout
        steps = new[0].new_zeros(len(new), dtype=torch.float32).unbind()
        for parameter, *moments in zip(new, steps, averages, squares, strict=True):
            self.state[parameter] = dict(zip(("step", "exp_avg", "exp_avg_sq"), moments, strict=True))


@torch.no_grad()
def clip_gradient_norm(parameters: Iterable[nn.Parameter], most: float) -> Tensor:
    """Scale the gradients of parameters so that their norm is at most `most`; return the norm that they had.

    Args:
        parameters: Of one device; those without a gradient are left out.
        most: The largest norm of a gradient.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    torch._foreach_mul_(gradients, (most / (norm + 1e-6)).clamp_(max=1.0))
    return norm


@torch.no_grad()
def without_spoilt(gradients: Mapping[str, Tensor], loss: Tensor) -> Mapping[str, Tensor]:
    """Return gradients as they are, or zeros if their loss is not finite; the host does not wait for the loss.

    Args:
        gradients: By the parameter's name, without gaps in memory.
        loss: A scalar.
    """
    spoilt = (loss - loss) != 0  # infinities and NaN alone differ from themselves
    each = list(gradients.values())
    if len({gradient.dtype for gradient in each}) != 1 or sum(map(Tensor.numel, each)) > _JOINED:
        for gradient in each:
            gradient.masked_fill_(spoilt, 0.0)
        return gradients
    joined = torch.cat([gradient.as_strided((gradient.numel(),), (1,)) for gradient in each]).masked_fill_(spoilt, 0.0)
    begins = accumulate(map(Tensor.numel, each), initial=0)
    return {
        name: joined.as_strided(gradient.shape, gradient.stride(), begin)
        for (name, gradient), begin in zip(gradients.items(), begins, strict=False)
    }


_JOINED = 1 << 24  # numbers; a copy of more takes longer than the launches that it saves, and gigabytes


@gin.configurable(module="agents")
def create_optimizer(
    parameters: Iterable[nn.Parameter],
    name: str = "adam",
    learning_rate: float = 6.25e-5,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1.5e-4,
    decay: float = 0.95,
    momentum: float = 0.0,
    centered: bool = False,
) -> torch.optim.Optimizer:
    """Make an optimiser.

    Args:
        parameters: What it updates.
        name: ``"adam"`` (Kingma and Ba 2015), ``"rmsprop"`` or ``"sgd"``.
        learning_rate: Step size.
        beta1: Adam's decay of the gradient's mean.
        beta2: Adam's decay of the gradient's mean square.
        eps: Added to the denominator of Adam and RMSProp; PyTorch adds it outside the root, TensorFlow's RMSProp (the
            Nature DQN's in Dopamine) inside.
        decay: RMSProp's decay of the gradient's mean square.
        momentum: Of RMSProp and SGD.
        centered: RMSProp divides by the standard deviation instead of the root mean square (Mnih et al. 2015).

    Raises:
        ValueError: An unknown name, or a value that the optimiser cannot use.
    """
    if name not in OPTIMIZERS:
        raise ValueError(f"create_optimizer.name must be one of {', '.join(map(repr, OPTIMIZERS))}, got {name!r}")
    rates = {"learning_rate": learning_rate, "eps": eps, "momentum": momentum}
    shares = {"beta1": beta1, "beta2": beta2, "decay": decay}
    for key, value in (rates | shares).items():
        limit = "a finite number >= 0" if key in rates else "a number >= 0 and < 1"
        number = isinstance(value, numbers.Real) and not isinstance(value, bool)
        if not number or not 0 <= value < (math.inf if key in rates else 1):
            raise ValueError(f"create_optimizer.{key} must be {limit}, got {value!r}")
    if name == "adam":
        # One pass over all parameters instead of one operation after another.
        listed = list(parameters)
        alike = len({(parameter.device, parameter.dtype) for parameter in listed}) == 1
        made = Adam if alike else partial(torch.optim.Adam, fused=True)
        return made(listed, lr=learning_rate, betas=(beta1, beta2), eps=eps)
    if name == "rmsprop":
        return torch.optim.RMSprop(
            parameters, lr=learning_rate, alpha=decay, eps=eps, momentum=momentum, centered=centered
        )
    return torch.optim.SGD(parameters, lr=learning_rate, momentum=momentum)


@gin.configurable(module="agents")
def create_adam(
    parameters: Iterable[nn.Parameter],
    learning_rate: float = 3e-4,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
) -> torch.optim.Optimizer:
    """Make Adam with the step size that agents of real-valued actions have; see `create_optimizer`.

    Args:
        parameters: What it updates.
        learning_rate: Step size.
        beta1: Decay of the gradient's mean.
        beta2: Decay of the gradient's mean square.
        eps: Added to the denominator, outside the root.
    """
    made: torch.optim.Optimizer = create_optimizer(parameters, "adam", learning_rate, beta1, beta2, eps)
    return made


def linear_decay(updates: int, over: int) -> float:
    """Return the factor of a learning rate that falls linearly to 0 over a number of updates."""
    return max(0.0, 1.0 - updates / over)


def polynomial_decay(updates: int, over: int, power: float = 1.0, end: float = 0.0) -> float:
    """Return the factor of a learning rate that falls from 1 to `end` as end + (1 - end) (1 - updates / over)^power.

    TensorFlow's ``PolynomialDecay`` is the same; its ``end_learning_rate`` is `end` times the first rate.

    Args:
        updates: Done so far.
        over: Updates after which the factor is `end`.
        power: 1 for a line, 2 for a parabola.
        end: The last factor, in [0, 1].
    """
    factor: float = end + (1.0 - end) * linear_decay(updates, over) ** power
    return factor


Batch = Mapping[str, Any]  # tensors; "observation" and "next_observation" may be dicts of them


class Host(NamedTuple):
    """Numbers and choices of the host that change between two runs of a function: as it is called, those of now.

    Attributes:
        now: Returns a number as it is; or, where a graph replays the function, as a scalar tensor that is filled anew.
        whether: Returns the outcome of a choice; each has a graph of its own.
    """

    now: Callable[[Callable[[], float]], Any] = lambda number: number()
    whether: Callable[[Callable[[], bool]], bool] = lambda choice: choice()


PRESENT = Host()


def _check_now(holds: Tensor, refuse: Callable[[], None]) -> None:
    if not bool(holds):
        refuse()


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
        host: Gives numbers of the host that change between updates, and its choices: a loss that a graph replays must
            take them from here (`learning.captured`).
        check: Calls a function, which raises an error, if a scalar is 0: at once, or on a GPU when the host reads the
            update's loss.
    """

    online: Callable[..., Tensor]
    target: Callable[..., Tensor]
    module: nn.Module | None = None
    updates: int | Tensor = 0
    average: Callable[[Mapping[str, Tensor], Tensor | int], Mapping[str, Tensor]] | None = None
    learners: int = 1
    host: Host = PRESENT
    check: Callable[[Tensor, Callable[[], None]], None] = _check_now

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


def mean_slopes(losses: Tensor, batch: Batch) -> Tensor:
    """Return the gradient of `mean_loss` by each loss, `[B]`."""
    each = losses.new_ones(()).expand_as(losses) / losses.numel()
    return each * batch["weight"] if "weight" in batch else each


def means(metrics: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the means of metrics, scalars or numbers `[B]`, by name; those of one shape are averaged at once."""
    rows = {name: each for name, each in metrics.items() if each.ndim}
    averaged = dict(zip(rows, torch.stack(list(rows.values())).mean(dim=1).unbind(), strict=True)) if rows else {}
    return {name: averaged.get(name, each) for name, each in metrics.items()}


def sum_of_losses(one: LossOutput, other: LossOutput) -> LossOutput:
    """Add two losses of the same transitions; the metrics are those of the first."""
    priority = None if one.priority is None or other.priority is None else one.priority + other.priority
    return LossOutput(one.loss + other.loss, priority, one.metrics)


Loss = Callable[[Networks, Batch, np.random.Generator], LossOutput]
"""From networks, a batch of tensors on the device and a generator, another one for each batch, to `LossOutput`."""

Passes = Callable[[Networks, Batch, np.random.Generator], Generator[Batch, None, Mapping[str, Tensor] | None]]
"""From the same to the minibatches of an update, whose loss each makes a gradient step, and further scalars to report.
What it does after a minibatch sees the weights after that step. Several synchronous learners must give as many each."""


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

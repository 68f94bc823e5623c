"""Optimisers by name, with Dopamine's parameter names; the clip of a gradient, and how a learning rate falls."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable
from functools import partial
from typing import Any

import gin
import torch
from torch import Tensor, nn

OPTIMIZERS = ("adam", "rmsprop", "sgd")

# PyTorch's own `Adam.step` and `clip_grad_norm_` look for devices, dtypes and hooks on each call, which takes
# longer than the arithmetic of a small network (`benchmarks/learning_speed.py`). These two do the same operations, bit
# for bit, on parameters of one device and dtype.


class Adam(torch.optim.Adam):
    """PyTorch's fused Adam (Kingma and Ba 2015), for parameters of one device and dtype; hooks of steps are not called.

    Args:
        parameters: What it updates.
        arguments: Of PyTorch's.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], **arguments: Any) -> None:
        """See the class."""
        super().__init__(parameters, fused=True, **arguments)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Step the parameters that have a gradient."""
        if closure is not None or len(self.state) < sum(len(group["params"]) for group in self.param_groups):
            return super().step(closure)  # the first step makes the moments
        for group in self.param_groups:
            stepped = [parameter for parameter in group["params"] if parameter.grad is not None]
            if not stepped:
                continue
            moments = [self.state[parameter] for parameter in stepped]
            steps = [each["step"] for each in moments]
            torch._foreach_add_(steps, 1)
            torch._fused_adam_(
                stepped,
                [parameter.grad for parameter in stepped],
                [each["exp_avg"] for each in moments],
                [each["exp_avg_sq"] for each in moments],
                [],
                steps,
                lr=group["lr"],
                beta1=group["betas"][0],
                beta2=group["betas"][1],
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                amsgrad=False,
                maximize=False,
            )
        return None

    step.hooked = True  # type: ignore[attr-defined]  # so PyTorch does not wrap it


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

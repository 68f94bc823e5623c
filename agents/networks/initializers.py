"""Initial weights: PyTorch's own, or by variance scaling, as the networks of Dopamine begin."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import gin
import torch
from torch import Tensor, nn

__all__ = ["INITIALIZERS", "Initializer", "initialize", "variance_scaling"]

Initializer = str | Callable[[Tensor], Any]

_CUT_AT_TWO = 0.87962566103423978  # standard deviation of a standard normal variable that is cut off at -2 and 2


@gin.configurable(module="agents")
@torch.no_grad()
def variance_scaling(
    weight: Tensor, scale: float = 1 / math.sqrt(3), mode: str = "fan_in", distribution: str = "uniform"
) -> Tensor:
    """Fill a layer's weights with independent values of mean 0 and variance ``scale / fan``, in place.

    Called Glorot's or Xavier's (scale 1, ``"fan_avg"``), LeCun's (1, ``"fan_in"``) and He's (2, ``"fan_in"``) after the
    papers that derive the scale. The defaults are those of Dopamine's Rainbow, C51, QR-DQN and IQN.

    Args:
        weight: `[outputs, inputs]` of a linear layer or `[outputs, inputs, *kernel]` of a convolution; a fan counts the
            inputs, or the outputs, times the pixels of the kernel.
        scale: > 0.
        mode: The fan: ``"fan_in"``, ``"fan_out"`` or ``"fan_avg"``, their mean.
        distribution: ``"uniform"``, ``"normal"`` or ``"truncated_normal"`` (cut off at two standard deviations of the
            normal one that it is cut from).

    Returns:
        `weight`.

    Raises:
        ValueError: An unknown mode or distribution, a scale that is not positive, or weights of fewer than 2 axes.
    """
    if isinstance(scale, bool) or not isinstance(scale, numbers.Real) or not 0 < scale < math.inf:
        raise ValueError(f"variance_scaling.scale must be a number > 0 and finite, got {scale!r}")
    if weight.ndim < 2:
        raise ValueError(f"weight must have shape [outputs, inputs, *kernel], got {list(weight.shape)}")
    pixels = math.prod(weight.shape[2:])
    fan_in, fan_out = weight.shape[1] * pixels, weight.shape[0] * pixels
    fans = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}
    if not isinstance(mode, str) or mode not in fans:
        raise ValueError(f"variance_scaling.mode must be one of {', '.join(map(repr, fans))}, got {mode!r}")
    deviation = math.sqrt(scale / fans[mode])
    if distribution == "uniform":
        return weight.uniform_(-math.sqrt(3) * deviation, math.sqrt(3) * deviation)
    if distribution == "normal":
        return weight.normal_(0.0, deviation)
    if distribution == "truncated_normal":
        whole = deviation / _CUT_AT_TWO
        return nn.init.trunc_normal_(weight, std=whole, a=-2 * whole, b=2 * whole)
    raise ValueError(
        f"variance_scaling.distribution must be 'uniform', 'normal' or 'truncated_normal', got {distribution!r}"
    )


INITIALIZERS: Mapping[str, Callable[[Tensor], Any] | None] = MappingProxyType(
    {
        "torch": None,
        "xavier_uniform": partial(variance_scaling, scale=1.0, mode="fan_avg", distribution="uniform"),
        "lecun_normal": partial(variance_scaling, scale=1.0, mode="fan_in", distribution="truncated_normal"),
        "variance_scaling": variance_scaling,
    }
)


def initialize(module: nn.Module, initializer: Initializer) -> None:
    """Draw the weights of all linear and convolutional layers in `module` anew, from torch's generator; biases are 0.

    Args:
        module: Its other layers are left alone, noisy ones too.
        initializer: One of `INITIALIZERS`, or a function that fills a tensor of weights, such as those of
            ``torch.nn.init``; with ``"torch"`` nothing is drawn, and biases stay as they are too.

    Raises:
        ValueError: An unknown name.
        TypeError: It is neither a name nor a function.
    """
    fill: Any = initializer
    if isinstance(initializer, str):
        if initializer not in INITIALIZERS:
            names = ", ".join(map(repr, INITIALIZERS))
            raise ValueError(f"initializer must be one of {names} or a function, got {initializer!r}")
        fill = INITIALIZERS[initializer]
        if fill is None:
            return
    if not callable(fill):
        raise TypeError(f"initializer must be a name or a function of a tensor, got {type(fill).__name__}")
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d):
            fill(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)

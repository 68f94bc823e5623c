"""Torsos: networks from an observation, which may be an image, to a vector of features.

A torso is an ``nn.Module`` built from the observation shape, and carries an integer ``output_size``.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from numbers import Integral
from types import MappingProxyType
from typing import Any

import gin
import torch
from torch import Tensor, nn
from torch.nn import functional

# Convolution and pooling with the padding of TensorFlow and Flax that is called "same".
#
# An image of n pixels becomes one of ceil(n / stride), however wide the kernel is. The padding that this takes is
# shared equally by both sides, and what is odd goes to the end: below, and to the right. PyTorch's own
# ``padding="same"`` knows no strides, and its numbers pad both sides alike.

PADDINGS = ("valid", "same")


def same_padding(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """Return the pixels (before, after) that "same" adds to `size` pixels."""
    total = max((size_after(size, kernel, stride, "same") - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2


def size_after(size: int, kernel: int, stride: int, padding: str) -> int:
    """Return how many pixels a window makes of `size` pixels."""
    return -(-size // stride) if padding == "same" else (size - kernel) // stride + 1


class SameConv2d(nn.Conv2d):
    """A convolution with "same" padding by zeros: `[B, C, H, W]` to `[B, C', ceil(H / stride), ceil(W / stride)]`.

    Args:
        in_channels: C.
        out_channels: C'.
        kernel: Height and width of the kernel, in pixels.
        stride: In pixels.
    """

    def __init__(self, in_channels: int, out_channels: int, kernel: int, stride: int = 1) -> None:
        super().__init__(in_channels, out_channels, kernel, stride)
        self._window = kernel, stride

    def forward(self, images: Tensor) -> Tensor:
        """Convolve a batch."""
        top, bottom = same_padding(images.shape[2], *self._window)
        left, right = same_padding(images.shape[3], *self._window)
        if (top, left) == (bottom, right):  # the convolution pads alike on both sides by itself, without a copy
            return functional.conv2d(images, self.weight, self.bias, self.stride, (top, left))
        padded = functional.pad(images, (left, right, top, bottom))
        return functional.conv2d(padded, self.weight, self.bias, self.stride)


class SameMaxPool2d(nn.Module):
    """Max pooling with "same" padding, which is never the maximum: [H, W] to [ceil(H / stride), ceil(W / stride)].

    Args:
        kernel: Height and width of the window, in pixels.
        stride: In pixels.
    """

    def __init__(self, kernel: int, stride: int) -> None:
        super().__init__()
        self._window = kernel, stride

    def forward(self, images: Tensor) -> Tensor:
        """Pool a batch."""
        kernel, stride = self._window
        top, bottom = same_padding(images.shape[2], kernel, stride)
        left, right = same_padding(images.shape[3], kernel, stride)
        if stride == 1 and (top, left) != (bottom, right):
            images = functional.pad(images, (left, right, top, bottom), value=float("-inf"))
            return functional.max_pool2d(images, kernel, stride)
        # Rounded up, the number of windows is that of a padding with the odd pixel at the end.
        return functional.max_pool2d(images, kernel, stride, (top, left), ceil_mode=True)

    def extra_repr(self) -> str:
        """Return the arguments."""
        return "kernel={}, stride={}".format(*self._window)


# Initial weights: PyTorch's own, or by variance scaling, as the networks of Dopamine begin.

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
        scale: Numerator of the variance, > 0.
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
        "orthogonal": partial(nn.init.orthogonal_, gain=math.sqrt(2)),  # Saxe et al. 2014, with the gain for ReLUs
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


# What networks ask of their arguments: sizes above 0, and observations of the shape that they were built for.


def check_sizes(argument: str, sizes: Iterable[int]) -> tuple[int, ...]:
    """Return sizes as a tuple.

    Args:
        argument: what the message calls them.
        sizes: numbers of channels, pixels, features, actions.

    Raises:
        ValueError: If one is not positive.
    """
    checked = tuple(sizes)
    for size in checked:
        if size <= 0:
            got = checked[0] if len(checked) == 1 else list(checked)
            raise ValueError(f"{argument} must be > 0, got {got}")
    return checked


def checked_units(argument: str, units: Any) -> int:
    """Return the units of a layer that may be left out.

    Raises:
        ValueError: They are no whole number above 0.
    """
    if not isinstance(units, Integral) or isinstance(units, bool) or units <= 0:
        raise ValueError(f"{argument} must be a whole number > 0 of units, or None for no layer, got {units!r}")
    return int(units)


def check_observation(observation: Any, observation_shape: Any, name: str = "observation") -> None:
    """Check that a batch fits the shape that a network was built for.

    Args:
        observation: A tensor, or a dict of tensors.
        observation_shape: Shape of one observation, without the batch; for a Dict, the shapes by key.
        name: What the message calls the batch.

    Raises:
        ValueError: If a tensor is not `[B, *observation_shape]`, or a dict has other keys.
    """
    if isinstance(observation_shape, Mapping):
        if not isinstance(observation, Mapping) or observation.keys() != observation_shape.keys():
            got = sorted(observation) if isinstance(observation, Mapping) else type(observation).__name__
            raise ValueError(f"{name} must be a dict with the keys {sorted(observation_shape)}, got {got}")
        for key, shape in observation_shape.items():
            check_observation(observation[key], shape, f"{name}[{key!r}]")
        return
    expected = ", ".join(["B", *map(str, observation_shape)])
    if isinstance(observation, Mapping):
        raise ValueError(f"{name} must be a tensor [{expected}], got a dict with the keys {sorted(observation)}")
    if observation.shape[1:] != observation_shape:
        raise ValueError(
            f"{name} must have the shape [{expected}], got {list(observation.shape)}; "
            "add the batch dimension or build the network for this observation_shape"
        )


def is_vector(shape: Sequence[int]) -> bool:
    """Whether a shape `[k, *shape]` of a stack is that of single numbers or vectors, not of images or tables."""
    return len(shape) <= 2


def as_float32(observation: Any) -> Any:
    """Return uint8 as floats in [0, 1], and floats as they are; those of a dict by key."""
    if isinstance(observation, Mapping):
        return {key: as_float32(entry) for key, entry in observation.items()}
    if observation.dtype == torch.uint8:
        # The conversion makes a fresh tensor, so dividing in place saves a second one and leaves the caller's alone.
        return observation.to(torch.float32).div_(255.0)
    if observation.is_floating_point():
        return observation.to(torch.float32)
    raise TypeError(f"observation must be uint8 or floating point, got {observation.dtype}; convert it with .float()")


def read_observation(observation: Any, observation_shape: Any, name: str = "observation") -> Any:
    """Return a batch `as_float32`, after `check_observation`; most batches pass without a call of either."""
    fits = type(observation) is Tensor and observation.shape[1:] == observation_shape
    if fits and observation.dtype == torch.float32:
        return observation
    check_observation(observation, observation_shape, name)
    return as_float32(observation)


TorsoFactory = Callable[[tuple[int, ...]], nn.Module]

HIDDEN_SIZE = 512  # features of a torso that reads images


# Images and stacks of them. Networks are given stacks, `[k, *shape]`: k images `[H, W]` without channels are an image
# `[C, H, W]` as they are, and of k images with channels the axis of these is the first or the last one.


def _channels_are_last(shape: Sequence[int]) -> bool:
    """Return whether images are `[H, W, C]`: their last axis is the smallest, by which Stable-Baselines3 tells it."""
    return len(shape) > 3 and shape[-1] < min(shape[-3:-1])


def image_shape(shape: Sequence[int]) -> tuple[int, int, int]:
    """Return the `(C, H, W)` as which `[C, H, W]`, `[k, C, H, W]` or `[k, H, W, C]` is read."""
    if _channels_are_last(shape):
        shape = (*shape[:-3], shape[-1], *shape[-3:-1])
    return math.prod(shape[:-2]), shape[-2], shape[-1]


def is_image(shape: Sequence[int], least: int) -> bool:
    """Return whether a shape is that of images with a height and width of `least` pixels."""
    return len(shape) > 2 and min(image_shape(shape)[1:]) >= least


class AsOneImage(nn.Module):
    """Reads stacks of images as one image of all their channels: `[B, *shape]` to `[B, C, H, W]`.

    Args:
        shape: `[k, C, H, W]` or `[k, H, W, C]`.
    """

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self._last = _channels_are_last(shape)

    def forward(self, images: Tensor) -> Tensor:
        """Read a batch."""
        return (images.movedim(-1, -3) if self._last else images).flatten(1, -3)


class _Layers(nn.Module):
    """A torso that is one layer after another.

    Args:
        layers: As said.
        output_size: Number of features.
        images: The shape of observations that are images.
    """

    def __init__(self, layers: Sequence[nn.Module], output_size: int, images: Sequence[int] = ()) -> None:
        super().__init__()
        self.layers = nn.Sequential(*([AsOneImage(images)] if len(images) > 3 else []), *layers)
        self.output_size = output_size

    def forward(self, observation: Tensor) -> Tensor:
        """Map floats `[B, *observation_shape]` to features `[B, output_size]`."""
        features: Tensor = self.layers(observation)
        return features


@gin.configurable(module="agents")
class NatureTorso(_Layers):
    """Convolutional torso of the Nature DQN (Mnih et al. 2015, "Human-level control through deep RL").

    Three convolutions (32 of 8x8 stride 4, 64 of 4x4 stride 2, 64 of 3x3 stride 1) and a fully connected layer of 512,
    each followed by a ReLU. Maps float images `[B, C, H, W]` to features `[B, hidden]`.

    Args:
        observation_shape: `[C, H, W]`, in channels and pixels; or `[k, C, H, W]` or `[k, H, W, C]`, a stack that is one
            image of all channels. Without padding, H and W are at least 36.
        padding: ``"valid"``: unpadded, as in the paper; ``"same"``: as in Dopamine, so that of 84 x 84 pixels the
            convolutions leave 11 x 11 and not 7 x 7, and the torso has 2.5 times the parameters.
        hidden: Units of the fully connected layer; None leaves it out: the features are what the convolutions give,
            64 x 7 x 7 of 84 x 84 pixels.

    Attributes:
        output_size: Number of features.

    Raises:
        ValueError: If `observation_shape` is not an image shape or too small for the convolutions, `padding` is
            unknown, or `hidden` is no whole number above 0.
    """

    _SPECS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))  # (channels, kernel, stride) of each convolution, kernel in pixels

    def __init__(
        self, observation_shape: Sequence[int], padding: str = "valid", hidden: int | None = HIDDEN_SIZE
    ) -> None:
        windows = [(kernel, stride) for _, kernel, stride in self._SPECS]
        channels, height, width = _image_shape_after(windows, observation_shape, padding)
        convolution = SameConv2d if padding == "same" else nn.Conv2d
        layers: list[nn.Module] = []
        for out_channels, kernel, stride in self._SPECS:
            layers += [convolution(channels, out_channels, kernel, stride), nn.ReLU(inplace=True)]
            channels = out_channels
        ended = _ended(layers, channels * height * width, "NatureTorso.hidden", hidden)
        super().__init__(*ended, images=observation_shape)


@gin.configurable(module="agents")
class ImpalaTorso(_Layers):
    """Residual convolutional torso of IMPALA (Espeholt et al. 2018, arXiv 1802.01561), `width` times as wide.

    Each stage is a 3x3 convolution, a 3x3 max pooling and two residual blocks; the first stage has 16 * width channels
    and the others 32 * width. Three stages, each pooling with stride 2, or when deep six, of which the first and fifth
    pool with stride 2 and the others with stride 1. A fully connected layer of 512 (whatever the width) and a ReLU
    follow. Maps float images `[B, C, H, W]` to features `[B, hidden]`.

    The sizes are those of Riemer et al. 2025 (arXiv 2412.14355), which differ from the IMPALA paper: the convolution
    and the pooling that open a stage are unpadded, and the fully connected layer has 512 units instead of 256. With
    ``padding="same"`` they are those of Dopamine's IMPALA network; with ``hidden=256`` as well those of the paper's
    large one and of SEED RL's (Espeholt et al. 2020).

    Args:
        observation_shape: As of `NatureTorso`; without padding, H and W at least 29, or 53 when deep.
        width: Multiplier of the channel counts, which are rounded to the nearest integer, at least 1.
        deep: Whether to use six stages (12 residual blocks) instead of three (6).
        padding: ``"valid"`` or ``"same"``, of the convolution and the pooling that open a stage.
        hidden: Units of the fully connected layer; None leaves it out.

    Attributes:
        output_size: Number of features.

    Raises:
        ValueError: If `width` is not positive, `padding` is unknown, `hidden` is no whole number above 0, or
            `observation_shape` is not an image shape or too small.
    """

    _POOL_STRIDES = (2, 2, 2)
    _DEEP_POOL_STRIDES = (2, 1, 1, 1, 2, 1)

    def __init__(
        self,
        observation_shape: Sequence[int],
        width: float = 1.0,
        deep: bool = False,
        padding: str = "valid",
        hidden: int | None = HIDDEN_SIZE,
    ) -> None:
        if not width > 0:
            raise ValueError(f"width must be > 0, got {width}")
        strides = self._DEEP_POOL_STRIDES if deep else self._POOL_STRIDES
        windows = [window for stride in strides for window in ((3, 1), (3, stride))]
        channels, out_height, out_width = _image_shape_after(windows, observation_shape, padding)
        layers: list[nn.Module] = []
        for index, stride in enumerate(strides):
            out_channels = max(1, round((16 if index == 0 else 32) * width))
            layers.append(_impala_stage(channels, out_channels, stride, padding))
            channels = out_channels
        layers.append(nn.ReLU(inplace=True))
        ended = _ended(layers, channels * out_height * out_width, "ImpalaTorso.hidden", hidden)
        super().__init__(*ended, images=observation_shape)


@gin.configurable(module="agents")
class CentredTorso(nn.Module):
    """A torso that reads images in [-1, 1] in the place of [0, 1].

    Padding adds zeros to what a convolution reads, which is black in [0, 1] and grey in [-1, 1], so this is no other
    scale of the first layer's weights.

    Args:
        observation_shape: As of `NatureTorso`.
        torso: Makes the torso that reads them.

    Attributes:
        output_size: The torso's.
    """

    def __init__(self, observation_shape: Sequence[int], torso: TorsoFactory = NatureTorso) -> None:
        super().__init__()
        self.torso = torso(tuple(observation_shape))
        self.output_size = output_size(self.torso)

    def forward(self, observation: Tensor) -> Tensor:
        """Map floats in [0, 1] `[B, *observation_shape]` to features `[B, output_size]`."""
        features: Tensor = self.torso(observation * 2 - 1)
        return features


@gin.configurable(module="agents")
class MLPTorso(_Layers):
    """Fully connected torso with a ReLU after every layer, for vectors and stacks of vectors.

    Flattens everything but the batch: maps floats `[B, *observation_shape]` to features `[B, hidden[-1]]`.

    Args:
        observation_shape: Any shape, such as `[n]` or `[stack, n]`.
        hidden: Units of each layer; empty passes the flattened observation on.

    Attributes:
        output_size: Number of features, the last of `hidden`.

    Raises:
        ValueError: If a size in `observation_shape` or `hidden` is not positive, or no whole number.
    """

    def __init__(self, observation_shape: Sequence[int], hidden: Sequence[int] = (256, 256)) -> None:
        whole = isinstance(hidden, Sequence) and all(isinstance(units, Integral) for units in hidden)
        if not whole or isinstance(hidden, str):
            raise ValueError(f"MLPTorso.hidden must be a list of whole numbers of units, got {hidden!r}")
        check_sizes("hidden", hidden)
        size = math.prod(check_sizes("observation_shape", observation_shape))
        layers: list[nn.Module] = [nn.Flatten()]
        for units in hidden:
            layers += [nn.Linear(size, units), nn.ReLU(inplace=True)]
            size = units
        super().__init__(layers, size)


@gin.configurable(module="agents")
class MinAtarTorso(_Layers):
    """Convolutional torso of MinAtar's authors (Young and Tian 2019, arXiv 1903.03176, section 3).

    One 3x3 convolution of stride 1, unpadded, and a fully connected layer, each followed by a ReLU: a quarter of the
    units of the Nature DQN's last layers, for images of 10 x 10 cells. Maps floats `[B, C, H, W]` to features
    `[B, hidden]`.

    Args:
        observation_shape: As of `NatureTorso`, in channels and cells; H and W at least 3.
        channels: Filters of the convolution, the authors' 16.
        hidden: Units of the fully connected layer, the authors' 128.

    Attributes:
        output_size: Number of features, `hidden`.
        join_size: Units of the layer that joins several images, or an image and a vector, in a `DictTorso`.

    Raises:
        ValueError: A size is not positive, or `observation_shape` is no image shape or too small.
    """

    def __init__(self, observation_shape: Sequence[int], channels: int = 16, hidden: int = 128) -> None:
        check_sizes("MinAtarTorso.channels", [channels])
        check_sizes("MinAtarTorso.hidden", [hidden])
        in_channels, height, width = _image_shape_after([(3, 1)], observation_shape, "valid")
        layers = [nn.Conv2d(in_channels, channels, 3), nn.ReLU(inplace=True)]
        layers += hidden_layer(channels * height * width, hidden)
        super().__init__(layers, hidden, images=observation_shape)
        self.join_size = hidden

    @staticmethod
    def is_image(shape: tuple[int, ...]) -> bool:
        """Return whether an entry of a Dict of observations is a stack of images with channels, for this torso.

        Three axes are a stack of matrices, such as the rows of actions that `CommittedPrefix` shows.
        """
        return len(shape) > 3 and is_image(shape, 3)


def output_size(torso: nn.Module) -> int:
    """Return the number of features that a torso says it has."""
    size = getattr(torso, "output_size", None)
    if not isinstance(size, int):
        raise TypeError(
            f"torso must have an integer output_size, got {size!r} from {type(torso).__name__}; "
            "set self.output_size in its constructor"
        )
    return size


class _ResidualBlock(nn.Module):
    """Pre-activation residual block: x + conv(relu(conv(relu(x)))), shape kept."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        # The first ReLU must leave its input alone, because the skip connection adds it unchanged.
        hidden = functional.relu(self.first(functional.relu(images)), inplace=True)
        residual: Tensor = self.second(hidden)
        return images + residual


def _impala_stage(in_channels: int, out_channels: int, pool_stride: int, padding: str) -> nn.Sequential:
    same = padding == "same"
    return nn.Sequential(
        SameConv2d(in_channels, out_channels, 3) if same else nn.Conv2d(in_channels, out_channels, 3),
        SameMaxPool2d(3, pool_stride) if same else nn.MaxPool2d(3, stride=pool_stride),
        _ResidualBlock(out_channels),
        _ResidualBlock(out_channels),
    )


def hidden_layer(input_size: int, units: int = HIDDEN_SIZE) -> list[nn.Module]:
    """Return the fully connected layer, with its ReLU, that ends a torso for images."""
    return [nn.Flatten(), nn.Linear(input_size, units), nn.ReLU(inplace=True)]


def _ended(layers: Sequence[nn.Module], size: int, argument: str, hidden: int | None) -> tuple[list[nn.Module], int]:
    """Return the layers of a torso for images with the one that ends it, and how many features that gives.

    Args:
        layers: The convolutions.
        size: Features that they give.
        argument: What the message calls `hidden`.
        hidden: Units of the last layer; None for none, and flattened features.
    """
    if hidden is None:
        return [*layers, nn.Flatten()], size
    units = checked_units(argument, hidden)
    return [*layers, *hidden_layer(size, units)], units


def _image_shape_after(
    windows: Sequence[tuple[int, int]], observation_shape: Sequence[int], padding: str
) -> tuple[int, int, int]:
    """Follow an image through sliding windows, by arithmetic so that no forward pass is needed.

    Args:
        windows: `(kernel, stride)` of each convolution or pooling, in pixels.
        observation_shape: As of `NatureTorso`.
        padding: Of the windows, ``"valid"`` or ``"same"``.

    Returns:
        `(C, H', W')`, the input channels and the height and width after the last window.

    Raises:
        ValueError: If `observation_shape` has fewer than three sizes, one that is not positive, or too small ones to
            leave a pixel, or `padding` is unknown.
    """
    if padding not in PADDINGS:
        raise ValueError(f"padding must be {' or '.join(map(repr, PADDINGS))}, got {padding!r}")
    shape = check_sizes("observation_shape", observation_shape)
    if len(shape) < 3:
        raise ValueError(
            f"observation_shape must be [C, H, W], [k, C, H, W] or [k, H, W, C], got {list(shape)}; "
            'use torso "mlp" for other shapes'
        )
    smallest = 1
    for kernel, stride in reversed(windows):
        smallest = (smallest - 1) * stride + kernel
    channels, height, width = image_shape(shape)
    if min(height, width) < smallest and padding == "valid":
        raise ValueError(
            f"observation_shape must have H and W >= {smallest} for this torso, got {list(shape)}; "
            'enlarge the image, use padding "same", or torso "mlp"'
        )
    for kernel, stride in windows:
        height, width = (size_after(size, kernel, stride, padding) for size in (height, width))
    return channels, height, width

"""Torsos: networks from an observation, which may be an image, to a vector of features.

A torso is an ``nn.Module`` built from the observation shape, and carries an integer ``output_size``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from numbers import Integral

import gin
from torch import Tensor, nn
from torch.nn import functional

from agents.networks.inputs import check_sizes
from agents.networks.padding import SameConv2d, SameMaxPool2d, check_padding, size_after

__all__ = ["HIDDEN_SIZE", "ImpalaTorso", "MLPTorso", "NatureTorso", "TorsoFactory", "hidden_layer", "output_size"]

TorsoFactory = Callable[[tuple[int, ...]], nn.Module]

HIDDEN_SIZE = 512  # features of a torso that reads images


@gin.configurable(module="agents")
class NatureTorso(nn.Module):
    """Convolutional torso of the Nature DQN (Mnih et al. 2015, "Human-level control through deep RL").

    Three convolutions (32 of 8x8 stride 4, 64 of 4x4 stride 2, 64 of 3x3 stride 1) and a fully connected layer of 512,
    each followed by a ReLU. Maps float images `[B, C, H, W]` to features `[B, 512]`.

    Args:
        observation_shape: `[C, H, W]`, in channels and pixels; without padding, H and W at least 36.
        padding: ``"valid"``: unpadded, as in the paper; ``"same"``: as in Dopamine, so that of 84 x 84 pixels the
            convolutions leave 11 x 11 and not 7 x 7, and the torso has 2.5 times the parameters.

    Attributes:
        output_size: Number of features, 512.

    Raises:
        ValueError: If `observation_shape` is not an image shape or too small for the convolutions, or `padding` is
            unknown.
    """

    _SPECS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))  # (channels, kernel, stride) of each convolution, kernel in pixels

    def __init__(self, observation_shape: Sequence[int], padding: str = "valid") -> None:
        super().__init__()
        windows = [(kernel, stride) for _, kernel, stride in self._SPECS]
        channels, height, width = _image_shape_after(windows, observation_shape, padding)
        convolution = SameConv2d if padding == "same" else nn.Conv2d
        layers: list[nn.Module] = []
        for out_channels, kernel, stride in self._SPECS:
            layers += [convolution(channels, out_channels, kernel, stride), nn.ReLU(inplace=True)]
            channels = out_channels
        layers += hidden_layer(channels * height * width)
        self.layers = nn.Sequential(*layers)
        self.output_size = HIDDEN_SIZE

    def forward(self, observation: Tensor) -> Tensor:
        """Map float images `[B, C, H, W]` to features `[B, 512]`."""
        features: Tensor = self.layers(observation)
        return features


@gin.configurable(module="agents")
class ImpalaTorso(nn.Module):
    """Residual convolutional torso of IMPALA (Espeholt et al. 2018, arXiv 1802.01561), `width` times as wide.

    Each stage is a 3x3 convolution, a 3x3 max pooling and two residual blocks; the first stage has 16 * width channels
    and the others 32 * width. Three stages, each pooling with stride 2, or when deep six, of which the first and fifth
    pool with stride 2 and the others with stride 1. A fully connected layer of 512 (whatever the width) and a ReLU
    follow. Maps float images `[B, C, H, W]` to features `[B, 512]`.

    The sizes are those of Riemer et al. 2025 (arXiv 2412.14355), which differ from the IMPALA paper: the convolution
    and the pooling that open a stage are unpadded, and the fully connected layer has 512 units instead of 256. With
    ``padding="same"`` they are those of Dopamine's IMPALA network.

    Args:
        observation_shape: `[C, H, W]`, in channels and pixels; without padding, H and W at least 29, or 53 when deep.
        width: Multiplier of the channel counts, which are rounded to the nearest integer, at least 1.
        deep: Whether to use six stages (12 residual blocks) instead of three (6).
        padding: ``"valid"`` or ``"same"``, of the convolution and the pooling that open a stage.

    Attributes:
        output_size: Number of features, 512.

    Raises:
        ValueError: If `width` is not positive, `padding` is unknown, or `observation_shape` is not an image shape or
            too small.
    """

    _POOL_STRIDES = (2, 2, 2)
    _DEEP_POOL_STRIDES = (2, 1, 1, 1, 2, 1)

    def __init__(
        self, observation_shape: Sequence[int], width: float = 1.0, deep: bool = False, padding: str = "valid"
    ) -> None:
        super().__init__()
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
        layers += [nn.ReLU(inplace=True), *hidden_layer(channels * out_height * out_width)]
        self.layers = nn.Sequential(*layers)
        self.output_size = HIDDEN_SIZE

    def forward(self, observation: Tensor) -> Tensor:
        """Map float images `[B, C, H, W]` to features `[B, 512]`."""
        features: Tensor = self.layers(observation)
        return features


@gin.configurable(module="agents")
class MLPTorso(nn.Module):
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
        super().__init__()
        whole = isinstance(hidden, Sequence) and all(isinstance(units, Integral) for units in hidden)
        if not whole or isinstance(hidden, str):
            raise ValueError(f"MLPTorso.hidden must be a list of whole numbers of units, got {hidden!r}")
        check_sizes("hidden", hidden)
        size = math.prod(check_sizes("observation_shape", observation_shape))
        layers: list[nn.Module] = [nn.Flatten()]
        for units in hidden:
            layers += [nn.Linear(size, units), nn.ReLU(inplace=True)]
            size = units
        self.layers = nn.Sequential(*layers)
        self.output_size = size

    def forward(self, observation: Tensor) -> Tensor:
        """Map floats `[B, *observation_shape]` to features `[B, output_size]`."""
        features: Tensor = self.layers(observation)
        return features


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


def hidden_layer(input_size: int) -> list[nn.Module]:
    """Return the fully connected layer of 512 units, with its ReLU, that ends a torso for images."""
    return [nn.Flatten(), nn.Linear(input_size, HIDDEN_SIZE), nn.ReLU(inplace=True)]


def _image_shape_after(
    windows: Sequence[tuple[int, int]], observation_shape: Sequence[int], padding: str
) -> tuple[int, int, int]:
    """Follow an image through sliding windows, by arithmetic so that no forward pass is needed.

    Args:
        windows: `(kernel, stride)` of each convolution or pooling, in pixels.
        observation_shape: `[C, H, W]`.
        padding: Of the windows, ``"valid"`` or ``"same"``.

    Returns:
        `(C, H', W')`, the input channels and the height and width after the last window.

    Raises:
        ValueError: If `observation_shape` is not three positive sizes, or too small to leave a pixel, or `padding` is
            unknown.
    """
    check_padding(padding)
    shape = check_sizes("observation_shape", observation_shape)
    if len(shape) != 3:
        raise ValueError(f'observation_shape must be [C, H, W], got {list(shape)}; use torso "mlp" for other shapes')
    smallest = 1
    for kernel, stride in reversed(windows):
        smallest = (smallest - 1) * stride + kernel
    channels, height, width = shape
    if min(height, width) < smallest and padding == "valid":
        raise ValueError(
            f"observation_shape must have H and W >= {smallest} for this torso, got {list(shape)}; "
            'enlarge the image, use padding "same", or torso "mlp"'
        )
    for kernel, stride in windows:
        height, width = (size_after(size, kernel, stride, padding) for size in (height, width))
    return channels, height, width

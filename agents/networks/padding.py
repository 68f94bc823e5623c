"""Convolution and pooling with the padding of TensorFlow and Flax that is called "same".

An image of n pixels becomes one of ceil(n / stride), however wide the kernel is. The padding that this takes is
shared equally by both sides, and what is odd goes to the end: below, and to the right. PyTorch's own ``padding="same"``
knows no strides, and its numbers pad both sides alike.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional

__all__ = ["PADDINGS", "SameConv2d", "SameMaxPool2d", "check_padding", "same_padding", "size_after"]

PADDINGS = ("valid", "same")


def check_padding(padding: Any) -> None:
    """Refuse what is not in `PADDINGS`.

    Raises:
        ValueError: It is not.
    """
    if padding not in PADDINGS:
        raise ValueError(f"padding must be {' or '.join(map(repr, PADDINGS))}, got {padding!r}")


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

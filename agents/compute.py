"""Where and how tensors are computed: device, memory format, precision."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

__all__ = ["Compute"]


@dataclass(frozen=True)
class Compute:
    """The choices that an agent's policy and learner share.

    Attributes:
        device: ``"auto"`` (CUDA where there is one), ``"cpu"`` or ``"cuda"``.
        channels_last: Keep images and convolution weights in the channels-last memory format.
        bf16: Run forward passes under bfloat16 autocast; weights, losses and optimiser stay in float32.
    """

    device: str = "auto"
    channels_last: bool = False
    bf16: bool = False

    def __post_init__(self) -> None:
        """Check the device's name.

        Raises:
            ValueError: An unknown device, or ``"cuda"`` where there is none.
        """
        if self.device not in ("auto", "cpu", "cuda"):
            raise ValueError(f"device must be 'auto', 'cpu' or 'cuda', got {self.device!r}")
        if self.device == "cuda" and not torch.cuda.is_available():
            raise ValueError("device='cuda' needs a CUDA device, and torch sees none: use device='auto' or 'cpu'")

    @cached_property
    def torch_device(self) -> torch.device:
        """The device that the name stands for on this machine; asked for in every forward pass."""
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        return torch.device(self.device)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the device, which may be another one on another machine."""
        return asdict(self)

    def place(self, network: nn.Module) -> nn.Module:
        """Move a network to the device and memory format, in place."""
        if self.channels_last:
            return network.to(self.torch_device, memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]
        return network.to(self.torch_device)

    def tensor(self, array: npt.NDArray[Any]) -> Tensor:
        """Return a batch as a tensor on the device; images [B, C, H, W] in the memory format."""
        tensor = torch.from_numpy(array).to(self.torch_device, non_blocking=True)
        if self.channels_last and tensor.ndim == 4:
            return _channels_last(tensor)
        return tensor

    def autocast(self) -> torch.autocast:
        """Return the context in which forward passes run."""
        return torch.autocast(self.torch_device.type, dtype=torch.bfloat16, enabled=self.bf16)


def _channels_last(images: Tensor) -> Tensor:
    if images.is_cuda or images.is_contiguous(memory_format=torch.channels_last):
        return images.contiguous(memory_format=torch.channels_last)
    batch, channels, height, width = images.shape
    interleaved = np.empty((batch, height, width, channels), images.numpy().dtype)
    for channel, image in enumerate(images.numpy().swapaxes(0, 1)):
        interleaved[..., channel] = image  # for bytes, faster than PyTorch's own copy
    return torch.from_numpy(interleaved).permute(0, 3, 1, 2)

"""Where and how tensors are computed: device, memory format, precision."""

from __future__ import annotations

import math
import numbers
import os
import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import gin
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

__all__ = ["Compute", "create_optimizer"]


@dataclass(frozen=True)
class Compute:
    """The choices that an agent's policy and learner share.

    Attributes:
        device: ``"auto"`` (CUDA where there is one), ``"cpu"`` or ``"cuda"``.
        channels_last: Keep images and convolution weights in the channels-last memory format.
        bf16: Run forward passes under bfloat16 autocast; weights, losses and optimiser stay in float32.
        compile: Compile networks with ``torch.compile`` when they are first called, for each shape of batch: on a CPU
            it needs a C++ compiler. Results are the same within rounding.
        wait: Whether an update waits to see its own loss. None: not on CUDA, where waiting would leave the device
            idle, and where the loss is looked at before the next batch is drawn (`agents.learner.Learner`).
    """

    device: str = "auto"
    channels_last: bool = False
    bf16: bool = False
    compile: bool = False
    wait: bool | None = None

    def __post_init__(self) -> None:
        """Check the device's name, and that there is a compiler where one is needed.

        Raises:
            ValueError: An unknown device, ``"cuda"`` where there is none, or `compile` without a compiler.
        """
        if self.device not in ("auto", "cpu", "cuda"):
            raise ValueError(f"device must be 'auto', 'cpu' or 'cuda', got {self.device!r}")
        if self.device == "cuda" and not torch.cuda.is_available():
            raise ValueError("device='cuda' needs a CUDA device, and torch sees none: use device='auto' or 'cpu'")
        compiler = os.environ.get("CXX", _COMPILERS.get(sys.platform, "g++"))
        if self.compile and self.torch_device.type == "cpu" and shutil.which(compiler) is None:
            raise ValueError(
                f"compile=True needs a C++ compiler, and {compiler!r} is not on the PATH: install it, name another in "
                "the environment variable CXX, or use compile=False"
            )

    @cached_property
    def torch_device(self) -> torch.device:
        """The device that the name stands for on this machine; asked for in every forward pass."""
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        return torch.device(self.device)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the device, which may be another one on another machine."""
        return asdict(self)

    @property
    def deferred(self) -> bool:
        """Whether an update's loss is looked at later, see `wait`."""
        return self.torch_device.type == "cuda" if self.wait is None else not self.wait

    def place(self, network: nn.Module) -> nn.Module:
        """Move a network to the device and memory format, in place; it will be compiled where that is asked for."""
        if self.compile:
            network.compile()
        if self.channels_last:
            return network.to(self.torch_device, memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]
        return network.to(self.torch_device)

    def tensor(self, array: npt.NDArray[Any]) -> Tensor:
        """Return a batch as a tensor on the device; images [B, C, H, W] in the memory format."""
        tensor = torch.from_numpy(array)
        if self.torch_device.type == "cuda":
            tensor = tensor.pin_memory()  # or the copy would wait for all that the device has still to do
        tensor = tensor.to(self.torch_device, non_blocking=True)
        if self.channels_last and tensor.ndim == 4:
            return _channels_last(tensor)
        return tensor

    def fetch(self, tensor: Tensor) -> Callable[[], npt.NDArray[Any]]:
        """Begin to copy a tensor to the host; the function returned waits for it, and gives it as an array."""
        if self.torch_device.type == "cpu":
            return tensor.numpy
        host = torch.empty_like(tensor, device="cpu", pin_memory=True)
        host.copy_(tensor, non_blocking=True)
        arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
        arrived.record()

        def wait() -> npt.NDArray[Any]:
            arrived.synchronize()
            array: npt.NDArray[Any] = host.numpy()
            return array

        return wait

    def autocast(self) -> torch.autocast:
        """Return the context in which forward passes run."""
        return torch.autocast(self.torch_device.type, dtype=torch.bfloat16, enabled=self.bf16)


_COMPILERS = {"darwin": "clang++", "win32": "cl"}  # those that torch.compile calls, where they are not g++


def _channels_last(images: Tensor) -> Tensor:
    if images.is_cuda or images.is_contiguous(memory_format=torch.channels_last):
        return images.contiguous(memory_format=torch.channels_last)
    batch, channels, height, width = images.shape
    interleaved = np.empty((batch, height, width, channels), images.numpy().dtype)
    for channel, image in enumerate(images.numpy().swapaxes(0, 1)):
        interleaved[..., channel] = image  # for bytes, faster than PyTorch's own copy
    return torch.from_numpy(interleaved).permute(0, 3, 1, 2)


# Optimisers by name, with Dopamine's parameter names.

NAMES = ("adam", "rmsprop", "sgd")


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
    if name not in NAMES:
        raise ValueError(f"create_optimizer.name must be one of {', '.join(map(repr, NAMES))}, got {name!r}")
    rates = {"learning_rate": learning_rate, "eps": eps, "momentum": momentum}
    shares = {"beta1": beta1, "beta2": beta2, "decay": decay}
    for key, value in (rates | shares).items():
        limit = "a finite number >= 0" if key in rates else "a number >= 0 and < 1"
        number = isinstance(value, numbers.Real) and not isinstance(value, bool)
        if not number or not 0 <= value < (math.inf if key in rates else 1):
            raise ValueError(f"create_optimizer.{key} must be {limit}, got {value!r}")
    if name == "adam":
        # One pass over all parameters instead of one operation after another.
        return torch.optim.Adam(parameters, lr=learning_rate, betas=(beta1, beta2), eps=eps, fused=True)
    if name == "rmsprop":
        return torch.optim.RMSprop(
            parameters, lr=learning_rate, alpha=decay, eps=eps, momentum=momentum, centered=centered
        )
    return torch.optim.SGD(parameters, lr=learning_rate, momentum=momentum)

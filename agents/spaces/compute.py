"""What a network computes with (device, precision, layout of images, compilation), and how it reads observations."""

from __future__ import annotations

import os
import pathlib
import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from torch import Tensor, nn

from async_wrappers.agents.spaces.schema import (
    blank_observation,
    each_array,
    leaves,
    refuse_empty,
    remedy,
    space_without_tuples,
    without_tuples,
)


@dataclass(frozen=True)
class Compute:
    """The choices that an agent's policy and learner share.

    Attributes:
        device: ``"auto"`` (CUDA where there is one), ``"cpu"``, ``"cuda"``, or one of several, such as ``"cuda:1"``.
        channels_last: Keep images and convolution weights in the channels-last memory format.
        bf16: Run forward passes under bfloat16 autocast; weights, losses and optimiser stay in float32. ``"auto"``
            becomes True where the device computes in bfloat16 itself (`computes_bf16`), else False.
        compile: Compile networks with ``torch.compile`` when they are first called, for each shape of batch: on a CPU
            it needs a C++ compiler. Results are the same within rounding.
        graphs: Compute updates and decisions by CUDA graphs (`agents.learning.captured`). On a CPU the same functions
            are called on the same buffers, with the same results, which takes longer and is for tests. With bf16 the
            gradients of a core's weights are the same within rounding.
        wait: Whether an update waits for its own loss, to check it. None: not on CUDA, where waiting would leave the
            device idle; the loss is then checked before the next batch is drawn (`agents.learning.learner.Learner`).
        automatic: Whether bf16 was ``"auto"``: a resumed run then keeps its checkpoint's value.
    """

    device: str = "auto"
    channels_last: bool = False
    bf16: bool | str = False
    compile: bool = False
    graphs: bool = False
    wait: bool | None = None
    automatic: bool = False

    def __post_init__(self) -> None:
        """Check the device's name, and that there is a compiler where one is needed.

        Raises:
            ValueError: An unknown device, one that is not there, `compile` without a compiler, or a `bf16` that is
                neither True, False nor ``"auto"``.
        """
        kind, numbered, number = str(self.device).partition(":")
        if self.device not in ("auto", "cpu", "cuda") and not (kind == "cuda" and number.isdecimal()):
            raise ValueError(f"device must be 'auto', 'cpu' or 'cuda', got {self.device!r}")
        if self.device == "cuda" and not torch.cuda.is_available():
            raise ValueError("device='cuda' needs a CUDA device, and torch sees none: use device='auto' or 'cpu'")
        if numbered and int(number) >= (seen := torch.cuda.device_count()):
            raise ValueError(f"device={self.device!r} is not there, torch sees {seen} CUDA devices: name another one")
        if not isinstance(self.bf16, bool | np.bool_) and not (isinstance(self.bf16, str) and self.bf16 == "auto"):
            raise ValueError(f"bf16 must be True, False or 'auto', got {self.bf16!r}")
        if self.bf16 == "auto":
            object.__setattr__(self, "automatic", True)
            object.__setattr__(self, "bf16", computes_bf16(self.torch_device))
        compiler = os.environ.get("CXX", _COMPILERS.get(sys.platform, "g++"))
        if self.compile and self.torch_device.type == "cpu" and shutil.which(compiler) is None:
            raise ValueError(
                f"compile=True needs a C++ compiler, and {compiler!r} is not on the PATH: install it, name another in "
                "the environment variable CXX, or use compile=False"
            )

    @cached_property
    def torch_device(self) -> torch.device:
        """The device that the name stands for on this machine; read in every forward pass."""
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        return torch.device(self.device)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the device, which may be another one on another machine."""
        return asdict(self)

    @cached_property
    def deferred(self) -> bool:
        """Whether an update's loss is checked later, see `wait`."""
        return self.torch_device.type == "cuda" if self.wait is None else not self.wait

    def place(self, network: nn.Module) -> nn.Module:
        """Move a network to the device and memory format, in place; with `compile` it is compiled later."""
        if self.compile:
            network.compile()
        if self.channels_last:
            return network.to(self.torch_device, memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]
        return network.to(self.torch_device)

    def tensor(self, array: npt.NDArray[Any] | Tensor) -> Tensor:
        """Return a batch as a tensor on the device; images [B, C, H, W] in the memory format."""
        tensor = array if isinstance(array, Tensor) else torch.from_numpy(array)
        if self.torch_device.type == "cuda" and not tensor.is_cuda:
            tensor = tensor.pin_memory()  # or the copy would wait for all that the device has still to do
        tensor = tensor.to(self.torch_device, non_blocking=True)
        if self.channels_last and tensor.ndim == 4:
            return _channels_last(tensor)
        return tensor

    def sent(self, read: Callable[[Any], Any], arrays: Any) -> Any:
        """Return ``read(arrays)``, tensors that are copied to a GPU while it computes what it was given before.

        The copies are made on a stream of their own. The pinned memory and the tensors that they take are used again
        once the device is done with them: two sets take turns where the host is a batch ahead. What holds tensors of
        the device, whose computation may not have ended, is read in its turn.

        Args:
            read: Makes tensors, or dicts of them, by `tensor`.
            arrays: What it reads.
        """
        if self.torch_device.type != "cuda" or any(isinstance(each, Tensor) for _, each in leaves(arrays)):
            return read(arrays)
        now = torch.cuda.current_stream(self.torch_device)
        with torch.cuda.stream(self._copies):
            tensors = read(arrays)
        now.wait_stream(self._copies)
        each_array(lambda each: each.record_stream(now) if isinstance(each, Tensor) else None, tensors)
        return tensors

    @cached_property
    def _copies(self) -> Any:
        return torch.cuda.Stream(self.torch_device)  # type: ignore[no-untyped-call]

    def tensors(self, *arrays: npt.NDArray[Any]) -> list[Tensor]:
        """Return each of several batches as `tensor` does."""
        return list(map(self.tensor, arrays))

    def fetch(self, tensor: Tensor) -> Callable[[], npt.NDArray[Any]]:
        """Begin to copy a tensor to the host; return a function that waits for the copy and returns it as an array."""
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

    def autocast(self) -> AbstractContextManager[Any]:
        """Return the context in which forward passes run."""
        if not self.bf16:
            return _NO_CONTEXT
        # A graph must not read weights that were cast before it. So each use of a weight casts it, and the gradient of
        # a weight with several uses, as a core's, is a sum in float32, and without graphs one in bfloat16.
        return torch.autocast(self.torch_device.type, dtype=torch.bfloat16, cache_enabled=not self.graphs)

    def keep_precision(self, state: Mapping[str, Any]) -> None:
        """Load from a learner's state the value that ``bf16="auto"`` had when its run began."""
        if self.automatic and "bf16" in state:
            object.__setattr__(self, "bf16", bool(state["bf16"]))

    def precision_in_words(self) -> str:
        """Return the precision of forward passes in words, with the reason where ``bf16="auto"`` chose it."""
        name = "bfloat16" if self.bf16 else "float32"
        if not self.automatic:
            return name
        own = computes_bf16(self.torch_device)
        device = "the GPU" if self.torch_device.type == "cuda" else "the CPU"
        does = "computes" if own else "does not compute"
        if bool(self.bf16) == own:
            return f"{name}, for {device} {does} in bfloat16 itself"
        return f"{name}, as when the run began, though {device} {does} in bfloat16 itself"


def without_autocast(tensor: Tensor) -> AbstractContextManager[Any]:
    """Return the context in which a tensor is computed with in its own precision, also where `autocast` is around."""
    device = tensor.device.type
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else _NO_CONTEXT


_NO_CONTEXT = nullcontext()  # most forward passes are in float32, and PyTorch's context takes as long as a small layer


def drawn(
    rng: Any, draw: Callable[[np.random.Generator], npt.NDArray[Any]], tensor: Callable[[npt.NDArray[Any]], Tensor]
) -> Tensor:
    """Return what is drawn from a generator as a tensor: the way for functions that graphs may replay.

    Args:
        rng: A generator, or what stands in its place while a function is captured (`agents.learning.captured`): the
            draw is then an input of the function, and repeated before each replay.
        draw: From a generator to an array.
        tensor: Makes a tensor of it, such as `Compute.tensor`.
    """
    as_input = getattr(rng, "as_input", None)
    return tensor(draw(rng)) if as_input is None else as_input(draw)


def computes_bf16(device: torch.device) -> bool:
    """Return whether a device multiplies in bfloat16 itself; one that does not imitates it, and is many times slower.

    A CPU is judged by its flags: avx512_bf16 or amx_bf16, on ARM bf16. If they cannot be read, the result is False.
    """
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    try:
        text = _PROCESSOR.read_text(errors="replace")
    except OSError:
        return False
    flags = {word for line in text.splitlines() if line.startswith(("flags", "Features")) for word in line.split()}
    return not flags.isdisjoint(("avx512_bf16", "amx_bf16", "bf16"))


_PROCESSOR = pathlib.Path("/proc/cpuinfo")
_COMPILERS = {"darwin": "clang++", "win32": "cl"}  # those that torch.compile calls, where they are not g++


def _channels_last(images: Tensor) -> Tensor:
    if images.is_cuda or images.is_contiguous(memory_format=torch.channels_last):
        return images.contiguous(memory_format=torch.channels_last)
    batch, channels, height, width = images.shape
    interleaved = np.empty((batch, height, width, channels), images.numpy().dtype)
    for channel, image in enumerate(images.numpy().swapaxes(0, 1)):
        interleaved[..., channel] = image  # for bytes, faster than PyTorch's own copy
    return torch.from_numpy(interleaved).permute(0, 3, 1, 2)


# How a network reads observations: numbers as floats, one-hot where they are kinds, images as they are.


class Reader:
    """Turns stacks of a space's observations into a network's input: a tensor, or a dict of tensors by key.

    A Box of uint8 (which a network scales to 0 to 1) or of floats is read as it is, a Box of other whole numbers or of
    booleans as the same numbers in float32; Discrete and each number of MultiDiscrete as one-hot floats, MultiBinary as
    floats. A Tuple is read as a Dict whose keys are the positions "0", "1" and so on.

    Args:
        space: One of these, or a Dict or Tuple of them.
        stack_size: k.
        compute: Where the tensors go.

    Attributes:
        shape: The shape that the network is built for: that of one stack [k, *shape], or a dict of such by key.

    Raises:
        ValueError: Another space; the message names its key.
    """

    def __init__(self, space: gym.Space[Any], stack_size: int, compute: Compute) -> None:
        self._given, self._space = space, space_without_tuples(space)
        self.shape: Any = _shape(self._space, stack_size, "")
        self._stack_size = stack_size
        self._compute = compute
        self._is_box = isinstance(self._space, Box)
        # As Python's numbers: a trace of the network for an export would take NumPy's for data.
        self._one_hots = each_array(_one_hots_of, self._space)

    def __call__(self, stacks: Any) -> Any:
        """Return tensors [B, k, *shape] of stacks [B, k, *shape]."""
        if self._is_box:  # most are, and need no walk through a tree
            tensor = self._compute.tensor(stacks)
            return tensor if tensor.dtype == torch.uint8 or tensor.is_floating_point() else tensor.float()
        return each_array(self._tensor, self._space, self._one_hots, stacks)

    def without_tuples(self, observation: Any) -> Any:
        """Return one observation of the space with a dict by position for each tuple; most have none."""
        return observation if self._given is self._space else without_tuples(self._given, observation)

    def blank(self) -> Any:
        """Return the observation that stands before an episode's first: zeros."""
        return blank_observation(self._space)

    def blank_stacks(self) -> Any:
        """Return a batch of one stack of zeros."""
        return each_array(lambda array: np.stack([array] * self._stack_size)[None], self.blank())

    def read_tensors(self, stacks: Any) -> Any:
        """Return the network's input from stacks that are tensors already, in the dtypes of the space."""
        return each_array(_read, self._space, self._one_hots, stacks)

    def _tensor(self, space: gym.Space[Any], one_hots: _OneHots, stacks: npt.NDArray[Any]) -> Tensor:
        return _read(space, one_hots, self._compute.tensor(stacks))


_OneHots = list[tuple[int, int]]  # (start, n) of each number that is read one-hot


def _one_hots_of(space: gym.Space[Any]) -> _OneHots:
    if isinstance(space, Discrete):
        return [(int(space.start), int(space.n))]
    if isinstance(space, MultiDiscrete):
        return list(zip(space.start.ravel().tolist(), space.nvec.ravel().tolist(), strict=True))
    return []


def _read(space: gym.Space[Any], one_hots: _OneHots, tensor: Tensor) -> Tensor:
    """Return a tensor of an array's stacks as a network reads it."""
    if isinstance(space, Discrete):
        return _one_hot(tensor, *one_hots[0])
    if isinstance(space, MultiDiscrete):
        columns = zip(tensor.flatten(2).unbind(-1), one_hots, strict=True)
        return torch.cat([_one_hot(column, *one_hot) for column, one_hot in columns], dim=-1)
    return tensor if tensor.dtype == torch.uint8 and isinstance(space, Box) else _floats(tensor)


def _floats(tensor: Tensor) -> Tensor:
    """Return a tensor of floats as it is, and any other in float32."""
    return tensor if tensor.is_floating_point() else tensor.float()


def _one_hot(numbers: Tensor, start: int, count: int) -> Tensor:
    return (numbers.unsqueeze(-1) == torch.arange(start, start + count, device=numbers.device)).float()


def _shape(space: gym.Space[Any], stack_size: int, name: str) -> Any:
    if isinstance(space, Dict):
        refuse_empty(f"observation space{name}", space)
        return {key: _shape(inner, stack_size, f"{name}[{key!r}]") for key, inner in space.spaces.items()}
    if isinstance(space, Discrete):
        return (stack_size, int(space.n))
    if isinstance(space, MultiDiscrete):
        return (stack_size, int(space.nvec.sum()))
    if isinstance(space, Box | MultiBinary):
        refuse_empty(f"observation space{name}", space)
        return (stack_size, *space.shape)
    raise ValueError(
        f"observation space{name} must be a Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of these, "
        f"got {space}: {remedy(space)}"
    )

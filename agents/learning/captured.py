"""A function of tensors that is computed again and again: on a GPU a graph that is captured once and replayed.

A GPU computes an update of a small network in a fraction of the time that Python takes to launch its operations. A CUDA
graph holds the launches of one run, with the addresses of all that they read and write, and replays them in one call::

    buffers      <- arguments, draws, numbers        copies, in the order of the device's work
    graph        the launches: forward, loss, gradient
    results      <- at the same addresses in each replay

So what is captured is a function of buffers. Four rules follow, and `Captured` keeps them:

* **Arguments** are copied into buffers that live as long as the graph. Another shape needs another graph.
* **Draws** come from the host's generator, from which the eager function draws too. In the generator's place the
  function is given `Inputs`, which notes what it draws and in which order; before each replay the same buffers are
  filled from the real generator. So a replay computes what the eager function does, bit for bit, for its launches are
  the same.
* **Numbers** of the host that change, such as a learning rate or the weight of a term, are tensors, which are filled
  before each replay (`Inputs.now`). A choice of the host that changes what is computed has a graph for each of its
  outcomes (`Inputs.whether`).
* **Nothing is read on the host**, and no shape depends on numbers: no ``.item()``, no branch on a tensor, no mask as an
  index, no copy from the host's memory. The first run is watched; a function that does one of these, as a loss of a
  user's own may, stays eager, and one warning names its line.

The first runs are eager, on the stream that captures: they begin what is begun lazily (moments, workspaces). They are
updates as any others, so nothing is computed twice. In a capture Python runs and nothing is computed; then the graph is
replayed for these arguments too. Gradients are made in the capture, and so lie in the graph's memory.

On a CPU the same object calls its function on the same buffers, with the same draws, and writes into the same results.
That takes longer than the function alone, and shows that all but the replay is right.

Results are overwritten by the next run: what is kept longer is copied (`copies`). Hooks, checks of a loss, copies into
a target network, averages over learners, checkpoints stand outside, between two runs.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from pathlib import Path
from threading import Lock
from types import FrameType, TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from async_wrappers.agents.losses.loss import PRESENT, Host
from async_wrappers.agents.spaces.compute import Compute
from async_wrappers.agents.spaces.schema import leaves, nest

OFTEN = 16  # decisions of a number of rows, before these have a graph of their own
_EAGER = 3  # runs before the capture, as PyTorch's notes on CUDA graphs advise
_MOST = 8  # graphs of one function; each holds memory of its own
_CAPTURING = Lock()  # PyTorch empties its cache before a capture, and refuses to while another thread captures

Draw = Callable[[np.random.Generator], npt.NDArray[Any]]


class GraphWarning(RuntimeWarning):
    """A function cannot be captured, and is computed without a graph."""


class NotCapturable(Exception):
    """What a function does cannot be replayed; the message says what it does."""


Function = Callable[[Any, Any, Host], Any]
"""From arguments (a tensor or a dict), a generator or `Inputs` and a host to results, a tensor or a dict."""


class Inputs:
    """What a captured function reads beside its arguments; it stands in the place of a generator and of the host.

    The first run notes what is asked for, in its order; further ones are given the same buffers.

    Args:
        rng: Draws; None for a function that draws nothing.
        compute: Where the buffers lie.
        watched: Sees the operations of the first run; those of the buffers themselves are not meant.
    """

    def __init__(self, rng: np.random.Generator | None, compute: Compute, watched: HostReads) -> None:
        self._rng, self._compute, self._watched = rng, compute, watched
        self._draws: list[tuple[Draw, Tensor]] = []
        self._numbers: list[tuple[Callable[[], float], Tensor]] = []
        self._choices: list[tuple[Callable[[], bool], bool]] = []
        self._known = False
        self._buffers: list[tuple[list[Any], _Packed, bool]] = []  # what fills them, and whether it draws
        self._next_draw = self._next_number = 0

    def as_input(self, draw: Draw) -> Tensor:
        """Return what a function of the generator gives, on the device; see `spaces.compute.drawn`."""
        if not self._known:
            assert self._rng is not None
            with self._watched.paused():
                self._draws.append((draw, self._compute.tensor(draw(self._rng))))
            return self._draws[-1][1]
        self._next_draw += 1
        return self._draws[self._next_draw - 1][1]

    def now(self, number: Callable[[], float]) -> Any:
        """Return the present value of a number of the host, as a scalar on the device."""
        if not self._known:
            with self._watched.paused():
                value = torch.tensor(float(number()), dtype=torch.float64).to(self._compute.torch_device)
            self._numbers.append((number, value))
            return value
        self._next_number += 1
        return self._numbers[self._next_number - 1][1]

    def whether(self, choice: Callable[[], bool]) -> bool:
        """Return the outcome of a choice of the host."""
        outcome = choice()
        if not self._known:
            self._choices.append((choice, outcome))
        return outcome

    def __getattr__(self, name: str) -> Any:
        """Refuse a generator's own methods: a replay would have the numbers of the capture.

        Raises:
            NotCapturable: Always.
        """
        if name.startswith("_"):
            raise AttributeError(name)
        raise NotCapturable(f"{_line(_caller())} calls rng.{name} itself, in the place of spaces.compute.drawn")

    @property
    def fit(self) -> bool:
        """Whether all choices would have the outcomes that they had."""
        return all(choice() == outcome for choice, outcome in self._choices)

    def settle(self) -> None:
        """Take what was noted as complete, and put the buffers of one type beside one another."""
        self._known = True
        at = 0
        while at < len(self._draws):  # neighbours alone, for draws keep their order
            dtype, end = self._draws[at][1].dtype, at
            while end < len(self._draws) and self._draws[end][1].dtype == dtype:
                end += 1
            self._draws[at:end] = self._packed(self._draws[at:end], draws=True)
            at = end
        if self._numbers:
            self._numbers = self._packed(self._numbers, draws=False)

    def _packed(self, noted: list[tuple[Any, Tensor]], *, draws: bool) -> list[tuple[Any, Tensor]]:
        functions = [function for function, _ in noted]
        packed = _Packed([buffer for _, buffer in noted], self._compute)
        self._buffers.append((functions, packed, draws))
        return list(zip(functions, packed.each, strict=True))

    def fill(self, rng: np.random.Generator | None) -> None:
        """Fill all buffers for the next run, from a generator and with the present numbers."""
        self._next_draw = self._next_number = 0
        for functions, packed, draws in self._buffers:
            packed.fill([function(rng) if draws else function() for function in functions])


class _Packed:
    """Tensors of one type that lie beside one another, and are filled from the host by one copy.

    The host writes into one of two pinned arrays in turn, each once its last copy has been made.
    """

    def __init__(self, tensors: Sequence[Tensor], compute: Compute) -> None:
        sizes, on_gpu = [tensor.numel() for tensor in tensors], compute.torch_device.type == "cuda"
        self._device = torch.empty(sum(sizes), dtype=tensors[0].dtype, device=compute.torch_device)
        parts = torch.split(self._device, sizes)
        self.each = [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]
        self._hosts = [torch.empty(sum(sizes), dtype=self._device.dtype, pin_memory=on_gpu) for _ in range(2)]
        self._views = [[part.numpy() for part in torch.split(host, sizes)] for host in self._hosts]
        self._copied: list[Any] = []
        if on_gpu:
            self._copied = [torch.cuda.Event() for _ in range(2)]  # type: ignore[no-untyped-call]
        self._turn = 0

    def fill(self, arrays: Sequence[Any]) -> None:
        turn = self._turn = 1 - self._turn
        if self._copied:
            self._copied[turn].synchronize()
        for view, array in zip(self._views[turn], arrays, strict=True):
            view[:] = np.ravel(array)
        self._device.copy_(self._hosts[turn], non_blocking=True)
        if self._copied:
            self._copied[turn].record(torch.cuda.current_stream(self._device.device))


class Captured:
    """Computes a function of tensors, by a graph where the device is a GPU.

    Args:
        function: Pure, but for what it writes into tensors. Its arguments' shapes decide those of its results.
        compute: Of the device.
        what: What it computes, for the warning.
        adopts: Whether the arguments of the capture become the buffers, so that they are not copied if they lie there
            in further runs too. Nobody else may write into them.
        often: Runs of arguments of one kind before their graph is begun.

    Attributes:
        eager: Whether it was found that the function cannot be captured.
    """

    def __init__(
        self, function: Function, compute: Compute, what: str, *, adopts: bool = False, often: int = 0
    ) -> None:
        self._function, self._compute, self._what = function, compute, what
        self._adopts, self._often = adopts, often
        self._graphs: dict[Hashable, list[_Graph]] = {}
        self._runs: Counter[Hashable] = Counter()
        self.eager = False

    def __call__(self, arguments: Any, rng: np.random.Generator | None = None) -> Any:
        """Return the function's results, which the next call overwrites.

        Args:
            arguments: A tensor, or a dict of tensors, of such dicts, and of other values, which decide what is
                computed.
            rng: What it draws from.
        """
        if self.eager:
            return self._function(arguments, rng, PRESENT)
        given = [*leaves(arguments)]
        # A checkpoint may bring another precision.
        graph = self._graph_of((self._compute.bf16, *((path, *_kind(each)) for path, each in given)))
        if graph is None:
            return self._function(arguments, rng, PRESENT)
        begun = None if rng is None or graph.captured else rng.bit_generator.state
        try:
            results = graph.run(given, rng)
        except NotCapturable as why:
            self._stay_eager(str(why))
        else:
            if graph.refused is not None:
                self._stay_eager(graph.refused)
            return results
        if rng is not None and begun is not None:
            rng.bit_generator.state = begun
        return self._function(arguments, rng, PRESENT)

    def capture(self, run: Callable[[], Any]) -> None:
        """Make a run so often that its graph is there: for who cannot wait for a capture later."""
        for _ in range(self._often + _EAGER + 1):
            run()

    def forget(self) -> None:
        """Capture anew, since what the graphs read has been replaced."""
        self._graphs.clear()

    def _graph_of(self, kind: Hashable) -> _Graph | None:
        """Return the graph for arguments of a kind; None for none."""
        known = self._graphs.get(kind, [])
        for graph in known:
            if graph.fits:
                return graph
        if sum(map(len, self._graphs.values())) >= _MOST:
            return None
        if self._often:
            self._runs[kind] += 1
            if self._runs[kind] <= self._often:
                return None
        graph = _Graph(self._function, self._compute, self._adopts)
        self._graphs.setdefault(kind, known).append(graph)
        return graph

    def _stay_eager(self, why: str) -> None:
        self.eager = True
        self._graphs.clear()
        warnings.warn(
            f"{self._what} is computed without a CUDA graph, since {why}: mend that line, or leave graphs at False",
            GraphWarning,
            stacklevel=3,
        )


class _Graph:
    """A function for arguments of one kind: eager at first, then captured.

    Attributes:
        refused: What the first run did that a graph could not hold; None for nothing.
    """

    def __init__(self, function: Function, compute: Compute, adopts: bool) -> None:
        self._function, self._compute, self._adopts = function, compute, adopts
        self._on_gpu = compute.torch_device.type == "cuda"
        self._runs = 0
        self.refused: str | None = None
        self._inputs: Inputs | None = None
        self._paths: list[tuple[str, ...]] = []
        self._buffers: list[Any] = []
        self._results: Any = None
        self._written: list[Tensor] = []  # the tensors among the results
        self._graph: Any = None
        self._stream: Any = torch.cuda.Stream(compute.torch_device) if self._on_gpu else None  # type: ignore[no-untyped-call]

    @property
    def captured(self) -> bool:
        """Whether no run can fail any more."""
        return self._results is not None

    @property
    def fits(self) -> bool:
        """Whether the host's choices are those of this graph."""
        return self._inputs is None or self._inputs.fit

    def run(self, given: Sequence[tuple[tuple[str, ...], Any]], rng: np.random.Generator | None) -> Any:
        """Compute the function for arguments by their paths.

        Raises:
            NotCapturable: The function refuses what it is given in the place of a generator, or the capture fails.
        """
        self._take(given)
        if self._inputs is None:
            watched = HostReads()
            inputs = Inputs(rng, self._compute, watched)
            # The compiler does not compile under a watch.
            call = partial(self._call, inputs) if self._compute.compile else partial(self._watch, watched, inputs)
            results = self._eager(call)
            inputs.settle()
            self._inputs, self._runs = inputs, 1
            return results
        self._inputs.fill(rng)
        self._runs += 1
        call = partial(self._call, self._inputs)
        if self._runs <= _EAGER:
            return self._eager(call)
        return self._replay(call) if self._on_gpu else self._overwrite(call())

    def _take(self, given: Sequence[tuple[tuple[str, ...], Any]]) -> None:
        """Copy arguments into the buffers."""
        settled = self._runs > _EAGER
        if not self._buffers or (self._adopts and not settled):
            self._paths = [path for path, _ in given]
            self._buffers = [
                _buffer_like(each) if isinstance(each, Tensor) and not self._adopts else each for _, each in given
            ]
            return
        pairs = [
            (buffer, each)
            for buffer, (_, each) in zip(self._buffers, given, strict=True)
            if isinstance(each, Tensor) and buffer is not each
        ]
        if pairs:
            with torch.no_grad():
                torch._foreach_copy_([kept for kept, _ in pairs], [each for _, each in pairs])

    def _call(self, inputs: Inputs) -> Any:
        return self._function(nest(self._paths, self._buffers), inputs, Host(inputs.now, inputs.whether))

    def _watch(self, watched: HostReads, inputs: Inputs) -> Any:
        # In inference mode operations of several parts are seen as one, whose parts autocast does not cast then.
        computes_gradients = torch.is_grad_enabled()
        with torch.inference_mode(False), torch.set_grad_enabled(computes_gradients), watched:
            results = self._call(inputs)
        self.refused = watched.seen[0] if watched.seen else None
        return results

    def _eager(self, call: Callable[[], Any]) -> Any:
        """Run on the stream that captures, so that what is begun lazily belongs to it."""
        if self._stream is None:
            return call()
        now = torch.cuda.current_stream(self._compute.torch_device)
        self._stream.wait_stream(now)
        with torch.cuda.stream(self._stream):
            results = call()
        now.wait_stream(self._stream)
        return results

    def _replay(self, call: Callable[[], Any]) -> Any:
        if self._graph is None:
            graph = torch.cuda.CUDAGraph()
            try:
                # Other threads may use the device meanwhile, as where an update is computed beside the environment.
                with _CAPTURING, torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
                    results = call()
            except RuntimeError as error:
                raise NotCapturable(f"{_line(_innermost(error.__traceback__))} ({_first_line(error)})") from error
            self._graph, self._results = graph, results  # whole: after another error it is captured again
        self._graph.replay()
        return self._results

    def _overwrite(self, results: Any) -> Any:
        """Write results where a graph would leave them: at the same addresses in each run."""
        given = [*leaves(results)]
        if self._results is None:
            self._results = results
            self._written = [each for _, each in given if isinstance(each, Tensor)]
            return results
        with torch.no_grad():
            new = [each for _, each in given if isinstance(each, Tensor)]
            for kept, each in zip(self._written, new, strict=True):
                kept.copy_(each)
        return self._results


def copies(results: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return copies of results that the next run overwrites, made at once."""
    kept = [torch.empty_like(each) for each in results.values()]
    if kept:
        torch._foreach_copy_(kept, list(results.values()))
    return dict(zip(results, kept, strict=True))


# What a graph cannot hold.

_READS = ("_local_scalar_dense", "is_nonzero", "equal.")
_SHAPES = ("nonzero", "masked_select", "_unique", "unique_", "repeat_interleave.Tensor", "bincount")
_FROM_HOST = ("lift_fresh", "_pin_memory")


class HostReads(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees the operations of a function, its gradient's too, that a graph could not hold.

    Attributes:
        seen: What was seen, with its line, in words.
        operations: How often each operation was called, views left out.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[str] = []
        self.operations: Counter[str] = Counter()
        self._looks = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Let PyTorch not keep its compiler off this class: for that it would import it, which takes seconds."""
        return False

    def paused(self) -> _Paused:
        """Return a context whose operations are not meant."""
        return _Paused(self)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func).removeprefix("aten.")
        if self._looks:
            if not func.is_view and not name.startswith(_VIEWS):
                self.operations[name] += 1
            if (what := _forbidden(name, args, kwargs or {})) is not None:
                self.seen.append(f"{_line(_caller())} {what} ({name.partition('.')[0]})")
        return func(*args, **(kwargs or {}))


_VIEWS = ("_unsafe_view", "is_same_size")  # which launch nothing either


class _Paused:
    def __init__(self, watched: HostReads) -> None:
        self._watched = watched

    def __enter__(self) -> None:
        self._watched._looks = False

    def __exit__(self, *exception: object) -> None:
        self._watched._looks = True


def _forbidden(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """Return what an operation does that a graph cannot hold, in words; None for one that it can."""
    if name.startswith(_READS):
        return "reads a number on the host"
    if name.startswith(_SHAPES):
        return "makes a shape that depends on numbers"
    if name.startswith(_FROM_HOST):
        return "makes a tensor of the host's numbers"
    if name.startswith("index") and len(args) > 1 and isinstance(args[1], list | tuple):
        masks = [each for each in args[1] if isinstance(each, Tensor) and each.dtype in (torch.bool, torch.uint8)]
        return "has a mask as an index" if masks else None
    if name.startswith("_to_copy") and isinstance(args[0], Tensor):
        to = torch.device(kwargs.get("device") or args[0].device)
        if to.type != args[0].device.type:
            return "copies between the host and the device"
    if len({each.device.type for each in args if isinstance(each, Tensor)}) > 1:  # a copy, or a scalar of the host
        return "reads the host's memory"
    return None


_PYTORCH = str(Path(torch.__file__).parent)


def _caller() -> tuple[str, int] | None:
    """Return file and line of the call that led to an operation, outside of PyTorch."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith((_PYTORCH, __file__)):
        frame = frame.f_back
    return None if frame is None else (frame.f_code.co_filename, frame.f_lineno)


def _innermost(trace: TracebackType | None) -> tuple[str, int] | None:
    """Return file and line where an error began, outside of PyTorch."""
    found = None
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        found = found if file.startswith((_PYTORCH, __file__)) else (file, trace.tb_lineno)
        trace = trace.tb_next
    return found


def _line(place: tuple[str, int] | None) -> str:
    return "an operation of PyTorch" if place is None else f"{place[0]}:{place[1]}"


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


def _buffer_like(tensor: Tensor) -> Tensor:
    """Return a copy in the same layout, on which the last bits of a product of matrices depend."""
    extent = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride < extent:
            return tensor.clone()  # its numbers overlap
        extent = max(extent, stride * size)
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def _kind(value: Any) -> tuple[Hashable, ...]:
    """Return what two arguments of one graph share."""
    return (value.shape, value.dtype, value.stride()) if isinstance(value, Tensor) else (value,)

"""The interface of an engine, which runs hosts; `tests.contracts.hosts_contract` is its contract."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from async_wrappers.fleet.engine_fleet import Lost as Lost

HostPlan: TypeAlias = Any
"""What hosts are made from, such as `host.ActingPlan`: it has ``make_host(number, incarnation, rows)``, which returns a
`Player`, and travels to other processes by cloudpickle."""


class HostsFailed(RuntimeError):
    """Hosts cannot play; the message is one sentence."""


def failure(host: int, error: BaseException) -> HostsFailed:
    """Return an exception of a host as its learner raises it; of one that is not its own, with the traceback."""
    if isinstance(error, HostsFailed):
        return error
    sentence = (str(error).strip() or "no message").splitlines()[0]
    trace = "".join(traceback.format_exception(error))
    return HostsFailed(f"host {host} raised {type(error).__name__}: {sentence}\n\n{trace}")


Answer: TypeAlias = Any
"""A host's answer to an order, such as a `PlayedBlock`; it has the attributes `host` and `incarnation`, and pickles."""


class Player(Protocol):
    """A host: `Host`, which acts and plays blocks, or one that only steps environments (`batched.hosted`)."""

    incarnation: int

    def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        """Play what follows on these weights; called only where weights are published."""

    def play(self, order: Any, /) -> Answer:
        """Carry an order out."""

    def close(self) -> None:
        """Close the environments."""


class HostEngine(Protocol):
    """Runs hosts for a learner. Where they act, weights come before the first order of a host.

    A host carries out its orders one after another. So a learner that gives it two never lets it wait.
    """

    def start(self, host: int, incarnation: int, rows: Mapping[str, Sequence[int]]) -> None:
        """Start a host, or another one in the place of one that was lost (`HostPlan`). It need not be ready at once."""

    def publish(self, weights: Mapping[str, Any], version: int) -> None:
        """Take the weights, tensors on any device, that later orders are played on; they are copied."""

    def submit(self, host: int, order: Any = False) -> None:
        """Give a host an order, as its `play` takes it, on the newest weights; of a `Host`, whether to cut."""

    def collect(self, timeout: float) -> list[Any]:
        """Return what has come, each an `Answer` or `Lost`, in the order of each host.

        Args:
            timeout: Seconds to wait at most for the first.

        Raises:
            HostsFailed: A host has raised an exception, or cannot be started.
        """

    def kill(self, host: int, why: str) -> None:
        """End a host that does not answer; `collect` then returns it as lost.

        Raises:
            HostsFailed: No host has ever been started.
        """

    def close(self) -> None:
        """End all hosts, and whatever they left; it may be called twice."""


def portable(weights: Mapping[str, Any]) -> dict[str, npt.NDArray[Any]]:
    """Return copies of tensors as arrays."""
    return {name: np.array(tensor.detach().cpu().numpy()) for name, tensor in weights.items()}

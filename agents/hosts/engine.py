"""The interface of an engine, which runs hosts; `tests.contracts.hosts_contract` is its contract."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from async_wrappers.agents.hosts.block import PlayedBlock

__all__ = ["HostEngine", "HostsFailed", "Lost", "failure", "portable"]


class HostsFailed(RuntimeError):
    """Hosts cannot play; the message is one sentence."""


def failure(host: int, error: BaseException) -> HostsFailed:
    """Return an exception of a host as its learner raises it; of one that is not its own, with the traceback."""
    if isinstance(error, HostsFailed):
        return error
    sentence = (str(error).strip() or "no message").splitlines()[0]
    trace = "".join(traceback.format_exception(error))
    return HostsFailed(f"host {host} raised {type(error).__name__}: {sentence}\n\n{trace}")


class Lost(NamedTuple):
    """A host has died, with all orders that it had.

    Attributes:
        host: Its number.
        incarnation: Which of its incarnations.
        why: How it ended, in words.
    """

    host: int
    incarnation: int
    why: str


class HostEngine(Protocol):
    """Runs hosts, which play blocks for a learner. Weights come before the first order of a host.

    A host plays its orders one after another. So a learner that gives it two never lets it wait.
    """

    def start(self, host: int, incarnation: int, rows: Mapping[str, Sequence[int]]) -> None:
        """Start a host, or another one in the place of one that was lost; see `Host`. It need not be ready at once."""

    def publish(self, weights: Mapping[str, Any], version: int) -> None:
        """Take the weights, tensors on any device, that later orders are played on; they are copied."""

    def submit(self, host: int, cut: bool = False) -> None:
        """Give a host an order: to play a block on the newest weights, or to cut its episodes (`Host.play`)."""

    def collect(self, timeout: float) -> list[PlayedBlock | Lost]:
        """Return what has come, in the order of each host; wait at most `timeout` seconds for the first.

        Raises:
            HostsFailed: A host has raised an exception, or cannot be started.
        """

    def kill(self, host: int, why: str) -> None:
        """End a host that does not answer; `collect` then returns it as lost."""

    def close(self) -> None:
        """End all hosts, and whatever they left; it may be called twice."""


def portable(weights: Mapping[str, Any]) -> dict[str, npt.NDArray[Any]]:
    """Return copies of tensors as arrays."""
    return {name: np.array(tensor.detach().cpu().numpy()) for name, tensor in weights.items()}

"""The server's two halves: which observations become a batch, and an accelerator, which infers one.

Neither owns a clock or a process: `served_virtual.py` and `served_processes.py` tell them what has happened when.
"""

from __future__ import annotations

from array import array
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from async_wrappers.batched.environment_process import Spaces
from async_wrappers.live.inference.worker import inference_mode
from async_wrappers.live.report.histogram import Histogram
from async_wrappers.live.served.board import ServedBoard
from async_wrappers.schedule.batching import Batch, Batcher
from async_wrappers.schedule.served import ServedDecisions, ServedSchedule
from async_wrappers.wrappers.action_conversion import RefusedAction, as_action, refusal

_LATENCIES = 1000  # of each size of a batch that are kept, the newest ones


class Server:
    """Divides the observations on a board into batches, and counts.

    Call `look` and `finished` for what has happened, then `starts`.

    Args:
        schedule: Its environments and accelerators.
        board: On which they show their observations.
        logs: Whether each decision is recorded.

    Attributes:
        sizes: Of the batches that have ended.
        durations: How long they took, in nanoseconds.
        latencies: The newest ones in seconds, by size.
        busy: Nanoseconds of inference, by accelerator.
        overtaken: Observations that a newer one of their environment replaced before anybody read them.
    """

    def __init__(self, schedule: ServedSchedule, board: ServedBoard, logs: bool = False) -> None:
        self._schedule, self._board = schedule, board
        self._batcher = Batcher(schedule.accelerators, schedule.most)
        self._seen = np.full(schedule.environments, -1, np.int64)
        self._running: dict[int, tuple[int, Batch]] = {}  # and the number of each, in the order of starts
        self._begun = 0  # batches
        # Of each decision its numbers, as `ServedSchedule.decisions` takes them, and that of its batch.
        self._rows = array("q") if logs else None
        self._skipped = 0
        self.sizes, self.durations = Histogram(), Histogram()
        self.latencies: dict[int, deque[float]] = defaultdict(lambda: deque(maxlen=_LATENCIES))
        self.busy = [0] * schedule.accelerators

    @property
    def overtaken(self) -> int:
        return self._batcher.overtaken + self._skipped

    @property
    def all_busy(self) -> bool:
        """Whether no accelerator is free."""
        return len(self._running) == self._schedule.accelerators

    @property
    def computes(self) -> bool:
        """Whether any accelerator computes."""
        return bool(self._running)

    def is_computing(self, accelerator: int) -> bool:
        """Return whether an accelerator computes."""
        return accelerator in self._running

    def look(self) -> None:
        """Note the observations that are new on the board, in the order of their time."""
        schedule, shown = self._schedule, self._board.shown.copy()
        new = []
        for environment in np.flatnonzero(shown > self._seen).tolist():
            frame, phase = int(shown[environment]), schedule.phases[environment]
            new.append((phase + schedule.clock.begin(frame), phase, environment, frame))
        for _, phase, environment, frame in sorted(new):
            self._skipped += frame // schedule.every - int(self._seen[environment]) // schedule.every - 1
            self._seen[environment] = frame
            self._batcher.observe(environment, frame, phase + schedule.clock.begin(frame + schedule.playout))

    def starts(self) -> list[Batch]:
        """Return the batches that start now."""
        batches = self._batcher.starts()
        for batch in batches:
            self._running[batch.accelerator] = self._begun, batch
            self._begun += 1
        return batches

    def finished(self, accelerator: int, began: int, ended: int) -> None:
        """Note the end of an accelerator's batch.

        Args:
            accelerator: Which one.
            began: When the batch began, in nanoseconds since the first frame of phase 0.
            ended: When its actions were there.
        """
        number, (_, frames) = self._running.pop(accelerator)
        self._batcher.finished(accelerator)
        self.sizes.append(len(frames))
        self.durations.append(ended - began)
        self.latencies[len(frames)].append((ended - began) / 1e9)
        self.busy[accelerator] += ended - began
        if self._rows is not None:
            for environment, frame in frames:
                decision = self._schedule.decision(environment, frame, ended)
                self._rows.extend((*decision, len(frames), began, number))

    def lost(self, accelerator: int) -> None:
        """Note that an accelerator has ended, and its batch with it; it gets none until it is `back`."""
        if self._running.pop(accelerator, None) is None:
            self._batcher.gone(accelerator)

    def back(self, accelerator: int) -> None:
        """Note that another accelerator has taken the place of one that was lost."""
        self._batcher.finished(accelerator)

    def joined(self, environments: range, frame: int) -> None:
        """Note that environments show nothing before a frame, as they begin there anew."""
        seen = self._seen[environments.start : environments.stop]
        np.maximum(seen, (frame - 1) // self._schedule.every * self._schedule.every, out=seen)

    def decisions(self, frames: int) -> ServedDecisions | None:
        """Return the decisions of a run of so many frames, in the order in which batches began; None without a log."""
        if self._rows is None:
            return None
        rows = np.array(self._rows, np.int64).reshape(-1, 8)
        rows = rows[np.argsort(rows[:, 7], kind="stable")]
        return self._schedule.decisions(rows[:, :7], sum(self.busy), frames, 0)


class Accelerator:
    """A policy that infers batches.

    Args:
        policy: From observations [b, ...] to actions [b, ...].
        board: Holds both.
        spaces: Of observations and actions, of a single environment.
        number: Which accelerator it is.

    Raises:
        ValueError: The policy is no function.
    """

    def __init__(self, policy: Any, board: ServedBoard, spaces: Spaces, number: int = 0) -> None:
        if not callable(policy):
            raise ValueError(f"make_policy must return a function of a batch of observations, got {policy!r}")
        self._policy: Callable[[Any], Any] = policy
        self._board, self._space, self._number = board, spaces[1], number
        self._spaces: dict[int, gym.Space[Any]] = {}  # of batches of actions, by their size

    def infer(self, environments: NDArray[np.int64], frames: NDArray[np.int64]) -> tuple[NDArray[np.bool_], Any]:
        """Return the actions of a batch, and which of its observations were whole when they were read.

        Raises:
            ValueError: The policy's answer is no batch of actions.
        """
        observations = self._board.read(environments, frames)
        whole = self._board.is_kept(environments, frames)
        with inference_mode():
            return whole, self._checked(len(frames), self._policy(observations))

    def warm_up(self, sizes: list[int], clock: Callable[[], int], repeats: int = 3) -> int:
        """Infer batches of those sizes; return the least nanoseconds that one of the first size took."""
        least = 2**62
        for size in sizes:
            nobody = np.zeros(size, np.int64)
            for _ in range(repeats):
                before = clock()
                self.infer(nobody, nobody)
                least = min(least, clock() - before) if size == sizes[0] else least
        return least

    def _checked(self, size: int, answer: Any) -> Any:
        space = self._spaces.get(size)
        if space is None:
            space = self._spaces[size] = batch_space(self._space, size)
        try:
            return as_action(space, answer)
        except RefusedAction as reason:
            who = f"accelerator {self._number}, asked for the actions of {size} observations,"
            raise ValueError(refusal(who, answer, space, reason, "batch of actions")) from None


def warm_up_sizes(environments: int) -> list[int]:
    """Return sizes of batches to infer before a run, since libraries prepare each size when they meet it first."""
    if environments <= 64:
        return list(range(1, environments + 1))
    doubled = [1 << power for power in range(environments.bit_length())]
    return sorted({*doubled, environments})


def refuse_slow(schedule: ServedSchedule, seconds: float, what: str) -> None:
    """Refuse a playout within which no action can be computed.

    Args:
        schedule: Of the playout.
        seconds: That the inference of a single observation takes.
        what: What was measured or modelled, for the message.

    Raises:
        ValueError: The playout is shorter.
    """
    given = schedule.clock.begin(schedule.playout) / 1e9
    if seconds > given:
        least = schedule.clock.frame_at(round(seconds * 1e9))
        raise ValueError(
            f"playout must be at least {least} frames, got {schedule.playout} ({1000 * given:.1f} ms): {what} of a "
            f"single observation takes {1000 * seconds:.1f} ms, and no action would ever be in time"
        )

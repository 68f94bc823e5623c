"""A policy in the environment loop: no worker, no transport; ``workers=0``.

The loop computes each decision between the publication of o_k and the step of frame k. Who starts when and which action
a frame receives is as ever the dispatcher's to say. Its time stands still while the policy computes, so a decision that
starts on frame k is finished as frame k begins, and takes effect on it: the delay is 0 frames, as in `RealtimeDelay`
with delay 0 and on the virtual clock with latency 0. The price is real: frame k's action is sent as much after its
deadline as the inference takes, and an inference that is longer than a frame makes the next ones late.
"""

from __future__ import annotations

import time
from copy import deepcopy
from typing import Any

import gymnasium as gym

from async_wrappers.live.inference.transport import Ready
from async_wrappers.live.inference.worker import WeightsLoader, infer
from async_wrappers.live.loop.clocks import RealClock
from async_wrappers.live.loop.workers import Inference
from async_wrappers.live.memory.exchange import Fate, Finished, Ticket
from async_wrappers.live.memory.weights import WeightsBoard
from async_wrappers.policy import as_act

_TRIES = 2  # with other weights each time; a learner cannot publish twice within an inference unless it is a long one


class InLoopTransport:
    """One policy in this thread: an inference begins and ends within the call of `start`.

    Args:
        policy: A `Policy`, a function of the observation, or, where features are declared, a `SplitPolicy`.
        answers: The space of its actions, or of its features.
        extras: Space of the values that it leaves for the learner beside an action; None for none.
        encodes: Whether it answers features.
        board: Holds the newest weights; None without learners.

    Raises:
        ValueError: An object that is no policy, or one that cannot load the weights that are learnt.
    """

    def __init__(
        self,
        policy: Any,
        answers: gym.Space[Any],
        extras: gym.spaces.Dict | None = None,
        encodes: bool = False,
        board: WeightsBoard | None = None,
    ) -> None:
        self._act, self._answers, self._extras, self._encodes = as_act(policy, encodes), answers, extras, encodes
        self._board, self._loader = board, None if board is None else WeightsLoader(policy, board)
        self._shown: Any = None
        self._events: list[Ready | Finished] = [Ready(0)]

    def show(self, number: int, observation: Any) -> None:
        """Show the newest frame, which the environment must not change before its next step."""
        self._shown = observation

    def start(self, worker: int, ticket: Ticket) -> None:
        """Infer the newest frame.

        Raises:
            Exception: The policy's, with a note.
        """
        try:
            for _ in range(_TRIES):
                finished = self._inferred(ticket)
                if finished.fate != Fate.DISCARDED:
                    break
        except Exception as error:
            error.add_note("raised in the environment loop, in which the policy runs with workers=0")
            raise
        self._events.append(finished)

    def collect(self, until: int) -> list[Ready | Finished]:
        """Return the events since the last call; if there is none, sleep until a time of the monotonic clock."""
        if not self._events and (rest := until - time.monotonic_ns()) > 0:
            time.sleep(rest / 1e9)
        events, self._events = self._events, []
        return events

    def _inferred(self, ticket: Ticket) -> Finished:
        how = self._answers, None, self._extras, self._encodes, "the policy"
        shown = deepcopy(self._shown)  # the policy may write into it, or keep it
        if self._board is None or self._loader is None:
            return infer(0, ticket, shown, self._act, *how)
        reading = self._board.begin_reading(0)
        version = self._loader.load(reading)
        finished = infer(0, ticket, shown, self._act, *how)
        if not self._board.end_reading(0, reading):
            finished = finished._replace(fate=Fate.DISCARDED)
        return finished._replace(version=version, updates=self._loader.updates)


class InLoopClock(RealClock):
    """The monotonic clock of a loop that infers by itself: its decisions are finished as the frame begins."""

    def _start_workers(self) -> None:
        workers = self._dispatcher.starts(self._now() - self.begin)
        if not workers:
            return
        if self._started is not None:
            self._started()
        for worker in workers:
            self.pool.start(worker, self._ticket, self._shown)
        self.listen(0)  # the answer is there
        self._dispatcher.starts(self._now() - self.begin)  # its release

    def _times(self, event: Finished, inference: Inference) -> tuple[int, int]:
        """Return the beginning of the frame as both the inference's beginning and its end."""
        began = self._frames.begin(inference.ticket.decision.start)
        return began, began

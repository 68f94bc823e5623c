"""A worker: takes tickets, reads the frame, infers, and reports. It has a policy, but no optimiser and no replay."""

from __future__ import annotations

import ctypes
import socket
import struct
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import gymnasium as gym

from async_wrappers.live.memory.exchange import DECISION, Fate, Finished, Ticket, ticket_of
from async_wrappers.live.memory.layout import SharedLayout, SharedMemory
from async_wrappers.live.memory.weights import Reading, WeightsBoard
from async_wrappers.policy import Decision, NoAction, as_act
from async_wrappers.wrappers.action_conversion import RefusedAction, as_action, refusal, with_extras

TICKET = struct.Struct(f"<qq{DECISION}")  # a Ticket
MESSAGE = struct.Struct("<HHI")  # worker, its incarnation (modulo 2**16), one of the two below
READY, FINISHED = 0, 1
_NOTHING = nullcontext()


def infer(
    worker: int,
    ticket: Ticket,
    observation: Any,
    act: Callable[[Any, Decision], Any],
    action_space: gym.Space[Any],
    began: int | None = None,
    extras: gym.spaces.Dict | None = None,
    encodes: bool = False,
    who: str | None = None,
) -> Finished:
    """Return the result of a ticket: the action, or why there is none.

    Args:
        worker: Who infers.
        ticket: The order.
        observation: Of the ticket's frame; a copy that the policy may keep.
        act: Of the policy.
        action_space: The policy's answer is converted to it (`async_wrappers.wrappers.action_conversion`), or refused.
        began: When the ticket was in the worker's hands, in monotonic nanoseconds; now if not given.
        extras: Space of the values that the policy leaves for the learner: its answer has the attributes ``action``
            and ``extras``. None: its answer is the action.
        encodes: Whether the answer is features in the place of an action, and `action_space` their space; extras then
            come with the release.
        who: Who answers, for the sentence that refuses the answer; the worker if not given.

    Raises:
        ValueError: The answer has not the extras that are declared.
    """
    began = time.monotonic_ns() if began is None else began
    with inference_mode():
        try:
            answer = act(observation, ticket.decision)
        except NoAction as reason:
            sentence = f"worker {worker} has no action: {reason}"
            return Finished(worker, ticket.number, began, time.monotonic_ns(), Fate.REFUSED, sentence, 0)
        left = None
        if extras is not None and not encodes:
            answer, left = with_extras(answer, extras)
        try:
            fate, action = Fate.DONE, as_action(action_space, answer)  # on the host: then the inference has ended
        except RefusedAction as reason:
            what = "element" if encodes else "action"
            fate, action = Fate.REFUSED, refusal(who or f"worker {worker}", answer, action_space, reason, what)
    return Finished(worker, ticket.number, began, time.monotonic_ns(), fate, action, 0, left)


def take_weights(policy: Any, weights: Any, version: int, updates: int) -> None:
    """Give a policy weights, with the number of updates that the learners had made until them."""
    policy.load_weights(weights, version)
    if hasattr(policy, "note_updates"):
        policy.note_updates(updates)


class WeightsLoader:
    """Gives a policy the newest weights before an inference, in place: it reads them where learners write them.

    Args:
        policy: Of a worker.
        board: Holds the newest weights.

    Raises:
        ValueError: The policy cannot load weights.
    """

    def __init__(self, policy: Any, board: WeightsBoard) -> None:
        if not hasattr(policy, "load_weights"):
            raise ValueError(f"a policy needs load_weights(weights, version) where a learner runs, got {policy!r}")
        self._policy, self._board = policy, board
        self._weights = [board.weights(0), board.weights(1)]
        self.version = 0
        """Version of the weights that the policy has."""
        self.updates = 0
        """Updates that the learners had made until those weights."""

    def load(self, reading: Reading | None = None) -> int:
        """Load the weights of a reading, or the newest ones, unless the policy has them; return their version."""
        version = self._board.version if reading is None else reading.version
        if version != self.version:
            copy = version % 2
            self.version, self.updates = version, self._board.updates(copy)
            take_weights(self._policy, self._weights[copy], version, self.updates)
        return version


class Worker:
    """One worker of a policy, in a thread or a process.

    Args:
        worker: Its number.
        incarnation: How many were there before it under that number.
        policy: A `Policy`, or a function of the observation.
        layout: Of the memory; the policy's answers are converted to the space of its actions or features, or refused.
        memory: Holds frames, actions and, with learners, the newest weights.
        inbox: Tickets come from here; its end ends the worker.
        outbox: Messages go here.
    """

    def __init__(
        self,
        worker: int,
        incarnation: int,
        policy: Any,
        layout: SharedLayout,
        memory: SharedMemory,
        inbox: socket.socket,
        outbox: socket.socket,
    ) -> None:
        self._encodes = layout.features is not None
        self._worker, self._incarnation, self._act = worker, incarnation, as_act(policy, self._encodes)
        self._answers, self._extras = layout.answers, layout.extras
        self._ring, self._slots, self._board = layout.ring(memory), layout.slots(memory), layout.board(memory)
        self._inbox, self._outbox = inbox, outbox
        board = self._board
        self._loader = None if board is None else WeightsLoader(policy, board)
        if board is not None and board.version and (reading := self._load_weights()) is not None:
            board.end_reading(worker, reading)
            _return_freed_memory()  # the weights that the policy came with

    def run(self) -> None:
        """Infer until the other end closes."""
        self._say(READY)
        while len(message := self._inbox.recv(TICKET.size, socket.MSG_WAITALL)) == TICKET.size:
            ticket = ticket_of(*TICKET.unpack(message))
            if ticket.incarnation == self._incarnation:
                self._slots.write(self._infer(ticket))
                self._say(FINISHED)

    def _say(self, what: int) -> None:
        self._outbox.sendall(MESSAGE.pack(self._worker, self._incarnation & 0xFFFF, what))

    def _infer(self, ticket: Ticket) -> Finished:
        began = time.monotonic_ns()
        try:
            observation = self._ring.read(ticket.number)
        except LookupError:
            return Finished(self._worker, ticket.number, began, began, Fate.PASSED, None, self._version())
        reading = self._load_weights()
        answered = self._act, self._answers, began, self._extras, self._encodes
        finished = infer(self._worker, ticket, observation, *answered)
        if reading is not None and self._board is not None and not self._board.end_reading(self._worker, reading):
            finished = finished._replace(fate=Fate.DISCARDED)
        if self._loader is None:
            return finished
        return finished._replace(version=self._loader.version, updates=self._loader.updates)

    def _version(self) -> int:
        return 0 if self._loader is None else self._loader.version

    def _load_weights(self) -> Reading | None:
        if self._board is None or self._loader is None:
            return None
        reading = self._board.begin_reading(self._worker)
        self._loader.load(reading)
        return reading


def _return_freed_memory() -> None:
    """Return freed memory that the C library keeps to the system: half a large model's size."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc
    if trim is not None:
        trim(0)


def inference_mode() -> AbstractContextManager[Any]:
    """Return torch's inference mode, if the policy has brought torch."""
    torch = sys.modules.get("torch")
    return _NOTHING if torch is None else torch.inference_mode()

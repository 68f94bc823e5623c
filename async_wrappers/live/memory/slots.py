"""Small messages in shared memory between workers, learners and the environment loop; each number has one writer."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from async_wrappers.live.memory.block import Block, Codec

__all__ = ["ActionSlots", "Controls", "Fate", "Finished", "Ticket"]


class Ticket(NamedTuple):
    """An order to infer: which published frame, for which decision.

    Attributes:
        incarnation: Of the worker it is meant for; a worker that was restarted drops its predecessor's tickets.
        number: Of the published frame in the run.
        episode: Number of the episode in its phase.
        start: Frame of the episode.
        frame: Frames played before, over all episodes.
        eval_mode: Whether this is evaluation.
    """

    incarnation: int
    number: int
    episode: int
    start: int
    frame: int
    eval_mode: bool


class Fate(IntEnum):
    """What became of an inference."""

    DONE = 0
    PASSED = 1  # the ring had passed the frame: nothing was inferred
    DISCARDED = 2  # the weights were rewritten while it read them
    REFUSED = 3  # the action is not in the action space
    LOST = 4  # the worker died


class Finished(NamedTuple):
    """An inference that has ended, in nanoseconds of the monotonic clock.

    Attributes:
        worker: Who inferred.
        number: Of the published frame.
        began: When the ticket was in the worker's hands.
        ended: When the action was.
        fate: What became of it.
        action: The action, where the fate is DONE; the sentence that says why not, where it is REFUSED.
        version: Of the weights, 0 if they are the policy's own.
        extras: What the policy left for the learner beside the action, arrays by name; None if it leaves nothing.
    """

    worker: int
    number: int
    began: int
    ended: int
    fate: Fate
    action: Any
    version: int
    extras: Any = None


class ActionSlots:
    """One slot per worker, which writes it alone, and which is read only after the worker said that it is whole.

    Args:
        block: Shared memory of `size(...)` bytes.
        action_space: Of the actions.
        workers: How many slots.
        extras: What the policy leaves for the learner beside the action; None for nothing, which takes no byte.
    """

    def __init__(
        self, block: Block, action_space: gym.Space[Any], workers: int, extras: gym.spaces.Dict | None = None
    ) -> None:
        """See the class."""
        self._codec = Codec("action_space", action_space)
        self._extras_codec = None if extras is None else Codec("extras", extras)
        slots = block.array(_slot(self._codec, self._extras_codec), workers)
        self._extras = [] if extras is None else [slots["extras"][k : k + 1] for k in range(workers)]
        self._numbers = slots["numbers"]
        self._actions = [slots["action"][k : k + 1] for k in range(workers)]
        self._refusals = slots["refusal"]

    @classmethod
    def size(cls, action_space: gym.Space[Any], workers: int, extras: gym.spaces.Dict | None = None) -> int:
        """Return the bytes that the slots take."""
        codecs = Codec("action_space", action_space), None if extras is None else Codec("extras", extras)
        return _slot(*codecs).itemsize * workers

    def write(self, finished: Finished) -> None:
        """Fill a worker's slot; by that worker."""
        worker, number, began, ended, fate, action, version, extras = finished
        self._numbers[worker] = number, began, ended, fate, version
        if fate == Fate.DONE:
            self._codec.write(self._actions[worker], action)
            if self._extras_codec is not None:
                self._extras_codec.write(self._extras[worker], extras)
        elif fate == Fate.REFUSED:
            self._refusals[worker] = str(action).encode()[:_SENTENCE]

    def read(self, worker: int) -> Finished:
        """Return what a worker wrote."""
        number, began, ended, fate, version = self._numbers[worker].tolist()
        action = extras = None
        if fate == Fate.DONE:
            action = self._codec.read(self._actions[worker])
            if self._extras_codec is not None:
                extras = self._extras_codec.read(self._extras[worker])
        elif fate == Fate.REFUSED:
            action = self._refusals[worker].decode(errors="ignore")
        return Finished(worker, number, began, ended, Fate(fate), action, version, extras)

    def read_end(self, worker: int) -> int:
        """Return when a worker's last inference ended, on the monotonic clock."""
        return int(self._numbers[worker, 2])


_SENTENCE = 1024  # bytes of a refusal


def _slot(action: Codec, extras: Codec | None) -> np.dtype[Any]:
    fields: list[Any] = [("numbers", np.int64, 5), ("action", action.dtype), ("refusal", f"S{_SENTENCE}")]
    if extras is not None:
        fields.append(("extras", extras.dtype))
    return np.dtype(fields, align=True)


class Controls:
    """Small numbers that are only ever set whole.

    Args:
        block: Shared memory of `size(workers, learners)` bytes.
        workers: How many workers.
        learners: How many learners.
    """

    def __init__(self, block: Block, workers: int, learners: int) -> None:
        """See the class."""
        numbers = block.array(np.int64, 4 + workers + 3 * learners)
        self._loop, learner = numbers[:4], numbers[4 + workers :]
        self.incarnations = numbers[4 : 4 + workers]
        """By worker: how often it has been started; written by the supervisor."""
        self.updates = learner[:learners]
        """By learner: updates made; written by that learner."""
        self.turns = learner[learners : 2 * learners]
        """By learner: how many of the granted turns it has used; written by that learner."""
        self.paused = learner[2 * learners : 3 * learners]
        """By learner: 1 while it rests, with all that it has learnt published; written by that learner."""

    @classmethod
    def size(cls, workers: int, learners: int) -> int:
        """Return the bytes that the numbers take."""
        return 8 * (4 + workers + 3 * learners)

    @property
    def stop(self) -> int:
        """The environment loop ends every phase up to this number at the next frame; set by the supervisor."""
        return int(self._loop[0])

    @stop.setter
    def stop(self, value: int) -> None:
        self._loop[0] = value

    @property
    def learning(self) -> bool:
        """Whether learners may learn; set by the supervisor."""
        return bool(self._loop[1])

    @learning.setter
    def learning(self, value: bool) -> None:
        self._loop[1] = value

    @property
    def granted(self) -> int:
        """How many turns learners may take in all, -1 for as many as they can; set by the environment loop."""
        return int(self._loop[2])

    @granted.setter
    def granted(self, value: int) -> None:
        self._loop[2] = value

    @property
    def patience(self) -> int:
        """Nanoseconds that a learner waits for readers of a copy: the p99 latency; set by the environment loop."""
        return int(self._loop[3])

    @patience.setter
    def patience(self, value: int) -> None:
        self._loop[3] = value

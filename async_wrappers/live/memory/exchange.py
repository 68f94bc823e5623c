"""The data that the environment loop, workers and learners exchange in shared memory; each number has one writer.

Frames go to the workers through a ring, actions come back through a slot for each worker, and a few numbers control
restarts, learning, pauses and the end of a phase.
"""

from __future__ import annotations

from contextlib import suppress
from enum import IntEnum
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from async_wrappers.fleet.block import Block, Codec
from async_wrappers.live.report.journey import RoundTrip
from async_wrappers.policy import Decision


class Ticket(NamedTuple):
    """An order to infer: which shown frame, for which decision.

    Attributes:
        incarnation: Of the worker it is meant for; a worker that was restarted drops its predecessor's tickets.
        number: Of the shown frame in the run.
        decision: What the policy is told.
    """

    incarnation: int
    number: int
    decision: Decision


# A decision travels as a whole number for each of its fields but `env_id`: a loop plays one environment.
DECISION = "q" * (len(Decision._fields) - 1)
_ENV = Decision._fields.index("env_id")


def told(decision: Decision) -> tuple[int, ...]:
    """Return the numbers of a decision that travel."""
    return decision[:_ENV] + decision[_ENV + 1 :]


def ticket_of(
    incarnation: int, number: int, episode: int, start: int, frame: int, eval_mode: Any, *more: Any
) -> Ticket:
    """Return the ticket of numbers that have travelled."""
    return Ticket(incarnation, number, Decision(episode, start, frame, bool(eval_mode), 0, *more))


class Fate(IntEnum):
    """The outcome of an inference."""

    DONE = 0
    PASSED = 1  # the ring had passed the frame: nothing was inferred
    DISCARDED = 2  # the weights were rewritten while it read them
    REFUSED = 3  # the action is not in the action space
    LOST = 4  # the worker died


class Finished(NamedTuple):
    """An inference that has ended, in nanoseconds of the monotonic clock.

    Attributes:
        worker: Who inferred.
        number: Of the shown frame.
        began: When the ticket was in the worker's hands.
        ended: When the action was.
        fate: Its outcome.
        action: The action if the fate is DONE; the sentence of the refusal if it is REFUSED.
        version: Of the weights, 0 if they are the policy's own.
        extras: Values that the policy left for the learner beside the action, arrays by name; None for none.
        updates: Updates that the learners had made until those weights.
        trip: The times of its round trip, if the worker is on another machine; None if not.
    """

    worker: int
    number: int
    began: int
    ended: int
    fate: Fate
    action: Any
    version: int
    extras: Any = None
    updates: int = 0
    trip: RoundTrip | None = None


class ActionSlots:
    """One slot per worker: the worker alone writes it, and it is read only after the worker's message.

    Args:
        block: Shared memory of `size(...)` bytes.
        action_space: Of the actions.
        workers: How many slots.
        extras: Space of the values that the policy leaves for the learner beside the action; None takes no byte.
    """

    def __init__(
        self, block: Block, action_space: gym.Space[Any], workers: int, extras: gym.spaces.Dict | None = None
    ) -> None:
        self._action, self._extras = Codec("action_space", action_space), Codec("extras", extras)
        slots = block.array(_slot(self._action, self._extras), workers)
        self._numbers, self._refusals = slots["numbers"], slots["refusal"]
        self._fields = [(slots["action"][k : k + 1], slots["extras"][k : k + 1]) for k in range(workers)]

    @classmethod
    def size(cls, action_space: gym.Space[Any], workers: int, extras: gym.spaces.Dict | None = None) -> int:
        """Return the bytes that the slots take."""
        return _slot(Codec("action_space", action_space), Codec("extras", extras)).itemsize * workers

    def write(self, finished: Finished) -> None:
        """Fill a worker's slot; by that worker."""
        worker, number, began, ended, fate, action, version, extras, updates, _ = finished
        self._numbers[worker] = number, began, ended, fate, version, updates
        if fate == Fate.DONE:
            action_field, extras_field = self._fields[worker]
            self._action.write(action_field, action)
            self._extras.write(extras_field, extras)
        elif fate == Fate.REFUSED:
            self._refusals[worker] = str(action).encode()[:_SENTENCE]

    def read(self, worker: int) -> Finished:
        """Return a worker's finished inference."""
        number, began, ended, fate, version, updates = self._numbers[worker].tolist()
        action = extras = None
        if fate == Fate.DONE:
            action_field, extras_field = self._fields[worker]
            action, extras = self._action.read(action_field), self._extras.read(extras_field)
        elif fate == Fate.REFUSED:
            action = self._refusals[worker].decode(errors="ignore")
        return Finished(worker, number, began, ended, Fate(fate), action, version, extras, updates)

    def read_end(self, worker: int) -> int:
        """Return when a worker's last inference ended, on the monotonic clock."""
        return int(self._numbers[worker, 2])


_SENTENCE = 1024  # bytes of a refusal


def _slot(action: Codec, extras: Codec) -> np.dtype[Any]:
    numbers, refusal = ("numbers", np.int64, 6), ("refusal", f"S{_SENTENCE}")
    return np.dtype([numbers, ("action", action.dtype), refusal, ("extras", extras.dtype)], align=True)


class _Number:
    """One of the loop's numbers of `Controls`, read and set as an attribute."""

    def __init__(self, place: int) -> None:
        """Take the number at this place."""
        self._place = place

    def __get__(self, controls: Controls, owner: type[Controls]) -> int:
        return int(controls.loop[self._place])

    def __set__(self, controls: Controls, value: int) -> None:
        controls.loop[self._place] = value


class Controls:
    """Small numbers that are only ever set whole.

    Args:
        block: Shared memory of `size(workers, learners)` bytes.
        workers: How many workers.
        learners: How many learners.
    """

    stop = _Number(0)
    """The environment loop ends every phase up to this number at the next frame; set by the supervisor."""
    learning = _Number(1)
    """Whether learners may learn; set by the supervisor."""
    granted = _Number(2)
    """How many turns learners may take in all, -1 for as many as they can; set by the environment loop."""
    patience = _Number(3)
    """Nanoseconds that a learner waits for readers of a copy: the p99 latency; set by the environment loop."""
    halted = _Number(4)
    """Whether the environment loop is paused; set by the supervisor, or by the environment loop."""

    def __init__(self, block: Block, workers: int, learners: int) -> None:
        numbers = block.array(np.int64, 5 + 2 * workers + 3 * learners)
        self.loop = numbers[:5]
        """The five numbers above."""
        self.incarnations = numbers[5 : 5 + workers]
        """By worker: how often it has been started; written by the supervisor."""
        self.overdue = numbers[5 + workers : 5 + 2 * workers]
        """By worker: 1 + the incarnation whose inference takes far too long, 0 for none; by the environment loop."""
        self.updates, self.turns, self.paused = numbers[5 + 2 * workers :].reshape(3, learners)
        """By learner, and written by that learner: updates made; how many of the granted turns it has used; 1 while it
        rests, with its newest weights published."""

    @classmethod
    def size(cls, workers: int, learners: int) -> int:
        """Return the bytes that the numbers take."""
        return 8 * (5 + 2 * workers + 3 * learners)


_ABSENT = np.iinfo(np.int64).min  # the number of no frame


class FrameRing:
    """Keeps the last `depth` frames, each under its number.

    A frame's number is taken away before its bytes are overwritten and set after they are whole, so a reader that finds
    the right number before and after its copy has read exactly that frame. (This relies on stores and loads that stay
    in order, as on x86-64.)

    Args:
        block: Shared memory; the environment's process and all workers make a ring over the same one.
        space: Of the observations.
        depth: Frames kept.
    """

    def __init__(self, block: Block, space: gym.Space[Any], depth: int) -> None:
        self._codec = Codec("observation_space", space)
        self._depth = depth
        entries = block.array(_frame(self._codec), depth)
        self._numbers = entries["number"]
        self._fields = [entries["observation"][k : k + 1] for k in range(depth)]

    @classmethod
    def size(cls, space: gym.Space[Any], depth: int) -> int:
        """Return the bytes that a ring takes."""
        return _frame(Codec("observation_space", space)).itemsize * depth

    def clear(self) -> None:
        """Forget all frames; by the writer, before the first."""
        self._numbers[:] = _ABSENT

    def write(self, number: int, observation: Any) -> None:
        """Publish frame `number`; the one that was written `depth` frames ago goes."""
        place = number % self._depth
        self._numbers[place] = _ABSENT
        self._codec.write(self._fields[place], observation)
        self._numbers[place] = number

    def read(self, number: int) -> Any:
        """Return a copy of frame `number`.

        Raises:
            LookupError: It has been overwritten, or not yet been written.
        """
        place = number % self._depth
        if self._numbers[place] == number:
            observation = self._codec.read(self._fields[place])
            if self._numbers[place] == number:
                return observation
        raise LookupError(f"frame {number} is not in the ring")

    def newest(self) -> tuple[int, Any]:
        """Return the newest frame's number and a copy of it; -1 and None where there is none, or it goes meanwhile."""
        number = int(self._numbers.max())
        if number > 0:  # a ring that nobody writes has only zeros
            with suppress(LookupError):
                return number, self.read(number)
        return -1, None


def _frame(codec: Codec) -> np.dtype[Any]:
    return np.dtype([("number", np.int64), ("observation", codec.dtype)], align=True)

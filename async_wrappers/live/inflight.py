"""The inferences of a run, each booked once: from its ticket until its action is applied or can no longer be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from async_wrappers.live.memory.slots import Fate, Finished, Ticket
from async_wrappers.schedule.dispatch import Due

__all__ = ["Inference", "Inflight"]


@dataclass(slots=True)
class Inference:
    """One run of the policy.

    Attributes:
        number: How many inferences of the run were ordered before it.
        worker: Who infers.
        ticket: What was ordered.
        sent: When, in nanoseconds of the loop's clock.
        observation: A copy of what the policy reads, for the learners; None where nothing is learnt.
        action: What it came to, once it has ended well.
        extras: What the policy left for the learner beside the action.
        version: Of the weights behind the action.
        refused: Whether the policy's answer was no action. In a simulation its frame then receives the default action;
            on a real clock such an inference is never applied.
    """

    number: int
    worker: int
    ticket: Ticket
    sent: int
    observation: Any = None
    action: Any = None
    extras: Any = None
    version: int = 0
    refused: bool = False


class Inflight:
    """The inferences that go on, by worker, and those whose actions wait for their frame, as the dispatcher names them.

    A worker has one inference at a time, and never infers a frame of an episode twice. So (start, worker), the
    dispatcher's name of an action, is the name of an inference of the episode, too.
    """

    def __init__(self) -> None:
        """See the class."""
        self.running: dict[int, Inference] = {}
        """By worker: what it infers, of whichever episode."""
        self._waiting: dict[Due, Inference] = {}
        self._ordered = 0

    def begin_episode(self) -> None:
        """Drop the actions of the episode before; inferences that go on stay until they end."""
        self._waiting.clear()

    def order(self, worker: int, ticket: Ticket, sent: int, observation: Any = None) -> None:
        """Book an inference that begins."""
        self.running[worker] = Inference(self._ordered, worker, ticket, sent, observation)
        self._ordered += 1

    def end(self, worker: int) -> Inference | None:
        """Return what a worker has inferred, which goes on no longer; None if it was idle."""
        return self.running.pop(worker, None)

    def wait(self, inference: Inference, finished: Finished) -> None:
        """Keep an action until it is applied, or a newer one is."""
        inference.action, inference.extras, inference.version = finished.action, finished.extras, finished.version
        inference.refused = finished.fate == Fate.REFUSED
        self._waiting[Due(inference.ticket.start, inference.worker)] = inference

    def take(self, due: Due) -> Inference:
        """Return the inference whose action is applied now, and drop those that are no newer."""
        taken = self._waiting[due]
        self._waiting = {key: value for key, value in self._waiting.items() if key.start > due.start}
        return taken

    def of_episode(self, first: int) -> Iterator[Inference]:
        """Yield the inferences that go on and read published frame `first` or a newer one."""
        return (inference for inference in self.running.values() if inference.ticket.number >= first)

    def observation(self, start: int | None, first: int) -> Any:
        """Return what a decision of the present episode reads; None where there is none of that start.

        Args:
            start: Frame of the episode.
            first: Number of the first frame that was published in the episode.
        """
        for inference in (*self._waiting.values(), *self.of_episode(first)):
            if inference.ticket.start == start:
                return inference.observation
        return None

"""Learners on the virtual clock: a model says how long an update takes, so what is learnt is a function of the seed.

An update begins when one is owed (`updates_per_transition`; None: always), and the learner is ready and free. Its batch
is drawn then, from the transitions that were complete by then. It ends when its latency has passed: of several
learners, each applies its gradients then, to the newest weights, in the order in which their updates end. Inferences
that start at that moment or later read the new weights. An update that takes no time ends after the starts of its
moment; later inferences read it.

On the time line of a frame k, which begins at t_k::

    t_k    updates that end by now flip the weights; inferences that end by now are collected; workers start;
           an action is chosen, which completes a transition; learners that are free begin an update
    ...    an update ends: it flips the weights, and its learner begins the next one
           an inference ends: its worker may start again, with the newest weights
    t_k+1  the environment has stepped; ...

Between two phases no time passes, so an update that goes on when a phase ends is finished at once: an evaluation and a
checkpoint find all learners at rest, as those of processes are.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from async_wrappers.latency import Latency
from async_wrappers.live.learning.learner_loop import LearnerLoop
from async_wrappers.live.memory.slots import Controls

__all__ = ["VirtualLearners"]

_LATENCIES = 0x1EA2  # makes the updates' latencies independent of what else is drawn from an episode's seed


class VirtualLearners:
    """L learners beside the environment loop, in its thread.

    Args:
        learners: L of them, which share a journal, weights and `controls`.
        controls: Shared with the environment loop.
        latency: How long an update takes. Each learner has a stream of its own, which begins anew with each episode.
    """

    def __init__(self, learners: Sequence[LearnerLoop], controls: Controls, latency: Latency) -> None:
        """See the class."""
        self._learners, self._controls, self._latency = learners, controls, latency
        self._ends: list[tuple[int, int, int]] = []  # (when an update ends, learner, how long it takes), a heap
        self._busy: set[int] = set()
        self._draws: list[Callable[[], int]] = []
        for learner in learners:
            learner.publish_first()

    def restart(self, seed: int) -> None:
        """Begin an episode, whose seed starts all latencies anew; updates go on."""
        seeds = [np.random.SeedSequence((seed, _LATENCIES, number)) for number in range(len(self._learners))]
        self._draws = [self._latency.stream(each).draw for each in seeds]

    def run(self, now: int, until: int) -> None:
        """Let time pass from `now` to `until`: updates begin now and between, and end by `until`.

        None begins at `until`: what the loop does at that time comes first.
        """
        for number in range(len(self._learners)):
            self._begin(number, now)
        while self._ends and self._ends[0][0] <= until:
            ended, number, latency = heapq.heappop(self._ends)
            self._end(number, latency)
            if ended < until:
                self._begin(number, ended)

    def finish(self) -> None:
        """Let the learners come to rest where a phase ends: updates that go on end, and granted turns are taken."""
        while self._ends:
            _, number, latency = heapq.heappop(self._ends)
            self._end(number, latency)
        for number, learner in enumerate(self._learners):
            while learner.has_turn():
                self._begin(number, 0)
                if self._ends:
                    self._end(number, heapq.heappop(self._ends)[-1])

    def statistics(self) -> tuple[list[int], dict[str, float]]:
        """Return how long each update took since the last call, and what the first learner's newest one returned."""
        statistics = [learner.statistics() for learner in self._learners]
        return [step for steps, _ in statistics for step in steps], statistics[0][1]

    def save(self, directory: Path, iteration: int) -> None:
        """Let all learners write their state; what they owe is forgotten, in a run that goes on as in one restored."""
        for learner in self._learners:
            learner.save(directory, iteration)
        for learner in self._learners:
            learner.owe_nothing()

    def restore(self, directory: Path, iteration: int, replays: bool) -> list[int | str]:
        """Let all learners read their state; see `LearnerLoop.restore`."""
        answers = [learner.restore(directory, iteration, replays) for learner in self._learners]
        for learner in self._learners:
            learner.owe_nothing()
        return answers

    def forget(self, directory: Path, keep: set[int]) -> None:
        """Let all learners delete the replays of all other iterations."""
        for learner in self._learners:
            learner.forget(directory, keep)

    def _begin(self, number: int, now: int) -> None:
        """Begin an update, if the learner is free and one is owed."""
        if number in self._busy:
            return
        learner = self._learners[number]
        learner.observe()
        while (turn := learner.has_turn()) is not False:
            if learner.may_learn():
                with _named(number):
                    learner.begin_update()
                self._busy.add(number)
                latency = self._draws[number]()
                heapq.heappush(self._ends, (now + latency, number, latency))
                return
            if turn is None:
                return
            learner.use_turn()  # one in which there is nothing to learn

    def _end(self, number: int, latency: int) -> None:
        learner = self._learners[number]
        self._busy.remove(number)
        with _named(number):
            learner.end_update()
        learner.publish()
        learner.steps.append(latency)
        if learner.has_turn():
            learner.use_turn()


@contextmanager
def _named(number: int) -> Iterator[None]:
    """Note on an error which learner raised it."""
    try:
        yield
    except Exception as error:
        error.add_note(f"raised in learner {number}")
        raise

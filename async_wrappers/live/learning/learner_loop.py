"""A learner beside the game: observes transitions, updates weights of its own, and publishes them."""

from __future__ import annotations

import fcntl
import inspect
import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from async_wrappers.live.learning.learner_state import restore_learner, save_learner
from async_wrappers.live.learning.transition_reader import TransitionReader
from async_wrappers.live.memory.journal import Journal
from async_wrappers.live.memory.slots import Controls
from async_wrappers.live.memory.weights import WeightsBoard

__all__ = ["LearnerLoop", "call_make_learner"]

_AT_ONCE = 256  # transitions observed before the next look at what else is to be done
_REST = 0.001  # seconds between two looks while there is nothing to do


class LearnerLoop:
    """One of L learners, each of which observes every transition (`TransitionReader`).

    One learner steps its weights and publishes them. Of several, each takes gradients on a snapshot of the newest
    weights, and applies them, one learner at a time, to the weights that are the newest then; optimisers are their own.
    Updates are counted over all learners, restarted and restored ones included; a learner's ``note_updates``, if it has
    this method, receives the counts.

    Args:
        number: Which learner this is, from 0.
        learners: L.
        learner: A `Learner`.
        journal: Where transitions come from.
        board: Where workers read weights.
        shared: Where several learners keep the newest weights; None for one learner.
        lock: A file that a learner locks to apply its gradients; None where all learners take turns in one thread.
        controls: Shared with the environment loop and the supervisor.
        updates_per_transition: At most so many updates for each transition, of all learners together: each owes an
            L-th of them.
    """

    def __init__(
        self,
        number: int,
        learners: int,
        learner: Any,
        journal: Journal,
        board: WeightsBoard,
        shared: WeightsBoard | None,
        lock: Any,
        controls: Controls,
        updates_per_transition: float | None = None,
    ) -> None:
        """See the class."""
        self._number, self._learners, self._learner = number, learners, learner
        self._transitions = TransitionReader(journal)
        self._board, self._shared, self._lock = board, shared, lock
        self._controls = controls
        self._ratio = None if updates_per_transition is None else updates_per_transition / learners
        self._observed = 0
        self._updates_here = 0  # made by this process
        self._unpublished = False
        self.steps: list[int] = []
        """How long each update took, in nanoseconds, until somebody clears it."""
        self.scalars: Mapping[str, Any] = {}
        """What the last update returned."""

    def publish_first(self) -> None:
        """Publish the learner's weights as the first version."""
        if self._shared is not None and not self._shared.version:
            self._shared.publish(self._learner.weights())
        if not self._board.version:
            self._board.publish(self._learner.weights())

    def publish_again(self) -> None:
        """Publish the learner's weights, which have been restored."""
        with self._alone():
            if self._shared is not None:
                self._shared.publish(self._learner.weights())
            self._board.publish(self._learner.weights())

    def drain(self) -> None:
        """Observe all that the journal holds: what is saved then lacks no transition.

        The run may have been interrupted in the middle of an episode, which is over for the learner then.
        """
        for transition in self._transitions.remaining():
            self._learner.observe(transition)
            self._observed += 1

    def catch_up(self) -> None:
        """Take over what the other learners have learnt."""
        if self._shared is not None:
            self._load_newest()

    def pass_counts(self) -> None:
        """Give the learner its own number of updates and that of all learners, if it takes them."""
        self._note_updates(self._controls.updates)

    def take_count(self) -> None:
        """Go on counting from the updates of a learner that has been restored, if it counts them."""
        if hasattr(self._learner, "note_updates"):
            self._controls.updates[self._number] = self._learner.updates

    def save(self, directory: Path, iteration: int) -> None:
        """Write the learner's state and its replay, once it has observed what the journal still holds."""
        self.drain()
        self.catch_up()
        save_learner(self._learner, directory, iteration, self._number)

    def restore(self, directory: Path, iteration: int, replays: bool) -> int | str:
        """Return how many transitions are lost with damaged files, or why the files cannot be used."""
        lost = restore_learner(self._learner, directory, iteration, self._number, replays)
        if not isinstance(lost, str):
            self.take_count()
            self.publish_again()
        return lost

    def forget(self, directory: Path, keep: set[int]) -> None:
        """Delete the learner's replays of all other iterations."""
        if hasattr(self._learner, "forget_replays"):
            self._learner.forget_replays(directory / f"replay_{self._number}", keep)

    def statistics(self) -> tuple[list[int], dict[str, float]]:
        """Return how long each update took since the last call, and what the newest one returned."""
        steps, self.steps = self.steps, []
        return steps, {name: float(value) for name, value in self.scalars.items()}

    def owe_nothing(self) -> None:
        """Count what is owed anew: a run that goes on from its files knows nothing of it either."""
        self._observed = self._updates_here = 0

    def rests(self) -> bool:
        """Return whether learning is off and all that was learnt is published."""
        return not self._controls.learning and not self._unpublished

    def turn(self) -> None:
        """Do what is to be done next: observe, update once, publish; or rest a little."""
        self.observe(_AT_ONCE)
        turn = self.has_turn()
        owes = self._unpublished and turn is not None  # the last turn's weights come first
        if turn is not False and not owes and self.may_learn():
            self._learn()
        else:
            time.sleep(_REST)
        self._publish()
        if turn and not self._unpublished:
            self.use_turn()

    def use_turn(self) -> None:
        """Note that a granted turn is used."""
        self._controls.turns[self._number] += 1

    def has_turn(self) -> bool | None:
        """Return whether a turn is granted and not yet used; None where turns are not granted one by one."""
        granted = self._controls.granted
        return None if granted < 0 else bool(self._controls.turns[self._number] < granted)

    def _learn(self) -> None:
        began = time.monotonic_ns()
        self.begin_update()
        self.end_update()
        self.steps.append(time.monotonic_ns() - began)
        if self._updates_here == 1 and self._number:  # spread the learners over the length of an update
            time.sleep(self.steps[-1] / 1e9 * self._number / self._learners)

    def observe(self, most: int | None = None) -> None:
        """Observe the transitions that are complete; at most so many, if a number is given."""
        for _ in itertools.count() if most is None else range(most):
            if (transition := self._transitions.next()) is None:
                return
            self._learner.observe(transition)
            self._observed += 1

    def may_learn(self) -> bool:
        """Return whether learning is on, the learner ready and an update owed."""
        if not self._controls.learning or not getattr(self._learner, "ready", True):
            return False
        return self._ratio is None or self._updates_here < self._ratio * self._observed

    def begin_update(self) -> None:
        """Learn from what was observed: of several learners, take gradients on a snapshot of the newest weights."""
        if self._shared is None:
            self.scalars = self._learner.update()
        else:
            self._load_newest()
            self._gradients = self._learner.gradients()

    def end_update(self) -> None:
        """Of several learners, apply the gradients to the weights that are the newest now; count the update."""
        self._updates_here += 1
        self._unpublished = True
        if self._shared is None:
            self._controls.updates[self._number] += 1
            return
        with self._alone():
            self._load_newest(self._shared.newest())
            self.scalars = self._learner.apply(self._gradients) or getattr(self._learner, "scalars", {})
            self._shared.publish(self._learner.weights())
            self._controls.updates[self._number] += 1  # under the lock: the next learner counts on from here
        del self._gradients

    def _load_newest(self, newest: Mapping[str, Any] | None = None) -> None:
        """Load the newest weights that the learners share, and pass on how many updates they have seen."""
        assert self._shared is not None
        counts = self._controls.updates.copy()  # taken first: these updates at least are in the weights
        self._learner.load_weights(self._shared.snapshot() if newest is None else newest)
        self._note_updates(counts)

    def _note_updates(self, counts: npt.NDArray[np.int64]) -> None:
        if hasattr(self._learner, "note_updates"):
            self._learner.note_updates(int(counts[self._number]), int(counts.sum()))

    def _publish(self) -> None:
        """Publish, unless the copy to be written is still read and the last flip is too recent."""
        if not (self._unpublished and self._may_publish()):
            return
        with self._alone():
            if self._may_publish():  # still: another learner may have flipped the copies before it gave the lock away
                self.publish()

    def publish(self) -> None:
        """Flip the workers' copies to the newest weights, whoever reads."""
        self._board.publish(self._learner.weights() if self._shared is None else self._shared.newest())
        self._unpublished = False

    def _may_publish(self) -> bool:
        return self._board.idle() or self._board.age() > self._controls.patience

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the learners' lock; the kernel frees it when its holder dies."""
        if self._shared is None or self._lock is None:
            yield
            return
        fcntl.lockf(self._lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._lock, fcntl.LOCK_UN)


def call_make_learner(make_learner: Callable[..., Any], number: int, learners: int) -> Any:
    """Return a learner; the function that makes it receives its number and how many there are, if it takes them."""
    try:
        inspect.signature(make_learner).bind(number=number, learners=learners)
    except (TypeError, ValueError):
        return make_learner()
    return make_learner(number=number, learners=learners)

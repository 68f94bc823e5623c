"""Learners beside the game: their interface, and the loop in which they observe, update and publish."""

from __future__ import annotations

import heapq
import inspect
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from async_wrappers.latency import Latency
from async_wrappers.live.learning.learner_state import restore_learner, save_learner
from async_wrappers.live.memory.journal import TransitionReader
from async_wrappers.live.memory.layout import SharedLayout, SharedMemory
from async_wrappers.live.report.histogram import Histogram


class LiveLearner(Protocol):
    """Steps weights of its own; the runner shows it transitions and publishes its weights.

    Optional:

    * ``ready``: False while there is too little to learn from.
    * ``load_weights(weights)``: copy weights into the updated ones alone, not into a target network; for several
      learners.
    * ``take_over(weights)``: go on from the weights of a learner that died; `load_weights`, if there is no such method.
    * ``gradients()`` and ``apply(gradients)``, which together are `update`: for several learners, each of which takes
      gradients on a snapshot of the newest weights and applies them to the weights that are the newest then.
    * ``note_updates(own, of_all)`` and ``updates``, for actions after a number of updates, such as the copy of a
      target network. The runner passes how many updates this learner and all learners together have made, those of
      learners that died and of the runs before included: whenever the newest weights of several learners have been
      loaded, and after `take_over`. Actions that fell due since are then done, once, with the weights just loaded.
      ``apply`` and ``update`` add one to both numbers; ``updates`` is the learner's own, which it restores.
    * ``save_replay(directory, iteration)``, ``load_replay(directory, iteration)`` and ``forget_replays(directory,
      keep)``: the replay, which `state_dict` leaves out. `load_replay` raises OSError or ValueError where it cannot be
      loaded whole.
    * ``tell(facts)``: take in facts that change from run to run; see `AsyncRunner.tell`.

    A learner that raises is started again, unless the exception has a true attribute ``ends_run``: that ends the run.
    """

    def observe(self, transition: Mapping[str, Any]) -> None:
        """Store a transition: observation, action, reward, interval, terminal, truncated, next_observation.

        With declared extras it has them, too: a mapping of the arrays that the policy left beside the action.

        Its next observation is the observation of the transition that comes next, unless it is terminal or truncated.
        A transition whose successor was missed is marked truncated, too.
        """

    def update(self) -> Mapping[str, float]:
        """Learn once; return scalars by name; those of `OFF_POLICY` are averaged for the report."""

    def weights(self) -> Mapping[str, Any]:
        """Return the weights that policies load: arrays or tensors by name, in the policy's memory format."""

    def state_dict(self) -> dict[str, Any]:
        """Return weights, optimiser and counts: tensors and plain data."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state_dict`."""

    def close(self) -> None:
        """Release all resources; in a process of its own it has 60 s for it."""


OFF_POLICY = ("Rho", "EffectiveSampleSize", "KL")
"""Scalars of an update that measure how far the acting policy is from the learning one: ratios pi / mu, their effective
sample size, and a divergence. A run's report has their means, if a learner returns them."""

_AT_ONCE = 256  # transitions observed before the next look at commands and updates
_UPDATES = 0x1EA2  # makes the updates' latencies independent of other draws from an episode's seed
_REST = 0.001  # seconds between two looks while there is nothing to do


class LearnerLoop:
    """One of L learners, each of which observes every transition (`TransitionReader`).

    One learner steps its weights and publishes them. Of several, each takes gradients on a snapshot of the newest
    weights, and applies them, one learner at a time, to the weights that are the newest then; optimisers are their own.
    Updates are counted over all learners, restarted and restored ones included; a learner's ``note_updates``, if it has
    this method, receives the counts.

    Args:
        number: Which learner this is, from 0.
        learner: A `LiveLearner`.
        layout: Of the memory, weights included.
        memory: Shared with the environment loop, the workers, the supervisor and the other learners. Its last block is
            the lock under which a learner applies its gradients; where it is this process's own, all learners take
            turns in one thread, and need none.
        updates_per_transition: Most updates for each transition, of all learners together: each owes an L-th of them.
        counts: Whether the durations of updates are counted in a `Histogram` instead of kept.

    Raises:
        ValueError: The learner's weights are not those of the layout.
    """

    def __init__(
        self,
        number: int,
        learner: Any,
        layout: SharedLayout,
        memory: SharedMemory,
        updates_per_transition: float | None = None,
        counts: bool = False,
    ) -> None:
        journal, board = layout.journal(memory), layout.board(memory)
        assert journal is not None and board is not None
        board.layout.check(learner.weights())
        self._number, self._learners, self._learner = number, layout.learners, learner
        self._transitions = TransitionReader(journal)
        self._board, self._shared, self._lock = board, layout.shared(memory), memory.shared
        self._controls = layout.controls(memory)
        self._ratio = None if updates_per_transition is None else updates_per_transition / layout.learners
        self._observed = 0
        self._updates_here = 0  # made by this process
        self._unpublished = False
        self._counts = counts
        self.steps: list[int] | Histogram = self._no_steps()
        """Duration of each update in nanoseconds, until it is cleared."""
        self.scalars: Mapping[str, Any] = {}
        """Scalars of the last update."""
        self._sums: dict[str, Any] = {}  # of the scalars of `OFF_POLICY`, over the updates that `steps` has

    def publish_first(self) -> None:
        """Publish the learner's weights as the first version."""
        if self._shared is not None and not self._shared.version:
            self._shared.publish(self._learner.weights())
        if not self._board.version:
            self._board.publish(self._learner.weights(), int(self._controls.updates.sum()))

    def drain(self) -> None:
        """Observe all transitions of the journal, so that the saved state lacks none.

        The run may have been interrupted in the middle of an episode, which is over for the learner then.
        """
        for transition in self._transitions.remaining():
            self._learner.observe(transition)
            self._observed += 1

    def catch_up(self) -> None:
        """Take over the newest weights of the other learners."""
        if self._shared is not None:
            self._load_newest()

    def succeed(self) -> None:
        """Go on from the newest weights and counts, if another learner was here before."""
        take_over = getattr(self._learner, "take_over", getattr(self._learner, "load_weights", None))
        if self._board.version and take_over is not None:
            take_over((self._shared or self._board).snapshot())
            self._note_updates(self._controls.updates)

    def go_on(self) -> None:
        """Go on from the updates that a restored learner has counted, if it counts them, and publish its weights."""
        if hasattr(self._learner, "note_updates"):
            self._controls.updates[self._number] = self._learner.updates
        with self._alone():
            if self._shared is not None:
                self._shared.publish(self._learner.weights())
            self._board.publish(self._learner.weights(), int(self._controls.updates.sum()))

    def save(self, directory: Path, iteration: int) -> None:
        """Write the learner's state and its replay, after it has observed the rest of the journal."""
        self.drain()
        self.catch_up()
        save_learner(self._learner, directory, iteration, self._number)

    def restore(self, directory: Path, iteration: int, replays: bool) -> None:
        """Read the learner's state, and its replay if it is wanted.

        Raises:
            NotRestored: The files cannot be used.
        """
        restore_learner(self._learner, directory, iteration, self._number, replays)
        self.go_on()

    def forget(self, directory: Path, keep: set[int]) -> None:
        """Delete the learner's replays of all other iterations."""
        if hasattr(self._learner, "forget_replays"):
            self._learner.forget_replays(directory / f"replay_{self._number}", keep)

    def tell(self, facts: Mapping[str, Any]) -> None:
        """Pass on facts to the learner, if it takes any."""
        if hasattr(self._learner, "tell"):
            self._learner.tell(facts)

    def _no_steps(self) -> list[int] | Histogram:
        return Histogram() if self._counts else []

    def statistics(self) -> tuple[Any, dict[str, float], dict[str, float]]:
        """Return the updates' durations since the last call, the newest one's scalars, and means of `OFF_POLICY`."""
        steps, self.steps = self.steps, self._no_steps()
        sums, self._sums = self._sums, {}
        means = {name: float(value) / max(len(steps), 1) for name, value in sums.items()}
        scalars = {name: float(value) for name, value in self.scalars.items()}
        if steps:
            scalars |= getattr(self._learner, "summary", dict[str, float])()
        times = getattr(self._learner, "times", None)
        if times is not None and hasattr(times, "take"):
            scalars |= {f"Time/{name}": seconds for name, seconds in times.take().items()}
        return steps, scalars, means

    def owe_nothing(self) -> None:
        """Drop the updates that are owed, as a run that goes on from its files does."""
        self._observed = self._updates_here = 0

    def rests(self) -> bool:
        """Return whether learning is off and the newest weights are published."""
        return not self._controls.learning and not self._unpublished

    def turn(self) -> None:
        """Take one turn: observe, update once, publish; or rest a little."""
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
        took = time.monotonic_ns() - began
        self.steps.append(took)
        if self._updates_here == 1 and self._number:  # spread the learners over the length of an update
            time.sleep(took / 1e9 * self._number / self._learners)

    def observe(self, most: int | None = None) -> None:
        """Observe the transitions that are complete; at most `most`, if it is given.

        If updates follow one another, and the learner's ``waits`` is true because it has no room, the rest stays in the
        journal.
        """
        for _ in itertools.count() if most is None else range(most):
            if self._ratio is None and getattr(self._learner, "waits", False):
                return
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
        """Update the weights; of several learners, take gradients on a snapshot of the newest weights."""
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
            self._sum_up()
            return
        with self._alone():
            self._load_newest(self._shared.newest())
            self.scalars = self._learner.apply(self._gradients) or getattr(self._learner, "scalars", {})
            self._shared.publish(self._learner.weights())
            self._controls.updates[self._number] += 1  # under the lock: the next learner counts on from here
        del self._gradients
        self._sum_up()

    def _sum_up(self) -> None:
        """Add up the scalars that are averaged. No tensor's value is read here, which would wait for its device."""
        for name in OFF_POLICY:
            if name in self.scalars:
                self._sums[name] = self._sums.get(name, 0.0) + self.scalars[name]

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
        """Publish, unless the copy to be written is still read and the last flip is too recent.

        So a learner never waits for readers, and the age of weights is counted in updates, not in versions.
        """
        if not (self._unpublished and self._may_publish()):
            return
        with self._alone():
            if self._may_publish():  # still: another learner may have flipped the copies before it gave the lock away
                self.publish()

    def publish(self) -> None:
        """Flip the workers' copies to the newest weights, also while workers read."""
        weights = self._learner.weights() if self._shared is None else self._shared.newest()
        self._board.publish(weights, int(self._controls.updates.sum()))
        self._unpublished = False

    def _may_publish(self) -> bool:
        return self._board.idle() or self._board.age() > self._controls.patience

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the learners' lock; the kernel frees it when its holder dies."""
        if self._shared is None or not self._lock.is_shared:
            yield
            return
        import fcntl  # only POSIX has processes of live play

        fcntl.lockf(self._lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._lock, fcntl.LOCK_UN)


class VirtualLearners:
    """L learners beside the environment loop, in its thread; a model gives the duration of an update.

    The weights are a function of the seed. An update begins when one is owed (`updates_per_transition`; None:
    always), and the learner is ready and free. Its batch is drawn then, from the transitions that were complete by
    then. It ends when its latency has passed: of several learners, each applies its gradients then, to the newest
    weights, in the order in which their updates end. Inferences that start at that moment or later read the new
    weights. An update that takes no time ends after the starts of its moment; later inferences read it.

    On the time line of a frame k, which begins at t_k::

        t_k    updates that end by now flip the weights; inferences that end by now are collected; workers start;
               an action is chosen (of a policy with memory it is released, by the newest weights), which completes a
               transition; learners that are free begin an update
        ...    an update ends: it flips the weights, and its learner begins the next one
               an inference ends: its worker may start again, with the newest weights
        t_k+1  the environment has stepped; ...

    Between two phases no time passes, so an update that goes on when a phase ends is finished at once: an evaluation
    and a checkpoint find all learners at rest, as those of processes are.

    Args:
        learners: The L learners, which share a journal, weights and controls.
        latency: How long an update takes. Each learner has a stream of its own, which begins anew with each episode.
    """

    def __init__(self, learners: Sequence[LearnerLoop], latency: Latency) -> None:
        self._learners, self._latency = learners, latency
        self._ends: list[tuple[int, int, int]] = []  # (when an update ends, learner, how long it takes), a heap
        self._busy: set[int] = set()
        self._draws: list[Callable[[], int]] = []
        for learner in learners:
            learner.publish_first()

    def restart(self, seed: int) -> None:
        """Begin an episode, whose seed starts all latencies anew; updates go on."""
        seeds = [np.random.SeedSequence((seed, _UPDATES, number)) for number in range(len(self._learners))]
        self._draws = [self._latency.stream(each).draw for each in seeds]

    def run(self, now: int, until: int) -> None:
        """Let time pass from `now` to `until`: updates begin now and between, and end by `until`.

        None begins at `until`: the loop comes first at that time.
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
    """Add the learner's name to an error as a note."""
    try:
        yield
    except Exception as error:
        error.add_note(f"raised in learner {number}")
        raise


def call_make_learner(make_learner: Callable[..., Any], number: int, learners: int) -> Any:
    """Return a learner; the function that makes it receives its number and how many there are, if it takes them."""
    try:
        inspect.signature(make_learner).bind(number=number, learners=learners)
    except (TypeError, ValueError):
        return make_learner()
    return make_learner(number=number, learners=learners)

"""An agent that has a learner, whatever steps its environments; and a learner that updates beside them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from torch import Tensor

from async_wrappers.agents.acting.decisions import RowsPolicy
from async_wrappers.agents.learning.learner import Learner
from async_wrappers.agents.needs_and_offers import refuse
from async_wrappers.agents.play.play import Report
from async_wrappers.agents.spec import Spec
from async_wrappers.agents.timing import PartTimes


class LearningAgent:
    """Base class of agents of one and of many environments: a learner, its updates and their reports.

    Args:
        spec: Of the agent.
        learner: Whose weights the policy reads.
        number: Which of the learners of a run it is.
        learners: How many there are.

    Attributes:
        lessons: A teacher's part (`StudentsLessons`), where the agent is a student; None elsewhere.
    """

    learns = True
    policy: RowsPolicy

    def __init__(self, spec: Spec, learner: Any, number: int = 0, learners: int = 1) -> None:
        self.spec, self.learner = spec, learner
        self.times: PartTimes = getattr(learner, "times", None) or PartTimes()
        self._overlap: Overlap | None = None
        self._report: Report | None = None
        self.lessons: Any = spec.lessons(self, number, learners)

    @property
    def updates(self) -> int:
        """Updates done."""
        updates: int = self.learner.updates
        return updates

    def summary(self) -> Mapping[str, Any]:
        """Return the values that are reported beside the scalars of an update; see `Learner.summary`."""
        found: Mapping[str, Any] = getattr(self.learner, "summary", dict[str, Any])()
        return found if self.lessons is None else {**found, **self.lessons.summary()}

    def finish_update(self) -> None:
        """Wait for the end of the parallel update, if one is under way."""
        if self._overlap is not None and (scalars := self._overlap.join()) is not None:
            self.write_scalars(scalars)

    def load_policy(self, bundle: Mapping[str, Any]) -> None:
        """Load the weights alone, into the network and its target.

        Raises:
            ValueError: The bundle holds none, or they do not fit.
        """
        self.finish_update()
        if not isinstance(state := bundle.get("learner"), Mapping):
            raise ValueError(f"the state of a learner is missing: there is {', '.join(map(str, bundle)) or 'nothing'}")
        self.learner.load_policy(state)
        self.publish()

    def keep_diverged_in(self, directory: str | Path) -> None:
        """Write the batch whose loss is not finite into a run's directory, unless another one was given."""
        if getattr(self.learner, "diverged_dir", directory) is None:
            self.learner.diverged_dir = directory
        self.spec.keep_diverged_in(directory)

    def set_report(self, report: Report) -> None:
        """Send the loss to `report`."""
        self._report = report

    def overlap_learning(self) -> None:
        """Compute updates in parallel with the environment from now on, one update behind (`Overlap`).

        Raises:
            ValueError: The agent's learner is no `Learner`, whose updates another thread may compute.
        """
        own = not isinstance(self.learner, Learner)
        refuse({"an own learner": own}, {"Runner.overlap": True}, agent=self.spec.name)
        self._overlap = Overlap(self.learner)
        self._act_on(self._overlap)

    def pretrain(self) -> Mapping[str, Tensor]:
        """Do one update, even with fewer transitions than training needs to begin; see `Learner.update`."""
        scalars = self._update()
        if self._overlap is not None:
            self._overlap.publish()
        return scalars

    def _update(self) -> Mapping[str, Any]:
        before = self.learner.updates
        scalars: Mapping[str, Any] = self.learner.update()
        if self.learner.updates == before:
            raise ValueError(
                f"update() of {type(self.learner).__name__} must add 1 to its `updates`, got {before} before and after"
            )
        return scalars

    def publish(self) -> None:
        """Let the policy act on the learner's weights as they are now."""
        if self._overlap is not None:
            self._overlap.publish()
        else:
            self._act_on(self.learner)

    def _act_on(self, learner: Any) -> None:
        """Make the policy that reads a learner's weights."""
        raise NotImplementedError

    def _frames(self) -> int:
        """Return the frames of training so far."""
        raise NotImplementedError

    def write_scalars(self, scalars: Mapping[str, Tensor]) -> None:
        """Report the scalars of the last update, if its turn has come."""
        if self._report is not None and self.learner.updates % self.spec.summary_writing_frequency == 0:
            for name, value in {**scalars, **self.summary()}.items():
                self._report(name, float(value), self._frames())


class Overlap:
    """Runs one update at a time in a thread, and keeps a network with the weights of the last one that was joined.

    With an update every four decisions::

        decision          0 1 2 3     4 5 6 7     8 9 10 11     end of the episode
        main thread       start 0     join 0      join 1        join 2
                                      start 1     start 2
        learner's thread  [update 0 ] [update 1 ] [update 2 ]
        acts on weights   first       after 0     after 1       after 2

    So the weights that act are those of one update earlier than without overlap, however long each part takes. Results
    differ from those without overlap, and are the same from run to run. The main thread draws the batch at the start
    and sets its priorities at the join: no other thread touches the replay. Nothing is under way between two episodes,
    where evaluation and checkpoints fall.

    Args:
        learner: Its network, target and optimiser are the thread's while an update is under way.

    Attributes:
        network: What a policy may read at any time: the learner's `acting` part.
        acting: The same.
        updates: How many times the weights were published.
        version: The learner's updates that the network has.
    """

    def __init__(self, learner: Learner) -> None:
        self._learner = learner
        self.network = self.acting = learner.compute.place(copy.deepcopy(learner.acting)).requires_grad_(False)
        self.updates, self.version = 0, learner.updates
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="learner")
        self._update: Future[Mapping[str, Tensor]] | None = None

    @property
    def under_way(self) -> bool:
        """Whether an update was begun and not joined."""
        return self._update is not None

    def start(self) -> None:
        """Draw a batch, and begin to learn from it; the update before must have been joined."""
        self._update = self._thread.submit(self._learner.learn, self._learner.draw())

    def join(self) -> Mapping[str, Tensor] | None:
        """Wait for the update that is under way, take over its weights and return its scalars; None if none is.

        Raises:
            DivergedError: Its loss is not finite.
        """
        if self._update is None:
            return None
        update, self._update = self._update, None
        scalars = update.result()
        self._learner.finish_update()
        self.publish()
        return scalars

    def publish(self) -> None:
        """Copy the learner's weights into the network that acts."""
        self.network.load_state_dict(self._learner.weights())
        self.updates += 1
        self.version = self._learner.updates

    def weights(self) -> Mapping[str, Tensor]:
        """Return the weights that act; not a copy."""
        return self.network.state_dict()

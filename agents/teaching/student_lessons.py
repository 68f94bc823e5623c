"""A student's lessons: what its teacher adds to its acting and learning, wherever it plays.

The agent of one environment, that of many, and the actors of hosts ask them in a few places. They hold the teacher, its
replay and the phase, and nothing of how the student plays::

    phase    who acts      transitions go to        batches come from
    COLLECT  the teacher   the teacher's replay     -
    OFFLINE  nobody        -                        the teacher's replay
    ONLINE   the student   the student's replay     the student's replay, or both (`Rehearsal`)

A label is made once, with its transition: the teacher is frozen. Who acts makes it. So it may be of what only the
teacher reads, or of the frame on which the action landed, and no batch has to hold either; and on 16 environments it
costs a fifth of what it costs where each batch of DQN's is labelled when it is drawn, 17 against 86 us a decision of a
CartPole teacher, 77 against 464 of one of MinAtar. V-trace draws a decision once, where both cost the same within a
half: 11 and 8 us, 38 and 25, on 64 environments (`python -m benchmarks.studies.teacher_labels`). One environment alone
pays for its passes of one row, 214 against 86, and 838 against 464. Live, workers have no teacher, and learners label
the batches that they draw.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from async_wrappers.agents.play.learning_agent import LearningAgent
from async_wrappers.agents.play.lessons import Advice, Lesson
from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent
from async_wrappers.agents.replay.replay import Replay
from async_wrappers.agents.spaces.schema import each_array
from async_wrappers.agents.teaching.student_progress import (
    LABEL,
    Rehearsal,
    Teaching,
    TeachingPhase,
    without_teacher,
)
from async_wrappers.agents.teaching.teacher import FrozenTeacher
from async_wrappers.policy import Decision

_REPLAY = "teacher_replay"
_PRIORITIES = ("priority", "final_priority")  # of a student's own replay


class StudentsGuide:
    """The half of a teacher's part that acts: it labels decisions, and makes some of them; it travels to hosts.

    Args:
        student: The agent's spec, a `Student`.
        guides: Whether its method lets the teacher choose actions online.

    Attributes:
        guides: As given.
        teacher: Set by `set_teacher`; None in evaluation.
        shown: Whether many environments show what the teacher reads (`agents.acting.frames_read`); elsewhere it reads
            what the student reads.
    """

    def __init__(self, student: Any, guides: bool) -> None:
        self.student, self.guides = student, guides
        self.teacher: FrozenTeacher | None = None
        self.shown, self._label_at = False, "start"

    def set_teacher(self, lesson: Lesson) -> None:
        """Ask this teacher."""
        self.teacher, self.shown, self._label_at = lesson.teacher, not lesson.reads_alike, lesson.label_at

    def advise(self, decisions: Sequence[Decision], numbers: Sequence[int], view: Callable[[], Any]) -> Advice:
        """Return what the teacher says of R decisions, when they are made.

        Args:
            decisions: R of them.
            numbers: The number of each in its episode, from 0.
            view: Returns what the teacher reads of the observations from which they start, [R, k, *shape].
        """
        labels = self.student.stores_labels and self._label_at == "start"
        guided = self._guided(decisions, numbers)
        if not labels and guided is None:
            return Advice()
        assert self.teacher is not None
        values = self.teacher.values(view())
        extras = {LABEL: values} if labels else {}
        if guided is None:
            return Advice(extras)
        return Advice(extras, guided, self.student.first_action + values.argmax(axis=1))

    def _guided(self, decisions: Sequence[Decision], numbers: Sequence[int]) -> npt.NDArray[np.bool_] | None:
        """Return of which decisions the teacher chooses the action; None for none."""
        if self.student.teaching.phase is TeachingPhase.COLLECT:
            return np.ones(len(decisions), bool)
        if not self.guides:
            return None  # without a look at each decision
        each = [self.student.guided(decision, number) for decision, number in zip(decisions, numbers, strict=True)]
        return np.array(each, bool) if any(each) else None

    def on_landing(self, view: Callable[[], Any]) -> Mapping[str, npt.NDArray[Any]]:
        """Return what the transitions of R decisions carry beside that, once their actions have landed.

        Args:
            view: Returns what the teacher reads of the frames on which they landed, [R, k, *shape].
        """
        if not self.student.stores_labels or self._label_at == "start":
            return {}
        assert self.teacher is not None
        return {LABEL: self.teacher.values(view())}

    def apart(self) -> StudentsGuide:
        """Return a copy whose progress is its own, for a host."""
        other = copy.copy(self)
        student: Any = self.student
        other.student = student.with_settings(teaching=copy.copy(student.teaching))
        return other

    def progress(self) -> Mapping[str, Any]:
        """Return the student's progress, for `follow`, and for learners in other processes."""
        return dict(vars(self.student.teaching))

    def follow(self, progress: Mapping[str, Any]) -> None:
        """Take over the progress of the learner."""
        vars(self.student.teaching).update(progress)

    @staticmethod
    def part(shown: Mapping[str, Any], name: str) -> Any:
        """Return a part that the teacher reads of what is shown, [R, k, *shape]."""
        if name not in shown:
            raise ValueError(
                "an environment of a student must show the teacher's observations: put a TeacherView into it "
                "(async_wrappers.agents.teaching.teacher_view)"
            )
        return shown[name]


class StudentsLessons:
    """A teacher's part in an agent that learns; an agent without a teacher has none.

    Args:
        student: The agent's spec, a `Student`.
        agent: Whose learner is taught.
        number: Which of several learners it is.
        learners: How many there are.
        guides: As in `StudentsGuide`.

    Attributes:
        guide: The half that acts.
        teacher_replay: The teacher's transitions; None where no later phase needs them.
    """

    def __init__(
        self, student: Any, agent: LearningAgent, number: int = 0, learners: int = 1, *, guides: bool = False
    ) -> None:
        self.student, self._agent, self._learner = student, agent, agent.learner
        self._number, self._learners = number, learners
        self.guide = StudentsGuide(student, guides)
        self.teacher_replay: Replay | None = None
        self._lanes = 1
        self._learner.keeps_batch = True
        self._set_learning_rate()

    @property
    def teaching(self) -> Teaching:
        """The student's progress."""
        teaching: Teaching = self.student.teaching
        return teaching

    @property
    def collects(self) -> bool:
        """Whether the teacher plays, and nothing is learnt."""
        return self.teaching.phase is TeachingPhase.COLLECT

    @property
    def labels_alone(self) -> bool:
        """Whether all that the teacher gives are labels: it neither acts nor leaves its own state."""
        return bool(self.student.labelled) and not self.guide.guides

    @property
    def changes(self) -> bool:
        """Whether the weight of its term in the loss may change."""
        return bool(self.student.follows_score or self.student.decay_period >= 0)

    def maker_of_learners(self, spec: Any, make_learner: Callable[..., Any]) -> Callable[..., Any]:
        """Return a factory of learners that make labels when they draw a batch, for other processes too.

        Args:
            spec: Of the student, of which `make_learner` makes learners.
            make_learner: Makes one. Those that are made are also told of the student's progress, by ``tell(progress)``.
        """
        teacher = self.guide.teacher
        assert teacher is not None
        return partial(_draws_labels, make_learner, teacher, spec)

    # The phases.

    def set_teacher(self, lesson: Lesson, lanes: int = 1) -> None:
        """Learn from this teacher, which collects in a number of environments."""
        self.guide.set_teacher(lesson)
        self._lanes = lanes if lesson.collects else 1
        self.teacher_replay = self._new_replay() if lesson.keeps_replay else None

    def _new_replay(self) -> Replay:
        replay: Replay = self.student.make_teacher_replay(self._lanes, self._number, self._learners)
        return replay

    def begin_phase(self, phase: TeachingPhase, last: bool = False) -> None:
        """Begin a phase, which lasts until the next call.

        Args:
            phase: The phase.
            last: Whether no later one needs the teacher's replay.
        """
        self._agent.finish_update()
        self._learner.finish_update()
        if self.teaching.phase is TeachingPhase.OFFLINE and phase is TeachingPhase.ONLINE:
            self.student.begin_online(self._learner)
            self._agent.publish()
        self.teaching.phase = phase
        self._set_learning_rate()
        if last:
            self.teacher_replay = None
        self._learner.source = self._source(phase)

    def _source(self, phase: TeachingPhase) -> Any:
        if phase is TeachingPhase.OFFLINE:
            if self.teacher_replay is None or not len(self.teacher_replay):
                raise ValueError(
                    "an offline phase needs the teacher's replay, which is empty: collect transitions first"
                )
            return self.teacher_replay
        ratio = self.student.teacher_data_ratio
        if ratio and self.teacher_replay is not None:
            seed = self.student.rehearsal_seed(self._number)
            return Rehearsal(self._learner.replay, self.teacher_replay, ratio, self.teaching, seed)
        return self._learner.replay

    def record_score(self, normalized_score: float) -> None:
        """Let lambda, and with it the learning rate, follow the score of an iteration."""
        self.student.record_score(normalized_score)
        self._set_learning_rate()

    def _set_learning_rate(self) -> None:
        if (rate := self.student.learning_rate()) is not None:
            self._learner.set_learning_rate(rate)

    def learn_offline(self) -> None:
        """Do one update on the teacher's replay."""
        self._agent.write_scalars(self._agent.pretrain())

    def take_over(self, demonstrations: Any) -> int:
        """Store the episodes of the teacher's own replay; return how many transitions they have."""
        assert self.teacher_replay is not None
        for demonstration in demonstrations:
            for transition, label in demonstration.transitions():
                extras = {"extras": {LABEL: label}} if self.student.stores_labels else {}
                self.teacher_replay.observe({**transition, **extras})
        return len(self.teacher_replay)

    def begin_as(self, state: Mapping[str, Any], *, optimizer: bool) -> None:
        """Load the state of another agent's learner, from its checkpoint.

        Args:
            state: What its `bundle_and_checkpoint` returned.
            optimizer: Whether its optimiser's moments are loaded too.

        Raises:
            ValueError: It has another network.
        """
        own = self._learner.state_dict()
        kept = {"kind": own["kind"], **({} if optimizer else {"optimizer": own["optimizer"]})}
        self._learner.load_state_dict({**state["learner"], **kept})
        if isinstance(self._agent, TurnBasedAgent):
            self._agent.training_steps = state.get("training_steps", 0)
        self._agent.publish()

    def remember(self, transition: Mapping[str, Any]) -> None:
        """Store a transition of the teacher's in the student's own replay."""
        self._learner.observe(transition)

    @property
    def optimizer_name(self) -> str:
        """Name of the class of the student's optimiser."""
        name: str = self._learner.optimizer_name
        return name

    def check(self) -> None:
        """Refuse to play in training without a teacher, with a ValueError."""
        if self.guide.teacher is None:
            raise ValueError(without_teacher(self.student.name))

    # Where transitions go.

    def observe(self, transition: Mapping[str, Any]) -> None:
        """Take a transition of the only environment."""
        if not self.collects:
            self._learner.observe(transition)
            return
        assert self.teacher_replay is not None
        self.teacher_replay.observe({**transition, "action": transition["action"] - self.student.first_action})

    def extend(self, block: Mapping[str, Any]) -> None:
        """Take transitions of many environments; see `async_wrappers.agents.play.actor.Receiver`."""
        if not self.collects:
            self._learner.extend(block)
            return
        assert self.teacher_replay is not None
        columns = {name: each for name, each in block.items() if name not in _PRIORITIES}
        self.teacher_replay.extend({**columns, "action": block["action"] - self.student.first_action})

    def cut(self, observation: Any, env_id: int) -> None:
        """Take the last observation of an episode that ended without a further transition."""
        if not self.collects:
            self._learner.cut(observation, env_id)
        elif self.teacher_replay is not None:
            self.teacher_replay.cut(observation, env_id)

    def end_running(self, env_ids: npt.NDArray[np.int64] | None = None) -> None:
        """End the running episodes, of all environments or of some, whose continuation is not known."""
        if self.collects and self.teacher_replay is not None:
            self.teacher_replay.end_running(env_ids)

    def note_decisions(self, number: int) -> None:
        """Count decisions of training that are about to be made, those of a teacher that collects left out."""
        self.teaching.online_steps += number

    # What is told.

    def summary(self) -> dict[str, float]:
        """Return statistics of the student's values of the last batch, on the weights after its update.

        Returns:
            "AverageQ" and "MaxQ", over rows and actions; "ActionGap", the best action's value less the next best one's,
            and "QMinusTeacherQ", a mean too; and "TeacherReplaySize", transitions. Empty of an agent without values.
        """
        found: dict[str, float] = {}
        if self.teacher_replay is not None:
            found["TeacherReplaySize"] = len(self.teacher_replay)
        if self._learner.batch is None:
            return found
        with torch.no_grad():
            values = self.student.values_of(self._learner.networks, self._learner.batch)
            if values is None:
                return found
            q, labels = values[0].float(), values[1]
            if q.shape[-1] > 1:
                best = q.topk(2, dim=-1).values
                found["ActionGap"] = float((best[..., 0] - best[..., 1]).mean())
            if labels is not None:
                found["QMinusTeacherQ"] = float((q - labels).mean())
            return {**found, "AverageQ": float(q.mean()), "MaxQ": float(q.max())}

    # Checkpoints.

    @property
    def _directory(self) -> str:
        return f"{_REPLAY}_{self._number}" if self._number else _REPLAY

    def save(self, directory: Path, number: int) -> dict[str, Any]:
        """Write the teacher's replay, and return the entries of a checkpoint."""
        if self.teacher_replay is not None:
            self.teacher_replay.save(directory / self._directory, number)
        teaching = {**vars(self.teaching), "phase": self.teaching.phase.value}
        return {"teaching": teaching, "teacher_replay": self.teacher_replay is not None}

    def load(self, directory: Path, number: int, bundle: Mapping[str, Any]) -> None:
        """Restore what `save` wrote and returned."""
        self.teacher_replay = None
        if bundle["teacher_replay"]:
            replay = self._new_replay()
            replay.load(directory / self._directory, number)
            self.teacher_replay = replay
        state = bundle["teaching"]
        vars(self.teaching).update({**state, "phase": TeachingPhase(state["phase"])})
        self._set_learning_rate()

    def forget(self, directory: Path, keep: set[int]) -> None:
        """Delete the files under other numbers than those in `keep`."""
        for number in range(self._learners):
            place = directory / (f"{_REPLAY}_{number}" if number else _REPLAY)
            if place.is_dir():
                self._learner.forget_replays(place, keep)


def _draws_labels(
    make_learner: Callable[..., Any], teacher: FrozenTeacher, student: Any, *which: Any, **named: Any
) -> Any:
    """Make a learner of a student that labels the batches that it draws, and can be told of the student's progress."""
    learner = make_learner(*which, **named)
    learner.tensors = partial(with_labels, learner.tensors, teacher)
    learner.tell = partial(_follow, learner, student)
    learner.tell({})
    return learner


def _follow(learner: Any, student: Any, progress: Mapping[str, Any]) -> None:
    """Take over the student's progress, and the learning rate that belongs to it."""
    vars(student.teaching).update(progress)
    if (rate := student.learning_rate()) is not None:
        learner.set_learning_rate(rate)


def with_labels(tensors: Callable[[Mapping[str, Any]], Any], teacher: FrozenTeacher, arrays: Mapping[str, Any]) -> Any:
    """Return a batch as tensors, with the teacher's values [..., A] of the observations from which decisions started.

    Those of sequences are of single observations, without the row after the last one.
    """
    seen = arrays["observation"]
    if "first" in arrays:
        rows = arrays["mask"].shape
        seen = each_array(lambda array: array[:-1].reshape(-1, 1, *array.shape[2:]), seen)
        labels = teacher.values(seen).reshape(*rows, -1)
    else:
        labels = teacher.values(seen)
    return tensors({**arrays, "extras": {**arrays.get("extras", {}), LABEL: labels}})

"""Students: agents that learn from a teacher, in three phases (`async_wrappers.agents.teaching.lessons`).

A decision's *label* is the teacher's Q-values [A] of one observation. It is computed once, when the transition is made,
and kept as an extra: a frozen teacher's values do not change. So a loss needs no teacher, and the teacher may read
other observations than its student. Only live they are made when a batch is drawn.

Under delay a decision that starts on frame s takes effect on frame e. A label at the *start* is of the observation o_s,
which the student reads too. A label at the *effect* is of o_e, which the student cannot know yet: a teacher without
delay would act on it, on the frame on which the student's action lands. A decision without an effect has no label and
no transition.

The weight of the teacher's term, lambda, is constant within an iteration, and falls with the student's score.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Protocol

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from async_wrappers.agents.acting.decisions import DecisionRandom
from async_wrappers.agents.learning.learner import Learner
from async_wrappers.agents.learning.making import make_replay
from async_wrappers.agents.losses.loss import Batch, Loss, LossOutput, Networks
from async_wrappers.agents.losses.teaching import clipped_weight
from async_wrappers.agents.play.learning_agent import LearningAgent
from async_wrappers.agents.replay.replay import Replay
from async_wrappers.agents.settings import choice, must, settings
from async_wrappers.agents.spaces.schema import each_array
from async_wrappers.agents.spec import Spec, own_seed
from async_wrappers.policy import Decision

LABEL = "teacher_values"  # the extra that holds a transition's label
VIEW = "teacher_observation"  # where an info holds the stack that the teacher reads


class Teaches(Protocol):
    """The members of a teacher that a student uses (`teacher.Teacher`)."""

    source: str
    """In messages, where the teacher comes from."""

    def values(self, stacks: Any) -> npt.NDArray[np.float32]:
        """Return the Q-values [R, A] of stacks of the teacher's observations [R, k, *shape]."""

    @property
    def optimizer_name(self) -> str:
        """Name of its optimiser's class."""

    def state(self) -> dict[str, Any]:
        """Return its agent's checkpoint: weights, target, optimiser and counts."""

    def demonstrations(self) -> Iterator[Any]:
        """Yield the episodes of its replay, oldest first, as `teacher.TeachersDemonstration`."""


class TeachingPhase(Enum):
    """The kind of a student's iteration."""

    COLLECT = "collect"
    OFFLINE = "offline"
    ONLINE = "online"


@dataclass
class Teaching:
    """A student's progress with its teacher: all that a loss reads beside its batch.

    Attributes:
        phase: The kind of the iteration.
        weight: lambda of the teacher's term, in [0, 1].
        online_steps: Decisions of the online phase.
        rehearsed: Batches of which a part was drawn from the teacher's replay.
        horizon: The longest roll-in of an episode, where there is one.
    """

    phase: TeachingPhase = TeachingPhase.ONLINE
    weight: float = 1.0
    online_steps: int = 0
    rehearsed: int = 0
    horizon: int = 0

    def record_score(self, normalized_score: float, decay_period: int) -> None:
        """Let lambda follow the score of an online iteration; once 0 it stays 0.

        Args:
            normalized_score: 0 is random play, 1 the teacher's.
            decay_period: Decisions of the online phase after which lambda is 0; negative for no such end.
        """
        if self.phase is not TeachingPhase.ONLINE or self.weight <= 0:
            return
        over = 0 <= decay_period <= self.online_steps
        self.weight = 0.0 if over else clipped_weight(normalized_score)


def with_teacher(
    loss: Loss, term: Loss, weight: Callable[[], float], own_weight: Callable[[], float] = lambda: 1.0
) -> Loss:
    """Return a learner's loss with a teacher's term: own weight * loss + lambda * term, for any learner.

    The priorities are those of the loss. Where both call a network on the same inputs it is computed once.

    Args:
        loss: The learner's.
        term: The teacher's; its metrics are reported too.
        weight: Returns lambda, at each batch; at 0 the term is not computed.
        own_weight: Returns the weight of the learner's loss while the term is computed.
    """

    def both(networks: Networks, batch: Batch, rng: np.random.Generator) -> LossOutput:
        amount = weight()
        if not amount:
            return loss(networks, batch, rng)
        shared = networks._replace(online=_Once(networks.online))
        learnt, taught = loss(shared, batch, rng), term(shared, batch, rng)
        metrics = {"StudentLoss": learnt.loss.mean(), "TeacherLoss": taught.loss.mean()}
        return LossOutput(
            own_weight() * learnt.loss + amount * taught.loss,
            learnt.priority,
            {**learnt.metrics, **taught.metrics, **metrics},
            learnt.mean_over,
        )

    return both


class _Once:
    """A network that is called once for the same tensors, or the same rows of the same tensors."""

    def __init__(self, network: Callable[..., Tensor]) -> None:
        self._network = network
        self._known: dict[tuple[Any, ...], tuple[tuple[Any, ...], Tensor]] = {}

    def __call__(self, *inputs: Any) -> Tensor:
        key = (torch.is_grad_enabled(), *map(_same, inputs))
        if key not in self._known:
            self._known[key] = inputs, self._network(*inputs)  # the inputs stay alive, and nothing else lies there
        return self._known[key][1]


def _same(value: Any) -> Any:
    """Return a key that is equal for the same input: where a tensor's numbers lie, or the object's identity."""
    if isinstance(value, Tensor):
        return value.data_ptr(), value.dtype, value.shape, value.stride()
    if isinstance(value, Mapping):
        return tuple((name, _same(each)) for name, each in value.items())
    return id(value)


class Rehearsal:
    """A source of the student's batches, in which each row is replaced by one of the teacher's with a probability.

    Rows that were drawn uniformly have weight 1 and no priority beside rows that were drawn by priority.

    Args:
        student: The student's replay.
        teacher: The teacher's.
        ratio: The probability, in [0, 1].
        teaching: Counts the batches.
        seed: Of the choice of the rows.
    """

    def __init__(self, student: Replay, teacher: Replay, ratio: float, teaching: Teaching, seed: int) -> None:
        """See the class."""
        self._student, self._teacher, self._ratio, self._teaching = student, teacher, ratio, teaching
        self._random = DecisionRandom(seed)
        self._of_student = self._of_teacher = False  # whose rows of the last batch were drawn by priority

    def sample(self) -> dict[str, Any]:
        """Return a batch of both; a row of the teacher's has the index -1, or -1 - i where it has a priority."""
        own = self._student.sample()
        rows = len(own["action"])
        others = self._teacher.sample(rows)
        self._of_student, self._of_teacher = "weight" in own, "weight" in others
        drawn = self._random.draw(0, self._teaching.rehearsed, eval_mode=False).random(rows)
        self._teaching.rehearsed += 1
        of_teacher = drawn < self._ratio
        without = {"weight": np.ones(rows, np.float32), "probability": np.ones(rows)}
        index = -1 - others["index"] if self._of_teacher else np.full(rows, -1)
        names = dict.fromkeys([*own, *without]) if self._of_teacher else own
        mine, theirs = {**without, **own}, {**without, **others, "index": index}
        return {name: _where(of_teacher, theirs[name], mine[name]) for name in names}

    def transitions(self, slots: npt.NDArray[np.int64], update_horizon: int | None = None) -> dict[str, Any]:
        """Return the number of the student's transitions."""
        return self._student.transitions(slots, update_horizon)

    def set_priorities(self, index: npt.ArrayLike, priority: npt.ArrayLike) -> None:
        """Set the priorities of the replays that draw by priority."""
        indexes, priorities = np.asarray(index), np.asarray(priority)
        own = indexes >= 0
        if self._of_student:
            self._student.set_priorities(indexes[own], priorities[own])
        if self._of_teacher:
            self._teacher.set_priorities(-1 - indexes[~own], priorities[~own])


def _where(chosen: npt.NDArray[np.bool_], one: Any, other: Any) -> Any:
    """Return the rows of `one` where they are chosen, and of `other` where not, of arrays or dicts of arrays."""

    def of_arrays(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> npt.NDArray[Any]:
        mask = chosen.reshape(-1, *[1] * (second.ndim - 1))
        return np.where(mask, first, second).astype(second.dtype, copy=False)

    return each_array(of_arrays, one, other)


@settings
class Student(Spec):
    """Makes an agent of values a student: a base to stand before the agent's, as in ``class Mine(Student, DQN)``.

    A subclass writes `teacher_term`, and sets with `decay_period` when its weight ends; or it overrides other methods,
    such as `guided`.

    Attributes:
        run_records: Names of the records that gin binds for its runs.
        labelled: Whether it learns from the teacher's values.
        teaching: The student's progress, which its lessons update.
        follows_score: Whether the weight of the teacher's term follows the student's score.
        decides_learning_rate: Why the student's learning rate is not the optimiser's, and the remedy where its decay is
            bound; None where it is.
        decay_period: Decisions of the online phase after which lambda is 0; negative for no such end.
        teacher_data_ratio: Share of an online batch that is drawn from the teacher's replay.
        reloads_replay: Whether the student's replay begins as that of its teacher.
    """

    run_records: ClassVar[tuple[str, ...]] = ("RunnerWithTeacher",)
    labelled: ClassVar[bool] = True
    follows_score: bool = True
    decides_learning_rate: ClassVar[str | None] = None
    decay_period: int = -1
    teacher_data_ratio: float = 0.0
    reloads_replay: bool = False

    teacher_replay_scheme: str = choice("uniform", "How the teacher's replay is drawn from.", "uniform", "prioritized")

    # The agent's own base class, for the type checker.
    num_actions: int
    first_action: int
    name: ClassVar[str]
    replay_seed: int

    def settle(self) -> None:
        """See `NetworkAgent`."""
        super().settle()  # type: ignore[misc]
        self.check_replays()
        must(
            self.decides_learning_rate is None or self.learning_rate_decay is None,  # type: ignore[attr-defined]
            f"learning_rate_decay must be None with agent {self.name!r}, {self.decides_learning_rate}",
        )
        self.teaching = Teaching()

    @property
    def extras(self) -> gym.spaces.Dict | None:  # type: ignore[override]
        """The extras of a transition: those of the agent's own policy, and the label."""
        own: gym.spaces.Dict | None = super().extras
        if not self.stores_labels:
            return own
        label = gym.spaces.Box(-np.inf, np.inf, (self.num_actions,), np.float32)
        return gym.spaces.Dict({**({} if own is None else own.spaces), LABEL: label})

    @property
    def stores_labels(self) -> bool:
        """Whether a transition carries its label."""
        return self.labelled and not self.draws_labels

    def lessons(self, agent: LearningAgent, number: int = 0, learners: int = 1) -> Any:
        """Make the lessons of an agent of this spec; see `Spec.lessons`."""
        from async_wrappers.agents.teaching.lessons import StudentsLessons

        return StudentsLessons(self, agent, number, learners)

    def check_replays(self) -> None:
        """Refuse a replay that the agent can have alone, but not as a student."""
        if self.replay_eviction != "oldest":  # type: ignore[attr-defined]
            raise ValueError(f"replay_eviction must be 'oldest' with agent {self.name!r}, got 'reservoir'")
        if self.one_step_loss:  # type: ignore[attr-defined]
            raise ValueError(f"one_step_loss must be False with agent {self.name!r}, which has two replays, got True")

    def check_phases(self, *, teacher_steps: int, offline: int) -> None:
        """Refuse phases that the agent cannot use; this class accepts all.

        Args:
            teacher_steps: Frames that the teacher plays to collect.
            offline: Iterations of offline updates.
        """

    def loss(self, networks: Networks, batch: Batch, rng: np.random.Generator) -> LossOutput:
        """Return the agent's own loss, with the teacher's term while its weight is above 0."""
        own: Loss = super().loss  # type: ignore[misc]
        return with_teacher(own, self.teacher_term, self.teacher_weight, self.own_weight)(networks, batch, rng)

    def teacher_term(self, networks: Networks, batch: Batch, rng: np.random.Generator) -> LossOutput:
        """Return the teacher's term."""
        raise NotImplementedError

    def values_of(self, networks: Networks, batch: Batch) -> tuple[Tensor, Tensor | None] | None:
        """Return the student's values [N, A] of a batch and the teacher's, where there are any; None without values."""
        rng = np.random.default_rng(0)  # for agents whose values are drawn, without moving the learner's generator
        q: Tensor = self.values(networks.online, batch["observation"], rng)  # type: ignore[attr-defined]
        return q, batch["extras"][LABEL] if self.labelled else None

    def teacher_weight(self) -> float:
        """Return the weight of the teacher's term: lambda."""
        return self.teaching.weight

    def own_weight(self) -> float:
        """Return the weight of the agent's own loss while there is a teacher's term."""
        return 1.0

    def record_score(self, normalized_score: float) -> None:
        """Let lambda follow the score of an iteration."""
        self.teaching.record_score(normalized_score, self.decay_period)

    def guided(self, decision: Decision, number: int) -> bool:
        """Whether the teacher chooses the action of a decision of the online phase, number 0, 1 .. of its episode."""
        return False

    def reload(self, lessons: Any, teacher: Teaches) -> None:
        """Load the teacher's state into a new student, by its lessons (`StudentsLessons`); here do nothing."""

    def learning_rate(self) -> float | None:
        """Return the rate of the present lambda; None where it is the optimiser's own."""
        return None

    def begin_online(self, learner: Learner) -> None:
        """Change from offline updates to play: copy the weights to the target network."""
        learner.synchronize_target()

    def rehearsal_seed(self, number: int = 0) -> int:
        """Return the seed of the choice of a batch's rows that are the teacher's, for learner `number`."""
        return own_seed(seed_of(self.replay_seed, 2), number)

    def make_teacher_replay(self, lanes: int = 1, number: int = 0, learners: int = 1) -> Replay:
        """Make the replay of the teacher's transitions.

        Args:
            lanes: Environments in which it collects.
            number: Which of several learners has it.
            learners: How many there are.
        """
        share = {} if learners == 1 else self.share_of(learners)  # type: ignore[attr-defined]
        settings = {**share, "replay_scheme": self.teacher_replay_scheme, "actor_priorities": False}
        one: Any = self.with_settings(**settings)  # type: ignore[attr-defined]
        return make_replay(one, own_seed(seed_of(self.replay_seed, 1), number), lanes)

    def check_alone(self) -> None:
        """Refuse to learn without a teacher."""
        raise ValueError(without_teacher(self.name))


def seed_of(seed: int, number: int) -> int:
    """Return seed `number` of those that a student has besides its agent's."""
    # A last 0 would give the same seed as without it, and `own_seed` gives that to the agent's learners.
    return int(np.random.SeedSequence((seed, number, 1)).generate_state(1)[0])


def without_teacher(name: str) -> str:
    """Return the message that refuses a student without a teacher."""
    return (
        f"agent {name!r} learns from a teacher, in phases: bind create_runner.schedule = 'reincarnation' (or 'vector', "
        "'hosts', 'realtime'), and RunnerWithTeacher.teacher_checkpoint_dir"
    )

"""Students: agents that learn from a teacher, in three phases (`async_wrappers.agents.teaching.student_lessons`).

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

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from async_wrappers.agents.hyperparameters import choice, settings
from async_wrappers.agents.learning.learner import Learner
from async_wrappers.agents.learning.making import make_replay
from async_wrappers.agents.losses.loss import Batch, Loss, LossOutput, Networks
from async_wrappers.agents.play.learning_agent import LearningAgent
from async_wrappers.agents.replay.replay import Replay
from async_wrappers.agents.spec import Spec, own_seed
from async_wrappers.agents.teaching.student_lessons import StudentsLessons
from async_wrappers.agents.teaching.student_progress import LABEL, Teaching, without_teacher
from async_wrappers.agents.teaching.teacher import Teacher
from async_wrappers.policy import Decision

OF_LAMBDA = "bind create_linear_schedule.initial_lr and final_lr"  # where the learning rate follows lambda


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
        host = networks.host
        if not host.whether(lambda: bool(weight())):
            return loss(networks, batch, rng)
        amount, own = host.now(weight), host.now(own_weight)
        shared = networks._replace(online=_Once(networks.online))
        learnt, taught = loss(shared, batch, rng), term(shared, batch, rng)
        metrics = {"StudentLoss": learnt.loss.mean(), "TeacherLoss": taught.loss.mean()}
        return LossOutput(
            own * learnt.loss + amount * taught.loss,
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
        decay_period: Decisions of the online phase after which lambda is 0; negative for no such end.
        teacher_data_ratio: Share of an online batch that is drawn from the teacher's replay.
        reloads_replay: Whether the student's replay begins as that of its teacher.
    """

    run_records: ClassVar[tuple[str, ...]] = ("RunnerWithTeacher",)
    labelled: ClassVar[bool] = True
    follows_score: bool = True
    lacks: ClassVar[Mapping[str, str]] = dict.fromkeys(("replay_eviction", "one_step_loss"), "which has two replays")
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
        super().settle()  # type: ignore[misc]
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
        return StudentsLessons(self, agent, number, learners, guides=type(self).guided is not Student.guided)

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

    def reload(self, lessons: Any, teacher: Teacher) -> None:
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

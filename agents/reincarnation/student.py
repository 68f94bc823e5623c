"""Students: agents that learn from a teacher in three phases, and what each phase learns from.

    phase    who acts      transitions go to        batches come from
    COLLECT  the teacher   the teacher's replay     -
    OFFLINE  nobody        -                        the teacher's replay
    ONLINE   the student   the student's replay     the student's replay, or a mixture of both

What the teacher says of a decision is its *label*, its Q-values [A] of the observation that the decision is about. A
label is made once, when the transition is stored, and lies beside it as an extra: a frozen teacher would say the same
again. So a loss needs no teacher, and the teacher may read other observations than its student.

The weight of the teacher's term, lambda, is constant within an iteration, and falls with the student's score.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import gin
import gymnasium as gym
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from async_wrappers.agents.learner import Batch, Learner, Loss, LossOutput, Networks
from async_wrappers.agents.losses.teaching import clipped_weight
from async_wrappers.agents.policy import Decision, Outcome
from async_wrappers.agents.replay.replay import Replay, create_replay
from async_wrappers.agents.spec import check_at_least, check_numbers
from async_wrappers.agents.turn_based import TurnBasedAgent

if TYPE_CHECKING:
    from async_wrappers.agents.reincarnation.teacher import Teacher

__all__ = [
    "LABEL",
    "Phase",
    "ReincarnatedAgent",
    "Student",
    "Teaching",
    "check_positive",
    "create_linear_schedule",
    "only_in_turn",
    "with_teacher",
]

LABEL = "teacher_values"  # the extra that holds a transition's label
VIEW = "teacher_observation"


class Phase(Enum):
    """What a student does in an iteration."""

    COLLECT = "collect"
    OFFLINE = "offline"
    ONLINE = "online"


@gin.configurable(module="agents")
def create_linear_schedule(weight: float, initial_lr: float = 1e-4, final_lr: float = 1e-5) -> float:
    """Return the learning rate lambda * initial_lr + (1 - lambda) * final_lr.

    Args:
        weight: lambda, the weight of the teacher's term, in [0, 1].
        initial_lr: The rate at lambda = 1, as in the offline phase.
        final_lr: The rate at lambda = 0.

    Raises:
        ValueError: A rate is negative, or lambda lies outside [0, 1].
    """
    if not 0 <= weight <= 1:
        raise ValueError(f"lambda must lie in [0, 1], got {weight}")
    for name, rate in (("initial_lr", initial_lr), ("final_lr", final_lr)):
        if not isinstance(rate, int | float) or isinstance(rate, bool) or not 0 <= rate < float("inf"):
            raise ValueError(f"create_linear_schedule.{name} must be a finite number >= 0, got {rate!r}")
    return weight * initial_lr + (1 - weight) * final_lr


@dataclass
class Teaching:
    """How far a student has come with its teacher: all that a loss need know beside its batch.

    Attributes:
        phase: What the iteration does.
        weight: lambda of the teacher's term, in [0, 1].
        online_steps: Decisions of the online phase.
    """

    phase: Phase = Phase.ONLINE
    weight: float = 1.0
    online_steps: int = 0

    def record_score(self, normalized_score: float, decay_period: int) -> None:
        """Let lambda follow the score of an online iteration; once 0 it stays 0.

        Args:
            normalized_score: 0 is random play, 1 the teacher's.
            decay_period: Decisions of the online phase after which lambda is 0; negative for no such end.
        """
        if self.phase is not Phase.ONLINE or self.weight <= 0:
            return
        over = 0 <= decay_period <= self.online_steps
        self.weight = 0.0 if over else clipped_weight(normalized_score)


def with_teacher(loss: Loss, term: Loss, weight: Callable[[], float]) -> Loss:
    """Return a learner's loss with a teacher's term: loss + lambda * term, for any learner.

    The priorities are those of the loss. Where both call a network on the same inputs it is computed once.

    Args:
        loss: The learner's.
        term: The teacher's; its metrics are reported too.
        weight: Returns lambda, at each batch; at 0 the term is not computed.
    """

    def both(networks: Networks, batch: Batch, rng: np.random.Generator) -> LossOutput:
        amount = weight()
        if not amount:
            return loss(networks, batch, rng)
        shared = Networks(_Once(networks.online), networks.target)
        learnt, taught = loss(shared, batch, rng), term(shared, batch, rng)
        metrics = {"StudentLoss": learnt.loss.mean(), "TeacherLoss": taught.loss.mean()}
        return LossOutput(
            learnt.loss + amount * taught.loss, learnt.priority, {**learnt.metrics, **taught.metrics, **metrics}
        )

    return both


class _Once:
    """A network that is called once for the same tensors."""

    def __init__(self, network: Callable[..., Tensor]) -> None:
        self._network = network
        self._known: dict[tuple[Any, ...], tuple[tuple[Any, ...], Tensor]] = {}

    def __call__(self, *inputs: Any) -> Tensor:
        key = (torch.is_grad_enabled(), *(id(each) for each in inputs))
        if key not in self._known:
            self._known[key] = inputs, self._network(*inputs)  # the inputs stay alive, and with them their ids
        return self._known[key][1]


class Student:
    """Makes an agent of values a student: a base to stand before the agent's, as in ``class Mine(Student, DQN)``.

    A subclass gives `teacher_term`, and says with `decay_period` when its weight ends.

    Attributes:
        labelled: Whether transitions carry the teacher's values.
        teaching: How far the student has come, which `ReincarnatedAgent` brings up to date.
        decay_period: Decisions of the online phase after which lambda is 0; negative for no such end.
        teacher_data_ratio: Share of an online batch that is drawn from the teacher's replay.
    """

    labelled: ClassVar[bool] = True
    decay_period: int = -1
    teacher_data_ratio: float = 0.0
    # What the agent's own base is, for the type checker.
    num_actions: int
    name: ClassVar[str]
    _replay: dict[str, Any]
    _replay_capacity: int
    _replay_seed: int
    _learning: dict[str, Any]

    def __init__(
        self, observation_space: gym.Space[Any], action_space: gym.Space[Any], *, decay_period: int = -1, **shared: Any
    ) -> None:
        """See the class."""
        super().__init__(observation_space, action_space, **shared)  # type: ignore[call-arg]
        check_at_least("decay_period", decay_period, -1, "decisions")
        if self._replay["eviction"] != "oldest":
            raise ValueError(f"replay_eviction must be 'oldest' with agent {self.name!r}, got 'reservoir'")
        if self._learning["one_step_loss"]:
            raise ValueError(f"one_step_loss must be False with agent {self.name!r}, which has two replays, got True")
        self.decay_period = decay_period
        self.teaching = Teaching()
        if self.labelled:
            label = gym.spaces.Box(-np.inf, np.inf, (self.num_actions,), np.float32)
            self.extras = gym.spaces.Dict({LABEL: label})

    def loss(self, networks: Networks, batch: Batch, rng: np.random.Generator) -> LossOutput:
        """Return the agent's own loss, with the teacher's term while its weight is above 0."""
        own: Loss = super().loss  # type: ignore[misc]
        return with_teacher(own, self.teacher_term, lambda: self.teaching.weight)(networks, batch, rng)

    def teacher_term(self, networks: Networks, batch: Batch, rng: np.random.Generator) -> LossOutput:
        """Return the teacher's term, whose weight is lambda."""
        raise NotImplementedError

    def learning_rate(self) -> float | None:
        """Return the rate of the present lambda; None where it is the optimiser's own."""
        return None

    def begin_online(self, learner: Learner) -> None:
        """Go from offline updates to play: the target network begins with the weights as they are."""
        learner.synchronize_target()

    def make_teacher_replay(self) -> Replay:
        """Make the replay of what the teacher does, drawn from uniformly."""
        uniform = {"selector": "uniform", "priority_exponent": None, "importance_exponent": None}
        settings = {name: value for name, value in {**self._replay, **uniform}.items() if value is not None}
        return create_replay(
            self.observation_space,  # type: ignore[attr-defined]
            capacity=self._replay_capacity,
            seed=int(np.random.SeedSequence((self._replay_seed, 1)).generate_state(1)[0]),
            extras=self.extras if self.labelled else None,
            **settings,
        )

    def make_vector_learner(self, num_envs: int) -> Any:
        """Refuse: labels are made in turn.

        Raises:
            ValueError: Always.
        """
        raise ValueError(only_in_turn(self.name))


class ReincarnatedAgent(TurnBasedAgent):
    """A student asked in turn, which acts and learns as its phase says.

    Its environment reports ``info["realtime"]["observation_info"]["teacher_observation"]`` (`TeacherView`).

    Args:
        spec: A `Student`.

    Attributes:
        teacher: Set by `set_teacher`; None in evaluation.
        teacher_replay: What the teacher has done; None where no phase to come needs it.
    """

    def __init__(self, spec: Any) -> None:
        """See the class."""
        super().__init__(spec)
        self.teacher: Teacher | None = None
        self.teacher_replay: Replay | None = None
        self._label: npt.NDArray[np.float32] | None = None
        self._seen: Mapping[str, Any] | None = None  # info["realtime"] that came with the present observation
        self._set_learning_rate()

    @property
    def teaching(self) -> Teaching:
        """How far the student has come."""
        teaching: Teaching = self.spec.teaching  # type: ignore[attr-defined]
        return teaching

    def set_teacher(self, teacher: Teacher, *, keeps_replay: bool) -> None:
        """Learn from this teacher.

        Args:
            teacher: Sees the environment by way of a `TeacherView`.
            keeps_replay: Whether a phase to come needs what the teacher does.
        """
        self.teacher = teacher
        self.teacher_replay = self.spec.make_teacher_replay() if keeps_replay else None  # type: ignore[attr-defined]

    def begin_phase(self, phase: Phase, *, last: bool = False) -> None:
        """Do what a phase does, until the next call.

        Args:
            phase: Which.
            last: Whether no later one needs the teacher's replay.
        """
        self._join()
        self.learner.finish_update()
        if self.teaching.phase is Phase.OFFLINE and phase is Phase.ONLINE:
            self.spec.begin_online(self.learner)  # type: ignore[attr-defined]
            self._set_learning_rate()
            self._publish()
        self.teaching.phase = phase
        if last:
            self.teacher_replay = None
        self.learner.source = self._source(phase)

    def _source(self, phase: Phase) -> Any:
        if phase is Phase.OFFLINE:
            if self.teacher_replay is None or not len(self.teacher_replay):
                raise ValueError("an offline phase needs the teacher's replay, which is empty: collect transitions first")
            return self.teacher_replay
        return self.learner.replay

    def record_score(self, normalized_score: float) -> None:
        """Let lambda, and with it the learning rate, follow the score of an iteration."""
        self.teaching.record_score(normalized_score, self.spec.decay_period)  # type: ignore[attr-defined]
        self._set_learning_rate()

    def _set_learning_rate(self) -> None:
        if (rate := self.spec.learning_rate()) is not None:  # type: ignore[attr-defined]
            self.learner.set_learning_rate(rate)

    def learn_offline(self) -> None:
        """Do one update on the teacher's replay."""
        self._write_scalars(self.pretrain())

    def take_over(self, demonstrations: Any) -> int:
        """Store the episodes of the teacher's own replay; return how many transitions they have."""
        assert self.teacher_replay is not None
        for demonstration in demonstrations:
            for transition in demonstration.transitions():
                label = transition.pop("label")
                extras = {"extras": {LABEL: label}} if self.spec.labelled else {}  # type: ignore[attr-defined]
                self.teacher_replay.observe({**transition, **extras})
        return len(self.teacher_replay)

    # Playing.

    def begin_episode(self, observation: Any, realtime: Mapping[str, Any] | None = None) -> Any:
        """Return the first action of an episode."""
        if self.teacher is None and not self.eval_mode:
            raise ValueError(only_in_turn(self.spec.name))
        self._seen = realtime
        return super().begin_episode(observation, realtime)

    def step(self, reward: float, observation: Any, realtime: Mapping[str, Any] | None = None) -> Any:
        """Return the next action; `reward` is the last decision's."""
        self._seen = realtime
        return super().step(reward, observation, realtime)

    def _decide(self, observation: Any, decision: Decision) -> Any:
        action = super()._decide(observation, decision)
        if self.eval_mode:
            return action
        self._label = self._values_of(self._seen)
        if self.guided(decision):
            action = self._action = self.spec.first_action + int(self._label.argmax())  # type: ignore[attr-defined]
        return action

    def _values_of(self, realtime: Mapping[str, Any] | None) -> npt.NDArray[np.float32]:
        """Return the teacher's values [A] of the frame that the present decision starts on."""
        assert self.teacher is not None
        info = {} if realtime is None else realtime["observation_info"]
        if VIEW not in info:
            raise ValueError(
                "an environment of a student must show the teacher's observations: put a TeacherView into it "
                "(async_wrappers.agents.reincarnation.teacher)"
            )
        return self.teacher.values(info[VIEW])[0]

    def guided(self, decision: Decision) -> bool:
        """Whether the teacher chooses the action of a decision."""
        return self.teaching.phase is Phase.COLLECT

    def _close(
        self, reward: float, outcome: Outcome, following: Any, terminal: bool = False, truncated: bool = False
    ) -> None:
        if self.spec.labelled and not self.eval_mode:  # type: ignore[attr-defined]
            self._extras = {"extras": {LABEL: self._label}}
        super()._close(reward, outcome, following, terminal, truncated)

    def _learn_from_closed(self, frame: int) -> None:
        if self.teaching.phase is not Phase.COLLECT:
            super()._learn_from_closed(frame)
            return
        assert self.teacher_replay is not None
        first = self.spec.first_action  # type: ignore[attr-defined]
        while self._closed and self._closed[0][0] <= frame:
            transition = self._closed.popleft()[1]
            self.teacher_replay.observe({**transition, "action": transition["action"] - first})

    def _train_step(self) -> None:
        if self.teaching.phase is Phase.COLLECT:
            return
        self.teaching.online_steps += 1
        super()._train_step()

    # Checkpoints.

    def bundle_and_checkpoint(self, checkpoint_dir: Path, iteration: int) -> dict[str, Any]:
        """Return all state between two episodes; both replays go into files of their own in `checkpoint_dir`."""
        bundle = super().bundle_and_checkpoint(checkpoint_dir, iteration)
        if self.teacher_replay is not None:
            self.teacher_replay.save(checkpoint_dir / _REPLAY, iteration)
        teaching = self.teaching
        return {
            **bundle,
            "teaching": {
                "phase": teaching.phase.value,
                "weight": teaching.weight,
                "online_steps": teaching.online_steps,
                "replay": self.teacher_replay is not None,
            },
        }

    def unbundle(self, checkpoint_dir: Path, iteration: int, bundle: Mapping[str, Any], partial: bool = False) -> int:
        """Restore what `bundle_and_checkpoint` returned and wrote; see `TurnBasedAgent.unbundle`."""
        state = bundle["teaching"]
        lost = super().unbundle(checkpoint_dir, iteration, bundle, partial)
        if state["replay"]:
            replay = self.spec.make_teacher_replay()  # type: ignore[attr-defined]
            lost += replay.load(checkpoint_dir / _REPLAY, iteration, partial)
            self.teacher_replay = replay
        else:
            self.teacher_replay = None
        teaching = self.teaching
        teaching.phase, teaching.weight = Phase(state["phase"]), state["weight"]
        teaching.online_steps = state["online_steps"]
        self._set_learning_rate()
        return lost

    def forget_checkpoints(self, checkpoint_dir: Path, keep: set[int]) -> None:
        """Delete the replay files that no iteration in `keep` needs."""
        super().forget_checkpoints(checkpoint_dir, keep)
        if (checkpoint_dir / _REPLAY).is_dir():
            self.learner.forget_replays(checkpoint_dir / _REPLAY, keep)


_REPLAY = "teacher_replay"


def only_in_turn(name: str) -> str:
    """Return the sentence that refuses an agent without a teacher."""
    return (
        f"agent {name!r} learns from a teacher, in phases: bind create_runner.schedule = 'reincarnation' and "
        "RunnerWithTeacher.teacher_checkpoint_dir"
    )


def check_positive(**numbers: Any) -> None:
    """Refuse what is no number above 0."""
    check_numbers(**numbers)
    for name, value in numbers.items():
        if not value > 0:
            raise ValueError(f"{name} must be > 0, got {value}")

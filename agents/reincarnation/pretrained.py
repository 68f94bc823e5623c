"""Offline pretraining by conservative Q-learning (Kumar et al. 2020), then fine-tuning online; and rehearsal."""

from __future__ import annotations

from typing import Any, ClassVar

import gin
import gymnasium as gym
import numpy as np

from async_wrappers.agents.learner import Batch, Learner, LossOutput, Networks
from async_wrappers.agents.losses.teaching import conservative
from async_wrappers.agents.reincarnation.augmentation import Augmented
from async_wrappers.agents.reincarnation.student import Phase, Student, check_positive
from async_wrappers.agents.spec import check_at_least, check_numbers, check_shares
from async_wrappers.agents.value_based.dqn import DQN

__all__ = ["PretrainedDQN"]


@gin.configurable("PretrainedDQNAgent", module="agents")
class PretrainedDQN(Augmented, Student, DQN):
    """DQN that learns offline from the teacher's transitions, then goes on by itself, ``PretrainedDQNAgent`` in gin.

    Offline L = td TD + c (logsumexp_a(Q(o, a) / tau) - Q(o, a_data) / tau); online L = TD, with a new optimiser, and
    with a decay period the conservative term still, whose c falls to 0.

    Args:
        observation_space: As in `DQN`.
        action_space: Discrete.
        cql_coefficient: c.
        cql_decay_period: Steps of the online phase over which c falls linearly to 0; 0 ends it with the offline phase.
        td_loss_coefficient: td.
        distill_temperature: tau.
        teacher_data_ratio: Share of an online batch that is drawn from the teacher's replay: rehearsal; 0 for none.
        pretraining_learning_rate: Of the offline phase; that of the online phase is the optimiser's own.
        shared: Those of `DQN`, `Student` and `Augmented`: `teacher_replay_scheme` and `data_augmentation`.

    Raises:
        ValueError: A space that the agent cannot use, or an argument out of range.
    """

    name: ClassVar[str] = "pretrained_dqn"
    learner_kind: str = "PretrainedDQNLearner"
    labelled: ClassVar[bool] = False
    follows_score: bool = False
    decides_learning_rate: ClassVar[str | None] = (
        "whose phases have each their own: bind PretrainedDQNAgent.pretraining_learning_rate and "
        "create_optimizer.learning_rate"
    )

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        cql_coefficient: float = 1.0,
        cql_decay_period: int = 0,
        td_loss_coefficient: float = 1.0,
        distill_temperature: float = 1.0,
        teacher_data_ratio: float = 0.0,
        pretraining_learning_rate: float = 1e-4,
        **shared: Any,
    ) -> None:
        """See the class."""
        check_numbers(cql_coefficient=cql_coefficient, td_loss_coefficient=td_loss_coefficient)
        check_numbers(teacher_data_ratio=teacher_data_ratio)
        for name, value in (("cql_coefficient", cql_coefficient), ("td_loss_coefficient", td_loss_coefficient)):
            if value < 0:
                raise ValueError(f"{name} must be >= 0, got {value}")
        check_positive(distill_temperature=distill_temperature, pretraining_learning_rate=pretraining_learning_rate)
        check_shares(teacher_data_ratio=teacher_data_ratio)
        check_at_least("cql_decay_period", cql_decay_period, 0, "steps")
        super().__init__(observation_space, action_space, **shared)
        self.teacher_data_ratio = teacher_data_ratio
        self._cql_decay_period = cql_decay_period
        self._cql_coefficient, self._td_loss_coefficient = cql_coefficient, td_loss_coefficient
        self._temperature, self._pretraining_learning_rate = distill_temperature, pretraining_learning_rate

    def teacher_term(self, networks: Networks, batch: Batch, rng: np.random.Generator) -> LossOutput:
        """Return the conservative term, [B]."""
        q = self.values(networks.online, batch["observation"], rng)
        loss = conservative(q, batch["action"], self._temperature)
        return LossOutput(loss, metrics={"CQLLoss": loss.mean()})

    def teacher_weight(self) -> float:
        """Return c offline; online what is left of it."""
        if self.teaching.phase is Phase.OFFLINE:
            return self._cql_coefficient
        if not self._cql_decay_period:
            return 0.0
        return self._cql_coefficient * max(0.0, 1.0 - self.teaching.online_steps / self._cql_decay_period)

    def own_weight(self) -> float:
        """Return the weight of the TD loss offline; online it is 1."""
        return self._td_loss_coefficient if self.teaching.phase is Phase.OFFLINE else 1.0

    def learning_rate(self) -> float | None:
        """Return the offline phase's own rate."""
        return self._pretraining_learning_rate if self.teaching.phase is Phase.OFFLINE else None

    def begin_online(self, learner: Learner) -> None:
        """Go from offline updates to play: a new optimiser, and the target network as the weights are."""
        super().begin_online(learner)
        learner.restart_optimizer()

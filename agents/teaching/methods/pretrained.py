"""Offline pretraining by conservative Q-learning (Kumar et al. 2020), then fine-tuning online; and rehearsal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.hyperparameters import NOT_NEGATIVE, POSITIVE, SHARE, agent, number, whole
from async_wrappers.agents.learning.learner import Learner
from async_wrappers.agents.losses.loss import Batch, LossOutput, Networks
from async_wrappers.agents.losses.teaching import conservative
from async_wrappers.agents.teaching.methods.augmentation import Augmented
from async_wrappers.agents.teaching.student import Student
from async_wrappers.agents.teaching.student_progress import TeachingPhase


@agent("PretrainedDQNAgent")
class PretrainedDQN(Augmented, Student, DQN):
    """DQN that learns offline from the teacher's transitions, then plays itself, ``PretrainedDQNAgent`` in gin.

    Offline L = td TD + c (logsumexp_a(Q(o, a) / tau) - Q(o, a_data) / tau); online L = TD, with a new optimiser. With a
    decay period the conservative term remains online, and its c falls to 0.
    """

    name: ClassVar[str] = "pretrained_dqn"
    learner_kind: str = "PretrainedDQNLearner"
    labelled: ClassVar[bool] = False
    follows_score: bool = False
    lacks: ClassVar[Mapping[str, str]] = {
        "learning_rate_decay": (
            "whose phases have each their own: bind PretrainedDQNAgent.pretraining_learning_rate and "
            "create_optimizer.learning_rate"
        ),
    }

    cql_coefficient: float = number(1.0, "c, the weight of the conservative term.", NOT_NEGATIVE)
    cql_decay_period: int = whole(
        0, "Steps of the online phase over which c falls linearly to 0; 0 ends it with the offline phase.", 0, "steps"
    )
    td_loss_coefficient: float = number(1.0, "td, the weight of the temporal-difference loss offline.", NOT_NEGATIVE)
    distill_temperature: float = number(1.0, "tau, the temperature of the conservative term.", POSITIVE)
    teacher_data_ratio: float = number(
        0.0, "Share of an online batch that is drawn from the teacher's replay: rehearsal; 0 for none.", SHARE
    )
    pretraining_learning_rate: float = number(
        1e-4, "Learning rate of the offline phase; the online phase has the optimiser's own.", POSITIVE
    )

    def teacher_term(self, networks: Networks, batch: Batch, rng: np.random.Generator) -> LossOutput:
        """Return the conservative term, [B]."""
        q = self.values(networks.online, batch["observation"], rng)
        loss = conservative(q, batch["action"], self.distill_temperature)
        return LossOutput(loss, metrics={"CQLLoss": loss.mean()})

    def teacher_weight(self) -> float:
        """Return c offline, and its decayed value online."""
        if self.teaching.phase is TeachingPhase.OFFLINE:
            return self.cql_coefficient
        if not self.cql_decay_period:
            return 0.0
        return self.cql_coefficient * max(0.0, 1.0 - self.teaching.online_steps / self.cql_decay_period)

    def own_weight(self) -> float:
        """Return the weight of the TD loss offline; online it is 1."""
        return self.td_loss_coefficient if self.teaching.phase is TeachingPhase.OFFLINE else 1.0

    def learning_rate(self) -> float | None:
        """Return the offline phase's own rate."""
        return self.pretraining_learning_rate if self.teaching.phase is TeachingPhase.OFFLINE else None

    def begin_online(self, learner: Learner) -> None:
        """Change from offline updates to play: make a new optimiser, and copy the weights to the target network."""
        super().begin_online(learner)
        learner.restart_optimizer()

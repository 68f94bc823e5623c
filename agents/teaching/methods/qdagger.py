"""QDagger (Agarwal et al., "Reincarnating reinforcement learning", NeurIPS 2022, section 4.1), and kickstarting.

Kickstarting (Schmitt et al. 2018) is QDagger without an offline phase: `num_pretraining_iterations` = 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

import numpy as np
from torch import Tensor

from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.families.value_based.rainbow import FullRainbow
from async_wrappers.agents.hyperparameters import (
    NOT_NEGATIVE,
    POSITIVE,
    agent,
    choice,
    factory,
    flag,
    number,
    settings,
    whole,
    with_gin_values,
)
from async_wrappers.agents.losses.loss import Batch, LossOutput, Networks
from async_wrappers.agents.losses.teaching import (
    best_action_distillation,
    create_linear_schedule,
    distillation,
    value_error,
)
from async_wrappers.agents.teaching.methods.augmentation import Augmented
from async_wrappers.agents.teaching.student import OF_LAMBDA, Student
from async_wrappers.agents.teaching.student_progress import LABEL

METHODS = ("reincarnation", "ql_plus_dagger", "dagger")

DISTILLS: Mapping[str, tuple[bool, bool]] = {  # what is distilled: the teacher's policy, its values
    "policy_only": (True, False),
    "policy_and_value": (True, True),
    "value_only": (False, True),
}


@settings
class QDagger(Student):
    """The loss of QDagger, for any agent of values.

    L = TD(o, a) + lambda c KL(softmax(Q_T(o) / tau) || softmax(Q(o) / tau)), with the agent's own loss as TD.
    """

    lacks: ClassVar[Mapping[str, str]] = {
        "learning_rate_decay": f"whose learning rate follows lambda: {OF_LAMBDA}",
    }

    distill_loss_coefficient: float = number(1.0, "c, the weight of the distillation.", NOT_NEGATIVE)
    distill_temperature: float = number(
        1.0, "tau, the temperature of both policies, which are softmax(Q / tau).", POSITIVE
    )
    distill_best_action_only: bool = flag(False, "Distil the teacher's greedy action alone: a cross-entropy.")
    distill_type: str = choice(
        "policy_only",
        'What is distilled: the teacher\'s policy, ``"policy_only"``; its values too, by their squared error, '
        '``"policy_and_value"``; or its values alone, ``"value_only"``.',
        *DISTILLS,
    )
    distill_decay_period: int = whole(
        -1, "Decisions of the online phase after which lambda is 0; -1 for no such end.", -1, "decisions"
    )
    method_type: str = choice(
        "reincarnation",
        "``\"reincarnation\"``: lambda, the weight of the teacher's term, falls with the student's score; "
        '``"ql_plus_dagger"``: it stays 1; ``"dagger"``: it stays 1, and the agent\'s own loss has weight 0.',
        *METHODS,
    )
    learning_rate_fn: Callable[[float], float] = factory(
        create_linear_schedule,
        "Returns the learning rate from lambda, the weight of the teacher's term in [0, 1].",
        "@create_linear_schedule",
    )

    def settle(self) -> None:
        super().settle()
        self.decay_period = self.distill_decay_period
        self.follows_score = self.method_type == "reincarnation"
        self.learning_rate_fn = with_gin_values(self.learning_rate_fn)  # called later, when gin may hold other values

    def teacher_term(self, networks: Networks, batch: Batch, rng: np.random.Generator) -> LossOutput:
        """Return c times the distillation of the teacher's values, [B]."""
        q = self.values(networks.online, batch["observation"], rng)  # type: ignore[attr-defined]
        loss = self.distil(batch["extras"][LABEL], q)
        return LossOutput(self.distill_loss_coefficient * loss, metrics={"DistillLoss": loss.mean()})

    def distil(self, labels: Tensor, q: Tensor) -> Tensor:
        """Return the distillation [B] of labels [B, A] into the student's values [B, A]."""
        policy, value = DISTILLS[self.distill_type]
        loss = q.new_zeros(len(q))
        if policy:
            distil = best_action_distillation if self.distill_best_action_only else distillation
            loss = loss + distil(labels, q, self.distill_temperature)
        if value:
            loss = loss + value_error(labels, q)
        return loss

    def record_score(self, normalized_score: float) -> None:
        """Let lambda follow the score of an iteration, unless it stays 1."""
        if self.method_type == "reincarnation":
            super().record_score(normalized_score)

    def own_weight(self) -> float:
        """Return 0 where the teacher's term is the whole loss."""
        return 0.0 if self.method_type == "dagger" else 1.0

    def learning_rate(self) -> float:
        """Return the rate of the present lambda."""
        rate: float = self.learning_rate_fn(self.teaching.weight)
        return rate


@agent("QDaggerDQNAgent")
class QDaggerDQN(Augmented, QDagger, DQN):
    """QDagger on DQN, ``QDaggerDQNAgent`` in gin; what is bound to ``DQNAgent`` holds for it."""

    name: ClassVar[str] = "qdagger_dqn"
    learner_kind: str = "QDaggerDQNLearner"


@agent("QDaggerRainbowAgent")
class QDaggerRainbow(Augmented, QDagger, FullRainbow):
    """QDagger on full Rainbow, ``QDaggerRainbowAgent`` in gin; what is bound to ``FullRainbowAgent`` holds for it.

    The term is of the expected values. Importance weights multiply both terms, and priorities are those of the agent's
    own loss; offline batches are drawn uniformly unless `teacher_replay_scheme` is ``"prioritized"``.
    """

    name: ClassVar[str] = "qdagger_rainbow"

    def settle(self) -> None:
        super().settle()
        self.learner_kind = f"QDagger{self.learner_kind}"

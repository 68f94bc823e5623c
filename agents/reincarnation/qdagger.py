"""QDagger (Agarwal et al., "Reincarnating reinforcement learning", NeurIPS 2022, section 4.1), and kickstarting.

Kickstarting (Schmitt et al. 2018) is QDagger without an offline phase: `num_pretraining_iterations` = 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import gin
import gymnasium as gym
import numpy as np
from torch import Tensor

from async_wrappers.agents.learner import Batch, LossOutput, Networks
from async_wrappers.agents.losses.teaching import best_action_distillation, distillation, value_error
from async_wrappers.agents.reincarnation.augmentation import Augmented
from async_wrappers.agents.reincarnation.student import (
    LABEL,
    Student,
    check_positive,
    create_linear_schedule,
)
from async_wrappers.agents.spec import check_at_least, check_flags, check_numbers, with_gin_values
from async_wrappers.agents.value_based.dqn import DQN
from async_wrappers.agents.value_based.rainbow import FullRainbow

__all__ = ["DISTILLS", "METHODS", "QDagger", "QDaggerDQN", "QDaggerRainbow"]

METHODS = ("reincarnation", "ql_plus_dagger", "dagger")

DISTILLS: Mapping[str, tuple[bool, bool]] = {  # what of the teacher is distilled: its policy, its values
    "policy_only": (True, False),
    "policy_and_value": (True, True),
    "value_only": (False, True),
}


class QDagger(Student):
    """The loss of QDagger, for any agent of values.

    L = TD(o, a) + lambda c KL(softmax(Q_T(o) / tau) || softmax(Q(o) / tau)), with the agent's own loss as TD.

    Args:
        observation_space: As in `DQN`.
        action_space: Discrete.
        distill_loss_coefficient: c.
        distill_temperature: tau.
        distill_best_action_only: Distil the teacher's greedy action alone: a cross-entropy.
        distill_type: ``"policy_only"``; ``"policy_and_value"`` adds the squared error of the values; ``"value_only"``.
        distill_decay_period: Decisions of the online phase after which lambda is 0; -1 for no such end.
        method_type: ``"reincarnation"``; ``"ql_plus_dagger"``, where lambda stays 1; or ``"dagger"``, where it does and
            the agent's own loss has weight 0.
        learning_rate_fn: From lambda to the learning rate.
        shared: Those of the agent.

    Raises:
        ValueError: An argument out of range.
    """

    decides_learning_rate: ClassVar[str | None] = (
        "whose learning rate follows lambda: bind create_linear_schedule.initial_lr and final_lr"
    )

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        distill_loss_coefficient: float = 1.0,
        distill_temperature: float = 1.0,
        distill_best_action_only: bool = False,
        distill_type: str = "policy_only",
        distill_decay_period: int = -1,
        method_type: str = "reincarnation",
        learning_rate_fn: Callable[[float], float] = create_linear_schedule,
        **shared: Any,
    ) -> None:
        """See the class."""
        if method_type not in METHODS:
            raise ValueError(f"method_type must be one of {', '.join(map(repr, METHODS))}, got {method_type!r}")
        check_numbers(distill_loss_coefficient=distill_loss_coefficient)
        if distill_loss_coefficient < 0:
            raise ValueError(f"distill_loss_coefficient must be >= 0, got {distill_loss_coefficient}")
        check_positive(distill_temperature=distill_temperature)
        check_flags(distill_best_action_only=distill_best_action_only)
        check_at_least("distill_decay_period", distill_decay_period, -1, "decisions")
        if not callable(learning_rate_fn):
            raise ValueError(
                f"learning_rate_fn must be a function, such as @create_linear_schedule, got {learning_rate_fn!r}"
            )
        if distill_type not in DISTILLS:
            raise ValueError(f"distill_type must be one of {', '.join(map(repr, DISTILLS))}, got {distill_type!r}")
        super().__init__(observation_space, action_space, decay_period=distill_decay_period, **shared)
        self._coefficient, self._temperature = distill_loss_coefficient, distill_temperature
        self._best_action_only, self._distills = distill_best_action_only, DISTILLS[distill_type]
        self._method = method_type
        self.follows_score = method_type == "reincarnation"
        self._learning_rate_fn = with_gin_values(learning_rate_fn)  # called later, when gin may hold other values

    def teacher_term(self, networks: Networks, batch: Batch, rng: np.random.Generator) -> LossOutput:
        """Return c times the distillation of the teacher's values, [B]."""
        q = self.values(networks.online, batch["observation"], rng)  # type: ignore[attr-defined]
        loss = self.distil(batch["extras"][LABEL], q)
        return LossOutput(self._coefficient * loss, metrics={"DistillLoss": loss.mean()})

    def distil(self, labels: Tensor, q: Tensor) -> Tensor:
        """Return the distillation [B] of labels [B, A] into the student's values [B, A]."""
        policy, value = self._distills
        loss = q.new_zeros(len(q))
        if policy:
            distil = best_action_distillation if self._best_action_only else distillation
            loss = loss + distil(labels, q, self._temperature)
        if value:
            loss = loss + value_error(labels, q)
        return loss

    def record_score(self, normalized_score: float) -> None:
        """Let lambda follow the score of an iteration, unless it stays 1."""
        if self._method == "reincarnation":
            super().record_score(normalized_score)

    def own_weight(self) -> float:
        """Return 0 where the teacher's term is all."""
        return 0.0 if self._method == "dagger" else 1.0

    def learning_rate(self) -> float:
        """Return the rate of the present lambda."""
        rate: float = self._learning_rate_fn(self.teaching.weight)
        return rate


@gin.configurable("QDaggerDQNAgent", module="agents")
class QDaggerDQN(Augmented, QDagger, DQN):
    """QDagger on DQN, ``QDaggerDQNAgent`` in gin; what is bound to ``DQNAgent`` holds for it.

    Args:
        observation_space: As in `DQN`.
        action_space: Discrete.
        distill_loss_coefficient: c.
        distill_temperature: tau.
        distill_best_action_only: Distil the teacher's greedy action alone: a cross-entropy.
        distill_type: ``"policy_only"``; ``"policy_and_value"`` adds the squared error of the values; ``"value_only"``.
        distill_decay_period: Decisions of the online phase after which lambda is 0; -1 for no such end.
        method_type: ``"reincarnation"``; ``"ql_plus_dagger"``, where lambda stays 1; or ``"dagger"``, where it does and
            the agent's own loss has weight 0.
        learning_rate_fn: From lambda to the learning rate.
        shared: Those of `DQN`, `Student` and `Augmented`: `teacher_replay_scheme` and `data_augmentation`.

    Raises:
        ValueError: A space that the agent cannot use, or an argument out of range.
    """

    name: ClassVar[str] = "qdagger_dqn"
    learner_kind: str = "QDaggerDQNLearner"

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        learning_rate_fn: Callable[[float], float] = create_linear_schedule,
        **shared: Any,
    ) -> None:
        """See the class."""
        super().__init__(observation_space, action_space, learning_rate_fn=learning_rate_fn, **shared)


@gin.configurable("QDaggerRainbowAgent", module="agents")
class QDaggerRainbow(Augmented, QDagger, FullRainbow):
    """QDagger on full Rainbow, ``QDaggerRainbowAgent`` in gin; what is bound to ``FullRainbowAgent`` holds for it.

    The term is of the expected values. Importance weights multiply both terms, and priorities are those of the agent's
    own loss; offline batches are drawn uniformly unless `teacher_replay_scheme` is ``"prioritized"``.

    Args:
        observation_space: As in `DQN`.
        action_space: Discrete.
        learning_rate_fn: From lambda to the learning rate.
        shared: Those of `QDagger` and `FullRainbow`, of `Student` and `Augmented`: `teacher_replay_scheme` and
            `data_augmentation`.

    Raises:
        ValueError: A space that the agent cannot use, or an argument out of range.
    """

    name: ClassVar[str] = "qdagger_rainbow"

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        learning_rate_fn: Callable[[float], float] = create_linear_schedule,
        **shared: Any,
    ) -> None:
        """See the class."""
        super().__init__(observation_space, action_space, learning_rate_fn=learning_rate_fn, **shared)
        self.learner_kind = f"QDagger{self.learner_kind}"

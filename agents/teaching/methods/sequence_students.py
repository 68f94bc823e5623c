"""Students that learn from sequences: V-trace, PPO and R2D2, with and without memory, of a teacher of values.

The teacher's term is a sum or mean along time, as the agent's own loss is, over the rows in which a decision was made.
The two networks need have nothing in common: a student with memory may have a teacher without, which reads more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from torch import Tensor

from async_wrappers.agents.families.actor_critic.ppo import PPO
from async_wrappers.agents.families.actor_critic.vtrace import VTrace
from async_wrappers.agents.families.value_based.r2d2 import R2D2
from async_wrappers.agents.hyperparameters import NOT_NEGATIVE, POSITIVE, agent, number, settings, whole
from async_wrappers.agents.losses.actor_critic import masked_mean
from async_wrappers.agents.losses.loss import Batch, LossOutput, Networks
from async_wrappers.agents.losses.sequences import rescale_inverse
from async_wrappers.agents.losses.teaching import policy_distillation
from async_wrappers.agents.needs_and_offers import refuse
from async_wrappers.agents.replay.replay import Replay
from async_wrappers.agents.spaces.actions import discrete_actions
from async_wrappers.agents.spaces.schema import STATE
from async_wrappers.agents.teaching.methods.qdagger import QDagger
from async_wrappers.agents.teaching.student import Student
from async_wrappers.agents.teaching.student_progress import LABEL
from async_wrappers.needs import Words


@settings
class Kickstarting(Student):
    """Kickstarting (Schmitt et al., "Kickstarting deep reinforcement learning", 2018), for agents of a policy.

    L = the agent's + lambda c KL(softmax(Q_T(o) / tau) || pi(o)): the teacher's policy is made of its Q-values. A base
    to stand before the agent's; a subclass writes `teacher_term`.
    """

    lacks: ClassVar[Mapping[str, str]] = {"teacher_replay_scheme": "which has no replay"}

    distill_loss_coefficient: float = number(1.0, "c, the weight of the distillation.", NOT_NEGATIVE)
    distill_temperature: float = number(1.0, "tau, the temperature of the teacher's policy alone.", POSITIVE)
    distill_decay_period: int = whole(
        -1, "Decisions of the online phase after which lambda is 0; -1 for no such end.", -1, "decisions"
    )

    def settle(self) -> None:
        super().settle()
        self.decay_period = self.distill_decay_period

    def divergences(self, labels: Tensor, logits: Tensor) -> Tensor:
        """Return the divergences [...] of the teacher's policy, of labels [..., A], from a policy's logits [..., A]."""
        each = policy_distillation(labels.flatten(0, -2), logits.flatten(0, -2), self.distill_temperature)
        return each.view(logits.shape[:-1])

    def values_of(self, networks: Networks, batch: Batch) -> None:
        """Return None: the agent has no values of actions."""

    def check_phases(self, *, teacher_steps: int, offline: int) -> None:
        """Refuse all phases but the online one.

        Raises:
            ValueError: The teacher is to collect, or there are offline updates.
        """
        if teacher_steps or offline:
            phases = {
                "RunnerWithTeacher.teacher_steps and num_pretraining_iterations": Words(
                    f"{teacher_steps} and {offline}"
                )
            }
            refuse("a student without a replay", phases, agent=self.name)

    def make_teacher_replay(self, lanes: int = 1, number: int = 0, learners: int = 1) -> Replay:
        """Refuse: there is no offline phase.

        Raises:
            ValueError: Always.
        """
        raise ValueError(f"agent {self.name!r} learns once from what its own policy has done, and has no replay")


@agent("KickstartingVTraceAgent")
class KickstartingVTrace(Kickstarting, VTrace):  # type: ignore[misc]  # whose extras are never None
    """Kickstarting on V-trace, ``KickstartingVTraceAgent`` in gin; what is bound to ``VTraceAgent`` holds for it."""

    name: ClassVar[str] = "kickstarting_vtrace"

    def teacher_term(self, networks: Networks, batch: Batch, rng: np.random.Generator) -> LossOutput:
        """Return c times the divergence from the teacher's policy, a mean over rows and time, [B]."""
        inputs = (batch[name] for name in ("observation", "previous_action", "previous_reward", "first", STATE))
        (logits, _), _ = networks.online(*inputs)
        loss = masked_mean(self.divergences(batch["extras"][LABEL], logits[:-1]), batch["mask"])
        return LossOutput(self.distill_loss_coefficient * loss, metrics={"DistillLoss": loss.mean()})


@agent("KickstartingPPOAgent")
class KickstartingPPO(Kickstarting, PPO):  # type: ignore[misc]  # whose extras are never None
    """Kickstarting on PPO, ``KickstartingPPOAgent`` in gin; what is bound to ``PPOAgent`` holds for it.

    The term is of each decision of a minibatch, in every pass.
    """

    name: ClassVar[str] = "kickstarting_ppo"
    learner_kind: str = "KickstartingPPOLearner"
    read_of_extras: ClassVar[tuple[str, ...]] = (*PPO.read_of_extras, LABEL)

    def settle(self) -> None:
        super().settle()
        self.actions = discrete_actions(self.action_space, self.name)  # single ones, as its teacher has

    def teacher_term(self, networks: Networks, batch: Batch, rng: np.random.Generator) -> LossOutput:
        """Return c times the divergence from the teacher's policy, of each decision."""
        logits, _, decided = self.outputs_of(networks, batch)
        loss = self.divergences(decided[LABEL], logits)
        return LossOutput(self.distill_loss_coefficient * loss, metrics={"DistillLoss": loss})


@agent("QDaggerR2D2Agent")
class QDaggerR2D2(QDagger, R2D2):
    """QDagger on R2D2, ``QDaggerR2D2Agent`` in gin; what is bound to ``R2D2Agent`` holds for it.

    The term is of the values before their rescaling, softmax(h^-1(Q) / tau), a sum over the rows that are learnt from,
    as R2D2's loss is. In the offline phase sequences of the teacher's play are drawn, uniformly unless
    `teacher_replay_scheme` is ``"prioritized"``; their first states come from the student's initial weights, which the
    burn-in makes up for.

    `learning_rate_decay` is None, for the rate follows lambda.
    """

    name: ClassVar[str] = "qdagger_r2d2"
    learner_kind: str = "QDaggerR2D2Learner"

    def values_of(self, networks: Networks, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Return the student's values and the teacher's, [N, A], of the rows that are learnt from."""
        q, labels, mask = self._taught(networks, batch)
        return q[mask > 0], labels[mask > 0]

    def _taught(self, networks: Networks, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Return the student's values and the teacher's, [T, B, A], and which rows are learnt from, [T, B]."""
        q = self.unrolled_values(networks.online, batch)[:-1]
        if self.value_rescaling is not None:
            q = rescale_inverse(q, self.value_rescaling)
        return q, batch["extras"][LABEL][self.burn_in :], batch["mask"][self.burn_in :]

    def teacher_term(self, networks: Networks, batch: Batch, rng: np.random.Generator) -> LossOutput:
        """Return c times the distillation, a sum over the rows that are learnt from, [B]."""
        q, labels, mask = self._taught(networks, batch)
        loss = (self.distil(labels.flatten(0, 1), q.flatten(0, 1)).view_as(mask) * mask).sum(dim=0)
        return LossOutput(self.distill_loss_coefficient * loss, metrics={"DistillLoss": loss.mean()})

    def check_phases(self, *, teacher_steps: int, offline: int) -> None:
        """Refuse to learn offline from the teacher's own replay.

        Raises:
            ValueError: There are offline updates, and the teacher does not collect.
        """
        needs = {"RunnerWithTeacher.teacher_steps": teacher_steps}
        refuse({"sequences offline": offline}, needs, agent=self.name)

"""IMPACT (Luo et al., "IMPACT: importance weighted asynchronous architectures with clipped target networks", 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from async_wrappers.agents.families.actor_critic.categorical import CategoricalActorCritic
from async_wrappers.agents.hyperparameters import NOT_NEGATIVE, POSITIVE, Range, agent, number, shared, whole
from async_wrappers.agents.losses.actor_critic import (
    clipped_policy_loss,
    entropy,
    kl_divergence,
    log_prob,
    masked_mean,
    over_executed,
    scale_of_mean,
    target_clipped_log_ratios,
    vtrace,
)
from async_wrappers.agents.losses.loss import Batch, Learning, LossOutput, Networks, means

_AT_LEAST_1 = Range("be >= 1", lambda value: value >= 1)


@agent("ImpactAgent")
class Impact(CategoricalActorCritic):
    """IMPACT (Luo et al. 2020, arXiv 1912.00167), ``ImpactAgent`` in gin.

    It is V-trace that learns from each batch several times, with PPO's clip. In the words of the paper's algorithm 1::

        target network <- network
        for t = 1, 2, ..
            batch  <- the next one of a circular buffer of N batches, each of which is taken K times, then discarded
            target <- what the target network gives for it: V-trace's targets and advantages, the clip's denominator
            step policy and value by the gradient of the loss
            every `target_update_period` updates: target network <- network

    Three policies are in the loss: mu acted, whose logits are stored beside the actions; pi learns; pi' is the target
    network's, an older pi. The actions are those of `vtrace.VTrace`.
    """

    name: ClassVar[str] = "impact"
    lacks: ClassVar[Mapping[str, str]] = dict.fromkeys(("sources", "prefetch"), "whose batches a circular buffer gives")
    learner_kind: str = "ImpactLearner"

    # The algorithm.

    def loss(self, networks: Networks, batch: Batch, rng: np.random.Generator) -> LossOutput:
        """Return the sum of the clipped policy loss, the value's and the entropy's (section 3.1).

        Args:
            networks: The learnt network and its target.
            batch: Tensors of a batch of sequences (`replay.sequences`).
            rng: Not needed.
        """
        mask, mu, executed = batch["mask"], batch["extras"]["logits"], batch.get("executed")  # the last of chunks

        def of_actions(logits: Tensor) -> Tensor:
            return over_executed(log_prob(logits, batch["action"]), executed)

        with torch.no_grad():
            target_logits, target_values = self.outputs_of(networks.target, batch)
        logits, values = self.outputs_of(networks.online, batch)
        log_pi, log_target, log_mu = of_actions(logits), of_actions(target_logits), of_actions(mu)
        targets = vtrace(
            target_values,
            self.rewards_of(batch),
            batch["discount"],
            log_target - log_mu,
            mask,
            lambda_=self.lambda_,
            clip_rho=self.clip_rho,
            clip_c=self.clip_c,
        ).targets
        # V-trace's GAE(lambda): the corrected errors from here on, each carried back by gamma c. It is 0 without mask.
        advantages = targets - target_values[:-1]
        log_ratios = target_clipped_log_ratios(log_pi, log_target, log_mu, self.rho)
        scale = scale_of_mean(mask)
        policy_loss = masked_mean(clipped_policy_loss(log_ratios, advantages, self.epsilon), mask, scale)
        value_loss = masked_mean(0.5 * (targets - values[:-1]) ** 2, mask, scale)
        entropies = masked_mean(over_executed(entropy(logits), executed), mask, scale)
        loss = policy_loss + self.baseline_cost * value_loss - self.entropy_cost * entropies
        metrics = {"PolicyLoss": policy_loss, "ValueLoss": value_loss, "Entropy": entropies}
        metrics |= {
            "Value": masked_mean(values[:-1], mask, scale),
            **self._clipped(log_ratios, log_mu - log_target, mask),
        }
        kl = over_executed(kl_divergence(logits.detach(), mu), executed)
        metrics |= self.off_policyness((log_pi - log_mu).detach(), kl, batch, networks)
        return LossOutput(loss, metrics=means(metrics), mean_over=mask.sum())

    @torch.no_grad()
    def _clipped(self, log_ratios: Tensor, log_target_ratios: Tensor, mask: Tensor) -> dict[str, Tensor]:
        """Return the shares of decisions whose ratios are clipped: w, and that of mu to the target."""
        beyond = log_ratios.expm1().abs() > self.epsilon
        above = log_target_ratios.exp() > self.rho
        return {
            "RatioClipped": masked_mean(beyond.float(), mask),
            "TargetRatioClipped": masked_mean(above.float(), mask),
        }

    # Hyperparameters, beside those of every `CategoricalActorCritic`.

    entropy_cost: float = number(0.01, "Weight of the policy's entropy, which is maximised.", NOT_NEGATIVE)
    epsilon: float = number(
        0.4, "The ratio of the policy to the target policy is clipped to [1 - epsilon, 1 + epsilon].", POSITIVE
    )
    rho: float = number(2.0, "The ratio of the policy that acted to the target policy is clipped at this.", _AT_LEAST_1)
    buffer_size: int = whole(4, "N, batches of the circular buffer.", 1, "batch")
    replay_coefficient: int = whole(2, "K, how often each batch is learnt from.", 1, "time")
    target_update_period: int | None = whole(
        None,
        "Updates between two copies of the weights into the target network; those of all learners that share the "
        "weights, where there are several.",
        1,
        "update",
        none="N K, once all batches were replaced",
    )

    @property
    def learning(self) -> Learning:
        """The settings of the agent's learners."""
        period = self.target_update_period
        every = self.buffer_size * self.replay_coefficient if period is None else period
        return shared(Learning, self, target_update_period=every)

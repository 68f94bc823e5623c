"""V-trace (Espeholt et al., "IMPALA", 2018; as in Espeholt et al., "SEED RL", 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from async_wrappers.agents.families.actor_critic.categorical import CategoricalActorCritic
from async_wrappers.agents.families.actor_critic.terms import Term, UnrollRows, check_terms
from async_wrappers.agents.hyperparameters import NOT_NEGATIVE, POSITIVE, agent, choice, number, setting
from async_wrappers.agents.losses.actor_critic import (
    entropy,
    log_prob,
    masked_mean,
    over_executed,
    scale_of_mean,
    vtrace,
)
from async_wrappers.agents.losses.loss import Batch, LossOutput, Networks, means


@agent("VTraceAgent")
class VTrace(CategoricalActorCritic):
    """V-trace actor-critic (Espeholt et al. 2018), ``VTraceAgent`` in gin; the defaults are SEED RL's.

    Environments are played in unrolls of T rows, each of which is learnt from once. An update is due as soon as B
    unrolls wait, so acting and learning alternate. The logits of the behaviour policy, a network of a few updates
    earlier, are stored beside each action.

    With `sources`, a batch has fresh unrolls and replayed ones (`replay.mixture`). With `terms`, the loss has CLEAR's,
    LASER's and SEED RL's additions (`actor_critic.terms`).

    In training an action is drawn from the policy, in evaluation it is the likeliest.

    The actions are Discrete, or MultiDiscrete ``[A] * H``: chunks of H actions
    (``RealtimeDelay(default_action="chunk")``). A decision then gives H of them, drawn independently. The executed ones
    are known when its transition is complete, which records them; the log-probabilities, the entropy and the
    divergences of a decision are sums over these.
    """

    name: ClassVar[str] = "vtrace"
    learner_kind: str = "VTraceLearner"

    # The algorithm.

    def loss(self, networks: Networks, batch: Batch, rng: np.random.Generator) -> LossOutput:
        """Return the sum of the policy's, the value's and the entropy's loss (Espeholt et al. 2018, section 4.2).

        The terms add theirs.

        Args:
            networks: The learnt network, also as a module, for terms that learn parameters in it.
            batch: Tensors of a batch of sequences (`replay.sequences`).
            rng: Not needed.
        """
        logits, values = self.outputs_of(networks.online, batch)
        rows = self._rows(logits, values[:-1], batch, networks)
        log_rhos, mask = (rows.log_pi - rows.log_mu).detach(), rows.mask
        accepted = mask
        for term in self.terms:
            accepted = accepted * term.accepts(rows)
        returns = vtrace(
            values.detach(),
            self.rewards_of(batch),
            batch["discount"],
            log_rhos,
            accepted,
            lambda_=self.lambda_,
            clip_rho=self.clip_rho,
            clip_c=self.clip_c,
            clip_pg_rho=self.clip_pg_rho,
        )
        # Means are over all decisions: a rejected one counts, as 0, since v = V there and the advantage is 0.
        scale = scale_of_mean(mask)
        policy_loss = masked_mean(-rows.log_pi * returns.advantages, mask, scale)
        value_loss = masked_mean(0.5 * (returns.targets - rows.values) ** 2, mask, scale)
        entropy_cost: Any = self.entropy_cost
        for term in self.terms:
            entropy_cost = term.entropy_cost(entropy_cost, rows)
        loss = policy_loss + self.baseline_cost * value_loss - entropy_cost * rows.entropies
        for term in self.terms:
            loss = loss + term.loss(rows)
        metrics = {"PolicyLoss": policy_loss, "ValueLoss": value_loss, "Entropy": rows.entropies, **rows.metrics}
        metrics["Value"] = masked_mean(rows.values, mask, scale)
        metrics |= self.off_policyness(log_rhos, rows.kl(rows.logits.detach(), rows.mu), batch, networks)
        return LossOutput(loss, metrics=means(metrics), mean_over=mask.sum())

    def _rows(self, logits: Tensor, values: Tensor, batch: Batch, networks: Networks) -> UnrollRows:
        """Return a batch's rows for the loss and its terms, with pi's logits [T, B, A] and values [T, B].

        The gradients of several learners are weighted by their numbers of decisions. Where a mean is over a part of
        these, the replayed or the fresh ones, the sum is therefore not divided by their number here, but by the number
        of decisions here times their share of all learners' decisions.
        """
        mask, mu, executed = batch["mask"], batch["extras"]["logits"], batch.get("executed")  # the last of chunks
        replayed = mask * batch["replayed"] if "replayed" in batch else torch.zeros_like(mask)
        count_of_replayed = count_of_fresh = None
        if networks.average is not None and self.replays:
            of_all = networks.average({"decisions": mask.sum(), "replayed": replayed.sum()}, 1)
            count_of_replayed = mask.sum() * of_all["replayed"] / of_all["decisions"].clamp(min=1.0)
            count_of_fresh = mask.sum() - count_of_replayed
        entropies, of_all_rows = over_executed(entropy(logits), executed), self.entropy_rows == "all"
        weighed = mask if of_all_rows else mask - replayed
        return UnrollRows(
            logits=logits,
            mu=mu,
            values=values,
            log_pi=over_executed(log_prob(logits, batch["action"]), executed),
            log_mu=over_executed(log_prob(mu, batch["action"]), executed),
            entropies=masked_mean(entropies, weighed, scale_of_mean(weighed, None if of_all_rows else count_of_fresh)),
            mask=mask,
            replayed=replayed,
            extras=batch["extras"],
            executed=executed,
            clip_rho=self.clip_rho,
            network=networks.module,
            count_of_replayed=count_of_replayed,
        )

    # Hyperparameters, beside those of every `CategoricalActorCritic`.

    clip_pg_rho: float | None = number(
        None, "The ratio in the policy's gradient is clipped at this.", POSITIVE, none="rho-bar"
    )
    entropy_cost: float = number(
        0.00025,
        "Weight of the policy's entropy, which is maximised; with `TargetEntropy`, at the start.",
        NOT_NEGATIVE,
    )
    entropy_rows: str = choice(
        "all",
        'Whose entropy `entropy_cost` weighs: that of ``"all"`` decisions of a batch, or of the ``"fresh"`` ones, '
        "which no replay gave (LASER's).",
        "all",
        "fresh",
    )
    terms: Sequence[Term] = setting(
        (),
        "Additions to the loss, such as ``(@PolicyCloning(), @KLMask())``, each bound under its own name: CLEAR's "
        "`PolicyCloning` and `ValueCloning`, LASER's `KLMask`, SEED RL's `TargetEntropy` and `KLCost`.",
        check_terms,
        qualified=True,
    )

    def settle(self) -> None:
        super().settle()
        self.terms = [self.terms] if isinstance(self.terms, Term) else self.terms
        for term in self.terms:
            term.check(self.num_actions, self.actions.chunk, self.entropy_cost)
        self.stores_value = any(term.needs_value for term in self.terms)

    # The network.

    def make_network(self) -> nn.Module:
        """Terms add the parameters that they learn."""
        network = super().make_network()
        for term in self.terms:
            term.extend(network, self.entropy_cost)
        return network

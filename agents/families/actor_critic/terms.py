"""Further terms of V-trace's loss: CLEAR's cloning, LASER's mask, SEED RL's target entropy and KL cost.

Each is an object that gin binds, in the order in which the loss adds them::

    VTraceAgent.terms = (@PolicyCloning(), @KLMask())
    KLMask.threshold = 0.3

A term of your own is a subclass of `Term` under the decorator `part`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from async_wrappers.agents.hyperparameters import NOT_NEGATIVE, POSITIVE, choice, must, number, part
from async_wrappers.agents.losses.actor_critic import (
    implied_policy,
    kl_divergence,
    masked_mean,
    over_executed,
    scale_of_mean,
)
from async_wrappers.agents.needs_and_offers import refuse

_LARGEST_LOG_COST = 20.0  # of an entropy's learnt weight, as SEED RL bounds it


@dataclass(frozen=True)
class UnrollRows:
    """The inputs of the terms: a batch of B unrolls of T rows; mu is the policy that acted, pi the one that learns.

    Attributes:
        logits: Of pi, `[T, B, A]`; of chunks of H actions `[T, B, H, A]`, as those of mu.
        mu: Logits of mu, without gradient.
        values: V(x_s), `[T, B]`.
        log_pi: log pi(a_s | x_s), `[T, B]`.
        log_mu: log mu(a_s | x_s), `[T, B]`.
        entropies: Numbers `[B]` whose mean is that of pi's entropy (`masked_mean`).
        mask: 1 where a decision was made, else 0, `[T, B]`.
        replayed: 1 where a row comes from a replay, else 0, `[T, B]`.
        extras: The policy's extras, by name.
        executed: Which entries of chunks were executed, bool `[T, B, H]`; None without chunks.
        clip_rho: rho-bar.
        network: The learnt network, with the parameters that terms have added.
        count_of_replayed: Of several learners, the number of this one's replayed rows if all had as large a share of
            them; None for one learner.
        metrics: Numbers by name, whose means are reported; terms add theirs.
    """

    logits: Tensor
    mu: Tensor
    values: Tensor
    log_pi: Tensor
    log_mu: Tensor
    entropies: Tensor
    mask: Tensor
    replayed: Tensor
    extras: Any
    executed: Tensor | None
    clip_rho: float
    network: Any
    count_of_replayed: Tensor | None = None
    metrics: dict[str, Tensor] = field(default_factory=dict)

    def kl(self, logits: Tensor, other_logits: Tensor) -> Tensor:
        """Return KL(p || q) `[T, B]` of the policies p and q of logits, over the executed entries of chunks."""
        return over_executed(kl_divergence(logits, other_logits), self.executed)

    def mean_of_replayed(self, losses: Tensor) -> Tensor:
        """Return numbers `[B]` whose mean is that of losses `[T, B]` on replayed rows, of all learners together."""
        return masked_mean(losses, self.replayed, scale_of_mean(self.replayed, self.count_of_replayed))


class Term:
    """The interface of a further term of V-trace's loss; each method has a default without effect.

    Attributes:
        needs_value: Whether the policy must return its computed value as the extra "value".
    """

    needs_value: ClassVar[bool] = False

    def check(self, actions: int, chunk: int | None, entropy_cost: float) -> None:
        """Refuse settings that do not fit the agent's, with a ValueError.

        Args:
            actions: How many there are.
            chunk: Actions of a decision where it gives several, H.
            entropy_cost: Of the agent.
        """

    def extend(self, network: nn.Module, entropy_cost: float) -> None:
        """Add the parameters that the term learns to a new network."""

    def accepts(self, rows: UnrollRows) -> Tensor | float:
        """Return 1 where policy and value may be learnt from a decision, else 0, `[T, B]`."""
        return 1.0

    def entropy_cost(self, cost: Any, rows: UnrollRows) -> Any:
        """Return the weight of the entropy; by default `cost`."""
        return cost

    def loss(self, rows: UnrollRows) -> Tensor | float:
        """Return the addition to the loss, a number or `[B]`, of which the mean counts."""
        return 0.0


@part
class PolicyCloning(Term):
    """CLEAR's cloning of the policy (Rolnick et al. 2018): KL(mu || pi) on replayed rows; mu acted, pi learns."""

    cost: float = number(0.01, "Weight of the divergence.", NOT_NEGATIVE)

    def loss(self, rows: UnrollRows) -> Tensor:
        cloning = rows.metrics["PolicyCloning"] = rows.mean_of_replayed(rows.kl(rows.mu, rows.logits))
        return self.cost * cloning


@part
class ValueCloning(Term):
    """CLEAR's cloning of the value (Rolnick et al. 2018): (V - V_mu)^2 on replayed rows; V_mu is of when mu acted."""

    needs_value: ClassVar[bool] = True

    cost: float = number(0.005, "Weight of the squared difference.", NOT_NEGATIVE)

    def loss(self, rows: UnrollRows) -> Tensor:
        cloning = rows.metrics["ValueCloning"] = rows.mean_of_replayed((rows.values - rows.extras["value"]) ** 2)
        return self.cost * cloning


@part
class KLMask(Term):
    """LASER's trust region (Schmitt et al. 2020): leaves out decisions whose mu is far from pi; mu acted, pi learns."""

    threshold: float = number(0.3, "Divergence in nats above which a decision is left out.", POSITIVE)
    to: str = choice(
        "behaviour",
        'Which divergence that is: ``"behaviour"``, KL(pi || mu); or ``"implied"``, from pi to the policy whose value '
        "V-trace learns, proportional to min(rho-bar mu, pi).",
        "behaviour",
        "implied",
    )

    def check(self, actions: int, chunk: int | None, entropy_cost: float) -> None:
        refuse({"chunks": chunk is not None}, {"KLMask.to": self.to})

    @torch.no_grad()
    def accepts(self, rows: UnrollRows) -> Tensor:
        logits = rows.logits.detach()
        other = implied_policy(logits, rows.mu, rows.clip_rho) if self.to == "implied" else rows.mu
        near = (rows.kl(logits, other) < self.threshold).float()
        rows.metrics["Accepted"] = masked_mean(near, rows.mask)
        return near


@part
class TargetEntropy(Term):
    """SEED RL's target of the entropy: its weight rises where the entropy is below, as a Lagrange multiplier.

    The weight is exp(speed x parameter), and begins at `VTraceAgent.entropy_cost`.
    """

    target: float = number(None, "Entropy at which the policy is held, in nats.")
    speed: float = number(10.0, "How fast the weight follows.", POSITIVE)

    def check(self, actions: int, chunk: int | None, entropy_cost: float) -> None:
        most = math.log(actions) * (chunk or 1)
        of_chunks = "" if chunk is None else f"{chunk} times "
        must(
            0 < self.target < most,
            f"TargetEntropy.target must lie between 0 and {most:.3g} nats, those of {of_chunks}{actions} actions that "
            f"are equally likely, got {self.target}",
        )
        refuse("a learnt weight of entropy", {"entropy_cost": entropy_cost})

    def extend(self, network: nn.Module, entropy_cost: float) -> None:
        """Add the parameter to the network, so that checkpoints hold it and the optimiser steps it."""
        if not hasattr(network, "entropy_parameter"):
            first = torch.tensor(math.log(entropy_cost) / self.speed).to(next(network.parameters()).device)
            network.register_parameter("entropy_parameter", nn.Parameter(first))

    def entropy_cost(self, cost: Any, rows: UnrollRows) -> Tensor:
        """The policy's gradient treats the weight as a constant."""
        parameter, most = rows.network.entropy_parameter, _LARGEST_LOG_COST / self.speed
        with torch.no_grad():
            parameter.clamp_(-most, most)
        learnt: Tensor = (self.speed * parameter).exp()
        rows.metrics["EntropyCost"] = learnt
        return learnt.detach()

    def loss(self, rows: UnrollRows) -> Tensor:
        """The multiplier's part, whose gradient reaches the weight alone."""
        return rows.metrics["EntropyCost"] * (rows.entropies.mean().detach() - self.target)


@part
class KLCost(Term):
    """SEED RL's cost of KL(mu || pi), where mu acted and pi learns: the mean of log mu(a) - log pi(a) on all rows."""

    cost: float = number(None, "Weight of the mean.", NOT_NEGATIVE)

    def loss(self, rows: UnrollRows) -> Tensor:
        return self.cost * masked_mean(rows.log_mu - rows.log_pi, rows.mask)


def check_terms(name: str, terms: Any) -> None:
    """Refuse objects that are not terms, or two terms of one kind, with a ValueError."""
    given = terms if isinstance(terms, list | tuple) else [terms]
    for term in given:
        if not isinstance(term, Term):
            raise ValueError(f"{name} must be terms such as (@PolicyCloning(), @KLMask()), with brackets, got {term!r}")
    kinds = [type(term).__name__ for term in given]
    twice = next((kind for kind in kinds if kinds.count(kind) > 1), "")
    must(not twice, f"{name} must have one term of a kind, got {kinds.count(twice)} of {twice}")

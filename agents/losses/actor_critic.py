"""Returns and losses of policies with a value, as pure functions of sequences, time first.

The names are those of Espeholt et al., "IMPALA: scalable distributed deep-RL with importance weighted actor-learner
architectures", 2018. Row s of T is a step: its value V(x_s), action a_s, reward r_s and discount gamma_s, which is 0
where the episode terminated. B is the batch size, A the number of actions; each function takes one sequence, without B,
too. Where `mask` is 0 there was no decision (the final observation of an episode, `replay.sequences`).

A decision may give a chunk of H actions, each for a frame of its own, of which some are executed. Given the
observation they are drawn independently, so the log-probability, the entropy and the divergence of what a decision did
are sums over its executed entries (`over_executed`). An entry that was never executed has changed nothing: it stays out
of the ratio, and no gradient reaches it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor


class VTrace(NamedTuple):
    """What `vtrace` returns.

    Attributes:
        targets: v_s, `[T, B]`.
        advantages: The policy gradient's factor of the gradient of log pi(a_s | x_s), `[T, B]`.
    """

    targets: Tensor
    advantages: Tensor


@torch.no_grad()
def vtrace(
    values: Tensor,
    rewards: Tensor,
    discounts: Tensor,
    log_rhos: Tensor,
    mask: Tensor,
    *,
    lambda_: float = 1.0,
    clip_rho: float = 1.0,
    clip_c: float = 1.0,
    clip_pg_rho: float | None = None,
) -> VTrace:
    """V-trace targets and advantages (Espeholt et al. 2018, equation 1, remark 1, and section 4.2).

        rho_s = min(rho-bar, pi(a_s | x_s) / mu(a_s | x_s)),  c_s = lambda min(c-bar, pi(a_s | x_s) / mu(a_s | x_s))
        delta_s V = rho_s (r_s + gamma_s V(x_{s+1}) - V(x_s))
        v_s = V(x_s) + delta_s V + gamma_s c_s (v_{s+1} - V(x_{s+1}))
        advantage_s = rho^pg_s (r_s + gamma_s v_{s+1} - V(x_s))

    Where the mask is 0, delta and the advantage are 0 and nothing is carried, so that v_s = V(x_s): the step before,
    which truncated its episode, bootstraps on it. A step that a trust region rejects is masked in the same way (Schmitt
    et al. 2020, LASER). On-policy, v_s is the n-step return.

    Args:
        values: V(x_s), with the value of the row after the last step, `[T + 1, B]`.
        rewards: r_s, `[T, B]`.
        discounts: gamma_s, `[T, B]`.
        log_rhos: log pi(a_s | x_s) - log mu(a_s | x_s), `[T, B]`; pi is the learnt policy, mu the acting one.
        mask: 1 where a decision was made that may be learnt from, else 0, `[T, B]`.
        lambda_: How far corrections are carried, in [0, 1].
        clip_rho: rho-bar, which decides which policy's value is learnt.
        clip_c: c-bar, which decides the speed of convergence.
        clip_pg_rho: Clips the ratio of the policy gradient; None for rho-bar.

    Returns:
        Targets and advantages, without gradient.

    Raises:
        ValueError: A shape differs from the above.
    """
    shape = rewards.shape
    for name, tensor in {"discounts": discounts, "log_rhos": log_rhos, "mask": mask}.items():
        if tensor.shape != shape:
            raise ValueError(f"{name} must have the shape of rewards, {list(shape)}, got {list(tensor.shape)}")
    if values.shape != (len(rewards) + 1, *shape[1:]):
        raise ValueError(f"values must have one row more than rewards, {list(shape)}, got {list(values.shape)}")
    ratios = log_rhos.exp()
    rhos, carries = mask * ratios.clamp(max=clip_rho), discounts * mask * lambda_ * ratios.clamp(max=clip_c)
    deltas = rhos * (rewards + discounts * values[1:] - values[:-1])
    errors = torch.zeros_like(values)  # v_s - V(x_s)
    for s in reversed(range(len(rewards))):
        errors[s] = deltas[s] + carries[s] * errors[s + 1]
    targets = values + errors
    pg_rhos = mask * ratios.clamp(max=clip_rho if clip_pg_rho is None else clip_pg_rho)
    advantages = pg_rhos * (rewards + discounts * targets[1:] - values[:-1])
    return VTrace(targets[:-1], advantages)


def log_prob(logits: Tensor, actions: Tensor) -> Tensor:
    """Return log pi(a) `[...]` of actions, whole numbers `[...]`, under logits `[..., A]`."""
    return logits.log_softmax(dim=-1).gather(-1, actions.unsqueeze(-1)).squeeze(-1)


def entropy(logits: Tensor) -> Tensor:
    """Return the entropy `[...]`, in nats, of the policies of logits `[..., A]`."""
    log_probs = logits.log_softmax(dim=-1)
    return -(log_probs.exp() * log_probs).sum(dim=-1)


def kl_divergence(logits: Tensor, other_logits: Tensor) -> Tensor:
    """Return KL(p || q) `[...]`, in nats, of the policies p and q of logits and other logits `[..., A]`."""
    log_p, log_q = logits.log_softmax(dim=-1), other_logits.log_softmax(dim=-1)
    return (log_p.exp() * (log_p - log_q)).sum(dim=-1)


def over_executed(entries: Tensor, executed: Tensor | None) -> Tensor:
    """Return the sums `[...]` of values of chunks' entries `[..., H]` over the executed entries.

    Args:
        entries: Log-probabilities, entropies or divergences.
        executed: Which entries were executed, bool `[..., H]`; None where decisions give one action, `entries` `[...]`.
    """
    return entries if executed is None else entries.masked_fill(~executed, 0.0).sum(dim=-1)


def implied_policy(logits: Tensor, behaviour_logits: Tensor, clip_rho: float = 1.0) -> Tensor:
    """Return logits `[..., A]` of the policy whose value V-trace learns: proportional to min(rho-bar mu, pi).

    Espeholt et al. 2018, equation 3. The logits are its logarithms up to a constant.

    Args:
        logits: Of pi, `[..., A]`.
        behaviour_logits: Of mu, `[..., A]`.
        clip_rho: rho-bar.
    """
    return torch.minimum(math.log(clip_rho) + behaviour_logits.log_softmax(dim=-1), logits.log_softmax(dim=-1))


def effective_sample_size(log_rhos: Tensor, mask: Tensor) -> Tensor:
    """Return (sum w)^2 / (n sum w^2) of the n ratios w where the mask is 1: the share of the sample that counts.

    1 where all ratios are equal, 1 / n where one outweighs all others (Kong 1992); a scalar, 0 if the mask is 0
    everywhere.
    """
    # The ratios' scale has no effect, and with the largest at 1 no square overflows.
    log_rhos = torch.where(mask > 0, log_rhos, -torch.inf)
    ratios = (log_rhos - log_rhos.max().clamp(min=torch.finfo(log_rhos.dtype).min)).exp()
    return ratios.sum() ** 2 / (mask.sum() * (ratios**2).sum()).clamp(min=torch.finfo(ratios.dtype).tiny)


def masked_mean(losses: Tensor, mask: Tensor, count: Tensor | None = None) -> Tensor:
    """Return B numbers `[B]` whose mean is the mean of losses `[T, B]` where the mask is 1; 0 where it is nowhere.

    Args:
        losses: As said.
        mask: As said, `[T, B]`.
        count: What the sum of the losses is divided by; None for the sum of the mask.
    """
    divisor = mask.sum().clamp(min=1.0) if count is None else torch.where(count > 0, count, 1.0)
    return (losses * mask).sum(dim=0) * (mask.shape[1] / divisor)

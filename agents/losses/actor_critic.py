"""Returns and losses of policies with a value, as pure functions of sequences, time first.

The names are those of Espeholt et al., "IMPALA: scalable distributed deep-RL with importance weighted actor-learner
architectures", 2018. Row s of T is a step: its value V(x_s), action a_s, reward r_s and discount gamma_s, which is 0
where the episode terminated. B is the batch size, A the number of actions; each function takes one sequence, without B,
too. Where `mask` is 0 there was no decision (the final observation of an episode, `replay.sequences`).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["VTrace", "entropy", "log_prob", "masked_mean", "vtrace"]


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
    which truncated its episode, bootstraps on it. On-policy, v_s is the n-step return.

    Args:
        values: V(x_s), with that of the row after the last step, `[T + 1, B]`.
        rewards: r_s, `[T, B]`.
        discounts: gamma_s, `[T, B]`.
        log_rhos: log pi(a_s | x_s) - log mu(a_s | x_s), `[T, B]`; pi is learnt, mu has acted.
        mask: 1 where a decision was made, else 0, `[T, B]`.
        lambda_: How far corrections are carried, in [0, 1].
        clip_rho: rho-bar, which decides whose value is learnt.
        clip_c: c-bar, which decides how fast.
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


def masked_mean(losses: Tensor, mask: Tensor) -> Tensor:
    """Return B numbers `[B]` whose mean is the mean of losses `[T, B]` where the mask is 1; 0 where it is nowhere."""
    return (losses * mask).sum(dim=0) * (mask.shape[1] / mask.sum().clamp(min=1.0))

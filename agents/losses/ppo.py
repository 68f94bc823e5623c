"""Returns and losses of proximal policy optimisation (Schulman et al. 2017, arXiv 1707.06347), as pure functions.

Sequences are time first, `[T, B]` or `[T]`, with the rows of `replay.sequences`: a row where `mask` is 0 holds the
final observation of an episode and no decision. Losses are of single decisions, of any shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Advantages(NamedTuple):
    """What `gae` returns.

    Attributes:
        advantages: A_s, `[T, B]`; 0 where there was no decision.
        targets: A_s + V(x_s), what the value learns, `[T, B]`.
    """

    advantages: Tensor
    targets: Tensor


@torch.no_grad()
def gae(values: Tensor, rewards: Tensor, discounts: Tensor, mask: Tensor, *, lambda_: float = 0.95) -> Advantages:
    """Generalised advantage estimation (Schulman et al. 2016, arXiv 1506.02438, equation 16).

        delta_s = r_s + gamma_s V(x_{s+1}) - V(x_s)
        A_s = delta_s + gamma_s lambda A_{s+1}

    gamma_s is 0 where the episode terminated. Where the mask is 0, A_s = 0: the step before, at which the episode was
    truncated or cut, bootstraps on the value of the final observation, and nothing is carried across it. The last step
    bootstraps on the row after the sequence.

    Args:
        values: V(x_s), with the value of the row after the last step, `[T + 1, B]`.
        rewards: r_s, `[T, B]`.
        discounts: gamma_s, `[T, B]`.
        mask: 1 where a decision was made, else 0, `[T, B]`.
        lambda_: 1 for the return until the sequence ends, 0 for that of one step.

    Returns:
        Advantages and targets, without gradient.

    Raises:
        ValueError: A shape differs from the above.
    """
    shape = rewards.shape
    for name, tensor in {"discounts": discounts, "mask": mask}.items():
        if tensor.shape != shape:
            raise ValueError(f"{name} must have the shape of rewards, {list(shape)}, got {list(tensor.shape)}")
    if values.shape != (len(rewards) + 1, *shape[1:]):
        raise ValueError(f"values must have one row more than rewards, {list(shape)}, got {list(values.shape)}")
    deltas = mask * (rewards + discounts * values[1:] - values[:-1])
    carries = mask * discounts * lambda_
    advantage = torch.zeros_like(deltas[0])
    backwards = []
    for delta, carry in zip(deltas.flip(0).unbind(), carries.flip(0).unbind(), strict=True):
        advantage = torch.addcmul(delta, carry, advantage)
        backwards.append(advantage)
    advantages = torch.stack(backwards).flip(0)
    return Advantages(advantages, advantages + values[:-1])


@torch.no_grad()
def normalized(
    advantages: Tensor,
    mask: Tensor,
    sizes: Sequence[int],
    total: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Return advantages less their mean, divided by their standard deviation, of each minibatch by itself.

    All minibatches of a pass are computed at once, which takes a fraction of the operations.

    Args:
        advantages: Of n sequences, `[T, n]`.
        mask: 1 where a decision was made, else 0, `[T, n]`; the result is 0 there.
        sizes: Sequences of each minibatch, in their order; their sum is n.
        total: Sums tensors over several learners, each of which has a part of every minibatch; None for one.
    """
    number = torch.arange(len(sizes), device=mask.device).repeat_interleave(torch.tensor(sizes, device=mask.device))

    def summed(rows: Tensor) -> Tensor:
        here = rows.new_zeros(len(sizes)).index_add_(0, number, rows.sum(dim=0))
        return here if total is None else total(here)

    count = summed(mask)
    centred = (advantages - (summed(advantages * mask) / count)[number]) * mask
    deviation = (summed(centred**2) / (count - 1).clamp(min=1.0)).sqrt()
    return centred / (deviation + 1e-8)[number]


def clipped_policy_loss(log_ratios: Tensor, advantages: Tensor, epsilon: float) -> Tensor:
    """Return the negative clipped surrogate objective (Schulman et al. 2017, equation 7), `[...]`.

    With the ratio w, min(w A, clip(w) A) is min(w A, A + epsilon |A|), whose gradient takes fewer operations.

    Args:
        log_ratios: log pi(a | x) - log mu(a | x), `[...]`; mu is the policy that acted.
        advantages: `[...]`.
        epsilon: How far the ratio may go from 1 until its gradient vanishes.
    """
    losses = -advantages
    return (log_ratios.exp() * losses).clamp(min=losses - epsilon * advantages.abs())


def clipped_value_loss(
    values: Tensor, targets: Tensor, old_values: Tensor | None = None, epsilon: float = 0.2
) -> Tensor:
    """Return the squared error of values (Schulman et al. 2017, equation 9), `[...]`.

    With old values it is the larger one of two: that of the values, and that of the values held within epsilon of the
    old ones (Huang et al. 2022, detail 9).

    Args:
        values: V(x), `[...]`.
        targets: `[...]`.
        old_values: V(x) before the update, `[...]`; None for the plain error.
        epsilon: In the unit of the values.
    """
    errors = (values - targets).square()
    if old_values is None:
        return errors
    held = old_values + (values - old_values).clamp(-epsilon, epsilon)
    return torch.maximum(errors, (held - targets).square())


def approximate_kl(log_ratios: Tensor) -> Tensor:
    """Return numbers `[...]` whose mean over actions of mu estimates KL(mu || pi): rho - 1 - log rho, never negative.

    Args:
        log_ratios: log rho = log pi(a | x) - log mu(a | x), `[...]`.
    """
    return log_ratios.expm1() - log_ratios

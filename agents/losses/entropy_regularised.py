"""The losses of agents that maximise entropy beside the return, as pure functions of batches of one step.

They are those of Haarnoja et al., "Soft actor-critic algorithms and applications", 2018 (arXiv 1812.05905). The names
carry the time index as in `losses.values`: `q_tm1` and `log_prob_tm1` belong to the observation of the decision that
was taken, `q_t` and `log_prob_t` to the next one. E is the number of critics, B the batch size. Each loss is one number
for each transition, whose mean is descended.
"""

from __future__ import annotations

import torch
from torch import Tensor


@torch.no_grad()
def soft_target(r_t: Tensor, discount_t: Tensor, q_t: Tensor, log_prob_t: Tensor, temperature: Tensor) -> Tensor:
    """Return the critics' target (equations 2 and 3, with the least critic of section 5).

        y = R + discount (min_e Qbar_e(o', a') - alpha log pi(a' | o')),  a' drawn from pi(. | o')

    Args:
        r_t: R, the n-step return, `[B]`.
        discount_t: The discount of what follows it, 0 where the episode terminated, `[B]`.
        q_t: Qbar_e(o', a') of the target critics, `[E, B]`.
        log_prob_t: log pi(a' | o'), `[B]`.
        temperature: alpha, a scalar.

    Returns:
        y, `[B]`, without gradient.

    Raises:
        ValueError: A shape differs from the above.
    """
    _check_shapes(r_t, q_t, discount_t=discount_t, log_prob_t=log_prob_t)
    return r_t + discount_t * (q_t.amin(dim=0) - temperature * log_prob_t)


def critic_loss(q_tm1: Tensor, target: Tensor) -> Tensor:
    """Return half the squared errors of all critics (equation 5), `[B]`: 1/2 sum_e (Q_e(o, a) - y)^2.

    Args:
        q_tm1: Q_e(o, a), `[E, B]`.
        target: y, `[B]`; no gradient flows through it.

    Raises:
        ValueError: A shape differs from the above.
    """
    _check_shapes(target, q_tm1)
    return 0.5 * (q_tm1 - target.detach()).square().sum(dim=0)


def policy_loss(log_prob_tm1: Tensor, q_tm1: Tensor, temperature: Tensor) -> Tensor:
    """Return the policy's loss (equation 9), `[B]`: alpha log pi(a | o) - min_e Q_e(o, a), a drawn from pi(. | o).

    Args:
        log_prob_tm1: log pi(a | o), `[B]`.
        q_tm1: Q_e(o, a), `[E, B]`; the gradient reaches the policy through the action.
        temperature: alpha, a scalar; no gradient flows through it.

    Raises:
        ValueError: A shape differs from the above.
    """
    _check_shapes(log_prob_tm1, q_tm1)
    return temperature.detach() * log_prob_tm1 - q_tm1.amin(dim=0)


def temperature_loss(log_temperature: Tensor, log_prob_tm1: Tensor, target_entropy: float) -> Tensor:
    """Return the temperature's loss (equation 18), `[B]`: -log alpha (log pi(a | o) + target entropy).

    It is the logarithm that is learnt, so alpha stays positive; the paper writes alpha in its place, as whose
    gradient this one has the sign.

    Args:
        log_temperature: log alpha, a scalar; the gradient flows through it alone.
        log_prob_tm1: log pi(a | o), `[B]`.
        target_entropy: What the policy's entropy is held at, in nats.
    """
    return -log_temperature * (log_prob_tm1.detach() + target_entropy)


def _check_shapes(of_one: Tensor, of_critics: Tensor, **others: Tensor) -> None:
    # Without it, broadcasting would make a mean over pairs of transitions of a shape such as [B, 1].
    for name, tensor in others.items():
        if tensor.shape != of_one.shape:
            raise ValueError(f"{name} must have the shape {list(of_one.shape)}, got {list(tensor.shape)}")
    if of_critics.ndim != 2 or of_critics.shape[1:] != of_one.shape:
        raise ValueError(
            f"the critics' values must have the shape [E, {', '.join(map(str, of_one.shape))}], got "
            f"{list(of_critics.shape)}"
        )

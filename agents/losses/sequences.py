"""Errors of action values along sequences, time first, as pure functions (Kapturowski et al. 2019, R2D2).

Row t of T is a step: its action, reward and discount, which is 0 where the episode terminated; `mask` is 0 where there
was no decision (the final observation of an episode, `replay.sequences`). B is the batch size, A the number of actions.
"""

from __future__ import annotations

import torch
from torch import Tensor


def rescale(x: Tensor, epsilon: float = 1e-3) -> Tensor:
    """h(x) = sign(x) (sqrt(|x| + 1) - 1) + epsilon x (Pohlen et al. 2018, "Observe and look further", prop. A.2)."""
    return x.sign() * ((x.abs() + 1).sqrt() - 1) + epsilon * x


def rescale_inverse(x: Tensor, epsilon: float = 1e-3) -> Tensor:
    """The inverse of `rescale`: sign(x) (((sqrt(1 + 4 epsilon (|x| + 1 + epsilon)) - 1) / (2 epsilon))^2 - 1)."""
    if not epsilon:
        return x.sign() * ((x.abs() + 1) ** 2 - 1)
    root = (1 + 4 * epsilon * (x.abs() + 1 + epsilon)).sqrt()
    return x.sign() * (((root - 1) / (2 * epsilon)) ** 2 - 1)


def td_errors_n_step_double(
    q: Tensor,
    q_target: Tensor,
    q_selector: Tensor,
    actions: Tensor,
    rewards: Tensor,
    discounts: Tensor,
    mask: Tensor,
    n: int,
    epsilon: float | None = 1e-3,
) -> Tensor:
    """Errors of n-step double Q-learning under a rescaling of values (Kapturowski et al. 2019, section 2.3).

        h(sum_{i<m} gamma^(i) r_{t+i} + gamma^(m) h^-1(Q_target(x_{t+m}, argmax_a Q(x_{t+m}, a)))) - Q(x_t, a_t)

    with m = n, or fewer where the sequence ends before or the episode does: then x_{t+m} is the sequence's last row, or
    the episode's final observation. gamma^(i) is the product of the discounts of i steps, which is 0 after a terminal.

    Args:
        q: Q(x_t, .), `[T, B, A]`; the gradient flows through these alone.
        q_target: Values of the rows and of the one after them under the target network, `[T + 1, B, A]`.
        q_selector: Values that choose the action to bootstrap on, `[T + 1, B, A]`.
        actions: `[T, B]`.
        rewards: `[T, B]`.
        discounts: `[T, B]`.
        mask: 1 where a decision was made, else 0, `[T, B]`.
        n: Decisions in a return.
        epsilon: Of h; None learns values as they are.

    Returns:
        The errors `[T, B]`, 0 where the mask is.

    Raises:
        ValueError: A shape differs from the above.
    """
    steps, batch, _ = q.shape
    for name, tensor in {"actions": actions, "rewards": rewards, "discounts": discounts, "mask": mask}.items():
        if tensor.shape != (steps, batch):
            raise ValueError(f"{name} must have the shape [T, B] of q, {[steps, batch]}, got {list(tensor.shape)}")
    for name, tensor in {"q_target": q_target, "q_selector": q_selector}.items():
        if tensor.shape != (steps + 1, *q.shape[1:]):
            raise ValueError(f"{name} must have one row more than q, {list(q.shape)}, got {list(tensor.shape)}")
    with torch.no_grad():
        bootstrap = q_target.gather(2, q_selector.argmax(dim=2, keepdim=True)).squeeze(2)
        if epsilon is not None:
            bootstrap = rescale_inverse(bootstrap, epsilon)
        returns = _n_step_returns(bootstrap, rewards, discounts, mask, n)
        target = returns if epsilon is None else rescale(returns, epsilon)
    return mask * (target - q.gather(2, actions.unsqueeze(2)).squeeze(2))


def _n_step_returns(bootstrap: Tensor, rewards: Tensor, discounts: Tensor, mask: Tensor, n: int) -> Tensor:
    """Return the returns `[T, B]` of at most n decisions, for values of the rows `[T + 1, B]`.

    The return of m decisions is r_t + gamma_t (that of m - 1 from t + 1 on), and a row without a decision, or the last
    one, is worth its bootstrap.
    """
    returns = bootstrap
    for _ in range(n):
        further = rewards + discounts * returns[1:]
        returns = torch.cat([torch.where(mask > 0, further, bootstrap[:-1]), bootstrap[-1:]])
    return returns[:-1]


def sequence_priority(td_errors: Tensor, mask: Tensor, eta: float) -> Tensor:
    """Return eta max_t |delta_t| + (1 - eta) mean_t |delta_t| over a sequence's decisions (Kapturowski et al. 2019).

    Args:
        td_errors: `[T, B]`.
        mask: 1 where a decision was made, else 0, `[T, B]`.
        eta: In [0, 1].

    Returns:
        Priorities `[B]`; 0 for a sequence without a decision.
    """
    sizes = td_errors.abs() * mask
    return eta * sizes.amax(dim=0) + (1 - eta) * sizes.sum(dim=0) / mask.sum(dim=0).clamp(min=1.0)


def acting_priority(
    values: Tensor,
    max_values: Tensor,
    rewards: Tensor,
    discounts: Tensor,
    mask: Tensor,
    n: int,
    eta: float,
    epsilon: float | None = 1e-3,
) -> Tensor:
    """Return the priority of a sequence from the values that acting has computed (Horgan et al. 2018, section 3).

    It is `sequence_priority` over the decisions whose errors are known: those of `td_errors_n_step_double`, with the
    acting network in place of both networks.

    Args:
        values: Q(x_t, a_t), each with the weights of its decision, `[T, B]`.
        max_values: max_a Q(x_t, a), `[T + 1, B]`; NaN where acting has not computed it, as on a final observation.
        rewards: `[T, B]`.
        discounts: `[T, B]`.
        mask: 1 where a decision was made, else 0, `[T, B]`.
        n: Decisions in a return.
        eta: In [0, 1].
        epsilon: Of h; None for values as they are.

    Returns:
        Priorities `[B]`; NaN where no error is known.
    """
    missing = max_values.isnan()
    bootstrap = max_values.masked_fill(missing, 0.0)
    if epsilon is not None:
        bootstrap = rescale_inverse(bootstrap, epsilon)
    # The weight of missing values in a return: 0 after a terminal.
    unknown = _n_step_returns(missing.to(rewards.dtype), torch.zeros_like(rewards), discounts, mask, n) != 0
    returns = _n_step_returns(bootstrap, rewards, discounts, mask, n)
    target = returns if epsilon is None else rescale(returns, epsilon)
    known = mask * ~(unknown | values.isnan())
    errors = (target - values).masked_fill(known == 0, 0.0)
    return sequence_priority(errors, known, eta).masked_fill(~known.any(dim=0), torch.nan)

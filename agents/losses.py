"""Temporal-difference errors and the losses on them, as pure functions of batches of one step.

The names carry the time index: `q_tm1` belongs to the decision that was taken, `q_t` to the next one, `r_t` and
`discount_t` to the step between them. An error is target minus estimate; `discount_t` is 0 where the episode
terminated, so nothing else masks the bootstrap. B is the batch size, A the number of actions.
"""

from __future__ import annotations

import torch
from torch import Tensor


def td_error_q_learning(q_tm1: Tensor, a_tm1: Tensor, r_t: Tensor, discount_t: Tensor, q_t: Tensor) -> Tensor:
    """The error of Q-learning (Mnih et al. 2015, Algorithm 1): r + discount max_a q_t(a) - q_tm1(a_tm1).

    Args:
        q_tm1: values of the decision taken, `[B, A]`; the gradient flows through these alone.
        a_tm1: actions taken, integers `[B]`.
        r_t: rewards, `[B]`.
        discount_t: discounts of the bootstrap value, `[B]`.
        q_t: values of the next decision under the target network, `[B, A]`.

    Returns:
        The errors, `[B]`.

    Raises:
        ValueError: a shape differs from the above, or `a_tm1` is not of integers.
    """
    _check_step(q_tm1, a_tm1, r_t, discount_t)
    _check_shape("q_t", q_t, tuple(q_tm1.shape))
    return _error(q_tm1, a_tm1, r_t + discount_t * q_t.amax(dim=1))


def td_error_double_q_learning(
    q_tm1: Tensor, a_tm1: Tensor, r_t: Tensor, discount_t: Tensor, q_t_value: Tensor, q_t_selector: Tensor
) -> Tensor:
    """The error of double Q-learning (van Hasselt et al. 2016, eq. 4): one network chooses, another one values.

    r + discount q_t_value(argmax_a q_t_selector(a)) - q_tm1(a_tm1).

    Args:
        q_tm1: values of the decision taken, `[B, A]`; the gradient flows through these alone.
        a_tm1: actions taken, integers `[B]`.
        r_t: rewards, `[B]`.
        discount_t: discounts of the bootstrap value, `[B]`.
        q_t_value: values of the next decision under the target network, `[B, A]`.
        q_t_selector: values of the next decision under the online network, `[B, A]`.

    Returns:
        The errors, `[B]`.

    Raises:
        ValueError: a shape differs from the above, or `a_tm1` is not of integers.
    """
    _check_step(q_tm1, a_tm1, r_t, discount_t)
    _check_shape("q_t_value", q_t_value, tuple(q_tm1.shape))
    _check_shape("q_t_selector", q_t_selector, tuple(q_tm1.shape))
    return _error(q_tm1, a_tm1, r_t + discount_t * _chosen(q_t_value, q_t_selector.argmax(dim=1)))


def huber(x: Tensor, delta: float = 1.0) -> Tensor:
    """Huber's loss of each error (Huber 1964): x^2 / 2 up to `delta`, delta (|x| - delta / 2) beyond; any shape.

    Its gradient is the error clipped to [-delta, delta], which is the error clipping of Mnih et al. 2015.

    Raises:
        ValueError: `delta` is not positive.
    """
    if delta <= 0.0:
        raise ValueError(f"delta must be > 0, got {delta}")
    size = x.abs()
    return torch.where(size <= delta, 0.5 * x**2, delta * (size - 0.5 * delta))


def squared(x: Tensor) -> Tensor:
    """The square x^2 of each error, without the factor 1/2 (as in Dopamine's `mse`); any shape."""
    return x**2


def _error(q_tm1: Tensor, a_tm1: Tensor, target: Tensor) -> Tensor:
    return target.detach() - _chosen(q_tm1, a_tm1)


def _chosen(q: Tensor, a: Tensor) -> Tensor:
    """The value of one action in each row: `[B, A]`, `[B]` -> `[B]`."""
    return q.gather(1, a.long().unsqueeze(1)).squeeze(1)


def _check_step(q_tm1: Tensor, a_tm1: Tensor, r_t: Tensor, discount_t: Tensor) -> None:
    if q_tm1.ndim != 2:
        raise ValueError(f"q_tm1 must have shape [B, A], got {list(q_tm1.shape)}")
    if a_tm1.is_floating_point():
        raise ValueError(f"a_tm1 must hold integers, got {a_tm1.dtype}, cast it to torch.int64")
    for name, tensor in (("a_tm1", a_tm1), ("r_t", r_t), ("discount_t", discount_t)):
        _check_shape(name, tensor, (q_tm1.shape[0],))


def _check_shape(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    # Broadcasting would turn [B, 1] against [B] into a silent [B, B].
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name} must have shape {list(shape)} to fit q_tm1, got {list(tensor.shape)}")

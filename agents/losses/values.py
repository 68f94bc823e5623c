"""Temporal-difference errors and the losses on them, as pure functions of batches of one step.

The names carry the time index: `q_tm1` belongs to the decision that was taken, `q_t` to the next one, `r_t` and
`discount_t` to the step between them. An error is target minus estimate; `discount_t` is 0 where the episode
terminated, so nothing else masks the bootstrap. B is the batch size, A the number of actions, N and M numbers of atoms
or quantiles. No gradient flows through a target.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import huber_loss


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
    """The error of double Q-learning (van Hasselt et al. 2016, eq. 4): one network chooses, another evaluates.

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
    # One operation, and one in the gradient: written out they are twenty, which take longer than the arithmetic.
    return huber_loss(x, x.new_zeros(()).expand_as(x), reduction="none", delta=delta)


def squared(x: Tensor) -> Tensor:
    """The square x^2 of each error, without the factor 1/2 (as in Dopamine's `mse`); any shape."""
    return x**2


def expected_value(logits: Tensor, support: Tensor) -> Tensor:
    """The mean of categorical distributions: sum_i z_i softmax(logits)_i (Bellemare et al. 2017, Algorithm 1).

    Args:
        logits: `[..., N]`.
        support: the atoms z, `[N]`.

    Returns:
        Means, `[...]`.
    """
    return (logits.softmax(dim=-1) * support).sum(dim=-1)  # a product of matrices would be rounded under autocast


def project_categorical(z: Tensor, p: Tensor, support: Tensor) -> Tensor:
    """Projects distributions onto a support, each mass onto its two neighbours (Bellemare et al. 2017, eq. 7).

    Mass beyond the support's ends goes to the ends.

    Args:
        z: atoms, `[B, M]`.
        p: their probabilities, `[B, M]`.
        support: atoms to project onto, ascending and equally spaced, `[N]` with N at least 2.

    Returns:
        Probabilities of the support's atoms, `[B, N]`.

    Raises:
        ValueError: a shape differs from the above.
    """
    if support.ndim != 1 or len(support) < 2:
        raise ValueError(f"support must have shape [N], N >= 2, got {list(support.shape)}")
    if z.ndim != 2:
        raise ValueError(f"z must have shape [B, M], got {list(z.shape)}")
    _check_shape("p", p, tuple(z.shape), "z")
    spacing = (support[-1] - support[0]) / (len(support) - 1)
    position = ((z - support[0]) / spacing).clamp(0, len(support) - 1).where(z.isfinite(), torch.nan)
    below = position.floor().clamp(max=len(support) - 2)  # the last atom is the upper neighbour of the one before it
    above_share = position - below
    neighbour = below.nan_to_num().long()  # a NaN, as of an infinite reward, is no index; it comes out in the shares
    projected = torch.zeros(len(z), len(support), dtype=p.dtype, device=p.device)
    projected.scatter_add_(1, neighbour, p * (1 - above_share))
    return projected.scatter_add_(1, neighbour + 1, p * above_share)


def categorical_q_learning(
    support: Tensor,
    logits_tm1: Tensor,
    a_tm1: Tensor,
    r_t: Tensor,
    discount_t: Tensor,
    logits_t: Tensor,
    q_t_selector: Tensor,
) -> Tensor:
    """The cross-entropy of C51 (Bellemare et al. 2017, Algorithm 1): -sum_i m_i log p_i(o_tm1, a_tm1).

    m is the distribution of r + discount Z(o_t, a*) projected onto the support, a* = argmax_a q_t_selector(a).

    Args:
        support: atoms z, `[N]`.
        logits_tm1: of the decision taken, `[B, A, N]`; the gradient flows through these alone.
        a_tm1: actions taken, integers `[B]`.
        r_t: rewards, `[B]`.
        discount_t: discounts of the bootstrap distribution, `[B]`.
        logits_t: of the next decision under the target network, `[B, A, N]`.
        q_t_selector: values that choose the next action, `[B, A]`: those of the target network, or of the online
            network for double Q-learning (van Hasselt et al. 2016, eq. 4).

    Returns:
        The losses, `[B]`.

    Raises:
        ValueError: a shape differs from the above, or `a_tm1` is not of integers.
    """
    _check_distributions("logits_tm1", logits_tm1, a_tm1, r_t, discount_t, q_t_selector)
    _check_shape("logits_t", logits_t, tuple(logits_tm1.shape), "logits_tm1")
    _check_shape("support", support, (logits_tm1.shape[2],), "logits_tm1")
    p_t = _chosen(logits_t, q_t_selector.argmax(dim=1)).softmax(dim=-1)
    z_t = r_t.unsqueeze(1) + discount_t.unsqueeze(1) * support
    target = project_categorical(z_t, p_t, support).detach()
    return -(target * _chosen(logits_tm1, a_tm1).log_softmax(dim=-1)).sum(dim=-1)


def quantile_huber(theta: Tensor, tau: Tensor, target: Tensor, kappa: float = 1.0) -> Tensor:
    """The quantile Huber loss (Dabney et al. 2018, "Distributional RL with quantile regression", eq. 9 and 10).

    sum_i mean_j |tau_i - 1{u_ij < 0}| L(u_ij) / kappa with u_ij = target_j - theta_i and L Huber's loss of threshold
    kappa. The quotient by kappa is that of the paper on implicit quantiles (eq. 3); at 1, the usual value, it is none.

    Args:
        theta: estimates of quantiles, `[B, N]`; the gradient flows through these alone.
        tau: which quantiles they are, `[B, N]`, in [0, 1].
        target: samples or quantiles of the target distribution, `[B, M]`.
        kappa: threshold of Huber's loss; 0 gives quantile regression itself, |tau - 1{u < 0}| |u|.

    Returns:
        The losses, `[B]`.

    Raises:
        ValueError: a shape differs from the above, or `kappa` is negative.
    """
    if kappa < 0.0:
        raise ValueError(f"kappa must be >= 0, got {kappa}")
    if theta.ndim != 2:
        raise ValueError(f"theta must have shape [B, N], got {list(theta.shape)}")
    _check_shape("tau", tau, tuple(theta.shape), "theta")
    if target.ndim != 2 or len(target) != len(theta):
        raise ValueError(f"target must have shape [{len(theta)}, M] to fit theta, got {list(target.shape)}")
    u = target.detach().unsqueeze(1) - theta.unsqueeze(2)
    size = huber(u, kappa) / kappa if kappa else u.abs()
    asymmetry = (tau.unsqueeze(2) - (u.detach() < 0).to(u.dtype)).abs()
    return (asymmetry * size).mean(dim=2).sum(dim=1)


def quantile_q_learning(
    quantiles_tm1: Tensor,
    tau_tm1: Tensor,
    a_tm1: Tensor,
    r_t: Tensor,
    discount_t: Tensor,
    quantiles_t: Tensor,
    q_t_selector: Tensor,
    kappa: float = 1.0,
) -> Tensor:
    """The loss of QR-DQN (Dabney et al. 2018, Algorithm 1) and, with drawn tau, of IQN (Dabney et al. 2018, eq. 3).

    `quantile_huber` of the quantiles of the action taken, against r + discount theta_j(o_t, a*), a* = argmax_a
    q_t_selector(a).

    Args:
        quantiles_tm1: of the decision taken, `[B, A, N]`; the gradient flows through these alone.
        tau_tm1: which quantiles they are, `[B, N]`.
        a_tm1: actions taken, integers `[B]`.
        r_t: rewards, `[B]`.
        discount_t: discounts of the bootstrap distribution, `[B]`.
        quantiles_t: of the next decision under the target network, `[B, A, M]`.
        q_t_selector: values that choose the next action, `[B, A]`: those of the target network, or of the online
            network for double Q-learning.
        kappa: threshold of Huber's loss.

    Returns:
        The losses, `[B]`.

    Raises:
        ValueError: a shape differs from the above, or `a_tm1` is not of integers.
    """
    _check_distributions("quantiles_tm1", quantiles_tm1, a_tm1, r_t, discount_t, q_t_selector)
    if quantiles_t.ndim != 3 or quantiles_t.shape[:2] != quantiles_tm1.shape[:2]:
        raise ValueError(
            f"quantiles_t must have shape {[*quantiles_tm1.shape[:2], 'M']} to fit quantiles_tm1, "
            f"got {list(quantiles_t.shape)}"
        )
    theta_t = _chosen(quantiles_t, q_t_selector.argmax(dim=1))
    target = r_t.unsqueeze(1) + discount_t.unsqueeze(1) * theta_t
    return quantile_huber(_chosen(quantiles_tm1, a_tm1), tau_tm1, target, kappa)


def importance_weighted(loss: Tensor, weight: Tensor) -> Tensor:
    """The mean of w_i loss_i, losses `[B]` and weights `[B]` (Schaul et al. 2016, Algorithm 1, line 13)."""
    _check_shape("weight", weight, tuple(loss.shape), "loss")
    return (weight * loss).mean()


def _error(q_tm1: Tensor, a_tm1: Tensor, target: Tensor) -> Tensor:
    return target.detach() - _chosen(q_tm1, a_tm1)


def _chosen(q: Tensor, a: Tensor) -> Tensor:
    """What belongs to one action in each row: `[B, A, ...]`, `[B]` -> `[B, ...]`."""
    if q.ndim == 2:
        return q.gather(1, a.long().unsqueeze(1)).squeeze(1)
    return q[torch.arange(len(q), device=q.device), a.long()]


def _check_step(q_tm1: Tensor, a_tm1: Tensor, r_t: Tensor, discount_t: Tensor) -> None:
    if q_tm1.ndim != 2:
        raise ValueError(f"q_tm1 must have shape [B, A], got {list(q_tm1.shape)}")
    _check_taken("q_tm1", q_tm1, a_tm1, r_t, discount_t)


def _check_distributions(
    name: str, values_tm1: Tensor, a_tm1: Tensor, r_t: Tensor, discount_t: Tensor, q_t_selector: Tensor
) -> None:
    if values_tm1.ndim != 3:
        raise ValueError(f"{name} must have shape [B, A, N], got {list(values_tm1.shape)}")
    _check_taken(name, values_tm1, a_tm1, r_t, discount_t)
    _check_shape("q_t_selector", q_t_selector, tuple(values_tm1.shape[:2]), name)


def _check_taken(name: str, values_tm1: Tensor, a_tm1: Tensor, r_t: Tensor, discount_t: Tensor) -> None:
    if a_tm1.is_floating_point():
        raise ValueError(f"a_tm1 must hold integers, got {a_tm1.dtype}, cast it to torch.int64")
    shape = values_tm1.shape[:1]
    if a_tm1.shape == r_t.shape == discount_t.shape == shape:
        return
    for argument, tensor in (("a_tm1", a_tm1), ("r_t", r_t), ("discount_t", discount_t)):
        _check_shape(argument, tensor, tuple(shape), name)


def _check_shape(name: str, tensor: Tensor, shape: tuple[int, ...], fitting: str = "q_tm1") -> None:
    # Broadcasting would turn [B, 1] against [B] into a silent [B, B].
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name} must have shape {list(shape)} to fit {fitting}, got {list(tensor.shape)}")

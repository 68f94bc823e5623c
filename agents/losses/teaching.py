"""Losses of a student on its teacher's values and actions, as pure functions of batches.

B is the batch size, A the number of actions. A row of the teacher that is not finite is no label, and its loss is 0: it
stands where no action landed. No gradient flows into the teacher's values.
"""

from __future__ import annotations

import gin
import torch
from torch import Tensor


def distillation(q_teacher: Tensor, q: Tensor, temperature: float) -> Tensor:
    """KL(softmax(q_teacher / temperature) || softmax(q / temperature)) (Agarwal et al. 2022, section 4.1).

    Args:
        q_teacher: the teacher's values, `[B, A]`.
        q: the student's values, `[B, A]`; the gradient flows through these alone.
        temperature: tau, above 0.

    Returns:
        The divergences, `[B]`.

    Raises:
        ValueError: the shapes differ, or the temperature is not above 0.
    """
    return policy_distillation(q_teacher, q / temperature, temperature)


def policy_distillation(q_teacher: Tensor, logits: Tensor, temperature: float) -> Tensor:
    """KL(softmax(q_teacher / temperature) || softmax(logits)) (Schmitt et al. 2018, eq. 3, but for a constant).

    Args:
        q_teacher: the teacher's values, `[B, A]`.
        logits: of the student's policy, `[B, A]`; the gradient flows through these alone.
        temperature: tau of the teacher, above 0.

    Returns:
        The divergences, `[B]`.

    Raises:
        ValueError: the shapes differ, or the temperature is not above 0.
    """
    labels, known = _labels(q_teacher, logits, temperature)
    log_teacher = (labels / temperature).log_softmax(dim=1)
    return (log_teacher.exp() * (log_teacher - logits.log_softmax(dim=1))).sum(dim=1) * known


def best_action_distillation(q_teacher: Tensor, q: Tensor, temperature: float) -> Tensor:
    """-log softmax(q / temperature) of the teacher's greedy action: behaviour cloning.

    Args:
        q_teacher: the teacher's values, `[B, A]`.
        q: the student's values, `[B, A]`; the gradient flows through these alone.
        temperature: tau, above 0.

    Returns:
        The cross-entropies, `[B]`.

    Raises:
        ValueError: the shapes differ, or the temperature is not above 0.
    """
    labels, known = _labels(q_teacher, q, temperature)
    return -_chosen((q / temperature).log_softmax(dim=1), labels.argmax(dim=1)) * known


def value_error(q_teacher: Tensor, q: Tensor) -> Tensor:
    """Mean over the actions of (q - q_teacher)^2, `[B]`; both are `[B, A]`.

    Raises:
        ValueError: the shapes differ.
    """
    labels, known = _labels(q_teacher, q, 1.0)
    return ((q - labels) ** 2).mean(dim=1) * known


def large_margin(q: Tensor, a_teacher: Tensor, margin: float, *, of_maximum: bool = False) -> Tensor:
    """The margin by which the teacher's action should be the best (Hester et al. 2018, "Deep Q-learning from demos").

    With l(a) = margin where a is not the teacher's action a_E, and 0 where it is: `of_maximum` gives their equation,
    max_a [q(a) + l(a)] - q(a_E); otherwise the mean over a of max(0, q(a) + l(a) - q(a_E)).

    Args:
        q: the student's values, `[B, A]`.
        a_teacher: the teacher's actions, integers `[B]`.
        margin: at least 0.
        of_maximum: which of the two equations.

    Returns:
        The losses, `[B]`.

    Raises:
        ValueError: the actions have another shape, or the margin is negative.
    """
    if margin < 0:
        raise ValueError(f"margin must be >= 0, got {margin}")
    _check_actions(q, a_teacher)
    others = margin * (torch.arange(q.shape[1], device=q.device) != a_teacher.unsqueeze(1))
    excess = q + others - _chosen(q, a_teacher).unsqueeze(1)
    return excess.amax(dim=1) if of_maximum else excess.clamp(min=0).mean(dim=1)


def conservative(q: Tensor, a: Tensor, temperature: float) -> Tensor:
    """The term of conservative Q-learning (Kumar et al. 2020, eq. 4): logsumexp_a(q(a) / tau) - q(a_data) / tau.

    Args:
        q: the student's values, `[B, A]`.
        a: the actions of the data, integers `[B]`.
        temperature: tau, above 0.

    Returns:
        The losses, `[B]`.

    Raises:
        ValueError: the actions have another shape, or the temperature is not above 0.
    """
    _check_temperature(temperature)
    _check_actions(q, a)
    scaled = q / temperature
    return scaled.logsumexp(dim=1) - _chosen(scaled, a)


def clipped_weight(normalized_score: float) -> float:
    """The weight lambda of a teacher's term: 1 minus the normalised score of its student, in [0, 1]."""
    return min(max(1.0 - normalized_score, 0.0), 1.0)


def _labels(q_teacher: Tensor, q: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Return the teacher's values with zeros where a row is no label, and which rows are labels, `[B]`."""
    _check_temperature(temperature)
    if q.ndim != 2 or q_teacher.shape != q.shape:
        raise ValueError(
            f"q_teacher must have the shape [B, A] of q, {list(q.shape)}, got {list(q_teacher.shape)}: a teacher and "
            "its student have the same actions"
        )
    known = q_teacher.isfinite().all(dim=1)
    return torch.where(known.unsqueeze(1), q_teacher.detach(), torch.zeros_like(q_teacher)), known


def _chosen(q: Tensor, a: Tensor) -> Tensor:
    return q.gather(1, a.long().unsqueeze(1)).squeeze(1)


def _check_temperature(temperature: float) -> None:
    if not temperature > 0:
        raise ValueError(f"temperature must be > 0, got {temperature}")


def _check_actions(q: Tensor, a: Tensor) -> None:
    if q.ndim != 2 or tuple(a.shape) != (len(q),):
        raise ValueError(f"a must have shape [B] to fit q {list(q.shape)}, got {list(a.shape)}")


@gin.configurable(module="agents", denylist=["weight"])
def create_linear_schedule(weight: float, initial_lr: float = 1e-4, final_lr: float = 1e-5) -> float:
    """Return the learning rate lambda * initial_lr + (1 - lambda) * final_lr.

    Args:
        weight: lambda, the weight of the teacher's term, in [0, 1].
        initial_lr: The rate at lambda = 1, as in the offline phase.
        final_lr: The rate at lambda = 0.

    Raises:
        ValueError: A rate is negative, or lambda lies outside [0, 1].
    """
    if not 0 <= weight <= 1:
        raise ValueError(f"lambda must lie in [0, 1], got {weight}")
    for name, rate in (("initial_lr", initial_lr), ("final_lr", final_lr)):
        if not isinstance(rate, int | float) or isinstance(rate, bool) or not 0 <= rate < float("inf"):
            raise ValueError(f"create_linear_schedule.{name} must be a finite number >= 0, got {rate!r}")
    return weight * initial_lr + (1 - weight) * final_lr

"""Returns and losses of policies with a value, as pure functions of sequences, time first.

They are V-trace's, PPO's, IMPACT's and SAC's.

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
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class VTraceTerms(NamedTuple):
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
) -> VTraceTerms:
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
        torch.addcmul(deltas[s], carries[s], errors[s + 1], out=errors[s])
    targets = values + errors
    pg_rhos = mask * ratios.clamp(max=clip_rho if clip_pg_rho is None else clip_pg_rho)
    advantages = pg_rhos * (rewards + discounts * targets[1:] - values[:-1])
    return VTraceTerms(targets[:-1], advantages)


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


def masked_mean(losses: Tensor, mask: Tensor, scale: Tensor | None = None) -> Tensor:
    """Return B numbers `[B]` whose mean is the mean of losses `[T, B]` where the mask is 1; 0 where it is nowhere.

    Args:
        losses: As said.
        mask: As said, `[T, B]`.
        scale: What `scale_of_mean` returns; None for that of the mask. Where several means are of one mask it is
            computed once.
    """
    return (losses * mask).sum(dim=0) * (scale_of_mean(mask) if scale is None else scale)


def scale_of_mean(mask: Tensor, count: Tensor | None = None) -> Tensor:
    """Return the factor that makes a sum over the time of a mask `[T, B]` a part of a mean: B / count.

    Args:
        mask: As said.
        count: What the sum of the losses is divided by; None for the sum of the mask.
    """
    divisor = mask.sum().clamp(min=1.0) if count is None else torch.where(count > 0, count, 1.0)
    return mask.shape[1] / divisor


# Returns and losses of proximal policy optimisation (Schulman et al. 2017, arXiv 1707.06347), as pure functions.
#
# Sequences are time first, `[T, B]` or `[T]`, with the rows of `replay.sequences`: a row where `mask` is 0 holds the
# final observation of an episode and no decision. Losses are of single decisions, of any shape.


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
    number = torch.from_numpy(np.arange(len(sizes)).repeat(sizes)).to(mask.device)  # of each sequence's minibatch

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
    return clipped_at(least_policy_loss(advantages, epsilon), log_ratios, advantages)


def least_policy_loss(advantages: Tensor, epsilon: float) -> Tensor:
    """Return the losses at which ratios are clipped, `[...]`; see `clipped_policy_loss`."""
    return -advantages - epsilon * advantages.abs()


def clipped_at(least: Tensor, log_ratios: Tensor, advantages: Tensor) -> Tensor:
    """Return `clipped_policy_loss` with what `least_policy_loss` gives."""
    return (log_ratios.exp() * -advantages).clamp(min=least)


def target_clipped_log_ratios(log_pi: Tensor, log_target: Tensor, log_mu: Tensor, rho: float) -> Tensor:
    """Return log w, IMPACT's ratios in PPO's clipped loss (Luo et al. 2020, arXiv 1912.00167, section 3.1), `[...]`.

        w = min(mu(a | x) / pi'(a | x), rho) pi(a | x) / mu(a | x)

    Where mu is at most rho pi', w is the ratio of pi to the target policy pi', as PPO's is to the policy before its
    passes; elsewhere it is smaller, so that no action that pi' hardly takes outweighs the others.

    Args:
        log_pi: log pi(a | x) of the policy that learns, `[...]`.
        log_target: log pi'(a | x) of the target network, `[...]`.
        log_mu: log mu(a | x) of the policy that acted, `[...]`.
        rho: The largest ratio of mu to pi', at least 1.
    """
    return log_pi - log_mu + (log_mu - log_target).clamp(max=math.log(rho))


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


# The losses of agents that maximise entropy beside the return, as pure functions of batches of one step.
#
# They are those of Haarnoja et al., "Soft actor-critic algorithms and applications", 2018 (arXiv 1812.05905). The names
# carry the time index as in `losses.values`: `q_tm1` and `log_prob_tm1` belong to the observation of the decision that
# was taken, `q_t` and `log_prob_t` to the next one. E is the number of critics, B the batch size. Each loss is one
# number for each transition, whose mean is descended.


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

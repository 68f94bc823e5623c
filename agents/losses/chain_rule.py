"""The losses of SAC and PPO for perceptrons, with their gradients by the chain rule in the place of autograd's.

For networks this small autograd's records and its many small operations take a tenth to a fifth of an update. Here the
layers keep what they read, and one function walks back through them. A layer that reads x and gives y = x W^T + b, with
a ReLU before the next one, has

    dL/dW = (dL/dy)^T x        dL/db = sum of dL/dy over the batch        dL/dx = dL/dy W, and 0 where x is not positive

**SAC**: `joint_loss` computes only what is needed: no gradient of the critics' weights from the policy's loss.
`losses.actor_critic` has the formulae of the loss. With d = std * noise, u = mean + d and the action a = tanh(u), the
slopes of the policy's loss are

    log pi(a | o) = sum_i [2 log(e^u_i + e^-u_i) - log std_i - noise_i^2 / 2] - A (log(2 pi) / 2 + 2 log 2)
    d/du = 2 alpha a - (1 - a^2) dQ/da        d/d mean = d/du        d/d log std = d d/du - alpha

**PPO**: `clipped_loss` is of a Gaussian policy and a value, two perceptrons with tanh that are computed as one.
`losses.actor_critic` has the formulae. With z = (a - mean) / std, the ratio w and the advantage A, the slopes of the
policy's loss are, where the ratio is not clipped,

    d/d log pi = -w A        d log pi/d mean = z / std        d log pi/d log std = z^2 - 1

A loss is a node of autograd, so that terms may be added to it. Where nothing is added, a learner takes the gradients
from the node itself (`gradients_of`): to start autograd for them takes longer than a layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear

from async_wrappers.agents.losses.actor_critic import clipped_at, least_policy_loss

Layers = Sequence[nn.Linear]
Gradients = Mapping[Tensor, Tensor]  # by the parameter


def gradients_of(loss: Tensor, parameters: Iterable[Tensor] = ()) -> Callable[[Tensor], Gradients] | None:
    """Return the function from the gradients of losses `[B]` to those of parameters; None where autograd is needed.

    It is for another loss than this module's, and for hooks on the loss or on parameters, which autograd alone calls.
    """
    found: Any = getattr(loss.grad_fn, "chain_rule", None)
    ours = isinstance(found, partial) and found.func in (_joint_gradients, _clipped_gradients)
    return found if ours and not any(map(_is_hooked, (loss, *parameters))) else None


def _is_hooked(tensor: Tensor) -> bool:
    return bool(tensor._backward_hooks or getattr(tensor, "_post_accumulate_grad_hooks", None))


def _added(each: Iterable[tuple[Tensor, Tensor]]) -> dict[Tensor, Tensor]:
    """Return gradients by the parameter; those of layers that share one are added."""
    found: dict[Tensor, Tensor] = {}
    for parameter, gradient in each:
        found[parameter] = found[parameter] + gradient if parameter in found else gradient
    return found


def _by_place(context: Any, slope: Tensor) -> Iterator[Tensor | None]:
    """Yield the gradients in the order of a node's parameters; that of a parameter with two places at the first."""
    found = dict(context.chain_rule(slope))
    yield from (found.pop(parameter, None) for parameter in context.parameters)


# SAC.


def perceptrons(modules: Iterable[nn.Module]) -> list[Layers] | None:
    """Return the linear layers of modules that are those with a ReLU between any two; None if one is something else."""
    found: list[Layers] = []
    for module in modules:
        layers: list[Any] = list(module) if type(module) is nn.Sequential else []
        kinds = [type(layer) for layer in layers]
        if not kinds or kinds != [nn.Linear, nn.ReLU] * (len(kinds) // 2) + [nn.Linear]:
            return None
        if any(layer.bias is None for layer in layers[::2]):
            return None
        found.append(layers[::2])
    return found


def forward(layers: Layers, inputs: Tensor) -> list[Tensor]:
    """Return what each layer reads, `inputs` first, and what the last one gives."""
    kept = [inputs]
    for layer in layers:
        inputs = linear(inputs, layer.weight, layer.bias)
        kept.append(inputs.relu_() if layer is not layers[-1] else inputs)
    return kept


def backward(layers: Layers, kept: Sequence[Tensor], slope: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the parameters with their gradients, the last layer's first, from the gradient of what it gives.

    Args:
        layers: As in `forward`.
        kept: What `forward` returned.
        slope: dL/dy of the last layer, `[B, outputs]`.
    """
    for number in range(len(layers) - 1, -1, -1):
        layer, read = layers[number], kept[number]
        yield layer.weight, torch.mm(slope.t(), read)
        yield layer.bias, slope.sum(0)
        if number:
            slope = _through(layer, read, slope)


def slope_by_inputs(layers: Layers, kept: Sequence[Tensor], slope: Tensor, last: int) -> Tensor:
    """Return the gradient by the last numbers of `inputs`, `[B, last]`; the arguments are those of `backward`."""
    for number in range(len(layers) - 1, 0, -1):
        slope = _through(layers[number], kept[number], slope)
    return torch.mm(slope, layers[0].weight[:, -last:])


def _through(layer: nn.Linear, read: Tensor, slope: Tensor) -> Tensor:
    """Return dL/dx before the ReLU that gave x."""
    through = slope * layer.weight if len(layer.weight) == 1 else torch.mm(slope, layer.weight)
    passed: Tensor = torch.ops.aten.threshold_backward(through, read, 0, grad_input=through)
    return passed


class Given(NamedTuple):
    """What the loss is a function of, beside parameters; B transitions, actions of A numbers, F features.

    Attributes:
        actor: The policy's layers, from features to means and logarithms of deviations.
        critics: Those of each critic, from features and action to a value.
        targets: Those of each target critic.
        log_temperature: log alpha, a parameter.
        seen: Features that the policy reads, `[B, F]`.
        next_seen: Those of the next observation.
        met: Features that the critics read, `[B, F]`.
        next_met: Those of the next observation.
        action: As stored, `[B, A]`.
        reward: `[B]`.
        discount: `[B]`.
        noise: Standard normal, `[2 B, A]`: of the actions after the next observations, and then after these.
        log_std_range: What the logarithms of the deviations are clipped to.
        target_entropy: In nats.
    """

    actor: Layers
    critics: Sequence[Layers]
    targets: Sequence[Layers]
    log_temperature: Tensor
    seen: Tensor
    next_seen: Tensor
    met: Tensor
    next_met: Tensor
    action: Tensor
    reward: Tensor
    discount: Tensor
    noise: Tensor
    log_std_range: tuple[float, float]
    target_entropy: float


def joint_loss(given: Given, parameters: Sequence[Tensor]) -> tuple[Tensor, Tensor, Mapping[str, Tensor]]:
    """Return the sum of the critics', the policy's and the temperature's loss, `[B]`, of which autograd goes on.

    Args:
        given: See there.
        parameters: All of actor, critics and temperature, which receive gradients.

    Returns:
        The loss; the critics' errors, `[E, B]`; scalars to report.
    """
    found: dict[str, Any] = {}
    loss: Tensor = _JointLoss.apply(given, found, *parameters)  # type: ignore[no-untyped-call]
    return loss, found["error"], found["metrics"]


class _JointLoss(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, given: Given, found: dict[str, Any], *parameters: Tensor) -> Tensor:
        """Return the losses `[B]`."""
        rows = len(given.seen)
        # What one network reads twice it reads at once: half the calls, and larger products.
        both = forward(given.actor, torch.cat([given.next_seen, given.seen]))
        actor, raw = [each[rows:] for each in both], both[-1]
        mean, log_std = raw.chunk(2, dim=1)
        log_std, alpha = log_std.clamp(*given.log_std_range), given.log_temperature.exp()
        spread = log_std.exp().mul_(given.noise)
        before = mean + spread
        drawn = before.tanh()
        terms = torch.logaddexp(before, -before).mul_(2).sub_(log_std).addcmul_(given.noise, given.noise, value=-0.5)
        size = drawn.shape[1]
        log_prob = terms.sum(1).sub_(size * (0.5 * math.log(2 * math.pi) + 2 * math.log(2)))
        (next_drawn, drawn), (next_log_prob, log_prob) = drawn.chunk(2), log_prob.chunk(2)

        after = torch.cat([given.next_met, next_drawn], dim=1)
        least = torch.cat([forward(critic, after)[-1] for critic in given.targets], dim=1).amin(dim=1)
        target = given.reward + given.discount * (least - alpha * next_log_prob)
        inputs = torch.cat([torch.cat([given.met, given.met]), torch.cat([given.action, drawn])], dim=1)
        of_both = [forward(critic, inputs) for critic in given.critics]
        critics = [[each[:rows] for each in kept] for kept in of_both]
        judged = [[each[rows:] for each in kept] for kept in of_both]
        values = torch.cat([kept[-1] for kept in critics], dim=1).t().contiguous()
        error = values - target
        least, which = torch.cat([kept[-1] for kept in judged], dim=1).min(dim=1)

        excess = log_prob + given.target_entropy
        of_critics, of_policy = error.square().sum(0).mul_(0.5), alpha * log_prob - least
        of_temperature = -given.log_temperature * excess
        means = torch.stack([of_critics, of_policy, of_temperature, -log_prob]).mean(1).unbind()
        names = "CriticLoss", "PolicyLoss", "TemperatureLoss", "Entropy"
        found["error"] = error
        found["metrics"] = dict(zip(names, means, strict=True)) | {"Value": values.mean(), "Temperature": alpha}
        begun = raw[len(drawn) :, size:], spread[len(drawn) :]
        numbers = alpha, drawn, *begun, error, which, excess
        context.chain_rule = partial(_joint_gradients, given, (actor, critics, judged), numbers)
        context.parameters = parameters
        return of_critics + of_policy + of_temperature

    @staticmethod
    @once_differentiable
    def backward(context: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of the parameters from that of each transition's loss."""
        return (None, None, *_by_place(context, slope))


@torch.no_grad()
def _joint_gradients(given: Given, layers: tuple[Any, ...], numbers: Sequence[Tensor], slope: Tensor) -> Gradients:
    """Return the gradients of the parameters from that of each transition's loss, `[B]`.

    Args:
        given: What the loss is a function of.
        layers: What the layers of the actor read, and those of each critic of the stored and of the drawn actions.
        numbers: The temperature; the drawn actions, with their `log_std` and `std * noise`; the critics' errors, which
            critic is the least, and how far the log-density is above minus the target entropy.
        slope: `[B]`.
    """
    actor, critics, judged = layers
    alpha, drawn, log_std, spread, error, which, excess = numbers
    each = [(given.log_temperature, -torch.dot(excess, slope))]
    for critic, kept, of_one in zip(given.critics, critics, error * slope, strict=True):
        each += backward(critic, kept, of_one.unsqueeze(1))

    rows = slope.unsqueeze(1)
    # The least critic of a transition alone has a slope. Its rows by themselves would be fewer products of numbers, but
    # how many they are is known on the host only once a GPU has computed them.
    slopes = [
        slope_by_inputs(critic, kept, rows * (which == number).unsqueeze(1), drawn.shape[1])
        for number, (critic, kept) in enumerate(zip(given.critics, judged, strict=True))
    ]
    by_action = sum(slopes[1:], start=slopes[0])
    by_mean = 2 * alpha * rows * drawn - by_action * (1 - drawn.square())
    low, high = given.log_std_range
    inside = (log_std >= low) & (log_std <= high)
    by_log_std = (by_mean * spread - alpha * rows) * inside
    each += backward(given.actor, actor, torch.cat([by_mean, by_log_std], dim=1))
    return _added(each)


# PPO.


class Minibatch(NamedTuple):
    """What the clipped loss is a function of, beside parameters; R decisions, actions of A numbers, F features.

    Attributes:
        layers: Weight `[2, in, out]` and bias `[2, 1, out]` of each layer of the policy and the value. The policy's
            last layer gives the means; the value is the first output of its own.
        log_std: The logarithms of the deviations, a parameter `[A]`.
        log_std_range: What they are clipped to.
        features: What both read, `[R, F]`.
        action: As it was drawn, `[R, A]`.
        log_mu: Its log-density under the policy that acted, `[R]`.
        advantage: `[R]`.
        target: Of the value, `[R]`.
        epsilon: How far a ratio is followed.
        of_value: Weight of the value's squared error.
        of_entropy: Weight of the policy's entropy.
    """

    layers: Sequence[tuple[Tensor, Tensor]]
    log_std: Tensor
    log_std_range: tuple[float, float]
    features: Tensor
    action: Tensor
    log_mu: Tensor
    advantage: Tensor
    target: Tensor
    epsilon: float
    of_value: float
    of_entropy: float


def clipped_loss(given: Minibatch) -> tuple[Tensor, Mapping[str, Tensor]]:
    """Return the sum of the policy's, the value's and the entropy's loss, `[R]`, of which autograd goes on.

    Returns:
        The loss; numbers of each decision to report, `[R]` by name.
    """
    found: dict[str, Tensor] = {}
    parameters = [each for layer in given.layers for each in layer]
    loss: Tensor = _ClippedLoss.apply(given, found, given.log_std, *parameters)  # type: ignore[no-untyped-call]
    return loss, found


class _ClippedLoss(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, given: Minibatch, found: dict[str, Tensor], *parameters: Tensor) -> Tensor:
        """Return the losses `[R]`."""
        kept = [given.features.expand(2, *given.features.shape)]
        for weight, bias in given.layers[:-1]:
            kept.append(torch.baddbmm(bias, kept[-1], weight).tanh_())
        weight, bias = given.layers[-1]
        mean, values = torch.baddbmm(bias, kept[-1], weight).unbind()
        values = values[:, 0]

        log_std = given.log_std.clamp(*given.log_std_range)
        std, size = log_std.exp(), len(log_std)
        noise = (given.action - mean).div_(std)
        squares = noise.square()
        log_volume = log_std.sum() + 0.5 * size * math.log(2 * math.pi)
        log_ratios = squares.sum(1).mul_(-0.5).sub_(log_volume).sub_(given.log_mu)
        least = least_policy_loss(given.advantage, given.epsilon)
        policy_loss = clipped_at(least, log_ratios, given.advantage)
        errors = values - given.target
        value_loss = errors.square()
        loss = torch.add(policy_loss, value_loss, alpha=given.of_value)
        if given.of_entropy:
            loss -= given.of_entropy * (log_volume + 0.5 * size)
        found |= {"PolicyLoss": policy_loss, "ValueLoss": value_loss, "Value": values}
        # Where the ratio is clipped the loss is a constant, the least one; elsewhere it is its own slope by log pi.
        numbers = policy_loss * (policy_loss > least), noise, squares, std, errors
        context.chain_rule = partial(_clipped_gradients, given, kept, numbers)
        context.parameters = parameters
        return loss

    @staticmethod
    @once_differentiable
    def backward(context: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of the parameters from that of each decision's loss."""
        return (None, None, *_by_place(context, slope))


@torch.no_grad()
def _clipped_gradients(given: Minibatch, kept: Sequence[Tensor], numbers: Sequence[Tensor], slope: Tensor) -> Gradients:
    """Return the gradients of the parameters from that of each decision's loss, `[R]`.

    Args:
        given: What the loss is a function of.
        kept: What each layer read.
        numbers: The policy's loss where its ratio is not clipped, else 0; z and its squares, the deviations, and the
            values' errors.
        slope: `[R]`.
    """
    by_log_prob, noise, squares, std, errors = numbers
    by_log_prob = (by_log_prob * slope).unsqueeze(1)
    by_log_std = ((squares - 1) * by_log_prob).sum(0)
    if given.of_entropy:
        by_log_std -= given.of_entropy * slope.sum()
    low, high = given.log_std_range
    by_log_std *= (given.log_std >= low) & (given.log_std <= high)

    by_outputs = kept[-1].new_zeros((2, len(noise), given.layers[-1][0].shape[2]))
    torch.mul(noise / std, by_log_prob, out=by_outputs[0])
    by_outputs[1, :, 0] = (2 * given.of_value) * errors * slope
    each = [(given.log_std, by_log_std)]
    for (weight, bias), read in zip(reversed(given.layers), reversed(kept), strict=True):
        each += [(weight, torch.bmm(read.transpose(1, 2), by_outputs)), (bias, by_outputs.sum(1, keepdim=True))]
        if read is not kept[0]:
            through = torch.bmm(by_outputs, weight.transpose(1, 2))
            by_outputs = torch.ops.aten.tanh_backward(through, read)
    return _added(each)

"""Networks of a policy and a value for Discrete and real-valued actions, with the first weights of PPO.

Of vectors policy and value have hidden layers of their own (`PolicyValueNetwork`). Images, and networks with memory,
have one torso for both (`SequenceNetwork` with `PolicyValueHead`).

The weights begin as in Huang et al., "The 37 implementation details of proximal policy optimization", 2022, detail 2:
orthogonal (Saxe et al. 2014) with the gain sqrt 2 in hidden layers, 0.01 before the policy and 1 before the value; the
biases are 0, and standard deviations 1 unless `log_std_init` says otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from numbers import Real
from typing import Any

import gin
import torch
from torch import Tensor, nn

from async_wrappers.agents.networks.cores import CORES
from async_wrappers.agents.networks.q_network import checked_shapes, resolved
from async_wrappers.agents.networks.sequence_network import SequenceNetwork, action_windows, checked_window, torso_of
from async_wrappers.agents.networks.torsos import (
    TorsoFactory,
    as_float32,
    check_observation,
    check_sizes,
    is_vector,
)
from async_wrappers.agents.spaces.actions import Actions
from async_wrappers.agents.spaces.compute import without_autocast
from async_wrappers.agents.spaces.schema import at, first_array, leaves

LOG_STD_RANGE = (
    -10.0,
    4.0,
)  # where a standard deviation is held, 5e-5 to 55, so that it can neither vanish nor explode

_GAIN, _POLICY_GAIN, _VALUE_GAIN = math.sqrt(2), 0.01, 1.0
_STDS = ("parameter", "network")


class ActionParameters(nn.Module):
    """Turns what a network's last layer gives into the parameters of the actions' distribution.

    Those of Discrete actions are logits. Those of real-valued ones are means and the logarithms of the standard
    deviations, which are parameters of their own, the same for every observation, or come from the layer too.

    Args:
        actions: The action space.
        std: ``"parameter"`` or ``"network"``, for real-valued actions.
        log_std_init: The logarithm of their first standard deviations, in units of the stored action.

    Attributes:
        input_size: Numbers that the layer gives.
    """

    def __init__(self, actions: Actions, std: str = "parameter", log_std_init: float = 0.0) -> None:
        super().__init__()
        shape, dtype = actions.column
        self.log_std: nn.Parameter | None = None
        self._log_std_init = log_std_init
        self._real = dtype.kind == "f"
        self._shape: tuple[int, ...] = (*shape, actions.inputs // math.prod(shape))
        if self._real:
            self._shape = shape
            if std == "parameter":
                self.log_std = nn.Parameter(torch.full(shape, float(log_std_init)))
            else:
                self._shape = (*shape[:-1], 2 * shape[-1])
        self.input_size = math.prod(self._shape)

    def first_biases(self) -> Tensor:
        """Return the layer's first biases `[input_size]`: 0, but for logarithms of deviations that it gives."""
        biases = torch.zeros(self._shape)
        if self._real and self.log_std is None:
            biases.chunk(2, dim=-1)[1].fill_(self._log_std_init)
        return biases.flatten()

    def forward(self, given: Tensor, rows: tuple[int, ...] = (-1,)) -> Tensor:
        """Map `[N, input_size]` to parameters `[*rows, ..., P]` (`distributions`)."""
        parameters = given.view(*rows, *self._shape)
        if not self._real:
            return parameters
        if self.log_std is not None:
            log_std = self.log_std.clamp(*LOG_STD_RANGE)
            return torch.cat([parameters, log_std.expand_as(parameters)], dim=-1)
        mean, log_std = parameters.chunk(2, dim=-1)
        return torch.cat([mean, log_std.clamp(*LOG_STD_RANGE)], dim=-1)


class PolicyValueHead(nn.Module):
    """Two linear layers on the same features: the parameters of a policy and a value `[B]`.

    Args:
        input_size: Number of features.
        actions: The action space.
        std: As in `create_policy_value_network`.
        log_std_init: The same.
    """

    def __init__(self, input_size: int, actions: Actions, std: str = "parameter", log_std_init: float = 0.0) -> None:
        super().__init__()
        check_sizes("input_size", [input_size])
        self.parameters_of = ActionParameters(actions, std, log_std_init)
        self.policy = nn.Linear(input_size, self.parameters_of.input_size)
        self.value = nn.Linear(input_size, 1)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Map features `[B, input_size]` to parameters `[B, ..., P]` and values `[B]`."""
        return self.parameters_of(self.policy(features)), self.value(features).squeeze(1)


class PolicyValueNetwork(nn.Module):
    """A policy and a value of vectors, each with hidden layers of its own and tanh, computed as one.

    Both read the observation's numbers, flattened and joined. Layer i of the two is one batched product, with weights
    `[2, in, out]`, which on a CPU takes less time than two (`benchmarks/learning_speed.py`). It remembers no more than
    a window of its last actions, and is called as a `SequenceNetwork`.

    Args:
        observation_shape: Of one observation, `[k, *shape]`; for a Dict, the shapes by key.
        actions: The action space.
        hidden: Units of each hidden layer.
        std: As in `create_policy_value_network`.
        log_std_init: The same.
        action_window: The same.

    Attributes:
        feed_previous: False.
        state_size: Numbers of the window; 0 without one.
        action_window: As given.
    """

    feed_previous = False

    def __init__(
        self,
        observation_shape: Any,
        actions: Actions,
        hidden: Sequence[int] = (64, 64),
        std: str = "parameter",
        log_std_init: float = 0.0,
        action_window: int | None = None,
    ) -> None:
        super().__init__()
        self._actions, self.action_window = actions, checked_window(action_window, actions)
        self.state_size = actions.inputs * (self.action_window or 0)
        self.observation_shape = checked_shapes(observation_shape)
        self.parameters_of = ActionParameters(actions, std, log_std_init)
        entries = list(leaves(self.observation_shape))
        self._paths, self._shapes = [path for path, _ in entries], [shape for _, shape in entries]
        size = sum(map(math.prod, self._shapes))
        sizes = [size + self.state_size, *check_sizes("hidden", hidden), self.parameters_of.input_size]
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for layer, (given, units) in enumerate(pairwise(sizes)):
            weight = torch.zeros(2, given, units)
            last = layer == len(hidden)
            _orthogonal(weight[0], _POLICY_GAIN if last else _GAIN)
            # The value is the first output of its last layer; the others are not read.
            _orthogonal(weight[1, :, :1] if last else weight[1], _VALUE_GAIN if last else _GAIN)
            self.weights.append(nn.Parameter(weight))
            bias = torch.zeros(2, 1, units)
            if last:
                bias[0, 0] = self.parameters_of.first_biases()
            self.biases.append(nn.Parameter(bias))

    def forward(
        self, observation: Any, previous_action: Tensor, previous_reward: Tensor, first: Tensor, state: Tensor
    ) -> tuple[tuple[Tensor, Tensor], Tensor]:
        """Return parameters `[T, B, ..., P]`, values `[T, B]` and the state after; see `SequenceNetwork.forward`."""
        return self._decide(self._numbers(observation, first.shape), previous_action, first, state)

    def _numbers(self, observation: Any, rows: torch.Size) -> Tensor:
        """Return the numbers of observations `[*rows, *observation_shape]` in one vector each, `[N, F]`."""
        each = [at(observation, path) if path else observation for path in self._paths]
        for tensor, shape in zip(each, self._shapes, strict=True):
            if tensor.shape != (*rows, *shape):
                raise ValueError(f"observation must have the shape {[*rows, *shape]}, got {list(tensor.shape)}")
        each = [as_float32(tensor).reshape(rows.numel(), -1) for tensor in each]
        return each[0] if len(each) == 1 else torch.cat(each, dim=1)

    def encode(self, observation: Any) -> Tensor:
        """Return the numbers of observations `[N, *observation_shape]` in one vector each, `[N, F]`."""
        check_observation(observation, self.observation_shape)
        return self._numbers(observation, first_array(observation).shape[:1])

    def decide(
        self, features: Tensor, previous_action: Tensor, previous_reward: Tensor, first: Tensor, state: Tensor
    ) -> tuple[tuple[Tensor, Tensor], Tensor]:
        """Return what `forward` does, from what `encode` gives, `[T, B, F]`."""
        return self._decide(features.flatten(0, 1), previous_action, first, state)

    def _decide(
        self, features: Tensor, previous_action: Tensor, first: Tensor, state: Tensor
    ) -> tuple[tuple[Tensor, Tensor], Tensor]:
        if self.action_window is not None:
            windows = action_windows(self._actions, previous_action, first, state)
            features, state = torch.cat([features, windows.flatten(0, 1)], dim=1), windows[-1]
        return self._outputs(features, first.shape), state

    @property
    def layers(self) -> list[tuple[Tensor, Tensor]]:
        """Weight `[2, in, out]` and bias `[2, 1, out]` of each layer of the two."""
        # Read from the dicts: a `ParameterList` looks each entry up by its name, which takes as long as a small layer.
        weights, biases = (parameters._parameters.values() for parameters in (self.weights, self.biases))
        layers: list[Any] = list(zip(weights, biases, strict=True))
        return layers

    def _outputs(self, features: Tensor, rows: torch.Size) -> tuple[Tensor, Tensor]:
        layers = self.layers
        hidden = features.expand(2, *features.shape)
        for weight, bias in layers[:-1]:
            hidden = torch.baddbmm(bias, hidden, weight).tanh()
        weight, bias = layers[-1]
        with without_autocast(hidden):
            # bfloat16 holds three digits, and the differences of two values are less than that.
            policy, value = torch.baddbmm(bias, hidden.float(), weight).unbind()
        return self.parameters_of(policy, rows), value[:, 0].view(rows)

    def initial_state(self, rows: int) -> Tensor:
        """Return the state that episodes begin with, zeros `[rows, state_size]`."""
        return torch.zeros((rows, self.state_size), device=self.weights[0].device)


def _orthogonal(weight: Tensor, gain: float) -> None:
    """Fill weights `[in, out]`; drawn as those `[out, in]` of a linear layer."""
    with torch.no_grad():
        weight.copy_(nn.init.orthogonal_(torch.empty(weight.shape[::-1]), gain).T)


@gin.configurable(module="agents")
def create_policy_value_network(
    observation_shape: Any,
    actions: Actions,
    *,
    torso: str | TorsoFactory = "auto",
    hidden: Sequence[int] | None = None,
    core: str | Callable[[int], nn.Module] | None = None,
    feed_previous: bool = False,
    std: str = "parameter",
    log_std_init: float = 0.0,
    action_window: int | None = None,
    fast: str | TorsoFactory | None = None,
    fast_age: int = 0,
) -> nn.Module:
    """Build a network of a policy and a value, for agents such as `actor_critic.ppo.PPO`.

    Args:
        observation_shape: Shape of one observation; for a Dict, the shapes by key.
        actions: The action space, which the agent gives.
        torso: "auto": a `PolicyValueNetwork` for vectors without memory, else a torso for both as in
            `q_network.create_network`; or the name or the factory of a torso for both.
        hidden: Units of the hidden layers: those of a `PolicyValueNetwork`, (64, 64) by default; those between core and
            head of another network, by default as in `SequenceNetwork`.
        core: "lstm", "gru", a factory such as ``@LSTMCore``, or None for no memory.
        feed_previous: Whether the core (the head, where there is none) reads the previous action and reward too; see
            `SequenceNetwork`.
        std: Where the standard deviations of real-valued actions come from: "parameter", one for each number of an
            action, whatever is observed; "network", a last layer's further outputs.
        log_std_init: Natural logarithm of the first standard deviations of real-valued actions, in `LOG_STD_RANGE`. A
            deviation is in units of the stored action, whose bounds are -1 and 1; of a number without two bounds, in
            the environment's unit. 0 is half the range, -2.3 is a tenth of that.
        action_window: Last actions that are read beside the observation, K; None for none. Under delay these are the
            actions of the last K decisions that were applied. A `PolicyValueNetwork` reads them in its first layers,
            another network as `SequenceNetwork` does.
        fast: The torso of a fast path, as in `create_actor_critic`; None for no fast path.
        fast_age: See `SequenceNetwork`.

    Raises:
        TypeError: `torso` or `core` is neither a name nor a factory.
        ValueError: A name is unknown, `log_std_init` or `action_window` is out of its range, a size does not suit the
            torso or core, or there is a window of chunks.
    """
    if std not in _STDS:
        raise ValueError(f"create_policy_value_network.std must be {' or '.join(map(repr, _STDS))}, got {std!r}")
    least, most = LOG_STD_RANGE
    is_number = isinstance(log_std_init, Real) and not isinstance(log_std_init, bool)
    if not is_number or not least <= log_std_init <= most:
        raise ValueError(
            f"create_policy_value_network.log_std_init must be a number from {least:g} to {most:g}, the logarithm of a "
            f"standard deviation (0 for 1), got {log_std_init!r}"
        )
    vectors = all(is_vector(shape) for _, shape in leaves(checked_shapes(observation_shape)))
    if torso == "auto" and vectors and core is None and not feed_previous and fast is None:
        units = (64, 64) if hidden is None else hidden
        return PolicyValueNetwork(observation_shape, actions, units, std, log_std_init, action_window)
    network = SequenceNetwork(
        observation_shape,
        actions.inputs,
        torso_of(observation_shape, "torso", torso),
        lambda features, _: PolicyValueHead(features, actions, std, log_std_init),
        None if core is None else resolved("core", core, CORES),
        feed_previous,
        "orthogonal",
        actions,
        action_window=action_window,
        hidden=hidden,
        fast=None if fast is None else torso_of(observation_shape, "fast", fast),
        fast_age=fast_age,
    )
    head: Any = network.head
    for layer, gain in ((head.policy, _POLICY_GAIN), (head.value, _VALUE_GAIN)):
        nn.init.orthogonal_(layer.weight, gain)
    with torch.no_grad():
        head.policy.bias.copy_(head.parameters_of.first_biases())
    return network

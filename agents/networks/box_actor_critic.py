"""Networks of an actor for real-valued actions and of several critics that read the action, for agents such as SAC.

    observation -> actor, a `SequenceNetwork` -> parameters of a Gaussian [B, 2 A]
    observation -> the critics' torso -> features; features, action -> E critics -> values [E, B]

The actor is a network of its own, so that workers and policies need nothing else. The critics share one torso, of
images alone. They are computed one after the other: on a CPU a batched product of the matrices of all critics takes 6 %
longer, as its operands leave the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import gin
import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from async_wrappers.agents.losses.chain_rule import Layers, perceptrons
from async_wrappers.agents.networks.q_network import TORSOS, DictTorso, auto_torso, checked_shapes, resolved
from async_wrappers.agents.networks.sequence_network import SequenceNetwork
from async_wrappers.agents.networks.torsos import (
    Initializer,
    TorsoFactory,
    as_float32,
    check_sizes,
    initialize,
    output_size,
)
from async_wrappers.agents.spaces.actions import BoxActions
from async_wrappers.agents.spaces.compute import without_autocast


class GaussianHead(nn.Module):
    """Hidden layers, and a linear one to the parameters of a Gaussian: means and logarithms of deviations `[B, 2 A]`.

    Args:
        input_size: Number of features.
        size: Numbers of an action, A.
        layers: Hidden layers, each followed by a ReLU.
        units: Units of each.

    Raises:
        ValueError: A size is not positive.
    """

    def __init__(self, input_size: int, size: int, layers: int = 2, units: int = 256) -> None:
        super().__init__()
        check_sizes("input_size", [input_size])
        self.layers = _layers(input_size, 2 * size, layers, units)

    def forward(self, features: Tensor) -> Tensor:
        """Map features `[B, input_size]` to parameters."""
        parameters: Tensor = self.layers(features)
        return parameters


class Critics(nn.Module):
    """E critics of observations and real-valued actions, of the same layers.

    Args:
        observation_shape: Shape of one observation, without the batch; for a Dict, the shapes by key.
        action_inputs: Numbers of an action.
        torso: Makes the torso, which all critics share, from `observation_shape`.
        number: Critics, E.
        layers: Hidden layers of each, each followed by a ReLU.
        units: Units of a hidden layer.
        initializer: How the weights of each layer of each critic begin (`torsos.initialize`).
        window_inputs: Numbers of a window of actions that is read beside the observation; 0 for none.

    Raises:
        ValueError: A size is not positive.
    """

    def __init__(
        self,
        observation_shape: Any,
        action_inputs: int,
        torso: Callable[[Any], nn.Module],
        number: int = 2,
        layers: int = 2,
        units: int = 256,
        initializer: Initializer = "torch",
        window_inputs: int = 0,
    ) -> None:
        super().__init__()
        self.torso = torso(checked_shapes(observation_shape))
        initialize(self.torso, initializer)
        check_sizes("number", [number])
        head = partial(_layers, output_size(self.torso) + window_inputs + action_inputs, 1, layers, units)
        self.each = nn.ModuleList(head() for _ in range(number))
        initialize(self.each, initializer)

    def encode(self, observation: Any, window: Tensor | None = None) -> Tensor:
        """Map observations `[B, *observation_shape]`, with windows of actions `[B, K, ...]`, to features `[B, F]`."""
        features: Tensor = self.torso(as_float32(observation))
        return features if window is None else torch.cat([features, window.flatten(1)], dim=1)

    def values(self, features: Tensor, action: Tensor, frozen: bool = False) -> Tensor:
        """Return the values `[E, B]`, in float32, of what `encode` gives and stored actions `[B, ...]`.

        Args:
            features: `[B, F]`.
            action: `[B, A]`.
            frozen: Whether gradients reach the action alone, and none the weights, which are not copied.
        """
        inputs = torch.cat([features, action.flatten(1)], dim=1)
        values = [_frozen(critic, inputs) if frozen else critic(inputs) for critic in self.each]
        return torch.cat(values, dim=1).T.float()

    def forward(self, observation: Any, action: Tensor, window: Tensor | None = None) -> Tensor:
        """Return the values `[E, B]` of observations, stored actions `[B, ...]` and windows; see `encode`."""
        features = self.encode(observation, window)
        with without_autocast(features):  # as the actor's head: bfloat16 is for torsos
            return self.values(features.float(), action)


def _layers(inputs: int, outputs: int, layers: int, units: int) -> nn.Sequential:
    """Return hidden layers, each with its ReLU, and a linear layer to the outputs."""
    made: list[nn.Module] = []
    for size in check_sizes("units", [units] * layers):
        made += [nn.Linear(inputs, size), nn.ReLU(inplace=True)]
        inputs = size
    return nn.Sequential(*made, nn.Linear(inputs, outputs))


def _frozen(critic: Any, inputs: Tensor) -> Tensor:
    """Return what a critic gives, as a function of its inputs alone: its weights get no gradient, which saves time."""
    for layer in critic:
        alone = isinstance(layer, nn.Linear)
        inputs = linear(inputs, layer.weight.detach(), layer.bias.detach()) if alone else layer(inputs)
    return inputs


class BoxActorCritic(nn.Module):
    """An actor, critics, and the logarithm of the temperature of the actor's entropy.

    Args:
        actor: Gives the parameters of the policy.
        critics: `Critics`, or a module with the same methods.

    Attributes:
        actor: As given: what policies and workers receive (`Learner`).
        critics: As given: what has a target (`Learner`).
        log_temperature: log alpha, a parameter that begins at 0.
    """

    def __init__(self, actor: SequenceNetwork, critics: nn.Module) -> None:
        super().__init__()
        self.actor, self.critics = actor, critics
        self.log_temperature = nn.Parameter(torch.zeros(()))

    @property
    def acting(self) -> nn.Module:
        """The actor."""
        return self.actor

    @property
    def with_target(self) -> nn.Module:
        """The critics."""
        return self.critics

    @property
    def state_size(self) -> int:
        """Numbers that the actor remembers."""
        return self.actor.state_size

    @property
    def fast_age(self) -> int | None:
        """How old the observation is that the actor's fast path reads, in frames; None without one."""
        age: int | None = self.actor.fast_age
        return age

    @property
    def feed_previous(self) -> bool:
        """Whether the actor reads the previous action and reward."""
        return self.actor.feed_previous


def plain_layers(network: Any) -> tuple[Layers, list[Layers]] | None:
    """Return the layers of the actor and of each critic, of which `losses.chain_rule` gives the gradient.

    Returns:
        None for a network of other parts than `Linear` layers with ReLUs between them, for a window of actions, and for
        a fast path.
    """
    actor, critics = network.actor, network.critics
    known = type(network) is BoxActorCritic and type(actor) is SequenceNetwork and type(critics) is Critics
    light = actor.action_window, actor.fast_age
    if not known or type(actor.head) is not GaussianHead or light != (None, None):
        return None
    if any(True for torso in (actor.torso, critics.torso) for _ in torso.parameters()):
        return None
    layers = perceptrons([actor.head.layers, *critics.each])
    return None if layers is None else (layers[0], layers[1:])


_OF_AGENT = ["num_critics", "num_layers", "hidden_units", "action_window", "critic_window"]


@gin.configurable(module="agents", denylist=_OF_AGENT)
def create_box_actor_critic(
    observation_shape: Any,
    actions: BoxActions,
    num_critics: int = 2,
    num_layers: int = 2,
    hidden_units: int = 256,
    *,
    torso: str | TorsoFactory = "auto",
    initializer: Initializer = "torch",
    action_window: int | None = None,
    critic_window: bool = False,
    fast: str | TorsoFactory | None = None,
    fast_age: int = 0,
) -> BoxActorCritic:
    """Build a network of an actor and critics, for agents such as `actor_critic.sac.SAC`.

    Args:
        observation_shape: Shape of one observation; for a Dict, the shapes by key.
        actions: The action space.
        num_critics: Number of critics; the agent gives it and the next two parameters.
        num_layers: Hidden layers of the actor and of each critic.
        hidden_units: Units of each.
        torso: Reads observations before these layers, one for the actor and one for the critics: "auto" (the Nature
            torso for images, none for vectors), or what `q_network.create_network` takes.
        initializer: As in `q_network.create_network`.
        action_window: Number K of last applied actions that the actor reads; None for none. The agent gives it and the
            next parameter.
        critic_window: Whether the critics read them too.
        fast: The torso of the actor's fast path, as `torso`; None for no fast path. The critics then have to judge
            actions by what it reads (``SACAgent.critic_at = "effect"``).
        fast_age: How old that is when the action is due, in frames.

    Raises:
        TypeError: `torso` or `initializer` is neither a name nor a factory.
        ValueError: A name is unknown, or a size does not suit the torso.
    """
    known: Mapping[str, TorsoFactory] = {**TORSOS, "auto": partial(auto_torso, hidden=())}

    def torso_of(name: str, torso: str | TorsoFactory) -> Callable[[Any], nn.Module]:
        made = resolved(name, torso, known)
        return partial(DictTorso, torso=made) if isinstance(observation_shape, Mapping) else made

    whole = torso_of("torso", torso)
    head = partial(GaussianHead, layers=num_layers, units=hidden_units)
    actor = SequenceNetwork(
        observation_shape,
        actions.size,
        whole,
        head,
        None,
        False,
        initializer,
        actions=actions,
        action_window=action_window,
        hidden=(),  # the head has its own
        fast=None if fast is None else torso_of("fast", fast),
        fast_age=fast_age,
    )
    of_window = actions.inputs * (action_window or 0) if critic_window else 0
    sizes = num_critics, num_layers, hidden_units
    critics = Critics(observation_shape, actions.inputs, whole, *sizes, initializer, of_window)
    return BoxActorCritic(actor, critics)

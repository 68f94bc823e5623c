"""Q-networks: a torso turns an observation into features, a head turns features into Q-values.

Any torso (`torsos.py`; `DictTorso` makes one for a Dict of observations from any other) goes with any head
(below). `create_network` picks both by name or by factory.

An agent asks no more of a network than that it can be called, so a user's own ``nn.Module`` will do.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar

import gin
import torch
from torch import Tensor, nn

from async_wrappers.agents.networks.torsos import (
    HIDDEN_SIZE,
    ImpalaTorso,
    Initializer,
    MinAtarTorso,
    MLPTorso,
    NatureTorso,
    TorsoFactory,
    as_float32,
    check_observation,
    check_sizes,
    checked_units,
    hidden_layer,
    initialize,
    is_image,
    output_size,
)
from async_wrappers.agents.spaces.schema import at, leaves

# Heads: networks from features to Q-values, or to the outputs of a distribution of values per action.
#
# A head is an ``nn.Module`` built from the torso's ``output_size``, the number of actions and, for a distribution, the
# number of outputs per action (atoms, quantiles).

HeadFactory = Callable[..., nn.Module]


@gin.configurable(module="agents")
class LinearHead(nn.Module):
    """One linear layer from features `[B, input_size]` to Q-values `[B, num_actions]`, or to N outputs per action.

    Args:
        input_size: Number of features.
        num_actions: Number of actions.
        outputs: N; None gives one value per action, without an axis for it.

    Raises:
        ValueError: If a size is not positive.
    """

    def __init__(self, input_size: int, num_actions: int, outputs: int | None = None) -> None:
        super().__init__()
        self._shape = _head_shape(input_size, num_actions, outputs)
        self.values = nn.Linear(input_size, math.prod(self._shape))

    def forward(self, features: Tensor) -> Tensor:
        """Map features `[B, input_size]` to `[B, num_actions]` or `[B, num_actions, outputs]`."""
        values: Tensor = self.values(features)
        return values.view(-1, *self._shape)


@gin.configurable(module="agents")
class DuelingHead(nn.Module):
    """Dueling head (Wang et al. 2016, arXiv 1511.06581, eq. 9): Q = V + A - mean of A over the actions.

    Maps features `[B, input_size]` to Q-values `[B, num_actions]`, or to N outputs per action, each dueling by itself
    (Hessel et al. 2018, "Rainbow"). Both streams are one linear layer on the torso's hidden layer, as in Dopamine,
    unless `hidden` gives each a hidden layer of its own, as in the papers and in R2D2 (SEED RL's has 512 units).

    Args:
        input_size: Number of features.
        num_actions: Number of actions.
        outputs: N; None gives one value per action, without an axis for it.
        hidden: Units of the hidden layer of each stream, with a ReLU; None for none.

    Raises:
        ValueError: If a size is not positive, or `hidden` is no whole number.
    """

    def __init__(
        self, input_size: int, num_actions: int, outputs: int | None = None, hidden: int | None = None
    ) -> None:
        super().__init__()
        self._shape = _head_shape(input_size, num_actions, outputs)
        self.value = _stream(input_size, hidden, math.prod(self._shape[1:]))
        self.advantage = _stream(input_size, hidden, math.prod(self._shape))

    def forward(self, features: Tensor) -> Tensor:
        """Map features `[B, input_size]` to `[B, num_actions]` or `[B, num_actions, outputs]`."""
        value: Tensor = self.value(features).view(-1, 1, *self._shape[1:])
        advantage: Tensor = self.advantage(features).view(-1, *self._shape)
        return value + (advantage - advantage.mean(dim=1, keepdim=True))


def _stream(input_size: int, hidden: int | None, outputs: int) -> nn.Module:
    """Return one stream of a dueling head, with a hidden layer of its own where there are units for it."""
    if hidden is None:
        return nn.Linear(input_size, outputs)
    units = checked_units("DuelingHead.hidden", hidden)
    return nn.Sequential(nn.Linear(input_size, units), nn.ReLU(inplace=True), nn.Linear(units, outputs))


def _head_shape(input_size: int, num_actions: int, outputs: int | None) -> tuple[int, ...]:
    """Return the shape of a head's values, without the batch."""
    check_sizes("input_size", [input_size])
    shape = check_sizes("num_actions", [num_actions])
    return shape if outputs is None else (*shape, *check_sizes("outputs", [outputs]))


# A torso for a Dict of observations, made of torsos for one.

_LEAST_IMAGE = 29  # pixels of height and width, the least that a convolutional torso takes


class DictTorso(nn.Module):
    """Torso for observations of several arrays, made of a torso for one.

    An entry ``[C, H, W]``, or a stack of such or of ``[H, W, C]``, with H and W of at least 29 is an image, and read by
    a torso of its own. All other entries are flattened and concatenated, in the order of their keys in
    `observation_shape`. Where there are images, a fully connected layer of 512 and a ReLU join their features to that
    vector, so that what an image means can depend on it; where there are none, one torso reads the vector. A torso for
    smaller images says so, and how many units join them: by a static method ``is_image(shape)`` of its class, and an
    integer ``join_size``, as `MinAtarTorso` does.

    Args:
        observation_shape: The shape of each entry by key; a dict of shapes for an entry that is a dict in its turn.
        torso: Makes the torso for each image, or for the vector, from its shape.

    Attributes:
        output_size: Number of features.

    Raises:
        ValueError: If there is no entry, or a shape does not suit the torso.
    """

    def __init__(self, observation_shape: Mapping[str, Any], torso: TorsoFactory) -> None:
        super().__init__()
        entries = [(path, check_sizes("observation_shape", shape)) for path, shape in leaves(observation_shape)]
        if not entries:
            raise ValueError("observation_shape must hold a shape, got an empty dict")
        decides: Callable[[tuple[int, ...]], bool] = getattr(torso, "is_image", partial(is_image, least=_LEAST_IMAGE))
        images = [(path, shape) for path, shape in entries if decides(shape)]
        vectors = [entry for entry in entries if entry not in images]
        self._images, self._vectors = [path for path, _ in images], [path for path, _ in vectors]
        width = sum(math.prod(shape) for _, shape in vectors)
        self.torsos = nn.ModuleList([torso(shape) for _, shape in images] or [torso((width,))])
        self.output_size = sum(output_size(each) for each in self.torsos)
        self.join: nn.Module = nn.Identity()
        if images:
            units = getattr(self.torsos[0], "join_size", HIDDEN_SIZE)
            self.join = nn.Sequential(*hidden_layer(self.output_size + width, units))
            self.output_size = units

    def forward(self, observation: Mapping[str, Any]) -> Tensor:
        """Map floats `[B, *shape]` of each entry to features `[B, output_size]`."""
        flat = [at(observation, path).flatten(1) for path in self._vectors]
        if not self._images:
            features: Tensor = self.torsos[0](torch.cat(flat, dim=1))
            return features
        images = [at(observation, path) for path in self._images]
        seen = [torso(image) for torso, image in zip(self.torsos, images, strict=True)]
        features = self.join(torch.cat([*seen, *flat], dim=1))
        return features


_Factory = TypeVar("_Factory", bound=Callable[..., nn.Module])


class QNetwork(nn.Module):
    """Q-values of every action for a batch of observations, or their distributions: a head on a torso.

    Args:
        observation_shape: Shape of one observation, without the batch, such as `[C, H, W]` or `[n]`; for a Dict, the
            shapes by key.
        num_actions: Number of actions.
        torso: Makes the torso from `observation_shape`, for instance the class `NatureTorso`.
        head: Makes the head from the torso's `output_size`, `num_actions` and, unless None, `outputs`.
        outputs: Outputs per action; None gives one value, without an axis for it.
        initializer: How the weights begin, see `async_wrappers.agents.networks.torsos.initialize`.

    Raises:
        TypeError: If the torso has no integer `output_size`.
        ValueError: If a size in `observation_shape` or `num_actions` is not positive, the initializer is unknown, or
            the torso or head refuses its arguments.
    """

    def __init__(
        self,
        observation_shape: Any,
        num_actions: int,
        torso: Callable[[Any], nn.Module],
        head: HeadFactory = LinearHead,
        outputs: int | None = None,
        initializer: Initializer = "torch",
    ) -> None:
        super().__init__()
        self.observation_shape = checked_shapes(observation_shape)
        (self.num_actions,) = check_sizes("num_actions", [num_actions])
        self.torso = torso(self.observation_shape)
        self.head = head(output_size(self.torso), self.num_actions, *([] if outputs is None else [outputs]))
        self.initializer = initializer
        initialize(self, initializer)

    def forward(self, observation: Any) -> Tensor:
        """Compute the Q-values of a batch.

        Args:
            observation: `[B, *observation_shape]`, uint8 in 0..255 (scaled here to 0..1) or floating point (used as it
                is), in any memory format; for a Dict, such tensors by key.

        Returns:
            Q-values `[B, num_actions]`, or `[B, num_actions, outputs]`, float32 under autocast too, so that TD errors
            are not rounded further.

        Raises:
            TypeError: If `observation` is neither uint8 nor floating point.
            ValueError: If `observation` does not have the shape `[B, *observation_shape]`, or other keys.
        """
        fits = type(observation) is Tensor and observation.shape[1:] == self.observation_shape
        if not fits:
            check_observation(observation, self.observation_shape)
        if not fits or observation.dtype != torch.float32:
            observation = as_float32(observation)
        q_values: Tensor = self.head(self.torso(observation))
        return q_values.float()


# Names are sizes for [1, 84, 84] observations and 6 actions, as published by Riemer et al. 2025 (arXiv 2412.14355).
PRESETS: Mapping[str, TorsoFactory] = MappingProxyType(
    {
        "55k": partial(ImpalaTorso, width=1 / 16),
        "1m": partial(ImpalaTorso, width=1),
        "10m": partial(ImpalaTorso, width=7),
        "100m": partial(ImpalaTorso, width=29),
        "1b": partial(ImpalaTorso, width=98),
        "70k-deep": partial(ImpalaTorso, width=1 / 16, deep=True),
        "1m-deep": partial(ImpalaTorso, width=1, deep=True),
        "10m-deep": partial(ImpalaTorso, width=5, deep=True),
        "100m-deep": partial(ImpalaTorso, width=19, deep=True),
        "1b-deep": partial(ImpalaTorso, width=63, deep=True),
    }
)


@gin.configurable(module="agents")
def create_network(
    observation_shape: Any,
    num_actions: int,
    outputs: int | None = None,
    *,
    torso: str | TorsoFactory = "auto",
    head: str | HeadFactory = "linear",
    initializer: Initializer = "torch",
) -> QNetwork:
    """Build a Q-network from names or factories; a gin reference such as `@ImpalaTorso` is a factory.

    Args:
        observation_shape: Shape of one observation, without the batch, such as `[C, H, W]` or `[n]`; for a Dict, the
            shapes by key.
        num_actions: Number of actions.
        outputs: Outputs per action, such as atoms or quantiles; None gives one value, without an axis for it.
        torso: "auto" ("nature" for images with H and W at least 36, else "mlp"), "nature", "minatar", "mlp", a name in
            `PRESETS`, or a factory that takes `observation_shape`. For a Dict, `DictTorso` makes its torsos so.
        head: "linear", "dueling", or a factory that takes `(input_size, num_actions)` and, where there are any,
            `outputs`.
        initializer: How the weights of linear and convolutional layers begin: "torch" (as PyTorch draws them),
            "xavier_uniform" (Dopamine's DQN), "variance_scaling" (Dopamine's Rainbow, C51, QR-DQN and IQN),
            "lecun_normal" (Flax's own), or a function that fills a tensor of weights; biases are then 0.

    Raises:
        TypeError: If `torso`, `head` or `initializer` is neither a name nor a factory.
        ValueError: If a name is unknown, or a size does not suit the torso or head.
    """
    torso, head = resolved("torso", torso, TORSOS), resolved("head", head, HEADS)
    whole = partial(DictTorso, torso=torso) if isinstance(observation_shape, Mapping) else torso
    return QNetwork(observation_shape, num_actions, whole, head, outputs, initializer)


def count_parameters(module: nn.Module) -> int:
    """Count the scalars in all parameters of `module`, shared ones once; works on the meta device too."""
    return sum(parameter.numel() for parameter in module.parameters())


def auto_torso(observation_shape: tuple[int, ...], **of_mlp: Any) -> nn.Module:
    """Choose the Nature torso for images that it can take and the MLP, with these arguments, for everything else."""
    return NatureTorso(observation_shape) if is_image(observation_shape, 36) else MLPTorso(observation_shape, **of_mlp)


TORSOS: Mapping[str, TorsoFactory] = {
    "auto": auto_torso,
    "nature": NatureTorso,
    "minatar": MinAtarTorso,
    "mlp": MLPTorso,
    **PRESETS,
}
HEADS: Mapping[str, HeadFactory] = {"linear": LinearHead, "dueling": DuelingHead}


def checked_shapes(observation_shape: Any) -> Any:
    """Return shapes as tuples, of positive sizes; a ValueError says which is not."""
    if isinstance(observation_shape, Mapping):
        return {key: checked_shapes(shape) for key, shape in observation_shape.items()}
    return check_sizes("observation_shape", observation_shape)


def resolved(argument: str, choice: str | _Factory, known: Mapping[str, _Factory]) -> _Factory:
    """Return the factory that `choice` names, or `choice` itself when it is a factory."""
    if isinstance(choice, str):
        if choice in known:
            return known[choice]
        closest = difflib.get_close_matches(choice.lower(), known, n=1, cutoff=0.0)[0]
        names = ", ".join(f'"{name}"' for name in known)
        raise ValueError(f'{argument} must be one of {names} or a factory, got "{choice}"; did you mean "{closest}"?')
    # A module is callable, but calling it runs it: without this check it would fail far from the mistake.
    if isinstance(choice, nn.Module) or not callable(choice):
        raise TypeError(
            f"{argument} must be a name or a factory, got {type(choice).__name__}; pass the class or a function"
        )
    return choice


# A check, before anything is learnt, that a network fits the observations and the agent.


@torch.no_grad()
def check_fit(network: nn.Module, inputs: Sequence[Any], output_shape: tuple[int, ...], agent: str) -> None:
    """Call a network once, on one observation, without gradients.

    Args:
        network: Any module; its mode, training or evaluation, is left as it was.
        inputs: Its arguments, batches of one; the first holds an observation [1, k, *shape], or a dict of such.
        output_shape: The shape of its output for one observation, without the batch.
        agent: The agent's name, for the message.

    Raises:
        ValueError: The network raises an error on the inputs, or its output has another shape.
    """
    observation, training = inputs[0], network.training
    kind = type(network).__name__
    if hasattr(network, "initial_state"):
        raise ValueError(
            f"agent {agent!r} remembers nothing from decision to decision, and {kind} reads sequences: give it a "
            "network such as @create_network's"
        )
    try:
        output = network.eval()(*inputs)
    except Exception as error:  # a user's network may raise anything
        what = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(
            f"network must take observations {_described(observation)} (stack_size first), and {kind} does not: {what}"
        ) from error
    network.train(training)
    shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
    if shape != (1, *output_shape):
        raise ValueError(
            f"network must give [B, {_sizes(output_shape)}] to agent {agent!r}, got {shape} from {kind} for one "
            "observation"
        )


def _described(observation: Any) -> str:
    if not isinstance(observation, Mapping):
        return f"[B, {_sizes(observation.shape[1:])}] of {observation.dtype}"
    return "{" + ", ".join(f"{key}: {_described(inner)}" for key, inner in observation.items()) + "}"


def _sizes(shape: Sequence[int]) -> str:
    return ", ".join(map(str, shape))

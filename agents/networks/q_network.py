"""Q-networks: a torso turns an observation into features, a head turns features into Q-values.

Any torso (`torsos.py`; `DictTorso` makes one for a Dict of observations from any other) goes with any head
(`heads.py`). `create_network` picks both by name or by factory.

A Q-network is three steps, each a method: `encode`, the torso, which is heavy and reads an observation and nothing
else; `core`, which carries a state from one decision to the next (today none does); `values`, the head. Calling the
network does all three. An agent asks no more of a network than that it can be called, so a user's own ``nn.Module``
needs none of the methods.
"""

import difflib
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar

import gin
from torch import Tensor, nn

from agents.networks.dict_torso import DictTorso
from agents.networks.heads import DuelingHead, HeadFactory, LinearHead
from agents.networks.initializers import Initializer, initialize
from agents.networks.inputs import as_float32, check_observation, check_sizes
from agents.networks.torsos import ImpalaTorso, MLPTorso, NatureTorso, TorsoFactory, output_size

__all__ = ["PRESETS", "QNetwork", "count_parameters", "create_network"]

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
        initializer: How the weights begin, see `agents.networks.initializers.initialize`.

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
        self.observation_shape = _check_shapes(observation_shape)
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
        features, _ = self.core(self.encode(observation))
        return self.values(features)

    def encode(self, observation: Any) -> Tensor:
        """Map observations, as `forward` takes them, to features `[B, torso.output_size]`."""
        check_observation(observation, self.observation_shape)
        features: Tensor = self.torso(as_float32(observation))
        return features

    def core(self, features: Tensor, state: Any = (), first: Tensor | None = None) -> tuple[Tensor, Any]:
        """Carry features from one decision to the next. Without memory, as here, they pass unchanged.

        Args:
            features: What `encode` gives, `[B, ...]`.
            state: What the call for the decision before returned, `[B, ...]`; () without memory.
            first: Bool `[B]`, True where a new episode begins, so that the state starts afresh.

        Returns:
            Features for `values`, and the next state.
        """
        return features, state

    def values(self, features: Tensor) -> Tensor:
        """Map features to Q-values, the head's outputs in float32."""
        q_values: Tensor = self.head(features)
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
        torso: "auto" ("nature" for `[C, H, W]` with H and W at least 36, else "mlp"), "nature", "mlp", a name in
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
    torso, head = _resolve("torso", torso, _TORSOS), _resolve("head", head, _HEADS)
    whole = partial(DictTorso, torso=torso) if isinstance(observation_shape, Mapping) else torso
    return QNetwork(observation_shape, num_actions, whole, head, outputs, initializer)


def count_parameters(module: nn.Module) -> int:
    """Count the scalars in all parameters of `module`, shared ones once; works on the meta device too."""
    return sum(parameter.numel() for parameter in module.parameters())


def _auto_torso(observation_shape: tuple[int, ...]) -> nn.Module:
    """Choose the Nature torso for images that it can take and the MLP for everything else."""
    is_image = len(observation_shape) == 3 and min(observation_shape[1:]) >= 36
    return NatureTorso(observation_shape) if is_image else MLPTorso(observation_shape)


_TORSOS: Mapping[str, TorsoFactory] = {"auto": _auto_torso, "nature": NatureTorso, "mlp": MLPTorso, **PRESETS}
_HEADS: Mapping[str, HeadFactory] = {"linear": LinearHead, "dueling": DuelingHead}


def _check_shapes(observation_shape: Any) -> Any:
    if isinstance(observation_shape, Mapping):
        return {key: _check_shapes(shape) for key, shape in observation_shape.items()}
    return check_sizes("observation_shape", observation_shape)


def _resolve(argument: str, choice: str | _Factory, known: Mapping[str, _Factory]) -> _Factory:
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

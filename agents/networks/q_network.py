"""Q-networks: a torso turns an observation into features, a head turns features into Q-values.

Any torso goes with any head. A torso is an ``nn.Module`` built from the observation shape that carries an integer
``output_size`` (`DictTorso` makes one for a Dict of observations from any other); a head is an ``nn.Module`` built from
that size, the number of actions and, for a distribution of values, the number of outputs per action (atoms, quantiles).
`create_network` picks both by name or by factory.
"""

import difflib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from numbers import Integral
from operator import getitem
from types import MappingProxyType
from typing import Any, TypeVar

import gin
import torch
from torch import Tensor, nn
from torch.nn import functional

from agents.networks.initializers import Initializer, initialize
from agents.networks.padding import SameConv2d, SameMaxPool2d, check_padding, size_after

TorsoFactory = Callable[[tuple[int, ...]], nn.Module]
HeadFactory = Callable[..., nn.Module]
_Factory = TypeVar("_Factory", bound=Callable[..., nn.Module])

_HIDDEN_SIZE = 512
_LEAST_IMAGE = 29  # pixels of height and width, the least that a convolutional torso takes


@gin.configurable(module="agents")
class NatureTorso(nn.Module):
    """Convolutional torso of the Nature DQN (Mnih et al. 2015, "Human-level control through deep RL").

    Three convolutions (32 of 8x8 stride 4, 64 of 4x4 stride 2, 64 of 3x3 stride 1) and a fully connected layer of 512,
    each followed by a ReLU. Maps float images `[B, C, H, W]` to features `[B, 512]`.

    Args:
        observation_shape: `[C, H, W]`, in channels and pixels; without padding, H and W at least 36.
        padding: ``"valid"``: unpadded, as in the paper; ``"same"``: as in Dopamine, so that of 84 x 84 pixels the
            convolutions leave 11 x 11 and not 7 x 7, and the torso has 2.5 times the parameters.

    Attributes:
        output_size: Number of features, 512.

    Raises:
        ValueError: If `observation_shape` is not an image shape or too small for the convolutions, or `padding` is
            unknown.
    """

    _SPECS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))  # (channels, kernel, stride) of each convolution, kernel in pixels

    def __init__(self, observation_shape: Sequence[int], padding: str = "valid") -> None:
        super().__init__()
        windows = [(kernel, stride) for _, kernel, stride in self._SPECS]
        channels, height, width = _image_shape_after(windows, observation_shape, padding)
        convolution = SameConv2d if padding == "same" else nn.Conv2d
        layers: list[nn.Module] = []
        for out_channels, kernel, stride in self._SPECS:
            layers += [convolution(channels, out_channels, kernel, stride), nn.ReLU(inplace=True)]
            channels = out_channels
        layers += _hidden_layer(channels * height * width)
        self.layers = nn.Sequential(*layers)
        self.output_size = _HIDDEN_SIZE

    def forward(self, observation: Tensor) -> Tensor:
        """Map float images `[B, C, H, W]` to features `[B, 512]`."""
        features: Tensor = self.layers(observation)
        return features


@gin.configurable(module="agents")
class ImpalaTorso(nn.Module):
    """Residual convolutional torso of IMPALA (Espeholt et al. 2018, arXiv 1802.01561), `width` times as wide.

    Each stage is a 3x3 convolution, a 3x3 max pooling and two residual blocks; the first stage has 16 * width channels
    and the others 32 * width. Three stages, each pooling with stride 2, or when deep six, of which the first and fifth
    pool with stride 2 and the others with stride 1. A fully connected layer of 512 (whatever the width) and a ReLU
    follow. Maps float images `[B, C, H, W]` to features `[B, 512]`.

    The sizes are those of Riemer et al. 2025 (arXiv 2412.14355), which differ from the IMPALA paper: the convolution
    and the pooling that open a stage are unpadded, and the fully connected layer has 512 units instead of 256. With
    ``padding="same"`` they are those of Dopamine's IMPALA network.

    Args:
        observation_shape: `[C, H, W]`, in channels and pixels; without padding, H and W at least 29, or 53 when deep.
        width: Multiplier of the channel counts, which are rounded to the nearest integer, at least 1.
        deep: Whether to use six stages (12 residual blocks) instead of three (6).
        padding: ``"valid"`` or ``"same"``, of the convolution and the pooling that open a stage.

    Attributes:
        output_size: Number of features, 512.

    Raises:
        ValueError: If `width` is not positive, `padding` is unknown, or `observation_shape` is not an image shape or
            too small.
    """

    _POOL_STRIDES = (2, 2, 2)
    _DEEP_POOL_STRIDES = (2, 1, 1, 1, 2, 1)

    def __init__(
        self, observation_shape: Sequence[int], width: float = 1.0, deep: bool = False, padding: str = "valid"
    ) -> None:
        super().__init__()
        if not width > 0:
            raise ValueError(f"width must be > 0, got {width}")
        strides = self._DEEP_POOL_STRIDES if deep else self._POOL_STRIDES
        windows = [window for stride in strides for window in ((3, 1), (3, stride))]
        channels, out_height, out_width = _image_shape_after(windows, observation_shape, padding)
        layers: list[nn.Module] = []
        for index, stride in enumerate(strides):
            out_channels = max(1, round((16 if index == 0 else 32) * width))
            layers.append(_impala_stage(channels, out_channels, stride, padding))
            channels = out_channels
        layers += [nn.ReLU(inplace=True), *_hidden_layer(channels * out_height * out_width)]
        self.layers = nn.Sequential(*layers)
        self.output_size = _HIDDEN_SIZE

    def forward(self, observation: Tensor) -> Tensor:
        """Map float images `[B, C, H, W]` to features `[B, 512]`."""
        features: Tensor = self.layers(observation)
        return features


@gin.configurable(module="agents")
class MLPTorso(nn.Module):
    """Fully connected torso with a ReLU after every layer, for vectors and stacks of vectors.

    Flattens everything but the batch: maps floats `[B, *observation_shape]` to features `[B, hidden[-1]]`.

    Args:
        observation_shape: Any shape, such as `[n]` or `[stack, n]`.
        hidden: Units of each layer; empty passes the flattened observation on.

    Attributes:
        output_size: Number of features, the last of `hidden`.

    Raises:
        ValueError: If a size in `observation_shape` or `hidden` is not positive, or no whole number.
    """

    def __init__(self, observation_shape: Sequence[int], hidden: Sequence[int] = (256, 256)) -> None:
        super().__init__()
        whole = isinstance(hidden, Sequence) and all(isinstance(units, Integral) for units in hidden)
        if not whole or isinstance(hidden, str):
            raise ValueError(f"MLPTorso.hidden must be a list of whole numbers of units, got {hidden!r}")
        _check_sizes("hidden", hidden)
        size = math.prod(_check_sizes("observation_shape", observation_shape))
        layers: list[nn.Module] = [nn.Flatten()]
        for units in hidden:
            layers += [nn.Linear(size, units), nn.ReLU(inplace=True)]
            size = units
        self.layers = nn.Sequential(*layers)
        self.output_size = size

    def forward(self, observation: Tensor) -> Tensor:
        """Map floats `[B, *observation_shape]` to features `[B, output_size]`."""
        features: Tensor = self.layers(observation)
        return features


class DictTorso(nn.Module):
    """Torso for observations of several arrays, made of a torso for one.

    An entry ``[C, H, W]`` with H and W of at least 29 is an image, and read by a torso of its own. All other entries
    are flattened and concatenated, in the order of their keys in `observation_shape`. Where there are images, a fully
    connected layer of 512 and a ReLU join their features to that vector, so that what an image means can depend on it;
    where there are none, one torso reads the vector.

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
        entries = [(path, _check_sizes("observation_shape", shape)) for path, shape in _entries(observation_shape)]
        if not entries:
            raise ValueError("observation_shape must hold a shape, got an empty dict")
        images = [(path, shape) for path, shape in entries if len(shape) == 3 and min(shape[1:]) >= _LEAST_IMAGE]
        vectors = [entry for entry in entries if entry not in images]
        self._images, self._vectors = [path for path, _ in images], [path for path, _ in vectors]
        width = sum(math.prod(shape) for _, shape in vectors)
        self.torsos = nn.ModuleList([torso(shape) for _, shape in images] or [torso((width,))])
        self.output_size = sum(output_size(each) for each in self.torsos)
        self.join: nn.Module = nn.Identity()
        if images:
            self.join = nn.Sequential(*_hidden_layer(self.output_size + width))
            self.output_size = _HIDDEN_SIZE

    def forward(self, observation: Mapping[str, Any]) -> Tensor:
        """Map floats `[B, *shape]` of each entry to features `[B, output_size]`."""
        flat = [_at(path, observation).flatten(1) for path in self._vectors]
        if not self._images:
            features: Tensor = self.torsos[0](torch.cat(flat, dim=1))
            return features
        images = [_at(path, observation) for path in self._images]
        seen = [torso(image) for torso, image in zip(self.torsos, images, strict=True)]
        features = self.join(torch.cat([*seen, *flat], dim=1))
        return features


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
    whereas in the papers each stream has a hidden layer of its own.

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
        self.value = nn.Linear(input_size, math.prod(self._shape[1:]))
        self.advantage = nn.Linear(input_size, math.prod(self._shape))

    def forward(self, features: Tensor) -> Tensor:
        """Map features `[B, input_size]` to `[B, num_actions]` or `[B, num_actions, outputs]`."""
        value: Tensor = self.value(features).view(-1, 1, *self._shape[1:])
        advantage: Tensor = self.advantage(features).view(-1, *self._shape)
        return value + (advantage - advantage.mean(dim=1, keepdim=True))


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
        (self.num_actions,) = _check_sizes("num_actions", [num_actions])
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
        check_observation(observation, self.observation_shape)
        q_values: Tensor = self.head(self.torso(as_float32(observation)))
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


class _ResidualBlock(nn.Module):
    """Pre-activation residual block: x + conv(relu(conv(relu(x)))), shape kept."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        # The first ReLU must leave its input alone, because the skip connection adds it unchanged.
        hidden = functional.relu(self.first(functional.relu(images)), inplace=True)
        residual: Tensor = self.second(hidden)
        return images + residual


def _impala_stage(in_channels: int, out_channels: int, pool_stride: int, padding: str) -> nn.Sequential:
    same = padding == "same"
    return nn.Sequential(
        SameConv2d(in_channels, out_channels, 3) if same else nn.Conv2d(in_channels, out_channels, 3),
        SameMaxPool2d(3, pool_stride) if same else nn.MaxPool2d(3, stride=pool_stride),
        _ResidualBlock(out_channels),
        _ResidualBlock(out_channels),
    )


def _hidden_layer(input_size: int) -> list[nn.Module]:
    return [nn.Flatten(), nn.Linear(input_size, _HIDDEN_SIZE), nn.ReLU(inplace=True)]


def check_observation(observation: Any, observation_shape: Any, name: str = "observation") -> None:
    """Refuse a batch that is not `[B, *observation_shape]`, or a dict that does not hold such under the same keys."""
    if isinstance(observation_shape, Mapping):
        if not isinstance(observation, Mapping) or observation.keys() != observation_shape.keys():
            got = sorted(observation) if isinstance(observation, Mapping) else type(observation).__name__
            raise ValueError(f"{name} must be a dict with the keys {sorted(observation_shape)}, got {got}")
        for key, shape in observation_shape.items():
            check_observation(observation[key], shape, f"{name}[{key!r}]")
        return
    expected = ", ".join(["B", *map(str, observation_shape)])
    if isinstance(observation, Mapping):
        raise ValueError(f"{name} must be a tensor [{expected}], got a dict with the keys {sorted(observation)}")
    if observation.shape[1:] != observation_shape:
        raise ValueError(
            f"{name} must have the shape [{expected}], got {list(observation.shape)}; "
            "add the batch dimension or build the network for this observation_shape"
        )


def as_float32(observation: Any) -> Any:
    """Return uint8 as floats in [0, 1], and floats as they are; those of a dict by key."""
    if isinstance(observation, Mapping):
        return {key: as_float32(entry) for key, entry in observation.items()}
    if observation.dtype == torch.uint8:
        # The conversion makes a fresh tensor, so dividing in place saves a second one and leaves the caller's alone.
        return observation.to(torch.float32).div_(255.0)
    if observation.is_floating_point():
        return observation.to(torch.float32)
    raise TypeError(f"observation must be uint8 or floating point, got {observation.dtype}; convert it with .float()")


def _entries(shapes: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each shape in a dict of shapes, with the keys that lead to it."""
    if not isinstance(shapes, Mapping):
        yield path, shapes
        return
    for key, inner in shapes.items():
        yield from _entries(inner, (*path, key))


def _at(path: tuple[str, ...], observation: Any) -> Tensor:
    """Return the entry to which these keys lead."""
    entry: Tensor = reduce(getitem, path, observation)
    return entry


def _check_shapes(observation_shape: Any) -> Any:
    if isinstance(observation_shape, Mapping):
        return {key: _check_shapes(shape) for key, shape in observation_shape.items()}
    return _check_sizes("observation_shape", observation_shape)


def _image_shape_after(
    windows: Sequence[tuple[int, int]], observation_shape: Sequence[int], padding: str
) -> tuple[int, int, int]:
    """Follow an image through sliding windows, by arithmetic so that no forward pass is needed.

    Args:
        windows: `(kernel, stride)` of each convolution or pooling, in pixels.
        observation_shape: `[C, H, W]`.
        padding: Of the windows, ``"valid"`` or ``"same"``.

    Returns:
        `(C, H', W')`, the input channels and the height and width after the last window.

    Raises:
        ValueError: If `observation_shape` is not three positive sizes, or too small to leave a pixel, or `padding` is
            unknown.
    """
    check_padding(padding)
    shape = _check_sizes("observation_shape", observation_shape)
    if len(shape) != 3:
        raise ValueError(f'observation_shape must be [C, H, W], got {list(shape)}; use torso "mlp" for other shapes')
    smallest = 1
    for kernel, stride in reversed(windows):
        smallest = (smallest - 1) * stride + kernel
    channels, height, width = shape
    if min(height, width) < smallest and padding == "valid":
        raise ValueError(
            f"observation_shape must have H and W >= {smallest} for this torso, got {list(shape)}; "
            'enlarge the image, use padding "same", or torso "mlp"'
        )
    for kernel, stride in windows:
        height, width = (size_after(size, kernel, stride, padding) for size in (height, width))
    return channels, height, width


def _head_shape(input_size: int, num_actions: int, outputs: int | None) -> tuple[int, ...]:
    """Return the shape of a head's values, without the batch."""
    _check_sizes("input_size", [input_size])
    shape = _check_sizes("num_actions", [num_actions])
    return shape if outputs is None else (*shape, *_check_sizes("outputs", [outputs]))


def _check_sizes(argument: str, sizes: Iterable[int]) -> tuple[int, ...]:
    checked = tuple(sizes)
    for size in checked:
        if size <= 0:
            got = checked[0] if len(checked) == 1 else list(checked)
            raise ValueError(f"{argument} must be > 0, got {got}")
    return checked


def output_size(torso: nn.Module) -> int:
    """Return the number of features that a torso says it has."""
    size = getattr(torso, "output_size", None)
    if not isinstance(size, int):
        raise TypeError(
            f"torso must have an integer output_size, got {size!r} from {type(torso).__name__}; "
            "set self.output_size in its constructor"
        )
    return size


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

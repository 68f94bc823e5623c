"""A teacher from a checkpoint of Dopamine's, read without Dopamine, JAX or TensorFlow; nothing in it is executed.

Dopamine (Castro et al. 2018, "Dopamine: a research framework for deep reinforcement learning") writes into its
``checkpoints``::

    ckpt.N                       a pickle: the state of the agent; JAX agents' weights too
    tf_ckpt-N.index, .data-...   TensorFlow agents' weights (tensor_bundle.py)
    $store$_*_ckpt.N.gz          the replay (dopamine_replay.py)

Its networks are ours but for the order of axes: images are [H, W, C] there and [C, H, W] here, so kernels are
transposed, and so are the inputs of the layer that reads the flattened image. Both pad as "same" does.
"""

from __future__ import annotations

import math
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gin
import gymnasium as gym
import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from async_wrappers import checks
from async_wrappers.agents.config.config import CONFIG, empty_gin
from async_wrappers.agents.demonstrations.pickled import Function, PickledArray, load_data, plain
from async_wrappers.agents.experiment.checkpoint import CHECKPOINTS
from async_wrappers.agents.families.value_based.c51 import C51
from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.networks.q_network import DuelingHead, LinearHead, create_network
from async_wrappers.agents.networks.torsos import CentredTorso, ImpalaTorso, MLPTorso, NatureTorso
from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent
from async_wrappers.agents.spaces.actions import discrete_actions
from async_wrappers.agents.teaching.dopamine.dopamine_replay import DopamineReplay, find_replay
from async_wrappers.agents.teaching.dopamine.tensor_bundle import read_tensors
from async_wrappers.agents.teaching.teacher import COLLECT, Environment, Teacher, TeachersDemonstration
from async_wrappers.agents.teaching.teacher_view import layers_of

Array = npt.NDArray[Any]


# Which checkpoint.

_BUNDLE, _TENSORS = re.compile(r"ckpt\.(\d+)"), re.compile(r"tf_ckpt-(\d+)(?:\.index)?")


def is_dopamine(path: Path) -> bool:
    """Return whether a directory or a file is Dopamine's and not one of our runs."""
    if path.is_dir():
        return not (path / CONFIG).is_file() and bool(_numbers(_directory(path)))
    return not (path.parent.parent / CONFIG).is_file() and bool(_number_of(path)) and path.parent.is_dir()


def _directory(path: Path) -> Path:
    """Return the directory of the checkpoints: the one named, or ``checkpoints`` in it."""
    return path / CHECKPOINTS if (path / CHECKPOINTS).is_dir() else path


def _number_of(path: Path) -> re.Match[str] | None:
    return _BUNDLE.fullmatch(path.name) or _TENSORS.fullmatch(path.name)


def _numbers(directory: Path) -> list[int]:
    found = (_number_of(path) for path in directory.iterdir()) if directory.is_dir() else ()
    return sorted({int(each[1]) for each in found if each})


def _chosen(path: Path, number: int | None) -> tuple[Path, int]:
    """Return the directory of a checkpoint and its number.

    Raises:
        ValueError: There is none of this number.
    """
    if not path.is_dir():
        found = _number_of(path)
        assert found is not None
        path, number = path.parent, int(found[1])
    directory = _directory(path)
    numbers = _numbers(directory)
    number = numbers[-1] if number is None and numbers else number
    if number not in numbers:
        there = ", ".join(map(str, numbers)) or "none"
        raise ValueError(
            f"teacher_checkpoint_number must be one of Dopamine's checkpoints in {directory} ({there}), got {number}"
        )
    return directory, number


# What a checkpoint holds.


class Layer(NamedTuple):
    """A layer as Dopamine has it.

    Attributes:
        kernel: `[inputs, outputs]`, or `[height, width, inputs, outputs]` of a convolution.
        bias: `[outputs]`.
    """

    kernel: Array
    bias: Array


class Weights(NamedTuple):
    """The layers of a network, those that are next to the observation first.

    Attributes:
        convolutions: Those of IMPALA's stacks one after another.
        stacks: How many stacks.
        dense: The last one gives the values; the last two are advantage and value in a dueling network.
    """

    convolutions: list[Layer]
    stacks: int
    dense: list[Layer]


class DopamineCheckpoint(NamedTuple):
    """What a checkpoint of Dopamine's holds.

    Attributes:
        online: Weights.
        target: Weights.
        moments: Adam's count of updates, first and second moments of the online weights; None where there are none.
        state: The stack of observations `[*shape, k]` that the agent saw last; None where it is not kept.
        training_steps: Decisions of training.
    """

    online: Weights
    target: Weights
    moments: tuple[int, Weights, Weights] | None
    state: Array | None
    training_steps: int


def read_checkpoint(directory: Path, number: int) -> DopamineCheckpoint:
    """Read a checkpoint of Dopamine's JAX or TensorFlow agents.

    Raises:
        ValueError: It is torn, asks for more than data, or is of a network that is not known here.
    """
    path = directory / f"ckpt.{number}"
    bundle = _bundle(path) if path.is_file() else {}
    steps, state = bundle.get("training_steps", 0), plain(bundle.get("state"))
    steps = int(steps) if isinstance(steps, int | np.integer) else 0
    state = state if isinstance(state, np.ndarray) else None
    tensors = directory / f"tf_ckpt-{number}"
    if Path(f"{tensors}.index").is_file():
        online, target = (_of_tensors(tensors, prefix) for prefix in ("Online", "Target"))
        # A batch of one.
        return DopamineCheckpoint(online, target, None, None if state is None else state[0], steps)
    if "online_params" not in bundle:
        raise ValueError(f"{path} must hold the weights of a JAX agent, online_params, got {_names(bundle)}")
    online = _of_tree(path, bundle["online_params"])
    target = _of_tree(path, bundle.get("target_params", bundle["online_params"]))
    return DopamineCheckpoint(online, target, _moments(path, bundle.get("optimizer_state")), state, steps)


def _names(names: Any) -> str:
    return ", ".join(sorted(map(str, names))) or "nothing"


class _Placeholder:
    """Stands for an object of a library, such as an optimiser's state, and keeps its constructor's arguments."""

    parts: tuple[Any, ...]

    def __new__(cls, *parts: Any, **named: Any) -> _Placeholder:
        made = super().__new__(cls)
        made.parts = (*parts, *named.values())
        return made

    def __setstate__(self, state: Any) -> None:
        self.parts = (state,)


def _jax_array(function: Any, arguments: Any, state: Any, kind: Any = None) -> PickledArray:
    """Stands for JAX's functions that make a NumPy array."""
    made = PickledArray()
    made.__setstate__(state)
    return made


_LIBRARIES = ("jax", "jaxlib", "flax", "optax")


def _stand_in(module: str, name: str) -> Any:
    """Return the stand-in of a global of the libraries of Dopamine's JAX agents."""
    if name in ("_reconstruct_array", "reconstruct_device_array") and module.startswith("jax."):
        return Function(_jax_array)
    if (module, name) in (("flax.core.frozen_dict", "FrozenDict"), ("collections", "OrderedDict")):
        return OrderedDict
    return type(name, (_Placeholder,), {}) if module.partition(".")[0] in _LIBRARIES else None


def _bundle(path: Path) -> Mapping[str, Any]:
    try:
        with open(path, "rb") as file:
            content = "a checkpoint of Dopamine's is dicts, numbers and arrays"
            bundle = load_data(file, path, content, "checkpoint of Dopamine's", _stand_in)
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror})") from None
    if not isinstance(bundle, Mapping):
        raise ValueError(f"{path} must hold a dict, as checkpoints of Dopamine's do, got a {type(bundle).__name__}")
    return bundle


def _in_order(name: str) -> tuple[int, str, int]:
    """Sort layers by number; ``final_layer`` comes last, and so does a layer without a number."""
    stem, _, number = name.rpartition("_")
    return (name == "final_layer", stem, int(number)) if number.isdigit() else (name == "final_layer", name, 0)


def _of_tree(path: Path, tree: Any) -> Weights:
    """Return the layers of a Flax network, by their names."""
    tree = tree.get("params", tree) if isinstance(tree, Mapping) else tree
    convolutions, dense, stacks = list[Layer](), list[Layer](), 0
    try:
        encoder = tree.get("encoder", {})
        for name in sorted(encoder, key=_in_order):
            stacks += 1
            convolutions += [_layer(encoder[name][each]) for each in sorted(encoder[name], key=_in_order)]
        for name in sorted((each for each in tree if each != "encoder"), key=_in_order):
            layer = _layer(tree[name])
            (convolutions if layer.kernel.ndim == 4 else dense).append(layer)
    except (AttributeError, KeyError, TypeError, ValueError):
        names = _names(tree) if isinstance(tree, Mapping) else type(tree).__name__
        raise ValueError(f"{path} must hold the layers of a network of Dopamine's, got {names}: {_KNOWN}") from None
    return Weights(convolutions, stacks, dense)


def _layer(parameters: Mapping[str, Any]) -> Layer:
    """Return a layer; of a noisy one the means, which are what evaluation uses."""
    kernel, bias = (plain(parameters.get(name, parameters.get(f"{name}_mu"))) for name in ("kernel", "bias"))
    if not all(isinstance(each, np.ndarray) and each.dtype.kind == "f" for each in (kernel, bias)):
        raise TypeError
    if kernel.ndim not in (2, 4) or bias.shape != kernel.shape[-1:]:
        raise ValueError
    return Layer(kernel, bias)


def _of_tensors(path: Path, network: str) -> Weights:
    """Return the layers of a network of TensorFlow's Nature DQN; before Keras, the names were others."""
    tensors = read_tensors(path, f"{network}/")
    try:
        layers = [
            {
                name: tensors[f"{network}/{layer}/{name}" if f"{network}/{layer}/{name}" in tensors else older]
                for name, older in (("kernel", f"{network}/{layer}/weights"), ("bias", f"{network}/{layer}/biases"))
            }
            for layer in ("Conv", "Conv_1", "Conv_2", "fully_connected", "fully_connected_1")
        ]
        whole = [_layer(layer) for layer in layers]
    except (KeyError, TypeError, ValueError):
        raise ValueError(
            f"{path} must hold TensorFlow's Nature DQN ({network}/Conv ... {network}/fully_connected_1), got "
            f"{_names(tensors)}"
        ) from None
    return Weights(whole[:3], 0, whole[3:])


def _moments(path: Path, optimizer: Any) -> tuple[int, Weights, Weights] | None:
    """Return Adam's moments, which lie somewhere in a tuple of states."""
    states = optimizer if isinstance(optimizer, tuple | list) else (optimizer,)
    for state in states:
        if type(state).__name__ == "ScaleByAdamState" and len(state.parts) == 3:
            count, first, second = state.parts
            return int(plain(count)), _of_tree(path, first), _of_tree(path, second)
    return None


# Conversion.

_KNOWN = "known are its networks of Nature DQN, IMPALA, C51, Rainbow and classic control"
_NATURE = [(8, 8, 32), (4, 4, 64), (3, 3, 64)]  # kernel and outputs of the convolutions
_STAGES = (16, 32, 32)  # channels of IMPALA's stacks, times its width


def _network_factory(source: str, weights: Weights, inputs: str) -> Callable[..., nn.Module]:
    """Return the factory of networks with the sizes of `weights`.

    Raises:
        ValueError: The network is not a known one.
    """
    convolutions = [layer.kernel.shape for layer in weights.convolutions]
    dueling = _dueling(weights)
    hidden = [layer.kernel.shape[1] for layer in weights.dense[: -2 if dueling else -1]]
    torso: Callable[..., nn.Module] | None = None
    if not convolutions and weights.dense:
        torso = partial(MLPTorso, hidden=hidden)
    elif hidden == [512] and [(*shape[:2], shape[3]) for shape in convolutions] == _NATURE:
        torso = partial(NatureTorso, padding="same")
    elif hidden == [512] and weights.stacks == len(_STAGES):
        width = convolutions[0][3] / _STAGES[0]
        channels = [int(width * stage) for stage in _STAGES for _ in range(5)]
        if [shape[3] for shape in convolutions] == channels:
            torso = partial(ImpalaTorso, width=width, padding="same")
    if torso is None:
        raise ValueError(
            f"{source} must be a network of Dopamine's ({_KNOWN}), got convolutions {convolutions} and layers "
            f"{[layer.kernel.shape for layer in weights.dense]}"
        )
    if inputs == "centred":
        torso = partial(CentredTorso, torso=torso)
    return partial(create_network, torso=torso, head=DuelingHead if dueling else LinearHead)


def _dueling(weights: Weights) -> bool:
    """Return whether the last two layers read the same features."""
    return len(weights.dense) > 2 and weights.dense[-1].kernel.shape[0] != weights.dense[-2].kernel.shape[1]


def _converted(source: str, network: nn.Module, weights: Weights, observation: Sequence[int], k: int) -> dict[str, Any]:
    """Return the state of `network` with these weights; `observation` is the shape of one, and k are stacked.

    Raises:
        ValueError: A layer is of another size.
    """
    modules = [(name, each) for name, each in network.named_modules() if isinstance(each, nn.Conv2d | nn.Linear)]
    dense = list(weights.dense)
    if _dueling(weights):
        dense[-2:] = dense[:-3:-1]  # value before advantage here
    layers = [*weights.convolutions, *dense]
    state: dict[str, Any] = {}
    shape: tuple[int, ...] = (*observation, k)
    for (name, module), (kernel, bias) in zip(modules, layers, strict=True):
        if kernel.ndim == 4:
            weight = kernel.transpose(3, 2, 0, 1)
        else:
            first = layers[len(weights.convolutions)].kernel is kernel
            weight = _channels_first(kernel, weights, shape).T if first else kernel.T
        if weight.shape != tuple(module.weight.shape):
            raise ValueError(
                f"{source} must fit observations {list(observation)} in stacks of {k}: its layer {name} reads "
                f"{weight.shape[1]} numbers, and {module.weight.shape[1]} are there"
            )
        state[f"{name}.weight"] = torch.from_numpy(np.array(weight, np.float32, order="C"))
        state[f"{name}.bias"] = torch.from_numpy(np.array(bias, np.float32))
    return state


def _channels_first(kernel: Array, weights: Weights, shape: tuple[int, ...]) -> Array:
    """Return a kernel [inputs, outputs] whose inputs are a flattened [*shape, channels], with the channels first."""
    inputs, outputs = kernel.shape
    if weights.convolutions:
        channels = weights.convolutions[-1].kernel.shape[3]
        ratio = 8  # of the pixels on the way, of height and width alike, rounded up
        shape = (-(-shape[0] // ratio), -(-shape[1] // ratio), channels)
    if math.prod(shape) != inputs:
        return kernel  # of another size, which the caller reports
    return np.moveaxis(kernel.reshape(*shape, outputs), -2, 0).reshape(inputs, outputs)


def _rescaled(weights: Weights, low: Sequence[float], high: Sequence[float], k: int) -> Weights:
    """Return a network that first rescales its inputs as Dopamine does: 2 (x - low) / (high - low) - 1."""
    least, most = (np.repeat(np.asarray(each, np.float64), k) for each in (low, high))
    first, *others = weights.dense
    scale = 2 / (most - least)
    kernel = first.kernel * scale[:, None]
    bias = first.bias - (2 * least / (most - least) + 1) @ first.kernel
    return weights._replace(dense=[Layer(kernel, bias), *others])


# The teacher.


@gin.configurable(module="agents", allowlist=["num_atoms", "vmax", "vmin", "inputs", "min_vals", "max_vals"])
class DopamineTeacher(Teacher):
    """A teacher from a checkpoint of Dopamine's DQN (JAX or TensorFlow), C51 or Rainbow (JAX).

    It plays its student's environment without delay: the outermost part inside the delay whose observations its network
    reads. The checkpoint holds neither the scale of inputs nor the atoms, so values other than Dopamine's defaults must
    be bound.

    Args:
        path: Dopamine's base directory, its ``checkpoints``, or one checkpoint (``ckpt.399``, ``tf_ckpt-399``).
        environment: One such as its student's, its own.
        number: The checkpoint's number; None for the newest.
        num_atoms: Atoms of C51 and Rainbow.
        vmax: The largest atom.
        vmin: The least; None means ``-vmax``.
        inputs: Images are divided by 255 (``"unit"``), or lie in [-1, 1] (``"centred"``).
        min_vals: Of a classic control network that rescales its inputs to [-1, 1], the least of each; None where it
            does not.
        max_vals: The largest of each.

    Raises:
        ValueError: There is no such checkpoint, it is torn or asks for more than data, its network is not known, or it
            is of other observations or actions.
    """

    def __init__(
        self,
        path: str | Path,
        environment: Environment,
        number: int | None = None,
        *,
        num_atoms: int = 51,
        vmax: float = 10.0,
        vmin: float | None = None,
        inputs: str = "unit",
        min_vals: Sequence[float] | None = None,
        max_vals: Sequence[float] | None = None,
    ) -> None:
        checks.choice("DopamineTeacher.inputs", inputs, ("unit", "centred"))
        directory, number = _chosen(Path(path), number)
        source = f"teacher {directory / f'ckpt.{number}'}"
        checkpoint = read_checkpoint(directory, number)
        shape, k = _observation(source, checkpoint, environment)
        environment = _own_part(source, environment, shape, bool(checkpoint.online.convolutions))
        actions = discrete_actions(environment.action_space, "teacher").number
        outputs = checkpoint.online.dense[-2 if _dueling(checkpoint.online) else -1].kernel.shape[1]
        if outputs not in (actions, actions * num_atoms):
            raise ValueError(
                f"{source} must have the actions of its student, {environment.action_space}, got a network of "
                f"{outputs} outputs, which are neither {actions} values nor {actions} times "
                f"DopamineTeacher.num_atoms={num_atoms}"
            )
        rescaled = min_vals is not None and max_vals is not None
        if (min_vals is None) != (max_vals is None) or (rescaled and not _is_range(min_vals, max_vals, shape)):
            raise ValueError(
                f"DopamineTeacher.min_vals and max_vals must be {math.prod(shape)} numbers each, all below, got "
                f"{min_vals} and {max_vals}"
            )
        with empty_gin():  # the student's bindings are not the teacher's
            kind: Any = DQN
            arguments: dict[str, Any] = {"stack_size": k, "replay_capacity": k + 8, "device": "auto"}
            if outputs != actions:
                kind, arguments = C51, {**arguments, "num_atoms": num_atoms, "vmax": vmax, "vmin": vmin}
            arguments["network"] = _network_factory(source, checkpoint.online, inputs)
            agent = TurnBasedAgent.playing(kind, environment, **arguments)
        learner: Any = agent.learner
        state = learner.state_dict()
        for name, weights in (("network", checkpoint.online), ("target", checkpoint.target)):
            if rescaled:
                weights = _rescaled(weights, min_vals, max_vals, k)  # type: ignore[arg-type]
            state[name] = _converted(source, learner.network, weights, shape, k)
        learner.load_state_dict(state)
        agent.load_policy({"learner": state})
        self._learner_state = learner.state_dict()
        self.training_steps = checkpoint.training_steps
        self._reads_optimizer = checkpoint.moments is not None and not rescaled
        if checkpoint.moments is not None and self._reads_optimizer:
            count, *moments = checkpoint.moments
            each_moment = [_converted(source, learner.network, each, shape, k) for each in moments]
            self._learner_state["optimizer"]["state"] = _state_of_adam(learner.network, count, *each_moment)
        self._found = find_replay(directory, number)
        super().__init__(agent, environment, source)

    @property
    def optimizer_name(self) -> str:
        """Name of its optimiser's class; other moments than Adam's are not read."""
        return super().optimizer_name if self._reads_optimizer else "one whose moments are not read"

    def state(self) -> dict[str, Any]:
        """Return weights, target, Adam's moments and the count of decisions."""
        return {"learner": self._learner_state, "training_steps": self.training_steps}

    def demonstrations(self) -> Iterator[TeachersDemonstration]:
        """Yield the episodes of Dopamine's replay, oldest first.

        Raises:
            ValueError: There is none, it is torn, or it holds other observations or actions.
        """
        if isinstance(self._found, str):
            raise ValueError(f"{self.source} has no replay, which offline phases learn from{self._found}: {COLLECT}")
        shape: Any = self.environment.observation_space.shape
        replay = DopamineReplay(*self._found, self.spec.stack_size)
        replay.check(shape, self.num_actions)
        for observations, columns in replay.episodes():
            yield TeachersDemonstration(self, observations.reshape(-1, *shape), columns)


def _is_range(low: Any, high: Any, shape: Sequence[int]) -> bool:
    return len(low) == len(high) == math.prod(shape) and all(a < b for a, b in zip(low, high, strict=True))


def _observation(source: str, checkpoint: DopamineCheckpoint, environment: Environment) -> tuple[tuple[int, ...], int]:
    """Return the shape of an observation and how many are stacked, without axes of 1.

    Without the last stack, a checkpoint of images gives the number of stacked ones, and the student gives their size.
    """
    if checkpoint.state is not None and checkpoint.state.ndim:
        return _squeezed(checkpoint.state.shape[:-1]), checkpoint.state.shape[-1]
    innermost: Any = layers_of(environment)[0].observation_space
    sizes = [
        layer.observation_space.shape
        for layer in layers_of(environment)
        if len(layer.observation_space.shape or ()) == 2
    ]
    if checkpoint.online.convolutions and sizes:
        return sizes[-1], checkpoint.online.convolutions[0].kernel.shape[2]
    return _squeezed(innermost.shape or ()), 1


def _squeezed(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1) or (1,)


def _own_part(source: str, environment: Environment, shape: tuple[int, ...], images: bool) -> Environment:
    """Return the outermost part of an environment inside its delay that shows observations of a shape.

    Raises:
        ValueError: No part does.
    """
    found: gym.Env[Any, Any] | None = None
    for layer in layers_of(environment):
        if type(layer).__name__ == "RealtimeDelay":
            break
        space = layer.observation_space
        if (
            isinstance(space, gym.spaces.Box)
            and _squeezed(space.shape) == shape
            and images == (space.dtype == np.uint8)
        ):
            found = layer
    if found is None:
        kind = "uint8" if images else "floats"
        raise ValueError(
            f"{source} must read the observations of its student, {environment.observation_space}, got a network of "
            f"{kind} {list(shape)}"
        )
    return found


def _state_of_adam(network: Any, count: Any, first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[int, Any]:
    """Return the state of PyTorch's Adam for a network's parameters, from both moments by the parameters' names."""
    return {
        place: {"step": torch.tensor(float(count)), "exp_avg": first[name], "exp_avg_sq": second[name]}
        for place, (name, _) in enumerate(network.named_parameters())
    }

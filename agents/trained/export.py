"""Trained policies as ONNX files, which ONNX Runtime computes without PyTorch, checked against the agent.

An agent without memory becomes one graph, from the environment's own observations to greedy actions and the values (or
logits) they are chosen by. An agent with memory or a fast path becomes two, the halves of
`async_wrappers.policy.SplitPolicy`. The graphs compute in float32, without noise and without epsilon;
`async_wrappers.onnx_policy` plays them.
"""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import methodcaller
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from async_wrappers.agents.acting.exploration import noisy_layers, resample_noise
from async_wrappers.agents.spaces.actions import DiscreteActions
from async_wrappers.agents.spaces.schema import EFFECT, START, ArrayTree, each_array, space_without_tuples, stacked
from async_wrappers.extras import extra, ignored_warnings
from async_wrappers.files import write_atomically
from async_wrappers.version import __version__

FRESH = "fresh"  # inputs of a fast path, named as the observation's
_KEY = "async_wrappers"  # of the metadata, which `async_wrappers.onnx_policy` reads
_TOLERANCE = 1e-4  # of values, relative to the largest; float32 differs by 1e-6 where sums are in another order
_LARGEST_FILE = 2**31 - 2**20  # bytes, what a file of this format holds


class ActsDifferently(Exception):
    """The exported graph acts differently from the agent; nothing is written."""


class Agreement(NamedTuple):
    """The comparison of the files' actions and values with the agent's.

    Attributes:
        files: The files written.
        random: Random observations that both were shown.
        real: Observations of the environment's that both were shown.
        ties: Decisions whose best two actions are nearer than rounding, where either may be chosen.
        difference: The largest difference of a value, a logit, a feature or a state.
    """

    files: list[Path]
    random: int
    real: int
    ties: int
    difference: float


def export(agent: Any, output: Path, real: Sequence[Any] = (), observations: int = 256, seed: int = 0) -> Agreement:
    """Write an agent's greedy policy, and check that it acts as the agent does.

    Args:
        agent: Of `turn_based.TurnBasedAgent`.
        output: Where an agent without memory goes; one with memory goes into two files beside it, ``.encode.onnx`` and
            ``.decide.onnx``.
        real: Stacks of the environment's observations, [k, *shape] each, for the check.
        observations: Random observations for the check.
        seed: Of these.

    Raises:
        DependencyNotInstalled: The extra ``onnx`` is missing.
        ValueError: The agent's network cannot be exported.
        ActsDifferently: The files act differently from the agent; they are not written.
    """
    with extra("the export of an agent", "onnx"):
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    graphs = _graphs(agent)
    rng = np.random.default_rng(seed)
    space = agent.spec.observation_space
    drawn = [_random_stack(space, agent.spec.stack_size, rng) for _ in range(observations)]
    stacks = stacked([*drawn, *real])
    written: list[tuple[Path, bytes]] = []
    inputs, ties, difference = None, 0, 0.0
    for kind, graph in graphs.items():
        example = graph.example(stacks, inputs)
        ours = graph(*example)
        model = _to_onnx(graph, tuple(each[:2] for each in example))
        _describe(model, agent, kind)
        text = model.SerializeToString()
        found, off, inputs = _compare(graph, text, example, ours)
        ties, difference = ties + found, max(difference, off)
        path = output if kind == "act" else output.with_suffix(f".{kind}{output.suffix}")
        written.append((path, text))
    output.parent.mkdir(parents=True, exist_ok=True)
    for path, text in written:
        write_atomically(path, methodcaller("write", text))
    return Agreement([path for path, _ in written], len(drawn), len(real), ties, difference)


# The graphs, as modules.


class _NamedGraph(nn.Module):
    """One graph: named inputs, all with a batch as their first axis, and named outputs.

    Args:
        agent: Whose network is copied to the CPU.
    """

    def __init__(self, agent: Any) -> None:
        super().__init__()
        self.network = copy.deepcopy(agent.learner.network).to("cpu", memory_format=torch.contiguous_format)
        self.network.requires_grad_(False).eval()
        resample_noise(noisy_layers(self.network), None)
        spec = agent.spec
        self._spec = spec.on_device("cpu") if hasattr(spec, "on_device") else spec
        self._tree = ArrayTree("observation", spec.observation_space)
        self.input_names = list(self._tree.columns)
        self.output_names: list[str] = []

    def example(self, stacks: Any, before: tuple[Tensor, ...] | None) -> tuple[Tensor, ...]:
        """Return inputs of the check: from stacks [N, k, *shape], and the outputs of the previous graph."""
        return tuple(torch.from_numpy(array) for array in self._tree.flatten(stacks))

    def read(self, observations: tuple[Tensor, ...]) -> Any:
        """Return the network's input."""
        return self._spec.reader.read_tensors(self._tree.nest(observations))

    def greedy(self, values: Tensor) -> Tensor:
        """Return the environment's numbers of the best actions."""
        best: Tensor = values.argmax(dim=-1) + self._spec.first_action
        return best

    def named(self, outputs: Any) -> tuple[Tensor, ...]:
        """Return the greedy action and the values or logits that it is chosen by."""
        return (self.greedy(outputs[0]), *outputs) if isinstance(outputs, tuple) else (self.greedy(outputs), outputs)


class _Values(_NamedGraph):
    """Observations to actions and Q-values."""

    def __init__(self, agent: Any) -> None:
        super().__init__(agent)
        self.output_names = ["action", "q_values"]

    def forward(self, *observations: Tensor) -> tuple[Tensor, ...]:
        read = self.read(observations)
        if self._spec.values_draw:
            return self.named(self._spec.values_without_draws(self.network, read))
        return self.named(self._spec.values(self.network, read, None))


class _Sequence(_NamedGraph):
    """Base class of the graphs of a network over sequences."""

    def __init__(self, agent: Any) -> None:
        super().__init__(agent)
        self.fast_age: int | None = getattr(self.network, "fast_age", None)
        read = self.read(_NamedGraph.example(self, agent.spec.reader.blank_stacks(), None))
        given = self.network(*self._blank(1, read if self.fast_age is None else {START: read, EFFECT: read}))
        self.output_names = ["action", *(("logits", "value") if isinstance(given[0], tuple) else ("q_values",))]

    def _blank(self, rows: int, read: Any) -> tuple[Any, ...]:
        """Return a network's arguments for R stacks, each of which begins an episode."""
        action = torch.full((1, rows, *self._spec.actions.column.shape), -1)
        first, state = torch.ones((1, rows), dtype=torch.bool), torch.zeros((rows, self.network.state_size))
        return each_array(lambda tensor: tensor.unsqueeze(0), read), action, torch.zeros((1, rows)), first, state


class _Memoryless(_Sequence):
    """Observations to actions and their values or logits, for a network over sequences without memory."""

    def forward(self, *observations: Tensor) -> tuple[Tensor, ...]:
        outputs, _ = self.network(*self._blank(len(observations[0]), self.read(observations)))
        return self.named(_first_row(outputs))


class _Encode(_NamedGraph):
    """The slow half: observations to features."""

    def __init__(self, agent: Any) -> None:
        super().__init__(agent)
        self.output_names = ["features"]

    def forward(self, *observations: Tensor) -> tuple[Tensor, ...]:
        return (self.network.encode(self.read(observations)).float(),)


class _Decide(_Sequence):
    """The light half: features and memory to actions."""

    def __init__(self, agent: Any) -> None:
        super().__init__(agent)
        self.input_names = ["features", "previous_action", "previous_reward", "first"]
        self._before = bool(self.network.state_size)
        if self._before:
            self.input_names.append("state")
            self.output_names.append("next_state")
        if self.fast_age is not None:
            self.input_names += [FRESH + name.removeprefix("observation") for name in self._tree.columns]

    def example(self, stacks: Any, before: tuple[Tensor, ...] | None) -> tuple[Tensor, ...]:
        """The memory is drawn at random, and some episodes begin."""
        assert before is not None
        rows, rng, spec = len(before[0]), torch.Generator().manual_seed(0), self._spec
        shape = (rows, *spec.actions.column.shape)
        action = torch.randint(spec.num_actions, shape, generator=rng) + spec.first_action
        reward = torch.randn(rows, generator=rng)
        first = torch.rand(rows, generator=rng) < 0.25
        state = torch.tanh(torch.randn((rows, self.network.state_size), generator=rng))
        newest = () if self.fast_age is None else self._tree.flatten(stacks)
        fresh = (torch.from_numpy(np.roll(array[:, -1:], 1, axis=0)) for array in newest)
        return (before[0], action, reward, first, *((state,) if self._before else ()), *fresh)

    def forward(
        self, features: Tensor, action: Tensor, reward: Tensor, first: Tensor, *more: Tensor
    ) -> tuple[Tensor, ...]:
        action = action - self._spec.first_action
        action = torch.where(first if action.ndim == 1 else first.unsqueeze(1), -1, action)
        reward = torch.where(first, 0.0, reward)
        begin = more[0] if self._before else torch.zeros((len(features), 0))
        rows = (each.unsqueeze(0) for each in (features, action, reward, first))
        fresh: tuple[Any, ...] = ()
        if self.fast_age is not None:
            read = self.read(more[1:] if self._before else more)
            fresh = (each_array(lambda tensor: tensor.unsqueeze(0), read),)
        outputs, after = self.network.decide(*rows, begin, *fresh)
        return (*self.named(_first_row(outputs)), *((after,) if self._before else ()))


def _first_row(outputs: Any) -> Any:
    return tuple(each[0] for each in outputs) if isinstance(outputs, tuple) else outputs[0]


def _graphs(agent: Any) -> dict[str, _NamedGraph]:
    """Return the graphs of an agent, by kind.

    Raises:
        ValueError: The agent has no network that can be exported.
    """
    spec: Any = getattr(agent, "spec", None)
    network = getattr(getattr(agent, "learner", None), "network", None)
    name = getattr(spec, "name", type(agent).__name__)
    if not isinstance(network, nn.Module) or not hasattr(spec, "reader"):
        raise ValueError(f"an agent with a PyTorch network can be exported, got agent {name!r}: train one of values")
    if getattr(spec, "values_draw", False) and not hasattr(spec, "values_without_draws"):
        raise ValueError(
            f"an agent whose values are drawn can be exported if it has values_without_draws(network, observation), "
            f"got agent {name!r}: give {type(spec).__name__} that method"
        )
    if not isinstance(getattr(spec, "actions", None), DiscreteActions):
        raise ValueError(
            f"an agent of Discrete actions can be exported, got agent {name!r} with {spec.action_space}: play it with "
            "async_wrappers.agents.load.load_agent"
        )
    size = sum(parameter.numel() * 4 for parameter in network.parameters())
    if size > _LARGEST_FILE:
        raise ValueError(f"an ONNX file holds networks of at most 2 GiB, got {size:,} bytes: train a smaller torso")
    remembers: Any = getattr(network, "feed_previous", False) or getattr(network, "state_size", 0)
    remembers = remembers or getattr(network, "fast_age", None) is not None
    if not hasattr(network, "initial_state"):
        return {"act": _Values(agent)}
    if not remembers:
        return {"act": _Memoryless(agent)}
    if not (hasattr(network, "encode") and hasattr(network, "decide")):
        raise ValueError(
            "network must have encode(observation) and decide(features, previous_action, previous_reward, first, state)"
            f" to be exported with memory, as SequenceNetwork has, got {type(network).__name__}"
        )
    return {"encode": _Encode(agent), "decide": _Decide(agent)}


# The files.


def _to_onnx(graph: _NamedGraph, example: tuple[Tensor, ...]) -> Any:
    """Return the model of a graph, whose batch may have any size.

    Raises:
        ValueError: PyTorch cannot export the network.
    """
    batch = {0: torch.export.Dim("batch")}
    named = graph.forward.__code__.co_argcount - 1  # arguments with a name; the rest are those of the last, `*name`
    shapes: tuple[Any, ...] = tuple(batch for _ in example[:named])
    if len(example) > named:
        shapes = (*shapes, tuple(batch for _ in example[named:]))
    program, failure = None, None
    # The strict way keeps the size of a batch open where the other one fixes it; the other one takes more of Python.
    for strict in (True, False):
        try:
            with _quiet():
                program = torch.export.export(graph, example, dynamic_shapes=shapes, strict=strict)
                break
        except Exception as error:  # a user's network may hold anything
            failure = failure or error
    if program is None:
        raise ValueError(
            f"network must be one that torch.export can trace, and {type(graph.network).__name__} is not: "
            f"{(str(failure).strip().splitlines() or [type(failure).__name__])[0]}"
        ) from failure
    with _quiet():
        made = torch.onnx.export(
            program, input_names=graph.input_names, output_names=graph.output_names, dynamo=True, verbose=False
        )
    assert made is not None
    return made.model_proto


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the exporter's warnings of missing libraries and of its own parts."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with ignored_warnings():
            yield
    finally:
        logger.setLevel(level)


def _describe(model: Any, agent: Any, kind: str) -> None:
    """Write the agent and its spaces into a model's metadata."""
    spec, network = agent.spec, agent.learner.network
    tree = ArrayTree("observation", spec.observation_space)
    facts = {
        "kind": kind,
        "agent": spec.name,
        "stack_size": spec.stack_size,
        "first_action": spec.first_action,
        "actions": spec.num_actions,
        "chunk": spec.actions.chunk,
        "state_size": int(getattr(network, "state_size", 0)),
        "fast_age": getattr(network, "fast_age", None),
        "observation": [
            {"name": name, "path": name.split("/")[1:], "shape": list(column.shape), "dtype": column.dtype.name}
            for name, column in tree.columns.items()
        ],
        "version": __version__,
    }
    if kind == "decide":
        (features,) = (entry for entry in model.graph.input if entry.name == "features")
        facts["features"] = [axis.dim_value for axis in features.type.tensor_type.shape.dim[1:]]
    entry = model.metadata_props.add()
    entry.key, entry.value = _KEY, json.dumps(facts)


# The check.


def _random_stack(space: gym.Space[Any], size: int, rng: np.random.Generator) -> Any:
    """Return a stack [k, *shape] of observations that a space may hold."""
    plain = space_without_tuples(space)
    plain.seed(int(rng.integers(2**31)))
    return stacked([plain.sample() for _ in range(size)])


def _compare(
    graph: _NamedGraph, text: bytes, example: tuple[Tensor, ...], given_by_agent: tuple[Tensor, ...]
) -> tuple[int, float, tuple[Tensor, ...]]:
    """Return the ties, the largest difference, and the agent's outputs.

    Raises:
        ActsDifferently: An action or a value differs.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(text, options, providers=["CPUExecutionProvider"])
    used = {entry.name for entry in session.get_inputs()}
    given = {name: tensor.numpy() for name, tensor in zip(graph.input_names, example, strict=True) if name in used}
    ours: Mapping[str, npt.NDArray[Any]] = {
        name: tensor.numpy() for name, tensor in zip(graph.output_names, given_by_agent, strict=True)
    }
    theirs = dict(zip(graph.output_names, session.run(None, given), strict=True))
    difference = 0.0
    for name in graph.output_names:
        if name == "action":
            continue
        off = float(np.abs(ours[name] - theirs[name]).max(initial=0.0))
        if not off <= _TOLERANCE * (1 + float(np.abs(ours[name]).max(initial=0.0))):
            raise ActsDifferently(f"the exported graph gives other {name} than the agent (by {off:g}): not written")
        difference = max(difference, off)
    ties = 0
    if "action" in ours:
        values = ours[graph.output_names[1]]
        best = np.sort(values, axis=-1)[..., -2:]
        clear = best[..., -1] - best[..., 0] > 2 * difference if values.shape[-1] > 1 else np.ones(values.shape[:-1])
        wrong = (ours["action"] != theirs["action"]) & np.asarray(clear, bool)
        if wrong.any():
            raise ActsDifferently(
                f"the exported graph chooses other actions than the agent ({int(wrong.sum())} of {wrong.size}): not "
                "written"
            )
        ties = int((ours["action"] != theirs["action"]).sum())
    return ties, difference, tuple(torch.from_numpy(array) for array in ours.values())

"""Policies that ONNX Runtime computes without PyTorch, from files of ``train.py export``, for `AsyncRunner` and robots.

An agent without memory is one file, whose graph goes from observations to actions; an agent with memory or a fast path
is two, the halves of its policy (`async_wrappers.policy.SplitPolicy`)::

    agent.onnx          observation -> action, values                                                   `OnnxPolicy`
    agent.encode.onnx   observation -> features                                                    `OnnxSplitPolicy`
    agent.decide.onnx   features, previous action and reward, first, state, fresh -> action, values, next_state

All inputs and outputs have a batch as their first axis. A graph's metadata hold its shapes, dtypes and the length of
its stacks under ``async_wrappers``, as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box

from async_wrappers.checks import whole
from async_wrappers.extras import extra
from async_wrappers.files import path_of, refuse_damage
from async_wrappers.policy import Decision, Memory

METADATA = "async_wrappers"
_REMEDY = "export it again"
_CPU = ("CPUExecutionProvider",)


class OnnxPolicy:
    """The greedy policy of an agent without memory, a `async_wrappers.policy.Policy` computed by ONNX Runtime.

    It acts as the agent does in evaluation, but for the random actions that an agent of values makes there with
    probability ``epsilon_eval``.

    Args:
        path: File of ``train.py export``.
        threads: Threads of one inference; workers that share a machine do best with one each.
        providers: Names of ONNX Runtime's execution providers, in the order in which they are tried.

    Attributes:
        facts: The file's metadata: the agent's name, ``stack_size`` and so on.

    Raises:
        DependencyNotInstalled: The extra ``onnx`` is missing.
        ValueError: There is no such file, or it is not a policy of this kind.

    Example::

        AsyncRunner(make_env, lambda: OnnxPolicy("agent.onnx"), workers=4, fps=60, default_action="repeat")
    """

    def __init__(self, path: str | Path, *, threads: int = 1, providers: Sequence[str] = _CPU) -> None:
        path = path_of(path)
        if not path.is_file() and _half(path, "encode").is_file():
            raise ValueError(
                f"path must be a policy without memory, and {path} is not there while {_half(path, 'encode')} is: use "
                f"OnnxSplitPolicy({str(path)!r})"
            )
        self._graph = _Graph(path, "act", threads, providers)
        self.facts: Mapping[str, Any] = self._graph.facts

    def act(self, observation: Any, decision: Decision | None = None) -> Any:
        """Return the action for one observation, or for the stack of the last ``stack_size`` ones, the newest last."""
        return _of_environment(self.outputs(observation)["action"])

    def outputs(self, observation: Any) -> dict[str, npt.NDArray[Any]]:
        """Return all outputs of the graph for one observation, by name: ``action``, ``q_values`` or ``logits``."""
        return self._graph.run(self._graph.stacks(observation))


class Released(NamedTuple):
    """Result of `OnnxSplitPolicy.release`.

    Attributes:
        action: The environment's action.
        state: The core's state, [1, S]; None without a core.
    """

    action: Any
    state: Any


class OnnxSplitPolicy:
    """The greedy policy of an agent with memory or a fast path, a `async_wrappers.policy.SplitPolicy`.

    ONNX Runtime computes it.

    Args:
        path: The path given to ``train.py export``, such as ``agent.onnx``; its halves lie beside it, in
            ``agent.encode.onnx`` and ``agent.decide.onnx``.
        threads: As in `OnnxPolicy`.
        providers: As in `OnnxPolicy`.

    Attributes:
        facts: The files' metadata.
        features: The space of the results of `encode`, for the argument ``features`` of `AsyncRunner`.
        fast_age: How old the observation is that a fast path reads, in frames; None without one.

    Raises:
        DependencyNotInstalled: The extra ``onnx`` is missing.
        ValueError: A half is not there, or is not one of such a policy.
    """

    def __init__(self, path: str | Path, *, threads: int = 1, providers: Sequence[str] = _CPU) -> None:
        path = path_of(path)
        if path.is_file() and not _half(path, "encode").is_file():
            raise ValueError(
                f"path must be a policy with memory, and {path} is one without: use OnnxPolicy({str(path)!r})"
            )
        self._encode = _Graph(_half(path, "encode"), "encode", threads, providers)
        self._decide = _Graph(_half(path, "decide"), "decide", threads, providers)
        self.facts: Mapping[str, Any] = self._decide.facts
        self.fast_age: int | None = self.facts.get("fast_age")
        self.features = Box(-np.inf, np.inf, tuple(self.facts["features"]), np.float32)

    def encode(self, observation: Any, decision: Decision | None = None) -> npt.NDArray[np.float32]:
        """Return the features of one observation, float32 [F]."""
        features: npt.NDArray[np.float32] = self._encode.run(self._encode.stacks(observation))["features"][0]
        return features

    def release(self, features: npt.NDArray[np.float32], memory: Memory, decision: Decision | None = None) -> Released:
        """Return the action for features, and the core's state; see `async_wrappers.policy.SplitPolicy`."""
        outputs = self.outputs(features, memory)
        return Released(_of_environment(outputs["action"]), outputs.get("next_state"))

    def outputs(self, features: npt.NDArray[np.float32], memory: Memory) -> dict[str, npt.NDArray[Any]]:
        """Return all outputs of the light half, by name: ``action``, ``q_values`` or ``logits``, ``next_state``."""
        chunk, first = self.facts["chunk"], memory.first
        blank = np.full(() if chunk is None else (chunk,), self.facts["first_action"])
        state = np.zeros((1, self.facts["state_size"]), np.float32) if first else memory.state
        return self._decide.run(
            {
                "features": np.asarray(features, np.float32)[None],
                "previous_action": np.asarray(blank if first else memory.previous_action, np.int64)[None],
                "previous_reward": np.array([memory.previous_reward], np.float32),
                "first": np.array([first]),
                "state": state,
                **({} if self.fast_age is None else self._decide.fresh(memory.fresh)),
            }
        )


class _Graph:
    """A file's graph, ready to run."""

    def __init__(self, path: Path, kind: str, threads: int, providers: Sequence[str]) -> None:
        threads = whole("threads", threads, least=1)
        with extra("a policy of ONNX Runtime", "onnx"):
            import onnxruntime
        if not path.is_file():
            raise ValueError(f"path must be a policy that `train.py export` has written, and there is no {path}")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 3  # errors alone
        try:
            self._session = onnxruntime.InferenceSession(str(path), options, providers=list(providers))
        except Exception as error:  # ONNX Runtime's own kinds derive from Exception alone
            first_line = (str(error).splitlines() or [""])[0]
            raise ValueError(f"path must be a policy that ONNX Runtime can run, got {path}: {first_line}") from None
        with refuse_damage(path, _REMEDY):
            told = self._session.get_modelmeta().custom_metadata_map.get(METADATA)
            self.facts: dict[str, Any] = {**json.loads(told)} if told else {}
        if self.facts.get("kind") != kind:
            raise ValueError(
                f"path must be a policy that `train.py export` has written (of the kind {kind!r}), got {path} "
                f"({self.facts.get('kind') or 'a graph of another program'})"
            )
        self._names = [entry.name for entry in self._session.get_outputs()]
        self._inputs = {entry.name for entry in self._session.get_inputs()}
        with refuse_damage(path, _REMEDY):
            self._check_facts()

    def _check_facts(self) -> None:
        """Refuse metadata that are not of the graph, with any of Python's errors."""
        facts = self.facts
        whole("stack_size", facts["stack_size"], least=1)
        given = {"features", "previous_action", "previous_reward", "first", "state"}
        if facts["kind"] == "decide":
            [whole("features", each, least=1) for each in facts["features"]]
            whole("state_size", facts["state_size"], least=0)
            whole("first_action", facts["first_action"], least=-(2**63))
            if facts["chunk"] is not None:
                whole("chunk", facts["chunk"], least=1)
            if facts.get("fast_age") is not None:
                whole("fast_age", facts["fast_age"], least=0)
                for entry in facts["observation"]:
                    np.dtype(entry["dtype"])
                    _check_shape(entry, 1, self._session.get_inputs(), _of_fresh(entry))
                    given.add(_of_fresh(entry))
        else:
            given = {entry["name"] for entry in facts["observation"]}
            for entry in facts["observation"]:
                np.dtype(entry["dtype"])
                _check_shape(entry, facts["stack_size"], self._session.get_inputs())
        if missing := sorted(self._inputs - given):
            raise ValueError(f"nothing is given as its input {missing[0]!r}")

    def run(self, inputs: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """Return the outputs by name; inputs that the graph does not read are left out."""
        given = {name: array for name, array in inputs.items() if name in self._inputs}
        return dict(zip(self._names, self._session.run(None, given), strict=True))

    def stacks(self, observation: Any) -> dict[str, npt.NDArray[Any]]:
        """Return the inputs [1, k, *shape] for one observation, or for a stack of k.

        Raises:
            ValueError: An array has another shape.
        """
        size = self.facts["stack_size"]
        return {entry["name"]: array for entry, array in self._arrays(observation, size)}

    def fresh(self, observation: Any) -> dict[str, npt.NDArray[Any]]:
        """Return the inputs [1, 1, *shape] of a fast path.

        Raises:
            ValueError: An array has another shape.
        """
        return {_of_fresh(entry): array for entry, array in self._arrays(observation, 1)}

    def _arrays(self, observation: Any, size: int) -> Iterator[tuple[Mapping[str, Any], npt.NDArray[Any]]]:
        """Yield each entry of the observation's metadata with its array [1, k, *shape]."""
        for entry in self.facts["observation"]:
            array = observation
            for key in entry["path"]:
                array = array[int(key)] if isinstance(array, tuple) else array[key]
            array, shape = np.asarray(array, entry["dtype"]), tuple(entry["shape"])
            if array.shape == shape and size == 1:
                array = array[None]
            elif array.shape != (size, *shape):
                raise ValueError(
                    f"{entry['name']} must have the shape {list(shape if size == 1 else (size, *shape))}, got "
                    f"{list(array.shape)}" + (": give the stack of the last observations" if size > 1 else "")
                )
            yield entry, array[None]


def _of_fresh(entry: Mapping[str, Any]) -> str:
    """Return the name of a fast path's input for an observation's entry."""
    return "fresh" + str(entry["name"]).removeprefix("observation")


def _check_shape(entry: Mapping[str, Any], stack_size: int, inputs: Sequence[Any], name: str | None = None) -> None:
    """Refuse an observation's entry in the metadata that is not of the graph's input of its name, or of `name`."""
    if entry["name"].split("/")[1:] != entry["path"]:
        raise ValueError(f"the path of {entry['name']!r} is {entry['path']!r}")
    shape = [stack_size, *entry["shape"]]
    for each in inputs:
        if each.name == (name or entry["name"]) and each.shape[1:] != shape:
            raise ValueError(f"{each.name!r} has the shape {shape} in its metadata, and {each.shape[1:]} in its graph")


def _half(path: Path, half: str) -> Path:
    """Return the file of a half of a policy."""
    return path.with_suffix(f".{half}{path.suffix}")


def _of_environment(actions: npt.NDArray[Any]) -> Any:
    """Return the environment's action of a batch of one: a number, or a chunk of such."""
    return actions[0].item() if actions.ndim == 1 else actions[0]

"""What a transition is made of, declared once: a replay makes its columns from it, a learner its tensors.

A transition is a mapping of these fields. The last column of the table is what a replay keeps of each, per decision:

=================  ==========================================================  =====================================
field              meaning                                                     columns of a replay
=================  ==========================================================  =====================================
observation        what the decision saw: an array, or a dict of arrays        "observation", or "observation/KEY" each
action             a whole number                                              "action", int64
reward             summed over the decision's frames                           "reward", float32
interval           frames from this decision's start to the next one's         "interval", int32
terminal           the episode terminated: no bootstrap                        "kind", uint8, together with
truncated          the episode ended, but the return bootstraps                truncated
next_observation   read only where the episode ends                            the observation of the next slot
extras             what the policy left for the learner beside its action,     "extras/NAME" each
                   a dict of arrays: a log-probability, a recurrent state
=================  ==========================================================  =====================================

Without extras a transition lacks the last field, and nothing anywhere takes a byte for it.

A *batch* is what a replay draws: a mapping of arrays [B, ...] of observation, next_observation (stacks), action,
reward, discount, interval, index; weight and probability where transitions have priorities; extras, those of the
transition's first decision, where they are declared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Dict

from agents.trees import Path, at, each_array, in_brackets, leaves, nest

__all__ = ["ArrayTree", "Column", "TransitionSchema", "batch_tensors"]


class Column(NamedTuple):
    """One array of a replay: the shape and the dtype of what a slot holds."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class ArrayTree:
    """The arrays that a value of a space is made of: one, or one for each entry of a Dict, which may hold further ones.

    Args:
        name: what messages and columns call the value, such as "observation".
        space: a space of arrays, or a Dict of such.

    Attributes:
        columns: the shape and the dtype of each array, by the name of its column: `name`, or `name/KEY/...`.

    Raises:
        ValueError: a space that is neither an array nor a Dict of arrays.
    """

    def __init__(self, name: str, space: gym.Space[Any]) -> None:
        """See the class."""
        spaces = _spaces(name, space)
        flat = [(path, _column(name + in_brackets(path), inner)) for path, inner in leaves(spaces)]
        self.name = name
        self._paths: list[Path] = [path for path, _ in flat]
        self.columns = {"/".join((name, *path)): column for path, column in flat}
        if len(self.columns) < len(flat):
            raise ValueError(f"{name} must have no two keys alike when joined by '/', got {space}")
        self._tree = nest(self._paths, [column for _, column in flat])
        self._plain = not isinstance(self._tree, dict)

    def nest(self, values: Sequence[Any]) -> Any:
        """Put one thing per column where its array belongs: in nested dicts, or alone."""
        return values[0] if self._plain else nest(self._paths, values)

    def flatten(self, tree: Any) -> list[Any]:
        """Return what lies at the place of each column: the reverse of `nest`."""
        return [at(tree, path) for path in self._paths]

    def check(self, value: Any, name: str | None = None) -> list[npt.NDArray[Any]]:
        """Return the arrays of a value in the order of `columns`.

        Args:
            value: an array, or a dict of arrays.
            name: what a message calls it, by default the tree's own name.

        Raises:
            ValueError: it has other keys, another shape or another kind of numbers than the space.
        """
        # Most observations are one array that can be stored as it is; this is on the path of every stored transition.
        if self._plain:
            array = np.asarray(value)
            if (array.shape, array.dtype) == self._tree:
                return [array]
        found: list[npt.NDArray[Any]] = []
        _check(name or self.name, self._tree, value, found)
        return found


class TransitionSchema:
    """The fields of a transition that depend on the environment and the agent.

    Args:
        observation_space: a space of arrays, or a Dict of such.
        extras: the space of what a policy leaves for the learner beside its action; None where it leaves nothing.

    Attributes:
        observation: the arrays of an observation.
        extras: the arrays of the extras, or None.
        columns: every column that the fields need in a replay, without what is of the replay alone.

    Raises:
        ValueError: a space cannot be stored in arrays, or the extras are no Dict.

    Example:
        >>> from gymnasium.spaces import Box, Dict
        >>> schema = TransitionSchema(Box(0, 255, (84, 84), "uint8"), Dict(log_prob=Box(-100, 0, ())))
        >>> list(schema.columns)
        ['observation', 'action', 'reward', 'interval', 'kind', 'extras/log_prob']
    """

    def __init__(self, observation_space: gym.Space[Any], extras: Dict | None = None) -> None:
        """See the class."""
        if extras is not None and not isinstance(extras, Dict):
            raise ValueError(f"extras must be a gymnasium.spaces.Dict or None, got {extras!r}")
        self.observation = ArrayTree("observation", observation_space)
        self.extras = None if extras is None else ArrayTree("extras", extras)
        self.columns: dict[str, Column] = {
            **self.observation.columns,
            "action": Column((), np.dtype(np.int64)),
            "reward": Column((), np.dtype(np.float32)),
            "interval": Column((), np.dtype(np.int32)),
            "kind": Column((), np.dtype(np.uint8)),
            **(self.extras.columns if self.extras else {}),
        }

    def as_dict(self) -> dict[str, Any]:
        """Return the schema as plain data: two schemas are alike where this is."""
        return {**_plain_data(self.observation), **(_plain_data(self.extras) if self.extras else {})}


_STACKS = ("observation", "next_observation")
_NUMBERS = ("action", "reward", "discount", "weight")


def batch_tensors(batch: Mapping[str, Any], read: Callable[[Any], Any], tensor: Callable[[Any], Any]) -> dict[str, Any]:
    """Return what a loss reads of a batch.

    Args:
        batch: what a replay has drawn. `interval`, `index` and `probability` are not for the loss.
        read: makes what the network reads from stacks [B, k, *shape], or from a dict of such.
        tensor: makes a tensor from an array: used for all that is not a stack, each array of the extras too.

    Returns:
        "observation" and "next_observation" as `read` gives them; tensors [B] of "action", "reward", "discount" and,
        if the batch has them, "weight"; "extras", tensors in dicts like those of the batch, if it has them.
    """
    # The order is that of the batch: on another device it decides what is copied first.
    tensors: dict[str, Any] = {}
    for name, array in batch.items():
        if name in _STACKS:
            tensors[name] = read(array)
        elif name in _NUMBERS:
            tensors[name] = tensor(array)
        elif name == "extras":
            tensors[name] = each_array(tensor, array)
    return tensors


def _plain_data(tree: ArrayTree) -> dict[str, Any]:
    columns = tree.columns.values()
    return {
        f"{tree.name}_shape": tree.nest([list(column.shape) for column in columns]),
        f"{tree.name}_dtype": tree.nest([column.dtype.str for column in columns]),
    }


def _spaces(name: str, space: gym.Space[Any]) -> Any:
    """Return a space's arrays as a tree of the spaces of each."""
    if not isinstance(space, Dict):
        return space
    if not space.spaces:
        raise ValueError(f"{name} must hold an array, got an empty Dict")
    return {key: _spaces(f"{name}[{key!r}]", inner) for key, inner in space.spaces.items()}


def _column(name: str, space: gym.Space[Any]) -> Column:
    if space.shape is None or space.dtype is None:
        raise ValueError(f"{name} must be an array or a Dict of arrays, got {space}, flatten it first")
    if space.dtype.hasobject:
        raise ValueError(f"{name} must have a plain dtype such as uint8, got {space.dtype} in {space}")
    return Column(space.shape, space.dtype)


def _check(name: str, tree: Any, value: Any, found: list[npt.NDArray[Any]]) -> None:
    """Compare a value with the columns of a tree, and append its arrays to `found`."""
    if not isinstance(tree, dict):
        array = np.asarray(value)
        if array.shape != tree.shape:
            raise ValueError(f"{name} must have shape {tree.shape}, got {array.shape}")
        if array.dtype != tree.dtype and not np.can_cast(array.dtype, tree.dtype, "same_kind"):
            raise ValueError(f"{name} must have dtype {tree.dtype}, got {array.dtype}, cast it first")
        found.append(array)
        return
    if not isinstance(value, Mapping) or value.keys() != tree.keys():
        got = sorted(value) if isinstance(value, Mapping) else type(value).__name__
        raise ValueError(f"{name} must be a dict with the keys {sorted(tree)}, got {got}")
    for key, inner in tree.items():
        _check(f"{name}[{key!r}]", inner, value[key], found)

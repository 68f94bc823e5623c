"""The fields of a transition: a replay makes its columns from them, a learner its tensors.

The tensors are made by a `Reader`, on the device and in the formats of a `Compute`.

A transition is a mapping of these fields. The table's last column names the columns in which a replay stores a field,
per decision:

=================  ==========================================================  =====================================
field              meaning                                                     columns of a replay
=================  ==========================================================  =====================================
observation        what the decision saw: an array, or a dict or tuple of      "observation", or "observation/KEY" each
                   arrays
action             as `spaces.actions` stores it: a whole number, or numbers   "action", int64 or float32
reward             summed over the decision's frames                           "reward", float32
interval           frames from this decision's start to the next one's         "interval", int32
terminal           the episode terminated: no bootstrap                        "kind", uint8, together with
truncated          the episode ended, but the return bootstraps                truncated
next_observation   read only where the episode ends                            the observation of the next slot
extras             what the policy left for the learner beside its action,     "extras/NAME" each
                   a dict of arrays: a log-probability, a recurrent state
=================  ==========================================================  =====================================

Without extras a transition lacks the last field, and no memory is used for it.

A *batch* is what a replay draws: a mapping of arrays [B, ...] of observation, next_observation (stacks), action,
reward, discount, interval, index; weight and probability where transitions have priorities; extras, those of the
transition's first decision, where they are declared; action_window and next_action_window, the stored actions before
each of the two observations, where the replay has a window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from operator import getitem
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from array_api_compat import is_torch_array
from gymnasium.spaces import Box, Dict, Tuple

from async_wrappers.array_libraries import on_host
from async_wrappers.observations import array_of

# Names of extras: arrays that a policy returns beside its action.
STATE = "state"  # the state of a policy with memory after its decision
VERSION = "version"  # the number of updates of the policy's weights
TORSO_VERSION = "torso_version"  # that of its torso's weights, which under delay are older than its core's
VALUE, MAX_VALUE = "value", "max_value"  # the policy's value of the chosen action, and the largest value

# Parts of an observation, where a learner reads the one on which an action landed too (`acting.frames_read`).
START, EFFECT = "start", "effect"


# Values in nested dicts, as those of a Gymnasium Dict space are; one value alone is the smallest such tree.
#
# A *path* is the keys from the outermost dict to a value; () where there is no dict. Only mappings are branches: a
# list or a tuple is a value. An observation of a Tuple space becomes a dict by position first, with the keys "0", "1",
# ... (`without_tuples`), since a tuple alone does not say whether it is several arrays or the numbers of one.

Path = tuple[str, ...]

Arrays = dict[str, npt.NDArray[Any]]


def leaves(tree: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield each value of a tree with its path, depth first, in the order of the dicts' keys."""
    if not isinstance(tree, Mapping):
        yield path, tree
        return
    for key, inner in tree.items():
        yield from leaves(inner, (*path, key))


def at(tree: Any, path: Path) -> Any:
    """Return the value of a tree at a path."""
    return reduce(getitem, path, tree)


def nest(paths: Sequence[Path], values: Sequence[Any]) -> Any:
    """Put values at their paths: the reverse of `leaves`."""
    nested: dict[str, Any] = {}
    for path, value in zip(paths, values, strict=True):
        if not path:
            return value
        inner = nested
        for key in path[:-1]:
            inner = inner.setdefault(key, {})
        inner[path[-1]] = value
    return nested


def each_array(function: Callable[..., Any], *trees: Any) -> Any:
    """Apply `function` to the arrays at the same path of each tree; return a tree of the results."""
    first = trees[0]
    if not isinstance(first, Mapping):
        return function(*trees)
    if len(trees) == 1:
        return {key: each_array(function, inner) for key, inner in first.items()}
    return {key: each_array(function, *(tree[key] for tree in trees)) for key in first}


def rows_of(tree: Any, rows: Any) -> Any:
    """Return some rows of each array of a tree: views, where `rows` is a slice or one number."""
    return {key: rows_of(inner, rows) for key, inner in tree.items()} if isinstance(tree, Mapping) else tree[rows]


def in_brackets(path: Path) -> str:
    """Return a path as it is written in Python, such as ``['image']['left']``."""
    return "".join(f"[{key!r}]" for key in path)


class Column(NamedTuple):
    """One array of a replay: the shape and the dtype of what a slot holds."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


WHOLE_NUMBER = Column((), np.dtype(np.int64))


class ArrayTree:
    """The arrays that a value of a space is made of: one, or one for each entry of a Dict, which may hold further ones.

    The entries of a Tuple have their positions as keys: "0", "1" and so on.

    Args:
        name: what messages and columns call the value, such as "observation".
        space: a space of arrays, or a Dict or Tuple of such.

    Attributes:
        columns: the shape and the dtype of each array, by the name of its column: `name`, or `name/KEY/...`.

    Raises:
        ValueError: a space that is neither an array nor a Dict or Tuple of arrays.
    """

    def __init__(self, name: str, space: gym.Space[Any]) -> None:
        spaces = _spaces(name, space_without_tuples(space))
        flat = [(path, _column(name + in_brackets(path), inner)) for path, inner in leaves(spaces)]
        self.name = name
        self._paths: list[Path] = [path for path, _ in flat]
        self.columns = {"/".join((name, *path)): column for path, column in flat}
        if len(self.columns) < len(flat):
            raise ValueError(f"{name} must have no two keys alike when joined by '/', got {space}")
        self._tree = nest(self._paths, [column for _, column in flat])
        self._plain = not isinstance(self._tree, dict)
        # Of a dict of arrays, by key; the same arrays in dicts of dicts are looked up one level after another.
        self._flat = [(path[0], column) for path, column in flat] if all(len(path) == 1 for path, _ in flat) else []

    def nest(self, values: Sequence[Any]) -> Any:
        """Return a tree of one item per column: nested dicts, or the item alone."""
        return values[0] if self._plain else nest(self._paths, values)

    def flatten(self, tree: Any) -> list[Any]:
        """Return a tree's items in the order of the columns: the reverse of `nest`."""
        return [at(tree, path) for path in self._paths]

    def check(self, value: Any, name: str | None = None) -> list[npt.NDArray[Any]]:
        """Return the arrays of a value in the order of `columns`.

        Args:
            value: an array, or a dict or tuple of arrays.
            name: what a message calls it, by default the tree's own name.

        Raises:
            ValueError: it has other keys, another shape or another kind of numbers than the space.
        """
        # Most observations are one array that can be stored as it is; this is on the path of every stored transition.
        if self._plain and not is_torch_array(value):
            array = np.asarray(value)
            if (array.shape, array.dtype) == self._tree:
                return [array]
        found: list[npt.NDArray[Any]] = []
        _check(name or self.name, self._tree, value, found)
        return found

    def check_rows(self, value: Any, rows: int) -> list[npt.NDArray[Any]]:
        """Return the arrays `[rows, *shape]` of `rows` values, in the order of `columns`.

        Args:
            value: an array `[rows, *shape]`, or a dict or tuple of such.
            rows: how many there must be.

        Raises:
            ValueError: it has other keys, another shape or another kind of numbers than the space.
        """
        if self._plain and not is_torch_array(value):
            array = np.asarray(value)
            if array.shape == (rows, *self._tree.shape) and array.dtype == self._tree.dtype:
                return [array]
        found: list[npt.NDArray[Any]] = []
        if self._flat and type(value) is dict and len(value) == len(self._flat):
            for key, (shape, dtype) in self._flat:
                one = value.get(key)
                if not (type(one) is np.ndarray and one.shape == (rows, *shape) and one.dtype == dtype):
                    found = []
                    break
                found.append(one)
            else:
                return found
        tree = each_array(lambda column: Column((rows, *column.shape), column.dtype), self._tree)
        _check(self.name, tree, value, found)
        return found


class TransitionSchema:
    """The fields of a transition that depend on the environment and the agent.

    Args:
        observation_space: a space of arrays, or a Dict or Tuple of such.
        extras: the space of the arrays that a policy returns for the learner beside its action; None without any.
        action: shape and dtype of a stored action (`agents.spaces.actions`).

    Attributes:
        observation: the arrays of an observation.
        extras: the arrays of the extras, or None.
        action: as given.
        columns: every column that the fields need in a replay, without the replay's own columns.

    Raises:
        ValueError: a space cannot be stored in arrays, or the extras are no Dict.

    Example:
        >>> from gymnasium.spaces import Box, Dict
        >>> schema = TransitionSchema(Box(0, 255, (84, 84), "uint8"), Dict(log_prob=Box(-100, 0, ())))
        >>> list(schema.columns)
        ['observation', 'action', 'reward', 'interval', 'kind', 'extras/log_prob']
    """

    def __init__(
        self, observation_space: gym.Space[Any], extras: Dict | None = None, action: Column = WHOLE_NUMBER
    ) -> None:
        if extras is not None and not isinstance(extras, Dict):
            raise ValueError(f"extras must be a gymnasium.spaces.Dict or None, got {extras!r}")
        self.observation = ArrayTree("observation", observation_space)
        self.extras = None if extras is None else ArrayTree("extras", extras)
        self.action = action
        self.columns: dict[str, Column] = {
            **self.observation.columns,
            "action": action,
            "reward": Column((), np.dtype(np.float32)),
            "interval": Column((), np.dtype(np.int32)),
            "kind": Column((), np.dtype(np.uint8)),
            **(self.extras.columns if self.extras else {}),
        }

    def as_dict(self) -> dict[str, Any]:
        """Return the schema as plain data, which is equal for equal schemas."""
        facts = {**_plain_data(self.observation), **(_plain_data(self.extras) if self.extras else {})}
        if self.action != WHOLE_NUMBER:
            facts |= {"action_shape": list(self.action.shape), "action_dtype": self.action.dtype.str}
        return facts


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
    refuse_empty(name, space)
    return {key: _spaces(f"{name}[{key!r}]", inner) for key, inner in space.spaces.items()}


def _column(name: str, space: gym.Space[Any]) -> Column:
    if space.shape is None or space.dtype is None:
        raise ValueError(f"{name} must be an array, or a Dict or Tuple of arrays, got {space}: {remedy(space)}")
    if space.dtype.hasobject:
        raise ValueError(f"{name} must have a plain dtype such as uint8, got {space.dtype} in {space}")
    return Column(space.shape, space.dtype)


def _check(name: str, tree: Any, value: Any, found: list[Any]) -> None:
    """Compare a value with the columns of a tree, and append its arrays to `found`."""
    if not isinstance(tree, dict):
        if is_torch_array(value) and tuple(value.shape) == tree.shape and str(value.dtype) == f"torch.{tree.dtype}":
            found.append(value)  # stays on its device
        else:
            found.append(array_of(name, on_host(value), tree.shape, tree.dtype))
        return
    if isinstance(value, tuple):
        value = {str(position): each for position, each in enumerate(value)}
    if not isinstance(value, Mapping) or value.keys() != tree.keys():
        got = sorted(value) if isinstance(value, Mapping) else type(value).__name__
        raise ValueError(f"{name} must be a dict with the keys {sorted(tree)}, got {got}")
    for key, inner in tree.items():
        _check(f"{name}[{key!r}]", inner, value[key], found)


# Observations of any space that agents take: an array, or a Dict or Tuple of arrays, which may hold further ones.


def space_without_tuples(space: gym.Space[Any]) -> gym.Space[Any]:
    """Return a space with a Dict by position ("0", "1", ...) for each Tuple; the space itself if it holds none."""
    if isinstance(space, Tuple):
        return Dict({str(position): space_without_tuples(each) for position, each in enumerate(space.spaces)})
    if isinstance(space, Dict):
        inner = {key: space_without_tuples(each) for key, each in space.spaces.items()}
        return space if all(inner[key] is each for key, each in space.spaces.items()) else Dict(inner)
    return space


def without_tuples(space: gym.Space[Any], observation: Any) -> Any:
    """Return an observation of a space as one of `space_without_tuples`; it may be one already."""
    if isinstance(space, Tuple):
        parts = observation.values() if isinstance(observation, Mapping) else observation
        pairs = enumerate(zip(space.spaces, parts, strict=True))
        return {str(position): without_tuples(inner, part) for position, (inner, part) in pairs}
    if isinstance(space, Dict):
        return {key: without_tuples(inner, observation[key]) for key, inner in space.spaces.items()}
    return observation


def first_array(observation: Any) -> Any:
    """Return one of an observation's arrays or tensors, for properties that all of them share."""
    return next(array for _, array in leaves(observation))


def copied(observation: Any) -> Any:
    """Return a copy of an observation, since the environment may reuse its arrays."""
    return each_array(np.array, observation)


def stacked(observations: Iterable[Any]) -> Any:
    """Return observations [*shape] as one stack [k, *shape]."""
    return each_array(lambda *arrays: np.stack(arrays), *observations)


def effect_space(space: gym.Space[Any]) -> Dict:
    """Return the space of an observation with that of its action's effect, both of `space`."""
    return Dict({START: space, EFFECT: space})


def whole_stacks(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a reader of batches [B, 1, k, *shape] of stacks, made of `read` for [B, k, *shape]."""
    return partial(_read_whole, read)


def _read_whole(read: Callable[[Any], Any], stacks: Any) -> Any:
    return read(each_array(lambda array: array[:, 0], stacks))


def each_part(read: Callable[[Any], Any]) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Return a reader of dicts whose values `read` reads, such as the stacks of starts and of effects."""
    return partial(_read_each, read)


def _read_each(read: Callable[[Any], Any], parts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: read(part) for name, part in parts.items()}


def batch_of_one(arrays: Any) -> Any:
    """Return an observation, a stack or extras, arrays or numbers [...], as a batch [1, ...]; arrays are not copied."""
    if isinstance(arrays, Mapping):
        return {key: batch_of_one(inner) for key, inner in arrays.items()}
    return np.asarray(arrays)[None]


def are_equal(one: Any, other: Any) -> bool:
    """Return whether two observations of a space are the same."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(are_equal, one, other))
    if not isinstance(one, Mapping):
        return np.array_equal(one, other)
    return all(are_equal(one[key], other[key]) for key in one)


# Tensors: their device and precision, and a network's inputs for any space.


def blank_actions(space: gym.Space[Any], rows: int | None = None) -> npt.NDArray[Any]:
    """Return the action that stands before an episode's first, or `rows` of them: zeros."""
    shape, dtype = space.shape or (), space.dtype if isinstance(space, Box) else np.int64
    return np.zeros(shape if rows is None else (rows, *shape), dtype)


def blank_observation(space: gym.Space[Any]) -> Any:
    """Return the zeros of a space of arrays, or of a Dict of such."""
    return each_array(lambda inner: np.zeros(inner.shape or (), inner.dtype), space)


def refuse_empty(name: str, space: gym.Space[Any]) -> None:
    """Refuse a Dict or Tuple without entries, and an array without numbers: a network can read nothing of it."""
    if not space.spaces if isinstance(space, Dict) else 0 in (space.shape or ()):
        what = "an array, got an empty Dict or Tuple" if isinstance(space, Dict) else f"a number, got {space}"
        raise ValueError(
            f"{name} must hold {what}: let the environment show something there, or a wrapper leave it out"
        )


def remedy(space: gym.Space[Any]) -> str:
    """Return advice for a space that is not made of arrays; not all such spaces can be flattened."""
    if space.is_np_flattenable:
        return (
            "flatten it with Gymnasium's FlattenObservation, in gin create_gym_environment.wrappers = "
            "[@FlattenObservation, @RealtimeDelay]"
        )
    return "turn it into one in an ObservationWrapper of your own"

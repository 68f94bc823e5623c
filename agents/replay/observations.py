"""Arrays that hold observations: one for an image or a vector, one per key for a Dict space.

What a space is made of is said by two trees alike, its *schema*: the shapes and the dtypes. Each is a plain value for
an array, and a mapping, by key, for a Dict space; a Dict may hold further ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from operator import getitem
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Dict

Schema = tuple[Any, Any]  # shapes, dtypes
Shape = tuple[int, ...]
Path = tuple[str, ...]  # keys from the outermost mapping to an array; () where there is no mapping


def observation_schema(space: gym.Space[Any]) -> Schema:
    """Returns the shapes and the dtypes of a space, the first two arguments of every replay.

    Example:
        >>> from gymnasium.spaces import Box, Dict, Discrete
        >>> observation_schema(Dict(camera=Box(0, 255, (84, 84), "uint8"), gear=Discrete(5)))
        ({'camera': (84, 84), 'gear': ()}, {'camera': dtype('uint8'), 'gear': dtype('int64')})

    Raises:
        ValueError: a space that is no array and no Dict of arrays.
    """
    if isinstance(space, Dict):
        schemas = {key: observation_schema(inner) for key, inner in space.spaces.items()}
        shapes = {key: shape for key, (shape, _) in schemas.items()}
        return shapes, {key: dtype for key, (_, dtype) in schemas.items()}
    if space.shape is None or space.dtype is None:
        raise ValueError(f"observations must be arrays or a Dict of arrays, got {space}, flatten it first")
    return space.shape, space.dtype


class ObservationArrays:
    """`capacity` observations, each leaf of the schema in an array of its own."""

    def __init__(self, shape: Any, dtype: Any, capacity: int) -> None:
        """Makes zeroed arrays, which take no memory before they are written.

        Raises:
            ValueError: the shapes and the dtypes are not alike, or a dtype holds objects.
        """
        leaves = list(_leaves(shape, dtype, ()))
        self._paths = [path for path, _, _ in leaves]
        self._plain = not isinstance(shape, Mapping)
        self.arrays = [np.zeros((capacity, *leaf_shape), leaf_dtype) for _, leaf_shape, leaf_dtype in leaves]
        if len(self.fields("observation")) < len(leaves):
            raise ValueError(f"observation_shape must have no two keys alike when joined by '/', got {shape}")
        self._tree = self.nest([(leaf_shape, leaf_dtype) for _, leaf_shape, leaf_dtype in leaves])

    def fields(self, name: str) -> dict[str, npt.NDArray[Any]]:
        """The arrays by the name of their field, `name` or `name/key`."""
        return {"/".join((name, *path)): array for path, array in zip(self._paths, self.arrays, strict=True)}

    def facts(self) -> dict[str, Any]:
        """The schema as plain data."""
        return {
            "observation_shape": self.nest([list(array.shape[1:]) for array in self.arrays]),
            "observation_dtype": self.nest([array.dtype.str for array in self.arrays]),
        }

    def nest(self, leaves: Sequence[Any]) -> Any:
        """Puts one thing per array where its array belongs: in nested dicts, or alone."""
        if self._plain:
            return leaves[0]
        nested: dict[str, Any] = {}
        for path, leaf in zip(self._paths, leaves, strict=True):
            inner = nested
            for key in path[:-1]:
                inner = inner.setdefault(key, {})
            inner[path[-1]] = leaf
        return nested

    def flat(self, nested: Any) -> list[Any]:
        """The reverse of `nest`."""
        return [reduce(getitem, path, nested) for path in self._paths]

    def check(self, name: str, observation: Any) -> list[npt.NDArray[Any]]:
        """Returns an observation's arrays in the order of `arrays`.

        Raises:
            ValueError: it has other keys, another shape or another kind than the schema says.
        """
        if self._plain:  # a short cut for what is stored as it comes
            value = np.asarray(observation)
            if (value.shape, value.dtype) == self._tree:
                return [value]
        return [_checked(*leaf) for leaf in _matched(name, self._tree, observation)]


def _leaves(shape: Any, dtype: Any, path: Path) -> Iterator[tuple[Path, Shape, np.dtype[Any]]]:
    """Every array of a schema, depth first."""
    name = "".join(f"[{key!r}]" for key in path)
    if isinstance(shape, Mapping):
        if not shape:
            raise ValueError(f"observation_shape{name} must hold an array, got an empty dict")
        if not isinstance(dtype, Mapping) or dtype.keys() != shape.keys():
            raise ValueError(f"observation_dtype{name} must have the keys {sorted(shape)}, got {dtype!r}")
        for key, inner in shape.items():
            yield from _leaves(inner, dtype[key], (*path, key))
        return
    found = np.dtype(dtype)
    if found.hasobject:
        raise ValueError(f"observation_dtype{name} must be a plain dtype such as uint8, got {found}")
    yield path, tuple(shape), found


def _matched(name: str, tree: Any, observation: Any) -> Iterator[tuple[str, Shape, np.dtype[Any], Any]]:
    """The place of every array in the tree, what it must be, and what the observation holds there."""
    if not isinstance(tree, Mapping):
        yield name, *tree, observation
        return
    if not isinstance(observation, Mapping) or observation.keys() != tree.keys():
        got = sorted(observation) if isinstance(observation, Mapping) else type(observation).__name__
        raise ValueError(f"{name} must be a dict with the keys {sorted(tree)}, got {got}")
    for key, inner in tree.items():
        yield from _matched(f"{name}[{key!r}]", inner, observation[key])


def _checked(name: str, shape: Shape, dtype: np.dtype[Any], value: Any) -> npt.NDArray[Any]:
    observation = np.asarray(value)
    if observation.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {observation.shape}")
    if observation.dtype != dtype and not np.can_cast(observation.dtype, dtype, "same_kind"):
        raise ValueError(f"{name} must have dtype {dtype}, got {observation.dtype}, cast it first")
    return observation

"""Arrays of NumPy and of other libraries side by side: copies on the host, and NumPy's arrays beside tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device, is_array_api_obj, is_jax_array, is_torch_array, to_device

Array = Any
Tree = Any  # an array, or a dict or tuple of trees


def on_host(tree: Tree) -> Tree:
    """Return a tree with NumPy's arrays in the place of other libraries', which are copied; all else stays."""
    if isinstance(tree, Mapping):
        return {key: on_host(inner) for key, inner in tree.items()}
    if isinstance(tree, tuple):
        return tuple(map(on_host, tree))
    if isinstance(tree, np.ndarray | np.generic) or not is_array_api_obj(tree):
        return tree
    return np.asarray(tree if is_jax_array(tree) else to_device(tree, "cpu"))


def alike(array: Array, example: Array) -> Array:
    """Return an array of NumPy's as a tensor on the device of another array, if that is a tensor; else as it is."""
    if type(example) is np.ndarray or not is_torch_array(example) or is_torch_array(array):
        return array
    return array_namespace(example).asarray(array, device=device(example))


def own_array(array: Array) -> Array:
    """Return a copy of an array."""
    return array.copy() if type(array) is np.ndarray else array_namespace(array).asarray(array, copy=True)


def stacked(arrays: Sequence[Array]) -> Array:
    """Return arrays [...] of one library as an array [len(arrays), ...]."""
    return np.stack(arrays) if type(arrays[0]) is np.ndarray else array_namespace(arrays[0]).stack(list(arrays))


def joined_arrays(arrays: Sequence[Array], axis: int = 0) -> Array:
    """Return arrays, one after another along an axis; beside a tensor those of NumPy's become tensors."""
    if all(isinstance(array, np.ndarray) for array in arrays):
        return np.concatenate(arrays, axis=axis)
    example = next(array for array in arrays if not isinstance(array, np.ndarray))
    return array_namespace(example).concat([alike(array, example) for array in arrays], axis=axis)

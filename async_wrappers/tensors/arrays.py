"""What the Array API lacks for a delay: trees of arrays, rows that are set, and elements of a ring of frames.

The Array API (``array-api-compat``) is one interface to NumPy, PyTorch, JAX and CuPy. Observations may be dicts and
tuples of arrays, of one library and on one device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace, device, is_array_api_obj, is_jax_array

Array = Any
Tree = Any  # an array, or a dict or tuple of trees


def each(function: Callable[..., Any], tree: Tree, *others: Tree) -> Tree:
    """Return a tree of what a function returns of the arrays at each place of some trees."""
    if isinstance(tree, Mapping):
        return {key: each(function, tree[key], *(other[key] for other in others)) for key in tree}
    if isinstance(tree, tuple):
        return tuple(each(function, *parts) for parts in zip(tree, *others, strict=True))
    return function(tree, *others)


def first_array(tree: Tree) -> Array:
    """Return some array of a tree.

    Raises:
        ValueError: There is none.
    """
    if isinstance(tree, Mapping | tuple) and tree:
        return first_array(next(iter(tree.values())) if isinstance(tree, Mapping) else tree[0])
    if not is_array_api_obj(tree):
        raise ValueError(
            f"observations must be arrays of NumPy, PyTorch, JAX or CuPy, or dicts and tuples of these, got {tree!r}"
        )
    return tree


def is_host(device: Any) -> bool:
    """Return whether a library's device is the host, whose values are read without waiting."""
    return "cpu" in str(device)


class Which(NamedTuple):
    """Some of N rows, with what may be known of them without waiting for a device.

    Attributes:
        mask: Bool [N].
        some: Whether there is one; True where nobody may look.
        every: Whether it is all of them; False where nobody may look.
    """

    mask: Array
    some: bool
    every: bool


class Library:
    """The library and the device of some arrays.

    Args:
        like: One of them.

    Attributes:
        xp: The library's namespace.
        device: Where they lie.
        is_functional: Whether arrays never change, as JAX's.
        is_on_host: Whether a look at a value waits for no device.
        looks: Whether a function of such arrays may look at values: on the host, and where no compiler traces it.
    """

    def __init__(self, like: Array) -> None:
        self.xp, self.device, self.is_functional = array_namespace(like), device(like), is_jax_array(like)
        self.is_on_host = is_host(self.device)
        self.looks = self.is_on_host and not self.is_functional
        self._is_numpys = isinstance(like, np.ndarray)
        self._name = self.xp.__name__.rsplit(".", 1)[-1]

    def __getstate__(self) -> dict[str, Any]:
        """Return the state of a copy or a pickle: a module has none."""
        return {**vars(self), "xp": self.xp.__name__}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take a state."""
        vars(self).update({**state, "xp": import_module(state["xp"])})

    def array(self, values: Any, dtype: Any = None) -> Array:
        """Return numbers as an array of the library on the device."""
        return self.xp.asarray(values, dtype=dtype, device=self.device)

    def whole(self, values: Any) -> Array:
        """Return whole numbers as an array."""
        return self.array(values, self.xp.int32 if self.is_functional else self.xp.int64)

    def like(self, values: Any, example: Array) -> Array:
        """Return numbers as an array of the type of another."""
        return self.array(values, example.dtype)

    def where(self, mask: Array, one: Array, other: Array) -> Array:
        """Return rows [N, ...] of one array where a mask [N] is set, else of the other."""
        if mask.ndim < one.ndim:
            mask = self.xp.reshape(mask, (*mask.shape, *(1,) * (one.ndim - mask.ndim)))
        return self.xp.where(mask, one, other)

    def which(self, mask: Array) -> Which:
        """Return the rows of a mask [N]; on the host they are counted."""
        if not self.looks:
            return Which(mask, some=True, every=False)
        number = int((np if self._is_numpys else self.xp).count_nonzero(mask))
        return Which(mask, number > 0, number == mask.shape[0])

    def choose(self, which: Which, one: Array, other: Array) -> Array:
        """Return rows of one array [N, ...] or of another of its type, which may be one of the two arrays itself."""
        if which.every:
            return one
        return self.where(which.mask, one, other) if which.some else other

    def put(self, array: Array, place: Any, values: Array) -> Array:
        """Return an array with other elements at a place; in place where the library can."""
        if self.is_functional:
            return array.at[place].set(values)
        array[place] = values
        return array

    def own(self, array: Array) -> Array:
        """Return a copy of an array."""
        return self.xp.asarray(array, copy=True)

    def beside(self, array: Array, other: Array) -> Array:
        """Return an array in the type that one array has with another."""
        return array if array.dtype == other.dtype else self.xp.astype(array, self.xp.result_type(array, other))

    def ago(self, ring: Array, place: Any, frames: Array, rows: Array) -> Array:
        """Return the elements [N, ...] that stood so many frames ago, [N], in a ring [H, N, ...].

        Args:
            ring: Of frames.
            place: Of the newest one.
            frames: 0 to H - 1, of each row.
            rows: Their numbers, [N].
        """
        length, n = ring.shape[:2]
        elements = self.xp.reshape(ring, (length * n, *ring.shape[2:]))
        if self._is_numpys:  # which counts modulo the ring by itself
            return elements.take(rows + place * n - frames * n, axis=0, mode="wrap")
        return self.xp.take(elements, (place - frames) % length * n + rows, axis=0)

    def ring(self, length: int, example: Array) -> Array:
        """Return room for so many arrays like an example, all zero."""
        return self.xp.zeros((length, *example.shape), dtype=example.dtype, device=self.device)

    def refuse_others(self, tree: Tree, name: str) -> None:
        """Refuse arrays of another library or on another device.

        Raises:
            ValueError: One is.
        """
        first = first_array(tree)
        if array_namespace(first) is not self.xp or device(first) != self.device:
            raise ValueError(
                f"{name} must be of the library and on the device of the observations, {self._name} on {self.device}, "
                f"got {type(first).__module__}.{type(first).__name__} on {device(first)}: move them there"
            )

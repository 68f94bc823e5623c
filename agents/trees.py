"""Values in nested dicts, as those of a Gymnasium Dict space are; one value alone is the smallest such tree.

A *path* is the keys from the outermost dict to a value; () where there is no dict. Only mappings are branches: a list
or a tuple is a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from operator import getitem
from typing import Any

Path = tuple[str, ...]


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
    """Return what `function` makes of the arrays at the same path of each tree, in dicts like theirs."""
    first = trees[0]
    if not isinstance(first, Mapping):
        return function(*trees)
    return {key: each_array(function, *(tree[key] for tree in trees)) for key in first}


def in_brackets(path: Path) -> str:
    """Return a path as it is written in Python, such as ``['image']['left']``."""
    return "".join(f"[{key!r}]" for key in path)

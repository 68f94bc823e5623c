"""Rows of several environments, or of several calls, as the rows of one.

* `numbered`: rows with the numbers that they have among more environments.
* `together`: the rows of several parts, one after another.
* `ended_by`: the last rows of all environments, where a cut came before rows were shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from array_api_compat import is_torch_array
from gymnasium import spaces
from numpy.typing import NDArray

from async_wrappers.array_libraries import joined_arrays, own_array
from async_wrappers.batched.protocol import Shown

_ARRAYS = ("env_ids", "observation", "reward", "first", "terminal", "truncated", "realtime")
_OF_SOME = ("executed", "sent", "_sent")  # times that environments have not met so far


def numbered(shown: Shown, first: int) -> Shown:
    """Return rows of environments 0, 1, ... as those of the environments from number `first` on."""
    if not first:
        return shown
    final, info = ({i + first: of for i, of in each.items()} for each in (shown.final, shown.info))
    return shown._replace(env_ids=shown.env_ids + first, final=final, info=info)


def together(parts: Sequence[Shown]) -> Shown:
    """Return copies of the rows of parts whose environments ascend."""
    parts = _alike(parts)
    arrays = {name: joined(*(getattr(part, name) for part in parts)) for name in _ARRAYS}
    final, info = ({i: of for part in parts for i, of in getattr(part, name).items()} for name in ("final", "info"))
    return Shown(**arrays, final=final, info=info)


def ended_by(cut: Shown, before: Sequence[Shown]) -> Shown:
    """Return the rows of a cut as they are where the rows before it were not shown.

    Args:
        cut: Rows of all N environments, in their order.
        before: Parts of what came before it, each environment in one of them at most.
    """
    cut, *before = _alike([cut, *before])
    final, info = dict(cut.final), dict(cut.info)
    shown = cut._replace(**{name: copied(getattr(cut, name)) for name in _ARRAYS if name != "env_ids"})
    for part in before:
        ids = part.env_ids
        shown.reward[ids] = part.reward
        for name, values in part.realtime.items():
            if name.startswith("unreported"):
                shown.realtime[name][ids] += values
            elif name not in ("start", "frame"):
                put_rows(shown.realtime[name], ids, values)
        for place, i in enumerate(ids.tolist()):
            times = {
                "interval": int(part.realtime["interval"][place]),
                "applied": bool(part.realtime["applied"][place]),
            }
            info[i] = {**info[i], "realtime": {**info[i]["realtime"], **times}}
        for i, last in part.final.items():  # the episode that has begun since had no decision
            place = int(np.searchsorted(ids, i))
            final[i], info[i] = last, part.info[i]
            shown.terminal[i], shown.truncated[i] = part.terminal[place], part.truncated[place]
            put_rows(shown.observation, np.array([i]), mapped(lambda leaf: np.asarray(leaf)[None], last))
            for name in ("start", "frame"):
                shown.realtime[name][i] = info[i]["realtime"][name]
    return shown._replace(final=final, info=info)


def _alike(parts: Sequence[Shown]) -> list[Shown]:
    """Return parts whose times have the same names: some environments may not have met all of them so far."""
    known: dict[str, Any] = {}
    for part in parts:
        known |= {name: part.realtime[name] for name in _OF_SOME if name in part.realtime}
    return [part._replace(realtime={**part.realtime, **_none(part, known)}) for part in parts] if known else [*parts]


def _none(part: Shown, known: Mapping[str, Any]) -> dict[str, Any]:
    rows = len(part.env_ids)
    return {
        name: mapped(lambda array: np.zeros((rows, *array.shape[1:]), array.dtype), of)
        for name, of in known.items()
        if name not in part.realtime
    }


# Batches of observations and actions: arrays [R, ...], or dicts and tuples of them, row by row.
#
# * `check_space`: refuse spaces whose batches are anything else.
# * `copied`, `taken`, `put_rows`, `joined`: a copy, some rows, rows into their places, batches one after another.
# * `finals`: some rows, one by one, by their number.


def check_space(name: str, space: gym.Space[Any]) -> None:
    """Refuse a space whose batches are no arrays.

    Raises:
        ValueError: It is none of those below, or has a part that is none.
    """
    parts: list[gym.Space[Any]] = [space]
    while parts:
        part = parts.pop()
        if isinstance(part, spaces.Dict | spaces.Tuple):
            parts += part.spaces.values() if isinstance(part, spaces.Dict) else part.spaces
        elif not isinstance(part, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
            raise ValueError(
                f"{name} must be a Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of these, got {part}"
            )


def mapped(function: Callable[..., Any], *trees: Any) -> Any:
    """Return the tree of `function` of the leaves at the same place."""
    first = trees[0]
    if isinstance(first, dict):
        return {key: mapped(function, *(tree[key] for tree in trees)) for key in first}
    if isinstance(first, tuple):
        return tuple(mapped(function, *parts) for parts in zip(*trees, strict=True))
    return function(*trees)


def leaves(tree: Any) -> list[Any]:
    """Return the leaves in a fixed order."""
    found: list[Any] = []
    mapped(found.append, tree)
    return found


def copied(batch: Any) -> Any:
    """Return a copy."""
    return batch.copy() if type(batch) is np.ndarray else mapped(_own, batch)


def _own(leaf: Any) -> Any:
    return own_array(leaf) if is_torch_array(leaf) else np.array(leaf)


def taken(batch: Any, rows: NDArray[np.int64]) -> Any:
    """Return a copy of some rows, [len(rows), ...]."""
    return batch[rows] if type(batch) is np.ndarray else mapped(lambda leaf: leaf[rows], batch)


def put_rows(batch: Any, rows: NDArray[np.int64], values: Any) -> None:
    """Write the rows `values` into `batch`."""

    def put(leaf: Any, value: Any) -> None:
        leaf[rows] = value

    mapped(put, batch, values)


def joined(*batches: Any) -> Any:
    """Return the rows of all, one batch after another."""
    return mapped(lambda *each: joined_arrays(each), *batches)


def finals(batch: Any, rows: NDArray[np.int64]) -> dict[int, Any]:
    """Return copies of some rows by their number."""
    some = taken(batch, rows)
    if type(some) is np.ndarray:
        # A scalar (a Discrete observation) comes out as NumPy's own number, as from a single environment.
        return dict(zip(rows.tolist(), some, strict=True))
    return {number: mapped(lambda leaf: leaf[place], some) for place, number in enumerate(rows.tolist())}  # noqa: B023

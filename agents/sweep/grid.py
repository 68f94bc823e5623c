"""Which combinations of bindings a sweep tries: axes, named arms, linked values, exclusions, all as text.

An axis reads as a binding with several values, ``RealtimeDelay.delay = 1, 8, 70``. Keys that move together stand side
by side, ``RealtimeDelay.delay, RealtimeDelay.noops = (1, 0), (8, 3)``; a value may also be another key's name, and is
then whatever that key has, ``RealtimeDelay.noops = 0, RealtimeDelay.delay``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import gin

from agents.experiment.config import ConfigError

__all__ = ["DISTRIBUTION", "Axis", "Point", "make_points", "parse_axis", "plain"]

_KEY = re.compile(r"[\w./]+\.\w+")
DISTRIBUTION = re.compile(
    r"(q?uniform|q?loguniform|q?randint|q?lograndint)\((.*)\)"
)  # of Ray Tune, for a random search


@dataclass(frozen=True)
class Axis:
    """Keys that move together: `choices` holds a text for each key."""

    keys: tuple[str, ...]
    choices: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Point:
    """One combination: the name of its arm (empty where there are no arms) and the value of each key."""

    arm: str
    bindings: dict[str, Any]


def make_points(
    grid: Sequence[str],
    arms: Mapping[str, Sequence[str]] | None = None,
    exclude: Sequence[Sequence[str]] = (),
    draw: Callable[[Sequence[Axis]], Iterable[dict[str, str]]] | None = None,
) -> list[Point]:
    """Return every combination of the axes, or those that are drawn, once per arm.

    Args:
        grid: Axes.
        arms: By name, the axes of each arm alone, mostly of one value; they win over the grid's, and points that come
            out alike are one.
        exclude: Groups of axes; a point that has one of the listed values of every axis of a group is left out.
        draw: Yields bindings of the grid's axes, in the place of all combinations.

    Raises:
        ConfigError: An axis, arm or exclusion that cannot be read, a key that is bound twice, or no point at all.
    """
    axes = [parse_axis(text) for text in grid]
    keys = [key for axis in axes for key in axis.keys]
    for key in keys:
        if keys.count(key) > 1:
            raise ConfigError(f"grid: {key} is an axis twice: give all its values in one")
    own = {name: [parse_axis(text) for text in texts] for name, texts in (arms or {}).items()} or {"": []}
    if not axes and not any(own.values()):
        raise ConfigError(
            "grid: it is empty: give --grid 'RealtimeDelay.delay = 1, 8, 70', or Sweep.grid in a gin file"
        )
    left_out = [[parse_axis(text) for text in group] for group in exclude]
    _check_keys_of_exclusions(left_out, {*keys, *(key for of in own.values() for axis in of for key in axis.keys)})
    points: dict[str, Point] = {}
    for bindings in (draw or _combinations)(axes):
        for arm, more in ((arm, more) for arm, of in own.items() for more in _combinations(of)):
            point = Point(arm, _linked({**bindings, **more}))
            if not any(all(_has(point, axis) for axis in group) for group in left_out):
                points.setdefault(repr(point), point)
    if not points:
        raise ConfigError("grid: it is empty, as Sweep.exclude leaves every point out")
    return list(points.values())


def parse_axis(text: str) -> Axis:
    """Read an axis such as ``RealtimeDelay.delay = 1, 8, 70``.

    Raises:
        ConfigError: It is none.
    """
    names, equals, values = text.partition("=")
    keys = tuple(name.strip() for name in names.split(","))
    if not equals or not all(map(_KEY.fullmatch, keys)):
        raise ConfigError(f"grid {text!r}: an axis reads 'RealtimeDelay.delay = 1, 8, 70'")
    choices = [_choice(text, keys, value) for value in _split(values)]
    if not choices:
        raise ConfigError(f"grid {text!r}: {names.strip()} has no values")
    return Axis(keys, tuple(choices))


def plain(text: Any) -> Any:
    """Return the number, word, truth value or None that a gin value stands for; others stay text."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError):
        return text
    return value if value is None or isinstance(value, bool | int | float | str) else text


def _choice(axis: str, keys: tuple[str, ...], text: str) -> tuple[str, ...]:
    linked = text.startswith("(") and text.endswith(")") and len(keys) > 1
    values = tuple(_split(text[1:-1])) if linked else (text,)
    if len(values) != len(keys):
        raise ConfigError(f"grid {axis!r}: {len(keys)} linked keys take values as (1, 0), (8, 3), got {text}")
    for value in values:
        _check_value(axis, value)
    return values


def _check_value(axis: str, value: str) -> None:
    if (_KEY.fullmatch(value) and not value[0].isdigit()) or DISTRIBUTION.fullmatch(value):  # another key, or a draw
        return
    try:
        if not value:
            raise ValueError("empty")
        gin.config.parse_value(f"[{value}]")  # alone, it would read "1" in "1 2"
    except (ValueError, SyntaxError) as error:
        what, reason = value or "nothing", str(error).splitlines()[0]
        raise ConfigError(f"grid {axis!r}: {what} is not a gin value ({reason}); text has quotes") from None


def _split(text: str) -> list[str]:
    """Split at the commas that stand in no bracket and no quotes."""
    parts, depth, quote = [""], 0, ""
    for mark in text:
        if quote:
            quote = "" if mark == quote else quote
        elif mark in "'\"":
            quote = mark
        depth += (not quote) * ((mark in "([{") - (mark in ")]}"))
        if mark == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += mark
    parts = [part.strip() for part in parts]
    return parts if parts[-1] else parts[:-1]  # a comma at the end is none


def _combinations(axes: Sequence[Axis]) -> Iterator[dict[str, str]]:
    for value in (value for axis in axes for choice in axis.choices for value in choice):
        if DISTRIBUTION.fullmatch(value):
            raise ConfigError(f"grid: {value} is a distribution: a random search draws it (Sweep.search = 'random')")
    keys = [key for axis in axes for key in axis.keys]
    for choices in product(*(axis.choices for axis in axes)):
        yield dict(zip(keys, (value for choice in choices for value in choice), strict=True))


def _linked(bindings: dict[str, str]) -> dict[str, str]:
    """Put the value in the place of a key that names another."""
    values = {key: bindings.get(value, value) for key, value in bindings.items()}
    for key, value in values.items():
        if _KEY.fullmatch(value) and not value[0].isdigit():
            raise ConfigError(f"grid: {key} = {value}, which has no value of its own in this grid")
    return values


def _has(point: Point, axis: Axis) -> bool:
    bound = [point.bindings.get(key) for key in axis.keys]
    return any(bound == [point.bindings.get(value, value) for value in choice] for choice in axis.choices)


def _check_keys_of_exclusions(groups: Sequence[Sequence[Axis]], known: set[str]) -> None:
    for key in (key for group in groups for axis in group for key in axis.keys):
        if key not in known:
            raise ConfigError(
                f"Sweep.exclude: {key} is not a key of this grid: its keys are {', '.join(sorted(known))}"
            )

"""Which points a sweep tries: the grid's combinations, or random draws from it.

In gin and on the command line a grid is text. An axis reads as a binding with several values,
``RealtimeDelay.delay = 1, 8, 70``. Keys that move together stand side by side,
``RealtimeDelay.delay, RealtimeDelay.noops = (1, 0), (8, 3)``. A value may also be the name of another key, and then
takes that key's value, ``RealtimeDelay.noops = 0, RealtimeDelay.delay``. Named arms add bindings of their own, and
exclusions leave points out.

Values stay the text that was written, because gin reads them again in each trial and because a trial's seed is derived
from them: ``1e-4`` and ``0.0001`` are two points. In Python a grid is plain data, and values stay as they are.

A random search draws its points before anything runs, from the grid alone, so that an interrupted search continues with
the same points.
"""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import accumulate, pairwise, product
from typing import Any

import gin
import numpy as np

from async_wrappers.agents.config.config import ConfigError
from async_wrappers.extras import extra

Grid = Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""A grid in Python: values by key, or points one by one."""

_KEY = re.compile(r"[\w./]+\.\w+")
# Ray Tune's distributions, for a random search.
_DISTRIBUTION = re.compile(r"(q?uniform|q?loguniform|q?randint|q?lograndint)\((.*)\)")


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
    """Return every combination of the axes, or the combinations that `draw` yields, once per arm.

    Args:
        grid: Axes.
        arms: The axes of each arm alone, by the arm's name. Most have one value. They win over the grid's, and points
            that come out alike are one.
        exclude: Groups of axes. A point with a listed value of every axis of a group is left out.
        draw: Yields bindings of the grid's axes, instead of all combinations.

    Raises:
        ConfigError: An axis, arm or exclusion that cannot be read, a key that is bound twice, or no point at all.
    """
    axes = [parse_axis(text) for text in grid]
    keys = [key for axis in axes for key in axis.keys]
    for key in keys:
        if keys.count(key) > 1:
            raise ConfigError(f"grid: {key} is an axis twice: give all its values in one")
    axes_by_arm = {name: [parse_axis(text) for text in texts] for name, texts in (arms or {}).items()} or {"": []}
    if not axes and not any(axes_by_arm.values()):
        remedy = "give --grid 'RealtimeDelay.delay = 1, 8, 70', or Sweep.grid in a gin file"
        raise ConfigError(f"grid: it is empty: {remedy}")
    excluded = [[parse_axis(text) for text in group] for group in exclude]
    known = {*keys, *(key for own in axes_by_arm.values() for axis in own for key in axis.keys)}
    for key in (key for group in excluded for axis in group for key in axis.keys):
        if key not in known:
            keys_there = ", ".join(sorted(known))
            raise ConfigError(f"Sweep.exclude: {key} is not a key of this grid: its keys are {keys_there}")
    points: dict[str, Point] = {}
    for bindings in (draw or _combinations)(axes):
        for arm, own in axes_by_arm.items():
            for more in _combinations(own):
                point = Point(arm, _linked({**bindings, **more}))
                if not any(all(_has(point, axis) for axis in group) for group in excluded):
                    points.setdefault(repr(point), point)
    if not points:
        raise ConfigError("grid: it is empty, as Sweep.exclude leaves every point out")
    return list(points.values())


def points_with(points: Sequence[Point], texts: Sequence[str]) -> list[Point]:
    """Return the points of some arms that have a listed value of every axis.

    Args:
        points: Of a grid.
        texts: Axes, such as ``"RealtimeDelay.delay = 0, 8"``, and names of arms; without any, points of all arms.

    Raises:
        ConfigError: A text that is no axis and no arm, a key that no point binds, an axis that no point has a value of,
            or no point has all of them.
    """
    named = dict.fromkeys(filter(None, (point.arm for point in points)))
    arms = [text for text in texts if text in named]
    keys = dict.fromkeys(key for point in points for key in point.bindings)
    everywhere = points
    points = [point for point in points if point.arm in arms] if arms else points
    given = [text for text in texts if text not in arms]
    for text in given:
        if "=" not in text:
            close = _closest(text.strip(), named)
            arms_here = f" or the name of an arm ({', '.join(named)})" if named else ""
            raise ConfigError(f"only {text!r}: it reads 'RealtimeDelay.delay = 1, 8'{arms_here}{close}")
    axes = [parse_axis(text) for text in given]
    for axis, text in zip(axes, given, strict=True):
        if unknown := [key for key in axis.keys if key not in keys]:
            bound = f"{', '.join(keys)}{_closest(unknown[0], keys)}"
            raise ConfigError(f"only {text!r}: no point of this grid binds {unknown[0]}, they bind {bound}")
        if arms and any(_has(point, axis) for point in everywhere) and not any(_has(point, axis) for point in points):
            others = dict.fromkeys(point.arm for point in everywhere if _has(point, axis))
            raise ConfigError(
                f"only {text!r}: no point of {' and '.join(map(repr, arms))} has such a value, but those of "
                f"{' and '.join(map(repr, others))} have: sweep these in a call of their own"
            )
        if not any(_has(point, axis) for point in points):
            values = {tuple(point.bindings.get(key) for key in axis.keys) for point in points}
            there = sorted(", ".join(map(str, each)) for each in values)
            raise ConfigError(f"only {text!r}: no point of this grid has such a value, they have {'; '.join(there)}")
    chosen = [point for point in points if all(_has(point, axis) for axis in axes)]
    if not chosen:
        raise ConfigError(f"only {' and '.join(map(repr, texts))}: no point of this grid has values of all of them")
    return chosen


def _closest(word: str, words: Iterable[str]) -> str:
    close = get_close_matches(word, list(words), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def parse_axis(text: str) -> Axis:
    """Read an axis such as ``RealtimeDelay.delay = 1, 8, 70``.

    Raises:
        ConfigError: The text is no axis, or one of its values is no gin value.
    """
    names, equals, values = text.partition("=")
    keys = tuple(name.strip() for name in names.split(","))
    if not equals or not all(map(_KEY.fullmatch, keys)):
        raise ConfigError(f"grid {text!r}: an axis reads 'RealtimeDelay.delay = 1, 8, 70'")
    choices = [_choice(text, keys, value) for value in _split(text, values)]
    if not choices:
        raise ConfigError(f"grid {text!r}: {names.strip()} has no values")
    return Axis(keys, tuple(choices))


def plain(text: Any) -> Any:
    """Return the number, text, truth value or None that a gin value stands for, and other values unchanged."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError):
        return text
    return value if value is None or isinstance(value, bool | int | float | str) else text


def _choice(axis: str, keys: tuple[str, ...], text: str) -> tuple[str, ...]:
    linked = text.startswith("(") and text.endswith(")") and len(keys) > 1
    values = tuple(_split(axis, text[1:-1])) if linked else (text,)
    if len(values) != len(keys):
        raise ConfigError(f"grid {axis!r}: {len(keys)} linked keys take values as (1, 0), (8, 3), got {text}")
    for value in values:
        _check_value(axis, value)
    return values


def _is_key(value: str) -> bool:
    # Numbers such as 0.5 have the form of a key.
    return _KEY.fullmatch(value) is not None and not value[0].isdigit()


def _check_value(axis: str, value: str) -> None:
    if _is_key(value) or _DISTRIBUTION.fullmatch(value):
        return
    try:
        if not value:
            raise ValueError("empty")
        # In brackets, because gin would read "1 2" as 1 and stop there.
        gin.config.parse_value(f"[{value}]")
    except (ValueError, SyntaxError) as error:
        what, reason = value or "nothing", str(error).splitlines()[0]
        raise ConfigError(f"grid {axis!r}: {what} is not a gin value ({reason}); text has quotes") from None


def _split(axis: str, text: str) -> list[str]:
    """Split at the commas outside brackets and quotes, as Python's tokens have them, which are gin's too."""
    # In brackets, because a line break there is only a space.
    text = f"[{text}]"
    lines = io.StringIO(text).readlines()
    begins = [0, *accumulate(map(len, lines))]
    commas, depth = [0], 0
    try:
        for token in tokenize.generate_tokens(iter(lines).__next__):
            if token.type == tokenize.OP:
                depth += (token.string in "([{") - (token.string in ")]}")
                if token.string == "," and depth == 1:
                    line, column = token.start
                    commas.append(begins[line - 1] + column)
    except (tokenize.TokenError, SyntaxError) as error:
        raise ConfigError(f"grid {axis!r}: {text[1:-1]} is not a list of gin values ({error.args[0]})") from None
    pieces = [text[begin + 1 : end].strip() for begin, end in pairwise([*commas, len(text) - 1])]
    # A comma at the end separates nothing.
    return pieces if pieces[-1] else pieces[:-1]


def _combinations(axes: Sequence[Axis]) -> Iterator[dict[str, str]]:
    for value in (value for axis in axes for choice in axis.choices for value in choice):
        if _DISTRIBUTION.fullmatch(value):
            raise ConfigError(f"grid: {value} is a distribution: a random search draws it (Sweep.search = 'random')")
    for choices in product(*(axis.choices for axis in axes)):
        yield _bindings(axes, choices)


def _bindings(axes: Sequence[Axis], choices: Sequence[Sequence[str]]) -> dict[str, str]:
    keys, values = (key for axis in axes for key in axis.keys), (value for choice in choices for value in choice)
    return dict(zip(keys, values, strict=True))


def _linked(bindings: dict[str, str]) -> dict[str, str]:
    """Replace each value that names another key by that key's value, which may name a third one."""
    values = bindings
    for _ in bindings:
        values = {key: bindings.get(value, value) for key, value in values.items()}
    for key, value in values.items():
        if _is_key(value):
            raise ConfigError(f"grid: {key} = {value}, which has no value of its own in this grid")
    return values


def _has(point: Point, axis: Axis) -> bool:
    bound = [point.bindings.get(key) for key in axis.keys]
    return any(bound == [point.bindings.get(value, value) for value in choice] for choice in axis.choices)


# Grids in Python.


def points_from_values(grid: Grid, num_samples: int | None = None) -> list[Point]:
    """Return all combinations of the values by key, or the points that are given one by one.

    Args:
        grid: The values by key, or the points.
        num_samples: Draw this many points of the values, or of distributions of Ray Tune, instead.

    Raises:
        ConfigError: An empty grid, points of different keys, or a value that is not plain data.
    """
    if num_samples is not None:
        chosen = _draw_points(grid, num_samples)
    elif isinstance(grid, Mapping):
        for key, values in grid.items():
            _check_list(key, values)
        chosen = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())] if grid else []
    else:
        chosen = [dict(point) for point in grid]
    if not chosen or not chosen[0]:
        raise ConfigError("grid: it is empty: give values for at least one key")
    for point in chosen:
        if point.keys() != chosen[0].keys():
            raise ConfigError(f"grid: all points must have the keys {', '.join(chosen[0])}, got {', '.join(point)}")
        for key, value in point.items():
            # Only values that JSON restores unchanged can be compared with the sweep.json of an interrupted sweep.
            try:
                same = json.loads(json.dumps(value)) == value
            except (TypeError, ValueError):
                same = False
            if not same:
                wanted = "numbers, texts, truth values, None or lists of them"
                raise ConfigError(f"grid[{key!r}] must hold {wanted}, got {value!r}")
    return [Point("", point) for point in chosen]


def _check_list(key: str, values: Any) -> None:
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise ConfigError(f"grid[{key!r}] must be a list of values, got {values!r}")


# Random search. Every draw comes from one generator with a fixed seed, in the order of the axes.


def draw_bindings(axes: Sequence[Axis], num_samples: int) -> Iterator[dict[str, str]]:
    """Yield `num_samples` draws of one of each axis' choices, as text; a distribution that is chosen is drawn from.

    Raises:
        ConfigError: The extra `ray` is missing, or a distribution has arguments that Ray Tune does not take.
    """
    _tune("Sweep.search = 'random'")
    rng = np.random.RandomState(0)
    for _ in range(num_samples):
        # All axes' choices are drawn before any distribution.
        chosen = [axis.choices[rng.randint(len(axis.choices))] for axis in axes]
        yield {key: _drawn_text(text, rng) for key, text in _bindings(axes, chosen).items()}


def _draw_points(grid: Grid, num_samples: int) -> list[dict[str, Any]]:
    if not isinstance(grid, Mapping):
        raise ConfigError("grid: a random search draws from values by key, and not from points")
    _tune("search='random'")
    for key, values in grid.items():
        if not _is_distribution(values):
            _check_list(key, values)
    if any(not _is_distribution(values) and len(values) == 0 for values in grid.values()):
        return []
    rng = np.random.RandomState(0)
    points = [{key: _drawn_value(values, rng) for key, values in grid.items()} for _ in range(num_samples)]
    return list({json.dumps(point): point for point in points}.values())


def _is_distribution(values: Any) -> bool:
    return hasattr(values, "sample")


def _drawn_value(values: Any, rng: np.random.RandomState) -> Any:
    return _rounded(values.sample(random_state=rng)) if _is_distribution(values) else values[rng.randint(len(values))]


def _drawn_text(text: str, rng: np.random.RandomState) -> str:
    distribution = _DISTRIBUTION.fullmatch(text)
    if distribution is None:
        return text
    tune = _tune("Sweep.search = 'random'")
    try:
        arguments = ast.literal_eval(f"({distribution[2]},)")
        # Most of Ray Tune's distributions take bounds in the wrong order, and draw nonsense.
        if len(arguments) > 1 and arguments[0] >= arguments[1]:
            raise ValueError(f"the first bound must be the lower one, got {arguments[0]} and {arguments[1]}")
        domain = getattr(tune, distribution[1])(*arguments)
        return repr(_rounded(domain.sample(random_state=rng)))
    except (TypeError, ValueError, SyntaxError) as error:
        raise ConfigError(f"grid: {text} is no distribution of Ray Tune ({error})") from None


def _rounded(value: Any) -> Any:
    """Return a drawn value as a plain number, to six digits, so that a person can read it."""
    value = value.item() if isinstance(value, np.generic) else value
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _tune(needed_by: str) -> Any:
    with extra(needed_by, "ray"):
        from ray import tune
    return tune

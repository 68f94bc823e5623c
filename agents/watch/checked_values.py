"""Values of files that anybody may have written: a face draws what came through one of these readers, and nothing else.

A reader takes what JSON or a line of a table gave, and returns it typed, or raises ValueError. `clean` is the one place
in which texts, also the names of files, lose what a terminal or a browser would obey.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

Reader = Callable[[Any], Any]
_LONGEST = 1_000  # characters of a text
_GREATEST = 1e100  # of a number: sums and squares of such numbers are finite


def clean(text: object) -> str:
    """Return a text of printable characters, 1,000 at most: no escape, control, change of direction or surrogate."""
    words = str(text)
    words = words if len(words) <= _LONGEST else f"{words[:_LONGEST]}…"
    if words.isprintable():
        return words
    return "".join(each if each.isprintable() else " " if each.isspace() else "\ufffd" for each in words)


def text(value: Any) -> str:
    """Return a text, cleaned."""
    return clean(_of(value, str))


def label(value: Any) -> str:
    """Return a text, or a whole number as a text."""
    return clean(_of(value, str, int))


def truth(value: Any) -> bool:
    """Return a truth value."""
    return bool(_of(value, bool))


def number(value: Any) -> float:
    """Return a number that is finite, and no greater than 1e100 in either direction."""
    if not -_GREATEST <= _of(value, float, int) <= _GREATEST:  # nan compares with nothing
        raise ValueError(f"{_told(value)} is not finite")
    return value  # type: ignore[no-any-return]


def known(value: Any) -> float | None:
    """Return a number; None for null, and for one that is not finite, which a run may rightly have measured."""
    return value if value is None or -_GREATEST <= _of(value, float, int) <= _GREATEST else None


def positive(value: Any) -> float:
    """Return a number above 0."""
    if (found := number(value)) <= 0:
        raise ValueError(f"{_told(value)} is not above 0")
    return found


def count(value: Any) -> int:
    """Return a whole number that is not below 0."""
    if (found := number(value)) < 0:
        raise ValueError(f"{_told(value)} is below 0")
    return int(found)


def maybe(read: Reader) -> Reader:
    """Return a reader to which null is None."""
    return lambda value: None if value is None else read(value)


def many(read: Reader, most: int) -> Reader:
    """Return a reader of a list, without what is None; of more values than `most`, the last ones are read."""
    return lambda value: [found for each in _of(value, list)[-most:] if (found := read(each)) is not None]


def row(*reads: Reader) -> Reader:
    """Return a reader of a list with one value for each of the readers."""
    return lambda value: tuple(read(each) for read, each in zip(reads, _of(value, list), strict=True))


def mapping(key: Reader, read: Reader, most: int) -> Reader:
    """Return a reader of an object with any names, without what is None; of more than `most`, the first ones."""

    def pairs(value: Any) -> dict[Any, Any]:
        return {key(name): read(each) for name, each in islice(_of(value, dict).items(), most)}

    return lambda value: {name: found for name, found in pairs(value).items() if found is not None}


def record(wanted: Mapping[str, Reader], optional: Mapping[str, Reader] | None = None) -> Reader:
    """Return a reader of an object: of the wanted names, and of those optional ones that are there and not None."""
    reads = {**wanted, **(optional or {})}

    def read(value: Any) -> dict[str, Any]:
        found = {}
        for name, each in _of(value, dict).items():
            if name in reads:
                try:
                    got = reads[name](each)
                except ValueError as error:
                    raise ValueError(f"{name}: {error}") from None
                if got is not None or name in wanted:
                    found[name] = got
        if len(found) < len(wanted) or not wanted.keys() <= found.keys():
            raise ValueError(f"{min(wanted.keys() - found.keys())} is missing")
        return found

    return read


def _of(value: Any, *kinds: type) -> Any:
    """Return a value of one of some types; a truth value, which Python takes for a number, is not one."""
    if type(value) not in kinds:
        raise ValueError(f"{_told(value)} is no {' or '.join(_NAMES[kind] for kind in kinds)}")
    return value


_NAMES = {str: "text", int: "whole number", float: "number", bool: "truth value", list: "list", dict: "object"}
_told = reprlib.repr

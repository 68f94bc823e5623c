"""Which reasons of lost connections are warned of: the first of each kind, and no more kinds than a person reads."""

from __future__ import annotations

import re

MOST_KINDS = 20  # that one run warns of, since the other end may give any reason
# What differs among reasons of one kind: quoted words of the other end, names in hexadecimal, and numbers.
_VARIES = re.compile(r"'[^']*'|\"[^\"]*\"|\b(?=[0-9a-f]*[0-9])[0-9a-f]{6,}\b|[0-9.]+")


class Reasons:
    """The kinds of reasons that have been told."""

    def __init__(self) -> None:
        """See the class."""
        self._told: set[str] = set()

    def is_new(self, why: str) -> bool:
        """Return whether a reason is the first of its kind, and note it; False once `MOST_KINDS` have been told."""
        kind = _VARIES.sub("0", why)[:200]
        if kind in self._told or len(self._told) >= MOST_KINDS:
            return False
        self._told.add(kind)
        return True

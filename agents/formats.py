"""The format of the files that a run goes on from, which each of them states beside the version that wrote it.

Format 1 stated neither. Weights are read from either format; a run is continued from its own format alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agents import __version__

__all__ = ["FORMAT", "OtherFormat", "check_format", "stamp"]

FORMAT = 2


class OtherFormat(ValueError):
    """A whole file, of a format that this version does not continue."""


def stamp() -> dict[str, Any]:
    """Return what a file states about its format."""
    return {"format": FORMAT, "version": __version__}


def check_format(what: object, stated: Mapping[str, Any], readable: tuple[int, ...] = (FORMAT,)) -> None:
    """Refuse a file of another format.

    Args:
        what: Names the file.
        stated: What it states: a stamp, or an empty mapping in format 1.
        readable: The formats that will do.

    Raises:
        OtherFormat: It has none of them.
    """
    there, version = stated.get("format", 1), stated.get("version", "0.1.0 or older")
    if there not in readable:
        raise OtherFormat(
            f"{what} has format {there} (async_wrappers {version}), and async_wrappers {__version__} goes on from "
            f"format {FORMAT} alone: continue with that version, or choose another --base_dir"
        )

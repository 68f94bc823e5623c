"""Reading a user's own ROM: by path, checked by its SHA-256, and never written to."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass

from async_wrappers.envs.gameboy.files import read_file

__all__ = ["Rom", "read_rom", "sha256"]


@dataclass(frozen=True)
class Rom:
    """A cartridge that a spec was written for.

    Args:
        title: The game's name.
        file: What the file usually looks like; only for messages.
        sha256: The SHA-256 of the whole file, in hexadecimal.
    """

    title: str
    file: str
    sha256: str


def read_rom(path: str | os.PathLike[str] | None, accepted: Sequence[Rom]) -> bytes:
    """Return the bytes of the ROM at `path`, if it is one of `accepted`.

    Raises:
        ValueError: There is no such file, it may not be read, or it is another ROM; the sentence names the file and
            the SHA-256 that is expected.
    """
    expected = " or ".join(f"{rom.title} ({rom.file}, SHA-256 {rom.sha256})" for rom in accepted)
    if path is None:
        raise ValueError(
            f"rom must be the path of your own file of {expected}, got None: none comes with this package; "
            "async_wrappers/FallingBlocks-v0 needs none"
        )
    content = read_file("rom", path, f"give the path of your own file of {expected}")
    found = sha256(content)
    if found not in {rom.sha256 for rom in accepted}:
        raise ValueError(f"rom must be {expected}, got {os.fspath(path)!r} with SHA-256 {found}: give that very dump")
    return content


def sha256(content: bytes) -> str:
    """Return the SHA-256 of `content` in hexadecimal."""
    return hashlib.sha256(content).hexdigest()

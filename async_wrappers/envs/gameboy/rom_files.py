"""A user's own files: the ROM, and the save states that episodes begin with.

A refusal names the mistake and the remedy in one sentence. A ROM is recognised by its SHA-256, and never written to.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from numbers import Integral
from typing import Any

from async_wrappers.envs.gameboy.game_spec import Rom, Spec, Start, StateList
from async_wrappers.files import path_of, write_atomically

_REPOSITORY = "https://github.com/CERC-AAI/realtime_rl"


def read_file(name: str, path: str | os.PathLike[str], remedy: str) -> bytes:
    """Return the bytes of a file.

    Args:
        name: The argument's name, for the message.
        path: The file.
        remedy: Remedy if it cannot be read, for the message.

    Raises:
        ValueError: It cannot be read.
    """
    try:
        return path_of(path).read_bytes()
    except FileNotFoundError:
        problem = f"there is no file {os.fspath(path)!r}: {remedy}"
    except PermissionError:
        problem = f"{os.fspath(path)!r} may not be read: grant yourself the permission (chmod u+r), or {remedy}"
    except IsADirectoryError:
        problem = f"{os.fspath(path)!r} is a directory, not a file: {remedy}"
    except (OSError, ValueError) as error:
        problem = f"{os.fspath(path)!r} cannot be read ({error}): {remedy}"
    raise ValueError(f"{name}: {problem}")


def write_file(name: str, path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file that is never seen half written.

    Raises:
        ValueError: It cannot be written.
    """
    try:
        write_atomically(path_of(path), lambda file: file.write(content))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ValueError(
            f"{name}: {os.fspath(path)!r} cannot be written ({reason}): give a path in a directory that exists and "
            "that you may write to"
        ) from None


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
    found = hashlib.sha256(content).hexdigest()
    if found not in {rom.sha256 for rom in accepted}:
        raise ValueError(f"rom must be {expected}, got {os.fspath(path)!r} with SHA-256 {found}: give that very dump")
    return content


class StateSource:
    """Gives each episode its state.

    Args:
        spec: The game.
        directory: Where the spec's states are.
        state: First state of every episode: a name or number of the spec's states, the path of a file, bytes; None
            for the spec's own order.

    Raises:
        ValueError: The directory is missing or none, or there is no such state.
    """

    def __init__(self, spec: Spec, directory: str | os.PathLike[str] | None, state: Any) -> None:
        self._spec, self._fixed = spec, state
        self._directory = None if directory is None else path_of(directory)
        if self._directory is not None and not self._directory.is_dir():
            raise ValueError(f"states must be a directory with save states, got {os.fspath(self._directory)!r}")
        listed = spec.states
        self._order = listed if state is None and spec.goes_on else None
        self._first: int | None = None  # number of the state that the spec begins with
        if listed is not None:
            self._first = listed.first if spec.first_state is None else spec.first_state
        self._number: int | None = None  # of the encounter that the spec's order is at
        self._in_order = False  # whether the last episode did
        begin = self._first if state is None else state
        if begin is not None:
            self._find(begin)  # missing files are refused at once

    def upcoming(self, won: bool) -> int | None:
        """Return the number of the encounter that the next episode in the spec's order plays; None without an order.

        Args:
            won: Whether the last episode was.
        """
        if self._order is None:
            return None
        if self._number is None:
            return self._first
        if won and self._in_order:
            return self._order.first if self._number == self._order.last else self._number + 1
        return self._number

    def go_to(self, number: int | None) -> None:
        """Let the spec's order go on from an encounter, None for its first.

        Raises:
            ValueError: There is no order, or no such encounter.
        """
        if self._order is None:
            raise ValueError(f"encounter must be left alone where no order of encounters is followed, got {number!r}")
        if number is not None:
            self._order.name(number)
        self._number, self._in_order = number, False

    def next(self, won: bool, asked: Any = None) -> tuple[str, bytes | None, Start | None]:
        """Return the next episode's state: its name, its content, and what is to be done after it was loaded.

        Args:
            won: Whether the last episode was.
            asked: First state of this one episode, as the argument `state`.

        Returns:
            No content means: switch the game on.

        Raises:
            ValueError: There is no such state, or it cannot be read.
        """
        state = self._fixed if asked is None else asked
        self._number, self._in_order = self.upcoming(won), state is None
        if state is None:
            state = self._first if self._number is None or self._spec.always_first else self._number
        return ("power on", None, None) if state is None else self._find(state)

    def _find(self, state: Any) -> tuple[str, bytes, Start | None]:
        """Return a state's name, its content, and the function to call after it was loaded."""
        if isinstance(state, bytes | bytearray):
            return "given", bytes(state), None
        listed, names = self._spec.states, ""
        if listed is not None:
            state = listed.name(int(state)) if isinstance(state, Integral) else state
            if isinstance(state, str) and listed.number(state) is not None:
                return state, self._read(listed, state), self._spec.start
            names = f"one of {listed.name(listed.first)} to {listed.name(listed.last)}, or "
        if not isinstance(state, str | os.PathLike):
            raise ValueError(f"state must be {names}the path of a save state, got {state!r}")
        return os.fspath(state), read_file("state", state, f"give {names}the path of a save state"), None

    def _read(self, listed: StateList, name: str) -> bytes:
        remedy = (
            f"give the directory with the save states of {self._spec.title}, such as custom_integrations/"
            f"{listed.folder} of {_REPOSITORY}"
        )
        if self._directory is None:
            raise ValueError(f"states must be a directory with {name}.state in it, got None: {remedy}")
        for path in (self._directory / f"{name}.state", self._directory / listed.folder / f"{name}.state"):
            if os.path.exists(path):
                return read_file("states", path, remedy)
        raise ValueError(f"states: there is no {name}.state in {os.fspath(self._directory)!r}: {remedy}")

"""Which save state an episode begins with, and where its file is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from async_wrappers.envs.gameboy.files import read_file
from async_wrappers.envs.gameboy.spec import Spec, Start, StateList

__all__ = ["StateSource"]

_REPOSITORY = "https://github.com/CERC-AAI/realtime_rl"


class StateSource:
    """Gives each episode its state.

    Args:
        spec: The game.
        directory: Where the spec's states are.
        state: What every episode begins with: a name or number of the spec's states, the path of a file, bytes; None
            for the spec's own order.

    Raises:
        ValueError: The directory is missing or none, or there is no such state.
    """

    def __init__(self, spec: Spec, directory: str | os.PathLike[str] | None, state: Any) -> None:
        """See the class."""
        self._spec, self._fixed = spec, state
        self._directory = None if directory is None else Path(directory).expanduser()
        self._number: int | None = None  # of the encounter that the spec's order is at
        self._in_order = False  # whether the last episode did
        if self._directory is not None and not self._directory.is_dir():
            raise ValueError(f"states must be a directory with save states, got {os.fspath(self._directory)!r}")
        if state is not None:
            self._find(state)
        elif spec.states is not None:
            self._find(self._first(spec.states))

    def upcoming(self, won: bool) -> int | None:
        """Return the number of the encounter that the next episode in the spec's order plays; None without an order.

        Args:
            won: Whether the last episode was.
        """
        listed = self._spec.states
        if self._fixed is not None or listed is None or not self._spec.goes_on:
            return None
        if self._number is None:
            return self._first(listed)
        if won and self._in_order:
            return listed.first if self._number == listed.last else self._number + 1
        return self._number

    def go_to(self, number: int | None) -> None:
        """Let the spec's order go on from an encounter, None for its first.

        Raises:
            ValueError: There is no order, or no such encounter.
        """
        if self._fixed is not None or self._spec.states is None or not self._spec.goes_on:
            raise ValueError(f"encounter must be left alone where no order of encounters is followed, got {number!r}")
        if number is not None:
            self._spec.states.name(number)
        self._number, self._in_order = number, False

    def next(self, won: bool, asked: Any = None) -> tuple[str, bytes | None, Start | None]:
        """Return the next episode's state: its name, its content, and what is to be done after it was loaded.

        Args:
            won: Whether the last episode was.
            asked: What this one episode shall begin with, as the argument `state`.

        Returns:
            No content means: switch the game on.

        Raises:
            ValueError: There is no such state, or it cannot be read.
        """
        state, listed = self._fixed if asked is None else asked, self._spec.states
        self._number, self._in_order = self.upcoming(won), state is None
        if state is not None:
            return self._find(state)
        if listed is None:
            return "power on", None, None
        return self._find(self._first(listed) if self._number is None or self._spec.always_first else self._number)

    def _first(self, listed: StateList) -> int:
        return listed.first if self._spec.first_state is None else self._spec.first_state

    def _find(self, state: Any) -> tuple[str, bytes, Start | None]:
        if isinstance(state, bytes | bytearray):
            return "given", bytes(state), None
        listed = self._spec.states
        name = None if listed is None else _listed_name(listed, state)
        if listed is not None and name is not None:
            return name, self._read(listed, name), self._spec.start
        if not isinstance(state, str | os.PathLike):
            raise ValueError(f"state must be {self._names()}the path of a save state, got {state!r}")
        return os.fspath(state), read_file("state", state, f"give {self._names()}the path of a save state"), None

    def _names(self) -> str:
        listed = self._spec.states
        return "" if listed is None else f"one of {listed.name(listed.first)} to {listed.name(listed.last)}, or "

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


def _listed_name(listed: StateList, state: Any) -> str | None:
    if isinstance(state, int | np.integer):
        return listed.name(int(state))
    return state if isinstance(state, str) and listed.number(state) is not None else None

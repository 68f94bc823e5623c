"""The description that makes a game an environment: addresses in its memory, and a rule for rewards and ends.

A `Spec` is a table and a rule; it knows no emulator, so rules are tested on memory written by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

from async_wrappers.envs.gameboy.emulator import Console

FPS = 59.7275  # of a Game Boy: 4194304 cycles a second, 70224 a frame

Memory = Mapping[str, int]

# The published action table, with the no-op as an action of its own; each is held for one frame.
ACTIONS: Mapping[str, tuple[str, ...]] = {
    "A": ("a",),
    "B": ("b",),
    "LEFT": ("left",),
    "UP": ("up",),
    "RIGHT": ("right",),
    "DOWN": ("down",),
    "NOOP": (),
}


@dataclass(frozen=True)
class Rom:
    """A cartridge that a spec was written for.

    Args:
        title: The game's name.
        file: Usual name of the file; only for messages.
        sha256: The SHA-256 of the whole file, in hexadecimal.
    """

    title: str
    file: str
    sha256: str


@dataclass(frozen=True)
class Field:
    """Where a number lies in memory, and how it is written.

    Args:
        address: Of its first byte.
        size: Bytes.
        kind: ``"unsigned"``, ``"signed"`` (one byte) or ``"decimal"`` (two digits per byte, BCD).
        order: Which byte comes first.
    """

    address: int
    size: int = 1
    kind: Literal["unsigned", "signed", "decimal"] = "unsigned"
    order: Literal["big", "little"] = "big"

    def reader(self, memory: Any, color: bool) -> Callable[[], int]:
        """Return a function that reads the number.

        Args:
            memory: PyBoy's memory.
            color: Whether it is a Game Boy Color's. D000 to DFFF is then read in bank 1, as gym-retro does, whichever
                bank the game has selected.
        """
        keys = self.keys(color)
        if self.order == "little":
            keys = keys[::-1]
        first = keys[0]
        if self.kind == "decimal":
            return lambda: _decimal([memory[key] for key in keys])
        if self.size == 1 and self.kind == "signed":
            return lambda: (memory[first] ^ 0x80) - 0x80
        if self.size == 1:
            return lambda: int(memory[first])
        if self.size == 2:
            second = keys[1]
            return lambda: memory[first] << 8 | memory[second]
        return lambda: int.from_bytes([memory[key] for key in keys], "big")

    def keys(self, color: bool) -> list[Any]:
        """Return how PyBoy's memory names each byte, in the order of the addresses."""
        addresses = range(self.address, self.address + self.size)
        return [(1, address) if color and 0xD000 <= address < 0xE000 else address for address in addresses]


def _decimal(digits: list[int]) -> int:
    value = 0
    for pair in digits:
        value = 100 * value + 10 * (pair >> 4) + (pair & 0x0F)
    return value


class Rule(Protocol):
    """The rewards of a game, and the end of an episode."""

    @property
    def watched(self) -> tuple[str, ...]:
        """The numbers of the memory that it reads, on every frame."""
        ...

    def begin(self, ram: Memory) -> None:
        """Begin an episode; `ram` is that of its first frame, for which nothing is paid."""
        ...

    def step(self, ram: Memory) -> tuple[float, bool]:
        """Return the reward of a frame and whether it ends the episode, from the memory after that frame."""
        ...


@dataclass(frozen=True)
class StateList:
    """Numbered save states, such as ``Squirt_B1`` to ``Squirt_B295``.

    Args:
        prefix: Text before the number.
        first: The first number.
        last: The last number.
        titles: Meanings of the numbers, where they are known.
        folder: The directory of the published repository that holds them.
    """

    prefix: str
    first: int
    last: int
    titles: Mapping[int, str] = field(default_factory=dict)
    folder: str = ""

    def name(self, number: int) -> str:
        """Return the name of a state.

        Raises:
            ValueError: There is no state of that number.
        """
        if not self.first <= number <= self.last:
            raise ValueError(f"state must be a number from {self.first} to {self.last}, got {number}")
        return f"{self.prefix}{number}"

    def number(self, name: str) -> int | None:
        """Return the number of a state, or None if no state has that name."""
        digits = name.removeprefix(self.prefix)
        found = int(digits) if name != digits and digits.isdecimal() else self.first - 1
        return found if self.first <= found <= self.last and self.name(found) == name else None

    def __iter__(self) -> Iterator[str]:
        """Return the names, in order."""
        return (self.name(number) for number in range(self.first, self.last + 1))


# What is done after a state was loaded, before the episode begins: plays on the console, reads the numbers of the
# memory, draws from the environment's generator; returns False if the state has to be loaded again.
Start = Callable[[Console, Callable[[], Memory], np.random.Generator], bool]


@dataclass(frozen=True)
class Spec:
    """A game as an environment.

    Args:
        title: The game and its task.
        roms: The cartridges that it is for.
        ram: Where its memory holds what, by name.
        rule: Makes the rule of rewards and ends.
        states: Save states that episodes begin with; without any, an episode begins when the game is switched on.
        actions: Buttons by the meaning of the action, in the order of the actions.
        start: Called after one of `states` was loaded.
        first_state: Number of the state to begin with, the first if not given.
        goes_on: `states` are encounters: the episode after a win is the next of them (after the last, the first again).
            A win is an episode whose last reward that is not 0 is 1.
        always_first: Count the encounters so, and load the first one's state for each of them.
        plausible: Values that a number has in every state of this game; other values mean another game's state.
        fps: Frames per second of the real machine.
    """

    title: str
    roms: tuple[Rom, ...]
    ram: Mapping[str, Field]
    rule: Callable[[], Rule]
    states: StateList | None = None
    actions: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: ACTIONS)
    start: Start | None = None
    first_state: int | None = None
    goes_on: bool = False
    always_first: bool = False
    plausible: Mapping[str, Container[int]] = field(default_factory=dict)
    fps: float = FPS

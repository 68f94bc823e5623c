"""Tetris, type A, from each of the levels 0 to 9."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from async_wrappers.envs.gameboy.console import Console
from async_wrappers.envs.gameboy.picture import grayscale
from async_wrappers.envs.gameboy.roms import Rom
from async_wrappers.envs.gameboy.rules import Points
from async_wrappers.envs.gameboy.spec import Field, Memory, Spec, StateList

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Picture = NDArray[np.uint8]

__all__ = ["tetris"]

_ROM = Rom("Tetris", "rom.gb of 32 KiB", "0d6535aef23969c7e5af2b077acaddb4a445b3d0df7bf34c8acef07b51b015c3")
_LEVELS = StateList("TypeA_Level", 0, 9, {level: f"type A, level {level}" for level in range(10)}, "Tetris-GameBoy")
_MOST_NOOPS = 40  # frames before the button is pressed
_LONGEST_WAIT = 600  # frames until the game has begun, else the state is loaded again
_LEAST_CHANGE = 10_000  # of the 84 x 84 grey picture from the menu to the game, summed


def tetris(parity: bool = False) -> Spec:
    """Return the spec of Tetris.

    Args:
        parity: As published: the score modulo 10,000 (the script reads four of its six digits, so that passing 10,000
            costs 10,000 points), a press of A where START and A are meant (START is filtered), and the begin of the
            game recognised in the picture. Otherwise all digits, both buttons, and the begin read from the memory.
    """
    return Spec(
        title="Tetris, type A",
        roms=(_ROM,),
        ram={
            "score_bcd": Field(0xC0A0, 2 if parity else 3, "decimal", "little"),
            "level": Field(0xFFA9, 1, "decimal"),
            "game_state": Field(0xFFE1, 1, "signed"),
        },
        rule=Points,
        states=_LEVELS,
        start=_press_and_look if parity else _press_and_wait,
    )


def _press_and_wait(console: Console, ram: Callable[[], Memory], random: np.random.Generator) -> bool:
    """Begin the game from the choice of the level: some frames of nothing, START and A, until its state is 0."""
    for _ in range(int(random.integers(0, _MOST_NOOPS, endpoint=True))):
        console.frame(draw=False)
    console.frame(("start", "a"))
    for _ in range(_LONGEST_WAIT):
        if ram()["game_state"] == 0:
            return True
        console.frame()
    return False


def _press_and_look(console: Console, ram: Callable[[], Memory], random: np.random.Generator) -> bool:
    """Begin the game as published: wait until the picture changes, and while it has one colour; compare the sums."""
    menu = grayscale(console)
    for _ in range(int(random.integers(0, _MOST_NOOPS, endpoint=True))):
        console.frame()
    before = grayscale(console)
    console.frame(("a",))
    begun = _wait_while(console, lambda picture: np.array_equal(picture, before))
    if begun is not None:
        begun = _wait_while(console, lambda picture: bool((picture == picture[0, 0]).all()))
    return begun is not None and int((begun - menu).sum(dtype=np.int64)) >= _LEAST_CHANGE  # differences wrap around


def _wait_while(console: Console, waiting: Callable[[Picture], bool]) -> Picture | None:
    """Run frames while the picture is such, and return the first that is not; None if that takes too long."""
    for _ in range(_LONGEST_WAIT):
        picture = grayscale(console)
        if not waiting(picture):
            return picture
        console.frame()
    return None

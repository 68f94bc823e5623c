"""The cartridge of most tests as an environment: A scores 7, B ends the game, LEFT and RIGHT scroll the screen."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from async_wrappers.envs.gameboy import Field, GameBoyEnv, Rom, Spec
from async_wrappers.envs.gameboy.games import Points
from tests.worlds.gameboy.cartridge import BUTTONS, END, FRAMES, SCORE, X, add_score, cartridge, store

A, B, LEFT, UP, RIGHT, DOWN, NOOP = range(7)
RAM = {
    "score_bcd": Field(SCORE, 3, "decimal", "little"),
    "game_state": Field(END, 1, "signed"),
    "level": Field(X, 1, "signed"),
    "frames": Field(FRAMES, 2, order="little"),
    "buttons": Field(BUTTONS),
}


@cache
def counter_rom(kind: str = "dmg", busy: bool = False) -> bytes:
    return cartridge(kind, {"a": add_score(7), "b": store(END, 1)}, busy=busy)


def counter_spec(rom: bytes, **changes: Any) -> Spec:
    known = {
        "title": "Counter",
        "roms": (Rom("Counter", "counter.gb", sha256(rom).hexdigest()),),
        "ram": RAM,
        "rule": Points,
    }
    return Spec(**{**known, **changes})


def make_counter(folder: Path, kind: str = "dmg", **arguments: Any) -> GameBoyEnv:
    """Return the environment; its ROM is written into `folder`."""
    rom = counter_rom(kind)
    path = folder / "counter.gb"
    path.write_bytes(rom)
    return GameBoyEnv(path, counter_spec(rom), **arguments)

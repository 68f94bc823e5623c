"""Cartridges of our own that play as Tetris and Pokemon do: their menus, memory and ends, and states of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from async_wrappers.envs.gameboy import Rom, Spec, find_spec
from async_wrappers.envs.gameboy.emulator import Console
from tests.worlds.gameboy.cartridge import Code, add_score, cartridge, low_high, store

__all__ = ["MENU", "PLAYING", "STARTED", "STATE", "own", "pokemon_like", "tetris_like", "written"]

MENU, BEGINNING, PLAYING, OVER = 0x11, 0x12, 0x00, 0x0D
STATE, WAIT, STARTED = 0xE1, 0xC040, 0xC050


def tetris_like() -> bytes:
    """Return a cartridge: a menu; A or START leads, over a white screen, to a game, in which A scores and B ends."""
    frame = Code(0)
    frame(0xF0, STATE, 0xFE, BEGINNING)
    frame.jump(0x20, "menu")
    frame(0x21, *low_high(WAIT), 0x35)  # count down
    frame.jump(0x20, "done")
    frame(0xAF, 0xE0, STATE, 0x3E, 0x1B, 0xE0, 0x47)  # the game, in other shades
    frame.jump(0x18, "done")
    frame.label("menu")
    frame(0xFE, MENU)
    frame.jump(0x20, "done")
    frame(0xFA, *low_high(0xC002), 0xE6, 0x09)  # A or START
    frame.jump(0x28, "done")
    frame(0x3E, BEGINNING, 0xE0, STATE, 0x3E, 25, 0xEA, *low_high(WAIT), 0xAF, 0xE0, 0x47)  # white
    frame.label("done")
    on = {"a": add_score(7), "b": bytes((0x3E, OVER, 0xE0, STATE)), "start": store(STARTED, 1)}
    return cartridge("dmg", on, begin=bytes((0x3E, MENU, 0xE0, STATE)), each_frame=frame.finished())


def poke(address: int, value: int, color: bool) -> bytes:
    """Return code that writes a byte, on a color machine into the work RAM's first bank."""
    if not color:
        return store(address, value)
    return bytes((0x3E, 1, 0xE0, 0x70)) + store(address, value) + bytes((0x3E, 3, 0xE0, 0x70))


def pokemon_like(game: str) -> bytes:
    """Return a cartridge: A makes the opponent's only one faint or catches, B one's own or ends the battle."""
    ram, color = find_spec(game).ram, "Yellow" in game
    at = {name: field.address for name, field in ram.items()}
    begin = poke(at["party_size"], 1, color) + poke(at["my_hp1"], 1, color) + poke(at["opp_hp1"] + 1, 9, color)
    on = {"a": poke(at["opp_hp1"] + 1, 0, color), "b": poke(at["my_hp1"], 0, color)}
    if "catching" in game:
        begin += poke(at["InBattle"], 1, color)
        over = poke(at["InBattle"], 0, color)
        on = {"a": poke(at["Owned7"], 8, color) + over, "b": over}
    return cartridge("cgb" if color else "mbc3", on, begin=begin)


def own(spec: Spec, rom: bytes) -> Spec:
    """Return the spec for a cartridge of these tests."""
    return replace(spec, roms=(Rom("test", "test.gb", sha256(rom).hexdigest()),))


def written(folder: Path, rom: bytes, names: list[str], prepare: Callable[[Console, int], None] | None = None) -> Path:
    """Write the ROM, and states of it; return the ROM's path."""
    console = Console(rom)
    for number, name in enumerate(names):
        console.boot()
        if prepare is not None:
            prepare(console, number)
        (folder / f"{name}.state").write_bytes(console.save())
    (folder / "rom.gb").write_bytes(rom)
    return folder / "rom.gb"

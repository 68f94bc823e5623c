"""The window layer after a state is loaded: PyBoy's line counter of it is in no state."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from async_wrappers.envs.gameboy import GameBoyEnv
from async_wrappers.envs.gameboy.console import Console
from async_wrappers.envs.gameboy.gambatte import parse
from async_wrappers.envs.gameboy.states import Layout, unseal
from async_wrappers.envs.gameboy.window import window_lines
from tests.worlds.gameboy import retro
from tests.worlds.gameboy.cartridge import Code, add, cartridge
from tests.worlds.gameboy.counter import NOOP, RIGHT, UP, A, B, counter_spec

KINDS = ("dmg", "mbc3", "cgb")
_TOP, _LINE = 0x10, 0x60  # where the window begins; where an interrupt comes, in the middle of the frame
_EI_HALT = 0xC060  # counted up after each HALT


def registers(values: dict[int, int]) -> bytes:
    """Return code that writes values into registers of FF00 on."""
    return b"".join(bytes((0x3E, value, 0xE0, register)) for register, value in values.items())


def screen_off_at(line: int) -> bytes:
    """Return code that waits for a line and switches the screen off and, after a write to LYC, on again."""
    wait = bytes((0xF0, 0x44, 0xFE, line, 0x20, 0xFA))
    return wait + bytes((0xF0, 0x40, 0x4F, 0xAF, 0xE0, 0x40)) + registers({0x45: _LINE}) + bytes((0x79, 0xE0, 0x40))


@cache
def window_rom(kind: str = "dmg", ei_halt: bool = False) -> bytes:
    """Return a cartridge that shows a window with a map of its own; A cuts a frame short, in the window's middle.

    Args:
        kind: As `cartridge` has it.
        ei_halt: The main loop waits with EI and HALT, and counts.
    """
    code = Code(0)
    code(0x21, 0x00, 0x9C)  # the window's map: other tiles in each row, so that each line of it differs
    code.label("map")
    code(0x7D, 0xE6, 0x1F, 0xAC, 0xCB, 0x47, 0x3E, 0x00)
    code.jump(0x28, "even")
    code(0x3C)
    code.label("even")
    code(0x22, 0x7C, 0xFE, 0xA0)
    code.jump(0x20, "map")
    begin = code.finished() + registers({0x4A: _TOP, 0x4B: 0x27, 0x45: _LINE, 0x41: 0x40})
    if ei_halt:
        loop = bytes((0xFB, 0x76)) + add(_EI_HALT, 1)
        begin += registers({0x0F: 0, 0xFF: 1, 0x40: 0xF1}) + loop + bytes((0x18, 0x100 - len(loop) - 2))
    window_on = bytes((0xF0, 0x40, 0xF6, 0x60, 0xE0, 0x40))
    return cartridge(
        kind, {"a": screen_off_at(_LINE), "up": registers({0xFF: 0x03})}, begin=begin, each_frame=window_on
    )


def seen(console: Console, frames: int = 6) -> list[bytes]:
    """Return what a console shows and holds on the next frames."""
    shown = []
    for _ in range(frames):
        console.frame()
        shown.append(console.screen.tobytes() + bytes(console.memory[0xC000:0xE000]))
    return shown


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("obs_type", ["grayscale", "rgb"])
def test_the_first_picture_of_an_environment_is_that_of_every_reset(tmp_path: Path, kind: str, obs_type: str) -> None:
    rom = window_rom(kind)
    (tmp_path / "rom.gb").write_bytes(rom)
    env, other = (GameBoyEnv(tmp_path / "rom.gb", counter_spec(rom), obs_type=obs_type) for _ in range(2))
    first, _ = env.reset()
    assert len(np.unique(first.reshape(len(first), -1), axis=0)) > 8  # lines differ
    for actions in ([], [NOOP], [A], [RIGHT, UP, A], [A, NOOP], [B, RIGHT, A]):
        for action in actions:
            if env._running:
                env.step(action)
        again, _ = env.reset()
        assert np.array_equal(again, first), f"after {actions}"
    other.reset()
    other.step(RIGHT)
    state = other.save_state()
    for begin in (env, other):
        begin.load_state(state)
    assert np.array_equal(env.step(NOOP)[0], other.step(NOOP)[0])
    (tmp_path / "s.state").write_bytes(state)
    fresh = GameBoyEnv(tmp_path / "rom.gb", counter_spec(rom), obs_type=obs_type, state=tmp_path / "s.state")
    assert np.array_equal(fresh.reset()[0], other.reset(options={"state": state})[0])


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_picture_after_a_converted_state_is_right(kind: str) -> None:
    high = bytearray(parse(retro.altered(kind))["hram"])
    high[0x140] |= 0x20  # its window: from line 50h on
    content, rom = retro.altered(kind, hram=bytes(high)), retro.cartridges()[kind]
    console, other = Console(rom), Console(rom)
    console.load(content)
    first = seen(console)
    assert len(set(first)) > 1
    for consoles in (console, other, other):
        consoles.load(content)
        assert seen(consoles) == first


@pytest.mark.parametrize("kind", KINDS)
def test_the_screen_of_a_game_that_was_switched_on_is_right(kind: str) -> None:
    console = Console(window_rom(kind))
    console.boot()
    first = console.screen[..., :3].copy()
    console.frame()
    console.frame()
    changing = kind == "cgb"  # a colour of its background
    assert changing or np.array_equal(console.screen[..., :3], first)


@pytest.mark.parametrize("ei_halt", [False, True])
@pytest.mark.parametrize("history", [(), ("a",), ("a", "b"), ("right", "up", "a"), ("up",) * 3])
def test_what_follows_a_state_does_not_depend_on_what_was_played_before(history: Any, ei_halt: bool) -> None:
    rom = window_rom(ei_halt=ei_halt)
    fresh = Console(rom)
    fresh.boot()
    fresh.frame()
    state = fresh.save()
    expected = Console(rom)
    expected.load(state)
    then = seen(expected)
    played = Console(rom)
    played.boot()
    for button in history:
        played.frame((button,))
    played.load(state)
    assert seen(played) == then


def in_the_middle(console: Console) -> tuple[bytes, bytes]:
    """Return a state from the middle of a frame, and the picture and memory at that frame's end."""
    taken: list[bytes] = []
    console._pyboy.hook_register(0, 0x48, lambda _: taken.append(console.save()), None)
    console.frame(("up",))  # switches the interrupt on; it was raised before, and comes at once
    console.frame()  # and again in the middle of this frame
    return taken[-1], console.screen.tobytes() + bytes(console.memory[0xC000:0xE000])


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_from_the_middle_of_a_frame_goes_on_with_its_line_of_the_window(kind: str) -> None:
    console = Console(window_rom(kind))
    console.boot()
    console.frame()
    state, end = in_the_middle(console)
    own, _ = unseal(state)
    layout = Layout(console.rom, own)
    assert window_lines(layout, own) == _LINE - _TOP
    for other in (console, Console(console.rom), Console(console.rom)):
        other.load(state)
        assert seen(other, 1) == [end]


def test_the_lines_of_the_window_are_counted_as_they_are_drawn() -> None:
    console = Console(window_rom())
    console.boot()
    console.frame()
    own, _ = unseal(console.save())
    layout = Layout(console.rom, own)

    def lines(line: int, mode: int, lcdc: int = 0xF1, changed: dict[int, tuple[int, int]] | None = None) -> int:
        scanlines = b"".join(bytes((0, 0, *(changed or {}).get(y, (0x27, _TOP)), 0)) for y in range(144))
        state = bytearray(own)
        fields = {"ly": line, "stat": 0x80 | mode, "lcdc": lcdc, "scanlines": scanlines}
        for name, value in fields.items():
            layout.write(state, name, value)
        return window_lines(layout, bytes(state))

    assert [lines(line, 2) for line in (0, _TOP, _TOP + 1, 100, 143)] == [0, 0, 1, 100 - _TOP, 143 - _TOP]
    assert [lines(line, 0) for line in (0, _TOP, _TOP + 1, 142, 143)] == [0, 1, 2, 143 - _TOP, 0]
    assert [lines(line, 1) for line in (144, 153)] == [0, 0]
    assert [lines(100, 3, lcdc) for lcdc in (0xD1, 0x71)] == [0, 0]  # no window, no screen
    outside = dict.fromkeys(range(20, 30), (167, _TOP))
    assert lines(100, 2, changed=outside) == 100 - _TOP - 10
    assert lines(100, 2, changed=dict.fromkeys(range(20, 100), (39, 255))) == 100 - _TOP  # begun is begun
    assert lines(100, 2, changed={_TOP: (0x27, 0)}) == 0  # the line of its beginning was missed

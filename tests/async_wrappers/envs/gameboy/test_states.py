"""Save states: what they say of themselves, what is refused, and what follows one though it is in no state."""

from __future__ import annotations

import io
import json
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyboy import PyBoy

from async_wrappers.envs.gameboy import GameBoyEnv
from async_wrappers.envs.gameboy.__main__ import main
from async_wrappers.envs.gameboy.emulator import Console
from async_wrappers.envs.gameboy.gambatte import parse
from async_wrappers.envs.gameboy.states import MAGIC, STATE_VERSION, Layout, unseal, window_lines
from tests.worlds.gameboy import retro
from tests.worlds.gameboy.cartridge import FRAMES, Code, add, cartridge
from tests.worlds.gameboy.counter import NOOP, RIGHT, UP, A, B, counter_rom, counter_spec, make_counter

KINDS = ("dmg", "mbc3", "cgb")


def bare(rom: bytes) -> Any:
    """Return PyBoy itself, running."""
    pyboy = PyBoy(io.BytesIO(rom), window="null", sound_emulated=False, log_level="ERROR")
    pyboy.tick(100, True, False)
    return pyboy


def bare_state(rom: bytes) -> bytes:
    pyboy, state = bare(rom), io.BytesIO()
    pyboy.save_state(state)
    pyboy.stop(save=False)
    return state.getvalue()


@pytest.mark.parametrize("kind", KINDS)
def test_the_layout_finds_what_the_game_has_written(kind: str) -> None:
    rom = counter_rom(kind)
    console = Console(rom)
    console.boot()
    console.frame()
    state, _ = unseal(console.save())
    layout = Layout(rom, state)
    memory = console.memory
    assert layout.length == len(state)
    assert layout.read(state, "wram")[:0x1000] == bytes(memory[0xC000:0xD000])
    assert layout.read(state, "vram0") == bytes(memory[0x8000:0xA000])
    assert layout.read(state, "hram") == bytes(memory[0xFF80:0xFFFF])
    assert layout.read(state, "oam") == bytes(memory[0xFE00:0xFEA0])
    single = {"ie": 0xFFFF, "lcdc": 0xFF40, "scx": 0xFF43, "bgp": 0xFF47, "tma": 0xFF06, "div": 0xFF04, "ly": 0xFF44}
    assert {name: layout.read(state, name)[0] for name in single} == {name: memory[at] for name, at in single.items()}
    if kind != "dmg":
        assert (layout.read(state, "rombank")[0], layout.read(state, "rambank")[0]) == (3, 2)
        assert layout.read(state, "cartridge_ram")[0x4005] == memory[0xA005]
    if kind == "cgb":
        assert layout.read(state, "wram_select")[0] == 3
        assert layout.read(state, "bcpd")[:2] == b"\xff\x7f"


@pytest.mark.parametrize("kind", ["mbc1", "mbc5", "rumble", "clock"])
def test_the_layout_knows_other_cartridges(kind: str) -> None:
    rom = bytearray(counter_rom("mbc3"))
    rom[0x147] = {"mbc1": 0x03, "mbc5": 0x1B, "rumble": 0x1E, "clock": 0x10}[kind]
    rom[0x14D] = (rom[0x14D] + 0x13 - rom[0x147]) & 0xFF
    state = bare_state(bytes(rom))
    assert Layout(bytes(rom), state).length == len(state)


def test_pyboy_itself_goes_on_from_a_saved_state(tmp_path: Path) -> None:
    env = make_counter(tmp_path)
    env.reset()
    env.step(RIGHT)
    content = env.save_state(tmp_path / "saved.state")
    assert (tmp_path / "saved.state").read_bytes() == content
    pyboy = bare(counter_rom())
    pyboy.load_state(io.BytesIO(content))
    assert pyboy.memory[FRAMES] == env.read("frames") & 0xFF
    pyboy.stop(save=False)


@pytest.fixture(scope="module")
def counter(tmp_path_factory: pytest.TempPathFactory) -> GameBoyEnv:
    return make_counter(tmp_path_factory.mktemp("counter"))


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda content: b"", "version none"),
        (lambda content: b"no state at all", "must have version 29"),
        (lambda content: content[:100_000], "must have 153524 bytes, got 100000"),
        (lambda content: content[:-1], "must have 153524 bytes"),
        (lambda content: content[:500] + bytes((content[500] ^ 1,)) + content[501:], "damaged"),
        (lambda content: bytes((28,)) + content[1:], "damaged"),
        (lambda content: unseal(content)[0], "does not say of which ROM"),
        (lambda content: unseal(content)[0][:-1], "must have 153524 bytes, got 153523"),
        (lambda content: bytes((STATE_VERSION - 1,)) + unseal(content)[0][1:], "got version 28"),
        (lambda content: bytes((STATE_VERSION + 1,)) + unseal(content)[0][1:], "got version 30"),
        (lambda content: Console(counter_rom("cgb")).save(), "is of the ROM with SHA-256"),
        (lambda content: unseal(Console(counter_rom("cgb")).save())[0], "of another game"),
        (lambda content: Console(counter_rom(busy=True)).save(), "is of the ROM with SHA-256"),
        (lambda content: retro.recording("cgb")["state"].tobytes(), "of another game"),
        (lambda content: retro.recording("dmg")["state"].tobytes()[:900], "cut off"),
    ],
)
def test_a_state_that_is_not_of_this_game_is_refused_in_one_sentence(
    counter: GameBoyEnv, tmp_path: Path, spoil: Any, sentence: str
) -> None:
    env = counter
    env.reset()
    content = spoil(env.save_state())
    for begin in (lambda: env.load_state(content), lambda: env.reset(options={"state": content})):
        with pytest.raises(ValueError) as error:
            begin()
        assert sentence in str(error.value)
        assert "\n" not in str(error.value)
    (tmp_path / "spoilt.state").write_bytes(content)
    with pytest.raises(ValueError, match=r"^state .*spoilt\.state: "):
        env.reset(options={"state": tmp_path / "spoilt.state"})
    env.reset()  # and the environment is as good as before
    env.step(RIGHT)


def test_a_state_with_sound_goes_on_without_and_not_the_other_way_round() -> None:
    loud, silent = Console(counter_rom(), sound=True), Console(counter_rom())
    loud.boot()
    loud.frame(("a",))
    state = loud.save()
    silent.load(state)
    for held in retro.buttons(2, 30):
        for console in (loud, silent):
            console.frame(held)
        assert bytes(loud.memory[0xC000:0xE000]) == bytes(silent.memory[0xC000:0xE000])
    loud.load(state)
    with pytest.raises(ValueError, match=r"^the state was saved without sound: give sound=False$"):
        loud.load(silent.save())


def test_a_state_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^state: there is no file '.*none\.state': give the path of a save state$"):
        make_counter(tmp_path, state=tmp_path / "none.state")


def test_a_state_cannot_be_saved_where_there_is_no_directory(tmp_path: Path) -> None:
    env = make_counter(tmp_path)
    env.reset()
    with pytest.raises(ValueError, match=r"^path: '.*a\.state' cannot be written \(No such file or directory\)"):
        env.save_state(tmp_path / "none" / "a.state")
    assert [path.name for path in tmp_path.iterdir()] == ["counter.gb"]


# The converter


def convert(tmp_path: Path, name: str, state: bytes) -> tuple[int, Path]:
    """Convert a state for a cartridge of `retro`; return the exit code and the file that was asked for."""
    (tmp_path / "game.gb").write_bytes(retro.cartridges()[name])
    (tmp_path / "old.state").write_bytes(state)
    out = tmp_path / "new.state"
    return main(["convert", str(tmp_path / "old.state"), "--rom", str(tmp_path / "game.gb"), "--out", str(out)]), out


@pytest.mark.parametrize("name", KINDS)
def test_a_converted_file_goes_on_as_the_state_itself_does(tmp_path: Path, name: str) -> None:
    content = retro.recording(name)["state"].tobytes()
    code, out = convert(tmp_path, name, content)
    assert code == 0
    rom = retro.cartridges()[name]
    consoles = Console(rom), Console(rom)
    consoles[0].load(content)
    consoles[1].load(out.read_bytes())
    for held in retro.buttons(1, 40):
        for console in consoles:
            console.frame(held)
        assert bytes(consoles[0].memory[0xC000:0xE000]) == bytes(consoles[1].memory[0xC000:0xE000])
        assert (consoles[0].screen == consoles[1].screen).all()
    state, origin = unseal(out.read_bytes())
    assert (origin.rom_sha256, origin.pyboy, origin.sound) == (sha256(rom).hexdigest(), "2.8.1", False)
    assert state[0] == STATE_VERSION
    assert sorted(path.name for path in tmp_path.iterdir()) == ["game.gb", "new.state", "old.state"]


def test_a_state_of_pyboys_own_is_given_its_trailer(tmp_path: Path) -> None:
    rom = retro.cartridges()["dmg"]
    code, out = convert(tmp_path, "dmg", bare_state(rom))
    assert code == 0
    assert out.read_bytes().endswith(MAGIC)
    Console(rom).load(out.read_bytes())


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        (b"", "version none"),
        (bytes((15,)) + bytes(100), "must have version 29 (PyBoy 2.8.1), got version 15"),
        (b"\x1f\x8b broken", "cut off or damaged"),
    ],
)
def test_the_converter_refuses_in_one_sentence_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], state: bytes, sentence: str
) -> None:
    code, out = convert(tmp_path, "dmg", state)
    assert code == 1
    assert not out.exists()
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert sentence in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(("field", "limit"), [("rombank", 2), ("rambank", 16), ("ly", 144)])
def test_a_state_that_points_beyond_the_machine_is_refused(field: str, limit: int) -> None:
    rom = counter_rom()
    console, state = Console(rom), bare_state(rom)
    state = Layout(rom, state).overwrite(state, {field: 255})
    with pytest.raises(ValueError, match=rf"^the state's {field} must be below {limit} on this cartridge, got 255: "):
        console.load(state, check_origin=False)


def test_the_converter_overwrites_neither_the_rom_nor_the_state(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rom, state = tmp_path / "game.gb", tmp_path / "old.state"
    rom.write_bytes(counter_rom())
    state.write_bytes(bare_state(counter_rom()))
    for out in (rom, state):
        before = out.read_bytes()
        assert main(["convert", str(state), "--rom", str(rom), "--out", str(out)]) == 1
        assert out.read_bytes() == before
        assert "it would be overwritten" in capsys.readouterr().err


def test_the_trailer_is_json(tmp_path: Path) -> None:
    content = Console(counter_rom()).save()
    state, _ = unseal(content)
    trailer = json.loads(content[len(state) : -len(MAGIC) - 4])
    assert set(trailer) == {"rom_sha256", "sound", "pyboy", "length", "crc32"}
    assert trailer["length"] == len(state)


# The window layer after a state is loaded: PyBoy's line counter of it is in no state

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
        over = False
        for action in actions:
            over = over or any(env.step(action)[2:4])
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
        fields = {"ly": line, "stat": 0x80 | mode, "lcdc": lcdc, "scanlines": scanlines}
        return window_lines(layout, layout.overwrite(own, fields))

    assert [lines(line, 2) for line in (0, _TOP, _TOP + 1, 100, 143)] == [0, 0, 1, 100 - _TOP, 143 - _TOP]
    assert [lines(line, 0) for line in (0, _TOP, _TOP + 1, 142, 143)] == [0, 1, 2, 143 - _TOP, 0]
    assert [lines(line, 1) for line in (144, 153)] == [0, 0]
    assert [lines(100, 3, lcdc) for lcdc in (0xD1, 0x71)] == [0, 0]  # no window, no screen
    outside = dict.fromkeys(range(20, 30), (167, _TOP))
    assert lines(100, 2, changed=outside) == 100 - _TOP - 10
    assert lines(100, 2, changed=dict.fromkeys(range(20, 100), (39, 255))) == 100 - _TOP  # begun is begun
    assert lines(100, 2, changed={_TOP: (0x27, 0)}) == 0  # the line of its beginning was missed

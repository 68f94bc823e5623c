"""gym-retro's states in PyBoy: held against what gym-retro's own core did next, frame by frame."""

from __future__ import annotations

import gzip
import multiprocessing
import subprocess
import sys
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from async_wrappers.envs.gameboy.emulator import Console
from async_wrappers.envs.gameboy.gambatte import convert, is_gambatte, parse
from async_wrappers.envs.gameboy.states import Layout, unseal
from tests.worlds.gameboy import retro
from tests.worlds.gameboy.cartridge import BANK, RAM_BANK, READ_BANK, Code, cartridge, low_high, of_type

CARTRIDGES = retro.cartridges()


def memory_at_each_vertical_blank(console: Console) -> list[tuple[int, int, int]]:
    """Return a list that grows by what `retro.checked` says of the memory whenever a vertical blank begins."""
    seen: list[tuple[int, int, int]] = []

    def block(base: int, size: int) -> bytes:
        addresses = slice(base, base + size)
        return bytes(console.memory[(1, addresses) if console.color and base == 0xD000 else addresses])

    def remember(_: object) -> None:
        seen.append(retro.checked({base: block(base, size) for base, size in retro.MEMORY.items()}))

    console._pyboy.hook_register(0, 0x40, remember, None)
    return seen


def assert_plays_on_like(recorded: dict[str, np.ndarray], name: str) -> None:
    """Play on in PyBoy, and compare each frame with the recording.

    What the two emulators do differently: PyBoy's instructions read the divider up to 12 cycles early, so that it may
    be one less; and of interrupts that coincide, a processor that halts may notice one more.
    """
    console = Console(CARTRIDGES[name])
    console.load(recorded["state"].tobytes())
    seen = memory_at_each_vertical_blank(console)
    held = retro.held_buttons()
    for number, screen in enumerate(recorded["screens"]):
        console.frame(held[number + 1])
        assert zlib.crc32(console.rgb().tobytes()) == screen, f"the picture of frame {number} differs"
    console.stop()
    memories, dividers, loops = zip(*seen, strict=True)
    assert list(memories) == recorded["seen"][:, 0].tolist()
    early = recorded["seen"][:, 1] - np.array(dividers)
    assert set(early.tolist()) <= {0, 1}
    assert early.sum() <= retro.FRAMES * 20 / 256
    assert np.abs(recorded["seen"][:, 2] - np.array(loops)).max() <= ("busy" not in name)


@pytest.mark.parametrize("name", CARTRIDGES)
def test_300_frames_after_a_converted_state_have_the_screens_and_memory_of_gym_retro(name: str) -> None:
    recorded = retro.recording(name)
    assert len({tuple(frame) for frame in recorded["seen"].tolist()}) == retro.FRAMES  # they do tell frames apart
    assert_plays_on_like(recorded, name)


@pytest.mark.parametrize("name", CARTRIDGES)
def test_300_frames_agree_with_stable_retro_where_it_is_installed(name: str) -> None:
    pytest.importorskip("stable_retro", reason="stable-retro is not installed: pip install stable-retro")
    assert_plays_on_like(retro.record(CARTRIDGES[name], retro.held_buttons()[: retro.FRAMES]), name)


def test_the_converter_is_imported_when_a_state_needs_it_and_not_before() -> None:
    code = (
        "import sys; from async_wrappers.envs.gameboy.emulator import Console; "
        "from tests.worlds.gameboy.counter import counter_rom; "
        "console = Console(counter_rom()); console.boot(); console.load(console.save()); "
        "print('async_wrappers.envs.gameboy.gambatte' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[4], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(("name", "size"), [("dmg", 26_678), ("mbc3", 59_446), ("cgb", 84_022)])
def test_states_have_the_published_sizes(name: str, size: int) -> None:
    content = retro.recording(name)["state"].tobytes()
    assert is_gambatte(content)
    assert len(gzip.decompress(content)) == size


def test_a_state_is_read_packed_or_not() -> None:
    content = retro.recording("mbc3")["state"].tobytes()
    chunks = parse(content)
    assert parse(gzip.decompress(content)) == chunks
    assert len(chunks) == 113
    assert [len(chunks[label]) for label in ("vram", "wram", "sram", "hram", "pc", "a")] == [
        *(16_384, 8_192, 32_768, 512),
        *(2, 1),
    ]


@pytest.mark.parametrize("kept", [0, 1, 20, 700, -1, -8])
def test_a_packed_state_that_is_cut_off_is_refused(kept: int) -> None:
    content = retro.recording("dmg")["state"].tobytes()[:kept]
    console = Console(CARTRIDGES["dmg"])
    with pytest.raises(ValueError, match=r"(cut off|damaged|version none|must have version)"):
        console.load(content)


@pytest.mark.parametrize("kept", [2, 5, 100, 20_000, -1, -8])
def test_an_unpacked_state_that_is_cut_off_is_refused(kept: int) -> None:
    content = gzip.decompress(retro.recording("dmg")["state"].tobytes())[:kept]
    with pytest.raises(ValueError, match="cut off"):
        parse(content)


def test_a_gzip_of_something_else_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^the state is not one of gym-retro's Game Boy core"):
        parse(gzip.compress(b"a state of another emulator"))


@pytest.mark.parametrize(("state", "rom"), [("dmg", "mbc3"), ("mbc3", "dmg"), ("mbc3", "cgb"), ("cgb", "mbc3")])
def test_a_state_of_another_kind_of_cartridge_is_refused(state: str, rom: str) -> None:
    console = Console(CARTRIDGES[rom])
    with pytest.raises(ValueError, match=r"^the state is of another game: it has \d+ bytes of .* RAM"):
        console.load(retro.recording(state)["state"].tobytes())


def test_a_converted_state_holds_the_registers_and_banks_of_the_original() -> None:
    console = Console(CARTRIDGES["mbc3"])
    content = retro.recording("mbc3")["state"].tobytes()
    chunks = parse(content)
    console.load(content)
    memory = console.memory
    assert memory[0x4000] == 3  # the ROM bank that the game selected
    assert bytes(memory[2, 0xA006:0xA100]) == chunks["sram"][0x4006:0x4100]
    assert memory[0xC000] == chunks["wram"][0] + 1  # the rest of the vertical blank has run


@cache
def template(name: str) -> tuple[bytes, Layout]:
    """Return a state of PyBoy's own for a cartridge, and where its fields are."""
    console = Console(CARTRIDGES[name])
    console.boot()
    state, _ = unseal(console.save())
    return state, Layout(CARTRIDGES[name], state)


@pytest.mark.parametrize("ime", [0, 1])
@pytest.mark.parametrize("line", [0, 77, 143, 144, 153])
@pytest.mark.parametrize("dot", [0, 79, 80, 251, 252, 455])
def test_each_register_is_carried_over(ime: int, line: int, dot: int) -> None:
    own, layout = template("mbc3")
    high = bytearray(parse(retro.recording("mbc3")["state"].tobytes())["hram"])
    high[0x10F], high[0x140], high[0x141], high[0x145], high[0x104] = 0xE5, 0x93, 0xFF, line, 0xAB
    registers = {name: bytes((17 * number,)) for number, name in enumerate("abcdefhl", start=1)}
    chunks = {
        **parse(retro.recording("mbc3")["state"].tobytes()),
        **registers,
        **{"pc": b"\x12\x34", "sp": b"\xdf\xf0", "ime": bytes((ime,)), "halt": bytes((1 - ime,)), "hram": bytes(high)},
        **{"vcycles": (456 * line + dot).to_bytes(4, "big"), "cc": (70_000).to_bytes(4, "big")},
        **{"ldivup": (69_000).to_bytes(4, "big"), "sramon": b"\0", "rombank": b"\0\0"},
    }
    state = convert(chunks, layout, own)

    def number(name: str) -> int:
        return int.from_bytes(layout.read(state, name), "little")

    assert [number(name) for name in "abcdef"] == [17, 34, 51, 68, 85, 102]
    assert [number(name) for name in ("hl", "pc", "sp", "ime", "halted")] == [
        119 << 8 | 136,
        0x1234,
        0xDFF0,
        ime,
        1 - ime,
    ]
    assert [number(name) for name in ("if", "lcdc", "ly", "lyc", "clock")] == [5, 0x93, line, line, 456 * line + dot]
    assert number("div_counter") == (0xAB00 + 1000) & 0xFFFF
    assert number("div") == number("div_counter") >> 8
    assert [number(name) for name in ("rombank", "ram_enabled", "joypad", "oam_dma")] == [1, 0, 0x0F0F, 0]
    mode = 1 if line >= 144 else 2 if dot < 80 else 3 if dot < 252 else 0
    assert number("stat") == 0xFC | mode  # the line is that of LYC
    ends = {1: 456, 2: 80, 3: 252, 0: 456}[mode]
    following = {1: 1, 2: 3, 3: 0, 0: 1 if line == 143 else 2}[mode]
    assert [number("clock_target"), number("next_stat_mode")] == [456 * line + ends, following]


def test_a_screen_that_is_off_stays_off() -> None:
    own, layout = template("dmg")
    chunks = dict(parse(retro.recording("dmg")["state"].tobytes()))
    high = bytearray(chunks["hram"])
    high[0x140] = 0x11
    chunks["hram"] = bytes(high)
    state = convert(chunks, layout, own)
    assert layout.read(state, "clock") + layout.read(state, "ly") == bytes(9)
    assert int.from_bytes(layout.read(state, "clock_target"), "little") == 70_224
    assert layout.read(state, "stat")[0] & 3 == 0


# States that point beyond the cartridge: played in another process, which they ended without a word


def played(folder: Path, rom: bytes, states: list[bytes], frames: int = 60) -> list[str]:
    """Load each state in a fork of this process and play; return a line of each: its banks, or why it was refused."""
    (folder / "rom.gb").write_bytes(rom)
    for number, state in enumerate(states):
        (folder / f"{number}.state").write_bytes(state)
    process = multiprocessing.get_context("fork").Process(target=play, args=(folder, len(states), frames))
    process.start()
    try:
        process.join(120)
        said = (folder / "said").read_text()
        assert process.exitcode == 0, f"the process ended with {process.exitcode} after {said!r}"
    finally:
        process.kill()
        process.join()
    return said.splitlines()


def play(folder: Path, states: int, frames: int) -> None:
    """Do what `played` asks of another process."""
    console = Console((folder / "rom.gb").read_bytes())
    with (folder / "said").open("w", buffering=1) as said:
        for number in range(states):
            try:
                console.load((folder / f"{number}.state").read_bytes())
            except ValueError as error:
                print(f"refused: {error}", file=said)
                continue
            for _ in range(frames):
                console.frame()
            print(console.memory[BANK], console.memory[RAM_BANK], file=said)


def test_states_are_altered_label_by_label() -> None:
    for name in ("dmg", "mbc3", "cgb"):
        assert retro.altered(name) == gzip.decompress(retro.recording(name)["state"].tobytes())


def test_a_cartridge_without_controller_plays_from_any_bank_number(tmp_path: Path) -> None:
    rom = cartridge("dmg", retro.ON, begin=retro.LYC, each_frame=READ_BANK)
    banks = (0xFFFF, 0, 1, 2, 0xFF, 0x100)  # FFFF as in the published states of Tetris
    states = [retro.altered("dmg", rombank=bank.to_bytes(2, "big"), rambank=b"\xff") for bank in banks]
    assert played(tmp_path, rom, states) == ["1 0"] * len(banks)


@pytest.mark.parametrize(("kind", "controller"), [("mbc3", 0x13), ("cgb", 0x13), ("mbc3", 0x1B), ("mbc3", 0x03)])
def test_a_bank_beyond_the_cartridge_is_counted_from_its_first(tmp_path: Path, kind: str, controller: int) -> None:
    banks = (0, 1, 2, 3, 4, 7, 0x7E, 0xFF, 0x102, 0xFFFF)  # of 4
    states = [retro.altered(kind, rombank=bank.to_bytes(2, "big")) for bank in banks]
    lines = played(tmp_path, of_type(CARTRIDGES[kind], controller), states)
    zero = 0 if controller == 0x1B else 1  # only MBC5 can select bank 0
    assert [int(line.split()[0]) for line in lines] == [zero, 1, 2, 3, 0, 3, 2, 3, 2, 3]


@pytest.mark.parametrize("controller", [0x13, 0x1B])
def test_a_bank_of_ram_beyond_the_cartridge_is_counted_from_its_first(tmp_path: Path, controller: int) -> None:
    ram = bytearray(0x8000)
    ram[5::0x2000] = b"\x50\x51\x52\x53"  # what the game reads in its next vertical blank
    banks = (0, 2, 3, 4, 7, 0x0F, 0x12, 0xFF)
    states = [retro.altered("mbc3", sram=bytes(ram), rambank=bytes((bank,))) for bank in banks]
    lines = played(tmp_path, of_type(CARTRIDGES["mbc3"], controller), states, frames=0)
    assert [int(line.split()[1]) - 0x50 for line in lines] == [0, 2, 3, 0, 3, 3, 2, 3]


def test_a_register_of_the_cartridges_clock_stays_selected() -> None:
    rom = of_type(CARTRIDGES["mbc3"], 0x10)
    console = Console(rom)
    console.boot()
    own, _ = unseal(console.save())
    layout = Layout(rom, own)
    for bank, expected in ((8, 8), (0x0C, 0x0C), (0x0D, 1)):
        state = convert(parse(retro.altered("mbc3", rambank=bytes((bank,)))), layout, own)
        assert layout.read(state, "rambank")[0] == expected


def test_a_bank_that_pyboys_states_cannot_hold_is_refused() -> None:
    rom = of_type(CARTRIDGES["mbc3"], 0x1B).ljust(512 * 0x4000, b"\0")
    console = Console(rom)
    console.boot()
    console.load(retro.altered("mbc3", rombank=b"\x00\xff"))
    with pytest.raises(ValueError, match=r"^the state has ROM bank 300, and PyBoy's states hold none above 255"):
        console.load(retro.altered("mbc3", rombank=(300).to_bytes(2, "big")))


@pytest.mark.parametrize("label", ["vram", "hram", "bgp", "objp", "a", "pc", "sp", "cc", "vcycles", "rombank", "hdma"])
@pytest.mark.parametrize("longer", [-1, 1])
def test_a_field_of_another_size_is_refused(label: str, longer: int) -> None:
    size = len(parse(retro.altered("cgb"))[label])
    content = retro.altered("cgb", **{label: bytes(size + longer)})
    with pytest.raises(ValueError, match=rf"^the state's {label} must have {size} bytes, got {size + longer}: "):
        Console(CARTRIDGES["cgb"]).load(content)


@pytest.mark.parametrize("cycles", [70_224, 0x7FFF_FFFF, 0xFFFF_FFFF])
def test_a_place_beyond_the_frame_is_refused(cycles: int) -> None:
    content = retro.altered("mbc3", vcycles=cycles.to_bytes(4, "big"))
    with pytest.raises(ValueError, match=rf"^the state's vcycles must be below 70224, .*, got {cycles}: "):
        Console(CARTRIDGES["mbc3"]).load(content)


SCALARS = ("rombank", "rambank", "sramon", "rambmod", "vcycles", "cc", "ldivup", "hdma", "dmasrc", "dmadst", "halt")
REGISTERS = ("a", "b", "c", "d", "e", "f", "h", "l", "pc", "sp", "ime")


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(["dmg", "mbc3", "cgb"]), st.data())
def test_a_converted_state_points_at_nothing_that_is_not_there(name: str, data: Any) -> None:
    own, layout = template(name)
    known = parse(retro.altered(name))
    changed = data.draw(st.sets(st.sampled_from([*SCALARS, *REGISTERS])))
    drawn = {label: data.draw(st.binary(min_size=len(known[label]), max_size=len(known[label]))) for label in changed}
    high = bytearray(known["hram"])
    for address, value in data.draw(st.dictionaries(st.integers(0x100, 0x1FF), st.integers(0, 255))).items():
        high[address] = value
    try:
        state = convert({**known, **drawn, "hram": bytes(high)}, layout, own)
    except ValueError as error:
        assert "vcycles must be below 70224" in str(error)
        assert int.from_bytes(drawn["vcycles"], "big") >= 70_224
        return
    layout.check(state)
    assert len(state) == layout.length
    line, clock, target = (int.from_bytes(layout.read(state, at), "little") for at in ("ly", "clock", "clock_target"))
    assert line < 154
    assert clock <= target <= 70_224


def reading(kind: str) -> tuple[bytes, int]:
    """Return a cartridge with a loop, at the address returned, that reads and writes in all of the banks."""
    rom, loop = bytearray(cartridge(kind)), Code(0x3C00)
    for address in (0x4000, 0x7FFF, 0x8000, 0x9FFF, 0xA000, 0xBFFF, 0xC000, 0xD000, 0xDFFF, 0xFE00, 0xFE9F):
        loop(0xFA, *low_high(address))
        if address >= 0x8000:
            loop(0xEA, *low_high(address))
    for register in range(0x40, 0x80):
        loop(0xF0, register)
    loop(0xC3, *low_high(loop.origin))
    rom[0x3C00 : 0x3C00 + len(loop.bytes)] = loop.finished()
    return bytes(rom), loop.origin


@pytest.mark.parametrize("kind", ["dmg", "mbc3", "cgb"])
def test_no_state_ends_the_process(tmp_path: Path, kind: str) -> None:
    rom, loop = reading(kind)
    known, generator = parse(retro.altered(kind)), np.random.default_rng(0)
    states = []
    for number in range(30):
        changed = {label: generator.bytes(len(chunk)) for label, chunk in known.items() if generator.random() < 0.5}
        high = bytearray(generator.bytes(0x200) if number % 2 else known["hram"])
        high[0x1FF] = 0  # no interrupts: the processor stays in the loop, since an opcode that is none hangs PyBoy
        changed |= {"hram": bytes(high), "pc": loop.to_bytes(2, "big"), "ime": b"\0", "halt": b"\0"}
        if number % 3:
            changed["vcycles"] = int(generator.integers(70_224)).to_bytes(4, "big")
        states.append(retro.altered(kind, **changed))
    lines = played(tmp_path, rom, states)
    assert len(lines) == len(states)
    refused = [line for line in lines if line.startswith("refused: ")]
    assert all("vcycles must be below" in line for line in refused)
    assert len(refused) <= len(states) / 3

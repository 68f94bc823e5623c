"""gym-retro's states in PyBoy: held against what gym-retro's own core did next, frame by frame."""

from __future__ import annotations

import gzip
import zlib

import numpy as np
import pytest

from async_wrappers.envs.gameboy.console import Console
from async_wrappers.envs.gameboy.gambatte import convert, is_gambatte, parse
from async_wrappers.envs.gameboy.picture import rgb
from async_wrappers.envs.gameboy.states import Layout, unseal
from tests.async_wrappers.gameboy import retro

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
        assert zlib.crc32(rgb(console).tobytes()) == screen, f"the picture of frame {number} differs"
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


@pytest.mark.parametrize("ime", [0, 1])
@pytest.mark.parametrize("line", [0, 77, 143, 144, 153])
@pytest.mark.parametrize("dot", [0, 79, 80, 251, 252, 455])
def test_each_register_is_carried_over(ime: int, line: int, dot: int) -> None:
    rom = CARTRIDGES["mbc3"]
    console = Console(rom)
    console.boot()
    template, _ = unseal(console.save())
    layout = Layout(rom, template)
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
    state = convert(chunks, layout, template)

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
    rom = CARTRIDGES["dmg"]
    console = Console(rom)
    chunks = dict(parse(retro.recording("dmg")["state"].tobytes()))
    high = bytearray(chunks["hram"])
    high[0x140] = 0x11
    chunks["hram"] = bytes(high)
    console.boot()
    template, _ = unseal(console.save())
    layout = Layout(rom, template)
    state = convert(chunks, layout, template)
    assert [int.from_bytes(layout.read(state, name), "little") for name in ("clock", "ly", "clock_target")] == [
        0,
        0,
        70_224,
    ]
    assert layout.read(state, "stat")[0] & 3 == 0

"""gym-retro's states in PyBoy: held against what gym-retro's own core did next, frame by frame."""

from __future__ import annotations

import gzip
import zlib

import numpy as np
import pytest

from async_wrappers.envs.gameboy.console import Console
from async_wrappers.envs.gameboy.gambatte import is_gambatte, parse
from async_wrappers.envs.gameboy.picture import rgb
from tests.async_wrappers.gameboy import retro

CARTRIDGES = retro.cartridges()


def memory_at_each_vertical_blank(console: Console) -> list[tuple[int, int]]:
    """Return a list that grows by what `retro.checked` says of the memory whenever a vertical blank begins."""
    seen: list[tuple[int, int]] = []

    def block(base: int, size: int) -> bytes:
        addresses = slice(base, base + size)
        return bytes(console.memory[(1, addresses) if console.color and base == 0xD000 else addresses])

    def remember(_: object) -> None:
        seen.append(retro.checked({base: block(base, size) for base, size in retro.MEMORY.items()}))

    console._pyboy.hook_register(0, 0x40, remember, None)
    return seen


def assert_plays_on_like(recorded: dict[str, np.ndarray], rom: bytes) -> np.ndarray:
    """Play on in PyBoy, compare, and return by how much the divider's register differed on each frame."""
    console = Console(rom)
    console.load(recorded["state"].tobytes())
    seen = memory_at_each_vertical_blank(console)
    held = retro.held_buttons()
    for number, screen in enumerate(recorded["screens"]):
        console.frame(held[number + 1])
        assert zlib.crc32(rgb(console).tobytes()) == screen, f"the picture of frame {number} differs"
    assert [memory for memory, _ in seen] == recorded["memories"].tolist()
    console.stop()
    return np.array([divider for _, divider in seen]) - recorded["dividers"]


@pytest.mark.parametrize("name", CARTRIDGES)
def test_300_frames_after_a_converted_state_have_the_screens_and_memory_of_gym_retro(name: str) -> None:
    recorded = retro.recording(name)
    assert len(set(recorded["memories"].tolist())) == retro.FRAMES  # they do tell frames apart
    dividers = assert_plays_on_like(recorded, CARTRIDGES[name])
    if name == "cgb_busy":  # four cycles between the two emulators, where a processor in color mode never halts
        assert set(dividers.tolist()) <= {0, -1}
        assert np.count_nonzero(dividers) < 0.05 * retro.FRAMES
    else:
        assert not dividers.any()


@pytest.mark.parametrize("name", ["dmg_busy", "cgb_busy"])
def test_300_frames_agree_with_stable_retro_where_it_is_installed(name: str) -> None:
    pytest.importorskip("stable_retro", reason="stable-retro is not installed: pip install stable-retro")
    assert_plays_on_like(retro.record(CARTRIDGES[name], retro.held_buttons()[: retro.FRAMES]), CARTRIDGES[name])


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

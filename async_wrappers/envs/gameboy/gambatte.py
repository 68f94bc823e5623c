"""Save states of gym-retro's Game Boy core (Gambatte), and how they become PyBoy's.

A gym-retro ``.state`` is the gzip of what Gambatte's libretro core serialises: two bytes of version (00 01), three of a
snapshot's length (big endian, always 0), then chunks sorted by label: the label and a NUL, three bytes of length (big
endian), the data. Numbers in the data are big endian. Such a state was taken when a frame was complete: at the
beginning of the vertical blank, line 144.

The conversion overwrites the fields of a state that PyBoy wrote for the same ROM (`convert`). What has no counterpart
keeps the template's value: the phases of the sound channels, a serial transfer on its way, the picture (the next frame
draws it).
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping, Sequence

from async_wrappers.envs.gameboy.states import IDLE, Layout

Chunks = Mapping[str, bytes]
Fields = dict[str, int | bytes]

_GZIP = b"\x1f\x8b"
_VERSION = b"\x00\x01"
_REGISTERS = ("a", "b", "c", "d", "e", "f")
# The sizes of the converted parts in bytes; None: the cartridge decides.
_SIZES: Mapping[str, int | None] = {
    **dict.fromkeys((*_REGISTERS, "h", "l", "halt", "ime", "sramon", "rambank", "rambmod", "hdma"), 1),
    **dict.fromkeys(("pc", "sp", "rombank", "dmasrc", "dmadst"), 2),
    **dict.fromkeys(("cc", "ldivup", "vcycles"), 4),
    **{"vram": 0x4000, "hram": 0x200, "bgp": 64, "objp": 64, "wram": None, "sram": None},
}
# What a Game Boy keeps at FE00 to FFFF (``hram``) and PyBoy in fields of their own, by the offset of the first.
_REGISTERS_AT: Mapping[int, tuple[str, ...]] = {
    **{0x105: ("tima", "tma"), 0x140: ("lcdc",), 0x142: ("scy", "scx"), 0x145: ("lyc",)},
    **{0x147: ("bgp", "obp0", "obp1", "wy", "wx"), 0x1FF: ("ie",)},
}
_COLOUR_REGISTERS_AT = {0x14D: ("key1",), 0x151: ("hdma1", "hdma2", "hdma3", "hdma4", "hdma5")}
_LINE, _LINES, _VISIBLE = 456, 154, 144  # cycles of a line; lines of a frame; of these, seen
# Cartridges by byte 147h of the header: no controller, MBC1, MBC3 with a clock, MBC5.
_PLAIN, _MBC1, _CLOCK, _MBC5 = (0x00, 0x08, 0x09), (0x01, 0x02, 0x03), (0x0F, 0x10), range(0x19, 0x1F)


def is_gambatte(content: bytes) -> bool:
    """Return whether a file looks like a state of gym-retro, packed or not."""
    return content.startswith((_GZIP, _VERSION))


def parse(content: bytes) -> Chunks:
    """Return the data of each label.

    Raises:
        ValueError: The state is cut off, damaged, or of another emulator.
    """
    data = content
    if content.startswith(_GZIP):
        try:
            data = gzip.decompress(content)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"the state is cut off or damaged ({error}): take a complete copy") from None
    if not data.startswith(_VERSION):
        raise ValueError("the state is not one of gym-retro's Game Boy core: give one that it has saved for this game")
    chunks: dict[str, bytes] = {}
    at = 5 + int.from_bytes(data[2:5], "big")
    while at < len(data):
        end = data.find(b"\0", at)
        begin = end + 4
        size = int.from_bytes(data[end + 1 : begin], "big")
        if end < 0 or begin + size > len(data):
            raise ValueError(f"the state is cut off after {len(data)} bytes: take a complete copy")
        chunks[data[at:end].decode("latin-1")] = data[begin : begin + size]
        at = begin + size
    missing = [label for label in _SIZES if label not in chunks]
    if missing:
        raise ValueError(
            f"the state lacks {', '.join(missing)}: it is cut off, or not one of gym-retro's Game Boy core"
        )
    for label, expected in _SIZES.items():
        if expected is not None and (found := len(chunks[label])) != expected:
            raise ValueError(f"the state's {label} must have {expected} bytes, got {found}: take a complete copy")
    return chunks


def convert(chunks: Chunks, layout: Layout, template: bytes) -> bytes:
    """Return a PyBoy state with the contents of a Gambatte state.

    After it is loaded, the first frame of PyBoy is short: it ends where PyBoy's frames end, after the vertical blank
    whose beginning gym-retro's end at.

    Args:
        chunks: The Gambatte state, from `parse`.
        layout: The layout of PyBoy's states for this ROM.
        template: A state that PyBoy wrote for this ROM, after its boot.

    Raises:
        ValueError: The state is of another game: its memories have other sizes than this cartridge's. Or it is damaged.
    """
    expectations = ("wram", layout.size("wram"), "work RAM"), ("sram", layout.cartridge_ram, "cartridge RAM")
    for label, expected, what in expectations:
        if (found := len(chunks[label])) != expected:
            raise ValueError(
                f"the state is of another game: it has {found} bytes of {what}, this ROM's cartridge {expected}; give "
                "the ROM that the state was made with"
            )
    fields = {**IDLE, **_processor(chunks), **_memories(chunks), **_picture(chunks), **_timer(chunks)}
    fields |= _banks(chunks, layout)
    if layout.cgb:
        fields |= _colour(chunks)
    if chunks["sram"]:
        fields["cartridge_ram"] = chunks["sram"]
    return layout.overwrite(template, fields)


def _number(data: bytes) -> int:
    return int.from_bytes(data, "big")


def _registers(chunks: Chunks, table: Mapping[int, Sequence[str]]) -> Fields:
    """Return the registers of a table, each of them a byte that both emulators hold alike."""
    hram = chunks["hram"]
    return {name: hram[at + offset] for at, names in table.items() for offset, name in enumerate(names)}


def _processor(chunks: Chunks) -> Fields:
    return {
        **{register: chunks[register] for register in _REGISTERS},
        "hl": chunks["l"] + chunks["h"],
        **{"sp": _number(chunks["sp"]), "pc": _number(chunks["pc"])},
        **{"ime": int(_number(chunks["ime"]) != 0), "halted": int(_number(chunks["halt"]) != 0)},
        "if": chunks["hram"][0x10F] & 0x1F,
        "joypad": b"\x0f\x0f",  # no button held
    }


def _memories(chunks: Chunks) -> Fields:
    hram = chunks["hram"]
    return {
        **{"vram0": chunks["vram"][:0x2000], "wram": chunks["wram"]},
        **{"oam": hram[:0xA0], "fea0": hram[0xA0:0x100], "io": hram[0x100:0x14C], "hram": hram[0x180:0x1FF]},
    }


def _banks(chunks: Chunks, layout: Layout) -> Fields:
    """Return the banks that the cartridge's controller has selected.

    Gambatte cuts a number down to the cartridge's banks when it uses it, PyBoy when it is written, so that a larger one
    in a state has it read beyond the cartridge. Without a controller the numbers mean nothing: the published states of
    Tetris have ROM bank FFFF.
    """
    if layout.controller in _PLAIN:
        return {"rombank": 1, "rambank": 0}
    rombank, rambank, mode = (_number(chunks[label]) for label in ("rombank", "rambank", "rambmod"))
    if layout.controller not in _MBC5:
        rombank = rombank or 1
    rombank %= layout.rom_banks
    if rombank > 0xFF:
        raise ValueError(
            f"the state has ROM bank {rombank}, and PyBoy's states hold none above 255: give a state from where the "
            "game uses another bank"
        )
    fields: Fields = {"rombank": rombank, "ram_enabled": int(_number(chunks["sramon"]) != 0)}
    if layout.controller in _MBC1:
        upper = rambank if mode else rombank >> 5
        fields |= {"memory_model": int(mode != 0), "mapper": bytes((rombank & 0x1F, upper & 3))}
    clock = layout.controller in _CLOCK and 8 <= rambank <= 0x0C  # a register of the clock in the place of RAM
    return fields | {"rambank": rambank if clock else rambank % (layout.size("cartridge_ram") // 0x2000)}


def _picture(chunks: Chunks) -> Fields:
    hram = chunks["hram"]
    lcdc, lyc, wy, wx = hram[0x140], hram[0x145], hram[0x14A], hram[0x14B]
    clock = _number(chunks["vcycles"]) if lcdc & 0x80 else 0
    if clock >= _LINE * _LINES:
        raise ValueError(
            f"the state's vcycles must be below {_LINE * _LINES}, the cycles of a frame, got {clock}: it is damaged; "
            "take another copy"
        )
    line = clock // _LINE
    mode, next_mode, target = _lcd_phase(clock) if lcdc & 0x80 else (0, 2, _LINE * _LINES)
    return {
        **_registers(chunks, _REGISTERS_AT),
        **{"stat": 0x80 | hram[0x141] & 0x78 | mode | (line == lyc) << 2, "ly": line},
        "window_active": int(wy <= line < _VISIBLE),
        "scanlines": bytes((hram[0x143], hram[0x142], wx, wy, lcdc & 0x10)) * _VISIBLE,
        **{"clock": clock, "clock_target": target, "next_stat_mode": next_mode},
    }


def _lcd_phase(clock: int) -> tuple[int, int, int]:
    """Return the LCD's mode at a cycle of the frame, the mode after it, and the cycle at which that begins."""
    line, cycle = divmod(clock, _LINE)
    begin = line * _LINE
    if line >= _VISIBLE:
        return 1, 1, begin + _LINE
    if cycle < 80:
        return 2, 3, begin + 80
    if cycle < 252:
        return 3, 0, begin + 252
    return 0, 1 if line == _VISIBLE - 1 else 2, begin + _LINE


def _timer(chunks: Chunks) -> Fields:
    hram = chunks["hram"]
    counter = (hram[0x104] << 8) + _number(chunks["cc"]) - _number(chunks["ldivup"]) & 0xFFFF
    return {
        **{"div": counter >> 8, "div_counter": counter, "tac": hram[0x107] & 7, "tima_reload": 0, "tima_counter": 0},
        "timer_to_interrupt": 4,  # at once: PyBoy then works it out
    }


def _colour(chunks: Chunks) -> Fields:
    hram = chunks["hram"]
    double = hram[0x14D] >> 7
    return {
        **_registers(chunks, _COLOUR_REGISTERS_AT),
        **{"vram1": chunks["vram"][0x2000:], "wram_select": hram[0x170] & 7, "vbk": hram[0x14F] & 1},
        **{"bcps": _palette_index(hram[0x168]), "bcpd": chunks["bgp"]},
        **{"ocps": _palette_index(hram[0x16A]), "ocpd": chunks["objp"]},
        **{"double_speed": double, "speed_shift": double},
        "hdma_active": int(_number(chunks["hdma"]) != 0),
        "hdma_source": _number(chunks["dmasrc"]) & 0xFFF0,
        "hdma_target": 0x8000 | _number(chunks["dmadst"]) & 0x1FF0,
    }


def _palette_index(value: int) -> bytes:
    """Return PyBoy's palette index register: the value, whether it counts up, the colour's number, its upper byte."""
    return bytes((value, value >> 7, (value & 0x3F) >> 1, value & 1))

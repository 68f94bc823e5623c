"""Save states of PyBoy: where each field lies, and a trailer that says of which ROM a state is.

PyBoy's own states name neither the game nor, beyond one number, the release that wrote them, and a wrong one is loaded
without a word. So a state that this package writes is PyBoy's state followed by a trailer (PyBoy ignores it, so PyBoy
itself loads such a file too), and one without it is taken only by the converter, for a ROM that the user names.

Layout: PyBoy 2.8.1, `Motherboard.save_state` and what it calls. Numbers are little endian.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass

__all__ = ["STATE_VERSION", "Layout", "Origin", "seal", "unseal"]

STATE_VERSION = 29  # of PyBoy 2.8.1: other releases write other fields under other numbers
PYBOY = "2.8.1"
MAGIC = b"async_wrappers Game Boy state 1\n"

_SCREEN = 144 * 160 * 5  # a pixel: 32 bits of colour, 8 of attributes
_TONE = 9 + 6 * 8 + 3
_CHANNELS = (_TONE + 3 + 4 * 8 + 2 + 8) + _TONE + (16 + 7 + 4 * 8 + 1 + 8 + 2 + 8) + (9 + 10 * 8 + 1)
_MOST_RAM_BANKS = 16  # PyBoy has memory for them, whatever the cartridge has
_RAM_BANKS = {0: 1, 1: 1, 2: 1, 3: 4, 4: 16, 5: 8}  # of 8 KiB, by the header's byte 149h; PyBoy has at least one


class Layout:
    """Where each field of a PyBoy state lies, for one cartridge.

    Args:
        rom: The ROM; its header decides which fields there are.
        state: A state that PyBoy has just written for this ROM.

    Raises:
        ValueError: The state is of another version, or its length is not that of this layout.
    """

    def __init__(self, rom: bytes, state: bytes) -> None:
        """See the class."""
        if not state or state[0] != STATE_VERSION:
            version = state[0] if state else "none"
            raise ValueError(
                f"a PyBoy state must have version {STATE_VERSION} (PyBoy {PYBOY}), got version {version}: states do "
                f"not survive other releases of PyBoy, so make it again with pyboy=={PYBOY}, or convert gym-retro's"
            )
        self.cgb = bool(rom[0x143] & 0x80)
        self.controller = rom[0x147]
        self.rom_banks = len(rom) // 0x4000
        self.cartridge_ram = 0x2000 * _RAM_BANKS.get(rom[0x149], 0) if rom[0x149] else 0  # bytes that it really has
        self._at: dict[str, tuple[int, int]] = {}  # first byte, byte after the last
        begin = 0
        for name, size in self._fields(rom, state):
            self._at[name] = begin, begin + size
            begin += size
        self.length = begin
        if len(state) != begin:
            raise ValueError(
                f"a PyBoy state of this cartridge must have {begin} bytes, got {len(state)}: it is cut off, or of "
                "another game; make it again"
            )

    def size(self, name: str) -> int:
        """Return the bytes of a field."""
        begin, end = self._at[name]
        return end - begin

    def read(self, state: bytes | bytearray, name: str) -> bytes:
        """Return the bytes of a field."""
        return bytes(state[slice(*self._at[name])])

    def write(self, state: bytearray, name: str, value: int | bytes) -> None:
        """Overwrite a field, with bytes or with a number."""
        size = self.size(name)
        content = value.to_bytes(size, "little") if isinstance(value, int) else bytes(value)
        if len(content) != size:
            raise ValueError(f"field {name} must have {size} bytes, got {len(content)}")
        state[slice(*self._at[name])] = content

    def check(self, state: bytes) -> None:
        """See that PyBoy, which does not look, finds what it is pointed at: else it reads and writes beside it.

        Raises:
            ValueError: A bank, line or colour lies beyond the machine's.
        """
        limits = {"rombank": self.rom_banks, "rambank": _MOST_RAM_BANKS, "wram_select": 8}
        lines = 154 if self.read(state, "stat")[0] & 3 == 1 else 144
        found = {name: (self.read(state, name)[0], limit) for name, limit in {**limits, "ly": lines}.items()}
        if self.cgb:
            found |= {name: (self.read(state, name)[2], 32) for name in ("bcps", "ocps")}
        for name, (value, limit) in found.items():
            if value >= limit:
                raise ValueError(
                    f"the state's {name} must be below {limit} on this cartridge, got {value}: it is damaged, or of "
                    "another game; make it again"
                )

    def _fields(self, rom: bytes, state: bytes) -> Iterator[tuple[str, int]]:
        yield from _each("version bootrom_enabled key0 key1 double_speed cgb")
        if self.cgb:
            yield from _each("hdma1 hdma2 hdma3 hdma4 hdma5 hdma_active")
            yield from _each("hdma_source hdma_target", 2)
        yield from _each("a f b c d e")
        yield from _each("hl sp pc", 2)
        yield from _each("ime ei_delay halted stopped ie interrupt_queued if")
        yield "cycles", 8
        yield from (("oam_dma", 4), ("oam_dma_start", 8))
        yield from (("vram0", 0x2000), ("oam", 160))
        yield from _each("lcdc bgp obp0 obp1 stat ly lyc scy scx wy wx object_priority")
        yield "scanlines", 144 * 5
        yield from _each("lcd_cgb downgraded speed_shift frame_done first_frame lcd_reset")
        yield from _each("lcd_cycles clock clock_target", 8)
        yield from _each("next_stat_mode stat_transition")
        if self.cgb:
            yield from (("vram1", 0x2000), ("vbk", 1))
            yield from (("bcps", 4), ("bcpd", 64), ("ocps", 4), ("ocpd", 64))
        yield "sound", _sound(state, sum(self.size(name) for name in self._at))
        yield from (("screen", _SCREEN), ("window_active", 1))
        yield from (("wram", 0x8000 if self.cgb else 0x2000), ("fea0", 0x60), ("io", 0x4C), ("hram", 0x7F))
        yield "wram_select", 1
        yield from (("div", 1), ("tima", 1), ("div_counter", 2), ("tima_counter", 2))
        yield from _each("tma tac tima_reload")
        yield from _each("timer_cycles timer_to_interrupt", 8)
        yield from _each("rombank rambank ram_enabled memory_model")
        yield "cartridge_ram", 0x2000 * _RAM_BANKS.get(rom[0x149], 1)
        yield "mapper", _mapper(rom[0x147])
        yield from (("joypad", 2), ("serial", 4 + 4 * 8), ("sgb", 11 + 0x2000 + 0x800 + 0x80))


def _each(names: str, size: int = 1) -> Iterator[tuple[str, int]]:
    return ((name, size) for name in names.split())


def _sound(state: bytes, begin: int) -> int:
    """Return the size of the sound's fields, which hold a buffer as long as the sample rate says."""
    samples = int.from_bytes(state[begin + 8 : begin + 16], "little")
    return 3 * 8 + 2 * (samples + 1) + 1 + 3 * 8 + 4 * 8 + 3 + 8 + 1 + _CHANNELS


def _mapper(kind: int) -> int:
    """Return the size of what the cartridge's controller adds: a clock, MBC1's registers, MBC5's motor."""
    clock = {0x0F: 33, 0x10: 33}.get(kind, 0)
    return clock + (2 if kind in (1, 2, 3) else 0) + {0x19: 1, 0x1A: 1, 0x1B: 1, 0x1C: 2, 0x1D: 2, 0x1E: 2}.get(kind, 0)


@dataclass(frozen=True)
class Origin:
    """What a state was made with.

    Args:
        rom_sha256: The SHA-256 of its ROM.
        sound: Whether sound was emulated.
        pyboy: The release of PyBoy.
    """

    rom_sha256: str
    sound: bool
    pyboy: str = PYBOY


def seal(state: bytes, origin: Origin) -> bytes:
    """Return a PyBoy state with its trailer: JSON of its `origin`, length and CRC-32, the JSON's length, and a mark."""
    trailer = json.dumps({**asdict(origin), "length": len(state), "crc32": zlib.crc32(state)}).encode()
    return state + trailer + len(trailer).to_bytes(4, "little") + MAGIC


def unseal(content: bytes) -> tuple[bytes, Origin] | None:
    """Return the PyBoy state and its origin, or None if there is no trailer.

    Raises:
        ValueError: The state is damaged.
    """
    if not content.endswith(MAGIC):
        return None
    end = len(content) - len(MAGIC) - 4
    begin = end - int.from_bytes(content[end : end + 4], "little")
    state = content[:begin]
    trailer = json.loads(content[begin:end])
    if trailer.pop("length") != len(state) or trailer.pop("crc32") != zlib.crc32(state):
        raise ValueError("the state is damaged (its checksum is wrong): make it again")
    return state, Origin(**trailer)

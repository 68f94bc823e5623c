"""Save states of PyBoy: where each field lies, a trailer that names a state's ROM, and the parts that states lack.

PyBoy's own states name neither the game nor, beyond one number, the release that wrote them, and a wrong one is loaded
without a word. So a state that this package writes is PyBoy's state followed by a trailer (PyBoy ignores it, so PyBoy
itself loads such a file too), and one without it is taken only by the converter, for a ROM that the user names.

Layout: PyBoy 2.8.1, `Motherboard.save_state` and the functions that it calls. Numbers are little endian.

What no state holds is the window layer's line counter: it counts the lines that show the window, and begins anew with
each frame. PyBoy's is 0 in a new emulator, the number of the last window line while a frame is drawn, and -1 once line
143 is. So the first picture after a load would go on from the picture drawn before: in a new emulator the window is
one line too far down, and after a frame that was cut short by some lines. Hence another state is loaded first
(`prelude`), and a frame or two of it drawn, which leaves the counter where the state needs it. Its program clears two
more flags that states lack, which otherwise stay as the last episode left them: one of HALT after EI, one of the
screen's status register.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

STATE_VERSION = 29  # of PyBoy 2.8.1: other releases write other fields under other numbers
PYBOY = "2.8.1"
MAGIC = b"async_wrappers Game Boy state 1\n"

_SCREEN = 144 * 160 * 5  # a pixel: 32 bits of colour, 8 of attributes
_TONE = 9 + 6 * 8 + 3
_CHANNELS = (_TONE + 3 + 4 * 8 + 2 + 8) + _TONE + (16 + 7 + 4 * 8 + 1 + 8 + 2 + 8) + (9 + 10 * 8 + 1)
_MOST_RAM_BANKS = 16  # PyBoy has memory for them with any cartridge
_RAM_BANKS = {0: 1, 1: 1, 2: 1, 3: 4, 4: 16, 5: 8}  # of 8 KiB, by the header's byte 149h; PyBoy has at least one
# Bytes that the cartridge's controller adds, by the header's byte 147h: MBC1's registers, a clock, MBC5's, its motor.
_MAPPERS = (((1, 2, 3), 2), ((0x0F, 0x10), 33), ((0x19, 0x1A, 0x1B), 1), ((0x1C, 0x1D, 0x1E), 2))
_MAPPER = {kind: size for kinds, size in _MAPPERS for kind in kinds}

# Fields of a machine in which nothing is under way: no boot, no interrupt, no transfer, no change of the screen's mode.
IDLE = dict.fromkeys(["bootrom_enabled", "ei_delay", "stopped", "interrupt_queued", "oam_dma"], 0)
IDLE |= dict.fromkeys(["stat_transition", "frame_done", "first_frame", "lcd_reset"], 0)
_VISIBLE_LINES, _COLUMNS = 144, 160
_LCD_ON, _WINDOW_ON = 0x80, 0x20  # of LCDC
_PROGRAM = 0xFF80  # where high RAM begins


class Layout:
    """Where each field of a PyBoy state lies, for one cartridge.

    Args:
        rom: The ROM; its header decides which fields there are.
        state: A state that PyBoy has just written for this ROM.

    Raises:
        ValueError: The state is of another version, or its length is not that of this layout.
    """

    def __init__(self, rom: bytes, state: bytes) -> None:
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
        self._at: dict[str, slice] = {}
        self.length = 0
        for name, size in self._fields(rom, state):
            self._at[name] = slice(self.length, self.length + size)
            self.length += size
        if len(state) != self.length:
            raise ValueError(
                f"a PyBoy state of this cartridge must have {self.length} bytes, got {len(state)}: it is cut off, or "
                "of another game; make it again"
            )

    def size(self, name: str) -> int:
        """Return the bytes of a field."""
        at = self._at[name]
        return int(at.stop - at.start)

    def read(self, state: bytes, name: str) -> bytes:
        """Return the bytes of a field."""
        return state[self._at[name]]

    def overwrite(self, state: bytes, fields: Mapping[str, int | bytes]) -> bytes:
        """Return a state with other values of these fields, bytes or numbers."""
        changed = bytearray(state)
        for name, value in fields.items():
            size = self.size(name)
            content = value.to_bytes(size, "little") if isinstance(value, int) else value
            if len(content) != size:
                raise ValueError(f"field {name} must have {size} bytes, got {len(content)}")
            changed[self._at[name]] = content
        return bytes(changed)

    def check(self, state: bytes) -> None:
        """Check the addresses that PyBoy reads unchecked: with wrong ones it reads and writes elsewhere.

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
            yield from _each("hdma1 hdma2 hdma3 hdma4 hdma5 hdma_active hdma_source:2 hdma_target:2")
        yield from _each("a f b c d e hl:2 sp:2 pc:2 ime ei_delay halted stopped ie interrupt_queued if cycles:8")
        yield from _each("oam_dma:4 oam_dma_start:8 vram0:8192 oam:160")
        yield from _each("lcdc bgp obp0 obp1 stat ly lyc scy scx wy wx object_priority scanlines:720")
        yield from _each("lcd_cgb downgraded speed_shift frame_done first_frame lcd_reset")
        yield from _each("lcd_cycles:8 clock:8 clock_target:8 next_stat_mode stat_transition")
        if self.cgb:
            yield from _each("vram1:8192 vbk bcps:4 bcpd:64 ocps:4 ocpd:64")
        yield "sound", _sound(state, self.length)
        yield from (("screen", _SCREEN), ("window_active", 1), ("wram", 0x8000 if self.cgb else 0x2000))
        yield from _each("fea0:96 io:76 hram:127 wram_select div tima div_counter:2 tima_counter:2")
        yield from _each("tma tac tima_reload timer_cycles:8 timer_to_interrupt:8")
        yield from _each("rombank rambank ram_enabled memory_model")
        yield "cartridge_ram", 0x2000 * _RAM_BANKS.get(rom[0x149], 1)
        yield "mapper", _MAPPER.get(rom[0x147], 0)
        yield from (("joypad", 2), ("serial", 4 + 4 * 8), ("sgb", 11 + 0x2000 + 0x800 + 0x80))


def _each(names: str) -> Iterator[tuple[str, int]]:
    """Yield each field's name and size; ``name:size`` where it is not one byte."""
    for name, _, size in (field.partition(":") for field in names.split()):
        yield name, int(size or 1)


def _sound(state: bytes, begin: int) -> int:
    """Return the size of the sound's fields, which hold a buffer as long as the sample rate says."""
    samples = int.from_bytes(state[begin + 8 : begin + 16], "little")
    return 3 * 8 + 2 * (samples + 1) + 1 + 3 * 8 + 4 * 8 + 3 + 8 + 1 + _CHANNELS


@dataclass(frozen=True)
class Origin:
    """The emulator and ROM that a state was made with.

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


def window_lines(layout: Layout, state: bytes) -> int:
    """Return how many lines of the window are drawn already, in the frame in the middle of which a state was taken.

    0 for a state from between two frames, as almost all are. A state does not say whether the game switched the window
    on or off on the way down the screen: the window counts as it is at the end.
    """
    lcdc, line = (layout.read(state, name)[0] for name in ("lcdc", "ly"))
    drawn = line + (layout.read(state, "stat")[0] & 3 == 0)  # a line is drawn when its horizontal blank begins
    if not lcdc & _LCD_ON or not lcdc & _WINDOW_ON or drawn >= _VISIBLE_LINES:
        return 0
    scanlines = layout.read(state, "scanlines")
    lines, reached = 0, False
    for number in range(drawn):
        _, _, wx, wy, _ = scanlines[5 * number : 5 * number + 5]
        reached = reached or wy == number
        lines += reached and wx < _COLUMNS + 7
    return lines


def prelude(layout: Layout, state: bytes) -> tuple[bytes, int]:
    """Return the state to load before `state`, and how many frames of it to draw.

    It is `state` at the beginning of a frame, with a processor that waits. At the end of the frame the counter is -1.
    If `state` needs some lines of the window, that many are drawn of a second frame, and the screen is switched off.
    """
    lines = window_lines(layout, state)
    program = bytes((0xF0, 0x41))  # LDH A,(STAT)
    if lines:
        program += bytes((0xF0, 0x44, 0xFE, _VISIBLE_LINES, 0x20, 0xFA))  # until the vertical blank
        program += bytes((0xF0, 0x44, 0xFE, lines, 0x20, 0xFA))  # LDH A,(LY); CP lines; JR NZ, back
        program += bytes((0xAF, 0xE0, 0x40))  # XOR A; LDH (LCDC),A
    program += bytes((0x18, 0xFE))  # JR, to itself
    lcdc = layout.read(state, "lcdc")[0]
    fields: dict[str, int | bytes] = {
        **IDLE,
        **{"pc": _PROGRAM, "hram": program.ljust(layout.size("hram"), b"\0"), "ime": 0, "halted": 0},
        **{"ie": 1, "if": 1},  # an interrupt that is not served: noticing it clears the flag of HALT
        **{"lcdc": lcdc if lcdc & _LCD_ON else _LCD_ON, "stat": 0x82, "ly": 0},
        **{"clock": 0, "clock_target": 80, "next_stat_mode": 3},
    }
    if lines:
        fields |= {"lcdc": lcdc | _WINDOW_ON, "wy": 0, "wx": 7, "window_active": 1}
    if layout.cgb:
        fields["hdma_active"] = 0
    return layout.overwrite(state, fields), 2 if lines else 1

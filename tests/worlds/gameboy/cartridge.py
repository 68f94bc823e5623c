"""Cartridges for tests, written byte by byte: nothing of Nintendo's is in them, not even the logo of the header.

Each counts its frames, shows the buttons in its memory and on its screen, and does something of its own when a button
is held. With `kind` it is a plain cartridge of the first Game Boy, one with a bank controller and battery RAM (as
Pokemon Red), or one for the Game Boy Color (as Pokemon Yellow).
"""

from __future__ import annotations

from collections.abc import Mapping

FRAMES, BUTTONS, X, DIV, LOOPS, LINES, SCORE, END = 0xC000, 0xC002, 0xC007, 0xC008, 0xC010, 0xC048, 0xC0A0, 0xFFE1

# Of what the game keeps at BUTTONS.
BIT = {button: bit for bit, button in enumerate(("a", "b", "select", "start", "right", "left", "up", "down"))}
BANK, RAM_BANK = 0xC020, 0xC021  # where the game keeps a byte of the ROM bank, and of the bank of cartridge RAM
_HEADER = {"dmg": (0x00, 0x00, 0x00, 0x00), "mbc3": (0x00, 0x13, 0x01, 0x03), "cgb": (0x80, 0x13, 0x01, 0x03)}


class Code:
    """Machine code with labels: instructions are given as their bytes."""

    def __init__(self, origin: int) -> None:
        self.origin = origin
        self.bytes = bytearray()
        self._labels: dict[str, int] = {}
        self._jumps: list[tuple[int, str]] = []

    def __call__(self, *code: int) -> None:
        self.bytes += bytes(code)

    def label(self, name: str) -> None:
        self._labels[name] = len(self.bytes)

    def jump(self, opcode: int, name: str) -> None:
        """Emit a relative jump: 18 always, 20 not zero, 28 zero, 38 carry."""
        self(opcode, 0)
        self._jumps.append((len(self.bytes), name))

    def finished(self) -> bytes:
        for after, name in self._jumps:
            self.bytes[after - 1] = (self._labels[name] - after) & 0xFF
        return bytes(self.bytes)


def low_high(address: int) -> tuple[int, int]:
    return address & 0xFF, address >> 8


def store(address: int, value: int) -> bytes:
    """Return code that writes `value` at `address`."""
    return bytes((0x3E, value, 0xEA, *low_high(address)))


def add(address: int, value: int) -> bytes:
    """Return code that adds `value` to the byte at `address`."""
    return bytes((0xFA, *low_high(address), 0xC6, value & 0xFF, 0xEA, *low_high(address)))


# Code that keeps a byte of the ROM bank at BANK: the bank's number, in these cartridges.
READ_BANK = bytes((0xFA, 0x00, 0x40, 0xEA, *low_high(BANK)))


def of_type(rom: bytes, controller: int) -> bytes:
    """Return a ROM with another kind of bank controller in its header."""
    changed = bytearray(rom)
    changed[0x147] = controller
    changed[0x14D] = (rom[0x14D] + rom[0x147] - controller) & 0xFF
    return bytes(changed)


def add_score(points: int, address: int = SCORE) -> bytes:
    """Return code that adds `points` (below 100) to the six decimal digits at `address`, lowest first."""
    bcd = points // 10 << 4 | points % 10
    carry = (0xCE, 0x00, 0x27, 0x22)  # ADC 0; DAA; LD (HL+),A
    first = (0x21, *low_high(address), 0x7E, 0xC6, bcd, 0x27, 0x22)
    return bytes((*first, 0x7E, *carry, 0x7E, *carry))


def cartridge(
    kind: str = "dmg",
    on: Mapping[str, bytes] | None = None,
    begin: bytes = b"",
    each_frame: bytes = b"",
    busy: bool = False,
) -> bytes:
    """Return a ROM.

    Args:
        kind: ``"dmg"``, ``"mbc3"`` or ``"cgb"``.
        on: Code that runs once per frame while a button is held, by button.
        begin: Code that runs once, before the screen is switched on.
        each_frame: Code that runs once per frame, after that of the buttons.
        busy: Never halt, but count in a loop, so that the processor works all the time.
    """
    color, controller, rom_size, ram_size = _HEADER[kind]
    rom = bytearray(0x8000 << rom_size)
    rom[0x40:0x43] = (0xC3, 0x00, 0x04)  # the vertical blank: JP 0400
    rom[0x48:0x4F] = (0xE5, 0x21, *low_high(LINES), 0x34, 0xE1, 0xD9)  # a line, where switched on: count it
    rom[0x50] = 0xD9  # the timer: RETI
    rom[0x100:0x104] = (0x00, 0xC3, 0x50, 0x01)
    rom[0x134:0x13B] = b"COUNTER"
    rom[0x143], rom[0x147], rom[0x148], rom[0x149] = color, controller, rom_size, ram_size
    checksum = 0
    for byte in rom[0x134:0x14D]:
        checksum = (checksum - byte - 1) & 0xFF
    rom[0x14D] = checksum
    for bank in range(1, len(rom) // 0x4000):
        rom[bank * 0x4000 : bank * 0x4000 + 16] = bytes([bank] * 16)
    main, handler = _main(kind, begin, busy), _handler(kind, on or {}, each_frame)
    assert len(main) <= 0x400 - 0x150 and len(handler) <= 0x3000
    rom[0x150 : 0x150 + len(main)] = main
    rom[0x400 : 0x400 + len(handler)] = handler
    return bytes(rom)


def _main(kind: str, begin: bytes, busy: bool) -> bytes:
    code = Code(0x150)
    code(0x31, 0xFE, 0xFF)  # LD SP,FFFE
    code.label("wait")
    code(0xF0, 0x44, 0xFE, 0x90)  # until the vertical blank
    code.jump(0x20, "wait")
    code(0xAF, 0xE0, 0x40)  # the screen off
    _clear(code, 0xC000, 0xE000)
    _clear(code, 0x8000, 0xA000)
    code(0x21, 0x10, 0x80, 0x06, 0x10)  # tile 1: stripes
    code.label("tile")
    code(0x78, 0x22, 0x05)
    code.jump(0x20, "tile")
    code(0x21, 0x00, 0x98)  # a map of tiles 0 and 1
    code.label("map")
    code(0x7D, 0xCB, 0x3F, 0xAD, 0xE6, 0x01, 0x22, 0x7C, 0xFE, 0x9C)
    code.jump(0x20, "map")
    code(0x3E, 0xE4, 0xE0, 0x47)  # BGP
    if kind != "dmg":
        code(0x3E, 0x0A, 0xEA, 0x00, 0x00)  # cartridge RAM on
        code(0x3E, 0x02, 0xEA, 0x00, 0x40)  # its bank 2
        code(0x3E, 0x03, 0xEA, 0x00, 0x20)  # ROM bank 3
    if kind == "cgb":
        code(0x3E, 0x80, 0xE0, 0x68)
        for byte in (0xFF, 0x7F, 0x1F, 0x00, 0xE0, 0x03, 0x95, 0x4E):
            code(0x3E, byte, 0xE0, 0x69)
        code(0x3E, 0x03, 0xE0, 0x70)  # work RAM bank 3
    code(*begin)
    code(0xAF, 0xE0, 0x0F, 0x3E, 0x05, 0xE0, 0xFF)  # IF, IE: vertical blank and timer
    code(0x3E, 0x80, 0xE0, 0x06, 0x3E, 0x05, 0xE0, 0x07)  # TMA, TAC: every 128 * 16 cycles
    code(0x3E, 0x91, 0xE0, 0x40, 0xFB)  # the screen on; EI
    code.label("loop")
    if not busy:
        code(0x76, 0x00)  # HALT
    code(0x21, *low_high(LOOPS), 0x34)
    code.jump(0x20, "loop")
    code(0x23, 0x34)
    code.jump(0x18, "loop")
    return code.finished()


def _clear(code: Code, begin: int, end: int) -> None:
    name = f"clear {begin}"
    code(0x21, *low_high(begin))
    code.label(name)
    code(0xAF, 0x22, 0x7C, 0xFE, end >> 8)
    code.jump(0x20, name)


def _handler(kind: str, on: Mapping[str, bytes], each_frame: bytes) -> bytes:
    code = Code(0x400)
    code(0xF5, 0xC5, 0xE5)  # PUSH AF, BC, HL
    code(0x3E, 0x20, 0xE0, 0x00, 0xF0, 0x00, 0xF0, 0x00, 0x2F, 0xE6, 0x0F, 0xCB, 0x37, 0x47)  # directions
    code(0x3E, 0x10, 0xE0, 0x00, 0xF0, 0x00, 0xF0, 0x00, 0x2F, 0xE6, 0x0F, 0xB0, 0x47)  # buttons
    code(0xEA, *low_high(BUTTONS), 0x3E, 0x30, 0xE0, 0x00)
    code(0x21, *low_high(FRAMES), 0x34)
    code.jump(0x20, "counted")
    code(0x23, 0x34)
    code.label("counted")
    code(0xF0, 0x04, 0xEA, *low_high(DIV))
    for name, change in {"right": add(X, 1), "left": add(X, -1), **on}.items():
        code(0xCB, 0x40 | BIT[name] << 3)  # BIT n,B
        code(0xCA, *low_high(0x400 + len(code.bytes) + 3 + len(change)))  # JP Z, over it
        code(*change)
    code(0xFA, *low_high(X), 0xE0, 0x43)  # SCX
    if kind != "dmg":
        code(0xFA, 0x05, 0xA0, 0xEA, *low_high(RAM_BANK))  # a byte of cartridge RAM, read and written
        code(0xFA, *low_high(FRAMES), 0xEA, 0x05, 0xA0)
        code(*READ_BANK)
    if kind == "cgb":
        code(0xFA, 0x05, 0xD0, 0xEA, 0x22, 0xC0)  # a byte of the work RAM bank, read and written
        code(0xFA, *low_high(FRAMES), 0xEA, 0x05, 0xD0)
        code(0x3E, 0x86, 0xE0, 0x68, 0xFA, *low_high(FRAMES), 0xE0, 0x69)  # a colour that changes
    code(*each_frame)
    code(0xE1, 0xC1, 0xF1, 0xD9)  # POP; RETI
    return code.finished()

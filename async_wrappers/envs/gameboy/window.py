"""PyBoy's window line counter, which its save states do not hold.

The window layer has a line counter of its own: it counts the lines that show the window, and begins anew with each
frame. PyBoy's is 0 in a new emulator, the number of the last window line while a frame is drawn, and -1 once line 143
is. No state holds it, so the first picture after a load would go on from whatever was drawn before: in a new emulator
the window is one line too far down, and after a frame that was cut short by some lines.

So another state is loaded first (`prelude`), and a frame or two of it drawn, which leaves the counter where the state
needs it. Its program clears two more flags that states lack, which otherwise stay as the last episode left them: one of
HALT after EI, one of the screen's status register.
"""

from __future__ import annotations

from async_wrappers.envs.gameboy.states import Layout

__all__ = ["prelude", "window_lines"]

_VISIBLE_LINES, _COLUMNS = 144, 160
_LCD_ON, _WINDOW_ON = 0x80, 0x20  # of LCDC
_PROGRAM = 0xFF80  # where high RAM begins


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
        **{"pc": _PROGRAM, "hram": program.ljust(layout.size("hram"), b"\0"), "bootrom_enabled": 0},
        **{"ime": 0, "ei_delay": 0, "halted": 0, "stopped": 0, "interrupt_queued": 0},
        **{"ie": 1, "if": 1},  # an interrupt that is not served: noticing it clears the flag of HALT
        "oam_dma": bytes(layout.size("oam_dma")),
        **{"lcdc": lcdc if lcdc & _LCD_ON else _LCD_ON, "stat": 0x82, "ly": 0, "clock": 0, "clock_target": 80},
        **{"next_stat_mode": 3, "stat_transition": 0, "frame_done": 0, "first_frame": 0, "lcd_reset": 0},
    }
    if lines:
        fields |= {"lcdc": lcdc | _WINDOW_ON, "wy": 0, "wx": 7, "window_active": 1}
    if layout.cgb:
        fields["hdma_active"] = 0
    waiting = bytearray(state)
    for name, value in fields.items():
        layout.write(waiting, name, value)
    return bytes(waiting), 2 if lines else 1

"""One emulated Game Boy: frames, buttons, memory, screen and states, in memory alone.

PyBoy is given the ROM's bytes, not its path, so it neither reads nor writes files beside the ROM.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Collection
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from async_wrappers.envs.gameboy.states import Layout, Origin, prelude, seal, unseal
from async_wrappers.extras import extra, ignored_warnings

with extra("a Game Boy game", "gameboy"):
    import cv2

BUTTONS = ("a", "b", "select", "start", "up", "down", "left", "right")
# The four shades as gym-retro shows them (RGB565 without bit replication), so that grey values are the published ones.
_SHADES = (0xF8FCF8, 0xA8A8A8, 0x505450, 0x000000)
# gym-retro shows the Game Boy Color's 5 bits of r, g, b as (13 r + 2 g + b + 8) / 16, (3 g + b + 1) / 2 and
# (3 r + 2 g + 11 b + 8) / 16 in 5, 6 and 5 bits, all divisions rounded down; PyBoy as 8 r, 8 g, 8 b. What follows is
# exact: OpenCV rounds to the nearest, so a fraction is taken off first, and the low bits are cut off afterwards.
_LIGHT = np.array([[13 / 16, 2 / 16, 1 / 16, 3.75], [0, 3 / 4, 1 / 4, 1.5], [3 / 16, 2 / 16, 11 / 16, 3.75]])
_BITS = np.tile(np.array([0xF8, 0xFC, 0xF8], np.uint8), (144, 160, 1))
_BOOT_FRAMES = 200
_SMALLEST_ROM = 0x8000  # bytes


class Console:
    """A Game Boy with a cartridge in it, switched on.

    Args:
        rom: The cartridge's bytes; its header decides between Game Boy and Game Boy Color.
        sound: Emulate sound. Games play the same without it, except for one that waits for its sound registers.
        window: Show the screen in a window.

    Attributes:
        color: Whether this is a Game Boy Color.
        memory: PyBoy's memory.

    Raises:
        ValueError: The bytes are no ROM that PyBoy can run.
    """

    def __init__(self, rom: bytes, sound: bool = False, window: bool = False) -> None:
        self.rom = rom
        self._origin = Origin(hashlib.sha256(rom).hexdigest(), sound)
        self._pyboy: Any = _emulator(rom, sound, window)
        self._pyboy.set_emulation_speed(0)  # who wants frames in real time waits for them
        self._window = window
        self.color = bool(rom[0x143] & 0x80)
        self.memory: Any = self._pyboy.memory
        self._held: Collection[str] = ()

    def frame(self, buttons: Collection[str] = (), draw: bool = True) -> None:
        """Run one frame with `buttons` held, and draw it or not."""
        if buttons is not self._held:
            self._hold(buttons)
        self._pyboy.tick(1, draw, False)
        if self._window:
            from sdl2 import SDL_PumpEvents

            SDL_PumpEvents()

    @property
    def screen(self) -> NDArray[np.uint8]:
        """The frame drawn last: uint8 [144, 160, 4], red, green, blue, opaque. The emulator overwrites it."""
        screen: NDArray[np.uint8] = self._pyboy.screen.ndarray
        return screen

    def rgb(self) -> NDArray[np.uint8]:
        """Return the frame drawn last in the colours of gym-retro's core: uint8 [144, 160, 3], a new array."""
        shown = cv2.cvtColor(self.screen, cv2.COLOR_RGBA2RGB)
        if self.color:
            shown = cv2.bitwise_and(cv2.transform(shown, _LIGHT), _BITS)
        return shown  # type: ignore[return-value]

    def grayscale(self, size: int = 84) -> NDArray[np.uint8]:
        """Return the frame drawn last in grey, by area interpolation: uint8 [size, size], a new array.

        The published observation; 84 pixels there.
        """
        shown, conversion = (self.rgb(), cv2.COLOR_RGB2GRAY) if self.color else (self.screen, cv2.COLOR_RGBA2GRAY)
        gray = cv2.cvtColor(shown, conversion)
        return cv2.resize(gray, (size, size), interpolation=cv2.INTER_AREA)  # type: ignore[return-value]

    def save(self) -> bytes:
        """Return the state, with the trailer that says of which ROM it is."""
        return seal(_raw_state(self._pyboy), self._origin)

    def load(self, content: bytes, check_origin: bool = True) -> None:
        """Go on from a state: one that `save` returned, or one of gym-retro's.

        Args:
            content: The state's bytes.
            check_origin: Refuse a state of PyBoy's that does not say of which ROM it is.

        Raises:
            ValueError: The state is cut off, damaged, or of another game, emulator or release.
        """
        unsealed = unseal(content)
        if unsealed is not None:
            self._go_on(self._own(*unsealed))
            return
        from async_wrappers.envs.gameboy import gambatte  # only for states that were made elsewhere

        if gambatte.is_gambatte(content):
            chunks, template = gambatte.parse(content), _booted(self.rom, self._origin.sound)
            self._go_on(gambatte.convert(chunks, Layout(self.rom, template), template))
            self._pyboy.tick(1, False, False)  # the rest of the vertical blank, to where PyBoy's frames end
            return
        layout = Layout(self.rom, content)
        if check_origin:
            raise ValueError(
                "the state does not say of which ROM it is: if it is of this one, convert it with "
                "python -m async_wrappers.envs.gameboy convert STATE --rom ROM --out FILE"
            )
        self._go_on(self._without_sound(content, layout))

    def boot(self) -> None:
        """Go on from where the game is some seconds after it was switched on."""
        self._go_on(_booted(self.rom, self._origin.sound))

    def stop(self) -> None:
        """Switch off. Nothing is written."""
        self._pyboy.stop(save=False)

    def _go_on(self, state: bytes) -> None:
        """Load a state so that all later frames are the same, independent of the frames before."""
        layout = Layout(self.rom, state)
        layout.check(state)
        before, frames = prelude(layout, state)
        self._pyboy.load_state(io.BytesIO(before))
        for _ in range(frames):
            self._pyboy.tick(1, True, False)
        self._pyboy.load_state(io.BytesIO(state))
        for button in BUTTONS:  # those of its last frame are held in a loaded state
            self._pyboy.button_release(button)
        self._held = ()

    def _own(self, state: bytes, origin: Origin) -> bytes:
        """Return a state that `save` sealed, if it is one for this console."""
        if origin.rom_sha256 != self._origin.rom_sha256:
            raise ValueError(
                f"the state is of the ROM with SHA-256 {origin.rom_sha256}, got one with {self._origin.rom_sha256}: "
                "give the ROM that the state was made with"
            )
        if self._origin.sound and not origin.sound:
            raise ValueError("the state was saved without sound: give sound=False")
        return self._without_sound(state, Layout(self.rom, state)) if origin.sound else state

    def _without_sound(self, state: bytes, layout: Layout) -> bytes:
        """Return a state with the sound's part of one without sound, if this console has none."""
        if self._origin.sound:
            return state
        template = _booted(self.rom, sound=False)
        return layout.overwrite(state, {"sound": Layout(self.rom, template).read(template, "sound")})

    def _hold(self, buttons: Collection[str]) -> None:
        for button in self._held:
            if button not in buttons:
                self._pyboy.button_release(button)
        for button in buttons:
            if button not in self._held:
                self._pyboy.button_press(button)
        self._held = buttons


@lru_cache(maxsize=4)
def _booted(rom: bytes, sound: bool) -> bytes:
    """Return a state of a ROM after its boot, made in an emulator of its own."""
    pyboy = _emulator(rom, sound, window=False)
    pyboy.tick(_BOOT_FRAMES - 1, True, False)  # a new emulator's first picture may be wrong, see `states`
    pyboy.tick(1, True, False)
    state = _raw_state(pyboy)
    pyboy.stop(save=False)
    return state


def _raw_state(pyboy: Any) -> bytes:
    state = io.BytesIO()
    pyboy.save_state(state)
    return state.getvalue()


def _emulator(rom: bytes, sound: bool, window: bool) -> Any:
    with extra("a Game Boy game", "gameboy"), ignored_warnings():  # which copy of SDL it found
        from pyboy import PyBoy
        from pyboy.utils import PyBoyException
    try:
        if len(rom) < _SMALLEST_ROM:  # PyBoy would read the second bank beyond it
            raise ValueError(f"{len(rom)} bytes, fewer than the smallest has: {_SMALLEST_ROM}")
        return PyBoy(
            io.BytesIO(rom),
            window="SDL2" if window else "null",
            sound_emulated=sound,
            sound_volume=100 if sound and window else 0,
            color_palette=_SHADES,
            no_input=True,
            log_level="ERROR",
        )
    except (PyBoyException, IndexError, ValueError, TypeError) as error:
        raise ValueError(f"rom is no Game Boy cartridge that PyBoy runs ({error}): give a complete dump") from None

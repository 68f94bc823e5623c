"""One emulated Game Boy: frames, buttons, memory, screen and states, in memory alone.

PyBoy is given the ROM's bytes, not its path, so it neither reads nor writes files beside the ROM.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Collection
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from async_wrappers.envs.gameboy import gambatte
from async_wrappers.envs.gameboy.roms import sha256
from async_wrappers.envs.gameboy.states import Layout, Origin, seal, unseal
from async_wrappers.envs.gameboy.window import prelude

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["BUTTONS", "Console"]

BUTTONS = ("a", "b", "select", "start", "up", "down", "left", "right")
# The four shades as gym-retro shows them (RGB565 without bit replication), so that grey values are the published ones.
_SHADES = (0xF8FCF8, 0xA8A8A8, 0x505450, 0x000000)
_BOOT_FRAMES = 200
_SMALLEST_ROM = 0x8000  # bytes


class Console:
    """A Game Boy with a cartridge in it, switched on.

    Args:
        rom: The cartridge's bytes; its header decides between Game Boy and Game Boy Color.
        sound: Emulate sound. Games play the same without it, except for one that waits for its sound registers.
        window: Show the screen in a window.

    Raises:
        ValueError: The bytes are no ROM that PyBoy can run.
    """

    def __init__(self, rom: bytes, sound: bool = False, window: bool = False) -> None:
        """See the class."""
        self.rom = rom
        self._origin = Origin(sha256(rom), sound)
        self._pyboy: Any = _emulator(rom, sound, window)
        self._pyboy.set_emulation_speed(0)  # who wants frames in real time waits for them
        self._pump = import_module("sdl2").SDL_PumpEvents if window else None
        self.memory: Any = self._pyboy.memory
        self._held: Collection[str] = ()

    def frame(self, buttons: Collection[str] = (), draw: bool = True) -> None:
        """Run one frame with `buttons` held, and draw it or not."""
        if buttons is not self._held:
            self._hold(buttons)
        self._pyboy.tick(1, draw, False)
        if self._pump is not None:
            self._pump()

    @property
    def screen(self) -> NDArray[np.uint8]:
        """The frame drawn last: uint8 [144, 160, 4], red, green, blue, opaque. The emulator overwrites it."""
        screen: NDArray[np.uint8] = self._pyboy.screen.ndarray
        return screen

    @property
    def color(self) -> bool:
        """Whether this is a Game Boy Color."""
        return bool(self.rom[0x143] & 0x80)

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
        if gambatte.is_gambatte(content):
            self._load_gambatte(content)
            return
        self._go_on(self._checked(content, check_origin))

    def boot(self) -> None:
        """Go on from where the game is some seconds after it was switched on."""
        self._go_on(_booted(self.rom, self._origin.sound))

    def stop(self) -> None:
        """Switch off. Nothing is written."""
        self._pyboy.stop(save=False)

    def _load_gambatte(self, content: bytes) -> None:
        chunks, template = gambatte.parse(content), _booted(self.rom, self._origin.sound)
        state = gambatte.convert(chunks, Layout(self.rom, template), template)
        self._go_on(state)
        self._pyboy.tick(1, False, False)  # the rest of the vertical blank, to where PyBoy's frames end

    def _go_on(self, state: bytes) -> None:
        """Load a state so that all that follows is the same, whatever this console has played before."""
        layout = Layout(self.rom, state)
        layout.check(state)
        before, frames = prelude(layout, state)
        self._pyboy.load_state(io.BytesIO(before))
        for _ in range(frames):
            self._pyboy.tick(1, True, False)
        self._pyboy.load_state(io.BytesIO(state))
        self._release_all()

    def _checked(self, content: bytes, check_origin: bool) -> bytes:
        unsealed = unseal(content)
        if unsealed is None:
            layout = Layout(self.rom, content)
            if check_origin:
                raise ValueError(
                    "the state does not say of which ROM it is: if it is of this one, convert it with "
                    "python -m async_wrappers.envs.gameboy convert STATE --rom ROM --out FILE"
                )
            return self._without_sound(content, layout)
        state, origin = unsealed
        if origin.rom_sha256 != self._origin.rom_sha256:
            raise ValueError(
                f"the state is of the ROM with SHA-256 {origin.rom_sha256}, got one with {self._origin.rom_sha256}: "
                "give the ROM that the state was made with"
            )
        if self._origin.sound and not origin.sound:
            raise ValueError("the state was saved without sound: give sound=False")
        layout = Layout(self.rom, state)
        return self._without_sound(state, layout) if origin.sound else state

    def _without_sound(self, state: bytes, layout: Layout) -> bytes:
        """Return a state with the sound's part of one without sound, if that is what this console has."""
        if self._origin.sound:
            return state
        silent = bytearray(state)
        template = _booted(self.rom, sound=False)
        layout.write(silent, "sound", Layout(self.rom, template).read(template, "sound"))
        return bytes(silent)

    def _hold(self, buttons: Collection[str]) -> None:
        for button in self._held:
            if button not in buttons:
                self._pyboy.button_release(button)
        for button in buttons:
            if button not in self._held:
                self._pyboy.button_press(button)
        self._held = buttons

    def _release_all(self) -> None:
        """Let go of what the loaded state holds: its buttons are those of its last frame."""
        for button in BUTTONS:
            self._pyboy.button_release(button)
        self._held = ()


@lru_cache(maxsize=4)
def _booted(rom: bytes, sound: bool) -> bytes:
    """Return a state of a ROM after its boot, made in an emulator of its own."""
    pyboy = _emulator(rom, sound, window=False)
    pyboy.tick(_BOOT_FRAMES - 1, True, False)  # a new emulator's first picture may be wrong, see `window`
    pyboy.tick(1, True, False)
    state = _raw_state(pyboy)
    pyboy.stop(save=False)
    return state


def _raw_state(pyboy: Any) -> bytes:
    state = io.BytesIO()
    pyboy.save_state(state)
    return state.getvalue()


def _emulator(rom: bytes, sound: bool, window: bool) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # which copy of SDL it found
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

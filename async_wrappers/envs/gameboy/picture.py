"""What a player sees, as the published code sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cv2
import numpy as np

from async_wrappers.envs.gameboy.console import Console

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["grayscale", "rgb"]

# gym-retro shows the Game Boy Color's 5 bits of r, g, b as (13 r + 2 g + b + 8) / 16, (3 g + b + 1) / 2 and
# (3 r + 2 g + 11 b + 8) / 16 in 5, 6 and 5 bits, all divisions rounded down; PyBoy as 8 r, 8 g, 8 b. What follows is
# exact: OpenCV rounds to the nearest, so a fraction is taken off first, and the low bits are cut off afterwards.
_LIGHT = np.array([[13 / 16, 2 / 16, 1 / 16, 3.75], [0, 3 / 4, 1 / 4, 1.5], [3 / 16, 2 / 16, 11 / 16, 3.75]])
_BITS = np.tile(np.array([0xF8, 0xFC, 0xF8], np.uint8), (144, 160, 1))


def rgb(console: Console) -> NDArray[np.uint8]:
    """Return the frame drawn last in the colours of gym-retro's core: uint8 [144, 160, 3], a new array."""
    shown = cv2.cvtColor(console.screen, cv2.COLOR_RGBA2RGB)
    if console.color:
        shown = cv2.bitwise_and(cv2.transform(shown, _LIGHT), _BITS)
    return shown  # type: ignore[return-value]


def grayscale(console: Console, size: int = 84) -> NDArray[np.uint8]:
    """Return the frame drawn last in grey, by area interpolation: uint8 [size, size], a new array.

    The published observation; 84 pixels there.
    """
    shown = cv2.cvtColor(rgb(console), cv2.COLOR_RGB2GRAY) if console.color else _gray(console)
    return cv2.resize(shown, (size, size), interpolation=cv2.INTER_AREA)  # type: ignore[return-value]


def _gray(console: Console) -> NDArray[np.uint8]:
    return cv2.cvtColor(console.screen, cv2.COLOR_RGBA2GRAY)  # type: ignore[return-value]

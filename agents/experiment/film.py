"""A film of an episode that one can follow: enlarged images, with score, frame, actions and the way of each drawn.

Below an image is a strip of frames, the newest in the middle: bright where an action of the policy landed. Two lines
are under it: from the observation to the landing of the action that landed last, and of the one that was chosen last.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

LEAST = 480  # pixels of an enlarged image's longer side, and of a panel's width
CARD, TEXT, QUIET, WAITING, LANDED, CHOSEN = "#22272e", "#f0f6fc", "#adbac7", "#444c56", "#6cb6ff", "#f0b429"
_TOP, _BOTTOM, _EDGE = 76, 106, 12  # pixels above and below an image, and beside the words
_LONGEST = 32  # letters of an action
_TICK = 4  # pixels of a frame in the strip


class Choice(NamedTuple):
    """A decision: the frame of its observation, that on which its action landed, and the action."""

    start: int
    effect: int
    action: Any


@dataclass
class Film:
    """What there is to show of an episode.

    Attributes:
        title: Who plays.
        way: A line below it: the delay, in words.
        meanings: The names of discrete actions; empty where they have none.
        images: RGB, each [H, W, 3].
        frames: How many frames were played when each image was seen.
        scores: The return until then.
        landed: The action that the environment received on each frame, default actions too.
        choices: The decisions whose actions landed, in order.
        fast_age: Age in frames of the observation that a fast path read as an action landed; None without one.
    """

    title: str
    way: str
    meanings: Sequence[str] = ()
    images: list[npt.NDArray[np.uint8]] = field(default_factory=list)
    frames: list[int] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    landed: list[Any] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)
    fast_age: int | None = None

    def panel(self, number: int, least: int = LEAST) -> Image.Image:
        """Draw an image and its words, at least so many pixels wide; after the last one the film stands still."""
        last = len(self.images) - 1
        over, number = ", over" if number >= last else "", min(number, last)
        picture = enlarged(self.images[number], least)
        width = max(least, picture.width)
        panel = Image.new("RGB", (width, _TOP + picture.height + _BOTTOM), CARD)
        panel.paste(picture, ((width - picture.width) // 2, _TOP))
        draw = ImageDraw.Draw(panel)
        _write(draw, _EDGE, 8, self.title, 22)
        _write(draw, _EDGE, 42, self.way, 16, QUIET)
        _write(draw, width - _EDGE, 8, f"score {self.scores[number]:g}", 22, right=True)
        _write(draw, width - _EDGE, 42, f"frame {self.frames[number]}{over}", 16, QUIET, right=True)
        self._draw_way(draw, self.frames[number], width, _TOP + picture.height)
        return panel

    def _draw_way(self, draw: ImageDraw.ImageDraw, now: int, width: int, top: int) -> None:
        """Draw the actions that land and are chosen after so many frames, and the strip."""
        last = self._landed_by(now)
        newest = self._chosen_by(now)
        lands = "nothing yet"
        if now and (last is None or last.effect < now - 1):
            lands = f"{self.word(self.landed[now - 1])} (default)"
        elif now and last is not None:
            fresh = "" if self.fast_age is None else f" and {self.fast_age} before"
            lands = f"{self.word(last.action)}, {_ago(last.effect - last.start)}{fresh}"
        _write(draw, _EDGE, top + 8, f"lands: {lands}", 16, LANDED)
        if newest is not None:
            _write(draw, _EDGE, top + 30, f"chosen: {self.word(newest.action)}, {_ahead(newest, now)}", 16, CHOSEN)
        middle, strip = (width - 2 * _EDGE) // _TICK // 2, top + 62

        def x(frame: int) -> int:
            return _EDGE + _TICK * min(max(frame - now + middle, 0), 2 * middle)

        effects = self._effects
        for frame in range(now - middle, min(now + middle, len(self.landed))):
            if frame >= 0:
                colour = (TEXT if frame in effects else QUIET) if frame < now else WAITING
                height = 12 if frame in effects and frame < now else 4
                draw.rectangle((x(frame), strip + 12 - height, x(frame) + _TICK - 2, strip + 12), colour)
        draw.line((x(now), strip - 3, x(now), strip + 34), QUIET)
        for choice, colour, below in ((last, LANDED, 20), (newest, CHOSEN, 28)):
            if choice is not None and now:
                left, right = x(choice.start), x(choice.effect) + (_TICK if choice.effect < now else 0)
                draw.line((left, strip + below, max(right, left + 2), strip + below), colour, 3)
                draw.ellipse((left - 3, strip + below - 3, left + 3, strip + below + 3), colour)

    def _landed_by(self, now: int) -> Choice | None:
        number = bisect_right(self.choices, now - 1, key=lambda choice: choice.effect)
        return self.choices[number - 1] if number else None

    def _chosen_by(self, now: int) -> Choice | None:
        number = bisect_right(self.choices, now, key=lambda choice: choice.start)
        return self.choices[number - 1] if number else None

    @property
    def _effects(self) -> set[int]:
        if len(self._known) != len(self.choices):
            self._known = {choice.effect for choice in self.choices}
        return self._known

    _known: set[int] = field(default_factory=set)

    def word(self, action: Any) -> str:
        """Return an action in a few letters."""
        if isinstance(action, dict | tuple):
            return f"{action}"[:_LONGEST]
        array = np.asarray(action)
        if array.ndim and self.landed and array.shape != np.shape(self.landed[0]):
            return f"a chunk of {len(array)}"
        if array.ndim:
            return "[" + ", ".join(f"{each:.2g}" for each in array.ravel()[:4]) + (", ...]" if array.size > 4 else "]")
        return str(self.meanings[int(array)]) if 0 <= int(array) < len(self.meanings) else f"{array:g}"


def _ago(frames: int) -> str:
    return f"seen {frames} frame{'s' * (frames != 1)} before" if frames else "seen on this frame"


def _ahead(choice: Choice, now: int) -> str:
    frames = choice.effect - now
    if frames < 0:
        return "landed"
    return f"lands in {frames} frame{'s' * (frames != 1)}" if frames else "lands now"


def enlarged(image: npt.NDArray[np.uint8], least: int = LEAST) -> Image.Image:
    """Return an image whose longer side has at least so many pixels: each pixel becomes a square, without blur."""
    picture = Image.fromarray(image)
    times = math.ceil(least / max(picture.size))
    return picture.resize((picture.width * times, picture.height * times), Image.Resampling.NEAREST)


@lru_cache
def _font(size: int) -> Any:
    return ImageFont.load_default(size)  # comes with Pillow


def _write(
    draw: ImageDraw.ImageDraw, left: int, top: int, text: str, size: int, colour: str = TEXT, right: bool = False
) -> None:
    draw.text((left, top), text, colour, _font(size), anchor="ra" if right else "la")


def beside(films: Sequence[Film], every: int = 1, least: int = LEAST) -> Iterator[Image.Image]:
    """Yield the images of films side by side, each `every`-th; one that is over stands still."""
    for number in range(0, max(len(film.images) for film in films), every):
        panels = [film.panel(number, least) for film in films]
        width, height = sum(panel.width for panel in panels), max(panel.height for panel in panels)
        # MP4 needs even sizes.
        if len(panels) == 1 and not (width % 2 or height % 2):
            yield panels[0]
            continue
        joined = Image.new("RGB", (width + width % 2, height + height % 2), CARD)
        left = 0
        for panel in panels:
            joined.paste(panel, (left, 0))
            left += panel.width
            ImageDraw.Draw(joined).line((left, 0, left, height), QUIET)
        yield joined

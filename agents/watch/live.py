"""What a live run showed last: ``now.json`` and ``now.npy``, which `AsyncRunner.run` writes (``shown_in``)."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from async_wrappers.agents.watch.reading import Changed
from async_wrappers.files import refuse_damage

# In the directory of a run of train.py, or of an `AsyncRunner` alone.
PLACES = (Path("live", "now.json"), Path("now.json"))
_COLOURS = ("0072B2", "D55E00", "009E73", "E69F00", "CC79A7", "56B4E9", "F0E442", "FFFFFF", "999999", "882255")


@dataclass(frozen=True)
class Live:
    """A snapshot of a live run's phase.

    Attributes:
        age: Seconds since it was written.
        over: Whether the phase is.
        facts: ``fps``, ``workers``, ``phase``, ``episode``, ``frame``, ``score``, and counts of the phase: ``frames``,
            ``fresh``, ``late``, ``paused``.
        recent: The last seconds in numbers: ``fresh_share``, ``late``, ``fps``, ``ages`` (frames by age), and
            distributions of ``lateness_ms``, ``delay_frames`` and ``latency_ms``.
        episodes: Number, frames and score of the newest ones of the phase.
        history: Of each of the last seconds: time, fresh share, late frames, mean age, p99 of the lateness in ms.
        seconds: Length of the time line.
        inferences: On the time line: worker, began and ended in ms, and whether the action was applied.
        frames: On the time line: when it began, in ms, and the age of its action in frames; None for a default action.
    """

    age: float
    over: bool
    facts: Mapping[str, Any]
    recent: Mapping[str, Any]
    episodes: Sequence[Sequence[float]]
    history: Sequence[Sequence[float | None]]
    seconds: float
    inferences: Sequence[tuple[int, float, float, bool]]
    frames: Sequence[tuple[float, int | None]]

    @property
    def fresh_share(self) -> float | None:
        """Share of the phase's frames, without those of pauses, that received an action of the policy's."""
        played = self.facts["frames"] - self.facts["paused"]
        return self.facts["fresh"] / played if played else None


def _parse(path: Path) -> dict[str, Any]:
    with refuse_damage(path, "the run's next phase writes it anew"):
        found = json.loads(path.read_text(encoding="utf-8"))
        facts = ("fps", "workers", "frames", "fresh", "late", "paused", "score")
        line = found["line"]
        return {
            "unix": float(found["unix"]),
            "over": bool(found["over"]),
            "facts": {
                **{name: found[name] for name in facts},
                **{n: found.get(n) for n in ("phase", "episode", "frame")},
            },
            "recent": dict(found["recent"]),
            "episodes": [list(each) for each in found["episodes"]],
            "history": [list(each) for each in found["history"]],
            "seconds": float(line["seconds"]),
            "inferences": [(int(w), float(b), float(e), bool(a)) for w, b, e, a in line["inferences"]],
            "frames": [(float(begin), age) for begin, age in line["frames"]],
        }


_read = Changed(_parse)


def read_live(directory: Path) -> Live | None:
    """Return a run's newest snapshot; None where it is not live, or has shown nothing yet.

    Raises:
        OSError: It cannot be read.
        ValueError: It is damaged.
    """
    for place in PLACES:
        if (found := _read(directory / place)) is not None:
            shown = {name: value for name, value in found.items() if name != "unix"}
            return Live(age=max(time.time() - found["unix"], 0.0), **shown)
    return None


def picture_path(directory: Path) -> Path | None:
    """Return where a live run's newest observation is; None where it is no image."""
    paths = ((directory / place).with_suffix(".npy") for place in PLACES)
    return next((path for path in paths if path.is_file()), None)


def read_picture(path: Path) -> npt.NDArray[np.uint8]:
    """Return a live run's newest observation as colours `[H, W, 3]`.

    Raises:
        OSError: There is none.
        ValueError: It is no image.
    """
    with refuse_damage(path, "the run writes it anew"):
        picture = np.load(io.BytesIO(path.read_bytes()), allow_pickle=False)
        return _coloured(picture)


def _coloured(picture: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    if picture.ndim == 3 and picture.dtype == np.bool_:  # a channel for each kind of thing, as in MinAtar
        colours = np.zeros((*picture.shape[1:], 3), np.uint8)
        for plane, colour in zip(picture, _COLOURS, strict=False):
            colours[plane] = tuple(bytes.fromhex(colour))
        return colours
    if picture.ndim == 3 and picture.shape[2] == 3:
        return picture.astype(np.uint8)
    if picture.ndim == 3:
        picture = picture[:, :, 0] if picture.shape[2] == 1 else picture[-1]
    grey = picture.astype(np.uint8) * (255 if picture.dtype == np.bool_ else 1)
    return np.repeat(grey[:, :, None], 3, axis=2)

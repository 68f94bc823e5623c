"""What a live run showed last: ``now.json`` and ``now.npy``, which `AsyncRunner.run` writes (``shown_in``)."""

from __future__ import annotations

import io
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from async_wrappers.agents.watch.checked_values import (
    count,
    known,
    many,
    mapping,
    maybe,
    number,
    positive,
    record,
    row,
    truth,
)
from async_wrappers.agents.watch.reading import Folder, json_of
from async_wrappers.files import refuse_damage
from async_wrappers.live.report.shares import NAMES

# In the directory of a run of train.py, or of an `AsyncRunner` alone.
PLACES = ("live/now.json", "now.json")
_LARGEST = 4_000_000  # bytes of a picture, as its writer keeps to
_COLOURS = ("0072B2", "D55E00", "009E73", "E69F00", "CC79A7", "56B4E9", "F0E442", "FFFFFF", "999999", "882255")


@dataclass(frozen=True)
class LiveSnapshot:
    """A snapshot of a live run's phase.

    Attributes:
        age: Seconds since it was written.
        over: Whether the phase is.
        facts: ``fps``, ``workers``, ``phase``, ``episode``, ``frame``, ``score``, and counts of the phase: ``frames``,
            ``fresh``, ``chunk`` (older runs do not have it), ``late``, ``paused``.
        recent: The last seconds in numbers: ``fresh_share``, ``chunk_share``, ``late``, ``fps``, ``ages`` (new
            decisions by age), and distributions of ``lateness_ms``, ``delay_frames`` and ``latency_ms``.
        episodes: Number, frames and score of the newest ones of the phase.
        history: Of each of the last seconds: time, fresh share, late frames, mean age, p99 of the lateness in ms.
        seconds: Length of the time line.
        inferences: On the time line: worker, began and ended in ms, and whether the action was applied.
        frames: On the time line: when it began, in ms, and the age of its action in frames; None for a default action.
        chunks: Places, among these frames, of those of a going chunk.
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
    chunks: Sequence[int] = ()

    @property
    def fresh_share(self) -> float | None:
        """Share of the phase's frames, without those of pauses, that received the action of a new decision."""
        played = self.facts["frames"] - self.facts["paused"]
        return self.facts["fresh"] / played if played > 0 else None

    @property
    def shares(self) -> dict[str, float | None]:
        """Shares of the phase's frames, without those of pauses, by the words for them; None before the first one."""
        played = self.facts["frames"] - self.facts["paused"]
        return self._three(self.fresh_share, self.facts.get("chunk", 0) / max(played, 1))

    @property
    def recent_shares(self) -> dict[str, float | None]:
        """Those of the last seconds."""
        return self._three(self.recent["fresh_share"], self.recent.get("chunk_share") or 0.0)

    def _three(self, fresh: float | None, chunk: float) -> dict[str, float | None]:
        rest = None if fresh is None else max(1 - fresh - chunk, 0.0)
        shares = {"fresh": fresh, "chunk": None if fresh is None else chunk, "default": rest}
        return {NAMES[name]: share for name, share in shares.items() if name != "chunk" or self.facts.get("chunk")}


def _age(name: str) -> int:
    return count(int(name))


_SPREAD = record({"mean": known, "p99": known})
_RECENT = {"fresh_share": known, "late": count, "fps": known, "ages": mapping(_age, count, 1000)}
_LINE = {
    "seconds": positive,
    "inferences": many(row(count, number, number, truth), 400),
    "frames": many(row(number, maybe(count)), 400),
}
_LINE_OF = record(_LINE, {"chunks": many(count, 400)})


def _line(value: Any) -> dict[str, Any]:
    """Return a time line; places of chunks that are none of a frame are dropped."""
    found: dict[str, Any] = _LINE_OF(value)
    return found | {"chunks": [place for place in found.get("chunks", ()) if place < len(found["frames"])]}


_NOW = record(
    {
        **{"unix": number, "over": truth, "fps": positive, "score": known},
        **dict.fromkeys(("workers", "frames", "fresh", "late", "paused"), count),
        "episodes": many(row(count, count, known), 100),
        "history": many(row(number, known, count, known, known), 300),
        "recent": record(
            {**_RECENT, **dict.fromkeys(("lateness_ms", "delay_frames", "latency_ms"), _SPREAD)}, {"chunk_share": known}
        ),
        "line": _line,
    },
    dict.fromkeys(("phase", "episode", "frame", "chunk"), maybe(count)),
)
_REMEDY, _ANEW = "the run's next phase writes it anew", "the run writes it anew"


def read_live(folder: Folder) -> LiveSnapshot | None:
    """Return a run's newest snapshot; None where it is not live, or has shown nothing yet."""
    for place in PLACES:
        if (found := folder.parsed(place, json_of(_NOW), None, _REMEDY)) is not None:
            shown = {name: found[name] for name in ("over", "recent", "episodes", "history")}
            return LiveSnapshot(age=max(time.time() - found["unix"], 0.0), facts=found, **shown, **found["line"])
    return None


def picture_in(folder: Folder) -> str | None:
    """Return the name of a live run's newest observation; None where it is no image."""
    names = (place.replace(".json", ".npy") for place in PLACES)
    return next((name for name in names if folder.parsed(name, picture_of, None, _ANEW) is not None), None)


def read_picture(folder: Folder, name: str) -> npt.NDArray[np.uint8]:
    """Return a live run's newest observation as colours `[H, W, 3]`.

    Raises:
        OSError: There is none.
        ValueError: It is no image.
    """
    with refuse_damage(folder.path / name, _ANEW):
        return picture_of(folder.read(name))


def picture_of(data: bytes) -> npt.NDArray[np.uint8]:
    """Return what NumPy has saved as colours `[H, W, 3]`.

    Raises:
        ValueError: It is no image, or has another size than it says.
    """
    file = io.BytesIO(data)
    np.lib.format.read_magic(file)
    shape, by_columns, dtype = np.lib.format.read_array_header_1_0(file)
    if dtype not in (np.uint8, np.bool_) or len(shape) not in (2, 3):
        raise ValueError(f"an image cannot be of {dtype} {shape}")
    # NumPy itself takes memory for the shape before it looks whether so much is there.
    if not 0 < math.prod(shape) == len(data) - file.tell() <= _LARGEST:
        raise ValueError(f"{len(data)} bytes hold no image {shape}")
    return _coloured(np.frombuffer(data, dtype, offset=file.tell()).reshape(shape, order="F" if by_columns else "C"))


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

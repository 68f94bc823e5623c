"""The scalars that a run has written for TensorBoard, read as they are appended.

A record of an event file is the length of an event in eight bytes, four bytes of checksum, the event, and four more.
The checksums are not compared: in Python that takes longer than all else.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from async_wrappers.agents.watch.reading import Appended

_LARGEST = 1 << 24  # bytes of an event
Series = list[tuple[int, float]]
"""Frames of training and value."""


class _Scalars(dict[str, Series]):
    """Scalars of one file by their tags, and the frames from which on it replaces older files."""

    begins: int | None = None
    damage = ""


def _add(kept: _Scalars, data: bytes) -> int:
    from google.protobuf.message import DecodeError  # takes a second
    from tensorboard.compat.proto.event_pb2 import Event

    place = 0
    while place + 12 <= len(data):
        size = int.from_bytes(data[place : place + 8], "little")
        if size > _LARGEST:
            kept.damage = f"a record of {size:,} bytes"
            return len(data)
        if place + 16 + size > len(data):
            break
        try:
            event: Any = Event.FromString(data[place + 12 : place + 12 + size])
        except DecodeError as error:
            kept.damage = str(error)
            return len(data)
        place += 16 + size
        if event.HasField("session_log"):
            kept.begins = event.step
        for value in event.summary.value:
            kept.setdefault(value.tag, []).append((event.step, value.simple_value))
    return place


_read = Appended(_Scalars, _add)


def read_scalars(directory: Path) -> Mapping[str, Series]:
    """Return the scalars of a run by their tags; what a resumed run has written replaces what came after its start.

    Raises:
        OSError: A file cannot be read.
        ValueError: A file is damaged; the scalars before that are kept for the next call.
    """
    joined: dict[str, Series] = {}
    for path in sorted((directory / "metrics" / "tensorboard").glob("events.out.tfevents.*")):
        found = _read(path)
        if found is None:
            continue
        if found.damage:
            raise ValueError(f"{path} is damaged ({found.damage}): remove it, and its scalars are missing")
        if (begins := found.begins) is not None:
            joined = {tag: [each for each in series if each[0] < begins] for tag, series in joined.items()}
        for tag, series in found.items():
            joined.setdefault(tag, []).extend(series)
    return {tag: series for tag, series in joined.items() if series}

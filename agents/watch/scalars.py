"""The scalars that a run has written for TensorBoard, read as they are appended.

A record of an event file is the length of an event in eight bytes, four bytes of checksum, the event, and four more.
The checksums are not compared: in Python that takes longer than all else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from async_wrappers.agents.watch.checked_values import clean, known
from async_wrappers.agents.watch.reading import Folder

_LARGEST = 1 << 24  # bytes of an event
_MOST = 100  # tags
Series = list[tuple[int, float]]
"""Frames of training and value."""


class _Scalars:
    """Scalars of one file by their tags, and the frames from which on it replaces older files."""

    def __init__(self) -> None:
        self.series: dict[str, Series] = {}
        self.begins: int | None = None
        self.damage = ""
        self.crowded = False

    def add(self, data: bytes) -> int:
        """Add the whole events of new bytes; a value that is not finite is not kept, as it cannot be drawn."""
        from google.protobuf.message import DecodeError  # takes a second
        from tensorboard.compat.proto.event_pb2 import Event

        place = 0
        while place + 12 <= len(data) and not self.damage:
            size = int.from_bytes(data[place : place + 8], "little")
            if size > _LARGEST:
                self.damage = f"a record of {size:,} bytes"
            elif place + 16 + size > len(data):
                break
            else:
                try:
                    self._take(Event.FromString(data[place + 12 : place + 12 + size]))
                except DecodeError as error:
                    self.damage = str(error)
                place += 16 + size
        return len(data) if self.damage else place

    def _take(self, event: Any) -> None:
        if event.HasField("session_log"):
            self.begins = event.step
        for each in event.summary.value:
            if each.tag not in self.series and len(self.series) >= _MOST:
                self.crowded = True
            elif event.step >= 0 and (value := known(each.simple_value)) is not None:
                self.series.setdefault(each.tag, []).append((event.step, value))


def read_scalars(folder: Folder) -> Mapping[str, Series]:
    """Return the scalars of a run by their tags; what a resumed run has written replaces what came after its start."""
    joined: dict[str, Series] = {}
    crowded = False
    for name in folder.names("metrics/tensorboard", "events.out.tfevents.*"):
        found = folder.appended(name, _Scalars, "remove it, and its scalars are missing")
        if (begins := found.begins) is not None and joined:
            joined = {tag: [each for each in series if each[0] < begins] for tag, series in joined.items()}
        for tag, series in found.series.items():
            joined[tag] = [*joined[tag], *series] if tag in joined else series
        crowded |= found.crowded or len(joined) > _MOST
    if crowded:
        folder.note(f"{folder.path} has scalars of more than {_MOST} tags, and some are left out: TensorBoard has all")
    return {clean(tag): series for tag, series in list(joined.items())[:_MOST] if series}

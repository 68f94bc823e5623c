"""What every replay does alike: keeping itself in a dictionary, or in files that grow by what is new."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from absl import logging

from agents.replay.log import segments
from agents.replay.log.segments import Arrays, Segment


class DamagedReplay(ValueError):
    """Some of a replay's segments are damaged or missing; `load(..., partial=True)` does without them."""


class SavedReplay(ABC):
    """A replay as a log of entries, numbered from 0 for ever, of which some are still live.

    An entry never changes once it is written. What does change, of old entries too, is the *moment*: a few arrays
    that are saved whole each time.
    """

    _head: int  # entries ever written
    _segments: list[Segment]  # files that hold all live entries up to the last save or load

    @abstractmethod
    def __len__(self) -> int:
        """Number of transitions that can be drawn."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Return the constructor's arguments as plain data, without the seed."""

    @abstractmethod
    def _oldest(self) -> int:
        """No entry before this one is live."""

    @abstractmethod
    def _pieces(self, first: int) -> Iterator[Arrays]:
        """The live entries from `first` on, oldest first, in runs; may be views."""

    @abstractmethod
    def _names(self) -> list[str]:
        """Names of the fields of a piece."""

    @abstractmethod
    def _put(self, first: int, piece: Arrays) -> int:
        """Writes a piece whose oldest entry is `first`; returns how many entries it holds."""

    @abstractmethod
    def _counters(self) -> dict[str, Any]:
        """Plain data: the facts and all that is not in the entries and the moment."""

    @abstractmethod
    def _restore(self, counters: Mapping[str, Any], moment: Arrays) -> None:
        """Takes over the counters and the moment, and derives the rest from the entries that were put."""

    @abstractmethod
    def _lose(self, first: int, stop: int) -> None:
        """Takes note that the entries `first <= entry < stop` are lost, before `_restore`."""

    @abstractmethod
    def _end_running(self) -> None:
        """Ends the episode that is under way, if one is: its last observation is its final one."""

    @abstractmethod
    def clear(self) -> None:
        """Forgets every transition; the generators go on from where they are."""

    def _moment(self) -> Arrays:
        """What is saved whole each time; may be views."""
        return {}

    def _still_listed(self, listed: list[Segment]) -> list[Segment]:
        """The segments that go on being listed; those left out hold no live entry, or are written anew in full."""
        return [segment for segment in listed if segment.stop > self._oldest()]

    def state_dict(self) -> dict[str, Any]:
        """Everything that `load_state_dict` needs to continue bit for bit; the arrays are copies, oldest slot first."""
        pieces = list(self._pieces(self._oldest()))
        slots = {name: np.concatenate([piece[name] for piece in pieces]) for name in self._names()} if pieces else {}
        moment = {name: array.copy() for name, array in self._moment().items()}
        return {**self._all_counters(), "first": self._oldest(), "slots": slots, "moment": moment}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues where `state_dict` was called; the replay's own seed is forgotten.

        Raises:
            ValueError: the state comes from a replay with other constructor arguments; nothing is changed then.
        """
        self._check_facts(state["facts"])
        self.clear()
        if state["slots"]:
            self._put(state["first"], state["slots"])
        self._restore(state, state["moment"])

    def save(self, directory: Path, number: int) -> list[str]:
        """Writes what is new since the last save or load, and the index `index_{number}.json` of this moment.

        Args:
            directory: where the files go; made if missing. In a new directory everything live is written.
            number: names the moment; an index of the same number is replaced.

        Returns:
            The names of the files that `load` needs: the segments, oldest first, and the index.

        Raises:
            OSError: a file could not be written; the earlier indexes still load then.
        """
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        listed = self._still_listed(self._segments)
        if not all(segment.is_whole(directory) for segment in listed):
            listed = []
        first = listed[-1].stop if listed else self._oldest()
        if first < self._head:
            listed.append(segments.write_segment(directory, first, self._head, self._pieces(first)))
        self._segments = listed
        moment = []
        if arrays := self._moment():
            moment.append(segments.write_segment(directory, self._oldest(), self._head, [arrays]))
        index = segments.write_index(directory, number, listed, moment, self._all_counters())
        return [*(segment.name for segment in listed + moment), index]

    def load(self, directory: Path, number: int, partial: bool = False) -> int:
        """Rebuilds the replay and its generators as at `save(directory, number)`; later saves go on from there.

        An episode that was under way then is ended: what is observed next is of another one.

        Args:
            directory: where the files are.
            number: names the moment.
            partial: whether to do without the segments that are damaged or missing.

        Returns:
            How many transitions that could be drawn at the moment of `save` are lost; 0 unless `partial`.

        Raises:
            FileNotFoundError: the index or what belongs to it alone is missing.
            DamagedReplay: a segment is missing or torn, unless `partial`.
            ValueError: the index comes from a replay with other constructor arguments, or it is torn, or what belongs
                to it alone is. The replay is left empty if a segment's checksum fails half-way, and unchanged by
                every other error.
        """
        directory = Path(directory)
        listed, of_moment, counters = segments.read_index(directory, number)
        self._check_facts(counters["facts"])
        moment = self._read_moment(directory, of_moment)
        whole = [segment for segment in listed if self._is_whole(directory, segment, partial)]
        self.clear()
        held = [segment for segment in whole if self._take(directory, segment, partial)]
        self._head = counters["head"]
        for first, stop in _gaps(self._oldest(), self._head, held):
            self._lose(first, stop)
        self._restore(counters, moment)
        lost: int = counters["transitions"] - len(self)
        self._end_running()
        self._segments = held
        return lost

    def _is_whole(self, directory: Path, segment: Segment, partial: bool) -> bool:
        """Whether a segment seems to be whole, as far as can be told without reading all of it."""
        try:
            segments.check_segment(directory, segment)
        except (OSError, ValueError) as error:
            return _done_without(error, partial)
        return True

    def _take(self, directory: Path, segment: Segment, partial: bool) -> bool:
        """Whether a segment could be put where it belongs; it may be there in part otherwise."""
        first = segment.first
        try:
            for piece in segments.read_segment(directory, segment):
                if piece.keys() != set(self._names()):
                    raise ValueError(f"{segment.name} in {directory} is torn or altered: it lacks a field")
                first += self._put(first, piece)
        except (OSError, ValueError) as error:
            if not partial:
                self.clear()
            return _done_without(error, partial)
        return True

    def _read_moment(self, directory: Path, of_moment: list[Segment]) -> Arrays:
        moment: Arrays = {}
        for segment in of_moment:
            segments.check_segment(directory, segment)
            for arrays in segments.read_segment(directory, segment):
                moment.update(arrays)
        return moment

    def _all_counters(self) -> dict[str, Any]:
        return {**self._counters(), "transitions": len(self)}

    def prune(self, directory: Path, keep: Iterable[int]) -> None:
        """Deletes the indexes in `directory` whose number is not in `keep`, and the segments no kept index lists.

        Where a kept index cannot be read nothing is deleted, and a warning is logged.

        Raises:
            OSError: a file could not be deleted.
        """
        segments.prune(Path(directory), keep)

    def _check_facts(self, saved: Mapping[str, Any]) -> None:
        own = self.facts()
        if differing := sorted(own.keys() ^ saved.keys()):
            raise ValueError(
                f"the saved replay must be a {type(self).__name__}, but only one of the two has "
                f"{', '.join(differing)}, make the replay alike"
            )
        for name, value in own.items():
            if saved[name] != value:
                raise ValueError(
                    f"{name} must be as in the saved replay, {saved[name]!r}, got {value!r}, make the replay alike"
                )


def check_moment(directory: Path, number: int) -> None:
    """Checks what `load(directory, number, partial=True)` cannot do without: the index and what is its alone.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is torn, altered, or of another format.
    """
    for segment in segments.read_index(directory, number)[1]:
        segments.check_segment(directory, segment)
        for _ in segments.read_segment(directory, segment):
            pass  # the checksum is compared on the way


def _done_without(error: Exception, partial: bool) -> bool:
    """Logs why a segment is left out, and returns False; raises where none may be."""
    if not partial:
        raise DamagedReplay(str(error)) from error
    logging.warning("the replay is loaded without a segment: %s", error)
    return False


def _gaps(first: int, stop: int, held: Iterable[Segment]) -> Iterator[tuple[int, int]]:
    """The runs of `first <= entry < stop` that no segment holds; segments are in order."""
    for segment in held:
        if first < segment.first:
            yield first, min(segment.first, stop)
        first = max(first, segment.stop)
    if first < stop:
        yield first, stop

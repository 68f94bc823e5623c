"""The writer beside a run: a process on a real clock, a thread of the thread backend, the loop itself on a virtual one.

It is not the loop's affair whether the disk is slow or full. The loop fills a ring (`rows.RowRing`), and a writer that
fails or dies closes it: the user reads one sentence, and the run goes on without a recording.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import connection
from pathlib import Path
from typing import Any

import gymnasium as gym

from async_wrappers.fleet.block import Block
from async_wrappers.live.recording.frame_rows import Recorder, RowLayout, RowRing, ring_capacity
from async_wrappers.live.recording.recording_files import EpisodeFiles, NoDirectory

PATIENCE = 30.0  # seconds that a writer has to write what the ring holds
_LOOK = 0.02  # seconds between two looks at the ring
_NICE = 5  # the loop and the workers go first


@dataclass(frozen=True)
class RecordSpec:
    """A recording that is to be made.

    Attributes:
        directory: Where.
        observation_space: Of the environment.
        action_space: Of the environment.
        fps: Frames per second, a number or a fraction.
        simulated: Whether the clock is the virtual one.
        workers: How many there are.
        default_action: In words.
        dry_run: Whether nothing is sent to the machine.
        sensors: Names of those whose ages are recorded.
    """

    directory: Path
    observation_space: gym.Space[Any]
    action_space: gym.Space[Any]
    fps: Any
    simulated: bool
    workers: int
    default_action: str
    dry_run: bool = False
    sensors: tuple[str, ...] = ()

    def layout(self) -> RowLayout:
        """Return the layout of its rows."""
        return RowLayout(self.observation_space, self.action_space, self.sensors)

    def resize(self, block: Block) -> None:
        """Size the ring's memory."""
        layout = self.layout()
        block.resize(RowRing.size(layout, ring_capacity(layout, float(self.fps))))

    def ring(self, block: Block) -> RowRing:
        """Return the ring in its memory."""
        layout = self.layout()
        return RowRing(block, layout, ring_capacity(layout, float(self.fps)))

    def recorder(self, block: Block) -> Recorder:
        """Return the loop's side, whose rows another process writes."""
        return Recorder(self.ring(block), float(self.fps))

    def files(self) -> EpisodeFiles:
        """Make the directory.

        Raises:
            NoDirectory: It has something in it, or cannot be written.
        """
        clock = {"clock": "virtual"} if self.simulated else {"clock": "monotonic", "began": _now()}
        facts = {"fps": str(self.fps), "workers": self.workers, "default_action": self.default_action}
        timed = {"sensors": list(self.sensors)} if self.sensors else {}
        return EpisodeFiles(self.directory, self.layout(), {**facts, "dry_run": self.dry_run, **timed, **clock})


def _now() -> dict[str, int]:
    """Return the same moment on the clock of the deadlines and as a date."""
    return {"monotonic_ns": time.monotonic_ns(), "unix_ns": time.time_ns()}


class _Drain:
    """Moves rows from the ring into files, until that fails.

    Args:
        spec: Of the recording.
        ring: Where rows come from.
        warns: Called with a sentence when rows can no longer be written.
    """

    def __init__(self, spec: RecordSpec, ring: RowRing, warns: Callable[[str], object]) -> None:
        self._spec, self._ring, self._warns = spec, ring, warns
        self._files: EpisodeFiles | None = None
        try:
            self._files = spec.files()
        except NoDirectory as error:
            self._fail(f"nothing is recorded: {error}")

    def drain(self) -> None:
        """Write all rows that wait."""
        if self._files is None:
            return
        try:
            for rows in self._ring.waiting():
                self._files.write(rows)
                self._ring.note_saved(self._files.frames)
        except OSError as error:
            self._fail(
                f"the recording in {self._spec.directory} ends here ({error.strerror or error}): the run goes on"
            )

    def close(self) -> None:
        """Write what waits, and finish the file of the running episode."""
        self.drain()
        self._ring.close()
        files, self._files = self._files, None
        if files is not None:
            with suppress(OSError):
                files.close()

    def _fail(self, sentence: str) -> None:
        files, self._files = self._files, None
        if files is not None:
            self._ring.note_saved(files.frames)
            with suppress(OSError):
                files.close()
        self._ring.close()
        self._warns(sentence)


def write_rows(spec: RecordSpec, block: Block, supervisor: connection.Connection, over: threading.Event) -> None:
    """Write rows until the supervisor sends None or `over` is set: the writer's process."""
    if hasattr(os, "nice"):
        os.nice(_NICE)
    drain = _Drain(spec, spec.ring(block), lambda sentence: supervisor.send(("warning", 0, sentence)))
    try:
        while not over.is_set() and not supervisor.poll(_LOOK):
            drain.drain()
    finally:
        drain.close()


class LocalRecording:
    """A recording of a run whose parts are all in this process.

    Args:
        spec: Of the recording.
    """

    def __init__(self, spec: RecordSpec) -> None:
        # On the virtual clock the loop itself writes where the ring is full: no frame waits for that.
        beside = not spec.simulated
        block = Block(shared=False)
        spec.resize(block)
        self._ring = spec.ring(block)
        self._drain = _Drain(spec, self._ring, partial(warnings.warn, category=RuntimeWarning, stacklevel=2))
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self.recorder = Recorder(self._ring, float(spec.fps), None if beside else self._drain.drain)
        self._directory, self._before = spec.directory, (0, 0)
        if beside:
            self._thread = threading.Thread(target=self._work, name="recorder", daemon=True)
            self._thread.start()

    @classmethod
    def of(cls, spec: RecordSpec | None) -> LocalRecording | None:
        """Return a recording, or None where nothing is recorded."""
        return None if spec is None else cls(spec)

    def end_phase(self) -> dict[str, Any]:
        """Return the report of the phase that has ended, when all its rows are in files."""
        if self._thread is None:
            self._drain.drain()
        wait_until_drained(self._ring, lambda: True)
        before, self._before = self._before, self._ring.counts
        return reported(self._directory, before, self._before)

    def close(self) -> None:
        """End the recording."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(PATIENCE)
        self._drain.close()

    def _work(self) -> None:
        while not self._over.wait(_LOOK):
            self._drain.drain()


def wait_until_drained(ring: RowRing, lives: Callable[[], bool]) -> None:
    """Wait until the writer has written all rows, as long as it lives, and not for ever."""
    deadline = time.monotonic() + PATIENCE
    while not ring.is_drained and lives() and time.monotonic() < deadline:
        time.sleep(_LOOK / 4)


def reported(directory: Path, before: tuple[int, int], after: tuple[int, int]) -> dict[str, Any]:
    """Return what a report says about the recording of a phase, from the ring's counts before and after it."""
    frames, saved = (now - then for then, now in zip(before, after, strict=True))
    return {"directory": str(directory), "frames": saved, "dropped": frames - saved}

"""The load of this machine, of a run's processes, and of NVIDIA's cards where there are any."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import psutil

_KEPT = 240  # readings


@dataclass(frozen=True)
class Card:
    """A graphics card: its name, how busy it is (0 to 1), and its memory in bytes, used and in all."""

    name: str
    busy: float
    used: int
    total: int


@dataclass(frozen=True)
class MachineState:
    """The load of this machine.

    Attributes:
        processor: Of each core, 0 to 1.
        used: Memory in bytes.
        total: Memory in bytes.
        cards: Graphics cards.
        history: Of the last readings: seconds ago, mean of the cores, share of the memory.
    """

    processor: Sequence[float]
    used: int
    total: int
    cards: Sequence[Card]
    history: Sequence[tuple[float, float, float]]


@dataclass(frozen=True)
class Processes:
    """A run's processes: how many, cores that they use, and their resident memory in bytes."""

    count: int
    cores: float
    memory: int


class Load:
    """Reads the load; each reading is of the time since the one before."""

    def __init__(self) -> None:
        """Begin to count."""
        psutil.cpu_percent(percpu=True)
        self._history: deque[tuple[float, float, float]] = deque(maxlen=_KEPT)
        self._known: dict[int, psutil.Process] = {}
        self._cards = _Cards()

    def machine(self) -> MachineState:
        """Return the load of the machine."""
        cores, memory, now = psutil.cpu_percent(percpu=True), psutil.virtual_memory(), time.monotonic()
        used = memory.total - memory.available
        mean = sum(cores) / max(len(cores), 1) / 100
        self._history.append((now, mean, used / memory.total))
        history = [(now - when, *values) for when, *values in self._history]
        return MachineState([core / 100 for core in cores], used, memory.total, self._cards.read(), history)  # type: ignore[arg-type]

    def processes(self, holder: int | None) -> Processes | None:
        """Return the load of a process and of all that it has started; None where it does not live."""
        if holder is None:
            return None
        with suppress(psutil.Error):
            first = self._known.setdefault(holder, psutil.Process(holder))
            living = [first, *first.children(recursive=True)]
            self._known = {**self._known, **{each.pid: self._known.get(each.pid, each) for each in living}}
            cores = memory = 0.0
            for each in living:
                with suppress(psutil.Error):  # it has ended
                    known = self._known[each.pid]
                    cores += known.cpu_percent() / 100
                    memory += known.memory_info().rss
            return Processes(len(living), cores, int(memory))
        self._known.pop(holder, None)
        return None


class _Cards:
    """NVIDIA's library, where it is installed and finds a driver."""

    def __init__(self) -> None:
        self._library: Any = None
        with suppress(ImportError):
            import pynvml

            with suppress(pynvml.NVMLError):
                pynvml.nvmlInit()
                self._library = pynvml

    def read(self) -> list[Card]:
        if (library := self._library) is None:
            return []
        cards = []
        with suppress(library.NVMLError):
            for number in range(library.nvmlDeviceGetCount()):
                handle = library.nvmlDeviceGetHandleByIndex(number)
                name, memory = library.nvmlDeviceGetName(handle), library.nvmlDeviceGetMemoryInfo(handle)
                busy = library.nvmlDeviceGetUtilizationRates(handle).gpu / 100
                name = name.decode() if isinstance(name, bytes) else name
                cards.append(Card(name, busy, int(memory.used), int(memory.total)))
        return cards

"""Where a contestant of `benchmarks.agent_speed` waits: in the middle of its library's own training loop.

A process reads lines ``go N`` and answers each with ``wall_seconds processor_seconds`` of N agent steps. It stands
still in between, at the next step of its environment, so what is timed is the loop as users run it, from one step of
the environment to the N-th next.

What all contestants are told is here too: Pong, four emulated frames per step, 84 x 84 grey, a stack of four; the
Nature network's convolutions, batch 32, an update every 4 steps, Adam, a target copied every 8000 steps, a replay of
50,000, epsilon 0.01 where noise does not explore. Only Python's own library is imported.
"""

from __future__ import annotations

import os
import sys
import time
from typing import NamedTuple

GAME = "PongNoFrameskip-v4"
BATCH, UPDATE_PERIOD, TARGET_PERIOD = 32, 4, 8000  # transitions, agent steps, agent steps
CAPACITY = 50_000  # transitions
EPSILON, GAMMA = 0.01, 0.99
ATOMS, VMAX, HORIZON = 51, 10.0, 3  # of the Rainbow family; the support begins at -VMAX
ALPHA, BETA = 0.5, 0.4  # exponents of priorities and of importance weights
FOREVER = 10**9  # agent steps


class Told(NamedTuple):
    """What a contestant's command line says: ``AGENT THREADS LEARNING_STARTS [HOW ...]``."""

    agent: str
    threads: int
    learning_starts: int  # agent steps
    how: tuple[str, ...]


def told() -> Told:
    """Read the command line."""
    agent, threads, learning_starts, *how = sys.argv[1:]
    return Told(agent, int(threads), int(learning_starts), tuple(how))


class Turnstile:
    """Lets as many steps through as standard input says, then answers with the time that they took, and waits.

    What the library prints goes to standard error, since standard output is for the answers.
    """

    def __init__(self) -> None:
        self._answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self._left = 0
        self._begin: tuple[float, float] | None = None

    def enter(self) -> None:
        """Come to the next step, and wait if need be; the end of the input ends the process."""
        if self._left == 0:
            self._answer()
            self._left = self._asked()
            self._begin = time.perf_counter(), time.process_time()
        self._left -= 1

    def _answer(self) -> None:
        if self._begin is not None:
            wall, cpu = self._begin
            print(time.perf_counter() - wall, time.process_time() - cpu, file=self._answers, flush=True)

    def _asked(self) -> int:
        line = sys.stdin.readline()
        if not line:
            os._exit(0)  # the library's threads and files are not waited for
        return int(line.removeprefix("go "))


def limit_threads(threads: int) -> None:
    """Let NumPy, OpenCV and PyTorch compute with so many threads; to be called before they are imported."""
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = str(threads)
    os.environ["NUMBA_NUM_THREADS"] = str(threads)
    import cv2
    import torch

    torch.set_num_threads(threads)
    cv2.setNumThreads(threads)

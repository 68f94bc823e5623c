"""A contestant that plays in a process of its own, as many agent steps at a time as it is told.

The process reads lines ``go N`` and answers each with ``wall_seconds processor_seconds`` of N steps.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

__all__ = ["Player", "dqn_player"]


class Player:
    """A contestant in a process of its own.

    Args:
        command: What runs it.
        steps: Agent steps of one window.
        cwd: Its working directory; ours where None.
        environment: Its environment variables; ours where None.
    """

    def __init__(
        self, command: list[str], steps: int, cwd: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        pipe, null = subprocess.PIPE, subprocess.DEVNULL
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=null, text=True, cwd=cwd, env=environment
        )
        self._command, self._steps = command, steps
        self.per_processor_second: list[float] = []

    def close(self) -> None:
        """Close the pipe, on which the process ends."""
        self._process.communicate()

    def play(self, steps: int) -> tuple[float, float]:
        """Return the wall-clock and the processor seconds of so many steps."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(f"go {steps}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has died, and gives no answer
        answer = self._process.stdout.readline().split()
        if not answer:
            raise RuntimeError(f"a contestant died: run {' '.join(self._command)} and type 'go 10' to see why")
        wall, cpu = map(float, answer)
        return wall, cpu

    def __call__(self) -> float:
        """Play a window and return its steps per second; those per processor second are kept."""
        wall, cpu = self.play(self._steps)
        self.per_processor_second.append(self._steps / cpu)
        return self._steps / wall


def dqn_player(name: str, threads: int, steps: int) -> Player:
    """Start one of `benchmarks.dqn_players`, which need no Python of their own."""
    return Player([sys.executable, "-m", "benchmarks.dqn_players", name, str(threads)], steps)

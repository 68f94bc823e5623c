"""A process that holds a run's directory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["holder"]

ROOT = Path(__file__).parents[2]
HOLD = """
import sys, time
from pathlib import Path
from async_wrappers.agents.experiment.lock import alone_in
with alone_in(Path(sys.argv[1])) as descriptor:
    {work}
    print("held", flush=True)
    time.sleep(600)
"""


@contextmanager
def holder(directory: Path, work: str = "pass") -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """A process that holds the directory, and what it has said."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD.format(work=work), str(directory)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        said: list[str] = []
        while not said or said[-1] != "held":
            line = process.stdout.readline()
            assert line, "the holder has died"
            said.append(line.strip())
        yield process, said
    finally:
        process.kill()
        process.communicate(timeout=60)

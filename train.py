"""Train and evaluate agents under realtime delay: ``python train.py --help``. Each command is a file in agents/cli."""

from __future__ import annotations

import os
import signal
import sys


def _end_at_once(number: int, frame: object) -> None:
    """End while the libraries are still being imported, which takes seconds."""
    os.write(2, b"\ninterrupted: nothing had begun\n")
    os._exit(130)


def _listen() -> None:
    """Raise KeyboardInterrupt where a signal has ended the process at once until now."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) == _end_at_once:
            signal.signal(number, signal.default_int_handler)


if __name__ == "__main__":
    for _number in (signal.SIGINT, signal.SIGTERM):
        # nohup and `&` let SIGINT be ignored, and it stays so; SIGTERM always ends the run.
        if _number == signal.SIGTERM or signal.getsignal(_number) != signal.SIG_IGN:
            signal.signal(_number, _end_at_once)

from collections.abc import Sequence
from pathlib import Path

import agents

if Path(agents.__file__ or "").resolve().parent != Path(__file__).resolve().parent / "agents":
    sys.exit(f"train.py: 'agents' was imported from {agents.__file__}, not from beside train.py: uninstall that one")

from agents.cli import command_line


def main(argv: Sequence[str]) -> int:
    """Run the command that the first word names, and return the exit code."""
    return command_line.main(argv, imported=_listen)


if __name__ == "__main__":
    sys.exit(main(sys.argv))

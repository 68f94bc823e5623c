"""A process that ignores SIGINT and SIGTERM, and those that it starts, which do not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]

SCRIPT = """
import multiprocessing, os, signal, subprocess, sys, time
from async_wrappers.fleet.child import ignore_signals, signals_blocked

signal.signal(signal.SIGINT, signal.SIG_DFL)  # whatever it was started with
def wait(pipe):
    try:
        pipe.send("up")
        time.sleep(600)
    except KeyboardInterrupt:
        os._exit(7)

if __name__ == "__main__":
    with signals_blocked():
        program = subprocess.Popen([sys.executable, "-c", '''
import os, signal
from async_wrappers.fleet.child import ignore_signals
os.kill(os.getpid(), signal.SIGTERM)  # while it is being started
os.kill(os.getpid(), signal.SIGINT)
ignore_signals()
print("lives")
'''], stdout=subprocess.PIPE, text=True)
    out, _ = program.communicate(timeout=60)
    print("started under a mask:", program.returncode, out.strip())
    ignore_signals()
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(os.getpid(), number)
    print("signals:", sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())))
    program = subprocess.Popen(["sleep", "600"])
    program.terminate()
    print("program:", program.wait(60))
    for number in (signal.SIGTERM, signal.SIGINT):
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.get_context("fork").Process(target=wait, args=(theirs,))
        process.start()
        ours.recv()
        os.kill(process.pid, number)
        process.join(60)
        print("forked:", process.exitcode)
"""


def test_it_is_not_ended_but_what_it_starts_can_be(tmp_path: Path) -> None:
    """An environment may start its game as a program, or workers of its own, and end them when it is closed."""
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(path)],
        capture_output=True,
        text=True,
        timeout=120,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "started under a mask: 0 lives",
        "signals: []",
        "program: -15",
        "forked: -15",
        "forked: 7",
    ]

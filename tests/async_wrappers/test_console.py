"""A command in a pipeline ends quietly when nobody reads its output any more, as in ``train.py plot DIR | head``."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path

import pytest

from async_wrappers.console import main
from async_wrappers.printing import in_pipeline
from tests.worlds.made_up_sweep import made_up_sweep

ROOT = Path(__file__).parents[2]
TRAIN, TOOLS = [str(ROOT / "train.py")], ["-m", "async_wrappers"]
PLAN = ["plan", "--latency-ms", "50", "--seconds", "1"]


def unread(words: list[str], *, buffered: bool, errors: bool = False) -> tuple[int, str]:
    """Run Python with a standard output that nobody reads; return the exit code and the standard error.

    Args:
        words: Python's.
        buffered: Whether what is printed is written at the end alone, and not line by line.
        errors: Whether standard error goes the same way, as in ``2>&1 | head``.
    """
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, *words],
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "" if buffered else "1"},
            stdout=writing,
            stderr=writing if errors else subprocess.PIPE,
            text=True,
            timeout=120,
        )
    finally:
        os.close(writing)
    return done.returncode, done.stderr or ""


@pytest.mark.parametrize(
    ("words", "buffered"),
    [
        ([*TRAIN, "--help"], True),
        ([*TRAIN, *PLAN], False),
        ([*TOOLS, *PLAN], True),
        ([*TOOLS, *PLAN], False),
        ([*TOOLS, "--help"], True),  # unbuffered, argparse drops the error and the command ends with 0
    ],
    ids=lambda value: "_".join(value[1:]) if isinstance(value, list) else f"buffered={value}",
)
def test_a_command_ends_quietly_with_the_shells_code_of_a_broken_pipe(words: list[str], buffered: bool) -> None:
    assert unread(words, buffered=buffered) == (141, "")


def test_an_error_that_nobody_reads_is_quiet_too() -> None:
    assert unread([*TRAIN, "bake"], buffered=False, errors=True)[0] == 141


AT_THE_END = """
import atexit, os, signal, sys
from async_wrappers import console

def main(argv):
    atexit.register(os.kill, os.getpid(), signal.SIGTERM)  # as late as a library's function
    console._listen()
    return 130

console.main = main
console.run()
"""


def test_a_second_signal_at_the_very_end_is_quiet_and_keeps_the_exit_code() -> None:
    done = subprocess.run(
        [sys.executable, "-c", AT_THE_END], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (130, "")


CLOSED = """
import os, subprocess, sys
from async_wrappers import console
assert (sys.stdin, sys.stdout, sys.stderr) == (None, None, None)
sys.argv = ["train.py", "bake"]
try:
    console.run()
except SystemExit as ended:
    opened = os.open(os.devnull, os.O_RDONLY)
    child = subprocess.run([sys.executable, "-c", "import sys; sys.exit(9 * (None not in (sys.stdin, sys.stdout)))"])
    os._exit(100 + ended.code if opened > 2 and not sys.stdin.read() and child.returncode == 9 else 1)
"""


@pytest.mark.skipif(os.name != "posix", reason="the system's processes have no numbers of files")
def test_a_command_does_its_work_where_the_standard_streams_are_closed() -> None:
    command = shlex.join([sys.executable, "-c", CLOSED])
    done = subprocess.run(["sh", "-c", f"exec {command} <&- >&- 2>&-"], cwd=ROOT, timeout=120, check=False)
    assert done.returncode == 102


@contextmanager
def standard_output(*, is_read: bool) -> Iterator[None]:
    """Makes standard output a pipe whose reader is there, or has gone."""
    reading, writing = os.pipe()
    # pytest puts its own streams in place again between a fixture and its test, so this is no fixture.
    with (
        open(writing, "w") as out,
        open(reading) as end,
        open(os.devnull, "w") as errors,
        redirect_stdout(out),
        redirect_stderr(errors),
    ):
        if not is_read:
            end.close()
        yield


def bake(code: int = 0) -> int:
    print("bread")
    return code


def test_a_command_that_is_read_keeps_its_exit_code() -> None:
    with standard_output(is_read=True):
        assert [in_pipeline(bake), in_pipeline(partial(bake, 1))] == [0, 1]
        assert in_pipeline(lambda: sys.exit(2)) == 2
        assert in_pipeline(lambda: sys.exit("no flour")) == "no flour"


def test_what_is_in_the_buffer_when_the_reader_leaves_is_dropped() -> None:
    with standard_output(is_read=False):
        assert in_pipeline(bake) == 141
        sys.stdout.flush()


def test_the_plot_of_a_sweep_ends_so_too_and_its_page_is_written(tmp_path: Path) -> None:
    made_up_sweep(tmp_path, ["RealtimeDelay.delay = 1, 8"], seeds=1)
    with standard_output(is_read=False):
        assert in_pipeline(partial(main, ["train.py", "plot", str(tmp_path)])) == 141
    assert (tmp_path / "report.html").is_file()


def test_the_broken_pipe_of_a_worker_is_shown() -> None:
    def ask_a_dead_worker() -> int:
        raise BrokenPipeError("worker 1")

    with standard_output(is_read=True), pytest.raises(BrokenPipeError, match="worker 1"):
        in_pipeline(ask_a_dead_worker)


def test_another_error_is_shown_though_nobody_reads_the_output() -> None:
    def burn() -> int:
        raise ZeroDivisionError("the oven")

    with standard_output(is_read=False), pytest.raises(ZeroDivisionError, match="the oven"):
        in_pipeline(burn)


def test_a_process_without_standard_output_keeps_its_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert in_pipeline(lambda: 1) == 1

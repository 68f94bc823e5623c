"""What the machine or the shell does not give is said in one sentence, with the right exit code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.worlds.command_line import ROOT, Done, bound, place
from tests.worlds.command_line import in_a_fork as fork

__all__ = ["place"]

MANY = ("create_runner.schedule = 'vector'", "VectorRunner.num_envs = 8", "VectorRunner.processes = 4")


def one_sentence(done: Done) -> str:
    """Return the last line of what a command says, which has no traceback."""
    assert "Traceback" not in done.err, done.err
    return done.err.splitlines()[-1].removeprefix("train.py: ")


def test_too_few_descriptors_for_processes(place: Path) -> None:
    done = fork(place, "--base_dir", "run", "--gin_files", "mine.gin", *bound(*MANY), descriptors=24)
    assert done.code == 1, done.err
    assert re.fullmatch(
        r"process \d of ProcessEnvs cannot start \((Too many open files|Bad file descriptor)\): raise the limit of "
        r"open files \(ulimit -n\), or ask for fewer processes than 4",
        one_sentence(done),
    )


def test_a_process_that_cannot_start_at_all(place: Path) -> None:
    (place / "train.py").write_text(
        "import multiprocessing, runpy; multiprocessing.set_executable('/bin/false'); "
        f"runpy.run_path({str(ROOT / 'train.py')!r}, run_name='__main__')"
    )
    done = fork(place, "--base_dir", "run", "--gin_files", "mine.gin", *bound(*MANY), script=place / "train.py")
    assert done.code == 1, done.err
    sentence = one_sentence(done)
    assert re.fullmatch(r"process \d of ProcessEnvs .*, before it had finished a step", sentence), sentence


def test_a_replay_that_memory_does_not_hold(place: Path) -> None:
    words = ("--base_dir", "run", "--gin_files", "mine.gin", *bound("DQNAgent.replay_capacity = 1_000_000_000"))
    done = fork(place, *words, memory=500_000_000)
    assert done.code == 2, done.err
    assert re.fullmatch(
        r"replay_capacity must be what memory holds, got 1,000,000,000 observations \(Unable to allocate [^\n]+\): "
        r"bind a smaller one",
        one_sentence(done),
    )
    assert not (place / "run").exists()


@pytest.mark.parametrize("below", ["", "/run"])
def test_a_directory_that_is_a_dangling_link(below: str, place: Path) -> None:
    (place / "dangling").symlink_to("nowhere")
    done = fork(place, "--base_dir", f"dangling{below}", "--gin_files", "mine.gin")
    what = "lies in dangling," if below else "is"
    remedy = "which is not there: make it, or name another"
    assert (done.code, one_sentence(done)) == (2, f"--base_dir dangling{below} {what} a link to nowhere, {remedy}")


def test_a_name_that_the_output_cannot_encode(place: Path) -> None:
    quick = bound("Runner.num_iterations = 1", "Runner.report_episodes = 0")
    words = ("--base_dir", "données", "--gin_files", "mine.gin", *quick)
    done = fork(place, *words, PYTHONIOENCODING="ascii:strict")
    assert (done.code, "Traceback" in done.err) == (0, False), done.err
    assert done.out.startswith("base_dir: donn\\xe9es\n")
    assert (place / "données" / "config.gin").is_file()


def test_nobody_reads_what_is_refused(place: Path) -> None:
    shell = f"'{sys.executable}' -u '{ROOT / 'train.py'}' plot | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", shell], cwd=place, capture_output=True, text=True, timeout=200)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr

"""One trial of a sweep, its process and its files; and the local engine.

A trial's process runs `main`, below. Its standard input carries the pickled trial, after the pickle's length in eight
bytes, and then stays open. The trial ends when that input does, so that no trial outlives its sweep, even a sweep that
was killed with SIGKILL. A trial that is interrupted with SIGTERM gets a KeyboardInterrupt and may save its progress.

The files of a trial's directory alone decide its status: sweeps keep no other record. A trial with ``result.json`` is
finished, however its process ended, because the result is the last file that it writes. A trial with ``failure.json``
alone has failed. Every other trial is waiting: it has not begun, or it was cut off.

The local engine is a pool of such processes, one per trial, which survives whatever a trial does.
"""

from __future__ import annotations

import json
import numbers
import os
import pickle
import runpy
import select
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from async_wrappers.agents.experiment.metrics import read_iterations
from async_wrappers.files import write_text_atomically
from async_wrappers.ray_cluster import python_path

RESULT = "result.json"
FAILURE = "failure.json"
SPENT = "spent.json"  # of a trial that is not finished: the seconds of its processes so far
_LOG = "log.txt"
_BEAT = 5.0  # seconds between two notes of them, as a process that is killed says nothing

Metrics = Mapping[str, float | Sequence[float]]
"""Numbers by name: one per trial, or a list with one per iteration."""

TrialFunction = Callable[[dict[str, Any], int, Path], Metrics]
"""From (bindings of the point, seed, directory) to metrics."""

OnChange = Callable[[Path, str], None]
"""Called with a trial's directory and ``"running"``, ``"finished"``, ``"failed"`` or ``"cut off"``, as it happens."""

# SIGHUP, SIGINT, SIGKILL, SIGTERM: somebody else, or a machine without memory, ends a process with them. Other signals
# are its own error.
_FROM_OUTSIDE = (1, 2, 9, 15)
_INTERRUPTED = 130  # the exit code of train.py after SIGTERM or SIGINT
# Seconds that an interrupted trial has to save its progress.
_TIME_TO_SAVE = 15
# Where `async_wrappers` is: the clone, or site-packages.
_CHILD = "from async_wrappers.agents.sweep.trial import main; main()"
# Metrics of each phase of an iteration. Those of encounters are of games that go from one to the next.
_PLAYED = ("average_return", "average_steps_per_second", "actions_per_frame", "updates_per_action")
_ENCOUNTERS = ("wins", "losses", "encounter")
_METRIC_OF_AGENT = {"trained": "final_return", "random": "random_return", "no-op": "noop_return"}


class TrialsCutOff(RuntimeError):
    """Trials have been ended that had not ended by themselves, nor failed; the message is a sentence that says why."""


def refuse_cut_off(directories: Iterable[Path]) -> None:
    """Name trials that were killed from outside.

    Raises:
        TrialsCutOff: There are some.
    """
    if cut := sorted(each.name for each in directories):
        which = f"trial {cut[0]} was" if len(cut) == 1 else f"trials {', '.join(cut)} were"
        raise TrialsCutOff(f"{which} killed from outside (see log.txt): the same call continues what is left")


def trial_status(directory: Path) -> str:
    """Return whether the trial of a directory is ``"finished"``, ``"failed"`` or ``"waiting"``."""
    if (directory / RESULT).is_file():
        return "finished"
    return "failed" if (directory / FAILURE).is_file() else "waiting"


# The trial's task.


@dataclass(frozen=True)
class GinTrial:
    """A trial that is a run of train.py; its metrics are those of the iterations and of the closing table.

    Args:
        module: The module that is run like train.py, which an installation without the clone lacks.
        arguments: ``--gin_files`` and ``--gin_bindings`` that all trials share.
    """

    module: str
    arguments: tuple[str, ...]

    def words(self, bindings: Mapping[str, Any], seed: int, base_dir: Path) -> list[str]:
        """Return the words of a trial's command line, after the program."""
        own = [word for key, value in bindings.items() for word in ("--gin_bindings", f"{key} = {value}")]
        # A sweep over agents has bindings that only some of its trials read; it has checked that each is read by one.
        seed_words = ["--seed", str(seed), "--allow_unread"]
        return ["--base_dir", str(base_dir), *self.arguments, *own, *seed_words]

    def __call__(self, bindings: dict[str, Any], seed: int, base_dir: Path) -> Metrics:
        """Run as train.py does, which continues a run that was cut off."""
        sys.argv = ["train.py", *self.words(bindings, seed, base_dir)]
        try:
            runpy.run_module(self.module, run_name="__main__")
        except SystemExit as end:
            if end.code:
                raise
        return run_metrics(base_dir)


@dataclass(frozen=True)
class PythonTrial:
    """A trial in Python, whose process first imports what the program has imported.

    A function of the program itself is pickled with what it names, and an environment that `gymnasium.make` finds by
    its id it does not name.

    Args:
        function: The trial.
        modules: Names of modules; those that the process does not find are left out.
    """

    function: TrialFunction
    modules: tuple[str, ...]

    def __call__(self, bindings: dict[str, Any], seed: int, base_dir: Path) -> Metrics:
        """Run the function."""
        for name in self.modules:
            with suppress(ImportError):
                import_module(name)
        return self.function(bindings, seed, base_dir)


def imported_by_program() -> tuple[str, ...]:
    """Return the modules of others than Python that the program, or the notebook, has imported at its top."""
    names: dict[str, None] = {}
    for value in list(vars(sys.modules["__main__"]).values()):
        name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        if isinstance(value, ModuleType | type | FunctionType) and isinstance(name, str):
            names[name] = None
    return tuple(name for name in names if name.partition(".")[0] not in {"__main__", *sys.stdlib_module_names})


def run_metrics(base_dir: Path) -> dict[str, float | list[float]]:
    """Return the metrics of a run of train.py: lists have a value per iteration."""
    lines = read_iterations(base_dir)
    by_phase = [f"{phase}_{what}" for phase in ("train", "eval") for what in (*_PLAYED, *_ENCOUNTERS)]
    metrics = _series(lines, ["frames", *by_phase])
    returns = [score for line in lines for score in line.get("train_episode_returns", [])]
    if returns:
        metrics["training_return"] = statistics.fmean(returns)
    report = base_dir / "report.json"
    for row in json.loads(report.read_text()) if report.is_file() else []:
        if row["agent"] in _METRIC_OF_AGENT:  # a run without a closing table reports its training alone
            metrics[_METRIC_OF_AGENT[row["agent"]]] = row["mean"]
    return metrics


def _series(lines: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, float | list[float]]:
    """Return the metrics that every iteration has, as lists with a value per iteration."""
    return {name: [line[name] for line in lines] for name in names if lines and all(name in line for line in lines)}


# The trial's process, from inside.


def main() -> None:
    """Run the trial that the standard input describes; the exit code is 0 only once its result is on the disk."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    size = int.from_bytes(sys.stdin.buffer.read(8), "little")
    # The parent process made this pickle.
    trial, bindings, seed, base_dir = pickle.loads(sys.stdin.buffer.read(size))
    spent = Spent(base_dir)
    threading.Thread(target=_end_with_the_parent, args=(spent,), daemon=True).start()
    try:
        metrics = trial(bindings, seed, base_dir)
    finally:
        spent.note()
    if not isinstance(metrics, Mapping):
        raise ValueError(f"a trial must return a mapping of metrics, got {type(metrics).__name__}")
    metrics = {str(name): _numbers(name, value) for name, value in metrics.items()}
    _write_json(base_dir / RESULT, {"metrics": metrics, "seconds": spent.seconds})
    (base_dir / SPENT).unlink(missing_ok=True)


def _end_with_the_parent(spent: Spent) -> None:
    while not select.select([sys.stdin.fileno()], [], [], _BEAT)[0]:
        spent.note()
    os._exit(1)


class Spent:
    """How long the processes of a trial have run in all.

    Args:
        directory: The trial's.
        clock: Gives the time in seconds.
    """

    def __init__(self, directory: Path, clock: Callable[[], float] = time.perf_counter) -> None:
        """Read what earlier processes noted; this one begins now."""
        self._file, self._clock, self._begin = directory / SPENT, clock, clock()
        self._earlier = seconds_spent(directory)

    @property
    def seconds(self) -> float:
        """Those of the earlier processes, and of this one until now."""
        return self._earlier + self._clock() - self._begin

    def note(self) -> None:
        """Write them down for the next process."""
        # A full disk ends no trial here.
        with suppress(OSError):
            _write_json(self._file, {"seconds": self.seconds})


def seconds_spent(directory: Path) -> float:
    """Return the seconds that the processes of an unfinished trial have noted; 0 before the first."""
    with suppress(OSError, ValueError, KeyError):
        return float(json.loads((directory / SPENT).read_text())["seconds"])
    return 0.0


def _numbers(name: str, value: Any) -> float | list[float]:
    if isinstance(value, numbers.Real):
        return float(value)
    try:
        return [float(number) for number in value]
    except (TypeError, ValueError):
        raise ValueError(f"metric {name!r} must be a number or a list of numbers, got {value!r}") from None


def _write_json(path: Path, facts: Mapping[str, Any]) -> None:
    write_text_atomically(path, json.dumps(facts, indent=1) + "\n")


# The trial's process, from outside: the engine that runs it starts it, ends it, and records its end.


class TrialProcess(subprocess.Popen[bytes]):
    """A trial's process, on one thread. It removes the trial's older failure as it starts.

    Args:
        directory: The trial's directory; its output goes to ``log.txt`` there.
        payload: The pickled trial, for its standard input.
        lock: A file descriptor that it holds open as long as it lives; None for none.
        path: Its ``PYTHONPATH``.
        where: Its working directory; None for the current one.
    """

    def __init__(self, directory: Path, payload: bytes, lock: int | None, path: str, where: str | None = None) -> None:
        self._directory, self._begin = directory, time.perf_counter()
        (directory / FAILURE).unlink(missing_ok=True)
        one_thread = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        with open(directory / _LOG, "ab") as log:
            super().__init__(
                [sys.executable, "-P", "-c", _CHILD],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=where,
                env={**os.environ, **one_thread, "PYTHONPATH": path},
                # An interrupt from the keyboard reaches the sweep alone, which then ends its trials in order.
                start_new_session=True,
                pass_fds=() if lock is None else (lock,),
            )
        assert self.stdin is not None
        try:
            self.stdin.write(len(payload).to_bytes(8, "little") + payload)
            self.stdin.flush()
        except BrokenPipeError:
            # The process has died already, and its exit code is read later. The payload is still in the pipe's buffer,
            # and a later close would have to write it; so the pipe is closed here.
            with suppress(BrokenPipeError):
                self.stdin.close()

    @staticmethod
    def end_all(processes: Sequence[TrialProcess]) -> None:
        """Interrupt processes, so that they can save their progress; kill those that take longer than 15 s."""
        for process in processes:
            process.terminate()
        deadline = time.monotonic() + _TIME_TO_SAVE
        for process in processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()

    def record_end(self) -> str:
        """Return ``"finished"`` for a trial with a result, and ``"cut off"`` for one that was killed from outside.

        Record why another one failed, and return ``"failed"``.
        """
        if (self._directory / RESULT).is_file():
            with suppress(OSError):
                (self._directory / FAILURE).unlink(missing_ok=True)
            return "finished"
        seconds, code = time.perf_counter() - self._begin, self.returncode
        if code == _INTERRUPTED or -code in _FROM_OUTSIDE:
            return "cut off"
        lines = (self._directory / _LOG).read_text(errors="replace").splitlines()
        # An error's message comes before the names of the gin configurables in which it was raised.
        printed = [line.strip() for line in lines if line.strip() and not line.startswith("  In call to configurable ")]
        killed = f"killed by {signal.Signals(-code).name}" if code < 0 else "no result"
        return record_failure(self._directory, printed[-1] if printed and code > 0 else killed, lines, code, seconds)


def record_failure(
    directory: Path, error: str, log: Sequence[str] = (), code: int | None = None, seconds: float = 0.0
) -> str:
    """Record a trial's error and return ``"failed"``."""
    facts = {"error": error, "exit_code": code, "seconds": seconds, "log": list(log[-30:])}
    # A full disk must not stop the other trials.
    with suppress(OSError):
        _write_json(directory / FAILURE, facts)
    return "failed"


def record_stop(directory: Path, seconds: float) -> None:
    """Record the metrics of a trial that a scheduler ended: its iterations, and no closing score.

    Args:
        directory: The trial's.
        seconds: Of its last process, if that has noted none.
    """
    lines = read_iterations(directory)
    names = [name for name, value in lines[-1].items() if isinstance(value, int | float) and name != "iteration"]
    seconds = max(seconds, seconds_spent(directory))
    facts = {"metrics": _series(lines, names), "seconds": seconds, "stopped_after": lines[-1]["iteration"]}
    _write_json(directory / RESULT, facts)


def run_pool(payloads: Mapping[Path, bytes], jobs: int, lock: int | None, on_change: OnChange) -> None:
    """Run one process per directory, `jobs` at a time, until all have ended.

    Args:
        payloads: Pickled trials, by the trial's directory.
        jobs: Processes at a time.
        lock: A file descriptor that the processes hold open as long as they live.
        on_change: Called when a trial begins or ends, from several threads.

    Raises:
        TrialsCutOff: Some were killed from outside; they are not marked as failed.
        KeyboardInterrupt: Interrupted; the trials have been ended, and are not marked as failed.
    """
    running: dict[Path, TrialProcess] = {}
    cut: list[Path] = []
    stopping = threading.Event()
    path = python_path()

    def run(directory: Path, payload: bytes) -> None:
        if stopping.is_set():
            return
        on_change(directory, "running")
        # There may be no room for its log, or no memory for another process.
        try:
            running[directory] = process = TrialProcess(directory, payload, lock, path)
        except OSError as error:
            on_change(directory, record_failure(directory, str(error)))
            return
        # The pool may have been stopped since the check above, before this process was in the table.
        if stopping.is_set():
            process.terminate()
        # Leaving the block waits for the process and closes its input.
        with process:
            process.wait()
        del running[directory]
        if not stopping.is_set():
            status = process.record_end()
            if status == "cut off":
                cut.append(directory)
            on_change(directory, status)

    # A thread per trial only waits for its process, so that no time is lost between two trials.
    with ThreadPoolExecutor(jobs) as threads:
        futures = [threads.submit(run, directory, payload) for directory, payload in payloads.items()]
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException:
            stopping.set()
            TrialProcess.end_all(list(running.values()))
            raise
    refuse_cut_off(cut)

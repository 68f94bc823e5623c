"""What a run survives: workers and learners killed while it plays, and the whole of it killed with its main process.

* ``children``: 60 s at 60 frames a second with 8 workers (100 ms of simulated inference) and a learner; every second a
  random worker gets SIGKILL, the learner twice in all. Hold: at most 0.1 % of the frames more than half a frame late,
  every worker back, no process and no shared memory left.
* ``train``: ``train.py`` with configs/live/cartpole.gin in phases of a second, with two workers; at random moments,
  those of the start included, one of its processes gets a signal: a worker, the learner or the fork server SIGKILL; the
  group SIGTERM, or SIGINT; the main process SIGKILL; the learner SIGSTOP, and then the main process SIGTERM. Hold:
  after the first three the same run goes on to its next checkpoint; after a signal that ends it, it exits with 130 and
  a good checkpoint, or is gone with all its children, and the next one goes on from the newest checkpoint.

    python -m benchmarks.chaos [children] [train] [--seconds 60] [--kills 20] [--seed 1]
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from async_wrappers import AsyncRunner
from benchmarks.frame_loop import learning_runner
from benchmarks.measuring import head, row, run_parts

ROOT = Path(__file__).parents[1]


def kill_children(runner: AsyncRunner, seconds: float, killed: list[str]) -> None:
    """Kill a random worker every second, and the learner twice."""
    rng = random.Random(0)
    end = time.monotonic() + seconds
    learner_at = [time.monotonic() + seconds / 3, time.monotonic() + 2 * seconds / 3]
    while (now := time.monotonic()) < end - 1:
        backend = runner._backend
        assert backend is not None
        member = rng.choice(backend._workers)  # type: ignore[attr-defined]
        if learner_at and now > learner_at[0]:
            learner_at.pop(0)
            member = backend._learners[0]  # type: ignore[attr-defined]
        if member.child.is_alive() and member.child.process.pid:
            killed.append(member.name)
            psutil.Process(member.child.process.pid).send_signal(signal.SIGKILL)
        time.sleep(1)


def children(args: Namespace) -> None:
    """Print what became of a run whose children are killed."""
    shared, killed = segments(), list[str]()
    runner = learning_runner(8, 60)
    with runner:
        runner.run(seconds=1)  # all is up
        children = psutil.Process().children(recursive=True)
        killer = threading.Thread(target=kill_children, args=(runner, args.seconds, killed))
        killer.start()
        report = runner.run(seconds=args.seconds)
        killer.join()
        used = {span.worker for span in runner.run(seconds=2).spans}
    time.sleep(1)
    names = [" ".join(each.cmdline()) for each in alive(children)]
    # These two are Python's own: it starts them once, and they end with the process that asked for them.
    names = [name for name in names if "multiprocessing.forkserver" not in name and "resource_tracker" not in name]
    print(f"\nkilled {len(killed)}: {killed.count('learner 0')} times the learner\n{report}")
    print(
        f"late by more than half a frame: {report.frames['missed_deadlines'] / report.frames['total']:.3%}; workers at "
        f"work afterwards: {len(used)} of 8; left in /dev/shm: {sorted(segments() - shared)}; processes left: {names}"
    )


def segments() -> set[str]:
    """Return the names in shared memory."""
    return {path.name for path in Path("/dev/shm").iterdir()}


def alive(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Return those that have not ended."""
    found = []
    for each in processes:
        with suppress(psutil.NoSuchProcess):
            if each.status() != psutil.STATUS_ZOMBIE:
                found.append(each)
    return found


QUICK = (
    "Runner.num_iterations = 100_000",
    "Runner.training_steps = 100",  # frames
    "Runner.evaluation_steps = 25",  # frames
    "Runner.max_steps_per_episode = 50",  # frames
    "AsyncRunner.fps = 100",
    "AsyncRunner.calibration_time = 0.2",
    "AsyncRunner.updates_per_transition = None",
    "DQNAgent.min_replay_history = 20",  # steps
    "DQNAgent.batch_size = 8",
    "DQNAgent.replay_capacity = 2_000",  # observations
    "MLPTorso.hidden = (8,)",
)
BLOWS = {  # and how often in a hundred: those that end the run cost a start each
    "worker": 24,
    "learner": 24,
    "fork server": 20,
    "group SIGTERM": 8,
    "group SIGINT": 8,
    "main SIGKILL": 8,
    "learner stopped, SIGTERM": 8,
}
GOING_ON = "worker", "learner", "fork server"  # what a run survives
GOES_ON = 120.0  # seconds in which a run reaches its next checkpoint, on however busy a machine
END = 120.0  # seconds in which one that was told to end has ended


class Run:
    """A run of `train.py` in a process group of its own, and what it has printed.

    Args:
        base: Its directory.
    """

    def __init__(self, base: Path) -> None:
        command = [sys.executable, "train.py", "--base_dir", str(base), "--gin_files", "configs/live/cartpole.gin"]
        for binding in QUICK:
            command += ["--gin_bindings", binding]
        self._base, self._log = base, base.with_suffix(".log")
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background job ignores it
            )
        self.began = time.monotonic()

    def said(self) -> str:
        """Return what it has printed."""
        return self._log.read_text()

    def wait_for(self, text: str) -> float:
        """Return the seconds from its start until it had printed a text."""
        self._until(lambda: text in self.said(), f"{text!r} within {GOES_ON:g} s")
        return time.monotonic() - self.began

    def goes_on(self) -> None:
        """Wait for two more iterations: the first may have been done but for its line."""
        done = self.said().count("\niteration")
        self._until(lambda: self.said().count("\niteration") >= done + 2, f"two more iterations in {GOES_ON:g} s")

    def _until(self, holds: Any, what: str) -> None:
        deadline = time.monotonic() + GOES_ON
        while not holds():
            assert self.process.poll() is None, f"ended with {self.process.returncode}: {self.said()}"
            assert time.monotonic() < deadline, f"not {what}: {self.said()}"
            time.sleep(0.05)

    def children(self) -> list[psutil.Process]:
        """Return its processes by what they were started with, whoever their parent is by now."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, ProcessLookupError):
                if os.getsid(process.pid) == self.process.pid != process.pid:
                    found.append(process)
        return alive(found)

    def find(self, what: str) -> psutil.Process | None:
        """Return a worker, the learner or the fork server, if it is there."""
        servers = [each for each in self.children() if "forkserver" in " ".join(each.cmdline())]
        main = [each for each in servers if each.ppid() == self.process.pid]
        if what == "fork server":
            return main[0] if main else None
        forked = sorted((each for each in servers if each not in main), key=lambda each: each.create_time())
        # the command line does not tell a learner from a worker; the learner, which never rests, has used the most time
        busy = sorted(forked, key=lambda each: -sum(each.cpu_times()[:2]))
        chosen = busy[:1] if what == "learner" else busy[1:]
        return random.choice(chosen) if chosen else None

    def end(self) -> None:
        """Kill what is left, so that nothing outlives the benchmark."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def strike(self, blow: str) -> bool:
        """Send a signal to one process; return whether it was there."""
        victim = self.find(blow)
        if victim is not None:
            with suppress(psutil.NoSuchProcess):
                victim.kill()
        return victim is not None

    def end_by(self, blow: str) -> float:
        """Send a signal that ends the run; return the seconds until it and its children are gone.

        Raises:
            AssertionError: Something is left, or the exit code or what was printed is not that of such an end.
        """
        children = self.children()
        if blow == "learner stopped, SIGTERM" and (victim := self.find("learner")) is not None:
            with suppress(psutil.NoSuchProcess):
                victim.suspend()
        begin = time.monotonic()
        if blow == "main SIGKILL":
            self.process.kill()
        elif blow == "learner stopped, SIGTERM":
            self.process.terminate()
        else:
            os.killpg(self.process.pid, signal.SIGTERM if "TERM" in blow else signal.SIGINT)
        code = self.process.wait(END)
        _, left = psutil.wait_procs([*children, *self.children()], END)
        assert not left, f"{blow}: left {[each.cmdline() for each in left]}"
        seconds, said = time.monotonic() - begin, self.said()
        imported = "base_dir:" in said
        allowed = (-9,) if blow == "main SIGKILL" else (130,) if imported else (130, -2, -15)
        assert code in allowed, (blow, code, said)
        assert blow == "main SIGKILL" or "Traceback" not in said or not imported, said
        return seconds


def train(args: Namespace) -> None:
    """Print how a live run fared under signals to its processes."""
    from async_wrappers.agents.experiment.checkpoint import Checkpointer

    rng = random.Random(args.seed)
    random.seed(args.seed)
    shared = segments()
    struck, went_on, absent, longest = Counter[str](), Counter[str](), Counter[str](), 0.0
    blows = [name for name, times in BLOWS.items() for _ in range(times)]
    with tempfile.TemporaryDirectory() as directory:
        base = Path(directory) / "run"
        run = Run(base)
        took = run.wait_for("\niteration")
        try:
            for number in range(args.kills):
                if number % len(blows) == 0:
                    rng.shuffle(blows)
                blow = blows[number % len(blows)]
                starting = time.monotonic() - run.began < 1
                time.sleep(rng.uniform(0, 1.2 * took if starting else 3))
                told = f"{number + 1:>4} {blow:<25} {time.monotonic() - run.began:7.1f} s after its start"
                before = Checkpointer(base).numbers()
                struck[blow] += 1
                if blow in GOING_ON:
                    if not run.strike(blow):
                        absent[blow] += 1
                        told += " (not there yet)"
                    run.goes_on()
                else:
                    seconds = run.end_by(blow)
                    longest = max(longest, seconds)
                    good = [each for each, _ in Checkpointer(base).load_each()]
                    assert good == Checkpointer(base).numbers(), "a checkpoint is bad"
                    assert max(good) >= max(before), (good, before)
                    told += f"; gone after {seconds:.1f} s, checkpoint {max(good)}"
                    run = Run(base)
                    if rng.random() < 0.6:  # else the next signal meets it as it starts
                        run.wait_for("\niteration")
                went_on[blow] += 1
                print(told, flush=True)
        finally:
            run.end()
    print("\n" + head("signal to", "sent", "not there yet", "went on"))
    for blow in BLOWS:
        print(row(blow, struck[blow] - absent[blow], absent[blow], went_on[blow]))
    left_over = sorted(segments() - shared)
    print(
        f"{sum(went_on.values())} of {args.kills}; the longest end took {longest:.1f} s; left in /dev/shm: {left_over}"
    )


if __name__ == "__main__":
    run_parts(
        __doc__,
        {"children": children, "train": train},
        seconds=(60.0, "of the children's run"),
        kills=(20, "signals"),
        seed=(1, "of the moments"),
    )

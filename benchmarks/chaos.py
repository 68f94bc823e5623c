"""What a run survives: workers and learners killed while it plays, and the whole of it killed with its main process.

* ``children``: 60 s at 60 frames a second with 8 workers (100 ms of simulated inference) and a learner; every second a
  random worker gets SIGKILL, the learner twice in all. Hold: at most 0.1 % of the frames more than half a frame late,
  every worker back, no process and no shared memory left.
* ``main``: ``train.py`` with configs/live/cartpole.gin gets SIGKILL 20 times, at random moments, and is started again
  in the same directory. Hold: it goes on every time, all checkpoints are good, nothing is left.

    python -m benchmarks.chaos [children] [main] [--seconds 60] [--kills 20]
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path

import psutil

from async_wrappers import AsyncRunner
from benchmarks.frame_loop import BusyLearner, Learning
from benchmarks.staggered_workers import Screens

ROOT = Path(__file__).parents[1]


def kill_children(runner: AsyncRunner, seconds: float, killed: list[str]) -> None:
    """Kill a random worker every second, and the learner twice."""
    rng = random.Random(0)
    end = time.monotonic() + seconds
    learner_at = [time.monotonic() + seconds / 3, time.monotonic() + 2 * seconds / 3]
    while (now := time.monotonic()) < end - 1:
        backend = runner._backend
        assert backend is not None
        child = rng.choice(backend._workers)  # type: ignore[attr-defined]
        if learner_at and now > learner_at[0]:
            learner_at.pop(0)
            child = backend._learners[0]  # type: ignore[attr-defined]
        if child.restart_at is None and child.process.pid:
            killed.append(child.name)
            psutil.Process(child.process.pid).send_signal(signal.SIGKILL)
        time.sleep(1)


def children(seconds: float) -> None:
    """Print what became of a run whose children are killed."""
    shared = {path.name for path in Path("/dev/shm").iterdir()}
    killed: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runner = AsyncRunner(Screens, lambda: Learning(lambda _: 0.1), 8, 60, make_learner=BusyLearner)
    with runner:
        runner.run(seconds=1)  # all is up
        pids = [child.pid for child in psutil.Process().children(recursive=True)]
        killer = threading.Thread(target=kill_children, args=(runner, seconds, killed))
        killer.start()
        report = runner.run(seconds=seconds)
        killer.join()
        back = runner.run(seconds=2)
        used = {span.worker for span in back.spans}
    time.sleep(1)
    left = [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE]
    names = [" ".join(psutil.Process(pid).cmdline())[-70:] for pid in left]
    print(f"\nkilled {len(killed)}: {killed.count('learner 0')} times the learner\n{report}")
    segments = sorted({path.name for path in Path("/dev/shm").iterdir()} - shared)
    print(
        f"late by more than half a frame: {report.frames['missed_deadlines'] / report.frames['total']:.3%}; workers at "
        f"work afterwards: {len(used)} of 8; left in /dev/shm: {segments}; processes left: {names}"
    )


def main_process(kills: int) -> None:
    """Print how often a killed run went on."""
    from agents.experiment.checkpoint import Checkpointer

    rng = random.Random(1)
    with tempfile.TemporaryDirectory() as directory:
        base = Path(directory) / "run"
        command = [sys.executable, "train.py", "--base_dir", str(base), "--gin_files", "configs/live/cartpole.gin"]
        for binding in ("Runner.num_iterations = 1000", "Runner.training_steps = 100", "Runner.evaluation_steps = 50"):
            command += ["--gin_bindings", binding]
        reached: list[int] = []
        for number in range(kills):
            process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            assert process.stdout is not None
            begun = process.stdout.readline()  # base_dir: ...
            assert begun.startswith("base_dir"), begun
            deadline = time.monotonic() + rng.uniform(0, 25)
            while time.monotonic() < deadline and process.poll() is None:
                time.sleep(0.05)
            assert process.poll() is None, process.stdout.read()
            pids = [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
            process.kill()
            process.wait()
            time.sleep(4)
            left = [p for p in pids if psutil.pid_exists(p) and psutil.Process(p).status() != psutil.STATUS_ZOMBIE]
            good = [iteration for iteration, _ in Checkpointer(base).load_each()]
            assert not left, [psutil.Process(pid).cmdline() for pid in left]
            assert good == Checkpointer(base).numbers(), "a checkpoint is bad"
            reached.append(max(good, default=-1))
            print(f"kill {number + 1}: newest good checkpoint {reached[-1]}, processes left {len(left)}", flush=True)
        assert reached == sorted(reached)
        print(f"killed {kills} times; iterations reached: {reached}")


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=[], choices=[[], "children", "main"])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--kills", type=int, default=20)
    arguments = parser.parse_args()
    wanted = arguments.parts or ["children", "main"]
    if "children" in wanted:
        children(arguments.seconds)
    if "main" in wanted:
        main_process(arguments.kills)


if __name__ == "__main__":
    main()

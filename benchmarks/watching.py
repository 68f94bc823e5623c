"""What `train.py watch` costs the run that it watches, and what it costs itself.

* ``row``: microseconds of the environment loop for a frame that is shown: its row and an inference's. Hold: 2 us.
* ``training``: DQN trains CartPole in a process, alone or watched, in turns; a reader asks as an open page does, every
  two seconds. Hold: the median ratio of their frames a second >= 0.99.
* ``live``: 60 frames a second, 10 workers of 100 ms, in turns: nothing shown; snapshots; snapshots that are watched,
  with four pictures a second. Hold: the fresh share falls by 0.1 points at most, and the p99 of the lateness rises by
  0.1 ms at most, medians over the rounds.
* ``idle``: share of a core that `watch` uses where no page is open, and where one is, with 12 runs of 200 iterations.

    python -m benchmarks.watching [row] [training] [live] [idle] [--rounds 5] [--seconds 60] [--frames 20000]

On a busy machine ``--fifo 40`` lets the runs go before all else; `watch` stays an ordinary process.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import psutil

from async_wrappers import AsyncRunner
from async_wrappers.agents.experiment.metrics import add_iteration, read_iterations
from async_wrappers.fleet.block import Block
from async_wrappers.live.memory.glance import Glance
from benchmarks.measuring import FIFO, interleave, print_hold, print_table, quietly, ratios, run_parts

ROOT = Path(__file__).parents[1]
INFERENCE = 0.100  # seconds


@contextmanager
def watched(directory: Path, pictures: bool = False, reads: bool = True) -> Iterator[psutil.Process]:
    """Watch a directory in another process, and ask for the page as a browser does, while the block lasts."""
    command = [sys.executable, str(ROOT / "train.py"), "watch", str(directory), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, preexec_fn=_ordinary)
    reader = None
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found is not None, line
        asked = [(found[0] + "?parts", 2.0)]
        if pictures:
            with urllib.request.urlopen(found[0]) as page:
                picture = re.search(r'data-from="/(run/\w+/picture)"', page.read().decode())
            asked += [] if picture is None else [(found[0] + picture[1], 0.25)]
        if reads:
            context = get_context("spawn")
            ready = context.Event()
            reader = context.Process(target=_read, args=(asked, ready), daemon=True)
            reader.start()
            assert ready.wait(60)
        yield psutil.Process(process.pid)
    finally:
        if reader is not None:
            reader.terminate()
            reader.join(30)
        process.terminate()
        process.wait(30)


def _ordinary() -> None:
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def _read(asked: list[tuple[str, float]], ready: Any) -> None:
    """Ask for each address every so many seconds, and say when that begins.

    A browser is a process of its own, and so is this: a thread beside the loop would hold the interpreter that the loop
    wakes up in.
    """
    _ordinary()
    ready.set()
    due = [0.0] * len(asked)
    while True:
        first = min(range(len(asked)), key=due.__getitem__)
        time.sleep(max(due[first] - time.monotonic(), 0))
        with suppress(OSError), urllib.request.urlopen(asked[first][0], timeout=30) as answer:
            answer.read()
        due[first] = time.monotonic() + asked[first][1]


def row(options: Namespace) -> None:
    """Measure the rows that the loop writes."""
    block = Block(shared=False)
    block.resize(Glance.size())
    glance, times, best = Glance(block), 100_000, float("inf")
    for _ in range(5):
        begin = time.perf_counter()
        for number in range(times):
            glance.frame(0, 3, number, 1_000_000_000 + number, 20_000, number - 6, 4, 1.5)
            glance.inference(number % 10, 3, number, 1_000_000_000, 1_100_000_000)
        best = min(best, (time.perf_counter() - begin) / times)
    print_hold("rows of a frame and of an inference, us", best * 1e6, most=2.0)


def training(options: Namespace) -> None:
    """Measure the frames a second of a training, alone and watched."""

    def rate(watches: bool) -> float:
        with tempfile.TemporaryDirectory() as place:
            base_dir = Path(place) / "run"
            words = ["--gin_files", "configs/dqn/cartpole.gin", "--base_dir", str(base_dir)]
            for binding in (f"training_steps = {options.frames}", "num_iterations = 1", "report_episodes = 0"):
                words += ["--gin_bindings", f"Runner.{binding}"]
            words += ["--gin_bindings", "Runner.evaluation_steps = 0"]
            base_dir.mkdir()
            (base_dir / "metrics").mkdir()
            with watched(base_dir) if watches else nullcontext():
                command = [sys.executable, str(ROOT / "train.py"), *words]
                subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
            return float(read_iterations(base_dir)[0]["train_average_steps_per_second"])

    contestants = {"alone": partial(rate, False), "watched": partial(rate, True)}
    samples = interleave(contestants, options.rounds, warmup=0)
    print_table("frames of training a second", samples, "alone")
    print_hold("speed of a watched training", statistics.median(ratios(samples, "watched", "alone")), least=0.99)


class Screen(gym.Env[Any, Any]):
    """Shows noise of 84 x 84 bytes, and never ends."""

    observation_space = gym.spaces.Box(0, 255, (84, 84), np.uint8)
    action_space = gym.spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Begin with other noise."""
        super().reset(seed=seed)
        self._screens = self.np_random.integers(0, 256, (16, 84, 84), np.uint8)
        self._frame = 0
        return self._screens[0], {}

    def step(self, action: Any) -> Any:
        """Show the next screen."""
        self._frame += 1
        return self._screens[self._frame % 16], 0.0, False, False, {}


def sleep(observation: Any) -> int:
    """Wait as long as an inference takes that computes elsewhere."""
    time.sleep(INFERENCE)
    return 1


def live(options: Namespace) -> None:
    """Measure lateness and fresh share of a live run, alone, shown and watched."""
    lateness: dict[str, list[float]] = {}

    def play(name: str) -> float:
        terms: dict[str, Any] = {"workers": 10, "fps": 60, "default_action": "repeat", "calibration_time": 2.0}
        with tempfile.TemporaryDirectory() as place, quietly(), AsyncRunner(Screen, lambda: sleep, **terms) as runner:
            shown = {} if name == "alone" else {"shown_in": place}
            runner.run(seconds=2, **shown)
            with watched(Path(place), pictures=True) if name == "watched" else nullcontext():
                report = runner.run(seconds=options.seconds, **shown)
        lateness.setdefault(name, []).append(report.lateness_ms["p99"])
        return report.frames["fresh"] / report.frames["total"]

    names = ("alone", "shown", "watched")
    contestants: dict[str, Callable[[], float]] = {name: partial(play, name) for name in names}
    fresh = interleave(contestants, options.rounds, warmup=0)
    print_table(f"share of fresh frames, {options.seconds} s", fresh, "alone", 4)
    print_table("p99 of the lateness, ms", lateness, "alone", 3)
    for name in names[1:]:
        lost = statistics.median(a - b for a, b in zip(fresh["alone"], fresh[name], strict=True))
        print_hold(f"fresh share that a {name} run loses, points", 100 * lost, most=0.1)
        later = statistics.median(b - a for a, b in zip(lateness["alone"], lateness[name], strict=True))
        print_hold(f"p99 of the lateness that a {name} run gains, ms", later, most=0.1)


def idle(options: Namespace) -> None:
    """Print what `watch` itself uses."""
    with tempfile.TemporaryDirectory() as place:
        for run in range(12):
            base_dir = Path(place) / f"{run}"
            for number in range(200 if run == 0 else 1):
                returns = [float(number + episode) for episode in range(20)]
                phase = {"train_episode_returns": returns, "train_episode_lengths": [50] * 20}
                add_iteration(base_dir, frames=1000 * (number + 1), train_average_return=number + 9.5, **phase)  # type: ignore[arg-type]
            if run:
                lines = (Path(place) / "0" / "metrics" / "iterations.jsonl").read_text()
                (base_dir / "metrics" / "iterations.jsonl").write_text(lines)
        for what, reads in (("no page is open", False), ("a page is open", True)):
            with watched(Path(place), reads=reads) as process:
                time.sleep(6)
                before, begin = sum(process.cpu_times()[:2]), time.monotonic()
                time.sleep(20)
                share = (sum(process.cpu_times()[:2]) - before) / (time.monotonic() - begin)
                memory = process.memory_info().rss / 2**20
            print(f"watch, {what}: {share:.2%} of a core, {memory:.0f} MB")


if __name__ == "__main__":
    run_parts(
        __doc__,
        {"row": row, "training": training, "live": live, "idle": idle},
        rounds=(5, "turns of each"),
        seconds=(60, "of a live run"),
        frames=(20_000, "of a training"),
        fifo=FIFO,
    )

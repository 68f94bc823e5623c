"""What hosts cost: steps per second and processor time per step of process hosts, Ray hosts and the vector runner.

All train V-trace on Pong with the same number of games: the vector runner in this process, and hosts, in rounds, as
processes of this machine and as actors of a Ray on it. Each contestant begins once, and then they train in turns, each
so many frames, while the others wait. Wall time is that of a turn. Processor time is that of this process and of all
below it, Ray's own processes too. All of Ray's processes run at this one's priority (Ray would let its workers give
way).

Then a host is killed by SIGKILL, again and again, and the seconds are printed until a round is learnt that another one
in its place has played.

    python -m benchmarks.hosts [--games 16] [--hosts 2] [--frames 3000] [--rounds 5] [--kills 5] [--without ray]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import psutil

import async_wrappers.agents.configurables  # registers what gin files name
import async_wrappers.configurables  # noqa: F401
from async_wrappers.agents.config.config import load_config
from async_wrappers.agents.registry import create_runner
from benchmarks.interleave import interleave, median_ratio, print_hold, print_load, print_table

ROOT = Path(__file__).parents[1]
VECTOR, PROCESSES, RAY = "vector runner", "process hosts", "Ray hosts"


def processor_seconds(here: psutil.Process) -> dict[int, float]:
    """Seconds that this process and all below it have computed, by their ids."""
    seconds = {}
    for process in [here, *here.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        seconds[process.pid] = times.user + times.system
    return seconds


class Contestant:
    """A run that has begun, and trains in turns."""

    def __init__(self, name: str, bindings: list[str], base_dir: Path, stack: ExitStack) -> None:
        load_config(["configs/vtrace/pong_two_cores.gin"], bindings, search_paths=[ROOT])
        runner: Any = create_runner(base_dir / name.replace(" ", "_"))
        stack.enter_context(runner.play.begin())
        self._share, self._agent = runner.play.share, runner.agent
        self.seconds_per_step: list[float] = []

    def train(self, frames: int, warm: bool = False) -> float:
        """Train; return the frames per second of wall time, and keep the processor's seconds for each."""
        here = psutil.Process()
        before, played = processor_seconds(here), self._agent.rows.frames_of_all
        begin = time.perf_counter()
        self._share.train(frames, None, False)
        wall = time.perf_counter() - begin
        after = processor_seconds(here)
        steps = self._agent.rows.frames_of_all - played
        if not warm:
            self.seconds_per_step.append(sum(after[pid] - before.get(pid, 0.0) for pid in after) / steps)
        return float(steps / wall)

    def train_after_a_kill(self) -> float:
        """Kill a host; return the seconds until the next round of all hosts is learnt."""
        pids = getattr(self._share._engine, "pids", None) or [
            process.pid
            for process in psutil.Process().children(recursive=True)
            if "".join(process.cmdline()).startswith("ray::_RemoteHost")
        ]
        psutil.Process(min(pids.values() if isinstance(pids, dict) else pids)).kill()
        begin = time.perf_counter()
        self._share.train(1, None, False)
        return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=int, default=16)
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--frames", type=int, default=3_000, help="of a turn")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each")
    parser.add_argument("--kills", type=int, default=5, help="of a host of each engine")
    parser.add_argument("--without", nargs="*", default=[], choices=["ray", "vector"])
    args = parser.parse_args()
    shared = [
        f"VectorRunner.num_envs = {args.games}",
        "Runner.evaluation_steps = 0",
        "Runner.evaluation_episodes = None",
        "Runner.report_episodes = 0",
        "Runner.overlap = False",
    ]
    hosts = ["create_runner.schedule = 'hosts'", f"Hosts.num_hosts = {args.hosts}"]
    wanted = {
        VECTOR: ["create_runner.schedule = 'vector'"],
        PROCESSES: [*hosts, "Hosts.engine = 'processes'"],
        RAY: [*hosts, "Hosts.engine = 'ray'"],
    }
    for name, word in ((RAY, "ray"), (VECTOR, "vector")):
        if word in args.without:
            del wanted[name]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        made = {name: Contestant(name, [*shared, *own], Path(folder), stack) for name, own in wanted.items()}
        for each in made.values():
            each.train(args.frames // 2, warm=True)
        turns: dict[str, Callable[[], float]] = {n: partial(each.train, args.frames) for n, each in made.items()}
        samples = interleave(turns, args.rounds, warmup=0)
        back = {
            name: [each.train_after_a_kill() for _ in range(args.kills)]
            for name, each in made.items()
            if name != VECTOR
        }
    costs = {name: [1e6 * each for each in contestant.seconds_per_step] for name, contestant in made.items()}
    print_table(f"{args.games} games of Pong, steps per second of wall time", samples, PROCESSES)
    print_table("processor time per step, microseconds", costs, PROCESSES)
    if RAY in made:
        print_hold(
            "Ray hosts, processor time per step beside process hosts", median_ratio(costs, RAY, PROCESSES), most=1.15
        )
        print_hold(
            "Ray hosts, steps per second beside process hosts", median_ratio(samples, RAY, PROCESSES), least=0.85
        )
    if VECTOR in made:
        print_hold(
            "process hosts, steps per second beside the vector runner",
            median_ratio(samples, PROCESSES, VECTOR),
            least=0.85,
        )
    for name, seconds in back.items():
        if seconds:
            listed = ", ".join(f"{one:.1f}" for one in seconds)
            print(f"{name}, seconds from a SIGKILL of a host until a round is learnt: {listed}")
            print_hold(f"{name}, median of these", statistics.median(seconds), most=10.0)
    print_load()


if __name__ == "__main__":
    main()

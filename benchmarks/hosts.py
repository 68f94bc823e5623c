"""What hosts cost: steps per second and processor time per step, the way back of one, and the latency of inference.

``training``: process hosts, Ray hosts and the vector runner train V-trace on Pong with the same number of games: the
vector runner in this process, and hosts, in rounds, as processes of this machine and as actors of a Ray on it. Each
contestant begins once, and then they train in turns, each so many frames, while the others wait. Wall time is that of a
turn. Processor time is that of this process and of all below it, Ray's own processes too. All of Ray's processes run at
this one's priority (Ray would let its workers give way). Then a host is killed by SIGKILL, again and again, and the
seconds are printed until a round is learnt that another one in its place has played. Hold, on two idle cores: process
hosts >= 0.85 of the vector runner's steps per second; Ray hosts >= 0.85 of those of process hosts, <= 1.15 of their
processor time; back within 10 s.

``inference``: the added latency of inference beside the learner, from sending actions to hosts until their rows are
back. One host steps 8 or 32 environments, which cost nothing and show a frame of 84 x 84 bytes each, as Atari hosts
send it: the learner stacks frames. The host is in this process, in another one of this machine, or a Ray actor on it.
What a trip adds is its time without the host's own for the step. All contestants take turns within one run; what is
printed is the median over the rounds of each round's p50 and p99.

Ray is an extra: ``pip install -e '.[ray]' -c constraints.txt``; without it, or with ``--no-ray``, it is left out.

    python -m benchmarks.hosts [training] [inference] [--games 16] [--hosts 2] [--frames 3000] [--kills 5] [--fifo 40]
"""

from __future__ import annotations

import importlib.util
import statistics
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import psutil

import async_wrappers.agents.configurables  # registers what gin files name
import async_wrappers.configurables  # noqa: F401
from async_wrappers.agents.config.config import load_config
from async_wrappers.agents.play.hosts.host_processes import ProcessHosts
from async_wrappers.agents.play.hosts.local_hosts import LocalHosts
from async_wrappers.agents.registry import create_runner
from async_wrappers.batched.hosted import HostedEnvs
from async_wrappers.batched.local import LocalEnvs
from benchmarks.measuring import (
    FIFO,
    head,
    interleave,
    median_ratio,
    print_hold,
    print_table,
    row,
    run_parts,
    time_trips,
)

ROOT = Path(__file__).parents[1]
FRAME = gym.spaces.Box(0, 255, (84, 84), np.uint8)
SIZES = 8, 32
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


class Run:
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


def training(args: Namespace) -> None:
    """Print the contest, and how long a host that was killed takes to come back."""
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
    }
    if has_ray(args):
        wanted[RAY] = [*hosts, "Hosts.engine = 'ray'"]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        made = {name: Run(name, [*shared, *own], Path(folder), stack) for name, own in wanted.items()}
        for each in made.values():
            each.train(args.frames // 2, warm=True)
        turns: dict[str, Callable[[], float]] = {n: partial(each.train, args.frames) for n, each in made.items()}
        samples = interleave(turns, args.rounds, warmup=0)
        back = {
            name: [each.train_after_a_kill() for _ in range(args.kills)]
            for name, each in made.items()
            if name != VECTOR
        }
    costs = {name: [1e6 * each for each in run.seconds_per_step] for name, run in made.items()}
    print_table(f"{args.games} games of Pong, steps per second of wall time", samples, PROCESSES)
    print_table("processor time per step, microseconds", costs, PROCESSES)
    what = "steps per second beside"
    if RAY in made:
        print_hold(f"{RAY}, processor time per step beside {PROCESSES}", median_ratio(costs, RAY, PROCESSES), most=1.15)
        print_hold(f"{RAY}, {what} {PROCESSES}", median_ratio(samples, RAY, PROCESSES), least=0.85)
    print_hold(f"{PROCESSES}, {what} the {VECTOR}", median_ratio(samples, PROCESSES, VECTOR), least=0.85)
    for name, seconds in back.items():
        if seconds:
            listed = ", ".join(f"{one:.1f}" for one in seconds)
            print(f"{name}, seconds from a SIGKILL of a host until a round is learnt: {listed}")
            print_hold(f"{name}, median of these", statistics.median(seconds), most=10.0)


def has_ray(args: Namespace) -> bool:
    """Return whether Ray takes part."""
    return not args.no_ray and importlib.util.find_spec("ray") is not None


# Inference.


class Still(gym.Env[Any, Any]):
    """Shows the same frame for ever, at once."""

    observation_space = FRAME
    action_space = gym.spaces.Discrete(6)

    def __init__(self) -> None:
        self._frame = np.random.default_rng(0).integers(0, 256, FRAME.shape).astype(np.uint8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin."""
        return self._frame, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a step."""
        return self._frame, 0.0, False, False, {}


def make_envs(num_envs: int) -> LocalEnvs:
    return LocalEnvs(Still, num_envs)


class Trips:
    """Environments on a host, which have begun."""

    def __init__(self, make_engine: Callable[[Any], Any], num_envs: int, stack: ExitStack) -> None:
        self._envs = stack.enter_context(closing(HostedEnvs(make_engine, make_envs, num_envs, 1)))
        self._envs.begin(range(num_envs))
        self._shown = self._envs.recv()
        self._actions = np.zeros(num_envs, np.int64)

    def trip(self) -> float:
        """Return the seconds that a trip adds to the environments' own."""
        own, begin = self._envs.seconds, time.perf_counter()
        self._envs.send(self._shown.env_ids, self._actions)
        self._shown = self._envs.recv()
        return time.perf_counter() - begin - (self._envs.seconds - own)


def inference(args: Namespace) -> None:
    """Print what a trip to a host adds."""
    engines: dict[str, Any] = {"this process": LocalHosts, "a process": ProcessHosts}
    with ExitStack() as stack:
        if has_ray(args):
            from async_wrappers.agents.play.hosts.on_ray import RayHosts
            from async_wrappers.ray_cluster import connected_to_ray

            stack.enter_context(connected_to_ray(None, len(SIZES), niceness=0))  # as hosts of a Ray of one's own
            engines["Ray"] = partial(RayHosts, num_hosts=1)
        trips = {row(size, name): Trips(make, size, stack).trip for size in SIZES for name, make in engines.items()}
        found = time_trips(trips, args.rounds, args.trips)
    print(head("rows of 7,056 bytes", "the host is in", "p50, us", "p99, us"))
    for name, rounds in found.items():
        p50, p99 = np.median(rounds, axis=0)
        print(f"{name} {p50:,.0f} | {p99:,.0f} |")


if __name__ == "__main__":
    run_parts(
        __doc__,
        {"training": training, "inference": inference},
        games=(16, "of Pong"),
        hosts=(2, "of each engine"),
        frames=(3_000, "of a turn"),
        rounds=(5, "turns of each"),
        kills=(5, "of a host of each engine"),
        trips=(150, "of a turn"),
        no_ray=(False, "leave Ray out"),
        fifo=FIFO,
    )

"""A real network plays Boxing at 60 frames a second: how many frames are fresh, and what the workers' memory is.

* ``play``: the 10 M network; sequential interaction, and 1, 2, 3 staggered workers on the cores there are, beside what
  `plan` says from the latency measured in the same run.
* ``memory``: 8 workers and a learner of the 100 M network (0.42 GB of weights). Hold: two copies of the weights in
  shared memory, and at most 300 MB + one process's activations of proportional memory (PSS) per worker; the learner's
  own copies are listed apart.
* ``times``: one inference and one update (batch 16) of each network on one thread, as the JSON file that
  ``python -m async_wrappers networks --times FILE`` reads.

    python -m benchmarks.studies.live_network [play] [memory] [--seconds 20] [--size 10m]
    python -m benchmarks.studies.live_network times [--sizes 55k 1m 10m] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import psutil
import torch

from async_wrappers import AsyncRunner, plan
from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.learning.making import make_learner, maker_of_learners
from async_wrappers.agents.networks.q_network import count_parameters, create_network
from async_wrappers.envs import create_atari_environment
from async_wrappers.latency import measure
from async_wrappers.policy import Decision

MEGA = 2**20


def boxing() -> gym.Env[Any, Any]:
    """Boxing, frame by frame."""
    return create_atari_environment("Boxing", frame_skip=1, sticky_actions=False)


def parts(size: str) -> DQN:
    """Return DQN's parts with a network preset."""
    env = boxing()
    return DQN(
        env.observation_space,
        env.action_space,
        stack_size=1,
        network=partial(create_network, torso=size),
        epsilon_eval=0.0,
        min_replay_history=10**9,
        replay_capacity=1_000,
        batch_size=16,  # of the published live experiments
    )


def play(size: str, seconds: float) -> None:
    """Print the share of fresh frames, sequentially and with 1 to 3 workers."""
    dqn = parts(size)
    env = boxing()
    observation = env.reset(seed=0)[0]
    policy = dqn.make_policy()

    latency = measure(lambda seen: policy.act(seen, Decision(0, 0, 0, True)), observation, repeats=40)
    print(f"{size} network, one process alone: {1000 * latency.mean:.1f} ms an inference")
    print(f"{'':<22}{'fresh':>8}{'delay':>8}{'latency ms':>12}{'late':>6}{'dropped':>9}{'lateness p99 ms':>17}")
    for name, workers, stagger, slot in (
        ("sequential", 1, "sequential", None),
        ("1 worker", 1, "tickets", None),
        ("2 workers", 2, "tickets", None),
        ("2 workers, slot 1", 2, "tickets", 1),
        ("3 workers", 3, "tickets", None),
        ("3 workers, slot 1", 3, "tickets", 1),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            runner = AsyncRunner(boxing, dqn.make_policy, workers, 60, stagger, slot=slot, eval_mode=True)
        report = runner.run(seconds=seconds)
        share = report.frames["fresh"] / report.frames["total"]
        print(
            f"{name:<22}{share:>8.1%}{report.delay_frames['mean']:>8.2f}{report.latency_ms['mean']:>12.1f}"
            f"{report.frames['late_actions']:>6}{report.frames['dropped_actions']:>9}{report.lateness_ms['p99']:>17.3f}"
        )
    print(f"\nplan, from the latency of one process alone:\n{plan(latency, fps=60)}")


def scratch(dqn: DQN) -> float:
    """Return by how many MiB an inference raises this process's memory at its peak."""
    policy, observation = dqn.make_policy(), boxing().reset(seed=0)[0]
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = psutil.Process().memory_info().rss
    policy.act(observation, Decision(0, 0, 0, True))
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert peak is not None
    return (int(peak[1]) * 1024 - before) / MEGA


def memory(size: str, workers: int, seconds: float) -> None:
    """Print the memory of each process while workers and a learner run."""
    dqn = parts(size)
    print(f"{size} network: activations and scratch of one inference, {scratch(dqn):.1f} MiB")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runner = AsyncRunner(
            boxing,
            dqn.make_policy,
            workers,
            60,
            make_learner=maker_of_learners(dqn),
            eval_mode=True,
            start_timeout=600,
            calibration_time=0.1,
        )
    with runner:
        runner.run(seconds=seconds)
        rows = []
        for child in psutil.Process().children(recursive=True):
            info = child.memory_full_info()
            rows.append((" ".join(child.cmdline())[-60:], info.pss / MEGA, info.uss / MEGA, info.shared / MEGA))
    print(f"\n{size} network, {workers} workers and a learner: MiB by process (PSS, private, shared)")
    for name, pss, uss, shared in sorted(rows, key=lambda row: row[1]):
        print(f"  pss {pss:9.1f}  private {uss:9.1f}  shared {shared:9.1f}  {name}")
    print(f"  all: pss {sum(row[1] for row in rows):.1f}, private {sum(row[2] for row in rows):.1f}")


def times(sizes: list[str], updates: int, path: str | None) -> None:
    """Print how long an inference and an update of each network take, as JSON, and write it."""
    torch.set_num_threads(1)
    env, measured = boxing(), []
    for size in sizes:
        dqn = parts(size)
        policy, learner = dqn.make_policy(), make_learner(dqn)
        observation = env.reset(seed=0)[0]
        latency = measure(lambda seen, act=policy.act: act(seen, Decision(0, 0, 0, True)), observation, repeats=30)
        for _ in range(64):
            learner.observe(
                {
                    "observation": observation,
                    "action": 0,
                    "reward": 0.0,
                    "interval": 1,
                    "terminal": False,
                    "truncated": False,
                    "next_observation": observation,
                }
            )
        took = []
        for _ in range(updates + 1):
            begin = time.perf_counter()
            learner.update()
            took.append(time.perf_counter() - begin)
        measured.append(
            {
                "name": size,
                "parameters": count_parameters(learner.network),
                "latency_ms": round(1000 * statistics.median(latency.latencies.tolist()), 3),
                "update_ms": round(1000 * statistics.median(took[1:]), 3),
            }
        )
        print(json.dumps(measured[-1]), flush=True)
    if path is not None:
        Path(path).write_text(json.dumps(measured, indent=1) + "\n")


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=[], choices=[[], "play", "memory", "times"])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--size", default="10m")
    parser.add_argument("--memory_size", default="100m")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--sizes", nargs="+", default=["55k", "1m", "10m"])
    parser.add_argument("--updates", type=int, default=5)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    wanted = arguments.parts or ["play", "memory"]
    if "play" in wanted:
        play(arguments.size, arguments.seconds)
    if "memory" in wanted:
        memory(arguments.memory_size, arguments.workers, arguments.seconds)
    if "times" in wanted:
        times(arguments.sizes, arguments.updates, arguments.json)


if __name__ == "__main__":
    main()

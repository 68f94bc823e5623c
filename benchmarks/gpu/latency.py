"""How long an inference of the paper's networks takes on a device, at batch 1, and an update of a batch of 16.

An inference is a worker's: from an observation in the host's memory to an action there. The rows are what ``python -m
async_wrappers plan --networks FILE`` reads, so that it tells how many workers and learners each network needs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.learning.making import make_learner
from async_wrappers.agents.networks.q_network import count_parameters, create_network
from async_wrappers.agents.replay.prefetch import SampledBatch
from async_wrappers.latency import measure
from async_wrappers.policy import Decision
from benchmarks.gpu.cases import GAME, IMAGE

SIZES, BRIEF_SIZES = ("1m", "10m", "100m", "1b"), ("55k",)
BATCH = 16  # of the published live experiments


def measure_latencies(
    device: str, left: Callable[[], float], brief: bool, sizes: Sequence[str] = SIZES
) -> list[dict[str, Any]]:
    """Print and return a row for each network, in float32 and in bfloat16 where the device computes in it itself."""
    rows: list[dict[str, Any]] = []
    print(f"\n{'network':<14}{'weights':>15}{'inference ms':>14}{'p99':>9}{'update ms':>11}")
    longest = 0.0
    for size in BRIEF_SIZES if brief else sizes:
        began = time.monotonic()
        if left() < 4 * longest + 10:  # the next network is ten times as large
            print(f"{size:<14} left out, as no time was left", flush=True)
            continue
        for bf16 in (False, "auto"):
            try:
                row = network_times(size, device, bf16, repeats=3 if brief else 50)
            except torch.cuda.OutOfMemoryError:
                print(f"{size:<14} needs more memory than the device has", flush=True)
                break
            if row is not None:
                rows.append(row)
                print(
                    f"{row['name']:<14}{row['parameters']:>15,}{row['latency_ms']:>14.3f}{row['p99_ms']:>9.3f}"
                    f"{row['update_ms']:>11.3f}",
                    flush=True,
                )
        longest = time.monotonic() - began
    keys = ("name", "parameters", "latency_ms", "update_ms")
    return [{key: row[key] for key in keys} for row in rows]


def network_times(size: str, device: str, bf16: Any, repeats: int, graphs: bool = False) -> dict[str, Any] | None:
    """Return a network's row; None in bfloat16 where the device does not compute in it itself."""
    spec = DQN(
        IMAGE,
        GAME,
        stack_size=1,
        network=partial(create_network, torso=size),
        epsilon_eval=0.0,
        replay_capacity=100,
        min_replay_history=1,
        batch_size=BATCH,
        device=device,
        bf16=bf16,
        graphs=graphs,
    )
    if bf16 == "auto" and not spec.compute.bf16:
        return None
    rng = np.random.default_rng(0)
    learner = make_learner(spec)
    of_worker = spec.make_policy()
    observation = rng.integers(0, 256, IMAGE.shape, np.uint8)
    for _ in range(24 if graphs else 0):  # before their capture
        of_worker.act(observation, Decision(0, 0, 0, True))
    latency = measure(lambda seen: of_worker.act(seen, Decision(0, 0, 0, True)), observation, repeats=repeats)
    stacks = rng.integers(0, 256, (2, BATCH, 1, *IMAGE.shape), np.uint8)
    arrays = {
        "observation": stacks[0],
        "next_observation": stacks[1],
        "action": rng.integers(0, 6, BATCH),
        "reward": np.zeros(BATCH, np.float32),
        "discount": np.full(BATCH, 0.99, np.float32),
    }
    took = []
    warmup = 6 if graphs else 2
    for number in range(warmup + max(1, repeats // 5)):
        begin = time.perf_counter()
        learner.learn(SampledBatch(number, arrays, None))
        learner.finish_update()
        took.append(time.perf_counter() - begin)
    seconds = np.asarray(latency.latencies)
    return {
        "name": f"{size}{', bf16' if bf16 else ''}{', graphs' if graphs else ''}",
        "parameters": count_parameters(learner.network),
        "latency_ms": round(1000 * float(np.median(seconds)), 3),
        "p99_ms": round(1000 * float(np.quantile(seconds, 0.99)), 3),
        "update_ms": round(1000 * float(np.median(took[warmup:])), 3),
    }

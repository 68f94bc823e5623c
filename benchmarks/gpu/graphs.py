"""CUDA graphs: whether they compute what eager updates do, how fast they are, and how busy the device is.

The plain loops play as they are and from graphs that are captured by hand, which are the honest rivals.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from async_wrappers.agents.learning.captured import GraphWarning
from benchmarks.gpu.cases import CASES, Case, pair
from benchmarks.gpu.latency import network_times
from benchmarks.gpu.right import Row, row, weights_of
from benchmarks.gpu.speed import WITH_GRAPHS, finish, given_batch, measure_speed

UPDATES = 6  # of which three are before the capture
_LEFT_OUT = "full Rainbow on Pong, agent steps", "PPO, 256 units, agent steps"  # to keep to eight minutes


def measure_graphs(device: str, left: Callable[[], float], brief: bool) -> dict[str, Any]:
    """Print and return all of it: what is right comes first."""
    print(f"\ngraphs: {device}, beside eager updates")
    checks = [each for name, case in CASES.items() for each in checked(name, case, device, left)]
    found: dict[str, Any] = {"right": checks, "busy": {}}
    for name in ("DQN", "V-trace", "SAC") if device != "cpu" else ():
        found["busy"] |= {f"{name}, graphs={graphs}": busy(name, device, graphs) for graphs in (False, True)}
    found["speed"] = measure_speed(device, left, brief, WITH_GRAPHS, _LEFT_OUT)
    for graphs in (False, True):
        times = network_times("55k" if brief else "1m", device, False, repeats=3 if brief else 50, graphs=graphs)
        assert times is not None
        print(
            f"an inference of {times['name']}: {times['latency_ms']} ms, an update: {times['update_ms']} ms", flush=True
        )
        found[times["name"]] = times
    return found


def checked(name: str, case: Case, device: str, left: Callable[[], float]) -> Iterator[Row]:
    """Compare some updates by graphs with eager ones, and these with themselves: a device may sum in any order."""
    what = f"{name}: graphs equal eager updates"
    if left() < 5:
        yield row(what, False, "not tried: no time was left")
        return
    before = torch.backends.cudnn.deterministic
    torch.backends.cudnn.deterministic = True
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always", GraphWarning)
            eager, graphs = (apart(case, device, graphs) for graphs in (False, True))
    except Exception as error:  # the others are worth their rows
        yield row(what, False, f"{type(error).__name__}: {error}")
        return
    finally:
        torch.backends.cudnn.deterministic = before
    refused = [str(each.message) for each in seen if issubclass(each.category, GraphWarning)]
    figure = f"{graphs:.1e}; two eager ones {eager:.1e}"
    yield row(what, graphs <= eager and not refused, "; ".join([figure, *refused]))


def apart(case: Case, device: str, graphs: bool) -> float:
    """Return the largest difference of two learners' weights after some updates of one batch; one may have graphs."""
    learners = pair(case, case.spec(device, graphs=graphs), case.spec(device))
    for learner in learners:
        sampled = learner.draw()
        for number in range(UPDATES):
            learner.learn(sampled._replace(number=number, sent=None))
            learner.finish_update()
    one, other = map(weights_of, learners)
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def busy(name: str, device: str, graphs: bool, updates: int = 20) -> float:
    """Print and return the share of an update's time in which kernels run, by PyTorch's profiler."""
    _, update, _ = given_batch(CASES[name], device, graphs)

    def made(number: int) -> float:
        begin = time.perf_counter()
        for _ in range(number):
            update()
        finish(device)
        return time.perf_counter() - begin

    made(24)
    took = made(updates)
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        made(updates)
    share = sum(each.self_device_time_total for each in profiler.key_averages()) / 1e6 / took
    print(f"kernels of {name}, graphs={graphs}: {share:.2f} of an update's time", flush=True)
    return share

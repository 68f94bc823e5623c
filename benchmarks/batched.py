"""Many environments at once: frames per second, as ratios within one run.

* ``light``: 128 pure Python CartPoles in 2 processes of `ProcessEnvs`, against Gymnasium's `SyncVectorEnv` and
  `AsyncVectorEnv` (32 processes). Hold: >= 1.3x `SyncVectorEnv`, on two idle cores.
* ``heavy``: 16 environments of 1 ms of processor time per step in 2 processes, against two processes that step 8 of
  them each and talk to nobody. Hold: >= 0.9.
* ``delay``: `VectorRealtimeDelay` around 8 and 1,000 of `CartPoleVectorEnv`, against the bare vector (processor time).
  Hold: >= 0.7 with 8.
* ``rows``: `VectorEnvs` around the same vectors, against the bare vector, in processor time; and frames per second.

The actions are drawn uniformly beforehand. A frame is one ``step`` of one environment.

    python -m benchmarks.batched [light] [heavy] [delay] [rows] [--rounds 5]
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from collections.abc import Callable
from functools import partial
from itertools import cycle
from multiprocessing.connection import Connection
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from async_wrappers import ProcessEnvs, VectorEnvs, VectorRealtimeDelay
from benchmarks.interleave import interleave, median_ratio, print_hold, print_load, print_table

LIGHT, ASYNC, HEAVY = 128, 32, 16  # environments
SCHEDULES = {"bare": None, "VectorRealtimeDelay(8, noops=0)": (8, 0), "VectorRealtimeDelay(8, noops=3)": (8, 3)}


class Heavy(gym.Env[Any, Any]):
    """A step takes 1 ms of processor time; an episode has 100."""

    observation_space = gym.spaces.Box(0, 1, (84, 84), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        self._frame = 0
        return np.zeros((84, 84), np.uint8), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Compute for 1 ms."""
        self._frame += 1
        end = time.thread_time() + 0.001
        while time.thread_time() < end:
            pass
        return np.ones((84, 84), np.uint8), 1.0, self._frame == 100, False, {}


def light() -> gym.Env[Any, Any]:
    return gym.make("CartPole-v1")


def drawn(num_envs: int) -> Any:
    return cycle(np.random.default_rng(0).integers(0, 2, (97, num_envs)))


def by_processes(make: Callable[[], gym.Env[Any, Any]], num_envs: int, steps: int) -> float:
    envs = ProcessEnvs(make, num_envs, processes=2)
    envs.begin(range(num_envs))
    actions = drawn(num_envs)
    for step in range(steps + 10):
        if step == 10:
            begin = time.perf_counter()
        shown = envs.recv()
        envs.send(shown.env_ids, next(actions))
    envs.recv()
    seconds = time.perf_counter() - begin
    envs.close()
    return num_envs * steps / seconds


def by_vector(make: Callable[[], gym.vector.VectorEnv[Any, Any, Any]], steps: int) -> float:
    envs = make()
    envs.reset(seed=0)
    actions = drawn(envs.num_envs)
    for step in range(steps + 10):
        if step == 10:
            begin = time.perf_counter()
        envs.step(next(actions))
    seconds = time.perf_counter() - begin
    envs.close()
    return envs.num_envs * steps / seconds


def alone(num_envs: int, steps: int, pipe: Connection) -> None:
    """Step some environments in this process, when told to."""
    envs = [Heavy() for _ in range(num_envs)]
    for env in envs:
        env.reset()
    pipe.send("ready")
    pipe.recv()
    for _ in range(steps):
        for env in envs:
            if env.step(0)[2]:
                env.reset()
    pipe.send("done")


def by_nobody(num_envs: int, steps: int) -> float:
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(2)]
    children = [context.Process(target=alone, args=(num_envs // 2, steps, theirs)) for _, theirs in pipes]
    for child in children:
        child.start()
    for ours, _ in pipes:
        ours.recv()
    begin = time.perf_counter()
    for ours, _ in pipes:
        ours.send("go")
    for ours, _ in pipes:
        ours.recv()
    seconds = time.perf_counter() - begin
    for child in children:
        child.join()
    return num_envs * steps / seconds


def cartpole(num_envs: int) -> gym.vector.VectorEnv[Any, Any, Any]:
    return gym.make_vec("CartPole-v1", num_envs=num_envs, vectorization_mode="vector_entry_point")


def in_processor_time(num_envs: int, step: Callable[[Any], Any], steps: int, frames: int) -> float:
    """Return frames per second of processor time, where `step` of an action takes `frames` frames."""
    actions = drawn(num_envs)
    for _ in range(20):
        step(next(actions))
    begin = time.process_time()
    for _ in range(steps // frames):
        step(next(actions))
    return num_envs * (steps // frames) * frames / (time.process_time() - begin)


def delayed(variant: str, num_envs: int, steps: int, endless: bool = False) -> float:
    env: Any = cartpole(num_envs)
    if endless:  # the pole may fall and the cart go anywhere: episodes of 500 frames
        env.unwrapped.x_threshold = env.unwrapped.theta_threshold_radians = 1e9
    frames = 1
    if (schedule := SCHEDULES[variant]) is not None:
        delay, noops = schedule
        env, frames = VectorRealtimeDelay(env, delay, noops, default_action="repeat"), noops + 1
    env.reset(seed=0)
    return in_processor_time(num_envs, env.step, steps, frames)


def rows(num_envs: int, steps: int) -> float:
    envs = VectorEnvs(cartpole(num_envs))
    envs.begin(range(num_envs))

    def step(actions: Any) -> None:
        shown = envs.recv()
        envs.send(shown.env_ids, actions[: len(shown.env_ids)])

    return in_processor_time(num_envs, step, steps, 1)


def measure_light(rounds: int, steps: int) -> None:
    contestants = {
        "SyncVectorEnv": partial(by_vector, partial(SyncVectorEnv, [light] * LIGHT), steps),
        "ProcessEnvs, 2 processes": partial(by_processes, light, LIGHT, steps),
        f"AsyncVectorEnv, {ASYNC}": partial(
            by_vector, partial(AsyncVectorEnv, [light] * ASYNC, autoreset_mode=AutoresetMode.SAME_STEP), steps // 8
        ),
    }
    samples = interleave(contestants, rounds, warmup=0)
    print_table(f"light: {LIGHT} CartPoles in Python, frames/s", samples, "SyncVectorEnv")
    ratio = median_ratio(samples, "ProcessEnvs, 2 processes", "SyncVectorEnv")
    print_hold("ProcessEnvs / SyncVectorEnv, two idle cores", ratio, least=1.3)


def measure_heavy(rounds: int, steps: int) -> None:
    contestants = {
        "two processes, alone": partial(by_nobody, HEAVY, steps),
        "ProcessEnvs, 2 processes": partial(by_processes, Heavy, HEAVY, steps),
    }
    samples = interleave(contestants, rounds, warmup=0)
    print_table(f"heavy: {HEAVY} environments of 1 ms, frames/s", samples, "two processes, alone")
    ratio = median_ratio(samples, "ProcessEnvs, 2 processes", "two processes, alone")
    print_hold("ProcessEnvs / two processes that talk to nobody", ratio, least=0.9)


def measure_delay(rounds: int, steps: int) -> None:
    for num_envs in (8, 1000):
        contestants = {name: partial(delayed, name, num_envs, steps) for name in SCHEDULES}
        samples = interleave(contestants, rounds)
        print_table(f"delay: {num_envs} of CartPoleVectorEnv, frames/s of processor time", samples, "bare")
        name = "VectorRealtimeDelay(8, noops=0)"
        if num_envs == 8:
            print_hold(f"{name} / bare, {num_envs}", median_ratio(samples, name, "bare"), least=0.7)
            contestants = {each: partial(delayed, each, num_envs, steps, endless=True) for each in SCHEDULES}
            samples = interleave(contestants, rounds)
            print_table("delay: the same in episodes of 500 frames, frames/s of processor time", samples, "bare")
            print_hold(f"{name} / bare, {num_envs}, long episodes", median_ratio(samples, name, "bare"), least=0.7)


def measure_rows(rounds: int, steps: int) -> None:
    for num_envs in (8, 1000):
        contestants = {"bare": partial(delayed, "bare", num_envs, steps), "VectorEnvs": partial(rows, num_envs, steps)}
        samples = interleave(contestants, rounds)
        print_table(f"rows: {num_envs} of CartPoleVectorEnv, frames/s of processor time", samples, "bare")
        if num_envs == 1000:
            print_hold("frames/s shown, 1,000 CartPoles", statistics.median(samples["VectorEnvs"]), least=300_000)


MEASURES = {"light": (measure_light, 400), "heavy": (measure_heavy, 40), "delay": (measure_delay, 1000)}
MEASURES["rows"] = (measure_rows, 1000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", choices=[[], *MEASURES], help="all, if none is named")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved repetitions")
    args = parser.parse_args()
    for name in args.what or MEASURES:
        measure, steps = MEASURES[name]
        measure(args.rounds, steps)
    print_load()


if __name__ == "__main__":
    main()

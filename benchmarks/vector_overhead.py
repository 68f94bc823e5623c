"""What `VectorRealtimeDelay` costs: frames per second of all sub-environments, against the bare vector environment.

The vectors are CartPole's own (`CartPoleVectorEnv`, a few array operations per frame) and ALE's (`AtariVectorEnv`, its
default preprocessing), with 8 sub-environments; the default action repeats. The actions are drawn uniformly beforehand.
CartPole's episodes are about 22 frames, so that on nearly every frame one of them ends. A frame is one ``step`` of the
bare vector. Time is processor time of this process, ALE's threads included.

    python -m benchmarks.vector_overhead
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from itertools import cycle
from typing import Any

import gymnasium as gym
from ale_py.vector_env import AtariVectorEnv

from async_wrappers import VectorRealtimeDelay
from benchmarks.interleave import interleave, print_load, print_table

VectorEnv = gym.vector.VectorEnv[Any, Any, Any]

NUM_ENVS = 8
BARE = "bare"
SCHEDULES = {  # delay and noops, in frames
    "VectorRealtimeDelay(0, noops=0)": (0, 0),
    "VectorRealtimeDelay(8, noops=0)": (8, 0),
    "VectorRealtimeDelay(8, noops=3)": (8, 3),
}


def cartpole() -> VectorEnv:
    return gym.make_vec("CartPole-v1", num_envs=NUM_ENVS, vectorization_mode="vector_entry_point")


def boxing() -> VectorEnv:
    return AtariVectorEnv("boxing", NUM_ENVS, num_threads=1)


def frames_per_second(variant: str, make: Callable[[], VectorEnv], frames: int) -> float:
    env, interval = make(), 1
    if variant in SCHEDULES:
        delay, noops = SCHEDULES[variant]
        env, interval = VectorRealtimeDelay(env, delay, noops, default_action="repeat"), noops + 1
    env.action_space.seed(0)
    actions = cycle([env.action_space.sample() for _ in range(97)])
    env.reset(seed=0)
    steps = frames // interval
    begin = time.process_time()
    for _ in range(steps):
        env.step(next(actions))
    seconds = time.process_time() - begin
    env.close()
    return NUM_ENVS * steps * interval / seconds


def measure(title: str, make: Callable[[], VectorEnv], frames: int, rounds: int) -> None:
    contestants = {name: partial(frames_per_second, name, make, frames) for name in (BARE, *SCHEDULES)}
    print_table(f"{title}, frames/s", interleave(contestants, rounds), BARE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="interleaved repetitions")
    parser.add_argument("--cartpole-frames", type=int, default=8_000, help="frames per repetition")
    parser.add_argument("--boxing-frames", type=int, default=400, help="frames per repetition")
    args = parser.parse_args()
    measure(f"{NUM_ENVS} CartPole-v1", cartpole, args.cartpole_frames, args.rounds)
    measure(f"{NUM_ENVS} ALE Boxing", boxing, args.boxing_frames, args.rounds)
    print_load()


if __name__ == "__main__":
    main()

"""What simulating latencies costs: frames per second of `RealtimeDelay` with a latency, against that with constants.

Both wrap the same bare environment and play the same uniform actions, drawn beforehand: CartPole-v1 that never falls,
reset every 500 frames, and ALE Boxing frame by frame. Constants are ``delay=8, noops=0``, the schedule that workers
with a constant 120 ms at 60 fps give. Time is processor time of this process.

    python -m benchmarks.simulated_overhead

Hold: the ratio to constants is >= 0.85 with tickets. `none`, which has an action on fewer frames, and `max_time` are
shown beside it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from itertools import cycle
from typing import Any

import gymnasium as gym
import numpy as np

from async_wrappers import RealtimeDelay
from async_wrappers.latency import Constant, LogNormal
from benchmarks.interleave import interleave, median_ratio, print_hold, print_load, print_table
from benchmarks.wrapper_overhead import DELAY, EPISODE, boxing, cartpole, play_episode

Env = gym.Env[Any, Any]

CONSTANTS = f"RealtimeDelay({DELAY})"
HELD = {
    "tickets, constant, 8 workers": {"latency": Constant(0.120), "workers": 8},
    "tickets, log-normal, 10 workers": {"latency": LogNormal(mean=0.120, cv=0.2), "workers": 10},
}
SHOWN = {
    "none, log-normal, 8 workers": {"latency": LogNormal(mean=0.120, cv=0.2), "workers": 8, "stagger": "none"},
    "max_time, constant, 8 workers": {"latency": Constant(0.120), "workers": 8, "stagger": "max_time"},
}
SCHEDULES: dict[str, dict[str, Any]] = {CONSTANTS: {"delay": DELAY}, **HELD, **SHOWN}


def frames_per_second(name: str, make: Callable[[], Env], frames: int) -> float:
    """Play episodes of `EPISODE` decisions at most until `frames` are reached."""
    bare = make()
    actions = np.random.default_rng(0).integers(bare.action_space.n, size=10_007)
    draw = cycle([int(action) for action in actions]).__next__
    arguments = SCHEDULES[name] if name == CONSTANTS else {**SCHEDULES[name], "fps": 60}
    env = RealtimeDelay(bare, default_action=lambda observation, last_action: draw(), **arguments)
    env.reset(seed=0)
    begin, played = time.process_time(), 0
    while played < frames:
        played += play_episode(env, draw, EPISODE)
    seconds = time.process_time() - begin
    env.close()
    return played / seconds


def measure(title: str, make: Callable[[], Env], frames: int, rounds: int) -> None:
    samples = interleave({name: partial(frames_per_second, name, make, frames) for name in SCHEDULES}, rounds)
    print_table(f"{title}, frames/s", samples, CONSTANTS)
    for name in HELD:
        print_hold(f"{name} / constants", median_ratio(samples, name, CONSTANTS), least=0.85)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="interleaved repetitions")
    parser.add_argument("--cartpole-frames", type=int, default=20_000, help="frames per repetition")
    parser.add_argument("--boxing-frames", type=int, default=3_000, help="frames per repetition")
    args = parser.parse_args()
    measure("CartPole-v1 that never falls", partial(cartpole, True), args.cartpole_frames, args.rounds)
    measure("ALE Boxing", boxing, args.boxing_frames, args.rounds)
    print_load()


if __name__ == "__main__":
    main()

"""What `RealtimeDelay` costs: frames per second, against the bare environment and Gymnasium's `DelayObservation`.

The environments are the bare classes (``unwrapped``), so that nothing else is in the figure: CartPole-v1, where a frame
takes microseconds, and ALE Boxing frame by frame (grey, no frame skip). A frame is one ``step`` of the bare
environment, and frames are what is counted. Every frame receives an action drawn uniformly beforehand, be it the
agent's or the default one, so that episodes are equally long (about 22 frames in CartPole) and resets equally frequent
in all variants. ``--long`` lets the pole never fall and resets every 500 frames instead: the cost without resets.

Time is processor time of this process, so that other jobs on the machine disturb little.

    python -m benchmarks.wrapper_overhead

Hold: the ratio to bare is >= 0.80 in CartPole and >= 0.97 in ALE, and `RealtimeDelay` with one decision per frame is
never slower than `DelayObservation`.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from functools import partial
from itertools import cycle
from typing import Any

import ale_py
import gymnasium as gym
import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.wrappers import DelayObservation

from async_wrappers import RealtimeDelay
from benchmarks.interleave import interleave, median_ratio, print_hold, print_load, print_table

Env = gym.Env[Any, Any]
Draw = Callable[[], int]

DELAY = 8  # frames
EPISODE = 500  # frames after which an episode is cut: the limit of CartPole-v1; Boxing's are cut by the run's length
BARE, DELAY_OBSERVATION, EVERY_FRAME, EVERY_FOURTH = (
    "bare",
    f"DelayObservation({DELAY})",
    f"RealtimeDelay({DELAY}, noops=0)",
    f"RealtimeDelay({DELAY}, noops=3)",
)


def wrapped(variant: str, env: Env, draw: Draw) -> Env:
    """Return `env` as the variant has it; the default action is one more draw."""
    if variant == BARE:
        return env
    if variant == DELAY_OBSERVATION:
        return DelayObservation(env, DELAY)
    noops = {EVERY_FRAME: 0, EVERY_FOURTH: 3}[variant]
    return RealtimeDelay(env, DELAY, noops, default_action=lambda observation, last_action: draw())


def play_episode(env: Env, draw: Draw, max_steps: int) -> int:
    """Play one episode and return its frames."""
    _, info = env.reset()
    steps, over = 0, False
    while not over and steps < max_steps:
        _, _, terminated, truncated, info = env.step(draw())
        over = terminated or truncated
        steps += 1
    return info["realtime"]["frame"] if "realtime" in info else steps


def frames_per_second(variant: str, make: Callable[[], Env], frames: int, max_frames: int) -> float:
    """Play whole episodes until `frames` are reached."""
    bare = make()
    actions = np.random.default_rng(0).integers(bare.action_space.n, size=10_007)
    draw = cycle([int(action) for action in actions]).__next__
    env = wrapped(variant, bare, draw)
    max_steps = max_frames // 4 if variant == EVERY_FOURTH else max_frames
    env.reset(seed=0)
    begin, played = time.process_time(), 0
    while played < frames:
        played += play_episode(env, draw, max_steps)
    seconds = time.process_time() - begin
    env.close()
    return played / seconds


def cartpole(never_falls: bool) -> Env:
    env = CartPoleEnv()
    if never_falls:
        env.theta_threshold_radians = env.x_threshold = math.inf
    return env


def boxing() -> Env:
    gym.register_envs(ale_py)
    env = gym.make("ALE/Boxing-v5", obs_type="grayscale", frameskip=1, repeat_action_probability=0.0)
    return env.unwrapped


def measure(title: str, make: Callable[[], Env], frames: int, max_frames: int, rounds: int, hold: float) -> None:
    variants = (BARE, DELAY_OBSERVATION, EVERY_FRAME, EVERY_FOURTH)
    contestants = {name: partial(frames_per_second, name, make, frames, max_frames) for name in variants}
    samples = interleave(contestants, rounds)
    print_table(f"{title}, frames/s", samples, BARE)
    for name in (EVERY_FRAME, EVERY_FOURTH):
        print_hold(f"{name} / {BARE}", median_ratio(samples, name, BARE), least=hold)
    print_hold(f"{EVERY_FRAME} / {DELAY_OBSERVATION}", median_ratio(samples, EVERY_FRAME, DELAY_OBSERVATION), least=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="interleaved repetitions")
    parser.add_argument("--cartpole-frames", type=int, default=40_000, help="frames per repetition")
    parser.add_argument("--boxing-frames", type=int, default=3_000, help="frames per repetition")
    parser.add_argument("--long", action="store_true", help="CartPole: the pole never falls")
    args = parser.parse_args()
    kind = f"reset every {EPISODE} frames" if args.long else "episodes of about 22 frames"
    make = partial(cartpole, args.long)
    measure(f"CartPole-v1, {kind}", make, args.cartpole_frames, EPISODE, args.rounds, hold=0.80)
    measure("ALE Boxing", boxing, args.boxing_frames, args.boxing_frames, args.rounds, hold=0.97)
    print_load()


if __name__ == "__main__":
    main()

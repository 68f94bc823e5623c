"""What the wrappers and the package's import cost: frames per second, and milliseconds, beside what is bare.

The environments are the bare classes (``unwrapped``), so that nothing else is in the figure: CartPole-v1, where a frame
takes microseconds, and ALE Boxing frame by frame (grey, no frame skip). A frame is one ``step`` of the bare
environment, and frames are what is counted. Every frame receives an action drawn uniformly beforehand, be it the
agent's or the default one, so that episodes are equally long and resets equally frequent in all variants. Time is
processor time of this process, so that other jobs on the machine disturb little.

* ``wrapper``: `RealtimeDelay` against the bare environment and Gymnasium's `DelayObservation`; episodes of CartPole are
  about 22 frames. Hold: >= 0.80 of bare in CartPole and >= 0.97 in ALE, and with one decision per frame never slower
  than `DelayObservation`.
* ``long``: the same with a pole that never falls, reset every 500 frames instead: the cost without resets.
* ``simulated``: `RealtimeDelay` with a latency against that with constants, the schedule that workers with a constant
  120 ms at 60 fps give; the pole never falls. Hold: >= 0.85 with tickets. `none`, which has an action on fewer frames,
  and `max_time` are shown beside it.
* ``vector``: `VectorRealtimeDelay` around 8 and 1,000 of `CartPoleVectorEnv` (a few array operations per frame, an end
  of an episode on nearly every one) and 8 of ALE's vector, against the bare vector; the default action repeats. Hold:
  >= 0.7 with 8 CartPoles, in short episodes and in those of 500 frames.
* ``import``: ``from async_wrappers import RealtimeDelay`` against ``import gymnasium``, each in a fresh process, the
  import statement alone, of modules that are compiled. Hold: <= 1.25 times the wall-clock time, and torch is not
  imported.

    python -m benchmarks.overhead [wrapper] [long] [simulated] [vector] [import]
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Mapping
from functools import partial
from itertools import cycle
from typing import Any

import ale_py
import gymnasium as gym
import numpy as np
from ale_py.vector_env import AtariVectorEnv
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.wrappers import DelayObservation

from async_wrappers import RealtimeDelay, VectorRealtimeDelay
from async_wrappers.latency import Constant, LogNormal
from benchmarks.measuring import interleave, median_ratio, print_hold, print_table, rate, run_parts

Env = gym.Env[Any, Any]
Draw = Callable[[], int]
Variant = tuple[Callable[[Env, Draw], Env], int]  # what wraps, and frames of a decision

DELAY = 8  # frames
EPISODE = 500  # frames after which an episode is cut: the limit of CartPole-v1; Boxing's are cut by the run's length


def realtime(**schedule: Any) -> Variant:
    """Return `RealtimeDelay` with a schedule; the default action is one more draw."""

    def wrap(env: Env, draw: Draw) -> Env:
        return RealtimeDelay(env, default_action=lambda observation, last_action: draw(), **schedule)

    return wrap, schedule.get("noops", 0) + 1


BARE, OTHER, EVERY_FRAME, EVERY_FOURTH = "bare", "DelayObservation", "RealtimeDelay", "RealtimeDelay, noops=3"
CONSTANT: Mapping[str, Variant] = {
    BARE: (lambda env, draw: env, 1),
    OTHER: (lambda env, draw: DelayObservation(env, DELAY), 1),
    EVERY_FRAME: realtime(delay=DELAY),
    EVERY_FOURTH: realtime(delay=DELAY, noops=3),
}
_CONSTANT, _DRAWN = Constant(0.120), LogNormal(mean=0.120, cv=0.2)
SIMULATED: Mapping[str, Variant] = {
    EVERY_FRAME: realtime(delay=DELAY),
    "tickets, constant, 8 workers": realtime(latency=_CONSTANT, workers=8, fps=60),
    "tickets, log-normal, 10 workers": realtime(latency=_DRAWN, workers=10, fps=60),
    "none, log-normal, 8 workers": realtime(latency=_DRAWN, workers=8, stagger="none", fps=60),
    "max_time, constant, 8 workers": realtime(latency=_CONSTANT, workers=8, stagger="max_time", fps=60),
}


def frames_per_second(variant: Variant, make: Callable[[], Env], frames: int, longest: int) -> float:
    """Play whole episodes of at most `longest` frames until `frames` are reached."""
    wrap, interval = variant
    bare = make()
    actions = np.random.default_rng(0).integers(bare.action_space.n, size=10_007)
    draw = cycle(actions.tolist()).__next__
    env = wrap(bare, draw)
    env.reset(seed=0)
    begin, played = time.process_time(), 0
    while played < frames:
        _, info = env.reset()
        steps, over = 0, False
        while not over and steps < longest // interval:
            _, _, terminated, truncated, info = env.step(draw())
            over = terminated or truncated
            steps += 1
        played += info["realtime"]["frame"] if "realtime" in info else steps
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


def wrapper(args: Namespace, never_falls: bool = False) -> None:
    """Print what `RealtimeDelay` costs with constants."""
    for title, make, frames, longest, hold in (
        (
            f"CartPole-v1{' that never falls' * never_falls}",
            partial(cartpole, never_falls),
            args.cartpole_frames,
            EPISODE,
            0.80,
        ),
        ("ALE Boxing", boxing, args.boxing_frames, args.boxing_frames, 0.97),
    ):
        measures = {name: partial(frames_per_second, each, make, frames, longest) for name, each in CONSTANT.items()}
        samples = interleave(measures, args.rounds)
        print_table(f"{title}, a delay of {DELAY}, frames/s", samples, BARE)
        for name in (EVERY_FRAME, EVERY_FOURTH):
            print_hold(f"{name} / {BARE}", median_ratio(samples, name, BARE), least=hold)
        print_hold(f"{EVERY_FRAME} / {OTHER}", median_ratio(samples, EVERY_FRAME, OTHER), least=1)


def simulated(args: Namespace) -> None:
    """Print what simulating latencies costs."""
    for title, make, frames in (
        ("CartPole-v1 that never falls", partial(cartpole, True), args.cartpole_frames // 2),
        ("ALE Boxing", boxing, args.boxing_frames),
    ):
        measures = {name: partial(frames_per_second, each, make, frames, EPISODE) for name, each in SIMULATED.items()}
        samples = interleave(measures, args.rounds)
        print_table(f"{title}, frames/s", samples, EVERY_FRAME)
        for name in SIMULATED:
            if name.startswith("tickets"):
                print_hold(f"{name} / constants", median_ratio(samples, name, EVERY_FRAME), least=0.85)


# Vectors.

SCHEDULES = {BARE: None, "VectorRealtimeDelay, noops=0": (DELAY, 0), "VectorRealtimeDelay, noops=3": (DELAY, 3)}


def cartpoles(num_envs: int, endless: bool = False) -> Any:
    """Return Gymnasium's vector; endless, the pole may fall and the cart go anywhere: episodes of 500 frames."""
    env: Any = gym.make_vec("CartPole-v1", num_envs=num_envs, vectorization_mode="vector_entry_point")
    if endless:
        env.unwrapped.x_threshold = env.unwrapped.theta_threshold_radians = 1e9
    return env


def vector_frames_per_second(schedule: tuple[int, int] | None, make: Callable[[], Any], frames: int) -> float:
    """Return the frames of all sub-environments per second."""
    env, interval = make(), 1
    if schedule is not None:
        delay, noops = schedule
        env, interval = VectorRealtimeDelay(env, delay, noops, default_action="repeat"), noops + 1
    env.action_space.seed(0)
    actions = cycle([env.action_space.sample() for _ in range(97)])
    env.reset(seed=0)
    rate(lambda: env.step(next(actions)), 20)  # warm
    found = rate(lambda: env.step(next(actions)), frames // interval, env.num_envs * interval)
    env.close()
    return found


def vector(args: Namespace) -> None:
    """Print what `VectorRealtimeDelay` costs."""
    frames = args.cartpole_frames // 40
    for title, make, number, hold in (
        ("8 CartPoleVectorEnv", partial(cartpoles, 8), frames, True),
        ("8 CartPoleVectorEnv in episodes of 500 frames", partial(cartpoles, 8, endless=True), frames, True),
        ("1,000 CartPoleVectorEnv", partial(cartpoles, 1000), frames, False),
        ("8 ALE Boxing", partial(AtariVectorEnv, "boxing", 8, num_threads=1), args.boxing_frames // 8, False),
    ):
        measures = {name: partial(vector_frames_per_second, each, make, number) for name, each in SCHEDULES.items()}
        samples = interleave(measures, args.rounds)
        print_table(f"{title}, frames/s", samples, BARE)
        if hold:
            name = "VectorRealtimeDelay, noops=0"
            print_hold(f"{title}: {name} / {BARE}", median_ratio(samples, name, BARE), least=0.7)


# The import.

CHILD = """
import sys, time
begin = time.perf_counter()
{statement}
print(time.perf_counter() - begin, "torch" in sys.modules)
"""


def import_time(args: Namespace) -> None:
    """Print what the import costs."""
    came_along = False
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def milliseconds(statement: str) -> float:
        nonlocal came_along
        run = [sys.executable, "-c", CHILD.format(statement=statement)]
        told = subprocess.run(run, capture_output=True, text=True, check=True, env=environ).stdout.split()
        came_along |= told[1] == "True"
        return 1e3 * float(told[0])

    ours, base = "from async_wrappers import RealtimeDelay", "import gymnasium"
    for statement in (ours, base):  # compiles what is not yet
        milliseconds(statement)
    samples = interleave({name: partial(milliseconds, name) for name in (base, ours)}, args.rounds)
    print_table("import, wall-clock ms", samples, base, digits=1)
    print_hold(f"{ours} / {base}", median_ratio(samples, ours, base), most=1.25)
    print_hold("torch imported (0: no)", came_along, most=0)


if __name__ == "__main__":
    run_parts(
        __doc__,
        {
            "wrapper": wrapper,
            "long": partial(wrapper, never_falls=True),
            "simulated": simulated,
            "vector": vector,
            "import": import_time,
        },
        rounds=(15, "interleaved repetitions"),
        cartpole_frames=(40_000, "frames per repetition"),
        boxing_frames=(3_000, "frames per repetition"),
    )

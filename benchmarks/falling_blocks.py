"""How many frames of falling blocks a second: the bare rules, and the environment's own `step` for each observation.

Actions are drawn uniformly beforehand; games that end are begun anew, which is part of the figure. Time is processor
time of this process, so that other jobs on the machine disturb little. ``render`` adds an RGB screen to each frame of
the board.

    python -m benchmarks.falling_blocks

Hold: >= 100,000 frames/s where nothing is drawn (``board`` and ``dict``).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from async_wrappers.envs.falling_blocks import FallingBlocksEnv, Game
from async_wrappers.envs.falling_blocks.game import ACTIONS, Biased
from benchmarks.interleave import interleave, print_hold, print_load, print_table

LEVEL = 9
HELD = ("board", "dict")


def draw_actions(frames: int) -> list[int]:
    return [int(action) for action in np.random.default_rng(0).integers(len(ACTIONS), size=frames)]


def play_rules(frames: int) -> None:
    buttons = [list(ACTIONS.values())[action] for action in draw_actions(frames)]
    generator = Biased(np.random.default_rng(0))
    game = Game(LEVEL, generator)
    for held in buttons:
        game.step(held)
        if game.over:
            game = Game(LEVEL, generator)


def play_environment(observation: str, render: bool, frames: int) -> None:
    env = FallingBlocksEnv(LEVEL, observation=observation, render_mode="rgb_array" if render else None)
    env.reset(seed=0)
    for action in draw_actions(frames):
        terminated = env.step(action)[2]
        if render:
            env.render()
        if terminated:
            env.reset()


def frames_per_second(play: Callable[[int], None], frames: int) -> float:
    begin = time.process_time()
    play(frames)
    return frames / (time.process_time() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="interleaved repetitions")
    parser.add_argument("--frames", type=int, default=100_000, help="frames per repetition")
    args = parser.parse_args()
    games: dict[str, Callable[[int], None]] = {"rules": play_rules}
    games |= {name: partial(play_environment, name, False) for name in ("board", "dict", "image")}
    games["render"] = partial(play_environment, "board", True)
    samples = interleave(
        {name: partial(frames_per_second, play, args.frames) for name, play in games.items()}, args.rounds
    )
    print_table(f"FallingBlocks, level {LEVEL}, frames/s", samples, "rules")
    for name in HELD:
        print_hold(f"{name}, frames/s", statistics.median(samples[name]), least=100_000)
    print_load()


if __name__ == "__main__":
    main()

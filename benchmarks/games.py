"""How many frames of the games a second: falling blocks, and what `GameBoyEnv` costs beside PyBoy alone.

Time is processor time of this process, so that other jobs on the machine disturb little.

``falling_blocks``: the bare rules, and the environment's own `step` for each observation. Actions are drawn uniformly
beforehand; games that end are begun anew, which is part of the figure. ``render`` adds an RGB screen to each frame of
the board. Hold: >= 100,000 frames/s where nothing is drawn (``board`` and ``dict``).

``game_boy``: on one core, against PyBoy alone, ticked once per frame. No game comes with this project, so two
cartridges of the tests are played: one whose processor works all the time, as a game's does that waits in a loop, and
one that halts until the next frame and so leaves PyBoy nothing to do, the worst case for whatever runs beside it. The
environment reads what Pokemon's catching reads, the longest list there is. Both emulators have their sound off and draw
alike: every frame (`"rgb"` observations, and in grey of 84 x 84), or none (`"ram"` observations). Every fourth frame a
button is pressed. Hold, with the processor at work: the ratio to PyBoy alone is >= 0.9 where every frame is drawn, >=
0.7 where none is.

    python -m benchmarks.games [falling_blocks] [game_boy]
"""

from __future__ import annotations

import io
import statistics
import tempfile
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from hashlib import sha256
from itertools import cycle
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from async_wrappers.envs.falling_blocks import FallingBlocksEnv, Game
from async_wrappers.envs.falling_blocks.game import ACTIONS, Biased
from async_wrappers.envs.gameboy import GameBoyEnv, Rom, find_spec
from benchmarks.measuring import interleave, median_ratio, print_hold, print_table, rate, run_parts
from tests.worlds.gameboy.cartridge import add_score, cartridge, store

LEVEL = 9
BARE_DRAWN, RGB, GRAY, BARE, RAM = "PyBoy, drawn", "rgb", "grayscale", "PyBoy, not drawn", "ram"
PRESS_A, NOOP = 0, 6
GAME = find_spec("PokemonRed-catching")
IN_BATTLE = store(GAME.ram["InBattle"].address, 1)  # so that the episode goes on


def draw_actions(frames: int) -> list[int]:
    actions: list[int] = np.random.default_rng(0).integers(len(ACTIONS), size=frames).tolist()
    return actions


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


def falling_blocks(args: Namespace) -> None:
    frames = 25 * args.frames
    games: dict[str, Callable[[int], None]] = {"rules": play_rules}
    games |= {name: partial(play_environment, name, False) for name in ("board", "dict", "image")}
    games["render"] = partial(play_environment, "board", True)
    contestants = {name: partial(rate, partial(play, frames), 1, frames) for name, play in games.items()}
    samples = interleave(contestants, args.rounds)
    print_table(f"FallingBlocks, level {LEVEL}, frames/s", samples, "rules")
    for name in ("board", "dict"):
        print_hold(f"{name}, frames/s", statistics.median(samples[name]), least=100_000)


def bare_frames_per_second(rom: bytes, draw: bool, frames: int) -> float:
    from pyboy import PyBoy

    pyboy = PyBoy(io.BytesIO(rom), window="null", sound_emulated=False, no_input=True, log_level="ERROR")
    pyboy.tick(200, False, False)
    numbers = cycle(range(4))

    def frame() -> None:
        if next(numbers) == 0:
            pyboy.button("a")
        pyboy.tick(1, draw, False)

    found = rate(frame, frames)
    pyboy.stop(save=False)
    return found


def frames_per_second(path: Path, obs_type: str, frames: int) -> float:
    digest = sha256(path.read_bytes()).hexdigest()
    spec = replace(GAME, roms=(Rom("benchmark", path.name, digest),), states=None)
    env = GameBoyEnv(path, spec, obs_type=obs_type)
    env.reset()
    action: Any = cycle([PRESS_A, NOOP, NOOP, NOOP]).__next__
    found = rate(lambda: env.step(action()), frames)
    env.close()
    return found


def game_boy(args: Namespace) -> None:
    cv2.setNumThreads(1)
    for title, busy in (("processor at work", True), ("processor halted", False)):
        rom = cartridge("dmg", {"a": add_score(7)}, begin=IN_BATTLE, busy=busy)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "benchmark.gb"
            path.write_bytes(rom)
            contestants = {
                BARE_DRAWN: partial(bare_frames_per_second, rom, True, args.frames),
                BARE: partial(bare_frames_per_second, rom, False, args.frames),
                **{name: partial(frames_per_second, path, name, args.frames) for name in (RGB, GRAY, RAM)},
            }
            samples = interleave(contestants, args.rounds)
        for drawn, names in (("every", (BARE_DRAWN, RGB, GRAY)), ("no", (BARE, RAM))):
            own = {name: samples[name] for name in names}
            print_table(f"{title}, frames/s, {drawn} frame drawn", own, names[0])
        if busy:
            print_hold(f"{RGB} / {BARE_DRAWN}", median_ratio(samples, RGB, BARE_DRAWN), least=0.9)
            print_hold(f"{RAM} / {BARE}", median_ratio(samples, RAM, BARE), least=0.7)


if __name__ == "__main__":
    run_parts(
        __doc__,
        {"falling_blocks": falling_blocks, "game_boy": game_boy},
        rounds=(9, "interleaved repetitions"),
        frames=(4_000, "of a Game Boy per repetition; of falling blocks 25 times as many"),
    )

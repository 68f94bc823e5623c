"""What `GameBoyEnv` costs: frames per second on one core, against PyBoy alone, ticked once per frame.

No game comes with this project, so two cartridges of the tests are played: one whose processor works all the time, as
a game's does that waits in a loop, and one that halts until the next frame and so leaves PyBoy nothing to do, the
worst case for whatever runs beside it. The environment reads what Pokemon's catching reads, the longest list there is.
Both emulators have their sound off and draw alike: every frame (`"rgb"` observations, and in grey of 84 x 84), or none
(`"ram"` observations). Every fourth frame a button is pressed.

Time is processor time of this process, so that other jobs on the machine disturb little.

    python -m benchmarks.gameboy

Hold, with the processor at work: the ratio to PyBoy alone is >= 0.9 where every frame is drawn, >= 0.7 where none is.
"""

from __future__ import annotations

import argparse
import io
import tempfile
import time
from dataclasses import replace
from functools import partial
from hashlib import sha256
from itertools import cycle
from pathlib import Path
from typing import Any

import cv2

from async_wrappers.envs.gameboy import GameBoyEnv, Rom, find_spec
from benchmarks.interleave import interleave, median_ratio, print_hold, print_load, print_table
from tests.worlds.gameboy.cartridge import add_score, cartridge, store

BARE_DRAWN, RGB, GRAY, BARE, RAM = "PyBoy, drawn", "rgb", "grayscale", "PyBoy, not drawn", "ram"
PRESS_A, NOOP = 0, 6
GAME = find_spec("PokemonRed-catching")
IN_BATTLE = store(GAME.ram["InBattle"].address, 1)  # so that the episode goes on


def bare_frames_per_second(rom: bytes, draw: bool, frames: int) -> float:
    from pyboy import PyBoy

    pyboy = PyBoy(io.BytesIO(rom), window="null", sound_emulated=False, no_input=True, log_level="ERROR")
    pyboy.tick(200, False, False)
    begin = time.process_time()
    for frame in range(frames):
        if frame % 4 == 0:
            pyboy.button("a")
        pyboy.tick(1, draw, False)
    seconds = time.process_time() - begin
    pyboy.stop(save=False)
    return frames / seconds


def frames_per_second(rom: bytes, path: Path, obs_type: str, frames: int) -> float:
    spec = replace(GAME, roms=(Rom("benchmark", path.name, sha256(rom).hexdigest()),), states=None)
    env = GameBoyEnv(path, spec, obs_type=obs_type)
    env.reset()
    action: Any = cycle([PRESS_A, NOOP, NOOP, NOOP]).__next__
    begin = time.process_time()
    for _ in range(frames):
        env.step(action())
    seconds = time.process_time() - begin
    env.close()
    return frames / seconds


def measure(title: str, rom: bytes, path: Path, frames: int, rounds: int, hold: bool) -> None:
    path.write_bytes(rom)
    contestants = {
        BARE_DRAWN: partial(bare_frames_per_second, rom, True, frames),
        RGB: partial(frames_per_second, rom, path, RGB, frames),
        GRAY: partial(frames_per_second, rom, path, GRAY, frames),
        BARE: partial(bare_frames_per_second, rom, False, frames),
        RAM: partial(frames_per_second, rom, path, RAM, frames),
    }
    samples = interleave(contestants, rounds)
    print_table(
        f"{title}, frames/s, every frame drawn", {name: samples[name] for name in (BARE_DRAWN, RGB, GRAY)}, BARE_DRAWN
    )
    print_table(f"{title}, frames/s, no frame drawn", {name: samples[name] for name in (BARE, RAM)}, BARE)
    if hold:
        print_hold(f"{RGB} / {BARE_DRAWN}", median_ratio(samples, RGB, BARE_DRAWN), least=0.9)
        print_hold(f"{RAM} / {BARE}", median_ratio(samples, RAM, BARE), least=0.7)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="interleaved repetitions")
    parser.add_argument("--frames", type=int, default=4_000, help="frames per repetition")
    args = parser.parse_args()
    cv2.setNumThreads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "benchmark.gb"
        for title, busy in (("processor at work", True), ("processor halted", False)):
            rom = cartridge("dmg", {"a": add_score(7)}, begin=IN_BATTLE, busy=busy)
            measure(title, rom, path, args.frames, args.rounds, hold=busy)
    print_load()


if __name__ == "__main__":
    main()

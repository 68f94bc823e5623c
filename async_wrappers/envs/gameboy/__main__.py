"""Converts save states: ``python -m async_wrappers.envs.gameboy convert STATE --rom ROM --out FILE``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from async_wrappers.envs.gameboy.emulator import Console
from async_wrappers.envs.gameboy.rom_files import read_file, write_file


def convert(state: str, rom: str, out: str) -> None:
    """Write gym-retro's or PyBoy's save state `state` of the game `rom` as one that `GameBoyEnv` takes.

    It is PyBoy's state, with a trailer that names the ROM and the release; PyBoy itself loads it, too.

    Raises:
        ValueError: A file cannot be read or written, or the state is not of this ROM or emulator.
    """
    for name, path in (("rom", rom), ("state", state)):
        if os.path.exists(out) and os.path.exists(path) and os.path.samefile(out, path):
            raise ValueError(f"out must be another file than {name}, got {out!r} for both: it would be overwritten")
    console = Console(read_file("rom", rom, "give the path of the ROM that the state was made with"))
    try:
        console.load(read_file("state", state, "give the path of a save state"), check_origin=False)
        write_file("out", out, console.save())
    finally:
        console.stop()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code: 0 done, 1 refused, 2 usage."""
    parser = argparse.ArgumentParser(
        prog="python -m async_wrappers.envs.gameboy",
        description="Game Boy save states for async_wrappers. Nothing is ever written beside the ROM, unless asked.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("convert", help="a gym-retro state (Gambatte), or one of PyBoy's own, for GameBoyEnv")
    command.add_argument("state", help="the save state, such as Squirt_B1.state")
    command.add_argument("--rom", required=True, help="the ROM that the state was made with")
    command.add_argument("--out", required=True, help="the file to write")
    given = parser.parse_args(arguments)
    try:
        convert(given.state, given.rom, given.out)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

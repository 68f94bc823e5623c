"""The games of the published experiments, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial
from typing import Any

from async_wrappers.envs.gameboy.environment import GameBoyEnv
from async_wrappers.envs.gameboy.pokemon import BLUE, RED, YELLOW, battles, catching
from async_wrappers.envs.gameboy.spec import Spec
from async_wrappers.envs.gameboy.tetris import tetris

__all__ = ["GAMES", "find_spec", "make_game"]

GAMES: Mapping[str, Callable[[bool], Spec]] = {
    "Tetris": tetris,
    "PokemonRed-battles": partial(battles, RED),
    "PokemonRed-catching": partial(catching, RED),
    "PokemonBlue-battles": partial(battles, BLUE),
    "PokemonBlue-catching": partial(catching, BLUE),
    "PokemonYellow-battles": partial(battles, YELLOW),
    "PokemonYellow-catching": partial(catching, YELLOW),
}


def find_spec(game: str, parity: bool = False) -> Spec:
    """Return the spec of a game.

    Args:
        game: A name, such as ``"PokemonBlue-battles"``.
        parity: With the quirks of the published code, which are otherwise corrected.

    Raises:
        ValueError: No game has that name.
    """
    if game not in GAMES:
        close = get_close_matches(game, list(GAMES), n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"game must be one of {', '.join(GAMES)}, got {game!r}{hint}")
    return GAMES[game](parity)


def make_game(game: str, rom: Any = None, parity: bool = False, **arguments: Any) -> GameBoyEnv:
    """Return a game as an environment: what ``gymnasium.make("async_wrappers/PokemonBlue-battles-v0", ...)`` calls.

    Args:
        game: A name, such as ``"PokemonBlue-battles"``.
        rom: Path of your own ROM.
        parity: With the quirks of the published code, which are otherwise corrected.
        **arguments: Of `GameBoyEnv`: ``states``, ``state``, ``obs_type`` and so on.
    """
    return GameBoyEnv(rom, find_spec(game, parity), **arguments)

"""The environments of this package, registered with Gymnasium: their modules are imported when one is made."""

from __future__ import annotations

import gymnasium as gym

__all__ = ["register_environments"]

_GAME_BOY_GAMES = (
    "Tetris",
    "PokemonRed-battles",
    "PokemonRed-catching",
    "PokemonBlue-battles",
    "PokemonBlue-catching",
    "PokemonYellow-battles",
    "PokemonYellow-catching",
)


def register_environments() -> None:
    """Register ids such as ``"async_wrappers/PokemonBlue-battles-v0"``."""
    gym.register(
        id="async_wrappers/FallingBlocks-v0",
        entry_point="async_wrappers.envs.falling_blocks:FallingBlocksEnv",
    )
    for game in _GAME_BOY_GAMES:
        gym.register(
            id=f"async_wrappers/{game}-v0",
            entry_point="async_wrappers.envs.gameboy:make_game",
            kwargs={"game": game},
        )

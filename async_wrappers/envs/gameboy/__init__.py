"""Game Boy games on PyBoy, with the user's own ROM: Tetris and Pokemon as in arXiv 2412.14355.

* `GameBoyEnv`: any game as a Gymnasium environment, from a ROM and a `Spec`.
* `make_game`, `find_spec`: Tetris, Pokemon Red, Blue and Yellow.
* ``python -m async_wrappers.envs.gameboy convert``: gym-retro's save states for PyBoy.

No ROM and no state made from one comes with this package.
"""

from async_wrappers.envs.gameboy.game_spec import Field, Rom, Rule, Spec, StateList
from async_wrappers.envs.gameboy.gameboy_env import GameBoyEnv
from async_wrappers.envs.gameboy.games import GAMES, find_spec, make_game

__all__ = ["GAMES", "Field", "GameBoyEnv", "Rom", "Rule", "Spec", "StateList", "find_spec", "make_game"]

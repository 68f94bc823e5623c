"""Falling blocks at the Game Boy's frame rate: an open game that never waits for a policy.

* `FallingBlocksEnv`: the Gymnasium environment, registered as ``async_wrappers/FallingBlocks-v0``.
* `Game`: the rules alone, one frame at a time, without Gymnasium: field, pieces, generators.
* `observation`: its observations, as pixels, cells or numbers.
"""

from async_wrappers.envs.falling_blocks.falling_blocks_env import FallingBlocksEnv
from async_wrappers.envs.falling_blocks.game import Game

__all__ = ["FallingBlocksEnv", "Game"]

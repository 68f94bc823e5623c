"""A player that clears lines: it looks for the best place of the falling piece, and presses a button a frame.

Where a piece goes is chosen by the usual heuristic: of all landings that can be reached, the best by a weighted sum of
heights, holes, unevenness and full rows (`landings`). The weights are those of Lee, "Tetris AI - the (near) perfect
bot", 2013, found by a genetic algorithm.

It is a policy, a function of the newest observation alone: what it pressed before it reads there (`Vector` has the
button that is held). So it can play, be recorded (``train.py record --player``) and teach
(`benchmarks.studies.falling_blocks_lines`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from async_wrappers.envs.falling_blocks.game import ACTIONS, NO_PIECE, STRIDE
from async_wrappers.envs.falling_blocks.landings import Landing, landings
from async_wrappers.envs.falling_blocks.observation import Seen, Vector

_NOOP, _A, _B, _LEFT, _RIGHT, _DOWN = range(len(ACTIONS))

WEIGHTS = -0.510066, -0.35663, -0.184483, 0.760666


@lru_cache(maxsize=8192)
def merit(landing: Landing) -> float:
    """Return how good a landing is."""
    return sum(weight * number for weight, number in zip(WEIGHTS, landing, strict=True))


def best_place(field: int, piece: int, turn: int, position: int) -> tuple[int, int] | None:
    """Return the turn and the box's column of the best place that can be reached from where a piece is.

    The way there is straight: turned at once, and then shifted in the same row. Of places alike the nearest one is
    best. None where no turn fits.
    """
    row, column = divmod(position, STRIDE)
    best, place = None, None
    for goal, fitting in enumerate(landings(field, piece, row)):
        turns = min((goal - turn) % 4, (turn - goal) % 4)
        for step in (-1, 1):
            at = column
            while at in fitting:
                rank = merit(fitting[at]), -turns - abs(at - column)
                if best is None or rank > best:
                    best, place = rank, (goal, at)
                at += step
    return place


def towards(seen: Seen, turn: int, column: int, drops: bool = True) -> int:
    """Return the action that brings the falling piece towards a turn and a column of its box.

    It turns first, and lets go of every button for a frame before the next press. In its place the piece is dropped
    softly, or left to fall if `drops` is False.
    """
    now = seen.position % STRIDE
    if (turn, column) == (seen.turn, now):
        return _DOWN if drops else _NOOP
    if seen.held != _NOOP:
        return _NOOP
    if turn != seen.turn:
        return _B if (turn - seen.turn) % 4 == 3 else _A
    return _LEFT if column < now else _RIGHT


def press(seen: Seen, drops: bool = True) -> int:
    """Return the player's action for an observation, see `towards`; no button between two pieces."""
    if seen.piece == NO_PIECE:
        return _NOOP
    place = best_place(seen.field, seen.piece, seen.turn, seen.position)
    return _NOOP if place is None else towards(seen, *place, drops)


def make_player(environment: gym.Env[Any, Any]) -> Callable[[npt.NDArray[np.uint8]], int]:
    """Return the player of an environment that shows the vector.

    Raises:
        ValueError: It shows something else.
    """
    if environment.observation_space != Vector().space:
        raise ValueError(
            "this player reads FallingBlocksEnv(observation='vector') without delay or further numbers, got "
            f"observations in {environment.observation_space}"
        )
    return lambda numbers: press(Vector.read(numbers))

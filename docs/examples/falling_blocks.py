"""A scripted player of falling blocks, with and without delay.

python docs/examples/falling_blocks.py --delays 0 2 --frames 1200

Its games can be recorded, for an agent to learn from (docs/how_to/demonstrations.md):

python train.py record --gin_files configs/dqn/falling_blocks.gin --player docs.examples.falling_blocks:make_player

It looks for the best place of the falling piece, presses the buttons that bring it there, and drops it. It is told
nothing of the delay: it acts on what it sees, as if that were the present.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import gymnasium as gym
import numpy as np

from async_wrappers import RealtimeDelay
from async_wrappers.envs.falling_blocks.game import COLUMNS, NO_PIECE, OFFSETS, ROWS, STRIDE
from async_wrappers.envs.falling_blocks.observation import FALLING, LOCKED

NOOP, A, B, LEFT, RIGHT, DOWN = range(6)


def blocks(piece: int, turn: int) -> np.ndarray:
    """Return the rows and columns of a piece's four blocks, `[4, 2]`, counted from its top and left."""
    cells = np.array([divmod(offset, STRIDE) for offset in OFFSETS[piece][turn]])
    return cells - cells.min(axis=0)


def drop(locked: np.ndarray, cells: np.ndarray, column: int) -> np.ndarray | None:
    """Return the board after the blocks `cells` have fallen in `column`, or None where they do not fit."""
    rows, columns = cells[:, 0], cells[:, 1] + column
    down = 0
    while down + rows.max() < ROWS and not locked[rows + down, columns].any():
        down += 1
    if not down:
        return None
    board = locked.copy()
    board[rows + down - 1, columns] = True
    return board


def merit(board: np.ndarray) -> float:
    """Return how good a board is: few holes, low and even columns, full rows."""
    full = board.all(axis=1)
    board = board[~full]
    heights = np.where(board.any(axis=0), len(board) - board.argmax(axis=0), 0)
    holes = heights.sum() - board.sum()
    return float(8 * full.sum() - 5 * heights.sum() - 10 * holes - 2 * abs(np.diff(heights)).sum())


@lru_cache(maxsize=8)
def best_place(locked: bytes, piece: int) -> tuple[int, int]:
    """Return the turn and the leftmost column of the best place for `piece`."""
    board = np.frombuffer(locked, bool).reshape(ROWS, COLUMNS)
    places = {}
    for turn in range(4):
        cells = blocks(piece, turn)
        for column in range(COLUMNS - cells[:, 1].max()):
            if (after := drop(board, cells, column)) is not None:
                places.setdefault((turn, column), merit(after))
    return max(places, key=lambda place: places[place], default=(0, 0))


class Player:
    """Chooses a button for each frame; it lets go of a button before it presses it again."""

    def __init__(self) -> None:
        """Have pressed nothing yet."""
        self._last = NOOP

    def __call__(self, observation: dict[str, Any]) -> int:
        """Return the action for what is seen."""
        wanted = self._wanted(observation)
        self._last = NOOP if wanted == self._last and wanted != DOWN else wanted
        return self._last

    def _wanted(self, observation: dict[str, Any]) -> int:
        board, piece = observation["board"], int(observation["piece"])
        if piece == NO_PIECE:
            return NOOP
        seen = np.argwhere(board == FALLING)
        place, column = seen - seen.min(axis=0), seen[:, 1].min()
        turns = [turn for turn in range(4) if np.array_equal(blocks(piece, turn), place)]
        turn, goal = best_place((board == LOCKED).tobytes(), piece)
        if not any(np.array_equal(blocks(piece, turn), blocks(piece, now)) for now in turns):
            return B if (turn - turns[0]) % 4 == 3 else A
        return LEFT if column > goal else RIGHT if column < goal else DOWN


def make_player(env: gym.Env) -> Callable[[np.ndarray], int]:
    """Return a player that sees the board alone, and knows the falling piece by its form."""
    player = Player()

    def act(board: np.ndarray) -> int:
        seen = np.argwhere(board == FALLING)
        forms = ((piece, blocks(piece, turn)) for piece in range(len(OFFSETS)) for turn in range(4))
        piece = NO_PIECE
        if len(seen):
            piece = next(piece for piece, form in forms if np.array_equal(form, seen - seen.min(axis=0)))
        return player({"board": board, "piece": piece})

    return act


def play(env: gym.Env, longest: int, seed: int) -> tuple[dict[str, Any], int]:
    """Play one game of at most `longest` frames; return what is known at its end, and its frames."""
    player, frame, over = Player(), 0, False
    observation, info = env.reset(seed=seed)
    while not over and frame < longest:
        observation, _, terminated, truncated, info = env.step(player(observation))
        frame, over = frame + 1, terminated or truncated
    return info, frame


def main(delays: list[int], level: int, frames: int, seed: int) -> dict[int, dict[str, Any]]:
    """Play one game per delay, and print the scores."""
    infos = {}
    for delay in delays:
        env = gym.make("async_wrappers/FallingBlocks-v0", level=level, observation="dict")
        infos[delay], played = play(RealtimeDelay(env, delay, default_action="noop"), frames, seed)
        score, lines = infos[delay]["score"], infos[delay]["lines"]
        print(f"delay {delay} frames: {score} points, {lines} lines in {played} frames")
    return infos


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--delays", type=int, nargs="+", default=[0, 2, 8], help="frames")
    parser.add_argument("--level", type=int, default=9, help="level at the start, 0 to 20")
    parser.add_argument("--frames", type=int, default=1500, help="longest game")
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))

"""The moving picture of delay: one game of falling blocks, played without delay, sequentially and asynchronously.

    python -m benchmarks.studies.delay_gif docs/delay.gif [--seed 15]
    python -m benchmarks.studies.delay_gif --seeds 30

The first writes the GIF of one game, as `train.py evaluate --video --beside` draws films; the second prints how many
seeds end as it does. Neither needs a trained agent, and the same command plays the same games.

The player is that of `async_wrappers.envs.falling_blocks.player` at all three settings; level, seed and pieces are the
same too. It chooses for the frame on which its action lands: it knows the rules, and is shown which actions are on
their way (``CommittedActions(known=False)``, a delay of transport). It plays these on a copy of the game that it sees,
and presses what it would press there. Sequentially only no-ops are on their way, so it foresees that frame as well.
What differs between the two games under delay is how often it may act.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from PIL import Image

import async_wrappers  # noqa: F401  (registers the game)
from async_wrappers import CommittedActions, RealtimeDelay
from async_wrappers.agents.experiment.film import Film, beside
from async_wrappers.agents.experiment.video import filmed
from async_wrappers.envs.falling_blocks.game import (
    ACTIONS,
    ENTRY_DELAY,
    Biased,
    Game,
    full_rows,
)
from async_wrappers.envs.falling_blocks.observation import Seen, Vector
from async_wrappers.envs.falling_blocks.player import press

BUTTONS = tuple(ACTIONS.values())
ACTION_OF = {button: action for action, button in enumerate(BUTTONS)}
NOOP = 0

LEVEL = 20  # 3 frames a row, so that a piece falls for about 48 frames
DELAY = 16  # frames
LONGEST = 750  # frames of a game, 12.6 s


class Interaction(NamedTuple):
    """How the player meets the game.

    Attributes:
        name: The title of its picture.
        delay: Frames from an observation to the frame on which the action that was chosen on it lands.
        noops: Frames between two actions.
    """

    name: str
    delay: int
    noops: int


INTERACTIONS = (
    Interaction("no delay", 0, 0),
    Interaction("sequential", DELAY, DELAY),
    Interaction("asynchronous", DELAY, 0),
)


def make(interaction: Interaction) -> gym.Env[Any, Any]:
    """Return a game of at most `LONGEST` frames."""
    made: dict[str, Any] = {"level": LEVEL, "observation": "vector", "max_frames": LONGEST, "render_mode": "rgb_array"}
    game: Any = gym.make("async_wrappers/FallingBlocks-v0", **made)
    delayed = RealtimeDelay(game.unwrapped, interaction.delay, interaction.noops, default_action="noop")
    return CommittedActions(delayed, length=max(1, interaction.delay), known=False, flat=True)


def play(env: gym.Env[Any, Any], delay: int, seed: int) -> dict[str, Any]:
    """Play a game, and return how it ended."""
    observation, _ = env.reset(seed=seed)
    over = False
    while not over:
        observation, _, terminated, truncated, _ = env.step(choose(observation, delay))
        over = terminated or truncated
    game: Any = env.unwrapped
    state: dict[str, Any] = game.get_state()["game"]
    return state


def choose(observation: npt.NDArray[np.uint8], delay: int) -> int:
    """Return the player's action for the frame on which it lands, `delay` frames after the observation's."""
    game = shown(observation[: Vector.SIZE])
    rows = observation[Vector.SIZE :].reshape(-1, len(ACTIONS) + 1)
    on_their_way = [int(row.argmax()) for row in rows if row.any()]
    # Frames before the first action of a game, and those between two sequential actions, receive a no-op.
    for action in [NOOP] * (delay - len(on_their_way)) + on_their_way:
        game.step(BUTTONS[action])
    held = ACTION_OF[game.buttons]
    return press(Seen(game.field, game.piece, game.turn, game.position, game.preview, held), drops=False)


def shown(numbers: npt.NDArray[np.uint8]) -> Game:
    """Return a game like the one that a `Vector` shows. Pieces after its preview, which nobody sees, are made up."""
    game = Game(LEVEL, Biased(np.random.default_rng(0)))
    game.field, game.piece, game.turn, game.position, game.preview, held = Vector.read(numbers)
    game.buttons = BUTTONS[held]
    game.fall_timer, waiting = (int(timer) // 17 for timer in numbers[Vector.TIMERS : Vector.SIZE])
    if full_rows(game.field):
        game.clearing, game.entering = max(1, waiting - ENTRY_DELAY), ENTRY_DELAY
    else:
        game.entering = waiting
    return game


FRAMES_PER_IMAGE = 3  # 20 images a second run at the game's speed
PAUSE = 1500  # milliseconds that the last image stays
COLOURS, WIDTH = 32, 320  # of the picture; pixels of a game


def film(interaction: Interaction, seed: int) -> Film:
    """Play a game, and return its film."""
    films: list[Film] = []
    with filmed(make(interaction), interaction.name, films.append) as env:
        play(env, interaction.delay, seed)
    return films[0]


def draw_gif(path: Path, films: Sequence[Film]) -> None:
    """Write the films side by side, as a GIF that begins anew after a pause."""
    drawn = list(beside(films, FRAMES_PER_IMAGE, WIDTH))
    palette = drawn[len(drawn) // 2].quantize(COLOURS)
    whole = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in drawn]
    # An image holds its difference from the one before alone; the rest is transparent.
    images = whole[:1]
    for before, image in pairwise(map(np.asarray, whole)):
        images.append(Image.fromarray(np.where(before == image, COLOURS, image).astype(np.uint8)))
        images[-1].putpalette([*(palette.getpalette() or [])[: 3 * COLOURS], 0, 0, 0])
    durations = [1000 * FRAMES_PER_IMAGE // 60] * (len(images) - 1) + [PAUSE]
    how: dict[str, Any] = {"transparency": COLOURS, "disposal": 1, "optimize": False}
    images[0].save(path, save_all=True, append_images=images[1:], duration=durations, loop=0, **how)


def print_table(seeds: int) -> None:
    """Print, in Markdown, how games of the seeds from 0 on ended."""
    print("| interaction | lines a game | games over |\n|---|---|---|")
    for interaction in INTERACTIONS:
        ends = [play(make(interaction), interaction.delay, seed) for seed in range(seeds)]
        lines = sum(end["lines"] for end in ends) / seeds
        print(f"| {interaction.name} | {lines:.2f} | {sum(end['over'] for end in ends)} of {seeds} |", flush=True)


def main() -> None:
    """Write the picture, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gif", type=Path, nargs="?", help="file to write")
    parser.add_argument("--seed", type=int, default=15, help="of the game that is drawn")
    parser.add_argument("--seeds", type=int, help="print a table of so many seeds")
    options = parser.parse_args()
    if (options.gif is None) == (options.seeds is None):
        parser.error("say either which GIF to write or how many --seeds to play")
    if options.seeds is not None:
        print_table(options.seeds)
    else:
        draw_gif(options.gif, [film(interaction, options.seed) for interaction in INTERACTIONS])


if __name__ == "__main__":
    main()

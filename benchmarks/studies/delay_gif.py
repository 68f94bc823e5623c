"""The moving picture of delay: one game of falling blocks, played without delay, sequentially and asynchronously.

    python -m benchmarks.studies.delay_gif docs/delay.gif [--seed 15]
    python -m benchmarks.studies.delay_gif --seeds 30

The first writes the GIF of one game, the second prints how many seeds end as it does. Neither needs PyTorch or a
trained agent, and the same command plays the same games.

The player is that of `async_wrappers.envs.falling_blocks.player` at all three settings; level, seed and pieces are the
same too. It chooses for the frame on which its action lands: it knows the rules, and is shown which actions are on
their way (``CommittedActions(known=False)``, a delay of transport). It plays these on a copy of the game that it sees,
and presses what it would press there. Sequentially only no-ops are on their way, so it foresees that frame as well.
What differs between the two games under delay is how often it may act.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from PIL import Image, ImageColor, ImageDraw, ImageFont

import async_wrappers  # noqa: F401  (registers the game)
from async_wrappers import CommittedActions, RealtimeDelay
from async_wrappers.envs.falling_blocks.game import (
    ACTIONS,
    CEILING,
    COLUMNS,
    ENTRY_DELAY,
    OFFSETS,
    ROWS,
    STRIDE,
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
        how: A line below the title.
        delay: Frames from an observation to the frame on which the action that was chosen on it lands.
        noops: Frames between two actions.
    """

    name: str
    how: str
    delay: int
    noops: int


INTERACTIONS = (
    Interaction("no delay", "an action on every frame, at once", 0, 0),
    Interaction("sequential", f"an action on every {DELAY + 1}th frame, {DELAY} late", DELAY, DELAY),
    Interaction("asynchronous", f"an action on every frame, {DELAY} late", DELAY, 0),
)


class Played(NamedTuple):
    """A game.

    Attributes:
        states: Of the game at the beginning of each frame and after the last one, see `Game.get_state`.
        starts: The frame on which an action landed, and the frame whose observation it was chosen on.
    """

    states: list[dict[str, Any]]
    starts: dict[int, int]


class Recorder(gym.Wrapper[Any, Any, Any, Any]):
    """Keeps the game's states; it stands inside the delay, where a step is a frame."""

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Reset the game and forget the last one."""
        begun = self.env.reset(**options)
        self.states = [self._state()]
        return begun

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Play a frame."""
        result = self.env.step(action)
        self.states.append(self._state())
        return result

    def _state(self) -> dict[str, Any]:
        env: Any = self.env
        state: dict[str, Any] = env.get_state()["game"]
        return state


def play(interaction: Interaction, seed: int) -> Played:
    """Play a game of at most `LONGEST` frames."""
    game = gym.make("async_wrappers/FallingBlocks-v0", level=LEVEL, observation="vector", max_frames=LONGEST)
    recorder, delay = Recorder(game.unwrapped), interaction.delay
    delayed = RealtimeDelay(recorder, delay, interaction.noops, default_action="noop")
    env = CommittedActions(delayed, length=max(1, delay), known=False, flat=True)
    observation, info = env.reset(seed=seed)
    starts: dict[int, int] = {}
    over = False
    while not over:
        start = info["realtime"]["start"]
        observation, _, terminated, truncated, info = env.step(choose(observation, delay))
        if info["realtime"]["applied"]:
            starts[start + delay] = start
        over = terminated or truncated
    return Played(recorder.states, starts)


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


# The picture: a card that is dark on light pages too, so that one file is readable in both modes.

CELL = 16  # pixels
WIDTH, HEIGHT = 276, 416  # of a panel
LEFT, TOP = 16, 76  # of the field
RIGHT, BOTTOM = LEFT + CELL * COLUMNS, TOP + CELL * ROWS
STRIP_TOP, STRIP_HEIGHT, STRIP_FRAMES, TICK = BOTTOM + 10, 14, 60, 4
FRAMES_PER_IMAGE = 3  # 20 images a second run at the game's speed
PAUSE = 1500  # milliseconds that the last image stays

CARD, FIELD, GRID = "#22272e", "#0d1117", "#1a2029"
TEXT, QUIET, LOST = "#f0f6fc", "#adbac7", "#ff7b72"
LOCKED, FALLING, SEEN, WAITING = "#768390", "#f0b429", "#6cb6ff", "#444c56"


def draw_panel(interaction: Interaction, game: Played, frame: int) -> Image.Image:
    """Draw a game at the beginning of a frame; a game that is over stands still."""
    last = len(game.states) - 1
    now = min(frame, last)
    state = game.states[now]
    panel = Image.new("RGB", (WIDTH, HEIGHT), CARD)
    draw = ImageDraw.Draw(panel)
    _write(draw, LEFT, 10, interaction.name, 24)
    _write(draw, LEFT, 44, interaction.how, 15, QUIET)
    _write(draw, RIGHT + 16, TOP, "lines", 15, QUIET)
    _write(draw, RIGHT + 16, TOP + 18, str(state["lines"]), 40)

    draw.rectangle((LEFT, TOP, RIGHT, BOTTOM), FIELD)
    for column in range(1, COLUMNS):
        draw.line((LEFT + CELL * column, TOP, LEFT + CELL * column, BOTTOM), GRID)
    blinks = state["clearing"] // 12 % 2
    for row, cells in enumerate(state["rows"]):
        full = cells == (1 << COLUMNS) - 1
        for column in range(COLUMNS):
            if cells >> column & 1:
                draw.rectangle(_cell(row, column, 1), FALLING if full and blinks else LOCKED)
    for row, column in _blocks(state):
        draw.rectangle(_cell(row, column, 1), FALLING)

    if interaction.delay:  # what the newest action that has landed was chosen on
        draw.rectangle((RIGHT + 17, TOP + 98, RIGHT + 29, TOP + 110), outline=SEEN, width=2)
        _write(draw, RIGHT + 16, TOP + 116, "seen by\nthe player", 15, QUIET)
        landed = [start for effect, start in game.starts.items() if effect <= now]
        if landed and not state["over"]:
            for row, column in _blocks(game.states[landed[-1]]):
                draw.rectangle(_cell(row, column, 2), outline=SEEN, width=2)
    if state["over"]:
        _write(draw, RIGHT + 16, TOP + 180, "game\nover", 24, LOST)

    for tick, at in enumerate(range(now - STRIP_FRAMES + 1, now + 1)):
        left = LEFT + TICK * tick
        colour = TEXT if at in game.starts else WAITING if 0 <= at < last else CARD
        draw.rectangle((left, STRIP_TOP, left + TICK - 2, STRIP_TOP + STRIP_HEIGHT), colour)
    _write(draw, LEFT, STRIP_TOP + STRIP_HEIGHT + 5, "frames that receive an action", 15, QUIET)
    return panel


def _write(draw: ImageDraw.ImageDraw, left: int, top: int, text: str, size: int, colour: str = TEXT) -> None:
    draw.text((left, top), text, colour, ImageFont.load_default(size))  # a font that comes with Pillow


def _cell(row: int, column: int, margin: int) -> tuple[int, int, int, int]:
    left, top = LEFT + CELL * column, TOP + CELL * row
    return left + margin, top + margin, left + CELL - margin, top + CELL - margin


def _blocks(state: dict[str, Any]) -> list[tuple[int, int]]:
    """Return the row and column of each block of the falling piece."""
    cells = [divmod(state["position"] + offset, STRIDE) for offset in OFFSETS[state["piece"]][state["turn"]]]
    return [(row - CEILING, column - 1) for row, column in cells]


def _palette() -> Image.Image:
    """Return the colours of all images: those named above, and steps between a text's and the card's."""
    colours = [ImageColor.getrgb(name) for name in (FIELD, GRID, LOCKED, FALLING, SEEN, WAITING)]
    card = np.array(ImageColor.getrgb(CARD))
    for name in (TEXT, QUIET, LOST):
        text = np.array(ImageColor.getrgb(name))
        colours += [tuple(int(each) for each in card + (text - card) * step // 6) for step in range(7)]
    palette = Image.new("P", (1, 1))
    palette.putpalette([number for colour in colours for number in colour])
    return palette


def draw_gif(path: Path, games: Sequence[Played]) -> None:
    """Write the games side by side, as a GIF that begins anew after a pause."""
    palette, images = _palette(), []
    for frame in range(0, max(len(game.states) for game in games), FRAMES_PER_IMAGE):
        image = Image.new("RGB", (WIDTH * len(games), HEIGHT), CARD)
        for number, (interaction, game) in enumerate(zip(INTERACTIONS, games, strict=True)):
            image.paste(draw_panel(interaction, game, frame), (WIDTH * number, 0))
        images.append(image.quantize(palette=palette, dither=Image.Dither.NONE))
    durations = [1000 * FRAMES_PER_IMAGE // 60] * (len(images) - 1) + [PAUSE]
    images[0].save(path, save_all=True, append_images=images[1:], duration=durations, loop=0, optimize=False)


def print_table(seeds: int) -> None:
    """Print, in Markdown, how games of the seeds from 0 on ended."""
    print("| interaction | lines a game | games over |\n|---|---|---|")
    for interaction in INTERACTIONS:
        ends = [play(interaction, seed).states[-1] for seed in range(seeds)]
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
        draw_gif(options.gif, [play(interaction, options.seed) for interaction in INTERACTIONS])


if __name__ == "__main__":
    main()

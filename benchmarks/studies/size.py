"""Does size pay? A larger network plays better and answers later: falling blocks, four sizes, each at its own delay.

    python -m benchmarks.studies.size --base_dir DIR [--seeds 0 1 2] [--slowness 1 2 4] [--show] [--draw]

The game is ``async_wrappers/FallingBlocks-v0`` at its fastest level, shown as a vector, of which a student reads the
cells, the columns' heights and the piece. It imitates the player of `async_wrappers.envs.falling_blocks.player`, which
has no delay. A student has two parts:

    network   says where a piece is to land on a field: the logits of 48 places, a turn and a column each. It slides
              along the columns with `UNITS` units, which is the size. It learns the softmax of what the player's rule
              gives for each place (`TEMPERATURE`), from fields that the player has come to. Where a piece is to land
              depends on no delay, so a network is taught once for all delays and ways.
    hand      presses a button on each frame on which an action lands, as the player does: it turns the piece, then
              shifts it. It is not learnt, takes no time, and runs when the action lands, so it knows all actions before
              (core at release). From the newest observation and the presses since it knows where the piece is by now,
              walls and blocks aside. A piece that is not in the network's observation has no place yet.

A network of W weights takes

    slowness * sqrt(W / W of the smallest)

frames, rounded up. (In `plan`'s table the paper's network of 903,718 weights takes 5 times the frames of that of
54,178, with 17 times the weights.) The ways:

    no delay       the world waits
    sequential     the student observes, waits d frames for its action, and observes again
    asynchronous   an action on every frame, each from an observation d frames old
    beside         asynchronous; the smallest network beside the large one reads an observation as old as its own delay.
                   The hand reads that one, and follows the large network where both saw the same piece on the same
                   field, else the smallest
    (the smallest alone is the asynchronous one of that size)

A file below DIR is a seed's fields, a network, or a trial, written when it is finished: a second call makes what is
missing, and processes with other `--seeds` may share DIR. Lines are of `GAMES` games of at most 3,000 frames (50 s).
`--draw` writes docs/results/size.csv and draws docs/results_size.png; `--show` makes nothing.
"""

from __future__ import annotations

import csv
import io
import json
import math
import statistics
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

import async_wrappers  # noqa: F401  (registers the game)
from async_wrappers import FreshObservation, RealtimeDelay
from async_wrappers.agents.play.play import Phase, environment_seed
from async_wrappers.envs.falling_blocks.game import (
    COLUMNS,
    EMPTY_FIELD,
    ENTRY,
    ENTRY_DELAY,
    NO_PIECE,
    ROWS,
    SHAPES,
    STRIDE,
    Biased,
    clear_rows,
    full_rows,
    rows_of,
)
from async_wrappers.envs.falling_blocks.observation import Seen, Vector
from async_wrappers.envs.falling_blocks.player import landings, merit, towards
from async_wrappers.files import write_atomically, write_text_atomically
from benchmarks.measuring import head, parser_of
from benchmarks.measuring import row as table_row
from benchmarks.studies.falling_blocks_lines import summary
from benchmarks.studies.trials import DOCS

TABLE, PICTURE = DOCS / "results" / "size.csv", DOCS / "results_size.png"

LEVEL = 20  # 3 frames a row
GAMES, LONGEST = 20, 3_000  # games of a trial, frames of a game
NOOP, TURN_RIGHT, TURN_LEFT, TO_LEFT, TO_RIGHT, _ = range(6)

UNITS = 2, 8, 32, 128  # of each of a network's two layers
SPAN, BEFORE = 7, 3  # columns that a place's logit depends on, and those of them before the column of its box
READ = ROWS * COLUMNS + COLUMNS + NO_PIECE  # numbers that a network reads
PLACES = 4 * STRIDE

PIECES, GAME_PIECES = 60_000, 60  # that the player places for a seed's networks, and at most in a game
CLUMSY = (0.0, 0.1, 0.3, 0.6)  # share of the pieces of a game that are placed by chance
TEMPERATURE = 0.1  # of the rule's numbers, of which a hole counts 0.36
UPDATES, BATCH = 2_000, 256
RATE, LAST_RATE = 2e-3, 5e-5  # of Adam, falling linearly

NO_DELAY, SEQUENTIAL, ASYNCHRONOUS, BESIDE = "no delay", "sequential", "asynchronous", "beside the smallest"

Place = tuple[int, int]  # turn, column of the piece's box


def weights(units: int) -> int:
    """Return the weights of a network."""
    return ((ROWS + 1) * SPAN + 1 + NO_PIECE + ROWS + 1) * units + (units + 1) * (units + 4)


def delay_of(units: int, slowness: int) -> int:
    """Return the frames that a network takes if the smallest one takes `slowness` frames."""
    return math.ceil(slowness * math.sqrt(weights(units) / weights(UNITS[0])))


# What is learnt.


class Fields(NamedTuple):
    """Fields that the player has come to, and what its rule gives for the places of a piece.

    Attributes:
        rows: The fields' rows as bits, uint16 `[N, 18]`.
        piece: The piece that enters [N].
        merits: Of each place, float32 `[N, 48]`; minus infinity where the piece cannot go.
    """

    rows: npt.NDArray[np.uint16]
    piece: npt.NDArray[np.int8]
    merits: npt.NDArray[np.float32]

    def examples(self) -> tuple[Tensor, Tensor]:
        """Return what a network reads, float `[N, 197]`, and what it is taught, float `[N, 48]`."""
        known = np.isfinite(self.merits).any(axis=1)
        taught = torch.from_numpy(self.merits[known] / np.float32(TEMPERATURE)).softmax(dim=1)
        return torch.from_numpy(read(self.rows[known], self.piece[known])), taught


def read(rows: npt.NDArray[np.uint16], piece: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Return what a network reads, `[N, 197]`: cells, 0 or 1; heights, in fours of rows; pieces, one-hot."""
    cells = rows[:, :, None] >> np.arange(COLUMNS, dtype=np.uint16) & 1
    heights = np.where(cells.any(axis=1), ROWS - cells.argmax(axis=1), 0) / 4
    return np.hstack([cells.reshape(len(rows), -1), heights, np.eye(NO_PIECE)[piece]]).astype(np.float32)


def merits_of(field: int, piece: int) -> npt.NDArray[np.float32]:
    """Return what the player's rule gives for each place that a piece can be shifted to in the row of its entry."""
    merits = np.full(PLACES, -np.inf, np.float32)
    for turn, fitting in enumerate(landings(field, piece, ENTRY // STRIDE)):
        for step in (-1, 1):
            column = ENTRY % STRIDE
            while column in fitting:
                merits[turn * STRIDE + column] = merit(fitting[column])
                column += step
    return merits


def placed(field: int, piece: int, place: Place) -> int:
    """Return the field after a piece has fallen from the row of its entry, or from the next, full rows cleared."""
    turn, column = place
    blocks = SHAPES[piece][turn] << ENTRY // STRIDE * STRIDE + column
    if field & blocks:
        blocks <<= STRIDE
    while not field & blocks << STRIDE:
        blocks <<= STRIDE
    full = full_rows(field | blocks)
    return clear_rows(field | blocks, full) if full else field | blocks


def record(pieces: int, seed: int) -> Fields:
    """Let the player place so many pieces, without frames; some are placed by chance, so that it has to recover."""
    random = np.random.default_rng(seed)
    deal, over = Biased(random), True
    found = Fields(
        np.zeros((pieces, ROWS), np.uint16), np.zeros(pieces, np.int8), np.zeros((pieces, PLACES), np.float32)
    )
    for row in range(pieces):
        if over:
            field, count, piece, preview = EMPTY_FIELD, 0, deal.roll(), deal.roll()
            hidden, clumsy = deal.after(piece, preview), random.choice(CLUMSY)
        merits = merits_of(field, piece)
        found.rows[row], found.piece[row], found.merits[row] = rows_of(field), piece, merits
        possible = np.flatnonzero(np.isfinite(merits))
        if not len(possible):
            over = True
            continue
        place = random.choice(possible) if random.random() < clumsy else merits.argmax()
        field, count = placed(field, piece, divmod(int(place), STRIDE)), count + 1
        piece, preview = preview, hidden
        hidden = deal.after(piece, preview)
        over = bool(field & SHAPES[piece][0] << ENTRY) or count == GAME_PIECES
    return found


class Network(nn.Module):
    """From fields and pieces [B, 197], see `read`, to the logits of places [B, 48].

    A column's features come from the cells and heights around it, beside the walls, and from the piece and how full
    each row is. A second layer mixes them, column by column, and a third gives the logits of the four turns.
    """

    def __init__(self, units: int) -> None:
        super().__init__()
        self.around = nn.Conv1d(ROWS + 1, units, SPAN)
        self.whole = nn.Linear(NO_PIECE + ROWS, units)
        self.mixed = nn.Conv1d(units, units, 1)
        self.head = nn.Conv1d(units, 4, 1)
        self._known: dict[tuple[int, int], Place] = {}

    def forward(self, numbers: Tensor) -> Tensor:
        """Return the logits."""
        cells, heights = numbers[:, : ROWS * COLUMNS], numbers[:, ROWS * COLUMNS : -NO_PIECE]
        piece = numbers[:, -NO_PIECE:]
        cells, heights = cells.reshape(-1, ROWS, COLUMNS), (heights - heights.mean(dim=1, keepdim=True))[:, None]
        walls = BEFORE, SPAN - 1 + STRIDE - COLUMNS - BEFORE
        columns = [functional.pad(cells, walls, value=1.0), functional.pad(heights, walls, value=2.0)]
        whole = self.whole(torch.cat([piece, cells.mean(dim=2)], dim=1))
        features = (self.around(torch.cat(columns, dim=1)) + whole[:, :, None]).relu()
        logits: Tensor = self.head(self.mixed(features).relu()).flatten(1)
        return logits

    @torch.no_grad()
    def place(self, field: int, piece: int) -> Place:
        """Return the likeliest place of a piece; each is computed once, so the weights must not change any more."""
        if (field, piece) not in self._known:
            numbers = read(np.array([rows_of(field)], np.uint16), np.array([piece]))
            self._known[field, piece] = divmod(int(self(torch.from_numpy(numbers)).argmax()), STRIDE)
        return self._known[field, piece]


def teach(fields: Fields, units: int, seed: int) -> Network:
    """Return a network that has learnt from a seed's fields."""
    torch.manual_seed(seed)
    random = np.random.default_rng((seed, units))
    network = Network(units)
    numbers, taught = fields.examples()
    optimizer = torch.optim.Adam(network.parameters(), RATE)
    for done in range(UPDATES):
        optimizer.param_groups[0]["lr"] = RATE + (LAST_RATE - RATE) * done / UPDATES
        chosen = torch.from_numpy(random.integers(len(numbers), size=BATCH))
        loss = functional.cross_entropy(network(numbers[chosen]), taught[chosen])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return network


# How it plays.


class Met(NamedTuple):
    """How a student meets the game.

    Attributes:
        way: `NO_DELAY`, `SEQUENTIAL`, `ASYNCHRONOUS` or `BESIDE`.
        units: Of its network.
        delay: Age of the network's observation when the action lands, frames.
        fast_age: The same of the smallest network beside it; 0 where there is none.
    """

    way: str
    units: int
    delay: int
    fast_age: int = 0

    @property
    def noops(self) -> int:
        """Frames between two actions."""
        return self.delay if self.way == SEQUENTIAL else 0

    @property
    def age(self) -> int:
        """Age of the newest observation when the action lands, frames."""
        return self.fast_age if self.way == BESIDE else self.delay

    def environment(self) -> gym.Env[Any, Any]:
        """Make the game under this delay."""
        game = gym.make("async_wrappers/FallingBlocks-v0", level=LEVEL, observation="vector").unwrapped
        env = RealtimeDelay(game, self.delay, self.noops, default_action="noop")
        return FreshObservation(env, self.fast_age) if self.way == BESIDE else env


def frames_without(vector: npt.NDArray[np.uint8]) -> int:
    """Return for how many frames there will be no piece, at most 15."""
    return int(vector[Vector.TIMERS + 1]) // 17


def asked(vector: npt.NDArray[np.uint8]) -> tuple[int, int] | None:
    """Return the field and the piece that a network is asked about; None while rows are cleared."""
    if frames_without(vector) > ENTRY_DELAY:
        return None
    seen = Vector.read(vector)
    return seen.field, seen.preview if seen.piece == NO_PIECE else seen.piece


def now(seen: Seen, without: int, since: Sequence[int]) -> Seen | None:
    """Return how a piece will be when an action lands, walls, blocks and falling aside; None before it has entered.

    Args:
        seen: The newest observation.
        without: Frames without a piece that are left.
        since: The actions that land before, from the observation's frame on.
    """
    turn, column, held = seen.turn, seen.position % STRIDE, seen.held
    if seen.piece == NO_PIECE:
        turn, column = 0, ENTRY % STRIDE
        if without > len(since):
            return None
    for at, action in enumerate(since):
        if action != held and (seen.piece != NO_PIECE or at >= without):
            turn += (action == TURN_RIGHT) - (action == TURN_LEFT)
            column += (action == TO_RIGHT) - (action == TO_LEFT)
        held = action
    return seen._replace(turn=turn % 4, position=column, held=held)


class Student:
    """Presses the buttons of one game.

    Args:
        met: How it meets the game.
        network: The one of `met.units`.
        smallest: The one beside it.
    """

    def __init__(self, met: Met, network: Network, smallest: Network) -> None:
        self._met, self._network, self._smallest = met, network, smallest
        self._sent = deque([NOOP] * met.age, maxlen=met.age)  # the actions since the newest observation

    def act(self, observation: Any) -> int:
        """Return the action of a decision, which lands `delay` frames after its observation."""
        slow = newest = observation
        if self._met.way == BESIDE:
            slow, newest = observation["observation"], observation["fresh"]
        question, action = asked(newest), NOOP
        if question is not None:
            piece = now(Vector.read(newest), frames_without(newest), self._sent)
            if piece is not None:
                network = self._network if slow is newest or asked(slow) == question else self._smallest
                action = towards(piece, *network.place(*question), drops=False)
        if self._met.way != SEQUENTIAL:  # nothing is sent while a sequential student waits
            self._sent.append(action)
        return action


def play(met: Met, networks: Mapping[int, Network], seed: int) -> int:
    """Play a game, and return its lines."""
    env, student = met.environment(), Student(met, networks[met.units], networks[UNITS[0]])
    observation, info = env.reset(seed=seed)
    over = False
    while not over and info["realtime"]["frame"] < LONGEST:
        observation, _, over, _, info = env.step(student.act(observation))
    lines: int = info["lines"]
    return lines


# The trials.


def ways_of(units: int, slowness: int) -> dict[str, Met]:
    """Return how a size meets the game on one machine, by way."""
    delay, smallest = delay_of(units, slowness), delay_of(UNITS[0], slowness)
    found = [Met(NO_DELAY, units, 0), Met(SEQUENTIAL, units, delay), Met(ASYNCHRONOUS, units, delay)]
    if units != UNITS[0]:
        found.append(Met(BESIDE, units, delay, smallest))
    return {met.way: met for met in found}


def ways(slowness: Iterable[int]) -> list[Met]:
    """Return how each size meets the game, on machines of which the smallest takes so many frames."""
    found = [met for slow in slowness for units in UNITS for met in ways_of(units, slow).values()]
    return list(dict.fromkeys(found))


Lines = Mapping[Met, Mapping[int, Sequence[int]]]  # of each seed's games


class Files:
    """What is made once and kept, below a directory."""

    def __init__(self, base_dir: Path) -> None:
        self._base_dir = base_dir
        base_dir.mkdir(parents=True, exist_ok=True)

    def fields(self, seed: int) -> Fields:
        """Return a seed's fields."""
        path = self._base_dir / f"fields-{seed}.npz"
        if not path.is_file():
            made = record(PIECES, seed)
            write_atomically(path, lambda file: np.savez(file, **made._asdict()))
        with np.load(path) as found:
            return Fields(**found)

    def network(self, units: int, seed: int) -> Network:
        """Return a seed's network of a size."""
        path, network = self._base_dir / f"network-{units}-{seed}.pt", Network(units)
        if not path.is_file():
            begin = time.process_time()
            made = teach(self.fields(seed), units, seed).state_dict()
            write_atomically(path, lambda file: torch.save(made, file))
            print(f"{path.stem}: taught in {time.process_time() - begin:.0f} CPU seconds", flush=True)
        network.load_state_dict(torch.load(path))
        return network

    def trial(self, met: Met, seed: int) -> Path:
        """Return the file of a trial."""
        return self._base_dir / f"{met.way.replace(' ', '_')}-{met.units}-{met.delay}-{met.fast_age}-{seed}.json"

    def make(self, wanted: Sequence[Met], seed: int) -> None:
        """Play what is missing of a seed."""
        if missing := [met for met in wanted if not self.trial(met, seed).is_file()]:
            networks = {units: self.network(units, seed) for units in UNITS}
            for met in missing:
                lines = [play(met, networks, environment_seed(seed, Phase.FINAL, game)) for game in range(GAMES)]
                write_text_atomically(self.trial(met, seed), json.dumps(lines))
                print(f"{self.trial(met, seed).stem}: {statistics.fmean(lines):.2f} lines a game", flush=True)

    def lines(self, wanted: Sequence[Met], seeds: Sequence[int]) -> Lines:
        """Return the lines of the trials that are there."""
        found: dict[Met, dict[int, list[int]]] = {}
        for met in wanted:
            for seed in seeds:
                if (path := self.trial(met, seed)).is_file():
                    found.setdefault(met, {})[seed] = json.loads(path.read_text())
        return found


def write_table(lines: Lines) -> None:
    """Write docs/results/size.csv: a row for each trial, the mean lines of its games."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("way", "units", "weights", "delay", "fast_age", "seed", "lines"))
    for met, seeds in lines.items():
        for seed, games in seeds.items():
            way, units, *ages = met
            writer.writerow((way, units, weights(units), *ages, seed, f"{statistics.fmean(games):g}"))
    write_text_atomically(TABLE, text.getvalue())


def print_table(lines: Lines, slowness: Sequence[int]) -> None:
    """Print lines a game in Markdown, a row for each size on each machine."""
    print(head("the smallest takes, frames", "weights", "delay, frames", NO_DELAY, SEQUENTIAL, ASYNCHRONOUS, BESIDE))
    for slow in slowness:
        for units in UNITS:
            mets = ways_of(units, slow)
            cells = (in_words(lines, mets.get(way)) for way in LOOKS)
            print(table_row(slow, f"{weights(units):,}", delay_of(units, slow), *cells))


def in_words(lines: Lines, met: Met | None) -> str:
    """Return the mean lines and their 95 % interval; nothing of a trial that is not there."""
    if met is None or met not in lines:
        return ""
    mean, low, high = summary([*lines[met].values()])
    return f"{mean:.2f} [{low:.2f}, {high:.2f}]"


LOOKS = {
    NO_DELAY: ("#999999", "--", "x"),
    SEQUENTIAL: ("#D55E00", "-", "s"),
    ASYNCHRONOUS: ("#0072B2", "-", "o"),
    BESIDE: ("#009E73", "-", "P"),
}


def draw(lines: Lines, slowness: Sequence[int]) -> None:
    """Draw docs/results_size.png: lines a game against size, a panel for each machine."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.6 + 3.4 * len(slowness), 4.2), layout="constrained")
    panels = figure.subplots(1, len(slowness), sharey=True, squeeze=False)[0]
    for axes, slow in zip(panels, slowness, strict=True):
        for number, (way, (colour, line, marker)) in enumerate(LOOKS.items()):
            mets = {units: ways_of(units, slow).get(way) for units in UNITS}
            found = [(units, met) for units, met in mets.items() if met is not None and met in lines]
            scores = np.array([summary([*lines[met].values()]) for _, met in found])
            if not len(scores):
                continue
            error = np.stack([scores[:, 0] - scores[:, 1], scores[:, 2] - scores[:, 0]])
            places = [UNITS.index(units) + 0.04 * (number - 1.5) for units, _ in found]
            look = {"color": colour, "linestyle": line, "marker": marker, "capsize": 3}
            axes.errorbar(places, scores[:, 0], error, label=way, **look)
        alone = ways_of(UNITS[0], slow)[ASYNCHRONOUS]
        if alone in lines:
            axes.axhline(summary([*lines[alone].values()])[0], color="black", linewidth=1, linestyle=":")
            axes.lines[-1].set_label("the smallest alone, asynchronous")
        ticks = [f"{weights(units) / 1000:,.1f}k\n{delay_of(units, slow)}" for units in UNITS]
        axes.set_xticks(range(len(UNITS)), ticks)
        axes.set(xlabel="weights of the network\nits delay, frames of 1/60 s")
        axes.set_title(f"the smallest takes {slow} frame{'s'[: slow > 1]}", fontsize="medium")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set(ylabel=f"lines in a game of at most {LONGEST:,} frames", ylim=(0, None))
    figure.legend(*panels[0].get_legend_handles_labels(), frameon=False, loc="outside lower center", ncols=5)
    figure.savefig(PICTURE, dpi=130)


def main() -> None:
    """Make what is missing, print the table, and draw the figure."""
    parser = parser_of(
        __doc__,
        seeds=((0, 1, 2), "of fields, networks and games"),
        slowness=((1,), "frames that the smallest network takes"),
        show=(False, "make nothing"),
        draw=(False, "write docs/results/size.csv, and draw docs/results_size.png"),
    )
    parser.add_argument("--base_dir", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    files, wanted = Files(options.base_dir), ways(options.slowness)
    for seed in [] if options.show else options.seeds:
        files.make(wanted, seed)
    lines = files.lines(wanted, options.seeds)
    print_table(lines, options.slowness)
    if options.draw:
        write_table(lines)
        draw(lines, options.slowness)


if __name__ == "__main__":
    main()

"""Lines of falling blocks under delay: a student of a hand-written player, asynchronous beside sequential.

    python -m benchmarks.studies.falling_blocks_lines --base_dir DIR [--seeds 3] [--delays 0 1 4 8 16] [--rounds 4]
        [--draw]

The game is ``async_wrappers/FallingBlocks-v0`` at its fastest level, shown as a vector. The teacher is the player of
`async_wrappers.envs.falling_blocks.player`, which has no delay. A student under a delay of d frames learns by imitation
what its teacher does on the frame on which the student's action lands (the label at the effect), and to press nothing
for a piece that it could not see yet when it decided:

1. From games of the teacher, who for a share of the pieces aims at a place drawn by chance, so that its student sees
   how it recovers. For each decision: what the student would have read, and what the teacher pressed d frames later.
2. From games of its own, which the teacher labels (DAgger: Ross, Gordon, Bagnell 2011), in rounds.

Students act on every frame but for the sequential one, which acts on every (d + 1)-th frame, with no button held in
between. They differ by what they know of the d actions on their way:

    asynchronous      all of them are part of its observation (``CommittedActions(known=False)``: a delay of transport)
    core at release   its core, an LSTM, runs when the action lands, and has read the action of each frame before; it is
                      taught how far the piece has moved since the frame that it sees
    told nothing      nothing
    sequential        there are none

All see as many frames of their teacher, and make as many decisions of their own, so the sequential student plays d + 1
times as many frames.

Beside them: the player under delay, who takes what it sees for the present; the player that acts at once, but as seldom
as a sequential student, which is the most that one can learn; and random play.

A trial is a file below DIR, written when it is finished; a second call plays only what is missing. Lines are of 20
games with the final weights, greedily, of at most 3,000 frames each (50 s). `--draw` draws
docs/results_falling_blocks_lines.png; `--show` plays nothing.
"""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

import async_wrappers  # noqa: F401  (registers the game)
from async_wrappers import CommittedActions, RealtimeDelay
from async_wrappers.agents.experiment.evaluate import bootstrap_interval
from async_wrappers.agents.networks.torsos import MLPTorso
from async_wrappers.agents.play.play import Phase, environment_seed
from async_wrappers.envs.falling_blocks.game import ACTIONS, COLUMNS, ENTRY, NO_PIECE, STRIDE, Biased, Game
from async_wrappers.envs.falling_blocks.observation import Seen, Vector
from async_wrappers.envs.falling_blocks.player import Landings, best_place, press, towards
from benchmarks.measuring import head, parser_of
from benchmarks.measuring import row as table_row
from benchmarks.studies.trials import DOCS

BUTTONS = tuple(ACTIONS.values())
NOOP = 0

LEVEL = 20  # 3 frames a row, as quick as a soft drop
GAMES, LONGEST = 20, 3_000  # games of a trial, frames of a game

TAUGHT = 150_000  # frames of the teacher's games
CLUMSY = (0.0, 0.1, 0.3, 0.6)  # share of the pieces of a game that are aimed at a place drawn by chance
KEPT = {"between": 0.02, "held": 0.05, "noop": 0.2, "press": 1.0}  # share of decisions by what the label is, `_kind`
FIRST_UPDATES = 800  # on the teacher's games alone
ROUNDS, ROUND_GAMES, ROUND_STEPS = 4, 32, 200  # rounds of the student's own games, games at a time, decisions of each
UPDATES, BATCH = 250, 128  # of a round, and decisions of an update, half of them of the student's own games
RATE, LAST_RATE = 2e-3, 1e-4  # of Adam, falling linearly
HIDDEN, JUDGE = (128, 128), 16
CORE, UNROLL, UNROLLS = 128, 64, 8  # units of an LSTM, rows of a sequence, and sequences of an update
BURN_IN = 24  # rows of a sequence that only bring the core into its state, if it does not begin a game
REACH = 6  # columns that a core may believe the piece to have moved, to each side

ASYNCHRONOUS, SEQUENTIAL, TOLD_NOTHING, AT_RELEASE = "asynchronous", "sequential", "told nothing", "core at release"

Numbers = npt.NDArray[np.uint8]
# From observations [G, N], and the numbers [G] of their games, to G actions.
Policy = Callable[[Numbers, Sequence[int]], Sequence[int]]


class Interaction(NamedTuple):
    """How an agent meets the game.

    Attributes:
        name: `ASYNCHRONOUS`, `SEQUENTIAL`, `TOLD_NOTHING` or `AT_RELEASE`.
        delay: Frames.
    """

    name: str
    delay: int

    @property
    def noops(self) -> int:
        """Frames between two actions."""
        return self.delay if self.name == SEQUENTIAL else 0

    @property
    def told(self) -> int:
        """Actions on their way that are shown."""
        return self.delay if self.name == ASYNCHRONOUS else 0

    def environment(self, delayed: bool = True) -> gym.Env[Any, Any]:
        """Make the game under this delay; or with an action as often, but at once."""
        game = gym.make("async_wrappers/FallingBlocks-v0", level=LEVEL, observation="landings").unwrapped
        delay = self.delay if delayed else 0
        env = RealtimeDelay(game, delay, self.noops, default_action="noop", report_effect=True)
        return CommittedActions(env, length=self.told, known=False, flat=True) if self.told and delayed else env


def _kind(seen: Seen, label: int) -> str:
    """Return what kind of decision a frame is: no piece, a button is let go of, none is wanted, a press."""
    if seen.piece == NO_PIECE:
        return "between"
    return "press" if label != NOOP else "noop" if seen.held == NOOP else "held"


class Decisions(NamedTuple):
    """Decisions that a student learns from: what it read, and what the teacher would do at the effect.

    Attributes:
        observations: uint8 [D, N].
        labels: The action [D].
        places: The landing that the teacher aims at, as an index into those that the student saw [D]; `NO_PLACE` where
            the student saw another piece, or none.
    """

    observations: Numbers
    labels: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]

    def draw(self, random: np.random.Generator, rows: int) -> list[Tensor]:
        """Return observations [rows, N], labels [rows] and places [rows], drawn uniformly."""
        chosen = random.integers(len(self.labels), size=rows)
        return [torch.from_numpy(each[chosen]) for each in self]


class Unrolls(NamedTuple):
    """Decisions of games, row by row, for a student with a core.

    Attributes:
        observations: uint8 [D, N].
        previous: The action of the frame before the one on which the decision's action lands [D].
        labels: As in `Decisions`; of rows that are not kept 0.
        places: As in `Decisions`; of rows that are not kept `NO_PLACE`.
        moves: How the piece moves from the decision to its effect, `moved` [D].
        kept: Whether a row is learnt from [D].
        row: Counted from the beginning of the game [D].
    """

    observations: Numbers
    previous: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]
    moves: npt.NDArray[np.int64]
    kept: npt.NDArray[np.bool_]
    row: npt.NDArray[np.int64]

    def draw(self, random: np.random.Generator, rows: int) -> list[Tensor]:
        """Return `rows` sequences [UNROLL, rows, ...] of each, learnt from up to where they leave their game.

        The last one says which rows are learnt from. Moves are learnt of the others too, where they are no `NO_PLACE`.
        """
        first = random.integers(len(self.labels) - UNROLL + 1, size=rows)
        chosen = first + np.arange(UNROLL)[:, None]
        same = self.row[chosen] - self.row[first] == np.arange(UNROLL)[:, None]
        warm = (np.arange(UNROLL)[:, None] >= BURN_IN) | (self.row[first] == 0)
        observations, previous, labels, places, moves, kept, _ = (each[chosen] for each in self)
        counts = same & warm
        moves[~counts] = NO_PLACE
        return [torch.from_numpy(each) for each in (observations, previous, labels, places, moves, kept & counts)]


NO_PLACE = -100  # what cross-entropy ignores
UNSEEN = -50.0  # logit of a landing that is not shown


def taught(started: Seen, landed: Seen) -> tuple[int, int]:
    """Return the action that is taught of a decision, and the landing aimed at, as seen on the frame on which it began.

    The teacher says what it would do on the frame on which the action lands; but for a piece, or a field, that the
    student could not see when it decided: wait.
    """
    started = _at_entry(started)
    if (started.field, started.piece) != (landed.field, landed.piece):
        return NOOP, NO_PLACE
    place = best_place(*landed[:4])
    if place is None:
        return NOOP, NO_PLACE
    _, columns, _ = Landings.SHAPE
    turn, column = (place[0] - started.turn) % 4, place[1] - started.position % STRIDE + columns // 2
    return press(landed, drops=False), turn * columns + column


def moved(started: Seen, landed: Seen) -> int:
    """Return the quarter turns and columns by which the piece moves until an action lands, as one number.

    It is `NO_PLACE` where another piece is there by then.
    """
    started = _at_entry(started)
    if (started.field, started.piece) != (landed.field, landed.piece):
        return NO_PLACE
    columns = landed.position % STRIDE - started.position % STRIDE
    return (landed.turn - started.turn) % 4 * (2 * REACH + 1) + min(max(columns, -REACH), REACH) + REACH


def _at_entry(seen: Seen) -> Seen:
    """Return the next piece where there is none, which is what `Landings` shows."""
    return seen._replace(piece=seen.preview, turn=0, position=ENTRY) if seen.piece == NO_PIECE else seen


# The teacher's games.


class Recording(NamedTuple):
    """The teacher's games, frame by frame.

    Attributes:
        observations: What a player sees, uint8 [F, 681].
        pressed: The action that the game received [F].
        kept: Whether a decision that lands here is learnt from [F].
        frame: Counted from the beginning of the game [F].
        seen: What the teacher read [F].
    """

    observations: Numbers
    pressed: npt.NDArray[np.int64]
    kept: npt.NDArray[np.bool_]
    frame: npt.NDArray[np.int64]
    seen: list[Seen]

    def decisions(self, interaction: Interaction) -> Decisions:
        """Return the decisions of a student: each read what was shown `delay` frames before its action landed."""
        delay = interaction.delay
        effects = np.flatnonzero(self.kept & (self.frame >= delay))
        told = _ROWS[self.pressed[effects[:, None] - delay + np.arange(interaction.told)]]
        observations = np.hstack([self.observations[effects - delay], told.reshape(len(effects), -1)])
        labels, places = np.array([taught(self.seen[effect - delay], self.seen[effect]) for effect in effects]).T
        return Decisions(observations, labels, places)

    def unrolls(self, delay: int) -> Unrolls:
        """Return the same decisions, and those between them, for a student with a core that acts on every frame."""
        effects = np.flatnonzero(self.frame >= delay)
        kept = self.kept[effects]
        labels, places = np.zeros(len(effects), np.int64), np.full(len(effects), NO_PLACE)
        taught_there = [taught(self.seen[effect - delay], self.seen[effect]) for effect in effects[kept]]
        labels[kept], places[kept] = np.array(taught_there).T
        moves = np.array([moved(self.seen[effect - delay], self.seen[effect]) for effect in effects])
        row = self.frame[effects] - delay
        previous = np.where(row > 0, self.pressed[effects - 1], NOOP)
        return Unrolls(self.observations[effects - delay], previous, labels, places, moves, kept, row)


# A row of `CommittedActions` for each action: one-hot, and a column for actions that are not known yet.
_ROWS = np.hstack([np.eye(len(ACTIONS), dtype=np.uint8) * 255, np.zeros((len(ACTIONS), 1), np.uint8)])


@lru_cache(maxsize=1)
def record(noops: int, seed: int) -> Recording:
    """Let the teacher play without delay, with an action on every (noops + 1)-th frame.

    So it shows what is to be done on the frames on which a student's actions land.
    """
    random, sees = np.random.default_rng(seed), Landings()
    observations = np.zeros((TAUGHT, Landings.SIZE), np.uint8)
    pressed, frames = (np.zeros(TAUGHT, np.int64) for _ in range(2))
    kept = np.zeros(TAUGHT, np.bool_)
    chances = random.random(TAUGHT)
    game, over, seen = Game(LEVEL, Biased(random)), True, list[Seen]()
    for row in range(TAUGHT):
        if over:
            game, held, frame, piece = Game(LEVEL, Biased(random)), NOOP, 0, NO_PIECE
            clumsy = random.choice(CLUMSY)
        if game.piece != NO_PIECE and piece == NO_PIECE:  # it has just entered
            aim = (int(random.integers(4)), int(random.integers(-1, COLUMNS))) if random.random() < clumsy else None
        piece = game.piece
        observations[row], frames[row], action = sees(game), frame, NOOP
        now = Seen(game.field, piece, game.turn, game.position, game.preview, held)
        seen.append(now)
        if frame % (noops + 1) == noops:  # the first action lands after `delay` frames, which are as many
            action = press(now, drops=False)
            kept[row] = chances[row] < KEPT[_kind(now, action)]
            if aim is not None and piece != NO_PIECE:
                action = towards(now, *aim, drops=False)
        game.step(BUTTONS[action])
        pressed[row] = held = action
        frame, over = frame + 1, game.over
    return Recording(observations, pressed, kept, frames, seen)


# The student.


class StudentNetwork(nn.Module):
    """From numbers [B, N] to the logits [B, A] of the teacher's action.

    All landings are judged by one small network, each by itself; it is taught the one that the teacher aims at. A
    multilayer perceptron reads the softmax of these judgements, moved by the presses on their way, and the falling
    piece, the preview, the button held, the timers, and the actions on their way.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        *self._places, numbers = Landings.SHAPE
        self.judge = nn.Sequential(nn.Linear(numbers - 1, JUDGE), nn.ReLU(), nn.Linear(JUDGE, 1))
        others = width - Landings.SIZE + Vector.SIZE - Vector.FORM
        self.torso = MLPTorso((math.prod(self._places) + others,), hidden=HIDDEN)
        self.head = nn.Linear(self.torso.output_size, len(ACTIONS))

    def forward(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits of actions [B, A], and of the landings that are aimed at [B, 84]."""
        landings = numbers[:, Vector.SIZE : Landings.SIZE].reshape(len(numbers), -1, Landings.SHAPE[-1]).float()
        judged = 4 * self.judge(landings[:, :, :-1] / 16).squeeze(2)
        judged = judged.masked_fill(landings[:, :, -1] == 0, UNSEEN)
        others = torch.cat([numbers[:, Vector.FORM : Vector.SIZE], numbers[:, Landings.SIZE :]], dim=1).float() / 255
        aimed = self._from_there(judged.softmax(dim=1), numbers)
        return self.head(self.torso(torch.cat([aimed, others], dim=1))), judged

    def _from_there(self, aimed: Tensor, numbers: Tensor) -> Tensor:
        """Return the landings [B, 84] as seen from where the presses on their way will have brought the piece."""
        held = numbers[:, None, Vector.HELD : Vector.TIMERS]
        told = numbers[:, Landings.SIZE :].reshape(len(numbers), -1, len(ACTIONS) + 1)[:, :, :-1]
        sent = torch.cat([held, told], dim=1) > 0
        presses = (sent[:, 1:] & ~sent[:, :-1]).sum(dim=1)
        turns, columns = self._places
        _, right, left, to_left, to_right, _ = presses[:, :, None, None].unbind(dim=1)
        turn = (torch.arange(turns)[:, None] + right - left) % turns
        column = torch.arange(columns) + to_right - to_left
        seen = aimed.gather(1, (turn * columns + column.clamp(0, columns - 1)).flatten(1))
        return seen * ((column >= 0) & (column < columns)).expand(-1, turns, -1).flatten(1)

    def act(self, observations: Numbers, numbers: Sequence[int]) -> Sequence[int]:
        """Return the likeliest action of each observation."""
        with torch.no_grad():
            actions: list[int] = self(torch.from_numpy(observations))[0].argmax(dim=1).tolist()
        return actions


class CoreNetwork(nn.Module):
    """A student in two halves: landings are judged as by `StudentNetwork`, and an LSTM decides when the action lands.

    The LSTM reads the numbers beside the landings, and the action of the frame before. So what its own presses have
    done since the frame that it sees it has to remember. It believes how far the piece has moved, which it is taught,
    and the judgements are moved by that belief. A multilayer perceptron reads them, the numbers, and what the LSTM
    remembers.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        *self._places, numbers = Landings.SHAPE
        self.judge = nn.Sequential(nn.Linear(numbers - 1, JUDGE), nn.ReLU(), nn.Linear(JUDGE, 1))
        others = width - Landings.SIZE + Vector.SIZE - Vector.FORM
        self.core = nn.LSTM(others + len(ACTIONS), CORE)
        self.believe = nn.Linear(CORE, 4 * (2 * REACH + 1))
        self.torso = MLPTorso((math.prod(self._places) + others + CORE,), hidden=HIDDEN)
        self.head = nn.Linear(self.torso.output_size, len(ACTIONS))
        self.states: dict[int, tuple[int, Tensor, Tensor]] = {}  # of games: their last action, and the LSTM's state

    def forward(
        self, numbers: Tensor, previous: Tensor, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor, Tensor, tuple[Tensor, Tensor]]:
        """Return what follows sequences [T, B, N] and actions [T, B].

        Returns:
            The logits of actions [T, B, A], of the landings that are aimed at [T, B, 84], and of moves `_move`
            [T, B, M]; and the LSTM's state.
        """
        landings = numbers[..., Vector.SIZE : Landings.SIZE].reshape(*previous.shape, -1, Landings.SHAPE[-1]).float()
        judged = 4 * self.judge(landings[..., :-1] / 16).squeeze(-1)
        judged = judged.masked_fill(landings[..., -1] == 0, UNSEEN)
        others = numbers[..., Vector.FORM : Vector.SIZE].float() / 255
        sent = functional.one_hot(previous, len(ACTIONS)).float()
        hidden, state = self.core(torch.cat([others, sent], dim=-1), state)
        moves = self.believe(hidden)
        aimed = self._from_there(judged.softmax(dim=-1), moves.softmax(dim=-1))
        read = torch.cat([aimed, others, hidden], dim=-1)
        actions = self.head(self.torso(read.flatten(0, 1))).reshape(*previous.shape, -1)
        return actions, judged, moves, state

    def _from_there(self, aimed: Tensor, moves: Tensor) -> Tensor:
        """Return landings [T, B, 84] as seen from where the piece is, the mean over moves of these probabilities."""
        turns, columns = self._places
        lead = aimed.shape[:-1]
        wide = functional.pad(aimed.reshape(*lead, turns, columns), (REACH, REACH)).unfold(-1, columns, 1)
        turned = torch.stack([wide.roll(-turn, dims=-3) for turn in range(turns)], dim=-4)  # [T, B, turn, 4, move, 21]
        moved = (turned * moves.reshape(*lead, turns, 1, -1, 1)).sum(dim=(-4, -2))
        return moved.flatten(-2)

    @torch.no_grad()
    def act(self, observations: Numbers, numbers: Sequence[int]) -> Sequence[int]:
        """Return the likeliest action of each observation of the games that have these numbers."""
        none = NOOP, torch.zeros(CORE), torch.zeros(CORE)
        last, hidden, cells = zip(*(self.states.get(number, none) for number in numbers), strict=True)
        state = torch.stack(hidden)[None], torch.stack(cells)[None]
        logits, _, _, (after, kept) = self(torch.from_numpy(observations)[None], torch.tensor([last]), state)
        actions: list[int] = logits[0].argmax(dim=1).tolist()
        for place, (number, action) in enumerate(zip(numbers, actions, strict=True)):
            self.states[number] = action, after[0, place], kept[0, place]
        return actions


def play(policy: Policy, environments: Sequence[gym.Env[Any, Any]], seeds: Sequence[int]) -> list[int]:
    """Play a game in each environment, side by side; return the lines of each."""
    begun = [environment.reset(seed=seed) for environment, seed in zip(environments, seeds, strict=True)]
    observations = [each[0] for each in begun]
    lines, playing = [0] * len(environments), list(range(len(environments)))
    while playing:
        actions = policy(np.stack([observations[number] for number in playing]), playing)
        for number, action in zip(list(playing), actions, strict=True):
            observations[number], _, over, _, info = environments[number].step(action)
            if over or info["realtime"]["frame"] >= LONGEST:
                lines[number] = info["lines"]
                playing.remove(number)
    return lines


def train(interaction: Interaction, seed: int, rounds: int) -> tuple[StudentNetwork | CoreNetwork, dict[str, Any]]:
    """Return a student's network, and what its training took."""
    begin = time.process_time()
    torch.manual_seed(seed)
    random = np.random.default_rng((seed, 1))
    environments = [interaction.environment() for _ in range(ROUND_GAMES)]
    recording, remembers = record(interaction.noops, seed), interaction.name == AT_RELEASE
    given = recording.unrolls(interaction.delay) if remembers else recording.decisions(interaction)
    network = (CoreNetwork if remembers else StudentNetwork)(given.observations.shape[1])
    batch = UNROLLS if remembers else BATCH
    optimizer = torch.optim.Adam(network.parameters(), RATE)
    updates, done = FIRST_UPDATES + rounds * UPDATES, 0

    def learn(count: int, *sources: Decisions | Unrolls) -> None:
        nonlocal done
        for _ in range(count):
            optimizer.param_groups[0]["lr"] = RATE + (LAST_RATE - RATE) * done / updates
            drawn = [source.draw(random, batch // len(sources)) for source in sources]
            if remembers:
                columns = (torch.cat(each, dim=1) for each in zip(*drawn, strict=True))
                read, previous, labels, places, moves, learnt = columns
                *found, _ = network(read, previous)
                actions, judged, believed = found
                belief = functional.cross_entropy(believed.flatten(0, 1), moves.flatten())
                actions, judged, labels, places = (each[learnt] for each in (actions, judged, labels, places))
            else:
                belief = torch.zeros(())
                read, labels, places = (torch.cat(each) for each in zip(*drawn, strict=True))
                actions, judged = network(read)
            # A landing that is not to be seen from the entry cannot be aimed at.
            places[(judged.gather(1, places.clamp(min=0)[:, None]) <= UNSEEN)[:, 0]] = NO_PLACE
            loss = functional.cross_entropy(actions, labels) + functional.cross_entropy(judged, places) + belief
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            done += 1

    learn(FIRST_UPDATES, given)
    observations = [each.reset(seed=environment_seed(seed, Phase.TRAIN, n))[0] for n, each in enumerate(environments)]
    own: list[list[tuple[Any, ...]]] = [[] for _ in environments]  # rows of each environment's games
    last, row = [NOOP] * ROUND_GAMES, [0] * ROUND_GAMES
    agreed = list[float]()
    for _ in range(rounds):
        same = count = 0
        for _ in range(ROUND_STEPS):
            read = np.stack(observations)
            chosen = network.act(read, range(ROUND_GAMES))
            for number, (environment, action) in enumerate(zip(environments, chosen, strict=True)):
                observations[number], _, over, _, info = environment.step(action)
                realtime = info["realtime"]
                if realtime["applied"]:
                    seen = Vector.read(realtime["effect_observation"][: Vector.SIZE])
                    started = Vector.read(read[number][: Vector.SIZE])
                    label, place = taught(started, seen)
                    same, count = same + (label == action), count + 1
                    kept = random.random() < KEPT[_kind(seen, label)]
                    if remembers:
                        there = (*((label, place) if kept else (NOOP, NO_PLACE)), moved(started, seen))
                        own[number].append((read[number], last[number], *there, kept, row[number]))
                    elif kept:
                        own[number].append((read[number], label, place))
                last[number], row[number] = action, row[number] + 1
                if over:
                    observations[number] = environment.reset()[0]
                    last[number], row[number] = NOOP, 0
                    if isinstance(network, CoreNetwork):
                        network.states.pop(number, None)
        agreed.append(same / count)
        rows = list(map(np.array, zip(*(each for of_game in own for each in of_game), strict=True)))
        learn(UPDATES, given, Unrolls(*rows) if remembers else Decisions(*rows))
    if isinstance(network, CoreNetwork):
        network.states.clear()
    facts = {"taught": len(given.labels), "own": sum(map(len, own)), "agreed": agreed}
    return network, {**facts, "cpu_seconds": time.process_time() - begin}


# The trials.

STUDENT, TEACHER, AT_ONCE, RANDOM = "student", "player", "player at once", "random"


class Trial(NamedTuple):
    """One row of lines: who plays, how, from which seed, and after how many rounds of its own games."""

    player: str
    interaction: Interaction
    seed: int
    rounds: int

    @property
    def name(self) -> str:
        """The name of its file."""
        player, met = (each.replace(" ", "_") for each in (self.player, self.interaction.name))
        return f"{player}-{met}-{self.interaction.delay}-{self.seed}.json"

    def run(self) -> dict[str, Any]:
        """Play it; return the lines of each game, and what training took."""
        random = np.random.default_rng((self.seed, 2))
        facts: dict[str, Any] = {}
        policy: Policy
        if self.player == STUDENT:
            network, facts = train(self.interaction, self.seed, self.rounds)
            policy = network.act
        elif self.player in (TEACHER, AT_ONCE):  # under delay it acts as if what it sees were the present
            policy = _player
        else:
            policy = lambda observations, _: random.integers(len(ACTIONS), size=len(observations)).tolist()  # noqa: E731
        games = [self.interaction.environment(delayed=self.player != AT_ONCE) for _ in range(GAMES)]
        return {
            "lines": play(policy, games, [environment_seed(self.seed, Phase.FINAL, n) for n in range(GAMES)]),
            **facts,
        }


def _player(observations: Numbers, numbers: Sequence[int]) -> Sequence[int]:
    return [press(Vector.read(each[: Vector.SIZE]), drops=False) for each in observations]


def trials(delays: Sequence[int], seeds: int, rounds: int) -> list[Trial]:
    """Return all trials; without delay the two interactions are one."""
    names = ASYNCHRONOUS, SEQUENTIAL, TOLD_NOTHING, AT_RELEASE
    interactions = [Interaction(name, delay) for name in names for delay in delays]
    interactions = [each for each in interactions if each.delay or each.name == ASYNCHRONOUS]
    # To a player that ignores its delay it is the same what it could know.
    of_player = [each for each in interactions if each.name in (ASYNCHRONOUS, SEQUENTIAL)]
    others = [Trial(player, each, 0, 0) for player in (TEACHER, RANDOM) for each in of_player]
    others += [Trial(AT_ONCE, each, 0, 0) for each in interactions if each.name == SEQUENTIAL]
    return [Trial(STUDENT, each, seed, rounds) for seed in range(seeds) for each in interactions] + others


Lines = Mapping[tuple[str, Interaction], Sequence[Sequence[int]]]  # of each seed's games


def read(base_dir: Path, wanted: Sequence[Trial]) -> Lines:
    """Return the lines of the trials that are finished."""
    found: dict[tuple[str, Interaction], list[list[int]]] = {}
    for trial in wanted:
        if (path := base_dir / trial.name).is_file():
            lines = json.loads(path.read_text())["lines"]
            found.setdefault((trial.player, trial.interaction), []).append(lines)
    return found


def summary(games: Sequence[Sequence[int]]) -> tuple[float, float, float]:
    """Return the mean, and its 95 % bootstrap interval: over seeds, or over the games of a single one."""
    scores = [statistics.fmean(each) for each in games] if len(games) > 1 else list(map(float, games[0]))
    return statistics.fmean(scores), *bootstrap_interval(scores)


def print_table(lines: Lines) -> None:
    """Print lines a game, in Markdown."""
    print(head("player", "interaction", "delay, frames", "lines a game, each seed", "mean", "95 %"))
    for (player, interaction), games in lines.items():
        mean, low, high = summary(games)
        each = ", ".join(f"{statistics.fmean(of):.2f}" for of in games)
        print(table_row(player, interaction.name, interaction.delay, each, f"{mean:.2f}", f"[{low:.2f}, {high:.2f}]"))


def draw(lines: Lines) -> None:
    """Draw docs/results_falling_blocks_lines.png: lines a game against delay."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot(xlabel="delay, frames", ylabel=f"lines in a game of at most {LONGEST:,} frames")
    delays = sorted({interaction.delay for _, interaction in lines})
    looks = [
        (STUDENT, ASYNCHRONOUS, "#0072B2", "-", "o"),
        (STUDENT, AT_RELEASE, "#009E73", "-", "P"),
        (STUDENT, TOLD_NOTHING, "#CC79A7", "-", "*"),
        (STUDENT, SEQUENTIAL, "#D55E00", "-", "s"),
        (TEACHER, ASYNCHRONOUS, "#56B4E9", ":", "^"),
        (TEACHER, SEQUENTIAL, "#E69F00", ":", "v"),
        (AT_ONCE, SEQUENTIAL, "#000000", ":", "D"),
        (RANDOM, ASYNCHRONOUS, "#999999", "--", "x"),
    ]
    for number, (player, name, colour, line, marker) in enumerate(looks):
        at = [d for d in delays if (player, _met(name, d)) in lines]
        if not at:
            continue
        found = np.array([summary(lines[player, _met(name, d)]) for d in at])
        error = np.stack([found[:, 0] - found[:, 1], found[:, 2] - found[:, 0]])
        places = [delays.index(d) + 0.05 * (number - 3.5) for d in at]
        label = player if player == RANDOM else f"{player}, {name}"
        axes.errorbar(places, found[:, 0], error, color=colour, linestyle=line, marker=marker, capsize=3, label=label)
    axes.set_xticks(range(len(delays)), [str(delay) for delay in delays])
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(frameon=False, loc="outside lower center", ncols=3)
    figure.savefig(DOCS / "results_falling_blocks_lines.png", dpi=130)


def _met(name: str, delay: int) -> Interaction:
    return Interaction(name if delay else ASYNCHRONOUS, delay)


def main() -> None:
    """Play what is missing, print the table, and draw the figure."""
    parser = parser_of(
        __doc__,
        delays=((0, 1, 4, 8, 16), "frames"),
        seeds=(3, "of each student"),
        rounds=(ROUNDS, "of a student's own games"),
        show=(False, "play nothing"),
        draw=(False, "draw docs/results_falling_blocks_lines.png"),
    )
    parser.add_argument("--base_dir", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    wanted = trials(options.delays, options.seeds, options.rounds)
    options.base_dir.mkdir(parents=True, exist_ok=True)
    for trial in [] if options.show else wanted:
        path = options.base_dir / trial.name
        if not path.is_file():
            result = trial.run()
            half = path.with_suffix(".part")
            half.write_text(json.dumps(result))
            half.replace(path)
            print(f"{path.stem}: {statistics.fmean(result['lines']):.2f} lines a game", flush=True)
    lines = read(options.base_dir, wanted)
    print_table(lines)
    if options.draw and lines:
        draw(lines)


if __name__ == "__main__":
    main()

"""What a policy can score on realtime MinAtar by knowing the game's rules, and without knowing anything.

    python -m benchmarks.studies.minatar_limit [--games asterix ...] [--delays 2 8] [--draw]

*Foretold*: a perfect model of the game. The agent that ships and was trained without delay acts by its likeliest action
on the frame that the game's own rules foretell. At the start s of a decision

    the game is copied as it was on frame s, with objects, timers, difficulty and the last action (`MinAtarEnv.branch`)
    the copy's random numbers are drawn anew, from `FORETOLD` and the episode's seed, never from the real game's
    the actions that land on frames s ... s + delay - 1 are played, and they stick as the game's do
    the agent reads the frame that it sees then, on which its own action will land

With several futures the action is the likeliest by the mean of the agent's probabilities over those that go on; where
the game is over in all of them, over their last frames. No policy has learnt here to live with what cannot be foretold,
so one that is trained under delay may score more.

*Best constant action*: one action, whatever is seen. It is the best of the game's by the mean of `TRIES` other
episodes.

*The same agent, no delay*: what it scores on these episodes where the world waits.

Delays, default action and rewards are those of `RealtimeDelay` around ``create_minatar_environment(game)``: the first
`delay` frames of an episode receive the no-op. A cell is a game, a delay and one of these players. The table, `OUTPUT`,
is written anew after each cell, and a cell that it has is not played again. A row is an episode's score.

Prints the mean scores with 95 % bootstrap intervals over episodes; and over the games, as `score` does for a policy of
a user's: the interquartile mean of the games' normalised mean scores, beside those of the ways that were trained.
``--draw`` draws docs/results_minatar.png: the grid, a fast path alone and students from their sweeps, and the table.
"""

from __future__ import annotations

import argparse
import csv
import io
import statistics
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from async_wrappers.agents.experiment.evaluate import bootstrap_interval
from async_wrappers.agents.load import load_agent
from async_wrappers.agents.sweep.figures import draw_scores, write_figure
from async_wrappers.agents.sweep.grid import Point, plain
from async_wrappers.agents.sweep.plan import SweepPlan
from async_wrappers.agents.sweep.results import read_csv
from async_wrappers.agents.sweep.view import make_view
from async_wrappers.analysis.regret import episode_seeds
from async_wrappers.analysis.scoring import WAYS, GameScore, MinAtarScores, read_reference
from async_wrappers.envs.minatar import MINATAR_GAMES, MinAtarEnv, create_minatar_environment, find_minatar_game
from async_wrappers.files import write_text_atomically
from async_wrappers.wrappers.delay import RealtimeDelay
from benchmarks.studies.minatar_scores import DELAY, GAME, RANDOM, SCORE
from benchmarks.studies.trials import DOCS

RESULTS, OUTPUT = DOCS / "results" / "minatar.csv", DOCS / "results" / "minatar_limit.csv"
FAST, STUDENTS = DOCS / "results" / "minatar_fast.csv", DOCS / "results" / "minatar_students.csv"
PICTURE = DOCS / "results_minatar.png"
COLUMNS = ("arm", "game", "delay", "action", "episode", "score")
FORETOLD = 1  # the first word of the seed of a foretold future; the second one is the episode's seed
NOOP = 0  # MinAtar's first action, the default action here
PLAYED, TRIED = 0, 1  # seeds of the episodes that count, and of those that the best constant action is chosen by
EPISODES = 30  # of a cell
TRIES = 10  # episodes of each action, among them Seaquest's of 10,000 frames at the surface
WITHOUT_DELAY, CONSTANT = "the same agent, no delay", "best constant action"
FUTURES = {"foretold, 1 future": 1, "foretold, 8 futures": 8}
LOOKS = {  # of the picture, beside the colours of the ways that were trained
    "foretold, 1 future": ("x", "black"),
    "foretold, 8 futures": ("*", "black"),
    CONSTANT: ("_", "#E8000B"),
}

Probabilities = Callable[[npt.NDArray[np.bool_]], npt.NDArray[np.float64]]
"""From observations [R, *shape] to an agent's probabilities of the actions [R, A]."""


class GamePlayer(Protocol):
    """Chooses the actions of an episode; `foretells` says whether it reads the game."""

    foretells: bool

    def begin(self, seed: int) -> None:
        """Begin the episode of this seed."""

    def act(self, observation: Any, game: MinAtarEnv | None, on_their_way: Sequence[int]) -> int:
        """Choose the action of a decision.

        Args:
            observation: Of the decision's start.
            game: As it was on that frame, not to be played; None for a player that does not foretell.
            on_their_way: The actions of the frames from the start to the one before the decision's own lands.
        """


class OneAction:
    """Gives one action, whatever it sees."""

    foretells = False

    def __init__(self, action: int) -> None:
        self._action = action

    def begin(self, seed: int) -> None:
        """See `GamePlayer`."""

    def act(self, observation: Any, game: MinAtarEnv | None, on_their_way: Sequence[int]) -> int:
        """See `GamePlayer`."""
        return self._action


class PerfectModel:
    """Acts by an agent's likeliest action on the frame that the game's rules foretell.

    Args:
        probabilities: The agent's.
        futures: How many futures are played; the action is the likeliest by the mean of the probabilities.
    """

    foretells = True

    def __init__(self, probabilities: Probabilities, futures: int) -> None:
        self._probabilities, self._futures = probabilities, futures

    def begin(self, seed: int) -> None:
        """See `GamePlayer`."""
        self._random = np.random.RandomState(np.random.MT19937(np.random.SeedSequence((FORETOLD, seed))))

    def act(self, observation: Any, game: MinAtarEnv | None, on_their_way: Sequence[int]) -> int:
        """See `GamePlayer`."""
        assert game is not None
        futures = [foretell(game, observation, on_their_way, self._random) for _ in range(self._futures)]
        going_on = [shown for shown, over in futures if not over] or [shown for shown, _ in futures]
        return int(self._probabilities(np.stack(going_on)).mean(axis=0).argmax())


def foretell(
    game: MinAtarEnv, observation: Any, actions: Iterable[int], random: np.random.RandomState
) -> tuple[Any, bool]:
    """Return what a game may show after some actions, and whether it is over; the game stays as it is.

    Args:
        game: On a frame.
        observation: Of that frame.
        actions: Of the frames from that one on.
        random: The numbers of this future.
    """
    future = game.branch(random)
    for action in actions:
        observation, _, over, _, _ = future.step(action)
        if over:
            return observation, True
    return observation, False


def probabilities_of(agent: Any) -> Probabilities:
    """Return the probabilities of an agent whose policy has logits and reads one observation without memory."""

    def probabilities(observations: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
        logits = agent.policy.first_outputs(observations[:, None])[0].numpy().astype(np.float64)
        likelihood = np.exp(logits - logits.max(axis=1, keepdims=True))
        found: npt.NDArray[np.float64] = likelihood / likelihood.sum(axis=1, keepdims=True)
        return found

    return probabilities


class PastGames(gym.Wrapper[Any, Any, Any, Any]):
    """Keeps a game as it was on its last frames, below the delay.

    Args:
        env: A game of MinAtar in its wrappers.
        frames: How many frames before the newest one are kept.
    """

    def __init__(self, env: gym.Env[Any, Any], frames: int) -> None:
        super().__init__(env)
        self._games: deque[MinAtarEnv] = deque(maxlen=frames + 1)
        self._unused = np.random.RandomState(0)  # a kept game is copied again before it is played

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        shown = super().reset(**arguments)
        self._games.clear()
        self._keep()
        return shown

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        shown = super().step(action)
        self._keep()
        return shown

    def before(self, frames: int) -> MinAtarEnv:
        """Return the game as it was so many frames ago."""
        return self._games[-1 - frames]

    def _keep(self) -> None:
        game: Any = self.unwrapped
        self._games.append(game.branch(self._unused))


def play(env: gym.Env[Any, Any], player: GamePlayer, delay: int, seed: int) -> float:
    """Return a player's score in an episode of a game whose actions land `delay` frames late, one on each frame."""
    games = PastGames(env, delay) if player.foretells else None
    late = RealtimeDelay(games or env, delay=delay, default_action=NOOP)
    observation, info = late.reset(seed=seed)
    player.begin(seed)
    on_their_way = deque([NOOP] * delay, maxlen=delay)
    score, over = 0.0, False
    while not over:
        realtime = info["realtime"]
        game = games and games.before(realtime["frame"] - realtime["start"])
        action = player.act(observation, game, tuple(on_their_way))
        observation, reward, terminated, truncated, info = late.step(action)
        on_their_way.append(action)
        score += float(reward)
        over = terminated or truncated
    return score


class Cell(NamedTuple):
    """What one player scores on a game at a delay, in frames."""

    arm: str
    game: str
    delay: int


class Scores(NamedTuple):
    """Scores of a cell's episodes, in order, and the action in words if it is one."""

    scores: list[float]
    action: str = ""


def scores_of(cell: Cell) -> Scores:
    """Play a cell."""
    env = create_minatar_environment(cell.game)
    game: Any = env.unwrapped

    def scores(player: GamePlayer, seed: int, episodes: int) -> list[float]:
        return [play(env, player, cell.delay, each) for each in episode_seeds(seed, episodes)]

    if cell.arm != CONSTANT:
        agent, _ = load_agent(f"minatar/{cell.game}")
        player = PerfectModel(probabilities_of(agent), FUTURES.get(cell.arm, 1))
        return Scores(scores(player, PLAYED, EPISODES))
    tried = [statistics.fmean(scores(OneAction(action), TRIED, TRIES)) for action in range(game.action_space.n)]
    best = tried.index(max(tried))
    return Scores(scores(OneAction(best), PLAYED, EPISODES), game.get_action_meanings()[best])


def cells(games: Sequence[str], delays: Sequence[int]) -> list[Cell]:
    """Return all cells, those of Freeway last: an episode has 2,501 frames."""
    arms = [CONSTANT, *sorted(FUTURES, key=FUTURES.__getitem__)]
    found = [Cell(WITHOUT_DELAY, game, 0) for game in games]
    found += [Cell(arm, game, delay) for arm, game, delay in product(arms, games, delays)]
    return sorted(found, key=lambda cell: cell.game == "freeway")


def read(path: Path) -> dict[Cell, Scores]:
    """Return the cells that a table has; none if there is no table."""
    found: dict[Cell, Scores] = {}
    for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines()) if path.exists() else ():
        cell = Cell(row["arm"], row["game"], int(row["delay"]))
        found.setdefault(cell, Scores([], row["action"])).scores.append(float(row["score"]))
    return found


def write(path: Path, found: Mapping[Cell, Scores]) -> None:
    """Write the table, whole or not at all, in the order of arms, games and delays."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for cell in sorted(found):
        for number, score in enumerate(found[cell].scores):
            writer.writerow((*cell, found[cell].action, number, f"{score:g}"))
    write_text_atomically(path, text.getvalue())


def in_words(found: Mapping[Cell, Scores]) -> str:
    """Return the scores in Markdown, a row for each game."""
    columns = list(dict.fromkeys((cell.arm, cell.delay) for cell in sorted(found, key=lambda cell: (cell.delay, cell))))
    lines = [["game", *(f"{arm}, {delay}" for arm, delay in columns)], ["---"] * (len(columns) + 1)]
    for game in MINATAR_GAMES:
        of = [found.get(Cell(arm, game, delay)) for arm, delay in columns]
        lines.append([f"`{game}`", *("" if scores is None else _in_words(scores) for scores in of)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _in_words(of: Scores) -> str:
    low, high = bootstrap_interval(of.scores)
    action = f" ({of.action.lower()})" if of.action else ""
    return f"{statistics.fmean(of.scores):.1f} [{low:.1f}, {high:.1f}]{action}"


def over_games(found: Mapping[Cell, Scores]) -> str:
    """Return the normalised scores over games of each player, and of the ways that were trained, at each delay."""
    lines = []
    for delay in sorted({cell.delay for cell in found}):
        for arm in sorted({cell.arm for cell in found if cell.delay == delay}):
            played = [
                GameScore(game, delay, tuple(scores.scores), ())
                for (name, game, at), scores in sorted(found.items())
                if (name, at) == (arm, delay)
            ]
            of = MinAtarScores(arm, NOOP, PLAYED, tuple(played), read_reference())
            if (mean := of.over_games(delay)) is not None:
                words = f"{mean.mean:.2f} [{mean.low:.2f}, {mean.high:.2f}] over {len(played)} games"
                lines.append(f"{arm}, delay {delay}: {words}")
        ours = {way: of.ours_over_games(way, delay) for way in WAYS}
        lines += [f"{way}, delay {delay}: {mean:.2f}" for way, mean in ours.items() if mean is not None]
    return "\n".join(lines)


def draw(results: Sequence[Mapping[str, str]], found: Mapping[Cell, Scores], path: Path) -> None:
    """Draw the ways of a sweep, a panel for each game, and beside them what is foretold and the best constant action.

    Args:
        results: The rows of the results.csv of the sweep, and of others beside it.
        found: The table.
        path: The picture.
    """
    rows = [{**row, DELAY: int(row[DELAY]), "value": float(row["value"]), "iteration": None} for row in results]
    rows = [row for row in rows if row["metric"] in (SCORE, RANDOM, "noop_return")]
    points = {(row["arm"], row[GAME], row[DELAY]): row for row in rows}.values()
    plan = SweepPlan(
        [Point(row["arm"], {key: plain(row[key]) for key in (GAME, DELAY)}) for row in points], [GAME, DELAY], 5, [], ""
    )
    view = make_view(plan, rows, metric=SCORE)
    figure = draw_scores(view)
    handles = {}
    for panel, axes in zip(view.panels, figure.axes, strict=True):
        for place, (arm, (marker, colour)) in enumerate(LOOKS.items()):
            of = {cell.delay: found[cell].scores for cell in sorted(found) if cell[:2] == (arm, panel.title)}
            for delay, scores in of.items():
                mean, (low, high) = statistics.fmean(scores), bootstrap_interval(scores)
                at = delay * (1.07 + 0.07 * place)  # beside the ways, which stand on the delay
                error = [[mean - low], [high - mean]]
                look = {"marker": marker, "color": colour, "markersize": 8, "linestyle": "none"}
                handles[arm] = axes.errorbar([at], [mean], error, label=arm, capsize=2, elinewidth=1, **look)
                bottom, top = axes.get_ylim()  # those of the ways
                axes.set_ylim(bottom, max(top, high + 0.05 * (high - bottom)))
        known = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
        handles = {**known, **handles}
    for legend in figure.legends:
        legend.remove()
    figure.legend([*handles.values()], [*handles], loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle(
        "V-trace, mean of 5 seeds, bars: 95 % bootstrap interval over seeds\n"
        "foretold and best constant action: over 30 episodes",
        fontsize="small",
        color="0.3",
    )
    write_figure(figure, path)


def main() -> None:
    """Play the cells that the table lacks, and print all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", nargs="+", type=find_minatar_game, default=list(MINATAR_GAMES), metavar="GAME")
    parser.add_argument("--delays", nargs="+", type=int, default=[2, 8], metavar="FRAMES")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="the table")
    parser.add_argument("--draw", action="store_true", help="draw docs/results_minatar.png")
    arguments = parser.parse_args()
    found = read(arguments.output)
    for cell in cells(arguments.games, arguments.delays):
        if cell not in found:
            found[cell] = scores_of(cell)
            write(arguments.output, found)
            print(f"{cell.arm}, {cell.game}, {cell.delay}: {_in_words(found[cell])}", flush=True)
    print(in_words(found))
    print(over_games(found))
    if arguments.draw:
        # As many ways as there are colours: not those of a fast path that score less than it alone.
        grid = [row for row in read_csv(RESULTS) if not row["arm"].startswith("fast path")]
        # The trials of each sweep are numbered from 0.
        alone = [{**row, "trial": f"fast {row['trial']}"} for row in read_csv(FAST) if row["arm"] in WAYS]
        own = {"arm": "student", DELAY: "8"}
        students = [{**row, **own, "trial": f"student {row['trial']}"} for row in read_csv(STUDENTS)]
        draw([*grid, *alone, *students], found, PICTURE)
        print(PICTURE)


if __name__ == "__main__":
    main()

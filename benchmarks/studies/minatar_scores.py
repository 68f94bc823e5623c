"""Makes the table of our scores on realtime MinAtar, beside which `score` shows a user's, from the sweep's results.

The sweep is configs/sweeps/minatar.gin, finished or not: a game, way or delay without a finished trial has no row, and
is shown as a dash. A score is ``final_return``, which `plot` draws too: the mean of 30 episodes of the final weights. A
row has the mean over seeds with its 95 % percentile-bootstrap interval, and the game's random player: the mean over the
trials without delay of the one in their closing tables. A game without such trials keeps the random player that the
table has.

    python -m benchmarks.studies.minatar_scores results/minatar/results.csv [--output FILE]
        [--beside results.csv [--named WAY DELAY]]

Prints the tables of docs/results/minatar.md, one for each delay. ``--beside`` takes the results of
configs/sweeps/minatar_fast.gin, whose fast path alone has rows too, or of minatar_impact.gin, whose ways have none: it
prints their scores, their interquartile means over the games, and the difference from each way at the same delay. A
sweep without arms, such as that of configs/sweeps/reincarnation_six_frames.gin, has its way and delay by ``--named``.
"""

from __future__ import annotations

import argparse
import csv
import io
import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

import numpy as np

from async_wrappers.agents.experiment.evaluate import bootstrap_interval
from async_wrappers.agents.sweep.aggregate import Aggregate
from async_wrappers.agents.sweep.results import read_csv
from async_wrappers.analysis.scoring import COLUMNS, WAYS, read_reference
from async_wrappers.envs.minatar import MINATAR_GAMES, find_minatar_game
from async_wrappers.files import write_text_atomically

GAME, DELAY, NOOPS = "create_minatar_environment.game", "RealtimeDelay.delay", "RealtimeDelay.noops"
SCORE, RANDOM = "final_return", "random_return"
_TOP = ("asynchronous", 0.0)  # the way and the delay whose normalised score is 1
# The noops of each way at a delay.
_NOOPS = {"sequential": lambda d: d, "chunks": lambda d: max(0, d - 1)}


def table_of(results: Sequence[Mapping[str, str]], random: Mapping[str, float]) -> list[dict[str, object]]:
    """Return the rows of the table, game by game.

    Args:
        results: The rows of a sweep's results.csv, and of others beside it.
        random: The random player's score of games without finished trials, by game.

    Raises:
        ValueError: The rows are not of this sweep, or no trial has a score.
    """
    scores: dict[tuple[str, str, int], dict[str, float]] = defaultdict(dict)
    players: dict[str, dict[str, float]] = defaultdict(dict)
    for row in results:
        way, delay = row["arm"], int(row[DELAY])
        value = float(row["value"]) if row["metric"] in (SCORE, RANDOM) else math.nan
        if way not in WAYS or math.isnan(value):
            continue
        game = find_minatar_game(row[GAME])
        if int(row.get(NOOPS, 0)) != _NOOPS.get(way, lambda _: 0)(delay):
            raise ValueError(f"{NOOPS} must be that of {way} at a delay of {delay} frames, got {row[NOOPS]}")
        if row["metric"] == SCORE:
            scores[game, way, delay][row["seed"]] = value
        elif delay == 0:
            players[game][row["seed"]] = value
    if not scores:
        raise ValueError(f"results must have a finished trial with {SCORE} of one of {', '.join(WAYS)}, got none")
    found = {**random, **{game: statistics.fmean(of.values()) for game, of in players.items()}}
    rows: list[dict[str, object]] = []
    for game in MINATAR_GAMES:
        own = sorted((key for key in scores if key[0] == game), key=lambda key: (WAYS.index(key[1]), key[2]))
        player = {"random": f"{found[game]:.6g}"} if game in found else {}
        for key in own:
            values = list(scores[key].values())
            low, high = bootstrap_interval(values)
            numbers = {"mean": statistics.fmean(values), "low": low, "high": high}
            words = {name: f"{number:.6g}" for name, number in numbers.items()}
            rows.append({"game": game, "way": key[1], "delay": key[2], "seeds": len(values), **words, **player})
        if not own and player:
            rows.append({"game": game, **player})
    return rows


def _read(name: str, path: Path) -> list[dict[str, str]]:
    """Return the rows of a table; refuse in one sentence, which begins with the argument's name, what is none."""
    try:
        return read_csv(path)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{name} must be a results.csv that a sweep has written, got {path} ({error})") from None
    except AttributeError:  # a row with fewer cells than columns, or with more
        raise ValueError(f"{name} must be a results.csv that a sweep has written, got {path}") from None


def _refuse_others(rule: str, results: Sequence[Mapping[str, str]], *further: str) -> None:
    """Raise a ValueError, which begins with `rule`, if results lack a column of a sweep over MinAtar's games."""
    columns = results[0] if results else {}
    wanted = ("arm", GAME, DELAY, "seed", "metric", "value", *further)
    lacking = [name for name in wanted if name not in columns]
    if lacking:
        raise ValueError(f"{rule}, got none with {', '.join(lacking)}")


def tables_in_words(rows: Sequence[Mapping[str, object]]) -> str:
    """Return a table in Markdown for each delay: a row for each game, and a column for each way."""
    blocks = []
    for delay in sorted({int(str(row["delay"])) for row in rows if "way" in row}):
        of = {(row["game"], row["way"]): row for row in rows if row.get("delay") == delay}
        ways = [way for way in WAYS if any(key[1] == way for key in of)]
        lines = [["delay " + str(delay), *ways], ["---"] * (len(ways) + 1)]
        for game in MINATAR_GAMES:
            cells = [_cell(of[game, way]) if (game, way) in of else "" for way in ways]
            lines.append([f"`{game}`", *cells])
        blocks.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
    return "\n\n".join(blocks)


def over_games(results: Sequence[Mapping[str, str]]) -> Aggregate:
    """Return the normalised scores of all ways of several sweeps, as `plot` has them of one.

    Args:
        results: The rows of their results.csv; ``asynchronous`` without delay is 1, and the random player beside it 0.
    """
    scores: dict[tuple[str, float], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    random: dict[str, list[float]] = defaultdict(list)
    for row in results:
        way, game = (row["arm"], float(row[DELAY])), find_minatar_game(row[GAME])
        if row["metric"] == SCORE:
            scores[way][game].append(float(row["value"]))
        elif row["metric"] == RANDOM and way == _TOP:
            random[game].append(float(row["value"]))
    tops = scores.get(_TOP, {})
    scales = {game: (statistics.fmean(of), statistics.fmean(tops[game])) for game, of in random.items() if game in tops}
    normalised = {
        way: {
            game: (np.array(values) - scales[game][0]) / (scales[game][1] - scales[game][0])
            for game, values in games.items()
            if game in scales
        }
        for way, games in scores.items()
    }
    return Aggregate({}, [], normalised)


def beside_in_words(results: Sequence[Mapping[str, str]], others: Sequence[Mapping[str, str]]) -> str:
    """Return other ways' scores on each game, their means over games, and their differences from the grid's ways."""
    names = {row["arm"] for row in others}
    lines = []
    for way, game in product(dict.fromkeys((row["arm"], row[DELAY]) for row in others), MINATAR_GAMES):
        of = [row for row in others if (row["arm"], row[DELAY]) == way and row["metric"] == SCORE]
        values = [float(row["value"]) for row in of if find_minatar_game(row[GAME]) == game]
        if values:
            mean = _estimate(statistics.fmean(values), *bootstrap_interval(values))
            lines.append(f"{way[0]}, delay {way[1]}, {game}: {mean}")
    found = over_games([*results, *others])
    lines += [
        f"{way.name}, delay {way.x:g}: interquartile mean {way.value:.3f} [{way.low:.3f}, {way.high:.3f}] over "
        f"{way.games} games"
        for way in found.ways
        if way.name in names
    ]
    lines += [
        "{} minus {}, delay {:g}: {:.3f} [{:.3f}, {:.3f}]".format(pair.name, pair.other, pair.x, *pair.difference)
        for pair in found.pairs
        if pair.name in names
    ]
    return "\n".join(lines)


def _cell(row: Mapping[str, object]) -> str:
    return _estimate(*(float(str(row[name])) for name in ("mean", "low", "high")))


def _estimate(mean: float, low: float, high: float) -> str:
    return f"{mean:.1f} [{low:.1f}, {high:.1f}]"


def main() -> None:
    """Write the table, print how many of its rows there are, and the rows in words."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="results.csv of the sweep")
    words = "write the table here; async_wrappers/analysis/minatar_scores.csv comes with the package"
    parser.add_argument("--output", type=Path, help=words)
    parser.add_argument("--beside", type=Path, help="results.csv of another sweep of these games")
    words = "way and delay of the other sweep, where it binds neither"
    parser.add_argument("--named", nargs=2, metavar=("WAY", "DELAY"), help=words)
    arguments = parser.parse_args()
    try:
        results, others = _read("results", arguments.results), []
        _refuse_others("results must be those of configs/sweeps/minatar.gin", results, NOOPS)
        if arguments.named is not None and arguments.beside is None:
            raise ValueError(f"--named must come with --beside, got {' '.join(arguments.named)}")
        if arguments.beside is not None:
            others = _read("--beside", arguments.beside)
            if arguments.named is not None:
                way, delay = arguments.named
                if not delay.isdecimal():
                    raise ValueError(f"--named must end with a delay in whole frames, got {delay}")
                others = [{DELAY: delay, **row, "arm": row.get("arm") or way} for row in others]
            rule = "--beside must be the results of a sweep like configs/sweeps/minatar_impact.gin, or --named"
            _refuse_others(rule, others)
        rows = table_of([*results, *others], read_reference().random)
    except ValueError as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    if arguments.output is not None:
        write_text_atomically(arguments.output, text.getvalue())
        print(f"{arguments.output}: {sum('way' in row for row in rows)} rows\n")
    print(tables_in_words(rows))
    if others:
        print(f"\n{beside_in_words(results, others)}")


if __name__ == "__main__":
    main()

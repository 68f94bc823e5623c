"""Whether a change of structure has cost speed: an earlier commit and the working tree, taking turns.

Each measure has players in processes of their own, one for each tree (`benchmarks.players.before_after`). A pair is
eight short windows of each, taking turns, so that a machine that grows slower meanwhile slows both; new players begin
after every few pairs, so that chance in a process (where its memory lies) is drawn again. What is compared is processor
time, for each player has one thread: other jobs on the machine disturb it less than wall-clock time, but they do
disturb it, by caches and by cores that are threads of one.

    python -m benchmarks.before_after COMMIT [--only NAME]... [--pairs 20]

Printed is the median over the pairs of the ratio new / old of the rates, and its 95 % interval, which is exact for the
median (order statistics of the binomial distribution) and needs 6 pairs at least.

Hold: the interval's lower end is >= 0.97 on Atari and >= 0.93 on CartPole for wrapper, DQN and full Rainbow, >= 0.97
for the replay's batches. Microseconds per decision and per stored transition are printed beside the rates.
"""

from __future__ import annotations

import math
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

from benchmarks.measuring import Player, chosen, parser_of, print_hold, print_load, ratios
from benchmarks.same_results import ROOT, extract

OLD, NEW = "before", "now"
PLAYERS = ROOT / "benchmarks" / "players" / "before_after.py"
TURNS = 8  # windows of each tree in a pair
ON_ATARI, ON_CARTPOLE = 0.97, 0.93
ENVIRONMENT = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class Measure(NamedTuple):
    """What is measured.

    Attributes:
        what: Of which there are so many per second.
        window: Units of one window, about a tenth of a second of them.
        warmup: Units before the first window, of each process.
        least: What the lower end of the ratio's interval is held to; None where nothing is held.
    """

    what: str
    window: int
    warmup: int
    least: float | None = None


MEASURES = {
    "wrapper_atari": Measure("frames of ALE Boxing in RealtimeDelay", 600, 2_000, ON_ATARI),
    "wrapper_cartpole": Measure("frames of CartPole in RealtimeDelay", 8_000, 20_000, ON_CARTPOLE),
    "dqn_atari": Measure("steps of DQN on Atari", 8, 300, ON_ATARI),
    "dqn_cartpole": Measure("steps of DQN on CartPole", 80, 1_000, ON_CARTPOLE),
    "full_rainbow_atari": Measure("steps of full Rainbow on Atari", 8, 300, ON_ATARI),
    "full_rainbow_cartpole": Measure("steps of full Rainbow on CartPole", 32, 600, ON_CARTPOLE),
    "replay_uniform": Measure("batches of Atari, uniform", 700, 1_000, ON_ATARI),
    "replay_prioritised": Measure("batches of Atari with their priorities", 400, 1_000, ON_ATARI),
    "decision": Measure("decisions with a free network", 1_500, 5_000),
    "decision_stored": Measure("decisions with a free network, stored", 1_000, 21_000),
    "stored_transition": Measure("transitions of Atari stored", 15_000, 1_000),
    "tickets_cartpole": Measure("frames of CartPole, simulated, tickets", 5_000, 20_000),
    "max_time_cartpole": Measure("frames of CartPole, simulated, max_time", 4_000, 20_000),
    "vector_cartpole": Measure("frames of 8 CartPoles in VectorRealtimeDelay", 4_000, 10_000),
    "virtual_cartpole": Measure("frames of CartPole by AsyncRunner, virtual clock", 2_500, 4_000),
}


def median_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Return an interval that holds the median with at least this probability, whatever the distribution.

    Its ends are the k-th value from below and from above, with the largest k for which fewer than k of n fair coins
    show heads with a probability of (1 - confidence) / 2 at most. Fewer than 6 values allow no such k at 95 %, and give
    (-inf, inf).
    """
    ordered, n = sorted(values), len(values)
    below, tail = 0, 1.0 if n == 0 else 0.5**n
    while tail <= (1 - confidence) / 2:
        below += 1
        tail += math.comb(n, below) * 0.5**n
    return (ordered[below - 1], ordered[-below]) if below else (-math.inf, math.inf)


def sample(name: str, trees: dict[str, Path], pairs: int, restarts: int) -> dict[str, list[float]]:
    """Return units per processor second of each tree, a value for each pair."""
    measure = MEASURES[name]
    rates: dict[str, list[float]] = {side: [] for side in trees}
    for number in range(restarts):
        share = pairs * (number + 1) // restarts - pairs * number // restarts
        if not share:
            continue  # more restarts than pairs
        players: dict[str, Player] = {}
        with ExitStack() as stack:
            for side, tree in trees.items():  # one after the other: warming up together would only make each wait
                environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": str(tree)}
                command = [sys.executable, "-P", str(PLAYERS), name]
                player = Player(command, measure.window, cwd=tree, environment=environment)
                players[side] = stack.enter_context(closing(player))
                player.play(measure.warmup)
            for _ in range(share):
                seconds = dict.fromkeys(trees, 0.0)
                for turn in range(TURNS):
                    for side in list(trees)[:: 1 if turn % 2 else -1]:
                        seconds[side] += players[side].play(measure.window)[1]
                for side in trees:
                    rates[side].append(TURNS * measure.window / seconds[side])
    return rates


def print_measure(name: str, rates: dict[str, list[float]]) -> bool:
    """Print the rates, their ratio and whether it was held; return that."""
    measure = MEASURES[name]
    per_pair = ratios(rates, NEW, OLD)
    median, (low, high) = statistics.median(per_pair), median_interval(per_pair)
    before, now = (statistics.median(rates[side]) for side in (OLD, NEW))
    print(f"\n{measure.what}, {len(per_pair)} pairs, per processor second (microseconds each)")
    print(f"  {OLD} {before:,.1f} ({1e6 / before:,.2f}), {NEW} {now:,.1f} ({1e6 / now:,.2f})")
    print(
        f"  ratio {median:.3f}, 95 % interval {low:.3f} .. {high:.3f}, range {min(per_pair):.3f} .. {max(per_pair):.3f}"
    )
    if measure.least is None:
        return True
    if low == -math.inf:
        print(f"  too few pairs for an interval, which is to begin at >= {measure.least:g}")
        return True
    return print_hold(f"{name}, lower end", low, least=measure.least)


def main() -> int:
    parser = parser_of(__doc__, pairs=(20, "windows of each tree"), restarts=(4, "how often new players begin"))
    parser.add_argument("commit")
    parser.add_argument("--only", action="append", default=[], help=f"part of a name of {', '.join(MEASURES)}")
    parser.add_argument("--now", type=Path, default=ROOT, metavar="DIR", help="another tree than this one")
    arguments = parser.parse_args()
    for name in ("pairs", "restarts"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name} must be >= 1, got {getattr(arguments, name)}")
    wanted = chosen(MEASURES, arguments.only)
    if not wanted:
        parser.error(f"--only must be part of a name of {', '.join(MEASURES)}, got {', '.join(arguments.only)}")
    missed = []
    with tempfile.TemporaryDirectory() as directory:
        old = extract(arguments.commit, Path(directory) / "old")
        for name in wanted:
            rates = sample(name, {OLD: old, NEW: arguments.now.resolve()}, arguments.pairs, arguments.restarts)
            if not print_measure(name, rates):
                missed.append(name)
    print_load()
    print(f"missed: {', '.join(missed)}" if missed else "all that is held was held")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

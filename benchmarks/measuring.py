"""What benchmarks share: their command lines, contestants that take turns, tables, and whether a number was held.

Every contestant runs once per round, so that a busy machine slows all of them alike. What is compared is the median
over the rounds of the ratio *within* a round; what is printed beside it is the range of these ratios, which says how
far to trust the median.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

Samples = Mapping[str, Sequence[float]]


def parser_of(doc: str | None, **options: tuple[Any, str]) -> argparse.ArgumentParser:
    """Return a parser whose help is a module's docstring.

    Args:
        doc: The docstring.
        **options: By name, the default and the help. False makes a flag, a tuple an option of several values, a type
            one without a default.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, (default, says) in options.items():
        how: dict[str, Any] = {"default": default, "type": type(default)}
        if default is False:
            how = {"action": "store_true"}
        elif isinstance(default, tuple):
            how = {"default": list(default), "nargs": "+", "type": type(default[0])}
        elif isinstance(default, type):
            how = {"type": default}
        parser.add_argument(f"--{name.replace('_', '-')}", help=says, **how)
    return parser


def run_parts(
    doc: str | None, parts: Mapping[str, Callable[[argparse.Namespace], Any]], **options: tuple[Any, str]
) -> argparse.Namespace:
    """Run the parts that the command line names, or all, and print the load; see `parser_of`."""
    parser = parser_of(doc, **options)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(parts)}; all if none is named")
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - parts.keys():
        parser.error(f"parts must be of {', '.join(parts)}, got {', '.join(sorted(unknown))}")
    if getattr(arguments, "fifo", None) is not None:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(arguments.fifo))
    for name, run in parts.items():
        if name in (arguments.parts or parts):
            run(arguments)
    print_load()
    return arguments


FIFO = (int, "real-time priority of all ends alike, for a machine with other work")
"""The option of benchmarks whose ends are several processes."""


@contextmanager
def quietly() -> Iterator[None]:
    """Show no warnings: there are more workers than cores."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def interleave(contestants: Mapping[str, Callable[[], float]], rounds: int, warmup: int = 1) -> dict[str, list[float]]:
    """Run every contestant once per round, each round beginning with another one.

    Args:
        contestants: What measures, by name; each call returns one sample.
        rounds: Samples per contestant.
        warmup: Rounds before these whose samples are thrown away.
    """
    names = list(contestants)
    samples: dict[str, list[float]] = {name: [] for name in names}
    for number in range(-warmup, rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            sample = contestants[name]()
            if number >= 0:
                samples[name].append(sample)
    return samples


def rate(step: Callable[[], Any], times: int, each: float = 1, clock: Callable[[], float] = time.process_time) -> float:
    """Return how often a second a step can be made, each counted so many times."""
    begin = clock()
    for _ in range(times):
        step()
    return each * times / (clock() - begin)


class Player:
    """A contestant in a process of its own, which plays as many steps at a time as it is told.

    The process reads lines ``go N`` and answers each with ``wall_seconds processor_seconds`` of N steps.

    Args:
        command: What runs it.
        steps: Of one window.
        cwd: Its working directory; ours where None.
        environment: Its environment variables; ours where None.
    """

    def __init__(
        self, command: list[str], steps: int, cwd: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        pipe, null = subprocess.PIPE, subprocess.DEVNULL
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=null, text=True, cwd=cwd, env=environment
        )
        self._command, self._steps = command, steps
        self.per_processor_second: list[float] = []

    def close(self) -> None:
        """Close the pipe, on which the process ends."""
        self._process.communicate()

    def play(self, steps: int) -> tuple[float, float]:
        """Return the wall-clock and the processor seconds of so many steps."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(f"go {steps}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has died, and gives no answer
        answer = self._process.stdout.readline().split()
        if not answer:
            raise RuntimeError(f"a contestant died: run {' '.join(self._command)} and type 'go 10' to see why")
        wall, cpu = map(float, answer)
        return wall, cpu

    def __call__(self) -> float:
        """Play a window and return its steps per second; those per processor second are kept."""
        wall, cpu = self.play(self._steps)
        self.per_processor_second.append(self._steps / cpu)
        return self._steps / wall


def contest(commands: Mapping[str, list[str]], steps: int, warmup: int, rounds: int) -> tuple[Samples, Samples]:
    """Let players take turns; return their steps per second, and per second of processor time.

    Args:
        commands: What runs each.
        steps: Of a window.
        warmup: Steps of each before the first window.
        rounds: Windows of each, after one that does not count.
    """
    players: dict[str, Player] = {}
    with ExitStack() as stack:
        for name, command in commands.items():  # one after the other: warming up together would only make each wait
            players[name] = stack.enter_context(closing(Player(command, steps)))
            players[name].play(warmup)
        walls = interleave(players, rounds)
    return walls, {name: player.per_processor_second[-rounds:] for name, player in players.items()}


def ratios(samples: Samples, name: str, base: str) -> list[float]:
    """Return the ratio of `name` to `base` in each round."""
    return [mine / other for mine, other in zip(samples[name], samples[base], strict=True)]


def median_ratio(samples: Samples, name: str, base: str) -> float:
    """Return the median over the rounds of the ratio of `name` to `base`."""
    return statistics.median(ratios(samples, name, base))


def print_table(title: str, samples: Samples, base: str, digits: int = 0) -> None:
    """Print each contestant's median, and its ratio to `base`: median, least, largest.

    Args:
        title: What was measured, with the unit.
        samples: As `interleave` returns them.
        base: The contestant that the others are compared with.
        digits: Decimals of the medians.
    """
    width = max(map(len, samples))
    print(f"\n{title}; {len(samples[base])} interleaved rounds; ratio to {base!r}")
    print(f"{'':{width}}  {'median':>10}  {'ratio':>6}  (least .. largest)")
    for name, values in samples.items():
        per_round = ratios(samples, name, base)
        ratio = statistics.median(per_round)
        print(
            f"{name:{width}}  {statistics.median(values):10.{digits}f}  {ratio:6.3f}"
            f"  ({min(per_round):.3f} .. {max(per_round):.3f})"
        )


Trips = dict[str, list[tuple[float, float]]]


def time_trips(trips: Mapping[str, Callable[[], float]], rounds: int, count: int) -> Trips:
    """Let round trips take turns, each of which returns its seconds; return p50 and p99 of each round in microseconds.

    Args:
        trips: What makes a trip, by name.
        rounds: Turns of each, after one of a fifth as many trips that does not count.
        count: Trips of a turn.
    """
    found: Trips = {name: [] for name in trips}
    for number in range(-1, rounds):
        for name, trip in trips.items():
            took = [1e6 * trip() for _ in range(count if number >= 0 else count // 5)]
            if number >= 0:
                found[name].append((float(np.percentile(took, 50)), float(np.percentile(took, 99))))
    return found


def row(*cells: Any) -> str:
    """Return a row of a table in Markdown."""
    return f"| {' | '.join(map(str, cells))} |"


def head(*cells: Any) -> str:
    """Return the first two rows of a table in Markdown."""
    return f"{row(*cells)}\n{'|---' * len(cells)}|"


def held(holds: bool) -> str:
    """Return the word for whether a number was held."""
    return "held" if holds else "MISSED"


def print_hold(what: str, value: float, *, least: float | None = None, most: float | None = None) -> bool:
    """Print and return whether a number that this project holds itself to was held."""
    holds = (least is None or value >= least) and (most is None or value <= most)
    bound = f">= {least:g}" if least is not None else f"<= {most:g}"
    print(f"{held(holds):6} {what}: {value:.4g} (hold {bound})", flush=True)
    return holds


def print_load() -> None:
    """Print how busy the machine is, without which no number above means much."""
    one, five, fifteen = os.getloadavg()
    print(f"load average {one:.2f} {five:.2f} {fifteen:.2f} on {os.cpu_count()} cores")


def chosen(names: Iterable[str], words: Sequence[str]) -> list[str]:
    """Return the names that hold one of the words, or all where there are none."""
    return [name for name in names if not words or any(word in name for word in words)]

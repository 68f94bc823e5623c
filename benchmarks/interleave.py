"""Interleaved measurement: every contestant runs once per round, so that a busy machine slows all of them alike.

What is compared is the median over the rounds of the ratio *within* a round; what is printed beside it is the range of
these ratios, which says how far to trust the median.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Mapping, Sequence

Samples = Mapping[str, Sequence[float]]


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


def print_hold(what: str, value: float, *, least: float | None = None, most: float | None = None) -> None:
    """Print whether a number that this project holds itself to was held."""
    held = (least is None or value >= least) and (most is None or value <= most)
    bound = f">= {least:g}" if least is not None else f"<= {most:g}"
    print(f"{'held  ' if held else 'MISSED'} {what}: {value:.4g} (hold {bound})")


def print_load() -> None:
    """Print how busy the machine is, without which no number above means much."""
    one, five, fifteen = os.getloadavg()
    print(f"load average {one:.2f} {five:.2f} {fifteen:.2f} on {os.cpu_count()} cores")

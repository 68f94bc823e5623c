"""Environments that one accelerator serves: the closed form beside the simulation, and how quick the simulation is.

    python -m benchmarks.capacity [forms] [speed] [--settings 30] [--seed 0]

Hold: on 30 random settings with 50 environments or more the closed form is within 3 % of the simulation; with 1,000
environments the simulation makes at least 50,000 decisions in a second of processor time.

Settings: 15 to 120 frames a second, every frame or every fourth one inferred, a playout of 1 to 6 frames, phases spread
or together, a fixed cost of .04 to 3.1 frames, 50 to 800 environments by the closed form. The simulation is searched
for the most environments with 99.5 % of their actions in time.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time

from async_wrappers.analysis.capacity import most_by_closed_form, most_by_simulation
from async_wrappers.latency.batches import LinearBatches
from async_wrappers.schedule.served import ServedSchedule


def forms(settings: int, seed: int) -> None:
    """Print closed form and simulation of random settings."""
    rng = random.Random(seed)
    errors: list[float] = []
    print(
        f"{'phases':<10}{'fps':>6}{'playout':>9}{'every':>7}{'f a':>7}{'closed form':>13}{'simulated':>11}{'error':>8}"
    )
    while len(errors) < settings:
        fps, playout, every = rng.uniform(15, 120), rng.randint(1, 6), rng.choice([1, 1, 1, 4])
        phases, frames, wanted = rng.choice(["spread", "together"]), rng.uniform(0.04, 3.1), rng.randint(50, 800)
        fixed, least = frames / fps, 1e-9
        most = most_by_closed_form(LinearBatches(fixed, least), fps, playout, every=every, phases=phases)
        if not most:
            continue  # a batch of one is too slow
        latency = LinearBatches(fixed, least * most / wanted)
        closed = most_by_closed_form(latency, fps, playout, every=every, phases=phases)
        found = most_by_simulation(latency, fps, playout, every=every, phases=phases)
        assert closed is not None
        assert found is not None
        errors.append(closed / found.environments - 1)
        print(
            f"{phases:<10}{fps:>6.0f}{playout:>9}{every:>7}{frames:>7.2f}{closed:>13}{found.environments:>11}"
            f"{errors[-1]:>8.2%}",
            flush=True,
        )
    worst = max(map(abs, errors))
    print(f"{'held  ' if worst <= 0.03 else 'MISSED'} closed form: off by {worst:.2%} at most (hold <= 3 %)")


def speed(rounds: int = 5) -> None:
    """Print decisions per second of processor time."""
    rates = []
    for seed in range(rounds):
        schedule = ServedSchedule(LinearBatches(0.002, 1.3e-5, cv=0.1), 1000, 60, 2, seed=seed)
        begin = time.process_time()
        decisions = len(schedule.play(120).start)
        rates.append(decisions / (time.process_time() - begin))
    rate = statistics.median(rates)
    print(f"{'held  ' if rate >= 50_000 else 'MISSED'} 1,000 environments: {rate:,.0f} decisions/s (hold >= 50,000)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["forms", "speed"], metavar="PART", help="forms, speed")
    parser.add_argument("--settings", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if "forms" in arguments.parts:
        forms(arguments.settings, arguments.seed)
    if "speed" in arguments.parts:
        speed()


if __name__ == "__main__":
    main()

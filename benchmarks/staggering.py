"""What each stagger strategy gives: simulated, 60 fps, an action on each frame wanted.

For every strategy, three latency models and six numbers of workers: the share of frames with a fresh action, the mean
and 99th percentile of its delay in frames, actions dropped per second. Deterministic: the clock is simulated. The last
line of each model is the hold: tickets with ceil(mean latency * fps) + 2 workers at playout p99 reach a share of 0.99.

    python -m benchmarks.staggering [--seconds 350]
"""

from __future__ import annotations

import argparse
import math

from async_wrappers.latency import Constant, Latency, LogNormal, Spikes
from async_wrappers.schedule.simulated import Counts, SimulatedSchedule

FPS = 60
MODELS: dict[str, Latency] = {
    "constant 120 ms": Constant(0.120),
    "log-normal, mean 120 ms, cv 0.2": LogNormal(mean=0.120, cv=0.2),
    "120 ms, 2 % of inferences 3x": Spikes(0.120, probability=0.02, factor=3),
}
STRATEGIES = (
    ("sequential", "p99"),
    ("none", "p99"),
    ("max_time", "p99"),
    ("expected_time", "p99"),
    ("tickets", "p95"),
    ("tickets", "p99"),
)
WORKERS = (1, 4, 8, 10, 16, 25)


def simulate(latency: Latency, stagger: str, playout: str, workers: int, seconds: int) -> Counts:
    """Run one episode of so many seconds."""
    schedule = SimulatedSchedule(latency, workers, FPS, stagger, playout, seed=0)
    frames = schedule.frames(seed=1)
    for _ in range(seconds * FPS):
        next(frames)
    return schedule.counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=350, help="simulated time of each cell")
    seconds = parser.parse_args().seconds
    for name, latency in MODELS.items():
        print(f"\n### {name}\n\nfresh share, mean delay, p99 delay (frames), dropped per second\n")
        print("| strategy | " + " | ".join(f"{workers} workers" for workers in WORKERS) + " |")
        print("|---" * (len(WORKERS) + 1) + "|")
        for stagger, playout in STRATEGIES:
            cells = []
            for workers in WORKERS:
                counts = simulate(latency, stagger, playout, workers, seconds)
                delay = f"{counts.mean_delay:.1f}, {counts.delay_quantile(0.99):.0f}"
                cells.append(f"{counts.fresh_share:.3f}, {delay}, {counts.dropped / seconds:.1f}")
            label = f"{stagger}, {playout}" if stagger == "tickets" else stagger
            print(f"| {label} | " + " | ".join(cells) + " |")
        enough = math.ceil(latency.mean * FPS) + 2
        share = simulate(latency, "tickets", "p99", enough, seconds).fresh_share
        print(f"\ntickets with {enough} workers at p99: {share:.3f} fresh (hold: >= 0.99)")


if __name__ == "__main__":
    main()

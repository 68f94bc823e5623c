"""How many decisions a second the virtual clock makes: the schedule alone, with few and with 10,000 workers.

Hold: at least 50,000 decisions (inferences) a second. The peer is the wall clock itself: the ratio says how many times
faster than real time the simulation runs. Time is processor time of this process.

    python -m benchmarks.virtual_clock [--repetitions 5]
"""

from __future__ import annotations

import argparse
import statistics
import time

from async_wrappers.latency import Constant, Latency, LogNormal
from async_wrappers.schedule.simulated import SimulatedSchedule

FPS = 60
CASES: dict[str, tuple[Latency, int, int]] = {  # latency, workers, simulated seconds
    "120 ms, 10 workers": (LogNormal(mean=0.120, cv=0.2), 10, 200),
    "1 s, 62 workers": (LogNormal(mean=1.0, cv=0.2), 62, 200),
    "100 s, 10,000 workers": (Constant(100.0), 10_000, 400),
}


def decisions_per_second(latency: Latency, workers: int, seconds: int) -> tuple[float, float]:
    """Return (inferences per second of computing, simulated time / computing time)."""
    schedule = SimulatedSchedule(latency, workers, FPS, seed=0)
    frames = schedule.frames(seed=1)
    begin = time.process_time()
    for _ in range(seconds * FPS):
        next(frames)
    took = time.process_time() - begin
    return sum(schedule.counts.inferences.values()) / took, seconds / took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    repetitions = parser.parse_args().repetitions
    print(f"{'case':<24}{'decisions/s':>14}{'times real time':>18}")
    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in CASES}
    for _ in range(repetitions):
        for name, case in CASES.items():
            runs[name].append(decisions_per_second(*case))
    for name, measured in runs.items():
        rate, ratio = (statistics.median(values) for values in zip(*measured, strict=True))
        print(f"{name:<24}{rate:>14,.0f}{ratio:>18,.0f}")


if __name__ == "__main__":
    main()

"""A control loop at 1,000 frames a second: its lateness, its share of a core, and its memory over an hour.

* ``loop``: one worker, two cores, ``Realtime(core=1)`` where this process may have it, in rounds that alternate with
  the same without. Hold: p99 lateness at most 0.2 ms. An observation has 12 numbers, an action 6.
* ``in_loop``: the same with the policy in the loop (``workers=0``).
* ``hour``: 3.6 million frames on the virtual clock with ``timeline=10``. Hold: resident memory grows by at most 1 MB
  from the first tenth to the last (the numbers after it are with the report made). Beside it a twentieth of the frames
  with ``timeline="all"``, and what all of them would take. A tenth has to be 10 s at least: 100,000 frames in all.

    python -m benchmarks.khz [loop] [in_loop] [hour] [--seconds 60] [--frames 3600000]
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from async_wrappers import AsyncRunner, Realtime, TimingReport
from async_wrappers.latency import LogNormal
from async_wrappers.live.world.environment import FrameStatus
from async_wrappers.live.world.realtime import may_lock, may_schedule

HZ = 1000
ROUNDS = 3
MOST_LATE_MS = 0.2
MOST_GROWN_MB = 1.0
PAGE = os.sysconf("SC_PAGE_SIZE")


class Joints(gym.Env[Any, Any]):
    """Six joints that nobody moves."""

    observation_space = gym.spaces.Box(-1, 1, (12,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (6,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode without end."""
        super().reset(seed=seed)
        return np.zeros(12, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take one frame."""
        return np.zeros(12, np.float32), 0.0, False, False, {}


def gains() -> Any:
    """Return a policy of microseconds."""
    return lambda observation: np.clip(-0.5 * observation[:6], -1, 1)


def play(workers: int, seconds: float, realtime: Realtime | None) -> TimingReport:
    """Play for a while at 1 kHz."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runner = AsyncRunner(
            Joints, gains, workers, HZ, realtime=realtime, timeline=1.0, calibration_time=0.5, default_action="repeat"
        )
        return runner.run(seconds=seconds)


def lateness(workers: int, seconds: float) -> None:
    """Print rounds with realtime scheduling and without, in turns."""
    permitted = may_schedule(50)
    realtime = Realtime(core=max(os.sched_getaffinity(0)), lock=may_lock()) if permitted else None
    spinning = realtime or Realtime(priority=None, lock=False)
    print(f"\n{HZ} frames a second, {workers} workers, {ROUNDS} rounds, load average {os.getloadavg()[0]:.1f}")
    if not permitted:
        print("SCHED_FIFO is not permitted here (`python -m async_wrappers doctor` says what is missing)")
    shares, worst = [], []
    for _ in range(ROUNDS):
        for name, setting, part in (("as it is", None, 0.25), (str(spinning), spinning, 1.0)):
            report = play(workers, part * seconds / ROUNDS, setting)
            late, missed = report.lateness_ms, report.frames["missed_deadlines"]
            print(
                f"  {name:<72} lateness ms p50 {late['p50']:.4f}, p99 {late['p99']:.4f}, max {late['max']:.2f}; "
                f"{missed} of {report.frames['total']} missed, {report.actions_per_frame:.1%} fresh, "
                f"{report.loop_share:.0%} of a core"
            )
            if setting is not None:
                worst.append(late["p99"])
                shares.append(report.loop_share or 0.0)
    median = statistics.median(worst)
    held = "held" if median <= MOST_LATE_MS else "MISSED"
    print(
        f"p99 lateness {median:.4f} ms, {statistics.median(shares):.0%} of a core (medians); hold <= "
        f"{MOST_LATE_MS} ms: {held}; load average {os.getloadavg()[0]:.1f}"
    )


def resident() -> float:
    """Return this process's resident memory in megabytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE / 1e6


def hour(frames: int) -> None:
    """Print resident memory while a run goes on."""

    def play_virtual(count: int, timeline: Any) -> list[float]:
        sizes = []

        def look(status: FrameStatus) -> None:
            if status.frame % (count // 10) == 0:
                sizes.append(resident())

        latency = LogNormal(0.0012, 0.3)
        runner = AsyncRunner(Joints, gains, 2, HZ, backend="virtual", latency=latency, timeline=timeline)
        report = runner.run(frames=count, on_frame=look)
        sizes.append(resident())
        print(f"  {timeline!r}: {report.frames['total']} frames, MB {', '.join(f'{size:.1f}' for size in sizes)}")
        return sizes

    print(f"\nresident memory at each tenth of {frames:,} frames at {HZ} Hz, two workers, one episode")
    few = play_virtual(frames // 20, "all")  # first, while nothing is free to be used again
    whole = 20 * (few[-2] - few[0]) / 0.9
    began = time.monotonic()
    sizes = play_virtual(frames, 10.0)
    took, grown = time.monotonic() - began, sizes[-2] - sizes[1]
    held = "held" if grown <= MOST_GROWN_MB else "MISSED"
    print(
        f"grown by {grown:.2f} MB since the first tenth, in {took:.0f} s (all of it kept: {whole:,.0f} MB); hold <= "
        f"{MOST_GROWN_MB:g} MB: {held}"
    )


def main() -> None:
    """Run the parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=[], choices=[[], "loop", "in_loop", "hour"])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--frames", type=int, default=3_600_000)
    arguments = parser.parse_args()
    parts = arguments.parts or ["loop", "in_loop", "hour"]
    if "loop" in parts:
        lateness(1, arguments.seconds)
    if "in_loop" in parts:
        lateness(0, arguments.seconds)
    if "hour" in parts:
        hour(arguments.frames)


if __name__ == "__main__":
    main()

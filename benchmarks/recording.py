"""What recording costs a live run: two cameras of 224 x 224 at 30 frames a second, with and without, in turns.

A frame is late if it begins more than half a frame after its deadline. Hold: recording raises the share of late frames
by at most 0.1 points, and drops none. Beside it: the time that a row takes of the environment loop, for such a frame
and for one of a small robot at 1 kHz.

    python -m benchmarks.recording [--seconds 20] [--rounds 3] [--directory DIR]
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from async_wrappers import AsyncRunner
from async_wrappers.live.recording.rows import Recorder, RowLayout, RowRing
from async_wrappers.processes.block import Block

FPS, INFERENCE = 30, 0.05
CAMERA = spaces.Box(0, 255, (224, 224, 3), np.uint8)
CAMERAS = spaces.Dict({"left": CAMERA, "wrist": CAMERA, "joints": spaces.Box(-4, 4, (7,), np.float32)})
SMALL = spaces.Box(-4, 4, (12,), np.float32)
JOINTS = spaces.Box(-1, 1, (7,), np.float32)


class Arm(gym.Env[Any, Any]):
    """Shows noise in two cameras, without an end."""

    observation_space, action_space = CAMERAS, JOINTS

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Make the pictures."""
        super().reset(seed=seed)
        self._pictures = np.random.default_rng(0).integers(0, 256, (16, *CAMERA.shape), np.uint8)
        self._frame = 0
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        """Show the next pictures, copied as a camera's driver does."""
        self._frame += 1
        return self._seen(), 0.0, False, False, {}

    def _seen(self) -> dict[str, Any]:
        left, wrist = (self._pictures[(self._frame + each) % 16].copy() for each in (0, 5))
        return {"left": left, "wrist": wrist, "joints": np.zeros(7, np.float32)}


def make_policy() -> Any:
    """Return a policy that takes its time, as on another machine."""

    def act(observation: Any) -> Any:
        time.sleep(INFERENCE)
        return np.zeros(7, np.float32)

    return act


def play(seconds: float, directory: Path | None) -> tuple[int, int, float, int]:
    """Play; return frames, late ones, the 99th percentile of lateness in ms, and frames that were not recorded."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runner = AsyncRunner(Arm, make_policy, 3, FPS, default_action="repeat", calibration_time=0.5, record=directory)
        report = runner.run(seconds=seconds)
    dropped = 0 if report.recording is None else report.recording["dropped"]
    return report.frames["total"], report.frames["missed_deadlines"], report.lateness_ms["p99"], dropped


def row_cost(observation_space: gym.Space[Any], rows: int) -> float:
    """Return the median time of a row in the environment loop, in microseconds."""
    layout, block = RowLayout(observation_space, JOINTS), Block()
    block.resize(RowRing.size(layout, 64))
    ring = RowRing(block, layout, 64)
    recorder, observation, action = Recorder(ring, FPS), observation_space.sample(), JOINTS.sample()
    times = []
    for frame in range(rows):
        begin = time.perf_counter_ns()
        place: dict[str, Any] = {"frame": frame, "deadline": 0, "lateness": 0, "paused": False, "limited": False}
        recorder.act(observation, action, action, decision=(0, 1, -1), **place)
        recorder.pay(0.0, False, False)
        times.append(time.perf_counter_ns() - begin)
        for _ in ring.waiting():
            pass
    return statistics.median(times[rows // 4 :]) / 1e3


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20, help="of each run (20)")
    parser.add_argument("--rounds", type=int, default=3, help="runs with and without (3)")
    parser.add_argument("--directory", default=None, help="where recordings go (the system's temporary directory)")
    options = parser.parse_args()
    place = Path(tempfile.mkdtemp(dir=options.directory))
    totals: dict[bool, list[tuple[int, int, float, int]]] = {False: [], True: []}
    try:
        for number in range(options.rounds):
            for records in (False, True) if number % 2 == 0 else (True, False):
                played = play(options.seconds, place / str(number) if records else None)
                totals[records].append(played)
                frames, late, lateness, dropped = played
                name = "recorded" if records else "plain   "
                print(f"{name} {frames} frames, {late} late, lateness p99 {lateness:.2f} ms, {dropped} dropped")
        written = sum(path.stat().st_size for path in place.rglob("*.npy")) / 1e6
    finally:
        shutil.rmtree(place)
    share = {records: sum(p[1] for p in each) / sum(p[0] for p in each) for records, each in totals.items()}
    rise, dropped = 100 * (share[True] - share[False]), sum(played[3] for played in totals[True])
    held = "held" if rise <= 0.1 and not dropped else "MISSED"
    print(
        f"late: {share[False]:.3%} without, {share[True]:.3%} with a recording, {rise:+.3f} points (hold <= 0.1); "
        f"{dropped} dropped, {written:.0f} MB: {held}"
    )
    cameras, small = row_cost(CAMERAS, 1000), row_cost(SMALL, 20_000)
    print(f"a row takes {cameras:.0f} us of the loop with both cameras (301 KB), {small:.1f} us with 12 numbers")
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()

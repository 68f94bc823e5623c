"""A live robot: how old its readings are, and what recording costs.

``age``: how old a machine's reading is when inference begins, as a `Machine` and as an environment whose step reads at
once. A joint turns in a thread of its own, and each reading holds the time at which it was taken. One worker infers for
a millisecond, and answers with the age of its reading; the environment's process collects the ages. Hold, at 50 Hz: p99
at most 1 ms as a `Machine`. The environment beside it, in turns, is a whole frame behind.

``recording``: two cameras of 224 x 224 at 30 frames a second, with and without, in turns, twice as long. A frame is
late if it begins more than half a frame after its deadline. Hold: recording raises the share of late frames by at most
0.1 points, and drops none. Beside it: the time that a row takes of the environment loop, for such a frame and for one
of a small robot at 1 kHz.

    python -m benchmarks.robots [age] [recording] [--fps 50] [--seconds 10] [--rounds 3] [--directory DIR]
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from async_wrappers import AsyncRunner
from async_wrappers.fleet.block import Block
from async_wrappers.live.recording.frame_rows import Recorder, RowLayout, RowRing
from benchmarks.measuring import print_hold, quietly, run_parts

CAMERAS_FPS, INFERENCE = 30, 0.05
CAMERA = spaces.Box(0, 255, (224, 224, 3), np.uint8)
CAMERAS = spaces.Dict({"left": CAMERA, "wrist": CAMERA, "joints": spaces.Box(-4, 4, (7,), np.float32)})
SMALL = spaces.Box(-4, 4, (12,), np.float32)
JOINTS = spaces.Box(-1, 1, (7,), np.float32)


# The age of a reading.


class Joint:
    """Turns by itself at 1 kHz; the action is the age of a reading, in seconds, and 0 is none."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gym.spaces.Box(0.0, np.inf, (1,), np.float64)
    noop_action = np.zeros(1)

    def __init__(self) -> None:
        self.phase_state: list[float] = []
        self._angle, self._over = 0.0, threading.Event()
        threading.Thread(target=self._turn, daemon=True).start()

    def _turn(self) -> None:
        while not self._over.wait(0.001):
            self._angle += 0.001

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin."""
        return self._reading(), {}

    def send(self, action: Any) -> None:
        """Collect the age."""
        if action[0] > 0:
            self.phase_state.append(float(action[0]))

    def observe(self) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Read the joint."""
        return self._reading(), 0.0, False, False, {}

    def close(self) -> None:
        """Come to rest."""
        self._over.set()

    def _reading(self) -> Any:
        return np.array([self._angle, time.monotonic()])


class JointEnv(gym.Env[Any, Any]):
    """The same joint, whose step sends and reads at once."""

    observation_space, action_space = Joint.observation_space, Joint.action_space

    def __init__(self) -> None:
        self._joint = Joint()
        self.phase_state = self._joint.phase_state

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin."""
        return self._joint.reset()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Send, and read."""
        self._joint.send(action)
        return self._joint.observe()

    def close(self) -> None:
        """Come to rest."""
        self._joint.close()


def make_asking_policy() -> Any:
    def act(observation: Any) -> Any:
        age = time.monotonic() - observation[1]
        time.sleep(0.001)
        return np.array([age])

    return act


def age(args: Namespace) -> None:
    """Print the ages of readings."""
    kinds: dict[str, type] = {"Machine": Joint, "environment": JointEnv}
    found: dict[str, list[Any]] = {name: [] for name in kinds}
    for _ in range(args.rounds):
        for name, kind in kinds.items():
            with quietly():
                terms: dict[str, Any] = {"calibration_time": 0.5, "default_action": np.zeros(1)}
                report = AsyncRunner(kind, make_asking_policy, 1, args.fps, **terms).run(seconds=args.seconds)
            found[name].append(np.percentile(report.phase_state, [50, 99]) * 1e3)
    print(f"age of the reading as inference begins, {args.fps:g} Hz, ms")
    for name, rounds in found.items():
        p50, p99 = np.median(rounds, axis=0)
        each = ", ".join(f"{of_round[1]:.3f}" for of_round in rounds)
        print(f"{name:<12} p50 {p50:7.3f}   p99 {p99:7.3f}   p99 of each round {each}")
    print_hold("p99 of the Machine, ms", statistics.median(p99 for _, p99 in found["Machine"]), most=1)


# Recording.


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


def make_slow_policy() -> Any:
    """Return a policy that takes its time, as on another machine."""

    def act(observation: Any) -> Any:
        time.sleep(INFERENCE)
        return np.zeros(7, np.float32)

    return act


def row_cost(observation_space: gym.Space[Any], rows: int) -> float:
    """Return the median time of a row in the environment loop, in microseconds."""
    layout, block = RowLayout(observation_space, JOINTS), Block()
    block.resize(RowRing.size(layout, 64))
    ring = RowRing(block, layout, 64)
    recorder, observation, action = Recorder(ring, CAMERAS_FPS), observation_space.sample(), JOINTS.sample()
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


def recording(args: Namespace) -> None:
    """Print late frames with a recording and without."""
    terms: dict[str, Any] = {"default_action": "repeat", "calibration_time": 0.5}
    counts = {records: np.zeros(3, np.int64) for records in (False, True)}  # frames, late ones, not recorded ones
    with tempfile.TemporaryDirectory(dir=args.directory) as place:
        for number in range(args.rounds):
            for records in (False, True) if number % 2 == 0 else (True, False):
                directory = Path(place) / str(number) if records else None
                with quietly():
                    runner = AsyncRunner(Arm, make_slow_policy, 3, CAMERAS_FPS, record=directory, **terms)
                    report = runner.run(seconds=2 * args.seconds)
                dropped = 0 if report.recording is None else report.recording["dropped"]
                frames, late = report.frames["total"], report.frames["missed_deadlines"]
                counts[records] += frames, late, dropped
                print(
                    f"{'recorded' if records else 'plain':<8} {frames} frames, {late} late, lateness p99 "
                    f"{report.lateness_ms['p99']:.2f} ms, {dropped} dropped"
                )
        written = sum(path.stat().st_size for path in Path(place).rglob("*.npy")) / 1e6
    share = {records: 100 * late / frames for records, (frames, late, _) in counts.items()}
    print(f"late: {share[False]:.3f} % without, {share[True]:.3f} % with a recording of {written:.0f} MB")
    print_hold("rise in points", share[True] - share[False], most=0.1)
    print_hold("rows dropped", counts[True][2], most=0)
    cameras, small = row_cost(CAMERAS, 1000), row_cost(SMALL, 20_000)
    print(f"a row takes {cameras:.0f} us of the loop with both cameras (301 KB), {small:.1f} us with 12 numbers")


if __name__ == "__main__":
    run_parts(
        __doc__,
        {"age": age, "recording": recording},
        fps=(50.0, "of the readings"),
        seconds=(10.0, "of each run"),
        rounds=(3, "runs of each"),
        directory=(str, "where recordings go; the system's temporary directory"),
    )

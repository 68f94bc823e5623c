"""Draw the circle: a live run is measured, its file makes a simulation late, and both show the same ages.

    python -m benchmarks.studies.circle docs/circle.png

The ages are played, on the virtual clock: a machine whose camera gives 30 readings a second, 30 ms late or so, at 50
frames a second, and the simulation that reads the file of that run.
"""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from async_wrappers import AsyncRunner, Latencies, LogNormal, RealtimeDelay, SensorDelay
from benchmarks.measuring import parser_of
from tests.worlds.stamping_machine import FPS, Stamping

FRAMES, WORKERS = 3_000, 3
CAMERA = np.random.default_rng(0).lognormal(np.log(0.03), 0.25, 997).round(4).tolist()  # seconds, in turn
LIVE, SIMULATED = "#4878d0", "#ee854a"
STEPS = {  # clockwise from the top
    "measure": "a live run: the machine\nstamps its readings",
    "train": "in a simulator: SensorDelay,\naround it RealtimeDelay",
    "plan": "how many workers,\nwhich playout",
    "deploy": "the next live run,\nmeasured again",
}
ROUND = {"boxstyle": "round,pad=0.5", "facecolor": "white", "linewidth": 1.4}


class Simulator(gym.Env[Any, Any]):
    """The machine, simulated: its sensors show each frame's number at once."""

    observation_space, action_space = Stamping.observation_space, Stamping.action_space
    noop_action = Stamping.noop_action

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        """Begin."""
        self.frame = 0
        return self._shown(), {}

    def step(self, action: Any) -> Any:
        """Let a frame pass."""
        self.frame += 1
        return self._shown(), 0.0, False, False, {}

    def _shown(self) -> Any:
        return {name: np.array([self.frame], np.float32) for name in ("camera", "joints")}


def played() -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Return the ages of the camera and of decisions' observations, in milliseconds, live and simulated."""
    timing: dict[str, Any] = {"workers": WORKERS, "fps": FPS, "stagger": "expected_time", "default_action": "noop"}
    runner = AsyncRunner(
        lambda: Stamping(CAMERA, 30),
        lambda: lambda observation: Stamping.noop_action,
        backend="virtual",
        latency=LogNormal(mean=0.05, cv=0.3),
        **timing,
    )
    report = runner.run(frames=FRAMES)
    with tempfile.TemporaryDirectory() as folder:
        report.latencies().to_json(Path(folder) / "robot.json")
        measured = Latencies.from_json(Path(folder) / "robot.json")
    frame = 1000 / FPS
    delays = [(span.effect - span.start) * frame for span in report.spans if span.effect is not None]
    live = {"camera": [age / 1e6 for age in report.readings["camera"].ages], "decisions": delays}
    late = SensorDelay(Simulator(), measured, fps=FPS)
    env = RealtimeDelay(late, latency=measured, **timing)
    late.reset(seed=0)
    ages = [1000 * late.step(Stamping.noop_action)[-1]["sensor_ages"]["camera"] for _ in range(FRAMES)]
    env.reset(seed=0)
    delays = [env.step(Stamping.noop_action)[-1]["realtime"]["delay"] * frame for _ in range(FRAMES)]
    simulated = {"camera": ages, "decisions": delays}
    return live, simulated


def draw_steps(axes: Axes) -> None:
    """Draw the steps around the file that joins them."""
    for number, (name, words) in enumerate(STEPS.items()):
        angle = math.pi / 2 - number * math.pi / 2
        x, y = 1.5 * math.cos(angle), math.sin(angle)
        axes.text(x, y + 0.1, name, ha="center", va="center", fontsize=11, fontweight="bold", zorder=3)
        axes.text(x, y - 0.14, words, ha="center", va="center", fontsize=8, zorder=3)
        after = angle - math.pi / 2
        ends = [(1.5 * math.cos(each), math.sin(each)) for each in (angle - 0.55, after + 0.55)]
        curve = {"arrowstyle": "->", "connectionstyle": "arc3,rad=-0.25", "linewidth": 1.4, "color": "0.35"}
        axes.annotate("", ends[1], ends[0], arrowprops=curve)
    file = "robot.json\n\nlatency of decisions,\nits part of transport,\nages and rate of each sensor"
    axes.text(0, 0, file, ha="center", va="center", fontsize=8, bbox={**ROUND, "edgecolor": LIVE})
    axes.set_xlim(-2.3, 2.3)
    axes.set_ylim(-1.4, 1.4)
    axes.axis("off")


def draw_ages(axes: Axes, title: str, live: list[float], simulated: list[float]) -> None:
    """Draw how often each age occurs, live and simulated, beside each other."""
    shares = [
        {age: count / len(ages) for age, count in Counter(np.round(ages, 1)).items()} for ages in (live, simulated)
    ]
    known = sorted(age for age in {*shares[0], *shares[1]} if max(each.get(age, 0) for each in shares) > 0.004)
    places = np.arange(len(known))
    for share, colour, label, at in zip(
        shares, (LIVE, SIMULATED), ("live run", "simulation"), (-0.2, 0.2), strict=True
    ):
        axes.bar(places + at, [100 * share.get(age, 0) for age in known], 0.4, color=colour, label=label)
    axes.set_xticks(places, [f"{age:g}" for age in known], fontsize=8)
    axes.set_xlabel("ms", fontsize=8)
    axes.set_ylabel("%", fontsize=8)
    axes.set_title(title, fontsize=9)
    axes.tick_params(axis="y", labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def draw(path: str) -> None:
    """Draw the circle and the ages."""
    live, simulated = played()
    figure = Figure(figsize=(10, 4.2), dpi=110, layout="constrained")
    grid = figure.add_gridspec(2, 2, width_ratios=(1.5, 1))
    draw_steps(figure.add_subplot(grid[:, 0]))
    above, below = figure.add_subplot(grid[0, 1]), figure.add_subplot(grid[1, 1])
    draw_ages(above, "camera: age of its reading as a frame begins", live["camera"], simulated["camera"])
    draw_ages(below, "decisions: from the observation to the action", live["decisions"], simulated["decisions"])
    below.legend(fontsize=8, frameon=False)
    figure.savefig(path)


if __name__ == "__main__":
    parser = parser_of(__doc__)
    parser.add_argument("path", help="of the picture")
    draw(parser.parse_args().path)

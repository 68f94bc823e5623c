"""What a window of actions and a critic at the effect are worth to SAC under delay, and chunks to PPO.

    python -m benchmarks.studies.delay_sac --base_dir DIR [--tasks pendulum_5 pendulum_10] [--ways effect] [--seeds 5]
        [--share 0.1] [--show] [--draw]

Tasks, each with ways to play that are compared; actions are computed on every frame and land so many frames later:

    pendulum_5     Pendulum-v1, 5 frames (250 ms), 12,000 frames of training, 5 seeds: effect >= -160
    pendulum_10    10 frames (500 ms)
    double_3       InvertedDoublePendulum-v5, 3 frames (150 ms), 20,000 frames, 3 seeds: effect >= 9,000
    random         Pendulum-v1, random latencies of 175 ms on average; tickets give all actions one delay, that of the
                   99th percentile: 5 frames. Beside pendulum_5, whose delay is the same: >= 0.9 of its score, where a
                   random player's score is 0 (`share_of_constant`)
    chunks         InvertedPendulum-v5, one decision per 9 frames, 2 frames late, PPO: a chunk >= 2 times the last
                   action repeated; with a first standard deviation of half the range, a third and a tenth of that
    chunks_double  InvertedDoublePendulum-v5, the same

    without delay  no delay, and a policy that reads the observation
    late start     the final weights of *without delay*, where the first frames of an episode receive no torque, as
                   many as the delay has: about the best that is possible under the delay
    told nothing   the delay, and a policy that reads the observation
    window         a policy and critics that read the last actions beside the observation
    effect         a policy that reads the last actions; critics that read the frames on which actions land

Each trial trains in a process of its own, with one thread; its final weights play 20 episodes by their likeliest
actions, in a new environment under the same delay. A trial adds a row to DIR/scores.csv, and is not played again.
Prints the rows and paired differences with 95 % intervals (Student's t); `--draw` draws
docs/results_continuous_delay.png from the rows.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from benchmarks.studies.continuous_scores import (
    Row,
    append_row,
    evaluated,
    make_runner,
    played,
    read_rows,
    row_of,
    run_missing,
    table,
    trained,
    versions,
)
from benchmarks.studies.realtime_memory import interval_95

DOCS = Path(__file__).resolve().parents[2] / "docs"
_SEEN = 5  # episodes of an evaluation during training
UNDELAYED, LATE, RANDOM = "without delay", "late start", "random player"

_SAC = (
    "SACAgent.num_layers = 2",
    "SACAgent.hidden_units = 64",
    "SACAgent.batch_size = 128",
    "SACAgent.min_replay_history = 1_200",
    "SACAgent.random_frames = 1_200",
    "create_adam.learning_rate = 1e-3",
)
_AT_EFFECT = "SACAgent.critic_at = 'effect'"
_LATENCY = (
    "RealtimeDelay.delay = 0",  # the latency gives it
    "RealtimeDelay.latency = @LogNormal()",
    "LogNormal.mean = 0.175",  # seconds, 3.5 frames
    "LogNormal.cv = 0.15",
    "RealtimeDelay.workers = 6",
    "RealtimeDelay.fps = 20",
    "RealtimeDelay.stagger = 'tickets'",
    "RealtimeDelay.playout = 'p99'",
)


def _delay(frames: int) -> tuple[str, ...]:
    return (f"RealtimeDelay.delay = {frames}",)


def _window(actions: int) -> str:
    return f"SACAgent.action_window = {actions}"


@dataclass(frozen=True)
class Task:
    """Ways to play under one delay.

    Attributes:
        config: The gin file.
        environment_id: Gymnasium's, in the place of the file's.
        frames: Of training.
        ways: By name, the bindings on top of the file.
        best: The way from which the others' differences are taken.
        seeds: Of each way.
        bindings: Of all ways.
        late: Frames of the late start.
    """

    config: str
    environment_id: str
    frames: int
    ways: Mapping[str, tuple[str, ...]]
    best: str = "effect"
    seeds: int = 5
    bindings: tuple[str, ...] = _SAC
    late: int = 0


def _under(delay: int) -> dict[str, tuple[str, ...]]:
    """Return the three ways to play under a delay of so many frames."""
    at = _delay(delay)
    return {
        "told nothing": at,
        "window": (*at, _window(delay)),
        "effect": (*at, _window(delay), _AT_EFFECT),
    }


def _chunks(environment_id: str) -> Task:
    """Return one decision per 9 frames by PPO: its action repeated, or a chunk of 11, and less noise at first."""
    ways: dict[str, tuple[str, ...]] = {
        "repeat": ("RealtimeDelay.default_action = 'repeat'",),
        "chunk": ("RealtimeDelay.default_action = 'chunk'",),  # of delay + noops + 1 = 11 frames
    }
    less = {
        f"{way}, a {part}": (*bindings, f"create_policy_value_network.log_std_init = {log_std}")
        for way, bindings in ways.items()
        for part, log_std in (("third", -1.1), ("tenth", -2.3))
    }
    bindings = (
        "create_runner.schedule = 'vector'",
        "VectorRunner.num_envs = 16",
        "RealtimeDelay.delay = 2",
        "RealtimeDelay.noops = 8",
        "PPOAgent.gamma = 0.99",
        "PPOAgent.learning_rate_decay = None",
    )
    best = "chunk, a tenth"
    return Task("configs/ppo/pendulum.gin", environment_id, 1_000_000, ways | less, best, bindings=bindings)


_SAC_FILE, _PENDULUM = "configs/sac/pendulum.gin", "Pendulum-v1"
TASKS: Mapping[str, Task] = {
    "pendulum_5": Task(_SAC_FILE, _PENDULUM, 12_000, {UNDELAYED: _delay(0), LATE: _delay(0), **_under(5)}, late=5),
    "pendulum_10": Task(_SAC_FILE, _PENDULUM, 12_000, {LATE: _delay(0), **_under(10)}, late=10),
    "double_3": Task(
        _SAC_FILE,
        "InvertedDoublePendulum-v5",
        20_000,
        {UNDELAYED: _delay(0), LATE: _delay(0), **_under(3)},
        seeds=3,
        late=3,
    ),
    "random": Task(_SAC_FILE, _PENDULUM, 12_000, {RANDOM: (), "effect": (*_LATENCY, _window(5), _AT_EFFECT)}),
    "chunks": _chunks("InvertedPendulum-v5"),
    "chunks_double": _chunks("InvertedDoublePendulum-v5"),
}


def train(name: str, way: str, seed: int, share: float, base_dir: Path) -> None:
    """Play one trial and add its row, with the means of the evaluations during training as its curve."""
    import torch

    torch.set_num_threads(1)
    task = TASKS[name]
    packages = ("torch", "gymnasium", *(() if task.environment_id == _PENDULUM else ("mujoco",)))
    steps, seconds, curve = 0, 0.0, ""
    if way == RANDOM:
        scores = _play_at_random(task.environment_id, seed)
    else:
        bindings = (
            f"create_gym_environment.environment_id = '{task.environment_id}'",
            "Runner.max_steps_per_episode = None",  # the environment's own limit
            f"Runner.evaluation_episodes = {_SEEN}",
            *task.bindings,
            *task.ways[way],
        )
        frames = round(task.frames * share)
        if way == LATE:
            undelayed = name if UNDELAYED in task.ways else "pendulum_5"
            directory = _directory(base_dir, undelayed, UNDELAYED, seed)
            runner = make_runner(task.config, bindings, seed, frames, directory)
            scores = evaluated(runner, seed, partial(LateStart, frames=task.late))
        else:
            runner, seconds = trained(task.config, bindings, seed, frames, _directory(base_dir, name, way, seed))
            scores, steps = evaluated(runner, seed), runner.counts.frames
            curve = " ".join(f"{line['eval_average_return']:.1f}" for line in runner.history)
    row = row_of(name, way, seed, scores, steps, seconds, versions(*packages))
    append_row(base_dir / "scores.csv", {**row, "curve": curve})


def _directory(base_dir: Path, name: str, way: str, seed: int) -> Path:
    return base_dir / f"{name}_{way.replace(' ', '_')}_{seed}"


class LateStart(gym.Wrapper[Any, Any, Any, Any]):
    """Gives the environment zeros on an episode's first frames.

    Args:
        env: Its actions are a Box.
        frames: How many.
    """

    def __init__(self, env: gym.Env[Any, Any], frames: int) -> None:
        super().__init__(env)
        self._frames, self._left = frames, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        self._left = self._frames
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step by the action, or by zeros."""
        if self._left:
            self._left, action = self._left - 1, np.zeros_like(action)
        return self.env.step(action)


def _play_at_random(environment_id: str, seed: int) -> list[float]:
    """Return the scores of uniformly random actions, without delay."""
    environment = gym.make(environment_id)
    environment.action_space.seed(seed)
    return played(environment, lambda observation: environment.action_space.sample(), seed)


def share_of_constant(rows: Sequence[Row]) -> str:
    """Return what random latencies leave of the score under the constant delay, seed by seed, in words.

    Returns on Pendulum are negative, so a score is counted from a random player's: (score - random) / (constant -
    random), by the mean score of a random player over the seeds.
    """

    def of(task: str, way: str) -> dict[int, float]:
        return {row["seed"]: row["mean"] for row in rows if (row["task"], row["way"]) == (task, way)}

    tickets, constant, random = of("random", "effect"), of("pendulum_5", "effect"), of("random", RANDOM)
    both = sorted(set(tickets) & set(constant))
    if not both or not random:
        return "random latencies: trials are missing"
    zero = statistics.fmean(random.values())
    shares = [(tickets[seed] - zero) / (constant[seed] - zero) for seed in both]
    words = f"random latencies: {statistics.fmean(shares):.3f} of the score under the constant delay"
    if len(shares) > 1:
        low, high = interval_95(shares)
        words += f", 95 % interval {low:.3f} to {high:.3f} ({len(shares)} seeds)"
    return f"{words}; a random player's score is {zero:,.1f}."


_STYLES = {  # color, line
    "without delay": ("#000000", ":"),
    "told nothing": ("#D55E00", "--"),
    "window": ("#0072B2", "-."),
    "effect": ("#009E73", "-"),
}
_LABELS = {
    "told nothing": "told nothing",
    "window": "reads its last actions (window)",
    "effect": "window, critic at effect",
}
_TITLES = {
    "pendulum_5": "Pendulum\n5 frames (250 ms) late",
    "pendulum_10": "Pendulum\n10 frames (500 ms) late",
    "double_3": "InvertedDoublePendulum\n3 frames (150 ms) late",
}


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draw the learning curves of what was trained under delay: the mean over seeds as a line, each seed's thin."""
    from matplotlib.figure import Figure

    trained = {row["task"] for row in rows if row["way"] == "effect"}
    titles = {name: title for name, title in _TITLES.items() if name in trained}
    figure = Figure(figsize=(4.4 * len(titles), 3.9), layout="constrained")
    for axes, (name, title) in zip(figure.subplots(1, len(titles), squeeze=False)[0], titles.items(), strict=True):
        for way, (color, line) in _STYLES.items():
            of = "pendulum_5" if way == "without delay" and name == "pendulum_10" else name
            curves = [
                [float(value) for value in row["curve"].split()]
                for row in rows
                if (row["task"], row["way"]) == (of, way)
            ]
            if not curves:
                continue
            at = [TASKS[name].frames * (index + 1) / len(curves[0]) for index in range(len(curves[0]))]
            for curve in curves:
                axes.plot(at, curve, color=color, linewidth=0.6, alpha=0.35)
            means = [statistics.fmean(values) for values in zip(*curves, strict=True)]
            axes.plot(at, means, color=color, linestyle=line, linewidth=2, label=_LABELS.get(way, way))
        axes.set(title=title, xlabel="frames", ylabel="return")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:g}k")
        axes.spines[["top", "right"]].set_visible(False)
    lines, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(lines, labels, frameon=False, loc="outside lower center", ncols=4)
    figure.savefig(path, dpi=120)


def main() -> None:
    """Play what is missing, one trial after another, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base_dir", type=Path, required=True)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--ways", nargs="+", help="of each task; all if not given")
    parser.add_argument("--seeds", type=int, help="instead of the task's")
    parser.add_argument("--share", type=float, default=1.0, help="of the task's frames, for a short trial")
    parser.add_argument("--show", action="store_true", help="play nothing, print what is there")
    parser.add_argument("--draw", action="store_true", help="draw docs/results_continuous_delay.png")
    parser.add_argument("--trial", nargs=3, metavar=("TASK", "WAY", "SEED"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    base_dir: Path = arguments.base_dir.resolve()
    if arguments.trial is not None:
        name, way, seed = arguments.trial
        train(name, way, int(seed), arguments.share, base_dir)
        return
    began = time.monotonic()
    for name in () if arguments.show else arguments.tasks:
        task = TASKS[name]
        chosen = [way for way in task.ways if arguments.ways is None or way in arguments.ways]
        seeds = range(task.seeds if arguments.seeds is None else arguments.seeds)
        # All ways of a seed before the next: an interrupted run compares something too.
        trials = [(name, way, seed) for seed in seeds for way in chosen]
        run_missing("benchmarks.studies.delay_sac", trials, base_dir, ["--share", str(arguments.share)])
    rows = read_rows(base_dir / "scores.csv")
    for name in arguments.tasks:
        print("\n" + table(rows, name, tuple(TASKS[name].ways), TASKS[name].best))
    if "random" in arguments.tasks:
        print("\n" + share_of_constant(rows))
    if arguments.draw:
        draw(rows, DOCS / "results_continuous_delay.png")
    print(f"\n{(time.monotonic() - began) / 60:.0f} minutes")


if __name__ == "__main__":
    main()

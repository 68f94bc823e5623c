"""Scores of SAC and PPO beside Stable-Baselines3's, in one protocol.

    python -m benchmarks.studies.continuous_scores --base_dir DIR [--tasks sac_pendulum ppo_cartpole] [--sides ours sb3]
        [--seeds 5] [--share 0.1] [--show]

    sac_pendulum    SAC, Pendulum-v1, 20,000 steps, 5 seeds: ours >= -160
    ppo_cartpole    PPO, CartPole-v1, 100,000 steps, 5 seeds: ours 500
    ppo_hopper      PPO, Hopper-v5, 500,000 steps, 5 seeds: the paired difference includes 0, or ours is better
    sac_lunar       SAC, LunarLanderContinuous-v3, 100,000 steps, 3 seeds: no bar

A trial trains one side with one seed in a process of its own, with one thread. Its final weights, which stay in
DIR/TRIAL, play 20 episodes by their likeliest actions in a new environment, whose seeds are the same for both sides and
follow from the trial's seed. Scores are returns that are neither clipped nor normalised. A trial adds a row to
DIR/scores.csv; a trial whose row is there is not played again. CPU seconds are those of training.

Ours are the gin files of `TASKS`. Stable-Baselines3 has the defaults of its `SAC` and `PPO`: SAC with two layers of
256, batches of 256, a learning rate of 3e-4, learning after 100 random steps, a replay of 1,000,000, one update a step
and a learnt entropy weight; PPO with one environment, rounds of 2,048 steps, 10 epochs of minibatches of 64, a learning
rate of 3e-4, 64 x 64 tanh units and no entropy bonus. Its defaults normalise nothing, but on Hopper both sides
normalise observations and rewards (`VecNormalize` there, with its statistics frozen in the evaluation).
Stable-Baselines3's PPO ends with a whole round, so it plays up to 2,047 steps more.

Prints the rows, the mean over seeds, and the paired differences with 95 % intervals (Student's t).
"""

from __future__ import annotations

import argparse
import csv
import io
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.studies.realtime_memory import interval_95

EPISODES = 20  # of an evaluation
SIDES = ("ours", "sb3")
_ITERATIONS = 10  # of ours
_FIELDS = ("task", "way", "seed", "steps", "mean", "std", "cpu_seconds", "versions", "curve")

Row = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """One comparison.

    Attributes:
        algorithm: "sac" or "ppo".
        environment_id: Gymnasium's.
        config: Our gin file.
        steps: Of the environment, in training.
        seeds: Of each side.
        normalised: Whether Stable-Baselines3 normalises observations and rewards, as our file does.
        bindings: On top of our file.
    """

    algorithm: str
    environment_id: str
    config: str
    steps: int
    seeds: int = 5
    normalised: bool = False
    bindings: tuple[str, ...] = ()


TASKS: Mapping[str, Task] = {
    "sac_pendulum": Task("sac", "Pendulum-v1", "configs/sac/pendulum.gin", 20_000),
    "ppo_cartpole": Task("ppo", "CartPole-v1", "configs/ppo/cartpole.gin", 100_000),
    "ppo_hopper": Task("ppo", "Hopper-v5", "configs/ppo/hopper.gin", 500_000, normalised=True),
    "sac_lunar": Task("sac", "LunarLanderContinuous-v3", "configs/sac/lunar_lander.gin", 100_000, seeds=3),
}


def play_sb3(task: Task, seed: int, steps: int, directory: Path) -> tuple[list[float], int, float]:
    """Train Stable-Baselines3's agent; return the scores of its evaluation, its steps and its CPU seconds."""
    import gymnasium as gym
    from stable_baselines3 import PPO, SAC
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    before = time.process_time()
    environment: Any = make_vec_env(task.environment_id, seed=seed)
    if task.normalised:
        environment = VecNormalize(environment)
    model: Any = {"sac": SAC, "ppo": PPO}[task.algorithm]("MlpPolicy", environment, seed=seed, device="cpu")
    model.learn(steps)
    seconds = time.process_time() - before
    model.save(directory / "model.zip")
    if task.normalised:
        environment.save(directory / "normalisation.pkl")

    def act(observation: Any) -> Any:
        shown = environment.normalize_obs(observation) if task.normalised else observation
        return model.predict(shown, deterministic=True)[0]

    return played(gym.make(task.environment_id), act, seed), model.num_timesteps, seconds


def played(environment: Any, act: Callable[[Any], Any], seed: int) -> list[float]:
    """Return the scores of the episodes of an evaluation."""
    from async_wrappers.agents.play.play import Phase, environment_seed

    scores = []
    for number in range(EPISODES):
        observation, _ = environment.reset(seed=environment_seed(seed, Phase.FINAL, number))
        score, over = 0.0, False
        while not over:
            observation, reward, terminated, truncated, _ = environment.step(act(observation))
            score, over = score + float(reward), terminated or truncated
        scores.append(score)
    return scores


def play_ours(task: Task, seed: int, steps: int, directory: Path) -> tuple[list[float], int, float]:
    """Train our agent; return the scores of its evaluation, its steps and its CPU seconds."""
    bindings = (
        "Runner.evaluation_steps = 0",
        "Runner.evaluation_episodes = None",
        *task.bindings,
    )
    runner, seconds = trained(task.config, bindings, seed, steps, directory)
    return evaluated(runner, seed), runner.counts.frames, seconds


def make_runner(config: str, bindings: Sequence[str], seed: int, steps: int, directory: Path) -> Any:
    """Return the runner of a gin file.

    Args:
        config: The gin file.
        bindings: On top of it.
        seed: Of the run.
        steps: Of training, in `_ITERATIONS` equal parts.
        directory: The run's.
    """
    import gin

    import async_wrappers.agents.play.live
    import async_wrappers.configurables  # noqa: F401 - the gin names
    from async_wrappers.agents.registry import create_runner

    of_run = (
        f"Runner.num_iterations = {_ITERATIONS}",
        f"Runner.training_steps = {steps // _ITERATIONS}",
        "Runner.training_episodes = None",
        "Runner.report_episodes = 0",
        f"Runner.seed = {seed}",
    )
    gin.parse_config_files_and_bindings([config], [*of_run, *bindings], print_includes_and_imports=False)
    return create_runner(directory)


def trained(config: str, bindings: Sequence[str], seed: int, steps: int, directory: Path) -> tuple[Any, float]:
    """Train what a gin file says; return the runner and the CPU seconds of training; see `make_runner`."""
    shutil.rmtree(directory, ignore_errors=True)  # of a trial that was interrupted
    before = time.process_time()
    runner = make_runner(config, bindings, seed, steps, directory)
    runner.run_experiment()
    return runner, time.process_time() - before


def evaluated(runner: Any, seed: int, wrapper: Callable[[Any], Any] = lambda environment: environment) -> list[float]:
    """Return the scores of a runner's final weights, in a new environment.

    Args:
        runner: It has trained.
        seed: Of the episodes.
        wrapper: Wraps the environment.
    """
    from async_wrappers.agents.experiment.evaluate import evaluate

    environment = wrapper(runner.settings.create_environment_fn())
    return [episode.score for episode in evaluate(runner.trained_agent(), environment, EPISODES, seed)]


def versions(*packages: str) -> str:
    """Return the versions of Python, of this project's commit and of packages, in words."""
    asked = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    own = asked.stdout.strip() or version("async_wrappers")
    parts = [f"python {platform.python_version()}", f"async_wrappers {own}"]
    return "; ".join(parts + [f"{package} {version(package)}" for package in packages])


def append_row(path: Path, row: Row) -> None:
    """Add a row to a table of results, and the header if it is the first.

    A row is written by one call, so that two processes can add to one table.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    text = io.StringIO()
    writer = csv.DictWriter(text, _FIELDS, restval="", lineterminator="\n")
    with open(path, "ab", buffering=0) as file:
        if file.tell() == 0:
            writer.writeheader()
        writer.writerow(row)
        file.write(text.getvalue().encode())


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a table of results; none if there is no table."""
    if not path.is_file():
        return []
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    numbers = {"seed": int, "steps": int, "mean": float, "std": float, "cpu_seconds": float}
    return [{**row, **{name: kind(row[name]) for name, kind in numbers.items()}} for row in rows]


def find(rows: Sequence[Row], task: str, way: str, seed: int) -> Row | None:
    """Return a trial's row; None if it has not been played."""
    return next((row for row in rows if (row["task"], row["way"], row["seed"]) == (task, way, seed)), None)


def row_of(task: str, way: str, seed: int, scores: Sequence[float], steps: int, seconds: float, of: str) -> Row:
    """Return a trial's row; its standard deviation is that of the episodes."""
    of_scores = {"mean": round(statistics.fmean(scores), 3), "std": round(statistics.stdev(scores), 3)}
    own = {"task": task, "way": way, "seed": seed, "steps": steps}
    return {**own, **of_scores, "cpu_seconds": round(seconds, 1), "versions": of}


def run_missing(module: str, trials: Sequence[tuple[str, str, int]], base_dir: Path, more: Sequence[str]) -> None:
    """Play the trials that are missing, one after another, each in a process of its own.

    A trial that fails is named, and the others are played.
    """
    path = base_dir / "scores.csv"
    for task, way, seed in trials:
        if find(read_rows(path), task, way, seed) is None:
            command = [sys.executable, "-m", module, "--base_dir", str(base_dir), *more]
            one_thread = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
            ended = subprocess.run(
                [*command, "--trial", task, way, str(seed)], stdout=subprocess.DEVNULL, env=one_thread, check=False
            )
            if ended.returncode:
                print(f"{task}, {way}, seed {seed}: failed with status {ended.returncode}", flush=True)
                continue
        if row := find(read_rows(path), task, way, seed):
            print(f"{task}, {way}, seed {seed}: {row['mean']:.1f} after {row['cpu_seconds']:.0f} CPU s", flush=True)


def table(rows: Sequence[Row], task: str, ways: Sequence[str], against: str) -> str:
    """Return a task's scores, and the paired differences of a way from the others, as tables in Markdown."""
    of_way = {way: {row["seed"]: row for row in rows if (row["task"], row["way"]) == (task, way)} for way in ways}
    seeds = sorted({seed for trials in of_way.values() for seed in trials})
    lines = [f"| {task} | {' | '.join(f'seed {seed}' for seed in seeds)} | mean | steps | CPU seconds |"]
    lines.append("|" + "---|" * (len(seeds) + 4))
    for way, trials in of_way.items():
        if trials:
            cells = [f"{trials[seed]['mean']:,.1f}" if seed in trials else "" for seed in seeds]
            mean = statistics.fmean(row["mean"] for row in trials.values())
            steps, seconds = (_span([row[name] for row in trials.values()]) for name in ("steps", "cpu_seconds"))
            lines.append(f"| {way} | {' | '.join(cells)} | {mean:,.1f} | {steps} | {seconds} |")
    for way, trials in of_way.items():
        both = sorted(set(trials) & set(of_way[against]))
        if way != against and len(both) > 1:
            differences = [of_way[against][seed]["mean"] - trials[seed]["mean"] for seed in both]
            low, high = interval_95(differences)
            mean = statistics.fmean(differences)
            lines += [
                "",
                f"{against} less {way}: {mean:,.1f}, 95 % interval {low:,.1f} to {high:,.1f} ({len(both)} seeds).",
            ]
    return "\n".join(lines)


def _span(values: Sequence[float]) -> str:
    low, high = f"{min(values):,.0f}", f"{max(values):,.0f}"
    return low if low == high else f"{low} to {high}"


def main() -> None:
    """Play what is missing, one trial after another, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base_dir", type=Path, required=True)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--seeds", type=int, help="instead of the task's")
    parser.add_argument("--share", type=float, default=1.0, help="of the task's steps, for a short trial")
    parser.add_argument("--show", action="store_true", help="play nothing, print what is there")
    parser.add_argument("--trial", nargs=3, metavar=("TASK", "SIDE", "SEED"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    base_dir: Path = arguments.base_dir.resolve()
    if arguments.trial is not None:
        name, side, seed = arguments.trial[0], arguments.trial[1], int(arguments.trial[2])
        _play(name, side, seed, arguments.share, base_dir)
        return
    if not arguments.show:
        for name in arguments.tasks:
            seeds = range(TASKS[name].seeds if arguments.seeds is None else arguments.seeds)
            trials = [(name, side, seed) for seed in seeds for side in arguments.sides]
            run_missing("benchmarks.studies.continuous_scores", trials, base_dir, ["--share", str(arguments.share)])
    for name in arguments.tasks:
        print("\n" + table(read_rows(base_dir / "scores.csv"), name, SIDES, "ours"))


def _play(name: str, side: str, seed: int, share: float, base_dir: Path) -> None:
    """Play one trial and add its row."""
    import torch

    torch.set_num_threads(1)
    task, directory = TASKS[name], base_dir / f"{name}_{side}_{seed}"
    directory.mkdir(parents=True, exist_ok=True)
    play = play_sb3 if side == "sb3" else play_ours
    scores, steps, seconds = play(task, seed, round(task.steps * share), directory)
    packages = ("torch", "gymnasium", *(["stable_baselines3"] if side == "sb3" else []))
    if task.environment_id.startswith("Hopper"):
        packages = (*packages, "mujoco")
    append_row(base_dir / "scores.csv", row_of(name, side, seed, scores, steps, seconds, versions(*packages)))


if __name__ == "__main__":
    main()

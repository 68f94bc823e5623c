"""Scores of SAC and PPO: beside Stable-Baselines3's, under delay, and on chunks.

    python -m benchmarks.studies.continuous --base_dir DIR [--tasks sac_pendulum pendulum_5] [--ways ours effect]
        [--seeds 5] [--share 0.1] [--show] [--draw]

Beside Stable-Baselines3, in one protocol (*ours*, *sb3*):

    sac_pendulum   SAC, Pendulum-v1, 20,000 steps, 5 seeds: ours >= -160
    ppo_cartpole   PPO, CartPole-v1, 100,000 steps, 5 seeds: ours 500
    ppo_hopper     PPO, Hopper-v5, 500,000 steps, 5 seeds: the paired difference includes 0, or ours is better
    sac_lunar      SAC, LunarLanderContinuous-v3, 100,000 steps, 3 seeds: no bar

Under delay; actions are computed on every frame and land so many frames later:

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

A trial trains one way with one seed in a process of its own, with one thread. Its final weights, which stay in
DIR/TRIAL, play 20 episodes by their likeliest actions in a new environment under the same delay, whose seeds are the
same for all ways and follow from the trial's seed. Scores are returns that are neither clipped nor normalised. A trial
adds a row to DIR/scores.csv, and is not played again. CPU seconds are those of training.

Stable-Baselines3 has the defaults of its `SAC` and `PPO`: SAC with two layers of 256, batches of 256, a learning rate
of 3e-4, learning after 100 random steps, a replay of 1,000,000, one update a step and a learnt entropy weight; PPO with
one environment, rounds of 2,048 steps, 10 epochs of minibatches of 64, a learning rate of 3e-4, 64 x 64 tanh units and
no entropy bonus. Its defaults normalise nothing, but on Hopper both sides normalise observations and rewards
(`VecNormalize` there, with its statistics frozen in the evaluation). Its PPO ends with a whole round, so it plays up to
2,047 steps more.

Prints the rows and paired differences with 95 % intervals (Student's t); `--draw` draws
docs/results_continuous_delay.png from the rows.
"""

from __future__ import annotations

import argparse
import csv
import io
import platform
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from benchmarks.measuring import parser_of
from benchmarks.studies.trials import DOCS, Facts, interval_95, load, play, table

EPISODES = 20  # of an evaluation
OURS, SB3 = "ours", "sb3"
UNDELAYED, LATE, RANDOM = "without delay", "late start", "random player"
_ITERATIONS = 10  # of ours
_FIELDS = ("task", "way", "seed", "steps", "mean", "std", "cpu_seconds", "versions", "curve")
_NUMBERS = {"seed": int, "steps": int, "mean": float, "std": float, "cpu_seconds": float}

_SAC = (
    "SACAgent.num_layers = 2",
    "SACAgent.hidden_units = 64",
    "SACAgent.batch_size = 128",
    "SACAgent.min_replay_history = 1_200",
    "SACAgent.random_frames = 1_200",
    "create_adam.learning_rate = 1e-3",
)
_DELAYED = (*_SAC, "Runner.max_steps_per_episode = None", "Runner.evaluation_episodes = 5")
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
    """Ways to play that are compared.

    Attributes:
        config: Our gin file.
        environment_id: Gymnasium's, in the place of the file's.
        frames: Of training.
        ways: By name, the bindings on top of the file.
        best: The way from which the others' differences are taken.
        seeds: Of each way.
        bindings: Of all ways of ours.
        late: Frames of the late start.
        normalised: Whether Stable-Baselines3 normalises observations and rewards, as our file does.
    """

    config: str
    environment_id: str
    frames: int
    ways: Mapping[str, tuple[str, ...]]
    best: str = "effect"
    seeds: int = 5
    bindings: tuple[str, ...] = _DELAYED
    late: int = 0
    normalised: bool = False


def _peers(name: str, environment_id: str, steps: int, **arguments: Any) -> Task:
    """Return ours beside Stable-Baselines3's."""
    nothing = "Runner.evaluation_steps = 0", "Runner.evaluation_episodes = None"
    ways: dict[str, tuple[str, ...]] = {OURS: (), SB3: ()}
    return Task(f"configs/{name}.gin", environment_id, steps, ways, OURS, bindings=nothing, **arguments)


def _under(delay: int) -> dict[str, tuple[str, ...]]:
    """Return the three ways to play under a delay of so many frames."""
    at = _delay(delay)
    return {"told nothing": at, "window": (*at, _window(delay)), "effect": (*at, _window(delay), _AT_EFFECT)}


def _chunks(environment_id: str) -> Task:
    """Return one decision per 9 frames by PPO: its action repeated, or a chunk of 11, and less noise at first."""
    ways = {way: (f"RealtimeDelay.default_action = '{way}'",) for way in ("repeat", "chunk")}
    less = {
        f"{way}, a {part}": (*bindings, f"create_policy_value_network.log_std_init = {log_std}")
        for way, bindings in ways.items()
        for part, log_std in (("third", -1.1), ("tenth", -2.3))
    }
    bindings = (
        *_DELAYED[len(_SAC) :],
        "create_runner.schedule = 'vector'",
        "VectorRunner.num_envs = 16",
        "RealtimeDelay.delay = 2",
        "RealtimeDelay.noops = 8",
        "PPOAgent.gamma = 0.99",
        "PPOAgent.learning_rate_decay = None",
    )
    best = "chunk, a tenth"
    return Task("configs/ppo/pendulum.gin", environment_id, 1_000_000, ways | less, best, bindings=bindings)


_FILE, _PENDULUM, _DOUBLE = "configs/sac/pendulum.gin", "Pendulum-v1", "InvertedDoublePendulum-v5"
_BOUNDS = {UNDELAYED: _delay(0), LATE: _delay(0)}
TASKS: Mapping[str, Task] = {
    "sac_pendulum": _peers("sac/pendulum", _PENDULUM, 20_000),
    "ppo_cartpole": _peers("ppo/cartpole", "CartPole-v1", 100_000),
    "ppo_hopper": _peers("ppo/hopper", "Hopper-v5", 500_000, normalised=True),
    "sac_lunar": _peers("sac/lunar_lander", "LunarLanderContinuous-v3", 100_000, seeds=3),
    "pendulum_5": Task(_FILE, _PENDULUM, 12_000, {**_BOUNDS, **_under(5)}, late=5),
    "pendulum_10": Task(_FILE, _PENDULUM, 12_000, {LATE: _delay(0), **_under(10)}, late=10),
    "double_3": Task(_FILE, _DOUBLE, 20_000, {**_BOUNDS, **_under(3)}, seeds=3, late=3),
    "random": Task(_FILE, _PENDULUM, 12_000, {RANDOM: (), "effect": (*_LATENCY, _window(5), _AT_EFFECT)}),
    "chunks": _chunks("InvertedPendulum-v5"),
    "chunks_double": _chunks(_DOUBLE),
}


# A trial.


def train(name: str, way: str, seed: int, share: float, base_dir: Path) -> None:
    """Play one trial and add its row, with the means of the evaluations during training as its curve."""
    import torch

    torch.set_num_threads(1)
    task, directory = TASKS[name], _directory(base_dir, name, way, seed)
    frames, steps, seconds, curve = round(task.frames * share), 0, 0.0, ""
    if way == RANDOM:
        environment = gym.make(task.environment_id)
        environment.action_space.seed(seed)
        scores = played(environment, lambda observation: environment.action_space.sample(), seed)
    elif way == SB3:
        scores, steps, seconds = play_sb3(task, seed, frames, directory)
    elif way == LATE:
        undelayed = _directory(base_dir, name if UNDELAYED in task.ways else "pendulum_5", UNDELAYED, seed)
        scores = evaluated(make_runner(task, way, seed, frames, undelayed), seed, partial(LateStart, frames=task.late))
    else:
        shutil.rmtree(directory, ignore_errors=True)  # of a trial that was interrupted
        before = time.process_time()
        runner = make_runner(task, way, seed, frames, directory)
        runner.run_experiment()
        seconds = time.process_time() - before
        scores, steps = evaluated(runner, seed), runner.counts.frames
        curve = " ".join(f"{line['eval_average_return']:.1f}" for line in runner.history if way != OURS)
    mujoco = () if task.environment_id == _PENDULUM or (OURS in task.ways and not task.normalised) else ("mujoco",)
    of = versions("torch", "gymnasium", *(["stable_baselines3"] if way == SB3 else []), *mujoco)
    append_row(base_dir / "scores.csv", {**row_of(name, way, seed, scores, steps, seconds, of), "curve": curve})


def _directory(base_dir: Path, name: str, way: str, seed: int) -> Path:
    return base_dir / f"{name}_{way.replace(' ', '_')}_{seed}"


def make_runner(task: Task, way: str, seed: int, frames: int, directory: Path) -> Any:
    """Return the runner of one of our ways, which trains so many frames in `_ITERATIONS` equal parts."""
    from async_wrappers.agents.registry import create_runner

    of_run = (
        f"Runner.num_iterations = {_ITERATIONS}",
        f"Runner.training_steps = {frames // _ITERATIONS}",
        "Runner.training_episodes = None",
        "Runner.report_episodes = 0",
        f"Runner.seed = {seed}",
        f"create_gym_environment.environment_id = '{task.environment_id}'",
    )
    load(task.config, [*of_run, *task.bindings, *task.ways[way]])
    return create_runner(directory)


def evaluated(runner: Any, seed: int, wrapper: Callable[[Any], Any] = lambda environment: environment) -> list[float]:
    """Return the scores of a runner's final weights, in a new environment, which is wrapped."""
    from async_wrappers.agents.experiment.evaluate import evaluate

    environment = wrapper(runner.settings.create_environment_fn())
    return [episode.score for episode in evaluate(runner.trained_agent(), environment, EPISODES, seed)]


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


def play_sb3(task: Task, seed: int, steps: int, directory: Path) -> tuple[list[float], int, float]:
    """Train Stable-Baselines3's agent; return the scores of its evaluation, its steps and its CPU seconds."""
    from stable_baselines3 import PPO, SAC
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    directory.mkdir(parents=True, exist_ok=True)
    before = time.process_time()
    environment: Any = make_vec_env(task.environment_id, seed=seed)
    if task.normalised:
        environment = VecNormalize(environment)
    kind: Any = SAC if "/sac/" in task.config else PPO
    model: Any = kind("MlpPolicy", environment, seed=seed, device="cpu")
    model.learn(steps)
    seconds = time.process_time() - before
    model.save(directory / "model.zip")
    if task.normalised:
        environment.save(directory / "normalisation.pkl")

    def act(observation: Any) -> Any:
        shown = environment.normalize_obs(observation) if task.normalised else observation
        return model.predict(shown, deterministic=True)[0]

    return played(gym.make(task.environment_id), act, seed), model.num_timesteps, seconds


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


# Rows.


def versions(*packages: str) -> str:
    """Return the versions of Python, of this project's commit and of packages, in words."""
    asked = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    own = asked.stdout.strip() or version("async_wrappers")
    parts = [f"python {platform.python_version()}", f"async_wrappers {own}"]
    return "; ".join(parts + [f"{package} {version(package)}" for package in packages])


def append_row(path: Path, row: Facts) -> None:
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


def read_rows(path: Path) -> list[Facts]:
    """Return the rows of a table of results; none if there is no table."""
    if not path.is_file():
        return []
    with open(path, newline="") as file:
        return [{**row, **{name: kind(row[name]) for name, kind in _NUMBERS.items()}} for row in csv.DictReader(file)]


def row_of(task: str, way: str, seed: int, scores: Sequence[float], steps: int, seconds: float, of: str) -> Facts:
    """Return a trial's row; its standard deviation is that of the episodes."""
    of_scores = {"mean": round(statistics.fmean(scores), 3), "std": round(statistics.stdev(scores), 3)}
    own = {"task": task, "way": way, "seed": seed, "steps": steps}
    return {**own, **of_scores, "cpu_seconds": round(seconds, 1), "versions": of}


def of_ways(rows: Sequence[Facts], task: str, ways: Sequence[str]) -> dict[str, dict[int, Facts]]:
    """Return a task's rows by way and seed."""
    return {way: {row["seed"]: row for row in rows if (row["task"], row["way"]) == (task, way)} for way in ways}


def run_missing(trials: Sequence[tuple[str, str, int]], base_dir: Path, more: Sequence[str]) -> None:
    """Play the trials that are missing, one after another."""
    for task, way, seed in trials:

        def found(task: str = task, way: str = way, seed: int = seed) -> Facts | None:
            return of_ways(read_rows(base_dir / "scores.csv"), task, [way])[way].get(seed)

        if found() is None:
            play("benchmarks.studies.continuous", (task, way, str(seed)), base_dir, more)
        if row := found():
            print(f"{task}, {way}, seed {seed}: {row['mean']:.1f} after {row['cpu_seconds']:.0f} CPU s", flush=True)


def share_of_constant(rows: Sequence[Facts]) -> str:
    """Return what random latencies leave of the score under the constant delay, seed by seed, in words.

    Returns on Pendulum are negative, so a score is counted from a random player's: (score - random) / (constant -
    random), by the mean score of a random player over the seeds.
    """
    tickets, random = of_ways(rows, "random", ("effect", RANDOM)).values()
    constant = of_ways(rows, "pendulum_5", ["effect"])["effect"]
    both = sorted(set(tickets) & set(constant))
    if not both or not random:
        return "random latencies: trials are missing"
    zero = statistics.fmean(row["mean"] for row in random.values())
    shares = [(tickets[seed]["mean"] - zero) / (constant[seed]["mean"] - zero) for seed in both]
    words = f"random latencies: {statistics.fmean(shares):.3f} of the score under the constant delay"
    if len(shares) > 1:
        low, high = interval_95(shares)
        words += f", 95 % interval {low:.3f} to {high:.3f} ({len(shares)} seeds)"
    return f"{words}; a random player's score is {zero:,.1f}."


_STYLES = {  # color, line, label
    UNDELAYED: ("#000000", ":", UNDELAYED),
    "told nothing": ("#D55E00", "--", "told nothing"),
    "window": ("#0072B2", "-.", "reads its last actions (window)"),
    "effect": ("#009E73", "-", "window, critic at effect"),
}
_TITLES = {
    "pendulum_5": "Pendulum\n5 frames (250 ms) late",
    "pendulum_10": "Pendulum\n10 frames (500 ms) late",
    "double_3": "InvertedDoublePendulum\n3 frames (150 ms) late",
}


def draw(rows: Sequence[Facts], path: Path) -> None:
    """Draw the learning curves of what was trained under delay: the mean over seeds as a line, each seed's thin."""
    from matplotlib.figure import Figure

    trained = {row["task"] for row in rows if row["way"] == "effect"}
    titles = {name: title for name, title in _TITLES.items() if name in trained}
    figure = Figure(figsize=(4.4 * len(titles), 3.9), layout="constrained")
    for axes, (name, title) in zip(figure.subplots(1, len(titles), squeeze=False)[0], titles.items(), strict=True):
        for way, (color, line, label) in _STYLES.items():
            of = "pendulum_5" if way == UNDELAYED and name == "pendulum_10" else name
            found = of_ways(rows, of, [way])[way].values()
            if not found:
                continue
            curves = [[float(value) for value in row["curve"].split()] for row in found]
            at = [TASKS[name].frames * (index + 1) / len(curves[0]) for index in range(len(curves[0]))]
            for curve in curves:
                axes.plot(at, curve, color=color, linewidth=0.6, alpha=0.35)
            means = [statistics.fmean(values) for values in zip(*curves, strict=True)]
            axes.plot(at, means, color=color, linestyle=line, linewidth=2, label=label)
        axes.set(title=title, xlabel="frames", ylabel="return")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:g}k")
        axes.spines[["top", "right"]].set_visible(False)
    lines, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(lines, labels, frameon=False, loc="outside lower center", ncols=4)
    figure.savefig(path, dpi=120)


def main() -> None:
    """Play what is missing, one trial after another, and print the tables."""
    parser = parser_of(
        __doc__,
        seeds=(int, "instead of the task's"),
        share=(1.0, "of the task's frames, for a short trial"),
        show=(False, "play nothing, print what is there"),
        draw=(False, "draw docs/results_continuous_delay.png"),
    )
    parser.add_argument("--base_dir", type=Path, required=True)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--ways", nargs="+", help="of each task; all if not given")
    parser.add_argument("--trial", nargs=3, metavar=("TASK", "WAY", "SEED"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    base_dir: Path = args.base_dir.resolve()
    if args.trial is not None:
        name, way, seed = args.trial
        train(name, way, int(seed), args.share, base_dir)
        return
    for name in () if args.show else args.tasks:
        chosen = [way for way in TASKS[name].ways if args.ways is None or way in args.ways]
        seeds = range(TASKS[name].seeds if args.seeds is None else args.seeds)
        trials = [(name, way, seed) for seed in seeds for way in chosen]
        run_missing(trials, base_dir, ["--share", str(args.share)])
    rows = read_rows(base_dir / "scores.csv")
    for name in args.tasks:
        best, ways = TASKS[name].best, TASKS[name].ways
        print("\n" + table(name, of_ways(rows, name, list(ways)), [(best, way) for way in ways]))
    if "random" in args.tasks:
        print("\n" + share_of_constant(rows))
    if args.draw:
        draw(rows, DOCS / "results_continuous_delay.png")


if __name__ == "__main__":
    main()

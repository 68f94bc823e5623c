"""What a teacher is worth: the methods of reincarnation side by side, and the two labels under delay.

    python -m benchmarks.reincarnation --base_dir DIR [--only methods delay_5 delays main_job] [--seeds 5] [--draw]

Each run is train.py's, with a shipped file and the bindings that its table names, in a directory of its own below DIR;
a run that is finished is not played again, and one that was cut off goes on. Lengths are frames and updates, so a
slower machine gives the same numbers. Scores: final weights, 100 greedy episodes.

    methods   DQN, and seven ways to learn from the best DQN of seeds 0 to 2 in a fifth of its frames: CartPole, Acrobot
    delay_5   CartPole with a delay of 5 frames: the label at the effect, at the start, and no teacher
    delays    the same under delays of 0 to 8 frames: configs/sweeps/reincarnation_cartpole.gin
    main_job  the game of configs/default.gin: a student with another network than its teacher's, seconds of play

Prints the tables; `--draw` draws docs/results_reincarnation.png and docs/results_label_at.png besides. `--show` plays
nothing and prints what is finished.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from async_wrappers.agents.experiment.evaluate import bootstrap_interval, interquartile_mean
from async_wrappers.agents.experiment.metrics import read_iterations

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"

ENVIRONMENTS: Mapping[str, tuple[str, tuple[str, ...]]] = {  # DQN's file, and what a student's file lacks
    "cartpole": ("configs/dqn/cartpole.gin", ()),
    "acrobot": (
        "configs/dqn/acrobot.gin",
        ("create_gym_environment.environment_id = 'Acrobot-v1'", "RealtimeDelay.default_action = 1"),
    ),
}
SMALL = "MLPTorso.hidden = (128, 128)"  # for teacher and students alike, so that five seeds take an hour
SCRATCH = ("Runner.num_iterations = 20", "Runner.training_steps = 2_500")  # as many frames, looked at as often
METHODS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "QDagger": ("qdagger_dqn_cartpole.gin", ()),
    "kickstarting": ("kickstarting_dqn_cartpole.gin", ()),
    "DQfD": ("dqfd_dqn_cartpole.gin", ()),
    "pretrained": ("pretrained_dqn_cartpole.gin", ()),
    "rehearsal": ("pretrained_dqn_cartpole.gin", ("PretrainedDQNAgent.teacher_data_ratio = 0.5",)),
    "reloaded": ("reloaded_dqn_cartpole.gin", ()),
    "JSRL": ("jsrl_dqn_cartpole.gin", ()),
}
FROM_SCRATCH = "DQN"
ARMS: Mapping[str, tuple[str, ...]] = {
    "label at effect": ("RunnerWithTeacher.label_at = 'effect'",),
    "label at start": ("RunnerWithTeacher.label_at = 'start'",),
    "no teacher": ("create_agent.agent_name = 'dqn'", "create_runner.schedule = 'continuous_train_and_eval'"),
}


class Finished(NamedTuple):
    """A finished run: its evaluation phases, and the mean return of its closing table."""

    frames: list[int]
    returns: list[float]
    trained: float
    random: float


def read(directory: Path) -> Finished | None:
    """Return what a run measured, or None if it is not finished."""
    report = directory / "report.json"
    if not report.is_file():
        return None
    rows = {row["agent"]: row["mean"] for row in json.loads(report.read_text())}
    lines = [line for line in read_iterations(directory) if "eval_average_return" in line]
    frames = [line["frames"] for line in lines]
    return Finished(frames, [line["eval_average_return"] for line in lines], rows["trained"], rows["random"])


class Runs:
    """Plays runs of train.py below a directory, one after another, and keeps what is finished.

    Args:
        base_dir: The directory.
        show: Play nothing.
    """

    def __init__(self, base_dir: Path, show: bool) -> None:
        """See the class."""
        self.base_dir, self.show = base_dir.resolve(), show

    def play(self, name: str, gin_file: str, bindings: Sequence[str], seed: int) -> Finished | None:
        """Return a run, which is played first if need be."""
        directory = self.base_dir / name / str(seed)
        if (finished := read(directory)) is not None or self.show:
            return finished
        words = ["--gin_files", gin_file, "--seed", str(seed), "--base_dir", str(directory), "--allow_unread"]
        for binding in bindings:
            words += ["--gin_bindings", binding]
        begin = time.perf_counter()
        self.train(words)
        finished = read(directory)
        assert finished is not None
        seconds = time.perf_counter() - begin
        print(f"{name}, seed {seed}: {finished.trained:.1f} after {seconds:.0f} s", flush=True)
        return finished

    def train(self, words: Sequence[str]) -> None:
        """Run train.py with these words, on one thread, without its output."""
        if not self.show:
            path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
            environment = {**os.environ, "PYTHONPATH": path}
            command = [sys.executable, str(ROOT / "train.py"), *words]
            subprocess.run(command, check=True, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)


# The methods.


def play_methods(runs: Runs, environment: str, seeds: int) -> dict[str, dict[int, Finished]]:
    """Play DQN and the students of the seed of it that ended best."""
    gin_file, own = ENVIRONMENTS[environment]
    found: dict[str, dict[int, Finished]] = {FROM_SCRATCH: {}}
    for seed in range(seeds):
        run = runs.play(f"methods/{environment}/{FROM_SCRATCH}", gin_file, [SMALL, *SCRATCH], seed)
        if run is not None:
            found[FROM_SCRATCH][seed] = run
    if len(found[FROM_SCRATCH]) < seeds:
        return found
    teacher = teacher_of(found)
    path = runs.base_dir / "methods" / environment / FROM_SCRATCH / str(teacher)
    named = f"RunnerWithTeacher.teacher_checkpoint_dir = '{path}'"
    for seed in range(seeds):
        for method, (students, bindings) in METHODS.items():
            words = [SMALL, *own, *bindings, named]
            run = runs.play(f"methods/{environment}/{method}", f"configs/reincarnation/{students}", words, seed)
            if run is not None:
                found.setdefault(method, {})[seed] = run
    return found


def teacher_of(found: Mapping[str, Mapping[int, Finished]]) -> int:
    """Return which of DQN's first three seeds ended best, the first of equals: it teaches, however many are played."""
    scratch = found[FROM_SCRATCH]
    return max((seed for seed in scratch if seed < 3), key=lambda seed: scratch[seed].trained)


def print_methods(environment: str, found: Mapping[str, Mapping[int, Finished]]) -> None:
    """Print the table of an environment, in Markdown."""
    if FROM_SCRATCH not in found or not found[FROM_SCRATCH]:
        return
    number = teacher_of(found)
    teacher = found[FROM_SCRATCH][number]
    print(
        f"\n{environment}: the teacher is DQN's seed {number}, {teacher.trained:.1f}; random play {teacher.random:.1f}\n"
    )
    seeds = sorted({seed for of in found.values() for seed in of})
    heads = ["method", "frames", *(f"seed {seed}" for seed in seeds), "median", "IQM", "95 %", "normalised median"]
    print(_row(heads), _row(["---"] * len(heads)), sep="\n")
    for method, of in found.items():
        scores = [run.trained for run in of.values()]
        low, high = bootstrap_interval(scores, interquartile_mean)
        median = statistics.median(scores)
        normalised = (median - teacher.random) / (teacher.trained - teacher.random)
        each = [f"{of[seed].trained:.1f}" if seed in of else "" for seed in seeds]
        frames = f"{statistics.fmean(run.frames[-1] for run in of.values()):,.0f}"
        middle = f"{interquartile_mean(scores):.1f}"
        print(_row([method, frames, *each, f"{median:.1f}", middle, f"[{low:.1f}, {high:.1f}]", f"{normalised:.2f}"]))


def draw_methods(found: Mapping[str, Mapping[str, Mapping[int, Finished]]]) -> None:
    """Draw docs/results_reincarnation.png: the evaluation phases of each method against the frames it played."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 5.2), layout="constrained")
    titles = {"cartpole": "CartPole-v1", "acrobot": "Acrobot-v1"}
    for axes, (environment, methods) in zip(np.ravel(figure.subplots(1, len(found))), found.items(), strict=True):
        for (method, of), look in zip(methods.items(), cycle(_looks()), strict=False):
            returns = np.array([run.returns for run in of.values()])
            frames = np.mean([run.frames for run in of.values()], axis=0)
            middles = [interquartile_mean(column) for column in returns.T]
            lows, highs = zip(*(bootstrap_interval(list(c), interquartile_mean) for c in returns.T), strict=True)
            axes.plot(frames, middles, label=method, markersize=4, **look)
            axes.fill_between(frames, lows, highs, color=look["color"], alpha=0.1, linewidth=0)
        number = teacher_of(methods)
        axes.axhline(
            methods[FROM_SCRATCH][number].trained, color="0.25", linestyle=(0, (6, 2)), linewidth=1.2, label="teacher"
        )
        axes.axhline(
            methods[FROM_SCRATCH][number].random, color="0.25", linestyle=(0, (1, 1.5)), linewidth=1.2, label="random"
        )
        seeds = max(len(of) for of in methods.values())
        axes.set(title=f"{titles[environment]}, {seeds} seeds", xlabel="frames that the agent played", ylabel="return")
        axes.set_xscale("symlog", linthresh=2_500, linscale=0.6)
        axes.set_xticks([0, 2_500, 5_000, 10_000, 25_000, 50_000], ["0", "2.5 k", "5 k", "10 k", "25 k", "50 k"])
        axes.set_xticks([], minor=True)
        axes.spines[["top", "right"]].set_visible(False)
    lines, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(lines, labels, frameon=False, loc="outside lower center", ncols=5)
    figure.suptitle("IQM of the evaluation phases, bands: 95 % bootstrap interval", fontsize="small", color="0.3")
    figure.savefig(DOCS / "results_reincarnation.png", dpi=130)


# The labels under delay.


def play_delay_5(runs: Runs, seeds: int) -> dict[str, dict[int, Finished]]:
    """Play the three arms under a delay of 5 frames."""
    found: dict[str, dict[int, Finished]] = {}
    file = "configs/reincarnation/delayed_cartpole.gin"
    for arm, bindings in ARMS.items():
        for seed in range(seeds):
            words = [*([] if arm == "no teacher" else _teacher(runs)), *bindings]
            if (run := runs.play(f"delay_5/{arm.replace(' ', '_')}", file, words, seed)) is not None:
                found.setdefault(arm, {})[seed] = run
    return found


def print_delay_5(found: Mapping[str, Mapping[int, Finished]]) -> None:
    """Print the table of delay 5, and the paired differences."""
    if not found:
        return
    seeds = sorted({seed for of in found.values() for seed in of})
    heads = ["delay 5", *(f"seed {seed}" for seed in seeds), "median", "mean", "95 %"]
    print(f"\n{_row(heads)}\n{_row(['---'] * len(heads))}")
    for arm, of in found.items():
        scores = [run.trained for run in of.values()]
        each = [f"{of[seed].trained:.1f}" if seed in of else "" for seed in seeds]
        low, high = bootstrap_interval(scores)
        middle = [f"{statistics.median(scores):.1f}", f"{statistics.fmean(scores):.1f}"]
        print(_row([arm, *each, *middle, f"[{low:.1f}, {high:.1f}]"]))
    for arm in list(ARMS)[1:]:
        both = [seed for seed in seeds if seed in found.get(arm, {}) and seed in found["label at effect"]]
        if both:
            differences = [found["label at effect"][seed].trained - found[arm][seed].trained for seed in both]
            low, high = bootstrap_interval(differences)
            print(f"label at effect minus {arm}, paired: {statistics.fmean(differences):.1f} [{low:.1f}, {high:.1f}]")


def sweep_delays(runs: Runs, seeds: int) -> dict[str, dict[int, list[float]]]:
    """Sweep the delays that `play_delay_5` does not play; return the final scores by arm and delay."""
    directory = runs.base_dir / "delays"
    words = ["sweep", "--base_dir", str(directory), "--jobs", "1", "--seeds", str(seeds)]
    words += ["--gin_files", "configs/sweeps/reincarnation_cartpole.gin"]
    words += ["--grid", "RealtimeDelay.delay = 4, 6, 2, 0, 1, 3, 7, 8"]
    for binding in _teacher(runs):
        words += ["--gin_bindings", binding]
    runs.train(words)
    scores: dict[str, dict[int, list[float]]] = {arm: {} for arm in ARMS}
    for trial in _trials(directory):
        if (run := read(directory / "trials" / trial.name)) is not None:
            scores[trial.arm].setdefault(trial.bindings["RealtimeDelay.delay"], []).append(run.trained)
    return scores


def _trials(directory: Path) -> Iterator[Any]:
    from async_wrappers.agents.sweep.plan import PLAN, read_plan

    if (directory / PLAN).is_file():
        yield from read_plan(directory).trials()


def print_delays(scores: Mapping[str, Mapping[int, Sequence[float]]]) -> None:
    """Print the scores of each arm under each delay."""
    delays = sorted({delay for of in scores.values() for delay in of})
    heads = ["delay, frames", *map(str, delays)]
    print(f"\n{_row(heads)}\n{_row(['---'] * len(heads))}")
    for arm, of in scores.items():
        print(_row([arm, *(_cell(of.get(delay, ())) for delay in delays)]))


def draw_delays(scores: Mapping[str, Mapping[int, Sequence[float]]]) -> None:
    """Draw docs/results_label_at.png."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.4), layout="constrained")
    axes = figure.add_subplot(
        xlabel="delay, frames", ylabel="return", title="CartPole-v1, told the actions on their way"
    )
    for offset, ((arm, of), look) in enumerate(zip(scores.items(), _looks(), strict=False)):
        delays = sorted(of)
        means = [statistics.fmean(of[delay]) for delay in delays]
        bounds = [bootstrap_interval(of[delay]) for delay in delays]
        errors = [
            [m - b[0] for m, b in zip(means, bounds, strict=True)],
            [b[1] - m for m, b in zip(means, bounds, strict=True)],
        ]
        axes.errorbar([delay + 0.1 * (offset - 1) for delay in delays], means, errors, capsize=3, label=arm, **look)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(frameon=False, loc="outside lower center", ncols=3)
    counts = sorted({len(each) for of in scores.values() for each in of.values()})
    seeds = " or ".join(map(str, counts))
    figure.suptitle(f"mean of {seeds} seeds, bars: 95 % bootstrap interval", fontsize="small", color="0.3")
    figure.savefig(DOCS / "results_label_at.png", dpi=130)


def _teacher(runs: Runs) -> list[str]:
    path = runs.base_dir / "teacher"
    return [
        f"RunnerWithTeacher.teacher_checkpoint_dir = '{path}'",
        "RunnerWithTeacher.teacher_gin_file = 'configs/dqn/cartpole.gin'",
    ]


# The main job's game.


def play_main_job(runs: Runs, seeds: int) -> None:
    """Train the main job, and students of it with another network; print the scores and the seconds."""
    teacher = runs.play("main_job/teacher", "configs/default.gin", [], 0)
    for seed in range(seeds):
        path = runs.base_dir / "main_job" / "teacher" / "0"
        words = [f"RunnerWithTeacher.teacher_checkpoint_dir = '{path}'"]
        run = runs.play("main_job/student", "configs/reincarnation/main_job.gin", words, seed)
        if run is not None and teacher is not None:
            share = run.trained / teacher.trained
            print(f"main job, seed {seed}: {run.trained:.1f}, {share:.2f} of the teacher's {teacher.trained:.1f}")


def _looks() -> list[dict[str, Any]]:
    colours = ("#000000", "#0072B2", "#56B4E9", "#D55E00", "#009E73", "#8FBC8F", "#E69F00", "#CC79A7")
    lines = ("-", "-", "--", "-.", "-", "--", ":", "-.")
    looks = zip(colours, lines, ".osD^vPX", strict=True)
    return [{"color": colour, "linestyle": line, "marker": marker} for colour, line, marker in looks]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(scores: Sequence[float]) -> str:
    if not scores:
        return ""
    return f"{statistics.fmean(scores):.0f} ({', '.join(f'{score:.0f}' for score in sorted(scores))})"


PARTS = ("methods", "delay_5", "delays", "main_job")


def main() -> None:
    """Play what is missing, print the tables, and draw the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base_dir", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--environments", nargs="+", choices=ENVIRONMENTS, default=list(ENVIRONMENTS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sweep-seeds", type=int, default=3, help="seeds of the delays other than 5")
    parser.add_argument("--show", action="store_true", help="play nothing")
    parser.add_argument("--draw", action="store_true", help="draw the figures of docs/")
    options = parser.parse_args()
    runs = Runs(options.base_dir, options.show)
    if "delay_5" in options.only or "delays" in options.only:
        of_5 = play_delay_5(runs, options.seeds)
        print_delay_5(of_5)
    if "methods" in options.only:
        methods = {each: play_methods(runs, each, options.seeds) for each in options.environments}
        for environment, found in methods.items():
            print_methods(environment, found)
        if options.draw:
            draw_methods(methods)
    if "main_job" in options.only:
        play_main_job(runs, options.seeds)
    if "delays" in options.only:
        scores = sweep_delays(runs, options.sweep_seeds)
        for arm, of in of_5.items():
            scores[arm][5] = [run.trained for run in of.values()]
        print_delays(scores)
        if options.draw:
            draw_delays(scores)


if __name__ == "__main__":
    main()

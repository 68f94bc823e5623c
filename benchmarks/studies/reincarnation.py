"""What a teacher is worth: the methods of reincarnation side by side, and the two labels under delay.

    python -m benchmarks.studies.reincarnation --base_dir DIR [--only methods delay_5 delays main_job] [--seeds 5]
        [--methods pretrained rehearsal] [--draw]

Each run is train.py's, with a shipped file and the bindings that its table names, in a directory of its own below DIR;
a run that is finished is not played again, and one that was cut off goes on. Lengths are frames and updates, so a
slower machine gives the same numbers. Scores: final weights, 100 greedy episodes.

    methods   seven ways to learn from seed 0 of DQN's file in a fifth of its frames, and DQN: CartPole, Acrobot
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
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from async_wrappers.agents.experiment.evaluate import bootstrap_interval, interquartile_mean
from async_wrappers.agents.experiment.metrics import read_iterations

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

ENVIRONMENTS: Mapping[str, tuple[str, tuple[str, ...]]] = {  # DQN's file, and what a student's file lacks
    "cartpole": ("configs/dqn/cartpole.gin", ()),
    "acrobot": (
        "configs/dqn/acrobot.gin",
        (
            "create_gym_environment.environment_id = 'Acrobot-v1'",
            "RealtimeDelay.default_action = 1",
            # What keeps the teacher's policy on CartPole keeps it on Acrobot too, where the student's own is better.
            "PretrainedDQNAgent.cql_decay_period = 0",
        ),
    ),
}
TITLES = {"cartpole": "CartPole-v1", "acrobot": "Acrobot-v1"}
SMALL = "MLPTorso.hidden = (128, 128)"  # where the teacher has two layers of 512; what is reloaded has the teacher's
SCRATCH = ("Runner.num_iterations = 20", "Runner.training_steps = 2_500")  # as many frames, looked at as often
FROM_SCRATCH = "DQN from scratch"
METHODS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "QDagger": ("qdagger_dqn_cartpole.gin", ()),
    "kickstarting": ("kickstarting_dqn_cartpole.gin", ()),
    "DQfD": ("dqfd_dqn_cartpole.gin", ()),
    "pretrained": ("pretrained_dqn_cartpole.gin", ()),
    "rehearsal": ("pretrained_dqn_cartpole.gin", ("PretrainedDQNAgent.teacher_data_ratio = 0.5",)),
    "reloaded": ("reloaded_dqn_cartpole.gin", ()),
    "JSRL": ("jsrl_dqn_cartpole.gin", ()),
    FROM_SCRATCH: ("", ()),
}
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


class Compared(NamedTuple):
    """A teacher, None if it is not finished, and what is compared: runs by method and seed."""

    teacher: Finished | None
    methods: dict[str, dict[int, Finished]]


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


def play_methods(runs: Runs, environment: str, seeds: int, chosen: Sequence[str] = tuple(METHODS)) -> Compared:
    """Play the teacher, and for each seed the chosen ones of its students and DQN from scratch."""
    gin_file, own = ENVIRONMENTS[environment]
    name = f"teachers/{environment}"
    teacher = runs.play(name, gin_file, [], 0)
    path = runs.base_dir / name / "0"
    found: dict[str, dict[int, Finished]] = {}
    for seed in range(seeds):
        for method, (students, bindings) in METHODS.items():
            if method not in chosen:
                continue
            directory = f"methods/{environment}/{method.replace(' ', '_')}"
            if method == FROM_SCRATCH:
                run = runs.play(directory, gin_file, [SMALL, *SCRATCH], seed)
            else:
                network = [] if method == "reloaded" else [SMALL]
                words = [*network, *own, *bindings, f"RunnerWithTeacher.teacher_checkpoint_dir = '{path}'"]
                run = runs.play(directory, f"configs/reincarnation/{students}", words, seed)
            if run is not None:
                found.setdefault(method, {})[seed] = run
    return Compared(teacher, {method: found[method] for method in METHODS if method in found})


def print_methods(environment: str, compared: Compared) -> None:
    """Print the table of an environment, in Markdown."""
    teacher, found = compared
    if teacher is None or not found:
        return
    frames = teacher.frames[-1]
    print(f"\n{environment}: teacher {teacher.trained:.1f} after {frames:,} frames, random {teacher.random:.1f}\n")
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
    if "QDagger" in found:
        median = statistics.median(run.trained for run in found["QDagger"].values())
        share = (median - teacher.random) / (teacher.trained - teacher.random)
        print(f"QDagger, {share:.2f} of its teacher above random >= 0.9: {_held(share >= 0.9)}")


def draw_methods(found: Mapping[str, Compared]) -> None:
    """Draw docs/results_reincarnation.png: evaluation phases against the frames played, and below the final scores."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.4 * len(found), 7.2), layout="constrained")
    places = figure.subplots(2, len(found), squeeze=False, height_ratios=[3, 2])
    for column, (environment, (teacher, methods)) in enumerate(found.items()):
        assert teacher is not None
        curves, final = places[:, column]
        for place, ((method, of), look) in enumerate(zip(methods.items(), _looks(), strict=False)):
            returns = np.array([run.returns for run in of.values()])
            frames = np.mean([run.frames for run in of.values()], axis=0)
            curves.plot(frames, [interquartile_mean(each) for each in returns.T], label=method, markersize=4, **look)
            scores = [run.trained for run in of.values()]
            middle, (low, high) = interquartile_mean(scores), bootstrap_interval(scores, interquartile_mean)
            error = [[middle - low], [high - middle]]
            final.errorbar([middle], [place], xerr=error, color=look["color"], marker=look["marker"], capsize=3)
        for level, label, line in ((teacher.trained, "teacher", (6, 2)), (teacher.random, "random", (1, 1.5))):
            style: dict[str, Any] = {"color": "0.25", "linestyle": (0, line), "linewidth": 1.2}
            curves.axhline(level, label=label, **style)
            final.axvline(level, **style)
        seeds = max(len(of) for of in methods.values())
        title = f"{TITLES[environment]}, {seeds} seed{'s' * (seeds > 1)}"
        curves.set(title=title, xlabel="frames that the agent played", ylabel="return of the evaluation phases")
        curves.set_xscale("symlog", linthresh=2_500, linscale=0.6)
        curves.set_xlim(-300, 60_000)
        curves.set_xticks([0, 2_500, 5_000, 10_000, 25_000, 50_000], ["0", "2.5 k", "5 k", "10 k", "25 k", "50 k"])
        curves.set_xticks([], minor=True)
        final.set(xlabel="return of 100 episodes, final weights", yticks=range(len(methods)), yticklabels=methods)
        final.invert_yaxis()
        for axes in (curves, final):
            axes.spines[["top", "right"]].set_visible(False)
    lines, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(lines, labels, frameon=False, loc="outside lower center", ncols=5)
    figure.suptitle("IQM over seeds, bars: 95 % bootstrap interval", fontsize="small", color="0.3")
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
            mean = statistics.fmean(differences)
            print(f"label at effect minus {arm}, paired: {mean:.1f} [{low:.1f}, {high:.1f}]: {_held(low > 0)}")
    median = statistics.median(run.trained for run in found["label at effect"].values())
    print(f"label at effect, median {median:.1f} >= 400: {_held(median >= 400)}")


def sweep_delays(runs: Runs, seeds: int, jobs: int) -> dict[str, dict[int, list[float]]]:
    """Sweep the delays that `play_delay_5` does not play; return the final scores by arm and delay."""
    directory = runs.base_dir / "delays"
    words = ["sweep", "--base_dir", str(directory), "--jobs", str(jobs), "--seeds", str(seeds)]
    words += ["--gin_files", "configs/sweeps/reincarnation_cartpole.gin"]
    words += ["--grid", "RealtimeDelay.delay = 4, 6, 2, 0, 1, 3, 7, 8"]
    for binding in _teacher(runs):
        words += ["--gin_bindings", binding]
    runs.train(words)
    scores: dict[str, dict[int, list[float]]] = {arm: {} for arm in ARMS}
    for trial in _trials(directory):
        if (run := read(directory / "trials" / trial.name)) is not None:
            scores[trial.arm].setdefault(int(trial.bindings["RealtimeDelay.delay"]), []).append(run.trained)
    return scores


def _trials(directory: Path) -> Iterator[Any]:
    from async_wrappers.agents.sweep.plan import PLAN, read_plan

    if (directory / PLAN).is_file():
        yield from read_plan(directory).trials()


def print_delays(scores: Mapping[str, Mapping[int, Sequence[float]]]) -> None:
    """Print the mean score of each arm under each delay, with its 95 % bootstrap interval over seeds."""
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
    for offset, ((arm, of), look) in enumerate(zip(scores.items(), _looks()[1::2], strict=False)):
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
    path = runs.base_dir / "teachers" / "cartpole" / "0"
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


def _held(does: bool) -> str:
    return "held" if does else "MISSED"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(scores: Sequence[float]) -> str:
    if not scores:
        return ""
    low, high = bootstrap_interval(scores)
    return f"{statistics.fmean(scores):.0f} [{low:.0f}, {high:.0f}]"


PARTS = ("methods", "delay_5", "delays", "main_job")


def main() -> None:
    """Play what is missing, print the tables, and draw the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base_dir", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--environments", nargs="+", choices=ENVIRONMENTS, default=list(ENVIRONMENTS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sweep-seeds", type=int, default=3, help="seeds of the delays other than 5")
    parser.add_argument("--jobs", type=int, default=1, help="trials of these delays at a time")
    parser.add_argument("--show", action="store_true", help="play nothing")
    parser.add_argument("--draw", action="store_true", help="draw the figures of docs/")
    options = parser.parse_args()
    runs = Runs(options.base_dir, options.show)
    if "delay_5" in options.only or "delays" in options.only:
        of_5 = play_delay_5(runs, options.seeds)
        print_delay_5(of_5)
    if "methods" in options.only:
        methods = {each: play_methods(runs, each, options.seeds, options.methods) for each in options.environments}
        for environment, found in methods.items():
            print_methods(environment, found)
        if options.draw:
            draw_methods({name: each for name, each in methods.items() if each.teacher is not None and each.methods})
    if "main_job" in options.only:
        play_main_job(runs, options.seeds)
    if "delays" in options.only:
        scores = sweep_delays(runs, options.sweep_seeds, options.jobs)
        for arm, of in of_5.items():
            scores[arm][5] = [run.trained for run in of.values()]
        print_delays(scores)
        if options.draw:
            draw_delays(scores)


if __name__ == "__main__":
    main()

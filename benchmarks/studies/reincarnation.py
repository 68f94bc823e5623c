"""What a teacher is worth: the methods of reincarnation side by side, and the two labels under delay.

    python -m benchmarks.studies.reincarnation --base_dir DIR [--only methods delay_5 delays kung_fu_master] [--seeds 5]
        [--methods pretrained rehearsal] [--draw]

Each run is train.py's, with a shipped file and the bindings that its table names, in a directory of its own below DIR;
a run that is finished is not played again, and one that was cut off goes on. Lengths are frames and updates, so a
slower machine gives the same numbers. Scores: final weights, 100 greedy episodes.

    methods   seven ways to learn from seed 0 of DQN's file in a fifth of its frames, and DQN: CartPole, Acrobot
    delay_5   CartPole with a delay of 5 frames: the label at the effect, at the start, and no teacher
    delays    the same under delays of 0 to 8 frames: configs/sweeps/reincarnation_cartpole.gin
    kung_fu_master  configs/reincarnation/kung_fu_master.gin: another network than its teacher's, seconds of play

Prints the tables; `--draw` draws docs/results_reincarnation.png and docs/results_label_at.png besides. `--show` plays
nothing and prints what is finished.
"""

from __future__ import annotations

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
from benchmarks.measuring import head, held, parser_of, print_hold, row
from benchmarks.studies.trials import DOCS

ROOT = DOCS.parent


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


Found = dict[str, dict[int, Finished]]
"""Finished runs by what is compared, and by seed."""


class Compared(NamedTuple):
    """A teacher, None if it is not finished, and what is compared."""

    teacher: Finished | None
    methods: Found


class Runs:
    """Plays runs of train.py below a directory, one after another, and keeps what is finished.

    Args:
        base_dir: The directory.
        show: Play nothing.
    """

    def __init__(self, base_dir: Path, show: bool) -> None:
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
    found: Found = {method: {} for method in METHODS if method in chosen}
    for seed in range(seeds):
        for method, of in found.items():
            students, bindings = METHODS[method]
            network = () if method == "reloaded" else (SMALL,)
            words, file = [*network, *own, *bindings, _checkpoint(runs, name)], f"configs/reincarnation/{students}"
            if method == FROM_SCRATCH:
                words, file = [SMALL, *SCRATCH], gin_file
            if run := runs.play(f"methods/{environment}/{method.replace(' ', '_')}", file, words, seed):
                of[seed] = run
    return Compared(teacher, {method: of for method, of in found.items() if of})


def print_scores(title: str, found: Found, middle: Any, columns: Mapping[str, Any]) -> None:
    """Print the final scores of each seed, median, a middle with its 95 % bootstrap interval, and further columns."""
    seeds = sorted({seed for of in found.values() for seed in of})
    names = "median", "IQM" if middle is interquartile_mean else "mean", "95 %"
    print("\n" + head(title, *(f"seed {seed}" for seed in seeds), *names, *columns))
    for name, of in found.items():
        scores = _scores(of)
        low, high = bootstrap_interval(scores, middle)
        each = [f"{of[seed].trained:.1f}" if seed in of else "" for seed in seeds]
        middles = f"{statistics.median(scores):.1f}", f"{middle(scores):.1f}", f"[{low:.1f}, {high:.1f}]"
        print(row(name, *each, *middles, *(column(of) for column in columns.values())))


def print_methods(environment: str, compared: Compared) -> None:
    """Print the table of an environment, in Markdown."""
    teacher, found = compared
    if teacher is None or not found:
        return

    def share(of: Mapping[int, Finished]) -> float:
        return (statistics.median(_scores(of)) - teacher.random) / (teacher.trained - teacher.random)

    frames = f"after {teacher.frames[-1]:,} frames"
    print(f"\n{environment}: teacher {teacher.trained:.1f} {frames}, random {teacher.random:.1f}")
    columns = {
        "frames": lambda of: f"{statistics.fmean(run.frames[-1] for run in of.values()):,.0f}",
        "normalised median": lambda of: f"{share(of):.2f}",
    }
    print_scores("method", found, interquartile_mean, columns)
    if "QDagger" in found:
        print_hold("QDagger, share of its teacher above random", share(found["QDagger"]), least=0.9)


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


def play_delay_5(runs: Runs, seeds: int) -> Found:
    """Play the three arms under a delay of 5 frames."""
    found: Found = {arm: {} for arm in ARMS}
    file = "configs/reincarnation/delayed_cartpole.gin"
    for arm, bindings in ARMS.items():
        for seed in range(seeds):
            words = [*([] if arm == "no teacher" else _teacher(runs)), *bindings]
            if run := runs.play(f"delay_5/{arm.replace(' ', '_')}", file, words, seed):
                found[arm][seed] = run
    return {arm: of for arm, of in found.items() if of}


def print_delay_5(found: Found) -> None:
    """Print the table of delay 5, and the paired differences."""
    if not found:
        return
    print_scores("delay 5", found, statistics.fmean, {})
    first, *others = ARMS
    for arm in others:
        if both := sorted(set(found[first]) & set(found.get(arm, {}))):
            differences = [found[first][seed].trained - found[arm][seed].trained for seed in both]
            low, high = bootstrap_interval(differences)
            mean = statistics.fmean(differences)
            print(f"{first} minus {arm}, paired: {mean:.1f} [{low:.1f}, {high:.1f}]: {held(low > 0)}")
    print_hold(f"{first}, median", statistics.median(_scores(found[first])), least=400)


def _scores(of: Mapping[int, Finished]) -> list[float]:
    return [run.trained for run in of.values()]


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
    print("\n" + head("delay, frames", *delays))
    for arm, of in scores.items():
        print(row(arm, *(_cell(of.get(delay, ())) for delay in delays)))


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


def _checkpoint(runs: Runs, name: str) -> str:
    return f"RunnerWithTeacher.teacher_checkpoint_dir = '{runs.base_dir / name / '0'}'"


def _teacher(runs: Runs) -> list[str]:
    file = "RunnerWithTeacher.teacher_gin_file = 'configs/dqn/cartpole.gin'"
    return [_checkpoint(runs, "teachers/cartpole"), file]


# KungFuMaster.


def play_kung_fu_master(runs: Runs, seeds: int) -> None:
    """Train the teacher, and students of it with another network; print the scores and the seconds."""
    name = "kung_fu_master/teacher"
    teacher = runs.play(name, "configs/dqn/kung_fu_master.gin", [], 0)
    for seed in range(seeds):
        file = "configs/reincarnation/kung_fu_master.gin"
        run = runs.play("kung_fu_master/student", file, [_checkpoint(runs, name)], seed)
        if run is not None and teacher is not None:
            share = run.trained / teacher.trained
            print(f"KungFuMaster, seed {seed}: {run.trained:.1f}, {share:.2f} of the teacher's {teacher.trained:.1f}")


def _looks() -> list[dict[str, Any]]:
    colours = ("#000000", "#0072B2", "#56B4E9", "#D55E00", "#009E73", "#8FBC8F", "#E69F00", "#CC79A7")
    lines = ("-", "-", "--", "-.", "-", "--", ":", "-.")
    looks = zip(colours, lines, ".osD^vPX", strict=True)
    return [{"color": colour, "linestyle": line, "marker": marker} for colour, line, marker in looks]


def _cell(scores: Sequence[float]) -> str:
    if not scores:
        return ""
    low, high = bootstrap_interval(scores)
    return f"{statistics.fmean(scores):.0f} [{low:.0f}, {high:.0f}]"


PARTS = ("methods", "delay_5", "delays", "kung_fu_master")


def main() -> None:
    """Play what is missing, print the tables, and draw the figures."""
    parser = parser_of(
        __doc__,
        seeds=(5, "of each"),
        sweep_seeds=(3, "of the delays other than 5"),
        jobs=(1, "trials of these delays at a time"),
        show=(False, "play nothing"),
        draw=(False, "draw the figures of docs/"),
    )
    parser.add_argument("--base_dir", type=Path, required=True)
    for name, choices in {"only": PARTS, "methods": METHODS, "environments": ENVIRONMENTS}.items():
        parser.add_argument(f"--{name}", nargs="+", choices=choices, default=list(choices))
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
    if "kung_fu_master" in options.only:
        play_kung_fu_master(runs, options.seeds)
    if "delays" in options.only:
        scores = sweep_delays(runs, options.sweep_seeds, options.jobs)
        for arm, of in of_5.items():
            scores[arm][5] = _scores(of)
        print_delays(scores)
        if options.draw:
            draw_delays(scores)


if __name__ == "__main__":
    main()

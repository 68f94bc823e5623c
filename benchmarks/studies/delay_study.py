"""What telling a policy about its delay is worth: DQN on CartPole and Acrobot under delays of 0, 2, 4 and 8 frames.

DQN, in so many frames: an action on every frame (noops 0); five seeds; the same short training for all. Shown to the
policy, besides the observation: nothing; the last `delay` applied actions (`AppliedActions`); the committed actions
that are known when it starts (`CommittedActions`); all committed actions (its oracle, for delays that come from
transport). Writes its tables into docs/results/delay_study.md, between the page's markers, and draws the picture
docs/delay_study.png.

    python -m benchmarks.studies.delay_study [--frames 20000] [--seeds 5] [--jobs 2]

V-trace, in so many CPU seconds: told nothing; with an LSTM at release; with one worker that never rests, which gives
chunks and is told their committed prefix (`benchmarks.studies.realtime_memory.STUDY`). Writes the page's other tables,
and goes on where it was interrupted. What the tables say is the page's own.

    python -m benchmarks.studies.delay_study --vtrace results/delay_study --seeds 3 [--seconds 15]
"""

from __future__ import annotations

import itertools
import multiprocessing
import statistics
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import torch

from async_wrappers import AppliedActions, CommittedActions, RealtimeDelay
from async_wrappers.agents.acting.exploration import identity_epsilon
from async_wrappers.agents.experiment.evaluate import bootstrap_interval, evaluate
from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.losses.loss import create_optimizer
from async_wrappers.agents.networks.q_network import create_network
from async_wrappers.agents.networks.torsos import MLPTorso
from async_wrappers.agents.play.play import Phase, environment_seed
from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent
from async_wrappers.agents.play.turns.turns import play_episode
from async_wrappers.files import write_text_atomically
from benchmarks.measuring import head, parser_of, row
from benchmarks.studies.realtime_memory import ENVIRONMENTS, STUDY, played
from benchmarks.studies.trials import DOCS

DEFAULT_ACTIONS: dict[str, Any] = {"CartPole-v1": "repeat", "Acrobot-v1": 1}
DELAYS = (0, 2, 4, 8)
SHOWN = ("nothing", "applied", "committed, known", "committed, all (oracle)")
PAGE = DOCS / "results" / "delay_study.md"
EPISODES = 20  # of an evaluation


class Case(NamedTuple):
    """One training run."""

    environment_id: str
    delay: int
    shown: str
    seed: int
    frames: int


def make_environment(case: Case) -> gym.Env[Any, Any]:
    """Wrap the environment as the case says."""
    env = gym.make(case.environment_id)
    if case.shown == "applied":
        env = AppliedActions(env, length=case.delay, flat=True)
    env = RealtimeDelay(env, case.delay, default_action=DEFAULT_ACTIONS[case.environment_id])
    if case.shown.startswith("committed"):
        env = CommittedActions(env, length=case.delay + 1, known="known" in case.shown, flat=True)
    return env


def score(case: Case) -> float:
    """Train, and return the mean return of 20 evaluation episodes."""
    torch.set_num_threads(1)
    env = make_environment(case)
    agent = TurnBasedAgent.playing(
        DQN,
        env,
        stack_size=1,
        network=partial(create_network, torso=partial(MLPTorso, hidden=(128, 128))),
        min_replay_history=500,
        update_period=4,
        target_update_period=100,
        epsilon_fn=identity_epsilon,
        epsilon_train=0.05,
        epsilon_eval=0.0,
        replay_capacity=50_000,
        batch_size=64,
        loss_type="mse",
        optimizer=partial(create_optimizer, learning_rate=0.001, eps=3.125e-4),
        seed=case.seed,
    )
    frames = 0
    for number in itertools.count():
        if frames >= case.frames:
            break
        frames += play_episode(agent, env, environment_seed(case.seed, Phase.TRAIN, number)).frames
    return statistics.fmean(episode.score for episode in evaluate(agent, env, EPISODES, case.seed))


def cases(seeds: int, frames: int) -> list[Case]:
    """Return all runs; without delay there is nothing to show."""
    grid = itertools.product(DEFAULT_ACTIONS, DELAYS, SHOWN, range(seeds))
    return [Case(*cell, frames) for cell in grid if cell[1] or cell[2] == "nothing"]


def write(part: str, lines: Sequence[str], page: Path | None = None) -> None:
    """Write tables between the markers of a part of the page, and nothing else.

    Raises:
        ValueError: The page has no such markers.
    """
    page = PAGE if page is None else page
    begin, end = f"<!-- {part}: begin -->\n", f"\n<!-- {part}: end -->"
    before, found, rest = page.read_text().partition(begin)
    _, also, after = rest.partition(end)
    if not (found and also):
        raise ValueError(f"{page} must hold the lines {begin.strip()} and {end.strip()}, between which tables go")
    write_text_atomically(page, before + begin + "\n".join(["", *lines, ""]) + end + after)


def dqn_tables(scores: dict[Case, float]) -> list[str]:
    """Return the tables of DQN."""
    lines = []
    for environment_id, default in DEFAULT_ACTIONS.items():
        lines += [f"## {environment_id}, default action {default!r}", "", head("delay, frames", *SHOWN)]
        for delay in DELAYS:
            lines.append(row(delay, *(_cell(_of(scores, environment_id, delay, shown)) for shown in SHOWN)))
        lines.append("")
    return lines[:-1]


def vtrace_tables(base_dir: Path, seeds: int, seconds: float) -> list[str]:
    """Play V-trace's trials that are missing; return its tables."""
    scores: dict[tuple[str, str, str], list[float]] = {}
    for seed in range(seeds):  # all ways of a seed before the next: an interrupted run compares something too
        for env, tasks in STUDY.items():
            for task, name in ((task, name) for task, ways in tasks.items() for name in ways):
                if trial := played(task, name, env, seed, seconds, EPISODES, base_dir):
                    scores.setdefault((env, task, name), []).append(trial["mean"])
    lines = []
    for env, tasks in STUDY.items():
        names = tuple(dict.fromkeys(name for ways in tasks.values() for name in ways))
        before = "random" if ENVIRONMENTS[env][1] is None else f"{ENVIRONMENTS[env][1]}"
        lines += [f"### {ENVIRONMENTS[env][0]}, before the first action: {before}", "", head("delay, frames", *names)]
        for task in tasks:
            cells = [", ".join(f"{score:.0f}" for score in scores.get((env, task, name), [])) for name in names]
            lines.append(row(task.removeprefix("study_"), *cells))
        lines.append("")
    return lines[:-1]


def draw(scores: dict[Case, float]) -> None:
    """Draw docs/delay_study.png."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.6), layout="constrained")
    styles = (("#000000", "o", "-"), ("#0072B2", "s", "--"), ("#009E73", "^", "-."), ("#D55E00", "D", ":"))
    for axes, environment_id in zip(figure.subplots(1, 2), DEFAULT_ACTIONS, strict=True):
        for offset, (shown, (color, marker, line)) in enumerate(zip(SHOWN, styles, strict=True)):
            base = _of(scores, environment_id, 0, "nothing")
            values = [base] + [_of(scores, environment_id, delay, shown) for delay in DELAYS[1:]]
            means = [statistics.fmean(each) for each in values]
            bounds = [bootstrap_interval(each) for each in values]
            errors = [
                [m - low for m, (low, _) in zip(means, bounds, strict=True)],
                [high - m for m, (_, high) in zip(means, bounds, strict=True)],
            ]
            places = [delay + 0.12 * (offset - 1.5) for delay in DELAYS]
            axes.errorbar(places, means, errors, color=color, marker=marker, linestyle=line, capsize=3, label=shown)
        axes.set(title=environment_id, xlabel="delay, frames", ylabel="return", xticks=DELAYS)
        axes.spines[["top", "right"]].set_visible(False)
    lines, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(lines, labels, title="shown to the policy", frameon=False, loc="outside lower center", ncols=4)
    figure.savefig(DOCS / "delay_study.png", dpi=120)


def _of(scores: dict[Case, float], environment_id: str, delay: int, shown: str) -> list[float]:
    wanted = (environment_id, delay, shown)
    return [value for case, value in scores.items() if case[:3] == wanted]


def _cell(values: Sequence[float]) -> str:
    if not values:
        return ""
    low, high = bootstrap_interval(values)
    return f"{statistics.fmean(values):.0f} [{low:.0f}, {high:.0f}]"


def main() -> None:
    parser = parser_of(
        __doc__,
        frames=(20_000, "training frames of a run"),
        seeds=(5, "of each"),
        jobs=(2, "processes"),
        seconds=(15.0, "CPU seconds of a trial of V-trace"),
    )
    parser.add_argument("--vtrace", type=Path, metavar="DIR", help="V-trace instead, with its trials in DIR")
    options = parser.parse_args()
    if options.vtrace is not None:
        write("V-trace", vtrace_tables(options.vtrace, options.seeds, options.seconds))
        return
    runs = cases(options.seeds, options.frames)
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        scores = {}
        for case, value in zip(runs, pool.imap(score, runs), strict=True):
            scores[case] = value
            what = f"{case.environment_id} delay {case.delay}, {case.shown}"
            print(f"{len(scores)}/{len(runs)} {what}: {value:.1f}", flush=True)
    write("DQN", dqn_tables(scores))
    draw(scores)


if __name__ == "__main__":
    main()

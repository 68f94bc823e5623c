"""What telling a policy about its delay is worth: DQN on CartPole and Acrobot under delays of 0, 2, 4 and 8 frames.

DQN, in so many frames: an action on every frame (noops 0); five seeds; the same short training for all. Shown to the
policy, besides the observation: nothing; the last `delay` applied actions (`AppliedActions`); the committed actions
that are known when it starts (`CommittedActions`); all committed actions (its oracle, for delays that come from
transport). Writes its part of docs/results/delay_study.md, and the picture docs/delay_study.png.

    python -m benchmarks.studies.delay_study [--frames 20000] [--seeds 5] [--jobs 2]

V-trace, in so many CPU seconds: told nothing; with an LSTM at release; with one worker that never rests, which gives
chunks and is told their committed prefix (`benchmarks.studies.realtime_memory.STUDY`). Writes the page's other part,
and goes on where it was interrupted.

    python -m benchmarks.studies.delay_study --vtrace results/delay_study --seeds 3 [--seconds 15]
"""

from __future__ import annotations

import argparse
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
from async_wrappers.agents.losses.optimizers import create_optimizer
from async_wrappers.agents.networks.q_network import create_network
from async_wrappers.agents.networks.torsos import MLPTorso
from async_wrappers.agents.play.play import Phase, environment_seed
from async_wrappers.agents.play.turns.episode import play_episode
from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent
from benchmarks.studies.realtime_memory import ENVIRONMENTS, STUDY, played

DEFAULT_ACTIONS: dict[str, Any] = {"CartPole-v1": "repeat", "Acrobot-v1": 1}
DELAYS = (0, 2, 4, 8)
SHOWN = ("nothing", "applied", "committed, known", "committed, all (oracle)")
DOCS = Path(__file__).resolve().parents[2] / "docs"
VTRACE = "## V-trace"  # begins the second part of the page
NOTE = """\
*Told nothing* and the *LSTM at release* act on every frame, which takes as many workers as an action is frames late.
The LSTM reads each action that was on its way ([core at release](../concepts/core_at_release.md)). The *chunk* is of
one worker that never rests: a decision per `delay` frames, told its
[committed prefix](../concepts/chunks.md#the-committed-prefix). A frame costs the chunk less time and the LSTM more, so
they do not train on equally many. Settings: `configs/vtrace/cartpole_delay_lstm.gin` and `cartpole_prefix.gin`, for
Acrobot too.
"""
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


def write_table(scores: dict[Case, float], seeds: int, frames: int) -> None:
    """Write the page's first part."""
    lines = [
        "# What telling a policy about its delay is worth",
        "",
        f"DQN, an action on every frame, {frames:,} training frames, {seeds} seeds; mean return of 20 evaluation",
        "episodes per seed, with the 95 % bootstrap interval over seeds. Made by",
        f"`python -m benchmarks.studies.delay_study --frames {frames} --seeds {seeds}`, which trains all of it.",
        "",
        "![Return against delay](../delay_study.png)",
        "",
    ]
    for environment_id, default in DEFAULT_ACTIONS.items():
        lines += [
            f"## {environment_id}, default action {default!r}",
            "",
            "| delay, frames | " + " | ".join(SHOWN) + " |",
        ]
        lines.append("|---" * (len(SHOWN) + 1) + "|")
        for delay in DELAYS:
            row = [_cell(_of(scores, environment_id, delay, shown)) for shown in SHOWN]
            lines.append(f"| {delay} | " + " | ".join(row) + " |")
        lines.append("")
    lines += [
        "*Nothing*: the delayed observation alone. *Applied*: the last `delay` actions that the environment received",
        "before it. *Committed, known*: of the actions on their way, the one that lands on the observation's frame;",
        "constants say of no other that its inference has ended. *Committed, all*: every action on its way, which",
        "makes the problem Markov again, and which no policy that computes its own actions can know: an oracle, for",
        "delays of transport.",
        "",
        "Under a delay of 8, CartPole receives eight pushes to the left before the first action can land and is all",
        "but lost by then, whatever a policy knows.",
        "",
    ]
    write("\n".join(lines), None)


def write(first: str | None, second: str | None) -> None:
    """Write a part of docs/results/delay_study.md, or both; None leaves one as it is."""
    page = DOCS / "results" / "delay_study.md"
    before, heading, after = page.read_text().partition(VTRACE)
    parts = (before if first is None else first), (heading + after if second is None else second)
    page.write_text("\n\n".join(part.strip() for part in parts if part) + "\n")


def vtrace_part(base_dir: Path, seeds: int, seconds: float) -> str:
    """Play V-trace's trials that are missing; return the page's second part."""
    scores: dict[tuple[str, str, str], list[float]] = {}
    for seed in range(seeds):  # all ways of a seed before the next: an interrupted run compares something too
        for env, tasks in STUDY.items():
            for task, ways in tasks.items():
                for name in ways:
                    trial = played(task, name, env, seed, seconds, EPISODES, base_dir)
                    scores.setdefault((env, task, name), []).append(trial["mean"])
    lines = [
        f"{VTRACE}: a core at release, and chunks",
        "",
        f"V-trace, at most {seconds:g} CPU seconds of training, counted from the start of a process; then the mean",
        f"return of {EPISODES} greedy episodes with the final weights, for each of {seeds} seeds. Made by",
        "`python -m benchmarks.studies.delay_study"
        f" --vtrace results/delay_study --seeds {seeds} --seconds {seconds:g}`.",
    ]
    for env, tasks in STUDY.items():
        names = tuple(dict.fromkeys(name for ways in tasks.values() for name in ways))
        before = "random" if ENVIRONMENTS[env][1] is None else f"{ENVIRONMENTS[env][1]}"
        lines += ["", f"### {ENVIRONMENTS[env][0]}, before the first action: {before}", ""]
        lines += ["| delay, frames | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
        for task in tasks:
            cells = [", ".join(f"{score:.0f}" for score in scores.get((env, task, name), [])) for name in names]
            lines.append(f"| {task.removeprefix('study_')} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", NOTE])


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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=20_000, help="training frames of a run")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--vtrace", type=Path, metavar="DIR", help="V-trace instead, with its trials in DIR")
    parser.add_argument("--seconds", type=float, default=15.0, help="CPU seconds of a trial of V-trace")
    options = parser.parse_args()
    if options.vtrace is not None:
        write(None, vtrace_part(options.vtrace, options.seeds, options.seconds))
        return
    runs = cases(options.seeds, options.frames)
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        scores = {}
        for case, value in zip(runs, pool.imap(score, runs), strict=True):
            scores[case] = value
            print(
                f"{len(scores)}/{len(runs)} {case.environment_id} delay {case.delay}, {case.shown}: {value:.1f}",
                flush=True,
            )
    write_table(scores, options.seeds, options.frames)
    draw(scores)


if __name__ == "__main__":
    main()

"""The main job, what ``train.py`` runs without options: a sweep of one seed, its figures, and what they show."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from async_wrappers.agents.cli import plot, sweep
from async_wrappers.agents.cli.commands import parser_of
from async_wrappers.agents.cli.configuration import MAIN_JOB
from async_wrappers.agents.cli.flags import UsageError, program
from async_wrappers.agents.sweep.plan import read_plan
from async_wrappers.agents.sweep.results import read_frame_rate, read_rows
from async_wrappers.agents.sweep.view import View, make_view, share_in_words

# The scores of docs/results/main_job.md, of five seeds each, and that of random play over all trials.
FIVE_SEEDS = {
    "without delay": (3460, 3560, 3880, 4120, 4360),
    "133 ms late, asynchronous": (2960, 1640, 520, 2520, 2520),
    "133 ms late, sequential": (0, 120, 100, 180, 280),
}
RANDOM = 303
_EMULATED = 60  # frames per second of the emulator


def run_main_job(options: Namespace, base_dir: Path) -> None:
    """Run the sweep of the main job with one seed, draw it, and say what it shows."""
    if options.seed is not None:
        raise UsageError(
            f"--seed {options.seed} is for one run, and without --gin_files the main job runs, a sweep: name a file, "
            "such as --gin_files configs/dqn/kung_fu_master.gin"
        )
    print(f"main job: three agents learn in about 4 minutes; to watch them: {program()} watch {base_dir}", flush=True)
    words = ["--base_dir", str(base_dir), "--gin_files", MAIN_JOB, "--seeds", "1"]
    words += [word for binding in options.gin_bindings for word in ("--gin_bindings", binding)]
    words += [flag for flag, given in (("--trust", options.trust), ("--allow_unread", options.allow_unread)) if given]
    sweep.run(parser_of("sweep").parse(words))
    plot.run(parser_of("plot").parse([str(base_dir)]))
    if not options.gin_bindings:  # which make it another job than that of the five seeds
        view = make_view(read_plan(base_dir), read_rows(base_dir), frame_rate=read_frame_rate(base_dir))
        print("\n".join(closing_words(view)))
    print(f"picture: {base_dir / 'figures' / 'learning_curves.png'}\nbase_dir: {base_dir}")


def closing_words(view: View) -> list[str]:
    """Return what the main job's table shows beside five seeds, what a frame is, and where the loss comes from."""
    ladder = view.ladders[0]
    [rung], random, top = ladder.rungs, ladder.random, ladder.top.value
    five = [share_in_words(mean(scores), mean(FIVE_SEEDS["without delay"]), RANDOM) for scores in FIVE_SEEDS.values()]
    words = []
    if random is not None and top > random.value:
        one = [share_in_words(score.value, top, random.value) for score in (rung.asynchronous, rung.sequential)]
        words.append(
            f"This seed keeps {one[0]} of the gain asynchronously and {one[1]} sequentially; five seeds, which show "
            f"more than one, keep {five[1]} and {five[2]} (docs/results/main_job.md)."
        )
    if view.frame_rate:
        emulated = f"{_EMULATED / view.frame_rate:g} frames of the emulator, 1/{view.frame_rate:g} s"
        words.append(f"A frame is {emulated}; the game holds an action for so long.")
    late, seldom = (_random_return(view, trials.trials) for trials in (rung.asynchronous, rung.sequential))
    if random is not None and rung.sequential.value < random.value and late > seldom:
        words.append(
            "Sequential play scores below random play because the game receives the no-op on every frame between two "
            f"actions, as in the paper: so even random play scores {seldom:.4g}, and {late:.4g} with an action on "
            "every frame. If the last action is repeated in its place, there is no such cost "
            "(docs/results/delay.md#kungfumaster)."
        )
    return words


def _random_return(view: View, trials: Sequence[str]) -> float:
    """Return the mean return of random play under the delay of some trials."""
    returns = [row["value"] for row in view.rows if row["metric"] == "random_return" and row["trial"] in trials]
    return float(mean(returns))

"""Play evaluation episodes with the weights of a run's newest checkpoint."""

from __future__ import annotations

import json
from argparse import Namespace

from async_wrappers.agents.cli.configuration import (
    add_run_flags,
    build_runner,
    existing_run,
    find_modules,
    refuse_without_display,
    render_bindings,
)
from async_wrappers.agents.cli.flags import Parser, Switch, UsageError, usage_errors, whole_number
from async_wrappers.agents.experiment.lock import NOT_WRITABLE
from async_wrappers.agents.experiment.report import evaluation_facts
from async_wrappers.agents.files import write_text_atomically

__all__ = ["add_flags", "run"]


def add_flags(parser: Parser) -> None:
    """Add the flags of ``evaluate``."""
    add_run_flags(parser, "directory of the run")
    parser.add_argument("--episodes", type=whole_number(1), default=20, metavar="N", help="how many episodes (20)")
    parser.add_argument("--render", action=Switch, help="show the game in a window")
    parser.add_argument("--video", action=Switch, help="record each episode, in base_dir/videos")


def run(options: Namespace) -> None:
    """Evaluate, print the scores, and write ``evaluation.json``."""
    find_modules(options)
    base_dir = existing_run(options, "evaluate")
    if options.render and options.video:
        raise UsageError("--render and --video exclude each other: a game is shown in a window or recorded")
    if options.render:
        refuse_without_display("--render", "record the episodes with --video, or leave --render out")
    mode = "human" if options.render else "rgb_array" if options.video else None
    runner = build_runner(options, base_dir, render_bindings(mode) if mode else [])
    videos = base_dir / "videos" if options.video else None
    with usage_errors():
        agent = runner.trained_agent()
        if videos:
            runner.check_recordable()
    facts = evaluation_facts(runner.evaluation(agent, options.episodes, videos))
    path = base_dir / "evaluation.json"
    written = f"written to {path}"
    try:
        write_text_atomically(path, json.dumps(facts, indent=1) + "\n")
    except OSError as error:
        if error.errno not in NOT_WRITABLE:
            raise
        written = f"not written to {path} ({error.strerror})"
    interval = "{:.1f} (95 % interval {:.1f} to {:.1f})"
    print(
        f"{len(facts['returns'])} episodes: mean return {interval.format(facts['mean'], *facts['interval'])}, "
        f"median {facts['median']:.1f}, interquartile mean {interval.format(facts['iqm'], *facts['iqm_interval'])}; "
        f"{written}{f', videos to {videos}' if videos else ''}"
    )

"""Record episodes of a person, of a script or of a trained agent to a Minari dataset."""

from __future__ import annotations

import inspect
import os
from argparse import Namespace
from pathlib import Path

import gin

from async_wrappers.agents.cli.configuration import (
    add_agent_flag,
    add_run_flags,
    agent_file,
    build_runner,
    existing_run,
    find_modules,
    load_run,
    place_of_agent,
    refuse_without_display,
    render_bindings,
)
from async_wrappers.agents.cli.flags import Parser, UsageError, at_least, usage_errors
from async_wrappers.agents.cli.import_dataset import dataset_summary
from async_wrappers.agents.experiment.pretraining import Recording, bound_environment, record_agent, record_player
from async_wrappers.agents.play.runner import Runner
from async_wrappers.wrapper_statistics import frozen

LONGEST_EPISODE = inspect.signature(Runner).parameters["max_steps_per_episode"].default  # frames, where none is bound


def add_flags(parser: Parser) -> None:
    """Add the flags of ``record``."""
    parser.add_argument(
        "--dataset", type=os.path.expanduser, metavar="NAME_OR_DIR", help="a new dataset, an id or a directory"
    )
    parser.add_argument("--player", metavar="PLAYER", help="human, random or MODULE:FUNCTION (human)")
    parser.add_argument("--episodes", type=at_least(1), default=20, metavar="N", help="how many episodes (20)")
    fps = "frames per second for a person (the environment's)"
    parser.add_argument("--fps", type=at_least(1.0), metavar="FPS", help=fps)
    add_run_flags(parser, "directory of a run, whose agent plays")
    add_agent_flag(parser)


def run(options: Namespace) -> None:
    """Record, and print where the dataset is."""
    find_modules(options, always=bool(options.player))
    if not options.dataset:
        raise UsageError("record needs --dataset: a new directory, or an id such as falling_blocks/human-v0")
    for flag in ("base_dir", "agent"):
        if getattr(options, flag) and options.player:
            raise UsageError(f"--{flag} and --player exclude each other: a trained agent plays, or somebody else")
    file = agent_file(options)
    with usage_errors():
        trained = file or options.base_dir
        recording = _agents_recording(options, file) if trained else _players_recording(options)
    try:
        written = recording()
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"the episodes that had ended are in {options.dataset}, if there were any") from None
    print(dataset_summary(written, options.dataset))


def _agents_recording(options: Namespace, file: Path | None) -> Recording:
    base_dir = existing_run(options, "record") if file is None else place_of_agent(options.agent, file)
    runner = build_runner(options, base_dir, saved=file)
    length = {
        "episodes": options.episodes,
        "seed": runner.settings.seed,
        "max_frames": runner.settings.max_steps_per_episode,
    }
    agent = runner.trained_agent(file)
    with frozen(runner.environment):
        return record_agent(agent, runner.environment, options.dataset, **length)


def _players_recording(options: Namespace) -> Recording:
    player = options.player or "human"
    if player == "human":
        refuse_without_display(
            "--player human", "name a script with --player MODULE:FUNCTION, or a run with --base_dir"
        )
    load_run(options, render_bindings("rgb_array") if player == "human" else [])
    return record_player(
        bound_environment(),
        options.dataset,
        player,
        episodes=options.episodes,
        seed=options.seed or 0,
        max_frames=gin.get_bindings("Runner").get("max_steps_per_episode", LONGEST_EPISODE),
        fps=options.fps,
    )

"""Record episodes of a person, of a script or of a trained agent to a Minari dataset."""

from __future__ import annotations

import inspect
from argparse import Namespace

import gin

from async_wrappers.agents.cli.configuration import (
    add_run_flags,
    build_runner,
    existing_run,
    find_modules,
    load_run,
    refuse_without_display,
    render_bindings,
)
from async_wrappers.agents.cli.flags import Parser, UsageError, at_least, usage_errors
from async_wrappers.agents.cli.import_dataset import dataset_summary
from async_wrappers.agents.experiment.demonstrations import Recording, bound_environment, record_agent, record_player
from async_wrappers.agents.experiment.runner import Runner

__all__ = ["add_flags", "run"]

LONGEST_EPISODE = inspect.signature(Runner).parameters["max_steps_per_episode"].default  # frames, where none is bound


def add_flags(parser: Parser) -> None:
    """Add the flags of ``record``."""
    parser.add_argument("--dataset", metavar="NAME_OR_DIR", help="a new dataset, an id or a directory")
    parser.add_argument("--player", metavar="PLAYER", help="human, random or MODULE:FUNCTION (human)")
    parser.add_argument("--episodes", type=at_least(1), default=20, metavar="N", help="how many episodes (20)")
    fps = "frames per second for a person (the environment's)"
    parser.add_argument("--fps", type=at_least(1.0), metavar="FPS", help=fps)
    add_run_flags(parser, "directory of a run, whose agent plays")


def run(options: Namespace) -> None:
    """Record, and print where the dataset is."""
    find_modules(options, always=bool(options.player))
    if not options.dataset:
        raise UsageError("record needs --dataset: a new directory, or an id such as falling_blocks/human-v0")
    if options.base_dir and options.player:
        raise UsageError("--base_dir and --player exclude each other: a trained agent plays, or somebody else")
    with usage_errors():
        recording = _agents_recording(options) if options.base_dir else _players_recording(options)
    try:
        written = recording()
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"the episodes that had ended are in {options.dataset}, if there were any") from None
    print(dataset_summary(written, options.dataset))


def _agents_recording(options: Namespace) -> Recording:
    runner = build_runner(options, existing_run(options, "record"))
    length = {"episodes": options.episodes, "seed": runner.seed, "max_frames": runner.max_steps_per_episode}
    return record_agent(runner.trained_agent(), runner.environment, options.dataset, **length)


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

"""Record episodes of a person, of a script or of a trained agent to a Minari dataset."""

from __future__ import annotations

import inspect
from argparse import Namespace

import gin

from agents.cli.configuration import (
    RENDER_MODES,
    add_base_dir,
    add_gin_flags,
    add_seed,
    build_runner,
    existing_run,
    find_named_modules,
    load_gin,
    refuse_unread,
)
from agents.cli.failures import usage_errors
from agents.cli.flags import Parser, UsageError, number, whole_number
from agents.cli.import_dataset import dataset_summary
from agents.experiment.record_demonstrations import Recording, bound_environment, record_agent, record_player
from agents.experiment.runner import Runner

__all__ = ["add_flags", "run"]

LONGEST_EPISODE = inspect.signature(Runner).parameters["max_steps_per_episode"].default  # frames, where none is bound


def add_flags(parser: Parser) -> None:
    """Add the flags of ``record``."""
    parser.add_argument("--dataset", metavar="NAME_OR_DIR", help="a new dataset, an id or a directory")
    parser.add_argument("--player", metavar="PLAYER", help="human, random or MODULE:FUNCTION (human)")
    parser.add_argument("--episodes", type=whole_number(1), default=20, metavar="N", help="how many episodes (20)")
    parser.add_argument(
        "--fps", type=number(1), metavar="FPS", help="frames per second for a person (the environment's)"
    )
    add_base_dir(parser, "directory of a run, whose agent plays")
    add_gin_flags(parser)
    add_seed(parser)


def run(options: Namespace) -> None:
    """Record, and print where the dataset is."""
    find_named_modules(options, always=bool(options.player))
    if not options.dataset:
        raise UsageError("record needs --dataset: a new directory, or an id such as falling_blocks/human-v0")
    if options.base_dir and options.player:
        raise UsageError("--base_dir and --player exclude each other: a trained agent plays, or somebody else")
    with usage_errors():
        recording = _agents_recording(options) if options.base_dir else _players_recording(options)
    try:
        written = recording.run()
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"the episodes that had ended are in {options.dataset}, if there were any") from None
    print(dataset_summary(written, options.dataset))


def _agents_recording(options: Namespace) -> Recording:
    runner = build_runner(options, existing_run(options, "record"))
    length = {"episodes": options.episodes, "seed": runner.seed, "max_frames": runner.max_steps_per_episode}
    return record_agent(runner.trained_agent(), runner.environment, options.dataset, **length)


def _players_recording(options: Namespace) -> Recording:
    player = options.player or "human"
    loaded = load_gin(options, [f"{name} = 'rgb_array'" for name in RENDER_MODES] if player == "human" else [])
    refuse_unread(options, loaded.unread())
    return record_player(
        bound_environment(),
        options.dataset,
        player,
        episodes=options.episodes,
        seed=options.seed or 0,
        max_frames=gin.get_bindings("Runner").get("max_steps_per_episode", LONGEST_EPISODE),
        fps=options.fps,
    )

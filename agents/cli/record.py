"""The command ``record``: episodes as a Minari dataset."""

from __future__ import annotations

import inspect
from argparse import Namespace
from pathlib import Path

import gin

from async_wrappers.agents.cli.configuration import (
    agent_file,
    build_runner,
    existing_run,
    find_modules,
    load_run,
    place_of_agent,
    refuse_without_display,
    render_bindings,
)
from async_wrappers.agents.cli.flags import UsageError, usage_errors
from async_wrappers.agents.cli.import_dataset import dataset_summary
from async_wrappers.agents.experiment.pretraining import Recording, bound_environment, record_agent, record_player
from async_wrappers.agents.play.run_settings import Runner
from async_wrappers.wrapper_statistics import frozen

LONGEST_EPISODE = inspect.signature(Runner).parameters["max_steps_per_episode"].default  # frames, where none is bound


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

"""Another run, with its own gin configuration: one that is loaded, or a teacher that is trained."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import torch

from async_wrappers.agents.config.config import (
    CONFIG,
    ConfigError,
    empty_gin,
    load_config,
    needed_bindings,
    own_places,
)
from async_wrappers.agents.config.gin_text import PACKAGE, add_places
from async_wrappers.agents.config.unread import ByName
from async_wrappers.agents.play.turns.agents import Agent
from async_wrappers.agents.trained.agent_file import agent_path, is_agent_file, no_such_agent
from async_wrappers.wrapper_statistics import freeze

_create_runner = ByName("agents.create_runner")


@contextmanager
def other_run(
    base_dir: Path,
    gin_file: str | None = None,
    gin_bindings: Sequence[str] = (),
    *,
    own_bindings: Sequence[str] = (),
    saved: Path | None = None,
    trust: bool = False,
) -> Iterator[Any]:
    """Make the runner of a directory, while gin holds the configuration of its run; the caller's is restored
    afterwards.

    Args:
        base_dir: The run's directory, whose configuration is taken if it has one.
        gin_file: The configuration otherwise.
        gin_bindings: The user's, which win over both.
        own_bindings: The program's, which win over all.
        saved: The run's configuration, where it lies elsewhere than in its directory.
        trust: Let the directory's configuration import any module, and not those alone that are imported already.

    Raises:
        ConfigError: The configuration cannot be used, or nothing reads one of the user's bindings.
    """
    saved, threads = saved or base_dir / CONFIG, torch.get_num_threads()
    files = [] if gin_file is None or saved.is_file() else [gin_file]
    try:
        with empty_gin():
            loaded = load_config(
                files,
                gin_bindings,
                own_bindings=own_bindings,
                saved=saved,
                search_paths=[PACKAGE] if files else [],
                trusted=None if trust else tuple(sys.modules),
            )
            own = replace(loaded, given=[each for each in loaded.given if not each.from_file])
            for source, reason in own.unread().values():
                raise ConfigError(f"{source}: {reason}")
            with needed_bindings(gin_file if files else saved):
                runner = _create_runner(base_dir)
            yield runner
    finally:
        torch.set_num_threads(threads)  # the run's hold inside alone


def trained_agent(
    path: Path,
    gin_bindings: Sequence[str] = (),
    *,
    trust: bool = False,
) -> tuple[Agent, gym.Env[Any, Any]]:
    """Return the agent of a run, in evaluation, and its environment; see `async_wrappers.agents.load.load_agent`."""
    if isinstance(gin_bindings, str):
        raise ValueError(f"gin_bindings must be a list, such as ['RealtimeDelay.delay = 4'], got {gin_bindings!r}")
    given, path = path, agent_path(path)
    if not os.path.exists(path):
        raise ValueError(no_such_agent("base_dir", path, f"a run's directory (with a {CONFIG}) or checkpoint, "))
    base_dir, checkpoint = (path.parent.parent, path) if path.is_file() else (path, None)
    saved = base_dir / CONFIG
    if is_agent_file(path) and path.is_file():  # which has both, and no directory
        base_dir, saved = path.with_suffix(""), path
    if not saved.is_file():
        raise ValueError(f"base_dir must hold a run (a {CONFIG}), got {str(given)!r}")
    add_places(own_places(saved, [], gin_bindings, (), trust=trust))
    with other_run(base_dir, None, gin_bindings, saved=saved, trust=trust) as runner:
        agent: Agent = runner.trained_agent(checkpoint)
    agent.eval_mode = True
    freeze(runner.environment)
    return agent, runner.environment

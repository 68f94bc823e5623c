"""A trained agent, for use outside `train.py`: `load_agent` loads one that ships or that of a run, and `play_episode`
lets it play.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym

import async_wrappers.agents.configurables  # noqa: F401  # for its effect: a run's configuration names them
from async_wrappers.agents.experiment.other_run import trained_agent
from async_wrappers.agents.play.turns.agents import Agent
from async_wrappers.agents.play.turns.turns import play_episode as play_episode  # offered here
from async_wrappers.files import path_of


def load_agent(
    base_dir: str | Path, gin_bindings: Sequence[str] = (), *, trust: bool = False
) -> tuple[Agent, gym.Env[Any, Any]]:
    """Load a trained agent and its environment: one that ships, one of a file, or that of a run of `train.py`.

    Of a run the weights are those of the newest good checkpoint. Neither depends on gin afterwards, and gin's
    configuration is again the caller's.

    Example:
        >>> from async_wrappers.agents.load import load_agent, play_episode
        >>> agent, env = load_agent("minatar/breakout")  # doctest: +SKIP
        >>> play_episode(agent, env, seed=0).score  # doctest: +SKIP
        >>> agent, env = load_agent("results/run", ["RealtimeDelay.delay = 4"])  # doctest: +SKIP

    Args:
        base_dir: The name of an agent that ships, such as ``"cartpole"``; a ``.safetensors`` file of ``train.py
            export``; a run's directory, in which nothing is changed; or one of its checkpoints
            (``checkpoints/ckpt.N``), whose weights are loaded. A file or a run that is there wins over a name.
        gin_bindings: These win over the run's configuration, such as ``"RealtimeDelay.delay = 4"`` or
            ``"create_atari_environment.render_mode = 'rgb_array'"``.
        trust: Let the configuration of run or file import any module. It is code: otherwise it may import this
            project's modules, those that the bindings import (``"import my_environments"``), and those that the caller
            has imported already. Modules are also searched in the directory where the run found them, which is added at
            the end of ``sys.path``.

    Returns:
        The agent, in evaluation, and the environment in its wrappers, whose statistics are frozen. Those of a live run
        are turn-based.

    Raises:
        ValueError: There is no such agent (the sentence names those that ship), a damaged file, no good checkpoint, a
            binding that does not fit, or a configuration that imports unnamed modules, none of which has run then.
    """
    return trained_agent(path_of(base_dir), gin_bindings, trust=trust)

"""Recording demonstrations: of a person, of a script, or of an agent that a run has trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gin
import gymnasium as gym
import numpy as np

from agents.agent import Agent
from agents.demonstrations.dataset import DatasetWriter
from agents.demonstrations.demonstration import read_demonstrations
from agents.demonstrations.playback import frames_of
from agents.demonstrations.players import make_player, play_by_hand, play_frames
from agents.demonstrations.recorder import Recorder
from agents.experiment.episode import episode_seed, play_episode

__all__ = ["bound_environment", "import_demonstrations", "record_agent", "record_player"]

_RECORDED = 3  # after the phases: episodes have seeds of their own


def bound_environment() -> gym.Env[Any, Any]:
    """Make the environment that ``Runner.create_environment_fn`` is bound to, without a runner and its agent.

    Raises:
        ValueError: None is bound.
    """
    create = gin.get_bindings("Runner").get("create_environment_fn")
    if create is None:
        raise ValueError("Runner.create_environment_fn must be bound to record: name a configuration with --gin_files")
    environment: gym.Env[Any, Any] = create()
    return environment


def record_player(
    environment: gym.Env[Any, Any],
    dataset: str,
    player: str,
    *,
    episodes: int,
    seed: int = 0,
    max_frames: int | None = None,
    fps: float | None = None,
) -> DatasetWriter:
    """Record an environment's frames: what its delay wraps, played without it.

    What is finished is kept also where this is interrupted or fails.

    Args:
        environment: Any; its delay is taken off.
        dataset: See `DatasetWriter`.
        player: ``"human"`` (a window and the keyboard), ``"random"``, or ``"module:function"``, a function from the
            environment to a function from observation to action.
        episodes: How many; a person may end earlier, with ESC.
        seed: Of the episodes, and of a random player.
        max_frames: Frames after which an episode is cut; not of a person's.
        fps: Frames per second for a person, instead of the environment's.

    Raises:
        ValueError: The dataset exists, or there is no such player.
        gymnasium.error.DependencyNotInstalled: Minari is missing, or pygame for a person.
    """
    frames = frames_of(environment)
    seeds = [episode_seed(seed, _RECORDED, number) for number in range(episodes)]
    choose = None if player == "human" else make_player(player, frames, seed)
    with _writer(dataset, frames, player) as writer:
        recorder = Recorder(frames, writer.add)
        if choose is None:
            play_by_hand(recorder, seeds, fps)
            return writer
        for each in seeds:
            play_frames(recorder, choose, each, max_frames)
            recorder.cut()
    return writer


def record_agent(
    agent: Agent,
    environment: gym.Env[Any, Any],
    dataset: str,
    *,
    episodes: int,
    seed: int = 0,
    max_frames: int | None = None,
) -> DatasetWriter:
    """Record the frames of an agent that plays under its own delay; default actions are written down as they come."""
    agent.eval_mode = True
    with _writer(dataset, frames_of(environment), type(agent).__name__) as writer:
        environment, recorder = Recorder.inside(environment, writer.add)
        for number in range(episodes):
            play_episode(agent, environment, episode_seed(seed, _RECORDED, number), max_frames)
            recorder.cut()
    return writer


def import_demonstrations(source: str, dataset: str) -> DatasetWriter:
    """Write the episodes of a pickle (or of another dataset) into a dataset of its own.

    Raises:
        ValueError: The source cannot be read, its episodes differ in what they observe, or the dataset exists.
        gymnasium.error.DependencyNotInstalled: Minari is missing.
    """
    episodes = list(read_demonstrations(source))
    first = episodes[0].observations
    if {(episode.observations.dtype, episode.observations.shape[1:]) for episode in episodes} != {
        (first.dtype, first.shape[1:])
    }:
        raise ValueError(f"{source} holds episodes with observations of several shapes or types: import them apart")
    whole = np.issubdtype(first.dtype, np.integer)
    low, high = (np.iinfo(first.dtype).min, np.iinfo(first.dtype).max) if whole else (-np.inf, np.inf)
    observation_space = gym.spaces.Box(low, high, first.shape[1:], first.dtype.type)
    action_space = gym.spaces.Discrete(int(max(episode.actions.max() for episode in episodes)) + 1)
    with DatasetWriter(dataset, observation_space, action_space, player=Path(source).name) as writer:
        for episode in episodes:
            writer.add(episode)
    return writer


def _writer(dataset: str, frames: gym.Env[Any, Any], player: str) -> DatasetWriter:
    return DatasetWriter(dataset, frames.observation_space, frames.action_space, spec=_spec(frames), player=player)


def _spec(environment: gym.Env[Any, Any]) -> Any:
    try:
        return environment.spec
    except Exception:  # a wrapper that does not tell its arguments
        return None

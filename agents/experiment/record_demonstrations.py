"""Recording demonstrations: of a person, of a script, or of an agent that a run has trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gin
import gymnasium as gym
import numpy as np

from agents.agent import Agent
from agents.demonstrations.dataset import DatasetWriter, read_demonstrations
from agents.demonstrations.playback import frames_of
from agents.demonstrations.players import Keyboard, Script, make_player
from agents.demonstrations.recorder import Recorder
from agents.experiment.episode import episode_seed, play_episode

__all__ = ["Recording", "bound_environment", "import_demonstrations", "record_agent", "record_player"]

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


class Recording:
    """Episodes that are still to be played.

    Args:
        environment: Where they are played; its frames are recorded, below its delay.
        writer: Where they go.
        play: Plays them, given the environment and the recorder below it.
    """

    def __init__(
        self,
        environment: gym.Env[Any, Any],
        writer: DatasetWriter,
        play: Callable[[gym.Env[Any, Any], Recorder], object],
    ) -> None:
        """See the class."""
        self._environment, self._writer, self._play = environment, writer, play

    def run(self) -> DatasetWriter:
        """Play and record; what has ended is kept also where this is interrupted or fails."""
        with self._writer:
            self._play(*Recorder.inside(self._environment, self._writer.add))
        return self._writer


def record_player(
    environment: gym.Env[Any, Any],
    dataset: str,
    player: str,
    *,
    episodes: int,
    seed: int = 0,
    max_frames: int | None = None,
    fps: float | None = None,
) -> Recording:
    """Prepare to record a player without delay: of what the environment's delay wraps.

    Args:
        environment: Any.
        dataset: See `DatasetWriter`.
        player: ``"human"`` (a window and the keyboard), ``"random"``, or ``"module:function"``, a function from the
            environment to a function from observation to action.
        episodes: How many; a person may end earlier, with ESC.
        seed: Of the episodes, and of a random player.
        max_frames: Frames after which an episode is cut; not of a person's.
        fps: Frames per second for a person, instead of the environment's.

    Raises:
        ValueError: The dataset exists, there is no such player, or a person cannot play this.
        gymnasium.error.DependencyNotInstalled: Minari is missing, or pygame for a person.
    """
    frames, seeds = frames_of(environment), _seeds(seed, episodes)
    playing = Keyboard(frames, fps) if player == "human" else Script(make_player(player, frames, seed), max_frames)
    return Recording(environment, _writer(dataset, frames, player), lambda _, recorder: playing.play(recorder, seeds))


def record_agent(
    agent: Agent,
    environment: gym.Env[Any, Any],
    dataset: str,
    *,
    episodes: int,
    seed: int = 0,
    max_frames: int | None = None,
) -> Recording:
    """Prepare to record the frames of an agent that plays under its own delay, default actions among them.

    Raises:
        ValueError: The dataset exists.
        gymnasium.error.DependencyNotInstalled: Minari is missing.
    """
    agent.eval_mode = True

    def play(played: gym.Env[Any, Any], recorder: Recorder) -> None:
        for each in _seeds(seed, episodes):
            play_episode(agent, played, each, max_frames)
            recorder.truncate_episode()

    return Recording(environment, _writer(dataset, frames_of(environment), type(agent).__name__), play)


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
    observation_space = gym.spaces.Box(*_limits(first.dtype), first.shape[1:], first.dtype.type)
    action_space = gym.spaces.Discrete(int(max(episode.actions.max() for episode in episodes)) + 1)
    with DatasetWriter(dataset, observation_space, action_space, player=Path(source).name) as writer:
        for episode in episodes:
            writer.add(episode)
    return writer


def _limits(dtype: np.dtype[Any]) -> tuple[float, float]:
    if np.issubdtype(dtype, np.integer):
        return np.iinfo(dtype).min, np.iinfo(dtype).max
    return (0, 1) if dtype == np.bool_ else (-np.inf, np.inf)


def _seeds(seed: int, episodes: int) -> list[int]:
    return [episode_seed(seed, _RECORDED, number) for number in range(episodes)]


def _writer(dataset: str, frames: gym.Env[Any, Any], player: str) -> DatasetWriter:
    return DatasetWriter(dataset, frames.observation_space, frames.action_space, spec=_spec(frames), player=player)


def _spec(environment: gym.Env[Any, Any]) -> Any:
    try:
        return environment.spec
    except Exception:  # a wrapper that does not record its arguments
        return None

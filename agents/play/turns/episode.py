"""Playing one episode: an agent and an environment take turns."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any

import gymnasium as gym

from async_wrappers.agents.play.play import Episode, checksum, is_game_over
from async_wrappers.agents.timing import PartTimes
from async_wrappers.checks import reward_of
from async_wrappers.gymnasium_api import stepped

if TYPE_CHECKING:
    from async_wrappers.agents.play.turns.agents import Agent


class Running:
    """The running episode, as other threads see it.

    Args:
        is_cut: Returns whether it is to be cut at its next decision.

    Attributes:
        frames: Stepped so far.
        is_cut: As given.
    """

    def __init__(self, is_cut: Callable[[], bool] = lambda: False) -> None:
        """Begin before the first frame."""
        self.frames, self.is_cut = 0, is_cut


class EpisodeCut(Exception):
    """An episode was cut because the run ends.

    Attributes:
        frames: Frames stepped.
        actions: The agent's actions that took effect.
    """

    def __init__(self, frames: int, actions: int) -> None:
        super().__init__()
        self.frames, self.actions = frames, actions


def play_episode(
    agent: Agent,
    environment: gym.Env[Any, Any],
    seed: int,
    max_frames: int | None = None,
    times: PartTimes | None = None,
    running: Running | None = None,
) -> Episode:
    """Play one episode; where ``info["game_over"]`` is False at its end, the rest of the game is played too.

    Each life is then an episode of the agent, and the result is that of the game.

    Args:
        agent: Asked for each action; it learns if its ``eval_mode`` is False.
        environment: Any environment; ``info["realtime"]`` and ``info["episode_return"]`` are used where it gives them.
        seed: For ``environment.reset``.
        max_frames: Truncate the episode at the end of the step that reaches this number of frames.
        times: Where the time of the steps is counted.
        running: Where the frames are counted, and which may cut the episode.

    Raises:
        EpisodeCut: The episode was cut; to the agent it was truncated.
    """
    times, running = times or PartTimes(), running or Running()
    observation, info = environment.reset(seed=seed)
    action = agent.begin_episode(observation, info.get("realtime"))
    score, frames, actions = 0.0, 0, 0
    before = 0  # frames of the game's earlier lives
    while True:
        begin = perf_counter()
        observation, reward, terminated, truncated, info = stepped(environment, action)
        times.add("Step", begin)
        realtime = info.get("realtime")
        running.frames = frames = frames + 1 if realtime is None else before + int(realtime["frame"])
        actions += realtime is None or bool(realtime["applied"])
        reward = reward if type(reward) is float else reward_of(reward)
        score += reward
        limited = max_frames is not None and frames >= max_frames
        over = terminated or truncated or limited
        if not (over or running.is_cut()):
            action = agent.step(reward, observation, realtime)
            continue
        agent.end_episode(reward, bool(terminated), observation, realtime)
        if limited or (over and is_game_over(info)):
            break
        if running.is_cut():
            raise EpisodeCut(frames, actions)
        before = frames
        observation, begun = environment.reset()  # without a seed: the game continues
        action = agent.begin_episode(observation, begun.get("realtime"))
    won = info.get("won")
    return Episode(float(info.get("episode_return", score)), frames, actions, None if won is None else bool(won))


class Watched:
    """An environment that is played, with a checksum of the observations and actions since a seed was given.

    Args:
        environment: What is played.

    Attributes:
        digest: The checksum.
    """

    def __init__(self, environment: gym.Env[Any, Any]) -> None:
        self._environment, self.digest = environment, 0

    def reset(self, **arguments: Any) -> Any:
        """Reset the environment; with a seed the checksum begins anew."""
        if "seed" in arguments:
            self.digest = 0
        observation, info = self._environment.reset(**arguments)
        self.digest = checksum(observation, self.digest)
        return observation, info

    def step(self, action: Any) -> Any:
        """Step the environment."""
        step = self._environment.step(action)
        self.digest = checksum(step[0], checksum(action, self.digest))
        return step

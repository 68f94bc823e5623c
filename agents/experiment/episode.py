"""Playing one episode: the loop between an agent and an environment."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from agents.agent import Agent

__all__ = ["Episode", "Phase", "episode_seed", "play_episode"]


class Phase(IntEnum):
    """What an episode is played for; each phase has seeds of its own."""

    TRAIN = 0
    EVAL = 1
    FINAL = 2


class Episode(NamedTuple):
    """The result of an episode.

    Attributes:
        score: Unclipped return.
        frames: Frames stepped.
        actions: Of the agent's that took effect.
        won: Whether it was won, where the environment's last ``info`` says so (``"won"``), else None.
    """

    score: float
    frames: int
    actions: int = 0
    won: bool | None = None


def episode_seed(seed: int, phase: int, number: int) -> int:
    """Return the environment seed of episode `number` of `phase` in a run with seed `seed`.

    No environment state is ever saved: a resumed run seeds its episodes as an uninterrupted one does.
    """
    return int(np.random.SeedSequence((seed, int(phase), number)).generate_state(1)[0]) & 0x7FFFFFFF


def play_episode(agent: Agent, environment: gym.Env[Any, Any], seed: int, max_frames: int | None = None) -> Episode:
    """Play one episode.

    Args:
        agent: Asked for each action; it learns if its ``eval_mode`` is False.
        environment: Any environment; ``info["realtime"]`` and ``info["episode_return"]`` are used where it gives them.
        seed: For ``environment.reset``.
        max_frames: Cut the episode at the end of the step that reaches so many frames (a truncation).
    """
    observation, info = environment.reset(seed=seed)
    action = agent.begin_episode(observation, info.get("realtime"))
    score, frames, actions = 0.0, 0, 0
    while True:
        observation, reward, terminated, truncated, info = environment.step(action)
        realtime = info.get("realtime")
        frames = frames + 1 if realtime is None else int(realtime["frame"])
        actions += realtime is None or bool(realtime["applied"])
        score += float(reward)
        if terminated or truncated or (max_frames is not None and frames >= max_frames):
            break
        action = agent.step(float(reward), observation, realtime)
    agent.end_episode(float(reward), bool(terminated), observation, realtime)
    return Episode(float(info.get("episode_return", score)), frames, actions, info.get("won"))

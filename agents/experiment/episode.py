"""Playing episodes, and the statistics of a phase other than its returns.

These are actions per frame, updates per action, wins, losses and encounters. As in the published runs of arXiv
2412.14355, a win is an episode of which the environment says so (``info["won"]``), and in an environment that goes from
encounter to encounter a win passes one (it has an attribute ``encounter``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import gymnasium as gym
import numpy as np

if TYPE_CHECKING:
    from async_wrappers.agents.agent import Agent  # it imports PyTorch, which figures of a sweep need not wait for


__all__ = [
    "Episode",
    "Phase",
    "Played",
    "closing_line",
    "encounter_of",
    "episode_seed",
    "facts",
    "frames_of",
    "go_to_encounter",
    "note_standing",
    "play_episode",
]


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


def episode_seed(seed: int, phase: int, number: int, env_id: int = 0) -> int:
    """Return the environment seed of episode `number` of `phase` in a run with seed `seed`.

    Where many environments are played at once the number is of the episodes of environment `env_id` alone.
    No environment state is ever saved: a resumed run seeds its episodes as an uninterrupted one does.
    """
    entropy = (seed, int(phase), number, env_id) if env_id else (seed, int(phase), number)
    return int(np.random.SeedSequence(entropy).generate_state(1)[0]) & 0x7FFFFFFF


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


class Played(NamedTuple):
    """A phase: its episodes, the actions of the agent's that took effect, updates, and the next encounter.

    `frames` are the frames stepped, where they are others than those of the episodes that have ended. `timing` are
    figures of a live phase, by name.
    """

    episodes: list[Episode]
    actions: int
    updates: int
    encounter: int | None = None
    frames: int | None = None
    timing: Mapping[str, float] | None = None


def frames_of(played: Played) -> int:
    """Return the frames of a phase."""
    return sum(episode.frames for episode in played.episodes) if played.frames is None else played.frames


def note_standing(frame: int | None, status: Any) -> dict[str, Any] | None:
    """Note how a live run stands as one frame begins, as the published runner does; see `AsyncRunner.run`.

    Args:
        frame: Of training, all iterations counted.
        status: Of the phase.

    Returns:
        The counts of the phase as plain data, on that frame alone.
    """
    if status.frame != frame:
        return None
    names = ("frame", "episodes", "wins", "losses", "score", "actions", "updates")
    return {**{name: getattr(status, name) for name in names}, "encounter": status.phase_state}


def encounter_of(environment: gym.Env[Any, Any]) -> int | None:
    """Return the number of the next encounter; None where the environment has no order of them."""
    return environment.get_wrapper_attr("encounter") if environment.has_wrapper_attr("encounter") else None


def go_to_encounter(environment: gym.Env[Any, Any], encounter: int | None = None) -> None:
    """Let an environment that has an order of encounters go on from one, or begin with its first."""
    if encounter_of(environment) is not None:
        environment.set_wrapper_attr("encounter", encounter, force=False)


def facts(played: Played) -> dict[str, Any]:
    """Return what a phase came to, by name; wins and losses where an episode was one, an encounter where there is."""
    frames = frames_of(played)
    found: dict[str, Any] = {
        "actions": played.actions,
        "actions_per_frame": played.actions / max(frames, 1),
        "updates": played.updates,
        "updates_per_action": played.updates / max(played.actions, 1),
    }
    if played.encounter is not None or any(episode.won is not None for episode in played.episodes):
        found["wins"] = sum(episode.won is True for episode in played.episodes)
        found["losses"] = sum(episode.won is False for episode in played.episodes)
    if played.encounter is not None:
        found["encounter"] = played.encounter
    return found | dict(played.timing or {})


def closing_line(history: Sequence[Mapping[str, Any]]) -> str:
    """Say in a line what the training phases of a run came to, from the statistics of its iterations."""
    frames = max(_each(history, "frames"), default=sum(map(sum, _each(history, "train_episode_lengths"))))
    actions, updates = sum(_each(history, "train_actions")), sum(_each(history, "train_updates"))
    episodes = sum(map(len, _each(history, "train_episode_lengths")))
    parts = [f"training: {episodes} episodes, {frames} frames"]
    if any("train_wins" in line for line in history):
        wins, losses = sum(_each(history, "train_wins")), sum(_each(history, "train_losses"))
        parts.append(f"{wins} wins, {losses} losses")
    if history and "train_encounter" in history[-1]:
        parts.append(f"at encounter {history[-1]['train_encounter']}")
    ratios = f"{actions / max(frames, 1):.3f} actions per frame, {updates / max(actions, 1):.3f} updates per action"
    return "; ".join([*parts, ratios])


def _each(history: Iterable[Mapping[str, Any]], name: str) -> list[Any]:
    """Return a number of each iteration that has it: older ones do not count all that newer ones do."""
    return [line[name] for line in history if name in line]

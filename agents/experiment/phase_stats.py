"""What a run comes to beside its returns: actions per frame, updates per action, wins, losses, encounters.

As in the published runs of arXiv 2412.14355, a win is an episode of which the environment says so
(``info["won"]``), and in an environment that goes from encounter to encounter a win passes one (it has an attribute
``encounter``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium as gym

from agents.experiment.episode import Episode

__all__ = ["Played", "StandingAt", "closing_line", "encounter_of", "facts", "go_to_encounter"]


class Played(NamedTuple):
    """A phase: its episodes, the actions of the agent's that took effect, updates, and the next encounter."""

    episodes: list[Episode]
    actions: int
    updates: int
    encounter: int | None = None


class StandingAt:
    """Notes how a live run stands as one frame begins, as the published runner does; see `AsyncRunner.run`.

    Args:
        frame: Of training, all iterations counted.
    """

    def __init__(self, frame: int | None) -> None:
        """See the class."""
        self._frame = frame

    def __call__(self, status: Any) -> dict[str, Any] | None:
        """Return the counts of the phase as plain data, on that frame alone."""
        if status.frame != self._frame:
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
    frames = sum(episode.frames for episode in played.episodes)
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
    return found


def closing_line(history: Sequence[Mapping[str, Any]]) -> str:
    """Say in a line what the training phases of a run came to, from the statistics of its iterations."""
    frames = sum(map(sum, _each(history, "train_episode_lengths")))
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

"""A phase's statistics, and a run's, in words."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import torch

from async_wrappers.agents.demonstrations.demonstration import delay_in_words
from async_wrappers.agents.experiment.checkpoint import compute_of
from async_wrappers.agents.play.play import (
    Episode,
    Length,
    Phase,
    Played,
    environment_in_words,
    frames_of,
)
from async_wrappers.agents.play.runner import Runner
from async_wrappers.agents.timing import PARTS, SUMMED_UP


def run_in_words(settings: Runner, environment: gym.Env[Any, Any], agent: Any) -> dict[str, str]:
    """Return facts of a run: environment, agent, delay, device, what was chosen for it, seed."""
    identity = agent.identity()
    weights = sum(math.prod(shape) for shape in (identity.get("network") or {}).values())
    return {
        "environment": environment_in_words(environment),
        "agent": str(identity["agent"]) + (f", {weights:,} weights" if weights else ""),
        "delay": delay_in_words(environment),
        "device": _device_in_words(agent, settings.threads),
        **_chosen_in_words(agent),
        "seed": str(settings.seed),
    }


def _device_in_words(agent: Any, threads: int) -> str:
    """Return what networks compute on, and the threads of this process."""
    compute = compute_of(agent)
    device = torch.device("cpu") if compute is None else compute.torch_device
    card = f" ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else ""
    return f"{device}{card}, {threads} thread{'s' if threads > 1 else ''}"


def _chosen_in_words(agent: Any) -> dict[str, str]:
    """Return the run's automatic choices, in words: the capacity of a queue, the precision if it is automatic."""
    compute, words = compute_of(agent), dict[str, str]()
    queue = getattr(getattr(getattr(agent, "learner", None), "replay", None), "queue_in_words", None)
    if queue is not None and (room := queue()) is not None:
        words["queue"] = room
    if compute is not None and compute.automatic:
        words["precision"] = compute.precision_in_words()
    return words


def lengths_in_words(lengths: Mapping[Phase, Length]) -> str:
    """Return how long phases are, but for those that are left out."""
    kinds = {Phase.TRAIN: "training", Phase.EVAL: "evaluation"}
    return " and ".join(
        f"{length.episodes or length.frames:,} {kinds[phase]} {'episodes' if length.episodes else 'frames'}"
        for phase, length in lengths.items()
        if length.frames or length.episodes
    )


def different_episodes(episodes: Sequence[Episode]) -> int | None:
    """Return the number of different episodes; None where it is not known, as for live ones."""
    digests = {episode.digest for episode in episodes}
    return None if None in digests else len(digests)


def facts(played: Played) -> dict[str, Any]:
    """Return a phase's statistics by name; wins and losses if there were any, the encounter where there is one.

    A ratio is left out where there is nothing to divide by: offline updates are made without frames and actions.
    """
    frames = frames_of(played)
    found: dict[str, Any] = {"actions": played.actions, "updates": played.updates}
    if frames:
        found["actions_per_frame"] = played.actions / frames
    if played.actions:
        found["updates_per_action"] = played.updates / played.actions
    if played.encounter is not None or any(episode.won is not None for episode in played.episodes):
        found["wins"] = sum(episode.won is True for episode in played.episodes)
        found["losses"] = sum(episode.won is False for episode in played.episodes)
    if played.encounter is not None:
        found["encounter"] = played.encounter
    different = different_episodes(played.episodes)
    if different is not None and different < len(played.episodes):
        found["different_episodes"] = different
    return found | dict(played.timing or {})


def statistics_of(phase: Phase, played: Played, seconds: float) -> tuple[dict[str, Any], dict[str, float]]:
    """Return a phase's statistics for an iteration's line, and its scalars, under Dopamine's names."""
    name, tag, episodes = phase.name.lower(), phase.name.capitalize(), played.episodes
    scores, rate = [episode.score for episode in episodes], frames_of(played) / seconds
    line: dict[str, Any] = {f"{name}_episode_lengths": [episode.frames for episode in episodes]}
    line[f"{name}_episode_returns"] = scores
    scalars: dict[str, float] = {f"{tag}/NumEpisodes": len(episodes)}
    if scores:  # of many environments none need have ended an episode
        line[f"{name}_average_return"] = scalars[f"{tag}/AverageReturns"] = statistics.fmean(scores)
    line[f"{name}_average_steps_per_second"] = scalars[f"{tag}/AverageStepsPerSecond"] = rate
    return line | {f"{name}_{fact}": value for fact, value in facts(played).items()}, scalars


class TimesOfTraining:
    """The time of each part of training in this process.

    Attributes:
        seconds: Of all training phases.
        parts: Of each part, by its name.
    """

    def __init__(self) -> None:
        """See the class."""
        self.seconds = 0.0
        self.parts: dict[str, float] = {}

    def add(self, seconds: float, parts: Mapping[str, float]) -> None:
        """Add a training phase."""
        self.seconds += seconds
        for name, each in parts.items():
            self.parts[name] = self.parts.get(name, 0.0) + each

    def table(self, newest: Mapping[str, float]) -> str:
        """Return the parts with their shares, and the values that were reported after the last update."""
        whole = max(self.seconds, 1e-9)
        lines = [
            f"{f'time of {PARTS[name]}':<38}{self.parts[name]:>12,.1f} s{self.parts[name] / whole:>9.1%}"
            for name in PARTS
            if name in self.parts
        ]
        return "\n".join(lines + [f"{SUMMED_UP.get(name, name):<38}{value:>12,.6g}" for name, value in newest.items()])


def closing_line(history: Sequence[Mapping[str, Any]]) -> str:
    """Return a line on the training phases of a run, from the statistics of its iterations."""
    frames = max(_each(history, "frames"), default=sum(map(sum, _each(history, "train_episode_lengths"))))
    played = [line for line in history if line.get("phase") != "offline"]
    actions, updates = sum(_each(played, "train_actions")), sum(_each(played, "train_updates"))
    offline = sum(_each(history, "train_updates")) - updates
    episodes = sum(map(len, _each(history, "train_episode_lengths")))
    parts = [f"training: {episodes} episodes, {frames} frames"]
    if any("train_wins" in line for line in history):
        wins, losses = sum(_each(history, "train_wins")), sum(_each(history, "train_losses"))
        parts.append(f"{wins} wins, {losses} losses")
    if history and "train_encounter" in history[-1]:
        parts.append(f"at encounter {history[-1]['train_encounter']}")
    ratios = []
    if frames:
        ratios.append(f"{actions / frames:.3f} actions per frame")
    if actions:
        ratios.append(_updates_in_words(updates, actions))
    if offline:
        ratios.append(f"{offline:,} offline updates")
    return "; ".join([*parts, *([", ".join(ratios)] if ratios else [])])


def _updates_in_words(updates: int, actions: int) -> str:
    """Return updates per action, or the inverse where one update, as PPO's of a round, follows many actions."""
    if 0 < updates < 0.01 * actions:
        return f"{actions / updates:,.0f} actions per update"
    return f"{updates / actions:.3f} updates per action"


def _each(history: Iterable[Mapping[str, Any]], name: str) -> list[Any]:
    """Return a number of each iteration that has it: older ones do not count all that newer ones do."""
    return [line[name] for line in history if name in line]


def iteration_line(line: Mapping[str, Any]) -> str:
    """Summarize an iteration for a person."""
    came_to = f"{line['frames']} training frames"
    if line.get("phase") == "offline":
        came_to = f"{line['train_updates']} offline updates"
    parts = [f"iteration {line['iteration']}: {came_to}"]
    for phase in ("train", "eval"):
        if f"{phase}_average_return" in line:
            number, different = len(line[f"{phase}_episode_returns"]), line.get(f"{phase}_different_episodes")
            of_them = "" if different is None else f" ({different} different)"
            parts.append(
                f"{phase} return {line[f'{phase}_average_return']:.1f} over {number} episodes{of_them}, "
                f"{line[f'{phase}_average_steps_per_second']:.0f} frames/s"
            )
        if f"{phase}_wins" in line:
            parts.append(f"{line[f'{phase}_wins']} wins, {line[f'{phase}_losses']} losses")
    return "; ".join(parts)

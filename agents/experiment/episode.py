"""Playing episodes, and the statistics of a phase other than its returns.

These are actions per frame, updates per action, wins, losses and encounters. As in the published runs of arXiv
2412.14355, a win is an episode that the environment reports as won (``info["won"]``). In an environment with a sequence
of encounters (an attribute ``encounter``), a win passes one encounter.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from time import perf_counter
from typing import Any, NamedTuple
from zlib import crc32

import gymnasium as gym
import numpy as np

from async_wrappers.agents.play.agent import Agent
from async_wrappers.agents.timing import PartTimes
from async_wrappers.checks import reward_of

__all__ = [
    "Episode",
    "EpisodeCut",
    "Length",
    "NumberedEpisodes",
    "Phase",
    "Played",
    "Running",
    "Seeds",
    "Watched",
    "checksum",
    "closing_line",
    "different_episodes",
    "encounter_of",
    "environment_seed",
    "facts",
    "frames_of",
    "go_to_encounter",
    "is_game_over",
    "iteration_line",
    "lengths_in_words",
    "note_standing",
    "play_episode",
]


class Phase(IntEnum):
    """What an episode is played for; each phase has seeds of its own."""

    TRAIN = 0
    EVAL = 1
    FINAL = 2


class Episode(NamedTuple):
    """The result of an episode; where the agent's episodes are lives of a game, that of the whole game.

    Attributes:
        score: Unclipped return.
        frames: Frames stepped.
        actions: The agent's actions that took effect.
        won: Whether it was won, where the environment's last ``info`` reports it (``"won"``), else None.
        digest: Checksum of all observations and actions, by which two episodes of an evaluation are compared; None
            where it is not computed.
    """

    score: float
    frames: int
    actions: int = 0
    won: bool | None = None
    digest: int | None = None


def environment_seed(seed: int, phase: int, number: int, env_id: int = 0) -> int:
    """Return the environment seed of episode `number` of `phase` in a run with seed `seed`.

    Where many environments are played at once the number is of the episodes of environment `env_id` alone. Environment
    0 has the seeds of a live run, `async_wrappers.live.loop.loop.episode_seed`.
    No environment state is ever saved: a resumed run seeds its episodes as an uninterrupted one does.
    """
    entropy = (seed, int(phase), number, env_id) if env_id else (seed, int(phase), number)
    return int(np.random.SeedSequence(entropy).generate_state(1)[0]) & 0x7FFFFFFF


class Running:
    """The running episode, as other threads see it.

    Attributes:
        frames: Stepped so far.
        is_cut: Whether it is to be cut at its next decision.
    """

    def __init__(self) -> None:
        """See the class."""
        self.frames, self.is_cut = 0, False

    def cut(self) -> None:
        """Let the episode be cut at its next decision."""
        self.is_cut = True


class EpisodeCut(Exception):
    """An episode was cut because the run ends.

    Attributes:
        frames: Frames stepped.
        actions: The agent's actions that took effect.
    """

    def __init__(self, frames: int, actions: int) -> None:
        """See the class."""
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
        observation, reward, terminated, truncated, info = environment.step(action)
        times.add("Step", begin)
        realtime = info.get("realtime")
        running.frames = frames = frames + 1 if realtime is None else before + int(realtime["frame"])
        actions += realtime is None or bool(realtime["applied"])
        reward = reward if type(reward) is float else reward_of(reward)
        score += reward
        limited = max_frames is not None and frames >= max_frames
        over = terminated or truncated or limited
        if not (over or running.is_cut):
            action = agent.step(reward, observation, realtime)
            continue
        agent.end_episode(reward, bool(terminated), observation, realtime)
        if limited or (over and is_game_over(info)):
            break
        if running.is_cut:
            raise EpisodeCut(frames, actions)
        before = frames
        observation, begun = environment.reset()  # without a seed: the game continues
        action = agent.begin_episode(observation, begun.get("realtime"))
    return Episode(float(info.get("episode_return", score)), frames, actions, info.get("won"))


def is_game_over(info: Mapping[str, Any]) -> bool:
    """Return whether an episode with this last info ends a game; a life that is lost need not (`EpisodicLife`)."""
    return bool(info.get("game_over", True))


class Length(NamedTuple):
    """The length of a phase: a number of episodes, or if that is None, at least a number of frames."""

    frames: int
    episodes: int | None


def lengths_in_words(lengths: Mapping[Phase, Length]) -> str:
    """Return how long phases are, but for those that are left out."""
    kinds = {Phase.TRAIN: "training", Phase.EVAL: "evaluation"}
    return " and ".join(
        f"{length.episodes or length.frames:,} {kinds[phase]} {'episodes' if length.episodes else 'frames'}"
        for phase, length in lengths.items()
        if length.frames or length.episodes
    )


class Watched:
    """An environment that is played, with a checksum of the observations and actions since a seed was given.

    Args:
        environment: What is played.

    Attributes:
        digest: The checksum.
    """

    def __init__(self, environment: gym.Env[Any, Any]) -> None:
        """See the class."""
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


def checksum(value: Any, before: int) -> int:
    """Return the checksum of the history and a further observation or action."""
    is_plain = isinstance(value, np.ndarray) and not value.dtype.hasobject
    return crc32(value.tobytes() if is_plain else pickle.dumps(value), before)


def different_episodes(episodes: Sequence[Episode]) -> int | None:
    """Return the number of different episodes; None where it is not known, as for live ones."""
    digests = {episode.digest for episode in episodes}
    return None if None in digests else len(digests)


class Played(NamedTuple):
    """A phase: its episodes, the agent's actions that took effect, updates, and the next encounter.

    `frames` are the frames stepped, where they differ from those of the finished episodes. `timing` are figures of a
    live phase, by name.
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
    """Record a live run's progress as one frame begins, as the published runner does; see `AsyncRunner.run`.

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
    """Return the number of the next encounter; None where the environment has no sequence of encounters."""
    return environment.get_wrapper_attr("encounter") if environment.has_wrapper_attr("encounter") else None


def go_to_encounter(environment: gym.Env[Any, Any], encounter: int | None = None) -> None:
    """Set the next encounter of an environment with a sequence of them, or begin with its first."""
    if encounter_of(environment) is not None:
        environment.set_wrapper_attr("encounter", encounter, force=False)


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


class NumberedEpisodes(gym.Wrapper[Any, Any, Any, Any]):
    """Seeds each episode of one of N environments by its number, and truncates it after `max_frames`.

    ``reset(seed=n * N + l)`` begins episode n of environment l; a reset without a seed begins the next one. So every
    episode is a function of the run's seed, the phase, n and l (`environment_seed`). Where ``info["game_over"]`` is
    False at an end, a reset without a seed begins the same episode's next life.

    Args:
        env: The environment.
        seed: The run's.
        phase: What the episodes are for.
        num_envs: N.
        max_frames: Frames after which an episode is truncated; None for no limit.
    """

    def __init__(
        self, env: gym.Env[Any, Any], seed: int, phase: int, num_envs: int, max_frames: int | None = None
    ) -> None:
        """See the class."""
        super().__init__(env)
        self._seed, self._phase, self._num_envs, self._max_frames = seed, phase, num_envs, max_frames
        self._number: int | None = None
        self._env_id = self._frames = self._before = 0  # frames of the episode, and of its lives before this one
        self._goes_on = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        goes_on, self._goes_on = self._goes_on, False
        if goes_on and seed is None:
            self._before = self._frames
            return self.env.reset(options=options)
        self._frames = self._before = 0
        if seed is not None:
            self._number, self._env_id = divmod(seed, self._num_envs)
        elif self._number is not None:
            self._number += 1
        else:
            return self.env.reset(options=options)
        seed = environment_seed(self._seed, self._phase, self._number, self._env_id)
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step, and truncate the episode if it has become too long."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        realtime = info.get("realtime")
        self._frames = self._frames + 1 if realtime is None else self._before + int(realtime["frame"])
        too_long = self._max_frames is not None and self._frames >= self._max_frames
        self._goes_on = terminated and not too_long and not is_game_over(info)
        if terminated and too_long and not is_game_over(info):
            info = {**info, "game_over": True}
        return observation, reward, terminated, truncated or (too_long and not terminated), info


@dataclass(frozen=True)
class Seeds:
    """Maps the numbers of episodes, one in each environment, to the seeds of the environments' resets.

    Attributes:
        seed: The run's.
        phase: What the episodes are for.
        whole: Whether the environments exist only as a vector.
        first: Number of the first environment.
        of_all: Environments of all learners.
    """

    seed: int
    phase: Phase
    whole: bool
    first: int
    of_all: int

    def __call__(self, numbers: Sequence[int]) -> list[int]:
        """Return the seed of each environment's reset."""
        of_envs = enumerate(numbers, self.first)
        if self.whole:
            return [environment_seed(self.seed, self.phase, number, env_id) for env_id, number in of_envs]
        return [number * self.of_all + env_id for env_id, number in of_envs]  # as `NumberedEpisodes` reads it

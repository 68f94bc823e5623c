"""What a way of playing takes and gives: phases, their lengths, episodes, seeds."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple
from zlib import crc32

import gymnasium as gym
import numpy as np


class Phase(IntEnum):
    """What an episode is played for; each phase has seeds of its own."""

    TRAIN = 0
    EVAL = 1
    FINAL = 2


class EpisodeResult(NamedTuple):
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


class EpisodeRow(NamedTuple):
    """A row of ``episodes.csv``.

    Attributes:
        phase: ``"train"`` or ``"eval"``.
        episode: Its number in its phase, over all iterations.
        iteration: In which it ended.
        score: Its unclipped return.
        length: Its frames.
        frames: Frames of training when it was over.
        updates: Updates when it was over; None where the learner is another process with its own count.
        seconds: Wall time since the run began, pauses between two sessions left out.
        won: Whether it was won; None where the environment does not report it.
    """

    phase: str
    episode: int
    iteration: int
    score: float
    length: int
    frames: int
    updates: int | None
    seconds: float
    won: bool | None = None


class DifferentExperiment(ValueError):
    """The directory holds checkpoints of an experiment that this one cannot continue."""


class CheckpointRefused(ValueError):
    """A checkpoint that was loaded, and from which learners in other processes cannot go on."""


class RunStopped(RuntimeError):
    """The game ended a phase before its time, as no action came for too long (`AsyncRunner.stop_after_missed`)."""


@dataclass
class PhaseCounts:
    """What a run has played so far. Its experiment keeps it in checkpoints; the way of playing counts.

    Attributes:
        encounters: The next one of each phase, which follows the order by itself; None where there are none.
        episodes: How many each phase has had.
        frames: Of training.
        cut_frames: Those of them in episodes that were cut, because the run ended.
    """

    encounters: dict[Phase, int | None]
    episodes: dict[Phase, int] = field(default_factory=lambda: dict.fromkeys(Phase, 0))
    frames: int = 0
    cut_frames: int = 0


def environment_seed(seed: int, phase: int, number: int, env_id: int = 0) -> int:
    """Return the environment seed of episode `number` of `phase` in a run with seed `seed`.

    Where many environments are played at once the number is of the episodes of environment `env_id` alone. Environment
    0 has the seeds of a live run, `async_wrappers.live.loop.loop.episode_seed`.
    No environment state is ever saved: a resumed run seeds its episodes as an uninterrupted one does.
    """
    entropy = (seed, int(phase), number, env_id) if env_id else (seed, int(phase), number)
    return int(np.random.SeedSequence(entropy).generate_state(1)[0]) & 0x7FFFFFFF


def is_game_over(info: Mapping[str, Any]) -> bool:
    """Return whether an episode with this last info ends a game; a life that is lost need not (`EpisodicLife`)."""
    return bool(info.get("game_over", True))


class Interruption(IntEnum):
    """Why a phase of training ends before its length is reached."""

    NOTHING = 0
    CHECKPOINT = 1  # by the clock: what runs goes on after it
    END = 2  # the run was asked to end: all episodes are cut


class Length(NamedTuple):
    """The length of a phase: a number of episodes, or if that is None, at least a number of frames."""

    frames: int
    episodes: int | None

    def is_reached(self, frames: float, episodes: float) -> bool:
        """Return whether a phase with so many frames and episodes is over."""
        return frames >= self.frames if self.episodes is None else episodes >= self.episodes

    def after(self, played: PlayedPhase) -> Length:
        """Return what is left of it."""
        frames = self.frames - frames_of(played)
        return Length(frames, None if self.episodes is None else self.episodes - len(played.episodes))


def checksum(value: Any, before: int) -> int:
    """Return the checksum of the history and a further observation or action."""
    is_plain = isinstance(value, np.ndarray) and not value.dtype.hasobject
    return crc32(value.tobytes() if is_plain else pickle.dumps(value), before)


class PlayedPhase(NamedTuple):
    """A phase, or a part of one: its episodes, the agent's actions that took effect, updates, and the next encounter.

    `frames` are the frames stepped, where they differ from those of the finished episodes. `timing` are figures of a
    live phase, by name. `times` are the seconds of the parts of training (`async_wrappers.agents.timing.PARTS`).
    `whole` says whether the phase is over.
    """

    episodes: list[EpisodeResult]
    actions: int
    updates: int
    encounter: int | None = None
    frames: int | None = None
    timing: Mapping[str, float] | None = None
    times: Mapping[str, float] = {}  # never changed
    whole: bool = True

    def and_then(self, later: PlayedPhase) -> PlayedPhase:
        """Return this part and the next one as one."""
        own = self.frames is later.frames is None
        return later._replace(
            episodes=[*self.episodes, *later.episodes],
            actions=self.actions + later.actions,
            updates=self.updates + later.updates,
            frames=None if own else frames_of(self) + frames_of(later),
            times={
                name: self.times.get(name, 0.0) + later.times.get(name, 0.0) for name in {**self.times, **later.times}
            },
        )

    def plain(self) -> dict[str, Any]:
        """Return it as plain data, for `of_plain`."""
        return {**self._asdict(), "episodes": [[*episode] for episode in self.episodes]}

    @classmethod
    def of_plain(cls, plain: Mapping[str, Any]) -> PlayedPhase:
        """Return what `plain` returned it of."""
        return cls(**{**plain, "episodes": [EpisodeResult(*each) for each in plain["episodes"]]})


NOTHING_PLAYED = PlayedPhase([], 0, 0)


def frames_of(played: PlayedPhase) -> int:
    """Return the frames of a phase."""
    return sum(episode.frames for episode in played.episodes) if played.frames is None else played.frames


def encounter_of(environment: gym.Env[Any, Any]) -> int | None:
    """Return the number of the next encounter; None where the environment has no sequence of encounters."""
    return environment.get_wrapper_attr("encounter") if environment.has_wrapper_attr("encounter") else None


def go_to_encounter(environment: gym.Env[Any, Any], encounter: int | None = None) -> None:
    """Set the next encounter of an environment with a sequence of them, or begin with its first."""
    if encounter_of(environment) is not None:
        environment.set_wrapper_attr("encounter", encounter, force=False)


def environment_in_words(environment: gym.Env[Any, Any]) -> str:
    """Return an environment's registered name, or that of its class."""
    spec = environment.unwrapped.spec
    return type(environment.unwrapped).__name__ if spec is None else spec.id


def delay_layer(environment: Any) -> Any:
    """Return the wrapper that turns frames into decisions, `RealtimeDelay`, or None if there is none.

    That of a vector is `VectorRealtimeDelay`.
    """
    while isinstance(environment, gym.Wrapper | gym.vector.VectorWrapper):
        # By name, since agents do not import the wrappers.
        if type(environment).__name__ in ("RealtimeDelay", "VectorRealtimeDelay"):
            return environment
        environment = environment.env
    return None


def delay_in_words(environment: Any) -> str:
    """Return the delay of an environment, or of a vector, in words: ``8 frames, 8 no-ops``, ``none`` and so on."""
    layer = delay_layer(environment)
    if layer is None:
        return "none"
    # Gymnasium's record of the arguments.
    given = getattr(layer, "_saved_kwargs", {})
    if given.get("per") == "frame" or not isinstance(given.get("delay", 0), int):  # of the rows of a vector
        return f"delays of each environment ({given.get('latency') or given['delay']})"
    longest = given.get("max_features_age")
    held = "" if longest is None else f", features up to {longest} frames old"
    if given.get("latency") is not None:
        workers = given.get("workers") or 1
        return (
            f"latency {given['latency']}, {workers} worker{'s' * (workers != 1)} at {given.get('fps')} frames/s{held}"
        )
    delay, noops, chunk = given.get("delay", 0), given.get("noops", 0), getattr(layer, "chunk", None)
    frames = f"{delay} frame{'s' * (delay != 1)}"
    if chunk is not None:  # whose actions take the place of no-ops
        return f"{frames}, chunks of {chunk.length}"
    return f"{frames}, {noops} no-op{'s' * (noops != 1)}{held}" if noops else frames + held if delay else "none"


Report = Callable[[str, float, int], None]
"""Receives (tag, value, training frames)."""

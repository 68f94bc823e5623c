"""A game whose log of actions says on which frame each decision landed, and a policy and learners that tell frames.

It imports nothing heavy, as processes of a live run import it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gymnasium.spaces import Discrete

from tests.worlds.recording_env import FRAME, RecordingEnv

__all__ = ["DEFAULT", "ENDS", "Keeping", "Starts", "Writing", "game", "reckoned", "told"]

DEFAULT = 9_999  # the action of a frame without one of the agent's
ENDS = ((True, False), (False, True))
Told = tuple[Any, ...]  # (start, effect, next start, next effect, reward, terminal) of a transition


def game(
    lengths: int | Sequence[int] = 9, ends: Sequence[tuple[bool, bool]] = ENDS, reuse: bool = False
) -> RecordingEnv:
    """Return a game for `Starts`."""
    return RecordingEnv(lengths, ends, action_space=Discrete(DEFAULT + 1), reuse=reuse)


def reckoned(log: Sequence[int], terminal: bool, final_start: int) -> list[Told]:
    """Return what an episode's transitions tell, from the actions that the game received, frame by frame."""
    landed = [(start, effect) for effect, start in enumerate(log) if start != DEFAULT]
    rows = []
    for number, (start, effect) in enumerate(landed):
        last = number == len(landed) - 1
        following = (final_start, len(log)) if last else landed[number + 1]
        began = 0 if number == 0 else effect
        rows.append((start, effect, *following, float(following[1] - began), last and terminal))
    return rows


def told(transition: Mapping[str, Any]) -> Told:
    """Return what a transition tells."""
    both = [transition["observation"], transition["next_observation"]]
    frames = [int(each[part][FRAME]) for each in both for part in ("start", "effect")]
    return *frames, transition["reward"], transition["terminal"]


class Starts:
    """Answers the frame that it sees: then the game's log holds the start of each decision, at its effect."""

    def act(self, observation: Any, decision: Any) -> Any:
        assert observation.shape == (3,)  # the policy reads the start alone
        return int(observation[FRAME])

    def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        pass

    def weights(self) -> Mapping[str, Any]:
        return {}


class Keeping:
    """Keeps all transitions, and learns nothing."""

    updates = 0
    ready = False

    def __init__(self) -> None:
        self.observed: list[Mapping[str, Any]] = []

    def observe(self, transition: Mapping[str, Any]) -> None:
        self.observed.append(transition)

    def update(self) -> Mapping[str, Any]:
        return {}

    def weights(self) -> Mapping[str, Any]:
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        pass


class Writing(Keeping):
    """Writes down the frames of each transition."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file

    def observe(self, transition: Mapping[str, Any]) -> None:
        with self._file.open("a") as file:
            print(*told(transition)[:4], file=file)

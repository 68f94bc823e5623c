"""The journal: transitions in shared memory, appended by the environment loop alone and read by all learners.

An entry is a decision: the observation behind its action, the action, the summed reward, the interval, and what the
policy leaves for the learner beside its action (extras), if it leaves anything. Its next
observation is that of the entry after it, so that each observation is kept once; after the last decision of an episode
an entry holds the final observation alone. When the journal is full the oldest entry goes; neither side waits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from async_wrappers.live.memory.block import Block, Codec

__all__ = ["Journal", "Numbered"]


class Numbered(NamedTuple):
    """A transition, and its number in the run."""

    number: int
    transition: dict[str, Any]


class Journal:
    """The last `capacity` entries.

    Args:
        block: Shared memory of `size(...)` bytes.
        observation_space: Of the observations.
        action_space: Of the actions.
        capacity: Entries kept, at least 3: two that are being written, and one to read.
        extras: What the policy leaves for the learner beside an action; None for nothing, which takes no byte.

    Raises:
        ValueError: `capacity` is too small.
    """

    def __init__(
        self,
        block: Block,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        capacity: int,
        extras: gym.spaces.Dict | None = None,
    ) -> None:
        """See the class."""
        if capacity < _WRITTEN + 1:
            raise ValueError(f"journal must be >= {_WRITTEN + 1} entries, got {capacity}")
        self._observation = Codec("observation_space", observation_space)
        self._action = Codec("action_space", action_space)
        self._extras = None if extras is None else Codec("extras", extras)
        self._capacity = capacity
        self._counts = block.array(np.int64, 2)  # entries complete, transitions complete
        self._entries = block.array(_entry(self._observation, self._action, self._extras), capacity, 64)
        self._views = [self._entries[k : k + 1] for k in range(capacity)]

    @classmethod
    def size(
        cls,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        capacity: int,
        extras: gym.spaces.Dict | None = None,
    ) -> int:
        """Return the bytes that a journal takes."""
        codecs = Codec("observation_space", observation_space), Codec("action_space", action_space)
        return 64 + _entry(*codecs, None if extras is None else Codec("extras", extras)).itemsize * capacity

    @property
    def transitions(self) -> int:
        """How many transitions are complete, those that have been overwritten included."""
        return int(self._counts[1])

    @property
    def entries(self) -> int:
        """How many entries are complete: the position after the newest one."""
        return int(self._counts[0])

    def apply(self, observation: Any, action: Any, extras: Any = None) -> None:
        """A decision takes effect: note what it saw, did and left, in the entry after the last complete one (or two).

        By the environment loop alone, as `close` and `end`. Call it before closing the decision before it.
        """
        entry = self._views[self._applied % self._capacity]
        self._observation.write(entry["observation"], observation)
        self._action.write(entry["action"], action)
        if self._extras is not None:
            self._extras.write(entry["extras"], extras)
        self._applied += 1

    def close(self, reward: float, interval: int) -> None:
        """The decision before the one applied last is complete: the next one took effect, or the final one is known."""
        self._complete(reward, interval, _RUNNING)

    def end(self, reward: float, interval: int, terminal: bool, final: Any) -> None:
        """The episode is over: the decision applied last is complete, and `final` is the observation after it."""
        entry = self._views[self._applied % self._capacity]
        self._observation.write(entry["observation"], final)
        entry["kind"] = _FINAL
        self._applied += 1
        self._complete(reward, interval, _TERMINAL if terminal else _TRUNCATED)
        self._counts[0] += 1

    def abandon(self) -> None:
        """The decision applied last will never be complete: the run ended in the middle of an episode.

        Where there is a decision before it, what it saw stays: it is that one's next observation.
        """
        complete = int(self._counts[0])
        if complete and self._views[(complete - 1) % self._capacity]["kind"] != _FINAL:
            self._views[complete % self._capacity]["kind"] = _FINAL
            complete += 1
            self._counts[0] = complete
        self._applied = complete

    def begin_writing(self) -> None:
        """Become the writer; what the one before, who may have died at any moment, left incomplete is abandoned."""
        self.abandon()
        # If there is an entry, the last one is final and the one before it the last transition.
        last = self._views[(self._applied - 2) % self._capacity]
        self._counts[1] = last["number"][0] + 1 if self._applied else 0

    def _complete(self, reward: float, interval: int, kind: int) -> None:
        number = int(self._counts[0])
        entry = self._views[number % self._capacity]
        entry["reward"], entry["interval"], entry["kind"] = reward, interval, kind
        entry["number"] = self._counts[1]
        self._counts[1] += 1
        self._counts[0] = number + 1

    def oldest(self) -> int:
        """Return the first entry that can still be read."""
        return max(0, int(self._counts[0]) + _WRITTEN - self._capacity)

    def read(self, position: int) -> tuple[int, Numbered | None]:
        """Return the position after `position` and the transition there, if there is one.

        The position comes back unchanged where nothing is complete yet; it jumps to the oldest entry where the writer
        has gone past it.
        """
        if position >= self._counts[0]:
            return position, None
        entry = self._views[position % self._capacity]
        kind = int(entry["kind"][0])
        numbered = None
        if kind != _FINAL:
            following = self._views[(position + 1) % self._capacity]
            transition: dict[str, Any] = {
                "observation": self._observation.read(entry["observation"]),
                "action": self._action.read(entry["action"]),
                "reward": float(entry["reward"][0]),
                "interval": int(entry["interval"][0]),
                "terminal": kind == _TERMINAL,
                "truncated": kind == _TRUNCATED,
                "next_observation": self._observation.read(following["observation"]),
            }
            if self._extras is not None:
                transition["extras"] = self._extras.read(entry["extras"])
            numbered = Numbered(int(entry["number"][0]), transition)
        oldest = self.oldest()
        return (oldest, None) if position < oldest else (position + 1, numbered)


_RUNNING, _TERMINAL, _TRUNCATED, _FINAL = range(4)
_WRITTEN = 2  # entries after the last complete one that the writer may be at


def _entry(observation: Codec, action: Codec, extras: Codec | None) -> np.dtype[Any]:
    fields: list[Any] = [
        ("number", np.int64),
        ("reward", np.float64),
        ("interval", np.int64),
        ("kind", np.int64),
        ("action", action.dtype),
        ("observation", observation.dtype),
    ]
    if extras is not None:
        fields.append(("extras", extras.dtype))
    return np.dtype(fields, align=True)

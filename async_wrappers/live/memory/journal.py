"""The journal: transitions in shared memory, appended by the environment loop alone and read by all learners.

An entry is a decision: the observation behind its action, the action, the summed reward, the interval, and the extras
that the policy leaves for the learner beside its action, if any; of a chunk also which entries were applied. Where it
is asked for, it also holds the observation of the frame on which the action took effect, which no policy could know.
Its next observation is that of the entry after it, so that each observation is kept once; after the last decision of an
episode an entry holds the final observation alone. When the journal is full the oldest entry goes; neither side waits.

The loop writes what its ledger has closed (`async_wrappers.wrappers.ledger`); a learner reads through a
`TransitionReader`, which knows where one transition does not follow the one before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from async_wrappers.fleet.block import Block, Codec

Space = gym.Space[Any]


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
        extras: Space of the values that the policy leaves for the learner beside an action; None takes no byte.
        chunk_length: Entries of a chunk; 0 if actions are no chunks.
        report_effect: Whether a transition's observations are dicts ``{"start": ..., "effect": ...}``: the one behind
            the action, and that of the frame on which it took effect. Otherwise the second takes no byte.

    Raises:
        ValueError: `capacity` is too small.
    """

    def __init__(
        self,
        block: Block,
        observation_space: Space,
        action_space: Space,
        capacity: int,
        extras: Space | None = None,
        chunk_length: int = 0,
        report_effect: bool = False,
    ) -> None:
        if capacity < _WRITTEN + 1:
            raise ValueError(f"journal must be >= {_WRITTEN + 1} entries, got {capacity}")
        codecs = _codecs(observation_space, action_space, extras, report_effect)
        self._observation, self._action, self._extras = codecs
        self._report_effect = report_effect
        self._capacity, self.chunk_length = capacity, chunk_length
        self._counts = block.array(np.int64, 2)  # entries complete, transitions complete
        self._entries = block.array(_entry(codecs, chunk_length), capacity, 64)

    @classmethod
    def size(
        cls,
        observation_space: Space,
        action_space: Space,
        capacity: int,
        extras: Space | None = None,
        chunk_length: int = 0,
        report_effect: bool = False,
    ) -> int:
        """Return the bytes that a journal takes."""
        codecs = _codecs(observation_space, action_space, extras, report_effect)
        return 64 + _entry(codecs, chunk_length).itemsize * capacity

    def _at(self, position: int) -> npt.NDArray[Any]:
        """Return the entry at a position, as an array [1]."""
        place = position % self._capacity
        return self._entries[place : place + 1]

    @property
    def entries(self) -> int:
        """How many entries are complete: the position after the newest one."""
        return int(self._counts[0])

    def apply(self, observation: Any, action: Any, extras: Any = None, effect: Any = None) -> None:
        """Note a decision that takes effect in the entry after the complete ones: observation, action and extras.

        `effect` is the observation of the frame on which it does, read where effects are reported. Only the environment
        loop calls it, `close` and `end`. Call it before closing the decision before it.
        """
        entry = self._at(self._applied)
        self._observation.write(entry["observation"], self._seen(observation, effect))
        self._action.write(entry["action"], action)
        self._extras.write(entry["extras"], extras)
        self._applied += 1

    def close(self, reward: float, interval: int, executed: Any = False, sent: Any = None) -> None:
        """Complete the decision before the one applied last: the next one took effect.

        The arguments are what `async_wrappers.wrappers.ledger.Ledger.close` returns.
        """
        self._complete(reward, interval, _RUNNING, executed, sent)

    def end(
        self,
        reward: float,
        interval: int,
        executed: Any = False,
        sent: Any = None,
        *,
        terminal: bool,
        final: Any,
        effect: Any = None,
    ) -> None:
        """End the episode: the decision applied last is complete, and `final` is the observation after it.

        `effect` is the last observation of the episode, read where effects are reported.
        """
        entry = self._at(self._applied)
        self._observation.write(entry["observation"], self._seen(final, effect))
        entry["kind"] = _FINAL
        self._applied += 1
        self._complete(reward, interval, _TERMINAL if terminal else _TRUNCATED, executed, sent)
        self._counts[0] += 1

    def abandon(self) -> None:
        """Drop the decision applied last, which will never be complete: the run ended in the middle of an episode.

        Its observation stays if there is a decision before it, as that one's next observation.
        """
        complete = int(self._counts[0])
        if complete and self._at(complete - 1)["kind"] != _FINAL:
            self._at(complete)["kind"] = _FINAL
            complete += 1
            self._counts[0] = complete
        self._applied = complete

    def begin_writing(self) -> None:
        """Become the writer; drop the incomplete entry of the one before, which may have died at any moment."""
        self.abandon()
        # If there is an entry, the last one is final and the one before it the last transition.
        last = self._at(self._applied - 2)
        self._counts[1] = last["number"][0] + 1 if self._applied else 0

    def _complete(self, reward: float, interval: int, kind: int, executed: Any, sent: Any) -> None:
        number = int(self._counts[0])
        entry = self._at(number)
        if sent is not None:
            self._action.write(entry["action"], sent)
        entry["reward"], entry["interval"], entry["kind"] = reward, interval, kind
        entry["executed"] = executed
        entry["number"] = self._counts[1]
        self._counts[1] += 1
        self._counts[0] = number + 1

    def oldest(self) -> int:
        """Return the first entry that can still be read."""
        return max(0, int(self._counts[0]) + _WRITTEN - self._capacity)

    def read(self, position: int, before: Mapping[str, Any] | None = None) -> tuple[int, Numbered | None]:
        """Return the position after `position` and the transition there, if there is one.

        The position comes back unchanged where nothing is complete yet; it jumps to the oldest entry where the writer
        has gone past it.

        Args:
            position: Of the entry.
            before: The transition of the entry before it, whose next observation is this one's; it is read then.
        """
        if position >= self._counts[0]:
            return position, None
        entry = self._at(position)
        kind = int(entry["kind"][0])
        numbered = None
        if kind != _FINAL:
            following, read = self._at(position + 1), self._observation.read
            transition: dict[str, Any] = {
                "observation": read(entry["observation"]) if before is None else before["next_observation"],
                "action": self._action.read(entry["action"]),
                "reward": float(entry["reward"][0]),
                "interval": int(entry["interval"][0]),
                "terminal": kind == _TERMINAL,
                "truncated": kind == _TRUNCATED,
                "next_observation": read(following["observation"]),
            }
            if (extras := self._extras.read(entry["extras"])) is not None:
                transition["extras"] = extras
            if self.chunk_length:
                transition["executed"] = np.array(entry["executed"][0])
            numbered = Numbered(int(entry["number"][0]), transition)
        oldest = self.oldest()
        return (oldest, None) if position < oldest else (position + 1, numbered)

    def _seen(self, start: Any, effect: Any) -> Any:
        """Return the observation as a transition has it."""
        return {"start": start, "effect": effect} if self._report_effect else start


_RUNNING, _TERMINAL, _TRUNCATED, _FINAL = range(4)
_WRITTEN = 2  # entries after the last complete one that the writer may be at


def _codecs(observation: Space, action: Space, extras: Space | None, report_effect: bool) -> tuple[Codec, ...]:
    seen = gym.spaces.Dict([("start", observation), ("effect", observation)]) if report_effect else observation
    return Codec("observation_space", seen), Codec("action_space", action), Codec("extras", extras)


def _entry(codecs: tuple[Codec, ...], chunk_length: int) -> np.dtype[Any]:
    observation, action, extras = codecs
    whole = [(name, np.int64) for name in ("number", "interval", "kind")]
    parts = [("action", action.dtype), ("observation", observation.dtype), ("extras", extras.dtype)]
    executed = ("executed", np.bool_, (chunk_length,))
    return np.dtype([*whole, ("reward", np.float64), *parts, executed], align=True)


class TransitionReader:
    """Reads the journal from its oldest entry on, as one of several learners that all observe every transition.

    A replay takes a transition's next observation from the transition that comes next. So a transition that is neither
    terminal nor truncated is followed by its successor: the last one before a gap (entries that the journal has
    overwritten, an episode that was abandoned) is marked truncated, and so bootstrapped on its own next observation. To
    know, a transition is held back until the entry after it is there.

    Args:
        journal: Where transitions come from.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._position = journal.oldest()
        self._held: dict[str, Any] | None = None

    def remaining(self) -> Iterator[dict[str, Any]]:
        """Yield all transitions that are in the journal now, the last one too, as if none followed it."""
        end = self._journal.entries
        while self._position < end and (transition := self.next()) is not None:
            yield transition
        if self._held is not None:
            held, self._held = _cut(self._held), None
            yield held

    def next(self) -> dict[str, Any] | None:
        """Return the next transition, None if there is none yet."""
        while True:
            position, numbered = self._journal.read(self._position, self._held)
            if position == self._position:
                return None
            follows = position == self._position + 1 and numbered is not None
            given = self._held if follows or self._held is None else _cut(self._held)
            self._position = position
            self._held = None if numbered is None else numbered.transition
            if given is not None:
                return given


def _cut(transition: dict[str, Any]) -> dict[str, Any]:
    return transition if transition["terminal"] else {**transition, "truncated": True}

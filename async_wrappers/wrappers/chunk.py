"""A chunk as the default action: the policy gives H actions at once, and they fill the frames between two decisions.

Decision j reads ``o_{s_j}`` and answers ``chunk_j``: entry i is meant for frame ``s_j + i``. It lands on frame ``e_j``;
from then on, until the next one lands, frame k receives ``chunk_j[k - s_j]``. The first ``e_j - s_j`` entries are for
frames that have passed by then, and are skipped::

    frame             s_j             e_j                     e_{j+1}
    chunk_j      0    1    2    3      4      5      6    7     8    ...   H - 1
                 skipped: too late     executed ............    the next chunk's frames

A constant delay and interval need ``H >= delay + interval``. With random latencies a chunk may end before the next one
lands: then the default action `Chunk.after` acts. Where the chunks of several decisions cover a frame, the newest wins;
of real actions a weighted mean may be taken instead.

Queues of timed actions: LeRobot's asynchronous inference (Cadene et al., 2024), whose aggregate functions are offered
here. Temporal ensembling: Zhao et al., "Learning Fine-Grained Bimanual Manipulation with Low-Cost Hardware" (ACT),
arXiv 2304.13705, Algorithm 2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from numpy.typing import NDArray

from async_wrappers.checks import number, whole

_LONGEST = 100_000  # entries of a chunk
_by_start = attrgetter("start")

# LeRobot's aggregate functions: the weight of a newer chunk against the mean of the older ones.
_NEWER = {"weighted_average": 0.7, "latest_only": 1.0, "average": 0.5, "conservative": 0.3}


@dataclass(frozen=True)
class TemporalEnsemble:
    """ACT's temporal ensembling: the i-th of the chunks that cover a frame weighs ``exp(-m i)``.

    Args:
        m: How fast weights fall; 0 gives the plain mean.
        first: Which chunk is number 0 and weighs most: ``"oldest"``, as in ACT, or ``"newest"``.

    Raises:
        ValueError: `m` is negative or not finite, or `first` is another word.
    """

    m: float = 0.01
    first: Literal["oldest", "newest"] = "oldest"

    def __post_init__(self) -> None:
        """Check the arguments."""
        object.__setattr__(self, "m", number("m", self.m, "a finite number >= 0", lambda m: 0 <= m < math.inf))
        if not isinstance(self.first, str) or self.first not in ("oldest", "newest"):
            raise ValueError(f"first must be 'oldest' or 'newest', got {self.first!r}")

    def weights(self, chunks: int) -> list[float]:
        """Return the weights of a number of chunks, oldest first; their sum is 1."""
        falling = [math.exp(-self.m * i) for i in range(chunks)]
        total = sum(falling)
        falling = [weight / total for weight in falling]
        return falling if self.first == "oldest" else falling[::-1]


@dataclass(frozen=True)
class _Aggregate:
    """LeRobot's: the mean so far and each newer chunk in turn, ``(1 - newer) mean + newer chunk``."""

    name: str

    def weights(self, chunks: int) -> list[float]:
        newer = _NEWER[self.name]
        older = 1 - newer
        return [older ** (chunks - 1), *(newer * older ** (chunks - 1 - i) for i in range(1, chunks))]

    def __repr__(self) -> str:
        return repr(self.name)


@dataclass(frozen=True)
class Chunk:
    """A default action that is the policy's own: each decision gives the actions of several frames.

    ``default_action="chunk"`` stands for the shortest one of a wrapper with constants, ``Chunk(delay + noops + 1)``.

    Example:
        >>> import gymnasium as gym
        >>> from async_wrappers import Chunk, RealtimeDelay
        >>> env = RealtimeDelay(gym.make("CartPole-v1"), delay=2, noops=1, default_action=Chunk(6, after=0))
        >>> env.action_space
        MultiDiscrete([2 2 2 2 2 2])

    Args:
        length: H, entries of a chunk; entry i is for frame i from that of the observation on.
        after: The default action where no chunk gives one: before an episode's first chunk lands, and after a chunk's
            end.
        mean: How the chunks that cover a frame are weighed, for actions of real numbers. None, or ``"latest_only"``:
            the newest wins. LeRobot's ``"weighted_average"`` (a newer chunk weighs .7, the mean of the older ones .3),
            ``"average"`` (.5, .5) or ``"conservative"`` (.3, .7); or a `TemporalEnsemble`. A mean is for acting alone:
            no entry is applied as it was drawn, so its log-probability has no meaning.

    Raises:
        ValueError: `length` is not a positive number of frames, or `mean` is none of these.
    """

    length: int
    after: Any = "repeat"
    mean: Any = None

    def __post_init__(self) -> None:
        """Check the arguments."""
        object.__setattr__(self, "length", whole("length", self.length, 1, _LONGEST, unit="frames"))
        object.__setattr__(self, "mean", _mean(self.mean))

    def call(self, line: str) -> str:
        """Return the caller's line of code with this chunk as the default action and room for another `after`.

        Args:
            line: The result of `async_wrappers.wrappers.default_action.written_call`.
        """
        return f"{line.removesuffix('{})')}default_action=Chunk({self.length}, {{}}))"

    def policy_space(self, space: gym.Space[Any]) -> gym.Space[Any]:
        """Return the policy's action space, of chunks of actions of `space`.

        Discrete actions give ``MultiDiscrete([A] * H)`` with the same numbers, a Box gives a Box ``[H, *shape]``.

        Raises:
            ValueError: `space` is another one, a Box of shape (), or a mean is asked of actions that are no real
                numbers.
        """
        if not isinstance(space, Discrete | Box):
            raise ValueError(f"a chunk as default_action needs Discrete or Box actions, got {space}")
        if not isinstance(space, Discrete) and not space.shape:
            # A chunk [H] of it could not be told from one action of H numbers.
            raise ValueError(
                f"a chunk as default_action needs a Box of a dimension at least, got {space}: give it the shape (1,)"
            )
        if self.mean is not None and not (isinstance(space, Box) and np.issubdtype(space.dtype, np.floating)):
            raise ValueError(
                f"Chunk.mean needs a Box of real actions, got {self.mean} for {space}: leave it None, and the newest "
                "chunk wins"
            )
        if isinstance(space, Discrete):
            counts, start = np.full(self.length, space.n), np.full(self.length, space.start)
            return MultiDiscrete(counts, dtype=space.dtype.type, start=start)
        low, high = (np.tile(bound, (self.length, *[1] * bound.ndim)) for bound in (space.low, space.high))
        return Box(low, high, dtype=space.dtype.type)


def as_chunk(default_action: Any, needed: tuple[int, int] | None = None) -> Chunk | None:
    """Return the chunk that a default action is; None if it is another one.

    Args:
        default_action: A `Chunk`, ``"chunk"``, or another default action.
        needed: The constants delay and interval, in frames; None if they vary.

    Raises:
        ValueError: The chunk is too short, or ``"chunk"`` where delays vary.
    """
    if isinstance(default_action, str) and default_action == "chunk":
        if needed is None:
            raise ValueError(
                "default_action='chunk' stands for the constants delay + noops + 1, and here delays vary: write "
                "default_action=Chunk(length), in frames"
            )
        return Chunk(sum(needed))
    if not isinstance(default_action, Chunk):
        return None
    if needed is not None and default_action.length < sum(needed):
        raise ValueError(
            f"the length of a Chunk must be >= delay + interval = {needed[0]} + {needed[1]} = {sum(needed)} frames, "
            f"got {default_action}"
        )
    return default_action


def _mean(mean: Any) -> TemporalEnsemble | _Aggregate | None:
    if mean is None or isinstance(mean, TemporalEnsemble | _Aggregate):
        return mean
    if not isinstance(mean, str) or mean not in _NEWER:
        names = ", ".join(map(repr, _NEWER))
        raise ValueError(f"mean must be None, one of {names}, or a TemporalEnsemble, got {mean!r}")
    return None if mean == "latest_only" else _Aggregate(mean)


def executed_entries(length: int, start: int, effect: int, end: int) -> NDArray[np.bool_]:
    """Return which entries of a chunk, bool [length], belong to frames `effect` .. `end` - 1; entry i to start + i."""
    executed = np.zeros(length, bool)
    executed[effect - start : end - start] = True
    return executed


class Landed(NamedTuple):
    """A chunk: the frame whose observation it was computed from, that on which it lands, and by which it was known."""

    start: int
    effect: int
    known: int
    chunk: NDArray[Any]


class Chunks:
    """The chunks of one episode, in the order of their starts: which action a frame receives.

    Args:
        rule: How they fill frames.
        space: The environment's action space.

    Attributes:
        length: Entries of a chunk.

    Raises:
        ValueError: Chunks cannot be made of `space`; see `Chunk.policy_space`.
    """

    def __init__(self, rule: Chunk, space: gym.Space[Any]) -> None:
        policy_space = rule.policy_space(space)
        assert policy_space.shape is not None
        self._shape, self._space, self._rule = policy_space.shape, space, rule
        self.length = rule.length
        self._landed: list[Landed] = []

    def clear(self) -> None:
        """Begin an episode."""
        self._landed.clear()

    def add(self, start: int, effect: int, chunk: Any, known: int = 0) -> None:
        """Add a copy of a chunk that is newer than all others.

        Args:
            start: The frame that its decision read.
            effect: The frame on which it lands.
            chunk: The actions.
            known: The first frame that began when it was certain that it would land, for `committed`.

        Raises:
            ValueError: It has another shape than the policy's action space.
        """
        copy = np.array(chunk)
        if copy.shape != self._shape:
            raise ValueError(f"action must be a chunk of shape {list(self._shape)}, got shape {list(copy.shape)}")
        self._landed.append(Landed(start, effect, known, copy))

    def forget(self, frame: int) -> None:
        """Drop the chunks that no frame from `frame` on needs.

        The newest that has landed stays, even if it has ended: no older decision lands any more.
        """
        newest, mixes = self.newest(frame), self._rule.mean is not None
        self._landed = [
            landed
            for landed in self._landed
            if landed.start >= newest or (mixes and frame < landed.start + self._rule.length)
        ]

    def newest(self, frame: int) -> int:
        """Return the start of the newest chunk that has landed by `frame`; -1 if there is none."""
        return max((landed.start for landed in self._landed if landed.effect <= frame), default=-1)

    def at(self, frame: int) -> Any | None:
        """Return a copy of the action that a frame receives; None before the first chunk and after the last one's end.

        An older chunk ends first, so a frame after the newest chunk's end is covered by none.
        """
        return self._of(self._landed, frame)

    def committed(
        self, frame: int, length: int, unfinished: Sequence[tuple[int, int]], coming: Iterable[Landed] = ()
    ) -> list[Any]:
        """Return the actions of `length` frames as far as they are known when `frame` begins.

        That is the frozen prefix of real-time chunking (Black, Galliker, Levine, arXiv 2506.07339): the actions
        until a decision that starts now lands.

        Args:
            frame: The first of the frames.
            length: How many frames.
            unfinished: The result of `async_wrappers.schedule.plain.PlainSchedule.unfinished`.
            coming: Chunks that will land for certain and that `add` has not received.

        Returns:
            For each frame a copy of the action; None where it is not known: an unfinished decision that has a say in it
            may have landed by then, or no chunk gives one, so that `Chunk.after` acts.
        """
        known = sorted((*(landed for landed in self._landed if landed.known <= frame), *coming), key=_by_start)
        mixes, actions = self._rule.mean is not None, []
        for each in range(frame, frame + length):
            # A newer chunk overrules a decision from its landing on; in a mean, only one that lands no later than it.
            is_pending = any(
                lands <= each
                and not any(landed.start >= start and landed.effect <= (lands if mixes else each) for landed in known)
                for start, lands in unfinished
            )
            actions.append(None if is_pending else self._of(known, each))
        return actions

    def _of(self, chunks: Sequence[Landed], frame: int) -> Any | None:
        length = self._rule.length
        entries = [
            landed.chunk[frame - landed.start] for landed in chunks if landed.effect <= frame < landed.start + length
        ]
        if not entries:
            return None
        return entries[-1].copy() if self._rule.mean is None else mean_of(self._rule.mean, entries, self._space)


class ChunkBatch:
    """The chunks [N, H, ...] of environments that go in lockstep: which actions they receive on a frame.

    Args:
        rule: How they fill frames.
        space: The action space of one environment.

    Raises:
        ValueError: Chunks cannot be made of `space`; see `Chunk.policy_space`.
    """

    def __init__(self, rule: Chunk, space: gym.Space[Any], num_envs: int) -> None:
        policy_space = rule.policy_space(space)
        assert policy_space.shape is not None
        self._shape, self._space, self._rule = (num_envs, *policy_space.shape), space, rule
        self._landed: list[tuple[int, int, NDArray[Any]]] = []  # step, start, chunks

    def clear(self) -> None:
        """Begin anew."""
        self._landed.clear()

    def add(self, step: int, start: int, chunks: Any) -> None:
        """Add a copy of a step's chunks, whose entries 0 are for frame `start`.

        Raises:
            ValueError: They have another shape than the policy's action space.
        """
        copy = np.array(chunks)
        if copy.shape != self._shape:
            raise ValueError(f"actions must be chunks of shape {list(self._shape)}, got shape {list(copy.shape)}")
        ends = start if self._rule.mean is not None else math.inf
        self._landed = [landed for landed in self._landed if landed[1] + self._rule.length > ends]
        self._landed.append((step, start, copy))

    def at(self, frame: int, first: NDArray[np.int64]) -> NDArray[Any]:
        """Return the actions [N, ...] of a frame that the newest chunks cover.

        Args:
            frame: From the newest chunks' effect on.
            first: The first step of each environment's running episode; older chunks are of an episode that is over.
        """
        covering = [landed for landed in self._landed if frame < landed[1] + self._rule.length]
        entries = [chunks[:, frame - start] for _, start, chunks in covering]
        newest = entries[-1].copy()
        if self._rule.mean is None:
            return newest
        counts = np.sum([first <= step for step, *_ in covering], axis=0)
        for count in range(1, len(entries) + 1):
            which = np.flatnonzero(counts == count)
            if len(which):
                newest[which] = mean_of(self._rule.mean, [each[which] for each in entries[-count:]], self._space)
        return newest


def mean_of(
    mean: TemporalEnsemble | _Aggregate, entries: Sequence[NDArray[Any]], space: gym.Space[Any]
) -> NDArray[Any]:
    """Return the weighted mean of actions [...] of a Box, oldest first, in its type; summed in double precision."""
    assert isinstance(space, Box)
    total = np.zeros(np.shape(entries[0]))
    for weight, entry in zip(mean.weights(len(entries)), entries, strict=True):
        total += weight * np.asarray(entry, np.float64)
    # Rounding may carry a mean of equal numbers past a bound that they lie on.
    bounded: NDArray[Any] = np.clip(total.astype(space.dtype), space.low, space.high)
    return bounded

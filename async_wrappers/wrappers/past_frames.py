"""The past frames that decisions, critics, teachers and fast paths read: of one environment, and of rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from async_wrappers.checks import whole
from async_wrappers.needs import refuse
from async_wrappers.wrappers.copies import Info, VectorEnv, own_copy, own_info, put, row, rows, with_rows

# The beginning of a frame as the environment showed it: (frame, observation, info). A plain tuple, for speed.
FrameSight = tuple[int, Any, dict[str, Any]]


def checked_age(delay: Any, name: str, age: int) -> int:
    """Return the age of the fresh observations that a delay is to report.

    Args:
        delay: A `RealtimeDelay` or a `VectorRealtimeDelay`.
        name: Of the argument that is the age, for messages.
        age: Frames before the one on which an action lands.

    Raises:
        ValueError: See `RealtimeDelay.report_fresh`.
    """
    age, longest = whole(name, age, 0, unit="frames"), delay.playout
    if longest is not None and age > longest:
        raise ValueError(
            f"{name} must be <= {longest}, the frames of the delay, after which it is older than the observation "
            f"that a decision starts from, got {age}"
        )
    if delay.chunk is not None:
        raise ValueError(
            f"{name} must not be given where actions are chunks, whose later actions land on frames that are not "
            f"shown yet, got {age}: bind another default_action"
        )
    if delay.fresh_age not in (None, age):
        raise ValueError(f"{name} must be {delay.fresh_age} frames, as it is elsewhere for the same delay, got {age}")
    return age


def refuse_old_features(max_features_age: int | None, playout: int | None, chunk: Any = None) -> None:
    """Refuse a `max_features_age` under which no features are ever young enough, or beside chunks.

    Raises:
        ValueError: Features are older when their first action lands, or actions are chunks.
    """
    if max_features_age is None:
        return
    if playout is not None and max_features_age <= playout:
        raise ValueError(
            f"max_features_age must be > {playout}, the age in frames of features when their action lands, got "
            f"{max_features_age}"
        )
    refuse({"chunks": chunk is not None}, {"max_features_age": max_features_age})


class FreshFrames:
    """The newest frames of an episode, of which the one `age` frames old is shown: its first where that is newer.

    Args:
        age: Frames.
    """

    __slots__ = ("_newest",)

    def __init__(self, age: int) -> None:
        self._newest: deque[Any] = deque(maxlen=age + 1)  # oldest first

    @property
    def age(self) -> int:
        """As given."""
        return (self._newest.maxlen or 1) - 1

    def begin(self) -> None:
        """Forget the episode before."""
        self._newest.clear()

    def take(self, observation: Any) -> None:
        """Take the observation of a frame; it is copied."""
        self._newest.append(own_copy(observation))

    @property
    def shown(self) -> Any:
        """The observation that is `age` frames old."""
        return self._newest[0]


class PastFrames:
    """The beginnings of an episode's frames that somebody still reads: decisions by their start, others by its age.

    ==================== ========================================================================
    a decision           the frame on which it starts (`of`)
    a critic, a teacher  that on which its action lands (`landing`): of age 0 then
    a fast path          that some frames before the one on which its action lands (`fresh`)
    ==================== ========================================================================

    Args:
        check: Raises where an observation is none of the environment's.
        array: The dtype and the shape of observations that are arrays, which pass without a call; else None, None.
        report_effect: Whether landings are read.
        longest: See ``RealtimeDelay.max_features_age``.

    Attributes:
        dtype: Of observations that pass without a call of `check`.
        shape: Of these.
        report_effect: As given.
        longest: As given.
        goes_on: Whether the decision that is made next goes on with the features of the one before.
        held: Decisions of this kind so far.
        landing: A copy of the newest frame, which the next action lands on, if it is read.
        fresh: What a fast path reads; None where there is none.
        read: What decisions in flight have read, oldest first. Starts increase, so one that is older than another that
            is looked up is never needed again.
    """

    __slots__ = (
        "_check",
        "_kept",
        "dtype",
        "fresh",
        "goes_on",
        "held",
        "landing",
        "longest",
        "read",
        "report_effect",
        "shape",
    )

    def __init__(
        self, check: Callable[[Any], Any], array: tuple[Any, Any], report_effect: bool, longest: int | None
    ) -> None:
        self._check, (self.dtype, self.shape) = check, array
        self.report_effect, self.longest = report_effect, longest
        self.goes_on, self.held = False, 0
        self._kept: FrameSight | None = None  # what the decision made last read, where its features may be held
        self.landing: FrameSight | None = None
        self.fresh: FreshFrames | None = None
        self.read: deque[FrameSight] = deque()

    @property
    def reports(self) -> bool:
        """Whether anybody reads more than the frames on which decisions start."""
        return self.report_effect or self.fresh is not None or self.longest is not None

    def check(self, observation: Any) -> None:
        """Refuse what is none of the environment's observations."""
        if type(observation) is np.ndarray and observation.dtype is self.dtype and observation.shape == self.shape:
            return
        self._check(observation)

    def begin(self, observation: Any) -> None:
        """Begin an episode with its first observation."""
        self.check(observation)
        self.landing = self._kept = None
        self.goes_on = False
        self.read.clear()
        if self.fresh is not None:
            self.fresh.begin()
            self.fresh.take(observation)

    def take_fresh(self, observation: Any) -> None:
        """Take a frame's observation for a fast path."""
        self.check(observation)
        assert self.fresh is not None
        self.fresh.take(observation)

    def take(self, frame: int, observation: Any, info: dict[str, Any]) -> None:
        """Take a frame that a decision reads; it is copied."""
        if type(observation) is np.ndarray and observation.dtype is self.dtype and observation.shape == self.shape:
            copy: Any = observation.copy()
        else:
            self._check(observation)
            copy = own_copy(observation)
        self.read.append((frame, copy, own_info(info) if info else {}))

    def of(self, start: int) -> FrameSight:
        """Return what the decision with this start reads, and forget what was read before it."""
        if self.longest is not None and self._kept is not None and self._kept[0] == start:
            return start, own_copy(self._kept[1]), own_info(self._kept[2])  # the one before has read it too
        while (sight := self.read.popleft())[0] != start:
            pass
        if self.longest is not None:
            self.goes_on, self._kept = False, (sight[0], own_copy(sight[1]), own_info(sight[2]))
        return sight

    def due_again(self, frame: int) -> int | None:
        """Return the start of the newest features if they go on acting on a frame without others; else None."""
        if self.longest is None or self._kept is None or frame - self._kept[0] > self.longest:
            return None  # or nothing has landed yet
        self.goes_on = True
        return self._kept[0]


class Sight(NamedTuple):
    """The observations and infos of a boundary."""

    boundary: int
    observations: Any
    info: Info


class FreshRows:
    """The newest frames of a vector, of each of which a sub-environment is shown the one that is `age` frames old.

    It is shown its episode's first one where that is newer.

    Args:
        env: The vector.
        age: Frames.

    Attributes:
        age: As given.
    """

    def __init__(self, env: VectorEnv, age: int) -> None:
        self.age, self._env = age, env
        self._newest: deque[Any] = deque(maxlen=age + 1)  # oldest first

    def take(self, observations: Any) -> None:
        """Take a frame."""
        self._newest.append(own_copy(observations))

    def forget_newest(self) -> None:
        """Forget the newest frame, which is taken again."""
        self._newest.pop()

    def batch(self, frames: NDArray[np.int64]) -> Any:
        """Return the batch of fresh observations.

        Args:
            frames: Frames that each sub-environment's episode has had, `[N]`.
        """
        ages = np.clip(frames, 0, self.age)
        youngest = int(ages.min())
        shown = own_copy(self._newest[-1 - youngest])
        for age in set(ages.tolist()) - {youngest}:
            places, older = np.flatnonzero(ages == np.array(age)), self._newest[-1 - age]
            shown = with_rows(self._env, shown, places, elements_of(self._env.observation_space, older, places))
        return shown

    def finals(self, last: Callable[[], Any], which: NDArray[np.int64], frames: NDArray[np.int64]) -> Any:
        """Return the fresh observations of episodes that have just ended, on a frame that is not taken yet.

        Args:
            last: Returns their last observations; see `elements_of`.
            which: Their sub-environments.
            frames: Frames that they have had.
        """
        ages = np.minimum(frames, self.age).tolist()
        return each_at_its_age(self._env.observation_space, last, lambda age: self._newest[-age], which, ages)


class PastRows:
    """The past frames of a vector, all rows on the same frame, that somebody still reads; see `PastFrames`.

    Args:
        env: The vector.

    Attributes:
        fresh: What fast paths read; None where there are none.
        read: What decisions under way have read, oldest first, by boundary: those start on each of them.
    """

    def __init__(self, env: VectorEnv) -> None:
        self._env = env
        self.fresh: FreshRows | None = None
        self.begin()

    def begin(self) -> None:
        """Forget all frames."""
        self.read: deque[Sight] = deque()
        self._infos = False  # whether the environment has shown any info since then

    def take(self, boundary: int | None, observations: Any, info: Info) -> None:
        """Take a frame; decisions start on it if it is a `boundary`, whose number that is."""
        if self.fresh is not None:
            self.fresh.take(observations)
        if boundary is not None:
            info = own_info(info) if info else {}
            self._infos = self._infos or bool(info)
            self.read.append(Sight(boundary, own_copy(observations), info))

    def take_again(
        self, boundary: int | None, observations: Any, info: Info, chosen: NDArray[np.bool_], begins: bool
    ) -> None:
        """Take a frame again on which the `chosen` rows were reset, of which `info` is; or the first if it `begins`."""
        if self.fresh is not None and not begins:
            self.fresh.forget_newest()
        if boundary is not None and self.read:
            before = self.read.pop().info
            for i in np.flatnonzero(chosen).tolist():
                put(self._env, before, i, row(info, i, self._env.num_envs))
            info = before
        self.take(boundary, observations, info)

    def forget(self, boundary: int) -> None:
        """Forget what was read before a boundary."""
        while self.read[0].boundary < boundary:
            self.read.popleft()

    def finals(
        self, last: Callable[[], Any], of_the_end: Info, which: NDArray[np.int64], ages: Sequence[int]
    ) -> tuple[Any, list[tuple[Info, Info]] | None]:
        """Return what ends of episodes show: what the next decision would have read, and with it the last info.

        Args:
            last: Returns their last observations; see `elements_of`.
            of_the_end: Their last infos.
            which: Their rows.
            ages: Of what each shows, in boundaries after the oldest that is read; 0 for the end itself.
        """
        space = self._env.observation_space
        observations = each_at_its_age(space, last, lambda age: self.read[age].observations, which, ages)
        if not (of_the_end or self._infos):
            return observations, None
        infos, n = [], self._env.num_envs
        for i, age in zip(which.tolist(), ages, strict=True):
            ended = own_info(row(of_the_end, i, n))
            infos.append((own_info(row(self.read[age].info, i, n)) if age else ended, ended))
        return observations, infos


def each_at_its_age(
    space: gym.Space[Any],
    last: Callable[[], Any],
    seen: Callable[[int], Any],
    which: NDArray[np.int64],
    ages: Sequence[int],
) -> Any:
    """Return copies of the observations of some sub-environments, each at its age; see `elements_of`.

    Args:
        space: Of a batch of all of them.
        last: Returns those of age 0.
        seen: From a greater age to the batch of all.
        which: The sub-environments.
        ages: Of each.
    """
    of_each = set(ages)
    if len(of_each) == 1:
        (age,) = of_each
        return elements_of(space, seen(age), which) if age else last()
    observations = last()
    for age in of_each - {0}:
        places = np.flatnonzero(np.equal(ages, age))
        some = elements_of(space, seen(age), which[places])
        if type(observations) is np.ndarray:
            observations[places] = some
        else:
            for place, observation in zip(places.tolist(), some, strict=True):
                observations[place] = observation
    return observations


def elements_of(space: gym.Space[Any], batched: Any, which: NDArray[np.int64]) -> Any:
    """Return copies of some elements of a batch: a batch, where it is an array, or a list."""
    if type(batched) is np.ndarray and not batched.dtype.hasobject:
        return batched[which]
    elements = rows(space, batched)
    return [own_copy(elements[i]) for i in which.tolist()]

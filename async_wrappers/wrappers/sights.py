"""Observations that a delay reports beside those that decisions start from: of landings, and fresh ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from async_wrappers.checks import whole
from async_wrappers.needs import refuse
from async_wrappers.wrappers.copies import VectorEnv, own_copy, own_info, rows, with_rows

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


class Sights:
    """Observations that are reported beside those that decisions start from.

    Args:
        report_effect: See `RealtimeDelay`.
        longest: See ``RealtimeDelay.max_features_age``.

    Attributes:
        report_effect: As given.
        longest: As given.
        goes_on: Whether the decision that is made next goes on with the features of the one before.
        held: Decisions of this kind so far.
        landing: A copy of the newest frame, which the next action lands on, if reported.
        fresh: Copies of the newest observations, oldest first, as many as `RealtimeDelay.fresh_age` and one; None where
            they are not reported.
    """

    __slots__ = "_kept", "fresh", "goes_on", "held", "landing", "longest", "report_effect"

    def __init__(self, report_effect: bool, longest: int | None) -> None:
        self.report_effect, self.longest = report_effect, longest
        self.goes_on, self.held = False, 0
        self._kept: FrameSight | None = None  # what the decision made last read, where its features may be held
        self.landing: FrameSight | None = None
        self.fresh: deque[Any] | None = None

    def begin_episode(self, observation: Any) -> None:
        """Forget the episode before."""
        self.landing = self._kept = None
        self.goes_on = False
        if self.fresh is not None:
            self.fresh.clear()
            self.fresh.append(own_copy(observation))

    def due_again(self, frame: int) -> int | None:
        """Return the start of the newest features if they go on acting on a frame without others; else None."""
        if self.longest is None or self._kept is None or frame - self._kept[0] > self.longest:
            return None  # or nothing has landed yet
        self.goes_on = True
        return self._kept[0]

    def again(self, start: int) -> FrameSight | None:
        """Return a copy of what the decision before has read if it began on frame `start`."""
        if self._kept is None or self._kept[0] != start:
            return None
        return start, own_copy(self._kept[1]), own_info(self._kept[2])

    def keep(self, sight: FrameSight) -> None:
        """Note what a decision with features of its own reads, where they may be held."""
        self.goes_on, self._kept = False, (sight[0], own_copy(sight[1]), own_info(sight[2]))


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

    def take(self, observations: Any, again: bool = False) -> None:
        """Take a frame; or the newest one `again`, as some sub-environments have been reset on it."""
        if again:
            self._newest.pop()
        self._newest.append(own_copy(observations))

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

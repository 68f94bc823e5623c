"""The ages of sensors in a live run: of what each frame shows, and of each reading when it was first seen."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from async_wrappers.checks import BrokenEnvironment

if TYPE_CHECKING:
    from async_wrappers.tensors.sensor_rows import Sensor

MOST_READINGS = 100_000
"""That a run remembers of each sensor, the newest ones."""

_ROUNDING = 1_000  # nanoseconds
_ALIKE = 0.005  # share by which a measured rate may be off the fraction of the frame rate that it is taken for


@dataclass
class SensorReadings:
    """What a run has seen of one sensor. All times are whole nanoseconds.

    Attributes:
        name: Of the sensor.
        of: Its numbers of a Box; None of a Dict's key.
        ages: Of the reading that is shown, as each frame begins.
        seen: The newest readings: each one's age when a frame first showed it, and how long after the one seen before
            it was taken, 0 where that was an episode's first.
    """

    name: str
    of: slice | None
    ages: Any = field(default_factory=list)
    seen: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=MOST_READINGS))
    _newest: int = field(default=0, init=False, repr=False)  # when it was taken
    _follows: bool = field(default=False, init=False, repr=False)

    def begin(self, age: int, taken: int) -> None:
        """Note the reading of an episode's first frame, which may have been there for long."""
        self.ages.append(age)
        self._newest, self._follows = taken, False

    def note(self, age: int, taken: int, apart: int) -> None:
        """Note the reading that a frame shows.

        Args:
            age: As the frame begins.
            taken: When it was taken.
            apart: How much later than another reading a new one is at least.
        """
        self.ages.append(age)
        if taken - self._newest >= apart:
            self.seen.append((age, taken - self._newest if self._follows else 0))
            self._newest, self._follows = taken, True

    @property
    def _apart(self) -> Any:
        return np.array([apart for _, apart in self.seen if apart], np.float64) / 1e9

    @property
    def rate(self) -> float:
        """Readings seen in a second; nan before there are two."""
        apart = self._apart
        return len(apart) / float(apart.sum()) if len(apart) else float("nan")

    @property
    def lost(self) -> float:
        """Share of the readings that are missing between those that were seen; nan before there are two.

        They are taken to come at a steady rate, the frame rate at most.
        """
        apart = self._apart
        if not len(apart):
            return float("nan")
        taken = float(np.round(apart / np.median(apart)).clip(1).sum())
        return 1 - len(apart) / taken

    def sensor(self, fps: float) -> Sensor:
        """Return it for a simulation.

        A reading that no frame has shown was overtaken or lost. If it were no older than the oldest one that was seen,
        on the frame that showed the next one, it is taken to have arrived then; else to be lost.

        Args:
            fps: Frames per second that were asked for.

        Raises:
            ValueError: It has shown too few readings.
        """
        from async_wrappers.latency.reading_ages import ReadingAges
        from async_wrappers.tensors.sensor_rows import Sensor

        apart = self._apart
        if not len(apart):
            raise ValueError(f"{self.name!r} must show three readings or more to be simulated, got {len(self.seen)}")
        if self.rate / fps >= 1 - _ALIKE:  # a new one on each frame
            return Sensor(ReadingAges([age / 1e9 for age, _ in self.seen], fps), of=self.of)
        period = float(np.median(apart)) * 1e9
        oldest, ages, lost = max(age for age, _ in self.seen) + _ROUNDING, [], 0
        for age, gap in self.seen:
            for number in range(round(gap / period) - 1, 0, -1):
                hidden = age + number * period
                if hidden <= oldest:
                    ages.append(hidden / 1e9)
                else:
                    lost += 1
            ages.append(age / 1e9)
        rate = float(_simplest(min(1e9 / period / fps, 1.0)) * Fraction(fps))
        return Sensor(ReadingAges(ages, fps), rate, drop=lost / (lost + len(ages)), of=self.of)


def note_readings(
    sensors: Mapping[str, SensorReadings],
    info: Mapping[str, Any],
    begun: float,
    frame: float,
    begins: bool,
    stamped: bool,
) -> list[float]:
    """Note what a frame shows of each sensor; return the ages in seconds.

    Args:
        sensors: By name.
        info: Of the step or the reset before, with ``"sensor_ages"``.
        begun: When the frame began, in nanoseconds.
        frame: How long frames are, in nanoseconds.
        begins: Whether it is an episode's first.
        stamped: Whether ``"sensor_stamps"``, where there are any, are of these readings.

    Raises:
        BrokenEnvironment: An age is missing, or no number.
    """
    ages, stamps = sensor_ages_of(info, sensors), info.get("sensor_stamps") if stamped else None
    for name, seconds in ages.items():
        age = round(seconds * 1e9)
        # Without stamps, times are those of frames, and readings are about as far apart as these, or farther.
        taken = round(begun) - age if stamps is None else round(float(stamps[name]) * 1e9)
        if begins:
            sensors[name].begin(age, taken)
        else:
            sensors[name].note(age, taken, round(frame / 4) if stamps is None else 1)
    return [*ages.values()]


def sensor_ages_of(info: Mapping[str, Any], sensors: Collection[str]) -> dict[str, float]:
    """Return the age of each sensor in seconds, as an info tells it.

    Raises:
        BrokenEnvironment: One is missing, or no number.
    """
    ages = info.get("sensor_ages")
    try:
        found = {name: float(ages[name]) for name in sensors}  # type: ignore[index]
    except (KeyError, TypeError, ValueError):
        found = {}
    if not found or not all(0 <= age < math.inf for age in found.values()):
        raise BrokenEnvironment(
            f"info['sensor_ages'] must be the ages of {', '.join(sensors)} in seconds, as timed_sensors names them, "
            f"got {ages!r}: let reset and each step report them (a Machine may report its 'sensor_stamps')"
        )
    return found


def in_words(seen: Mapping[str, Any]) -> str:
    """Return a sensor's line of a report."""
    age, rate = seen["age_ms"], seen["rate"]
    lost = f", {seen['lost']:.1%} lost" if seen["lost"] > 0 else ""
    often = "" if math.isnan(rate) else f", {rate:.4g} a second"
    return f"p50 {age['p50']:.2f}, p95 {age['p95']:.2f} ms old{often}{lost}"


def _simplest(share: float) -> Fraction:
    """Return the fraction with the least denominator that is near to a share of the frame rate."""
    denominator = 1
    while abs((found := Fraction(share).limit_denominator(denominator)) / Fraction(share) - 1) > _ALIKE:
        denominator += 1
    return found

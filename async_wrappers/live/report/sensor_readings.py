"""The ages of sensors in a live run: of what each frame shows, and of each reading when it was first seen."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from async_wrappers.checks import BrokenEnvironment

if TYPE_CHECKING:
    from async_wrappers.tensors.sensor_rows import Sensor

MOST_READINGS = 100_000
"""That a run remembers of each sensor, the newest ones."""

_ROUNDING = 1_000  # nanoseconds
_ALIKE = 0.005  # share by which a rate may be off, of the fraction of the frame rate that it is taken for


class SeenReading(NamedTuple):
    """A reading that a frame has shown first.

    Attributes:
        age: In nanoseconds, as that frame began.
        apart: Nanoseconds since the reading that was seen before it was taken; 0 where that was an episode's first.
        frames: How many began since that was seen.
    """

    age: int
    apart: int
    frames: int


@dataclass
class SensorReadings:
    """What a run has seen of one sensor.

    Attributes:
        name: Of the sensor.
        of: Its numbers of a Box; None of a Dict's key.
        ages: Of the reading that is shown, in nanoseconds, as each frame begins.
        seen: The newest readings.
    """

    name: str
    of: slice | None
    ages: Any = field(default_factory=list)
    seen: deque[SeenReading] = field(default_factory=lambda: deque(maxlen=MOST_READINGS))
    _newest: int = field(default=0, init=False, repr=False)  # when it was taken
    _frames: int = field(default=0, init=False, repr=False)  # since it was seen
    _follows: bool = field(default=False, init=False, repr=False)

    def begin(self, age: int, taken: int) -> None:
        """Note the reading of an episode's first frame, which may have been there for long."""
        self.ages.append(age)
        self._newest, self._frames, self._follows = taken, 0, False

    def note(self, age: int, taken: int, apart: int) -> None:
        """Note the reading that a frame shows.

        Args:
            age: As the frame begins.
            taken: When it was taken.
            apart: How much later than another reading a new one is at least.
        """
        self.ages.append(age)
        self._frames += 1
        if taken - self._newest >= apart:
            self.seen.append(SeenReading(age, taken - self._newest if self._follows else 0, self._frames))
            self._newest, self._frames, self._follows = taken, 0, True

    @property
    def _apart(self) -> list[int]:
        return [each.apart for each in self.seen if each.apart]

    @property
    def rate(self) -> float:
        """Readings seen in a second; nan before there are two."""
        apart = self._apart
        return len(apart) / sum(apart) * 1e9 if apart else math.nan

    def _missing(self) -> list[int]:
        """Return how many readings no frame has shown before each that was seen, if they come at a steady rate.

        Those that came while the loop itself was late, so that no frame began, are not among them.
        """
        period = float(np.median(self._apart))
        return [max(min(round(each.apart / period), each.frames) - 1, 0) for each in self.seen]

    @property
    def lost(self) -> float:
        """Share of the readings, taken to come at a steady rate, that no frame has shown; nan before there are two."""
        if not self._apart:
            return math.nan
        missing = sum(self._missing())
        return missing / (missing + len(self.seen))

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
        if not apart:
            raise ValueError(
                f"{self.name!r} must show three readings or more to be simulated, got {len(self.seen)} "
                "after an episode's first: let the run be longer, or do not name it in timed_sensors"
            )
        if sum(each.frames > 1 for each in self.seen if each.apart) <= _ALIKE * len(apart):  # a new one on each frame
            return Sensor(ReadingAges([each.age / 1e9 for each in self.seen], fps), of=self.of)
        period = float(np.median(apart))
        oldest = max(each.age for each in self.seen) + _ROUNDING
        ages, lost = list[float](), 0
        for each, missing in zip(self.seen, self._missing(), strict=True):
            for number in range(missing, 0, -1):
                hidden = each.age + number * period
                if hidden <= oldest:
                    ages.append(hidden / 1e9)
                else:
                    lost += 1
            ages.append(each.age / 1e9)
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

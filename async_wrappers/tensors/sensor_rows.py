"""Sensors of N environments: each shows an older frame, at a rate and with a latency of its own."""

# One sensor of one row
# =====================
#
# Frame k of an episode begins at k / fps. A sensor takes readings n = 0, 1, ... at times phase + n / rate, and each
# shows what the simulator showed as the frame began that goes on at that time. A reading arrives after its latency
# and is seen from the first frame on that begins then; a dropped one never does. A frame shows the newest reading that
# has arrived, so no reading is followed by an older one. Before the first has arrived it shows the episode's first
# frame.
#
#   30 Hz at 50 frames a second, latency 30 ms
#   frame        0      1      2      3      4      5      6
#   reading      0      1             2      3             4         at frames 0, 5/3, 10/3, 5, ...: 3 in 5 frames
#   arrives at   1.5    3.17          4.83          6.5
#   shown        o_0    o_0    o_0    o_0    o_1    o_3    o_3       seen at 2, 4, 5, 7
#
# With the rate as a / b of the frame rate and a phase of c / a frames, reading n is taken at (c + n b) / a frames:
# whole numbers, exact however long the episode. Which frame it is seen on depends on its place within its frame, one
# of a, and on its latency: a table of [a, P], made with exact fractions before the run, for P draws.

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from async_wrappers.checks import number
from async_wrappers.latency import Latency, as_latency
from async_wrappers.latency.reading_ages import ReadingAges
from async_wrappers.schedule.frames import as_fraction
from async_wrappers.tensors.arrays import Array, Library, Tree, each
from async_wrappers.tensors.row_schedule import NONE, Pool

_DRAWS = 4_096
_FAR = 2**30  # a frame
_FINEST = 1_000  # parts of a frame that readings may lie on


@dataclass(frozen=True)
class Sensor:
    """How late a sensor's readings are, and how often it takes one.

    Args:
        latency: Seconds from a reading to its arrival, or a model of `async_wrappers.latency`, drawn for each reading.
        rate: Readings a second; None for one on each frame.
        phase: Seconds from an episode's beginning to the first reading, below ``1 / rate``; None: each episode of each
            environment draws it.
        drop: Chance that a reading is lost.
        hold: Chance, on each frame, that the sensor goes on showing what it has shown.
        of: The numbers of a Box that are this sensor's: a slice, or its two ends as a tuple, which gin files can have;
            None where sensors are keys of a Dict.

    Raises:
        ValueError: A number out of range, or a model that is none.
    """

    latency: Any = 0.0
    rate: Any = None
    phase: Any = None
    drop: float = 0.0
    hold: float = 0.0
    of: Any = None

    def __post_init__(self) -> None:
        """Check the arguments."""
        as_latency(self.latency)
        if isinstance(self.of, tuple) and len(self.of) == 2 and all(isinstance(bound, int) for bound in self.of):
            object.__setattr__(self, "of", slice(*self.of))
        if self.of is not None and not isinstance(self.of, slice):
            raise ValueError(f"of must be a slice of a Box's numbers, or a tuple of its two ends, got {self.of!r}")
        bounds = () if self.of is None else (self.of.start, self.of.stop, self.of.step)
        if not all(bound is None or isinstance(bound, int | np.integer) for bound in bounds) or 0 in bounds[2:]:
            raise ValueError(f"of must be a slice of whole numbers, got {self.of!r}")
        for name in ("drop", "hold"):
            number(name, getattr(self, name), "a chance from 0 to below 1", lambda chance: 0 <= chance < 1)
        if self.rate is not None:
            number("rate", self.rate, "a number of readings a second > 0", lambda rate: 0 < rate < math.inf)
        if self.phase is not None:
            longest = math.inf if self.rate is None else 1 / float(self.rate)
            says = "seconds from 0 to below 1 / rate"
            longest = 1e-12 if self.rate is None else longest  # with a reading on each frame it is 0
            number("phase", self.phase, says, lambda phase: 0 <= phase < longest)


class Timing(NamedTuple):
    """When a sensor's readings are taken and seen, as arrays.

    Attributes:
        a: Numerator of the sensor's rate by the frame rate.
        b: Denominator.
        phases: [Q] of the first reading in a-ths of a frame, of which episodes draw one.
        seen: [a * P] frames from the one that a reading shows to the first that shows it, by its place and its draw.
        holds: [P] whether a frame goes on with what it has shown.
        longest: Frames that readings are late at most.
        may_hold: Whether any does.
    """

    a: int
    b: int
    phases: Pool
    seen: Array
    holds: Array
    longest: int
    may_hold: bool


def share_of(name: str, sensor: Sensor, fps: Any) -> Fraction:
    """Return how many readings a sensor takes on each frame.

    Raises:
        ValueError: Its rate is above the frame rate, or no fraction of it that whole numbers can tell.
    """
    frames = as_fraction(fps)
    share = Fraction(1) if sensor.rate is None else as_fraction(sensor.rate) / frames
    if share > 1:
        raise ValueError(
            f"the rate of {name!r} must be <= {float(frames):g}, the frames per second, got {sensor.rate!r}: a "
            "simulator shows nothing between two frames"
        )
    exact, share = share, share.limit_denominator(_FINEST)
    if share.numerator > _FINEST or share == 0 or abs(share / exact - 1) > Fraction(1, 10**6):
        raise ValueError(
            f"the rate of {name!r} must be a fraction of {float(frames):g} frames per second, of whole numbers up to "
            f"{_FINEST}, got {sensor.rate!r}: round it"
        )
    return share


def timing_of(name: str, sensor: Sensor, fps: Any, library: Library, seed: int | None) -> Timing:
    """Return the timing of a sensor at a frame rate; see `share_of` for errors."""
    frames, share = as_fraction(fps), share_of(name, sensor, fps)
    a, b = share.numerator, share.denominator
    draws = np.random.default_rng(np.random.SeedSequence(seed).spawn(1)[0])
    number = max(64, _DRAWS // a)
    at = [Fraction(place, a) for place in range(a)]
    latency = as_latency(sensor.latency)
    if isinstance(latency, ReadingAges):  # whose latencies depend on the place
        late = [_drawn(latency.at(place, Fraction(1, a), frames), frames, number, seed) for place in at]
    else:
        late = [_drawn(latency, frames, number, seed)] * a
    seen = np.array([[math.ceil(place + each) for each in its] for place, its in zip(at, late, strict=True)])
    longest = int(seen.max())
    seen[:, draws.random(number) < sensor.drop] = _FAR
    if sensor.phase is None:
        phases = draws.integers(0, b, _DRAWS)
    else:
        phases = np.array([int(as_fraction(sensor.phase) * frames * a)])
    holds = library.array(draws.random(number) < sensor.hold)
    return Timing(a, b, Pool(library, phases), library.whole(seen.reshape(-1)), holds, longest, sensor.hold > 0)


def _drawn(latency: Latency, frames: Fraction, number: int, seed: int | None) -> list[Fraction]:
    """Return draws of a latency, in frames."""
    stream = latency.stream(np.random.SeedSequence(seed))
    return [Fraction(stream.draw(), 10**9) * frames for _ in range(number)]


class ShownReadings(NamedTuple):
    """What a sensor shows of N rows.

    Attributes:
        start: Frame of the reading that is shown, [N]; -1 before the first.
        value: It, [N, ...].
        arrived: Frame of the newest reading that has arrived, which a held frame may not show yet, [N].
        newest: It, [N, ...].
        lands: A ring [D, N]: the frames from which on the readings of the last frames are seen.
        past: A ring [D, N, ...] of the last frames.
    """

    start: Array
    value: Tree
    arrived: Array
    newest: Tree
    lands: Array
    past: Tree


class SensorRows:
    """What one sensor shows of N environments that step together.

    Args:
        library: Of the arrays.
        timing: Of the sensor.
        num_envs: N.
    """

    def __init__(self, library: Library, timing: Timing, num_envs: int) -> None:
        self._library, self._timing = library, timing
        self._length, self._holds = timing.longest + 1, timing.may_hold
        self._rows = library.xp.arange(num_envs, device=library.device)
        self._ages = library.xp.arange(self._length, device=library.device)

    def begin(self, observation: Tree) -> ShownReadings:
        """Return what is shown as all episodes begin."""
        zeros = self._rows * 0
        past = each(lambda array: self._library.ring(self._length, array), observation)
        nothing = zeros + NONE, observation
        shown = ShownReadings(*nothing, *nothing, self._library.ring(self._length, zeros) + _FAR, past)
        return self.show(shown, observation, zeros, zeros, 0, zeros == 0)

    def show(
        self, before: ShownReadings, observation: Tree, frame: Array, episode: Array, clock: Any, begun: Array
    ) -> ShownReadings:
        """Return what is shown as a frame begins.

        Args:
            before: On the frame before.
            observation: Of the frame, [N, ...].
            frame: Its number in each row's episode, [N].
            episode: The episode's number, [N].
            clock: Its number in the vector.
            begun: Whose episode begins with it, [N].
        """
        xp, library, timing, n = self._library.xp, self._library, self._timing, self._rows.shape[0]
        place = clock % self._length
        start, arrived = (xp.where(begun, frame * 0 + NONE, of) for of in (before.start, before.arrived))
        # A reading on this frame, and the frame that it is seen from on.
        reading, taken = self._reading(frame, episode)
        draw = Pool.place(self._rows, episode, frame) % timing.holds.shape[0]
        where = xp.where(taken, reading, reading * 0) * timing.holds.shape[0] + draw
        late = xp.take(timing.seen, where, axis=0)
        lands = library.put(before.lands, place, xp.where(taken, frame + late, frame * 0 + _FAR))
        past = each(lambda ring, array: library.put(ring, place, array), before.past, observation)
        # The newest that is seen by now.
        starts = xp.expand_dims(frame, axis=0) - xp.expand_dims(self._ages, axis=1)
        arrives = xp.take(lands, (clock - self._ages) % self._length, axis=0)
        new = (starts >= 0) & (starts > xp.expand_dims(arrived, axis=0)) & (arrives <= xp.expand_dims(frame, axis=0))
        latest = xp.max(xp.where(new, starts, starts * 0 + NONE), axis=0)
        is_new, goes_on = latest >= 0, xp.take(timing.holds, draw, axis=0)
        age = xp.where(is_new, frame - latest, frame * 0)
        places = (clock - age) % self._length * n + self._rows

        def of(ring: Array, value: Array, now: Array) -> Array:
            old = xp.take(xp.reshape(ring, (self._length * n, *ring.shape[2:])), places, axis=0)
            return library.where(is_new, old, library.where(begun, now, value))

        newest, arrived = each(of, past, before.newest, observation), xp.where(is_new, latest, arrived)
        if not self._holds:
            return ShownReadings(arrived, newest, arrived, newest, lands, past)
        before_it = each(lambda value, now: library.where(begun, now, value), before.value, observation)
        value = each(lambda one, other: library.where(goes_on, one, other), before_it, newest)
        return ShownReadings(xp.where(goes_on, start, arrived), value, arrived, newest, lands, past)

    def age(self, shown: ShownReadings, frame: Array, episode: Array) -> Array:
        """Return how many frames ago the reading was taken that is shown, [N]; real numbers."""
        xp = self._library.xp
        reading, _ = self._reading(shown.start, episode)
        real = xp.float32 if self._library.is_functional else xp.float64
        since = xp.astype(frame - xp.where(shown.start < 0, frame * 0, shown.start), real)
        within = xp.astype(xp.where(shown.start < 0, reading * 0, reading), real) / self._timing.a
        return since - within

    def _reading(self, frame: Array, episode: Array) -> tuple[Array, Array]:
        """Return the place of a frame's reading within the frame, in a-ths, and whether there is one, [N]."""
        a, b = self._timing.a, self._timing.b
        phase = self._timing.phases.take(self._rows, episode)
        number = -((phase - frame * a) // b)  # ceil of (frame a - phase) / b
        number = self._library.xp.where(number < 0, number * 0, number)
        place = number * b + phase - frame * a
        return place, (place >= 0) & (place < a)

"""`Latencies`: all that a live run measures of its delays, in one file that simulations and the planner read."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from async_wrappers.files import path_of, write_text_atomically
from async_wrappers.latency.compound import Trace, as_latency
from async_wrappers.latency.models import Floats, Model, Sampler
from async_wrappers.latency.reading_ages import ReadingAges
from async_wrappers.tensors.sensor_rows import Sensor


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Latencies(Model):
    """What a live run has measured: how long decisions took, how much of it was transport, and the ages of its sensors.

    It is a latency model, that of the decisions: `RealtimeDelay`, `VectorRealtimeDelay`, `plan` and the virtual clock
    take it as such, and `SensorDelay` and `VectorSensorDelay` take its sensors. ``report.latencies()`` makes one.

    Example:
        >>> import gymnasium as gym
        >>> from async_wrappers import Latencies, RealtimeDelay, Sensor, SensorDelay
        >>> measured = Latencies([0.06, 0.07], transport=[0.01, 0.01], sensors={"arm": Sensor(0.05, of=slice(0, 3))})
        >>> env = SensorDelay(gym.make("Pendulum-v1"), measured)
        >>> env = RealtimeDelay(env, latency=measured, workers=2, default_action="repeat")

    Attributes:
        latency: Of decisions, from the order to the action, in the order of their starts.
        transport: Seconds of each that were not the inference, [N]; None where nothing was transported.
        sensors: By name, as `SensorDelay` takes them.

    Args:
        latency: Seconds of each decision, a `Trace`, or the path of a file of `to_json`, which has all.
        transport: Seconds of each that were not the inference.
        sensors: By name; None for none.

    Raises:
        ValueError: Numbers that are no latencies, transport of another length or longer than its decision, something
            else than sensors, or a file that is missing or holds something else.
    """

    latency: Trace
    transport: Floats | None
    sensors: Mapping[str, Sensor]

    def __init__(
        self,
        latency: Trace | ArrayLike | os.PathLike[str],
        transport: ArrayLike | None = None,
        sensors: Mapping[str, Sensor] | None = None,
    ) -> None:
        if isinstance(latency, str | os.PathLike):
            if transport is not None or sensors is not None:
                raise ValueError(f"transport and sensors must be None: the file {os.fspath(latency)!r} has them")
            latency, transport, sensors = _read(latency)
        whole = latency if isinstance(latency, Trace) else Trace(latency)
        sensors = {} if sensors is None else sensors
        if not isinstance(sensors, Mapping) or not all(isinstance(each, Sensor) for each in sensors.values()):
            raise ValueError(f"sensors must be a dict from names to Sensor, got {sensors!r}")
        if transport is not None:
            if isinstance(transport, str | os.PathLike):
                raise ValueError(f"transport must be a list of seconds, got {transport!r}")
            transport = Trace(transport).latencies
            if len(transport) != len(whole):
                raise ValueError(
                    f"transport must have a time for each of {len(whole)} decisions, got {len(transport)} times"
                )
            if (transport > whole.latencies + 1e-9).any():
                at = int(np.argmax(transport > whole.latencies + 1e-9))
                raise ValueError(
                    f"transport must be a part of the latency, got {transport[at]:g} of {whole.latencies[at]:g} s at "
                    f"place {at}"
                )
        self._set(latency=whole, transport=transport, sensors=dict(sensors))

    @classmethod
    def from_json(cls, path: str | os.PathLike[str]) -> Latencies:
        """Read what `to_json` has written.

        Raises:
            ValueError: The file is missing or holds something else.
        """
        return cls(path)

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write everything, all or nothing. `Trace` and ``plan --trace`` read the decisions' latencies of the file.

        Args:
            path: The file; an old one is replaced.

        Raises:
            OSError: The file cannot be written.
            ValueError: A sensor has another latency than a measured one, a list or a number.
        """
        content: dict[str, Any] = {"format": _FORMAT, "latency_s": self.latency.latencies.tolist()}
        if self.transport is not None:
            content["transport_s"] = self.transport.tolist()
        content["sensors"] = {name: _written(name, sensor) for name, sensor in self.sensors.items()}
        write_text_atomically(path_of(path), json.dumps(content) + "\n")

    @property
    def inference(self) -> Trace:
        """How long the inferences took, without transport."""
        whole = self.latency.latencies
        return self.latency if self.transport is None else Trace(np.maximum(whole - self.transport, 0))

    @property
    def mean(self) -> float:
        """Mean latency of a decision in seconds."""
        return self.latency.mean

    def _sampler(self, seed: np.random.SeedSequence) -> Sampler:
        return self.latency._sampler(seed)

    def _quantile(self, u: Floats) -> Floats:
        return self.latency._quantile(u)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Latencies):
            return NotImplemented
        both = None if self.transport is None or other.transport is None else (self.transport, other.transport)
        same = self.transport is other.transport if both is None else np.array_equal(*both)
        return same and self.latency == other.latency and self.sensors == other.sensors

    def __hash__(self) -> int:
        return hash((self.latency, tuple(self.sensors)))

    def __repr__(self) -> str:
        of = "no sensors" if not self.sensors else f"sensors {', '.join(self.sensors)}"
        return f"Latencies(<{len(self.latency)} decisions, mean {self.mean:.4g} s, {of}>)"


_FORMAT = 1
_OF_SENSOR = ("rate", "phase", "drop", "hold")


def _written(name: str, sensor: Sensor) -> dict[str, Any]:
    """Return a sensor as plain data, without what is at its default."""
    given = {each: getattr(sensor, each) for each in _OF_SENSOR}
    written: dict[str, Any] = {each: float(value) for each, value in given.items() if value != getattr(Sensor, each)}
    if sensor.of is not None:
        written["of"] = [sensor.of.start, sensor.of.stop, sensor.of.step]
    latency = as_latency(sensor.latency)
    if isinstance(latency, ReadingAges):
        return {"age_s": latency.ages.tolist(), "fps": latency.fps, **written}
    if isinstance(latency, Trace):
        return {"latency_s": latency.latencies.tolist(), **written}
    if hasattr(latency, "seconds"):
        return {"latency_s": latency.seconds, **written}
    raise ValueError(f"the latency of {name!r} must be measured, a list or a number to be written, got {latency!r}")


def _read(path: str | os.PathLike[str]) -> tuple[Any, Any, dict[str, Sensor]]:
    """Return what a file of `Latencies.to_json` holds: latency, transport, sensors."""
    named, latency = os.fspath(path), Trace(path)  # which refuses what is no file of latencies
    content = json.loads(path_of(path).read_text(encoding="utf-8"))
    content = content if isinstance(content, dict) else {}
    if (written := content.get("format", _FORMAT)) != _FORMAT:
        raise ValueError(
            f"{named!r} must be of format {_FORMAT}, got {written!r}: read it by the version that wrote it"
        )
    sensors, transport = content.get("sensors", {}), content.get("transport_s")
    try:
        Latencies(latency, transport)
    except ValueError as error:
        raise ValueError(f"transport_s in {named!r} must be a list of seconds of each decision: {error}") from None
    if not isinstance(sensors, dict) or not all(isinstance(each, dict) for each in sensors.values()):
        raise ValueError(f"the sensors in {named!r} must be an object for each, got {sensors!r:.80}")
    try:
        read = {name: _sensor_of(each) for name, each in sensors.items()}
    except (TypeError, ValueError) as error:
        raise ValueError(f"the sensors in {named!r} must be as Latencies.to_json writes them: {error}") from None
    return latency, transport, read


def _sensor_of(written: Mapping[str, Any]) -> Sensor:
    """Return a sensor of what `_written` has made of it."""
    rest = dict(written)
    if ("age_s" in rest) == ("latency_s" in rest):
        raise ValueError(f'a sensor must have either "age_s" or "latency_s", got {[*rest]}')
    ages, fps = rest.pop("age_s", None), rest.pop("fps", None)
    if isinstance(ages, str):  # which would be read as a path
        raise ValueError(f"age_s must be a list of seconds, got {ages!r}")
    latency: Any = rest.pop("latency_s") if ages is None else ReadingAges(ages, fps)
    of = rest.pop("of", None)
    return Sensor(latency, of=None if of is None else slice(*of), **rest)

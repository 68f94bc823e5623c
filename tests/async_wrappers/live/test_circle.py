"""The circle, played: a live run is measured, its file makes a simulation late, and that shows the same ages."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from async_wrappers import (
    AsyncRunner,
    Latencies,
    LogNormal,
    RealtimeDelay,
    Sensor,
    SensorDelay,
    Trace,
    VectorRealtimeDelay,
    VectorSensorDelay,
    plan,
)
from tests.worlds.stamping_machine import FPS, Stamping
from tests.worlds.tensor_vector import counting_vector

STILL = np.zeros(1, np.float32)
FRAMES = 600
WORKERS, PLAYOUT = 3, 5


class Simulator(gym.Env[Any, Any]):
    """The machine, simulated: its sensors show each frame's number at once."""

    observation_space, action_space = Stamping.observation_space, Stamping.action_space
    noop_action = STILL

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.frame = 0
        return self._shown(), {}

    def step(self, action: Any) -> Any:
        self.frame += 1
        return self._shown(), 0.0, False, False, {}

    def _shown(self) -> Any:
        return {name: np.array([self.frame], np.float32) for name in ("camera", "joints")}


def measured(machine: Any, path: Path, latency: Any = None) -> tuple[Any, Latencies]:
    """Play a machine on the virtual clock; return the report, and what its file holds."""
    runner = AsyncRunner(
        lambda: machine,
        lambda: lambda observation: STILL,
        WORKERS,
        FPS,
        playout=PLAYOUT,
        default_action="noop",
        backend="virtual",
        latency=LogNormal(mean=0.05, cv=0.2) if latency is None else latency,
    )
    report = runner.run(frames=FRAMES)
    report.latencies().to_json(path)
    return report, Latencies.from_json(path)


def ages_of(env: Any, frames: int = FRAMES) -> list[dict[str, float]]:
    """Return the ages of sensors, in milliseconds, on each frame of an episode."""
    _, info = env.reset(seed=1)
    infos = [info, *(env.step(STILL)[-1] for _ in range(frames))]
    return [{name: round(1000 * float(age), 3) for name, age in info["sensor_ages"].items()} for info in infos]


def shares(ages: list[float]) -> dict[float, float]:
    """Return how often each age occurs, those of the first frames aside, on which nothing has arrived."""
    ages = ages[10:]
    return {age: number / len(ages) for age, number in sorted(Counter(ages).items())}


@pytest.mark.parametrize(
    ("rate", "latencies", "off"),
    [
        (25, [0.06], 0.002),  # on frames' beginnings
        (30, [0.03], 0.004),  # on thirds of a frame
        (12.5, [0.05, 0.09, 0.05], 0.03),
        (30, [0.025, 0.031, 0.047], 0.03),
    ],
)
def test_the_simulation_shows_the_ages_of_the_run(rate: Any, latencies: Any, off: float, tmp_path: Path) -> None:
    machine = Stamping(latencies, rate)
    report, file = measured(machine, tmp_path / "robot.json")
    live = report.readings
    simulated = ages_of(SensorDelay(Simulator(), file, fps=FPS))
    for name in ("camera", "joints"):
        expected = shares([round(age / 1e6, 3) for age in live[name].ages])
        found = shares([ages[name] for ages in simulated])
        assert found.keys() == expected.keys()
        assert found == pytest.approx(expected, abs=off)
    assert file.sensors["camera"].rate == pytest.approx(rate) and file.sensors["camera"].drop == 0


def test_the_simulation_shows_about_the_ages_of_a_run_whose_readings_overtake_each_other(tmp_path: Path) -> None:
    latencies = np.random.default_rng(3).lognormal(np.log(0.035), 0.4, 211).round(4).tolist()
    report, file = measured(Stamping(latencies, 30), tmp_path / "robot.json")
    assert report.sensors["camera"]["lost"] > 0.05  # which no frame has shown
    expected = shares([round(age / 1e6, 3) for age in report.readings["camera"].ages])
    found = shares([ages["camera"] for ages in ages_of(SensorDelay(Simulator(), file, fps=FPS))])
    mean, of_the_run = (sum(age * share for age, share in each.items()) for each in (found, expected))
    assert mean == pytest.approx(of_the_run, rel=0.03)
    both = {*found, *expected}
    assert sum(abs(found.get(age, 0) - expected.get(age, 0)) for age in both) / 2 < 0.04


def test_ages_are_those_of_the_run_frame_by_frame_if_sensors_are_as_late_each_time(tmp_path: Path) -> None:
    report, file = measured(Stamping((0.06,), 50), tmp_path / "robot.json")
    simulated = ages_of(SensorDelay(Simulator(), file, fps=FPS))
    for name in ("camera", "joints"):
        live = [round(age / 1e6, 3) for age in report.readings[name].ages]
        assert [ages[name] for ages in simulated] == live


def test_decisions_are_as_late_as_in_the_run_behind_its_sensors(tmp_path: Path) -> None:
    report, file = measured(Stamping(), tmp_path / "robot.json")
    env = RealtimeDelay(
        SensorDelay(Simulator(), file, fps=FPS),
        latency=file,
        workers=WORKERS,
        fps=FPS,
        playout=PLAYOUT,
        default_action="noop",
    )
    env.reset(seed=0)
    delays, whole = [], []
    for _ in range(FRAMES // 2):
        *_, info = env.step(STILL)
        realtime = info["realtime"]
        delays.append(realtime["delay"])
        whole.append(realtime["delay"] + realtime["observation_info"]["sensor_ages"]["camera"] * FPS)
    assert {*delays} == {PLAYOUT} == {report.delay_frames["p50"], report.delay_frames["max"]}
    assert set(np.round(whole[10:], 6)) == {PLAYOUT + 3.0, PLAYOUT + 4.0}  # sensors, then inference
    assert file.transport is None and file.inference == report.latency_trace() == file.latency


def test_the_circle_closes_a_simulation_that_is_played_live_measures_the_same(tmp_path: Path) -> None:
    report, file = measured(Stamping((0.03,), 30), tmp_path / "one.json")
    again, second = measured(SensorDelay(Simulator(), file, fps=FPS), tmp_path / "two.json", latency=file)
    assert second.sensors["camera"].rate == file.sensors["camera"].rate
    for name in ("camera", "joints"):
        one, two = (shares([round(age / 1e6, 3) for age in each.readings[name].ages]) for each in (report, again))
        assert two == pytest.approx(one, abs=0.01)
    assert again.delay_frames == report.delay_frames


def test_vectors_and_the_planner_take_the_file(tmp_path: Path) -> None:
    file = Latencies(
        [0.05, 0.06], transport=[0.01, 0.02], sensors={"imu": Sensor(0.04, of=slice(2)), "rest": Sensor(of=slice(2, 3))}
    )
    file.to_json(tmp_path / "robot.json")
    assert Trace(tmp_path / "robot.json") == file.latency  # as `plan --trace` reads it
    assert file.inference.latencies.tolist() == pytest.approx([0.04, 0.04])
    inner = VectorSensorDelay(counting_vector(2, AutoresetMode.SAME_STEP), file, FPS)
    env = VectorRealtimeDelay(inner, latency=file, fps=FPS, default_action="repeat")
    _, info = env.reset(seed=0)
    assert set(info["sensor_ages"]) == {"imu", "rest"}
    planned = plan(file, fps=FPS)
    assert planned.latency_ms["mean"] == pytest.approx(55, rel=0.01)
    assert 'latency=Latencies("FILE")' in str(planned)


@pytest.mark.parametrize(
    ("terms", "sentence"),
    [
        ({"transport": [0.01]}, "transport must have a time for each of 2 decisions, got 1 times"),
        ({"transport": [0.1, 0.0]}, "transport must be a part of the latency, got 0.1 of 0.05 s at place 0"),
        ({"sensors": {"camera": 0.1}}, "sensors must be a dict from names to Sensor, got {'camera': 0.1}"),
        ({"latency": []}, "latencies must be a non-empty list"),
        (
            {"latency": "robot.json", "transport": [0.1]},
            "transport and sensors must be None with the file 'robot.json'",
        ),
    ],
)
def test_numbers_that_do_not_fit_are_one_sentence(terms: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{sentence}"):
        Latencies(**{"latency": [0.05, 0.06], **terms})


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ('{"latency_s": [0.1], "sensors": {"camera": {"rate": 30}}}', 'either "age_s" or "latency_s"'),
        ('{"latency_s": [0.1], "sensors": {"camera": {"age_s": [0.1]}}}', "fps must be"),
        ('{"latency_s": [0.1], "sensors": {"camera": {"latency_s": 0.1, "colour": 1}}}', "colour"),
        ('{"latency_s": [0.1], "sensors": [1]}', "must be an object for each"),
        (
            '{"latency_s": [0.1], "sensors": {"camera": {"age_s": "a.json", "fps": 9}}}',
            "age_s must be a list of seconds",
        ),
        ('{"latency_s": [0.1], "sensors": {"camera": {"latency_s": 0.1, "of": ["a", "b", null]}}}', "whole numbers"),
        ('{"latency_s": [0.1], "transport_s": [0.1, 0.1]}', "transport_s .* for each of 1 decisions, got 2 times"),
        ('{"latency_s": [0.1], "transport_s": "a.json"}', "transport_s .* must be a list of seconds, got 'a.json'"),
        ('{"latency_s": [0.1], "format": 2}', "must be of format 1, got 2"),
    ],
)
def test_a_file_that_holds_something_else_is_one_sentence(content: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "robot.json").write_text(content)
    with pytest.raises(ValueError, match=sentence) as raised:
        Latencies.from_json(tmp_path / "robot.json")
    assert "robot.json" in str(raised.value) and "\n" not in str(raised.value)


def test_a_sensor_that_is_not_in_the_simulation_is_one_sentence() -> None:
    with pytest.raises(ValueError, match=r"^sensors must be keys of \['camera', 'joints'\], got 'radar'"):
        SensorDelay(Simulator(), Latencies([0.1], sensors={"radar": Sensor(0.1)}), fps=FPS)


def test_at_another_frame_rate_the_latencies_of_all_readings_are_drawn(tmp_path: Path) -> None:
    _, file = measured(Stamping((0.06,), 25), tmp_path / "robot.json")
    ages = [each["camera"] for each in ages_of(SensorDelay(Simulator(), file, fps=100))]
    assert np.mean(ages[20:]) == pytest.approx(65, abs=5)  # 60 ms, within half a frame of the run, and 0 to 30 ms


@pytest.mark.parametrize("latency", [LogNormal(0.1, 0.2), 0.04, [0.04, 0.05]])
def test_sensors_of_ones_own_are_written_if_their_latencies_are_measured(latency: Any, tmp_path: Path) -> None:
    written = Latencies([0.1], sensors={"camera": Sensor(latency, rate=30, phase=0, hold=0.1)})
    if isinstance(latency, LogNormal):
        with pytest.raises(ValueError, match=r"^the latency of 'camera' must be measured, a list or a number"):
            written.to_json(tmp_path / "robot.json")
    else:
        written.to_json(tmp_path / "robot.json")
        sensor = Latencies.from_json(tmp_path / "robot.json").sensors["camera"]
        assert (sensor.rate, sensor.phase, sensor.hold, sensor.drop) == (30, 0, 0.1, 0)

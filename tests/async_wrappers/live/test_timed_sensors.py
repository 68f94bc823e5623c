"""Ages of sensors in a live run: of a machine that stamps its readings, and of an environment with late sensors."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from async_wrappers import (
    AsyncRunner,
    Latencies,
    MachineEnv,
    MachineFailed,
    Sensor,
    SensorDelay,
    load_recording,
)
from async_wrappers.checks import BrokenEnvironment
from async_wrappers.live.report.sensor_readings import SensorReadings
from async_wrappers.testing.machines import MachineContract
from tests.worlds.stamping_machine import FPS, Stamping, make_still

STILL = np.zeros(1, np.float32)


def runner(make_env: Any, **terms: Any) -> AsyncRunner:
    return AsyncRunner(
        make_env,
        make_still,
        **{"workers": 2, "fps": FPS, "default_action": "noop", "backend": "virtual", "latency": 0.03, **terms},
    )


class Numbers(gym.Env[Any, Any]):
    """Its first number is a camera's."""

    observation_space = gym.spaces.Box(-1e9, 1e9, (2,), np.float64)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    noop_action = STILL

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.frame = 0
        return np.zeros(2), {}

    def step(self, action: Any) -> Any:
        self.frame += 1
        return np.full(2, float(self.frame)), 0.0, False, False, {}


class TestStamping(MachineContract):
    frames = 10

    def make_machine(self) -> Any:
        return Stamping()


def test_the_report_has_the_age_and_the_rate_of_each_sensor_that_a_machine_stamps(tmp_path: Path) -> None:
    report = runner(Stamping).run(frames=400)
    camera, joints = report.sensors["camera"], report.sensors["joints"]
    # A reading every second frame, seen three frames later: 60 and 80 ms old in turns.
    assert (camera["age_ms"]["p50"], camera["age_ms"]["p95"]) == pytest.approx((60, 80), abs=1e-3)
    assert (camera["rate"], joints["rate"]) == pytest.approx((25, 50))
    assert (joints["age_ms"]["p50"], camera["lost"], joints["lost"]) == (pytest.approx(20, abs=1e-3), 0, 0)
    assert "sensor     camera: p50 60.00, p95 80.00 ms old, 25 a second\n" in str(report)
    report.to_json(tmp_path / "report.json")
    written = json.loads((tmp_path / "report.json").read_text())
    assert written["sensors"]["camera"]["rate"] == pytest.approx(25)
    assert "readings" not in written


def test_bounded_measurements_and_the_thread_backend_report_them_too() -> None:
    report = runner(Stamping, backend="thread", latency=None, timeline=1.0).run(frames=30)
    assert report.sensors["camera"]["rate"] == pytest.approx(25)
    assert report.sensors["joints"]["age_ms"]["p50"] == pytest.approx(20, rel=0.01)


def test_a_recording_has_the_ages_of_each_frame(tmp_path: Path) -> None:
    runner(Stamping, record=tmp_path / "run").run(frames=20)
    recording = load_recording(tmp_path / "run")
    ages = recording[0].ages
    assert recording.sensors == ("camera", "joints") == tuple(ages)
    expected = [0, 20, 40, 60, 80, 60, 80]
    assert (1000 * ages["camera"][:7]).tolist() == pytest.approx(expected, abs=1e-6)
    assert ages["joints"].shape == (21,)


def test_a_recording_by_another_process_has_them_too(tmp_path: Path) -> None:
    with runner(
        Stamping, backend="process", latency=None, workers=1, calibration_time=0, record=tmp_path / "run"
    ) as live:
        report = live.run(frames=15)
    assert report.sensors["camera"]["rate"] == pytest.approx(25)
    (episode,) = load_recording(tmp_path / "run")
    assert (1000 * episode.ages["camera"][3:7]).tolist() == pytest.approx([60, 80, 60, 80], abs=1e-6)
    measured = report.latencies()
    assert measured.transport is not None and len(measured.transport) == len(measured.latency) == len(report.spans)


def test_a_run_without_sensors_records_as_before(tmp_path: Path) -> None:
    report = runner(Numbers, record=tmp_path / "run").run(frames=5)
    recording = load_recording(tmp_path / "run")
    assert (report.sensors, recording.sensors, recording[0].ages) == ({}, (), {})
    assert "sensors" not in json.loads((tmp_path / "run" / "recording.json").read_text())


def test_a_machine_env_turns_stamps_into_ages() -> None:
    env = MachineEnv(Stamping(), waits=False)
    assert env.reset()[1]["sensor_ages"] == {"camera": 0.0, "joints": 0.0}
    *_, info = env.step(STILL)
    assert info["sensor_ages"] == pytest.approx({"camera": 0.02, "joints": 0.02})


class Awry(Stamping):
    """Stamps its readings on its second frame with something of its own."""

    stamps: Any = None

    def read(self) -> Any:
        observation, info = super().read()
        return observation, {"sensor_stamps": self.stamps} if self.frame else info


@pytest.mark.parametrize(
    ("stamps", "sentence"),
    [
        ({"camera": 2e9}, "observe must stamp 'camera' with the time of its reading, on a clock that is at 1000.020 s"),
        ({"camera": float("nan")}, "observe must stamp 'camera' with the time of its reading"),
        ({"camera": "now"}, "observe must stamp sensors by a dict of seconds, got {'camera': 'now'}"),
        ([1.0], r"observe must stamp sensors by a dict of seconds, got \[1.0\]"),
    ],
)
def test_a_stamp_that_cannot_be_closes_the_machine_with_one_sentence(stamps: Any, sentence: str) -> None:
    machine = Awry()
    machine.stamps = stamps
    env = MachineEnv(machine, waits=False)
    env.reset()
    with pytest.raises(MachineFailed, match=f"^Awry was closed, as its {sentence}"):
        env.step(STILL)


def test_a_clock_that_is_a_little_ahead_is_taken_for_now() -> None:
    machine = Awry()
    machine.stamps = {"camera": machine.now() + 1 / FPS + 0.0005}
    env = MachineEnv(machine, waits=False)
    env.reset()
    assert env.step(STILL)[-1]["sensor_ages"] == {"camera": 0.0}


def test_a_sensor_that_is_named_and_not_stamped_is_one_sentence() -> None:
    machine = Awry()
    machine.stamps = {"camera": 1_000.0}
    sentence = r"info\['sensor_ages'\] must be the ages of camera, joints in seconds, as timed_sensors names them, got"
    with pytest.raises(BrokenEnvironment, match=f"^{sentence}"):
        runner(lambda: machine).run(frames=5)


@pytest.mark.parametrize(
    ("timed", "sentence"),
    [
        (("camera", "radar"), r"timed_sensors must be keys of \['camera', 'joints'\], got 'radar'"),
        ({"camera": slice(0, 1)}, r"timed_sensors must be keys of \['camera', 'joints'\], got 'camera'"),
        ("camera", "timed_sensors must be names of sensors, or a dict from names to slices of a Box, got 'camera'"),
        ((), "timed_sensors must be names of sensors"),
        ({"camera": 3}, "timed_sensors must be names of sensors"),
    ],
)
def test_sensors_that_are_no_part_of_the_observations_are_one_sentence(timed: Any, sentence: str) -> None:
    machine = Stamping()
    machine.timed_sensors = timed
    with pytest.raises(ValueError, match=f"^{sentence}"):
        runner(lambda: machine).run(frames=5)


def test_slices_of_a_box_that_are_not_there_are_one_sentence() -> None:
    env: Any = Numbers()
    env.timed_sensors = {"imu": slice(90, 95)}
    with pytest.raises(ValueError, match=r"^timed_sensors must be slices of the numbers of Box"):
        runner(lambda: env).run(frames=5)


def test_stamps_are_of_the_monotonic_clock_if_a_machine_has_none_of_its_own() -> None:
    other = Stamping()
    methods = {name: getattr(other, name) for name in ("send", "observe", "close", "observation_space", "action_space")}

    def reset(**options: Any) -> Any:
        return other.reset()[0], {"sensor_stamps": {"camera": time.monotonic()}}

    _, info = MachineEnv(SimpleNamespace(reset=reset, **methods), waits=False).reset()
    assert info["sensor_ages"]["camera"] < 100  # the other clock is at 1,000 s; this one at anything


def test_an_environment_whose_sensors_are_late_reports_their_ages_in_a_live_run() -> None:
    sensors = {"camera": Sensor(0.06, rate=30), "joints": Sensor(0.02, phase=0)}
    env = SensorDelay(MachineEnv(Stamping(), waits=False), sensors, fps=FPS)
    report = runner(lambda: env).run(frames=300)
    assert report.sensors["camera"]["rate"] == pytest.approx(30)
    assert report.sensors["joints"]["age_ms"]["p50"] == pytest.approx(20)


def test_readings_that_no_frame_shows_count_as_lost() -> None:
    seen = SensorReadings("camera", None)
    seen.begin(0, 0)
    for taken in (40, 80, 80, 160, 200, 240):  # 120 is missing; ms
        seen.note(60_000_000, taken * 1_000_000, 1)
    assert (seen.rate, seen.lost) == (pytest.approx(20), pytest.approx(1 / 6))
    made = seen.sensor(50)
    assert (made.rate, made.drop) == (25, pytest.approx(1 / 6))


def test_a_reading_that_may_have_been_overtaken_is_not_lost() -> None:
    seen = SensorReadings("camera", None)
    seen.begin(0, 0)
    # That of 120 ms came with the next one, as old as 100 ms.
    for taken, age in ((40, 60), (80, 120), (80, 140), (160, 60), (200, 60), (240, 60)):
        seen.note(age * 1_000_000, taken * 1_000_000, 1)
    made = seen.sensor(50)
    assert made.drop == 0
    assert made.latency.ages.tolist() == [0.06, 0.12, 0.1, 0.06, 0.06, 0.06]


def test_what_came_while_the_loop_was_late_is_not_lost() -> None:
    seen = SensorReadings("joints", None)
    seen.begin(0, 0)
    for taken in (20, 40, 60, 120, 140, 160):  # two frames were skipped after 60 ms
        seen.note(1_000_000, taken * 1_000_000, 1)
    assert seen.lost == 0
    assert seen.sensor(50).rate is None


@pytest.mark.parametrize(
    ("measured", "rate"), [(29.97, 30.0), (50.1, None), (48.0, 48.0), (100.0, None), (12.49, 12.5)]
)
def test_a_measured_rate_is_that_fraction_of_the_frame_rate_which_is_simple_and_near(
    measured: float, rate: Any
) -> None:
    seen = SensorReadings("camera", None)
    seen.begin(0, 0)
    for frame in range(1, 300):
        newest = int(frame / 50 * measured)
        seen.note(1, round(newest * 1e9 / measured), 1)
    found = seen.sensor(50).rate
    assert found is None if rate is None else found == pytest.approx(rate, rel=0.005)


def test_a_sensor_that_has_shown_too_few_readings_is_one_sentence() -> None:
    report = runner(Stamping).run(frames=5)
    with pytest.raises(ValueError, match=r"^'camera' must show three readings or more to be simulated, got 1$"):
        report.latencies()


def test_latencies_come_back_from_their_file(tmp_path: Path) -> None:
    measured = runner(Stamping).run(frames=100).latencies()
    measured.to_json(tmp_path / "robot.json")
    again = Latencies.from_json(tmp_path / "robot.json")
    assert again == measured == Latencies(tmp_path / "robot.json")
    assert again.sensors["camera"].rate == 25 and again.sensors["joints"].rate is None


def test_the_numbers_of_a_box_that_are_a_sensors_are_in_the_file() -> None:
    def make_env() -> Any:
        return SensorDelay(Numbers(), {"camera": Sensor(0.06, rate=25, phase=0, of=slice(0, 1))}, fps=FPS)

    measured = runner(make_env).run(frames=60).latencies()
    assert measured.sensors["camera"].of == slice(0, 1)
    env = SensorDelay(Numbers(), measured, fps=FPS)
    env.reset(seed=0)
    for _ in range(10):
        shown, *_ = env.step(STILL)
    assert shown[1] == 10 and shown[0] in (6, 7)

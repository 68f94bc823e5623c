"""Sensors against their definition, reading by reading in exact fractions, for each row by itself."""

from __future__ import annotations

import math
import pickle
import re
from collections.abc import Callable
from copy import deepcopy
from fractions import Fraction
from functools import cache
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from hypothesis import given, settings
from hypothesis import strategies as st

from async_wrappers import RealtimeDelay, Sensor, SensorDelay, Uniform, VectorSensorDelay
from async_wrappers.tensors.row_schedule import Pool
from tests.worlds.tensor_vector import Counting, Tensors, counting_vector

FPS = 50
NAMES = ("episode", "frame", "received")


def seen_by_definition(
    sensor: Sensor, its_seed: int, row: int, episode: int, frames: int
) -> tuple[list[int], list[Fraction]]:
    """Return which frame of an episode each of its frames shows, and how many frames ago the reading was taken."""
    shown, ages = _seen(repr(sensor), its_seed, row, episode)
    return shown[:frames], ages[:frames]


@cache
def _draws(written: str, its_seed: int) -> tuple[Fraction, int, list[int], Any, Any, Any]:
    """Return readings per frame, how many are drawn, and their latencies in ns, losses, phases and holds."""
    sensor = eval(written)
    share = Fraction(1) if sensor.rate is None else Fraction(str(sensor.rate)) / FPS
    draws = np.random.default_rng(np.random.SeedSequence(its_seed).spawn(1)[0])
    number = max(64, 4_096 // share.numerator)
    if hasattr(sensor.latency, "stream"):
        stream = sensor.latency.stream(np.random.SeedSequence(its_seed))
        latencies = [stream.draw() for _ in range(number)]
    else:
        latencies = [round(sensor.latency * 1e9)] * number
    lost = draws.random(number) < sensor.drop
    phases = draws.integers(0, share.denominator, 4_096) if sensor.phase is None else None
    holds = draws.random(number) < sensor.hold
    return share, number, latencies, lost, phases, holds


@cache
def _seen(written: str, its_seed: int, row: int, episode: int, frames: int = 14) -> tuple[list[int], list[Fraction]]:
    sensor = eval(written)
    share, number, latencies, lost, phases, holds = _draws(written, its_seed)
    at = Pool.place(row, episode, 0)
    phase = (
        Fraction(int(phases[at % 4_096]), share.numerator) if phases is not None else Fraction(str(sensor.phase)) * FPS
    )
    readings = []  # (taken, arrives), in frames
    for n in range(int(frames * share) + 2):
        taken = phase + n / share
        draw = Pool.place(row, episode, math.floor(taken)) % number
        readings.append((taken, None if lost[draw] else taken + Fraction(latencies[draw], 10**9) * FPS))
    shown, ages = list[int](), list[Fraction]()
    newest: Fraction | None = None
    for frame in range(frames):
        arrived = [taken for taken, arrives in readings if arrives is not None and arrives <= frame]
        if (
            arrived
            and not holds[Pool.place(row, episode, frame) % number]
            and (newest is None or max(arrived) > newest)
        ):
            newest = max(arrived)
        shown.append(0 if newest is None else math.floor(newest))
        ages.append(Fraction(frame) if newest is None else frame - newest)
    return shown, ages


SENSORS = st.builds(
    Sensor,
    latency=st.sampled_from([0, 0.02, 0.03, 0.1, Uniform(0.0, 0.09)]),
    rate=st.sampled_from([None, 50, 30, 12.5, 7]),
    phase=st.sampled_from([None, 0.0]),
    drop=st.sampled_from([0.0, 0.4]),
    hold=st.sampled_from([0.0, 0.3]),
)


@st.composite
def sensors(draw: Any) -> dict[str, Sensor]:
    """Two of the three numbers are of a sensor each."""
    made = {name: draw(SENSORS) for name in ("frame", "episode")}
    return {
        name: Sensor(each.latency, each.rate, each.phase, each.drop, each.hold, slice(at, at + 1))
        for (name, each), at in zip(made.items(), (1, 0), strict=True)
    }


def check(
    shown: Any, ages: Any, of: dict[str, Sensor], seeds: dict[str, int], row: int, episode: int, frame: int
) -> None:
    frames, taken = seen_by_definition(of["frame"], seeds["frame"], row, episode, frame + 1)
    assert shown[1] == frames[frame]
    assert shown[0] == episode
    assert ages["frame"] == pytest.approx(float(taken[frame]) / FPS)
    _, taken = seen_by_definition(of["episode"], seeds["episode"], row, episode, frame + 1)
    assert ages["episode"] == pytest.approx(float(taken[frame]) / FPS)


def seeds_of(of: dict[str, Sensor], seed: int) -> dict[str, int]:
    return dict(zip(of, np.random.SeedSequence(seed).generate_state(len(of)).tolist(), strict=True))


@settings(max_examples=10, deadline=None)
@given(of=sensors())
def test_one_environment_shows_what_the_definition_says(of: dict[str, Sensor]) -> None:
    env, seeds = SensorDelay(Counting(0), of, fps=FPS), seeds_of(of, 5)
    for episode in range(3):
        shown, info = env.reset(seed=5 if episode == 0 else None)
        check(shown, info["sensor_ages"], of, seeds, 0, episode, 0)
        frame, over = 0, False
        while not over:
            shown, _, terminated, truncated, info = env.step(np.zeros(1))
            over, frame = terminated or truncated, frame + 1
            check(shown, info["sensor_ages"], of, seeds, 0, episode, frame)
            assert shown[2] == 0.0


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize("on", ["numpy", "torch"])
@settings(max_examples=3, deadline=None)
@given(of=sensors())
def test_each_row_of_a_vector_shows_what_the_definition_says(
    on: str, mode: AutoresetMode, of: dict[str, Sensor]
) -> None:
    to: Callable[[Any], Any] = np.asarray if on == "numpy" else lambda array: torch.as_tensor(np.array(array))
    vector, seeds = counting_vector(3, mode), seeds_of(of, 5)
    env = VectorSensorDelay(Tensors(vector, to, np.asarray), of, FPS)
    env.reset(seed=5)
    frames, episodes, begins = [0] * 3, [0] * 3, [False] * 3
    for _ in range(30):
        shown, _, terminated, truncated, info = env.step(to(np.zeros((3, 1))))
        over, ages = np.asarray(terminated) | np.asarray(truncated), info["sensor_ages"]
        for row in range(3):
            frames[row] += 1
            if begins[row]:  # the frame of a reset
                frames[row], episodes[row] = 0, episodes[row] + 1
            its = {name: float(np.asarray(each)[row]) for name, each in ages.items()}
            if over[row] and mode is AutoresetMode.SAME_STEP:
                last = np.asarray(info["final_obs"])[row]
                assert (
                    last[1]
                    == seen_by_definition(of["frame"], seeds["frame"], row, episodes[row], frames[row] + 1)[0][-1]
                )
                frames[row], episodes[row] = 0, episodes[row] + 1
            check(np.asarray(shown)[row], its, of, seeds, row, episodes[row], frames[row])
        begins = (over & (mode is AutoresetMode.NEXT_STEP)).tolist()
        if mode is AutoresetMode.DISABLED and over.any():
            shown, info = env.reset(options={"reset_mask": to(over)})
            for row in np.flatnonzero(over).tolist():
                frames[row], episodes[row] = 0, episodes[row] + 1
                its = {name: float(np.asarray(each)[row]) for name, each in info["sensor_ages"].items()}
                check(np.asarray(shown)[row], its, of, seeds, row, episodes[row], 0)
    vector.close()


class Camera(gym.Env[Any, Any]):
    """Shows the frame's number, to a camera and to an encoder, without end."""

    observation_space = gym.spaces.Dict({name: gym.spaces.Box(-1e9, 1e9, (1,)) for name in ("camera", "joints")})
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.frame = 0
        return self._shown(), {}

    def step(self, action: Any) -> Any:
        self.frame += 1
        return self._shown(), 0.0, False, False, {}

    def _shown(self) -> Any:
        return {name: np.array([self.frame], np.float32) for name in ("camera", "joints")}


def test_a_rate_that_does_not_divide_the_frame_rate_is_exact_in_the_mean() -> None:
    env = SensorDelay(Camera(), {"camera": Sensor(rate=30)}, fps=50)
    env.reset(seed=1)
    seen = {float(env.step(0)[0]["camera"][0]) for _ in range(5_000)}
    assert len(seen) in (3_000, 3_001)


def test_ages_are_shown_and_inference_is_late_outside_of_the_sensors() -> None:
    env: Any = SensorDelay(Camera(), {"camera": Sensor(0.06), "joints": 0}, fps=50, shows_age=True)
    assert env.reset(seed=0)[0] in env.observation_space
    env = RealtimeDelay(env, delay=2, default_action=0)
    env.reset(seed=0)
    for _ in range(5):
        shown, *_, info = env.step(1)
    assert (info["realtime"]["start"], shown["joints"][0], shown["camera"][0]) == (5, 5.0, 2.0)
    assert shown["sensor_ages"].tolist() == pytest.approx([0.06, 0.0])
    assert info["realtime"]["observation_info"]["sensor_ages"] == pytest.approx({"camera": 0.06, "joints": 0.0})


@pytest.mark.parametrize(
    ("sensors", "sentence"),
    [
        ({"radar": 0.1}, "sensors must be keys of ['camera', 'joints'], got 'radar'"),
        ({}, "sensors must have one at least"),
        ({"camera": Sensor(rate=60)}, "the rate of 'camera' must be <= 50, the frames per second, got 60"),
        ({"camera": Sensor(rate=math.pi)}, "the rate of 'camera' must be a fraction of 50 frames per second"),
        ({"camera": Sensor(of=slice(2))}, "sensors must be keys of ['camera', 'joints'], got 'camera'"),
    ],
)
def test_sensors_that_cannot_be_are_one_sentence(sensors: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}"):
        SensorDelay(Camera(), sensors, fps=50)


@pytest.mark.parametrize(
    ("name", "value"), [("drop", 1.0), ("hold", -0.1), ("rate", 0), ("phase", 1.0), ("phase", -1), ("latency", -1)]
)
def test_numbers_of_a_sensor_that_cannot_be_are_named(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be "):
        Sensor(**{"rate": 10, name: value})


def test_a_slice_that_is_not_there_and_another_kind_of_environment_are_one_sentence() -> None:
    with pytest.raises(ValueError, match=r"^sensors must be slices of 3 numbers, got 'imu'"):
        SensorDelay(Counting(0), {"imu": Sensor(of=slice(3, 5))}, fps=FPS)
    with pytest.raises(ValueError, match=r"use VectorSensorDelay$"):
        SensorDelay(counting_vector(2, AutoresetMode.SAME_STEP), {"imu": Sensor(of=slice(1))}, fps=FPS)
    vector: Any = Counting(0)
    with pytest.raises(ValueError, match=r"use SensorDelay$"):
        VectorSensorDelay(vector, {"imu": Sensor(of=slice(1))}, fps=FPS)


def test_it_is_made_again_from_its_record_and_copied_in_mid_episode() -> None:
    if "Counting-v0" not in gym.registry:
        gym.register("Counting-v0", Counting, kwargs={"row": 0})
    env = SensorDelay(gym.make("Counting-v0", disable_env_checker=True), {"imu": Sensor(0.04, of=slice(0, 3))}, fps=50)
    assert env.spec is not None
    again = gym.make(env.spec, disable_env_checker=True)
    assert env.reset(seed=1)[0].tolist() == again.reset(seed=1)[0].tolist()
    env.step(np.zeros(1))
    for twin in (deepcopy(env), pickle.loads(pickle.dumps(env))):
        while twin.unwrapped.frame < 3:
            one, *_ = twin.step(np.zeros(1))
    late: Any = RealtimeDelay(env, 1, default_action="repeat")
    late.reset(seed=1)
    assert deepcopy(late).step(np.zeros(1))[0].tolist() == late.step(np.zeros(1))[0].tolist()
    assert one.shape == (3,)


def test_rows_reset_by_a_mask_after_an_end_begin_with_their_first_frame() -> None:
    vector = counting_vector(2, AutoresetMode.NEXT_STEP)
    env = VectorSensorDelay(vector, {"imu": Sensor(0.04, of=slice(0, 3))}, FPS)
    env.reset(seed=[None, 3])
    over = np.zeros(2, bool)
    while not over[0]:
        _, _, terminated, truncated, _ = env.step(np.zeros((2, 1)))
        over = terminated | truncated
    env.reset(options={"reset_mask": np.array([True, False])})
    shown, *_, info = env.step(np.zeros((2, 1)))
    assert (shown[0, 1], info["sensor_ages"]["imu"][0]) == (0.0, pytest.approx(0.02))


@pytest.mark.parametrize("of", [slice("a", "b"), slice(0.0, 2.0), slice(0, 2, 0)])
def test_a_slice_of_no_whole_numbers_is_one_sentence(of: Any) -> None:
    with pytest.raises(ValueError, match=r"^of must be a slice of whole numbers, got slice"):
        Sensor(of=of)


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ({"a": slice(0, 2), "b": slice(1, 3)}, "sensors must have numbers of their own, got 1 of both 'a' and 'b'"),
        ({"a": slice(0, 4)}, "sensors must be slices of 3 numbers, got 'a': "),
    ],
)
def test_slices_that_share_numbers_or_go_too_far_are_one_sentence(parts: dict[str, slice], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}"):
        SensorDelay(Counting(0), {name: Sensor(of=of) for name, of in parts.items()}, fps=FPS)


@pytest.mark.parametrize("of", [[0, 1], "a", 2])
def test_a_part_that_is_no_slice_is_one_sentence(of: Any) -> None:
    with pytest.raises(ValueError, match=r"^of must be a slice of a Box's numbers, or a tuple of its two ends, got"):
        Sensor(of=of)


@pytest.mark.parametrize(
    ("terms", "sentence"),
    [
        ({"fps": 0}, "fps must be > 0 frames per second, got 0"),
        ({"sensors": [0.04]}, "sensors must be a dict from names to sensors or latencies, got [0.04]"),
    ],
)
def test_arguments_that_cannot_be_are_one_sentence(terms: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        SensorDelay(Counting(0), **{"sensors": {"imu": Sensor(of=slice(2))}, "fps": FPS, **terms})


class Mixed(gym.vector.VectorEnv[Any, Any, Any]):
    """A vector whose camera is on another device than its joints."""

    num_envs = 2
    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
    single_observation_space = Camera.observation_space
    observation_space = gym.vector.utils.batch_space(Camera.observation_space, 2)
    single_action_space = Camera.action_space
    action_space = gym.vector.utils.batch_space(Camera.action_space, 2)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return {"camera": torch.zeros(2, 1, device="meta"), "joints": torch.zeros(2, 1)}, {}


def test_readings_on_another_device_are_one_sentence() -> None:
    env = VectorSensorDelay(Mixed(), {"camera": 0.04, "joints": 0}, FPS)
    sentence = "the readings of 'joints' must be of the library and on the device of the observations, torch on meta"
    with pytest.raises(ValueError, match=f"^{sentence}, got torch.Tensor on cpu: move them there$"):
        env.reset(seed=0)


class Halves(gym.vector.VectorWrapper):
    """Shows two parts of `Counting`'s observations in a dict."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        parts = {"slow": gym.spaces.Box(-1e9, 1e9, (2,)), "quick": gym.spaces.Box(-1e9, 1e9, (1,))}
        self.single_observation_space = gym.spaces.Dict(parts)
        self.observation_space = gym.vector.utils.batch_space(self.single_observation_space, env.num_envs)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, Any]:
        observations, info = self.env.reset(seed=seed, options=options)
        return {"slow": observations[:, :2], "quick": observations[:, 2:]}, info

    def step(self, actions: Any) -> Any:
        observations, *outcome = self.env.step(actions)
        return {"slow": observations[:, :2], "quick": observations[:, 2:]}, *outcome


@pytest.mark.parametrize("to", [np.array, lambda array: torch.as_tensor(np.array(array))])
def test_a_caller_may_write_into_the_observations_of_a_dict(to: Callable[[Any], Any]) -> None:
    logs: list[Any] = []
    for writes in (False, True):
        vector = Halves(Tensors(counting_vector(2, AutoresetMode.NEXT_STEP), to, np.asarray))
        env = VectorSensorDelay(vector, {"slow": Sensor(0.05, rate=5)}, fps=20)
        observations, _ = env.reset(seed=1)
        logs.append([])
        for frame in range(20):
            logs[-1].append({name: part.tolist() for name, part in observations.items()})
            for part in observations.values() if writes else ():
                part[...] = 7.0
            observations, *_ = env.step(to(np.full((2, 1), float(frame))))
    assert logs[0] == logs[1]

"""`frame_rate`: frames per second of an environment's own step, whatever its wrappers skip."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import gymnasium.wrappers as wrappers
import numpy as np
import pytest

from async_wrappers import AppliedActions, LimitAction, Limits, RealtimeDelay
from async_wrappers.envs import create_atari_environment, create_minatar_environment
from async_wrappers.frame_rate import frame_rate
from tests.worlds.recording_env import RecordingEnv


class Stepped(RecordingEnv):
    """Says how many seconds a step takes."""

    def __init__(self, dt: object, render_fps: object = 30) -> None:
        super().__init__()
        self.dt, self.metadata = dt, {"render_fps": render_fps}  # type: ignore[misc]


@pytest.mark.parametrize(
    ("dt", "render_fps", "expected"),
    [
        (0.05, 30, 20),
        (np.float64(0.008), 30, 125),
        (5 * 0.003, 30, 200 / 3),
        (2, 30, 0.5),
        (None, 59.7275, 59.7275),
        (0.0, 30, 30),
        (math.nan, 30, 30),
        (True, 30, 30),
        ("0.05", np.int64(60), 60),
        ([0.05], 30, 30),
    ],
    ids=str,
)
def test_seconds_of_a_step_go_before_the_rate_of_pictures(dt: object, render_fps: object, expected: float) -> None:
    fps = frame_rate(gym.wrappers.TimeLimit(Stepped(dt, render_fps), 9))
    assert fps == expected
    assert type(fps) is (int if expected == int(expected) else float)


@pytest.mark.parametrize("render_fps", [None, 0, -60, math.inf, "60"])
def test_an_environment_that_says_neither_is_refused(render_fps: object) -> None:
    sentence = (
        r"^fps must be given, in frames per second, where the environment has neither dt .* got None and <Stepped"
    )
    with pytest.raises(ValueError, match=sentence):
        frame_rate(Stepped(None, render_fps))


CARTPOLE = "CartPole-v1"
Skip = wrappers.MaxAndSkipObservation


def made(name: str, **arguments: Any) -> Any:
    return gym.make(name, **arguments)


def pong(**arguments: Any) -> Any:
    pytest.importorskip("ale_py")
    return made("ALE/Pong-v5", **arguments)


class Skipping(gym.Wrapper[Any, Any, Any, Any]):
    """Plays four frames in a step, as users' own wrappers do."""

    def step(self, action: Any) -> Any:
        total = 0.0
        for _ in range(4):
            observation, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return observation, total, terminated, truncated, info


class SkippingByWhile(gym.Wrapper[Any, Any, Any, Any]):
    def step(self, action: Any) -> Any:
        left, step = 4, super().step
        while left:
            left, outcome = left - 1, step(action)
        return outcome


class SkippingInAList(gym.Wrapper[Any, Any, Any, Any]):
    def step(self, action: Any) -> Any:
        return [self.env.step(action) for _ in range(4)][-1]


class Shaping(gym.Wrapper[Any, Any, Any, Any]):
    """Plays one frame in a step, though it has loops, and reads an entry of that name."""

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = self.env.step(action)
        for _ in range(3):
            info["step"] = info.get("step", 0) + 1
        return observation, reward, terminated, truncated, info


class Paired(gym.Wrapper[Any, Any, Any, Any]):
    """Says how many frames its step plays."""

    decision_interval = 2


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: made(CARTPOLE), 50),
        (lambda: Skip(made(CARTPOLE), 4), 12.5),
        (lambda: wrappers.RepeatAction(Skip(made(CARTPOLE), 4), 5), 2.5),
        (lambda: Skip(made("Pendulum-v1"), 4), 5),
        (lambda: wrappers.HumanRendering(Skip(made(CARTPOLE, render_mode="rgb_array"), 4)), 12.5),
        (lambda: Shaping(made(CARTPOLE)), 50),
        (lambda: Paired(made(CARTPOLE)), 25),
        (lambda: RealtimeDelay(made(CARTPOLE), delay=8, noops=3, default_action="repeat"), 12.5),
        (lambda: RealtimeDelay(Skip(made("Pendulum-v1"), 2), delay=1, default_action="repeat"), 10),
        (lambda: AppliedActions(RealtimeDelay(made(CARTPOLE), noops=1, default_action="repeat"), 1), 25),
        (lambda: pong(), 15),
        (lambda: pong(frameskip=1), 60),
        (lambda: pong(frameskip=3), 20),
        (lambda: Skip(pong(frameskip=1), 4), 15),
        (lambda: Skip(pong(), 4), 3.75),
        (lambda: wrappers.AtariPreprocessing(pong(frameskip=1), frame_skip=4), 15),
        (lambda: create_minatar_environment("breakout"), 60),
    ],
)
def test_frames_that_wrappers_and_games_skip_are_counted(make: Callable[[], Any], expected: float) -> None:
    env = make()
    assert frame_rate(env) == expected
    env.close()


PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "realtime_delay.md"
ROWS = re.findall(r"^\| `(.*gym\.make.*)`.*\| ([\d.]+) \|$", PAGE.read_text(), re.MULTILINE)


def test_the_page_has_a_table() -> None:
    assert len(ROWS) >= 6


@pytest.mark.parametrize(("environment", "expected"), ROWS)
def test_what_the_page_says_of_an_environment_is_so(environment: str, expected: str) -> None:
    pytest.importorskip("ale_py")
    pytest.importorskip("mujoco")
    env = eval(environment, {"gym": gym, "MaxAndSkipObservation": Skip})
    assert frame_rate(env) == pytest.approx(float(expected), abs=0.005)
    env.close()


@pytest.mark.parametrize("obs_type", ["grayscale", "rgb", "ram"])
@pytest.mark.parametrize("frame_skip", [1, 3, 4])
def test_an_atari_environment_of_ours_has_its_emulated_frames_by_its_skip(frame_skip: int, obs_type: str) -> None:
    pytest.importorskip("ale_py")
    env = create_atari_environment("Boxing", frame_skip, obs_type=obs_type, episodic_life=True, fire_on_reset=True)
    assert frame_rate(env) == 60 / frame_skip


def test_stable_baselines_wrappers_are_counted() -> None:
    atari_wrappers = pytest.importorskip("stable_baselines3.common.atari_wrappers")
    assert frame_rate(atari_wrappers.AtariWrapper(pong(frameskip=1), frame_skip=5)) == 12


@pytest.mark.parametrize("kind", [Skipping, SkippingByWhile, SkippingInAList])
@pytest.mark.parametrize("name", [CARTPOLE, "Pendulum-v1"])
def test_a_wrapper_that_steps_in_a_loop_is_asked_for_fps(kind: Any, name: str) -> None:
    with pytest.raises(ValueError, match=rf"^fps must be given, .* where {kind.__name__} plays a number of frames"):
        frame_rate(wrappers.TimeLimit(kind(made(name)), 9))


def test_a_wrapper_that_steps_in_a_loop_may_say_its_own_time() -> None:
    env = Skipping(made("Pendulum-v1"))
    env.dt = 0.2  # type: ignore[attr-defined]
    assert frame_rate(Skip(env, 2)) == 2.5
    env = Skipping(made(CARTPOLE))
    env.metadata = {**env.metadata, "render_fps": 12.5}
    assert frame_rate(Skip(env, 2)) == 6.25


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: pong(frameskip=(2, 5)), "the game skips frames at random"),
        (lambda: Skip(pong(frameskip=(2, 5)), 4), "the game skips frames at random"),
        (lambda: RealtimeDelay(made(CARTPOLE), latency=0.1, default_action="repeat"), "RealtimeDelay plays a"),
    ],
)
def test_a_random_number_of_frames_is_asked_for_fps(make: Callable[[], Any], reason: str) -> None:
    with pytest.raises(ValueError, match=rf"^fps must be given, in frames per second, where {reason}"):
        frame_rate(make())


def test_every_wrapper_of_gymnasium_that_steps_in_a_loop_is_counted() -> None:
    """Were another one to come, `frame_rate` would ask for fps."""
    from async_wrappers.frame_rate import _SKIPS, _steps_in_a_loop

    others = ("Array", "Jax", "Torch", "vector")  # of array libraries; a folder
    named = [getattr(wrappers, name) for name in wrappers.__all__ if not any(other in name for other in others)]
    kinds = [kind for kind in named if issubclass(kind, gym.Wrapper)]
    looping = {kind.__name__ for kind in kinds if _steps_in_a_loop(kind.step.__code__)}
    assert len(kinds) > 20
    assert looping == _SKIPS.keys() & {kind.__name__ for kind in kinds}


def test_a_delay_and_limits_per_second_take_the_frames_that_are_left() -> None:
    delayed = RealtimeDelay(Skip(made(CARTPOLE), 4), latency=0.16, default_action="repeat")
    assert delayed.reset(seed=0)[1]["realtime"]["start"] == 0
    assert delayed.spec is not None
    assert delayed.spec.additional_wrappers[-1].kwargs["fps"] == 12.5  # two frames of 80 ms
    env = LimitAction(wrappers.RepeatAction(made("Pendulum-v1"), 2), Limits(rate=1.0))
    env.reset(seed=0)
    first, second = (env.step(np.array([2.0], np.float32))[4]["sent"] for _ in range(2))
    assert second - first == pytest.approx(0.1, rel=1e-5)  # 1 a second, at 10 steps a second

"""Limits bound by gin: around an environment, and for a live run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gin
import gymnasium as gym
import pytest

from async_wrappers import AsyncRunner, Limits, configurables

TEXT = """
create_gym_environment.environment_id = "Pendulum-v1"
create_gym_environment.wrappers = [@LimitAction, @RealtimeDelay]
RealtimeDelay.delay = 2
LimitAction.limits = @Limits()
LimitAction.fps = 20
AsyncRunner.limits = @Limits()
AsyncRunner.backend = "virtual"
Limits.rate = [3.0]
Limits.jerk = 40.0
"""


@pytest.fixture
def bound(tmp_path: Path) -> Iterator[None]:
    assert Limits in configurables.CONFIGURABLES
    path = tmp_path / "limits.gin"
    path.write_text(TEXT, encoding="utf-8")
    gin.clear_config()
    gin.parse_config_file(str(path))
    yield
    gin.clear_config()


@pytest.mark.usefixtures("bound")
def test_gin_limits_an_environment_and_a_live_run() -> None:
    make = gin.get_configurable("create_gym_environment")
    env = make()
    env.reset(seed=0)
    info = env.step(env.action_space.high)[4]
    assert info["realtime"]["sent"] == pytest.approx([0.1], abs=1e-6)  # 40 at 20 frames a second
    runner = gin.get_configurable("AsyncRunner")(
        lambda: gym.make("Pendulum-v1"), lambda: lambda observation: [2.0], 1, 20, latency=0.05, default_action=[0.0]
    )
    assert isinstance(runner, AsyncRunner)
    with runner:
        assert runner.run(frames=5).frames["limited"] >= 2

"""The main functions of the process backend's children, called in this process."""

from __future__ import annotations

import multiprocessing
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import pytest

from async_wrappers.live.backends import mains
from async_wrappers.live.memory.layout import SharedLayout, SharedMemory
from async_wrappers.live.run_spec import LoopConfig
from async_wrappers.schedule.stagger import NoStagger

CLOSED: list[str] = []


class Robot(gym.Env[Any, Any]):
    observation_space, action_space, noop_action = gym.spaces.Discrete(2), gym.spaces.Discrete(2), 0

    def close(self) -> None:
        CLOSED.append("robot")


class Cluster:
    """Workers elsewhere, whose connection takes as long to close as it likes."""

    def transport(self, end: Any) -> Any:
        return SimpleNamespace(close=lambda: CLOSED.append("connection"))


def test_a_robot_is_closed_before_the_connection_to_its_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mains, "as_child", lambda *given: nullcontext())
    CLOSED.clear()
    layout, memory = SharedLayout(Robot.observation_space, Robot.action_space, 1, 0, 8, None), SharedMemory.private()
    layout.resize(memory)
    ours, theirs = multiprocessing.Pipe()
    ours.send((layout, None))
    ours.send(None)
    given: Any = Robot, LoopConfig(1, 50, NoStagger()), Cluster()
    monkeypatch.setattr(mains, "cloudpickle", SimpleNamespace(loads=lambda payload: payload))
    mains.run_environment(given, None, memory, None, [], None, theirs)  # type: ignore[arg-type]
    assert CLOSED == ["robot", "connection"]

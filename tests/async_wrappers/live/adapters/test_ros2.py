"""The machine of docs/examples/ros2_machine.py, on a stand-in for rclpy."""

from __future__ import annotations

import runpy
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from async_wrappers import MachineEnv

EXAMPLE = Path(__file__).parents[4] / "docs" / "examples" / "ros2_machine.py"


class Ros:
    """A robot of six joints behind rclpy's functions."""

    def __init__(self) -> None:
        self.up, self.sent, self.hears = False, list[list[float]](), dict[str, Callable[[Any], None]]()
        self.ended = threading.Event()

    def init(self) -> None:
        self.up = True

    def ok(self) -> bool:
        return self.up

    def shutdown(self) -> None:
        self.up = False
        self.ended.set()

    def spin(self, node: Any) -> None:
        self.ended.wait(10)

    def create_node(self, name: str) -> Any:
        def subscribe(kind: Any, topic: str, hear: Callable[[Any], None], depth: int) -> None:
            self.hears[topic] = hear

        def publisher(kind: Any, topic: str, depth: int) -> Any:
            return SimpleNamespace(publish=lambda message: self.sent.append(message.data))

        return SimpleNamespace(
            create_subscription=subscribe,
            create_publisher=publisher,
            destroy_node=lambda: self.hears.clear(),
            get_clock=lambda: SimpleNamespace(now=lambda: SimpleNamespace(nanoseconds=7_520_000_000)),
        )

    def say(self, places: list[float]) -> None:
        header = SimpleNamespace(stamp=SimpleNamespace(sec=7, nanosec=500_000_000))
        names = [f"joint_{k}" for k in range(6)]
        message = SimpleNamespace(name=names, position=places, velocity=[0.5] * 6, header=header)
        self.hears["/joint_states"](message)


@pytest.fixture
def ros(monkeypatch: pytest.MonkeyPatch) -> Ros:
    ros = Ros()
    for name, contents in {
        "rclpy": {each: getattr(ros, each) for each in ("init", "ok", "shutdown", "spin", "create_node")},
        "sensor_msgs": {},
        "sensor_msgs.msg": {"JointState": object},
        "std_msgs": {},
        "std_msgs.msg": {"Float64MultiArray": lambda data: SimpleNamespace(data=data)},
    }.items():
        module = types.ModuleType(name)
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, name, module)
    return ros


def machine_of_the_example() -> Any:
    return runpy.run_path(str(EXAMPLE), run_name="example")["Ros2Machine"]


def test_it_reads_the_newest_state_sends_at_once_and_ends_at_rest(ros: Ros) -> None:
    machine = machine_of_the_example()(patience=5.0)
    ros.say([0.0] * 6)
    observation, info = machine.reset(seed=0)
    assert machine.observation_space.contains(observation)
    assert info["joints"][0] == "joint_0"
    machine.send(np.full(6, 0.5, np.float32))
    ros.say([1.0] * 6)
    ros.say([2.0] * 6)
    observation, reward, terminated, truncated, info = machine.observe()
    assert observation.tolist() == [2.0] * 6 + [0.5] * 6
    assert (reward, terminated, truncated, info) == (0.0, False, False, {"sensor_stamps": {"joints": 7.5}})
    *_, aged = MachineEnv(machine, waits=False).step(np.zeros(6, np.float32))
    assert aged["sensor_ages"] == pytest.approx({"joints": 0.02})
    machine.close()
    machine.close()
    assert ros.sent == [[0.5] * 6, [0.0] * 6, [0.0] * 6]
    assert not machine.thread.is_alive()


def test_a_robot_that_says_nothing_is_one_sentence(ros: Ros) -> None:
    machine = machine_of_the_example()(patience=0.01)
    with pytest.raises(TimeoutError, match=r"no joint states within 0\.01 s: is the robot's driver"):
        machine.reset()
    machine.close()

"""An interface in the form of rtgym's, as a machine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Tuple

from async_wrappers.live.adapters.rtgym import RtgymMachine
from async_wrappers.testing.machines import MachineContract


class Drone:
    """Has what a RealTimeGymInterface has."""

    def __init__(self) -> None:
        self.place, self.speed, self.calls = 0.0, 0.0, list[str]()

    def send_control(self, control: Any) -> None:
        self.speed = float(control[0])
        self.calls.append(f"send {self.speed:g}")

    def reset(self, seed: Any = None, options: Any = None) -> tuple[list[Any], dict[str, Any]]:
        self.place = 0.0
        return [np.array([self.place], np.float32)], {"seed": seed}

    def get_obs_rew_terminated_info(self) -> tuple[list[Any], float, bool, dict[str, Any]]:
        self.place += self.speed
        return [np.array([self.place], np.float32)], -self.place, self.place > 2, {"place": self.place}

    def get_observation_space(self) -> Tuple:
        return Tuple((Box(-10, 10, (1,), np.float32),))

    def get_action_space(self) -> Box[Any]:
        return Box(-1, 1, (1,), np.float32)

    def get_default_action(self) -> Any:
        return np.zeros(1, np.float32)

    def wait(self) -> None:
        self.calls.append("wait")


class WithoutDefault(Drone):
    def get_default_action(self) -> Any:
        raise NotImplementedError


def test_an_interface_is_sent_read_and_brought_to_rest() -> None:
    drone = Drone()
    machine = RtgymMachine(drone)
    assert machine.reset(seed=4) == ((np.zeros(1, np.float32),), {"seed": 4})
    machine.send(np.ones(1, np.float32))
    observation, reward, terminated, truncated, info = machine.observe()
    assert machine.observation_space.contains(observation)
    assert (reward, terminated, truncated, info) == (-1.0, False, False, {"place": 1.0})
    machine.close()
    machine.close()
    assert drone.calls == ["send 1", "send 0", "wait"]


def test_the_default_action_is_the_no_op_where_there_is_one() -> None:
    assert RtgymMachine(Drone()).noop_action == np.zeros(1)
    assert not hasattr(RtgymMachine(WithoutDefault()), "noop_action")


@pytest.mark.parametrize("interface", [Drone, object()])
def test_what_is_no_interface_is_refused(interface: Any) -> None:
    with pytest.raises(ValueError, match=r"an object of a class like rtgym's .* has send_control, .*, got <"):
        RtgymMachine(interface)


class TestRtgymMachine(MachineContract):
    def make_machine(self) -> RtgymMachine:
        return RtgymMachine(Drone())

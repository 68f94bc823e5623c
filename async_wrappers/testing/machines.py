"""The rules of a machine that `AsyncRunner` plays: subclass `MachineContract` and give it `make_machine`."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from async_wrappers.live.runner import AsyncRunner
from async_wrappers.live.world.environment import timed_sensors_of
from async_wrappers.live.world.machine import Machine, MachineEnv
from async_wrappers.wrappers.default_action import find_noop


class MachineContract:
    """Tests of one machine. They move it: run them on a robot only where it may move as it likes.

    Attributes:
        frames: How many frames are played.
        fps: Frames per second of those that are played on a real clock.
        longest_call: Most seconds that `send` or `observe` may take: half a frame or less, as the loop waits for both.
    """

    frames: int = 20
    fps: float = 50
    longest_call: float = 0.010

    def make_machine(self) -> Any:
        """Make the machine."""
        raise NotImplementedError

    @pytest.fixture
    def machine(self) -> Iterator[Any]:
        """Make a machine, and close it after the test."""
        machine = self.make_machine()
        yield machine
        machine.close()

    def actions(self, machine: Any) -> list[Any]:
        """Return an action for each frame, drawn from the action space."""
        machine.action_space.seed(0)
        return [machine.action_space.sample() for _ in range(self.frames)]

    def test_it_has_all_parts_of_a_machine(self, machine: Any) -> None:
        assert isinstance(machine, Machine)
        MachineEnv(machine, fps=self.fps)  # refuses spaces that are none

    def test_what_it_gives_lies_in_its_spaces_and_is_finite(self, machine: Any) -> None:
        observation, info = machine.reset(seed=0, options=None)
        assert machine.observation_space.contains(observation), f"{observation!r} is not in its space"
        assert isinstance(info, dict)
        for action in self.actions(machine):
            sent = machine.send(action)
            assert sent is None or machine.action_space.contains(sent), f"{sent!r} is not in its space"
            observation, reward, terminated, truncated, info = machine.observe()
            assert machine.observation_space.contains(observation), f"{observation!r} is not in its space"
            assert np.isfinite(float(reward)) and isinstance(info, dict)
            if terminated or truncated:
                machine.reset(seed=None, options=None)

    def test_it_can_be_read_without_being_sent_to(self, machine: Any) -> None:
        machine.reset(seed=0, options=None)
        for _ in range(3):
            assert len(machine.observe()) == 5

    def test_neither_half_waits_for_the_frame(self, machine: Any) -> None:
        machine.reset(seed=0, options=None)
        took = []
        for action in self.actions(machine):
            for call in (partial(machine.send, action), machine.observe):
                begin = time.monotonic()
                ended = call()
                took.append(time.monotonic() - begin)
            if ended[2] or ended[3]:
                machine.reset(seed=None, options=None)
        assert np.median(took) <= self.longest_call

    def test_its_no_op_is_an_action(self, machine: Any) -> None:
        noop = find_noop(MachineEnv(machine, waits=False))
        assert noop is None or machine.action_space.contains(noop)

    def test_what_holds_it_where_it_was_read_is_an_action(self, machine: Any) -> None:
        env = MachineEnv(machine, waits=False)
        env.reset(seed=0)
        assert env.held is None or machine.action_space.contains(env.held)

    def test_readings_that_it_stamps_follow_each_other(self, machine: Any) -> None:
        env = MachineEnv(machine, waits=False)  # refuses stamps of the future
        names = timed_sensors_of(env)
        _, info = env.reset(seed=0)
        before = dict.fromkeys(names, -math.inf)
        for action in self.actions(machine):
            stamps = info["sensor_stamps"] if names else {}
            assert names.keys() <= stamps.keys(), f"{[*stamps]} are stamped, and not all of {[*names]}"
            assert all(stamps[name] >= before[name] for name in names), f"{stamps} after {before}"
            before = {name: stamps[name] for name in names}
            *_, terminated, truncated, info = env.step(action)
            if terminated or truncated:
                return

    @pytest.mark.parametrize("backend", ["virtual", "thread"])
    def test_a_runner_plays_it(self, backend: str) -> None:
        machine = self.make_machine()
        try:
            actions = self.actions(machine)
            runner = AsyncRunner(
                lambda: machine,
                lambda: lambda observation: actions[0],
                1,
                self.fps,
                backend=backend,
                latency=0.5 / self.fps,
                default_action=actions[1],
            )
            assert runner.run(frames=self.frames).frames["total"] == self.frames
            runner.close()
        finally:
            machine.close()

    def test_it_can_be_closed_twice_and_before_it_was_ever_reset(self) -> None:
        machine = self.make_machine()
        machine.close()
        machine.close()

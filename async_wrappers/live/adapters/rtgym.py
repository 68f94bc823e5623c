"""An interface of rtgym's as a machine: what was written for its real-time environment is played by ours.

rtgym (https://github.com/yannbouteiller/rtgym) calls ``send_control``, and reads the device a time step later in a
thread of its own. Those are the two halves of a machine, and the environment loop keeps the time.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

_METHODS = ("send_control", "get_obs_rew_terminated_info", "reset", "get_observation_space", "get_action_space")


class RtgymMachine:
    """A ``RealTimeGymInterface`` of rtgym's as a `async_wrappers.live.world.machine.Machine`.

    The no-op is the interface's default action, where it has one. `close` sends it, and calls ``wait``. rtgym's buffer
    of actions is `async_wrappers.AppliedActions` around a `MachineEnv`, or live the interface's own, and its delays are
    measured rather than assumed.

    Args:
        interface: The interface, made; rtgym itself is not needed.

    Raises:
        ValueError: `interface` lacks a method.
    """

    def __init__(self, interface: Any) -> None:
        if isinstance(interface, type) or not all(callable(getattr(interface, name, None)) for name in _METHODS):
            raise ValueError(
                "interface must be an object of a class like rtgym's RealTimeGymInterface, which has "
                f"{', '.join(_METHODS)}, got {interface!r}"
            )
        self._interface, self._is_up = interface, False
        self.observation_space, self.action_space = interface.get_observation_space(), interface.get_action_space()
        with suppress(NotImplementedError, AttributeError):
            self.noop_action = interface.get_default_action()

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Reset the interface."""
        self._is_up = True
        observation, info = self._interface.reset(seed=seed, options=options)
        return tuple(observation), info

    def send(self, action: Any) -> None:
        """Send the control."""
        self._interface.send_control(action)

    def observe(self) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Read the device."""
        observation, reward, terminated, info = self._interface.get_obs_rew_terminated_info()
        return tuple(observation), reward, terminated, False, info

    def close(self) -> None:
        """Send the default action and let the interface wait; the second time nothing happens."""
        was_up, self._is_up = self._is_up, False
        if was_up:
            if hasattr(self, "noop_action"):
                self._interface.send_control(self.noop_action)
            if hasattr(self._interface, "wait"):
                self._interface.wait()

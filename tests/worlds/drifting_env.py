"""`DriftingEnv`: a small random environment that a network can read, and that remembers what happened in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box, Discrete

SHAPE = (3,)
Observation = npt.NDArray[np.float32]


@dataclass
class Life:
    """What happened in one episode; o_0 .. o_T are T + 1 observations."""

    seed: int | None
    observations: list[Observation] = field(default_factory=list)
    actions: list[Any] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    terminated: bool = False


class DriftingEnv(gym.Env[Any, Any]):
    """A point that drifts with noise of the environment's own generator, pushed by each action.

    The observation is float32 ``[drift, action, frame]``: its drift encodes the episode and all actions before it.
    Rewards are multiples of 1/8, so that their sums are exact.

    Args:
        lengths: Frames of each episode, the first again after the last; None draws 1 to 20 by the generator.
        ends: ``(terminated, truncated)`` on an episode's last frame, as `lengths`; None draws one of the two.
        actions: How many there are; number 1 is the no-op where `noop` is true.
        first_action: The number of the first action.
        noop: Whether the environment names its actions, one of them the no-op.
        reuse: Return the same array each time, with new contents.
        numbers: Of a real-valued action, each between bounds of its own; 0 for Discrete actions.
    """

    def __init__(
        self,
        lengths: Sequence[int] | None = None,
        ends: Sequence[tuple[bool, bool]] | None = None,
        actions: int = 3,
        first_action: int = 0,
        noop: bool = False,
        reuse: bool = False,
        numbers: int = 0,
    ) -> None:
        self.observation_space = Box(-np.inf, np.inf, SHAPE, np.float32)
        each = np.arange(numbers, dtype=np.float32)
        self.action_space: Any = Box(each / 2 - 1, each + 1) if numbers else Discrete(actions, start=first_action)
        self.lives: list[Life] = []
        self._lengths, self._ends, self._reuse = lengths, ends, reuse
        self._array = np.zeros(SHAPE, np.float32)
        if noop:
            self.get_action_meanings = lambda: ["LEFT", "NOOP", "RIGHT", "UP", "DOWN"][:actions]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        number = len(self.lives)
        self.lives.append(Life(seed))
        drawn_length, drawn_end = int(self.np_random.integers(1, 21)), bool(self.np_random.integers(2))
        self._length = self._lengths[number % len(self._lengths)] if self._lengths else drawn_length
        self._end = self._ends[number % len(self._ends)] if self._ends else (drawn_end, not drawn_end)
        self._drift = float(self.np_random.normal())
        return self._show(0), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        life = self.lives[-1]
        if len(life.actions) == self._length:
            raise RuntimeError("stepped after the end of an episode")
        if not self.action_space.contains(action):
            raise ValueError(f"got the action {action!r}, which is not in {self.action_space}")
        real = isinstance(self.action_space, Box)
        push = float(action.mean()) if real else int(action) - int(self.action_space.start)
        self._drift = 0.9 * self._drift + 0.3 * (push - 1) + 0.1 * float(self.np_random.normal())
        life.actions.append(action.tolist() if real else int(action))
        life.rewards.append(float(round(8 * self._drift)) / 8)
        over = len(life.actions) == self._length
        terminated, truncated = self._end if over else (False, False)
        life.terminated = terminated
        return self._show(push), life.rewards[-1], terminated, truncated, {}

    def _show(self, push: float) -> Observation:
        if not self._reuse:
            self._array = np.zeros(SHAPE, np.float32)
        self._array[:] = self._drift, push, len(self.lives[-1].actions) / 10
        self.lives[-1].observations.append(self._array.copy())
        return self._array


for _id in ("Drifting-v0", "OtherDrifting-v0"):
    gym.register(_id, entry_point=DriftingEnv, disable_env_checker=True, order_enforce=False)

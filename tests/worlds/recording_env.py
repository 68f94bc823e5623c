"""`RecordingEnv`: an environment that writes down what it receives and whose observations say which frame they are."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete, flatten
from numpy.typing import NDArray

NOOP = 2
MEANINGS = ("UP", "DOWN", "NOOP", "LEFT", "RIGHT")
EPISODE, FRAME, HISTORY = 0, 1, 2  # what the three numbers of an observation are
PRIME = 1_000_003


def mixed(*numbers: int) -> int:
    """Return a number in which each of `numbers`, and their order, matters."""
    result = 17
    for number in numbers:
        result = (result * 31 + number + 7) * 48_271 % PRIME
    return result


class RecordingEnv(gym.Env[Any, Any]):
    """Ends and pays as it was made to, and remembers each action that it receives.

    The observation is int64 ``[episode, frame, history]``; history depends on each action since the reset, so that one
    wrong action changes all observations after it. The info has the frame too, also in nested containers.

    Args:
        length: Frames per episode; a list gives one number for each episode, then starts again. None: endless.
        ends: ``(terminated, truncated)`` on the last frame, or a list of such pairs, as for `length`.
        rewards: The reward of frame k is ``rewards[k % len(rewards)]``.
        action_space: Five actions, of which number 2 is the no-op, where none is given.
        reuse: Return the very same observation array and info dict each time, with new contents.
        render_mode: None or ``"rgb_array"``: an image that is as bright as the frame's number.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 60}

    def __init__(
        self,
        length: int | Sequence[int] | None = None,
        ends: tuple[bool, bool] | Sequence[tuple[bool, bool]] = (True, False),
        rewards: Sequence[float] = (1.0,),
        action_space: gym.Space[Any] | None = None,
        reuse: bool = False,
        render_mode: str | None = None,
    ) -> None:
        self.observation_space = Box(-1, PRIME, (3,), np.int64)
        self.action_space = Discrete(len(MEANINGS)) if action_space is None else action_space
        self.render_mode = render_mode
        self._lengths = list(length) if isinstance(length, Sequence) else [length]
        self._ends = [ends] if isinstance(ends[0], bool) else list(ends)
        self._rewards = rewards
        self._reuse = reuse
        self._array = np.zeros(3, np.int64)
        self._info: dict[str, Any] = {}
        self._over = True
        self.episode = -1
        self.episodes: list[list[Any]] = []  # the actions received, one list per episode

    @property
    def actions(self) -> list[Any]:
        """The actions received since the last reset."""
        return self.episodes[-1]

    def get_action_meanings(self) -> list[str]:
        return list(MEANINGS)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode += 1
        self.episodes.append([])
        self._history = 0
        self._over = False
        return self.show()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._over:
            raise RuntimeError("stepped after the end of an episode or before the first")
        reward = self._rewards[len(self.actions) % len(self._rewards)]
        self.actions.append(deepcopy(action))
        self._history = mixed(self._history, *self._numbers(action))
        terminated = truncated = False
        if len(self.actions) == self._lengths[self.episode % len(self._lengths)]:
            terminated, truncated = self._ends[self.episode % len(self._ends)]
        self._over = terminated or truncated
        observation, info = self.show()
        return observation, reward, terminated, truncated, info

    def render(self) -> NDArray[np.uint8] | None:
        frame = len(self.episodes[-1]) if self.episodes else 0
        return np.full((32, 32, 3), frame, np.uint8) if self.render_mode == "rgb_array" else None

    def _numbers(self, action: Any) -> list[int]:
        if isinstance(action, (int, np.integer)):
            return [int(action)]
        return [int(1000 * number) for number in flatten(self.action_space, action).tolist()]

    def show(self) -> tuple[Any, dict[str, Any]]:
        frame = len(self.actions)
        if not self._reuse:
            self._array, self._info = np.zeros(3, np.int64), {}
        self._array[:] = self.episode, frame, self._history
        self._info["frame"] = frame
        self._info.setdefault("nested", {"frames": [0]})["frames"][0] = frame
        self._info.setdefault("array", np.zeros(1, np.int64))[0] = frame
        return self._array, self._info


class Pressing(RecordingEnv):
    """Pays the action that it receives, which says what came through a transport."""

    def step(self, action: Any) -> Any:
        observation, _, terminated, truncated, info = super().step(action)
        return observation, float(action != NOOP), terminated, truncated, info

"""Environments whose observations say which episode and frame they are of, and vectors of them with tensors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import batch_space

from async_wrappers.tensors.arrays import Array, Library


class Counting(gym.Env[Any, Any]):
    """Episodes of 1 to 11 frames, whose lengths, ends and rewards its row and the episode's number draw.

    An observation is (episode, frame, action received last).
    """

    def __init__(self, row: int) -> None:
        self.observation_space = Box(-1e9, 1e9, (3,), np.float64)
        self.action_space = Box(-1e9, 1e9, (1,), np.float64)
        self.row, self.episode = row, -1

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.episode += 1
        self._draws = np.random.default_rng((self.row, self.episode))
        self.frame, self.received = 0, 0.0
        self._length, self._truncates = int(self._draws.integers(1, 12)), bool(self._draws.integers(2))
        return self._shown(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.frame += 1
        self.received, over = float(action[0]), self.frame == self._length
        reward = float(self._draws.integers(1, 9))
        return self._shown(), reward, over and not self._truncates, over and self._truncates, {}

    def _shown(self) -> Any:
        return np.array([self.episode, self.frame, self.received])


class Tensors(gym.vector.VectorWrapper):
    """A vector that takes and gives arrays of another library, as simulators on a device do.

    Args:
        env: With NumPy's arrays.
        to: Converts an array of NumPy's.
        back: Converts one into it.
    """

    def __init__(self, env: Any, to: Callable[[Any], Any], back: Callable[[Any], Any]) -> None:
        super().__init__(env)
        self._to, self._back = to, back

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if options is not None:
            options = {**options, "reset_mask": self._back(options["reset_mask"])}
        observations, _ = self.env.reset(seed=seed, options=options)
        return self._to(observations.copy()), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        observations, rewards, terminated, truncated, info = self.env.step(self._back(actions).copy())
        shown = {}
        if self.env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP:
            last = np.zeros_like(observations)
            for row, one in enumerate(info.get("final_obs", ())):
                if one is not None:
                    last[row] = one
            shown["final_obs"] = self._to(last)
        return self._to(observations.copy()), self._to(rewards), self._to(terminated), self._to(truncated), shown


def counting_vector(num_envs: int, mode: AutoresetMode) -> Any:
    """Return a vector of `Counting` with NumPy's arrays."""
    return SyncVectorEnv([partial(Counting, row) for row in range(num_envs)], autoreset_mode=mode)


class Points(gym.vector.VectorEnv[Any, Any, Any]):
    """N points on a line, stepped in arrays of a library on a device: each is paid for being near its goal.

    An observation is (position, goal, goal - position, frame / 16, 1), float32. An action moves by up to 0.5. Goals and
    lengths of episodes, 12 to 16 frames, follow from the row, the episode and the seed; a point that is 4 away from its
    goal ends its episode. Numbers are the same in each library, bit for bit.

    Args:
        num_envs: N.
        like: An array of the library on the device.
        mode: When a row is reset.
        discrete: Whether there are three actions, back, stay and forth, in the place of real numbers.
    """

    def __init__(
        self, num_envs: int, like: Any, mode: AutoresetMode = AutoresetMode.SAME_STEP, discrete: bool = False
    ) -> None:
        self.num_envs, self.metadata = num_envs, {"autoreset_mode": mode}
        self.single_observation_space = Box(-np.inf, np.inf, (5,), np.float32)
        self.single_action_space = Discrete(3) if discrete else Box(-1.0, 1.0, (1,), np.float32)
        self._discrete = discrete
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._library, self._mode = Library(like), mode
        self._rows = self._library.xp.arange(num_envs, device=self._library.device)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Array, dict[str, Any]]:
        if options is not None:
            self._begin(options["reset_mask"])
            return self._shown(), {}
        self._seed = 0 if seed is None else int(seed if isinstance(seed, int) else seed[0]) % 1_000
        self._episode, self._frame = self._rows * 0 - 1, self._rows * 0
        self._position = self._goal = self._real(self._rows) * 0.0
        self._over = self._rows < 0
        self._begin(self._rows >= 0)
        return self._shown(), {}

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        where = self._library.xp.where
        resetting = self._over
        push = self._real(actions) - 1.0 if self._discrete else self._library.xp.clip(actions[:, 0], -1.0, 1.0)
        self._position = self._position + push * 0.5
        self._frame = self._frame + 1
        if self._mode is AutoresetMode.NEXT_STEP:
            self._begin(resetting)
        gap = abs(self._goal - self._position)
        rewards = where(resetting, gap * 0.0, 1.0 - gap)
        terminated = ~resetting & (gap > 4.0)
        truncated = ~resetting & ~terminated & (self._frame >= 12 + (self._rows + self._episode) % 5)
        info = {}
        if self._mode is AutoresetMode.NEXT_STEP:
            self._over = terminated | truncated
        elif self._mode is AutoresetMode.SAME_STEP:
            info["final_obs"] = self._shown()
            self._begin(terminated | truncated)
        return self._shown(), rewards, terminated, truncated, info

    def _begin(self, which: Array) -> None:
        where = self._library.xp.where
        self._episode = where(which, self._episode + 1, self._episode)
        self._frame = where(which, self._frame * 0, self._frame)
        self._position = where(which, self._position * 0.0, self._position)
        drawn = (self._rows * 7 + self._episode * 13 + self._seed) % 21
        self._goal = where(which, self._real(drawn) / 10.0 - 1.0, self._goal)

    def _shown(self) -> Array:
        gap, time = self._goal - self._position, self._real(self._frame) / 16.0
        columns = [self._position, self._goal, gap, time, time * 0.0 + 1.0]
        return self._library.xp.stack(columns, axis=1)

    def _real(self, whole: Array) -> Array:
        return self._library.xp.astype(whole, self._library.xp.float32)


class Point(gym.Env[Any, Any]):
    """One of `Points`, with NumPy's arrays."""

    def __init__(self) -> None:
        self._row = Points(1, np.zeros(1), AutoresetMode.DISABLED)
        self.observation_space, self.action_space = self._row.single_observation_space, self._row.single_action_space

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        observations, info = self._row.reset(seed=seed)
        return observations[0], info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observations, rewards, terminated, truncated, info = self._row.step(np.asarray(action)[None])
        return observations[0], float(rewards[0]), bool(terminated[0]), bool(truncated[0]), info

"""`LocalEnvs`: Python environments of this process, as `BatchedEnvs`.

A step writes what the environments return into arrays that are kept. Gymnasium's `SyncVectorEnv` gathers lists, and the
info of every environment on every step, which takes as long as the physics of a small robot does; here the infos of
ends are kept alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from async_wrappers.batched.environment_process import Environments, StepResults
from async_wrappers.batched.rows import check_space, finals, mapped
from async_wrappers.batched.vector_envs import VectorEnvs
from async_wrappers.checks import function, whole
from async_wrappers.wrapper_statistics import Statistics
from async_wrappers.wrappers.copies import Info, own_info


class LocalEnvs(VectorEnvs):
    """N environments of this process, as `BatchedEnvs`, which step one after another.

    `RealtimeDelay` may be among their wrappers.

    Args:
        make: A function that makes an environment.
        num_envs: N.

    Raises:
        ValueError: Environments whose spaces differ or whose batches are no arrays.
    """

    def __init__(self, make: Callable[[], gym.Env[Any, Any]], num_envs: int) -> None:
        self._local = _LocalVector(make, num_envs)
        super().__init__(self._local)

    def _info_of_end(self, i: int) -> Info:
        return self._local.final_infos.get(i, {})

    def _newest_info(self, i: int) -> Info:
        return own_info(self._local.environments.infos[i])

    def _same_step_finals(self, ended: NDArray[np.int64]) -> dict[int, Any]:
        return finals(self._info["final_obs"], ended)

    def _statistics(self) -> list[Statistics]:
        return self._local.environments.statistics()

    def _take_statistics(self, statistics: Sequence[Statistics], frozen: bool) -> None:
        self._local.environments.load_statistics(statistics, frozen)


class _LocalVector(gym.vector.VectorEnv[Any, Any, Any]):
    """The environments as a Gymnasium vector, which resets in the same step."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(self, make: Callable[[], gym.Env[Any, Any]], num_envs: int) -> None:
        function("make", make, "makes an environment")
        self.num_envs = whole("num_envs", num_envs, 1)
        self.environments = Environments(make, range(self.num_envs), own_info)
        spaces = self.environments.spaces
        for name, space in zip(("the observation space", "the action space"), spaces, strict=True):
            check_space(name, space)
        self._board = StepResults.plain(spaces, self.num_envs)
        self.environments.use(self._board)
        self.single_observation_space, self.single_action_space = spaces
        self.observation_space, self.action_space = (batch_space(each, self.num_envs) for each in spaces)
        self.final_infos: dict[int, Info] = {}  # of the episodes that ended in the last step

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, Info]:
        """Reset all; `seed` is one for each."""
        self._board.seeds[:] = seed
        self.environments.reset(0)
        return self._board.observations[0], self._board.info()

    def step(self, actions: Any) -> tuple[Any, NDArray[Any], NDArray[np.bool_], NDArray[np.bool_], Info]:
        """Step all."""
        board = self._board
        mapped(np.copyto, board.actions, actions)
        self.final_infos = self.environments.step(0)
        info = board.info()
        if (board.terminal | board.truncated).any():
            info["final_obs"] = board.final
        return board.observations[0], board.reward, board.terminal, board.truncated, info

    def close_extras(self, **kwargs: Any) -> None:
        """Close the environments."""
        self.environments.close()

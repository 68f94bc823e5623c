"""Seeds of the episodes of many environments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym

from async_wrappers.agents.play.play import (
    Phase,
    environment_seed,
    is_game_over,
)


class NumberedEpisodes(gym.Wrapper[Any, Any, Any, Any]):
    """Seeds each episode of one of N environments by its number, and truncates it after `max_frames`.

    ``reset(seed=n * N + l)`` begins episode n of environment l; a reset without a seed begins the next one. So every
    episode is a function of the run's seed, the phase, n and l (`environment_seed`). Where ``info["game_over"]`` is
    False at an end, a reset without a seed begins the same episode's next life.

    Args:
        env: The environment.
        seed: The run's.
        phase: What the episodes are for.
        num_envs: N.
        max_frames: Frames after which an episode is truncated; None for no limit.
    """

    def __init__(
        self, env: gym.Env[Any, Any], seed: int, phase: int, num_envs: int, max_frames: int | None = None
    ) -> None:
        """See the class."""
        super().__init__(env)
        self._seed, self._phase, self._num_envs, self._max_frames = seed, phase, num_envs, max_frames
        self._number: int | None = None
        self._env_id = self._frames = self._before = 0  # frames of the episode, and of its lives before this one
        self._goes_on = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        goes_on, self._goes_on = self._goes_on, False
        if goes_on and seed is None:
            self._before = self._frames
            return self.env.reset(options=options)
        self._frames = self._before = 0
        if seed is not None:
            self._number, self._env_id = divmod(seed, self._num_envs)
        elif self._number is not None:
            self._number += 1
        else:
            return self.env.reset(options=options)
        seed = environment_seed(self._seed, self._phase, self._number, self._env_id)
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step, and truncate the episode if it has become too long."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        realtime = info.get("realtime")
        self._frames = self._frames + 1 if realtime is None else self._before + int(realtime["frame"])
        too_long = self._max_frames is not None and self._frames >= self._max_frames
        self._goes_on = terminated and not too_long and not is_game_over(info)
        if terminated and too_long and not is_game_over(info):
            info = {**info, "game_over": True}
        return observation, reward, terminated, truncated or (too_long and not terminated), info


@dataclass(frozen=True)
class Seeds:
    """Maps the numbers of episodes, one in each environment, to the seeds of the environments' resets.

    Attributes:
        seed: The run's.
        phase: What the episodes are for.
        whole: Whether the environments exist only as a vector.
        first: Number of the first environment.
        of_all: Environments of all learners.
    """

    seed: int
    phase: Phase
    whole: bool
    first: int
    of_all: int

    def __call__(self, numbers: Sequence[int]) -> list[int]:
        """Return the seed of each environment's reset."""
        of_envs = enumerate(numbers, self.first)
        if self.whole:
            return [environment_seed(self.seed, self.phase, number, env_id) for env_id, number in of_envs]
        return [number * self.of_all + env_id for env_id, number in of_envs]  # as `NumberedEpisodes` reads it

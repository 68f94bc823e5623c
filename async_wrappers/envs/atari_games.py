"""Many games of Atari as one vector, made a few at a time.

``ale_py.AtariVectorEnv`` loads a ROM for each game where it is made, one after another with the interpreter's lock
held, and once more where a game is seeded. A ROM takes 0.15 s of processor time, four fifths of which is a table of
blended colours that the emulator makes with it (`makeAveragePalette`), whether it is used or not. So a vector of 2,400
games would hear no signal for minutes. Here games are made in groups, each a vector with threads of its own: between
two of them signals are heard, and while one group is made another is seeded.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector.utils import batch_space

AT_ONCE = 8  # games of a group, which take 1.2 s to make on one core
_ALONE = 32  # most games of a single vector


def atari_games(game: str, num_envs: int, num_threads: int = 0, **settings: Any) -> gym.vector.VectorEnv[Any, Any, Any]:
    """Make games as one vector: an ``ale_py.AtariVectorEnv``, or, if they are many, groups of these.

    Args:
        game: As `AtariVectorEnv` has it, and so are `settings`.
        num_envs: How many.
        num_threads: Of all games together; 0 for one on each core.
        settings: Of each game.
    """
    from ale_py.vector_env import AtariVectorEnv

    if num_envs <= _ALONE:
        return AtariVectorEnv(game, num_envs, num_threads=num_threads, **settings)
    groups = -(-num_envs // AT_ONCE)
    of_each = -(-(num_threads or os.cpu_count() or 1) // groups)
    return AtariGroups(partial(AtariVectorEnv, game, num_threads=of_each, **settings), num_envs)


class AtariGroups(gym.vector.VectorEnv[Any, Any, Any]):
    """Groups of games as one vector. All but the first group are made when the games begin for the first time.

    Args:
        make: From ``num_envs=`` to the vector of a group, an `AtariVectorEnv` of all its games.
        num_envs: Games of all groups together.
        at_once: Games of a group; the last one may have fewer.
    """

    def __init__(self, make: Callable[..., Any], num_envs: int, at_once: int = AT_ONCE) -> None:
        """See the class."""
        self.num_envs = self.batch_size = num_envs
        self._make, self._at = make, [slice(i, min(i + at_once, num_envs)) for i in range(0, num_envs, at_once)]
        self._groups: list[Any] = []
        self._pool = ThreadPoolExecutor(min(len(self._at), os.cpu_count() or 1), "games")
        first = self._group(0)
        self.ale, self.autoreset_mode = first.ale, first.autoreset_mode
        self.metadata = {**first.metadata}
        self.single_observation_space, self.single_action_space = (
            first.single_observation_space,
            first.single_action_space,
        )
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def _group(self, number: int) -> Any:
        if number == len(self._groups):
            at = self._at[number]
            self._groups.append(self._make(num_envs=at.stop - at.start))
        return self._groups[number]

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset all games, or those of ``options["reset_mask"]``; see `AtariVectorEnv`."""
        mask = (options or {}).get("reset_mask")
        chosen = np.ones(self.num_envs, bool) if mask is None else mask
        seeds = None
        if seed is not None:
            seeds = np.full(self.num_envs, -1)
            seeds[chosen] = seed + np.arange(chosen.sum()) if np.ndim(seed) == 0 else seed
        resets: list[Future[Any]] = []
        try:
            for number, at in enumerate(self._at):
                group = self._group(number)
                of_group = {} if seeds is None else {"seed": seeds[at][chosen[at]]}
                if mask is not None:
                    of_group["options"] = {"reset_mask": chosen[at]}
                resets.append(self._pool.submit(group.reset, **of_group))
            parts = [each.result() for each in resets]
        finally:
            for each in resets:
                each.cancel()  # of an interrupted reset; those that run take a moment
        infos = [info for _, info in parts]
        return np.concatenate([observations for observations, _ in parts]), self._joined(infos)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step all games."""
        self.send(actions)
        return self.recv()

    def send(self, actions: Any) -> None:
        """Begin a step, which goes on in the groups' threads."""
        for group, at in zip(self._groups, self._at, strict=True):
            group.send(actions[at])

    def recv(self) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Wait for the end of the step that was begun."""
        parts = [group.recv() for group in self._groups]
        *arrays, _ = (list(of_all) for of_all in zip(*parts, strict=True))
        infos = [part[-1] for part in parts]
        if any("final_obs" in info for info in infos):  # of a game that goes on it is the observation, as in one vector
            infos = [{"final_obs": part[0], **info} for part, info in zip(parts, infos, strict=True)]
        observations, rewards, terminated, truncated = (np.concatenate(each) for each in arrays)
        return observations, rewards, terminated, truncated, self._joined(infos)

    def _joined(self, infos: Sequence[dict[str, Any]]) -> dict[str, Any]:
        info = {name: np.concatenate([each[name] for each in infos]) for name in infos[0]}
        if "env_id" in info:
            info["env_id"] = np.concatenate(
                [each["env_id"] + at.start for each, at in zip(infos, self._at, strict=True)]
            )
        return info

    def close_extras(self, **kwargs: Any) -> None:
        """Let resets that run come to their end, and close the groups."""
        self._pool.shutdown(cancel_futures=True)
        for group in self._groups:
            group.close()
        self._groups.clear()

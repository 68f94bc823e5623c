"""Stand-ins for simulators: they have what mjlab's, Isaac Lab's and rsl_rl's environments have, and step `Counting`.

Their shapes and types are those that mjlab 1.6's ``Mjlab-Cartpole-Balance`` returns on a CPU.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode

from tests.worlds.tensor_vector import counting_vector


@dataclass
class OwnBox:
    """A space of the simulator's own."""

    shape: tuple[int, ...]
    low: Any = -np.inf
    high: Any = np.inf
    dtype: str = "float32"


@dataclass
class OwnDict:
    """Spaces of groups."""

    spaces: dict[str, Any]
    shape: tuple[int, ...] = ()
    dtype: str = "float32"
    cfg: Any = field(default=None, compare=False)


class Groups:
    """N robots in one object, of which groups of tensors are shown; it writes into its tensors, and shows no last ones.

    Args:
        num_envs: Robots.
        auto_reset: Whether it says that it resets them.
    """

    step_dt, render_mode, name = 0.02, None, "groups"

    def __init__(self, num_envs: int, auto_reset: bool = True) -> None:
        self.num_envs, self.cfg = num_envs, SimpleNamespace(auto_reset=auto_reset)
        self.single_observation_space = OwnDict({"policy": OwnBox((3,)), "image": OwnBox((2, 2))})
        self.single_action_space, self.action_space = OwnBox((1,)), OwnBox((num_envs, 1))
        self.observation_space = OwnDict({"policy": OwnBox((num_envs, 3)), "image": OwnBox((num_envs, 2, 2))})
        self.episode_length_buf = torch.zeros(num_envs, dtype=torch.long)
        self._vector = counting_vector(num_envs, AutoresetMode.SAME_STEP)
        self._shown = torch.zeros(num_envs, 3)
        self.is_closed, self.extras = False, {"log": {}}

    @property
    def unwrapped(self) -> Groups:
        return self

    def _groups(self, observations: Any) -> dict[str, torch.Tensor]:
        self._shown[:] = torch.as_tensor(observations)
        return {"policy": self._shown, "image": self._shown[:, :1, None].expand(-1, 2, 2)}

    def reset(self, *, seed: Any = None, env_ids: Any = None, options: Any = None) -> Any:
        if env_ids is None:
            self.episode_length_buf[:] = 0
            return self._groups(self._vector.reset(seed=seed)[0]), self.extras
        for row in env_ids.tolist():
            self._shown[row] = torch.as_tensor(self._vector.envs[row].reset()[0])
            self.episode_length_buf[row] = 0
        return self._groups(self._shown.clone()), self.extras

    def step(self, action: torch.Tensor) -> Any:
        observations, rewards, terminated, truncated, _ = self._vector.step(action.numpy().copy())
        over = torch.as_tensor(terminated | truncated)
        self.episode_length_buf = torch.where(over, 0, self.episode_length_buf + 1)
        rewards = torch.as_tensor(rewards, dtype=torch.float32)
        ends = (torch.as_tensor(end.copy()) for end in (terminated, truncated))
        return self._groups(observations), rewards, *ends, self.extras

    def close(self) -> None:
        self.is_closed = True
        self._vector.close()


class TensorDict(Mapping[str, torch.Tensor]):
    """What is used of tensordict's class."""

    def __init__(self, parts: Mapping[str, torch.Tensor], batch_size: Any) -> None:
        self._parts, self.batch_size = dict(parts), batch_size

    def __getitem__(self, key: str) -> torch.Tensor:
        return self._parts[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def to_dict(self) -> dict[str, torch.Tensor]:
        return dict(self._parts)


class VecEnv(ABC):
    """rsl_rl's abstract class."""

    @abstractmethod
    def get_observations(self) -> Any: ...


class OfGroups(VecEnv):
    """A `VecEnv` around `Groups`, as mjlab has one.

    Args:
        groups: Which.
        has_time_outs: Whether extras name the ends by time.
        is_tensor: Whether it shows a tensor.
    """

    num_actions = 1

    def __init__(self, groups: Groups, has_time_outs: bool = True, is_tensor: bool = False) -> None:
        self.env, self.num_envs, self.unwrapped = groups, groups.num_envs, groups
        self._has_time_outs, self._is_tensor = has_time_outs, is_tensor
        self.max_episode_length, self.device = 11, "cpu"
        self.observations = self._shown(groups.reset()[0])

    @property
    def episode_length_buf(self) -> torch.Tensor:
        return self.env.episode_length_buf

    @episode_length_buf.setter
    def episode_length_buf(self, value: torch.Tensor) -> None:
        self.env.episode_length_buf = value

    def _shown(self, groups: Any) -> Any:
        return groups["policy"] if self._is_tensor else TensorDict(groups, batch_size=[self.num_envs])

    def get_observations(self) -> Any:
        return self.observations

    def reset(self) -> Any:
        groups, extras = self.env.reset()
        self.observations = self._shown(groups)
        return self.observations, extras

    def step(self, actions: torch.Tensor) -> Any:
        groups, rewards, terminated, truncated, extras = self.env.step(actions)
        self.observations = self._shown(groups)
        extras = {**extras, "time_outs": truncated} if self._has_time_outs else extras
        return self.observations, rewards, (terminated | truncated).long(), extras

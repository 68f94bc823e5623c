"""Telling the policy about its delay: `AppliedActions`, what was applied; `CommittedActions`, what is on its way.

Under delay the observation alone is not Markov: what comes after it depends on the actions that land between it and
the action being chosen (Katsikopoulos and Engelbrecht, "Markov decision processes with delays and asynchronous cost
collection", 2003). `CommittedActions` shows those of them that are known. `AppliedActions` shows the ones before it,
which tell what the environment was doing when it was looked at; under sequential interaction with ``"repeat"`` the last
of them is also what the environment receives until the next action lands.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from numpy.typing import NDArray

from async_wrappers.delay import RealtimeDelay
from async_wrappers.schedule import whole_frames

__all__ = ["AppliedActions", "CommittedActions"]


class _ActionsShown(gym.Wrapper[Any, Any, Any, Any]):
    """Joins rows that encode actions to the observation; a subclass says which actions.

    Rows are of the observation's dtype where `flat`, else float32. A further column, if `pending`, is one where an
    action is on its way that cannot be known yet.
    """

    def __init__(self, env: gym.Env[Any, Any], key: str, length: int, flat: bool, pending: bool = False) -> None:
        gym.Wrapper.__init__(self, env)
        length = whole_frames("length", length)
        if length < 1:
            raise ValueError(f"length must be >= 1, got {length}")
        self._key, self._flat = key, flat
        self._encode_raw, low, high = _encoder(env.action_space)
        self._one: Any = np.float32(1)
        space = env.observation_space
        if flat:
            self._one = _one_of(space, env.action_space)
        self._rows: NDArray[Any] = np.zeros((length, low.size + pending), self._one.dtype)
        if pending:
            low, high = np.append(low, 0), np.append(high, 1)
        low, high = (np.tile(bound.astype(self._rows.dtype) * self._one, (length, 1)) for bound in (low, high))
        if flat:
            assert isinstance(space, Box)
            low, high = np.concatenate([space.low, low.ravel()]), np.concatenate([space.high, high.ravel()])
            self.observation_space = Box(low, high, dtype=self._rows.dtype.type)
        else:
            self.observation_space = Dict({"observation": space, key: Box(low, high, dtype=np.float32)})

    def _encode(self, action: Any) -> NDArray[Any]:
        row: NDArray[Any] = self._encode_raw(action).astype(self._rows.dtype) * self._one
        return row

    def _join(self, observation: Any) -> Any:
        if self._flat:
            return np.concatenate([observation, self._rows.ravel()])
        return {"observation": observation, self._key: self._rows.copy()}


class AppliedActions(_ActionsShown, gym.utils.RecordConstructorArgs):
    """Adds the last actions really applied, default ones included, to the observation.

    Put it *inside* the delay, ``RealtimeDelay(AppliedActions(env, length=4), delay=8)``: then the actions are those
    applied before the observation's frame, which a real policy also knows when it begins to compute. Actions that are
    chosen but not yet applied are not shown.

    Discrete and MultiDiscrete actions are one-hot, Box actions are their values; before the episode's first action
    all is zero. Newest last.

    Example:
        >>> import gymnasium as gym
        >>> from async_wrappers import AppliedActions
        >>> env = AppliedActions(gym.make("CartPole-v1"), length=3, flat=True)
        >>> env.observation_space.shape
        (10,)

    Args:
        env: An environment with Discrete, MultiDiscrete or Box actions.
        length: How many applied actions are shown, in frames.
        flat: False gives ``Dict(observation=..., applied_actions=Box [length, width])``. True appends the actions to a
            vector observation; where that is of whole numbers (Atari's RAM), a one is the type's largest number.

    Raises:
        ValueError: `length` is not a positive number of frames, or the spaces cannot be used.
    """

    def __init__(self, env: gym.Env[Any, Any], length: int = 1, flat: bool = False) -> None:
        """See the class."""
        gym.utils.RecordConstructorArgs.__init__(self, length=length, flat=flat)
        _ActionsShown.__init__(self, env, "applied_actions", length, flat)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment and forget the actions of the last episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._rows[:] = 0
        return self._join(observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment by one frame and remember the action."""
        sent = self._encode(action)  # before the step: an environment may change the array that it receives
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._rows[:-1] = self._rows[1:]
        self._rows[-1] = sent
        return self._join(observation), reward, terminated, truncated, info


class CommittedActions(_ActionsShown, gym.utils.RecordConstructorArgs):
    """Adds the actions that are chosen but not yet applied at the observation's frame.

    Put it *outside* the delay, ``CommittedActions(RealtimeDelay(env, ...), length=4)``. Row 0 is the next action to be
    applied. An action is shown if its inference had ended by the beginning of the observation's frame (it waits in the
    playout buffer, or lands on that very frame); one that is still being inferred is *pending*: its row is zero but for
    the last column. Rows without an action are zero.

    ``known=False`` is an **oracle**: it shows pending actions too. No policy that computes its own actions can know
    them; it models a delay that comes from transport, between a policy that is quick and a world that is far away.

    Args:
        env: A `RealtimeDelay`, or wrappers around one, with Discrete, MultiDiscrete or Box actions.
        length: How many actions are shown; later ones are left out.
        known: False shows what a policy that takes time cannot know.
        flat: As in `AppliedActions`; the dictionary's key is ``committed_actions``.

    Raises:
        ValueError: `length` is not a positive number, there is no `RealtimeDelay` inside, or the spaces cannot be used.
    """

    def __init__(self, env: gym.Env[Any, Any], length: int = 1, known: bool = True, flat: bool = False) -> None:
        """See the class."""
        gym.utils.RecordConstructorArgs.__init__(self, length=length, known=known, flat=flat)
        _ActionsShown.__init__(self, env, "committed_actions", length, flat, pending=True)
        layer: Any = env
        while not isinstance(layer, RealtimeDelay):
            if not isinstance(layer, gym.Wrapper):
                raise ValueError(f"CommittedActions must be around a RealtimeDelay, got {env}: wrap the delay first")
            layer = layer.env
        self._known = known
        self._chosen: deque[tuple[int, int, NDArray[Any]]] = deque()  # (effect, frame by which it was known, row)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment; nothing is chosen yet."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._chosen.clear()
        self._start = info["realtime"]["start"]
        self._show()
        return self._join(observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Run one decision and show what is on its way when the next one starts."""
        row = self._encode(action)
        observation, reward, terminated, truncated, info = self.env.step(action)
        realtime = info["realtime"]
        if realtime["applied"]:
            self._chosen.append((self._start + realtime["delay"], realtime["finished"], row))
        self._start = realtime["start"]
        self._show()
        return self._join(observation), reward, terminated, truncated, info

    def _show(self) -> None:
        while self._chosen and self._chosen[0][0] < self._start:
            self._chosen.popleft()
        self._rows[:] = 0
        for shown, (_, finished, row) in zip(self._rows, self._chosen, strict=False):
            if finished <= self._start or not self._known:
                shown[:-1] = row
            else:
                shown[-1] = self._one


def _one_of(space: gym.Space[Any], action_space: gym.Space[Any]) -> Any:
    """Return what stands for one in a flat observation: 1, or the largest number of a type of whole numbers."""
    if not isinstance(space, Box) or len(space.shape) != 1:
        raise ValueError(f"flat=True needs a vector observation, got {space}: use flat=False")
    number = space.dtype.type
    if not np.issubdtype(number, np.integer):
        return number(1)
    if isinstance(action_space, Box):
        raise ValueError(f"flat=True cannot put Box actions into {space.dtype} observations: use flat=False")
    return number(np.iinfo(number).max)


Encoder = Callable[[Any], NDArray[Any]]


def _encoder(space: gym.Space[Any]) -> tuple[Encoder, NDArray[Any], NDArray[Any]]:
    """Return the function from an action to a float32 vector, and the vector's bounds, for `space`."""
    if isinstance(space, Discrete):
        table, first = np.eye(int(space.n), dtype=np.float32), int(space.start)
        return lambda action: table[int(action) - first], *_unit_bounds(int(space.n))
    if isinstance(space, MultiDiscrete):
        counts = space.nvec.ravel()
        begins = np.concatenate([[0], np.cumsum(counts)[:-1]]) - space.start.ravel()
        width = int(counts.sum())

        def one_hots(action: Any) -> NDArray[Any]:
            vector = np.zeros(width, np.float32)
            vector[begins + np.ravel(action)] = 1
            return vector

        return one_hots, *_unit_bounds(width)
    if isinstance(space, Box):
        # zeros stand before the episode's first action, so the bounds must hold them
        low, high = np.minimum(space.low, 0).ravel(), np.maximum(space.high, 0).ravel()
        return (
            lambda action: np.array(action, np.float32).ravel(),
            low.astype(np.float32),
            high.astype(np.float32),
        )
    raise ValueError(f"actions must be Discrete, MultiDiscrete or Box to be shown, got {space}")


def _unit_bounds(width: int) -> tuple[NDArray[Any], NDArray[Any]]:
    return np.zeros(width, np.float32), np.ones(width, np.float32)

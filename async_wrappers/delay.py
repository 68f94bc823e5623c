"""`RealtimeDelay`: what inference latency does to an agent, simulated on any Gymnasium environment."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from copy import deepcopy
from itertools import tee
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.error import ResetNeeded

from async_wrappers.default_action import DefaultAction, make_default_action
from async_wrappers.schedule import PlainSchedule

__all__ = ["RealtimeDelay"]


# What the environment showed at the beginning of a frame: (frame, observation, info). A plain tuple, for speed.
_Sight = tuple[int, Any, dict[str, Any]]


class RealtimeDelay(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Makes the environment go on while the policy thinks.

    One ``step`` of this wrapper is one *decision*, which may span several *frames* (steps of the wrapped environment).
    Decision j is computed from the observation at the beginning of frame ``s_j`` and applied on frame
    ``e_j = s_j + delay``; decisions start every ``noops + 1`` frames; every other frame receives the default action.
    The frames before the first action lands run inside the first ``step``. See `async_wrappers.schedule` for the rules.

    * The reward of a step is the sum over its frames: an episode's sum is what the environment paid.
    * Nothing is stepped after ``terminated`` or ``truncated``. At the end of an episode of T frames the observation
      is the one that the next decision would have read, ``o_min(s_{j+1}, T)``: still a delayed one. A truncated
      transition bootstraps on it.
    * ``info`` and ``render()`` are of the *newest* frame: they show what a policy that takes time cannot know yet, so
      a policy that reads ``info`` cheats. What the environment said along with the delayed observation is
      ``info["realtime"]["observation_info"]``.
    * Observations are copied, deeply, when the environment shows them: it may reuse its arrays.

    ``info["realtime"]`` after a step:

    ==================== =======================================================================================
    ``delay``            age of the observation behind this step's action, in frames
    ``interval``         frames from this action's effect to the next one's (or to the end of the episode)
    ``default_frames``   frames of this step on which the environment received the default action
    ``frame``            frames stepped so far in this episode
    ``start``            frame of the returned observation: the start of the next decision
    ``applied``          False if the episode ended before this step's action could land (only in a first step)
    ``observation_info`` the environment's info at the frame of the returned observation
    ==================== =======================================================================================

    After ``reset`` it holds ``frame``, ``start`` and ``observation_info``.

    Example:
        >>> import gymnasium as gym
        >>> from async_wrappers import RealtimeDelay
        >>> env = RealtimeDelay(gym.make("CartPole-v1"), delay=2, noops=1, default_action="repeat")
        >>> observation, info = env.reset(seed=0)
        >>> observation, reward, terminated, truncated, info = env.step(1)
        >>> float(reward), info["realtime"]["frame"], info["realtime"]["start"]
        (4.0, 4, 2)

    Args:
        env: The environment to wrap; it is stepped once per frame.
        delay: Age of the observation behind an action, in frames.
        noops: Frames between two actions, filled by the default action.
        default_action: ``"noop"``, ``"repeat"``, ``"random"``, an action, or a function of (newest observation, last
            agent action or None). Looked up only when ``delay + noops > 0``.

    Raises:
        ValueError: Negative or fractional frames, an unknown default action, or ``"noop"`` where the environment has
            none.
    """

    def __init__(self, env: gym.Env[Any, Any], delay: int = 0, noops: int = 0, default_action: Any = "noop") -> None:
        """See the class."""
        gym.utils.RecordConstructorArgs.__init__(
            self, _disable_deepcopy=True, delay=delay, noops=noops, default_action=default_action
        )
        gym.Wrapper.__init__(self, env)
        self._schedule = PlainSchedule(delay, noops)
        self._default_action: DefaultAction | None = None
        if self._schedule.delay + self._schedule.noops > 0:
            self._default_action = make_default_action(default_action, env)
        self._running = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment; decisions in flight are discarded and all buffers are empty.

        A seed also restarts the generator of ``default_action="random"``.
        """
        observation, info = self.env.reset(seed=seed, options=options)
        if self._default_action is not None:
            self._default_action.reset(seed)
        starts, self._decisions = tee(self._schedule.decisions())
        self._starts = (start for start, _ in starts)
        self._decision = next(self._decisions)
        self._next_start = next(self._starts)
        self._frame = 0
        self._last_action: Any = None
        self._in_flight: deque[_Sight] = deque()  # seen by decisions that the agent has not been asked for yet
        self._newest = observation
        self._look(observation, info)
        self._running = True
        start, observation, info_then = self._in_flight.popleft()
        return observation, {**info, "realtime": {"frame": 0, "start": start, "observation_info": info_then}}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Run one decision: the frames up to its effect, its action, and the frames until the next one's effect.

        Args:
            action: The action computed from the observation that the last ``reset`` or ``step`` returned.

        Returns:
            The observation that the next decision reads, the reward of this step's frames, terminated, truncated and
            info.

        Raises:
            ResetNeeded: The episode is over, or none has begun.
        """
        if not self._running:
            raise ResetNeeded("RealtimeDelay: call reset() before step(): no episode is running")
        start, effect = self._decision
        self._decision = next(self._decisions)
        next_effect = self._decision[1]
        first = frame = self._frame
        reward: Any = 0.0
        applied = over = self._running = False  # an exception in the environment ends the episode
        while frame < next_effect and not over:
            if frame == effect:
                applied, self._last_action = True, action if type(action) is int else _own(action)
                frame_action = action
            else:
                assert self._default_action is not None  # delay + noops > 0, or each frame would be an effect
                frame_action = self._default_action(self._newest, self._last_action)
            observation, frame_reward, terminated, truncated, info = self.env.step(frame_action)
            reward += frame_reward if type(frame_reward) is float else _exact(frame_reward)
            frame += 1
            self._frame, self._newest, over = frame, observation, terminated or truncated
            if frame == self._next_start:
                self._look(observation, info)
        self._running = not over
        if self._in_flight:  # at an end too: the decision in flight that would be due first
            seen, observation, info_then = self._in_flight.popleft()
        else:
            seen, observation, info_then = frame, _own(observation), _own_info(info)
        realtime = {
            "delay": effect - start,
            "interval": frame - effect if applied else 0,
            "default_frames": frame - first - applied,
            "frame": frame,
            "start": seen,
            "applied": applied,
            "observation_info": info_then,
        }
        return observation, reward, terminated, truncated, {**info, "realtime": realtime}

    def _look(self, observation: Any, info: dict[str, Any]) -> None:
        """Keep what a decision that starts on this frame sees."""
        copy = observation.copy() if type(observation) is np.ndarray else _own(observation)
        self._in_flight.append((self._frame, copy, _own_info(info) if info else {}))
        self._next_start = next(self._starts)


_UNCHANGEABLE = frozenset({int, float, bool, str, bytes, type(None)})


def _own(value: Any) -> Any:
    """Return a deep copy; numbers and arrays are the common cases, and fast."""
    if type(value) in _UNCHANGEABLE:
        return value
    return value.copy() if type(value) is np.ndarray and not value.dtype.hasobject else deepcopy(value)


def _exact(reward: Any) -> Any:
    """Return a reward in double precision, so that a sum loses nothing."""
    return np.asarray(reward, np.float64) if isinstance(reward, np.ndarray) else float(reward)


def _own_info(info: dict[str, Any]) -> dict[str, Any]:
    """Return a copy; what cannot be copied (a lock, a handle) is passed on as it is."""
    copy = dict(info)
    for key, value in info.items():
        if type(value) not in _UNCHANGEABLE:
            with suppress(Exception):
                copy[key] = deepcopy(value)
    return copy

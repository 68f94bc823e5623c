"""The committed prefix: a policy of chunks sees the actions that will be applied until its own chunk lands.

At ``s_j`` the running chunk goes on until ``e_j``: the environment will receive its actions on frames
``s_j .. e_j - 1`` for any chunk_j. A policy that sees them can foresee where its own first action will land, and go on
smoothly from there. Real-time chunking freezes them as a prefix (Black, Galliker, Levine, "Real-Time
Execution of Action Chunking Flow Policies", arXiv 2506.07339); without chunks `CommittedActions` shows the same.

No row depends on an inference that is running at ``s_j``. A frame's action is *not known* if one of these, newer than
all known ones, may have landed by then, or if no chunk covers the frame, so that `Chunk.after` acts. The last column
tells such a row from an action of zeros: each row without a one there is what its frame receives.

* `CommittedPrefix`: around a `RealtimeDelay`.
* `PrefixRows`: its rows, and those of the runner with ``committed_prefix=``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict
from numpy.typing import NDArray

from async_wrappers.checks import flag, whole
from async_wrappers.wrappers.action_history import delay_inside, encoder, one_of
from async_wrappers.wrappers.recorded import recorded

_LONGEST = 100_000  # actions that an observation shows
KEY = "committed_prefix"


class PrefixRows:
    """Joins actions to an observation, one row [width + 1] for each frame, as `CommittedActions` does.

    A Discrete action is one-hot, a Box action its values. The last column is one where the action is not known; such a
    row is otherwise zero.

    Args:
        observation_space: Of the observations.
        action_space: Of the environment: of one frame's action.
        length: Frames shown.
        flat: Whether rows are appended to a vector observation, or stand beside it in a dictionary.

    Raises:
        ValueError: The spaces cannot be used.
    """

    def __init__(
        self, observation_space: gym.Space[Any], action_space: gym.Space[Any], length: int, flat: bool
    ) -> None:
        self.length, self._flat = length, flat
        self._encode, low, high = encoder(action_space)
        self._one = one_of(observation_space) if flat else np.float32(1)
        kind = self._one.dtype
        if isinstance(action_space, Box) and np.issubdtype(kind, np.integer):
            raise ValueError(f"flat=True cannot put Box actions into {kind} observations: use flat=False")
        low, high = np.append(low, 0), np.append(high, 1)
        self._width = len(low)
        low, high = (np.tile(bound, (length, 1)).astype(kind) * self._one for bound in (low, high))
        self.space: gym.Space[Any]
        if flat:
            assert isinstance(observation_space, Box)
            low = np.concatenate([observation_space.low, low.ravel()])
            self.space = Box(low, np.concatenate([observation_space.high, high.ravel()]), dtype=kind.type)
        else:
            self.space = Dict({"observation": observation_space, KEY: Box(low, high, dtype=np.float32)})

    def join(self, observation: Any, actions: Sequence[Any]) -> Any:
        """Return the observation with the actions of its frame and the following ones.

        Args:
            observation: Of the environment.
            actions: The result of `async_wrappers.wrappers.chunk.Chunks.committed`.
        """
        rows = self.rows(actions)
        return np.concatenate([observation, rows.ravel()]) if self._flat else {"observation": observation, KEY: rows}

    def rows(self, actions: Sequence[Any]) -> NDArray[Any]:
        """Return the rows [length, width + 1]; None, or no action, is not known."""
        rows: NDArray[Any] = np.zeros((self.length, self._width), self._one.dtype)
        rows[:, -1] = self._one
        for row, action in zip(rows, actions, strict=False):
            if action is not None:
                row[:-1], row[-1] = self._encode(action).astype(rows.dtype) * self._one, 0
        return rows


def prefix_length(name: str, length: Any, playout: int | None) -> int:
    """Return how many frames are shown: `length`, or as many as it takes until an action lands.

    Raises:
        ValueError: `length` is not a positive number of frames, or is missing where there is no playout.
    """
    if length is None and not playout:
        raise ValueError(
            f"{name} must be given, in frames, where no delay or playout > 0 says how long the prefix is, got None"
        )
    return whole(name, playout if length is None else length, 1, _LONGEST, unit="frames")


class CommittedPrefix(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Adds the actions of the frames from the observation's on that are committed when it is read.

    Put it *outside* a delay with chunks. Row i is of frame ``s + i``; see `PrefixRows` for the rows.

    Example:
        >>> import gymnasium as gym
        >>> from async_wrappers import CommittedPrefix, RealtimeDelay
        >>> env = RealtimeDelay(gym.make("Pendulum-v1"), delay=2, noops=3, default_action="chunk")
        >>> env = CommittedPrefix(env)
        >>> observation, _ = env.reset(seed=0)
        >>> observation, *_ = env.step([[0.0], [0.1], [0.2], [0.3], [0.4], [0.5]])  # for frames 0 to 5
        >>> observation["committed_prefix"].tolist()  # on frames 4 and 5, while frame 4's chunk is computed
        [[0.4000000059604645, 0.0], [0.5, 0.0]]

    Args:
        env: A `RealtimeDelay` with a `Chunk` as its default action, or wrappers around one.
        length: Number of frames that are shown; None for the delay, or with tickets for the playout.
        flat: False gives ``Dict(observation=..., committed_prefix=Box [length, width + 1])``. True appends the rows to
            a vector observation; where that is of whole numbers, 1 is shown as the type's largest number.

    Raises:
        ValueError: `length` is not a positive number of frames or missing, there is no `RealtimeDelay` with chunks
            inside, or the spaces cannot be used.
    """

    def __init__(self, env: gym.Env[Any, Any], length: int | None = None, flat: bool = False) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, **recorded(length=length, flat=flat))
        flat = flag("flat", flat)
        self._delay = delay_inside("CommittedPrefix", env)
        if self._delay.chunk is None:
            raise ValueError(
                "CommittedPrefix needs chunks inside: give RealtimeDelay default_action=Chunk(length), or use "
                "CommittedActions"
            )
        self._length = prefix_length("length", length, self._delay.playout)
        gym.Wrapper.__init__(self, env)
        self._rows = PrefixRows(env.observation_space, self._delay.env.action_space, self._length, flat)
        self.observation_space = self._rows.space
        self._delay.keep_committed()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment; no action is known yet."""
        observation, info = self.env.reset(seed=seed, options=options)
        return self._told(observation, info), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Run one decision and show the actions that are committed when the next one starts."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._told(observation, info), reward, terminated, truncated, info

    def _told(self, observation: Any, info: dict[str, Any]) -> Any:
        return self._rows.join(observation, self._delay.committed(info["realtime"]["start"], self._length))

"""What an agent under delay would have seen of a demonstration.

The environment's own layers play the episode back, with the recorded frames below `RealtimeDelay` instead of a game:
decision j reads ``o_{s_j}``, its action is what the player did on frame ``e_j``, its reward is the sum over frames
``e_j .. e_{j+1} - 1``. So the transitions are those of a player that lives under this delay and spacing, and does on
frame ``e_j`` what the player did.

On the frames between two effects such a player's environment would have received the default action. Where the player
did something else there, its consequences are in the record and are credited to the decision before, though no decision
chose it; those frames are counted (`Playback.departures`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from agents.demonstrations.demonstration import Demonstration

__all__ = ["Playback", "delay_layer", "frames_of", "transitions"]


def delay_layer(environment: gym.Env[Any, Any]) -> gym.Wrapper[Any, Any, Any, Any] | None:
    """Return the wrapper that makes decisions of frames, `RealtimeDelay`, or None if there is none."""
    while isinstance(environment, gym.Wrapper):
        if type(environment).__name__ == "RealtimeDelay":  # known by its name: the packages do not import each other
            return environment
        environment = environment.env
    return None


def frames_of(environment: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """Return the environment of frames: what the delay wraps."""
    layer = delay_layer(environment)
    return environment if layer is None else layer.env


class Playback(gym.Env[Any, Any]):
    """An environment whose episode is a recorded one, whatever it is told to do.

    Args:
        frames: The environment of frames that it stands for.

    Attributes:
        departures: Frames since the reset on which the recorded action was not the one that was received.
    """

    def __init__(self, frames: gym.Env[Any, Any]) -> None:
        """See the class."""
        self.observation_space, self.action_space = frames.observation_space, frames.action_space
        self.demonstration: Demonstration | None = None
        self.departures = 0
        self._frame = 0

    @classmethod
    def under(cls, environment: gym.Env[Any, Any]) -> tuple[gym.Env[Any, Any], Playback]:
        """Put one below an environment's delay; return both. The environment itself can be used no more."""
        layer, frames = delay_layer(environment), frames_of(environment)
        if layer is None:
            playback = cls(frames)
            frames.close()
            return playback, playback
        if layer.action_space != environment.action_space:
            raise ValueError(
                f"a wrapper around the delay turns the actions {environment.action_space} into {layer.action_space}, "
                "which demonstrations are of: put it inside the delay"
            )
        layer.env = playback = cls(frames)
        frames.close()
        return environment, playback

    def load(self, demonstration: Demonstration) -> None:
        """Take an episode, its observations and actions in the types of the spaces.

        Raises:
            ValueError: It does not fit the spaces.
        """
        observations, actions = demonstration.observations, demonstration.actions
        fitting = _fitting(observations, self.observation_space)
        for action in np.unique(actions, axis=0):
            if not self.action_space.contains(action):
                raise ValueError(f"it holds the action {action}, and the environment's actions are {self.action_space}")
        self.demonstration = Demonstration(fitting, actions, demonstration.rewards, demonstration.terminated)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin at the first frame."""
        self._frame = self.departures = 0
        return self._loaded.observations[0], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Go on by one recorded frame."""
        played, frame = self._loaded, self._frame
        self.departures += not np.array_equal(action, played.actions[frame])
        self._frame += 1
        over = self._frame == len(played)
        observation, reward = played.observations[self._frame], float(played.rewards[frame])
        return observation, reward, over and played.terminated, over and not played.terminated, {}

    @property
    def _loaded(self) -> Demonstration:
        assert self.demonstration is not None
        return self.demonstration


def transitions(environment: gym.Env[Any, Any], playback: Playback, seed: int) -> Iterator[dict[str, Any]]:
    """Yield the transitions of the loaded episode, as a learner observes them.

    An episode that ends before its first effect has none.

    Args:
        environment: With `playback` below it.
        playback: Loaded.
        seed: Of the schedule, where latencies are random.
    """
    actions = playback._loaded.actions
    # A schedule is deaf to actions, so one pass tells where they land, and the next one is given them.
    effects = [effect for effect, *_ in _decisions(environment, seed, repeat(actions[0]))]
    for _, transition in _decisions(environment, seed, (actions[effect] for effect in effects)):
        yield transition


def _decisions(
    environment: gym.Env[Any, Any], seed: int, actions: Iterable[Any]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Play one episode; yield (effect, transition) of each decision that was applied."""
    observation, _ = environment.reset(seed=seed)
    frame, over = 0, False
    for action in actions:
        following, reward, terminated, truncated, info = environment.step(action)
        realtime = info.get("realtime", {"interval": 1, "frame": frame + 1, "applied": True})
        frame, interval, over = int(realtime["frame"]), int(realtime["interval"]), terminated or truncated
        if realtime["applied"]:
            yield (
                frame - interval,
                {
                    "observation": observation,
                    "action": action,
                    "reward": float(reward),
                    "interval": interval,
                    "terminal": bool(terminated),
                    "truncated": bool(truncated and not terminated),
                    "next_observation": following if over else None,
                },
            )
        if over:
            return
        observation = following


def _fitting(observations: npt.NDArray[Any], space: gym.Space[Any]) -> npt.NDArray[Any]:
    """Return observations in the shape and type of a space; axes of length 1 and types of the same numbers are one."""
    told, shape, kind = observations.shape[1:], space.shape, space.dtype
    if shape is not None and kind is not None and _without_ones(told) == _without_ones(shape):
        floating = all(np.issubdtype(each, np.floating) for each in (observations.dtype, kind))
        with np.errstate(invalid="ignore"):
            converted = observations.astype(kind, copy=False).reshape(-1, *shape)
        if floating or np.array_equal(converted, observations.reshape(-1, *shape)):
            return converted
    raise ValueError(
        f"its observations are {observations.dtype} {list(told)}, and the environment's {kind} {list(shape or ())}"
    )


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(length for length in shape if length != 1)

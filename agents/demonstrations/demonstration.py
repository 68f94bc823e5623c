"""A demonstration: an episode, recorded frame by frame, and played back under an agent's delay as transitions.

A person, a script or an agent plays, and `EpisodeRecorder` keeps the frames. To learn from them under a delay, the
environment's own wrappers play the episode back, with the recorded frames in the place of the game (`Playback`),
so that starts and effects are computed in one place alone.
Decision j, which starts on frame s_j and takes effect on frame e_j, then has

    the observation  o_{s_j},
    the action       a_{e_j}, the player's on that frame,
    the reward       r_{e_j} + ... + r_{e_{j+1} - 1}.

These are the transitions of an agent under this delay and spacing whose actions are the player's on the frames e_j.

On the frames between two effects, that agent's environment would have received the default action. If the player acted
differently there, the consequences are in the record and are credited to the decision before, though no decision chose
the action. Such frames are counted (`Playback.off_schedule_frames`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box

from async_wrappers.agents.acting.frames_read import reported_effects
from async_wrappers.agents.play.play import delay_layer
from async_wrappers.agents.spaces.schema import EFFECT, START

Environment = gym.Env[Any, Any]


@dataclass(frozen=True)
class Demonstration:
    """One episode of T frames, without delay.

    Attributes:
        observations: `[T + 1, *shape]`; the last one follows the last frame.
        actions: `[T, *shape]`, the actions that the environment received.
        rewards: float64 `[T]`.
        terminated: Whether the environment ended the episode; else it is truncated, and its end may be bootstrapped on.
        seed: Seed of the reset; None if it is not known.
    """

    observations: npt.NDArray[Any]
    actions: npt.NDArray[Any]
    rewards: npt.NDArray[np.float64]
    terminated: bool
    seed: int | None = None

    def __len__(self) -> int:
        """Return the number of frames."""
        return len(self.rewards)


def frames_of(environment: Environment) -> Environment:
    """Return the environment of frames, inside the delay."""
    layer = delay_layer(environment)
    return environment if layer is None else layer.env


def _with_frames(environment: Environment, frames: Environment) -> Environment:
    """Put an environment of frames inside the delay in the place of the one there; return the whole environment."""
    layer = delay_layer(environment)
    if layer is None:
        return frames
    layer.env = frames
    return environment


class EpisodeRecorder(gym.Wrapper[Any, Any, Any, Any]):
    """Passes each episode to `keep` when it has ended; an episode that is reset before its end is dropped.

    Args:
        env: An environment of frames, without a delay.
        keep: Called with each episode.
        hears_sent: Whether ``info["sent"]`` is an action that was sent in the place of the player's.
    """

    def __init__(self, env: Environment, keep: Callable[[Demonstration], object], hears_sent: bool = False) -> None:
        super().__init__(env)
        self._keep, self._hears_sent = keep, hears_sent
        self._start_episode(None)

    @classmethod
    def inside(
        cls, environment: Environment, keep: Callable[[Demonstration], object]
    ) -> tuple[Environment, EpisodeRecorder]:
        """Put a recorder below an environment's delay, or around an environment without one; return both."""
        recorder = cls(frames_of(environment), keep, getattr(delay_layer(environment), "hears_sent", False))
        return _with_frames(environment, recorder), recorder

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._start_episode(seed)
        self._observations.append(np.array(observation))
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Play a frame and record it."""
        # Copied before the step, since an environment may change the array that it receives.
        received = np.array(action)
        if received.dtype.kind == "f" and not np.isfinite(received).all():
            raise ValueError(f"a recorded action must be finite numbers, got {received} from the player")
        observation, reward, terminated, truncated, info = self.env.step(action)
        if self._hears_sent and "sent" in info:
            received = np.array(info["sent"])
        self._actions.append(received)
        self._rewards.append(float(reward))
        self._observations.append(np.array(observation))
        if terminated or truncated:
            self._end_episode(terminated)
        return observation, reward, terminated, truncated, info

    def truncate_episode(self) -> None:
        """End the running episode, if there is one, as a truncation."""
        if self._actions:
            self._end_episode(terminated=False)

    def _end_episode(self, terminated: bool) -> None:
        observations, actions = np.stack(self._observations), np.stack(self._actions)
        self._keep(Demonstration(observations, actions, np.array(self._rewards), bool(terminated), self._seed))
        self._start_episode(None)

    def _start_episode(self, seed: int | None) -> None:
        self._observations: list[Any] = []
        self._actions: list[Any] = []
        self._rewards: list[float] = []
        self._seed = seed


class Playback(gym.Env[Any, Any]):
    """An environment that plays a recorded episode back, whatever actions it receives.

    Args:
        frames: The environment of frames that it replaces.

    Attributes:
        loaded: The episode that is loaded.
        off_schedule_frames: Number of frames since the reset whose recorded action differs from the received one.
        delays: Frames from start to effect of each decision of the episode that `transitions` has played.
    """

    loaded: Demonstration

    def __init__(self, frames: Environment) -> None:
        self.observation_space, self.action_space = frames.observation_space, frames.action_space
        self._frame = self.off_schedule_frames = 0
        self.delays: list[int] = []

    @classmethod
    def under(cls, environment: Environment) -> tuple[Environment, Playback]:
        """Put a playback below an environment's delay; return the environment and the playback.

        The frames that were there are closed.
        """
        layer, frames = delay_layer(environment), frames_of(environment)
        if layer is not None and layer.action_space != environment.action_space:
            raise ValueError(
                f"a wrapper around the delay turns the actions {environment.action_space} into {layer.action_space}, "
                "which demonstrations are of: put it inside the delay"
            )
        playback = cls(frames)
        frames.close()
        return _with_frames(environment, playback), playback

    def load(self, demonstration: Demonstration) -> None:
        """Load an episode, with its observations in the shape and type of the space.

        Raises:
            ValueError: It does not fit the spaces.
        """
        observations, actions = demonstration.observations, demonstration.actions
        fitting = _fitting(observations, self.observation_space)
        actions = _fitting_actions(actions, self.action_space)
        self.loaded = Demonstration(fitting, actions, demonstration.rewards, demonstration.terminated)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start at the first frame."""
        self._frame = self.off_schedule_frames = 0
        return self.loaded.observations[0], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Play one recorded frame."""
        played, frame = self.loaded, self._frame
        self.off_schedule_frames += not np.array_equal(action, played.actions[frame])
        self._frame += 1
        over = self._frame == len(played)
        observation, reward = played.observations[self._frame], float(played.rewards[frame])
        return observation, reward, over and played.terminated, over and not played.terminated, {}


def transitions(
    environment: Environment, playback: Playback, seed: int, effects: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield the transitions of the loaded episode, as a learner observes them.

    An episode that ends before its first effect has none.

    Args:
        environment: The environment with `playback` below its delay.
        playback: A playback with an episode.
        seed: Seed of the schedule, for random latencies.
        effects: Whether observations have those of the effects, for an agent that needs them.
    """
    actions = playback.loaded.actions
    # A schedule does not depend on actions. So one pass finds the frames on which they take effect, and a second pass
    # plays the actions of those frames.
    landings = [effect for effect, *_ in _decisions(environment, seed, repeat(actions[0]))]
    playback.delays.clear()
    for _, delay, transition in _decisions(environment, seed, (actions[effect] for effect in landings), effects):
        playback.delays.append(delay)
        yield transition


def _decisions(
    environment: Environment, seed: int, actions: Iterable[Any], effects: bool = False
) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Play one episode; yield (effect, delay, transition) of each decision that was applied."""
    observation, _ = environment.reset(seed=seed)
    before: dict[str, Any] | None = None  # the last transition's next observation
    frame, over = 0, False
    for action in actions:
        following, reward, terminated, truncated, info = environment.step(action)
        realtime = info.get("realtime", {"interval": 1, "frame": frame + 1, "applied": True})
        frame, interval, over = int(realtime["frame"]), int(realtime["interval"]), terminated or truncated
        if realtime["applied"]:
            stored, following_stored = observation, following
            if effects:
                landed, effect = reported_effects(info.get("realtime"), observation, following)
                stored = {START: observation, EFFECT: landed} if before is None else before
                following_stored = before = {START: following, EFFECT: effect}
            transition = {
                "observation": stored,
                "action": action,
                "reward": float(reward),
                "interval": interval,
                "terminal": bool(terminated),
                "truncated": bool(truncated and not terminated),
                "next_observation": following_stored,
            }
            yield frame - interval, int(realtime.get("delay", 0)), transition
        if over:
            return
        observation = following


def _fitting(observations: npt.NDArray[Any], space: gym.Space[Any]) -> npt.NDArray[Any]:
    """Return observations in the shape and type of a space; they may differ by axes of length 1 and by the type."""
    recorded, shape, kind = observations.shape[1:], space.shape, space.dtype
    if shape is not None and kind is not None and _without_ones(recorded) == _without_ones(shape):
        floating = all(np.issubdtype(each, np.floating) for each in (observations.dtype, kind))
        with np.errstate(invalid="ignore"):
            converted = observations.astype(kind, copy=False).reshape(-1, *shape)
        if floating or np.array_equal(converted, observations.reshape(-1, *shape)):
            return converted
    raise ValueError(
        f"its observations are {observations.dtype} {list(recorded)}, and the environment's {kind} {list(shape or ())}"
    )


def _fitting_actions(actions: npt.NDArray[Any], space: gym.Space[Any]) -> npt.NDArray[Any]:
    """Return actions of a space; those of a Box in its type, since others record real numbers as float64."""
    real = actions.dtype.kind in "iuf" and actions.shape[1:] == space.shape
    if real and isinstance(space, Box) and np.issubdtype(space.dtype, np.floating):
        refused = ~((actions >= space.low) & (actions <= space.high) & np.isfinite(actions))  # NaN is not within bounds
        wrong, actions = actions[refused.reshape(len(actions), -1).any(axis=1)], actions.astype(space.dtype, copy=False)
    else:
        wrong = [action for action in np.unique(actions, axis=0) if not space.contains(action)]
    if len(wrong):
        raise ValueError(f"it holds the action {wrong[0]}, and the environment's actions are {space}")
    return actions


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(length for length in shape if length != 1)

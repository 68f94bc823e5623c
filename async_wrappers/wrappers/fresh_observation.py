"""The fresh observation: what a fast path reads on the frame on which an action lands.

A large policy reads an observation that is old when its action is due. A small one that runs on that frame can read a
new one. The two together decide by (o_s, o_e): the slow half has read o_s, and the light half adds o_e. Robots are
driven in this way, by a slow model of the scene and a fast one of the hand. Anokhin et al., "Handling delay in
real-time reinforcement learning", ICLR 2025, arXiv 2503.23478, let fresh observations skip a network's late layers.

A trainer that takes any environment learns such a policy from what this wrapper shows. Played live, its slow part is
the ``encode`` of a `SplitPolicy`, and its fast part belongs into ``release``.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium.spaces import Dict

from async_wrappers.checks import whole
from async_wrappers.wrappers.action_history import delay_inside
from async_wrappers.wrappers.delay import RealtimeDelay
from async_wrappers.wrappers.recorded import recorded

KEY = "fresh"


def report_fresh(name: str, delay: RealtimeDelay, age: int) -> None:
    """Let a delay report fresh observations.

    Args:
        name: Of the argument that is the age, for messages.
        delay: Between two episodes.
        age: Frames before the one on which an action lands.

    Raises:
        ValueError: The age is no number of frames or more than the delay, actions are chunks, or another age is
            reported already.
    """
    age = whole(name, age, 0, unit="frames")
    if delay.playout is not None and age > delay.playout:
        raise ValueError(
            f"{name} must be <= {delay.playout}, the frames of the delay, after which it is older than the observation "
            f"that a decision starts from, got {age}"
        )
    if delay.chunk is not None:
        raise ValueError(
            f"{name} must not be given where actions are chunks, whose later actions land on frames that are not shown "
            f"yet, got {age}: bind another default_action"
        )
    if delay.fresh_age not in (None, age):
        raise ValueError(f"{name} must be {delay.fresh_age} frames, as it is elsewhere for the same delay, got {age}")
    delay.fresh_age = age


class FreshObservation(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Shows a fresh observation beside the delayed one: ``Dict(observation=..., fresh=...)``.

    Put it *outside* a `RealtimeDelay`. A decision's ``fresh`` is what the environment showed on the frame on which the
    decision's action lands, or `age` frames before it (the episode's first observation where there is no such frame).
    At the end of an episode it is that of the last frame, or `age` frames before it.

    Example:
        >>> import gymnasium as gym
        >>> from async_wrappers import FreshObservation, RealtimeDelay
        >>> env = FreshObservation(RealtimeDelay(gym.make("CartPole-v1"), 8, 0, "repeat"))
        >>> observation, info = env.reset(seed=0)
        >>> info["realtime"]["frame"], info["realtime"]["start"], sorted(observation)
        (8, 0, ['fresh', 'observation'])

    Args:
        env: A `RealtimeDelay` without chunks, or wrappers around one that do not change observations.
        age: Frames; at least those that the fast path itself takes, rounded down: 0 where it fits into a frame.

    Raises:
        ValueError: There is no such delay inside, a wrapper outside of it changes observations, or `age` is no number
            of frames up to the delay.
    """

    def __init__(self, env: gym.Env[Any, Any], age: int = 0) -> None:
        """See the class."""
        gym.utils.RecordConstructorArgs.__init__(self, **recorded(age=age))
        delay = delay_inside("FreshObservation", env)
        if env.observation_space != delay.observation_space:
            raise ValueError(
                f"FreshObservation must be around observations as the delay shows them, got {env}: put it next to "
                "RealtimeDelay, and wrappers that change observations inside the delay or outside of both"
            )
        report_fresh("age", delay, age)
        gym.Wrapper.__init__(self, env)
        space = env.observation_space
        self.observation_space = Dict({"observation": space, KEY: space})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment; the frames up to the first action that lands are run."""
        observation, info = self.env.reset(seed=seed, options=options)
        return _shown(observation, info), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Run one decision, up to the frame on which the next one's action lands."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return _shown(observation, info), reward, terminated, truncated, info


def _shown(observation: Any, info: dict[str, Any]) -> dict[str, Any]:
    return {"observation": observation, KEY: info["realtime"]["fresh_observation"]}

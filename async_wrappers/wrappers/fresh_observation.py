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

from async_wrappers.wrappers.action_history import delay_inside
from async_wrappers.wrappers.recorded import recorded

KEY = "fresh"


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
        gym.utils.RecordConstructorArgs.__init__(self, **recorded(age=age))
        delay = delay_inside("FreshObservation", env)
        if env.observation_space != delay.observation_space:
            raise ValueError(
                f"FreshObservation must be around observations as the delay shows them, got {env}: put it next to "
                "RealtimeDelay, and wrappers that change observations inside the delay or outside of both"
            )
        delay.report_fresh("age", age)
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

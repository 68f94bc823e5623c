"""A policy with memory that is a hash of all that it may read, and frame loops that say which decisions it should make.

One wrong bit of an observation, a feature, an action, a reward or a state, or one decision too many or too few, changes
every action after it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

from async_wrappers.live.loop.loop import episode_seed
from async_wrappers.policy import Decision, Memory
from tests.worlds.recording_env import MEANINGS, PRIME, mixed

__all__ = ["FEATURES", "Remembering", "Taken", "around_the_wrapper", "replayed"]

FEATURES = Box(0, PRIME, (2,), np.int64)


class Taken(NamedTuple):
    """A decision that took effect."""

    decision: tuple[Any, ...]
    features: tuple[int, ...]
    action: int
    state: int


class Remembering:
    """Encodes and releases by hashes.

    Args:
        seed: Of the hashes.
        taken: Where each release is written down.
    """

    def __init__(self, seed: int = 0, taken: list[Taken] | None = None) -> None:
        self._seed, self._taken = seed, [] if taken is None else taken

    def encode(self, observation: Any, decision: Decision) -> Any:
        return np.array([mixed(self._seed, *observation.tolist()), mixed(*map(int, decision))])

    def release(self, features: Any, memory: Memory, decision: Decision) -> Any:
        assert memory.first == (memory.state is None) == (memory.previous_action is None)
        before = [0]
        if not memory.first:
            bits = struct.unpack("<q", struct.pack("<d", memory.previous_reward))
            before = [int(memory.previous_action), *bits, memory.state]
        fresh = () if memory.fresh is None else memory.fresh.tolist()
        state = mixed(*features.tolist(), *before, *fresh)
        action = mixed(state, *map(int, decision)) % len(MEANINGS)
        self._taken.append(Taken(tuple(decision), tuple(features.tolist()), action, state))
        return SimpleNamespace(action=action, state=state, extras={"state": state})


def around_the_wrapper(
    env: gym.Env[Any, Any], policy: Any, episodes: int, seed: int = 0, eval_mode: bool = False
) -> list[Any]:
    """Let an ordinary agent with a light core play a delayed environment; return what took effect of its answers."""
    total, applied = 0, []
    for episode in range(episodes):
        observation, info = env.reset(seed=episode_seed(seed, int(eval_mode), episode))
        memory, over = Memory(None, 0.0, True, None), False
        while not over:
            start = info["realtime"]["start"]
            decision = Decision(episode, start, total + start, eval_mode)
            memory = memory._replace(fresh=info["realtime"].get("fresh_observation"))
            answer = policy.release(policy.encode(observation, decision), memory, decision)
            observation, reward, terminated, truncated, info = env.step(answer.action)
            over = terminated or truncated
            memory = Memory(answer.action, reward, False, answer.state)
            if info["realtime"]["applied"]:
                applied.append(answer)
        total += info["realtime"]["frame"]
    return applied


def replayed(
    env: gym.Env[Any, Any],
    policy: Any,
    effects: Sequence[Sequence[tuple[int, int]]],
    default_action: Callable[[int, Any, Any], Any],
    frames: Sequence[int],
    seed: int = 0,
    eval_mode: bool = False,
) -> list[Any]:
    """Play the (start, effect) pairs of a run again, frame by frame, from the three rules alone; return the answers.

    Args:
        env: Stepped once per frame.
        policy: In two halves.
        effects: Of each episode.
        default_action: From (frame, newest observation, last agent action or None).
        frames: How many each episode had.
        seed: Of the run.
        eval_mode: Of the run.
    """
    total, answers = 0, []
    for episode, pairs in enumerate(effects):
        observation, _ = env.reset(seed=episode_seed(seed, int(eval_mode), episode))
        starts, memory, last, paid = (
            {effect: start for start, effect in pairs},
            Memory(None, 0.0, True, None),
            None,
            0.0,
        )
        seen = []
        for frame in range(frames[episode]):
            seen.append(np.array(observation))
            if (start := starts.get(frame)) is None:
                action = default_action(frame, observation, last)
            else:
                decision = Decision(episode, start, total + start, eval_mode)
                features = policy.encode(seen[start], decision)
                if not memory.first:
                    memory = memory._replace(previous_reward=paid)
                answer = policy.release(features, memory, decision)
                paid = 0.0 if not memory.first else paid  # what was paid before the first decision is its own
                action = last = answer.action
                memory = Memory(action, 0.0, False, answer.state)
                answers.append(answer)
            observation, reward, *_ = env.step(action)
            paid += float(reward)
        total += frames[episode]
    return answers

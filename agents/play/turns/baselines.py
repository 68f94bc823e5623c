"""Agents that do not learn, to compare with: random and no-op."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Discrete, MultiDiscrete

from async_wrappers.agents.acting.decisions import DecisionRandom
from async_wrappers.agents.play.play import Report
from async_wrappers.agents.play.turns.clock import EpisodeClock
from async_wrappers.policy import Decision
from async_wrappers.wrappers.default_action import find_noop


class _Baseline:
    """An agent whose action depends on nothing but the decision."""

    learns = False
    updates = 0

    def __init__(self) -> None:
        self.eval_mode = False
        self._clock = EpisodeClock()

    def begin_episode(self, observation: Any, realtime: Mapping[str, Any] | None = None) -> Any:
        """Return the first action of an episode."""
        return self._act(self._clock.begin(self.eval_mode, realtime))

    def step(self, reward: float, observation: Any, realtime: Mapping[str, Any] | None = None) -> Any:
        """Return the next action."""
        return self._act(self._clock.advance(realtime)[0])

    def end_episode(
        self,
        reward: float,
        terminal: bool = True,
        observation: Any = None,
        realtime: Mapping[str, Any] | None = None,
    ) -> None:
        """End the episode."""
        self._clock.end(realtime)

    def identity(self) -> dict[str, Any]:
        """Return the agent's name."""
        return {"agent": type(self).__name__}

    def bundle_and_checkpoint(self, checkpoint_dir: Path, iteration: int) -> dict[str, Any]:
        """Return the counts."""
        return {"turns": self._clock.state_dict()}

    def unbundle(self, checkpoint_dir: Path, iteration: int, bundle: Mapping[str, Any], partial: bool = False) -> int:
        """Restore the counts."""
        self._clock.load_state_dict(bundle["turns"])
        return 0

    def keep_diverged_in(self, directory: Path) -> None:
        """Do nothing: there is no loss."""

    def forget_checkpoints(self, checkpoint_dir: Path, keep: set[int]) -> None:
        """Do nothing: no part lies outside the bundle."""

    def load_policy(self, bundle: Mapping[str, Any]) -> None:
        """Do nothing: there are no weights."""

    def set_report(self, report: Report) -> None:
        """Do nothing: there is nothing to report."""

    def overlap_learning(self) -> None:
        """Do nothing: there is nothing to learn."""

    def _act(self, decision: Decision) -> Any:
        raise NotImplementedError


class RandomAgent(_Baseline):
    """Draws each action as a function of (seed, episode, start): uniformly of Discrete actions and of chunks of them.

    In any other space an action is what ``space.sample()`` draws: uniform between bounds, and by Gymnasium's rules
    where a Box has none.

    Args:
        environment: An environment with any action space.
        seed: Of the draws.
    """

    def __init__(self, environment: gym.Env[Any, Any], seed: int = 0) -> None:
        """See the class."""
        super().__init__()
        # A copy: drawing must not move the generator of the environment's own space.
        self._space = copy.deepcopy(environment.action_space)
        self._random = DecisionRandom(seed)

    def _act(self, decision: Decision) -> Any:
        space, (episode, start, _, eval_mode, _) = self._space, decision
        if isinstance(space, Discrete):
            _, action = self._random.uniform_and_action(int(space.n), episode, start, eval_mode)
            return int(space.start) + action
        generator = self._random.draw(episode, start, eval_mode)
        if isinstance(space, MultiDiscrete):
            return space.start + generator.integers(space.nvec, dtype=space.dtype)
        space.seed(int(generator.integers(2**31)))
        return space.sample()


class NoopAgent(_Baseline):
    """Always chooses the environment's no-op (`async_wrappers.wrappers.default_action.find_noop`), or a chunk of it.

    Args:
        environment: An environment that says which action does nothing, or whose actions may be zeros.
        seed: Not used.

    Raises:
        ValueError: The environment has no no-op.
    """

    def __init__(self, environment: gym.Env[Any, Any], seed: int = 0) -> None:
        """See the class."""
        super().__init__()
        length, single = _single_actions(environment)
        noop = find_noop(single)
        if noop is None:
            raise ValueError(
                f"agent 'noop' needs an environment that says which action does nothing, and of {single.action_space} "
                "none is known: give the environment an attribute noop_action, or use 'random'"
            )
        self._action = noop if length is None else np.stack([noop] * length).astype(environment.action_space.dtype)

    def _act(self, decision: Decision) -> Any:
        return self._action


def _single_actions(environment: gym.Env[Any, Any]) -> tuple[int | None, gym.Env[Any, Any]]:
    """Return the length of the chunks that the environment takes, and what takes their actions one by one."""
    layer: Any = environment
    while isinstance(layer, gym.Wrapper):
        if (chunk := getattr(layer, "chunk", None)) is not None and "chunk" in vars(layer):
            return chunk.length, layer.env
        layer = layer.env
    return None, environment

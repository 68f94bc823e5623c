"""Agents that do not learn, to compare with: random and no-op."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym

from agents.agent import Report
from agents.policy import Decision, DecisionRandom, EpisodeClock
from agents.spec import discrete_actions

__all__ = ["NoopAgent", "RandomAgent"]


class _Baseline:
    """An agent whose action depends on nothing but the decision."""

    learns = False
    updates = 0

    def __init__(self) -> None:
        self.eval_mode = False
        self._clock = EpisodeClock()

    def begin_episode(self, observation: Any, realtime: Mapping[str, Any] | None = None) -> int:
        """Return the first action of an episode."""
        return self._act(self._clock.begin(self.eval_mode, realtime))

    def step(self, reward: float, observation: Any, realtime: Mapping[str, Any] | None = None) -> int:
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

    def _act(self, decision: Decision) -> int:
        raise NotImplementedError


class RandomAgent(_Baseline):
    """Draws each action uniformly, as a function of (seed, episode, start).

    Args:
        environment: An environment with Discrete actions.
        seed: Of the draws.
    """

    def __init__(self, environment: gym.Env[Any, Any], seed: int = 0) -> None:
        """See the class."""
        super().__init__()
        self._first, self._count = discrete_actions(environment.action_space, "random")
        self._random = DecisionRandom(seed)

    def _act(self, decision: Decision) -> int:
        _, action = self._random.uniform_and_action(self._count, decision.episode, decision.start, decision.eval_mode)
        return self._first + action


class NoopAgent(_Baseline):
    """Always chooses the environment's no-op.

    Args:
        environment: An environment whose ``get_action_meanings`` names a ``"NOOP"``.
        seed: Not used.

    Raises:
        ValueError: The environment has no no-op.
    """

    def __init__(self, environment: gym.Env[Any, Any], seed: int = 0) -> None:
        """See the class."""
        super().__init__()
        first, count = discrete_actions(environment.action_space, "noop")
        has_meanings = environment.has_wrapper_attr("get_action_meanings")
        meanings = environment.get_wrapper_attr("get_action_meanings")() if has_meanings else []
        if len(meanings) != count:  # a wrapper has changed the actions
            meanings = []
        if "NOOP" not in meanings:
            got = meanings or "no names"
            raise ValueError(f"agent 'noop' needs an environment whose actions include NOOP, got {got}: use 'random'")
        self._action = first + meanings.index("NOOP")

    def _act(self, decision: Decision) -> int:
        return self._action

"""The interface of a turn-based agent (Dopamine's, with the delay made explicit), and two baselines."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from async_wrappers.agents.acting.decisions import EpisodeClock
from async_wrappers.agents.acting.exploration import DecisionRandom
from async_wrappers.agents.actions import chunk_actions
from async_wrappers.policy import Decision

__all__ = ["Agent", "Demonstrable", "NoopAgent", "RandomAgent", "Report"]

Report = Callable[[str, float, int], None]
"""Receives (tag, value, training frames)."""


class Agent(Protocol):
    """The methods of an agent that `async_wrappers.agents.experiment.Runner` calls.

    ``realtime`` is the environment's ``info["realtime"]`` of the reset or step that returned the observation, or None
    from an environment that waits for the agent.
    """

    eval_mode: bool
    learns: bool

    @property
    def updates(self) -> int:
        """Updates done; 0 of an agent that does not learn."""

    def begin_episode(self, observation: Any, realtime: Mapping[str, Any] | None = None) -> Any:
        """Return the first action of an episode."""

    def step(self, reward: float, observation: Any, realtime: Mapping[str, Any] | None = None) -> Any:
        """Return the next action; `reward` is the last decision's."""

    def end_episode(
        self,
        reward: float,
        terminal: bool = True,
        observation: Any = None,
        realtime: Mapping[str, Any] | None = None,
    ) -> None:
        """End the episode.

        Args:
            reward: The last decision's.
            terminal: True if the environment ended; False if the episode was cut, and may be bootstrapped.
            observation: What the environment returned last; needed where `terminal` is False.
            realtime: See the class.
        """

    def identity(self) -> dict[str, Any]:
        """Return plain facts that two runs must share to continue one another (agent, network, spaces)."""

    def bundle_and_checkpoint(self, checkpoint_dir: Path, iteration: int) -> dict[str, Any]:
        """Return the state as tensors and plain data; large parts may be written into `checkpoint_dir`."""

    def unbundle(self, checkpoint_dir: Path, iteration: int, bundle: Mapping[str, Any], partial: bool = False) -> int:
        """Restore the state that `bundle_and_checkpoint` returned.

        Args:
            checkpoint_dir: What `bundle_and_checkpoint` was given.
            iteration: What `bundle_and_checkpoint` was given.
            bundle: What `bundle_and_checkpoint` returned.
            partial: Whether to do without old transitions whose files are damaged or missing.

        Returns:
            How many transitions are lost with them.

        Raises:
            OSError: A part in `checkpoint_dir` is missing or torn.
            ValueError: The state does not fit this agent.
        """

    def forget_checkpoints(self, checkpoint_dir: Path, keep: set[int]) -> None:
        """Delete parts in `checkpoint_dir` that no iteration in `keep` needs."""

    def load_policy(self, bundle: Mapping[str, Any]) -> None:
        """Take only what acting needs from a bundle: for evaluation and for a warm start."""

    def keep_diverged_in(self, directory: Path) -> None:
        """Write the batch of a loss that is not finite into a run's directory, unless another one was given."""

    def set_report(self, report: Report) -> None:
        """Send training scalars to `report`."""

    def overlap_learning(self) -> None:
        """Compute updates in parallel with the environment from now on; results still depend on the seed alone."""


@runtime_checkable
class Demonstrable(Protocol):
    """An agent that also learns from another player's transitions."""

    spec: Any

    @property
    def transitions(self) -> int:
        """How many transitions can be drawn."""

    @property
    def batch_size(self) -> int:
        """Transitions of an update."""

    def demonstrate(self, transition: Mapping[str, Any]) -> None:
        """Store another player's transition."""

    def pretrain(self) -> Mapping[str, Any]:
        """Do one update, whether or not there is enough history to begin with in training."""


# Agents that do not learn, to compare with: random and no-op.


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
    """Always chooses the environment's no-op, or a chunk of no-ops.

    Args:
        environment: An environment whose ``get_action_meanings`` names a ``"NOOP"`` among its Discrete actions, or
            whose real-valued actions may be zeros.
        seed: Not used.

    Raises:
        ValueError: The environment has no no-op.
    """

    def __init__(self, environment: gym.Env[Any, Any], seed: int = 0) -> None:
        """See the class."""
        super().__init__()
        space = environment.action_space
        self._action = _zeros(space) if isinstance(space, Box) else self._named_noop(environment)

    def _named_noop(self, environment: gym.Env[Any, Any]) -> Any:
        actions = chunk_actions(environment.action_space, "noop")
        has_meanings = environment.has_wrapper_attr("get_action_meanings")
        meanings = environment.get_wrapper_attr("get_action_meanings")() if has_meanings else []
        if len(meanings) != actions.number:  # a wrapper has changed the actions
            meanings = []
        if "NOOP" not in meanings:
            got = meanings or "no names"
            raise ValueError(f"agent 'noop' needs an environment whose actions include NOOP, got {got}: use 'random'")
        noop, length = actions.first + meanings.index("NOOP"), actions.chunk
        return noop if length is None else np.full(length, noop, environment.action_space.dtype)

    def _act(self, decision: Decision) -> Any:
        return self._action


def _zeros(space: Box) -> Any:
    zeros = np.zeros(space.shape, space.dtype)
    if not space.contains(zeros):
        raise ValueError(f"agent 'noop' needs actions that may be zeros, got {space}: use 'random'")
    return zeros

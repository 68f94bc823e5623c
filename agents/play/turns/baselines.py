"""Agents that do not learn, to compare with: random and no-op."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from async_wrappers.agents.acting.decisions import DecisionRandom
from async_wrappers.agents.play.play import Report
from async_wrappers.agents.spaces.actions import chunk_actions
from async_wrappers.policy import Decision


class _Baseline:
    """An agent whose action depends on nothing but the decision."""

    learns = False
    updates = 0

    def __init__(self) -> None:
        self.eval_mode = False
        self._frames = self._train_episodes = self._eval_episodes = 0  # frames of training
        self._frame = 0  # of the running episode

    @property
    def evaluated(self) -> int:
        """The number of the next evaluation episode."""
        return self._eval_episodes

    def go_on_from(self, episode: int) -> None:
        """Let the next evaluation episode be that of a number."""
        self._eval_episodes = episode

    def begin_episode(self, observation: Any, realtime: Mapping[str, Any] | None = None) -> Any:
        """Return the first action of an episode."""
        self._frame = 0
        if self.eval_mode:
            self._eval_episodes += 1
        else:
            self._train_episodes += 1
        return self._decide(realtime)

    def step(self, reward: float, observation: Any, realtime: Mapping[str, Any] | None = None) -> Any:
        """Return the next action."""
        self._count(realtime)
        return self._decide(realtime)

    def end_episode(
        self,
        reward: float,
        terminal: bool = True,
        observation: Any = None,
        realtime: Mapping[str, Any] | None = None,
    ) -> None:
        """End the episode."""
        self._count(realtime)
        self._frames += 0 if self.eval_mode else self._frame

    def _count(self, realtime: Mapping[str, Any] | None) -> None:
        """Count the frames of the episode; without a report, one for each decision."""
        self._frame = self._frame + 1 if realtime is None else int(realtime["frame"])

    def _decide(self, realtime: Mapping[str, Any] | None) -> Any:
        start = self._frame if realtime is None else int(realtime["start"])
        if self.eval_mode:
            return self._act(Decision(self._eval_episodes - 1, start, self._frames, True))
        return self._act(Decision(self._train_episodes - 1, start, self._frames + start, False))

    def identity(self) -> dict[str, Any]:
        """Return the agent's name."""
        return {"agent": type(self).__name__}

    def bundle_and_checkpoint(self, checkpoint_dir: Path, iteration: int) -> dict[str, Any]:
        """Return the counts."""
        episodes = {"train_episodes": self._train_episodes, "eval_episodes": self._eval_episodes}
        return {"turns": {"frames": self._frames, **episodes}}

    def unbundle(self, checkpoint_dir: Path, iteration: int, bundle: Mapping[str, Any]) -> None:
        """Restore the counts."""
        turns = bundle["turns"]
        self._frames = turns["frames"]
        self._train_episodes, self._eval_episodes = turns["train_episodes"], turns["eval_episodes"]

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
        environment: An environment that says which of its actions does nothing, by ``noop_action`` or by a ``"NOOP"``
            in ``get_action_meanings``, or whose real-valued actions may be zeros; those of a machine may be a place far
            away.
        seed: Not used.

    Raises:
        ValueError: The environment has no no-op.
    """

    def __init__(self, environment: gym.Env[Any, Any], seed: int = 0) -> None:
        super().__init__()
        noop, space = _noop_of(environment), environment.action_space
        if noop is None:
            raise ValueError(
                f"agent 'noop' needs an environment that says which action does nothing, and of {space} none is known: "
                "give the environment an attribute noop_action, or use 'random'"
            )
        self._action = noop

    def _act(self, decision: Decision) -> Any:
        return self._action


def _noop_of(environment: gym.Env[Any, Any]) -> Any | None:
    """Return the no-op among an environment's actions, or a chunk of it; None where none is known."""
    space = environment.action_space
    said = _said(environment, "noop_action") if _takes_its_actions(environment) else None
    if isinstance(space, Box):
        noop = np.asarray(0 if said is None else said, space.dtype)
        zeros = said is None and getattr(type(environment.unwrapped), "is_machine", False)
        action = np.broadcast_to(noop, space.shape).copy()  # of a chunk, of each entry
        return action if not zeros and space.contains(action) else None
    actions = chunk_actions(space, "noop")
    if said is None:
        meanings = _said(environment, "get_action_meanings")
        named = list(meanings()) if meanings is not None else []
        if len(named) != actions.number or "NOOP" not in named:  # a wrapper has changed the actions
            return None
        said = actions.first + named.index("NOOP")
    if not actions.first <= said < actions.first + actions.number:
        return None
    return int(said) if actions.chunk is None else np.full(actions.chunk, said, space.dtype)


def _takes_its_actions(environment: gym.Env[Any, Any]) -> bool:
    """Return whether an environment takes the actions that its ``noop_action`` is one of, or chunks of them."""
    layer: Any = environment
    while isinstance(layer, gym.Wrapper) and not hasattr(layer, "noop_action"):
        layer = layer.env
    own, space = layer.action_space, environment.action_space
    if isinstance(own, Box):
        return isinstance(space, Box) and space.shape[len(space.shape) - len(own.shape) :] == own.shape
    return isinstance(own, Discrete) and own.n == chunk_actions(space, "noop").number


def _said(environment: gym.Env[Any, Any], name: str) -> Any | None:
    return environment.get_wrapper_attr(name) if environment.has_wrapper_attr(name) else None

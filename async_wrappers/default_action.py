"""The default action: what the environment receives on frames where no agent action lands (beta in the paper).

Riemer, Subbaraj, Berseth, Rish, "Enabling Realtime Reinforcement Learning at Scale with Staggered Asynchronous
Inference", arXiv 2412.14355, Definition 1: an asynchronous MDP is an MDP plus a default behaviour policy.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from difflib import get_close_matches
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete, MultiBinary
from gymnasium.wrappers.utils import create_zero_array

__all__ = ["DefaultAction", "find_noop", "make_default_action"]

NAMES = ("noop", "repeat", "random")


class DefaultAction(Protocol):
    """The environment's reflex: looked up once per default frame."""

    def reset(self, seed: int | None) -> None:
        """Begin an episode; a seed restarts the generator, if there is one."""
        ...

    def __call__(self, observation: Any, last_action: Any) -> Any:
        """Return the action for this frame.

        Args:
            observation: The newest observation.
            last_action: The agent action applied last in this episode, None before the first.
        """
        ...


def make_default_action(default_action: Any, env: gym.Env[Any, Any]) -> DefaultAction:
    """Return the default action that `default_action` describes, for `env`.

    Args:
        default_action: ``"noop"`` (the environment's own: from ``get_action_meanings``, else zeros of a Box or
            MultiBinary), ``"repeat"`` (the last agent action; before the first, the no-op, else the space's zero),
            ``"random"`` (one draw per default frame from a generator of its own), an element of the action space,
            or a function of (newest observation, last agent action or None).
        env: The environment that will receive the actions.

    Raises:
        ValueError: An unknown name, an action outside the action space, or "noop" where the environment has none.
    """
    space = env.action_space
    if isinstance(default_action, str):
        if default_action == "noop":
            return _Fixed(_noop_or_error(env))
        if default_action == "repeat":
            noop = find_noop(env)
            return _Repeat(create_zero_array(space) if noop is None else noop)
        if default_action == "random":
            return _Random(space)
    elif callable(default_action):
        return _Function(default_action)
    elif (action := _element(space, default_action)) is not None:
        return _Fixed(action)
    raise ValueError(
        f"default_action must be one of {', '.join(map(repr, NAMES))}, a function of (observation, last_action) or "
        f"an element of {space}, got {default_action!r}{_did_you_mean(default_action)}"
    )


def find_noop(env: gym.Env[Any, Any]) -> Any | None:
    """Return the environment's no-op action, or None where it has no natural one.

    The action whose meaning is ``"NOOP"`` where ``get_action_meanings`` tells; else zeros where a Box or MultiBinary
    action space holds them.
    """
    space = env.action_space
    if isinstance(space, Discrete):
        meanings = _action_meanings(env)
        if len(meanings) == space.n and "NOOP" in meanings:
            return space.start + meanings.index("NOOP")
        return None
    if isinstance(space, (Box, MultiBinary)):
        zeros = np.zeros(space.shape, dtype=space.dtype)
        return zeros if space.contains(zeros) else None
    return None


def _action_meanings(env: gym.Env[Any, Any]) -> list[str]:
    layer = env
    while not hasattr(layer, "get_action_meanings"):
        if not isinstance(layer, gym.Wrapper):
            return []
        layer = layer.env
    if layer.action_space is not env.action_space:  # a wrapper further out gives the actions another meaning
        return []
    return [str(meaning) for meaning in layer.get_action_meanings()]


def _noop_or_error(env: gym.Env[Any, Any]) -> Any:
    noop = find_noop(env)
    if noop is None:
        name = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
        raise ValueError(
            f"default_action='noop' needs an environment with a no-op, but {name} with actions {env.action_space} has "
            "none: give default_action='repeat', 'random', an action or a function"
        )
    return noop


def _element(space: gym.Space[Any], action: Any) -> Any | None:
    """Return `action` as an element of `space`, or None if it is none; lists become arrays."""
    if space.shape and space.dtype is not None:
        array = np.asarray(action)
        if not np.can_cast(array.dtype, space.dtype, "same_kind"):
            return None
        action = array.astype(space.dtype)
        if np.issubdtype(space.dtype, np.integer) and not np.array_equal(action, array):  # it wrapped around
            return None
    return action if space.contains(action) else None


def _own(action: Any) -> Any:
    """Return what may be handed out: an environment may change the array that it receives."""
    return action if isinstance(action, (int, np.integer)) or action is None else deepcopy(action)


def _did_you_mean(default_action: Any) -> str:
    close = get_close_matches(str(default_action), NAMES, n=1)
    return f"; did you mean {close[0]!r}?" if close and isinstance(default_action, str) else ""


class _Fixed:
    def __init__(self, action: Any) -> None:
        self._action = _own(action)

    def reset(self, seed: int | None) -> None:
        pass

    def __call__(self, observation: Any, last_action: Any) -> Any:
        return _own(self._action)


class _Repeat:
    def __init__(self, before_the_first: Any) -> None:
        self._before_the_first = before_the_first

    def reset(self, seed: int | None) -> None:
        pass

    def __call__(self, observation: Any, last_action: Any) -> Any:
        return _own(self._before_the_first if last_action is None else last_action)


class _Random:
    def __init__(self, space: gym.Space[Any]) -> None:
        self._space = deepcopy(space)  # a generator of its own: the environment's draws stay as they are
        self._space.seed(None)

    def reset(self, seed: int | None) -> None:
        if seed is not None:
            own = np.random.SeedSequence((seed, 0xDEFA))  # not the stream that the environment makes of this seed
            self._space.seed(int(own.generate_state(1)[0]))

    def __call__(self, observation: Any, last_action: Any) -> Any:
        return self._space.sample()


class _Function:
    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self._function = function

    def reset(self, seed: int | None) -> None:
        pass

    def __call__(self, observation: Any, last_action: Any) -> Any:
        return self._function(observation, last_action)

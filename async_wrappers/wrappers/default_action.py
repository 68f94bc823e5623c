"""The default action: the environment receives it on frames where no agent action lands (beta in the paper).

Riemer, Subbaraj, Berseth, Rish, "Enabling Realtime Reinforcement Learning at Scale with Staggered Asynchronous
Inference", arXiv 2412.14355, Definition 1: an asynchronous MDP is an MDP plus a default behaviour policy.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete, MultiBinary
from gymnasium.wrappers.utils import create_zero_array

from async_wrappers.checks import whole
from async_wrappers.wrappers.action_conversion import RefusedAction, as_action, clipped, refusal
from async_wrappers.wrappers.copies import UNCHANGEABLE, own_copy

NAMES = ("noop", "repeat", "random")

_MEANINGS = ("NOOP", "IDLE")  # of an action that does nothing; IDLE is highway-env's

# Gymnasium's environments with a discrete action that does nothing by their documentation, by class: (the action,
# how many there are). A subclass may give its actions another meaning.
DOCUMENTED_NOOPS = {
    "gymnasium.envs.box2d.car_racing.CarRacing": (0, 5),  # "do nothing"
    "gymnasium.envs.box2d.lunar_lander.LunarLander": (0, 4),  # "do nothing"
    "gymnasium.envs.classic_control.acrobot.AcrobotEnv": (1, 3),  # "apply 0 torque to the actuated joint"
    "gymnasium.envs.classic_control.mountain_car.MountainCarEnv": (1, 3),  # "Don't accelerate"
}


@dataclass(frozen=True)
class RampDown:
    """A default action for a Box: the last agent action, brought down to the no-op in equal steps.

    On missed frame number n (1 on the first frame after the action's own) the environment receives
    ``noop + w (last - noop)`` with ``w = min(1, max(0, 1 - (n - hold) / frames))``: the last action for `hold` frames,
    then less of it on each frame, and the no-op from frame ``hold + frames`` on. Before the first action of an episode
    it is the no-op.

    Args:
        frames: How many frames the way down takes.
        hold: For how many frames the last action is held before that.

    Raises:
        ValueError: `frames` is no whole number above 0, or `hold` none from 0 on.
    """

    frames: int
    hold: int = 0

    def __post_init__(self) -> None:
        """Check the numbers."""
        whole("frames", self.frames, 1, unit="frames")
        whole("hold", self.hold, 0, unit="frames")


class KnownAction(NamedTuple):
    """A default action that can be known without asking."""

    action: Any
    repeats: bool  # the agent's last action in the episode takes its place


class DefaultAction:
    """The environment's reflex: looked up once per default frame. This one is a function of the user's."""

    def __init__(self, given: Any, space: gym.Space[Any] | None = None, name: str = "default_action") -> None:
        """Take the source of the default action: a function here, an action or a space in subclasses.

        Args:
            given: The source.
            space: Of the actions that a function must return; None where what receives them checks them itself.
            name: The caller's argument, for messages.
        """
        self._given, self._wanted, self._name = given, space, name
        self._takes_missed = callable(given) and _takes_missed(given)
        # Between these a whole number needs no conversion and no copy: the common case, which each default frame meets.
        self._least, self._end = (int(space.start), int(space.start + space.n)) if type(space) is Discrete else (0, 0)

    def reset(self, seed: int | None) -> None:
        """Begin an episode; a seed restarts the generator, if there is one."""

    def rule(self) -> KnownAction | None:
        """Return the action's rule if it needs neither the observation nor a draw; else None."""
        return None

    def __call__(self, observation: Any, last_action: Any, missed: int = 1) -> Any:
        """Return the action for this frame.

        Args:
            observation: The newest observation.
            last_action: The agent action applied last in this episode, None before the first.
            missed: Frames in a row without an agent action, this one included.

        Raises:
            ValueError: A function returned what is no action.
        """
        # A function may write into what it is shown, and an environment into what it is sent.
        shown, last = own_copy(observation), last_action if type(last_action) is int else own_copy(last_action)
        action = self._given(shown, last, missed=missed) if self._takes_missed else self._given(shown, last)
        if type(action) is int and self._least <= action < self._end:
            return action
        if self._wanted is None:
            return own_copy(action)
        try:
            return own_copy(as_action(self._wanted, action))
        except RefusedAction as reason:
            raise ValueError(refusal(f"the function {self._name}", action, self._wanted, reason)) from None


class _Fixed(DefaultAction):
    def rule(self) -> KnownAction:
        return KnownAction(self._given, False)

    def __call__(self, observation: Any, last_action: Any, missed: int = 1) -> Any:
        return own_copy(self._given)


class _Repeat(DefaultAction):
    """The agent's last action; before the first one, the action that was given."""

    def rule(self) -> KnownAction:
        return KnownAction(self._given, True)

    def __call__(self, observation: Any, last_action: Any, missed: int = 1) -> Any:
        action = self._given if last_action is None else last_action
        return action if type(action) in UNCHANGEABLE else own_copy(action)


class _Hold(DefaultAction):
    """The agent's last action; before the first one, that which holds the machine where it was read."""

    def __call__(self, observation: Any, last_action: Any, missed: int = 1) -> Any:
        return own_copy(self._given.held if last_action is None else last_action)


class _Ramp(DefaultAction):
    """Down from the agent's last action to the one that was given."""

    def __init__(self, given: Any, ramp: RampDown, space: Box) -> None:
        super().__init__(given)
        self._ramp, self._space = ramp, space

    def __call__(self, observation: Any, last_action: Any, missed: int = 1) -> Any:
        share = min(1.0, max(0.0, 1 - (missed - self._ramp.hold) / self._ramp.frames))
        if last_action is None or not share:
            return own_copy(self._given)
        if share == 1:
            return own_copy(last_action)
        between = self._given + share * (np.asarray(last_action, np.float64) - self._given)
        # As rounded; of the shape () NumPy answers a number, which is no array.
        return np.asarray(np.clip(between.astype(self._space.dtype), self._space.low, self._space.high))


class _Random(DefaultAction):
    """Draws from a space, which must be its own: the environment's draws stay as they are without a default action."""

    def reset(self, seed: int | None) -> None:
        if seed is not None:
            # Not the stream that the environment makes of this seed: the two must be independent.
            own = np.random.SeedSequence((seed, 0xDEFA))
            self._given.seed(int(own.generate_state(1)[0]))

    def __call__(self, observation: Any, last_action: Any, missed: int = 1) -> Any:
        return self._given.sample()


def _takes_missed(function: Callable[..., Any]) -> bool:
    """Return whether a function takes the keyword ``missed``."""
    try:
        inspect.signature(function).bind(None, None, missed=1)
    except (TypeError, ValueError):
        return False
    return True


def make_default_action(
    default_action: Any,
    env: gym.Env[Any, Any],
    call: str = "RealtimeDelay(env, delay=8, {})",
    name: str = "default_action",
    judged: bool = False,
) -> DefaultAction:
    """Return the default action that `default_action` describes, for `env`.

    Args:
        default_action: ``"noop"`` (the environment's own, see `find_noop`), ``"repeat"`` (the last agent action; before
            the first, the no-op, else the space's zero; of a machine, the action that holds it where it was read, else
            its no-op), ``"random"`` (one draw per default frame from a generator of its own), a `RampDown`, an element
            of the action space, or a function of (newest observation, last agent action or None), which receives the
            frames missed in a row if it takes the keyword ``missed``. A function gets copies, and what it returns is
            checked as a policy's answer is (`async_wrappers.wrappers.action_conversion`).
        env: The environment that will receive the actions.
        call: The caller's line with a place for the default action, for the message where there is no no-op.
        name: The caller's argument, for messages.
        judged: Whether limits outside of `env` take what a function returns, whatever it is.

    Raises:
        ValueError: An unknown name, an action outside the action space, "noop" where the environment has none, a
            `RampDown` where actions are not real numbers, or a machine that does not say what is safe to be sent.
    """
    space = env.action_space
    if isinstance(default_action, str):
        if default_action == "noop":
            return _Fixed(own_copy(_noop_or_error(env, call, name)))
        if default_action == "repeat":
            if (machine := holding_machine(env)) is not None:
                return _Hold(machine)
            noop = find_noop(env)
            if noop is None and is_machine(env):
                raise nothing_safe(f"{name}='repeat' needs", env, ", or write an action or a function")
            return _Repeat(create_zero_array(space) if noop is None else noop)
        if default_action == "random":
            own_space = deepcopy(space)
            own_space.seed(None)
            return _Random(own_space)
    elif isinstance(default_action, RampDown):
        noop = find_noop(env)
        if noop is None and is_machine(env):
            raise _no_noop_of_machine(env, call, name, default_action)
        if noop is None or not isinstance(space, Box) or not np.issubdtype(space.dtype, np.floating):
            raise ValueError(
                f"{name}={default_action!r} needs actions of a Box of floats and a no-op to end at (zeros within the "
                f"bounds, or an attribute noop_action of the environment), got {space}"
            )
        return _Ramp(noop, default_action, space)
    elif callable(default_action):
        return DefaultAction(default_action, None if judged or _is_judged(env) else space, name)
    elif (action := _element(space, default_action)) is not None:
        return _Fixed(own_copy(action))
    raise _refusal(name, default_action, str(space))


def known_word(name: str, value: Any) -> Any:
    """Return a default action, before its environment is known.

    Raises:
        ValueError: It is a word that names no default action.
    """
    if isinstance(value, str) and value not in _words(name):
        raise _refusal(name, value, "the action space")
    return value


def _words(name: str) -> tuple[str, ...]:
    return (*NAMES, "chunk") if name == "default_action" else NAMES


def _refusal(name: str, value: Any, space: str) -> ValueError:
    words = _words(name)
    close = get_close_matches(value, words, n=1) if isinstance(value, str) else []
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return ValueError(
        f"{name} must be one of {', '.join(map(repr, words))}, a function of (observation, last_action) or "
        f"an element of {space}, got {value!r}{hint}"
    )


def find_noop(env: gym.Env[Any, Any]) -> Any | None:
    """Return the environment's no-op action, or None if none is known.

    Asked in this order: an attribute ``noop_action`` of the environment or of one of its wrappers; in a Discrete space
    ``get_action_meanings`` (``"NOOP"`` or ``"IDLE"``), highway-env's ``action_type`` (``"IDLE"``) and Gymnasium's
    documentation of LunarLander, CarRacing, Acrobot and MountainCar; zeros where a Box or MultiBinary holds them.
    A wrapper that gives the environment another action space gives its actions another meaning: layers within it are
    not asked. Of a machine nothing is guessed: zeros may be a place far away.

    Raises:
        ValueError: ``noop_action`` is no element of the action space.
    """
    space = env.action_space
    if (said := _said_of_actions(env, "noop_action")) is not None:
        if (action := _element(space, said)) is None:
            raise ValueError(f"noop_action of {_name(env)} must be an element of {space}, got {said!r}")
        return action
    if isinstance(space, Discrete):
        return _meant(env, space)
    if isinstance(space, (Box, MultiBinary)) and not is_machine(env):
        zeros = np.zeros(space.shape, dtype=space.dtype)
        return zeros if space.contains(zeros) else None
    return None


def holding_machine(env: gym.Env[Any, Any]) -> Any | None:
    """Return the `MachineEnv` in `env` whose machine has ``hold_action``, in the actions of `env`; None for none.

    Its ``held`` is the action that holds the machine where it was read last, at the episode's beginning.
    """
    return env.unwrapped if is_machine(env) and _said_of_actions(env, "holds") else None


def nothing_safe(needs: str, env: gym.Env[Any, Any], otherwise: str = "") -> ValueError:
    """Return the refusal of what must be sent to a machine before its first action, where nothing safe is known."""
    return ValueError(
        f"{needs} to know what keeps {_name(env)} at rest before its first action, as zeros may be a place far away: "
        "let the machine have noop_action, an action that is safe at any time (zeros, if it is driven by speeds), or "
        "hold_action(observation), which returns the action that holds it where it was read (if it is driven by "
        f"places){otherwise}"
    )


def is_machine(env: gym.Env[Any, Any]) -> bool:
    """Return whether a machine is at the bottom of `env`: it moves, and its zeros may be a place."""
    return getattr(type(env.unwrapped), "is_machine", False)


def _is_judged(env: gym.Env[Any, Any]) -> bool:
    """Return whether a layer of the environment takes any action and answers for it: limits, or a machine."""
    layer = env
    while not getattr(type(layer), "reports_sent", False):
        if not isinstance(layer, gym.Wrapper):
            return False
        layer = layer.env
    return True


def _meant(env: gym.Env[Any, Any], space: Discrete) -> Any | None:
    """Return the discrete action that the environment, or its documentation, calls doing nothing."""
    get_meanings = _said_of_actions(env, "get_action_meanings")
    meanings = [] if get_meanings is None else [str(meaning).upper() for meaning in get_meanings()]
    for meaning in _MEANINGS:
        if len(meanings) == space.n and meaning in meanings:
            return space.start + meanings.index(meaning)
    indexes = getattr(_said_of_actions(env, "action_type"), "actions_indexes", None)
    if isinstance(indexes, Mapping) and len(indexes) == space.n and "IDLE" in indexes:
        return indexes["IDLE"]
    base: Any = env.unwrapped
    noop, count = DOCUMENTED_NOOPS.get(f"{type(base).__module__}.{type(base).__qualname__}", (None, 0))
    return noop if count == space.n and _keeps_meaning(env, base) else None


def _said_of_actions(env: gym.Env[Any, Any], name: str) -> Any | None:
    """Return an attribute of the outermost layer that has it; None where a wrapper further out changes the actions."""
    layer = env
    while not hasattr(layer, name):
        if not isinstance(layer, gym.Wrapper):
            return None
        layer = layer.env
    return getattr(layer, name) if _keeps_meaning(env, layer) else None


def _keeps_meaning(env: gym.Env[Any, Any], layer: gym.Env[Any, Any]) -> bool:
    """Return whether an action of `env` is one of a layer of it.

    Spaces need not be identical, as a property may make them anew each time. But an action wrapper with a space of its
    own, even an equal one, gives its actions a meaning of its own.
    """
    each = env
    while each is not layer:
        own = isinstance(each, gym.ActionWrapper) and getattr(each, "_action_space", None) is not None
        if own or not isinstance(each, gym.Wrapper):
            return False
        each = each.env
    return bool(layer.action_space == env.action_space)


def _noop_or_error(env: gym.Env[Any, Any], call: str, name: str) -> Any:
    noop = find_noop(env)
    if noop is None and is_machine(env):
        raise _no_noop_of_machine(env, call, name, "noop")
    if noop is None:
        some = f" ({name}={env.action_space.start})" if isinstance(env.action_space, Discrete) else ""
        line = call.format(f"{name}='repeat'")
        raise ValueError(
            f"{name}='noop' needs an environment with a no-op, but {_name(env)} with actions "
            f"{env.action_space} has none: write `{line}`, which lets the last action go "
            f"on, or give 'random', an action{some} or a function, or let the environment say which action does "
            "nothing (an attribute noop_action)"
        )
    return noop


def _no_noop_of_machine(env: gym.Env[Any, Any], call: str, name: str, value: Any) -> ValueError:
    """Return the refusal of a default action that is, or ends at, the no-op of a machine that has none."""
    if holding_machine(env) is None:
        return nothing_safe(f"{name}={value!r} needs", env, ", or write an action or a function")
    line = call.format(f"{name}='repeat'")
    return ValueError(
        f"{name}={value!r} needs an action that is safe at any time (an attribute noop_action), but {_name(env)} has "
        f"hold_action alone, which knows the place where it was read: write `{line}`, which holds it there until the "
        "first action and then where the last one sent it, or give an action or a function"
    )


def _name(env: gym.Env[Any, Any]) -> str:
    base = env.unwrapped
    return env.spec.id if env.spec is not None else type(getattr(base, "machine", base)).__name__


def written_call(name: str, *arguments: str, **keywords: Any) -> str:
    """Return a call as one writes it, with room for one more argument; values without a literal stand as names."""
    written = {key: repr(value.item() if isinstance(value, np.generic) else value) for key, value in keywords.items()}
    named = (f"{key}={key if text.startswith('<') else text}" for key, text in written.items())
    return f"{name}({', '.join([*arguments, *(text.replace('{', '{{').replace('}', '}}') for text in named), '{}'])})"


def _element(space: gym.Space[Any], action: Any) -> Any | None:
    """Return `action` as an element of `space`, or None if it is none; lists become arrays."""
    if space.dtype is not None and (space.shape or isinstance(space, Box)):
        array = np.asarray(action)
        if not np.can_cast(array.dtype, space.dtype, "same_kind"):
            return None
        if isinstance(space, Box) and array.dtype.kind == "f" and array.shape == space.shape:
            array = clipped(space, array)
        action = array.astype(space.dtype)
        # Of whole numbers, a cast to a smaller type wraps around: 256 becomes a uint8 of 0.
        if np.issubdtype(space.dtype, np.integer) and not np.array_equal(action, array):
            return None
    try:
        return action if space.contains(action) else None
    except OverflowError:  # Gymnasium 1.3 casts a whole number of Python's to the space's type before it compares
        return None

"""Observations that include the delay.

* `AppliedActions`: the actions applied before the observation's frame.
* `CommittedActions`: the actions on their way.
* `DecisionDelay`: the age of the observation behind the last applied action, or the playout of every action.

Under delay the observation alone is not Markov: the next one depends also on the actions that land between it and the
action being chosen (Katsikopoulos and Engelbrecht, "Markov decision processes with delays and asynchronous cost
collection", 2003). `CommittedActions` shows those of them that are known. `AppliedActions` shows the ones before it,
which describe the motion of the environment at the observation's frame; under sequential interaction with ``"repeat"``
the last of them is also the one that the environment receives until the next action lands. `DecisionDelay` shows how
far ahead the action being chosen will land, where that varies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from math import inf
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, flatten, flatten_space
from numpy.typing import NDArray

from async_wrappers.checks import flag, whole
from async_wrappers.gymnasium_api import stepped
from async_wrappers.wrappers.delay import RealtimeDelay
from async_wrappers.wrappers.limits import reports_sent
from async_wrappers.wrappers.recorded import recorded

_LONGEST = 100_000  # actions that an observation shows
_SLOWEST = 1_000_000_000  # frames of a delay that an observation shows


class _JoinedRows(gym.Wrapper[Any, Any, Any, Any]):
    """Joins rows of numbers from `low` to `high` [rows, width] to the observation; a subclass chooses the numbers.

    A number is shown as its multiple of `one`, whose type the rows have: that of the observation where `flat`.
    """

    def __init__(
        self, env: gym.Env[Any, Any], key: str, low: NDArray[Any], high: NDArray[Any], flat: bool, one: Any
    ) -> None:
        gym.Wrapper.__init__(self, env)
        self._key, self._flat, self._one = key, flat, one
        self._rows: NDArray[Any] = np.zeros(low.shape, one.dtype)
        low, high = (bound.astype(one.dtype) * one for bound in (low, high))
        space = env.observation_space
        if flat:
            assert isinstance(space, Box)
            low, high = np.concatenate([space.low, low.ravel()]), np.concatenate([space.high, high.ravel()])
            self.observation_space = Box(low, high, dtype=one.dtype.type)
        else:
            self.observation_space = Dict({"observation": space, key: Box(low, high, dtype=np.float32)})

    def _join(self, observation: Any) -> Any:
        if self._flat:
            return np.concatenate([observation, self._rows.ravel()])
        return {"observation": observation, self._key: self._rows.copy()}


class _ActionsShown(_JoinedRows):
    """Joins rows that encode actions to the observation; a subclass chooses the actions.

    A further column, if `pending`, is one where an action is on its way that cannot be known yet.
    """

    def __init__(self, env: gym.Env[Any, Any], key: str, length: int, flat: bool, pending: bool = False) -> None:
        length, flat = whole("length", length, 1, _LONGEST), flag("flat", flat)
        self._encode_raw, low, high = encoder(env.action_space)
        one = one_of(env.observation_space) if flat else np.float32(1)
        if isinstance(env.action_space, Box) and np.issubdtype(one.dtype, np.integer):
            raise ValueError(f"flat=True cannot put Box actions into {one.dtype} observations: use flat=False")
        if pending:
            low, high = np.append(low, 0), np.append(high, 1)
        _JoinedRows.__init__(self, env, key, np.tile(low, (length, 1)), np.tile(high, (length, 1)), flat, one)

    def _encode(self, action: Any) -> NDArray[Any]:
        row: NDArray[Any] = self._encode_raw(action).astype(self._rows.dtype) * self._one
        return row


class AppliedActions(_ActionsShown, gym.utils.RecordConstructorArgs):
    """Adds the last actions really applied, default ones included, to the observation.

    Where limits or a machine's driver send another action than was asked for (`LimitAction`, `MachineEnv`), it is shown
    as it was sent, unless a wrapper in between changes actions to other units (Gymnasium's ``RescaleAction``).

    Put it *inside* the delay, ``RealtimeDelay(AppliedActions(env, length=4), delay=8)``: then the actions are those
    applied before the observation's frame, which a real policy also knows when it begins to compute. Actions that are
    chosen but not yet applied are not shown.

    Discrete and MultiDiscrete actions are one-hot, Box actions are their values; before the episode's first action
    all is zero. Newest last.

    Example:
        >>> import gymnasium as gym
        >>> from async_wrappers import AppliedActions
        >>> env = AppliedActions(gym.make("CartPole-v1"), length=3, flat=True)
        >>> env.observation_space.shape
        (10,)

    Args:
        env: An environment with Discrete, MultiDiscrete or Box actions.
        length: How many applied actions are shown, in frames.
        flat: False gives ``Dict(observation=..., applied_actions=Box [length, width])``. True appends the actions to a
            vector observation; where that is of whole numbers (Atari's RAM), 1 is shown as the type's largest number.

    Raises:
        ValueError: `length` is not a positive number of frames, or the spaces cannot be used.
    """

    def __init__(self, env: gym.Env[Any, Any], length: int = 1, flat: bool = False) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, **recorded(length=length, flat=flat))
        _ActionsShown.__init__(self, env, "applied_actions", length, flat)
        self._hears_sent = reports_sent(env)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment and forget the actions of the last episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._rows[:] = 0
        return self._join(observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment by one frame and remember the action."""
        row = self._encode(action)  # before the step: an environment may change the array that it receives
        observation, reward, terminated, truncated, info = stepped(self.env, action)
        if self._hears_sent:
            # Of a delay inside, info["sent"] is of the newest frame, and not of this action's.
            told = info.get("realtime", info)
            row = self._encode(told["sent"]) if "sent" in told else row
        self._rows[:-1] = self._rows[1:]
        self._rows[-1] = row
        return self._join(observation), reward, terminated, truncated, info


class CommittedActions(_ActionsShown, gym.utils.RecordConstructorArgs):
    """Adds the actions that are chosen but not yet applied at the observation's frame.

    Put it *outside* the delay, ``CommittedActions(RealtimeDelay(env, ...), length=4)``. There is a row for each action
    on its way, in the order in which their observations were read. An action is shown if its inference had ended by the
    beginning of the observation's frame (it lands on that very frame, or waits in the playout buffer); one that is
    still being inferred is *pending*: its row is zero but for the last column. Rows without an action are zero.

    Actions are shown as they were asked for: what limits or a machine's driver make of them is not known before they
    land.

    Rows depend only on events up to the beginning of the observation's frame. So with a latency a pending row may be of
    an action that a newer one will overtake or that will be too old; it is left out as soon as that is certain. A
    strategy without a playout shows the action that lands on the frame, and all others are pending, as any may still
    be overtaken.

    ``known=False`` shows pending actions too. No policy can know them while it computes these actions: for one whose
    whole network is slow this is an **oracle**. They are known in two cases: where the delay comes from transport
    between a quick policy and a distant world; and to the light part of a policy that runs when its action is due (*at
    release*), because all actions before it have been applied by then. The rows hold only actions that are
    applied in the end: with a latency that varies the rows then reveal which will be.

    Args:
        env: A `RealtimeDelay`, or wrappers around one, with Discrete, MultiDiscrete or Box actions.
        length: How many actions are shown; later ones are left out.
        known: False shows actions that a policy that takes time cannot know.
        flat: As in `AppliedActions`; the dictionary's key is ``committed_actions``.

    Raises:
        ValueError: `length` is not a positive number, there is no `RealtimeDelay` inside, or the spaces cannot be used.
    """

    def __init__(self, env: gym.Env[Any, Any], length: int = 1, known: bool = True, flat: bool = False) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, **recorded(length=length, known=known, flat=flat))
        known = flag("known", known)
        _ActionsShown.__init__(self, env, "committed_actions", length, flat, pending=True)
        self._delay = delay_inside("CommittedActions", env)
        self.known = known
        # With constants all decisions are applied, so that those chosen are those on their way.
        self._some_dropped = known and self._delay.decision_interval is None
        if self._some_dropped:
            self._delay.keep_committed()
        # (start, effect, frame by which it was known, row)
        self._chosen: deque[tuple[int, float, int, NDArray[Any]]] = deque()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment; nothing is chosen yet."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._chosen.clear()
        self._landed = -1  # start of the newest action that has landed
        self._start = info["realtime"]["start"]
        self._show()
        return self._join(observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Run one decision and show the actions that are on their way when the next one starts."""
        row = self._encode(action)
        observation, reward, terminated, truncated, info = self.env.step(action)
        realtime = info["realtime"]
        if realtime["applied"]:
            effect = self._start + realtime["delay"]
            self._chosen.append((self._start, effect, realtime["finished"], row))
        elif self._some_dropped:  # it was not known that the episode would end first
            self._chosen.append((self._start, inf, realtime["finished"], row))
        self._start = realtime["start"]
        self._show()
        return self._join(observation), reward, terminated, truncated, info

    def _show(self) -> None:
        while self._chosen and self._chosen[0][1] < self._start:
            self._landed = self._chosen.popleft()[0]
        self._rows[:] = 0
        rows = self._on_their_way() if self._some_dropped else self._applied_later()
        for shown, row in zip(self._rows, rows, strict=False):
            if row is None:
                shown[-1] = self._one
            else:
                shown[:-1] = row

    def _applied_later(self) -> Iterable[NDArray[Any] | None]:
        """Return the rows of all actions that are applied on the observation's frame or later; None: pending."""
        return (row if finished <= self._start or not self.known else None for *_, finished, row in self._chosen)

    def _on_their_way(self) -> Iterable[NDArray[Any] | None]:
        """Return the rows of all decisions that may be applied, as far as that is known; None: pending."""
        lands_now = bool(self._chosen) and self._chosen[0][1] == self._start
        newest = self._chosen[0][0] if lands_now else self._landed
        rows: dict[int, NDArray[Any] | None] = {start: row for start, *_, row in self._chosen}
        rows |= dict.fromkeys(self._delay.going_on(self._start, newest))
        return (rows[start] for start in sorted(rows))


class DecisionDelay(_JoinedRows, gym.utils.RecordConstructorArgs):
    """Adds a decision's delay, in frames: how old the observation behind an action is when the action is applied.

    Put it *outside* the delay, ``DecisionDelay(RealtimeDelay(env, latency=..., ...))``.

    ``of="last"`` shows the delay of the newest action that was applied before the observation's frame; it was known
    then. Until the episode's first action has been applied it is 0. Delays that change
    little from one inference to the next (a slow machine, `async_wrappers.latency.Correlated`) can be foreseen from it.

    ``of="playout"`` shows the same number always: that by which each action is due. With constants it is the delay,
    with tickets the playout. A policy that is trained under several delays can see which one it has.

    Example:
        >>> import gymnasium as gym
        >>> from async_wrappers import DecisionDelay, RealtimeDelay
        >>> env = DecisionDelay(RealtimeDelay(gym.make("CartPole-v1"), delay=2, default_action="repeat"), flat=True)
        >>> [float(env.reset(seed=0)[0][-1])] + [float(env.step(1)[0][-1]) for _ in range(3)]
        [0.0, 0.0, 0.0, 2.0]

    Args:
        env: A `RealtimeDelay`, or wrappers around one.
        of: ``"last"``: the delay of the newest action applied; ``"playout"``: the constant one by which each action is
            due.
        longest: The longest delay that is shown, in frames; a longer one is shown as this one.
        flat: False gives ``Dict(observation=..., decision_delay=Box [1])``. True appends the delay to a vector
            observation; where that is of whole numbers (Atari's RAM), a frame is the type's largest number
            ``// longest``.

    Raises:
        ValueError: An unknown `of`, a `longest` that is not a positive number of frames or is less than the playout,
            a strategy that has no playout, no `RealtimeDelay` inside, or an observation that is not a vector.
    """

    def __init__(
        self, env: gym.Env[Any, Any], of: Literal["last", "playout"] = "last", longest: int = 60, flat: bool = False
    ) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, **recorded(of=of, longest=longest, flat=flat))
        flat = flag("flat", flat)
        if not isinstance(of, str) or of not in ("last", "playout"):
            raise ValueError(f"of must be 'last' or 'playout', got {of!r}")
        self._longest = whole("longest", longest, 1, _SLOWEST, unit="frames")
        playout = delay_inside("DecisionDelay", env).playout
        if of == "playout" and playout is None:
            raise ValueError(
                "of='playout' needs constants or tickets, got actions that are due when they are ready: use of='last'"
            )
        self._playout = playout if of == "playout" else None
        if self._playout is not None and self._playout > self._longest:
            raise ValueError(f"longest must be >= the playout, {self._playout} frames, got {self._longest}")
        one = one_of(env.observation_space, self._longest) if flat else np.float32(1)
        _JoinedRows.__init__(self, env, "decision_delay", np.zeros(1), np.full(1, self._longest), flat, one)
        self._landing: deque[tuple[int, int]] = deque()  # (effect, delay)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment; nothing is applied yet."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._landing.clear()
        self._start = info["realtime"]["start"]
        self._show(self._playout or 0)
        return self._join(observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Run one decision and show the delay of the last one applied when the next one starts."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        realtime = info["realtime"]
        if self._playout is None and realtime["applied"]:
            self._landing.append((self._start + realtime["delay"], realtime["delay"]))
        self._start = realtime["start"]
        while self._landing and self._landing[0][0] < self._start:
            self._show(self._landing.popleft()[1])
        return self._join(observation), reward, terminated, truncated, info

    def _show(self, delay: int) -> None:
        self._rows[:] = self._one * min(delay, self._longest)


def delay_inside(wrapper: str, env: gym.Env[Any, Any]) -> RealtimeDelay:
    """Return the delay that `env` is or that lies inside of it; a ValueError names the `wrapper`."""
    layer: Any = env
    while not isinstance(layer, RealtimeDelay):
        if not isinstance(layer, gym.Wrapper):
            raise ValueError(f"{wrapper} must be around a RealtimeDelay, got {env}: wrap the delay first")
        layer = layer.env
    return layer


def one_of(space: gym.Space[Any], longest: int = 1) -> Any:
    """Return how one is shown in a flat observation: as 1, or as the largest whole number ``// longest``."""
    if not isinstance(space, Box) or len(space.shape) != 1:
        raise ValueError(
            f"flat=True needs a vector observation, got {space}: wrap the environment in "
            "gymnasium.wrappers.FlattenObservation first (in gin @FlattenObservation begins the list of wrappers), or "
            "use flat=False"
        )
    number: Any = space.dtype.type
    if not np.issubdtype(number, np.integer):
        return number(1)
    largest = np.iinfo(number).max
    if longest > largest:
        raise ValueError(f"longest must be <= {largest} frames in {space.dtype} observations, got {longest}")
    return number(largest // longest)


def encoder(space: gym.Space[Any]) -> tuple[Callable[[Any], NDArray[Any]], NDArray[Any], NDArray[Any]]:
    """Return the function from an action to a vector, and the vector's bounds as float32, for `space`."""
    if not isinstance(space, Discrete | MultiDiscrete | Box):
        raise ValueError(f"actions must be Discrete, MultiDiscrete or Box to be shown, got {space}")
    numbers: Any = flatten_space(space)
    # Zeros stand before the episode's first action, so the bounds must hold them.
    low, high = np.minimum(numbers.low, 0).astype(np.float32), np.maximum(numbers.high, 0).astype(np.float32)
    if isinstance(space, Discrete):  # the usual case: to look a row up is quicker than to make it
        return partial(_one_hot, np.eye(int(space.n), dtype=np.float32), int(space.start)), low, high
    return partial(_numbers, np.ravel if isinstance(space, Box) else partial(flatten, space)), low, high


# Functions of the module, and no lambdas, so that a wrapper can be pickled.


def _one_hot(table: NDArray[np.float32], first: int, action: Any) -> NDArray[Any]:
    row: NDArray[np.float32] = table[int(action) - first]
    return row


def _numbers(flat: Callable[[Any], Any], action: Any) -> NDArray[Any]:
    return np.asarray(flat(action), np.float32)

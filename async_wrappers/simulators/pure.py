"""Environments that are pure functions: Brax's, Playground's and gymnax's, for ``jit``, ``vmap`` and ``scan``.

What a delay knows travels in the environment's state. Brax and Playground vectorise, truncate and reset an environment
by wrappers around it, which put back ``pipeline_state`` or ``data`` as an episode ends and leave ``info`` as it is. So
the rows stand beside that part (`Carried`), and what has to survive an end, such as the number of the episode, in
``info``.
"""

from __future__ import annotations

from abc import ABC, ABCMeta
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from async_wrappers.simulators.action_window import joined
from async_wrappers.tensors.arrays import Array, Library, Tree, each
from async_wrappers.tensors.row_delay import Outcome, RowDelay, Rows, Step
from async_wrappers.tensors.row_schedule import EachEpisode, EachFrame
from async_wrappers.tensors.vector_rows import schedule_of
from async_wrappers.wrappers.row_terms import RowTerms

_NUMBERS = 2**17  # of copies, from which an rng draws: the draws of so many lie at places of their own in 32 bits


class Known(NamedTuple):
    """What a delay knows of N copies.

    Attributes:
        rows: Of `RowDelay`.
        number: Which draws each takes, [N].
        window: The actions that were sent last, [N, K, A].
    """

    rows: Rows
    number: Array
    window: Array


class Numbered:
    """A schedule whose rows take the draws of other numbers than their places.

    Args:
        schedule: Which.
        number: [N].
    """

    def __init__(self, schedule: EachEpisode | EachFrame, number: Array) -> None:
        self._schedule, self._number, self.longest = schedule, number, schedule.longest
        self.due, self.read = schedule.due, schedule.read

    def begin(self, rows: Array, frame: Array, episode: Array) -> Any:
        """Return what is known as the first episodes begin."""
        return self._schedule.begin(self._number, frame, episode)

    def next(self, known: Any, rows: Array, *rest: Any) -> Any:
        """Return what is known as the next frame begins."""
        return self._schedule.next(known, self._number, *rest)

    def following(self, known: Any, rows: Array, *rest: Any) -> Any:
        """Return the start of the decision after the one that landed last, as an episode ends."""
        return self._schedule.following(known, self._number, *rest)


class PureDelay:
    """The delay of N copies as functions of `Known`.

    Args:
        terms: Of the delay.
        default_action: ``"noop"``, ``"repeat"`` or an action.
        action: An example of one, of the environment's type.
        window: Frames whose actions are told.

    Raises:
        ValueError: Terms for several environments, or no default action.
    """

    def __init__(self, terms: RowTerms, default_action: Any, action: Array, window: int) -> None:
        terms.check(1)
        self._library = Library(jnp.zeros(1))
        self._library.device = None  # states may be of any device, or of several: nothing is put onto one
        self._schedule = schedule_of(terms, self._library, 1, 0)
        is_name = isinstance(default_action, str)  # an array is not compared with a name: that is an array, too
        self._repeats, self.window, self._action = is_name and default_action == "repeat", window, action
        if is_name and not (self._repeats or (default_action == "noop" and action.dtype.kind == "f")):
            raise ValueError(
                f"default_action must be 'noop' for actions of real numbers, 'repeat' or an action, got "
                f"{default_action!r}"
            )
        default = np.zeros(action.shape) if is_name else np.asarray(default_action)
        if default.shape != action.shape:
            raise ValueError(f"default_action must have the shape {list(action.shape)}, got {list(default.shape)}")
        if window and (len(action.shape) != 1 or action.dtype.kind != "f"):
            raise ValueError(
                f"action_window needs actions of real numbers on one axis, got {action.dtype} of shape "
                f"{list(action.shape)}: leave it 0"
            )
        self._default = jnp.asarray(default, action.dtype)

    def begin(self, observation: Tree, reward: Array, number: Array) -> Known:
        """Return what is known as N episodes begin; `number` [N] says which draws they take."""
        n = number.shape[0]
        window = jnp.zeros((n, self.window, *self._default.shape), self._default.dtype)
        rows = self._delay(number).begin(observation, reward)
        return Known(_typed(rows), number, window)

    def _delay(self, number: Array) -> RowDelay:
        default = jnp.broadcast_to(self._default, (number.shape[0], *self._default.shape))
        schedule: Any = Numbered(self._schedule, number)
        return RowDelay(self._library, schedule, default, self._repeats)

    def again(self, known: Known, episode: Array, which: Array) -> Known:
        """Return what is known where somebody else has put back the beginning of episodes: they draw anew.

        Args:
            known: Of the beginning.
            episode: Numbers of the episodes, [N].
            which: Whose have begun so, bool [N].
        """
        rows = known.rows._replace(episode=episode - jnp.where(which, 1, 0))
        rows = self._delay(known.number).restart(rows, which, self.seen(known))
        return known._replace(rows=_alike(rows, known.rows))

    def seen(self, known: Known) -> Tree:
        """Return the newest frames, [N, ...]."""
        place = known.rows.clock % (self._schedule.longest + 1)
        return each(lambda ring: ring[place], known.rows.seen)

    def step(self, known: Known, given: Array, advance: Callable[[Array], Outcome]) -> tuple[Known, Step, Array]:
        """Play a frame; return also the window as it ends, which knows no end of an episode."""
        sent: Any = None

        def advanced(actions: Array) -> Outcome:
            nonlocal sent
            sent = actions
            return advance(actions)

        rows, step = self._delay(known.number).step(known.rows, given, advanced)
        rows = _alike(rows, known.rows)
        window = jnp.concatenate([known.window, sent[:, None].astype(known.window.dtype)], axis=1)[:, 1:]
        window = window if self.window else known.window
        over = step.terminated | step.truncated
        return Known(rows, known.number, _where(over, window * 0, window)), step, window

    def told(self, observation: Tree, window: Array) -> Tree:
        """Return observations [N, ...] with the actions of a window."""
        return joined(self._library.xp, observation, window) if self.window else observation

    def realtime(self, known: Known, step: Step | None, steps: Array) -> dict[str, Array]:
        """Return ``info["realtime"]``, arrays [N]; `steps` is what was played so far, of all episodes."""
        nothing = known.rows.frame * 0
        due = known.rows.due if step is None else step.start
        told = {"deciding": due >= 0, "start": due, "frame": known.rows.frame, "steps": steps}
        for name in ("applied", "closed"):
            told[name] = nothing > 0 if step is None else getattr(step, name)
        for name in ("delay", "interval"):
            told[name] = nothing if step is None else getattr(step, name)
        return told | {"episode": known.rows.episode}


def _typed(tree: Any) -> Any:
    """Return arrays that keep their types from step to step; JAX compiles anew for a number of Python's."""
    return jax.tree.map(lambda array: jax.lax.convert_element_type(array, array.dtype), tree)


def _alike(rows: Rows, before: Rows) -> Rows:
    """Return rows with the types of others, as a scan carries them."""
    alike: Rows = jax.tree.map(lambda new, old: jax.lax.convert_element_type(new, old.dtype), rows, before)
    return alike


def _where(mask: Array, one: Array, other: Array) -> Array:
    if mask.shape[0] != one.shape[0]:  # a number of all rows
        return other
    return jnp.where(mask.reshape(mask.shape + (1,) * (one.ndim - 1)), one, other)


class Carried:
    """A simulator's part of a state with what a delay knows beside it; it has the attributes of the simulator's.

    Args:
        inner: The simulator's.
        known: The delay's.
    """

    def __init__(self, inner: Any, known: Known) -> None:
        self.inner, self.known = inner, known

    def __getattr__(self, name: str) -> Any:
        """Return what the simulator's part has."""
        if name in ("inner", "known") or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.inner, name)

    def tree_flatten(self) -> tuple[Any, None]:
        """Return both parts, for JAX's trees."""
        return (self.inner, self.known), None

    @classmethod
    def tree_unflatten(cls, nothing: None, parts: Any) -> Carried:
        """Return what two parts make up, for JAX's trees."""
        return cls(*parts)


jax.tree_util.register_pytree_node_class(Carried)


def _row(tree: Any) -> Any:
    return jax.tree.map(lambda array: array[None], tree)


def _first(tree: Any) -> Any:
    return jax.tree.map(lambda array: array[0], tree)


class DelayedPureEnv:
    """An environment of Brax or Playground under a delay, inside or outside of what vectorises and resets it.

    Args:
        env: The environment.
        terms: Of the delay.
        default_action: As in `PureDelay`.
        window: As there.
    """

    _OWN = frozenset({"env", "_delay", "_action_size"})

    def __init__(self, env: Any, terms: RowTerms, default_action: Any, window: int) -> None:
        self.env, self._action_size = env, env.action_size
        self._delay = PureDelay(terms, default_action, np.zeros(env.action_size, np.float32), window)
        for kind in [kind for kind in type(env).__mro__ if isinstance(kind, ABCMeta) and kind is not ABC][-1:]:
            kind.register(DelayedPureEnv)  # it is one, also for who asks

    def __getattr__(self, name: str) -> Any:
        """Return what the environment has."""
        if name in DelayedPureEnv._OWN or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.env, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set what is the environment's own there: domain randomisation gives it other bodies."""
        if name in DelayedPureEnv._OWN:
            object.__setattr__(self, name, value)
        else:
            setattr(self.env.unwrapped, name, value)

    @property
    def unwrapped(self) -> Any:
        """This environment: domain randomisation steps the innermost one, which must be late."""
        return self

    @property
    def action_size(self) -> int:
        """Numbers of an action."""
        return int(self._action_size)

    @property
    def observation_size(self) -> Any:
        """Numbers of an observation, or of each of its parts, with the actions that are told."""
        numbers = self._delay.window * self.action_size

        def of(size: Any) -> Any:
            if isinstance(size, Mapping):
                return {key: of(part) for key, part in size.items()}
            if isinstance(size, tuple):
                return (size[0] + numbers,) if len(size) == 1 else size
            return size + numbers

        return of(self.env.observation_size)

    def reset(self, rng: Array) -> Any:
        """Return the first state."""
        state = self.env.reset(rng)
        is_one = state.reward.ndim == 0
        observation, reward = _row((state.obs, state.reward)) if is_one else (state.obs, state.reward)
        n = reward.shape[0]
        number = jax.random.randint(jax.random.fold_in(rng, 1), (1,), 0, _NUMBERS) if is_one else jnp.arange(n)
        known = self._delay.begin(observation, reward, number)
        realtime = self._delay.realtime(known, None, jnp.zeros(n, jnp.int32))
        obs = self._delay.told(observation, known.window)
        realtime, obs = _first((realtime, obs)) if is_one else (realtime, obs)
        info = {**state.info, "realtime": realtime}
        return self._with(state, known, obs=obs, reward=_typed(state.reward), info=info)

    def step(self, state: Any, action: Array) -> Any:
        """Return the state after a frame; ``info["realtime"]`` says what landed, as `VectorRealtimeDelay` does."""
        is_one = state.reward.ndim == 0
        carried = getattr(state, self._part(state))
        info = dict(state.info)
        before = info.pop("realtime")
        before, given = _row((before, action)) if is_one else (before, action)
        known = carried.known
        episode = known.rows.episode
        if is_one:  # who puts the beginning back forgets all but `info`
            begun = (known.rows.clock == 0) & (before["steps"] > 0)
            episode = jnp.where(begun, before["episode"] + 1, before["episode"])
            known = self._delay.again(known, episode, begun)
        seen = self._delay.seen(known)
        inner = state.replace(**{self._part(state): carried.inner}, obs=_first(seen) if is_one else seen, info=info)
        after: Any = None

        def advance(sent: Array) -> Outcome:
            nonlocal after
            after = self.env.step(inner, sent[0] if is_one else sent)
            obs, reward, done = (after.obs, after.reward, after.done)
            obs, reward, done = _row((obs, reward, done)) if is_one else (obs, reward, done)
            return Outcome(obs, reward, done != 0, done != done, seen if _resets(after) else None)

        known, step, window = self._delay.step(known, given, advance)
        over = step.terminated
        if _resets(after):
            obs = self._delay.told(step.observation, known.window)
        else:  # who resets it wants to see the end
            shown = each(lambda last, now: _where(over, last, now), step.final, step.observation)
            obs = self._delay.told(shown, window)
        realtime = self._delay.realtime(known, step, before["steps"] + 1)
        realtime |= {"episode": episode} if is_one else {}
        realtime = {name: value.astype(before[name].dtype) for name, value in realtime.items()}
        reward = step.reward.astype(after.reward.dtype)
        realtime, obs, reward = _first((realtime, obs, reward)) if is_one else (realtime, obs, reward)
        return self._with(after, known, obs=obs, reward=reward, info={**after.info, "realtime": realtime})

    def _with(self, state: Any, known: Known, **parts: Any) -> Any:
        part = self._part(state)
        return state.replace(**{part: Carried(getattr(state, part), known)}, **parts)

    @staticmethod
    def _part(state: Any) -> str:
        """Return the name of the simulator's part of a state."""
        return "pipeline_state" if hasattr(state, "pipeline_state") else "data"


def _resets(state: Any) -> bool:
    """Return whether an environment resets itself: then its state keeps the observation that it goes back to."""
    return any(name.endswith("first_obs") for name in state.info)


class DelayedPureGame:
    """An environment of gymnax under a delay, whose state is a `Carried`.

    Args:
        env: The environment.
        terms: Of the delay.
        default_action: As in `PureDelay`.
        window: As there.
    """

    def __init__(self, env: Any, terms: RowTerms, default_action: Any, window: int) -> None:
        space = env.action_space(env.default_params)
        self.env, self._delay = env, PureDelay(terms, default_action, np.zeros(space.shape, space.dtype), window)

    def __getattr__(self, name: str) -> Any:
        """Return what the environment has, but for functions that would step it without delay."""
        if name in ("env", "_delay", "step_env", "reset_env") or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.env, name)

    def observation_space(self, params: Any) -> Any:
        """Return the space of observations, with the actions that are told."""
        space = self.env.observation_space(params)
        if not self._delay.window:
            return space
        (size,) = self.env.action_space(params).shape
        low, high = (
            jnp.append(jnp.broadcast_to(bound, space.shape), jnp.full(self._delay.window * size, inf))
            for bound, inf in ((space.low, -jnp.inf), (space.high, jnp.inf))
        )
        return type(space)(low, high, low.shape, space.dtype)

    def reset(self, key: Array, params: Any = None) -> tuple[Any, Carried]:
        """Return the first observation and state."""
        observation, inner = self.env.reset(key, params)
        number = jax.random.randint(jax.random.fold_in(key, 1), (1,), 0, _NUMBERS)
        known = self._delay.begin(_row(observation), jnp.zeros(1), number)
        return _first(self._delay.told(_row(observation), known.window)), Carried(inner, known)

    def step(self, key: Array, state: Carried, action: Any, params: Any = None) -> tuple[Any, ...]:
        """Return observation, state, reward, terminated, truncated and info, with ``info["realtime"]``."""
        after: Any = None

        def advance(sent: Array) -> Outcome:
            nonlocal after
            after = self.env.step(key, state.inner, sent[0], params)
            if len(after) != 6:
                raise ValueError(
                    "env.step must return observation, state, reward, terminated, truncated and info, as gymnax 1's, "
                    f"got {len(after)} of these: update gymnax, or wrap it so"
                )
            observation, _, reward, terminated, truncated, info = after
            last = _row(info["final_observation"])
            return Outcome(_row(observation), jnp.asarray(reward)[None], terminated[None], truncated[None], last)

        known, step, window = self._delay.step(state.known, jnp.asarray(action)[None], advance)
        realtime = self._delay.realtime(known, step, known.rows.clock + known.rows.frame * 0)
        info = {**after[-1], "realtime": _first(realtime)}
        info["final_observation"] = _first(self._delay.told(step.final, window))
        observation = _first(self._delay.told(step.observation, known.window))
        over = step.terminated[0], step.truncated[0]
        return observation, Carried(after[1], known), step.reward[0], *over, info

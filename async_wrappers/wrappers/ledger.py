"""The ledger of decisions: which action each frame receives, and what each decision has got when the next one lands.

Whoever plays keeps one: `RealtimeDelay`, the live loop, a world of a server, and `VectorRealtimeDelay` for its rows.
When a decision lands is said elsewhere, by schedules and dispatchers (`async_wrappers.schedule`).
"""

# The frames of a decision
# ========================
#
#   frame         e_0                e_0 + 1    ...    e_1                e_1 + 1    ...
#   an action     action_0           default    ...    action_1           default    ...
#   chunks        chunk_0[e_0-s_0]   [e_0+1-s_0] ...   chunk_1[e_1-s_1]   ...
#   reward        |<------------- of decision 0 ------>|<------------- of decision 1 ...
#
# 1. A decision is computed from the observation of frame s, its start, and lands on frame e >= s, its effect. Both
#    strictly increase.
# 2. Frame e receives its action, and if that is a chunk, the frames from e on receive the entries that are meant for
#    them, until the chunk ends or the next decision lands. Every other frame receives the default action.
# 3. The default action is told the newest observation, the last action and how many frames in a row had none. The last
#    action is the one that was sent: limits and machines may send another one than the decision's.
# 4. A decision gets the rewards of the frames from its effect to the next one's. Rewards from before the first effect
#    are the first decision's.
# 5. Before an episode's first decision, and after whatever cuts it in two (a pause, a lost life), there is no last
#    action.

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.wrappers.utils import create_zero_array
from numpy.typing import NDArray

from async_wrappers.wrappers.chunk import ChunkBatch, Chunks, executed_entries
from async_wrappers.wrappers.copies import UNCHANGEABLE, VectorEnv, batch, own_copy, rows
from async_wrappers.wrappers.default_action import DefaultAction


class Ledger:
    """Of one environment.

    Args:
        default_action: Asked on the frames that no decision acts on; None where there are none.
        chunks: Those of the episode, where actions are chunks.

    Attributes:
        start: Of the decision that landed last.
        effect: The frame on which it landed; None before the first.
        reward: What it has got so far, or before the first effect, what the first one will.
        sent: What was really sent in the place of its action, or its chunk with the entries that were; None if nothing
            else was.
        last_action: The action that was sent last, of those that decisions chose; None before the first.
        missed: Frames in a row, the newest ones, on which no decision acted.
    """

    __slots__ = "_action", "_chunks", "_default_action", "effect", "last_action", "missed", "reward", "sent", "start"

    def __init__(self, default_action: DefaultAction | None, chunks: Chunks | None = None) -> None:
        self._default_action, self._chunks = default_action, chunks
        self._action: Any = None  # of the decision that landed last
        self.begin()

    def begin(self) -> None:
        """Begin an episode."""
        self.forget_decision()
        self.forget_last_action()

    def forget_decision(self) -> None:
        """Let no decision act any more that has landed."""
        self.start, self.reward = -1, 0.0
        self.effect: int | None = None
        self.sent: Any = None
        if self._chunks is not None:
            self._chunks.clear()

    def forget_last_action(self) -> None:
        """Let default actions go on from nothing."""
        self.last_action: Any = None
        self.missed = 0

    def land(self, start: int, frame: int, action: Any, observation: Any, known: int = 0) -> Any:
        """Note that a decision lands on a frame; return the action that the frame receives.

        Args:
            start: Of the decision.
            frame: Its effect.
            action: An action, or a chunk.
            observation: Of the frame, for the default action: a chunk may have ended when it lands.
            known: The first frame that began when it was certain that it would land, for `Chunks.committed`.
        """
        self.start, self.effect, self.sent = start, frame, None
        if self._chunks is None:
            self.missed = 0
            self.last_action = action if type(action) in UNCHANGEABLE else own_copy(action)
            return action
        self._action = action
        self._chunks.forget(start)  # a decision that starts later sees the frames from its start on
        self._chunks.add(start, frame, action, known)
        return self.go_on(frame, observation)

    def go_on(self, frame: int, observation: Any) -> Any:
        """Return the action of a frame on which no decision lands."""
        if self._chunks is not None and (action := self._chunks.at(frame)) is not None:
            self.missed = 0
            self.last_action = own_copy(action)
            return action
        assert self._default_action is not None  # every frame receives an action
        self.missed += 1
        return self._default_action(observation, self.last_action, self.missed)

    def note_sent(self, frame: int, action: Any) -> None:
        """Note that another action was sent on a frame than the decision's, which acts on it."""
        self.last_action = own_copy(action)
        if self._chunks is None:
            self.sent = self.last_action
        else:
            self.sent = np.array(self._action) if self.sent is None else self.sent
            self.sent[frame - self.start] = self.last_action

    def close(self, frame: int) -> tuple[Any, int, Any, Any]:
        """Return what the decision that landed last has got by a frame, on which the next lands or the episode ends.

        Returns:
            Its reward; the frames from its effect on, 0 where there was none; of a chunk which of its entries were
            applied, bool [length], else False; and `sent`.
        """
        reward, self.reward = self.reward, 0.0
        effect = frame if self.effect is None else self.effect
        executed: Any = False
        if self._chunks is not None:
            executed = executed_entries(self._chunks.length, self.start, effect, frame)
        return reward, frame - effect, executed, self.sent


class LedgerRows:
    """Of environments that step in lockstep, each row by the same rules; no reward: their delay counts those.

    Where all default actions are known without asking, what each row would receive is kept as one array.

    Args:
        env: The vector.
        default_actions: Of each environment; none where nothing is delayed.
        asks: Whether default actions are functions, which are told observations.
        chunks: Those of the running episodes, where actions are chunks.

    Attributes:
        in_arrays: Whether default actions are kept as one array.
        none: The action that a row receives while no episode of it runs; it is ignored.
    """

    def __init__(
        self, env: VectorEnv, default_actions: Sequence[DefaultAction], asks: bool, chunks: ChunkBatch | None
    ) -> None:
        self._env, self._default_actions, self._asks, self._chunks = env, default_actions, asks, chunks
        self.none = create_zero_array(env.single_action_space)  # on the frame of a reset, which ignores it
        # The default actions before an episode's first decision, and whether they go on from a decision's.
        self._standing, self._repeats = standing_actions(default_actions, env) if default_actions else (None, False)
        self.in_arrays = self._standing is not None
        self.begin()

    def begin(self) -> None:
        """Begin all episodes."""
        self._last_actions: list[Any] = [None] * self._env.num_envs
        self._missed = [0] * self._env.num_envs
        self._defaults = None if self._standing is None else self._standing.copy()
        if self._chunks is not None:
            self._chunks.clear()

    def begin_episodes(self, which: NDArray[np.int64]) -> None:
        """Begin those of some environments."""
        if self._defaults is not None and self._standing is not None:
            self._defaults[which] = self._standing[which]
            return
        for i in which.tolist():
            self._last_actions[i], self._missed[i] = None, 0

    def land_all(self, actions: Any) -> None:
        """Note that an action of each row lands on a frame, where default actions are kept as one array."""
        given = given_rows(actions, self._env.num_envs)
        if self._repeats and self._defaults is not None:
            np.copyto(self._defaults, given)

    def actions(
        self, given: Any, receiving: NDArray[np.bool_] | None, waiting: NDArray[np.bool_] | None, observations: Any
    ) -> Any:
        """Return the actions that the rows receive on a frame.

        Args:
            given: An action for each row, or the entries of their chunks; None where no decision acts.
            receiving: Which rows receive these; the others receive the default action.
            waiting: Rows that reset on this frame, as no episode of theirs runs; None where there are none.
            observations: The newest, for default actions.
        """
        if self._defaults is not None:
            return self._in_arrays(self._defaults, given, receiving, waiting)
        n = self._env.num_envs
        acts = np.zeros(n, bool)
        if given is not None and receiving is not None:
            each = rows(self._env.action_space, own_copy(given))
            if len(each) != n:
                raise ValueError(f"actions must be one for each of {n} sub-environments, got {len(each)}")
            acts = receiving
            for i in np.flatnonzero(acts).tolist():
                self._last_actions[i], self._missed[i] = each[i], 0
            if acts.all():
                return given
        shown = rows(self._env.observation_space, observations) if self._asks else [None] * n
        sent = []
        for i, last_action in enumerate(self._last_actions):
            if acts[i]:
                sent.append(last_action)
            elif waiting is None or not waiting[i]:
                self._missed[i] += 1
                sent.append(self._default_actions[i](shown[i], last_action, self._missed[i]))
            else:
                sent.append(self.none)
        return batch(self._env.single_action_space, sent)

    def _in_arrays(
        self,
        defaults: NDArray[Any],
        given: Any,
        receiving: NDArray[np.bool_] | None,
        waiting: NDArray[np.bool_] | None,
    ) -> Any:
        if given is None or receiving is None:
            sent = defaults.copy()
        else:
            each = given_rows(given, self._env.num_envs)
            mask = receiving if each.ndim == 1 else receiving.reshape(-1, *(1,) * (each.ndim - 1))
            if self._repeats:
                np.copyto(defaults, each, where=mask)
            if np.count_nonzero(receiving) == self._env.num_envs:
                return given
            sent = defaults.copy()
            if not self._repeats:
                np.copyto(sent, each, where=mask)
        if waiting is not None:
            sent[waiting] = self.none
        return sent

    def note_sent(self, which: NDArray[np.bool_], actions: Any) -> None:
        """Note that other actions were sent to some rows than their decisions', which act on the frame."""
        if self._defaults is None:
            for i in np.flatnonzero(which).tolist():
                self._last_actions[i] = own_copy(actions[i])
        elif self._repeats:
            self._defaults[which] = actions[which]


def given_rows(actions: Any, num_envs: int) -> NDArray[Any]:
    """Return the agent's actions as an array, one for each sub-environment."""
    given = np.asarray(actions)
    if not given.shape or len(given) != num_envs:
        got = len(given) if given.shape else "none"
        raise ValueError(f"actions must be one for each of {num_envs} sub-environments, got {got}")
    return given


def standing_actions(default_actions: Sequence[DefaultAction], env: VectorEnv) -> tuple[NDArray[Any] | None, bool]:
    """Return the batch of default actions before the agent's first ones, and whether all repeat those.

    There is no such batch where actions are no arrays, or where the default action must be asked on every frame.
    """
    rules = [default_action.rule() for default_action in default_actions]
    if any(rule is None for rule in rules):
        return None, False
    standing = batch(env.single_action_space, [rule.action for rule in rules if rule is not None])
    repeats = all(rule.repeats for rule in rules if rule is not None)
    return (standing if type(standing) is np.ndarray and not standing.dtype.hasobject else None), repeats

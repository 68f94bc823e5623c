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

from typing import Any

import numpy as np

from async_wrappers.wrappers.chunk import Chunks, executed_entries
from async_wrappers.wrappers.copies import own_copy
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
            self.last_action = action if type(action) is int else own_copy(action)
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

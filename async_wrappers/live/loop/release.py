"""Core at release: the light half of a policy with memory, run by the environment loop in the order of starts.

Workers compute the features of their frames and send them late, and in any order. Here the chain of states is made: one
link for each action that takes effect, none for a dropped one (`async_wrappers.policy.SplitPolicy`).
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import gymnasium as gym

from async_wrappers.checks import whole
from async_wrappers.live.inference.worker import WeightsLoader, inference_mode
from async_wrappers.live.loop.workers import Action, Features, Refusal
from async_wrappers.live.memory.exchange import Ticket
from async_wrappers.live.memory.weights import WeightsBoard
from async_wrappers.needs import refuse
from async_wrappers.policy import Decision, Memory, as_act
from async_wrappers.wrappers.action_conversion import RefusedAction, as_action, refusal, with_extras
from async_wrappers.wrappers.past_frames import FreshFrames

_WARM = 3  # releases before the first frame
_FIRST = Memory(None, 0.0, True, None)
_TRIES = 2  # with other weights each time; a learner cannot publish twice within a release unless the loop was stopped


def refuse_to_hold(max_features_age: int | None, release: Release | None) -> None:
    """Refuse a `max_features_age` with a policy that has no fast path.

    Raises:
        ValueError: It has none.
    """
    slow = release is None or not release.has_fast_path
    refuse({"no fast path": slow}, {"max_features_age": max_features_age})


class Release:
    """Carries the memory of one environment from applied decision to applied decision.

    Args:
        policy: A `SplitPolicy`, made by the factory that makes the workers'.
        action_space: The policy's answers are converted to it, or refused.
        extras: Space of the values that the policy leaves for the learner beside an action; None for none.
        board: Holds the newest weights; None without learners. They are read in place, without a wait.
        reader: Under which number they are read: the one after the last worker's.

    Attributes:
        has_fast_path: Whether the policy reads fresh observations.
        reads_older: Whether these are some frames older than the newest.

    Raises:
        ValueError: A policy that is none in two halves, or that cannot load the weights that are learnt.
    """

    def __init__(
        self,
        policy: Any,
        action_space: gym.Space[Any],
        extras: gym.spaces.Dict | None = None,
        board: WeightsBoard | None = None,
        reader: int = 0,
    ) -> None:
        as_act(policy, splits=True)
        age = getattr(policy, "fast_age", None)
        age = None if age is None else whole("fast_age of the policy", age, 0, unit="frames", or_none=True)
        self._past = FreshFrames(age) if age else None  # where it reads one that is older than the newest
        self.has_fast_path, self.reads_older, self._frame = age is not None, self._past is not None, -1
        self._policy, self._action_space, self._extras = policy, action_space, extras
        self._board, self._reader = board, reader
        self._loader = None if board is None else WeightsLoader(policy, board)
        if self._loader is not None and board is not None and board.version:
            self._loader.load()  # now, as the first takes longest
        self._memory = _FIRST

    def warm_up(self, features: Any, observation: Any) -> None:
        """Release some features and forget it: the first calls of a library take longest."""
        with inference_mode():
            for _ in range(_WARM):
                self._released(features, self._told(_FIRST, observation), Decision(0, 0, 0, eval_mode=True))

    def begin_episode(self) -> None:
        """Clear memory: it starts with the episode's first applied decision."""
        self._memory, self._frame = _FIRST, -1
        if self._past is not None:
            self._past.begin()

    def fresh(self, observation: Any, frame: int) -> Any:
        """Return what a fast path that `reads_older` ones reads on a frame of the episode; it is asked on each.

        Args:
            observation: The newest.
            frame: Of the episode.
        """
        assert self._past is not None
        if frame != self._frame:
            self._past.take(observation)
            self._frame = frame
        return self._past.shown

    def _told(self, memory: Memory, fresh: Any) -> Memory:
        return memory._replace(fresh=fresh) if self.has_fast_path else memory

    def decide(self, features: Features, ticket: Ticket, paid: float, fresh: Any = None) -> Action | Refusal | None:
        """Return the action of a decision that takes effect now, and remember its state.

        An answer that cannot be applied changes no memory, like a dropped decision.

        Args:
            features: The output of ``encode`` on the ticket's frame.
            ticket: The order that the worker had.
            paid: Sum of the rewards of the decision applied before; not used for an episode's first.
            fresh: What a fast path reads, where the policy has one.

        Returns:
            The action; a refusal, if the answer is no action; None if learners rewrote the weights meanwhile.

        Raises:
            Exception: The policy's, with a note.
            ValueError: The answer has no action or state, or not the extras that are declared.
        """
        memory = self._memory if self._memory.first else self._memory._replace(previous_reward=paid)
        memory = self._told(memory, fresh)
        decision = ticket.decision
        try:
            with inference_mode():
                for _ in range(_TRIES):
                    answer, version = self._released(features.features, memory, decision)
                    if answer is not None:
                        return self._accepted(answer, version, features.updates)
        except Exception as error:
            error.add_note("raised in the environment loop, in which a policy with memory is released")
            raise
        return None

    def sent(self, action: Any, entry: int | None = None) -> None:
        """Remember that another action was sent than that of the decision applied last, or that entry of its chunk."""
        previous = deepcopy(action)
        if entry is not None:
            previous = self._memory.previous_action
            previous[entry] = action
        self._memory = self._memory._replace(previous_action=previous)

    def _released(self, features: Any, memory: Memory, decision: Decision) -> tuple[Any, int]:
        """Return the policy's answer, None if learners rewrote its weights meanwhile, and their version."""
        if self._board is None or self._loader is None:
            return self._policy.release(features, memory, decision), 0
        reading = self._board.begin_reading(self._reader)
        version = self._loader.load(reading)
        answer = self._policy.release(features, memory, decision)
        return answer if self._board.end_reading(self._reader, reading) else None, version

    def _accepted(self, answer: Any, version: int, updates: int) -> Action | Refusal:
        """Return an answer as an element of the action space, and remember it; or return its refusal."""
        if not (hasattr(answer, "action") and hasattr(answer, "state")):
            raise ValueError(f"release must return an object with the attributes action and state, got {answer!r}")
        given, left = (answer.action, None) if self._extras is None else with_extras(answer, self._extras)
        try:
            action = as_action(self._action_space, given)
        except RefusedAction as reason:
            return Refusal(refusal("the policy's release", given, self._action_space, reason))
        # A copy: an environment may write into the action that it receives.
        self._memory = Memory(deepcopy(action), 0.0, False, answer.state)
        return Action(action, left, version, updates)

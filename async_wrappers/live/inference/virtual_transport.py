"""The transport of the virtual clock: workers infer in this thread, and a model says when each inference ends."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import gymnasium as gym
import numpy as np

from async_wrappers.latency import Latency
from async_wrappers.live.inference.transport import Ready
from async_wrappers.live.inference.worker import WeightsLoader, infer
from async_wrappers.live.learning.virtual_learners import VirtualLearners
from async_wrappers.live.memory.slots import Finished, Ticket
from async_wrappers.live.memory.weights import WeightsBoard
from async_wrappers.policy import as_act

__all__ = ["VirtualTransport"]

_LATENCIES = 0x1A7E  # makes an episode's latencies independent of what else is drawn from its seed


class VirtualTransport:
    """Workers on a clock that stands still until `advance` moves it.

    An inference is computed when it starts, so that it reads the frame and the weights of that moment, and it has ended
    when its latency has passed. Latencies are drawn in the order of starts; they begin anew with each episode, from its
    seed, as those of `SimulatedSchedule` do.

    Args:
        policies: By worker.
        action_space: What a policy answers is converted to it, or refused.
        latency: How long an inference takes.
        learners: That work beside the workers; None if nobody learns.
        board: Where the newest weights are; None if nobody learns.
        extras: What policies leave for the learner beside an action; None for nothing.

    Raises:
        ValueError: A policy that is none, or that cannot load the weights that are learnt.
    """

    def __init__(
        self,
        policies: Sequence[Any],
        action_space: gym.Space[Any],
        latency: Latency,
        learners: VirtualLearners | None = None,
        board: WeightsBoard | None = None,
        extras: gym.spaces.Dict | None = None,
    ) -> None:
        """See the class."""
        self._extras = extras
        self._act = [as_act(policy) for policy in policies]
        self._action_space, self._latency, self._learners = action_space, latency, learners
        self._loaders = [] if board is None else [WeightsLoader(policy, board) for policy in policies]
        self._now = 0
        self._draw: Callable[[], int] = latency.stream(0).draw
        self._events: list[Ready | Finished] = [Ready(worker) for worker in range(len(policies))]
        self._end_of = [0] * len(policies)
        self._ends: list[tuple[int, int, Finished]] = []  # (when, worker, what it comes to), a heap
        self._shown: Any = None

    def now(self) -> int:
        """Return the time in nanoseconds."""
        return self._now

    def restart(self, seed: int, now: int) -> None:
        """Begin an episode: its seed starts all latencies anew, and time is `now`."""
        self._now = now
        self._draw = self._latency.stream(np.random.SeedSequence((seed, _LATENCIES))).draw
        if self._learners is not None:
            self._learners.restart(seed)

    def publish(self, number: int, observation: Any) -> None:
        """Show the newest frame, which the environment must not change before time is advanced past it."""
        self._shown = observation

    def start(self, worker: int, ticket: Ticket) -> None:
        """Infer the newest frame.

        Raises:
            Exception: What the policy raised, with the worker named in a note.
        """
        version = self._loaders[worker].load() if self._loaders else 0
        try:
            act, shown = self._act[worker], deepcopy(self._shown)
            answer = infer(worker, ticket, shown, act, self._action_space, self._now, self._extras)
        except Exception as error:
            error.add_note(f"raised in worker {worker}")
            raise
        ended = self._now + self._draw()
        # A copy: a policy may fill the same array again before this action's frame has come.
        action, extras = deepcopy(answer.action), None if answer.extras is None else deepcopy(answer.extras)
        finished = Finished(worker, ticket.number, self._now, ended, answer.fate, action, version, extras)
        self._end_of[worker] = ended
        heapq.heappush(self._ends, (ended, worker, finished))

    def collect(self, until: int) -> list[Ready | Finished]:
        """Return what has ended by now, the earliest first; time stands still."""
        events, self._events = self._events, []
        while self._ends and self._ends[0][0] <= self._now:
            events.append(heapq.heappop(self._ends)[-1])
        return events

    def has_news(self) -> bool:
        """Return whether `collect` would return anything."""
        return bool(self._events) or (bool(self._ends) and self._ends[0][0] <= self._now)

    def end_of(self, worker: int) -> int:
        """Return when the inference that a worker started last will have ended."""
        return self._end_of[worker]

    def advance(self, until: int) -> None:
        """Let time pass, in which learners update their weights."""
        if self._learners is not None:
            self._learners.run(self._now, until)
        self._now = until

    def discard(self) -> list[Finished]:
        """Return what has not been collected, as it will have ended, and forget it."""
        ends, self._ends = self._ends, []
        return [finished for *_, finished in sorted(ends, key=lambda end: end[:2])]

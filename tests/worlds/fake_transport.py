"""`FakeTransport`: workers of an environment loop on a clock of the test; waiting is what moves the clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from itertools import count
from typing import Any

from async_wrappers.live.inference.transport import Ready
from async_wrappers.live.loop.loop import EnvironmentLoop
from async_wrappers.live.memory.exchange import Fate, Finished, Ticket
from async_wrappers.live.report.report import Measurements
from async_wrappers.live.run_spec import LoopConfig, PhaseSpec
from async_wrappers.policy import Decision
from async_wrappers.schedule.stagger import make_stagger
from async_wrappers.testing.staggers import MS
from tests.worlds.recording_env import EPISODE, RecordingEnv

__all__ = ["FakeTransport", "Stage"]

BEGIN = 1_000_000_007  # the clock shows anything when a run begins


class FakeTransport:
    """Workers whose inferences take the times of a list, which begins anew with each episode, as they are started.

    Args:
        act: The policy, (observation, decision) -> action.
        latencies: Nanoseconds, played round and round; or by worker, for ever the same.
        ready: When each worker comes up, in nanoseconds after the beginning; None for never.
        happens: Other things: (nanoseconds after the beginning, what is called then).
    """

    def __init__(
        self,
        act: Callable[[Any, Decision], Any],
        latencies: Sequence[int] | dict[int, int],
        ready: Sequence[int | None],
        happens: Sequence[tuple[int, Callable[[], None]]] = (),
    ) -> None:
        self.time = BEGIN
        self.log: list[tuple[Any, ...]] = []  # what the loop asked for, and when
        self.fates: dict[int, Fate] = {}  # by number of the inference: other ends than DONE
        self.inferences = 0
        self._act, self._latencies, self._frames = act, latencies, {}  # type: ignore[var-annotated]
        self.coming: list[tuple[int, int, Any]] = []  # (time, order, event or function)
        self._order = 0
        self._drawn: dict[tuple[int, bool], Iterator[int]] = {}  # by episode, and whether it is the warm-up
        for worker, time in enumerate(ready):
            if time is not None:
                self._at(BEGIN + time, Ready(worker))
        for time, function in happens:
            self._at(BEGIN + time, function)

    def now(self) -> int:
        return self.time

    def show(self, number: int, observation: Any) -> None:
        self.log.append(("show", self.time, number))
        self._frames[number] = deepcopy(observation)

    def start(self, worker: int, ticket: Ticket) -> None:
        assert ticket.number == max(self._frames), "a worker reads the newest frame"
        self.log.append(("start", self.time, worker, ticket))
        mine = [event for *_, event in self.coming if isinstance(event, Finished) and event.worker == worker]
        if any(event.fate == Fate.LOST for event in mine):
            return  # it has died, and the loop will hear of it
        assert not mine, "a worker has one inference at a time"
        decision = ticket.decision
        fate = self.fates.get(self.inferences, Fate.DONE)
        action = self._act(deepcopy(self._frames[ticket.number]), decision) if fate == Fate.DONE else None
        drawn = self._drawn.setdefault((int(self._frames[ticket.number][EPISODE]), ticket.number == 0), count())
        each = worker if isinstance(self._latencies, dict) else next(drawn) % len(self._latencies)
        ends = self.time + self._latencies[each]
        self.inferences += 1
        self._at(ends, Finished(worker, ticket.number, self.time, ends, fate, action, 0))

    def kill(self, worker: int, up_again: int | None = None) -> None:
        """Let a worker die now and, that many nanoseconds later, be up again."""
        number = -1
        for entry in self.coming:
            if isinstance(entry[2], Finished) and entry[2].worker == worker:
                number = entry[2].number
                self.coming.remove(entry)
                break
        self._at(self.time, Finished(worker, number, self.time, self.time, Fate.LOST, None, 0))
        if up_again is not None:
            self._at(self.time + up_again, Ready(worker))

    def collect(self, until: int) -> list[Ready | Finished]:
        self.log.append(("collect", self.time, until))
        while self.coming:
            time = self.coming[0][0]
            if time > max(until, self.time):
                break
            self.time = max(self.time, time)
            due = [entry for entry in self.coming if entry[0] <= self.time]
            self.coming = [entry for entry in self.coming if entry[0] > self.time]
            for *_, event in due:
                if callable(event):
                    event()
            events = [event for *_, event in due if not callable(event)]
            if events:
                events.sort(key=lambda event: (getattr(event, "ended", self.time), event.worker))
                return events
        self.time = max(self.time, until)
        return []

    def _at(self, time: int, event: Any) -> None:
        self._order += 1
        self.coming = sorted([*self.coming, (time, self._order, event)], key=lambda entry: entry[:2])


class Timed(RecordingEnv):
    """Writes down when it is stepped; `durations` says how long the n-th step takes, in nanoseconds."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.durations: dict[int, int] = {}
        self.steps: list[tuple[int, Any]] = []
        self.resets: list[tuple[int, int | None]] = []
        self.transport: FakeTransport | None = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if self.transport is not None:
            self.resets.append((self.transport.time, seed))
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        assert self.transport is not None
        self.transport.log.append(("step", self.transport.time))
        self.steps.append((self.transport.time, action))
        self.transport.time += self.durations.get(len(self.steps) - 1, 0)
        return super().step(action)


class Stage:
    """An environment loop, its environment and its transport, at 1000 frames per second."""

    def __init__(
        self,
        latencies: Sequence[int] | dict[int, int] = (2 * MS,),
        workers: int = 2,
        stagger: Any = "none",
        length: Any = None,
        fps: Any = 1000,
        act: Callable[[Any, Decision], Any] = lambda observation, decision: 1,
        ready: Sequence[int | None] | None = None,
        happens: Sequence[tuple[int, Callable[[Stage], None]]] = (),
        env: dict[str, Any] | None = None,
        controls: Any = None,
        journal: Any = None,
        stops: Callable[[], bool] = lambda: False,
        release: Any = None,
        **terms: Any,
    ) -> None:
        self.env = Timed(length, **(env or {}))
        self.transport = FakeTransport(
            act,
            latencies,
            [0] * workers if ready is None else ready,
            [(time, lambda function=function: function(self)) for time, function in happens],
        )
        self.env.transport = self.transport
        self.config = LoopConfig(workers, fps, make_stagger(stagger), **{"calibration_time": 0.0, **terms})
        self.loop = EnvironmentLoop(
            self.env, self.transport, self.config, journal, controls, stops, now=self.transport.now, release=release
        )

    def play(self, **phase: Any) -> Measurements:
        return self.loop.play(PhaseSpec(**phase))

    def starts(self, warm_up: bool = False) -> list[tuple[int, int, Ticket]]:
        """Return (time since the first frame, worker, ticket) of each inference ordered."""
        begin = self.begin
        return [
            (time - begin, *rest)  # type: ignore[misc]
            for what, time, *rest in self.transport.log
            if what == "start" and (warm_up or time >= begin)
        ]

    @property
    def begin(self) -> int:
        """When the first frame began: the second one shown, as the first is that of the warm-up."""
        return [time for what, time, *_ in self.transport.log if what == "show"][1]

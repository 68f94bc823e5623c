"""The environment loop's end of workers on a Ray cluster.

Two threads share the work, so that the loop never waits for Ray. `RayTransport` is the loop's: it has the books of the
workers, and speaks with the other one through two queues. The courier calls Ray: it starts actors, sends tickets, and
puts new weights into Ray's object store. Ray itself reports answers, from a thread of its own, into the queue of news.
Where a frame is larger than Ray sends at once (100 KB) the courier waits for the object store, and nobody else does.

For the loop an actor that is up is a worker, and one that has died, or is given up, is a worker that has died; another
actor takes its place, on any node that has room.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, NamedTuple

import cloudpickle

from async_wrappers.fleet import waits
from async_wrappers.fleet.fleet import Fleet, What
from async_wrappers.fleet.ray_fleet import Actors, ending
from async_wrappers.fleet.supervised import RunFailed
from async_wrappers.live.cluster.ray_worker import RayWorker, WorkerJob, missing_module, versions
from async_wrappers.live.cluster.ray_workers import RayWorkers
from async_wrappers.live.inference.transport import Ready
from async_wrappers.live.memory.exchange import Fate, Finished, Ticket
from async_wrappers.live.memory.layout import SharedLayout
from async_wrappers.live.memory.weights import WeightsBoard
from async_wrappers.live.remote.remote_transport import Reasons
from async_wrappers.live.remote.wire import HEADER, Answers, Kind, TicketRecords, checked
from async_wrappers.live.report.journey import RoundTrip
from async_wrappers.live.run_spec import LoopConfig
from async_wrappers.ray_cluster import connect_to_ray, disconnect_from_ray, room

_FAILURES = 5  # exceptions of a worker's policy in a row, without an answer between them, that are let pass
_COURIER = 2.0  # seconds that the courier has to end
_ENDING = 15.0  # seconds that Ray has to end, which is less than `RayWorkers.patience`


class _Order(NamedTuple):
    """What the courier is to do: start an actor, let its policy be made anew, or send a ticket.

    `record` is the ticket with its observation; None for a start. `anew` keeps the actor.
    """

    worker: int
    incarnation: int
    record: bytes | None = None
    anew: bool = False


class _News(NamedTuple):
    """What has come of an order.

    Attributes:
        order: That one.
        here: When, on the loop's clock.
        result: Ray's, which is done; or an exception, if it could not be asked.
        version: Of the worker's weights.
        updates: Behind them.
    """

    order: _Order
    here: int
    result: Future[Any] | Exception
    version: int = 0
    updates: int = 0


class _Courier:
    """Calls Ray, in a thread of its own but for `connect` and `close`.

    Args:
        workers: Where the cluster is, and what an actor takes of it.
        job: Of all workers, pickled.
        board: Holds the newest weights; None without learners.
        news: Receives what has come of the orders.
    """

    def __init__(
        self, workers: RayWorkers, job: bytes, board: WeightsBoard | None, news: queue.SimpleQueue[_News]
    ) -> None:
        self._workers, self._board, self._news = workers, board, news
        self._weights: tuple[int, int, Any] = (0, 0, None)  # version, updates and reference of the newest ones put
        self._given: dict[int, tuple[int, int]] = {}  # by worker: version and updates of those that it has
        self._orders: queue.SimpleQueue[_Order | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="courier to Ray", daemon=True)
        # A Ray of its own ends with this thread. Its workers are as urgent as ordinary processes.
        connect_to_ray(workers.address, runtime_env=workers.runtime_env, niceness=0)
        import ray

        self._ray = ray
        self._actors = Actors(
            RayWorker, num_cpus=workers.num_cpus, num_gpus=workers.num_gpus, resources=workers.resources
        )
        self._job, self._versions = self._ray.put(job), versions()
        self._thread.start()

    def order(self, order: _Order) -> None:
        """Let the courier do something, soon."""
        self._orders.put(order)

    def close(self) -> None:
        """End the thread, all actors, and the connection; a cluster that does not answer is left."""
        self._orders.put(None)
        self._thread.join(_COURIER)
        ending = threading.Thread(target=self._end, name="end of Ray", daemon=True)
        ending.start()
        ending.join(_ENDING)

    def _end(self) -> None:
        self._actors.close()
        disconnect_from_ray()

    def why(self, error: BaseException) -> tuple[str, BaseException | None]:
        """Return the end of a sentence about a worker, and the exception of its policy, if it was that."""
        why, cause, has_died, lacks = ending(error)
        if lacks:
            return missing_module(lacks), None
        if isinstance(error, self._ray.exceptions.RuntimeEnvSetupError):
            *_, last = str(error).strip().splitlines() or [""]
            return f"cannot have its runtime_env: {last.strip()}", None
        return f"was lost: {why}" if has_died else why, cause

    def _run(self) -> None:
        while (order := self._orders.get()) is not None:
            try:
                self._send(order) if order.record is not None else self._start(order)
            except Exception as error:
                self._news.put(_News(order, time.monotonic_ns(), error))

    def _start(self, order: _Order) -> None:
        """Let the policy be made, in a new actor or anew."""
        worker = order.worker
        self._given.pop(worker, None)
        actor = self._actors[worker] if order.anew else self._actors.make(worker)
        begun = actor.begin.remote(worker, self._versions, self._job)
        begun.future().add_done_callback(lambda done: self._news.put(_News(order, time.monotonic_ns(), done)))

    def _send(self, order: _Order) -> None:
        """Send a ticket, with the newest weights if the worker has others; they are put once for all workers."""
        newest: tuple[Any, ...] = ()
        if self._board is not None and self._board.version:
            if self._board.version != self._weights[0]:
                version, updates, content = self._board.content()
                self._weights = version, updates, self._ray.put(content)
            if self._given.get(order.worker) != self._weights[:2]:
                newest = self._weights
                self._given[order.worker] = self._weights[:2]
        has = self._given.get(order.worker, (0, 0))
        answer = self._actors[order.worker].infer.remote(order.record, *newest)
        answer.future().add_done_callback(lambda done: self._news.put(_News(order, time.monotonic_ns(), done, *has)))


class _Worker:
    """The books of one worker.

    Attributes:
        incarnation: How many actors and policies were there before.
        is_up: Whether tickets may be sent.
        was_up: Whether one ever could.
        has_answered: Whether it has ever answered.
        ticket: The one that is not yet answered.
        sent: When that was sent.
        failures: Exceptions of the policy in a row.
        server: Number of its actor among all, whose node may have another clock than the one before.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.incarnation = self.sent = self.failures = self.server = 0
        self.is_up = self.was_up = self.has_answered = False
        self.ticket: Ticket | None = None


class RayTransport:
    """Carries frames to actors and their answers back.

    Times of its events are the loop's own: an inference began when its ticket was handed to the courier, and ended when
    its answer was here. What goes wrong before any worker is up is raised, as the run has not begun; what goes wrong
    later is a warning, since frames go on, unless a worker does nothing else.

    Args:
        layout: Of what the workers would share here; gives spaces and numbers.
        config: Says when an answer is overdue, and how long the first one may take.
        workers: Where the cluster is.
        warns: Called with a sentence for the user.
        make_policy: Pickled.
        board: Holds the newest weights; None without learners.

    Raises:
        NoCluster: None answers.
    """

    def __init__(
        self,
        layout: SharedLayout,
        config: LoopConfig,
        workers: RayWorkers,
        warns: Callable[[str], None],
        make_policy: bytes,
        board: WeightsBoard | None = None,
    ) -> None:
        self._warns, self._needs = warns, workers
        encodes = layout.features is not None
        extras = None if encodes else layout.extras
        self._answers = Answers(layout.answers, extras)
        self._record, self._answer = TicketRecords(layout.observation_space).record(), self._answers.record()
        spaces = layout.observation_space, layout.answers, extras, encodes
        job = WorkerJob(make_policy, *spaces, layout.weights, max(1, int(workers.num_cpus)))
        self._first_timeout = int(min(config.start_timeout, 1e9) * 1e9)
        self._times, self._least = config.overdue
        self._longest = self._reconnections = self._servers = 0
        self._events: list[Ready | Finished] = []
        self._news: queue.SimpleQueue[_News] = queue.SimpleQueue()
        self._reasons = Reasons()
        self._trouble: dict[int, str] = {}
        self._courier = _Courier(workers, cloudpickle.dumps(job), board, self._news)
        self._workers = [_Worker(number) for number in range(layout.workers)]
        self._rule = Fleet()  # of the workers, by number
        for number in range(layout.workers):
            self._rule.join(number, waits.PAUSES)
            self._rule.started(number)
            self._courier.order(_Order(number, 0))

    # The loop's calls.

    def show(self, number: int, observation: Any) -> None:
        """Keep a frame's bytes."""
        self._record.show(observation)

    def start(self, worker: int, ticket: Ticket) -> None:
        """Hand a ticket and the newest frame to the courier."""
        of = self._workers[worker]
        if not of.is_up:
            return  # its loss is told by the next `collect`
        of.ticket = ticket
        self._record.order(ticket, of.incarnation)
        of.sent = now = time.monotonic_ns()
        limit = max(int(self._times * self._longest), self._least)
        limit = limit if of.has_answered else max(limit, self._first_timeout)
        why = f"has not answered for {limit / 1e9:.1f} s, {self._times:g} times the longest answer"
        self._rule.owes(worker, now + limit, why)
        self._courier.order(_Order(worker, of.incarnation, bytes(self._record.data)))

    def collect(self, until: int) -> list[Ready | Finished]:
        """Return the events since the last call, or wait for one until a time of the monotonic clock."""
        while True:
            now = time.monotonic_ns()
            self._obey(now)
            due = self._rule.next_time()
            wait = 0 if self._events else (until if due is None else min(until, due)) - now
            with suppress(queue.Empty):
                self._take(self._news.get(timeout=wait / 1e9) if wait > 0 else self._news.get_nowait())
                while True:
                    self._take(self._news.get_nowait())
            if self._events or time.monotonic_ns() >= until:
                events, self._events = self._events, []
                return events

    def close(self) -> None:
        """End all actors, and the connection to the cluster."""
        self._courier.close()

    def take_reconnections(self) -> int:
        """Return how many workers have come back since the last call."""
        taken, self._reconnections = self._reconnections, 0
        return taken

    @property
    def trouble(self) -> str | None:
        """Why workers are not up, in a sentence without an end."""
        if self._trouble:
            return "; ".join(dict.fromkeys(self._trouble.values()))
        needs, more = self._needs, f" and {self._needs.resources}" if self._needs.resources else ""
        asked = f"each asks for num_cpus={needs.num_cpus:g} and num_gpus={needs.num_gpus:g}{more}"
        return f"Ray has not started them: {asked}, and of the cluster {room()}"

    # The books.

    def _obey(self, now: int) -> None:
        """Start the actors that are due; give up answers that have taken too long.

        Raises:
            RunFailed: A worker has died again and again.
        """
        while (order := self._rule.next_order(now)) is not None:
            what, number, why = order
            assert isinstance(number, int)
            if what == What.KILL:
                self._lose(self._workers[number], why)
            elif what == What.START:
                self._rule.started(number)
                self._courier.order(_Order(number, self._workers[number].incarnation))
            else:
                raise RunFailed(f"{self._trouble[number]}; it was the {self._rule.ends(number)}th time in a row")

    def _take(self, news: _News) -> None:
        """Book what has come of an order; what an earlier actor had to tell is of no more use.

        Raises:
            Exception: The policy's, if it does nothing else.
            RunFailed: No worker can be started.
        """
        worker = self._workers[news.order.worker]
        if news.order.incarnation != worker.incarnation:
            return
        error = news.result if isinstance(news.result, Exception) else news.result.exception()
        if error is not None:
            self._note_error(worker, error, was_asked=news.order.record is not None)
        elif news.order.record is None:
            self._note_begun(worker, news.result.result())  # type: ignore[union-attr]
        else:
            self._note_answer(worker, news)

    def _note_begun(self, worker: _Worker, refusal: str | None) -> None:
        if refusal is not None:
            self._lose(worker, refusal, is_final=True)
            return
        self._reconnections += worker.was_up
        worker.is_up = worker.was_up = True
        worker.server = self._servers = self._servers + 1
        self._trouble.pop(worker.number, None)
        self._events.append(Ready(worker.number))

    def _note_answer(self, worker: _Worker, news: _News) -> None:
        """Make an event of the record that answers a ticket."""
        record = news.result.result()  # type: ignore[union-attr]
        ticket, header = worker.ticket, checked(record, self._answers.sizes)
        assert ticket is not None and header.number == ticket.number
        if header.kind == Kind.REFUSED:
            fate, action, extras = Fate.REFUSED, record[HEADER.size :].decode(errors="replace"), None
        else:
            self._answer.data[: len(record)] = record
            fate, (action, extras) = Fate.DONE, self._answer.read()
        self._longest = max(self._longest, news.here - worker.sent)
        worker.ticket, worker.has_answered, worker.failures = None, True, 0
        self._rule.works(worker.number)
        self._rule.heard(worker.number)
        trip = RoundTrip(worker.server, worker.sent, *header.times, news.here)
        booked = worker.number, ticket.number, worker.sent, news.here, fate, action
        self._events.append(Finished(*booked, news.version, extras, news.updates, trip))

    def _note_error(self, worker: _Worker, error: BaseException, was_asked: bool) -> None:
        """Let an exception of a policy pass as a lost worker, unless it does nothing else; so with a dead actor."""
        why, cause = self._courier.why(error)
        if cause is None:
            self._lose(worker, why, is_final=not was_asked and "was lost" not in why)
            return
        worker.failures += 1
        if worker.failures > _FAILURES or not (was_asked or self._has_begun):
            cause.add_note(f"raised in worker {worker.number} on Ray; its traceback:\n{error}")
            raise cause
        self._lose(worker, why, keeps_actor=True)

    @property
    def _has_begun(self) -> bool:
        return any(worker.was_up for worker in self._workers)

    def _lose(self, worker: _Worker, why: str, *, keeps_actor: bool = False, is_final: bool = False) -> None:
        """Tell the loop that a worker is lost, if it was up, and let another one take its place.

        Args:
            worker: That one.
            why: The end of a sentence about it.
            keeps_actor: Whether the actor is well, and its policy alone is made anew.
            is_final: Whether another actor will do no better: the run ends, if it has not begun.

        Raises:
            RunFailed: It is final.
        """
        now = time.monotonic_ns()
        self._trouble[worker.number] = sentence = f"worker {worker.number} on Ray {why}"
        if is_final and not self._has_begun:
            raise RunFailed(sentence)
        if worker.is_up:
            self._events.append(Finished(worker.number, -1, now, now, Fate.LOST, None, 0))
        worker.is_up, worker.ticket = False, None
        worker.incarnation += 1
        if keeps_actor:
            self._rule.heard(worker.number)
            self._courier.order(_Order(worker.number, worker.incarnation, anew=True))
        else:
            self._rule.ended(worker.number, now)
        if self._has_begun and self._reasons.is_new(why):
            self._warns(f"{sentence}; it is started again, and frames go on without it")

"""The process backend: the supervisor of an environment process, N workers, L learners and a recorder.

The supervisor is the calling process. It starts the others, restarts those that die, and ends all of them.
The environment's process is spawned, so that it holds nothing it does not need; workers and learners come from a fork
server that has torch loaded, so that they start in a moment and share its pages.

Messages: to the environment ``(number, pickled phase)``, ``(number, None)`` after an error, or None; from it
``("record", number, record)``, ``("warning", number, sentence)`` and ``("closes",)``; to a learner
``(number, command, *arguments)``, where the command is a method of `LearnerLoop` or "close", from it
``("answer", number, ...)`` and ``("closes",)``. If the wait for an answer was interrupted, the answer is recognised by
its number when it comes, and dropped.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import socket
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from multiprocessing import connection, util
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import cloudpickle

from async_wrappers.fleet.block import Block
from async_wrappers.fleet.starting import kill_all, pickled, start_child, unpickled
from async_wrappers.fleet.supervised import Child, RunFailed, enough_descriptors, raised_in
from async_wrappers.live.backends.mains import CLOSING, run_environment, run_learner, run_recorder, run_worker
from async_wrappers.live.learning.learner_state import NotRestored
from async_wrappers.live.memory.layout import SharedMemory
from async_wrappers.live.recording.files import count_frames
from async_wrappers.live.recording.rows import RowRing
from async_wrappers.live.recording.writer import PATIENCE, reported, wait_until_drained
from async_wrappers.live.report.report import Measurements
from async_wrappers.live.report.snapshot import Snapshots
from async_wrappers.live.run_spec import PhaseSpec, RunSpec
from async_wrappers.posix import needs_fork_server
from async_wrappers.schedule.frames import FrameClock

# Seconds before the next restart, by failures in a row; after these it is given up.
_BACKOFF = (0.0, 0.1, 0.3, 0.6, 1.2)
_PATIENCE = 3.0  # seconds that children have to end once they are asked to
_SETTLED = 10.0  # seconds after which a learner counts as one that can begin
_LOOK = 1.0  # seconds between two looks for stopped processes
_NO_GUARD = 86  # exit code of a child that was about to start children of its own


class ProcessBackend:
    """See the module.

    Args:
        spec: The run.

    Raises:
        ValueError: A factory that cannot be sent to another process.
        RuntimeError: A script without a main guard.
    """

    def __init__(self, spec: RunSpec) -> None:
        """See the class."""
        if getattr(multiprocessing.process.current_process(), "_inheriting", False):
            os._exit(_NO_GUARD)  # the parent raises the error that explains it
        needs_fork_server("backend='process'", "use backend='thread', or backend='virtual' with a latency")
        self._spec = spec
        if spec.config.realtime is not None:
            spec.config.realtime.refuse()
        pickled("make_env", spec.make_env)
        pickled("a default action, strategy or latency", spec.config)
        self._environment_payload = cloudpickle.dumps((spec.make_env, spec.config, spec.remote))
        policy = pickled("make_policy", spec.make_policy)  # all of them before anything is opened
        learner = pickled("make_learner", spec.make_learner)
        self._spawn = multiprocessing.get_context("spawn")
        self._fork = multiprocessing.get_context("forkserver")
        self._workers: list[Child] = []
        self._learners: list[Child] = []
        self._environment: Child | None = None
        self._recorder: Child | None = None
        self._rows: RowRing | None = None  # on their way to the recorder
        self._recorded = 0, 0  # the ring's counts before the phase
        self._inboxes: list[socket.socket] = []
        self._tickets: list[socket.socket] = []  # by worker: its end of its inbox
        self._numbers = itertools.count(1)  # of phases and commands
        self._phase = 0  # the newest one's number
        self._record: Measurements | None = None  # of the newest phase, once it has come
        self._restarts = 0  # since the last record
        self._errors_shown: set[str] = set()
        self._stop_reported = self._asked_to_stop = False
        self._looked = 0.0  # when stopped processes were last looked for, in monotonic seconds
        self._begun = False  # whether all learners have published
        self._told: Mapping[str, Any] | None = None  # to learners
        self._held = ExitStack()  # all opened resources
        self._started: dict[str, Child | BaseProcess] = {}  # by name: the newest process, perhaps not yet up
        # At exit multiprocessing sends SIGTERM to children that are left and waits for them without limit. Ours ignore
        # SIGTERM, so they are killed before.
        util.Finalize(self, kill_all, (self._started,), exitpriority=10)
        try:
            with enough_descriptors(workers=spec.config.workers):
                self._policy_payload = self._keep(Block.holding(policy))
                self._learner_payload = self._keep(Block.holding(learner))
                self._memory = SharedMemory(*(self._keep(Block()) for _ in range(7)))
                self._start()
        except BaseException:
            self.close()
            raise

    def play(self, phase: PhaseSpec) -> Measurements:
        """Play a phase.

        Raises:
            RunFailed: The environment's process has died, or a worker or learner dies again and again.
            KeyboardInterrupt: The run was interrupted; the phase has been ended.
        """
        environment = self._environment
        assert environment is not None
        message = pickled("on_frame" if phase.on_frame is not None else "phase_state", phase)
        with self._interruptible(), self._stoppable(), self._shown(phase):
            self._controls.learning = not phase.eval_mode
            updates = int(self._controls.updates.sum())
            if phase.eval_mode:
                self._let_learners_rest()
            self._phase, self._record = next(self._numbers), None
            if self._asked_to_stop:  # before it had its number
                self._controls.stop = self._phase
            try:
                with suppress(BrokenPipeError, ConnectionResetError):  # it has ended, as will be found
                    environment.pipe.send((self._phase, message))
                record = self._await_record(environment)
            except BaseException as error:
                self._controls.stop = self._phase
                with suppress(OSError):
                    environment.pipe.poll(1)  # its record, which the next phase drops
                if isinstance(error, Exception):
                    self.abandon()
                raise
            finally:
                self._controls.learning = False
            if self._learners:
                record.updates = int(self._controls.updates.sum()) - updates
                record.note_learning([self._ask(number, "statistics") for number in range(len(self._learners))])
            record.recording = self._report_recording()
            record.restarts += self._restarts  # those between two phases included
            self._restarts = 0
            return record

    def pause(self, paused: bool) -> None:
        """Pause from the next frame on, or go on; from any thread."""
        self._controls.halted = int(paused)

    def stop(self) -> None:
        """End the phase that goes on, or the next one if none does, before its next frame; from any thread."""
        self._asked_to_stop = True
        self._controls.stop = self._phase

    def abandon(self) -> None:
        """Let the environment's process bring a machine to rest after an error, once it plays no more."""
        if self._environment is not None:
            with suppress(OSError):
                self._environment.pipe.send((self._phase, None))

    @contextmanager
    def _stoppable(self) -> Iterator[None]:
        """Forget in the end that the block was to be stopped, as `stop` may also come after the last frame."""
        try:
            yield
        finally:
            self._asked_to_stop = False

    def _shown(self, phase: PhaseSpec) -> AbstractContextManager[None]:
        """Let snapshots be written while a phase that is to be shown is played."""
        if phase.shown_in is None:
            return nullcontext()
        ring, glance = self._layout.ring(self._memory), self._layout.glance(self._memory)
        fps = float(FrameClock(self._spec.config.fps).fps)
        snapshots = Snapshots(phase.shown_in, glance, ring, fps, self._spec.config.workers)
        return snapshots.beside(() if self._spec.config.realtime is None else self._cores_beside_loop())

    def _let_learners_rest(self) -> None:
        """Wait until all that was learnt is published, except by the dead: an evaluation is of one set of weights."""
        for number in range(len(self._learners)):
            while True:
                learner = self._learners[number]
                if learner.restart_at is not None or self._controls.paused[number]:
                    break
                if learner.join(0.005):
                    self._died(learner)
                else:
                    self._look_after(learner)

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """If the caller is interrupted, continue stopped processes, so that they can save and end."""
        try:
            yield
        except KeyboardInterrupt:
            for child in self._children():
                if child.restart_at is None:
                    child.go_on()
            raise

    def save(self, directory: Path, iteration: int) -> None:
        """Let the learners write their state, between phases; see `AsyncRunner.save`."""
        self._ask_all("save", directory, iteration)

    def restore(self, directory: Path, iteration: int, replays: bool) -> list[int]:
        """Let the learners read their state and publish their weights, between phases; see `AsyncRunner.restore`."""
        return self._ask_all("restore", directory, iteration, replays)

    def forget(self, directory: Path, keep: set[int]) -> None:
        """Let the learners delete the replays of all other iterations."""
        self._ask_all("forget", directory, keep)

    def tell(self, facts: Mapping[str, Any]) -> None:
        """Let the learners take in facts, between phases; one that is started again is told them too."""
        self._told = facts
        self._ask_all("tell", facts)

    def _ask_all(self, command: str, *arguments: Any) -> list[Any]:
        """Return each learner's answer to a command.

        Raises:
            OSError: A file could not be written or deleted; all learners have been asked, and go on.
            NotRestored: One cannot go on from its files; all learners have been asked, and go on.
        """
        with self._interruptible():
            answers = [self._ask(number, command, *arguments) for number in range(len(self._learners))]
        for answer in answers:
            if isinstance(answer, OSError | NotRestored):
                raise answer
        return answers

    def close(self) -> None:
        """End all children, at the latest by force, and release the memory; by force at once if it is interrupted."""
        held, self._held = self._held, ExitStack()
        try:
            if hasattr(self, "_controls"):
                self._controls.stop = 1 << 62
            players = [child for child in self._children() if child is not self._recorder]
            for child in players:
                with suppress(OSError):
                    child.pipe.send((0, "close") if child in self._learners else None)
            self._close_inboxes()
            remote = self._spec.remote
            deadline = time.monotonic() + max(_PATIENCE, 0.0 if remote is None else remote.patience)
            for child in reversed(players):  # the environment first: when it is gone, workers end
                if not child.join(max(0.0, deadline - time.monotonic())):
                    self._let_it_close(child, deadline + CLOSING)
                    if child is self._environment:
                        deadline = time.monotonic() + _PATIENCE
            self._end_recording()
        finally:
            kill_all(self._started)
            # the start of one that was interrupted may have put it into no list
            children = {*self._children(), *(each for each in self._started.values() if isinstance(each, Child))}
            self._workers, self._learners, self._environment, self._recorder = [], [], None, None
            for child in children:
                child.close()
            self._started.clear()
            held.close()

    @property
    def pids(self) -> dict[str, int]:
        """Process ids of the children that are up, by name."""
        return {child.name: child.process.pid for child in self._children() if child.process.pid is not None}

    def _children(self) -> list[Child]:
        others = [child for child in (self._recorder, self._environment) if child is not None]
        return [*self._learners, *self._workers, *others]

    def _let_it_close(self, child: Child, deadline: float) -> None:
        """Wait for the `close` of the environment, which may have to bring a robot to rest, or of a learner."""
        self._listen(child)
        if child.closes and not child.join(max(0.0, deadline - time.monotonic())):
            left = "a machine may not be at rest" if child is self._environment else "what it writes may not be whole"
            sentence = f"{child.name}'s close has taken {CLOSING:g} s, and is ended: {left}"
            warnings.warn(sentence, RuntimeWarning, stacklevel=2)

    def _report_recording(self) -> dict[str, Any] | None:
        """Return what the report says about the recording of the phase that has ended, when all of it is in files."""
        if self._rows is None or self._spec.record is None:
            return None
        wait_until_drained(self._rows, lambda: self._recorder is not None and self._recorder.is_alive())
        self._look_at_recorder()
        before, self._recorded = self._recorded, self._rows.counts
        return reported(self._spec.record, before, self._recorded)

    def _look_at_recorder(self) -> None:
        """Handle the recorder's messages; go on without it if it has ended."""
        recorder = self._recorder
        if recorder is not None and not self._listen(recorder):
            self._lose_recorder(None if recorder.error is None else f"raised:\n{recorder.error[1]}")

    def _lose_recorder(self, how: str | None) -> None:
        """Go on without the recorder, which has ended, or which a stop keeps from its work."""
        assert self._recorder is not None and self._rows is not None
        wrote = not self._rows.is_closed
        self._rows.close()
        lost, self._recorder = self._recorder, None
        lost.kill()
        how = lost.how_it_ended() if how is None else how
        lost.join(1)
        if wrote and self._spec.record is not None:
            with suppress(
                OSError
            ):  # it may have been ended between a row and its count, or before there was a directory
                self._rows.note_saved(count_frames(self._spec.record, self._rows.layout.dtype))
        self._started.pop(lost.name, None)
        lost.close()
        sentence = f"the recording in {self._spec.record} ends here, as the recorder {how}: the run goes on"
        warnings.warn(sentence, RuntimeWarning, stacklevel=2)

    def _end_recording(self) -> None:
        """Let the recorder finish its files; nobody adds a row any more."""
        if self._recorder is not None:
            with suppress(OSError):
                self._recorder.pipe.send(None)
            self._recorder.join(PATIENCE)
            self._listen(self._recorder)

    def _keep(self, opened: Any) -> Any:
        """Register an object to be closed at the end, and return it."""
        self._held.callback(opened.close)
        return opened

    def _close_inboxes(self) -> None:
        """Close the workers' inboxes here: the environment alone writes to them, and workers end when it ends."""
        for inbox in self._inboxes:
            inbox.close()

    def _start(self) -> None:
        """Start all children; the environment reports its spaces, the learner the layout of its weights."""
        learners = self._spec.learners
        workers = 0 if self._spec.remote is not None else self._spec.config.processes
        messages, self._outbox = map(self._keep, socket.socketpair())
        for _ in range(workers):
            inbox, tickets = map(self._keep, socket.socketpair())
            self._inboxes.append(inbox)
            self._tickets.append(tickets)
        remote = self._spec.remote
        in_loop = self._spec.config.in_loop or self._spec.features is not None  # all of it, or its release half
        policy = self._policy_payload if in_loop or (remote is not None and remote.sends_policy) else None
        rows = None if self._spec.record is None else self._keep(Block())
        takes = self._environment_payload, policy, self._memory, rows, self._inboxes, messages
        self._environment = environment = self._child(self._spawn, "the environment", run_environment, *takes)
        self._close_inboxes()
        messages.close()
        try:
            _, observation_space, action_space = self._message(environment, "spaces")
        except _Lost:
            raise self._ended(environment) if environment.error is None else self._failed(environment) from None
        self._layout = self._spec.layout(observation_space, action_space)
        self._layout.resize(self._memory)
        self._controls = self._layout.controls(self._memory)
        self._controls.granted = -1 if self._spec.config.stagger.granted is None else 0
        self._controls.patience = 1 << 62  # how long an inference takes is not known yet
        recording = self._spec.recording(observation_space, action_space)
        if recording is not None and rows is not None:
            recording.resize(rows)
            self._rows = recording.ring(rows)
            self._recorder = self._child(self._fork, "the recorder", run_recorder, recording, rows)
        for number in range(learners):
            self._learners.append(self._learner(number, 0))
        for number in range(learners):
            self._ask(number, "publish_first")
        self._begun = True
        for number in range(workers):
            self._workers.append(self._worker(number, 0))
        environment.pipe.send((self._layout, recording))

    def _child(self, context: Any, name: str, target: Callable[..., None], *arguments: Any) -> Child:
        child = start_child(context, name, target, arguments, self._started)
        if target is not run_environment:
            self._keep_off_loop(child)
        return child

    def _keep_off_loop(self, child: Child) -> None:
        """Keep a child, and what it starts, away from the environment loop's own core, if it has one."""
        realtime = self._spec.config.realtime
        if realtime is not None and realtime.core is not None and child.process.pid is not None:
            with suppress(ProcessLookupError):  # it has ended
                os.sched_setaffinity(child.process.pid, self._cores_beside_loop())

    def _cores_beside_loop(self) -> set[int]:
        realtime = self._spec.config.realtime
        cores: set[int] = os.sched_getaffinity(0)
        return cores if realtime is None or realtime.core is None else cores - {realtime.core}

    def _worker(self, number: int, incarnation: int) -> Child:
        cores = sorted(self._cores_beside_loop()) if self._spec.pin else []
        core = cores[number % len(cores)] if cores else None
        takes = number, incarnation, self._layout, self._memory, self._tickets[number], self._outbox, core
        child = self._child(self._fork, f"worker {number}", run_worker, self._policy_payload, *takes)
        child.incarnation = incarnation
        return child

    def _learner(self, number: int, incarnation: int) -> Child:
        counts = self._spec.config.timeline is not None
        takes = number, self._layout, self._memory, self._spec.updates_per_transition, counts, self._told
        child = self._child(self._fork, f"learner {number}", run_learner, self._learner_payload, *takes)
        child.incarnation = incarnation
        child.awaits_layout = self._layout.weights is None
        child.updates = int(self._controls.updates[number])
        return child

    def _message(self, child: Child, what: str, number: int | None = None) -> Any:
        """Return a child's next message of this kind, and with this number if one is given; handle all others.

        Raises:
            _Lost: It has ended, has raised, or is taken for dead.
        """
        while True:
            while not child.pipe.poll(0.1):
                if not child.is_alive() and not child.pipe.poll(0):
                    raise _Lost
                self._look_after(child)
                if child.restart_at is not None:
                    raise _Lost
            try:
                message = child.pipe.recv()
            except (EOFError, ConnectionResetError):
                raise _Lost from None
            if message[0] == what and (number is None or message[1] == number):
                return message
            self._hear(child, message)
            if child.error is not None:
                raise _Lost

    def _hear(self, child: Child, message: Any) -> None:
        """Handle a message that answers no command: an exception, a warning, a record, or a layout of weights."""
        if message[0] == "failed":
            child.error = unpickled(message[1]), message[2]
        elif message[0] == "unmade":
            child.unmade = True
        elif message[0] == "closes":
            child.closes = True
        elif message[0] == "warning":
            warnings.warn(message[2], RuntimeWarning, stacklevel=2)
        elif message[:2] == ("record", self._phase):
            self._record = message[2]
        elif message[0] == "layout":
            if self._layout.weights is None:
                self._layout = self._layout.with_weights(message[1], self._memory)
            child.pipe.send(self._layout.weights)
            child.awaits_layout = False

    def _ask(self, number: int, command: str, *arguments: Any) -> Any:
        """Return a learner's answer; one that has died, or dies meanwhile, is asked again after its restart."""
        while True:
            learner = self._learners[number]
            if learner.restart_at is None:
                try:
                    if learner.awaits_layout:
                        self._hear(learner, self._message(learner, "layout"))
                    serial = next(self._numbers)
                    learner.pipe.send((serial, command, *arguments))
                    return self._message(learner, "answer", serial)[2]
                except (_Lost, OSError):
                    if learner.error is not None and not self._begun:
                        raise self._failed(learner) from None  # five more would not do better
                    if learner.restart_at is None:
                        self._died(learner)
            time.sleep(self._next_restart() or 0.0)
            self._restart_due()

    def _await_record(self, environment: Child) -> Measurements:
        """Wait for the environment loop's record, and supervise the others meanwhile."""
        while True:
            self._restart_due()
            living = [child for child in [*self._workers, *self._learners] if child.restart_at is None]
            waits: list[Any] = [environment.pipe, environment.sentinel]
            watched = living if self._recorder is None else [*living, self._recorder]
            waits += [each for child in watched for each in (child.pipe, child.sentinel)]
            ready = connection.wait(waits, min(_LOOK, self._next_restart() or _LOOK))
            if environment.pipe in ready or environment.sentinel in ready:
                record = self._record_of(environment)
                if record is not None:
                    return record
            for child in living:
                if child.sentinel in ready or (child.pipe in ready and not self._listen(child)):
                    self._died(child)
            self._look_at_recorder()
            self._look_after()

    def _record_of(self, environment: Child) -> Measurements | None:
        """Return the phase's record if it has come; older ones are dropped.

        Raises:
            RunFailed: The environment has ended.
            Exception: The environment's own.
        """
        ended = not environment.is_alive()  # asked first: its last messages are still in the pipe
        listens = self._listen(environment)
        if self._record is None and environment.error is not None:
            raise self._failed(environment)
        if self._record is None and (ended or not listens):
            raise self._ended(environment)
        return self._record

    def _look_after(self, waited_for: Child | None = None) -> None:
        """Look now and then for processes that are stopped or hang, and treat these as dead.

        A stopped one may block others (learners have a lock), so all are looked at.
        """
        now = time.monotonic()
        if now - self._looked < _LOOK:
            return
        self._looked = now
        for child in self._children():
            if child.restart_at is not None:
                continue
            child.pulse.look(child is waited_for)
            if (ailment := child.pulse.ailment() or self._overdue(child)) is None:
                continue
            if child is self._recorder:
                self._lose_recorder(ailment)
            elif child is not self._environment:
                warnings.warn(f"{child.name} {ailment}: it is started again", RuntimeWarning, stacklevel=2)
                child.kill()
                self._died(child)
            elif not self._stop_reported:  # it cannot be started again, as its state would be lost
                self._stop_reported = True
                remedy = f"`kill -CONT {child.process.pid}` lets it go on"
                warnings.warn(f"the environment {ailment}: {remedy}", RuntimeWarning, stacklevel=2)

    def _overdue(self, child: Child) -> str | None:
        """Return the reason to end a worker whose inference the environment loop reported as overdue, or None."""
        if child not in self._workers:
            return None
        number = self._workers.index(child)
        if int(self._controls.overdue[number]) != 1 + child.incarnation:
            return None
        self._controls.overdue[number] = 0
        times, least = self._spec.config.overdue
        return f"has inferred for more than {times:g} times the longest inference and {least / 1e9:g} s"

    def _listen(self, child: Child) -> bool:
        """Handle a child's messages; return False if it has ended."""
        try:
            while child.pipe.poll(0):
                self._hear(child, child.pipe.recv())
        except (EOFError, OSError):
            return False
        return child.error is None

    def _died(self, child: Child) -> None:
        """Note a worker's or learner's death, and set the time of its restart."""
        self._listen(child)
        if child.error is not None:
            slots, text = self._layout.slots(self._memory), child.error[1]
            if child.unmade and not child.incarnation and not any(map(slots.read_end, range(self._layout.workers))):
                raise self._failed(child)  # make_policy would raise again: no worker has ever inferred
            if child in self._learners and getattr(child.error[0], "ends_run", False):
                raise self._failed(child)
            if text not in self._errors_shown:
                self._errors_shown.add(text)
                warnings.warn(f"{child.name} raised, and is started again:\n{text}", RuntimeWarning, stacklevel=2)
        if not child.join(1):
            child.kill()
            child.join(_PATIENCE)
        if child in self._workers:
            number = self._workers.index(child)
            worked = self._layout.slots(self._memory).read_end(number) > child.started
            if (board := self._layout.board(self._memory)) is not None:
                board.forget_reader(number)
            self._controls.incarnations[number] = child.incarnation + 1
        else:
            number = self._learners.index(child)
            # one that raises may do so at each second update; one that is killed from outside has nothing to do with it
            learnt = child.error is None and int(self._controls.updates[number]) > child.updates
            worked = learnt or time.monotonic_ns() - child.started > _SETTLED * 1e9
        child.failures = 1 if worked else child.failures + 1
        if child.failures > len(_BACKOFF):
            raise self._failed(child)
        child.restart_at = time.monotonic() + _BACKOFF[child.failures - 1]

    def _next_restart(self) -> float | None:
        times = [child.restart_at for child in [*self._workers, *self._learners] if child.restart_at is not None]
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _restart_due(self) -> None:
        now = time.monotonic()
        for children, start in ((self._workers, self._worker), (self._learners, self._learner)):
            for number, dead in enumerate(children):
                if dead.restart_at is not None and dead.restart_at <= now:
                    children[number] = child = start(number, dead.incarnation + 1)
                    dead.close()
                    child.failures = dead.failures
                    self._restarts += 1

    def _failed(self, child: Child) -> Exception:
        """Return the exception to raise for a child that raised, or that has ended again and again."""
        if child.error is not None:
            return raised_in(child.name, *child.error)
        again = f"{child.failures} times in a row before it had done anything"
        return RunFailed(f"{child.name} {child.how_it_ended()}, {again}")

    def _ended(self, child: Child) -> BaseException:
        how = child.how_it_ended()
        if child.process.exitcode == _NO_GUARD:
            return RuntimeError(
                "AsyncRunner starts processes, which import the main script again: put what the script does under "
                "`if __name__ == '__main__':`"
            )
        return RunFailed(f"{child.name} {how}")


class _Lost(Exception):
    """The child that was waited for counts as dead."""

"""The process backend: the supervisor of an environment process, N workers, L learners and a recorder.

The supervisor is the calling process. It starts the others, restarts those that die, and ends all of them.
The environment's process is a new interpreter, so that it holds nothing it does not need; workers and learners come
from a server that has torch loaded, so that they start in a moment and share its pages.

Messages: to the environment ``(number, pickled phase)``, ``(number, None)`` after an error, or None; from it
``("record", number, record)``, ``("warning", number, sentence)`` and ``("closes",)``; to a learner
``(number, command, *arguments)``, where the command is a method of `LearnerLoop` or "close", from it
``("answer", number, ...)`` and ``("closes",)``. If the wait for an answer was interrupted, the answer is recognised by
its number when it comes, and dropped.
"""

from __future__ import annotations

import itertools
import os
import socket
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import cloudpickle

from async_wrappers.fleet import waits
from async_wrappers.fleet.block import Block
from async_wrappers.fleet.process_fleet import Member, ProcessFleet, Role
from async_wrappers.fleet.starting import pickled
from async_wrappers.fleet.supervised import enough_descriptors
from async_wrappers.live.backends.mains import CLOSING, run_environment, run_learner, run_recorder, run_worker
from async_wrappers.live.learning.learner_state import NotRestored
from async_wrappers.live.memory.layout import SharedMemory
from async_wrappers.live.recording.frame_rows import RowRing
from async_wrappers.live.recording.recording_files import count_frames
from async_wrappers.live.recording.writer import PATIENCE, reported, wait_until_drained
from async_wrappers.live.report.report import Measurements
from async_wrappers.live.report.snapshot import Snapshots
from async_wrappers.live.run_spec import PhaseSpec, RunSpec
from async_wrappers.posix import needs_fork_server
from async_wrappers.schedule.frames import FrameClock

_SETTLED = 10.0  # seconds after which a learner counts as one that can begin


class ProcessBackend:
    """See the module.

    Args:
        spec: The run.

    Raises:
        ValueError: A factory that cannot be sent to another process.
        RuntimeError: A script without a main guard.
    """

    def __init__(self, spec: RunSpec) -> None:
        self._fleet = ProcessFleet("AsyncRunner")
        needs_fork_server("backend='process'", "use backend='thread', or backend='virtual' with a latency")
        self._spec = spec
        if spec.config.realtime is not None:
            spec.config.realtime.refuse()
        pickled("make_env", spec.make_env)
        pickled("a default action, strategy or latency", spec.config)
        self._environment_payload = cloudpickle.dumps((spec.make_env, spec.config, spec.remote))
        policy = pickled("make_policy", spec.make_policy)  # all of them before anything is opened
        learner = pickled("make_learner", spec.make_learner)
        self._workers: list[Member] = []
        self._learners: list[Member] = []
        self._environment: Member | None = None
        self._recorder: Member | None = None
        self._rows: RowRing | None = None  # on their way to the recorder
        self._recorded = 0, 0  # the ring's counts before the phase
        self._inboxes: list[socket.socket] = []
        self._tickets: list[socket.socket] = []  # by worker: its end of its inbox
        self._numbers = itertools.count(1)  # of phases and commands
        self._phase = 0  # the newest one's number
        self._record: Measurements | None = None  # of the newest phase, once it has come
        self._answer: tuple[int, Any] = 0, None  # the newest one of a learner: the command's number, and what it says
        self._spaces: tuple[Any, Any, list[str]] | None = None  # of the environment, once it is made, and its sensors
        self._unlaid: set[Member] = set()  # learners that wait for the layout of the weights
        self._made: dict[int, int] = {}  # by learner: updates that were made before it was started
        self._errors_shown: set[str] = set()
        self._stop_reported = self._asked_to_stop = False
        self._begun = False  # whether all learners have published
        self._told: Mapping[str, Any] | None = None  # to learners
        self._held = ExitStack()  # all opened resources
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
                environment.send((self._phase, message))
                record = self._await_record(environment)
            except BaseException as error:
                self._controls.stop = self._phase
                with suppress(OSError):
                    environment.child.pipe.poll(1)  # its record, which the next phase drops
                if isinstance(error, Exception):
                    self.abandon()
                raise
            finally:
                self._controls.learning = False
            if self._learners:
                record.updates = int(self._controls.updates.sum()) - updates
                record.note_learning([self._ask(number, "statistics") for number in range(len(self._learners))])
            record.recording = self._report_recording()
            record.restarts += self._fleet.restarts  # those between two phases included
            self._fleet.restarts = 0
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
            self._environment.send((self._phase, None))

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
        for learner in self._learners:
            first = learner.incarnation
            while self._fleet.is_up(learner) and learner.incarnation == first:
                if self._controls.paused[learner.number]:
                    break
                self._fleet.turn(0.005, self._learners, learner)

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """If the caller is interrupted, continue stopped processes, so that they can save and end."""
        try:
            yield
        except KeyboardInterrupt:
            for member in filter(self._fleet.is_up, self._fleet.members):
                member.child.go_on()
            raise

    def save(self, directory: Path, iteration: int) -> None:
        """Let the learners write their state, between phases; see `AsyncRunner.save`."""
        self._ask_all("save", directory, iteration)

    def restore(self, directory: Path, iteration: int, replays: bool) -> None:
        """Let the learners read their state and publish their weights, between phases; see `AsyncRunner.restore`."""
        self._ask_all("restore", directory, iteration, replays)

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
            environment, recorder = self._environment, self._recorder
            others = [*self._workers, *self._learners]
            for member in [*others, *([] if environment is None else [environment])]:
                member.send((0, "close") if member in self._learners else None)
            self._close_inboxes()
            if environment is not None:  # the environment first: when it is gone, workers end
                patience = 0.0 if self._spec.remote is None else self._spec.remote.patience
                for _ in self._fleet.end([environment], max(waits.PATIENCE, patience), CLOSING):
                    self._warn_of_close(environment, "a machine may not be at rest")
            for member in self._fleet.end(others, waits.PATIENCE, CLOSING):
                self._warn_of_close(member, "what it writes may not be whole")
            if recorder is not None:
                recorder.send(None)
                self._fleet.end([recorder], PATIENCE)
        finally:
            self._fleet.close()
            self._workers, self._learners, self._environment, self._recorder = [], [], None, None
            held.close()

    @property
    def pids(self) -> dict[str, int]:
        """Process ids of the children that are up, by name."""
        return self._fleet.pids

    def _warn_of_close(self, member: Member, left: str) -> None:
        sentence = f"{member.name}'s close has taken {CLOSING:g} s, and is ended: {left}"
        warnings.warn(sentence, RuntimeWarning, stacklevel=3)

    def _report_recording(self) -> dict[str, Any] | None:
        """Return what the report says about the recording of the phase that has ended, when all of it is in files."""
        if self._rows is None or self._spec.record is None:
            return None
        wait_until_drained(self._rows, lambda: self._recorder is not None and self._recorder.child.is_alive())
        if self._recorder is not None:
            self._fleet.turn(0.001, [self._recorder])
        before, self._recorded = self._recorded, self._rows.counts
        return reported(self._spec.record, before, self._recorded)

    def _lose_recorder(self, recorder: Member) -> None:
        """Go on without the recorder, which has ended, or which a stop kept from its work."""
        assert self._rows is not None
        wrote, self._recorder = not self._rows.is_closed, None
        self._rows.close()
        how = recorder.why or (
            recorder.child.how_it_ended() if recorder.error is None else f"raised:\n{recorder.error[1]}"
        )
        if wrote and self._spec.record is not None:
            # It may have been ended between a row and its count, or before there was a directory.
            with suppress(OSError):
                self._rows.note_saved(count_frames(self._spec.record, self._rows.layout.dtype))
        self._fleet.remove(recorder)
        sentence = f"the recording in {self._spec.record} ends here, as the recorder {how}: the run goes on"
        warnings.warn(sentence, RuntimeWarning, stacklevel=2)

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
        spec = self._spec
        environment = Role(
            *("the environment", False, run_environment, self._of_environment),
            hear=self._hear,
            ails=self._tell_of_stop,
        )
        recorder = Role(
            *("the recorder", True, run_recorder, self._of_recorder),
            started=self._keep_off_loop,
            hear=self._hear,
            lost=self._lose_recorder,
        )
        learner = Role(
            *("learner {}", True, run_learner, self._of_learner, waits.PAUSES),
            started=self._note_learner,
            hear=self._hear,
            ends=self._learner_ends,
            lost=self._lose,
        )
        worker = Role(
            *("worker {}", True, run_worker, self._of_worker, waits.PAUSES),
            started=self._keep_off_loop,
            ends=self._worker_ends,
            lost=self._lose,
            ails=self._overdue,
        )
        workers = 0 if spec.remote is not None else spec.config.processes
        self._messages, self._outbox = map(self._keep, socket.socketpair())
        for _ in range(workers):
            inbox, tickets = map(self._keep, socket.socketpair())
            self._inboxes.append(inbox)
            self._tickets.append(tickets)
        self._block_of_rows = None if spec.record is None else self._keep(Block())
        self._environment = self._fleet.add(environment)
        self._close_inboxes()
        self._messages.close()
        observation_space, action_space, sensors = self._await_spaces(self._environment)
        self._layout = spec.layout(observation_space, action_space)
        self._layout.resize(self._memory)
        self._controls = self._layout.controls(self._memory)
        self._controls.granted = -1 if spec.config.stagger.granted is None else 0
        self._controls.patience = 1 << 62  # how long an inference takes is not known yet
        self._recording = spec.recording(observation_space, action_space, sensors)
        if self._recording is not None and self._block_of_rows is not None:
            self._recording.resize(self._block_of_rows)
            self._rows = self._recording.ring(self._block_of_rows)
            self._recorder = self._fleet.add(recorder)
        for number in range(spec.learners):
            self._learners.append(self._fleet.add(learner, number))
        for number in range(spec.learners):
            self._ask(number, "publish_first")
        self._begun = True
        for number in range(workers):
            self._workers.append(self._fleet.add(worker, number))
        self._environment.child.pipe.send((self._layout, self._recording))

    # What members are started with.

    def _of_environment(self, member: Member) -> Sequence[Any]:
        remote = self._spec.remote
        in_loop = self._spec.config.in_loop or self._spec.features is not None  # all of it, or its release half
        policy = self._policy_payload if in_loop or (remote is not None and remote.sends_policy) else None
        return self._environment_payload, policy, self._memory, self._block_of_rows, self._inboxes, self._messages

    def _of_recorder(self, member: Member) -> Sequence[Any]:
        return self._recording, self._block_of_rows

    def _of_worker(self, member: Member) -> Sequence[Any]:
        cores = sorted(self._cores_beside_loop()) if self._spec.pin else []
        core, number = (cores[member.number % len(cores)] if cores else None), member.number
        shared = self._layout, self._memory, self._tickets[number], self._outbox
        return self._policy_payload, number, member.incarnation, *shared, core

    def _of_learner(self, member: Member) -> Sequence[Any]:
        counts, rate = self._spec.config.timeline is not None, self._spec.updates_per_transition
        return self._learner_payload, member.number, self._layout, self._memory, rate, counts, self._told

    def _note_learner(self, member: Member) -> None:
        """Note what was there before a learner that has just been started."""
        self._keep_off_loop(member)
        self._unlaid.discard(member)
        if self._layout.weights is None:
            self._unlaid.add(member)
        self._made[member.number] = int(self._controls.updates[member.number])

    def _keep_off_loop(self, member: Member) -> None:
        """Keep a child, and what it starts, away from the environment loop's own core, if it has one."""
        realtime = self._spec.config.realtime
        if realtime is not None and realtime.core is not None and member.child.process.pid is not None:
            with suppress(ProcessLookupError):  # it has ended
                os.sched_setaffinity(member.child.process.pid, self._cores_beside_loop())

    def _cores_beside_loop(self) -> set[int]:
        realtime = self._spec.config.realtime
        cores: set[int] = os.sched_getaffinity(0)
        return cores if realtime is None or realtime.core is None else cores - {realtime.core}

    # What they say.

    def _hear(self, member: Member, message: Any) -> None:
        """Handle a message of the environment or of a learner."""
        kind, *content = message
        if kind == "spaces":
            self._spaces = content[0], content[1], content[2]
        elif kind == "answer":
            self._answer = content[0], content[1]
        elif kind == "warning":
            warnings.warn(content[1], RuntimeWarning, stacklevel=2)
        elif kind == "record" and content[0] == self._phase:
            self._record = content[1]
        elif kind == "layout":
            if self._layout.weights is None:
                self._layout = self._layout.with_weights(content[0], self._memory)
            member.child.pipe.send(self._layout.weights)
            self._unlaid.discard(member)

    def _await_spaces(self, environment: Member) -> tuple[Any, Any, list[str]]:
        while self._spaces is None:
            if not self._fleet.is_up(environment):
                raise self._fleet.failure(environment)
            self._fleet.turn(owing=environment)
        return self._spaces

    def _ask(self, number: int, command: str, *arguments: Any) -> Any:
        """Return a learner's answer; one that has died, or dies meanwhile, is asked again after its restart."""
        learner = self._learners[number]
        while True:
            first, serial = learner.incarnation, 0
            while self._fleet.is_up(learner) and learner.incarnation == first:
                if not serial and learner not in self._unlaid:
                    serial = next(self._numbers)
                    learner.send((serial, command, *arguments))
                self._fleet.turn(0.1, self._learners, learner)
                if serial and self._answer[0] == serial:
                    return self._answer[1]
            self._fleet.turn(0.1, self._learners)

    def _await_record(self, environment: Member) -> Measurements:
        """Wait for the environment loop's record, and supervise the others meanwhile.

        Raises:
            RunFailed: The environment has ended.
            Exception: The environment's own.
        """
        while True:
            self._fleet.turn()
            if self._record is not None:
                return self._record
            if not self._fleet.is_up(environment):
                raise self._fleet.failure(environment)

    # How they end.

    def _tell_of_stop(self, environment: Member, why: str | None) -> None:
        """Tell once that the environment is stopped: it is not ended, as its state would be lost."""
        if why is not None and not self._stop_reported:
            self._stop_reported = True
            remedy = f"`kill -CONT {environment.child.process.pid}` lets it go on"
            warnings.warn(f"the environment {why}: {remedy}", RuntimeWarning, stacklevel=2)

    def _overdue(self, worker: Member, why: str | None) -> str | None:
        """Return the reason to end a worker, such as that the environment loop reports its inference as overdue."""
        if why is not None or int(self._controls.overdue[worker.number]) != 1 + worker.incarnation:
            return why
        self._controls.overdue[worker.number] = 0
        times, least = self._spec.config.overdue
        return f"has inferred for more than {times:g} times the longest inference and {least / 1e9:g} s"

    def _worker_ends(self, worker: Member) -> bool:
        """Return whether a worker had inferred."""
        slots, number = self._layout.slots(self._memory), worker.number
        has_begun = worker.incarnation or any(map(slots.read_end, range(self._layout.workers)))
        if worker.error is not None and "unmade" in worker.said and not has_begun:
            raise self._fleet.failure(worker)  # make_policy would raise again: no worker has ever inferred
        self._show_error(worker)
        if (board := self._layout.board(self._memory)) is not None:
            board.forget_reader(number)
        self._controls.incarnations[number] = worker.incarnation + 1
        return slots.read_end(number) > worker.child.started

    def _learner_ends(self, learner: Member) -> bool:
        """Return whether a learner had learnt, or could have."""
        if learner.error is not None and (not self._begun or getattr(learner.error[0], "ends_run", False)):
            raise self._fleet.failure(learner)  # another one would do no better
        self._show_error(learner)
        # One that raises may do so at each second update; one that is killed from outside has nothing to do with it.
        learnt = learner.error is None and int(self._controls.updates[learner.number]) > self._made[learner.number]
        return learnt or time.monotonic_ns() - learner.child.started > _SETTLED * 1e9

    def _show_error(self, member: Member) -> None:
        if member.error is not None and (text := member.error[1]) not in self._errors_shown:
            self._errors_shown.add(text)
            warnings.warn(f"{member.name} raised, and is started again:\n{text}", RuntimeWarning, stacklevel=2)

    def _lose(self, member: Member) -> None:
        raise self._fleet.failure(member)

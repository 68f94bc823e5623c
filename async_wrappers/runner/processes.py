"""The process backend: the supervisor of an environment process, N workers and L learners.

The supervisor is the calling process. It starts the others, restarts what dies, and sees to it that nothing is left.
The environment's process is spawned, so that it holds nothing it does not need; workers and learners come from a fork
server that has torch loaded, so that they start in a moment and share its pages.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import socket
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing import connection, forkserver
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import cloudpickle

from async_wrappers.runner.children import Blocks, Shape, run_environment, run_learner, run_worker
from async_wrappers.runner.job import Job
from async_wrappers.runner.loop import Phase
from async_wrappers.runner.memory import Block
from async_wrappers.runner.record import Record
from async_wrappers.runner.state import NotRestored
from async_wrappers.runner.weights import WeightsBoard, WeightsLayout

__all__ = ["ProcessBackend", "RunFailed"]

_BACKOFF = (
    0.0,
    0.1,
    0.3,
    0.6,
    1.2,
)  # seconds before the next restart, by failures in a row; after these it is given up
_PATIENCE = 3.0  # seconds that children have to end when they are told to
_NO_GUARD = 86  # exit code of a child that was about to start children of its own


class RunFailed(RuntimeError):
    """A part of the run has ended for good; what it raised, if anything, is the cause."""


@dataclass
class _Child:
    """A process, the supervisor's end of its pipe, and how it fares."""

    name: str
    process: BaseProcess
    pipe: connection.Connection
    incarnation: int = 0
    failures: int = 0  # in a row
    started: int = 0  # monotonic nanoseconds
    restart_at: float | None = None  # monotonic seconds; it is dead until then
    error: tuple[BaseException | None, str] | None = None  # what it raised


class ProcessBackend:
    """See the module.

    Args:
        job: What is to be done.

    Raises:
        ValueError: A factory that cannot be sent to another process.
        RuntimeError: A script without a main guard.
    """

    def __init__(self, job: Job) -> None:
        """See the class."""
        if getattr(multiprocessing.process.current_process(), "_inheriting", False):
            os._exit(_NO_GUARD)  # our parent says why
        if not sys.platform.startswith("linux") and sys.platform != "darwin":
            raise RuntimeError(f"backend='process' needs Linux, got {sys.platform}: use backend='thread'")
        self._job = job
        _pickled("make_env", job.make_env)
        _pickled("a default action, strategy or latency", job.terms)
        self._environment_payload = cloudpickle.dumps((job.make_env, job.terms))
        policy = _pickled("make_policy", job.make_policy)  # all of them before anything is opened
        learner = _pickled("make_learner", job.make_learner)
        self._policy_payload, self._learner_payload = Block.holding(policy), Block.holding(learner)
        self._spawn = multiprocessing.get_context("spawn")
        self._fork = multiprocessing.get_context("forkserver")
        preloads = [name for name in ("torch", "async_wrappers.runner.children") if importlib.util.find_spec(name)]
        forkserver.set_forkserver_preload(preloads)
        self._blocks = Blocks(*(Block() for _ in range(6)))
        workers = job.terms.workers
        self._inboxes = [socket.socketpair() for _ in range(workers)]
        self._messages, self._outbox = socket.socketpair()
        self._workers: list[_Child] = []
        self._learners: list[_Child] = []
        self._restarts = 0
        self._errors_told: set[str] = set()
        self._closed = False
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def play(self, phase: Phase) -> Record:
        """Play a phase.

        Raises:
            RunFailed: The environment's process has died, or a worker or learner dies again and again.
            KeyboardInterrupt: The run was interrupted; the phase has been ended.
        """
        self._controls.stop = False
        self._controls.learning = not phase.eval_mode
        restarts, updates = self._restarts, int(self._controls.updates.sum())
        if phase.eval_mode:
            self._let_learners_rest()
        try:
            self._environment.pipe.send(phase)
        except OSError:
            raise self._ended(self._environment) from None
        try:
            record = self._await_record()
        except BaseException:
            self._halt()
            raise
        finally:
            self._controls.learning = False
        record.restarts = self._restarts - restarts
        if self._learners:
            record.updates = int(self._controls.updates.sum()) - updates
            record.learner_steps, record.scalars = self._statistics()
        return record

    def _let_learners_rest(self) -> None:
        """Wait until all that was learnt is published: an evaluation is of one version of the weights."""
        for number, learner in enumerate(self._learners):
            while not self._controls.paused[number] and learner.process.is_alive():
                time.sleep(0.005)

    def _halt(self) -> None:
        """End the phase; its record is not to be taken for that of the next one."""
        self._controls.stop = True
        with suppress(OSError, EOFError):
            if self._environment.pipe.poll(1):
                self._environment.pipe.recv()

    def save(self, directory: Path, iteration: int) -> None:
        """Let the learners write their state, between phases."""
        for number in range(len(self._learners)):
            self._ask(number, "save", (directory, iteration, number))

    def restore(self, directory: Path, iteration: int, replays: bool) -> list[int]:
        """Let the learners read their state and publish their weights, between phases; see `AsyncRunner.restore`."""
        numbers = range(len(self._learners))
        answers = [self._ask(number, "restore", (directory, iteration, number, replays)) for number in numbers]
        for number, answer in enumerate(answers):
            if isinstance(answer, str):
                raise NotRestored(f"learner {number} cannot be restored: {answer}")
        return answers

    def forget(self, directory: Path, keep: set[int]) -> None:
        """Let the learners delete the replays of all other iterations."""
        for number in range(len(self._learners)):
            self._ask(number, "forget", (directory, keep, number))

    def close(self) -> None:
        """End all children, at the latest by force, and release the memory."""
        if self._closed:
            return
        self._closed = True
        children = [*self._learners, *self._workers]
        if hasattr(self, "_environment"):
            children.append(self._environment)
        if hasattr(self, "_controls"):
            self._controls.stop = True
        for child in children:
            with suppress(OSError):
                child.pipe.send(("close", None) if child in self._learners else None)
        for ours, theirs in self._inboxes:
            ours.close()
            theirs.close()
        deadline = time.monotonic() + _PATIENCE
        for child in reversed(children):  # the environment first: when it is gone, workers end
            child.process.join(max(0.0, deadline - time.monotonic()))
        for child in children:
            if child.process.is_alive():
                child.process.kill()
            child.process.join()
            child.pipe.close()
            child.process.close()
        self._messages.close()
        self._outbox.close()
        for block in (*vars(self._blocks).values(), self._policy_payload, self._learner_payload):
            block.close()

    def _start(self) -> None:
        """Start everything: the environment says what its spaces are, the learner what its weights are."""
        workers, learners = self._job.terms.workers, self._job.learners
        self._environment = self._child(
            self._spawn,
            "the environment",
            run_environment,
            self._environment_payload,
            self._blocks,
            [ours for ours, _ in self._inboxes],
            self._messages,
        )
        _, observation_space, action_space = self._expect(self._environment, "spaces")
        self._shape = Shape(observation_space, action_space, workers, learners, self._job.journal)
        self._shape.resize(self._blocks)
        self._controls = self._shape.controls(self._blocks)
        self._controls.granted = -1 if self._job.terms.stagger.granted is None else 0
        self._controls.patience = 1 << 62  # nobody knows yet how long an inference takes
        self._learners = [self._learner(number) for number in range(learners)]
        layouts = [self._expect(learner, "layout")[1] for learner in self._learners]
        if layouts:
            self._lay_out(layouts[0])
            for learner in self._learners:
                learner.pipe.send(self._shape)
            for number in range(learners):
                self._ask(number, "publish", None)
        self._workers = [self._worker(number, 0) for number in range(workers)]
        self._environment.pipe.send(self._shape)

    def _lay_out(self, layout: WeightsLayout) -> None:
        self._shape = replace(self._shape, layout=layout)
        self._blocks.board.resize(WeightsBoard.size(layout, self._shape.workers))
        if self._shape.learners > 1:
            self._blocks.shared.resize(WeightsBoard.size(layout, 1))

    def _child(self, context: Any, name: str, target: Callable[..., None], *arguments: Any) -> _Child:
        ours, theirs = multiprocessing.Pipe()
        process = context.Process(target=target, args=(*arguments, theirs), name=name, daemon=True)
        with _main_without_file():
            process.start()
        theirs.close()
        return _Child(name, process, ours, started=time.monotonic_ns())

    def _worker(self, number: int, incarnation: int) -> _Child:
        cores = sorted(os.sched_getaffinity(0)) if self._job.pin else []
        child = self._child(
            self._fork,
            f"worker {number}",
            run_worker,
            self._policy_payload,
            number,
            incarnation,
            self._shape,
            self._blocks,
            self._inboxes[number][1],
            self._outbox,
            cores[number % len(cores)] if cores else None,
        )
        child.incarnation = incarnation
        return child

    def _learner(self, number: int) -> _Child:
        return self._child(
            self._fork,
            f"learner {number}",
            run_learner,
            self._learner_payload,
            number,
            self._shape,
            self._blocks,
            self._job.updates_per_transition,
        )

    def _expect(self, child: _Child, what: str) -> Any:
        """Return a child's next message, which must be this one."""
        while True:
            while not child.pipe.poll(0.1):
                if not child.process.is_alive() and not child.pipe.poll(0):
                    raise self._ended(child)
            try:
                message = child.pipe.recv()
            except (EOFError, ConnectionResetError):
                raise self._ended(child) from None
            if message[0] == what:
                return message
            self._hear(child, message)
            if child.error is not None:
                raise self._failed(child)

    def _hear(self, child: _Child, message: Any) -> None:
        """Take in what a child says unasked: that it raised, or, started again, what its weights are."""
        if message[0] == "failed":
            child.error = _unpickled(message[1]), message[2]
        elif message[0] == "layout":
            child.pipe.send(self._shape)

    def _ask(self, number: int, command: str, argument: Any) -> Any:
        """Return a learner's answer; one that dies over it, or has died, is asked again when it is back."""
        while True:
            learner = self._learners[number]
            if learner.restart_at is None:
                try:
                    learner.pipe.send((command, argument))
                    return self._expect(learner, command)[1]
                except (RunFailed, OSError):
                    self._died(learner)
            time.sleep(self._next_restart() or 0.0)
            self._restart_due()

    def _statistics(self) -> tuple[list[int], dict[str, float]]:
        answers = [self._ask(number, "statistics", None) for number in range(len(self._learners))]
        return [step for steps, _ in answers for step in steps], answers[0][1]

    def _await_record(self) -> Record:
        """Wait for the environment loop's record, and look after the others meanwhile."""
        while True:
            self._restart_due()
            living = [child for child in [*self._workers, *self._learners] if child.restart_at is None]
            waits: list[Any] = [self._environment.pipe, self._environment.process.sentinel]
            waits += [each for child in living for each in (child.pipe, child.process.sentinel)]
            ready = connection.wait(waits, self._next_restart())
            if self._environment.pipe in ready or self._environment.process.sentinel in ready:
                record: Record = self._expect(self._environment, "record")[1]
                return record
            for child in living:
                if child.process.sentinel in ready or (child.pipe in ready and not self._listen(child)):
                    self._died(child)

    def _listen(self, child: _Child) -> bool:
        """Hear what a child has to say; return False if it has ended."""
        try:
            while child.pipe.poll(0):
                self._hear(child, child.pipe.recv())
        except (EOFError, OSError):
            return False
        return child.error is None

    def _died(self, child: _Child) -> None:
        """Take note of a worker's or learner's death, and settle when it is to be restarted."""
        self._listen(child)
        if child.error is not None:
            self._tell(child)
        child.process.join(1)
        if child.process.is_alive():
            child.process.kill()
            child.process.join()
        if child in self._workers:
            number = self._workers.index(child)
            worked = self._shape.slots(self._blocks).read_end(number) > child.started
            if self._shape.layout is not None:
                board = self._shape.board(self._blocks)
                assert board is not None
                board.forget_reader(number)
            self._controls.incarnations[number] = child.incarnation + 1
        else:
            worked = time.monotonic_ns() - child.started > 10_000_000_000
        child.failures = 1 if worked else child.failures + 1
        if child.failures > len(_BACKOFF):
            raise self._failed(child)
        child.restart_at = time.monotonic() + _BACKOFF[child.failures - 1]

    def _tell(self, child: _Child) -> None:
        """Show what a child raised, once."""
        assert child.error is not None
        text = child.error[1]
        if text not in self._errors_told:
            self._errors_told.add(text)
            warnings.warn(f"{child.name} raised, and is started again:\n{text}", RuntimeWarning, stacklevel=2)

    def _next_restart(self) -> float | None:
        times = [child.restart_at for child in [*self._workers, *self._learners] if child.restart_at is not None]
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _restart_due(self) -> None:
        now = time.monotonic()
        for number, child in enumerate(self._workers):
            if child.restart_at is not None and child.restart_at <= now:
                self._workers[number] = self._replaced(child, self._worker(number, child.incarnation + 1))
        for number, child in enumerate(self._learners):
            if child.restart_at is not None and child.restart_at <= now:
                self._learners[number] = self._replaced(child, self._learner(number))

    def _replaced(self, dead: _Child, child: _Child) -> _Child:
        dead.pipe.close()
        dead.process.close()
        child.failures = dead.failures
        self._restarts += 1
        return child

    def _failed(self, child: _Child) -> BaseException:
        """Return what to raise for a child that raised: its own error where that could travel."""
        error, text = child.error or (None, "")
        if error is None:
            return RunFailed(f"{child.name} ended again and again" if not text else f"{child.name} raised:\n{text}")
        error.add_note(f"raised in {child.name}; its traceback:\n{text}")
        return error

    def _ended(self, child: _Child) -> BaseException:
        child.process.join(1)
        code = child.process.exitcode
        if code == _NO_GUARD:
            return RuntimeError(
                "AsyncRunner starts processes, which import the main script again: put what the script does under "
                "`if __name__ == '__main__':`"
            )
        return RunFailed(f"{child.name} ended with exit code {code}")


@contextmanager
def _main_without_file() -> Iterator[None]:
    """Let children not look for a main script that is no file, as where it came from standard input."""
    main = sys.modules["__main__"]
    file = getattr(main, "__file__", None)
    if file is None or os.path.exists(file):
        yield
        return
    del main.__file__
    try:
        yield
    finally:
        main.__file__ = file


def _pickled(name: str, value: Any) -> bytes:
    """Return a factory's bytes, or say what in it cannot travel."""
    try:
        payload: bytes = cloudpickle.dumps(value)
    except Exception as error:
        raise ValueError(
            f"{name} cannot be sent to another process: {error}; make what cannot be pickled inside the function"
        ) from error
    return payload


def _unpickled(payload: bytes | None) -> BaseException | None:
    try:
        error: BaseException | None = None if payload is None else cloudpickle.loads(payload)
    except Exception:
        return None
    return error

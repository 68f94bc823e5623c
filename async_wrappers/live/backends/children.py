"""What runs in the process backend's children: the environment loop, a worker, a learner."""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing import connection, parent_process
from socket import socket
from typing import Any

import cloudpickle
import gymnasium as gym

from async_wrappers.live.backends import signals
from async_wrappers.live.inference.shared_transport import SharedTransport
from async_wrappers.live.inference.worker import Worker
from async_wrappers.live.learning.learner_loop import LearnerLoop, call_make_learner
from async_wrappers.live.loop import EnvironmentLoop
from async_wrappers.live.memory.block import Block
from async_wrappers.live.memory.frame_ring import FrameRing
from async_wrappers.live.memory.journal import Journal
from async_wrappers.live.memory.slots import ActionSlots, Controls
from async_wrappers.live.memory.weights import WeightsBoard, WeightsLayout
from async_wrappers.live.run_spec import RING_DEPTH, made_environment

__all__ = ["SharedLayout", "SharedMemory", "run_environment", "run_learner", "run_worker"]

_GRACE = 3.0  # seconds that a child has to end by itself when its parent is gone


@dataclass(frozen=True)
class SharedMemory:
    """The blocks of a run; sized when the environment and the learner have said what they hold."""

    ring: Block
    slots: Block
    controls: Block
    journal: Block
    board: Block
    shared: Block


@dataclass(frozen=True)
class SharedLayout:
    """What the shared memory holds: spaces and numbers, from which sizes and views follow."""

    observation_space: gym.Space[Any]
    action_space: gym.Space[Any]
    workers: int
    learners: int
    journal: int
    weights: WeightsLayout | None = None
    extras: gym.spaces.Dict | None = None

    def resize(self, memory: SharedMemory) -> None:
        """Size all blocks but those of weights."""
        memory.ring.resize(FrameRing.size(self.observation_space, RING_DEPTH))
        memory.slots.resize(ActionSlots.size(self.action_space, self.workers, self.extras))
        memory.controls.resize(Controls.size(self.workers, self.learners))
        if self.learners:
            memory.journal.resize(Journal.size(*self._entries))

    @property
    def _entries(self) -> tuple[gym.Space[Any], gym.Space[Any], int, gym.spaces.Dict | None]:
        return self.observation_space, self.action_space, self.journal, self.extras

    def ring(self, memory: SharedMemory) -> FrameRing:
        """Return the frame ring."""
        return FrameRing(memory.ring, self.observation_space, RING_DEPTH)

    def slots(self, memory: SharedMemory) -> ActionSlots:
        """Return the action slots."""
        return ActionSlots(memory.slots, self.action_space, self.workers, self.extras)

    def controls(self, memory: SharedMemory) -> Controls:
        """Return the controls."""
        return Controls(memory.controls, self.workers, self.learners)

    def journal_of(self, memory: SharedMemory) -> Journal | None:
        """Return the journal, if anybody learns."""
        if not self.learners:
            return None
        return Journal(memory.journal, *self._entries)

    def board(self, memory: SharedMemory) -> WeightsBoard | None:
        """Return the weights that workers read, if anybody learns."""
        return None if self.weights is None else WeightsBoard(memory.board, self.weights, self.workers)

    def shared(self, memory: SharedMemory) -> WeightsBoard | None:
        """Return the weights that several learners share."""
        return WeightsBoard(memory.shared, self.weights, 1) if self.weights is not None and self.learners > 1 else None


def run_environment(
    payload: bytes, memory: SharedMemory, inboxes: Sequence[socket], outbox: socket, supervisor: connection.Connection
) -> None:
    """Run the environment's process: make the environment, send its spaces, then play each phase."""
    gone = threading.Event()
    with _child(supervisor, gone.set):
        make_env, config = cloudpickle.loads(payload)
        env = made_environment(make_env)
        try:
            supervisor.send(("spaces", env.observation_space, env.action_space))
            layout: SharedLayout = supervisor.recv()
            ring, controls = layout.ring(memory), layout.controls(memory)
            ring.clear()
            transport = SharedTransport(ring, layout.slots(memory), controls, inboxes, outbox)
            number = 0
            loop = EnvironmentLoop(
                env,
                transport,
                config,
                layout.journal_of(memory),
                controls,
                stops=lambda: controls.stop >= number or gone.is_set(),
                warns=lambda sentence: supervisor.send(("warning", number, sentence)),
            )
            while (order := supervisor.recv()) is not None:
                number, phase = order[0], cloudpickle.loads(order[1])
                supervisor.send(("record", number, loop.play(phase)))
        finally:
            env.close()


def run_worker(
    payload: Block,
    worker: int,
    incarnation: int,
    layout: SharedLayout,
    memory: SharedMemory,
    inbox: socket,
    outbox: socket,
    core: int | None,
    supervisor: connection.Connection,
) -> None:
    """Be a worker's process."""
    with _child(supervisor):
        if core is not None:
            os.sched_setaffinity(0, {core})
        _one_thread()
        with _making(supervisor):
            policy = _loaded(payload)()
            _one_thread()
            made = Worker(
                worker,
                incarnation,
                policy,
                layout.action_space,
                layout.ring(memory),
                layout.slots(memory),
                layout.board(memory),
                inbox,
                outbox,
                layout.extras,
            )
        made.run()


def run_learner(
    payload: Block,
    number: int,
    layout: SharedLayout,
    memory: SharedMemory,
    updates_per_transition: float | None,
    supervisor: connection.Connection,
) -> None:
    """Be a learner's process: make it, agree on its weights' layout, then learn, and answer commands in between.

    A run's first learners send their layout and wait for the common one, so nothing else may be sent to them before.
    One that is started later has it in its layout, and finds the commands that were sent while it was being made.
    """
    with _child(supervisor):
        _one_thread()
        learner = call_make_learner(_loaded(payload), number, layout.learners)
        _one_thread()
        if layout.weights is None:
            supervisor.send(("layout", WeightsLayout.of(learner.weights())))
            layout = replace(layout, weights=supervisor.recv())
        board, shared, journal = layout.board(memory), layout.shared(memory), layout.journal_of(memory)
        assert board is not None and board.layout is not None and journal is not None
        board.layout.check(learner.weights())
        controls = layout.controls(memory)
        learning = LearnerLoop(
            number, layout.learners, learner, journal, board, shared, memory.shared, controls, updates_per_transition
        )
        take_over = getattr(learner, "take_over", getattr(learner, "load_weights", None))
        if board.version and take_over is not None:  # another learner was here before
            take_over((shared or board).snapshot())
            learning.pass_counts()
        try:
            while True:
                while supervisor.poll(0):
                    number_of_it, command, *arguments = supervisor.recv()
                    if command == "close":
                        return
                    supervisor.send(("answer", number_of_it, _answer(getattr(learning, command), arguments)))
                controls.paused[number] = learning.rests()
                learning.turn()
        finally:
            learner.close()


def _answer(command: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """Do what a command says; an error of the system is the answer too.

    The learner lives on: another one in its place would meet the same full disk, and would have lost the replay.
    """
    try:
        return command(*arguments)
    except OSError as error:
        if error.errno is None:
            return OSError(str(error))
        return OSError(error.errno, error.strerror, error.filename)


def _loaded(payload: Block) -> Any:
    """Return a factory, which may hold a large model: of its bytes no copy stays."""
    with payload.content() as content:
        return cloudpickle.loads(content)


def _one_thread() -> None:
    """Keep torch, where it is loaded, to one thread: workers share the cores."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


@contextmanager
def _making(supervisor: connection.Connection) -> Iterator[None]:
    """Say of what is raised here that it was raised before the first inference, in making the policy."""
    try:
        yield
    except Exception:
        with suppress(OSError):
            supervisor.send(("unmade",))
        raise


@contextmanager
def _child(supervisor: connection.Connection, on_orphaned: Callable[[], None] | None = None) -> Iterator[None]:
    """Ignore SIGINT and SIGTERM, exit when the parent exits, report exceptions."""
    signals.ignore()
    threading.Thread(target=_watch_parent, args=(on_orphaned,), daemon=True).start()
    try:
        yield
    except BaseException as error:
        if isinstance(error, EOFError | BrokenPipeError | ConnectionResetError) and _is_over(supervisor):
            return
        try:
            pickled = cloudpickle.dumps(error)
        except Exception:
            pickled = None
        with suppress(OSError):
            supervisor.send(("failed", pickled, traceback.format_exc()))
        os._exit(1)


def _is_over(supervisor: connection.Connection) -> bool:
    """Return whether the supervisor is gone, or has asked this child to end."""
    try:
        return supervisor.poll(0)
    except OSError:
        return True


def _watch_parent(on_orphaned: Callable[[], None] | None) -> None:
    """End this process when its parent is gone, however that ended."""
    parent = parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    if on_orphaned is not None:
        on_orphaned()
        time.sleep(_GRACE)
    os._exit(1)

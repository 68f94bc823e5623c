"""The main functions of the process backend's children: the environment loop, a worker, a learner, the recorder."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing import connection
from socket import socket
from typing import TYPE_CHECKING, Any

import cloudpickle

from async_wrappers.fleet import waits
from async_wrappers.fleet.block import Block
from async_wrappers.fleet.child import as_child, one_thread
from async_wrappers.live.inference.transport import SharedTransport, Transport
from async_wrappers.live.inference.worker import Worker
from async_wrappers.live.learning.learner import LearnerLoop, call_make_learner
from async_wrappers.live.learning.learner_state import NotRestored
from async_wrappers.live.loop.clocks import RealClock
from async_wrappers.live.loop.in_loop import InLoopClock, InLoopTransport
from async_wrappers.live.loop.loop import EnvironmentLoop
from async_wrappers.live.loop.release import Release
from async_wrappers.live.memory.layout import SharedLayout, SharedMemory
from async_wrappers.live.memory.weights import WeightsLayout
from async_wrappers.live.recording.writer import RecordSpec, write_rows
from async_wrappers.live.run_spec import LoopEnd
from async_wrappers.live.world.environment import made_environment, timed_sensors_of

if TYPE_CHECKING:
    from async_wrappers.live.cluster.ray_transport import RayTransport
    from async_wrappers.live.remote.remote_transport import RemoteTransport

# Seconds that the `close` of an environment, which may have to bring a robot to rest, or of a learner may take.
CLOSING = 60.0


def run_environment(
    payload: bytes,
    policy: Block | None,
    memory: SharedMemory,
    rows: Block | None,
    inboxes: Sequence[socket],
    outbox: socket,
    supervisor: connection.Connection,
) -> None:
    """Run the environment's process: make the environment, send its spaces, then play each phase.

    The light half of a policy with memory runs here too, and with ``workers=0`` all of the policy; so does its library.
    """
    gone, closes = threading.Event(), threading.Event()

    def end() -> None:
        gone.set()
        _let_it_close(closes)

    with as_child(supervisor, end):
        make_env, config, place = cloudpickle.loads(payload)
        env = made_environment(make_env)
        remote: RemoteTransport | RayTransport | None = None
        try:
            supervisor.send(("spaces", env.observation_space, env.action_space, [*timed_sensors_of(env)]))
            layout: SharedLayout
            recording: RecordSpec | None
            layout, recording = supervisor.recv()
            controls = layout.controls(memory)
            number, journal = 0, layout.journal(memory)
            release = None
            if policy is not None and layout.features is not None:
                release = _made_release(policy, layout, memory)

            def stops() -> bool:
                return controls.stop >= number or gone.is_set()

            def warns(sentence: str) -> None:
                supervisor.send(("warning", number, sentence))

            transport: Transport
            clock = RealClock
            if policy is not None and config.in_loop:
                transport, clock = _made_in_loop(policy, layout, memory), InLoopClock
            elif place is None:
                transport = SharedTransport(layout, memory, inboxes, outbox)
            else:
                remote = transport = place.transport(LoopEnd(layout, config, warns, policy, layout.board(memory)))
            if config.realtime is not None:
                # last, so that threads which the environment has started are neither on the loop's core nor as urgent
                config.realtime.apply()
            at_once = env, transport, config, journal, controls, stops
            recorder = None if rows is None or recording is None else recording.recorder(rows)
            shown = layout.glance(memory)
            loop = EnvironmentLoop(*at_once, warns=warns, release=release, recorder=recorder, clock=clock, glance=shown)
            while (order := supervisor.recv()) is not None:
                if order[1] is None:
                    loop.abandon()
                    continue
                number, phase = order[0], cloudpickle.loads(order[1])
                record = loop.play(phase)
                if remote is not None:
                    record.restarts += remote.take_reconnections()
                supervisor.send(("record", number, record))
        finally:
            try:
                _say_closes(supervisor, closes)
                env.close()
            finally:
                # Last, since a cluster may take longer to answer than an orphaned process has for its machine's rest.
                if remote is not None:
                    remote.close()


def _let_it_close(closes: threading.Event) -> None:
    """Give an orphaned process time for a `close` that it comes to soon."""
    if closes.wait(waits.PATIENCE):
        time.sleep(CLOSING)


def _say_closes(supervisor: connection.Connection, closes: threading.Event) -> None:
    """Let the supervisor, and the one that watches it, know that a `close` begins."""
    closes.set()
    with suppress(OSError):
        supervisor.send(("closes",))


def _made_release(payload: Block, layout: SharedLayout, memory: SharedMemory) -> Release:
    one_thread()
    policy = _loaded(payload)()
    one_thread()
    return Release(policy, layout.action_space, layout.extras, layout.board(memory), layout.workers)


def _made_in_loop(payload: Block, layout: SharedLayout, memory: SharedMemory) -> InLoopTransport:
    one_thread()
    policy = _loaded(payload)()
    one_thread()
    encodes = layout.features is not None
    return InLoopTransport(policy, layout.answers, layout.extras, encodes, layout.board(memory))


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
    """Run a worker in its process."""
    with as_child(supervisor):
        if core is not None:
            os.sched_setaffinity(0, {core})
        one_thread()
        try:
            policy = _loaded(payload)()
            one_thread()
            made = Worker(worker, incarnation, policy, layout, memory, inbox, outbox)
        except BaseException:
            with suppress(OSError):
                supervisor.send(("unmade",))  # an exception came before the first inference
            raise
        made.run()


def run_learner(
    payload: Block,
    number: int,
    layout: SharedLayout,
    memory: SharedMemory,
    updates_per_transition: float | None,
    counts: bool,
    told: Mapping[str, Any] | None,
    supervisor: connection.Connection,
) -> None:
    """Run a learner in its process: make it, agree on its weights' layout, then learn, and answer commands in between.

    A run's first learners send their layout and wait for the common one, so nothing else may be sent to them before.
    One that is started later has it in its layout, and finds the commands that were sent while it was being made.
    """
    closes = threading.Event()
    with as_child(supervisor, lambda: _let_it_close(closes)):
        one_thread()
        learner = call_make_learner(_loaded(payload), number, layout.learners)
        one_thread()
        if layout.weights is None:
            supervisor.send(("layout", WeightsLayout.of(learner.weights())))
            layout = replace(layout, weights=supervisor.recv())
        controls = layout.controls(memory)
        learning = LearnerLoop(number, learner, layout, memory, updates_per_transition, counts)
        learning.succeed()
        if told is not None:
            learning.tell(told)
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
            _say_closes(supervisor, closes)
            learner.close()


def run_recorder(recording: RecordSpec, rows: Block, supervisor: connection.Connection) -> None:
    """Run the process that writes the rows of a recording."""
    over = threading.Event()
    with as_child(supervisor, over.set):
        write_rows(recording, rows, supervisor, over)


def _answer(command: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """Run a command and return its result; errors of the system and `NotRestored` are results, too.

    The learner goes on: a new one would find the same full disk, and would have lost the replay.
    """
    try:
        return command(*arguments)
    except NotRestored as error:
        return error
    except OSError as error:
        if error.errno is None:
            return OSError(str(error))
        return OSError(error.errno, error.strerror, error.filename)


def _loaded(payload: Block) -> Any:
    """Return a factory and keep no copy of its bytes, as it may hold a large model."""
    with payload.content() as content:
        return cloudpickle.loads(content)

"""The thread backend: workers are threads of this process, and the environment loop runs in the calling thread.

For networks whose operations release the interpreter's lock, for debugging, and for systems without the process
backend. Python code of one thread delays the others, the environment loop included.
"""

from __future__ import annotations

import socket
import threading
import time
import warnings
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from async_wrappers.fleet import waits
from async_wrappers.fleet.starting import start_thread
from async_wrappers.fleet.supervised import as_raised, enough_descriptors
from async_wrappers.live.inference.transport import SharedTransport, Transport
from async_wrappers.live.inference.worker import Worker
from async_wrappers.live.loop.clocks import RealClock
from async_wrappers.live.loop.in_loop import InLoopClock, InLoopTransport
from async_wrappers.live.loop.loop import EnvironmentLoop
from async_wrappers.live.loop.release import Release
from async_wrappers.live.memory.layout import SharedMemory
from async_wrappers.live.recording.writer import LocalRecording
from async_wrappers.live.report.report import Measurements
from async_wrappers.live.run_spec import LoopEnd, PhaseSpec, RunSpec
from async_wrappers.live.world.environment import made_environment, timed_sensors_of

if TYPE_CHECKING:
    from async_wrappers.live.cluster.ray_transport import RayTransport
    from async_wrappers.live.remote.remote_transport import RemoteTransport


class ThreadBackend:
    """See the module.

    Args:
        spec: The run; without learners, which need the process backend.
    """

    def __init__(self, spec: RunSpec) -> None:
        self._over = False
        with ExitStack() as held:
            self._env = made_environment(spec.make_env)
            held.callback(self._env.close)
            workers = 0 if spec.remote is not None else spec.config.processes
            self._errors: dict[int, Exception] = {}
            self._memory = SharedMemory.private()
            self._layout = spec.layout(self._env.observation_space, self._env.action_space)
            self._layout.resize(self._memory)
            with enough_descriptors(workers=workers):
                pairs = [tuple(map(held.enter_context, socket.socketpair())) for _ in range(workers + 1)]
            self._messages, self._outbox = pairs.pop()
            self._inboxes = [ours for ours, _ in pairs]
            release = None
            if spec.features is not None:
                release = Release(spec.make_policy(), self._layout.action_space, spec.extras)
            recorded = self._env.observation_space, self._env.action_space, timed_sensors_of(self._env)
            self._recording = LocalRecording.of(spec.recording(*recorded))
            recorder = None
            if self._recording is not None:
                held.callback(self._recording.close)
                recorder = self._recording.recorder
            self._remote: RemoteTransport | RayTransport | None = None
            transport: Transport
            if spec.config.in_loop:
                clock: type[RealClock] = InLoopClock
                answers = self._layout.answers, spec.extras, spec.features is not None
                transport = InLoopTransport(spec.make_policy(), *answers)
            elif spec.remote is not None:
                clock = RealClock
                warns = partial(warnings.warn, category=RuntimeWarning, stacklevel=2)
                self._remote = transport = spec.remote.transport(LoopEnd(self._layout, spec.config, warns))
                held.callback(self._remote.close)
            else:
                clock = RealClock
                transport = SharedTransport(self._layout, self._memory, self._inboxes, self._messages)
            self._loop = EnvironmentLoop(
                self._env,
                transport,
                spec.config,
                stops=lambda: bool(self._errors),
                release=release,
                recorder=recorder,
                clock=clock,
            )
            self._threads = [
                threading.Thread(target=self._work, args=(worker, spec, theirs), name=f"worker {worker}", daemon=True)
                for worker, (_, theirs) in enumerate(pairs)
            ]
            self._held = held.pop_all()
        try:
            for thread in self._threads:
                start_thread(thread)
        except BaseException:
            self.close()
            raise

    def play(self, phase: PhaseSpec) -> Measurements:
        """Play a phase.

        Raises:
            Exception: A policy's.
        """
        try:
            record = self._loop.play(phase)
        finally:
            for worker, error in self._errors.items():
                self.abandon()
                error.add_note(f"raised in worker {worker}")
                raise error
        record.recording = None if self._recording is None else self._recording.end_phase()
        if self._remote is not None:
            record.restarts += self._remote.take_reconnections()
        self._loop.stop(False)  # one that came after the last frame
        return record

    def pause(self, paused: bool) -> None:
        """Pause from the next frame on, or go on; from any thread."""
        self._loop.pause(paused)

    def stop(self) -> None:
        """End the phase that goes on before its next frame; from any thread."""
        self._loop.stop()

    def abandon(self) -> None:
        """Bring a machine to rest after an error."""
        self._loop.abandon()

    def close(self) -> None:
        """End the threads; one that infers ends after its inference, and is waited for with the others for 5 s."""
        self._over = True
        for inbox in self._inboxes:
            inbox.close()
        deadline = time.monotonic() + waits.ORDER
        for thread in filter(threading.Thread.is_alive, self._threads):
            thread.join(max(0.0, deadline - time.monotonic()))
        self._held.close()

    def _work(self, worker: int, spec: RunSpec, inbox: socket.socket) -> None:
        try:
            Worker(worker, 0, spec.make_policy(), self._layout, self._memory, inbox, self._outbox).run()
        except BaseException as error:
            if not self._over:
                self._errors[worker] = as_raised(f"worker {worker}", error)
        finally:
            inbox.close()

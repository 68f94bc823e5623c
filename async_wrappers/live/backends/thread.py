"""The thread backend: workers are threads of this process, and the environment loop runs in the calling thread.

For networks whose operations release the interpreter's lock, for debugging, and where the process backend is not to be
had. Python code of one thread holds up the others, the environment loop included.
"""

from __future__ import annotations

import socket
import threading
from contextlib import ExitStack
from typing import Any

from async_wrappers.live.backends.descriptors import enough_descriptors
from async_wrappers.live.inference.shared_transport import SharedTransport
from async_wrappers.live.inference.worker import Worker
from async_wrappers.live.loop import EnvironmentLoop, PhaseSpec
from async_wrappers.live.memory.block import Block
from async_wrappers.live.memory.frame_ring import FrameRing
from async_wrappers.live.memory.slots import ActionSlots, Controls
from async_wrappers.live.report.measurements import Measurements
from async_wrappers.live.run_spec import RING_DEPTH, RunSpec, made_environment

__all__ = ["ThreadBackend"]


class ThreadBackend:
    """See the module.

    Args:
        spec: What is to be done; without learners, which need the process backend.
    """

    def __init__(self, spec: RunSpec) -> None:
        """See the class."""
        self._over = False
        with ExitStack() as held:
            self._env = made_environment(spec.make_env)
            held.callback(self._env.close)
            workers = spec.config.workers
            self._errors: dict[int, BaseException] = {}
            ring_block, slot_block, control_block = (Block(shared=False) for _ in range(3))
            ring_block.resize(FrameRing.size(self._env.observation_space, RING_DEPTH))
            slot_block.resize(ActionSlots.size(self._env.action_space, workers, spec.extras))
            control_block.resize(Controls.size(workers, 0))
            self._ring = FrameRing(ring_block, self._env.observation_space, RING_DEPTH)
            self._ring.clear()
            self._slots = ActionSlots(slot_block, self._env.action_space, workers, spec.extras)
            pairs: list[tuple[socket.socket, socket.socket]] = []
            with enough_descriptors(workers):
                for _ in range(workers + 1):
                    pairs.append(socket.socketpair())
                    for each in pairs[-1]:
                        held.callback(each.close)
            self._messages, self._outbox = pairs.pop()
            self._inboxes = [ours for ours, _ in pairs]
            transport = SharedTransport(
                self._ring, self._slots, Controls(control_block, workers, 0), self._inboxes, self._messages
            )
            self._loop = EnvironmentLoop(self._env, transport, spec.config, stops=lambda: bool(self._errors))
            self._threads = [
                threading.Thread(target=self._work, args=(worker, spec, theirs), name=f"worker {worker}", daemon=True)
                for worker, (_, theirs) in enumerate(pairs)
            ]
            self._held = held.pop_all()
        for thread in self._threads:
            thread.start()

    def play(self, phase: PhaseSpec) -> Measurements:
        """Play a phase.

        Raises:
            Exception: What a policy raised.
        """
        try:
            record = self._loop.play(phase)
        finally:
            for worker, error in self._errors.items():
                error.add_note(f"raised in worker {worker}")
                raise error
        return record

    def close(self) -> None:
        """End the threads; one that infers ends when it has."""
        self._over = True
        for inbox in self._inboxes:
            inbox.close()
        for thread in self._threads:
            thread.join(timeout=5)
        self._held.close()

    def _work(self, worker: int, spec: RunSpec, inbox: socket.socket) -> None:
        try:
            policy: Any = spec.make_policy()
            space, extras = self._env.action_space, spec.extras
            Worker(worker, 0, policy, space, self._ring, self._slots, None, inbox, self._outbox, extras).run()
        except BaseException as error:
            if not self._over:
                self._errors[worker] = error
        finally:
            inbox.close()

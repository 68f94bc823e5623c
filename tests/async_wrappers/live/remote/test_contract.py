"""A policy in a server keeps the contract of backends, over TCP and over a Unix socket."""

from __future__ import annotations

import os
from typing import Any

from async_wrappers.live import RunFailed
from async_wrappers.testing.backends import BackendContract
from tests.worlds.served import ServedBackend


class TestTCP(BackendContract):
    policy_error = RunFailed

    @staticmethod
    def backend(spec: Any) -> ServedBackend:
        return ServedBackend(spec, "tcp://127.0.0.1:0", "thread")


class TestUnix(BackendContract):
    policy_error = RunFailed

    @staticmethod
    def backend(spec: Any) -> ServedBackend:
        return ServedBackend(spec, f"unix:///tmp/async_wrappers_contract_{os.getpid()}.sock", "process")

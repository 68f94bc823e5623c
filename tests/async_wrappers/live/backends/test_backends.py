"""The backends of the package keep the public contract."""

from __future__ import annotations

from async_wrappers.testing.backends import BackendContract


class TestVirtual(BackendContract):
    backend = "virtual"


class TestThread(BackendContract):
    backend = "thread"


class TestProcess(BackendContract):
    backend = "process"

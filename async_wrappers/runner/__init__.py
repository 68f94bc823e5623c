"""The same schedule against a clock: `AsyncRunner` lets many workers of one slow policy play one environment."""

from async_wrappers.runner.job import RunFailed
from async_wrappers.runner.protocols import Decision, Policy
from async_wrappers.runner.runner import AsyncRunner

__all__ = ["AsyncRunner", "Decision", "Policy", "RunFailed"]

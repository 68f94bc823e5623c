"""The same schedule against a clock: `AsyncRunner` lets many workers of one slow policy play one environment."""

from async_wrappers.live.runner import AsyncRunner
from async_wrappers.policy import Decision, Memory, Policy, SplitPolicy
from async_wrappers.processes.supervised import RunFailed

__all__ = ["AsyncRunner", "Decision", "Memory", "Policy", "RunFailed", "SplitPolicy"]

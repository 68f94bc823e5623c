"""The same schedule against a clock: `AsyncRunner` lets many workers of one slow policy play one environment."""

from async_wrappers.fleet.supervised import RunFailed
from async_wrappers.live.runner import AsyncRunner
from async_wrappers.policy import Decision, Memory, Policy, SplitPolicy

__all__ = ["AsyncRunner", "Decision", "Memory", "Policy", "RunFailed", "SplitPolicy"]

"""The same schedule against a clock: `AsyncRunner` lets many workers of one slow policy play one environment."""

from async_wrappers.live.run_spec import RunFailed
from async_wrappers.live.runner import AsyncRunner
from async_wrappers.policy import Decision, Policy

__all__ = ["AsyncRunner", "Decision", "Policy", "RunFailed"]

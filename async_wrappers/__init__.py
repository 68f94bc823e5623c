"""Realtime reinforcement learning: any Gymnasium environment, made realtime.

* `RealtimeDelay`: simulate inference latency on any environment, with constants or with a latency model.
* `AppliedActions`, `CommittedActions`: show the policy which actions were applied, and which are on their way.
* `AsyncRunner`: many workers of one slow policy play one environment, on the virtual clock.
* `async_wrappers.latency`, `async_wrappers.stagger`: latency models and stagger strategies.
"""

from async_wrappers.delay import RealtimeDelay
from async_wrappers.observation import AppliedActions, CommittedActions
from async_wrappers.runner import AsyncRunner

__all__ = ["AppliedActions", "AsyncRunner", "CommittedActions", "RealtimeDelay", "__version__"]
__version__ = "0.1.0"

"""Realtime reinforcement learning: any Gymnasium environment, made realtime.

* `RealtimeDelay`: simulate inference latency on any environment.
* `AppliedActions`: show the policy which actions the environment really received.
"""

from async_wrappers.delay import RealtimeDelay
from async_wrappers.observation import AppliedActions

__all__ = ["AppliedActions", "RealtimeDelay", "__version__"]
__version__ = "0.1.0"

"""Realtime reinforcement learning: any Gymnasium environment, made realtime.

* `RealtimeDelay`: simulate inference latency on any environment, with constants or with a latency model.
* `AppliedActions`, `CommittedActions`: show the policy which actions were applied, and which are on their way.
* `AsyncRunner`: many workers of one slow policy play one environment, on the virtual clock.
* `plan`: how many workers a latency needs, and what each strategy gives. Also `python -m async_wrappers plan`.
* `probe_delay`: finds the hidden delay of an environment.
* `decompose`: how much of an agent's loss is delay, and how much inaction.
* `async_wrappers.latency`, `async_wrappers.stagger`: latency models and stagger strategies.
"""

from async_wrappers.delay import RealtimeDelay
from async_wrappers.observation import AppliedActions, CommittedActions
from async_wrappers.planning import plan
from async_wrappers.probing import probe_delay
from async_wrappers.regret import decompose
from async_wrappers.runner import AsyncRunner

__all__ = [
    "AppliedActions",
    "AsyncRunner",
    "CommittedActions",
    "RealtimeDelay",
    "__version__",
    "decompose",
    "plan",
    "probe_delay",
]
__version__ = "0.1.0"

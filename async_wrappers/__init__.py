"""Realtime reinforcement learning: any Gymnasium environment, made realtime.

* `RealtimeDelay`: simulate inference latency on any environment, with constants or with a latency model.
* `VectorRealtimeDelay`: the same, with constants, on a vector environment that goes in lockstep.
* `AppliedActions`, `CommittedActions`: show the policy which actions were applied, and which are on their way.
* `DecisionDelay`: shows the policy how late its actions land.
* `AsyncRunner`: many workers of one slow policy play one environment, live or on the virtual clock.
* `plan`: how many workers a latency needs, and what each strategy gives. Also `python -m async_wrappers plan`.
* `probe_delay`: finds the hidden delay of an environment.
* `decompose`: how much of an agent's loss is delay, and how much inaction.
* `async_wrappers.latency`, `async_wrappers.schedule.stagger`: latency models and stagger strategies.
* `async_wrappers.testing`: the contract tests of backends and strategies, for those of your own.

Importing it registers ``async_wrappers/FallingBlocks-v0`` and the Game Boy's games with Gymnasium.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from async_wrappers.registration import register_environments
from async_wrappers.version import __version__
from async_wrappers.wrappers.action_history import AppliedActions, CommittedActions, DecisionDelay
from async_wrappers.wrappers.delay import RealtimeDelay

if TYPE_CHECKING:
    from async_wrappers.analysis.planning import plan
    from async_wrappers.analysis.probing import probe_delay
    from async_wrappers.analysis.regret import decompose
    from async_wrappers.live import AsyncRunner
    from async_wrappers.wrappers.vector import VectorRealtimeDelay

__all__ = [
    "AppliedActions",
    "AsyncRunner",
    "CommittedActions",
    "DecisionDelay",
    "RealtimeDelay",
    "VectorRealtimeDelay",
    "__version__",
    "decompose",
    "plan",
    "probe_delay",
]

_WHERE = {
    "AsyncRunner": "live",
    "VectorRealtimeDelay": "wrappers.vector",
    "decompose": "analysis.regret",
    "plan": "analysis.planning",
    "probe_delay": "analysis.probing",
}


register_environments()


def __getattr__(name: str) -> Any:
    """Import a tool when it is first asked for: who only wraps an environment need not wait for the others."""
    if name in _WHERE:
        return getattr(import_module(f"async_wrappers.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'async_wrappers' has no attribute {name!r}")

"""Experiments as in Dopamine: iterations of whole episodes, checkpoints, metrics, evaluation, one file each.

For a notebook: `load_agent` gives what a run has trained and where it plays, `play_episode` lets it play.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from async_wrappers.agents.experiment.episode import play_episode
    from async_wrappers.agents.experiment.load import load_agent

__all__ = ["load_agent", "play_episode"]

_WHERE = {"load_agent": "load", "play_episode": "episode"}


def __getattr__(name: str) -> Any:
    """Import a tool when it is first asked for: the processes of a sweep need neither."""
    if name in _WHERE:
        return getattr(import_module(f"async_wrappers.agents.experiment.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'async_wrappers.agents.experiment' has no attribute {name!r}")

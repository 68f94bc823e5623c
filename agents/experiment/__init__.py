"""Experiments as in Dopamine: iterations of whole episodes, checkpoints, metrics, evaluation, one file each.

For a notebook: `async_wrappers.agents.load.load_agent` gives what a run has trained and where it plays, and
`play_episode` lets it play.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from async_wrappers.agents.experiment.episode import play_episode

__all__ = ["play_episode"]


def __getattr__(name: str) -> Any:
    """Import `play_episode` when it is first asked for: the processes of a sweep do not need it."""
    if name == "play_episode":
        from async_wrappers.agents.experiment.episode import play_episode

        return play_episode
    raise AttributeError(f"module 'async_wrappers.agents.experiment' has no attribute {name!r}")

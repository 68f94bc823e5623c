"""The interface of a turn-based agent: Dopamine's, with the delay made explicit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

Report = Callable[[str, float, int], None]
"""Receives (tag, value, training frames)."""


class Agent(Protocol):
    """The methods of an agent that playing in turn calls (`async_wrappers.agents.play.turns.turns.Turns`).

    ``realtime`` is the environment's ``info["realtime"]`` of the reset or step that returned the observation, or None
    from an environment that waits for the agent.
    """

    eval_mode: bool
    learns: bool

    @property
    def updates(self) -> int:
        """Updates done; 0 of an agent that does not learn."""

    def begin_episode(self, observation: Any, realtime: Mapping[str, Any] | None = None) -> Any:
        """Return the first action of an episode."""

    def step(self, reward: float, observation: Any, realtime: Mapping[str, Any] | None = None) -> Any:
        """Return the next action; `reward` is the last decision's."""

    def end_episode(
        self,
        reward: float,
        terminal: bool = True,
        observation: Any = None,
        realtime: Mapping[str, Any] | None = None,
    ) -> None:
        """End the episode.

        Args:
            reward: The last decision's.
            terminal: True if the environment ended; False if the episode was cut, and may be bootstrapped.
            observation: What the environment returned last; needed where `terminal` is False.
            realtime: See the class.
        """

    def identity(self) -> dict[str, Any]:
        """Return plain facts that two runs must share to continue one another (agent, network, spaces)."""

    def bundle_and_checkpoint(self, checkpoint_dir: Path, iteration: int) -> dict[str, Any]:
        """Return the state as tensors and plain data; large parts may be written into `checkpoint_dir`."""

    def unbundle(self, checkpoint_dir: Path, iteration: int, bundle: Mapping[str, Any], partial: bool = False) -> int:
        """Restore the state that `bundle_and_checkpoint` returned.

        Args:
            checkpoint_dir: What `bundle_and_checkpoint` was given.
            iteration: What `bundle_and_checkpoint` was given.
            bundle: What `bundle_and_checkpoint` returned.
            partial: Whether to do without old transitions whose files are damaged or missing.

        Returns:
            How many transitions are lost with them.

        Raises:
            OSError: A part in `checkpoint_dir` is missing or torn.
            ValueError: The state does not fit this agent.
        """

    def forget_checkpoints(self, checkpoint_dir: Path, keep: set[int]) -> None:
        """Delete parts in `checkpoint_dir` that no iteration in `keep` needs."""

    def load_policy(self, bundle: Mapping[str, Any]) -> None:
        """Take only what acting needs from a bundle: for evaluation and for a warm start."""

    def keep_diverged_in(self, directory: Path) -> None:
        """Write the batch of a loss that is not finite into a run's directory, unless another one was given."""

    def set_report(self, report: Report) -> None:
        """Send training scalars to `report`."""

    def overlap_learning(self) -> None:
        """Compute updates in parallel with the environment from now on; results still depend on the seed alone."""


@runtime_checkable
class Demonstrable(Protocol):
    """An agent that also learns from another player's transitions."""

    spec: Any

    @property
    def transitions(self) -> int:
        """How many transitions can be drawn."""

    @property
    def batch_size(self) -> int:
        """Transitions of an update."""

    def demonstrate(self, transition: Mapping[str, Any]) -> None:
        """Store another player's transition."""

    def pretrain(self) -> Mapping[str, Any]:
        """Do one update, whether or not there is enough history to begin with in training."""

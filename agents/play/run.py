"""What a way of playing is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from async_wrappers.agents.play.lessons import Lesson
from async_wrappers.agents.play.play import Agent, Episode, Length, Phase, Played
from async_wrappers.wrapper_statistics import Statistics


class Play(Protocol):
    """A way of playing: who steps the environments, and where the agent acts and learns.

    It is made from a `Run`, and refuses then what it cannot play with a ValueError. One whose phases do not look at
    `Run.ending` has ``stop()``, which ends the running one when a signal asks the run to end.

    Attributes:
        checkpoint_every: Iterations between two checkpoints.
        unrecordable: Why no video can be made of its evaluation; empty where one can.
    """

    checkpoint_every: int
    unrecordable: str

    @property
    def agent(self) -> Any:
        """The agent that is trained; of many environments the one that plays them all."""

    def check_here(self) -> None:
        """Refuse what this process cannot play; only where it is to be played, as a run may be looked at elsewhere."""

    def begin(self) -> AbstractContextManager[Any]:
        """Start environments and learners, which end with the context.

        Raises:
            CheckpointRefused: Learners in other processes cannot go on from the checkpoint that was loaded.
        """

    def teach(self, lesson: Lesson) -> None:
        """Let the agent learn from a teacher, and environments of training show it what it reads; before `begin`.

        Raises:
            ValueError: It cannot be taught here.
        """

    def tell_lessons(self, what: str, *arguments: Any) -> None:
        """Call a method of the lessons of each learner, by its name; where there are several, after `begin`."""

    def train(self, length: Length) -> Played:
        """Play a training phase, or less of it where `Run.due` says so; then the rest is asked for.

        Where the run was asked to end all running episodes are cut.
        """

    def evaluate(self, length: Length) -> Played:
        """Play an evaluation phase; one that is not whole, because the run was asked to end, leaves no trace."""

    def state(self, directory: Path, number: int) -> dict[str, Any]:
        """Return the entries of a checkpoint that are this way's, `agent` among them.

        Replays are written into `directory` under `number`.
        """

    def check_kind(self, bundle: Mapping[str, Any], continues: bool = True) -> None:
        """Refuse a checkpoint of another way of playing.

        Args:
            bundle: The checkpoint's content.
            continues: Whether the run is to continue from it; otherwise its weights alone are needed.

        Raises:
            DifferentExperiment: It is one.
        """

    def load_state(self, directory: Path, number: int, bundle: Mapping[str, Any]) -> None:
        """Restore what `state` returned and wrote; the run's counts are the checkpoint's already.

        Args:
            directory: What `state` was given.
            number: What `state` was given.
            bundle: The checkpoint's content.

        Raises:
            OSError: A part in `directory` is missing or torn.
            ValueError: The state does not fit.
        """

    def begin_with(self, statistics: Statistics) -> None:
        """Give the wrappers of training the statistics that belong to the weights which a run begins with."""

    def forget(self, directory: Path, keep: set[int]) -> None:
        """Delete replays in `directory` under other numbers than those in `keep`."""

    def identity(self) -> dict[str, Any]:
        """Return plain facts that two runs must share to continue one another."""

    def facts(self) -> dict[str, str]:
        """Return facts of the run in words, which replace or complete those of all runs.

        A run's first lines show those by the names ``agent``, ``environment``, ``rewards``, ``delay``, ``device``,
        ``queue`` and ``iterations`` alone.
        """

    def statistics(self, phase: Phase, played: Played, seconds: float) -> tuple[dict[str, Any], dict[str, float]]:
        """Return what this way adds to an iteration's line, and to its scalars."""

    def summary(self) -> Mapping[str, float]:
        """Return the values reported beside the scalars of updates, after the last update."""

    def table(self) -> str:
        """Return what is printed after the last iteration; empty for nothing."""

    def new_agent(self) -> Agent:
        """Return a new agent for the environment."""

    def final(self, episodes: int, newest: Callable[[], Mapping[str, Any]]) -> Sequence[Episode] | None:
        """Play evaluation episodes in another way than in turn; None where they are played in turn.

        Args:
            episodes: How many.
            newest: Returns the content of the run's newest checkpoint, whose weights play.
        """

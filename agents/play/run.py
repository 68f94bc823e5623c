"""The two sides of a run: a way of playing, and what it may ask of the experiment around it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import gymnasium as gym

from async_wrappers.agents.play.lessons import Lesson
from async_wrappers.agents.play.play import Agent, Due, Episode, EpisodeRow, Length, Phase, PhaseCounts, Played
from async_wrappers.agents.play.runner import Runner
from async_wrappers.wrapper_statistics import Statistics


class Play(Protocol):
    """A way of playing: who steps the environments, and where the agent acts and learns.

    It is made from a `Run`, and refuses then what it cannot play with a ValueError.

    Attributes:
        agent: It is trained; of many environments the one that plays them all.
        checkpoint_every: Iterations between two checkpoints.
        stop: Ends the running phase, when a signal asks the run to end; None where phases look at `Run.ending`.
        unrecordable: Why no video can be made of its evaluation; empty where one can.
    """

    @property
    def agent(self) -> Any:
        """See the class."""

    @property
    def checkpoint_every(self) -> int:
        """See the class."""

    @property
    def stop(self) -> Callable[[], None] | None:
        """See the class."""

    @property
    def unrecordable(self) -> str:
        """See the class."""

    def check_here(self) -> None:
        """Refuse what this process cannot play; only where it is to be played, as a run may be looked at elsewhere."""

    def begin(self) -> AbstractContextManager[Any]:
        """Start environments and learners, which end with the context."""

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


class Run(Protocol):
    """What a way of playing may ask of its experiment.

    Attributes:
        base_dir: The run's directory.
        settings: Of every run.
        environment: The one that is played in turn, and whose spaces and layers are read.
        lengths: Of the phases.
        counts: What was played so far; the way of playing counts here.
        clock: Of the whole run.
        start_iteration: The running iteration, or the next one.
        writes: Whether the running iteration ends with a checkpoint.
        ending: Whether the run was asked to end.
        saved: Where checkpoints are, and under which numbers.
        table: Of episodes.
        metrics: Scalars against frames of training.
        shown: The progress.
        history: The statistics of the iterations that are done.
    """

    @property
    def base_dir(self) -> Path:
        """See the class."""

    settings: Runner
    environment: gym.Env[Any, Any]

    @property
    def lengths(self) -> Mapping[Phase, Length]:
        """See the class."""

    counts: PhaseCounts

    @property
    def clock(self) -> Clock:
        """See the class."""

    @property
    def ending(self) -> Ending:
        """See the class."""

    @property
    def saved(self) -> Saved:
        """See the class."""

    start_iteration: int
    writes: bool

    @property
    def table(self) -> Table:
        """See the class."""

    @property
    def metrics(self) -> Scalars:
        """See the class."""

    @property
    def shown(self) -> Shown:
        """See the class."""

    @property
    def history(self) -> Sequence[Mapping[str, Any]]:
        """See the class."""

    def due(self) -> Due:
        """Return why the running phase of training is to end now."""

    def go_back(self, number: int, error: Exception) -> None:
        """Refuse the checkpoint that was loaded, and load the one before it.

        Raises:
            NoCheckpointLoads: There is none.
        """


class Clock(Protocol):
    """Time that a run has taken.

    Attributes:
        seconds: So far, pauses between two sessions left out.
    """

    @property
    def seconds(self) -> float:
        """See the class."""


class Ending(Protocol):
    """Ctrl+C and SIGTERM.

    Attributes:
        asked: Whether a signal came, or what plays has ended the run.
    """

    asked: bool

    def ask(self, reason: BaseException) -> None:
        """Ask the run to end, and to raise this."""


class Saved(Protocol):
    """The checkpoints of a run.

    Attributes:
        number: Of the checkpoint that was loaded or written last.
        directory: Where they lie.
    """

    number: int

    @property
    def directory(self) -> Path:
        """See the class."""


class Scalars(Protocol):
    """Takes scalars."""

    def scalar(self, tag: str, value: float, frames: int) -> None:
        """Write one."""


class Table(Protocol):
    """Takes rows of episodes."""

    def add(self, rows: Iterable[EpisodeRow]) -> None:
        """Append rows; those whose numbers are there already are left out."""

    def count(self, phase: str) -> int:
        """Return the number of the next episode of a phase."""


class Shown(Protocol):
    """Shows how far the running iteration is."""

    def tell(self, phase: Phase, episodes: int, frames: int, last: str = "", seconds: float | None = None) -> None:
        """Show that a phase has had so many episodes and frames.

        Args:
            phase: Which.
            episodes: In all.
            frames: In all.
            last: The newest result in words; empty keeps the previous one.
            seconds: How long the iteration's frames took; None for as long as it has taken.
        """

    def share(self, share: float, words: str) -> None:
        """Show that a share of an iteration without frames is done."""

    def waiting(self, phase: Phase, more: Callable[[float], tuple[int, float | None]]) -> AbstractContextManager[None]:
        """Keep showing the progress of a phase during a block that tells nothing for long.

        Args:
            phase: Which.
            more: Returns the phase's frames beyond those told, after so many seconds of the block, and as `tell` how
                long the iteration's frames took.
        """

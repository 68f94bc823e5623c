"""What a teacher may add to an experiment, and an experiment without one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from async_wrappers.agents.play.play import Length, Phase, Played
from async_wrappers.agents.play.run import Play, Run


class TaughtRun(Run, Protocol):
    """What a teacher's part may ask of its experiment.

    Attributes:
        play: Who steps the environments.
    """

    @property
    def play(self) -> Play:
        """See the class."""


class Teaching(Protocol):
    """A teacher's part in an experiment, whatever plays.

    It is made from a `TaughtRun`, when that can play, and refuses what cannot be taught with a ValueError.

    Attributes:
        iterations: Of the run, those of the teacher's included.
        one_more: The binding that continues a finished run for one iteration.
    """

    iterations: int
    one_more: str

    def prepare(self) -> None:
        """Load the teacher, before a checkpoint is looked for.

        Raises:
            ValueError: It cannot be loaded, or the agent learns from none.
        """

    def begin_run(self) -> None:
        """Give the agent what it begins with, where there is no checkpoint."""

    def begin(self, iteration: int) -> Mapping[Phase, Length]:
        """Begin an iteration, and return the lengths of its phases."""

    def train(self, length: Length, carried: Mapping[str, Any]) -> Played:
        """Run the iteration's training phase; see `async_wrappers.agents.play.run.Play.train`."""

    def statistics(self, phase: Phase, line: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, float]]:
        """Return what a phase adds to the iteration's line, which is `line` so far, and to its scalars."""

    def state(self) -> dict[str, Any]:
        """Return the entries of a checkpoint."""

    def load_state(self, bundle: Mapping[str, Any]) -> None:
        """Restore them from a checkpoint's content."""

    def identity(self) -> dict[str, Any]:
        """Return plain facts that two runs must share to continue one another."""

    def facts(self) -> dict[str, str]:
        """Return facts of the run in words, which replace or complete those of all runs."""


class NoTeaching:
    """One online iteration after the other; see `Teaching`."""

    def __init__(self, run: TaughtRun) -> None:
        """See the class."""
        self._run = run
        self.iterations = run.settings.num_iterations
        self.one_more = f"Runner.num_iterations = {self.iterations + 1}"

    def prepare(self) -> None:
        """Refuse a student of a teacher, as there is none."""
        spec: Any = getattr(self._run.play.agent, "spec", None)
        if hasattr(spec, "check_alone"):
            spec.check_alone()

    def begin_run(self) -> None:
        """See `Teaching`."""

    def begin(self, iteration: int) -> Mapping[Phase, Length]:
        """See `Teaching`."""
        return self._run.lengths

    def train(self, length: Length, carried: Mapping[str, Any]) -> Played:
        """See `Teaching`."""
        return self._run.play.train(length, carried)

    def statistics(self, phase: Phase, line: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, float]]:
        """See `Teaching`."""
        return {}, {}

    def state(self) -> dict[str, Any]:
        """See `Teaching`."""
        return {}

    def load_state(self, bundle: Mapping[str, Any]) -> None:
        """See `Teaching`."""

    def identity(self) -> dict[str, Any]:
        """See `Teaching`."""
        return {}

    def facts(self) -> dict[str, str]:
        """See `Teaching`."""
        return {}

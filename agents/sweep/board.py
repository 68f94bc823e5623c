"""What is told while the trials of a sweep run."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from threading import Lock

from tqdm import tqdm

from agents.sweep.plan import SweepPlan
from agents.sweep.trial import FAILURE, RESULT, Trial, state

__all__ = ["Board"]


class Board:
    """A bar with the counts, and a line for each trial that ends.

    Args:
        plan: The sweep.
        left: Its trials that are to run.
        base_dir: Its directory.
    """

    def __init__(self, plan: SweepPlan, left: Sequence[Trial], base_dir: Path) -> None:
        total = len(plan.trials())
        self._trials = {trial.name: trial for trial in left}
        self._counts: Counter[str] = Counter(
            state(base_dir / "trials" / trial.name) for trial in plan.trials() if trial.name not in self._trials
        )
        self._lock = Lock()
        self._bar = tqdm(total=total, initial=total - len(left), unit="trial", desc="sweep", disable=None)

    def __enter__(self) -> Board:
        """Return itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Leave the bar as it is."""
        self._bar.close()

    def change(self, directory: Path, to: str) -> None:
        """Take note that a trial runs, or has ended."""
        with self._lock:
            self._counts[to] += 1
            if to != "running":
                self._counts["running"] -= 1
                self._bar.update()
                tqdm.write(self._line(directory, to), file=sys.stdout)
            counts = ", ".join(f"{self._counts[name]} {name}" for name in ("finished", "running", "failed"))
            self._bar.set_postfix_str(counts)

    def _line(self, directory: Path, to: str) -> str:
        trial = self._trials[directory.name]
        path = directory / (RESULT if to == "finished" else FAILURE)
        unknown = {"error": "which could not be recorded", "seconds": 0.0}
        facts = json.loads(path.read_text()) if path.is_file() else unknown
        what = ", ".join([*filter(None, [trial.arm]), *(f"{key} = {value}" for key, value in trial.bindings.items())])
        error = f": {facts['error']} (see {directory})" if to == "failed" else ""
        if "stopped_after" in facts:
            to = f"stopped by the scheduler in iteration {facts['stopped_after']}"
        return f"trial {trial.name} {to} after {facts['seconds']:.0f} s ({what}, seed {trial.seed_number}){error}"

"""A sweep as one page of HTML, which needs no other file: figures, table, and the command behind each number.

``page.html.jinja``, beside this file, holds the page's text and layout. Jinja escapes all values that it puts into the
page, since names and errors come from trials.
"""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Mapping
from pathlib import Path

from agents.files import write_text_atomically
from agents.sweep.ladder import make_ladders
from agents.sweep.results import MANIFEST
from agents.sweep.trial import FAILURE, GinTrial, trial_status
from agents.sweep.view import View

__all__ = ["write_report"]

_TEMPLATE = Path(__file__).with_name("page.html.jinja")


def write_report(base_dir: Path, view: View, figures: Mapping[str, Path]) -> Path:
    """Write ``report.html`` and return its path.

    Args:
        base_dir: The sweep's directory.
        view: The view that the table shows.
        figures: SVG files by caption.
    """
    import jinja2

    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    page = environment.from_string(_TEMPLATE.read_text(encoding="utf-8")).render(
        name=base_dir.resolve().name,
        view=view,
        trials=len(view.plan.trials()),
        finished=len({row["trial"] for row in view.rows}),
        figures={caption: base64.b64encode(path.read_bytes()).decode() for caption, path in figures.items()},
        ladders=make_ladders(view),
        failures=_failures(base_dir, view),
        measured=_measured(view),
        manifest=_manifest(base_dir),
    )
    write_text_atomically(base_dir / "report.html", page)
    return base_dir / "report.html"


def _failures(base_dir: Path, view: View) -> dict[str, str]:
    """Return the error of each failed trial, by its name."""
    directories = [base_dir / "trials" / trial.name for trial in view.plan.trials()]
    failed = [directory for directory in directories if trial_status(directory) == "failed"]
    return {directory.name: json.loads((directory / FAILURE).read_text())["error"] for directory in failed}


def _measured(view: View) -> list[tuple[str, float, float, str]]:
    """Return name, value of the view's metric, seconds and command of each finished trial."""
    values = {row["trial"]: row["value"] for row in view.rows if row["metric"] == view.metric}
    seconds = {row["trial"]: row["value"] for row in view.rows if row["metric"] == "seconds"}
    commands = _commands(view)
    return [(trial, value, seconds[trial], commands[trial]) for trial, value in values.items()]


def _commands(view: View) -> dict[str, str]:
    """Return the command that measures each trial's numbers again, by the trial's name."""
    plan = view.plan
    if plan.function != "train.py":
        return {each.name: f"{plan.function}({each.bindings!r}, {each.seed}, directory)" for each in plan.trials()}
    trial = GinTrial("train.py", tuple(plan.arguments))
    return {
        each.name: shlex.join(["python", *trial.words(each.bindings, each.seed, Path("again") / each.name)])
        for each in plan.trials()
    }


def _manifest(base_dir: Path) -> str:
    path = base_dir / MANIFEST
    return json.dumps(json.loads(path.read_text()) if path.is_file() else {}, indent=1)

"""A sweep as one page of HTML, which needs nothing beside it: figures, table, and the command behind each number."""

from __future__ import annotations

import base64
import html
import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from agents.files import write_text_atomically
from agents.sweep.ladder import Cost, Ladder, make_ladders
from agents.sweep.results import MANIFEST
from agents.sweep.trial import FAILURE, GinTrial, state
from agents.sweep.view import View

__all__ = ["write_report"]

_STYLE = """
body { font: 15px/1.45 sans-serif; max-width: 62em; margin: 2em auto; padding: 0 1em; color: #111 }
table { border-collapse: collapse; margin: 1em 0 } th, td { padding: .15em .8em; border-bottom: 1px solid #ccc }
td { text-align: right } td.text, th { text-align: left } img { max-width: 100% } code { font-size: 85% }
figure { margin: 1.5em 0 } figcaption { color: #333 }
"""


def write_report(base_dir: Path, view: View, figures: Mapping[str, Path]) -> Path:
    """Write ``report.html`` and return its path.

    Args:
        base_dir: The sweep's directory.
        view: What the table shows.
        figures: SVG files by caption.
    """
    body = [
        f"<h1>Sweep {_text(base_dir.resolve().name)}</h1>",
        f"<p>{_text(view.metric_label)}, {_text(view.statistic_label)}. {_text(_progress(base_dir, view))}</p>",
        *(_figure(caption, path) for caption, path in figures.items()),
        "<h2>Scores</h2>",
        _scores(view),
        *_costs(make_ladders(view)),
        *_failures(base_dir, view),
        "<h2>Trials</h2>",
        _trials(base_dir, view),
        "<h2>Where this was measured</h2>",
        f"<pre>{_text(json.dumps(_manifest(base_dir), indent=1))}</pre>",
    ]
    head = f'<meta charset="utf-8"><title>{_text(base_dir.resolve().name)}</title><style>{_STYLE}</style>'
    page = f'<!doctype html><html lang="en"><head>{head}</head><body>' + "\n".join(body) + "</body></html>\n"
    write_text_atomically(base_dir / "report.html", page)
    return base_dir / "report.html"


def command_of(base_dir: Path, view: View, trial: str) -> str:
    """Return the command that measures one trial's numbers again."""
    found = next(each for each in view.plan.trials() if each.name == trial)
    if view.plan.function != "train.py":
        return f"{view.plan.function}({found.bindings!r}, {found.seed}, directory)"
    own = GinTrial("train.py", tuple(view.plan.arguments)).words(found.bindings, found.seed, Path("again") / trial)
    return shlex.join(["python", *own])


def _figure(caption: str, path: Path) -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    image = f'<img alt="{_text(caption)}" src="data:image/svg+xml;base64,{data}">'
    return f"<figure>{image}<figcaption>{_text(caption)}</figcaption></figure>"


def _scores(view: View) -> str:
    rows = []
    for panel in view.panels:
        for level in panel.levels:
            rows.append(
                [panel.title, level.name, "", "", f"{level.value:.5g}", f"[{level.low:.5g}, {level.high:.5g}]", ""]
            )
        for name, curve in panel.curves.items():
            for score in curve:
                interval = f"[{score.low:.5g}, {score.high:.5g}]" if len(score.scores) > 1 else ""
                numbers = [f"{score.x:g}", str(len(score.scores)), f"{score.value:.5g}", interval]
                rows.append([panel.title, name, *numbers, ", ".join(score.trials)])
    heads = ["", "", view.x_label, "seeds", view.statistic, "95 % interval", "trials"]
    return _table(heads, rows, words=(0, 1, 6))


def _costs(ladders: Sequence[Ladder]) -> list[str]:
    rows = []
    for ladder in ladders:
        for rung in ladder.rungs:
            costs = [text for cost in (rung.delay, rung.inaction) for text in _cost(cost)]
            rows.append([ladder.title, f"{rung.asynchronous.x:g}", f"{ladder.top.value:.5g}", *costs])
    heads = ["", "delay", "score without", "cost of delay", "95 % interval", "cost of inaction", "95 % interval"]
    return ["<h2>What delay costs, what inaction costs</h2>", _table(heads, rows, words=(0,))] if rows else []


def _cost(cost: Cost) -> list[str]:
    return [f"{cost.value:.5g}", f"[{cost.low:.5g}, {cost.high:.5g}]"]


def _trials(base_dir: Path, view: View) -> str:
    values = {row["trial"]: row["value"] for row in view.rows if row["metric"] == view.metric}
    seconds = {row["trial"]: row["value"] for row in view.rows if row["metric"] == "seconds"}
    rows = [
        [trial, f"{value:.5g}", f"{seconds[trial]:.0f}", command_of(base_dir, view, trial)]
        for trial, value in values.items()
    ]
    return _table(["trial", view.metric, "seconds", "command"], rows, words=(0, 3))


def _failures(base_dir: Path, view: View) -> list[str]:
    directories = [base_dir / "trials" / trial.name for trial in view.plan.trials()]
    paths = [directory / FAILURE for directory in directories if state(directory) == "failed"]
    failed = [[path.parent.name, json.loads(path.read_text())["error"]] for path in paths]
    return ["<h2>Failed trials</h2>", _table(["trial", "error"], failed, words=(0, 1))] if failed else []


def _progress(base_dir: Path, view: View) -> str:
    done, total = len({row["trial"] for row in view.rows}), len(view.plan.trials())
    return f"{done} of {total} trials have finished."


def _manifest(base_dir: Path) -> object:
    path = base_dir / MANIFEST
    return json.loads(path.read_text()) if path.is_file() else {}


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], words: Sequence[int]) -> str:
    """Return a table; `words` are the columns of text, and the last of them, where it is a command, is code."""
    cells = [
        "".join(
            f'<td class="text">{_code(heads[column], text)}</td>' if column in words else f"<td>{_text(text)}</td>"
            for column, text in enumerate(row)
        )
        for row in rows
    ]
    head = "".join(f"<th>{_text(name)}</th>" for name in heads)
    return f"<table><tr>{head}</tr>" + "\n".join(f"<tr>{row}</tr>" for row in cells) + "</table>"


def _code(head: str, text: str) -> str:
    return f"<code>{_text(text)}</code>" if head == "command" else _text(text)


def _text(text: str) -> str:
    return html.escape(text)

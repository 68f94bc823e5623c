"""The outputs of a sweep: its table, TensorBoard's HPARAMS tab, Weights & Biases, and the manifest.

The table is in long form, one number per row, because trials differ in their metrics and iterations. It
is made from the trials' files, and can be made again at any time. Its last column is the same in each row, a checksum
of the others, so that no row can be lost or changed on the way to another machine. The manifest holds versions,
commands and machines.
"""

from __future__ import annotations

import csv
import io
import json
import math
import platform
import subprocess
import sys
import time
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from async_wrappers.agents.experiment.metrics import FRAME_RATE, name_in, new_events, read_facts
from async_wrappers.agents.sweep.grid import plain
from async_wrappers.agents.sweep.plan import SweepPlan, Trial, read_plan
from async_wrappers.agents.sweep.trial import RESULT, trial_status
from async_wrappers.extras import extra
from async_wrappers.files import refuse_damage, write_atomically, write_text_atomically
from async_wrappers.posix import cores
from async_wrappers.printing import printable

# Beside the scalars of a run of train.py.
TENSORBOARD = Path("metrics") / "tensorboard"
HPARAMS = ".hparams"
# In the directory of a trial that has been sent; holds the run's id.
WANDB = "wandb_run.txt"
CHECK = "check"
ELSEWHERE = "elsewhere"  # in the file of a trial that another machine has run
CSV, PARQUET, MANIFEST = "results.csv", "results.parquet", "manifest.json"
_MOST_NAMED = 3  # environments, or agents, in a title
_PACKAGES = ("torch", "numpy", "gymnasium", "ale-py", "pyboy", "gin-config", "ray", "async-wrappers")


def _finished(base_dir: Path, plan: SweepPlan) -> Iterator[tuple[Trial, Path]]:
    """Yield the finished trials, in order, each with its directory."""
    for trial in plan.trials():
        directory = base_dir / "trials" / trial.name
        if trial_status(directory) == "finished":
            yield trial, directory


def _metrics(directory: Path) -> dict[str, Any]:
    """Return a finished trial's metrics: numbers, and lists with a number per iteration."""
    facts = _result(directory)
    return {**facts["metrics"], "seconds": facts["seconds"]}


def _result(directory: Path) -> dict[str, Any]:
    """Return what a finished trial's file says: "metrics", "seconds", and `ELSEWHERE` of one taken from a table."""
    path = directory / RESULT
    with refuse_damage(path, "remove it, and let the sweep run that trial again"):
        facts = json.loads(path.read_text(encoding="utf-8"))
        return {**facts, "metrics": {**facts["metrics"]}, "seconds": float(facts["seconds"])}


def seconds_here(directories: Iterable[Path]) -> list[float]:
    """Return how long finished trials took, of those that were not taken from another machine's table."""
    results = [_result(each) for each in directories if trial_status(each) == "finished"]
    return [facts["seconds"] for facts in results if not facts.get(ELSEWHERE)]


def _rows(base_dir: Path, plan: SweepPlan) -> Iterator[dict[str, Any]]:
    """Yield arm, value of each key, seed, iteration, metric and value of all finished trials, in order.

    `seed` is the seed's number; `iteration` is None for a metric that is measured once per trial.
    """
    for trial, directory in _finished(base_dir, plan):
        values = dict(zip(plan.keys, _values(plan, trial), strict=True))
        where = {"arm": trial.arm, **values, "seed": trial.seed_number}
        for metric, value in _metrics(directory).items():
            series = enumerate(value) if isinstance(value, list) else [(None, value)]
            for iteration, number in series:
                yield {**where, "iteration": iteration, "metric": metric, "value": number, "trial": trial.name}


def write_results(base_dir: Path, plan: SweepPlan) -> Path:
    """Write ``results.csv``, and ``results.parquet`` where pyarrow is installed; return the former's path."""
    table = list(_rows(base_dir, plan))
    columns = _columns(plan)
    check = _checksum_of(columns, table)
    lines = [_line([*columns, CHECK]), *(_line([*(row[name] for name in columns), check]) for row in table)]
    write_text_atomically(base_dir / CSV, "".join(lines))
    _write_parquet(base_dir / PARQUET, columns, table)
    return base_dir / CSV


def _line(cells: Sequence[Any]) -> str:
    """Return a line of the table, which ends in a line feed."""
    # csv quotes a text with a character of the line end in it. With "\n" alone, carriage returns would not be quoted.
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerow(map(_quoted, cells))
    return text.getvalue().removesuffix("\r\n") + "\n"


def _checksum_of(columns: Sequence[str], table: Sequence[Mapping[str, Any]]) -> str:
    """Return the CRC-32 of a table's cells, which depends on neither quotes nor line ends; a letter keeps it a text."""
    cells = [list(columns), *([_text(row[name]) for name in columns] for row in table)]
    return f"c{zlib.crc32(json.dumps(cells).encode()):08x}"


def read_csv(path: Path) -> list[dict[str, str]]:
    """Return the rows of a ``results.csv``, without the quotes that keep a spreadsheet from reading formulas."""
    with open(path, newline="", encoding="utf-8") as file:
        return [{_unquoted(name): _unquoted(cell) for name, cell in row.items()} for row in csv.DictReader(file)]


def results_in(table: Path, plan: SweepPlan) -> dict[str, dict[str, Any]]:
    """Return what a ``results.csv`` of the same sweep, perhaps of another machine, says of finished trials.

    A trial is found by its arm, the values of its keys and the number of its seed, from which its seed follows. A sweep
    may have grown by arms since: keys of the sweep that the table lacks are bound by none of its trials.

    Args:
        table: The file.
        plan: The sweep; trials of seeds beyond its own are left out.

    Returns:
        By the names of the plan's trials what their ``result.json`` holds.

    Raises:
        ValueError: The file is not there, is no such table, has lost rows, or has a point that the plan has not.
    """
    try:
        rows = read_csv(table)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"finished must be a sweep's {CSV}, got {table} ({error})") from None
    except AttributeError:  # a row with fewer cells than columns, or with more
        raise ValueError(f"{table} is damaged, a row of it is not whole: copy it again") from None
    columns, where = _columns(plan), ["arm", *plan.keys, "seed"]
    own = [name for name in columns if name not in plan.keys or name in (rows[0] if rows else ())]
    if not rows or list(rows[0]) not in (own, [*own, CHECK]):
        raise ValueError(
            f"finished must be a {CSV} of this sweep, with the columns {', '.join(columns)}, got {table} with "
            f"{', '.join(rows[0]) if rows else 'no row'}"
        )
    found: dict[tuple[str, ...], dict[str, Any]] = defaultdict(dict)
    for number, row in enumerate(rows, 2):
        try:
            _add(found[tuple(row.get(each, "") for each in where)], row)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{table} is damaged in line {number} ({error}): copy it again") from None
    points = {(trial.arm, *map(_text, _values(plan, trial))) for trial in plan.trials()}
    strangers = [each for each in found if each[:-1] not in points]
    if strangers:
        point = ", ".join(f"{name} = {value}" for name, value in zip(where, strangers[0], strict=True))
        raise ValueError(f"{table} is of another sweep: it has a trial of {point}, which this one has not")
    if CHECK not in rows[0]:
        _check_alike(table, rows, found)
    elif {row[CHECK] for row in rows} != {_checksum_of(own, rows)}:
        raise ValueError(f"{table} is damaged, as rows are lost, changed or given twice: copy it again")
    taken = {}
    for trial in plan.trials():
        if metrics := found.get((trial.arm, *map(_text, _values(plan, trial)), str(trial.seed_number))):
            if not 0 <= (seconds := metrics.pop("seconds", -1.0)) < math.inf:
                raise ValueError(f"{table} is damaged, trial {trial.name} took no seconds >= 0: copy it again")
            taken[trial.name] = {"metrics": metrics, "seconds": seconds}
    return taken


def _add(metrics: dict[str, Any], row: Mapping[str, str]) -> None:
    """Add a row of a table to the metrics of its trial.

    Raises:
        ValueError: Its value is no number, or another row does not go with it.
    """
    name, value = row["metric"], float(row["value"])
    if row["iteration"] == "":
        if name in metrics:
            raise ValueError(f"a second {name} of the same trial")
        metrics[name] = value
        return
    series = metrics.setdefault(name, [])
    if not isinstance(series, list) or int(row["iteration"]) != len(series):
        last = len(series) - 1 if isinstance(series, list) else "none"
        raise ValueError(f"iteration {row['iteration']} comes after {last}")
    series.append(value)


def _check_alike(
    table: Path, rows: Sequence[Mapping[str, str]], trials: Mapping[tuple[str, ...], Mapping[str, Any]]
) -> None:
    """Refuse what a table of an older version, which has no checksum, can be seen to have lost.

    Raises:
        ValueError: A value is NaN, or two seeds of a point differ in their metrics or iterations.
    """
    for number, row in enumerate(rows, 2):
        if math.isnan(float(row["value"])):
            raise ValueError(f"{table} is damaged in line {number} (its value is {row['value']}): copy it again")
    first: dict[tuple[str, ...], tuple[str, Any]] = {}
    for (*point, seed), metrics in trials.items():
        sizes = {name: len(value) if isinstance(value, list) else None for name, value in metrics.items()}
        other, expected = first.setdefault(tuple(point), (seed, sizes))
        if sizes != expected:
            name = min(name for name in {*sizes, *expected} if sizes.get(name, 0) != expected.get(name, 0))
            raise ValueError(
                f"{table} is damaged, seeds {other} and {seed} of a point have other rows of {name}: copy it again"
            )


def _values(plan: SweepPlan, trial: Trial) -> list[Any]:
    """Return a trial's value of each key."""
    return [plain(trial.bindings.get(key)) for key in plan.keys]


def _text(value: Any) -> str:
    """Return a value as the table has it."""
    return "" if value is None else str(value)


def _columns(plan: SweepPlan) -> list[str]:
    return ["arm", *plan.keys, "seed", "iteration", "metric", "value", "trial"]


# A spreadsheet takes a cell that begins with one of these for a formula, unless a quote comes first.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def _quoted(value: Any) -> Any:
    """Put a quote before a text that a spreadsheet would take for a formula; return other values as they are."""
    if not isinstance(value, str) or not value.lstrip("'").startswith(_FORMULA) or _is_number(value):
        return value
    return f"'{value}"


def _unquoted(cell: str) -> str:
    return cell[1:] if cell.startswith("'") and cell.lstrip("'").startswith(_FORMULA) else cell


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    # A tab before a number would begin a formula.
    return text.isprintable()


def check_parquet(base_dir: Path) -> None:
    """Refuse to go on without the extra `parquet` where there is a ``results.parquet``, which would miss later trials.

    Raises:
        DependencyNotInstalled: As said.
    """
    if (path := base_dir / PARQUET).is_file():
        with extra(f"going on with {path}", "parquet"):
            import pyarrow.parquet  # noqa: F401


def _write_parquet(path: Path, columns: list[str], table: list[dict[str, Any]]) -> None:
    """Write the table, if the extra `parquet` is installed."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        return
    arrays = pyarrow.table({name: _of_one_type([row[name] for row in table]) for name in columns})
    write_atomically(path, partial(parquet.write_table, arrays))


def _of_one_type(values: list[Any]) -> list[Any]:
    """Return values as text if they are of several types: a column has one type, and its text is UTF-8."""
    # A path may be no text; what is none of it is written as an escape.
    values = [each.encode("utf-8", "backslashreplace").decode() if isinstance(each, str) else each for each in values]
    kinds = {float if isinstance(value, int) and not isinstance(value, bool) else type(value) for value in values}
    return values if len(kinds - {type(None)}) <= 1 else [None if value is None else str(value) for value in values]


def read_rows(base_dir: Path) -> list[dict[str, Any]]:
    """Return the table of a sweep's directory, from its trials, so that a running sweep can be plotted too.

    Raises:
        ValueError: There is no sweep, or no trial of it has finished.
    """
    plan, table = read_plan(base_dir), rows_of(base_dir)
    if not table:
        failed = sum(trial_status(Path(base_dir) / "trials" / each.name) == "failed" for each in plan.trials())
        if failed:
            remedy = f", and {failed} have failed: mend the cause, and run it again with --retry-failed"
        else:
            remedy = ": let it run until one has; the command that began it continues it"
        raise ValueError(f"{base_dir}: no trial of this sweep has finished yet{remedy}")
    return table


def rows_of(base_dir: Path) -> list[dict[str, Any]]:
    """Return the table of a sweep's directory; empty where no trial has finished."""
    return list(_rows(Path(base_dir), read_plan(base_dir)))


def read_subject(base_dir: Path) -> str:
    """Return a sweep's subject, such as ``CartPole-v1, DQNAgent``; empty where its trials have written none.

    Environments, or agents, are left out if there are too many for a title, and environments where a trial was taken
    from another sweep's table, which does not say what it played.
    """
    runs = [read_facts(directory) for _, directory in _finished(base_dir, read_plan(base_dir))]
    found = []
    for name in ("environment", "agent") if all(runs) else ("agent",):
        words = dict.fromkeys(name_in(run[name]) for run in runs if run)
        # Players that do not learn are lines across the figure, with names of their own.
        learning = [word for word in words if word not in ("RandomAgent", "NoopAgent")]
        if 0 < len(learning) <= _MOST_NAMED:
            found.append(" and ".join(learning))
    return ", ".join(found)


def read_frame_rate(base_dir: Path) -> float | None:
    """Return the frames per second of the trials' environments; None where they differ, or have said none."""
    told = {read_facts(directory).get(FRAME_RATE) for _, directory in _finished(base_dir, read_plan(base_dir))}
    words = told.pop() if len(told) == 1 else None
    return None if words is None else float(words.split()[0])


def write_manifest(base_dir: Path, jobs: int | None, engine: str = "local") -> None:
    """Add this start to ``manifest.json``: versions, command, git revision and machine."""
    path = base_dir / MANIFEST
    starts = json.loads(path.read_text())["starts"] if path.is_file() else []
    start = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": sys.argv,
        "engine": engine,
        "jobs": jobs,
        "revision": _revision(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "machine": {"system": platform.platform(), "processor": _processor(), "cores": cores()},
    }
    write_text_atomically(path, json.dumps({"starts": [*starts, start]}, indent=1) + "\n")


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _revision() -> str | None:
    """Return the git revision of this clone, with a mark if files have changed; None if it is no clone."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _processor() -> str:
    """Return the processor's name, or its architecture if the system has no name for it."""
    path = Path("/proc/cpuinfo")
    for line in path.read_text().splitlines() if path.is_file() else []:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


# Trackers: TensorBoard and Weights & Biases (the extra `wandb`).


def check_wandb(project: str | None) -> None:
    """Refuse a project of Weights & Biases if its library is missing.

    Raises:
        DependencyNotInstalled: There is a project, and the extra `wandb` is not installed.
    """
    if project is not None:
        with extra("Sweep.wandb_project", "wandb"):
            import wandb  # noqa: F401


def write_to_trackers(base_dir: Path, plan: SweepPlan, project: str | None) -> None:
    """Write each finished trial's point and numbers, once, for ``tensorboard --logdir base_dir/trials``.

    With a project of Weights & Biases, send them there too, once: a run each, in a group with the sweep's name.
    """
    for trial, directory in _finished(base_dir, plan):
        if not any((directory / TENSORBOARD).glob(f"*{HPARAMS}")):
            _write_hparams(trial, directory)
    if project is not None:
        group = printable(base_dir.resolve().name)
        for trial, directory in _finished(base_dir, plan):
            if not (directory / WANDB).is_file():
                _send(trial, directory, project=project, group=group, name=f"{group}/{trial.name}", dir=str(base_dir))


def _write_hparams(trial: Trial, directory: Path) -> None:
    # PyTorch's writer would import all of PyTorch.
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams.summary_v2 import hparams_pb
    from tensorboard.summary.writer.record_writer import RecordWriter

    point = _point(trial).items()
    shown = {key: value if isinstance(value, bool | int | float) else printable(value) for key, value in point}
    last = _last_numbers(directory).items()
    scalars = [Summary.Value(tag=f"sweep/{metric}", simple_value=value) for metric, value in last]
    with open(new_events(directory / TENSORBOARD, HPARAMS), "wb") as file:
        records = RecordWriter(file)
        records.write(Event(wall_time=time.time(), file_version="brain.Event:2").SerializeToString())
        for summary in (hparams_pb(shown, trial_id=trial.name), Summary(value=scalars)):
            records.write(Event(wall_time=time.time(), summary=summary).SerializeToString())


def _send(trial: Trial, directory: Path, **about: str) -> None:
    import wandb

    run = wandb.init(config=_point(trial), **about)
    series = {name: value for name, value in _metrics(directory).items() if isinstance(value, list)}
    for step in range(max(map(len, series.values()), default=0)):
        run.log({name: values[step] for name, values in series.items() if step < len(values)}, step=step)
    run.summary.update(_last_numbers(directory))
    run.finish()
    write_text_atomically(directory / WANDB, f"{run.id}\n")


def _point(trial: Trial) -> dict[str, Any]:
    """Return the arm, the values and the seed's number of a trial, by name."""
    arm = {"arm": trial.arm} if trial.arm else {}
    return {**arm, **{key: plain(value) for key, value in trial.bindings.items()}, "seed": trial.seed_number}


def _last_numbers(directory: Path) -> dict[str, float]:
    """Return a number per metric; of a metric with several iterations, the last."""
    series = {name: value if isinstance(value, list) else [value] for name, value in _metrics(directory).items()}
    return {name: values[-1] for name, values in series.items() if values and math.isfinite(values[-1])}

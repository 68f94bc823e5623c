"""The terminal's face of the same records: drawn anew every two seconds, or once where the output is no terminal."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live as Screen
from rich.panel import Panel as Box
from rich.table import Table
from rich.text import Text

from async_wrappers.agents.experiment.metrics import name_in
from async_wrappers.agents.timing import duration
from async_wrappers.agents.watch.charts import short
from async_wrappers.agents.watch.checked_values import clean
from async_wrappers.agents.watch.curves import Panel, panels_of, rates_of, scalars_of, times_of
from async_wrappers.agents.watch.last_shown import LiveSnapshot
from async_wrappers.agents.watch.machine_load import Processes
from async_wrappers.agents.watch.recording import RecordingNow
from async_wrappers.agents.watch.watched_run import RUNNING, WatchedRun
from async_wrappers.agents.watch.watched_sweep import SweepNow
from async_wrappers.agents.watch.watcher import Overview, Watcher

EVERY = 2.0  # seconds
_BLOCKS = "▁▂▃▄▅▆▇█"
_COLOURS = {"running": "green", "finished": "blue", "stopped": "dim", "waiting": "dim", "failed": "red"}
_MOST_POINTS = 30  # of a sweep's grid


def show(watcher: Watcher, console: Console | None = None) -> None:
    """Show what is read until the process is interrupted; once where the output is no terminal."""
    console = console or Console(highlight=False)
    if not console.is_terminal:
        console.print(shown(watcher.read()))
        return
    with Screen(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as screen:
        while True:
            screen.update(shown(watcher.read()), refresh=True)
            time.sleep(EVERY)


def shown(overview: Overview) -> Group:
    """Return everything that is known, for a terminal."""
    return Group(*_parts(overview))


def _parts(overview: Overview) -> Iterator[RenderableType]:
    for problem in overview.sentences():
        yield Text(problem, "red")
    for sweep in overview.sweeps:
        yield _sweep(sweep)
    for recording in overview.recordings:
        yield _recording(recording)
    if overview.only is not None:
        yield _run(overview.only, overview.processes.get(overview.only.directory))
    elif overview.runs:
        yield _runs(overview.runs)
        begun = [run for run in overview.runs if run.recorded.lines]
        if begun:
            yield _curves(panels_of(begun))
        for run in overview.runs:
            if run.live is not None and run.state == RUNNING:
                yield Box(_live(run.live), title=Text(run.name), title_align="left")
    yield _machine(overview)


def _run(run: WatchedRun, processes: Processes | None) -> RenderableType:
    now, facts = run.progress, run.recorded.facts
    names = ("environment", "agent", "delay", "device", "seed")
    lines: list[RenderableType] = [Text(", ".join(f"{name} {facts[name]}" for name in names if name in facts), "dim")]
    words = [f"iteration {now.done} of {now.iterations}" if now.iterations else f"{now.done} iterations"]
    words += [f"{now.frames:,} training frames", f"{len(run.episodes):,} episodes"]
    words += [f"{short(now.pace)} frames/s"] if now.pace is not None and run.live is None else []
    words += [f"{duration(now.seconds)} so far"] if now.seconds else []
    words += [f"about {duration(now.left)} left"] if now.left is not None and run.state == RUNNING else []
    if processes is not None:
        words.append(
            f"{processes.cores:.1f} cores and {processes.memory / 2**30:.1f} GB in {processes.count} processes"
        )
    lines.append(Text(", ".join(words)))
    if now.share is not None:
        lines.append(_bar(now.share))
    lines.append(_curves([*panels_of([run]), *rates_of(run), *scalars_of(run)]))
    if times := times_of(run):
        whole = sum(times.values())
        lines.append(Text("time: " + ", ".join(f"{name} {seconds / whole:.0%}" for name, seconds in times.items())))
    if run.live is not None:
        lines.append(_live(run.live))
    elif run.episodes:
        newest = [f"{each.phase} {each.episode}: {_part(each.score, '.5g')}" for each in run.episodes[-4:]]
        lines.append(Text("newest episodes: " + ", ".join(newest)))
    if run.hosts:
        lines.append(Text("blocks: " + ", ".join(f"host {each.name} {each.blocks}" for each in run.hosts)))
    if run.video is not None:
        lines.append(Text(clean(f"video: {run.directory / run.video.name}"), "dim"))
    title = Text.assemble(run.name, " ", (run.state, _COLOURS[run.state]))
    return Box(Group(*lines), title=title, title_align="left")


def _bar(share: float, width: int = 60) -> Text:
    done = round(share * width)
    return Text.assemble(("━" * done, "cyan"), ("━" * (width - done), "dim"), f" {share:.0%}")


def _curves(panels: Sequence[Panel]) -> Table:
    """Return a row for each curve: its course, and its newest value with the interval; names stand below a title."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(overflow="fold", max_width=44)
    for panel in panels:
        drawn = [curve for curve in panel.curves if curve.points]
        if any(curve.name for curve in drawn):
            table.add_row(Text(panel.title))
        for curve in drawn:
            last = curve.points[-1]
            interval = f" [{last.low:.4g}, {last.high:.4g}]" if last.low < last.high else ""
            name = Text(f"  {curve.name}" if curve.name else panel.title)
            course = Text(_spark([point.value for point in curve.points]), "cyan", no_wrap=True)
            table.add_row(name, course, f"{last.value:.4g}{interval}")
    return table


def _spark(values: Sequence[float], width: int = 30) -> str:
    """Return values as blocks of eight heights; of more than fit, an even choice with the last one."""
    if len(values) > width:
        values = [values[round(place * (len(values) - 1) / (width - 1))] for place in range(width)]
    low, span = min(values), max(max(values) - min(values), 1e-12)
    return "".join(_BLOCKS[min(int((value - low) / span * 8), 7)] for value in values)


def _shares(shares: Mapping[str, float | None]) -> str:
    return ", ".join(f"{_part(share, '.1%')} {name}" for name, share in shares.items())


def _part(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _live(now: LiveSnapshot) -> RenderableType:
    recent, facts = now.recent, now.facts
    state = "the phase has ended" if now.over else f"no frame for {duration(now.age)}" if now.age > 5 else "live"
    words = [
        f"{state}: {_shares(now.recent_shares)} in 5 s ({_shares(now.shares)} in the phase)",
        f"{_part(recent['delay_frames']['mean'], '.1f')} frames old",
        f"{recent['late']} late in 5 s, {facts['late']} in the phase",
        f"p99 {_part(recent['lateness_ms']['p99'], '.2f')} ms",
        f"{_part(recent['latency_ms']['mean'], '.0f')} ms an inference",
        f"{_part(recent['fps'], '.2f')} of {facts['fps']:g} frames/s",
        f"return so far {_part(facts['score'], '.4g')}",
    ]
    lines = [Text(", ".join(words))]
    width = 56

    def place(ms: float) -> int:
        return int(min(max(ms / 1000 / now.seconds, 0.0) * width, width - 1))

    for worker in sorted({worker for worker, *_ in now.inferences})[:16]:
        row = [" "] * width
        for who, began, ended, applied in now.inferences:
            if who == worker and ended > 0:
                first, last = place(began), place(ended)
                row[first : last + 1] = ("█" if applied else "░") * (last - first + 1)
        lines.append(Text.assemble((f"worker {worker:>2} ", "dim"), ("".join(row), "cyan")))
    marks = [" "] * width
    for began, age in now.frames:
        marks[place(began)] = "·" if age is None else "▮"
    for chunk in now.chunks:
        marks[place(now.frames[chunk][0])] = "▯"
    going = "▯ going chunk, " if now.facts.get("chunk") else ""
    legend = (f"  ▮ new decision, {going}· default action", "dim")
    lines.append(Text.assemble(("frames    ", "dim"), ("".join(marks), "cyan"), legend))
    return Group(*lines, _ages(recent["ages"]))


def _recording(found: RecordingNow) -> RenderableType:
    lines = [Text.assemble((f"{name:<10} ", "dim"), words) for name, words in found.lines.items()]
    title = Text.assemble(found.name, " ", ("recording", "blue"))
    return Box(Group(*lines, _ages(found.ages)), title=title, title_align="left")


def _ages(counts: Mapping[Any, int]) -> Text:
    whole = max(sum(counts.values()), 1)
    ages = ", ".join(f"{age}: {count / whole:.0%}" for age, count in list(counts.items())[:12])
    return Text(f"ages in frames: {ages or '-'}")


def _sweep(sweep: SweepNow) -> RenderableType:
    done = sweep.counts.get("finished", 0)
    words = [f"{done} of {sweep.total} trials finished"]
    words += [
        f"{sweep.counts[name]} {name}" for name in ("running", "waiting", "stopped", "failed") if sweep.counts.get(name)
    ]
    words += [f"about {duration(sweep.left)} left"] if sweep.left is not None else []
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(overflow="fold", ratio=1)
    table.add_column(overflow="fold", ratio=1)
    for point in sweep.points[:_MOST_POINTS]:
        cells = [
            (f"{each.state if each.score is None else format(each.score, '.6g')}  ", _COLOURS[each.state])
            for each in point.trials
        ]
        table.add_row(Text(point.name), Text.assemble(*cells))
    more = [Text(f"{len(sweep.points) - _MOST_POINTS} more points", "dim")] if len(sweep.points) > _MOST_POINTS else []
    bar = _bar(done / max(sweep.total, 1))
    title = Text.assemble(sweep.name, " ", (sweep.state, _COLOURS[sweep.state]))
    return Box(Group(Text(", ".join(words)), bar, table, *more), title=title, title_align="left")


def _runs(runs: Iterable[WatchedRun]) -> Table:
    table = Table("run", "", "iterations", "frames", "return", "left", "environment, agent, delay", box=None)
    for run in runs:
        now, facts, last = run.progress, run.recorded.facts, run.last
        score = last.get("eval_average_return", last.get("train_average_return"))
        what = [name_in(facts[name]) for name in ("environment", "agent", "arm", "delay") if name in facts]
        table.add_row(
            Text(run.name),
            Text(run.state, _COLOURS[run.state]),
            f"{now.done}/{now.iterations}" if now.iterations else str(now.done),
            short(now.frames),
            "-" if score is None else f"{score:.4g}",
            duration(now.left) if now.left is not None and run.state == RUNNING else "",
            Text(", ".join(what), "dim"),
        )
    return table


def _machine(overview: Overview) -> Text:
    load = overview.machine
    cores = "".join(_BLOCKS[min(int(core * 8), 7)] for core in load.processor)
    words = [f"machine: {sum(load.processor):.1f} of {len(load.processor)} cores {cores}"]
    words.append(f"{load.used / 2**30:.1f} of {load.total / 2**30:.1f} GB")
    words += [f"{card.name} {card.busy:.0%}, {card.used / 2**30:.1f} GB" for card in load.cards]
    return Text(", ".join(words), "dim")

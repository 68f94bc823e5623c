"""The picture of a timing report: who inferred when, which actions took effect, and how delays and intervals lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from async_wrappers.analysis.timeline import DROPPED, EFFECT, INFERENCE, MOST_ROWS, WAIT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from async_wrappers.live.report.spans import Span

__all__ = ["timing_picture"]

_HISTOGRAM: dict[str, Any] = {"facecolor": "0.8", "edgecolor": "black", "linewidth": 0.8}
_MOST_BINS = 60


def timing_picture(
    spans: Sequence[Span], workers: int, frames: Mapping[str, int], begin: float = 0.0, seconds: float = 1.0
) -> Figure:
    """Draw a run: a row for each worker, a bar for each inference, a triangle where its action took effect.

    Args:
        spans: Inferences.
        workers: How many there were.
        frames: Counts of frames: ``total``, and ``fresh`` for those that received an action.
        begin: From where on in the run the time line is drawn, in seconds.
        seconds: How much of it. The histograms, of delay and of interval, are of the whole run.

    Returns:
        The matplotlib figure.

    Raises:
        ValueError: `seconds` is not positive.
    """
    from matplotlib.figure import Figure

    if not seconds > 0:
        raise ValueError(f"seconds must be > 0 to be drawn, got {seconds}")
    rows = min(workers, MOST_ROWS) + 2
    figure = Figure(figsize=(10, 3.4 + 0.29 * rows), layout="constrained")
    panels = figure.subplot_mosaic([["workers", "workers"], ["delay", "interval"]], height_ratios=[0.29 * rows, 2])
    _draw_workers(panels["workers"], spans, workers, begin, seconds)
    fresh = frames["fresh"] / max(frames["total"], 1)
    title = f"{fresh:.1%} of {frames['total']:,} frames received an action"
    panels["workers"].set_title(title, loc="left", fontsize=10)
    delays = [span.effect - span.start for span in spans if span.effect is not None]
    _draw_histogram(panels["delay"], "delay", "frames", delays, 1.0)
    _draw_histogram(panels["interval"], "interval", "ms", _intervals(spans), None)
    figure.legend(handles=_legend(), loc="outside lower center", ncols=4, fontsize=9)
    return figure


def _legend() -> list[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    return [
        Patch(label="inference", **INFERENCE),
        Patch(label="inference whose action was never applied", **DROPPED),
        Line2D([], [], label="action waits", **WAIT),
        Line2D([], [], label="action takes effect", **EFFECT),
    ]


def _draw_workers(ax: Axes, spans: Sequence[Span], workers: int, begin: float, seconds: float) -> None:
    end = begin + seconds
    shown = min(workers, MOST_ROWS)
    for span in spans:
        last = span.ended if span.applied is None else span.applied
        if span.worker < shown and span.began / 1e9 < end and last / 1e9 > begin:
            _draw_inference(ax, span)
    every = max(1, shown // 10)
    ax.set_yticks(range(0, shown, every))
    ax.set_ylim(shown - 0.2, -0.8)
    ax.set_xlim(begin, end)
    ax.set_xlabel("seconds")
    ax.set_ylabel("worker" if workers == shown else f"worker (first {shown} of {workers})")
    ax.grid(axis="x", color="0.85", linewidth=0.6)
    ax.set_axisbelow(True)


def _draw_inference(ax: Axes, span: Span) -> None:
    began, ended = span.began / 1e9, span.ended / 1e9
    row, above = span.worker + 0.15, span.worker - 0.27
    ax.barh(row, ended - began, left=began, height=0.42, zorder=3, **(DROPPED if span.applied is None else INFERENCE))
    if span.applied is not None:
        applied = span.applied / 1e9
        ax.plot([ended, ended, applied], [row - 0.21, above, above], zorder=3, **WAIT)
        ax.plot(applied, above, zorder=4, **EFFECT)


def _intervals(spans: Sequence[Span]) -> list[float]:
    """Return the milliseconds between two applied actions of an episode."""
    applied = sorted((span.episode, span.applied) for span in spans if span.applied is not None)
    return [(now - before) / 1e6 for (episode, before), (same, now) in pairwise(applied) if episode == same]


def _draw_histogram(ax: Axes, name: str, unit: str, values: Sequence[float], width: float | None) -> None:
    """Draw how values lie; bars of a whole `width` where there is one and the range allows it."""
    import numpy as np
    from matplotlib.ticker import MaxNLocator

    ax.set_xlabel(f"{name} ({unit})")
    ax.set_ylabel("actions")
    if not values:
        ax.set_title(f"{name}: no action took effect", loc="left", fontsize=10)
        return
    low, high = min(values), max(values)
    margin = width or max((high - low) / _MOST_BINS, 0.5)
    bins: Any = np.arange(low - margin / 2, high + margin, margin)
    if len(bins) > 2 * _MOST_BINS:
        bins = _MOST_BINS
    ax.hist(values, bins=bins, **_HISTOGRAM)
    ax.set_xlim(low - 3 * margin, high + 3 * margin)
    if width is not None:
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_title(f"mean {np.mean(values):.2f}, p99 {np.percentile(values, 99):.2f} {unit}", loc="left", fontsize=10)

"""The picture of a live run: a row for each worker, and histograms of ages and intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from async_wrappers.analysis.timeline import DROPPED, EFFECT, INFERENCE, MOST_ROWS, WAIT, draw_inference
from async_wrappers.extras import extra
from async_wrappers.live.report.ages import GAP
from async_wrappers.live.report.shares import told

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from async_wrappers.live.report.journey import Span


_HISTOGRAM: dict[str, Any] = {"facecolor": "0.8", "edgecolor": "black", "linewidth": 0.8}
_MOST_BINS = 60
_PAUSE: dict[str, Any] = {"facecolor": "none", "edgecolor": "0.6", "hatch": "//", "linewidth": 0, "zorder": 0}


def timing_picture(
    spans: Sequence[Span],
    workers: int,
    frames: Mapping[str, int],
    begin: float = 0.0,
    seconds: float = 1.0,
    pauses: Sequence[tuple[int, int]] = (),
    gap: tuple[float, float] | None = None,
    gap_in_words: str = "",
) -> Figure:
    """Draw a run: a row for each worker, a bar for each inference, a triangle where its action took effect.

    Args:
        spans: Inferences.
        workers: How many there were.
        frames: Counts of frames, as in the report.
        begin: First second of the run that the time line shows.
        seconds: Length of the time line. The histograms, of delay, of interval and, where there were learners, of lag,
            are of the whole run.
        pauses: When each pause began and ended, in nanoseconds.
        gap: First and last second of the longest gap without an action of the policy's; None if there is none.
        gap_in_words: How long it was, and when.

    Returns:
        The matplotlib figure.

    Raises:
        ValueError: `seconds` is not positive.
    """
    with extra("a picture", "plot"):
        from matplotlib.figure import Figure
        from matplotlib.lines import Line2D
        from matplotlib.patches import Patch

    if not seconds > 0:
        raise ValueError(f"seconds must be > 0 to be drawn, got {seconds}")
    rows = min(max(workers, 1), MOST_ROWS) + 2
    figure = Figure(figsize=(10, 3.4 + 0.29 * rows), layout="constrained")
    lags = [span.lag for span in spans if span.lag is not None]
    histograms: list[Any] = ["delay", "interval", *(["lag"] if lags else [])]
    mosaic: list[Any] = [["workers"] * len(histograms), histograms]
    panels = figure.subplot_mosaic(mosaic, height_ratios=[0.29 * rows, 2])
    _draw_workers(panels["workers"], spans, workers, begin, seconds)
    for since, until in pauses:
        panels["workers"].axvspan(since / 1e9, until / 1e9, **_PAUSE)
    paused = f"{frames['paused']:,} of " if frames.get("paused") else ""
    of = " frames paused; of the others" if paused else " frames:"
    title = f"{paused}{frames['total']:,}{of} {told(frames)}"
    if gap is not None:
        title += f"\nlongest gap: {gap_in_words}"
        panels["workers"].axvspan(*gap, **GAP)
    panels["workers"].set_title(title, loc="left", fontsize=10)
    delays = [span.effect - span.start for span in spans if span.effect is not None]
    _draw_histogram(panels["delay"], "delay", "frames", delays, 1.0)
    _draw_histogram(panels["interval"], "interval", "ms", _intervals(spans, pauses), None)
    if lags:
        _draw_histogram(panels["lag"], "lag", "updates", lags, 1.0)
    handles = [
        Patch(label="inference", **INFERENCE),
        Patch(label="inference whose action was never applied", **DROPPED),
        Line2D([], [], label="action waits", **WAIT),
        Line2D([], [], label="action takes effect", **EFFECT),
        *([Patch(label="pause", **_PAUSE)] if pauses else []),
        *([Patch(label="longest gap", **GAP)] if gap is not None else []),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=9)
    return figure


def ages_picture(draw: Callable[[Axes, Axes], None], gap_in_words: str) -> Figure:
    """Draw both ages over time, and tell the longest gap, if there was one."""
    with extra("a picture", "plot"):
        from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.8), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    draw(above, below)
    below.set_xlabel("seconds")
    if gap_in_words:
        figure.suptitle(f"longest gap: {gap_in_words}", x=0.01, ha="left", fontsize=10)
    return figure


def _draw_workers(ax: Axes, spans: Sequence[Span], workers: int, begin: float, seconds: float) -> None:
    end = begin + seconds
    in_loop, workers = workers == 0, max(workers, 1)
    shown = min(workers, MOST_ROWS)
    for span in spans:
        last = span.ended if span.applied is None else span.applied
        if span.worker < shown and span.began / 1e9 < end and last / 1e9 > begin:
            applied = None if span.applied is None else span.applied / 1e9
            draw_inference(ax, span.worker, span.began / 1e9, span.ended / 1e9, applied, dropped=applied is None)
    every = max(1, shown // 10)
    ax.set_yticks(range(0, shown, every))
    ax.set_ylim(shown - 0.2, -0.8)
    ax.set_xlim(begin, end)
    ax.set_xlabel("seconds")
    ax.set_ylabel("loop" if in_loop else "worker" if workers == shown else f"worker (first {shown} of {workers})")
    ax.grid(axis="x", color="0.85", linewidth=0.6)
    ax.set_axisbelow(True)


def _intervals(spans: Sequence[Span], pauses: Sequence[tuple[int, int]]) -> list[float]:
    """Return the milliseconds between two applied actions of an episode, unless a pause lies between them."""
    applied = sorted((span.episode, span.applied) for span in spans if span.applied is not None)
    return [
        (now - before) / 1e6
        for (episode, before), (same, now) in pairwise(applied)
        if episode == same and not any(before < begin <= now for begin, _ in pauses)
    ]


def _draw_histogram(ax: Axes, name: str, unit: str, values: Sequence[float], width: float | None) -> None:
    """Draw a histogram; bars have a whole multiple of `width` where the range allows it."""
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

"""`timeline`: a picture of who infers when, and which frames receive an action."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from async_wrappers.checks import whole_frames
from async_wrappers.extras import extra
from async_wrappers.files import path_of, write_figure
from async_wrappers.schedule.simulated import SimulatedSchedule

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_ROWS = 24  # workers in a picture


def timeline(
    schedule: SimulatedSchedule | Mapping[str, SimulatedSchedule], frames: int = 40, path: str | Path | None = None
) -> Figure:
    """Draw who infers when, in an episode's first frames, and which frames receive an action.

    A row is a worker, a bar one inference from start to finish, a triangle the frame on which its action takes effect,
    the dotted line between them its wait. A dashed bar's action was dropped. Frames on which the default action was
    applied are hatched. Needs matplotlib.

    Args:
        schedule: The schedule to draw, or several by title, one below the other. A new episode of each is begun.
        frames: How many frames are drawn.
        path: Where to save the picture too; the ending names the format.

    Returns:
        The matplotlib figure.

    Raises:
        ValueError: `frames` is not a whole number >= 1, or there is no schedule.
    """
    with extra("a picture", "plot"):
        from matplotlib.figure import Figure

    if whole_frames("frames", frames) == 0:
        raise ValueError("frames must be >= 1 to be drawn, got 0")
    panels = schedule if isinstance(schedule, Mapping) else {"": schedule}
    if not panels:
        raise ValueError("schedule must be one or several by title, got an empty mapping")
    rows = [min(each.workers, MOST_ROWS) + 2 for each in panels.values()]
    figure = Figure(figsize=(10, 0.6 + 0.7 * len(rows) + 0.29 * sum(rows)), layout="constrained")
    axes = figure.subplots(len(rows), 1, squeeze=False, height_ratios=rows)[:, 0]
    for ax, (title, each) in zip(axes, panels.items(), strict=True):
        _draw(ax, title, each, frames)
    axes[-1].set_xlabel("frame")
    figure.legend(handles=_legend(), loc="outside lower center", ncols=3, fontsize=9)
    if path is not None:
        write_figure(path_of(path), figure)
    return figure


INFERENCE: dict[str, Any] = {"facecolor": "0.8", "edgecolor": "black", "linewidth": 0.8}
DROPPED: dict[str, Any] = {**INFERENCE, "facecolor": "white", "linestyle": "--"}
WAIT: dict[str, Any] = {"color": "black", "linestyle": ":", "linewidth": 1.2}
EFFECT: dict[str, Any] = {"color": "black", "marker": "v", "markersize": 5, "linestyle": "none"}
_FRESH: dict[str, Any] = {"facecolor": "black", "edgecolor": "black", "linewidth": 0.5}
_DEFAULT: dict[str, Any] = {**_FRESH, "facecolor": "white", "hatch": "////"}


def _legend() -> list[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    return [
        Patch(label="inference", **INFERENCE),
        Patch(label="inference whose action is dropped", **DROPPED),
        Line2D([], [], label="action waits", **WAIT),
        Line2D([], [], label="action takes effect", **EFFECT),
        Patch(label="frame with an action", **_FRESH),
        Patch(label="frame with the default action", **_DEFAULT),
    ]


def _draw(ax: Axes, title: str, schedule: SimulatedSchedule, frames: int) -> None:
    log = schedule.keep_log()
    effects = {  # by the frame it reads, and who: a frame may be read by several
        applied: frame for frame, (applied, _) in enumerate(islice(schedule.steps(), frames)) if applied is not None
    }
    newest = max((start for start, _ in effects), default=-1)
    shown, per_ns = min(schedule.workers, MOST_ROWS), schedule.clock.fps / 1_000_000_000
    for inference in log:
        if inference.worker < shown:
            effect = effects.get((inference.start, inference.worker))
            dropped = effect is None and inference.start < newest
            began, ended = (float(time * per_ns) for time in (inference.started, inference.finished))
            draw_inference(ax, inference.worker, began, ended, effect, dropped, clip=False)
    _draw_defaults(ax, set(effects.values()), frames, shown)
    _set_axes(ax, schedule.workers, shown, frames)
    fresh = len(effects) / frames
    ax.set_title(
        f"{title}{': ' if title else ''}{fresh:.0%} of these frames receive an action", loc="left", fontsize=10
    )


def draw_inference(
    ax: Axes, worker: int, began: float, ended: float, effect: float | None, dropped: bool, clip: bool = True
) -> None:
    """Draw a bar from start to finish in a worker's row; then its action's wait, and where it takes effect."""
    row, above = worker + 0.15, worker - 0.27
    ax.barh(row, ended - began, left=began, height=0.42, zorder=3, **(DROPPED if dropped else INFERENCE))
    if effect is not None:
        ax.plot([ended, ended, effect], [row - 0.21, above, above], zorder=3, **WAIT)
        ax.plot(effect, above, zorder=4, clip_on=clip, **EFFECT)


def _draw_defaults(ax: Axes, fresh: set[int], frames: int, bottom: int) -> None:
    """Draw a row below the workers: frames with the default action hatched, the others black."""
    for is_fresh, run in groupby(range(frames), fresh.__contains__):
        first, *rest = run
        ax.barh(bottom + 0.2, len(rest) + 1, left=first, height=0.5, zorder=3, **(_FRESH if is_fresh else _DEFAULT))


def _set_axes(ax: Axes, workers: int, shown: int, frames: int) -> None:
    every = max(1, shown // 10)
    ticks = list(range(0, shown, every))
    ax.set_yticks([*ticks, shown + 0.2], [*map(str, ticks), "frame"])
    ax.set_ylim(shown + 0.8, -0.8)
    ax.set_xlim(0, frames)
    ax.set_ylabel("worker" if workers == shown else f"worker (first {shown} of {workers})")
    if frames <= 120:
        ax.set_xticks(range(frames + 1), minor=True)
    ax.grid(axis="x", which="both", color="0.85", linewidth=0.6)
    ax.tick_params(which="minor", length=0)
    ax.set_axisbelow(True)

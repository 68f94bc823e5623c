"""The picture of workers and learners against parameters, beside those of the published live runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from async_wrappers.analysis.scaling import PUBLISHED, PUBLISHED_LIVE, UPDATE_INFERENCES, Processes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["PUBLISHED_TIMES", "scaling_picture"]

PUBLISHED_TIMES = f"inferences as published, an update of {UPDATE_INFERENCES} inferences"  # in a title

# Colours of Okabe and Ito's, lines and markers: they can be told apart in black and white too.
_ENOUGH: dict[str, Any] = {"color": "#0072B2", "linestyle": "-", "marker": "o"}
_RULE: dict[str, Any] = {"color": "#D55E00", "linestyle": "--", "marker": "s"}
_LEARNERS: dict[str, Any] = {"color": "#009E73", "linestyle": "-.", "marker": "D"}
_RAN: dict[str, Any] = {"linestyle": "none", "markerfacecolor": "white", "markersize": 10, "markeredgewidth": 1.5}


def scaling_picture(found: Sequence[Processes], title: str = "") -> Figure:
    """Draw workers and learners against parameters, and as open markers those of the published live runs.

    Needs matplotlib.

    Args:
        found: What `async_wrappers.analysis.scaling.processes_needed` returned.
        title: What is above it.

    Returns:
        The matplotlib figure.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.9), layout="constrained")
    axes = figure.subplots()
    lines = {
        "workers: the usual rule, mean inference time x frame rate, rounded up": (
            _RULE,
            [(each.network.parameters, each.need.mean_rule) for each in found],
        ),
        "workers: enough for a fresh action on 99 % of the frames": (
            _ENOUGH,
            [(each.network.parameters, each.need.enough.workers) for each in found if each.need.enough],
        ),
        "learners: mean update time x frame rate, for an update on each frame": (
            _LEARNERS,
            [(each.network.parameters, each.learners) for each in found if each.learners is not None],
        ),
    }
    for label, (style, points) in lines.items():
        axes.plot(*_columns(points), label=label, markersize=5, linewidth=1.5, **style)
    size = {network.name: network.parameters for network in PUBLISHED}
    ran = [(size[name], *processes) for name, processes in PUBLISHED_LIVE.items()]
    for label, style, points in (
        ("workers of the published live runs", _RULE, [(parameters, workers) for parameters, workers, _ in ran]),
        ("learners of the published live runs", _LEARNERS, [(parameters, learners) for parameters, _, learners in ran]),
    ):
        look = {"marker": style["marker"], "markeredgecolor": style["color"], "zorder": 1, **_RAN}
        axes.plot(*_columns(points), label=label, **look)
    axes.set(xscale="log", yscale="log", xlabel="parameters", ylabel="processes")
    axes.yaxis.set_major_formatter("{x:g}")
    names = {each.network.parameters: each.network.name for each in found}
    axes.set_xticks(list(names), list(names.values()), fontsize="small")
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    figure.legend(loc="outside lower center", ncols=1, frameon=False, fontsize="small")
    figure.suptitle(title, fontsize="small", color="0.3")
    return figure


def _columns(points: Sequence[tuple[int, int]]) -> tuple[list[int], list[int]]:
    return [x for x, _ in points], [y for _, y in points]

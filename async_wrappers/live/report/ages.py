"""Ages over time: of the observation behind the last action, and of each reading as its inference begins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from async_wrappers.live.report.journey import Span
    from async_wrappers.live.report.report import EpisodeTiming

Array = npt.NDArray[np.float64]


class Ages(NamedTuple):
    """Ages of a run; T frames of all episodes, I inferences.

    Attributes:
        times: When each frame began, in seconds of the run, `[T]`.
        behind: Age of the observation behind the newest action of the policy's on each frame, in seconds, `[T]`; nan
            before an episode's first one.
        began: When each inference began, in seconds of the run, `[I]`.
        read: Age that the observation had then, in seconds, `[I]`.
    """

    times: Array
    behind: Array
    began: Array
    read: Array


def times_of(episode: EpisodeTiming, fps: float) -> Array:
    """Return when each frame of an episode began, and when the one after the last would, in seconds of the run."""
    times = np.arange(episode.frames + 1) / fps
    for frame, moved in episode.moved:  # by so many nanoseconds in all, from this frame on
        times[frame:] = np.arange(frame, len(times)) / fps + moved / 1e9
    return times + episode.began / 1e9


def ages_of(episodes: Sequence[EpisodeTiming], spans: Sequence[Span], fps: float) -> Ages:
    """Return the ages of a run.

    Args:
        episodes: In order.
        spans: Inferences.
        fps: Frames per second that were asked for.
    """
    known = {episode.number: times_of(episode, fps) for episode in episodes}
    behind = {episode.number: np.full(episode.frames, np.nan) for episode in episodes}
    applied = sorted((span.episode, span.effect, span.start) for span in spans if span.effect is not None)
    for (number, effect, start), (following, end, _) in pairwise([*applied, (-1, 0, 0)]):
        times, until = known[number], end if following == number else None
        behind[number][effect:until] = (times[:-1] - times[start])[effect:until]
    began = np.array([span.began / 1e9 for span in spans])
    read = np.array([known[span.episode][span.start] for span in spans])
    return Ages(_joined(each[:-1] for each in known.values()), _joined(behind.values()), began, began - read)


def _joined(arrays: Iterable[Array]) -> Array:
    return np.concatenate([np.empty(0), *arrays])


def draw_ages(ages: Ages, above: Axes, below: Axes, gap: tuple[float, float] | None = None) -> None:
    """Draw both ages over time.

    Args:
        ages: Of a run.
        above: Where the age of the observation behind the last action is drawn, on a logarithmic scale.
        below: Where the age of readings is drawn.
        gap: First and last second of the longest gap without an action of the policy's; None if there is none.
    """
    from matplotlib.ticker import LogLocator

    known = ages.behind[ages.behind > 0] * 1000
    above.step(ages.times, np.where(ages.behind > 0, ages.behind * 1000, np.nan), where="post", color="tab:blue")
    above.set(yscale="log", ylabel="ms", title="Age of the observation behind the last action")
    if len(known):
        above.set_ylim(known.min() / 1.5, max(1000.0, 1.5 * known.max()))
    above.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    above.yaxis.set_major_formatter("{x:g}")
    above.tick_params(which="minor", labelleft=False)
    below.plot(ages.began, ages.read * 1000, ".", color="tab:green", markersize=3)
    below.set(ylabel="ms", title="Age of the reading when its inference begins")
    below.set_ylim(bottom=0)
    for axes in (above, below):
        axes.grid(alpha=0.3)
        if gap is not None:
            axes.axvspan(*gap, **GAP)


GAP: dict[str, Any] = {"facecolor": "#D55E00", "alpha": 0.15, "linewidth": 0, "zorder": 0}
"""How a picture shows the longest gap."""

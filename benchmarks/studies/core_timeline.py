"""Draw the time line of a core at release: who encodes, what is released when, and which way the states go.

python -m benchmarks.studies.core_timeline docs/core_timeline.png

The schedule is that of `SimulatedSchedule`: two workers that start two frames apart, inferences of three frames but
for one of seven, and actions that are due four frames after their start.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import chain, islice, repeat

from async_wrappers.analysis.timeline import DROPPED, INFERENCE, WAIT
from async_wrappers.schedule.simulated import Inference, SimulatedSchedule

FPS, FRAMES, WORKERS = 50, 14, 2
FRAME_NS = 1_000_000_000 // FPS
COLOURS = {0: "#4878d0", 2: "#ee854a", 6: "#6acc64", 8: "#956cb4"}  # of the decisions that are released, by start


class InOrder:
    """Three frames each, but the third inference seven; a little less, so that none ends as a frame begins."""

    mean = 3 / FPS

    def __init__(self) -> None:
        self._frames: Iterator[int] = chain((3, 3, 7), repeat(3))

    def stream(self, seed: object) -> InOrder:
        """Begin anew."""
        return InOrder()

    def draw(self) -> int:
        """Return the next latency in nanoseconds."""
        return next(self._frames) * FRAME_NS - FRAME_NS // 5


def played() -> tuple[list[Inference], list[tuple[int, int]]]:
    """Return the inferences, and (start, effect) of each decision that is released."""
    schedule = SimulatedSchedule(InOrder(), WORKERS, FPS, "tickets", playout=4, slot=2)
    log = schedule.keep_log()
    steps = enumerate(islice(schedule.steps(), FRAMES))
    return log, [(applied[0], frame) for frame, (applied, _) in steps if applied is not None]


def draw(path: str) -> None:
    """Draw the picture."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    log, released = played()
    effects, loop = dict(released), -1.1  # the loop's row; workers are 1 and 0 above it
    figure, axes = plt.subplots(figsize=(10, 3.7), dpi=110)
    for each in log:
        row, effect = WORKERS - 1 - each.worker, effects.get(each.start)
        began, ended = each.started / FRAME_NS, each.finished / FRAME_NS
        if effect is None and ended > FRAMES:
            continue
        is_dropped = effect is None and any(start > each.start for start in effects)
        axes.barh(row, ended - began, left=began, height=0.5, zorder=2, **(DROPPED if is_dropped else INFERENCE))
        words = f"encode $o_{{{each.start}}}$" + (", late: dropped" if is_dropped else "")
        axes.text((began + ended) / 2, row, words, ha="center", va="center", fontsize=8, zorder=3)
        if effect is not None:
            axes.plot([ended, ended, effect, effect], [row, row - 0.38, row - 0.38, loop + 0.33], zorder=1, **WAIT)
    for number, (start, effect) in enumerate(released):
        axes.text(
            effect,
            loop,
            f"release\n$h_{{{start}}}, a_{{{start}}}$",
            ha="center",
            va="center",
            fontsize=8,
            bbox={"boxstyle": "round,pad=0.25", "facecolor": "white", "edgecolor": COLOURS[start], "linewidth": 1.6},
        )
        if number:
            before = released[number - 1]
            axes.annotate("", (effect - 0.5, loop), (before[1] + 0.5, loop), arrowprops={"arrowstyle": "->"})
    first = released[0][1]
    axes.barh(loop - 0.85, first, left=0, height=0.4, color="#d0d0d0")
    for (start, effect), (_, end) in zip(released, [*released[1:], (0, FRAMES)], strict=True):
        axes.barh(loop - 0.85, end - effect, left=effect, height=0.4, color=COLOURS[start], alpha=0.35)
        axes.barh(loop - 0.85, 1, left=effect, height=0.4, color=COLOURS[start])
    for frame in range(FRAMES + 1):
        axes.axvline(frame, color="0.9", linewidth=0.6, zorder=0)
    names = {1: "worker 0", 0: "worker 1", loop: "environment loop", loop - 0.85: "the frame receives"}
    axes.set_yticks(list(names), list(names.values()), fontsize=9)
    axes.set_xticks([frame + 0.5 for frame in range(FRAMES)], [str(frame) for frame in range(FRAMES)], fontsize=8)
    axes.set_xlabel("frame", fontsize=9)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xlim(-0.1, FRAMES)
    figure.legend(
        handles=[
            Line2D([], [], label="features wait until the action is due", **WAIT),
            Line2D([], [], color="black", marker=">", markersize=4, label="state, action and reward go on"),
            Patch(color="grey", label="an action of the policy's"),
            Patch(color="grey", alpha=0.35, label="the default action; paid to the last one"),
            Patch(color="#d0d0d0", label="before the first: paid to the first"),
        ],
        loc="outside lower center",
        ncols=3,
        fontsize=8,
        frameon=False,
    )
    figure.set_layout_engine("constrained")
    figure.savefig(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", help="of the picture")
    draw(parser.parse_args().path)

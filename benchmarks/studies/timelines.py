"""Draw the time lines of a core at release and of chunks.

    python -m benchmarks.studies.timelines core docs/core_timeline.png
    python -m benchmarks.studies.timelines chunks docs/chunk_timeline.png

`core`: who encodes, what is released when, and which way the states go. The schedule is that of `SimulatedSchedule`:
two workers that start two frames apart, inferences of three frames but for one of seven, and actions that are due four
frames after their start.

`chunks`: what each decision reads, which of its entries are too late, which are executed. All that is drawn comes from
`RealtimeDelay`: starts, delays and executed entries of its info, and from `CommittedPrefix` what a policy is told while
it thinks.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import chain, islice, repeat
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from async_wrappers import Chunk, CommittedPrefix, RealtimeDelay
from async_wrappers.analysis.timeline import DROPPED, INFERENCE, WAIT
from async_wrappers.schedule.simulated import SimulatedInference, SimulatedSchedule
from benchmarks.measuring import parser_of

COLOURS = ("#4878d0", "#ee854a", "#6acc64", "#956cb4")  # of decisions
NOBODYS = "#d0d0d0"
WORDS: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8}

# A core at release.

FPS, FRAMES, WORKERS = 50, 14, 2
FRAME_NS = 1_000_000_000 // FPS


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


def released() -> tuple[list[SimulatedInference], list[tuple[int, int]]]:
    """Return the inferences, and (start, effect) of each decision that is released."""
    schedule = SimulatedSchedule(InOrder(), WORKERS, FPS, "tickets", playout=4, slot=2)
    log = schedule.keep_log()
    steps = enumerate(islice(schedule.steps(), FRAMES))
    return log, [(applied[0], frame) for frame, (applied, _) in steps if applied is not None]


def draw_core(path: str) -> None:
    """Draw a core at release."""
    log, decisions = released()
    effects, loop = dict(decisions), -1.1  # the loop's row; workers are 1 and 0 above it
    colours = dict(zip(effects, COLOURS, strict=True))
    figure = Figure(figsize=(10, 3.7), dpi=110, layout="constrained")
    axes = figure.add_subplot()
    for each in log:
        at, effect = WORKERS - 1 - each.worker, effects.get(each.start)
        began, ended = each.started / FRAME_NS, each.finished / FRAME_NS
        if effect is None and ended > FRAMES:
            continue
        is_dropped = effect is None and any(start > each.start for start in effects)
        axes.barh(at, ended - began, left=began, height=0.5, zorder=2, **(DROPPED if is_dropped else INFERENCE))
        words = f"encode $o_{{{each.start}}}$" + (", late: dropped" if is_dropped else "")
        axes.text((began + ended) / 2, at, words, zorder=3, **WORDS)
        if effect is not None:
            axes.plot([ended, ended, effect, effect], [at, at - 0.38, at - 0.38, loop + 0.33], zorder=1, **WAIT)
    for number, (start, effect) in enumerate(decisions):
        box = {"boxstyle": "round,pad=0.25", "facecolor": "white", "edgecolor": colours[start], "linewidth": 1.6}
        axes.text(effect, loop, f"release\n$h_{{{start}}}, a_{{{start}}}$", bbox=box, **WORDS)
        if number:
            before = decisions[number - 1][1]
            axes.annotate("", (effect - 0.5, loop), (before + 0.5, loop), arrowprops={"arrowstyle": "->"})
    received: dict[str, Any] = {"y": loop - 0.85, "height": 0.4}
    axes.barh(width=decisions[0][1], left=0, color=NOBODYS, **received)
    for (start, effect), (_, end) in zip(decisions, [*decisions[1:], (0, FRAMES)], strict=True):
        axes.barh(width=end - effect, left=effect, color=colours[start], alpha=0.35, **received)
        axes.barh(width=1, left=effect, color=colours[start], **received)
    for frame in range(FRAMES + 1):
        axes.axvline(frame, color="0.9", linewidth=0.6, zorder=0)
    names = {1: "worker 0", 0: "worker 1", loop: "environment loop", loop - 0.85: "the frame receives"}
    axes.set_yticks(list(names), list(names.values()), fontsize=9)
    axes.set_xticks([frame + 0.5 for frame in range(FRAMES)], [str(frame) for frame in range(FRAMES)], fontsize=8)
    axes.set_xlabel("frame", fontsize=9)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xlim(-0.1, FRAMES)
    handles = [
        Line2D([], [], label="features wait until the action is due", **WAIT),
        Line2D([], [], color="black", marker=">", markersize=4, label="state, action and reward go on"),
        Patch(color="grey", label="an action of the policy's"),
        Patch(color="grey", alpha=0.35, label="the default action; paid to the last one"),
        Patch(color=NOBODYS, label="before the first: paid to the first"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    figure.savefig(path)


# Chunks.

DELAY, NOOPS, LENGTH, DECISIONS = 3, 4, 9, 3  # frames, frames, entries, decisions drawn


class Recorder(gym.Env[Any, Any]):
    """Remembers the actions that it receives."""

    observation_space = Box(0, 1, (1,), np.float32)
    action_space = Box(-1, 100, (1,), np.float32)

    def __init__(self) -> None:
        self.actions: list[float] = []

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Begin."""
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Remember the action."""
        self.actions.append(float(action[0]))
        return np.zeros(1, np.float32), 0.0, False, False, {}


def decided() -> tuple[list[tuple[int, int, Any, int]], list[float]]:
    """Return (start, effect, executed entries, frames told) of each decision, and what the environment received.

    Each decision's entries are its number.
    """
    recorder = Recorder()
    env = CommittedPrefix(RealtimeDelay(recorder, DELAY, NOOPS, Chunk(LENGTH, after=np.array([-1.0]))), DELAY)
    observation, info = env.reset()
    decisions = []
    for number in range(DECISIONS):
        start, told = info["realtime"]["start"], int((observation["committed_prefix"][:, -1] == 0).sum())
        observation, *_, info = env.step(np.full((LENGTH, 1), number + 1.0))
        realtime = info["realtime"]
        decisions.append((start, start + realtime["delay"], realtime["executed"], told))
    return decisions, recorder.actions


def draw_chunks(path: str) -> None:
    """Draw chunks."""
    decisions, actions = decided()
    figure = Figure(figsize=(9, 3.6), dpi=110)
    axes = figure.add_subplot()
    for number, (start, effect, executed, told) in enumerate(decisions):
        at, colour = DECISIONS - number, COLOURS[number]
        for entry, is_executed in enumerate(executed):
            late = start + entry < effect
            style: dict[str, Any] = {"edgecolor": colour, "facecolor": colour if is_executed else "white"}
            style |= {"hatch": "////" if late else None, "linestyle": "-" if is_executed or late else ":"}
            axes.add_patch(Rectangle((start + entry + 0.06, at - 0.3), 0.88, 0.6, **style))
            axes.text(start + entry + 0.5, at, str(entry), **WORDS)
        axes.annotate("", (effect, at + 0.42), (start, at + 0.42), arrowprops={"arrowstyle": "->", "color": colour})
        axes.text(start - 0.15, at, f"decision {number}", ha="right", va="center", fontsize=9, color=colour)
        if told:
            outline: dict[str, Any] = {"fill": False, "edgecolor": "black", "linewidth": 1.6, "zorder": 3}
            axes.add_patch(Rectangle((start, -0.42), told, 0.84, **outline))
    for frame, action in enumerate(actions):
        colour = NOBODYS if action < 0 else COLOURS[int(action) - 1]
        axes.add_patch(Rectangle((frame + 0.06, -0.3), 0.88, 0.6, facecolor=colour, edgecolor=colour))
        axes.text(frame + 0.5, -0.62, str(frame), **WORDS)
    axes.text(-0.15, 0, "the frame receives", ha="right", va="center", fontsize=9)
    axes.text(-0.15, -0.62, "frame", ha="right", va="center", fontsize=8)
    handles = [
        Patch(facecolor="grey", label="executed"),
        Patch(facecolor="white", edgecolor="grey", hatch="////", label="too late: skipped"),
        Patch(facecolor="white", edgecolor="grey", linestyle=":", label="a newer chunk has landed"),
        Patch(facecolor=NOBODYS, label="Chunk.after"),
        Patch(facecolor="white", edgecolor="black", linewidth=1.6, label="committed prefix"),
    ]
    below: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0)}
    axes.legend(handles=handles, ncols=5, fontsize=8, frameon=False, **below)
    axes.set_xlim(-4.2, max(len(actions), decisions[-1][0] + LENGTH) + 0.3)
    axes.set_ylim(-0.9, DECISIONS + 0.7)
    axes.axis("off")
    figure.tight_layout()
    figure.savefig(path)


if __name__ == "__main__":
    pictures = {"core": draw_core, "chunks": draw_chunks}
    parser: argparse.ArgumentParser = parser_of(__doc__)
    parser.add_argument("what", choices=pictures)
    parser.add_argument("path", help="of the picture")
    arguments = parser.parse_args()
    pictures[arguments.what](arguments.path)

"""Draw the time line of chunks: what each decision reads, which of its entries are too late, which are executed.

python -m benchmarks.studies.chunk_timeline docs/chunk_timeline.png

All that is drawn comes from `RealtimeDelay`: starts, delays and executed entries of its info, and from
`CommittedPrefix` what a policy is told while it thinks.
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

from async_wrappers import Chunk, CommittedPrefix, RealtimeDelay

DELAY, NOOPS, LENGTH, DECISIONS = 3, 4, 9, 3  # frames, frames, entries, decisions drawn
COLOURS = ("#4878d0", "#ee854a", "#6acc64", "#956cb4")


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


def played() -> tuple[list[tuple[int, int, Any, int]], list[float]]:
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


def draw(path: str) -> None:
    """Draw the picture."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt
    from matplotlib.patches import Patch, Rectangle

    decisions, actions = played()
    figure, axes = plt.subplots(figsize=(9, 3.6), dpi=110)
    for number, (start, effect, executed, told) in enumerate(decisions):
        row, colour = DECISIONS - number, COLOURS[number]
        for entry, is_executed in enumerate(executed):
            late = start + entry < effect
            style: dict[str, Any] = {"facecolor": colour} if is_executed else {"facecolor": "white"}
            axes.add_patch(
                Rectangle(
                    (start + entry + 0.06, row - 0.3),
                    0.88,
                    0.6,
                    edgecolor=colour,
                    hatch="////" if late else None,
                    linestyle="-" if is_executed or late else ":",
                    **style,
                )
            )
            axes.text(start + entry + 0.5, row, str(entry), ha="center", va="center", fontsize=8)
        axes.annotate("", (effect, row + 0.42), (start, row + 0.42), arrowprops={"arrowstyle": "->", "color": colour})
        axes.text(start - 0.15, row, f"decision {number}", ha="right", va="center", fontsize=9, color=colour)
        if told:
            axes.add_patch(
                Rectangle((start, -0.42), told, 0.84, fill=False, edgecolor="black", linewidth=1.6, zorder=3)
            )
    for frame, action in enumerate(actions):
        colour = "#d0d0d0" if action < 0 else COLOURS[int(action) - 1]
        axes.add_patch(Rectangle((frame + 0.06, -0.3), 0.88, 0.6, facecolor=colour, edgecolor=colour))
        axes.text(frame + 0.5, -0.62, str(frame), ha="center", va="center", fontsize=8)
    axes.text(-0.15, 0, "the frame receives", ha="right", va="center", fontsize=9)
    axes.text(-0.15, -0.62, "frame", ha="right", va="center", fontsize=8)
    axes.legend(
        handles=[
            Patch(facecolor="grey", label="executed"),
            Patch(facecolor="white", edgecolor="grey", hatch="////", label="too late: skipped"),
            Patch(facecolor="white", edgecolor="grey", linestyle=":", label="a newer chunk has landed"),
            Patch(facecolor="#d0d0d0", label="Chunk.after"),
            Patch(facecolor="white", edgecolor="black", linewidth=1.6, label="committed prefix"),
        ],
        loc="upper center",
        bbox_to_anchor=(0.5, 0.0),
        ncols=5,
        fontsize=8,
        frameon=False,
    )
    axes.set_xlim(-4.2, max(len(actions), decisions[-1][0] + LENGTH) + 0.3)
    axes.set_ylim(-0.9, DECISIONS + 0.7)
    axes.axis("off")
    figure.tight_layout()
    figure.savefig(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", help="of the picture")
    draw(parser.parse_args().path)

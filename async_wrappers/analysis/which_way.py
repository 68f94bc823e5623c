"""Which way to act under a delay: the table of docs/concepts/which_way.md, of which `plan` prints a row.

The shares are those of realtime MinAtar (docs/results/minatar.md): what V-trace keeps under the delay of its gain over
random play without delay; interquartile means over five games and five seeds.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Remedy:
    """A row of the table.

    Attributes:
        case: When it is the row to take, if none above it is.
        name: What it is called.
        wrapper: What is put around the environment, in Python; ``{d}`` stands for the delay in frames.
        gin: Lines beside that of the delay, for agents of ours; ``{n}`` stands for ``{d} - 1``.
        share: What it kept, in words.
    """

    case: str
    name: str
    wrapper: str
    gin: tuple[str, ...]
    share: str

    def lines(self, delay: int) -> list[str]:
        """Return the wrapper and the lines of gin for a delay of so many frames."""
        return [line.format(d=delay, n=delay - 1) for line in (self.wrapper, *_DELAY, *self.gin)]


_DELAY = ("RealtimeDelay.delay = {d}",)
_TOLD = ("create_actor_critic.action_window = {d}",)
IN_TIME = Remedy(
    "the network fits into a frame",
    "a frame late",
    'RealtimeDelay(env, delay={d}, default_action="repeat")',
    _TOLD,
    "Asterix 0.29, Breakout 1.43, Space Invaders 0.58 one frame late (one or two seeds, half the network)",
)
FAST_PATH = Remedy(
    "a small network fits into a frame",
    "fast path",
    'FreshObservation(RealtimeDelay(env, delay={d}, default_action="repeat"))',
    ("create_actor_critic.hidden = (128,)", "create_actor_critic.fast = @fast/MinAtarTorso"),
    "0.91 at 8 frames, 1.05 at 2; told too 0.84, by IMPACT 0.98, and 0.54 a frame late; the small network alone, in "
    "time, 0.95",
)
TOLD = Remedy(
    "as many inferences run at a time as one takes frames",
    "told",
    'RealtimeDelay(env, delay={d}, default_action="repeat")',
    _TOLD,
    "0.24 at 8 frames, as a student 0.42, and 0.46 at 2; told nothing 0.12 and 0.44",
)
CHUNKS = Remedy(
    "one inference at a time, and actions can be chunks",
    "chunks",
    'CommittedPrefix(RealtimeDelay(env, delay={d}, noops={n}, default_action="chunk"))',
    ("RealtimeDelay.noops = {n}", 'RealtimeDelay.default_action = "chunk"'),
    "0.17 at 8 frames, 0.28 at 2",
)
SEQUENTIAL = Remedy(
    "one inference at a time, one action each",
    "sequential",
    'RealtimeDelay(env, delay={d}, noops={d}, default_action="repeat")',
    ("RealtimeDelay.noops = {d}",),
    "0.04 at 8 frames, 0.30 at 2",
)
REMEDIES = (IN_TIME, FAST_PATH, TOLD, CHUNKS, SEQUENTIAL)

"""The times of the parts of training (acting, stepping, a batch, its loss, the gradient), and rates of many rows."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from time import perf_counter

PARTS = {
    "Act": "acting",
    "Step": "stepping the environments",
    "Store": "storing transitions",
    "Sample": "drawing batches",
    "Loss": "losses",
    "Backward": "gradients",
    "Optimizer": "steps of the optimiser",
    "Priorities": "setting priorities",
}
"""Each part by its name in TensorBoard (``Time/Act``), in words."""

SUMMED_UP = {
    "LearningRate": "learning rate",
    "GradientNorm": "norm of the last gradient",
    "ReplaySize": "what can be drawn from replays",
    "QueueSize": "unrolls that wait",
    "TeacherReplaySize": "transitions of the teacher's replay",
    "AverageQ": "mean Q-value",
    "MaxQ": "greatest Q-value",
    "ActionGap": "action gap",
    "QMinusTeacherQ": "Q-values less the teacher's",
}
"""Values that learners report beside the scalars of updates, in words."""


class PartTimes:
    """Seconds that each part has taken since the last `take`, at the cost of two readings of the clock for each.

    On a GPU they are those of the host, which waits for the device where it reads a result. The time of a parallel
    thread counts too, so that the sum may exceed the elapsed time.

    Attributes:
        seconds: By the name of `PARTS`.
    """

    __slots__ = ("seconds",)

    def __init__(self) -> None:
        """Begin with none."""
        self.seconds: dict[str, float] = dict.fromkeys(PARTS, 0.0)

    def add(self, name: str, begin: float) -> float:
        """Add the time since `begin`, a value of ``time.perf_counter()``, to a part; return the present time."""
        now = perf_counter()
        self.seconds[name] += now - begin
        return now

    def take(self) -> dict[str, float]:
        """Return the seconds of the parts that took any, and reset them."""
        taken = {name: seconds for name, seconds in self.seconds.items() if seconds}
        self.seconds = dict.fromkeys(PARTS, 0.0)
        return taken


@dataclass
class Meters:
    """Counts since a moment, from which rates are computed.

    Attributes:
        acted: Decisions made.
        added: Transitions stored.
        updates: Updates made.
        sampled: Transitions drawn for them.
        lag: Updates by which the weights that acted were behind the learner's, summed over the decisions.
        began: When, in seconds.
    """

    acted: int = 0
    added: int = 0
    updates: int = 0
    sampled: int = 0
    lag: int = 0
    began: float = field(default_factory=time.perf_counter)

    def rates(self, seconds: float | None = None) -> dict[str, float]:
        """Return the rates per second by name, the ratio of transitions learnt from to decisions made, and the lag."""
        seconds = max(time.perf_counter() - self.began if seconds is None else seconds, 1e-9)
        return {
            "ActRate": self.acted / seconds,
            "AddRate": self.added / seconds,
            "SampleRate": self.sampled / seconds,
            "LearnRate": self.updates / seconds,
            "LearntPerLived": self.sampled / max(self.acted, 1),
            "PolicyLag": self.lag / max(self.acted, 1),
        }


# Each rate by its name in TensorBoard: in words, as a part of a line, and the digits of those that are not per second.
_IN_WORDS = {
    "ActRate": "actions per second",
    "AddRate": "transitions stored per second",
    "SampleRate": "transitions learnt per second",
    "LearnRate": "updates per second",
    "LearntPerLived": "transitions learnt per one played",
    "PolicyLag": "updates by which the policy is behind",
    "ReplayFill": "share of the replay that is filled",
}
_IN_SHORT = {
    "ActRate": "act {}/s",
    "AddRate": "add {}/s",
    "SampleRate": "sample {}/s",
    "LearnRate": "learn {}/s",
    "LearntPerLived": "ratio {:.2f}",
    "PolicyLag": "lag {:.1f}",
    "ReplayFill": "replay {:.0%}",
}
_DIGITS = {"LearntPerLived": 3, "PolicyLag": 2, "ReplayFill": 3}


def _per_second(rate: float) -> str:
    """Return a rate per second: of a slow one, such as PPO's updates of whole rounds, two digits more."""
    return f"{rate:,.{0 if rate >= 10 or not rate else 2}f}"


def rate_in_short(name: str, value: float) -> str:
    """Return a rate of `Meters` as a part of a line."""
    return _IN_SHORT[name].format(value if name in _DIGITS else _per_second(value))


def rate_in_a_table(name: str, value: float) -> str:
    """Return a rate of `Meters` as a line of a table."""
    words, shown = rate_in_words(name, value)
    return f"{words:<38}{shown:>12}"


def rate_in_words(name: str, value: float) -> tuple[str, str]:
    """Return the meaning of a rate of `Meters`, and its value."""
    return _IN_WORDS.get(name, name), f"{value:,.{_DIGITS[name]}f}" if name in _DIGITS else _per_second(value)


def duration(seconds: float) -> str:
    """Return a time in words, in a unit that fits it."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    hours = seconds / 3600
    return f"{seconds / 60:.0f} min" if hours < 2 else f"{hours:.0f} h" if hours < 72 else f"{hours / 24:.0f} days"

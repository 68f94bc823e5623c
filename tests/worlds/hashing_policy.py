"""A policy that is a hash of its observation, and default actions with the same rule written out.

Each observation of `RecordingEnv` depends on all actions before it, so a leak or a shift by one frame changes every
action after it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.worlds.recording_env import MEANINGS, NOOP, mixed

__all__ = ["DEFAULTS", "FIXED", "Default", "policy"]

FIXED = 4
Default = Callable[[int, Any, int | None], int]  # (frame, newest observation, last agent action)


def policy(observation: Any) -> int:
    return mixed(*observation.tolist()) % len(MEANINGS)


def reflex(observation: Any, last_action: int | None) -> int:
    return mixed(*observation.tolist(), -1 if last_action is None else last_action) % len(MEANINGS)


DEFAULTS: dict[str, tuple[Any, Default]] = {
    "noop": ("noop", lambda frame, observation, last: NOOP),
    "repeat": ("repeat", lambda frame, observation, last: NOOP if last is None else last),
    "fixed": (FIXED, lambda frame, observation, last: FIXED),
    "function": (reflex, lambda frame, observation, last: reflex(observation, last)),
}

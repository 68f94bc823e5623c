"""How long a fleet waits, each time once, with its meaning. They are read here, so that a test can change them."""

from __future__ import annotations

from async_wrappers.fleet.fleet import SECOND

PAUSES = (0, SECOND // 10, 3 * SECOND // 10, 6 * SECOND // 10, 12 * SECOND // 10)
"""Nanoseconds before a member's next start, by ends in a row before it had worked."""
LOOK = 1.0
"""Seconds between two looks for members that are stopped, hang, or are late."""
PATIENCE = 3.0
"""Seconds that a process has to end once it is asked to, is killed, or has lost its parent."""
ORDER = 5.0
"""Seconds that one has to end which may carry out an order first: a host, a learner; a thread that infers."""

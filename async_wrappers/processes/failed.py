"""The exception of a run that cannot go on."""

from __future__ import annotations


class RunFailed(RuntimeError):
    """A part of the run has ended for good; its exception, if it raised one, is the cause."""

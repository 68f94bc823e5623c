"""Each worker takes a few file descriptors of its supervisor's: with many of them the system's limit is reached."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from async_wrappers.live.run_spec import RunFailed

__all__ = ["assure_room", "enough_descriptors"]

_ONE_START = 16  # descriptors that starting a process takes, most of them for a moment
_EACH, _BESIDES = 8, 256  # descriptors that are asked for: by worker, and for all else; more than are needed


@contextmanager
def enough_descriptors(workers: int) -> Iterator[None]:
    """Say what to do where the descriptors run out.

    Raises:
        RunFailed: They have.
    """
    try:
        yield
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
        import resource  # not on Windows, where no such limit is met

        limit, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = _EACH * workers + _BESIDES
        most = "" if hard < 0 or wanted <= hard else f"; at most {hard} are allowed"
        raise RunFailed(
            f"workers={workers} need more open files than the {limit} that a process may have here: raise the limit "
            f"(`ulimit -n {wanted}`{most}), or take fewer workers"
        ) from None


def assure_room() -> None:
    """Raise the system's error if there are too few descriptors for starting a process.

    multiprocessing loses some if they run out while it starts one.
    """
    taken = [os.open(os.devnull, os.O_RDONLY)]
    try:
        while len(taken) < _ONE_START:
            taken.append(os.dup(taken[0]))
    finally:
        for each in taken:
            os.close(each)

"""How a command ends that does not succeed: its exit code, and the sentence that says what to do."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

import gymnasium as gym
from absl import logging

from agents.cli.flags import UsageError

__all__ = ["CANNOT_WRITE", "TrialsFailed", "explain", "usage_errors"]

# The system's errors where a file cannot be written: the disk is full, writing is forbidden, there is no such place.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
CANNOT_WRITE = (errno.EACCES, errno.EPERM, errno.EROFS)
_NO_PLACE = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL)


class TrialsFailed(Exception):
    """A sweep has ended, and some of its trials failed."""


@contextmanager
def usage_errors() -> Iterator[None]:
    """Raise what a wrong value of the user's makes the block raise as a `UsageError` of one line."""
    try:
        yield
    except (ValueError, TypeError, RuntimeError, gym.error.Error) as error:
        logging.debug("while building the experiment", exc_info=True)
        if isinstance(error, RecursionError):
            raise UsageError(
                f"gin configuration: a reference or a macro leads back to itself ({_first_line(error)})"
            ) from None
        # gin raises RuntimeError where a binding is required; any other RuntimeError is a fault of the program.
        if isinstance(error, RuntimeError) and "Required bindings" not in str(error):
            raise
        raise UsageError(_one_line(error)) from None


def explain(error: Exception, base_dir: str | None) -> tuple[int, str] | None:
    """Return the exit code and the sentence of an error; None where only a traceback helps.

    Args:
        error: What ended the command.
        base_dir: The run's directory, as the user wrote it; None where he named none.
    """
    # Imported here: the command that raised one of these has imported its module, and no other command needs it.
    from agents.experiment.checkpoint import NoCheckpointLoads
    from agents.experiment.config import ConfigError
    from agents.experiment.lock import DirectoryInUse
    from agents.learner import DivergedError
    from async_wrappers.live.run_spec import RunFailed

    if isinstance(
        error, UsageError | ConfigError | DirectoryInUse | NoCheckpointLoads | gym.error.DependencyNotInstalled
    ):
        return 2, str(error)
    if isinstance(error, DivergedError | RunFailed | TrialsFailed):
        return 1, str(error)
    if isinstance(error, OSError) and (sentence := _disk_sentence(error, base_dir)) is not None:
        return 1 if error.errno in _FULL else 2, sentence
    return None


def _one_line(error: Exception) -> str:
    """Return the first line of a message; Python's own is given the name of the gin configurable it came from."""
    sentence = _first_line(error)
    configurable = re.search(r"In call to configurable '(.+?)'", str(error))
    return f"{configurable[1]}: {sentence}" if isinstance(error, TypeError) and configurable else sentence


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _disk_sentence(error: OSError, base_dir: str | None) -> str | None:
    """Say what to do about a file that cannot be written; None where the error is about something else."""
    where = error.filename or "a file"
    if error.errno in _FULL:
        return f"{error.strerror}, writing {where}: free space, and continue with the same --base_dir"
    named = base_dir or "results"
    root, there = os.path.abspath(named), os.path.abspath(os.fsdecode(error.filename or os.devnull))
    above, below = os.path.join(root, "").startswith(os.path.join(there, "")), there.startswith(root + os.sep)
    if (above and error.errno in _NO_PLACE) or ((above or below) and error.errno in CANNOT_WRITE):
        return f"--base_dir {named} cannot be written ({error.strerror}: {where}): name another"
    return None

"""The first word of the command line names the command; see `commands`."""

from __future__ import annotations

import errno
import os
import sys
import warnings
from argparse import Namespace
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import gymnasium as gym

from async_wrappers.agents.cli.commands import COMMANDS, parser_of
from async_wrappers.agents.cli.flags import FlagParser, UsageError, first_line, program
from async_wrappers.files import FULL

OVERVIEW = """Train and evaluate agents under realtime delay.

  python train.py [train] [--base_dir DIR] [--gin_files FILE]... [--gin_bindings 'NAME.PARAMETER = VALUE']... [--seed N]
  python train.py evaluate --base_dir DIR [--episodes N] [--render | --video] [--follow] [--gin_bindings ...]
  python train.py evaluate --agent NAME_OR_FILE [--episodes N] [--render | --video] [--gin_bindings ...]
  python train.py export --base_dir DIR --output FILE.onnx [--observations N]
  python train.py export --base_dir DIR --output FILE.safetensors [--episodes N] [--licence TEXT]
  python train.py sweep [--gin_files FILE]... [--grid 'RealtimeDelay.delay = 1, 8, 70']... [--seeds N] [--jobs N]
                        [--base_dir DIR] [--retry-failed] [--engine local|ray] [--address ADDRESS] [--gin_bindings ...]
  python train.py plot DIR... [--metric NAME | --wins] [--statistic mean|iqm] [--x KEY] [--output DIR]
  python train.py compare A B [--metric NAME] [--statistic mean|iqm]
  python train.py watch [DIR]... [--text] [--host ADDRESS] [--port N]
  python train.py record --gin_files FILE --dataset NAME_OR_DIR [--player human|random|MODULE:FUNCTION] [--episodes N]
  python train.py record --base_dir DIR --dataset NAME_OR_DIR [--episodes N]
  python train.py import FILE --dataset NAME_OR_DIR
  python train.py list [NAME] (or --list)

python train.py COMMAND --help explains a command's flags (python train.py train --help those of training).

Without --gin_files the main job runs, configs/default.gin: a sweep of one seed, and its figures. A --base_dir that
holds a run is continued with its own config.gin. Gin files are code: they may import modules. Those of a --base_dir
import this project's modules alone, and what the command line names; --trust lets them import anything. Exit codes:
0 done, 1 the run failed, 2 usage, 130 interrupted, 141 nobody reads the output any more (| head)."""

_NEED_PYTORCH = ("train", "evaluate", "export", "sweep", "record")  # its import takes seconds
_GINS = "\n  In call to configurable"  # what gin adds to the message of an error that passes through it
_FEW_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
_NO_THREAD = "can't start new thread"  # Python's RuntimeError
# The system's errors where there is no such place.
_NO_PLACE = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL)


def main(argv: Sequence[str], imported: Callable[[], object] = lambda: None) -> int:
    """Run the command that the first word names.

    Args:
        argv: The script and the words after it.
        imported: Called once the command's libraries are imported, which takes seconds.

    Returns:
        The exit code: 0 done, 1 the run failed, 2 usage, 130 interrupted.
    """
    options = Namespace()
    written, warnings.formatwarning = warnings.formatwarning, partial(_warning, Path(argv[0]).name)
    try:
        name, words = _split(argv[1:])
        if not name:
            print(OVERVIEW.replace("python train.py", program()))
            return 0
        try:
            options = _parse(parser_of(name), words)
        except SystemExit:  # after --help
            return 0
        if sys.stderr.isatty() and "torch" not in sys.modules and name in _NEED_PYTORCH:
            print("train.py: PyTorch is being imported ...", file=sys.stderr, flush=True)
        command = import_module(COMMANDS[name].module)
        imported()
        command.run(options)
    except KeyboardInterrupt as interrupt:
        print(f"\ninterrupted: {interrupt}" if interrupt.args else "\ninterrupted", file=sys.stderr)
        return 130
    except UsageError as error:
        print(f"{Path(argv[0]).name}: {error}", file=sys.stderr)
        return 2
    except Exception as error:
        explained = _explain(error, getattr(options, "base_dir", None))
        if explained is None:
            raise
        code, sentence = explained
        print(f"{Path(argv[0]).name}: {sentence}", file=sys.stderr)
        return code
    finally:
        warnings.formatwarning = written
    return 0


def _warning(script: str, message: Any, category: type[Warning], filename: str, lineno: int, line: Any = None) -> str:
    """Return a warning's text for a user: this project's warnings are sentences, shown without file and line."""
    if category not in (UserWarning, RuntimeWarning):
        return f"{filename}:{lineno}: {category.__name__}: {message}\n"
    return f"{script}: warning: {message}\n"


def _split(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return the command's name and the words after it; no name where only the overview was asked for."""
    first, rest = (words[0], words[1:]) if words else ("train", [])
    if first in ("--help", "-h"):
        return "", rest
    if first == "--list":
        return "list", rest
    if first.startswith("-"):
        return "train", words
    if first not in COMMANDS:
        raise UsageError(f"no command {first!r}: use one of {', '.join(COMMANDS)}, or flags alone to train")
    return first, rest


def _parse(parser: FlagParser, words: Sequence[str]) -> Namespace:
    """Parse a command's words; a flag that only other commands have is refused with their names."""
    try:
        return parser.parse(words)
    except UsageError as error:
        if not error.flag:
            raise
        others = [name for name in COMMANDS if error.flag in parser_of(name).flags]
        if not others:
            raise
        owners = " and ".join(f"`{name}`" for name in others)
        remedy = f"leave it out ({parser.prog} --help lists the flags of {parser.command})"
        raise UsageError(f"{parser.command} has no flag {error.flag}, which belongs to {owners}: {remedy}") from None


def _explain(error: Exception, base_dir: str | None) -> tuple[int, str] | None:
    """Return the exit code and the message of an error; None where only a traceback helps.

    Args:
        error: What ended the command.
        base_dir: The run's directory, as the user wrote it; None where he named none.
    """
    # Imported here: the command that raised one of these has imported its module, and no other command needs it.
    from async_wrappers.agents.cli.sweep import TrialsFailed
    from async_wrappers.agents.config.config import ConfigError
    from async_wrappers.agents.experiment.checkpoint import NoCheckpointLoads
    from async_wrappers.agents.experiment.lock import NOT_WRITABLE, DirectoryInUse
    from async_wrappers.agents.learning.diverged import DivergedError
    from async_wrappers.agents.play.hosts.engine import HostsFailed
    from async_wrappers.agents.play.many.learners import LearnerFailed
    from async_wrappers.agents.play.play import RunStopped
    from async_wrappers.agents.sweep.trial import TrialsCutOff
    from async_wrappers.agents.trained.export import ActsDifferently
    from async_wrappers.checks import BrokenEnvironment
    from async_wrappers.fleet.supervised import RunFailed
    from async_wrappers.ray_cluster import NoCluster

    of_usage = ConfigError | DirectoryInUse | NoCheckpointLoads | NoCluster | gym.error.DependencyNotInstalled
    if isinstance(error, of_usage):
        return 2, str(error)
    in_words = ActsDifferently | DivergedError | HostsFailed | LearnerFailed | RunFailed | RunStopped | TrialsFailed
    in_words |= BrokenEnvironment | TrialsCutOff
    if isinstance(error, in_words):
        return 1, str(error).partition(_GINS)[0]
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return 1, f"memory is full ({first_line(error)}): bind a smaller replay, fewer environments or fewer workers"
    if _NO_THREAD in str(error) or (isinstance(error, OSError) and error.errno == errno.EAGAIN):
        remedy = "raise the limit (ulimit -u, or a container's), or ask for fewer processes"
        return 1, f"no more processes or threads may run ({first_line(error)}): {remedy}"
    if not isinstance(error, OSError):
        return None
    if error.errno in _FEW_DESCRIPTORS:
        return (
            1,
            f"too few files may be open ({error.strerror}): raise the limit (ulimit -n), or ask for fewer processes",
        )
    where = error.filename or "a file"
    named = base_dir or "results"
    root, there = os.path.abspath(named), os.path.abspath(os.fsdecode(error.filename or os.devnull))
    above, below = os.path.join(root, "").startswith(os.path.join(there, "")), there.startswith(root + os.sep)
    if below and error.errno == errno.ENOENT and not os.path.isdir(folder := os.path.dirname(there)):
        return 1, f"{folder} is not there any more: bring it back, or continue with --base_dir where it is now"
    if error.errno in FULL:
        again = "continue with the same --base_dir" if below or not error.filename else "give the command again"
        return 1, f"{error.strerror}, writing {where}: free space, and {again}"
    refused = f"--base_dir {named} cannot be written ({error.strerror}: {where})"
    if above and error.errno in _NO_PLACE:
        return 2, f"{refused}: name another"
    if (above or below) and error.errno in NOT_WRITABLE:
        return 2, f"{refused}: make it writable, or name another"
    if error.filename and error.errno in NOT_WRITABLE:
        return 2, f"{where} cannot be read or written ({error.strerror}): change that, or name another place"
    return None

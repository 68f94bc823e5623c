"""The gin configuration and the run's directory that a command line names."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import agents.configurables
import async_wrappers.configurables
from agents.cli.failures import usage_errors
from agents.cli.flags import Parser, Switch, UsageError, whole_number
from agents.experiment.config import CONFIG, ConfigError, code_named, load_config
from agents.experiment.create_runner import create_runner
from agents.experiment.runner import Runner
from agents.experiment.trust import code_in, strangers
from agents.experiment.unread import LoadedConfig, Unread

__all__ = [
    "HERE",
    "RENDER_MODES",
    "add_base_dir",
    "add_gin_flags",
    "add_seed",
    "build_runner",
    "existing_run",
    "find_named_modules",
    "load_gin",
    "new_or_existing_dir",
    "refuse_unread",
    "trusting",
]

HERE = Path(agents.__file__ or "").resolve().parents[1]  # the clone: `configs/...` is found from any directory
# The functions whose `render_mode` lets an environment be seen.
RENDER_MODES = ("create_atari_environment.render_mode", "create_gym_environment.render_mode")


def add_base_dir(parser: Parser, help: str) -> None:
    """Add the flag of the run's directory."""
    parser.add_argument("--base_dir", metavar="DIR", help=help)


def add_gin_flags(parser: Parser) -> None:
    """Add the flags of the configuration."""
    files = "gin file, repeated for several; later ones win"
    parser.add_argument("--gin_files", action="append", default=[], metavar="FILE", help=files)
    bindings = "'NAME.PARAMETER = VALUE', repeated for several; wins over files"
    parser.add_argument("--gin_bindings", action="append", default=[], metavar="BINDING", help=bindings)
    unread = "accept bindings that nothing reads"
    parser.add_argument("--allow_unread", action=Switch, help=unread)
    parser.add_argument("--trust", action=Switch, help="let the configuration in --base_dir import any module")


def add_seed(parser: Parser) -> None:
    """Add the flag of the seed."""
    parser.add_argument(
        "--seed", type=whole_number(0), metavar="N", help="seed of everything; the same as binding Runner.seed"
    )


def find_named_modules(options: Namespace, *, always: bool = False) -> None:
    """Let modules of the working directory be imported, if the command line names modules that are not ours.

    Otherwise not: the directory may be somebody else's, with a `tensorflow.py`, which a library would import if there
    were one.

    Args:
        options: With the gin flags.
        always: Whether another flag may name a module.
    """
    if always or options.trust or _names_modules(options):
        sys.path.append(os.getcwd())


def _names_modules(options: Namespace) -> bool:
    """Return whether the gin files and bindings of the command line name modules other than ours."""
    try:
        modules, missing = code_named(options.gin_files, options.gin_bindings, search_paths=[HERE])
    except ConfigError:
        return True  # `load_gin` says what is wrong
    return bool(missing or strangers(modules, ()))


def load_gin(options: Namespace, own_bindings: Sequence[str] = (), saved: Path | None = None) -> LoadedConfig:
    """Replace gin's configuration by that of the command line, or by the saved one where no files are named.

    Args:
        options: With the gin flags.
        own_bindings: The command's, which win over the user's.
        saved: The configuration that the run began with.

    Returns:
        What the user has bound himself; the default configuration is not his.

    Raises:
        ConfigError: A file, binding, name or value is wrong.
    """
    files = options.gin_files or ([] if saved is not None and saved.is_file() else ["configs/default.gin"])
    modules = (agents.configurables, async_wrappers.configurables)
    names = [name for module in modules for name in module.CONFIGURABLES]
    imports = [f"import {module.__name__}" for module in modules]  # so that config.gin can be read without train.py
    loaded = load_config(
        files,
        options.gin_bindings,
        names,
        own_bindings=[*imports, *own_bindings],
        saved=saved,
        search_paths=[HERE],
        trusted=None if options.trust else (),
    )
    given = [each for each in loaded.given if options.gin_files or not each.from_file]
    return replace(loaded, given=given)


def refuse_unread(options: Namespace, unread: Mapping[str, Unread]) -> None:
    """Refuse the first of the bindings that nothing reads, unless the user accepts such bindings."""
    if unread and not options.allow_unread:
        source, reason = next(iter(unread.values()))
        raise UsageError(f"{source}: {reason} (--allow_unread accepts it)")


def build_runner(options: Namespace, base_dir: Path, own_bindings: Sequence[str] = ()) -> Runner:
    """Return the runner of the command line's experiment, or of the one that `base_dir` holds.

    Raises:
        ConfigError: The configuration is wrong.
        UsageError: A value is wrong.
    """
    seed = [] if options.seed is None else [f"Runner.seed = {options.seed}"]
    refuse_unread(options, load_gin(options, [*own_bindings, *seed], base_dir / CONFIG).unread())
    with usage_errors():
        runner: Runner = create_runner(str(base_dir))
    return runner


def existing_run(options: Namespace, command: str) -> Path:
    """Return --base_dir, which must hold a run."""
    if not options.base_dir or not os.path.isfile(os.path.join(options.base_dir, CONFIG)):
        raise UsageError(f"{command} needs --base_dir with a run in it (a {CONFIG}), got {options.base_dir!r}")
    return Path(options.base_dir)


def new_or_existing_dir(options: Namespace) -> Path:
    """Return --base_dir, or a new directory below ``results``, which is not made yet."""
    base_dir = Path(options.base_dir) if options.base_dir else _default_base_dir(options.gin_files)
    if "\0" in str(base_dir):
        raise UsageError(f"--base_dir must be a path, got {str(base_dir)!r}")
    if os.path.exists(base_dir) and not base_dir.is_dir():
        raise UsageError(f"--base_dir must be a directory, got the file {base_dir}")
    with suppress(FileNotFoundError, NotADirectoryError):
        os.stat(base_dir)  # raises OSError for a name that is too long
    return base_dir


def _default_base_dir(gin_files: Sequence[str]) -> Path:
    name = Path(gin_files[-1]).stem if gin_files else "default"
    return Path("results") / f"{name}_{datetime.now(UTC):%Y%m%dT%H%M%SZ}"


def trusting(options: Namespace, base_dir: Path) -> str:
    """Return what a command must add for this run's own configuration to be read: the modules that it imports."""
    if options.trust:
        return " --trust"
    if not (base_dir / CONFIG).is_file():
        return ""
    modules, _ = code_in((base_dir / CONFIG).read_text(encoding="utf-8"))
    return "".join(f" --gin_bindings 'import {module}'" for module in strangers(modules, ()))

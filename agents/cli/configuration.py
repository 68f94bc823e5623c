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

import async_wrappers.agents.configurables
import async_wrappers.configurables
from async_wrappers.agents.cli.flags import UsageError, usage_errors
from async_wrappers.agents.config.config import (
    CONFIG,
    ConfigError,
    code_named,
    folders_of,
    load_config,
    needed_bindings,
    own_places,
)
from async_wrappers.agents.config.gin_text import PACKAGE, add_places, code_in, strangers
from async_wrappers.agents.config.unread import LoadedConfig, Unread
from async_wrappers.agents.experiment.experiment import Experiment
from async_wrappers.agents.registry import create_runner
from async_wrappers.agents.trained.agent_file import (
    SUFFIX,
    agent_path,
    is_agent_file,
    no_such_agent,
    shipped_agents,
)

MAIN_JOB = "configs/default.gin"  # what train.py runs where no file is named


def find_modules(options: Namespace, *, always: bool = False) -> None:
    """Let the user's own modules be imported, if the command line names modules that are not ours.

    They lie beside the gin files that it names, in the working directory, or where a run's --base_dir imported them
    from; the first that has one wins, after Python's own and all installed ones.

    Otherwise not: a directory may be somebody else's, with a `tensorflow.py`, which a library would import if there
    were one.

    Args:
        options: With the gin flags.
        always: Whether another flag may name a module.
    """
    if not always and not options.trust:
        with suppress(ConfigError):  # `load_gin` reports the mistake
            modules, missing = code_named(options.gin_files, options.gin_bindings, search_paths=[PACKAGE])
            if not missing and not strangers(modules, ()):
                return
    noted: list[Path] = []
    if options.base_dir:
        saved = Path(options.base_dir) / CONFIG
        noted = own_places(saved, options.gin_files, options.gin_bindings, [PACKAGE], trust=options.trust)
    add_places([*folders_of(options.gin_files, [PACKAGE]), os.getcwd(), *noted])


def load_gin(options: Namespace, own_bindings: Sequence[str] = (), saved: Path | None = None) -> LoadedConfig:
    """Replace gin's configuration by that of the command line, or by the saved one where no files are named.

    Args:
        options: With the gin flags.
        own_bindings: The command's, which win over the user's.
        saved: The configuration that the run began with.

    Returns:
        The user's own bindings, without those of the default configuration.

    Raises:
        ConfigError: A file, binding, name or value is wrong.
    """
    files = options.gin_files or ([] if saved is not None and saved.is_file() else [MAIN_JOB])
    modules = (async_wrappers.agents.configurables, async_wrappers.configurables)
    imports = [f"import {module.__name__}" for module in modules]  # so that config.gin can be read without train.py
    loaded = load_config(
        files,
        options.gin_bindings,
        own_bindings=[*imports, *own_bindings],
        saved=saved,
        search_paths=[PACKAGE],
        trusted=None if options.trust else (),
    )
    given = [each for each in loaded.given if options.gin_files or not each.from_file]
    return replace(loaded, given=given)


def refuse_unread(options: Namespace, unread: Mapping[str, Unread]) -> None:
    """Refuse the first of the bindings that nothing reads, unless the user accepts such bindings."""
    if unread and not options.allow_unread:
        source, reason = next(iter(unread.values()))
        raise UsageError(f"{source}: {reason} (--allow_unread accepts it)")


def render_bindings(mode: str) -> list[str]:
    """Return the bindings that let an environment be seen, in a window or as images."""
    makers = ("create_atari_environment", "create_gym_environment", "create_minatar_environment")
    return [f"{maker}.render_mode = {mode!r}" for maker in makers]


def refuse_without_display(flag: str, remedy: str) -> None:
    """Refuse to open a window where there is no display: SDL would draw invisibly, or fail later.

    Args:
        flag: The flag that needs the window.
        remedy: What to do without one.
    """
    has_one = any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"))
    if sys.platform.startswith("linux") and not has_one:
        raise UsageError(
            f"{flag} opens a window, and this machine has no display (neither DISPLAY nor WAYLAND_DISPLAY is set): "
            f"{remedy}"
        )


def load_run(options: Namespace, own_bindings: Sequence[str] = (), saved: Path | None = None) -> None:
    """Load the configuration of one run, of which every binding must be read; see `load_gin`."""
    refuse_unread(options, load_gin(options, own_bindings, saved).unread())


def build_runner(
    options: Namespace, base_dir: Path, own_bindings: Sequence[str] = (), saved: Path | None = None
) -> Experiment:
    """Return the runner of the command line's experiment, or of the one that `base_dir` holds.

    Args:
        options: With the flags of a run.
        base_dir: The runner's directory.
        own_bindings: The command's, which win over the user's.
        saved: An agent's file, whose configuration takes the place of the directory's.

    Raises:
        ConfigError: The configuration is wrong.
        UsageError: A value is wrong.
    """
    seed = [] if options.seed is None else [f"Runner.seed = {options.seed}"]
    load_run(options, [*own_bindings, *seed], saved or base_dir / CONFIG)
    source = " and ".join(options.gin_files or ()) or saved or base_dir / CONFIG
    with usage_errors(), needed_bindings(source):
        runner: Experiment = create_runner(str(base_dir))
    return runner


def existing_run(options: Namespace, command: str) -> Path:
    """Return --base_dir, which must hold a run."""
    if not options.base_dir or not os.path.isfile(os.path.join(options.base_dir, CONFIG)):
        raise UsageError(f"{command} needs --base_dir with a run in it (a {CONFIG}), got {options.base_dir!r}")
    return Path(options.base_dir)


def agent_file(options: Namespace) -> Path | None:
    """Return the file of --agent, which takes the place of --base_dir; None where there is none."""
    if not options.agent:
        return None
    if options.base_dir:
        raise UsageError("--agent and --base_dir exclude each other: an agent of a file plays, or that of a run")
    path = agent_path(options.agent)
    if os.path.isfile(path / CONFIG):
        raise UsageError(
            f"--agent must be a {SUFFIX} file, or name an agent that ships, got a run: --base_dir {options.agent}"
        )
    if not os.path.isfile(path) or not is_agent_file(path):
        raise UsageError(no_such_agent("--agent", options.agent))
    return path


def place_of_agent(name: str, path: Path) -> Path:
    """Return where what an agent's file plays is written: never beside the file, which may be installed."""
    plain = Path(name).as_posix()
    return Path("results") / "trained" / (plain if plain in shipped_agents() else path.stem)


def new_or_existing_dir(options: Namespace) -> Path:
    """Return --base_dir, or a new directory below ``results``, which is not made yet."""
    base_dir = Path(options.base_dir) if options.base_dir else _default_base_dir(options.gin_files)
    if "\0" in str(base_dir):
        raise UsageError(f"--base_dir must be a path, got {str(base_dir)!r}")
    for each in (base_dir, *base_dir.parents):
        if os.path.islink(each) and not os.path.exists(each):
            what = "is" if each == base_dir else f"lies in {each},"
            raise UsageError(
                f"--base_dir {base_dir} {what} a link to {os.readlink(each)}, which is not there: make it, or name "
                "another"
            )
    if os.path.exists(base_dir) and not base_dir.is_dir():
        raise UsageError(f"--base_dir must be a directory, got the file {base_dir}")
    with suppress(FileNotFoundError, NotADirectoryError):
        os.stat(base_dir)  # raises OSError for a name that is too long
    return base_dir


def _default_base_dir(gin_files: Sequence[str]) -> Path:
    name = Path(gin_files[-1]).stem if gin_files else "default"
    return Path("results") / f"{name}_{datetime.now(UTC):%Y%m%dT%H%M%SZ}"


def trusting(options: Namespace, base_dir: Path) -> str:
    """Return the flags with which a command trusts this run's own configuration: the modules that it imports."""
    if options.trust:
        return " --trust"
    if not (base_dir / CONFIG).is_file():
        return ""
    modules, _ = code_in((base_dir / CONFIG).read_text(encoding="utf-8-sig"))
    return "".join(f" --gin_bindings 'import {module}'" for module in strangers(modules, ()))

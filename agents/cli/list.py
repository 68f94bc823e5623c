"""The command ``list``: the names that command line and gin files may use."""

from __future__ import annotations

import tempfile
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import chdir, suppress
from difflib import get_close_matches
from operator import attrgetter
from pathlib import Path
from typing import Any

import gymnasium as gym

from async_wrappers.agents.cli.flags import UsageError, first_line, program
from async_wrappers.agents.config.config import find_gin_files
from async_wrappers.agents.config.described import gin_name, parameters, purpose
from async_wrappers.agents.config.gin_text import PACKAGE
from async_wrappers.agents.configurables import CONFIGURABLES
from async_wrappers.agents.registry import AGENTS, BASELINES
from async_wrappers.agents.spec import Spec
from async_wrappers.agents.trained.agent_file import read_about, score_in_words, shipped_agents
from async_wrappers.configurables import CONFIGURABLES as OF_ENVIRONMENTS
from async_wrappers.configurables import WRAPPERS
from async_wrappers.extras import ignored_warnings

_GAMES = "Atari games (create_atari_environment.game_name)"
_OTHERS = "other environments (create_gym_environment.environment_id)"
_GIVEN = ("observation_space", "action_space", "decision_interval")
# Making another package's environment may open a window or a connection.
_MADE = ("gymnasium", "async_wrappers")


def run(options: Namespace) -> None:
    """Print the names, or the parameters of one."""
    if options.name:
        print("\n".join(_described(options.name)))
        return
    registered = dict(gym.registry)
    games, games_missing = _games()
    others, others_missing = _others(registered)
    for title, names in (
        ("agents (create_agent.agent_name)", [*AGENTS, *BASELINES]),
        ("trained agents (evaluate --agent, load_agent)", [_trained(*each) for each in shipped_agents().items()]),
        (_GAMES, games),
        (_OTHERS, others),
        ("wrappers (create_gym_environment.wrappers)", [f"@{wrapper.__name__}" for wrapper in WRAPPERS]),
        ("configurations (--gin_files)", find_gin_files([PACKAGE])),
    ):
        print("\n  ".join([f"{title}:", *names]))
    missing = [f"{', '.join(names)}: {reason}" for reason, names in {**games_missing, **others_missing}.items()]
    if missing:
        print("\n  ".join(["environments that miss something here:", *missing]))


def _described(name: str) -> Iterator[str]:
    """Yield the parameters of an agent or another name of gin files; of an agent those that it shares come last."""
    things: tuple[Any, ...] = (*CONFIGURABLES, *OF_ENVIRONMENTS)
    named: dict[str, Any] = {**{gin_name(each): each for each in things}, **BASELINES, **AGENTS}
    if (thing := named.get(name.removeprefix("@"))) is None:
        close = get_close_matches(name.removeprefix("@"), named, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"`{program()} list` names the agents"
        raise UsageError(f"list knows no agent {name!r}, and gin files have no such name; {hint}")
    chosen = "".join(f", create_agent.agent_name = {key!r}" for key, agent in AGENTS.items() if agent is thing)
    yield from (f"{gin_name(thing)}{chosen}: {_plain(purpose(thing))}", *_rows(gin_name(thing), thing, set()))


def _rows(of: str, thing: Any, shown: set[str]) -> Iterator[str]:
    """Yield a line for each parameter, as gin binds it, then those of an agent's bases; the first of a name holds."""
    is_agent = isinstance(thing, type) and issubclass(thing, Spec)
    shown |= set(getattr(thing, "lacking", {}))
    for name, default, meaning in parameters(thing):
        # The program gives an agent its spaces and the interval.
        if name not in shown and not name.startswith("*") and not (is_agent and name in _GIVEN):
            shown.add(name)
            yield f"  {of}.{name}{f' = {default}' if default else ''}  # {_plain(meaning)}"
    for base in thing.__mro__[1:] if is_agent else ():
        if base in AGENTS.values():
            yield from _rows(gin_name(base), base, shown)


def _plain(text: str) -> str:
    return text.replace("`", "")


def _trained(name: str, path: Path) -> str:
    about = read_about(path)
    late = "" if about["delay"] == "none" else f", {about['delay']} late"
    return f"{name}: {score_in_words(about)}{late}; {about['frames']:,} frames of training; {about['licence']}"


def _games() -> tuple[list[str], dict[str, list[str]]]:
    """Return the games that can be played here, and the others by the missing file or package."""
    try:
        import ale_py
        from ale_py import roms
    except ImportError as error:
        return [], {f"the extra 'atari' is missing ({error}), pip install 'async-wrappers[atari]'": ["Atari"]}
    gym.register_envs(ale_py)
    specs = [spec for spec in gym.registry.values() if spec.id.startswith("ALE/") and spec.id.endswith("-v5")]
    games: list[str] = []
    missing: list[str] = []
    for spec in sorted(specs, key=attrgetter("id")):
        path = None
        with ignored_warnings(), suppress(Exception):  # ale-py's versions differ in what they do without a file
            path = roms.get_rom_path(spec.kwargs["game"])
        (missing if path is None else games).append(spec.id[len("ALE/") : -len("-v5")])
    return games, {"ale-py has no ROM": missing} if missing else {}


def _others(registered: Mapping[str, gym.envs.registration.EnvSpec]) -> tuple[list[str], dict[str, list[str]]]:
    """Return the ids that can be made here, and the others by the missing package."""
    usable: list[str] = []
    missing: dict[str, list[str]] = {}
    for name in sorted(name for name, spec in registered.items() if not str(spec.entry_point).startswith("ale_py")):
        if reason := _missing(registered[name]):
            missing.setdefault(reason, []).append(name)
        else:
            usable.append(name)
    return usable, missing


def _missing(spec: gym.envs.registration.EnvSpec) -> str:
    """Return the name of an environment's missing package, or nothing."""
    entry = spec.entry_point
    module = entry if isinstance(entry, str) else getattr(entry, "__module__", "")
    if module.partition(".")[0] not in _MADE:
        return ""
    level, gym.logger.min_level = gym.logger.min_level, gym.logger.ERROR + 1  # an older version is no mistake here
    try:
        # MuJoCo writes its warnings into the working directory too.
        with ignored_warnings(), tempfile.TemporaryDirectory() as elsewhere, chdir(elsewhere):
            gym.make(spec.id).close()
    except (gym.error.Error, ImportError, OSError, ValueError) as error:
        return first_line(error)
    finally:
        gym.logger.min_level = level
    return ""

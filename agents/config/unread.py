"""Bindings that nothing reads, found before anything is built.

Gin takes a binding of anything that it knows, whether or not a run ever calls it: ``C51Agent.vmax`` has no effect on a
run of DQN, and a typing error in the choice of an agent shows only in its scores. Gin's own record of what was read is
no help, since most calls come later: exploration schedules, evaluation, the processes of a live run.

So what can be read is found as a graph search. A configurable is *reached*

1. if it is a root: what makes the runner, and the settings of a sweep, which a gin file may have for all its trials;
2. if it is a base of a class that is reached: constructors call those of their bases;
3. if a value that is bound to one that is reached refers to it (``@RealtimeDelay``), by way of macros or not;
4. if it is the default of a parameter that nobody binds;
5. if the code of a function that is reached names it. A table of names in that code (agents, runners, torsos) counts
   entry by entry where a parameter chooses the entry, such as ``create_agent.agent_name``;
6. if a class that is reached names it among the records that its runs read, as students name `RunnerWithTeacher`;
7. if a text that is bound to a class which is reached names it in that class's table, such as ``VTraceAgent.sources``.
   Code that names such a table reaches none of its entries.

Whatever is reached counts as read, with all of its parameters, but for two cases. A class passes a parameter on to its
base, with a default of its own, so that the binding of the base is without effect (``DQNAgent.update_horizon`` where
Rainbow is chosen). And a binding with a scope is read in that scope alone. Our code enters none, so a reference with
that scope (``@near/EliteReplay``) must reach what is bound, or a macro, whose name is a scope too.

Code of the user's own that is reached may call anything in any scope, so nothing is refused then. In doubt a binding
counts as read: a binding that is refused wrongly would stop a good run.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import import_module
from operator import attrgetter
from typing import Any, NamedTuple

import gin

from async_wrappers.agents.config.gin_text import OURS, GinReference, Macro, bindings_in, leaves

ROOTS = ("create_runner", "Sweep")
# Parameters whose text chooses an entry of a table. Their callers never pass them, so what gin binds is what counts;
# agents do pass a network's head, for which all entries count.
CHOICES = (
    ("create_network", "torso"),
    ("create_network", "initializer"),
    ("create_agent", "agent_name"),
    ("create_runner", "schedule"),
)
# Modules and names of tables that a parameter's texts choose from; by name, since they need PyTorch.
TABLES = {("VTraceAgent", "sources"): ("async_wrappers.agents.replay.mixture", "SOURCES")}


@dataclass(frozen=True)
class GivenBinding:
    """A binding that the user has given directly, not through an include.

    Attributes:
        source: Where, such as ``"--gin_files mine.gin"``.
        owner: What it binds a parameter of, such as ``"RealtimeDelay"``; the name of a macro.
        parameter: Such as ``"delay"``; empty for a macro.
        from_file: Whether a file has it.
        scope: In which alone it holds, such as ``"near"``; empty where it holds everywhere, and for a macro.
    """

    source: str
    owner: str
    parameter: str
    from_file: bool
    scope: str = ""

    @property
    def name(self) -> str:
        """Scope, owner and parameter, as gin writes them."""
        scoped = f"{self.scope}/{self.owner}" if self.scope else self.owner
        return f"{scoped}.{self.parameter}" if self.parameter else scoped


class Unread(NamedTuple):
    """A binding that nothing reads.

    Attributes:
        source: Where it is given.
        reason: Why nothing reads it, and the remedy.
    """

    source: str
    reason: str


@dataclass(frozen=True)
class LoadedConfig:
    """Gin's configuration after a command line.

    Attributes:
        given: The bindings that the user has given himself.
        texts: The configuration after each gin file, and last with all bindings.
    """

    given: list[GivenBinding] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    def unread(self) -> dict[str, Unread]:
        """Return the given bindings that nothing reads, by their names.

        A binding of a file counts as read if the files alone read it: ``create_agent.agent_name = 'random'`` on the
        command line does not make a file wrong that has DQN's settings.
        """
        ours = _Configurables(ours_by_name())
        graphs = [_ReachableCode(text, ours) for text in dict.fromkeys(self.texts)]
        found: dict[str, Unread] = {}
        for each in self.given:
            asked = graphs if each.from_file else graphs[-1:]
            reasons = [graph.why_unread(each) for graph in asked]
            if all(reasons):
                found.setdefault(each.name, Unread(each.source, reasons[-1]))
        return found


def given_in(text: str, source: str, *, from_file: bool) -> Iterator[GivenBinding]:
    """Yield the bindings of a gin text, without those of the files that it includes.

    Raises:
        SyntaxError: It is not gin's.
    """
    for statement in bindings_in(text):
        owner, scope = _owner(statement), statement.scope if statement.arg_name else ""
        yield GivenBinding(source, owner, statement.arg_name or "", from_file, scope or "")


def _owner(statement: Any) -> str:
    """Return the configurable of a statement, without scope and module; a macro's name is kept whole."""
    selector: str = statement.selector
    if not statement.arg_name:
        return f"{statement.scope}/{selector}" if statement.scope else selector
    return selector.rpartition(".")[2]


class _Configurables:
    """This project's configurables: their classes, their defaults, and what their code names."""

    def __init__(self, known: Mapping[str, Callable[..., Any]]) -> None:
        self._known = {**known}
        # A gin reference means another function, or a subclass of another package's class.
        self._things = {
            name: known_to_gin(f"agents.{name}") or known_to_gin(f"async_wrappers.{name}") for name in known
        }
        self._names = {id(thing): name for things in (self._known, self._things) for name, thing in things.items()}
        # A search asks for the same things again and again.
        self.family, self.defaults = cache(self._family), cache(self._defaults)

    def __contains__(self, name: str) -> bool:
        return name in self._things

    def name_of(self, thing: Any) -> str | None:
        """Return the name of a configurable; None for other things."""
        return thing.__name__ if isinstance(thing, ByName) else self._names.get(id(thing))

    def referred_to(self, selector: str) -> str | None:
        """Return the configurable's name of a gin reference; None where it is not this project's."""
        return self.name_of(known_to_gin(selector))

    def _family(self, name: str) -> list[str]:
        """Return a class and its bases that are configurable too, the class first; a function alone."""
        thing = self._things[name]
        classes = thing.__mro__ if isinstance(thing, type) else ()
        return list(dict.fromkeys([name, *filter(None, map(self.name_of, classes))]))

    def _defaults(self, name: str) -> dict[str, Any]:
        """Return the defaults that a function, or a class's own constructor, has for its parameters."""
        thing = self._things[name]
        if isinstance(thing, type):
            if "__init__" not in vars(thing):
                return {}
            thing = vars(thing)["__init__"]
        parameters = inspect.signature(inspect.unwrap(thing)).parameters.values()
        return {each.name: each.default for each in parameters if each.default is not inspect.Parameter.empty}

    def records(self, name: str) -> Sequence[str]:
        """Return the records of settings that runs of an agent of this class read."""
        records: Sequence[str] = getattr(self._things[name], "run_records", ())
        return records

    def named_in_code(self, name: str, choices: Mapping[str, set[str]]) -> set[str]:
        """Return the configurables that a function's code names, itself or by the functions and classes that it uses.

        Args:
            name: The function's; of a class only its arguments are searched.
            choices: Which entries are taken of the table that has such a default; of any other table, all are.
        """
        thing = self._things[name]
        if isinstance(thing, type):
            return set()
        found: set[str] = set()
        seen: set[int] = set()
        left = [inspect.unwrap(thing)]
        while left:
            function = left.pop()
            if id(function) in seen:
                continue
            seen.add(id(function))
            for value in _values_named(function):
                for each in leaves(_entries(value, choices)):
                    # Our code takes Gymnasium's own class, gin's reference a subclass, which alone reads bindings.
                    if getattr(each, "__module__", "").partition(".")[0] == "gymnasium":
                        continue
                    if (configurable := self.name_of(each)) is not None:
                        found.add(configurable)
                    else:
                        left += _functions(each)
        return found


def ours_by_name() -> dict[str, Callable[..., Any]]:
    """Return this project's configurables in alphabetical order; `DQN` has the name ``DQNAgent``.

    A class of a user's own may be registered as one of agents: it is his, by its module.
    """
    registered = (each for _, each in gin.config._REGISTRY.items())  # gin has no public list of it
    ours = [each for each in registered if each.module in ("agents", "async_wrappers")]
    found = {each.name: each.wrapped for each in sorted(ours, key=attrgetter("name"))}
    packages = {*OURS, "gymnasium"}
    return {name: thing for name, thing in found.items() if thing.__module__.partition(".")[0] in packages}


def known_to_gin(selector: str) -> Any:
    """Return the configurable that gin knows by a name; None if there is none, or several."""
    try:
        return gin.get_configurable(selector)
    except ValueError:  # which gin refuses in its own words where it is used
        return None


class ByName:
    """A function of a higher layer, which gin finds by its name when it is called.

    So `Runner` names what makes an agent by default, and imports none.

    Args:
        name: In gin, with the module that it is registered under, such as ``"agents.create_agent"``.
    """

    def __init__(self, name: str) -> None:
        self._selector, self.__name__ = name, name.rpartition(".")[2]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it.

        Raises:
            ValueError: Nothing has registered it.
        """
        function = known_to_gin(self._selector)
        if function is None:
            raise ValueError(f"gin must know @{self.__name__}: import async_wrappers.agents.configurables")
        return function(*args, **kwargs)


@cache  # each search asks for the same functions, and a sweep searches for each of its points
def _values_named(function: Any) -> tuple[Any, ...]:
    """Return the globals that the code of a function names, without the tables of `TABLES`.

    They are those of the first search: a global that is bound anew later is not seen.
    """
    tables = [getattr(sys.modules[module], name) for module, name in TABLES.values() if module in sys.modules]
    values = inspect.getclosurevars(function).globals.values()
    return tuple(value for value in values if not any(value is table for table in tables))


def _entries(value: Any, choices: Mapping[str, set[str]]) -> Any:
    """Return the entries of a table that are chosen, of a schedule its records; other values as they are.

    Of a table without a choice all entries count.
    """
    for default, texts in choices.items():
        if isinstance(value, Mapping) and default in value:
            chosen = [value[text] for text in texts if text in value]
            return [getattr(each, "records", each) for each in chosen]
    if isinstance(value, Mapping):
        return {key: getattr(each, "records", each) for key, each in value.items()}
    return value


def _functions(thing: Any) -> list[Any]:
    """Return the code of a function or class of this project, as functions."""
    if not getattr(thing, "__module__", "").startswith(_IN_OURS):
        return []
    if isinstance(thing, type):
        return _methods(thing)
    return [inspect.unwrap(thing)] if inspect.isfunction(inspect.unwrap(thing)) else []


@cache
def _methods(thing: type) -> list[Any]:
    return [inspect.unwrap(each) for each in vars(thing).values() if inspect.isfunction(each)]


_IN_OURS = tuple(f"{package}." for package in OURS)
_FOREIGN = ""  # code of the user's own, among the names of configurables
_REFERENCE = re.compile(r"@([\w./]+/[\w.]+)")
_UNUSED_MACRO = "nothing reads the macro {0}, as no value is %{0}: leave it out"


class _ReachableCode:
    """What one configuration reaches."""

    def __init__(self, text: str, ours: _Configurables) -> None:
        self._ours = ours
        # By (owner, parameter): the values in all scopes, and whether the default is never taken.
        self._bound: dict[tuple[str, str], list[Any]] = {}
        self._unscoped: set[tuple[str, str]] = set()
        self._macros: dict[str, Any] = {}
        for statement in bindings_in(text):
            key = _owner(statement), statement.arg_name
            if not statement.arg_name:
                self._macros[_owner(statement)] = statement.value
                continue
            self._bound.setdefault(key, []).append(statement.value)
            if not statement.scope:
                self._unscoped.add(key)
        self._leaves = self._search(ROOTS)  # reached otherwise than as a base
        self._reached = self._with_bases(self._leaves)

    def why_unread(self, given: GivenBinding) -> str:
        """Return the reason why nothing reads a binding, and the remedy; empty where something does."""
        owner, parameter = given.owner, given.parameter
        if not parameter:
            return "" if self._is_used(owner) else _UNUSED_MACRO.format(owner)
        if owner not in self._ours or _FOREIGN in self._leaves:
            return ""
        if owner not in self._reached:
            return f"nothing reads {given.name}, as {self._why_unreached(owner)}"
        if given.scope and not {owner, _FOREIGN} & self._reached_in(given.scope):
            return f"nothing reads {given.name}, as {self._why_not_entered(given)}"
        families = [family for leaf in self._leaves if owner in (family := self._ours.family(leaf))]
        hidden = [self._hidden_by(family, owner, parameter) for family in families]
        if not all(hidden):
            return ""
        chosen = hidden[0]
        default = self._ours.defaults(chosen)[parameter]
        return (
            f"nothing reads {given.name}, as {chosen} has a default of its own for it ({default!r}): "
            f"bind {chosen}.{parameter} instead, or leave it out"
        )

    def _hidden_by(self, family: list[str], owner: str, parameter: str) -> str:
        """Return the class whose default hides a binding of its base, unless the user has bound it there; or empty."""
        below = family[: family.index(owner)]
        if any((each, parameter) in self._bound for each in below):
            return ""
        return next((each for each in below if parameter in self._ours.defaults(each)), "")

    def _why_unreached(self, owner: str) -> str:
        for function, parameter in CHOICES:
            if function in self._reached and owner in self._reached_by_others[function, parameter]:
                value = next(iter(self._values(function, parameter)), None)
                key = f"{function}.{parameter}"
                return f"{key} is {value!r}: leave it out, or bind {key} to what reads it"
        return f"nothing that is made refers to it: name @{owner} where it is used, or leave it out"

    def _why_not_entered(self, given: GivenBinding) -> str:
        scopes = ", ".join(map(repr, sorted(filter(None, self._entered)))) or "none"
        return (
            f"{given.owner} is never made in the scope {given.scope!r} (scopes that references enter: {scopes}): bind "
            f"{given.owner}.{given.parameter}, or refer to @{given.scope}/{given.owner} where it is used"
        )

    def _reached_in(self, scope: str) -> set[str]:
        """Return the configurables that are reached in a scope, or in one within it."""
        entered = [names for each, names in self._entered.items() if f"{each}/".startswith(f"{scope}/")]
        return self._with_bases(self._search(set().union(*entered)))

    @cached_property
    def _entered(self) -> dict[str, set[str]]:
        """The configurables that a reference or a macro makes in a scope, by the scope."""
        found: dict[str, set[str]] = {}
        values = list(leaves([*self._bound.values(), *self._macros.values()]))
        # A text may hold a value that is parsed later: the axes of a sweep.
        texts = (_REFERENCE.findall(each) for each in values if type(each) is str)
        references = [GinReference(text) for each in texts for text in each]
        references += [each for each in values if isinstance(each, GinReference)]
        for each in references:
            found.setdefault(each.scope, set()).add(self._ours.referred_to(each) or _FOREIGN)
        for macro, value in self._macros.items():
            for each in leaves(value):
                if isinstance(each, GinReference) and not each.scope and self._is_used(macro):
                    found.setdefault(macro, set()).add(self._ours.referred_to(each) or _FOREIGN)
        return found

    @cached_property
    def _reached_by_others(self) -> dict[tuple[str, str], set[str]]:
        """The configurables that the entries of each table reach together."""
        return {choice: self._with_bases(self._search([choice[0]], choice)) for choice in CHOICES}

    def _is_used(self, macro: str) -> bool:
        # A text may hold a binding that is parsed later: the axes of a sweep.
        return any(
            (isinstance(each, Macro) and each == macro) or (type(each) is str and f"%{macro}" in each)
            for each in leaves([*self._bound.values(), *self._macros.values()])
        )

    def _values(self, owner: str, parameter: str) -> list[Any]:
        """Return a parameter's possible values: those bound to it, macros resolved, or its default."""
        values = [*self._bound.get((owner, parameter), [])]
        if (owner, parameter) not in self._unscoped:
            values.append(self._ours.defaults(owner).get(parameter))
        return list(self._looked_up(values, set()))

    def _looked_up(self, value: Any, seen: set[str]) -> Iterator[Any]:
        for each in leaves(value):
            if not isinstance(each, Macro):
                yield each
            elif each not in seen and each in self._macros:
                yield from self._looked_up(self._macros[each], {*seen, each})

    def _search(self, roots: Iterable[str], opened: tuple[str, str] | None = None) -> set[str]:
        """Return the configurables reached from `roots`, without the bases of classes, and perhaps `_FOREIGN`.

        Args:
            roots: Where the search begins.
            opened: One of `CHOICES`, which takes all entries instead of its bound value, to find what other choices
                read.
        """
        found: set[str] = set()
        left = [name for name in roots if name in self._ours or name == _FOREIGN]
        while left:
            name = left.pop()
            if name not in found:
                found.add(name)
                left += [] if name == _FOREIGN else self._next(self._ours.family(name), opened)
        return found

    def _with_bases(self, found: Iterable[str]) -> set[str]:
        return {name for each in found for name in ([each] if each == _FOREIGN else self._ours.family(each))}

    def _next(self, family: list[str], opened: tuple[str, str] | None) -> Iterator[str]:
        """Yield the configurables reached from a class and its bases, or from a function, in one step."""
        bound = {parameter for owner, parameter in self._unscoped if owner in family}
        for name in family:
            values = [values for (owner, _), values in self._bound.items() if owner == name]
            for each in self._looked_up(values, set()):
                if isinstance(each, GinReference):
                    yield self._ours.referred_to(each) or _FOREIGN
            defaults = [value for key, value in self._ours.defaults(name).items() if key not in bound]
            yield from filter(None, map(self._ours.name_of, leaves(defaults)))
            yield from self._ours.named_in_code(name, self._choices(name, opened))
            yield from self._ours.records(name)
            for (owner, parameter), table in TABLES.items():
                texts = [each for each in self._values(owner, parameter) if type(each) is str] if owner == name else []
                if texts:
                    entries = getattr(import_module(table[0]), table[1])
                    yield from filter(None, (self._ours.name_of(entries.get(each)) for each in texts))

    def _choices(self, name: str, opened: tuple[str, str] | None) -> dict[str, set[str]]:
        """Return the texts that choose an entry of a table, by the default of the parameter that takes them."""
        found: dict[str, set[str]] = {}
        for function, parameter in CHOICES:
            if function == name and (function, parameter) != opened:
                values = self._values(name, parameter)
                # Any other value is a mistake, which is refused where it is used.
                if all(isinstance(each, str) for each in values):
                    texts = {each for each in values if not isinstance(each, GinReference)}
                    found[self._ours.defaults(name)[parameter]] = texts
        return found

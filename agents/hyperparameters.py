"""A hyperparameter, declared once.

An agent declares each of them as an attribute::

    @agent("DQNAgent")
    class DQN(NetworkAgent):
        batch_size: int = whole(32, "Transitions per update.", 1, "transition")

The declaration makes the argument of the constructor, its check, the sentence that refuses a wrong value, the entry in
the class's documentation, and the row on the reference page of gin parameters.

* `number`, `whole`, `flag`, `choice`, `factory`: settings of one kind. `setting`: any other one, with its own check.
* `agent`: makes the constructor and the documentation of a class, and lets gin bind it by a name.
* `settings`: for a class that only others inherit from, which has no name in gin.
* `part`: for a small object that an agent is given, such as a term of its loss, and for the settings of a run.
* `made_for`: for a class whose objects are made for something, such as a source of unrolls for a mixture.
* `record`: for settings that travel together, which gin does not bind. `shared`: takes them from an agent.
* `again`: declares a setting of another class again, such as a base's with another default.
* `must`: a condition on several settings.
* `with_gin_values`: a function with what gin binds to it, for another process, whose gin is empty.

The constructors of agents form a chain, since gin binds the arguments of each. What is bound to ``DQNAgent`` holds for
the classes below it, unless they bind it under their own name or declare it anew. So the constructor of an agent knows
the settings that the agent itself declares, and passes all others on. The last one, of `NetworkAgent`, sets the
attributes and checks them.
"""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import partial
from os import PathLike
from typing import Any, NamedTuple, TypeVar, dataclass_transform

import gin
import numpy as np

from async_wrappers import checks
from async_wrappers.needs import Need
from async_wrappers.settings import declared, entry, with_arguments

Check = Callable[[str, Any], object]
"""From a setting's name and its value to what is ignored, or a ValueError that names both and the remedy."""

_LARGEST = 1e30  # what a number may be: float32 ends at 3e38
_MOST = 10**12  # observations, decisions, transitions or frames
WIDEST = 10**6  # units of a layer, or outputs of a network


class Range(NamedTuple):
    """Where a number must lie.

    Attributes:
        words: The words after "must" in an error message, such as ``"be > 0"``.
        holds: Whether a number lies there; False for nan.
    """

    words: str
    holds: Callable[[float], bool]


SHARE = Range("lie in [0, 1]", lambda value: 0 <= value <= 1)
POSITIVE_SHARE = Range("lie in (0, 1]", lambda value: 0 < value <= 1)
POSITIVE = Range("be > 0", lambda value: value > 0)
POSITIVE_FINITE = Range("be > 0 and finite", lambda value: 0 < value < math.inf)
NOT_NEGATIVE = Range("be >= 0 and finite", lambda value: 0 <= value < math.inf)


# Declarations.


def setting(default: Any, meaning: str, check: Check, allowed: str = "", qualified: bool = False) -> Any:
    """Declare a setting of any kind.

    Args:
        default: Its value unless another one is given.
        meaning: What it sets, in one sentence, with its unit.
        check: Refuses a wrong value.
        allowed: Which values are right, in words, where the meaning does not say it.
        qualified: Whether a refusal names the setting as gin does, ``DQNAgent.network``.
    """
    return field(default=default, kw_only=True, metadata={**declared(meaning, check, allowed), "qualified": qualified})


def _check(instance: Any, each: Field[Any], value: Any) -> None:
    named = each.metadata["qualified"] or getattr(instance, "is_part", False)  # names that need the agent's before them
    each.metadata["check"](f"{instance.gin_name}.{each.name}" if named else each.name, value)


def number(default: float | None, meaning: str, range: Range | None = None, none: str | None = None) -> Any:
    """Declare a real number.

    Args:
        default: As in `setting`.
        meaning: As in `setting`.
        range: Where it must lie; None for anywhere.
        none: What None stands for, such as ``"no clipping"``; None where it is refused.
    """
    or_none = "" if none is None else f", or None for {none}"

    def check(name: str, value: Any) -> None:
        if value is None and none is not None:
            return
        # Infinity passes: the check of the range has a clearer message.
        huge = isinstance(value, int | float) and _LARGEST < abs(value) < math.inf
        if huge or not isinstance(value, numbers.Real) or isinstance(value, bool):
            raise ValueError(f"{name} must be a number, of at most {_LARGEST:g}{or_none}, got {value!r}")
        if range is not None and not range.holds(float(value)):
            raise ValueError(f"{name} must {range.words}{or_none}, got {value}")

    allowed = f"It must {range.words}{or_none}." if range else f"None stands for {none}." if none else ""
    return setting(default, meaning, check, allowed)


def whole(default: int | None, meaning: str, least: int, unit: str, none: str | None = None, most: int = _MOST) -> Any:
    """Declare a whole number.

    Args:
        default: As in `setting`.
        meaning: As in `setting`.
        least: The smallest value that is right.
        unit: What is counted, after `least`: ``"decision"`` for 1, else ``"decisions"``; empty for a mere number.
        none: What None stands for; None where it is refused.
        most: The largest value that is right.
    """
    or_none = "" if none is None else f", or None for {none}"
    at_least = f">= {least} {unit}".rstrip()
    in_brackets = f" ({unit})" if unit else ""

    def check(name: str, value: Any) -> None:
        if value is None and none is not None:
            return
        if not isinstance(value, int | np.integer) or isinstance(value, bool):
            raise ValueError(f"{name} must be a whole number{in_brackets}{or_none}, got {value!r}")
        if value < least:
            raise ValueError(f"{name} must be {at_least}{or_none}, got {value}")
        if value > most:
            raise ValueError(f"{name} must be <= {most:,}{in_brackets}, got {value}")

    return setting(default, meaning, check, f"It must be {at_least}{or_none}.")


def flag(default: bool, meaning: str) -> Any:
    """Declare a setting that is True or False."""
    return setting(default, meaning, checks.flag)


def choice(default: str | None, meaning: str, *words: str, none: bool = False) -> Any:
    """Declare a setting that is one of some words, or None where `none` says so."""
    told = all(word in meaning for word in words)
    in_words = "" if told else f"It must be {checks.choice_range(words, none)}."
    return setting(default, meaning, lambda name, value: checks.choice(name, value, words, none), in_words)


def text(meaning: str, none: str) -> Any:
    """Declare a text, or None by default.

    Args:
        meaning: As in `setting`.
        none: What None stands for.
    """

    def check(name: str, value: Any) -> None:
        if not isinstance(value, str | PathLike | None):
            raise ValueError(f"{name} must be text, or None for {none}, got {value!r}")

    return setting(None, meaning, check, f"None stands for {none}.")


def factory(default: Callable[..., Any] | None, meaning: str, example: str) -> Any:
    """Declare a function or a class.

    Args:
        default: As in `setting`; where it is None, None is right.
        meaning: As in `setting`.
        example: Another one, as gin writes it.
    """

    def check(name: str, value: Any) -> None:
        if not callable(value) and not (value is None and default is None):
            raise ValueError(f"{name} must be a function or a class, such as {example}, got {value!r}")

    return setting(default, meaning, check, qualified=True)


def again(kind: Any, name: str, default: Any = MISSING) -> Any:
    """Declare a setting of another class again, such as a base's with another default."""
    each = kind.declarations[name]
    return field(default=each.default if default is MISSING else default, kw_only=True, metadata=each.metadata)


def must(holds: bool, sentence: str) -> None:
    """Raise a ValueError with `sentence` unless a condition on the settings holds."""
    if not holds:
        raise ValueError(sentence)


# Constructors and documentation, made from the declarations.

Kind = TypeVar("Kind", bound=type)
Record = TypeVar("Record")


def settings(kind: Kind) -> Kind:
    """Collect the settings that a class declares, for the agents that inherit from it.

    A class that cannot use settings of its bases names them in `lacks`, each with the reason: neither it nor a class
    below it has them then. Their defaults hold, and its constructor takes these alone.
    """
    if "declared" in vars(kind):
        return kind
    made: Any = kind
    made.declared = {name: each for name, each in vars(kind).items() if isinstance(each, Field)}
    for name, each in made.declared.items():
        each.name = name
        delattr(kind, name)  # the attribute is the object's
    found: dict[str, Field[Any]] = {}
    made.lacking = {}
    for base in reversed(kind.__mro__):
        for name, why in vars(base).get("lacks", {}).items():
            if name in found:
                made.lacking[name] = Need(name, found.pop(name).default, why)
        for name, each in vars(base).get("declared", {}).items():
            made.lacking.pop(name, None)
            found.pop(name, None)  # the last declaration has the place, too
            found[name] = each
    for name, need in made.lacking.items():
        setattr(kind, name, need.right)
    made.declarations = found
    made.__setattr__ = _set_checked  # also when a setting changes later
    return kind


def _set_checked(self: Any, name: str, value: Any) -> None:
    if (each := self.declarations.get(name)) is not None:
        _check(self, each, value)
    object.__setattr__(self, name, value)


def set_all(made: Any, given: Mapping[str, Any]) -> None:
    """Set the settings of an object, those that are not given to their defaults, and check them.

    Raises:
        TypeError: The class does not declare a given one.
        ValueError: One is out of its range.
    """
    if unknown := given.keys() - made.declarations.keys():
        raise TypeError(f"{type(made).__name__} has no hyperparameter {min(unknown)!r}")
    for name, each in made.declarations.items():
        setattr(made, name, given.get(name, each.default))


def agent(name: str, refuse: Callable[[str, Mapping[str, Any]], None] | None = None) -> Callable[[Kind], Kind]:
    """Return a decorator that makes an agent of a class: its constructor, its documentation, its name in gin.

    Args:
        name: In gin, such as ``"DQNAgent"``.
        refuse: Refuses settings of a base that the agent and those below it do not read, with a ValueError. It is given
            the agent's `name` and the settings that are bound to these, without those that are bound to the base.
    """

    def decorate(kind: Kind) -> Kind:
        settings(kind)
        own = _own(kind)
        if "__init__" not in vars(kind):
            kind.__init__ = _constructor(kind, own, refuse)  # type: ignore[misc]
        kind.__doc__ = _documented(kind, own)
        kind.gin_name = name  # type: ignore[attr-defined]
        configurable: Kind = gin.configurable(name, module="agents", denylist=["decision_interval"])(kind)
        return configurable

    return decorate


@dataclass_transform(kw_only_default=True)
def part(kind: Kind) -> Kind:
    """Make a class of immutable objects that an agent is given: constructor, documentation, the class's name in gin."""
    made = record(kind)
    made.is_part = True  # type: ignore[attr-defined]
    configurable: Kind = gin.configurable(kind.__name__, module="agents")(made)
    return configurable


def made_for(name: str, meaning: str) -> Callable[[Kind], Kind]:
    """Return a decorator that lets gin bind the settings of a class: its constructor, its documentation, its name.

    Args:
        name: The constructor's first argument, which a base of the class takes with the settings.
        meaning: What that is, in one sentence.
    """

    def decorate(kind: Kind) -> Kind:
        made: Any = settings(kind)

        def __init__(self: Any, made_for: Any, **given: Any) -> None:
            super(kind, self).__init__(made_for, **given)  # type: ignore[arg-type]

        defaults = {name: each.default for name, each in made.declarations.items()}
        kind.__init__ = _signed(__init__, kind, ("self", name), defaults)  # type: ignore[misc]
        kind.__doc__ = with_arguments(kind, [f"{name}: {meaning}", *map(entry, made.declarations.values())])
        configurable: Kind = gin.configurable(kind.__name__, module="agents")(kind)
        return configurable

    return decorate


@dataclass_transform(kw_only_default=True)
def record(kind: Kind) -> Kind:
    """Make a class of immutable objects of settings that travel together: constructor and documentation."""

    def check(self: Any) -> None:
        for each in fields(self):
            _check(self, each, getattr(self, each.name))

    kind.__post_init__ = check  # type: ignore[attr-defined]
    made: Any = dataclass(frozen=True)(kind)
    made.declarations = {each.name: each for each in fields(made)}
    made.__doc__ = with_arguments(kind, map(entry, fields(made)))
    made.gin_name = kind.__name__
    return made  # type: ignore[no-any-return]


def shared(kind: type[Record], other: Any, **further: Any) -> Record:
    """Return a record with the settings that another object has by the same names, and further ones.

    Args:
        kind: The record's class.
        other: Has some of its settings as attributes.
        further: Take the place of these.
    """
    names = [name for name in kind.declarations if hasattr(other, name)]  # type: ignore[attr-defined]
    return kind(**{**{name: getattr(other, name) for name in names}, **further})


def _own(kind: type) -> list[Field[Any]]:
    """Return the settings that no base with a name in gin has, and those that are declared anew."""
    names = _own_names(kind)
    return [each for each in kind.declarations.values() if each.name in names]  # type: ignore[attr-defined]


def _own_names(kind: type) -> set[str]:
    named = _named_bases(kind)
    return {
        name
        for base in kind.__mro__
        if "declared" in vars(base) and not any(issubclass(each, base) for each in named)
        for name in vars(base)["declared"]
    }


def _named_bases(kind: type) -> list[type]:
    return [base for base in kind.__mro__[1:] if "gin_name" in vars(base)]


def _constructor(
    kind: type, own: list[Field[Any]], refuse: Callable[[str, Mapping[str, Any]], None] | None
) -> Callable[..., None]:
    defaults = {each.name: each.default for each in own}

    def __init__(self: Any, observation_space: Any, action_space: Any, **given: Any) -> None:
        if refuse is not None:
            refuse(self.name, given)
        super(kind, self).__init__(  # type: ignore[arg-type]
            observation_space, action_space, **{**defaults, **given}
        )

    positional = ("self", "observation_space", "action_space")
    # Settings that the agent lacks are taken too, since configurations that were written down bind their defaults.
    names = _own_names(kind)
    lacking = [need for need in kind.lacking.values() if need.setting in names]  # type: ignore[attr-defined]
    taken = {**defaults, **{need.setting: need.right for need in lacking}}
    return _signed(__init__, kind, positional, taken, "shared" if _named_bases(kind) else None)


def _signed(
    constructor: Callable[..., None],
    kind: type,
    positional: tuple[str, ...],
    defaults: Mapping[str, Any],
    rest: str | None = None,
) -> Callable[..., None]:
    """Give a constructor the name of a class's and a signature: positional arguments, settings by name, the rest."""
    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in positional]
    named = inspect.Parameter.KEYWORD_ONLY
    parameters += [inspect.Parameter(name, named, default=default) for name, default in defaults.items()]
    if rest is not None:
        parameters.append(inspect.Parameter(rest, inspect.Parameter.VAR_KEYWORD))
    constructor.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    constructor.__qualname__, constructor.__module__ = f"{kind.__qualname__}.__init__", kind.__module__
    return constructor


def _documented(kind: type, own: list[Any]) -> str:
    """Return a class's documentation with its settings, as a section of arguments."""
    entries = ["observation_space: The environment's.", "action_space: The environment's.", *map(entry, own)]
    if bases := _named_bases(kind):
        names = ", ".join(f"``{base.gin_name}``" for base in bases)  # type: ignore[attr-defined]
        but = ", ".join(f"`{name}`" for name in kind.lacking)  # type: ignore[attr-defined]
        but = f" but {but}" if but else ""
        entries.append(f"shared: Parameters of {names}{but}; gin binds them under this agent's name or theirs.")
    return with_arguments(kind, entries)


# Functions with the values that gin binds to them now, for another process, whose gin is empty.


@dataclass(frozen=True, eq=False)
class WithGinValues:
    """Calls `function` with `bindings`, as gin would: the caller's arguments win over them."""

    function: Callable[..., Any]
    bindings: dict[str, Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        given = inspect.signature(self.function).bind_partial(*args).arguments
        bound = {name: value for name, value in self.bindings.items() if name not in given}
        return self.function(*args, **{**bound, **kwargs})

    def __repr__(self) -> str:
        """Return the function's name as a gin file has it."""
        return f"@{getattr(self.function, '__name__', self.function)}"


def with_gin_values(value: Any) -> Any:
    """Return a function with the values that gin binds to it now, so that a process without them can call it.

    Functions among the values, and in lists and tuples, get their values too, those of the scope in which they will be
    called; what a function calls by name does not.
    A function that gin does not know is returned as it is, and so is all else.

    Gin's text (``gin.config_str``) cannot be sent instead: it leaves out values that have no text, and to read it a
    child would have to import every module that it names.
    """
    if isinstance(value, list | tuple):
        return type(value)(with_gin_values(each) for each in value)
    if isinstance(value, partial):
        return partial(with_gin_values(value.func), *value.args, **value.keywords)
    configurable = _configurable(value) if callable(value) else None
    if configurable is None:
        return value
    # A reference such as @scope/name is a function, or a class, that enters the scope around the configurable. Gin has
    # no public name for that scope, so it is read from the function's closure.
    entered = type(value).__call__ if isinstance(value, type) else value
    scope = inspect.getclosurevars(entered).nonlocals.get("scope_components") if inspect.isfunction(entered) else None
    with gin.config_scope(scope or gin.current_scope()):
        bindings = {name: with_gin_values(each) for name, each in gin.get_bindings(configurable).items()}
    return WithGinValues(inspect.unwrap(configurable), bindings)


def _configurable(function: Callable[..., Any]) -> Callable[..., Any] | None:
    """Return what is registered with gin; of a class of another package a reference is a subclass of the same name."""
    if not isinstance(function, type):
        found = inspect.unwrap(function, stop=_is_configurable)
        return found if _is_configurable(found) else None
    named = [kind for kind in function.__mro__ if kind.__qualname__ == function.__qualname__]
    return next((kind for kind in named if _is_configurable(kind)), None)


def _is_configurable(function: Callable[..., Any]) -> bool:
    try:
        gin.get_bindings(function, resolve_references=False)
    except (ValueError, TypeError):  # not registered, or not hashable
        return False
    return True

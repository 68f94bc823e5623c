"""What the source of a user's wrapper says about it: whether it may change rewards, and what it keeps over episodes.

Read once, where an environment is made, so that no step pays for it. Code without a source is taken to change nothing.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any, TypeGuard

_KNOWN = ("gymnasium", "async_wrappers", "ale_py")  # packages whose wrappers are known
_OF_A_STEP = ("step", "observation", "observations", "reward", "rewards", "action", "actions")


def changes_rewards(layer: Any) -> bool:
    """Return whether the ``step`` of a user's wrapper may return another reward than that of what it is around.

    It does not where each of its returns is ``self.env.step(...)`` (or ``super().step(...)``) or a tuple with the
    variable that such a call has set, and nothing else.
    """
    step = _methods(layer).get("step")
    if step is None:
        return False
    whole, rewards, others = set[str](), set[str](), set[str]()
    for node in ast.walk(step):
        if isinstance(node, ast.Assign) and _is_step(node.value):
            for target in node.targets:
                if isinstance(target, ast.Tuple) and len(target.elts) > 1 and isinstance(target.elts[1], ast.Name):
                    rewards.add(target.elts[1].id)
                elif isinstance(target, ast.Name):
                    whole.add(target.id)
        elif isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.NamedExpr | ast.For):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            others |= {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}

    def passes(value: ast.expr | None) -> bool:
        if isinstance(value, ast.Tuple) and len(value.elts) > 1:
            return isinstance(value.elts[1], ast.Name) and value.elts[1].id in rewards - others
        return _is_step(value) or (isinstance(value, ast.Name) and value.id in whole - others)

    return not all(passes(node.value) for node in ast.walk(step) if isinstance(node, ast.Return))


def kept_over_episodes(layer: Any) -> list[str]:
    """Return the attributes that a user's wrapper sets as it steps, from their own value or without a reset of them."""
    methods = _methods(layer)
    anew = {name for method in _called(methods, ["reset"]) for name, _ in _set_in(method)}
    kept = dict[str, None]()
    for begin in _OF_A_STEP:
        for method in _called(methods, [begin]):
            # A method other than `step` is also called by Gymnasium's own `reset`, and sets its attributes anew there.
            kept |= {name: None for name, reads in _set_in(method) if name not in anew and (begin == "step" or reads)}
    return list(kept)


def _methods(layer: Any) -> dict[str, ast.FunctionDef]:
    """Return the methods of a wrapper by name that no known package has written."""
    found: dict[str, ast.FunctionDef] = {}
    for kind in type(layer).__mro__:
        if kind is object or kind.__module__.partition(".")[0] in _KNOWN:
            continue
        for name, method in vars(kind).items():
            if inspect.isfunction(method) and name not in found and (parsed := _parsed(method)) is not None:
                found[name] = parsed
    return found


def _parsed(method: Any) -> ast.FunctionDef | None:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(method))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        return None
    return tree if isinstance(tree, ast.FunctionDef) else None


def _called(methods: dict[str, ast.FunctionDef], names: list[str]) -> Iterator[ast.FunctionDef]:
    """Yield methods and those that they call on self."""
    seen = set[str]()
    while names:
        name = names.pop()
        if name in methods and name not in seen:
            seen.add(name)
            yield methods[name]
            names += [node.attr for node in ast.walk(methods[name]) if _of_self(node)]


def _set_in(method: ast.FunctionDef) -> Iterator[tuple[str, bool]]:
    """Yield the attributes of self that a method sets, and whether it does so from their own value."""
    for node in ast.walk(method):
        if isinstance(node, ast.AugAssign) and _of_self(node.target):
            yield node.target.attr, True
        elif isinstance(node, ast.Assign):
            read = {each.attr for each in ast.walk(node.value) if _of_self(each)}
            for target in node.targets:
                yield from ((each.attr, each.attr in read) for each in ast.walk(target) if _of_self(each))


def _of_self(node: Any) -> TypeGuard[ast.Attribute]:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def _is_step(value: Any) -> bool:
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "step"

"""Arguments declared once: the constructor, checks, documentation and table of gin parameters made of them."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, fields
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from async_wrappers import AsyncRunner
from async_wrappers.live.runner_settings import RunnerSettings
from async_wrappers.live.world.machine import Machine
from async_wrappers.settings import Settings, choice, declared, documented, flag, positive, setting, takes, whole
from docs.extensions.generated import parameter_rows


def doubled(name: str, value: Any) -> Any:
    return 2 * value


@dataclass(frozen=True)
class PumpSettings(Settings):
    name: str = field(metadata=declared("What it is called."))
    litres: int | None = whole(None, "Water in the tank.", 1, 100, "litres")
    _: KW_ONLY
    pressure: float = positive(1.5, "Pressure.", "bar")
    on: bool = flag(False, "Whether it runs.")
    mode: str = choice("slow", "``slow`` or ``fast``.", "slow", "fast")
    valve: Any = setting(None, "Opens at twice this number.", doubled, "Any number.")


@documented(PumpSettings)
class Pump:
    """Moves water.

    Raises:
        ValueError: An argument is refused.
    """

    @takes(PumpSettings)
    def __init__(self, settings: PumpSettings) -> None:
        self.settings = settings


def test_a_constructor_takes_the_declared_arguments_with_their_types_and_defaults() -> None:
    expected = "(name: str, litres: int | None = None, *, pressure: float = 1.5, on: bool = False, mode: str = 'slow', "
    assert str(inspect.signature(Pump)) == expected + "valve: Any = None) -> None"
    pump = Pump("a", np.int64(3), on=True, valve=4)
    assert (pump.settings.litres, type(pump.settings.litres), pump.settings.valve) == (3, int, 8)
    assert Pump("b").settings.valve is None
    with pytest.raises(TypeError, match="positional"):
        Pump("a", 3, 1.0)  # type: ignore[misc]
    with pytest.raises(TypeError, match=r"^Pump\.__init__\(\) .* 'nmae'"):
        Pump("a", nmae=3)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("argument", "value", "sentence"),
    [
        ("litres", 0, "litres must be a whole number of litres between 1 and 100, or None, got 0"),
        ("pressure", -1, "pressure must be a finite number of bar > 0, got -1"),
        ("on", 1, "on must be True or False, got 1"),
        ("mode", "quick", "mode must be 'slow' or 'fast', got 'quick'"),
    ],
)
def test_a_refusal_names_argument_value_and_what_is_right(argument: str, value: Any, sentence: str) -> None:
    with pytest.raises(ValueError) as refused:
        Pump(**{"name": "a", argument: value})
    assert str(refused.value) == sentence


def test_the_documentation_has_meaning_and_range_before_the_errors() -> None:
    assert inspect.cleandoc(Pump.__doc__ or "").split("\n\n") == [
        "Moves water.",
        "Args:\n"
        "    name: What it is called.\n"
        "    litres: Water in the tank. It must be a whole number of litres between 1 and 100, or None.\n"
        "    pressure: Pressure. It must be a finite number of bar > 0.\n"
        "    on: Whether it runs.\n"
        "    mode: ``slow`` or ``fast``.\n"
        "    valve: Opens at twice this number. Any number.",
        "Raises:\n    ValueError: An argument is refused.",
    ]


def test_settings_cannot_be_changed_and_survive_pickling() -> None:
    made = PumpSettings("a", 7, mode="fast")
    assert pickle.loads(pickle.dumps(made)) == made
    with pytest.raises(AttributeError):
        made.litres = 8  # type: ignore[misc]


def test_the_runners_arguments_are_declared_with_types_and_a_meaning_each() -> None:
    parameters = inspect.signature(AsyncRunner).parameters
    assert list(parameters) == [each.name for each in fields(RunnerSettings)]
    assert list(parameters)[:7] == ["make_env", "make_policy", "workers", "fps", "stagger", "playout", "slot"]
    assert parameters["make_env"].annotation == Callable[[], gym.Env[Any, Any] | Machine]
    assert parameters["journal"].annotation is int
    kinds = [each.kind for each in parameters.values()]
    assert kinds == [inspect.Parameter.POSITIONAL_OR_KEYWORD] * 7 + [inspect.Parameter.KEYWORD_ONLY] * (len(kinds) - 7)
    rows = parameter_rows(AsyncRunner)
    assert len(rows) == len(parameters)
    between = "Number of transitions that shared memory holds for the learners. It must be a whole number between 8 and"
    assert f"| `journal` | `10000` | {between} 1,000,000,000. |" in rows
    assert not [row for row in rows if row.endswith("| |")]

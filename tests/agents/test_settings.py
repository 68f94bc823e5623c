"""Declarations of hyperparameters: what is made of one, and what a plain constructor beside them still does."""

from __future__ import annotations

import inspect
import re
from typing import Any

import cloudpickle
import gin
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.wrappers import RecordVideo, TimeLimit

import async_wrappers.configurables  # noqa: F401  # registers what gin files name
from async_wrappers.agents.acting.exploration import identity_epsilon
from async_wrappers.agents.families.actor_critic.terms import KLCost, KLMask, PolicyCloning, TargetEntropy, ValueCloning
from async_wrappers.agents.families.value_based.c51 import C51
from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.hyperparameters import SHARE, again, agent, must, number, part, whole
from async_wrappers.agents.losses.loss import create_adam
from async_wrappers.agents.play.run_settings import Runner
from async_wrappers.agents.registry import AGENTS, WAYS_OF_PLAYING
from async_wrappers.agents.teaching.methods.qdagger import QDagger
from docs.extensions.generated import parameter_rows

SPACES = Box(-1, 1, (3,), np.float32), Discrete(2)


@agent("DeclaringAgent")
class Declaring(C51):
    """An agent that declares three settings, one of them again."""

    name = "declaring"
    alpha: float = number(0.5, "How much.", SHARE)
    depth: int | None = whole(None, "How deep.", 1, "layer", none="no layer")
    double_dqn: bool = again(DQN, "double_dqn", True)

    def settle(self) -> None:
        super().settle()
        must(self.alpha < 1 or self.depth is None, f"depth must be None where alpha is 1, got {self.depth}")


@gin.configurable("PlainAgent", module="agents")
class Plain(DQN):
    """A subclass with a constructor of its own, as before there were declarations.

    Args:
        observation_space: As in `DQN`.
        action_space: Discrete.
        beta: Its one hyperparameter.
        shared: Those of `DQN`.
    """

    name = "plain"

    def __init__(self, observation_space: Any, action_space: Any, *, beta: float = 0.25, **shared: Any) -> None:
        super().__init__(observation_space, action_space, **shared)
        self.beta = beta


def test_a_declaration_is_an_argument_with_its_default_and_its_meaning() -> None:
    parameters = inspect.signature(Declaring).parameters
    assert list(parameters) == ["observation_space", "action_space", "alpha", "depth", "double_dqn", "shared"]
    assert [parameters[name].default for name in ("alpha", "depth", "double_dqn")] == [0.5, None, True]
    documentation = inspect.getdoc(Declaring) or ""
    assert "    alpha: How much. It must lie in [0, 1]." in documentation
    assert "    depth: How deep. It must be >= 1 layer, or None for no layer." in documentation


@pytest.mark.parametrize("made", [KLCost, KLMask, PolicyCloning, TargetEntropy, ValueCloning])
def test_every_setting_of_a_part_has_a_meaning_and_stays(made: Any) -> None:
    entries = (inspect.getdoc(made) or "").partition("\nArgs:\n")[2]
    names = list(inspect.signature(made).parameters)
    assert names and [name for name in names if f"    {name}: " not in entries] == []
    part = made(**dict.fromkeys(names, 1.0) | ({"to": "implied"} if "to" in names else {}))
    with pytest.raises(AttributeError):
        setattr(part, names[0], 2.0)
    assert cloudpickle.loads(cloudpickle.dumps(part)) == part


@pytest.mark.parametrize("member", AGENTS)
def test_every_hyperparameter_has_a_meaning(member: str) -> None:
    made: Any = AGENTS[member]
    documentation = inspect.getdoc(made) or ""
    parameters = inspect.signature(made).parameters.items()
    names = [name for name, each in parameters if each.kind is each.KEYWORD_ONLY and name not in made.lacking]
    assert [name for name in names if f"\n    {name}: " not in documentation] == []


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"alpha": 1.5}, "alpha must lie in [0, 1], got 1.5"),
        ({"alpha": "1"}, "alpha must be a number, of at most 1e+30, got '1'"),
        ({"depth": 0}, "depth must be >= 1 layer, or None for no layer, got 0"),
        ({"double_dqn": 1}, "double_dqn must be True or False, got 1"),
        ({"alpha": 1, "depth": 2}, "depth must be None where alpha is 1, got 2"),
    ],
)
def test_a_wrong_value_is_refused_with_name_value_and_remedy(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError) as refused:
        Declaring(*SPACES, stack_size=1, **given)
    assert str(refused.value).splitlines()[0] == sentence


def test_a_binding_holds_for_those_below_unless_they_declare_it_anew() -> None:
    gin.parse_config("DQNAgent.gamma = 0.5\nC51Agent.vmax = 3.0\nDQNAgent.double_dqn = False\nDQNAgent.stack_size = 1")
    made: Any = Declaring(*SPACES)
    assert (made.gamma, made.vmax, made.double_dqn) == (0.5, 3.0, True)
    gin.parse_config("DeclaringAgent.double_dqn = False\nDeclaringAgent.gamma = 0.25")
    made = Declaring(*SPACES)
    assert (made.gamma, made.vmax, made.double_dqn) == (0.25, 3.0, False)


class Lacking(Declaring):
    """An agent that has neither a setting of its base nor one of that one's base."""

    name = "lacking"
    lacks = {"alpha": "whose alpha is known", "double_dqn": "whose target is another one"}


class Again(Lacking):
    """An agent that has one of them again."""

    alpha: float = number(0.25, "How much.", SHARE)


def test_a_setting_that_an_agent_lacks_keeps_its_default_and_is_no_parameter() -> None:
    gin.parse_config("DQNAgent.stack_size = 1\nDQNAgent.double_dqn = False\nDeclaringAgent.alpha = 0.5")
    made: Any = Lacking(*SPACES)  # what is bound is the default, as in a configuration that was written down
    assert (made.alpha, made.double_dqn) == (0.5, True) and "alpha" not in made.declarations
    gin.parse_config("DeclaringAgent.alpha = 0.75")
    with pytest.raises(ValueError, match=r"^alpha must be 0.5 with agent 'lacking', whose alpha is known, got 0.75"):
        Lacking(*SPACES)
    again: Any = Again(*SPACES)
    assert (again.alpha, again.double_dqn) == (0.75, True)
    with pytest.raises(ValueError, match=r"^alpha must lie in"):
        Again(*SPACES, alpha=2.0)


@pytest.mark.parametrize("member", [name for name, kind in AGENTS.items() if kind.lacking])  # type: ignore[attr-defined]
def test_a_configuration_of_before_that_binds_what_an_agent_lacks_to_its_default_still_loads(member: str) -> None:
    kind: Any = AGENTS[member]
    gin.parse_config([f"{kind.gin_name}.{name} = {need.right!r}" for name, need in kind.lacking.items()])
    made = kind(SPACES[0], Box(-1, 1, (2,), np.float32) if member == "sac" else SPACES[1])
    assert all(getattr(made, name) == need.right for name, need in kind.lacking.items() if name != "sources")


def test_the_parameters_of_an_agent_leave_out_those_that_it_lacks() -> None:
    shared = {name: [row for row in parameter_rows(AGENTS[name]) if "Parameters of" in row] for name in ("r2d2", "c51")}
    assert "Parameters of `DQNAgent` but `priority`" in shared["r2d2"][0] and " but " not in shared["c51"][0]
    assert not [row for row in parameter_rows(AGENTS["ppo"]) if row.startswith("| `sources`")]


def test_a_name_that_no_declaration_has_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'DQNAgent' doesn't have a parameter named 'gama'"):
        gin.parse_config("DQNAgent.gama = 0.5")
    with pytest.raises(TypeError, match=r"^Declaring has no hyperparameter 'gama'"):
        Declaring(*SPACES, gama=0.5)


def test_a_setting_is_checked_where_it_is_changed() -> None:
    made: Any = DQN(*SPACES, stack_size=1)
    with pytest.raises(ValueError, match=r"^gamma must lie in \[0, 1\], got 2"):
        made.gamma = 2


def test_a_class_with_a_constructor_of_its_own_is_bound_checked_and_pickled() -> None:
    gin.parse_config("PlainAgent.beta = 0.75\nDQNAgent.gamma = 0.5\nPlainAgent.stack_size = 1")
    made: Any = cloudpickle.loads(cloudpickle.dumps(Plain(*SPACES)))
    assert (made.beta, made.gamma, made.stack_size) == (0.75, 0.5, 1)
    with pytest.raises(ValueError, match=r"^gamma must lie in \[0, 1\], got 2"):
        Plain(*SPACES, gamma=2)
    with pytest.raises(TypeError, match="has no hyperparameter 'beeta'"):
        Plain(*SPACES, beeta=1.0)


def test_a_pickled_spec_knows_whether_its_epsilon_has_a_warmup() -> None:
    made: Any = cloudpickle.loads(cloudpickle.dumps(DQN(*SPACES, stack_size=1, epsilon_fn=identity_epsilon)))
    made.check_warmup()
    with pytest.raises(ValueError, match=r"^DQNAgent\.epsilon_warmup must be bound"):
        cloudpickle.loads(cloudpickle.dumps(DQN(*SPACES, stack_size=1))).check_warmup()


class Mixed(QDagger, C51):
    """A student of C51 that nothing stands before, as the page of design names it."""

    name = "mixed"


def test_a_class_of_several_bases_has_the_settings_of_all() -> None:
    made: Any = Mixed(*SPACES, stack_size=1, num_atoms=7, distill_temperature=0.5)
    assert (made.num_atoms, made.distill_temperature, made.batch_size) == (7, 0.5, 32)
    with pytest.raises(ValueError, match=r"^distill_temperature must be > 0, got 0"):
        Mixed(*SPACES, distill_temperature=0)


# Records of runs.


@part
class Tuned:
    """A record of settings."""

    speed: int = whole(3, "Of everything.", 1, "frame")


@pytest.mark.parametrize(
    "kind", dict.fromkeys(record for schedule in WAYS_OF_PLAYING.values() for record in schedule.records)
)
def test_every_setting_of_a_run_has_a_meaning_and_stands_in_its_signature(kind: Any) -> None:
    names = [*inspect.signature(kind).parameters]
    assert names == [*kind.declarations]
    assert all(re.search(rf"^    {name}: \w.*\.", kind.__doc__, re.MULTILINE | re.DOTALL) for name in names)


def test_a_row_of_the_page_of_gin_parameters_has_a_meaning_and_a_default_that_gin_can_write() -> None:
    for thing in (*AGENTS.values(), Runner, create_adam, identity_epsilon, RecordVideo, TimeLimit):
        rows = parameter_rows(thing)
        assert not [row for row in rows if re.search(r"\|\s*\|$", row)]
        assert not [row for row in rows if "<object" in row or re.search(r"\w- \w", row)]
    assert any("`create_environment_fn` | | Makes" in row for row in parameter_rows(Runner))
    assert any(
        "Parameters of `RainbowAgent`, `C51Agent`, `DQNAgent`" in row for row in parameter_rows(AGENTS["full_rainbow"])
    )


def test_a_record_is_bound_by_its_name_and_refuses_by_it() -> None:
    gin.parse_config("Runner.seed = 7\nTuned.speed = 5\nRunner.create_environment_fn = @create_gym_environment")
    try:
        made: Any = Runner()
        assert (made.seed, Tuned().speed, made.num_iterations) == (7, 5, 200)
        assert Tuned(speed=1).speed == 1
        gin.parse_config("Runner.seed = -1")
        with pytest.raises(ValueError, match=r"^Runner.seed must be >= 0, got -1"):
            Runner()
    finally:
        gin.clear_config()
    with pytest.raises(ValueError, match=r"^Tuned.speed must be >= 1 frame, got 0"):
        Tuned(speed=0)
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'sead'"):
        Runner(create_environment_fn=lambda: None, sead=3)

"""Wrong values of every hyperparameter: taken, or refused in a sentence with name and value."""

from __future__ import annotations

import inspect
import math
import warnings
from decimal import Decimal
from fractions import Fraction
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.learning.making import make_learner
from async_wrappers.agents.registry import AGENTS
from tests.worlds.agents import hyperparameters
from tests.worlds.drifting_env import DriftingEnv

pytestmark = pytest.mark.timeout(120)  # a value that hangs is a failure


class Thing:
    """No hyperparameter of anything."""


VALUES: list[Any] = [
    *(None, "", "x", "60", b"x", -1, 0, 1, 2, 10**18, 10**30, 10**400, -0.5, 0.5, 2.0, 1e308, math.nan, math.inf),
    *(-math.inf, True, False, [], [1], (1, 2), {}, set(), Thing(), 1j, Fraction(1, 3), Decimal("0.1")),
    *(np.float64("nan"), np.int64(3), np.array([1, 2]), np.array([])),
]
MEMBERS = {"dqn": "dqn, double, dueling, prioritized"} | {
    name: name for name in ("c51", "full_rainbow", "quantile", "implicit_quantile")
}
FUNCTIONS = {"network", "optimizer", "epsilon_fn"}
TOLD_AS = {
    "decision_interval": "epsilon_warmup",
    "update_horizon": "capacity",
    "replay_capacity": "capacity",
    "vmax": "vmin",
    "compile": "compile",
}


def named(kind: type[DQN]) -> list[str]:
    """Return the hyperparameters that a class adds to those of its parents, or gives another default."""
    own = inspect.signature(vars(kind)["__init__"]).parameters.values()
    return [one.name for one in own if one.kind == one.KEYWORD_ONLY and one.name not in FUNCTIONS]


CASES = [(member, name) for member in MEMBERS for name in named(AGENTS[member])]


@pytest.mark.parametrize(("member", "name"), CASES)
def test_a_wrong_hyperparameter_is_taken_or_refused_in_a_sentence_with_name_and_value(member: str, name: str) -> None:
    env: gym.Env[Any, Any] = DriftingEnv()
    wrong: list[str] = []
    for value in VALUES:
        arguments = {**hyperparameters(MEMBERS[member], replay_capacity=100), name: value}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                made = AGENTS[member](env.observation_space, env.action_space, **arguments)
                if name != "replay_capacity" or (made.replay_capacity or 10**6) < 10**6:
                    make_learner(made)
        except (TypeError, ValueError) as error:
            sentence = str(error)
            if not (name in sentence or TOLD_AS.get(name, name) in sentence):
                wrong.append(f"{name}={value!r}: {sentence!r} does not name it")
            elif not any(each in sentence for each in (repr(value), str(value), "slots (stack_size + update_horizon)")):
                wrong.append(f"{name}={value!r}: {sentence!r} does not show it")
        except Exception as error:
            wrong.append(f"{name}={value!r}: {type(error).__name__}: {error}")
    assert wrong == []


@pytest.mark.parametrize("value", ["x", -1, 0.5, math.nan, True, [1]])
def test_a_warmup_that_is_no_number_of_frames_is_refused_before_the_first_decision(value: Any) -> None:
    env: gym.Env[Any, Any] = DriftingEnv()
    arguments = hyperparameters(MEMBERS["dqn"], replay_capacity=100)
    with pytest.raises(ValueError, match=r"^epsilon_warmup must be .*frames"):
        AGENTS["dqn"](env.observation_space, env.action_space, **{**arguments, "epsilon_warmup": value})

"""Functions that gin binds values to, called where gin has none."""

from __future__ import annotations

import cloudpickle
import gin
import pytest
import torch

import async_wrappers.configurables  # noqa: F401 - the gin names
from async_wrappers.agents.hyperparameters import with_gin_values
from async_wrappers.agents.losses.loss import create_optimizer


def test_a_callable_that_gin_does_not_know_is_left_alone() -> None:
    def function() -> None: ...

    assert with_gin_values(function) is function
    assert with_gin_values(torch.optim.SGD) is torch.optim.SGD


def test_the_callers_arguments_win_over_what_was_bound() -> None:
    gin.parse_config("create_optimizer.learning_rate = 0.5\ncreate_optimizer.name = 'sgd'")
    make = with_gin_values(create_optimizer)
    gin.clear_config()
    parameter = [torch.nn.Parameter(torch.zeros(1))]
    assert make(parameter).defaults["lr"] == 0.5
    assert make(parameter, "adam", 0.25).defaults["lr"] == 0.25
    assert make(parameter, learning_rate=0.25).defaults["lr"] == 0.25


@pytest.mark.parametrize("scope", ["", "wide/"])
def test_a_class_of_another_package_is_made_as_gin_would_in_a_process_without_gin(scope: str) -> None:
    gin.parse_config(
        f"create_gym_environment.environment_id = 'CartPole-v1'\n"
        f"create_gym_environment.wrappers = [@{scope}AppliedActions]\n"
        f"AppliedActions.length = 2\nwide/AppliedActions.length = 5"
    )
    make = with_gin_values(gin.get_configurable("create_gym_environment"))
    payload = cloudpickle.dumps(make)
    gin.clear_config()
    length = 5 if scope else 2
    assert cloudpickle.loads(payload)().observation_space["applied_actions"].shape[0] == length


@pytest.mark.parametrize(
    ("factory", "wrapper", "length"),
    [
        ("create_gym_environment", "AppliedActions", 2),
        ("wide/create_gym_environment", "AppliedActions", 5),
        ("wide/create_gym_environment", "other/AppliedActions", 2),
        ("other/create_gym_environment", "wide/AppliedActions", 5),
    ],
)
def test_what_a_function_calls_gets_the_values_of_its_scope(factory: str, wrapper: str, length: int) -> None:
    gin.parse_config(
        f"create_gym_environment.environment_id = 'CartPole-v1'\ncreate_gym_environment.wrappers = [@{wrapper}]\n"
        f"AppliedActions.length = 2\nwide/AppliedActions.length = 5\nfactory/macro.value = @{factory}"
    )
    make = gin.query_parameter("factory/macro.value").scoped_configurable_fn
    payload = cloudpickle.dumps(with_gin_values(make))
    assert make().observation_space["applied_actions"].shape[0] == length
    gin.clear_config()
    assert cloudpickle.loads(payload)().observation_space["applied_actions"].shape[0] == length


def test_functions_in_lists_and_tuples_are_found_and_all_else_is_left_alone() -> None:
    gin.parse_config("create_optimizer.learning_rate = 0.5\ncreate_optimizer.name = 'sgd'")
    number, (name, make) = with_gin_values([3, ("three", create_optimizer)])
    gin.clear_config()
    assert (number, name, make([torch.nn.Parameter(torch.zeros(1))]).defaults["lr"]) == (3, "three", 0.5)

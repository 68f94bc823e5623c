"""Optimisers by name: one step on one parameter, worked by hand."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn

from async_wrappers.agents.losses.loss import (
    OPTIMIZERS,
    clip_gradient_norm,
    create_optimizer,
    linear_decay,
    polynomial_decay,
)


def after_steps(gradients: list[float], **arguments: Any) -> float:
    """Where a parameter that began at 1 lies after a step for each gradient."""
    parameter = nn.Parameter(torch.tensor([1.0]))
    optimizer = create_optimizer([parameter], **arguments)
    for gradient in gradients:
        parameter.grad = torch.tensor([gradient])
        optimizer.step()
    return parameter.item()


@pytest.mark.parametrize(("name", "kind"), [("adam", "Adam"), ("rmsprop", "RMSprop"), ("sgd", "SGD")])
def test_a_name_makes_its_optimiser(name: str, kind: str) -> None:
    assert name in OPTIMIZERS
    assert type(create_optimizer([nn.Parameter(torch.zeros(1))], name)).__name__ == kind


def test_sgd_steps_against_the_gradient() -> None:
    assert after_steps([2.0], name="sgd", learning_rate=0.25) == 0.5


def test_momentum_keeps_on_going() -> None:
    # velocities 2, 0.5 * 2 + 2 = 3
    assert after_steps([2.0, 2.0], name="sgd", learning_rate=0.25, momentum=0.5) == 1.0 - 0.25 * (2 + 3)


def test_adams_first_step_is_the_learning_rate_whatever_the_gradient() -> None:
    for gradient in (0.01, 100.0):
        assert after_steps([gradient], name="adam", learning_rate=0.125, eps=0.0) == pytest.approx(0.875)


def test_adams_eps_stands_outside_the_root() -> None:
    # 1 - 0.5 * 2 / (2 + eps)
    assert after_steps([2.0], name="adam", learning_rate=0.5, eps=2.0) == pytest.approx(0.75)


def test_adams_betas_are_those_given() -> None:
    # beta1 = 0: the newest gradient; beta2 = 0.5: mean square (0.5 * 4 * 0.5 + 0.5 * 1) / (1 - 0.25) = 2
    expected = 1 - 0.5 - 0.5 / 2**0.5
    assert after_steps([2.0, 1.0], name="adam", learning_rate=0.5, beta1=0.0, beta2=0.5, eps=0.0) == pytest.approx(
        expected
    )


@pytest.mark.parametrize("most", [0.01, 1e9])
def test_adam_and_the_clip_are_pytorchs_bit_for_bit_also_after_a_load(most: float) -> None:
    ours, theirs = ([nn.Parameter(torch.ones(shape)) for shape in ((5,), (2, 9), (3, 1))] for _ in range(2))
    adam = create_optimizer(ours, learning_rate=0.1)
    other = torch.optim.Adam(theirs, lr=0.1, eps=1.5e-4, fused=True)
    generator = torch.Generator().manual_seed(0)
    for number in range(6):
        for mine, its in zip(ours, theirs, strict=True):
            mine.grad = None if number == 3 and mine is ours[1] else torch.randn(mine.shape, generator=generator)
            its.grad = None if mine.grad is None else mine.grad.clone()
        assert clip_gradient_norm(ours, most).equal(nn.utils.clip_grad_norm_(theirs, most))
        if number == 4:
            saved, adam = adam.state_dict(), create_optimizer(ours, learning_rate=0.1)
            adam.load_state_dict(saved)
        adam.step()
        other.step()
        for mine, its in zip(ours, theirs, strict=True):
            assert mine.equal(its)


def test_a_process_that_learns_does_not_import_pytorchs_compiler() -> None:
    code = """
import sys
import torch
from async_wrappers.agents.learning.captured import HostReads
from async_wrappers.agents.losses.loss import create_optimizer
parameter = torch.nn.Parameter(torch.ones(1))
adam = create_optimizer([parameter])
parameter.grad = torch.ones(1)
adam.step()
adam.zero_grad()
adam.load_state_dict(adam.state_dict())
with HostReads():
    parameter * 2
print("torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout == "False\n", done.stderr


def test_adam_steps_parameters_of_two_dtypes() -> None:
    parameters = [nn.Parameter(torch.ones(3, dtype=dtype)) for dtype in (torch.float32, torch.float64)]
    adam = create_optimizer(parameters, learning_rate=0.125, eps=0.0)
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, 2.0)
    adam.step()
    assert [parameter.tolist() for parameter in parameters] == [[pytest.approx(0.875)] * 3] * 2


def test_rmsprop_divides_by_the_root_mean_square() -> None:
    # mean square 0.25 * 4 = 1
    assert after_steps([2.0], name="rmsprop", learning_rate=0.125, decay=0.75, eps=0.0) == pytest.approx(0.75)


def test_centered_rmsprop_divides_by_the_standard_deviation() -> None:
    # mean square 0.5 * 4 = 2, mean 0.5 * 2 = 1, variance 1
    assert after_steps([2.0], name="rmsprop", learning_rate=0.125, decay=0.5, eps=0.0, centered=True) == pytest.approx(
        0.75
    )


def test_the_defaults_are_dopamines_for_atari() -> None:
    defaults = create_optimizer([nn.Parameter(torch.zeros(1))]).defaults
    assert (defaults["lr"], defaults["betas"], defaults["eps"]) == (6.25e-5, (0.9, 0.999), 1.5e-4)


@pytest.mark.parametrize(
    ("updates", "power", "end", "factor"),
    [
        (0, 2.0, 0.1, 1.0),
        (25, 1.0, 0.0, 0.75),
        (25, 2.0, 0.0, 0.5625),
        (25, 2.0, 0.2, 0.2 + 0.8 * 0.5625),
        (50, 0.5, 0.0, 0.5**0.5),
        (100, 2.0, 0.2, 0.2),
        (1000, 2.0, 0.2, 0.2),
        (1000, 1.0, 0.0, 0.0),
    ],
)
def test_a_learning_rate_falls_as_a_polynomial(updates: int, power: float, end: float, factor: float) -> None:
    assert polynomial_decay(updates, 100, power, end) == pytest.approx(factor, rel=1e-12)


def test_a_polynomial_of_power_1_is_the_line_bit_for_bit() -> None:
    assert [polynomial_decay(updates, 37) for updates in range(50)] == [linear_decay(each, 37) for each in range(50)]


def test_an_unknown_name_is_refused_in_one_sentence() -> None:
    with pytest.raises(ValueError) as caught:
        create_optimizer([nn.Parameter(torch.zeros(1))], "adamw")
    assert str(caught.value).splitlines()[0] == (
        "create_optimizer.name must be one of 'adam', 'rmsprop', 'sgd', got 'adamw'"
    )


@pytest.mark.parametrize("key", ["learning_rate", "eps", "momentum", "beta1", "beta2", "decay"])
@pytest.mark.parametrize("value", ["a", None, -0.1, math.nan, math.inf, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_value_that_no_optimiser_can_use_is_refused_by_its_key(name: str, key: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"^create_optimizer\.{key} must be a .*number >= 0.*got {value!r}(\n|$)"):
        create_optimizer([nn.Parameter(torch.zeros(1))], name, **{key: value})

"""R2D2's errors against a loop and by hand, its rescaling, and its priorities."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from async_wrappers.agents.losses.sequences import (
    acting_priority,
    rescale,
    rescale_inverse,
    sequence_priority,
    td_errors_n_step_double,
)


@settings(deadline=None, max_examples=60)
@given(st.floats(-1e4, 1e4), st.sampled_from([0.0, 1e-3, 1e-2, 1.0]))
def test_the_rescaling_and_its_inverse_undo_each_other(x: float, epsilon: float) -> None:
    value = torch.tensor(x, dtype=torch.float64)
    assert rescale(rescale_inverse(value, epsilon), epsilon).item() == pytest.approx(x, rel=1e-6, abs=1e-9)
    assert rescale_inverse(rescale(value, epsilon), epsilon).item() == pytest.approx(x, rel=1e-6, abs=1e-9)


def test_the_rescaling_by_hand() -> None:
    values = torch.tensor([-8.0, 0.0, 3.0])
    assert rescale(values, 0.0).tolist() == [-2.0, 0.0, 1.0]
    assert rescale(values, 0.5).tolist() == [-6.0, 0.0, 2.5]


@st.composite
def sequences(draw: st.DrawFn) -> dict[str, Tensor]:
    """Rows with episodes that end, by a terminal or not, each with a final row after it."""
    steps, batch, actions = draw(st.integers(1, 9)), draw(st.integers(1, 3)), 2
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    values = {name: rng.normal(size=(steps + 1, batch, actions)) for name in ("q", "q_target", "q_selector")}
    rewards, discounts, mask = rng.normal(size=(steps, batch)), np.full((steps, batch), 0.9), np.ones((steps, batch))
    mask[0] = discounts[0] = rng.random(batch) < 0.7  # some begin with a final row
    discounts[0] *= 0.9
    for s in range(steps):
        for b in range(batch):
            if mask[s, b] and rng.random() < 0.3:
                discounts[s, b] = rng.choice([0.0, 0.9])
                if s + 1 < steps:
                    mask[s + 1, b] = discounts[s + 1, b] = rewards[s + 1, b] = 0.0
    arrays = {**values, "actions": rng.integers(actions, size=(steps, batch)), "rewards": rewards}
    tensors = {
        name: torch.from_numpy(array) for name, array in {**arrays, "discounts": discounts, "mask": mask}.items()
    }
    return {**tensors, "q": tensors["q"][:-1]}


@settings(deadline=None, max_examples=100)
@given(sequences(), st.integers(1, 6), st.sampled_from([None, 1e-3]))
def test_errors_are_those_of_a_loop_over_rows(given_: dict[str, Tensor], n: int, epsilon: float | None) -> None:
    errors = td_errors_n_step_double(**given_, n=n, epsilon=epsilon)
    rewards, discounts, mask = (given_[name].numpy() for name in ("rewards", "discounts", "mask"))
    steps, batch = rewards.shape
    for b in range(batch):
        for t in range(steps):
            if not mask[t, b]:
                assert errors[t, b] == 0.0
                continue
            total, discount, last = 0.0, 1.0, t
            while last < min(t + n, steps) and mask[last, b]:
                total, discount, last = total + discount * rewards[last, b], discount * discounts[last, b], last + 1
            value = given_["q_target"][last, b, given_["q_selector"][last, b].argmax()]
            value = value if epsilon is None else rescale_inverse(value, epsilon)
            target = total + discount * value
            target = target if epsilon is None else rescale(target, epsilon)
            expected = target - given_["q"][t, b, given_["actions"][t, b]]
            assert errors[t, b].item() == pytest.approx(expected.item(), rel=1e-9, abs=1e-9)


def test_the_gradient_flows_through_the_chosen_values_alone() -> None:
    q = torch.zeros((2, 1, 2), requires_grad=True)
    others = torch.ones((3, 1, 2), requires_grad=True)
    ones = torch.ones((2, 1))
    actions = torch.tensor([[0], [1]])
    errors = td_errors_n_step_double(q, others, others, actions, ones, ones, torch.tensor([[1.0], [0.0]]), 1)
    errors.sum().backward()
    assert q.grad is not None and q.grad.tolist() == [[[-1.0, 0.0]], [[0.0, 0.0]]] and others.grad is None


@pytest.mark.parametrize("name", ["actions", "rewards", "discounts", "mask", "q_target", "q_selector"])
def test_a_shape_that_differs_is_named(name: str) -> None:
    ones = torch.ones((2, 1))
    given_ = {"q": torch.ones(2, 1, 2), "actions": ones.long(), "rewards": ones, "discounts": ones, "mask": ones}
    given_ |= {"q_target": torch.ones(3, 1, 2), "q_selector": torch.ones(3, 1, 2)}
    with pytest.raises(ValueError, match=f"^{name} must have "):
        td_errors_n_step_double(**{**given_, name: given_[name][1:]}, n=2)


def test_a_priority_is_a_mixture_of_the_largest_and_the_mean_error() -> None:
    errors = torch.tensor([[1.0, -4.0, 9.0], [-3.0, 9.0, 9.0]])
    mask = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    priority = sequence_priority(errors, mask, 0.9)
    assert priority.tolist() == pytest.approx([0.9 * 3 + 0.1 * 2, 4.0, 0.0])
    assert not math.isnan(priority[2])


@settings(deadline=None, max_examples=60)
@given(sequences(), st.integers(1, 6), st.sampled_from([None, 1e-3]), st.booleans())
def test_actings_priority_is_that_of_the_errors_it_knows(
    given_: dict[str, Tensor], n: int, epsilon: float | None, last_known: bool
) -> None:
    values, rest = given_["q_target"], {name: given_[name] for name in ("rewards", "discounts", "mask")}
    steps, mask, discounts = len(rest["mask"]), rest["mask"], rest["discounts"]
    max_values = values.amax(dim=2).clone()
    max_values[:-1][mask == 0] = torch.nan  # no decision is made on a final observation
    if not last_known:
        max_values[-1] = torch.nan
    chosen = values[:-1].gather(2, given_["actions"].unsqueeze(2)).squeeze(2)
    errors = td_errors_n_step_double(values[:-1], values, values, given_["actions"], n=n, epsilon=epsilon, **rest)
    known = mask.clone()
    for b in range(mask.shape[1]):
        for t in range(steps):
            m, terminated = t, False
            while m < min(t + n, steps) and mask[m, b] and not terminated:
                terminated = discounts[m, b].item() == 0.0
                m += 1
            if not terminated and max_values[m, b].isnan():
                known[t, b] = 0.0
    priority = acting_priority(chosen, max_values, n=n, eta=0.9, epsilon=epsilon, **rest)
    some = known.any(dim=0)
    torch.testing.assert_close(priority[some], sequence_priority(errors, known, 0.9)[some])
    assert priority[~some].isnan().all()

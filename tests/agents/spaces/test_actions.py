"""An action's two forms: the environment's and the stored one, in every kind of space."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from hypothesis import given
from hypothesis import strategies as st

from async_wrappers.agents.acting.decisions import DecisionRandom, Decisions
from async_wrappers.agents.spaces.actions import (
    Actions,
    BoxActions,
    DiscreteActions,
    chunk_actions,
    discrete_actions,
    real_actions,
)
from async_wrappers.policy import Decision

INF = float("inf")
FLOATS, INTEGERS = ("float16", "float32", "float64"), ("int8", "uint8", "int64")
SHAPES = st.sampled_from([(), (1,), (3,), (2, 1), (4, 2), (2, 2, 2)])
SPACES = [
    Discrete(3),
    Discrete(4, start=-2),
    MultiDiscrete([3] * 5, start=[7] * 5),
    Box(-2, 2, (1,)),
    Box(0, 9, (4, 2)),
    Box(np.array([5, -1], np.float32), np.array([5, 1], np.float32)),  # one value in a dimension
]


@st.composite
def boxes(draw: st.DrawFn, dtypes: tuple[str, ...] = FLOATS, unbounded: bool = True) -> Box:
    """Boxes of all shapes whose numbers have two bounds, one or none, and may be of one value."""
    shape, dtype = draw(SHAPES), draw(st.sampled_from(dtypes))
    size = math.prod(shape)
    ends: st.SearchStrategy[float]
    if dtype in INTEGERS:
        limits = np.iinfo(dtype)
        ends = st.integers(limits.min, limits.max) | st.integers(max(limits.min, -9), 9)
    else:
        ends = st.floats(-1000, 1000, width=16).map(lambda end: end + 0.0)  # no -0.0
    pairs = draw(st.lists(st.tuples(ends, ends).map(sorted), min_size=size, max_size=size))
    low, high = (np.array(end, dtype).reshape(shape) for end in zip(*pairs, strict=True))
    if unbounded:
        below, above = (np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size))) for _ in "ab")
        low, high = np.where(below.reshape(shape), -INF, low), np.where(above.reshape(shape), INF, high)
    return Box(low.astype(dtype), high.astype(dtype), dtype=np.dtype(dtype).type)


def rows_of(space: Box, rows: int, seed: int) -> npt.NDArray[Any]:
    """Return actions of a space, the bounds among them."""
    space.seed(seed)
    drawn = [space.sample() for _ in range(rows)]
    ends = [np.where(np.isfinite(end), end, 0).astype(space.dtype) for end in (space.low, space.high)]
    return np.array([*drawn, *(end for end in ends if space.contains(end))])


def row(*numbers: float) -> npt.NDArray[np.float32]:
    return np.array(numbers, np.float32)


def decisions(rows: int) -> Decisions:
    return Decisions.of([Decision(row // 2, 3 * row, 5 * row, row % 3 == 0, row % 2) for row in range(rows)])


class TestBox:
    @given(boxes(), st.integers(1, 4), st.integers(0, 99))
    def test_an_action_comes_back_within_a_rounding(self, space: Box, rows: int, seed: int) -> None:
        actions = BoxActions(space, "sac")
        given_actions = rows_of(space, rows, seed)
        stored = actions.stored(given_actions)
        assert stored.shape == (len(given_actions), *actions.column.shape)
        assert stored.dtype == actions.column.dtype == np.float32
        back = actions.environment(stored)
        assert (back.shape, back.dtype) == (given_actions.shape, space.dtype)
        # Between two bounds a stored number is rounded to their distance; another one to itself.
        low, high = (np.asarray(bound, np.float64) for bound in (space.low, space.high))
        bounded = np.isfinite(low) & np.isfinite(high)
        width = np.where(bounded, high - low, 0)
        exact = given_actions.astype(np.float64)
        info = np.finfo(str(space.dtype))
        grid = np.abs(exact) * info.eps + info.tiny
        assert (np.abs(back.astype(np.float64) - exact) <= (width + np.abs(exact)) * 2.0**-23 + grid).all()

    @given(boxes(INTEGERS[:2], unbounded=False), st.integers(1, 4), st.integers(0, 99))
    def test_a_whole_number_comes_back_as_it_was(self, space: Box, rows: int, seed: int) -> None:
        actions = BoxActions(space, "ppo")
        given_actions = rows_of(space, rows, seed)
        np.testing.assert_array_equal(actions.environment(actions.stored(given_actions)), given_actions)

    @given(
        boxes((*FLOATS, *INTEGERS), unbounded=False), st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=1)
    )
    def test_whatever_is_stored_the_environment_gets_an_action_of_its_space(
        self, space: Box, numbers: list[float]
    ) -> None:
        actions = BoxActions(space, "ppo")
        assert actions.bounded
        stored = np.resize(row(*numbers, -1, 1), (3, *actions.column.shape))
        for action in actions.environment(stored):
            assert space.contains(np.asarray(action))

    @given(boxes(("float32", "float64")), st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=1))
    def test_single_bounds_hold_too(self, space: Box, numbers: list[float]) -> None:
        actions = BoxActions(space, "ppo")
        assert actions.bounded == space.is_bounded()
        for action in actions.environment(np.resize(row(*numbers), (2, *actions.column.shape))):
            assert space.contains(np.asarray(action))

    @given(boxes((*FLOATS, *INTEGERS), unbounded=False))
    def test_the_bounds_are_stored_as_minus_one_and_one(self, space: Box) -> None:
        actions = BoxActions(space, "sac")
        assert (actions.low == -1).all()
        assert (actions.high == 1).all()
        np.testing.assert_array_equal(actions.environment(np.full(actions.column.shape, -1.0)), space.low)
        np.testing.assert_array_equal(actions.environment(np.full(actions.column.shape, 1.0)), space.high)

    def test_a_table_by_hand(self) -> None:
        space = Box(row(-2, 0, -INF, 1), row(2, 10, INF, INF))
        actions = BoxActions(space, "ppo")
        assert not actions.bounded
        np.testing.assert_array_equal(actions.stored([1, 10, 7, 3]), row(0.5, 1, 7, 3))
        np.testing.assert_array_equal(actions.environment(row(0.5, 3, -70, 0)), row(1, 10, -70, 1))
        np.testing.assert_array_equal(actions.low, row(-1, -1, -INF, 1))
        np.testing.assert_array_equal(actions.high, row(1, 1, INF, INF))

    def test_the_facts_that_two_runs_must_share_tell_boxes_apart(self) -> None:
        low, high = np.array([0, -2], np.float32), np.array([1, np.inf], np.float32)
        assert BoxActions(Box(low, high), "ppo").facts == {"box": [2], "low": [0, -2], "high": [1, np.inf]}
        assert BoxActions(Box(-2, 2, (3, 2)), "ppo").facts == {"box": [3, 2], "low": -2, "high": 2}

    def test_integer_bounds_that_no_float_holds_are_kept(self) -> None:
        limits = np.iinfo(np.int64)
        actions = BoxActions(Box(limits.min, limits.max, (1,), np.int64), "ppo")
        assert actions.environment(row(1))[0] > 2**62
        assert actions.environment(row(-1))[0] == limits.min

    def test_an_integer_box_without_bounds_has_none(self) -> None:
        actions = BoxActions(Box(-INF, INF, (2,), np.int64), "ppo")
        assert not actions.bounded
        np.testing.assert_array_equal(actions.stored(np.array([5, -7])), row(5, -7))
        np.testing.assert_array_equal(actions.environment(row(4.6, -7)), [5, -7])

    def test_bounds_whose_difference_is_no_float(self) -> None:
        largest = np.finfo(np.float64).max
        actions = BoxActions(Box(-largest, largest, (1,), np.float64), "sac")
        np.testing.assert_array_equal(actions.stored([largest / 2]), row(0.5))
        np.testing.assert_array_equal(actions.environment(row(0.5)), [largest / 2])

    @pytest.mark.parametrize(
        ("shape", "column", "chunk"),
        [((), (1,), None), ((3,), (3,), None), ((5, 3), (5, 3), 5), ((5, 2, 2), (5, 4), 5)],
    )
    def test_shapes(self, shape: tuple[int, ...], column: tuple[int, ...], chunk: int | None) -> None:
        actions = BoxActions(Box(-1, 1, shape), "sac")
        assert (actions.column.shape, actions.chunk) == (column, chunk)
        assert (actions.size, actions.inputs) == (column[-1], math.prod(column))
        assert actions.blank(4).shape == (4, *shape)
        assert np.shape(actions.environment(np.zeros((6, 7, *column)))) == (6, 7, *shape)
        assert np.shape(actions.stored(np.zeros((6, 7, *shape)))) == (6, 7, *column)
        assert actions.read(torch.zeros(6, *column)).shape == (6, math.prod(column))

    @pytest.mark.parametrize("number", [float("nan"), INF, -INF])
    def test_a_number_that_is_not_finite_is_refused_on_both_ways(self, number: float) -> None:
        actions = BoxActions(Box(-1, 1, (2,)), "sac")
        with pytest.raises(
            ValueError, match=r"^action must be finite float32 numbers with agent 'sac', got \[0 -?(nan|inf)\]$"
        ):
            actions.stored([0, number])
        with pytest.raises(ValueError, match=r"'sac' chose an action that is no finite number, .*learning_rate$"):
            actions.environment(row(0, number))

    def test_a_number_beyond_float32_is_refused(self) -> None:
        actions = BoxActions(Box(-INF, INF, (1,), np.float64), "ppo")
        with pytest.raises(ValueError, match=r"^action must be finite float32 .* got \[1e\+300\]"):
            actions.stored([1e300])

    def test_a_message_of_a_large_action_is_one_short_line(self) -> None:
        actions = BoxActions(Box(-1, 1, (30, 20)), "sac")
        with pytest.raises(ValueError, match="nan") as raised:
            actions.stored(np.full((30, 20), np.nan))
        assert "\n" not in str(raised.value)
        assert len(str(raised.value)) < 120

    def test_uniform_numbers_stay_below_one(self) -> None:
        class Largest(DecisionRandom):
            def uniforms_beside_normals(self, entries: int, decisions: Any) -> Any:
                return np.full((1, entries), np.nextafter(1, 0))

        _, uniforms = Largest(0).for_actions(BoxActions(Box(-1, 1, (2,)), "sac"), decisions(1))
        assert (uniforms() < 1).all()

    def test_uniform_numbers_follow_the_normal_ones_of_a_decision(self) -> None:
        random = DecisionRandom(2)
        normals, uniforms = random.for_actions(BoxActions(Box(-1, 1, (2,)), "sac"), rows := decisions(3))
        drawn_uniforms = uniforms()
        for row, decision in enumerate(rows):
            stream = random.draw(*(getattr(decision, name) for name in ("episode", "start", "eval_mode", "env_id")))
            for drawn, wanted in ((normals, stream.standard_normal(2)), (drawn_uniforms, stream.random(2))):
                np.testing.assert_array_equal(drawn[row], wanted.astype(np.float32))


def drawn_for(actions: Actions, rows: Decisions, seed: int) -> list[npt.NDArray[Any]]:
    return [each() if callable(each) else each for each in DecisionRandom(seed).for_actions(actions, rows)]


def actions_of(space: gym.Space[Any]) -> Actions:
    return real_actions(space, "sac", "'dqn'") if isinstance(space, Box) else chunk_actions(space, "vtrace")


@pytest.mark.parametrize("space", SPACES, ids=str)
class TestEveryKind:
    def test_one_row_draws_as_many_rows_do(self, space: gym.Space[Any]) -> None:
        actions, rows = actions_of(space), decisions(7)
        together = drawn_for(actions, rows, 3)
        for row in range(7):
            alone = drawn_for(actions, rows[row : row + 1], 3)
            for many, one in zip(together, alone, strict=True):
                assert many.dtype == one.dtype
                np.testing.assert_array_equal(many[row : row + 1], one)

    def test_a_draw_has_a_number_for_each_stored_one(self, space: gym.Space[Any]) -> None:
        actions = actions_of(space)
        for drawn in drawn_for(actions, decisions(5), 0):
            assert drawn.shape == (5, *actions.column.shape)

    def test_a_workers_warm_up_draws_as_episode_0(self, space: gym.Space[Any]) -> None:
        actions = actions_of(space)
        drawn = [drawn_for(actions, Decisions.of([Decision(episode, 0, 0, False)]), 1) for episode in (-1, 0)]
        for warm_up, first in zip(*drawn, strict=True):
            np.testing.assert_array_equal(warm_up, first)

    def test_what_is_read_of_none_is_zeros(self, space: gym.Space[Any]) -> None:
        actions = actions_of(space)
        none = torch.full(
            (3, *actions.column.shape), actions.none, dtype=torch.as_tensor(np.zeros(0, actions.column.dtype)).dtype
        )
        read = actions.read(none)
        assert read.shape == (3, actions.inputs)
        assert not read.any()

    def test_a_blank_has_the_environments_shape_and_can_be_stored(self, space: gym.Space[Any]) -> None:
        actions = actions_of(space)
        blank = actions.blank(2)
        assert blank.shape == (2, *(space.shape or ()))
        assert np.shape(actions.stored(blank)) == (2, *actions.column.shape)

    def test_a_sample_comes_back(self, space: gym.Space[Any]) -> None:
        actions = actions_of(space)
        space.seed(0)
        sample = np.array([space.sample() for _ in range(20)])
        back = actions.environment(actions.stored(sample))
        np.testing.assert_allclose(back, sample, rtol=1e-6, atol=1e-6)


class TestDiscrete:
    @given(st.integers(-9, 9), st.integers(1, 20), st.data())
    def test_a_stored_action_counts_from_0_and_is_read_one_hot(
        self, first: int, number: int, data: st.DataObject
    ) -> None:
        actions = DiscreteActions(first, number)
        given_action = data.draw(st.integers(first, first + number - 1))
        assert actions.environment(actions.stored(given_action)) == given_action
        read = actions.read(torch.tensor([actions.stored(given_action)]))
        assert read.int().tolist() == [[int(first + index == given_action) for index in range(number)]]

    def test_a_chunk_is_read_one_hot_action_by_action(self) -> None:
        read = DiscreteActions(0, 3, chunk=2).read(torch.tensor([[2, 0]]))
        assert read.int().tolist() == [[0, 0, 1, 1, 0, 0]]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: discrete_actions(Box(-1, 1, (2,)), "dqn"), r"'dqn' needs Discrete actions, got Box.*: take .*'sac'"),
        (lambda: discrete_actions(MultiDiscrete([2, 2]), "dqn"), r"'dqn' needs Discrete .*: turn them into one number"),
        (lambda: chunk_actions(MultiDiscrete([2, 3]), "vtrace"), r"'vtrace' .* that are alike, got MultiDiscrete"),
        (
            lambda: real_actions(Discrete(2), "sac", "'ppo'"),
            r"^agent 'sac' needs a Box .*, got Discrete\(2\): take .*'ppo'",
        ),
    ],
)
def test_another_space_is_refused_with_what_to_take_instead(make: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make()

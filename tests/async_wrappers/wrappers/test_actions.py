"""Tests of async_wrappers/wrappers/action_conversion.py: which answers are actions, and what is said of others."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Sequence, Text, Tuple
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_np

from async_wrappers import AsyncRunner, NoAction
from async_wrappers.fleet.block import Block
from async_wrappers.latency import Constant
from async_wrappers.live import RunFailed
from async_wrappers.live.memory.exchange import ActionSlots, Fate, Finished
from async_wrappers.wrappers.action_conversion import RefusedAction, as_action, clipped
from tests.worlds.recording_env import FRAME, Pressing
from tests.worlds.schedule_cases import CASES

FLOATS = Box(-1, 1, (2,), np.float32)

ONES = {
    "an int": 1,
    "a bool": True,
    "np.bool_": np.True_,
    "a float": 1.0,
    "np.float32": np.float32(1),
    "np.int64": np.int64(1),
    "np.uint8": np.uint8(1),
    "0-d array": np.array(1),
    "array of one": np.array([1]),
    "array [1, 1]": np.array([[1.0]]),
    "a list": [1],
    "tensor": torch.tensor(1),
    "tensor of one": torch.tensor([1]),
    "bool tensor": torch.tensor(True),
    "bfloat16": torch.tensor(1.0, dtype=torch.bfloat16),
    "in a graph": torch.ones(1, requires_grad=True) * 1,
}


class OnADevice:
    """A tensor as one of CUDA's: NumPy may not read it before it is on the host."""

    def __init__(self, value: Any, host: bool = False) -> None:
        self.value, self.host = value, host
        self.dtype = self.value.dtype

    def detach(self) -> OnADevice:
        return self

    def cpu(self) -> OnADevice:
        return OnADevice(self.value, host=True)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        if not self.host:
            raise TypeError("can't convert cuda:0 device type tensor to numpy")
        return self.value


@pytest.mark.parametrize("answer", [*ONES.values(), OnADevice(np.array([1]))], ids=[*ONES, "on a device"])
@pytest.mark.parametrize("space", [Discrete(2), Discrete(2, start=1), Discrete(2, dtype=np.int8)], ids=str)
def test_the_same_whole_number_in_another_type_is_the_same_action(space: Any, answer: Any) -> None:
    action = as_action(space, answer)
    assert action == 1
    assert isinstance(action, int | np.integer)


@pytest.mark.parametrize(
    ("space", "answer", "action"),
    [
        (FLOATS, np.array([0.5, -1.0]), [0.5, -1]),
        (FLOATS, [0.5, 1], [0.5, 1]),
        (FLOATS, (0.5, 1), [0.5, 1]),
        (FLOATS, torch.tensor([0.5, 1.0], dtype=torch.float64), [0.5, 1]),
        (FLOATS, [torch.tensor(0.5), OnADevice(np.array(1))], [0.5, 1]),
        (FLOATS, np.array([1 + 1e-9, 0.0]), [1, 0]),
        (FLOATS, np.array([True, False]), [1, 0]),
        (Box(-2, 2, (1,), np.float32), -2.0, [-2]),
        (Box(-2, 2, (), np.float32), np.array([2.0]), 2),
        (Box(0, 255, (2,), np.uint8), np.array([255.0, 3]), [255, 3]),
        (MultiDiscrete([2, 3]), np.array([1.0, 2.0]), [1, 2]),
        (MultiDiscrete([2, 3]), torch.tensor([1, 2]), [1, 2]),
        (MultiDiscrete([[2], [3]]), [[1], [2]], [[1], [2]]),
        (MultiBinary(3), np.array([True, False, True]), [1, 0, 1]),
        (MultiBinary(2), torch.tensor([0.0, 1.0]), [0, 1]),
    ],
)
def test_the_same_numbers_in_another_type_are_the_same_action(space: Any, answer: Any, action: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        converted = as_action(space, answer)
    assert space.contains(converted)
    assert converted.dtype == space.dtype
    np.testing.assert_array_equal(converted, np.asarray(action, space.dtype))


def test_dicts_and_tuples_are_converted_leaf_by_leaf() -> None:
    space = Dict({"press": Discrete(2), "stick": Tuple([FLOATS, MultiBinary(1)])})
    action = as_action(space, {"stick": [np.array([0.5, 0.0]), torch.tensor([1])], "press": np.True_})
    assert space.contains(action)
    assert action["press"] == 1
    assert action["stick"][0].tolist() == [0.5, 0.0]


@pytest.mark.parametrize(
    ("space", "answer", "why"),
    [
        (Discrete(2), 2, "it lies outside"),
        (Discrete(2), -1, "it lies outside"),
        (Discrete(2), 10**30, "it (lies outside|is no number)"),
        (Discrete(2), 0.5, "it must be whole"),
        (Discrete(2), float("nan"), "it is NaN"),
        (Discrete(2), float("inf"), "it must be whole"),
        (Discrete(2), None, "it is no number"),
        (Discrete(2), "1", "it is no number"),
        (Discrete(2), 1j, "it is no number"),
        (Discrete(2), object(), "it is no number"),
        (Discrete(2), {}, "it is no number"),
        (Discrete(2), [], r"its shape is \[0\] and must be \[\]"),
        (Discrete(2), [0, 1], r"its shape is \[2\] and must be \[\]"),
        (Discrete(2), [[0], [0, 1]], "it cannot be read as an array of numbers"),
        (Discrete(300, dtype=np.int16), 70_000, "it lies outside"),
        (FLOATS, np.array([1.5, 0.0]), "it lies outside"),
        (FLOATS, np.array([np.nan, 0.0]), "it holds NaN"),
        (FLOATS, np.array([np.nan, 0.0], np.float32), "it holds NaN"),
        (FLOATS, np.zeros((1, 2)), r"its shape is \[1, 2\] and must be \[2\]"),
        (Box(-np.inf, np.inf, (1,), np.float32), 1e300, "it lies beyond the numbers of float32"),
        (Box(0, 255, (2,), np.uint8), np.array([256, 0]), "it lies outside"),
        (MultiDiscrete([2, 3]), [1, 3], "it lies outside"),
        (MultiDiscrete([2, 3]), np.array([0.5, 1.0]), "it must be whole"),
        (MultiBinary(2), [0, 2], "it lies outside"),
        (Dict({"a": Discrete(2)}), {"b": 1}, "it must be a dict with the keys 'a'"),
        (Dict({"a": Discrete(2)}), {"a": 2}, r"at \['a'\], it lies outside"),
        (Tuple([Discrete(2)]), 1, "it must be a tuple of 1"),
        (Tuple([Discrete(2), FLOATS]), (1, [2, 2]), r"at \[1\], it lies outside"),
        (Text(3), 5, "the space does not contain it"),
    ],
)
def test_what_is_another_number_or_none_is_refused_with_the_reason(space: Any, answer: Any, why: str) -> None:
    with pytest.raises(RefusedAction, match=f"^{why}"):
        as_action(space, answer)


@pytest.mark.parametrize(
    ("space", "action"),
    [(Discrete(2), np.array(1)), (FLOATS, np.zeros(2, np.float32)), (MultiDiscrete([2, 3]), np.array([1, 2]))],
)
@pytest.mark.parametrize("state", [None, (np.zeros((1, 4)), np.zeros((1, 4)))], ids=["none", "recurrent"])
def test_a_pair_of_action_and_state_is_refused_with_what_to_do(space: Any, action: Any, state: Any) -> None:
    with pytest.raises(RefusedAction, match=r"\(action, state\).*`lambda o: model.predict\(o\)\[0\]`"):
        as_action(space, (action, state))


def test_a_pair_that_is_an_action_is_no_pair_of_action_and_state() -> None:
    assert as_action(Tuple([Discrete(2), Discrete(2)]), (1, 0)) == (1, 0)
    assert as_action(FLOATS, (0.25, 0.5)).tolist() == [0.25, 0.5]


@pytest.mark.parametrize(
    "space", [Discrete(3), Sequence(Discrete(3)), Tuple((Discrete(3), Discrete(2))), MultiDiscrete([3, 2])]
)
def test_a_number_that_no_type_holds_is_refused_in_a_sentence(space: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    contains = Discrete.contains

    def as_in_gymnasium_1_3(self: Any, x: Any) -> bool:
        return contains(self, np.int64(x) if isinstance(x, int) else x)  # an OverflowError

    monkeypatch.setattr(Discrete, "contains", as_in_gymnasium_1_3)
    answer = 10**30 if isinstance(space, Discrete) else (10**30, 0)
    with pytest.raises(RefusedAction):
        as_action(space, answer)


def test_of_other_spaces_an_answer_is_taken_as_it_is() -> None:
    class Even(gym.Space[Any]):
        def contains(self, x: Any) -> bool:
            return bool(x % 2 == 0)

    assert as_action(Text(3), "abc") == "abc"
    assert as_action(Even(), 4) == 4
    with pytest.raises(RefusedAction):
        as_action(Even(), 3)


DISCRETE = [Discrete(3), Discrete(2, start=-1), Discrete(5, dtype=np.uint8), MultiDiscrete([2, 3]), MultiBinary((2, 2))]
BOXES = [FLOATS, Box(-3, 2, (2, 1), np.int16), Box(0, np.inf, (1,), np.float64), Box(0, 1, (), np.float16)]
SPACES = st.sampled_from([*DISCRETE, *BOXES])
ANSWERS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-4, 5),
    st.floats(width=16),
    st.text(max_size=2),
    st.lists(st.floats(-4, 5, width=16), max_size=3),
    st_np.arrays(
        st.sampled_from([np.int8, np.uint8, np.int64, np.float16, np.float32, np.float64, np.bool_]),
        st.sampled_from([(), (1,), (2,), (1, 1), (2, 1), (2, 2)]),
    ),
)


@settings(max_examples=CASES, deadline=None, database=None, derandomize=True)
@given(space=SPACES, answer=ANSWERS)
def test_an_accepted_answer_is_the_same_numbers_in_the_space(space: Any, answer: Any) -> None:
    try:
        action = as_action(space, answer)
    except RefusedAction:
        return
    assert space.contains(action)
    given_numbers = np.asarray(answer, np.float64)
    close = np.allclose(given_numbers.ravel(), np.asarray(action, np.float64).ravel(), rtol=1e-3, atol=1e-7)
    assert close if np.dtype(space.dtype).kind == "f" else np.array_equal(given_numbers.ravel(), np.ravel(action))


@settings(max_examples=-(-CASES // 3), deadline=None, database=None, derandomize=True)
@given(space=SPACES, seed=st.integers(0, 2**16), dtype=st.sampled_from([np.float64, np.int64, np.float32]))
def test_every_element_is_accepted_as_it_is_and_as_other_types_that_hold_it(space: Any, seed: int, dtype: Any) -> None:
    space.seed(seed)
    element = space.sample()
    np.testing.assert_array_equal(as_action(space, element), element)
    other = np.asarray(element).astype(dtype)
    if np.array_equal(other, element):
        for answer in (other, other.tolist(), torch.from_numpy(np.array(other))):
            np.testing.assert_array_equal(as_action(space, answer), element)


def test_a_refusals_sentence_travels_through_the_slot_and_is_cut_where_it_is_long() -> None:
    block = Block(shared=False)
    block.resize(ActionSlots.size(Discrete(2), 1))
    slots = ActionSlots(block, Discrete(2), 1)
    for sentence in ("worker 0 answered 'ü'", "é" * 2000):
        slots.write(Finished(0, 3, 1, 2, Fate.REFUSED, sentence, 0))
        read = slots.read(0).action
        assert sentence.startswith(read)
        assert len(read) >= min(len(sentence), 500)
    slots.write(Finished(0, 4, 1, 2, Fate.DONE, 1, 0))
    assert slots.read(0).action == 1


# What becomes of them in a run, on every clock and wherever workers are.


def run(policy: Any, backend: str, workers: int = 2, **length: Any) -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="workers=")
        runner = AsyncRunner(
            Pressing, lambda: policy, workers, 100, playout=1, slot=1, latency=Constant(0.005), backend=backend
        )
        return runner.run(**(length or {"frames": 40}))


BACKENDS = ["virtual", "thread", "process"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_same_number_in_another_type_reaches_the_environment(backend: str) -> None:
    def policy(observation: Any) -> Any:
        one = observation[FRAME] >= 0  # an np.bool_
        return [one, torch.tensor([1]), 1.0, np.array([1])][observation[FRAME] % 4]

    report = run(policy, backend)
    assert report.frames["fresh"] > 4
    assert report.refused == 0
    assert sum(episode.score for episode in report.episodes) == report.frames["fresh"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_run_in_which_no_action_is_accepted_says_so_at_once_and_fails_with_that_sentence(backend: str) -> None:
    sentence = (
        r"worker [01] answered \(array\(1\), None\) \(tuple\), which is no action of Discrete\(5\): it looks like a "
        r"pair \(action, state\)"
    )
    with (
        pytest.warns(RuntimeWarning, match=f"^{sentence}.*the default action takes the place"),
        pytest.raises(RunFailed, match=f"^no action was ever accepted: {sentence}"),
    ):
        run(lambda o: (np.array(1), None), backend, frames=10**9)  # none of these clocks would see the end of an hour


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_run_in_which_some_actions_are_refused_warns_once_and_counts_them(backend: str) -> None:
    with pytest.warns(RuntimeWarning, match="answered nan") as told:
        report = run(lambda o: float("nan") if o[FRAME] % 2 else 1, backend, frames=200)
    assert len([one for one in told if "answered nan" in str(one.message)]) == 1
    assert report.refused == report.lost["refused"] > 1
    assert report.frames["fresh"] > 1
    assert f"{report.refused} refused" in str(report)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_policy_without_an_action_this_time_gets_the_default_one_and_its_worker_lives(backend: str) -> None:
    def policy(observation: Any) -> int:
        if observation[FRAME] % 2:
            raise NoAction("the server at ws://arm:8000 is away")
        return 1

    with pytest.warns(RuntimeWarning, match=r"worker [01] has no action: the server at ws://arm:8000 is away; the def"):
        report = run(policy, backend, frames=200)
    assert report.refused > 1
    assert report.frames["fresh"] > 1
    assert report.workers["restarts"] == 0


def test_a_run_without_any_action_ends_with_the_sentence_of_the_first() -> None:
    def policy(observation: Any) -> int:
        raise NoAction("nobody is there")

    with (
        pytest.warns(RuntimeWarning),
        pytest.raises(RunFailed, match=r"accepted: worker [01] has no action: nobody is"),
    ):
        run(policy, "virtual", frames=10**9)


NARROW = {torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7, torch.float32: 2.0**-23}  # from 1 to the next number


@settings(max_examples=CASES, deadline=None, database=None, derandomize=True)
@given(
    bound=st.floats(2**-10, 2**10),
    narrow=st.sampled_from([*NARROW]),
    wide=st.sampled_from([np.float32, np.float64]),
    sign=st.sampled_from([1, -1]),
)
def test_a_bound_as_the_answers_type_rounds_it_is_the_bound_and_what_lies_further_away_is_refused(
    bound: float, narrow: Any, wide: Any, sign: int
) -> None:
    space = Box(wide(-bound), wide(bound), (2,), wide)
    most = float(space.high[0])
    rounded = torch.full((2,), sign * most, dtype=torch.float64).to(narrow)
    assert as_action(space, rounded).tolist() == [sign * min(most, abs(float(rounded[0])))] * 2
    beyond = torch.tensor([0.0, sign * most * (1 + 2 * NARROW[narrow])], dtype=torch.float64).to(narrow)
    with pytest.raises(RefusedAction, match=r"^it lies outside"):
        as_action(space, beyond)


def test_clipping_at_a_bound_changes_no_other_number_and_no_type() -> None:
    space = Box(np.array([-0.1, 0.0, -np.inf]), np.array([0.1, 0.0, np.inf]), dtype=np.float64)
    answer = np.array([0.1, 0.0, 1e30], np.float32)
    assert as_action(space, answer).tolist() == [0.1, 0.0, float(answer[2])]
    inside = np.array([0.05, 0.0, 3.0], np.float32)
    assert clipped(space, inside) is inside
    for wrong in ([0.1, 1e-45, 0.0], [0.1000001, 0.0, 0.0]):
        with pytest.raises(RefusedAction, match=r"^it lies outside"):
            as_action(space, np.array(wrong, np.float32))


def test_the_parts_of_a_dict_stand_in_the_order_of_the_space() -> None:
    space = Dict({"arm": Box(-1, 1, (1,)), "hand": Box(0, 1, (1,))})
    answer = {"hand": np.zeros(1, np.float32), "arm": np.zeros(1, np.float32)}
    assert list(as_action(space, answer)) == ["arm", "hand"]

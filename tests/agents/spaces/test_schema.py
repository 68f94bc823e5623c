"""What a schema makes of spaces, and what a loss gets of a batch."""

from __future__ import annotations

import re
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Sequence, Text, Tuple
from hypothesis import given
from hypothesis import strategies as st

from async_wrappers.agents.families.actor_critic.ppo import PPO
from async_wrappers.agents.families.actor_critic.sac import SAC
from async_wrappers.agents.families.actor_critic.vtrace import VTrace
from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.families.value_based.r2d2 import R2D2
from async_wrappers.agents.losses.loss import batch_tensors
from async_wrappers.agents.spaces.schema import ArrayTree, TransitionSchema, leaves, nest

CAMERA = Box(0, 255, (4, 5), np.uint8)
NESTED = Dict(camera=CAMERA, buttons=Dict(held=MultiBinary(3), last=Discrete(5)))
MEMORY = Dict(log_prob=Box(-100, 0, ()), core=Dict(h=Box(-1, 1, (8,))))


def random_spaces(values: st.SearchStrategy[gym.Space[Any]]) -> st.SearchStrategy[gym.Space[Any]]:
    """Spaces in dicts in dicts."""
    return st.recursive(
        values, lambda inner: st.dictionaries(st.sampled_from("abc"), inner, min_size=1, max_size=3).map(Dict)
    )


arrays: st.SearchStrategy[gym.Space[Any]] = st.sampled_from(
    [CAMERA, Box(-1, 1, ()), Discrete(3), MultiBinary(2), Box(0, 9, (1, 2, 3), np.int16)]
)


class TestTransitionSchema:
    def test_one_array_is_one_column(self) -> None:
        columns: dict[str, Any] = dict(TransitionSchema(CAMERA).columns)
        assert columns == {
            "observation": ((4, 5), np.uint8),
            "action": ((), np.int64),
            "reward": ((), np.float32),
            "interval": ((), np.int32),
            "kind": ((), np.uint8),
        }

    def test_every_array_of_dicts_is_a_column(self) -> None:
        columns: dict[str, Any] = dict(TransitionSchema(NESTED, MEMORY).columns)
        assert {name: column for name, column in columns.items() if "/" in name} == {
            "observation/camera": ((4, 5), np.uint8),
            "observation/buttons/held": ((3,), np.int8),
            "observation/buttons/last": ((), np.int64),
            "extras/log_prob": ((), np.float32),
            "extras/core/h": ((8,), np.float32),
        }

    def test_as_plain_data(self) -> None:
        plain = {"observation_shape": [4, 5], "observation_dtype": "|u1"}
        assert TransitionSchema(CAMERA).as_dict() == plain
        assert TransitionSchema(CAMERA, Dict(mu=Box(0, 1, (2,)))).as_dict() == {
            **plain,
            "extras_shape": {"mu": [2]},
            "extras_dtype": {"mu": "<f4"},
        }

    @pytest.mark.parametrize(
        "space",
        [Tuple([Sequence(Discrete(2))]), Text(5), Sequence(Discrete(2)), Dict(a=Discrete(2), b=Dict(c=Text(3)))],
    )
    def test_spaces_without_a_shape_are_refused(self, space: Any) -> None:
        message = r"observation(\['b'\]\['c'\]|\['0'\])? must be an array, or a Dict or Tuple of arrays, got \w+\(.*: "
        with pytest.raises(ValueError, match=message):
            TransitionSchema(space)

    @pytest.mark.parametrize(
        ("space", "message"),
        [
            (gym.Space((2,), object), "observation must have a plain dtype such as uint8, got object in "),
            (Dict(a=Dict()), r"observation\['a'\] must hold an array, got an empty Dict"),
            (
                Dict({"a/b": Discrete(2), "a": Dict(b=Discrete(2))}),
                "observation must have no two keys alike when joined by '/'",
            ),
        ],
    )
    def test_spaces_that_cannot_be_stored_are_refused(self, space: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            TransitionSchema(space)

    def test_extras_are_a_dict_of_arrays(self) -> None:
        with pytest.raises(ValueError, match=r"extras must be a gymnasium\.spaces\.Dict or None, got Discrete\(2\)"):
            TransitionSchema(CAMERA, Discrete(2))  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="extras must hold an array, got an empty Dict"):
            TransitionSchema(CAMERA, Dict())
        with pytest.raises(ValueError, match=r"extras\['words'\] must be an array, or a Dict or Tuple of arrays"):
            TransitionSchema(CAMERA, Dict(words=Text(3)))


class TestArrayTree:
    @given(random_spaces(arrays), st.integers(0, 9))
    def test_a_value_of_the_space_is_flattened_and_nested_again(self, space: gym.Space[Any], seed: int) -> None:
        space.seed(seed)
        tree, value = ArrayTree("observation", space), space.sample()
        flat = tree.check(value)
        assert len(flat) == len(tree.columns)
        for array, column, same in zip(flat, tree.columns.values(), tree.flatten(value), strict=True):
            assert (array.shape, array.dtype) == column
            np.testing.assert_array_equal(array, same)
        assert space.contains(tree.nest(flat)) or not isinstance(space, Dict)
        assert [path for path, _ in leaves(tree.nest(flat))] == [path for path, _ in leaves(value)]

    @given(random_spaces(arrays))
    def test_nest_is_the_reverse_of_leaves(self, space: gym.Space[Any]) -> None:
        value = space.sample()
        paths, flat = zip(*leaves(value), strict=True)
        again = list(leaves(nest(paths, flat)))
        assert [path for path, _ in again] == list(paths)
        assert all(one is other for (_, one), other in zip(again, flat, strict=True))

    def test_numbers_of_the_same_kind_are_taken(self) -> None:
        (array,) = ArrayTree("observation", Box(0, 1, (2,), np.float32)).check(np.zeros(2))
        assert array.dtype == np.float64  # it is cast where it is stored
        with pytest.raises(ValueError, match="next must have dtype uint8, got float64, cast it first"):
            ArrayTree("observation", CAMERA).check(np.zeros((4, 5)), "next")
        with pytest.raises(ValueError, match=r"observation must have shape \(4, 5\), got \(5, 4\)"):
            ArrayTree("observation", CAMERA).check(np.zeros((5, 4), np.uint8))

    @pytest.mark.parametrize(
        ("value", "message"),
        [
            (np.zeros(2), r"observation must be a dict with the keys \['buttons', 'camera'\], got ndarray"),
            ({"camera": 0}, r"observation must be a dict with the keys \['buttons', 'camera'\], got \['camera'\]"),
            (
                {"camera": np.zeros((4, 5), np.uint8), "buttons": {"held": np.zeros(3, np.int8)}},
                r"observation\['buttons'\] must be a dict with the keys \['held', 'last'\], got \['held'\]",
            ),
        ],
    )
    def test_other_keys_are_refused(self, value: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            ArrayTree("observation", NESTED).check(value)


def test_a_loss_gets_what_it_reads_of_a_batch() -> None:
    numbers = {name: np.zeros(3) for name in ("action", "reward", "discount", "interval", "index")}
    stacks = {name: {"a": np.ones((3, 2, 4))} for name in ("observation", "next_observation")}
    batch = {**stacks, **numbers}
    read, tensor = (lambda stack: ("read", list(stack))), (lambda array: ("tensor", array.shape))
    plain = dict.fromkeys(("action", "reward", "discount"), ("tensor", (3,)))
    expected = {"observation": ("read", ["a"]), "next_observation": ("read", ["a"]), **plain}
    assert batch_tensors(batch, read, tensor) == expected
    windows = ("action_window", "next_action_window")
    batch |= {name: np.zeros((3, 5, 2)) for name in windows}
    expected |= dict.fromkeys(windows, ("tensor", (3, 5, 2)))
    assert batch_tensors(batch, read, tensor) == expected
    batch |= {"weight": np.zeros(3), "probability": np.zeros(3), "extras": {"core": {"h": np.zeros((3, 8))}}}
    assert batch_tensors(batch, read, tensor) == {
        **expected,
        "weight": ("tensor", (3,)),
        "extras": {"core": {"h": ("tensor", (3, 8))}},
    }


@pytest.mark.parametrize(
    ("space", "sentence"),
    [
        (Dict(), "observation space must hold an array, got an empty Dict or Tuple: let the environment show"),
        (Tuple(()), "observation space must hold an array, got an empty Dict or Tuple: let the environment show"),
        (Dict(a=Discrete(2), b=Dict()), "observation space['b'] must hold an array, got an empty Dict or Tuple: let"),
        (Dict(a=Box(0, 1, (2, 0))), "observation space['a'] must hold a number, got Box([], [], (2, 0), float32): let"),
    ],
)
def test_an_observation_of_nothing_is_refused_by_every_agent(space: gym.Space[Any], sentence: str) -> None:
    for kind in (DQN, R2D2, PPO, SAC, VTrace):
        actions = Box(-1, 1, (2,)) if kind is SAC else Discrete(2)
        with pytest.raises(ValueError, match=rf"^agent '{kind.name}': {re.escape(sentence)}"):
            kind(space, actions)

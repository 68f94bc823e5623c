"""The memory of a replay in bytes, in the place of its slots."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict
from hypothesis import given
from hypothesis import strategies as st

from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.learning.making import make_replay
from async_wrappers.agents.replay.replay import create_replay
from tests.contracts.replay_contract import contract_settings

IMAGE = Box(0, 255, (6, 5), np.uint8)
EXTRAS = Dict({"value": Box(-1, 1, (2,))})


@contract_settings
@given(
    replay_bytes=st.integers(1, 30_000),
    space=st.sampled_from([IMAGE, Box(-1, 1, (3,)), Dict({"a": IMAGE, "b": Box(-1, 1, ())})]),
    terms=st.sampled_from(
        [
            {},
            {"selector": "prioritized"},
            {"selector": "prioritized", "num_envs": 3, "stack_size": 2, "update_horizon": 3},
            {"num_envs": 5, "extras": EXTRAS},
            {"eviction": "reservoir"},
            {"eviction": "reservoir", "extras": EXTRAS},
        ]
    ),
)
def test_as_many_slots_are_kept_as_the_bytes_hold(replay_bytes: int, space: Any, terms: dict[str, Any]) -> None:
    def make(**size: int) -> Any:
        return create_replay(space, **terms, **size)

    try:
        replay = make(replay_bytes=replay_bytes)
    except ValueError as error:
        least = int(str(error).split()[4].rstrip(","))  # replay_bytes must be >= N,
        assert replay_bytes < least
        assert make(replay_bytes=least).nbytes == least
        return
    capacity = replay.facts()["capacity"]
    assert replay.nbytes <= replay_bytes
    num_envs = terms.get("num_envs", 1)
    assert capacity % num_envs == 0
    assert make(capacity=capacity + num_envs).nbytes > replay_bytes
    assert make(capacity=capacity).facts() == replay.facts()  # which alone is what a file knows


def test_a_prioritised_replay_of_large_images_has_the_bytes_too() -> None:
    replay = create_replay(Box(0, 255, (84, 84), np.uint8), selector="prioritized", replay_bytes=10**9, num_envs=16)
    assert 0 <= 10**9 - replay.nbytes < 16 * 7200


def test_an_agent_takes_bytes_in_the_place_of_observations() -> None:
    spec = DQN(IMAGE, gym.spaces.Discrete(2), stack_size=1, replay_bytes=100_000)
    for num_envs in (1, 4):
        replay = make_replay(spec, 0, num_envs)
        assert 99_000 < replay.nbytes <= 100_000
        assert replay.num_envs == num_envs
    assert make_replay(DQN(IMAGE, gym.spaces.Discrete(2)), 0).facts()["capacity"] == 1_000_000


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            {"replay_bytes": 10**6, "replay_capacity": 500},
            "replay_capacity must be None where replay_bytes=1000000, got 500: bind one of the two",
        ),
        (
            {"replay_bytes": 10**6, "replay_compression": "lz4"},
            "replay_bytes must be None where replay_compression='lz4', as packed observations have no fixed size, got "
            "1000000: bind replay_capacity",
        ),
        ({"replay_bytes": 0}, "replay_bytes must be >= 1 byte, or None for replay_capacity, got 0"),
        ({"replay_bytes": 0.5}, r"replay_bytes must be a whole number \(byte\), or None for replay_capacity, got 0.5"),
        (
            {"replay_bytes": 100},
            "replay_bytes must be >= 295, which one transition of each environment takes, got 100",
        ),
    ],
)
def test_wrong_bytes_are_refused_in_a_sentence(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{sentence}"):
        make_replay(DQN(IMAGE, gym.spaces.Discrete(2), **arguments), 0)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"capacity": 5}, "capacity must be None where replay_bytes=1000, got 5"),
        (
            {"compression": "lz4"},
            "replay_bytes must be None where observations are packed, which have no fixed size, got 1000: give "
            "capacity",
        ),
        ({"num_envs": 0}, "num_envs must be >= 1 environment, got 0"),
    ],
)
def test_a_replay_refuses_them_too(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        create_replay(IMAGE, replay_bytes=1000, **arguments)

"""Normalisers: running statistics against those of all rows at once, and what a network reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from async_wrappers.agents.networks.normalizer import (
    NormalizedNetwork,
    ObservationNormalizer,
    RewardNormalizer,
    RunningMoments,
)
from async_wrappers.agents.networks.policy_value import create_policy_value_network
from async_wrappers.agents.spaces.actions import BoxActions


def rows_of(seed: int, count: int) -> Tensor:
    """Rows `[count, 2]`, whose mean is far from 0 beside their deviation."""
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.normal([100.0, -3.0], [0.5, 20.0], (count, 2)))


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**31), st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_moments_are_those_of_all_rows_so_far(seed: int, sizes: list[int]) -> None:
    rows, moments = rows_of(seed, sum(sizes)), RunningMoments((2,))
    for part in rows.split(sizes):
        moments.update(part)
    torch.testing.assert_close(moments.mean.double(), rows.mean(0), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(moments.variance.double(), rows.var(0, correction=0), rtol=1e-4, atol=1e-6)
    assert moments.count.item() == sum(sizes)


def test_several_learners_add_the_rows_of_all() -> None:
    mine, theirs = rows_of(0, 6), rows_of(1, 10)

    def average(sums: Any, count: int) -> Any:
        others = {"sum": theirs.sum(0), "squares": (theirs**2).sum(0), "count": torch.tensor(10.0)}
        return {name: (each + others[name]) / 2 for name, each in sums.items()}

    moments, both = RunningMoments((2,)), torch.cat([mine, theirs])
    moments.update(mine, average)
    torch.testing.assert_close(moments.mean.double(), both.mean(0), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(moments.variance.double(), both.var(0, correction=0), rtol=1e-4, atol=1e-6)


def test_vectors_of_a_dict_are_normalised_by_key_and_images_pass() -> None:
    normalizer = ObservationNormalizer({"b": (1, 2), "a": {"image": (1, 8, 8), "number": (1,)}})
    observation = {
        "a": {"image": torch.full((4, 1, 8, 8), 200, dtype=torch.uint8), "number": torch.arange(4.0).view(4, 1)},
        "b": torch.tensor([[[1.0, 7.0]], [[3.0, 7.0]], [[1.0, 7.0]], [[3.0, 7.0]]]),
    }
    assert not normalizer.begun
    normalizer.update(observation)
    assert normalizer.begun
    found = normalizer(observation)
    assert found["a"]["image"] is observation["a"]["image"]
    assert found["b"][:, 0, 0].tolist() == pytest.approx([-1.0, 1.0, -1.0, 1.0])
    assert found["b"][:, 0, 1].tolist() == [0.0] * 4  # a number that never changes
    assert found["a"]["number"].flatten().tolist() == pytest.approx([-1.3416, -0.4472, 0.4472, 1.3416], abs=1e-4)


def test_images_alone_need_no_statistics() -> None:
    normalizer = ObservationNormalizer((1, 8, 8))
    assert normalizer.begun and not list(normalizer.buffers())


def test_what_is_far_away_is_clipped_to_10_deviations() -> None:
    normalizer = ObservationNormalizer((1, 1))
    normalizer.update(torch.tensor([[[-1.0]], [[1.0]]]))
    assert normalizer(torch.tensor([[[-50.0]], [[5.0]], [[50.0]]])).flatten().tolist() == [-10.0, 5.0, 10.0]
    rewards = RewardNormalizer()
    rewards.update(torch.tensor([-2.0, 2.0]))
    assert rewards(torch.tensor([-50.0, 3.0, 50.0])).tolist() == pytest.approx([-10.0, 1.5, 10.0])


def test_a_network_reads_normalised_observations_in_every_call() -> None:
    actions = BoxActions(Box(-1, 1, (2,)), "ppo")
    inside: Any = create_policy_value_network((1, 3), actions, hidden=(4,))
    network = NormalizedNetwork(inside, (1, 3))
    observation = 5 + 3 * torch.randn(4, 2, 1, 3)
    assert network.observations is not None
    network.observations.update(observation.flatten(0, 1))
    rest = torch.zeros(4, 2, 2), torch.zeros(4, 2), torch.zeros(4, 2, dtype=torch.bool), torch.zeros(2, 0)
    read = network.read(observation)
    assert read.mean().abs() < 1e-5
    expected = inside(read, *rest)[0]
    features = network.encode(observation.flatten(0, 1)).view(4, 2, -1)
    for found in (network(observation, *rest), network(read, *rest, True), network.decide(features, *rest)):
        for one, other in zip(found[0], expected, strict=True):
            torch.testing.assert_close(one, other)

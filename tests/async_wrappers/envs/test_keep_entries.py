"""`KeepEntries` shows some entries of a vector, scaled."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from async_wrappers.envs import KeepEntries


@pytest.mark.parametrize(("entries", "scale"), [((0, 2), None), ((3, 0), (0.5, 2.0))])
def test_entries_are_shown_in_order_and_scaled(entries: tuple[int, ...], scale: Any) -> None:
    bare, env = gym.make("CartPole-v1"), KeepEntries(gym.make("CartPole-v1"), entries, scale)
    factor = np.array(scale or (1, 1), np.float32)
    one, other = bare.reset(seed=3)[0], env.reset(seed=3)[0]
    for action in (0, 1, 1):
        np.testing.assert_array_equal(other, one[list(entries)] * factor)
        assert env.observation_space.contains(other)
        one, other = bare.step(action)[0], env.step(action)[0]
    assert env.spec is not None and env.spec.additional_wrappers[-1].kwargs == {"entries": entries, "scale": scale}


@pytest.mark.parametrize(
    ("name", "entries", "scale", "message"),
    [
        ("CartPole-v1", (4,), None, r"^entries must .*got 4"),
        ("CartPole-v1", (), None, "^entries must name at least one entry, got none"),
        ("CartPole-v1", (0, 2), (1.0,), r"^scale must be a number > 0 for each of 2 entries, got \(1.0,\)"),
        ("CartPole-v1", (0,), (-1.0,), r"^scale must be a number > 0 for each of 1 entries, got \(-1.0,\)"),
        ("CliffWalking-v1", (0,), None, r"^KeepEntries needs observations that are a Box \[n\], got Discrete"),
    ],
)
def test_what_does_not_fit_is_refused(name: str, entries: Any, scale: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        KeepEntries(gym.make(name), entries, scale)

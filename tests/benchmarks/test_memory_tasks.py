"""The corridor of benchmarks/studies/memory_tasks.py: what it shows, and what it pays."""

from __future__ import annotations

import pytest
from gymnasium.utils.env_checker import check_env

from benchmarks.studies.memory_tasks import Corridor


def test_the_corridor_is_an_environment() -> None:
    check_env(Corridor(3), skip_render_check=True)


@pytest.mark.parametrize("length", [1, 4])
@pytest.mark.parametrize("side", [0, 1])
def test_the_cue_is_shown_first_and_pays_last(length: int, side: int) -> None:
    env, paid = Corridor(length), {}
    for seed in range(20):
        observation, _ = env.reset(seed=seed)
        cue = observation[0]
        assert cue in (-1.0, 1.0) and observation[1] == 0.0
        for step in range(1, length + 1):
            observation, reward, terminated, truncated, _ = env.step(1 - side)  # makes no difference on the way
            assert observation.tolist() == [0.0, float(step == length)]
            assert (reward, terminated, truncated) == (0.0, False, False)
        *_, reward, terminated, truncated, _ = env.step(side)
        assert terminated and not truncated
        paid[cue] = reward
    assert paid == {-1.0: float(side == 0), 1.0: float(side == 1)}

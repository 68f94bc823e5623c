"""`LocalEnvs`: bit for bit what Gymnasium's own vector of the same environments shows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, Text
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from async_wrappers import RealtimeDelay
from async_wrappers.batched.factory import create_batched_envs
from async_wrappers.batched.local import LocalEnvs
from async_wrappers.batched.protocol import BatchedEnvs, Shown
from async_wrappers.batched.rows import leaves
from async_wrappers.batched.vector_envs import VectorEnvs
from tests.worlds.seeded_env import SeededEnv

MAKES: dict[str, Callable[[], Any]] = {
    "arrays": SeededEnv,
    "dicts": partial(SeededEnv, "dict"),
    "tuples": partial(SeededEnv, "tuple"),
    "real-valued actions": partial(SeededEnv, action_space=Box(1, 2, (2,))),
    "delayed": lambda: RealtimeDelay(SeededEnv(), delay=2, noops=1),
}


def plain(shown: Shown) -> list[Any]:
    """All that rows show, to be compared."""
    arrays = [shown.env_ids, *leaves(shown.observation), shown.reward, shown.first, shown.terminal, shown.truncated]
    arrays += [shown.realtime[key] for key in sorted(shown.realtime)]
    finals = {i: [np.asarray(each).tolist() for each in leaves(shown.final[i])] for i in shown.final}
    return [[(array.dtype, array.tolist()) for array in arrays], finals, shown.info]


@pytest.mark.parametrize("name", MAKES)
def test_rows_are_those_of_gymnasiums_vector(name: str) -> None:
    make = MAKES[name]
    vector: Any = SyncVectorEnv([make] * 3, autoreset_mode=AutoresetMode.SAME_STEP)
    both: list[BatchedEnvs] = [create_batched_envs(make, 3), VectorEnvs(vector)]
    assert isinstance(both[0], LocalEnvs)
    space = both[0].action_space
    space.seed(0)
    ended = 0
    with closing(both[0]), closing(both[1]):
        for envs in both:
            envs.begin([5, 6, 7])
        for _ in range(40):
            ours, theirs = (envs.recv() for envs in both)
            assert plain(ours) == plain(theirs)
            ended += len(ours.final)
            actions = np.array([space.sample() for _ in ours.env_ids])
            for envs in both:
                envs.send(ours.env_ids, actions)
        ours, theirs = (envs.cut() for envs in both)
        assert plain(ours) == plain(theirs)
    assert ended > 3


def test_an_exception_says_which_environment_raised_it() -> None:
    class Raises(gym.Wrapper[Any, Any, Any, Any]):
        def step(self, action: Any) -> Any:
            if action == 1:
                raise KeyError("the door is shut")
            return self.env.step(action)

    with closing(LocalEnvs(lambda: Raises(SeededEnv()), 3)) as envs:
        envs.begin([1, 2, 3])
        envs.send(envs.recv().env_ids, np.array([0, 0, 1]))
        with pytest.raises(KeyError, match="the door is shut") as caught:
            envs.recv()
    assert caught.value.__notes__ == ["environment 2"]


def test_environments_that_differ_or_cannot_be_batched_are_refused() -> None:
    sizes = iter((2, 3))
    with pytest.raises(ValueError, match=r"^make must make environments with the same spaces"):
        LocalEnvs(lambda: SeededEnv(action_space=Discrete(next(sizes))), 2)
    with pytest.raises(ValueError, match=r"^the action space must be a Box"):
        LocalEnvs(lambda: SeededEnv(action_space=Text(4)), 2)
    with pytest.raises(ValueError, match=r"^num_envs must be"):
        LocalEnvs(SeededEnv, 0)

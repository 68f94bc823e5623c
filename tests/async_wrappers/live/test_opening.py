"""A run that cannot begin leaves nothing open, and what a runner is told is checked."""

from __future__ import annotations

import gc
import os
from typing import Any

import pytest

from async_wrappers import AsyncRunner
from tests.worlds.recording_env import RecordingEnv


class Closing(RecordingEnv):
    closed = 0

    def close(self) -> None:
        Closing.closed += 1


@pytest.mark.parametrize("backend", ["thread", "virtual"])
def test_an_environment_whose_default_action_is_none_of_its_is_closed_again(backend: str) -> None:
    Closing.closed = 0
    gc.collect()
    descriptors = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ValueError, match=r"^default_action must be one of"):
        AsyncRunner(Closing, lambda: lambda o: 1, 2, 60, backend=backend, latency=0.1, default_action=99).run(frames=3)
    assert Closing.closed == 1
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_a_second_block_begins_with_the_first_episode_again() -> None:
    made: list[Any] = []

    def make_env() -> RecordingEnv:
        made.append(RecordingEnv(length=20))
        return made[-1]

    seen: list[tuple[int, int]] = []

    class Policy:
        def act(self, observation: Any, decision: Any) -> int:
            seen.append((decision.episode, decision.frame))
            return 1

    runner = AsyncRunner(make_env, Policy, 1, 50, backend="thread", latency=0.001, playout=1)
    for _ in range(2):
        seen.clear()
        with runner:
            runner.run(episodes=1)
            assert max(seen) < (1, 0)
            runner.run(episodes=1)
            assert (1, 20) <= max(seen) < (2, 0)
    assert len(made) == 2


@pytest.mark.parametrize("error", [ConnectionResetError, BrokenPipeError, EOFError])
def test_a_policys_broken_connection_is_an_error_and_not_the_end_of_the_run(error: type[Exception]) -> None:
    def ask(observation: Any) -> int:
        raise error("the server of the network is gone")

    with pytest.raises(error, match="the server of the network is gone"):
        AsyncRunner(RecordingEnv, lambda: ask, 1, 60, backend="thread", latency=0.1).run(frames=3)

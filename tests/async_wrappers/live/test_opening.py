"""A run that cannot begin leaves nothing open, and what a runner is told is checked."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import pytest

from async_wrappers import AsyncRunner
from async_wrappers.live.recording.writer import LocalRecording
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


def test_a_run_within_a_run_is_refused() -> None:
    runner = AsyncRunner(RecordingEnv, lambda: lambda o: 1, 1, 50, backend="virtual", latency=0.02)
    with pytest.raises(
        RuntimeError, match=r"^run\(\) must end before the next one: wait for it, or make an AsyncRunner"
    ):
        runner.run(frames=3, on_frame=lambda status: runner.run(frames=1))
    assert runner.run(frames=3).frames["total"] == 3


def test_a_runner_whose_close_failed_starts_its_parts_anew() -> None:
    class Stuck(Closing):
        def close(self) -> None:
            super().close()
            if Closing.closed == 1:
                raise OSError("the door is stuck")

    Closing.closed = 0
    runner = AsyncRunner(Stuck, lambda: lambda o: 1, 1, 500, backend="thread", latency=0.001)
    with pytest.raises(OSError, match="the door is stuck"), runner:
        runner.run(frames=3)
    assert runner.run(frames=3).frames["total"] == 3


@pytest.mark.parametrize("backend", ["thread", "virtual"])
def test_a_stop_that_comes_after_the_last_frame_does_not_stop_the_next_run(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end_phase = LocalRecording.end_phase

    def late(recording: LocalRecording) -> Any:
        runner.stop()
        return end_phase(recording)

    monkeypatch.setattr(LocalRecording, "end_phase", late)
    runner = AsyncRunner(
        RecordingEnv, lambda: lambda o: 1, 1, 500, backend=backend, latency=0.002, record=tmp_path / "record"
    )
    with runner:
        assert [runner.run(frames=10).frames["total"] for _ in range(2)] == [10, 10]

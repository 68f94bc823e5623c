"""Tests of async_wrappers/live/served/processes.py: environments and accelerators in processes, on a real clock."""

from __future__ import annotations

import os
import signal
import threading
import time
from multiprocessing import active_children
from typing import Any

import numpy as np
import pytest

from async_wrappers.live.run_spec import RunFailed
from async_wrappers.live.served.runner import ServedRunner
from tests.worlds.recording_env import FRAME, RecordingEnv

LONG = 100_000  # frames, which no test plays


class Failing(RecordingEnv):
    """Raises on its tenth frame."""

    def step(self, action: Any) -> Any:
        """Step, or raise."""
        if len(self.actions) == 10:
            raise OSError("the simulator has crashed")
        return super().step(action)


def make_env() -> RecordingEnv:
    return RecordingEnv(length=30)


def make_policy() -> Any:
    return lambda observations: observations[:, FRAME] % 2


def ended(pids: dict[str, int]) -> bool:
    """Return whether all processes have ended, and been reaped."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        active_children()
        if not any(os.path.exists(f"/proc/{pid}") for pid in pids.values()):
            return True
        time.sleep(0.05)
    return False


def killed(runner: ServedRunner, name: str, pids: dict[str, int]) -> threading.Thread:
    """Return a thread that ends a process of the runner by force, a little after it plays."""

    def kill() -> None:
        pids.update(runner.pids)
        time.sleep(0.5)
        os.kill(pids[name], signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    return thread


class TestProcesses:
    def test_environments_are_served_and_a_process_that_is_killed_ends_the_run_in_a_sentence(self) -> None:
        pids: dict[str, int] = {}
        with ServedRunner(make_env, make_policy, 5, 50, 3, processes=2, accelerators=2, log=True) as runner:
            report = runner.run(frames=60)
            assert report.frames["total"] == 5 * 60
            assert not report.simulated
            assert [each.number for each in report.environments] == list(range(5))
            for stream, environment in zip(report.streams, report.environments, strict=True):
                starts, effects = np.array(stream).T
                assert (np.diff(starts) > 0).all() and (np.diff(effects) > 0).all()
                assert (effects - starts >= 3).all()
                assert environment.frames["fresh"] == len(stream) > 0
                assert environment.returns[:1] == (30.0,)
            assert report.decisions is not None
            assert (report.decisions.ended > report.decisions.began).all()
            assert report.batch_size["max"] <= 5
            again = runner.run(frames=20)  # the processes have stayed
            assert again.frames["total"] == 100
            killer = killed(runner, "the process of environments 0 to 1", pids)
            with pytest.raises(
                RunFailed, match=r"^the process of environments 0 to 1 was ended by SIGKILL .* run with"
            ):
                runner.run(frames=LONG)
            killer.join()
            assert runner.pids == {}
        assert ended(pids)

    def test_an_accelerator_that_is_killed_ends_the_run_in_a_sentence(self) -> None:
        pids: dict[str, int] = {}
        with ServedRunner(make_env, make_policy, 2, 50, 3, processes=1) as runner:
            runner.run(frames=5)
            killer = killed(runner, "accelerator 0", pids)
            with pytest.raises(RunFailed, match=r"^accelerator 0 was ended by SIGKILL"):
                runner.run(frames=LONG)
            killer.join()
        assert ended(pids)

    def test_what_an_environment_raises_comes_out(self) -> None:
        with pytest.raises(OSError) as raised:
            ServedRunner(Failing, make_policy, 2, 50, 3, processes=1).run(frames=LONG)
        assert str(raised.value) == "the simulator has crashed"
        assert "raised in the process of environments 0 to 1" in raised.value.__notes__[0]

    def test_a_policy_that_answers_no_batch_of_actions_is_refused_before_the_first_frame(self) -> None:
        with pytest.raises(ValueError) as refused:
            ServedRunner(make_env, lambda: lambda observations: np.zeros(7, int), 2, 50, processes=1).run(frames=LONG)
        assert str(refused.value).startswith("accelerator 0, asked for the actions of 1 observations, answered array(")
        assert str(refused.value).endswith(": its shape is [7] and must be [1]")

    def test_a_policy_that_is_slower_than_the_playout_is_refused(self) -> None:
        def slow() -> Any:
            def act(observations: Any) -> Any:
                time.sleep(0.045)
                return observations[:, FRAME] % 2

            return act

        with pytest.raises(
            ValueError, match=r"^playout must be at least [3-9] frames, got 2 \(40\.0 ms\): the quickest"
        ):
            ServedRunner(make_env, slow, 2, 50, 2, processes=1).run(frames=LONG)

"""Tests of async_wrappers/live/served/served_processes.py: environments and accelerators in processes, by the clock."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from async_wrappers.fleet import pulse, waits
from async_wrappers.fleet.supervised import RunFailed
from async_wrappers.live.served import served_processes as processes
from async_wrappers.live.served.served_runner import ServedRunner
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
    deadline = time.monotonic() + 120
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

    def test_a_process_that_exits_while_it_is_made_ends_the_run_with_its_words(self) -> None:
        sentence = r"^the process of environments 0 to 1 raised SystemExit\('no licence'\)\n"
        with pytest.raises(RunFailed, match=sentence):
            ServedRunner(lambda: sys.exit("no licence"), make_policy, 2, 50, 3, processes=1).run(frames=LONG)

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


class Stuck(RecordingEnv):
    """Hangs in its tenth step, unless a file says that one has hung."""

    def __init__(self, once: Path, hang: Any = time.sleep, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._once, self._hang = once, hang

    def step(self, action: Any) -> Any:
        """Step, or hang."""
        if len(self.actions) == 10 and not self._once.exists():
            self._once.touch()
            self._hang(3600)
        return super().step(action)


def hangs_once(once: Path, inferences: int, hang: Any = time.sleep) -> Any:
    """Return a policy of which one hangs in an inference after some."""

    def make() -> Any:
        count = [0]

        def act(observations: Any) -> Any:
            count[0] += 1
            if count[0] > inferences and not once.exists():
                once.touch()
                hang(3600)
            return observations[:, FRAME] % 2

        return act

    return make


def told_of(told: Any) -> list[str]:
    return [str(each.message) for each in told if each.category is RuntimeWarning]


class TestProcessesThatHang:
    def test_an_accelerator_that_hangs_is_ended_started_again_and_counted(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(processes, "_HANGS", (3.0, 5.0))
        terms: dict[str, Any] = {"processes": 1, "log": True}
        runner = ServedRunner(make_env, hangs_once(tmp_path / "hung", 30), 3, 50, 3, **terms)
        with runner, pytest.warns(RuntimeWarning) as told:
            report = runner.run(seconds=12)
            again = runner.run(frames=50)  # the new one is up
        assert told_of(told) == ["accelerator 0 has inferred a batch for more than 3 s: it is started again"]
        assert (report.restarts, again.restarts) == (1, 0)
        assert report.frames["total"] == 3 * 600
        assert "restarts   1 processes hung, were stopped or exited" in str(report)
        assert all(again.streams)

    def test_environments_that_hang_in_a_step_begin_anew_in_another_process_and_the_others_go_on(
        self, tmp_path: Path
    ) -> None:
        once = tmp_path / "hung"
        terms: dict[str, Any] = {"processes": 2, "timeout": 3.0, "log": True}
        runner = ServedRunner(lambda: Stuck(once, length=30), make_policy, 4, 50, 3, **terms)
        with runner, pytest.warns(RuntimeWarning) as told:
            report = runner.run(seconds=12)
            again = runner.run(frames=50)  # the new one is up
        (sentence,) = told_of(told)
        assert sentence.startswith("the process of environments ")
        assert sentence.endswith(
            "has not come back from a step or a reset for 3 s: it is started again, and its episodes are lost"
        )
        assert (report.restarts, again.restarts) == (1, 0)
        totals = sorted(each.frames["total"] for each in report.environments)
        assert totals[2:] == [600, 600]
        assert 0 < totals[0] == totals[1] < 570
        for stream in (*report.streams, *again.streams):
            starts, effects = np.array(stream).T
            assert (np.diff(starts) > 0).all() and (np.diff(effects) > 0).all()
            assert (effects - starts >= 3).all()

    @pytest.mark.parametrize("name", ["accelerator 0", "the process of environments 0 to 1"])
    def test_a_process_that_exits_is_started_again_and_counted(
        self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        once, exits = tmp_path / "left", (lambda seconds: sys.exit(0))
        make = make_env if name == "accelerator 0" else (lambda: Stuck(once, exits, length=30))
        policy = hangs_once(once, 30, exits) if name == "accelerator 0" else make_policy
        with pytest.warns(RuntimeWarning) as told:
            report = ServedRunner(make, policy, 2, 50, 3, processes=1).run(frames=60)
        (sentence,) = told_of(told)
        assert sentence.startswith(f"{name} raised SystemExit(0): it is started again")
        assert report.restarts == 1
        assert "1 processes hung, were stopped or exited" in str(report)

    @pytest.mark.parametrize("name", ["accelerator 0", "the process of environments 0 to 1"])
    def test_a_process_that_is_stopped_is_ended_and_another_one_takes_its_place(
        self, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pulse, "STOPPED_FOR", 1.0)
        pids: dict[str, int] = {}
        with ServedRunner(make_env, make_policy, 2, 50, 3, processes=1) as runner:
            runner.run(frames=5)
            pids.update(runner.pids)
            stopper = threading.Timer(0.5, os.kill, (pids[name], signal.SIGSTOP))
            stopper.start()
            with pytest.warns(RuntimeWarning) as told:
                report = runner.run(seconds=12)
            stopper.join()
            assert told_of(told)[0].startswith(f"{name} has been stopped (SIGSTOP) for 1 s: it is started again")
            assert report.restarts == 1
            assert runner.pids[name] != pids[name]
            assert runner.run(frames=5).frames["total"] == 10
            pids |= {f"{each} again": pid for each, pid in runner.pids.items()}
        assert ended(pids)

    @pytest.mark.parametrize("what", ["step", "inference"])
    def test_a_run_whose_step_or_inference_hangs_is_stopped_within_a_stated_time(
        self, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(waits, "PATIENCE", 1.0)
        once = tmp_path / "hung"
        make = make_env if what == "inference" else (lambda: Stuck(once, length=30))
        policy = make_policy if what == "step" else hangs_once(once, 30)
        with ServedRunner(make, policy, 2, 50, 3, processes=2) as runner:

            def stop() -> None:
                deadline = time.monotonic() + 120
                while not once.exists() and time.monotonic() < deadline:
                    time.sleep(0.05)
                runner.stop()

            stopper = threading.Thread(target=stop)
            stopper.start()
            with pytest.warns(RuntimeWarning) as told:
                report = runner.run(frames=LONG)
            stopper.join()
            assert report.stopped == "stop() was called"
            (sentence,) = told_of(told)
            name = "accelerator 0" if what == "inference" else "the process of environment [01]"
            assert re.fullmatch(f"{name} did not stop within 1 s: it was ended(, and its episodes are lost)?", sentence)
            assert len(report.environments) == 2
            assert report.frames["total"] > 0
            again = runner.run(frames=20)  # what was ended is there again
            assert again.frames["total"] == 40
            assert again.restarts == 0

    def test_a_run_is_stopped_before_its_processes_are_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(waits, "PATIENCE", 0.2)
        runner = ServedRunner(lambda: time.sleep(3600), make_policy, 1, 50, 3)
        stopper = threading.Timer(1.0, runner.stop)
        stopper.start()
        with pytest.raises(RunFailed, match=r"^stop\(\) was called before the run's first frame: nothing was played$"):
            runner.run(frames=LONG)
        stopper.join()

    def test_an_accelerator_that_hangs_again_and_again_ends_the_run(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(processes, "_HANGS", (0.3, 1.0))
        monkeypatch.setattr(processes, "_PAUSES", (0,))

        def make() -> Any:
            count = [0]

            def act(observations: Any) -> Any:
                count[0] += 1
                if count[0] > 6:  # after it has warmed up
                    time.sleep(3600)
                return observations[:, FRAME] % 2

            return act

        with (
            pytest.warns(RuntimeWarning, match="accelerator 0 has inferred"),
            pytest.raises(RunFailed, match=r"for more than .* s; it was the 2th time in a row$"),
        ):
            ServedRunner(make_env, make, 2, 50, 3, processes=1).run(frames=LONG)

"""`ProcessEnvs`: processes that die, environments that raise, and what is left of them."""

from __future__ import annotations

import errno
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import psutil
import pytest
from gymnasium.spaces import Discrete

from async_wrappers.batched.processes import ProcessEnvs
from async_wrappers.fleet import pulse, starting, waits
from async_wrappers.fleet.supervised import RunFailed
from tests.worlds.recording_env import RecordingEnv
from tests.worlds.seeded_env import SeededEnv

ROOT = Path(__file__).parents[3]


class Acts(gym.Wrapper[Any, Any, Any, Any]):
    """Does something when it receives action 2."""

    def __init__(self, act: Callable[[], Any], info: Any = None) -> None:
        super().__init__(SeededEnv(longest=100, shortest=50))
        self._act, self._info = act, info

    def step(self, action: Any) -> Any:
        if action == 2:
            self._act()
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward, terminated or action == 0, truncated, {**info, "more": self._info}


def step(envs: ProcessEnvs, actions: Any) -> Any:
    shown = envs.recv()
    envs.send(shown.env_ids, np.array(actions))
    return shown


def crash() -> None:
    os._exit(7)


def raises() -> None:
    raise KeyError("the door is shut")


def leave() -> None:
    sys.exit(0)


def test_a_process_that_exits_is_replaced_with_a_warning_of_its_words_and_counted() -> None:
    with closing(ProcessEnvs(lambda: Acts(leave), 2, processes=1)) as envs:
        envs.begin([1, 2])
        step(envs, [1, 2])
        with pytest.warns(RuntimeWarning) as told:
            step(envs, [1, 2])
        assert [str(each.message) for each in told] == [
            "process 0 of ProcessEnvs raised SystemExit(0): another one takes its place"
        ]
        assert (envs.restarts, envs.lost_episodes) == (1, 2)
        with pytest.raises(
            RunFailed, match=r"^process 0 of ProcessEnvs raised SystemExit\(0\), before it had finished a step$"
        ):
            envs.recv()


@pytest.mark.filterwarnings("ignore:process 1 of ProcessEnvs ended with exit code 7. another one takes its place")
def test_a_process_that_dies_is_replaced_and_its_episodes_are_cut() -> None:
    envs = ProcessEnvs(lambda: Acts(crash), 3, processes=2)
    envs.begin([1, 2, 3])
    step(envs, [1, 1, 1])
    before = step(envs, [1, 1, 2])
    shown = step(envs, [1, 1, 1])
    of_it = [i for i in range(3) if shown.truncated[i]]
    assert 2 in of_it
    assert 0 not in of_it
    assert (envs.restarts, envs.lost_episodes) == (1, len(of_it))
    for i in of_it:
        np.testing.assert_array_equal(shown.final[i], before.observation[i])
        assert shown.first[i]
        assert shown.reward[i] == 0
        assert shown.info[i]["realtime"] == {"start": 1, "frame": 1, "interval": 0, "applied": False}
        assert (shown.realtime["frame"][i], shown.realtime["applied"][i]) == (0, False)
        derived = int(np.random.SeedSequence((i + 1, 1)).generate_state(1)[0] >> 1)
        np.testing.assert_array_equal(shown.observation[i], Acts(crash).reset(seed=derived)[0])
    assert not shown.terminal.any()
    assert shown.realtime["frame"][0] == 2
    after = step(envs, [1, 1, 1])
    assert after.realtime["frame"].tolist() == [3, *(1 if i in of_it else 3 for i in (1, 2))]
    envs.close()


def test_a_process_that_dies_between_episodes_is_replaced_and_nothing_is_lost() -> None:
    envs = ProcessEnvs(SeededEnv, 1, processes=1)
    envs.begin([5])
    expected = step(envs, [1]).observation, envs.cut().observation
    os.kill(envs.pids[0], signal.SIGKILL)
    psutil.wait_procs([psutil.Process(envs.pids[0])], timeout=60)
    envs.begin([5])
    np.testing.assert_array_equal((step(envs, [1]).observation, envs.cut().observation), expected)
    assert (envs.restarts, envs.lost_episodes) == (1, 0)
    envs.close()


@pytest.mark.filterwarnings("ignore:process 0 of ProcessEnvs")
def test_where_no_process_can_take_the_place_of_one_that_died_a_sentence_names_the_limit_and_all_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_room() -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    envs = ProcessEnvs(SeededEnv, 2, processes=2)
    envs.begin([5, 6])
    shown, left = envs.recv(), envs.pids
    os.kill(left[0], signal.SIGKILL)
    envs.send(shown.env_ids, np.ones(2, int))
    monkeypatch.setattr(starting, "assure_room", no_room)
    sentence = r"^process 0 of ProcessEnvs cannot start \(Too many open files\): raise the limit of open files"
    with pytest.raises(RunFailed, match=sentence):
        envs.recv()
    envs.close()
    assert not any(map(psutil.pid_exists, left))


@pytest.mark.filterwarnings("ignore:process 1 of ProcessEnvs")
def test_a_process_that_is_found_dead_when_statistics_are_asked_for_is_replaced_and_its_episodes_are_cut() -> None:
    with closing(ProcessEnvs(SeededEnv, 2, processes=2)) as envs:
        envs.begin([5, 6])
        step(envs, [1, 1])
        shown = envs.recv()
        os.kill(envs.pids[1], signal.SIGKILL)
        assert envs.statistics() == [{}, {}]
        envs.send(shown.env_ids, np.ones(2, int))
        after = envs.recv()
        assert after.truncated.tolist() == [False, True]
        np.testing.assert_array_equal(after.final[1], shown.observation[1])
        assert (envs.restarts, envs.lost_episodes) == (1, 1)
        envs.begin([5, 6])
        assert not step(envs, [1, 1]).truncated.any()


def test_after_an_interrupted_wait_all_begins_anew() -> None:
    envs = ProcessEnvs(lambda: Acts(lambda: time.sleep(2)), 2, processes=1)
    envs.begin([5, 6])
    first = step(envs, [1, 2])
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Timer(0.3, signal.pthread_kill, (threading.get_ident(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            envs.recv()
    finally:
        signal.signal(signal.SIGINT, before)
    with pytest.raises(RuntimeError, match="no episodes are running"):
        envs.recv()
    envs.begin([5, 6])
    np.testing.assert_array_equal(step(envs, [1, 1]).observation, first.observation)
    envs.close()


def shared_maps() -> int:
    return Path("/proc/self/maps").read_text().count("memfd:async_wrappers")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_shared_memory_of_closed_ones_is_released_without_a_garbage_collection() -> None:
    gc.collect()
    before = shared_maps()
    gc.disable()
    try:
        envs = ProcessEnvs(SeededEnv, 2, processes=1)
        envs.begin([5, 6])
        envs.recv()
        assert shared_maps() > before
        envs.close()
        del envs
        assert shared_maps() == before
    finally:
        gc.enable()


def test_a_process_that_dies_again_and_again_is_an_error() -> None:
    envs = ProcessEnvs(lambda: Acts(crash), 2, processes=1)
    envs.begin([0, 1])
    step(envs, [2, 1])
    step(envs, [2, 1])
    with pytest.raises(
        RuntimeError, match=r"process 0 of ProcessEnvs ended with exit code 7, before it had finished a"
    ):
        envs.recv()
    with pytest.raises(RuntimeError, match="the environments are closed"):
        envs.begin([0, 1])
    envs.close()


def test_an_exception_of_an_environment_reaches_the_caller_with_its_traceback() -> None:
    envs = ProcessEnvs(lambda: Acts(raises), 4, processes=2)
    envs.begin(range(4))
    step(envs, [1] * 4)
    left = envs.pids
    step(envs, [1, 1, 1, 2])
    with pytest.raises(
        RuntimeError, match="environment 3 of ProcessEnvs raised KeyError: 'the door is shut'"
    ) as raised:
        envs.recv()
    assert "in raises" in str(raised.value)
    assert isinstance(raised.value.__cause__, KeyError)
    assert not any(map(psutil.pid_exists, left))


def never_made() -> gym.Env[Any, Any]:
    raise OSError("no such game")


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (never_made, "environment 0 of ProcessEnvs raised OSError: no such game"),
        (lambda: 3, r"raised ValueError: make must return a gymnasium.Env \(one, not a vector of them\), got 3"),
        (lambda: SeededEnv(action_space=gym.spaces.Text(3)), "the action space must be a Box, Discrete"),
    ],
)
def test_what_cannot_be_made_is_refused_in_a_sentence(make: Any, sentence: str) -> None:
    with pytest.raises((RuntimeError, ValueError), match=sentence):
        ProcessEnvs(make, 1, processes=1)


def test_arguments_that_do_not_fit_are_refused() -> None:
    for num_envs, count, sentence in (
        (0, 1, "num_envs must be"),
        (2, 3, "processes must be"),
        (2, 0, "processes must"),
    ):
        with pytest.raises(ValueError, match=sentence):
            ProcessEnvs(SeededEnv, num_envs, processes=count)
    with pytest.raises(ValueError, match="make must be a function"):
        ProcessEnvs(3, 1, processes=1)  # type: ignore[arg-type]
    lock = threading.Lock()
    with pytest.raises(ValueError, match="make cannot be sent to another process"):
        ProcessEnvs(lambda: lock, 1, processes=1)  # type: ignore[arg-type,return-value]


def test_infos_of_ends_travel_without_what_cannot() -> None:
    envs = ProcessEnvs(lambda: Acts(crash, info=(number for number in range(3))), 2, processes=1)
    envs.begin([0, 1])
    step(envs, [0, 1])
    shown = envs.recv()
    assert shown.terminal.tolist() == [True, False]
    assert set(shown.info[0]) == {"history", "realtime"}
    assert shown.info[0]["realtime"] == {"start": 1, "frame": 1, "interval": 1, "applied": True}
    envs.close()


def test_infos_that_come_while_the_fleet_is_looked_after_are_kept() -> None:
    with closing(ProcessEnvs(lambda: Acts(crash, info="kept"), 1, processes=1)) as envs:
        envs.begin([0])
        step(envs, [0])
        (process,) = envs._processes._all
        assert process.member.child.pipe.poll(60)
        envs._processes._look_after(process)
        assert envs.recv().info[0]["more"] == "kept"


def test_an_observation_of_another_shape_than_its_spaces_is_refused() -> None:
    class Flat(gym.ObservationWrapper[Any, Any, Any]):
        def observation(self, observation: Any) -> Any:
            return observation[:1]

    envs = ProcessEnvs(lambda: Flat(SeededEnv()), 1, processes=1)
    with pytest.raises(RuntimeError, match=r"observation must have shape \(3,\), got \(1,\)"):
        envs.begin([0])


def test_many_environments_in_few_processes_start_play_outlive_a_killed_process_and_end() -> None:
    blocks = set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()
    envs = ProcessEnvs(SeededEnv, 600, processes=2)
    envs.begin(range(600))
    for _ in range(5):
        shown = step(envs, np.ones(600, int))
    assert len(shown.env_ids) == 600
    shown = envs.recv()
    os.kill(envs.pids[1], signal.SIGKILL)
    envs.send(shown.env_ids, np.ones(600, int))
    shown = envs.recv()
    assert shown.truncated[300:].all()
    assert not shown.truncated[:300].all()
    assert (envs.restarts, envs.lost_episodes) == (1, 300)
    left = envs.pids
    assert len(envs.cut().final) == 600
    envs.close()
    assert not any(map(psutil.pid_exists, left))
    if blocks or os.path.isdir("/dev/shm"):
        assert set(os.listdir("/dev/shm")) <= blocks


def test_a_process_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "PATIENCE", 0.1)
    envs = ProcessEnvs(lambda: Acts(lambda: time.sleep(600)), 1, processes=1)
    envs.begin([0])
    step(envs, [2])
    left = envs.pids
    envs.close()
    assert not any(map(psutil.pid_exists, left))


def test_processes_end_with_a_parent_that_is_killed() -> None:
    script = (
        "import time\nfrom async_wrappers.batched.processes import ProcessEnvs\nfrom tests.worlds.seeded_env import *\n"
        "if __name__ == '__main__':\n    envs = ProcessEnvs(SeededEnv, 2, processes=2)\n"
        "    print(*envs.pids, flush=True)\n    time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        children = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
        assert len(children) == 2
        parent.kill()
    _, alive = psutil.wait_procs(children, timeout=60)
    assert alive == []


def test_a_script_without_a_main_guard_is_told_so(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from async_wrappers.batched.processes import ProcessEnvs\nfrom tests.worlds.seeded_env import SeededEnv\n"
        "ProcessEnvs(SeededEnv, 1, processes=1)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, timeout=120)
    assert "ProcessEnvs starts processes, which import the main script again" in done.stderr


class Sleeper(gym.Env[Any, Any]):
    """Steps, and sleeps for ever on the frame that it is told, in its first life."""

    observation_space, action_space = Discrete(100), Discrete(2)

    def __init__(self, marker: Path, sleeps_in: str) -> None:
        self._marker, self._sleeps_in = marker, sleeps_in

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.frame = 0
        self._perhaps("reset")
        return 0, {}

    def step(self, action: Any) -> Any:
        self.frame += 1
        if self.frame == 3:
            self._perhaps("step")
        return self.frame, 1.0, False, self.frame == 5, {}

    def _perhaps(self, where: str) -> None:
        if where == self._sleeps_in and not self._marker.exists():
            self._marker.touch()
            time.sleep(1000)


@pytest.mark.timeout(60)
def test_a_process_whose_step_never_returns_is_ended_replaced_and_counted(tmp_path: Path) -> None:
    with closing(ProcessEnvs(lambda: Sleeper(tmp_path / "slept", "step"), 2, 1, timeout=1.0)) as envs:
        envs.begin([1, 2])
        with pytest.warns(RuntimeWarning, match=r"^process 0 of ProcessEnvs has not finished .* within timeout=1.0 s"):
            for _ in range(8):
                shown = envs.recv()
                envs.send(shown.env_ids, np.zeros(len(shown.env_ids), np.int64))
        assert (envs.restarts, envs.lost_episodes) == (1, 2)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("timeout", "has"), [(1.0, "not finished"), (None, r"been stopped \(SIGSTOP\) for 1 s: it is ended$")]
)
def test_a_stopped_process_is_ended_replaced_and_counted(
    timeout: float | None, has: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulse, "STOPPED_FOR", 1.0 if timeout is None else 60.0)
    with closing(ProcessEnvs(lambda: Sleeper(tmp_path / "slept", "never"), 2, 2, timeout=timeout)) as envs:
        envs.begin([1, 2])
        shown = envs.recv()
        os.kill(envs.pids[1], signal.SIGSTOP)
        with pytest.warns(RuntimeWarning, match=f"^process 1 of ProcessEnvs has {has}"):
            for _ in range(3):
                envs.send(shown.env_ids, np.zeros(len(shown.env_ids), np.int64))
                shown = envs.recv()
        assert (envs.restarts, envs.lost_episodes) == (1, 1)


def stop_this_process() -> gym.Env[Any, Any]:
    os.kill(os.getpid(), signal.SIGSTOP)
    return SeededEnv()


@pytest.mark.timeout(60)
def test_a_process_that_is_stopped_before_its_environments_are_made_ends_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pulse, "STOPPED_FOR", 1.0)
    before = {*psutil.Process().children()}
    with pytest.raises(RunFailed) as caught:
        ProcessEnvs(stop_this_process, 2, 2, timeout=None)
    sentence = "process 0 of ProcessEnvs has been stopped (SIGSTOP) for 1 s, before it had finished a step"
    assert str(caught.value) == sentence
    left = {*psutil.Process().children()} - before
    assert [each for each in left if "spawn_main" in " ".join(each.cmdline())] == []


@pytest.mark.timeout(60)
def test_a_first_reset_that_never_returns_ends_in_a_sentence_with_the_remedy(tmp_path: Path) -> None:
    envs = ProcessEnvs(lambda: Sleeper(tmp_path / "slept", "reset"), 2, 1, timeout=1.0)
    with (
        pytest.warns(RuntimeWarning, match="^process 0"),
        pytest.raises(RuntimeError, match=r"within timeout=1.0 s: give ProcessEnvs a larger timeout, or None"),
    ):
        envs.begin([1, 2])
        envs.recv()


def test_a_timeout_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^timeout must be a finite number > 0, or None, got 0$"):
        ProcessEnvs(RecordingEnv, 2, 1, timeout=0)


def test_in_a_daemonic_process_they_are_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)  # type: ignore[attr-defined]
    with pytest.raises(
        RuntimeError,
        match=r"^no process can be started from MainProcess, .* with daemon=False \(a multiprocessing.Pool cannot\)",
    ):
        ProcessEnvs(SeededEnv, 1, processes=1)

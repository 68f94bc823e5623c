"""The process backend: what travels, what is restarted, what ends a run, and that nothing is left behind."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import psutil
import pytest

from async_wrappers import AsyncRunner, RunFailed
from async_wrappers.fleet import pulse, waits
from async_wrappers.live import Decision
from async_wrappers.live.backends import process as processes
from async_wrappers.live.learning.learner_state import read_state, state_file
from tests.worlds.endless import Endless, make_learning, make_lingering, make_runner

ROOT = Path(__file__).parents[4]
PATIENCE = 60  # seconds in which what must end has ended, on however busy a machine


@contextmanager
def nothing_left() -> Iterator[None]:
    """See to it that no process is left that was not there before, but for multiprocessing's own two."""
    me = psutil.Process()
    before = {child.pid for child in me.children(recursive=True)}
    yield
    names = ("multiprocessing.forkserver", "multiprocessing.resource_tracker")
    left = [child for child in me.children(recursive=True) if child.pid not in before]
    assert [child for child in left if not any(name in " ".join(child.cmdline()) for name in names)] == []


def test_closures_travel_workers_are_forked_with_one_torch_thread_and_a_killed_one_comes_back(tmp_path: Path) -> None:
    """The policy answers 1 where torch has one thread and the fork server is the parent, and 2 once it was killed.

    It is killed over its sixth answer, and the episode ends with the fifth 2: neither depends on how fast it all is.
    """
    died = tmp_path / "died"

    class Local:
        def __init__(self) -> None:
            import torch

            self.torch, self.answers = torch, 0

        def act(self, observation: Any, decision: Decision) -> int:
            self.answers += not decision.eval_mode  # as the warm-up is
            if self.answers == 6 and not died.exists():
                died.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            forked = "forkserver" in Path(f"/proc/{os.getppid()}/cmdline").read_text()
            return (2 if died.exists() else 1) if forked and self.torch.get_num_threads() == 1 else 0

    class Ending(Endless):
        twos = 0

        def step(self, action: Any) -> Any:
            assert "torch" not in sys.modules, "the environment's process has no use for torch"
            self.twos += int(action) == 2
            observation, reward, _, truncated, info = super().step(action)
            return observation, reward, self.twos == 5, truncated, info

    with nothing_left():
        report = make_runner(Ending, lambda: Local(), workers=1).run(episodes=1, max_episode_frames=12_000)
    assert report.episodes[0].frames < 12_000, "the worker did not come back"
    assert report.workers["restarts"] == 1
    assert report.lost == {"lost": 1}
    assert len(report.spans) >= 5 + 5
    assert 5 * 2 <= report.episodes[0].score <= 5 * 1 + 5 * 2
    assert report.frames["fresh"] <= report.episodes[0].score


def test_a_killed_environment_ends_the_run_with_its_signal() -> None:
    def die(frame: int) -> None:
        if frame == 5:
            os.kill(os.getpid(), signal.SIGKILL)

    with nothing_left(), pytest.raises(RunFailed, match=r"^the environment was ended by SIGKILL \(exit code -9\)"):
        make_runner(lambda: Endless(die), lambda: lambda observation: 1).run(frames=1000)


@pytest.mark.parametrize(("where", "error"), [("make_env", EOFError), ("step", LookupError)])
def test_what_the_environment_raises_ends_the_run(where: str, error: type[Exception]) -> None:
    """An emulator's pipe that breaks is no end of ours."""

    def fail(frame: int) -> None:
        raise error("no such level")

    def make_env() -> Any:
        if where == "make_env":
            fail(0)
        return Endless(fail)

    with nothing_left(), pytest.raises(error, match="no such level") as raised:
        make_runner(make_env, lambda: lambda observation: 1, workers=1).run(frames=10)
    assert "raised in the environment; its traceback:\nTraceback" in raised.value.__notes__[0]


def test_an_environment_that_exits_ends_the_run_and_not_the_callers_program() -> None:
    with nothing_left(), pytest.raises(RunFailed) as failed:
        make_runner(lambda: Endless(lambda frame: sys.exit(0)), lambda: lambda observation: 1, workers=1).run(frames=10)
    assert str(failed.value) == "the environment raised SystemExit(0)"
    assert "raised in the environment; its traceback:\nTraceback" in failed.value.__notes__[0]


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A shell's background job ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_a_run_that_was_interrupted_leaves_the_next_one_its_own_record_and_a_dead_environment_is_told() -> None:
    def interrupt(frame: int) -> None:
        if frame == 20:
            os.kill(os.getppid(), signal.SIGINT)

    with nothing_left(), make_runner(lambda: Endless(interrupt), lambda: lambda observation: 1, workers=1) as runner:
        with pytest.raises(KeyboardInterrupt):
            runner.run(seconds=1000)
        assert runner.run(frames=7).frames["total"] == 7
        assert [episode.frames for episode in runner.run(frames=9).episodes] == [9]
        (environment,) = (child for child in psutil.Process().children() if "spawn_main" in " ".join(child.cmdline()))
        environment.kill()
        while environment.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)
        with pytest.raises(RunFailed, match=r"^the environment was ended by SIGKILL \(exit code -9\)"):
            runner.run(frames=7)


def test_a_policy_that_raises_at_every_call_is_shown_once_by_number_and_ends_the_run_after_the_bound() -> None:
    def broken(observation: Any) -> int:
        raise ArithmeticError("not today")

    with (
        nothing_left(),
        pytest.warns(RuntimeWarning, match="^worker 0 raised, and is started again:\nTraceback") as warned,
        pytest.raises(ArithmeticError, match="not today") as error,
    ):
        make_runner(Endless, lambda: broken, workers=1).run(frames=10)
    assert len([warning for warning in warned if "started again" in str(warning.message)]) == 1
    assert "raised in worker 0" in error.value.__notes__[0]


def test_a_policy_that_exits_is_started_again_and_counted(tmp_path: Path) -> None:
    def exits_once(observation: Any) -> int:
        if observation[0] > 3 and not (tmp_path / "left").exists():
            (tmp_path / "left").touch()
            sys.exit(0)
        return 1

    with (
        nothing_left(),
        pytest.warns(RuntimeWarning, match=r"^worker 0 raised, and is started again:(.|\n)*SystemExit"),
    ):
        report = make_runner(Endless, lambda: exits_once, workers=1).run(frames=100)
    assert report.workers["restarts"] == 1


def test_a_policy_that_exits_in_a_thread_ends_the_run_and_not_the_callers_program() -> None:
    with pytest.raises(RunFailed, match=r"^worker 0 raised SystemExit\(3\)\n"):
        make_runner(Endless, lambda: lambda observation: sys.exit(3), workers=1, backend="thread").run(frames=1000)


@pytest.mark.parametrize("name", ["make_env", "make_policy"])
def test_a_factory_that_cannot_be_pickled_is_named_and_what_in_it_cannot(name: str) -> None:
    lock = threading.Lock()
    factories: dict[str, Any] = {"make_env": Endless, "make_policy": lambda: lambda observation: 1}
    factories[name] = lambda: lock
    with (
        nothing_left(),
        pytest.raises(ValueError, match=rf"^{name} cannot be sent to another process: .*lock") as error,
    ):
        make_runner(**factories).run(frames=10)
    assert "\n" not in str(error.value)


def test_a_default_action_that_cannot_be_pickled_is_not_blamed_on_the_environment() -> None:
    lock = threading.Lock()
    with pytest.raises(ValueError, match=r"^a default action, strategy or latency cannot be sent .*lock"):
        make_runner(Endless, lambda: lambda observation: 1, default_action=lambda o, a: lock).run(frames=10)


class Suspicious(Endless):
    """Takes as actions the observations that they were computed from, and accepts none but of an earlier frame."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = self.action_space = gym.spaces.Box(-1, 10**9, (2,), np.int64)
        self.episode = -1

    def get_action_meanings(self) -> list[str]:
        return []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.episode, self.newest = self.episode + 1, -1
        return np.array([self.episode, 0]), {}

    def step(self, action: Any) -> Any:
        if action[0] >= 0:
            assert action[0] == self.episode and self.newest < action[1] < self.frame, (action, self.frame)
            self.newest = action[1]
        self.frame += 1
        return np.array([self.episode, self.frame]), 1.0, self.frame == 90, False, {}


@pytest.mark.slow
@pytest.mark.parametrize("between_episodes", ["drain", "continue"])
def test_no_action_is_taken_for_another_while_workers_are_killed_at_random(between_episodes: str) -> None:
    def make_policy() -> Any:
        def act(observation: Any) -> Any:
            time.sleep(0.03)
            return observation

        return act

    over, random = threading.Event(), np.random.default_rng(0)
    make = {"workers": 4, "fps": 60, "default_action": [-1, -1], "between_episodes": between_episodes}
    with nothing_left(), make_runner(Suspicious, make_policy, **make) as runner:
        runner.run(frames=10)

        def kill_one_after_the_other() -> None:
            while not over.wait(random.uniform(0.02, 0.3)):
                parents = [each for each in psutil.Process().children() if "forkserver" in " ".join(each.cmdline())]
                workers = [worker for parent in parents for worker in parent.children()]
                with suppress(psutil.NoSuchProcess):
                    workers[random.integers(len(workers))].kill()

        killer = threading.Thread(target=kill_one_after_the_other)
        killer.start()
        try:
            report = runner.run(seconds=10)
        finally:
            over.set()
            killer.join()
        assert report.workers["restarts"] >= 10
        after = runner.run(seconds=3)
    assert {span.worker for span in after.spans} == {0, 1, 2, 3}  # every worker is back


@pytest.mark.usefixtures("interruptible")
def test_the_record_of_a_phase_that_was_slow_to_end_is_not_taken_for_the_next_ones() -> None:
    def interrupt(frame: int) -> None:
        if frame == 20:
            os.kill(os.getppid(), signal.SIGINT)
            time.sleep(2.5)  # an environment's long step: longer than the supervisor waits

    with nothing_left(), make_runner(lambda: Endless(interrupt), lambda: lambda observation: 1, workers=1) as runner:
        with pytest.raises(KeyboardInterrupt):
            runner.run(seconds=1000)
        assert runner.run(frames=7).frames["total"] == 7


# Learners: killed, stopped, slow.


def sleeper(marker: Path, start: int) -> Any:
    """Return a policy's class that hangs once, in its first decision of frame `start` or a later one."""

    class Sleeps:
        def act(self, observation: Any, decision: Decision) -> int:
            if decision.start >= start and not decision.eval_mode and not marker.exists():
                marker.touch()
                time.sleep(1000)
            return 1

    return Sleeps


def test_a_worker_that_sleeps_for_ever_is_replaced_when_it_is_overdue(tmp_path: Path) -> None:
    restarts: list[int] = []

    def answers_again() -> bool:
        report = runner.run(frames=50)
        restarts.append(report.workers["restarts"])
        return bool(sum(restarts) and report.frames["fresh"])

    slow = {"workers": 1, "fps": 50, "overdue_seconds": 2.0}
    sentence = "^worker 0 has inferred for more than 10 times the long"
    with (
        nothing_left(),
        pytest.warns(RuntimeWarning, match=sentence),
        make_runner(Endless, sleeper(tmp_path / "slept", 20), **slow) as runner,
    ):
        wait_until(answers_again)
    assert sum(restarts) == 1


def test_a_worker_that_hangs_as_an_episode_ends_is_replaced_before_the_next_one(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its inference is waited for between two episodes, and overdue there as it is in play."""
    marker = tmp_path / "slept"

    terms: dict[str, Any] = {"workers": 1, "fps": 50, "between_episodes": "drain", "overdue_seconds": 1.0}
    policy = sleeper(marker, 9)
    with nothing_left(), make_runner(Endless, policy, **terms) as runner, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        restarts = [runner.run(frames=60, max_episode_frames=10).workers["restarts"] for _ in range(2)]
    sentence = "worker 0 has inferred for more than 10 times the longest inference and 1 s: it is started again"
    assert marker.exists()
    assert [str(each.message) for each in told if each.category is not ResourceWarning] == [sentence]
    assert "not waited for" not in capfd.readouterr().err  # which the loop's process says after start_timeout
    assert sum(restarts) == 1


class Diverged(RuntimeError):
    ends_run = True


def test_a_learner_whose_exception_says_so_ends_the_run_and_is_not_started_again(tmp_path: Path) -> None:
    def starts() -> None:
        with (tmp_path / "starts").open("a") as file:
            file.write("x")

    def diverges(updates: int) -> None:
        if updates == 3:
            raise Diverged("the loss of update 3 is nan")

    with nothing_left(), warnings.catch_warnings(), pytest.raises(Diverged, match=r"^the loss of update 3 is nan"):
        warnings.simplefilter("error")
        make_learning(on_start=starts, on_update=diverges).run(frames=10**6)
    assert (tmp_path / "starts").read_text() == "x"


def child_of(runner: AsyncRunner, name: str) -> psutil.Process:
    if not runner.is_open:
        runner.start()
    return psutil.Process(runner.pids[name])


def wait_until(holds: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def stop(process: psutil.Process) -> None:
    process.suspend()
    wait_until(lambda: process.status() == psutil.STATUS_STOPPED)


def fork_server() -> psutil.Process:
    (server,) = (
        child
        for child in psutil.Process().children()
        if "forkserver" in " ".join(child.cmdline()) and child.status() != psutil.STATUS_ZOMBIE
    )
    return server


def test_a_learner_that_is_being_started_again_is_asked_when_it_is_there(tmp_path: Path) -> None:
    """A phase of three frames ends long before a learner that was killed is back."""
    with nothing_left(), make_learning(lambda: time.sleep(0.5)) as runner:
        runner.run(frames=20)
        for _ in range(3):
            learner = child_of(runner, "learner 0")
            learner.kill()
            report = runner.run(frames=3)
            assert report.frames["total"] == 3
            runner.save(tmp_path, 4)
            state = read_state(state_file(tmp_path, 4, 0))
            assert state["pid"] != learner.pid
            assert state["count"] >= 1, "it goes on from the weights that were published"


def test_learners_take_in_what_they_are_told_and_one_that_is_started_again_the_newest(tmp_path: Path) -> None:
    with nothing_left(), make_learning(learners=2) as runner:
        runner.tell({"weight": 1.0})
        runner.run(frames=20)
        runner.tell({"weight": 0.5})
        killed = child_of(runner, "learner 1")
        killed.kill()
        killed.wait(PATIENCE)
        runner.save(tmp_path)
        told = [state["told"] for state in runner.take_states(tmp_path)]
    assert told == [[{"weight": 1.0}, {"weight": 0.5}], [{"weight": 0.5}]]
    with pytest.raises(ValueError, match="without a learner: give make_learner"):
        make_runner(Endless, lambda: lambda observation: 1).tell({})


@pytest.mark.parametrize("learners", [1, 3])
def test_a_full_disk_is_raised_where_save_was_called_and_costs_no_learner(tmp_path: Path, learners: int) -> None:
    """One that is started again would meet the same disk, without its replay."""
    full = tmp_path / "full"

    def write() -> None:
        if full.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "replay")

    with nothing_left(), warnings.catch_warnings(), make_learning(on_save=write, learners=learners) as runner:
        warnings.simplefilter("error", RuntimeWarning)
        runner.run(frames=20)
        pids = [child_of(runner, f"learner {number}").pid for number in range(learners)]
        full.touch()
        with pytest.raises(OSError, match="No space left on device") as caught:
            runner.save(tmp_path)
        assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, "replay")
        full.unlink()
        runner.save(tmp_path)
        states = runner.take_states(tmp_path)
        assert [(state["pid"], state["saves"]) for state in states] == [(pid, 2) for pid in pids]
        assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_learners_killed_at_every_stage_of_the_start_are_started_again(tmp_path: Path) -> None:
    def die_once() -> None:
        with suppress(FileExistsError):
            (tmp_path / "died").touch(exist_ok=False)
            os.kill(os.getpid(), signal.SIGKILL)

    with nothing_left(), make_learning(die_once, learners=2) as runner:
        assert runner.run(frames=50).updates > 0
    assert (tmp_path / "died").exists()


def test_a_learner_that_cannot_be_made_ends_the_run_at_once(tmp_path: Path) -> None:
    def fail() -> None:
        with (tmp_path / "made").open("a") as file:
            file.write("x")
        raise ArithmeticError("no such network")

    with nothing_left(), pytest.raises(ArithmeticError, match="no such network"):
        make_learning(fail).run(frames=10)
    assert (tmp_path / "made").read_text() == "x"


def test_the_fork_server_may_end_and_nobody_notices(tmp_path: Path) -> None:
    with make_learning() as runner:
        runner.run(frames=20)
        names = ("the environment", "worker 0", "learner 0")
        processes_ = [child_of(runner, name) for name in names]
        server = fork_server()
        server.kill()
        wait_until(lambda: not server.is_running() or server.status() == psutil.STATUS_ZOMBIE)
        reports: list[Any] = []

        def plays_and_learns() -> bool:
            reports.append(runner.run(frames=60))
            return bool(reports[-1].frames["fresh"] and reports[-1].updates)

        wait_until(plays_and_learns)
        assert not any(report.workers["restarts"] for report in reports)
        assert [child_of(runner, name) for name in names] == processes_
        for process in processes_[1:]:  # a new server starts the next ones
            process.kill()
        restarts = 0
        while restarts < 2:
            restarts += runner.run(frames=60).workers["restarts"]
        assert restarts == 2
        wait_until(lambda: runner.run(frames=20).frames["fresh"])
        last = [child_of(runner, name) for name in names]
        assert fork_server().pid != server.pid
    _, alive = psutil.wait_procs([*processes_, *last], PATIENCE)
    assert alive == []


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor looks often, and waits shortly."""
    monkeypatch.setattr(pulse, "STOPPED_FOR", 1.0)
    monkeypatch.setattr(pulse, "IDLE_FOR", 2.0)
    monkeypatch.setattr(waits, "LOOK", 0.1)


@pytest.mark.usefixtures("impatient")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("what", ["training", "evaluation", "save"])
def test_a_stopped_learner_is_replaced_and_the_run_goes_on(tmp_path: Path, what: str) -> None:
    with nothing_left(), make_learning() as runner:
        runner.run(frames=20)
        learner = child_of(runner, "learner 0")
        stop(learner)
        with pytest.warns(
            RuntimeWarning, match=r"^learner 0 has been stopped \(SIGSTOP\) for 1 s: it is started again$"
        ):
            if what == "save":
                runner.save(tmp_path)
            else:
                runner.run(frames=5, eval_mode=what == "evaluation")
        runner.save(tmp_path)
        assert read_state(state_file(tmp_path, 0, 0))["pid"] == child_of(runner, "learner 0").pid != learner.pid
        psutil.wait_procs([learner], PATIENCE)
        assert not learner.is_running()


@pytest.mark.usefixtures("impatient")
@pytest.mark.timeout(120)
def test_a_stopped_learner_that_holds_the_lock_costs_itself_alone(tmp_path: Path) -> None:
    """The other one waits for the lock; it is innocent, and is the first that is asked."""

    def hold(updates: int) -> None:
        if updates == 3 and "first" not in os.listdir(tmp_path):
            (tmp_path / "first").write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGSTOP)

    with nothing_left(), make_learning(on_update=hold, learners=2) as runner:
        learners = [child_of(runner, f"learner {number}").pid for number in range(2)]
        with pytest.warns(RuntimeWarning, match="has been stopped") as warned:
            while not (tmp_path / "first").exists():
                runner.run(frames=20)
            runner.save(tmp_path)
        assert len([each for each in warned if "started again" in str(each.message)]) == 1
        holder = learners.index(int((tmp_path / "first").read_text()))
        other = 1 - holder
        assert child_of(runner, f"learner {other}").pid == learners[other]
        assert child_of(runner, f"learner {holder}").pid != learners[holder]


@pytest.mark.usefixtures("impatient")
@pytest.mark.timeout(120)
def test_a_long_update_is_waited_for(tmp_path: Path) -> None:
    def compute(updates: int) -> None:
        if updates == 3:
            (tmp_path / "began").touch()
            end = time.process_time() + 4  # twice what it may take without computing
            while time.process_time() < end:
                pass

    with nothing_left(), warnings.catch_warnings(), make_learning(on_update=compute) as runner:
        warnings.simplefilter("error", RuntimeWarning)
        learner = child_of(runner, "learner 0").pid
        while not (tmp_path / "began").exists():
            runner.run(frames=20)
        runner.run(frames=5, eval_mode=True)
        runner.save(tmp_path)
        assert read_state(state_file(tmp_path, 0, 0))["pid"] == learner


@pytest.mark.usefixtures("impatient")
@pytest.mark.timeout(120)
def test_a_learner_in_a_deadlock_is_replaced(tmp_path: Path) -> None:
    def hang(updates: int) -> None:
        if updates == 3 and not (tmp_path / "hangs").exists():
            (tmp_path / "hangs").touch()
            threading.Event().wait()

    with nothing_left(), make_learning(on_update=hang) as runner:
        learner = child_of(runner, "learner 0").pid
        message = "^learner 0 has neither answered nor used any processor time for 2 s: it is started again$"
        with pytest.warns(RuntimeWarning, match=message):
            while not (tmp_path / "hangs").exists():
                runner.run(frames=20)
            runner.save(tmp_path)
        assert read_state(state_file(tmp_path, 0, 0))["pid"] != learner


@pytest.mark.usefixtures("impatient")
@pytest.mark.timeout(120)
def test_a_stopped_environment_is_told_once_with_the_remedy() -> None:
    with nothing_left(), make_learning() as runner:
        runner.run(frames=20)
        environment = child_of(runner, "the environment")
        stop(environment)
        message = (
            rf"^the environment has been stopped \(SIGSTOP\) for 1 s: `kill -CONT {environment.pid}` lets it go on$"
        )

        with pytest.warns(RuntimeWarning, match=message) as warned:

            def resume() -> None:
                wait_until(lambda: any("stopped" in str(each.message) for each in warned))
                environment.resume()

            friend = threading.Thread(target=resume)
            friend.start()
            assert runner.run(frames=10).frames["total"] == 10
            friend.join()
        assert len([each for each in warned if "stopped" in str(each.message)]) == 1


@pytest.mark.usefixtures("interruptible")
def test_the_answer_to_a_command_that_was_interrupted_is_not_taken_for_the_next_ones(tmp_path: Path) -> None:
    supervisor = os.getpid()

    def interrupt() -> None:
        if not (tmp_path / "interrupted").exists():
            (tmp_path / "interrupted").touch()
            os.kill(supervisor, signal.SIGINT)
        time.sleep(0.5)

    with nothing_left(), make_learning(on_save=interrupt) as runner:
        runner.run(frames=20)
        with pytest.raises(KeyboardInterrupt):
            runner.save(tmp_path)
        runner.save(tmp_path)
        assert read_state(state_file(tmp_path, 0, 0))["saves"] == 2


# Scripts, notebooks, signals.

SCRIPT = """
import sys
import gymnasium as gym
import numpy as np
from async_wrappers import AsyncRunner
from async_wrappers.schedule.stagger import Stagger

class Env(gym.Env):
    observation_space = gym.spaces.Box(0, 10**9, (1,), np.int64)
    action_space = gym.spaces.Discrete(4)
    def reset(self, *, seed=None, options=None):
        self.frame = 0
        return np.array([0]), {}
    def step(self, action):
        self.frame += 1
        if self.frame == 20:
            print("playing", flush=True)
        return np.array([self.frame]), float(action), False, False, {}

class Policy:
    def __init__(self, action):
        self.action = action
    def act(self, observation, decision):
        return self.action

class EveryFourth(Stagger):
    playout = 3
    def offers(self, frame):
        return int(frame % 4 == 0)

def run(frames, action=2):
    runner = AsyncRunner(lambda: Env(), lambda: Policy(action), 1, 200, stagger=EveryFourth, latency=0.002,
                         default_action=0)
    report = runner.run(frames=frames)
    print("return", report.episodes[0].score, "of", 2 * report.frames["fresh"], "fresh", report.frames["fresh"])

"""
GUARDED = SCRIPT + "if __name__ == '__main__':\n    run(int(sys.argv[1]))\n"
UNGUARDED = SCRIPT + "run(40)\n"


# For a script: as where PyTorch is not installed. Its fork server takes two seconds to import it.
WITHOUT_TORCH = "import sys; sys.modules['torch'] = None\n"


def start(arguments: list[str], text: str | None = None, **kwargs: Any) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background job ignores it
        **kwargs,
    )
    if text is not None:
        assert process.stdin is not None
        process.stdin.write(text)
        process.stdin.close()
        process.stdin = None
    return process


def script(folder: Path, text: str) -> str:
    path = folder / "script.py"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("how", ["-", *(pytest.param(how, marks=pytest.mark.slow) for how in ("-c", "a script"))])
def test_it_works_from_standard_input_as_a_notebooks_cell_does_and_from_elsewhere(tmp_path: Path, how: str) -> None:
    words = {"-": ["-"], "-c": ["-c", UNGUARDED], "a script": [script(tmp_path, GUARDED), "40"]}[how]
    process = start(words, UNGUARDED if how == "-" else None)
    out, err = process.communicate(timeout=2 * PATIENCE)
    assert process.returncode == 0, err
    said = next(line for line in out.splitlines() if line.startswith("return")).split()
    assert said[1] == f"{float(said[3])}"
    assert int(said[5]) > 0


def test_a_script_without_a_main_guard_is_told_in_one_sentence(tmp_path: Path) -> None:
    process = start([script(tmp_path, UNGUARDED)])
    _, err = process.communicate(timeout=2 * PATIENCE)
    assert process.returncode == 1
    assert err.splitlines()[-1].startswith("RuntimeError: AsyncRunner starts processes, which import the main script")
    assert err.count("Traceback") == 1


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("whole_group", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_after_a_signal_to_the_main_process_nothing_is_left(
    tmp_path: Path, sent: signal.Signals, whole_group: bool
) -> None:
    """A terminal sends SIGINT to all processes of a run."""
    shared = set(os.listdir("/dev/shm"))
    process = start([script(tmp_path, WITHOUT_TORCH + GUARDED), "1000000"], start_new_session=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "playing\n"
        children = psutil.Process(process.pid).children(recursive=True)
        assert len(children) >= 4  # the environment, the fork server, its worker, the resource tracker
        if whole_group:
            os.killpg(process.pid, sent)
        else:
            process.send_signal(sent)
        _, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == -sent
        if sent == signal.SIGINT:
            assert err.rstrip().endswith("KeyboardInterrupt")
            assert err.count("Traceback") == 1
        _, alive = psutil.wait_procs(children, PATIENCE)
        assert alive == []
        deadline = time.monotonic() + PATIENCE
        while (left := set(os.listdir("/dev/shm")) - shared) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert left == set()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(PATIENCE)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system cannot pin a process to a core")
def test_pinned_workers_stay_on_one_core_each() -> None:
    """The policy answers how many cores it may use."""
    with nothing_left():
        report = make_runner(Endless, lambda: lambda observation: len(os.sched_getaffinity(0)), pin=True).run(
            frames=200
        )
    assert report.frames["fresh"] > 0
    assert sum(episode.score for episode in report.episodes) == report.frames["fresh"]


LEARNING = """
import os, signal, sys, time
from pathlib import Path
from threading import Timer
from tests.worlds.endless import make_learning

def main(folder, what):
    runner = make_learning()
    with runner:
        runner.run(frames=50)
        learner = runner.pids["learner 0"]
        if what == "stopped":
            os.kill(learner, signal.SIGSTOP)
        try:
            Timer(0.5, print, [learner], {"flush": True}).start()  # the signal comes while frames are played
            runner.run(frames=1_000_000)
        except KeyboardInterrupt:
            runner.save(folder)
            raise

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        main(Path(sys.argv[1]), sys.argv[2])
    except KeyboardInterrupt:
        sys.exit(130)
"""


@contextmanager
def ended_after(process: subprocess.Popen[str]) -> Iterator[list[psutil.Process]]:
    """Collect the children that are there before the block is left; see to it that they end, and that nothing stays."""
    children: list[psutil.Process] = []
    try:
        yield children
        _, alive = psutil.wait_procs(children, PATIENCE)
        assert alive == []
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=PATIENCE)  # which closes its pipes, or a later test is told that they are open


@pytest.mark.parametrize(
    ("what", "whole_group"),
    [("plays", True), ("stopped", False), pytest.param("stopped", True, marks=pytest.mark.slow)],
)
def test_sigterm_ends_a_run_with_what_its_learner_has_learnt(tmp_path: Path, what: str, whole_group: bool) -> None:
    """To the process group, as a batch system sends it; with a learner that is stopped, which goes on to save."""
    process = start([script(tmp_path, WITHOUT_TORCH + LEARNING), str(tmp_path), what], start_new_session=True)
    with ended_after(process) as children:
        assert process.stdout is not None
        learner = int(process.stdout.readline())
        children += psutil.Process(process.pid).children(recursive=True)
        os.killpg(process.pid, signal.SIGTERM) if whole_group else process.terminate()
        _, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, err) == (130, "")
        state = read_state(state_file(tmp_path, 0, 0))
        assert state["pid"] == learner
        assert state["updates"] > 0


@pytest.mark.parametrize(
    ("stage", "sent"),
    [
        ("spawn_main", signal.SIGINT),
        pytest.param("spawn_main", signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param("forkserver", signal.SIGINT, marks=pytest.mark.slow),
        ("forkserver", signal.SIGTERM),
    ],
)
def test_a_signal_to_the_group_while_it_starts_ends_it_without_a_word_of_its_children(
    tmp_path: Path, stage: str, sent: signal.Signals
) -> None:
    """At once when the environment's process, or the fork server, is there: both are still importing."""
    process = start([script(tmp_path, LEARNING), str(tmp_path), "plays"], start_new_session=True)
    with ended_after(process) as children:
        main = psutil.Process(process.pid)

        def there() -> bool:
            with suppress(psutil.NoSuchProcess):
                return any(stage in " ".join(child.cmdline()) for child in main.children())
            return False

        wait_until(there)
        children += main.children(recursive=True)
        os.killpg(process.pid, sent)
        _, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, err) == (130, "")


def test_a_learners_close_may_take_longer_than_a_process_has_to_end(tmp_path: Path) -> None:
    with nothing_left(), make_lingering(tmp_path / "closed", waits.PATIENCE + 2) as runner:
        runner.run(frames=10)
    assert (tmp_path / "closed").exists()


def test_a_learners_close_that_takes_too_long_is_ended_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "CLOSING", 1.0)
    sentence = r"^learner 0's close has taken 1 s, and is ended: what it writes may not be whole$"
    with (
        nothing_left(),
        pytest.warns(RuntimeWarning, match=sentence),
        make_lingering(tmp_path / "closed", 600) as runner,
    ):
        runner.run(frames=10)
    assert not (tmp_path / "closed").exists()


ORPHANED = """
import sys
from pathlib import Path
from tests.worlds.endless import make_lingering

if __name__ == "__main__":
    with make_lingering(Path(sys.argv[1]), 5) as runner:
        runner.run(frames=10)
        print("plays", flush=True)
        runner.run(seconds=600)
"""


def test_a_learner_closes_in_its_time_where_its_parent_is_killed(tmp_path: Path) -> None:
    process = start([script(tmp_path, WITHOUT_TORCH + ORPHANED), str(tmp_path / "closed")], start_new_session=True)
    with ended_after(process) as children:
        assert process.stdout is not None
        assert process.stdout.readline() == "plays\n"
        children += psutil.Process(process.pid).children(recursive=True)
        process.kill()
        wait_until((tmp_path / "closed").exists)


NOT_CLOSED = """
import sys
from tests.worlds.endless import make_learning

if __name__ == "__main__":
    runner = make_learning()
    runner.__enter__()
    runner.run(frames=10)
    if sys.argv[1] == "forgotten":
        del runner
    print("end", flush=True)
"""


@pytest.mark.parametrize("how", ["kept", "forgotten"])
def test_a_script_that_does_not_close_its_runner_ends_all_the_same(tmp_path: Path, how: str) -> None:
    process = start([script(tmp_path, WITHOUT_TORCH + NOT_CLOSED), how], start_new_session=True)
    with ended_after(process) as children:
        assert process.stdout is not None
        assert process.stdout.readline() == "end\n"
        with suppress(psutil.NoSuchProcess):
            children += psutil.Process(process.pid).children(recursive=True)
        _, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, err) == (0, "")


FEW = """
import os, resource, sys, warnings
from multiprocessing import active_children
from async_wrappers import AsyncRunner, RunFailed
from tests.worlds.endless import Endless

def run(workers):
    warnings.simplefilter("ignore")
    policy = lambda observation: 1
    return AsyncRunner(Endless, lambda: policy, workers, 100, latency=0.005, backend=sys.argv[1]).run(frames=100)

def opened():
    return len(os.listdir("/proc/self/fd"))

if __name__ == "__main__":
    run(2)  # multiprocessing's own two processes are there
    before, (_, hard) = opened(), resource.getrlimit(resource.RLIMIT_NOFILE)
    for room in (0, 1, 4, 9, 30, 75, 80, 90, 110, 125):
        resource.setrlimit(resource.RLIMIT_NOFILE, (before + room, hard))
        try:
            run(64)
        except RunFailed as error:
            print(str(error).replace(f"than the {before + room} ", "than the LIMIT "))
        else:
            print("played with room for", room)
        print(opened() - before, len(active_children()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (before + 400, hard))
    print("fresh", run(2).frames["fresh"] > 0)
"""


@pytest.mark.parametrize("backend", ["process", "thread"])
def test_where_descriptors_run_out_the_limit_is_named_and_all_are_given_back(tmp_path: Path, backend: str) -> None:
    process = start([script(tmp_path, WITHOUT_TORCH + FEW), backend], start_new_session=True)
    with ended_after(process):
        out, err = process.communicate(timeout=4 * PATIENCE)
        assert process.returncode == 0, err
        told = (
            "workers=64 need more open files than the LIMIT that a process may have here: raise the limit "
            "(`ulimit -n 768`), or take fewer workers"
        )
        assert out.splitlines() == [told, "0 0"] * 10 + ["fresh True"]
        assert err == ""


MANY = """
import os, resource, sys, warnings
from async_wrappers import AsyncRunner
from tests.worlds.endless import Endless

if __name__ == "__main__":
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (2048, hard))
    warnings.simplefilter("ignore")
    runner = AsyncRunner(Endless, lambda: lambda observation: 1, 2, 100, latency=0.005, backend=sys.argv[1])
    taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    print("fresh", runner.run(frames=200).frames["fresh"] > 0)
"""


@pytest.mark.parametrize("backend", ["process", "thread"])
def test_descriptors_may_lie_above_those_that_select_takes(tmp_path: Path, backend: str) -> None:
    """As those of a run with more than 500 workers do."""
    process = start([script(tmp_path, WITHOUT_TORCH + MANY), backend], start_new_session=True)
    with ended_after(process):
        out, err = process.communicate(timeout=2 * PATIENCE)
        assert (process.returncode, out) == (0, "fresh True\n"), err


@pytest.mark.parametrize("backend", ["process", "thread", "virtual"])
@pytest.mark.parametrize("wrong", ["raises", "gives no policy"])
def test_a_policy_factory_that_always_raises_ends_the_run_at_once(backend: str, wrong: str, tmp_path: Path) -> None:
    """It was called once in each worker and never again; nobody says that anything is started again."""

    def make_policy() -> Any:
        with (tmp_path / "calls").open("a") as file:
            file.write("x")
        if wrong == "raises":
            raise RuntimeError("no weights here")
        return 5

    match = "^no weights here" if wrong == "raises" else "^make_policy must return a policy .* or a function, got 5"
    with nothing_left(), warnings.catch_warnings(), pytest.raises((RuntimeError, ValueError), match=match) as error:
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="workers=")
        AsyncRunner(Endless, make_policy, 2, 100, latency=0.005, backend=backend).run(frames=10**9)
    assert len((tmp_path / "calls").read_text()) <= 2
    if backend == "process":
        assert "in make_policy" in error.value.__notes__[0] or wrong != "raises"
    if backend != "virtual":
        assert any(f"worker {worker}" in note for note in error.value.__notes__ for worker in (0, 1))


def test_a_policy_factory_that_exits_ends_the_run_at_once_and_not_the_callers_program() -> None:
    with nothing_left(), warnings.catch_warnings(), pytest.raises(RunFailed) as failed:
        warnings.simplefilter("error")
        make_runner(Endless, lambda: sys.exit("no weights here"), workers=1).run(frames=10**9)
    assert str(failed.value) == "worker 0 raised SystemExit('no weights here')"


def test_a_policy_factory_that_raises_later_is_tried_again(tmp_path: Path) -> None:
    """The worker that was killed cannot be made the first time, and then it can."""
    killed, raised = tmp_path / "killed", tmp_path / "raised"

    def make_policy() -> Any:
        if killed.exists() and not raised.exists():
            raised.touch()
            raise RuntimeError("not yet")

        def act(observation: Any) -> int:
            if observation[0] == 20 and not killed.exists():
                killed.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return 1

        return act

    restarts: list[int] = []

    def are_two() -> bool:
        restarts.append(runner.run(frames=100).workers["restarts"])
        return sum(restarts) == 2

    sentence = r"raised, and is started again:\n(.|\n)*not yet"
    with (
        nothing_left(),
        pytest.warns(RuntimeWarning, match=sentence),
        make_runner(Endless, make_policy, workers=1) as runner,
    ):
        wait_until(are_two)


def test_a_run_in_a_daemonic_process_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)  # type: ignore[attr-defined]
    with pytest.raises(
        RuntimeError,
        match=r"^no process can be started from MainProcess, .* with daemon=False \(a multiprocessing.Pool cannot\)",
    ):
        make_runner(Endless, lambda: lambda observation: 1).run(frames=3)

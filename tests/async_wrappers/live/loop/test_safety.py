"""Limits live, a deadman, a dry run and stop: what stands between the loop's choice and a machine."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from async_wrappers import AsyncRunner, LimitAction, Limits, RampDown, RealtimeDelay
from async_wrappers.live.loop.safety import Deadman
from async_wrappers.policy import NoAction
from async_wrappers.testing.staggers import MS
from tests.worlds.learners import Writing
from tests.worlds.machines import Halved, Turning
from tests.worlds.recording_env import RecordingEnv

SPEED = Box(-1.0, 1.0, (1,), np.float32)
FULL, SAFE = np.ones(1, np.float32), np.full(1, -0.5, np.float32)


def world(length: Any = None) -> RecordingEnv:
    return RecordingEnv(length, action_space=SPEED)


def numbers(actions: Any) -> list[float]:
    return [round(float(action[0]), 5) for action in actions]


class Wavering:
    """A policy of a constant latency that asks for anything."""

    def load_weights(self, weights: Any, version: int) -> None:
        """There are none."""

    def act(self, observation: Any, decision: Any = None) -> Any:
        number = int(observation.sum()) * 7919 % 201
        return np.array([number / 100 - 1], np.float32)


def run(made: Any, policy: Any = None, frames: int = 20, on_frame: Any = None, **terms: Any) -> Any:
    """Play on the virtual clock at 50 frames a second, where an inference takes a frame."""
    arguments = {"latency": 0.02, "default_action": np.zeros(1, np.float32), "backend": "virtual", **terms}
    runner = AsyncRunner(lambda: made, policy or (lambda: lambda observation: FULL), 2, 50, **arguments)
    return runner.run(frames=frames, on_frame=on_frame)


# Limits.


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    delay=st.integers(1, 4),
    slot=st.integers(1, 3),
    default_action=st.sampled_from(["noop", "repeat", RampDown(3, hold=1)]),
    limits=st.builds(
        Limits, low=st.just(-0.75), rate=st.sampled_from([None, 2.5, 20]), jerk=st.sampled_from([30.0, 900.0])
    ),
)
def test_the_loop_and_the_wrapper_limit_bit_for_bit_alike(
    delay: int, slot: int, default_action: Any, limits: Limits
) -> None:
    live, wrapped = world([30]), world([30])
    policy = Wavering()
    report = AsyncRunner(
        lambda: live,
        Wavering,
        2,
        50,
        playout=delay,
        slot=slot,
        latency=0.02 * min(delay, 2),
        backend="virtual",
        default_action=default_action,
        limits=limits,
    ).run(episodes=1)
    terms: dict[str, Any] = {"latency": 0.02 * min(delay, 2), "workers": 2, "fps": 50, "playout": delay, "slot": slot}
    terms |= {"default_action": default_action}
    env = RealtimeDelay(LimitAction(wrapped, limits, 50), **terms)
    observation, _ = env.reset(seed=0)
    over = False
    while not over:
        observation, _, over, _, _ = env.step(policy.act(observation))
    assert np.array_equal(live.episodes, wrapped.episodes)
    assert report.frames["total"] == 30


def test_default_actions_and_those_of_a_pause_are_limited_and_counted() -> None:
    env = world()

    def pauses(status: Any) -> None:
        if status.frame == 8:
            status.pause()

    report = run(env, frames=12, on_frame=pauses, limits=Limits(rate=15.0), pause_action=SAFE, default_action=SAFE)
    assert numbers(env.actions) == [-0.3, *(0.0, 0.3, 0.6, 0.9, 1, 1, 1), *(0.7, 0.4, 0.1, -0.2)]
    assert report.frames["limited"] == 1 + 4 + 4
    assert "9 limited" in str(report)


def learnt(**terms: Any) -> list[float]:
    seen: list[Any] = []

    class Always(Wavering):
        def act(self, observation: Any, decision: Any = None) -> Any:
            return FULL

    run(world(), Always, 8, make_learner=lambda: Writing(seen), learner_latency=0.01, limits=Limits(rate=15.0), **terms)
    return numbers(each["action"] for each in seen)


def test_a_transition_holds_what_was_sent_or_what_was_drawn() -> None:
    assert learnt() == [0.3, 0.6, 0.9, 1, 1]
    assert learnt(learns_from="drawn") == [1, 1, 1, 1, 1]


def test_a_limited_action_is_the_one_that_is_repeated() -> None:
    env = world()
    run(env, frames=9, limits=Limits(rate=15.0), default_action="repeat", slot=3)
    assert numbers(env.actions) == [0, *[0.3] * 3, *[0.6] * 3, *[0.9] * 2]


def test_limits_of_other_actions_are_refused_and_so_is_anything_else() -> None:
    with pytest.raises(ValueError, match=r"^limits need actions of a Box of floats, got Discrete\(5\)$"):
        run(RecordingEnv(), default_action=0, limits=Limits(rate=1))
    with pytest.raises(ValueError, match=r"^limits must be Limits\(...\), or None, got 0.5$"):
        run(world(), limits=0.5)


def test_an_error_of_a_default_action_that_is_nan_does_not_reach_a_machine_with_limits() -> None:
    machine = Halved(world())
    with pytest.warns(RuntimeWarning, match=r"^limits go to the no-op where an action is NaN"):
        run(machine, frames=3, limits=Limits(rate=15.0), default_action=lambda *_: np.full(1, np.nan), latency=1.0)
    assert numbers(machine.received[0]) == [0, 0, 0, 0]


# A deadman.


def test_the_safe_action_is_sent_on_the_frame_after_a_deadman_is_let_go_and_only_resume_goes_on() -> None:
    env, frame = world(), [0]
    let_go, resumed = range(6, 11), 14

    def on_frame(status: Any) -> None:
        frame[0] = status.frame
        if status.frame in (8, resumed):  # the first one is too early
            status.resume()

    report = run(env, on_frame=on_frame, deadman=lambda: frame[0] not in let_go, pause_action=SAFE)
    expected = [0.0, *[1.0] * 5, *[-0.5] * 8, 0.0, *[1.0] * 5]
    assert numbers(env.actions) == expected
    assert report.released == 2
    assert report.frames["paused"] == 8


class Silent(Wavering):
    """It asks for full speed on three frames, and for nothing after them."""

    def act(self, observation: Any, decision: Any = None) -> Any:
        if decision.start >= 3:
            raise NoAction("the server is gone")
        return FULL


@pytest.mark.filterwarnings("ignore:worker 1 has no action")
@pytest.mark.parametrize("pause_action", [None, RampDown(4, hold=1), "repeat"])
@pytest.mark.parametrize("default_action", ["noop", RampDown(4, hold=1)])
def test_a_pause_does_not_move_what_the_default_action_has_brought_to_rest(
    default_action: Any, pause_action: Any
) -> None:
    def on_frame(status: Any) -> None:
        if status.frame == 12:
            status.pause()

    env = world()
    run(env, Silent, on_frame=on_frame, default_action=default_action, pause_action=pause_action)
    down = [1, 0.75, 0.5, 0.25] if isinstance(default_action, RampDown) else []
    assert numbers(env.actions) == [0, 1, 1, 1, *down, *[0] * (16 - len(down))]


@pytest.mark.filterwarnings("ignore:worker 1 has no action")
def test_a_pause_amid_a_ramp_goes_on_with_it() -> None:
    def on_frame(status: Any) -> None:
        if status.frame == 6:
            status.pause()

    for pause_action, way in ((None, [0.25, 0, 0, 0, 0]), (RampDown(5), [0.4, 0.3, 0.2, 0.1, 0])):
        env = world()
        run(env, Silent, 11, on_frame=on_frame, default_action=RampDown(4), pause_action=pause_action)
        assert numbers(env.actions) == [0, 1, 1, 1, 0.75, 0.5, *way]


def test_a_deadman_that_raises_counts_as_let_go_and_says_so_once() -> None:
    def broken() -> bool:
        raise OSError("no joystick")

    with pytest.warns(RuntimeWarning, match=r"^deadman raised OSError: no joystick; it counts as let go$") as warned:
        report = run(world(), deadman=broken)
    assert report.frames["paused"] == 20
    assert len([each for each in warned if "deadman" in str(each.message)]) == 1


async def _later() -> bool:
    return True


class _Later:
    async def __call__(self) -> bool:
        return True


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "answer",
    [
        *(None, 1, 1.0, np.nan, "False", "True", [True], np.ones(1), np.array(True), threading.Event().is_set),
        *(object(), lambda: True, int, np.float64(1), {"held": True}, b"1", 1j, np.array([]), NotImplemented, ...),
        _later,  # called by the function, so that it answers a coroutine
    ],
)
def test_only_true_holds_a_deadman_and_anything_else_says_so_once(answer: Any) -> None:
    warned: list[str] = []
    deadman = Deadman(lambda: answer() if answer is _later else answer, 0, lambda: 0, warned.append)
    assert not deadman.held() and not deadman.held()
    gc.collect()  # of a coroutine that nobody awaited, Python would warn
    assert len(warned) == 1
    assert warned[0].startswith("deadman must return True or False, got ")
    assert warned[0].endswith("; it counts as let go")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("answer", "held"), [(True, True), (np.True_, True), (False, False), (np.False_, False)])
def test_true_and_false_of_python_and_numpy_are_taken_as_they_are(answer: Any, held: bool) -> None:
    assert Deadman(lambda: answer, 0, lambda: 0, lambda sentence: pytest.fail(sentence)).held() is held


def test_a_method_without_its_brackets_does_not_move_a_robot() -> None:
    env, event = world(), threading.Event()
    with pytest.warns(RuntimeWarning, match=r"^deadman must return True or False, got <bound method Event.is_set"):
        report = run(env, deadman=lambda: event.is_set)
    assert report.frames["paused"] == 20
    assert not np.any(env.actions)


def test_a_run_that_waits_for_a_deadman_says_so_and_goes_on_when_it_is_held_and_resumed() -> None:
    machine, held, said = Turning(), [False], threading.Event()

    def operate() -> None:
        if said.wait(60):
            held[0] = True
            runner.resume()
        else:
            runner.stop()

    class Noted(list[str]):
        def write(self, message: Any, *_: Any, **__: Any) -> None:
            self.append(str(message))
            said.set()

    runner = AsyncRunner(
        lambda: machine,
        lambda: lambda observation: FULL,
        1,
        50,
        backend="thread",
        latency=0.02,
        deadman=lambda: held[0],
    )
    sentences = Noted()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.showwarning", sentences.write)
        operator = threading.Thread(target=operate)
        operator.start()
        report = runner.run(frames=5)
        operator.join()
    assert report.frames == {**report.frames, "total": 5, "paused": 0}
    assert len(sentences) == 1
    assert sentences[0].startswith(
        "the run waits before an episode, paused by its deadman, which was not held: hold it"
    )


def test_a_deadman_that_is_let_go_while_the_loop_is_held_up_lets_no_action_of_the_policys_pass() -> None:
    machine, held = Turning(), [True]

    def slow(observation: Any) -> Any:
        if len(machine.speeds) == 5:
            held[0] = False
            time.sleep(0.3)
        return FULL

    runner = AsyncRunner(lambda: machine, lambda: slow, 0, 50, backend="thread", deadman=lambda: held[0])
    report = runner.run(frames=12)
    assert machine.speeds[:5] == [1.0] * 5
    assert machine.speeds[5:] == [0.0] * 8
    assert (report.released, report.frames["paused"]) == (1, 7)


def test_a_file_has_to_be_touched_again_and_again(tmp_path: Path) -> None:
    path, clock, warned = tmp_path / "held", [0], list[str]()
    deadman = Deadman(path, 200 * MS, lambda: clock[0], warned.append)
    assert not deadman.held() and not deadman.held()
    assert warned == [f"deadman={str(path)!r} cannot be read (No such file or directory); it counts as let go"]
    path.touch()
    assert deadman.held()
    for number in range(1, 4):
        clock[0] += 150 * MS
        assert deadman.held()
        os.utime(path, ns=(number, number))  # whatever the time that it is given, it is another one
        assert deadman.held()
    clock[0] += 200 * MS + 1
    assert not deadman.held()
    path.unlink()
    assert not deadman.held() and len(warned) == 1


@pytest.mark.parametrize("ahead", [0, 60_000, -60_000])
def test_a_touch_that_is_seen_late_counts_from_when_it_was_made(tmp_path: Path, ahead: int) -> None:
    """In a pause, and between two runs, nobody looks; the file's clock may be wrong (`ahead`, in milliseconds)."""
    path, clock = tmp_path / "held", [0]
    path.touch()
    deadman = Deadman(path, 200 * MS, lambda: clock[0])
    assert deadman.held()
    clock[0] += 3_000 * MS  # the touch is 2 s old when somebody looks again
    touched = time.time_ns() + (ahead - 2_000) * MS
    os.utime(path, ns=(touched, touched))
    assert not deadman.held()
    clock[0] += 20 * MS
    os.utime(path, ns=(touched + 1, touched + 1))
    assert deadman.held()


def test_a_file_from_an_earlier_run_is_not_held(tmp_path: Path) -> None:
    path = tmp_path / "held"
    path.touch()
    old = time.time_ns() - 10_000 * MS
    os.utime(path, ns=(old, old))
    assert not Deadman(str(path), 200 * MS, time.monotonic_ns).held()
    assert run(world(), deadman=path, deadman_timeout=100.0).frames["paused"] == 20


def test_between_two_episodes_nothing_is_reset_before_a_deadman_is_held_and_the_run_resumed() -> None:
    machine = Turning()
    held = [True]

    def on_frame(status: Any) -> None:
        held[0] = status.frame < 4

    terms: dict[str, Any] = {"backend": "thread", "latency": 0.02, "deadman": lambda: held[0], "pause_action": "noop"}
    runner = AsyncRunner(lambda: machine, lambda: lambda observation: FULL, 1, 50, **terms)

    def operate() -> None:
        deadline = time.monotonic() + 60
        while len(machine.speeds) < 6:  # until the first episode is over
            if time.monotonic() > deadline:
                runner.stop()
                return
            time.sleep(0.01)
        time.sleep(0.3)
        held[0] = True
        runner.resume()

    operator = threading.Thread(target=operate)
    operator.start()
    report = runner.run(episodes=2, max_episode_frames=5, on_frame=on_frame)
    operator.join()
    assert [episode.frames for episode in report.episodes] == [5, 5]
    assert report.released >= 1
    assert machine.speeds[4:6] == [0.0, 0.0]  # the frame on which it was let go, and the last word
    assert report.episodes[1].began - report.episodes[0].began >= 300 * MS


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"deadman": 3}, r"^deadman must be a function that returns whether it is held, or a path, got 3$"),
        ({"deadman": ""}, r"^deadman must be a function that .*, got ''$"),
        ({"deadman": "\0bad"}, r"^deadman must be a function .* or a path that can be read, got '\\x00bad' \(embedded"),
        ({"deadman": "\ud800"}, r"^deadman must be a function .* or a path that can be read, got '\\ud800' \("),
        ({"deadman": "x" * 5000}, r"^deadman must be a function .* or a path that can be read, got 'x*' \(.*too long"),
        ({"deadman": "."}, r"^deadman must be .* of a file, which somebody touches, got a directory, '\.'$"),
        ({"deadman": Path()}, r"^deadman must be .* of a file, which somebody touches, got a directory, '\.'$"),
        ({"deadman": b"x"}, r"^deadman must be a function that returns whether it is held, or a path, got b'x'$"),
        ({"deadman": _later}, r"^deadman must be a function that returns True or False at once, got <function _later"),
        (
            {"deadman": partial(_later)},
            r"^deadman must be a function that returns True or False at once, got functools",
        ),
        ({"deadman": _Later()}, r"^deadman must be a function that returns True or False at once, got <.*_Later"),
        (
            {"deadman": lambda status: True},
            r"^deadman must be a function without arguments, got .*: missing .*'status'$",
        ),
        (
            {"deadman": bool, "deadman_timeout": 50},
            r"^deadman_timeout=50.0 needs a path as deadman, got <class",
        ),
        ({"deadman_timeout": 50}, r"^deadman_timeout=50.0 needs a path as deadman, got None$"),
        (
            {"deadman": "x", "deadman_timeout": 0},
            r"^deadman_timeout must be a number of milliseconds > 0 and at most 1e12, or None, got 0$",
        ),
        ({"dry_run": 1}, r"^dry_run must be True or False, got 1$"),
        ({"dry_run": True}, r"^dry_run=True needs a make_env that makes a Machine, as an environment is stepped, got"),
        ({"dry_run": True, "make_learner": int, "learner_latency": 0.1}, r"^dry_run=True must stand without learners"),
        ({"learns_from": "both"}, r"^learns_from must be 'sent' or 'drawn', got 'both'$"),
    ],
)
def test_wrong_arguments_are_refused_in_a_sentence(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        run(world(), **wrong)


# A dry run.


def test_a_dry_run_sends_nothing_and_reports_what_it_would_have_sent() -> None:
    machine = Turning()
    report = run(machine, frames=6, dry_run=True, limits=Limits(rate=15.0))
    assert machine.speeds == []
    assert numbers(report.unsent) == pytest.approx([0, 0.294, 0.588, 0.882, 1, 1])  # .98 of a frame
    assert report.frames["limited"] == 3
    assert len(machine.reads) == 7
    machine.close()


# Stop.


class Steady(gym.Env[Any, Any]):
    """Writes a byte for each frame."""

    observation_space, action_space = Discrete(2), Discrete(2)

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return 0, {}

    def step(self, action: Any) -> Any:
        self._file.write(b".")
        return 0, 0.0, False, False, {}


@pytest.mark.filterwarnings("ignore:workers=")
@pytest.mark.parametrize("backend", ["thread", "process"])
def test_another_thread_and_a_signal_stop_a_run_within_a_frame(backend: str, tmp_path: Path) -> None:
    path = tmp_path / "frames"
    path.touch()
    counted: list[int] = []
    runner = AsyncRunner(
        partial(Steady, path), lambda: lambda observation: 0, 1, 50, backend=backend, latency=0.02, default_action=0
    )
    runner.stop()  # nothing goes on, so nothing happens

    def stop(*_: Any) -> None:
        counted.append(path.stat().st_size)
        runner.stop()

    def operate(frames: int, act: Any) -> None:
        while path.stat().st_size < frames:
            time.sleep(0.01)
        act()

    before = signal.signal(signal.SIGUSR1, stop)
    try:
        with runner:
            for act in (stop, partial(os.kill, os.getpid(), signal.SIGUSR1)):
                operator = threading.Thread(target=operate, args=(path.stat().st_size + 5, act))
                operator.start()
                begin = time.monotonic()
                report = runner.run(seconds=100)
                operator.join()
                assert report.stopped == "stop() was called"
                assert time.monotonic() - begin < 60
                assert report.frames["total"] >= 5
                assert path.stat().st_size - counted[-1] <= 2 + report.frames["missed_deadlines"]
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_on_the_virtual_clock_a_stop_in_on_frame_ends_the_run_and_a_machine_gets_the_safe_action() -> None:
    machine = Halved(world())
    runner = AsyncRunner(
        lambda: machine, lambda: lambda observation: FULL, 1, 50, backend="virtual", latency=0.02, pause_action=SAFE
    )

    def on_frame(status: Any) -> None:
        if status.frame == 4:
            runner.stop()

    report = runner.run(frames=100, on_frame=on_frame)
    assert (report.frames["total"], report.stopped) == (5, "stop() was called")
    assert machine.received[0][-1].tolist() == SAFE.tolist()
    assert runner.run(frames=10).frames["total"] == 10  # the next run is another one


def test_a_backend_that_cannot_stop_says_so() -> None:
    class Bare:
        def __init__(self, spec: Any) -> None:
            """Nothing runs."""

        def play(self, phase: Any) -> Any:
            runner.stop()

        def close(self) -> None:
            """Nothing runs."""

    runner = AsyncRunner(world, lambda: lambda observation: FULL, 1, 50, backend=Bare)
    with pytest.raises(RuntimeError, match=r"^stop\(\) needs a backend with a method stop\(\), got "):
        runner.run(frames=3)

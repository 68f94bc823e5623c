"""Nothing stated per second, or in frames, is exceeded on the wall clock, whatever holds a machine's loop up."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial
from itertools import chain, cycle, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from async_wrappers import AsyncRunner, Chunk, Constant, LimitAction, Limits, MachineEnv, RampDown
from async_wrappers.live.inference.transport import VirtualTransport
from async_wrappers.live.loop.clocks import RealClock, VirtualClock
from async_wrappers.live.loop.loop import EnvironmentLoop
from async_wrappers.live.loop.release import Release
from async_wrappers.live.report.report import Measurements
from async_wrappers.live.run_spec import LoopConfig, PhaseSpec
from async_wrappers.schedule.frames import NEARLY
from async_wrappers.schedule.stagger import make_stagger
from async_wrappers.testing.staggers import MS
from tests.worlds.fake_transport import BEGIN, FakeTransport
from tests.worlds.recording_env import RecordingEnv

FPS = 50
FRAME = 20 * MS
SPACE = Box(-1.0, 1.0, (1,), np.float64)
GAP = float(NEARLY) / FPS  # seconds
SETTINGS = settings(
    max_examples=30,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
# Nanoseconds: mostly nothing or jitter, now and then a part of a frame, a frame, or seconds.
STALLS = st.lists(
    st.sampled_from([0, 0, 0, 50_000]) | st.integers(0, 25 * MS) | st.sampled_from([FRAME, 70 * MS, 3_000 * MS]),
    min_size=1,
    max_size=40,
)
QUIET = [0]


class Oversleeping(FakeTransport):
    """Its waits end late."""

    late: Iterator[int] = cycle(QUIET)
    away: Iterator[int] = cycle(QUIET)  # for so long the kernel lets others run before the clock is read

    def now(self) -> int:
        self.time += 5_000 + next(self.away)  # who looks again and again sees time pass
        return self.time

    def collect(self, until: int) -> Any:
        waits = until > self.time
        events = super().collect(until)
        if waits and not events:
            self.time += next(self.late)
        return events


class Stalling:
    """A machine whose methods take the times of lists, on the clock of a transport.

    Attributes:
        began: Of each episode, when `send` was called, and the action.
        ended: The same, when it returned.
    """

    observation_space, action_space = RecordingEnv().observation_space, SPACE
    noop_action = np.zeros(SPACE.shape)  # a speed

    def __init__(self, stalls: dict[str, list[int]], length: Any = None) -> None:
        self._env = RecordingEnv(length, action_space=SPACE)
        self._stalls = {name: cycle(stalls.get(name, QUIET)) for name in ("reset", "observe")}
        self._stalls["send"] = chain(
            QUIET, cycle(stalls.get("send", QUIET))
        )  # a send's usual time is known from then on
        self.transport: FakeTransport | None = None
        self.began: list[list[tuple[int, float]]] = []
        self.ended: list[list[tuple[int, float]]] = []

    def _stall(self, name: str) -> int:
        assert self.transport is not None
        self.transport.time += next(self._stalls[name])
        return self.transport.time

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._stall("reset")
        self.began.append([])
        self.ended.append([])
        return self._env.reset(seed=seed, options=options)

    def send(self, action: Any) -> None:
        assert self.transport is not None
        self._action = action
        self.began[-1].append((self.transport.time, float(action[0])))
        self.ended[-1].append((self._stall("send"), float(action[0])))

    def observe(self) -> Any:
        self._stall("observe")
        return self._env.step(self._action)

    def close(self) -> None:
        """Nothing is held."""


def play(
    stalls: dict[str, list[int]],
    act: Any,
    frames: int = 30,
    length: Any = None,
    on_frame: Any = None,
    answers: int | None = None,
    clock: list[Oversleeping] | None = None,
    **terms: Any,
) -> tuple[Stalling, Measurements]:
    """Play a machine at 50 frames a second, whose loop is held up.

    An inference takes 1.5 frames; after so many `answers` it never ends. The transport is put into `clock`.
    """
    machine = Stalling(stalls, length)
    latencies = [30 * MS] if answers is None else [30 * MS] * answers + [10**18] * 100
    transport = Oversleeping(act, latencies, [0, 0])
    transport.late = cycle(stalls.get("sleep", QUIET))
    machine.transport = transport
    if clock is not None:
        clock.append(transport)
    config = LoopConfig(2, FPS, make_stagger("none"), calibration_time=0.0, **{"default_action": "noop", **terms})
    loop = EnvironmentLoop(machine, transport, config, now=transport.now)
    return machine, loop.play(PhaseSpec(frames=frames, on_frame=on_frame))


def full(observation: Any, decision: Any) -> Any:
    """Ask for one end."""
    return np.array([1.0])


def wavering(observation: Any, decision: Any) -> Any:
    """Ask for one end, then for the other one."""
    return np.array([1.0 if decision.start // 7 % 2 == 0 else -1.0])


def all_sends(machine: Stalling) -> Iterator[list[tuple[int, float]]]:
    """Yield each episode's sends: they reach the motor somewhere between the call of `send` and its return."""
    yield from machine.began
    yield from machine.ended


def seconds(before: tuple[int, float], after: tuple[int, float]) -> float:
    return (after[0] - before[0]) / 1e9


HELD_UP = st.fixed_dictionaries({}, optional=dict.fromkeys(("reset", "send", "observe", "sleep"), STALLS))


@SETTINGS
@given(stalls=HELD_UP, length=st.sampled_from([None, [7, 12, 5, 30]]))
def test_two_sends_are_never_closer_than_nearly_a_frame(stalls: dict[str, list[int]], length: Any) -> None:
    machine, record = play(stalls, wavering, length=length)
    assert sum(episode.frames for episode in record.episodes) == 30
    for sends in (
        [each for episode in machine.began for each in episode],
        [each for episode in machine.ended for each in episode],
    ):
        least = min(FRAME, *(after - before for (before, _), (after, _) in pairwise(sends)))
        assert least >= NEARLY * FRAME


@SETTINGS
@given(
    stalls=HELD_UP,
    rate=st.sampled_from([0.5, 1.0, 8.0, None]),
    jerk=st.sampled_from([4.0, 60.0, None]),
    soft=st.sampled_from([0.0, 0.4]),
)
def test_rate_jerk_and_soft_start_hold_on_the_wall(
    stalls: dict[str, list[int]], rate: float | None, jerk: float | None, soft: float
) -> None:
    soft = soft if rate or jerk else 0.0
    machine, _ = play(stalls, wavering, limits=Limits(rate=rate, jerk=jerk, soft_start=soft))
    for sends in all_sends(machine):
        first, change = sends[0][0], sends[0][1]
        for before, after in pairwise(sends):
            passed, last, change = seconds(before, after), change, after[1] - before[1]
            share = 1.0 if not soft else min(1.0, 0.1 + 0.9 * (after[0] - first) / 1e9 / soft)
            frame = min(passed, 1 / FPS)
            if rate:
                assert abs(change) <= share * rate * frame
            if jerk and sends is machine.began[0]:
                # What was not told anything for longer than a frame and a half has stopped.
                still = passed > 1.5 / FPS + 1e-9
                assert abs(change - (0 if still else last)) <= share * jerk * frame * GAP


POINTS = ("reset", "send", "observe", "sleep", "away", "deadman", "on_frame", "default", "policy", "release")
HOOKS = ("deadman", "on_frame", "default", "policy", "release")


class Split:
    """A policy in two halves whose halves take their time."""

    def __init__(self, wall: Any, stalls: dict[str, Iterator[int]]) -> None:
        self._wall, self._stalls, self._step = wall, stalls, 0

    def encode(self, observation: Any, decision: Any) -> Any:
        self._wall.time += next(self._stalls["policy"])
        return wavering(observation, decision)

    def release(self, features: Any, memory: Any, decision: Any) -> Any:
        self._wall.time += next(self._stalls["release"])
        return SimpleNamespace(action=features, state=None)


def play_held_up(
    stalls: dict[str, list[int]], held: list[bool], limits: Limits, simulated: bool, splits: bool, frames: int = 30
) -> Stalling:
    """Play a machine at 50 frames a second, whose loop is held up wherever it calls anything; on either clock."""
    machine = Stalling(stalls)
    hooks = {name: cycle(stalls.get(name, QUIET)) for name in HOOKS}
    answers = chain([True], cycle(held))  # before the first episode nobody resumes
    transport: Any
    if simulated:
        wall: Any = SimpleNamespace(time=0)
        policies = [Split(wall, hooks) for _ in range(2)]
        encoded = [SimpleNamespace(act=policy.encode) for policy in policies]
        features = SPACE if splits else None
        transport = VirtualTransport(policies if splits else encoded, SPACE, Constant(0.03), features=features)
    else:
        policy = Split(None, hooks)
        wall = policy._wall = transport = Oversleeping(policy.encode, [30 * MS], [0, 0])
        transport.late, transport.away = (cycle(stalls.get(name, QUIET)) for name in ("sleep", "away"))
    machine.transport = wall

    def stalled(name: str, answer: Any) -> Any:
        wall.time += next(hooks[name])
        return answer

    def default(observation: Any, last_action: Any, missed: int) -> Any:
        return stalled("default", np.array([1.0]))

    def on_frame(status: Any) -> None:
        stalled("on_frame", None)
        if status.paused:
            status.resume()

    terms: dict[str, Any] = {"default_action": default, "limits": limits}
    terms["deadman"] = lambda: stalled("deadman", next(answers))
    config = LoopConfig(2, FPS, make_stagger("none"), calibration_time=0.0, **terms)
    clock = VirtualClock if simulated else RealClock
    release = Release(Split(wall, hooks), SPACE) if splits else None
    loop = EnvironmentLoop(machine, transport, config, now=transport.now, clock=clock, release=release)
    loop.play(PhaseSpec(frames=frames, on_frame=on_frame))
    return machine


def broken_limits(sends: list[tuple[int, float]], rate: float, jerk: float) -> list[str]:
    """Return which changes are larger than a machine may hear of, at the times at which it was sent to."""
    change, broken = sends[0][1], []
    for before, after in pairwise(sends):
        passed, last, change = seconds(before, after), change, after[1] - before[1]
        # What was not told anything for longer than a frame and a half has stopped.
        last = 0.0 if passed > 1.5 / FPS + 1e-9 else last
        frame = min(passed, 1 / FPS)
        if abs(change) > rate * frame or abs(change - last) > jerk * frame * GAP:
            broken.append(f"after {passed * FPS:.3f} frames by {change:.5f} from {last:.5f}")
    return broken


@SETTINGS
@given(
    stalls=st.fixed_dictionaries({}, optional=dict.fromkeys(POINTS, STALLS)),
    held=st.lists(st.sampled_from([True, True, True, False]), min_size=1, max_size=9),
    rate=st.sampled_from([0.5, 1.0, 8.0]),
    jerk=st.sampled_from([4.0, 10.0, 60.0]),
    simulated=st.booleans(),
    splits=st.booleans(),
)
def test_limits_hold_from_send_to_send_whatever_the_loop_waits_for(
    stalls: dict[str, list[int]], held: list[bool], rate: float, jerk: float, simulated: bool, splits: bool
) -> None:
    limits = Limits(rate=rate, jerk=jerk)
    sends = play_held_up(stalls, held, limits, simulated, splits).began[0]
    if simulated:  # its sends are a frame apart, and nothing that takes time on the wall changes them
        (undisturbed,) = play_held_up({}, held, limits, simulated, splits).began
        assert [action for _, action in sends] == [action for _, action in undisturbed]
        sends = [(number * FRAME, action) for number, (_, action) in enumerate(sends)]
    assert len(sends) == 31
    assert broken_limits(sends, rate, jerk) == []


def test_a_long_last_look_at_the_deadman_is_a_silence_after_which_a_machine_starts_from_rest() -> None:
    looks = [0] * 8 + [8 * MS, 12 * MS, 0, 80 * MS] + [0] * 1000  # as the second holds the loop up, it looks twice more
    machine = play_held_up({"deadman": looks}, [True], Limits(rate=1.0, jerk=10.0), False, False)
    ((before, after),) = [pair for pair in pairwise(machine.began[0]) if seconds(*pair) * FPS > 1.5]
    assert seconds(before, after) * FPS == pytest.approx(5.2, abs=0.1)
    assert abs(after[1] - before[1]) <= 10.0 / FPS**2
    assert broken_limits(machine.began[0], 1.0, 10.0) == []


@SETTINGS
@given(stalls=HELD_UP)
def test_a_ramp_takes_its_time(stalls: dict[str, list[int]]) -> None:
    machine, _ = play(stalls, full, 30, answers=3, default_action=RampDown(10, hold=2))
    for sends in all_sends(machine):
        downwards = [(before, after) for before, after in pairwise(sends) if after[1] < before[1]]
        assert len(downwards) == 10
        for before, after in downwards:
            assert before[1] - after[1] <= min(seconds(before, after) / GAP, 1) / 10 + 1e-9


@pytest.mark.filterwarnings("ignore:workers 1 have not inferred")
@SETTINGS
@given(stalls=HELD_UP)
def test_the_entries_of_a_chunk_are_neither_hurried_nor_left_out(stalls: dict[str, list[int]]) -> None:
    def act(observation: Any, decision: Any) -> Any:
        return np.linspace(0, 1, 61)[:, None]

    machine, record = play(stalls, act, answers=1, default_action=np.zeros(1), chunk=Chunk(61))
    begin = record.effects[0][0][1]
    assert [action for _, action in machine.began[0][begin:30]] == pytest.approx(np.linspace(0, 1, 61)[begin:30])


@pytest.mark.parametrize("rest", ["noop", RampDown(5)])
@SETTINGS
@given(stalls=HELD_UP, until=st.integers(FRAME, 600 * MS))
def test_no_action_of_the_policys_is_sent_half_a_frame_after_a_deadman_was_let_go(
    rest: Any, stalls: dict[str, list[int]], until: int
) -> None:
    until, clock = BEGIN + until, list[Oversleeping]()
    machine, record = play(
        stalls, full, 40, clock=clock, deadman=lambda: not clock or clock[0].time <= until, default_action=rest
    )
    for sends in machine.began:
        late = [action for time, action in sends if time > until + FRAME // 2 + MS]
        assert all(action == 0.0 for action in late) if rest == "noop" else late == sorted(late, reverse=True)
    total = sum(episode.frames for episode in record.episodes)
    assert record.report().frames["paused"] + sum(map(len, record.effects)) <= total


def test_a_deadman_that_is_let_go_while_the_loop_waits_to_send_stops_the_action_of_that_frame() -> None:
    # The tenth send hangs for 25 ms, so the next one has to wait; in this wait the loop is stopped for 3 s.
    clock, waits = list[Oversleeping](), 0

    def stopped_once() -> Iterator[int]:
        nonlocal waits
        while True:
            late = clock[0].time > BEGIN + 236 * MS
            waits += late
            yield 3_000 * MS if late and waits == 1 else 0

    stalls: Any = {"send": [0] * 8 + [25 * MS] + [0] * 1000, "sleep": stopped_once()}
    held = BEGIN + 1_000 * MS
    machine, record = play(stalls, full, 20, clock=clock, deadman=lambda: not clock or clock[0].time <= held)
    sends = machine.began[0]
    assert sends[9][0] < BEGIN + 236 * MS < held < sends[10][0]
    assert [action for _, action in sends[10:]] == [0.0] * 11
    assert (record.released, record.report().frames["paused"]) == (1, 9)


@given(jitter=st.lists(st.integers(0, 300_000), min_size=1, max_size=50))
@SETTINGS
def test_jitter_moves_no_deadline(jitter: list[int]) -> None:
    machine, record = play({"sleep": jitter, "observe": jitter[::-1]}, wavering, frames=60)
    assert record.skipped == 0
    for frame, (sent, _) in enumerate(machine.began[0]):
        assert 0 <= sent - record.begin - frame * FRAME <= 2 * MS


def test_missed_frames_are_skipped_and_reported() -> None:
    stalls = {"observe": [0] * 9 + [3_005 * MS] + [0] * 1000}
    machine, record = play(stalls, wavering, frames=20)
    times = [(time - record.begin) / MS for time, _ in machine.began[0]]
    assert times[:10] == pytest.approx([20.0 * frame for frame in range(10)], abs=0.1)
    assert times[10:] == pytest.approx([3_205 + 20 * frame - 0.3 * (frame > 0) for frame in range(11)], abs=0.2)
    report = record.report()
    assert report.frames["skipped"] == 150
    assert report.frames["missed_deadlines"] == 1
    assert report.fps == pytest.approx(20 / 3.4, rel=0.01)
    assert "1 missed and 150 frames skipped" in str(report)
    late = [span for span in report.spans if span.effect is not None and span.effect > 11]
    assert all(span.applied is not None and span.applied / MS >= 3_200 for span in late)


def test_a_small_delay_is_worked_off_and_moves_no_deadline() -> None:
    machine, record = play({"observe": [0] * 9 + [8 * MS] + [0] * 1000}, wavering, frames=40)
    times = [(time - record.begin) / MS - 20 * frame for frame, (time, _) in enumerate(machine.began[0])]
    assert times[:10] == pytest.approx([0] * 10, abs=0.1)
    assert times[10:40] == pytest.approx([max(0.0, 8 - 0.3 * frame) for frame in range(30)], abs=0.2)
    assert record.skipped == 0


def test_what_was_seen_before_a_stall_is_too_old_after_it() -> None:
    stalls = {"observe": [0] * 9 + [3_000 * MS] + [0] * 1000}
    _, record = play(stalls, wavering, 20, max_age=140)
    _, kept = play(stalls, wavering, 20, max_age=160)
    assert (record.too_old > 0, kept.too_old) == (True, 0)
    assert any(start < 10 < effect for start, effect in kept.effects[0])
    assert not any(start < 10 < effect for start, effect in record.effects[0])


# A trainer that takes turns.


@SETTINGS
@example(thinks=[0], sends=[11 * MS], rate=0.5, jerk=4.0)
@given(thinks=STALLS, sends=STALLS, rate=st.sampled_from([0.5, 8.0, None]), jerk=st.sampled_from([4.0, None]))
def test_a_trainer_that_stays_away_hurries_nothing_either(
    thinks: list[int], sends: list[int], rate: float | None, jerk: float | None
) -> None:
    transport = FakeTransport(wavering, [0], [0])

    def sleep(seconds: float) -> None:
        transport.time += round(seconds * 1e9)

    machine = Stalling({"observe": [1 * MS, 4 * MS], "send": sends})
    machine.transport = transport
    env = LimitAction(MachineEnv(machine, FPS, now=transport.now, sleep=sleep), Limits(rate=rate, jerk=jerk), FPS)
    env.reset(seed=0)
    for frame in range(50):
        transport.time += thinks[frame % len(thinks)]
        env.step(np.array([1.0 if frame // 7 % 2 == 0 else -1.0]))
    change = machine.began[0][0][1]
    for before, after in pairwise(machine.began[0]):
        passed, last, change = seconds(before, after), change, after[1] - before[1]
        assert passed >= GAP
        if rate:
            assert abs(change) <= rate * min(passed, 1 / FPS)
        if jerk:
            assert abs(change - (0 if passed > 1.5 / FPS + 1e-9 else last)) <= jerk * GAP**2


@pytest.mark.parametrize(
    "limits", [Limits(rate=1.0), Limits(rate=0.5, jerk=4.0), Limits(rate=8.0, jerk=60.0, soft_start=0.4)], ids=str
)
def test_limits_let_the_same_through_on_every_clock(limits: Limits) -> None:
    end = np.array([1.0])
    on_the_wall, _ = play({}, full, 50, answers=2, default_action=end, limits=limits)
    simulated, by_hand = Stalling({}), Stalling({})
    simulated.transport = by_hand.transport = FakeTransport(wavering, [0], [0])
    terms: dict[str, Any] = {"latency": 100, "default_action": end, "limits": limits}
    AsyncRunner(lambda: simulated, lambda: lambda observation: end, 1, FPS, backend="virtual", **terms).run(frames=50)
    env = LimitAction(MachineEnv(by_hand, FPS, waits=False), limits, FPS)
    env.reset(seed=0)
    for _ in range(50):
        env.step(end)
    sent = [[action for _, action in machine.began[0][:50]] for machine in (on_the_wall, simulated, by_hand)]
    assert sent[0] == sent[1] == sent[2]
    assert max(sent[0]) > 0.05


# On a real clock.


class Logging:
    """A machine that writes down when it was told what; its 20th reading takes 0.4 s."""

    observation_space, action_space = Box(-1.0, 1.0, (1,)), SPACE
    noop_action = np.zeros(SPACE.shape)  # a speed

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)
        self._reads = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(1, np.float32), {}

    def send(self, action: Any) -> None:
        print(time.monotonic_ns(), float(action[0]), file=self._file)

    def observe(self) -> Any:
        self._reads += 1
        if self._reads == 20:
            time.sleep(0.4)
        return np.zeros(1, np.float32), 0.0, False, False, {}

    def close(self) -> None:
        self._file.close()


def to_and_fro(observation: Any) -> Any:
    return np.array([1.0 if int(time.monotonic() * 2) % 2 else -1.0])


@pytest.mark.filterwarnings("ignore:workers=")
def test_limits_hold_where_the_kernel_stops_the_loop_and_where_a_reading_is_slow(tmp_path: Path) -> None:
    path = tmp_path / "sends"
    path.touch()
    runner = AsyncRunner(
        partial(Logging, path),
        lambda: to_and_fro,
        1,
        FPS,
        latency=0.02,
        default_action="repeat",
        limits=Limits(rate=1.0, jerk=20.0),
    )
    stopped = []

    def operate() -> None:
        for lines in (40, 60):
            while len(path.read_text().splitlines()) < lines:
                time.sleep(0.01)
            pid = runner.pids["the environment"]
            os.kill(pid, signal.SIGSTOP)
            try:
                time.sleep(0.6)
            finally:
                os.kill(pid, signal.SIGCONT)
            stopped.append(lines)
        while len(path.read_text().splitlines()) < 90:
            time.sleep(0.01)
        runner.stop()

    operator = threading.Thread(target=operate, daemon=True)
    with runner:
        runner.start()
        operator.start()
        report = runner.run(frames=10_000)
    operator.join(60)
    assert stopped == [40, 60]
    sends = [(int(when), float(action)) for when, action in map(str.split, path.read_text().splitlines())]
    assert len(sends) == report.frames["total"] + 1
    assert sum(seconds(*pair) > 0.35 for pair in pairwise(sends)) >= 3  # more where the machine is busy
    for before, after in pairwise(sends):
        assert abs(after[1] - before[1]) <= 1.0 * min(seconds(before, after), 1 / FPS)
    assert report.frames["skipped"] >= (0.4 + 0.6 + 0.6) * FPS - 6
    assert max(action for _, action in sends) - min(action for _, action in sends) > 0.1  # it did move

"""A machine is sent to at once and read as a frame begins; on the virtual clock it plays as its environment."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import FlattenObservation, RescaleAction, TimeLimit
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from async_wrappers import (
    AsyncRunner,
    Chunk,
    LimitAction,
    Limits,
    MachineEnv,
    MachineFailed,
    RampDown,
    RealtimeDelay,
    VectorRealtimeDelay,
)
from async_wrappers.fleet.supervised import RunFailed
from async_wrappers.live import Decision
from async_wrappers.live.loop.loop import EnvironmentLoop
from async_wrappers.live.report.report import Measurements
from async_wrappers.live.run_spec import LoopConfig, PhaseSpec
from async_wrappers.schedule.stagger import make_stagger
from async_wrappers.testing.machines import MachineContract
from async_wrappers.testing.staggers import MS, Played
from tests.worlds.fake_transport import FakeTransport
from tests.worlds.learners import Writing
from tests.worlds.machines import Arm, Halved, Turning
from tests.worlds.recording_env import FRAME, MEANINGS, NOOP, RecordingEnv, mixed
from tests.worlds.schedule_cases import Case, cases

SETTINGS = settings(max_examples=25, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
LEFT, RIGHT = 3, 4


class TestTurning(MachineContract):
    frames = 10

    def make_machine(self) -> Any:
        return Turning()


class TestArm(MachineContract):
    frames = 10

    def make_machine(self) -> Any:
        return Arm()


class TestHalved(MachineContract):
    frames = 10

    def make_machine(self) -> Any:
        return Halved(gym.make("Pendulum-v1"))

    def test_it_can_be_read_without_being_sent_to(self, machine: Any) -> None:
        machine.reset()
        machine.send(np.zeros(1, np.float32))  # its environment has to be stepped with something
        super().test_it_can_be_read_without_being_sent_to(machine)


# The order of things, on a clock of the test: 1,000 frames a second.


def played(machine: Any, frames: int, latencies: Any = (2 * MS,), **terms: Any) -> tuple[FakeTransport, Measurements]:
    """Play a machine whose clock is the transport's."""
    transport = FakeTransport(lambda observation, decision: LEFT, latencies, [0, 0])
    machine._now = transport.now
    config = LoopConfig(2, 1000, make_stagger("none"), calibration_time=0.0, **{"default_action": NOOP, **terms})
    record = EnvironmentLoop(machine, transport, config, now=transport.now).play(PhaseSpec(frames=frames))
    return transport, record


def test_it_is_sent_to_as_a_frame_begins_and_read_as_the_next_one_does_before_that_is_published() -> None:
    machine = Halved(RecordingEnv())
    transport, record = played(machine, 10)
    begin = record.begin
    assert [time - begin for time in machine.sends] == [*(frame * MS for frame in range(10)), 10 * MS]
    assert [time - begin for time in machine.reads] == [frame * MS for frame in range(1, 11)]
    shown = [time - begin for what, time, *_ in transport.log if what == "show"][1:]
    assert shown == [frame * MS for frame in range(10)]
    assert record.lateness == [0] * 10


def test_its_end_is_read_as_the_next_frame_would_begin_and_the_last_that_it_hears_is_the_safe_action() -> None:
    machine = Halved(RecordingEnv([3, 5]))
    _, record = played(machine, 8, pause_action=RIGHT)
    assert [episode.frames for episode in record.episodes] == [3, 5]
    assert [actions[-1] for actions in machine.received] == [RIGHT, RIGHT]
    assert [len(actions) for actions in machine.received] == [4, 6]
    assert record.end - record.begin >= 8 * MS
    assert len(record.lateness) == 8


# On the virtual clock: the same as its environment, whatever is asked.


class Noisy:
    def load_weights(self, weights: Any, version: int) -> None:
        """There are none."""

    def act(self, observation: Any, decision: Decision) -> int:
        return mixed(decision.episode, decision.start, *observation.tolist()) % len(MEANINGS)


def switch(status: Any, pause: tuple[int, int]) -> None:
    if status.frame == pause[0]:
        status.pause()
    if status.frame == pause[1]:
        status.resume()


def on_the_virtual_clock(made: Any, case: Case, pause: tuple[int, int], terms: dict[str, Any], run: Any) -> Any:
    seen: list[Any] = []
    given: dict[str, Any] = {"backend": "virtual", "latency": Played(case.latencies)}
    given |= {"make_learner": lambda: Writing(seen), "learner_latency": 0.01, "seed": 3}
    runner = AsyncRunner(lambda: made, Noisy, case.workers, case.fps, case.stagger, **given, **terms)
    report = runner.run(on_frame=partial(switch, pause=pause), **run)
    return report, [{**each, "observation": each["observation"].tolist()} for each in seen]


@SETTINGS
@given(
    case=cases(rates=st.sampled_from([60, 1000])),
    pause=st.tuples(st.integers(0, 30), st.integers(0, 60)),
    default_action=st.sampled_from(["noop", "repeat", "random"]),
    limit=st.sampled_from([None, 7]),
    stops=st.sampled_from([None, 6]),
)
def test_on_the_virtual_clock_it_plays_as_its_environment(
    case: Case, pause: tuple[int, int], default_action: str, limit: int | None, stops: int | None
) -> None:
    if stops is not None:  # as many frames as the first action needs would end each episode before it
        assume(max(case.latencies) * case.fps < (stops - 1) * 1_000_000_000)
    terms = {"default_action": default_action, "pause_action": RIGHT, "stop_after_missed": stops}
    run = {"episodes": len(case.episodes), "max_episode_frames": limit}
    env, halved = (RecordingEnv(case.episodes, rewards=(1.0, 2.0, 4.0)) for _ in range(2))
    machine = Halved(halved)
    expected, transitions = on_the_virtual_clock(env, case, pause, terms, run)
    report, observed = on_the_virtual_clock(machine, case, pause, terms, run)
    assert halved.episodes == env.episodes
    assert repr(report) == repr(expected)
    assert repr(observed) == repr(transitions)


def test_in_a_delay_a_machine_env_plays_as_its_environment() -> None:
    env, halved = RecordingEnv(30), RecordingEnv(30)
    for made in (env, MachineEnv(Halved(halved), waits=False)):
        delayed = RealtimeDelay(made, delay=3, noops=1, default_action="repeat")
        observation, _ = delayed.reset(seed=0)
        over = False
        while not over:
            observation, _, over, _, _ = delayed.step(int(observation[FRAME]) % 5)
    assert halved.episodes == env.episodes


# Driven by places: zeros may be a place far away.

PLACE, THERE = [80.0, -60.0], [70.0, -50.0]


def driven(machine: Any, frames: int = 8, latency: float = 0.06, **terms: Any) -> list[list[float]]:
    """Play a machine whose policy wants it there; an inference takes three frames."""
    on_frame = terms.pop("on_frame", None)
    AsyncRunner(
        lambda: machine,
        lambda: lambda observation: np.float32(terms.get("wanted", THERE)),
        1,
        50,
        backend="virtual",
        latency=latency,
        playout=3,
        **{each: value for each, value in terms.items() if each != "wanted"},
    ).run(frames=frames, on_frame=on_frame)
    received: list[list[float]] = machine.received
    return received


@pytest.mark.parametrize(
    "terms",
    [
        {"default_action": "repeat"},
        {"default_action": Chunk(9), "wanted": [THERE] * 9},
        {"default_action": "repeat", "pause_action": "repeat"},
    ],
    ids=str,
)
def test_a_machine_driven_by_places_is_held_where_it_was_read_until_its_first_action(terms: dict[str, Any]) -> None:
    assert driven(Arm(), **terms)[:5] == [PLACE, PLACE, PLACE, THERE, THERE]


def test_it_is_held_there_where_no_action_ever_comes_and_at_the_end() -> None:
    assert driven(Arm(), latency=9.0, default_action="repeat") == [PLACE] * 9


@pytest.mark.parametrize(("first", "held"), [(1, [PLACE] * 8), (5, [PLACE] * 3 + [THERE] * 11)])
def test_it_is_held_in_a_pause_and_after_it_where_it_was_sent_last(first: int, held: list[Any]) -> None:
    on_frame = partial(switch, pause=(first, first + 4))
    assert driven(Arm(), 14, default_action="repeat", on_frame=on_frame)[: len(held)] == held


def test_after_a_pause_it_is_held_where_the_pause_has_brought_it() -> None:
    away = [10.0, 10.0]
    received = driven(
        Arm(), 14, default_action="repeat", pause_action=away, on_frame=partial(switch, pause=(5, 8)), wanted=THERE
    )
    assert received[:12] == [PLACE] * 3 + [THERE] * 2 + [away] * 3 + [away] * 3 + [THERE]


def test_limits_begin_where_it_was_read_and_hold_it_where_an_action_is_nan() -> None:
    limits = Limits(low=-90, high=90, rate=1.0, unit="per frame")
    received = driven(Arm(), default_action=Chunk(9), wanted=[THERE] * 9, limits=limits)
    assert received[:3] == [PLACE] * 3
    assert np.allclose(received[3:6], [[79, -59], [78, -58], [77, -57]], atol=1e-4)
    with pytest.warns(RuntimeWarning, match=r"^limits hold the machine where it is where an action is NaN, got array"):
        received = driven(Arm(), 4, 9.0, default_action=lambda *_: np.full(2, np.nan), limits=limits)
    assert received[:4] == [PLACE] * 4
    arm = Arm()
    with pytest.raises(ValueError, match=r"^limits must hold the place where the machine begins, got .*: move it the"):
        driven(arm, default_action="repeat", limits=Limits(high=50.0))
    assert (arm.received, arm.closes) == ([], 1)


RAMP = RampDown(5)
UNKNOWN = r" needs to know what keeps Arm at rest before its first action, as zeros may be a place far away: let the m"


@pytest.mark.parametrize("place", [[0.0, 0.0], PLACE])
@pytest.mark.parametrize(
    ("terms", "sentence"),
    [
        ({}, rf"default_action='noop'{UNKNOWN}"),
        ({"default_action": "repeat"}, rf"default_action='repeat'{UNKNOWN}"),
        ({"default_action": RAMP}, rf"default_action=RampDown\(frames=5, hold=0\){UNKNOWN}"),
        ({"default_action": Chunk(9)}, rf"after='repeat'{UNKNOWN}"),
        ({"default_action": PLACE, "pause_action": "noop"}, rf"pause_action='noop'{UNKNOWN}"),
        ({"default_action": PLACE, "pause_action": "repeat"}, rf"pause_action='repeat'{UNKNOWN}"),
        ({"default_action": PLACE, "limits": Limits(rate=10.0)}, rf"limits{UNKNOWN.replace('needs', 'need')}"),
    ],
    ids=str,
)
def test_a_machine_that_does_not_say_what_is_safe_is_sent_nothing(
    terms: dict[str, Any], sentence: str, place: list[float]
) -> None:
    arm = Arm(place, says=False)
    with pytest.raises(ValueError, match=f"^{sentence}"):
        driven(arm, **terms)
    assert arm.received == []
    assert driven(arm, default_action=place, pause_action=lambda observation, last: observation)[:3] == [place] * 3


@pytest.mark.parametrize("terms", [{}, {"default_action": RAMP}, {"default_action": PLACE, "pause_action": "noop"}])
def test_what_ends_at_a_no_op_is_refused_where_only_a_place_can_be_held(terms: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"an action that is safe at any time .* has hold_action alone.*='repeat'\)`"):
        driven(Arm(), **terms)


def test_one_that_says_both_is_held_where_it_was_read_and_ramps_to_its_no_op() -> None:
    arm = Arm()
    arm.noop_action = [1.0, 2.0]  # type: ignore[attr-defined]
    assert driven(arm, 4, 9.0, default_action="repeat") == [PLACE] * 5
    assert driven(arm, 4, 9.0, default_action=RAMP)[5:] == [[1, 2]] * 5


@pytest.mark.parametrize(
    ("held", "sentence"),
    [
        (lambda observation: np.full(2, np.nan), r"hold_action answered array\(\[nan, nan\]\) .*: it holds NaN"),
        (lambda observation: observation * 9, r"hold_action answered .*: it lies outside"),
        (lambda observation: observation["joints"], "hold_action raised IndexError"),
    ],
)
def test_a_place_that_is_no_action_closes_the_machine_before_it_moves(held: Any, sentence: str) -> None:
    arm = Arm()
    arm.hold_action = held
    with pytest.raises(MachineFailed, match=f"^Arm was closed, as its {sentence}"):
        driven(arm, default_action="repeat")
    assert (arm.received, arm.closes) == ([], 1)


def test_a_hold_action_that_is_no_function_is_refused() -> None:
    arm = Arm()
    arm.hold_action = "position"  # type: ignore[assignment]
    with pytest.raises(ValueError, match=r"^hold_action of Arm must be a function of an observation, got 'position': "):
        MachineEnv(arm)


def held_in_wrappers(wrapped: Callable[[Any], Any]) -> list[list[float]]:
    arm = Arm()
    env = RealtimeDelay(wrapped(MachineEnv(arm, waits=False)), delay=3, default_action="repeat")
    for _ in range(2):
        env.reset(seed=0)
        for _ in range(3):
            env.step(np.float32(THERE))
    return arm.received


def test_so_it_is_in_wrappers_and_in_each_episode_where_that_one_began() -> None:
    first, second = [PLACE] * 3 + [THERE] * 3, [THERE] * 6
    assert held_in_wrappers(lambda env: env) == [*first, *second]
    assert held_in_wrappers(lambda env: TimeLimit(FlattenObservation(env), 50)) == [*first, *second]
    limits = Limits(rate=1.0, unit="per frame")
    received = held_in_wrappers(lambda env: LimitAction(env, limits, fps=50))
    assert np.allclose(received[:5], [PLACE] * 3 + [[79, -59], [78, -58]], atol=1e-4)
    with pytest.raises(ValueError, match=r"^default_action='repeat' needs to know what keeps Arm at rest"):
        held_in_wrappers(lambda env: RescaleAction(env, -1, 1))


def test_so_it_is_in_a_vector() -> None:
    arms = [Arm(), Arm(THERE)]
    vector = SyncVectorEnv([partial(MachineEnv, arm, waits=False) for arm in arms])
    env = VectorRealtimeDelay(vector, delay=2, default_action="repeat")
    env.reset(seed=0)
    env.step(np.zeros((2, 2), np.float32))
    assert [arm.received for arm in arms] == [[PLACE, PLACE, [0, 0]], [THERE, THERE, [0, 0]]]
    unsaid = SyncVectorEnv([lambda: MachineEnv(Arm(says=False), waits=False)])
    with pytest.raises(ValueError, match=UNKNOWN):
        VectorRealtimeDelay(unsaid, delay=2, default_action="repeat")


def test_a_wrapper_may_say_what_is_safe() -> None:
    class Safe(gym.Wrapper[Any, Any, Any, Any]):
        noop_action = np.float32(PLACE)

    arm = Arm(says=False)
    env = RealtimeDelay(Safe(MachineEnv(arm, waits=False)), delay=2)
    env.reset()
    env.step(np.float32(THERE))
    assert arm.received == [PLACE, PLACE, THERE]


# What was really sent.


def learnt(changes: Callable[[Any], Any], **terms: Any) -> tuple[Any, list[Any]]:
    """Return the machine and the transitions of 12 frames; an inference takes two frames."""
    seen: list[Any] = []
    machine = Halved(RecordingEnv(), changes)

    class Always(Noisy):
        def act(self, observation: Any, decision: Decision) -> Any:
            return [LEFT, LEFT, 0] if "default_action" in terms else LEFT

    given: dict[str, Any] = {"backend": "virtual", "latency": 0.002, "slot": 3, "make_learner": lambda: Writing(seen)}
    given |= {"learner_latency": 0.001}
    AsyncRunner(lambda: machine, Always, 2, 1000, **given, **{"default_action": "repeat", **terms}).run(frames=12)
    return machine, [np.asarray(each["action"]).tolist() for each in seen]


def swap(action: Any) -> Any:
    return RIGHT if action == LEFT else None


def test_what_was_really_sent_is_in_the_transition_and_is_what_is_repeated() -> None:
    machine, actions = learnt(swap)
    assert set(actions) == {RIGHT}
    assert machine.received[0][2:] == [RIGHT] * 11  # repeated as it was sent; RIGHT itself is not changed


def test_a_learner_may_have_what_was_drawn() -> None:
    machine, actions = learnt(swap, learns_from="drawn")
    assert set(actions) == {LEFT}
    assert machine.received[0][2:] == [RIGHT] * 11


def test_of_a_chunk_the_entries_that_were_sent_are_in_the_transition() -> None:
    # Each chunk lands two frames after its start, so that its last entry alone is of a frame before the next one.
    _, actions = learnt(lambda action: RIGHT, default_action=Chunk(3, after=NOOP))
    assert actions
    assert all(chunk == [LEFT, LEFT, RIGHT] for chunk in actions)


# Wrong machines.


class Lacking:
    observation_space, action_space = Discrete(2), Discrete(2)

    def send(self, action: Any) -> None:
        """Nothing is sent."""


class Wrong(Turning):
    """One method returns something else."""

    def __init__(self, method: str, answer: Any) -> None:
        super().__init__()
        setattr(self, method, lambda *_, **__: answer)


def run(machine: Any, backend: str = "virtual", **terms: Any) -> Any:
    arguments = {"default_action": np.zeros(1, np.float32), "latency": 0.01, **terms}
    runner = AsyncRunner(lambda: machine, lambda: lambda observation: np.zeros(1), 1, 50, backend=backend, **arguments)
    return runner.run(frames=6)


@pytest.mark.parametrize("backend", ["virtual", "thread", "process"])
def test_a_machine_without_one_of_its_parts_is_refused(backend: str) -> None:
    with pytest.raises(ValueError, match=r"^make_env must return a Machine, with reset, observe, close besides what"):
        AsyncRunner(Lacking, lambda: lambda observation: 0, 1, 50, backend=backend, latency=0.01).run(frames=3)


def test_a_machine_env_in_wrappers_is_refused() -> None:
    machine = Turning()
    with pytest.raises(ValueError, match=r"^make_env must return the Machine itself .* MachineEnv in wrappers"):
        run(TimeLimit(MachineEnv(machine), 5))
    machine.close()


def test_on_a_real_clock_it_is_refused_too_where_its_step_does_not_wait() -> None:
    env = TimeLimit(MachineEnv(Turning(), waits=False), 5)
    terms: dict[str, Any] = {"latency": 0.01, "default_action": "repeat"}
    with pytest.raises(ValueError, match=r"^make_env must return the Machine itself .* would be hurried after a stall"):
        AsyncRunner(lambda: env, lambda: lambda observation: np.zeros(1), 1, 50, backend="thread", **terms).run(
            frames=3
        )
    assert run(TimeLimit(MachineEnv(Turning(), waits=False), 5)).frames["total"] == 6


READING = np.zeros(2)


@pytest.mark.parametrize(
    ("method", "answer", "sentence"),
    [
        ("observe", (np.full(2, np.nan), 0.0, False, False, {}), "observe answered .* no observation of .*: it holds"),
        ("observe", (np.zeros(3), 0.0, False, False, {}), r"observe answered .*: its shape is \[3\] and must be \[2\]"),
        ("observe", (READING, "x", False, False, {}), "observe must return a reward that is a number, got 'x'"),
        ("observe", READING, r"observe must return \(observation, reward, terminated, truncated, info\), got "),
        ("reset", READING[0], r"reset must return \(observation, info\), got "),
        ("reset", (READING[:1], {}), r"reset answered .*: its shape is \[1\]"),
        ("send", np.full(1, 2.0), "send answered .* which is no action of Box.*: it lies outside"),
    ],
)
def test_an_answer_that_is_none_brings_the_machine_to_rest(method: str, answer: Any, sentence: str) -> None:
    machine = Wrong(method, answer)
    with pytest.raises(MachineFailed, match=f"^Wrong was closed, as its {sentence}"):
        run(machine)
    assert machine.closes == 1


def test_a_default_action_that_is_none_is_not_sent() -> None:
    machine = Turning()
    with pytest.raises(
        MachineFailed, match=r"^Turning was closed, as its send takes no array\(\[nan\]\), no action of"
    ):
        run(machine, default_action=lambda observation, last_action: np.full(1, np.nan))
    assert (machine.closes, machine.speeds) == (1, [])


@pytest.mark.parametrize("fails", ["send", "observe"])
def test_a_method_that_raises_closes_the_machine_at_once_also_within_a_with_block(fails: str) -> None:
    machine = Turning(fails)
    with AsyncRunner(
        lambda: machine, lambda: lambda observation: np.zeros(1), 1, 50, backend="thread", latency=0.01
    ) as runner:
        with pytest.raises(MachineFailed, match=rf"^Turning was closed, as its {fails} raised OSError: the cable is"):
            runner.run(frames=20)
        assert machine.closes == 1
        with pytest.raises(MachineFailed, match=r"^Turning is closed, so there is no reset: make a new one"):
            runner.run(frames=20)
    assert machine.closes == 1


def test_an_error_of_anybody_else_closes_it_too() -> None:
    machine = Turning()

    def on_frame(status: Any) -> None:
        raise KeyError("mine")

    with AsyncRunner(
        lambda: machine, lambda: lambda observation: np.zeros(1), 1, 50, backend="thread", latency=0.01
    ) as runner:
        with pytest.raises(KeyError, match="mine"):
            runner.run(frames=20, on_frame=on_frame)
        assert machine.closes == 1


def policy_that(what: str) -> Any:
    count = iter(range(1_000_000))

    def act(observation: Any) -> Any:
        if what == "raises" and next(count) == 8:
            raise KeyError("the policy's")
        return np.full(1, 5.0 if what == "answers what is no action" else 1.0)

    return act


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("backend", "what"),
    [("virtual", "raises"), ("thread", "raises")]  # in a process the policy is made anew
    + [(backend, "answers what is no action") for backend in ("virtual", "thread", "process")],
)
def test_an_error_of_the_policys_closes_it_too_also_within_a_with_block(
    tmp_path: Path, backend: str, what: str
) -> None:
    notes = tmp_path / "notes"
    notes.touch()
    timing: dict[str, Any] = {"latency": 0.01} if backend == "virtual" else {"calibration_time": 0.0}
    with AsyncRunner(
        partial(Turning, notes=notes), partial(policy_that, what), 1, 50, backend=backend, **timing
    ) as runner:
        with pytest.raises((KeyError, RunFailed), match=r"the policy's|no action was ever accepted"):
            runner.run(frames=400 if what == "raises" else 20)
        deadline = time.monotonic() + 120
        while not (closed := notes.read_text()) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert closed.startswith("closed after")


# On a real clock.


def test_in_a_process_it_has_the_time_that_it_needs_to_come_to_rest(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    with AsyncRunner(
        partial(Turning, notes=notes, rests=4.0), partial(policy_that, "acts"), 1, 50, calibration_time=0.0
    ) as runner:
        runner.run(frames=3)
    assert notes.read_text() == "closed after 4 sends\n"


@pytest.mark.filterwarnings("ignore:workers=")
def test_in_processes_it_is_read_fresh_and_closed_at_the_end_also_where_it_fails(tmp_path: Path) -> None:
    notes = tmp_path / "notes"

    def policy(observation: Any) -> Any:
        with (tmp_path / "ages").open("a") as file:
            print(time.monotonic() - observation[1], file=file)
        return np.zeros(1, np.float32)

    report = AsyncRunner(partial(Turning, notes=notes), lambda: policy, 1, latency=0.02).run(frames=25)
    assert report.frames["total"] == 25
    assert notes.read_text() == "closed after 0 sends\nclosed after 26 sends\n"  # it was made once more for its fps
    ages = sorted(float(line) for line in (tmp_path / "ages").read_text().split())
    assert ages[len(ages) // 2] < 0.010  # half a frame: an environment's is older than a whole one
    with pytest.raises(MachineFailed, match=r"^Turning was closed, as its send raised OSError: the cable is cut(?m:$)"):
        AsyncRunner(partial(Turning, "send", notes), lambda: policy, 1, 50, latency=0.02).run(frames=25)
    assert notes.read_text().endswith("closed after 3 sends\n")


# As an environment.


class Ticking:
    """A clock that moves by what is slept, and a little late."""

    def __init__(self, late: int) -> None:
        self.time, self._late = 7, late

    def now(self) -> int:
        return self.time

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.time += round(seconds * 1e9) + self._late


def timed(late: int = 0, fps: Any = 50) -> tuple[MachineEnv, Halved, Ticking]:
    clock = Ticking(late)
    machine = Halved(RecordingEnv(), now=clock.now)
    env = MachineEnv(machine, fps, now=clock.now, sleep=clock.sleep)
    env.reset(seed=0)
    return env, machine, clock


@given(late=st.integers(0, 20 * MS - 1), thinks=st.lists(st.integers(0, 100 * MS), max_size=30))
def test_a_step_ends_on_the_first_deadline_after_its_action_and_deadlines_do_not_drift(
    late: int, thinks: list[int]
) -> None:
    env, machine, clock = timed(late)
    begin = clock.time
    for nanoseconds in thinks:
        clock.time += nanoseconds
        env.step(LEFT)
    ends = [(sent - begin) // (20 * MS) + 1 for sent in machine.sends]
    assert [read - begin - end * 20 * MS for read, end in zip(machine.reads, ends, strict=True)] == [late] * len(thinks)
    assert env.missed_frames == (ends[-1] if ends else 0) - len(ends)


def test_a_rate_that_is_no_whole_number_of_nanoseconds_does_not_drift_either() -> None:
    env, machine, clock = timed(fps=59.7275)
    begin = clock.time
    for _ in range(1000):
        env.step(LEFT)
    assert machine.reads[-1] - begin == int(np.ceil(1000 * 1e9 / 59.7275))
    assert env.missed_frames == 0


def test_the_frame_rate_is_the_one_given_or_the_machines_or_that_of_its_metadata() -> None:
    machine = Halved(RecordingEnv())
    with pytest.raises(ValueError, match=r"^fps must be given, in frames per second"):
        MachineEnv(machine)
    with pytest.raises(ValueError, match=r"^fps must be > 0 frames per second, got -1"):
        MachineEnv(machine, -1)
    assert MachineEnv(machine, 20).fps == 20
    machine.metadata = {"render_fps": 30}  # type: ignore[attr-defined]
    assert MachineEnv(machine).fps == 30
    machine.dt = 0.01  # type: ignore[attr-defined]
    assert MachineEnv(machine).fps == 100
    machine.fps = 40  # type: ignore[attr-defined]
    assert MachineEnv(machine).fps == 40
    assert run_fps(machine) == 40


def run_fps(machine: Any) -> float:
    return AsyncRunner(
        lambda: machine, lambda: lambda observation: 0, 1, backend="virtual", latency=0.01, default_action=NOOP
    )._fps


def test_an_environment_of_a_machine_says_what_was_sent_and_is_closed_once() -> None:
    machine = Halved(RecordingEnv(), swap)
    env = MachineEnv(machine, waits=False)
    env.reset(seed=0)
    assert env.step(LEFT)[4]["sent"] == RIGHT
    assert "sent" not in env.step(0)[4]
    env.close()
    env.close()
    assert machine.closes == 1
    with pytest.raises(MachineFailed, match=r"^Halved is closed, so there is no send"):
        env.step(0)


def test_what_a_machine_keeps_between_phases_is_handed_on() -> None:
    class Keeping(Halved):
        phase_state = 3

        def observe(self) -> Any:
            self.phase_state += 1
            return super().observe()

    machine = Keeping(RecordingEnv())
    runner = AsyncRunner(
        lambda: machine, lambda: lambda observation: 0, 1, 50, backend="virtual", latency=0.01, default_action=NOOP
    )
    assert runner.run(frames=5).phase_state == 8
    assert runner.run(frames=5, phase_state=100).phase_state == 105


def test_a_runner_plays_the_machine_of_a_machine_env_without_its_sleep() -> None:
    machine = Halved(RecordingEnv())

    def never(seconds: float) -> None:
        raise AssertionError("slept")

    env = MachineEnv(machine, 50, sleep=never)
    runner = AsyncRunner(
        lambda: env, lambda: lambda observation: 0, 1, 50, backend="virtual", latency=0.01, default_action=0
    )
    assert runner.run(frames=20).frames["total"] == 20


def test_spaces_other_than_boxes_are_taken_as_they_are() -> None:
    machine = Halved(RecordingEnv(action_space=Box(-1, 1, (2,), np.float32)))
    env = MachineEnv(machine, waits=False)
    env.reset(seed=0)
    env.step([0.5, -0.5])  # as a list: the machine gets an array of its space
    assert machine.received[0][0].dtype == np.float32

"""Tests of the wrappers outside a delay that show it to the policy: `CommittedActions` and `DecisionDelay`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict
from gymnasium.wrappers import TimeLimit
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from async_wrappers import CommittedActions, DecisionDelay, RealtimeDelay
from async_wrappers.latency import Correlated, LogNormal, Spikes, Uniform
from async_wrappers.schedule.plain import PlainSchedule
from async_wrappers.schedule.simulated import SimulatedSchedule
from async_wrappers.schedule.stagger import Sequential
from async_wrappers.testing.staggers import MS, ChangesLater, Played
from tests.worlds.ones_env import OnesEnv, one_hot
from tests.worlds.recording_env import FRAME, RecordingEnv

EXAMPLES = settings(max_examples=50, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
FEWER = settings(EXAMPLES, max_examples=25)
STAGGERS = ["tickets", "none", "sequential", "max_time", "expected_time"]
LATENCIES: list[Any] = [
    0.0,
    0.1,
    Uniform(0.0, 0.2),
    LogNormal(mean=0.08, cv=1.0),
    Spikes(0.04, 0.2, 6),
    Correlated(LogNormal(mean=0.08, cv=1.0), 0.9),
    Played([0, 120 * MS, 20 * MS, 20 * MS, 40 * MS + 1]),
]


@dataclass(frozen=True)
class Scheduled:
    """A decision of an independent schedule, in frames."""

    start: int
    effect: int
    finished: int


def scheduled(arguments: dict[str, Any], seeds: list[int], frames: int) -> Iterator[list[Scheduled]]:
    """Yield what lands in the first frames of each episode."""
    if "latency" not in arguments:
        plain = PlainSchedule(**arguments)
        for _ in seeds:
            yield [Scheduled(start, effect, effect) for start, effect in islice(plain.decisions(), frames)]
        return
    schedule = SimulatedSchedule(**arguments)
    for seed in seeds:
        log = schedule.keep_log()
        landed = [(*applied, k) for k, (applied, _) in enumerate(islice(schedule.steps(seed), frames)) if applied]
        ended = {(inference.start, inference.worker): schedule.clock.frame_at(inference.finished) for inference in log}
        yield [Scheduled(start, effect, ended[start, worker]) for start, worker, effect in landed]


@st.composite
def schedules(draw: st.DrawFn) -> dict[str, Any]:
    """Draw arguments of a `RealtimeDelay`."""
    if draw(st.booleans()):
        return {"delay": draw(st.integers(0, 8)), "noops": draw(st.integers(0, 8))}
    stagger = draw(st.sampled_from(STAGGERS))
    return {
        "latency": draw(st.sampled_from(LATENCIES)),
        "workers": draw(st.integers(1, 5)),
        "fps": draw(st.sampled_from([50, 59.7275])),
        "stagger": stagger,
        "playout": draw(st.one_of(st.integers(0, 8), st.just("p75"))),
        "slot": draw(st.one_of(st.none(), st.integers(1, 3))) if stagger == "tickets" else None,
    }


def play(env: gym.Env[Any, Any], seed: int) -> Iterator[tuple[list[int], Any]]:
    """Play an episode; yield the actions chosen so far and the observation, after the reset and each step."""
    rng = np.random.default_rng(seed)
    chosen: list[int] = []
    observation, _ = env.reset(seed=seed)
    yield chosen, observation
    over = False
    while not over:
        chosen.append(int(rng.integers(5)))
        observation, _, over, _, _ = env.step(chosen[-1])
        yield chosen, observation


RUNS = {"arguments": schedules(), "length": st.integers(1, 60), "seeds": st.lists(st.integers(0, 99), min_size=1)}


@EXAMPLES
@given(**RUNS, longest=st.integers(1, 12))
def test_the_delay_told_is_that_of_the_newest_action_applied_before_the_observations_frame(
    arguments: dict[str, Any], length: int, seeds: list[int], longest: int
) -> None:
    env = DecisionDelay(RealtimeDelay(RecordingEnv(length), default_action=2, **arguments), longest=longest)
    for seed, decisions in zip(seeds, scheduled(arguments, seeds, length + 1), strict=True):
        kept = [observation for _, observation in play(env, seed)]
        for observation in kept:  # compared at the end: nothing that was returned has changed since
            frame = observation["observation"][FRAME]
            delays = [0] + [decision.effect - decision.start for decision in decisions if decision.effect < frame]
            assert observation["decision_delay"].tolist() == [min(delays[-1], longest)]
            assert env.observation_space.contains(observation)


@EXAMPLES
@given(**RUNS, shown=st.integers(1, 6), known=st.booleans())
def test_the_actions_committed_are_those_chosen_that_land_on_the_observations_frame_or_later(
    arguments: dict[str, Any], length: int, seeds: list[int], shown: int, known: bool
) -> None:
    if "latency" in arguments and known:
        return  # see the next test: what is not known yet has a row too
    env = CommittedActions(RealtimeDelay(RecordingEnv(length), default_action=2, **arguments), shown, known)
    for seed, decisions in zip(seeds, scheduled(arguments, seeds, length + 1), strict=True):
        for chosen, observation in play(env, seed):
            frame = observation["observation"][FRAME]
            rows = [
                [*one_hot(action, 5), 0.0] if decision.finished <= frame or not known else PENDING
                for action, decision in zip(chosen, decisions, strict=False)
                if frame <= decision.effect < length
            ]
            assert observation["committed_actions"].tolist() == (rows + [[0.0] * 6] * shown)[:shown]
            assert env.observation_space.contains(observation)


PENDING = [0.0] * 5 + [1.0]


def of_frame(frame: int) -> int:
    """Return an agent's action, which its observation alone decides."""
    return (3 * frame + 1) % 5


def shown_by_frame(arguments: dict[str, Any], length: int) -> dict[int, list[list[float]]]:
    """Play an episode; return the rows of each observation that was shown, by its frame."""
    env = CommittedActions(RealtimeDelay(RecordingEnv(length), default_action=2, **arguments), 8)
    observation, _ = env.reset(seed=0)
    shown, over = {}, False
    while True:
        assert env.observation_space.contains(observation)
        frame = int(observation["observation"][FRAME])
        shown[frame] = observation["committed_actions"].tolist()
        if over:
            return shown
        observation, _, over, _, _ = env.step(of_frame(frame))


@st.composite
def with_drops(draw: st.DrawFn) -> dict[str, Any]:
    """Draw arguments under which some decisions are overtaken or too old."""
    # An inference of no time lands on its own frame: what it overtakes there cannot be known when the frame begins.
    latencies = st.integers(1, 120).map(lambda halves: 2 * halves * MS)
    stagger = draw(st.sampled_from(STAGGERS))
    playout = draw(st.integers(0, 6))
    max_age = st.one_of(st.none(), st.integers(max(playout, 2), 15))
    return {
        "latency": Played(draw(st.lists(latencies, min_size=1, max_size=12).map(lambda each: [*each, MS, MS]))),
        "workers": draw(st.integers(1, 5)),
        "fps": 50,
        "stagger": stagger,
        "playout": playout,
        # After one inference that is too old, `max_time` makes all others as old, and none is applied any more.
        "max_age": None if stagger == "max_time" else draw(max_age),
    }


@FEWER
@given(arguments=with_drops(), length=st.integers(1, 40))
def test_a_row_is_of_each_decision_that_may_be_applied(arguments: dict[str, Any], length: int) -> None:
    schedule = SimulatedSchedule(**arguments)
    log, frame_at = schedule.keep_log(), schedule.clock.frame_at
    landed = {k: applied[0] for k, (applied, _) in enumerate(islice(schedule.steps(0), length + 1)) if applied}
    is_ticket, oldest = arguments["stagger"] == "tickets", arguments["max_age"]
    for frame, shown in shown_by_frame(arguments, length).items():
        newest = max((start for k, start in landed.items() if k <= frame), default=-1)
        rows = [[*one_hot(of_frame(landed[frame]), 5), 0.0]] if landed.get(frame, frame) < frame else []
        # Of the workers that read the same frame one is applied at most.
        for each in sorted({inference.start: inference for inference in log}.values(), key=lambda each: each.start):
            if not newest < each.start < frame:
                continue
            ready = frame_at(each.finished)
            if is_ticket and ready <= frame:
                if each.start + arguments["playout"] > frame:
                    rows.append([*one_hot(of_frame(each.start), 5), 0.0])
                continue
            lands = max(each.start + arguments["playout"] if is_ticket else 0, frame + 1)
            if oldest is None or lands - each.start <= oldest:
                rows.append(PENDING)
        if frame < length:  # at the end an action that would land on the next frame is as good as lost
            assert shown == (rows + [[0.0] * 6] * 8)[:8]


@FEWER
@given(arguments=with_drops(), length=st.integers(10, 30), data=st.data())
def test_a_row_is_the_same_in_all_futures_of_its_frame(
    arguments: dict[str, Any], length: int, data: st.DataObject
) -> None:
    """What is inferred when the frame begins may then take any time, and so may all that begins later."""
    shown = shown_by_frame(arguments, length)
    decided_on = [frame for frame in shown if frame < length]  # nobody decides on an episode's last observation
    assume(decided_on)
    frame = data.draw(st.sampled_from(decided_on), label="frame")
    schedule = SimulatedSchedule(**arguments)
    log = schedule.keep_log()
    list(islice(schedule.frames(0), frame))
    begin = schedule.clock.begin(frame)
    others = st.integers(1, 400).map(lambda milliseconds: milliseconds * MS)
    past = [
        each.finished - each.started
        if each.finished <= begin
        else begin - each.started + data.draw(others, label="still")
        for each in log
    ]
    future = data.draw(st.lists(others, min_size=1, max_size=6), label="future")
    future += [MS, MS]  # young enough, as in `with_drops`
    latency = ChangesLater(past or future, len(past), future)
    latency.changed, latency.mean = True, arguments["latency"].mean  # which slots and estimates begin with
    rows = shown_by_frame({**arguments, "latency": latency}, length).get(frame)
    assert rows is None or rows == shown[frame]  # None: its decision is overtaken in that future


def test_a_row_does_not_tell_that_a_decision_will_be_overtaken() -> None:
    """Of frame 0 and frame 1, the second is computed first where the first takes six frames."""
    shown = []
    for first in (1, 6):
        latency = Played([first * 40 * MS, 20 * MS, 200 * MS, *[20 * MS] * 9])
        arguments = {"latency": latency, "workers": 3, "fps": 50, "stagger": "tickets", "playout": 1}
        shown.append(shown_by_frame(arguments, 20)[1])
    assert shown == [[PENDING] + [[0.0] * 6] * 7] * 2


def test_an_action_applied_on_the_observations_own_frame_does_not_tell_its_delay_yet() -> None:
    latency = Played([40 * MS, 20 * MS, 20 * MS, 20 * MS])
    env = DecisionDelay(
        RealtimeDelay(RecordingEnv(), default_action=2, latency=latency, workers=1, fps=50, stagger="none")
    )
    shown = [(env.reset(seed=0)[0])] + [env.step(0)[0] for _ in range(3)]
    # (start, effect): (0, 2), (2, 3), (3, 4), (4, 5): the observation of frame 2 is seen before that frame's action
    assert [int(observation["observation"][FRAME]) for observation in shown] == [0, 2, 3, 4]
    assert [observation["decision_delay"].item() for observation in shown] == [0, 0, 2, 1]


@pytest.mark.parametrize(
    ("arguments", "frames"),
    [
        ({"delay": 8}, 8),
        ({"delay": 3, "noops": 3}, 3),
        ({}, 0),
        ({"latency": LogNormal(0.1, 0.3), "workers": 4, "fps": 60, "playout": 7}, 7),
        ({"latency": 0.1, "workers": 4, "fps": 50}, 5),
        ({"latency": 0.1, "fps": 50, "playout": 0}, 0),
    ],
)
def test_the_playout_is_told_from_the_first_observation_on(arguments: dict[str, Any], frames: int) -> None:
    env = DecisionDelay(RealtimeDelay(RecordingEnv(30), default_action=2, **arguments), of="playout")
    assert [observation["decision_delay"].item() for _, observation in play(env, seed=0)][:5] == [frames] * 5
    assert isinstance(env.env, RealtimeDelay)
    assert env.env.playout == frames


@pytest.mark.parametrize("stagger", [*STAGGERS[1:], Sequential()])
def test_a_strategy_without_a_playout_cannot_tell_it(stagger: Any) -> None:
    env = RealtimeDelay(RecordingEnv(), latency=0.1, fps=60, stagger=stagger)
    assert env.playout is None
    with pytest.raises(ValueError, match=r"^of='playout' needs constants or tickets, .*: use of='last'$"):
        DecisionDelay(env, of="playout")


def test_a_playout_that_cannot_be_shown_is_refused_and_a_longer_delay_is_cut() -> None:
    env = RealtimeDelay(RecordingEnv(), delay=9)
    with pytest.raises(ValueError, match=r"^longest must be >= the playout, 9 frames, got 8$"):
        DecisionDelay(env, of="playout", longest=8)
    assert DecisionDelay(env, of="playout", longest=9).reset()[0]["decision_delay"] == 9
    *_, (_, observation) = play(DecisionDelay(RealtimeDelay(RecordingEnv(30), delay=9), longest=8), seed=0)
    assert observation["decision_delay"] == 8


@pytest.mark.parametrize(
    ("dtype", "longest", "high", "shown"),
    [
        (np.float32, 60, 60, 3),
        (np.float64, 60, 60, 3),
        (np.uint8, 60, 240, 12),
        (np.uint8, 255, 255, 3),
        (np.int8, 60, 120, 6),
        (np.int64, 2, (2**62 - 1) * 2, (2**62 - 1) * 2),
    ],
)
def test_the_flat_form_appends_the_delay_in_frames_or_in_shares_of_the_largest_whole_number(
    dtype: Any, longest: int, high: int, shown: int
) -> None:
    env = DecisionDelay(RealtimeDelay(OnesEnv(dtype, length=20), delay=3), longest=longest, flat=True)
    assert env.observation_space.dtype == dtype
    assert env.observation_space.low.tolist() == [0, 0, 0]
    assert env.observation_space.high.tolist() == [3, 3, high]
    observations = [observation for _, observation in play(env, seed=0)]
    assert observations[0].tolist() == [1, 1, 0]
    assert observations[-1].tolist() == [1, 1, shown]
    assert all(
        observation.dtype == dtype and env.observation_space.contains(observation) for observation in observations
    )


def test_the_dict_form_keeps_the_observation_and_its_space_as_they_are() -> None:
    inner = OnesEnv(np.uint8, shape=(4, 4, 3))
    env = DecisionDelay(RealtimeDelay(inner, delay=2), longest=20)
    assert isinstance(env.observation_space, Dict)
    assert env.observation_space["observation"] == inner.observation_space
    assert env.observation_space["decision_delay"] == Box(0, 20, (1,), np.float32)
    assert set(env.reset()[0]) == {"observation", "decision_delay"}


def test_a_delay_is_found_through_other_wrappers() -> None:
    env = DecisionDelay(TimeLimit(RealtimeDelay(RecordingEnv(), delay=2), 10), of="playout", flat=False)
    assert env.reset()[0]["decision_delay"] == 2


@pytest.mark.parametrize("wrapper", [CommittedActions, DecisionDelay])
def test_without_a_delay_inside_the_remedy_is_named(wrapper: Any) -> None:
    with pytest.raises(
        ValueError, match=rf"^{wrapper.__name__} must be around a RealtimeDelay, got .*: wrap the delay"
    ):
        wrapper(RecordingEnv())


def test_a_delay_beyond_the_observations_type_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^longest must be <= 255 frames in uint8 observations, got 256$"):
        DecisionDelay(RealtimeDelay(OnesEnv(np.uint8), delay=2), longest=256, flat=True)


def test_the_flat_form_of_an_image_is_refused_with_the_remedy() -> None:
    with pytest.raises(ValueError, match=r"flat=True needs a vector observation, got Box.*flat=False"):
        DecisionDelay(RealtimeDelay(OnesEnv(shape=(4, 4)), delay=2), flat=True)


def test_the_constructor_arguments_are_recorded() -> None:
    env = DecisionDelay(RealtimeDelay(gym.make("CartPole-v1"), 3, default_action=0), "playout", longest=9, flat=True)
    again = gym.make(env.spec)  # type: ignore[arg-type]
    assert type(again) is DecisionDelay
    assert again.observation_space == env.observation_space
    assert again.reset(seed=0)[0].tolist() == env.reset(seed=0)[0].tolist()

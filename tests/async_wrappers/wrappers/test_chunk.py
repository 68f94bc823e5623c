"""Tests of chunks: arithmetic by hand, then a plain loop over frames that agrees with the wrappers on any schedule."""

from __future__ import annotations

import math
from copy import deepcopy
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from gymnasium.utils.env_checker import check_env
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from async_wrappers import RealtimeDelay, TemporalEnsemble, VectorRealtimeDelay
from async_wrappers.schedule.plain import PlainSchedule
from async_wrappers.schedule.simulated import SimulatedSchedule
from async_wrappers.testing.staggers import Played
from async_wrappers.wrappers.chunk import Chunk, executed_entries
from tests.worlds.hashing_policy import policy
from tests.worlds.recording_env import FRAME, MEANINGS, NOOP, RecordingEnv, mixed
from tests.worlds.schedule_cases import CASES, Case, cases

NUMBERS = Box(-1, 1, (2,), np.float32)


def discrete_chunk(observation: Any, length: int) -> Any:
    """A chunk that depends on the whole history."""
    return np.array([mixed(policy(observation), i) % len(MEANINGS) for i in range(length)])


def real_chunk(observation: Any, length: int) -> Any:
    """A chunk that depends on the frame alone: means are compared as far as rounding goes."""
    numbers = [mixed(int(observation[FRAME]), i, k) for i in range(length) for k in range(2)]
    return (np.array(numbers, np.float32).reshape(length, 2) % 201 - 100) / 100


# arithmetic by hand ---------------------------------------------------------------------------------------------------


def test_executed_entries_are_those_of_the_frames_from_effect_to_end() -> None:
    assert executed_entries(6, start=10, effect=12, end=15).tolist() == [False, False, True, True, True, False]
    assert executed_entries(3, start=10, effect=12, end=99).tolist() == [False, False, True]
    assert not executed_entries(3, start=10, effect=14, end=20).any()  # later than the chunk's end
    assert not executed_entries(3, start=10, effect=12, end=12).any()  # never applied


def test_the_space_is_of_the_same_numbers() -> None:
    env = RealtimeDelay(RecordingEnv(action_space=Discrete(3, start=7)), 1, default_action=Chunk(2, after=8))
    assert env.action_space == MultiDiscrete([3, 3], start=[7, 7])
    env = RealtimeDelay(RecordingEnv(action_space=NUMBERS), 1, 1, "chunk")
    assert env.action_space == Box(-1, 1, (3, 2), np.float32)


def test_a_box_without_a_dimension_is_refused() -> None:
    sentence = r"^a chunk as default_action needs a Box of a dimension at least, got Box\(-1.0, 1.0, \(\), float32\): "
    with pytest.raises(ValueError, match=sentence):
        RealtimeDelay(RecordingEnv(action_space=Box(-1, 1, (), np.float32)), 1, 1, "chunk")


@pytest.mark.parametrize(
    ("mean", "expected"),
    [
        ("weighted_average", 0.3 * (0.3 * 1.0 + 0.7 * 2.0) + 0.7 * 4.0),
        ("average", 0.5 * (0.5 * 1.0 + 0.5 * 2.0) + 0.5 * 4.0),
        ("conservative", 0.7 * (0.7 * 1.0 + 0.3 * 2.0) + 0.3 * 4.0),
        ("latest_only", 4.0),
        (None, 4.0),
        (TemporalEnsemble(0), 7 / 3),
        (TemporalEnsemble(1), (1 + 2 / math.e + 4 / math.e**2) / (1 + 1 / math.e + 1 / math.e**2)),
        (TemporalEnsemble(1, first="newest"), (4 + 2 / math.e + 1 / math.e**2) / (1 + 1 / math.e + 1 / math.e**2)),
    ],
)
def test_the_mean_of_three_chunks_is_the_one_worked_by_hand(mean: Any, expected: float) -> None:
    recorder = RecordingEnv(action_space=Box(-9, 9, (1,), np.float64))
    env = RealtimeDelay(recorder, delay=1, default_action=Chunk(4, mean=mean))
    env.reset()
    for value in (1.0, 2.0, 4.0):
        env.step(np.full((4, 1), value))
    assert recorder.actions[-1] == pytest.approx(expected)


def test_a_mean_of_equal_actions_on_the_bound_stays_in_the_space() -> None:
    space = Box(np.float32(-0.7), np.float32(0.7), (1,))
    recorder = RecordingEnv(action_space=space)
    env = RealtimeDelay(recorder, default_action=Chunk(9, mean=TemporalEnsemble(0.3)))
    env.reset()
    for _ in range(9):
        env.step(np.full((9, 1), 0.7, np.float32))
    assert all(space.contains(action) for action in recorder.actions)


# a loop over frames ---------------------------------------------------------------------------------------------------


class Oracle:
    """What the environment receives, frame by frame, from the rules alone.

    Args:
        recorder: A fresh environment like the wrapped one.
        schedule: Of which only the applied start of each frame is taken.
        newer: None: the newest wins; else LeRobot's weight of a newer chunk, folded into a queue as it lands.
    """

    def __init__(self, recorder: RecordingEnv, schedule: Any, length: int, chunk: Any, newer: float | None) -> None:
        self.recorder, self.schedule, self.length, self.chunk, self.newer = recorder, schedule, length, chunk, newer

    def play(self, base: Any) -> tuple[list[Any], list[tuple[float, list[int], int]]]:
        """Return the actions received, and of each step: reward, executed entries, frames of the base default."""
        observation, _ = self.recorder.reset()
        sights, frames = [observation.copy()], self.schedule.frames(0)
        queue: dict[int, Any] = {}
        received: list[Any] = []
        steps: list[Any] = []
        waiting = [0.0, 0]  # reward and default frames before the first effect
        start, over = None, False
        while not over:
            frame = len(received)
            landed, _ = next(frames)
            if landed is not None:
                chunk = self.chunk(sights[landed], self.length)
                for k in range(frame, landed + self.length):
                    old = queue.get(k)
                    mixes = self.newer is not None and old is not None
                    queue[k] = (1 - self.newer) * old + self.newer * chunk[k - landed] if mixes else chunk[k - landed]
                start = landed
                steps.append([waiting[0], [], waiting[1]])
                waiting = [0.0, 0]
            action = queue[frame] if frame in queue else base(received)
            observation, reward, terminated, truncated, _ = self.recorder.step(action)
            if start is None:
                waiting = [waiting[0] + reward, waiting[1] + 1]
            else:
                steps[-1][0] += reward
                if frame < start + self.length:
                    steps[-1][1].append(frame - start)
                else:
                    steps[-1][2] += 1
            sights.append(observation.copy())
            received.append(action)
            over = terminated or truncated
        if not steps:
            steps.append([waiting[0], [], waiting[1]])
        return received, steps


BASES: dict[str, Any] = {"noop": lambda received: NOOP, "repeat": lambda received: received[-1] if received else NOOP}


def played(env: RealtimeDelay, length: int, chunk: Any) -> list[Any]:
    """Play an episode; return what each step paid, executed and left to the base default action."""
    observation, info = env.reset(seed=0)
    before = info["realtime"]["frame"]  # frames of the base default that no step counts: before the first start
    steps, over = [], False
    while not over:
        action = chunk(observation, length)
        observation, reward, terminated, truncated, info = env.step(action)
        action[:] = 0  # the agent may use its array again
        realtime = info["realtime"]
        steps.append([reward, np.flatnonzero(realtime["executed"]).tolist(), realtime["default_frames"] + before])
        before = 0
        assert realtime["executed"].shape == (length,)
        over = terminated or truncated
    return steps


@settings(max_examples=CASES // 2, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    delay=st.integers(0, 8),
    noops=st.integers(0, 8),
    more=st.integers(0, 4),
    frames=st.integers(1, 50),
    after=st.sampled_from(sorted(BASES)),
)
def test_with_constants_the_wrapper_does_what_a_loop_over_frames_does(
    delay: int, noops: int, more: int, frames: int, after: str
) -> None:
    length = delay + noops + 1 + more
    env = RecordingEnv(frames, rewards=(1.0, 2.0, 4.0, 8.0))
    oracle = Oracle(deepcopy(env), PlainSchedule(delay, noops), length, discrete_chunk, None)
    wrapper = RealtimeDelay(env, delay, noops, Chunk(length, after))
    received, steps = oracle.play(BASES[after])
    assert played(wrapper, length, discrete_chunk) == steps
    assert env.actions == received


def delayed(env: Any, case: Case, chunk: Chunk) -> RealtimeDelay:
    terms: dict[str, Any] = {"latency": Played(case.latencies), "workers": case.workers, "fps": case.fps}
    terms |= {"stagger": deepcopy(case.stagger()), "default_action": chunk}
    return RealtimeDelay(env, **terms)


def schedule_of(case: Case) -> SimulatedSchedule:
    return SimulatedSchedule(Played(case.latencies), case.workers, case.fps, case.stagger())


@settings(max_examples=CASES // 2, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=cases(), length=st.integers(1, 20), after=st.sampled_from(sorted(BASES)))
def test_with_random_latencies_the_wrapper_does_what_a_loop_over_frames_does(
    case: Case, length: int, after: str
) -> None:
    env = RecordingEnv(case.episodes[0], rewards=(1.0, 2.0, 4.0, 8.0))
    received, steps = Oracle(deepcopy(env), schedule_of(case), length, discrete_chunk, None).play(BASES[after])
    assert played(delayed(env, case, Chunk(length, after)), length, discrete_chunk) == steps
    assert env.actions == received


@settings(max_examples=CASES // 2, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=cases(), length=st.integers(1, 20), name=st.sampled_from(["weighted_average", "average", "conservative"]))
def test_a_mean_is_what_a_queue_holds_into_which_each_chunk_is_folded_as_it_lands(
    case: Case, length: int, name: str
) -> None:
    newer = {"weighted_average": 0.7, "average": 0.5, "conservative": 0.3}[name]
    env = RecordingEnv(case.episodes[0], action_space=NUMBERS)
    received, steps = Oracle(deepcopy(env), schedule_of(case), length, real_chunk, newer).play(
        lambda received: np.zeros(2, np.float32)
    )
    assert played(delayed(env, case, Chunk(length, "noop", name)), length, real_chunk) == steps
    np.testing.assert_allclose(env.actions, received, atol=1e-5)


# a vector ------------------------------------------------------------------------------------------------------------


@settings(max_examples=CASES // 6, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    delay=st.integers(0, 4),
    noops=st.integers(0, 3),
    more=st.integers(0, 9),
    lengths=st.lists(st.integers(3, 30), min_size=1, max_size=3),
    mean=st.sampled_from(["average", "conservative", TemporalEnsemble(0.4), TemporalEnsemble(0.4, "newest"), None]),
)
def test_a_row_of_a_vector_receives_the_means_of_its_own_chunks(
    delay: int, noops: int, more: int, lengths: list[int], mean: Any
) -> None:
    """Until its first episode ends; that none of its chunks lives longer is seen by those of the second one."""
    length = delay + noops + 1 + more
    chunk = Chunk(length, mean=mean)
    recorders = [RecordingEnv(frames, action_space=NUMBERS) for frames in lengths]
    vector = gym.vector.SyncVectorEnv([lambda env=env: env for env in recorders], autoreset_mode="SameStep")
    env = VectorRealtimeDelay(vector, delay, noops, chunk)
    observations, _ = env.reset()
    executed: list[list[Any]] = [[] for _ in lengths]
    over = np.zeros(len(lengths), bool)
    for _ in range(40):
        chunks = np.array([real_chunk(observation, length) for observation in observations])
        observations, _, terminated, _, info = env.step(chunks)
        for row in np.flatnonzero(~over):
            executed[row].append(np.flatnonzero(info["realtime"]["executed"][row]).tolist())
        over |= terminated
    for row, frames in enumerate(lengths):
        recorder = RecordingEnv(frames, action_space=NUMBERS)
        steps = played(RealtimeDelay(recorder, delay, noops, chunk), length, real_chunk)
        np.testing.assert_array_equal(recorders[row].episodes[0], recorder.actions)
        assert executed[row] == [step[1] for step in steps]
        first = -(-frames // (noops + 1)) * (noops + 1) - frames + delay  # frames before its second episode's effect
        assert not np.any(recorders[row].episodes[1][:first])
        if delay == noops == 0:
            entries = real_chunk(np.array([1, 0, 0]), length)
            np.testing.assert_array_equal(recorders[row].episodes[1][0], entries[0])


# refusals and Gymnasium's rules ---------------------------------------------------------------------------------------


def chunked(action_space: Any = None, **arguments: Any) -> RealtimeDelay:
    given = {"delay": 2, "noops": 8, "default_action": "chunk", **arguments}
    return RealtimeDelay(RecordingEnv(action_space=action_space), **given)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            {"default_action": Chunk(10)},
            r"^the length of a Chunk must be >= delay \+ interval = 2 \+ 9 = 11 frames, got Chunk\(length=10,",
        ),
        (
            {"default_action": Chunk(11, mean="average")},
            r"^Chunk.mean needs a Box of real actions, got 'average' for Discrete\(5\)",
        ),
        (
            {"action_space": MultiBinary(3)},
            r"^a chunk as default_action needs Discrete or Box actions, got Multi",
        ),
        ({"default_action": "chunks"}, r"^default_action must be .* got 'chunks'; did you mean 'chunk'\?$"),
        (
            {"default_action": Chunk(11, "chunk")},
            r"^after must be one of 'noop', 'repeat', 'random', a .* got 'chunk'",
        ),
        (
            {"delay": 0, "noops": 0, "latency": 0.1, "fps": 60},
            r"^default_action='chunk' .* write default_action=Chunk\(length\)",
        ),
    ],
)
def test_a_wrong_chunk_is_refused_in_a_sentence(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        chunked(**arguments)


def test_the_short_form_is_a_chunk_of_delay_and_interval() -> None:
    assert chunked().chunk == Chunk(11) == Chunk(11, "repeat", "latest_only")
    vector = gym.vector.SyncVectorEnv([RecordingEnv])
    assert VectorRealtimeDelay(vector, 2, 8, "chunk").chunk == Chunk(11)
    assert RealtimeDelay(RecordingEnv(), 2, 8).chunk is None


def test_an_environment_without_a_no_op_is_told_of_after() -> None:
    with pytest.raises(ValueError, match=r"^after='noop' needs .*delay=1, default_action=Chunk\(2, after='repeat'\)"):
        RealtimeDelay(gym.make("CartPole-v1"), delay=1, default_action=Chunk(2, "noop"))


@pytest.mark.parametrize("action", [3, np.zeros(10, int), np.zeros((11, 1), int)])
def test_an_action_that_is_no_chunk_is_refused_with_both_shapes(action: Any) -> None:
    env = chunked()
    env.reset()
    with pytest.raises(ValueError, match=r"^action must be a chunk of shape \[11\], got shape \["):
        env.step(action)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("arguments", [{"delay": 2, "noops": 8}, {"latency": 0.1, "fps": 20}])
def test_gymnasium_checks_pass(arguments: dict[str, Any]) -> None:
    check_env(RealtimeDelay(gym.make("Pendulum-v1"), default_action=Chunk(11), **arguments), skip_render_check=True)


def test_the_constructor_call_is_in_the_spec_and_a_default_call_is_as_before() -> None:
    env = RealtimeDelay(gym.make("CartPole-v1"), 2, 8, Chunk(12))
    assert env.spec is not None
    again = gym.make(env.spec)
    assert again.action_space == env.action_space
    plain = RealtimeDelay(gym.make("CartPole-v1"), 2, 8, "repeat").spec
    assert plain is not None
    assert plain.additional_wrappers[-1].kwargs["default_action"] == "repeat"


@pytest.mark.parametrize("mean", [None, TemporalEnsemble()])
def test_a_copy_goes_on_with_the_same_chunks(mean: Any) -> None:
    terms: dict[str, Any] = {"latency": Played([150_000_000, 40_000_000]), "workers": 3, "fps": 20}
    terms |= {"default_action": Chunk(9, mean=mean)}
    env = RealtimeDelay(RecordingEnv(40, action_space=NUMBERS), **terms)
    observation, _ = env.reset(seed=0)
    for _ in range(3):
        observation, *_ = env.step(real_chunk(observation, 9))
    twin = deepcopy(env)
    for _ in range(4):
        chunk = real_chunk(observation, 9)
        observation, reward, *_, info = env.step(chunk)
        seen, twin_reward, *_, twin_info = twin.step(chunk)
        np.testing.assert_array_equal(seen, observation)
        assert twin_reward == reward
        np.testing.assert_array_equal(twin_info["realtime"]["executed"], info["realtime"]["executed"])
    np.testing.assert_array_equal(twin.unwrapped.actions, env.unwrapped.actions)

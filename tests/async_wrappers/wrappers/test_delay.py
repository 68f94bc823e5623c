"""Tests of async_wrappers/wrappers/delay.py: tables worked by hand, then one behaviour at a time.

See test_delay_oracle.py for the three rules on random schedules, environments and ends.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from gymnasium.wrappers import (
    FrameStackObservation,
    RecordEpisodeStatistics,
    RecordVideo,
    RenderCollection,
    TimeLimit,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from async_wrappers import PlainSchedule, RealtimeDelay, SimulatedSchedule, VectorRealtimeDelay
from async_wrappers.latency import LogNormal
from async_wrappers.schedule.stagger import Sequential
from tests.worlds.drifting_env import DriftingEnv
from tests.worlds.recording_env import FRAME, RecordingEnv

FRAMES = 6
REWARDS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)  # a sum says which frames are in it

# One line per step: what the environment receives on each frame of the step (a, b, c...: the action of the first,
# second, third... step; a dot: the no-op), the frame of the returned observation, the reward.
TABLES = {
    # s = 0 1 2 3 4 5, e = 0 1 2 3 4 5
    (0, 0): [("a", 1, 1), ("b", 2, 2), ("c", 3, 4), ("d", 4, 8), ("e", 5, 16), ("f", 6, 32)],
    # s = 0 2 4, e = 0 2 4
    (0, 1): [("a.", 2, 1 + 2), ("b.", 4, 4 + 8), ("c.", 6, 16 + 32)],
    # s = 0 3, e = 0 3
    (0, 2): [("a..", 3, 1 + 2 + 4), ("b..", 6, 8 + 16 + 32)],
    # s = 0 1 2 3 4 (5 is in flight at the end), e = 1 2 3 4 5
    (1, 0): [(".a", 1, 1 + 2), ("b", 2, 4), ("c", 3, 8), ("d", 4, 16), ("e", 5, 32)],
    # s = 0 2 4, e = 1 3 5; the next would start on frame 6, which is the end
    (1, 1): [(".a.", 2, 1 + 2 + 4), ("b.", 4, 8 + 16), ("c", 6, 32)],
    # s = 0 3, e = 1 4; the next would start on frame 6
    (1, 2): [(".a..", 3, 1 + 2 + 4 + 8), ("b.", 6, 16 + 32)],
    # s = 0 1 2 3 (4 and 5 are in flight at the end: 4 is due first), e = 2 3 4 5
    (2, 0): [("..a", 1, 1 + 2 + 4), ("b", 2, 8), ("c", 3, 16), ("d", 4, 32)],
    # s = 0 2 (4 is in flight at the end), e = 2 4
    (2, 1): [("..a.", 2, 1 + 2 + 4 + 8), ("b.", 4, 16 + 32)],
    # s = 0 3, e = 2 5; the next would start on frame 6
    (2, 2): [("..a..", 3, 1 + 2 + 4 + 8 + 16), ("b", 6, 32)],
}


def play(env: gym.Env[Any, Any], policy: Callable[[Any], Any], seed: int | None = None) -> list[tuple[Any, ...]]:
    """Play an episode; return what reset and each step returned."""
    returned: list[tuple[Any, ...]] = [env.reset(seed=seed)]
    over = False
    while not over:
        returned.append(env.step(policy(returned[-1][0])))
        over = returned[-1][2] or returned[-1][3]
    return returned


@pytest.mark.parametrize(("delay", "noops"), TABLES)
def test_each_step_follows_the_table_worked_by_hand(delay: int, noops: int) -> None:
    recorder = RecordingEnv(FRAMES, rewards=REWARDS, action_space=Discrete(8))
    dot = 7
    env = RealtimeDelay(recorder, delay, noops, default_action=dot)
    observation, _ = env.reset()
    assert observation[FRAME] == 0
    steps = []
    frames_before = 0
    terminated = False
    while not terminated:
        observation, reward, terminated, truncated, _ = env.step(len(steps))
        received = "".join("." if action == dot else "abcdef"[action] for action in recorder.actions[frames_before:])
        steps.append((received, observation[FRAME], reward))
        frames_before = len(recorder.actions)
        assert not truncated
    assert steps == TABLES[delay, noops]


def _info(frame: int) -> dict[str, Any]:
    return {"frame": frame, "nested": {"frames": [frame]}, "array": np.array([frame])}


def test_rewards_of_low_precision_are_summed_without_loss() -> None:
    rewards = [np.float32(2**24), *[np.float32(1)] * 9]
    env = RealtimeDelay(RecordingEnv(10, rewards=rewards), noops=9)
    assert float(play(env, lambda observation: 0)[-1][1]) == 2**24 + 9


@pytest.mark.parametrize(("delay", "noops"), [(0, 0), (4, 0), (0, 4), (4, 4)])
def test_a_step_before_the_first_reset_needs_a_reset(delay: int, noops: int) -> None:
    recorder = RecordingEnv(FRAMES)
    env = RealtimeDelay(recorder, delay, noops)
    with pytest.raises(ResetNeeded):
        env.step(0)
    assert recorder.episodes == []


@pytest.mark.parametrize("ends", [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize(("delay", "noops"), [(0, 0), (4, 0), (0, 4), (4, 4), (20, 0)])
def test_a_step_after_the_end_needs_a_reset_and_the_environment_is_not_stepped(
    delay: int, noops: int, ends: tuple[bool, bool]
) -> None:
    recorder = RecordingEnv(FRAMES, ends)
    env = RealtimeDelay(recorder, delay, noops)
    play(env, lambda observation: 0)
    for _ in range(2):
        with pytest.raises(ResetNeeded):
            env.step(0)
    assert len(recorder.actions) == FRAMES
    env.reset()
    env.step(0)


@pytest.mark.parametrize("reuse", [False, True])
@pytest.mark.parametrize(("delay", "noops"), [(3, 1), (0, 0), (0, 6), (40, 0), (40, 50)])
def test_what_was_returned_of_an_observations_frame_never_changes(delay: int, noops: int, reuse: bool) -> None:
    env = RealtimeDelay(RecordingEnv([30, 17], reuse=reuse), delay, noops)
    kept = []
    for _ in range(2):  # the next reset and its steps use the arrays of the last observation again
        kept += play(env, lambda observation: 0)
    assert kept[-1][-1]["realtime"]["start"] > 0
    for observation, *_, info in kept:
        assert observation[FRAME] == info["realtime"]["start"]
        assert info["realtime"]["observation_info"] == _info(info["realtime"]["start"])


class _NestedReusingEnv(gym.Env[Any, Any]):
    """Shows its frame's number in nested containers, the same objects each time."""

    observation_space = Dict(
        {"image": Box(0, 255, (2,), np.uint8), "pair": Tuple([Box(0, 255, (1,), np.uint8), Discrete(256)])}
    )
    action_space = Discrete(2)

    def __init__(self) -> None:
        self._observation: dict[str, Any] = {"image": np.zeros(2, np.uint8), "pair": (np.zeros(1, np.uint8), 0)}
        self._frame = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._frame = -1
        return self.step(0)[0], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._frame += 1
        self._observation["image"][:] = self._frame
        self._observation["pair"][0][:] = self._frame
        self._observation["pair"] = (self._observation["pair"][0], self._frame)
        return self._observation, 1.0, False, False, {}


def test_nested_observations_of_reused_arrays_are_safe() -> None:
    env = RealtimeDelay(_NestedReusingEnv(), delay=4, noops=1, default_action=0)
    kept = [env.reset()[0], *(env.step(1)[0] for _ in range(6))]
    for start, observation in zip(range(0, 14, 2), kept, strict=True):
        assert env.observation_space.contains(observation)
        assert observation["image"].tolist() == [start, start]
        assert observation["pair"][0].tolist() == [start]
        assert observation["pair"][1] == start


class _WritesLater(gym.Env[Any, Any]):
    """Shows its frame's number, and overwrites on each frame what it has shown before, where it still can.

    Args:
        way: How it still has it: the array, a view, what the array is a view of, the outcome, or a memory of C's.
    """

    observation_space = Box(0, 1_000, (2,), np.int64)
    action_space = Discrete(2)

    def __init__(self, way: str) -> None:
        self._way, self._frame = way, 0
        self._held: list[Any] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._frame, self._held = -1, []
        return self.step(0)[0], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        for held in self._held:
            numbers = held[0] if isinstance(held, tuple) else held
            numbers[:] = [999] * len(numbers)
        self._frame += 1
        whole = np.full(4, self._frame)
        if self._way == "base":
            self._held.append(whole)
            return whole[:2], 1.0, False, False, {}
        memory = (ctypes.c_int64 * 2)(self._frame, self._frame)
        array = np.ctypeslib.as_array(memory) if self._way == "memory" else np.full(2, self._frame)
        outcome = array, 1.0, False, False, dict[str, Any]()
        ways: dict[str, Any] = {"array": array, "view": array[:], "outcome": outcome, "memory": memory}
        if self._way in ways:
            self._held.append(ways[self._way])
        return outcome


@pytest.mark.parametrize("delay", [0, 3])
@pytest.mark.parametrize("way", ["array", "view", "base", "outcome", "memory", "nobody"])
def test_an_environment_may_write_into_what_it_has_shown(way: str, delay: int) -> None:
    env = RealtimeDelay(_WritesLater(way), delay, default_action=0)
    shown = [env.reset()[0], *(env.step(1)[0] for _ in range(9))]
    assert [observation.tolist() for observation in shown] == [[frame, frame] for frame in range(10)]


@pytest.mark.parametrize("delay", [0, 3])
def test_an_array_that_nobody_else_holds_is_not_copied(delay: int) -> None:
    game = _WritesLater("nobody")
    env = RealtimeDelay(game, delay, default_action=0)
    env.reset()
    env.step(1)
    made: list[int] = []
    step = game.step

    def noted(action: Any) -> Any:
        outcome = step(action)
        made.append(id(outcome[0]))
        return outcome

    game.step = noted  # type: ignore[method-assign]
    shown = [env.step(1)[0] for _ in range(9)]
    assert [id(observation) for observation in shown[delay:]] == made[: 9 - delay]


def test_random_defaults_start_again_with_a_seed_and_go_on_without() -> None:
    recorder = RecordingEnv(40)
    env = RealtimeDelay(recorder, delay=40, default_action="random")
    for seed in (3, None, 3, None, 4):
        env.reset(seed=seed)
        env.step(0)
    first, second, first_again, second_again, other = recorder.episodes
    assert first == first_again
    assert second == second_again
    assert first != second
    assert first != other


def test_random_defaults_leave_the_generators_of_the_environment_alone() -> None:
    recorder = RecordingEnv(100)
    recorder.action_space.seed(5)
    space_before = _state(recorder.action_space)
    env = RealtimeDelay(recorder, delay=4, noops=3, default_action="random")
    env.reset(seed=5)
    fresh = RecordingEnv()
    fresh.reset(seed=5)
    assert _state(recorder) == _state(fresh)
    for _ in range(10):
        env.step(0)
    assert _state(recorder) == _state(fresh)
    assert _state(recorder.action_space) == space_before
    assert env.action_space is recorder.action_space


def _state(owner: Any) -> dict[str, Any]:
    return deepcopy(owner.np_random.bit_generator.state)


def test_random_defaults_without_a_seed_are_not_the_next_draws_of_the_environments_action_space() -> None:
    recorder = RecordingEnv()
    recorder.action_space.seed(5)
    env = RealtimeDelay(recorder, delay=40, default_action="random")
    env.reset()
    env.step(0)
    assert recorder.actions[:40] != [env.action_space.sample() for _ in range(40)]


def test_random_defaults_are_another_stream_than_a_users_action_space_of_the_same_seed() -> None:
    recorder = RecordingEnv()
    env = RealtimeDelay(recorder, delay=40, default_action="random")
    env.reset(seed=5)
    env.step(0)
    space = deepcopy(recorder.action_space)
    space.seed(5)
    assert recorder.actions[:40] != [space.sample() for _ in range(40)]


def test_an_environment_that_is_never_delayed_behaves_as_if_unwrapped() -> None:
    bare = gym.make("CartPole-v1")
    env = RealtimeDelay(gym.make("CartPole-v1"))
    expected, got = (play(each, lambda observation: int(observation[1] < 0), seed=7) for each in (bare, env))
    assert len(got) == len(expected) > 20
    for mine, theirs in zip(got, expected, strict=True):
        np.testing.assert_array_equal(mine[0], theirs[0])
        assert mine[1:-1] == theirs[1:-1]


@pytest.mark.parametrize(("delay", "noops", "default_action"), [(0, 0, "noop"), (2, 1, "repeat"), (3, 0, "random")])
@pytest.mark.filterwarnings("ignore")
def test_gymnasiums_checker_is_content(delay: int, noops: int, default_action: str) -> None:
    check_env(RealtimeDelay(gym.make("CartPole-v1"), delay, noops, default_action), skip_render_check=True)


@pytest.mark.parametrize("arguments", [{}, {"delay": 3, "noops": 1, "default_action": 4}, {"delay": 2}])
def test_the_spec_of_a_wrapped_environment_makes_the_same_again(arguments: dict[str, Any], recording_id: str) -> None:
    env = RealtimeDelay(gym.make(recording_id, length=9), **arguments)
    again = gym.make(env.spec)  # type: ignore[arg-type]
    assert type(again) is RealtimeDelay
    assert again.spec == env.spec
    runs = []
    for each in (env, again):
        returned = play(each, lambda observation: observation[FRAME] % 5)
        runs.append(([(step[0].tolist(), *step[1:]) for step in returned], each.unwrapped.actions))
    assert runs[0] == runs[1]
    if arguments:
        expected = {"delay": 0, "noops": 0, "default_action": "noop", **arguments}
        assert expected.items() <= again.spec.additional_wrappers[-1].kwargs.items()


@pytest.fixture
def recording_id() -> Any:
    name = "AsyncWrappersRecording-v0"
    gym.register(name, entry_point=RecordingEnv, disable_env_checker=True)
    yield name
    del gym.registry[name]


@pytest.mark.parametrize("learn", ["before", "after"])
def test_a_strategy_that_waits_for_a_learner_is_refused(learn: str) -> None:
    """Its second inference would never start, and a step would not return."""
    env, sequential = gym.make("CartPole-v1"), Sequential(learn)
    sentence = rf"^stagger=Sequential\(learn='{learn}'\) waits for a learner, .*: give 'sequential'$"
    with pytest.raises(ValueError, match=sentence):
        RealtimeDelay(env, latency=0.06, fps=50, stagger=sequential, default_action="repeat")


def test_a_schedule_that_is_made_plays_as_its_arguments_do_and_is_left_alone() -> None:
    arguments: list[tuple[Any, dict[str, Any]]] = [
        (PlainSchedule(3, 1), {"delay": 3, "noops": 1}),
        (SimulatedSchedule(LogNormal(0.05, 0.5), 3, 60), {"latency": LogNormal(0.05, 0.5), "workers": 3, "fps": 60}),
    ]
    for schedule, same in arguments:
        played = []
        for terms in ({"schedule": schedule}, same, {"schedule": schedule}):
            recorder = RecordingEnv(length=40)
            env = RealtimeDelay(recorder, default_action="repeat", **terms)
            env.reset(seed=3)
            steps = [env.step(k % 5) for k in range(8)]
            played.append((recorder.episodes, [info["realtime"]["frame"] for *_, info in steps], env.counts))
        assert played[0] == played[1] == played[2]


def test_a_schedule_is_given_alone() -> None:
    sentence = r"^schedule must stand alone, got schedule=PlainSchedule.* beside delay, fps: leave one of them out$"
    with pytest.raises(ValueError, match=sentence):
        RealtimeDelay(RecordingEnv(), delay=2, fps=60, schedule=PlainSchedule(1))
    with pytest.raises(ValueError, match=r"^schedule must be a Plain.*, a Sim.* or a ServedStream, got 'plain'$"):
        RealtimeDelay(RecordingEnv(), schedule="plain")  # type: ignore[arg-type]


def test_a_time_limit_inside_counts_frames() -> None:
    recorder = RecordingEnv(1000)
    steps = play(RealtimeDelay(TimeLimit(recorder, 10), delay=2, noops=2), lambda observation: 0)[1:]
    assert steps[-1][2:4] == (False, True)
    assert len(recorder.actions) == 10
    assert len(steps) == 3  # frames 0 - 4, 5 - 7, 8 - 9


def test_a_time_limit_outside_counts_decisions() -> None:
    recorder = RecordingEnv(1000)
    env = TimeLimit(RealtimeDelay(recorder, delay=2, noops=2), 10)
    for _ in range(2):  # the limit ends what the delay thinks goes on: the next reset is in mid-episode
        steps = play(env, lambda observation: 0)[1:]
        assert steps[-1][2:4] == (False, True)
        assert len(steps) == 10
        assert len(recorder.actions) == 2 + 10 * 3


def test_episode_statistics_inside_count_frames_outside_decisions_and_the_return_is_the_same() -> None:
    rewards = [float(reward) for reward in range(20)]
    inside = RealtimeDelay(RecordEpisodeStatistics(RecordingEnv(20, rewards=rewards)), delay=2, noops=2)
    outside = RecordEpisodeStatistics(RealtimeDelay(RecordingEnv(20, rewards=rewards), delay=2, noops=2))
    inner, outer = (play(env, lambda observation: 0)[-1][-1]["episode"] for env in (inside, outside))
    assert inner["l"] == 20
    assert outer["l"] == 6  # frames 0 - 4, 5 - 7, 8 - 10, 11 - 13, 14 - 16, 17 - 19
    assert inner["r"] == outer["r"] == sum(rewards)


def test_a_frame_stack_inside_stacks_consecutive_frames() -> None:
    env = RealtimeDelay(FrameStackObservation(RecordingEnv(30), 3), delay=4, noops=1)
    stacks = [step[0][:, FRAME].tolist() for step in play(env, lambda observation: 0)]
    # The reset's frame is the padding. At the end, frame 30, the decision due next is the one of frame 26.
    assert stacks[:4] == [[0, 0, 0], [0, 1, 2], [2, 3, 4], [4, 5, 6]]
    assert stacks[-1] == [24, 25, 26]


def test_a_frame_stack_outside_stacks_the_observations_of_consecutive_decisions() -> None:
    env = FrameStackObservation(RealtimeDelay(RecordingEnv(30, reuse=True), delay=4, noops=1), 3)
    stacks = [step[0][:, FRAME].tolist() for step in play(env, lambda observation: 0)]
    assert stacks[:4] == [[0, 0, 0], [0, 0, 2], [0, 2, 4], [2, 4, 6]]
    assert stacks[-1] == [22, 24, 26]


def test_a_render_is_of_the_newest_frame() -> None:
    env = RealtimeDelay(RecordingEnv(render_mode="rgb_array"), delay=4, noops=1)
    env.reset()
    observation, *_ = env.step(0)
    assert observation[FRAME] == 2
    assert env.render()[0, 0, 0] == 6


def test_rendered_images_collected_inside_are_one_per_frame() -> None:
    env = RealtimeDelay(RenderCollection(RecordingEnv(12, render_mode="rgb_array")), delay=2, noops=2)
    play(env, lambda observation: 0)
    assert [image[0, 0, 0] for image in env.render()] == list(range(13))


def test_rendered_images_collected_outside_are_one_per_decision() -> None:
    env = RenderCollection(RealtimeDelay(RecordingEnv(12, render_mode="rgb_array"), delay=2, noops=2))
    play(env, lambda observation: 0)
    assert [image[0, 0, 0] for image in env.render()] == [0, 5, 8, 11, 12]


@pytest.mark.parametrize(("side", "images"), [("inside", 13), ("outside", 5)])
def test_a_video_recorded_inside_has_all_frames_and_one_recorded_outside_one_image_per_decision(
    side: str, images: int, tmp_path: Path
) -> None:
    pytest.importorskip("moviepy")
    recorder = RecordingEnv(12, render_mode="rgb_array")

    def record(env: gym.Env[Any, Any]) -> RecordVideo[Any, Any, Any]:
        return RecordVideo(env, str(tmp_path / "videos"), episode_trigger=lambda episode: True)

    if side == "inside":
        video = record(recorder)
        env: gym.Env[Any, Any] = RealtimeDelay(video, delay=2, noops=2)
    else:
        env = video = record(RealtimeDelay(recorder, delay=2, noops=2))
    lengths = []
    stop = video.stop_recording
    video.stop_recording = lambda: (lengths.append(len(video.recorded_frames)), stop())  # type: ignore[assignment]
    play(env, lambda observation: 0)
    env.close()
    assert lengths == [images]
    assert len(list(tmp_path.glob("videos/*.mp4"))) == 1
    # 12 frames at 60 a second; outside, an image stands for the three frames from one decision to the next.
    assert video.frames_per_sec == {"inside": 60, "outside": 20}[side]


def test_pictures_are_counted_once_for_each_decision_where_their_interval_is_constant() -> None:
    for arguments, rate in (({"delay": 3}, 60), ({"noops": 3}, 15), ({"delay": 2, "noops": 6}, 60 / 7)):
        assert RealtimeDelay(RecordingEnv(), **arguments).metadata["render_fps"] == rate
        vector = VectorRealtimeDelay(SyncVectorEnv([RecordingEnv] * 2), **arguments)
        assert vector.metadata["render_fps"] == rate
    assert RealtimeDelay(RecordingEnv(), latency=0.1, fps=60).metadata["render_fps"] == 60
    assert RecordingEnv.metadata["render_fps"] == 60
    assert "render_fps" not in RealtimeDelay(DriftingEnv(), noops=3, default_action=0).metadata


def test_the_infos_of_a_vector_hold_one_entry_per_environment() -> None:
    envs = SyncVectorEnv(
        [lambda noops=noops: RealtimeDelay(RecordingEnv(), delay=noops, noops=noops) for noops in (1, 2)]
    )
    envs.reset()
    *_, infos = envs.step(np.zeros(2, np.int64))
    assert infos["realtime"]["delay"].tolist() == [1, 2]
    assert infos["realtime"]["frame"].tolist() == infos["frame"].tolist() == [3, 5]
    assert infos["realtime"]["start"].tolist() == [2, 3]
    assert infos["realtime"]["applied"].tolist() == [True, True]
    assert infos["realtime"]["observation_info"]["frame"].tolist() == [2, 3]


REPORTED = ("effect_observation", "effect_info", "next_effect_observation")


@settings(max_examples=40, deadline=None)
@given(delay=st.integers(0, 6), noops=st.integers(0, 4), length=st.integers(1, 15), reuse=st.booleans())
def test_the_effect_is_what_was_shown_on_the_frame_on_which_the_action_landed(
    delay: int, noops: int, length: int, reuse: bool
) -> None:
    game = DriftingEnv(lengths=[length], reuse=reuse)
    env = RealtimeDelay(game, delay, noops, "random", report_effect=True)
    env.reset(seed=0)
    over, found, coming = False, [], []
    while not over:
        *_, terminated, truncated, info = env.step(1)
        over, realtime = terminated or truncated, info["realtime"]
        found.append((realtime.get("effect_observation"), realtime.get("effect_info")))
        coming.append(realtime["next_effect_observation"])
        assert {name for name in REPORTED if name in realtime} == set(REPORTED if realtime["applied"] else REPORTED[2:])
    shown = game.lives[-1].observations
    effects = [*range(delay, length, noops + 1)]
    assert len(found) == max(len(effects), 1)
    for effect, (observation, effect_info) in zip(effects, found, strict=False):
        np.testing.assert_array_equal(observation, shown[effect])
        assert effect_info == {}
    for effect, observation in zip([*effects[1:], length], coming, strict=True):
        np.testing.assert_array_equal(observation, shown[effect])
    if not effects:
        assert found == [(None, None)]


def test_the_effect_is_reported_where_it_is_asked_for_alone_and_changes_nothing_else() -> None:
    runs = []
    for asked in (False, True):
        env = RealtimeDelay(DriftingEnv(), 2, 1, "random", **({"report_effect": True} if asked else {}))
        seen = []
        for seed in range(5):
            observation, info = env.reset(seed=seed)
            over = False
            while not over:
                observation, reward, terminated, truncated, info = env.step(0)
                over = terminated or truncated
                realtime = dict(info["realtime"])
                reported = [name for name in REPORTED if realtime.pop(name, None) is not None]
                assert reported == list(REPORTED if realtime["applied"] else REPORTED[2:])[: 3 * asked]
                seen.append((observation.tolist(), reward, realtime))
        runs.append(seen)
    assert runs[0] == runs[1]


@pytest.mark.parametrize(
    "space",
    [
        Discrete(9),
        Box(0, 255, (2,), np.uint8),
        Box(-1, 1, (2, 1), np.float32),
        Dict({"image": Box(0, 255, (1, 2), np.uint8), "mode": Discrete(3)}),
        Tuple([Discrete(3), MultiDiscrete([2, 2])]),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])
def test_in_a_vector_an_episode_may_end_before_its_first_action_lands(kind: Any, space: Any) -> None:
    """In one sub-environment of two no action ever lands."""

    class Showing(RecordingEnv):
        def show(self) -> Any:
            return space.sample(), {}

    def make(length: int) -> Any:
        env = Showing(length)
        env.observation_space = space
        return RealtimeDelay(env, 3, report_effect=True)

    vector = kind([partial(make, 2), partial(make, 5)])
    try:
        vector.reset(seed=0)
        landed = np.zeros(2, bool)
        for _ in range(6):
            realtime = vector.step(np.zeros(2, np.int64))[-1].get("realtime", {})
            if (applied := realtime.get("applied")) is not None:
                assert realtime.get("_effect_observation", np.zeros(2, bool)).tolist() == applied.tolist()
                landed |= applied
        assert landed.tolist() == [False, True]
    finally:
        vector.close()


def test_reporting_the_effect_is_true_or_false() -> None:
    with pytest.raises(ValueError, match="report_effect must be True or False, got 'yes'"):
        RealtimeDelay(DriftingEnv(), report_effect="yes")  # type: ignore[arg-type]


def test_under_random_latencies_the_effect_is_the_frame_at_which_the_interval_begins() -> None:
    game = DriftingEnv()
    latency = LogNormal(mean=0.05, cv=0.5)
    env = RealtimeDelay(game, latency=latency, workers=3, fps=60, default_action="random", report_effect=True)
    for seed in range(10):
        env.reset(seed=seed)
        over = False
        while not over:
            *_, terminated, truncated, info = env.step(0)
            over, realtime = terminated or truncated, info["realtime"]
            if realtime["applied"]:
                shown = game.lives[-1].observations[realtime["frame"] - realtime["interval"]]
                np.testing.assert_array_equal(realtime["effect_observation"], shown)


def test_the_wrapper_has_no_more_attributes_than_python_keeps_in_an_object() -> None:
    env = RealtimeDelay(DriftingEnv(), 2, default_action="random", report_effect=True)
    env.reset(seed=0)
    env.step(0)
    assert len(vars(env)) <= 30

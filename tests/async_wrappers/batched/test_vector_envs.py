"""`VectorEnvs` and `DoubleBuffered`: which rows are shown when."""

from __future__ import annotations

import threading
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

from async_wrappers import RealtimeDelay, VectorRealtimeDelay
from async_wrappers.batched.double_buffered import DoubleBuffered
from async_wrappers.batched.vector_envs import VectorEnvs
from tests.worlds.recording_env import RecordingEnv
from tests.worlds.seeded_env import SeededEnv

NEXT_STEP, SAME_STEP, DISABLED = AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED


def vector_of(*lengths: int, mode: AutoresetMode = NEXT_STEP, **kwargs: Any) -> SyncVectorEnv:
    makers = [lambda length=length: RecordingEnv(length, **kwargs) for length in lengths]
    return SyncVectorEnv(makers, autoreset_mode=mode)


def answer(envs: Any, shown: Any) -> None:
    envs.send(shown.env_ids, np.zeros(len(shown.env_ids), np.int64))


def test_a_row_is_held_back_while_a_next_step_vector_resets_it() -> None:
    envs = VectorEnvs(vector_of(2, 3))
    envs.begin([0, 0])
    seen = []
    for _ in range(6):
        shown = envs.recv()
        seen.append((shown.env_ids.tolist(), shown.terminal.tolist(), shown.observation[:, 1].tolist()))
        answer(envs, shown)
    no = [False, False]
    assert seen == [
        ([0, 1], no, [0, 0]),
        ([0, 1], no, [1, 1]),
        ([1], [False], [2]),  # 0 has ended
        ([0], [True], [0]),  # and 1 has
        ([0, 1], [False, True], [1, 0]),
        ([1], [False], [1]),
    ]


def test_where_all_rows_are_held_back_the_vector_steps_on_at_once() -> None:
    envs = VectorEnvs(vector_of(1, 1))
    envs.begin([0, 0])
    for number in range(4):
        shown = envs.recv()
        assert shown.env_ids.tolist() == [0, 1]
        assert shown.terminal.all() == (number > 0)
        assert [final[1] for final in shown.final.values()] == [1, 1][: 2 * (number > 0)]
        answer(envs, shown)


def test_both_flags_of_an_end_are_shown() -> None:
    for mode in AutoresetMode:
        envs = VectorEnvs(vector_of(1, mode=mode, ends=(True, True)))
        envs.begin([0])
        answer(envs, envs.recv())
        shown = envs.recv()
        assert (shown.terminal[0], shown.truncated[0], shown.first[0], shown.reward[0]) == (True, True, True, 1.0)


def test_an_end_shows_the_last_info_and_the_frames_of_its_episode() -> None:
    for mode in AutoresetMode:
        envs = VectorEnvs(vector_of(2, mode=mode))
        envs.begin([0])
        for _ in range(2):
            answer(envs, envs.recv())
        info = envs.recv().info[0]
        assert info["frame"] == 2
        assert info["realtime"] == {"start": 2, "frame": 2, "interval": 1, "applied": True}


def test_under_delay_they_are_those_of_the_wrapper() -> None:
    def make() -> gym.Env[Any, Any]:
        return RealtimeDelay(RecordingEnv(5), delay=2, noops=1)

    env = make()
    env.reset()
    expected = [env.step(0)[4] for _ in range(2)][1]["realtime"]
    for mode in AutoresetMode:
        envs = VectorEnvs(SyncVectorEnv([make], autoreset_mode=mode))
        envs.begin([0])
        for _ in range(2):
            answer(envs, envs.recv())
        shown = envs.recv()
        assert {key: shown.info[0]["realtime"][key] for key in ("start", "frame", "interval")} == {
            key: expected[key] for key in ("start", "frame", "interval")
        }
        assert shown.realtime["interval"].tolist() == [expected["interval"]]
        assert (shown.realtime["start"].tolist(), shown.realtime["applied"].tolist()) == ([0], [True])


@settings(max_examples=40, deadline=None, database=None)
@given(
    mode=st.sampled_from(AutoresetMode),
    delay=st.integers(0, 4),
    noops=st.integers(0, 3),
    num_envs=st.integers(1, 4),
    calls=st.integers(1, 15),
    answer_last=st.booleans(),
    where=st.sampled_from(["inside", "outside", "of each row", "of each episode"]),
)
def test_whatever_the_delay_all_that_is_paid_is_accounted_for(
    mode: AutoresetMode, delay: int, noops: int, num_envs: int, calls: int, answer_last: bool, where: str
) -> None:
    inside = where == "inside"

    def make() -> gym.Env[Any, Any]:
        return RealtimeDelay(SeededEnv(), delay, noops) if inside else SeededEnv()

    vector: Any = SyncVectorEnv([make] * num_envs, autoreset_mode=mode)
    if where == "outside":
        vector = VectorRealtimeDelay(vector, delay, noops)
    elif not inside:
        delays = [delay + row % 3 for row in range(num_envs)] if where == "of each row" else range(delay, delay + 3)
        vector = VectorRealtimeDelay(vector, delays)
    envs = VectorEnvs(vector)
    envs.begin(range(num_envs))
    total, acted, ended = 0.0, np.zeros(num_envs, int), np.zeros(num_envs, int)
    for call in range(calls):
        shown = envs.recv()
        assert len(shown.env_ids)
        total += shown.reward.sum() + shown.realtime["unreported_reward"].sum()
        # A row is shown when its decision counts: each of its actions takes effect, or its episode ends before.
        over = shown.terminal | shown.truncated
        assert (shown.realtime["applied"] | over | (acted[shown.env_ids] == 0)).all()
        ended[shown.env_ids] += over
        if call < calls - 1 or answer_last:
            answer(envs, shown)
            acted[shown.env_ids] += 1
    cut = envs.cut()
    total += cut.reward.sum() + cut.realtime["unreported_reward"].sum()
    assert total == pytest.approx(sum(env.unwrapped.paid for env in vector.unwrapped.envs))
    assert (cut.terminal | cut.truncated).all()


@pytest.mark.parametrize("mode", [NEXT_STEP, SAME_STEP, DISABLED])
def test_a_delay_that_no_episode_outlasts_is_refused(mode: AutoresetMode) -> None:
    envs = VectorEnvs(VectorRealtimeDelay(vector_of(5, 3, mode=mode), 8, default_action="noop"))
    envs.begin([0, 0])
    with pytest.raises(ValueError, match=r"^the delay of a vector must be shorter than its episodes, got 100 episodes"):
        for _ in range(3):
            answer(envs, envs.recv())


@pytest.mark.parametrize("terms", [{"delay": [1, 2], "noops": [0, 1]}, {"latency": 0.1, "fps": 50, "per": "frame"}])
def test_rows_whose_decisions_outlast_a_step_are_refused(terms: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^vector must decide on each frame of an episode, got rows with noops"):
        VectorEnvs(VectorRealtimeDelay(vector_of(5, 2), default_action="noop", **terms))


def test_what_is_no_vector_is_refused() -> None:
    with pytest.raises(ValueError, match=r"vector must be a gymnasium\.vector\.VectorEnv, got"):
        VectorEnvs(SeededEnv())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="the action space must be a Box"):
        VectorEnvs(SyncVectorEnv([lambda: SeededEnv(action_space=gym.spaces.Text(4))]))


def test_actions_with_a_fraction_are_refused_where_whole_numbers_are_wanted() -> None:
    for lengths in ((2, 3), (1, 3)):
        envs = VectorEnvs(vector_of(*lengths))
        envs.begin([0, 0])
        answer(envs, envs.recv())
        shown = envs.recv()
        with pytest.raises(TypeError, match="Cannot cast"):
            envs.send(shown.env_ids, np.full(len(shown.env_ids), 0.5))


def test_an_exception_of_an_environment_passes_through_and_the_next_beginning_is_clean() -> None:
    class Shut(SeededEnv):
        def step(self, action: Any) -> Any:
            if action == 2:
                raise KeyError("shut")
            return super().step(action)

    for ahead in (False, True):
        envs = VectorEnvs(SyncVectorEnv([Shut]))
        if ahead:
            envs.work_ahead()
        envs.begin([3])
        first = envs.recv()
        envs.send(first.env_ids, np.array([2]))
        with pytest.raises(KeyError, match="shut"):
            envs.recv()
        with pytest.raises(RuntimeError, match="no episodes are running"):
            envs.recv()
        envs.begin([3])
        np.testing.assert_array_equal(envs.recv().observation, first.observation)
        envs.close()


def test_halves_take_turns_and_one_steps_while_the_other_is_answered() -> None:
    stepping = threading.Event()

    class Notes(SeededEnv):
        def step(self, action: Any) -> Any:
            stepping.set()
            return super().step(action)

    a, b = (VectorEnvs(SyncVectorEnv([Notes] * n, autoreset_mode=SAME_STEP)) for n in (2, 1))
    envs = DoubleBuffered(a, b)
    assert envs.num_envs == 3
    envs.begin([1, 2, 3])
    for _ in range(3):
        of_a = envs.recv()
        assert of_a.env_ids.tolist() == [0, 1]
        stepping.clear()
        answer(envs, of_a)
        assert stepping.wait(30)  # nobody has asked for its rows
        of_b = envs.recv()
        assert of_b.env_ids.tolist() == [2]
        answer(envs, of_b)
    envs.close()


def test_halves_that_do_not_fit_are_refused() -> None:
    a = VectorEnvs(SyncVectorEnv([SeededEnv]))
    with pytest.raises(ValueError, match="b must be other environments than a"):
        DoubleBuffered(a, a)
    with pytest.raises(ValueError, match="b must have the observation_space of a"):
        DoubleBuffered(a, VectorEnvs(SyncVectorEnv([lambda: SeededEnv("dict")])))
    envs = DoubleBuffered(a, VectorEnvs(SyncVectorEnv([SeededEnv])))
    envs.begin([0, 0])
    envs.recv()
    with pytest.raises(ValueError, match="env_ids must be those of the last recv"):
        envs.send(np.array([], np.int64), np.array([]))
    envs.close()

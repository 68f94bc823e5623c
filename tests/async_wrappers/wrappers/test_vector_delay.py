"""Tests of async_wrappers/wrappers/vector_delay.py: a table worked by hand, then one behaviour at a time.

See test_vector_oracle.py for the three rules on random vectors, schedules and ends.
"""

from __future__ import annotations

import doctest
import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from ale_py.vector_env import AtariVectorEnv
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Box, Dict, Discrete, Tuple
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TransformAction
from gymnasium.wrappers.vector import (
    DictInfoToList,
    NormalizeObservation,
    RecordEpisodeStatistics,
    VectorizeTransformAction,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import async_wrappers.wrappers.vector_delay
from async_wrappers import RealtimeDelay, VectorRealtimeDelay
from tests.worlds.hashing_policy import policy
from tests.worlds.recording_env import EPISODE, FRAME, NOOP, RecordingEnv
from tests.worlds.vector_world import WORLDS, World, info_of, plain

NEXT_STEP, SAME_STEP, DISABLED = AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED


def sync(*recorders: gym.Env[Any, Any], mode: AutoresetMode = NEXT_STEP) -> SyncVectorEnv:
    return SyncVectorEnv([lambda recorder=recorder: recorder for recorder in recorders], autoreset_mode=mode)


def policies(observations: Any) -> Any:
    return np.array([policy(observation) for observation in observations])


class Spy(gym.vector.VectorWrapper):
    """Writes down what goes in and comes out, frame by frame."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.actions: list[Any] = []
        self.returned: list[Any] = []

    def step(self, actions: Any) -> Any:
        self.actions.append(np.array(actions))
        self.returned.append(super().step(actions))
        return self.returned[-1]


# ----------------------------------------------------------------------------------------------------- by hand

# delay 2, noops 1, wrapped in SAME_STEP: boundaries are frames 0, 2, 4..., actions land on frames 2, 4, 6...
# Sub-environment 1 has episodes of 5 frames (a new one begins at 5, 10, 15...), the other never ends.
REWARDS = (1.0, 2.0, 4.0, 8.0, 16.0)  # a sum tells which frames are in it
# Per step, of sub-environment 1: received on the step's frames (a letter: the agent's action, a dot: the default one),
# applied, reward, terminated, deciding, frame, start, and the frame of the final observation.
BY_HAND = [
    # frames 0 - 3; boundary 2 is decided on next
    ("..a.", True, 1 + 2 + 4 + 8, False, True, 4, 2, None),
    # frames 4 and 5; the end after frame 4; frame 5 is the next episode's 0, boundary 6 its first: start 1
    ("b.", True, 16, True, False, 1, -1, 4),
    # frames 6 and 7: of nobody, until decision 0 lands on frame 8
    ("..", False, 0, False, True, 3, 1, None),
    # frames 8 and 9 are 3 and 4: the end; the next decision would have started on boundary 8, frame 3
    ("d.", True, 1 + 2 + 4 + 8 + 16, True, False, 0, -1, 3),
    # frames 10 and 11; the episode began on boundary 10, which is the next to be decided on, and lands on 12
    ("..", False, 0, False, True, 2, 0, None),
]


def test_each_step_follows_the_table_worked_by_hand() -> None:
    recorders = [RecordingEnv(action_space=Discrete(9)), RecordingEnv(5, rewards=REWARDS, action_space=Discrete(9))]
    env = VectorRealtimeDelay(sync(*recorders, mode=SAME_STEP), delay=2, noops=1, default_action=8)
    env.reset()
    table, before = [], 0
    for step in range(5):
        _, rewards, terminated, _, info = env.step(np.array([step, step]))
        sent = [action for episode in recorders[1].episodes for action in episode]
        received = "".join("." if action == 8 else "abcde"[action] for action in sent[before:])
        before = len(sent)
        applied, *now = (info["realtime"][key][1] for key in ("applied", "deciding", "frame", "start"))
        final = info["final_obs"][1][FRAME] if terminated[1] else None
        table.append((received, applied, rewards[1], terminated[1], *now, final))
        assert info["realtime"]["applied"][0]  # the other one goes on
        assert info["realtime"]["deciding"][0]
    assert table == BY_HAND


def test_over_next_step_the_step_after_a_reported_end_reports_none() -> None:
    # delay 3, noops 1: steps run frames 0 - 4, 5 and 6, 7 and 8, 9 and 10. Episodes are on frames 0 - 4, 6, and 8 - ...
    env = VectorRealtimeDelay(sync(RecordingEnv([5, 1, 100], rewards=REWARDS)), delay=3, noops=1)
    assert env.metadata["autoreset_mode"] is NEXT_STEP
    env.reset()
    table = []
    for _ in range(4):
        _, rewards, terminated, _, info = env.step(np.array([0]))
        keys = ("unreported_episodes", "unreported_reward", "carried_reward", "deciding", "frame")
        table.append((rewards[0], terminated[0], *(info["realtime"][key][0] for key in keys)))
    assert table == [
        (31, True, 0, 0, 0, False, 5),
        (0, False, 1, 1, 0, False, 0),
        (0, False, 0, 0, 1, False, 1),
        (0, False, 0, 0, 1 + 2 + 4, True, 3),
    ]


def test_what_is_paid_on_the_frame_of_a_reset_belongs_to_no_episode() -> None:
    class Tip(gym.vector.VectorWrapper):
        def step(self, actions: Any) -> Any:
            observations, rewards, *returned = super().step(actions)
            return (observations, rewards + 100.0 * (observations[:, FRAME] == 0), *returned)

    env = VectorRealtimeDelay(Tip(sync(RecordingEnv(4))), delay=1, noops=1)
    env.reset()
    rewards = [float(env.step(np.array([0]))[1][0]) for _ in range(6)]
    # frames 0 - 2, 3 and 4, 5 and 6, 7 and 8, ...: episodes begin on frames 0, 5, 10; 4 and 9 are the resets'
    assert rewards == [3, 1, 0, 4, 0, 3]


# ----------------------------------------------------------------------------- where it must be what it wraps


def same(mine: Any, theirs: Any) -> bool:
    """Return whether two values are equal, types and all."""
    if type(mine) is not type(theirs):
        return False
    if isinstance(mine, dict):
        return mine.keys() == theirs.keys() and all(same(mine[key], theirs[key]) for key in mine)
    if isinstance(mine, tuple):
        return len(mine) == len(theirs) and all(map(same, mine, theirs))
    if isinstance(mine, np.ndarray) and mine.dtype == theirs.dtype == object:
        return mine.shape == theirs.shape and all(map(same, mine, theirs))
    if isinstance(mine, np.ndarray):
        return mine.dtype == theirs.dtype and np.array_equal(mine, theirs)
    return bool(mine == theirs)


def without_realtime(info: dict[str, Any]) -> dict[str, Any]:
    return {
        key: without_realtime(value) if isinstance(value, dict) else value
        for key, value in info.items()
        if key not in ("realtime", "_realtime")
    }


def test_the_comparison_tells_types_and_values_apart() -> None:
    one = {"a": np.array([1, 2]), "b": ({"c": 1.0},), "d": np.array([None, np.zeros(2)], object)}
    assert same(one, {"a": np.array([1, 2]), "b": ({"c": 1.0},), "d": np.array([None, np.zeros(2)], object)})
    for other in ({"a": np.array([1.0, 2])}, {"a": np.array([1, 3])}, {"b": ({"c": 1},)}, {"e": 1}):
        assert not same(one, one | other)
    assert not same(one, one | {"d": np.array([None, np.ones(2)], object)})


@settings(max_examples=30, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    world=WORLDS,
    mode=st.sampled_from(AutoresetMode),
    cuts=st.lists(st.sampled_from([None, 0, 1]), min_size=30, max_size=30),
)
def test_without_delay_and_noops_it_behaves_as_the_wrapped_environment(
    world: World, mode: AutoresetMode, cuts: list[int | None]
) -> None:
    bare = sync(*(sub.make() for sub in world.subs), mode=mode)
    env = VectorRealtimeDelay(sync(*(sub.make() for sub in world.subs), mode=mode), default_action="not looked up")
    assert env.metadata == bare.metadata
    both = [bare, env]
    expected, got = (each.reset(seed=3, options={}) for each in both)
    assert same(without_realtime(got[1]), expected[1])
    for cut in cuts:
        actions = policies(expected[0])
        expected, got = (each.step(actions) for each in both)
        assert same((*got[:-1], without_realtime(got[-1])), expected)
        over = expected[2] | expected[3]
        chosen = over if mode is DISABLED else np.arange(len(world.subs)) % 2 == cut  # cut some short elsewhere
        if chosen.any():
            expected, got = (each.reset(options={"reset_mask": chosen.copy()}) for each in both)
            assert same((got[0], without_realtime(got[1])), expected)
    ours, theirs = ([one.episodes for one in each.unwrapped.envs] for each in both)
    assert ours == theirs


@pytest.mark.parametrize("mode", [NEXT_STEP, SAME_STEP])
def test_without_delay_and_noops_it_behaves_as_ataris_vector(mode: AutoresetMode) -> None:
    bare, inner = (
        AtariVectorEnv("boxing", 2, autoreset_mode=mode, max_num_frames_per_episode=60, num_threads=1) for _ in range(2)
    )
    env = VectorRealtimeDelay(inner)
    expected, got = (each.reset(seed=3) for each in (bare, env))
    assert same((got[0], without_realtime(got[1])), expected)
    ends = 0
    for step in range(40):
        actions = np.array([step % 18, 17 - step % 18])
        expected, got = (each.step(actions) for each in (bare, env))
        over = expected[2] | expected[3]
        infos = [without_realtime(each[-1]) for each in (got, expected)]
        finals = [info.pop("final_obs", np.zeros(2)) for info in infos]
        assert same(finals[0][over], finals[1][over])
        assert set(infos[0]) - set(infos[1]) <= {"_final_obs", "final_info", "_final_info"}
        assert same((*got[:-1], {key: infos[0][key] for key in infos[1]}), (*expected[:-1], infos[1]))
        ends += int(over.sum())
    assert ends >= 2


# ------------------------------------------------------------------------------- beside RealtimeDelay, one by one


def test_random_defaults_of_one_sub_environment_do_not_depend_on_the_ends_of_another() -> None:
    logs = []
    for length in (None, 3):
        recorders = [RecordingEnv(length), RecordingEnv()]
        env = VectorRealtimeDelay(sync(*recorders), delay=3, noops=2, default_action="random")
        env.reset(seed=5)
        for _ in range(20):
            env.step(np.zeros(2, np.int64))
        logs.append(recorders[1].actions)
    assert logs[0] == logs[1]
    assert len(set(logs[0])) == 5


def test_random_defaults_start_again_with_a_seed_go_on_without_and_take_a_seed_each() -> None:
    recorders = [RecordingEnv(), RecordingEnv()]
    env = VectorRealtimeDelay(sync(*recorders), delay=40, default_action="random")
    for seed in (7, None, 7, [7, 8], [8, 7], [7, None]):
        env.reset(seed=seed)
        env.step(np.zeros(2, np.int64))
    first, second = (recorder.episodes for recorder in recorders)
    assert first[0] == first[2] == first[3] == first[5]
    assert second[0] == second[2] == second[3] == first[4]
    assert first[0] == second[4]
    assert second[5] == first[1]  # both go on after a seed of 7
    assert len({tuple(log) for log in (first[0], first[1], second[0], second[1])}) == 4
    alone = RealtimeDelay(RecordingEnv(), delay=40, default_action="random")
    alone.reset(seed=7)
    alone.step(0)
    assert alone.unwrapped.actions == first[0]


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize(("delay", "noops"), [(0, 0), (3, 1), (1, 4)])
def test_sub_environments_that_are_wrapped_one_by_one_do_what_each_does_alone(
    mode: AutoresetMode, delay: int, noops: int
) -> None:
    def alone(env: RealtimeDelay, episodes: int, seed: int) -> None:
        for episode in range(episodes):
            observation, _ = env.reset(seed=seed if episode == 0 else None)
            over = False
            while not over:
                observation, _, terminated, truncated, _ = env.step(policy(observation))
                over = terminated or truncated

    lengths = ([9, 2], [14], [1, 4, 30])
    recorders = [RecordingEnv(length) for length in lengths]
    env = sync(*(RealtimeDelay(recorder, delay, noops, "random") for recorder in recorders), mode=mode)
    observations, _ = env.reset(seed=3)
    returns: list[list[float]] = [[0.0] for _ in lengths]
    for _ in range(40):
        observations, rewards, terminated, truncated, _ = env.step(policies(observations))
        for i, over in enumerate(terminated | truncated):
            returns[i][-1] += rewards[i]
            if over:
                returns[i].append(0.0)
        if mode is DISABLED and terminated.any():
            observations, _ = env.reset(options={"reset_mask": terminated})
    for i, length in enumerate(lengths):
        recorder = RecordingEnv(length)
        alone(RealtimeDelay(recorder, delay, noops, "random"), len(recorders[i].episodes), 3 + i)
        assert len(recorders[i].episodes) > 2
        for mine, others in zip(recorders[i].episodes, recorder.episodes, strict=True):
            assert mine == others[: len(mine)]
        assert returns[i][:-1] == [length[episode % len(length)] for episode in range(len(returns[i]) - 1)]


# ----------------------------------------------------------------------------------------- default actions


def noops_received(vector: Any, frames: int = 3) -> Any:
    spy = Spy(vector)
    env = VectorRealtimeDelay(spy, delay=frames)
    env.reset(seed=0)
    env.step(env.action_space.sample())
    env.close()
    return [actions.tolist() for actions in spy.actions[:frames]]


def test_noop_is_the_action_of_that_name_whatever_the_vector() -> None:
    assert noops_received(sync(RecordingEnv(), RecordingEnv())) == [[NOOP, NOOP]] * 3
    assert noops_received(AsyncVectorEnv([RecordingEnv] * 2)) == [[NOOP, NOOP]] * 3
    assert noops_received(AtariVectorEnv("boxing", 2)) == [[0, 0]] * 3
    assert np.array_equal(noops_received(AtariVectorEnv("boxing", 2, continuous=True)), np.zeros((3, 2, 3)))


def test_noop_is_looked_up_in_each_environment_by_itself() -> None:
    class Turned(RecordingEnv):
        def get_action_meanings(self) -> list[str]:
            return [*super().get_action_meanings()[::-1][1:], "UP"]

    assert noops_received(sync(RecordingEnv(), Turned())) == [[NOOP, 1]] * 3


def test_noop_is_refused_where_a_vectors_wrapper_gives_the_actions_another_meaning() -> None:
    space = Discrete(5)
    vector = VectorizeTransformAction(
        sync(RecordingEnv()), TransformAction, func=lambda action: 4 - action, action_space=space
    )
    with pytest.raises(ValueError, match=r"default_action='noop'.*SyncVectorEnv.*Discrete\(5\)"):
        VectorRealtimeDelay(vector, delay=1)


@pytest.mark.parametrize("vectorization_mode", ["sync", "async", "vector_entry_point"])
def test_noop_is_refused_for_cartpole(vectorization_mode: str) -> None:
    vector = gym.make_vec("CartPole-v1", num_envs=2, vectorization_mode=vectorization_mode)
    with pytest.raises(ValueError, match=r"default_action='noop'.*CartPole.*Discrete\(2\).*'repeat'"):
        VectorRealtimeDelay(vector, delay=1)
    vector.close()


@pytest.mark.parametrize("mode", AutoresetMode)
def test_the_frame_on_which_a_sub_environment_resets_is_asked_for_no_default_action(mode: AutoresetMode) -> None:
    asked: list[int] = []

    def reflex(observation: Any, last_action: Any) -> int:
        asked.append(int(observation[FRAME]))
        return 3

    recorder = RecordingEnv(2)
    env = VectorRealtimeDelay(sync(recorder, mode=mode), delay=100, default_action=reflex)
    env.reset()
    env.step(np.array([0]))
    assert asked == [frame for episode in recorder.episodes for frame in range(len(episode))]
    assert len(recorder.episodes) >= 100 // 3


class _NestedEnv(RecordingEnv):
    """Has dictionaries for observations and actions."""

    def __init__(self, length: int | None = None) -> None:
        super().__init__(length, action_space=Dict({"a": Discrete(3), "b": Tuple([Box(-1, 1, (2,)), Discrete(2)])}))
        self.observation_space = Dict({"now": self.observation_space, "pair": Tuple([Discrete(10**6), Discrete(9)])})

    def show(self) -> tuple[Any, dict[str, Any]]:
        array, info = super().show()
        return {"now": array, "pair": (int(array[FRAME]), int(array[EPISODE]))}, info


@pytest.mark.parametrize("mode", [NEXT_STEP, SAME_STEP, DISABLED])
@pytest.mark.parametrize(("delay", "noops", "default_action"), [(3, 1, "repeat"), (1, 3, "random")])
def test_nested_observations_and_actions_go_through(
    mode: AutoresetMode, delay: int, noops: int, default_action: str
) -> None:
    recorders = [_NestedEnv(6), _NestedEnv()]
    env = VectorRealtimeDelay(sync(*recorders, mode=mode), delay, noops, default_action)
    env.action_space.seed(0)
    observations, _ = env.reset(seed=0)
    sent, ends = [], 0
    for _ in range(10):
        assert env.observation_space.contains(observations)
        action = env.action_space.sample()
        sent.append(int(action["a"][1]))
        observations, _, terminated, _, info = env.step(action)
        deciding = info["realtime"]["deciding"]
        assert observations["now"][deciding, FRAME].tolist() == info["realtime"]["start"][deciding].tolist()
        assert observations["pair"][0].tolist() == observations["now"][:, FRAME].tolist()
        if terminated[0]:
            ends += 1
            final = info["final_obs"][0] if "final_obs" in info else None
            if env.metadata["autoreset_mode"] is SAME_STEP:
                assert final["pair"][0] == final["now"][FRAME] == info["final_info"]["realtime"]["start"][0]
            else:
                assert observations["now"][0, FRAME] == info["realtime"]["start"][0]
    assert ends >= 2
    assert [action["a"] for action in recorders[1].actions[delay :: noops + 1]] == sent
    assert all(recorders[1].action_space.contains(action) for action in recorders[1].actions)


# --------------------------------------------------------------------------------------- a reset of some of them


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize(("delay", "noops"), [(0, 2), (3, 0), (4, 2), (2, 4)])
@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_reset_of_some_begins_their_schedule_at_the_next_boundary_and_leaves_the_others_alone(
    mode: AutoresetMode, delay: int, noops: int, after: int
) -> None:
    def played(resets: bool) -> tuple[list[Any], list[RecordingEnv]]:
        recorders = [RecordingEnv(), RecordingEnv()]
        env = VectorRealtimeDelay(sync(*recorders, mode=mode), delay, noops)
        observations, _ = env.reset()
        seen = []
        for step in range(10):
            if step == after and resets:
                observations, info = env.reset(options={"reset_mask": np.array([True, False])})
                assert info["realtime"]["deciding"][1]
                begin = info["realtime"]["frame"][1]  # of the vector's frames: its episode began with them
                assert info["realtime"]["frame"][0] == 0
                on_boundary = begin == step * (noops + 1)
                assert info["realtime"]["deciding"][0] == on_boundary
                seen.append((begin, observations[0, EPISODE]))
                assert observations[0, EPISODE] == on_boundary
            observations, _, _, _, info = env.step(policies(observations))
            seen.append((plain(observations[1]), info_of(info, 1)["realtime"]["observation_info"]))
        return seen, recorders

    with_reset, recorders = played(True)
    (begin, _) = with_reset.pop(after)
    without, others = played(False)
    assert with_reset == without
    assert recorders[1].episodes == others[1].episodes
    m = noops + 1
    first = -(-begin // m) * m - begin  # the frame of the new episode that its decision 0 reads
    alone = RecordingEnv()
    observation, _ = alone.reset()
    alone.episode = 1
    observation[EPISODE] = 1
    sights = [observation]
    for frame in range(len(recorders[0].actions)):
        read = frame - delay
        agents = read >= first and (read - first) % m == 0
        observation, *_ = alone.step(policy(sights[read]) if agents else NOOP)
        sights.append(observation)
    assert recorders[0].actions == alone.actions
    assert len(alone.actions) > first + delay


def test_a_reset_of_some_needs_running_episodes() -> None:
    env = VectorRealtimeDelay(sync(RecordingEnv(), RecordingEnv()), delay=1)
    with pytest.raises(ResetNeeded, match="reset_mask"):
        env.reset(options={"reset_mask": np.array([True, False])})


def test_the_callers_options_stay_as_they_are() -> None:
    env = VectorRealtimeDelay(sync(RecordingEnv(), RecordingEnv()), delay=1)
    env.reset()
    options = {"reset_mask": np.array([True, False])}
    env.reset(options=options)
    assert options["reset_mask"].tolist() == [True, False]


# ------------------------------------------------------------------------------------------- real vectors


def boundaries_of(frames: list[Any], first: Any, noops: int) -> list[Any]:
    return [first, *(frame[0] for frame in frames)][:: noops + 1]


@pytest.mark.parametrize(
    ("mode", "delay", "noops", "default_action"),
    [
        (NEXT_STEP, 4, 2, "random"),
        (SAME_STEP, 2, 1, "noop"),
    ],
)
def test_ataris_vector_is_delayed_frame_by_frame(
    mode: AutoresetMode, delay: int, noops: int, default_action: str
) -> None:
    """The same actions in a bare one give the same frames; the observations returned are its boundaries'."""
    bare, inner = (
        AtariVectorEnv("boxing", 2, autoreset_mode=mode, max_num_frames_per_episode=40, frameskip=2, num_threads=1)
        for _ in range(2)
    )
    spy = Spy(inner)
    env = VectorRealtimeDelay(spy, delay, noops, default_action)
    steps = 60 // (noops + 1)
    env.action_space.seed(0)
    agents = [env.action_space.sample() for _ in range(steps)]
    observations, info = env.reset(seed=1)
    returned, applied, returned_rewards = [observations], [], np.zeros(2)
    decided = [info["realtime"]["deciding"]]
    for actions in agents:
        observations, rewards, _, truncated, info = env.step(actions)
        realtime = info["realtime"]
        returned.append(observations)
        decided.append(realtime["deciding"])
        applied.append(realtime["applied"])
        returned_rewards += rewards + realtime["unreported_reward"]
        assert rewards.dtype == np.float64
        if truncated.any() and env.metadata["autoreset_mode"] is SAME_STEP:
            assert info["_final_obs"].tolist() == truncated.tolist()
            assert info["final_obs"].shape == observations.shape or info["final_obs"].dtype == object
            assert info["final_info"]["realtime"]["frame"][truncated].tolist() == [20] * int(truncated.sum())
    assert len(spy.actions) == delay + steps * (noops + 1)
    assert sum(int(frame[3].sum()) for frame in spy.returned) >= 4
    for step, actions in enumerate(agents):
        sent = spy.actions[step * (noops + 1) + delay]
        np.testing.assert_array_equal(sent[applied[step]], actions[applied[step]])
        assert applied[step].tolist() == decided[step].tolist()
    if default_action == "noop":
        assert all((actions == 0).all() for frame, actions in enumerate(spy.actions) if (frame - delay) % (noops + 1))
    first, _ = bare.reset(seed=1)
    frames = [bare.step(actions) for actions in spy.actions]
    paid = sum(frame[1] for frame in frames)
    assert (returned_rewards + info["realtime"]["carried_reward"]).tolist() == paid.tolist()
    for seen, shown, deciding in zip(returned, boundaries_of(frames, first, noops), decided, strict=False):
        np.testing.assert_array_equal(seen[deciding], shown[deciding])


def test_a_native_vector_pays_what_it_is_paid() -> None:
    spy = Spy(gym.make_vec("CartPole-v1", num_envs=4, vectorization_mode="vector_entry_point"))
    env = VectorRealtimeDelay(spy, delay=3, noops=1, default_action="random")
    env.reset(seed=0)
    env.action_space.seed(0)
    returned_rewards, ends = np.zeros(4), 0
    for _ in range(100):
        _, rewards, terminated, _, info = env.step(env.action_space.sample())
        returned_rewards += rewards + info["realtime"]["unreported_reward"]
        ends += int(terminated.sum())
    paid = sum(frame[1] for frame in spy.returned)
    assert (returned_rewards + info["realtime"]["carried_reward"]).tolist() == paid.tolist()
    assert ends > 10


@pytest.mark.parametrize("mode", AutoresetMode)
def test_environments_in_other_processes_do_the_same(mode: AutoresetMode) -> None:
    makers = [lambda length=length: RecordingEnv(length, rewards=REWARDS) for length in (9, 2, 30)]
    runs = []
    for make in (SyncVectorEnv, AsyncVectorEnv):
        env = VectorRealtimeDelay(make(makers, autoreset_mode=mode), delay=3, noops=2)
        observations, info = env.reset()
        runs.append([(observations.copy(), info)])
        for _ in range(12):
            observations, *returned, info = env.step(policies(observations))
            runs[-1].append((observations.copy(), *returned, info))
        env.close()
    assert all(map(same, runs[0], runs[1]))


# ----------------------------------------------------------------------------------------- wrappers around it


@pytest.mark.parametrize(
    "mode",
    [
        NEXT_STEP,
        pytest.param(
            SAME_STEP,
            marks=pytest.mark.skipif(
                gym.__version__.startswith("1.3."),
                reason="Gymnasium 1.3 leaves out the first reward of SAME_STEP episodes, without a delay too",
            ),
        ),
    ],
)
@pytest.mark.parametrize(("delay", "noops"), [(3, 1), (8, 0), (2, 2), (0, 0)])
def test_gymnasiums_episode_statistics_around_it_give_the_returns(mode: AutoresetMode, delay: int, noops: int) -> None:
    lengths, rewards = (19, 32, 47), [1.0, 0.5, 4.0]
    env = RecordEpisodeStatistics(
        VectorRealtimeDelay(sync(*(RecordingEnv(n, rewards=rewards) for n in lengths), mode=mode), delay, noops)
    )
    env.reset()
    returns: list[set[float]] = [set(), set(), set()]
    for _ in range(100):
        *_, info = env.step(np.zeros(3, np.int64))
        for i in np.flatnonzero(info.get("_episode", [])).tolist():
            returns[i].add(float(info["episode"]["r"][i]))
    assert returns == [{sum(rewards[frame % 3] for frame in range(length))} for length in lengths]


def test_gymnasiums_wrappers_for_next_step_are_content() -> None:
    env: Any = VectorRealtimeDelay(gym.make_vec("CartPole-v1", num_envs=2), 3, 2, "repeat")
    env = DictInfoToList(NormalizeObservation(env))
    env.reset(seed=0)
    for _ in range(10):
        *_, infos = env.step(np.array([0, 1]))
    assert [info["realtime"]["delay"] for info in infos] == [3, 3]


class Last(RecordingEnv):
    """Has a last word on each episode."""

    def step(self, action: Any) -> Any:
        *returned, info = super().step(action)
        return (*returned, {**info, "last": len(self.actions)} if returned[2] else info)


@pytest.mark.parametrize("mode", [SAME_STEP, DISABLED])
def test_what_is_said_at_an_end_on_the_newest_frame_is_not_said_of_the_next_episode(mode: AutoresetMode) -> None:
    env = VectorRealtimeDelay(sync(Last(6), Last(), mode=mode), noops=2)
    env.reset()
    env.step(np.array([0, 0]))
    *_, info = env.step(np.array([0, 0]))
    own = info_of(info, 0)
    assert own["final_info"]["last"] == own["final_info"]["frame"] == 6
    assert own["frame"] == 0
    assert "last" not in own


@pytest.mark.parametrize("mode", AutoresetMode)
def test_what_the_wrapped_environment_returned_is_left_as_it_was(mode: AutoresetMode) -> None:
    spy = Spy(sync(Last(6), Last(4), mode=mode))
    copies = []
    step = spy.step
    spy.step = lambda actions: copies.append(deepcopy(step(actions))) or spy.returned[-1]  # type: ignore[method-assign]
    env = VectorRealtimeDelay(spy, delay=2, noops=2)
    env.reset()
    for _ in range(8):
        env.step(np.array([0, 0]))
    assert len(copies) == 2 + 8 * 3
    assert all(map(same, spy.returned, copies))


def test_the_info_of_an_end_in_mid_step_is_kept() -> None:
    for mode in AutoresetMode:
        env = VectorRealtimeDelay(sync(Last(6), Last(), mode=mode), delay=2, noops=2)
        env.reset()
        env.step(np.array([0, 0]))  # frames 0 - 4
        _, _, terminated, _, info = env.step(np.array([0, 0]))  # 5, 6 and 7
        assert terminated.tolist() == [True, False]
        own = info_of(info, 0)
        assert (own["final_info"] if mode is not NEXT_STEP else own)["last"] == 6
        assert "last" not in info_of(info, 1)
        *_, info = env.step(np.array([0, 0]))
        assert "last" not in info_of(info, 0)


# --------------------------------------------------------------------------------------------------- examples


def test_the_example_of_the_docstring_prints_what_it_says() -> None:
    results = doctest.testmod(async_wrappers.wrappers.vector_delay)
    assert results.attempted > 5
    assert results.failed == 0


def test_the_example_of_the_page_runs() -> None:
    page = Path(async_wrappers.__file__).parents[1] / "docs" / "how_to" / "many_environments.md"
    examples = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    (example,) = (each for each in examples if "VectorRealtimeDelay(envs, delay=8" in each)
    names: dict[str, Any] = {}
    exec(example.replace("range(100)", "range(10)"), names)
    assert names["learn_from"].tolist() == [True] * 4


# --------------------------------------------------------------------------------------------------- mistakes


def test_a_single_environment_is_refused_and_realtime_delay_named() -> None:
    with pytest.raises(ValueError, match=r"^env must be a gymnasium.vector.VectorEnv, got .*use RealtimeDelay"):
        VectorRealtimeDelay(RecordingEnv())  # type: ignore[arg-type]


def test_a_vector_that_steps_some_at_a_time_is_refused() -> None:
    with pytest.raises(ValueError, match=r"all 4 sub-environments at once, got batch_size=2"):
        VectorRealtimeDelay(AtariVectorEnv("boxing", 4, batch_size=2))


def test_a_vector_that_does_not_tell_its_autoreset_mode_is_refused() -> None:
    vector = sync(RecordingEnv())
    del vector.metadata["autoreset_mode"]
    del vector.autoreset_mode
    with pytest.raises(ValueError, match=r"metadata\['autoreset_mode'\], got None"):
        VectorRealtimeDelay(vector)


def test_the_mode_of_ataris_vector_is_its_own_and_not_that_of_the_last_one_made() -> None:
    same_step = AtariVectorEnv("boxing", 1, autoreset_mode=SAME_STEP)
    AtariVectorEnv("boxing", 1, autoreset_mode=NEXT_STEP)  # writes into the metadata of both
    assert VectorRealtimeDelay(same_step, delay=1).metadata["autoreset_mode"] is SAME_STEP


def test_an_unknown_default_action_is_refused() -> None:
    for vector in (sync(RecordingEnv()), AtariVectorEnv("boxing", 2)):
        with pytest.raises(ValueError, match=r"^default_action must be one of.*did you mean 'repeat'"):
            VectorRealtimeDelay(vector, 1, 0, "repaet")
        with pytest.raises(ValueError, match=r"^default_action must be one of.*got 99"):
            VectorRealtimeDelay(vector, 1, 0, 99)


@pytest.mark.parametrize(("delay", "noops"), [(0, 0), (3, 1)])
def test_a_step_before_the_first_reset_or_after_a_failure_needs_a_reset(delay: int, noops: int) -> None:
    class Failing(RecordingEnv):
        def step(self, action: Any) -> Any:
            if len(self.actions) == 9:
                raise RuntimeError("broken")
            return super().step(action)

    env = VectorRealtimeDelay(sync(Failing()), delay, noops)
    with pytest.raises(ResetNeeded, match="reset"):
        env.step(np.array([0]))
    env.reset()
    with pytest.raises(RuntimeError, match="broken"):
        for _ in range(20):
            env.step(np.array([0]))
    with pytest.raises(ResetNeeded):
        env.step(np.array([0]))
    env.reset()
    env.step(np.array([0]))


def test_a_batch_of_another_length_is_refused() -> None:
    env = VectorRealtimeDelay(sync(RecordingEnv(), RecordingEnv()), delay=1)
    env.reset()
    with pytest.raises(ValueError, match="actions must be one for each of 2 sub-environments, got 3"):
        env.step(np.zeros(3, np.int64))


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize(("delay", "default_action"), [(1, "repeat"), (3, "repeat"), (2, 0)])
def test_steps_at_once_show_what_others_do_bit_for_bit(mode: AutoresetMode, delay: int, default_action: Any) -> None:
    def made(default_action: Any) -> VectorRealtimeDelay:
        vector = gym.make_vec("CartPole-v1", 4, "sync", vector_kwargs={"autoreset_mode": mode}, max_episode_steps=60)
        return VectorRealtimeDelay(vector, delay, 0, default_action=default_action)

    def asked(observation: Any, last_action: Any) -> Any:
        return 0 if default_action == 0 or last_action is None else last_action

    at_once, frame_by_frame = made(default_action), made(asked)
    used, taken = [], at_once._step_at_once
    at_once._step_at_once = lambda actions: used.append(1) or taken(actions)  # type: ignore[method-assign,func-returns-value]
    for env in (at_once, frame_by_frame):
        env.reset(seed=5)
    rng = np.random.default_rng(0)
    for step in range(300):
        actions = rng.integers(0, 2, 4)
        shown, expected = at_once.step(actions.copy()), frame_by_frame.step(actions.copy())
        assert data_equivalence(list(shown), list(expected), exact=True)
        for name, values in shown[4]["realtime"].items():  # the user's own, to write into
            if isinstance(values, np.ndarray):
                assert values.dtype == expected[4]["realtime"][name].dtype
                values[:] = 0
        if step == 150 and mode is not AutoresetMode.NEXT_STEP:
            mask = np.array([True, False, False, True])
            for env in (at_once, frame_by_frame):
                env.reset(seed=7, options={"reset_mask": mask.copy()})
    assert len(used) > 30

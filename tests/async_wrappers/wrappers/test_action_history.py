"""Tests of async_wrappers/wrappers/action_history.py."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple
from gymnasium.wrappers import RescaleAction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from async_wrappers import AppliedActions, CommittedActions, LimitAction, Limits, MachineEnv, RealtimeDelay
from tests.worlds.machines import Halved
from tests.worlds.ones_env import OnesEnv, one_hot
from tests.worlds.recording_env import FRAME, HISTORY, RecordingEnv


@settings(max_examples=50, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    delay=st.integers(0, 8),
    noops=st.integers(0, 8),
    shown=st.integers(1, 6),
    length=st.integers(1, 30),
    default_action=st.sampled_from(["noop", "repeat", "random"]),
    reuse=st.booleans(),
)
def test_inside_a_delay_it_shows_exactly_the_actions_applied_before_the_observations_frame(
    delay: int, noops: int, shown: int, length: int, default_action: str, reuse: bool
) -> None:
    recorder = RecordingEnv(length, reuse=reuse)
    env = RealtimeDelay(AppliedActions(recorder, shown), delay, noops, default_action)
    for _ in range(2):
        observation, _ = env.reset()
        kept = [observation]
        over = False
        while not over:
            observation, _, over, _, _ = env.step(int(observation["observation"][HISTORY]) % 5)
            kept.append(observation)
        for observation in kept:  # compared at the end: nothing that was returned has changed since
            frame = int(observation["observation"][FRAME])
            padded = [[0.0] * 5] * shown + [one_hot(action, 5) for action in recorder.actions[:frame]]
            assert observation["applied_actions"].tolist() == padded[-shown:]
            assert env.observation_space.contains(observation)


def flat_and_dict(env_of: Any, actions: list[Any], length: int = 2) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    """Play `actions`; return pairs of the flat and the dict form's actions, both [length, width], reset included."""
    flat, nested = AppliedActions(env_of(), length, flat=True), AppliedActions(env_of(), length)
    returned = [(flat.reset()[0], nested.reset()[0])]
    returned += [(flat.step(action)[0], nested.step(action)[0]) for action in actions]
    pairs = []
    for vector, both in returned:
        assert flat.observation_space.contains(vector)
        assert nested.observation_space.contains(both)
        np.testing.assert_array_equal(vector[:2], both["observation"])
        pairs.append((vector[2:].reshape(length, -1), both["applied_actions"]))
    return pairs


@pytest.mark.parametrize(
    ("space", "actions", "width", "rows"),
    [
        (Discrete(3), [2, 0], 3, [[0, 0, 1], [1, 0, 0]]),
        (Discrete(3), [np.int64(2), np.array(0)], 3, [[0, 0, 1], [1, 0, 0]]),
        (Discrete(3, start=5), [5, 7], 3, [[1, 0, 0], [0, 0, 1]]),
        (Discrete(3, start=-1), [-1, 1], 3, [[1, 0, 0], [0, 0, 1]]),
        (MultiDiscrete([2, 3]), [np.array([0, 2]), np.array([1, 1])], 5, [[1, 0, 0, 0, 1], [0, 1, 0, 1, 0]]),
        (
            MultiDiscrete([2, 3], start=[4, -1]),
            [np.array([4, 1]), np.array([5, 0])],
            5,
            [[1, 0, 0, 0, 1], [0, 1, 0, 1, 0]],
        ),
        (
            MultiDiscrete([[2, 2], [3, 1]]),
            [np.array([[1, 0], [2, 0]]), np.array([[0, 1], [0, 0]])],
            8,
            [[0, 1, 1, 0, 0, 0, 1, 1], [1, 0, 0, 1, 1, 0, 0, 1]],
        ),
        (
            Box(-2, 2, (2,), np.float32),
            [np.array([0.5, -2], np.float32), np.array([1, 2], np.float32)],
            2,
            [[0.5, -2], [1, 2]],
        ),
        (Box(1, 2, (1,), np.float64), [np.array([1.5]), np.array([2.0])], 1, [[1.5], [2]]),
        (Box(-3, -1, (1, 2), np.int64), [np.array([[-3, -1]]), np.array([[-2, -2]])], 2, [[-3, -1], [-2, -2]]),
    ],
)
def test_both_forms_show_the_newest_action_last_and_zeros_before_the_first(
    space: Any, actions: list[Any], width: int, rows: list[list[float]]
) -> None:
    zeros = [0.0] * width
    pairs = flat_and_dict(lambda: OnesEnv(action_space=space), actions)
    for pair, expected in zip(pairs, ([zeros, zeros], [zeros, rows[0]], rows), strict=True):
        for form in pair:
            assert form.tolist() == expected
            assert form.dtype == np.float32


@pytest.mark.parametrize("flat", [False, True])
def test_a_reset_forgets_the_actions_of_the_last_episode(flat: bool) -> None:
    env = AppliedActions(OnesEnv(), length=3, flat=flat)
    env.reset()
    for _ in range(5):
        env.step(1)
    observation, _ = env.reset()
    shown = observation[2:] if flat else observation["applied_actions"]
    assert not shown.any()


def test_an_action_once_shown_does_not_change_with_the_callers_array() -> None:
    env = AppliedActions(RecordingEnv(action_space=Box(-1, 1, (1,))), length=2)
    env.reset()
    action = np.array([0.5], np.float32)
    observation, *_ = env.step(action)
    action[:] = -1
    assert observation["applied_actions"].tolist() == [[0], [0.5]]
    assert env.step(action)[0]["applied_actions"].tolist() == [[0.5], [-1]]


def test_an_action_is_shown_as_it_was_sent_also_if_the_environment_works_on_its_array() -> None:
    class Halving(RecordingEnv):
        def step(self, action: Any) -> Any:
            returned = super().step(action)
            action /= 2
            return returned

    env = AppliedActions(Halving(action_space=Box(-1, 1, (1,))))
    env.reset()
    observation, *_ = env.step(np.array([0.5], np.float32))
    assert observation["applied_actions"].tolist() == [[0.5]]


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int8, np.int16, np.uint32, np.int32, np.uint64, np.int64])
def test_a_one_in_whole_number_observations_is_the_types_largest_number(dtype: Any) -> None:
    env = AppliedActions(OnesEnv(dtype, action_space=Discrete(3)), length=2, flat=True)
    largest = np.iinfo(dtype).max
    assert env.observation_space.dtype == dtype
    assert env.observation_space.high.tolist() == [3, 3] + [largest] * 6
    assert env.observation_space.low.tolist() == [0] * 8
    observation, _ = env.reset()
    assert observation.dtype == dtype
    assert observation.tolist() == [1, 1] + [0] * 6
    observation, *_ = env.step(1)
    assert observation.tolist() == [1, 1, 0, 0, 0, 0, largest, 0]
    assert env.observation_space.contains(observation)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_one_in_fractional_observations_is_a_one(dtype: Any) -> None:
    env = AppliedActions(OnesEnv(dtype, action_space=Discrete(3)), length=1, flat=True)
    env.reset()
    observation, *_ = env.step(1)
    assert observation.dtype == dtype
    assert observation.tolist() == [1, 1, 0, 1, 0]
    assert env.observation_space.contains(observation)


def test_the_dict_form_keeps_the_observation_and_its_space_as_they_are() -> None:
    inner = OnesEnv(np.uint8, shape=(4, 4, 3))
    env = AppliedActions(inner, length=4)
    assert isinstance(env.observation_space, Dict)
    assert env.observation_space["observation"] == inner.observation_space
    assert env.observation_space["applied_actions"] == Box(0, 1, (4, 5), np.float32)
    observation, _ = env.reset()
    assert set(observation) == {"observation", "applied_actions"}
    assert observation["observation"].shape == (4, 4, 3)


def test_the_space_of_box_actions_holds_their_bounds_and_zero() -> None:
    space = Box(np.array([1, -2, -4], np.float32), np.array([3, 2, -3], np.float32))
    env = AppliedActions(OnesEnv(action_space=space), length=2)
    assert env.observation_space["applied_actions"].low.tolist() == [[0, -2, -4]] * 2
    assert env.observation_space["applied_actions"].high.tolist() == [[3, 2, 0]] * 2


def test_rewards_ends_and_infos_pass_as_they_are() -> None:
    env = AppliedActions(RecordingEnv(2, ends=(False, True), rewards=(3.0, 4.0)))
    _, info = env.reset()
    assert info["frame"] == 0
    assert env.step(0)[1:4] == (3.0, False, False)
    *returned, info = env.step(0)
    assert returned[1:] == [4.0, False, True]
    assert info["frame"] == 2


@pytest.mark.parametrize("space", [MultiBinary(3), Tuple([Discrete(2)]), Dict({"a": Discrete(2)}), Text(3)])
def test_actions_that_cannot_be_shown_are_refused_by_their_space(space: Any) -> None:
    with pytest.raises(ValueError, match="Discrete, MultiDiscrete or Box") as error:
        AppliedActions(RecordingEnv(action_space=space))
    assert str(space) in str(error.value)


@pytest.mark.parametrize("shape", [(4, 4), (), (2, 2, 3)])
def test_the_flat_form_of_anything_but_a_vector_is_refused_with_the_remedy(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"flat=True needs a vector observation, got Box.*flat=False"):
        AppliedActions(OnesEnv(shape=shape), flat=True)


def test_the_flat_form_of_a_dict_names_the_wrapper_that_flattens_it_which_works() -> None:
    env = RecordingEnv()
    env.observation_space = Dict({"a": Box(-1, 1, (2,), np.float32), "b": Discrete(3)})
    with pytest.raises(
        ValueError, match=r"got Dict\(.*: wrap the environment in gymnasium\.wrappers\.FlattenObservation"
    ):
        AppliedActions(env, flat=True)
    assert AppliedActions(gym.wrappers.FlattenObservation(env), flat=True).observation_space.shape == (5 + 5,)


def test_the_flat_form_of_a_discrete_observation_is_refused_with_the_remedy() -> None:
    with pytest.raises(ValueError, match=r"flat=True needs a vector observation, got Discrete.*flat=False"):
        AppliedActions(gym.make("FrozenLake-v1"), flat=True)


def test_the_flat_form_of_box_actions_in_whole_number_observations_is_refused_with_the_remedy() -> None:
    with pytest.raises(ValueError, match=r"flat=True cannot put Box actions into uint8 .*flat=False"):
        AppliedActions(OnesEnv(np.uint8, action_space=Box(-1, 1, (2,))), flat=True)


def test_the_constructor_arguments_are_recorded() -> None:
    env = AppliedActions(gym.make("CartPole-v1"), length=3, flat=True)
    again = gym.make(env.spec)  # type: ignore[arg-type]
    assert type(again) is AppliedActions
    assert again.observation_space == env.observation_space
    assert again.reset(seed=0)[0].tolist() == env.reset(seed=0)[0].tolist()


# What was really sent.

BOX = Box(-4, 4, (1,), np.float32)


def limited(env: gym.Env[Any, Any], rate: float = 0.25) -> Any:
    return LimitAction(env, Limits(rate=rate, unit="per frame"), fps=60)


def clipping(env: gym.Env[Any, Any]) -> Any:
    """Return the environment behind a driver that clips."""
    return MachineEnv(Halved(env, lambda action: np.clip(action, -0.5, 0.5)), waits=False)


def rounded(received: list[Any]) -> list[float]:
    return [round(float(action[0]), 3) for action in received]


def shown_by(made: Any, steps: int = 4) -> list[float]:
    """Return the newest action that is shown after each decision, all of which ask for 1."""
    made.reset(seed=0)
    newest = [made.step(np.ones(1, np.float32))[0]["applied_actions"][-1] for _ in range(steps)]
    return rounded(newest)


@pytest.mark.parametrize(("sends", "sent"), [(limited, [0.25, 0.5, 0.75, 1]), (clipping, [0.5] * 4)])
def test_what_was_really_sent_is_shown(sends: Any, sent: list[float]) -> None:
    recorder = RecordingEnv(action_space=BOX)
    env = AppliedActions(sends(recorder), length=4)
    env.reset()
    for _ in range(4):
        observation, *_ = env.step(np.ones(1, np.float32))
    assert observation["applied_actions"].tolist() == [action.tolist() for action in recorder.actions]
    assert rounded(recorder.actions) == sent


def test_what_was_really_sent_is_shown_inside_a_delay_and_around_one() -> None:
    recorder = RecordingEnv(action_space=BOX)
    env = RealtimeDelay(AppliedActions(limited(recorder)), delay=2, noops=1, default_action="repeat")
    shown = shown_by(env)
    assert shown == [rounded(recorder.actions)[frame - 1] for frame in (2, 4, 6, 8)] == [0, 0.25, 0.5, 0.75]
    recorder = RecordingEnv(action_space=BOX)
    # Each action is sent from rest, and two frames of the default one follow.
    assert shown_by(AppliedActions(RealtimeDelay(limited(recorder), 0, 2))) == [0.25] * 4
    assert rounded(recorder.actions)[:6] == [0.25, 0, 0, 0.25, 0, 0]


def test_what_was_really_sent_is_shown_in_vectors() -> None:
    recorders = [RecordingEnv(action_space=BOX) for _ in range(2)]
    makers = [
        lambda recorder=recorder, sends=sends: RealtimeDelay(AppliedActions(sends(recorder)), 1)
        for recorder, sends in zip(recorders, (limited, clipping), strict=True)
    ]
    env = gym.vector.SyncVectorEnv(makers)
    env.reset(seed=0)
    for _ in range(4):
        observation, *_ = env.step(np.ones((2, 1), np.float32))
    assert rounded(observation["applied_actions"][:, -1]) == [0.75, 0.5]  # of the frame before the newest
    assert [rounded(recorder.actions)[3] for recorder in recorders] == [0.75, 0.5]


def test_an_action_in_other_units_is_shown_as_it_was_asked_for() -> None:
    low, high = np.float32(-1), np.float32(1)
    assert shown_by(AppliedActions(RescaleAction(limited(RecordingEnv(action_space=BOX)), low, high))) == [1.0] * 4


def test_actions_on_their_way_are_shown_as_they_were_asked_for() -> None:
    recorder = RecordingEnv(action_space=BOX)
    env = CommittedActions(RealtimeDelay(limited(recorder), delay=2), length=2, known=False)
    env.reset(seed=0)
    for _ in range(2):
        observation, *_ = env.step(np.ones(1, np.float32))
    assert observation["committed_actions"].tolist() == [[1, 0], [1, 0]]
    assert rounded(recorder.actions) == [0, 0, 0.25, 0.5]

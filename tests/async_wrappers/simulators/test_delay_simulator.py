"""Stand-ins for simulators under delay, beside a vector of Gymnasium's that shows the same."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from hypothesis import given, settings
from hypothesis import strategies as st

from async_wrappers import Chunk, LogNormal, Sensor, VectorRealtimeDelay, delay_simulator
from tests.worlds.simulators import Groups, OfGroups, OwnBox, VecEnv
from tests.worlds.tensor_vector import Tensors, counting_vector

N = 3


class Floats(gym.vector.VectorWrapper):
    """A vector of tensors with the simulators' types, and without last observations."""

    def step(self, actions: Any) -> Any:
        observations, rewards, *ends, _ = self.env.step(actions)
        return observations.float(), rewards.float(), *ends, {}

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        observations, info = self.env.reset(seed=seed, options=options)
        return observations.float(), info


def tensors(num_envs: int = N, mode: AutoresetMode = AutoresetMode.SAME_STEP) -> Any:
    def to(array: Any) -> Any:
        return torch.as_tensor(np.array(array))

    return Tensors(counting_vector(num_envs, mode), to, lambda tensor: tensor.numpy())


def actions_of(step: int, num_envs: int = N) -> torch.Tensor:
    return torch.arange(num_envs, dtype=torch.float32)[:, None] + 10.0 * (step + 1)


TERMS = st.sampled_from(
    [
        {"delay": 2},
        {"delay": [0, 1, 4], "noops": [2, 0, 1]},
        {"delay": range(5)},
        {"latency": LogNormal(mean=0.05, cv=0.4), "fps": 50, "per": "frame"},
    ]
)


@settings(max_examples=8, deadline=None)
@given(terms=TERMS)
def test_groups_and_vec_envs_show_what_a_delayed_vector_shows(terms: dict[str, Any]) -> None:
    terms = {**terms, "default_action": "repeat"}
    vector = VectorRealtimeDelay(Floats(tensors()), **terms)
    groups, vec_env = delay_simulator(Groups(N), **terms), delay_simulator(OfGroups(Groups(N)), **terms)
    expected, info = vector.reset(seed=0)
    shown, extras = groups.reset(seed=0)
    ends = 0
    torch.testing.assert_close(shown["policy"], expected)
    torch.testing.assert_close(vec_env.get_observations()["policy"], expected)
    for step in range(40):
        expected, rewards, terminated, truncated, info = vector.step(actions_of(step))
        shown, own_rewards, *own_ends, extras = groups.step(actions_of(step))
        observations, vec_rewards, dones, vec_extras = vec_env.step(actions_of(step))
        ends += int((terminated | truncated).sum())
        torch.testing.assert_close(shown["policy"], expected)
        torch.testing.assert_close(shown["image"][:, 0, 0], expected[:, 0])
        assert own_rewards.dtype is vec_rewards.dtype is torch.float32
        assert own_rewards.tolist() == rewards.tolist()
        assert [end.tolist() for end in own_ends] == [terminated.tolist(), truncated.tolist()]
        for name, values in info["realtime"].items():
            assert values.tolist() == extras["realtime"][name].tolist()
        torch.testing.assert_close(observations["policy"], expected)
        assert vec_rewards.tolist() == rewards.tolist()
        assert dones.dtype is torch.int64
        assert dones.tolist() == (terminated | truncated).long().tolist()
        assert vec_extras["time_outs"].tolist() == truncated.tolist()
    assert ends > N


@settings(max_examples=8, deadline=None)
@given(delays=st.lists(st.integers(0, 4), min_size=N, max_size=N), repeats=st.booleans())
def test_the_window_tells_what_was_sent_since_the_observation(delays: list[int], repeats: bool) -> None:
    window = 5
    env = delay_simulator(Groups(N), delay=delays, default_action="repeat" if repeats else "noop", action_window=window)
    shown, extras = env.reset(seed=0)
    told = 0
    assert env.single_observation_space.spaces["policy"].shape == (3 + window,)
    assert env.single_observation_space.spaces["image"].shape == (2, 2)
    for step in range(40):
        before, realtime = shown, extras["realtime"]
        shown, *_, extras = env.step(actions_of(step))
        received = before["policy"][:, 2].tolist()
        for row, frame, start in zip(range(N), realtime["frame"].tolist(), realtime["start"].tolist(), strict=True):
            if start < 0:
                continue
            sent = before["policy"][row, 3:].tolist()
            # The observation's third number is what was sent on the frame before it.
            assert sent[-1 - (frame - start)] == received[row] or start == 0
            assert sent[: max(0, window - frame)] == [0.0] * max(0, window - frame)
            told += 1
        if extras["realtime"]["applied"].all() and not (extras["realtime"]["frame"] == 0).any():
            assert shown["policy"][:, -1].tolist() == actions_of(step)[:, 0].tolist()
    assert told > 40
    assert shown["image"].shape == (N, 2, 2)


def test_a_vec_env_stays_one_and_passes_on_the_rest() -> None:
    inner = OfGroups(Groups(N))
    env = delay_simulator(inner, delay=1, default_action="repeat", action_window=2)
    assert isinstance(env, VecEnv)
    assert (env.num_envs, env.num_actions, env.max_episode_length, env.unwrapped.name) == (N, 1, 11, "groups")
    env.episode_length_buf = torch.arange(N)
    assert inner.env.episode_length_buf.tolist() == [0, 1, 2]
    assert env.get_observations()["policy"].shape == (N, 5)
    assert env.get_observations().batch_size == [N]
    env.step(actions_of(0))
    before = env.get_observations()["policy"]
    observations, extras = env.reset()
    assert observations["policy"][:, 0].tolist() == [episode + 1 for episode in before[:, 0].tolist()]
    assert not observations["policy"][:, 3:].any()
    assert extras == {"log": {}}
    with pytest.raises(AttributeError):
        _ = env.nothing


def test_a_vec_env_of_plain_tensors_without_time_outs() -> None:
    env = delay_simulator(OfGroups(Groups(N), has_time_outs=False, is_tensor=True), delay=1, default_action="repeat")
    observations, rewards, dones, extras = env.step(actions_of(0))
    assert observations.shape == (N, 3)
    assert "time_outs" not in extras
    assert rewards.shape == dones.shape == (N,)


def test_groups_are_cut_by_their_numbers_and_closed() -> None:
    inner = Groups(N)
    env = delay_simulator(inner, delay=2, default_action="repeat", action_window=2)
    env.reset(seed=0)
    env.step(actions_of(0))
    before, *_ = env.step(actions_of(1))
    shown, extras = env.reset(env_ids=torch.tensor([1]))
    assert extras["realtime"]["frame"][1] == 0
    assert not extras["realtime"]["deciding"][1]
    assert not shown["policy"][1, 1:].any()
    assert shown["policy"][0].tolist() == before["policy"][0].tolist()
    env.episode_length_buf = torch.arange(N)
    assert inner.episode_length_buf.tolist() == [0, 1, 2]
    assert (env.name, env.step_dt, env.unwrapped) == ("groups", 0.02, inner)
    env.close()
    assert inner.is_closed


def test_a_latency_takes_the_simulators_own_rate() -> None:
    env = delay_simulator(Groups(N), latency=0.039, default_action="repeat")
    env.reset(seed=0)
    for step in range(3):
        *_, extras = env.step(actions_of(step))
    assert extras["realtime"]["delay"].max() == 2  # frames of 20 ms


def test_a_sensor_of_a_group_is_late_inside_the_delay() -> None:
    env = delay_simulator(Groups(N), sensors={"policy": Sensor(latency=0.04)}, default_action="repeat")
    env.reset(seed=0)
    shown, *_, extras = env.step(actions_of(0))
    assert not shown["policy"][:, 1].any()
    assert extras["sensor_ages"]["policy"].tolist() == pytest.approx([0.02] * N)


def test_a_vector_tells_its_last_actions_at_an_end_too() -> None:
    env = delay_simulator(tensors(), delay=1, default_action="repeat", action_window=3)
    assert env.single_observation_space.shape == (6,)
    env.reset(seed=0)
    ended = 0
    for step in range(30):
        observations, _, terminated, truncated, info = env.step(actions_of(step).double())
        for row in torch.nonzero(terminated | truncated)[:, 0].tolist():
            # One frame, or the first action of the first step, which runs two.
            sent = info["final_obs"][row, 3:].tolist()
            assert not observations[row, 3:].any()
            frame = info["final_info"]["realtime"]["frame"][row]
            expected = actions_of(step)[row, 0].item() if frame > 1 else 0.0
            assert sent[-1] == expected
            ended += 1
    assert ended > 3


@pytest.mark.parametrize(
    ("make", "terms", "sentence"),
    [
        (object, {}, "env must be a gymnasium.vector.VectorEnv, or have what"),
        (lambda: Groups(N, auto_reset=False), {}, "got cfg.auto_reset=False: set it to True"),
        (lambda: Groups(N), {"delay": [1, 2]}, f"delay must be one for each of {N} environments"),
        (lambda: Groups(N), {"sensors": {"camera": 0.1}}, "sensors must be keys of"),
        (lambda: OfGroups(Groups(N)), {"default_action": Chunk(2)}, "needs a gymnasium.vector.VectorEnv"),
        (lambda: Groups(N), {"action_window": -1}, "action_window must be"),
        (lambda: tensors(mode=AutoresetMode.NEXT_STEP), {"action_window": 1}, "that resets in the same step"),
        (lambda: gym.make_vec("CartPole-v1", 2), {"latency": 0.1}, "a latency needs fps"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(make: Any, terms: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as caught:
        delay_simulator(make(), **{"default_action": "repeat", **terms})
    assert "\n" not in str(caught.value)


def test_a_window_needs_tensors_and_numbers() -> None:
    vector = counting_vector(N, AutoresetMode.SAME_STEP)
    env = delay_simulator(vector, delay=1, default_action="repeat", action_window=1)
    with pytest.raises(ValueError, match="got NumPy's: put AppliedActions"):
        env.reset(seed=0)
    groups = Groups(N)
    groups.single_action_space = OwnBox((2, 2))
    with pytest.raises(ValueError, match="actions of real numbers on one axis"):
        delay_simulator(groups, delay=1, default_action="repeat", action_window=1)
    groups = Groups(N)
    del groups.single_observation_space.spaces["policy"]
    with pytest.raises(ValueError, match="observations with real numbers on one axis"):
        delay_simulator(groups, delay=1, default_action="repeat", action_window=1)

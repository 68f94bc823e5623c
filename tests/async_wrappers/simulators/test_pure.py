"""Pure environments under delay: a stand-in for Brax's, whose copies are each a `RealtimeDelay`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402 - where JAX is

from async_wrappers import RealtimeDelay, delay_simulator  # noqa: E402

N = 4


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["pipeline_state", "obs", "reward", "done", "metrics", "info"],
    meta_fields=[],
)
@dataclass
class State:
    pipeline_state: Any
    obs: Any
    reward: Any
    done: Any
    metrics: dict[str, Any] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)

    def replace(self, **parts: Any) -> State:
        return replace(self, **parts)


class Env(ABC):
    @abstractmethod
    def reset(self, rng: Any) -> State: ...


class Walk(Env):
    """Shows frame and last action; an episode has `length` frames, and the reward is the action."""

    observation_size, action_size, dt, scale = 2, 1, 0.02, 1.0

    def __init__(self, length: int) -> None:
        self.length = length

    @property
    def unwrapped(self) -> Walk:
        return self

    def reset(self, rng: Any) -> State:
        return State({"frame": jnp.zeros((), jnp.int32)}, jnp.zeros(2), jnp.zeros(()), jnp.zeros(()))

    def step(self, state: State, action: Any) -> State:
        frame = state.pipeline_state["frame"] + 1
        obs = jnp.stack([frame.astype(jnp.float32), action[0]])
        done = (frame >= self.length).astype(jnp.float32)
        return state.replace(pipeline_state={"frame": frame}, obs=obs, reward=action[0] * self.scale, done=done)


class Training:
    """What Brax puts around an environment to train on it: copies, and resets to the first state."""

    def __init__(self, env: Any) -> None:
        self.env, self.action_size = env, env.action_size

    observation_size, action_size = 2, 1

    @property
    def unwrapped(self) -> Any:
        return self.env.unwrapped

    def reset(self, rng: Any) -> State:
        state = jax.vmap(self.env.reset)(rng)
        return state.replace(info={**state.info, "first_pipeline_state": state.pipeline_state, "first_obs": state.obs})

    def step(self, state: State, action: Any) -> State:
        state = state.replace(done=jnp.zeros_like(state.done))
        state = jax.vmap(self.env.step)(state, action)

        def where_done(first: Any, now: Any) -> Any:
            return jnp.where(state.done.reshape((N,) + (1,) * (now.ndim - 1)), first, now)

        part = jax.tree.map(where_done, state.info["first_pipeline_state"], state.pipeline_state)
        return state.replace(pipeline_state=part, obs=jax.tree.map(where_done, state.info["first_obs"], state.obs))


class WalkAlone(gym.Env[Any, Any]):
    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)

    def __init__(self, length: int) -> None:
        self.length = length

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.frame = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.frame += 1
        obs = np.array([self.frame, action[0]], np.float32)
        return obs, float(action[0]), self.frame >= self.length, False, {}


def keys(number: int = N) -> Any:
    return jax.random.split(jax.random.PRNGKey(0), number)


def action_of(observation: Any) -> Any:
    return observation[..., :1] * 3 + observation[..., 1:2] / 4 + 1


def alone(delay: int, noops: int, length: int, default: Any) -> list[Any]:
    """Return the decisions of an episode: what was read, the reward, and where it ended."""
    env = RealtimeDelay(WalkAlone(length), delay, noops, default)
    observation, _ = env.reset()
    decisions, over = [], False
    while not over:
        before = observation
        observation, reward, over, _, info = env.step(action_of(observation))
        decisions.append((before.tolist() if info["realtime"]["applied"] else None, pytest.approx(reward)))
    return decisions


@pytest.mark.parametrize("outside", [False, True])
@settings(max_examples=4, deadline=None)
@given(
    delay=st.integers(0, 4), noops=st.integers(0, 2), length=st.integers(3, 9), repeats=st.booleans(), data=st.data()
)
def test_copies_are_each_a_realtime_delay(
    outside: bool, delay: int, noops: int, length: int, repeats: bool, data: st.DataObject
) -> None:
    terms = {"delay": delay, "noops": noops, "default_action": "repeat" if repeats else np.zeros(1)}
    env: Any = Walk(length)
    env = delay_simulator(Training(env), **terms) if outside else Training(delay_simulator(env, **terms))
    step = jax.jit(env.step)
    state = jax.jit(env.reset)(keys())
    expected = alone(delay, noops, length, terms["default_action"])
    decisions: list[Any] = []
    ends, read = 0, None
    for _ in range(3 * length):
        before = state.obs
        state = step(state, action_of(before))
        realtime = jax.tree.map(lambda values: values[1].tolist(), state.info["realtime"])
        if realtime["applied"]:
            read = before[1].tolist()
        if realtime["closed"]:
            decisions.append((read, state.reward[1].item()))
        if state.done[1]:
            assert decisions == expected
            ends, decisions, read = ends + 1, [], None
    assert ends == 3
    assert np.ptp(np.asarray(state.obs), axis=0).tolist() == [0, 0]


def test_episodes_draw_delays_of_their_own_also_where_their_beginning_is_put_back() -> None:
    env = Training(delay_simulator(Walk(8), delay=range(1, 6), default_action="repeat"))
    step, state, drawn = jax.jit(env.step), env.reset(keys()), set()
    for _ in range(80):
        state = step(state, jnp.ones((N, 1)))
        for row in range(N):
            realtime = jax.tree.map(lambda values, row=row: values[row].item(), state.info["realtime"])
            if realtime["applied"]:
                drawn.add((row, realtime["episode"], realtime["delay"]))
    assert len(drawn) == len({each[:2] for each in drawn}) == N * 10  # one of each episode
    assert {delay for *_, delay in drawn} == {1, 2, 3, 4, 5}
    assert len({tuple(delay for its, _, delay in sorted(drawn) if its == row) for row in range(N)}) == N


def test_the_state_goes_through_a_scan_and_tells_the_last_actions() -> None:
    env = delay_simulator(Walk(100), delay=2, default_action="repeat", action_window=3)
    assert (env.observation_size, env.action_size, isinstance(env, Env)) == (5, 1, True)

    def step(state: Any, action: Any) -> Any:
        state = env.step(state, action)
        return state, state.obs

    actions = jnp.arange(1.0, 7.0)[:, None]
    state, shown = jax.lax.scan(step, env.reset(jax.random.PRNGKey(0)), actions)
    assert shown[:, 2:].tolist() == [[0, 0, 0], [0, 0, 0], [0, 0, 3], [0, 3, 4], [3, 4, 5], [4, 5, 6]]
    assert state.pipeline_state["frame"] if isinstance(state.pipeline_state, dict) else True
    assert state.pipeline_state.inner["frame"] == 6
    assert shown[:, 0].tolist() == [0, 0, 1, 2, 3, 4]


@pytest.mark.parametrize("terms", [{"delay": range(4), "action_window": 2}, {"latency": 0.05, "per": "frame"}])
def test_a_step_is_compiled_once_and_puts_nothing_onto_a_device(terms: dict[str, Any]) -> None:
    env = Training(delay_simulator(Walk(5), **terms))
    step, state = jax.jit(env.step), jax.jit(env.reset)(keys())
    for _ in range(3):
        state = step(state, jnp.ones((N, 1)))
    step(env.reset(keys()), jnp.ones((N, 1)))
    assert step._cache_size() == 1
    assert not any(leaf.committed for leaf in jax.tree.leaves(state))  # so they may lie on any


@pytest.mark.parametrize(("repeats", "delay"), [(1, 4), (2, 2)])
def test_frames_that_repeat_an_action_are_as_long_as_its_repeats(repeats: int, delay: int) -> None:
    training: Any = Training(Walk(30))
    training.action_repeat = repeats
    env = delay_simulator(training, latency=0.08)  # of a `dt` of 20 ms
    state = env.reset(keys())
    for _ in range(delay + 1):
        state = env.step(state, jnp.ones((N, 1)))
    assert state.info["realtime"]["delay"].tolist() == [delay] * N


class Arm(Walk):
    action_size = 2


@pytest.mark.parametrize("default", [np.array([0.5, 2]), jnp.array([0.5, 2]), [0.5, 2]])
def test_a_default_action_may_have_several_numbers(default: Any) -> None:
    env = delay_simulator(Arm(9), delay=1, default_action=default)
    state = env.step(env.reset(jax.random.PRNGKey(0)), jnp.ones(2))
    assert env.step(state, jnp.ones(2)).reward.item() == 1.5  # what the default action has earned comes with the next


def test_domain_randomisation_reaches_the_environment_and_stays_late() -> None:
    inner = Walk(100)
    env = delay_simulator(inner, delay=1, default_action="repeat")
    env.unwrapped.scale = 2.0
    assert inner.scale == 2.0
    state = env.unwrapped.reset(jax.random.PRNGKey(0))
    rewards = [(state := env.unwrapped.step(state, jnp.ones(1))).reward.item() for _ in range(3)]
    assert rewards == [0, 2, 2]


@pytest.mark.parametrize(
    ("terms", "sentence"),
    [
        ({"default_action": "random"}, "default_action must be 'noop' for actions of real numbers"),
        ({"default_action": np.zeros(2)}, r"default_action must have the shape \[1\], got \[2\]"),
        ({"sensors": {"camera": 0.1}}, "sensors need an environment that steps arrays"),
        ({"delay": [1, 2]}, "delay must be one for each of 1 environments"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(terms: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        delay_simulator(Walk(5), **terms)


def test_a_game_of_an_older_gymnax_is_refused_in_a_sentence() -> None:
    """Its `step` tells one end, and so has five values."""
    space = SimpleNamespace(shape=(1,), dtype=np.float32)
    game = SimpleNamespace(
        default_params=None,
        action_space=lambda params: space,
        reset=lambda key, params: (jnp.zeros(1), jnp.zeros(())),
        step=lambda key, state, action, params: (jnp.zeros(1), state, 0.0, jnp.array(False), {}),
    )
    env = delay_simulator(game, delay=1)
    key = jax.random.PRNGKey(0)
    _, state = env.reset(key)
    with pytest.raises(ValueError, match=r"^env.step must return observation, state, .* got 5 of these: update gymnax"):
        env.step(key, state, jnp.zeros(1))

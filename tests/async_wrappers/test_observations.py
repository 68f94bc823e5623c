"""One check of observations on all clocks: none is cast so that a number changes, and the sentence names the entry."""

from __future__ import annotations

import pickle
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple
from hypothesis import given
from hypothesis import strategies as st

from async_wrappers import AsyncRunner, RealtimeDelay, VectorRealtimeDelay
from async_wrappers.batched.local import LocalEnvs
from async_wrappers.latency.batches import LinearBatches
from async_wrappers.live.served.served_runner import ServedRunner
from async_wrappers.observations import observation_check

BYTES = Box(0, 255, (2,), np.uint8)
REALS = Box(-1, 1, (2,), np.float32)
NESTED = Dict(pixels=BYTES, more=Tuple([Discrete(3), REALS]))


def nested(pixels: Any = (1, 2), number: Any = 2, reals: Any = (0.5, 0.25)) -> Any:
    pixels = np.array(pixels, np.uint8) if isinstance(pixels, tuple) else pixels
    return {"pixels": pixels, "more": (number, np.array(reals) if isinstance(reals, tuple) else reals)}


@pytest.mark.parametrize(
    ("space", "observation"),
    [
        (BYTES, np.array([0, 255], np.uint8)),
        (BYTES, np.array([True, False])),
        (REALS, np.zeros(2, np.float32)),
        (REALS, np.array([0.1, 0.2])),  # rounded
        (REALS, np.array([7, -9])),  # bounds are no types
        (REALS, [0.5, 1]),
        (Box(0, 9, (), np.float32), 0.5),
        (Box(0, 9, (1,), np.int32), np.array([8])),
        (Discrete(3, start=-1), -1),
        (Discrete(3, start=-1), np.int32(1)),
        (MultiDiscrete([2, 3]), [1, 2]),
        (MultiBinary(3), np.array([0, 1, 1])),
        (NESTED, nested()),
        (Text(3), "abc"),
    ],
    ids=str,
)
def test_what_no_cast_changes_is_let_through(space: Any, observation: Any) -> None:
    observation_check(space)(observation)


@pytest.mark.parametrize(
    ("space", "observation", "sentence"),
    [
        (BYTES, np.array([0.7, 0.2]), r" must have dtype uint8, got float64: correct the env"),
        (BYTES, np.array([300, -1]), r" must have dtype uint8, got int64: correct"),
        (BYTES, np.zeros(3, np.uint8), r" must have shape \(2,\), got \(3,\): correct"),
        (BYTES, None, r" must have shape \(2,\), got \(\): correct"),
        (BYTES, np.array(["a", "b"]), r" must have dtype uint8, got <U1: correct"),
        (REALS, [[0.5], [0.5, 1.0]], r" must be an array, got what NumPy cannot read \("),
        (Box(0, 9, (1,), np.int32), np.array([2**40]), r" must hold numbers of int32, got 1099511627776: correct"),
        (Discrete(3), 3, r" must be an element of Discrete\(3\), got 3: correct"),
        (Discrete(3), 0.5, r" must have dtype int64, got float64: correct"),
        (MultiDiscrete([2, 3]), np.array([1, 3]), r" must be an element of MultiDiscrete\(\[2 3\]\), got \[1 3\]: c"),
        (NESTED, nested(pixels=np.array([0.7, 0.2])), r"\['pixels'\] must have dtype uint8, got float64: correct"),
        (NESTED, nested(reals=(0.5,)), r"\['more'\]\[1\] must have shape \(2,\), got \(1,\): correct"),
        (NESTED, nested(number=9), r"\['more'\]\[0\] must be an element of Discrete\(3\), got 9: correct"),
        (NESTED, {"pixels": np.zeros(2, np.uint8)}, r" must be a dict with the keys \['more', 'pixels'\], got \['pix"),
        (NESTED, {**nested(), "more": (1,)}, r"\['more'\] must be a tuple of 2, got 1: correct"),
        (NESTED, np.zeros(2), r" must be a dict with the keys \['more', 'pixels'\], got ndarray: correct"),
    ],
    ids=str,
)
def test_anything_else_is_one_sentence_that_names_the_entry(space: Any, observation: Any, sentence: str) -> None:
    check = pickle.loads(pickle.dumps(observation_check(space)))
    with pytest.raises(ValueError, match=f"^the environment's observation{sentence}") as error:
        check(observation)
    assert "\n" not in str(error.value)


DTYPES = ["bool", "int8", "uint8", "int16", "int32", "uint32", "int64", "uint64", "float32", "float64"]


@given(
    given=st.sampled_from(DTYPES),
    wanted=st.sampled_from(DTYPES[1:8]),
    numbers=st.lists(st.integers(-(2**63), 2**64 - 1) | st.integers(-300, 300), min_size=1, max_size=3),
)
def test_whole_numbers_that_pass_are_the_same_after_the_cast(given: str, wanted: str, numbers: list[int]) -> None:
    observation = np.array(numbers, object).astype(np.float64 if "float" in given else object)
    try:
        observation = observation.astype(given)
    except OverflowError:
        return
    limits = np.iinfo(wanted)
    check = observation_check(Box(limits.min, limits.max, observation.shape, np.dtype(wanted)))
    try:
        check(observation)
    except ValueError:
        return
    assert [int(number) for number in observation.astype(wanted)] == [int(number) for number in observation]


class Odd(gym.Env[Any, Any]):
    """Shows one observation that its space does not have, from the reset or from the third step on."""

    observation_space, action_space = NESTED, Discrete(2)
    noop_action = 0

    def __init__(self, wrong: Any, since: int) -> None:
        self._wrong, self._since = wrong, since

    def _shown(self) -> Any:
        return nested() if self._step < self._since else self._wrong

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self._step = 0
        return self._shown(), {}

    def step(self, action: Any) -> Any:
        self._step += 1
        return self._shown(), 1.0, self._step == 9, False, {}


def play_delayed(make: Any) -> None:
    env = RealtimeDelay(make(), delay=2)
    env.reset()
    while not env.step(0)[2]:
        pass


def play_live(make: Any, **arguments: Any) -> None:
    AsyncRunner(make, lambda: lambda observation: 1, fps=500, **arguments).run(frames=9)


def play_batched(make: Any) -> None:
    envs = LocalEnvs(make, 2)
    envs.begin([0, 1])
    for _ in range(9):
        envs.send(envs.recv().env_ids, np.zeros(2, np.int64))
    envs.recv()


def play_served(make: Any) -> None:
    def act(shown: Any) -> Any:
        return np.ones(len(shown["pixels"]), np.int64)

    arguments: dict[str, Any] = {"fps": 60, "backend": "virtual", "latency": LinearBatches(0.001, 0.0)}
    runner = ServedRunner(make, lambda: act, 2, **arguments)
    runner.run(seconds=0.5)


WAYS = {
    "RealtimeDelay": play_delayed,
    "virtual clock": partial(play_live, workers=1, backend="virtual", latency=0.002),
    "real clock": partial(play_live, workers=1, backend="thread"),
    "real clock, in the loop": partial(play_live, workers=0, backend="thread"),
    "batched": play_batched,
    "served": play_served,
}


@pytest.mark.parametrize("since", [0, 3, 8])
@pytest.mark.parametrize("way", WAYS)
def test_no_clock_and_no_trainer_casts_in_silence(way: str, since: int) -> None:
    wrong = nested(pixels=np.array([300, -1]))
    with pytest.raises(ValueError, match=r"\['pixels'\] must have dtype uint8, got int64: correct the environment"):
        WAYS[way](partial(Odd, wrong, since))
    WAYS[way](partial(Odd, nested(), 0))


class OddVector(gym.vector.VectorEnv[Any, Any, Any]):
    """A vector that stacks by itself, and so is not checked by Gymnasium."""

    num_envs, metadata = 2, {"autoreset_mode": gym.vector.AutoresetMode.SAME_STEP}
    single_observation_space, single_action_space = BYTES, Discrete(2)
    observation_space, action_space = Box(0, 255, (2, 2), np.uint8), MultiDiscrete([2, 2])
    noop_action = 0

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return np.zeros((2, 2), np.uint8), {}

    def step(self, actions: Any) -> Any:
        return np.full((2, 2), 300), np.ones(2), np.zeros(2, bool), np.zeros(2, bool), {}


def test_a_vector_that_casts_nothing_is_checked_too() -> None:
    env = VectorRealtimeDelay(OddVector(), delay=1, default_action=0)
    env.reset()
    with pytest.raises(ValueError, match=r"^the environments' observations must have dtype uint8, got int64"):
        env.step(np.zeros(2, np.int64))

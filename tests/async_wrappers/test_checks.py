"""Each check returns the value in the right type, or refuses it in one sentence."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from contextlib import closing
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from hypothesis import given
from hypothesis import strategies as st

from async_wrappers import (
    AppliedActions,
    AsyncRunner,
    LimitAction,
    Limits,
    LinearBatches,
    RealtimeDelay,
    ServedRunner,
    checks,
)
from async_wrappers.agents.cli.command_line import main
from async_wrappers.agents.play.turns.baselines import RandomAgent
from async_wrappers.agents.play.turns.turns import play_episode
from async_wrappers.batched.local import LocalEnvs
from async_wrappers.checks import BrokenEnvironment
from async_wrappers.envs import ClipReward
from async_wrappers.gymnasium_api import stepped
from async_wrappers.latency import Constant
from async_wrappers.live.world.machine import MachineFailed
from tests.worlds.machines import Halved
from tests.worlds.seeded_env import SeededEnv


def no_function() -> int:
    return 0


@pytest.mark.parametrize("value", [3, np.int64(3), np.uint8(3), np.array(3)])
def test_whole_numbers_of_any_kind_come_back_as_ints(value: Any) -> None:
    converted = checks.whole("n", value, 3, 3)
    assert converted == 3
    assert type(converted) is int


@pytest.mark.parametrize("value", [True, np.True_, 3.0, np.float64(3), Fraction(3), "3", None, [3], math.nan, math.inf])
def test_what_is_no_whole_number_is_refused_even_if_it_equals_one(value: Any) -> None:
    with pytest.raises(ValueError, match=f"^n must be a whole number >= 0, got {re.escape(repr(value))}$"):
        checks.whole("n", value, 0)


@given(least=st.integers(), above=st.integers(0, 10**30), value=st.integers())
def test_a_whole_number_is_taken_exactly_within_its_bounds(least: int, above: int, value: int) -> None:
    most = least + above
    if least <= value <= most:
        assert checks.whole("n", value, least, most) == value
    else:
        with pytest.raises(ValueError, match=r"^n must be a whole number between "):
            checks.whole("n", value, least, most)
    if value >= least:
        assert checks.whole("n", value, least) == value


@pytest.mark.parametrize("value", [2, 0.5, np.float32(0.5), np.int64(2), Fraction(1, 2), 1e-300])
def test_positive_numbers_of_any_kind_come_back_as_floats(value: Any) -> None:
    converted = checks.positive("x", value, "seconds")
    assert converted == float(value)
    assert type(converted) is float


@pytest.mark.parametrize("value", [0, -0.0, -1, math.nan, math.inf, -math.inf, 10**400, True, "1", None, 1j, [1]])
def test_what_is_no_positive_finite_number_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=f"^x must be a finite number of seconds > 0, got {re.escape(repr(value))}$"):
        checks.positive("x", value, "seconds")


@pytest.mark.parametrize("value", [math.inf, np.inf, 10**400])
def test_infinity_and_an_int_beyond_every_float_are_positive_where_they_are_asked_for(value: Any) -> None:
    assert checks.positive("x", value, finite=False) == math.inf


def test_minus_an_int_beyond_every_float_is_not_positive() -> None:
    with pytest.raises(ValueError, match=r"^x must be a number > 0, got -1000"):
        checks.positive("x", -(10**400), finite=False)


def test_a_number_has_any_condition() -> None:
    def is_share(share: float) -> bool:
        return 0 <= share <= 1

    assert checks.number("p", np.float32(0.5), "a share from 0 to 1", is_share) == 0.5
    for value in (1.5, True, "0.5", None, math.nan, 10**400):
        with pytest.raises(ValueError, match=f"^p must be a share from 0 to 1, got {re.escape(repr(value))}$"):
            checks.number("p", value, "a share from 0 to 1", is_share)


@pytest.mark.parametrize("value", [True, False, np.True_, np.False_])
def test_flags_come_back_as_bools(value: Any) -> None:
    assert checks.flag("f", value) is bool(value)


@pytest.mark.parametrize("value", ["False", 0, 1, None, 1.0, []])
def test_what_is_no_flag_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=f"^f must be True or False, got {re.escape(repr(value))}$"):
        checks.flag("f", value)


@pytest.mark.parametrize("value", [no_function, len, int, lambda: 0])
def test_whatever_can_be_called_is_a_function(value: Any) -> None:
    checks.function("make_env", value, "makes the environment")


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: checks.whole("n", 0, 1, unit="frames"), "n must be a whole number of frames >= 1, got 0"),
        (lambda: checks.whole("n", 0, 1, 2000), "n must be a whole number between 1 and 2,000, got 0"),
        (lambda: checks.whole("n", -1, 0, or_none=True), "n must be a whole number >= 0, or None, got -1"),
        (lambda: checks.positive("x", 0), "x must be a finite number > 0, got 0"),
        (lambda: checks.positive("x", 0, finite=False, or_none=True), "x must be a number > 0, or None, got 0"),
        (lambda: checks.positive("x", 0, "GB"), "x must be a finite number of GB > 0, got 0"),
        (lambda: checks.function("f", 5, "makes a policy"), "f must be a function that makes a policy, got 5"),
        (lambda: checks.whole_frames("d", -1), "d must be >= 0 frames, got -1"),
        (lambda: checks.whole_frames("d", 0.5), "d must be a whole number of frames (an int), got 0.5"),
        (lambda: checks.whole_frames("d", True), "d must be a whole number of frames (an int), got True"),
    ],
)
def test_the_sentences(call: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        call()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("lz4", None), "'lz4' or None"),
        (("start", "effect"), "'start' or 'effect'"),
        (("a", "b", "c"), "one of 'a', 'b', 'c'"),
    ],
)
@pytest.mark.parametrize("value", ["lz", "", 0, False, ("lz4",), np.array(["lz4", "a"])])
def test_a_choice_is_one_of_the_words(words: tuple[str | None, ...], told: str, value: Any) -> None:
    for word in words:
        checks.choice("n", word, words)
    with pytest.raises(ValueError, match=f"^n must be {re.escape(told)}, got {re.escape(repr(value))}$"):
        checks.choice("n", value, words)


class Paying(gym.RewardWrapper[Any, Any]):
    """Pays the same for each frame."""

    def __init__(self, paid: Any) -> None:
        super().__init__(SeededEnv(shortest=5))
        self._paid = paid

    def reward(self, reward: Any) -> Any:
        return self._paid


def in_turn(make_env: Callable[[], Any]) -> None:
    play_episode(RandomAgent(make_env(), 0), make_env(), seed=0)


def under_delay(make_env: Callable[[], Any]) -> None:
    in_turn(lambda: RealtimeDelay(make_env(), 2))


def clipped(make_env: Callable[[], Any]) -> None:
    in_turn(lambda: ClipReward(make_env()))


def live(make_env: Callable[[], Any]) -> None:
    constants: dict[str, Any] = {"workers": 2, "fps": 10, "latency": Constant(0.15), "backend": "virtual"}
    AsyncRunner(make_env, lambda: lambda observation: 1, **constants).run(frames=3)


def at_once(make_env: Callable[[], Any]) -> None:
    with closing(LocalEnvs(make_env, 2)) as envs:
        envs.begin([0, 1])
        envs.send(envs.recv().env_ids, np.array([1, 1]))
        envs.recv()


@pytest.mark.parametrize("play", [in_turn, under_delay, clipped, live, at_once])
class TestRewards:
    @pytest.mark.parametrize("paid", ["x", "1.0", None, np.ones(1), np.ones(2), [1.0], 1j, torch.ones(1)])
    def test_what_is_no_number_is_refused_alike_in_all_worlds(self, play: Callable[..., None], paid: Any) -> None:
        with pytest.raises((BrokenEnvironment, RuntimeError)) as caught:
            play(partial(Paying, paid))
        assert f"the environment's reward must be a number, got {paid!r}: let its step return (obs" in str(caught.value)

    @pytest.mark.parametrize("paid", [1, 1.5, True, np.float32(0.5), np.int8(1), np.bool_(True), np.array(2), np.nan])
    def test_every_number_is_one(self, play: Callable[..., None], paid: Any) -> None:
        play(partial(Paying, paid))


class Answering(gym.Wrapper[Any, Any, Any, Any]):
    """Its step returns something else: always the same, or what a function makes of it."""

    def __init__(self, answer: Any) -> None:
        super().__init__(SeededEnv())
        self._answer = answer

    def step(self, action: Any) -> Any:
        answer = super().step(action)
        return self._answer(answer) if callable(self._answer) else self._answer


def served(make_env: Callable[[], Any]) -> None:
    def make_policy() -> Any:
        return lambda observations: np.ones(len(observations), int)

    batches = LinearBatches(0.01, 0.001)
    ServedRunner(make_env, make_policy, 2, 10, backend="virtual", latency=batches).run(frames=9)


def limited(make_env: Callable[[], Any]) -> None:
    def drive() -> Any:
        return gym.wrappers.TransformAction(make_env(), lambda speed: int(speed > 0.5), Box(0.0, 1.0, (), np.float64))

    in_turn(lambda: LimitAction(drive(), Limits(rate=1.0), 10))


def remembered(make_env: Callable[[], Any]) -> None:
    in_turn(lambda: AppliedActions(make_env(), 2))


ENDS = ("terminated", "truncated")


def saying(**said: Any) -> Callable[[], Any]:
    """Return what makes an environment whose steps say something else."""

    def answer(step: Any) -> Any:
        return tuple({**dict(zip(("observation", "reward", *ENDS, "info"), step, strict=True)), **said}.values())

    return partial(Answering, answer)


def begun_saying(name: str, value: Any) -> Any:
    env = saying(**{name: value})()
    env.reset(seed=0)
    return env


@pytest.mark.parametrize("play", [in_turn, under_delay, clipped, live, served, at_once, limited, remembered])
def test_every_way_of_playing_refuses_a_step_that_says_what_it_must_not(play: Callable[..., None]) -> None:
    for make, sentence in (
        (partial(Answering, None), "step of SeededEnv must return five values, got None: one of Gym's older"),
        (partial(Answering, (1, 2, 3, 4)), "step of SeededEnv must return five values, got (1, 2, 3, 4): one of Gym's"),
        (saying(terminated="no"), "the environment's terminated must be True or False, got 'no': let its step return"),
        (saying(info=None), "the environment's info must be a dict, got None: let its step return (observation, "),
    ):
        with pytest.raises((ValueError, RuntimeError), match=re.escape(sentence)):
            play(make)
    play(saying(info=MappingProxyType({})))


@pytest.mark.parametrize("value", ["", b"", None, 2, [], [True], np.array([True]), np.nan, torch.ones(1)], ids=repr)
@pytest.mark.parametrize("name", ENDS)
def test_an_end_that_is_neither_true_nor_false_is_refused(name: str, value: Any) -> None:
    with pytest.raises(BrokenEnvironment, match=f"^the environment's {name} must be True or False, got "):
        stepped(begun_saying(name, value), 1)


@pytest.mark.parametrize("value", [True, 1, 1.0, np.True_, np.int8(1), np.array(True), torch.tensor(True)], ids=repr)
@pytest.mark.parametrize("name", ENDS)
def test_every_flag_says_an_end(name: str, value: Any) -> None:
    assert stepped(begun_saying(name, value), 1)[2 + ENDS.index(name)] is value


@pytest.mark.parametrize("said", [{"terminated": "no"}, {"truncated": None}, {"info": None}], ids=repr)
def test_a_machine_says_ends_as_an_environment_does(said: dict[str, Any]) -> None:
    with pytest.raises(MachineFailed) as failed:
        live(lambda: Halved(saying(**said)()))
    (name, value) = *said, *said.values()
    assert str(failed.value).startswith("Halved was closed, as its observe must return two of True and False")
    assert f"{name}={value!r}" in str(failed.value)


def test_a_reward_that_is_no_number_ends_training_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "paying.py").write_text(
        "import gin\nfrom tests.async_wrappers.test_checks import Paying\n\n\n"
        "@gin.configurable\ndef make_paying():\n    return Paying('x')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    words = ["import paying", "Runner.create_environment_fn = @make_paying", "create_agent.agent_name = 'random'"]
    bindings = [word for each in words for word in ("--gin_bindings", each)]
    code = main(
        ["train.py", "--base_dir", "run", "--gin_files", "configs/dqn/cartpole.gin", "--allow_unread", *bindings]
    )
    assert code == 1
    assert (
        capsys.readouterr()
        .err.splitlines()[-1]
        .startswith("train.py: the environment's reward must be a number, got 'x': let its step return")
    )

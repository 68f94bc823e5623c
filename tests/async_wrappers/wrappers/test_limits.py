"""Limits: bounds, rate and jerk are kept by the numbers that are sent, always, and no more is changed for that."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from hypothesis import given, settings
from hypothesis import strategies as st

from async_wrappers import LimitAction, Limits, RealtimeDelay
from async_wrappers.wrappers.limits import Limiter

PER_FRAME = "per frame"


class Joints(gym.Env[Any, Any]):
    """Receives actions, and writes them down."""

    observation_space = Box(-1, 1, (1,))
    metadata = {"render_fps": 50}

    def __init__(self, space: Any) -> None:
        self.action_space = space
        self.received: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.received.append(np.array(action))
        return np.zeros(1, np.float32), 0.0, False, False, {}


def limiter(limits: Limits, space: Any = None, fps: Any = 50) -> Limiter:
    return Limiter(limits, Joints(Box(-1.0, 1.0, (1,), np.float32) if space is None else space), fps)


def sent(limits: Limits, asked: Any, **terms: Any) -> list[float]:
    limit = limiter(limits, **terms)
    return [round(float(limit([each]).action[0]), 4) for each in asked]


# Worked by hand.


def test_a_rate_is_kept_by_hand() -> None:
    assert sent(Limits(rate=0.3, unit=PER_FRAME), [1.0] * 5 + [0.9, -1.0]) == [0.3, 0.6, 0.9, 1.0, 1.0, 0.9, 0.6]
    assert sent(Limits(rate=15.0), [1.0, 1.0]) == [0.3, 0.6]  # a second, at 50 frames


def test_a_jerk_is_kept_by_hand_and_the_way_ends_where_it_was_asked_to() -> None:
    way = sent(Limits(rate=0.3, jerk=0.1, unit=PER_FRAME), [1.0] * 8)
    assert way == pytest.approx([0.1, 0.3, 0.6, 0.8, 0.9333, 1.0, 1.0, 1.0], abs=0.04)
    assert sent(Limits(rate=15.0, jerk=250.0), [1.0] * 8) == way  # .1 a frame and frame: 250 a second and second


def test_bounds_are_kept_and_those_of_the_space_stay() -> None:
    assert sent(Limits(low=-0.25, high=0.5), [1.0, -1.0, 0.1]) == [0.5, -0.25, 0.1]
    assert sent(Limits(high=7.0), [1.5]) == [1.0]


def test_what_the_limits_allow_is_not_changed() -> None:
    limit = limiter(Limits(low=-0.9, high=0.9, rate=0.5, unit=PER_FRAME))
    action, changed = limit(np.array([0.3], np.float32))
    assert (action.dtype, action.tolist(), changed) == (np.float32, np.array([0.3], np.float32).tolist(), False)
    assert limit(np.array([0.95], np.float32)).changed


@pytest.mark.parametrize("limits", [Limits(), Limits(-1.0, 1.0), Limits(rate=1.9, unit=PER_FRAME)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_asked_for_is_sent_to_its_last_bit_where_it_may_be(limits: Limits, dtype: Any) -> None:
    limit = limiter(limits, Box(-1, 1, (6,), dtype))
    for asked in np.random.default_rng(0).normal(0, 0.1, (100, 6)).clip(-0.9, 0.9) ** 3:
        action, changed = limit(asked.astype(dtype))
        assert (action.tobytes(), changed) == (asked.astype(dtype).tobytes(), False)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_action_of_no_dimension_is_limited_as_one_of_one(dtype: Any) -> None:
    limits = Limits(low=-0.9, rate=0.2, jerk=0.05, unit=PER_FRAME, soft_start=0.1)
    single, joint = limiter(limits, Box(-1, 1, (), dtype)), limiter(limits, Box(-1, 1, (1,), dtype))
    for asked in (1.0, 1.0, 0.3, -1.0, np.inf, -np.inf, 0.0) * 4:
        action, changed = single(np.asarray(asked, dtype))
        expected = joint(np.array([asked], dtype))
        assert isinstance(action, np.ndarray) and (action.shape, action.dtype) == ((), dtype)
        assert (action.tobytes(), changed) == (expected.action.tobytes(), expected.changed)


@pytest.mark.filterwarnings("error")
def test_an_infinite_action_of_a_box_without_bounds_is_followed_by_any_other() -> None:
    limit = limiter(Limits(rate=[0.1, np.inf], unit=PER_FRAME), Box(np.float32([-1, -np.inf]), np.float32([1, np.inf])))
    way = [limit([1.0, each]).action.tolist() for each in (np.inf, np.inf, 0.5, -np.inf, 0.25)]
    assert [each for _, each in way] == [np.inf, np.inf, 0.5, -np.inf, 0.25]
    assert [each for each, _ in way] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5], abs=1e-6)


def test_a_soft_start_reduces_the_rate_in_the_first_seconds_of_a_run() -> None:
    limit = limiter(Limits(rate=0.1, unit=PER_FRAME, soft_start=0.2), fps=50)  # 10 frames
    asked = [1.0, -1.0] * 10
    way = np.diff([0.0, *(float(limit([each]).action[0]) for each in asked)])
    assert np.abs(way[:10]) == pytest.approx([0.01 + 0.009 * frame for frame in range(10)], abs=1e-6)
    assert np.abs(way[10:]) == pytest.approx([0.1] * 10, abs=1e-6)
    limit.begin()  # another episode of the same run
    assert float(limit([1.0]).action[0]) == pytest.approx(0.1, abs=1e-6)
    limit.begin_run()
    limit.begin()
    assert float(limit([1.0]).action[0]) == pytest.approx(0.01, abs=1e-6)


def test_each_joint_has_its_own_limits_and_an_episode_begins_at_the_no_op() -> None:
    env = Joints(Box(np.array([-1.0, 0.5]), np.array([2.0, 3.0]), dtype=np.float64))
    env.noop_action = np.array([0.0, 1.0])  # type: ignore[attr-defined]
    limit = Limiter(Limits(rate=np.array([0.25, 0.5]), unit=PER_FRAME), env, 50)
    assert limit([2.0, 3.0]).action == pytest.approx([0.25, 1.5])
    limit.begin()
    assert limit([-1.0, 0.0]).action == pytest.approx([-0.25, 0.5])


def test_nan_goes_to_the_no_op_with_one_sentence() -> None:
    limit = limiter(Limits(rate=0.1, unit=PER_FRAME))
    limit([1.0])
    with pytest.warns(UserWarning, match=r"^limits go to the no-op where an action is NaN, got \[nan\]$"):
        assert limit([np.nan]) == (np.zeros(1, np.float32), True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        limit([np.nan])
    assert limit([np.inf]).action == pytest.approx([0.1], abs=1e-6)


# Always.


def kept(limits: Limits, actions: Any, rest: Any) -> None:
    """Assert that bounds, rate and jerk (of a frame) hold for what was sent, exactly."""
    way = np.concatenate([[rest, rest], actions]).astype(np.float64)
    change = np.diff(way, axis=0)
    for bound, numbers in ((limits.rate, change), (limits.jerk, np.diff(change, axis=0))):
        if bound is not None:
            assert np.abs(numbers).max() <= bound
    assert limits.low <= way.min() and way.max() <= limits.high


SIZES = st.floats(1e-3, 10).map(lambda size: float(f"{size:.3g}"))


@settings(max_examples=60, deadline=None)
@given(
    low=st.floats(-2.9, -0.1),
    high=st.floats(0.1, 2.9),
    rate=st.none() | SIZES,
    jerk=st.none() | SIZES,
    asked=st.lists(st.floats(-5, 5) | st.sampled_from([-9.0, 9.0, np.nan, np.inf]), min_size=1, max_size=60),
    dtype=st.sampled_from([np.float32, np.float64]),
    soft=st.sampled_from([0.0, 0.5]),
)
@pytest.mark.filterwarnings("ignore:limits go to")
def test_bounds_rate_and_jerk_hold_whatever_is_asked(
    low: float, high: float, rate: Any, jerk: Any, asked: list[float], dtype: Any, soft: float
) -> None:
    soft = soft if rate is not None or jerk is not None else 0.0
    limits = Limits(low, high, rate, jerk, PER_FRAME, soft)
    limit = limiter(limits, Box(-3, 3, (1,), dtype))
    kept(limits, [limit([each]).action for each in asked], np.zeros(1))


@settings(max_examples=25, deadline=None)
@given(
    target=st.floats(-1, 1),
    rate=st.floats(0.02, 3),
    jerk=st.floats(0.01, 3),
    first=st.lists(st.floats(-1, 1), max_size=20),
)
def test_what_is_asked_for_long_enough_is_reached_and_kept(
    target: float, rate: float, jerk: float, first: list[float]
) -> None:
    limit = limiter(Limits(rate=rate, jerk=jerk, unit=PER_FRAME))
    for each in first:
        limit([each])
    frames = int(20 + 4 / rate + 12 / np.sqrt(jerk))
    for _ in range(frames):
        action = limit([target]).action
    assert action == pytest.approx(target, abs=1e-5)
    assert limit([target]).action == pytest.approx(target, abs=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_million_frames_never_go_beyond(dtype: Any) -> None:
    """1,000 joints for 1,000 frames: noise, jumps from end to end, long ways, waves."""
    random = np.random.default_rng(0)
    limits = Limits(-0.8, 0.9, 0.05, 0.004, PER_FRAME)
    limit = limiter(limits, Box(-1, 1, (1_000,), dtype))
    actions = []
    for frame in range(1_000):
        asked = (
            random.uniform(-1, 1, 1_000),
            np.where(random.random(1_000) < 0.5, -1.0, 1.0),
            np.full(1_000, 1.0 if frame % 200 < 120 else -1.0),
            np.sin(frame / 9 + np.arange(1_000)),
        )[frame // 50 % 4]
        actions.append(limit(asked.astype(dtype)).action)
    kept(limits, actions, np.zeros(1_000))
    assert np.max(actions) == pytest.approx(0.9) and np.min(actions) == pytest.approx(-0.8, abs=0.05)
    with pytest.raises(AssertionError):  # the check can fail
        kept(Limits(-0.8, 0.9, 0.049, 0.004, PER_FRAME), actions, np.zeros(1_000))


# As a wrapper.


def test_the_wrapper_limits_default_actions_too_and_tells() -> None:
    env = Joints(Box(-1.0, 1.0, (1,), np.float32))
    limited = LimitAction(env, Limits(rate=10.0))  # 0.2 a frame: its frames are those of its metadata
    delayed = RealtimeDelay(limited, delay=2, default_action=np.ones(1, np.float32))
    delayed.reset(seed=0)
    info = delayed.step(-np.ones(1, np.float32))[4]
    assert np.concatenate(env.received).tolist() == pytest.approx([0.2, 0.4, 0.2], abs=1e-6)
    assert info["limited"]
    assert info["sent"] == pytest.approx([0.2], abs=1e-6)
    delayed.reset(seed=0)
    delayed.step(np.ones(1, np.float32))
    assert env.received[3] == pytest.approx([0.2], abs=1e-6)  # at rest again


# Wrong limits.


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"low": 1.0, "high": -1.0}, r"^low must be <= high, got low=1.0 and high=-1.0$"),
        ({"low": [0, 0], "high": [1, 1, 1]}, r"^low and high must have one shape, got \[2\] and \[3\]$"),
        ({"soft_start": 2.0}, r"^soft_start=2.0 needs a rate or a jerk, which it reduces: both are None$"),
    ],
)
def test_a_wrong_limit_is_refused(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Limits(**wrong)


@pytest.mark.parametrize(
    ("limits", "space", "sentence"),
    [
        (Limits(rate=1), Discrete(3), r"^limits need actions of a Box of floats, got Discrete\(3\)$"),
        (Limits(rate=1), Box(0, 9, (1,), np.int64), r"^limits need actions of a Box of floats, got Box"),
        (Limits(rate=[1, 2]), None, r"^rate must be a number or have the actions' shape \[1\], got \[1, 2\]$"),
        (Limits(low=2.0), None, r"^limits must leave some actions of Box.*, got low=2.0, high=None$"),
        (Limits(rate=1), Box(-np.inf, 1, (1,)), r"^low and high must be finite where rate or jerk is limited, got"),
        (
            Limits(jerk=1e-9, unit=PER_FRAME),
            None,
            r"^jerk must be >= \d.*e-\d+ per frame, which float32 can tell apart",
        ),
    ],
)
def test_limits_that_do_not_fit_the_actions_are_refused(limits: Limits, space: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        limiter(limits, space)


def test_an_action_of_another_shape_and_a_wrapper_without_limits_or_rate_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^action must have the shape \[1\], got \[2\]$"):
        limiter(Limits(rate=1))([1.0, 2.0])
    env = Joints(Box(-1, 1, (1,)))
    with pytest.raises(ValueError, match=r"^limits must be Limits\(...\), got 3$"):
        LimitAction(env, 3)  # type: ignore[arg-type]
    env.metadata = {}
    with pytest.raises(ValueError, match=r"^fps must be given, in frames per second"):
        LimitAction(env, Limits(rate=1))

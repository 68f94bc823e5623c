"""Tests of async_wrappers/wrappers/default_action.py."""

from __future__ import annotations

import re
import warnings
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import ale_py
import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from gymnasium.wrappers import TimeLimit, TransformAction, TransformReward
from numpy.typing import NDArray

from async_wrappers import AsyncRunner, Chunk, LimitAction, Limits, RampDown, RealtimeDelay, VectorRealtimeDelay
from async_wrappers.latency import LogNormal
from async_wrappers.wrappers.default_action import DOCUMENTED_NOOPS, find_noop, make_default_action
from tests.worlds.recording_env import FRAME, NOOP, RecordingEnv

gym.register_envs(ale_py)


class NamelessEnv(RecordingEnv):
    """Has no meanings of its actions."""

    get_action_meanings = None  # type: ignore[assignment]

    def __getattribute__(self, name: str) -> Any:
        if name == "get_action_meanings":
            raise AttributeError(name)
        return super().__getattribute__(name)


def received(
    default_action: Any, space: gym.Space[Any] | None = None, actions: Any = (0, 1), delay: int = 2, noops: int = 1
) -> list[Any]:
    """Return what the environment gets when the agent takes `actions`."""
    recorder = RecordingEnv() if space is None else NamelessEnv(action_space=space)
    env = RealtimeDelay(recorder, delay, noops, default_action)
    env.reset(seed=0)
    for action in actions:
        env.step(action)
    return recorder.actions


def test_noop_counts_from_the_start_of_the_space() -> None:
    env = RecordingEnv(action_space=Discrete(5, start=10))
    assert find_noop(env) == 10 + NOOP
    assert env.action_space.contains(find_noop(env))


def test_noop_is_found_through_wrappers() -> None:
    env = TransformReward(TimeLimit(RecordingEnv(), 100), lambda reward: reward)
    assert find_noop(env) == NOOP
    delayed = RealtimeDelay(env, delay=3)
    delayed.reset()
    delayed.step(1)
    assert delayed.unwrapped.actions == [NOOP] * 3 + [1]


@pytest.mark.parametrize("game", ["Pong", "Boxing"])
@pytest.mark.parametrize(("full", "count"), [(True, 18), (False, None)])
def test_noop_of_atari_is_the_action_that_ale_calls_noop(game: str, full: bool, count: int | None) -> None:
    env = gym.make(f"ALE/{game}-v5", full_action_space=full)
    if count is not None:
        assert env.action_space.n == count
    noop = find_noop(env)
    assert env.unwrapped.get_action_meanings()[noop] == "NOOP"
    assert noop == 0


def test_a_discrete_space_of_another_size_than_the_meanings_has_no_noop() -> None:
    assert find_noop(RecordingEnv(action_space=Discrete(4))) is None


@pytest.mark.parametrize(
    "space",
    [
        Box(-1, 1, (2,), np.float32),
        Box(0, 1, (2, 3), np.float64),
        Box(-5, 0, (1,), np.int64),
        Box(-1, 1, (), np.float32),
        MultiBinary(4),
        MultiBinary((2, 2)),
    ],
)
def test_noop_of_a_box_or_multibinary_that_holds_zeros_is_zeros(space: Any) -> None:
    noop = find_noop(NamelessEnv(action_space=space))
    assert isinstance(noop, np.ndarray)
    assert noop.dtype == space.dtype
    assert noop.shape == space.shape
    assert not noop.any()
    assert space.contains(noop)


@pytest.mark.parametrize(
    "space",
    [
        Box(1, 2, (2,), np.float32),
        Box(np.array([-1, 1], np.float32), np.array([1, 2], np.float32)),
        MultiDiscrete([2, 3]),
        Discrete(2),
        Discrete(3, start=-1),
        Tuple([Discrete(2), Discrete(2)]),
        Dict({"a": Discrete(2)}),
    ],
)
def test_noop_is_refused_where_there_is_none_by_argument_value_and_remedy(space: Any) -> None:
    with pytest.raises(ValueError, match="default_action='noop'") as error:
        RealtimeDelay(NamelessEnv(action_space=space), delay=1)
    message = str(error.value)
    assert str(space) in message
    assert "NamelessEnv" in message
    assert all(remedy in message for remedy in ("'repeat'", "'random'", "an action", "a function"))


def test_noop_is_refused_for_cartpole_by_its_id() -> None:
    with pytest.raises(ValueError, match=r"default_action='noop'.*CartPole-v1.*Discrete\(2\).*'repeat'"):
        RealtimeDelay(gym.make("CartPole-v1"), noops=1)


def test_noop_in_the_meanings_of_a_box_environment_is_not_looked_at() -> None:
    noop = find_noop(RecordingEnv(action_space=Box(-1, 1, (2,))))
    assert isinstance(noop, np.ndarray)


@pytest.mark.parametrize("default_action", ["noop", "repaet", 99, object(), None])
def test_without_default_frames_the_default_action_is_never_looked_up(default_action: Any) -> None:
    env = RealtimeDelay(gym.make("CartPole-v1"), 0, 0, default_action)
    env.reset(seed=0)
    env.step(1)


@pytest.mark.parametrize(("delay", "noops"), [(1, 0), (0, 1)])
def test_one_default_frame_is_enough_to_look_it_up(delay: int, noops: int) -> None:
    with pytest.raises(ValueError, match="default_action"):
        RealtimeDelay(gym.make("CartPole-v1"), delay, noops)


@pytest.mark.parametrize(
    ("wrong", "right"), [("repaet", "repeat"), ("no-op", "noop"), ("Random", "random"), ("NOOP", None)]
)
def test_an_unknown_name_is_refused_with_the_known_ones_and_a_close_one(wrong: str, right: str | None) -> None:
    with pytest.raises(ValueError, match=r"^default_action must be one of 'noop', 'repeat', 'random'") as error:
        RealtimeDelay(RecordingEnv(), 1, 0, wrong)
    message = str(error.value)
    assert f"got {wrong!r}" in message
    if right is not None:
        assert f"did you mean {right!r}?" in message


@pytest.mark.parametrize(
    ("space", "action"),
    [
        (Discrete(5), 5),
        (Discrete(5), -1),
        (Discrete(5), 1.0),
        (Discrete(5), None),
        (Discrete(5, start=1), 0),
        (Box(-1, 1, (2,)), [0.5, 1.5]),
        (Box(-1, 1, (2,)), [0.5]),
        (Box(-1, 1, (2,)), "ab"),
        (Box(-1, 1, (2,)), ["a", "b"]),
        (MultiDiscrete([2, 3]), [1, 3]),
        (MultiBinary(2), [1, 2]),
    ],
)
@pytest.mark.filterwarnings("ignore:.*Casting input x to numpy array")
def test_an_action_outside_the_space_is_refused_by_value_and_space(space: Any, action: Any) -> None:
    with pytest.raises(ValueError, match=r"^default_action must be one of") as error:
        RealtimeDelay(NamelessEnv(action_space=space), 1, 0, action)
    message = str(error.value)
    assert str(space) in message
    assert f"got {action!r}" in message


@pytest.mark.parametrize(
    ("space", "action"),
    [
        (Box(-1, 1, (2,), np.float32), [0.5, -0.25]),
        (Box(-1, 1, (2,), np.float32), (0.5, -0.25)),
        (Box(-1, 1, (2,), np.float32), np.array([0.5, -0.25])),
        (Box(-9, 9, (2, 2), np.int64), [[1, 2], [3, -4]]),
        (MultiBinary(3), [1, 0, 1]),
        (MultiDiscrete([2, 3]), [1, 2]),
    ],
)
def test_numbers_given_as_a_list_reach_the_environment_as_an_array_of_the_space(space: Any, action: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sent = make_default_action(action, NamelessEnv(action_space=space))(None, None)
    assert isinstance(sent, np.ndarray)
    assert sent.dtype == space.dtype
    assert sent.tolist() == np.asarray(action).tolist()


@pytest.mark.parametrize(
    ("space", "zero"),
    [
        (Discrete(2), 0),
        (Discrete(3, start=5), 5),
        (MultiDiscrete([2, 3]), [0, 0]),
        (MultiDiscrete([2, 3], start=[1, -1]), [1, -1]),
        (Box(-1, 1, (2,)), [0, 0]),
        (Box(1, 2, (2,)), [1, 1]),
        (Box(-2, -1, (2,)), [-1, -1]),
        (MultiBinary(2), [0, 0]),
        (Tuple([Discrete(2), Discrete(2)]), [0, 0]),
    ],
)
def test_repeat_before_the_first_action_is_the_zero_of_a_space_without_a_noop(space: Any, zero: Any) -> None:
    action = space.sample()
    before, agents, after = received("repeat", space, [action], delay=1, noops=1)
    assert space.contains(before)
    assert np.asarray(before).tolist() == zero
    assert np.asarray(agents).tolist() == np.asarray(after).tolist() == np.asarray(action).tolist()


@pytest.mark.parametrize(
    "space", [Discrete(7, start=-3), Box(-1, 1, (3,)), MultiBinary(4), MultiDiscrete([5, 6]), Dict({"a": Discrete(9)})]
)
def test_random_actions_are_members_of_the_space_and_vary(space: Any) -> None:
    actions = received("random", space, [space.sample()], delay=50, noops=0)[:-1]
    assert len(actions) == 50
    assert all(space.contains(action) for action in actions)
    assert len({repr(action) for action in actions}) > 1


def test_two_wrappers_that_were_never_seeded_draw_differently() -> None:
    logs = []
    for _ in range(2):
        env = RealtimeDelay(RecordingEnv(), delay=100, default_action="random")
        env.reset()
        env.step(0)
        logs.append(env.unwrapped.actions)
    assert logs[0] != logs[1]


def test_a_function_is_asked_once_per_default_frame_and_not_after_the_end() -> None:
    frames: list[int] = []

    def reflex(observation: NDArray[np.int64], last_action: Any) -> int:
        frames.append(int(observation[FRAME]))
        return 3

    env = RealtimeDelay(RecordingEnv(4), delay=10, default_action=reflex)
    env.reset()
    env.step(0)
    assert frames == [0, 1, 2, 3]


def test_a_fixed_action_is_the_one_given_whatever_happens_to_the_callers_array() -> None:
    given = np.array([0.5], np.float32)
    recorder = RecordingEnv(action_space=Box(-1, 1, (1,)))
    env = RealtimeDelay(recorder, delay=2, default_action=given)
    given[0] = -1
    env.reset()
    env.step(np.array([0.0], np.float32))
    assert [float(action[0]) for action in recorder.actions] == [0.5, 0.5, 0]


@pytest.mark.parametrize(
    ("make", "action"),
    [
        (lambda: gym.make("MountainCar-v0"), 1),
        (lambda: gym.make("Acrobot-v1"), 1),
        (lambda: TimeLimit(gym.make("Acrobot-v1"), 3), 1),
    ],
)
def test_noop_is_the_action_of_which_gymnasiums_documentation_says_that_it_does_nothing(make: Any, action: int) -> None:
    assert find_noop(make()) == action


@pytest.mark.parametrize(
    ("place", "name", "count", "action"),
    [("box2d.lunar_lander", "LunarLander", 4, 0), ("box2d.car_racing", "CarRacing", 5, 0)],
)
def test_so_it_is_of_box2ds(place: str, name: str, count: int, action: int) -> None:
    """By a class of that name: Box2D itself need not be installed."""
    kind = type(name, (NamelessEnv,), {"__module__": f"gymnasium.envs.{place}"})
    assert find_noop(kind(action_space=Discrete(count))) == action
    assert find_noop(kind(action_space=Discrete(count + 1))) is None
    assert find_noop(type("Mine", (kind,), {})(action_space=Discrete(count))) is None


def test_what_is_said_of_noops_in_gymnasiums_documentation_is_in_the_table() -> None:
    """Gymnasium's own words: a release that changes them is to be looked at."""
    words = {"LunarLander": "- 0: do nothing", "CarRacing": "- 0: do nothing"}
    words |= {"AcrobotEnv": "| 1   | apply 0 torque", "MountainCarEnv": "- 1: Don't accelerate"}
    for entry in DOCUMENTED_NOOPS:
        module, _, name = entry.rpartition(".")
        source = Path(gym.__file__).parent.joinpath(*module.split(".")[1:]).with_suffix(".py").read_text()
        assert f"class {name}(" in source and words[name] in source


class Saying(NamelessEnv):
    """Says which of its actions does nothing."""

    def __init__(self, noop_action: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.noop_action = noop_action


@pytest.mark.parametrize(
    ("space", "said", "noop"),
    [
        (Discrete(4), 3, 3),
        (MultiDiscrete([3, 3]), [1, 1], [1, 1]),
        (Box(1, 2, (2,), np.float32), [1.5, 1.5], [1.5, 1.5]),
        (Box(-1, 1, (1,), np.float32), [0.5], [0.5]),
    ],
)
def test_an_environment_may_say_which_action_does_nothing(space: Any, said: Any, noop: Any) -> None:
    env = Saying(said, action_space=space)
    assert np.array_equal(find_noop(env), noop)
    assert np.array_equal(find_noop(TimeLimit(env, 10)), noop)
    assert space.contains(find_noop(env))
    delayed = RealtimeDelay(env, delay=2)
    delayed.reset(seed=0)
    delayed.step(space.sample())
    assert np.array_equal(env.actions[0], noop)


def test_a_wrapper_may_say_it_too() -> None:
    class Says(gym.Wrapper[Any, Any, Any, Any]):
        noop_action = 1

    assert find_noop(TimeLimit(Says(gym.make("CartPole-v1")), 10)) == 1


def test_what_lies_within_a_wrapper_that_changes_the_actions_is_not_asked() -> None:
    changed = TransformAction(Saying(3, action_space=Discrete(4)), lambda action: action, Discrete(2))
    assert find_noop(changed) is None
    assert find_noop(TransformAction(gym.make("Acrobot-v1"), lambda action: action, Discrete(3))) is None


def test_an_environment_that_says_what_is_no_action_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^noop_action of Saying must be an element of Discrete\(4\), got 4$"):
        RealtimeDelay(Saying(4, action_space=Discrete(4)), delay=1)


def test_idle_is_a_noop_in_the_meanings_and_in_highways_action_type() -> None:
    class Named(NamelessEnv):
        get_action_meanings = None  # type: ignore[assignment]

        def __getattribute__(self, name: str) -> Any:
            return (
                (lambda: ["LEFT", "Idle", "RIGHT"]) if name == "get_action_meanings" else super().__getattribute__(name)
            )

    class DiscreteMetaAction:
        actions_indexes: ClassVar[dict[str, int]] = {"LANE_LEFT": 0, "IDLE": 1, "LANE_RIGHT": 2}

    assert find_noop(Named(action_space=Discrete(3))) == 1
    highway = NamelessEnv(action_space=Discrete(3))
    highway.action_type = DiscreteMetaAction()
    assert find_noop(TimeLimit(highway, 10)) == 1
    highway.action_space = Discrete(5)
    assert find_noop(highway) is None


def written_lines(message: str) -> list[str]:
    return re.findall("`([^`]*)`", message)


@pytest.mark.parametrize(
    "arguments",
    [
        {"delay": 8},
        {"noops": 3},
        {"delay": 8, "noops": 3},
        {"latency": LogNormal(mean=0.12, cv=0.2), "workers": 10, "fps": 60, "stagger": "none"},
        {"latency": 0.1, "fps": Fraction(60), "playout": 6, "slot": 2},
    ],
)
def test_the_refusal_for_want_of_a_noop_gives_a_line_that_works(arguments: dict[str, Any]) -> None:
    env = gym.make("CartPole-v1")
    with pytest.raises(ValueError, match=r"noop_action") as error:
        RealtimeDelay(env, **arguments)
    (line,) = written_lines(str(error.value))
    assert line.startswith("RealtimeDelay(env, ")
    names = {"env": env, "RealtimeDelay": RealtimeDelay, "LogNormal": LogNormal, "Fraction": Fraction}
    made = eval(line, names)
    assert isinstance(made, RealtimeDelay)
    written = {name: value for name, value in made.spec.additional_wrappers[-1].kwargs.items() if name in arguments}
    assert written == arguments


def test_the_vectors_refusal_gives_a_line_that_works() -> None:
    env = gym.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync")
    with pytest.raises(ValueError, match="default_action='noop' needs") as error:
        VectorRealtimeDelay(env, 4, 1)
    (line,) = written_lines(str(error.value))
    assert line == "VectorRealtimeDelay(env, delay=4, noops=1, default_action='repeat')"
    assert isinstance(eval(line, {"env": env, "VectorRealtimeDelay": VectorRealtimeDelay}), VectorRealtimeDelay)


@pytest.mark.parametrize("backend", ["virtual", "thread", "process"])
def test_the_runners_refusal_gives_a_line_that_works(backend: str) -> None:
    def make_env() -> Any:
        return gym.make("CartPole-v1")

    def make_policy() -> Any:
        return lambda observation: 1

    with pytest.raises(ValueError, match="default_action='noop' needs") as error:
        AsyncRunner(make_env, make_policy, 1, 60, backend=backend, latency=0.01, playout=1).run(frames=3)
    (line,) = written_lines(str(error.value))
    assert line == "AsyncRunner(make_env, make_policy, workers=1, fps=60, default_action='repeat')"
    assert eval(line, {"make_env": make_env, "make_policy": make_policy, "AsyncRunner": AsyncRunner})


def test_a_vector_that_says_which_action_does_nothing_is_heard() -> None:
    env = gym.make_vec("CartPole-v1", num_envs=2, vectorization_mode="vector_entry_point")
    with pytest.raises(ValueError, match="default_action='noop' needs"):
        VectorRealtimeDelay(env, 1)
    env.unwrapped.noop_action = 1
    delayed = VectorRealtimeDelay(env, 1)
    _, info = delayed.reset(seed=0)
    assert info["realtime"]["deciding"].all()
    sync = gym.make_vec("Acrobot-v1", num_envs=2, vectorization_mode="sync")
    assert VectorRealtimeDelay(sync, 1).num_envs == 2


# In a wrapper, in a vector and live alike.

WORLDS = [RealtimeDelay, VectorRealtimeDelay, AsyncRunner]


class Writing(RecordingEnv):
    """Writes into the array that it receives."""

    def step(self, action: Any) -> Any:
        returned = super().step(action)
        action[...] = 3
        return returned


def received_in(make: Any, env: Any, default_action: Any, action: Any) -> list[float]:
    """Return what an environment receives: the default action twice, the agent's action, and two frames after it."""
    wrapped = TimeLimit(env, 100)
    if make is AsyncRunner:
        policy, timing = (lambda observation: action.copy()), {"latency": 2 / 60, "playout": 2, "slot": 9}
        runner = AsyncRunner(
            lambda: wrapped, lambda: policy, 1, 60, backend="virtual", default_action=default_action, **timing
        )
        runner.run(frames=5)
    else:
        is_vector = make is VectorRealtimeDelay
        delayed = make(SyncVectorEnv([lambda: wrapped]) if is_vector else wrapped, 2, 2, default_action)
        delayed.reset(seed=0)
        delayed.step(np.array([action]) if is_vector else action.copy())
    return [float(each[0]) for each in env.actions[:5]]


class Anew(Writing):
    """Makes its space anew each time that it is asked, as a property may."""

    noop_action = np.float32([0.5])
    action_space = property(lambda self: Box(-4, 4, (1,)), lambda self, space: None)  # type: ignore[assignment]


ONE = np.ones(1, np.float32)


@pytest.mark.parametrize("make", WORLDS)
@pytest.mark.parametrize(
    ("default_action", "action", "after"),
    [
        ("noop", ONE, [0.5, 0.5]),
        (np.float32([0.5]), ONE, [0.5, 0.5]),
        ("repeat", ONE, [1, 1]),
        (RampDown(2), ONE, [0.75, 0.5]),
        (Chunk(5, after="noop"), np.ones((5, 1), np.float32), [1, 1]),
        (Chunk(5), np.ones((5, 1), np.float32), [1, 1]),
    ],
    ids=str,
)
def test_a_no_op_is_found_where_spaces_are_equal_and_not_identical(
    make: Any, default_action: Any, action: Any, after: list[float]
) -> None:
    assert received_in(make, Anew(), default_action, action) == [0.5, 0.5, 1, *after]


def test_a_no_op_is_found_in_processes_for_a_ramp_too() -> None:
    vector = AsyncVectorEnv([Anew])
    try:
        env = VectorRealtimeDelay(vector, delay=2, default_action=RampDown(2))
        assert [each(None, None).tolist() for each in env._default_actions] == [[0.5]]
    finally:
        vector.close()


@pytest.mark.parametrize("make", WORLDS)
def test_a_function_gets_copies_and_a_copy_of_what_it_returns_is_sent(make: Any) -> None:
    kept = np.zeros(1, np.float32)

    def reflex(observation: Any, last_action: Any) -> Any:
        """Write into all that comes, and return what is its own or came."""
        observation[:] = -1
        if last_action is None:
            return kept
        last_action *= 2
        return last_action

    env = Writing(action_space=Box(-4, 4, (1,)))
    assert received_in(make, env, reflex, ONE.copy()) == [0, 0, 1, 2, 2]
    assert kept == 0


def plainly(observation: Any, last_action: Any) -> Any:
    return [0.25] if last_action is None else last_action.astype(np.float64)


@pytest.mark.parametrize("make", WORLDS)
def test_what_a_function_returns_is_converted_as_an_answer_of_a_policys_is(make: Any) -> None:
    env = RecordingEnv(action_space=Box(-4, 4, (1,)))
    assert received_in(make, env, plainly, ONE) == [0.25, 0.25, 1, 1, 1]
    assert {type(each).__name__ + str(each.dtype) for each in env.actions} == {"ndarrayfloat32"}


@pytest.mark.parametrize("make", WORLDS)
@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        (np.full(1, np.nan), "it is NaN"),
        ([5.0], "it lies outside"),
        ([0, 0], r"its shape is \[2\]"),
        (None, "it is no n"),
    ],
)
def test_what_a_function_returns_that_is_no_action_is_refused_in_a_sentence(
    make: Any, returned: Any, reason: str
) -> None:
    env = RecordingEnv(action_space=Box(-4, 4, (1,)))
    with pytest.raises(ValueError, match=rf"^the function default_action answered .* no action of Box.*: {reason}"):
        received_in(make, env, lambda observation, last_action: returned, ONE)
    assert not any(env.episodes)


def test_limits_take_what_a_function_returns_whatever_it_is() -> None:
    env = RecordingEnv(action_space=Box(-4, 4, (1,)))
    limited = RealtimeDelay(LimitAction(env, Limits(high=2.0)), 2, 0, lambda observation, last_action: np.float32([9]))
    limited.reset(seed=0)
    limited.step(ONE)
    assert [float(each[0]) for each in env.actions] == [2, 2, 1]


# Rounding at bounds.


@pytest.mark.parametrize("make", WORLDS)
@pytest.mark.parametrize("sign", [1, -1])
def test_a_bound_as_another_type_rounds_it_is_no_violation(make: Any, sign: int) -> None:
    """Float32's nearest number to .1 lies 1.5e-9 above it."""
    full = np.float32([0.1 * sign])
    space = Box(-0.1, 0.1, (1,), np.float64)
    assert not space.contains(full.astype(np.float64))
    for default_action in (full, lambda observation, last_action: full):
        env = RecordingEnv(action_space=space)
        assert received_in(make, env, default_action, full) == [0.1 * sign] * 5
        assert all(space.contains(each) for each in env.actions)
    env = RecordingEnv(action_space=space)
    assert received_in(make, env, Chunk(5, after=full), np.tile(full, (5, 1))) == [0.1 * sign] * 5


def test_a_pause_action_gets_copies_and_is_checked_too() -> None:
    def on_frame(status: Any) -> None:
        if status.frame == 4:
            status.pause()

    def played(pause_action: Any) -> list[float]:
        env = Writing(action_space=Box(-4, 4, (1,)))
        terms: dict[str, Any] = {"backend": "virtual", "latency": 2 / 60, "playout": 2, "default_action": "repeat"}
        terms |= {"pause_action": pause_action}
        AsyncRunner(lambda: env, lambda: lambda observation: ONE.copy(), 1, 60, **terms).run(
            frames=7, on_frame=on_frame
        )
        return [float(each[0]) for each in env.actions]

    def doubled(observation: Any, last_action: Any) -> Any:
        observation[:], last_action[:] = -1, 2 * last_action
        return last_action

    assert played(doubled) == [0, 0, 1, 1, 2, 2, 2]
    with pytest.raises(ValueError, match=r"^the function pause_action answered \[9\] .*: it lies outside$"):
        played(lambda observation, last_action: [9])


@pytest.mark.parametrize("default_action", [0.5, np.float32(0.5), np.array(0.5), RampDown(4), "repeat", "noop"])
def test_an_action_of_no_dimension_is_an_array_too(default_action: Any) -> None:
    actions = [np.array(1.0, np.float32)] * 2
    for action in received(default_action, Box(-1, 1, (), np.float32), actions, noops=2):
        assert isinstance(action, np.ndarray) and (action.shape, action.dtype) == ((), np.float32)

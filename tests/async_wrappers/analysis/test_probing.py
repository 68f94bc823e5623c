"""Tests of async_wrappers/analysis/probing.py: small environments whose hidden delay is known, then real ones."""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Graph, MultiBinary, MultiDiscrete, Text, Tuple, flatten
from gymnasium.wrappers import DelayObservation
from hypothesis import given, settings
from hypothesis import strategies as st

from async_wrappers import Sensor, SensorDelay
from async_wrappers.__main__ import main
from async_wrappers.analysis.probing import ProbeResult, probe_delay
from async_wrappers.wrappers.delay import RealtimeDelay
from tests.worlds.recording_env import RecordingEnv, mixed

FOUR = Discrete(4)


class Hidden(gym.Env[Any, Any]):
    """Takes the action of some frames, applies it `lag` frames later, and shows a number that depends on all of those.

    Args:
        lag: Frames that an action waits in a queue.
        takes: Whether the action of this frame is taken; called with the frame and the episode's seed.
        length: Frames per episode, None for endless.
        reward_lag: Frames from an action to the reward that it changes; None: the reward never changes.
        noise: None, ``"unseeded"`` or ``"seeded"``: another number in the observation.
        mute: Never shows anything.
        action_space: Of any kind that can be flattened.
        nested: Observations in a dict of a tuple of arrays, reused from step to step.
    """

    def __init__(
        self,
        lag: int = 0,
        takes: Callable[[int, int], bool] = lambda frame, seed: True,
        length: int | None = None,
        reward_lag: int | None = None,
        noise: str | None = None,
        mute: bool = False,
        action_space: gym.Space[Any] = FOUR,
        nested: bool = False,
    ) -> None:
        number = Box(-np.inf, np.inf, (2,), np.float64)
        self.observation_space = Dict({"a": Tuple([number, Text(9)])}) if nested else number
        self.action_space = action_space
        self._lag, self._takes, self._length, self._reward_lag = lag, takes, length, reward_lag
        self._noise, self._mute, self._nested = noise, mute, nested
        self._array = np.zeros(2)
        self.seeds: list[int | None] = []
        self.closed = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.seeds.append(seed)
        self._seed = seed or 0
        self._frame = self._history = 0
        self._queue: deque[int] = deque([0] * self._lag)
        self._rewards: deque[int] = deque([0] * (self._reward_lag or 0))
        return self._show(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if isinstance(self.action_space, Discrete):
            number = mixed(int(action))
        else:
            number = mixed(*(int(1000 * part) for part in np.ravel(flatten(self.action_space, action)).tolist()))
        self._queue.append(number if self._takes(self._frame, self._seed) else 0)
        self._history = mixed(self._history, self._queue.popleft())
        self._rewards.append(number)
        reward = 0 if self._reward_lag is None else self._rewards.popleft()
        self._frame += 1
        if isinstance(action, np.ndarray):
            action[...] = 0  # an environment may do this
        return self._show(), float(reward), self._frame == self._length, False, {}

    def close(self) -> None:
        self.closed = True

    def _show(self) -> Any:
        noise = 0.0
        if self._noise is not None:
            noise = self.np_random.random() if self._noise == "seeded" else np.random.default_rng().random()
        self._array[:] = 0.0 if self._mute else self._history, noise
        return {"a": (self._array, str(self._frame))} if self._nested else self._array


def one_in(period: int, phase: int = 0) -> Callable[[int, int], bool]:
    return lambda frame, seed: frame % period == phase


@pytest.mark.parametrize("lag", [0, 1, 2, 5])
def test_the_lag_of_a_queue_of_actions_is_found(lag: int) -> None:
    result = probe_delay(lambda: Hidden(lag))
    assert (result.lag, result.period, result.phase) == (lag, 1, 0)
    assert result.confidence == 1.0
    assert result.deterministic
    assert result.differing == result.trials == 8 * 16


@pytest.mark.parametrize(("period", "phase"), [(1, 0), (2, 0), (2, 1), (4, 0), (4, 3)])
def test_the_period_and_phase_of_a_hold_are_found(period: int, phase: int) -> None:
    result = probe_delay(lambda: Hidden(takes=one_in(period, phase)), episodes=3)
    assert (result.lag, result.period, result.phase) == (0, period, phase)
    assert result.confidence == 1.0


@settings(max_examples=10, deadline=None)
@given(
    lag=st.integers(0, 6),
    period=st.integers(1, 4),
    phase=st.integers(0, 3),
    length=st.none() | st.integers(24, 40),
    seed=st.integers(0, 1000),
    made=st.booleans(),
)
def test_lag_and_period_are_found_together(
    lag: int, period: int, phase: int, length: int | None, seed: int, made: bool
) -> None:
    def make_env() -> gym.Env[Any, Any]:
        return Hidden(lag, one_in(period, phase % period), length, noise="seeded")

    result = probe_delay(make_env if made else make_env(), episodes=3, max_frames=30, seed=seed)
    assert (result.lag, result.period, result.phase) == (lag, period, phase % period)
    assert result.confidence == 1.0


@settings(max_examples=10, deadline=None)
@given(lag=st.integers(0, 3), pattern=st.lists(st.booleans(), min_size=1, max_size=6))
def test_a_period_is_never_reported_where_a_frame_outside_it_counts(lag: int, pattern: list[bool]) -> None:
    result = probe_delay(Hidden(lag, lambda frame, seed: pattern[frame % len(pattern)]), episodes=4)
    taken = {frame for frame in range(60) if pattern[frame % len(pattern)]}
    if result.period is not None:
        assert result.phase is not None
        assert taken == set(range(result.phase, 60, result.period))
    assert result.lag == (lag if taken else None)


@pytest.mark.parametrize(
    "space",
    [
        Discrete(2, start=-1),
        MultiDiscrete([2, 3]),
        MultiBinary(3),
        Box(-1, 1, (2,), np.float32),
        Box(-np.inf, np.inf, (1,), np.float64),
        Box(0, 255, (2, 2), np.uint8),
        Dict({"move": Discrete(2), "turn": Box(0, 1, (1,), np.float32)}),
        Tuple([Discrete(3), MultiBinary(2)]),
    ],
)
def test_actions_of_every_kind_are_compared(space: gym.Space[Any]) -> None:
    result = probe_delay(Hidden(2, one_in(2), action_space=space), episodes=2)
    assert (result.lag, result.period, result.phase) == (2, 2, 0)


def test_a_continuous_action_is_replaced_by_one_far_from_it() -> None:
    class Deaf(Hidden):
        """Rounds actions: those that are close do the same."""

        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            return super().step(np.where(action > 0, 1.0, -1.0).astype(np.float32))

    result = probe_delay(lambda: Deaf(action_space=Box(-1, 1, (1,), np.float32)))
    assert result.differing / result.trials > 0.85


@pytest.mark.parametrize("made", [True, False])
def test_nested_observations_in_reused_arrays_are_compared(made: bool) -> None:
    env = Hidden(3, nested=True)
    assert probe_delay((lambda: env) if made else env, episodes=2).lag == 3


def test_graphs_as_observations_are_compared() -> None:
    class Graphs(gym.ObservationWrapper[Any, Any, Any]):
        observation_space = Graph(Box(-np.inf, np.inf, (2,)), None)

        def observation(self, observation: Any) -> Any:
            return gym.spaces.GraphInstance(nodes=observation[None].copy(), edges=None, edge_links=None)

    assert probe_delay(Graphs(Hidden(1)), episodes=2).lag == 1


def test_nan_in_an_observation_is_no_difference() -> None:
    class WithNaN(gym.ObservationWrapper[Any, Any, Any]):
        def observation(self, observation: Any) -> Any:
            return {"array": np.append(observation, np.nan), "number": float("nan")}

    result = probe_delay(WithNaN(Hidden(2)), episodes=2)
    assert result.deterministic
    assert result.lag == 2


def test_noise_that_the_seed_does_not_govern_is_named() -> None:
    result = probe_delay(lambda: Hidden(1, noise="unseeded"))
    assert not result.deterministic
    assert (result.lag, result.reward_lag, result.period, result.phase, result.confidence) == (None,) * 5
    assert result.verdict == "cannot tell: the environment is not deterministic by seed"


def test_noise_that_comes_late_is_noticed_too() -> None:
    class Late(Hidden):
        resets = 0

        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
            Late.resets += 1
            observation, info = super().reset(seed=seed, options=options)
            return (observation + 1 if Late.resets == 10 else observation), info

    result = probe_delay(Late(2))
    assert not result.deterministic
    assert result.lag is None
    assert 0 < result.trials < 10


def test_noise_beyond_the_frames_that_are_changed_is_noticed() -> None:
    class LateInTheEpisode(Hidden):
        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            observation, *rest = super().step(action)
            return observation + (np.random.default_rng().random() if self._frame > 40 else 0), *rest

    assert not probe_delay(LateInTheEpisode(mute=True)).deterministic


def test_an_environment_that_does_not_forget_can_be_probed_through_a_function_that_makes_it() -> None:
    of_an_instance = probe_delay(RecordingEnv())  # it counts its episodes, and shows the count
    assert not of_an_instance.deterministic
    assert "give a function that makes it" in of_an_instance.verdict
    assert probe_delay(RecordingEnv).lag == 0


def test_actions_that_change_nothing_give_no_lag() -> None:
    result = probe_delay(Hidden(mute=True))
    assert (result.lag, result.reward_lag, result.period, result.confidence) == (None, None, None, None)
    assert (result.differing, result.deterministic) == (0, True)
    assert result.trials == 8 * 16 * 2  # both alternatives
    assert "cannot tell: no action changed any observation within max_frames=60" in result.verdict


def test_a_lag_beyond_max_frames_is_not_seen() -> None:
    assert probe_delay(Hidden(12), max_frames=10).lag is None
    assert probe_delay(Hidden(12), max_frames=26).lag == 12


def test_the_rewards_lag_is_a_number_of_its_own() -> None:
    result = probe_delay(Hidden(1, reward_lag=4))
    assert (result.lag, result.reward_lag) == (1, 4)
    assert "the reward first shows it after 4 frames" in result.verdict
    assert probe_delay(Hidden(1)).reward_lag is None


def test_rewards_alone_can_tell_the_period() -> None:
    result = probe_delay(Hidden(mute=True, reward_lag=0))
    assert (result.lag, result.reward_lag, result.period) == (None, 0, 1)


def test_an_end_that_comes_earlier_is_no_difference_of_observations() -> None:
    class EndsOn(Hidden):
        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            observation, reward, _, _, info = super().step(action)
            return observation, reward, action == 3 and self._frame > 12, False, info

    assert probe_delay(lambda: EndsOn(3)).lag == 3


def test_a_lag_that_varies_gives_the_least_with_less_confidence() -> None:
    class Varying(Hidden):
        """The lag is the seed's remainder by 4."""

        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
            self._lag = (seed or 0) % 4
            return super().reset(seed=seed, options=options)

    result = probe_delay(lambda: Varying())
    assert result.lag == 0
    assert result.confidence == 0.25
    assert "32 of 128 trials that differed); most took longer (median 1.5 frames)" in result.verdict


def test_a_phase_that_differs_from_episode_to_episode_is_left_open() -> None:
    result = probe_delay(lambda: Hidden(takes=lambda frame, seed: frame % 3 == seed % 3), episodes=4)
    assert (result.period, result.phase) == (3, None)
    assert "phase different from episode to episode" in result.verdict


def test_a_pattern_that_is_no_period_is_left_open() -> None:
    result = probe_delay(lambda: Hidden(takes=lambda frame, seed: frame % 4 in (0, 1)), episodes=3)
    assert (result.period, result.phase) == (None, None)
    assert "cannot tell the period" in result.verdict


def test_actions_dropped_at_random_by_the_seed_are_no_period() -> None:
    def taken(frame: int, seed: int) -> bool:
        return bool(np.random.default_rng((seed, frame)).random() > 0.25)

    result = probe_delay(lambda: Hidden(takes=taken), episodes=4)
    assert (result.lag, result.period) == (0, 1)
    assert "of the frames the actions that were tried made no difference" in result.verdict


def test_frames_without_effect_at_the_beginning_are_no_period() -> None:
    result = probe_delay(lambda: Hidden(takes=lambda frame, seed: frame >= 6), episodes=3)
    assert (result.lag, result.period) == (0, 1)


def test_two_frames_with_an_effect_are_too_few_for_a_period() -> None:
    result = probe_delay(Hidden(takes=lambda frame, seed: frame in (3, 7)), episodes=1)
    assert result.lag == 0
    assert result.period is None


@pytest.mark.parametrize("lag", [0, 2])
def test_short_episodes_are_enough(lag: int) -> None:
    result = probe_delay(Hidden(lag, length=4))
    assert (result.lag, result.period) == (lag, 1)


def test_a_frame_too_close_to_the_end_to_show_an_effect_does_not_count_as_one_without() -> None:
    result = probe_delay(Hidden(4, one_in(2), length=12))
    assert (result.lag, result.period, result.phase) == (4, 2, 0)
    assert result.verdict.endswith("(period 2, phase 0)")


def test_an_episode_of_one_frame_gives_the_lag_alone() -> None:
    result = probe_delay(Hidden(length=1))
    assert (result.lag, result.period) == (0, None)


def test_the_same_seed_gives_the_same_result() -> None:
    first, second = (
        probe_delay(lambda: Hidden(1, takes=lambda f, s: (f * s) % 3 == 0), episodes=3, seed=5) for _ in range(2)
    )
    assert first == second


def test_episodes_have_seeds_of_their_own() -> None:
    env = Hidden()
    probe_delay(env, episodes=3, seed=10)
    assert sorted(set(env.seeds)) == [10, 11, 12]
    assert not env.closed


def test_environments_that_the_probe_makes_are_closed() -> None:
    made: list[Hidden] = []

    def make_env() -> Hidden:
        made.append(Hidden())
        return made[-1]

    probe_delay(make_env, episodes=2)
    assert all(env.closed for env in made)
    assert max(len(env.seeds) for env in made) == 1


def test_the_environments_own_action_space_is_not_drawn_from() -> None:
    env = Hidden(action_space=Discrete(1000))
    env.action_space.seed(3)
    expected = Discrete(1000, seed=3).sample()
    probe_delay(env, episodes=1)
    assert env.action_space.sample() == expected


@pytest.mark.parametrize(("delay", "noops"), [(0, 0), (1, 0), (3, 0), (3, 1), (4, 1), (5, 2), (4, 4)])
def test_over_a_realtime_delay_the_lag_is_counted_in_decisions(delay: int, noops: int) -> None:
    env = RealtimeDelay(Hidden(), delay, noops, default_action=0)
    assert probe_delay(env, episodes=2).lag == delay // (noops + 1)


@pytest.mark.parametrize(("name", "lag"), [("CartPole-v1", 0), ("MountainCar-v0", 0), ("Pendulum-v1", 0)])
def test_an_ordinary_environment_has_no_lag(name: str, lag: int) -> None:
    result = probe_delay(lambda: gym.make(name), episodes=2)
    assert (result.lag, result.period, result.confidence) == (lag, 1, 1.0)


def test_gymnasiums_delayed_observations_are_found() -> None:
    result = probe_delay(DelayObservation(gym.make("CartPole-v1"), delay=3))
    assert (result.lag, result.period, result.confidence) == (3, 1, 1.0)


def test_atari_ram_shows_an_action_at_once() -> None:
    ale_py = pytest.importorskip("ale_py")
    gym.register_envs(ale_py)
    env = gym.make("ALE/Boxing-v5", obs_type="ram", frameskip=1, repeat_action_probability=0.0)
    result = probe_delay(env, episodes=1, max_frames=10)
    assert (result.lag, result.period, result.deterministic) == (0, 1, True)


def test_a_result_reads_as_a_table_and_a_sentence() -> None:
    lines = str(probe_delay(Hidden(2, one_in(4, 1)))).splitlines()
    assert lines == [
        "lag           2 frames",
        "reward lag    unknown",
        "period        4 frames",
        "phase         frame 1",
        "trials        224, of which 32 differed",
        "confidence    1.00",
        "deterministic yes",
        "an action first shows 2 frames after its own step (32 of 32 trials that differed); "
        "only one action in 4 has an effect (period 4, phase 1)",
    ]


def test_the_ages_of_late_sensors_are_measured_beside_the_lag() -> None:
    def make() -> Any:
        sensors = {"position": Sensor(0.06, rate=25, phase=0, of=slice(0, 2)), "speed": Sensor(of=slice(2, 4))}
        return SensorDelay(gym.make("CartPole-v1"), sensors, fps=50)

    found = probe_delay(make, episodes=1, max_frames=30)
    assert (found.lag, found.sensors["speed"]["rate"]) == (0, pytest.approx(50))
    assert found.sensors["position"]["age_ms"]["max"] == pytest.approx(80)
    (line,) = (line for line in str(found).splitlines() if "position" in line)
    assert line.startswith("sensor        position: p50 ") and line.endswith(", 25 a second")
    assert probe_delay(Hidden(), episodes=1).sensors == {}


def test_a_result_cannot_be_changed() -> None:
    result = probe_delay(Hidden(), episodes=1)
    with pytest.raises(FrozenInstanceError):
        result.lag = 1  # type: ignore[misc]
    assert [field.name for field in fields(ProbeResult)][:4] == ["lag", "reward_lag", "period", "phase"]


@pytest.mark.parametrize(
    "space", [Discrete(1), Discrete(1, start=7), MultiDiscrete([1, 1]), Box(1, 1, (2,)), Tuple([Discrete(1)])]
)
def test_an_action_space_with_a_single_action_is_refused(space: gym.Space[Any]) -> None:
    with pytest.raises(ValueError, match=r"two actions or more, got .* nothing to compare"):
        probe_delay(Hidden(action_space=space))


@pytest.mark.parametrize("what", ["CartPole-v1", lambda: None, lambda: gym.make_vec("CartPole-v1", num_envs=2)])
def test_what_is_no_environment_is_refused(what: Any) -> None:
    with pytest.raises(ValueError, match=r"env_or_make_env must be a gymnasium\.Env"):
        probe_delay(what)


class TestTheCommand:
    """``python -m async_wrappers probe``."""

    @pytest.fixture(autouse=True)
    def module(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "hiding.py").write_text(
            "import gymnasium as gym\n"
            "from gymnasium.wrappers import DelayObservation\n"
            "gym.register('Late-v0', lambda delay=3: DelayObservation(gym.make('CartPole-v1'), delay=delay))\n"
        )
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "path", [*sys.path])
        monkeypatch.setattr("gymnasium.envs.registration.registry", dict(gym.registry))
        monkeypatch.delitem(sys.modules, "hiding", raising=False)

    def test_it_prints_what_the_function_finds(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["probe", "hiding:Late-v0", "--episodes", "2", "--seed", "5", "--max-frames", "50"]) == 0
        found = probe_delay(lambda: gym.make("hiding:Late-v0"), episodes=2, seed=5, max_frames=50)
        assert found.lag == 3
        assert capsys.readouterr().out == f"{found}\n"

    def test_it_writes_json_with_the_arguments_that_the_environment_was_given(self, tmp_path: Path) -> None:
        words = ["hiding:Late-v0", "--kwargs", '{"delay": 2}', "--episodes", "1", "--json", "found.json"]
        assert main(["probe", *words]) == 0
        facts = json.loads((tmp_path / "found.json").read_text())
        assert (facts["env"], facts["lag"], facts["deterministic"]) == ("hiding:Late-v0", 2, True)

    def test_one_where_it_cannot_tell(self, capsys: pytest.CaptureFixture[str]) -> None:
        words = ["hiding:Late-v0", "--kwargs", '{"delay": 30}', "--max-frames", "8", "--episodes", "1"]
        assert main(["probe", *words]) == 1
        assert "cannot tell: no action changed any observation within max_frames=8" in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["Cartpole-v1"], "environment_id must be registered with Gymnasium, got 'Cartpole-v1'; close names are"),
            (["no_such_module:Mine-v0"], "environment_id must be registered with Gymnasium, got 'no_such_module:Mine"),
            (["CartPole-v1", "--kwargs", "{3"], "--kwargs must be a JSON object, such as"),
            (["CartPole-v1", "--kwargs", "[3]"], "--kwargs must be a JSON object, such as"),
            (["hiding:Late-v0", "--kwargs", '{"dela": 3}'], "does not fit 'hiding:Late-v0'"),
            (["CartPole-v1", "--max-frames", "1"], "max_frames must be a whole number >= 2, got 1"),
            (["CartPole-v1", "--episodes", "0"], "episodes must be a whole number >= 1, got 0"),
            (["CartPole-v1", "--episodes", "1", "--json", "no/where"], "no/where"),
            ([], "the following arguments are required: ENV"),
        ],
        ids=str,
    )
    def test_two_with_one_sentence(self, words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as raised:
            main(["probe", *words])
        error = capsys.readouterr().err
        assert raised.value.code == 2
        assert error.startswith("python -m async_wrappers probe: ") and error.count("\n") == 1 and message in error

"""What every replay keeps, whatever it draws and forgets: subclass `ReplayContract` and give it `make_replay`.

    class TestMyReplay(ReplayContract):
        def make_replay(self, config, *, seed=0, batch_size=32, space=SPACE):
            return Replay(MyStorage(TransitionSchema(space, config.extras), ...), MySelector(), seed=seed, ...)

A plain list of episodes, `Oracle`, knows every valid transition. Every observation in a stream has a value of its own
and none is zero: the value names the transition, and padding is never mistaken for an observation.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import pytest
from gymnasium.spaces import Box, Dict, Discrete
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from async_wrappers.agents.replay.segments import read_index
from async_wrappers.agents.spaces.schema import each_array
from async_wrappers.files import FORMAT, OtherFormat
from async_wrappers.version import __version__
from tests.worlds.plain_data import assert_identical

SHAPE = (2, 3)
SPACE = Box(-(2**15), 2**15 - 1, SHAPE, np.int16)
TWO = Dict(a=SPACE, b=Box(-np.inf, np.inf, (), np.float64))
EXTRAS = Dict(log_prob=Box(-np.inf, 0, ()), core=Dict(h=Box(-np.inf, np.inf, (2,))))
KEYED = Dict(image=SPACE, history=Dict(delay=Discrete(2**40), actions=Box(-np.inf, np.inf, (2,))))
Batch = dict[str, Any]
Transition = dict[str, Any]
Rows = dict[int, Transition]  # of a block, by env_id, in its order


class Replay(Protocol):
    """What the contract asks of a replay."""

    @property
    def add_count(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def __len__(self) -> int: ...
    def observe(self, transition: Transition, env_id: int = 0) -> None: ...
    def extend(self, block: dict[str, Any]) -> None: ...
    def sample(self, batch_size: int | None = None) -> Batch: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...
    def save(self, directory: Path, number: int) -> list[str]: ...
    def load(self, directory: Path, number: int, partial: bool = False) -> int: ...
    def prune(self, directory: Path, keep: Iterable[int]) -> None: ...
    def clear(self) -> None: ...


@dataclass(frozen=True)
class Config:
    """The arguments that the oracle must know."""

    capacity: int = 1000
    stack_size: int = 1
    update_horizon: int = 1
    gamma: float = 0.9
    discount_by: Literal["decision", "frame"] = "decision"
    extras: Dict | None = None
    action_window: int | None = None

    @property
    def reach(self) -> int:
        """Slots up to a decision's own that its observations and actions are read from."""
        return max(self.stack_size, 1 + (self.action_window or 0))


@dataclass(frozen=True)
class Episode:
    """Rewards and intervals of its decisions, and how it ends."""

    rewards: list[float]
    intervals: list[int]
    end: Literal["terminal", "truncated", "running"]


def transitions(episodes: list[Episode]) -> Iterator[Transition]:
    """The stream of transitions that the episodes make."""
    value = 0
    for episode in episodes:
        for t, (reward, interval) in enumerate(zip(episode.rewards, episode.intervals, strict=True)):
            value += 1
            last = t == len(episode.rewards) - 1
            yield {
                "observation": frame(value),
                "action": value % 18,
                "reward": reward,
                "interval": interval,
                "terminal": last and episode.end == "terminal",
                "truncated": last and episode.end == "truncated",
                "next_observation": frame(value + 1),
                "extras": extras_of(value),
            }
        value += 1


def frame(value: int) -> npt.NDArray[np.int16]:
    """An observation from whose pixels its value can be read."""
    return np.full(SHAPE, value, np.int16) * np.array([1, 2, 3], np.int16)


def extras_of(value: int) -> dict[str, Any]:
    """What the policy left beside its action on the observation of that value."""
    return {"log_prob": np.float32(-value / 8), "core": {"h": np.array([value, value + 1], np.float32)}}


def block_of(rows: Rows) -> dict[str, Any]:
    """The same rows in arrays."""
    each = list(rows.values())
    block: dict[str, Any] = {"env_ids": np.array(list(rows), np.int64)}
    dtypes = {"action": np.int64, "reward": np.float64, "interval": np.int64, "terminal": bool, "truncated": bool}
    for name, dtype in dtypes.items():
        block[name] = np.array([row[name] for row in each], dtype)
    shown = [row["observation"] for row in each]
    block["observation"] = np.stack(shown) if each else np.zeros((0, *frame(0).shape), np.int16)
    stacks = [row["extras"] for row in each] or [each_array(lambda a: np.zeros((0, *np.shape(a))), extras_of(0))]
    block["extras"] = each_array(lambda *arrays: np.stack(arrays) if each else arrays[0], *stacks)
    ended = {env_id: row for env_id, row in rows.items() if row["terminal"] or row["truncated"]}
    block["final"] = {env_id: row["next_observation"] for env_id, row in ended.items()}
    if each and "priority" in each[0]:
        block["priority"] = np.array([row["priority"] for row in each])
        block["final_priority"] = {env_id: row["final_priority"] for env_id, row in ended.items()}
    return block


@dataclass
class Oracle:
    """Episodes as plain lists; a transition is worked out from them when it is asked for."""

    config: Config
    slots: int = 0
    episodes: list[dict[str, Any]] = field(default_factory=list)

    def observe(self, transition: Transition) -> None:
        """Appends to the running episode, or begins one."""
        if not self.episodes or self.episodes[-1]["ended"]:
            self.episodes.append({"first": self.slots, "frames": [], "steps": [], "ended": False})
        episode = self.episodes[-1]
        episode["frames"].append(transition["observation"])
        episode["steps"].append(transition)
        self.slots += 1
        if transition["terminal"] or transition["truncated"]:
            episode["frames"].append(transition["next_observation"])
            episode["ended"] = True
            self.slots += 1

    def end_running(self) -> None:
        """Ends the running episode with its last observation; nobody knows what its last action led to."""
        if self.episodes and not self.episodes[-1]["ended"]:
            self.episodes[-1]["steps"].pop()
            self.episodes[-1]["ended"] = True

    def touched(self, slot: int) -> range:
        """The slots that the valid transition at a slot is made of."""
        (episode,) = (each for each in self.episodes if 0 <= slot - each["first"] < len(each["frames"]))
        t, last = slot - episode["first"], len(episode["frames"]) - 1
        end = min(t + self.config.update_horizon, last)
        return range(episode["first"] + max(0, t - self.config.reach + 1), episode["first"] + end + 1)

    def valid(self) -> dict[int, Transition]:
        """Every valid transition by its slot."""
        found = {}
        for episode in self.episodes:
            for t in range(len(episode["steps"])):
                transition = self._transition(episode, t)
                if transition is not None:
                    found[episode["first"] + t] = transition
        return found

    def _transition(self, episode: dict[str, Any], t: int) -> Transition | None:
        horizon, last = self.config.update_horizon, len(episode["frames"]) - 1
        oldest_needed = episode["first"] + max(0, t - self.config.reach + 1)
        if oldest_needed < self.slots - self.config.capacity or (t + horizon > last and not episode["ended"]):
            return None
        end = min(t + horizon, last)
        reward, discount = 0.0, 1.0
        for step in episode["steps"][t:end]:
            reward += discount * step["reward"]
            discount *= self.config.gamma ** (step["interval"] if self.config.discount_by == "frame" else 1)
            discount *= not step["terminal"]
        return {
            "observation": self._stack(episode, t),
            "action": episode["steps"][t]["action"],
            "reward": reward,
            "discount": discount,
            "next_observation": self._stack(episode, end),
            "interval": episode["steps"][t]["interval"],
            **({"extras": episode["steps"][t]["extras"]} if self.config.extras else {}),
            **({} if self.config.action_window is None else self._windows(episode, t, end)),
        }

    def _windows(self, episode: dict[str, Any], t: int, end: int) -> dict[str, list[int]]:
        """The actions before both observations; -1 where there was none."""
        window = self.config.action_window or 0
        actions = [-1] * window + [step["action"] for step in episode["steps"]]
        return {"action_window": actions[t : t + window], "next_action_window": actions[end : end + window]}

    def _stack(self, episode: dict[str, Any], t: int) -> npt.NDArray[np.int16]:
        indexes = range(t - self.config.stack_size + 1, t + 1)
        return np.stack([episode["frames"][i] if i >= 0 else np.zeros(SHAPE, np.int16) for i in indexes])


def assert_same_transition(batch: Batch, row: int, expected: Transition) -> None:
    """Compares one row of a batch with the oracle's transition."""
    for name in ("observation", "next_observation"):
        np.testing.assert_array_equal(batch[name][row], expected[name], err_msg=name)
    assert batch["action"][row] == expected["action"]
    assert batch["interval"][row] == expected["interval"]
    assert batch["reward"][row] == pytest.approx(expected["reward"], rel=1e-5, abs=1e-5)
    assert batch["discount"][row] == pytest.approx(expected["discount"], rel=1e-5)
    assert ("extras" in batch) == ("extras" in expected)
    if "extras" in expected:
        np.testing.assert_equal(row_of(batch["extras"], row), expected["extras"])
    for name in ("action_window", "next_action_window"):
        assert (name in batch) == (name in expected)
        if name in expected:
            assert batch[name][row].tolist() == expected[name], name


def row_of(batch: Any, row: int) -> Any:
    """One row of a batch, in dicts like the batch's."""
    return each_array(lambda array: array[row], batch)


def assert_same_batches(one: Replay, other: Replay, count: int = 3) -> None:
    """Samples from both replays and compares bit for bit."""
    for _ in range(count):
        assert_identical(one.sample(16), other.sample(16))


def assert_same_state(one: Replay, other: Replay) -> None:
    """Compares all that two replays remember, their generators included, bit for bit."""
    assert (len(one), one.add_count) == (len(other), other.add_count)
    assert_identical(one.state_dict(), other.state_dict())


configs = st.builds(
    Config,
    capacity=st.integers(8, 40),
    stack_size=st.integers(1, 4),
    update_horizon=st.integers(1, 4),
    gamma=st.sampled_from([0.5, 0.9, 1.0]),
    discount_by=st.sampled_from(["decision", "frame"]),
    extras=st.sampled_from([None, EXTRAS]),
    action_window=st.sampled_from([None, 1, 2, 3]),
)


@st.composite
def streams(draw: st.DrawFn) -> list[Transition]:
    """Transitions of up to 12 episodes; the last one may still run."""
    lengths = draw(st.lists(st.integers(1, 10), min_size=1, max_size=12))
    episodes = []
    for i, length in enumerate(lengths):
        ends = ["terminal", "truncated", "running"] if i == len(lengths) - 1 else ["terminal", "truncated"]
        rewards = draw(st.lists(st.sampled_from([-1.0, 0.0, 0.5, 1.0]), min_size=length, max_size=length))
        intervals = draw(st.lists(st.integers(1, 6), min_size=length, max_size=length))
        episodes.append(Episode(rewards, intervals, draw(st.sampled_from(ends))))
    return list(transitions(episodes))


def some_stream(episodes: int = 10, length: int = 7) -> list[Transition]:
    """A fixed stream; the ends alternate."""
    ends: list[Literal["terminal", "truncated"]] = ["terminal", "truncated"]
    rewards = [float(t % 3) for t in range(length)]
    return list(transitions([Episode(rewards, [4] * length, ends[i % 2]) for i in range(episodes)]))


# Every subclass runs the contract's tests, which Hypothesis would take for a mistake.
contract_settings = settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.differing_executors], database=None
)


class ReplayContract:
    """What every replay promises; a subclass says how to make one, and what its learner does with a batch."""

    batch_keys = frozenset(
        {"observation", "action", "reward", "discount", "next_observation", "interval", "index"},
    )

    def make_replay(
        self,
        config: Config,
        *,
        seed: int = 0,
        batch_size: int = 32,
        space: gym.Space[Any] = SPACE,
    ) -> Any:
        """A new, empty replay."""
        raise NotImplementedError

    def possible(self, config: Config) -> Config:
        """The nearest configuration that this kind of replay can have."""
        return config

    def learn(self, replay: Any) -> Batch | None:
        """Does what a learner does: draws a batch, if there is one, and gives the replay new priorities."""
        return replay.sample(4) if len(replay) else None

    def filled(self, config: Config, stream: list[Transition], seed: int = 0) -> Any:
        """A replay that has observed a stream and was learnt from."""
        replay = self.make_replay(self.possible(config), seed=seed)
        for transition in stream:
            replay.observe(transition)
        self.learn(replay)
        return replay

    # Transitions, while nothing has been overwritten.

    @given(configs, streams())
    @contract_settings
    def test_samples_are_transitions_of_the_stream(self, config: Config, stream: list[Transition]) -> None:
        roomy = self.possible(replace(config, capacity=1000))
        replay, oracle = self.make_replay(roomy), Oracle(roomy)
        for transition in stream:
            replay.observe(transition)
            oracle.observe(transition)
        expected = oracle.valid()
        assert len(replay) == len(expected)
        assert replay.add_count == len(stream)
        batch = replay.sample(64) if expected else {"index": np.zeros(0, np.int64)}
        for row, index in enumerate(batch["index"].tolist()):
            assert_same_transition(batch, row, expected[index])

    def test_keys_shapes_and_dtypes(self) -> None:
        config = self.possible(Config(stack_size=4, update_horizon=3))
        replay = self.make_replay(config, batch_size=5)
        for transition in some_stream():
            replay.observe(transition)
        batch = replay.sample()
        assert batch.keys() == self.batch_keys
        assert batch["observation"].shape == batch["next_observation"].shape == (5, config.stack_size, *SHAPE)
        assert batch["observation"].dtype == batch["next_observation"].dtype == np.int16
        dtypes = {
            "action": np.int64,
            "reward": np.float32,
            "discount": np.float32,
            "interval": np.int64,
            "index": np.int64,
        }
        for name, dtype in dtypes.items():
            assert batch[name].shape == (5,)
            assert batch[name].dtype == dtype
        assert replay.sample(9)["action"].shape == (9,)

    def test_seed_decides_the_batches(self) -> None:
        replays = [self.make_replay(Config(), seed=seed) for seed in (1, 1, 2)]
        for replay in replays:
            for transition in some_stream():
                replay.observe(transition)
        assert_same_batches(replays[0], replays[1])
        first, other = replays[0].sample()["observation"], replays[2].sample()["observation"]
        assert not np.array_equal(first, other)

    def test_batches_are_the_callers_own(self) -> None:
        replay = self.filled(Config(stack_size=2), some_stream())
        batch = replay.sample()
        before = {name: values.copy() for name, values in batch.items()}
        replay.sample()
        for name, values in batch.items():
            np.testing.assert_array_equal(values, before[name])

    def test_observations_are_copied(self) -> None:
        replay = self.make_replay(Config())
        transition = next(transitions([Episode([1.0], [1], "truncated")]))
        replay.observe(transition)
        transition["observation"][:] = 99
        transition["next_observation"][:] = 99
        batch = replay.sample(1)
        assert (batch["observation"][0, -1] == frame(1)).all()
        assert (batch["next_observation"][0, -1] == frame(2)).all()

    # Dict observations.

    @given(configs, streams())
    @contract_settings
    def test_a_dict_is_kept_key_by_key(self, config: Config, stream: list[Transition]) -> None:
        config = self.possible(config)
        plain = self.make_replay(config)
        keyed = self.make_replay(config, space=KEYED)
        for transition in stream:
            plain.observe(transition)
            keyed.observe({**transition, **{name: _keyed(transition[name]) for name in _OBSERVATIONS}})
            self.learn(plain)
            self.learn(keyed)
        assert (len(keyed), keyed.add_count) == (len(plain), plain.add_count)
        if not len(plain):
            return
        one, other = plain.sample(16), keyed.sample(16)
        for name in one.keys() - set(_OBSERVATIONS):
            assert_identical(one[name], other[name], name)
        for name in _OBSERVATIONS:
            image, history = one[name], other[name]["history"]
            np.testing.assert_array_equal(other[name]["image"], image)
            np.testing.assert_array_equal(history["delay"], image[..., 0, 0])
            np.testing.assert_array_equal(history["actions"], image[..., 0, :2] / 2)
            assert (history["delay"].dtype, history["actions"].dtype) == (np.int64, np.float32)

    def test_a_dict_continues_from_its_files(self, tmp_path: Path) -> None:
        replay, resumed = (self.make_replay(Config(), seed=seed, space=TWO) for seed in (0, 5))
        for transition in some_stream():
            both = {name: {"a": transition[name], "b": transition[name].sum()} for name in _OBSERVATIONS}
            replay.observe({**transition, **both})
        replay.save(tmp_path, 0)
        resumed.load(tmp_path, 0)
        assert_same_state(resumed, replay)
        batch = resumed.sample()
        np.testing.assert_array_equal(batch["observation"]["b"], batch["observation"]["a"].sum(axis=(2, 3)))

    @pytest.mark.parametrize(
        ("observation", "message"),
        [
            (np.zeros(SHAPE), r"observation must be a dict with the keys \['a', 'b'\], got ndarray"),
            ({"a": np.zeros(SHAPE, np.int16)}, r"observation must be a dict with the keys \['a', 'b'\], got \['a'\]"),
            ({"a": np.zeros(2, np.int16), "b": 0.0}, r"observation\['a'\] must have shape \(2, 3\), got \(2,\)"),
            ({"a": np.zeros(SHAPE), "b": 0.0}, r"observation\['a'\] must have dtype int16, got float64"),
        ],
    )
    def test_a_dict_that_does_not_fit_is_refused(self, observation: Any, message: str) -> None:
        replay = self.make_replay(Config(), space=TWO)
        with pytest.raises(ValueError, match=message):
            replay.observe({**some_stream()[0], "observation": observation})
        assert replay.add_count == 0

    # Extras.

    @given(configs, streams())
    @contract_settings
    def test_extras_change_nothing_else(self, config: Config, stream: list[Transition]) -> None:
        plain, extended = (self.make_replay(self.possible(replace(config, extras=each))) for each in (None, EXTRAS))
        for transition in stream:
            plain.observe(transition)
            extended.observe(transition)
            one, other = self.learn(plain), self.learn(extended)
            assert (one is None) == (other is None)
            if one is None or other is None:
                continue
            extras, value = other.pop("extras"), one["observation"][:, -1, 0, 0]
            assert_identical(one, other)
            np.testing.assert_array_equal(extras["log_prob"], -value / 8)
            np.testing.assert_array_equal(extras["core"]["h"], np.stack([value, value + 1], axis=1))
            assert (extras["log_prob"].dtype, extras["core"]["h"].dtype) == (np.float32, np.float32)

    def test_extras_take_their_own_bytes_alone(self) -> None:
        plain, extended = (self.make_replay(Config(capacity=100, extras=each)) for each in (None, EXTRAS))
        assert extended.nbytes - plain.nbytes == 100 * 4 * (1 + 2)
        for replay in (plain, extended):
            for transition in some_stream():
                replay.observe(transition)
        names = {"extras/log_prob", "extras/core/h"}
        assert extended.state_dict()["slots"].keys() - plain.state_dict()["slots"].keys() == names

    @pytest.mark.parametrize(
        ("extras", "error", "message"),
        [
            (None, KeyError, "extras"),
            ({"log_prob": 0.0}, ValueError, r"extras must be a dict with the keys \['core', 'log_prob'\], got"),
            (
                {"log_prob": 0.0, "core": {"h": np.zeros(3)}},
                ValueError,
                r"extras\['core'\]\['h'\] must have shape \(2,\), got \(3,\)",
            ),
        ],
    )
    def test_extras_that_do_not_fit_are_refused(self, extras: Any, error: type[Exception], message: str) -> None:
        replay = self.filled(Config(extras=EXTRAS), some_stream(episodes=1))
        before = replay.state_dict()
        transition = {name: value for name, value in some_stream()[0].items() if name != "extras"}
        with pytest.raises(error, match=message):
            replay.observe(transition if extras is None else {**transition, "extras": extras})
        assert_identical(replay.state_dict(), before)

    def test_files_with_other_extras_are_refused(self, tmp_path: Path) -> None:
        for name, extras in (("without", None), ("with", EXTRAS)):
            self.filled(Config(extras=extras), some_stream()).save(tmp_path / name, 0)
        message = "must be of the same kind, but only one of the two has extras_dtype, extras_shape"
        with pytest.raises(ValueError, match=message):
            self.make_replay(Config()).load(tmp_path / "with", 0)
        with pytest.raises(ValueError, match=message):
            self.make_replay(Config(extras=EXTRAS)).load(tmp_path / "without", 0)
        with pytest.raises(ValueError, match="extras_shape must be as in the saved replay"):
            self.make_replay(Config(extras=Dict(h=Box(-1, 1, (2,))))).load(tmp_path / "with", 0)

    # Errors.

    def test_sampling_an_empty_replay_is_an_error(self) -> None:
        replay = self.make_replay(Config())
        assert len(replay) == 0
        with pytest.raises(ValueError, match="no valid transition"):
            replay.sample()
        with pytest.raises(ValueError, match="batch_size must be >= 1 transition, got 0"):
            self.filled(Config(), some_stream()).sample(0)

    def test_a_refused_transition_leaves_no_trace(self) -> None:
        replay = self.filled(Config(), some_stream(episodes=1))
        before = replay.state_dict()
        bad = {**some_stream()[6], "next_observation": np.zeros((3, 2), np.int16)}
        with pytest.raises(ValueError, match=r"next_observation must have shape \(2, 3\), got \(3, 2\)"):
            replay.observe(bad)
        with pytest.raises(ValueError, match="observation must have dtype int16, got float64"):
            replay.observe({**bad, "observation": np.zeros(SHAPE)})
        with pytest.raises(ValueError, match="interval must be >= 0 frames, got -1"):
            replay.observe({**some_stream()[0], "interval": -1})
        with pytest.raises(KeyError, match="reward"):
            replay.observe({name: value for name, value in some_stream()[0].items() if name != "reward"})
        assert_identical(replay.state_dict(), before)

    def test_objects_cannot_be_stored(self) -> None:
        with pytest.raises(ValueError, match="observation must have a plain dtype such as uint8, got object"):
            self.make_replay(Config(), space=gym.Space(SHAPE, object))

    # Blocks of rows.

    @given(configs, streams())
    @contract_settings
    def test_a_block_of_one_row_is_an_observed_transition(self, config: Config, stream: list[Transition]) -> None:
        one, other = (self.make_replay(self.possible(config)) for _ in range(2))
        for transition in stream:
            one.observe(transition)
            other.extend(block_of({0: transition}))
            learnt = [self.learn(each) for each in (one, other)]
            assert_identical(*learnt)
        assert_same_state(one, other)

    def test_an_empty_block_changes_nothing(self) -> None:
        replay = self.filled(Config(), some_stream(episodes=1))
        before = replay.state_dict()
        replay.extend(block_of({}))
        assert_identical(replay.state_dict(), before)

    # State in memory.

    @given(configs, streams(), st.integers(0, 120))
    @contract_settings
    def test_state_dict_continues_bit_for_bit(self, config: Config, stream: list[Transition], moment: int) -> None:
        # What the other replay held before must leave no trace.
        resumed = self.filled(config, some_stream(), seed=9)
        replay = self.make_replay(self.possible(config))
        for i, transition in enumerate(stream):
            if i == moment:
                resumed.load_state_dict(replay.state_dict())
            replay.observe(transition)
            self.learn(replay)
            if i >= moment:
                resumed.observe(transition)
                self.learn(resumed)
        if moment >= len(stream):
            resumed.load_state_dict(replay.state_dict())
        assert_same_state(resumed, replay)
        if len(replay):
            assert_same_batches(replay, resumed)

    def test_state_dict_is_a_copy(self) -> None:
        replay, resumed = self.make_replay(Config()), self.make_replay(Config())
        stream = some_stream()
        for transition in stream[:7]:
            replay.observe(transition)
        state = replay.state_dict()
        for transition in stream[7:]:
            replay.observe(transition)
            self.learn(replay)
        resumed.load_state_dict(state)
        assert resumed.add_count == 7
        assert resumed.sample(64)["observation"].max() <= 3 * 8

    def test_a_cleared_replay_is_empty_and_can_be_filled_again(self) -> None:
        replay = self.filled(Config(capacity=20), some_stream())
        replay.clear()
        assert (len(replay), replay.add_count) == (0, 0)
        again = self.filled(Config(capacity=20), [])
        for each in (replay, again):
            for transition in some_stream(episodes=2):
                each.observe(transition)
        assert len(replay) == len(again) > 0
        assert set(replay.sample(64)["index"]) <= set(range(16))

    # State in files.

    @given(configs, streams(), st.sets(st.integers(0, 119), min_size=1, max_size=4), st.data())
    @contract_settings
    def test_continues_from_its_files_bit_for_bit(
        self,
        tmp_path_factory: pytest.TempPathFactory,
        config: Config,
        stream: list[Transition],
        moments: set[int],
        data: st.DataObject,
    ) -> None:
        config, directory = self.possible(config), tmp_path_factory.mktemp("replay")
        replay, uninterrupted = self.make_replay(config), self.make_replay(config)
        states = {}
        for i, transition in enumerate(stream):
            between = not i or stream[i - 1]["terminal"] or stream[i - 1]["truncated"]  # two episodes
            if i in moments and between:
                replay.save(directory, i)
                states[i] = uninterrupted.state_dict()
                # From here on a replay that was loaded takes the place of the one that was saved, or not.
                if data.draw(st.booleans()):
                    replay = self.make_replay(config, seed=9)
                    replay.load(directory, i)
            learnt = []
            for each in (replay, uninterrupted):
                each.observe(transition)
                learnt.append(self.learn(each))
            assert_identical(*learnt)
            assert_same_state(replay, uninterrupted)
        for moment, state in states.items():
            resumed = self.filled(config, some_stream(), seed=9)
            resumed.load(directory, moment)
            assert_identical(resumed.state_dict(), state)

    @given(configs, streams(), st.integers(1, 60), st.integers(1, 60))
    @contract_settings
    def test_an_episode_under_way_is_ended_when_the_replay_is_loaded(
        self,
        tmp_path_factory: pytest.TempPathFactory,
        config: Config,
        stream: list[Transition],
        first: int,
        second: int,
    ) -> None:
        config, directory = self.possible(replace(config, capacity=1000)), tmp_path_factory.mktemp("replay")
        replay, oracle = self.make_replay(config), Oracle(config)
        for i, transition in enumerate(stream):
            if i in (first, first + second):
                replay.save(directory, i)
                replay, again = (self.make_replay(config, seed=9) for _ in range(2))
                replay.load(directory, i)
                oracle.end_running()
                replay.save(directory, 1000)
                again.load(directory, 1000)
                assert_same_state(again, replay)
            replay.observe(transition)
            oracle.observe(transition)
        expected = oracle.valid()
        assert len(replay) == len(expected)
        batch = replay.sample(64) if expected else {"index": np.zeros(0, np.int64)}
        for row, index in enumerate(batch["index"].tolist()):
            assert_same_transition(batch, row, expected[index])

    def all_of(self, replay: Any) -> dict[int, Transition]:
        """Every transition that can be drawn, by its index."""
        if not len(replay):
            return {}
        batch = replay.transitions(replay.valid_slots())
        return {index: row_of(batch, row) for row, index in enumerate(batch["index"].tolist())}

    @pytest.mark.parametrize("kind", ["index", "segment"])
    def test_files_that_changed_places_are_noticed(self, tmp_path: Path, kind: str) -> None:
        stream, replay = some_stream(), self.make_replay(Config())
        for number in range(2):
            for transition in stream[7 * number : 7 * number + 7]:
                replay.observe(transition)
            names = replay.save(tmp_path, number)
        one, other = (tmp_path / name for name in (["index_0.json", "index_1.json"] if kind == "index" else names[:2]))
        content = one.read_bytes()
        one.write_bytes(other.read_bytes())
        other.write_bytes(content)
        with pytest.raises(ValueError, match=r"is not a whole index file|is torn or altered"):
            self.make_replay(Config()).load(tmp_path, 1)

    def test_no_altered_digit_of_an_index_goes_unnoticed(self, tmp_path: Path) -> None:
        replay, other = self.filled(Config(), some_stream(episodes=1)), self.make_replay(Config())
        replay.save(tmp_path, 0)
        path = tmp_path / "index_0.json"
        whole = path.read_bytes()
        for place in (place for place, byte in enumerate(whole) if chr(byte).isdigit()):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            with pytest.raises(ValueError, match=r"index_0\.json is not a whole index file"):
                other.load(tmp_path, 0)

    def test_an_index_of_another_format_is_refused_with_both(self, tmp_path: Path) -> None:
        self.filled(Config(), some_stream(episodes=1)).save(tmp_path, 0)
        path = tmp_path / "index_0.json"
        index = json.loads(path.read_text())
        assert (index["format"], index["version"], index["number"]) == (FORMAT, __version__, 0)
        for name in ("format", "version", "number", "sha256"):
            del index[name]
        path.write_text(json.dumps(index))
        with pytest.raises(OtherFormat, match=rf"index_0\.json has format 1 .* format {FORMAT} alone"):
            self.make_replay(Config()).load(tmp_path, 0)

    def test_saving_twice_under_one_number_keeps_the_later(self, tmp_path: Path) -> None:
        stream = some_stream()
        replay = self.filled(Config(), stream[:14])
        replay.save(tmp_path, 0)
        for transition in stream[14:]:
            replay.observe(transition)
        self.learn(replay)
        replay.save(tmp_path, 0)
        resumed = self.make_replay(Config())
        resumed.load(tmp_path, 0)
        assert_same_state(resumed, replay)
        assert_same_batches(resumed, replay)

    def test_going_on_from_an_older_number_leaves_the_newer_whole(self, tmp_path: Path) -> None:
        stream = some_stream()
        replay = self.filled(Config(), stream[:14])
        replay.save(tmp_path, 0)
        for transition in stream[14:28]:
            replay.observe(transition)
        self.learn(replay)
        replay.save(tmp_path, 1)
        branch = self.make_replay(Config())
        branch.load(tmp_path, 0)
        for transition in stream[28:42]:
            branch.observe(transition)
        branch.save(tmp_path, 2)
        for number, original in ((1, replay), (2, branch)):
            resumed = self.make_replay(Config(), seed=9)
            resumed.load(tmp_path, number)
            assert_same_state(resumed, original)

    def test_prune_keeps_what_the_kept_indexes_need(self, tmp_path: Path) -> None:
        stream, replay = some_stream(), self.make_replay(Config(capacity=24))
        for number in range(10):
            for transition in stream[7 * number : 7 * number + 7]:
                replay.observe(transition)
            self.learn(replay)
            names = replay.save(tmp_path, number)
        (tmp_path / "segment_0_8_torn.npz.tmp").touch()
        (tmp_path / "notes.txt").touch()
        replay.prune(tmp_path, keep=[9, 77])
        assert {path.name for path in tmp_path.iterdir()} == {*names, "notes.txt"}
        resumed = self.make_replay(Config(capacity=24))
        resumed.load(tmp_path, 9)
        assert_same_state(resumed, replay)

    def test_prune_spares_all_when_a_kept_index_is_torn(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        replay = self.filled(Config(), some_stream())
        replay.save(tmp_path, 0)
        replay.save(tmp_path, 1)
        (tmp_path / "index_1.json").write_text("{")
        before = sorted(tmp_path.iterdir())
        replay.prune(tmp_path, keep=[1])
        assert "no replay file is deleted" in caplog.text
        assert "index_1.json is not a whole index file" in caplog.text
        assert sorted(tmp_path.iterdir()) == before

    def test_files_that_are_gone_are_written_anew(self, tmp_path: Path) -> None:
        replay = self.filled(Config(), some_stream())
        replay.save(tmp_path / "one", 0)
        replay.prune(tmp_path / "one", keep=[])
        for directory in (tmp_path / "one", tmp_path / "two"):
            replay.save(directory, 1)
            resumed = self.make_replay(Config(), seed=5)
            resumed.load(directory, 1)
            assert_same_state(resumed, replay)

    def test_another_state_is_not_mixed_with_saved_files(self, tmp_path: Path) -> None:
        replay = self.filled(Config(), some_stream())
        other = self.filled(Config(), some_stream(episodes=5, length=3))
        replay.save(tmp_path, 0)
        replay.load_state_dict(other.state_dict())
        replay.save(tmp_path, 1)
        resumed = self.make_replay(Config())
        resumed.load(tmp_path, 1)
        assert_same_state(resumed, other)

    @pytest.mark.parametrize("damage", ["cut", "flip"])
    def test_a_torn_file_is_named_and_leaves_the_replay_whole_or_empty(self, tmp_path: Path, damage: str) -> None:
        replay = self.filled(Config(), some_stream())
        replay.observe({**some_stream()[0], "terminal": False, "truncated": False})  # an episode goes on
        names = replay.save(tmp_path, 0)[:-1]
        for torn in names:
            segment = tmp_path / torn
            whole = segment.read_bytes()
            content = bytearray(whole)
            content[len(content) // 2] ^= 255
            segment.write_bytes(content[: len(content) // 2] if damage == "cut" else content)
            other = self.filled(Config(), some_stream(episodes=2))
            with pytest.raises(ValueError, match=f"{torn} in .* is torn or altered"):
                other.load(tmp_path, 0)
            of_moment = torn in {segment.name for segment in read_index(tmp_path, 0)[1]}
            assert (len(other), other.add_count) == ((14, 14) if damage == "cut" or of_moment else (0, 0))
            segment.write_bytes(whole)

    def test_missing_files(self, tmp_path: Path) -> None:
        replay = self.filled(Config(), some_stream())
        names = replay.save(tmp_path, 0)
        with pytest.raises(FileNotFoundError, match=r"index_1\.json"):
            replay.load(tmp_path, 1)
        for name in names[:-1]:
            (tmp_path / name).unlink()
            with pytest.raises(FileNotFoundError, match=f"{name} is missing"):
                replay.load(tmp_path, 0)
        assert len(replay) == 70

    @pytest.mark.parametrize(
        ("name", "config"),
        [
            ("capacity", Config(capacity=999)),
            ("update_horizon", Config(update_horizon=2)),
            ("gamma", Config(gamma=0.8)),
            ("discount_by", Config(discount_by="frame")),
        ],
    )
    def test_files_of_other_arguments_are_refused(self, tmp_path: Path, name: str, config: Config) -> None:
        replay = self.filled(Config(), some_stream())
        replay.save(tmp_path, 0)
        other = self.filled(config, some_stream(episodes=2))
        with pytest.raises(ValueError, match=f"^{name} must be as in the saved replay"):
            other.load(tmp_path, 0)
        with pytest.raises(ValueError, match=f"^{name} must be as in the saved replay"):
            other.load_state_dict(replay.state_dict())
        assert other.add_count == 14

    def test_files_of_other_observations_are_refused(self, tmp_path: Path) -> None:
        self.filled(Config(), some_stream()).save(tmp_path, 0)
        with pytest.raises(ValueError, match=r"observation_shape must be as in the saved replay, \[2, 3\], got \[3\]"):
            self.make_replay(Config(), space=Box(0, 1, (3,), np.int16)).load(tmp_path, 0)
        with pytest.raises(ValueError, match=r"observation_dtype must be .*, '<i2', got '\|u1'"):
            self.make_replay(Config(), space=Box(0, 255, SHAPE, np.uint8)).load(tmp_path, 0)

    def test_files_hold_no_pickles_and_no_unfinished_work(self, tmp_path: Path) -> None:
        names = self.filled(Config(), some_stream()).save(tmp_path, 7)
        assert sorted(names) == sorted(path.name for path in tmp_path.iterdir())
        assert names[-1] == "index_7.json"
        assert json.loads((tmp_path / "index_7.json").read_text())["facts"]["capacity"] == 1000
        for name in names[:-1]:
            with np.load(tmp_path / name, allow_pickle=False) as file:
                assert all(file[field].dtype != object for field in file.files)


def damage(path: Path, how: str) -> None:
    """Alters the first array in a segment, shortens the file or deletes it."""
    content = bytearray(path.read_bytes())
    content[content.index(b"\n", content.index(b"NUMPY")) + 1] ^= 4
    path.write_bytes(content[:-9] if how == "cut" else content)
    if how == "gone":
        path.unlink()


_OBSERVATIONS = ("observation", "next_observation")


def _keyed(observation: npt.NDArray[np.int16]) -> dict[str, Any]:
    """The observation in a nested dict, with two keys that can be worked out from it."""
    history = {"actions": (observation[0, :2] / 2).astype(np.float32), "delay": int(observation[0, 0])}
    return {"history": history, "image": observation}

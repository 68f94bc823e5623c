"""The replay against a plain list of episodes that knows every valid transition.

Every observation in a stream has a value of its own and none is zero, so that an observation tells which transition
it belongs to and is never taken for padding.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agents.replay import RingReplay

SHAPE = (2, 3)
Batch = dict[str, npt.NDArray[Any]]
Transition = dict[str, Any]


class Replay(Protocol):
    """What the contract asks of a replay."""

    @property
    def add_count(self) -> int: ...
    def __len__(self) -> int: ...
    def observe(self, transition: Transition) -> None: ...
    def sample(self, batch_size: int | None = None) -> Batch: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


@dataclass(frozen=True)
class Config:
    """The arguments that the oracle must know."""

    capacity: int = 1000
    stack_size: int = 1
    update_horizon: int = 1
    gamma: float = 0.9
    discount_by: Literal["decision", "frame"] = "decision"


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
            }
        value += 1


def frame(value: int) -> npt.NDArray[np.int16]:
    """An observation whose pixels tell its value."""
    return np.full(SHAPE, value, np.int16) * np.array([1, 2, 3], np.int16)


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
        oldest_needed = episode["first"] + max(0, t - self.config.stack_size + 1)
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
        }

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


def assert_same_batches(one: Replay, other: Replay, count: int = 3) -> None:
    """Samples from both replays and compares bit for bit."""
    for _ in range(count):
        first, second = one.sample(16), other.sample(16)
        assert first.keys() == second.keys()
        for name in first:
            np.testing.assert_array_equal(first[name], second[name], err_msg=name)


configs = st.builds(
    Config,
    capacity=st.integers(8, 40),
    stack_size=st.integers(1, 4),
    update_horizon=st.integers(1, 4),
    gamma=st.sampled_from([0.5, 0.9, 1.0]),
    discount_by=st.sampled_from(["decision", "frame"]),
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
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.differing_executors], database=None
)


class ReplayContract:
    """What every replay promises while nothing has been overwritten; a subclass says how to make one."""

    def make_replay(self, config: Config, *, seed: int = 0, batch_size: int = 32) -> Replay:
        """A new, empty replay of observations of shape `SHAPE`, int16."""
        raise NotImplementedError

    @given(configs, streams())
    @contract_settings
    def test_samples_are_transitions_of_the_stream(self, config: Config, stream: list[Transition]) -> None:
        roomy = Config(1000, config.stack_size, config.update_horizon, config.gamma, config.discount_by)
        replay, oracle = self.make_replay(roomy), Oracle(roomy)
        for transition in stream:
            replay.observe(transition)
            oracle.observe(transition)
        expected = {int(t["observation"][-1, 0, 0]): t for t in oracle.valid().values()}
        assert len(replay) == len(expected)
        assert replay.add_count == len(stream)
        batch = replay.sample(64) if expected else {"action": np.zeros(0)}
        for row in range(len(batch["action"])):
            assert_same_transition(batch, row, expected[int(batch["observation"][row, -1, 0, 0])])

    def test_keys_shapes_and_dtypes(self) -> None:
        replay = self.make_replay(Config(stack_size=4, update_horizon=3), batch_size=5)
        for transition in some_stream():
            replay.observe(transition)
        batch = replay.sample()
        assert batch["observation"].shape == batch["next_observation"].shape == (5, 4, *SHAPE)
        assert batch["observation"].dtype == batch["next_observation"].dtype == np.int16
        dtypes = {"action": np.int64, "reward": np.float32, "discount": np.float32, "interval": np.int64}
        for name, dtype in dtypes.items():
            assert batch[name].shape == (5,)
            assert batch[name].dtype == dtype
        assert replay.sample(9)["action"].shape == (9,)

    def test_terminated_and_truncated_ends(self) -> None:
        ends = [Episode([1.0, 1.0], [1, 1], "terminal"), Episode([1.0, 1.0], [1, 1], "truncated")]
        replay = self.make_replay(Config(update_horizon=2, gamma=0.5))
        for transition in transitions(ends):
            replay.observe(transition)
        batch = replay.sample(64)
        rows = zip(batch["observation"][:, -1, 0, 0], batch["reward"], batch["discount"], strict=True)
        # Observations are 1, 2, (3) and 4, 5, (6).
        assert set(rows) == {(1, 1.5, 0.0), (2, 1.0, 0.0), (4, 1.5, 0.25), (5, 1.0, 0.5)}

    def test_seed_decides_the_batches(self) -> None:
        replays = [self.make_replay(Config(), seed=seed) for seed in (1, 1, 2)]
        for replay in replays:
            for transition in some_stream():
                replay.observe(transition)
        assert_same_batches(replays[0], replays[1])
        first, other = replays[0].sample()["observation"], replays[2].sample()["observation"]
        assert not np.array_equal(first, other)

    def test_batches_are_the_callers_own(self) -> None:
        replay = self.make_replay(Config(stack_size=2))
        for transition in some_stream():
            replay.observe(transition)
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
        assert (replay.sample(1)["observation"][0, -1] == frame(1)).all()

    def test_sampling_an_empty_replay_is_an_error(self) -> None:
        replay = self.make_replay(Config())
        assert len(replay) == 0
        with pytest.raises(ValueError, match="no valid transition"):
            replay.sample()

    @given(configs, streams(), st.integers(0, 120))
    @contract_settings
    def test_state_dict_continues_bit_for_bit(self, config: Config, stream: list[Transition], moment: int) -> None:
        replay, resumed = self.make_replay(config), self.make_replay(config, seed=9)
        # What the other replay held before must leave no trace.
        for transition in some_stream():
            resumed.observe(transition)
        for i, transition in enumerate(stream):
            if i == moment:
                resumed.load_state_dict(replay.state_dict())
            replay.observe(transition)
            if i >= moment:
                resumed.observe(transition)
        if moment >= len(stream):
            resumed.load_state_dict(replay.state_dict())
        assert (len(resumed), resumed.add_count) == (len(replay), replay.add_count)
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
        replay.sample()
        resumed.load_state_dict(state)
        assert resumed.add_count == 7
        assert resumed.sample(64)["observation"].max() <= 3 * 8


def ring(config: Config, *, seed: int = 0, batch_size: int = 32) -> RingReplay:
    """A ring of the oracle's observations."""
    return RingReplay(
        SHAPE,
        np.int16,
        capacity=config.capacity,
        stack_size=config.stack_size,
        update_horizon=config.update_horizon,
        gamma=config.gamma,
        discount_by=config.discount_by,
        batch_size=batch_size,
        seed=seed,
    )


def filled(config: Config, stream: list[Transition], seed: int = 0) -> RingReplay:
    """A ring that has observed a stream."""
    replay = ring(config, seed=seed)
    for transition in stream:
        replay.observe(transition)
    return replay


class TestRingKeepsTheContract(ReplayContract):
    def make_replay(self, config: Config, *, seed: int = 0, batch_size: int = 32) -> RingReplay:
        return ring(config, seed=seed, batch_size=batch_size)


class TestRing:
    @given(configs, streams())
    @settings(max_examples=150, deadline=None)
    def test_agrees_with_the_oracle_at_every_moment(self, config: Config, stream: list[Transition]) -> None:
        replay, oracle = ring(config), Oracle(config)
        for transition in stream:
            replay.observe(transition)
            oracle.observe(transition)
            expected = oracle.valid()
            assert replay.valid_slots().tolist() == sorted(expected)
            assert len(replay) == len(expected)
            batch: Batch = replay.sample(8) if expected else {"index": np.zeros(0, np.int64)}
            for row, index in enumerate(batch["index"].tolist()):
                assert_same_transition(batch, row, expected[index])

    @given(st.integers(1, 4), st.integers(1, 4), streams())
    @settings(max_examples=60, deadline=None)
    def test_smallest_ring(self, stack_size: int, horizon: int, stream: list[Transition]) -> None:
        config = Config(stack_size + horizon, stack_size, horizon)
        replay, oracle = ring(config), Oracle(config)
        for transition in stream:
            replay.observe(transition)
            oracle.observe(transition)
            assert replay.valid_slots().tolist() == sorted(oracle.valid())
            assert len(replay) == len(oracle.valid())

    def test_an_episode_longer_than_the_ring(self) -> None:
        config = Config(capacity=10, stack_size=3, update_horizon=2)
        replay = filled(config, list(transitions([Episode([1.0] * 35, [1] * 35, "running")])))
        assert replay.valid_slots().tolist() == list(range(27, 33))  # live are 25 .. 34

    @pytest.mark.parametrize("horizon", [1, 3])
    def test_every_valid_transition_is_drawn_equally_often(self, horizon: int) -> None:
        replay = filled(Config(capacity=50, stack_size=3, update_horizon=horizon), some_stream(episodes=13))
        slots, draws = replay.valid_slots(), 40_000
        counts = np.bincount(np.searchsorted(slots, replay.sample(draws)["index"]), minlength=len(slots))
        assert len(counts) == len(slots) == len(replay)
        mean = draws / len(slots)
        chi_square = float(((counts - mean) ** 2 / mean).sum())
        freedom = len(slots) - 1
        assert abs(chi_square - freedom) < 4.0 * np.sqrt(2.0 * freedom)

    def test_truncated_and_terminal_is_terminal(self) -> None:
        transition = next(transitions([Episode([1.0], [1], "terminal")]))
        assert filled(Config(), [{**transition, "truncated": True}]).sample(1)["discount"] == 0.0

    def test_bytes(self) -> None:
        replay = RingReplay((84, 84), np.uint8, capacity=1000, stack_size=4)
        assert replay.nbytes / 1000 - 84 * 84 <= 100
        assert replay.nbytes * 1000 <= 7.2e9

    def test_a_refused_transition_leaves_no_trace(self) -> None:
        replay = filled(Config(), some_stream(episodes=1))
        bad = {**some_stream()[6], "next_observation": np.zeros((3, 2), np.int16)}
        with pytest.raises(ValueError, match=r"next_observation must have shape \(2, 3\), got \(3, 2\)"):
            replay.observe(bad)
        with pytest.raises(ValueError, match="observation must have dtype int16, got float64"):
            replay.observe({**bad, "observation": np.zeros(SHAPE)})
        with pytest.raises(ValueError, match="interval must be >= 0 frames, got -1"):
            replay.observe({**some_stream()[0], "interval": -1})
        assert replay.add_count == len(replay) == 7
        assert replay.valid_slots().tolist() == list(range(7))

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"capacity": 0}, r"capacity must be >= 2 slots \(stack_size \+ update_horizon\), got 0"),
            ({"capacity": 6, "stack_size": 4, "update_horizon": 3}, "capacity must be >= 7 slots"),
            ({"stack_size": 0}, "stack_size must be >= 1 observation, got 0"),
            ({"update_horizon": 0}, "update_horizon must be >= 1 decision, got 0"),
            ({"batch_size": 0}, "batch_size must be >= 1 transition, got 0"),
            ({"gamma": 1.1}, r"gamma must lie in \[0, 1\], got 1\.1"),
            ({"discount_by": "second"}, "discount_by must be 'decision' or 'frame', got 'second'"),
        ],
    )
    def test_wrong_arguments_are_refused(self, arguments: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            RingReplay(SHAPE, np.int16, **arguments)

    def test_object_observations_and_empty_batches_are_refused(self) -> None:
        with pytest.raises(ValueError, match="observation_dtype must be a plain dtype"):
            RingReplay(SHAPE, object, capacity=2)
        with pytest.raises(ValueError, match="batch_size must be >= 1 transition, got 0"):
            filled(Config(), some_stream()).sample(0)

    def test_state_of_another_ring_is_refused(self) -> None:
        replay = filled(Config(), some_stream())
        with pytest.raises(ValueError, match=r"gamma must be as in the saved replay, 0\.9, got 0\.5"):
            ring(Config(gamma=0.5)).load_state_dict(replay.state_dict())


class TestSavedRing:
    @given(configs, streams(), st.sets(st.integers(0, 119), min_size=1, max_size=4), st.data())
    @settings(max_examples=80, deadline=None)
    def test_continues_bit_for_bit(
        self,
        tmp_path_factory: pytest.TempPathFactory,
        config: Config,
        stream: list[Transition],
        moments: set[int],
        data: st.DataObject,
    ) -> None:
        directory = tmp_path_factory.mktemp("replay")
        replay = ring(config)
        saved = []
        for i, transition in enumerate(stream):
            if i in moments:
                replay.save(directory, i)
                saved.append(i)
                # From here on a ring that was loaded takes the place of the one that was saved, or not.
                if data.draw(st.booleans()):
                    resumed = ring(config, seed=9)
                    resumed.load(directory, i)
                    replay = resumed
            replay.observe(transition)
            if len(replay):
                replay.sample(4)
        for moment in saved:
            self._assert_continues(directory, moment, config, stream)

    def _assert_continues(self, directory: Path, moment: int, config: Config, stream: list[Transition]) -> None:
        """Compares the ring loaded from `moment` with one that was never saved."""
        resumed, uninterrupted = ring(config, seed=9), ring(config)
        resumed.load(directory, moment)
        for i, transition in enumerate(stream):
            uninterrupted.observe(transition)
            if len(uninterrupted):
                expected = uninterrupted.sample(4)
            if i >= moment:
                resumed.observe(transition)
                assert resumed.valid_slots().tolist() == uninterrupted.valid_slots().tolist()
                assert (len(resumed), resumed.add_count) == (len(uninterrupted), uninterrupted.add_count)
                batch = resumed.sample(4) if len(resumed) else {}
                for name, values in batch.items():
                    np.testing.assert_array_equal(values, expected[name], err_msg=name)

    def test_each_save_writes_only_what_is_new(self, tmp_path: Path) -> None:
        stream = some_stream(episodes=10)  # 8 slots each
        config = Config(capacity=40)
        replay = ring(config)
        listed = []
        for number in range(10):
            for transition in stream[7 * number : 7 * number + 7]:
                replay.observe(transition)
            listed.append(replay.save(tmp_path, number))
        assert [name[8:33] for name in listed[1][:-1]] == ["000000000000_000000000008", "000000000008_000000000016"]
        assert [len(names) - 1 for names in listed] == [1, 2, 3, 4, 5, 5, 5, 5, 5, 5]
        assert listed[9][:-1] == sorted(path.name for path in tmp_path.glob("segment_*"))[-5:]
        assert listed[9][-1] == "index_9.json"

    def test_segments_of_one_slot_are_listed_while_they_live(self, tmp_path: Path) -> None:
        config = Config(capacity=6, stack_size=2)
        replay = ring(config)
        for number, transition in enumerate(transitions([Episode([1.0] * 20, [1] * 20, "running")])):
            replay.observe(transition)
            names = replay.save(tmp_path, number)
            assert len(names) - 1 == min(number + 1, 6)
            resumed = ring(config)
            resumed.load(tmp_path, number)
            for name, values in replay.state_dict()["slots"].items():
                np.testing.assert_array_equal(resumed.state_dict()["slots"][name], values)

    def test_long_ring_in_many_pieces(self, tmp_path: Path) -> None:
        stream = list(transitions([Episode([1.0] * 50, [1] * 50, "truncated") for _ in range(300)]))
        config = Config(capacity=10_000, stack_size=4, update_horizon=3)
        replay, resumed = filled(config, stream), ring(config, seed=3)
        replay.save(tmp_path, 0)
        resumed.load(tmp_path, 0)
        np.testing.assert_array_equal(resumed.valid_slots(), replay.valid_slots())
        assert_same_batches(replay, resumed)

    def test_saving_twice_under_one_number_keeps_the_later(self, tmp_path: Path) -> None:
        stream = some_stream()
        replay = filled(Config(), stream[:14])
        first = replay.save(tmp_path, 0)
        assert replay.save(tmp_path, 0) == first
        for transition in stream[14:]:
            replay.observe(transition)
        replay.save(tmp_path, 0)
        resumed = ring(Config())
        resumed.load(tmp_path, 0)
        assert resumed.add_count == len(stream)
        assert_same_batches(replay, resumed)

    def test_going_on_from_an_older_number_leaves_the_newer_whole(self, tmp_path: Path) -> None:
        stream = some_stream()
        replay = filled(Config(), stream[:14])
        replay.save(tmp_path, 0)
        for transition in stream[14:28]:
            replay.observe(transition)
        replay.save(tmp_path, 1)
        branch = ring(Config())
        branch.load(tmp_path, 0)
        for transition in stream[28:42]:
            branch.observe(transition)
        names = branch.save(tmp_path, 2)
        assert len(names) == 3  # the segment of number 0, one of its own, the index
        for number, original in ((1, replay), (2, branch)):
            resumed = ring(Config(), seed=9)
            resumed.load(tmp_path, number)
            assert_same_batches(original, resumed)

    def test_prune_keeps_what_the_kept_indexes_need(self, tmp_path: Path) -> None:
        stream, replay = some_stream(), ring(Config(capacity=24))
        for number in range(10):
            for transition in stream[7 * number : 7 * number + 7]:
                replay.observe(transition)
            names = replay.save(tmp_path, number)
        (tmp_path / "segment_0_8_torn.npz.tmp").touch()
        (tmp_path / "notes.txt").touch()
        replay.prune(tmp_path, keep=[9, 77])
        assert {path.name for path in tmp_path.iterdir()} == {*names, "notes.txt"}
        resumed = ring(Config(capacity=24))
        resumed.load(tmp_path, 9)
        assert_same_batches(replay, resumed)

    def test_prune_spares_all_when_a_kept_index_is_torn(self, tmp_path: Path) -> None:
        replay = filled(Config(), some_stream())
        replay.save(tmp_path, 0)
        replay.save(tmp_path, 1)
        (tmp_path / "index_1.json").write_text("{")
        with pytest.raises(ValueError, match="is not a whole index file"):
            replay.prune(tmp_path, keep=[1])
        assert len(list(tmp_path.iterdir())) == 3

    def test_segments_that_are_gone_are_written_anew(self, tmp_path: Path) -> None:
        replay = filled(Config(), some_stream())
        replay.save(tmp_path / "one", 0)
        replay.prune(tmp_path / "one", keep=[])
        for directory in (tmp_path / "one", tmp_path / "two"):
            replay.save(directory, 1)
            resumed = ring(Config(), seed=5)
            resumed.load(directory, 1)
            np.testing.assert_array_equal(resumed.valid_slots(), replay.valid_slots())

    def test_another_state_is_not_mixed_with_saved_segments(self, tmp_path: Path) -> None:
        replay, other = filled(Config(), some_stream()), filled(Config(), some_stream(episodes=5, length=3))
        replay.save(tmp_path, 0)
        replay.load_state_dict(other.state_dict())
        replay.save(tmp_path, 1)
        resumed = ring(Config())
        resumed.load(tmp_path, 1)
        assert_same_batches(other, resumed)

    @pytest.mark.parametrize(("damage", "left"), [("cut", 70), ("flip", 0)])
    def test_torn_segment(self, tmp_path: Path, damage: str, left: int) -> None:
        replay = filled(Config(), some_stream())
        segment = tmp_path / replay.save(tmp_path, 0)[0]
        content = bytearray(segment.read_bytes())
        content[len(content) // 2] ^= 255
        segment.write_bytes(content[: len(content) // 2] if damage == "cut" else content)
        with pytest.raises(ValueError, match=f"{segment.name} in .* is torn or altered"):
            replay.load(tmp_path, 0)
        assert len(replay) == left

    def test_missing_files(self, tmp_path: Path) -> None:
        replay = filled(Config(), some_stream())
        segment = tmp_path / replay.save(tmp_path, 0)[0]
        with pytest.raises(FileNotFoundError, match=r"index_1\.json"):
            replay.load(tmp_path, 1)
        segment.unlink()
        with pytest.raises(FileNotFoundError, match=f"{segment.name} is missing"):
            replay.load(tmp_path, 0)
        assert len(replay) == 70

    @pytest.mark.parametrize(
        ("name", "config"),
        [
            ("capacity", Config(capacity=999)),
            ("stack_size", Config(stack_size=2)),
            ("update_horizon", Config(update_horizon=2)),
            ("gamma", Config(gamma=0.8)),
            ("discount_by", Config(discount_by="frame")),
        ],
    )
    def test_wrong_constructor(self, tmp_path: Path, name: str, config: Config) -> None:
        filled(Config(), some_stream()).save(tmp_path, 0)
        other = filled(config, some_stream(episodes=2))
        with pytest.raises(ValueError, match=f"^{name} must be as in the saved replay"):
            other.load(tmp_path, 0)
        assert other.add_count == 14

    def test_wrong_observations(self, tmp_path: Path) -> None:
        filled(Config(), some_stream()).save(tmp_path, 0)
        arguments: dict[str, Any] = {"capacity": 1000, "gamma": 0.9}
        with pytest.raises(ValueError, match=r"observation_shape must be as in the saved replay, \[2, 3\], got \[3\]"):
            RingReplay((3,), np.int16, **arguments).load(tmp_path, 0)
        with pytest.raises(ValueError, match=r"observation_dtype must be .*, '<i2', got '\|u1'"):
            RingReplay(SHAPE, np.uint8, **arguments).load(tmp_path, 0)

    def test_files_hold_no_pickles_and_no_unfinished_work(self, tmp_path: Path) -> None:
        names = filled(Config(), some_stream()).save(tmp_path, 7)
        assert sorted(names) == sorted(path.name for path in tmp_path.iterdir())
        index = json.loads((tmp_path / "index_7.json").read_text())
        assert index["head"] == 80
        with np.load(tmp_path / names[0], allow_pickle=False) as file:
            assert sum(len(file[name]) for name in file.files if name.startswith("kind_")) == 80

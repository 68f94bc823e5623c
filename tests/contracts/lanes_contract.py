"""What a replay of several environments keeps: subclass `LanesContract` and give it `make_replay`.

    class TestMyReplay(LanesContract):
        def make_replay(self, config, num_envs, *, seed=0):
            return Replay(Ring(..., config.capacity * num_envs, num_envs=num_envs), MySelector(), seed=seed)

Each environment's transitions must be kept as a replay of that environment alone keeps them, whose own contract is
`replay_contract.ReplayContract`; a block of rows must leave what the same rows leave one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_wrappers.agents.replay.segments import read_index, write_index
from tests.contracts.replay_contract import (
    EXTRAS,
    Config,
    Rows,
    assert_same_batches,
    assert_same_state,
    block_of,
    configs,
    contract_settings,
    damage,
    extras_of,
    frame,
)
from tests.worlds.plain_data import assert_identical

environments = st.integers(1, 4)
seeds = st.integers(0, 10_000)


def rounds(seed: int, num_envs: int, count: int = 40, horizon: int | None = None) -> Iterator[Rows]:
    """Rows of some environments at a time; with a horizon, some with the priorities that an actor has found."""
    rng = np.random.default_rng(seed)
    value = np.arange(num_envs) * 2_000
    ends = rng.choice([0.05, 0.3])
    for _ in range(count):
        rows: Rows = {}
        for env_id in rng.permutation(num_envs)[: rng.integers(num_envs + 1)].tolist():
            value[env_id] += 1
            end = rng.random() < ends
            transition = {
                "observation": frame(int(value[env_id])),
                "action": int(value[env_id]) % 18,
                "reward": float(rng.normal()),
                "interval": int(rng.integers(6)),
                "terminal": bool(end and rng.random() < 0.5),
                "truncated": bool(end and rng.random() < 0.7),
                "next_observation": frame(int(value[env_id]) + 1),
                "extras": extras_of(int(value[env_id])),
            }
            value[env_id] += transition["terminal"] or transition["truncated"]
            if horizon is not None:
                priorities = np.where(rng.random(horizon + 1) < 0.3, np.nan, rng.gamma(0.5, 2.0, horizon + 1))
                transition |= {"priority": priorities[0], "final_priority": priorities[1:]}
            rows[env_id] = transition
        yield rows


class LanesContract:
    """Tests of a replay with `num_envs` environments, each with room for `config.capacity` observations."""

    takes_priorities = False

    def make_replay(self, config: Config, num_envs: int, *, seed: int = 0) -> Any:
        """A new, empty replay."""
        raise NotImplementedError

    def learn(self, replay: Any) -> Any:
        """Draw a batch and, where it has weights, give its transitions priorities, as a learner does."""
        if not len(replay):
            return None
        batch = replay.sample(4)
        if "weight" in batch:
            replay.set_priorities(batch["index"], batch["action"] % 5 + 0.25)
        return batch

    def filled(self, config: Config, num_envs: int, seed: int = 0, count: int = 40) -> Any:
        """A replay that has observed some rounds."""
        replay = self.make_replay(config, num_envs)
        for rows in rounds(seed, num_envs, count):
            for env_id, row in rows.items():
                replay.observe(row, env_id)
        return replay

    def alone(self, config: Config, num_envs: int, seed: int = 0, count: int = 40) -> list[Any]:
        """A replay for each environment, which has observed that one alone."""
        replays = [self.make_replay(config, 1) for _ in range(num_envs)]
        for rows in rounds(seed, num_envs, count):
            for env_id, row in rows.items():
                replays[env_id].observe(row)
        return replays

    def assert_each_as_alone(self, replay: Any, alone: list[Any]) -> None:
        """Compares every transition with that of the replay of its environment."""
        num_envs = len(alone)
        assert len(replay) == sum(map(len, alone))
        assert replay.add_count == sum(each.add_count for each in alone)
        slots = replay.valid_slots()
        for env_id, each in enumerate(alone):
            own = slots[slots % num_envs == env_id]
            assert (own // num_envs).tolist() == each.valid_slots().tolist()
            if own.size:
                kept, expected = replay.transitions(own), each.transitions(own // num_envs)
                assert kept.pop("index").tolist() == own.tolist()
                del expected["index"]
                assert_identical(kept, expected)

    @given(configs, environments, seeds)
    @contract_settings
    def test_each_environment_is_kept_as_if_it_were_alone(self, config: Config, num_envs: int, seed: int) -> None:
        replay, alone = self.filled(config, num_envs, seed), self.alone(config, num_envs, seed)
        self.assert_each_as_alone(replay, alone)
        for _ in range(3):
            if len(replay):
                assert set(replay.sample(16)["index"].tolist()) <= set(replay.valid_slots().tolist())
        replay.end_running()
        for each in alone:
            each.end_running()
        self.assert_each_as_alone(replay, alone)

    @given(configs, environments, seeds, st.integers(0, 39))
    @contract_settings
    def test_a_cut_ends_the_episode_of_its_environment_alone(
        self, config: Config, num_envs: int, seed: int, moment: int
    ) -> None:
        replay, alone = self.filled(config, num_envs, seed, moment), self.alone(config, num_envs, seed, moment)
        env_id = seed % num_envs
        replay.cut(frame(-1), env_id)
        alone[env_id].cut(frame(-1))
        self.assert_each_as_alone(replay, alone)

    @given(configs, environments, seeds, st.booleans())
    @contract_settings
    def test_a_block_is_its_rows_one_by_one(
        self, config: Config, num_envs: int, seed: int, with_priorities: bool
    ) -> None:
        config = self.smallest(config) if seed % 3 == 0 else config
        one, other = (self.make_replay(config, num_envs) for _ in range(2))
        horizon = config.update_horizon if with_priorities and self.takes_priorities else None
        for rows in rounds(seed, num_envs, horizon=horizon):
            for env_id, row in rows.items():
                one.observe(row, env_id)
            other.extend(block_of(rows))
            assert_same_state(one, other)
            learnt = [self.learn(each) for each in (one, other)]
            assert_identical(*learnt)
        assert_same_state(one, other)

    @staticmethod
    def smallest(config: Config) -> Config:
        """The same with a ring that hardly holds a transition."""
        return Config(
            config.reach + config.update_horizon,
            config.stack_size,
            config.update_horizon,
            extras=config.extras,
            action_window=config.action_window,
        )

    @given(configs, environments, seeds)
    @contract_settings
    def test_state_dict_continues_bit_for_bit(self, config: Config, num_envs: int, seed: int) -> None:
        replay, resumed = self.make_replay(config, num_envs), self.filled(config, num_envs, seed + 1)
        for number, rows in enumerate(rounds(seed, num_envs)):
            if number == seed % 40:
                resumed.load_state_dict(replay.state_dict())
            for each in (replay, resumed) if number >= seed % 40 else (replay,):
                each.extend(block_of(rows))
                self.learn(each)
        assert_same_state(resumed, replay)
        if len(replay):
            assert_same_batches(replay, resumed)

    @given(configs, environments, seeds)
    @contract_settings
    def test_continues_from_its_files_bit_for_bit(
        self, tmp_path_factory: pytest.TempPathFactory, config: Config, num_envs: int, seed: int
    ) -> None:
        directory = tmp_path_factory.mktemp("replay")
        replay, uninterrupted = self.make_replay(config, num_envs), self.make_replay(config, num_envs)
        for number, rows in enumerate(rounds(seed, num_envs)):
            if number % 9 == seed % 9:
                uninterrupted.end_running()  # as loading does
                replay.save(directory, number)
                replay = self.make_replay(config, num_envs, seed=9)
                replay.load(directory, number)
                assert_same_state(replay, uninterrupted)
            learnt = []
            for each in (replay, uninterrupted):
                each.extend(block_of(rows))
                learnt.append(self.learn(each))
            assert_identical(*learnt)

    def test_a_damaged_file_is_refused_and_one_that_lacks_entries_too(self, tmp_path: Path) -> None:
        replay = self.make_replay(Config(), 3)
        for number, rows in enumerate(rounds(0, 3, 30)):
            replay.extend(block_of(rows))
            if number % 10 == 9:
                replay.save(tmp_path, 0)
        listed, moment, facts = read_index(tmp_path, 0)
        assert len(listed) > 2
        write_index(tmp_path, 1, [listed[0], *listed[2:]], moment, {**facts})
        with pytest.raises(ValueError, match="lack entries from number"):
            self.make_replay(Config(), 3).load(tmp_path, 1)
        damage(tmp_path / listed[1].name, "flip")
        with pytest.raises(ValueError, match=f"{listed[1].name} in .* is torn or altered"):
            self.make_replay(Config(), 3).load(tmp_path, 0)

    def test_each_save_writes_what_is_new_of_each_environment(self, tmp_path: Path) -> None:
        replay = self.make_replay(Config(capacity=100), 3)
        row = next(rows for rows in rounds(0, 1) if rows)[0] | {"terminal": False, "truncated": False}
        replay.observe(row, 0)
        replay.observe(row, 2)
        first = replay.save(tmp_path, 0)
        replay.observe(row, 2)
        replay.observe(row, 2)
        second = replay.save(tmp_path, 1)
        # Numbers of environment e are e, e + 3, e + 6, ...
        found = [[name[8:33] for name in names if name.startswith("segment")] for names in (first, second)]
        ranges = ["000000000000_000000000005", "000000000005_000000000011"]
        assert found[0][:1] == ranges[:1]
        assert found[1][:2] == ranges
        assert set(first) - set(second) <= {first[-1], first[-2]}  # the index and, of priorities, the snapshot

    def test_a_save_is_one_file_of_transitions_whatever_the_number_of_environments(self, tmp_path: Path) -> None:
        replay, snapshot = self.filled(Config(capacity=120), 10), 0
        for number in range(3):
            replay.save(tmp_path, number)
            listed, of_snapshot, _ = read_index(tmp_path, number)
            assert len(listed) == 1
            snapshot += len(of_snapshot)
        assert len(list(tmp_path.iterdir())) == 3 + 1 + snapshot  # an index each, and what changes from save to save
        loaded = self.make_replay(Config(capacity=120), 10)
        loaded.load(tmp_path, 2)
        replay.end_running()
        assert_same_state(loaded, replay)

    @pytest.mark.parametrize("others", [1, 2])
    def test_files_of_another_number_of_environments_are_refused(self, tmp_path: Path, others: int) -> None:
        replay, other = self.filled(Config(capacity=36), 3), self.filled(Config(capacity=108 // others), others)
        replay.save(tmp_path, 0)
        for way in (lambda: other.load(tmp_path, 0), lambda: other.load_state_dict(replay.state_dict())):
            before = other.state_dict()
            with pytest.raises(ValueError, match=rf"^num_envs must be as in the saved replay, 3, got {others}, make"):
                way()
            assert_identical(other.state_dict(), before)
        other.save(tmp_path, 1)
        with pytest.raises(ValueError, match=rf"^num_envs must be as in the saved replay, {others}, got 3, make"):
            replay.load(tmp_path, 1)

    def test_an_empty_replay_of_several_environments_is_saved_and_loaded(self, tmp_path: Path) -> None:
        replay, loaded = self.make_replay(Config(), 3), self.filled(Config(), 3)
        replay.save(tmp_path, 0)
        loaded.load(tmp_path, 0)
        assert_same_state(loaded, replay)

    @pytest.mark.parametrize(
        ("changes", "error", "message"),
        [
            ({"env_ids": np.array([0, 3])}, ValueError, r"env_ids must lie in \[0, 3\), got 3"),
            ({"env_ids": np.array([1, 1])}, ValueError, "env_ids must be distinct, got 1 twice"),
            ({"env_ids": np.array([0.0, 1.0])}, ValueError, r"env_ids must be whole numbers \[R\], got float64 \[2\]"),
            (
                {"action": np.zeros(3, int)},
                ValueError,
                r"action must have shape \(2,\), a number for each of env_ids, g",
            ),
            ({"action": np.zeros(2)}, ValueError, "action must have dtype int64, got float64, cast it first"),
            ({"terminal": np.zeros(2)}, ValueError, "terminal must have dtype bool, got float64, cast it first"),
            ({"interval": np.array([1, -2])}, ValueError, "interval must be >= 0 frames, got -2"),
            ({"observation": np.zeros((2, 3), np.int16)}, ValueError, r"observation must have shape \(2, 2, 3\), got"),
            ({"extras": {}}, ValueError, "extras must be a dict with the keys"),
            ({"final": {0: frame(1)}}, ValueError, r"final must hold .* every episode that ends, got none of \[2\]"),
            ({"final": {2: frame(1)[:1]}}, ValueError, r"final\[2\] must have shape \(2, 3\), got \(1, 3\)"),
            ({"reward": None}, KeyError, "reward"),
        ],
    )
    def test_a_refused_block_leaves_no_trace(
        self, changes: dict[str, Any], error: type[Exception], message: str
    ) -> None:
        replay = self.filled(Config(extras=EXTRAS), 3)
        row = next(rows for rows in rounds(0, 1) if rows)[0] | {"terminal": False, "truncated": False}
        before = replay.state_dict()
        block = {**block_of({0: row, 2: {**row, "terminal": True}}), **changes}
        with pytest.raises(error, match=message):
            replay.extend({name: value for name, value in block.items() if value is not None})
        for env_id in (-1, 3):
            for way in (lambda at: replay.observe(row, at), lambda at: replay.cut(frame(1), at)):
                with pytest.raises(ValueError, match=rf"env_id must lie in \[0, 3\), got {env_id}"):
                    way(env_id)
        assert_identical(replay.state_dict(), before)

    def test_priorities_that_come_too_late_are_left_out(self) -> None:
        replay = self.filled(Config(capacity=8), 2, count=20)
        if not self.takes_priorities:
            return
        index = replay.sample(8)["index"]
        for rows in rounds(1, 2, 40):
            replay.extend(block_of(rows))
        state = replay.state_dict()["snapshot"]
        replay.set_priorities(index, np.full(8, 0.5))
        assert_identical(replay.state_dict()["snapshot"], state)
        with pytest.raises(ValueError, match="index must be a batch's"):
            replay.set_priorities([10**6], [1.0])

"""The ring against the oracle at every moment, its files, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from hypothesis import given, settings
from hypothesis import strategies as st

from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.learning.making import make_replay
from async_wrappers.agents.replay.replay import Replay, create_replay
from async_wrappers.agents.replay.ring import FINAL
from async_wrappers.agents.spaces.schema import Column
from tests.contracts.replay_contract import (
    EXTRAS,
    SPACE,
    Batch,
    Config,
    Episode,
    Oracle,
    ReplayContract,
    Transition,
    assert_same_batches,
    assert_same_transition,
    configs,
    some_stream,
    streams,
    transitions,
)


def ring(config: Config, *, space: gym.Space[Any] = SPACE, **arguments: Any) -> Replay:
    """A uniform replay of the oracle's observations."""
    return create_replay(
        space,
        extras=config.extras,
        capacity=config.capacity,
        stack_size=config.stack_size,
        update_horizon=config.update_horizon,
        gamma=config.gamma,
        discount_by=config.discount_by,
        action_window=config.action_window,
        **arguments,
    )


def filled(config: Config, stream: list[Transition], seed: int = 0) -> Replay:
    """A ring that has observed a stream."""
    replay = ring(config, seed=seed)
    for transition in stream:
        replay.observe(transition)
    return replay


class TestRingKeepsTheContract(ReplayContract):
    def make_replay(self, config: Config, **arguments: Any) -> Replay:
        return ring(config, **arguments)


class TestRing:
    @given(configs, streams())
    @settings(max_examples=25, deadline=None)
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

    @given(st.integers(1, 4), st.integers(1, 4), st.sampled_from([None, 1, 3, 6]), streams())
    @settings(max_examples=20, deadline=None)
    def test_smallest_ring(self, stack_size: int, horizon: int, window: int | None, stream: list[Transition]) -> None:
        config = Config(stack_size=stack_size, update_horizon=horizon, action_window=window)
        config = replace(config, capacity=config.reach + horizon)
        replay, oracle = ring(config), Oracle(config)
        for transition in stream:
            replay.observe(transition)
            oracle.observe(transition)
            expected = oracle.valid()
            assert replay.valid_slots().tolist() == sorted(expected)
            assert len(replay) == len(expected)
            for slot in expected:
                assert_same_transition(replay.transitions(np.array([slot])), 0, expected[slot])

    @given(configs, streams())
    @settings(max_examples=20, deadline=None)
    def test_windows_of_real_valued_actions(self, config: Config, stream: list[Transition]) -> None:
        window = config.action_window or 5
        capacity = max(config.capacity, window + 1 + config.update_horizon)
        config = replace(config, action_window=window, capacity=capacity)
        replay, oracle = ring(config, action=Column((2,), np.dtype(np.float32))), Oracle(config)
        for transition in stream:
            replay.observe({**transition, "action": np.array([1, 0.5], np.float32) * (1 + transition["action"])})
            oracle.observe(transition)
        expected = oracle.valid()
        for slot in expected:
            batch = replay.transitions(np.array([slot]))
            for name in ("action_window", "next_action_window"):
                numbers = np.array(expected[slot][name]) + 1  # 0 where there was no action
                assert batch[name].dtype == np.float32
                np.testing.assert_array_equal(batch[name][0], numbers[:, None] * [1, 0.5], err_msg=name)

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

    def test_transitions_are_put_together_by_their_slots(self) -> None:
        config = Config(capacity=30, stack_size=2, update_horizon=2)
        replay, oracle = filled(config, some_stream()), Oracle(config)
        for transition in some_stream():
            oracle.observe(transition)
        slots, expected = replay.valid_slots(), oracle.valid()
        batch = replay.transitions(slots)
        for row, slot in enumerate(slots.tolist()):
            assert_same_transition(batch, row, expected[slot])
        wrong = [slots[0] - 30, slots[-1] + 1, 79]  # overwritten, final and without an action, final
        for slot in wrong:
            with pytest.raises(ValueError, match=f"slots must be those of valid transitions, got {slot}"):
                replay.transitions(np.array([slots[0], slot]))

    def test_a_final_slot_holds_no_extras(self) -> None:
        # The ring is full and its final slots lie where decisions were.
        replay = filled(Config(capacity=12, extras=EXTRAS), some_stream(length=4) + some_stream(length=6))
        slots = replay.state_dict()["slots"]
        final = slots["kind"] == FINAL
        assert 0 < final.sum() < 12
        for name in ("extras/log_prob", "extras/core/h"):
            assert (slots[name][final] == 0).all()
            assert (slots[name][~final] != 0).all()

    def test_truncated_and_terminal_is_terminal(self) -> None:
        transition = next(transitions([Episode([1.0], [1], "terminal")]))
        assert filled(Config(), [{**transition, "truncated": True}]).sample(1)["discount"] == 0.0

    def test_bytes(self) -> None:
        replay = create_replay(Box(0, 255, (84, 84), np.uint8), capacity=1000, stack_size=4)
        assert replay.nbytes / 1000 - 84 * 84 <= 100
        assert replay.nbytes * 1000 <= 7.2e9

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"capacity": 0}, r"capacity must be >= 2 slots \(stack_size \+ update_horizon\), got 0"),
            ({"capacity": 6, "stack_size": 4, "update_horizon": 3}, "capacity must be >= 7 slots"),
            ({"stack_size": 0}, "stack_size must be >= 1 observation, got 0"),
            ({"update_horizon": 0}, "update_horizon must be >= 1 decision, got 0"),
            ({"action_window": 0}, "action_window must be >= 1 action, or None for no window, got 0"),
            (
                {"capacity": 6, "action_window": 4, "update_horizon": 2},
                r"capacity must be >= 7 slots \(action_window \+ 1 \+ update_horizon\), got 6",
            ),
            ({"replay_bytes": 99, "action_window": 30}, "replay_bytes must be >= "),
            ({"batch_size": 0}, "batch_size must be >= 1 transition, got 0"),
            ({"gamma": 1.1}, r"gamma must lie in \[0, 1\], got 1\.1"),
            ({"discount_by": "second"}, "discount_by must be 'decision' or 'frame', got 'second'"),
        ],
    )
    def test_wrong_arguments_are_refused(self, arguments: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            create_replay(SPACE, **arguments)

    def test_an_agents_window_is_its_replays_and_a_reservoir_is_refused(self) -> None:
        spec = DQN(SPACE, Discrete(2), stack_size=1, replay_capacity=20)
        assert "action_window" not in make_replay(spec, 0).facts()
        assert make_replay(spec.with_settings(action_window=3), 0).facts()["action_window"] == 3
        with pytest.raises(
            ValueError, match=r"^replay_eviction must be 'oldest' where action_window=3, got 'reservoir'"
        ):
            spec.with_settings(action_window=3, replay_eviction="reservoir").check_replay()


class TestSavedRing:
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

    def test_files_of_another_stack_are_refused(self, tmp_path: Path) -> None:
        filled(Config(), some_stream()).save(tmp_path, 0)
        with pytest.raises(ValueError, match=r"^stack_size must be as in the saved replay, 1, got 2,"):
            ring(Config(stack_size=2)).load(tmp_path, 0)

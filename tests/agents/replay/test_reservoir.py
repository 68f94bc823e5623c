"""The reservoir against Algorithm R on a list, and what any replay is made from."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from hypothesis import given, settings
from hypothesis import strategies as st

from async_wrappers.agents.replay.replay import Replay, create_replay
from tests.contracts.replay_contract import (
    SPACE,
    Config,
    Episode,
    Oracle,
    ReplayContract,
    Transition,
    assert_same_state,
    assert_same_transition,
    configs,
    some_stream,
    streams,
    transitions,
)


def reservoir(config: Config, *, space: gym.Space[Any] = SPACE, **arguments: Any) -> Replay:
    """A reservoir of the oracle's observations."""
    return create_replay(
        space,
        extras=config.extras,
        eviction="reservoir",
        capacity=config.capacity,
        update_horizon=config.update_horizon,
        gamma=config.gamma,
        discount_by=config.discount_by,
        **arguments,
    )


def kept(replay: Replay) -> set[int]:
    """Indexes of all transitions that the reservoir holds."""
    return set(replay.state_dict()["slots"]["index"].tolist()) if len(replay) else set()


class TestReservoirKeepsTheContract(ReplayContract):
    def make_replay(self, config: Config, **arguments: Any) -> Replay:
        return reservoir(config, **arguments)

    def possible(self, config: Config) -> Config:
        return replace(config, stack_size=1, action_window=None)

    def all_of(self, replay: Any) -> dict[int, Transition]:
        if not len(replay):
            return {}
        slots = replay.state_dict()["slots"]
        return {index: {name: slots[name][row] for name in slots} for row, index in enumerate(slots["index"].tolist())}


class TestReservoir:
    @given(configs, streams(), st.integers(0, 5))
    @settings(max_examples=30, deadline=None)
    def test_keeps_what_algorithm_r_keeps(self, config: Config, stream: list[Transition], seed: int) -> None:
        config = replace(config, capacity=config.capacity // 2, stack_size=1, action_window=None)
        replay, oracle = reservoir(config, seed=seed), Oracle(replace(config, capacity=10_000))
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed).spawn(2)[1]))
        places: list[int] = []
        for transition in stream:
            replay.observe(transition)
            oracle.observe(transition)
            if len(replay):
                replay.sample(3)  # drawing must not change what is kept
        for seen, slot in enumerate(sorted(oracle.valid())):
            if seen < config.capacity:
                places.append(slot)
            elif (place := int(rng.integers(seen + 1))) < config.capacity:
                places[place] = slot
        assert kept(replay) == set(places)
        assert len(replay) == len(places)
        expected = oracle.valid()
        batch = replay.sample(32) if places else {"index": np.zeros(0, np.int64)}
        for row, index in enumerate(batch["index"].tolist()):
            assert_same_transition(batch, row, expected[index])

    def test_every_transition_so_far_is_kept_equally_often(self) -> None:
        stream, runs, capacity = list(transitions([Episode([0.0] * 41, [1] * 41, "running")])), 250, 10
        counts: Counter[int] = Counter()
        for seed in range(runs):
            replay = reservoir(Config(capacity=capacity), seed=seed)
            for transition in stream:  # 40 of them are complete
                replay.observe(transition)
            assert len(kept(replay)) == capacity
            counts.update(kept(replay))
        mean = runs * capacity / 40
        # A transition is kept or not, so its count is binomial; ten are kept each time, so 39 counts are free.
        statistic = sum((counts[slot] - mean) ** 2 for slot in range(40)) / (mean * (1 - capacity / 40)) * 39 / 40
        assert abs(statistic - 39) < 4 * np.sqrt(2 * 39)

    def test_every_kept_transition_is_drawn_equally_often(self) -> None:
        replay = reservoir(Config(capacity=25))
        for transition in some_stream(episodes=13):
            replay.observe(transition)
        counts = Counter(replay.sample(40_000)["index"].tolist())
        assert counts.keys() == kept(replay)
        mean = 40_000 / 25
        assert abs(sum((count - mean) ** 2 / mean for count in counts.values()) - 24) < 4 * np.sqrt(2 * 24)

    def test_saves_stay_within_a_few_times_the_memory(self, tmp_path: Path) -> None:
        config, shape, space = Config(capacity=100), (32, 32), Box(-(2**15), 2**15 - 1, (32, 32), np.int16)
        replay = reservoir(config, space=space)
        written, listed = [], []
        transition = {**some_stream()[0], "terminal": False, "truncated": False}
        for number in range(40):
            for step in range(50):
                shown = np.full(shape, 50 * number + step, np.int16)
                ended = {"truncated": step == 49, "next_observation": shown}
                replay.observe({**transition, "observation": shown, **ended})
            before = set(tmp_path.iterdir())
            names = replay.save(tmp_path, number)
            written.append(sum(path.stat().st_size for path in set(tmp_path.iterdir()) - before))
            listed.append(sum((tmp_path / name).stat().st_size for name in names))
            resumed = reservoir(config, space=space)
            resumed.load(tmp_path, number)
            assert_same_state(resumed, replay)
        assert max(listed) <= 3.1 * replay.nbytes
        assert np.median(written) <= 0.1 * replay.nbytes  # of 2,000, few of the newest 50 get in

    def test_bytes(self) -> None:
        assert reservoir(Config(), space=Box(0, 255, (84, 84), np.uint8)).nbytes * 1000 == pytest.approx(
            14.2e9, rel=0.01
        )

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"stack_size": 4}, "stack_size must be 1 in a reservoir, where neighbours go missing, got 4"),
            ({"action_window": 4}, "action_window must be None in a reservoir, where neighbours go missing, got 4"),
            ({"capacity": 0}, "capacity must be >= 1 transition, got 0"),
            ({"update_horizon": 0}, "update_horizon must be >= 1 decision, got 0"),
            ({"gamma": -0.1}, r"gamma must lie in \[0, 1\], got -0\.1"),
            ({"batch_size": 0}, "batch_size must be >= 1 transition, got 0"),
            ({"discount_by": "second"}, "discount_by must be 'decision' or 'frame', got 'second'"),
        ],
    )
    def test_wrong_arguments_are_refused(self, arguments: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            create_replay(SPACE, eviction="reservoir", **arguments)

    def test_files_of_a_ring_are_refused(self, tmp_path: Path) -> None:
        create_replay(SPACE, capacity=1000, gamma=0.9).save(tmp_path, 0)
        with pytest.raises(ValueError, match=r"saved replay must be of the same kind, but only one .* eviction"):
            reservoir(Config()).load(tmp_path, 0)


class TestCreateReplay:
    @pytest.mark.parametrize(
        ("arguments", "own_facts", "drawn"),
        [
            ({}, set(), set()),
            ({"eviction": "oldest", "stack_size": 4}, set(), set()),
            (
                {"selector": "prioritized", "priority_exponent": 0.2, "sampling": "iid"},
                {"priority_exponent", "importance_exponent", "sampling"},
                {"probability", "weight"},
            ),
            ({"eviction": "reservoir"}, {"eviction"}, set()),
        ],
    )
    def test_arguments_choose_the_kind(self, arguments: dict[str, Any], own_facts: set[str], drawn: set[str]) -> None:
        replay = create_replay(SPACE, capacity=50, **arguments)
        facts = replay.facts()
        assert (facts["observation_shape"], facts["observation_dtype"], facts["capacity"]) == ([2, 3], "<i2", 50)
        assert facts.items() >= {name: value for name, value in arguments.items() if name in facts}.items()
        common = {"stack_size", "update_horizon", "gamma", "discount_by", "batch_size"}
        assert facts.keys() == {"observation_shape", "observation_dtype", "capacity"} | common | own_facts
        for transition in some_stream():
            replay.observe(transition)
        assert replay.sample().keys() == ReplayContract.batch_keys | drawn

    @pytest.mark.parametrize("arguments", [{}, {"selector": "prioritized"}, {"eviction": "reservoir"}])
    def test_samples_of_a_dict_space_lie_in_it(self, arguments: dict[str, Any]) -> None:
        space = Dict(
            camera=Box(0, 255, (4, 4), np.uint8),
            inner=Dict(delay=Discrete(9, start=3), buttons=MultiBinary(5), modes=MultiDiscrete([2, 3])),
            applied_actions=Box(0.0, 1.0, (3, 6)),
        )
        space.seed(0)
        replay = create_replay(space, capacity=20, update_horizon=2, **arguments)
        for step in range(40):
            ends = step % 6 == 5
            replay.observe(
                {
                    "observation": space.sample(),
                    "action": 0,
                    "reward": 0.0,
                    "interval": 1,
                    "terminal": ends,
                    "truncated": False,
                    "next_observation": space.sample() if ends else None,
                }
            )
        batch = replay.sample(30)
        for name in ("observation", "next_observation"):
            for row in range(30):
                inner = {key: values[row, 0] for key, values in batch[name]["inner"].items()}
                one = {"inner": inner, **{key: batch[name][key][row, 0] for key in ("camera", "applied_actions")}}
                assert space.contains(one)

    def test_wrong_arguments_are_refused(self) -> None:
        space = Box(0, 1, (2,))
        with pytest.raises(ValueError, match="eviction must be 'oldest' or 'reservoir', got 'newest'"):
            create_replay(space, eviction="newest")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="eviction must be 'oldest' where selector='prioritized', got 'reservoir'"):
            create_replay(space, eviction="reservoir", selector="prioritized")
        with pytest.raises(TypeError, match="sampling must not be given where selector='uniform'"):
            create_replay(space, sampling="iid")

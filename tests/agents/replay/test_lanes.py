"""Rings of several environments, blocks of rows, and the priorities that transitions enter with."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box
from hypothesis import given
from hypothesis import strategies as st

from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.learning.making import make_replay
from async_wrappers.agents.replay.replay import Replay, create_replay
from async_wrappers.agents.replay.selectors import Selector
from async_wrappers.agents.spaces.schema import each_array
from tests.contracts.lanes_contract import LanesContract, environments, rounds, seeds
from tests.contracts.replay_contract import (
    SPACE,
    Config,
    Episode,
    Transition,
    block_of,
    configs,
    contract_settings,
    some_stream,
    transitions,
)
from tests.worlds.plain_data import assert_identical


def replay_of(config: Config, num_envs: int, **arguments: Any) -> Replay:
    """A replay with room for `config.capacity` observations of each environment, and for some more in all."""
    return create_replay(
        SPACE,
        extras=config.extras,
        capacity=config.capacity * num_envs + num_envs - 1,
        num_envs=num_envs,
        stack_size=config.stack_size,
        update_horizon=config.update_horizon,
        gamma=config.gamma,
        discount_by=config.discount_by,
        action_window=config.action_window,
        **arguments,
    )


class TestUniformLanes(LanesContract):
    def make_replay(self, config: Config, num_envs: int, *, seed: int = 0) -> Replay:
        return replay_of(config, num_envs, seed=seed)


class TestPrioritizedLanes(LanesContract):
    takes_priorities = True

    def make_replay(self, config: Config, num_envs: int, *, seed: int = 0) -> Replay:
        return replay_of(config, num_envs, selector="prioritized", priority_exponent=0.7, seed=seed)


class Queue(Selector):
    """Keeps positions in the order in which they became valid; refuses a call that contradicts an earlier one."""

    def __init__(self) -> None:
        self.valid: list[int] = []

    def became_valid(self, position: int) -> None:
        assert position not in self.valid
        self.valid.append(position)

    def became_invalid(self, position: int) -> None:
        self.valid.remove(position)


@given(configs, environments, seeds, st.booleans())
@contract_settings
def test_a_selector_that_knows_no_blocks_is_called_as_for_single_rows(
    config: Config, num_envs: int, seed: int, smallest: bool
) -> None:
    config = LanesContract.smallest(config) if smallest else config
    selectors = Queue(), Queue()
    one, other = (replay_of(config, num_envs, selector=lambda each=each: each) for each in selectors)
    for rows in rounds(seed, num_envs):
        for env_id, row in rows.items():
            one.observe(row, env_id)
        other.extend(block_of(rows))
        assert selectors[0].valid == selectors[1].valid


class TestLanes:
    def test_each_environment_has_an_equal_share_of_the_capacity(self) -> None:
        replay = create_replay(SPACE, capacity=11, num_envs=3)
        assert replay.facts()["capacity"] == 9
        stream = list(transitions([Episode([0.0] * 20, [1] * 20, "running")]))
        for transition in stream:
            replay.observe(transition, 1)
        assert replay.valid_slots().tolist() == [3 * slot + 1 for slot in (17, 18)]
        replay.observe(stream[0], 0)
        replay.observe(stream[1], 0)
        assert replay.valid_slots().tolist() == [0, 52, 55]

    @pytest.mark.parametrize("selector", ["uniform", "prioritized"])
    def test_transitions_of_all_environments_are_drawn_equally_often(self, selector: str) -> None:
        replay = create_replay(SPACE, selector=selector, capacity=300, num_envs=3, stack_size=2)
        for transition in some_stream(episodes=14):  # more than a lane holds; another lane stays empty
            replay.observe(transition, 2)
        for transition in some_stream(episodes=4):
            replay.observe(transition, 0)
        slots, draws = replay.valid_slots(), 40_000
        counts = np.bincount(np.searchsorted(slots, replay.sample(draws)["index"]), minlength=len(slots))
        assert len(counts) == len(slots) == len(replay)
        mean, freedom = draws / len(slots), len(slots) - 1
        chi_square = float(((counts - mean) ** 2 / mean).sum())
        assert chi_square - freedom < 4.0 * np.sqrt(2.0 * freedom)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"num_envs": 0}, "num_envs must be >= 1 environment, got 0"),
            (
                {"capacity": 11, "num_envs": 4, "stack_size": 2},
                r"capacity must be >= 12 slots \(\(stack_size \+ update_horizon\) \* num_envs\), got 11",
            ),
            ({"num_envs": 2, "eviction": "reservoir"}, "num_envs must be 1 where eviction='reservoir', got 2"),
            (
                {"compression": "lz4", "eviction": "reservoir"},
                "compression must be None where eviction='reservoir', got",
            ),
            ({"compression": "zip"}, "compression must be 'lz4' or None, got 'zip'"),
        ],
    )
    def test_wrong_arguments_are_refused(self, arguments: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            create_replay(SPACE, **arguments)

    def test_a_reservoir_takes_blocks_of_its_one_environment(self) -> None:
        one, other = (create_replay(SPACE, eviction="reservoir", capacity=10, update_horizon=2) for _ in range(2))
        for transition in some_stream():
            one.observe(transition)
            other.extend(block_of({0: transition}))
        assert one.valid_slots().tolist() == other.valid_slots().tolist()
        with pytest.raises(ValueError, match=r"env_id must lie in \[0, 1\), got 1"):
            one.observe(some_stream()[0], 1)


class TestEnteringPriorities:
    def drawn(self, stream: list[Transition], update_horizon: int = 2) -> dict[int, float]:
        """P(i) of every transition by its index, times the sum of all priorities."""
        replay = create_replay(
            SPACE, selector="prioritized", capacity=100, update_horizon=update_horizon, priority_exponent=1.0
        )
        for transition in stream:
            replay.observe(transition)
        batch = replay.sample(4096)
        share = dict(zip(batch["index"].tolist(), batch["probability"].tolist(), strict=True))
        return {index: round(value / min(share.values()), 6) for index, value in sorted(share.items())}

    def stream(self, *priorities: float | None, end: Literal["terminal", "truncated"] = "terminal") -> list[Transition]:
        """An episode whose decisions come with these priorities."""
        decisions = transitions([Episode([1.0] * len(priorities), [1] * len(priorities), end)])
        return [each | {"priority": priority} for each, priority in zip(decisions, priorities, strict=True)]

    def test_a_decisions_priority_is_that_of_the_transition_which_it_completes(self) -> None:
        # Decisions 2 and 3 complete transitions 0 and 1; those of 2 and 3 have the largest so far.
        assert self.drawn(self.stream(50.0, 70.0, 2.0, 5.0)) == {0: 1.0, 1: 2.5, 2: 2.5, 3: 2.5}

    @pytest.mark.parametrize("end", ["terminal", "truncated"])
    def test_an_end_has_the_priorities_of_the_last_decisions(self, end: Literal["terminal", "truncated"]) -> None:
        stream = self.stream(None, None, 2.0, 4.0, end=end)
        stream[-1]["final_priority"] = [10.0, 6.0]  # of the transitions of one and of two decisions
        assert self.drawn(stream) == {0: 1.0, 1: 2.0, 2: 3.0, 3: 5.0}
        stream[-1]["final_priority"] = [np.nan, 6.0]
        assert self.drawn(stream) == {0: 1.0, 1: 2.0, 2: 3.0, 3: 3.0}

    def test_what_is_given_none_enters_with_the_largest_so_far(self) -> None:
        assert self.drawn(self.stream(None, 0.5, None, 3.0, np.nan), 1) == {0: 1.0, 1: 2.0, 2: 6.0, 3: 6.0, 4: 6.0}

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"priority": -1.0}, "priority must be finite, >= 0 and <= 1e\\+290, got -1.0"),
            ({"priority": np.inf}, "priority must be finite, .* got inf"),
            ({"priority": [1.0]}, r"priority must have shape \(\), got \(1,\)"),
            ({"final_priority": [1.0]}, r"final_priority must have shape \(2,\), got \(1,\)"),
            ({"final_priority": [1.0, -2.0]}, "priority must be finite, .* got -2"),
        ],
    )
    def test_a_wrong_priority_is_refused(self, changes: dict[str, Any], message: str) -> None:
        replay = create_replay(SPACE, selector="prioritized", update_horizon=2, capacity=50)
        transition = self.stream(None)[0] | changes
        with pytest.raises(ValueError, match=message):
            replay.observe(transition)
        block = block_of({0: next(transitions([Episode([1.0], [1], "terminal")]))})
        for name, value in changes.items():
            block[name] = [value] if name == "priority" else {0: value}
        with pytest.raises(ValueError, match="priority"):
            replay.extend(block)
        assert replay.add_count == 0

    def test_a_uniform_replay_refuses_priorities(self) -> None:
        replay = create_replay(SPACE, capacity=50)
        with pytest.raises(ValueError, match="priorities are for a prioritised replay, and this one draws uniformly"):
            replay.observe(self.stream(1.0)[0])
        assert replay.add_count == 0
        replay.observe(self.stream(None)[0])
        assert replay.add_count == 1


class TestPacked:
    """A replay of packed observations is one of plain observations."""

    @pytest.fixture(autouse=True)
    def need_lz4(self) -> None:
        pytest.importorskip("lz4")

    SPACE = gym.spaces.Dict(image=Box(0, 255, (16, 20), np.uint8), speed=Box(-np.inf, np.inf, (), np.float32))

    def replays(self, num_envs: int = 2, **arguments: Any) -> tuple[Replay, Replay]:
        """One of either kind."""
        arguments = {"capacity": 60, "num_envs": num_envs, "stack_size": 3, **arguments}
        return create_replay(self.SPACE, **arguments), create_replay(self.SPACE, compression="lz4", **arguments)

    def shown(self, rng: np.random.Generator, rows: int) -> dict[str, Any]:
        image = np.zeros((rows, 16, 20), np.uint8)
        image[:, 3] = rng.integers(256, size=(rows, 20))
        return {"image": image, "speed": rng.normal(size=rows).astype(np.float32)}

    def block(self, rng: np.random.Generator, num_envs: int) -> dict[str, Any]:
        ended = rng.random(num_envs) < 0.1
        return {
            "env_ids": np.arange(num_envs),
            "observation": self.shown(rng, num_envs),
            "action": rng.integers(4, size=num_envs),
            "reward": rng.normal(size=num_envs),
            "interval": np.ones(num_envs, int),
            "terminal": ended,
            "truncated": np.zeros(num_envs, bool),
            "final": {
                env_id: each_array(lambda array: array[0], self.shown(rng, 1))
                for env_id in np.flatnonzero(ended).tolist()
            },
        }

    def row(self, block: dict[str, Any]) -> Transition:
        """A transition of one environment, which may end its episode."""
        shown = each_array(lambda array: array[0], block["observation"])
        numbers = {"action": 1, "reward": 0.5, "interval": 1, "terminal": False, "truncated": block["action"][0] == 0}
        return {"observation": shown, "next_observation": shown, **numbers}

    @pytest.mark.parametrize("update_horizon", [1, 3])
    def test_same_batches_states_and_files(self, tmp_path: Path, update_horizon: int) -> None:
        plain, packed = self.replays(update_horizon=update_horizon, selector="prioritized")
        rng = np.random.default_rng(0)
        for number in range(80):
            block = self.block(rng, 2)
            for replay in (plain, packed):
                replay.extend(block)
                replay.observe(self.row(block), block["env_ids"][number % 2])
            if len(plain):
                assert_identical(plain.sample(8), packed.sample(8))
                assert_identical(plain.transitions(plain.valid_slots()), packed.transitions(packed.valid_slots()))
            if number % 20 == 15:
                assert_identical(plain.state_dict(), packed.state_dict())
                # Each goes on from the other's files, and then from the other's state.
                plain.save(tmp_path / "plain", number)
                packed.save(tmp_path / "packed", number)
                plain.load(tmp_path / "packed", number)
                packed.load(tmp_path / "plain", number)
                assert_identical(plain.state_dict(), packed.state_dict())
                packed.load_state_dict(plain.state_dict())

    def test_batches_are_the_callers_own(self) -> None:
        packed, rng = self.replays()[1], np.random.default_rng(0)
        for _ in range(5):
            packed.extend(self.block(rng, 2))
        batch = packed.sample(4)
        before = batch["observation"]["image"].copy()
        batch["next_observation"]["image"][:] = 7
        packed.clear()
        assert batch["observation"]["image"].flags.writeable
        assert before.any()

    def test_bytes_follow_what_is_stored_and_small_observations_stay_as_they_are(self) -> None:
        plain, packed = self.replays(capacity=400)
        empty, rng = packed.nbytes, np.random.default_rng(0)
        for _ in range(300):
            packed.extend(self.block(rng, 2))
        assert empty < packed.nbytes < 0.6 * plain.nbytes
        small: dict[str, Any] = {"capacity": 100, "compression": "lz4"}
        assert create_replay(Box(-1, 1, (4,)), **small).nbytes == create_replay(Box(-1, 1, (4,)), capacity=100).nbytes

    def test_an_agents_replay_is_packed_where_its_gin_says_so(self) -> None:
        space = Box(0, 255, (84, 84), np.uint8)
        plain, packed = (
            make_replay(DQN(space, gym.spaces.Discrete(2), replay_compression=each, replay_capacity=100), 0, num_envs=2)
            for each in (None, "lz4")
        )
        assert packed.nbytes < 0.1 * plain.nbytes
        assert plain.num_envs == packed.num_envs == 2

"""A replay of sequences: the newest are kept, drawn by priority, and a saved one goes on bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from async_wrappers.agents.replay.prefetch import PrefetchedReplay
from async_wrappers.agents.replay.replay import Replay
from async_wrappers.agents.replay.sequence_replay import create_sequence_replay
from async_wrappers.agents.spaces.schema import leaves
from tests.contracts.source_contract import SourceContract, lived
from tests.worlds.lived_rows import EXTRAS, SPACE, AtOnce, World
from tests.worlds.plain_data import assert_identical


def make(**arguments: Any) -> Replay:
    defaults = {"num_envs": 2, "length": 5, "period": 3, "capacity": 7, "batch_size": 4, "seed": 5, "gamma": 0.5}
    return create_sequence_replay(SPACE, EXTRAS, **{**defaults, **arguments})


class TestSequences(SourceContract):
    def make_source(self, **arguments: Any) -> Replay:
        return make(**{"num_envs": 3, **arguments})


class TestPrefetchedSequences(SourceContract):
    def make_source(self, **arguments: Any) -> Replay:
        return make(**{"num_envs": 3, "kind": PrefetchedReplay, **arguments})


def test_a_thread_that_draws_ahead_makes_no_difference_and_priorities_are_one_update_late() -> None:
    played: list[Any] = []
    for threaded in (True, False):
        replay, world = make(kind=PrefetchedReplay), World(2, 0)
        if not threaded:
            replay.ahead.executor = AtOnce()  # type: ignore[attr-defined]
        lived(replay, world, 40)
        drawn, kept = [], replay.valid_slots()
        for _ in range(30):
            drawn.append(replay.sample())
            replay.set_priorities(drawn[-1]["index"], np.full(4, 2.0))
            lived(replay, world, 1)
        played.append((drawn, replay.state_dict()))
    assert_identical(*played)
    replay = make(kind=PrefetchedReplay, priority_exponent=1.0)
    lived(replay, World(2, 0), 40)
    kept = replay.valid_slots()
    replay.sample()
    replay.set_priorities(kept, np.where(kept == kept[2], 1.0, 0.0))
    late, then = replay.sample(), replay.sample()
    assert set(late["index"].tolist()) != {kept[2]} and set(then["index"].tolist()) == {kept[2]}
    with pytest.raises(ValueError, match=r"^a replay that draws ahead takes no arguments"):
        replay.sample(8)


def test_a_saved_batch_lies_in_memory_as_it_was_drawn(tmp_path: Path) -> None:
    replay, world = make(kind=PrefetchedReplay), World(2, 0)
    lived(replay, world, 40)
    replay.sample()
    replay.save(tmp_path, 0)
    loaded = make(kind=PrefetchedReplay)
    loaded.load(tmp_path, 0)
    drawn, after = dict(leaves(replay.sample())), dict(leaves(loaded.sample()))
    assert any(not array.flags.c_contiguous for array in drawn.values())
    assert_identical(after, drawn)
    assert {path: array.strides for path, array in after.items()} == {
        path: array.strides for path, array in drawn.items()
    }


def test_the_newest_sequences_are_kept_each_a_period_after_the_one_before() -> None:
    replay, world = make(num_envs=1), World(1, 0)
    assert not replay.drawable
    lived(replay, world, 60)
    whole = (len(world.rows[0]) - 6) // 3 + 1
    assert len(replay) == 7 and replay.add_count == 60
    assert replay.valid_slots().tolist() == list(range(whole - 7, whole))
    batch = replay.transitions(replay.valid_slots())
    first_rows = batch["observation"][0, :, 0].tolist()
    assert first_rows == [world.rows[0][3 * number][0] for number in range(whole - 7, whole)]
    assert batch["index"].tolist() == list(range(whole - 7, whole))


def test_sequences_are_drawn_by_priority_and_a_late_one_is_ignored() -> None:
    replay, world = make(num_envs=1, priority_exponent=1.0), World(1, 0)
    lived(replay, world, 40)
    slots = replay.valid_slots()
    replay.set_priorities(slots, np.where(slots == slots[2], 1.0, 0.0))
    assert set(replay.sample()["index"].tolist()) == {slots[2]}
    lived(replay, world, 40)
    assert slots[2] not in replay.valid_slots()
    replay.set_priorities(slots[:3], np.zeros(3))
    assert len(set(replay.sample(32)["index"].tolist())) > 1
    assert replay.sample()["weight"].shape == (4,)


def test_arguments_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^capacity must be >= 1 sequence, got 0"):
        make(capacity=0)
    with pytest.raises(ValueError, match=r"^period must lie in \[1, 5\] rows, the length of a sequence, got 6"):
        make(period=6)

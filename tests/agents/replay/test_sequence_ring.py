"""A replay of sequences: the newest are kept, drawn by priority, and a saved one goes on bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from async_wrappers.agents.files import DamagedReplay
from async_wrappers.agents.replay.replay import Replay, create_sequence_replay
from tests.agents.replay.test_queue import EXTRAS, SPACE, World
from tests.worlds.plain_data import assert_identical


def make(**arguments: Any) -> Replay:
    defaults = {"num_envs": 2, "length": 5, "period": 3, "capacity": 7, "batch_size": 4, "seed": 5, "gamma": 0.5}
    return create_sequence_replay(SPACE, EXTRAS, **{**defaults, **arguments})


def lived(replay: Replay, world: World, blocks: int) -> None:
    for _ in range(blocks):
        replay.extend(world.block())


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


@pytest.mark.parametrize("by_file", [False, True])
@pytest.mark.parametrize("blocks", [0, 4, 11, 60])
def test_a_restored_replay_goes_on_bit_for_bit(tmp_path: Path, by_file: bool, blocks: int) -> None:
    worlds, replays = [World(2, 3), World(2, 3)], [make(), make()]
    for replay, world in zip(replays, worlds, strict=True):
        for number in range(2):  # the second save writes what is new alone
            lived(replay, world, blocks)
            for env_id in range(2):  # as a checkpoint does
                replay.cut(world.cut(env_id), env_id)
            if replay.drawable:
                drawn = replay.sample()
                replay.set_priorities(drawn["index"], np.arange(1.0, 5.0))
            replay.save(tmp_path / str(id(replay)), number)
    restored = make(seed=9)
    if by_file:
        assert restored.load(tmp_path / str(id(replays[0])), 1) == 0
    else:
        restored.load_state_dict(replays[0].state_dict())
    batches: list[list[Any]] = [[], []]
    for each, replay, world in zip(batches, (restored, replays[1]), worlds, strict=True):
        for _ in range(15):
            lived(replay, world, 1)
            if replay.drawable:
                each.append(replay.sample())
                replay.set_priorities(each[-1]["index"], np.arange(1.0, 5.0))
    assert_identical(*batches)
    assert_identical(restored.state_dict(), replays[1].state_dict())


def test_a_damaged_file_costs_its_own_sequences(tmp_path: Path) -> None:
    replay, world = make(capacity=40), World(2, 3)
    for number in range(2):
        lived(replay, world, 30)
        names = replay.save(tmp_path, number)
    kept = replay.valid_slots()
    first = next(name for name in names if name.startswith("segment"))
    (tmp_path / first).write_bytes(b"torn")
    with pytest.raises(DamagedReplay):
        make(capacity=40).load(tmp_path, 1)
    restored = make(capacity=40)
    lost = restored.load(tmp_path, 1, partial=True)
    assert 0 < lost < len(kept)
    assert restored.valid_slots().tolist() == kept[lost:].tolist()
    assert set(restored.sample(50)["index"].tolist()) <= set(kept[lost:].tolist())


def test_arguments_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^capacity must be >= 1 sequence, got 0"):
        make(capacity=0)
    with pytest.raises(ValueError, match=r"^period must lie in \[1, 5\] rows, the length of a sequence, got 6"):
        make(period=6)

"""What every source of sequences keeps: subclass `SourceContract` and give it `make_source`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.worlds.lived_rows import World
from tests.worlds.plain_data import assert_identical


def lived(source: Any, world: World, blocks: int) -> None:
    """Let a source observe so many blocks."""
    for _ in range(blocks):
        source.extend(world.block())


class SourceContract:
    """Tests of one source, which observes 3 environments and may drop nothing of some dozens of steps."""

    def make_source(self, **arguments: Any) -> Any:
        """Make the source; of the arguments of `Assembly` it takes ``gamma``."""
        raise NotImplementedError

    def learn(self, source: Any) -> dict[str, Any]:
        """Draw a batch, and do what a learner does with it."""
        batch: dict[str, Any] = source.sample()
        if "weight" in batch:
            source.set_priorities(batch["index"], np.arange(1.0, len(batch["index"]) + 1))
        return batch

    def test_a_batch_is_rows_time_first(self) -> None:
        source, world = self.make_source(gamma=0.5), World(3, 0)
        assert not source.drawable
        lived(source, world, 40)
        batch = self.learn(source)
        steps, count = batch["mask"].shape
        for name in ("action", "reward", "discount"):
            assert batch[name].shape == (steps, count), name
        for name in ("previous_action", "previous_reward", "first"):
            assert batch[name].shape == (steps + 1, count), name
        assert batch["extras"]["logits"].shape == (steps, count, 2) and batch["state"].shape == (count, 3)
        assert len(batch["observation"]) >= steps + 1 and batch["observation"].shape[1:] == (count, 2)
        decided = batch["mask"] > 0
        assert (batch["discount"][~decided] == 0).all() and (batch["reward"][~decided] == 0).all()
        assert set(batch["discount"][decided].tolist()) <= {0.0, 0.5}
        assert (
            batch["first"][1:] == ~decided
        ).all()  # a row is an episode's first where the one before was a final one
        assert (batch["previous_action"][batch["first"]] == -1).all()
        follows = ~batch["first"][1:]
        assert (batch["previous_action"][1:][follows] == batch["action"][follows]).all()

    @pytest.mark.parametrize("by_file", [False, True])
    @pytest.mark.parametrize("blocks", [0, 3, 11, 25])
    def test_a_restored_source_goes_on_bit_for_bit(self, tmp_path: Path, by_file: bool, blocks: int) -> None:
        worlds, sources = [World(3, 3), World(3, 3)], [self.make_source(), self.make_source()]
        for source, world, name in zip(sources, worlds, ("one", "other"), strict=True):
            for number in range(2):  # the second save may write what is new alone
                lived(source, world, blocks)
                for env_id in range(3):  # as a checkpoint does
                    source.cut(world.cut(env_id), env_id)
                if source.drawable:
                    self.learn(source)
                source.save(tmp_path / name, number)
        restored = self.make_source()
        if by_file:
            restored.load(tmp_path / "one", 1)
        else:
            restored.load_state_dict(sources[0].state_dict())
        batches: list[list[Any]] = [[], []]
        for drawn, source, world in zip(batches, (restored, sources[1]), worlds, strict=True):
            for _ in range(20):
                lived(source, world, 1)
                if source.drawable:
                    drawn.append(self.learn(source))
        assert batches[0]
        assert_identical(*batches)
        assert_identical(restored.state_dict(), sources[1].state_dict())

    def test_other_arguments_than_the_saved_ones_are_named(self, tmp_path: Path) -> None:
        self.make_source().save(tmp_path, 0)
        with pytest.raises(ValueError, match=r"^gamma must be as in the saved"):
            self.make_source(gamma=0.25).load(tmp_path, 0)

    def test_files_that_no_save_needs_are_deleted(self, tmp_path: Path) -> None:
        source, world = self.make_source(), World(3, 0)
        for number in range(3):
            lived(source, world, 5)
            names = source.save(tmp_path, number)
        source.prune(tmp_path, {2})
        restored = self.make_source()
        restored.load(tmp_path, 2)
        assert restored.add_count == source.add_count
        assert {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")} >= set(names)
        assert len(list(tmp_path.glob("index_*.json"))) == 1

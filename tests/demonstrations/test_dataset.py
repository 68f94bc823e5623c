"""Datasets are those of Minari, appear whole, and keep what had ended."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

from agents.demonstrations.dataset import DatasetWriter
from agents.demonstrations.demonstration import Demonstration, read_demonstrations

try:
    import h5py  # noqa: F401
    import minari
except ImportError:
    minari = None

with_minari = pytest.mark.skipif(minari is None, reason="Minari is not installed: pip install 'minari[hdf5]'")
IMAGES = Box(0, 255, (40, 40), np.uint8)  # of a size that Minari would write as JPEG
ACTIONS = Discrete(3)


def episode(frames: int = 3, seed: int = 0, terminated: bool = True) -> Demonstration:
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (frames + 1, 40, 40), np.uint8)
    return Demonstration(images, rng.integers(0, 3, frames), rng.normal(size=frames), terminated, seed)


def alike(first: Demonstration, second: Demonstration) -> bool:
    return first.terminated == second.terminated and all(
        np.array_equal(getattr(first, name), getattr(second, name)) for name in ("observations", "actions", "rewards")
    )


def hidden(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir() if path.name.startswith(".")]


@with_minari
class TestWriting:
    def test_what_is_written_is_read_again_to_the_bit(self, tmp_path: Path) -> None:
        episodes = [episode(3, 0), episode(1, 1, terminated=False)]
        with DatasetWriter(str(tmp_path / "shown"), IMAGES, ACTIONS) as writer:
            for each in episodes:
                writer.add(each)
        assert (writer.episodes, writer.frames) == (2, 4)
        for source in (tmp_path / "shown", tmp_path / "shown" / "data"):
            read = list(read_demonstrations(str(source)))
            assert len(read) == 2
            assert all(map(alike, read, episodes))

    def test_an_id_is_kept_where_minari_finds_it(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
        with DatasetWriter("blocks/human-v0", IMAGES, ACTIONS, player="human") as writer:
            writer.add(episode())
        dataset = minari.load_dataset("blocks/human-v0")
        assert (dataset.total_episodes, dataset.total_steps) == (1, 3)
        assert (dataset.observation_space, dataset.action_space) == (IMAGES, ACTIONS)
        assert [len(each) for each in read_demonstrations("blocks/human-v0")] == [3]
        assert writer.path == tmp_path / "blocks" / "human-v0"

    def test_nothing_is_there_before_the_end(self, tmp_path: Path) -> None:
        with DatasetWriter(str(tmp_path / "shown"), IMAGES, ACTIONS) as writer:
            writer.add(episode())
            assert not (tmp_path / "shown").exists()
        assert (tmp_path / "shown").exists()
        assert not hidden(tmp_path)

    @pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
    def test_an_interruption_keeps_the_finished_episodes(self, tmp_path: Path, error: type[BaseException]) -> None:
        with pytest.raises(error), DatasetWriter(str(tmp_path / "shown"), IMAGES, ACTIONS) as writer:
            writer.add(episode(seed=4))
            raise error
        (read,) = read_demonstrations(str(tmp_path / "shown"))
        assert alike(read, episode(seed=4))
        assert not hidden(tmp_path)

    def test_without_an_episode_nothing_appears(self, tmp_path: Path) -> None:
        with DatasetWriter(str(tmp_path / "shown"), IMAGES, ACTIONS):
            pass
        assert not list(tmp_path.iterdir())

    def test_nothing_is_ever_written_over(self, tmp_path: Path) -> None:
        (tmp_path / "mine").mkdir()
        with pytest.raises(ValueError, match="must be a new one"):
            DatasetWriter(str(tmp_path / "mine"), IMAGES, ACTIONS)

    def test_a_directory_that_cannot_be_written_is_one_sentence(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(ValueError, match=r"cannot be written to .*Not a directory.*: choose another directory"):
            DatasetWriter(str(tmp_path / "file" / "shown"), IMAGES, ACTIONS)

    def test_a_dict_of_observations_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="must be arrays to be recorded"):
            DatasetWriter(str(tmp_path / "shown"), Dict(a=IMAGES), ACTIONS)

    def test_the_environment_can_be_made_again_from_the_dataset(self, tmp_path: Path) -> None:
        env = gym.make("CartPole-v1")
        shown = Demonstration(np.zeros((2, 4), np.float32), np.zeros(1, np.int64), np.ones(1), True)
        with DatasetWriter(str(tmp_path / "a"), env.observation_space, env.action_space, spec=env.spec) as writer:
            writer.add(shown)
        assert minari.MinariDataset(tmp_path / "a" / "data").recover_environment().spec.id == "CartPole-v1"


@with_minari
class TestReading:
    def test_a_damaged_dataset_is_one_sentence(self, tmp_path: Path) -> None:
        with DatasetWriter(str(tmp_path / "shown"), IMAGES, ACTIONS) as writer:
            writer.add(episode())
        (tmp_path / "shown" / "data" / "main_data.hdf5").write_bytes(b"torn")
        with pytest.raises(ValueError, match=r"dataset '.*shown' in .* cannot be read"):
            list(read_demonstrations(str(tmp_path / "shown")))

    def test_an_id_that_is_nowhere_is_one_sentence(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
        with pytest.raises(ValueError, match="'nobody/nothing-v3' must be a Minari dataset"):
            list(read_demonstrations("nobody/nothing-v3"))


def test_a_path_that_is_nowhere_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"there is no .*metadata\.json: record one, or name another"):
        list(read_demonstrations(str(tmp_path / "nothing")))


@pytest.mark.parametrize("missing", ["minari", "h5py"])
def test_without_minari_one_sentence_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    (tmp_path / "metadata.json").write_text("{}")
    monkeypatch.setitem(sys.modules, missing, None)
    calls: list[Any] = [
        lambda: list(read_demonstrations(str(tmp_path))),
        lambda: DatasetWriter(str(tmp_path / "new"), IMAGES, ACTIONS),
    ]
    for call in calls:
        with pytest.raises(gym.error.DependencyNotInstalled, match=r"pip install -e '\.\[minari\]' -c constraints.txt"):
            call()

"""Datasets are those of Minari, appear whole, and keep what had ended."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

from async_wrappers.agents.demonstrations.dataset import DatasetWriter, read_demonstrations
from async_wrappers.agents.demonstrations.demonstration import Demonstration

try:
    import h5py
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

    def test_a_name_is_the_place_that_it_leads_to(self, tmp_path: Path) -> None:
        (tmp_path / "mine").mkdir()
        with pytest.raises(ValueError, match=rf"must be a new one, but {tmp_path}/mine exists"):
            DatasetWriter(str(tmp_path / "missing" / ".." / "mine"), IMAGES, ACTIONS)
        assert [path.name for path in tmp_path.iterdir()] == ["mine"]

    def test_the_later_of_two_writers_of_one_name_says_where_its_episodes_are(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"cannot be named .*shown any more \(.*\): it is in (.*)$") as caught:  # noqa: SIM117
            with DatasetWriter(str(tmp_path / "shown"), IMAGES, ACTIONS) as writer:
                writer.add(episode(seed=1))
                (tmp_path / "shown").mkdir()
                (tmp_path / "shown" / "theirs").touch()
        (read,) = read_demonstrations(str(caught.value).rpartition(" is in ")[2])
        assert alike(read, episode(seed=1))
        assert not hidden(tmp_path)

    def test_a_type_that_minari_does_not_keep_is_one_sentence_and_leaves_nothing(self, tmp_path: Path) -> None:
        long = Box(-1, 1, (2,), np.longdouble)
        with pytest.raises(ValueError, match=r"cannot hold observations of .*longdouble.* JSON .*: choose types that"):
            DatasetWriter(str(tmp_path / "shown"), long, ACTIONS)
        assert not list(tmp_path.iterdir())

    def test_a_full_disk_is_noticed_before_hdf5_and_keeps_the_episodes(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """HDF5 would end the process, and leave a file that it cannot read."""
        with pytest.raises(OSError, match="No space left on device") as caught:  # noqa: SIM117
            with DatasetWriter(str(tmp_path / "shown"), IMAGES, ACTIONS) as writer:
                writer.add(episode(seed=2))
                monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1_000_000))
                writer.add(episode(seed=3))
        assert str(tmp_path) in str(caught.value.filename)
        (read,) = read_demonstrations(str(tmp_path / "shown"))
        assert alike(read, episode(seed=2))
        assert not hidden(tmp_path)

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

    @pytest.mark.parametrize("length", [0, 1, 8, 100, 0.5, -1])
    def test_a_file_that_was_cut_is_one_sentence(self, tmp_path: Path, length: float) -> None:
        path = self.written(tmp_path)
        whole = path.read_bytes()
        path.write_bytes(whole[: int(length * len(whole)) if isinstance(length, float) else length])
        assert "truncated" in self.refused(tmp_path) or "signature" in self.refused(tmp_path) or length == 8

    @pytest.mark.parametrize("text", ["", "x", "[]", "null", "3", "{}", '{"total_episodes": []}'])
    def test_metadata_that_are_none_are_one_sentence(self, tmp_path: Path, text: str) -> None:
        self.written(tmp_path).with_name("metadata.json").write_text(text)
        self.refused(tmp_path)

    @pytest.mark.parametrize("key", ["total_episodes", "data_format", "dataset_id", "minari_version", "action_space"])
    @pytest.mark.parametrize("value", [None, "x", [], {}])
    def test_metadata_of_other_kinds_are_one_sentence_or_read(self, tmp_path: Path, key: str, value: Any) -> None:
        path = self.written(tmp_path).with_name("metadata.json")
        path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
        if (key, value) == ("dataset_id", "x"):
            assert len(list(read_demonstrations(str(tmp_path / "shown")))) == 1
        else:
            self.refused(tmp_path)

    @pytest.mark.parametrize(
        ("name", "values", "said"),
        [
            ("rewards", np.zeros(1), "rewards of shape [1]"),
            ("rewards", np.zeros((3, 2)), "rewards of shape [3, 2]"),
            ("rewards", None, "rewards"),
            ("terminations", np.zeros(0, bool), "0 ends"),
            ("observations", np.zeros((2, 40, 40), np.uint8), "2 observations"),
            ("observations", np.uint8(3), "no arrays"),
            ("actions", np.zeros(2), "2 actions"),
        ],
    )
    def test_an_episode_whose_parts_do_not_belong_together_is_one_sentence(
        self, tmp_path: Path, name: str, values: Any, said: str
    ) -> None:
        with h5py.File(self.written(tmp_path), "a") as file:
            del file[f"episode_0/{name}"]
            if values is not None:
                file[f"episode_0/{name}"] = values
        assert said in self.refused(tmp_path)

    def test_flipped_bits_are_one_sentence_or_read(self, tmp_path: Path) -> None:
        path = self.written(tmp_path)
        whole, rng = path.read_bytes(), np.random.default_rng(0)
        for _ in range(60):
            bits = bytearray(whole)
            for position in rng.integers(len(bits), size=3):
                bits[position] ^= 1 << int(rng.integers(8))
            path.write_bytes(bits)
            with suppress(ValueError):
                list(read_demonstrations(str(tmp_path / "shown")))

    def test_an_hdf5_file_by_itself_says_what_to_name(self, tmp_path: Path) -> None:
        path = self.written(tmp_path)
        with pytest.raises(ValueError, match=r"is an HDF5 file, not a pickle .*: name the directory of a Minari"):
            list(read_demonstrations(str(path)))

    @staticmethod
    def written(tmp_path: Path) -> Path:
        with DatasetWriter(str(tmp_path / "shown"), IMAGES, ACTIONS) as writer:
            writer.add(episode())
        return tmp_path / "shown" / "data" / "main_data.hdf5"

    @staticmethod
    def refused(tmp_path: Path) -> str:
        with pytest.raises(ValueError, match=r"dataset '.*shown' in .* cannot be read \(") as caught:
            list(read_demonstrations(str(tmp_path / "shown")))
        message = str(caught.value)
        assert "\n" not in message
        assert message.endswith("): record or download it anew, or name another")
        return message

    def test_an_id_that_is_nowhere_is_one_sentence(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
        with pytest.raises(ValueError, match="'nobody/nothing-v3' must be a Minari dataset"):
            list(read_demonstrations("nobody/nothing-v3"))


def test_a_path_that_is_nowhere_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"there is no .*metadata\.json: record one, or name another"):
        list(read_demonstrations(str(tmp_path / "nothing")))

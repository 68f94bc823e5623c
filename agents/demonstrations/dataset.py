"""The storage of demonstrations: Minari datasets (https://minari.farama.org), which others read too, and pickles.

`DatasetWriter` adds one episode at a time to a Minari storage in a directory of the user's choice, and shows it
only when the recording has ended. `minari.create_dataset_from_buffers` cannot do this: it wants all episodes in memory
at once (a Game Boy's screen takes 83 MB a minute), and writes below MINARI_DATASETS_PATH alone, where a write that is
interrupted leaves half a dataset. `minari.DataCollector` records an environment's own steps, and cannot write the
episodes of a pickle. So the writer uses the class that both are made of, `minari.dataset.minari_storage.MinariStorage`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from absl import logging

from async_wrappers.agents.demonstrations.demonstration import Demonstration
from async_wrappers.extras import extra
from async_wrappers.files import NewDirectory, need_room, path_of

# Names of Minari's layout.
_DATA, _METADATA = "data", "metadata.json"
# What to do with observations that are not arrays.
FLATTEN = (
    "flatten them inside RealtimeDelay, in gin create_gym_environment.wrappers = [@FlattenObservation, @RealtimeDelay]"
)
_HDF5 = b"\x89HDF\r\n\x1a\n"


class DatasetWriter:
    """Writes episodes into a new dataset, which appears when the `with` block is left, also by an error or Ctrl-C.

    Until then the episodes lie in a hidden directory beside it. Without a single episode nothing appears.

    Args:
        target: An id such as ``"falling_blocks/human-v0"``, kept where Minari keeps its datasets, or a directory,
            ``"./demonstrations"``. An id ends in -v and a number.
        observation_space: A space of arrays.
        action_space: A space of arrays or numbers.
        spec: Specification of the environment, with which Minari can make it again; None if there is none.
        player: Who plays, for the dataset's description.

    Attributes:
        path: The directory of the dataset.
        episodes: Number of episodes written.
        frames: Number of frames written.

    Raises:
        ValueError: The name is taken, the directory cannot be written, observations are no arrays, or of a type that
            Minari does not keep.
        gymnasium.error.DependencyNotInstalled: Minari is missing.
    """

    def __init__(
        self,
        target: str,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        spec: Any = None,
        player: str = "unknown",
    ) -> None:
        minari = _minari()
        if observation_space.shape is None:
            raise ValueError(f"observations must be arrays to be recorded, got {observation_space}: {FLATTEN}")
        self._directory = NewDirectory(f"dataset {target!r}", _directory(target))
        self.path = self._directory.path
        name = target if _is_id(target) else f"{re.sub(r'[^-_a-zA-Z0-9]', '_', self.path.name)}-v0"
        facts = {"dataset_id": name, "minari_version": minari.__version__, "algorithm_name": player}
        new, place = minari.dataset.minari_storage.MinariStorage.new, self._directory.temporary / _DATA
        try:
            # JPEG would change the pictures.
            self._storage = new(place, observation_space, action_space, env_spec=_written(spec), jpeg_encoding=False)
            self._storage.update_metadata(facts)
        except BaseException as error:
            self._directory.drop()
            if isinstance(error, OSError) or not isinstance(error, Exception):
                raise
            raise ValueError(
                f"dataset {target!r} cannot hold observations of {observation_space} and actions of {action_space} "
                f"({str(error).partition(chr(10))[0]}): choose types that Minari keeps"
            ) from None
        self.episodes = self.frames = 0
        self._delays: list[int] = []

    def note_delay(self, delay: int) -> None:
        """Note the delay of a decision behind recorded frames; those of all are in the dataset's metadata."""
        self._delays.append(delay)

    def add(self, demonstration: Demonstration) -> None:
        """Write an episode.

        Raises:
            OSError: The disk has no room for it.
        """
        from minari.data_collector import EpisodeBuffer

        need_room(self._directory.temporary, demonstration.observations.nbytes + demonstration.actions.nbytes)
        before = [False] * (len(demonstration) - 1)
        episode = EpisodeBuffer(
            id=self.episodes,
            seed=demonstration.seed,
            observations=list(demonstration.observations),
            actions=list(demonstration.actions),
            rewards=list(demonstration.rewards),
            terminations=[*before, demonstration.terminated],
            truncations=[*before, not demonstration.terminated],
        )
        self._storage.update_episodes([episode])
        self.episodes += 1
        self.frames += len(demonstration)

    def __enter__(self) -> DatasetWriter:
        """Begin."""
        return self

    def __exit__(self, *error: object) -> None:
        """Show the dataset, with the episodes that have been added."""
        if not self.episodes:
            self._directory.drop()
            return
        try:
            if self._delays:
                need_room(self._directory.temporary, 0)
                median, least, most = float(np.median(self._delays)), min(self._delays), max(self._delays)
                self._storage.update_metadata({"delay_frames": {"median": median, "least": least, "most": most}})
        finally:
            self._directory.show()


def read_demonstrations(source: str) -> Iterator[Demonstration]:
    """Yield the episodes of a source, one after the other.

    Args:
        source: A directory or an id of a Minari dataset, or a file (a pickle of the published layout: see
            `async_wrappers.agents.demonstrations.pickled`).

    Raises:
        ValueError: There is no such source, or it cannot be read, or it holds something else.
        gymnasium.error.DependencyNotInstalled: It is a Minari dataset, and Minari is missing.
    """
    source = os.path.expanduser(source)
    if not os.path.isfile(source):
        yield from _read_dataset(source)
        return
    with open(source, "rb") as file:
        if file.read(len(_HDF5)) == _HDF5:
            raise ValueError(
                f"{source} is an HDF5 file, not a pickle of demonstrations: name the directory of a Minari "
                "dataset, in which such a file lies beside its metadata.json"
            )
    # Only one paper's files are pickles.
    from async_wrappers.agents.demonstrations.pickled import read_pickle

    yield from read_pickle(path_of(source))


def recorded_delay(source: str) -> dict[str, float] | None:
    """Return the delay that a dataset was recorded under: ``median``, ``least`` and ``most``, in frames.

    None where the source does not tell, as one that a person has played without delay.
    """
    source = os.path.expanduser(source)
    place = None if os.path.isfile(source) else _place(source)
    if place is None:
        return None
    try:
        told = json.loads((place / _METADATA).read_text(encoding="utf-8"))["delay_frames"]
        return {name: float(told[name]) for name in ("median", "least", "most")}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _place(source: str) -> Path | None:
    """Return the directory of a dataset's files; None if there is none."""
    return next((path for path in _places(source) if os.path.isfile(path / _METADATA)), None)


def _read_dataset(source: str) -> Iterator[Demonstration]:
    if _is_id(source):
        _minari()
    path = _place(source)
    if path is None:
        raise ValueError(
            f"{source!r} must be a Minari dataset (a directory, or an id that ends in -v and a number) or a pickle of "
            f"demonstrations, but there is no {_places(source)[0] / _METADATA}: record one, or name another"
        )
    minari = _minari()
    try:
        for number, episode in enumerate(minari.MinariDataset(path).iterate_episodes()):
            yield _demonstration(number, episode)
    # From a damaged dataset, Minari and HDF5 raise errors of any type.
    except Exception as error:
        reason = (str(error).strip().splitlines() or ["it is not laid out as Minari's are"])[0]
        kind = "" if isinstance(error, ValueError | OSError) else f"{type(error).__name__}: "
        raise ValueError(
            f"dataset {source!r} in {path} cannot be read ({kind}{reason}): record or download it anew, or name another"
        ) from None


def _demonstration(number: int, episode: Any) -> Demonstration:
    """Return an episode of Minari's, if its arrays have lengths that fit each other."""
    if not all(isinstance(each, np.ndarray) for each in (episode.observations, episode.actions)):
        raise ValueError("its observations or actions are no arrays")
    rewards = np.asarray(episode.rewards, np.float64)
    lengths = [len(episode.observations) - 1, len(episode.actions), len(rewards), len(episode.terminations)]
    if rewards.ndim != 1 or len(set(lengths)) > 1 or not len(rewards):
        raise ValueError(
            f"episode {number} must have a frame or more, with an action, a reward and an end for each and one "
            f"observation more, got {lengths[1]} actions, rewards of shape {list(rewards.shape)}, {lengths[3]} ends "
            f"and {lengths[0] + 1} observations"
        )
    return Demonstration(episode.observations, episode.actions, rewards, bool(episode.terminations[-1]))


def _minari() -> Any:
    with extra("a dataset of demonstrations", "minari"):
        import h5py  # noqa: F401
        import minari
    return minari


def _is_id(target: str) -> bool:
    return re.fullmatch(r"[-_\w][-_\w/]*-v\d+", target) is not None


def _directory(target: str) -> Path:
    """Return the directory of a dataset."""
    if not _is_id(target):
        return path_of(target).absolute()
    from minari.storage.datasets_root_dir import get_dataset_path

    return Path(get_dataset_path(target)).absolute()


def _places(source: str) -> list[Path]:
    """Return the directories in which a dataset's files may lie."""
    named = [_directory(source), path_of(source).absolute()]
    return [place for path in named for place in (path / _DATA, path)]


def _written(spec: Any) -> Any:
    """Return a spec if Minari can write it, which it cannot if there are functions in it; else None."""
    try:
        spec.to_json()
    except Exception as error:
        logging.debug("the dataset is written without the specification of its environment: %s", error)
        return None
    return spec

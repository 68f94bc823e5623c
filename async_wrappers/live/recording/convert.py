"""Recordings as datasets that others train on: Minari's, and LeRobot's by LeRobot's own library; and LeRobot's as ours.

Either library is imported when it is asked for, and neither is needed on the robot, where NumPy writes a recording.
LeRobot wants an environment of its own (other versions of Python, PyTorch and NumPy than ours), in which the core of
async_wrappers installs too: run ``python -m async_wrappers convert`` there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from async_wrappers.extras import extra
from async_wrappers.files import NewDirectory, need_room, path_of
from async_wrappers.live.recording.frame_rows import RowLayout
from async_wrappers.live.recording.reader import COLUMNS, Episode, Recording, load_recording
from async_wrappers.live.recording.recording_files import EpisodeFiles
from async_wrappers.schedule.frames import as_fraction

Array = npt.NDArray[Any]


class Converted(NamedTuple):
    """What was written.

    Attributes:
        path: The directory of the dataset.
        episodes: How many.
        frames: Of all episodes.
    """

    path: Path
    episodes: int
    frames: int


def to_minari(directory: str | Path, target: str) -> Converted:
    """Write a recording as a Minari dataset.

    The actions are those that were sent. The other columns, and the actions that were drawn, are the episodes' infos,
    whose first row belongs to the reset, as Minari has it. The dataset's metadata have the delay under which the
    recording was made (``delay_frames``: median, least and most), with which a pretraining compares its own. A slash in
    the name of an entry, which Minari could not read, becomes a dot. What was written is read back before it gets its
    name.

    Args:
        directory: Of the recording.
        target: An id such as ``"arm/recorded-v0"``, kept where Minari keeps its datasets, or a directory; a new one.

    Raises:
        ValueError: There is no recording, it is damaged, it has no frames, it is one of a dry run, two of its entries
            have one name there, the dataset exists, or Minari cannot write it or read it back.
        gymnasium.error.DependencyNotInstalled: Minari is missing.
    """
    recording = _checked(load_recording(directory))
    with extra("a Minari dataset", "minari"):
        import h5py  # noqa: F401
        import minari
        from minari.data_collector import EpisodeBuffer
    path, name = _minari_place(target)
    spaces_of_it = _without_slashes(recording.observation_space), _without_slashes(recording.action_space)
    output = f"output {str(path)!r}"
    with NewDirectory(output, path) as made, _in_a_sentence(f"{output} is not written, as Minari fails"):
        new, place = minari.dataset.minari_storage.MinariStorage.new, made.temporary / "data"
        # JPEG would change the pictures.
        storage = new(place, *spaces_of_it, jpeg_encoding=False)
        facts = {"dataset_id": name, "minari_version": minari.__version__, "algorithm_name": "AsyncRunner"}
        storage.update_metadata({**facts, "fps": float(recording.fps), "delay_frames": _delay(recording)})
        for number, episode in enumerate(recording):
            need_room(place, _bytes_of(buffer := _buffer(episode)))
            storage.update_episodes([EpisodeBuffer(id=number, **buffer)])
        found = minari.MinariDataset(place)
        for episode, read in zip(recording, found.iterate_episodes(), strict=True):
            for part, written in _buffer(episode).items():
                if not _same(written, getattr(read, part)):
                    raise ValueError(f"it reads other {part} than it was given")
    return Converted(path, len(recording), sum(map(len, recording)))


def _buffer(episode: Episode) -> dict[str, Any]:
    """Return what Minari keeps of an episode, by Minari's names."""
    cut = np.zeros(len(episode), np.bool_)
    last = cut.copy()
    last[-1] = True
    return {
        "observations": _mapped(np.asarray, episode.observations),
        "actions": _mapped(np.asarray, episode.sent),
        "rewards": episode.rewards,
        "terminations": last if episode.terminated else cut,
        "truncations": cut if episode.terminated else last,
        "infos": _infos(episode),
    }


def _bytes_of(values: Any) -> int:
    """Return the bytes of arrays in dicts and tuples."""
    if isinstance(values, Mapping | tuple):
        return sum(map(_bytes_of, values.values() if isinstance(values, Mapping) else values))
    return int(values.nbytes)


def _same(one: Any, other: Any) -> bool:
    """Return whether two dicts or tuples of arrays, or arrays, are the same."""
    if isinstance(one, Mapping):
        return isinstance(other, Mapping) and one.keys() == other.keys() and all(_same(one[k], other[k]) for k in one)
    if isinstance(one, tuple):  # Minari gives a tuple of infos back as a dict
        there = tuple(other[f"_index_{place}"] for place in range(len(other))) if isinstance(other, Mapping) else other
        return isinstance(there, tuple) and len(one) == len(there) and all(map(_same, one, there))
    return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


def _without_slashes(space: gym.Space[Any]) -> gym.Space[Any]:
    """Return a space with the names that its entries have in a Minari dataset, where a slash would begin a group."""
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([_without_slashes(each) for each in space.spaces])
    if not isinstance(space, spaces.Dict):
        return space
    named: dict[str, Any] = {}
    for key in space.spaces:
        if (other := named.setdefault(_dotted(key), key)) != key:
            raise ValueError(
                f"the entries {other!r} and {key!r} are both {_dotted(key)!r} in Minari: rename one of them"
            )
    return spaces.Dict([(_dotted(key), _without_slashes(each)) for key, each in space.spaces.items()])


def _dotted(key: Any) -> str:
    return str(key).replace("/", ".")


def _delay(recording: Recording) -> dict[str, float] | None:
    delays = recording.delays()
    if not len(delays):
        return None
    return {"median": float(np.median(delays)), "least": int(delays.min()), "most": int(delays.max())}


def _infos(episode: Episode) -> dict[str, Any]:
    """Return the columns, and the actions that were drawn, with a row before them for the reset."""
    columns = {name: _after(-1 if name in _NONE else 0, values) for name, values in episode.columns.items()}
    return {**columns, "drawn": _mapped(partial(_after, 0), episode.drawn)}


_NONE = ("frame", "start", "delay", "lag")  # -1 where there is none


def _after(first: int, values: Array) -> Array:
    return np.concatenate([np.full_like(values[:1], first), values])


def _mapped(function: Callable[[Array], Any], values: Any) -> Any:
    """Apply a function to each array of a dict or tuple of arrays, whose keys get the names that Minari can read."""
    if isinstance(values, Mapping):
        return {_dotted(key): _mapped(function, each) for key, each in values.items()}
    if isinstance(values, tuple):
        return tuple(_mapped(function, each) for each in values)
    return function(values)


def _minari_place(target: str) -> tuple[Path, str]:
    """Return the directory of a dataset and its id."""
    if re.fullmatch(r"[-_\w][-_\w/]*-v\d+", target) is None:
        path = path_of(target).absolute()
        return path, f"{re.sub(r'[^-_a-zA-Z0-9]', '_', path.name)}-v0"
    from minari.storage.datasets_root_dir import get_dataset_path

    return Path(get_dataset_path(target)).absolute(), target


def _checked(recording: Recording) -> Recording:
    if not len(recording):
        raise ValueError(f"{str(recording.directory)!r} must have an episode with a frame, but nothing was recorded")
    if recording.facts.get("dry_run", False):
        raise ValueError(
            f"{str(recording.directory)!r} must be a recording of actions that were sent, but it is one of a dry run, "
            "whose actions had no effect: record a run without dry_run"
        )
    for _ in recording:  # a damaged episode is refused here, before anything is written
        pass
    return recording


@contextmanager
def _in_a_sentence(what: str) -> Iterator[None]:
    """Turn an error of another library, which may be of any type and several lines, into one sentence."""
    try:
        yield
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{what} ({reason})") from error


# LeRobot. A frame of its datasets is a dict of arrays by the names of features, with a task in words.

_WHOLE = {"frame", "deadline", "lateness", "start", "delay", "lag"}
_FLAGS = {"chunk", "default", "fresh", "late", "limited", "paused"}
_OURS = "realtime."  # before the names of our columns
_STATE, _PICTURES = "observation.state", "observation.images."


def _lerobot() -> Any:
    try:
        try:
            from lerobot.datasets import LeRobotDataset
        except ImportError:  # lerobot <= 0.5
            from lerobot.datasets.lerobot_dataset import LeRobotDataset
    except ImportError as error:
        raise gym.error.DependencyNotInstalled(
            f"a LeRobot dataset needs LeRobot's own environment ({error}): there `pip install 'lerobot[dataset]' "
            "async-wrappers`, and run the same command with its python"
        ) from None
    return LeRobotDataset


class _Leaf(NamedTuple):
    """An array of an observation or action as a feature of LeRobot's."""

    path: tuple[Any, ...]  # keys or numbers down to it
    shape: tuple[int, ...]
    dtype: str  # "video", or NumPy's name

    def read(self, values: Any) -> Any:
        """Return the array of this leaf."""
        for key in self.path:
            values = values[key]
        return values

    def row(self, values: Any, frame: int) -> Array:
        """Return the value of a frame as LeRobot has it."""
        value = np.asarray(self.read(values)[frame])
        return value if self.dtype in ("video", "image") else value.astype(self.dtype).reshape(self.shape)

    def feature(self) -> dict[str, Any]:
        """Return the description of the feature."""
        names = ["height", "width", "channels"] if self.dtype in ("video", "image") else None
        return {"dtype": self.dtype, "shape": self.shape, "names": names}


def to_lerobot(directory: str | Path, target: str | Path, task: str = "recorded", videos: bool = True) -> Converted:
    """Write a recording as a LeRobotDataset, by LeRobot's own library.

    Pictures, Boxes of uint8 ``[height, width, 3]``, are ``observation.images.NAME``; the only other entry of the
    observation is ``observation.state``, several ones are ``observation.NAME``. ``action`` is what was sent. Beside
    them are ``next.reward``, ``next.done`` and the columns, as ``realtime.delay`` and so on. Floats, rewards too, are
    rounded to float32. The observation after an episode's last frame has no place in such a dataset.

    Args:
        directory: Of the recording.
        target: A new directory.
        task: What the robot was to do, in words.
        videos: Whether pictures are kept as videos, which changes them a little, or each by itself.

    Raises:
        ValueError: There is no recording, it is damaged, it has no frames, it is one of a dry run, its frame rate is no
            whole number, two entries of it have one name there, `target` exists, or LeRobot cannot write it.
        gymnasium.error.DependencyNotInstalled: LeRobot is missing.
    """
    recording, path = _checked(load_recording(directory)), path_of(target).absolute()
    if recording.fps.denominator != 1:
        raise ValueError(
            f"{str(directory)!r} has {float(recording.fps):g} frames per second, and LeRobot's datasets a whole "
            "number: convert it to Minari"
        )
    library = _lerobot()
    seen = _named(recording.observation_space, "observation", videos)
    acted = _named(recording.action_space, "action", videos)
    features = {name: leaf.feature() for name, leaf in {**seen, **acted}.items()}
    features |= {f"{_OURS}drawn{name[len('action') :]}": leaf.feature() for name, leaf in acted.items()}
    features |= {f"{_OURS}{name}": _scalar("int64" if name in _WHOLE else "bool") for name in sorted(_WHOLE | _FLAGS)}
    features |= {"next.reward": _scalar("float32"), "next.done": _scalar("bool"), "next.terminated": _scalar("bool")}
    facts: dict[str, Any] = {"robot_type": "async_wrappers", "use_videos": videos}
    output = f"output {str(path)!r}"
    with NewDirectory(output, path) as made, _in_a_sentence(f"{output} is not written, as LeRobot fails"):
        made.temporary.rmdir()  # LeRobot wants to make it
        dataset = library.create(f"local/{path.name}", int(recording.fps), features, root=made.temporary, **facts)
        for episode in recording:
            for frame in range(len(episode)):
                dataset.add_frame({**_frame_of(episode, frame, seen, acted), "task": task})
            dataset.save_episode()
        dataset.finalize()
    return Converted(path, len(recording), sum(map(len, recording)))


def _scalar(dtype: str) -> dict[str, Any]:
    return {"dtype": dtype, "shape": (1,), "names": None}


def _named(space: gym.Space[Any], name: str, videos: bool) -> dict[str, _Leaf]:
    """Return the features of an observation or an action, by name."""
    leaves = list(_leaves(space, (), videos))
    if name == "action":
        return _apart([(".".join((name, *map(_word, leaf.path))), leaf) for leaf in leaves])
    pictures = [leaf for leaf in leaves if leaf.dtype in ("video", "image")]
    others = [leaf for leaf in leaves if leaf not in pictures]
    found = [(_PICTURES + ("_".join(map(_word, leaf.path)) or "camera"), leaf) for leaf in pictures]
    if len(others) == 1:
        return _apart([*found, (_STATE, others[0])])
    return _apart([*found, *((f"observation.{'_'.join(map(_word, leaf.path))}", leaf) for leaf in others)])


def _apart(named: list[tuple[str, _Leaf]]) -> dict[str, _Leaf]:
    """Return leaves by name.

    Raises:
        ValueError: Two have the same one, and one of them would be lost.
    """
    found: dict[str, _Leaf] = {}
    for name, leaf in named:
        if name in found:
            one, other = ("".join(f"[{key!r}]" for key in each.path) for each in (found[name], leaf))
            raise ValueError(
                f"the entries {one} and {other} are both {name!r} in a LeRobot dataset: rename one of them, or "
                "convert to Minari"
            )
        found[name] = leaf
    return found


def _word(key: Any) -> str:
    return re.sub(r"[/.\s]", "_", str(key))


def _leaves(space: gym.Space[Any], path: tuple[Any, ...], videos: bool) -> Iterator[_Leaf]:
    if isinstance(space, spaces.Dict):
        for key, each in space.spaces.items():
            yield from _leaves(each, (*path, key), videos)
    elif isinstance(space, spaces.Tuple):
        for number, each in enumerate(space.spaces):
            yield from _leaves(each, (*path, number), videos)
    else:
        assert space.shape is not None and space.dtype is not None
        if space.dtype == np.uint8 and len(space.shape) == 3 and space.shape[2] == 3:
            yield _Leaf(path, space.shape, "video" if videos else "image")
        else:
            kind = np.dtype(space.dtype).kind
            dtype = "float32" if kind == "f" else "bool" if kind == "b" else "int64"
            yield _Leaf(path, space.shape or (1,), dtype)


def _frame_of(episode: Episode, frame: int, seen: Mapping[str, _Leaf], acted: Mapping[str, _Leaf]) -> dict[str, Array]:
    found = {name: leaf.row(episode.observations, frame) for name, leaf in seen.items()}
    for name, leaf in acted.items():
        found[name] = leaf.row(episode.sent, frame)
        found[f"{_OURS}drawn{name[len('action') :]}"] = leaf.row(episode.drawn, frame)
    for name in _WHOLE | _FLAGS:
        found[f"{_OURS}{name}"] = episode.columns[name][frame : frame + 1]
    over = frame + 1 == len(episode)
    found["next.reward"] = episode.rewards[frame : frame + 1].astype(np.float32)
    found["next.done"] = np.array([over])
    found["next.terminated"] = np.array([over and episode.terminated])
    return found


def from_lerobot(directory: str | Path, target: str | Path) -> Converted:
    """Write a LeRobotDataset as a recording, by LeRobot's own library, so that `to_minari` takes it on.

    Observations are a Dict by the names of the features, less ``observation.``, or a Box where there is one alone. The
    last frame's observation becomes the one after the last frame, so an episode has a frame less; not where it
    terminated, after which nothing is bootstrapped. Where the dataset has no ``realtime.delay``, somebody else has
    recorded it, and the delay is 0.

    Args:
        directory: Of the dataset.
        target: A new directory.

    Raises:
        ValueError: There is no such dataset, LeRobot cannot read it, its actions are several features, two features
            would be one entry, or `target` is not new.
        gymnasium.error.DependencyNotInstalled: LeRobot is missing.
    """
    library, source = _lerobot(), path_of(directory).absolute()
    if not (source / "meta" / "info.json").is_file():
        raise ValueError(
            f"{str(directory)!r} must be a LeRobot dataset, but there is no {source / 'meta' / 'info.json'}"
        )
    with _in_a_sentence(f"{str(directory)!r} cannot be read by LeRobot"):
        dataset = library(f"local/{source.name}", root=source)
    if "action" not in dataset.features:
        acted = ", ".join(name for name in dataset.features if name.startswith("action")) or "none"
        raise ValueError(
            f"{str(directory)!r} must have its actions in one feature, 'action', got {acted}: those of a Dict or Tuple "
            "do not come back, so keep the recording that they came from"
        )
    names = [name for name in dataset.features if name.startswith("observation.")]
    box = {name: _space_of(dataset.features[name]) for name in [*names, "action"]}
    keys = {name: name.removeprefix(_PICTURES).removeprefix("observation.") for name in names}
    if meeting := [name for name in names if list(keys.values()).count(keys[name]) > 1]:
        raise ValueError(
            f"{str(directory)!r} must have a feature for each entry of a recording, but {' and '.join(meeting)} would "
            f"both be {keys[meeting[0]]!r}: rename one of them"
        )
    observed: gym.Space[Any] = spaces.Dict([(keys[name], box[name]) for name in names])
    if len(names) == 1:
        observed = box[names[0]]
    layout = RowLayout(observed, box["action"])
    facts = {"fps": str(as_fraction(dataset.fps)), "workers": 0, "default_action": "none", "clock": "LeRobot"}
    path = path_of(target).absolute()
    output = f"output {str(path)!r}"
    with NewDirectory(output, path) as made, _in_a_sentence(f"{str(directory)!r} cannot become a recording"):
        files = EpisodeFiles(made.temporary, layout, facts)
        number = 0
        items = (dataset[index] for index in range(len(dataset)))
        for item, following in pairwise(chain(items, [None])):
            over = following is None or _number(following["frame_index"]) == 0
            seen = {keys[name]: _value(item[name], box[name]) for name in names}
            row = _row_of(item, seen if len(names) > 1 else seen[keys[names[0]]], layout)
            row["number"] = number = number + 1
            row["terminated"] = over and bool(_number(item.get("next.terminated", 0)))
            files.write(row)
            if over:
                if row["terminated"]:  # nothing is bootstrapped on the observation after it
                    row["number"], row["frame"], row["final"] = number + 1, row["frame"] + 1, True
                    files.write(row)
                number += 2  # a gap, after which a new file begins
        files.close()
        return Converted(path, len(load_recording(made.temporary)), files.frames)


def _row_of(item: Mapping[str, Any], observation: Any, layout: RowLayout) -> Array:
    """Return the row of an item of LeRobot's; it reports no action as a default one, unless the item says so."""
    assert isinstance(layout.action_space, spaces.Box)
    row = np.zeros(1, layout.dtype)
    sent = _value(item["action"], layout.action_space)
    drawn = item.get(f"{_OURS}drawn")
    layout.observation.write(row["observation"], observation)
    layout.action.write(row["sent"], sent)
    layout.action.write(row["drawn"], sent if drawn is None else _value(drawn, layout.action_space))
    row["episode"], row["frame"] = _number(item["episode_index"]), _number(item["frame_index"])
    row["reward"], row["start"], row["lag"] = _number(item.get("next.reward", 0.0)), row["frame"], -1
    for name in COLUMNS:
        if f"{_OURS}{name}" in item:
            row[name] = _number(item[f"{_OURS}{name}"])
    return row


def _number(value: Any) -> Any:
    return np.asarray(value).reshape(-1)[0]


def _space_of(feature: Mapping[str, Any]) -> spaces.Box:
    shape = tuple(feature["shape"])
    if feature["dtype"] in ("video", "image"):
        channels_first = shape[0] in (1, 3) and shape[-1] not in (1, 3)
        return spaces.Box(0, 255, (*shape[1:], shape[0]) if channels_first else shape, np.uint8)
    dtype: Any = np.dtype(feature["dtype"]).type
    if feature["dtype"] == "bool":
        return spaces.Box(0, 1, shape, dtype)
    low, high = (-np.inf, np.inf) if np.issubdtype(dtype, np.floating) else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return spaces.Box(low, high, shape, dtype)


def _value(value: Any, space: spaces.Box) -> Array:
    """Return a tensor of LeRobot's as an element of a space; its pictures are floats [channels, height, width]."""
    array = np.asarray(value)
    if space.dtype == np.uint8 and len(space.shape) == 3:
        if array.dtype != np.uint8:
            array = np.rint(array * 255)
        return np.moveaxis(array, 0, -1).astype(np.uint8) if array.shape != space.shape else array.astype(np.uint8)
    return array.astype(space.dtype).reshape(space.shape)

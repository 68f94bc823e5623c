"""Checkpoints of an experiment: files that are whole or absent, the newest good one found again.

What they hold is `Experiment.write`'s and, of a way of playing, its method `state`'s.

``checkpoints/ckpt.N`` holds tensors and plain data, its format and its number. Beside it
``checkpoints/sentinel_checkpoint_complete.N``, which is written last, holds its SHA-256 and how many iterations are
done. Nothing is loaded by unpickling code. The checkpoint before iteration 0 has number -1. The stamp of a checkpoint
holds the SHA-256 of each index of its replays, which lie beside it, under its number.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from absl import logging

from async_wrappers.agents.needs_and_offers import refuse
from async_wrappers.agents.replay.segments import read_index
from async_wrappers.agents.trained.agent_file import is_agent_file, read_agent
from async_wrappers.files import FORMAT, check_format, stamp, write_atomically, write_text_atomically

CHECKPOINTS = "checkpoints"
_SENTINEL = "sentinel_checkpoint_complete"
# 0.1.0 did not say how many iterations were done, which was the number and one; "amid" was in the midst of one.
_SENTINEL_TEXT = re.compile(rb"(?:done=(?P<done>\d+)|done|amid) sha256=(?P<sha256>[0-9a-f]{64})\n")
_STAMP = "stamp"  # where a bundle holds its format and number
_READABLE = (1, FORMAT)  # formats whose weights can be loaded
_ACTING = ("agent", "observation_shape", "actions", "network")  # facts that must be equal where only weights are loaded
# Differences that are reported first, because they cause others.
_SHOWN_FIRST = ("agent", "environment", "observation_shape", "actions")


class NoCheckpointLoads(ValueError):
    """The directory holds checkpoints, and none of them is good."""


class Checkpointer:
    """Writes and finds the checkpoints of a run.

    Args:
        base_dir: The run's directory; checkpoints lie in ``base_dir/checkpoints``.
        checkpoint_duration: How many of the newest checkpoints are kept.

    Raises:
        ValueError: `checkpoint_duration` is below one.
    """

    def __init__(self, base_dir: Path, checkpoint_duration: int = 4) -> None:
        if checkpoint_duration < 1:
            raise ValueError(f"checkpoint_duration must be >= 1 checkpoint, got {checkpoint_duration}")
        self.directory = Path(base_dir) / CHECKPOINTS
        self._duration = checkpoint_duration
        self._newest_read: Path | None = None  # of those that `load_each` has looked at

    def numbers(self) -> list[int]:
        """Return the numbers of the checkpoints that were completed, newest first."""
        return sorted(self._numbered(_SENTINEL), reverse=True)

    def iterations_done(self, number: int) -> int:
        """Return how many iterations are done in a completed checkpoint; 0 for number -1."""
        text = self._sentinel(number).read_bytes() if number >= 0 else b"done"
        found = _SENTINEL_TEXT.fullmatch(text)
        return int(found["done"]) if found and found["done"] else number + text.startswith(b"done")

    def save(self, number: int, bundle: Mapping[str, Any]) -> set[int]:
        """Write a checkpoint, forget the oldest ones, and return the numbers that are kept.

        Checkpoints of the same and of later numbers are forgotten too: they were bad, or the run would not have gone
        back.

        Args:
            number: Its own.
            bundle: Tensors and plain data.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        path, sentinel = self._path(number), self._sentinel(number)
        if sentinel.is_file():
            sentinel.unlink()
        content = {**bundle, _STAMP: {**stamp(), "number": number, **self._indexes(number)}}
        write_atomically(path, lambda file: torch.save(content, file))
        done = bundle.get("current_iteration", number) + 1
        write_text_atomically(sentinel, f"done={done} sha256={_sha256(path)}\n")
        kept = [each for each in self.numbers() if each <= number][: self._duration]
        for each in {*self.numbers(), *self._numbered("ckpt")} - set(kept):
            self._sentinel(each).unlink(missing_ok=True)  # first, so that no sentinel ever stands for a missing file
            self._path(each).unlink(missing_ok=True)
        return set(kept)

    def load_each(
        self, refused: dict[int, str] | None = None, *, continues: bool = False
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield (number, bundle) of the good checkpoints, newest first, and warn of each bad one.

        Args:
            refused: Takes the reason for each bad one, by its number.
            continues: Whether the whole bundle is needed, not its weights alone.

        Raises:
            OtherFormat: A good one has an unusable format.
        """
        refused, self._newest_read = {} if refused is None else refused, None
        complete = set(self.numbers())
        for number in sorted(complete | self._numbered("ckpt"), reverse=True):
            try:
                if number not in complete:
                    raise ValueError(f"it was not completed: {self._sentinel(number).name} is missing")
                held, bundle = _read(self._path(number))
                if held.get("number", number) != number:
                    raise ValueError(f"{self._path(number)} is checkpoint {held['number']} under another name")
                self._newest_read = self._newest_read or self._path(number)
                if continues:
                    self._refuse_part_of_0_1_0(number, held)
                    self.check_indexes(held.get("indexes", {}), number)
            except (OSError, ValueError) as error:
                self.refuse(number, error, refused)
                continue
            check_format(self._path(number), held, (FORMAT,) if continues else _READABLE)
            yield number, bundle

    def refuse(self, number: int, error: Exception, refused: dict[int, str]) -> None:
        """Warn that a checkpoint is not used, and note the reason."""
        of_the_system = isinstance(error, OSError) and error.strerror
        why = f"{error.filename}: {error.strerror}" if of_the_system else str(error)  # type: ignore[attr-defined]
        refused[number] = why.splitlines()[0]
        logging.warning("checkpoint %d is not used: %s", number, refused[number])

    def check_beginning(self, refused: Mapping[int, str]) -> None:
        """Refuse to begin a run where there are checkpoints, all of them bad.

        The very first checkpoint does not count if it was never completed: the run was killed while it wrote it.

        Args:
            refused: Why, by number.

        Raises:
            NoCheckpointLoads: All checkpoints are bad.
        """
        newest = max(refused, default=0)
        if not refused or (len(refused) == 1 and newest <= 0 and not self.numbers()):
            return
        read, weights = self._newest_read, ""
        if read is not None:  # all but its replay is good
            weights = f", which may begin with its weights (Runner.initial_checkpoint = {str(read)!r})"
        raise NoCheckpointLoads(
            f"{self.directory} holds {len(refused)} checkpoint{'s' if len(refused) > 1 else ''} of which none loads "
            f"(checkpoint {newest}: {refused[newest]}): restore the files, or choose another --base_dir{weights}"
        )

    def _refuse_part_of_0_1_0(self, number: int, held: Mapping[str, Any]) -> None:
        """Refuse a checkpoint that was written in the midst of an iteration, as 0.1.0 did."""
        if self._sentinel(number).read_bytes().startswith(b"amid"):
            raise ValueError(
                f"{self._path(number)} was written in the midst of an iteration by async_wrappers "
                f"{held.get('version', '0.1.0')}, which alone goes on from there"
            )

    def _indexes(self, number: int) -> dict[str, dict[str, str]]:
        """Return the SHA-256 of each index of a checkpoint's replays, by its place; nothing where there is none."""
        found = sorted(self.directory.rglob(f"index_{number}.json"))
        indexes = {path.relative_to(self.directory).as_posix(): _sha256(path) for path in found}
        return {"indexes": indexes} if indexes else {}

    def check_indexes(self, indexes: Mapping[str, str], number: int) -> None:
        """Refuse replays that were put in the place of a checkpoint's own; those that are missing are told of later."""
        for name, recorded in indexes.items():
            path = self.directory / name
            if path.is_file() and _sha256(path) != recorded:
                read_index(path.parent, number)  # tells of one that is torn
                raise ValueError(f"{path} is not the index that the checkpoint was written with: restore {path.parent}")

    def _numbered(self, name: str) -> set[int]:
        """Return the numbers of which there is a file of this name, complete or not."""
        found = (re.fullmatch(rf"{name}\.(-?\d+)", path.name) for path in self.directory.glob(f"{name}.*"))
        return {int(each[1]) for each in found if each}

    def _path(self, number: int) -> Path:
        return self.directory / f"ckpt.{number}"

    def _sentinel(self, number: int) -> Path:
        return self.directory / f"{_SENTINEL}.{number}"


def read_bundle(path: Path) -> dict[str, Any]:
    """Read one checkpoint file, for its weights, checked against its sentinel where there is one; or an agent's file.

    Raises:
        OSError: The file is missing or unreadable.
        OtherFormat: Its format is unknown.
        ValueError: The file is torn, altered, or no checkpoint.
    """
    if is_agent_file(path):
        return read_agent(path).bundle
    held, bundle = _read(path)
    check_format(path, held, _READABLE)
    return bundle


def newest_bundle(path: Path) -> tuple[Path, dict[str, Any]]:
    """Return the checkpoint at `path`: a file, or the newest good one of a run's directory."""
    if path.is_dir():
        checkpointer, found = Checkpointer(path), None
        while found != (found := checkpointer.numbers()):  # a run that continues there may have replaced all of them
            for number, bundle in checkpointer.load_each():
                return path / CHECKPOINTS / f"ckpt.{number}", bundle
        none = not checkpointer.numbers() and " (none was completed: the first iteration has not ended)"
        where = f"{path / CHECKPOINTS}{none or ''}"
        raise ValueError(f"{path} holds no good checkpoint in {where}: train there first, or name another")
    try:
        return path, read_bundle(path)
    except OSError as error:
        raise ValueError(f"checkpoint {path} cannot be read ({error.strerror}): name a file or a base_dir") from None


def checked_replay(path: Path) -> int:
    """Return the number of the replays of a run's checkpoint file, which must be those that it was written with.

    Raises:
        OSError: The file is missing or unreadable.
        ValueError: It is torn or no checkpoint, or its replays are others.
    """
    held, _ = _read(path)
    found = re.fullmatch(r"ckpt\.(-?\d+)", path.name)
    number = int(found[1]) if found else held.get("number", 0)
    Checkpointer(path.parent.parent).check_indexes(held.get("indexes", {}), number)
    return int(number)


def load_policy(agent: Any, path: Path, bundle: Mapping[str, Any]) -> None:
    """Give an agent the weights of a checkpoint, or refuse with a ValueError one that does not fit it."""
    if not all(isinstance(bundle.get(part), Mapping) for part in ("identity", "agent")):
        raise ValueError(f"checkpoint {path} is not one of a run: it holds {', '.join(map(str, bundle)) or 'nothing'}")
    here, there = ({name: facts.get(name) for name in _ACTING} for facts in (agent.identity(), bundle["identity"]))
    if difference := difference_of(there, here):
        raise ValueError(f"checkpoint {path} does not fit this agent ({difference})")
    try:
        agent.load_policy(bundle["agent"])
    except ValueError as error:
        raise ValueError(f"checkpoint {path} does not fit this agent ({error})") from None


def load_optimizer(agent: Any, path: Path, bundle: Mapping[str, Any]) -> None:
    """Load a checkpoint's optimiser moments into an agent that has its weights."""
    needs = {"Runner.initial_optimizer": True}
    refuse({"a file of weights": is_agent_file(path)}, needs, path=path)
    here, there = agent.identity().get("optimizer"), bundle["identity"].get("optimizer")
    load = getattr(getattr(agent, "learner", None), "load_optimizer", None)
    other = {"the optimiser of a checkpoint": load is None or here != there}
    refuse(other, needs, path=path, here=here, there=there)
    assert load is not None
    load(bundle["agent"]["learner"])


def difference_of(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """Return the difference of two identities in a few words; empty where they are equal."""
    for name in sorted({*there, *here}, key=lambda name: (*(name != first for first in _SHOWN_FIRST), name)):
        old, new = there.get(name), here.get(name)
        if old == new:
            continue
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            return f"{name}: {difference_of(old, new)}"
        return f"{name}: {old} there, {new} here"
    return ""


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the header of a checkpoint file, and its bundle."""
    sentinel = path.with_name(f"{_SENTINEL}{path.suffix}")
    if sentinel.is_file():
        text = sentinel.read_bytes()
        if (found := _SENTINEL_TEXT.fullmatch(text)) is None:
            raise ValueError(f"{sentinel} is torn or altered: it does not hold the SHA-256 of {path.name}")
        if _sha256(path) != found["sha256"].decode():
            raise ValueError(f"{path} is torn or altered: its SHA-256 is not the one recorded")
    try:
        bundle = torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # torch.load passes on any error of its unpickler
        what = f"{type(error).__name__}: {str(error).strip()}".splitlines()[0]
        raise ValueError(f"{path} is not a checkpoint of tensors and plain data ({what})") from None
    if not isinstance(bundle, dict):
        raise ValueError(f"{path} is not a checkpoint: it holds a {type(bundle).__name__}, not a dict")
    return bundle.pop(_STAMP, {}), bundle


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

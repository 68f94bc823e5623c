"""Files are whole or absent, and what cannot be written says why and names the file."""

from __future__ import annotations

import errno
import os
import re
import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from async_wrappers import posix
from async_wrappers.files import NewDirectory, unfinished, write_atomically, write_figure, write_text_atomically

LARGE = 200_000  # bytes, more than fits

WRITERS: dict[str, Callable[[IO[bytes]], Any]] = {
    "torch": lambda file: torch.save({"weights": torch.zeros(LARGE // 4)}, file),
    "numpy": lambda file: np.save(file, np.zeros(LARGE // 8)),
    "archive": lambda file: np.savez(file, zeros=np.zeros(LARGE // 8)),
    "bytes": lambda file: file.write(b"x" * LARGE),
    "pieces": lambda file: [file.write(b"x" * 100) for _ in range(LARGE // 100)],
}


@pytest.fixture
def little_room() -> Iterator[None]:
    """Files of more than 50,000 bytes cannot be written, as on a disk that is full."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.usefixtures("little_room")
@pytest.mark.parametrize("name", WRITERS)
def test_whoever_writes_the_reason_is_the_systems_and_the_older_file_stays(tmp_path: Path, name: str) -> None:
    path = tmp_path / "file"
    write_text_atomically(path, "older")
    with pytest.raises(OSError, match=re.escape(os.strerror(errno.EFBIG))) as caught:
        write_atomically(path, WRITERS[name])
    assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, str(path))
    assert path.read_text() == "older"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full to write to")
@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_is_called_that(tmp_path: Path, name: str) -> None:
    (tmp_path / "file.tmp").symlink_to("/dev/full")  # every write to it ends with: no space left
    with pytest.raises(OSError, match="No space left on device") as caught:
        write_atomically(tmp_path / "file", WRITERS[name])
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(tmp_path / "file"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_an_error_of_the_writers_own_stays_and_nothing_is_left(tmp_path: Path, error: type[BaseException]) -> None:
    def fail(file: IO[bytes]) -> None:
        file.write(b"half")
        raise error

    with pytest.raises(error):
        write_atomically(tmp_path / "file", fail)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", WRITERS)
def test_what_fits_is_written_as_to_any_file(tmp_path: Path, name: str) -> None:
    write_atomically(tmp_path / "file", WRITERS[name])
    with open(tmp_path / "plain", "wb") as file:
        WRITERS[name](file)
    assert (tmp_path / "file").stat().st_size == (tmp_path / "plain").stat().st_size
    assert [each.name for each in sorted(tmp_path.iterdir())] == ["file", "plain"]


@pytest.mark.parametrize("name", WRITERS)
def test_a_device_stays_one(tmp_path: Path, name: str) -> None:
    path = tmp_path / "null"
    path.symlink_to(os.devnull)
    write_atomically(path, WRITERS[name])
    write_atomically(Path(os.devnull), WRITERS[name])
    assert path.is_symlink() and not Path(os.devnull).is_file()
    assert [each.name for each in tmp_path.iterdir()] == ["null"]


def test_a_pipe_gets_the_text(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_text_atomically(tmp_path / "pipe", "text")
        assert os.read(reader, 99) == b"text"
    finally:
        os.close(reader)
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_stays_one_to_the_file_that_is_written(tmp_path: Path, exists: bool) -> None:
    (tmp_path / "place").mkdir()
    target = tmp_path / "place" / "file"
    if exists:
        target.write_text("older")
    (tmp_path / "link").symlink_to(target)
    write_text_atomically(tmp_path / "link", "newer")
    assert (tmp_path / "link").is_symlink()
    assert target.read_text() == "newer"
    assert [each.name for each in target.parent.iterdir()] == ["file"]


def test_of_two_writers_at_a_time_each_writes_a_whole_file_and_the_last_one_stays(tmp_path: Path) -> None:
    path, seen = tmp_path / "file", []

    def write(file: IO[bytes]) -> None:
        file.write(b"the fir")
        write_text_atomically(path, "the second, which is longer")
        seen.append(path.read_text())
        file.write(b"st")

    (tmp_path / "file.tmp").write_bytes(b"what a killed process has left, longer than either")
    write_atomically(path, write)
    assert [*seen, path.read_text()] == ["the second, which is longer", "the first"]
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_a_name_whose_writer_has_renamed_it_by_now_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, temporary = tmp_path / "file", tmp_path / "file.tmp"
    temporary.write_text("another's")
    lock, locked = posix.lock, []

    def rename_first(descriptor: int) -> None:
        if not locked:
            temporary.rename(path)
        locked.append(descriptor)
        lock(descriptor)

    monkeypatch.setattr(posix, "lock", rename_first)
    with unfinished(path) as free:
        assert path.read_text() == "another's"
        free.write_text("ours")
        free.rename(path)
    assert path.read_text() == "ours"
    assert len(locked) == 2


def test_where_files_cannot_be_locked_they_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(descriptor: int) -> None:
        raise OSError(errno.ENOLCK, "no locks here")

    monkeypatch.setattr(posix, "lock", no_locks)
    write_text_atomically(tmp_path / "file", "text")
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("file", "text")]


def test_what_is_not_flushed_is_whole_or_absent_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", None)
    write_atomically(tmp_path / "file", WRITERS["bytes"], flush=False)
    (tmp_path / "other.tmp").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device"):
        write_atomically(tmp_path / "other", WRITERS["bytes"], flush=False)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


@pytest.mark.usefixtures("little_room")
@pytest.mark.parametrize("name", ["file.png", "file.svg", "file"])
def test_a_figure_that_does_not_fit_leaves_nothing_and_names_its_file(tmp_path: Path, name: str) -> None:
    figure = Figure(figsize=(8, 8))
    figure.subplots().plot(np.random.default_rng(0).random((40, 400)))
    with pytest.raises(OSError, match=re.escape(os.strerror(errno.EFBIG))) as caught:
        write_figure(tmp_path / name, figure)
    assert caught.value.filename == str(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_new_directory_is_whole_or_absent(tmp_path: Path) -> None:
    with NewDirectory("output", tmp_path / "missing" / ".." / "new") as made:
        (made.temporary / "file").touch()
        assert not (tmp_path / "new").exists()
    assert (tmp_path / "new" / "file").exists()
    with pytest.raises(ZeroDivisionError), NewDirectory("output", tmp_path / "other"):
        raise ZeroDivisionError
    assert [each.name for each in tmp_path.iterdir()] == ["new"]


def test_the_later_of_two_directories_of_a_name_is_kept_aside(tmp_path: Path) -> None:
    first, later = (NewDirectory("output", tmp_path / name) for name in ("new", "./new"))
    first.temporary.joinpath("first").touch()
    first.show()
    with pytest.raises(ValueError, match=r"^output cannot be named .*/new any more \(.*\): it is in .*/new\.\w+$"):
        later.show()
    assert (tmp_path / "new" / "first").exists()
    with pytest.raises(ValueError, match=r"^output must be a new one, but .*/new exists: choose another name$"):
        NewDirectory("output", tmp_path / "new")


def test_a_directory_is_refused_and_stays(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match=re.escape(str(tmp_path))):
        write_text_atomically(tmp_path, "text")


def test_a_path_that_is_no_utf_8_may_stand_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / os.fsdecode(b"r\xe9sum\xe9")
    write_text_atomically(file, f"see {file.name}, caf\u00e9")
    assert file.read_text(encoding="utf-8") == "see r\\udce9sum\\udce9, caf\u00e9"

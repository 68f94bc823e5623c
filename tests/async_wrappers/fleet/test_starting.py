"""Starting processes: where multiprocessing's sockets lie."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import tempfile
from collections.abc import Iterator
from multiprocessing import connection, util
from pathlib import Path

import pytest

from async_wrappers.fleet.starting import shorten_socket_paths
from async_wrappers.fleet.supervised import RunFailed


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """TMPDIR is a directory of 120 characters, as a batch system's may be, before a program's first socket."""
    directory = str(tmp_path / ("x" * 120))
    os.mkdir(directory)
    monkeypatch.setattr(tempfile, "tempdir", directory)
    config = multiprocessing.current_process()._config  # type: ignore[attr-defined]
    with monkeypatch.context() as patch:
        patch.delitem(config, "tempdir", raising=False)
        patch.setattr(util, "Finalize", lambda *arguments, **named: None)  # it is removed below
        yield directory
        shutil.rmtree(config.get("tempdir", directory))


def test_sockets_lie_in_a_short_directory_where_tmpdir_is_long(far: str) -> None:
    shorten_socket_paths()
    address = connection.arbitrary_address("AF_UNIX")
    with connection.Listener(address):
        assert os.path.exists(address)
    assert os.listdir(far) == []
    assert tempfile.gettempdir() == far  # all other files stay there


def test_where_sockets_have_been_put_into_a_long_tmpdir_it_is_named(far: str) -> None:
    util.get_temp_dir()
    with pytest.raises(RunFailed, match=r"^TMPDIR must be at most 71 bytes long .*, got '.*x': set it to a shorter"):
        shorten_socket_paths()


def test_a_short_tmpdir_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(util, "get_temp_dir", None)
    monkeypatch.setattr(tempfile, "tempdir", "/tmp")
    shorten_socket_paths()

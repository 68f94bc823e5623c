"""Checkpoint files: whole or absent, the newest good one found again, never code."""

from __future__ import annotations

import hashlib
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from async_wrappers.agents.experiment import checkpoint
from async_wrappers.agents.experiment.checkpoint import Checkpointer, read_bundle
from async_wrappers.files import FORMAT, OtherFormat
from async_wrappers.version import __version__
from tests.worlds.plain_data import assert_identical

BUNDLE = {"weights": {"w": torch.arange(6.0).reshape(2, 3)}, "counts": [1, 2.5, "three", None, True], "frames": 7}


class Crash(Exception):
    """The process dies."""


def bundle(number: int) -> dict[str, Any]:
    return {**BUNDLE, "number": number}


def saved(base_dir: Path, numbers: int, keep: int = 4) -> Checkpointer:
    """A checkpointer that has saved the iterations 0, 1, ..."""
    checkpointer = Checkpointer(base_dir, keep)
    for number in range(numbers):
        checkpointer.save(number, bundle(number))
    return checkpointer


def loaded(base_dir: Path) -> list[int]:
    """The numbers of the checkpoints that load, newest first."""
    found = list(Checkpointer(base_dir).load_each())
    assert all(content["number"] == number for number, content in found)
    return [number for number, _ in found]


def test_a_bundle_comes_back_bit_for_bit(tmp_path: Path) -> None:
    Checkpointer(tmp_path).save(3, BUNDLE)
    [(number, content)] = Checkpointer(tmp_path).load_each()
    assert number == 3
    assert_identical(content, BUNDLE)


def test_a_directory_that_is_not_there_holds_no_checkpoints_and_is_not_made(tmp_path: Path) -> None:
    assert loaded(tmp_path / "none") == []
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(("number", "done"), [(0, 1), (3, 3), (-1, 0)])
def test_the_sentinel_says_how_many_iterations_are_done(tmp_path: Path, number: int, done: int) -> None:
    checkpointer = Checkpointer(tmp_path)
    checkpointer.save(number, {**BUNDLE, "current_iteration": done - 1})
    assert checkpointer.iterations_done(number) == done


def test_one_that_0_1_0_wrote_at_an_iterations_end_is_good(tmp_path: Path) -> None:
    checkpointer = saved(tmp_path, 3)
    as_of_0_1_0(tmp_path, 2, "done")
    assert loaded(tmp_path) == [2, 1, 0] and checkpointer.iterations_done(2) == 3


def test_one_that_0_1_0_wrote_in_the_midst_of_an_iteration_is_refused_with_the_version(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpointer = saved(tmp_path, 3)
    as_of_0_1_0(tmp_path, 2, "amid")
    assert checkpointer.iterations_done(2) == 2
    assert [number for number, _ in checkpointer.load_each(continues=True)] == [1, 0]
    path = tmp_path / "checkpoints" / "ckpt.2"
    assert caplog.messages == [
        f"checkpoint 2 is not used: {path} was written in the midst of an iteration by async_wrappers {__version__}, "
        "which alone goes on from there"
    ]
    assert loaded(tmp_path) == [2, 1, 0]  # for its weights


def as_of_0_1_0(base_dir: Path, number: int, word: str) -> None:
    """Let a sentinel be as 0.1.0 wrote it."""
    path = base_dir / "checkpoints" / f"sentinel_checkpoint_complete.{number}"
    path.write_text(f"{word} {path.read_text().partition(' ')[2]}")


def test_the_sentinel_holds_the_files_hash(tmp_path: Path) -> None:
    saved(tmp_path, 1)
    digest = hashlib.sha256((tmp_path / "checkpoints" / "ckpt.0").read_bytes()).hexdigest()
    assert digest in (tmp_path / "checkpoints" / "sentinel_checkpoint_complete.0").read_text()


@pytest.mark.parametrize(("keep", "kept"), [(1, [11]), (4, [11, 10, 9, 8]), (20, list(range(11, -1, -1)))])
def test_the_newest_are_kept_by_number_and_not_by_name(tmp_path: Path, keep: int, kept: list[int]) -> None:
    checkpointer = saved(tmp_path, 11, keep)
    assert checkpointer.save(11, bundle(11)) == set(kept)
    assert loaded(tmp_path) == checkpointer.numbers() == kept
    names = {path.name for path in (tmp_path / "checkpoints").iterdir()}
    assert names == {f"{name}.{number}" for name in ("ckpt", "sentinel_checkpoint_complete") for number in kept}


@pytest.mark.parametrize(("keep", "kept"), [(2, [1]), (4, [1, 0])])
def test_a_run_that_went_back_keeps_what_it_writes_and_forgets_the_bad_ones(
    tmp_path: Path, keep: int, kept: list[int]
) -> None:
    checkpointer = saved(tmp_path, 4, keep)
    assert checkpointer.save(1, bundle(1)) == set(kept)
    assert checkpointer.numbers() == loaded(tmp_path) == kept
    assert len(list((tmp_path / "checkpoints").iterdir())) == 2 * len(kept)


@pytest.mark.parametrize("keep", [0, -1])
def test_keeping_none_is_refused(tmp_path: Path, keep: int) -> None:
    with pytest.raises(ValueError, match=rf"^checkpoint_duration must be >= 1 checkpoint, got {keep}$"):
        Checkpointer(tmp_path, keep)


class TestCrashes:
    def test_between_file_and_sentinel_leaves_the_last_good_one(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        checkpointer = saved(tmp_path, 2)

        def crash(*arguments: Any) -> None:
            raise Crash

        monkeypatch.setattr(checkpoint, "write_text_atomically", crash)
        with pytest.raises(Crash):
            checkpointer.save(2, bundle(2))
        assert (tmp_path / "checkpoints" / "ckpt.2").is_file()
        assert loaded(tmp_path) == [1, 0]

    def test_while_the_file_is_written_leaves_the_last_good_one(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        checkpointer = saved(tmp_path, 2)

        def write_half(content: Any, file: Any) -> None:
            file.write(b"half of it")
            raise Crash

        monkeypatch.setattr(torch, "save", write_half)
        with pytest.raises(Crash):
            checkpointer.save(2, bundle(2))
        assert loaded(tmp_path) == [1, 0]

    def test_while_the_oldest_is_forgotten_leaves_no_sentinel_without_its_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        checkpointer = saved(tmp_path, 2, keep=2)
        unlink = Path.unlink
        left = [1]

        def unlink_one(path: Path, missing_ok: bool = False) -> None:
            if not left.pop():
                raise Crash
            left.append(0)
            unlink(path, missing_ok)

        monkeypatch.setattr(Path, "unlink", unlink_one)
        with pytest.raises(Crash):
            checkpointer.save(2, bundle(2))
        assert checkpointer.numbers() == loaded(tmp_path) == [2, 1]

    def test_what_a_crash_left_is_forgotten_with_the_next_save(self, tmp_path: Path) -> None:
        checkpointer = saved(tmp_path, 3, keep=2)
        for number in (0, 7):  # while the oldest was forgotten; while a newer one was written
            (tmp_path / "checkpoints" / f"ckpt.{number}").write_bytes(b"")
        assert checkpointer.save(3, bundle(3)) == {2, 3}
        names = {path.name for path in (tmp_path / "checkpoints").iterdir()}
        assert names == {f"{name}.{n}" for name in ("ckpt", "sentinel_checkpoint_complete") for n in (2, 3)}

    def test_an_unfinished_file_is_never_taken_for_a_checkpoint(self, tmp_path: Path) -> None:
        saved(tmp_path, 1)
        directory = tmp_path / "checkpoints"
        for name in ("ckpt.7.tmp", "sentinel_checkpoint_complete.7.tmp", "sentinel_checkpoint_complete.x"):
            (directory / name).write_bytes(b"")
        assert Checkpointer(tmp_path).numbers() == [0]


class TestDamage:
    @pytest.mark.parametrize("damage", ["cut", "flip", "empty", "gone", "other"])
    def test_the_newest_is_left_with_a_warning_and_the_one_before_is_used(
        self, tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        saved(tmp_path, 3)
        path = tmp_path / "checkpoints" / "ckpt.2"
        content = bytearray(path.read_bytes())
        if damage == "cut":
            path.write_bytes(content[: len(content) // 2])
        elif damage == "flip":
            content[len(content) // 2] ^= 1
            path.write_bytes(content)
        elif damage == "empty":
            path.write_bytes(b"")
        elif damage == "gone":
            path.unlink()
        else:
            path.write_bytes((tmp_path / "checkpoints" / "ckpt.1").read_bytes())
        assert loaded(tmp_path) == [1, 0]
        messages = [record.getMessage() for record in caplog.records]
        assert len(messages) == 1
        assert messages[0].startswith("checkpoint 2 is not used: ")
        assert "\n" not in messages[0]

    def test_a_wrong_hash_in_the_sentinel_is_noticed(self, tmp_path: Path) -> None:
        saved(tmp_path, 2)
        (tmp_path / "checkpoints" / "sentinel_checkpoint_complete.1").write_text(f"done sha256={'0' * 64}\n")
        assert loaded(tmp_path) == [0]
        with pytest.raises(ValueError, match="torn or altered"):
            read_bundle(tmp_path / "checkpoints" / "ckpt.1")

    @pytest.mark.parametrize("length", range(len(f"done=2 sha256={'0' * 64}")))
    def test_a_sentinel_that_was_cut_anywhere_is_noticed(self, tmp_path: Path, length: int) -> None:
        saved(tmp_path, 2)
        sentinel = tmp_path / "checkpoints" / "sentinel_checkpoint_complete.1"
        sentinel.write_bytes(sentinel.read_bytes()[:length])
        assert loaded(tmp_path) == [0]
        with pytest.raises(ValueError, match=r"sentinel_checkpoint_complete\.1 is torn or altered"):
            read_bundle(tmp_path / "checkpoints" / "ckpt.1")

    def test_an_older_one_under_a_newer_name_is_not_used(self, tmp_path: Path) -> None:
        saved(tmp_path, 3)
        for name in ("ckpt", "sentinel_checkpoint_complete"):
            shutil.copy(tmp_path / "checkpoints" / f"{name}.0", tmp_path / "checkpoints" / f"{name}.2")
        refused: dict[int, str] = {}
        assert [number for number, _ in Checkpointer(tmp_path).load_each(refused)] == [1, 0]
        assert refused == {2: f"{tmp_path / 'checkpoints' / 'ckpt.2'} is checkpoint 0 under another name"}

    def test_one_whose_sentinel_is_gone_is_named(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        saved(tmp_path, 3)
        (tmp_path / "checkpoints" / "sentinel_checkpoint_complete.2").unlink()
        assert loaded(tmp_path) == [1, 0]
        assert "checkpoint 2 is not used: it was not completed" in caplog.text

    def test_one_of_an_unknown_format_is_refused_with_both_versions(self, tmp_path: Path) -> None:
        path = saved(tmp_path, 1).directory / "ckpt.0"
        content = torch.load(path, weights_only=True)
        assert content["stamp"] == {"format": FORMAT, "version": __version__, "number": 0}
        content["stamp"] |= {"format": 9, "version": "8.7"}
        torch.save(content, path)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        (path.parent / "sentinel_checkpoint_complete.0").write_text(f"done sha256={digest}\n")
        message = rf"ckpt\.0 has format 9 \(async_wrappers 8\.7\), and async_wrappers {__version__} .* format {FORMAT}"
        for read in (lambda: loaded(tmp_path), lambda: read_bundle(path)):
            with pytest.raises(OtherFormat, match=message):
                read()

    def test_all_bad_is_none(self, tmp_path: Path) -> None:
        saved(tmp_path, 2)
        for number in range(2):
            (tmp_path / "checkpoints" / f"ckpt.{number}").write_bytes(b"")
        assert loaded(tmp_path) == []


class Code:
    """Makes a directory when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


class TestWhatIsNoCheckpoint:
    @pytest.mark.parametrize("how", ["torch", "pickle"])
    @pytest.mark.parametrize("sentinel", [False, True])
    def test_code_is_refused_and_not_run(self, tmp_path: Path, how: str, sentinel: bool) -> None:
        directory = tmp_path / "checkpoints"
        directory.mkdir()
        path, made = directory / "ckpt.0", tmp_path / "made"
        if how == "torch":
            torch.save({"agent": Code(made)}, path)
        else:
            path.write_bytes(pickle.dumps({"agent": Code(made)}, protocol=2))
        if sentinel:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            (directory / "sentinel_checkpoint_complete.0").write_text(f"done sha256={digest}\n")
        with pytest.raises(ValueError, match="is not a checkpoint of tensors and plain data"):
            read_bundle(path)
        assert loaded(tmp_path) == []
        assert not made.exists()
        pickle.loads(pickle.dumps(Code(made)))  # it would have been
        assert made.exists()

    @pytest.mark.parametrize(
        "content",
        [
            pytest.param(b"", id="nothing"),
            pytest.param(b"hello\n", id="text"),
            pytest.param(b"create_agent.agent_name = 'dqn'\n", id="gin"),
            pytest.param(b'{"iteration": 0}\n', id="json"),
            pytest.param(b"\x80\x02.", id="a torn pickle"),
            pytest.param(b"PK\x03\x04", id="a torn zip"),
            pytest.param(b"\x00" * 99, id="zeros"),
        ],
    )
    def test_any_other_file_is_refused_in_one_sentence(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "config.gin"
        path.write_bytes(content)
        with pytest.raises(ValueError) as caught:
            read_bundle(path)
        assert str(caught.value).startswith(f"{path} is ")
        assert "\n" not in str(caught.value)

    def test_something_else_than_a_dict_is_refused(self, tmp_path: Path) -> None:
        torch.save([1, 2], tmp_path / "ckpt.0")
        with pytest.raises(ValueError, match="is not a checkpoint: it holds a list, not a dict"):
            read_bundle(tmp_path / "ckpt.0")

    def test_a_missing_file_is_an_os_error(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            read_bundle(tmp_path / "ckpt.0")

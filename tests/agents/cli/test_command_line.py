"""The commands and their flags: help, spellings, and one sentence for what a command does not take."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_wrappers.agents.cli.command_line import _explain
from async_wrappers.agents.cli.commands import COMMANDS, parser_of
from async_wrappers.agents.cli.flags import FlagParser, UsageError, at_least
from async_wrappers.files import write_text_atomically
from async_wrappers.ray_cluster import NoCluster
from tests.worlds.command_line import ROOT, call, place, refused, start

__all__ = ["call", "place"]

SHARED = {"base_dir", "gin_files", "gin_bindings", "trust", "allow_unread"}
FLAGS = {
    "train": {*SHARED, "seed"},
    "evaluate": {*SHARED, "seed", "episodes", "render", "video", "slow", "beside", "drawn", "follow", "agent"},
    "export": {*SHARED, "seed", "episodes", "licence", "command", "output", "observations"},
    "sweep": {*SHARED, "grid", "seeds", "jobs", "retry_failed", "engine", "finished", "only", "address"},
    "plot": {"metric", "statistic", "x", "wins", "output"},
    "compare": {"metric", "statistic"},
    "watch": {"text", "host", "port"},
    "record": {*SHARED, "seed", "dataset", "player", "agent", "episodes", "fps"},
    "import": {"dataset"},
    "list": set(),
}
SWITCHES = {"trust", "allow_unread", "render", "video", "drawn", "follow", "retry_failed", "wins", "text"}
ALL = set().union(*FLAGS.values())


def parser() -> FlagParser:
    made = FlagParser("bake", "Bake bread.")
    made.add_word("A", "one")
    made.add_word("B", "another")
    made.add_argument("--loaves", type=at_least(1), default=3)
    made.add_argument("--heat", type=at_least(0.5))
    made.add_argument("--grain", choices=("rye", "oat"), default="rye")
    made.add_argument("--gin_files", action="append", default=[])
    made.add_switch("retry_failed", "bake again what burnt")
    return made


def parsed(*words: str) -> Namespace:
    return parser().parse(words)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_path_may_begin_with_a_home_directory(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    for action in parser_of(name)._actions:
        if (not action.option_strings and name != "list") or re.search("DIR|FILE|TABLE", str(action.metavar)):
            assert callable(action.type), action.metavar
            assert os.fspath(action.type("~/x")) == "/home/ada/x"


class TestHelp:
    @pytest.mark.parametrize("word", ["--help", "-h"])
    def test_help_alone_is_the_overview(self, call: Any, word: str) -> None:
        done = call(word)
        assert done.code == 0
        assert "python train.py [train]" in done.out
        for name in ("base_dir", "gin_files", "gin_bindings", "seed", "episodes", "render", "list"):
            assert f"--{name}" in done.out
        for command in COMMANDS:
            assert f"train.py {command}" in done.out.replace("[train]", "train")

    @pytest.mark.parametrize("command", FLAGS)
    def test_help_of_a_command_shows_its_flags_alone(self, call: Any, command: str) -> None:
        for word in ("--help", "-h"):
            done = call(command, word)
            assert (done.code, done.err) == (0, "")
            assert f"usage: python train.py {command}" in done.out
            shown = {name for name in ALL if f"  --{name} " in done.out or f"  --{name}," in done.out}
            assert shown == FLAGS[command]

    def test_every_command_says_what_it_does(self) -> None:
        for name in COMMANDS:
            description = parser_of(name).description
            assert description is not None and description.endswith(".") and "\n" not in description


class TestFlagsOfOtherCommands:
    @pytest.mark.parametrize(
        ("command", "flag"), [(each, flag) for each in FLAGS for flag in sorted(ALL - FLAGS[each])]
    )
    def test_one_is_refused_with_its_owners(self, call: Any, place: Path, command: str, flag: str) -> None:
        before = sorted(place.iterdir())
        value = [] if flag in SWITCHES else ["1"]
        message = refused(call(command, f"--{flag}", *value))
        if (command, flag) == ("sweep", "seed"):
            assert message == "--seed is for one run: a sweep derives its seeds; say how many with --seeds"
        else:
            owners = " and ".join(f"`{name}`" for name, flags in FLAGS.items() if flag in flags)
            remedy = f"leave it out (python train.py {command} --help lists the flags of {command})"
            assert message == f"{command} has no flag --{flag}, which belongs to {owners}: {remedy}"
        assert sorted(place.iterdir()) == before

    def test_a_grid_of_an_evaluation_is_refused(self, call: Any) -> None:
        words = ("--base_dir", "run", "--grid", "RealtimeDelay.delay = 1, 8", "--seeds", "3")
        assert refused(call("evaluate", *words)).startswith("evaluate has no flag --grid, which belongs to `sweep`: ")

    def test_a_flag_of_no_command_is_refused_with_the_nearest_name(self, call: Any) -> None:
        assert refused(call("--gin_file", "x")) == "train has no flag --gin_file; did you mean --gin_files?"
        assert refused(call("plot", "s", "-q")) == "plot has no flag -q; python train.py plot --help lists its flags"


class TestParsing:
    def test_without_flags_the_defaults_hold(self) -> None:
        expected = Namespace(a="x", b="y", loaves=3, heat=None, grain="rye", gin_files=[], retry_failed=False)
        assert parsed("x", "y") == expected

    @pytest.mark.parametrize(
        "words",
        [
            ["--loaves", "5", "x", "y"],
            ["x", "--loaves=5", "y"],
            ["x", "y", "--loaves", "5"],
            ["--loaves", "4", "x", "y", "--loaves", "5"],
        ],
    )
    def test_flags_come_before_between_or_after_the_words_and_the_last_wins(self, words: list[str]) -> None:
        options = parsed(*words)
        assert (options.a, options.b, options.loaves) == ("x", "y", 5)

    @pytest.mark.parametrize(
        ("word", "on"),
        [
            ("--retry_failed", True),
            ("--retry-failed", True),
            ("--noretry_failed", False),
            ("--retry_failed=true", True),
            ("--retry-failed=false", False),
            ("--retry_failed=0", False),
            ("--no-retry-failed", False),
        ],
    )
    def test_a_switch_has_the_spellings_of_absl(self, word: str, on: bool) -> None:
        assert parsed("x", "y", word).retry_failed is on

    def test_a_flag_that_is_repeated_collects_its_values(self) -> None:
        assert parsed("x", "y", "--gin_files", "a", "--gin-files=b,c").gin_files == ["a", "b,c"]
        assert parsed("x", "y").gin_files == []

    @given(st.lists(st.text(), max_size=4))
    def test_any_value_is_taken_as_it_is_after_an_equals_sign(self, values: list[str]) -> None:
        assert parsed("x", "y", *(f"--gin_files={value}" for value in values)).gin_files == values

    @pytest.mark.parametrize(
        ("words", "sentence"),
        [
            (["x"], "bake needs results: python train.py bake A B"),
            (["x", "y", "z"], "'z' belongs to no flag; gin_files and gin_bindings are repeated for each value"),
            (["x", "y", "--loaves", "0"], "--loaves: must be a whole number >= 1, got '0'"),
            (["x", "y", "--loaves", "-1"], "--loaves: must be a whole number >= 1, got '-1'"),
            (["x", "y", "--loaves", "2.5"], "--loaves: must be a whole number >= 1, got '2.5'"),
            (["x", "y", "--heat", "nan"], "--heat: must be a number >= 0.5, got 'nan'"),
            (["x", "y", "--heat", "inf"], "--heat: must be a number >= 0.5, got 'inf'"),
            (["x", "y", "--heat", "hot"], "--heat: must be a number >= 0.5, got 'hot'"),
            (["x", "y", "--grain", "rice"], "--grain: invalid choice: 'rice' (choose from 'rye', 'oat')"),
            (["x", "y", "--loaves"], "--loaves: a value is missing"),
            (["x", "y", "--loave", "3"], "bake has no flag --loave; did you mean --loaves?"),
            (
                ["x", "y", "--retry_failed", "no"],
                "'no' belongs to no flag; gin_files and gin_bindings are repeated for each value",
            ),
            (["x", "y", "--retry_failed=no"], "--retry_failed: must be true or false, got 'no'"),
            (["x", "y", "--noretry_failed=1"], "--retry_failed/--no-retry_failed: ignored explicit argument '1'"),
        ],
    )
    def test_a_mistake_is_one_sentence(self, words: list[str], sentence: str) -> None:
        with pytest.raises(UsageError) as caught:
            parser().parse(words)
        assert str(caught.value) == sentence


def test_what_needs_no_network_does_not_wait_for_pytorch() -> None:
    asked = [(["--help"], 0), (["sweeps"], 2), (["plot"], 2), (["--bse_dir", "x"], 2), (["evaluate", "--grid", "x"], 2)]
    asked += [([name, "--help"], 0) for name in COMMANDS]
    script = "import sys, train\n"
    script += f"print([train.main(['train.py', *words]) for words, _ in {asked}], 'torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=200, check=True
    )
    assert done.stdout.splitlines()[-1] == f"{[code for _, code in asked]} False"


def test_a_warning_of_ours_is_a_sentence_without_the_line_of_code_that_it_arose_in(place: Path) -> None:
    words = ["--gin_files", "configs/live/cartpole.gin", "--gin_bindings", "AsyncRunner.workers = 1_000"]
    process = start(place, *words, "--gin_bindings", "Runner.initial_checkpoint = 'nowhere'")
    _, err = process.communicate(timeout=120)
    first, *others = err.splitlines()
    assert process.returncode == 2
    assert first.startswith("train.py: warning: workers=1000 share ") and "UserWarning" not in err
    assert len(others) == 1 and others[0].startswith("train.py: Runner.initial_checkpoint must be ")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), "no more processes or threads may run"),
        (RuntimeError("can't start new thread\n  In call to"), "no more processes or threads may run"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "memory is full"),
        (MemoryError("Unable to allocate 9 TiB"), "memory is full"),
    ],
)
def test_a_limit_of_processes_or_memory_is_named_in_one_sentence(error: Exception, said: str) -> None:
    explained = _explain(error, "run")
    assert explained is not None
    code, sentence = explained
    assert code == 1
    assert sentence.startswith(f"{said} (") and "\n" not in sentence


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_what_may_not_be_read_or_written_is_named_in_one_sentence(number: int) -> None:
    """As a picture beside a run of another user, or that run's own files."""
    explained = _explain(OSError(number, os.strerror(number), "theirs/figures"), None)
    said = f"theirs/figures cannot be read or written ({os.strerror(number)}): change that, or name another place"
    assert explained == (2, said)


def test_a_cluster_that_does_not_answer_is_a_usage_error_of_one_sentence() -> None:
    assert _explain(NoCluster("address 'x': none"), None) == (2, "address 'x': none")


def test_a_directory_that_is_moved_while_a_run_writes_there_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run" / "metrics").mkdir(parents=True)
    (tmp_path / "run").rename("elsewhere")
    with pytest.raises(FileNotFoundError) as lost:
        write_text_atomically(Path("run") / "metrics" / "run.json", "{}")
    folder = tmp_path / "run" / "metrics"
    remedy = "bring it back, or continue with --base_dir where it is now"
    assert _explain(lost.value, "run") == (1, f"{folder} is not there any more: {remedy}")

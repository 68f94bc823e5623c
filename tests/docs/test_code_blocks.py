"""Every block of code in the README, CONTRIBUTING.md and docs/: Python runs, gin is parsed, commands name what exists.

A block stands alone: it runs in a namespace and a directory of its own. Two marks change that:

* ``# continues the blocks above``, its first line: what the page's earlier blocks define is there too.
* ``<!-- not run: REASON -->``, the line above the block: it needs what a test does not have.

A block of text right after a Python block is what the Python block prints.
"""

from __future__ import annotations

import re
import shlex
import sys
import types
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gin
import pytest

from tests.worlds.forks import fork_trials

__all__ = ["fork_trials"]

ROOT = Path(__file__).parents[2]
MADE = {"_build", "api", "generated"}  # folders that the site's build makes
CONTINUES = "# continues the blocks above\n"
MOST_NOT_RUN = 3
PRINTED = {  # a part of what the n-th Python block of a page prints
    ("docs/analysis/planning.md", 0): "9 0.9942 12.0",
    ("docs/analysis/planning.md", 2): "3 3 198",
    ("docs/live/async_runner.md", 0): "new decision",
    ("docs/live/own_learner.md", 0): " updates; (EpisodeTiming",
    ("docs/live/own_parts.md", 0): "'mean': 5.0",
}
LEFT_OPEN = re.compile(r"\.\.\.|[<>{}*$\[]|(?<![\w@])[A-Z_]{3,}(?!\w)|\bN\b")  # words that a reader fills in
PATH = re.compile(r"(?:agents|async_wrappers|benchmarks|configs|docs|tests)/[\w/.-]+\.(?:gin|gif|md|png|py)\b")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    line: int
    language: str
    text: str
    not_run: str  # the reason, or nothing
    output: str  # the text block right after it

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    found = [page for page in (ROOT / "docs").rglob("*.md") if not MADE.intersection(page.relative_to(ROOT).parts)]
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(found)]


def blocks_of(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    pattern = r"(?:<!-- not run: (?P<reason>.*?) -->\n)?"
    pattern += r"^```(?P<language>\w*)\n(?P<text>.*?)^```\n?(?P<after>\n*```text\n.*?^```)?"
    for found in re.finditer(pattern, text, re.DOTALL | re.MULTILINE):
        line = text[: found.start("text")].count("\n")
        after = re.sub(r"\A\n*```text\n|```\Z", "", found["after"] or "")
        where = page.relative_to(ROOT).as_posix()
        yield Block(where, line, found["language"], found["text"], found["reason"] or "", after)


BLOCKS = [block for page in pages() for block in blocks_of(page)]
PYTHON = [block for block in BLOCKS if block.language == "python"]
COMMANDS = [block for block in BLOCKS if block.language in ("sh", "console", "")]


def run(block: Block, names: dict[str, Any]) -> None:
    """Run a block; an error names its page and line."""
    code = compile("\n" * block.line + block.text, block.page, "exec")
    # A page's block may be run twice, and gin takes a name once but in its interactive mode.
    with warnings.catch_warnings(), gin.config.interactive_mode():
        warnings.filterwarnings("ignore", message="workers=")  # more workers than this machine has cores
        exec(code, names)


@pytest.fixture
def empty_gin() -> Iterator[None]:
    gin.clear_config()
    yield
    gin.clear_config()


@pytest.mark.usefixtures("empty_gin")
@pytest.mark.parametrize("block", [block for block in PYTHON if not block.not_run], ids=str)
def test_python_runs(
    block: Block,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.chdir(tmp_path)
    if "sweep(" in block.text:
        request.getfixturevalue("fork_trials")
    names: dict[str, Any] = {"__name__": "page"}
    if block.text.startswith(CONTINUES):
        for earlier in PYTHON:
            if earlier.page == block.page and earlier.line < block.line and not earlier.not_run:
                run(earlier, names)
    names["__name__"] = "__main__"
    run(block, names)
    printed = capfd.readouterr().out
    if block.output:
        assert printed.split() == block.output.split()
    number = [each.line for each in PYTHON if each.page == block.page].index(block.line)
    assert PRINTED.get((block.page, number), "") in printed


def test_few_blocks_are_not_run() -> None:
    left = {str(block): block.not_run for block in PYTHON if block.not_run}
    for block, reason in left.items():
        print(f"{block} is not run: {reason}")
    print(f"{len(PYTHON) - len(left)} of {len(PYTHON)} Python blocks are run")
    assert len(PYTHON) > 25
    assert len(left) <= MOST_NOT_RUN


@pytest.mark.usefixtures("empty_gin")
@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "gin"], ids=str)
def test_gin_is_parsed(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    import_module("async_wrappers.agents.configurables")
    import_module("async_wrappers.configurables")
    for name in re.findall(r"^import (\w+)", block.text, re.MULTILINE):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.chdir(ROOT)
    gin.parse_config(block.text)


def commands() -> list[tuple[str, str]]:
    """Return the page and the words of each command of a shell block, without its prompt, comment and environment."""
    found = []
    for block in COMMANDS:
        lines = re.sub(r"\\\n\s*", " ", block.text).splitlines()
        if block.language == "console":
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        for line in lines:
            for command in line.partition(" # ")[0].split(" && "):
                found.append((str(block), re.sub(r"^(\w+=\S* |done; |do )+", "", command.strip())))
    return [(where, command) for where, command in found if re.match(r"\S*python3? ", command)]


@pytest.mark.parametrize(("where", "command"), commands())
def test_a_command_names_what_exists(where: str, command: str) -> None:
    words = shlex.split(command)[1:]
    if words[0] == "-m":
        assert find_spec(words[1]) is not None
        return
    script = Path(words[0].replace("PATH_TO_THE_CLONE/", ""))
    assert (ROOT / script).is_file()
    if script.name != "train.py" or words[1:] == []:
        return
    from async_wrappers.agents.cli.commands import COMMANDS as NAMES
    from async_wrappers.agents.cli.commands import parser_of

    name, rest = (words[1], words[2:]) if words[1] in NAMES else ("train", words[1:])
    options = parser_of(name).parse(["1" if word in ("N", "$seed") else word for word in rest])
    for file in getattr(options, "gin_files", None) or []:
        if file.endswith(".gin") and not LEFT_OPEN.search(file) and "/" in file:
            assert (ROOT / file).is_file()


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_the_files_that_a_page_names_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    spans = re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text)
    named = {path for span in spans for path in PATH.findall(span) if not LEFT_OPEN.search(path)}
    by_name = re.compile(r"configs/paper/(asynchronous|sequential)_\d+\.gin")  # names of simulations, not files
    assert [path for path in sorted(named) if not (ROOT / path).is_file() and not by_name.fullmatch(path)] == []

"""What `benchmarks.code_measures` counts, on files small enough to count by eye."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.code_measures import (
    FUNCTION,
    MODULE,
    TYPING,
    Lines,
    Project,
    circles,
    count_lines,
    function_lengths,
    measure,
    read,
    read_folder,
)

FILE = '''\
# Copyright 2020 Somebody
#
# Licensed to everybody.

"""A module.

With two paragraphs.
"""

import os  # of Python's own

# why
X = """a text

that is no docstring"""  # trailing


def f(a):
    """One line."""
    # first why
    # second why
    return (
        a
    )
'''


def test_lines_are_counted_by_what_they_hold() -> None:
    # code: import, three lines of X less its blank one, def, four of return
    assert count_lines(FILE) == Lines(total=24, blank=7, code=1 + 2 + 1 + 3, docstring=3 + 1, comments=3, licence=3)


def test_an_opening_comment_without_a_licence_is_a_comment() -> None:
    counted = count_lines("# Frames are counted from the reset.\nX = 1\n")
    assert (counted.comments, counted.licence) == (1, 0)


@given(st.lists(st.sampled_from(["x = 1", "# why", "", "y = 'a'  # because"]), max_size=30))
def test_lines_without_docstrings_are_code_comment_or_blank(lines: list[str]) -> None:
    counted = count_lines("".join(line + "\n" for line in lines))
    assert counted.total == len(lines) == counted.code + counted.comments + counted.blank
    assert counted.comments == lines.count("# why")


def test_the_docstring_is_no_line_of_a_function() -> None:
    tree = ast.parse('def f():\n    """One.\n\n    Two.\n    """\n    return 1\n\n\nclass A:\n    def g(self): ...\n')
    assert sorted(function_lengths(tree)) == [1, 2]


def project(**texts: str) -> Project:
    """Return a project of files; ``__`` in a name stands for a folder."""
    return Project({name.replace("__", "/") + ".py": text for name, text in texts.items()})


def test_imports_are_found_with_their_place_and_those_of_other_projects_are_not() -> None:
    texts = {
        "house/__init__.py": "",
        "house/a.py": (
            "import os\nimport numpy.random\nfrom typing import TYPE_CHECKING\nfrom . import b\n"
            "if TYPE_CHECKING:\n    from house.c import C\nelse:\n    import house.d\n"
            "def f():\n    from .c import D\n"
        ),
        "house/b.py": "",
        "house/c.py": "",
        "house/d.py": "",
    }
    found = {(each.target, each.name, each.line, each.kind) for each in Project(texts).files["house.a"].imports}
    assert found == {
        ("house.b", "", 4, MODULE),
        ("house.c", "C", 6, TYPING),
        ("house.d", "", 8, MODULE),
        ("house.c", "D", 10, FUNCTION),
    }


def test_circles_are_found_by_the_kind_of_import_that_closes_them() -> None:
    house = project(
        a="import b\n",
        b="import c\n",
        c="def f():\n    import a\n",
        d="from typing import TYPE_CHECKING\nimport e\n",
        e="import typing\nif typing.TYPE_CHECKING:\n    import d\n",
    )
    assert circles(house.graph((MODULE,))) == []
    assert circles(house.graph((MODULE, FUNCTION))) == [["a", "b", "c"]]
    assert circles(house.graph((MODULE, FUNCTION, TYPING))) == [["a", "b", "c"], ["d", "e"]]


@given(st.dictionaries(st.integers(0, 6), st.sets(st.integers(0, 6)), max_size=7))
def test_two_modules_are_in_a_circle_if_each_reaches_the_other(edges: dict[int, set[int]]) -> None:
    graph = {str(node): {str(other) for other in edges.get(node, ())} for node in range(7)}
    reached = {node: {*others} for node, others in graph.items()}
    for middle in graph:  # Warshall
        for node in graph:
            if middle in reached[node]:
                reached[node] |= reached[middle]
    together = {(a, b) for circle in circles(graph) for a in circle for b in circle if a != b}
    assert together == {(a, b) for a in graph for b in graph if a != b and b in reached[a] and a in reached[b]}


def test_behind_one_dqn_stands_what_its_module_imports_and_a_package_only_by_its_names() -> None:
    house = Project(
        {
            "agents/__init__.py": "import agents.unrelated\n",
            "agents/unrelated.py": "",
            "agents/dqn.py": "from agents import loss\nfrom replay import Ring\nclass DQNAgent: pass\n",
            "agents/loss.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import agents.unrelated\n",
            "replay/__init__.py": "from .ring import Ring\n",
            "replay/ring.py": "def f():\n    import late\n",
            "late.py": "",
            "tests/test_dqn.py": "import agents.dqn\n",
        }
    )
    assert house.find_dqn() == "agents.dqn"
    behind = [file.module for file in house.behind("agents.dqn")]
    assert behind == ["agents.dqn", "agents.loss", "late", "replay", "replay.ring"]


def test_a_linked_folder_has_the_name_by_which_it_is_imported(tmp_path: Path) -> None:
    for name, text in {"house/__init__.py": "", "rooms/a.py": "", "rooms/b.py": "from house.rooms import a\n"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "house" / "rooms").symlink_to("../rooms")
    house = read_folder(tmp_path)
    assert set(house.files) == {"house", "house.rooms.a", "house.rooms.b"}
    assert [file.module for file in house.behind("house.rooms.b")] == ["house.rooms.a", "house.rooms.b"]


def test_private_names_count_where_they_are_taken_from_another_file() -> None:
    house = project(
        a="from b import _hidden, shown, __version__\nimport b\nx = b._other, b.shown, shown._of_an_object\n",
        b="_hidden = _other = shown = 1\nprint(_hidden)\n",
        c="from os import _exit\nimport os\nos._exit(0)\n",
    )
    assert house.private_names(house.source) == ["a.py:1 _hidden", "a.py:3 b._other"]


def test_tests_show_the_private_attributes_that_they_read_and_the_tests_that_they_import() -> None:
    house = project(
        a="class A:\n    def f(self): return self._x\n",
        tests__worlds="",
        tests__test_a="from tests import worlds\nclass TestA:\n    def test(self, a): return a._x, a.b._y, self._z\n",
        tests__test_b="from tests.test_a import TestA\nimport test_a\na = a._replace(b=a._fields)\n",
    )
    assert len(house.private_attributes(house.tests)) == 2
    assert house.tests_importing_tests() == ["tests/test_b.py tests.test_a"]


def test_source_is_what_is_neither_test_nor_benchmark_nor_hidden() -> None:
    house = Project(
        dict.fromkeys(
            ["a.py", "a_test.py", "b/test_b.py", "tests/worlds.py", "benchmarks/c.py", "docs/conf.py", ".ci/d.py"], ""
        )
    )
    assert [file.path.as_posix() for file in house.source] == ["a.py"]


def test_a_folder_without_git_and_a_commit_of_a_bare_repository_are_read_alike(tmp_path: Path) -> None:
    folder, bare = tmp_path / "folder", tmp_path / "bare"
    (folder / "house").mkdir(parents=True)
    (folder / "house" / "a.py").write_text("# why\nX = 1\n")
    (folder / "house" / "__init__.py").write_text("")
    plain = measure(read(str(folder)), None)
    commands = [
        ["git", "init", "-q", str(folder)],
        ["git", "-C", str(folder), "add", "house"],
        ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one"],
        ["git", "clone", "-q", "--bare", str(folder), str(bare)],
    ]
    for command in commands:
        subprocess.run(command, check=True, capture_output=True, timeout=60)
    (folder / "house" / "a.py").write_text("X = 1\n")
    (folder / "house" / "new.py").write_text("")  # not added, and not ignored
    assert measure(read(str(bare)), None) == measure(read(f"{folder}@HEAD"), None) == plain
    now = measure(read_folder(folder), None)
    assert (plain["source files"], now["source files"]) == ("2", "3")
    assert (plain["full-line comments"], now["full-line comments"]) == ("1", "0")


def test_what_cannot_be_read_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"{tmp_path} must hold Python files, found none"):
        read(str(tmp_path))
    with pytest.raises(ValueError, match=f"git cannot read HEAD of {tmp_path}"):
        read(f"{tmp_path}@HEAD")

"""How the source is built, counted: lines, comments, the files behind one DQN, circles, private names, beside others.

The working tree stands beside an earlier commit, and beside any other project: a folder, or a git repository with or
without a work tree (``@COMMIT`` chooses what is read of it; the newest commit otherwise). Nothing is imported: files
are read with `ast` and `tokenize`.

    python -m benchmarks.code_measures --commit COMMIT [--beside NAME=PATH[@COMMIT]]... [--dqn NAME=MODULE]... [--list]

Source is all Python but tests, benchmarks, examples and docs. What the rows mean:

- Code lines hold more than a comment or a docstring. A docstring's share is of the lines that are not blank.
- Full-line comments are counted per 1,000 lines, licence headers left out of both.
- Behind one DQN stand the module of its agent and all that it imports of the project, directly or not, inside functions
  too, but not for type checking alone. A package's ``__init__`` counts if something is imported from it by name.
- A circle is a set of modules each of which imports, directly or not, all the others. Imports inside functions hide
  circles from the interpreter, and those for type checking hide more, so each is counted with one kind more.
- A private name begins with one underscore and is imported, or read as ``module._name``, in a file that does not define
  it. Of tests the private attributes are counted that they read, ``anything._name``, but those of `self` and `cls`.
  Documented names are not private: ``_replace`` and the like of named tuples, ``os._exit``, ``_repr_html_``.
"""

from __future__ import annotations

import ast
import io
import re
import statistics
import subprocess
import tempfile
import tokenize
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from benchmarks.measuring import parser_of

ROOT = Path(__file__).parents[1]
NOT_SOURCE = {"benchmarks", "docs", "examples"}
NO_MODULES = {"setup.py", "conf.py", "conftest.py"}
DQN_CLASSES = ("DQNAgent", "Dqn", "DQN")  # by which the module of a DQN is found, where nobody names it
MODULE, FUNCTION, TYPING = "at module level", "with imports inside functions", "with imports for type checking"
LICENCE = re.compile(r"copyright|licen[cs]e|spdx", re.IGNORECASE)
_NOTHING = "COMMENT NL NEWLINE INDENT DEDENT ENCODING ENDMARKER"
NOTHING = {getattr(tokenize, name) for name in _NOTHING.split()}


class Lines(NamedTuple):
    """The lines of a file by what they hold."""

    total: int
    blank: int
    code: int
    docstring: int
    comments: int
    licence: int


class Import(NamedTuple):
    """One module of the project that a file imports.

    Attributes:
        target: The imported module, by its full name.
        name: What is taken from it; empty where the module itself is imported.
        line: Where.
        kind: `MODULE`, `FUNCTION` or `TYPING`.
    """

    target: str
    name: str
    line: int
    kind: str


@dataclass
class File:
    """A Python file of a project.

    Attributes:
        path: From the project's root.
        text: What it holds.
        linked: The path at which it is imported, where that is another one.
    """

    path: PurePosixPath
    text: str
    linked: PurePosixPath | None = None
    imports: list[Import] = field(default_factory=list)
    aliases: dict[str, str] = field(default_factory=dict)  # names that stand for modules of the project

    @property
    def module(self) -> str:
        """Return the full name of the module."""
        parts = (self.linked or self.path).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def is_package(self) -> bool:
        """Whether the file is a package's ``__init__``."""
        return self.path.name == "__init__.py"

    @property
    def is_test(self) -> bool:
        """Whether the file holds tests, by its name."""
        return self.path.name.startswith("test_") or self.path.stem.endswith("_test")

    @property
    def is_for_tests(self) -> bool:
        """Whether the file is there for tests alone."""
        return self.is_test or "tests" in self.path.parts[:-1]

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree."""
        return ast.parse(self.text)


def count_lines(text: str) -> Lines:
    """Count the lines of a file by what they hold; a line with code and a comment is code."""
    lines = text.splitlines()
    docstrings = {number for node in _docstrings(ast.parse(text)) for number in range(node.lineno, _end(node) + 1)}
    code: set[int] = set()
    comments: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not token.line[: token.start[1]].strip():
            comments.add(token.start[0])
        elif token.type not in NOTHING:
            code.update(range(token.start[0], token.end[0] + 1))
    blank = {number for number, line in enumerate(lines, 1) if not line.strip()}
    licence = _licence(lines)
    return Lines(
        len(lines),
        len(blank),
        len(code - docstrings - blank),
        len(docstrings - blank),
        len(comments) - licence,
        licence,
    )


def _docstrings(tree: ast.Module) -> Iterator[ast.Expr]:
    for node in ast.walk(tree):
        if docstring := _docstring(node):
            yield docstring


def _docstring(node: ast.AST) -> ast.Expr | None:
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
        first = node.body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            return first
    return None


def _licence(lines: Sequence[str]) -> int:
    """Return how many lines of comments the file opens with, if they name a licence."""
    header = []
    for line in lines:
        if not line.startswith("#"):
            break
        header.append(line)
    return len(header) if LICENCE.search("\n".join(header)) else 0


def _end(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def function_lengths(tree: ast.Module) -> list[int]:
    """Return the lines of each function and method, without its docstring."""
    lengths = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = _docstring(node)
            without = 0 if docstring is None else _end(docstring) - docstring.lineno + 1
            lengths.append(_end(node) - node.lineno + 1 - without)
    return lengths


class Project:
    """The Python files of a project, and which of them import which.

    Args:
        texts: The text of each file, by its path from the project's root.
        links: By folder, the path at which it is imported, where that is another one.
    """

    def __init__(self, texts: Mapping[str, str], links: Mapping[str, str] | None = None) -> None:
        files = [File(PurePosixPath(path), text) for path, text in sorted(texts.items())]
        for file in files:
            for folder, link in (links or {}).items():
                if file.path.is_relative_to(folder):
                    file.linked = PurePosixPath(link) / file.path.relative_to(folder)
        self.files = {file.module: file for file in files}
        for file in files:
            file.imports = list(self._imports(file))

    @property
    def source(self) -> list[File]:
        """The files that are neither tests, benchmarks, examples nor docs."""
        return [
            file
            for file in self.files.values()
            if not file.is_for_tests
            and not NOT_SOURCE & set(file.path.parts[:-1])
            and file.path.name not in NO_MODULES
            and not file.path.parts[0].startswith(".")
        ]

    @property
    def tests(self) -> list[File]:
        """The files that are there for tests alone."""
        return [file for file in self.files.values() if file.is_for_tests]

    def _imports(self, file: File) -> Iterator[Import]:
        for node, kind in _import_statements(file.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name in self.files:
                        file.aliases[alias.asname or alias.name] = alias.name
                        yield Import(alias.name, "", node.lineno, kind)
                continue
            package = self._package(file, node)
            for alias in node.names:
                submodule = f"{package}.{alias.name}"
                if submodule in self.files:
                    file.aliases[alias.asname or alias.name] = submodule
                    yield Import(submodule, "", node.lineno, kind)
                elif package in self.files:
                    yield Import(package, alias.name, node.lineno, kind)

    def _package(self, file: File, node: ast.ImportFrom) -> str:
        """Return the full name of what is imported from."""
        if node.level:
            here = file.module.split(".") if file.module else []
            kept = len(here) - node.level + file.is_package
            return ".".join([*here[:kept], *([node.module] if node.module else [])])
        name = node.module or ""
        sibling = ".".join([*file.path.parent.parts, name])  # pytest puts the folder of a test on the path
        return sibling if name not in self.files and sibling in self.files else name

    def graph(self, kinds: Iterable[str]) -> dict[str, set[str]]:
        """Return for each module of the source the others that it imports in one of the ways."""
        source, kinds = {file.module for file in self.source}, {*kinds}
        return {
            name: {each.target for each in self.files[name].imports if each.kind in kinds} & source - {name}
            for name in source
        }

    def behind(self, module: str) -> list[File]:
        """Return a module and all of the source that it imports, directly or not."""
        graph = self.graph((MODULE, FUNCTION))
        return [self.files[name] for name in sorted({module} | reachable(graph, module))]

    def find_dqn(self) -> str | None:
        """Return the module that defines the agent of DQN, None where there is none."""
        defined = {
            (node.name, file.module)
            for file in self.source
            for node in file.tree.body
            if isinstance(node, ast.ClassDef) and node.name in DQN_CLASSES
        }
        ranked = sorted(defined, key=lambda each: (DQN_CLASSES.index(each[0]), each[1]))
        return ranked[0][1] if ranked else None

    def private_names(self, files: Iterable[File]) -> list[str]:
        """Say where the files take a private name from another file of the project."""
        found = set()
        for file in files:
            for each in file.imports:
                name = each.name or each.target.rpartition(".")[2]
                if is_private(name) and not (file.is_package and not each.name):
                    found.add(f"{file.path}:{each.line} {name}")
            for node in ast.walk(file.tree):
                if isinstance(node, ast.Attribute) and is_private(node.attr):
                    owner = ast.unparse(node.value)
                    if owner in file.aliases:
                        found.add(f"{file.path}:{node.lineno} {owner}.{node.attr}")
        return sorted(found)

    def private_attributes(self, files: Iterable[File]) -> list[str]:
        """Say where the files read a private attribute of an object that is not `self`."""
        return [
            f"{file.path}:{node.lineno} {ast.unparse(node)}"
            for file in files
            for node in ast.walk(file.tree)
            if isinstance(node, ast.Attribute) and is_private(node.attr)
            if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
        ]

    def tests_importing_tests(self) -> list[str]:
        """Say which files of tests import which others, one line for each pair."""
        return sorted(
            {
                f"{file.path} {each.target}"
                for file in self.files.values()
                if file.is_test
                for each in file.imports
                if self.files[each.target].is_test and each.target != file.module
            }
        )


def _import_statements(tree: ast.Module) -> Iterator[tuple[ast.Import | ast.ImportFrom, str]]:
    """Yield all imports of a file, and where they stand; those for type checking are so inside functions too."""

    def walk(node: ast.AST, kind: str) -> Iterator[tuple[ast.Import | ast.ImportFrom, str]]:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, kind
        elif isinstance(node, ast.If) and ast.unparse(node.test).rpartition(".")[2] == "TYPE_CHECKING":
            for child in node.body:
                yield from walk(child, TYPING)
            for child in node.orelse:
                yield from walk(child, kind)
        else:
            inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and kind == MODULE
            for inner in ast.iter_child_nodes(node):
                yield from walk(inner, FUNCTION if inside else kind)

    yield from walk(tree, MODULE)


# Of named tuples, of a process that ends at once, and of what a notebook shows.
DOCUMENTED = ("_", "_asdict", "_exit", "_fields", "_make", "_replace", "_repr_html_")


def is_private(name: str) -> bool:
    """Return whether a name begins with an underscore and is none that Python or a notebook documents."""
    return name.startswith("_") and not name.startswith("__") and name not in DOCUMENTED


def reachable(graph: Mapping[str, Iterable[str]], start: str) -> set[str]:
    """Return what can be reached from a node by at least one edge; the node itself only through a circle."""
    found: set[str] = set()
    waiting = [*graph[start]]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting.extend(graph[node])
    return found


def circles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Return the strongly connected components of more than one node."""
    reached = {node: reachable(graph, node) for node in graph}
    found = {
        frozenset(other for other in reached[node] if node in reached[other]) for node in graph if node in reached[node]
    }
    return sorted(sorted(circle) for circle in found if len(circle) > 1)


def measure(project: Project, dqn: str | None) -> dict[str, str]:
    """Return the rows of the table for one project, as text."""
    source, counted = project.source, [count_lines(file.text) for file in project.source]
    total = Lines(*map(sum, zip(*counted, strict=True)))
    test_lines = sum(len(file.text.splitlines()) for file in project.tests)
    entry = dqn or project.find_dqn()
    behind = [] if entry is None else project.behind(entry)
    reading = sum(count_lines(file.text).total for file in behind)
    rows = {
        "source files": f"{len(source)}",
        "source lines": f"{total.total:,}",
        "code lines": f"{total.code:,}",
        "file: median / p90 / max": _spread(lines.total for lines in counted),
        "function: median / p90 / max": _spread(n for file in source for n in function_lengths(file.tree)),
        "docstrings, share of lines": f"{total.docstring / max(1, total.total - total.blank):.2f}",
        "full-line comments": f"{total.comments}",
        "the same per 1,000 lines": f"{1000 * total.comments / max(1, total.total - total.licence):.1f}",
        "test lines / source lines": f"{test_lines / max(1, total.total):.2f}",
        "behind one DQN, files": f"{len(behind)}" if behind else "-",
        "behind one DQN, lines": f"{reading:,}" if behind else "-",
        "behind one DQN, module": entry or "-",
        "private names from another file": f"{len(project.private_names(source))}",
        "the same in tests": f"{len(project.private_names(project.tests))}",
        "private attributes in tests": f"{len(project.private_attributes(project.tests))}",
        "test files importing another": f"{len(project.tests_importing_tests())}",
    }
    for count, kinds in enumerate(_KINDS, 1):
        found = circles(project.graph(_KINDS[:count]))
        modules = sum(map(len, found))
        rows[f"circles {kinds}"] = f"{len(found)} of {modules} modules" if found else "0"
    return rows


_KINDS = (MODULE, FUNCTION, TYPING)


def _spread(values: Iterable[int]) -> str:
    ordered = sorted(values)
    if not ordered:
        return "-"
    return f"{statistics.median(ordered):.0f} / {ordered[-(len(ordered) // 10) - 1]} / {ordered[-1]}"


def details(project: Project) -> Iterator[str]:
    """Yield what the counts of the working tree count, line by line."""
    for circle in circles(project.graph(_KINDS)):
        yield f"circle: {', '.join(circle)}"
    found: Mapping[str, Callable[[], Iterable[str]]] = {
        "private name": lambda: project.private_names(project.files.values()),
        "private attribute": lambda: _by_file(project.private_attributes(project.tests)),
        "test imports test": project.tests_importing_tests,
    }
    for what, lines in found.items():
        for line in lines():
            yield f"{what}: {line}"


def _by_file(lines: Iterable[str]) -> list[str]:
    return [f"{path} {count} times" for path, count in Counter(line.partition(":")[0] for line in lines).most_common()]


def read_folder(folder: Path) -> Project:
    """Read the Python files of a folder: those that git does not ignore, or, without git, all but hidden ones.

    Raises:
        ValueError: There are none.
    """
    listed = ["git", "-C", str(folder), "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", "*.py"]
    asked = subprocess.run(listed, capture_output=True, text=True)
    if asked.returncode == 0:
        names = sorted({name for name in asked.stdout.split("\0") if name and (folder / name).is_file()})
    else:
        paths = [path.relative_to(folder) for path in sorted(folder.rglob("*.py"))]
        names = [path.as_posix() for path in paths if not any(part.startswith(".") for part in path.parts)]
    if not names:
        raise ValueError(f"{folder} must hold Python files, found none")
    links = {
        link.resolve().relative_to(folder.resolve()).as_posix(): link.relative_to(folder).as_posix()
        for link in folder.glob("*/*")
        if link.is_symlink() and link.is_dir() and link.resolve().is_relative_to(folder.resolve())
    }
    return Project({name: (folder / name).read_text(encoding="utf-8") for name in names}, links)


def read_commit(repository: Path, commit: str) -> Project:
    """Read the Python files of a commit; the repository may be one without a work tree.

    Raises:
        ValueError: git cannot read it.
    """
    git = ["git", "-C", str(repository)]
    listed = subprocess.run([*git, "ls-tree", "-r", commit], capture_output=True, text=True).stdout.splitlines()
    links = [line.split("\t")[1] for line in listed if line.startswith("120000")]
    archived = subprocess.run([*git, "archive", "--format=tar", commit, "--", "*.py", *links], capture_output=True)
    if archived.returncode:
        raise ValueError(f"git cannot read {commit} of {repository}: {archived.stderr.decode().strip()}")
    with tempfile.TemporaryDirectory() as place:
        subprocess.run(["tar", "-x", "-C", place], input=archived.stdout, check=True)
        return read_folder(Path(place))


def read(place: str) -> Project:
    """Read ``PATH`` or ``PATH@COMMIT``: a folder, or a git repository."""
    path, _, commit = place.rpartition("@") if "@" in place else (place, "", "")
    bare = subprocess.run(
        ["git", "-C", path, "rev-parse", "--is-bare-repository"], capture_output=True, text=True
    ).stdout.strip()
    return read_commit(Path(path), commit or "HEAD") if commit or bare == "true" else read_folder(Path(path))


def print_rows(columns: Mapping[str, Mapping[str, str]]) -> None:
    """Print the table, a column for each project."""
    rows = list(next(iter(columns.values())))
    first = max(map(len, rows))
    widths = {name: max(len(name), *map(len, column.values())) for name, column in columns.items()}
    print(" " * first, *(f"{name:>{widths[name]}}" for name in columns), sep="  ")
    for row in rows:
        print(f"{row:{first}}", *(f"{column[row]:>{widths[name]}}" for name, column in columns.items()), sep="  ")


def main() -> None:
    parser = parser_of(
        __doc__,
        commit=(str, "an earlier commit of this project"),
        list=(False, "print what was counted in the working tree"),
    )
    pairs = {"beside": "NAME=PATH[@COMMIT]", "dqn": "NAME=MODULE"}  # another project; where a column's DQN is
    for name, metavar in pairs.items():
        parser.add_argument(f"--{name}", action="append", default=[], metavar=metavar)
    arguments = parser.parse_args()
    for pair in (*arguments.beside, *arguments.dqn):
        if "=" not in pair:
            parser.error(f"--beside and --dqn need NAME=..., got {pair!r}")
    projects = {} if arguments.commit is None else {arguments.commit: read_commit(ROOT, arguments.commit)}
    projects["now"] = read_folder(ROOT)
    projects |= {name: read(place) for name, _, place in (pair.partition("=") for pair in arguments.beside)}
    entries = dict(pair.split("=", 1) for pair in arguments.dqn)
    for name, entry in entries.items():
        if name not in projects or entry not in projects[name].files:
            parser.error(f"--dqn must name a column ({', '.join(projects)}) and a module of it, got {name}={entry}")
    print_rows({name: measure(project, entries.get(name)) for name, project in projects.items()})
    if arguments.list:
        print(*details(projects["now"]), sep="\n")


if __name__ == "__main__":
    main()

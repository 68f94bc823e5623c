"""What importing async_wrappers brings along, and what it and agents may import."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

import agents
import async_wrappers

ROOT = Path(async_wrappers.__file__).parents[1]


def imported_roots(source: str) -> set[str]:
    """Return the top-level packages that a module's text imports, anywhere in it."""
    roots = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            roots |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            roots.add(node.module.split(".")[0])
    return roots


def test_importing_the_package_imports_nothing_heavy() -> None:
    heavy = ("torch", "gin", "cv2", "ale_py", "matplotlib", "agents", "tensorboard", "moviepy")
    code = f"import sys, async_wrappers; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_environments_import_without_atari_torch_or_gin() -> None:
    code = "import sys, async_wrappers.envs; print([n for n in ('torch', 'gin', 'ale_py', 'cv2') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_package_says_that_it_is_typed() -> None:
    assert files(async_wrappers).joinpath("py.typed").is_file()


def test_the_version_is_a_string_of_numbers() -> None:
    assert isinstance(async_wrappers.__version__, str)
    assert all(part.isdigit() for part in async_wrappers.__version__.split(".")[:2])


def test_both_packages_have_the_same_version() -> None:
    assert agents.__version__ == async_wrappers.__version__


def test_every_public_name_exists() -> None:
    assert {"RealtimeDelay", "AppliedActions"} <= set(async_wrappers.__all__)
    for name in async_wrappers.__all__:
        assert getattr(async_wrappers, name) is not None


@pytest.mark.parametrize(("package", "forbidden"), [("async_wrappers", "agents"), ("agents", "async_wrappers")])
def test_neither_package_imports_the_other(package: str, forbidden: str) -> None:
    meeting_place = ROOT / "agents" / "cli"  # a command of train.py names agents and environments alike
    modules = [path for path in sorted((ROOT / package).rglob("*.py")) if meeting_place not in path.parents]
    assert modules
    guilty = [str(path) for path in modules if forbidden in imported_roots(path.read_text(encoding="utf-8"))]
    assert guilty == []


def test_nothing_but_train_py_imports_the_commands() -> None:
    sources = [path for package in ("async_wrappers", "agents") for path in (ROOT / package).rglob("*.py")]
    assert (ROOT / "agents" / "cli" / "train.py") in sources
    others = [path for path in sources if (ROOT / "agents" / "cli") not in path.parents]
    assert [str(path) for path in others if "agents.cli" in path.read_text(encoding="utf-8")] == []


@pytest.mark.parametrize(
    "source",
    ["import agents.dqn", "def f():\n    from agents import dqn", "if TYPE_CHECKING:\n    import numpy, agents as a"],
)
def test_the_search_for_imports_finds_them_wherever_they_hide(source: str) -> None:
    assert "agents" in imported_roots(source)

"""What importing async_wrappers brings along, and what it and agents may import."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

import async_wrappers

ROOT = Path(async_wrappers.__file__).parents[1]


def imported(source: str) -> set[str]:
    """Return what a module's text imports of async_wrappers, anywhere in it, as ``policy.Decision``."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    ours = [name.partition(".") for name in names]
    return {rest for package, _, rest in ours if package == "async_wrappers"}


def imported_late() -> dict[str, str]:
    """Return the names that type checkers see and that are imported when they are asked for, each with its module."""
    tree = ast.parse((ROOT / "async_wrappers" / "__init__.py").read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def test_importing_the_package_imports_nothing_heavy() -> None:
    heavy = ("torch", "gin", "cv2", "ale_py", "matplotlib", "async_wrappers.agents", "tensorboard", "moviepy")
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


def test_agents_has_one_name() -> None:
    code = "import agents.registry"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == "ImportError: import this package as async_wrappers.agents, not as agents"


def test_every_public_name_exists_and_is_what_its_module_has() -> None:
    for name in async_wrappers.__all__:
        assert getattr(async_wrappers, name) is not None
    assert imported_late()
    for name, module in imported_late().items():
        assert getattr(async_wrappers, name) is getattr(importlib.import_module(module), name)
    with pytest.raises(AttributeError, match="has no attribute 'Lognormal'"):
        async_wrappers.Lognormal  # noqa: B018


def test_all_public_names_are_listed_before_anything_is_imported() -> None:
    code = "import sys, async_wrappers as a; names = dir(a); assert 'async_wrappers.live' not in sys.modules; "
    code += "assert len(names) == len(set(names)); print(*names)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    packages = {
        "analysis",
        "batched",
        "envs",
        "latency",
        "live",
        "schedule",
        "simulators",
        "tensors",
        "testing",
        "wrappers",
    }
    assert set(done.stdout.split()) == {*async_wrappers.__all__, *packages}
    folders = {path.parent.name for path in (ROOT / "async_wrappers").glob("*/__init__.py")}
    assert packages == folders - {"agents", "cli", "configs", "fleet"}


def test_type_checkers_see_the_names_that_are_imported_late() -> None:
    code = "import async_wrappers as a; print(*(name for name in a.__all__ if name not in vars(a)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == imported_late().keys()


def test_latency_models_and_strategies_are_at_the_top() -> None:
    from async_wrappers.configurables import CONFIGURABLES

    names = {each.__name__ for each in CONFIGURABLES if each.__module__.startswith("async_wrappers.")}
    assert {"LogNormal", "Tickets", "AsyncRunner"} <= names <= set(async_wrappers.__all__)


def test_what_the_docs_take_from_the_top_is_there() -> None:
    pages = [ROOT / "README.md", *(path for path in (ROOT / "docs").rglob("*.*") if path.suffix in (".md", ".py"))]
    taken = set[str]()
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for names in re.findall(r"^ *from async_wrappers import (\([^)]*\)|.*)$", text, re.MULTILINE):
            taken |= set(re.findall(r"\w+", names.partition("#")[0]))
    assert {"RealtimeDelay", "LogNormal", "probe_delay"} <= taken
    assert taken <= {*async_wrappers.__all__, "live", "agents"}


def sources(package: str) -> list[Path]:
    """Return the modules of a package but the commands, which name agents and environments alike."""
    return [path for path in sorted((ROOT / package).rglob("*.py")) if ROOT / "agents" / "cli" not in path.parents]


def test_async_wrappers_imports_no_agents() -> None:
    modules = sources("async_wrappers")
    assert modules
    guilty = [path for path in modules if any(name.startswith("agents") for name in imported(path.read_text("utf-8")))]
    assert guilty == []


def test_agents_import_only_small_modules_of_async_wrappers_and_these_import_each_other_alone() -> None:
    small = {
        "array_libraries",
        "checks",
        "extras",
        "files",
        "fleet",
        "frame_rate",
        "gymnasium_api",
        "needs",
        "observations",
        "own_code",
        "own_returns",
        "policy",
        "posix",
        "printing",
        "ray_cluster",
        "settings",
        "version",
        "wrapper_statistics",
    }
    taken = {name for path in sources("agents") for name in imported(path.read_text("utf-8"))}
    live = {name for name in taken if name.startswith("live")}
    # `watch` shows recordings of live play.
    assert {".".join(name.split(".")[:3]) for name in live} == {
        *("live.recording.recording_files", "live.recording.reader", "live.report.shares")
    }
    assert {"agents", "policy"} <= {name.partition(".")[0] for name in taken - live} <= small | {"agents"}
    modules = [
        path for name in small for path in (ROOT / "async_wrappers").glob(f"{name}*/*.py") if path.parts[-2] == name
    ]
    modules += [path for name in small if (path := ROOT / "async_wrappers" / f"{name}.py").is_file()]
    texts = [path.read_text("utf-8") for path in modules]
    assert {name.partition(".")[0] for text in texts for name in imported(text)} <= small


def test_nothing_but_the_console_command_imports_the_commands() -> None:
    sources = [path for package in ("async_wrappers", "agents") for path in (ROOT / package).rglob("*.py")]
    assert (ROOT / "agents" / "cli" / "train.py") in sources
    others = [path for path in sources if (ROOT / "agents" / "cli") not in path.parents]
    named = [path for path in others if "async_wrappers.agents.cli" in path.read_text(encoding="utf-8")]
    assert named == [ROOT / "async_wrappers" / "console.py"]


@pytest.mark.parametrize(
    "source",
    [
        "import async_wrappers.agents.dqn",
        "def f():\n    from async_wrappers.agents import dqn",
        "def f():\n    from async_wrappers import agents",
        "if TYPE_CHECKING:\n    import numpy, async_wrappers.agents as a",
    ],
)
def test_the_search_for_imports_finds_them_wherever_they_hide(source: str) -> None:
    assert {name.partition(".")[0] for name in imported(source)} == {"agents"}
    assert {name.partition(".")[0] for name in imported(source.replace("agents", "live"))} == {"live"}


def test_acting_imports_no_replay() -> None:
    modules = sorted((ROOT / "agents" / "acting").glob("*.py"))
    assert len(modules) > 4
    assert [path for path in modules if "async_wrappers.agents.replay" in path.read_text(encoding="utf-8")] == []


def test_agents_without_memory_do_not_import_the_policy_of_those_with_memory() -> None:
    module = "async_wrappers.agents.families.value_based.dqn"
    code = f"import sys, {module}; print([n for n in sys.modules if 'recurrent' in n])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

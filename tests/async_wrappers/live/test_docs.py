"""The backend and the strategy of docs/live/own_parts.md keep the contracts. (tests/docs runs what the pages show.)"""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

from async_wrappers.testing.backends import BackendContract

DOCS = Path(__file__).parents[3] / "docs"
PAGE, EXAMPLE = DOCS / "live" / "own_parts.md", DOCS / "examples" / "pool_backend.py"


def defined() -> dict[str, Any]:
    """Return the names that the page's blocks define, without running what is under a main guard."""
    names: dict[str, Any] = {"__name__": "examples"}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        exec(block, names)
    return names


TestEveryOther = defined()["TestEveryOther"]


class TestPoolBackend(BackendContract):
    backend = runpy.run_path(str(EXAMPLE), run_name="example")["PoolBackend"]


def test_the_backend_plays_as_its_file_does(capfd: Any) -> None:
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert "'fresh'" in capfd.readouterr().out

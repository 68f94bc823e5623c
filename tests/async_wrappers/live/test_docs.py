"""The backend and the strategy of docs/live/own_parts.md keep the contracts. (tests/docs runs what the pages show.)"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[3] / "docs" / "live" / "own_parts.md"


def defined() -> dict[str, Any]:
    """Return the names that the page's blocks define, without running what is under a main guard."""
    names: dict[str, Any] = {"__name__": "examples"}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        exec(block, names)
    return names


NAMES = defined()
TestPoolBackend, TestEveryOther = NAMES["TestPoolBackend"], NAMES["TestEveryOther"]

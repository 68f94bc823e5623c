"""What docs/async_runner.md shows runs, and its backend and strategy keep the contracts."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[3] / "docs" / "async_runner.md"


def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)


def defined() -> dict[str, Any]:
    """Return the names that the examples define, without running what is under a main guard."""
    names: dict[str, Any] = {"__name__": "examples"}
    exec("\n".join(blocks()), names)
    return names


NAMES = defined()
TestPoolBackend, TestEveryOther = NAMES["TestPoolBackend"], NAMES["TestEveryOther"]


def test_the_examples_run_as_they_stand(capfd: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="workers=")
        exec("\n".join(blocks()), {"__name__": "__main__"})
    out = capfd.readouterr().out
    assert "with a fresh action" in out  # of the first
    assert "'mean': 5.0" in out  # of the strategy

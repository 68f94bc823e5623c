"""What docs/async_runner.md and docs/live.md show runs, and the backend and strategy there keep the contracts."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[3] / "docs"


def blocks(page: str = "async_runner.md") -> list[str]:
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


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


def test_the_learner_of_the_live_page_learns(capfd: pytest.CaptureFixture[str]) -> None:
    exec("\n".join(blocks("live.md")), {"__name__": "__main__"})
    told = re.search(r"(\d+) updates; \(EpisodeTiming", capfd.readouterr().out)
    assert told is not None
    assert int(told[1]) > 0

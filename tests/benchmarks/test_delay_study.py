"""benchmarks/studies/delay_study.py: the part of V-trace stands beside that of DQN, and its table is right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.studies import delay_study


def played(task: str, name: str, env: str, seed: int, seconds: float, episodes: int, base_dir: Path) -> dict[str, Any]:
    assert (seconds, episodes, base_dir) == (15.0, 20, Path("trials"))
    return {"mean": 100.0 * int(task.removeprefix("study_")) + 10 * len(name) * (env == "acrobot") + seed}


def test_the_second_part_has_a_row_for_each_delay_and_the_first_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "results").mkdir()
    page = tmp_path / "results" / "delay_study.md"
    page.write_text("# Of DQN\n\n")
    monkeypatch.setattr(delay_study, "DOCS", tmp_path)
    monkeypatch.setattr(delay_study, "played", played)
    for _ in range(2):  # the second time over the first
        delay_study.write(None, delay_study.vtrace_part(Path("trials"), 2, 15.0))
    text = page.read_text()
    assert text.startswith("# Of DQN\n\n## V-trace: ") and text.count(delay_study.VTRACE) == 1
    lines = text.splitlines()
    start = lines.index("### Acrobot-v1, before the first action: 1")
    assert lines[start + 2] == "| delay, frames | told nothing | LSTM at release | chunk, told its prefix |"
    assert lines[start + 4 : start + 6] == ["| 0 | 120, 121 |  |  |", "| 2 | 320, 321 | 350, 351 | 420, 421 |"]
    assert "| 8 | 800, 801 | 800, 801 | 800, 801 |" in lines  # of CartPole
    delay_study.write("# Of DQN, again\n\n", None)
    assert page.read_text() == text.replace("# Of DQN", "# Of DQN, again", 1)

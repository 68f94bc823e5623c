"""benchmarks/studies/delay_study.py: its tables are right, and go between the page's markers, whose words stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.studies import delay_study


def played(task: str, name: str, env: str, seed: int, seconds: float, episodes: int, base_dir: Path) -> dict[str, Any]:
    assert (seconds, episodes, base_dir) == (15.0, 20, Path("trials"))
    return {"mean": 100.0 * int(task.removeprefix("study_")) + 10 * len(name) * (env == "acrobot") + seed}


def test_the_tables_of_v_trace_have_a_row_for_each_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delay_study, "played", played)
    lines = "\n".join(delay_study.vtrace_tables(Path("trials"), 2, 15.0)).splitlines()
    start = lines.index("### Acrobot-v1, before the first action: 1")
    assert lines[start + 2] == "| delay, frames | told nothing | LSTM at release | chunk, told its prefix |"
    assert lines[start + 4 : start + 6] == ["| 0 | 120, 121 |  |  |", "| 2 | 320, 321 | 350, 351 | 420, 421 |"]
    assert "| 8 | 800, 801 | 800, 801 | 800, 801 |" in lines  # of CartPole


def test_a_part_is_written_between_its_markers_and_the_words_around_it_stay(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(delay_study.PAGE.read_text())
    before = page.read_text()
    for part in ("DQN", "V-trace"):
        for _ in range(2):  # the second time over the first
            delay_study.write(part, ["| a |"], page)
        assert page.read_text().count(f"<!-- {part}: begin -->\n\n| a |\n\n<!-- {part}: end -->") == 1
    for words in before.split("<!-- ")[0::2]:
        assert words.partition("-->")[2].strip() in page.read_text()
    with pytest.raises(ValueError, match="must hold the lines <!-- SAC: begin -->"):
        delay_study.write("SAC", [], page)


def test_the_page_holds_the_tables_as_they_are_written(tmp_path: Path) -> None:
    scores = dict.fromkeys(delay_study.cases(2, 10), 100.0)
    page = tmp_path / "page.md"
    page.write_text(delay_study.PAGE.read_text())
    delay_study.write("DQN", delay_study.dqn_tables(scores), page)
    shapes = [[line.count("|") for line in each.read_text().splitlines()] for each in (page, delay_study.PAGE)]
    assert shapes[0] == shapes[1]
    assert "| 2 | 100 [100, 100] | 100 [100, 100] | 100 [100, 100] | 100 [100, 100] |" in page.read_text()

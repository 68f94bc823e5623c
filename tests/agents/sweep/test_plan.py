"""The plan of a sweep: its trials and their seeds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from async_wrappers.agents.config.config import ConfigError
from async_wrappers.agents.sweep.grid import Point
from async_wrappers.agents.sweep.plan import PLAN, SweepPlan, arm_of, is_continued, read_plan, title_of, write_plan


class TestSeeds:
    def plan(self, *points: Point) -> SweepPlan:
        return SweepPlan(list(points), [], 3, [], "f")

    def test_a_seed_depends_on_the_point_and_its_number_and_not_on_the_rest_of_the_grid(self) -> None:
        one, other = Point("", {"delay": "1", "noops": "0"}), Point("", {"delay": "8", "noops": "0"})
        alone, both = self.plan(one).trials(), self.plan(other, one).trials()
        assert [trial.seed for trial in alone] == [trial.seed for trial in both if trial.bindings == one.bindings]
        assert len({trial.seed for trial in both}) == 6
        assert all(0 <= trial.seed < 2**31 for trial in both)

    def test_more_seeds_leave_the_trials_that_there_are_where_they_are(self) -> None:
        points = [Point("", {"delay": str(delay)}) for delay in range(3)]
        few, many = SweepPlan(points, [], 1, [], "f").trials(), SweepPlan(points, [], 2, [], "f").trials()
        assert many[:3] == few


class TestSettings:
    plan = SweepPlan([Point("", {"delay": "1"})], [], 3, [], "train.py", {"A.cost": "0.01", "A.rows": "20"})

    def test_a_sweep_goes_on_with_the_settings_that_it_began_with(self, tmp_path: Path) -> None:
        write_plan(self.plan, tmp_path)
        assert read_plan(tmp_path) == self.plan
        assert is_continued(self.plan, tmp_path)

    @pytest.mark.parametrize(
        ("settings", "difference"),
        [
            ({"A.cost": "0.02", "A.rows": "20"}, r"A\.cost = 0\.01 there, 0\.02 here"),
            ({"A.cost": "0.01"}, r"A\.rows = 20 there, not bound here"),
            ({"A.cost": "0.01", "A.rows": "20", "A.more": "1"}, r"A\.more = not bound there, 1 here"),
        ],
    )
    def test_with_others_it_is_refused_in_a_sentence(
        self, tmp_path: Path, settings: dict[str, str], difference: str
    ) -> None:
        write_plan(self.plan, tmp_path)
        with pytest.raises(ConfigError, match=rf"begun with other settings \({difference}\): choose another base_dir$"):
            is_continued(replace(self.plan, settings=settings), tmp_path)

    def test_a_plan_of_before_has_none_and_goes_on(self, tmp_path: Path) -> None:
        write_plan(self.plan, tmp_path)
        facts = json.loads((tmp_path / PLAN).read_text())
        del facts["settings"]
        (tmp_path / PLAN).write_text(json.dumps(facts))
        assert read_plan(tmp_path).settings is None
        assert is_continued(self.plan, tmp_path)


def test_a_trial_is_titled_by_its_arm_or_its_values_and_another_run_by_its_directory(tmp_path: Path) -> None:
    points = [Point("told", {"A.delay": "4"}), Point("", {"A.delay": "4", "A.noops": "0"})]
    for name in ("0000", "0001", "other"):
        (tmp_path / "trials" / name).mkdir(parents=True)
    assert title_of(tmp_path / "trials" / "0000") == "0000"
    write_plan(SweepPlan(points, ["A.delay"], 1, [], "train.py"), tmp_path)
    titles = [title_of(tmp_path / "trials" / name) for name in ("0000", "0001", "other")]
    assert titles == ["told", "delay 4, noops 0", "other"]
    assert [arm_of(tmp_path / "trials" / name) for name in ("0000", "0001", "other")] == ["told", "", ""]

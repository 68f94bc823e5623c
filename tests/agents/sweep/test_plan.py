"""The plan of a sweep: its trials and their seeds."""

from __future__ import annotations

from async_wrappers.agents.sweep.grid import Point
from async_wrappers.agents.sweep.plan import SweepPlan


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

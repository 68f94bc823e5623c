"""benchmarks/studies/realtime_memory.py: its ways are experiments that begin, and its table is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from async_wrappers.agents.registry import create_runner
from benchmarks.studies.realtime_memory import ENVIRONMENTS, STUDY, TASKS, load
from benchmarks.studies.trials import interval_95, table
from tests.worlds.bindings import no_bindings  # noqa: F401 - a fixture

WAYS = [
    (task, name, env) for task, ways in TASKS.items() for env, name in zip(ENVIRONMENTS, [*ways, *ways], strict=False)
] + [(task, name, env) for task, env in (("study_2", "cartpole"), ("study_8", "acrobot")) for name in STUDY[env][task]]


@pytest.mark.parametrize(("task", "name", "env"), WAYS)
def test_every_way_begins_in_every_environment(task: str, name: str, env: str, tmp_path: Path) -> None:
    load((TASKS | STUDY.get(env, {}))[task][name], env, seed=3)
    runner = create_runner(tmp_path)
    assert runner.settings.seed == 3 and ENVIRONMENTS[env][0] in runner.environment.unwrapped.spec.id
    assert runner.agent.num_envs in (32, 64)
    assert runner.environment.get_wrapper_attr("playout") > 0


def test_the_interval_is_students() -> None:
    # Mean 2, deviation 1, t of 2 degrees of freedom 4.3027: 2 -+ 4.3027 / sqrt 3.
    assert interval_95([1.0, 2.0, 3.0]) == pytest.approx((2 - 2.48414, 2 + 2.48414), abs=1e-4)


def test_a_table_has_medians_and_differences_seed_by_seed() -> None:
    def trial(mean: float) -> dict[str, float]:
        return {"mean": mean, "frames": 1000, "cpu_seconds": 28.4}

    ways = {"core": [trial(4.0), trial(9.0)], "nothing": [trial(1.0), trial(2.0), trial(5.0)]}
    found = {way: dict(enumerate(trials)) for way, trials in ways.items()}
    pairs = [("core", "nothing"), ("core", "core"), ("core", "not played")]
    assert table("delay 4", found, pairs, columns=("frames", "cpu_seconds")).splitlines() == [
        "| delay 4 | seed 0 | seed 1 | seed 2 | mean | median | frames | cpu_seconds |",
        "|---|---|---|---|---|---|---|---|",
        "| core | 4.0 | 9.0 |  | 6.5 | 6.5 | 1,000 | 28 |",
        "| nothing | 1.0 | 2.0 | 5.0 | 2.7 | 2.0 | 1,000 | 28 |",
        "",
        "core less nothing: 5.00, 95 % interval -20.41 to 30.41 (2 seeds).",
    ]


def test_a_table_is_of_the_score_that_is_asked_for() -> None:
    trial = {"mean": 4.0, "drawn": 7.0, "frames": 1000, "cpu_seconds": 28.4}
    found = table("delay 4", {"core": {0: trial}}, (), "drawn", ("frames", "cpu_seconds"))
    assert found.splitlines()[2] == "| core | 7.0 | 7.0 | 7.0 | 1,000 | 28 |"

"""What a run leaves of itself: a row for each episode, best scores, how long its parts took, and its log."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_wrappers.agents.experiment.closing_report import compare_with_baselines, training_facts, write_report
from async_wrappers.agents.experiment.experiment import Experiment
from async_wrappers.agents.experiment.metrics import (
    EPISODES,
    EpisodeRow,
    EpisodeTable,
    read_iterations,
)
from async_wrappers.agents.registry import create_runner
from async_wrappers.agents.timing import PARTS, PartTimes
from tests.worlds.experiments import QUICK_LIVE, build_live, load_gin, make_runner, run


def read_episodes(base_dir: Path) -> list[EpisodeRow]:
    """The rows of a run's ``episodes.csv``, without a line that is torn."""
    kinds = (str, int, int, float, int, int, int, float, lambda text: bool(int(text)))
    lines = (base_dir / EPISODES).read_text().rpartition("\n")[0].splitlines()[1:]
    cells = [line.split(",") for line in lines]
    return [EpisodeRow(*(kind(text) if text else None for kind, text in zip(kinds, row, strict=True))) for row in cells]


def episodes_of(base_dir: Path, phase: str) -> list[tuple[float, int]]:
    return [(row.score, row.length) for row in read_episodes(base_dir) if row.phase == phase]


def of_iterations(base_dir: Path, phase: str) -> list[tuple[float, int]]:
    """The same from the statistics of the iterations."""
    return [
        (score, length)
        for line in read_iterations(base_dir)
        for score, length in zip(line[f"{phase}_episode_returns"], line[f"{phase}_episode_lengths"], strict=True)
    ]


def without_time(base_dir: Path) -> list[EpisodeRow]:
    return [row._replace(seconds=0.0) for row in read_episodes(base_dir)]


class TestTable:
    def row(self, phase: str, number: int) -> EpisodeRow:
        return EpisodeRow(phase, number, number // 2, float(number), 7, 7 * number, number, 0.25 * number, number == 1)

    def test_what_is_written_is_read(self, tmp_path: Path) -> None:
        table = EpisodeTable(tmp_path, {})
        rows = [self.row("train", 0), self.row("train", 1), self.row("eval", 0)._replace(updates=None, won=None)]
        table.add(rows)
        table.add(rows)  # they are there already
        assert read_episodes(tmp_path) == rows
        table.close()
        assert (tmp_path / EPISODES).read_text().splitlines()[:2] == [
            "phase,episode,iteration,score,length,frames,updates,seconds,won",
            "train,0,0,0.0,7,0,0,0.0,0",
        ]

    @given(cut=st.integers(0, 400), trained=st.integers(0, 9), evaluated=st.integers(0, 5))
    def test_wherever_the_file_was_torn_a_run_goes_on_with_what_its_checkpoint_holds(
        self, tmp_path_factory: pytest.TempPathFactory, cut: int, trained: int, evaluated: int
    ) -> None:
        base_dir = tmp_path_factory.mktemp("run")
        table = EpisodeTable(base_dir, {})
        for number in range(8):
            table.add([self.row("train", number)])
            if number % 2:
                table.add([self.row("eval", number // 2)])
        table.close()
        path = base_dir / EPISODES
        path.write_bytes(path.read_bytes()[:cut])
        whole = read_episodes(base_dir)
        table = EpisodeTable(base_dir, {"train": trained, "eval": evaluated})
        table.add([self.row("train", trained), self.row("eval", evaluated)])
        table.close()
        kept = [row for row in whole if row.episode < {"train": trained, "eval": evaluated}[row.phase]]
        assert read_episodes(base_dir) == [*kept, self.row("train", trained), self.row("eval", evaluated)]
        assert path.read_bytes().endswith(b"\n") and path.read_text().count("phase,") == 1


class TestRuns:
    def test_each_episode_of_a_run_has_a_row(self, tmp_path: Path) -> None:
        runner = run(tmp_path)
        for phase in ("train", "eval"):
            assert episodes_of(tmp_path, phase) == of_iterations(tmp_path, phase)
        rows = read_episodes(tmp_path)
        trained = [row for row in rows if row.phase == "train"]
        assert [row.frames for row in trained] == np.cumsum([row.length for row in trained]).tolist()
        assert [row.episode for row in trained] == list(range(len(trained)))
        assert [row.iteration for row in rows] == sorted(row.iteration for row in rows)
        assert rows[-1].updates == runner.agent.updates > 0
        assert 0 < rows[0].seconds <= rows[-1].seconds <= runner.clock.seconds
        ends = {row.iteration: row.updates for row in rows}
        played = [line["train_updates"] for line in read_iterations(tmp_path)]
        assert list(ends.values()) == np.cumsum(played).tolist()

    def test_a_run_that_goes_on_has_the_rows_of_an_undisturbed_one(self, tmp_path: Path) -> None:
        run(tmp_path / "straight")
        run(tmp_path / "stopped", num_iterations=2)
        path = tmp_path / "stopped" / EPISODES
        seconds = read_episodes(tmp_path / "stopped")[-1].seconds
        path.write_bytes(path.read_bytes() + b"train,99,2,1.0,5,999,3,0.1,\neval,98,2,1")  # after the checkpoint
        make_runner(tmp_path / "stopped").run_experiment()
        assert without_time(tmp_path / "stopped") == without_time(tmp_path / "straight")
        assert read_episodes(tmp_path / "stopped")[-1].seconds > seconds

    def test_a_run_begun_without_the_table_goes_on_with_it(self, tmp_path: Path) -> None:
        run(tmp_path, num_iterations=2)
        played = len(read_episodes(tmp_path))
        (tmp_path / EPISODES).unlink()
        make_runner(tmp_path).run_experiment()
        rows = read_episodes(tmp_path)
        assert {row.iteration for row in rows} == {2} and min(row.episode for row in rows) > 0
        assert played > 0

    def vector(self, base_dir: Path, iterations: int, *bindings: str) -> Experiment:
        small = (
            f"Runner.num_iterations = {iterations}",
            "Runner.training_steps = 200",
            "Runner.evaluation_steps = 1",
            "Runner.evaluation_episodes = 3",
            "Runner.report_episodes = 0",
            "VectorRunner.num_envs = 4",
            "VectorRunner.checkpoint_every = 1",
            "DQNAgent.min_replay_history = 20",
            "MLPTorso.hidden = (4,)",
            "VectorRunner.replay_ratio = 4.0",
            "DQNAgent.summary_writing_frequency = 2",
        )
        load_gin("configs/apex/cartpole.gin", bindings=[*small, *bindings])
        runner: Experiment = create_runner(base_dir)
        runner.run_experiment()
        return runner

    def test_many_environments_have_a_row_for_each_episode_too(self, tmp_path: Path) -> None:
        runner = self.vector(tmp_path / "straight", 3)
        for phase in ("train", "eval"):
            assert episodes_of(tmp_path / "straight", phase) == of_iterations(tmp_path / "straight", phase)
        rows = [row for row in read_episodes(tmp_path / "straight") if row.phase == "train"]
        assert [row.frames for row in rows] == sorted(row.frames for row in rows)
        assert [row.updates or 0 for row in rows] == sorted(row.updates or 0 for row in rows)
        assert 0 < rows[-1].frames <= 3 * 203
        assert 0 < (rows[-1].updates or 0) <= runner.agent.updates
        self.vector(tmp_path / "stopped", 1)
        (tmp_path / "stopped" / EPISODES).open("a").write("train,999,1,3.0,5,1,1,0.1,\n")
        self.vector(tmp_path / "stopped", 3)
        numbers = [(row.phase, row.episode) for row in read_episodes(tmp_path / "stopped")]
        assert len(numbers) == len(set(numbers)) and ("train", 999) not in numbers
        for phase in ("train", "eval"):
            assert episodes_of(tmp_path / "stopped", phase) == of_iterations(tmp_path / "stopped", phase)

    def test_a_clock_that_is_set_changes_no_time_of_a_run(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        day, now = 86_400.0, itertools.count(1e9, 86_400.0)
        monkeypatch.setattr("time.time", lambda: next(now))
        runner = self.vector(tmp_path, 1)
        monkeypatch.setattr("time.time", lambda: 5.0)
        runner = self.vector(tmp_path, 2)
        rows = [row for row in read_episodes(tmp_path) if row.phase == "train"]
        assert 0 < rows[0].seconds <= rows[-1].seconds <= runner.clock.seconds < day
        assert [row.seconds for row in rows] == sorted(row.seconds for row in rows)

    @pytest.mark.usefixtures("children_of_a_server")
    def test_a_live_run_has_a_row_for_each_episode_too(self, tmp_path: Path) -> None:
        runner = build_live(tmp_path, *QUICK_LIVE, "Runner.num_iterations = 1")
        runner.run_experiment()
        for phase in ("train", "eval"):
            assert episodes_of(tmp_path, phase) == of_iterations(tmp_path, phase)
        rows = read_episodes(tmp_path)
        assert {row.updates for row in rows} == {None}
        assert [row.seconds for row in rows] == sorted(row.seconds for row in rows)


class TestReport:
    def test_it_has_the_best_score_the_best_mean_of_100_and_the_wall_time(self, tmp_path: Path) -> None:
        runner = run(tmp_path, report_episodes=2)
        compare_with_baselines(runner)
        trained = json.loads((tmp_path / "report.json").read_text())[-1]
        returns = [score for score, _ in of_iterations(tmp_path, "train")]
        assert trained["agent"] == "trained" and trained["best_score"] == max(returns)
        assert trained["best_mean_of_100"] is None and len(returns) < 100
        assert 0 < trained["seconds"] <= runner.clock.seconds
        runner.history = [{"train_episode_returns": [float(number) for number in range(30, 0, -1)] * 5}]
        best = max(np.mean((list(range(30, 0, -1)) * 5)[at : at + 100]) for at in range(51))
        assert training_facts(runner)["best_mean_of_100"] == pytest.approx(best)

    def test_a_run_without_a_closing_table_tells_of_its_last_episodes(self, tmp_path: Path) -> None:
        runner = run(tmp_path)
        write_report(runner, [])
        [row] = json.loads((tmp_path / "report.json").read_text())
        returns = [score for score, _ in of_iterations(tmp_path, "train")]
        assert (row["agent"], row["scores"], row["best_score"]) == ("training", returns[-100:], max(returns))

    def test_wall_time_goes_on_where_a_run_does(self, tmp_path: Path) -> None:
        first = run(tmp_path, num_iterations=1).clock.seconds
        assert make_runner(tmp_path).clock.before == 0.0
        runner = make_runner(tmp_path)
        runner.resume()
        assert runner.clock.seconds > 0 and runner.clock.before <= first
        assert runner.clock.before > 0


class TestTimes:
    def test_parts_are_counted_and_begun_anew(self) -> None:
        times = PartTimes()
        begin = times.add("Act", 0.0)
        assert times.seconds["Act"] == begin
        times.add("Loss", begin)
        assert set(times.take()) == {"Act", "Loss"}
        assert times.take() == {}

    def test_the_parts_of_a_run_are_no_longer_than_its_training(self, tmp_path: Path) -> None:
        runner = run(tmp_path)
        assert {"Act", "Step", "Store", "Sample", "Loss", "Backward", "Optimizer"} <= runner.times.parts.keys()
        assert 0 < sum(runner.times.parts.values()) <= runner.times.seconds
        lines = runner.times.table(runner.play.summary()).splitlines()
        assert [line.partition("  ")[0] for line in lines] == [
            *(f"time of {words}" for name, words in PARTS.items() if name in runner.times.parts),
            "learning rate",
            "norm of the last gradient",
            "what can be drawn from replays",
        ]
        agent: Any = runner.agent
        assert float(lines[-1].split()[-1]) == len(agent.learner.replay)
        assert float(lines[-3].split()[-1]) == 0.01

    def test_those_of_many_environments_too(self, tmp_path: Path) -> None:
        runner = TestRuns().vector(tmp_path, 1)
        assert {
            "Act",
            "Step",
            "Store",
            "Sample",
            "Loss",
            "Backward",
            "Optimizer",
            "Priorities",
        } <= runner.times.parts.keys()
        assert 0 < sum(runner.times.parts.values()) <= runner.times.seconds

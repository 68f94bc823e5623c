"""The closing table and the learning curve."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
from matplotlib.axes import Axes

from async_wrappers.agents.experiment.closing_report import (
    ReportRow,
    _KeptEpisodes,
    compare_with_baselines,
    draw_learning_curve,
    evaluation_facts,
    table,
)
from async_wrappers.agents.experiment.evaluate import bootstrap_interval, evaluate, interquartile_mean
from async_wrappers.agents.experiment.experiment import Experiment
from async_wrappers.agents.experiment.metrics import Metrics
from async_wrappers.agents.play.play import EpisodeResult, Phase, environment_seed
from async_wrappers.agents.play.turns.baselines import RandomAgent
from async_wrappers.wrappers.delay import RealtimeDelay
from tests.worlds.agents import make_dqn as make_agent
from tests.worlds.drifting_env import DriftingEnv
from tests.worlds.experiments import experiment
from tests.worlds.lives_env import LivesEnv

ROWS = [
    ReportRow("random", [1.0, 1.0], 5000.4),
    ReportRow("no-op", [-2.0] * 4, 12.0),
    ReportRow("trained", [10.5], 999.6),
]


def run(base_dir: Path, make_environment: Callable[[], Any], **arguments: Any) -> Experiment:
    runner = experiment(
        base_dir,
        make_environment,
        make_agent,
        seed=3,
        num_iterations=1,
        training_steps=20,
        evaluation_steps=0,
        report_episodes=5,
        max_steps_per_episode=9,
        **arguments,
    )
    runner.run_experiment()
    return runner


WITH_NOOP = partial(DriftingEnv, noop=True)


def again(base_dir: Path) -> Experiment:
    """Return the experiment of a finished run, as another process has it."""
    return run(base_dir, WITH_NOOP)


class TestTable:
    def test_it_says_each_mean_its_interval_and_the_trained_agents_lead(self) -> None:
        assert table(ROWS).splitlines() == [
            "agent      mean return  95 % interval         episodes  frames/s  trained minus this",
            "random             1.0  [1.0, 1.0]                   2      5000  9.5 [9.5, 9.5]",
            "no-op             -2.0  [-2.0, -2.0]                 4        12  12.5 [12.5, 12.5]",
            "trained           10.5  [10.5, 10.5]                 1      1000",
        ]

    def test_it_says_whose_episodes_are_one_and_the_same(self) -> None:
        rows = [ROWS[0]._replace(different=2), ROWS[1]._replace(different=1), ROWS[2]]
        assert table(rows).splitlines()[:-1] == table(ROWS).splitlines()
        assert table(rows).splitlines()[-1].startswith("no-op: 4 episodes, 1 different: the others repeat it")

    def test_a_table_of_the_trained_agent_alone_has_no_lead(self) -> None:
        assert len(table(ROWS[-1:]).splitlines()) == 2


class TestComparison:
    def test_all_agents_play_the_same_episodes(self, tmp_path: Path) -> None:
        runner = run(tmp_path, partial(DriftingEnv, noop=True))
        before = len(runner.environment.unwrapped.lives)  # type: ignore[attr-defined]
        rows = compare_with_baselines(runner)
        assert [row.agent for row in rows] == ["random", "no-op", "trained"]
        lives = runner.environment.unwrapped.lives[before:]  # type: ignore[attr-defined]
        seeds = [environment_seed(3, Phase.FINAL, number) for number in range(5)]
        assert [life.seed for life in lives] == seeds * 3
        for index, row in enumerate(rows):
            assert row.scores == [sum(life.rewards) for life in lives[5 * index : 5 * index + 5]]
        assert {action for life in lives[5:10] for action in life.actions} == {1}
        assert all(len(life.actions) <= 9 for life in lives)

    def test_the_random_agent_is_the_one_of_the_runs_seed(self, tmp_path: Path) -> None:
        rows = compare_with_baselines(run(tmp_path, DriftingEnv))
        env = DriftingEnv()
        expected = [evaluate(RandomAgent(env, seed=seed), env, 5, 3, max_frames=9) for seed in (3, 0)]
        assert rows[0].scores == [episode.score for episode in expected[0]] != [e.score for e in expected[1]]

    def test_the_noop_agent_is_left_out_where_there_is_no_noop(self, tmp_path: Path) -> None:
        rows = compare_with_baselines(run(tmp_path, DriftingEnv))
        assert [row.agent for row in rows] == ["random", "trained"]

    def test_the_file_holds_means_intervals_and_every_score(self, tmp_path: Path) -> None:
        rows = compare_with_baselines(run(tmp_path, DriftingEnv))
        facts = json.loads((tmp_path / "report.json").read_text())
        assert [fact["agent"] for fact in facts] == ["random", "trained"]
        for fact, row in zip(facts, rows, strict=True):
            assert fact["scores"] == row.scores
            assert fact["mean"] == pytest.approx(np.mean(row.scores))
            assert tuple(fact["interval"]) == bootstrap_interval(row.scores)
            assert fact["frames_per_second"] > 0
            assert fact["different"] == row.different == 5

    def test_the_closing_table_of_one_game_says_so(self, tmp_path: Path) -> None:
        rows = compare_with_baselines(run(tmp_path, LivesEnv))
        trained = next(line for line in table(rows).splitlines() if line.startswith("trained: "))
        assert trained.startswith("trained: 5 episodes, 1 different: ")
        assert rows[0].different == 5  # the random agent draws

    def test_asking_twice_gives_the_same_scores(self, tmp_path: Path) -> None:
        runner = run(tmp_path, partial(DriftingEnv, noop=True))
        first, second = ([row.scores for row in compare_with_baselines(runner)] for _ in range(2))
        assert first == second

    @pytest.mark.parametrize("played", [1, 5, 7, 14])
    def test_a_table_that_is_interrupted_goes_on_with_the_next_episode(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, played: int
    ) -> None:
        expected = [row.scores for row in compare_with_baselines(run(tmp_path / "whole", WITH_NOOP))]
        run(tmp_path / "cut", WITH_NOOP)
        runner = again(tmp_path / "cut")
        keep, kept = _KeptEpisodes.add, []

        def interrupt(self: Any, name: str, episode: EpisodeResult) -> None:
            keep(self, name, episode)
            kept.append(episode)
            if len(kept) == played:
                raise KeyboardInterrupt

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(_KeptEpisodes, "add", interrupt)
            compare_with_baselines(runner)
        runner = again(tmp_path / "cut")
        before = len(runner.environment.unwrapped.lives)  # type: ignore[attr-defined]
        rows = compare_with_baselines(runner)
        assert [row.scores for row in rows] == expected
        assert all(row.frames_per_second > 0 for row in rows)
        assert len(runner.environment.unwrapped.lives) - before == 15 - played  # type: ignore[attr-defined]
        assert not (tmp_path / "cut" / "metrics" / "closing.json").exists()

    def test_a_table_of_fewer_frames_of_training_is_not_gone_on_with(self, tmp_path: Path) -> None:
        runner = run(tmp_path, WITH_NOOP)
        with _KeptEpisodes(runner) as _:
            pass
        path = tmp_path / "metrics" / "closing.json"
        kept = json.loads(path.read_text())
        rows = {"random": [[99.0, 1, 1, None, 5]] * 5}
        path.write_text(json.dumps({**kept, "of": {**kept["of"], "frames": 7}, "rows": rows}))
        assert 99.0 not in compare_with_baselines(runner)[0].scores

    def test_a_run_that_has_not_begun_has_no_trained_agent_to_compare(self, tmp_path: Path) -> None:
        runner = experiment(tmp_path, DriftingEnv, make_agent, num_iterations=0, report_episodes=1)
        with pytest.raises(ValueError, match="holds no good checkpoint"):
            compare_with_baselines(runner)


class TestLearningCurve:
    def line(self, iteration: int, evaluated: bool) -> dict[str, Any]:
        evaluation = {"eval_average_return": 2.0 * iteration} if evaluated else {}
        return {
            "iteration": iteration,
            "frames": 30 * (iteration + 1),
            "train_episode_lengths": [10, 20],
            "train_episode_returns": [float(iteration), 1.0],
            "train_average_return": iteration / 2,
            **evaluation,
        }

    @pytest.mark.parametrize(
        ("iterations", "rows", "evaluated"),
        [(0, None, False), (0, ROWS, False), (1, ROWS[-1:], True), (3, None, True), (3, ROWS, False)],
    )
    def test_it_is_an_image_that_can_be_read(
        self, tmp_path: Path, iterations: int, rows: list[ReportRow] | None, evaluated: bool
    ) -> None:
        metrics = Metrics(tmp_path)
        for iteration in range(iterations):
            metrics.iteration(self.line(iteration, evaluated), {})
        metrics.close()
        path = draw_learning_curve(tmp_path, rows)
        assert path == tmp_path / "learning_curve.png"
        image = matplotlib.image.imread(path)
        assert image.ndim == 3 and min(image.shape[:2]) > 300
        assert image.std() > 0.02  # something is drawn

    @pytest.mark.parametrize(
        ("make_environment", "delay"),
        [
            (DriftingEnv, "no delay"),
            (lambda: RealtimeDelay(DriftingEnv(), 1, default_action="repeat"), "delay 1 frame"),
            (lambda: RealtimeDelay(DriftingEnv(), 8, 3, "repeat"), "delay 8 frames, 3 no-ops"),
            (
                lambda: RealtimeDelay(DriftingEnv(), latency=0.1, workers=2, fps=60, default_action="repeat"),
                "latency 0.1, 2 workers at 60 frames/s",
            ),
        ],
        ids=["none", "one frame", "frames and no-ops", "latency"],
    )
    def test_its_title_says_what_was_run(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_environment: Any, delay: str
    ) -> None:
        titles = list[str]()
        monkeypatch.setattr(Axes, "set_title", lambda axes, title, **how: titles.append(title))
        make = partial(make_agent, epsilon_warmup=0)
        lengths = {"num_iterations": 1, "training_steps": 20, "evaluation_steps": 0}
        experiment(tmp_path, make_environment, make, seed=3, **lengths).run_experiment()
        draw_learning_curve(tmp_path)
        (tmp_path / "metrics" / "run.json").unlink()
        draw_learning_curve(tmp_path)
        assert titles == [f"DriftingEnv, DQNAgent, {delay}, seed 3", tmp_path.name]

    def test_drawing_again_replaces_the_file(self, tmp_path: Path) -> None:
        first = draw_learning_curve(tmp_path).read_bytes()
        assert draw_learning_curve(tmp_path, ROWS).read_bytes() != first
        assert [path.name for path in tmp_path.iterdir()] == ["learning_curve.png"]


def test_the_facts_of_an_evaluation_are_plain() -> None:
    scores = [1.0, 9.0, 3.0, 1.0]  # the interquartile mean leaves the least and the greatest out
    facts = evaluation_facts([EpisodeResult(score, 10 * (index + 1)) for index, score in enumerate(scores)])
    assert facts == {
        "mean": 3.5,
        "interval": bootstrap_interval(scores),
        "median": 2.0,
        "iqm": 2.0,
        "iqm_interval": bootstrap_interval(scores, interquartile_mean),
        "returns": scores,
        "frames": [10, 20, 30, 40],
    }
    assert json.loads(json.dumps(facts))["interval"] == list(facts["interval"])

"""What a student's run keeps, whatever plays: subclass `TaughtRunContract` in a test file and give its bindings."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from async_wrappers.agents.experiment.metrics import read_iterations
from async_wrappers.agents.play.play import DifferentExperiment
from async_wrappers.agents.teaching.student_progress import LABEL
from async_wrappers.agents.teaching.teaching import Reincarnation
from tests.worlds.experiments import timeless
from tests.worlds.plain_data import assert_identical
from tests.worlds.teachers import lessons_of, students_runner


class TaughtRunContract:
    """QDagger on DQN: an iteration of collecting, an offline one and two online ones.

    Attributes:
        bindings: Of the way of playing.
        learners: How many there are.
        exact: Whether a resumed run equals an uninterrupted one, with ``Runner.exact_resume``.
    """

    bindings: ClassVar[tuple[str, ...]]
    learners: ClassVar[int] = 1
    exact: ClassVar[bool] = True

    def make_runner(self, base_dir: Path, teacher: Path, *more: str) -> Any:
        short = ("RunnerWithTeacher.num_pretraining_iterations = 1", "RunnerWithTeacher.num_pretraining_steps = 5")
        return students_runner(base_dir, teacher, *short, *self.bindings, *more)

    @staticmethod
    def labels_and_views(runner: Any) -> tuple[Any, Any]:
        """The labels of the student's replay, and the observations from which the decisions started."""
        replay = runner.agent.learner.replay
        batch = replay.transitions(replay.valid_slots())
        return batch["extras"][LABEL], batch["observation"]

    def test_the_phases_and_what_they_leave(self, teacher_dir: Path, tmp_path: Path) -> None:
        runner = self.make_runner(tmp_path, teacher_dir)
        assert isinstance(runner.teaching, Reincarnation)
        collected: list[int] = []
        begin = runner.teaching.begin

        def noted(iteration: int) -> Any:
            if iteration == 1:
                replay: Any = lessons_of(runner.agent).teacher_replay
                collected.extend((len(replay), len(runner.agent.learner.replay), runner.agent.updates))
            return begin(iteration)

        runner.teaching.begin = noted
        runner.run_experiment()
        lines = read_iterations(tmp_path)
        assert [line["phase"] for line in lines] == ["collect", "offline", "online", "online"]
        assert collected[0] * self.learners > 12 and collected[1:] == [0, 0]
        assert [line["train_updates"] for line in lines][:2] == [0, 5]
        assert all(line["train_updates"] > 0 for line in lines[2:])
        assert 50 <= lines[0]["frames"] == lines[1]["frames"] < lines[2]["frames"] < lines[3]["frames"]
        assert lines[0]["train_actions"] > 12 and lines[1]["train_actions"] == 0
        lessons = lessons_of(runner.agent)
        assert lessons.teacher_replay is None  # nothing needs it any more
        online = sum(line["train_actions"] for line in lines[2:])
        # A decision that the end of a phase or an episode overtakes has no action.
        assert online <= lessons.teaching.online_steps <= 2 * online
        weight = min(max(1 - lines[2]["eval_normalized_score"], 0), 1)
        assert lines[3]["teacher_weight"] == pytest.approx(weight)
        labels, views = self.labels_and_views(runner)
        assert len(labels) * self.learners > 40
        np.testing.assert_allclose(labels, runner.teaching.teacher.values(views), rtol=1e-4, atol=1e-6)

    def test_it_goes_on_after_each_iteration(self, teacher_dir: Path, tmp_path: Path) -> None:
        exact = "Runner.exact_resume = True" if self.exact else "Runner.seed = 0"
        ends = []
        for directory, stops in (("whole", ()), ("parts", (1, 2, 3))):
            for stop in stops:
                part = self.make_runner(tmp_path / directory, teacher_dir, exact)
                part.num_iterations = stop
                part.run_experiment()
                assert part.start_iteration == stop
            runner = self.make_runner(tmp_path / directory, teacher_dir, exact)
            runner.run_experiment()
            lines = [timeless(line) for line in read_iterations(tmp_path / directory)]
            for line in lines:
                line.pop("train_rates", None)  # by the clock
            ends.append({"lines": lines, "teaching": vars(lessons_of(runner.agent).teaching)})
            ends[-1]["learner"] = runner.agent.learner.state_dict()
        if self.exact:
            assert_identical(*ends)
        else:
            assert [line["phase"] for line in ends[0]["lines"]] == [line["phase"] for line in ends[1]["lines"]]

    def test_it_is_not_continued_with_another_teacher(self, teacher_dir: Path, tmp_path: Path) -> None:
        first = self.make_runner(tmp_path, teacher_dir)
        first.num_iterations = 1
        first.run_experiment()
        seeded = "RunnerWithTeacher.random_teacher = True"
        other = self.make_runner(tmp_path, teacher_dir, "RunnerWithTeacher.teacher_checkpoint_dir = None", seeded)
        with pytest.raises(DifferentExperiment, match="reincarnation: teacher"):
            other.resume()

"""The iterations of a student: one of collecting, offline ones and online ones."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from absl import logging
from tqdm import trange

from async_wrappers.agents.config.config import save_config
from async_wrappers.agents.experiment.lock import DirectoryInUse, alone_in
from async_wrappers.agents.experiment.other_run import other_run
from async_wrappers.agents.experiment.progress import lengths_in_words
from async_wrappers.agents.experiment.run import Run
from async_wrappers.agents.hyperparameters import choice, factory, flag, must, number, part, text, whole
from async_wrappers.agents.needs_and_offers import bound, refuse
from async_wrappers.agents.play.lessons import Lesson
from async_wrappers.agents.play.play import Length, Phase, PlayedPhase, encounter_of
from async_wrappers.agents.teaching.dopamine.dopamine import DopamineTeacher, is_dopamine
from async_wrappers.agents.teaching.student import Student, seed_of
from async_wrappers.agents.teaching.student_lessons import StudentsLessons
from async_wrappers.agents.teaching.student_progress import TeachingPhase
from async_wrappers.agents.teaching.teacher import Teacher, check_own_replay
from async_wrappers.agents.teaching.teacher_view import Viewpoint, reads_alike
from async_wrappers.files import path_of

_IMPORTS = ("import async_wrappers.agents.configurables", "import async_wrappers.configurables")
_PAUSE = 0.5  # seconds between two looks at a teacher that another process trains


@part
class RunnerWithTeacher:
    """The iterations of a student: its teacher, and what it learns from it before it plays.

    1. If `teacher_steps` is not 0, an iteration in which the teacher plays, greedily, in the student's environment. Its
       transitions are the teacher's replay; otherwise that is the replay of the teacher's own run.
    2. `num_pretraining_iterations` of `num_pretraining_steps` updates each on the teacher's replay.
    3. ``Runner.num_iterations`` online, which are the training phases of `Runner`.

    The teacher plays an evaluation phase once, in its own environment, before the first iteration. The score of each
    evaluation is normalised: 0 is random play, 1 the teacher's. Frames that the teacher plays to collect are training
    frames. An agent that learns from no teacher is refused with a ValueError.

    In turn they are those of ``create_runner.schedule = 'reincarnation'``. With 'vector' and 'hosts' they are those of
    every run whose agent is a student.
    """

    teacher_checkpoint_dir: str | None = text(
        "The directory of the teacher's run, or one of its checkpoints; ours or Dopamine's (`DopamineTeacher`). Or an "
        'agent\'s file, or the name of one that ships, such as ``"cartpole"``.',
        "`random_teacher`",
    )
    teacher_checkpoint_number: int | None = whole(
        None, "Which checkpoint of that directory.", 0, "", none="the newest good one"
    )
    teacher_steps: int = whole(0, "Frames that the teacher plays to collect; 0 for none.", 0, "frames")
    num_pretraining_iterations: int = whole(1, "Offline iterations.", 0, "iterations")
    num_pretraining_steps: int = whole(100_000, "Updates of each.", 0, "updates")
    teacher_gin_file: str | None = text(
        "A gin file whose run is trained to its end in `teacher_checkpoint_dir` first, such as "
        '``"configs/dqn/cartpole.gin"``, where that is not done; a process that trains there already is waited for.',
        "a teacher that is there",
    )
    label_at: str = choice(
        "start",
        "Under delay, of which observation the teacher's values are that teach: of that which the decision started "
        'from (``"start"``), or of that on which its action landed (``"effect"``).',
        "start",
        "effect",
    )
    dopamine_teacher_fn: Callable[..., Teacher] = factory(
        DopamineTeacher,
        "Makes a teacher of Dopamine's checkpoints, from (directory, environment, number).",
        "@DopamineTeacher (without brackets)",
    )
    evaluate_teacher: bool = flag(
        True,
        "Let the teacher play an evaluation phase before the first iteration. False leaves it out: scores are then "
        "normalised by `teacher_score`, and by random play's, which is measured or, for Atari, the published one.",
    )
    teacher_score: float | None = number(
        None,
        "The teacher's mean return, where it is not evaluated.",
        none="a student whose lambda does not follow the score, which is then not normalised",
    )
    random_teacher: bool = flag(
        False, "Take a teacher that has learnt nothing, in the place of `teacher_checkpoint_dir`: for tests."
    )


class Reincarnation:
    """A teacher's part in an experiment; `async_wrappers.agents.experiment.experiment.NoTeaching` has the same methods.

    Args:
        settings: The teacher's, and of the student's iterations.
        run: The experiment.

    Attributes:
        iterations: Those of collecting, the offline and the online ones.
        one_more: The binding that continues a finished run for one iteration.
        teacher: Once it is loaded.
        scores: Of the teacher and of random play, once they are known.
    """

    def __init__(self, settings: RunnerWithTeacher, run: Run) -> None:
        self._settings, self._run = settings, run
        agent, evaluation = run.play.agent, run.lengths[Phase.EVAL]
        must(
            isinstance(getattr(agent, "lessons", None), StudentsLessons),
            "create_runner.schedule = 'reincarnation' needs an agent that learns from a teacher, such as "
            f"create_agent.agent_name = 'qdagger_dqn', got {agent.identity()['agent']}",
        )
        evaluated = 1 if evaluation.frames or evaluation.episodes else 0
        refuse("a student", {**bound(run.settings), "Runner.evaluation_steps": evaluated})
        self._check_teacher()
        offline = settings.num_pretraining_iterations if settings.num_pretraining_steps else 0
        self._check_phases(offline)
        self._kinds = [TeachingPhase.COLLECT] * bool(settings.teacher_steps) + [TeachingPhase.OFFLINE] * offline
        self._kinds += [TeachingPhase.ONLINE] * run.settings.num_iterations
        self._kind = TeachingPhase.ONLINE
        self.iterations, self.one_more = len(self._kinds), f"Runner.num_iterations = {run.settings.num_iterations + 1}"
        self.scores: dict[str, Any] | None = None
        self._offline = 0  # updates of the running offline phase
        self.teacher: Teacher | None = None

    def _check_teacher(self) -> None:
        """Refuse a score of the teacher's, or a teacher, that is not the one of the other settings."""
        settings = self._settings
        named = settings.teacher_checkpoint_dir, settings.teacher_gin_file
        there = {
            "an evaluated teacher": settings.evaluate_teacher,
            "a weight that follows the score": not settings.evaluate_teacher and self.student.follows_score,
            "a named teacher": named != (None, None),
        }
        refuse(there, bound(settings), agent=self.student.name)

    def _check_phases(self, offline: int) -> None:
        """Refuse phases that collect or keep transitions without use.

        Args:
            offline: How many iterations learn from the teacher's replay alone.
        """
        spec, steps = self.student, self._settings.teacher_steps
        spec.check_phases(teacher_steps=steps, offline=offline)
        learns = bool(offline or self._rehearses)
        needs = {"RunnerWithTeacher.teacher_steps": steps, "teacher_replay_scheme": spec.teacher_replay_scheme}
        of_teacher = ("nothing learnt from the teacher", "nothing drawn from the teacher")
        refuse(dict.fromkeys(of_teacher, not learns), needs)

    @property
    def lessons(self) -> StudentsLessons:
        """Those of the agent, of several learners the first one's."""
        agent: Any = self._run.play.agent  # a student
        lessons: StudentsLessons = agent.lessons
        return lessons

    @property
    def student(self) -> Student:
        """The agent's spec."""
        student: Student = self.lessons.student
        return student

    @property
    def _rehearses(self) -> bool:
        return bool(self.student.teacher_data_ratio)

    def prepare(self) -> None:
        """Load the teacher, and show it what it needs.

        Raises:
            ValueError: It cannot be loaded, or plays another game.
        """
        if self.teacher is not None:
            return
        run, label_at = self._run, self._settings.label_at
        self.teacher = teacher = self._load_teacher()
        needed = TeachingPhase.OFFLINE in self._kinds or self._rehearses
        collects = TeachingPhase.COLLECT in self._kinds
        view = Viewpoint.of(run.environment, teacher, label_at)
        alike = reads_alike(run.environment, self.student, teacher, label_at)
        run.play.teach(Lesson(teacher.frozen, view, alike, needed, collects, label_at))

    def begin_run(self) -> None:
        """Give the student the teacher's replay and weights, as far as its method takes them.

        Raises:
            ValueError: The teacher has no replay, and one is needed.
        """
        spec, teacher = self.student, self.teacher
        assert teacher is not None
        takes_over = self.lessons.teacher_replay is not None and TeachingPhase.COLLECT not in self._kinds
        if takes_over or spec.reloads_replay:
            check_own_replay(self._run.environment, teacher)
        if takes_over and not self.lessons.take_over(teacher.demonstrations()):
            raise ValueError(f"{teacher.source} has no whole episode in its replay: bind teacher_steps to collect")
        spec.reload(self.lessons, teacher)

    def _load_teacher(self) -> Teacher:
        settings, create_environment = self._settings, self._run.settings.create_environment_fn
        if settings.random_teacher:
            seed = seed_of(self._run.settings.seed, 3)  # not the student's, whose first weights would be the same
            return Teacher.of_first_weights(create_environment(), self.student.stack_size, seed)
        if settings.teacher_checkpoint_dir is None:
            raise ValueError(
                "RunnerWithTeacher.teacher_checkpoint_dir must be bound to the directory of a run that teaches, "
                "got None"
            )
        path = path_of(settings.teacher_checkpoint_dir)
        if settings.teacher_gin_file is not None:
            train_teacher(path, settings.teacher_gin_file)
        if is_dopamine(path):
            return settings.dopamine_teacher_fn(path, create_environment(), settings.teacher_checkpoint_number)
        return Teacher.of_run(path, settings.teacher_checkpoint_number)

    def begin(self, iteration: int) -> Mapping[Phase, Length]:
        """Begin an iteration; before the first one the teacher and random play are measured."""
        self._kind = self._kinds[iteration]
        needed = self._rehearses or TeachingPhase.OFFLINE in self._kinds[iteration:]
        self._run.play.tell_lessons("begin_phase", self._kind, not needed)
        if self.scores is None:
            self._measure()
        if self._kind is TeachingPhase.COLLECT:  # the student has learnt nothing yet
            return {Phase.TRAIN: Length(self._settings.teacher_steps, None)}
        return self._run.lengths

    def _measure(self) -> None:
        """Let the teacher and random play have an evaluation phase each, in the teacher's environment."""
        assert self.teacher is not None
        run, known = self._run, self._settings.teacher_score
        measured = run.settings.seed, run.lengths[Phase.EVAL], run.settings.max_steps_per_episode
        if not self._settings.evaluate_teacher:
            self.scores = {"teacher": known, "random": None, "returns": []}
            if known is not None:
                self.scores["random"] = self.teacher.random_score(*measured)
            return
        scores = self.teacher.score(*measured)
        self.scores = {
            "teacher": statistics.fmean(scores),
            "random": self.teacher.random_score(*measured),
            "returns": scores,
        }
        if not self.scores["teacher"] > self.scores["random"]:
            logging.warning(
                "the teacher's score %(teacher)g is no better than that of random play, %(random)g", self.scores
            )
        print("teacher: return {teacher:.1f}, random play {random:.1f}".format(**self.scores), flush=True)
        run.metrics.scalar("Eval/Teacher/AverageReturns", self.scores["teacher"], run.counts.frames)
        run.metrics.scalar("Eval/Teacher/NumEpisodes", len(scores), run.counts.frames)

    def normalized_score(self, score: float) -> float:
        """Return (score - random) / (teacher - random); a teacher no better than random play counts as passed at once.

        Raises:
            ValueError: The teacher has not been measured.
        """
        if self.scores is None or self.scores["teacher"] is None:
            raise ValueError("normalized_score must be asked for when the teacher has played, in the first iteration")
        random, teacher = self.scores["random"], self.scores["teacher"]
        return float((score - random) / max(teacher - random, 1e-8))

    def train(self, length: Length) -> PlayedPhase:
        """Play a training phase, or make the updates of an offline one."""
        if self._kind is not TeachingPhase.OFFLINE:
            return self._run.play.train(length)
        run, steps = self._run, self._settings.num_pretraining_steps
        agent: Any = run.play.agent  # a student
        updates, first = agent.updates, self._offline
        for done in trange(first, steps, initial=first, total=steps, desc="offline", unit="update", disable=None):
            run.play.tell_lessons("learn_offline")
            self._offline = done + 1
            run.shown.share((done + 1) / steps, f"{done + 1:,} of {steps:,} offline updates")
            if run.due():
                break
        if whole := self._offline >= steps:
            self._offline = 0
        made, encounter = agent.updates - updates, encounter_of(run.environment)
        return PlayedPhase([], 0, made, encounter, frames=0, times=agent.times.take(), whole=whole)

    def statistics(self, phase: Phase, line: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, float]]:
        """Return the kind of iteration and the teacher's weight, which follows an evaluation's normalised score."""
        told: dict[str, Any] = {"phase": self._kind.value}
        weight = self.lessons.teaching.weight
        if phase != Phase.EVAL:
            return {**told, "teacher_weight": weight}, {}
        assert self.scores is not None
        normalized, scalars = 0.0, {}
        if self.scores["teacher"] is not None:
            normalized = self.normalized_score(line["eval_average_return"])
            told |= {"eval_normalized_score": normalized, "teacher_return": self.scores["teacher"]}
            scalars["Eval/Normalized_Score"] = normalized
        self._run.play.tell_lessons("record_score", normalized)
        return told, {**scalars, "Train/distill_loss_decay": weight}

    def state(self) -> dict[str, Any]:
        return {"scores": self.scores, "offline": self._offline}

    def load_state(self, bundle: Mapping[str, Any]) -> None:
        self.scores, self._offline = bundle["scores"], bundle.get("offline", 0)

    def identity(self) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "label_at": self._settings.label_at,
            "collect": self._settings.teacher_steps,
            "offline": self._kinds.count(TeachingPhase.OFFLINE),
            "updates": self._settings.num_pretraining_steps,
        }
        teacher = {} if self.teacher is None else self.teacher.identity()
        return {"reincarnation": {**facts, "teacher": teacher}}

    def facts(self) -> dict[str, str]:
        """Return the iterations; each kind is listed apart."""
        lengths, settings = self._run.lengths, self._settings
        evaluation = lengths_in_words({Phase.EVAL: lengths[Phase.EVAL]})
        each = {
            TeachingPhase.COLLECT: f"{settings.teacher_steps:,} frames that the teacher plays",
            TeachingPhase.OFFLINE: f"{settings.num_pretraining_steps:,} offline updates and {evaluation}",
            TeachingPhase.ONLINE: lengths_in_words(lengths),
        }
        counted = [(self._kinds.count(kind), length) for kind, length in each.items() if kind in self._kinds]
        words = ", then ".join(f"{count} of {length}" for count, length in counted)
        return {"iterations": f"{self.iterations}: {words}" if words else "0"}


def train_teacher(base_dir: Path, gin_file: str) -> None:
    """Train the run of a gin file in a directory to its end, unless it is finished.

    Several processes may ask for the same teacher, as the trials of a sweep do: one trains, the others wait for it.

    Args:
        base_dir: The run's directory; a run begun there is continued with the configuration that it has.
        gin_file: Found from the working directory, then from this package.

    Raises:
        ValueError: The file cannot be used, or the directory holds another experiment.
    """
    while True:
        with suppress(DirectoryInUse), alone_in(base_dir):
            _train(base_dir, gin_file)
            return
        time.sleep(_PAUSE)


def _train(base_dir: Path, gin_file: str) -> None:
    # What the student's own configuration has imported already may be imported by its teacher's too.
    with other_run(base_dir, gin_file, own_bindings=_IMPORTS) as runner:
        if runner.saved.iterations_done < runner.num_iterations:
            print(f"teacher: {gin_file} is trained in {base_dir}", flush=True)
            save_config(base_dir)
            runner.run_experiment()

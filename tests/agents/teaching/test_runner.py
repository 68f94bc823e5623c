"""Runs of students: a teacher from a run, its view of the game, the phases, the scores, and resuming in each phase."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import gin
import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.wrappers import FlattenObservation, NormalizeObservation, TransformObservation

from async_wrappers import AppliedActions, CommittedActions, RealtimeDelay
from async_wrappers.agents.acting.frames_read import VIEW
from async_wrappers.agents.experiment.checkpoint import Checkpointer
from async_wrappers.agents.experiment.lock import DirectoryInUse
from async_wrappers.agents.experiment.metrics import read_iterations
from async_wrappers.agents.experiment.progress import closing_line
from async_wrappers.agents.families.actor_critic.ppo import PPO
from async_wrappers.agents.families.actor_critic.vtrace import VTrace
from async_wrappers.agents.load import load_agent
from async_wrappers.agents.networks.sequence_network import create_actor_critic
from async_wrappers.agents.play.play import DifferentExperiment, Length
from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent
from async_wrappers.agents.registry import create_runner
from async_wrappers.agents.teaching import teaching as runner_module
from async_wrappers.agents.teaching.teacher import RANDOM_SCORES, Teacher
from async_wrappers.agents.teaching.teacher_view import TeacherView
from async_wrappers.agents.teaching.teaching import Reincarnation, train_teacher
from async_wrappers.agents.trained.agent_file import shipped_agents
from async_wrappers.wrapper_statistics import freeze
from tests.worlds.agents import tiny
from tests.worlds.drifting_env import DriftingEnv
from tests.worlds.experiments import load_gin, make_dqn, state, timeless
from tests.worlds.plain_data import assert_identical
from tests.worlds.teachers import QUICK, lessons_of, students_runner, teachers_run


@pytest.fixture(scope="module")
def teacher_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    threads = torch.get_num_threads()
    path = teachers_run(tmp_path_factory.mktemp("teacher") / "run")
    torch.set_num_threads(threads)
    return path


def all_of(runner: Any) -> dict[str, Any]:
    """All that a student's run is, between two iterations."""
    replay = lessons_of(runner.agent).teacher_replay
    return {
        **state(runner),
        "teaching": vars(lessons_of(runner.agent).teaching),
        "teachers": None if replay is None else replay.state_dict(),
        "scores": runner.teaching.scores,
    }


# The teacher.


def test_a_teacher_has_the_values_of_the_runs_agent(teacher_dir: Path) -> None:
    teacher = Teacher.of_run(teacher_dir)
    agent, _ = load_agent(teacher_dir)
    assert isinstance(agent, TurnBasedAgent)
    stacks = np.random.default_rng(0).normal(size=(9, 1, 3)).astype(np.float32)
    expected = agent.learner.network(torch.from_numpy(stacks)).detach().numpy()
    np.testing.assert_allclose(teacher.values(stacks), expected, rtol=1e-6)
    assert teacher.num_actions == 3


def test_a_teacher_may_be_one_checkpoint_of_a_run(teacher_dir: Path) -> None:
    first, last = (Teacher.of_run(teacher_dir, number) for number in (0, 1))
    assert first.identity() != last.identity() == Teacher.of_run(teacher_dir).identity()
    assert Teacher.of_run(teacher_dir / "checkpoints" / "ckpt.0").identity() == first.identity()


@pytest.mark.parametrize("schedule", ["continuous_train", "continuous_train_and_eval"])
def test_a_student_is_refused_where_there_is_no_teacher(tmp_path: Path, schedule: str) -> None:
    bindings = ("create_agent.agent_name = 'jsrl_dqn'", f"create_runner.schedule = '{schedule}'")
    load_gin("configs/dqn/cartpole.gin", bindings=bindings)
    with pytest.raises(ValueError, match="agent 'jsrl_dqn' learns from a teacher, in phases: bind"):
        create_runner(str(tmp_path)).resume()


def test_what_is_no_run_is_refused(teacher_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="teacher_checkpoint_dir must be a run's directory or one of its checkpoints"):
        Teacher.of_run(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"teacher_checkpoint_dir must be .* got .*ckpt.7"):
        Teacher.of_run(teacher_dir, 7)
    with pytest.raises(ValueError, match="base_dir must hold a run"):
        Teacher.of_run(tmp_path)


def test_an_agent_without_values_is_refused(tmp_path: Path) -> None:
    path = teachers_run(tmp_path, "create_agent.agent_name = 'random'", "Runner.num_iterations = 1")
    with pytest.raises(
        ValueError, match=r"must be of an agent of values, whose Q-values teach, or .*, got RandomAgent"
    ):
        Teacher.of_run(path)


def test_a_teachers_replay_is_read_back_with_its_labels(teacher_dir: Path) -> None:
    agent, _ = load_agent(teacher_dir)
    assert isinstance(agent, TurnBasedAgent)
    agent.learner.load_replay(teacher_dir / "checkpoints" / "replay", 1)
    replay = agent.learner.replay
    expected = replay.transitions(replay.valid_slots(), 1)
    teacher = Teacher.of_run(teacher_dir)
    found = [t for demonstration in teacher.demonstrations() for t in demonstration.transitions()]
    assert len(found) == len(replay) > 100
    labels = [label for _, label in found]
    found = [transition for transition, _ in found]
    for name in ("action", "interval"):
        assert [t[name] for t in found] == expected[name].tolist()
    np.testing.assert_allclose([t["reward"] for t in found], expected["reward"])
    np.testing.assert_array_equal([t["terminal"] for t in found], expected["discount"] == 0)
    np.testing.assert_array_equal([t["observation"] for t in found], expected["observation"][:, 0])
    np.testing.assert_array_equal([t["next_observation"] for t in found], expected["next_observation"][:, 0])
    np.testing.assert_allclose(
        labels, teacher.values(expected["observation"]), rtol=1e-6, atol=3e-8
    )  # the last bit of a value of 0.25


def test_a_teachers_replay_must_be_the_one_that_its_checkpoint_was_written_with(
    teacher_dir: Path, tmp_path: Path
) -> None:
    run = shutil.copytree(teacher_dir, tmp_path / "run")
    index = run / "checkpoints" / "replay" / "index_1.json"
    index.write_text(index.read_text() + "\n")
    teacher = Teacher.of_run(run)  # whose weights alone teach elsewhere
    with pytest.raises(ValueError, match=r"index_1\.json is not the index that the checkpoint was written with: rest"):
        next(teacher.demonstrations())


def test_labels_of_a_replay_are_of_stacks(tmp_path: Path) -> None:
    path = teachers_run(tmp_path, "DQNAgent.stack_size = 3", "Runner.num_iterations = 1")
    agent, _ = load_agent(path)
    assert isinstance(agent, TurnBasedAgent)
    agent.learner.load_replay(path / "checkpoints" / "replay", 0)
    replay = agent.learner.replay
    stacks = replay.transitions(replay.valid_slots(), 1)["observation"]
    teacher = Teacher.of_run(path)
    labels = [label for demonstration in teacher.demonstrations() for _, label in demonstration.transitions()]
    np.testing.assert_allclose(labels, teacher.values(stacks), rtol=1e-4)


@pytest.mark.parametrize("kind", ["a name", "a file"])
def test_a_student_learns_from_an_agent_that_ships(tmp_path: Path, kind: str) -> None:
    named = "cartpole" if kind == "a name" else shutil.copy(shipped_agents()["cartpole"], tmp_path / "a.safetensors")
    bindings = (
        f"RunnerWithTeacher.teacher_checkpoint_dir = {str(named)!r}",
        "RunnerWithTeacher.teacher_steps = 100",
        "RunnerWithTeacher.num_pretraining_iterations = 1",
        "RunnerWithTeacher.num_pretraining_steps = 5",
        "create_gym_environment.environment_id = 'CartPole-v1'",
        "Runner.num_iterations = 1",
    )
    load_gin("configs/reincarnation/qdagger_dqn_cartpole.gin", bindings=[*QUICK, *bindings])
    runner = create_runner(tmp_path / "student")
    assert isinstance(runner.teaching, Reincarnation)
    runner.run_experiment()
    assert [line["phase"] for line in runner.history] == ["collect", "offline", "online"]
    assert runner.teaching.teacher is not None and runner.teaching.teacher.identity()["agent"] == "DQNAgent"
    teacher, _ = load_agent("cartpole")
    weights: Any = teacher
    shown = np.zeros((1, 1, 4), np.float32)
    np.testing.assert_array_equal(runner.teaching.teacher.values(shown), weights.policy.q_values(shown).numpy())
    again = create_runner(tmp_path / "student")
    assert again.resume()
    assert state(again)["frames"] == runner.counts.frames


def test_an_agent_that_ships_has_neither_replay_nor_target(tmp_path: Path) -> None:
    teacher = Teacher.of_run("cartpole")
    with pytest.raises(ValueError, match=r"cartpole.safetensors has no replay, which offline phases learn from: colle"):
        list(teacher.demonstrations())
    with pytest.raises(
        ValueError, match=r"must be of a run's directory for its student to begin as it, target and all"
    ):
        teacher.state()


@pytest.mark.parametrize("agent", [VTrace, PPO])
def test_a_policy_without_memory_teaches_by_its_logits(agent: Any) -> None:
    environment = gym.make("CartPole-v1")
    plain: dict[str, Any] = {"stack_size": 1}
    if agent is VTrace:
        plain["network"] = partial(create_actor_critic, torso="mlp", core=None, feed_previous=False)
    trained = TurnBasedAgent.playing(agent, environment, seed=3, **plain)
    teacher = Teacher(trained, environment)
    rng = np.random.default_rng(0)
    shown = rng.normal(size=(16, 1, 4)).astype(np.float32)
    found = teacher.values(shown)
    assert found.shape == (16, 2)
    np.testing.assert_allclose(np.concatenate([teacher.values(each[None]) for each in shown]), found, rtol=1e-5)
    for row in range(16):
        assert trained.begin_episode(shown[row, 0]) == found[row].argmax()
        trained.end_episode(0.0, True, shown[row, 0])


def test_a_policy_that_remembers_does_not_teach() -> None:
    environment = gym.make("CartPole-v1")
    remembering = TurnBasedAgent.playing(VTrace, environment, network=partial(create_actor_critic, core="lstm"))
    with pytest.raises(ValueError, match=r"or of V-trace or PPO without memory and chunks, .* got VTraceAgent"):
        Teacher(remembering, environment)


def test_a_student_learns_from_the_policy_of_an_agent_that_ships(tmp_path: Path) -> None:
    bindings = (
        "RunnerWithTeacher.teacher_checkpoint_dir = 'minatar/breakout'",
        "RunnerWithTeacher.teacher_steps = 40",
        "RunnerWithTeacher.num_pretraining_iterations = 1",
        "RunnerWithTeacher.num_pretraining_steps = 3",
        "create_agent.agent_name = 'qdagger_dqn'",
        "create_runner.schedule = 'reincarnation'",
        "create_minatar_environment.max_episode_steps = 20",
        "DQNAgent.replay_capacity = 200",
    )
    load_gin("configs/minatar/dqn.gin", bindings=[*QUICK, *bindings])
    runner = create_runner(tmp_path)
    assert isinstance(runner.teaching, Reincarnation)
    runner.run_experiment()
    assert [line["phase"] for line in runner.history] == ["collect", "offline", "online", "online"]
    assert runner.teaching.teacher is not None and runner.teaching.teacher.identity()["agent"] == "VTraceAgent"


# What the teacher sees.


def teacher_in(environment: gym.Env[Any, Any], **arguments: Any) -> Teacher:
    return Teacher(make_dqn(environment, **arguments), environment)


def drifting(*wrappers: Callable[[Any], Any], **arguments: Any) -> Any:
    env: Any = gym.make("Drifting-v0", **arguments)
    for wrap in wrappers:
        env = wrap(env)
    return env


OWN: dict[str, list[Callable[[Any], Any]]] = {
    "the same": [],
    "without a delay": [lambda env: RealtimeDelay(env)],
    "other wrappers": [
        lambda env: TransformObservation(env, lambda o: 2 * o + 1, env.observation_space),
        FlattenObservation,
    ],
}


@pytest.mark.parametrize("own", OWN)
@pytest.mark.parametrize("delay", [None, (0, 0), (3, 1)])
def test_the_view_is_what_the_teacher_would_read_of_the_frame_on_which_the_decision_starts(
    own: str, delay: tuple[int, int] | None
) -> None:
    wrappers = (
        [] if delay is None else [AppliedActions, lambda env: RealtimeDelay(env, *delay, "random"), CommittedActions]
    )
    environment = drifting(*wrappers, reuse=True)
    teacher = teacher_in(drifting(*OWN[own]), stack_size=2)
    seen = TeacherView.within(environment, teacher)
    assert seen.observation_space == environment.observation_space
    for episode in range(6):
        shown: list[tuple[int, Any]] = []
        _, info = seen.reset(seed=episode)
        over = False
        while not over:
            realtime = info["realtime"]
            shown.append((realtime["start"], realtime["observation_info"][VIEW]))
            *_, terminated, truncated, info = seen.step(0)
            over = terminated or truncated
        frames = np.stack(environment.unwrapped.lives[-1].observations)
        if own == "other wrappers":
            frames = 2 * frames + 1
        frames = np.concatenate([np.zeros((1, 3), np.float32), frames])
        for start, stack in shown:
            np.testing.assert_array_equal(stack, frames[None, start : start + 2])


def test_a_view_has_the_statistics_of_its_teacher_where_its_student_has_others() -> None:
    teachers, students = drifting(NormalizeObservation), drifting(NormalizeObservation)
    teachers.reset(seed=1)
    teachers.step(0)
    freeze(teachers)
    seen = TeacherView.within(students, teacher_in(teachers, stack_size=1))
    _, info = seen.reset(seed=5)
    rms, raw = teachers.get_wrapper_attr("obs_rms"), students.unwrapped.lives[-1].observations[0]
    stack = info["realtime"]["observation_info"][VIEW]
    np.testing.assert_allclose(stack[0, 0], (raw - rms.mean) / np.sqrt(rms.var + 1e-8), rtol=1e-6)


def test_the_view_leaves_the_students_environment_as_it_was() -> None:
    def wrapped() -> Any:
        return drifting(AppliedActions, lambda env: RealtimeDelay(env, 2, 1, "random"))

    plain, seen = wrapped(), TeacherView.within(wrapped(), teacher_in(drifting()))
    for episode in range(4):
        one, other = plain.reset(seed=episode), seen.reset(seed=episode)
        over = False
        while not over:
            np.testing.assert_equal(one[0], other[0])
            one, other = plain.step(1), seen.step(1)
            assert one[1:4] == other[1:4]
            over = one[2] or one[3]


def test_a_teacher_of_other_observations_or_actions_is_refused_with_both_names() -> None:
    with pytest.raises(ValueError, match=r"must have the actions of its student, Discrete\(3\), got Discrete\(4\)"):
        TeacherView.within(drifting(), teacher_in(drifting(actions=4)))
    cart = gym.make("CartPole-v1")
    with pytest.raises(
        ValueError, match=r"must play the environment of its student, CartPole-v1 .* got Drifting-v0 with"
    ):
        TeacherView.within(cart, teacher_in(drifting()))


def test_a_teacher_whose_wrappers_read_its_delay_is_refused() -> None:
    environment = drifting(lambda env: RealtimeDelay(env, 2, 0, "random"), lambda env: CommittedActions(env, flat=True))
    with pytest.raises(
        ValueError, match=r"has wrappers around its RealtimeDelay \(CommittedActions\), which read a delay"
    ):
        TeacherView.within(drifting(), teacher_in(environment))


def test_a_teacher_with_wrappers_of_its_own_still_plays_in_its_own_environment() -> None:
    teacher = teacher_in(drifting(*OWN["other wrappers"]))
    TeacherView.within(drifting(), teacher).reset(seed=0)
    assert len(teacher.score(0, Length(0, 3), 50)) == 3


# The phases.


def test_the_phases_and_what_they_leave(teacher_dir: Path, tmp_path: Path) -> None:
    runner = students_runner(tmp_path, teacher_dir, "Runner.num_iterations = 2")
    assert isinstance(runner.teaching, Reincarnation)
    assert runner.num_iterations == 5 and runner.teaching.one_more == "Runner.num_iterations = 3"
    runner.run_experiment()
    lines = read_iterations(tmp_path)
    assert [line["phase"] for line in lines] == ["collect", "offline", "offline", "online", "online"]
    assert [line["train_updates"] for line in lines][:3] == [0, 6, 6]
    assert all(line["train_updates"] > 0 for line in lines[3:])
    assert lines[0]["frames"] == lines[1]["frames"] == lines[2]["frames"] < lines[3]["frames"]
    assert "eval_average_return" not in lines[0]
    scores = runner.teaching.scores
    for line in lines[1:]:
        expected = (line["eval_average_return"] - scores["random"]) / max(scores["teacher"] - scores["random"], 1e-8)
        assert line["eval_normalized_score"] == pytest.approx(expected)
        assert line["teacher_return"] == scores["teacher"] == pytest.approx(np.mean(scores["returns"]))
    weights = [line["teacher_weight"] for line in lines]
    assert weights[:4] == [1, 1, 1, 1]
    assert weights[4] == pytest.approx(min(max(1 - lines[3]["eval_normalized_score"], 0), 1))
    assert lessons_of(runner.agent).teacher_replay is None  # nothing needs it any more


def test_without_collecting_the_teachers_own_replay_is_learnt_from(teacher_dir: Path, tmp_path: Path) -> None:
    runner = students_runner(tmp_path, teacher_dir, "RunnerWithTeacher.teacher_steps = 0", "Runner.num_iterations = 1")
    runner.resume()
    own = [len(list(d.transitions())) for d in Teacher.of_run(teacher_dir).demonstrations()]
    assert len(lessons_of(runner.agent).teacher_replay) == sum(own)
    runner.run_experiment()
    assert [line["phase"] for line in read_iterations(tmp_path)] == ["offline", "offline", "online"]


def test_updates_may_be_computed_beside_the_game(teacher_dir: Path, tmp_path: Path) -> None:
    bindings = ("Runner.overlap = True", "Runner.num_iterations = 2")
    runs = []
    for name in ("one", "other"):
        runner = students_runner(tmp_path / name, teacher_dir, *bindings)
        runner.run_experiment()
        runs.append(all_of(runner))
    assert_identical(*runs)
    assert [line["phase"] for line in runs[0]["lines"]] == ["collect", "offline", "offline", "online", "online"]


def test_the_teacher_is_evaluated_once(teacher_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    measure = Teacher.score
    monkeypatch.setattr(Teacher, "score", lambda *args: asked.append(1) or measure(*args))
    students_runner(tmp_path, teacher_dir, "Runner.num_iterations = 1").run_experiment()
    students_runner(tmp_path, teacher_dir, "Runner.num_iterations = 2").run_experiment()
    assert len(asked) == 1


@pytest.mark.parametrize("collects", [50, 0])
def test_a_run_resumes_bit_for_bit_in_each_phase(
    collects: int, teacher_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bindings = (
        f"RunnerWithTeacher.teacher_steps = {collects}",
        "Runner.num_iterations = 2",
        "DQNAgent.epsilon_train = 0.3",
    )
    whole = students_runner(tmp_path / "whole", teacher_dir, *bindings)
    states = []
    save = Checkpointer.save

    def noted(self: Checkpointer, iteration: int, *arguments: Any) -> set[int]:
        kept = save(self, iteration, *arguments)
        shutil.copytree(whole.base_dir / "checkpoints", tmp_path / f"after {iteration}" / "checkpoints")
        states.append(iteration)
        return kept

    with monkeypatch.context() as patch:
        patch.setattr(Checkpointer, "save", noted)
        whole.run_experiment()
    assert len(states) == whole.num_iterations
    for iteration in states[:-1]:
        directory = tmp_path / f"after {iteration}"
        part = students_runner(directory, teacher_dir, *bindings)
        assert part.resume() and part.start_iteration == iteration + 1
        part.run_experiment()
        assert_identical(all_of(part), all_of(whole))
    assert [timeless(line) for line in read_iterations(tmp_path / "whole")] == all_of(whole)["statistics"]


@pytest.mark.parametrize("updates", [1, 4, 9])
def test_a_run_that_is_asked_to_end_amid_offline_updates_ends_as_an_uninterrupted_one(
    updates: int, teacher_dir: Path, tmp_path: Path
) -> None:
    bindings = ("RunnerWithTeacher.teacher_steps = 0", "Runner.num_iterations = 1")
    whole = students_runner(tmp_path / "whole", teacher_dir, *bindings)
    whole.run_experiment()
    stopped = students_runner(tmp_path / "stopped", teacher_dir, *bindings)
    lessons: Any = lessons_of(stopped.agent)
    learn = lessons.learn_offline

    def asked() -> None:
        learn()
        stopped.ending.asked = stopped.agent.updates == updates

    lessons.learn_offline = asked
    with pytest.raises(KeyboardInterrupt):
        stopped.run_experiment()
    resumed = students_runner(tmp_path / "stopped", teacher_dir, *bindings)
    assert resumed.resume() and resumed.agent.updates == updates
    resumed.run_experiment()
    assert_identical(all_of(resumed), all_of(whole))


def test_a_finished_students_run_is_a_teacher(teacher_dir: Path, tmp_path: Path) -> None:
    from async_wrappers.agents.config.config import save_config

    runner = students_runner(tmp_path, teacher_dir, "Runner.num_iterations = 1")
    save_config(tmp_path)
    runner.run_experiment()
    gin.clear_config()
    assert Teacher.of_run(tmp_path).identity()["agent"] == "QDaggerDQNAgent"


# Scores.


def test_normalised_scores_are_0_for_random_play_and_1_for_the_teacher(teacher_dir: Path, tmp_path: Path) -> None:
    runner = students_runner(tmp_path, teacher_dir)
    with pytest.raises(ValueError, match="must be asked for when the teacher has played"):
        runner.teaching.normalized_score(1.0)
    runner.teaching.scores = {"teacher": 110.0, "random": 10.0, "returns": [110.0]}
    scores = [runner.teaching.normalized_score(score) for score in (10.0, 60.0, 110.0, -90.0)]
    assert scores == pytest.approx([0, 0.5, 1, -1])


def test_random_play_is_measured_but_for_games_of_atari(teacher_dir: Path) -> None:
    assert len(RANDOM_SCORES) == 57 and RANDOM_SCORES["Pong"] == -20.7
    teacher = Teacher.of_run(teacher_dir)
    found = teacher.random_score(0, Length(40, None), 20)
    assert found == teacher.random_score(0, Length(40, None), 20) != teacher.random_score(1, Length(40, None), 20)


def test_random_play_of_atari_is_the_tables() -> None:
    pytest.importorskip("ale_py")
    from async_wrappers.envs import create_atari_environment

    environment = create_atari_environment("Pong", obs_type="ram", frame_skip=4)
    assert teacher_in(environment, stack_size=1, network=tiny).random_score(0, Length(1, None), 5) == -20.7


def test_the_lengths_of_each_kind_of_iteration_are_told_apart(tmp_path: Path, teacher_dir: Path) -> None:
    runner = students_runner(tmp_path, teacher_dir, "Runner.num_iterations = 3")
    assert runner.facts()["iterations"] == (
        "6: 1 of 50 frames that the teacher plays, then 2 of 6 offline updates and 40 evaluation frames, "
        "then 3 of 60 training frames and 40 evaluation frames"
    )


def test_an_offline_iteration_is_told_by_its_updates(
    tmp_path: Path, teacher_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bindings = ("RunnerWithTeacher.teacher_steps = 0", "Runner.num_iterations = 0")
    runner = students_runner(tmp_path, teacher_dir, *bindings)
    runner.run_experiment()
    assert closing_line(runner.history) == "training: 0 episodes, 0 frames; 12 offline updates"
    assert "iteration 0: 6 offline updates; eval return" in capsys.readouterr().out
    assert not {"train_actions_per_frame", "train_updates_per_action"} & read_iterations(tmp_path)[0].keys()


# What is refused.


@pytest.mark.parametrize(
    ("bindings", "message"),
    [
        (["create_agent.agent_name = 'dqn'"], "needs an agent that learns from a teacher, such as .* got DQNAgent"),
        (["Runner.evaluation_steps = 0"], "Runner.evaluation_steps must be >= 1 frame .* where a student is taught"),
        (["Runner.evaluation_episodes = 0"], "must be >= 1 frame .and Runner.evaluation_episodes >= 1 or None. where"),
        (
            ["RunnerWithTeacher.num_pretraining_steps = 0"],
            "teacher_steps must be 0 frames where nothing is",
        ),
        (["RunnerWithTeacher.label_at = 'end'"], "RunnerWithTeacher.label_at must be 'start' or 'effect', got 'end'"),
        (["RunnerWithTeacher.teacher_steps = -1"], "RunnerWithTeacher.teacher_steps must be >= 0 frames, got -1"),
        (
            ["RunnerWithTeacher.num_pretraining_steps = 1.5"],
            r"RunnerWithTeacher.num_pretraining_steps must be a whole number \(updates\), got 1.5",
        ),
        (
            ["RunnerWithTeacher.teacher_score = 3"],
            "teacher_score must be None where the teacher is evaluated, got 3: bind RunnerWithTeacher.evaluate_teacher",
        ),
        (
            ["RunnerWithTeacher.evaluate_teacher = False"],
            "teacher_score must be bound, the teacher's mean return, where evaluate_teacher is False with agent 'qdag",
        ),
        (["RunnerWithTeacher.evaluate_teacher = 2"], "evaluate_teacher must be True or False, got 2"),
        (
            ["RunnerWithTeacher.random_teacher = True"],
            "random_teacher must be False where teacher_checkpoint_dir or teacher_gin_file name a teacher, got",
        ),
        (
            [
                "QDaggerDQNAgent.teacher_replay_scheme = 'prioritized'",
                "RunnerWithTeacher.teacher_steps = 0",
                "RunnerWithTeacher.num_pretraining_steps = 0",
            ],
            "teacher_replay_scheme must be 'uniform' where nothing is drawn from the teacher's replay",
        ),
        (
            ["Runner.pretrain_dataset = 'here'"],
            "Runner.pretrain_dataset must be None where a student is taught, .* got 'here'",
        ),
    ],
)
def test_wrong_settings_are_refused_in_a_sentence(bindings: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        students_runner(tmp_path, tmp_path, *bindings)


RANDOM = "RunnerWithTeacher.random_teacher = True"


def test_a_teacher_that_is_not_evaluated_has_the_score_that_is_bound(
    teacher_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def played(*args: Any) -> Any:
        raise AssertionError("the teacher was evaluated")

    monkeypatch.setattr(Teacher, "score", played)
    monkeypatch.setattr(Teacher, "random_score", lambda *args: 2.0)
    bindings = ("RunnerWithTeacher.evaluate_teacher = False", "RunnerWithTeacher.teacher_score = 12")
    runner = students_runner(tmp_path, teacher_dir, *bindings)
    runner.run_experiment()
    lines = [line for line in read_iterations(tmp_path) if "eval_average_return" in line]
    assert len(lines) == 4
    for line in lines:
        assert line["teacher_return"] == 12
        assert line["eval_normalized_score"] == pytest.approx((line["eval_average_return"] - 2) / 10)
    resumed = students_runner(tmp_path, teacher_dir, *bindings)
    assert resumed.resume() and resumed.teaching.normalized_score(7.0) == 0.5


def test_a_student_whose_lambda_follows_no_score_needs_none(
    teacher_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Teacher, "random_score", lambda *args: pytest.fail("random play was measured"))
    unmeasured = "RunnerWithTeacher.evaluate_teacher = False"
    kinds = ("QDaggerDQNAgent.method_type = 'ql_plus_dagger'", "create_agent.agent_name = 'pretrained_dqn'")
    for number, kind in enumerate(kinds):
        students_runner(tmp_path / str(number), teacher_dir, unmeasured, kind).run_experiment()
        lines = [line for line in read_iterations(tmp_path / str(number)) if "eval_average_return" in line]
        assert len(lines) == 4 and not any("eval_normalized_score" in line for line in lines)


def test_a_random_teacher_teaches_for_tests(tmp_path: Path) -> None:
    runner = students_runner(tmp_path, Path("None"), "RunnerWithTeacher.teacher_checkpoint_dir = None", RANDOM)
    runner.run_experiment()
    teacher = runner.teaching.teacher
    assert teacher.source.startswith("the random teacher of seed ")
    weights = teacher.identity()["weights"]
    assert teacher.spec.stack_size == runner.agent.spec.stack_size
    assert len(read_iterations(tmp_path)) == 5 and runner.agent.updates > 12
    again = students_runner(tmp_path, Path("None"), "RunnerWithTeacher.teacher_checkpoint_dir = None", RANDOM)
    assert again.resume()
    assert again.teaching.teacher.identity()["weights"] == weights


def test_a_run_without_a_teacher_is_refused(tmp_path: Path) -> None:
    load_gin("configs/reincarnation/qdagger_dqn_cartpole.gin")
    from async_wrappers.agents.registry import create_runner

    with pytest.raises(ValueError, match="teacher_checkpoint_dir must be bound to the directory of a run"):
        create_runner(tmp_path).resume()


def test_a_teacher_without_a_replay_is_refused_with_how_to_collect(teacher_dir: Path, tmp_path: Path) -> None:
    shutil.copytree(teacher_dir, tmp_path / "bare")
    shutil.rmtree(tmp_path / "bare" / "checkpoints" / "replay")
    runner = students_runner(tmp_path / "student", tmp_path / "bare", "RunnerWithTeacher.teacher_steps = 0")
    with pytest.raises(
        ValueError, match=r"has no replay, which offline phases .* RunnerWithTeacher.teacher_steps = 100_000"
    ):
        runner.resume()


def test_a_replay_without_delay_is_refused_under_delay(teacher_dir: Path, tmp_path: Path) -> None:
    bindings = ("RunnerWithTeacher.teacher_steps = 0", "RealtimeDelay.delay = 2")
    with pytest.raises(
        ValueError, match="has a replay of the delay none, and its student's is 2 frames: collect transitions"
    ):
        students_runner(tmp_path, teacher_dir, *bindings).resume()


def test_a_run_is_not_continued_with_another_teacher(teacher_dir: Path, tmp_path: Path) -> None:
    students_runner(tmp_path, teacher_dir, "Runner.num_iterations = 1").run_experiment()
    other = students_runner(tmp_path, teacher_dir, "RunnerWithTeacher.teacher_checkpoint_number = 0")
    with pytest.raises(DifferentExperiment, match="reincarnation: teacher: weights"):
        other.resume()


def test_a_student_plays_under_its_own_runner_alone(tmp_path: Path) -> None:
    from async_wrappers.agents.registry import create_spec

    load_gin("configs/dqn/cartpole.gin", bindings=["create_agent.agent_name = 'qdagger_dqn'"])
    env = DriftingEnv()
    with pytest.raises(ValueError, match=r"bind create_runner.schedule = 'reincarnation'"):
        create_spec(env.observation_space, env.action_space)


# A teacher that is trained first.


def test_a_teacher_is_trained_first_where_it_is_not_yet(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "teacher.gin"
    lines = ["include 'configs/dqn/cartpole.gin'", *QUICK, "Runner.seed = 3"]
    mine.write_text("\n".join(sorted(lines, key=lambda line: not line.startswith("import"))))
    teacher, gin_file = tmp_path / "teacher", f"RunnerWithTeacher.teacher_gin_file = '{mine}'"
    for student in ("one", "other"):
        runner = students_runner(tmp_path / student, teacher, gin_file, "Runner.num_iterations = 1")
        runner.run_experiment()
        assert gin.query_parameter("create_agent.agent_name") == "qdagger_dqn"  # the caller's gin is as it was
    assert capfd.readouterr().out.count("is trained in") == 1
    assert len(read_iterations(teacher)) == 2
    assert load_agent(teacher)[0].identity()["agent"] == "DQNAgent"


def test_a_teacher_that_is_being_trained_is_waited_for(teacher_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    busy, trained = [DirectoryInUse("held"), DirectoryInUse("held"), None], []

    @contextmanager
    def alone(directory: Path) -> Iterator[None]:
        if (error := busy.pop(0)) is not None:
            raise error
        yield

    monkeypatch.setattr(runner_module, "alone_in", alone)
    monkeypatch.setattr(runner_module, "_PAUSE", 0.0)
    monkeypatch.setattr(runner_module, "_train", lambda *args: trained.append(args))
    train_teacher(teacher_dir, "teacher.gin")
    assert trained == [(teacher_dir, "teacher.gin")] and not busy

"""DQfD's margin, pretraining and rehearsal, reloading and JSRL: the agent contract, tables by hand, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.load import load_agent
from async_wrappers.agents.losses.loss import Networks
from async_wrappers.agents.losses.teaching import conservative, large_margin
from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent
from async_wrappers.agents.replay.replay import create_replay
from async_wrappers.agents.teaching.methods.dqfd import DQfD
from async_wrappers.agents.teaching.methods.jsrl import JSRL
from async_wrappers.agents.teaching.methods.pretrained import PretrainedDQN
from async_wrappers.agents.teaching.methods.reloaded import ReloadedDQN
from async_wrappers.agents.teaching.student_progress import LABEL, Rehearsal, Teaching, TeachingPhase
from async_wrappers.agents.teaching.teacher import Teacher
from async_wrappers.policy import Decision
from tests.contracts.agent_contract import WORLDS, World, play
from tests.contracts.student_contract import StudentContract
from tests.worlds.agents import selector_values
from tests.worlds.experiments import state
from tests.worlds.plain_data import assert_identical
from tests.worlds.teachers import (
    RNG,
    SPACES,
    ScriptedTeacher,
    TaughtEnv,
    batch_of,
    lessons_of,
    make_spec,
    make_student,
    students_runner,
    teachers_run,
)


class UnderDelay(StudentContract):
    """The contract in one world: the turns of all students are the same code."""

    @pytest.fixture
    def world(self) -> World:
        return WORLDS["delay 2, noops 3"]


class TestDQfD(UnderDelay):
    member = DQfD


class TestPretrainedDQN(UnderDelay):
    member = PretrainedDQN


class TestReloadedDQN(UnderDelay):
    member = ReloadedDQN


class TestJSRL(UnderDelay):
    member = JSRL

    def make_agent(self, environment: Any, seed: int) -> Any:
        return make_student(JSRL, environment, stack_size=2, seed=seed, roll_out_guide_prob=0.5, max_roll_in_steps=3)


# DQfD.


@pytest.mark.parametrize("weight", [1.0, 0.25, 0.0])
@pytest.mark.parametrize("of_teacher", [True, False])
@pytest.mark.parametrize("of_maximum", [True, False])
def test_dqfds_loss_has_lambda_once(weight: float, of_teacher: bool, of_maximum: bool) -> None:
    spec = make_spec(DQfD, margin_coefficient=2.0, margin=1.5, use_teacher_actions=of_teacher, dqfd_margin=of_maximum)
    network, batch = spec.make_network(), batch_of()
    networks = Networks(network, network)
    spec.teaching.weight = weight
    actions = batch["extras"][LABEL].argmax(1) if of_teacher else batch["action"]
    margin = large_margin(network(batch["observation"]), actions, 1.5, of_maximum=of_maximum)
    expected = DQN.loss(spec, networks, batch, RNG).loss + weight * 2.0 * margin
    assert torch.allclose(spec.loss(networks, batch, RNG).loss, expected)


@pytest.mark.parametrize(("decays", "rate"), [(False, 1e-4), (True, 0.5 * 1e-4 + 0.5 * 1e-5)])
def test_dqfds_learning_rate_stays_unless_it_is_to_decay(decays: bool, rate: float) -> None:
    spec = make_spec(DQfD, lr_decay=decays)
    spec.record_score(0.5)
    assert spec.learning_rate() == pytest.approx(rate)


# Pretraining and rehearsal.


def test_the_conservative_term_is_of_the_offline_phase_alone() -> None:
    spec = make_spec(PretrainedDQN, cql_coefficient=2.0, td_loss_coefficient=0.5, distill_temperature=0.1)
    network, batch = spec.make_network(), batch_of()
    networks = Networks(network, network)
    td = DQN.loss(spec, networks, batch, RNG).loss
    spec.teaching.phase = TeachingPhase.OFFLINE
    cql = conservative(network(batch["observation"]), batch["action"], 0.1)
    assert torch.allclose(spec.loss(networks, batch, RNG).loss, 0.5 * td + 2.0 * cql)
    spec.teaching.phase = TeachingPhase.ONLINE
    assert torch.equal(spec.loss(networks, batch, RNG).loss, td)


@pytest.mark.parametrize(("steps", "left"), [(0, 2.0), (25, 1.5), (100, 0.0), (1000, 0.0)])
def test_the_conservative_term_falls_online_where_it_has_a_period(steps: int, left: float) -> None:
    spec = make_spec(
        PretrainedDQN, cql_coefficient=2.0, td_loss_coefficient=0.5, cql_decay_period=100, distill_temperature=1.0
    )
    network, batch = spec.make_network(), batch_of()
    networks = Networks(network, network)
    spec.teaching.phase, spec.teaching.online_steps = TeachingPhase.ONLINE, steps
    td = DQN.loss(spec, networks, batch, RNG).loss
    cql = conservative(network(batch["observation"]), batch["action"], 1.0)
    assert torch.allclose(spec.loss(networks, batch, RNG).loss, td + left * cql)


def test_fine_tuning_begins_with_a_new_optimiser_and_its_own_rate() -> None:
    env = TaughtEnv()
    agent = make_student(PretrainedDQN, env, pretraining_learning_rate=0.25)  # online 0.03
    lessons_of(agent).begin_phase(TeachingPhase.COLLECT)
    play(agent, env, range(8))
    lessons_of(agent).begin_phase(TeachingPhase.OFFLINE)
    for _ in range(3):
        lessons_of(agent).learn_offline()
    optimizer = agent.learner.state_dict()["optimizer"]
    assert optimizer["param_groups"][0]["lr"] == 0.25 and len(optimizer["state"]) > 0
    lessons_of(agent).begin_phase(TeachingPhase.ONLINE)
    optimizer = agent.learner.state_dict()["optimizer"]
    assert optimizer["param_groups"][0]["lr"] == 0.03 and not optimizer["state"]


def filled(reward: float, **arguments: Any) -> Any:
    replay = create_replay(SPACES[0], capacity=50, batch_size=16, **arguments)
    for step in range(40):
        one = {"observation": np.full(3, reward, np.float32), "action": step % 3, "reward": reward, "interval": 1}
        replay.observe({**one, "terminal": False, "truncated": False, "next_observation": one["observation"]})
    return replay


@settings(max_examples=20, deadline=None)
@given(ratio=st.floats(0, 1), seed=st.integers(0, 2**31), prioritized=st.booleans())
def test_each_row_of_a_rehearsal_is_of_one_of_the_two(ratio: float, seed: int, prioritized: bool) -> None:
    own = filled(1.0, selector="prioritized" if prioritized else "uniform")
    teaching = Teaching()
    rehearsal = Rehearsal(own, filled(-1.0), ratio, teaching, seed)
    shares = []
    for _ in range(12):
        batch = rehearsal.sample()
        of_teacher = batch["reward"] < 0
        assert (batch["index"][of_teacher] == -1).all() and (batch["index"][~of_teacher] >= 0).all()
        assert (batch["observation"][:, 0, 0] == batch["reward"]).all()
        if prioritized:
            assert (batch["weight"][of_teacher] == 1).all()
            rehearsal.set_priorities(batch["index"], np.full(16, 0.5))
        shares.append(of_teacher.mean())
    assert teaching.rehearsed == 12
    rows = 12 * 16
    # Five standard deviations and five rows: where hardly a row is the teacher's, one more is many deviations.
    assert abs(rows * np.mean(shares) - rows * ratio) < 5 * np.sqrt(rows * ratio * (1 - ratio)) + 5


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**31), prioritized=st.booleans())
def test_rows_of_a_rehearsal_give_their_priorities_to_the_replay_that_they_come_from(
    seed: int, prioritized: bool
) -> None:
    own, teachers = (
        filled(1.0, selector="prioritized" if prioritized else "uniform"),
        filled(-1.0, selector="prioritized", priority_exponent=1.0),
    )
    rehearsal = Rehearsal(own, teachers, 0.5, Teaching(), seed)
    expected = dict.fromkeys(teachers.valid_slots().tolist(), 1.0)
    for number in range(8):
        batch = rehearsal.sample()
        of_teacher = batch["reward"] < 0
        assert (batch["index"][of_teacher] < 0).all() and (batch["index"][~of_teacher] >= 0).all()
        if not prioritized:
            assert (batch["weight"][~of_teacher] == 1).all() and (batch["probability"][~of_teacher] == 1).all()
        priorities = np.arange(16) + 2.0 * number + 0.5
        rehearsal.set_priorities(batch["index"], priorities)
        expected |= dict(zip((-1 - batch["index"][of_teacher]).tolist(), priorities[of_teacher].tolist(), strict=True))
    assert selector_values(teachers) == expected


def test_a_student_rehearses_online_and_keeps_the_teachers_replay() -> None:
    env = TaughtEnv()
    agent = make_student(PretrainedDQN, env, teacher_data_ratio=0.5)
    lessons_of(agent).begin_phase(TeachingPhase.COLLECT)
    play(agent, env, range(8))
    lessons_of(agent).begin_phase(TeachingPhase.ONLINE)
    play(agent, env, range(8))
    assert agent.updates == lessons_of(agent).teaching.rehearsed > 0
    assert isinstance(agent.learner.source, Rehearsal)


# Reloading.


@pytest.fixture(scope="module")
def teacher_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    threads = torch.get_num_threads()
    path = teachers_run(tmp_path_factory.mktemp("teacher") / "run")
    torch.set_num_threads(threads)
    return path


RELOADED = (
    "create_agent.agent_name = 'reloaded_dqn'",
    "RunnerWithTeacher.teacher_steps = 0",
    "RunnerWithTeacher.num_pretraining_iterations = 0",
    "DQNAgent.update_horizon = 1",
)


def test_a_reloaded_student_begins_as_its_teacher(teacher_dir: Path, tmp_path: Path) -> None:
    runner = students_runner(tmp_path, teacher_dir, *RELOADED, "create_optimizer.learning_rate = 1e-5")
    runner.resume()
    teacher, _ = load_agent(teacher_dir)
    assert isinstance(teacher, TurnBasedAgent)
    learner = runner.agent.learner
    whole = Teacher.of_run(teacher_dir).state()["learner"]
    mine = learner.state_dict()
    for part in ("network", "target"):
        assert_identical(dict(mine[part]), dict(whole[part]))
    assert_identical(mine["optimizer"]["state"], whole["optimizer"]["state"])
    assert [each["optimizer"]["param_groups"][0]["lr"] for each in (mine, whole)] == [1e-5, 1e-3]
    assert mine["updates"] == whole["updates"]
    teacher.learner.load_replay(teacher_dir / "checkpoints" / "replay", 1)
    ours, theirs = (replay.transitions(replay.valid_slots()) for replay in (learner.replay, teacher.learner.replay))
    for name in ("observation", "action", "reward", "discount", "next_observation"):
        np.testing.assert_array_equal(ours[name], theirs[name])


def test_a_reloaded_student_may_leave_replay_and_moments(teacher_dir: Path, tmp_path: Path) -> None:
    more = ("ReloadedDQNAgent.reload_optimizer = False", "ReloadedDQNAgent.load_replay = False")
    runner = students_runner(tmp_path, teacher_dir, *RELOADED, *more)
    runner.resume()
    assert not runner.agent.learner.state_dict()["optimizer"]["state"]
    assert not len(runner.agent.learner.replay)


def test_a_reloaded_student_of_another_network_is_refused(teacher_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"must be of the network of its student, which begins as it: .* make the network"
    ):
        students_runner(tmp_path, teacher_dir, *RELOADED, "MLPTorso.hidden = (7,)").resume()
    with pytest.raises(ValueError, match="reload_optimizer must be False where the teacher's optimiser is Adam and"):
        students_runner(tmp_path, teacher_dir, *RELOADED, "create_optimizer.name = 'rmsprop'").resume()


@pytest.mark.parametrize("agent", ["reloaded_dqn", "jsrl_dqn", "pretrained_dqn", "dqfd_dqn"])
def test_a_run_of_each_method_resumes_bit_for_bit(agent: str, teacher_dir: Path, tmp_path: Path) -> None:
    collects, scheme = agent == "dqfd_dqn", "DQfD" if agent == "dqfd_dqn" else "PretrainedDQN"
    bindings = (
        *RELOADED[1:],
        f"create_agent.agent_name = '{agent}'",
        f"RunnerWithTeacher.teacher_steps = {50 * collects}",
        f"RunnerWithTeacher.num_pretraining_iterations = {int(agent in ('pretrained_dqn', 'dqfd_dqn'))}",
        "PretrainedDQNAgent.teacher_data_ratio = 0.5",
        "JSRLAgent.max_roll_in_steps = 6",
        "JSRLAgent.roll_out_guide_prob = 0.5",
        f"{scheme}Agent.teacher_replay_scheme = 'prioritized'",
    )
    states = []
    for name, stops in (("whole", ()), ("parts", (1, 2))):
        for stop in stops:
            part = students_runner(tmp_path / name, teacher_dir, *bindings)
            part.num_iterations = stop
            part.run_experiment()
        runner = students_runner(tmp_path / name, teacher_dir, *bindings)
        runner.run_experiment()
        states.append({**state(runner), "teaching": vars(lessons_of(runner.agent).teaching)})
    assert_identical(*states)


# JSRL.


def decision(episode: int = 0, start: int = 0) -> Decision:
    return Decision(episode, start, start, False)


@pytest.mark.parametrize(("first", "factor", "horizons"), [(100, 0.8, [80, 64, 51, 40, 32]), (3, 0.5, [1, 0, 0, 0, 0])])
def test_the_horizon_shrinks_after_each_iteration(first: int, factor: float, horizons: list[int]) -> None:
    spec = make_spec(JSRL, max_roll_in_steps=first, decay_roll_in_steps=factor)
    found = []
    for _ in range(5):
        spec.record_score(0.3)
        found.append(spec.teaching.horizon)
    assert found == horizons


def test_a_roll_in_is_drawn_from_1_to_the_horizon_for_each_episode() -> None:
    spec = make_spec(JSRL, max_roll_in_steps=4)
    lengths = [spec.roll_in(decision(episode)) for episode in range(400)]
    assert {*lengths} == {1, 2, 3, 4} and all(70 < lengths.count(each) < 130 for each in (1, 2, 3, 4))
    assert lengths == [spec.roll_in(decision(episode, start=5)) for episode in range(400)]
    spec.teaching.horizon = 0
    assert spec.roll_in(decision()) == 0  # theirs raises here


@pytest.mark.parametrize(
    ("guide", "h", "expected"),
    [(True, 3, [1, 1, 1, 0, 0]), (True, 1, [1, 0, 0, 0, 0]), (True, 0, [0, 0, 0, 0, 0]), (False, 3, [0, 0, 0, 0, 0])],
)
def test_the_roll_in_counts_the_episodes_first_action(
    guide: bool, h: int, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = make_spec(JSRL, roll_in_guide=guide)
    monkeypatch.setattr(spec, "roll_in", lambda _: h)
    assert [spec.guided(decision(), number) for number in range(5)] == [bool(each) for each in expected]


@pytest.mark.parametrize(("steps", "share"), [(0, 0.8), (50, 0.4), (75, 0.2), (100, 0.0), (500, 0.0)])
def test_the_guide_acts_less_and_less_after_the_roll_in(steps: int, share: float) -> None:
    spec = make_spec(JSRL, max_roll_in_steps=0, roll_out_guide_prob=0.8, roll_out_decay_period=100)
    spec.teaching.online_steps = steps + 1  # with the present one
    acts = [spec.guided(decision(0, start), start) for start in range(1000)]
    assert np.mean(acts) == pytest.approx(share, abs=0.06 if share else 0)


def test_what_the_guide_does_is_played_and_learnt_from_in_training_alone() -> None:
    env = TaughtEnv(lengths=[9])
    agent = make_student(JSRL, env, max_roll_in_steps=1, roll_out_guide_prob=1.0, roll_out_decay_period=10**9)
    actions = play(agent, env, range(6))
    for life, chosen in zip(env.lives, actions, strict=True):
        best = ScriptedTeacher().values(np.array(life.observations[:-1])[:, None]).argmax(1)
        assert chosen == best.tolist()
    assert len(agent.learner.replay) == 6 * 9 and agent.updates > 0
    lessons_of(agent).guide.teacher = None
    assert play(agent, env, range(2), eval_mode=True)


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        (DQfD, {"margin": -1.0}, "margin must be >= 0 and finite, got -1.0"),
        (DQfD, {"lr_decay": 2}, "lr_decay must be True or False, got 2"),
        (PretrainedDQN, {"cql_coefficient": -0.5}, "cql_coefficient must be >= 0 and finite, got -0.5"),
        (
            PretrainedDQN,
            {"learning_rate_decay": 9},
            "learning_rate_decay must be None with agent 'pretrained_dqn', whose phases have each their own: bind Pre",
        ),
        (PretrainedDQN, {"cql_decay_period": -1}, "cql_decay_period must be >= 0 steps, got -1"),
        (PretrainedDQN, {"distill_temperature": 0.0}, "distill_temperature must be > 0, got 0.0"),
        (PretrainedDQN, {"teacher_data_ratio": 1.5}, r"teacher_data_ratio must lie in \[0, 1\], got 1.5"),
        (ReloadedDQN, {"load_replay": None}, "load_replay must be True or False, got None"),
        (JSRL, {"roll_out_guide_prob": 2.0}, r"roll_out_guide_prob must lie in \[0, 1\], got 2.0"),
        (JSRL, {"max_roll_in_steps": -1}, "max_roll_in_steps must be >= 0 decisions, got -1"),
    ],
)
def test_wrong_arguments_are_refused_in_a_sentence(kind: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        make_spec(kind, **arguments)

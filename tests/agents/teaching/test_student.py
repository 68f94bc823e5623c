"""Students: the agent contract, their losses by hand, what each phase learns from, and how lambda falls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gin
import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from async_wrappers import RealtimeDelay
from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.families.value_based.rainbow import FullRainbow, Rainbow
from async_wrappers.agents.losses.loss import LossOutput, Networks
from async_wrappers.agents.losses.teaching import create_linear_schedule, distillation
from async_wrappers.agents.play.lessons import Lesson
from async_wrappers.agents.play.turns.agents import Agent
from async_wrappers.agents.spec import own_seed
from async_wrappers.agents.teaching.methods.augmentation import shifted
from async_wrappers.agents.teaching.methods.dqfd import DQfD
from async_wrappers.agents.teaching.methods.jsrl import JSRL
from async_wrappers.agents.teaching.methods.pretrained import PretrainedDQN
from async_wrappers.agents.teaching.methods.qdagger import QDagger, QDaggerDQN, QDaggerRainbow
from async_wrappers.agents.teaching.methods.reloaded import ReloadedDQN
from async_wrappers.agents.teaching.student import seed_of, with_teacher
from async_wrappers.agents.teaching.student_progress import LABEL, Teaching, TeachingPhase
from tests.contracts.agent_contract import play
from tests.contracts.student_contract import StudentContract
from tests.worlds.agents import hyperparameters, selector_values
from tests.worlds.teachers import RNG, ScriptedTeacher, TaughtEnv, batch_of, lessons_of, make_spec, make_student

pytestmark = pytest.mark.filterwarnings("ignore::async_wrappers.agents.families.value_based.c51.SupportWarning")


class TestQDaggerDQN(StudentContract):
    member = QDaggerDQN


class TestQDaggerRainbow(StudentContract):
    member = QDaggerRainbow

    def make_agent(self, environment: gym.Env[Any, Any], seed: int) -> Agent:
        return make_student(QDaggerRainbow, environment, stack_size=2, seed=seed, num_atoms=7, vmax=3.0)


# Lambda and the learning rate.


@pytest.mark.parametrize(
    ("scores", "weights"),
    [
        ([0.25, 0.5, 0.9], [0.75, 0.5, 0.1]),
        ([-2.0, 0.5], [1.0, 0.5]),  # below random play: not above 1
        ([0.5, 1.2, 0.1], [0.5, 0.0, 0.0]),  # once 0 it stays 0
        ([0.6, 0.2], [0.4, 0.8]),  # a student that falls back is taught more again
    ],
)
def test_lambda_is_1_minus_the_normalised_score(scores: list[float], weights: list[float]) -> None:
    teaching = Teaching()
    found = []
    for score in scores:
        teaching.record_score(score, -1)
        found.append(teaching.weight)
    assert found == pytest.approx(weights)


@pytest.mark.parametrize(
    ("steps", "period", "weight"), [(99, 100, 0.5), (100, 100, 0.0), (101, 100, 0.0), (10**9, -1, 0.5)]
)
def test_lambda_is_0_once_the_decay_period_is_reached(steps: int, period: int, weight: float) -> None:
    teaching = Teaching(online_steps=steps)
    teaching.record_score(0.5, period)
    assert teaching.weight == weight


@pytest.mark.parametrize("phase", [TeachingPhase.COLLECT, TeachingPhase.OFFLINE])
def test_lambda_is_1_until_an_online_iteration_ends(phase: TeachingPhase) -> None:
    teaching = Teaching(phase)
    teaching.record_score(0.5, 0)
    assert teaching.weight == 1


@pytest.mark.parametrize(("weight", "rate"), [(1.0, 1e-4), (0.0, 1e-5), (0.5, 5.5e-5), (0.25, 3.25e-5)])
def test_the_learning_rate_goes_with_lambda(weight: float, rate: float) -> None:
    assert create_linear_schedule(weight) == pytest.approx(rate)


@pytest.mark.parametrize("weight", [-0.1, 1.1])
def test_a_lambda_out_of_range_is_refused(weight: float) -> None:
    with pytest.raises(ValueError, match=rf"lambda must lie in \[0, 1\], got {weight}"):
        create_linear_schedule(weight)


def test_lambda_cannot_be_bound() -> None:
    with pytest.raises(ValueError, match="denylisted kwarg 'weight'"):
        gin.bind_parameter("create_linear_schedule.weight", 2.0)


def test_the_learner_steps_with_the_rate_of_lambda() -> None:
    agent = make_student(QDaggerDQN, TaughtEnv())

    def rate() -> float:
        return float(agent.learner.state_dict()["optimizer"]["param_groups"][0]["lr"])

    assert rate() == pytest.approx(1e-4)
    lessons_of(agent).record_score(0.75)
    assert rate() == pytest.approx(0.25 * 1e-4 + 0.75 * 1e-5)


# The loss.


def test_qdaggers_loss_is_the_td_loss_and_lambda_c_times_the_divergence() -> None:
    spec = make_spec(distill_loss_coefficient=3.0, distill_temperature=0.5)
    network, batch = spec.make_network(), batch_of()
    networks = Networks(network, network)
    td = DQN.loss(spec, networks, batch, RNG)
    kl = distillation(batch["extras"][LABEL], network(batch["observation"]), 0.5)
    for weight in (1.0, 0.25, 0.0):
        spec.teaching.weight = weight
        output = spec.loss(networks, batch, RNG)
        assert torch.allclose(output.loss, td.loss + weight * 3.0 * kl)
        assert torch.equal(output.priority, td.priority)
        assert ("DistillLoss" in output.metrics) == bool(weight)


@pytest.mark.parametrize("kind", ["policy_only", "policy_and_value", "value_only"])
@pytest.mark.parametrize("best", [False, True])
def test_each_kind_of_distillation_teaches(kind: str, best: bool) -> None:
    spec = make_spec(distill_type=kind, distill_best_action_only=best, optimizer=lambda p: torch.optim.Adam(p, 0.01))
    network, batch = spec.make_network(), batch_of()
    optimizer = torch.optim.Adam(network.parameters(), 0.02)
    losses = []
    for _ in range(80):
        loss = spec.teacher_term(Networks(network, network), batch, RNG).loss.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.6 * losses[0]


def test_a_teachers_term_is_added_to_any_learners_loss_and_a_network_is_computed_once() -> None:
    calls = []
    weight = torch.tensor([2.0], requires_grad=True)

    def network(observation: Tensor) -> Tensor:
        calls.append(observation)
        return observation * weight

    def loss(networks: Networks, batch: Any, rng: Any) -> LossOutput:
        with torch.no_grad():
            networks.online(batch["observation"])
        return LossOutput(networks.online(batch["observation"]), torch.tensor([5.0]), {"Own": torch.tensor(1.0)})

    def term(networks: Networks, batch: Any, rng: Any) -> LossOutput:
        return LossOutput(networks.online(batch["observation"]) ** 2, None, {"Term": torch.tensor(2.0)})

    batch = {"observation": torch.tensor([3.0])}
    output = with_teacher(loss, term, lambda: 0.5)(Networks(network, network), batch, RNG)
    assert output.loss.item() == 6 + 0.5 * 36
    assert output.priority.item() == 5  # type: ignore[union-attr]
    assert {name: value.item() for name, value in output.metrics.items()} == {
        "Own": 1, "Term": 2, "StudentLoss": 6, "TeacherLoss": 36,
    }  # fmt: skip
    assert len(calls) == 2  # one with a gradient, one without
    (gradient,) = torch.autograd.grad(output.loss.sum(), weight)
    assert gradient.item() == 3 + 0.5 * 2 * 6 * 3


def test_a_term_of_weight_0_is_not_computed() -> None:
    def term(*_: Any) -> LossOutput:
        raise AssertionError

    output = with_teacher(lambda *_: LossOutput(torch.ones(2)), term, lambda: 0.0)(Networks(None, None), {}, RNG)  # type: ignore[arg-type]
    assert output.loss.tolist() == [1, 1]


class QDaggerMine(QDagger, Rainbow):
    """QDagger of an agent that is not shipped."""

    name = "qdagger_mine"


def test_a_term_is_added_to_a_distributional_agent_with_priorities() -> None:
    agent = make_student(QDaggerMine, TaughtEnv(), num_atoms=5, vmax=3.0)
    play(agent, TaughtEnv(), range(12))
    assert agent.updates
    assert {"DistillLoss", "StudentLoss", "TeacherLoss"} <= agent.learner.scalars.keys()


@pytest.mark.parametrize(
    ("method", "own", "weights"),
    [("reincarnation", 1, (1, 0.25)), ("ql_plus_dagger", 1, (1, 1)), ("dagger", 0, (1, 1))],
)
@pytest.mark.parametrize("distributional", [True, False])
def test_the_kinds_of_qdagger_on_rainbow(
    method: str, own: float, weights: tuple[float, float], distributional: bool
) -> None:
    more = {"num_atoms": 7, "vmax": 3.0, "noisy": False, "distributional": distributional}
    spec = make_spec(QDaggerRainbow, method_type=method, distill_loss_coefficient=2.0, **more)
    network, batch = spec.make_network(), batch_of()
    networks = Networks(network, network)
    td = FullRainbow.loss(spec, networks, batch, RNG)
    kl = distillation(batch["extras"][LABEL], spec.values(network, batch["observation"], RNG), 1.0)
    for normalized, weight in zip((0.0, 0.75), weights, strict=True):
        spec.record_score(normalized)
        output = spec.loss(networks, batch, RNG)
        assert torch.allclose(output.loss, own * td.loss + weight * 2.0 * kl)
        assert torch.equal(output.priority, td.priority)
        assert spec.learning_rate() == pytest.approx(weight * 1e-4 + (1 - weight) * 1e-5)


def test_images_are_shifted_by_up_to_4_pixels_and_repeat_their_edge() -> None:
    images = torch.arange(6 * 2 * 9 * 7, dtype=torch.int32).reshape(6, 2, 9, 7).to(torch.float32)
    shifts = np.random.default_rng(0).integers(-4, 5, (2, 6, 1))
    drawn, moved = shifts[:, :, 0], shifted(images, torch.from_numpy(shifts))
    assert moved.shape == images.shape and len({*map(tuple, drawn.T)}) > 3
    for row, (down, right) in enumerate(drawn.T):
        for y in range(9):
            for x in range(7):
                at = min(max(y + down, 0), 8), min(max(x + right, 0), 6)
                assert torch.equal(moved[row, :, y, x], images[row, :, at[0], at[1]])


@pytest.mark.parametrize("kind", [QDaggerRainbow, QDaggerDQN, DQfD, PretrainedDQN, ReloadedDQN, JSRL])
def test_augmentation_shifts_what_the_student_learns_from_and_is_for_images(kind: Any) -> None:
    space = Box(0, 255, (12, 12), np.uint8)
    more = {"num_atoms": 7, "noisy": False, "vmax": 3.0} if kind is QDaggerRainbow else {}
    plain, shifting = (
        kind(space, Discrete(3), **hyperparameters(kind, data_augmentation=augments, **more))
        for augments in (False, True)
    )
    for student in (plain, shifting):
        student.teaching.phase = TeachingPhase.OFFLINE  # in which all terms are there
    network, batch = plain.make_network(), batch_of()
    images = torch.randint(0, 256, (2, 4, 1, 12, 12), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    batch |= {"observation": images[0], "next_observation": images[1]}
    networks = Networks(network, network)
    rng = np.random.default_rng(5)
    moved = {
        name: shifted(batch[name], torch.from_numpy(rng.integers(-4, 5, (2, len(batch[name]), 1))))
        for name in ("observation", "next_observation")
    }
    expected = plain.loss(networks, {**batch, **moved}, rng).loss
    assert torch.equal(shifting.loss(networks, batch, np.random.default_rng(5)).loss, expected)
    assert not torch.equal(plain.loss(networks, batch, rng).loss, expected)
    with pytest.raises(ValueError, match="data_augmentation must be False for observations that are no images"):
        make_spec(kind, data_augmentation=True)
    with pytest.raises(ValueError, match=r"that are no images \[H, W\], got Box\(0, 255, \(12, 12, 3\)"):
        kind(Box(0, 255, (12, 12, 3), np.uint8), Discrete(3), **hyperparameters(kind, data_augmentation=True))


# Labels, and what each phase does.


@pytest.mark.parametrize("world", [lambda env: env, lambda env: RealtimeDelay(env, 3, 1, "random")])
def test_a_label_is_what_the_teacher_says_of_the_observation_of_the_decision(world: Callable[[Any], Any]) -> None:
    env = world(TaughtEnv())
    agent = make_student(QDaggerDQN, env)
    play(agent, env, range(6))
    batch = agent.learner.replay.transitions(agent.learner.replay.valid_slots())
    expected = ScriptedTeacher().values(batch["observation"])
    assert len(expected) > 10
    np.testing.assert_array_equal(batch["extras"][LABEL], expected)


@pytest.mark.parametrize("delays", [None, (0, 0), (1, 0), (3, 1), (5, 0)])
def test_a_label_at_the_effect_is_of_the_frame_on_which_the_action_landed(delays: tuple[int, int] | None) -> None:
    env: Any = TaughtEnv(lengths=[9, 20, 2])
    game = env
    if delays is not None:
        env = RealtimeDelay(env, *delays, "random", report_effect=True)
    agent = make_student(QDaggerDQN, env)
    lessons_of(agent).set_teacher(Lesson(ScriptedTeacher(), label_at="effect"))
    play(agent, env, range(6))
    batch = agent.learner.replay.transitions(agent.learner.replay.valid_slots())
    delay, noops = delays or (0, 0)
    expected = [
        life.observations[effect] for life in game.lives for effect in range(delay, len(life.actions), noops + 1)
    ]
    labels = ScriptedTeacher().values(np.array(expected)[:, None])
    np.testing.assert_array_equal(batch["extras"][LABEL], labels)
    starts = ScriptedTeacher().values(batch["observation"])
    assert bool(delay) != np.array_equal(labels, starts)


def test_a_label_at_the_effect_needs_a_delay_that_reports_it() -> None:
    env = RealtimeDelay(TaughtEnv(), 2, 0, "random")
    agent = make_student(QDaggerDQN, env)
    lessons_of(agent).set_teacher(Lesson(ScriptedTeacher(), label_at="effect"))
    with pytest.raises(ValueError, match="must show the teacher's observations"):
        play(agent, env, range(1))


def test_the_teacher_collects_into_a_replay_of_its_own_and_nobody_learns() -> None:
    env = TaughtEnv()
    agent = make_student(QDaggerDQN, env)
    lessons_of(agent).begin_phase(TeachingPhase.COLLECT)
    before = {name: weight.clone() for name, weight in agent.learner.weights().items()}
    actions = play(agent, env, range(8))
    for life, chosen in zip(env.lives, actions, strict=True):
        best = ScriptedTeacher().values(np.array(life.observations[:-1])[:, None]).argmax(1)
        assert chosen == life.actions == best.tolist()
    assert agent.updates == 0 and not len(agent.learner.replay)
    replay = lessons_of(agent).teacher_replay
    assert replay is not None and len(replay) == sum(map(len, actions))
    assert all(torch.equal(weight, before[name]) for name, weight in agent.learner.weights().items())


def test_offline_batches_are_the_teachers_and_play_begins_with_the_weights_as_target() -> None:
    env = TaughtEnv()
    agent = make_student(QDaggerDQN, env, target_update_period=10_000)
    lessons_of(agent).begin_phase(TeachingPhase.COLLECT)
    play(agent, env, range(8))
    lessons_of(agent).begin_phase(TeachingPhase.OFFLINE)
    for _ in range(5):
        lessons_of(agent).learn_offline()
    assert agent.updates == 5 and agent.learner.source is lessons_of(agent).teacher_replay
    learner = agent.learner
    assert not all(torch.equal(w, learner.target.state_dict()[n]) for n, w in learner.network.state_dict().items())
    lessons_of(agent).begin_phase(TeachingPhase.ONLINE, last=True)
    assert all(torch.equal(w, learner.target.state_dict()[n]) for n, w in learner.network.state_dict().items())
    assert learner.source is learner.replay and lessons_of(agent).teacher_replay is None
    steps = lessons_of(agent).teaching.online_steps
    play(agent, env, range(3))
    assert lessons_of(agent).teaching.online_steps - steps == sum(len(life.actions) for life in env.lives[-3:])


@pytest.mark.parametrize("kind", [QDaggerDQN, DQfD, PretrainedDQN])
def test_the_teachers_replay_may_be_drawn_from_by_priority(kind: Any) -> None:
    env = TaughtEnv()
    arguments = {"priority_exponent": 0.7, "importance_exponent": 0.3, "teacher_replay_scheme": "prioritized"}
    agent = make_student(kind, env, **arguments)
    lessons_of(agent).begin_phase(TeachingPhase.COLLECT)
    play(agent, env, range(8))
    replay: Any = lessons_of(agent).teacher_replay
    assert (replay.facts()["priority_exponent"], replay.sample()["weight"].tolist()) == (0.7, [1.0] * 8)
    lessons_of(agent).begin_phase(TeachingPhase.OFFLINE)
    for _ in range(3):
        lessons_of(agent).learn_offline()
    assert len({*selector_values(replay).values()}) > 3
    assert "priority_exponent" not in agent.learner.replay.facts()  # the student's own is still drawn from uniformly
    sampled: list[Any] = []
    draw = agent.learner.draw
    agent.learner.draw = lambda: [sampled.append(draw()), sampled[-1]][-1]  # type: ignore[method-assign, func-returns-value]
    lessons_of(agent).learn_offline()
    (batch,) = sampled
    expected = np.power(batch.arrays["probability"], -0.3)
    np.testing.assert_allclose(batch.arrays["weight"], expected / expected.max(), rtol=1e-5)


def test_an_offline_phase_without_data_is_refused() -> None:
    agent = make_student(QDaggerDQN, TaughtEnv())
    with pytest.raises(ValueError, match="needs the teacher's replay, which is empty: collect"):
        lessons_of(agent).begin_phase(TeachingPhase.OFFLINE)


def test_a_student_without_a_teacher_plays_but_does_not_learn() -> None:
    env = TaughtEnv()
    agent = make_student(QDaggerDQN, env)
    lessons_of(agent).guide.teacher = None
    assert play(agent, env, range(2), eval_mode=True)
    with pytest.raises(ValueError, match="agent 'qdagger_dqn' learns from a teacher, in phases: bind create_runner"):
        play(agent, env, range(1))


def test_an_environment_that_shows_the_teacher_nothing_is_refused() -> None:
    from tests.worlds.drifting_env import DriftingEnv

    agent = make_student(QDaggerDQN, TaughtEnv())
    with pytest.raises(ValueError, match="must show the teacher's observations: put a TeacherView into it"):
        play(agent, DriftingEnv(), range(1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"distill_temperature": 0.0}, "distill_temperature must be > 0, got 0.0"),
        ({"distill_loss_coefficient": -1.0}, "distill_loss_coefficient must be >= 0 and finite, got -1.0"),
        (
            {"distill_type": "all"},
            "distill_type must be one of 'policy_only', 'policy_and_value', 'value_only', got 'all'",
        ),
        ({"distill_best_action_only": 1}, "distill_best_action_only must be True or False, got 1"),
        ({"distill_decay_period": -2}, "distill_decay_period must be >= -1 decisions, got -2"),
        ({"teacher_replay_scheme": "rank"}, "teacher_replay_scheme must be 'uniform' or 'prioritized', got 'rank'"),
        (
            {"learning_rate_decay": 50},
            "learning_rate_decay must be None with agent 'qdagger_dqn', whose learning rate follows lambda: bind "
            "create_linear_schedule.initial_lr and final_lr",
        ),
        (
            {"one_step_loss": True},
            "one_step_loss must be False with agent 'qdagger_dqn', which has two replays, got True",
        ),
        (
            {"replay_eviction": "reservoir"},
            "replay_eviction must be 'oldest' with agent 'qdagger_dqn', which has two replays, got 'reservoir'",
        ),
    ],
)
def test_wrong_arguments_are_refused_in_a_sentence(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        make_spec(**arguments)


@given(st.integers(0, 2**32 - 1))
def test_a_students_seeds_are_none_of_its_learners(seed: int) -> None:
    learners = {own_seed(seed, number) for number in range(4)}
    assert learners.isdisjoint(seed_of(seed, number) for number in range(1, 4))

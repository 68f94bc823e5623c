"""Students on many environments: each is taught as it would be alone, at the start and at the effect of its actions."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from async_wrappers import RealtimeDelay
from async_wrappers.agents.acting.exploration import identity_epsilon
from async_wrappers.agents.acting.frames_read import FramesRead, ShowPast
from async_wrappers.agents.networks.sequence_network import create_actor_critic
from async_wrappers.agents.play.lessons import Lesson
from async_wrappers.agents.play.many.environments import NumberedEpisodes
from async_wrappers.agents.play.many.vector_agent import VectorAgent
from async_wrappers.agents.play.play import environment_seed
from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent
from async_wrappers.agents.play.turns.turns import play_episode
from async_wrappers.agents.teaching.methods.jsrl import JSRL
from async_wrappers.agents.teaching.methods.qdagger import QDaggerDQN
from async_wrappers.agents.teaching.methods.sequence_students import KickstartingPPO, KickstartingVTrace
from async_wrappers.agents.teaching.student_progress import LABEL, TeachingPhase
from async_wrappers.agents.teaching.teacher_view import Viewpoint
from async_wrappers.batched.local import LocalEnvs
from async_wrappers.batched.vector_envs import VectorEnvs
from tests.worlds.agents import hyperparameters, tiny
from tests.worlds.drifting_env import DriftingEnv
from tests.worlds.plain_data import assert_identical
from tests.worlds.teachers import ScriptedTeacher, lessons_of

STILL: dict[str, Any] = {
    "stack_size": 2,
    "network": tiny,
    "min_replay_history": 10**6,  # the weights stay as they are
    "epsilon_fn": identity_epsilon,
    "epsilon_train": 0.0,
    "replay_capacity": 3_000,
    "device": "cpu",
}


def world(delay: int, noops: int = 0, **arguments: Any) -> gym.Env[Any, Any]:
    env = DriftingEnv(**arguments)
    return RealtimeDelay(env, delay, noops, "repeat") if delay or noops else env


def view_at(label_at: str) -> Viewpoint:
    """The view of a teacher that reads the newest frame."""
    env = DriftingEnv()
    blank = np.zeros(env.observation_space.shape, np.float32)
    spec: Any = SimpleNamespace(
        stack_size=1,
        observation_space=env.observation_space,
        blank=lambda: blank,
        without_tuples=lambda observation: observation,
    )
    return Viewpoint(spec, 1, [], label_at)


def lesson_at(label_at: str, **arguments: Any) -> Lesson:
    return Lesson(ScriptedTeacher(), view_at(label_at), label_at=label_at, **arguments)


def taught_many(kind: Any, count: int, lesson: Lesson, make: Any, **arguments: Any) -> tuple[VectorAgent, Any]:
    """A student of many environments, and the environments, which show its teacher what it reads."""

    def one() -> Any:
        return NumberedEpisodes(ShowPast(make(), FramesRead(label_at=lesson.label_at, view=lesson.view)), 5, 0, count)

    envs = LocalEnvs(one, count)
    plain = make()
    agent = VectorAgent(kind(plain.observation_space, plain.action_space, **arguments), count)
    lessons_of(agent).set_teacher(lesson, count)
    lessons_of(agent).begin_phase(TeachingPhase.ONLINE)
    return agent, envs


def taught_alone(kind: Any, lesson: Lesson, make: Any, **arguments: Any) -> tuple[TurnBasedAgent, Any]:
    environment = lesson.view.within(make())
    agent = TurnBasedAgent.playing(kind, environment, **arguments)
    lessons_of(agent).set_teacher(lesson)
    lessons_of(agent).begin_phase(TeachingPhase.ONLINE)
    return agent, environment


def played(agent: VectorAgent, envs: Any, calls: int) -> list[int]:
    """Play so many calls and cut all episodes; return how many episodes of each environment ended by themselves."""
    envs.begin(range(envs.num_envs))
    ended = [0] * envs.num_envs
    for _ in range(calls):
        shown = envs.recv()
        for episode in agent.observe(shown):
            ended[episode.env_id] += 1
        envs.send(shown.env_ids, agent.act(shown))
    agent.observe(envs.cut())
    return ended


@pytest.mark.parametrize("label_at", ["start", "effect"])
@pytest.mark.parametrize("delays", [(0, 0), (2, 0), (5, 1), (0, 3)], ids=str)
@pytest.mark.parametrize("count", [1, 3])
def test_each_environment_stores_the_labels_that_it_would_store_alone(
    label_at: str, delays: tuple[int, int], count: int
) -> None:
    make = partial(world, *delays)
    agent, envs = taught_many(QDaggerDQN, count, lesson_at(label_at), make, **STILL)
    ended = played(agent, envs, 60)
    lanes = agent.learner.replay.state_dict()["slots"]
    for env_id in range(count):
        alone, environment = taught_alone(QDaggerDQN, lesson_at(label_at), make, **STILL)
        for number in range(ended[env_id]):
            play_episode(alone, environment, environment_seed(5, 0, number, env_id))
        slots = alone.learner.replay.state_dict()["slots"]
        mine, kept = lanes[env_id] if count > 1 else lanes, len(slots["kind"])
        assert ended[env_id] > 2 and kept > 10
        assert any("teacher_values" in name for name in slots)
        assert_identical({name: column[:kept] for name, column in mine.items()}, slots)
    envs.close()


def test_labels_at_the_effect_by_hand() -> None:
    lesson = lesson_at("effect")
    make = partial(world, 2, lengths=[6], ends=[(True, False)])
    agent, envs = taught_many(QDaggerDQN, 2, lesson, make, **STILL)
    blocks: list[Any] = []
    learner: Any = agent.learner
    extend = learner.extend
    learner.extend = lambda block: (blocks.append({**block, "reward": block["reward"].copy()}), extend(block))
    asked = lesson.teacher.asked
    envs.begin(range(2))
    for _ in range(4):  # decisions start on frames 0, 1, 2, 3, and land on 2, 3, 4, 5
        shown = envs.recv()
        agent.observe(shown)
        envs.send(shown.env_ids, agent.act(shown))
    agent.observe(envs.recv())
    landings = [[round(10 * frame[2]) for frame in rows] for rows in asked]
    assert landings == [[2, 2], [3, 3], [4, 4], [5, 5]]  # `DriftingEnv` shows a tenth of its frame last
    starts = [round(10 * frame) for block in blocks for frame in block["observation"][:, 2].tolist()]
    assert starts == [0, 0, 1, 1, 2, 2, 3, 3]
    envs.close()


@pytest.mark.parametrize("label_at", ["start", "effect"])
def test_a_teacher_collects_on_many_environments_what_it_would_collect_alone(label_at: str) -> None:
    make = partial(world, 3, 1)
    lesson = lesson_at(label_at, keeps_replay=True, collects=True)
    agent, envs = taught_many(QDaggerDQN, 3, lesson, make, **STILL)
    lessons_of(agent).begin_phase(TeachingPhase.COLLECT)
    ended = played(agent, envs, 40)
    assert agent.updates == 0 and not len(agent.learner.replay)
    lanes: Any = lessons_of(agent).teacher_replay
    lanes = lanes.state_dict()["slots"]
    for env_id in range(3):
        alone, environment = taught_alone(QDaggerDQN, lesson_at(label_at, keeps_replay=True), make, **STILL)
        lessons_of(alone).begin_phase(TeachingPhase.COLLECT)
        for number in range(ended[env_id]):
            play_episode(alone, environment, environment_seed(5, 0, number, env_id))
        replay: Any = lessons_of(alone).teacher_replay
        slots = replay.state_dict()["slots"]
        assert ended[env_id] > 1
        kept = len(slots["kind"])
        assert_identical({name: column[:kept] for name, column in lanes[env_id].items()}, slots)
    envs.close()


@pytest.mark.parametrize("kind", [QDaggerDQN, JSRL])
def test_one_environment_ends_in_the_weights_of_turn_based_play(kind: Any) -> None:
    terms = {**hyperparameters(kind), "update_period": 3}
    if kind is JSRL:
        terms |= {"max_roll_in_steps": 4, "roll_out_guide_prob": 0.5, "roll_out_decay_period": 60}
    make = partial(world, 2)
    agent, envs = taught_many(kind, 1, lesson_at("start"), make, **terms)
    alone, environment = taught_alone(kind, lesson_at("start"), make, **terms)
    envs.begin([0])
    over = 0
    while over < 8:
        shown = envs.recv()
        over += len(agent.observe(shown))
        if over < 8:
            envs.send(shown.env_ids, agent.act(shown))
    for number in range(8):
        play_episode(alone, environment, environment_seed(5, 0, number))
    assert agent.updates > 5
    assert_identical(agent.learner.state_dict(), alone.learner.state_dict())
    assert vars(lessons_of(agent).teaching) == vars(lessons_of(alone).teaching)
    envs.close()


def test_each_row_rolls_in_by_itself() -> None:
    terms = {**STILL, "max_roll_in_steps": 3, "roll_out_guide_prob": 0.0}
    make = partial(world, 0, lengths=[20])
    agent, envs = taught_many(JSRL, 4, lesson_at("start"), make, **terms)
    student: Any = agent.spec
    envs.begin(range(4))
    guided = np.zeros((5, 4), bool)
    advise = lessons_of(agent).guide.advise
    for step in range(5):
        shown = envs.recv()
        agent.observe(shown)

        def noted(*arguments: Any, step: int = step) -> Any:
            advice = advise(*arguments)
            guided[step] = False if advice.guided is None else advice.guided
            return advice

        lessons_of(agent).guide.advise = noted  # type: ignore[method-assign]
        envs.send(shown.env_ids, agent.act(shown))
    draws = [1 + int(student._lengths.draw(0, 0, False, env_id).integers(3)) for env_id in range(4)]
    assert guided.sum(axis=0).tolist() == draws and len({*draws}) > 1
    envs.close()


def test_a_teacher_that_reads_what_its_student_reads_needs_to_be_shown_nothing() -> None:
    lesson = Lesson(ScriptedTeacher(), reads_alike=True)
    makes = [lambda: NumberedEpisodes(world(2), 5, 0, 2)] * 2
    envs = VectorEnvs(SyncVectorEnv(makes, autoreset_mode=AutoresetMode.SAME_STEP))
    agent = VectorAgent(QDaggerDQN(envs.observation_space, envs.action_space, **STILL), 2)
    lessons_of(agent).set_teacher(lesson, 2)
    lessons_of(agent).begin_phase(TeachingPhase.ONLINE)
    played(agent, envs, 30)
    replay = agent.learner.replay
    batch = replay.transitions(replay.valid_slots())
    assert len(batch["action"]) > 20
    np.testing.assert_array_equal(batch["extras"][LABEL], ScriptedTeacher().values(batch["observation"]))
    envs.close()


# Agents that learn once from what they have done.

PLAIN = partial(create_actor_critic, torso="mlp", core=None, feed_previous=False)
ONCE: dict[Any, dict[str, Any]] = {
    KickstartingVTrace: {"network": PLAIN, "unroll_length": 5, "batch_size": 2, "stack_size": 1},
    KickstartingPPO: {"update_period": 24, "batch_size": 8, "num_epochs": 2, "stack_size": 1},
}


@pytest.mark.parametrize("kind", ONCE)
@pytest.mark.parametrize("delay", [0, 2])
@pytest.mark.parametrize("label_at", ["start", "effect"])
def test_an_agent_that_learns_once_is_taught_by_the_labels_of_its_decisions(
    kind: Any, delay: int, label_at: str
) -> None:
    agent, envs = taught_many(kind, 3, lesson_at(label_at), partial(world, delay), **ONCE[kind])
    batches: list[Any] = []
    sample = agent.learner.source.sample
    agent.learner.source.sample = lambda: (batches.append(sample()), batches[-1])[1]  # type: ignore[method-assign]
    played(agent, envs, 40)
    assert agent.updates > 1
    assert {"DistillLoss", "StudentLoss", "TeacherLoss"} <= agent.learner.scalars.keys()
    for batch in batches:
        rows = batch["mask"] > 0
        labels = batch["extras"][LABEL][rows]
        best = labels.max(axis=1)
        assert len(labels) > 5 and (best == 0).all()  # a scripted teacher's best action has the value 0
        if label_at == "start":
            seen = batch["observation"][:-1][rows]
            np.testing.assert_array_equal(labels, ScriptedTeacher().values(seen.reshape(-1, 1, 3)))
    envs.close()


def test_ppos_term_is_lambda_times_the_mean_divergence_of_the_decisions_of_a_minibatch() -> None:
    from async_wrappers.agents.families.actor_critic.ppo import PPO
    from async_wrappers.agents.losses.loss import Networks
    from async_wrappers.agents.losses.teaching import policy_distillation

    agent, envs = taught_many(KickstartingPPO, 2, lesson_at("start"), partial(world, 0), **ONCE[KickstartingPPO])
    learner: Any = agent.learner
    found: list[Any] = []
    loss = learner._loss
    learner._loss = lambda networks, batch, rng: (found.append((networks, batch)), loss(networks, batch, rng))[1]
    played(agent, envs, 20)
    spec: Any = agent.spec
    networks, batch = found[0]
    spec.teaching.weight, spec.distill_loss_coefficient, spec.distill_temperature = 0.25, 2.0, 0.5
    rng = np.random.default_rng(0)
    taught, own = spec.loss(networks, batch, rng), PPO.loss(spec, networks, batch, rng)
    logits, _, decided = spec.outputs_of(networks, batch)
    expected = [
        policy_distillation(label[None], row[None], 0.5).item()
        for label, row in zip(decided[LABEL].flatten(0, -2), logits.flatten(0, -2), strict=True)
    ]
    assert isinstance(networks, Networks) and min(expected) >= 0 < max(expected)
    difference = taught.loss.mean() - own.loss.mean()
    assert difference.item() == pytest.approx(0.25 * 2.0 * float(np.mean(expected)), rel=1e-4)
    envs.close()


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)

"""Policies and learners apart from one another, and from gin; in a process of their own: test_family.py."""

from __future__ import annotations

import inspect
from typing import Any

import cloudpickle
import gin
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

import async_wrappers.agents.configurables
import async_wrappers.configurables  # noqa: F401
from async_wrappers import RealtimeDelay
from async_wrappers.agents.families.actor_critic.vtrace import VTrace
from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.learning.making import make_learner, maker_of_learners
from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent
from async_wrappers.agents.registry import create_spec
from async_wrappers.policy import Decision
from tests.contracts.agent_contract import play
from tests.worlds.agents import tiny_network
from tests.worlds.drifting_env import DriftingEnv
from tests.worlds.plain_data import assert_identical, differs

CONFIG = """
create_agent.agent_name = "dqn"
DQNAgent.stack_size = 1
DQNAgent.device = "cpu"
DQNAgent.replay_capacity = 100
DQNAgent.min_replay_history = 10
DQNAgent.batch_size = 4
DQNAgent.epsilon_fn = @identity_epsilon
DQNAgent.epsilon_train = 0.25
DQNAgent.epsilon_eval = 0.0
DQNAgent.network = @create_network
DQNAgent.optimizer = @slow/create_optimizer
create_network.torso = @MLPTorso
create_network.head = "dueling"
MLPTorso.hidden = (7, 5)
create_optimizer.name = "sgd"
create_optimizer.momentum = 0.5
slow/create_optimizer.learning_rate = 0.125
"""


def parts(env: DriftingEnv, seed: int = 0) -> DQN:
    gin.parse_config(CONFIG)
    return create_spec(env.observation_space, env.action_space, seed=seed)


def transitions(count: int, actions: int = 3, first: int = 0) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    return [
        {
            "observation": rng.normal(size=3).astype(np.float32),
            "action": first + int(rng.integers(actions)),
            "reward": float(rng.normal()),
            "interval": 1,
            "terminal": step % 10 == 9,
            "truncated": False,
            "next_observation": np.zeros(3, np.float32) if step % 10 == 9 else None,
        }
        for step in range(count)
    ]


def look(made: DQN) -> dict[str, Any]:
    """What tells a policy and a learner from others, after three updates."""
    policy, learner = made.make_policy(), make_learner(made)
    for transition in transitions(30):
        learner.observe(transition)
    actions = [policy.act(t["observation"], Decision(0, i, i, False)) for i, t in enumerate(transitions(30))]
    first = {name: tensor.clone() for name, tensor in policy.weights().items()}
    losses = [float(learner.update()["Loss"]) for _ in range(3)]
    settings = {name: learner.state_dict()["optimizer"]["param_groups"][0][name] for name in ("lr", "momentum")}
    return {
        "policy": {name: list(tensor.shape) for name, tensor in first.items()},
        "learner": {name: list(tensor.shape) for name, tensor in learner.weights().items()},
        "actions": actions,
        "losses": losses,
        "optimizer": (learner.optimizer_name, settings),
        "weights": {name: tensor.tolist() for name, tensor in learner.weights().items()},
    }


def test_an_agent_that_states_its_learning_names_what_makes_its_learner() -> None:
    for kind in (DQN, VTrace):
        spec = kind(Box(-1, 1, (3,), np.float32), Discrete(2), stack_size=1)
        with pytest.raises(TypeError, match=rf"^{kind.__name__} states its learning: make its learner with .*make_lea"):
            spec.make_learner()
        with pytest.raises(TypeError, match=rf"^{kind.__name__} states its learning: .*make_vector_learner\(spec, num"):
            spec.make_vector_learner(2)


def test_a_subclass_may_alter_the_learner_that_is_made_for_it() -> None:
    class Altered(DQN):
        def make_learner(self, number: int = 0, learners: int = 1) -> Any:
            learner = make_learner(self, number, learners)
            learner.kind = "Altered"
            return learner

    env = DriftingEnv()
    spec = Altered(env.observation_space, env.action_space, stack_size=1, replay_capacity=100, network=tiny_network)
    assert maker_of_learners(spec)(number=1, learners=2).kind == "Altered"
    assert TurnBasedAgent(spec).learner.kind == "Altered"


def test_pickled_parts_no_longer_depend_on_gin() -> None:
    made = parts(DriftingEnv())
    seen, pickled = look(made), cloudpickle.dumps(made)
    gin.clear_config()
    gin.parse_config("MLPTorso.hidden = (2,)\ncreate_optimizer.learning_rate = 7.0")
    assert look(cloudpickle.loads(cloudpickle.dumps(cloudpickle.loads(pickled)))) == seen
    assert seen["policy"]["torso.layers.1.weight"] == seen["learner"]["torso.layers.1.weight"] == [7, 3]
    assert "head.advantage.weight" in seen["policy"]
    assert seen["optimizer"] == ("SGD", {"lr": 0.125, "momentum": 0.5})


def test_the_parts_of_an_agent_are_those_that_it_acts_and_learns_with() -> None:
    env = DriftingEnv(lengths=[30])
    gin.parse_config(CONFIG)
    agent = TurnBasedAgent.playing(DQN, env, seed=3, min_replay_history=1000)
    policy = create_spec(env.observation_space, env.action_space, seed=3).make_policy()
    actions = play(agent, env, range(3))
    answers = [
        [
            policy.act(life.observations[start], Decision(episode, start, 30 * episode + start, False))
            for start in range(30)
        ]
        for episode, life in enumerate(env.lives)
    ]
    assert answers == actions


def test_a_policy_acts_in_the_environments_action_space() -> None:
    env = DriftingEnv(actions=4, first_action=-3)
    policy = parts(env).make_policy()
    chosen = {policy.act(t["observation"], Decision(0, i, i, False)) for i, t in enumerate(transitions(100))}
    assert chosen <= {-3, -2, -1, 0}
    assert len(chosen) > 1 and {type(action) for action in chosen} == {int}


def test_a_learner_observes_the_environments_actions() -> None:
    losses = []
    for first in (0, 5):
        learner = make_learner(parts(DriftingEnv(first_action=first)))
        for transition in transitions(30, first=first):
            learner.observe(transition)
        losses.append([float(learner.update()["Loss"]) for _ in range(3)])
    assert losses[0] == losses[1]


def test_a_policy_reads_the_learners_weights_in_place() -> None:
    made = parts(DriftingEnv())
    policy, learner = made.make_policy(), make_learner(made)
    for transition in transitions(30):
        learner.observe(transition)
    assert_identical(dict(policy.weights()), dict(learner.weights()))
    learner.update()
    assert differs(dict(policy.weights()), dict(learner.weights()))
    policy.load_weights(learner.weights(), 1)
    learner.update()
    assert_identical(dict(policy.weights()), dict(learner.weights()))
    assert not any(tensor.requires_grad for tensor in policy.weights().values())


def test_a_policy_keeps_the_layout_of_the_weights_it_is_given() -> None:
    gin.parse_config(CONFIG + "create_network.torso = 'nature'")
    from gymnasium.spaces import Box, Discrete

    made = create_spec(Box(0, 255, (36, 36), np.uint8), Discrete(3))
    policy = made.make_policy()
    weights = policy.weights()
    assert weights["torso.layers.2.weight"].is_contiguous(memory_format=torch.channels_last)
    memory = {name: torch.empty_strided(w.shape, w.stride()) for name, w in weights.items()}
    for name, tensor in memory.items():
        tensor.copy_(weights[name])
    before = policy.act(np.full((36, 36), 9, np.uint8), Decision(0, 0, 10**6, True))
    policy.load_weights(memory, 1)
    assert {name: w.stride() for name, w in policy.weights().items()} == {n: w.stride() for n, w in memory.items()}
    assert policy.act(np.full((36, 36), 9, np.uint8), Decision(0, 0, 10**6, True)) == before


def test_several_learners_have_the_whole_capacity_and_history_and_draw_batches_of_their_own() -> None:
    made = parts(DriftingEnv())
    learners = [make_learner(made, number, 2) for number in range(2)]
    assert_identical(dict(learners[0].weights()), dict(learners[1].weights()))
    seen = []
    for learner in learners:
        assert learner.replay.facts()["capacity"] == 100
        ready = []
        for transition in transitions(30):
            learner.observe(transition)
            ready.append(learner.ready)
        assert ready.index(True) == 10
        seen.append(learner.replay.sample()["index"].tolist())
    assert seen[0] != seen[1]


@pytest.mark.parametrize(("number", "learners"), [(2, 2), (-1, 1), (0, 0)])
def test_a_learner_is_one_of_those_there_are(number: int, learners: int) -> None:
    with pytest.raises(
        ValueError, match=rf"^number must lie in \[0, {learners}\), one for each learner, got {number}$"
    ):
        make_learner(parts(DriftingEnv()), number, learners)


def test_a_learners_replay_goes_into_files_and_comes_back(tmp_path: Any) -> None:
    made = parts(DriftingEnv())
    one, other = make_learner(made), make_learner(made)
    for transition in transitions(30):
        one.observe(transition)
    one.save_replay(tmp_path, 3)
    other.load_replay(tmp_path, 3)
    assert [float(one.update()["Loss"]) for _ in range(5)] == [float(other.update()["Loss"]) for _ in range(5)]
    one.forget_replays(tmp_path, set())
    with pytest.raises(OSError):
        other.load_replay(tmp_path, 3)


def chain(count: int) -> list[dict[str, Any]]:
    """Transitions of one episode that tell their next observations, as an asynchronous runner's do."""
    told = [{**t, "terminal": step == count - 1, "reward": 2.0**step} for step, t in enumerate(transitions(count))]
    return [{**t, "next_observation": then["observation"]} for t, then in zip(told, [*told[1:], told[0]], strict=True)]


@pytest.mark.parametrize("eviction", ["oldest", "reservoir"])
@pytest.mark.parametrize("horizon", [1, 3])
def test_one_of_several_learners_bootstraps_on_what_follows_in_the_game(horizon: int, eviction: str) -> None:
    env = DriftingEnv()
    settings: dict[str, Any] = {"stack_size": 1, "gamma": 0.5, "update_horizon": horizon, "replay_eviction": eviction}
    learner = make_learner(DQN(env.observation_space, env.action_space, **settings, replay_capacity=100), 1, 2)
    told = chain(9)
    for transition in told[1::2]:
        learner.observe(transition)
    learner.observe(told[8])  # the end, which here follows on
    expected = {t["observation"].tobytes(): t for t in told[1::2] + told[8:]}
    batch = learner.replay.sample(200)  # type: ignore[call-arg]
    seen = set()
    for row in range(200):
        key = batch["observation"][row, 0].tobytes()
        seen.add(key)
        last = expected[key]
        reward, discount = last["reward"], 0.0 if last["terminal"] else 0.5
        if horizon > 1 and last is told[7]:  # two in a row: a return of both
            reward, discount, last = 2.0**7 + 0.5 * 2.0**8, 0.0, told[8]
        assert (float(batch["reward"][row]), float(batch["discount"][row])) == (reward, discount)
        assert batch["next_observation"][row, 0].tolist() == last["next_observation"].tolist()
    assert seen == set(expected)


def test_a_learner_that_sees_every_transition_keeps_each_observation_once() -> None:
    learners = [make_learner(parts(DriftingEnv())) for _ in range(2)]
    for transition in chain(20):
        learners[0].observe(transition)
        learners[1].observe(
            {**transition, "next_observation": transition["next_observation"] if transition["terminal"] else None}
        )
    one, other = (learner.replay.state_dict() for learner in learners)  # type: ignore[attr-defined]
    assert_identical(one, other)


def test_stacks_are_refused_where_observations_come_one_by_one() -> None:
    env = DriftingEnv()
    with pytest.raises(
        ValueError, match=r"^stack_size must be 1 for a policy that reads one observation at a time, got"
    ):
        DQN(env.observation_space, env.action_space, stack_size=4).make_policy()


def test_parts_of_an_agent_that_does_not_learn_are_refused() -> None:
    env = DriftingEnv()
    gin.parse_config("create_agent.agent_name = 'random'")
    with pytest.raises(
        ValueError, match=r"^create_agent.agent_name must be of an agent with policy and learner, got 'ran"
    ):
        create_spec(env.observation_space, env.action_space)


def test_parts_for_play_against_a_clock_need_a_warmup_in_frames_which_they_keep() -> None:
    env = DriftingEnv()
    gin.parse_config(CONFIG + "DQNAgent.epsilon_fn = @linearly_decaying_epsilon")
    with pytest.raises(ValueError, match=r"^DQNAgent.epsilon_warmup must be bound, in frames, .* = 10 decisions: bind"):
        create_spec(env.observation_space, env.action_space)
    gin.parse_config("DQNAgent.epsilon_warmup = 700\nDQNAgent.epsilon_decay_period = 100")
    made = cloudpickle.loads(cloudpickle.dumps(create_spec(env.observation_space, env.action_space)))
    gin.clear_config()
    epsilon = made.epsilon
    asked = {frame: epsilon(Decision(0, 0, frame, False)) for frame in (0, 700, 750, 800)}
    assert asked == pytest.approx({0: 1.0, 700: 1.0, 750: 0.625, 800: 0.25})


def test_an_agents_own_parts_keep_the_frames_of_its_environment() -> None:
    gin.parse_config(CONFIG + "DQNAgent.epsilon_fn = @linearly_decaying_epsilon\nDQNAgent.epsilon_decay_period = 100")
    agent = TurnBasedAgent.playing(DQN, RealtimeDelay(DriftingEnv(), noops=8, default_action="repeat"))
    made = cloudpickle.loads(cloudpickle.dumps(agent.spec))
    epsilon = made.epsilon
    assert [epsilon(Decision(0, 0, frame, False)) for frame in (0, 90, 140, 190)] == [1.0, 1.0, 0.625, 0.25]


def test_the_frames_of_a_decision_are_the_environments_and_not_bound() -> None:
    assert "decision_interval" not in inspect.signature(TurnBasedAgent.playing).parameters
    with pytest.raises(ValueError, match="decision_interval"):
        gin.parse_config("DQNAgent.decision_interval = 9")


def test_each_worker_has_an_epsilon_of_its_own_where_it_depends_on_the_actor() -> None:
    env, observation = DriftingEnv(), np.zeros(3, np.float32)
    gin.parse_config(CONFIG + "DQNAgent.epsilon_fn = @per_actor_epsilon\nper_actor_epsilon.base = 0.5")
    made = create_spec(env.observation_space, env.action_space)
    decisions = [Decision(0, start, start, False) for start in range(300)]
    greedy = made.make_policy().act(observation, Decision(0, 0, 0, True))
    for parts_of in (made, cloudpickle.loads(cloudpickle.dumps(made))):
        for number, epsilon in enumerate((0.5, 0.5**4.5, 0.5**8)):
            policy = parts_of.make_policy(number, 3)
            share = np.mean([policy.act(observation, decision) != greedy for decision in decisions])
            expected = epsilon * 2 / 3  # a random action may be the greedy one
            assert share == pytest.approx(expected, abs=4 * np.sqrt(expected / 300))

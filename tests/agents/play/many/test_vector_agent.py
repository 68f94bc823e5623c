"""The agent of many environments: each lives as it would alone, and nothing is lost on the way to the replay."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from async_wrappers import RealtimeDelay, VectorRealtimeDelay
from async_wrappers.agents.acting.decisions import Decisions, PolicyOutput
from async_wrappers.agents.acting.exploration import identity_epsilon, per_actor_epsilon
from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.play.actor import Ended
from async_wrappers.agents.play.many.environments import NumberedEpisodes
from async_wrappers.agents.play.many.vector_agent import VectorAgent
from async_wrappers.agents.play.play import environment_seed
from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent
from async_wrappers.agents.play.turns.turns import play_episode
from async_wrappers.agents.registry import AGENTS
from async_wrappers.agents.replay.ring import FINAL, TERMINAL
from async_wrappers.agents.spaces.schema import each_array
from async_wrappers.agents.spec import LearnerInterface, Spec
from async_wrappers.batched import Shown
from async_wrappers.batched.double_buffered import DoubleBuffered
from async_wrappers.batched.vector_envs import VectorEnvs
from async_wrappers.policy import Decision
from tests.worlds.agents import FAMILY, hyperparameters, tiny
from tests.worlds.dict_env import DictEnv
from tests.worlds.drifting_env import DriftingEnv
from tests.worlds.plain_data import assert_identical

pytestmark = pytest.mark.filterwarnings("ignore::async_wrappers.agents.families.value_based.c51.SupportWarning")

HYPERPARAMETERS: dict[str, Any] = {
    "stack_size": 3,
    "network": tiny,
    "min_replay_history": 10**6,  # the weights stay as they are
    "epsilon_fn": identity_epsilon,
    "epsilon_train": 0.0,
    "replay_capacity": 3_000,
    "device": "cpu",
}


def drifting(delay: int = 0, noops: int = 0) -> gym.Env[Any, Any]:
    return RealtimeDelay(DriftingEnv(), delay, noops, "repeat") if delay or noops else DriftingEnv()


def numbered(num_envs: int, **delays: int) -> VectorEnvs:
    makes = [lambda: NumberedEpisodes(drifting(**delays), 5, 0, num_envs)] * num_envs
    return VectorEnvs(SyncVectorEnv(makes, autoreset_mode=AutoresetMode.SAME_STEP))


def make_spec(env: Any, **arguments: Any) -> DQN:
    return DQN(env.observation_space, env.action_space, **{**HYPERPARAMETERS, **arguments})


def play(agent: VectorAgent, envs: Any, calls: int, seeds: Any = None) -> list[Ended]:
    """Play so many calls and end all episodes; return those that have ended by themselves."""
    envs.begin(range(envs.num_envs) if seeds is None else seeds)
    over: list[Ended] = []
    for _ in range(calls):
        shown = envs.recv()
        over += agent.observe(shown)
        envs.send(shown.env_ids, agent.act(shown))
    cut = envs.cut()
    return over + [episode for episode in agent.observe(cut) if episode.terminal]


@pytest.mark.parametrize(
    ("delays", "halves"),
    [({}, False), ({"delay": 2}, True), ({"delay": 5, "noops": 1}, False), ({"noops": 3}, False)],
    ids=str,
)
def test_each_environment_stores_what_it_would_store_alone(delays: dict[str, int], halves: bool) -> None:
    count = 3 + halves
    if halves:
        makes = [lambda: NumberedEpisodes(drifting(**delays), 5, 0, count)] * 2
        each = [VectorEnvs(SyncVectorEnv(makes, autoreset_mode=AutoresetMode.SAME_STEP)) for _ in range(2)]
        envs: Any = DoubleBuffered(*each)
    else:
        envs = numbered(count, **delays)
    agent = VectorAgent(make_spec(envs), count)
    over = play(agent, envs, 80)
    lanes = agent.learner.replay.state_dict()["slots"]
    for env_id in range(count):
        alone = TurnBasedAgent.playing(DQN, drifting(**delays), **HYPERPARAMETERS)
        mine = [episode for episode in over if episode.env_id == env_id]
        for number, ended in enumerate(mine):
            episode = play_episode(alone, drifting(**delays), environment_seed(5, 0, number, env_id))
            assert (ended.frames, ended.actions) == (episode.frames, episode.actions)
            assert ended.score == pytest.approx(episode.score)
        slots = alone.learner.replay.state_dict()["slots"]
        kept = len(slots["kind"])
        assert len(mine) > 2 and kept > 10
        assert_identical({name: column[:kept] for name, column in lanes[env_id].items()}, slots)
        assert lanes[env_id]["kind"][-1] == FINAL
    envs.close()


@pytest.mark.parametrize(
    ("member", "overlap", "updates"),
    [
        ("full_rainbow", False, 1),
        ("implicit_quantile", False, 1),
        ("c51, in a reservoir", False, 1),
        ("dqn, double, dueling, prioritized", False, 4),
        ("rainbow", True, 2),
    ],
)
def test_one_environment_ends_in_the_weights_of_turn_based_play(member: str, overlap: bool, updates: int) -> None:
    terms = {**hyperparameters(member), "update_period": 3, "num_updates_per_train_step": updates}
    alone = TurnBasedAgent.playing(DQN if "dqn" in member else AGENTS[member.partition(",")[0]], drifting(2), **terms)
    envs = numbered(1, delay=2)
    agent = VectorAgent(type(alone.spec)(envs.observation_space, envs.action_space, **terms), 1)
    if overlap:
        alone.overlap_learning()
        agent.overlap_learning()
    episodes = 8
    envs.begin([0])
    over = 0
    while over < episodes:
        shown = envs.recv()
        over += len(agent.observe(shown))
        if shown.first.any():
            agent.finish_update()  # in turn an episode's end joins it
        if over < episodes:
            envs.send(shown.env_ids, agent.act(shown))
    for number in range(episodes):
        play_episode(alone, drifting(2), environment_seed(5, 0, number))
    assert agent.updates > 5
    assert_identical(agent.learner.state_dict(), alone.learner.state_dict())
    assert_identical(agent.learner.replay.state_dict(), alone.learner.replay.state_dict())


def test_a_round_may_owe_several_updates_and_a_ratio_says_how_many_by_itself() -> None:
    envs = numbered(2)
    spec = make_spec(envs, min_replay_history=0, update_period=4, num_updates_per_train_step=3, batch_size=8)
    agent = VectorAgent(spec, 2)
    play(agent, envs, 20)
    assert agent.updates == 9 * 3  # one round for every 4 decisions, but for the first, when there was nothing
    with pytest.raises(ValueError, match="replay_ratio must be None where num_updates_per_train_step is bound to 3"):
        VectorAgent(spec, 2, replay_ratio=2.0)


@pytest.mark.parametrize("member", [member for member in FAMILY if "reservoir" not in member])
def test_every_agent_of_values_plays_rows(member: str) -> None:
    envs = numbered(3)
    kind = DQN if "dqn" in member else AGENTS[member.partition(",")[0]]
    agent = VectorAgent(kind(envs.observation_space, envs.action_space, **hyperparameters(member)), 3)
    play(agent, envs, 40)
    assert agent.updates > 5


@pytest.mark.parametrize(
    ("member", "devices"),
    [("c51", 1), ("full_rainbow", 2), ("implicit_quantile", 5), ("dqn, double, dueling, prioritized", 2)],
)
def test_copies_act_as_the_learners_network_does(member: str, devices: int) -> None:
    found = []
    for act_devices in (None, ("cpu",) * devices):
        envs = numbered(3)
        kind = DQN if "dqn" in member else AGENTS[member.partition(",")[0]]
        terms = {**hyperparameters(member), "min_replay_history": 10**6}
        if "prioritized" in member:
            terms["actor_priorities"] = True
        agent = VectorAgent(kind(envs.observation_space, envs.action_space, **terms), 3, act_devices=act_devices)
        play(agent, envs, 60)
        found.append(agent.learner.replay.state_dict()["slots"])
        envs.close()
    for lane, other in zip(*found, strict=True):
        assert_identical(lane["action"], other["action"])
        assert_identical(lane["observation"], other["observation"])


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("period", [1, 3])
def test_copies_take_over_the_learners_weights_now_and_then(period: int, overlap: bool) -> None:
    envs = numbered(2)
    terms = {"min_replay_history": 8, "update_period": 2, "batch_size": 4}
    agent = VectorAgent(make_spec(envs, **terms), 2, act_devices=("cpu", "cpu"), act_sync_period=period)
    if overlap:
        agent.overlap_learning()
    envs.begin([0, 1])
    found, expected = [], []
    weights = [{name: each.clone() for name, each in agent.learner.weights().items()}]  # after each update
    copied = 0
    for _ in range(20):
        shown = envs.recv()
        agent.observe(shown)
        before = agent.meters.updates
        envs.send(shown.env_ids, agent.act(shown))
        agent.finish_update()
        made = agent.meters.updates
        if made > before:
            weights.append({name: each.clone() for name, each in agent.learner.weights().items()})
        complete = made - overlap * (made > before)  # when the actions were chosen
        copied = complete if complete - copied >= period else copied
        found.append(agent.meters.lag)
        expected.append((expected or [0])[-1] + 2 * (made - copied))
        for copy in agent.policy._policies:  # type: ignore[attr-defined]
            assert_identical(dict(copy.weights()), weights[copied])
    assert agent.meters.updates > 10
    assert found == expected
    agent.copy_weights()
    assert_identical(dict(agent.policy.weights()), dict(agent.learner.weights()))
    envs.close()


def test_devices_need_an_agent_that_knows_of_them() -> None:
    env = DriftingEnv()
    with pytest.raises(ValueError, match=r"^act_devices=\('cpu',\): agent 'agent' acts on the learner's device: give"):
        VectorAgent(Own(env.observation_space, env.action_space), 2, act_devices=("cpu",))


def test_a_reservoir_is_of_one_environment() -> None:
    env = DriftingEnv()
    with pytest.raises(ValueError, match="num_envs must be 1 where eviction='reservoir', got 3"):
        VectorAgent(make_spec(env, stack_size=1, replay_eviction="reservoir"), 3)


def test_a_vector_in_lockstep_loses_no_reward() -> None:
    vector = gym.make_vec("CartPole-v1", 5, vectorization_mode="vector_entry_point")
    envs = VectorEnvs(VectorRealtimeDelay(vector, delay=3, noops=1, default_action="repeat"))
    agent, lived = VectorAgent(make_spec(envs, replay_capacity=20_000), 5), 0.0
    observe = agent.observe

    def counting(shown: Shown) -> list[Ended]:
        nonlocal lived
        applied = shown.realtime["applied"].astype(bool)
        lived += float(shown.reward[applied].sum())
        return observe(shown)

    agent.observe = counting  # type: ignore[method-assign]
    play(agent, envs, 200)
    replay = agent.learner.replay.state_dict()
    assert sum(float(lane["reward"].sum()) for lane in replay["slots"]) == pytest.approx(lived)
    for lane in replay["slots"]:
        ages, kinds = lane["age"].tolist(), lane["kind"].tolist()
        following = [0 if kind == FINAL else age + 1 for age, kind in zip(ages, kinds, strict=True)]
        assert ages == [0, *following[:-1]]
        assert TERMINAL in kinds and kinds[-1] == FINAL


def test_updates_are_owed_by_decisions_or_by_transitions() -> None:
    def updates(decisions: int, **terms: Any) -> int:
        envs = numbered(3)
        spec = make_spec(envs, min_replay_history=0, update_period=4, batch_size=8)
        agent = VectorAgent(spec, 3, **terms)
        play(agent, envs, decisions // 3)
        assert agent.meters.acted == decisions == agent.meters.added
        assert agent.meters.updates == agent.updates and agent.meters.sampled == 8 * agent.updates
        return agent.updates

    # A transition can be drawn once the next observation is stored, so what the first two calls owe is not made.
    assert updates(60) == 15 - 2
    assert updates(60, replay_ratio=0.8) == 6 - 1
    assert updates(60, replay_ratio=16.0) == 120 - 12


@pytest.mark.parametrize("terms", [{"replay_scheme": "prioritized"}, {"update_horizon": 3}], ids=str)
def test_transitions_are_learnt_from_with_their_actors_priorities(terms: dict[str, Any]) -> None:
    make = lambda: RealtimeDelay(DriftingEnv(ends=[(True, False)]), 2, 0, "repeat")  # noqa: E731
    envs = VectorEnvs(SyncVectorEnv([make] * 3, autoreset_mode=AutoresetMode.SAME_STEP))
    every = {"replay_scheme": "prioritized", "actor_priorities": True, "priority": "error", **terms}
    spec = make_spec(envs, **every, epsilon_fn=per_actor_epsilon)
    agent = VectorAgent(spec, 3)
    play(agent, envs, 100)
    learner = agent.learner
    assert learner.replay.schema.extras is None  # the values do not stay in the replay
    batch = learner.replay.sample(64)

    def q(stacks: Any) -> Any:
        return learner.network(torch.from_numpy(stacks)).detach().numpy()

    own = np.take_along_axis(q(batch["observation"]), batch["action"][:, None], axis=1)[:, 0]
    error = np.abs(batch["reward"] + batch["discount"] * q(batch["next_observation"]).max(axis=1) - own)
    tree = learner.replay.state_dict()["snapshot"]
    entered = np.concatenate([np.asarray(values).ravel() for values in tree.values()])
    found = [np.isclose(entered, priority**0.5, rtol=1e-4).any() for priority in error]
    assert np.mean(found) > 0.9  # but for those that a cut has bootstrapped


class Counter(LearnerInterface):
    """Counts what it is given."""

    def __init__(self) -> None:
        self.blocks: list[Mapping[str, Any]] = []
        self.cuts: list[int] = []

    def extend(self, block: Mapping[str, Any]) -> None:
        self.blocks.append(deepcopy(dict(block)))

    def cut(self, observation: Any, env_id: int = 0) -> None:
        self.cuts.append(env_id)

    def update(self) -> Mapping[str, Any]:
        self.updates += 1
        return {}

    def weights(self) -> Mapping[str, Any]:
        return {}


class Alternating:
    """Acts by the number of the environment, and leaves the frame of the decision."""

    def act(self, inputs: Any, state: Any, decisions: Any) -> PolicyOutput:
        assert each_array(len, inputs) == len(decisions)
        frames = np.array([decision.frame for decision in decisions])
        return PolicyOutput(np.array([decision.env_id % 2 for decision in decisions]), (), {"frame": frames})


class Own(Spec):
    def make_vector_learner(self, num_envs: int) -> Any:
        return Counter()

    def make_vector_policy(self, learner: Any, num_envs: int) -> Any:
        return Alternating()


def test_an_agent_of_ones_own_may_have_rows() -> None:
    envs = numbered(4)
    agent = VectorAgent(Own(envs.observation_space, envs.action_space), 4)
    play(agent, envs, 30)
    blocks = agent.learner.blocks
    assert [block["env_ids"].tolist() for block in blocks] == [[0, 1, 2, 3]] * 30
    assert all(block["action"].tolist() == [0, 1, 0, 1] for block in blocks)
    # A decision's frame is four times its own environment's, which is what all have played together.
    assert [block["extras"]["frame"].tolist() for block in blocks] == [[4 * call] * 4 for call in range(30)]
    assert agent.updates == 4 * 30


def test_an_agent_without_rows_is_refused_in_a_sentence() -> None:
    env = DriftingEnv()
    with pytest.raises(ValueError, match=r"agent 'agent' plays one environment at a time: give Spec the methods make_"):
        VectorAgent(Spec(env.observation_space, env.action_space), 2)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"actor_priorities": True}, "actor_priorities must be False where replay_scheme='uniform'"),
        ({"priority": "td"}, "priority must be 'loss' or 'error', got 'td'"),
    ],
)
def test_wrong_priorities_are_refused(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make_spec(DriftingEnv(), **arguments)


def test_the_observations_may_be_dicts() -> None:
    make = partial(DictEnv)
    envs = VectorEnvs(SyncVectorEnv([make] * 3, autoreset_mode=AutoresetMode.SAME_STEP))
    agent = VectorAgent(make_spec(envs, min_replay_history=5, batch_size=4), 3)
    play(agent, envs, 40)
    assert agent.updates > 0 and len(agent.learner.replay) > 50


def test_decisions_in_arrays_are_a_sequence_of_them() -> None:
    decisions = [Decision(1, 2, 3, False, 4), Decision(5, 6, 7, True)]
    assert list(Decisions.of(decisions)) == decisions
    assert Decisions.of(Decisions.of(decisions))[-1] == decisions[1]

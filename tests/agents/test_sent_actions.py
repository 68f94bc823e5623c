"""What was sent in the place of a drawn action is learnt from and recalled alike in turn, in rows and live."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import RescaleAction

from async_wrappers import AsyncRunner, Chunk, LimitAction, Limits, RealtimeDelay, VectorRealtimeDelay
from async_wrappers.agents.acting.decisions import PolicyOutput
from async_wrappers.agents.demonstrations.demonstration import Demonstration, EpisodeRecorder
from async_wrappers.agents.play.many.vector_agent import VectorAgent
from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent
from async_wrappers.agents.play.turns.turns import play_episode
from async_wrappers.agents.spec import LearnerInterface, Spec
from async_wrappers.batched import LocalEnvs, VectorEnvs
from tests.worlds.recording_env import RecordingEnv

SPACE = Box(-1.0, 1.0, (1,), np.float32)
LIMITS = Limits(rate=0.3, unit="per frame")
FULL = np.ones(1, np.float32)


def limited(length: Any = (7, 5)) -> gym.Env[Any, Any]:
    return LimitAction(RecordingEnv(list(length), action_space=SPACE), LIMITS, 50)


def delayed(length: Any = (7, 5), **terms: Any) -> RealtimeDelay:
    return RealtimeDelay(limited(length), **{"delay": 1, "noops": 1, "default_action": "repeat", **terms})


def one(action: Any) -> Any:
    return None if action is None else round(float(np.reshape(action, -1)[0]), 4)


# The wrappers.


def test_the_wrapper_reports_and_repeats_what_was_sent() -> None:
    env = delayed([9])
    env.reset(seed=0)
    steps = [env.step(FULL)[4]["realtime"] for _ in range(4)]
    # no-op, then pairs of an action and its repetition, which is already allowed
    assert [one(each) for each in env.unwrapped.actions] == [0, 0.3, 0.3, 0.6, 0.6, 0.9, 0.9, 1, 1]  # type: ignore[attr-defined]
    assert [one(each.get("sent")) for each in steps] == [0.3, 0.6, 0.9, None]


def test_of_a_chunk_the_entries_that_were_sent_are_reported() -> None:
    env = delayed([6], noops=1, default_action=Chunk(4))
    env.reset(seed=0)
    first, second = (env.step(np.ones((4, 1), np.float32))[4]["realtime"] for _ in range(2))
    assert first["executed"].tolist() == [False, True, True, False]
    assert [one(each) for each in first["sent"]] == [1, 0.3, 0.6, 1]
    assert [one(each) for each in second["sent"]] == [1, 0.9, 1, 1]
    assert "sent" not in env.step(np.ones((4, 1), np.float32))[4]["realtime"]


def test_an_action_in_other_units_is_not_reported() -> None:
    env = RealtimeDelay(RescaleAction(limited(), np.float32(-10), np.float32(10)), delay=1)
    env.reset(seed=0)
    step = env.step(np.full(1, 10, np.float32))[4]
    assert one(step["sent"]) == 0.3
    assert "sent" not in step["realtime"]


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("default_action", ["repeat", Chunk(4), lambda seen, last: FULL / 2])
def test_rows_in_lockstep_are_sent_and_told_what_one_by_one_they_are(mode: AutoresetMode, default_action: Any) -> None:
    terms = {"delay": 1, "noops": 1, "default_action": default_action}
    lockstep = SyncVectorEnv([lambda: limited([6])] * 2, autoreset_mode=mode)
    vector = VectorRealtimeDelay(lockstep, **terms)
    single = RealtimeDelay(limited([6]), **terms)
    vector.reset(seed=0)
    actions = np.stack([np.ones_like(single.action_space.sample())] * 2)
    told: list[Any] = []
    for _ in range(3):  # the third action lands on the last of six frames
        *_, terminated, _, info = vector.step(actions)
        realtime = info["realtime"]
        if terminated[1] and mode is not AutoresetMode.NEXT_STEP and "final_info" in info:
            last = info["final_info"]["realtime"]
            realtime = {**last, "_sent": last.get("_sent", [False, False])}
        told.append(realtime["sent"][1] if "sent" in realtime and realtime["_sent"][1] else None)
    single.reset(seed=0)
    alone = [single.step(actions[0])[4]["realtime"].get("sent") for _ in range(3)]
    assert [each is None for each in told] == [each is None for each in alone]
    assert all(np.array_equal(*both) for both in zip(told, alone, strict=True) if both[0] is not None)
    assert any(each is not None for each in alone)
    base: Any = single.unwrapped
    assert np.array_equal(lockstep.envs[1].unwrapped.episodes[0], base.episodes[0])  # type: ignore[attr-defined]


# The agents.


class Noted(LearnerInterface):
    """Keeps the actions of the transitions that it is given."""

    ready = False

    def __init__(self) -> None:
        self.actions: list[Any] = []

    def observe(self, transition: Mapping[str, Any]) -> None:
        self.actions.append(one(transition["action"]))

    def extend(self, block: Mapping[str, Any]) -> None:
        self.actions += [one(action) for action, i in zip(block["action"], block["env_ids"], strict=True) if not i]

    def cut(self, observation: Any, env_id: int = 0) -> None:
        """Nothing is kept of it."""

    def update(self) -> Mapping[str, Any]:
        return {}

    def weights(self) -> Mapping[str, Any]:
        return {}


class Recalling:
    """Asks for 1, and keeps the last actions that environment 0 shows it."""

    remembers = True

    def __init__(self) -> None:
        self.recalled: list[Any] = []

    def initial_state(self, rows: int) -> Any:
        return np.zeros((rows, 1))

    def act(self, inputs: Any, memories: Any, decisions: Any) -> PolicyOutput:
        self.recalled += [
            None if first else one(action)
            for action, first, decision in zip(memories.previous_action, memories.first, decisions, strict=True)
            if not decision.env_id
        ]
        rows = len(decisions)
        return PolicyOutput(np.ones((rows, 1), np.float32), np.zeros((rows, 1)))


class Sending(Spec):
    def make_learner(self, number: int = 0, learners: int = 1) -> Any:
        return Noted()

    def make_policy_of(self, learner: Any) -> Any:
        return Recalling()

    def make_vector_learner(self, num_envs: int) -> Any:
        return Noted()

    def make_vector_policy(self, learner: Any, num_envs: int) -> Any:
        return Recalling()


class Drawing(Sending):
    learns_from = "drawn"


SENT = [[0.3, 0.6, 0.9], [0.3, 0.6]]  # of the decisions of episodes of 7 and 5 frames
EXPECTED: dict[Any, list[list[Any]]] = {Sending: SENT, Drawing: [[1] * 3, [1] * 2]}


def recalled(kind: Any) -> list[Any]:
    """Return the last action before each decision; an episode's last decision does not land."""
    return [each for actions in EXPECTED[kind] for each in [None, *actions[:-1]]]


@pytest.mark.parametrize("kind", [Sending, Drawing])
def test_in_turn(kind: Any) -> None:
    env = delayed()
    agent = TurnBasedAgent.playing(kind, env)
    for seed in (0, 1):
        play_episode(agent, env, seed)
    assert agent.learner.actions == [*EXPECTED[kind][0], *EXPECTED[kind][1]]
    assert agent.policy.recalled == recalled(kind)  # type: ignore[attr-defined]


def rescaled() -> Any:
    """The limits and the delay in other units than the agent's: its 1 is 0.5 to them."""
    return RescaleAction(delayed(), np.float32(-2), np.float32(2))


def test_in_other_units_than_the_delays_the_drawn_action_is_learnt_from() -> None:
    env = rescaled()
    agent = TurnBasedAgent.playing(Sending, env)
    for seed in (0, 1):
        play_episode(agent, env, seed)
    assert agent.learner.actions == [1] * 5
    assert agent.policy.recalled == recalled(Drawing)  # type: ignore[attr-defined]
    envs, rows = LocalEnvs(rescaled, 2), VectorAgent(agent.spec, 2)
    envs.begin([0, 1])
    for _ in range(5):
        shown = envs.recv()
        rows.observe(shown)
        envs.send(shown.env_ids, rows.act(shown))
    envs.close()
    assert set(rows.learner.actions) == {1}


class InPlace(gym.Wrapper[Any, Any, Any, Any]):
    """Changes the action that it is given."""

    def step(self, action: Any) -> Any:
        action *= 0.5
        return self.env.step(action)


def test_an_action_that_the_environment_changes_in_place_is_learnt_from_as_it_was_drawn() -> None:
    env = InPlace(RecordingEnv([4], action_space=SPACE))
    agent = TurnBasedAgent.playing(Sending, env)
    play_episode(agent, env, 0)
    assert agent.learner.actions == [1] * 4
    assert [one(action) for action in env.unwrapped.actions] == [0.5] * 4  # type: ignore[attr-defined]


def lockstep_envs() -> VectorEnvs:
    vector = SyncVectorEnv([limited] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    return VectorEnvs(VectorRealtimeDelay(vector, delay=1, noops=1, default_action="repeat"))


def sync_envs() -> VectorEnvs:
    return VectorEnvs(SyncVectorEnv([delayed] * 2, autoreset_mode=AutoresetMode.SAME_STEP))


@pytest.mark.parametrize("make", [lambda: LocalEnvs(delayed, 2), sync_envs, lockstep_envs])
@pytest.mark.parametrize("kind", [Sending, Drawing])
def test_in_rows(kind: Any, make: Any) -> None:
    envs = make()
    agent = VectorAgent(kind(envs.observation_space, envs.action_space), 2)
    envs.begin([0, 1])
    ended = 0
    while True:
        shown = envs.recv()
        ended += sum(not each.env_id for each in agent.observe(shown))
        if ended == 2:
            break
        envs.send(shown.env_ids, agent.act(shown))
    envs.close()
    assert agent.learner.actions == [*EXPECTED[kind][0], *EXPECTED[kind][1]]
    decided = agent.policy.recalled  # type: ignore[attr-defined]
    assert decided == recalled(kind)


@pytest.mark.parametrize(("learns_from", "expected"), [("sent", [None, 0.3, 0.6, 0.9]), ("drawn", [None, 1, 1, 1])])
def test_live_a_policy_with_memory(learns_from: str, expected: list[Any]) -> None:
    seen: list[Any] = []

    class Halves:
        def encode(self, observation: Any, decision: Any) -> Any:
            return observation

        def release(self, features: Any, memory: Any, decision: Any) -> Any:
            if decision.frame >= 0 and not decision.eval_mode:
                seen.append(one(memory.previous_action))
            return SimpleNamespace(action=FULL, state=0)

    world = RecordingEnv(None, action_space=SPACE)
    AsyncRunner(
        lambda: world,
        Halves,
        1,
        50,
        backend="virtual",
        latency=0.02,
        slot=2,
        default_action="repeat",
        features=world.observation_space,
        limits=LIMITS,
        learns_from=learns_from,
    ).run(frames=8)
    assert seen == expected


def test_a_recorder_keeps_what_was_sent() -> None:
    kept: list[Demonstration] = []
    env, _ = EpisodeRecorder.inside(delayed([7]), kept.append)
    env.reset(seed=0)
    for _ in range(3):
        env.step(FULL)
    assert [one(each) for each in kept[0].actions] == [0, 0.3, 0.3, 0.6, 0.6, 0.9, 0.9]

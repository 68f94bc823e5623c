"""What an agent in turn decides and learns, and when: a table worked by hand, then a plain count of frames."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from async_wrappers import RealtimeDelay
from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent, frames_per_decision
from async_wrappers.agents.play.turns.turns import play_episode
from async_wrappers.agents.spec import LearnerInterface, Spec
from async_wrappers.latency import LogNormal
from async_wrappers.policy import Decision
from tests.worlds.drifting_env import DriftingEnv


class Learnt(NamedTuple):
    """A transition that the learner was given."""

    interval: int
    terminal: bool = False
    truncated: bool = False


class Listening(Spec):
    """Notes each decision and each transition, in their order."""

    def __init__(self, *spaces: Any, **terms: Any) -> None:
        super().__init__(*spaces, **terms)
        self.told: list[Decision | Learnt] = []

    def make_policy(self, number: int = 0, workers: int = 1) -> Any:
        return Deciding(self.told)

    def make_learner(self, number: int = 0, learners: int = 1) -> Any:
        return Learning(self.told)


class Deciding:
    def __init__(self, told: list[Any]) -> None:
        self._told = told

    def act(self, observation: Any, decision: Decision) -> int:
        self._told.append(decision)
        return 0

    def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        pass


class Learning(LearnerInterface):
    def __init__(self, told: list[Any]) -> None:
        self._told = told

    def observe(self, transition: Mapping[str, Any]) -> None:
        self._told.append(Learnt(*(transition[name] for name in Learnt._fields)))

    def update(self) -> Mapping[str, Any]:
        self.updates += 1
        return {}

    def weights(self) -> Mapping[str, Any]:
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {"updates": self.updates}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.updates = state["updates"]


NOTHING = np.zeros(3, np.float32)  # what is seen


def make() -> Any:
    env = DriftingEnv()
    return TurnBasedAgent(Listening(env.observation_space, env.action_space))


def report(start: int, frame: int, interval: int = 1, applied: bool = True) -> dict[str, Any]:
    """The part of ``info["realtime"]`` after a step."""
    return {"start": start, "frame": frame, "interval": interval, "applied": applied, "delay": 0, "default_frames": 0}


def told(agent: Any) -> list[Decision | Learnt]:
    """Return what has been noted since the last call."""
    noted = [*agent.spec.told]
    agent.spec.told.clear()
    return noted


def counts(agent: Any) -> tuple[int, int, int]:
    turns = agent.state()["clock"]
    return turns["frames"], turns["train_episodes"], turns["eval_episodes"]


def test_without_a_report_each_decision_is_one_frame() -> None:
    agent = make()
    agent.begin_episode(NOTHING)
    agent.step(0.0, NOTHING)
    agent.step(0.0, NOTHING)
    expected = [Decision(0, 0, 0, False), Learnt(1), Decision(0, 1, 1, False), Learnt(1), Decision(0, 2, 2, False)]
    assert told(agent) == expected
    agent.end_episode(0.0)
    assert told(agent) == [Learnt(1, terminal=True)] and counts(agent) == (3, 1, 0)
    agent.begin_episode(NOTHING)
    agent.step(0.0, NOTHING)
    assert told(agent) == [Decision(1, 0, 3, False), Learnt(1), Decision(1, 1, 4, False)]


def test_under_delay_a_transition_is_learnt_when_a_decision_could_have_known_it() -> None:
    # s = 0 2 4 6, e = 2 4 6; the episode is cut on frame 7.
    agent = make()
    agent.begin_episode(NOTHING, {"start": 0, "frame": 0})
    agent.step(0.0, NOTHING, report(start=2, frame=4, interval=2))
    assert told(agent) == [Decision(0, 0, 0, False), Decision(0, 2, 2, False)]
    agent.step(0.0, NOTHING, report(start=4, frame=6, interval=2))
    assert told(agent) == [Learnt(2), Decision(0, 4, 4, False)]
    agent.end_episode(0.0, False, NOTHING, report(start=6, frame=7, interval=1))
    assert told(agent) == [Learnt(2), Learnt(1, truncated=True)] and counts(agent) == (7, 1, 0)
    agent.begin_episode(NOTHING, {"start": 4, "frame": 0})
    assert told(agent) == [Decision(1, 4, 11, False)]


def test_an_episode_that_ends_before_the_first_effect_teaches_nothing_and_counts_its_frames() -> None:
    agent = make()
    agent.begin_episode(NOTHING, {"start": 0, "frame": 0})
    agent.end_episode(0.0, True, NOTHING, report(start=3, frame=3, interval=0, applied=False))
    assert told(agent) == [Decision(0, 0, 0, False)] and counts(agent) == (3, 1, 0)


Schedule = tuple[int, int]
EPISODES = st.lists(
    st.tuples(st.booleans(), st.integers(1, 30), st.none() | st.tuples(st.integers(0, 6), st.integers(0, 4))),
    max_size=6,
)


def model(episodes: list[tuple[bool, int, Schedule | None]]) -> list[Decision | Learnt]:
    """All decisions and transitions, from s_j = j (noops + 1), e_j = s_j + delay and the lengths of the episodes."""
    expected: list[Decision | Learnt] = []
    lived, numbers = 0, {False: 0, True: 0}
    for eval_mode, length, schedule in episodes:
        delay, noops = schedule or (0, 0)
        waiting: list[tuple[int, Learnt]] = []
        for start in [0, *(start for start in range(noops + 1, length, noops + 1) if start + delay < length)]:
            expected += [learnt for closed, learnt in waiting if closed <= start]
            waiting = [each for each in waiting if each[0] > start]
            expected.append(Decision(numbers[eval_mode], start, lived if eval_mode else lived + start, eval_mode))
            effect, following = start + delay, min(start + noops + 1 + delay, length)
            if not eval_mode and effect < length:
                waiting.append((following, Learnt(following - effect, terminal=following == length)))
        expected += [learnt for _, learnt in waiting]
        numbers[eval_mode] += 1
        lived += 0 if eval_mode else length
    return expected


def play(agent: Any, episodes: list[tuple[bool, int, Schedule | None]]) -> list[Decision | Learnt]:
    """The same as `model`, from an agent told what `RealtimeDelay` reports (or nothing, where there is no schedule)."""
    for eval_mode, length, schedule in episodes:
        delay, noops = schedule or (0, 0)
        agent.eval_mode = eval_mode
        agent.begin_episode(NOTHING, None if schedule is None else {"start": 0, "frame": 0})
        start = frame = 0
        while True:
            effect, start = start + delay, start + noops + 1
            frame = min(start + delay, length)
            now = report(min(start, length), frame, max(0, frame - effect), effect < length)
            if frame == length:
                agent.end_episode(0.0, True, NOTHING, None if schedule is None else now)
                break
            agent.step(0.0, NOTHING, None if schedule is None else now)
    return told(agent)


@given(EPISODES)
@settings(deadline=None)
def test_decisions_and_transitions_are_the_models(episodes: list[tuple[bool, int, Schedule | None]]) -> None:
    agent = make()
    assert play(agent, episodes) == model(episodes)
    frames = sum(length for eval_mode, length, _ in episodes if not eval_mode)
    evaluations = sum(eval_mode for eval_mode, _, _ in episodes)
    assert counts(agent) == (frames, len(episodes) - evaluations, evaluations)


@given(EPISODES, st.integers(0, 6))
@settings(deadline=None)
def test_a_state_taken_between_two_episodes_goes_on_alike(
    episodes: list[tuple[bool, int, Schedule | None]], cut: int
) -> None:
    first, second = make(), make()
    before = play(first, episodes[:cut])
    with TemporaryDirectory() as directory:
        second.unbundle(Path(directory), 0, first.bundle_and_checkpoint(Path(directory), 0))
    assert before + play(second, episodes[cut:]) == model(episodes)


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize(
    ("constants", "expected"),
    [
        ({}, 1),
        ({"delay": 8}, 1),
        ({"noops": 8}, 9),
        ({"delay": 3, "noops": 3}, 4),
        ({"latency": LogNormal(mean=0.1, cv=0.2), "fps": 60}, None),
        ({"latency": 0.1, "fps": 60}, None),
    ],
)
def test_a_wrapped_environment_says_how_many_frames_a_decision_takes(
    constants: dict[str, Any], expected: int | None, wrapped: bool
) -> None:
    env: gym.Env[Any, Any] = RealtimeDelay(DriftingEnv(noop=True), **constants)
    assert frames_per_decision(gym.wrappers.TimeLimit(env, 10) if wrapped else env) == expected


def test_an_environment_that_says_nothing_is_turn_based() -> None:
    assert frames_per_decision(DriftingEnv()) == 1
    assert frames_per_decision(gym.wrappers.TimeLimit(DriftingEnv(), 10)) == 1


def test_an_episode_that_nobody_has_ended_leaves_nothing_to_the_next_one() -> None:
    agent = make()
    agent.begin_episode(NOTHING, report(0, 0, 3, applied=False))
    agent.step(1.0, NOTHING, report(1, 3))
    agent.begin_episode(NOTHING)
    agent.end_episode(1.0, True, NOTHING)
    assert [each for each in told(agent) if isinstance(each, Learnt)] == [Learnt(1, terminal=True)]
    assert counts(agent)[0] == 4


class Keeping(Deciding):
    """Keeps all observations that it is shown."""

    def __init__(self) -> None:
        super().__init__([])
        self.kept: list[Any] = []

    def act(self, observation: Any, decision: Decision) -> int:
        self.kept.append(observation)
        return 0


def test_a_policy_may_keep_what_it_was_shown() -> None:
    policy = Keeping()

    class Kept(Listening):
        def make_policy(self, number: int = 0, workers: int = 1) -> Any:
            return policy

    agent = TurnBasedAgent(Kept(gym.spaces.Box(0, 9, (2,)), gym.spaces.Discrete(2)))
    agent.begin_episode(np.full(2, 1, np.float32))
    for number in (2, 3):
        agent.step(0.0, np.full(2, number, np.float32))
    assert [np.unique(each).tolist() for each in policy.kept] == [[1.0], [2.0], [3.0]]


def test_a_learner_gets_the_actions_that_were_taken_whatever_the_type_of_the_first() -> None:
    answers = iter([np.zeros(1, np.int64), np.full(1, 0.5, np.float32)])
    learnt: list[Any] = []

    class Answering(Deciding):
        def act(self, observation: Any, decision: Decision) -> Any:
            return next(answers)

    class Noting(Learning):
        def observe(self, transition: Mapping[str, Any]) -> None:
            learnt.append(transition["action"].tolist())

    class Real(Listening):
        def make_policy(self, number: int = 0, workers: int = 1) -> Any:
            return Answering([])

        def make_learner(self, number: int = 0, learners: int = 1) -> Any:
            return Noting([])

    agent = TurnBasedAgent(Real(gym.spaces.Box(0, 9, (2,)), gym.spaces.Box(-1, 1, (1,))))
    agent.begin_episode(np.zeros(2, np.float32))
    agent.step(0.0, np.zeros(2, np.float32))
    agent.end_episode(0.0, True, np.zeros(2, np.float32))
    assert learnt == [[0.0], [0.5]]


def test_priorities_of_actors_are_the_learners_own_in_turn() -> None:
    environment = gym.make("CartPole-v1")
    terms = {"replay_scheme": "prioritized", "min_replay_history": 10, "replay_capacity": 100, "batch_size": 4}
    agent: Any = TurnBasedAgent.playing(DQN, environment, **terms, actor_priorities=True, seed=0)
    for number in range(3):
        play_episode(agent, environment, number)
    assert agent.updates > 0

"""A plain loop over frames, written from the three rules alone, agrees with `RealtimeDelay`.

The rules are those of the design's chapter on the decision schedule:

1. On frame e_j the environment receives action j, on every other frame the default action.
2. Decision j is computed from the observation at the start of frame s_j and from nothing newer.
3. The reward of decision j is the sum over frames e_j .. e_{j+1} - 1; rewards before e_0 go to decision 0.

Nothing of the project's schedule is used here. The policy is a hash of its observation and each observation depends on
all actions before it, so that a leak or a shift by one frame changes everything after it.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Discrete
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from async_wrappers import RealtimeDelay
from tests.worlds.hashing_policy import DEFAULTS, Default, policy
from tests.worlds.recording_env import FRAME, MEANINGS, NOOP, RecordingEnv
from tests.worlds.schedule_cases import CASES


@dataclass(frozen=True)
class Episode:
    """What the environment and the agent do in one episode."""

    length: int  # frames
    ends: tuple[bool, bool]  # terminated, truncated
    steps: int  # decisions after which the agent resets, if the episode has not ended by then


@dataclass(frozen=True)
class World:
    """All that a run depends on, except the default action."""

    delay: int
    noops: int
    episodes: list[Episode]
    rewards: list[float]
    reuse: bool

    def make(self, reuse: bool, action_space: Discrete | None = None) -> RecordingEnv:
        return RecordingEnv(
            length=[episode.length for episode in self.episodes],
            ends=[episode.ends for episode in self.episodes],
            rewards=self.rewards,
            action_space=action_space,
            reuse=reuse,
        )


EPISODES = st.builds(
    Episode,
    length=st.integers(1, 60),
    ends=st.sampled_from([(True, False), (False, True), (True, True)]),
    steps=st.one_of(st.just(1000), st.integers(0, 12)),
)
WORLDS = st.builds(
    World,
    delay=st.integers(0, 20),
    noops=st.integers(0, 20),
    episodes=st.lists(EPISODES, min_size=1, max_size=4),
    rewards=st.lists(st.integers(-1000, 1000).map(float), min_size=1, max_size=61),
    reuse=st.booleans(),
)


def by_the_rules(world: World, defaults: list[Default]) -> tuple[list[Any], list[list[int]]]:
    """Return what the agent gets in each reset and step, and the actions that the environment receives."""

    def start(decision: int) -> int:
        return decision * (world.noops + 1)

    def effect(decision: int) -> int:
        return start(decision) + world.delay

    env = world.make(reuse=False)
    returned: list[Any] = []
    for episode, default in zip(world.episodes, defaults, strict=True):
        observation, info = env.reset()
        sights = [(observation, info)]  # sights[k] is what the environment showed at the start of frame k
        rewards: list[float] = []
        ended = (False, False)
        last_action = None
        last_frame = effect(episode.steps) if episode.steps else 0  # frames that the agent's steps would cover
        while len(rewards) < last_frame and not any(ended):
            frame = len(rewards)
            landing = [decision for decision in range(frame + 1) if effect(decision) == frame]
            if landing:
                action = last_action = policy(sights[start(landing[0])][0])  # rules 1 and 2
            else:
                action = default(frame, sights[frame][0], last_action)
            observation, reward, *ended, info = env.step(action)
            sights.append((observation, info))
            rewards.append(reward)
        frames = len(rewards)

        returned.append((sights[0][0].tolist(), {**sights[0][1], "realtime": _reset_realtime(sights[0][1])}))
        for decision in range(episode.steps):
            # rule 3
            mine = [k for k in range(frames) if (k >= effect(decision) or decision == 0) and k < effect(decision + 1)]
            if not mine:
                break  # the episode ended in an earlier step
            closing = mine[-1] + 1  # the frame that would come next
            end = ended if closing == frames else [False, False]
            if any(end):
                in_flight = [d for d in range(decision + 1, frames + 2) if start(d) < closing <= effect(d)]
                shown = start(min(in_flight, key=effect)) if in_flight else closing
            else:
                shown = start(decision + 1)
            applied = effect(decision) < closing
            realtime = {
                "delay": world.delay,
                "interval": closing - effect(decision) if applied else 0,
                "default_frames": len(mine) - applied,
                "frame": closing,
                "start": shown,
                "applied": applied,
                "finished": effect(decision) if applied else closing,  # constants: it ends when it lands
                "observation_info": sights[shown][1],
            }
            returned.append(
                (
                    sights[shown][0].tolist(),
                    sum(rewards[k] for k in mine),
                    *end,
                    {**sights[closing][1], "realtime": realtime},
                )
            )
    return returned, env.episodes


def _reset_realtime(info: dict[str, Any]) -> dict[str, Any]:
    return {"frame": 0, "start": 0, "observation_info": info}


def by_the_wrapper(
    world: World, default_action: Any, seed: int | None = None, action_space: Discrete | None = None
) -> tuple[list[Any], list[list[int]]]:
    """Return the same of a real run."""
    recorder = world.make(reuse=world.reuse, action_space=action_space)
    env = RealtimeDelay(recorder, world.delay, world.noops, default_action)
    returned: list[Any] = []
    for episode in world.episodes:
        observation, info = env.reset(seed=seed)
        seed = None
        returned.append((observation.tolist(), deepcopy(info)))
        for _ in range(episode.steps):
            observation, reward, terminated, truncated, info = env.step(policy(observation))
            returned.append((observation.tolist(), reward, terminated, truncated, deepcopy(info)))
            if terminated or truncated:
                break
    return returned, recorder.episodes


@settings(max_examples=CASES, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(world=WORLDS, name=st.sampled_from(list(DEFAULTS)))
def test_the_wrapper_gives_the_actions_observations_rewards_ends_and_infos_of_the_three_rules(
    world: World, name: str
) -> None:
    default_action, rule = DEFAULTS[name]
    returned, received = by_the_wrapper(world, default_action)
    expected_returned, expected_received = by_the_rules(world, [rule] * len(world.episodes))
    assert received == expected_received
    assert returned == expected_returned


class CountingDiscrete(Discrete):
    """Counts the draws of all its copies."""

    draws: ClassVar[int] = 0

    def sample(self, *args: Any, **kwargs: Any) -> Any:
        CountingDiscrete.draws += 1
        return super().sample(*args, **kwargs)


@settings(max_examples=-(-CASES // 3), deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(world=WORLDS, seed=st.integers(0, 2**31))
def test_random_defaults_are_one_draw_per_default_frame_and_all_else_follows_the_three_rules(
    world: World, seed: int
) -> None:
    CountingDiscrete.draws = 0
    returned, received = by_the_wrapper(world, "random", seed, CountingDiscrete(len(MEANINGS)))
    default_frames = sum(step[-1]["realtime"].get("default_frames", 0) for step in returned)
    assert CountingDiscrete.draws == default_frames

    replayed: list[Default] = [lambda frame, observation, last, log=log: log[frame] for log in received]
    expected_returned, expected_received = by_the_rules(world, replayed)
    assert received == expected_received
    assert returned == expected_returned

    assert by_the_wrapper(world, "random", seed, CountingDiscrete(len(MEANINGS))) == (returned, received)


def test_random_defaults_of_two_seeds_differ() -> None:
    world = World(delay=3, noops=5, episodes=[Episode(60, (True, False), 1000)], rewards=[1.0], reuse=False)
    received = [by_the_wrapper(world, "random", seed)[1][0] for seed in range(10)]
    defaults = {tuple(action for frame, action in enumerate(log) if (frame - 3) % 6) for log in received}
    assert len(defaults) == 10


def test_the_oracle_tells_a_shift_by_one_frame() -> None:
    """A check of the check: another delay or spacing changes what the oracle expects."""
    episodes = [Episode(40, (True, False), 1000)]
    world = World(delay=3, noops=2, episodes=episodes, rewards=[1.0, 2.0, 4.0], reuse=False)
    rule = DEFAULTS["noop"][1]
    expected = by_the_rules(world, [rule])
    for delay, noops in ((2, 2), (4, 2), (3, 1), (3, 3)):
        other = by_the_rules(World(delay, noops, episodes, world.rewards, reuse=False), [rule])
        assert other[0] != expected[0]
        assert other[1] != expected[1]
    assert expected[0][-1][0][FRAME] == 39  # in flight at the end: the decision that started on frame 39
    assert np.array_equal(expected[1][0][:3], [NOOP] * 3)

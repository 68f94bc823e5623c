"""The simulation loop of the published code (realtime_rl) beside `RealtimeDelay`, for every pair of its README.

The loop is written here from its description alone. A flag ``delay = d`` is counted in decisions, from one on:
decision j acts on the picture of decision j - (d - 1), and the first d - 1 decisions act on a picture of zeros. A
decision is one frame with the action and ``noops`` frames with the no-op, which are stepped whether or not the episode
has ended; what the last of them says of the end is what counts.

Nothing of the project's schedule is used in it. The policy is a hash of its picture and each picture depends on all
actions before it, so that a leak or a shift by one frame changes everything after it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from gymnasium.spaces import Discrete
from gymnasium.wrappers import DelayObservation

from async_wrappers import RealtimeDelay
from async_wrappers.schedule.plain import PlainSchedule

PAGE = Path(__file__).parents[3] / "docs" / "concepts" / "published_loop.md"
README_DELAYS = (1, 3, 5, 8, 29, 47, 70, 80, 596, 599, 750)  # of Atari and Tetris
PAIRS = [(delay, noops) for delay in README_DELAYS for noops in (0, delay)]
PLAYED = [pair for pair in PAIRS if pair[1] < 100]  # episodes of the others have half a million frames
PRIME = 1_000_003
ZEROS, NOOP, ACTIONS = 0, 2, 5

Policy = Callable[[int], int]


class Hashed(gym.Env[int, int]):
    """Its observation is a number from 1 on, in which each action since the reset matters; it can be stepped on and on.

    Args:
        length: Frames of an episode.
    """

    def __init__(self, length: int) -> None:
        self.observation_space, self.action_space = Discrete(PRIME + 1), Discrete(ACTIONS)
        self.length = length

    def get_action_meanings(self) -> list[str]:
        return ["UP", "DOWN", "NOOP", "LEFT", "RIGHT"]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        self.actions: list[int] = []
        self.picture = 1
        return self.picture, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.actions.append(action)
        self.picture = 1 + (self.picture * 31 + action + 7) * 48_271 % PRIME
        return self.picture, float(self.picture % 10), len(self.actions) >= self.length, False, {}


def always_acts(picture: int) -> int:
    """Act also on a picture of zeros, and not by the no-op."""
    return (3, 1, 0, 4)[picture % 4]


def waits_for_a_picture(picture: int) -> int:
    return NOOP if picture == ZEROS else always_acts(picture)


def published(env: Hashed, policy: Policy, delay: int, noops: int) -> list[float]:
    """Play an episode as the published code does; return the reward of each decision."""
    picture, _ = env.reset()
    pictures, rewards, done = [picture], [], False
    while not done:
        decision = len(rewards)
        seen = decision - max(delay - 1, 0)
        action = policy(pictures[seen] if seen >= 0 else ZEROS)
        sum_of_rewards = 0.0
        for each in [action] + [NOOP] * noops:
            picture, reward, done, _, _ = env.step(each)
            sum_of_rewards += reward
        pictures.append(picture)
        rewards.append(sum_of_rewards)
    return rewards


def ours(env: gym.Env[Any, Any], policy: Policy) -> list[float]:
    """Play an episode with a wrapped environment; return the reward of each decision."""
    observation, _ = env.reset()
    rewards, over = [], False
    while not over:
        observation, reward, terminated, truncated, _ = env.step(policy(int(observation)))
        rewards.append(float(reward))
        over = terminated or truncated
    return rewards


def length_of(delay: int, noops: int) -> int:
    """Return frames enough for seven decisions on a picture; the last one ends in the middle of its no-ops."""
    return (delay - 1 + 7) * (noops + 1) - noops // 2


def test_the_page_has_every_pair_of_the_readme_and_says_what_it_means_here() -> None:
    rows = re.findall(r"^\| (\d+) \| .+? \| `\((\d+), 0\)` \| `\((\d+), (\d+)\)` \|", PAGE.read_text(), re.MULTILINE)
    said = {}
    for delay, asynchronous, sequential, noops in (map(int, row) for row in rows):
        said[delay, 0], said[delay, delay] = (asynchronous, 0), (sequential, noops)
    assert len(PAIRS) == 22
    assert said == {(delay, noops): ((delay - 1) * (noops + 1), noops) for delay, noops in PAIRS}


@pytest.mark.parametrize(("delay", "noops"), PAIRS)
def test_a_decision_reads_and_acts_on_the_published_frames(delay: int, noops: int) -> None:
    def frames() -> Iterator[tuple[int, int]]:
        """Yield (frame of the picture, frame of the action) of each published decision that acts on a picture."""
        at = [decision * (noops + 1) for decision in range(delay + 50)]
        yield from ((at[decision - (delay - 1)], at[decision]) for decision in range(delay - 1, len(at)))

    expected = list(frames())
    schedule = PlainSchedule((delay - 1) * (noops + 1), noops)
    assert list(islice(schedule.decisions(), len(expected))) == expected


@pytest.mark.parametrize(("delay", "noops"), PLAYED)
def test_the_published_actions_are_those_of_realtime_delay_where_zeros_are_answered_by_the_noop(
    delay: int, noops: int
) -> None:
    length = length_of(delay, noops)
    there, here = Hashed(length), Hashed(length)
    rewards = published(there, waits_for_a_picture, delay, noops)
    found = ours(RealtimeDelay(here, (delay - 1) * (noops + 1), noops), waits_for_a_picture)
    assert here.actions == there.actions[:length]
    assert len(here.actions) == length  # nothing is stepped after the end
    assert there.actions[length:] == [NOOP] * (noops // 2)  # there the no-ops go on
    assert len(set(here.actions)) > 2
    # Rewards of the frames before the first action are of the first decision here; the last one is cut at the end.
    assert found[1:-1] == rewards[delay:-1]
    assert found[0] == sum(rewards[:delay])


@pytest.mark.parametrize(("delay", "noops"), [pair for pair in PLAYED if pair[0] > 1])
def test_the_first_published_decisions_act_on_zeros_where_realtime_delay_has_the_noop(delay: int, noops: int) -> None:
    length = length_of(delay, noops)
    there, here = Hashed(length), Hashed(length)
    published(there, always_acts, delay, noops)
    ours(RealtimeDelay(here, (delay - 1) * (noops + 1), noops), always_acts)
    first = (delay - 1) * (noops + 1)
    assert there.actions[:first] == ([always_acts(ZEROS)] + [NOOP] * noops) * (delay - 1)
    assert here.actions[:first] == [NOOP] * first


@pytest.mark.parametrize(("delay", "noops"), PLAYED)
def test_delayed_observations_of_undelayed_decisions_are_the_published_loop_from_the_first_decision_on(
    delay: int, noops: int
) -> None:
    length = length_of(delay, noops)
    there, here = Hashed(length), Hashed(length)
    rewards = published(there, always_acts, delay, noops)
    found = ours(DelayObservation(RealtimeDelay(here, 0, noops), delay - 1), always_acts)
    assert here.actions == there.actions[:length]
    assert found[:-1] == rewards[:-1]


@pytest.mark.parametrize(("delay", "noops"), [(599, 599)])
def test_no_action_lands_in_an_episode_of_any_game_where_the_largest_are_sequential(delay: int, noops: int) -> None:
    """Atari episodes are cut after 108,000 frames: there all decisions act on zeros, here none is applied."""
    there, here = Hashed(108_000), Hashed(108_000)
    published(there, waits_for_a_picture, delay, noops)
    assert set(there.actions) == {NOOP}  # for want of a picture
    env = RealtimeDelay(here, (delay - 1) * (noops + 1), noops)
    env.reset()
    _, _, terminated, _, info = env.step(3)
    assert terminated
    assert not info["realtime"]["applied"]
    assert set(here.actions) == {NOOP}

"""Groups of games are one vector of them, and a signal is heard while they are made."""

from __future__ import annotations

import signal
from functools import partial
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest

from async_wrappers.envs import atari
from async_wrappers.envs.atari import AT_ONCE, AtariGroups, atari_games, create_atari_vector

pytest.importorskip("ale_py")
from ale_py.vector_env import AtariVectorEnv

SETTINGS = {
    "stack_num": 1,
    "noop_max": 0,
    "use_fire_reset": False,
    "repeat_action_probability": 0.25,
    "max_num_frames_per_episode": 80,
    "autoreset_mode": gym.vector.AutoresetMode.SAME_STEP,
}


def assert_same(one: Any, groups: Any) -> None:
    *arrays, info = one
    *of_groups, info_of_groups = groups
    assert info.keys() == info_of_groups.keys()
    for a, b in zip([*arrays, *info.values()], [*of_groups, *(info_of_groups[name] for name in info)], strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def test_groups_are_one_vector_of_their_games() -> None:
    one = AtariVectorEnv("breakout", 3, num_threads=1, **SETTINGS)
    groups = AtariGroups(partial(AtariVectorEnv, "breakout", num_threads=1, **SETTINGS), 3, at_once=2)
    assert groups.observation_space == one.observation_space and groups.action_space == one.action_space
    assert_same(one.reset(seed=np.array([5, 6, 9])), groups.reset(seed=np.array([5, 6, 9])))
    rng, ends = np.random.default_rng(0), 0
    for _ in range(25):
        actions = rng.integers(0, 4, 3)
        step = one.step(actions)
        assert_same(step, groups.step(actions))
        ends += int((step[2] | step[3]).sum())
    assert ends == 3
    options = {"reset_mask": np.array([True, False, False])}
    assert_same(one.reset(options=options), groups.reset(options=options))
    one.close()
    groups.close()


@pytest.mark.parametrize("kind", [int, np.int64])
def test_one_seed_is_the_first_of_the_games_seeds(kind: Any) -> None:
    groups = AtariGroups(partial(AtariVectorEnv, "breakout", num_threads=1, **SETTINGS), 3, at_once=2)

    def played(seed: Any) -> list[Any]:
        groups.reset(seed=seed)
        return [groups.step(np.full(3, 1 + step % 3)) for step in range(25)]  # each action is sticky by chance

    for given, expected in zip(played(kind(5)), played(np.array([5, 6, 7])), strict=True):
        assert_same(given, expected)
    groups.close()


def test_noops_lives_and_fire_are_those_of_one_vector(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one no-op at most, half of the games begin twice, so that many masks leave out all games of a group."""
    made = partial(
        create_atari_vector,
        "Breakout",
        3,
        sticky_actions=False,
        screen_size=12,
        noop_max=1,
        num_threads=1,
        episodic_life=True,
        fire_on_reset=True,
        max_frames=240,
    )
    one = made()
    monkeypatch.setattr(atari, "_ALONE", 2)
    monkeypatch.setattr(atari, "AtariGroups", partial(AtariGroups, at_once=2))
    groups = made()
    assert isinstance(groups.unwrapped, AtariGroups) and not isinstance(one.unwrapped, AtariGroups)
    assert_same(one.reset(seed=3), groups.reset(seed=3))
    rng, lives, games = np.random.default_rng(0), 0, 0
    for _ in range(130):
        actions = rng.integers(0, 4, 3)
        step, of_groups = one.step(actions), groups.step(actions)
        ends = [each[-1].pop("final_info", None) for each in (step, of_groups)]
        assert_same(step, of_groups)
        if ends[0] is not None:
            assert_same((ends[0],), (ends[1],))
            lives, games = lives + int((step[2] | step[3]).sum()), games + int(ends[0]["game_over"].sum())
    assert lives > games >= 6
    one.close()
    groups.close()


class Group:
    """A vector that takes no time to make, and in whose making a signal may come."""

    made = 0
    whole: ClassVar[list[Group]] = []

    def __init__(self, num_envs: int, interrupted: int) -> None:
        Group.made += 1
        self.num_envs, self.ale, self.closed = num_envs, None, False
        self.autoreset_mode, self.metadata = gym.vector.AutoresetMode.SAME_STEP, {}
        self.single_observation_space, self.single_action_space = gym.spaces.Box(0, 1, (1,)), gym.spaces.Discrete(2)
        if Group.made == interrupted:
            signal.raise_signal(signal.SIGINT)
        Group.whole.append(self)

    def reset(self, **arguments: Any) -> Any:
        return np.zeros((self.num_envs, 1)), {"lives": arguments["seed"]}

    def close(self) -> None:
        self.closed = True


def test_a_signal_while_games_are_made_ends_it_after_the_group_that_is_being_made() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    Group.made = 0
    Group.whole.clear()
    try:
        groups = AtariGroups(partial(Group, interrupted=3), 100, at_once=10)
        assert Group.made == 1  # the others where they begin
        with pytest.raises(KeyboardInterrupt):
            groups.reset(seed=np.arange(100))
        assert Group.made == 3
    finally:
        signal.signal(signal.SIGINT, before)
    groups.close()
    assert len(Group.whole) == 2 and all(group.closed for group in Group.whole)
    again = AtariGroups(partial(Group, interrupted=0), 25, at_once=10)
    observations, info = again.reset(seed=np.arange(25))
    assert observations.shape == (25, 1) and info["lives"].tolist() == list(range(25))
    again.close()


def test_many_games_are_made_in_groups_and_few_as_one_vector(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[int, int]] = []

    def make(game: str, num_envs: int, *, num_threads: int, **settings: Any) -> Group:
        made.append((num_envs, num_threads))
        return Group(num_envs, 0)

    monkeypatch.setattr("ale_py.vector_env.AtariVectorEnv", make)
    assert atari_games("pong", 32, 5).num_envs == 32
    many = atari_games("pong", 200, 30)
    assert isinstance(many, AtariGroups) and many.num_envs == 200
    assert made == [(32, 5), (AT_ONCE, 2)]
    many.close()

"""The sweeps that are shipped: how many trials they have, and that their delays are the paper's."""

from __future__ import annotations

import re
from collections import Counter
from itertools import product
from pathlib import Path

import pytest

import async_wrappers.agents.configurables  # registers what gin files name
import async_wrappers.configurables  # noqa: F401
from async_wrappers.agents.config.config import load_config
from async_wrappers.agents.networks.q_network import PRESETS
from async_wrappers.agents.sweep.grid import Point, make_points
from async_wrappers.agents.sweep.plan import Sweep

ROOT = Path(__file__).parents[3]
D, N = "RealtimeDelay.delay", "RealtimeDelay.noops"
GAME, AGENT = "create_atari_environment.game_name", "create_agent.agent_name"
DELAYS = {"'dqn'": {1, 3, 5, 8, 29, 47, 70, 80, 599, 750}, "'full_rainbow'": {1, 5, 8, 70, 599}}


def points(name: str, seeds: int = 3) -> list[Point]:
    load_config([f"configs/sweeps/{name}.gin"], [], search_paths=[ROOT])
    settings = Sweep()
    assert settings.seeds == seeds
    return make_points(settings.grid, settings.arms, settings.exclude)


@pytest.mark.parametrize("name", ["atari_paper", "atari_published", "atari_real_networks"])
def test_the_papers_grids_have_288_trials(name: str) -> None:
    found = points(name)
    assert 3 * len(found) == 288
    assert Counter(point.bindings[GAME] for point in found) == dict.fromkeys(
        ("'Boxing'", "'Krull'", "'NameThisGame'"), 32
    )
    assert all(sum(point.arm == arm for point in found) == 3 for arm in ("random", "no-op"))


@pytest.mark.parametrize(
    ("name", "seconds"), [("atari_paper", 237_000), ("atari_published", 237_000), ("atari_real_networks", None)]
)
def test_the_papers_grids_say_how_long_they_take_and_keep_no_replay(name: str, seconds: int | None) -> None:
    points(name)
    assert Sweep().trial_seconds == seconds
    assert not Sweep().keep_checkpoints


@pytest.mark.parametrize("name", ["atari_paper", "atari_real_networks"])
def test_the_papers_delays_are_those_of_its_table_in_both_interactions(name: str) -> None:
    found = points(name)
    for agent, delays in DELAYS.items():
        pairs = {(int(p.bindings[D]), int(p.bindings[N])) for p in found if p.bindings[AGENT] == agent}
        assert pairs == {(delay, 0) for delay in delays} | {(delay, delay) for delay in delays}


def test_each_delay_has_its_own_network_where_networks_are_real() -> None:
    found = [point.bindings for point in points("atari_real_networks") if point.arm == "DQN, sequential"]
    networks = {int(bindings[D]): bindings["create_network.torso"].strip("'") for bindings in found}
    assert list(networks) == sorted(DELAYS["'dqn'"])
    assert set(networks.values()) == set(PRESETS)
    assert [networks[delay] for delay in (1, 5, 8, 70, 599)] == ["55k", "1m", "10m", "100m", "1b"]


def test_the_published_arithmetic_counts_a_delay_in_decisions_from_one_on() -> None:
    found = points("atari_published")
    for agent, delays in DELAYS.items():
        pairs = {(int(p.bindings[D]), int(p.bindings[N])) for p in found if p.bindings[AGENT] == agent}
        assert pairs == {((delay - 1) * (noops + 1), noops) for delay in delays for noops in (0, delay)}


def test_the_published_arithmetic_says_of_which_points_no_action_can_land() -> None:
    """Atari's episodes are cut after 108,000 frames; what is delayed by more never acts."""
    never = [int(p.bindings[D]) for p in points("atari_published") if int(p.bindings[D]) > 108_000]
    header = (ROOT / "configs" / "sweeps" / "atari_published.gin").read_text().partition("include")[0]
    (trials,) = re.findall(r"those (\d+) trials have a delay of ([\d,]+) and ([\d,]+) frames", header)
    count, *delays = (int(number.replace(",", "")) for number in trials)
    assert (count, delays) == (3 * len(never), sorted(set(never)))


@pytest.mark.parametrize("name", ["tetris_paper", "falling_blocks_paper"])
def test_tetris_has_both_interactions_at_each_of_its_delays_and_random_and_noop_once(name: str) -> None:
    found = points(name)
    assert 3 * len(found) == 36
    learning = [point for point in found if point.arm in ("asynchronous", "sequential")]
    pairs = {(int(point.bindings[D]), int(point.bindings[N])) for point in learning}
    assert pairs == {(delay, noops) for delay in (1, 5, 8, 70, 596) for noops in (0, delay)}
    assert sorted(point.arm for point in found if point not in learning) == ["no-op", "random"]


@pytest.mark.parametrize(("name", "trials", "games"), [("pokemon_paper", 57, 2), ("falling_blocks_live", 30, 1)])
def test_the_live_grids_have_each_network_with_its_workers_in_each_mode(name: str, trials: int, games: int) -> None:
    found = points(name)
    assert 3 * len(found) == trials
    keys = ("create_network.torso", "AsyncRunner.workers", "AsyncRunner.learners", "MaxTime.initial_latency")
    published = {("'1m'", "7", "1", "0.04"), ("'10m'", "12", "3", "0.1"), ("'100m'", "72", "33", "0.01")}
    by_arm: dict[str, list[tuple[str, ...]]] = {}
    for point in found:
        by_arm.setdefault(point.arm, []).append(tuple(point.bindings[key] for key in keys))
    assert Counter(by_arm.pop("asynchronous")) == dict.fromkeys(published, games)
    assert by_arm.pop("asynchronous, random") == [("'100m'", "72", "33", "0.01")]
    assert sorted(by_arm) == ["sequential, inference then learning", "sequential, learning then inference"]
    for settings in by_arm.values():
        alone = {(torso, "1", "1", latency) for torso, _, _, latency in published}
        assert Counter(settings) == dict.fromkeys(alone, games)
    modes = {point.bindings.get("Sequential.learn") for point in found}
    assert modes == {None, "'after'", "'before'"}


@pytest.mark.parametrize(
    ("name", "trials", "delays"), [("atari_small", 30, {1, 8, 29, 70}), ("falling_blocks_small", 36, {0, 1, 4, 16, 70})]
)
def test_the_small_ones_have_both_interactions_at_each_delay(name: str, trials: int, delays: set[int]) -> None:
    found = points(name)
    assert 3 * len(found) == trials
    for arm, noops in (("asynchronous", lambda delay: 0), ("sequential", lambda delay: delay)):
        pairs = [(int(point.bindings[D]), int(point.bindings[N])) for point in found if point.arm == arm]
        assert pairs == [(delay, noops(delay)) for delay in sorted(delays)]


def test_students_of_one_teacher_are_compared_under_each_delay() -> None:
    found = points("reincarnation_cartpole")
    assert len(found) == 27 and {int(point.bindings[D]) for point in found} == {*range(9)}
    assert Counter(point.arm for point in found) == {"label at effect": 9, "label at start": 9, "no teacher": 9}


GAMES = ("'asterix'", "'breakout'", "'freeway'", "'seaquest'", "'space_invaders'")
MINATAR = "create_minatar_environment.game"


def test_the_grid_of_minatar_has_375_trials_of_eight_ways() -> None:
    found = points("minatar", seeds=5)
    assert len(found) * 5 == 375
    assert Sweep().order == "points" and not Sweep().keep_checkpoints
    ways = {
        *(("sequential", delay, delay) for delay in (2, 8)),
        *(("asynchronous", delay, 0) for delay in (0, 2, 8)),
        *(("core at release", delay, 0) for delay in (2, 8)),
        *(("chunks", delay, delay - 1) for delay in (2, 8)),
        *((way, delay, 0) for way in ("told", "fast path") for delay in (2, 8)),
        ("fast path, a frame late", 8, 0),
        ("fast network alone", 0, 0),
    }
    for game in GAMES:
        own = [point for point in found if point.bindings[MINATAR] == game]
        assert {(point.arm, int(point.bindings[D]), int(point.bindings[N])) for point in own} == ways
        assert len(own) == len(ways)
    # Whole games come first.
    assert [point.bindings[MINATAR] for point in found] == [game for game in GAMES for _ in ways]
    window, fast = "create_actor_critic.action_window", "create_actor_critic.fast"
    for point in found:
        assert (point.bindings.get("create_actor_critic.core") == "'lstm'") == (point.arm == "core at release")
        assert (point.bindings.get("RealtimeDelay.default_action") == "'chunk'") == (point.arm == "chunks")
        told = point.arm == "told" or point.arm.startswith("fast path")
        assert point.bindings.get(window) == (point.bindings[D] if told else None)
        assert (fast in point.bindings) == point.arm.startswith("fast path")


def test_impact_is_compared_with_two_ways_of_v_trace_on_each_game_of_minatar() -> None:
    found = points("minatar_impact", seeds=5)
    ways = ("told, IMPACT", "fast path, IMPACT")
    assert [(point.bindings[MINATAR], point.arm) for point in found] == list(product(GAMES, ways))
    assert {point.bindings[D] for point in found} == {"8"}
    assert Sweep().order == "points"


def test_a_fast_path_and_being_told_are_compared_alone_together_and_with_neither() -> None:
    ways = [("neither", False, False, "8"), ("told alone", False, True, "8")]
    ways += [("fast path alone", True, False, "8"), ("fast path alone", True, False, "2")]
    ways += [("fast and told", True, True, "8")]
    found = []
    for point in points("minatar_fast", seeds=5):
        fast, told = (point.bindings[f"create_actor_critic.{name}"] != "None" for name in ("fast", "action_window"))
        found.append((point.bindings[MINATAR], (point.arm, fast, told, point.bindings[D])))
    assert found == list(product(GAMES, ways))


def test_the_bigger_grid_of_minatar_has_more_delays_and_dqn() -> None:
    found = points("minatar_large", seeds=5)
    agents = {point.arm: {int(each.bindings[D]) for each in found if each.arm == point.arm} for point in found}
    assert {"DQN, sequential", "DQN, asynchronous", "V-trace, core at release", "V-trace, chunks"} <= agents.keys()
    for arm, delays in agents.items():
        assert delays - {0} == {1, 2, 4, 8, 16}
        assert (0 in delays) == arm.endswith("asynchronous")

"""Rewards and ends, against tables worked by hand from the published scripts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_wrappers.envs.gameboy.game_spec import Rule
from async_wrappers.envs.gameboy.games import Catch, Faints, Points


def parties(mine: Iterable[int], theirs: Iterable[int]) -> dict[str, int]:
    """Return the memory of a battle; slots that are not given are empty."""
    ram = dict.fromkeys(Faints.watched, 0)
    ram |= {f"my_hp{slot}": points for slot, points in enumerate(mine, 1)}
    return ram | {f"opp_hp{slot}": points for slot, points in enumerate(theirs, 1)}


def wild(battle: int, box: int = 0, owned: dict[int, int] | None = None) -> dict[str, int]:
    """Return the memory of an encounter in the wild; `owned` are bytes of the list of species, by number."""
    ram = {"InBattle": battle, "box_qnt": box, **dict.fromkeys(Catch.OWNED, 0)}
    return ram | {f"Owned{byte}": value for byte, value in (owned or {}).items()}


def score(points: int, state: int = 0) -> dict[str, int]:
    return {"score_bcd": points, "game_state": state, "level": 0}


def played(rule: Rule, memories: list[dict[str, int]]) -> list[tuple[float, bool]]:
    """Begin with the first memory and return what is paid for the others."""
    rule.begin(memories[0])
    return [rule.step(memory) for memory in memories[1:]]


BATTLES = {
    "nothing happens": ([([20], [15]), ([20], [15])], [(0, False)]),
    "damage alone pays nothing": ([([20], [15]), ([12], [3])], [(0, False)]),
    "healing alone pays nothing": ([([2], [3]), ([20], [15])], [(0, False)]),
    "the last opponent faints": ([([20], [15]), ([20], [0])], [(1, True)]),
    "one's own last faints": ([([20], [15]), ([0], [15])], [(-1, True)]),
    "the first of two opponents faints": ([([20], [15, 9]), ([20], [0, 9])], [(1, False)]),
    "the second of two of one's own faints": ([([20, 7], [15]), ([20, 0], [15])], [(-1, False)]),
    "both faint at once: one's own counts": ([([20, 7], [15, 9]), ([0, 7], [0, 9])], [(-1, False)]),
    "both last faint at once: one's own counts": ([([20], [15]), ([0], [0])], [(-1, True)]),
    "two of one's own faint at once: one counts": ([([20, 7, 5], [15]), ([0, 0, 5], [15])], [(-1, False)]),
    "two opponents faint at once: one counts": ([([20], [15, 9, 5]), ([20], [0, 0, 5])], [(1, False)]),
    "what was lost is not made up for": ([([20, 7], [15, 9])] + [([0, 7], [0, 9])] * 2, [(-1, False), (0, False)]),
    "one after the other": (
        [([20, 7], [15, 9]), ([20, 7], [0, 9]), ([0, 7], [0, 9]), ([0, 7], [0, 0])],
        [(1, False), (-1, False), (1, True)],
    ),
    "revived and fainted again": (
        [([20, 7], [15])] + [([0, 7], [15]), ([10, 7], [15])] * 2,
        [(-1, False), (0, False)] * 2,
    ),
    "empty slots are no events": ([([20, 0, 0], [15, 0]), ([20, 0, 0], [15, 0])], [(0, False)]),
    "the sixth slots": ([([1] * 6, [1] * 6), ([1] * 5, [1] * 6), ([1] * 5, [1] * 5)], [(-1, False), (1, False)]),
    "an empty enemy party is an end, as in the wild": ([([20], []), ([20], [])], [(0, True)]),
    "a stale hit point in an enemy's slot hides the end": ([([20], [15, 1]), ([20], [0, 1])], [(1, False)]),
    "beaten before the first frame: an end without pay": ([([20], [0]), ([20], [0])], [(0, True)]),
}


@pytest.mark.parametrize("case", BATTLES)
def test_battles_pay_and_end_as_published(case: str) -> None:
    memories, paid = BATTLES[case]
    assert played(Faints(), [parties(mine, theirs) for mine, theirs in memories]) == paid


CATCHES = {
    "the battle goes on": ([wild(1), wild(1)], [(0, False)]),
    "fled": ([wild(1), wild(0)], [(-1, True)]),
    "caught a new species": ([wild(1), wild(1, owned={2: 4}), wild(0, owned={2: 4})], [(1, False), (0, True)]),
    "caught and over on one frame": ([wild(1), wild(0, owned={2: 4})], [(1, True)]),
    "caught a known species, the party has room: not seen": (
        [wild(1, owned={2: 4}), wild(0, owned={2: 4})],
        [(-1, True)],
    ),
    "with a full party into the box": (
        [wild(1, box=3), wild(1, box=4), wild(0, box=4)],
        [(1, False), (0, True)],
    ),
    "new species into the box: paid once": (
        [wild(1), wild(1, owned={19: 1}), wild(1, box=1, owned={19: 1}), wild(0, box=1, owned={19: 1})],
        [(1, False), (0, False), (0, True)],
    ),
    "box and species on one frame: paid once": (
        [wild(1), wild(1, box=1, owned={1: 1}), wild(0, box=1, owned={1: 1})],
        [(1, False), (0, True)],
    ),
    "the box after the species": (
        [wild(1), wild(1, owned={1: 1}), wild(0, owned={1: 1}), wild(0, box=1, owned={1: 1})],
        [(1, False), (0, True), (0, True)],
    ),
    "two more in the box are no catch": ([wild(1), wild(1, box=2), wild(0, box=2)], [(0, False), (-1, True)]),
    "fewer in the box are no catch": ([wild(1, box=2), wild(1, box=1), wild(0, box=1)], [(0, False), (-1, True)]),
    "two bytes of the species change at once": ([wild(1), wild(1, owned={1: 1, 2: 1})], [(1, False)]),
    "a second species is not paid": ([wild(1), wild(1, owned={1: 1}), wild(1, owned={1: 3})], [(1, False), (0, False)]),
    "all fainted, then it ends": (
        [wild(1), wild(-1), wild(-1), wild(0)],
        [(-1, False), (0, False), (0, True)],
    ),
    "a trainer's battle becomes a wild one": ([wild(2), wild(1), wild(0)], [(-1, False), (-1, True)]),
    "caught, then all have fainted": (
        [wild(1), wild(1, owned={1: 1}), wild(-1, owned={1: 1}), wild(0, owned={1: 1})],
        [(1, False), (0, False), (0, True)],
    ),
    "begun before the battle": ([wild(0), wild(1), wild(0)], [(0, False), (-1, True)]),
    "begun where all have fainted: the second frame is the one compared with": (
        [wild(-1), wild(-1, box=5), wild(-1, box=6)],
        [(0, False), (1, False)],
    ),
}


@pytest.mark.parametrize("case", CATCHES)
def test_catching_pays_and_ends_as_published(case: str) -> None:
    memories, paid = CATCHES[case]
    assert played(Catch(), memories) == paid


POINTS = {
    "nothing": ([score(0), score(0)], [(0, False)]),
    "a line": ([score(0), score(40), score(40)], [(40, False), (0, False)]),
    "what was there before is not paid": ([score(500), score(501)], [(1, False)]),
    "the digits that the published map reads roll over": ([score(9_980), score(20)], [(-9_960, False)]),
    "the last frame is paid, too": ([score(0), score(12, state=13)], [(12, True)]),
    "every state but 0 is an end": ([score(0), *(score(0, state) for state in (1, 4, 13, -1))], [(0, True)] * 4),
}


@pytest.mark.parametrize("case", POINTS)
def test_tetris_pays_and_ends_as_published(case: str) -> None:
    memories, paid = POINTS[case]
    assert played(Points(), memories) == paid


@pytest.mark.parametrize(
    ("rule", "memories"),
    [
        (Faints(), [parties([20], [15]), parties([20], [0])]),
        (Catch(), [wild(1), wild(1, owned={1: 1})]),
        (Points(), [score(0), score(7)]),
    ],
)
def test_a_rule_begins_anew(rule: Any, memories: list[dict[str, int]]) -> None:
    assert played(rule, memories) == played(rule, memories)


HIT_POINTS = st.lists(st.sampled_from([0, 0, 1, 300]), min_size=6, max_size=6)


@given(st.lists(st.tuples(HIT_POINTS, HIT_POINTS), min_size=2, max_size=12))
def test_a_frame_of_battle_pays_as_a_search_through_all_slots_in_order_does(moments: list[Any]) -> None:
    memories = [parties(*moment) for moment in moments]
    for (mine, theirs), before, (reward, over) in zip(moments[1:], moments, played(Faints(), memories), strict=False):
        events = [-1 for now, then in zip(mine, before[0], strict=True) if now == 0 < then]
        events += [1 for now, then in zip(theirs, before[1], strict=True) if now == 0 < then]
        assert reward == (events[0] if events else 0)
        assert over == (sum(mine) == 0 or sum(theirs) == 0)


def catching_by_the_book(memories: list[dict[str, int]]) -> list[float]:
    """Return what the published rules pay, written without a class: each case in its order, on every frame."""
    owned, box, battle, caught, paid = None, -10, 0, 0, []
    for ram in memories:
        species = tuple(ram[name] for name in Catch.OWNED)
        if ram["box_qnt"] == box + 1:
            paid.append(1 - caught)
            owned, box, caught = species, ram["box_qnt"], 1
        elif owned not in (None, species) and not caught:
            paid.append(1)
            owned, box, caught = species, ram["box_qnt"], 1
        elif ram["InBattle"] < battle:
            paid.append(caught - 1)
            battle = ram["InBattle"]
        else:
            paid.append(0)
            owned, box, battle = species, ram["box_qnt"], ram["InBattle"]
    return paid[1:]


MOMENTS = st.tuples(st.sampled_from([-1, 0, 1, 1, 2]), st.integers(0, 3), st.sampled_from([{}, {1: 1}, {19: 2}]))


@given(st.lists(st.tuples(MOMENTS, st.integers(1, 3)), min_size=2))
def test_catching_pays_what_the_rules_say_one_by_one(stretches: list[Any]) -> None:
    memories = [wild(*moment) for moment, frames in stretches for _ in range(frames)]
    assert [reward for reward, _ in played(Catch(), memories)] == catching_by_the_book(memories)


@given(st.lists(MOMENTS, min_size=2))
def test_an_episode_of_catching_pays_one_catch_at_most(moments: list[Any]) -> None:
    rewards = [reward for reward, _ in played(Catch(), [wild(*moment) for moment in moments])]
    assert rewards.count(1) <= 1
    assert set(rewards) <= {-1, 0, 1}
    if 1 in rewards:  # after a catch no end of a battle costs anything
        assert -1 not in rewards[rewards.index(1) :]

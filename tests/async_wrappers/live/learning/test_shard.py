"""Learners' shares of the transitions: nothing twice, nothing lost that was kept, and no false successor."""

from __future__ import annotations

import itertools
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from async_wrappers.live.learning import shard as share_module
from async_wrappers.live.learning.shard import TransitionShard
from async_wrappers.live.memory.block import Block
from async_wrappers.live.memory.journal import Journal
from async_wrappers.live.transitions import Transitions

SPACE = gym.spaces.Box(0, 10**6, (), np.int64)
ACTION = gym.spaces.Discrete(5)
END = st.sampled_from(["terminal", "truncated", "abandoned"])


def make_journal(capacity: int) -> Journal:
    block = Block(shared=False)
    block.resize(Journal.size(SPACE, ACTION, capacity))
    journal = Journal(block, SPACE, ACTION, capacity)
    journal.begin_writing()
    return journal


def play(journal: Journal, first: int, decisions: int, end: str) -> int:
    """An episode whose observations count on from `first`; return the number after its last one."""
    transitions = Transitions(journal)
    for frame in range(decisions):
        transitions.apply(first + frame, frame % 5, frame)
        transitions.reward(1.0)
    if end == "abandoned":
        transitions.abandon()
    else:
        transitions.end(end == "terminal", first + decisions, decisions)
    return first + decisions + 1


def drain(share: TransitionShard) -> list[dict[str, Any]]:
    seen: list[dict[str, Any]] = []
    while (transition := share.next()) is not None:
        seen.append(transition)
    return seen


EPISODES = st.lists(st.tuples(st.integers(1, 9), END), max_size=8)


@settings(max_examples=200, deadline=None, database=None)
@given(learners=st.integers(1, 3), run=st.integers(1, 5), episodes=EPISODES, often=st.booleans())
def test_every_transition_goes_to_one_learner_whole_and_what_follows_it_is_its_successor(
    learners: int, run: int, episodes: list[tuple[int, str]], often: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(share_module, "RUN_LENGTH", run)
        journal = make_journal(1000)
        shares = [TransitionShard(journal, number, learners) for number in range(learners)]
        seen: list[list[dict[str, Any]]] = [[] for _ in shares]
        first = 0
        for decisions, end in episodes:
            first = play(journal, first, decisions, end)
            if often:
                for share, transitions in zip(shares, seen, strict=True):
                    transitions += drain(share)
        play(journal, first, 1, "terminal")  # what stands before it is no longer held back
        for share, transitions in zip(shares, seen, strict=True):
            transitions += drain(share)
    everything = sorted((t for transitions in seen for t in transitions), key=lambda t: int(t["observation"]))
    complete = [decisions - (end == "abandoned") for decisions, end in episodes]
    assert len(everything) == sum(complete) + 1
    assert len({int(t["observation"]) for t in everything}) == len(everything)
    assert all(int(t["next_observation"]) == int(t["observation"]) + 1 for t in everything)
    for transitions in seen:
        for this, following in itertools.pairwise(transitions):
            if not (this["terminal"] or this["truncated"]):
                assert int(following["observation"]) == int(this["next_observation"])
        if transitions:
            assert transitions[-1]["terminal"] or transitions[-1]["truncated"]


def test_a_share_that_falls_behind_marks_the_gap() -> None:
    journal = make_journal(8)
    share = TransitionShard(journal, 0, 1)
    transitions = Transitions(journal)
    for frame in range(4):
        transitions.apply(frame, 0, frame)
    before = drain(share)
    for frame in range(4, 40):
        transitions.apply(frame, 0, frame)
    after = drain(share)
    assert [int(t["observation"]) for t in before] == [0, 1]
    assert int(after[0]["observation"]) == 2
    assert after[0]["truncated"]
    assert int(after[1]["observation"]) > 3
    assert not any(t["truncated"] for t in [*before, *after[1:]])


@pytest.mark.parametrize("end", ["running", "abandoned", "terminal"])
def test_what_remains_is_all_that_the_journal_holds_and_ends_there(end: str) -> None:
    journal = make_journal(64)
    share = TransitionShard(journal, 0, 1)
    transitions = Transitions(journal)
    for frame in range(5):
        transitions.apply(frame, 0, frame)
        transitions.reward(1.0)
    if end == "abandoned":
        transitions.abandon()
    elif end == "terminal":
        transitions.end(True, 5, 5)
    remaining = list(share.remaining())
    complete = 5 if end == "terminal" else 4  # nobody knows what the fifth led to
    assert [int(each["observation"]) for each in remaining] == list(range(complete))
    assert [each["truncated"] for each in remaining] == [False] * (complete - 1) + [end != "terminal"]
    assert int(remaining[-1]["next_observation"]) == complete
    assert list(share.remaining()) == []
    if end == "running":
        transitions.end(True, 5, 5)
    play(journal, 100, 3, "terminal")
    assert [int(each["observation"]) for each in drain(share)] == ([4] if end == "running" else []) + [100, 101, 102]


def test_one_learner_owns_everything_and_several_take_runs_in_turn() -> None:
    journal = make_journal(1000)
    shares = [TransitionShard(journal, number, 2) for number in range(2)]
    alone = TransitionShard(journal, 0, 1)
    play(journal, 0, 3 * share_module.RUN_LENGTH, "terminal")
    assert [int(t["observation"]) for t in drain(alone)] == list(range(3 * share_module.RUN_LENGTH))
    first, second = (drain(share) for share in shares)
    run = share_module.RUN_LENGTH
    assert [int(t["observation"]) for t in first] == [*range(run), *range(2 * run, 3 * run)]
    assert [int(t["observation"]) for t in second] == list(range(run, 2 * run))
    assert [t["truncated"] for t in first] == [False] * (run - 1) + [True] + [False] * run
    assert second[-1]["truncated"]

"""Learners' shares of the transitions: nothing twice, nothing lost that was kept, and no false successor."""

from __future__ import annotations

import itertools
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from async_wrappers.fleet.block import Block
from async_wrappers.live.memory.journal import Journal, TransitionReader
from tests.worlds.journal_writer import JournalWriter

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
    transitions = JournalWriter(journal)
    for frame in range(decisions):
        transitions.land(first + frame, frame % 5, frame)
        transitions.ledger.reward += 1.0
    if end == "abandoned":
        journal.abandon()
    else:
        transitions.end(end == "terminal", first + decisions, decisions)
    return first + decisions + 1


def drain(reader: TransitionReader) -> list[dict[str, Any]]:
    seen: list[dict[str, Any]] = []
    while (transition := reader.next()) is not None:
        seen.append(transition)
    return seen


EPISODES = st.lists(st.tuples(st.integers(1, 9), END), max_size=8)


@settings(max_examples=100, deadline=None, database=None)
@given(learners=st.integers(1, 3), episodes=EPISODES, often=st.booleans())
def test_every_learner_observes_every_transition_and_what_follows_it_is_its_successor(
    learners: int, episodes: list[tuple[int, str]], often: bool
) -> None:
    journal = make_journal(1000)
    readers = [TransitionReader(journal) for _ in range(learners)]
    seen: list[list[dict[str, Any]]] = [[] for _ in readers]
    first = 0
    for decisions, end in episodes:
        first = play(journal, first, decisions, end)
        if often:
            for reader, transitions in zip(readers, seen, strict=True):
                transitions += drain(reader)
    play(journal, first, 1, "terminal")  # what stands before it is no longer held back
    complete = sum(decisions - (end == "abandoned") for decisions, end in episodes) + 1
    for reader, transitions in zip(readers, seen, strict=True):
        transitions += drain(reader)
        observed = [int(transition["observation"]) for transition in transitions]
        assert observed == sorted(set(observed))
        assert len(observed) == complete
        assert all(int(t["next_observation"]) == int(t["observation"]) + 1 for t in transitions)
        for this, following in itertools.pairwise(transitions):
            if not (this["terminal"] or this["truncated"]):
                assert int(following["observation"]) == int(this["next_observation"])
        assert transitions[-1]["terminal"] or transitions[-1]["truncated"]


def test_a_reader_that_falls_behind_marks_the_gap() -> None:
    journal = make_journal(8)
    reader = TransitionReader(journal)
    transitions = JournalWriter(journal)
    for frame in range(4):
        transitions.land(frame, 0, frame)
    before = drain(reader)
    for frame in range(4, 40):
        transitions.land(frame, 0, frame)
    after = drain(reader)
    assert [int(t["observation"]) for t in before] == [0, 1]
    assert int(after[0]["observation"]) == 2
    assert after[0]["truncated"]
    assert int(after[1]["observation"]) > 3
    assert not any(t["truncated"] for t in [*before, *after[1:]])


@pytest.mark.parametrize("end", ["running", "abandoned", "terminal"])
def test_what_remains_is_all_that_the_journal_holds_and_ends_there(end: str) -> None:
    journal = make_journal(64)
    reader = TransitionReader(journal)
    transitions = JournalWriter(journal)
    for frame in range(5):
        transitions.land(frame, 0, frame)
        transitions.ledger.reward += 1.0
    if end == "abandoned":
        journal.abandon()
    elif end == "terminal":
        transitions.end(True, 5, 5)
    remaining = list(reader.remaining())
    complete = 5 if end == "terminal" else 4  # nobody knows what the fifth led to
    assert [int(each["observation"]) for each in remaining] == list(range(complete))
    assert [each["truncated"] for each in remaining] == [False] * (complete - 1) + [end != "terminal"]
    assert int(remaining[-1]["next_observation"]) == complete
    assert list(reader.remaining()) == []
    if end == "running":
        transitions.end(True, 5, 5)
    play(journal, 100, 3, "terminal")
    assert [int(each["observation"]) for each in drain(reader)] == ([4] if end == "running" else []) + [100, 101, 102]

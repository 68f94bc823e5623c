"""The journal against a plain list of transitions, and its reader against a writer that goes on, dies or returns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from async_wrappers.fleet.block import Block
from async_wrappers.live.memory.journal import Journal, Numbered
from tests.worlds import torn_reads
from tests.worlds.journal_writer import JournalWriter
from tests.worlds.noticed_block import NoticedBlock

OBSERVATION = spaces.Dict({"number": spaces.Discrete(10**9), "picture": spaces.Box(0, 10**9, (3,), np.int64)})
ACTION = spaces.Box(-1, 1, (2,))
SMALLEST = 3


def journals(capacity: int, count: int = 1) -> list[Journal]:
    block = block_of(capacity)
    made = [Journal(block, OBSERVATION, ACTION, capacity) for _ in range(count)]
    made[0].begin_writing()
    return made


def block_of(capacity: int) -> Block:
    block = Block(shared=False)
    block.resize(Journal.size(OBSERVATION, ACTION, capacity))
    return block


def saw(number: int) -> dict[str, Any]:
    return {"number": number, "picture": np.full(3, number)}


def did(number: int) -> Any:
    return np.array([number % 7, number % 3], np.float32) / 10


def plain(transition: dict[str, Any]) -> dict[str, Any]:
    """Return a transition with numbers for observations and actions, each of which must be of one piece."""
    seen = {}
    for name in ("observation", "next_observation"):
        observation = transition[name]
        assert (observation["picture"] == observation["number"]).all()
        seen[name] = int(observation["number"])
    assert np.array_equal(transition["action"], did(seen["observation"]))
    return {**{name: value for name, value in transition.items() if name != "action"}, **seen}


def read_all(journal: Journal, position: int = 0) -> list[Numbered]:
    found: list[Numbered] = []
    while True:
        following, numbered = journal.read(position)
        if following == position:
            return found
        if numbered is not None:
            found.append(numbered)
        position = following


class JournalAgainstList(RuleBasedStateMachine):
    """Frames of episodes go in as the environment loop hands them on; transitions come out as a list says.

    The list is made from the frames alone, by rule 3 of a schedule.
    """

    @initialize(capacity=st.integers(SMALLEST, 12))
    def make(self, capacity: int) -> None:
        self.capacity = capacity
        self.block = block_of(capacity)
        self.writer, *self.readers = (Journal(self.block, OBSERVATION, ACTION, capacity) for _ in range(3))
        self.writer.begin_writing()
        self.positions = [0, 0]
        self.got: list[list[Numbered]] = [[], []]
        self.expected: list[dict[str, Any]] = []  # by number
        self.seen = 0
        self.begin()

    def begin(self) -> None:
        self.transitions = JournalWriter(self.writer)
        self.frame = 0
        self.rewards: list[float] = []
        self.decisions: list[tuple[int, int]] = []  # (observation, effect) of this episode

    def complete(self, next_observation: int, terminal: bool = False, truncated: bool = False) -> None:
        """The newest decision of the list but one has its outcome, or the newest at an end."""
        j = len(self.decisions) - (1 if terminal or truncated else 2)
        observation, effect = self.decisions[j]
        until = self.frame if terminal or truncated else self.decisions[j + 1][1]
        self.expected.append(
            {
                "observation": observation,
                "reward": sum(self.rewards[0 if j == 0 else effect : until]),
                "interval": until - effect,
                "terminal": terminal,
                "truncated": truncated,
                "next_observation": next_observation,
            }
        )

    @rule(applies=st.booleans(), reward=st.integers(-3, 3))
    def play(self, applies: bool, reward: int) -> None:
        if applies:
            self.seen += 1
            self.decisions.append((self.seen, self.frame))
            self.transitions.land(saw(self.seen), did(self.seen), self.frame)
            if len(self.decisions) > 1:
                self.complete(self.seen)
        self.rewards.append(reward)
        self.transitions.ledger.reward += reward
        self.frame += 1

    @precondition(lambda self: self.frame)
    @rule(terminal=st.booleans())
    def end(self, terminal: bool) -> None:
        self.seen += 1
        self.transitions.end(terminal, saw(self.seen), self.frame)
        if self.decisions:
            self.complete(self.seen, terminal, not terminal)
        self.begin()

    @rule()
    def abandon(self) -> None:
        self.writer.abandon()
        self.begin()

    @rule()
    def restart_the_writer(self) -> None:
        self.writer = Journal(self.block, OBSERVATION, ACTION, self.capacity)
        self.writer.begin_writing()
        self.begin()

    @rule(reader=st.integers(0, 1), most=st.integers(1, 9))
    def read(self, reader: int, most: int) -> None:
        for _ in range(most):
            before = self.positions[reader]
            position, numbered = self.readers[reader].read(before)
            self.positions[reader] = position
            if position == before:
                assert numbered is None
                break
            assert position > before
            if numbered is not None:
                self.got[reader].append(numbered)
                assert plain(numbered.transition) == self.expected[numbered.number]

    @invariant()
    def numbers_go_up(self) -> None:
        for got in getattr(self, "got", []):
            numbers = [numbered.number for numbered in got]
            assert numbers == sorted(set(numbers))

    @invariant()
    def the_newest_transitions_can_be_read(self) -> None:
        if hasattr(self, "expected"):
            found = read_all(self.readers[0])
            assert [plain(each.transition) for each in found] == self.expected[len(self.expected) - len(found) :]
            assert [each.number for each in found] == list(range(len(self.expected)))[len(self.expected) - len(found) :]
            assert len(found) >= min(len(self.expected), (self.capacity - 2) // 2)


JournalAgainstList.TestCase.settings = settings(max_examples=50, stateful_step_count=40, deadline=None, database=None)
test_a_journal_tells_what_a_list_of_the_frames_says = JournalAgainstList.TestCase


@pytest.mark.parametrize("capacity", [-1, 0, 1, 2])
def test_a_journal_too_small_to_be_read_is_refused(capacity: int) -> None:
    with pytest.raises(ValueError, match=f"^journal must be >= 3 entries, got {capacity}$"):
        journals(capacity)


def test_the_smallest_journal_holds_the_newest_transition() -> None:
    writer, reader = journals(SMALLEST, 2)
    writer.apply(saw(0), did(0))
    for number in range(1, 20):
        writer.apply(saw(number), did(number))
        writer.close(1.0, 2)
        (only,) = read_all(reader, reader.oldest())
        assert only.number == number - 1
        assert plain(only.transition)["next_observation"] == number


def test_an_entry_that_is_overwritten_while_it_is_read_is_skipped() -> None:
    block, slow = block_of(4), [True]

    def overtake(_: str, field: Any) -> None:
        if slow[0] and isinstance(field, str) and field == "action":  # the observation has been read
            slow[0] = False
            for number in range(3, 9):
                writer.apply(saw(number), did(number))
                writer.close(0.0, 1)

    writer, reader = (Journal(each, OBSERVATION, ACTION, 4) for each in (block, NoticedBlock(block, overtake)))
    writer.begin_writing()
    for number in range(3):
        writer.apply(saw(number), did(number))
        if number:
            writer.close(0.0, 1)
    assert reader.read(0) == (reader.oldest(), None)
    assert not slow[0]
    assert [each.number for each in read_all(reader, reader.oldest())] == [6, 7]


def test_the_next_observation_of_a_transition_outlives_the_abandoning_of_its_episode() -> None:
    writer, reader = journals(8, 2)
    for number in range(2):
        writer.apply(saw(number), did(number))
    writer.close(1.0, 1)
    writer.abandon()
    writer.apply(saw(7), did(7))  # of another episode
    (only,) = read_all(reader)
    assert plain(only.transition)["next_observation"] == 1


class Killed(Exception):
    """The writer's end, in the middle of whatever it did."""


@pytest.mark.parametrize("stores", range(80))
def test_a_writer_that_died_at_any_store_is_followed_by_one_that_makes_no_wrong_transition(stores: int) -> None:
    block = Block(shared=False)
    block.resize(Journal.size(OBSERVATION, ACTION, 16))
    fuse = [10**6]

    def kill(what: str, _: Any) -> None:
        if what == "store":
            if not fuse[0]:
                raise Killed
            fuse[0] -= 1

    blocks = NoticedBlock(block, kill), block, block
    writer, follower, reader = (Journal(each, OBSERVATION, ACTION, 16) for each in blocks)
    writer.begin_writing()
    fuse[0] = stores
    seen = 0

    def play(journal: Journal, length: int) -> None:
        nonlocal seen
        for k in range(length):
            seen += 1
            journal.apply(saw(seen), did(seen))
            if k:
                journal.close(0.0, 1)
        seen += 1
        journal.end(0.0, 1, terminal=True, final=saw(seen))

    with pytest.raises(Killed):
        for length in (2, 1, 3, 2, 2):
            play(writer, length)
    complete = len(read_all(reader))
    seen += 100
    follower.begin_writing()
    play(follower, 2)
    found = read_all(reader)
    assert len(found) == complete + 2
    assert [each.number for each in found] == list(range(complete + 2))
    for each in found:
        transition = plain(each.transition)
        assert transition["next_observation"] == transition["observation"] + 1


def test_no_process_reads_a_torn_transition_or_one_out_of_order() -> None:
    counts, _ = torn_reads.transitions(20_000, readers=2)
    assert counts.whole > 0
    assert (counts.torn, counts.disordered) == (0, 0)

"""Learners beside the game: which transitions they see, when they update, and when workers see what they learnt."""

from __future__ import annotations

import fcntl
import math
import multiprocessing
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from multiprocessing import connection
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.learning.making import make_learner
from async_wrappers.agents.networks.q_network import create_network
from async_wrappers.agents.networks.torsos import MLPTorso
from async_wrappers.fleet.block import Block
from async_wrappers.live.backends.mains import run_learner
from async_wrappers.live.learning import learner as learning_module
from async_wrappers.live.learning.learner import LearnerLoop
from async_wrappers.live.learning.learner_state import read_state, state_file
from async_wrappers.live.memory import weights as weights_module
from async_wrappers.live.memory.exchange import Controls
from async_wrappers.live.memory.journal import Journal
from async_wrappers.live.memory.layout import SharedLayout, SharedMemory
from async_wrappers.live.memory.weights import WeightsLayout
from tests.worlds.learners import Counting

SPACE, ACTION = spaces.Discrete(1000), spaces.Discrete(2)
CAPACITY, WORKERS = 64, 2
PATIENCE = 100_000_000  # nanoseconds


class Seeing(Counting):
    """A learner whose only weight is how often weights were stepped; it keeps the observations of transitions."""

    def __init__(self, length: int = 1) -> None:
        super().__init__(length)
        self.seen: list[int] = []

    def observe(self, transition: Mapping[str, Any]) -> None:
        self.seen.append(int(transition["observation"]))


class Targeted(Seeing):
    """One that has a target besides, which is to be copied every so many updates of all learners.

    Since the weight counts the updates of all learners, a copy says of how many updates the weights were.
    """

    PERIOD = 5

    def __init__(self) -> None:
        super().__init__()
        self.updates = self.of_all = 0
        self.copies: list[int] = []

    def note_updates(self, own: int, of_all: int) -> None:
        due = of_all // self.PERIOD > self.of_all // self.PERIOD
        self.updates, self.of_all = own, of_all
        if due:
            self.copies.append(int(self.count[0]))

    def apply(self, gradients: float) -> Mapping[str, float]:
        scalars = super().apply(gradients)
        self.note_updates(self.updates + 1, self.of_all + 1)
        return scalars

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "updates": self.updates, "of_all": self.of_all}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.updates, self.of_all = state["updates"], state["of_all"]


class Time:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 0
        self.slept: list[float] = []

    def monotonic_ns(self) -> int:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += round(seconds * 1e9)


class Room:
    """All that learners share, and one learner for each number, in this process."""

    def __init__(
        self,
        learners: int = 1,
        ratio: float | None = None,
        shared: bool = False,
        length: int = 1,
        make: Callable[[int], Any] | None = None,
    ) -> None:
        make = make or (lambda number: Seeing(length))
        self.learners = [make(number) for number in range(learners)]
        self.memory = SharedMemory(*(Block(shared or learners > 1) for _ in range(7)))
        layout = SharedLayout(SPACE, ACTION, WORKERS, learners, CAPACITY)
        layout.resize(self.memory)
        self.layout = layout.with_weights(WeightsLayout.of(self.learners[0].weights()), self.memory)
        self.controls = self.layout.controls(self.memory)
        self.controls.granted, self.controls.learning, self.controls.patience = -1, True, PATIENCE
        journal, board = self.layout.journal(self.memory), self.layout.board(self.memory)
        assert journal is not None
        assert board is not None
        self.journal, self.board = journal, board
        self.journal.begin_writing()
        self.ratio = ratio
        self.learnings = [self.learning(number, learner) for number, learner in enumerate(self.learners)]
        self.seen = 0

    def learning(self, number: int, learner: Any) -> LearnerLoop:
        return LearnerLoop(number, learner, self.layout, self.memory, self.ratio)

    def play(self, decisions: int) -> None:
        """An episode of so many decisions; observations count over all, the final ones left out."""
        for k in range(decisions):
            self.journal.apply(self.seen, 0)
            if k:
                self.journal.close(1.0, 1)
            self.seen += 1
        self.journal.end(1.0, 1, terminal=True, final=999)

    def published(self) -> float:
        """Return the weight that workers see."""
        return float(self.board.snapshot()["count"][0])


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    clock = Time()
    monkeypatch.setattr(learning_module, "time", clock)
    monkeypatch.setattr(weights_module, "time", clock)
    return clock


def test_a_learner_that_follows_another_observes_what_the_journal_still_holds(time: Time) -> None:
    room = Room()
    for _ in range(20):
        room.play(6)
    follower = Seeing()
    room.learning(0, follower).turn()
    assert follower.seen[-1] == 119
    assert follower.seen == list(range(follower.seen[0], 120))
    assert len(follower.seen) > CAPACITY // 2


@settings(max_examples=50, deadline=None, database=None)
@given(ratio=st.sampled_from([0.25, 0.5, 1.0, 1.5, 4.0]), episodes=st.lists(st.integers(1, 6), max_size=5))
def test_no_more_updates_are_made_than_transitions_allow_and_all_of_them(ratio: float, episodes: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learning_module, "time", Time())
        room = Room(ratio=ratio)
        room.learnings[0].publish_first()
        observed = 0
        for decisions in [0, *episodes]:
            if decisions:
                room.play(decisions)
            observed += decisions
            for _ in range(40):
                room.learnings[0].turn()
                assert room.controls.updates[0] <= math.ceil(ratio * observed)
            assert room.controls.updates[0] == math.ceil(ratio * observed)
        assert room.published() == room.controls.updates[0]


def test_without_a_ratio_every_turn_is_an_update_as_long_as_learning_is_on_and_the_learner_is_ready(time: Time) -> None:
    room = Room()
    (learner,), (learning,) = room.learners, room.learnings
    learning.publish_first()
    for on, ready, updates in ((True, True, 1), (False, True, 1), (True, False, 1), (True, True, 2)):
        room.controls.learning, learner.ready = on, ready
        learning.turn()
        assert room.controls.updates[0] == updates
        assert room.published() == updates
    assert learning.scalars == {"count": 2.0}
    assert len(learning.steps) == 2
    assert time.slept == [0.001, 0.001]


class OfFour(Seeing):
    """One that has room for four transitions, and learns from all of them at once."""

    @property
    def waits(self) -> bool:
        return len(self.seen) - 4 * int(self.count[0]) >= 4

    def observe(self, transition: Mapping[str, Any]) -> None:
        assert not self.waits
        super().observe(transition)


def test_transitions_wait_in_the_journal_for_a_learner_that_has_no_room(time: Time) -> None:
    room = Room(make=lambda number: OfFour())
    (learner,), (learning,) = room.learners, room.learnings
    learning.publish_first()
    learner.ready = False
    room.play(10)
    for _ in range(3):  # an update goes on
        learning.turn()
        assert learner.seen == [0, 1, 2, 3]
    learner.ready = True
    for last in (3, 7, 9):
        learning.turn()
        assert learner.seen == list(range(last + 1))
    assert room.controls.updates[0] == 3


def test_what_is_learnt_is_published_at_once_while_nobody_reads_the_other_copy(time: Time) -> None:
    room = Room()
    (learning,) = room.learnings
    learning.publish_first()
    assert (room.board.version, room.published()) == (1, 0)
    learning.publish_first()
    assert room.board.version == 1
    learning.turn()
    assert (room.board.version, room.published()) == (2, 1)


def test_publication_waits_for_a_reader_and_learning_goes_on(time: Time) -> None:
    room = Room()
    (learning,) = room.learnings
    learning.publish_first()
    reading = room.board.begin_reading(1)
    learning.turn()  # version 2: nobody reads that copy
    for _ in range(3):
        learning.turn()
        assert room.board.version == 2
    assert room.board.end_reading(1, reading)
    learning.turn()
    assert (room.board.version, room.published()) == (3, 5)


def test_a_reader_slower_than_the_patience_is_overtaken_and_finds_out(time: Time) -> None:
    room = Room()
    (learning,) = room.learnings
    learning.publish_first()
    reading = room.board.begin_reading(0)
    learning.turn()
    learning.turn()
    time.now += PATIENCE
    learning.turn()
    assert room.board.version == 2
    time.now += 1
    learning.turn()
    assert (room.board.version, room.published()) == (3, 4)
    assert not room.board.end_reading(0, reading)


def test_a_learner_that_has_nothing_to_do_but_wait_for_a_reader_rests(time: Time) -> None:
    room = Room(ratio=1)
    (learning,) = room.learnings
    learning.publish_first()
    room.play(2)
    room.board.begin_reading(0)
    learning.turn()
    learning.turn()
    assert time.slept == []
    turns = 0
    while room.board.version == 2:
        learning.turn()
        turns += 1
    assert turns == pytest.approx(PATIENCE / 1e6, abs=2)  # a millisecond each
    assert room.published() == 2


def test_of_granted_turns_each_is_one_update_and_counts_when_it_is_published(time: Time) -> None:
    room = Room()
    (learning,) = room.learnings
    learning.publish_first()
    room.controls.granted = 0
    learning.turn()
    assert (room.controls.updates[0], room.controls.turns[0]) == (0, 0)
    room.controls.granted = 2
    for turns in (1, 2, 2, 2):
        learning.turn()
        assert (room.controls.updates[0], room.controls.turns[0]) == (turns, turns)
    reading = room.board.begin_reading(0)
    room.controls.granted = 4
    learning.turn()
    assert room.controls.turns[0] == 3
    for _ in range(3):  # the copy is being read: the fourth turn is not over
        learning.turn()
        assert (room.controls.updates[0], room.controls.turns[0]) == (4, 3)
    assert room.board.end_reading(0, reading)
    learning.turn()
    assert (room.controls.updates[0], room.controls.turns[0], room.published()) == (4, 4, 4)


def test_a_turn_that_is_granted_while_the_learner_rests_is_used_all_the_same(
    time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = Room()
    (learning,) = room.learnings
    learning.publish_first()
    room.controls.granted = 0

    def sleep(seconds: float) -> None:
        room.controls.granted += 1

    monkeypatch.setattr(time, "sleep", sleep)
    for _ in range(10):
        learning.turn()
    assert room.controls.granted == 5  # every other turn rests
    assert (room.controls.updates[0], room.controls.turns[0]) == (5, 5)


def test_a_granted_turn_passes_when_there_is_nothing_to_learn_from(time: Time) -> None:
    room = Room()
    (learner,), (learning,) = room.learners, room.learnings
    learning.publish_first()
    learner.ready, room.controls.granted = False, 1
    learning.turn()
    assert (room.controls.updates[0], room.controls.turns[0]) == (0, 1)


def test_several_learners_step_the_newest_weights_and_each_publishes_them(time: Time) -> None:
    room = Room(learners=3)
    for learning in room.learnings:
        learning.publish_first()
    assert room.board.version == 1
    for k in range(12):
        room.learnings[k % 3].turn()
        assert room.published() == k + 1
    assert room.controls.updates.tolist() == [4, 4, 4]


def test_a_learner_that_waited_for_the_lock_looks_again_whether_it_may_publish(
    time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile another one flipped the copies: what was idle is read, and the readers have had no time."""
    room = Room(learners=2)
    for learning in room.learnings:
        learning.publish_first()
    first, second = room.learnings
    reading = room.board.begin_reading(0)
    second.begin_update()
    second.end_update()
    room.controls.learning = False  # a turn only publishes
    lock, flips = fcntl.lockf, [first.turn]

    def waits(*arguments: Any) -> None:
        if flips:
            flip = flips.pop()
            room.controls.learning = True
            flip()
            room.controls.learning = False
        lock(*arguments)

    monkeypatch.setattr(fcntl, "lockf", waits)
    second.turn()
    assert room.board.version == 2
    assert room.board.end_reading(0, reading)
    second.turn()
    assert (room.board.version, room.published()) == (3, 2)


def test_what_a_learner_applied_before_it_died_is_published_by_the_next(time: Time) -> None:
    room = Room(learners=2)
    for learning in room.learnings:
        learning.publish_first()
    room.learnings[0].begin_update()
    room.learnings[0].end_update()  # and dies before it publishes
    assert room.published() == 0
    room.learnings[1].turn()
    assert room.published() == 2


def test_the_first_update_of_a_later_learner_is_followed_by_a_pause_of_its_share(
    time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = Room(learners=4)
    for number, learning in enumerate(room.learnings):
        learning.publish_first()
        monkeypatch.setattr(
            room.learners[number], "gradients", lambda: time.__setattr__("now", time.now + 400_000_000) or 1.0
        )
        time.slept.clear()
        learning.turn()
        learning.turn()
        assert time.slept == ([number * 0.1] if number else [])


def test_restored_weights_are_published_even_over_newer_ones(time: Time) -> None:
    for learners in (1, 2):
        room = Room(learners)
        for learning in room.learnings:
            learning.publish_first()
        for _ in range(3):
            room.learnings[0].turn()
        room.learners[0].load_state_dict({"count": np.array([50.0])})
        room.learnings[0].go_on()
        assert room.published() == 50
        room.learnings[-1].turn()
        assert room.published() == 51


@settings(max_examples=50, deadline=None, database=None)
@given(turns=st.lists(st.integers(0, 2), max_size=60))
def test_what_falls_due_by_updates_falls_due_by_those_of_all_learners(turns: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learning_module, "time", Time())
        room = Room(learners=3, make=lambda number: Targeted())
        for learning in room.learnings:
            learning.publish_first()
        expected: list[list[int]] = [[], [], []]  # by learner, of how many updates the weights are that it copies
        last = [0, 0, 0]  # how many updates there were when it had its last turn
        for before, number in enumerate(turns):
            room.learnings[number].turn()
            if before // 5 > last[number] // 5:  # the others passed one or several multiples of the period
                expected[number].append(before)
            if (before + 1) % 5 == 0:  # its own update does
                expected[number].append(before + 1)
            last[number] = before + 1
            assert [learner.copies for learner in room.learners] == expected
        assert [learner.updates for learner in room.learners] == [turns.count(number) for number in range(3)]
        for learning in room.learnings:
            learning.catch_up()
        assert {learner.of_all for learner in room.learners} == {len(turns)}


def test_dqn_learners_copy_their_targets_by_the_updates_of_all_and_miss_none(time: Time) -> None:
    """Three learners and a period of 6: with 6 updates of its own each, one would copy after 18 of all."""
    parts = DQN(
        SPACE,
        ACTION,
        stack_size=1,
        network=partial(create_network, torso=partial(MLPTorso, hidden=(4,))),
        update_period=1,
        target_update_period=6,
        min_replay_history=0,
        replay_capacity=300,
        batch_size=4,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        device="cpu",
    )
    room = Room(learners=3, make=lambda number: make_learner(parts, number, 3))
    for learning in room.learnings:
        learning.publish_first()
    for learner, transition in ((learner, k) for learner in room.learners for k in range(20)):
        learner.observe(
            {
                "observation": transition,
                "action": transition % 2,
                "reward": 1.0,
                "interval": 1,
                "terminal": transition == 19,
                "truncated": False,
                "next_observation": transition + 1,
            }
        )

    def is_newest(learner: Any) -> bool:
        newest = room.layout.shared(room.memory).snapshot()  # type: ignore[union-attr]
        return all(torch.equal(newest[name], tensor) for name, tensor in learner.target.state_dict().items())

    copies: list[tuple[int, int]] = []  # (updates of all, learner)
    for turn in range(36):
        number = turn % 3
        before = [{name: t.clone() for name, t in learner.target.state_dict().items()} for learner in room.learners]
        room.learnings[number].turn()
        for other, learner in enumerate(room.learners):
            if any(not torch.equal(before[other][name], t) for name, t in learner.target.state_dict().items()):
                copies.append((turn + 1, other))
                assert is_newest(learner) == ((turn + 1) % 6 == 0)  # else its own update follows the copy
    in_turn = [(due + later, number) for due in range(6, 37, 6) for later, number in ((0, 2), (1, 0), (2, 1))]
    assert copies == in_turn[:-2]
    assert [learner.updates for learner in room.learners] == [12, 12, 12]


def test_of_one_learner_what_falls_due_by_updates_falls_due_by_its_own(time: Time) -> None:
    room = Room(make=lambda number: Targeted())
    (learner,), (learning,) = room.learners, room.learnings
    learning.publish_first()
    for _ in range(12):
        learning.turn()
    assert learner.copies == [5, 10]


def test_restored_learners_count_on_together(time: Time) -> None:
    saved, room = (Room(learners=3, make=lambda number: Targeted()) for _ in range(2))
    for learning in (*saved.learnings, *room.learnings):
        learning.publish_first()
    for number in (0, 0, 0, 1, 1, 1, 2, 2, 2):  # 9 updates; learner 0 knows of 3, learner 1 of 6
        saved.learnings[number].turn()
    for learning in saved.learnings:
        learning.catch_up()
    for restored, learner, learning in zip(room.learners, saved.learners, room.learnings, strict=True):
        restored.load_state_dict(learner.state_dict())
        learning.go_on()
    assert room.controls.updates.tolist() == [3, 3, 3]
    room.learnings[1].turn()
    assert room.learners[1].copies == [10]
    room.learnings[0].turn()
    assert room.learners[0].copies == [10]


# Between processes.

LARGE = 50_000  # values, so that a step takes long enough for two to meet


def _learn(
    room_of: tuple[SharedMemory, SharedLayout], number: int, updates: int, dies: bool, pipe: connection.Connection
) -> None:
    memory, shape = room_of
    learner = Seeing(LARGE)
    learning = LearnerLoop(number, learner, shape, memory)
    if dies:
        learner.apply = lambda gradients: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign]
    pipe.send(None)
    pipe.recv()
    for _ in range(updates):
        learning.begin_update()
        learning.end_update()


def _start(room: Room, number: int, updates: int, dies: bool = False) -> tuple[Any, connection.Connection]:
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(
        target=_learn, args=((room.memory, room.layout), number, updates, dies, theirs), daemon=True
    )
    child.start()
    theirs.close()
    return child, ours


def test_learners_in_processes_apply_one_at_a_time_and_a_killed_one_frees_the_lock() -> None:
    room = Room(learners=3, shared=True, length=LARGE)
    room.learnings[0].publish_first()
    children = [_start(room, 0, 100), _start(room, 1, 100), _start(room, 2, 1, dies=True)]
    for _, pipe in children:
        pipe.recv()
    for _, pipe in children:
        pipe.send(None)
    for child, _ in children:
        child.join(120)
    assert [child.exitcode for child, _ in children] == [0, 0, -signal.SIGKILL]
    room.learnings[0].turn()  # the lock is free
    assert set(room.board.snapshot()["count"]) == {201.0}  # no step was lost, none seen by halves
    for block in vars(room.memory).values():
        block.close()


def _supervised(
    room: Room, number: int = 0, make: Any = Seeing, first: bool = False
) -> tuple[Any, connection.Connection]:
    """Start a learner's process as the supervisor does; a run's first one tells the layout, and waits for it."""
    ours, theirs = multiprocessing.Pipe()
    shape = replace(room.layout, weights=None) if first else room.layout
    payload = Block.holding(cloudpickle.dumps(make))
    child = multiprocessing.get_context("fork").Process(
        target=run_learner, args=(payload, number, shape, room.memory, None, False, None, theirs), daemon=True
    )
    child.start()
    theirs.close()
    if first:
        assert ours.poll(60)
        assert ours.recv() == ("layout", room.layout.weights)
        ours.send(room.layout.weights)
    return child, ours


def _asked(pipe: connection.Connection, command: str, *arguments: Any) -> Any:
    pipe.send((17, command, *arguments))
    assert pipe.poll(60)
    answer = pipe.recv()
    assert answer[:2] == ("answer", 17), answer
    return answer[2]


def test_a_learner_process_goes_on_from_the_published_weights_of_one_that_was_killed(tmp_path: Path) -> None:
    room = Room(shared=True)
    room.controls.granted = 5
    first, pipe = _supervised(room, first=True)
    _asked(pipe, "publish_first")
    while room.controls.turns[0] < 5:
        _asked(pipe, "statistics")
    assert room.published() == 5
    os.kill(first.pid, signal.SIGKILL)
    first.join()
    second, pipe = _supervised(room)
    _asked(pipe, "save", tmp_path, 1)
    assert read_state(state_file(tmp_path, 1, 0)) == {"count": np.array([5.0])}
    room.controls.granted = 7
    while room.controls.turns[0] < 7:
        _asked(pipe, "statistics")
    assert (room.published(), room.controls.updates[0]) == (7, 7)
    assert "there is no file" in str(_asked(pipe, "restore", tmp_path, 2, True))  # and it lives on
    assert _asked(pipe, "restore", tmp_path, 1, True) is None
    assert room.published() == 5
    pipe.send((18, "close", None))
    second.join(60)
    assert second.exitcode == 0
    for block in vars(room.memory).values():
        block.close()


def test_the_count_of_updates_survives_a_learners_death_and_a_resumed_run(tmp_path: Path) -> None:
    def targeted() -> Any:
        return Targeted()

    room = Room(shared=True, make=lambda number: Targeted())
    room.controls.granted = 4
    first, pipe = _supervised(room, make=targeted)
    _asked(pipe, "publish_first")
    while room.controls.turns[0] < 4:
        _asked(pipe, "statistics")
    os.kill(first.pid, signal.SIGKILL)
    first.join()
    second, pipe = _supervised(room, make=targeted)
    room.controls.granted = 7
    while room.controls.turns[0] < 7:
        _asked(pipe, "statistics")
    _asked(pipe, "save", tmp_path, 1)
    state = read_state(state_file(tmp_path, 1, 0))
    assert (state["updates"], state["of_all"]) == (7, 7)
    pipe.send((18, "close", None))
    second.join(60)

    resumed = Room(shared=True, make=lambda number: Targeted())
    resumed.controls.granted = 0
    third, pipe = _supervised(resumed, make=targeted)
    _asked(pipe, "publish_first")
    _asked(pipe, "restore", tmp_path, 1, True)
    assert resumed.controls.updates.tolist() == [7]
    resumed.controls.granted = 2
    while resumed.controls.turns[0] < 2:
        _asked(pipe, "statistics")
    assert resumed.controls.updates.tolist() == [9]
    pipe.send((18, "close", None))
    third.join(60)
    assert [second.exitcode, third.exitcode] == [0, 0]
    for block in (*vars(room.memory).values(), *vars(resumed.memory).values()):
        block.close()


def test_a_learner_has_observed_the_whole_journal_when_it_is_saved(time: Time, tmp_path: Path) -> None:
    room = Room()
    room.controls.learning = False
    room.play(7)
    room.journal.apply(7, 0)
    room.journal.apply(8, 0)
    room.journal.close(1.0, 1)  # interrupted in the middle of an episode
    room.learnings[0].save(tmp_path, 0)
    assert room.learners[0].seen == list(range(8))
    assert state_file(tmp_path, 0, 0).is_file()


def test_controls_of_workers_and_learners_do_not_touch_each_other() -> None:
    block = Block(shared=False)
    block.resize(Controls.size(2, 3))
    controls = Controls(block, 2, 3)
    controls.stop, controls.learning, controls.granted, controls.patience = True, False, -1, 2**40
    controls.incarnations[:] = 5, 6
    controls.updates[:] = 1, 2, 3
    controls.turns[:] = 7, 8, 9
    controls.paused[:] = 1, 0, 1
    again = Controls(block, 2, 3)
    assert (again.stop, again.learning, again.granted, again.patience) == (True, False, -1, 2**40)
    assert (again.incarnations.tolist(), again.updates.tolist()) == ([5, 6], [1, 2, 3])
    assert (again.turns.tolist(), again.paused.tolist()) == ([7, 8, 9], [1, 0, 1])


def test_a_journal_is_made_only_for_learners() -> None:
    shape = SharedLayout(SPACE, ACTION, 1, 0, 10)
    assert shape.journal(SharedMemory(*(Block(shared=False) for _ in range(7)))) is None
    assert isinstance(Room().journal, Journal)


def test_a_learner_rests_only_when_what_it_has_learnt_is_published(time: Time) -> None:
    room = Room()
    (learning,) = room.learnings
    learning.publish_first()
    reading = room.board.begin_reading(0)
    learning.turn()
    learning.turn()
    room.controls.learning = False
    assert not learning.rests()
    learning.turn()
    assert not learning.rests()
    room.board.end_reading(0, reading)
    learning.turn()
    assert learning.rests()
    assert room.published() == 2


def test_of_several_learners_each_catches_up_with_what_the_others_have_learnt(time: Time) -> None:
    room = Room(2)
    for learning in room.learnings:
        learning.publish_first()
    room.learnings[0].turn()
    room.learnings[0].turn()
    before = float(room.learners[1].weights()["count"][0])
    room.learnings[1].catch_up()
    assert before == 0
    assert float(room.learners[1].weights()["count"][0]) == 2

"""Extras: what a policy leaves for the learner beside its action reaches it with the decision's transition."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

from async_wrappers import AsyncRunner
from async_wrappers.fleet.block import Block
from async_wrappers.live import Decision
from async_wrappers.live.memory.exchange import ActionSlots, Fate, Finished
from async_wrappers.live.memory.journal import Journal
from tests.worlds.learners import Writing
from tests.worlds.recording_env import FRAME, RecordingEnv

EXTRAS = Dict({"log_prob": Box(-np.inf, np.inf, ()), "state": Box(0, 10**6, (2,), np.int64), "kind": Discrete(3)})
OBSERVATION, ACTION = Box(-1, 1, (3,), np.float32), Discrete(4)


def memory(size: int) -> Block:
    block = Block(shared=False)
    block.resize(size)
    return block


def left(number: int) -> dict[str, Any]:
    """Return what a policy leaves for a frame, with numbers in types of its own."""
    return {"log_prob": -float(number) / 2, "state": [number, number + 1], "kind": np.int32(number % 3)}


def assert_left(extras: Mapping[str, Any], number: int) -> None:
    assert list(extras) == ["kind", "log_prob", "state"] or set(extras) == {"kind", "log_prob", "state"}
    assert extras["log_prob"] == -number / 2
    assert (extras["log_prob"].dtype, extras["state"].dtype) == (np.float32, np.int64)
    assert extras["state"].tolist() == [number, number + 1]
    assert extras["kind"] == number % 3


class Leaving:
    def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        pass

    def act(self, observation: Any, decision: Decision) -> Any:
        return SimpleNamespace(action=1, extras=left(int(observation[FRAME])))


class Checking(Writing):
    """Writes down which frames were observed, in a file, once their extras have been compared."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file

    def observe(self, transition: Mapping[str, Any]) -> None:
        frame = int(transition["observation"][FRAME])
        assert_left(transition["extras"], frame)
        with self._file.open("a") as file:
            print(frame, file=file)


@pytest.mark.parametrize("backend", ["virtual", "process"])
def test_the_extras_of_a_decision_reach_the_learner_with_its_transition(backend: str, tmp_path: Path) -> None:
    terms: dict[str, Any] = {"learner_latency": 0.01} if backend == "virtual" else {}
    given: dict[str, Any] = {"backend": backend, "latency": 0.02, "make_learner": lambda: Checking(tmp_path / "seen")}
    given |= {"extras": EXTRAS}
    for fps in (60, 6, 2):  # at which a busy machine gives few actions, a slower clock gives more
        (tmp_path / "seen").unlink(missing_ok=True)
        with AsyncRunner(lambda: RecordingEnv(20), Leaving, 2, fps, **given, **terms) as runner:
            report = runner.run(episodes=1)
            runner.save(tmp_path)
        if report.frames["fresh"] > 5:
            break
    frames = [int(line) for line in (tmp_path / "seen").read_text().split()]
    assert len(frames) == report.frames["fresh"] > 5
    assert frames == sorted(set(frames))


def test_a_thread_hands_on_the_action_alone() -> None:
    runner = AsyncRunner(lambda: RecordingEnv(10), Leaving, 1, 10, backend="thread", latency=0.001, extras=EXTRAS)
    assert runner.run(episodes=1).frames["fresh"] > 0


def test_slots_and_journal_hold_extras_and_without_them_take_not_a_byte() -> None:
    slot = np.dtype([("numbers", np.int64, 6), ("action", np.int64), ("refusal", "S1024")], align=True)
    entry = [(name, np.int64) for name in ("number", "interval", "kind", "action")]
    whole = np.dtype([*entry, ("reward", np.float64), ("observation", np.float32, 3)], align=True)
    assert ActionSlots.size(ACTION, 5) == 5 * slot.itemsize
    assert Journal.size(OBSERVATION, ACTION, 100) == 64 + 100 * whole.itemsize
    extras = 4 + 2 * 8 + 8 - 7  # a float32, two and one int64; less what may fit into the padding
    assert ActionSlots.size(ACTION, 5, EXTRAS) >= 5 * (slot.itemsize + extras)
    assert Journal.size(OBSERVATION, ACTION, 100, EXTRAS) >= 64 + 100 * (whole.itemsize + extras)

    slots = ActionSlots(memory(ActionSlots.size(ACTION, 2, EXTRAS)), ACTION, 2, EXTRAS)
    for worker in (0, 1):
        slots.write(Finished(worker, 3, 4, 5, Fate.DONE, np.int64(2), 6, left(7 + worker)))
    assert_left(slots.read(0).extras, 7)
    assert_left(slots.read(1).extras, 8)
    slots.write(Finished(0, 3, 4, 5, Fate.REFUSED, "no", 6))
    assert slots.read(0).extras is None

    journal = Journal(memory(Journal.size(OBSERVATION, ACTION, 4, EXTRAS)), OBSERVATION, ACTION, 4, EXTRAS)
    journal.begin_writing()
    for number in range(6):
        journal.apply(np.zeros(3, np.float32), 1, left(number))
        if number:
            journal.close(1.0, 1)
    _, numbered = journal.read(4)
    assert numbered is not None
    assert_left(numbered.transition["extras"], 4)
    plain = Journal(memory(Journal.size(OBSERVATION, ACTION, 4)), OBSERVATION, ACTION, 4)
    plain.begin_writing()
    for _ in range(2):
        plain.apply(np.zeros(3, np.float32), 1)
    plain.close(1.0, 1)
    _, numbered = plain.read(0)
    assert numbered is not None
    assert "extras" not in numbered.transition


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (1, "a policy must return an object with the attributes action and extras where extras are declared, got 1"),
        (SimpleNamespace(action=1, extras={"log_prob": 0.0}), "a policy's extras must be an element of .*the keys"),
        (SimpleNamespace(action=1, extras={**left(1), "state": [1]}), "a policy's extras must be .*'state'.*shape"),
    ],
)
def test_an_answer_without_the_declared_extras_ends_the_run(answer: Any, message: str) -> None:
    runner = AsyncRunner(
        lambda: RecordingEnv(10), lambda: lambda o: answer, 1, 60, backend="virtual", latency=0.01, extras=EXTRAS
    )
    with pytest.raises(ValueError, match=f"^{message}"):
        runner.run(episodes=1)

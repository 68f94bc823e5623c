"""The frame ring: a reader gets exactly the frame that it asks for, or a LookupError."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from async_wrappers.fleet.block import Block
from async_wrappers.live.memory.exchange import FrameRing
from tests.worlds import torn_reads
from tests.worlds.noticed_block import NoticedBlock

SPACE = spaces.Dict(
    {
        "picture": spaces.Box(0, 255, (3, 5), np.uint8),
        "speed": spaces.Box(-1, 1, ()),
        "key": spaces.Discrete(9, start=-4),
    }
)


def ring_of(depth: int, space: Any = SPACE) -> FrameRing:
    block = Block(shared=False)
    block.resize(FrameRing.size(space, depth))
    ring = FrameRing(block, space, depth)
    ring.clear()
    return ring


class RingAgainstDict(RuleBasedStateMachine):
    """What a ring holds is the last `depth` frames of a dict."""

    @initialize(depth=st.integers(1, 5), seed=st.integers(0, 1000))
    def make(self, depth: int, seed: int) -> None:
        SPACE.seed(seed)
        block = Block(shared=False)
        block.resize(FrameRing.size(SPACE, depth))
        self.writer, self.reader = (FrameRing(block, SPACE, depth) for _ in range(2))
        self.writer.clear()
        self.depth, self.frames, self.next = depth, dict[int, Any](), 0

    @rule(times=st.integers(1, 7))
    def write(self, times: int) -> None:
        for _ in range(times):
            self.frames[self.next] = SPACE.sample()
            self.writer.write(self.next, self.frames[self.next])
            self.next += 1

    @rule()
    def clear(self) -> None:
        self.writer.clear()
        self.frames.clear()

    @rule(back=st.integers(-3, 12))
    def read(self, back: int) -> None:
        number = self.next - back
        kept = self.frames.get(number) if back <= self.depth else None
        if kept is None:
            with pytest.raises(LookupError, match=f"frame {number} "):
                self.reader.read(number)
        else:
            read = self.reader.read(number)
            assert read.keys() == kept.keys()
            assert all(np.array_equal(read[key], kept[key]) for key in kept)


RingAgainstDict.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None, database=None)
test_a_ring_keeps_the_last_frames_of_a_dict = RingAgainstDict.TestCase


@pytest.mark.parametrize("number", [-1, -2, 0, 3])
def test_a_cleared_ring_holds_no_frame_whatever_its_number(number: int) -> None:
    with pytest.raises(LookupError):
        ring_of(3).read(number)


def test_a_frame_that_could_not_be_written_is_not_there_nor_is_the_one_it_overwrote() -> None:
    space = spaces.Box(0, 1, (2,))
    ring = ring_of(2, space)
    ring.write(0, np.zeros(2))
    with pytest.raises(ValueError):
        ring.write(2, np.zeros(3))
    for number in (0, 2):
        with pytest.raises(LookupError):
            ring.read(number)
    ring.write(2, np.ones(2))
    assert ring.read(2).tolist() == [1, 1]


def test_the_number_is_gone_while_the_bytes_change() -> None:
    """The writer dies in the middle of a frame: neither the old nor the new one can be read."""
    space = spaces.Tuple([spaces.Box(0, 9, (4,), np.int64), spaces.Discrete(9)])
    ring = ring_of(1, space)
    ring.write(0, (np.full(4, 3), 3))
    with pytest.raises(KeyError):
        ring.write(1, {0: np.full(4, 5)})  # the first part is written, the second is missing
    for number in (0, 1):
        with pytest.raises(LookupError):
            ring.read(number)


def test_a_frame_overwritten_while_it_is_read_is_refused() -> None:
    space, block, loads = spaces.Discrete(9), Block(shared=False), [-(10**6)]
    block.resize(FrameRing.size(space, 1))

    def overtake(what: str, _: Any) -> None:
        loads[0] += what == "load"
        if loads[0] == 2:  # after the frame's number comes the frame
            writer.write(1, 4)

    writer, reader = FrameRing(block, space, 1), FrameRing(NoticedBlock(block, overtake), space, 1)
    writer.clear()
    writer.write(0, 3)
    loads[0] = 0
    with pytest.raises(LookupError):
        reader.read(0)
    assert loads[0] == 3


def test_no_process_reads_a_torn_frame_or_an_older_one_than_before() -> None:
    counts, _ = torn_reads.frames(20_000, readers=2)
    assert counts.whole > 0
    assert counts.refused > 0
    assert (counts.torn, counts.disordered) == (0, 0)

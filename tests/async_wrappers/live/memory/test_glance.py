"""The newest frames and inferences: what was written last is what is read, and nothing that is half overwritten."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from async_wrappers.fleet.block import Block
from async_wrappers.live.memory import glance as glance_module
from async_wrappers.live.memory.glance import DEFAULT, PAUSED, Glance
from async_wrappers.live.report.report import Measurements
from tests.worlds.fake_transport import Stage


def glance_of(depth: int = 4096) -> Glance:
    block = Block(shared=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(glance_module, "_DEPTH", depth)
        block.resize(Glance.size())
        return Glance(block)


@settings(max_examples=40, deadline=None)
@given(depth=st.integers(1, 6), counts=st.lists(st.integers(0, 9), max_size=5))
def test_a_reader_gets_each_row_once_or_finds_that_it_is_gone(depth: int, counts: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(glance_module, "_DEPTH", depth)
        glance, written, since = glance_of(depth), 0, 0
        for count in counts:
            for _ in range(count):
                glance.frame(1, 2, written, 4, -5, DEFAULT, -1, -1, written / 2)
                glance.inference(3, 2, written, 10, 20)
                written += 1
            rows, end = glance.frames(since)
            assert end == written
            assert rows["frame"].tolist() == [*range(max(since, written - depth + 1), written)]
            assert rows["score"].tolist() == [number / 2 for number in rows["frame"]]
            since = end
        inferences, _ = glance.inferences()
        assert inferences["start"].tolist() == [*range(max(0, written - depth + 1), written)]


def shown(stage: Stage, **phase: Any) -> tuple[Measurements, Glance]:
    """Play a phase that is shown."""
    glance = glance_of()
    stage.loop._glance = glance
    return stage.play(**phase, shown_in=Path("anywhere")), glance


def test_the_loop_writes_a_row_for_each_frame_and_each_inference() -> None:
    record, glance = shown(Stage(latencies=[2_500_000, 1_200_000, 3_100_000], length=[9, 11, 40]), frames=50)
    rows, count = glance.frames()
    assert count == 50
    assert [len(rows[rows["episode"] == episode]) for episode in range(3)] == [9, 11, 30]
    effects = [
        [(int(row["start"]), int(row["frame"])) for row in rows if row["episode"] == episode and row["start"] > DEFAULT]
        for episode in range(3)
    ]
    assert effects == [list(each) for each in record.effects]
    assert rows["lateness"].tolist() == record.lateness
    assert (rows["deadline"][1:9] - rows["deadline"][:8]).tolist() == [1_000_000] * 8
    inferences, _ = glance.inferences()
    spans = {(span.worker, span.episode, span.start, span.began, span.ended) for span in record.spans}
    assert {tuple(map(int, row)) for row in inferences.tolist()} >= spans
    assert spans


def test_frames_of_a_pause_have_no_start_and_no_lag() -> None:
    def halt(stage: Stage) -> None:
        stage.loop.pause(True)

    def go_on(stage: Stage) -> None:
        stage.loop.pause(False)

    stage = Stage(happens=[(5_500_000, halt), (9_500_000, go_on)])
    _, glance = shown(stage, frames=20)
    rows, _ = glance.frames()
    paused = rows["frame"][rows["start"] == PAUSED].tolist()
    assert paused == [*range(paused[0], paused[0] + 4)]
    assert set(rows["lag"].tolist()) == {-1}


def test_a_phase_that_is_not_shown_writes_nothing() -> None:
    stage = Stage()
    _, glance = shown(stage, frames=5)
    stage.play(frames=7)
    assert glance.frames()[1] == 5

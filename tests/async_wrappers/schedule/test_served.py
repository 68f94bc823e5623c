"""Tests of async_wrappers/schedule/batching.py and served.py."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from async_wrappers.latency.batches import LinearBatches
from async_wrappers.schedule.batching import Batch, Batcher
from async_wrappers.schedule.served import ServedDecisions, ServedSchedule
from tests.worlds.batching_servers import MS, Setting, servers
from tests.worlds.schedule_cases import CASES


class TestBatcher:
    def test_infers_an_observation_that_is_alone_at_once(self) -> None:
        batcher = Batcher()
        batcher.observe(3, 7, deadline=10)
        assert batcher.starts() == [Batch(0, [(3, 7)])]
        assert batcher.starts() == []

    def test_infers_all_that_waited_when_it_becomes_free(self) -> None:
        batcher = Batcher()
        batcher.observe(0, 0, 10)
        batcher.starts()
        for environment in (1, 2, 3):
            batcher.observe(environment, 0, 10)
        assert batcher.starts() == []
        batcher.finished(0)
        assert batcher.starts() == [Batch(0, [(1, 0), (2, 0), (3, 0)])]

    def test_divides_them_evenly_among_the_idle(self) -> None:
        batcher = Batcher(accelerators=3)
        for environment in range(7):
            batcher.observe(environment, 0, 10)
        assert [len(batch.frames) for batch in batcher.starts()] == [3, 2, 2]

    def test_reads_the_newest_observation_of_an_environment(self) -> None:
        batcher = Batcher()
        batcher.observe(0, 0, 10)
        batcher.starts()
        batcher.observe(0, 1, 20)
        batcher.observe(1, 1, 20)
        batcher.observe(0, 2, 30)
        batcher.finished(0)
        assert batcher.starts() == [Batch(0, [(0, 2), (1, 1)])]
        assert batcher.overtaken == 1

    def test_takes_the_earliest_deadlines_first_where_a_batch_is_capped(self) -> None:
        batcher = Batcher(most=2)
        for environment, deadline in ((0, 30), (1, 10), (2, 20), (3, 10)):
            batcher.observe(environment, 0, deadline)
        assert batcher.starts() == [Batch(0, [(1, 0), (3, 0)])]
        batcher.finished(0)
        assert sorted(batcher.starts()[0].frames) == [(0, 0), (2, 0)]

    def test_starves_no_environment_where_a_batch_is_capped(self) -> None:
        batcher, read = Batcher(most=1), []
        for frame in range(9):
            for environment in range(3):
                batcher.observe(environment, frame, deadline=10 * frame)
            read += [environment for batch in batcher.starts() for environment, _ in batch.frames]
            batcher.finished(0)
        assert [read.count(environment) for environment in range(3)] == [3, 3, 3]

    def test_starts_nothing_on_an_accelerator_that_is_gone(self) -> None:
        batcher = Batcher(accelerators=2)
        batcher.gone(0)
        batcher.observe(0, 0, 10)
        batcher.observe(1, 0, 10)
        assert batcher.starts() == [Batch(1, [(0, 0), (1, 0)])]
        batcher.finished(0)
        batcher.observe(0, 1, 20)
        assert batcher.starts() == [Batch(0, [(0, 1)])]

    def test_forgets_an_episode_that_has_ended(self) -> None:
        batcher = Batcher()
        batcher.observe(0, 5, 10)
        batcher.forget(0)
        batcher.forget(1)
        assert batcher.starts() == []

    @pytest.mark.parametrize(("name", "value"), [("accelerators", 0), ("most", 0), ("most", 1.5)])
    def test_refuses_numbers_out_of_range(self, name: str, value: Any) -> None:
        with pytest.raises(ValueError, match=f"{name} must be a whole number >= 1.*{value}"):
            Batcher(**{name: value})


def by_brute_force(server: Setting, frames: int) -> list[tuple[int, int, int, int, int]]:
    """Return (environment, start, effect, began, ended) of all decisions, millisecond by millisecond."""
    free = deque(range(server.accelerators))
    ends: dict[int, list[int]] = {}
    newest: dict[int, tuple[int, int]] = {}  # environment -> (when it came, frame)
    decisions = []
    for now in range(10_000):
        for accelerator in sorted(ends.pop(now, [])):
            free.append(accelerator)
        arrivals = []
        for environment, phase in enumerate(server.phases):
            frame, rest = divmod(now - phase, server.period)
            if now >= phase and not rest and frame < frames and frame % server.every == 0:
                arrivals.append((environment, frame))
        for environment, frame in sorted(arrivals, key=lambda each: (server.phases[each[0]], each[0])):
            newest[environment] = (now, frame)
        while newest and free:
            count = -(-len(newest) // len(free))
            if server.most is not None:
                count = min(count, server.most)
            # All playouts are equal, so the earliest deadline is the earliest frame.
            chosen = sorted(newest, key=lambda environment: newest[environment][0])[:count]
            accelerator = min(free)
            free.remove(accelerator)
            ended = now + server.fixed + server.each * count
            for environment in chosen:
                _, frame = newest.pop(environment)
                due = frame + server.playout
                landing = next(
                    k for k in range(due, 100_000) if server.phases[environment] + k * server.period >= ended
                )
                decisions.append((environment, frame, landing, now, ended))
            ends.setdefault(ended, []).append(accelerator)
        if not newest and not ends and now > max(server.phases) + frames * server.period:
            return decisions
    raise AssertionError("the server never ended")


def applied_by_hand(decisions: list[tuple[int, int, int, int, int]], frames: int) -> set[tuple[int, int, int]]:
    """Return (environment, start, effect) of the actions that land: on each frame the newest that is due."""
    landed = set()
    for environment in {each[0] for each in decisions}:
        mine, newest = [each for each in decisions if each[0] == environment], -1
        for frame in range(frames):
            start = max((each[1] for each in mine if each[2] == frame), default=-1)
            if start > newest:
                newest = start
                landed.add((environment, start, frame))
    return landed


class TestServedSchedule:
    @settings(max_examples=CASES, deadline=None)
    @given(servers(), st.integers(1, 25))
    def test_is_what_brute_force_finds(self, server: Setting, frames: int) -> None:
        played = server.schedule().play(frames)
        found = list(
            zip(
                *(getattr(played, name).tolist() for name in ("environment", "start", "effect", "began", "ended")),
                strict=True,
            )
        )
        wanted = [(e, s, f, began * MS, ended * MS) for e, s, f, began, ended in by_brute_force(server, frames)]
        assert sorted(found) == sorted(wanted)
        plain = [(e, s, f, 0, 0) for e, s, f, _, _ in wanted]
        mine = played.applied
        assert applied_by_hand(plain, frames) == set(
            zip(
                played.environment[mine].tolist(),
                played.start[mine].tolist(),
                played.effect[mine].tolist(),
                strict=True,
            )
        )

    def test_one_environment_and_many_accelerators_is_the_papers_setting(self) -> None:
        # 130 ms at 60 frames a second are 8 frames: 8 accelerators give an action on each frame, 7 do not.
        enough = ServedSchedule(LinearBatches(0.130, 0), 1, 60, 8, accelerators=8).play(300, 20)
        assert (enough.in_time, enough.fresh, enough.mean_batch) == (1.0, 1.0, 1.0)
        fewer = ServedSchedule(LinearBatches(0.130, 0), 1, 60, 8, accelerators=7).play(300, 20)
        assert fewer.in_time < 0.95

    def test_actions_of_environments_together_take_one_batch(self) -> None:
        played = ServedSchedule(LinearBatches(0.004, 0.0002), 32, 60, 1, phases="together").play(100, 5)
        assert (played.mean_batch, played.in_time) == (32.0, 1.0)
        assert set(played.delays.tolist()) == {1}

    def test_counts_nothing_before_the_first_frame(self) -> None:
        played = ServedSchedule(LinearBatches(0.05, 0), 4, 60, 4).play(200, 50)
        assert (played.start[played.counted] >= 50).all()
        assert played.lateness.size == played.counted.sum()

    def test_streams_are_decisions_in_order(self) -> None:
        played = ServedSchedule(LinearBatches(0.010, 0.002, cv=0.5), 6, 60, 2, seed=3).play(200)
        for environment in range(6):
            stream = played.stream(environment)
            starts, effects = zip(*stream, strict=True)
            assert all(np.diff(starts) > 0)
            assert all(np.diff(effects) > 0)
            assert all(effect >= start + 2 for start, effect in stream)
        assert played.in_time_by_environment.mean() == pytest.approx(played.in_time)

    def test_the_same_seed_gives_the_same_decisions(self) -> None:
        def play(seed: int) -> ServedDecisions:
            return ServedSchedule(LinearBatches(0.010, 0.002, cv=0.3), 5, 60, 2, seed=seed).play(60)

        assert (play(1).ended == play(1).ended).all()
        assert not np.array_equal(play(1).ended, play(2).ended)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"phases": [0, 1]}, "phases must have an entry for each of the 3 environments, got 2: [0, 1]"),
            (
                {"phases": [0, 1, 20 * MS]},
                "phases must be a whole number of nanoseconds between 0 and 16,666,666, got 20000000",
            ),
        ],
    )
    def test_refuses_arguments_out_of_range(self, arguments: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError) as refused:
            ServedSchedule(LinearBatches(0.01, 0.001), **{"environments": 3, "fps": 60, **arguments})
        assert str(refused.value) == message

"""The parts of a round trip, and that a live run with a policy in a server is the virtual clock's on its times."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_wrappers import AsyncRunner, Chunk, plan
from async_wrappers.latency import Trace
from async_wrappers.live.remote.server import PolicyServer
from async_wrappers.live.report.journey import ClockOffset, RoundTrip, parts_ms
from tests.worlds.recording_env import PRIME, RecordingEnv
from tests.worlds.remembering import FEATURES, Remembering

FPS, FRAMES = 25, 40

times = st.integers(0, 10**9)


@given(st.integers(-(10**15), 10**15), st.lists(st.tuples(times, times, times, times, times), min_size=1, max_size=80))
def test_the_offset_is_as_sure_as_it_says_and_the_parts_are_the_round_trip(
    offset: int, exchanges: list[tuple[int, int, int, int, int]]
) -> None:
    clock, now = ClockOffset(), 0
    for out, queue, inference, sending, back in exchanges:
        received = now + out + offset
        server = received, received + queue, received + queue + inference, received + queue + inference + sending
        here = server[-1] - offset + back
        journey = clock.journey(RoundTrip(1, now, *server, here))
        assert journey is not None
        assert abs(journey.out - out) <= journey.doubt + 1
        assert (journey.queue, journey.inference) == (queue, inference)
        assert sum(journey[:4]) == here - now
        now = here + 1
    assert 2 * journey.doubt <= min(out + back for out, *_, back in exchanges[-64:]) + 1


@pytest.mark.parametrize("server", [(5, 4, 6, 7), (0, 0, 0, 200), (9, 8, 7, 6)])
def test_times_that_cannot_be_are_no_journey(server: tuple[int, int, int, int]) -> None:
    assert ClockOffset().journey(RoundTrip(1, 0, *server, 100)) is None


def exchange(server: int, at: int, ahead: int, way: int = 1_000) -> RoundTrip:
    """A ticket of a server whose clock is ahead, with the same way out and back."""
    times = [at + ahead + way, at + ahead + way, at + ahead + way + 50, at + ahead + way + 50]
    return RoundTrip(server, at, *times, at + 2 * way + 50)


def test_a_server_that_starts_again_and_a_clock_that_jumps_begin_the_estimate_anew() -> None:
    clock = ClockOffset()
    for server, ahead in ((1, 0), (2, 5_000), (2, 70_000), (2, -70_000)):
        trips = [exchange(server, at, ahead) for at in range(0, 10_000_000, 1_000_000)]
        assert {clock.journey(trip) for trip in trips} == {(1_000, 0, 50, 1_000, 1_000)}


def test_the_shortest_exchange_is_forgotten_after_sixty_four() -> None:
    clock = ClockOffset()
    doubts = [clock.journey(exchange(1, at, 0, 100 if at == 0 else 1_000)) for at in range(70)]
    assert [journey.doubt for journey in doubts if journey is not None] == [100] * 64 + [1_000] * 6


def test_a_table_of_parts_has_a_row_for_each() -> None:
    ahead = 10**12
    times = [ahead + at for at in (1_000_000, 1_000_000, 4_000_000, 4_000_000)]
    table = parts_ms([RoundTrip(1, 0, *times, 5_000_000)] * 2)
    assert {name: row["p50"] for name, row in table.items()} == {
        **{"out": 1.0, "queue": 0.0, "inference": 3.0, "back": 1.0, "doubt": 1.0, "round_trip": 5.0}
    }
    assert parts_ms([]) == {}


def test_servers_that_take_turns_have_clocks_of_their_own() -> None:
    def trip(server: int, ahead: int, at: int, way: int) -> RoundTrip:
        return RoundTrip(server, at, *[ahead + at + way] * 4, at + 2 * way)

    ways = (10**5, 10**6, 10**6, 10**6)
    trips = [trip(server, 10**12 * server, 10**9 * at, way) for at, way in enumerate(ways) for server in (1, 2)]
    doubts = parts_ms(trips)["doubt"]
    assert (doubts["p50"], doubts["max"]) == (0.1, 0.1)  # of the quickest exchange with each


class Replayed(Trace):
    """Gives the recorded times in their order, from the first one on."""

    def stream(self, seed: Any = None) -> Any:
        left: Iterator[float] = iter(self.latencies.tolist())
        return SimpleNamespace(draw=lambda: round(next(left, 0.001) * 1e9))


class Thinking:
    """Answers with a chunk that is a hash of all that it may read, after some seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def act(self, observation: Any, decision: Any) -> Any:
        time.sleep(self._seconds)
        seen = np.concatenate([np.asarray(part).reshape(-1) for part in leaves(observation)]).astype(np.int64)
        mixed = (int((seen % 1009 * np.arange(1, len(seen) + 1)).sum()) + decision.start) % 125
        return SimpleNamespace(
            action=np.array([mixed % 5, mixed // 5 % 5, mixed // 25]), extras={"seen": np.float32(mixed)}
        )


class Encoding(Remembering):
    """A policy with memory that takes its time."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def encode(self, observation: Any, decision: Any) -> Any:
        time.sleep(self._seconds)
        return super().encode(observation, decision)


class Fast(Encoding):
    fast_age = 1


def leaves(value: Any) -> Sequence[Any]:
    if isinstance(value, dict):
        return [leaf for each in value.values() for leaf in leaves(each)]
    return [value]


STATES = gym.spaces.Dict({"state": gym.spaces.Box(0, PRIME, (), np.int64)})
CHUNKS = {
    **{"default_action": Chunk(3, "noop"), "committed_prefix": 2, "stack_size": 2},
    "extras": gym.spaces.Dict({"seen": gym.spaces.Box(0, 1000, ())}),
}


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (Thinking, CHUNKS),
        (Encoding, {"features": FEATURES, "extras": STATES}),
        (Fast, {"features": FEATURES, "extras": STATES, "max_features_age": 4}),
    ],
    ids=["chunks, prefix, stacks and extras", "a core at release", "a fast path"],
)
def test_a_live_run_over_the_loopback_is_the_virtual_clocks_on_its_recorded_times(
    kind: Any, arguments: dict[str, Any]
) -> None:
    common = {**arguments, "playout": 3, "slot": 2, "seed": 3}
    for fps in (FPS, 12, 6, 3, 1.5):  # at which a busy machine is late, a slower clock may not be
        make_policy = partial(kind, 1.4 / fps)
        release = {"make_release": make_policy} if "features" in arguments else {}
        worlds = [RecordingEnv(FRAMES), RecordingEnv(FRAMES)]
        with PolicyServer(make_policy, "tcp://127.0.0.1:0", 2, backend="thread") as server:
            given = {"backend": "thread", "latency": 1.4 / fps, **common, **release}
            live = AsyncRunner(partial(worlds.__getitem__, 0), server.address, 2, fps, **given)
            report = live.run(episodes=1)
        if not any(report.frames[name] for name in ("late_actions", "dropped_actions", "missed_deadlines")):
            break
    trace = Replayed(report.latency_trace().latencies)
    virtual = AsyncRunner(
        partial(worlds.__getitem__, 1), partial(kind, 0.0), 2, fps, backend="virtual", latency=trace, **common
    )
    again = virtual.run(episodes=1)
    assert worlds[0].actions == worlds[1].actions
    # Chunks of three land after their end, three frames after their observation.
    landed = [each.frames["fresh"] + each.frames.get("ended", 0) for each in (report, again)]
    assert landed[0] == landed[1] > 10
    assert report.frames["fresh"] == again.frames["fresh"]
    assert report.frames.get("held") == again.frames.get("held") != 0
    journey = report.journey_ms
    assert journey["round_trip"]["p50"] >= journey["inference"]["p50"] >= 1400 / fps
    assert "journey" in str(report)


def test_the_round_trips_are_a_trace_that_planning_takes(tmp_path: Path) -> None:
    with PolicyServer(lambda: Thinking(0.0), "tcp://127.0.0.1:0", 2, backend="thread") as server:
        runner = AsyncRunner(lambda: RecordingEnv(15), server.address, 2, FPS, backend="thread", latency=0.01, **CHUNKS)
        report = runner.run(episodes=1)
    trace = report.latency_trace()
    assert len(trace.latencies) == len(report.spans)
    assert trace.mean == pytest.approx(report.latency_ms["mean"] / 1e3)
    trace.to_json(tmp_path / "trace.json")
    assert plan(Trace(tmp_path / "trace.json"), fps=FPS, seconds=5).enough is not None
    report.to_json(tmp_path / "report.json")

"""Tests of async_wrappers/schedule/served_stream.py."""

from __future__ import annotations

import pickle
from copy import deepcopy
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from async_wrappers.batched.local import LocalEnvs
from async_wrappers.batched.processes import ProcessEnvs
from async_wrappers.latency.batches import LinearBatches
from async_wrappers.schedule.plain import PlainSchedule
from async_wrappers.schedule.served import ServedSchedule
from async_wrappers.schedule.served_stream import ServedStream
from async_wrappers.wrappers.chunk import Chunk
from async_wrappers.wrappers.delay import RealtimeDelay
from async_wrappers.wrappers.vector_delay import VectorRealtimeDelay
from tests.worlds.batching_servers import Setting, servers
from tests.worlds.recording_env import FRAME, NOOP, RecordingEnv
from tests.worlds.schedule_cases import CASES

# Half of the actions are late by a frame or two, and two accelerators overtake each other.
SLOW = ServedSchedule(LinearBatches(0.012, 0.002, cv=0.6), 6, 60, 1, accelerators=2, seed=4)
LENGTH = 60


def played(stream: ServedStream, frames: int, seed: int | None = None) -> list[tuple[int, int]]:
    """Return (start, effect) of an episode of so many frames."""
    following = stream.frames(seed)
    starts = [next(following)[0] for _ in range(frames)]
    return [(start, effect) for effect, start in enumerate(starts) if start is not None]


class Sharing(LinearBatches):
    """A latency whose streams are counted."""

    streams = 0

    def stream(self, seed: Any) -> Any:
        type(self).streams += 1
        return super().stream(seed)


class TestStream:
    @settings(max_examples=max(CASES // 3, 10), deadline=None)
    @given(servers(), st.data())
    def test_is_that_of_the_schedule_and_of_every_episode(self, server: Setting, data: st.DataObject) -> None:
        schedule = server.schedule()
        number = data.draw(st.integers(0, schedule.environments - 1))
        lengths = data.draw(st.lists(st.integers(1, 30), min_size=1, max_size=4))
        stream, begin = ServedStream(schedule, number), 0
        longest = 2 * sum(lengths) + 10 * schedule.every
        whole = schedule.play(2 * longest).stream(number)
        assume(whole)  # of a capped batch the same one may be left out each time
        for length in lengths:
            mine = [(s - begin, e - begin) for s, e in whole if s >= begin and e < begin + length]
            following = stream.frames()
            if mine:
                assert stream.first() == mine[0]
            frames = [next(following) for _ in range(length)]
            assert [(start, effect) for effect, (start, _) in enumerate(frames) if start is not None] == mine
            assert all(frames[start][1] for start, _ in mine)
            begin += length

    def test_a_seed_draws_environment_and_beginning_whatever_was_played_before(self) -> None:
        stream = ServedStream(SLOW)
        one = played(stream, LENGTH, seed=7)
        played(stream, 33, seed=1)
        played(stream, 5)
        assert played(stream, LENGTH, seed=7) == one
        assert played(ServedStream(SLOW), LENGTH, seed=7) == one
        assert played(stream, LENGTH, seed=8) != one

    def test_a_chosen_environment_is_kept_under_every_seed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("async_wrappers.schedule.served_stream._DRAWN", 600)
        server = ServedSchedule(SLOW.latency, 6, 60, 1, accelerators=2, seed=5)
        whole = server.play(100 + 2 * LENGTH)
        for number in (0, 3):
            seeded = played(ServedStream(server, number), LENGTH, seed=5)
            every = set(whole.stream(number))
            shifted = [{(start + begin, effect + begin) for start, effect in seeded} for begin in range(100)]
            assert any(each <= every for each in shifted)

    def test_copies_and_pickles_go_on_alike(self) -> None:
        stream = ServedStream(SLOW, 2)
        following = stream.frames(3)
        for _ in range(25):
            next(following)
        twin, thawed = deepcopy(stream), pickle.loads(pickle.dumps(stream))
        going_on = [next(following) for _ in range(40)]
        assert [next(each) for each in [twin.frames_from(25)] for _ in range(40)] == going_on
        again = thawed.frames_from(25)
        assert [next(again) for _ in range(40)] == going_on
        assert twin.counts == stream.counts

    def test_equal_servers_are_simulated_once(self) -> None:
        Sharing.streams = 0
        streams = [ServedStream(ServedSchedule(Sharing(0.01, 0.001), 5, 60, 2), number) for number in range(5)]
        for stream in streams:
            played(stream, 50)
        assert Sharing.streams == 1

    def test_begins_again_after_what_a_table_keeps(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("async_wrappers.schedule.served_stream._KEPT", 600)
        stream = ServedStream(ServedSchedule(LinearBatches(0.005, 0.001, cv=0.9), 6, 60, 1, seed=99), 1)
        found = played(stream, 330)
        first = [(s, e) for s, e in found if e < 90]
        assert [(s - 100, e - 100) for s, e in found if s >= 100 and e < 190] == first
        effects = [effect for _, effect in found]
        assert effects == sorted(set(effects))

    def test_the_default_of_a_server_in_time_is_a_plain_delay(self) -> None:
        server = ServedSchedule(LinearBatches(0.004, 0.0002), 20, 60, 2, every=3, phases="together")
        plain = PlainSchedule(delay=2, noops=2)
        assert played(ServedStream(server, 4), 200) == [each for each in _first(plain.decisions(), 70) if each[1] < 200]

    def test_counts_frames_and_actions(self) -> None:
        stream = ServedStream(SLOW, 0)
        found = played(stream, 500)
        counts = stream.counts
        assert (counts.frames, counts.fresh) == (500, len(found))
        assert sum(counts.delay.values()) == counts.fresh
        assert counts.late == sum(effect - start > 1 for start, effect in found) > 0
        assert counts.mean_delay == pytest.approx(np.mean([effect - start for start, effect in found]))

    def test_refuses_actions_that_are_too_old(self) -> None:
        everything = played(ServedStream(SLOW, 0), 300)
        stream = ServedStream(SLOW, 0, max_age=1)
        assert played(stream, 300) == [(s, e) for s, e in everything if e - s <= 1]
        assert stream.counts.too_old > 0
        assert stream.most_in_flight == 1

    def test_gives_up_where_every_action_is_too_old(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("async_wrappers.schedule.served_stream._HOPELESS", 50)
        hopeless = ServedStream(ServedSchedule(LinearBatches(0.1, 0.0), 1, 60, 1), max_age=1)
        with pytest.raises(ValueError, match=r"^max_age must let some action be applied, got 1 frames: 50 in a"):
            hopeless.first()

    def test_says_that_an_environment_is_never_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("async_wrappers.schedule.served_stream._HOPELESS", 50)
        # From the second frame on environment 1 has waited longer whenever the accelerator is free.
        starving = ServedSchedule(LinearBatches(0.010, 0.0), 2, 100, 1, phases=[0, 5_000_000], most=1)
        assert ServedStream(starving, 0).first() == (0, 1)
        with pytest.raises(ValueError, match=r"^server must read each environment now and then, got one that reads"):
            played(ServedStream(starving, 0), 100)
        assert len(played(ServedStream(starving, 1), 100)) > 90

    @settings(max_examples=max(CASES // 3, 10), deadline=None)
    @given(servers(), st.integers(0, 40))
    def test_says_what_goes_on_as_a_frame_begins(self, server: Setting, frame: int) -> None:
        schedule = server.schedule()
        frame *= schedule.every
        stream, decisions = ServedStream(schedule, 0), schedule.play(frame + 200)
        mine = decisions.environment == 0
        begin = schedule.phases[0] + schedule.clock.begin(frame)
        going_on = mine & (decisions.start < frame) & (decisions.ended > begin)
        starts = sorted(decisions.start[going_on].tolist())
        stream.frames()
        due = [(start, max(start + schedule.playout, frame + 1)) for start in starts]
        assert stream.unfinished(frame) == due
        assert stream.unfinished(frame, landed=max(frame - 2, -1)) == [each for each in due if each[0] > frame - 2]

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"server": "mine"}, "server must be a ServedSchedule, got 'mine'"),
            (
                {"max_age": 0},
                "max_age must be >= the playout of 1 frames, for which each action waits, got 0: every action would be "
                "too old",
            ),
        ],
    )
    def test_refuses_wrong_arguments(self, arguments: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError) as refused:
            ServedStream(**{"server": SLOW, **arguments})
        assert str(refused.value) == message


class TestUnderRealtimeDelay:
    def test_the_environment_receives_each_action_on_its_frame(self) -> None:
        inner = RecordingEnv(length=[50, 37, 60])
        env = RealtimeDelay(inner, schedule=ServedStream(SLOW, 3))
        whole, begin = SLOW.play(1000).stream(3), 0
        for length in (50, 37, 60):
            observation, _ = env.reset()
            over, sent, starts = False, [], []
            while not over:
                sent.append(len(sent) % 2)
                starts.append(int(observation[FRAME]))
                observation, _, over, _, _ = env.step(sent[-1])
            mine = [(s - begin, e - begin) for s, e in whole if s >= begin and e < begin + length]
            received = [NOOP] * length
            for action, (_, effect) in zip(sent, mine, strict=False):
                received[effect] = action
            assert inner.episodes[-1] == received
            assert starts[: len(mine)] == [start for start, _ in mine]
            following = [s - begin for s, e in whole if s >= begin and e >= begin + length][:1]
            assert int(observation[FRAME]) == min([*following, length])
            begin += length

    def test_chunks_go_on_until_the_next_one_lands(self) -> None:
        env = RealtimeDelay(RecordingEnv(length=80), schedule=ServedStream(SLOW, 1), default_action=Chunk(6))
        env.reset(seed=2)
        over, received = False, 0
        while not over:
            _, _, over, _, info = env.step(np.zeros(6, np.int64))
            received += int(info["realtime"]["executed"].sum())
        assert received > 60

    def test_processes_play_as_this_one_does(self) -> None:
        def make() -> gym.Env[Any, Any]:
            return RealtimeDelay(gym.make("CartPole-v1"), schedule=ServedStream(SLOW), default_action="repeat")

        def rewards(envs: Any) -> list[Any]:
            shown, found = [], []
            envs.begin([11, 12, 13])
            for _ in range(30):
                shown = envs.recv()
                found.append((shown.env_ids.tolist(), shown.reward.tolist(), shown.realtime["start"].tolist()))
                envs.send(shown.env_ids, shown.env_ids % 2)
            envs.close()
            return found

        assert rewards(LocalEnvs(make, 3)) == rewards(ProcessEnvs(make, 3, 2))

    def test_a_vector_in_lockstep_has_it_as_constants_where_every_action_is_in_time(self) -> None:
        server = ServedSchedule(LinearBatches(0.004, 0.0002), 2, 60, 2, every=2)
        vector = VectorRealtimeDelay(gym.vector.SyncVectorEnv([lambda: RecordingEnv(length=20)] * 2), delay=2, noops=1)
        single = RealtimeDelay(RecordingEnv(length=20), schedule=ServedStream(server, 0))
        seen, shown = single.reset()[0], vector.reset(seed=0)[0]
        for step in range(6):
            assert int(seen[FRAME]) == int(shown[0][FRAME])
            seen, shown = single.step(step % 2)[0], vector.step(np.full(2, step % 2))[0]


def _first(decisions: Any, count: int) -> list[tuple[int, int]]:
    return [next(decisions) for _ in range(count)]

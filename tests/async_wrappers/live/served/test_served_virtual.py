"""Tests of async_wrappers/live/served/ on the virtual clock: the parts that play on a real one too."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Tuple
from hypothesis import given, settings
from hypothesis import strategies as st

from async_wrappers.latency.batches import LinearBatches
from async_wrappers.live.served.board import ServedBoard, assure_memory
from async_wrappers.live.served.served_runner import ServedRunner
from async_wrappers.schedule.served import ServedSchedule
from async_wrappers.schedule.served_stream import ServedStream
from async_wrappers.wrappers.chunk import Chunk
from async_wrappers.wrappers.delay import RealtimeDelay
from tests.worlds.batching_servers import Setting, servers
from tests.worlds.recording_env import EPISODE, FRAME, NOOP, RecordingEnv
from tests.worlds.schedule_cases import CASES

LATENCY = LinearBatches(0.012, 0.002, cv=0.6)
COLUMNS = ("environment", "start", "effect", "began", "ended", "deadline", "batch")


def chosen(observations: Any) -> Any:
    """The actions of a batch: the frames tell them, and none is the no-op."""
    return (observations[:, FRAME] + observations[:, EPISODE]) % 2


class Worlds:
    """Environments that are made one after the other, and kept."""

    def __init__(self, **arguments: Any) -> None:
        self.made: list[RecordingEnv] = []
        self._arguments = arguments

    def __call__(self) -> RecordingEnv:
        self.made.append(RecordingEnv(**self._arguments))
        return self.made[-1]


def served(worlds: Callable[[], Any] = RecordingEnv, **arguments: Any) -> ServedRunner:
    given = {"environments": 6, "fps": 60, "backend": "virtual", "latency": LATENCY, "log": True, **arguments}
    return ServedRunner(worlds, lambda: chosen, **given)


class TestTheVirtualClock:
    @settings(max_examples=max(CASES // 3, 10), deadline=None)
    @given(servers(), st.integers(1, 30))
    def test_decides_as_the_schedule_does_bit_for_bit(self, server: Setting, frames: int) -> None:
        schedule, worlds = server.schedule(), Worlds(length=None)
        if schedule.latency.mean(1) > schedule.clock.begin(schedule.playout) / 1e9:
            return  # a playout that is refused
        terms: dict[str, Any] = {"accelerators": schedule.accelerators, "every": schedule.every}
        terms |= {"phases": schedule.phases, "most": schedule.most, "backend": "virtual", "latency": schedule.latency}
        terms |= {"log": True}
        report = ServedRunner(
            worlds, lambda: chosen, schedule.environments, schedule.clock.fps, schedule.playout, **terms
        ).run(frames=frames)
        wanted = schedule.play(frames)
        assert report.decisions is not None
        for name in COLUMNS:
            assert getattr(report.decisions, name).tolist() == getattr(wanted, name).tolist(), name
        assert report.fresh == wanted.fresh
        if frames > schedule.playout:
            assert report.in_time == pytest.approx(wanted.in_time)
        for number, env in enumerate(worlds.made):
            stream = wanted.stream(number)
            assert report.environments[number].frames["fresh"] == len(stream)
            received = [NOOP] * frames
            for start, effect in stream:
                received[effect] = start % 2
            assert env.actions == received

    def test_is_what_realtime_delay_plays_over_episodes(self) -> None:
        lengths, frames = [17, 40, 1, 23], 200
        worlds = Worlds(length=lengths)
        schedule = ServedSchedule(LATENCY, 6, 60, 1, accelerators=2, seed=4)
        report = served(worlds, accelerators=2, seed=4).run(frames=frames)
        for number, live in enumerate(worlds.made):
            inner = RecordingEnv(length=lengths)
            env = RealtimeDelay(inner, schedule=ServedStream(schedule, number))
            while sum(map(len, inner.episodes)) < frames:
                observation, _ = env.reset()
                over = False
                while not over:
                    observation, _, over, _, _ = env.step(int(chosen(observation[None])[0]))
            assert [each for episode in live.episodes for each in episode] == [
                each for episode in inner.episodes for each in episode
            ][:frames]
            assert len(report.environments[number].returns) >= 6

    def test_the_same_seed_gives_the_same_run(self) -> None:
        def streams(seed: int) -> Any:
            return served(lambda: gym.make("CartPole-v1"), seed=seed, default_action="repeat").run(frames=60).streams

        def policies(seed: int) -> Any:
            terms: dict[str, Any] = {"backend": "virtual", "latency": LATENCY, "default_action": "repeat", "seed": seed}
            terms |= {"log": True}
            runner = ServedRunner(
                lambda: gym.make("CartPole-v1"),
                lambda: lambda observations: (observations[:, 2] > 0).astype(int),
                4,
                50,
                **terms,
            )
            report = runner.run(frames=120)
            return report.streams, [each.returns for each in report.environments]

        assert policies(1) == policies(1) != policies(2)

    def test_refuses_actions_that_are_too_old(self) -> None:
        everything, young = served(seed=3).run(frames=100), served(seed=3, max_age=1).run(frames=100)
        for mine, all_of_it in zip(young.streams, everything.streams, strict=True):
            assert list(mine) == [(start, effect) for start, effect in all_of_it if effect - start <= 1]
        assert young.frames["too_old"] == everything.frames["fresh"] - young.frames["fresh"] > 0

    def test_actions_of_every_kind_of_space_arrive(self) -> None:
        space = Dict({"a": Discrete(3), "b": Tuple([Box(-1, 1, (2,), np.float32), MultiBinary(2)])})

        def policy(observations: Any) -> Any:
            size = len(observations)
            halves = np.full((size, 2), 0.5)  # float64, of which the space's type is made
            return {"a": np.full(size, 2), "b": (halves, np.ones((size, 2), bool))}

        worlds = Worlds(action_space=space)
        noop = {"a": 0, "b": (np.zeros(2, np.float32), np.zeros(2, np.int8))}
        runner = ServedRunner(
            worlds, lambda: policy, 3, 60, backend="virtual", latency=LinearBatches(0.004, 0), default_action=noop
        )
        assert runner.run(frames=20).fresh > 0.9
        action = worlds.made[1].actions[-1]
        assert space.contains(action)
        assert action["b"][0].tolist() == [0.5, 0.5]

    def test_stops_within_a_frame(self) -> None:
        runner: ServedRunner

        def policy(observations: Any) -> Any:
            if observations[:, FRAME].max() >= 10:
                runner.stop()
            return chosen(observations)

        runner = ServedRunner(RecordingEnv, lambda: policy, 3, 60, backend="virtual", latency=LinearBatches(0.002, 0))
        report = runner.run(frames=1000)
        assert report.stopped == "stop() was called"
        assert 10 <= report.environments[0].frames["total"] <= 12
        assert runner.run(frames=5).frames["total"] == 15


class TestTheReport:
    def test_has_each_environment_and_all_of_them(self, tmp_path: Path) -> None:
        report = served(lambda: RecordingEnv(length=20)).run(seconds=2)
        assert report.seconds == 2.0
        assert report.frames["total"] == 6 * 120
        assert report.in_time == pytest.approx(np.mean([each.in_time for each in report.environments]))
        assert report.delay_frames["mean"] >= 1
        assert len(report.environments[2].returns) == 6
        assert report.lateness_ms["max"] == 0.0
        assert 0 < report.busy[0] <= 1.1
        report.to_json(tmp_path / "report.json")
        read = json.loads((tmp_path / "report.json").read_text())
        assert read["frames"] == report.frames
        assert [each["number"] for each in read["environments"]] == list(range(6))
        assert read["environments"][0]["returns"] == list(report.environments[0].returns)
        assert "in time" in str(report) and "playout 1 frames" in str(report)

    def test_gives_the_latency_of_its_batches_as_a_model(self) -> None:
        report = served(latency=LinearBatches(0.004, 0.002)).run(frames=300)
        measured = report.batch_latency()
        size = min(measured.traces)
        assert measured.mean(size) == pytest.approx(0.004 + 0.002 * size)
        again = ServedSchedule(measured, 6, 60, 1).play(300)
        assert again.in_time == pytest.approx(report.in_time, abs=0.03)


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            ({"processes": 9}, "processes must be at most the 6 environments that they share, got 9"),
            ({"backend": "thread"}, "backend must be 'process' or 'virtual', got 'thread'"),
            ({"latency": 0.01}, "latency must be LinearBatches(...), MeasuredBatches(...) or another model, got 0.01"),
            (
                {"latency": None},
                "latency must be given on the virtual clock, and there alone, as batches take what they take on a real "
                "one, got latency=None with backend='virtual'",
            ),
            (
                {"max_age": 0},
                "max_age must be >= the playout of 1 frames, for which each action waits, got 0: every action would be "
                "too old",
            ),
            (
                {"latency": LinearBatches(0.030, 0.002)},
                "playout must be at least 2 frames, got 1 (16.7 ms): the latency's batch of a single observation takes "
                "32.0 ms, and no action would ever be in time",
            ),
            (
                {"default_action": Chunk(4)},
                f"default_action must be no chunk in ServedRunner, whose batches hold one action for each environment, "
                f"got {Chunk(4)!r}: RealtimeDelay(schedule=ServedStream(...)) plays chunks on simulated time",
            ),
        ],
    )
    def test_wrong_arguments(self, arguments: dict[str, Any], sentence: str) -> None:
        with pytest.raises(ValueError) as refused:
            served(**arguments)
        assert str(refused.value) == sentence

    @pytest.mark.parametrize(
        ("policy", "sentence"),
        [
            (lambda observations: np.zeros(3, int), r"^accelerator 0, asked for the actions of 1 observations, "
             r"answered .*, which is no batch of actions of .*: its shape is \[3\] and must be \[1\]$"),
            (lambda observations: np.full(len(observations), 9), r"^accelerator 0.* no batch of actions .*outside$"),
            (lambda observations: np.full(len(observations), np.nan), r"^accelerator 0.*it (is|holds) NaN$"),
            ("act", r"^make_policy must return a function of a batch of observations, got 'act'$"),
        ],
    )  # fmt: skip
    def test_policies_that_answer_no_batch_of_actions(self, policy: Any, sentence: str) -> None:
        runner = ServedRunner(RecordingEnv, lambda: policy, 4, 60, backend="virtual", latency=LinearBatches(0.001, 0))
        with pytest.raises(ValueError, match=sentence):
            runner.run(frames=5)

    def test_lengths_that_are_none(self) -> None:
        for arguments in ({}, {"frames": 1, "seconds": 1}, {"frames": 0}, {"seconds": -1}):
            with pytest.raises(ValueError, match=r"^(give one of frames and seconds|frames must|seconds must)"):
                served().run(**arguments)

    @pytest.mark.filterwarnings("error::ResourceWarning")
    def test_more_environments_than_memory_holds(self, tmp_path: Path) -> None:
        meminfo = tmp_path / "meminfo"
        meminfo.write_text("MemTotal: 9 kB\nMemAvailable:   1000000 kB\n")
        size = ServedBoard.size((Box(0, 255, (84, 84, 4), np.uint8), Discrete(18)), 10_000)
        with pytest.raises(ValueError) as refused:
            assure_memory(size, 10_000, meminfo)
        assert str(refused.value) == (
            "environments must fit into memory, got 10000, whose observations and actions on their way take 2.3 GB of "
            "the 1.0 GB that are free: take fewer, or smaller observations"
        )
        assure_memory(1000, 1, meminfo)
        assure_memory(size, 10_000, tmp_path / "none")

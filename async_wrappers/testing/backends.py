"""The rules of a backend of `AsyncRunner`, for workers in any place: subclass `BackendContract` and give it `backend`.

The environment and the policies log their inputs in files, as they may run in other processes.
"""

from __future__ import annotations

import gc
import json
import os
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest

from async_wrappers.extras import extra
from async_wrappers.live import AsyncRunner, Decision
from async_wrappers.live.loop.loop import episode_seed
from async_wrappers.live.report.report import TimingReport

with extra("BackendContract", "testing"):
    import psutil

LENGTH = 12  # frames of an episode
SEED = 3
REFUSED = 5  # from this frame of an episode no action is in the action space
LARGEST = 10_000
NOTHING = [-1, -1]  # the default action


class Witness(gym.Env[Any, Any]):
    """Observes ``[episode, frame]``, pays ``frame % 3`` and logs the actions that it receives; ends after 12 frames.

    Args:
        folder: Where it writes.
    """

    def __init__(self, folder: Path) -> None:
        self.observation_space = gym.spaces.Box(-1, LARGEST, (2,), np.int64)
        self.action_space = gym.spaces.Box(-1, LARGEST, (2,), np.int64)
        self._file = (folder / "environment").open("a", buffering=1)
        self._episode, self._frame = -1, LENGTH

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin the next episode."""
        super().reset(seed=seed)
        self._episode += 1
        self._frame = 0
        print(json.dumps({"seed": seed}), file=self._file)
        return np.array([self._episode, 0]), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take one frame."""
        if self._frame >= LENGTH:
            raise RuntimeError("stepped after the end of an episode")
        print(json.dumps({"action": np.asarray(action).tolist()}), file=self._file)
        reward = float(self._frame % 3)
        self._frame += 1
        return np.array([self._episode, self._frame]), reward, self._frame == LENGTH, False, {}

    def close(self) -> None:
        """Write down that it is closed."""
        if not self._file.closed:
            print(json.dumps({"closed": True}), file=self._file)
            self._file.close()


class Watching:
    """A policy that answers with the observation that it was shown, and writes down each call.

    Args:
        folder: Where it writes.
        seconds: How long an inference sleeps.
        refused: First frame of an episode on which its answer is no action.
    """

    def __init__(self, folder: Path, seconds: float, refused: int = REFUSED) -> None:
        self._file = (folder / f"policy {os.getpid()} {id(self)} {time.monotonic_ns()}").open("a", buffering=1)
        self._seconds, self._refused = seconds, refused

    def act(self, observation: Any, decision: Decision) -> Any:
        """Return the observation, or an answer that is no action."""
        print(json.dumps([observation.tolist(), list(decision)]), file=self._file)
        time.sleep(self._seconds)
        answer = observation.copy()
        observation[:] = 0  # a policy may write into its observation
        return answer if decision.start < self._refused else np.array([LARGEST + 1, 0])


class PolicyError(RuntimeError):
    """The exception of a failing policy."""


class Failing:
    """A policy that raises at every call."""

    def act(self, observation: Any, decision: Decision) -> Any:
        """Raise."""
        raise PolicyError("no idea what to do")


class Call(NamedTuple):
    """One inference: who, on which episode of the environment's life and which frame of it, by which decision."""

    worker: str
    episode: int
    frame: int
    decision: Decision


class ReceivedEpisode(NamedTuple):
    """One episode of the environment's life: its run, and the actions received, frame by frame.

    `number` counts the episodes of its kind (training or evaluation) before it, `before` their frames.
    """

    run: str
    evaluates: bool
    number: int
    before: int
    seed: int
    actions: list[list[int]]

    def fresh(self) -> Iterator[tuple[int, list[int]]]:
        """Yield (frame, action) of each action that is not the default."""
        return ((frame, action) for frame, action in enumerate(self.actions) if action != NOTHING)


class BackendRuns(NamedTuple):
    """The results of the runs of one ``with`` block: reports by run, episodes, closings, and calls of all policies."""

    reports: dict[str, TimingReport]
    episodes: list[ReceivedEpisode]
    closed: int
    calls: list[Call]

    def of(self, run: str) -> list[tuple[int, ReceivedEpisode]]:
        """Return the episodes of a run, numbered in the environment's life."""
        return [(number, episode) for number, episode in enumerate(self.episodes) if episode.run == run]


class BackendContract:
    """Tests of one backend.

    Attributes:
        backend: As for `AsyncRunner`: a name, a class, or a ``staticmethod`` of a `RunSpec`.
        workers: How many.
        fps: Frames per second; an inference takes one and a half frames.
        policy_error: The exception that a policy's own comes out as; a backend whose policies are on another machine,
            from which no object travels, names another one.
    """

    backend: Any
    workers: int = 2
    fps: int = 50
    policy_error: type[Exception] = PolicyError

    _played: BackendRuns
    RUNS: dict[str, dict[str, Any]] = {
        "episodes": {"episodes": 2},
        "frames": {"frames": 17},
        "seconds": {"seconds": 0.1},
        "evaluation": {"episodes": 1, "eval_mode": True},
        "whole episodes": {"frames": 2, "whole_episodes": True},
        "cut": {"episodes": 1, "max_episode_frames": 4},
    }

    def make_runner(self, make_policy: Any, folder: Path) -> AsyncRunner:
        """Return the runner that is tested."""
        return AsyncRunner(
            partial(Witness, folder),
            make_policy,
            self.workers,
            self.fps,
            playout=2,
            slot=1,
            backend=self.backend,
            latency=1.5 / self.fps,
            default_action=NOTHING,
            seed=SEED,
        )

    @pytest.fixture
    def played(self, tmp_path_factory: pytest.TempPathFactory) -> BackendRuns:
        """Return the runs, which are played once for all tests."""
        cls = type(self)
        if "_played" not in vars(cls):
            cls._played = self._play(tmp_path_factory.mktemp("contract"))
        return cls._played

    def _play(self, folder: Path) -> BackendRuns:
        """Play all runs in one ``with`` block."""
        seconds = 0.0 if self.backend == "virtual" else 1.5 / self.fps
        with self.make_runner(partial(Watching, folder, seconds), folder) as runner:
            reports = {name: runner.run(**length) for name, length in self.RUNS.items()}
        lines = [json.loads(line) for line in (folder / "environment").read_text().splitlines()]
        lives: list[tuple[int, list[list[int]]]] = []
        for line in lines:
            if "seed" in line:
                lives.append((line["seed"], []))
            elif "action" in line:
                lives[-1][1].append(line["action"])
        runs = [name for name, report in reports.items() for _ in report.episodes]
        episodes: list[ReceivedEpisode] = []
        for run, (seed, actions) in zip(runs, lives, strict=True):
            evaluates = run == "evaluation"
            alike = [episode for episode in episodes if episode.evaluates == evaluates]
            before = sum(len(episode.actions) for episode in alike)
            episodes.append(ReceivedEpisode(run, evaluates, len(alike), before, seed, actions))
        calls = [
            Call(file.name, episode, frame, Decision(*decision))
            for file in folder.glob("policy *")
            for (episode, frame), decision in map(json.loads, file.read_text().splitlines())
        ]
        return BackendRuns(reports, episodes, sum("closed" in line for line in lines), calls)

    def test_a_run_lasts_as_long_as_it_is_asked_to(self, played: BackendRuns) -> None:
        frames = {name: [episode.frames for episode in report.episodes] for name, report in played.reports.items()}
        assert frames == {
            "episodes": [LENGTH, LENGTH],
            "frames": [LENGTH, 17 - LENGTH],
            "seconds": [self.fps // 10],
            "evaluation": [LENGTH],
            "whole episodes": [LENGTH],
            "cut": [4],
        }
        assert all(report.frames["total"] == sum(frames[name]) for name, report in played.reports.items())

    def test_the_environment_is_stepped_once_a_frame_and_closed_once(self, played: BackendRuns) -> None:
        told = [episode.frames for report in played.reports.values() for episode in report.episodes]
        assert [len(episode.actions) for episode in played.episodes] == told
        assert played.closed == 1

    def test_a_return_is_the_sum_of_what_the_environment_paid(self, played: BackendRuns) -> None:
        scores = [episode.score for report in played.reports.values() for episode in report.episodes]
        assert scores == [sum(frame % 3 for frame in range(len(episode.actions))) for episode in played.episodes]

    def test_runs_of_one_block_go_on_with_the_next_episode_and_its_seed(self, played: BackendRuns) -> None:
        for episode in played.episodes:
            assert episode.seed == episode_seed(SEED, int(episode.evaluates), episode.number)

    def test_every_inference_sees_the_frame_that_it_is_told_and_is_told_where_it_is(self, played: BackendRuns) -> None:
        calls = self.without_warm_up(played)
        for call in calls:
            _, evaluates, number, before, *_ = played.episodes[call.episode]
            assert call.decision == Decision(number, call.frame, before + call.frame, evaluates)
        assert {call.episode for call in calls} == set(range(len(played.episodes)))

    def test_each_worker_has_a_policy_of_its_own_and_never_infers_a_frame_twice(self, played: BackendRuns) -> None:
        assert len({call.worker for call in played.calls}) == self.workers
        each = Counter((call.worker, call.episode, call.frame) for call in self.without_warm_up(played))
        assert set(each.values()) == {1}

    def test_an_action_is_computed_from_the_frame_that_its_delay_says(self, played: BackendRuns) -> None:
        for run, report in played.reports.items():
            delays = []
            for number, episode in played.of(run):
                for frame, (shown_episode, start) in episode.fresh():
                    assert shown_episode == number
                    assert start < frame
                    delays.append(frame - start)
            assert report.frames["fresh"] == len(delays)
            if delays:
                assert report.delay_frames["mean"] == pytest.approx(sum(delays) / len(delays))
                assert report.delay_frames["max"] == max(delays)
        assert any(True for episode in played.episodes for _ in episode.fresh())

    def test_starts_of_an_episodes_actions_increase(self, played: BackendRuns) -> None:
        for episode in played.episodes:
            starts = [start for _, start in episode.actions if start >= 0]
            assert starts == sorted(set(starts))

    def test_frames_without_an_action_receive_the_default_action_and_are_counted(self, played: BackendRuns) -> None:
        for run, report in played.reports.items():
            assert report.frames["default"] == sum(one.actions.count(NOTHING) for _, one in played.of(run)) > 0

    def test_an_action_outside_the_action_space_is_refused_and_counted(self, played: BackendRuns) -> None:
        for run, report in played.reports.items():
            numbers = {number for number, _ in played.of(run)}
            asked = sum(call.frame >= REFUSED and call.episode in numbers for call in self.without_warm_up(played))
            told = report.lost.get("refused", 0)
            assert asked - self.workers * len(report.episodes) <= told <= asked
        assert played.reports["episodes"].lost["refused"] > 0
        assert all(max(action) <= LARGEST for episode in played.episodes for action in episode.actions)

    def test_evaluation_reaches_the_policies_and_training_is_none(self, played: BackendRuns) -> None:
        modes = {(played.episodes[call.episode].evaluates, call.decision.eval_mode) for call in played.calls}
        assert modes - {(False, True)} == {(True, True), (False, False)}
        odd = [call for call in played.calls if call not in self.without_warm_up(played)]
        assert {call.frame for call in odd} <= {0}

    def test_what_a_policy_raises_comes_out_with_the_worker_named_and_nothing_is_left(
        self, played: BackendRuns, tmp_path: Path
    ) -> None:
        before = _held()
        with pytest.raises(self.policy_error, match="no idea what to do") as error, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a worker may be started again
            self.make_runner(Failing, tmp_path).run(frames=20)
        notes = "\n".join(getattr(error.value, "__notes__", []))
        assert any(f"worker {worker}" in notes for worker in range(self.workers))
        del error
        assert _left(before) == {}

    @staticmethod
    def without_warm_up(played: BackendRuns) -> list[Call]:
        """Return the calls but for those before the first frame, which are in evaluation mode."""
        return [call for call in played.calls if not call.decision.eval_mode or played.episodes[call.episode].evaluates]


def _held() -> dict[str, set[Any]]:
    """Return the resources of this process that a run could leave behind."""
    me = psutil.Process()
    return {
        "processes": {child.pid for child in me.children(recursive=True) if not _stays(child)},
        "threads": set(threading.enumerate()),
        "descriptors": set(range(me.num_fds())),  # their count: the numbers may be others by now
        "shared memory": set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set(),
    }


def _left(before: dict[str, set[Any]], patience: float = 10.0) -> dict[str, set[Any]]:
    """Return the resources that are new since `before`, after some time and a collection of garbage."""
    deadline = time.monotonic() + patience
    while True:
        gc.collect()
        left = {name: held - before[name] for name, held in _held().items() if held - before[name]}
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.05)


def _stays(process: psutil.Process) -> bool:
    """Return whether a process is one of multiprocessing's own, which stay until Python ends."""
    try:
        command = " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return True
    return "multiprocessing.forkserver" in command or "multiprocessing.resource_tracker" in command

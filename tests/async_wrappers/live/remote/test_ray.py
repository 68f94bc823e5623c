"""Workers on a Ray cluster of two nodes on this machine: the contract, recorded times, weights, kills, refusals.

Ray is an extra, which the development tools do not bring: `pip install -e '.[dev,ray]' -c constraints.txt`.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import psutil
import pytest

from async_wrappers import AsyncRunner, Chunk, RayWorkers, plan
from async_wrappers.latency import Trace
from async_wrappers.live import RunFailed
from async_wrappers.live.loop.workers import NoWorkers
from async_wrappers.ray_cluster import NoCluster
from async_wrappers.testing.backends import BackendContract
from tests.worlds.ray_nodes import two_nodes
from tests.worlds.ray_policies import Counting, Echo, Encoding, Taught, Thinking
from tests.worlds.recording_env import PRIME, RecordingEnv
from tests.worlds.remembering import FEATURES

pytest.importorskip("ray", reason="the extra `ray` is not installed")

FPS, FRAMES = 10, 25
ADDRESS: list[str] = []


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[str]:
    """One cluster for all tests."""
    with two_nodes() as address:
        ADDRESS.append(address)
        yield address


class TestOnRay(BackendContract):
    fps = FPS

    @staticmethod
    def backend(spec: Any) -> Any:
        return RayWorkers(ADDRESS[-1])(spec)


class Noted(RecordingEnv):
    """Writes the actions of its last episode, which is its first again, into a file."""

    def __init__(self, path: Path) -> None:
        super().__init__(FRAMES)
        self._path = path

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.episode = -1
        return super().reset(seed=seed)

    def close(self) -> None:
        self._path.write_text(json.dumps([np.asarray(action).tolist() for action in self.actions]))


class Replayed(Trace):
    """Gives the recorded times in their order, from the first one on."""

    def stream(self, seed: Any = None) -> Any:
        left = iter(self.latencies.tolist())
        return SimpleNamespace(draw=lambda: round(next(left, 0.001) * 1e9))


CHUNKS = {
    **{"default_action": Chunk(3, "noop"), "committed_prefix": 2, "stack_size": 2},
    "extras": gym.spaces.Dict({"seen": gym.spaces.Box(0, 1000, ())}),
}
STATES = gym.spaces.Dict({"state": gym.spaces.Box(0, PRIME, (), np.int64)})


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [(Thinking, CHUNKS), (Encoding, {"features": FEATURES, "extras": STATES})],
    ids=["chunks, prefix, stacks and extras", "a core at release"],
)
def test_a_live_run_on_ray_is_the_virtual_clocks_on_its_recorded_times(
    kind: Any, arguments: dict[str, Any], tmp_path: Path
) -> None:
    common: dict[str, Any] = {**arguments, "playout": 2, "slot": 2, "seed": 3}
    live = {"backend": RayWorkers(ADDRESS[-1]), "latency": 1.4 / FPS, **common}
    make_policy = partial(kind, 1.4 / FPS)
    with AsyncRunner(partial(Noted, tmp_path / "live"), make_policy, 2, FPS, **live) as runner:
        for _ in range(5):  # a busy machine may be late
            report = runner.run(episodes=1, first_episode=0, frames_before=0)
            if not any(report.frames[name] for name in ("late_actions", "dropped_actions", "missed_deadlines")):
                break
    trace = Replayed(report.latency_trace().latencies)
    virtual = {"backend": "virtual", "latency": trace, **common}
    with AsyncRunner(partial(Noted, tmp_path / "virtual"), kind, 2, FPS, **virtual) as runner:
        again = runner.run(episodes=1)
    assert (tmp_path / "live").read_text() == (tmp_path / "virtual").read_text()
    assert report.frames["fresh"] == again.frames["fresh"] > 5
    journey = report.journey_ms
    assert journey["inference"]["p50"] >= 1400 / FPS
    assert "journey" in str(report)
    assert plan(report.latency_trace(), fps=FPS, seconds=5).enough is not None


class Line(gym.Env[Any, Any]):
    """Observes its frame's number, and writes down each action; never ends."""

    observation_space = gym.spaces.Box(0, 1_000_000, (1,), np.int64)
    action_space = gym.spaces.Discrete(1_000_002, start=-1)

    def __init__(self, folder: Path) -> None:
        self._file = (folder / "actions").open("a", buffering=1)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._frame = 0
        return np.array([0]), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        print(int(action), file=self._file)
        self._frame += 1
        return np.array([self._frame]), 0.0, False, False, {}


def play(folder: Path, make_policy: Any, frames: int = 40, **arguments: Any) -> Any:
    on_frame = arguments.pop("on_frame", None)
    workers = arguments.pop("workers", 2)
    of = {"latency": 0.02, "playout": 2, "default_action": -1, "start_timeout": 120.0, **arguments}
    of.setdefault("backend", RayWorkers(ADDRESS[-1]))
    return AsyncRunner(partial(Line, folder), make_policy, workers, FPS, **of).run(frames=frames, on_frame=on_frame)


def actions(folder: Path) -> list[int]:
    return [int(line) for line in (folder / "actions").read_text().split()]


def test_workers_have_the_weights_that_a_learner_of_this_machine_publishes(tmp_path: Path) -> None:
    report = play(tmp_path, Taught, make_learner=Counting)
    sent = [action for action in actions(tmp_path) if action != -1]
    assert len(set(sent)) > 5
    assert sent == sorted(sent)
    assert report.frames["fresh"] == len(sent)
    assert report.updates >= sent[-1]
    assert report.lag_updates["max"] < 60


class KillsAt:
    """Kills the processes that policies have named, on some frames."""

    def __init__(self, folder: Path, frames: set[int]) -> None:
        self._folder, self._frames = folder, frames

    def __call__(self, status: Any) -> None:
        if status.frame in self._frames:
            for path in self._folder.glob("pid *"):
                os.kill(int(path.name.split()[1]), signal.SIGKILL)
                path.unlink()


def test_a_killed_worker_is_replaced_and_counted_and_no_process_is_left(tmp_path: Path) -> None:
    before = set(os.listdir("/dev/shm"))
    with pytest.warns(RuntimeWarning, match="worker . on Ray was lost: .*; it is started again, and frames go on"):
        report = play(tmp_path, partial(Echo, tmp_path), 200, on_frame=KillsAt(tmp_path, {20}), stop_after_missed=180)
    received = actions(tmp_path)
    assert len(received) == 200
    assert report.workers["restarts"] == 2
    assert 1 <= report.lost["lost"] <= 2
    assert max(received) > 100  # they are back
    pids = [int(path.name.split()[1]) for path in tmp_path.glob("pid *")]
    deadline = time.monotonic() + 20
    while any(psutil.pid_exists(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(pids) == 2 and not any(psutil.pid_exists(pid) for pid in pids)
    assert set(os.listdir("/dev/shm")) <= before


def raises() -> Any:
    raise LookupError("no weights here")


def test_what_make_policy_raises_comes_out_before_the_first_frame(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="no weights here") as error:
        play(tmp_path, raises)
    assert any("raised in worker" in note for note in error.value.__notes__)


def test_nodes_without_the_users_module_are_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "only_here.py").write_text("def make_policy():\n    return lambda observation: 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    import only_here  # type: ignore[import-not-found]

    elsewhere = RayWorkers(ADDRESS[-1], runtime_env={"env_vars": {"PYTHONPATH": str(Path(__file__).parents[4])}})
    with pytest.raises(RunFailed, match=r"^worker [01] on Ray has no module 'only_here': install it on all"):
        play(tmp_path, only_here.make_policy, backend=elsewhere)


def test_nodes_with_another_version_of_the_project_are_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import async_wrappers.version\nasync_wrappers.version.__version__ = '0.0.1'\n"
    )
    places = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[4])])
    elsewhere = RayWorkers(ADDRESS[-1], runtime_env={"env_vars": {"PYTHONPATH": places}})
    with pytest.raises(RunFailed, match=r"on Ray has async_wrappers 0\.0\.1, and the environment loop .*: inst"):
        play(tmp_path, partial(Echo, tmp_path), backend=elsewhere)


def test_a_cluster_without_room_is_a_sentence_after_the_start_timeout(tmp_path: Path) -> None:
    with pytest.raises(NoWorkers, match="Ray has not started them: each asks for num_cpus=1 and num_gpus=1, "):
        play(tmp_path, partial(Echo, tmp_path), backend=RayWorkers(ADDRESS[-1], num_gpus=1), start_timeout=0.5)


def test_nobody_at_the_address_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(NoCluster, match=r"^address 127\.0\.0\.1:1: no Ray cluster answers there"):
        play(tmp_path, partial(Echo, tmp_path), backend=RayWorkers("127.0.0.1:1"))

"""`AsyncRunner(record=...)`: what a recording tells is what was played, and nothing that befalls it ends a run."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from async_wrappers import AsyncRunner, Chunk, Limits, load_recording
from async_wrappers.envs import EpisodicLife
from async_wrappers.latency import LogNormal
from async_wrappers.live.loop.loop import episode_seed
from tests.worlds.lives_env import LivesEnv
from tests.worlds.recording_env import NOOP, RecordingEnv

ROOT = Path(__file__).parents[4]


def policy(observation: Any) -> int:
    return int(observation[1]) % 5


def virtual(directory: Path, make_env: Any, make_policy: Any = lambda: policy, **arguments: Any) -> AsyncRunner:
    given = {"latency": LogNormal(0.05, 0.5), "backend": "virtual", "seed": 3, **arguments}
    return AsyncRunner(make_env, make_policy, 3, 60, record=directory, **given)


def test_the_recorded_actions_played_again_give_what_was_recorded(tmp_path: Path) -> None:
    with virtual(tmp_path / "run", lambda: RecordingEnv(length=[9, 30, 4], rewards=(1.0, 0.25))) as runner:
        report = runner.run(frames=100)
    found = load_recording(tmp_path / "run")
    assert [len(episode) for episode in found] == [episode.frames for episode in report.episodes]
    env = RecordingEnv(length=[9, 30, 4], rewards=(1.0, 0.25))
    for number, episode in enumerate(found):
        assert (episode.phase, episode.number) == (0, number)
        seen = [env.reset(seed=episode_seed(3, 0, number))[0]]
        for frame, action in enumerate(episode.sent):
            observation, reward, terminated, _, _ = env.step(int(action))
            seen.append(observation)
            assert reward == episode.rewards[frame]
        assert np.array_equal(seen, episode.observations)
        assert terminated == episode.terminated
    fresh = [~episode.columns["default"] for episode in found]
    assert sum(each.sum() for each in fresh) == report.frames["fresh"]
    delays = found.delays()
    assert (delays.mean(), delays.max()) == (report.delay_frames["mean"], report.delay_frames["max"])
    assert report.recording == {"directory": str(tmp_path / "run"), "frames": 100, "dropped": 0}
    assert f"recording  100 frames in {tmp_path / 'run'}, 0 dropped" in str(report)


def test_the_policys_actions_answer_the_frames_that_they_started_from(tmp_path: Path) -> None:
    with virtual(tmp_path / "run", RecordingEnv) as runner:
        runner.run(frames=60)
    (episode,) = load_recording(tmp_path / "run")
    columns = episode.columns
    fresh = ~columns["default"]
    assert (columns["frame"] - columns["start"] == columns["delay"])[fresh].all()
    assert episode.drawn[fresh].tolist() == [policy(episode.observations[start]) for start in columns["start"][fresh]]
    assert (episode.drawn[~fresh] == NOOP).all()
    assert (columns["start"][~fresh] == -1).all()
    assert columns["deadline"].tolist() == [-(-(10**9) * frame // 60) for frame in range(60)]
    assert not (
        columns["late"].any() or columns["paused"].any() or columns["limited"].any() or columns["lateness"].any()
    )


def test_a_chunks_frames_name_the_decision_that_drew_them(tmp_path: Path) -> None:
    def make_policy() -> Any:
        return lambda observation: np.full(9, observation[1] % 5)

    chunk = Chunk(9, after="noop")
    with virtual(tmp_path / "run", RecordingEnv, make_policy, default_action=chunk, slot=4, playout=4) as runner:
        runner.run(frames=60)
    (episode,) = load_recording(tmp_path / "run")
    columns = episode.columns
    fresh = ~columns["default"]
    assert fresh.sum() > 40
    assert episode.drawn[fresh].tolist() == (columns["start"][fresh] % 5).tolist()
    assert (columns["delay"][fresh] >= 4).all()


def test_a_pause_and_a_lost_life_are_in_the_rows(tmp_path: Path) -> None:
    def operator(status: Any) -> None:
        if status.frame == 5:
            status.pause()
        if status.frame == 8:
            status.resume()

    with virtual(
        tmp_path / "lives", lambda: EpisodicLife(LivesEnv()), lambda: lambda observation: 1, default_action=0
    ) as runner:
        runner.run(episodes=1)
    assert [len(episode) for episode in load_recording(tmp_path / "lives")] == [5, 4, 4]
    assert [episode.number for episode in load_recording(tmp_path / "lives")] == [0, 0, 0]
    assert all(episode.terminated for episode in load_recording(tmp_path / "lives"))
    with virtual(tmp_path / "pause", RecordingEnv) as runner:
        runner.run(frames=12, on_frame=operator)
    (episode,) = load_recording(tmp_path / "pause")
    assert np.flatnonzero(episode.columns["paused"]).tolist() == [5, 6, 7]
    assert episode.columns["default"][5:8].all()
    assert not episode.terminated


class Clipping:
    """A machine that sends half of what it is told."""

    observation_space = spaces.Box(0, 1000, (1,), np.float32)
    action_space = spaces.Box(-1, 1, (1,), np.float32)
    noop_action = np.zeros(1, np.float32)

    def reset(self, *, seed: Any, options: Any) -> Any:
        self.frame = 0
        return np.zeros(1, np.float32), {}

    def send(self, action: Any) -> Any:
        return action / 2 if action[0] else None

    def observe(self) -> Any:
        self.frame += 1
        return np.full(1, self.frame, np.float32), 1.0, False, False, {}

    def close(self) -> None:
        pass


def test_what_a_machine_really_sent_is_beside_what_was_drawn(tmp_path: Path) -> None:
    def make_policy() -> Any:
        return lambda observation: np.full(1, 0.5, np.float32)

    with virtual(tmp_path / "run", Clipping, make_policy) as runner:
        runner.run(frames=30)
    (episode,) = load_recording(tmp_path / "run")
    fresh = ~episode.columns["default"]
    assert fresh.any()
    assert not episode.columns["limited"].any()  # by its driver, not by a limit
    assert (episode.drawn[fresh] == 0.5).all()
    assert (episode.sent[fresh] == 0.25).all()
    assert (episode.sent[~fresh] == 0).all()
    assert episode.observations[:, 0].tolist() == list(range(31))


def test_a_limited_frame_is_marked_and_no_other_one(tmp_path: Path) -> None:
    limits = Limits(rate=0.2, unit="per frame")
    with virtual(tmp_path / "run", Clipping, lambda: lambda observation: np.ones(1, np.float32), limits=limits) as run:
        report = run.run(frames=30)
    (episode,) = load_recording(tmp_path / "run")
    limited = episode.columns["limited"]
    assert 4 <= limited.sum() == report.frames["limited"] < 30
    assert (np.abs(episode.drawn - 2 * episode.sent)[~limited] < 1e-6).all()  # its driver's doing alone


def test_runs_of_a_with_block_share_a_recording(tmp_path: Path) -> None:
    with virtual(tmp_path / "run", lambda: RecordingEnv(length=5)) as runner:
        runner.run(episodes=2)
        assert runner.run(episodes=1, eval_mode=True).recording == {
            "directory": str(tmp_path / "run"),
            "frames": 5,
            "dropped": 0,
        }
    assert [(episode.phase, episode.number) for episode in load_recording(tmp_path / "run")] == [(0, 0), (0, 1), (1, 0)]


def test_dicts_and_pictures_come_back(tmp_path: Path) -> None:
    class Arm(RecordingEnv):
        def __init__(self) -> None:
            super().__init__(length=7)
            self.observation_space = spaces.Dict(
                {"picture": spaces.Box(0, 255, (4, 4, 3), np.uint8), "joints": spaces.Box(-1, 1, (2,), np.float32)}
            )
            self.action_space = spaces.Box(-1, 1, (2,), np.float32)

        def show(self) -> Any:
            frame = len(self.actions)
            return {"picture": np.full((4, 4, 3), frame, np.uint8), "joints": np.full(2, frame / 9, np.float32)}, {}

    def answers() -> Any:
        return lambda observation: -observation["joints"]

    with virtual(tmp_path / "run", Arm, answers, default_action="repeat") as runner:
        runner.run(episodes=1)
    (episode,) = load_recording(tmp_path / "run")
    assert episode.observations["picture"][:, 0, 0, 0].tolist() == list(range(8))
    assert np.allclose(episode.observations["joints"][:, 0] * 9, range(8))
    assert episode.sent.dtype == np.float32
    assert episode.sent.shape == (7, 2)


def test_an_environment_that_writes_into_its_arrays_changes_no_row(tmp_path: Path) -> None:
    with virtual(tmp_path / "run", lambda: RecordingEnv(length=20, reuse=True)) as runner:
        runner.run(episodes=1)
    (episode,) = load_recording(tmp_path / "run")
    assert episode.observations[:, 1].tolist() == list(range(21))


def test_recording_changes_no_run(tmp_path: Path) -> None:
    with virtual(tmp_path / "run", lambda: RecordingEnv(length=50)) as runner:
        recorded = runner.run(frames=200).to_dict()
    given = {"latency": LogNormal(0.05, 0.5), "backend": "virtual", "seed": 3}
    plain = AsyncRunner(lambda: RecordingEnv(length=50), lambda: policy, 3, 60, **given).run(frames=200).to_dict()
    assert recorded.pop("recording") is not None
    assert plain.pop("recording") is None
    assert str(recorded) == str(plain)


@pytest.mark.parametrize("value", [3, "", ["runs"]])
def test_what_is_no_directory_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"record must be a directory, such as 'runs/arm-1', or None, got"):
        AsyncRunner(RecordingEnv, lambda: policy, 1, 60, backend="virtual", latency=0.1, record=value)


@pytest.mark.parametrize("backend", ["virtual", "thread"])
def test_a_directory_that_is_taken_is_told_and_the_run_goes_on(tmp_path: Path, backend: str) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.warns(RuntimeWarning, match=r"nothing is recorded: record='.*' must be a new directory"):  # noqa: SIM117
        with virtual(tmp_path, RecordingEnv, backend=backend, latency=0.001) as runner:
            report = runner.run(frames=10)
    assert report.frames["total"] == 10
    assert report.recording == {"directory": str(tmp_path), "frames": 0, "dropped": 10}
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_directory_that_cannot_be_made_is_told_and_the_run_goes_on(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.warns(RuntimeWarning, match=r"nothing is recorded: record='.*' cannot be written \(Not a directory\)"):  # noqa: SIM117
        with virtual(tmp_path / "file" / "run", RecordingEnv) as runner:
            assert runner.run(frames=10).frames["total"] == 10


# The process backend.


class Slow(gym.Env[Any, Any]):
    """Endless, with observations of 80 kB."""

    observation_space = spaces.Box(0, 255, (10_000,), np.int64)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.frame = 0
        return np.zeros(10_000, np.int64), {}

    def step(self, action: Any) -> Any:
        self.frame += 1
        return np.full(10_000, self.frame % 256, np.int64), 1.0, False, False, {}


def processes(directory: Path) -> AsyncRunner:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="workers=")
        return AsyncRunner(
            Slow, lambda: lambda observation: 1, 1, 100, latency=0.01, default_action=0, record=directory
        )


def test_a_process_records_and_its_death_ends_the_recording_alone(tmp_path: Path) -> None:
    with processes(tmp_path / "run") as runner:
        report = runner.run(frames=60)
        assert report.recording == {"directory": str(tmp_path / "run"), "frames": 60, "dropped": 0}
        pid = runner.pids["the recorder"]

        def kill(status: Any) -> None:
            if status.frame == 90:  # 60 of the phase before
                os.kill(pid, signal.SIGKILL)

        with pytest.warns(RuntimeWarning, match=r"ends here, as the recorder was ended by SIGKILL .*: the run goes on"):
            report = runner.run(frames=100, on_frame=kill)
        assert report.frames["total"] == 100
        assert report.recording is not None
        assert 0 < report.recording["dropped"] <= 100
        saved = 60 + report.recording["frames"]
        assert "the recorder" not in runner.pids
        assert runner.run(frames=10).recording == {"directory": str(tmp_path / "run"), "frames": 0, "dropped": 10}
    whole, *part = load_recording(tmp_path / "run")
    assert whole.observations[:, 0].tolist() == list(range(61))
    assert all(len(each) for each in part)
    assert len(whole) + sum(map(len, part)) == saved


def test_a_limit_of_the_disk_ends_the_recording_alone(tmp_path: Path) -> None:
    with processes(tmp_path / "run") as runner:
        runner.start()
        limit = 2_000_000
        resource.prlimit(runner.pids["the recorder"], resource.RLIMIT_FSIZE, (limit, limit))
        with pytest.warns(RuntimeWarning, match=r"the recording in .* ends here \(File too large\): the run goes on"):
            report = runner.run(frames=80)
    assert report.frames["total"] == 80
    (episode,) = load_recording(tmp_path / "run")
    assert 10 < len(episode) < 25
    assert episode.observations[:, 0].tolist() == list(range(len(episode) + 1))


def test_a_run_that_is_killed_leaves_its_frames(tmp_path: Path) -> None:
    code = (
        "from tests.async_wrappers.live.recording.test_recording import processes\n"
        "from pathlib import Path\n"
        "if __name__ == '__main__':\n"
        f"    processes(Path({str(tmp_path / 'run')!r})).run(frames=100_000)\n"
    )
    script = tmp_path / "script.py"
    script.write_text(code)
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, str(script)], cwd=ROOT, env=variables) as run:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            parts = list((tmp_path / "run").glob("*.part")) if (tmp_path / "run").exists() else []
            if parts and parts[0].stat().st_size > 2_000_000:
                break
            time.sleep(0.05)
        run.kill()
    deadline = time.monotonic() + 120
    while list((tmp_path / "run").glob("*.part")) and time.monotonic() < deadline:
        time.sleep(0.05)  # the recorder notices, finishes its file and ends
    (episode,) = load_recording(tmp_path / "run")
    assert [path.suffix for path in sorted((tmp_path / "run").iterdir())] == [".npy", ".json"]
    assert len(episode) > 20
    assert episode.observations[:, 0].tolist() == [frame % 256 for frame in range(len(episode) + 1)]

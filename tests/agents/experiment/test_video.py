"""Videos of episodes: all frames, at the environment's pace, and nothing else changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import gymnasium as gym
import pytest

pytest.importorskip("moviepy")

from async_wrappers import RealtimeDelay
from async_wrappers.agents.experiment.evaluate import evaluate
from async_wrappers.agents.experiment.video import check_recordable, recorded
from async_wrappers.agents.play.turns.baselines import RandomAgent
from async_wrappers.envs import create_atari_environment
from tests.worlds.recording_env import RecordingEnv


def frames_and_rate(path: Path) -> tuple[int, float]:
    clip = cv2.VideoCapture(str(path))
    frames = 0
    while clip.grab():
        frames += 1
    return frames, clip.get(cv2.CAP_PROP_FPS)


def assert_shows(path: Path, frames: int) -> None:
    """The images after the reset and each frame, the last one perhaps twice, at 60 a second."""
    shown, rate = frames_and_rate(path)
    assert (shown in (frames + 1, frames + 2), rate) == (True, 60)


@pytest.mark.parametrize("wrapped", [True, False])
def test_a_video_shows_every_frame_under_a_delay_too(tmp_path: Path, wrapped: bool) -> None:
    env: Any = RecordingEnv(length=[10, 7], render_mode="rgb_array")
    env = RealtimeDelay(env, delay=2, noops=2) if wrapped else env
    with recorded(env, tmp_path / "videos") as played:
        episodes = evaluate(RandomAgent(env), played, 2, seed=0)
    assert [episode.frames for episode in episodes] == [10, 7]
    videos = sorted((tmp_path / "videos").iterdir())
    assert [path.name for path in videos] == ["evaluation-episode-0.mp4", "evaluation-episode-1.mp4"]
    for path, frames in zip(videos, (10, 7), strict=True):
        assert_shows(path, frames)
    assert [path.name for path in tmp_path.iterdir()] == ["videos"]


def test_an_atari_video_shows_every_emulated_frame_and_changes_no_score(tmp_path: Path) -> None:
    seen = []
    for video in (False, True):
        env = create_atari_environment("Boxing", frame_skip=3, render_mode="rgb_array" if video else None)
        env = RealtimeDelay(env, delay=1, noops=1)
        agent = RandomAgent(env, seed=1)
        if video:
            with recorded(env, tmp_path / "videos") as played:
                seen.append(evaluate(agent, played, 1, seed=4, max_frames=60))
        else:
            seen.append(evaluate(agent, env, 1, seed=4, max_frames=60))
    assert seen[0] == seen[1]
    (path,) = (tmp_path / "videos").iterdir()
    assert_shows(path, 3 * seen[0][0].frames)


def test_a_video_goes_at_the_pace_of_the_innermost_environments_steps(tmp_path: Path) -> None:
    """Pendulum swings 20 times a second, and states 30 pictures."""
    env = gym.wrappers.RepeatAction(gym.make("Pendulum-v1", render_mode="rgb_array", max_episode_steps=6), 2)
    with recorded(env, tmp_path / "videos") as played:
        evaluate(RandomAgent(env), played, 1, seed=0)
    (path,) = (tmp_path / "videos").iterdir()
    frames, rate = frames_and_rate(path)
    assert (frames in (7, 8), rate) == (True, 20)


def test_videos_take_the_place_of_older_ones_only_when_they_are_whole(tmp_path: Path) -> None:
    directory = tmp_path / "videos"
    directory.mkdir()
    (directory / "evaluation-episode-7.mp4").write_bytes(b"older")
    env = gym.wrappers.OrderEnforcing(RecordingEnv(length=4, render_mode="rgb_array"))

    def play(steps: int) -> None:
        with recorded(env, directory) as played:
            played.reset()
            for step in range(steps):
                if step == 2:
                    raise KeyboardInterrupt
                played.step(0)

    with pytest.raises(KeyboardInterrupt):
        play(3)
    assert [path.name for path in directory.iterdir()] == ["evaluation-episode-7.mp4"]
    assert [path.name for path in tmp_path.iterdir()] == ["videos"]
    play(2)
    assert [path.name for path in directory.iterdir()] == ["evaluation-episode-0.mp4"]
    assert env.env is env.unwrapped


class TestRefused:
    def test_an_environment_without_images(self) -> None:
        with pytest.raises(ValueError, match=r"^a video needs render_mode 'rgb_array', and .* has none$"):
            check_recordable(NoImages())

    def test_an_environment_that_was_made_without_a_render_mode(self) -> None:
        with pytest.raises(ValueError, match=r"^a video needs an environment that was made with render_mode"):
            check_recordable(RecordingEnv())


class NoImages(gym.Env[Any, Any]):
    pass

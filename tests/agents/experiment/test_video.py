"""Videos of episodes: all frames, at the environment's pace, and nothing else changed."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import cv2
import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("moviepy")

from async_wrappers import RealtimeDelay
from async_wrappers.agents.experiment import film as film_module
from async_wrappers.agents.experiment.evaluate import evaluate
from async_wrappers.agents.experiment.film import Film, beside, enlarged
from async_wrappers.agents.experiment.video import check_beside, check_recordable, filmed, recorded
from async_wrappers.agents.play.turns.baselines import RandomAgent
from async_wrappers.envs import create_atari_environment
from tests.worlds.agents import make_dqn
from tests.worlds.experiments import experiment
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
    with recorded(env, tmp_path / "videos", slow=1) as played:
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
            with recorded(env, tmp_path / "videos", slow=1) as played:
                seen.append(evaluate(agent, played, 1, seed=4, max_frames=60))
        else:
            seen.append(evaluate(agent, env, 1, seed=4, max_frames=60))
    assert seen[0] == seen[1]
    (path,) = (tmp_path / "videos").iterdir()
    assert_shows(path, 3 * seen[0][0].frames)


def test_a_video_goes_at_the_pace_of_the_innermost_environments_steps(tmp_path: Path) -> None:
    """Pendulum swings 20 times a second, and states 30 pictures."""
    env = gym.wrappers.RepeatAction(gym.make("Pendulum-v1", render_mode="rgb_array", max_episode_steps=6), 2)
    for slow, paces in ((1, 20), (4, 5), (None, 20 / 8)):  # a short episode is slowed down, as far as can be followed
        with recorded(env, tmp_path / "videos", slow=slow) as played:
            evaluate(RandomAgent(env), played, 1, seed=0)
        (path,) = (tmp_path / "videos").iterdir()
        frames, rate = frames_and_rate(path)
        assert (frames in (7, 8), rate) == (True, paces)


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


def test_of_two_evaluations_at_a_time_each_makes_whole_videos(tmp_path: Path) -> None:
    """The second one begins and ends while the first one plays."""
    directory = tmp_path / "videos"
    (tmp_path / "videos.tmp").mkdir()
    (tmp_path / "videos.tmp" / "evaluation-episode-9.mp4").write_bytes(b"left by a killed process")

    def play(frames: int, episodes: int, amid: Any = lambda: None) -> None:
        env = RecordingEnv(length=frames, render_mode="rgb_array")
        with recorded(env, directory, slow=1) as played:
            evaluate(RandomAgent(env), played, 1, seed=0)
            amid()
            evaluate(RandomAgent(env), played, episodes - 1, seed=0)

    def check(frames: int, episodes: int) -> None:
        videos = sorted(directory.iterdir())
        assert [path.name for path in videos] == [f"evaluation-episode-{number}.mp4" for number in range(episodes)]
        for path in videos:
            assert_shows(path, frames)

    def another() -> None:
        play(6, 3)
        check(6, 3)

    play(4, 2, another)
    check(4, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["videos"]


class Pixels(RecordingEnv):
    """An image of three rows of two pixels, ten times as bright as the number of frames played."""

    def render(self) -> Any:
        return np.full((3, 2, 3), 10 * len(self.actions), np.uint8)


UP, DOWN, NOOP = 0, 1, 2


def film_of(env: Any, actions: list[int], seed: int = 0) -> list[Film]:
    films: list[Film] = []
    with filmed(env, "mine", films.append) as played:
        played.reset(seed=seed)
        over, left = False, list(actions)
        while not over:
            _, _, terminated, truncated, _ = played.step(left.pop(0))
            over = terminated or truncated
    return films


def test_a_film_knows_what_lands_and_what_is_chosen_on_each_frame() -> None:
    env = RealtimeDelay(Pixels(length=7, render_mode="rgb_array"), delay=2, noops=1, default_action="noop")
    (film,) = film_of(env, [UP, UP, DOWN, UP])
    assert (film.title, film.way) == ("mine", "delay 2 frames, 1 no-op")
    assert film.frames == list(range(8)) == [image[0, 0, 0] // 10 for image in film.images]
    assert film.landed == [NOOP, NOOP, UP, NOOP, UP, NOOP, DOWN]
    assert film.choices == [(0, 2, UP), (2, 4, UP), (4, 6, DOWN)]
    assert film.scores == list(range(8))  # a reward of 1 for each frame
    assert env.env is env.unwrapped  # the camera is gone
    # What is drawn: on frame 5 a default action landed last; the action of frame 4 lands on frame 6.
    words = drawn(film, 5)
    assert {"mine", "delay 2 frames, 1 no-op", "score 5", "frame 5"} <= words
    assert {"lands: UP, seen 2 frames before", "chosen: DOWN, lands in 1 frame"} <= words
    assert {"lands: NOOP (default)", "chosen: DOWN, lands in 2 frames"} <= drawn(film, 4)
    assert {"lands: nothing yet", "chosen: UP, lands in 2 frames"} <= drawn(film, 0)


@pytest.mark.parametrize(("age", "said"), [(0, "0 frames old"), (1, "1 frame old")])
def test_a_film_names_what_a_fast_path_reads(age: int, said: str) -> None:
    env = RealtimeDelay(Pixels(length=7, render_mode="rgb_array"), delay=2, default_action="noop")
    env.report_fresh("fast_age", age)
    (film,) = film_of(env, [UP] * 7)
    assert film.way == f"delay 2 frames, fast path {said}"
    assert {film.way, f"lands: UP, seen 2 frames before and {age} before"} <= drawn(film, 5)


def drawn(film: Film, number: int) -> set[str]:
    """Return the words on an image."""
    said = set[str]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(film_module, "_write", lambda draw, left, top, text, *rest, **named: said.add(text))
        film.panel(number)
    return said


def test_a_film_without_delay_shows_each_action_on_its_own_frame() -> None:
    (film,) = film_of(Pixels(length=3, render_mode="rgb_array"), [UP, DOWN, UP])
    assert (film.way, film.landed, film.choices) == ("no delay", [UP, DOWN, UP], [(0, 0, UP), (1, 1, DOWN), (2, 2, UP)])
    assert "lands: UP, seen on this frame" in drawn(film, 1)


def test_an_action_of_any_space_has_a_word() -> None:
    film = Film("", "", ("NOOP", "UP"), landed=[np.zeros(2)])
    assert [film.word(each) for each in (1, np.int64(0), 7)] == ["UP", "NOOP", "7"]
    assert film.word(np.array([0.123, -1.0])) == "[0.12, -1]"
    assert film.word(np.zeros((3, 2))) == "a chunk of 3"
    assert film.word({"move": np.array([1.0]), "fire": 1}).startswith("{'move': ")
    assert film.word((1, 0)) == "(1, 0)"


def test_an_image_is_enlarged_to_480_pixels_without_blur() -> None:
    image = np.arange(210 * 160 * 3, dtype=np.uint8).reshape(210, 160, 3)
    large = np.asarray(enlarged(image))
    assert large.shape == (630, 480, 3)
    np.testing.assert_array_equal(large[::3, ::3], image)
    np.testing.assert_array_equal(large[2::3, 1::3], image)
    assert enlarged(np.zeros((400, 600, 3), np.uint8)).size == (600, 400)
    (film,) = film_of(Pixels(length=2, render_mode="rgb_array"), [0, 0])
    panel = np.asarray(film.panel(2))
    assert panel.shape[1] == 480 and set(np.unique(panel[200:300, 200:300])) == {20}


def test_films_stand_side_by_side_and_one_that_is_over_stands_still() -> None:
    (short,) = film_of(Pixels(length=2, render_mode="rgb_array"), [0, 0])
    (long,) = film_of(Pixels(length=5, render_mode="rgb_array"), [0] * 5)
    pictures = [np.asarray(each) for each in beside([short, long])]
    assert len(pictures) == 6
    assert {(each.shape[0] % 2, each.shape[1] % 2) for each in pictures} == {(0, 0)}
    assert [(int(each[300, 240, 0]), int(each[300, 720, 0])) for each in pictures] == [
        (10 * min(k, 2), 10 * k) for k in range(6)
    ]


def test_another_way_plays_the_same_episodes_beside(tmp_path: Path) -> None:
    def experiment_of(name: str, delay: int) -> Any:
        make = partial(Pixels, length=[6, 4], render_mode="rgb_array")
        return experiment(tmp_path / name, lambda: RealtimeDelay(make(), delay, 0, "noop"), make_dqn)

    one, other = experiment_of("one", 0), experiment_of("other", 2)
    alone = [one.evaluation(one.agent, 2), other.evaluation(other.agent, 2)]
    one, other = experiment_of("one", 0), experiment_of("other", 2)
    both = one.evaluation(one.agent, 2, tmp_path / "videos", "one", (other, other.agent, "other"), slow=1)
    assert both == alone[0]
    assert [len(each) for each in other.environment.unwrapped.episodes] == [6, 4]
    for number, frames in enumerate((6, 4)):
        path = tmp_path / "videos" / f"evaluation-episode-{number}.mp4"
        assert_shows(path, frames)
        clip = cv2.VideoCapture(str(path))
        assert clip.get(cv2.CAP_PROP_FRAME_WIDTH) == 960


class TestRefused:
    def test_films_of_another_game_or_pace_beside(self) -> None:
        one, other = gym.make("CartPole-v1"), gym.make("Acrobot-v1")
        with pytest.raises(ValueError, match=r"^--beside must be of the same environment, CartPole-v1, got Acrobot-v1"):
            check_beside(one, other)
        slow = Pixels()
        slow.metadata = {**slow.metadata, "render_fps": 20}
        with pytest.raises(ValueError, match=r"^--beside must have as many frames a second, 60, got 20: name another"):
            check_beside(Pixels(), slow)

    def test_an_environment_without_images(self) -> None:
        with pytest.raises(ValueError, match=r"^a video needs render_mode 'rgb_array', and .* has none$"):
            check_recordable(NoImages())

    def test_an_environment_that_was_made_without_a_render_mode(self) -> None:
        with pytest.raises(ValueError, match=r"^a video needs an environment that was made with render_mode"):
            check_recordable(RecordingEnv())


class NoImages(gym.Env[Any, Any]):
    pass

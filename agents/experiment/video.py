"""Videos of episodes: each step of the innermost environment is an image, at that environment's own pace."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from async_wrappers.agents.experiment.film import Choice, Film, beside
from async_wrappers.agents.play.play import delay_in_words, delay_layer
from async_wrappers.extras import extra
from async_wrappers.files import unfinished
from async_wrappers.frame_rate import frame_rate

_PRESET = "veryfast"  # of the encoder: faster than its default, and no larger
_SHORT = 5.0  # seconds, of an episode that can be followed
_SLOWEST = 8  # times slower
_PACE = 30  # images a second, where an environment does not say its own


def check_recordable(environment: gym.Env[Any, Any]) -> None:
    """Refuse an environment of which no video can be made.

    Raises:
        ValueError: It renders no images.
        DependencyNotInstalled: The extra `video` is not installed.
    """
    modes = environment.unwrapped.metadata.get("render_modes", [])
    if "rgb_array" not in modes:
        raise ValueError(f"a video needs render_mode 'rgb_array', and {environment.unwrapped} has {modes or 'none'}")
    if environment.unwrapped.render_mode != "rgb_array":
        raise ValueError(
            f"a video needs an environment that was made with render_mode 'rgb_array', got "
            f"{environment.unwrapped.render_mode!r}: bind the render_mode of what makes it"
        )
    with extra("a video", "video"):
        import moviepy  # noqa: F401


def check_beside(one: gym.Env[Any, Any], other: gym.Env[Any, Any]) -> None:
    """Refuse two environments whose films cannot be followed side by side.

    Raises:
        ValueError: They are of another game, or their frames last longer in one than in the other.
    """
    names = [each.unwrapped.spec.id if each.unwrapped.spec else type(each.unwrapped).__name__ for each in (one, other)]
    if names[0] != names[1]:
        raise ValueError(f"--beside must be of the same environment, {names[0]}, got {names[1]}: name another one")
    paces = [_pace(each.unwrapped) for each in (one, other)]
    if paces[0] != paces[1]:
        raise ValueError(
            f"--beside must have as many frames a second, {paces[0]:g}, got {paces[1]:g}: name another one"
        )


@contextmanager
def filmed(environment: gym.Env[Any, Any], title: str, show: Callable[[Film], None]) -> Iterator[Filmed]:
    """Film every episode that is played in the context.

    The camera is put beneath all wrappers: frames that a delay or a frame skip passes over are filmed too. The images
    of an episode are held in memory until its end.

    Args:
        environment: Made with ``render_mode="rgb_array"``; filming does not change its play.
        title: Who plays.
        show: Receives each film when its episode is over, the last one at the end of the context.

    Yields:
        The environment that is to be played; its ``cut()`` ends a film before the next episode begins.

    Raises:
        ValueError: As `check_recordable`.
    """
    check_recordable(environment)
    camera = _Camera(title, delay_in_words(environment), show)
    outside: gym.Env[Any, Any] = gym.Wrapper(environment)
    base: Any = outside
    while isinstance(base.env, gym.Wrapper):
        base = base.env
    layer: Any = delay_layer(environment) or outside
    within, innermost = layer.env, base.env
    base.env = _Lens(innermost, camera)
    layer.env = _Frames(layer.env, camera)  # after the lens, which may be what it holds
    try:
        yield Filmed(outside, camera, layer)
        camera.cut()
    finally:
        layer.env = within
        base.env = innermost


@contextmanager
def recorded(
    environment: gym.Env[Any, Any],
    directory: Path,
    title: str = "",
    other: Callable[[], Film] | None = None,
    slow: int | None = None,
) -> Iterator[gym.Env[Any, Any]]:
    """Record every episode that is played in the context, at the pace of the innermost environment's steps.

    Args:
        environment: As in `filmed`.
        directory: Receives ``evaluation-episode-N.mp4`` when the context ends, and only then; older videos there are
            replaced.
        title: As in `filmed`.
        other: Plays the same episode otherwise, and returns its film, which is shown beside this one's.
        slow: How many times as long each image is shown; None is as often as an episode takes `_SHORT` seconds, and at
            most `_SLOWEST` times. The film says so.

    Yields:
        The environment that is to be played.

    Raises:
        ValueError: As `check_recordable`.
    """
    check_recordable(environment)
    pace, number = _pace(environment.unwrapped), 0
    with unfinished(directory, _opened_directory) as place:
        for left in place.iterdir():  # by a killed process
            left.unlink()

        def write(film: Film) -> None:
            nonlocal number
            films = [film] if other is None else [film, other()]
            _write(place / f"evaluation-episode-{number}.mp4", films, pace, slow)
            number += 1

        with filmed(environment, title, write) as played:
            yield played
        shutil.rmtree(directory, ignore_errors=True)
        place.rename(directory)


def _opened_directory(path: Path) -> int:
    path.mkdir(parents=True, exist_ok=True)
    return os.open(path if os.name == "posix" else os.devnull, os.O_RDONLY)  # Windows opens no directory


def _pace(environment: gym.Env[Any, Any]) -> float:
    """Return the images of a second."""
    try:
        return frame_rate(environment)
    except ValueError:
        return float(environment.metadata.get("render_fps", _PACE))


def _write(path: Path, films: Sequence[Film], pace: float, slow: int | None) -> None:
    """Write films side by side."""
    from moviepy.video.io.ffmpeg_writer import FFMPEG_VideoWriter

    if slow is None:
        seconds = max(len(film.images) for film in films) / pace
        slow = min(math.ceil(_SHORT / seconds), _SLOWEST)
    if slow > 1:
        pace /= slow
        for film in films:
            film.way += f", {slow} times slower"
    images = beside(films)
    first = next(images)
    with closing(FFMPEG_VideoWriter(str(path), first.size, pace, preset=_PRESET)) as writer:
        writer.write_frame(np.asarray(first))
        for image in images:
            writer.write_frame(np.asarray(image))


class _Camera:
    """What three layers see of an episode: the images, what the environment receives, and the decisions.

    Args:
        title: Who plays.
        delay: In words.
        show: Receives each film.
    """

    def __init__(self, title: str, delay: str, show: Callable[[Film], None]) -> None:
        self._title, self._way = title, "no delay" if delay == "none" else f"delay {delay}"
        self._show = show
        self.before = 0  # frames before the running life
        self.film = self._new()

    def _new(self, meanings: Sequence[str] = ()) -> Film:
        return Film(self._title, self._way, meanings)

    def say_fast_age(self, age: int | None) -> None:
        """Name the age of the frame that a fast path reads as its action lands; None where there is no fast path."""
        if age is not None:
            self.film.way = f"{self._way}, fast path {age} frame{'s' * (age != 1)} old"
            self.film.fast_age = age

    def cut(self) -> None:
        """End the film; one of a reset alone, such as no-ops at the start, is forgotten."""
        if self.film.landed:
            self._show(self.film)
        self.film = self._new(self.film.meanings)

    def shoot(self, environment: gym.Env[Any, Any], score: float) -> None:
        """Add an image, and the score until then."""
        film = self.film
        film.images.append(np.array(environment.render(), np.uint8))
        film.frames.append(len(film.landed))
        film.scores.append(score)


class _Lens(gym.Wrapper[Any, Any, Any, Any]):
    """Beneath all wrappers: takes an image after a reset and after each step."""

    def __init__(self, env: gym.Env[Any, Any], camera: _Camera) -> None:
        super().__init__(env)
        self._camera, self._score = camera, 0.0
        if hasattr(env, "get_action_meanings"):
            camera.film.meanings = env.get_action_meanings()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self._camera.cut()
        begun = self.env.reset(seed=seed, options=options)
        self._score = 0.0
        self._camera.shoot(self.env, self._score)
        return begun

    def step(self, action: Any) -> Any:
        outcome = self.env.step(action)
        self._score += float(outcome[1])
        self._camera.shoot(self.env, self._score)
        return outcome


class _Frames(gym.Wrapper[Any, Any, Any, Any]):
    """Inside the delay, where a step is a frame: notes the action that lands."""

    def __init__(self, env: gym.Env[Any, Any], camera: _Camera) -> None:
        super().__init__(env)
        self._camera = camera

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        begun = self.env.reset(seed=seed, options=options)
        self._camera.before = len(self._camera.film.landed)
        return begun

    def step(self, action: Any) -> Any:
        self._camera.film.landed.append(action)
        return self.env.step(action)


class Filmed(gym.Wrapper[Any, Any, Any, Any]):
    """Outside of all: notes the decisions, each with its observation's frame and the one on which it landed."""

    def __init__(self, env: gym.Env[Any, Any], camera: _Camera, layer: Any) -> None:
        super().__init__(env)
        self._camera, self._layer, self._start = camera, layer, 0

    def cut(self) -> None:
        """End the film."""
        self._camera.cut()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """See Gymnasium."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._start = self._camera.before
        self._camera.say_fast_age(getattr(self._layer, "fresh_age", None))
        return observation, info

    def step(self, action: Any) -> Any:
        """See Gymnasium."""
        outcome = self.env.step(action)
        film, start, told = self._camera.film, self._start, outcome[-1].get("realtime")
        if told is None:
            self._start = len(film.landed)
            film.choices.append(Choice(self._start - 1, self._start - 1, action))
        else:
            self._start = self._camera.before + int(told["start"])
            if told["applied"]:
                film.choices.append(Choice(start, start + int(told["delay"]), action))
        return outcome

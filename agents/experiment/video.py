"""Videos of episodes: each step of the innermost environment is an image, at that environment's own pace."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium as gym
from gymnasium.wrappers import RecordVideo

from async_wrappers.extras import extra
from async_wrappers.frame_rate import frame_rate


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


@contextmanager
def recorded(environment: gym.Env[Any, Any], directory: Path) -> Iterator[gym.Env[Any, Any]]:
    """Record every episode that is played in the context, by Gymnasium's ``RecordVideo``.

    It is put beneath all wrappers: frames that a delay or a frame skip passes over are recorded too, and frames per
    second are those of the innermost environment's steps (`async_wrappers.frame_rate.frame_rate`). The images
    of an episode are held in memory until its end; the last one is shown twice.

    Args:
        environment: Made with ``render_mode="rgb_array"``; recording does not change its play.
        directory: Receives ``evaluation-episode-N.mp4`` when the context ends, and only then; older videos there are
            replaced.

    Yields:
        The environment that is to be played; `environment` itself where it has wrappers.

    Raises:
        ValueError: As `check_recordable`.
    """
    check_recordable(environment)
    unfinished = directory.with_name(directory.name + ".tmp")
    shutil.rmtree(unfinished, ignore_errors=True)
    innermost, base = None, environment
    while isinstance(base, gym.Wrapper):
        innermost, base = base, base.env
    pace: dict[str, Any] = {"fps": _pace(base), "name_prefix": "evaluation"}
    recorder = _Recorder(base, str(unfinished), episode_trigger=lambda number: True, **pace)
    if innermost is not None:
        innermost.env = recorder
    try:
        yield recorder if innermost is None else environment
        if recorder.recording:
            recorder.stop_recording()
    except BaseException:
        recorder.recorded_frames.clear()  # the unfinished video is dropped
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    finally:
        if innermost is not None:
            innermost.env = base
    shutil.rmtree(directory, ignore_errors=True)
    unfinished.rename(directory)


def _pace(environment: gym.Env[Any, Any]) -> float | None:
    """Return the images of a second; None for Gymnasium's guess, where the environment says nothing of its time."""
    try:
        return frame_rate(environment)
    except ValueError:
        return None


class _Recorder(RecordVideo[Any, Any]):
    """`RecordVideo` with all images: moviepy rounds a video's length down, which may cost the last one."""

    def stop_recording(self) -> None:
        """Write the video, the last image twice."""
        self.recorded_frames.extend(self.recorded_frames[-1:])
        super().stop_recording()  # type: ignore[no-untyped-call]

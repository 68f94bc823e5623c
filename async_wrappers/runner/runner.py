"""`AsyncRunner`: N workers of one policy play one environment that does not wait."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import gymnasium as gym
import numpy as np

from async_wrappers.runner.virtual import VirtualBackend
from async_wrappers.simulation import SimulatedSchedule
from async_wrappers.timing import TimingReport

__all__ = ["AsyncRunner"]


class AsyncRunner:
    """Plays an environment with many workers of one slow policy, on the virtual clock.

    The environment loop, frame by frame: publish the observation, offer it to the workers, collect the actions that are
    released by now, apply one, or the default action. On the virtual clock an inference takes what the latency model
    says, whatever the policy really takes, and nothing sleeps: a run is deterministic by its seed, and gives the same
    frames, actions and rewards as `RealtimeDelay` with the same arguments and seeds.

    Args:
        make_env: Makes the environment, which is stepped once per frame.
        make_policy: Makes a policy (`Policy`, or a function of the observation); called once per worker.
        workers: How many infer at a time.
        fps: Frames per second.
        stagger: When workers start: a name or an object of `async_wrappers.stagger`.
        playout: With tickets: frames, or a quantile of the latency such as ``"p99"``.
        slot: With tickets: least distance between two starts, in frames.
        backend: ``"virtual"``, the virtual clock.
        latency: How long an inference takes on the virtual clock: a model of `async_wrappers.latency`, or seconds.
        default_action: As in `RealtimeDelay`.
        seed: Of the episodes: episode n is reset with a seed made of (seed, 0, n).
        eval_mode: What policies are told.

    Raises:
        ValueError: An argument out of range, or an unknown backend.

    Example:
        >>> import gymnasium as gym
        >>> from async_wrappers import AsyncRunner
        >>> runner = AsyncRunner(lambda: gym.make("CartPole-v1"), lambda: lambda observation: int(observation[2] > 0),
        ...                      workers=4, fps=50, latency=0.060, default_action="repeat")
        >>> report = runner.run(episodes=3)
        >>> report.frames["total"] > 20
        True
    """

    def __init__(
        self,
        make_env: Callable[[], gym.Env[Any, Any]],
        make_policy: Callable[[], Any],
        workers: int,
        fps: Any,
        stagger: Any = "tickets",
        playout: int | str = "p99",
        slot: int | None = None,
        *,
        backend: str = "virtual",
        latency: Any = None,
        default_action: Any = "noop",
        seed: int = 0,
        eval_mode: bool = False,
    ) -> None:
        """See the class."""
        if backend != "virtual":
            raise ValueError(f"backend must be 'virtual', got {backend!r}")
        if latency is None:
            raise ValueError("latency must be given on the virtual clock, as a model or in seconds, got None")
        schedule = SimulatedSchedule(latency, workers, fps, stagger, playout, slot)
        self._backend = VirtualBackend(make_env, make_policy, schedule, default_action, eval_mode)
        self._fps = schedule.clock.fps
        self._seed = _whole("seed", seed, 0)

    def run(
        self, *, frames: int | None = None, seconds: float | None = None, episodes: int | None = None
    ) -> TimingReport:
        """Play, and report.

        Args:
            frames: Stop after so many frames, in the middle of an episode if need be.
            seconds: Stop after so many seconds of the environment's time.
            episodes: Stop after so many episodes.

        Raises:
            ValueError: Not exactly one length is given, or it is not positive.
        """
        lengths = {"frames": frames, "seconds": seconds, "episodes": episodes}
        given = {name: value for name, value in lengths.items() if value is not None}
        if len(given) != 1:
            raise ValueError(f"give one of frames, seconds and episodes, got {given or 'none'}")
        if seconds is not None:
            frames = math.ceil(_seconds(seconds) * self._fps)
        return self._backend.run(
            self._seeds,
            None if frames is None else _whole("frames", frames, 1),
            None if episodes is None else _whole("episodes", episodes, 1),
        )

    def _seeds(self, episode: int) -> int:
        """Return the seed of an episode."""
        return int(np.random.SeedSequence((self._seed, 0, episode)).generate_state(1)[0]) & 0x7FFFFFFF


def _whole(name: str, value: Any, least: int) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} must be a whole number >= {least}, got {value!r}") from None
    if number < least:
        raise ValueError(f"{name} must be a whole number >= {least}, got {value!r}")
    return number


def _seconds(value: Any) -> Fraction:
    try:
        seconds = value if isinstance(value, Fraction) else Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        seconds = Fraction(0)
    if seconds <= 0:
        raise ValueError(f"seconds must be > 0 and finite, got {value!r}")
    return seconds

"""The arguments of `ServedRunner`, each declared once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import KW_ONLY, dataclass, field
from fractions import Fraction
from typing import Any

import gymnasium as gym

from async_wrappers import checks
from async_wrappers.frame_rate import frame_rate
from async_wrappers.latency import seconds_of
from async_wrappers.latency.batches import BatchLatency, LinearBatches
from async_wrappers.live.served.accelerators import refuse_slow
from async_wrappers.live.world.realtime import Realtime
from async_wrappers.posix import cores
from async_wrappers.schedule.dispatch import refuse_old_playout
from async_wrappers.schedule.served import ServedSchedule
from async_wrappers.settings import Settings, choice, declared, flag, setting, whole
from async_wrappers.wrappers.chunk import Chunk

_UNKNOWN = LinearBatches(0.0, 1e-6)  # of a real clock, whose batches take what they take


def _function(purpose: str) -> Callable[[str, Any], Any]:
    def check(name: str, value: Any) -> Any:
        checks.function(name, value, purpose)
        return value

    return check


def _latency(name: str, value: Any) -> BatchLatency:
    if not isinstance(value, BatchLatency):
        raise ValueError(f"{name} must be LinearBatches(...), MeasuredBatches(...) or another model, got {value!r}")
    return value


def _no_chunk(name: str, value: Any) -> Any:
    if isinstance(value, Chunk) or (isinstance(value, str) and value == "chunk"):
        raise ValueError(
            f"{name} must be no chunk in ServedRunner, whose batches hold one action for each environment, got "
            f"{value!r}: RealtimeDelay(schedule=ServedStream(...)) plays chunks on simulated time"
        )
    return value


def _timeout(name: str, value: Any) -> float | None:
    return None if value is None else checks.positive(name, value, "seconds", or_none=True)


def _realtime(name: str, value: Any) -> Realtime:
    if not isinstance(value, Realtime):
        raise ValueError(f"{name} must be a Realtime, such as Realtime(), or None, got {value!r}")
    return value


@dataclass(frozen=True, eq=False)
class ServedSettings(Settings):
    """The arguments of `ServedRunner`, checked."""

    make_env: Callable[[], gym.Env[Any, Any]] = field(
        metadata=declared("Makes one environment, which is stepped once per frame.", _function("makes an environment"))
    )
    make_policy: Callable[[], Callable[[Any], Any]] = field(
        metadata=declared(
            "Makes a policy, a function from observations [b, ...] to actions [b, ...] for any b, as `measure_batches` "
            "takes it; called once per accelerator, in its process.",
            _function("makes a policy"),
        )
    )
    environments: int = whole(1, "How many environments are served.", 1)
    fps: float | Fraction | None = setting(
        None, "Frames per second of each. None: the environment's (`async_wrappers.frame_rate.frame_rate`)."
    )
    playout: int = whole(1, "Frames from an observation to its action.", 1, unit="frames")
    _: KW_ONLY
    accelerators: int = whole(1, "Inference processes, one batch at a time each.", 1)
    every: int = whole(
        1, "Frames between two observations of an environment that are inferred; with 1 each one is.", 1, unit="frames"
    )
    phases: str | Sequence[int] = setting(
        "spread",
        '``"spread"``: the frames of the environments begin at different times; ``"together"``: all at once. Or '
        "nanoseconds by which those of each begin later.",
    )
    most: int | None = whole(None, "Greatest number of observations in a batch; None for no limit.", 1)
    processes: int | None = whole(
        None, "Processes that share the environments; None for as many as there are cores, or environments if fewer.", 1
    )
    backend: str = choice(
        "process",
        '``"process"``: environments and policies in processes, against the monotonic clock. ``"virtual"``: here, on '
        "simulated time, deterministic by the seed.",
        "process",
        "virtual",
    )
    latency: BatchLatency | None = setting(
        None, "On the virtual clock: how long a batch of b observations takes.", _latency
    )
    default_action: Any = setting(
        "noop", "As in `RealtimeDelay`, but for chunks: the action of a frame without one of the policy's.", _no_chunk
    )
    max_age: int | None = setting(
        None,
        "Greatest age in frames that an observation may have when its action is applied. An older action is refused, "
        "and the frame receives the default action. None for no limit.",
        checks.whole_frames,
        "It must be >= the playout.",
    )
    seed: int = whole(
        0, "Seed of episodes: episode n of environment i is reset with a seed made of it, i and n. And of `latency`.", 0
    )
    realtime: Realtime | None = setting(
        None,
        "`Realtime` scheduling of the processes of environments, on Linux. None: that of this process. On the virtual "
        "clock it is ignored.",
        _realtime,
    )
    log: bool = flag(
        False, "Whether the report has every decision, ``decisions`` and ``streams``: some 100 bytes for each."
    )
    start_timeout: float = setting(
        120.0,
        "Seconds that all processes have to make their environments and policies, and to infer once.",
        seconds_of,
        "It must be a number of seconds from 0 to 1e9.",
    )
    timeout: float | None = setting(
        60.0,
        "Seconds that a step or a reset of an environment may take. A process in which one takes longer is ended and "
        "started again, with a warning. None: no limit.",
        _timeout,
        "It must be > 0.",
    )

    def schedule(self) -> ServedSchedule:
        """Return the server that these arguments describe.

        Raises:
            ValueError: Two arguments do not go together.
        """
        if (self.latency is None) == (self.backend == "virtual"):
            raise ValueError(
                "latency must be given on the virtual clock, and there alone, as batches take what they take on a real "
                f"one, got latency={self.latency!r} with backend={self.backend!r}"
            )
        refuse_old_playout(self.max_age, self.playout)
        fps = self.fps
        if fps is None:
            with closing(self.make_env()) as env:
                fps = frame_rate(env)
        latency = self.latency or _UNKNOWN
        settings: dict[str, Any] = {name: getattr(self, name) for name in ("accelerators", "every", "phases", "most")}
        schedule = ServedSchedule(latency, self.environments, fps, self.playout, seed=self.seed, **settings)
        if self.latency is not None:
            refuse_slow(schedule, self.latency.mean(1), "the latency's batch")
        return schedule

    def process_count(self) -> int:
        """Return how many processes share the environments.

        Raises:
            ValueError: More than there are environments.
        """
        if self.processes is None:
            return min(cores(), self.environments)
        if self.processes > self.environments:
            raise ValueError(
                f"processes must be at most the {self.environments} environments that they share, got {self.processes}"
            )
        return self.processes

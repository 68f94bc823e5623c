"""The description of a run, from which a backend is made, and the interface of backends."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import gymnasium as gym

from async_wrappers.latency import Latency
from async_wrappers.live.memory.layout import SharedLayout
from async_wrappers.live.recording.writer import RecordSpec
from async_wrappers.live.report.report import Measurements
from async_wrappers.live.world.environment import FrameStatus
from async_wrappers.live.world.machine import Machine
from async_wrappers.live.world.realtime import Realtime
from async_wrappers.live.world.stacks import Stacks
from async_wrappers.schedule.stagger import Stagger
from async_wrappers.wrappers.chunk import Chunk
from async_wrappers.wrappers.committed_prefix import PrefixRows
from async_wrappers.wrappers.limits import Limits

if TYPE_CHECKING:
    from async_wrappers.fleet.block import Block
    from async_wrappers.live.cluster.ray_workers import RayWorkers
    from async_wrappers.live.memory.weights import WeightsBoard
    from async_wrappers.live.remote.remote_transport import RemotePolicy


@dataclass(frozen=True)
class LoopConfig:
    """Settings of the environment loop; see `AsyncRunner` for their meanings.

    Attributes:
        workers: Number of inferences that run at a time, 1 with a policy in the loop.
        in_loop: Whether the policy runs in the loop, with ``AsyncRunner(workers=0)``.
    """

    workers: int
    fps: Any
    stagger: Stagger
    default_action: Any = "noop"
    between_episodes: str = "drain"
    latency: Latency | None = None
    start_timeout: float = 60.0
    calibration_time: float = 5.0
    seed: int = 0
    max_age: int | None = None
    max_features_age: int | None = None
    stop_after_missed: int | None = None
    pause_action: Any = None
    chunk: Chunk | None = None
    prefix: tuple[int, bool] | None = None  # length and flat of `PrefixRows`; None for no committed prefix
    stack_size: int = 1
    timeline: float | None = None  # seconds that the report's time line holds; None for all
    realtime: Realtime | None = None
    learns_from: str = "sent"
    limits: Limits | None = None
    deadman: Any = None  # a function, or a path
    deadman_timeout: float = 200.0  # milliseconds
    dry_run: bool = False
    overdue: tuple[float, int] = (10.0, 1_000_000_000)  # times the longest inference, and nanoseconds at least
    in_loop: bool = False

    @property
    def processes(self) -> int:
        """How many workers there are beside the loop."""
        return 0 if self.in_loop else self.workers

    def shown(self, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> PrefixRows | None:
        """Return the rows that join committed actions to an observation; None without a committed prefix."""
        return None if self.prefix is None else PrefixRows(observation_space, action_space, *self.prefix)

    def stacks(self, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> Stacks | None:
        """Return the stacks of the policy's observations; None if it reads one at a time."""
        if self.stack_size == 1:
            return None
        shown = self.shown(observation_space, action_space)
        return Stacks(observation_space if shown is None else shown.space, self.stack_size)

    def read_space(self, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> gym.Space[Any]:
        """Return the space of the policy's input: an observation, with committed actions or in a stack."""
        joins = self.stacks(observation_space, action_space) or self.shown(observation_space, action_space)
        return observation_space if joins is None else joins.space

    def policy_space(self, action_space: gym.Space[Any]) -> gym.Space[Any]:
        """Return the space of the policy's answers: the environment's actions, or chunks of them."""
        return action_space if self.chunk is None else self.chunk.policy_space(action_space)


@dataclass(frozen=True)
class PhaseSpec:
    """A phase: a number of frames or of episodes to play.

    Attributes:
        number: Number of the phase's kind, a part of its episodes' seeds.
        frames: Most frames to play (least, with `whole_episodes`).
        episodes: Episodes to play.
        whole_episodes: Whether the last episode is played to its end.
        eval_mode: Passed to policies; nothing is learnt from an evaluation.
        first_episode: Number of the first episode.
        frames_before: Frames played before, which policies count on from.
        max_episode_frames: Frames after which an episode is cut, which is a truncation.
        phase_state: Value of the environment's attribute of that name before the first episode; None to leave it.
        on_frame: Called with a `FrameStatus` as each frame begins; a result that is not None is kept as a note.
        shown_in: Directory that receives a snapshot now and then of what is played; None for none.
    """

    number: int = 0
    frames: int | None = None
    episodes: int | None = None
    whole_episodes: bool = False
    eval_mode: bool = False
    first_episode: int = 0
    frames_before: int = 0
    max_episode_frames: int | None = None
    phase_state: Any = None
    on_frame: Callable[[FrameStatus], Any] | None = None
    shown_in: Path | None = None

    def goes_on(self, frames: int, episodes: int) -> bool:
        """Return whether the phase goes on after this number of frames and episodes."""
        return (self.frames is None or frames < self.frames) and (self.episodes is None or episodes < self.episodes)

    def limit(self, frames: int) -> int | None:
        """Return the most frames of the next episode, as this number of frames has been played; None for no limit."""
        return None if self.frames is None or self.whole_episodes else self.frames - frames


class LoopEnd(NamedTuple):
    """What the environment loop's end of a way to workers elsewhere is made from.

    Attributes:
        layout: Of what the workers would share here.
        config: Of the loop.
        warns: Called with a sentence for the user.
        policy: Holds `RunSpec.make_policy`, pickled, where the workers get it from here.
        board: Holds the newest weights; None without learners.
    """

    layout: SharedLayout
    config: LoopConfig
    warns: Callable[[str], None]
    policy: Block | None = None
    board: WeightsBoard | None = None


@dataclass(frozen=True)
class RunSpec:
    """The parts of a run and the settings of its loop; see `AsyncRunner` for their meanings."""

    make_env: Callable[[], gym.Env[Any, Any] | Machine]
    make_policy: Callable[[], Any]
    config: LoopConfig
    make_learner: Callable[..., Any] | None = None
    learners: int = 0
    journal: int = 10_000
    updates_per_transition: float | None = None
    pin: bool = False
    learner_latency: Latency | None = None
    extras: gym.spaces.Dict | None = None
    features: gym.Space[Any] | None = None
    report_effect: bool = False
    # Where the workers are, if not here; if they have a policy already, `make_policy` makes what releases, or is None.
    remote: RemotePolicy | RayWorkers | None = None
    record: Path | None = None

    def recording(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        sensors: Iterable[str],
        simulated: bool = False,
    ) -> RecordSpec | None:
        """Return the recording of an environment with these spaces and sensors; None where nothing is recorded."""
        if self.record is None:
            return None
        config, default = self.config, self.config.chunk or self.config.default_action
        facts = config.fps, simulated, config.workers, str(default), config.dry_run
        return RecordSpec(self.record, observation_space, action_space, *facts, sensors=tuple(sensors))

    def layout(self, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> SharedLayout:
        """Return the layout of the memory that the parts share; that of the weights comes from the learners.

        Args:
            observation_space: Of the environment.
            action_space: Of the environment.
        """
        workers, learners = self.config.workers, self.learners
        return SharedLayout(
            self.config.read_space(observation_space, action_space),
            self.config.policy_space(action_space),
            workers,
            learners,
            self.journal,
            extras=self.extras,
            chunk_length=0 if self.config.chunk is None else self.config.chunk.length,
            features=self.features,
            report_effect=self.report_effect,
        )


class Backend(Protocol):
    """Where a run's parts run, from its making to `close`.

    One that can be paused also has ``pause(paused)``, called from any thread; `EnvironmentLoop.pause` does it.
    One whose phases can be stopped also has ``stop()``, likewise.
    One with processes also has ``pids``, their ids by name.
    One with learners also has ``save(directory, iteration)``, ``restore(directory, iteration, replays)``,
    ``forget(directory, keep)`` and ``tell(facts)``, all called between two phases.
    """

    def play(self, phase: PhaseSpec) -> Measurements:
        """Play a phase; all parts stay up for the next one."""

    def close(self) -> None:
        """End everything."""

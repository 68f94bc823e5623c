"""What a backend is made from, and what it offers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import gymnasium as gym

from async_wrappers.latency import Latency
from async_wrappers.live.environment import FrameStatus
from async_wrappers.live.memory.layout import SharedLayout
from async_wrappers.live.report import Measurements
from async_wrappers.live.stacks import Stacks
from async_wrappers.schedule.stagger import Stagger
from async_wrappers.wrappers.chunk import Chunk
from async_wrappers.wrappers.committed_prefix import PrefixRows

__all__ = ["Backend", "LoopConfig", "PhaseSpec", "RunFailed", "RunSpec"]


class RunFailed(RuntimeError):
    """A part of the run has ended for good; what it raised, if anything, is the cause."""


@dataclass(frozen=True)
class LoopConfig:
    """How an environment is played; see `AsyncRunner` for what each means."""

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
    stop_after_missed: int | None = None
    pause_action: Any = None
    chunk: Chunk | None = None
    prefix: tuple[int, bool] | None = None  # length and flat of `PrefixRows`; None: the policy is not told
    stack_size: int = 1
    overdue: tuple[float, int] = (10.0, 1_000_000_000)  # times the longest inference, and nanoseconds at least

    def shown(self, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> PrefixRows | None:
        """Return what joins committed actions to an observation, if the policy is told of them."""
        return None if self.prefix is None else PrefixRows(observation_space, action_space, *self.prefix)

    def stacks(self, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> Stacks | None:
        """Return what stacks that which the policy is shown, if it reads more than one observation."""
        if self.stack_size == 1:
            return None
        shown = self.shown(observation_space, action_space)
        return Stacks(observation_space if shown is None else shown.space, self.stack_size)

    def read_space(self, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> gym.Space[Any]:
        """Return the space of what the policy reads: an observation, with committed actions or in a stack."""
        joins = self.stacks(observation_space, action_space) or self.shown(observation_space, action_space)
        return observation_space if joins is None else joins.space

    def policy_space(self, action_space: gym.Space[Any]) -> gym.Space[Any]:
        """Return the space of what the policy answers: the environment's actions, or chunks of them."""
        return action_space if self.chunk is None else self.chunk.policy_space(action_space)


@dataclass(frozen=True)
class PhaseSpec:
    """What to play: so many frames or so many episodes.

    Attributes:
        number: Of the phase's kind, a part of its episodes' seeds.
        frames: At most so many frames (at least, with `whole_episodes`).
        episodes: So many episodes.
        whole_episodes: Whether the last episode is played to its end.
        eval_mode: Passed to policies; nothing is learnt from an evaluation.
        first_episode: Number of the first episode.
        frames_before: Frames played before, which policies count on from.
        max_episode_frames: Frames after which an episode is cut, which is a truncation.
        phase_state: What the environment's attribute of that name is set to before the first episode; None to leave it.
        on_frame: Called with a `FrameStatus` as each frame begins; what it returns, if not None, is kept as a note.
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

    def goes_on(self, frames: int, episodes: int) -> bool:
        """Return whether there is more to play after so many frames and episodes."""
        return (self.frames is None or frames < self.frames) and (self.episodes is None or episodes < self.episodes)

    def limit(self, frames: int) -> int | None:
        """Return how many frames the next episode may have before the phase ends."""
        return None if self.frames is None or self.whole_episodes else self.frames - frames


@dataclass(frozen=True)
class RunSpec:
    """An environment, a policy, perhaps a learner, and how they are played; see `AsyncRunner`.

    Attributes:
        make_env: Makes the environment.
        make_policy: Makes one worker's policy.
        config: Workers, frames per second, strategy and so on.
        make_learner: Makes one learner; takes the keywords ``number`` and ``learners`` if it knows them.
        learners: How many.
        journal: Transitions kept in shared memory.
        updates_per_transition: At most so many updates for each transition; None for as many as there is time for.
        pin: Whether each worker stays on one core.
        learner_latency: On the virtual clock, how long an update takes.
        extras: What the policy leaves for the learner beside an action; None for nothing.
        features: What workers answer in the place of actions, where the policy has memory; None for one without.
    """

    make_env: Callable[[], gym.Env[Any, Any]]
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
        )


class Backend(Protocol):
    """Where a run's parts run, from its making to `close`.

    One that can be paused also has ``pause(paused)``, called from any thread; `EnvironmentLoop.pause` does it.
    One with learners also has ``save(directory, iteration)``, ``restore(directory, iteration, replays)`` and
    ``forget(directory, keep)``, all called between two phases.
    """

    def play(self, phase: PhaseSpec) -> Measurements:
        """Play a phase; all parts stay up for the next one."""

    def close(self) -> None:
        """End everything."""

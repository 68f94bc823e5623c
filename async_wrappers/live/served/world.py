"""One environment of many that a server infers for: what it shows on a frame, and which action it takes.

A `World` owns no clock: it is told when a frame begins. On each frame: call `show`, then `act`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym

from async_wrappers.checks import reward_of
from async_wrappers.gymnasium_api import begun, stepped
from async_wrappers.live.loop.loop import episode_seed
from async_wrappers.live.report.histogram import Histogram
from async_wrappers.live.served.board import ServedBoard
from async_wrappers.live.world.environment import refuse_oracles, score_of
from async_wrappers.observations import observation_check
from async_wrappers.schedule.served import ServedSchedule
from async_wrappers.wrappers.default_action import make_default_action, written_call
from async_wrappers.wrappers.ledger import Ledger


@dataclass
class WorldRecord:
    """What an environment has counted in a run.

    Attributes:
        environment: Its number.
        frames: Frames that it played.
        fresh: Of them, those on which an action of the policy's was applied.
        due: Frames on which an action was due.
        in_time: Of them, those whose action had been computed when they began.
        too_old: Actions that were refused as older than ``max_age``.
        delay: Frames from the observation of each applied action to its own.
        lateness: Nanoseconds by which frames began late.
        returns: Of the episodes that ended.
        stream: (start, effect) of each applied action in frames of the run, where decisions are logged.
    """

    environment: int
    frames: int = 0
    fresh: int = 0
    due: int = 0
    in_time: int = 0
    too_old: int = 0
    delay: Histogram = field(default_factory=Histogram)
    lateness: Histogram = field(default_factory=Histogram)
    returns: list[float] = field(default_factory=list)
    stream: list[tuple[int, int]] = field(default_factory=list)


class World:
    """One environment, which continues with the next episode on the frame after an episode's last.

    Args:
        number: Its number among those of the server.
        env: The environment.
        schedule: The server.
        default_action: As in `RealtimeDelay`, but for chunks.
        seed: Of the run; episode n of the environment is reset with a seed made of it, its number and n.
        max_age: Frames: an action that is older is refused; None for no limit.
        logs: Whether each applied action is recorded.
        episodes: The number of its first episode.

    Attributes:
        env: The environment.
        record: Of the run that goes on.
    """

    def __init__(
        self,
        number: int,
        env: gym.Env[Any, Any],
        schedule: ServedSchedule,
        default_action: Any = "noop",
        seed: int = 0,
        max_age: int | None = None,
        logs: bool = False,
        episodes: int = 0,
    ) -> None:
        refuse_oracles(env)
        self.env, self._number, self._schedule, self._seed = env, number, schedule, seed
        self._check = observation_check(env.observation_space, f"the observation of environment {number}")
        line = written_call("ServedRunner", "make_env", "make_policy", environments=schedule.environments)
        self._default_action = make_default_action(default_action, env, line, "default_action")
        self._ledger = Ledger(self._default_action)
        self._max_age, self._logs = max_age, logs
        self._episodes = episodes  # that have begun
        self._observation: Any = None  # of the frame that begins next

    def begin(self, board: ServedBoard) -> None:
        """Begin a run with a new episode.

        Args:
            board: On which observations are shown, and actions found.
        """
        self._board, self.record = board, WorldRecord(self._number)
        self._frame = self._first = 0
        self._reset()

    def join(self, frame: int) -> None:
        """Play from a frame of the run on, in the middle of it; after `begin`."""
        self._frame = self._first = frame
        self._applied = frame - 1

    def show(self) -> bool:
        """Show the observation of the frame that begins; return whether it is one that is inferred."""
        if self._frame % self._schedule.every:
            return False
        self._check(self._observation)
        self._board.show(self._number, self._frame, self._observation)
        return True

    def act(self, began: int, lateness: int = 0) -> None:
        """Take the frame's action, and step.

        Args:
            began: When the frame has begun, in nanoseconds on the board's clock.
            lateness: By how many nanoseconds it began late.
        """
        record, frame = self.record, self._frame
        record.lateness.append(lateness)
        self._count_due(frame, began)
        start = self._chosen(frame)
        if start is None:
            action = self._ledger.go_on(frame, self._observation)
        else:
            self._applied = start
            action = self._ledger.land(start, frame, self._board.action(self._number, start), self._observation)
            record.fresh += 1
            record.delay.append(frame - start)
            if self._logs:
                record.stream.append((start, frame))
        self._observation, reward, terminated, truncated, info = stepped(self.env, action)
        self._rewards += reward_of(reward)
        record.frames += 1
        self._frame += 1
        if terminated or truncated:
            if info.get("game_over", True) or truncated:
                record.returns.append(score_of(info, self._rewards))
                self._reset()
            else:
                self._begin_life(self.env.reset()[0])

    def _reset(self) -> None:
        seed = episode_seed(self._seed, self._number, self._episodes)
        self._episodes += 1
        self._rewards = 0.0
        self._default_action.reset(seed)
        self._begin_life(begun(self.env, seed=seed)[0])

    def _begin_life(self, observation: Any) -> None:
        """Go on with an observation before which no action may have started."""
        self._observation = observation
        self._ledger.begin()
        self._applied = self._frame - 1  # the newest start that may not be applied any more

    def _count_due(self, frame: int, began: int) -> None:
        start = frame - self._schedule.playout
        if start < self._first or start % self._schedule.every:
            return
        self.record.due += 1
        ended = self._board.ended(self._number, start)
        self.record.in_time += ended is not None and ended <= began

    def _chosen(self, frame: int) -> int | None:
        """Return the start of the action that lands on the frame; None for the default action."""
        newest = (frame - self._schedule.playout) // self._schedule.every * self._schedule.every
        start = self._board.newest(self._number, newest, self._applied)
        if start is not None and self._max_age is not None and frame - start > self._max_age:
            self._applied = start
            self.record.too_old += 1
            return None
        return start

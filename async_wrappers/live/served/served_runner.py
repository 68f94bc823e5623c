"""`ServedRunner`: many environments that do not wait, and one or a few accelerators that infer for all of them."""

from __future__ import annotations

import math
from contextlib import ExitStack
from typing import Any, Self

import gymnasium as gym

from async_wrappers.batched.rows import check_space
from async_wrappers.checks import positive, whole
from async_wrappers.fleet.block import Block
from async_wrappers.fleet.supervised import RunFailed
from async_wrappers.live.served import served_virtual as virtual
from async_wrappers.live.served.accelerators import Accelerator, Server
from async_wrappers.live.served.board import ServedBoard, assure_memory
from async_wrappers.live.served.served_report import ServedReport
from async_wrappers.live.served.served_settings import ServedSettings
from async_wrappers.live.served.world import World, WorldRecord
from async_wrappers.own_returns import with_own_returns
from async_wrappers.settings import documented, takes


@documented(ServedSettings)
class ServedRunner:
    """Plays many environments that do not wait, with one or a few accelerators that infer batches for all of them.

    The rule is that of `Batcher`: a free accelerator starts at once, on the newest observations of all environments
    that wait, divided evenly among the accelerators that are idle. An action is applied a fixed number of frames, the
    playout, after its observation; one that comes later is applied on the first frame after it has come, unless a newer
    one is there. A frame without an action receives the default action. No environment waits.

    On a real clock environments share a few processes, and each accelerator has one. On the virtual clock everything
    happens here, and decisions are those of `ServedSchedule`, bit for bit.

    In a ``with`` block the processes start with the first run and end with the block; otherwise each run starts and
    ends them. In a script, run under ``if __name__ == "__main__":``.

    Raises:
        ValueError: An argument out of range, or arguments that do not go together.

    Example:
        >>> import gymnasium as gym
        >>> from async_wrappers import LinearBatches, ServedRunner
        >>> runner = ServedRunner(lambda: gym.make("CartPole-v1"),
        ...                       lambda: lambda observations: (observations[:, 2] > 0).astype(int),
        ...                       environments=8, fps=50, default_action="repeat",
        ...                       backend="virtual", latency=LinearBatches(0.004, 0.0005))
        >>> runner.run(seconds=2).in_time
        1.0
    """

    @takes(ServedSettings)
    def __init__(self, settings: ServedSettings) -> None:
        self._settings = settings
        self.schedule = settings.schedule()
        settings.process_count()
        self._processes: Any = None
        self._stays = self._runs = self._asked_to_stop = False

    def run(self, *, frames: int | None = None, seconds: Any = None) -> ServedReport:
        """Play, and report. Each run begins with new episodes.

        Args:
            frames: Frames of each environment.
            seconds: Seconds of the environments' time, in the place of `frames`.

        Raises:
            ValueError: Not exactly one length is given, or it is not positive; or a part that is refused when it is
                made: see the message.
            RunFailed: A process has ended. What an environment or a policy raises comes out as it is.
        """
        if (frames is None) == (seconds is None):
            raise ValueError(f"give one of frames and seconds, got frames={frames!r} and seconds={seconds!r}")
        if seconds is not None:
            frames = math.ceil(positive("seconds", seconds) * self.schedule.clock.fps)
        frames = whole("frames", frames, 1)
        self._runs, self._asked_to_stop = True, False
        try:
            play = self._play_virtually if self._settings.backend == "virtual" else self._play_live
            records, server, stopped, restarts = play(frames)
        except BaseException:
            self.close()  # what goes on is of the failed run
            raise
        finally:
            self._runs = False
            if not self._stays:
                self.close()
        simulated = self._settings.backend == "virtual"
        reason = "stop() was called" if stopped else None
        return ServedReport.of(records, server, self.schedule, frames, simulated, reason, restarts)

    def stop(self) -> None:
        """End the current run within a frame, from any thread or a signal's handler; without a run nothing happens.

        Processes that still hang in a step or an inference 3 seconds later are ended, with a warning.
        """
        if self._runs:
            self._asked_to_stop = True
            if self._processes is not None:
                self._processes.stop()

    def close(self) -> None:
        """End the processes; it may be called twice."""
        processes, self._processes = self._processes, None
        if processes is not None:
            processes.close()

    @property
    def pids(self) -> dict[str, int]:
        """Ids of the processes that are up, by name."""
        return {} if self._processes is None else self._processes.pids

    def __enter__(self) -> Self:
        self._stays = True
        return self

    def __exit__(self, *exception: object) -> None:
        self._stays = False
        self.close()

    def _play_live(self, frames: int) -> tuple[list[WorldRecord], Server, bool, int]:
        from async_wrappers.live.served.served_processes import ServedProcesses

        if self._processes is None:
            self._processes = ServedProcesses(self._settings, self.schedule, lambda: self._asked_to_stop)
        if self._asked_to_stop:
            raise RunFailed("stop() was called before the run's first frame: nothing was played")
        played: tuple[list[WorldRecord], Server, bool, int] = self._processes.play(frames)
        return played

    def _play_virtually(self, frames: int) -> tuple[list[WorldRecord], Server, bool, int]:
        settings, schedule = self._settings, self.schedule
        of_world = settings.default_action, settings.seed, settings.max_age, settings.log
        with ExitStack() as held:
            envs = [with_own_returns(settings.make_env()) for _ in range(schedule.environments)]
            for env in envs:
                if not isinstance(env, gym.Env):
                    raise ValueError(f"make_env must return a gymnasium.Env (one, not a vector of them), got {env!r}")
                held.callback(env.close)
            spaces = envs[0].observation_space, envs[0].action_space
            for name, space in zip(("the observation space", "the action space"), spaces, strict=True):
                check_space(name, space)
            size, block = ServedBoard.size(spaces, schedule.environments), Block(shared=False)
            assure_memory(size, schedule.environments)
            block.resize(size)
            board = ServedBoard(block, spaces, schedule.environments, schedule.every)
            board.clear()
            worlds = [World(number, env, schedule, *of_world) for number, env in enumerate(envs)]
            server = Server(schedule, board, settings.log)
            accelerators = [
                Accelerator(settings.make_policy(), board, spaces, number) for number in range(schedule.accelerators)
            ]
            for world in worlds:
                world.begin(board)
            virtual.play(worlds, server, accelerators, board, schedule, frames, lambda: self._asked_to_stop)
            return [world.record for world in worlds], server, self._asked_to_stop, 0

"""`ProcessEnvs`: Python environments in a few processes, K of them in each, on shared memory.

One step of all N environments costs each process one wake-up: the parent's request, a byte through a socket, and a byte
back. Actions, observations, rewards and ends lie in shared memory, so nothing is pickled but the infos
of episodes that have ended, where they hold something. Observations have two places, used by turns: the ones that were
shown last stay whole while the next ones are written, also by a process that dies over it.

A process lives as long as its parent and its socket. It ends by itself when the parent is gone, however that ended.
"""

from __future__ import annotations

import errno
import itertools
import math
import socket
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from multiprocessing import connection
from typing import Any

import cloudpickle
import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from async_wrappers.batched.environment_process import (
    DONE,
    END,
    FAILED,
    INFOS,
    LOAD,
    RESET,
    STATISTICS,
    STEP,
    Board,
    run,
)
from async_wrappers.batched.rows import check_space, finals, mapped, put_rows, taken
from async_wrappers.batched.vector_envs import VectorEnvs, seeds_anew
from async_wrappers.checks import function, positive, whole
from async_wrappers.fleet import waits
from async_wrappers.fleet.block import Block
from async_wrappers.fleet.starting import Children, unpickled
from async_wrappers.fleet.supervised import Child, RunFailed
from async_wrappers.posix import needs_fork_server
from async_wrappers.wrapper_statistics import Statistics
from async_wrappers.wrappers.copies import Info


class ProcessEnvs(VectorEnvs):
    """N environments in a few processes, as `BatchedEnvs`.

    For environments written in Python that do not exist as a vector. The processes step together: `send` wakes them,
    and they work while this process does something else, until `recv`. Each environment is a function of its seed
    and of the actions sent for it, for any number of processes. `RealtimeDelay` may be among its wrappers.

    A process that dies (memory ran out, a library crashed) is replaced. The episodes of its environments are *cut*:
    their rows are truncated, with reward 0 and the observation that was shown last as final one, and a new episode
    begins, with a seed derived from the first one. A new process that dies before its first step is done is an error.

    Args:
        make: A function that makes an environment; cloudpickle sends it to the processes.
        num_envs: N; processes have equal shares, but for a remainder.
        processes: How many processes.
        timeout: Seconds for which a step or a reset of a process is waited for. One that takes longer, because an
            environment's `step` never returns, is ended and replaced as one that died, with a warning. None: no limit.
            One that is stopped (SIGSTOP) for 10 s is ended and replaced whatever the timeout.

    Attributes:
        pids: The processes' ids, in the order of their environments.
        restarts: Processes that died, or were ended by the timeout, and were replaced.
        lost_episodes: Episodes that were cut for that reason.

    Raises:
        ValueError: Numbers that do not fit, a function that cannot be pickled, or environments whose spaces differ or
            whose batches are no arrays.
        RuntimeError: An environment raises an exception; the message holds its traceback.
        RunFailed: A process cannot start, or dies before its first step is done.
    """

    def __init__(
        self, make: Callable[[], gym.Env[Any, Any]], num_envs: int, processes: int, timeout: float | None = 60.0
    ) -> None:
        self._processes = _ProcessVector(make, num_envs, processes, timeout)
        super().__init__(self._processes)
        self._waits_again = True

    @property
    def pids(self) -> list[int]:
        return self._processes.pids

    @property
    def restarts(self) -> int:
        return self._processes.restarts

    @property
    def lost_episodes(self) -> int:
        return self._processes.lost_episodes

    def close(self) -> None:
        self._in_step = False  # a process that hangs in a step is not waited for
        super().close()

    def _info_of_end(self, i: int) -> Info:
        if i in self._processes.lost:  # the step was not taken: the end is where the row was shown last
            start, frame = self._shown_at
            times = {"start": int(start[i]), "frame": int(frame[i]), "interval": 0, "applied": False}
            return {"lost": True, "realtime": times}
        return self._processes.final_infos.get(i, {})

    def _same_step_finals(self, ended: NDArray[np.int64]) -> dict[int, Any]:
        return finals(self._info["final_obs"], ended)

    def _statistics(self) -> list[Statistics]:
        return self._processes.statistics()

    def _take_statistics(self, statistics: Sequence[Statistics], frozen: bool) -> None:
        self._processes.load_statistics(statistics, frozen)


class _ProcessVector(gym.vector.VectorEnv[Any, Any, Any]):
    """The processes as a Gymnasium vector with ``send`` and ``recv``; it resets in the same step."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(
        self, make: Callable[[], gym.Env[Any, Any]], num_envs: int, processes: int, timeout: float | None
    ) -> None:
        self._children = Children("ProcessEnvs")
        needs_fork_server(f"processes={processes}", "take 0, which plays all environments in this process")
        function("make", make, "makes an environment")
        self.num_envs = whole("num_envs", num_envs, 1)
        processes = whole("processes", processes, 1, self.num_envs)
        self._timeout = None if timeout is None else positive("timeout", timeout, or_none=True)
        try:
            self._payload: bytes = cloudpickle.dumps(make)
        except Exception as error:
            raise ValueError(
                f"make cannot be sent to another process: {error}; make what cannot be pickled inside the function"
            ) from error
        self.restarts = self.lost_episodes = 0
        self.final_infos: dict[int, Info] = {}  # of the episodes that ended in the last step
        self.lost: set[int] = set()  # environments whose process died in the last step
        self._block = Block()
        bounds = np.linspace(0, self.num_envs, processes + 1).astype(int).tolist()
        self._shares = [range(*each) for each in itertools.pairwise(bounds)]
        self._all: list[_Process] = []
        try:
            for number in range(processes):
                self._all.append(self._start(number))
            for process in self._all:
                self._spaces_of(process)
            self._board = Board.sized(self._block, self._spaces, self.num_envs)
            for process in self._all:
                process.child.pipe.send(self._spaces)
        except BaseException:
            self.close()
            raise
        self.single_observation_space, self.single_action_space = self._spaces
        self.observation_space, self.action_space = (batch_space(each, self.num_envs) for each in self._spaces)
        self._place = 0  # of the observations that were shown last
        self._statistics: tuple[list[Statistics], bool] | None = None  # the newest known, and whether they are frozen

    @property
    def pids(self) -> list[int]:
        """The processes' ids."""
        pids = (process.child.process.pid for process in self._all)
        return [pid for pid in pids if pid is not None]  # as they have been started

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, Info]:
        """Reset all; `seed` is one for each."""
        assert seed is not None
        assert options is None
        self._check_open()
        self._board.seeds[:] = self._seeds = np.asarray(seed)
        self._place, self.final_infos = 0, {}
        for process in list(self._all):
            # An answer is owed where the wait for it was interrupted.
            alive = process.child.is_alive() and all(process.hear({}, self._timeout) for _ in range(process.owed))
            if not alive:  # no episodes are running, so none is lost
                process = self._restart(process)
            process.incarnation = 0
            process.ask(RESET[0])
        for process in self._all:
            if not process.hear(self.final_infos, self._timeout):
                raise self._over(process)
        return self._board.observations[0], self._board.info()

    def send(self, actions: Any) -> None:
        """Begin a step."""
        mapped(np.copyto, self._board.actions, actions)
        self._place = 1 - self._place
        for process in self._all:
            process.ask(STEP[self._place])

    def recv(self) -> tuple[Any, NDArray[Any], NDArray[np.bool_], NDArray[np.bool_], Info]:
        """Wait for the end of the step."""
        self._check_open()
        board, self.final_infos, self.lost = self._board, {}, set()
        # All of them are waited for before any is replaced, so that no step is done twice.
        dead: list[_Process] = []
        for process in self._all:
            if not process.owed:  # it was heard before the wait was interrupted
                continue
            if process.hear(self.final_infos, self._timeout):
                process.steps += 1
            else:
                dead.append(process)
        for process in sorted(dead, key=lambda process: process.failure is None):
            self._replace(process)
        info = self._board.info()
        if (board.terminal | board.truncated).any():
            info["final_obs"] = board.final
        return board.observations[self._place], board.reward, board.terminal, board.truncated, info

    def statistics(self) -> list[Statistics]:
        """Return the statistics of the wrappers of each; of a process that has died the newest known."""
        self._check_open()
        known, frozen = self._statistics or ([{}] * self.num_envs, False)
        found = dict(enumerate(known))
        for process in self._all:
            process.ask(STATISTICS)
        for process in self._all:
            process.hear(found, self._timeout)
        self._statistics = [found[i] for i in range(self.num_envs)], frozen
        return self._statistics[0]

    def load_statistics(self, statistics: Sequence[Statistics], frozen: bool) -> None:
        """Give each its own, and freeze them on demand."""
        self._check_open()
        self._statistics = [*statistics], frozen
        for process in self._all:
            if not self._load(process) and process.failure is not None:
                raise self._over(process)

    def _load(self, process: _Process) -> bool:
        """Give a process the newest known statistics; return whether it took them."""
        assert self._statistics is not None
        of_all, frozen = self._statistics
        process.ask(LOAD)
        with suppress(OSError):  # it has died, as will be found
            process.child.pipe.send((of_all[process.share.start : process.share.stop], frozen))
        return process.hear({}, self._timeout)

    def close_extras(self, **kwargs: Any) -> None:
        """End the processes."""
        for process in self._all:
            process.say(END)
            process.child.pipe.close()  # it may wait there for the memory's layout
        for process in self._all:
            process.child.join(waits.PATIENCE)
        self._children.close()
        for process in self._all:
            process.socket.close()
        self._all.clear()
        self._block.close()

    def _check_open(self) -> None:
        if self.closed:
            raise RuntimeError("the environments are closed: make new ones")

    def _start(self, number: int) -> _Process:
        """Start a process."""
        try:
            ours, theirs = socket.socketpair()
            takes = self._payload, self._shares[number], self.num_envs, self._block, theirs
            with closing(theirs):  # no daemon: an environment may start processes
                child = self._children.start(f"process {number}", run, takes, shares_torch=False, daemon=False)
        except OSError as error:
            # Of a descriptor whose number is above the limit the system says that it is a bad one.
            few = error.errno in (errno.EMFILE, errno.ENFILE, errno.EBADF)
            remedy = "raise the limit of open files (ulimit -n), or " if few else ""
            raise RunFailed(
                f"process {number} of ProcessEnvs cannot start ({error.strerror}): {remedy}ask for fewer processes "
                f"than {len(self._shares)}"
            ) from error
        return _Process(child, ours, self._shares[number])

    def _spaces_of(self, process: _Process) -> None:
        """Wait until a process has made its environments, and compare their spaces with those of the others."""
        if not process.answers(process.child.pipe, None):
            process.end()
            raise self._over(process)
        try:
            spaces_of_it = process.child.pipe.recv()
        except (EOFError, ConnectionResetError):
            raise self._over(process) from None
        if spaces_of_it[0] == "failed":
            process.failure = spaces_of_it
            raise self._over(process)
        if not hasattr(self, "_spaces"):
            self._spaces = spaces_of_it
            for name, space in zip(("the observation space", "the action space"), spaces_of_it, strict=True):
                check_space(name, space)
        if spaces_of_it != self._spaces:
            raise ValueError(f"make must make environments with the same spaces, got {self._spaces} and {spaces_of_it}")

    def _restart(self, process: _Process) -> _Process:
        """Start another process in the place of one that has died.

        Raises:
            RuntimeError: An environment of it has raised an exception, or it was new and died before its first step
                was done.
        """
        if process.failure is not None or (process.incarnation and not process.steps):
            raise self._over(process)
        if not (process.late or process.ailment):  # it has been told of then
            how = f"{process.child.name} of ProcessEnvs {process.how_it_ended(Child.how_it_ended)}"
            warnings.warn(f"{how}: another one takes its place", RuntimeWarning, stacklevel=2)
        number = self._all.index(process)
        process.child.join(waits.PATIENCE)
        process.socket.close()
        self._children.forget(process.child)
        new = self._all[number] = self._start(number)
        new.incarnation = process.incarnation + 1
        self._spaces_of(new)
        new.child.pipe.send(self._spaces)
        self.restarts += 1
        if self._statistics is not None and not self._load(new):
            raise self._over(new)
        return new

    def _replace(self, dead: _Process) -> None:
        """Start another process in the place of one that has died in a step, and cut its episodes."""
        process = self._restart(dead)
        mine, board = np.array(process.share), self._board
        board.seeds[mine] = seeds_anew(self._seeds[mine], process.incarnation)
        process.ask(RESET[self._place])
        if not process.hear({}, self._timeout):
            raise self._over(process)
        self.lost_episodes += len(mine)
        board.reward[mine], board.terminal[mine], board.truncated[mine] = 0.0, False, True
        put_rows(board.final, mine, taken(board.observations[1 - self._place], mine))
        self.lost |= set(process.share)

    def _over(self, process: _Process) -> RuntimeError:
        """Close everything, and return the error that says why."""
        failure, child = process.failure, process.child
        try:
            how = process.how_it_ended(self._children.how_it_ended) if failure is None else ""
        except RuntimeError as unguarded:
            return unguarded
        finally:
            self.close()
        if process.ailment is not None:
            return RunFailed(f"{child.name} of ProcessEnvs {process.ailment}, before it had finished a step")
        if process.late:
            return RuntimeError(
                f"{child.name} of ProcessEnvs had not finished its first step or reset within timeout={self._timeout} "
                "s: give ProcessEnvs a larger timeout, or None for no limit"
            )
        if failure is None:
            return RunFailed(f"{child.name} of ProcessEnvs {how}, before it had finished a step")
        _, pickled, traceback = failure
        error = unpickled(pickled)
        what = f"{type(error).__name__}: {error}" if error is not None else "an exception"
        notes = getattr(error, "__notes__", [])
        raised = RuntimeError(f"{notes[-1] if notes else child.name} of ProcessEnvs raised {what}\n\n{traceback}")
        raised.__cause__ = error
        return raised


@dataclass(eq=False)
class _Process:
    """A process of environments, as its parent sees it."""

    child: Child
    socket: socket.socket
    share: range
    incarnation: int = 0
    steps: int = 0  # that it has finished
    owed: int = 0  # answers
    failure: tuple[str, bytes | None, str] | None = None
    late: bool = False  # whether it was ended by the timeout
    ailment: str | None = None  # why it was ended otherwise

    def say(self, what: bytes) -> None:
        """Wake the process."""
        with suppress(OSError):  # it has died, as will be found
            self.socket.send(what)

    def ask(self, what: bytes) -> None:
        """Wake the process for something that it answers."""
        self.owed += 1
        self.say(what)

    def hear(self, infos: dict[int, Any], timeout: float | None) -> bool:
        """Wait until the process is done (True) or has died (False).

        It is killed after `timeout` seconds, and where it has been stopped (SIGSTOP) for a while.
        """
        if not self.answers(self.socket, timeout):
            self.late = self.ailment is None
            how = self.ailment or f"has not finished a step or reset within timeout={timeout} s"
            warnings.warn(f"{self.child.name} of ProcessEnvs {how}: it is ended", RuntimeWarning, stacklevel=2)
            self.end()
            return False
        with suppress(OSError, EOFError):
            answer = self.socket.recv(1)
            self.owed -= 1
            if answer == INFOS:
                infos.update(self.child.pipe.recv())
            if answer == FAILED:
                self.failure = self.child.pipe.recv()
            return answer in (DONE, INFOS)
        return False

    def answers(self, end: Any, timeout: float | None) -> bool:
        """Wait for an answer at an end or the process's end; return False if it is late, or stopped for long.

        Time is counted in looks: after Ctrl-Z and `fg` the clock has gone on for all processes, and none is late.
        """
        waited, limit = 0.0, math.inf if timeout is None else timeout
        while True:
            before = time.monotonic()
            if connection.wait([end], min(waits.LOOK, limit - waited)):
                return True
            self.child.pulse.look(owes=False)
            self.ailment = self.child.pulse.ailment()
            waited += min(time.monotonic() - before, 2 * waits.LOOK)
            if waited >= limit or self.ailment is not None:
                return False

    def how_it_ended(self, told: Callable[[Child], str]) -> str:
        """Return an end of a sentence: what it raised, where that ends programs, or how it was ended, as it is told."""
        with suppress(OSError, EOFError):
            if self.child.pipe.poll(0):
                _, pickled, _ = self.child.pipe.recv()
                if (error := unpickled(pickled)) is not None:
                    return f"raised {error!r:.200}"
        return told(self.child)

    def end(self) -> None:
        """End the process by force."""
        self.child.kill()
        self.child.join(waits.PATIENCE)

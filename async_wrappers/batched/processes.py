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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import connection
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from async_wrappers.batched.environment_process import INFOS, LOAD, RESET, STATISTICS, STEP, StepResults, run
from async_wrappers.batched.rows import check_space, finals, mapped, put_rows, taken
from async_wrappers.batched.vector_envs import VectorEnvs, seeds_anew
from async_wrappers.checks import function, positive, whole
from async_wrappers.fleet import waits
from async_wrappers.fleet.block import Block
from async_wrappers.fleet.process_fleet import Member, ProcessFleet, Role
from async_wrappers.fleet.starting import pickled
from async_wrappers.fleet.supervised import RunFailed
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
        self._fleet = ProcessFleet("ProcessEnvs")
        needs_fork_server(f"processes={processes}", "take 0, which plays all environments in this process")
        function("make", make, "makes an environment")
        self.num_envs = whole("num_envs", num_envs, 1)
        processes = whole("processes", processes, 1, self.num_envs)
        self._timeout = None if timeout is None else positive("timeout", timeout, or_none=True)
        self._payload = pickled("make", make)
        self.lost_episodes = 0
        self.final_infos: dict[int, Info] = {}  # of the episodes that ended in the last step
        self.lost: set[int] = set()  # environments whose process died in the last step
        self._block = Block()
        bounds = np.linspace(0, self.num_envs, processes + 1).astype(int).tolist()
        self._shares = [range(*each) for each in itertools.pairwise(bounds)]
        self._all = [_Process(share) for share in self._shares]
        self._statistics: tuple[list[Statistics], bool] | None = None  # the newest known, and whether they are frozen
        # No daemon: an environment may start processes.
        role = Role(
            *("process {} of ProcessEnvs", False, run, self._given, (0,)),
            daemon=False,
            started=self._started,
            hear=self._hear,
            ends=self._ends,
            lost=self._give_up,
            then="it is ended",
        )
        try:
            for number, process in enumerate(self._all):
                with self._room(number):
                    process.member = self._fleet.add(role, number)
            for process in self._all:
                process.is_final = True
                self._await_spaces(process)
            self._board = StepResults.sized(self._block, self._spaces, self.num_envs)
            for process in self._all:
                process.member.send(self._spaces)
                process.is_settled, process.is_final = True, False
        except BaseException:
            self.close()
            raise
        self.single_observation_space, self.single_action_space = self._spaces
        self.observation_space, self.action_space = (batch_space(each, self.num_envs) for each in self._spaces)
        self._place = 0  # of the observations that were shown last

    @property
    def pids(self) -> list[int]:
        """The processes' ids."""
        return [*self._fleet.pids.values()]

    @property
    def restarts(self) -> int:
        """Processes that were started in the place of others."""
        return self._fleet.restarts

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, Info]:
        """Reset all; `seed` is one for each."""
        assert seed is not None
        assert options is None
        self._check_open()
        self._board.seeds[:] = self._seeds = np.asarray(seed)
        self._place, self.final_infos = 0, {}
        for process in self._all:
            # An answer is owed where the wait for it was interrupted.
            process.is_final = False
            while self._has_answered(process, {}):
                pass
            if not process.member.child.is_alive():
                self._await_end(process)
            self._settle(process)
            self._fleet.works(process.member)
            process.replaced, process.is_new = 0, False  # no episodes are running, so none is lost
            process.ask(RESET[0], is_final=True)
        for process in self._all:
            self._has_answered(process, self.final_infos)
            process.is_final = False
        return self._board.observations[0], self._board.info()

    def send(self, actions: Any) -> None:
        """Begin a step."""
        mapped(np.copyto, self._board.actions, actions)
        self._place = 1 - self._place
        for process in self._all:
            if not process.is_new:
                process.ask(STEP[self._place])

    def recv(self) -> tuple[Any, NDArray[Any], NDArray[np.bool_], NDArray[np.bool_], Info]:
        """Wait for the end of the step."""
        self._check_open()
        board, self.final_infos, self.lost = self._board, {}, set()
        for process in self._all:
            if self._has_answered(process, self.final_infos):
                process.steps += 1
        for process in self._all:
            if process.is_new:
                self._cut(process)
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
            self._settle(process)
            process.ask(STATISTICS)
        for process in self._all:
            self._has_answered(process, found)
        self._statistics = [found[i] for i in range(self.num_envs)], frozen
        return self._statistics[0]

    def load_statistics(self, statistics: Sequence[Statistics], frozen: bool) -> None:
        """Give each its own, and freeze them on demand."""
        self._check_open()
        self._statistics = [*statistics], frozen
        for process in self._all:
            self._settle(process)
            self._load(process)
        for process in self._all:
            self._has_answered(process, {})

    def _load(self, process: _Process) -> None:
        """Give a process the newest known statistics."""
        assert self._statistics is not None
        of_all, frozen = self._statistics
        process.ask(LOAD)
        process.member.send((of_all[process.share.start : process.share.stop], frozen))

    def close_extras(self, **kwargs: Any) -> None:
        """End the processes."""
        for process in self._all:
            process.hang_up()
        for member in self._fleet.members:
            member.send(None)  # it may wait there for the memory's layout
        self._fleet.end(self._fleet.members, waits.PATIENCE)
        self._fleet.close()
        self._all.clear()
        with suppress(AttributeError):  # it was not made
            del self._board  # which maps the shared memory
        self._block.close()

    def _check_open(self) -> None:
        if self.closed:
            raise RuntimeError("the environments are closed: make new ones")

    # A process from its start to its end.

    def _given(self, member: Member) -> Sequence[Any]:
        process = self._all[member.number]
        process.hang_up()
        process.socket, process.theirs = socket.socketpair()
        return self._payload, process.share, self.num_envs, self._block, process.theirs

    def _started(self, member: Member) -> None:
        process = self._all[member.number]
        process.theirs.close()
        process.spaces, process.infos, process.owed, process.steps = None, None, 0, 0
        process.is_settled = process.late = False
        if member.incarnation:
            if process.how:
                sentence = f"{member.name} {process.how}: another one takes its place"
                warnings.warn(sentence, RuntimeWarning, stacklevel=2)
            process.is_new, process.replaced = True, process.replaced + 1

    @contextmanager
    def _room(self, number: int) -> Iterator[None]:
        """Name the remedy if a process cannot be started in the block."""
        try:
            yield
        except OSError as error:
            # Of a descriptor whose number is above the limit the system says that it is a bad one.
            few = error.errno in (errno.EMFILE, errno.ENFILE, errno.EBADF)
            remedy = "raise the limit of open files (ulimit -n), or " if few else ""
            raise RunFailed(
                f"process {number} of ProcessEnvs cannot start ({error.strerror}): {remedy}ask for fewer processes "
                f"than {len(self._shares)}"
            ) from error

    def _hear(self, member: Member, message: Any) -> None:
        kind, *content = message
        if kind == "spaces":
            self._all[member.number].spaces = tuple(content)
        else:
            (self._all[member.number].infos,) = content

    def _await_spaces(self, process: _Process) -> None:
        """Wait until a process has made its environments, and compare their spaces with those of the others."""
        while process.spaces is None:
            self._fleet.turn(members=[process.member])
        if not hasattr(self, "_spaces"):
            self._spaces = process.spaces
            for name, space in zip(("the observation space", "the action space"), process.spaces, strict=True):
                check_space(name, space)
        if process.spaces != self._spaces:
            raise ValueError(
                f"make must make environments with the same spaces, got {self._spaces} and {process.spaces}"
            )

    def _settle(self, process: _Process) -> None:
        """Give a process that has taken another one's place what all have, once."""
        if process.is_settled:
            return
        process.is_final = True
        self._await_spaces(process)
        process.member.send(self._spaces)
        process.is_settled = True
        if self._statistics is not None:
            self._load(process)
            self._has_answered(process, {})
        process.is_final = False

    def _cut(self, process: _Process) -> None:
        """Let a new process begin, and cut the episodes of the one before it."""
        self._settle(process)
        mine, board = np.array(process.share), self._board
        board.seeds[mine] = seeds_anew(self._seeds[mine], process.replaced)
        process.ask(RESET[self._place], is_final=True)
        self._has_answered(process, {})
        process.is_final = process.is_new = False
        self.lost_episodes += len(mine)
        board.reward[mine], board.terminal[mine], board.truncated[mine] = 0.0, False, True
        put_rows(board.final, mine, taken(board.observations[1 - self._place], mine))
        self.lost |= set(process.share)

    def _has_answered(self, process: _Process, infos: dict[int, Any]) -> bool:
        """Wait for an answer that a process owes; return False where it owes none, or another one takes its place.

        It is ended after `timeout` seconds, and where it has been stopped (SIGSTOP) for a while. Time is counted in
        looks: after Ctrl-Z and `fg` the clock has gone on for all processes, and none is late.

        Raises:
            RuntimeError: It has ended, and another one would do no better.
        """
        waited, limit = 0.0, math.inf if self._timeout is None else self._timeout
        while process.owed:
            before = time.monotonic()
            if connection.wait([process.socket], min(waits.LOOK, limit - waited)):
                with suppress(OSError, EOFError):
                    answer = process.socket.recv(1)
                    process.owed -= 1
                    if answer == INFOS:
                        infos.update(process.infos or process.member.child.pipe.recv()[1])
                        process.infos = None
                    if answer:
                        return True
                self._await_end(process)
                return False
            waited += min(time.monotonic() - before, 2 * waits.LOOK)
            if waited >= limit:
                process.late = True
                self._fleet.ails(process.member, f"has not finished a step or reset within timeout={self._timeout} s")
            self._look_after(process)
        return False

    def _await_end(self, process: _Process) -> None:
        """Wait until another process has taken the place of one that has ended."""
        first = process.member.incarnation
        while process.member.incarnation == first:
            self._look_after(process)

    def _look_after(self, process: _Process) -> None:
        """Let the fleet handle what has happened to a process; one that has ended is replaced."""
        with self._room(process.member.number):
            self._fleet.turn(0.001, [process.member])

    def _ends(self, member: Member) -> bool:
        """Return whether a process that has ended had finished a step.

        Raises:
            RuntimeError: Another one would do no better.
        """
        process = self._all[member.number]
        if process.is_final or (member.error is not None and not member.exits):
            raise self._over(member)
        process.how = "" if member.why else self._fleet.how_it_ended(member)  # else it has been told
        return process.steps > 0

    def _give_up(self, member: Member) -> None:
        raise self._over(member)

    def _over(self, member: Member) -> RuntimeError:
        """Close everything, and return the error that says why."""
        late = self._all[member.number].late
        try:
            how = member.why or self._fleet.how_it_ended(member)
        except RuntimeError as unguarded:
            return unguarded
        finally:
            self.close()
        if late:
            warnings.warn(f"{member.name} {how}: it is ended", RuntimeWarning, stacklevel=2)
            return RuntimeError(
                f"{member.name} had not finished its first step or reset within timeout={self._timeout} s: give "
                "ProcessEnvs a larger timeout, or None for no limit"
            )
        if member.error is None or member.exits:
            return RunFailed(f"{member.name} {how}, before it had finished a step")
        error, trace = member.error
        what = f"{type(error).__name__}: {error}" if error is not None else "an exception"
        notes = getattr(error, "__notes__", [])
        who = f"{notes[-1]} of ProcessEnvs" if notes else member.name
        raised = RuntimeError(f"{who} raised {what}\n\n{trace}")
        raised.__cause__ = error
        return raised


class _Process:
    """A process of environments, as its parent sees it.

    Attributes:
        share: Its environments.
        member: It, in the fleet.
        socket: Where it is woken, and answers.
        theirs: Its end, until it has been started.
        spaces: Of its environments, once they are made.
        infos: That belong to the answer that comes next, where the fleet has read them.
        owed: Answers.
        steps: That it has finished.
        replaced: Processes that ended before it, since the last reset.
        is_new: Whether the episodes of the one before it are still to be cut.
        is_settled: Whether it has what all have.
        is_final: Whether its end is an error, as another one would end too.
        late: Whether it was ended by the timeout.
        how: How the one before it has ended; "" where that has been told.
    """

    def __init__(self, share: range) -> None:
        self.share = share
        self.member: Member
        self.socket, self.theirs = (socket.socket() for _ in range(2))
        self.spaces: Any = None
        self.infos: dict[int, Any] | None = None
        self.owed = self.steps = self.replaced = 0
        self.is_new = self.is_settled = self.is_final = self.late = False
        self.how = ""

    def ask(self, what: bytes, is_final: bool = False) -> None:
        """Wake the process for something that it answers."""
        self.owed += 1
        self.is_final = is_final
        with suppress(OSError):  # it has died, as will be found
            self.socket.send(what)

    def hang_up(self) -> None:
        """Release the sockets; a process that waits for a request ends."""
        self.socket.close()
        self.theirs.close()

"""Environments that step into arrays, and a process of them: its requests, and the memory shared with its parent."""

from __future__ import annotations

import math
import pickle
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import connection
from operator import itemgetter
from typing import Any

import cloudpickle
import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from async_wrappers.batched.rows import mapped
from async_wrappers.checks import reward_of
from async_wrappers.fleet.block import Block
from async_wrappers.fleet.child import as_child
from async_wrappers.gymnasium_api import begun, no_step, refuse_ends
from async_wrappers.observations import observation_check
from async_wrappers.wrapper_statistics import Statistics, freeze, load_statistics, statistics_of
from async_wrappers.wrappers.copies import Info, own_copy, rows

_ALIGNED = 64  # bytes; a cache line, so that two processes do not write into the same one

Spaces = tuple[gym.Space[Any], gym.Space[Any]]  # of observations and actions

# The parent's requests, one byte each: reset or step into place 0 or 1 of the observations; return the statistics of
# wrappers, or take those in the pipe. It hangs up in the end.
RESET, STEP, STATISTICS, LOAD = (b"r", b"R"), (b"s", b"S"), b"t", b"l"

# A process's answers: done; done, and its pipe holds infos or statistics.
DONE, INFOS = b"d", b"i"

TIMES = ("start", "frame", "interval", "applied")  # of info["realtime"]
_times_of = itemgetter(*TIMES)


@dataclass
class StepResults:
    """The action of each environment and the results of its step, in shared memory where processes write them."""

    actions: Any  # [N, ...]
    observations: tuple[Any, Any]  # [N, ...], two places
    final: Any  # [N, ...], where an episode has ended
    reward: NDArray[np.float32]  # [N]
    terminal: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    seeds: NDArray[np.int64]
    times: NDArray[np.int64]  # [4, N], as `TIMES`, under delay
    delayed: NDArray[np.bool_]  # [1]
    executed: NDArray[np.bool_]  # [N, H], of chunks
    chunked: NDArray[np.bool_]  # [1]
    sent: Any  # [N, ...], actions that were really sent, of the environments whose `sent_mask` is set
    sent_mask: NDArray[np.bool_]  # [N]

    @classmethod
    def sized(cls, block: Block, of: Spaces, n: int) -> StepResults:
        """Size a block, and return its arrays."""
        size = 0

        def measured(dtype: Any, shape: tuple[int, ...]) -> None:
            nonlocal size
            size = end_of(size, dtype, shape)

        cls._made(measured, of, n)
        block.resize(size)
        return cls.of(block, of, n)

    @classmethod
    def of(cls, block: Block, of: Spaces, n: int) -> StepResults:
        """Return the arrays of a sized block."""
        offset = 0

        def placed(dtype: Any, shape: tuple[int, ...]) -> NDArray[Any]:
            nonlocal offset
            array = block.array(dtype, shape, offset)
            offset = end_of(offset, dtype, shape)
            return array

        return cls._made(placed, of, n)

    @classmethod
    def plain(cls, of: Spaces, n: int) -> StepResults:
        """Return arrays of this process alone."""
        return cls._made(lambda dtype, shape: np.zeros(shape, dtype), of, n)

    def info(self) -> Info:
        """Return the info of all environments, as a Gymnasium vector has it: the times of delayed ones."""
        if not self.delayed[0]:
            return {}
        of_chunks = {"executed": self.executed.copy()} if self.chunked[0] else {}
        sent = {}
        if self.sent_mask.any():
            sent = {"sent": mapped(np.copy, self.sent), "_sent": self.sent_mask.copy()}
        times = dict(zip(TIMES, self.times.copy(), strict=True))
        return {"realtime": {**times, "applied": times["applied"].astype(bool), **of_chunks, **sent}}

    @classmethod
    def _made(cls, array: Callable[..., Any], of: Spaces, n: int) -> StepResults:
        observations, actions = of
        return cls(
            actions=arrays_of(actions, n, array),
            observations=(arrays_of(observations, n, array), arrays_of(observations, n, array)),
            final=arrays_of(observations, n, array),
            reward=array(np.float32, (n,)),
            terminal=array(np.bool_, (n,)),
            truncated=array(np.bool_, (n,)),
            seeds=array(np.int64, (n,)),
            times=array(np.int64, (len(TIMES), n)),
            delayed=array(np.bool_, (1,)),
            executed=array(np.bool_, (n, actions.shape[0] if actions.shape else 0)),
            chunked=array(np.bool_, (1,)),
            sent=arrays_of(actions, n, array),
            sent_mask=array(np.bool_, (n,)),
        )


def end_of(offset: int, dtype: Any, shape: tuple[int, ...]) -> int:
    """Return where the next array begins."""
    end = offset + math.prod((np.dtype(dtype).itemsize, *shape))
    return -(-end // _ALIGNED) * _ALIGNED


def arrays_of(space: gym.Space[Any], n: int, array: Callable[..., Any]) -> Any:
    """Return the batch of `space` for n environments, of arrays that `array` makes."""
    if isinstance(space, spaces.Dict):
        return {key: arrays_of(part, n, array) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(arrays_of(part, n, array) for part in space.spaces)
    return array(space.dtype, (n, *(space.shape or ())))


def run(payload: bytes, share: range, n: int, block: Block, turn: socket.socket, parent: connection.Connection) -> None:
    """Run a process of environments until the parent ends it."""
    with as_child(parent):
        environments = Environments(cloudpickle.loads(payload), share, portable_info)
        try:
            parent.send(("spaces", *environments.spaces))
            if (spaces := parent.recv()) is None:
                return
            environments.use(StepResults.of(block, spaces, n))
            while what := turn.recv(1):
                infos: dict[int, Any] = {}
                if what in STEP:
                    infos = environments.step(STEP.index(what))
                elif what == STATISTICS:
                    infos = dict(zip(share, environments.statistics(), strict=True))
                elif what == LOAD:
                    environments.load_statistics(*parent.recv())
                else:
                    environments.reset(RESET.index(what))
                turn.send(INFOS if infos else DONE)
                if infos:
                    parent.send(("infos", infos))
        finally:
            environments.close()


class Environments:
    """The environments of one process, which step one after another and are reset where their episode has ended.

    Args:
        make: Makes one.
        share: Which of the N they are.
        keep: From the last info of an episode to what is kept of it.

    Attributes:
        infos: The newest one of each.
    """

    def __init__(self, make: Callable[[], Any], share: range, keep: Callable[[Info], Info]) -> None:
        self._share, self._keep = share, keep
        self.infos: list[Info] = [{} for _ in share]
        self._envs: list[gym.Env[Any, Any]] = []
        with self._blamed():
            for _ in share:
                env = make()
                if not isinstance(env, gym.Env):
                    raise ValueError(f"make must return a gymnasium.Env (one, not a vector of them), got {env!r}")
                self._envs.append(env)
                if (env.observation_space, env.action_space) != self.spaces:
                    raise ValueError(
                        f"make must make environments with the same spaces, got {self.spaces} and "
                        f"{(env.observation_space, env.action_space)}"
                    )

    @property
    def spaces(self) -> Spaces:
        """The spaces of a single environment."""
        return self._envs[0].observation_space, self._envs[0].action_space

    def use(self, board: StepResults) -> None:
        """Take the shared memory into use."""
        mine = slice(self._share.start, self._share.stop)
        space: Any = self.spaces[0]
        # The check of observations; dtype and shape of the arrays that pass it at once, and without a call.
        array = (np.dtype(space.dtype), space.shape) if isinstance(space, spaces.Box) else (None, None)
        self._check = observation_check(space), *array

        def part(batch: Any) -> Any:
            return mapped(lambda leaf: leaf[mine], batch)

        self._actions = part(board.actions)
        self._seeds, self._times, self._delayed = board.seeds[mine], board.times[:, mine], board.delayed
        self._executed, self._chunked = board.executed[mine], board.chunked
        self._put_sent, self._sent_mask = _writer(part(board.sent)), board.sent_mask[mine]
        self._reward, self._terminal, self._truncated = board.reward[mine], board.terminal[mine], board.truncated[mine]
        self._put = [_writer(part(place)) for place in board.observations]
        self._put_final = _writer(part(board.final))
        self._batched = batch_space(self.spaces[1], len(self._envs))
        self._discrete = isinstance(self.spaces[1], spaces.Discrete)

    def reset(self, place: int) -> None:
        """Reset all."""
        with self._blamed():
            for i, (env, seed) in enumerate(zip(self._envs, self._seeds.tolist(), strict=True)):
                self._at = i
                observation, info = begun(env, seed=seed)
                self._begin(place, i, observation, info)

    def step(self, place: int) -> dict[int, Info]:
        """Step all, reset those whose episode has ended, and return the infos of these episodes."""
        infos: dict[int, Info] = {}
        rewards: list[Any] = []
        times: list[Any] = []
        put, delayed, (check, dtype, shape) = self._put[place], self._delayed[0], self._check
        self._terminal[:] = self._truncated[:] = self._sent_mask[:] = False
        with self._blamed():
            for i, (env, action) in enumerate(zip(self._envs, self._given(), strict=True)):
                self._at = i
                outcome: Any = env.step(action)
                try:
                    observation, reward, terminated, truncated, info = outcome
                except (TypeError, ValueError):
                    raise no_step(env, outcome) from None
                # This is `gymnasium_api.stepped` written out: a call for each environment costs on every step.
                if not (type(terminated) is bool and type(truncated) is bool and type(info) is dict):
                    refuse_ends(terminated, truncated, info)
                rewards.append(reward if type(reward) is float else reward_of(reward))
                if not (type(observation) is np.ndarray and observation.dtype is dtype and observation.shape == shape):
                    check(observation)
                if terminated or truncated:
                    self._terminal[i], self._truncated[i] = terminated, truncated
                    self._put_final(i, observation)
                    if info:
                        infos[self._share[i]] = self._keep(info)
                    observation, info = begun(env)
                    self._begin(place, i, observation, info)
                    times.append(self._times[:, i])
                    continue
                put(i, observation)
                self.infos[i] = info
                if delayed:
                    realtime = info["realtime"]
                    times.append(_times_of(realtime))
                    if "executed" in realtime:
                        self._executed[i], self._chunked[0] = realtime["executed"], True
                    if "sent" in realtime:
                        self._put_sent(i, realtime["sent"])
                        self._sent_mask[i] = True
        self._reward[:] = rewards
        if delayed:
            self._times[:] = np.array(times, np.int64).T
        return infos

    def statistics(self) -> list[Statistics]:
        """Return the statistics of the wrappers of each."""
        return [statistics_of(env) for env in self._envs]

    def load_statistics(self, statistics: Sequence[Statistics], frozen: bool) -> None:
        """Give each its own, and freeze them on demand."""
        with self._blamed():
            for i, (env, each) in enumerate(zip(self._envs, statistics, strict=True)):
                self._at = i
                load_statistics(env, each)
                if frozen:
                    freeze(env)

    def close(self) -> None:
        """Close all."""
        for env in self._envs:
            with suppress(Exception):
                env.close()

    def _begin(self, place: int, i: int, observation: Any, info: Info) -> None:
        """An episode begins."""
        check, dtype, shape = self._check
        if not (type(observation) is np.ndarray and observation.dtype is dtype and observation.shape == shape):
            check(observation)
        self._put[place](i, observation)
        self.infos[i] = info
        realtime = info.get("realtime")
        if realtime is not None:
            self._delayed[0] = True
            self._times[:, i] = [realtime["start"], realtime["frame"], 0, False]

    def _given(self) -> Sequence[Any]:
        """Return the actions."""
        # Python's numbers, as `Discrete` takes them faster than NumPy's; arrays of the environment's own.
        return self._actions.tolist() if self._discrete else rows(self._batched, own_copy(self._actions))

    @contextmanager
    def _blamed(self) -> Iterator[None]:
        """Add the environment's number to an exception that it raises in the block."""
        self._at = len(self._envs)
        try:
            yield
        except Exception as error:
            error.add_note(f"environment {self._share[min(self._at, len(self._share) - 1)]}")
            raise


def _writer(batch: Any) -> Callable[[int, Any], None]:
    """Return a function that writes an observation into row i."""
    if isinstance(batch, dict | tuple):
        parts = [(key, _writer(part)) for key, part in (batch.items() if isinstance(batch, dict) else enumerate(batch))]

        def write(i: int, observation: Any) -> None:
            for key, write_part in parts:
                write_part(i, observation[key])

        return write
    return batch.__setitem__  # type: ignore[no-any-return]


def portable_info(info: Info) -> Info:
    """Return the entries of an info that can be pickled."""
    with suppress(Exception):
        pickle.dumps(info)
        return info
    portable = {}
    for key, value in info.items():
        with suppress(Exception):
            pickle.dumps(value)
            portable[key] = value
    return portable

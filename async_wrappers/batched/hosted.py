"""`HostedEnvs`: environments on hosts, which step them and do nothing else, as `BatchedEnvs`.

The caller computes all actions, as the learner of SEED RL does (Espeholt et al. 2020, arXiv 1910.06591). A host holds
`BatchedEnvs` of its own and needs no network. An engine runs the hosts and carries orders and answers: in this process,
in others, or on other machines (`agents.play.hosts`). An order is a word and what belongs to it; each has one answer::

    spaces                    the spaces of a single environment
    begin, seeds              the first rows
    more                      the next rows, where the host's environments take turns
    send, env_ids, actions    the next rows
    cut                       the last rows
    statistics                those of wrappers
    load, statistics, frozen  None

A host that is lost is replaced by another incarnation, and its episodes are cut, as `ProcessEnvs` does with a process.
"""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from async_wrappers.batched.environment_process import portable_info
from async_wrappers.batched.protocol import BatchedEnvs, Shown
from async_wrappers.batched.rows import ended_by, finals, mapped, numbered, taken, together
from async_wrappers.batched.vector_envs import TurnCheck, seeds_anew, seeds_of
from async_wrappers.checks import whole
from async_wrappers.fleet.engine_fleet import EngineFleet, Lost
from async_wrappers.fleet.supervised import RunFailed
from async_wrappers.wrapper_statistics import Statistics, give_statistics, statistics_of_envs

_LOOK = 1.0  # seconds between two looks at whether a host is late
_DEATHS = 5  # of a host, one after another without a step between them, that end a run


class Stepped(NamedTuple):
    """A host's answer to an order.

    Attributes:
        host: Its number.
        incarnation: Which of its incarnations.
        order: The order's word.
        content: Rows (`Shown`, with the host's own numbers of environments), spaces, or statistics of wrappers.
        seconds: That the host took for it.
    """

    host: int
    incarnation: int
    order: str
    content: Any
    seconds: float


@dataclass(frozen=True)
class EnvsPlan:
    """What hosts are made from; it travels to other processes by cloudpickle.

    Attributes:
        make_envs: Makes environments (`BatchedEnvs`) from ``num_envs=``.
        share: Environments of a host.
    """

    make_envs: Callable[..., BatchedEnvs]
    share: int

    def make_host(self, number: int, incarnation: int, rows: Mapping[str, Sequence[int]]) -> EnvsHost:
        """Make a host; `rows`, the counts of hosts that act, mean nothing here."""
        return EnvsHost(self.make_envs(num_envs=self.share), number, incarnation)


class EnvsHost:
    """A host: carries out orders on its environments.

    Args:
        envs: The environments.
        number: Which host it is.
        incarnation: How often it was started before.
    """

    def __init__(self, envs: BatchedEnvs, number: int, incarnation: int) -> None:
        self._envs, self.number, self.incarnation = envs, number, incarnation

    def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        """Do nothing: the caller computes actions."""

    def play(self, order: tuple[Any, ...], /) -> Stepped:
        """Carry out an order."""
        begin, (word, *given) = time.perf_counter(), order
        content = self._carried_out(word, *given)
        return Stepped(self.number, self.incarnation, word, content, time.perf_counter() - begin)

    def _carried_out(self, word: str, *given: Any) -> Any:
        envs = self._envs
        if word == "spaces":
            return envs.observation_space, envs.action_space
        if word == "statistics":
            return statistics_of_envs(envs)
        if word == "load":
            return give_statistics(envs, *given)
        if word == "begin":
            envs.begin(*given)
        elif word == "send":
            envs.send(*given)
        shown = envs.cut() if word == "cut" else envs.recv()
        return shown._replace(info={i: portable_info(dict(info)) for i, info in shown.info.items()})

    def close(self) -> None:
        """Close the environments."""
        self._envs.close()


class HostedEnvs:
    """N environments on hosts, as `BatchedEnvs`.

    `recv` waits for all hosts, so that the rows do not depend on how long anything takes. Running freely it waits for
    one of them and returns the rows of those that have answered, so that no host waits for the slowest.

    A host that is lost is replaced. Its episodes are cut: their rows are truncated, with reward 0 and the observation
    that was shown last as final one, and new episodes begin, with seeds derived from the first ones. A host that dies
    five times without a step between is an error.

    Args:
        make_engine: From an `EnvsPlan` to what runs the hosts (`agents.play.hosts.engine.HostEngine`); it is closed
            with this object.
        make_envs: Makes a host's environments from ``num_envs=``; all hosts have equal shares.
        num_envs: N.
        num_hosts: H.
        free: Whether hosts run freely.
        double_buffered: Whether a host's environments are two halves that take turns (`DoubleBuffered`): then one half
            steps while the caller computes the actions of the other.
        timeout: Seconds that an answer is waited for: then the host is ended and replaced; None for no limit.

    Attributes:
        lost_episodes: Episodes that were cut for that reason.
        seconds: That hosts took for all orders so far, added up.

    Raises:
        ValueError: Numbers that do not fit, or hosts whose spaces differ.
        RuntimeError: An environment raises an exception.
        RunFailed: A host dies again and again.
    """

    def __init__(
        self,
        make_engine: Callable[[EnvsPlan], Any],
        make_envs: Callable[..., BatchedEnvs],
        num_envs: int,
        num_hosts: int,
        *,
        free: bool = False,
        double_buffered: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Start the hosts, and wait until all have made their environments."""
        self.num_envs, num_hosts = whole("num_envs", num_envs, 1), whole("num_hosts", num_hosts, 1)
        if self.num_envs % num_hosts:
            raise ValueError(f"num_envs must be a multiple of the {num_hosts} hosts, got {num_envs}")
        share = self.num_envs // num_hosts
        self._free, self._ahead = free, int(double_buffered)
        self.lost_episodes, self.seconds = 0, 0.0
        self._turns = TurnCheck()
        self._running = self._cutting = self._frozen = False
        self._seeds = np.zeros(self.num_envs, np.int64)
        self._last: list[tuple[Shown, int] | None] = []  # by environment, the row that was shown last, and its place
        self._hosts = [
            _EnvironmentHost(number, range(number * share, (number + 1) * share)) for number in range(num_hosts)
        ]
        self._asked: list[tuple[_EnvironmentHost, int]] = []  # hosts whose rows wait for actions, and how many rows
        self._engine = make_engine(EnvsPlan(make_envs, share))
        self._fleet = EngineFleet(self._engine, dict.fromkeys(range(num_hosts), 0), _DEATHS, timeout, _given_up)
        try:
            for host in self._hosts:
                self._start(host)
            while any(self._fleet.owed.values()):
                self._collect()
            self._take_spaces()
        except BaseException:
            self.close()
            raise

    def _take_spaces(self) -> None:
        spaces = self._hosts[0].spaces
        for host in self._hosts:
            if host.spaces != spaces:
                raise ValueError(
                    f"hosts must make environments with the same spaces, got {spaces} and, of host {host.number}, "
                    f"{host.spaces}"
                )
        self.observation_space, self.action_space = spaces

    @property
    def restarts(self) -> int:
        """Hosts that were lost and replaced."""
        return self._fleet.restarts

    def begin(self, seeds: Sequence[int]) -> None:
        self._seeds = seeds_of(seeds, self.num_envs)
        self._turns.begin()
        self._running, self._cutting, self._last = True, False, [None] * self.num_envs
        for host in self._hosts:
            host.unwanted = self._fleet.owed[host.number]
            host.came.clear()
            host.lost.clear()
            self._begin(host, self._seeds)

    def recv(self) -> Shown:
        self._turns.before_recv()
        enough = any if self._free else all
        while not enough(host.came for host in self._hosts):
            self._collect()
        parts, self._asked = [], []
        for host in self._hosts:
            if not host.came:
                continue
            part = numbered(self._with_ends(host, host.came.popleft()), host.envs.start)
            for place, i in enumerate(part.env_ids.tolist()):
                self._last[i] = part, place
            parts.append(part)
            self._asked.append((host, len(part.env_ids)))
        shown = together(parts)
        self._turns.show(shown.env_ids)
        return shown

    def send(self, env_ids: NDArray[np.int64], actions: Any) -> None:
        actions = mapped(np.asarray, actions)
        self._turns.answer(env_ids, actions)
        first = 0
        for host, count in self._asked:
            rows = np.arange(first, first + count)
            self._submit(host, "send", np.asarray(env_ids)[rows] - host.envs.start, taken(actions, rows))
            first += count

    def cut(self) -> Shown:
        self._turns.before_cut()
        self._cutting = True
        for host in self._hosts:
            self._submit(host, "cut")
        while any(self._fleet.owed.values()):
            self._collect()
        self._running = self._cutting = False
        self._turns.end()
        parts = []
        for host in self._hosts:
            *before, cut = (self._with_ends(host, part) for part in host.came)
            host.came.clear()
            parts.append(numbered(ended_by(cut, before), host.envs.start))
        return together(parts)

    def statistics(self) -> list[Statistics]:
        """Of a host that was lost the newest known."""
        for host in self._hosts:
            host.tells = True
            self._submit(host, "statistics")
        while any(host.tells for host in self._hosts):
            self._collect()
        return [each for host in self._hosts for each in host.statistics]

    def load_statistics(self, statistics: Sequence[Statistics], frozen: bool = False) -> None:
        self._frozen = frozen
        for host in self._hosts:
            host.statistics = statistics[host.envs.start : host.envs.stop]
            self._submit(host, "load", host.statistics, frozen)

    def close(self) -> None:
        self._turns.end(closed=True)
        self._engine.close()

    # Hosts.

    def _start(self, host: _EnvironmentHost) -> None:
        """Start a host, or another incarnation of it, and ask for its spaces."""
        self._fleet.start(host.number, {})
        self._submit(host, "spaces")
        if any(host.statistics):
            self._submit(host, "load", host.statistics, self._frozen)

    def _begin(self, host: _EnvironmentHost, seeds: NDArray[np.int64]) -> None:
        self._submit(host, "begin", seeds[host.envs.start : host.envs.stop].tolist())
        for _ in range(self._ahead):
            self._submit(host, "more")

    def _submit(self, host: _EnvironmentHost, *order: Any) -> None:
        self._fleet.submit(host.number, order)

    def _collect(self) -> None:
        """Wait a while for answers and take them; replace the hosts that are lost."""
        try:
            for each in self._fleet.collect(_LOOK):
                host = self._hosts[each.host]
                if isinstance(each, Lost):
                    self._replace(host, each.why)
                    continue
                host.take(each)
                self.seconds += each.seconds
                if each.order == "send":
                    self._fleet.works(host.number)
        except BaseException:
            self._turns.end()  # no row could be shown
            raise

    def _replace(self, host: _EnvironmentHost, why: str) -> None:
        """Start another incarnation of a host; its episodes are lost, unless it had answered the last order of all."""
        plays = self._running and not (self._cutting and not self._fleet.owed[host.number])
        warnings.warn(
            f"host {host.number} {why}: another one takes its place{', and its episodes are cut' * plays}",
            RuntimeWarning,
            stacklevel=2,
        )
        host.unwanted, host.tells = 0, False
        self._start(host)
        if plays:
            host.came.clear()
            host.lost |= {i for i in host.envs if self._last[i] is not None}
            self.lost_episodes += len(host.envs)
            self._begin(host, seeds_anew(self._seeds, self._fleet.incarnation[host.number]))
            if self._cutting:
                self._submit(host, "cut")

    def _with_ends(self, host: _EnvironmentHost, part: Shown) -> Shown:
        """Return a host's rows with the ends of the episodes that were lost before them."""
        places = [place for place, i in enumerate(part.env_ids.tolist()) if i + host.envs.start in host.lost]
        if not places:
            return part
        truncated, final, info = part.truncated.copy(), dict(part.final), dict(part.info)
        truncated[places] = True
        for i in part.env_ids[places].tolist():
            last = self._last[i + host.envs.start]
            assert last is not None
            shown, at = last
            (final[i],) = finals(shown.observation, np.array([at])).values()
            times = {name: int(shown.realtime[name][at]) for name in ("start", "frame")}
            info[i] = {"lost": True, "realtime": {**times, "interval": 0, "applied": False}}
            host.lost.discard(i + host.envs.start)
        return part._replace(truncated=truncated, final=final, info=info)


def _given_up(lost: Lost) -> RunFailed:
    return RunFailed(
        f"host {lost.host} {lost.why}, {_DEATHS} times without a step between: look for the reason there (memory, "
        "most often)"
    )


class _EnvironmentHost:
    """A host, as the caller sees it."""

    def __init__(self, number: int, envs: range) -> None:
        self.number, self.envs = number, envs
        self.spaces: Any = None
        self.unwanted = 0  # of the orders without an answer, the ones whose answers are dropped
        self.came: deque[Shown] = deque()  # answers that were not shown
        self.statistics: Sequence[Statistics] = [{} for _ in envs]  # of the wrappers, the newest known
        self.tells = False  # whether it was asked for them
        self.lost: set[int] = set()  # environments whose episode was lost, which is still to be shown

    def take(self, answer: Stepped) -> None:
        if answer.order == "statistics":
            self.statistics, self.tells = answer.content, False
        if self.unwanted:
            self.unwanted -= 1
        elif answer.order in ("statistics", "load"):
            return
        elif answer.order == "spaces":
            self.spaces = answer.content
        else:
            self.came.append(answer.content)

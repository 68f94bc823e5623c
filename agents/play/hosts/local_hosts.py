"""Hosts of this process, which play one after another while the learner waits: to try things out, and for tests."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from async_wrappers.agents.play.hosts.engine import Lost, Player, failure, portable

if TYPE_CHECKING:
    from async_wrappers.agents.play.hosts.engine import HostPlan


class LocalHosts:
    """Hosts of this process; see `HostEngine`.

    Args:
        plan: What they are made from.
    """

    def __init__(self, plan: HostPlan) -> None:
        self._plan = plan
        self._hosts: dict[int, Player] = {}
        self._orders: deque[tuple[int, Any, tuple[Mapping[str, Any], int] | None]] = deque()
        self._weights: tuple[Mapping[str, Any], int] | None = None
        self._lost: list[Lost] = []

    def start(self, host: int, incarnation: int, rows: Mapping[str, Sequence[int]]) -> None:
        try:
            self._hosts[host] = self._plan.make_host(host, incarnation, rows)
        except Exception as error:
            raise failure(host, error) from error

    def publish(self, weights: Mapping[str, Any], version: int) -> None:
        self._weights = portable(weights), version

    def submit(self, host: int, order: Any = False) -> None:
        """An order of a host that was ended is lost with it."""
        if host in self._hosts:
            self._orders.append((host, order, self._weights))

    def collect(self, timeout: float) -> list[Any]:
        """Carry out the oldest order."""
        if self._lost:
            lost, self._lost = self._lost, []
            return [*lost]
        if not self._orders:
            return []
        host, order, weights = self._orders.popleft()
        try:
            if weights is not None:
                self._hosts[host].load_weights(*weights)
            return [self._hosts[host].play(order)]
        except Exception as error:
            raise failure(host, error) from error

    def kill(self, host: int, why: str) -> None:
        dead = self._hosts.pop(host)
        dead.close()
        self._orders = deque(order for order in self._orders if order[0] != host)
        self._lost.append(Lost(host, dead.incarnation, why))

    def close(self) -> None:
        for host in self._hosts.values():
            host.close()
        self._hosts.clear()

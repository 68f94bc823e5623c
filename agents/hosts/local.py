"""Hosts of this process, which play one after another while the learner waits: to try things out, and for tests."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from async_wrappers.agents.hosts.block import PlayedBlock
from async_wrappers.agents.hosts.engine import Lost, failure, portable
from async_wrappers.agents.hosts.host import Host, Plan

__all__ = ["LocalHosts"]


class LocalHosts:
    """Hosts of this process; see `HostEngine`.

    Args:
        plan: What they are made from.
    """

    def __init__(self, plan: Plan) -> None:
        """See the class."""
        self._plan = plan
        self._hosts: dict[int, Host] = {}
        self._orders: deque[tuple[int, bool, Mapping[str, Any], int]] = deque()
        self._weights: tuple[Mapping[str, Any], int] = {}, -1
        self._lost: list[Lost] = []

    def start(self, host: int, incarnation: int, rows: Mapping[str, Sequence[int]]) -> None:
        """See `HostEngine`."""
        self._hosts[host] = Host(self._plan, host, incarnation, rows)

    def publish(self, weights: Mapping[str, Any], version: int) -> None:
        """See `HostEngine`."""
        self._weights = portable(weights), version

    def submit(self, host: int, cut: bool = False) -> None:
        """See `HostEngine`."""
        self._orders.append((host, cut, *self._weights))

    def collect(self, timeout: float) -> list[PlayedBlock | Lost]:
        """See `HostEngine`: play the oldest order."""
        if self._lost:
            lost, self._lost = self._lost, []
            return [*lost]
        if not self._orders:
            return []
        host, cut, weights, version = self._orders.popleft()
        try:
            self._hosts[host].load_weights(weights, version)
            return [self._hosts[host].play(cut)]
        except Exception as error:
            raise failure(host, error) from error

    def kill(self, host: int, why: str) -> None:
        """See `HostEngine`."""
        dead = self._hosts.pop(host)
        dead.close()
        self._orders = deque(order for order in self._orders if order[0] != host)
        self._lost.append(Lost(host, dead.incarnation, why))

    def close(self) -> None:
        """See `HostEngine`."""
        for host in self._hosts.values():
            host.close()
        self._hosts.clear()

"""The connection of sweeps and hosts to a Ray cluster, or to a Ray of one's own; needs the extra `ray`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import ray

from async_wrappers.agents.config.config import ConfigError
from async_wrappers.ray_cluster import NoCluster, connect_to_ray, disconnect_from_ray

__all__ = ["connected_to_ray"]


@contextmanager
def connected_to_ray(address: str | None, jobs: int | None, niceness: int | None = None) -> Iterator[None]:
    """Connect to Ray for the block; if the process is connected already, use that connection.

    Args:
        address: Of the cluster; None starts one on this machine.
        jobs: CPUs of a Ray of its own; None for as many as the machine has.
        niceness: Of the workers of a Ray of its own; None for Ray's, which is 15.

    Raises:
        ConfigError: None answers, or the process is connected to another one.
    """
    if ray.is_initialized():
        if address is not None:
            raise ConfigError(f"address {address}: this process is connected to Ray already: leave the address out")
        yield
        return
    try:
        connect_to_ray(address, jobs, niceness=niceness)
    except NoCluster as error:
        raise ConfigError(str(error)) from None
    try:
        yield
    finally:
        disconnect_from_ray()

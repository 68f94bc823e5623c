"""The connection to a Ray cluster, or to a Ray of one's own on this machine; needs the extra `ray`."""

from __future__ import annotations

import re
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import ray
from absl import logging
from ray._private import ray_constants

from async_wrappers.agents.children import python_path
from async_wrappers.agents.experiment.config import ConfigError

__all__ = ["connected_to_ray"]

LOOPBACK = "127.0.0.1"


@contextmanager
def connected_to_ray(address: str | None, jobs: int | None) -> Iterator[None]:
    """Connect to Ray for the block; if the process is connected already, use that connection."""
    if ray.is_initialized():
        if address is not None:
            raise ConfigError(f"address {address}: this process is connected to Ray already: leave the address out")
        yield
        return
    if address is not None:
        _check_answers(address)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    own = {"address": "local", "num_cpus": jobs, "include_dashboard": False, "dashboard_host": LOOPBACK}
    where = {"address": address} if address else {**own, "_node_ip_address": LOOPBACK}
    # Without the second variable, Ray hides a node's accelerators from a trial that asks for none.
    env = {"PYTHONPATH": python_path(), "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    try:
        with _tried_once() if address else _on_the_loopback():
            ray.init(**where, runtime_env={"env_vars": env}, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())  # of another Python or Ray, several lines
        raise ConfigError(f"address {address}: no Ray cluster answers there ({reason}): see ray start --help") from None
    # Ray has replaced the handlers of signals. Only the main thread can put them back.
    with suppress(ValueError):
        for number, handler in handlers.items():
            signal.signal(number, handler)
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _on_the_loopback() -> Iterator[None]:
    """Let a Ray that starts within the block listen on this machine's loopback alone.

    Whoever reaches a Ray can run code there.
    """
    # On Linux, Ray replaces a loopback address by the machine's own and listens on all interfaces. On macOS and Windows
    # it does not, because this switch is off there.
    before = getattr(ray_constants, "ENABLE_RAY_CLUSTER", None)
    try:
        if before is not None:
            ray_constants.ENABLE_RAY_CLUSTER = False
        yield
    finally:
        if before is not None:
            ray_constants.ENABLE_RAY_CLUSTER = before
    # Another version of Ray may ignore the switch.
    if (there := ray.util.get_node_ip_address()) != LOOPBACK:
        logging.warning("Ray listens on %s, where others may reach it: keep a firewall before this machine", there)


@contextmanager
def _tried_once() -> Iterator[None]:
    """Let Ray give up after one attempt to reach a cluster, about 40 s, and not after 20 of them."""
    before = getattr(ray_constants, "NUM_REDIS_GET_RETRIES", None)
    try:
        if before is not None:
            ray_constants.NUM_REDIS_GET_RETRIES = 1
        yield
    finally:
        if before is not None:
            ray_constants.NUM_REDIS_GET_RETRIES = before


def _check_answers(address: str) -> None:
    """Refuse at once an address where nobody listens: Ray itself would try for minutes."""
    place = re.fullmatch(r"(?:ray://)?(.+):(\d+)", address)
    if place is None:
        # One of Ray's own names, such as "auto".
        return
    try:
        socket.create_connection((place[1], int(place[2])), timeout=10).close()
    except OSError as error:
        raise ConfigError(f"address {address}: no Ray cluster answers there ({error}): see ray start --help") from None

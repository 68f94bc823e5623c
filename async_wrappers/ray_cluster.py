"""A connection to Ray: one that this process starts for itself, on the loopback, or a cluster at an address.

Sweeps, hosts and workers on other machines share it. Ray is imported when a connection is made.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from async_wrappers.extras import extra

LOOPBACK = "127.0.0.1"
# Ray speaks gRPC, which is HTTP/2: each end begins with a frame of settings.
_HTTP_2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
_FRAME, _SETTINGS = 9, b"\4"  # bytes of a frame's header, and its kind in it
_ANSWER = 10.0  # seconds that a cluster has to answer
# Where `async_wrappers` is: the clone, or site-packages.
_ROOT = str(Path(__file__).absolute().parents[1])


class NoCluster(RuntimeError):
    """No Ray cluster can be reached; the message is a sentence."""


class Exits(Exception):
    """The code of a user has ended its program in an actor; the message is the end of a sentence."""


@contextmanager
def exits_told() -> Iterator[None]:
    """Let the words of ``sys.exit`` and the like travel: Ray would end the actor, or cancel the task, without them.

    Raises:
        Exits: The block has raised what ends programs. The caller ends the actor.
    """
    try:
        yield
    except Exception:
        raise
    except BaseException as error:
        raise Exits(f"raised {error!r:.200}") from None


def python_path() -> str:
    """Return the directories where this process finds its modules, for ``PYTHONPATH``."""
    places = [place or os.getcwd() for place in sys.path]
    return os.pathsep.join(places if _ROOT in places else [_ROOT, *places])


def joined() -> str | None:
    """Return the address of the cluster that this process is connected to already; None if it is to none."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return None
    address: str = ray.get_runtime_context().gcs_address
    return address


def connect_to_ray(
    address: str | None,
    cpus: int | None = None,
    runtime_env: Mapping[str, Any] | None = None,
    niceness: int | None = None,
) -> None:
    """Connect this process, from its main thread; signals keep their handlers.

    Ray's processes find modules where this process does, and hide no accelerator from one that asks for none.

    Args:
        address: Of the cluster; None starts one on this machine, for this process alone, on the loopback.
        cpus: That a Ray of its own has; None for as many as the machine.
        runtime_env: Ray's, for the processes on all nodes.
        niceness: Of the workers of a Ray of its own; None for Ray's, which is 15.

    Raises:
        NoCluster: None answers, or none can be started.
        DependencyNotInstalled: The extra `ray` is missing.
    """
    with extra("Ray", "ray"):
        import ray
    if address is not None:
        refuse_silent(address)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    own: dict[str, Any] = {"address": "local", "num_cpus": cpus, "include_dashboard": False, "dashboard_host": LOOPBACK}
    if niceness is not None:
        own["_system_config"] = {"worker_niceness": niceness}
    where = {"address": address} if address else {**own, "_node_ip_address": LOOPBACK}
    given = dict(runtime_env or {})
    # Without the second variable, Ray hides a node's accelerators from a process that asks for none.
    given["env_vars"] = {
        "PYTHONPATH": python_path(),
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        **given.get("env_vars", {}),
    }
    try:
        with nullcontext() if address else _on_the_loopback():
            ray.init(**where, runtime_env=given, log_to_driver=False, logging_level="ERROR")
    except Exception as error:  # Ray has no kind of its own for what fails here
        raise NoCluster(_why_not(address, error)) from None
    # Ray has replaced the handlers of signals. Only the main thread can put them back.
    with suppress(ValueError):
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _why_not(address: str | None, error: Exception) -> str:
    """Return a sentence on a connection that failed."""
    reason = " ".join(str(error).split())  # of another Python or Ray, several lines
    if address is None:
        return f"Ray does not start on this machine ({reason}): see its logs in /tmp/ray"
    try:
        # Where a cluster refuses a token, or wants one, `ray.init` only says that it cannot connect.
        from ray._raylet import GcsClient

        GcsClient(address=address)
    except Exception as asked:
        if type(asked).__name__ == "AuthenticationError":
            return f"address {address}: {' '.join(str(asked).split())}"
    return f"address {address}: no Ray cluster answers there ({reason}): see ray start --help"


def in_short(error: BaseException) -> str:
    """Return the line of an error of Ray's that says most: the first, or the last of a traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    return (lines[-1] if "creation task" in lines[0] else lines[0]).rstrip(".")


def room() -> str:
    """Return what the cluster has left, as the end of a sentence."""
    with suppress(Exception):
        left = sys.modules["ray"].available_resources()
        return f"{left.get('CPU', 0):g} CPUs and {left.get('GPU', 0):g} GPUs are free"
    return "it does not answer"


def disconnect_from_ray() -> None:
    """End the connection, and the Ray that this process has started."""
    sys.modules["ray"].shutdown()


@contextmanager
def connected_to_ray(address: str | None, jobs: int | None, niceness: int | None = None) -> Iterator[None]:
    """Connect to Ray for the block; if the process is connected already, use that connection.

    Args:
        address: Of the cluster; None starts one on this machine.
        jobs: CPUs of a Ray of its own; None for as many as the machine has.
        niceness: Of the workers of a Ray of its own; None for Ray's, which is 15.

    Raises:
        NoCluster: None answers, or the process is connected to another one.
    """
    if joined() is not None:
        if address is not None:
            raise NoCluster(f"address {address}: this process is connected to Ray already: leave the address out")
        yield
        return
    connect_to_ray(address, jobs, niceness=niceness)
    try:
        yield
    finally:
        disconnect_from_ray()


def room_for(wants: Mapping[str, float]) -> int:
    """Return how many processes the cluster's nodes have room for, if nothing else runs there.

    Args:
        wants: What one of them needs, by Ray's names, such as ``{"CPU": 1.0}``.
    """
    nodes = [node["Resources"] for node in sys.modules["ray"].nodes() if node["Alive"]]
    return sum(int(min(node.get(name, 0.0) // wanted for name, wanted in wants.items() if wanted)) for node in nodes)


@contextmanager
def _on_the_loopback() -> Iterator[None]:
    """Let a Ray that starts within the block listen on this machine's loopback alone.

    Whoever reaches a Ray can run code there.
    """
    import ray
    from ray._private import ray_constants

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
        logging.getLogger(__name__).warning(
            "Ray listens on %s, where others may reach it: keep a firewall before this machine", there
        )


def refuse_silent(address: str) -> None:
    """Refuse an address where nobody listens, or somebody who is no Ray: Ray itself would try for minutes.

    Raises:
        NoCluster: That is so; what listens has ten seconds to answer.
    """
    place = re.fullmatch(r"(?:ray://)?(.+):(\d+)", address)
    if place is None:
        # One of Ray's own names, such as "auto".
        return
    reason = "what answers is no Ray"
    try:
        with socket.create_connection((place[1], int(place[2])), timeout=_ANSWER) as end:
            end.sendall(_HTTP_2)
            if end.recv(_FRAME, socket.MSG_WAITALL)[3:4] == _SETTINGS:
                return
    except OSError as error:
        reason = str(error)
    raise NoCluster(f"address {address}: no Ray cluster answers there ({reason}): see ray start --help")

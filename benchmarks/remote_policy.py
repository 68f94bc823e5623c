"""A policy in another process or on another machine: its round trips beside those of other wires, and runs with it.

`trip`: a round trip over the loopback, beside the wires of openpi's server (websockets with msgpack) and of LeRobot's
(gRPC with bytes), with the same payloads, in turns. The peers are optional: ``pip install websockets msgpack grpcio``.
`ray`: a round trip to a worker on Ray, beside this wire and a bare call ``ray.get(actor.act.remote(observation))``; a
worker's has besides what a run does with it: the action is checked against its space, the parts of the round trip are
booked, and the environment loop waits for no call. Ray is an extra: ``pip install -e '.[ray]' -c constraints.txt``.
`fresh`: 8 workers of 100 ms at 60 frames a second. `proxy`: behind a network of 20 +- 10 ms each way, beside the
simulation's prediction from the measured round trips. `chaos`: the server is killed every 10 s for two minutes; nothing
of any of them may be left, its workers' processes neither.

    python -m benchmarks.remote_policy [trip] [ray] [fresh] [proxy] [chaos] [--seconds 20] [--fifo 40]
"""

from __future__ import annotations

import contextlib
import importlib.util
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle
import gymnasium as gym
import numpy as np

from async_wrappers import AsyncRunner, RayWorkers
from async_wrappers.live.cluster.ray_transport import RayTransport
from async_wrappers.live.inference.transport import Ready
from async_wrappers.live.memory.exchange import ticket_of
from async_wrappers.live.memory.layout import SharedLayout
from async_wrappers.live.remote.address import Address
from async_wrappers.live.remote.remote_transport import RemotePolicy, RemoteTransport
from async_wrappers.live.remote.server import PolicyServer
from async_wrappers.live.run_spec import LoopConfig
from async_wrappers.schedule.stagger import NoStagger
from benchmarks.measuring import FIFO, head, print_hold, row, run_parts, time_trips
from tests.worlds.served import Proxy

ROOT = Path(__file__).parents[1]
SIZES = {
    "48 B -> 24 B": (gym.spaces.Box(-1, 1, (12,)), gym.spaces.Box(-1, 1, (6,))),
    "301 KB -> 2.8 KB": (gym.spaces.Box(0, 255, (2, 224, 224, 3), np.uint8), gym.spaces.Box(-1, 1, (50, 14))),
}
ROUNDS, TRIPS = 7, 150
OURS, RAY, BARE = "ours, TCP", "a worker on Ray", "a bare call of a Ray actor"
MARK = "REMOTE_POLICY_CHAOS"  # in the environment of a server and of all its processes
CONFIG = LoopConfig(1, 50, NoStagger())


class Constant:
    """Answers with the same array at once."""

    def __init__(self, space: gym.Space[Any]) -> None:
        self._answer = np.zeros(space.shape, space.dtype)

    def act(self, observation: Any, decision: Any) -> Any:
        """Return it."""
        return self._answer


# Contestants: each serves in a process of its own, and gives a function that makes a round trip.


def serve_ours(address: str, space: gym.Space[Any], listening: Any) -> None:
    PolicyServer(partial(Constant, space), address, backend="thread").serve(lambda where: listening.send(where))


def trips_of(transport: Any, observation: Any) -> Callable[[], Any]:
    """Wait until a transport's worker is up; return what sends it an observation and returns its action."""
    while not any(isinstance(event, Ready) for event in transport.collect(time.monotonic_ns() + 10**9)):
        pass
    number = 0

    def trip() -> Any:
        nonlocal number
        number += 1
        transport.show(number, observation)
        transport.start(0, ticket_of(0, number, 0, number, number, False))
        while not (events := transport.collect(time.monotonic_ns() + 10**9)):
            pass
        return events[0].action

    return trip


@contextmanager
def ours(sizes: tuple[Any, Any], observation: Any, unix: bool = False) -> Iterator[Callable[[], Any]]:
    address = f"unix:///tmp/remote_policy_{os.getpid()}.sock" if unix else "tcp://127.0.0.1:0"
    with in_process(serve_ours, address, sizes[1]) as where:
        layout = SharedLayout(*sizes, workers=1, learners=0, journal_capacity=8)
        with contextlib.closing(
            RemoteTransport(layout, CONFIG, RemotePolicy(Address.of("address", where)), print)
        ) as transport:
            yield trips_of(transport, observation)


@contextmanager
def on_ray(sizes: tuple[Any, Any], observation: Any) -> Iterator[Callable[[], Any]]:
    layout = SharedLayout(*sizes, workers=1, learners=0, journal_capacity=8)
    payload = cloudpickle.dumps(partial(Constant, sizes[1]))
    with contextlib.closing(RayTransport(layout, CONFIG, RayWorkers(), print, payload)) as transport:
        yield trips_of(transport, observation)


@contextmanager
def bare_ray(sizes: tuple[Any, Any], observation: Any) -> Iterator[Callable[[], Any]]:
    """Call an actor of the Ray that is up."""
    import ray

    actor = ray.remote(Constant).remote(sizes[1])
    yield lambda: ray.get(actor.act.remote(observation, None))
    ray.kill(actor)


def packed(array: Any) -> dict[str, Any]:
    """Return an array as openpi's client packs it."""
    return {"__ndarray__": True, "data": array.tobytes(), "dtype": array.dtype.str, "shape": array.shape}


def unpacked(message: dict[str, Any]) -> Any:
    return np.ndarray(message["shape"], message["dtype"], message["data"])


def serve_websockets(space: gym.Space[Any], listening: Any) -> None:
    import msgpack
    from websockets.sync.server import serve

    policy = Constant(space)

    def answer(socket: Any) -> None:
        for message in socket:
            observation = unpacked(msgpack.unpackb(message)["observation"])
            socket.send(msgpack.packb({"actions": packed(policy.act(observation, None))}))

    with serve(answer, "127.0.0.1", 0, compression=None, max_size=None) as server:
        listening.send(server.socket.getsockname()[1])
        server.serve_forever()


@contextmanager
def websockets(sizes: tuple[Any, Any], observation: Any) -> Iterator[Callable[[], Any]]:
    import msgpack
    from websockets.sync.client import connect

    with ExitStack() as held_open:
        port = held_open.enter_context(in_process(serve_websockets, sizes[1]))
        socket = held_open.enter_context(connect(f"ws://127.0.0.1:{port}", compression=None, max_size=None))

        def trip() -> Any:
            socket.send(msgpack.packb({"observation": packed(observation)}))
            return unpacked(msgpack.unpackb(socket.recv())["actions"])

        yield trip


def serve_grpc(space: gym.Space[Any], shape: tuple[int, ...], dtype: str, listening: Any) -> None:
    import grpc

    policy = Constant(space)

    def answer(request: bytes, context: Any) -> bytes:
        answered: bytes = policy.act(np.ndarray(shape, dtype, request), None).tobytes()
        return answered

    server = grpc.server(ThreadPoolExecutor(2))
    method = grpc.unary_unary_rpc_method_handler(answer)  # no serializers: bytes
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("policy", {"act": method}),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    listening.send(port)
    server.wait_for_termination()


@contextmanager
def grpc_bytes(sizes: tuple[Any, Any], observation: Any) -> Iterator[Callable[[], Any]]:
    import grpc

    with ExitStack() as held_open:
        port = held_open.enter_context(in_process(serve_grpc, sizes[1], observation.shape, observation.dtype.str))
        act = held_open.enter_context(grpc.insecure_channel(f"127.0.0.1:{port}")).unary_unary("/policy/act")

        def trip() -> Any:
            return np.frombuffer(act(observation.tobytes()), np.float32).reshape(sizes[1].shape)

        yield trip


@contextmanager
def in_process(target: Callable[..., None], *arguments: Any) -> Iterator[Any]:
    """Run a server in a process of its own; give what it says once it listens."""
    context = multiprocessing.get_context("spawn")
    listens, says = context.Pipe()
    process = context.Process(target=target, args=(*arguments, says), daemon=True)
    process.start()
    says.close()  # so that a server that ends before it listens is an error, and no wait without end
    try:
        yield listens.recv()
    finally:
        process.terminate()
        process.join(10)
        process.kill()


def table(made: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Print the round trips of contestants, which take turns; yield a payload's name and p50 and p99 of each."""
    print(head("payload", "way", "p50, us", "p99, us"))
    for size, spaces in SIZES.items():
        spaces[0].seed(0)
        observation = spaces[0].sample()
        with ExitStack() as held_open:
            trips = {
                name: partial(timed, held_open.enter_context(make(spaces, observation))) for name, make in made.items()
            }
            found = time_trips(trips, ROUNDS, TRIPS)
        for name, rows in found.items():
            print(row(size, name, *(f"{each:.0f}" for each in np.median(rows, axis=0))), flush=True)
        yield size, found


def timed(go: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    go()
    return time.perf_counter() - begin


def trip(args: Namespace) -> None:
    """Print the round trips of all wires, and whether ours are at most half of the better peer's."""
    made: dict[str, Any] = {OURS: ours, "ours, Unix": partial(ours, unix=True)}
    for name, peer, modules in (
        ("websockets + msgpack (openpi)", websockets, ("websockets", "msgpack")),
        ("gRPC, bytes (LeRobot)", grpc_bytes, ("grpc",)),
    ):
        if all(importlib.util.find_spec(module) for module in modules):
            made[name] = peer
        else:
            print(f"{name}: left out, as {' or '.join(modules)} is not installed")
    for size, found in table(made):
        peers = [np.median(rows, axis=0) for name, rows in found.items() if not name.startswith("ours")]
        if peers:
            better, own = np.min(peers, axis=0), np.median(found[OURS], axis=0)
            for what, share in zip(("p50", "p99"), own / better, strict=True):
                told(args, f"{size}: {what}, TCP, of the better peer's", share, most=0.5)


def ray(args: Namespace) -> None:
    """Print the round trips to a worker on Ray, beside our wire and a bare call."""
    if importlib.util.find_spec("ray") is None:
        print("a worker on Ray: left out, as ray is not installed")
        return
    for size, found in table({OURS: ours, RAY: on_ray, BARE: bare_ray}):
        for peer in (BARE, OURS):
            p50, p99 = np.median(np.divide(found[RAY], found[peer]), axis=0)
            print(f"{size}: {RAY} / {peer}, medians of {ROUNDS} rounds: p50 {p50:.2f}, p99 {p99:.2f}")


def told(args: Namespace, what: str, value: float, **bound: float) -> None:
    """Print whether a number was held, and remember what was not."""
    args.missed = getattr(args, "missed", False) | (not print_hold(what, value, **bound))


# Runs.


class Line(gym.Env[Any, Any]):
    """Observes its frame's number; never ends."""

    observation_space = gym.spaces.Box(0, 1_000_000, (1,), np.int64)
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin with frame 0."""
        super().reset(seed=seed)
        self._frame = 0
        return np.array([0]), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take one frame."""
        self._frame += 1
        return np.array([self._frame]), 0.0, False, False, {}


class Sleeping:
    """Thinks for some time."""

    def __init__(self, seconds: float = 0.030) -> None:
        self._seconds = seconds

    def act(self, observation: Any, decision: Any) -> int:
        """Return the action 1, late."""
        time.sleep(self._seconds)
        return 1


def fresh(args: Namespace) -> None:
    """Print the share of frames with a fresh action, of 8 workers of 100 ms at 60 fps."""
    with PolicyServer(partial(Sleeping, 0.1), "tcp://127.0.0.1:0", 8) as server:
        runner = AsyncRunner(Line, server.address, 8, 60, playout=8, latency=0.1, default_action=0)
        report = runner.run(seconds=args.seconds)
    print(report)
    share = report.frames["fresh"] / (report.frames["total"] - report.playout_frames)
    told(args, "fresh after the first action, 8 workers of 100 ms, 60 fps", share, least=0.999)


def proxy(args: Namespace) -> None:
    """Print the share of fresh frames behind a network of 20 +- 10 ms each way, and the simulation's."""
    common: dict[str, Any] = {"playout": "p95", "default_action": 0, "workers": 8, "fps": 50}
    with (
        PolicyServer(Sleeping, "tcp://127.0.0.1:0", 8) as server,
        Proxy(int(server.address.rpartition(":")[2]), (0.020, 0.010)) as network,
    ):
        report = AsyncRunner(Line, f"tcp://127.0.0.1:{network.port}", **common).run(seconds=args.seconds)
    print(report)
    common["playout"] = report.playout_frames
    again = AsyncRunner(Line, lambda: lambda shown: 1, backend="virtual", latency=report.latency_trace(), **common)
    predicted = again.run(seconds=args.seconds)
    live, simulated = (each.frames["fresh"] / each.frames["total"] for each in (report, predicted))
    print(f"behind 20 +- 10 ms each way: {live:.4f} live, {simulated:.4f} predicted from the round trips")
    told(args, "difference in points", 100 * abs(live - simulated), most=1)


def chaos(args: Namespace) -> None:
    """Kill the server every 10 s; print how long after it listens again the first action is applied."""
    listened: list[float] = []
    applied: list[float] = []
    servers: list[subprocess.Popen[str]] = []

    def start(bind: str) -> str:
        words = ["serve", "benchmarks.remote_policy:Sleeping", "--bind", bind, "--workers", "4"]
        server = subprocess.Popen(
            [sys.executable, "-m", "async_wrappers", *words],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, MARK: str(os.getpid())},
        )
        servers.append(server)
        assert server.stdout is not None
        line = server.stdout.readline()
        listened.append(time.monotonic())
        return line.partition(" at ")[2].partition(" ")[0]

    before, address = held(), start("tcp://127.0.0.1:0")
    over = threading.Event()

    def kill_again_and_again() -> None:
        while not over.wait(10):
            servers[-1].kill()
            servers[-1].wait()
            start(address)

    seen = 0

    def on_frame(status: Any) -> None:
        nonlocal seen
        if status.actions > seen:
            seen = status.actions
            applied.append(time.monotonic())

    killer = threading.Thread(target=kill_again_and_again, daemon=True)
    runner = AsyncRunner(Line, address, 4, 50, backend="thread", latency=0.03, playout=3, default_action=0)
    killer.start()
    report = runner.run(seconds=6 * args.seconds, on_frame=on_frame)
    ended = time.monotonic()
    over.set()
    killer.join(60)
    print(report)
    heard = [when for when in listened[1:] if when < ended - 2]  # a later server has too little time left to be judged
    waits = [min((each - when for each in applied if each > when), default=float("inf")) for when in heard]
    servers[-1].terminate()
    code = servers[-1].wait(20)
    deadline = time.monotonic() + 10
    while (left := {name: count for name, count in held().items() if count > before[name]}) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.1)
    worst = max(waits, default=float("inf"))
    print(f"{len(waits)} kills; seconds until it plays again: {', '.join(f'{wait:.2f}' for wait in waits)}")
    told(args, "worst wait after it listens, s", worst, most=2)
    print(f"frames late by half a frame: {report.frames['missed_deadlines']} of {report.frames['total']}")
    told(args, "left behind: sockets, shared memory, processes; exit code", sum(left.values()) + abs(code), most=0)


def held() -> dict[str, int]:
    """Return how many sockets this process has, names there are in shared memory, and processes that servers left."""
    sockets, processes, mark = 0, 0, f"{MARK}={os.getpid()}".encode()
    for each in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            processes += mark in each.read_bytes()
    for each in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            sockets += os.readlink(f"/proc/self/fd/{each}").startswith("socket:")
    return {"sockets": sockets, "shared memory": len(os.listdir("/dev/shm")), "processes": processes}


if __name__ == "__main__":
    parts = {"trip": trip, "ray": ray, "fresh": fresh, "proxy": proxy, "chaos": chaos}
    arguments = run_parts(__doc__, parts, seconds=(20.0, "of each run; of chaos six times as long"), fifo=FIFO)
    sys.exit(getattr(arguments, "missed", False))

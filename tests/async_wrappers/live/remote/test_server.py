"""What a policy server stands: peers that say nothing, ends that vanish in a queue, workers that cannot start."""

from __future__ import annotations

import errno
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from async_wrappers import AsyncRunner
from async_wrappers.__main__ import main
from async_wrappers.fleet import pulse, waits
from async_wrappers.fleet.fleet import SECOND
from async_wrappers.live import RunFailed
from async_wrappers.live.remote import server as server_module
from async_wrappers.live.remote import server_worker as worker_module
from async_wrappers.live.remote.address import Address
from async_wrappers.live.remote.handshake import ClientHandshake, Hello, Refused
from async_wrappers.live.remote.server import PolicyServer
from tests.worlds.served import PATIENCE, Echo, Guest, Line, answered, play_until, served

ROOT = Path(__file__).parents[4]
TOKEN = "a token of a test"


def connected(server: PolicyServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(server.address.rpartition(":")[2])), timeout=PATIENCE)


def test_a_hundred_peers_that_say_nothing_keep_nobody_out() -> None:
    with ExitStack() as silent, served(workers=1, token=TOKEN) as server:
        for _ in range(100):
            silent.enter_context(connected(server))
        time.sleep(0.2)
        assert Guest(server.address, token=TOKEN.encode()).ask(7) == 7


def test_a_hundred_peers_that_have_no_token_and_wait_for_nothing_keep_nobody_out() -> None:
    hello = Hello(Line.observation_space, Line.action_space, None, False, 0, 0, 1, "a session")
    with ExitStack() as knocking, served(workers=1, token=TOKEN) as server:
        for _ in range(100):
            knocking.enter_context(connected(server)).sendall(ClientHandshake(hello).begin())
        time.sleep(0.2)
        assert Guest(server.address, token=TOKEN.encode()).ask(7) == 7


def said_hello(server: PolicyServer, session: str) -> socket.socket:
    """Return a connection that has said hello, and waits for a worker."""
    end = connected(server)
    handshake = ClientHandshake(Hello(Line.observation_space, Line.action_space, None, False, 0, 0, 1, session))
    end.sendall(handshake.begin())
    said = b""
    while not said:
        said = handshake.receive(end.recv(handshake.wants()))
    end.sendall(said)
    return end


def test_a_connection_that_ends_while_it_waits_does_not_take_the_worker_from_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_module, "_QUEUE", 30.0)
    with served(workers=1) as server:
        first = Guest(server.address)
        gone = said_hello(server, "gone")
        time.sleep(0.1)
        gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset, so it cannot be sent to
        gone.close()
        waits = said_hello(server, "waits")
        time.sleep(0.1)
        first.end.close()
        waits.settimeout(PATIENCE)
        assert waits.recv(4) == b"AWRP"
        waits.close()


def test_no_more_connections_wait_for_a_worker_than_the_server_can_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_QUEUE", 30.0)
    monkeypatch.setattr(server_module, "_VISITORS", 3)
    with ExitStack() as held, served(workers=1) as server:
        first = Guest(server.address)
        for number in range(4):
            held.enter_context(said_hello(server, f"run {number}"))
        with pytest.raises(Refused, match="all 1 workers are busy with other runs"):
            Guest(server.address, session="one more")
        assert first.ask(8) == 8


def test_a_server_without_free_descriptors_leaves_its_listener_alone_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_module, "_REST", 3600.0)
    asked, has_room, accepts = [], threading.Event(), socket.socket.accept

    def accept(listener: socket.socket) -> Any:
        asked.append(listener)
        if not has_room.is_set():
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return accepts(listener)

    with served(workers=1) as server:
        monkeypatch.setattr(socket.socket, "accept", accept)
        assert server._parts is not None
        with connected(server):
            deadline = time.monotonic() + PATIENCE
            while server._parts.rests_until is None and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(0.1)
            assert len(asked) == 1
        has_room.set()
        server._parts.rests_until = 0.0
        server._wake()
        assert Guest(server.address).ask(7) == 7


class Odd(Exception):
    """Can be pickled, and not unpickled."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


class Raising:
    """Answers the frame's number, but raises on frame 3."""

    def act(self, observation: Any, decision: Any) -> int:
        if observation[0] == 3:
            raise Odd(1, 2)
        return int(observation[0])


@pytest.mark.filterwarnings("ignore:worker 0 of the policy server raised")
def test_an_exception_that_cannot_be_unpickled_ends_a_workers_thread_and_not_the_server() -> None:
    with served(Raising, workers=1) as server:
        guest = Guest(server.address)
        guest.end.sendall(guest.ticket(3))
        assert b"Odd: 1 and 2" in guest.end.recv(1 << 16)
        assert answered(server.address, 4).answer == 4


def test_the_servers_end_of_a_policy_that_cannot_be_made_is_its_exception_whatever_it_is() -> None:
    def make() -> Any:
        raise Odd(3, 4)

    with pytest.raises(Odd, match="3 and 4"), served(make):
        pass


def raises() -> Any:
    raise RuntimeError("no weights here")


def ends() -> Any:
    os._exit(3)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [(raises, RuntimeError, "^no weights here"), (ends, RunFailed, r"worker \d of .* ended with exit code 3")],
)
def test_a_process_that_cannot_make_its_policy_tells_why_and_leaves_no_process(
    make: Any, error: type[Exception], words: str
) -> None:
    server = PolicyServer(make, "tcp://127.0.0.1:0", 2)
    with pytest.raises(error, match=words):
        server.__enter__()
    assert server.pids == {} and server._children is not None and len(server._children) == 0


@pytest.mark.filterwarnings("ignore:worker 0 of the policy server was ended")
@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError("can't start new thread"), "worker 1 cannot be started, as no more threads may run: .*ulimit -u"),
        (OSError(errno.EMFILE, "Too many open files"), "workers=2 need more open files .*`ulimit -n"),
    ],
)
def test_a_server_without_room_for_its_workers_names_the_limit_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, said: str
) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "worker 1":
            raise error
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    before = threading.active_count()
    words = ["serve", "tests.worlds.served:Echo", "--bind", "tcp://127.0.0.1:0", "--workers", "2", "--threads"]
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 1
    assert re.fullmatch(f"python -m async_wrappers serve: {said}.*\n", capsys.readouterr().err)
    assert threading.active_count() == before


def test_a_server_is_closed_while_a_process_waits_for_its_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "PAUSES", (PATIENCE * SECOND,))
    with PolicyServer(Echo, "tcp://127.0.0.1:0", 2) as server:
        other = server.pids["worker 1"]
        os.kill(server.pids["worker 0"], signal.SIGKILL)
        deadline = time.monotonic() + PATIENCE / 2
        while "worker 0" in server.pids and time.monotonic() < deadline:
            time.sleep(0.01)
        assert server.pids == {"worker 1": other}
    assert server.pids == {} and server._children is not None and len(server._children) == 0


def test_a_script_without_a_main_guard_is_told_in_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(
        "import sys\n"
        "sys.modules['torch'] = None  # whose import takes the fork server seconds\n"
        "from async_wrappers.live.remote.server import PolicyServer\n"
        "with PolicyServer(lambda: lambda observation: 0, 'tcp://127.0.0.1:0'):\n"
        "    print('listening')\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    arguments: Any = {"capture_output": True, "text": True, "env": environment, "timeout": PATIENCE}
    done = subprocess.run([sys.executable, str(path)], **arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1].startswith("RuntimeError: PolicyServer starts processes, which import the main")
    assert done.stderr.count("Traceback") == 1


def test_a_worker_that_cannot_be_started_again_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(Raising, workers=1) as server:
        start, failed = server._station, threading.Event()

        def fail_once(number: int) -> Any:
            if not failed.is_set():
                failed.set()
                raise OSError("no more processes")
            return start(number)

        monkeypatch.setattr(server, "_station", fail_once)
        guest = Guest(server.address)
        with pytest.warns(RuntimeWarning, match="cannot be started, and is tried again: OSError"):
            guest.end.sendall(guest.ticket(3))
            assert answered(server.address, 5).answer == 5
        assert failed.is_set()


def test_a_worker_that_does_not_take_its_connection_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "PATIENCE", 0.3)
    with served(workers=2) as server:
        assert server._parts is not None
        stuck = server._parts.stations[0]
        near, far = socket.socketpair()
        near.settimeout(0.3)
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        with suppress(TimeoutError):
            while True:
                near.send(bytes(1 << 10))
        door, stuck.door = stuck.door, near
        with pytest.raises((AssertionError, ConnectionError)):
            Guest(server.address).ask(1)
        assert Guest(server.address, session="another").ask(2) == 2
        far.close()
        door.close()


def test_a_server_that_was_closed_says_so() -> None:
    server = PolicyServer(Echo, "tcp://127.0.0.1:0", backend="thread")
    with server:
        pass
    with pytest.raises(RuntimeError, match="has been closed: make another one"):
        server.__enter__()


def test_a_server_that_ends_leaves_the_path_to_another_one_that_has_taken_it(tmp_path: Path) -> None:
    path = tmp_path / "policy.sock"
    with PolicyServer(Echo, f"unix://{path}", backend="thread"):
        path.unlink()
        with PolicyServer(Echo, f"unix://{path}", backend="thread"):
            taken = os.stat(path).st_ino
    assert not path.exists()
    first = PolicyServer(Echo, f"unix://{path}", backend="thread")
    first.__enter__()
    path.unlink()
    with PolicyServer(Echo, f"unix://{path}", backend="thread"):
        taken = os.stat(path).st_ino
        first.close()
        assert os.stat(path).st_ino == taken


def test_an_address_that_another_server_took_before_this_one_listens_is_a_sentence() -> None:
    end, address = Address.of("address", "tcp://127.0.0.1:0").bound()
    other, _ = Address.of("address", address.text).bound()  # neither listens yet
    address.listen(end, 1)
    with pytest.raises(OSError, match=f"^{address.text} is in use: end the server that listens there"):
        address.listen(other, 1)
    end.close()
    other.close()


def test_a_path_that_another_server_took_before_this_one_listens_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "policy.sock"
    end, address = Address.of("address", f"unix://{path}").bound()
    with PolicyServer(Echo, address.text, backend="thread"):
        taken = os.stat(path).st_ino
        with pytest.raises(OSError, match=f"^{address.text} is in use: end the server that listens there"):
            address.listen(end, 1)
        address.leave()
        assert os.stat(path).st_ino == taken
    end.close()


def test_a_server_and_a_runner_speak_over_ipv6_or_say_that_the_machine_does_not() -> None:
    server = PolicyServer(Echo, "tcp://[::1]:0", 2, backend="thread")
    try:
        server.__enter__()
    except OSError as error:
        assert str(error).startswith("cannot bind tcp://[::1]:0: ")
        return
    with server:
        assert server.address.startswith("tcp://[::1]:")
        runner = AsyncRunner(Line, server.address, 2, 50, backend="thread", latency=0.015, default_action=-1)
        assert play_until(runner, lambda status: status.actions > 5).frames["fresh"] > 5


@pytest.mark.parametrize(
    "text",
    [
        "tcp://::1:5555",
        "tcp://[::1]",
        "tcp://host",
        "tcp://host:99999",
        "tcp://me@host:5555",
        "host:5555",
        "unix://",
        5,
    ],
)
def test_what_is_no_address_is_refused_with_an_example_of_each_kind(text: Any) -> None:
    with pytest.raises(ValueError, match=r"'tcp://192.168.1.7:5555', 'tcp://\[fd00::7\]:5555' or 'unix://"):
        Address.of("address", text)


def test_an_address_has_a_host_and_a_port() -> None:
    for text, host, is_local in (
        ("tcp://[::1]:5555", "::1", True),
        ("tcp://[fd00::7]:5555", "fd00::7", False),
        ("tcp://127.0.0.9:5555", "127.0.0.9", True),
        ("tcp://0.0.0.0:5555", "0.0.0.0", False),
        ("tcp://gpu:5555", "gpu", False),
    ):
        address = Address.of("address", text)
        assert (address.host, address.port, address.is_local) == (host, 5555, is_local)


class Hanging:
    """Answers the frame's number, but does not come back from frame 3 until it is let go."""

    let_go = threading.Event()

    def act(self, observation: Any, decision: Any) -> int:
        if observation[0] == 3:
            self.let_go.wait(PATIENCE)
        return int(observation[0])


def test_a_thread_that_does_not_come_back_from_a_run_that_gave_it_up_is_replaced_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Hanging, "let_go", threading.Event())
    monkeypatch.setattr(waits, "LOOK", 0.05)
    monkeypatch.setattr(server_module, "_RETURN", 0.5)
    before = threading.active_count()
    with served(Hanging, workers=1) as server:
        guest = Guest(server.address)
        guest.end.sendall(guest.ticket(3))
        time.sleep(0.2)
        guest.end.close()
        with pytest.warns(RuntimeWarning) as told:
            held = answered(server.address, 4)  # it stays, so that its worker need not come back in time too
            assert held.answer == 4
        assert [str(each.message) for each in told if each.category is RuntimeWarning] == [
            "worker 0 of the policy server has not come back for 0.5 s from a run that has ended or given it up: it is "
            "left to itself, and another thread takes its place"
        ]
        assert server.restarts == 1
        Hanging.let_go.set()
    deadline = time.monotonic() + PATIENCE
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before


class Sleeping:
    """Answers the frame's number, but sleeps for an hour on frame 3, and for a second on frame 2."""

    def act(self, observation: Any, decision: Any) -> int:
        if 1 < observation[0] < 4:
            time.sleep(3600 if observation[0] == 3 else 1)
        return int(observation[0])


@pytest.mark.parametrize("how", ["hangs", "is stopped"])
def test_a_process_that_does_not_come_back_is_ended_started_again_and_counted(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(server_module, "_RETURN", 4.0)
    monkeypatch.setattr(pulse, "STOPPED_FOR", 4.0)
    with PolicyServer(Sleeping, "tcp://127.0.0.1:0", 1) as server:
        pid = server.pids["worker 0"]
        guest = Guest(server.address)
        if how == "hangs":
            guest.end.sendall(guest.ticket(3))
        else:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(0.2)
        guest.end.close()
        time.sleep(0.2)
        with pytest.warns(RuntimeWarning) as told:
            with pytest.raises(Refused, match="none of 1 workers is free: 1 not back from runs that have") as refused:
                Guest(server.address, session="another")
            assert refused.value.again
            held = answered(server.address, 4)
            assert held.answer == 4
        (sentence,) = [str(each.message) for each in told if each.category is RuntimeWarning]
        why = "not come back for 4 s from a run that" if how == "hangs" else r"been stopped \(SIGSTOP\) for"
        assert re.match(f"worker 0 of the policy server has {why}.*: it is started again$", sentence)
        assert server.restarts == 1
        assert server.pids["worker 0"] != pid
        assert not os.path.exists(f"/proc/{pid}") or Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"


def test_a_worker_that_is_slow_and_comes_back_in_time_is_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "LOOK", 0.05)
    monkeypatch.setattr(server_module, "_RETURN", 30.0)
    with served(Sleeping, workers=1) as server:
        guest = Guest(server.address)
        guest.end.sendall(guest.ticket(2))
        time.sleep(0.1)
        guest.end.close()
        assert answered(server.address, 4).answer == 4
        assert server.restarts == 0


@pytest.mark.parametrize("way", ["in", "out"])
def test_connections_that_are_stuck_within_a_record_make_room_for_one_that_waits(
    monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(worker_module, "_RECORD", PATIENCE)
    large = gym.spaces.Box(0, 1, (1 << 23,), np.float32)  # more than a connection holds

    def make_policy() -> Any:
        return lambda observation: np.zeros(1 << 23, np.float32)

    action_space = {"in": Line.action_space, "out": large}[way]
    monkeypatch.setattr(Line, "action_space", action_space)
    with ExitStack() as stuck, served(Echo if way == "in" else make_policy, workers=2) as server:
        for number in range(2):
            guest = Guest(server.address, session=f"stuck {number}")
            stuck.enter_context(guest.end)
            guest.end.sendall(guest.ticket(3)[: 70 if way == "in" else None])
        time.sleep(0.2)
        deadline = time.monotonic() + PATIENCE / 2
        third = None
        while third is None and time.monotonic() < deadline:
            with suppress(Refused, AssertionError, OSError):
                third = Guest(server.address, session="the third")
        assert third is not None
        if way == "in":
            assert third.ask(9) == 9


def test_a_stuck_connection_goes_on_where_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(workers=1) as server:
        guest = Guest(server.address)
        record = guest.ticket(8)
        guest.end.sendall(record[:70])
        deadline = time.monotonic() + PATIENCE
        while not server._parts.stations[0].is_stuck and time.monotonic() < deadline:  # type: ignore[union-attr]
            time.sleep(0.01)
        guest.end.sendall(record[70:])
        answer = guest.answers.record()
        assert guest.end.recv_into(answer.data, guest.answers.answer_bytes, socket.MSG_WAITALL) > 0
        assert answer.read()[0] == 8
        assert guest.ask(9) == 9
        assert not server._parts.stations[0].is_stuck  # type: ignore[union-attr]


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_a_fork_server_that_is_stopped_or_killed_holds_no_start_up(number: signal.Signals) -> None:
    with PolicyServer(Echo, "tcp://127.0.0.1:0", 1) as server:
        pid: Any = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]
        os.kill(pid, number)
        with pytest.warns(RuntimeWarning, match=r"worker 0 of the policy server .*ended.*: it is started again"):
            os.kill(server.pids["worker 0"], signal.SIGKILL)
            assert answered(server.address, 4).answer == 4
        assert server.restarts == 1

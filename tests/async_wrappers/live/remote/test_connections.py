"""What may go wrong between a loop and a server: each is a sentence, a worker that comes back, or a freed worker."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import pytest

from async_wrappers import AsyncRunner
from async_wrappers.__main__ import main
from async_wrappers.live import RunFailed
from async_wrappers.live.loop.workers import NoWorkers
from async_wrappers.live.remote.handshake import Declared, Refused, ServerHandshake, Welcome
from async_wrappers.live.remote.server import PolicyServer
from async_wrappers.live.remote.wire import HEADER, MAGIC, Answers, Kind, TicketRecords, encoded
from tests.worlds.served import PATIENCE, Echo, Guest, Line, Proxy, answered, play_until, served

ROOT = Path(__file__).parents[4]
TOKEN = "a token of a test"
FPS, DEFAULT = 50, -1


def raises() -> Any:
    raise RuntimeError("no weights here")


def runner_of(address: str, env: Line | None = None, **arguments: Any) -> AsyncRunner:
    """Return a runner that plays with a policy in a server, in the thread that runs it."""
    given = {"workers": 2, "fps": FPS, "backend": "thread", "latency": 0.015, "playout": 2, **arguments}
    env = env or Line()
    return AsyncRunner(lambda: env, address, default_action=DEFAULT, **given)


def play(address: str, frames: int, env: Line | None = None, on_frame: Any = None, **arguments: Any) -> Any:
    """Play frames with a policy in a server, in this thread."""
    return runner_of(address, env, **arguments).run(frames=frames, on_frame=on_frame)


def test_a_loop_that_vanishes_within_a_record_frees_its_worker() -> None:
    with served(workers=1) as server:
        first = Guest(server.address)
        assert first.ask(7) == 7
        first.end.sendall(first.ticket(8)[:70])
        first.end.close()
        assert answered(server.address, 9).answer == 9


def test_a_loop_is_told_that_all_workers_are_busy_and_may_try_again() -> None:
    with served(workers=1) as server:
        first = Guest(server.address)
        with pytest.raises(Refused, match="all 1 workers are busy with other runs") as error:
            Guest(server.address, session="another")
        assert error.value.again
        assert first.ask(3) == 3


def test_the_same_worker_of_the_same_run_takes_the_place_of_its_lost_connection() -> None:
    with served(workers=1) as server:
        first = Guest(server.address)  # half open: nobody has closed it
        assert answered(server.address, 4, "one").answer == 4
        assert first.end.recv(1) == b""


def test_whoever_speaks_something_else_gets_a_sentence_and_the_server_goes_on() -> None:
    sent = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n" + bytes(64)
    with served(workers=1) as server:
        with socket.create_connection(("127.0.0.1", int(server.address.rpartition(":")[2])), timeout=PATIENCE) as end:
            end.sendall(sent)
            end.shutdown(socket.SHUT_WR)
            said = b"".join(iter(lambda: end.recv(4096), b""))
        assert b"the other end sent b'GET ' where a record begins" in said
        assert Guest(server.address).ask(5) == 5


def test_a_ticket_of_another_size_ends_its_connection_alone() -> None:
    with served(workers=1) as server:
        guest = Guest(server.address)
        guest.end.sendall(encoded(Kind.TICKET, bytes(2_000)))
        with suppress(ConnectionResetError):
            assert guest.end.recv(1) == b""
        assert answered(server.address, 6).answer == 6


@pytest.mark.parametrize(
    ("serves", "plays", "sentence"),
    [
        ({"token": TOKEN}, {"token": "another token of it"}, "refuses: token must be that of the server"),
        ({}, {"workers": 3}, "refuses: workers must be at most 2, as many as the server has, got 3"),
        ({"observation_space": gym.spaces.Discrete(3)}, {}, r"refuses: observation_space must be Discrete\(3\)"),
    ],
)
def test_a_server_with_another_token_or_other_spaces_is_a_sentence_before_the_first_frame(
    serves: dict[str, Any], plays: dict[str, Any], sentence: str
) -> None:
    with (
        served(**serves) as server,
        pytest.raises(RunFailed, match=f"^the policy server at {server.address} {sentence}"),
    ):
        play(server.address, 5, **plays)


@contextmanager
def impostor(serve: Callable[[socket.socket], None], port: int = 0) -> Iterator[str]:
    """Let something that is no server of ours take one connection after the other."""
    listener = socket.create_server(("127.0.0.1", port))

    def run() -> None:
        while True:
            try:
                end, _ = listener.accept()
            except OSError:
                return
            with end, suppress(ConnectionError):
                end.settimeout(PATIENCE)
                serve(end)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield f"tcp://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(PATIENCE)


def test_an_end_that_is_no_server_of_this_version_is_a_sentence() -> None:
    def serve(end: socket.socket) -> None:
        end.sendall(HEADER.pack(MAGIC, 7, 2, 9, 0, 0, 0, 0, 0, 0))
        end.recv(1 << 16)

    sentence = "speaks version 7 of the wire format, and this end version 2"
    with impostor(serve) as address, pytest.raises(RunFailed, match=f"^the policy server at {address} {sentence}"):
        play(address, 5, workers=1)


def greeting(space: gym.Space[Any], answer_to: Callable[[Any], tuple[Any, int]]) -> Callable[[socket.socket], None]:
    """Return what shakes hands as a server does, and answers each ticket by a ticket and an action of `answer_to`."""

    def serve(end: socket.socket) -> None:
        handshake = ServerHandshake(Declared(), Welcome("impostor", 1))
        while wants := handshake.wants():
            if said := handshake.receive(end.recv(wants)):
                end.sendall(said)
        end.sendall(handshake.welcome())
        record, answer = TicketRecords(Line.observation_space).record(), Answers(space).record()
        while end.recv_into(record.data, 0, socket.MSG_WAITALL):
            ticket, action = answer_to(record.read()[0])
            end.sendall(answer.write(ticket, (0, 0, 0, 0), action, None))

    return serve


def test_a_server_that_answers_beyond_the_action_space_is_refused_frame_by_frame() -> None:
    space = gym.spaces.Discrete(2_000_000)
    asked = count()
    serve = greeting(space, lambda ticket: (ticket, 1_500_000 if next(asked) < 6 else 5))
    with impostor(serve) as address, pytest.warns(RuntimeWarning, match="worker 0 answered .*1500000.* no action of"):
        report = play_until(runner_of(address, workers=1), lambda status: status.actions > 4)
    assert report.lost["refused"] > 3
    assert report.frames["fresh"] > 4


def test_a_server_that_answers_another_ticket_loses_its_connection() -> None:
    asked: list[int] = []

    def other(ticket: Any) -> tuple[Any, int]:
        asked.append(ticket.number)
        return (ticket._replace(number=ticket.number + 9) if len(asked) == 5 else ticket), 1

    serve = greeting(Line.action_space, other)
    with impostor(serve) as address, pytest.warns(RuntimeWarning, match="answered ticket .*, and was asked ticket"):
        report = play_until(runner_of(address, workers=1), lambda status: len(asked) > 5 and status.actions > 15)
    assert report.lost == {"lost": 1}
    assert report.workers["restarts"] == 1
    assert report.frames["fresh"] > 15


@pytest.mark.parametrize(
    "says",
    [encoded(Kind.CHALLENGE, b'{"nonce": "\\ud800", "token": true}'), b"HTTP/1.1 400 Bad Request\r\n" + bytes(64)],
    ids=["surrogate", "web"],
)
def test_a_stranger_who_takes_the_servers_port_costs_a_running_robot_its_actions_and_not_the_run(says: bytes) -> None:
    env = Line()
    with ExitStack() as stranger, served(workers=1, token=TOKEN) as server:
        port = int(server.address.rpartition(":")[2])

        def serve(end: socket.socket) -> None:
            end.recv(1 << 12)
            end.sendall(says)
            with suppress(ConnectionError):
                end.recv(1 << 12)  # until the other end has read it, and gone
            heard.append(len(env.received))

        taken, heard = list[int](), list[int]()  # frames at which the port was taken, and the stranger was heard

        def take_port(status: Any) -> bool:
            if status.actions > 5 and not taken:
                server.close()
                stranger.enter_context(impostor(serve, port))
                taken.append(status.frame)
            return bool(heard) and status.frame > heard[0] + 40

        with pytest.warns(RuntimeWarning, match="worker 0 connects again, and frames go on without it"):
            report = play_until(runner_of(server.address, env, workers=1, token=TOKEN), take_port)
    assert report.frames["total"] > heard[0] + 40
    assert set(env.received[taken[0] + 20 :]) == {DEFAULT}


def test_nobody_at_the_address_is_a_sentence_after_the_start_timeout() -> None:
    with pytest.raises(NoWorkers, match=r"start_timeout=0.3 s; missing: 0, 1; the policy server .* Connection refused"):
        play("tcp://127.0.0.1:1", 5, start_timeout=0.3)


def test_an_exception_of_make_policy_comes_out_of_the_server_before_it_listens() -> None:
    with pytest.raises(RuntimeError, match="no weights here"), served(raises):
        pass


def test_a_network_that_stalls_for_a_second_costs_frames_and_no_connection() -> None:
    env = Line()
    with served() as server, Proxy(int(server.address.rpartition(":")[2])) as proxy:

        def stall(status: Any) -> bool:
            proxy.stalled = 40 <= status.frame < 80
            return status.frame > 90 and sum(action != DEFAULT for action in env.received[90:]) > 25

        runner = runner_of(f"tcp://127.0.0.1:{proxy.port}", env, overdue_seconds=60.0)
        report = play_until(runner, stall)
    assert report.lost == {}
    assert report.workers["restarts"] == 0
    assert set(env.received[50:80]) == {DEFAULT}
    assert sum(action != DEFAULT for action in env.received[90:]) > 25
    assert all(action < frame for frame, action in enumerate(env.received) if action != DEFAULT)


def test_connections_that_are_cut_are_made_again_and_told_once() -> None:
    answers: dict[int, int] = {}  # of each of the server's workers

    class Counted(Echo):
        def act(self, observation: Any, decision: Any) -> int:
            answers[id(self)] = answers.get(id(self), 0) + 1
            return super().act(observation, decision)

    with served(Counted) as server, Proxy(int(server.address.rpartition(":")[2])) as proxy:
        cuts: list[int] = []

        def cut(status: Any) -> bool:
            if len(answers) < 2 or min(answers.values()) < 10:  # so both have been asked since the last cut
                return False
            if len(cuts) == 2:
                return True
            proxy.cut()
            answers.clear()
            cuts.append(status.frame)
            return False

        with pytest.warns(RuntimeWarning, match="connects again, and frames go on without it") as told:
            report = play_until(runner_of(f"tcp://127.0.0.1:{proxy.port}"), cut)
    assert len({str(each.message) for each in told if "connects again" in str(each.message)}) <= 2
    assert report.workers["restarts"] == 4
    assert report.frames["fresh"] > 20


def test_a_server_that_is_stopped_and_one_that_is_killed_and_starts_again_are_played_with_again(
    tmp_path: Path,
) -> None:
    (tmp_path / "echoing.py").write_text(
        "import time\nclass Echo:\n    def act(self, o, d):\n        time.sleep(0.015)\n        return int(o[0])\n"
    )
    listening: list[str] = []

    def start(bind: str) -> subprocess.Popen[str]:
        words = ["serve", "echoing:Echo", "--bind", bind, "--workers", "2", "--threads"]
        process = subprocess.Popen(
            [sys.executable, "-m", "async_wrappers", *words],
            **{
                "cwd": tmp_path,
                "stdout": subprocess.PIPE,
                "text": True,
                "env": {**os.environ, "PYTHONPATH": str(ROOT)},
            },
        )
        assert process.stdout is not None

        def hear(line: str) -> None:
            listening.append(line)

        threading.Thread(target=lambda: hear(process.stdout.readline()), daemon=True).start()
        return process

    servers = [start("tcp://127.0.0.1:0")]
    try:
        deadline = time.monotonic() + PATIENCE
        while not listening and time.monotonic() < deadline:
            time.sleep(0.05)
        address = listening[0].partition(" at ")[2].partition(" ")[0]

        def befall() -> Iterator[bool]:
            """Yield on each frame whether the next misfortune is due; each waits for actions since the one before."""
            yield from acted(5)
            servers[0].send_signal(signal.SIGSTOP)
            stopped = time.monotonic()
            while time.monotonic() < stopped + 1.3:  # longer than overdue_seconds, 1.0
                yield False
            servers[0].send_signal(signal.SIGCONT)
            yield from acted(5)
            servers[0].kill()
            servers.append(start(address))
            while len(listening) < 2:
                yield False
            yield from acted(5)
            yield True

        def acted(more: int) -> Iterator[bool]:
            before = actions[0]
            while actions[0] < before + more:
                yield False

        actions, over, misfortunes = [0], [False], befall()

        def is_over(status: Any) -> bool:
            actions[0] = status.actions
            over[0] = next(misfortunes)
            return over[0]

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            play_until(runner_of(address), is_over)
        assert over[0]
        servers[1].terminate()
        assert servers[1].wait(PATIENCE) == 0
    finally:
        for server in servers:
            server.kill()
            server.communicate(timeout=PATIENCE)


class Both:
    """Its action is the fresh frame; it writes down of which frame the features are."""

    fast_age = 0

    def __init__(self, taken: dict[int, int]) -> None:
        self._taken = taken

    def release(self, features: Any, memory: Any, decision: Any) -> Any:
        fresh = int(memory.fresh[0])
        self._taken[fresh] = int(features[0])
        return SimpleNamespace(action=fresh, state=0)

    def encode(self, observation: Any, decision: Any) -> Any:
        raise AssertionError("the server encodes")


def test_a_fast_path_goes_on_while_the_server_is_killed_for_ten_seconds(tmp_path: Path) -> None:
    (tmp_path / "slow_half.py").write_text(
        "import time\nclass Slow:\n    def encode(self, o, d):\n        time.sleep(0.015)\n        return o\n"
        "    def release(self, features, memory, decision):\n        raise AssertionError('the loop releases')\n"
    )

    def start(bind: str) -> subprocess.Popen[str]:
        words = ["serve", "slow_half:Slow", "--bind", bind, "--workers", "2", "--threads"]
        return subprocess.Popen(
            [sys.executable, "-m", "async_wrappers", *words],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )

    servers = [start("tcp://127.0.0.1:0")]
    try:
        assert servers[0].stdout is not None
        address = servers[0].stdout.readline().partition(" at ")[2].partition(" ")[0]
        away = 10 * FPS
        env, taken, kills = Line(), dict[int, int](), list[int]()

        def is_back(status: Any) -> bool:
            if not kills and len(taken) > 20:
                kills.append(status.frame)
                servers[0].kill()
            if kills and status.frame == kills[0] + away:
                servers.append(start(address))
            return len(servers) == 2 and taken[status.frame - 1] > kills[0] + away

        terms = {"features": env.observation_space, "make_release": lambda: Both(taken), "max_features_age": 10_000}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            report = play_until(runner_of(address, env, **terms), is_back)
    finally:
        for server in servers:
            server.kill()
            server.communicate(timeout=PATIENCE)
    first = next(frame for frame, action in enumerate(env.received) if action != DEFAULT)
    assert env.received == [*[DEFAULT] * first, *range(first, len(env.received))]
    killed, back = kills[0], kills[0] + away
    assert all(taken[frame] <= killed for frame in range(killed, back)) and taken[len(env.received) - 1] > back
    assert report.frames["held"] >= away - 3 and report.frames["default"] == first


def test_what_the_command_cannot_serve_is_one_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    short = tmp_path / "token"
    short.write_text("short\n", encoding="utf-8")
    for words, sentence in (
        (["serve", "json:nothing"], "MODULE:FACTORY must name a function, such as my_policy:make_policy, got 'json:no"),
        (
            ["serve", "json:__name__"],
            "MODULE:FACTORY must name a function, such as my_policy:make_policy, got 'json:",
        ),
        (["serve", "json"], "MODULE:FACTORY must name a function, such as my_policy:make_policy, got 'json'\n"),
        (["serve", "json:loads", "--bind", "here"], "--bind must be an address such as 'tcp://"),
        (["serve", "json:loads", "--workers", "0"], "workers must be a whole number between 1 and 10,000, got 0"),
        (["serve", "json:loads", "--token-file", os.devnull], "--token-file must have the token in its first line"),
        (["serve", "json:loads", "--token-file", "/nowhere"], "got '/nowhere': No such file or directory; `openssl"),
        (["serve", "json:loads", "--token-file", sys.executable], f"got {sys.executable!r}: it is no text; `openssl"),
        (["serve", "json:loads", "--token-file", str(short)], "--token-file must be text or bytes of at least 16"),
    ):
        with pytest.raises(SystemExit):
            main(words)
        assert sentence in capsys.readouterr().err


def test_an_address_in_use_is_a_sentence() -> None:
    with served() as server, pytest.raises(OSError, match=f"{server.address} is in use: end the server that listens"):
        PolicyServer(Echo, server.address, backend="thread").__enter__()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"backend": "virtual"}, "backend must be 'process' or 'thread' with make_policy='tcp://h:1'"),
        ({"make_learner": Echo, "backend": "process"}, "to which no learner sends weights yet: leave make_learner out"),
        ({"features": gym.spaces.Discrete(2)}, "features and make_release must be given together"),
        ({"pin": True, "backend": "process"}, "pin must be False with make_policy='tcp://h:1'"),
        ({"token": "short"}, "token must be text or bytes of at least 16 bytes, .* got 5 bytes"),
    ],
)
def test_what_does_not_go_with_an_address_is_refused_by_the_constructor(arguments: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        AsyncRunner(Line, "tcp://h:1", 2, 50, **arguments)

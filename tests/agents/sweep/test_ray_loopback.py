"""A Ray that a sweep starts listens on the loopback; one at an address is left as it is. Ray itself is not needed."""

from __future__ import annotations

import socket
import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from async_wrappers.ray_cluster import NoCluster, connect_to_ray, connected_to_ray, room_for


class FakeRay(ModuleType):
    """Notes how it is started, and whether clusters were switched off then."""

    def __init__(self) -> None:
        super().__init__("ray")
        self.__path__: list[str] = []
        self.constants = SimpleNamespace(ENABLE_RAY_CLUSTER=True)
        self.util = SimpleNamespace(get_node_ip_address=lambda: self.node)
        self.node = "127.0.0.1"
        self.started: list[tuple[dict[str, Any], bool]] = []

    def is_initialized(self) -> bool:
        return False

    def init(self, **arguments: Any) -> None:
        self.started.append((arguments, self.constants.ENABLE_RAY_CLUSTER))

    def shutdown(self) -> None:
        pass


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    """Ray, as the process would have imported it."""
    ray, private = FakeRay(), ModuleType("ray._private")
    private.__dict__.update(ray_constants=ray.constants)
    for module in (ray, private):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return ray


def test_a_ray_of_ones_own_is_on_the_loopback(ray: FakeRay) -> None:
    with connected_to_ray(None, 3):
        pass
    [(arguments, clusters)] = ray.started
    where = {name: arguments[name] for name in ("address", "dashboard_host", "_node_ip_address", "include_dashboard")}
    assert where == {
        "address": "local",
        "dashboard_host": "127.0.0.1",
        "_node_ip_address": "127.0.0.1",
        "include_dashboard": False,
    }
    assert (arguments["num_cpus"], clusters) == (3, False)
    assert ray.constants.ENABLE_RAY_CLUSTER  # as it was


def test_workers_of_a_ray_of_ones_own_may_be_as_urgent_as_other_processes(ray: FakeRay) -> None:
    connect_to_ray(None, niceness=0)
    with connected_to_ray(None, 1, niceness=0):
        pass
    assert [arguments["_system_config"] for arguments, _ in ray.started] == [{"worker_niceness": 0}] * 2


def test_a_ray_at_an_address_is_left_as_it_is(ray: FakeRay) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        answers = threading.Thread(target=lambda: server.accept()[0].sendall(b"\0\0\0\4\0\0\0\0\0"), daemon=True)
        answers.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with connected_to_ray(address, None):
            pass
    [(arguments, clusters)] = ray.started
    assert arguments["address"] == address
    assert not {"dashboard_host", "_node_ip_address"} & set(arguments)
    assert clusters


def test_whoever_answers_and_is_no_ray_is_refused(ray: FakeRay) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        greets = threading.Thread(target=lambda: server.accept()[0].sendall(b"220 mail.example ready\r\n"), daemon=True)
        greets.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        sentence = f"address {address}: no Ray cluster answers there .what answers is no Ray.: see ray start --help"
        with pytest.raises(NoCluster, match=sentence), connected_to_ray(address, None):
            pass
    assert not ray.started


class AuthenticationError(Exception):
    """Ray's, by its name."""


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (AuthenticationError("the token\nis missing"), "address auto: the token is missing"),
        (OSError("no route"), "address auto: no Ray cluster answers there (Failed to connect): see ray start --help"),
    ],
)
def test_what_ray_says_of_a_token_is_passed_on(
    ray: FakeRay, monkeypatch: pytest.MonkeyPatch, asked: Exception, sentence: str
) -> None:
    def fail(error: Exception) -> None:
        raise error

    raylet = ModuleType("ray._raylet")
    raylet.__dict__["GcsClient"] = lambda address: fail(asked)
    monkeypatch.setitem(sys.modules, "ray._raylet", raylet)
    monkeypatch.setattr(ray, "init", lambda **given: fail(ConnectionError("Failed to connect")))
    with pytest.raises(NoCluster) as refused:
        connect_to_ray("auto")
    assert str(refused.value) == sentence


def test_a_ray_that_does_not_start_says_why(ray: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**given: Any) -> None:
        raise Exception("The current node timed out")

    monkeypatch.setattr(ray, "init", fail)
    with pytest.raises(NoCluster, match=r"^Ray does not start on this machine \(The current node timed out\): see"):
        connect_to_ray(None)


def test_there_is_room_on_nodes_that_live(ray: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [
        {"Alive": True, "Resources": {"CPU": 3.0, "GPU": 1.0}},
        {"Alive": True, "Resources": {}},
        {"Alive": False, "Resources": {"CPU": 9.0}},
    ]
    monkeypatch.setattr(ray, "nodes", lambda: nodes, raising=False)
    assert [room_for({"CPU": cpus, "GPU": gpus}) for cpus, gpus in ((1, 0), (2, 0), (1, 0.5), (4, 0))] == [3, 1, 2, 0]


def test_a_ray_that_still_listens_elsewhere_is_warned_of(ray: FakeRay, caplog: pytest.LogCaptureFixture) -> None:
    ray.node = "192.0.2.7"
    with caplog.at_level("WARNING"), connected_to_ray(None, 1):
        pass
    assert "Ray listens on 192.0.2.7" in caplog.text

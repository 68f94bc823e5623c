"""The policy that asks a server of openpi's: its messages byte for byte, and a server that comes, goes and errs.

The bytes are those of openpi-client 0.1.2. The servers are this file's own, threads that speak the same protocol.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import Server, ServerConnection, serve

from async_wrappers import AsyncRunner, Chunk, NoAction
from async_wrappers.live.adapters.openpi import OpenPI, pack, unpack
from tests.worlds.served import play_until

CHUNK = np.arange(12, dtype=np.float64).reshape(6, 2) / 10
OBSERVATION = (
    b"\x84\xb1observation/state\x84\xc4\x0b__ndarray__\xc3\xc4\x04data\xc4\x08\x00\x00\xc0?\x00\x00\x00\xc0\xc4\x05dtype"
    b"\xa3<f4\xc4\x05shape\x91\x02\xa6prompt\xa4hold\xa1n\x83\xc4\r__npgeneric__\xc3\xc4\x04data\x03\xc4\x05dtype\xa3<i8"
    b"\xa5image\x84\xc4\x0b__ndarray__\xc3\xc4\x04data\xc4\x06\x00\x01\x02\x03\x04\x05\xc4\x05dtype\xa3|u1\xc4\x05shape"
    b"\x93\x01\x02\x03"
)
ACTIONS = (
    b"\x82\xa7actions\x84\xc4\x0b__ndarray__\xc3\xc4\x04data\xc4 \x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
    b"\x00\xf0?\x00\x00\x00\x00\x00\x00\x00@\x00\x00\x00\x00\x00\x00\x08@\xc4\x05dtype\xa3<f8\xc4\x05shape\x92\x02\x02"
    b"\xadserver_timing\x81\xa8infer_ms\xcb?\xf8\x00\x00\x00\x00\x00\x00"
)

Answer = Callable[[dict[str, Any]], "dict[str, Any] | str | None"]


def chunk(observation: dict[str, Any]) -> dict[str, Any]:
    return {"actions": CHUNK, "server_timing": {"infer_ms": 0.1}}


@contextmanager
def served(answer: Answer = chunk, port: int = 0, metadata: Any = None) -> Iterator[tuple[str, Server]]:
    """Run a server; an answer of text closes the connection after it, as openpi's does, and None closes it at once."""

    def talk(connection: ServerConnection) -> None:
        connection.send(pack({"policy": "small"}) if metadata is None else metadata)
        with suppress(ConnectionClosed):
            while True:
                message = connection.recv()
                assert isinstance(message, bytes)
                given = answer(unpack(message))
                if given is not None:
                    connection.send(given if isinstance(given, str) else pack(given))
                if not isinstance(given, dict):
                    return

    with serve(talk, "127.0.0.1", port, compression=None) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"ws://127.0.0.1:{server.socket.getsockname()[1]}", server
        server.shutdown()
    thread.join(60)


def test_messages_are_openpis_byte_for_byte() -> None:
    observation = {
        "observation/state": np.array([1.5, -2], np.float32),
        "prompt": "hold",
        "n": np.int64(3),
        "image": np.arange(6, dtype=np.uint8).reshape(1, 2, 3),
    }
    assert pack(observation) == OBSERVATION
    answer = unpack(ACTIONS)
    np.testing.assert_array_equal(answer["actions"], [[0.0, 1.0], [2.0, 3.0]])
    assert answer["server_timing"] == {"infer_ms": 1.5}


@given(
    arrays.arrays(
        st.sampled_from([np.float32, np.float64, np.uint8, np.int64, np.bool_]), arrays.array_shapes(min_dims=0)
    )
)
def test_arrays_come_back_as_they_were_sent(array: Any) -> None:
    back = unpack(pack({"array": array, "scalar": array.ravel()[0]}))
    assert back["array"].dtype == array.dtype
    np.testing.assert_array_equal(back["array"], array)
    np.testing.assert_array_equal(back["scalar"], array.ravel()[0])


@given(st.binary(max_size=60))
def test_bytes_that_are_no_message_are_refused_in_a_sentence(data: bytes) -> None:
    with suppress(ValueError):  # and no other error
        unpack(data)


@pytest.mark.parametrize("value", [np.array([object()]), {1, 2}, np.array([1j])])
def test_what_openpi_cannot_send_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="must hold arrays, numbers and strings"):
        pack({"value": value})


def test_arrays_of_objects_are_not_read() -> None:
    with pytest.raises(ValueError, match="arrays of object are not read"):
        unpack(pack({b"__ndarray__": True, b"data": b"", b"dtype": "|O", b"shape": [0]}))


def test_a_chunk_is_the_servers_and_the_observation_is_the_users() -> None:
    seen: list[dict[str, Any]] = []

    def answer(observation: dict[str, Any]) -> dict[str, Any]:
        seen.append(observation)
        return chunk(observation)

    with served(answer) as (uri, _):
        policy = OpenPI(uri, lambda o: {"observation/state": o, "prompt": "go"}, length=4)
        assert policy.metadata == {"policy": "small"}
        got = policy.act(np.ones(3, np.float32))
        policy.close()
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, CHUNK[:4].astype(np.float32))
    assert seen[0]["prompt"] == "go" and seen[0]["observation/state"].tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("answer", "error", "sentence"),
    [
        (lambda o: {"action": CHUNK}, ValueError, "must have 'actions', got 'action'$"),
        (lambda o: {}, ValueError, "must have 'actions', got an empty dict"),
        (lambda o: {"actions": CHUNK[0]}, ValueError, r"must be numbers \[>= 4, A\], got float64 \[2\]"),
        (
            lambda o: {"actions": CHUNK[:3]},
            ValueError,
            r"got float64 \[3, 2\]: give length at most the server's, got 4",
        ),
        (lambda o: {"actions": "up"}, ValueError, r"must be numbers \[>= 4, A\], got <U2 \[\]"),
        (lambda o: "Traceback:\nKeyError: 'image'\n", RuntimeError, "server at ws.* raised: KeyError: 'image'$"),
        (lambda o: None, NoAction, "the connection to ws://.* was lost"),
    ],
)
def test_an_answer_that_is_no_chunk_is_one_sentence(answer: Answer, error: type[Exception], sentence: str) -> None:
    with served(answer) as (uri, _):
        policy = OpenPI(uri, length=4)
        with pytest.raises(error, match=sentence) as raised:
            policy.act({"observation/state": np.ones(3)})
        policy.close()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"uri": "ws://gpu:1", "api_key": 7}, "api_key must be the server's key as text, or None, got 7"),
        ({"uri": "gpu:8000"}, "uri must be an address such as 'ws://host:8000', got 'gpu:8000'"),
        ({"observation": 3}, "observation must be a function that makes openpi's observation"),
        ({"length": 0}, "length must be a whole number of entries >= 1, got 0"),
        ({"timeout": 0}, "timeout must be a finite number of seconds > 0, got 0"),
        ({"wait": -1}, "wait must be a finite number of seconds >= 0, got -1"),
    ],
)
def test_a_wrong_argument_is_refused_in_a_sentence(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        OpenPI(**{"uri": "ws://127.0.0.1:9", "wait": 0, **arguments})


def test_an_observation_that_is_no_dict_is_refused() -> None:
    with served() as (uri, _):
        policy = OpenPI(uri)
        with pytest.raises(ValueError, match=r"observation must make a dict with openpi's names, .* got ndarray"):
            policy.act(np.ones(3))
        policy.close()


def test_a_server_that_is_not_there_is_one_sentence() -> None:
    with pytest.raises(ConnectionError, match=r"no server of openpi's answers at ws://127\.0\.0\.1:9 \(.*\): start it"):
        OpenPI("ws://127.0.0.1:9", wait=0)


def test_a_server_that_speaks_something_else_is_one_sentence() -> None:
    with served(metadata="hello") as (uri, _), pytest.raises(ConnectionError, match="no metadata of openpi's"):
        OpenPI(uri, wait=0)


def test_a_server_that_comes_within_the_wait_is_waited_for() -> None:
    with served() as (uri, _):
        port = int(uri.rsplit(":", 1)[1])
    policies: list[OpenPI] = []
    waiting = threading.Thread(target=lambda: policies.append(OpenPI(uri, wait=60)), daemon=True)
    waiting.start()
    with served(port=port):
        waiting.join(60)
        assert policies[0].act({}).shape == (6, 2)
        policies[0].close()


def test_a_lost_server_gives_no_action_and_one_that_comes_back_gives_chunks_again() -> None:
    with served() as (uri, _):
        port = int(uri.rsplit(":", 1)[1])
        policy = OpenPI(uri)
        policy.act({})
    with pytest.raises(NoAction, match="was lost"):
        policy.act({})
    for _ in range(2):  # the second one does not even try: attempts are a quarter of a second apart
        with pytest.raises(NoAction, match="no server answers at ws://"):
            policy.act({})
    with served(port=port):
        deadline, got = time.monotonic() + 60, None
        while got is None and time.monotonic() < deadline:
            with suppress(NoAction):
                got = policy.act({})
        assert got is not None and got.shape == (6, 2)
        policy.close()


def test_an_answer_that_never_comes_counts_as_lost_soon_after_the_first_one() -> None:
    release = threading.Event()
    answers = iter([chunk])

    def answer(observation: dict[str, Any]) -> dict[str, Any] | None:
        if (known := next(answers, None)) is None:
            release.wait(100)
        return known and known(observation)

    with served(answer) as (uri, _):
        policy = OpenPI(uri)
        policy.act({})
        began = time.monotonic()
        with pytest.raises(NoAction, match="was lost"):
            policy.act({})
        assert time.monotonic() - began < 50  # of timeout=60
        release.set()


class Arm(gym.Env[Any, Any]):
    """Two joints; an episode of 40 frames."""

    observation_space = gym.spaces.Box(-9.0, 9.0, (2,), np.float64)
    action_space = gym.spaces.Box(-2.0, 2.0, (2,), np.float32)
    noop_action = np.zeros(2, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.frame, self.place = 0, np.zeros(2)
        return self.place.copy(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.frame += 1
        self.place = np.clip(self.place + action / 50, -9, 9)
        return self.place.copy(), float(action[0]), False, self.frame == 40, {}


def test_an_episode_is_played_on_a_server_and_goes_on_without_it() -> None:
    """A server that closes the connection twice: both inferences are refused, and later ones connect again."""
    asked: list[int] = []

    def answer(observation: dict[str, Any]) -> dict[str, Any] | None:
        asked.append(len(asked))
        return None if asked[-1] in (8, 15) else chunk(observation)

    with served(answer) as (uri, _), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        policy = partial(OpenPI, uri, lambda o: {"observation/state": o}, length=6)
        runner = AsyncRunner(
            Arm, policy, 1, 100, backend="thread", playout=3, default_action=Chunk(6), calibration_time=0.0
        )
        report = play_until(runner, lambda status: len(asked) > 20 and status.actions > 10)
    assert report.refused >= 2
    assert report.frames["fresh"] > 10
    assert [w for w in told if "the connection to ws://" in str(w.message)]

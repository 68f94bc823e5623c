"""A policy that asks a server of openpi's (``scripts/serve_policy.py``): pi0, pi0.5, or whatever it serves.

The protocol, as openpi-client speaks it: a websocket without compression; the server's first message is its metadata,
then each request is an observation, a dict with strings as keys, and each answer a dict whose ``"actions"`` are [H, A].
Messages are msgpack; an array is a map of its bytes, dtype and shape under keys that are bytes themselves. A message
of text is the traceback of the server, which closes the connection after it.

openpi-client itself needs NumPy below 2, so it is not used here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from async_wrappers.checks import function, number, positive, whole
from async_wrappers.extras import extra
from async_wrappers.policy import Decision, NoAction

_ARRAY, _SCALAR, _DATA, _DTYPE, _SHAPE = b"__ndarray__", b"__npgeneric__", b"data", b"dtype", b"shape"
_KINDS = "biufSU"  # kinds of dtypes that are bytes and nothing else
_CONNECT = 0.4  # seconds that one attempt to connect may take while a run goes on
_EVERY = 0.25  # seconds between two attempts
_FAREWELL = 0.1  # seconds that a server has to answer the end of a connection
# After the first answer an inference is given up a little before `AsyncRunner` would replace the worker: see its
# `overdue_times` and `overdue_seconds`. A new worker would find the same server, and five in a row would end the run.
_PATIENCE, _LEAST_PATIENCE = 8.0, 0.8


class OpenPI:
    """A `async_wrappers.policy.Policy` that a server of openpi's computes; it answers chunks [H, A].

    The server is connected to when the policy is made, once per worker. It infers for one connection at a time, so one
    worker for each server is right. If the connection is lost, the inference gives no action (`NoAction`), its frame
    receives the default action, and the following inferences connect again.

    Args:
        uri: The server's address, such as ``"ws://gpu:8000"``.
        observation: Makes openpi's observation, a dict such as ``{"observation/image": ..., "observation/state": ...,
            "prompt": "fold the towel"}``, of the environment's. None: the environment's is such a dict.
        length: H, entries that are taken of the server's chunk, as in ``Chunk(H)``. None takes all of them.
        api_key: Sent as ``Authorization: Api-Key ...``; None sends none.
        wait: Seconds to wait for the server when the policy is made.
        timeout: Seconds to wait for the first answer, for which the server may compile. Later the connection counts as
            lost after eight times the longest answer so far, at least 0.8 s and at most these seconds.

    Attributes:
        metadata: The server's first message.

    Raises:
        DependencyNotInstalled: The extra ``openpi`` is missing.
        ConnectionError: No server of openpi's answers there.
        ValueError: An argument is wrong; in `act`: the answer is no chunk.

    Example::

        policy = partial(OpenPI, "ws://gpu:8000", observation=to_openpi, length=25)
        AsyncRunner(make_robot, policy, 1, fps=50, default_action=Chunk(25))
    """

    def __init__(
        self,
        uri: str,
        observation: Callable[[Any], Mapping[str, Any]] | None = None,
        *,
        length: int | None = None,
        api_key: str | None = None,
        wait: float = 10.0,
        timeout: float = 60.0,
    ) -> None:
        if not isinstance(uri, str) or not uri.startswith(("ws://", "wss://")):
            raise ValueError(f"uri must be an address such as 'ws://host:8000', got {uri!r}")
        if observation is not None:
            function("observation", observation, "makes openpi's observation of the environment's")
        self._uri, self._observation, self._headers = uri, observation, None
        if api_key is not None:
            if not isinstance(api_key, str) or not api_key:
                raise ValueError(f"api_key must be the server's key as text, or None, got {api_key!r}")
            self._headers = {"Authorization": f"Api-Key {api_key}"}
        self._length = None if length is None else whole("length", length, 1, unit="entries")
        wait = number("wait", wait, "a finite number of seconds >= 0", lambda given: 0 <= given < 1e9)
        self._timeout = positive("timeout", timeout, "seconds")
        with extra("a policy on a server of openpi's", "openpi"):
            import msgpack  # noqa: F401 - for `pack` and `unpack`
            import websockets.sync.client
        self._websockets = websockets
        self._connection: Any = None
        self._open = ExitStack()  # closes the connection
        self._longest: float | None = None  # seconds that an answer has taken
        self._next_attempt = 0.0
        self.metadata: dict[str, Any] = {}
        self._first_connection(wait)

    def act(self, observation: Any, decision: Decision | None = None) -> npt.NDArray[np.float32]:
        """Return the chunk [H, A] that the server answers.

        Raises:
            NoAction: The connection is lost, or the server does not answer; later calls connect again.
            RuntimeError: The server's policy raised; the message has the last line of its traceback.
            ValueError: The observation is no dict, or the answer is no chunk of `length` or more entries.
        """
        request = pack(self._request(observation))
        if self._connection is None:
            self._connect_again()
        patience = self._timeout
        if self._longest is not None:
            patience = min(max(_PATIENCE * self._longest, _LEAST_PATIENCE), patience)
        sent = time.monotonic()
        try:
            self._connection.send(request)
            answer = self._connection.recv(patience)
        except (OSError, self._websockets.exceptions.WebSocketException) as error:
            self.close()
            raise NoAction(f"the connection to {self._uri} was lost ({_cause(error)})") from None
        if isinstance(answer, str):
            self.close()
            last = answer.strip().splitlines()[-1:] or ["without a word"]
            raise RuntimeError(f"the policy of the server at {self._uri} raised: {last[0]}")
        self._longest = max(self._longest or 0.0, time.monotonic() - sent)
        return self._chunk(unpack(answer))

    def close(self) -> None:
        """Close the connection; a later `act` opens another one."""
        self._connection = None
        with suppress(Exception):  # it may be in any state
            self._open.close()

    def _request(self, observation: Any) -> Mapping[str, Any]:
        given = observation if self._observation is None else self._observation(observation)
        if not isinstance(given, Mapping):
            raise ValueError(
                "observation must make a dict with openpi's names, such as {'observation/state': ..., 'prompt': ...}, "
                f"got {type(given).__name__}"
            )
        return given

    def _chunk(self, answer: Any) -> npt.NDArray[np.float32]:
        if not isinstance(answer, Mapping) or "actions" not in answer:
            keys = ", ".join(map(repr, answer)) if isinstance(answer, Mapping) else type(answer).__name__
            raise ValueError(f"the answer of {self._uri} must have 'actions', got {keys or 'an empty dict'}")
        actions = np.asarray(answer["actions"])
        least = self._length or 1
        if actions.ndim != 2 or actions.shape[0] < least or actions.dtype.kind not in "biuf":
            wanted = "H, A" if self._length is None else f">= {least}, A"
            raise ValueError(
                f"the actions of {self._uri} must be numbers [{wanted}], got {actions.dtype} {list(actions.shape)}"
                + ("" if self._length is None else f": give length at most the server's, got {self._length}")
            )
        return actions[: self._length].astype(np.float32)

    def _first_connection(self, wait: float) -> None:
        deadline = time.monotonic() + wait
        while True:
            try:
                return self._connect(max(deadline - time.monotonic(), _CONNECT))
            except (OSError, self._websockets.exceptions.WebSocketException) as error:
                if time.monotonic() >= deadline or not isinstance(error, ConnectionRefusedError):
                    raise ConnectionError(
                        f"no server of openpi's answers at {self._uri} ({_cause(error)}): start it, or correct uri"
                    ) from None
                time.sleep(min(_EVERY, max(deadline - time.monotonic(), 0)))

    def _connect_again(self) -> None:
        """Try to connect, now and then: a run goes on meanwhile, so nothing waits here."""
        now = time.monotonic()
        if now < self._next_attempt:
            raise NoAction(f"no server answers at {self._uri}")
        self._next_attempt = now + _EVERY
        try:
            self._connect(_CONNECT)  # 0.8 s at most
        except (OSError, self._websockets.exceptions.WebSocketException) as error:
            raise NoAction(f"no server answers at {self._uri} ({_cause(error)})") from None

    def _connect(self, timeout: float) -> None:
        """Open a connection and read the metadata, each within `timeout` seconds.

        Pings are off, as a server that infers for longer than they wait answers none; `timeout` is for that.
        """
        with ExitStack() as stack:
            connection = stack.enter_context(
                self._websockets.sync.client.connect(
                    self._uri,
                    compression=None,
                    max_size=None,
                    additional_headers=self._headers,
                    open_timeout=timeout,
                    close_timeout=_FAREWELL,
                    ping_interval=None,
                    proxy=None,
                )
            )
            first = connection.recv(timeout)
            metadata = unpack(first) if isinstance(first, bytes) else None
            if not isinstance(metadata, dict):
                raise ConnectionError("its first message is no metadata of openpi's")
            self.metadata, self._connection, self._open = metadata, connection, stack.pop_all()


def pack(message: Any) -> bytes:
    """Return a message as openpi-client packs it: msgpack, and an array as a map of bytes, dtype and shape.

    Raises:
        ValueError: It holds something else, such as an array of objects.
    """
    import msgpack

    try:
        packed: bytes = msgpack.packb(message, default=_packed)
    except TypeError as error:
        raise ValueError(f"an observation for openpi must hold arrays, numbers and strings: {error}") from None
    return packed


def unpack(data: bytes) -> Any:
    """Return a message that openpi-client or its server has packed.

    Raises:
        ValueError: It is none.
    """
    import msgpack

    try:
        return msgpack.unpackb(data, object_hook=_unpacked)
    except (ValueError, TypeError, KeyError, msgpack.exceptions.UnpackException) as error:
        raise ValueError(f"a message of openpi's must be msgpack with arrays, got {len(data)} bytes: {error}") from None


def _packed(value: Any) -> Any:
    if hasattr(value, "detach"):  # a tensor
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind not in _KINDS:
        raise TypeError(f"arrays of {value.dtype} cannot be sent")
    if isinstance(value, np.ndarray):
        return {_ARRAY: True, _DATA: value.tobytes(), _DTYPE: value.dtype.str, _SHAPE: value.shape}
    if isinstance(value, np.generic):
        return {_SCALAR: True, _DATA: value.item(), _DTYPE: value.dtype.str}
    raise TypeError(f"{type(value).__name__} cannot be sent")


def _unpacked(value: dict[Any, Any]) -> Any:
    if _ARRAY not in value and _SCALAR not in value:
        return value
    dtype = np.dtype(value[_DTYPE])
    if dtype.kind not in _KINDS:
        raise ValueError(f"arrays of {dtype} are not read")
    if _ARRAY in value:
        return np.frombuffer(value[_DATA], dtype).reshape(value[_SHAPE])
    return dtype.type(value[_DATA])


def _cause(error: BaseException) -> str:
    """Return in a few words what went wrong, on one line."""
    return " ".join(str(error).split()) or type(error).__name__

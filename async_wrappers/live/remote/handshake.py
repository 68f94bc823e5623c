"""How the two ends of a connection agree, without input or output: spaces, a token, and sentences where they differ.

The loop knocks; the server asks for a proof of the token; the loop gives it, and says hello with its spaces; the server
proves that it has the token too, and that it has a worker for this connection::

    loop                                    server
      KNOCK      nonce                   ->
                                         <- CHALLENGE  nonce, whether it has a token
      PROOF      HMAC(token, nonces)     ->
      HELLO      spaces, worker, session ->
                                         <- WELCOME    HMAC(token, nonces)    or  REFUSAL  a sentence

Of an end that has not proven the token the server keeps a few thousand bytes; it reads no hello before the proof.
The proofs are HMAC-SHA256 of both nonces and of the name of the end that proves, so that neither is of use a second
time or the other way round. They show who is there; they encrypt nothing, and protect no record after them.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import math
import re
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, TypeVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from async_wrappers.live.remote.wire import LARGEST, Kind, Record, RecordReader, WireError, encoded, named, printable
from async_wrappers.version import __version__

_MOST_JSON = 1 << 20  # bytes of a hello: the bounds of a small Box, each by itself, may be in it
_SMALL_JSON = 1 << 12
_DEEPEST = 16  # spaces within spaces
_MOST_SPACES = 1024  # of one observation, whose description the desk reads in a tenth of a second
_MOST_WORKERS = 100_000
_T = TypeVar("_T")


class Refused(WireError):
    """The server refuses; the message is its sentence.

    Attributes:
        again: Whether it may take the same hello later.
    """

    def __init__(self, reason: str, again: bool = False) -> None:
        super().__init__(reason)
        self.again = again


# Spaces as plain data.


def describe(space: gym.Space[Any] | None, sorts: bool = False) -> Any:
    """Return a space as plain data; None for None.

    Args:
        space: The space.
        sorts: Whether the entries of each Dict are in the order of their names, so that spaces with the same elements
            are described alike, and not in the order in which records hold them.

    Raises:
        ValueError: It is no Box, Discrete, MultiDiscrete, MultiBinary, or Dict or Tuple of these.
    """
    if space is None:
        return None
    if isinstance(space, spaces.Dict):
        parts = [[key, describe(each, sorts)] for key, each in space.spaces.items()]
        return {"kind": "Dict", "parts": sorted(parts, key=lambda part: repr(part[0])) if sorts else parts}
    if isinstance(space, spaces.Tuple):
        return {"kind": "Tuple", "parts": [describe(each, sorts) for each in space.spaces]}
    if isinstance(space, spaces.Box):
        bounds = {"low": _packed(space.low), "high": _packed(space.high)}
        return {"kind": "Box", "dtype": space.dtype.str, "shape": list(space.shape), **bounds}
    if isinstance(space, spaces.Discrete):
        return {"kind": "Discrete", "dtype": _name(space), "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        numbers = {"n": _packed(space.nvec), "start": _packed(space.start)}
        return {"kind": "MultiDiscrete", "dtype": _name(space), "shape": list(space.shape), **numbers}
    if isinstance(space, spaces.MultiBinary):
        return {"kind": "MultiBinary", "shape": list(space.shape)}
    raise ValueError(f"a space must be Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple of these, got {space}")


def _name(space: gym.Space[Any]) -> str:
    assert space.dtype is not None
    return np.dtype(space.dtype).str


def _packed(values: Any) -> str:
    """Return numbers as base64 of their bytes; one number if all are equal."""
    values = np.asarray(values)
    if values.size:
        first = values[(0,) * values.ndim]
        if not any(values.strides) or (values == first).all():  # without strides they are one number in memory
            values = first.reshape(1)
    values = values + np.zeros((), values.dtype)  # -0.0 is 0.0
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()


def space_of(description: Any) -> gym.Space[Any]:
    """Return the space of a description, whoever wrote it.

    Bounds that are equal for all numbers take no memory, and no time: the desk of a server has other connections too.

    Raises:
        WireError: It describes no space, one whose elements are larger than `LARGEST` bytes in all, or one of more than
            `_MOST_SPACES` spaces.
    """
    return _space_of(description, [LARGEST, _MOST_SPACES], 0)


def _space_of(description: Any, left: list[int], depth: int) -> gym.Space[Any]:
    kind = _entry(description, "kind", str)
    if depth > _DEEPEST:
        raise WireError(f"described a space of more than {_DEEPEST} levels")
    left[1] -= 1
    if left[1] < 0:
        raise WireError(f"described a space of more than {_MOST_SPACES} spaces")
    try:
        if kind in ("Dict", "Tuple"):
            return _nested(kind, _entry(description, "parts", list), left, depth)
        if kind in _LEAVES:
            return _LEAVES[kind](description, left)
    except WireError:
        raise
    except Exception as error:  # what Gymnasium and NumPy say of numbers that fit no space
        raise WireError(f"described a {kind} that is none: {named(error)}") from None
    raise WireError(f"described a space of the unknown kind {kind[:40]!r}")


def _nested(kind: str, parts: list[Any], left: list[int], depth: int) -> gym.Space[Any]:
    left[0] -= 8 * len(parts)
    if left[0] < 0:
        raise WireError(f"described a space of more than {LARGEST} bytes")
    if kind == "Tuple":
        return spaces.Tuple([_space_of(each, left, depth + 1) for each in parts])
    named: OrderedDict[Any, gym.Space[Any]] = OrderedDict()
    for part in parts:
        if not (isinstance(part, list) and len(part) == 2 and isinstance(part[0], str | int)) or part[0] in named:
            raise WireError("described a Dict whose parts are not pairs of one name and one space")
        named[part[0]] = _space_of(part[1], left, depth + 1)
    return spaces.Dict(named)


def _box(description: Any, left: list[int]) -> gym.Space[Any]:
    dtype, shape = _room(description, left)
    low, high = (_unpacked(_entry(description, name, str), dtype, shape) for name in ("low", "high"))
    if shape and low.size == high.size == 1:
        box = spaces.Box(low, high, (1,), dtype.type)
        return _stretched(box, shape, ("low", "high", "bounded_below", "bounded_above"))
    return spaces.Box(_full(low, shape), _full(high, shape), shape, dtype.type)


def _discrete(description: Any, left: list[int]) -> gym.Space[Any]:
    dtype, _ = _room({**description, "shape": []}, left)
    return spaces.Discrete(_entry(description, "n", int), start=_entry(description, "start", int), dtype=dtype.type)


def _multi_discrete(description: Any, left: list[int]) -> gym.Space[Any]:
    dtype, shape = _room(description, left)
    counts, start = (_unpacked(_entry(description, name, str), dtype, shape) for name in ("n", "start"))
    if shape and counts.size == start.size == 1:
        return _stretched(spaces.MultiDiscrete(counts, dtype=dtype.type, start=start), shape, ("nvec", "start"))
    counts, start = (_full(each, shape) for each in (counts, start))
    return spaces.MultiDiscrete(counts, dtype=dtype.type, start=start)


def _multi_binary(description: Any, left: list[int]) -> gym.Space[Any]:
    _, shape = _room({**description, "dtype": "|i1"}, left)
    return spaces.MultiBinary(shape)


_LEAVES = {"Box": _box, "Discrete": _discrete, "MultiDiscrete": _multi_discrete, "MultiBinary": _multi_binary}


def _room(description: Any, left: list[int]) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Return type and shape, and take their bytes from those that are left, before anything of that size is made."""
    name = _entry(description, "dtype", str)
    shape: list[Any] = _entry(description, "shape", list)
    if not re.fullmatch(r"[<|][biuf][1248]", name):
        raise WireError(f"described numbers of the type {name[:20]!r}, which are not little-endian numbers")
    if len(shape) > 32 or not all(type(length) is int and length >= 0 for length in shape):
        raise WireError("described a shape that is none: it is of at most 32 whole numbers >= 0")
    dtype = np.dtype(name)
    left[0] -= dtype.itemsize * math.prod(shape)
    if left[0] < 0:
        raise WireError(f"described a space of more than {LARGEST} bytes")
    return dtype, tuple(shape)


def _stretched(space: gym.Space[Any], shape: tuple[int, ...], names: tuple[str, ...]) -> gym.Space[Any]:
    """Return a space of one number as one of a shape, whose bounds are all views of that number's."""
    str(space)  # which keeps how its bounds are written
    space._shape = shape
    for name in names:
        setattr(space, name, np.broadcast_to(getattr(space, name), shape))
    return space


def _full(numbers: Any, shape: tuple[int, ...]) -> Any:
    return np.full(shape, numbers[0]) if numbers.size == 1 else numbers.reshape(shape)


def _unpacked(text: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
    """Return the numbers, or the one number, of a description."""
    numbers = np.frombuffer(base64.b64decode(text, validate=True), dtype)
    if numbers.size not in (1, math.prod(shape)):
        raise WireError(f"described {numbers.size} bounds of a shape {shape}")
    return numbers


# What both ends say.


@dataclass(frozen=True)
class Hello:
    """What the loop's end says of one connection.

    Attributes:
        observation_space: Of what the policy reads.
        answers: Of its answers: actions, or features.
        extras: Of the values that it leaves for the learner; None for none.
        has_features: Whether `answers` are features of a policy with memory.
        chunk_length: Entries of a chunk; 0 if actions are no chunks.
        worker: Number of the connection's worker.
        workers: How many the run has.
        session: A name that all connections of one run share, and nobody else knows.
        version: Of the package.
    """

    observation_space: gym.Space[Any]
    answers: gym.Space[Any]
    extras: gym.spaces.Dict | None
    has_features: bool
    chunk_length: int
    worker: int
    workers: int
    session: str
    version: str = __version__

    @cached_property
    def _spaces(self) -> dict[str, Any]:
        each = {"observation_space": self.observation_space, "answers": self.answers, "extras": self.extras}
        return {name: describe(space) for name, space in each.items()}

    def of_worker(self, worker: int) -> Hello:
        """Return that of another worker, for which the spaces are not described once more."""
        other = replace(self, worker=worker)
        other.__dict__["_spaces"] = self._spaces
        return other

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            **self._spaces,
            "features": self.has_features,
            "chunk_length": self.chunk_length,
            "worker": self.worker,
            "workers": self.workers,
            "session": self.session,
            "version": self.version,
        }

    @classmethod
    def of(cls, message: Any) -> Hello:
        """Return the hello that plain data holds.

        Raises:
            WireError: It holds none.
        """
        extras = message.get("extras") if isinstance(message, Mapping) else None
        left = None if extras is None else space_of(extras)
        if not (left is None or isinstance(left, spaces.Dict)):
            raise WireError("described extras that are no Dict")
        hello = cls(
            space_of(_entry(message, "observation_space", dict)),
            space_of(_entry(message, "answers", dict)),
            left,
            _entry(message, "features", bool),
            _number(message, "chunk_length", 0, LARGEST),
            _number(message, "worker", 0, _MOST_WORKERS - 1),
            _number(message, "workers", 1, _MOST_WORKERS),
            printable(_entry(message, "session", str), 64),
            printable(_entry(message, "version", str), 40),
        )
        if hello.worker >= hello.workers:
            raise WireError(f"is worker {hello.worker} of {hello.workers}")
        return hello


@dataclass(frozen=True)
class Declared:
    """What a server says that its policies read and answer; None for whatever the loop's end says."""

    observation_space: gym.Space[Any] | None = None
    action_space: gym.Space[Any] | None = None
    extras: gym.spaces.Dict | None = None
    features: gym.Space[Any] | None = None

    @cached_property
    def described(self) -> dict[str, Any]:
        """The spaces as plain data, by name."""
        return {each.name: describe(getattr(self, each.name), True) for each in fields(self)}

    def refuse(self, hello: Hello) -> None:
        """Refuse a hello that differs.

        Raises:
            Refused: In one sentence, for the other end.
        """
        answers = "features" if hello.has_features else "action_space"
        if self.features is not None and not hello.has_features:
            raise Refused(f"features must be {_short(self.features)} for this server's policies, which have memory")
        pairs = (("observation_space", hello.observation_space), (answers, hello.answers), ("extras", hello.extras))
        for name, said in pairs:
            declared = getattr(self, name)
            if declared is not None and self.described[name] != describe(said, True):
                raise Refused(f"{name} must be {_short(declared)} for this server's policies, got {_short(said)}")


@dataclass(frozen=True)
class Welcome:
    """What the server says of itself.

    Attributes:
        server: A name of its own, another one after each start.
        workers: How many it has.
        version: Of its package.
    """

    server: str
    workers: int
    version: str = __version__


# The two ends.


class ClientHandshake:
    """The loop's end.

    Args:
        hello: What it says of the connection.
        token: The secret that both ends know; None for none.

    Raises:
        ValueError: The spaces are too long to describe.
    """

    def __init__(self, hello: Hello, token: bytes | None = None) -> None:
        self._said = _record(Kind.HELLO, hello.to_json())
        self._token, self._nonce = token, secrets.token_hex(16)
        self._server_nonce = ""
        self._reader = RecordReader({Kind.CHALLENGE: (2, _SMALL_JSON), Kind.REFUSAL: (2, _SMALL_JSON)})
        self.welcome: Welcome | None = None
        """What the server said, once it has welcomed this end."""

    def begin(self) -> bytes:
        """Return the bytes to send first."""
        return _record(Kind.KNOCK, {"nonce": self._nonce})

    def wants(self) -> int:
        """Return how many bytes it takes next at most; 0 when it is over."""
        return 0 if self.welcome is not None else self._reader.wants()

    def receive(self, data: bytes) -> bytes:
        """Take bytes, at most `wants`; return bytes to send.

        Raises:
            Refused: The server refuses, or has no such token.
            WireError: What came is no part of a handshake, whatever is wrong with it.
        """
        record = self._reader.feed(data)
        if record is None:
            return b""
        try:
            return self._take(record, _message(record))
        except WireError:
            raise
        except Exception as error:  # a run does not end over what a stranger says
            raise WireError(
                f"sent a record {record.header.kind.name} that this end cannot read: {named(error)}"
            ) from None

    def _take(self, record: Record, message: Any) -> bytes:
        if record.header.kind == Kind.REFUSAL:
            raise Refused(printable(_entry(message, "reason", str), 1000), _entry(message, "again", bool))
        if record.header.kind == Kind.CHALLENGE:
            return self._prove(message)
        proof = _entry(message, "proof", str)
        if self._token is not None and not _equal(proof, self._proof("server")):
            raise Refused("token must be that of the server, got another one")
        server, version = (printable(_entry(message, name, str), 64) for name in ("server", "version"))
        self.welcome = Welcome(server, _number(message, "workers", 1, _MOST_WORKERS), version)
        return b""

    def _prove(self, message: Any) -> bytes:
        has_token, self._server_nonce = _entry(message, "token", bool), _nonce(message)
        if has_token and self._token is None:
            raise Refused("token must be given, as the server asks for one, got None")
        if self._token is not None and not has_token:
            raise Refused("token must be None, or the server be started with the same one: it has none")
        self._reader.sizes = {Kind.WELCOME: (2, _SMALL_JSON), Kind.REFUSAL: (2, _SMALL_JSON)}
        return _record(Kind.PROOF, {"proof": self._proof("loop")}) + self._said

    def _proof(self, end: str) -> str:
        return "" if self._token is None else _proof(self._token, end, self._nonce, self._server_nonce)


class ServerHandshake:
    """The server's end.

    Args:
        declared: The spaces of its policies.
        welcome: What it says of itself.
        token: The secret that both ends know; None for none.
    """

    def __init__(self, declared: Declared, welcome: Welcome, token: bytes | None = None) -> None:
        self._declared, self._welcome, self._token = declared, welcome, token
        self._nonce, self._client_nonce = secrets.token_hex(16), ""
        self._reader = RecordReader({Kind.KNOCK: (2, _SMALL_JSON)})
        self.has_proven = False
        """Whether the loop's end has proven that it has the token, or needs none and has answered."""
        self.hello: Hello | None = None
        """What the loop's end said; then `welcome` or `refusal` is due."""
        self.said = b""
        """The same, as it said it."""

    def wants(self) -> int:
        """Return how many bytes it takes next at most; 0 when it is over."""
        return 0 if self.hello is not None else self._reader.wants()

    def receive(self, data: bytes) -> bytes:
        """Take bytes, at most `wants`; return bytes to send.

        Raises:
            Refused: The spaces or the token differ; the other end is told by `refusal`.
            WireError: What came is no part of a handshake.
        """
        record = self._reader.feed(data)
        if record is None:
            return b""
        message = _message(record)
        if record.header.kind == Kind.KNOCK:
            self._client_nonce = _nonce(message)
            self._reader.sizes = {Kind.PROOF: (2, _SMALL_JSON)}
            return _record(Kind.CHALLENGE, {"nonce": self._nonce, "token": self._token is not None})
        if record.header.kind == Kind.PROOF:
            if self._token is not None and not _equal(_entry(message, "proof", str), self._proof("loop")):
                raise Refused("token must be that of the server, got another one")
            self.has_proven = True
            self._reader.sizes = {Kind.HELLO: (2, _MOST_JSON)}
            return b""
        hello = Hello.of(message)
        if hello.workers > self._welcome.workers:
            raise Refused(
                f"workers must be at most {self._welcome.workers}, as many as the server has, got {hello.workers}"
            )
        self._declared.refuse(hello)
        self.hello, self.said = hello, record.payload
        return b""

    def welcome(self) -> bytes:
        """Return the bytes that end the handshake well."""
        said = {"server": self._welcome.server, "workers": self._welcome.workers, "version": self._welcome.version}
        return _record(Kind.WELCOME, {**said, "proof": "" if self._token is None else self._proof("server")})

    @staticmethod
    def refusal(error: WireError) -> bytes:
        """Return the bytes that end the handshake otherwise."""
        reason = str(error) if isinstance(error, Refused) else f"the other end {error}"
        return _record(Kind.REFUSAL, {"reason": reason[:1000], "again": isinstance(error, Refused) and error.again})

    def _proof(self, end: str) -> str:
        assert self._token is not None
        return _proof(self._token, end, self._client_nonce, self._nonce)


def _proof(token: bytes, end: str, client: str, server: str) -> str:
    return hmac.new(token, f"{end} {client} {server}".encode(), hashlib.sha256).hexdigest()


def _equal(proof: str, own: str) -> bool:
    return hmac.compare_digest(proof.encode(errors="replace"), own.encode())


def _record(kind: Kind, message: Mapping[str, Any]) -> bytes:
    payload = json.dumps(message).encode()
    if len(payload) > _MOST_JSON:
        raise ValueError(
            f"the spaces must be described in {_MOST_JSON} bytes, got {len(payload)}: use bounds that are equal for "
            "all numbers of a Box"
        )
    return encoded(kind, payload)


def _message(record: Record) -> Any:
    try:
        return json.loads(record.payload)
    except (ValueError, RecursionError):
        raise WireError(f"sent a record {record.header.kind.name} that is no JSON") from None


def _entry(message: Any, name: str, kind: Callable[..., _T]) -> _T:
    """Return an entry of a message that is of a type, exactly."""
    value = message.get(name) if isinstance(message, Mapping) else None
    if type(value) is not kind:
        raise WireError(f"sent no {name} of the type {getattr(kind, '__name__', kind)} where one belongs")
    return value  # type: ignore[return-value]


def _nonce(message: Any) -> str:
    nonce = _entry(message, "nonce", str)
    if not re.fullmatch("[0-9a-f]{1,64}", nonce):
        raise WireError("sent a nonce that is not of 1 to 64 hexadecimal digits")
    return nonce


def _number(message: Any, name: str, least: int, most: int) -> int:
    value = _entry(message, name, int)
    if not least <= value <= most:
        raise WireError(f"sent a {name} that is not from {least} to {most}")
    return value


def _short(space: Any) -> str:
    text = str(space)
    return text if len(text) <= 200 else f"{text[:200]}..."

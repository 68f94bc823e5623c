"""The records that an environment loop and a policy server exchange, without input or output.

A record is a header of 56 bytes and a payload. Everything is little-endian. Before anything of a payload is kept, its
header is checked: magic, version, a kind that may come now, and the size that this kind has. So an end never allocates
what the other one announces, and nothing that came over the wire is unpickled or run.

========= =============== ==============================================================================
kind      from            payload
========= =============== ==============================================================================
HELLO     the loop        JSON: spaces, worker, session, nonce (`async_wrappers.live.remote.handshake`)
CHALLENGE the server      JSON: nonce
PROOF     the loop        JSON: proof of the token
WELCOME   the server      JSON: proof of the token
REFUSAL   the server      JSON: a sentence, and whether to try again
TICKET    the loop        episode, start, frame, eval_mode; then the observation, as it lies in shared memory
ANSWER    the server      the action or the features, then the extras, as they lie in shared memory
REFUSED   the server      a sentence: the policy's answer is no action
FAILED    the server      text: the policy's exception; the connection ends
========= =============== ==============================================================================

An answer has the number and the incarnation of its ticket. The four times of its header are nanoseconds of the server's
monotonic clock: the ticket was received, its inference began, it ended, the answer was sent. Those of a ticket are 0.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from async_wrappers.live.memory.block import Codec
from async_wrappers.live.memory.exchange import Ticket

__all__ = [
    "HEADER",
    "LARGEST",
    "SENTENCE",
    "VERSION",
    "Answers",
    "Header",
    "Kind",
    "Reader",
    "Record",
    "Tickets",
    "WireError",
    "checked",
    "encoded",
    "printable",
]

MAGIC = b"AWRP"
VERSION = 1
HEADER = struct.Struct("<4sHHIIq4q")
"""Magic, version, kind, bytes of the payload, incarnation, number, four times."""
LARGEST = 1 << 26
"""Bytes of an observation or an answer at most, 64 MiB."""
SENTENCE = 1 << 13
"""Bytes of a text at most."""

_NO_TIMES = (0, 0, 0, 0)
Sizes = Mapping["Kind", tuple[int, int]]
"""By kind that may come now: least and most bytes of its payload."""


class WireError(ValueError):
    """The other end sent what this one does not take; the message is one sentence without a subject."""


class Kind(IntEnum):
    """See the module."""

    HELLO = 1
    CHALLENGE = 2
    PROOF = 3
    WELCOME = 4
    REFUSAL = 5
    TICKET = 6
    ANSWER = 7
    REFUSED = 8
    FAILED = 9


class Header(NamedTuple):
    """A checked header; see the module."""

    kind: Kind
    size: int
    incarnation: int
    number: int
    times: tuple[int, int, int, int]


class Record(NamedTuple):
    """A header and its payload."""

    header: Header
    payload: bytes


def encoded(
    kind: Kind,
    payload: bytes = b"",
    incarnation: int = 0,
    number: int = 0,
    times: tuple[int, int, int, int] = _NO_TIMES,
) -> bytes:
    """Return a record as bytes."""
    return HEADER.pack(MAGIC, VERSION, kind, len(payload), incarnation & 0xFFFFFFFF, number, *times) + payload


def checked(data: Any, sizes: Sizes) -> Header:
    """Return the header at the beginning of some bytes.

    Args:
        data: At least as many bytes as a header has.
        sizes: The kinds that may come now.

    Raises:
        WireError: It is no header, of another version, of a kind that may not come now, or of another size.
    """
    magic, version, kind, size, incarnation, number, *times = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise WireError(f"sent {magic!r} where a record begins with {MAGIC!r}: it is no end of async_wrappers")
    if version != VERSION:
        raise WireError(
            f"speaks version {version} of the wire format, and this end version {VERSION}: install the same version of "
            "async_wrappers on both"
        )
    if kind not in sizes:
        known = Kind(kind).name if kind in Kind._value2member_map_ else f"of kind {kind}"
        raise WireError(f"sent a record {known} where {' or '.join(each.name for each in sizes)} comes")
    least, most = sizes[Kind(kind)]
    if not least <= size <= most:
        wanted = f"{least}" if least == most else f"from {least} to {most}"
        raise WireError(f"announced {size} bytes in a record {Kind(kind).name}, which has {wanted}")
    return Header(Kind(kind), size, incarnation, number, (times[0], times[1], times[2], times[3]))


class Reader:
    """Makes records of bytes as they come, in pieces of any length. It never holds more than one record.

    Attributes:
        sizes: The kinds that may come now; to be set anew after each record that changes them.
    """

    def __init__(self, sizes: Sizes) -> None:
        """See the class."""
        self.sizes = sizes
        self._held = bytearray()
        self._header: Header | None = None

    def wants(self) -> int:
        """Return how many more bytes the running record may have: feed no more than these."""
        return (HEADER.size if self._header is None else HEADER.size + self._header.size) - len(self._held)

    def feed(self, data: bytes | memoryview) -> Record | None:
        """Take the next bytes, at most `wants`; return the record if they end it.

        Raises:
            WireError: The header is refused; see `checked`.
        """
        assert len(data) <= self.wants(), "more bytes than the record has"
        self._held += data
        if self._header is None and len(self._held) == HEADER.size:
            self._header = checked(self._held, self.sizes)
        if self._header is None or len(self._held) < HEADER.size + self._header.size:
            return None
        record = Record(self._header, bytes(self._held[HEADER.size :]))
        self._header = None
        self._held.clear()
        return record

    @property
    def is_cut(self) -> bool:
        """Whether a record has begun and not ended."""
        return bool(self._held)


_TICKET = struct.Struct("<qqq?7x")  # episode, start, frame, eval_mode; 8 bytes more keep the observation aligned


class Tickets:
    """Tickets with their observations, as records of one size.

    Args:
        space: Of the observations.
    """

    def __init__(self, space: gym.Space[Any]) -> None:
        """See the class."""
        self._codec = Codec("observation_space", space)
        self.observation_bytes = self._codec.dtype.itemsize
        """Bytes of an observation."""
        self._payload = _TICKET.size + self.observation_bytes
        self.sizes: Sizes = {Kind.TICKET: (self._payload, self._payload)}
        self.record_bytes = HEADER.size + self._payload
        """Bytes of a record."""

    def write_observation(self, target: bytearray, observation: Any) -> None:
        """Write an observation into as many bytes as it takes."""
        self._codec.write(_field(self._codec.dtype, target, 0), observation)

    def head(self, ticket: Ticket) -> bytes:
        """Return the bytes of a record that come before the observation's."""
        header = HEADER.pack(
            MAGIC, VERSION, Kind.TICKET, self._payload, ticket.incarnation & 0xFFFFFFFF, ticket.number, *_NO_TIMES
        )
        return header + _TICKET.pack(ticket.episode, ticket.start, ticket.frame, ticket.eval_mode)

    def read(self, record: bytearray | memoryview) -> tuple[Ticket, Any]:
        """Return the ticket and a copy of the observation of a whole record, whose header has been checked.

        Raises:
            WireError: A number that no ticket has.
        """
        *_, incarnation, number, _, _, _, _ = HEADER.unpack_from(record)
        episode, start, frame, eval_mode = _TICKET.unpack_from(record, HEADER.size)
        if min(number, episode, start, frame) < 0:
            raise WireError(f"sent a ticket with a negative number: {(number, episode, start, frame)}")
        observation = self._codec.read(_field(self._codec.dtype, record, HEADER.size + _TICKET.size))
        return Ticket(incarnation, number, episode, start, frame, eval_mode), observation


class Answers:
    """Actions or features with the extras beside them, as records of one size; and texts in their place.

    Args:
        space: Of the answers.
        extras: Of the values that the policy leaves for the learner; None for none.
    """

    def __init__(self, space: gym.Space[Any], extras: gym.spaces.Dict | None = None) -> None:
        """See the class."""
        self._action, self._extras = Codec("action_space", space), Codec("extras", extras)
        self._dtype = np.dtype([("action", self._action.dtype), ("extras", self._extras.dtype)])
        size = self._dtype.itemsize
        self.sizes: Sizes = {Kind.ANSWER: (size, size), Kind.REFUSED: (0, SENTENCE), Kind.FAILED: (0, SENTENCE)}
        self.record_bytes = HEADER.size + max(size, SENTENCE)
        """Bytes of a record at most."""
        self._record = bytearray(HEADER.size + size)
        fields = _field(self._dtype, self._record, HEADER.size)
        self._fields = fields["action"], fields["extras"]

    def write(self, ticket: Ticket, times: tuple[int, int, int, int], action: Any, extras: Any) -> bytearray:
        """Return the record of an answer; the next call overwrites it."""
        size = self._dtype.itemsize
        HEADER.pack_into(
            self._record, 0, MAGIC, VERSION, Kind.ANSWER, size, ticket.incarnation & 0xFFFFFFFF, ticket.number, *times
        )
        self._action.write(self._fields[0], action)
        self._extras.write(self._fields[1], extras)
        return self._record

    def read(self, record: bytearray | memoryview) -> tuple[Any, Any]:
        """Return copies of the action and the extras of a whole record ANSWER, whose header has been checked."""
        fields = _field(self._dtype, record, HEADER.size)
        return self._action.read(fields["action"]), self._extras.read(fields["extras"])


def printable(text: bytes | str, most: int = SENTENCE) -> str:
    """Return a text of the other end without characters that control a terminal, cut to `most` characters."""
    if isinstance(text, bytes):
        text = text[:SENTENCE].decode(errors="replace")
    return "".join(each if each.isprintable() or each == "\n" else "?" for each in text)[:most]


def _field(dtype: np.dtype[Any], data: bytearray | memoryview, offset: int) -> npt.NDArray[Any]:
    """Return an array [1] over some bytes."""
    return np.ndarray((1,), dtype, data, offset)

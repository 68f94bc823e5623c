"""The records that an environment loop and a policy server exchange, without input or output.

A record is a header of 56 bytes and a payload. Everything is little-endian. Before anything of a payload is kept, its
header is checked: magic, version, a kind that may come now, and the size that this kind has. So an end never allocates
what the other one announces, and nothing that came over the wire is unpickled or run.

========= =============== ==============================================================================
kind      from            payload
========= =============== ==============================================================================
KNOCK     the loop        JSON: nonce (`async_wrappers.live.remote.handshake`)
CHALLENGE the server      JSON: nonce
PROOF     the loop        JSON: proof of the token
HELLO     the loop        JSON: spaces, worker, session
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

from async_wrappers.fleet.block import Codec
from async_wrappers.live.memory.exchange import DECISION, Ticket, ticket_of, told

MAGIC = b"AWRP"
VERSION = 2
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
    """The kinds of messages; the module says what each carries."""

    HELLO = 1
    CHALLENGE = 2
    PROOF = 3
    WELCOME = 4
    REFUSAL = 5
    TICKET = 6
    ANSWER = 7
    REFUSED = 8
    FAILED = 9
    KNOCK = 10


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


class RecordReader:
    """Makes records of bytes as they come, in pieces of any length. It never holds more than one record.

    Attributes:
        sizes: The kinds that may come now; to be set anew after each record that changes them.
    """

    def __init__(self, sizes: Sizes) -> None:
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


_BEGINNING = struct.Struct("<4sHHI")  # of a header: all that the records of one kind and size share
_NAME = struct.Struct("<Iq")  # the rest of it: incarnation and number
_ANSWERED = struct.Struct("<Iq4q")  # and the times
# The rest of a ticket's header, without times; episode, start, frame, eval_mode; then the observation, aligned.
_TICKET = struct.Struct(f"<Iq32x{DECISION}")
_TIMES = struct.Struct("<4q")


class TicketRecords:
    """Tickets with their observations, as records of one size.

    Args:
        space: Of the observations.
    """

    def __init__(self, space: gym.Space[Any]) -> None:
        self._codec = Codec("observation_space", space)
        self.record_bytes = _BEGINNING.size + _TICKET.size + self._codec.dtype.itemsize
        """Bytes of a record."""
        payload = self.record_bytes - HEADER.size
        self.sizes: Sizes = {Kind.TICKET: (payload, payload)}

    def record(self) -> TicketRecord:
        """Return an empty record."""
        return TicketRecord(self._codec, self.record_bytes)


class TicketRecord:
    """A ticket as bytes, written or read again and again; its parts are found once.

    Args:
        codec: Of the observation.
        size: Bytes of the record.

    Attributes:
        data: The bytes.
    """

    def __init__(self, codec: Codec, size: int) -> None:
        self._begins = _BEGINNING.pack(MAGIC, VERSION, Kind.TICKET, size - HEADER.size)
        self.data = bytearray(self._begins.ljust(size, b"\0"))
        self._observation = _field(codec.dtype, self.data, _BEGINNING.size + _TICKET.size)
        self._write, self._read = codec.write, codec.read

    def show(self, observation: Any) -> None:
        """Write the observation."""
        self._write(self._observation, observation)

    def order(self, ticket: Ticket, incarnation: int) -> None:
        """Write all but the observation; the ticket is for this incarnation of its worker."""
        _TICKET.pack_into(self.data, _BEGINNING.size, incarnation & 0xFFFFFFFF, ticket.number, *told(ticket.decision))

    def is_whole(self, count: int) -> bool:
        """Return whether the first `count` bytes are a ticket; if not, `checked` says why a header is none."""
        return count == len(self.data) and self.data.startswith(self._begins)

    def read(self) -> tuple[Ticket, Any]:
        """Return the ticket and a copy of the observation.

        Raises:
            WireError: A number that no ticket has.
        """
        ticket = ticket_of(*_TICKET.unpack_from(self.data, _BEGINNING.size))
        if min(ticket.number, *told(ticket.decision)) < 0:
            raise WireError(f"sent a ticket with a negative number: {ticket}")
        return ticket, self._read(self._observation)


class Answers:
    """Actions or features with the extras beside them, as records of one size; and texts in their place.

    Args:
        space: Of the answers.
        extras: Of the values that the policy leaves for the learner; None for none.
    """

    def __init__(self, space: gym.Space[Any], extras: gym.spaces.Dict | None = None) -> None:
        self._codecs = Codec("action_space", space), Codec("extras", extras)
        action, left = self._codecs
        size = np.dtype([("action", action.dtype), ("extras", left.dtype)]).itemsize
        self.sizes: Sizes = {Kind.ANSWER: (size, size), Kind.REFUSED: (0, SENTENCE), Kind.FAILED: (0, SENTENCE)}
        self.answer_bytes = HEADER.size + size
        """Bytes of the record of an answer."""
        self.record_bytes = HEADER.size + max(size, SENTENCE)
        """Bytes of a record at most."""
        self._begins = _BEGINNING.pack(MAGIC, VERSION, Kind.ANSWER, size)

    def record(self) -> AnswerRecord:
        """Return an empty record, with room for the longest one and a byte more, which is never filled by one."""
        return AnswerRecord(*self._codecs, self._begins, self.record_bytes + 1)

    def begins(self, ticket: Ticket, incarnation: int) -> bytes:
        """Return the bytes that the answer to a ticket begins with."""
        return self._begins + _NAME.pack(incarnation & 0xFFFFFFFF, ticket.number)


class AnswerRecord:
    """An answer as bytes, written or read again and again; its parts are found once.

    Args:
        action: Codec of the action or the features.
        extras: Codec of the extras.
        begins: The bytes that all answers begin with.
        size: Bytes of the longest record.

    Attributes:
        data: The bytes.
    """

    def __init__(self, action: Codec, extras: Codec, begins: bytes, size: int) -> None:
        self.data = bytearray(begins.ljust(size, b"\0"))
        dtype = np.dtype([("action", action.dtype), ("extras", extras.dtype)])
        fields = _field(dtype, self.data, HEADER.size)
        self._action, self._extras = fields["action"], fields["extras"]
        self._codecs, self._has_extras = (action, extras), extras.dtype.itemsize > 0
        self._answer = memoryview(self.data)[: HEADER.size + dtype.itemsize]

    def write(self, ticket: Ticket, times: tuple[int, int, int, int], action: Any, extras: Any) -> memoryview:
        """Return the bytes of an answer; the next call overwrites them."""
        _ANSWERED.pack_into(self.data, _BEGINNING.size, ticket.incarnation & 0xFFFFFFFF, ticket.number, *times)
        action_codec, extras_codec = self._codecs
        action_codec.write(self._action, action)
        if self._has_extras:
            extras_codec.write(self._extras, extras)
        return self._answer

    @property
    def times(self) -> tuple[int, int, int, int]:
        """The four times of the header."""
        return _TIMES.unpack_from(self.data, _BEGINNING.size + _NAME.size)

    def read(self) -> tuple[Any, Any]:
        """Return copies of the action and the extras of an answer, whose header has been checked."""
        action_codec, extras_codec = self._codecs
        return action_codec.read(self._action), extras_codec.read(self._extras)


def printable(text: bytes | str, most: int = SENTENCE) -> str:
    """Return a text of the other end without characters that control a terminal, cut to `most` characters."""
    if isinstance(text, bytes):
        text = text[:SENTENCE].decode(errors="replace")
    return "".join(each if each.isprintable() or each == "\n" else "?" for each in text)[:most]


def named(error: Exception) -> str:
    """Return the name and the beginning of the message of an exception over what the other end sent."""
    return printable(f"{type(error).__name__}: {error}", 200)


def _field(dtype: np.dtype[Any], data: bytearray, offset: int) -> npt.NDArray[Any]:
    """Return an array [1] over some bytes."""
    return np.ndarray((1,), dtype, data, offset)

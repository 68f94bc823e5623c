"""Where a policy server listens: ``tcp://host:port`` or ``unix://path``, and the sockets of such an address."""

from __future__ import annotations

import errno
import ipaddress
import os
import select
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

_WRITE = "an address such as 'tcp://192.168.1.7:5555', 'tcp://[fd00::7]:5555' or 'unix:///run/policy.sock'"
_SECRET = 16  # bytes that a token should have at least
_LOST_AFTER_MS = 5_000  # how long bytes may wait for the other machine's receipt
_KEEPALIVE = (("TCP_KEEPIDLE", 2), ("TCP_KEEPINTVL", 1), ("TCP_KEEPCNT", 3))  # seconds, seconds, times


@dataclass(frozen=True)
class Address:
    """A checked address.

    Attributes:
        text: As it was given.
        host: Of TCP; "" for a Unix socket.
        port: Of TCP.
        path: Of a Unix socket; "" for TCP.
        inode: Of the path, once it is bound.
    """

    text: str
    host: str = ""
    port: int = 0
    path: str = ""
    inode: int = field(default=0, compare=False, repr=False)

    @classmethod
    def of(cls, name: str, text: str) -> Address:
        """Return the address that a text is.

        Args:
            name: Of the argument, for the message.
            text: ``tcp://host:port``, where an IPv6 host is in brackets, or ``unix://path``.

        Raises:
            ValueError: It is none.
        """
        scheme, _, rest = text.partition("://") if isinstance(text, str) else ("", "", "")
        if scheme == "unix" and rest:
            rest = os.path.expanduser(rest)
            if len(os.fsencode(rest)) > 100:
                raise ValueError(f"{name} must have a path of at most 100 bytes, as a Unix socket has, got {text!r}")
            return cls(text, path=rest)
        if scheme == "tcp":
            with suppress(ValueError):
                parts = urlsplit(text)
                if parts.hostname and parts.port is not None and text.endswith(f":{parts.port}") and "@" not in rest:
                    return cls(text, parts.hostname, parts.port)
        raise ValueError(f"{name} must be {_WRITE}, got {text!r}")

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches it, as far as its name tells."""
        if self.path or self.host == "localhost":
            return True
        with suppress(ValueError):
            return ipaddress.ip_address(self.host).is_loopback
        return False

    def resolved(self) -> list[tuple[int, Any]]:
        """Return family and socket address of each end that the name stands for; this may ask the network.

        Raises:
            OSError: The name is unknown.
        """
        if self.path:
            return [(socket.AF_UNIX, self.path)]
        found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        return [(family, where) for family, _, _, _, where in found]

    def bound(self) -> tuple[socket.socket, Address]:
        """Return a socket that is bound and does not yet listen, and its address, with the port that it got.

        Raises:
            OSError: The address is taken, or is not this machine's; the message has the remedy.
        """
        try:
            family, where = self.resolved()[0]
            end = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            raise self._refused(error) from None
        try:
            if self.path:
                _remove_abandoned(self.path)
            else:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            _bind(end, where, bool(self.path))
        except OSError as error:
            end.close()
            raise self._refused(error) from None
        if self.path:
            return end, replace(self, inode=os.stat(self.path).st_ino)
        port = end.getsockname()[1]
        host = f"[{self.host}]" if ":" in self.host else self.host
        return end, Address(f"tcp://{host}:{port}", self.host, port)

    def listen(self, end: socket.socket, waiting: int) -> None:
        """Let a bound socket listen; `waiting` connections may wait until they are accepted.

        Raises:
            OSError: Another server listens there since it was bound, or the path is gone; the message has the remedy.
        """
        try:
            end.listen(waiting)
            # until now a socket looked abandoned, so that another server may have removed its path and taken it
            if self.path and os.stat(self.path).st_ino != self.inode:
                raise OSError(errno.EADDRINUSE, "the path is another server's")
        except OSError as error:
            raise self._refused(error) from None

    def leave(self) -> None:
        """Remove the path of a bound Unix socket, unless it is another server's by now."""
        if self.path:
            with suppress(OSError):
                if os.stat(self.path).st_ino == self.inode:
                    os.unlink(self.path)

    def _refused(self, error: OSError) -> OSError:
        """Return an error as a sentence with the remedy."""
        if error.errno == errno.EADDRINUSE:
            return OSError(f"{self.text} is in use: end the server that listens there, or bind another address")
        return OSError(f"cannot bind {self.text}: {error.strerror or error}")


def as_token(name: str, value: Any) -> bytes | None:
    """Return a token as bytes; None for None.

    Raises:
        ValueError: It is no text, or so short that it can be guessed. The message does not show it.
    """
    if value is None:
        return None
    token = value.encode() if isinstance(value, str) else value
    if not isinstance(token, bytes) or len(token) < _SECRET:
        what = f"{len(token)} bytes" if isinstance(token, bytes) else f"a {type(value).__name__}"
        raise ValueError(
            f"{name} must be text or bytes of at least {_SECRET} bytes, such as `openssl rand -hex 32` prints, "
            f"got {what}"
        )
    return token


def prepare(end: socket.socket) -> None:
    """Let a connection send at once, and notice within seconds that the other machine is gone."""
    if end.family == socket.AF_UNIX:
        return
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (*_KEEPALIVE, ("TCP_USER_TIMEOUT", _LOST_AFTER_MS)):
        if (option := getattr(socket, name, None)) is not None:
            end.setsockopt(socket.IPPROTO_TCP, option, value)


def set_patience(end: socket.socket, seconds: int) -> None:
    """Let blocking calls of a connection give up after some seconds, with BlockingIOError."""
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        end.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", seconds, 0))


def has_ended(end: socket.socket) -> bool:
    """Return whether the other end of a connection has ended, also where bytes of it are still unread."""
    poll = select.poll()
    poll.register(end, select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0))  # the last one is of Linux
    return bool(poll.poll(0))


def _bind(end: socket.socket, where: Any, is_path: bool) -> None:
    mask = os.umask(0o177) if is_path else None  # this user's alone
    try:
        end.bind(where)
    finally:
        if mask is not None:
            os.umask(mask)


def _remove_abandoned(path: str) -> None:
    """Remove the socket of a server that was killed; that of a living one stays, and so does any other file."""
    if not Path(path).is_socket():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            Path(path).unlink(missing_ok=True)

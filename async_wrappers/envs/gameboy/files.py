"""Files: read with errors that say what to do, written under a temporary name and renamed."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

__all__ = ["read_file", "write_file"]


def read_file(name: str, path: str | os.PathLike[str], remedy: str) -> bytes:
    """Return the bytes of a file.

    Args:
        name: The argument's name, for the message.
        path: The file.
        remedy: What to do if it cannot be read, for the message.

    Raises:
        ValueError: It cannot be read.
    """
    try:
        return Path(path).expanduser().read_bytes()
    except FileNotFoundError:
        raise ValueError(f"{name}: there is no file {os.fspath(path)!r}: {remedy}") from None
    except PermissionError:
        raise ValueError(
            f"{name}: {os.fspath(path)!r} may not be read: grant yourself the permission (chmod u+r), or {remedy}"
        ) from None
    except IsADirectoryError:
        raise ValueError(f"{name}: {os.fspath(path)!r} is a directory, not a file: {remedy}") from None
    except (OSError, ValueError) as error:
        raise ValueError(f"{name}: {os.fspath(path)!r} cannot be read ({error}): {remedy}") from None


def write_file(name: str, path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file that is never seen half written.

    Raises:
        ValueError: It cannot be written.
    """
    target = Path(path).expanduser()
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.replace(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise ValueError(
            f"{name}: {os.fspath(path)!r} cannot be written ({error.strerror}): give a path in a directory that exists "
            "and that you may write to"
        ) from None

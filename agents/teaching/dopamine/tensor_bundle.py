"""TensorFlow's checkpoints, read without TensorFlow: ``NAME.index`` and ``NAME.data-00000-of-00001``.

The index is a sorted table of LevelDB's kind, from a tensor's name to a protocol buffer with its place::

    index   block ... block  index of the blocks  footer (48 bytes: where that index lies, and a magic number)
    block   (shared bytes of the key, further bytes, bytes of the value, further key, value) ...  restarts
    entry   {1: type, 2: shape, 3: shard, 4: offset, 5: size, 6: CRC-32C}
    data    tensor tensor ...

Nothing in them is code. Every block and every tensor that is read is checked by its CRC-32C (Castagnoli).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

_FOOTER, _TRAILER, _MAGIC = 48, 5, 0xDB4775248B80FB57
_TYPES: Mapping[int, str] = {1: "<f4", 2: "<f8", 3: "<i4", 4: "u1", 6: "i1", 9: "<i8", 10: "?", 19: "<f2"}


def read_tensors(path: Path, prefix: str = "") -> dict[str, npt.NDArray[Any]]:
    """Return the tensors of a checkpoint whose names begin with `prefix`, by name.

    Args:
        path: The checkpoint without ``.index``, such as ``tf_ckpt-399``.
        prefix: Such as ``"Online/"``.

    Raises:
        ValueError: A file is missing, torn or damaged, or a tensor's type is not numeric.
    """
    try:
        index = Path(f"{path}.index").read_bytes()
        shards, entries = _read_index(index, prefix)
        tensors = {}
        for name, entry in entries.items():
            with open(f"{path}.data-{entry.get(3, 0):05d}-of-{shards:05d}", "rb") as file:
                file.seek(entry.get(4, 0))
                tensors[name] = _tensor(name, entry, file.read(entry.get(5, 0)))
        return tensors
    except OSError as error:
        raise ValueError(f"{error.filename} cannot be read ({error.strerror}): copy the whole checkpoint") from None
    except _Damaged as error:
        raise ValueError(f"{path} is no whole checkpoint of TensorFlow's ({error}): copy it again") from None


def _checksum(content: bytes) -> int:
    """Return the CRC-32C (Castagnoli) as LevelDB stores it."""
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c  # takes 0.2 s to import

    return int(masked_crc32c(content))


class _Damaged(Exception):
    """The file does not follow its format."""


def _tensor(name: str, entry: Mapping[int, Any], content: bytes) -> npt.NDArray[Any]:
    if entry.get(1) not in _TYPES or 7 in entry:
        raise _Damaged(f"{name} is of the type {entry.get(1)}, or in slices, and must be a tensor of numbers")
    kind = np.dtype(_TYPES[entry[1]])
    shape = [_fields(dimension).get(1, 0) for dimension in _fields(entry.get(2, b""), repeated=2).get(2, [])]
    if len(content) != entry.get(5, 0) or len(content) != kind.itemsize * math.prod(shape):
        raise _Damaged(
            f"{name} of shape {shape} must have {kind.itemsize * math.prod(shape)} bytes, got {len(content)}"
        )
    if _checksum(content) != entry.get(6):
        raise _Damaged(f"the checksum of {name} is wrong")
    return np.frombuffer(content, kind).reshape(shape)


# The index.


def _read_index(index: bytes, prefix: str) -> tuple[int, dict[str, dict[int, Any]]]:
    """Return the number of shards, and the entries of the tensors by name."""
    if len(index) < _FOOTER or int.from_bytes(index[-8:], "little") != _MAGIC:
        raise _Damaged("its index has no footer")
    footer = index[-_FOOTER:]
    _, at = _varint(footer, _varint(footer, 0)[1])
    offset, at = _varint(footer, at)
    size, _ = _varint(footer, at)
    shards, entries = 0, {}
    for _, handle in _block(index, offset, size):
        block_offset, at = _varint(handle, 0)
        for key, value in _block(index, block_offset, _varint(handle, at)[0]):
            if not key:
                header = _fields(value)
                shards = header.get(1, 0)
                if header.get(2, 0):
                    raise _Damaged("it is big-endian")
            elif (name := key.decode(errors="replace")).startswith(prefix):
                entries[name] = _fields(value)
    return shards, entries


def _block(index: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a block."""
    stored = index[offset : offset + size + _TRAILER]
    if len(stored) != size + _TRAILER or size < 4:
        raise _Damaged("its index is cut off")
    if _checksum(stored[: size + 1]) != int.from_bytes(stored[-4:], "little"):
        raise _Damaged("the checksum of its index is wrong")
    if stored[size]:
        raise _Damaged("its index is compressed, which TensorFlow's are not")
    end = size - 4 - 4 * int.from_bytes(stored[size - 4 : size], "little")
    at, key = 0, b""
    while at < end:
        shared, at = _varint(stored, at)
        further, at = _varint(stored, at)
        length, at = _varint(stored, at)
        key = key[:shared] + stored[at : at + further]
        at += further + length
        yield key, stored[at - length : at]


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """Return a number of 7 bits per byte, the least first, and where it ends."""
    value = 0
    for place, byte in enumerate(content[at : at + 10]):
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, at + place + 1
    raise _Damaged("a number has no end")


def _fields(message: bytes, repeated: int = 0) -> dict[int, Any]:
    """Return the fields of a protocol buffer by number: numbers, or bytes; those of `repeated` in a list."""
    fields: dict[int, Any] = {}
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        number, wire = tag >> 3, tag & 7
        value: Any
        if wire == 0:
            value, at = _varint(message, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
            value, at = int.from_bytes(message[at : at + size], "little"), at + size
        elif wire == 2:
            size, at = _varint(message, at)
            value, at = message[at : at + size], at + size
        else:
            raise _Damaged("its index holds no protocol buffers")
        if at > len(message):
            raise _Damaged("its index is cut off")
        if number == repeated:
            fields.setdefault(number, []).append(value)
        else:
            fields[number] = value
    return fields

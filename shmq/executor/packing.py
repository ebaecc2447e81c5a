"""Objects as bytes: a pickle, and the large buffers of what is in it behind it, which are copied once."""

from __future__ import annotations

import pickle
import struct
from typing import Any

PROTOCOL = 5
BESIDE_FROM = 16 << 10
"""Bytes from which on a buffer is kept beside the pickle, and not in it."""
_COUNT, _LENGTH = struct.Struct("<I"), struct.Struct("<Q")
ALONE = _COUNT.pack(0)
"""What a pickle has before it that nothing is kept beside."""
_WHOLE = frozenset({type(None), bool, int, float, complex, str, bytes})
"""What has no buffer in it that could be kept beside."""
NOTHING = ALONE + pickle.dumps(None, PROTOCOL)
NO_ARGUMENTS = ALONE + pickle.dumps(((), {}), PROTOCOL)
"""What most tasks of all have, and return."""


def pack(obj: Any) -> bytes:
    """
    *obj* as bytes: how many buffers, the length of each, that of the pickle; the buffers, the pickle.

    Raises:
        Whatever pickling raises.
    """
    if obj.__class__ in _WHOLE:
        return NOTHING if obj is None else ALONE + pickle.dumps(obj, PROTOCOL)
    beside: list[pickle.PickleBuffer] = []

    def keep(buffer: pickle.PickleBuffer) -> bool:
        with memoryview(buffer) as whole:
            if whole.nbytes < BESIDE_FROM:
                return True
        beside.append(buffer)
        return False

    data = pickle.dumps(obj, PROTOCOL, buffer_callback=keep)
    return joined(data, [each.raw() for each in beside])


def pack_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """As `pack((args, kwargs))`."""
    if not kwargs:
        if not args:
            return NO_ARGUMENTS
        if _WHOLE.issuperset(map(type, args)):
            return ALONE + pickle.dumps((args, kwargs), PROTOCOL)
    return pack((args, kwargs))


def joined(data: bytes, buffers: list[memoryview]) -> bytes:
    """A pickle with its buffers."""
    if not buffers:
        return ALONE + data
    lengths = [_LENGTH.pack(each.nbytes << 1 | (not each.readonly)) for each in buffers]
    return b"".join([_COUNT.pack(len(buffers)), *lengths, *buffers, data])


def unpack(data: bytes) -> Any:
    """
    The object in there. What was writable is so again.

    Raises:
        Whatever unpickling raises.
    """
    (count,) = _COUNT.unpack_from(data)
    at = _COUNT.size
    if not count:
        return pickle.loads(memoryview(data)[at:])  # noqa: S301  # in a directory that is the user's own
    lengths = [_LENGTH.unpack_from(data, at + _LENGTH.size * each)[0] for each in range(count)]
    at += _LENGTH.size * count
    buffers: list[bytes | bytearray] = []
    for length in lengths:
        part = memoryview(data)[at : at + (length >> 1)]
        buffers.append(bytearray(part) if length & 1 else bytes(part))
        at += length >> 1
    return pickle.loads(memoryview(data)[at:], buffers=buffers)  # noqa: S301  # likewise

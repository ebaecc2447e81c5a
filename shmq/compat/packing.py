"""
How an object becomes a payload, and comes back: a plain pickle, or one with its large buffers beside it.

    80 ...                                          a pickle, protocol 5
    B5 01 shift:u8 0 count:u32 pickle:u64           the pickle's length, and how many buffers there are
    {length << 1 | writable:1}:u64 [count]          of each buffer
    the pickle
    the buffers, at multiples of 64 behind *shift*

Little-endian. *shift* is what the payload's own place lacks to a multiple of 64, so that buffers are aligned in memory;
a payload that is copied elsewhere stays right, and loses only that. It knows nothing of queues.
"""

from __future__ import annotations

import io
import pickle
import struct
import sys
from multiprocessing import reduction
from typing import TYPE_CHECKING, Any, NamedTuple

from shmq.compat import blame
from shmq.errors import Corrupt

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PROTOCOL = 5
BESIDE_FROM = 4 << 10
"""Bytes from which on a buffer is kept beside the pickle, and not in it."""
ALIGNMENT = 64
_PICKLE, _FRAME = 0x80, 0xB5
PLAIN = b"\x80"
"""What a payload begins with that is a pickle and nothing else."""
_VERSION = 1
_HEADER = struct.Struct("<BBBBIQ")
_LENGTH = struct.Struct("<Q")
_SCALARS = frozenset({int, float, bool, str, bytes, bytearray, type(None)})
"""What has no part with a reducer or a buffer of its own."""
GLOBAL = 0x93
"""The opcode without which a pickle names no class."""
CONNECTION = b"multiprocessing.connection"
"""What pickles plainly, and comes back as the number of somebody else's descriptor: its reducer is needed."""


class Packed(NamedTuple):
    """
    A pickle and the buffers that are to lie beside it.

    Attributes:
        pickle: its bytes.
        buffers: the bytes of each buffer, and whether it may be written to.
    """

    pickle: bytes
    buffers: list[tuple[memoryview, bool]]

    def most(self) -> int:
        """How many bytes it takes at most, wherever it begins."""
        return self._head() + sum(view.nbytes + ALIGNMENT for view, _ in self.buffers)

    def pieces(self, shift: int = 0) -> list[bytes | memoryview]:
        """What lies one behind the other in the payload, where *shift* bytes lie between it and a multiple of 64."""
        lengths = [_LENGTH.pack(view.nbytes << 1 | writable) for view, writable in self.buffers]
        header = _HEADER.pack(_FRAME, _VERSION, shift, 0, len(lengths), len(self.pickle))
        found: list[bytes | memoryview] = [header, *lengths, self.pickle]
        at = self._head()
        for view, _ in self.buffers:
            begin = _aligned(at, shift)
            found += [bytes(begin - at), view]
            at = begin + view.nbytes
        return found

    def _head(self) -> int:
        return _HEADER.size + _LENGTH.size * len(self.buffers) + len(self.pickle)


def _aligned(at: int, shift: int) -> int:
    """The first place at or behind *at* that is *shift* behind a multiple of 64."""
    return at + (shift - at) % ALIGNMENT


# ---------------------------------------------------------------- packing
def pack(obj: Any) -> bytes | Packed:
    """
    Pickle *obj*; its large buffers are left where they are, to be written once.

    What `pickle` cannot do, multiprocessing's own pickler may; where anybody but the standard library has taught that
    one a type, it is asked first.

    Raises:
        Whatever pickling raises, with a note that names the part of *obj* which cannot be pickled.
    """
    if type(obj) in _SCALARS:
        return pickle.dumps(obj, PROTOCOL)
    if len(REDUCERS) == taught_at or not _taught():
        beside: list[Any] = []
        try:
            data = pickle.dumps(obj, PROTOCOL, buffer_callback=beside.append)  # which answers None: all of them
        except Exception:  # noqa: BLE001, S110  # the other pickler says it again, or can
            pass
        else:
            if GLOBAL not in data or CONNECTION not in data:
                if not beside:
                    return data
                large = [each for buffer in beside if (each := _large(buffer)) is not None]
                return Packed(data, large) if len(large) == len(beside) else _with_large(obj, pickle.dumps)
    try:
        return _with_large(obj, _dump_as_forking)
    except Exception as problem:
        blame.note(problem, obj, lambda part: _with_large(part, _dump_as_forking))
        raise


def _with_large(obj: Any, dump: Callable[..., bytes]) -> bytes | Packed:
    """Its pickle by *dump*, with what is large beside it."""
    beside: list[tuple[memoryview, bool]] = []
    data = dump(obj, PROTOCOL, buffer_callback=_keeper(beside))
    return Packed(data, beside) if beside else data


def _keeper(beside: list[tuple[memoryview, bool]]) -> Callable[[pickle.PickleBuffer], bool]:
    """What takes buffers out of a pickle; it answers whether one stays in."""

    def keep(buffer: pickle.PickleBuffer) -> bool:
        large = _large(buffer)
        if large is None:
            return True
        beside.append(large)
        return False

    return keep


def _large(buffer: pickle.PickleBuffer) -> tuple[memoryview, bool] | None:
    """Its bytes, and whether they may be written to; None where they are so few that they stay in the pickle."""
    with memoryview(buffer) as whole:
        return None if whole.nbytes < BESIDE_FROM else (buffer.raw(), not whole.readonly)


_FORKING = reduction.ForkingPickler
REDUCERS: dict[type, Any] = getattr(_FORKING, "_extra_reducers", {})
"""What multiprocessing's pickler was taught: one dictionary, to which `register` adds."""
taught_at = 0
"""How many there were when all of them were the standard library's."""


def _taught() -> bool:
    """Whether anybody else has registered a reducer with multiprocessing's pickler; torch does."""
    global taught_at  # noqa: PLW0603
    reducers = list(REDUCERS.values())
    if any(_module_of(reducer) not in sys.stdlib_module_names for reducer in reducers):
        return True
    taught_at = len(reducers)
    return False


def _module_of(reducer: Any) -> str:
    return str(getattr(reducer, "__module__", None)).partition(".")[0]


def _dump_as_forking(obj: Any, protocol: int, *, buffer_callback: Callable[[pickle.PickleBuffer], bool]) -> bytes:
    file = io.BytesIO()
    reduction.ForkingPickler(file, protocol, True, buffer_callback).dump(obj)  # by place: it takes no names
    return file.getvalue()


# ---------------------------------------------------------------- unpacking
def unpack(payload: memoryview, *, views: bool = False) -> Any:
    """
    The object in *payload*.

    Buffers that were writable are copied, and can be written to; those that were not become bytes. *views*: all of
    them are read-only views of *payload*, without a copy.

    Raises:
        Corrupt: it is no such payload.
        Whatever unpickling raises.
    """
    first = payload[0] if payload.nbytes else None
    if first == _PICKLE:
        return pickle.loads(payload)  # noqa: S301  # of whom may write here: ourselves
    if first != _FRAME:
        raise Corrupt(f"a payload of {payload.nbytes} bytes begins with {first!r}: neither a pickle nor a frame of one")
    data, buffers = _parts(payload)
    if views:
        return pickle.loads(data, buffers=[view.toreadonly() for view, _ in buffers])  # noqa: S301
    copies = [bytearray(view) if writable else bytes(view) for view, writable in buffers]
    return pickle.loads(data, buffers=copies)  # noqa: S301


def _parts(payload: memoryview) -> tuple[memoryview, Sequence[tuple[memoryview, bool]]]:
    if payload.nbytes < _HEADER.size:
        raise Corrupt(f"a payload ends after {payload.nbytes} bytes, within its header")
    _, version, shift, _, count, length = _HEADER.unpack_from(payload)
    at = _HEADER.size + _LENGTH.size * count
    if version != _VERSION or at + length > payload.nbytes:
        raise Corrupt(
            f"a payload of {payload.nbytes} bytes says version {version}, {count} buffers and a pickle of {length}"
        )
    lengths = [_LENGTH.unpack_from(payload, _HEADER.size + _LENGTH.size * each)[0] for each in range(count)]
    data, at = payload[at : at + length], at + length
    found = []
    for each in lengths:
        at = _aligned(at, shift)
        if at + (each >> 1) > payload.nbytes:
            raise Corrupt(f"a payload of {payload.nbytes} bytes ends within a buffer of {each >> 1} at {at}")
        found.append((payload[at : at + (each >> 1)], bool(each & 1)))
        at += each >> 1
    return data, found

"""
The door to the compiled core: its answers, what they mean as exceptions, and the built-ins beside it.

Only this package touches `ffi` and `lib`.
"""

from __future__ import annotations

import functools
import importlib.machinery
import os

from shmq import _core, errors
from shmq._core import ffi, lib
from shmq._native import layout
from shmq.hints import TYPE_CHECKING

EMPTY, ROLL, WAITING, FORKED = lib.SHMQ_EMPTY, lib.SHMQ_ROLL, lib.SHMQ_WAITING, lib.SHMQ_FORKED
SHUT_DOWN = lib.SHMQ_SHUT_DOWN
TIMEOUT, CONTENDED, FULL = lib.SHMQ_TIMEOUT, lib.SHMQ_CONTENDED, lib.SHMQ_FULL
RETIRED, PADDED, CORRUPT = lib.SHMQ_RETIRED, lib.SHMQ_PADDED, lib.SHMQ_CORRUPT
OK, SIGNAL, LEAD, SYNC_FAILED = lib.SHMQ_OK, lib.SHMQ_SIGNAL, lib.SHMQ_LEAD, lib.SHMQ_SYNC_FAILED
EDGE, GROW, LOST, PASSED = lib.SHMQ_EDGE, lib.SHMQ_GROW, lib.SHMQ_LOST, lib.SHMQ_PASSED
TO_BE_MOVED = 2
"""Of a glance: only what nobody is handed any more."""
LENGTH_BITS = 30
LENGTH_MASK = (1 << LENGTH_BITS) - 1
"""A place is a payload's position << LENGTH_BITS | its length."""
PAGE_BYTES, QUEUE_BYTES, CONTROL_BYTES = lib.SHMQ_PAGE_BYTES, lib.SHMQ_QUEUE_BYTES, lib.SHMQ_CONTROL_BYTES
CONTROL_BYTES_SMALL = lib.SHMQ_CONTROL_BYTES_SMALL
QUEUE_HEADER_BYTES, CHECKPOINT_BYTES, BATCH_MAX = (
    lib.SHMQ_QUEUE_HEADER_BYTES,
    lib.SHMQ_CHECKPOINT_BYTES,
    lib.SHMQ_BATCH_MAX,
)
CHUNK_BYTES_MAX = 1 << 31
STAGED = (1 << 64) - 1
RECORD_BYTES_MIN = layout.RECORD_HEADER_BYTES
NO_LIMIT = (1 << 64) - 1
TAIL_RESERVE = layout.TAIL_RESERVE
NOW = -(1 << 63)
FOREVER = -1
_EXCEPTIONS: dict[int, type[Exception]] = {
    lib.SHMQ_EMPTY: errors.Empty,
    lib.SHMQ_FENCED: errors.Fenced,
    lib.SHMQ_FORKED: errors.Forked,
    lib.SHMQ_CORRUPT: errors.Corrupt,
    lib.SHMQ_TOO_LARGE: errors.TooLarge,
    lib.SHMQ_TOO_MANY: errors.TooMany,
    lib.SHMQ_SHUT_DOWN: errors.ShutDown,
    lib.SHMQ_FORMAT: errors.BadFormat,
    lib.SHMQ_FOREIGN: errors.BadFormat,
    lib.SHMQ_LOST: errors.LeaseLost,
    lib.SHMQ_SYNC_FAILED: errors.SyncFailed,
    lib.SHMQ_FULL: errors.Full,
}


def story() -> str:
    """What the core has to say about this thread's last error."""
    return str(ffi.string(lib.shmq_error()), "utf-8", "replace")


def error(code: int, tried: str) -> Exception:
    """The exception for a negative answer of the core, with what was tried in front of its story."""
    if code == lib.SHMQ_SYSTEM:
        number = lib.shmq_errno()
        return OSError(number, f"{tried}: {story()}: {os.strerror(number)}")
    return _EXCEPTIONS.get(code, errors.ShmqError)(f"{tried}: {story()}")


def inside(code: int) -> int:
    """The answer about a file inside a queue: one that does not begin as its name says is damaged, not foreign."""
    return int(lib.SHMQ_CORRUPT if code == lib.SHMQ_FOREIGN else code)


def _load_hot() -> Any:
    loader = importlib.machinery.ExtensionFileLoader("shmq._hot", _core.__file__)
    module = loader.create_module(importlib.machinery.ModuleSpec("shmq._hot", loader, origin=_core.__file__))
    loader.exec_module(module)
    return module


if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Protocol

    from shmq._hot import Block as Block  # noqa: PLC0414  # exported, as the others
    from shmq._hot import Early as Early  # noqa: PLC0414
    from shmq._hot import End as End  # noqa: PLC0414
    from shmq._hot import Eye as Eye  # noqa: PLC0414
    from shmq._hot import Fd as Fd  # noqa: PLC0414
    from shmq._hot import FileMap as FileMap  # noqa: PLC0414
    from shmq._hot import Finder as Finder  # noqa: PLC0414
    from shmq._hot import Hand as Hand  # noqa: PLC0414
    from shmq._hot import Head as Head  # noqa: PLC0414
    from shmq._hot import Held as Held  # noqa: PLC0414
    from shmq._hot import Kept as Kept  # noqa: PLC0414
    from shmq._hot import Message as Message  # noqa: PLC0414
    from shmq._hot import Mutex as Mutex  # noqa: PLC0414
    from shmq._hot import Onward as Onward  # noqa: PLC0414
    from shmq._hot import Shelf as Shelf  # noqa: PLC0414
    from shmq._hot import Tail as Tail  # noqa: PLC0414
    from shmq._hot import chunks_in as chunks_in  # noqa: PLC0414
    from shmq._hot import ended_in as ended_in  # noqa: PLC0414
    from shmq._hot import handed as handed  # noqa: PLC0414
    from shmq._hot import is_over as is_over  # noqa: PLC0414
    from shmq._hot import leads as leads  # noqa: PLC0414
    from shmq._hot import makes as makes  # noqa: PLC0414
    from shmq._hot import message as message  # noqa: PLC0414
    from shmq._hot import over as over  # noqa: PLC0414
    from shmq._hot import parts as parts  # noqa: PLC0414
    from shmq._hot import stands as stands  # noqa: PLC0414
    from shmq._hot import strict as strict  # noqa: PLC0414
    from shmq._hot import taken as taken  # noqa: PLC0414
    from shmq._hot import tell as tell  # noqa: PLC0414
    from shmq._hot import tried as tried  # noqa: PLC0414

    class Handled(Protocol):
        """What has a handle of the core, as chunks do."""

        @property
        def handle(self) -> Any:
            """For calls of the core."""

    class Paged(Protocol):
        """What has a mapped page, as checkpoints do."""

        @property
        def page(self) -> Any:
            """For calls of the core."""

else:
    _hot = _load_hot()
    Block, Eye, Fd, FileMap, Finder, Hand, Head, Held = (
        _hot.Block,
        _hot.Eye,
        _hot.Fd,
        _hot.FileMap,
        _hot.Finder,
        _hot.Hand,
        _hot.Head,
        _hot.Held,
    )
    Kept, Message, Mutex, Shelf, Tail = _hot.Kept, _hot.Message, _hot.Mutex, _hot.Shelf, _hot.Tail
    Early, Onward, leads, makes = _hot.Early, _hot.Onward, _hot.leads, _hot.makes
    End = object  # what they have in common is in C
    handed, message, strict, tell = _hot.handed, _hot.message, _hot.strict, _hot.tell
    is_over, over, parts, stands, tried = _hot.is_over, _hot.over, _hot.parts, _hot.stands, _hot.tried
    taken, chunks_in, ended_in = _hot.taken, _hot.chunks_in, _hot.ended_in


new_leading = functools.partial(ffi.new, ffi.typeof("uint32_t *"))
"""What `sync_wait` sets to 1 while this thread leads."""
new_record = functools.partial(ffi.new, ffi.typeof("uint64_t *"))


def crc32c(data: bytes, crc: int = 0) -> int:
    """CRC-32C of *data*, continuing *crc*, as fast as the processor can."""
    return int(lib.shmq_crc32c(crc, data, len(data)))


def crc32c_four(heads: Sequence[bytes], data: bytes, apart: int, length: int, crc: int = 0) -> list[int]:
    """CRC-32C of four pieces of *data*, each behind a head of 16 bytes, side by side."""
    sums = ffi.new("uint32_t[4]")
    lib.shmq_crc32c_four(crc, b"".join(heads), data, apart, length, sums)
    return list(sums)


def crc32c_by_table(data: bytes, crc: int = 0) -> int:
    """The same by the portable table; both always agree."""
    return int(lib.shmq_crc32c_table(crc, data, len(data)))


def monotonic_ns() -> int:
    """The clock that deadlines are on."""
    return int(lib.shmq_clock_monotonic_ns())


def address(pointer: Any) -> int:
    """Where a structure is, for the calls that take it so; whoever uses it keeps the structure alive."""
    return int(ffi.cast("uintptr_t", pointer))


def unpack(array: Any, count: int) -> list[int]:
    """The first *count* numbers of such an array."""
    return ffi.unpack(array, count)  # type: ignore[no-any-return]


def boottime_ns() -> int:
    """The clock that leases and delays are on: since boot, going on while the machine sleeps."""
    return int(lib.shmq_clock_boottime_ns())

"""
shmq: a multiprocess shared-memory queue for Python on Linux. Durable, fast, no server.

    q = shmq.open("orders")             a directory; made if absent
    q = shmq.open("shm:orders")         in shared memory, gone with its last user; None for one without a name
    q.put(b"payload")                   committed when it returns
    c = q.consumer("billing")           every name sees every message, from where it stopped
    c.take()

A map of the package:
    queue, producer, staged, consumer, group, reader, message  the nouns that people import
    session, manage                                a queue that is open, which all handles hold; those that are not open
    once, adopting, handed                         puts that are made once; what is staged becomes part of the queue
    names, group_options, group_place              consumers' names, what a group is made with, where it stands
    group_walk, group_message, account, aside      a member's way, its messages, what it holds, what it gives away
    when, dead                                     moments that messages carry; moving them to other queues
    options, codec, errors                         what they are made with, what they carry, what can go wrong
    given, habits                                  what callers give is checked; what others call what is here
    walk, waiting, room, membership, seat          from message to message; this process's seat and its watcher
    loan, worker, later                            what a handle gives back; a thread beside the program's own; imports
    stats, backlog                                 what stats() and consumers() say; what is left to do
    storage/                                       directories, chunk files, the chain
    _native, _core                                 the one door to the C core in cffi_build/
    formats/, spark/, cli/                         surfaces: they use only what this file exports
"""

import importlib as _importlib
import sys as _sys
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

if not _sys.platform.startswith("linux"):
    raise ImportError("shmq is for Linux: it needs futexes, OFD locks and O_TMPFILE, which only Linux has")

from shmq import errors
from shmq import later as _later
from shmq.consumer import Consumer
from shmq.errors import (
    BadFormat,
    Busy,
    Closed,
    Corrupt,
    DiskFull,
    Empty,
    Fenced,
    Forked,
    Full,
    Gone,
    LeaseLost,
    Mismatch,
    NotFound,
    ShmqError,
    ShutDown,
    SyncFailed,
    SyncPending,
    TooLarge,
    TooMany,
    Unsafe,
    UnsafeFilesystem,
    Untrusted,
)
from shmq.manage import delete, gc, repair, verify, volatile_queues
from shmq.message import Message
from shmq.options import Durability, Options, Retention
from shmq.producer import Producer, Slot
from shmq.queue import Queue, open  # noqa: A004  # shmq.open, as gzip.open
from shmq.reader import Reader
from shmq.waiting import wait

if _TYPE_CHECKING:
    from shmq import formats, spark
    from shmq.group import GroupConsumer
    from shmq.group_message import GroupMessage
    from shmq.handed import HandedOver
    from shmq.staged import Staged
    from shmq.stats import ConsumerStats, GroupStats, Stats

_LATE = {
    **dict.fromkeys(("ConsumerStats", "GroupStats", "Stats"), "stats"),
    "GroupConsumer": "group",
    "GroupMessage": "group_message",
    "HandedOver": "handed",
    "Staged": "staged",
}

__version__ = "0.1.0"

__all__ = [
    "BadFormat",
    "Busy",
    "Closed",
    "Consumer",
    "ConsumerStats",
    "Corrupt",
    "DiskFull",
    "Durability",
    "Empty",
    "Fenced",
    "Forked",
    "Full",
    "Gone",
    "GroupConsumer",
    "GroupMessage",
    "GroupStats",
    "HandedOver",
    "LeaseLost",
    "Message",
    "Mismatch",
    "NotFound",
    "Options",
    "Producer",
    "Queue",
    "Reader",
    "Retention",
    "ShmqError",
    "ShutDown",
    "Slot",
    "Staged",
    "Stats",
    "SyncFailed",
    "SyncPending",
    "TooLarge",
    "TooMany",
    "Unsafe",
    "UnsafeFilesystem",
    "Untrusted",
    "delete",
    "errors",
    "formats",
    "gc",
    "open",
    "repair",
    "spark",
    "verify",
    "volatile_queues",
    "wait",
]


def __getattr__(name: str) -> _Any:
    """`shmq.formats`, `shmq.spark` and what few programs need, imported when they are first used."""
    if name in _LATE:
        _later.ready(f"shmq.{_LATE[name]}")
        return getattr(_importlib.import_module(f"shmq.{_LATE[name]}"), name)
    if name in {"formats", "spark"}:
        _later.ready(f"shmq.{name}")
        return _importlib.import_module(f"shmq.{name}")
    raise AttributeError(f"module 'shmq' has no attribute {name!r}")

"""
shmq: a multiprocess shared-memory queue for Python on Linux. Durable, fast, no server.

    q = shmq.open("orders")             a directory; made if absent
    q = shmq.open("shm:orders")         in shared memory, gone with its last user; None for one without a name
    q.put(b"payload")                   committed when it returns
    c = q.consumer("billing")           every name sees every message, from where it stopped
    c.take()

A map of the package:
    queue, session, manage, stats       what users call; an open queue; those that are not open; figures
    message, options, codec, errors     what is put and taken, what queues are made with, what can go wrong
    brought                             what a codec of the user's own is
    filter                              which messages a name or a reader wants
    putting/                            producers, bounds, batches that are built apart, what is put once
    taking/                             consumers, groups, waiting, dead letters
    reading/                            from message to message, by index, by time, as columns
    durability, ending                  the disk; the end of a stream
    alarm, watcher                      who tells those that cannot sleep; who tells sleepers of a death
    membership, seat, loan              this process's place at a queue; what each handle has of it
    given, habits, where, deadlines     checks of arguments; names of queue.Queue; the path in an OSError; timeouts
    user_group                          who shares a queue
    log                                 lines for whoever listens
    closable                            what a `with` block closes
    hints, tuples                       of typing, what the engine needs while it runs
    later, locks, worker                imports when they are needed; threads and forks
    storage/                            directories, chunk files, the chain
    foreign, carried, unseen            for formats: words of mapped files; for net: what few have, what goes back
    _native/, _core, _hot               the one door to the C core; put, take and q[i] as built-ins
    diagnosis/, whose                   why a queue is stuck or slow; which process an owner is
    workers/                            processes that are started, watched and replaced
    top/                                all queues below a directory, live
    aio/, compat/, executor/, flow/, rpc/,
    priorities/, shards/, net/, bridge/, flight/,
    metrics/, otel/, formats/, spark/,
    cli/                                surfaces: on what this file exports alone
"""

import importlib as _importlib
import sys as _sys

if not _sys.platform.startswith("linux"):
    raise ImportError("shmq is for Linux: it needs futexes, OFD locks and O_TMPFILE, which only Linux has")

from shmq import later as _later
from shmq.hints import TYPE_CHECKING as _TYPE_CHECKING
from shmq.hints import Any as _Any

_whole: bool = globals().get("_whole", not _later.is_command())
"""Whether the names below are here. The `shmq` command has them with its first use of one: `shmq --help` needs none."""

if _whole or _TYPE_CHECKING:
    with (
        _later.quiet_command(),
        _later.no_garbage_collected(),
    ):  # a tenth of the time that the import takes, and there is none yet
        from shmq import codec, errors
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
        from shmq.filter import Filter
        from shmq.manage import delete, gc, repair, verify, volatile_queues
        from shmq.message import Message
        from shmq.options import Durability, Options, Retention
        from shmq.putting.producer import Producer, Slot
        from shmq.queue import Queue, open  # noqa: A004  # shmq.open, as gzip.open
        from shmq.reading.reader import Reader
        from shmq.taking.consumer import Consumer
        from shmq.taking.waiting import wait

    GroupMessage = Message
    """What groups hand out: since all messages have all verbs, the same."""

if _TYPE_CHECKING:
    from shmq import (
        aio,
        bridge,
        compat,
        executor,
        flight,
        flow,
        formats,
        hub,
        metrics,
        net,
        otel,
        priorities,
        replica,
        rpc,
        shards,
        spark,
        top,
        workers,
    )
    from shmq.diagnosis import Finding, why
    from shmq.executor import Executor
    from shmq.flow import Flow
    from shmq.putting.handed import HandedOver
    from shmq.putting.staged import Staged
    from shmq.stats import ConsumerStats, Counts, GroupStats, Stats
    from shmq.taking.forward import Forward
    from shmq.taking.group import GroupConsumer, forward
    from shmq.taking.lone import LoneConsumer

_LATE = {
    **dict.fromkeys(("ConsumerStats", "Counts", "GroupStats", "Stats"), "stats"),
    "Forward": "taking.forward",
    "forward": "taking.group",
    "GroupConsumer": "taking.group",
    "LoneConsumer": "taking.lone",
    "Flow": "flow",
    "HandedOver": "putting.handed",
    "Staged": "putting.staged",
    "Executor": "executor",
    "Finding": "diagnosis",
    "why": "diagnosis",
}

__version__ = "0.1.0"

__all__ = [
    "BadFormat",
    "Busy",
    "Closed",
    "Consumer",
    "ConsumerStats",
    "Corrupt",
    "Counts",
    "DiskFull",
    "Durability",
    "Empty",
    "Executor",
    "Fenced",
    "Filter",
    "Finding",
    "Flow",
    "Forked",
    "Forward",
    "Full",
    "Gone",
    "GroupConsumer",
    "GroupMessage",
    "GroupStats",
    "HandedOver",
    "LeaseLost",
    "LoneConsumer",
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
    "aio",
    "bridge",
    "codec",
    "compat",
    "delete",
    "errors",
    "executor",
    "flight",
    "flow",
    "formats",
    "forward",
    "gc",
    "hub",
    "metrics",
    "net",
    "open",
    "otel",
    "priorities",
    "repair",
    "replica",
    "rpc",
    "shards",
    "spark",
    "top",
    "verify",
    "volatile_queues",
    "wait",
    "why",
    "workers",
]


def __getattr__(name: str) -> _Any:
    """`shmq.aio`, the other surfaces, and what few programs need: imported when they are first used."""
    if name in __all__ and not _whole:
        _fill()
        return globals()[name] if name in globals() else __getattr__(name)
    if name in _LATE:
        _later.ready(f"shmq.{_LATE[name]}")
        return getattr(_importlib.import_module(f"shmq.{_LATE[name]}"), name)
    if name in {
        "aio",
        "bridge",
        "compat",
        "executor",
        "flight",
        "flow",
        "formats",
        "hub",
        "metrics",
        "net",
        "otel",
        "priorities",
        "replica",
        "rpc",
        "shards",
        "spark",
        "top",
        "workers",
    }:
        _later.ready(f"shmq.{name}")
        return _importlib.import_module(f"shmq.{name}")
    raise AttributeError(f"module 'shmq' has no attribute {name!r}")


def _fill() -> None:
    """Run this file again, with everything that programs want of it at once."""
    global _whole  # noqa: PLW0603
    _whole = True
    _importlib.reload(_sys.modules[__name__])

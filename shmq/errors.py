"""
The exceptions of shmq, each named for what the caller should do.

Every message says what was tried, on what, what the world answered, and what is still true.
"""

from __future__ import annotations

import queue as _stdlib
import sys

if sys.version_info >= (3, 13):
    from queue import ShutDown as _ShutDown
else:

    class _ShutDown(Exception):  # the name of the one that the standard library has from 3.13 on
        """What `queue.ShutDown` is where the standard library has one."""


class ShmqError(Exception):
    """The base of all errors of shmq."""


class Empty(ShmqError, _stdlib.Empty):
    """Nothing to get before the timeout ended. Nothing was taken; ask again."""


class Full(ShmqError, _stdlib.Full):
    """A bound is reached. Nothing was put; the queue can still be read."""


class DiskFull(Full):
    """There is no room on the disk for what was to be made. It was not made; the queue is intact and can be read."""


class NotFound(ShmqError):
    """There is no such queue, consumer or file, and it was not to be created."""


class Mismatch(ShmqError):
    """The options given contradict those stored in the queue. Open it without them."""


class ShutDown(ShmqError, _ShutDown):
    """
    The queue was shut down or finished: puts are refused, and gets have drained what was left.

    From Python 3.13 on it is a `queue.ShutDown` too.
    """


class Closed(ShmqError):
    """This handle was closed. The queue lives on; open it again."""


class Busy(ShmqError):
    """Somebody else holds this exclusively."""


class Fenced(ShmqError):
    """
    This producer was judged dead and its claim padded. The message is not in the queue; put it again.

    Or the queue follows another one, or one that followed it was promoted: what was asked for is done there, not here.
    """


class Forked(ShmqError):
    """This belongs to the parent process alone. Open your own in the child."""


class Gone(ShmqError):
    """The messages from here on were retired. `first_index` is the first one still there."""

    def __init__(self, message: str, first_index: int | None = None) -> None:
        """Keep *first_index*, the first index still in the queue."""
        super().__init__(message)
        self.first_index = first_index


class TooLarge(ShmqError):
    """A message is larger than any chunk (or a foreign format's field) can hold. Nothing was put."""


class TooMany(ShmqError):
    """A batch has more messages than one claim can count, or a queue more participants than slots. Nothing was put."""


class Corrupt(ShmqError):
    """Bytes disagree with themselves. They were not delivered, and nothing was changed."""


class BadFormat(ShmqError):
    """This is not a shmq queue (or not of the format asked for), or one of a newer format. It was not touched."""


class Unsafe(ShmqError):
    """
    The path could be under somebody else's control (a link, a foreign owner, writable by others), or data lost.

    Nothing was changed.
    """


class UnsafeFilesystem(ShmqError):
    """The file system cannot keep the promises: processes on other machines do not share its memory."""


class SyncFailed(ShmqError):
    """
    The disk refused to sync. What was put is readable; how much of it is durable is unknown.

    `index` is where the message of this put is; None when nothing was put.
    """

    def __init__(self, message: str, index: int | None = None) -> None:
        """Keep *index*, where the message is."""
        super().__init__(message)
        self.index = index


class SyncPending(ShmqError):
    """The message is in the queue at `index` (a batch begins there); the disk has not agreed. Do not put it again."""

    def __init__(self, message: str, index: int | None = None) -> None:
        """Keep *index*, where the message is, or the first of several."""
        super().__init__(message)
        self.index = index


class LeaseLost(ShmqError):
    """The message was given to somebody else meanwhile. Nothing was changed."""


class Untrusted(ShmqError):
    """This queue holds pickles, which run code when read. Pass trusted=True if you trust whoever may write it."""

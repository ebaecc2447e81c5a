"""
What a peer is told when something cannot be done: one of a few names, and a text that has the queue's name as the peer
gave it and nothing of the server's disk. What was behind it is in the server's log.
"""

from __future__ import annotations

import logging
from typing import Any

import shmq
from shmq.formats import chronicle
from shmq.net.frames import BadFrame
from shmq.net.uri import BadUri

ILLEGAL, NOT_FOUND, OUT_OF_RANGE = "IllegalArgument", "NotFound", "IndexOutOfRange"
FULL, READ_ONLY, INTERNAL = "QueueFull", "ReadOnly", "Internal"
_log = logging.getLogger("shmq.net")


class Refused(Exception):
    """What a peer is told."""

    def __init__(self, name: str, message: str) -> None:
        """*name* is one of the six."""
        super().__init__(message)
        self.name = name
        self.message = message

    def document(self) -> dict[str, Any]:
        """Return the events that tell it."""
        return {"exception": chronicle.Typed(self.name, {"message": self.message, "stackTrace": []})}


def of(problem: Exception, queue: str) -> Refused:
    """Return what to tell of *problem*, which was met with the queue of that name."""
    if isinstance(problem, Refused):
        return problem
    if isinstance(problem, (chronicle.NotWire, BadUri, BadFrame)):  # they speak of what the peer has sent
        return Refused(ILLEGAL, str(problem))
    for kinds, name, text in _TOLD:
        if isinstance(problem, kinds):
            return Refused(name, text.format(f"queue {queue[:200]!r}", getattr(problem, "index", None)))
    _log.error("queue %r: %s: %s", queue, type(problem).__name__, problem)
    return Refused(INTERNAL, f"queue {queue[:200]!r}: it failed here; the server's log says why")


_TOLD: tuple[tuple[tuple[type[Exception], ...], str, str], ...] = (
    (
        (shmq.SyncPending, shmq.SyncFailed),
        INTERNAL,
        "{0}: the message is there, at index {1}, and perhaps not on the disk yet; do not submit it again",
    ),
    ((shmq.NotFound,), NOT_FOUND, "there is no {0}"),
    ((shmq.DiskFull,), FULL, "{0}: there is no room on the disk; nothing was appended"),
    ((shmq.Full,), FULL, "{0} is full; nothing was appended"),
    ((shmq.Busy,), INTERNAL, "{0} is held by another program; nothing was appended, try again"),
    ((shmq.ShutDown, shmq.Closed, shmq.Unsafe, PermissionError), READ_ONLY, "{0} takes no messages now"),
    ((shmq.BadFormat,), READ_ONLY, "{0} is of a format, or a version, that takes no messages here"),
    ((shmq.Gone,), OUT_OF_RANGE, "{0}: what was asked for was retired"),
    ((IndexError,), OUT_OF_RANGE, "{0}: the index is beyond the end"),
    ((shmq.TooLarge, shmq.TooMany), ILLEGAL, "{0}: it is too large, or nested too deep; nothing was appended"),
    ((TypeError, ValueError), ILLEGAL, "{0}: it takes no such value"),
)

"""
A server's way to its clients: the reply queue of each, opened at its first request, let go of when the client is gone.

What does not fit for now, since a client is stopped, say, is owed to it and tried again. A reply to a client that is
gone is dropped.
"""

from __future__ import annotations

import contextlib
import logging
import resource
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

import shmq
from shmq.rpc import places

if TYPE_CHECKING:
    from collections.abc import Callable

_DESCRIPTORS_EACH = 16
"""Of one open reply queue, at most."""
_LINES_MAX = 1000
_LOOKS = 16
"""So many clients a second are looked at, each of which takes a fifth of a millisecond."""
_OWED_MAX = 16 << 20
"""Bytes owed to one client at most."""


class Line:
    """The open reply queue of one client."""

    def __init__(self, client: bytes) -> None:
        """
        Open it.

        Raises:
            NotFound: the client is gone.
        """
        self.client = client
        self._queue = places.replies_of(client)
        try:
            self.put: Callable[[bytes], int] = self._queue.producer().put
        except BaseException:
            self._queue.close()
            raise
        self.owed: deque[bytes] = deque()
        self.owed_bytes = 0
        self.idle = 0
        """How many seconds ago its last reply was, about."""
        self.looked_at = 0.0

    def is_alive(self) -> bool:
        """Whether its client lives."""
        return places.is_owned(self._queue)

    def close(self) -> None:
        """Let go of it."""
        self._queue.close()


class Replies:
    """The lines to all clients of a server. Safe to share between its threads."""

    def __init__(self) -> None:
        """None yet."""
        self._lines: dict[bytes, Line] = {}
        self._lock = threading.Lock()
        self.owing = False
        """Whether something waits for room."""
        self.dropped = 0
        """Replies that nobody got: their clients were gone, or did not take what was owed to them."""

    def send(self, client: bytes, reply: bytes) -> None:
        """
        Send it, or owe it, or drop it where the client is gone.

        Raises:
            TooLarge: it fits no reply queue.
            Full: too much is owed to that client already.
        """
        line = self._lines.get(client) or self._open(client)
        if line is None:
            self.dropped += 1
            return
        line.idle = 0
        try:
            line.put(reply)
        except shmq.TooLarge:
            raise
        except shmq.Full as problem:
            if isinstance(problem, shmq.DiskFull):  # else the client does not take them, which is its own affair
                logging.getLogger("shmq").warning("a reply of %d bytes waits for room: %s", len(reply), problem)
            self._owe(line, reply)
        except shmq.Closed:  # another thread has let go of it just now
            self._again(client, reply)
        except (shmq.ShmqError, OSError):  # shut down by its client, or removed
            self.dropped += 1
            self._let_go(line)

    def _again(self, client: bytes, reply: bytes) -> None:
        line = self._open(client)
        try:
            if line is None:
                raise shmq.NotFound("the client is gone")
            line.put(reply)
        except (shmq.ShmqError, OSError):
            self.dropped += 1

    def _open(self, client: bytes) -> Line | None:
        with self._lock:
            line = self._lines.get(client)
            if line is not None:
                return line
            self._make_room()
            try:
                line = Line(client)
            except shmq.NotFound:
                return None
            except (shmq.ShmqError, OSError) as problem:
                logging.getLogger("shmq").warning("cannot reply to the client %s: %s", client.hex(), problem)
                return None
            self._lines[client] = line
            return line

    def _make_room(self) -> None:
        """Let go of the line that was used longest ago, where there are as many as may be."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if len(self._lines) >= max(min(_LINES_MAX, soft // 2 // _DESCRIPTORS_EACH), 1):
            oldest = max(self._lines.values(), key=lambda line: (not line.owed, line.idle))
            del self._lines[oldest.client]
            oldest.close()

    def _let_go(self, line: Line) -> None:
        with self._lock:
            if self._lines.get(line.client) is line:
                del self._lines[line.client]
        with contextlib.suppress(shmq.ShmqError, OSError):
            line.close()

    # ---- what did not fit
    def _owe(self, line: Line, reply: bytes) -> None:
        with self._lock:
            if line.owed_bytes + len(reply) > _OWED_MAX:
                raise shmq.Full(
                    f"{line.owed_bytes} bytes of replies wait for room in the reply queue of a client that does not "
                    f"take them; {len(reply)} more were not kept"
                )
            line.owed.append(reply)
            line.owed_bytes += len(reply)
            self.owing = True

    def pay(self) -> None:
        """Try again what is owed."""
        for line in list(self._lines.values()):
            with self._lock, contextlib.suppress(shmq.ShmqError, OSError):
                while line.owed:
                    line.put(line.owed[0])
                    line.owed_bytes -= len(line.owed.popleft())
        with self._lock:
            self.owing = any(line.owed for line in self._lines.values())

    def tidy(self) -> None:
        """Let go of clients that are gone. A few of those that have asked for nothing lately are looked at in turn."""
        lines = list(self._lines.values())
        for line in lines:
            line.idle += 1
        silent = sorted((line for line in lines if line.idle > 1), key=lambda line: line.looked_at)
        for line in silent[:_LOOKS]:
            line.looked_at = time.monotonic()
            try:
                alive = line.is_alive()
            except (shmq.ShmqError, OSError):
                alive = False
            if not alive:
                self._let_go(line)

    def clients(self) -> int:
        """How many are open."""
        return len(self._lines)

    def close(self) -> None:
        """Let go of all."""
        with self._lock:
            lines, self._lines = list(self._lines.values()), {}
        for line in lines:
            line.close()

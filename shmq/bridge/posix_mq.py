"""
A POSIX message queue of this machine: a door for programs in C, Go or a shell, which link nothing of ours.

It has payloads and priorities, which are types here, and nothing else: no keys, no headers, no numbers. So on the way
out the queue's own note says what was sent, and a kill at the seam sends one message twice; on the way in it loses one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import posix_ipc

from shmq.bridge import carried, ends, urls
from shmq.errors import NotFound, Unsafe

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence

    from shmq.bridge.urls import Url

_MODE = 0o600
_HIGHEST: int = posix_ipc.QUEUE_PRIORITY_MAX


def _refuse(url: Url, problem: Exception) -> NoReturn:
    if isinstance(problem, posix_ipc.ExistentialError):
        raise NotFound(
            f"there is no message queue {url.shown}; whoever sends makes it, by mq_open() with O_CREAT"
        ) from None
    if isinstance(problem, posix_ipc.PermissionsError):
        raise Unsafe(f"{url.shown} is somebody else's, who lets this user not in") from None
    raise ends.Refused(f"cannot open {url.shown}: {problem}") from None


class Target(ends.Target):
    """One that takes messages; made with the system's limits when there is none."""

    batch = 1

    def __init__(self, url: Url, queue_id: str, stop: threading.Event) -> None:  # noqa: ARG002  # it names nobody
        """See `urls.target`."""
        urls.only(url)
        self._url = url
        self._stop = stop
        self._mq: posix_ipc.MessageQueue | None = None

    def place(self) -> int | None:
        """See `ends.Target`."""
        try:
            self._mq = posix_ipc.MessageQueue(f"/{self._url.name}", posix_ipc.O_CREAT, mode=_MODE, read=False)
        except (posix_ipc.Error, OSError, ValueError) as problem:
            _refuse(self._url, problem)
        return ends.UNKNOWN

    def send(self, batch: Sequence[ends.Outgoing]) -> None:
        """See `ends.Target`."""
        assert self._mq is not None  # noqa: S101  # `place` comes first
        for each in batch:
            if len(each.message.payload) > self._mq.max_message_size:
                raise ends.too_large(each, self._url.shown, self._mq.max_message_size)
            self._send(each.message.payload, min(each.message.type, _HIGHEST))

    def _send(self, payload: bytes, priority: int) -> None:
        assert self._mq is not None  # noqa: S101
        while not self._stop.is_set():
            try:
                self._mq.send(payload, timeout=ends.LOOK, priority=priority)
            except (posix_ipc.BusyError, posix_ipc.SignalError):
                continue
            return
        raise ends.Stopped

    def close(self) -> None:
        """See `ends.Target`."""
        if self._mq is not None:
            self._mq.close()
            self._mq = None


class Source(ends.Source):
    """One that has messages, one at a time: what was received and not put is lost."""

    def __init__(self, url: Url, queue_id: str, stop: threading.Event) -> None:  # noqa: ARG002  # as above
        """See `urls.source`."""
        urls.only(url)
        self._url = url
        self._mq: posix_ipc.MessageQueue | None = None

    def begin(self, known: Callable[[str], int | None]) -> None:  # noqa: ARG002  # there are no numbers to know
        """See `ends.Source`."""
        try:
            self._mq = posix_ipc.MessageQueue(f"/{self._url.name}")
        except (posix_ipc.Error, OSError, ValueError) as problem:
            _refuse(self._url, problem)

    def read(self, timeout: float) -> ends.Batch | None:
        """See `ends.Source`."""
        assert self._mq is not None  # noqa: S101  # `begin` comes first
        try:
            payload, priority = self._mq.receive(timeout)
        except (posix_ipc.BusyError, posix_ipc.SignalError):
            return None
        return ends.Batch(self._url.shown, [ends.Numbered(None, carried.Carried(payload, type=priority))])

    def confirm(self, batch: ends.Batch) -> None:
        """See `ends.Source`. It was gone when it was received."""

    def give_back(self, batch: ends.Batch) -> None:
        """See `ends.Source`. It goes behind others of its priority."""
        assert self._mq is not None  # noqa: S101
        message = batch.messages[0].message
        try:
            self._mq.send(message.payload, timeout=0, priority=message.type)
        except posix_ipc.BusyError:
            raise ends.Refused(
                f"a message of {len(message.payload):,} bytes, priority {message.type}, was received from "
                f"{self._url.shown}, which is full again, and the queue had no room for it: it is lost"
            ) from None

    def close(self) -> None:
        """See `ends.Source`."""
        if self._mq is not None:
            self._mq.close()
            self._mq = None

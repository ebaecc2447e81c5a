"""A queue of ours as the services see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import shmq
from shmq.net import values

if TYPE_CHECKING:
    from collections.abc import Callable

_DISK = 30.0
"""Seconds that an append may wait for the disk, or for room."""


class Native:
    """See `log.Log`. What the queue's codec is not for, bytes, goes through the codec."""

    def __init__(self, queue: shmq.Queue[Any]) -> None:
        """With *queue*, which its owner closes."""
        self._queue = queue
        self._plain = queue.options.codec == "bytes"
        self.slow = queue.options.durability.kind != "process"
        self._timeout = _DISK if self.slow else 0.0

    def span(self) -> tuple[int, int]:
        """As there."""
        first = self._queue.first_index
        return first, max(first, self._queue.committed_index)

    def last(self) -> int:
        """As there."""
        with self._queue.reader(reverse=True) as reader:
            found = next(reader, None)
        return -1 if found is None else found.index

    def append(self, given: list[Any]) -> list[int | Exception]:
        """As there; as one batch, if all of them can be one."""
        ready: list[values.Stored | Exception] = [self._stored(value) for value in given]
        whole = [each for each in ready if not isinstance(each, Exception)]
        if len(whole) == len(given) > 1:
            try:
                headers = [each[1] for each in whole]
                return list(
                    self._queue.put_many(
                        [each[0] for each in whole],
                        headers=headers if any(headers) else None,
                        timeout=self._timeout,
                    )
                )
            except (shmq.SyncPending, shmq.SyncFailed) as problem:
                if problem.index is not None:
                    return [type(problem)(str(problem), problem.index + at) for at in range(len(given))]
            except (shmq.ShmqError, OSError):  # nothing was put: perhaps each alone can be
                pass
        return [self._one(each) for each in ready]

    def _stored(self, value: Any) -> values.Stored | Exception:
        try:
            return values.stored(value) if self._plain else (value, None)
        except (shmq.ShmqError, TypeError, ValueError) as problem:
            return problem

    def _one(self, ready: values.Stored | Exception) -> int | Exception:
        if isinstance(ready, Exception):
            return ready
        try:
            return self._queue.put(ready[0], headers=ready[1], timeout=self._timeout)
        except (shmq.ShmqError, TypeError, ValueError, OSError) as problem:
            return problem

    def sync(self) -> None:
        """As there."""
        self._queue.sync()

    def tail(self) -> Tail:
        """As there."""
        return Tail(self._queue, self, plain=self._plain)

    def close(self) -> None:
        """As there; the queue is its owner's."""


class Tail:
    """See `log.Tail`."""

    def __init__(self, queue: shmq.Queue[Any], log: Native, *, plain: bool) -> None:
        """At the beginning."""
        self._queue = queue
        self._log = log
        self._plain = plain
        self._at = 0
        """Where the reader stands, and a request without an index goes on."""
        self._reader: shmq.Reader[Any] | None = None
        self._alarm: Any = None
        self._closed = False

    def read(self, index: int | None, count: int, nbytes: int, *, raw: bool) -> tuple[int, list[Any]]:
        """As there."""
        asked = self._at if index is None else index
        first, end = self._log.span()
        if asked > end:
            raise IndexError(asked)
        asked = max(asked, first)
        for again in (True, False):
            try:
                return self._read(asked, count, nbytes, raw=raw)
            except shmq.Gone as gone:  # retired since we looked
                self._let_go()
                if not again or gone.first_index is None:
                    raise
                asked = max(asked, gone.first_index)
        raise AssertionError  # the second time returns or raises

    def _read(self, asked: int, count: int, nbytes: int, *, raw: bool) -> tuple[int, list[Any]]:
        reader = self._stand_at(asked)
        found: list[Any] = []
        begin = asked
        while len(found) < count:
            message = next(reader, None)
            if message is None:
                break
            if not found:
                begin = message.index
            payload = message.payload
            size = len(message.view)
            if found and (message.index != begin + len(found) or size > nbytes):
                self._let_go()  # it stands behind what the next request begins with
                break
            nbytes -= size
            found.append(self._value(message, payload, raw=raw))
        self._at = begin + len(found)
        return begin, found

    def _value(self, message: shmq.Message[Any], payload: Any, *, raw: bool) -> Any:
        if raw:
            return bytes(message.view)
        return values.value_of(payload, message.headers.get(values.HEADER)) if self._plain else payload

    def _stand_at(self, index: int) -> shmq.Reader[Any]:
        if self._reader is None or index != self._at:
            self._let_go()
            if self._closed:
                raise shmq.Closed("this tailer was closed")
            self._reader = self._queue.reader(index)
            self._at = index
        return self._reader

    def watch(self, call: Callable[[], object]) -> None:
        """As there."""
        self.disarm()
        self._alarm = self._stand_at(self._at).alarm(call)
        self._alarm.begin()

    def arm(self, call: Callable[[], object]) -> bool:  # noqa: ARG002  # `watch` was given it
        """As there."""
        return self._alarm is not None and bool(self._alarm.arm())

    def disarm(self) -> None:
        """As there."""
        alarm, self._alarm = self._alarm, None
        if alarm is not None:
            alarm.disarm()

    def _let_go(self) -> None:
        self.disarm()
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def close(self) -> None:
        """As there."""
        self._closed = True
        self._let_go()

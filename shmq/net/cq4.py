"""A Chronicle queue as the services see it: read beside Java; appended to under Java's lock, if it is of version 5."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from shmq import errors
from shmq.formats import chronicle

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmq.formats import Entry

_LOCK = 10.0
"""Seconds that Java's write lock is waited for."""


class Cq4:
    """See `log.Log`."""

    slow = True

    def __init__(self, path: str) -> None:
        """The queue in the directory *path*, which is opened for appending by the first append."""
        self._path = path
        self._appender: chronicle.Appender | None = None
        self._lock = threading.Lock()
        self.shift = chronicle.settings(path).roll_cycle.shift

    def span(self) -> tuple[int, int]:
        """As there. An empty one begins and ends at 0."""
        first = _first(chronicle.read(self._path))
        return (0, 0) if first is None else (_index(first), self.last() + 1)

    def last(self) -> int:
        """As there."""
        found = _first(chronicle.read(self._path, backward=True))
        return -1 if found is None else _index(found)

    def append(self, values: list[Any]) -> list[int | Exception]:
        """As there."""
        return [self._one(value) for value in values] if len(values) == 1 else self._many(values)

    def _many(self, values: list[Any]) -> list[int | Exception]:
        """Append under one lock, if all can be; else one after another."""
        try:
            payloads = [_payload(value) for value in values]
            largest = max(map(len, payloads))
        except (errors.ShmqError, TypeError, ValueError):
            return [self._one(value) for value in values]
        if largest > 1 << 16 or sum(map(len, payloads)) > 1 << 17:  # more than one batch, which is not all or nothing
            return [self._one(value) for value in values]
        try:
            return list(self._opened().append_many(payloads))
        except (errors.ShmqError, OSError):  # nothing was appended
            return [self._one(value) for value in values]

    def _one(self, value: Any) -> int | Exception:
        try:
            return self._opened().append(_payload(value))
        except (errors.ShmqError, TypeError, ValueError, OSError) as problem:
            return problem

    def _opened(self) -> chronicle.Appender:
        with self._lock:
            if self._appender is None:
                try:
                    self._appender = chronicle.Appender(self._path, create=False, timeout=_LOCK)
                except errors.NotFound as problem:  # it is there, and of version 4
                    raise errors.BadFormat(str(problem)) from problem
            return self._appender

    def sync(self) -> None:
        """As there."""
        self._opened().sync()

    def tail(self) -> Tail:
        """As there."""
        return Tail(self._path, self)

    def close(self) -> None:
        """As there."""
        with self._lock:
            if self._appender is not None:
                self._appender.close()


def _payload(value: Any) -> bytes:
    return value if isinstance(value, bytes) else chronicle.encode(value)


def _index(entry: Entry) -> int:
    assert entry.index is not None  # noqa: S101  # only meta-data has none, which nobody asked for
    return entry.index


def _first(entries: Any) -> Entry | None:
    try:
        found: Entry | None = next(entries, None)
        return found
    finally:
        entries.close()


class Tail:
    """See `log.Tail`. Each `read` finds its place through the files' own index."""

    def __init__(self, path: str, log: Cq4) -> None:
        """At the beginning."""
        self._path = path
        self._log = log
        self._at = 0

    def read(self, index: int | None, count: int, nbytes: int, *, raw: bool) -> tuple[int, list[Any]]:
        """As there. A message that decodes as BinaryWire is its value, another one its bytes."""
        asked = max(0, self._at if index is None else index)
        begin = asked
        found: list[Any] = []
        entries = chronicle.read(self._path, index=asked)
        try:
            for entry in entries:
                at, payload = _index(entry), bytes(entry.payload)
                if not found:
                    begin = at
                elif not self._follows(begin, len(found), at) or len(payload) > nbytes:
                    break
                nbytes -= len(payload)
                found.append(payload if raw else _value(payload))
                if len(found) >= count:
                    break
        finally:
            entries.close()  # type: ignore[attr-defined]  # it is a generator
        if not found and asked > self._log.last() + 1:
            raise IndexError(asked)
        self._at = begin + len(found)
        return begin, found

    def _follows(self, begin: int, count: int, at: int) -> bool:
        """Say whether the message *at* belongs to a batch of *count* from *begin* on: none crosses a cycle."""
        return at == begin + count and at >> self._log.shift == begin >> self._log.shift

    def watch(self, call: Callable[[], object]) -> None:
        """As there: nobody can be told by Java."""

    def arm(self, call: Callable[[], object]) -> bool:  # noqa: ARG002
        """As there: look again soon."""
        return False

    def disarm(self) -> None:
        """As there."""

    def close(self) -> None:
        """As there: nothing stays open."""


def _value(payload: bytes) -> Any:
    try:
        return chronicle.decode(payload)
    except chronicle.NotWire:
        return payload

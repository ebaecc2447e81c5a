"""
One journal file: its records from a position on, with care for whatever may stand there.

The real program cuts the *current* file where a rotated one is broken; here a broken file costs only its own rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shmq.errors import Corrupt, TooLarge
from shmq.formats import _files
from shmq.formats.kestrel.records import (
    ADD,
    ADD_XID,
    ADDS,
    ADDX,
    ADDX_FIXED,
    ADDX_HEAD,
    CONTINUE,
    I32,
    LENGTHS,
    OP_AND_SIZE,
    REMOVE_TENTATIVE,
    REMOVE_TENTATIVE_XID,
    RUN,
    TIMES,
    Op,
)
from shmq.formats.model import MS, SECOND, Entry, Problem, make_entry

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Rules:
    """How to read: what the caller asked for."""

    as_program: bool = False
    state_dump: bool | None = None
    strict: bool = False
    max_payload: int = _files.MAX_PAYLOAD


class Journal:
    """One journal file, read record by record from a position that it remembers."""

    def __init__(
        self,
        path: Path,
        rules: Rules,
        *,
        growing: bool = False,
        limit: int | None = None,
        source: _files.Source | None = None,
    ) -> None:
        """Read *path*, or what is open as *source*, which stays the caller's."""
        self._lent = source is not None
        self.source = source or _files.Source(path)
        self.name = path.name
        self.position = 0
        self.problem: Problem | None = None
        self.ended = False
        self._rules = rules
        self._growing = growing
        self._limit = limit
        """Where the real program would have cut this file because of another one."""

    def close(self) -> None:
        """Close it, if it was opened here."""
        if not self._lent:
            self.source.close()

    def size(self) -> int:
        """Return how many bytes count."""
        size = self.source.size()
        return size if self._limit is None else min(size, self._limit)

    def _window(self, wanted: int) -> bytes:
        if self._limit is not None:
            wanted = max(0, min(wanted, self._limit - self.position))
        return self.source.read(self.position, wanted)

    def operations(self) -> Iterator[Op]:
        """Deliver every operation from the position on; neighbouring ADDX as one run."""
        window = _files.WINDOW
        head = OP_AND_SIZE.unpack_from
        while not self.ended:
            data = self._window(window)
            end = len(data)
            last = end - ADDX_FIXED
            at = run = 0
            while at <= last:
                op, size = head(data, at)
                if op == ADDX:
                    stop = at + 5 + size
                    if size < 16 or stop > end:
                        break
                    run += 1
                    at = stop
                    continue
                length = LENGTHS.get(op)
                if length is None:
                    break
                if run:
                    yield Op(RUN, 0, run, 0, 0, None, None)
                    run = 0
                yield Op(op, self.position + at, size if length == 5 else 0, 0, 0, None, None)
                at += length
            if run:
                yield Op(RUN, 0, run, 0, 0, None, None)
            self.position += at
            window = _files.WINDOW if at else _files.SMALL_WINDOW
            one = self.one()
            if one is None:
                return
            yield one

    def positions(self, ordinal: int, wanted: set[int], stop_at: int) -> Iterator[tuple[int, int]]:
        """Deliver (ordinal, position) of the *wanted* items added up to *stop_at*, numbered from *ordinal*."""
        window = _files.WINDOW
        head, lengths = OP_AND_SIZE.unpack_from, LENGTHS.get
        while not self.ended and self.position < stop_at:
            data = self._window(min(window, stop_at - self.position))
            end = len(data)
            at = 0
            while at + ADDX_FIXED <= end:
                op, size = head(data, at)
                if op != ADDX:
                    length = lengths(op)
                    if length is None:
                        break
                    at += length
                    continue
                stop = at + 5 + size
                if size < 16 or stop > end:
                    break
                if ordinal in wanted:
                    yield ordinal, self.position + at
                ordinal += 1
                at = stop
            self.position += at
            window = _files.WINDOW if at else _files.SMALL_WINDOW
            one = self.one() if self.position < stop_at else None
            if one is None:
                return
            if one.op in ADDS:
                if ordinal in wanted:
                    yield ordinal, one.begin
                ordinal += 1

    def added(self, skip: int, stop_at: int) -> Iterator[list[Entry]]:  # noqa: C901  one loop on purpose: a call per record would cost more than the work
        """Deliver the items that were added up to *stop_at*, but the first *skip*: a list for each window."""
        window = _files.WINDOW
        fixed, make = ADDX_HEAD.unpack_from, make_entry
        extra = {"segment": self.name}
        lengths = LENGTHS.get
        while not self.ended and self.position < stop_at:
            data = self._window(min(window, stop_at - self.position))
            last = len(data) - ADDX_FIXED
            at = 0
            found: list[Entry] = []
            add = found.append
            while at <= last:
                op, size, added, expires = fixed(data, at)
                if op != ADDX:
                    length = lengths(op)
                    if length is None:
                        break
                    at += length
                    continue
                stop = at + 5 + size
                if size < 16 or stop > last + ADDX_FIXED:
                    break
                if skip:
                    skip -= 1
                else:
                    payload = data[at + ADDX_FIXED : stop]
                    expires_ns = expires * MS if expires else None
                    add(make((payload, None, added * MS, expires_ns, None, None, None, extra)))
                at = stop
            self.position += at
            if found:
                yield found
            window = _files.WINDOW if at else _files.SMALL_WINDOW
            one = self.one() if self.position < stop_at else None
            if one is None:
                return
            if one.op in ADDS:
                if skip:
                    skip -= 1
                else:
                    yield [self.entry(one, extra)]

    def payloads(self, skip: int, stop_at: int) -> Iterator[list[bytes]]:
        """As `added`, but only the payloads."""
        window = _files.WINDOW
        head, lengths = OP_AND_SIZE.unpack_from, LENGTHS.get
        while not self.ended and self.position < stop_at:
            data = self._window(min(window, stop_at - self.position))
            end = len(data)
            last = end - ADDX_FIXED
            at = 0
            found: list[bytes] = []
            add = found.append
            while at <= last:
                op, size = head(data, at)
                if op != ADDX:
                    length = lengths(op)
                    if length is None:
                        break
                    at += length
                    continue
                stop = at + 5 + size
                if size < 16 or stop > end:
                    break
                if skip:
                    skip -= 1
                else:
                    add(data[at + ADDX_FIXED : stop])
                at = stop
            self.position += at
            yield found
            window = _files.WINDOW if at else _files.SMALL_WINDOW
            one = self.one() if self.position < stop_at else None
            if one is None:
                return
            if one.op in ADDS:
                if skip:
                    skip -= 1
                else:
                    yield [self.entry(one).payload]

    def entry(self, one: Op, extra: Mapping[str, object] | None = None) -> Entry:
        """Return the item that *one* adds."""
        if one.size > self._rules.max_payload:
            msg = (
                f"{self.name} at {one.begin}: an item of {one.size} bytes, and max_payload is {self._rules.max_payload}"
            )
            raise TooLarge(msg)
        payload = self.source.read(one.start, one.size)
        added = None if one.added_ms is None else one.added_ms * MS
        return Entry(payload, None, added, one.expires_ns, None, None, None, extra or {"segment": self.name})

    def one(self) -> Op | None:
        """Take one record with care: rare ones, large ones, broken ones, those on a window's edge. None at the end."""
        begin = self.position
        data = self._window(9 + 16)
        if not data:
            return None
        op = data[0]
        length = LENGTHS.get(op)
        if length is not None:
            if len(data) < length:
                self._torn()
                return None
            self.position += length
            return Op(op, begin, I32.unpack_from(data, 1)[0] if length == 5 else 0, 0, 0, None, None)
        if op > REMOVE_TENTATIVE_XID:
            self._stop(f"the opcode {op}")
            return None
        if op == CONTINUE and self._is_state_dump(data):
            self.ended = True  # By its document it ends this file; what follows was for a reader that lags behind.
            return None
        return self._add(op, begin, data)

    def _add(self, op: int, begin: int, data: bytes) -> Op | None:
        at, least = (5, 16) if op in (ADD_XID, CONTINUE) else (1, 4 if op == ADD else 16)
        if len(data) < at + 4:
            self._torn()
            return None
        size = I32.unpack_from(data, at)[0]
        if size < 0 and self._rules.as_program:
            msg = f"{self.name} at {begin}: a size of {size} bytes; the real program fails to start with this journal"
            raise Corrupt(msg)
        if size < least:
            self._stop(f"a size of {size} bytes, and opcode {op} has at least {least}")
            return None
        start = begin + at + 4
        if start + size > self.size():
            self._torn()
            return None
        fields = self.source.read(start, least)
        if len(fields) < least:
            self._torn()
            return None
        self.position = start + size
        xid = I32.unpack_from(data, 1)[0] if at == 5 else 0
        if op == ADD:
            seconds = I32.unpack(fields)[0]
            return Op(op, begin, xid, start + 4, size - 4, None, seconds * SECOND if seconds else None)
        added, expires = TIMES.unpack(fields)
        return Op(op, begin, xid, start + 16, size - 16, added, expires * MS if expires else None)

    def _is_state_dump(self, data: bytes) -> bool:
        """
        Tell the two meanings of opcode 8 apart by what they need: `xid, size >= 16, times, data`, or `xid, count`.

        A dump announces *count* transactions, each an ADD_XID and a REMOVE_TENTATIVE; so the first of them, or for
        a count below 16 the impossible size, gives it away. The low bytes of that ADD_XID's size stand where the high
        bytes of a CONTINUE's add time do, which are below 16 until the year 2527: so no CONTINUE looks like that.
        """
        if self._rules.state_dump is not None:
            return self._rules.state_dump
        if len(data) < 9:
            return False
        count = I32.unpack_from(data, 5)[0]
        if count == 0:
            return True
        if count < 0:
            return False
        following = self.source.read(self.position + 9, 9)
        if len(following) < 9 or following[0] != ADD_XID:
            return count < 16 and self.position + 9 == self.size()
        size = I32.unpack_from(following, 5)[0]
        after = self.position + 18 + size
        return (
            size >= 16
            and size & 0xFFFFFF >= 16
            and after < self.size()
            and self.source.read(after, 1) == bytes((REMOVE_TENTATIVE,))
        )

    def _torn(self) -> None:
        # While its program writes, a file may end inside a record: the rest is to come.
        if not self._growing:
            self._stop("ends inside a record")

    def _stop(self, reason: str) -> None:
        self.ended = True
        self.problem = Problem(self.name, self.position, f"{reason}; the rest of this file cannot be read")

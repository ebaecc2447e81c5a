"""
Kestrel: a journal of operations; replaying all of them gives the queue.

A queue `Q` in a folder is `Q` (the current journal), `Q.<ms>` (rotated ones, older) and perhaps `Q.<ms>.pack` (which
stands for every file up to that number). There is no magic: each record is an opcode byte and little-endian fields.
A fan-out child C of Q is a queue of its own, named `Q+C`. The format's page is docs/formats/kestrel.md.

The reader is not the real program: it honours the transaction ids of 1.x journals (the program gives all of them the
id 0 and loses items), it tells both meanings of opcode 8 apart, a broken rotated file costs only its own rest (the
program cuts the *current* file), and a negative size is damage (the program dies). `as_program=True` does as the
program does.
"""

from __future__ import annotations

import os
import re
import struct
import time
from bisect import bisect_right
from collections import deque
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from shmq.errors import BadFormat, Corrupt, NotFound, TooLarge, Unsafe
from shmq.formats import _files, _follow
from shmq.formats.model import MS, SECOND, Entry, Place, Problem, Repair, State, make_entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

NAME = "kestrel"
KEEPS = frozenset({"payload", "time_ns", "expires_ns"})
"""What an item can hold. Times are kept to the millisecond."""

ADD, REMOVE, ADDX, REMOVE_TENTATIVE, SAVE_XID, UNREMOVE, CONFIRM_REMOVE, ADD_XID, CONTINUE, REMOVE_TENTATIVE_XID = (
    range(10)
)
STATE_DUMP = 8
"""The other meaning of opcode 8: one week of the main branch in 2011, in no release."""

MAX_ITEM = (1 << 31) - 1 - 16

_ADDX = struct.Struct("<Biqq")
_I32 = struct.Struct("<i")
_I32_PAIR = struct.Struct("<ii")
_TIMES = struct.Struct("<qq")
_ADDX_FIXED = _ADDX.size
_LENGTHS = {REMOVE: 1, REMOVE_TENTATIVE: 1, SAVE_XID: 5, UNREMOVE: 5, CONFIRM_REMOVE: 5, REMOVE_TENTATIVE_XID: 5}
_ADDS = frozenset({ADD, ADDX, ADD_XID, CONTINUE})
_QUEUE = re.compile(r"[^./~\0]+\Z")
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}\Z")
_I64_MAX = (1 << 63) - 1
_MOST_PROBLEMS = 1000
_ATTEMPTS = 10
"""How often a journal that changes under the reader is begun again."""


# ---------------------------------------------------------------------------------------------- verbs


def queues(path: str | os.PathLike[str]) -> list[str]:
    """Return the names of the Kestrel queues in the folder *path*: those with a file that begins as a journal does."""
    folder = _files.directory(path)
    found = set()
    for name in _files.regular_files(folder):
        queue = _queue_of(name)
        if queue is not None and queue not in found and _plausible(folder / name) is not None:
            found.add(queue)
    return sorted(found)


def read(
    path: str | os.PathLike[str],
    queue: str | None = None,
    *,
    consumer: str | None = None,
    follow: bool = False,
    as_program: bool = False,
    timeout: float | None = None,
    strict: bool = False,
    state_dump: bool | None = None,
    now_ns: int | None = None,
    max_payload: int = _files.MAX_PAYLOAD,
) -> Iterator[Entry]:
    """
    Replay the journal of *queue* in the folder *path* and deliver what is in it, oldest first.

    *consumer* is a fan-out child, which is the queue `<queue>+<consumer>`.

    Open transactions come first, lowest id first (extra["xid"]), as recovery puts them back. Expired items are
    delivered like any other, with their `expires_ns`; given *now_ns*, those that expired before it are dropped, as
    the program drops them when they reach the head. The journal is walked twice, so that memory does not grow with
    the queue: once to know what is left, once to deliver it.

    A file with damage is replayed up to the damage, then the next file; *strict* raises Corrupt instead, before the
    first item. *state_dump* says what opcode 8 means: True the old STATE_DUMP, False CONTINUE, None (default) what
    the bytes behind it fit. *follow* goes on with every item that is added, also when it is taken again at once, at
    most *timeout* seconds for each; it goes through rotations and rewrites. A payload above *max_payload* bytes
    raises TooLarge.

    Raises:
        NotFound: no such folder or queue.
        BadFormat: *path* is no directory, or holds several queues and none was named.
    """
    folder, queue = _at(path, queue)
    if consumer is not None:
        queue = _queue(folder, f"{queue}+{consumer}")
    rules = _Rules(as_program, False if as_program else state_dump, strict, max_payload)
    tail = _Tail(folder, queue, rules, growing=follow)
    entries = _follow.follow(tail, timeout) if follow else _follow.once(tail)
    if now_ns is None:
        return entries
    return (entry for entry in entries if entry.expires_ns is None or entry.expires_ns >= now_ns)


def state(
    path: str | os.PathLike[str],
    queue: str | None = None,
    *,
    as_program: bool = False,
    state_dump: bool | None = None,
) -> State:
    """
    Replay *queue* and return what its files say.

    `open` has the transactions that were open at the end. A queue has one nameless set of readers; its fan-out
    children are its consumers: {child: (n, ())} says that the child has seen the first n of the entries that `read`
    delivers, and n is None if the child holds items that its parent no longer has (read it as a queue of its own).
    """
    folder, queue = _at(path, queue)
    rules = _Rules(as_program, False if as_program else state_dump)
    with closing(_Tail(folder, queue, rules, growing=False)) as tail:
        tail.replay()
        opened = dict(tail.opened())
        count = tail.live()
        consumers = {child: _place_of_child(folder, queue, child, count) for child in _children(folder, queue)}
        return State(NAME, queue, consumers, opened, tail.problems, count, None, None, tail.names())


def consumers(path: str | os.PathLike[str], queue: str | None = None) -> dict[str, Place]:
    """Return {child: (n, ())} as `state` does; without a walk when there is no child."""
    folder, queue = _at(path, queue)
    return state(folder, queue).consumers if _children(folder, queue) else {}


def verify(path: str | os.PathLike[str], queue: str | None = None) -> list[Problem]:
    """Return every problem of *queue*: those of `state`, and files that the program would stumble over."""
    folder, queue = _at(path, queue)
    problems = list(state(folder, queue).problems)
    for name in _files.regular_files(folder):
        if name.startswith(f"{queue}~~"):
            problems.append(Problem(name, 0, "a rewrite that was never finished; the program deletes it unread"))
        elif name.startswith(f"{queue}.") and "~~" not in name and _place_of(name, queue) is None:
            problems.append(Problem(name, 0, "its name has no number where a rotated journal has one; ignored here"))
    return problems


def write(
    path: str | os.PathLike[str],
    entries: Iterable[Entry],
    queue: str | None = None,
    consumers: Mapping[str, Place] | None = None,
    *,
    layout: str = "current",
    rotate_bytes: int = 16 << 20,
    name_ms: int | None = None,
    dialect: str = "2",
    lossy: bool = False,
    mode: int = 0o600,
) -> int:
    """
    Write *entries* as the Kestrel queue *queue* into the folder *path*, and return how many.

    *layout* is "current" (one file `Q`, as a rewrite leaves it), "rotated" (`Q.<ms>`, ... and `Q`; a file is
    rotated once it is longer than *rotate_bytes*) or "pack" (`Q.<ms>.pack`, which the program takes in place of
    everything older). Numbers begin at *name_ms* (default: now).

    Entries with an extra["xid"] become open transactions; they must come first, as `read` delivers them. *dialect*
    is the release to write for: "2" (ADDX, REMOVE_TENTATIVE_XID), "1" (ADD_XID, REMOVE_TENTATIVE, SAVE_XID) or
    "starling" (ADD: no add time, expiry in seconds). *consumers* is {child: (n, numbers)}: the fan-out child gets
    every entry but the first n and those of the given numbers, both counting from 0.

    Raises:
        TooLarge: an item of 2 GiB, a transaction id outside i32, a time outside its field.
        Unsafe: the queue is already there, or an entry has a key, a type or attempts (with "starling" also a time),
            which Kestrel cannot hold, and *lossy* is not set. Nothing is left behind.
    """
    if queue is None or not _QUEUE.match(queue):
        msg = f"cannot write a Kestrel queue named {queue!r}: a name has no '.', '/' and '~'"
        raise BadFormat(msg)
    if layout not in ("current", "rotated", "pack") or dialect not in ("1", "2", "starling"):
        msg = f"cannot write Kestrel as layout {layout!r} in dialect {dialect!r}"
        raise BadFormat(msg)
    folder = Path(path)
    names = [queue, *(f"{queue}+{child}" for child in consumers or {})]
    for name in names:
        if not _QUEUE.match(name):
            msg = f"cannot write a fan-out child as {name!r}: a name has no '.', '/' and '~'"
            raise BadFormat(msg)
        if folder.is_dir() and _names_of(folder, name):
            msg = f"cannot write {name} into {folder}: files of that queue are there; nothing was changed"
            raise Unsafe(msg)
    number = time.time_ns() // MS if name_ms is None else name_ms
    with _files.Stage(folder, mode) as stage:
        places = [(0, frozenset[int]())] + [(head or 0, frozenset(done)) for head, done in (consumers or {}).values()]
        form = _Form(layout, rotate_bytes, number, dialect, lossy)
        writers = [_Writer(stage, name, form) for name in names]
        count = 0
        for entry in entries:
            for writer, (head, done) in zip(writers, places, strict=True):
                if count >= head and count not in done:
                    writer.put(entry, plain=writer is not writers[0])
            count += 1
        for writer in writers:
            writer.close()
        stage.publish(last=[name for name in names if (stage.root / name).exists()])
    return count


def repair(
    path: str | os.PathLike[str],
    queue: str | None = None,
    *,
    to: str | os.PathLike[str] | None = None,
    in_place: bool = False,
) -> Repair:
    """
    Write what is in the queue as one clean journal, open transactions still open: what a rewrite would leave.

    It goes to the new directory *to* (default: `<path>.repaired`); the original is not touched. With *in_place* the
    clean file takes the place of all files of this queue, which move into a hidden folder beside it.
    """
    folder, queue = _at(path, queue)
    problems = verify(folder, queue)
    target = Path(to) if to is not None else _files.beside(folder)
    count = write(target, read(folder, queue), queue)
    if not in_place:
        return Repair(target, count, problems, None)
    kept = _files.set_aside(folder, _names_of(folder, queue), queue)
    (target / queue).rename(folder / queue)
    target.rmdir()
    return Repair(folder, count, problems, kept)


def record(op: int, *, xid: int | None = None, entry: Entry | None = None, count: int | None = None) -> bytes:
    """
    Return the bytes of one record.

    *xid* goes with opcodes 4 to 9, *entry* with the adding ones (0, 2, 7 and 8 as CONTINUE); *count* makes opcode 8
    the old STATE_DUMP of that many open transactions. Raises TooLarge for what does not fit its field.
    """
    try:
        if op in (REMOVE, REMOVE_TENTATIVE):
            return bytes((op,))
        if count is not None:
            return struct.pack("<Bii", op, xid, count)
        if entry is None:
            return struct.pack("<Bi", op, xid)
        payload = entry.payload
        if op == ADD:
            seconds = 0 if entry.expires_ns is None else entry.expires_ns // SECOND or 1
            return struct.pack("<Bii", op, 4 + len(payload), seconds) + payload
        added = 0 if entry.time_ns is None else entry.time_ns // MS
        expires = 0 if entry.expires_ns is None else entry.expires_ns // MS or 1  # 0 is "never"
        if op == ADDX:
            return _ADDX.pack(op, 16 + len(payload), added, expires) + payload
        return struct.pack("<Biiqq", op, xid, 16 + len(payload), added, expires) + payload
    except struct.error as error:
        msg = f"cannot write a Kestrel record of opcode {op}: {error}"
        raise TooLarge(msg) from error


# ---------------------------------------------------------------------------------------------- one file


@dataclass(frozen=True, slots=True)
class _Rules:
    """How to read: what the caller asked for."""

    as_program: bool = False
    state_dump: bool | None = None
    strict: bool = False
    max_payload: int = _files.MAX_PAYLOAD


class _Op(NamedTuple):
    """One record, without its payload."""

    op: int
    begin: int
    xid: int
    start: int
    """Position of the payload."""
    size: int
    added_ms: int | None
    expires_ns: int | None


_RUN = -1
"""The opcode of a run of ADDX records, which only count; their number is the xid."""


class _Journal:
    """One journal file, read record by record from a position that it remembers."""

    def __init__(self, path: Path, rules: _Rules, *, growing: bool = False, limit: int | None = None) -> None:
        self.source = _files.Source(path)
        self.name = path.name
        self.position = 0
        self.problem: Problem | None = None
        self.ended = False
        self._rules = rules
        self._growing = growing
        self._limit = limit
        """Where the real program would have cut this file because of another one."""

    def size(self) -> int:
        """Return how many bytes count."""
        size = self.source.size()
        return size if self._limit is None else min(size, self._limit)

    def _window(self, wanted: int) -> bytes:
        if self._limit is not None:
            wanted = max(0, min(wanted, self._limit - self.position))
        return self.source.read(self.position, wanted)

    def operations(self) -> Iterator[_Op]:
        """Deliver every operation from the position on; neighbouring ADDX as one run."""
        window = _files.WINDOW
        i32 = _I32.unpack_from
        while not self.ended:
            data = self._window(window)
            end = len(data)
            at = run = 0
            while at + _ADDX_FIXED <= end:
                op = data[at]
                if op == ADDX:
                    size = i32(data, at + 1)[0]
                    stop = at + 5 + size
                    if size < 16 or stop > end:
                        break
                    run += 1
                    at = stop
                    continue
                length = _LENGTHS.get(op)
                if length is None:
                    break
                if run:
                    yield _Op(_RUN, 0, run, 0, 0, None, None)
                    run = 0
                yield _Op(op, self.position + at, i32(data, at + 1)[0] if length == 5 else 0, 0, 0, None, None)
                at += length
            if run:
                yield _Op(_RUN, 0, run, 0, 0, None, None)
            self.position += at
            window = _files.WINDOW if at else _files.SMALL_WINDOW
            one = self.one()
            if one is None:
                return
            yield one

    def adds(  # noqa: C901  one loop on purpose: a call per record would cost more than the work
        self, ordinal: int, floor: int, wanted: set[int], stop_at: int
    ) -> Iterator[tuple[int, int, Entry | None]]:
        """
        Deliver (ordinal, position, entry) of the added items up to *stop_at*, numbered from *ordinal*.

        Below *floor* only the *wanted* ones, and without their entries.
        """
        window = _files.WINDOW
        i32, times = _I32.unpack_from, _TIMES.unpack_from
        extra = {"segment": self.name}
        lengths = _LENGTHS.get
        while not self.ended and self.position < stop_at:
            data = self._window(min(window, stop_at - self.position))
            end = len(data)
            at = 0
            while at + _ADDX_FIXED <= end:
                op = data[at]
                if op != ADDX:
                    length = lengths(op)
                    if length is None:
                        break
                    at += length
                    continue
                size = i32(data, at + 1)[0]
                stop = at + 5 + size
                if size < 16 or stop > end:
                    break
                if ordinal >= floor:
                    added, expires = times(data, at + 5)
                    at += _ADDX_FIXED
                    yield (
                        ordinal,
                        0,
                        make_entry(
                            (
                                data[at:stop],
                                None,
                                added * MS,
                                expires * MS if expires else None,
                                None,
                                None,
                                None,
                                extra,
                            )
                        ),
                    )
                elif ordinal in wanted:
                    yield ordinal, self.position + at, None
                ordinal += 1
                at = stop
            self.position += at
            window = _files.WINDOW if at else _files.SMALL_WINDOW
            one = self.one() if self.position < stop_at else None
            if one is None:
                return
            if one.op in _ADDS:
                if ordinal >= floor:
                    yield ordinal, one.begin, self.entry(one, extra)
                elif ordinal in wanted:
                    yield ordinal, one.begin, None
                ordinal += 1

    def entry(self, one: _Op, extra: Mapping[str, object] | None = None) -> Entry:
        """Return the item that *one* adds."""
        if one.size > self._rules.max_payload:
            msg = (
                f"{self.name} at {one.begin}: an item of {one.size} bytes, and max_payload is {self._rules.max_payload}"
            )
            raise TooLarge(msg)
        payload = self.source.read(one.start, one.size)
        added = None if one.added_ms is None else one.added_ms * MS
        return Entry(payload, None, added, one.expires_ns, None, None, None, extra or {"segment": self.name})

    def one(self) -> _Op | None:
        """Take one record with care: rare ones, large ones, broken ones, those on a window's edge. None at the end."""
        begin = self.position
        data = self._window(9 + 16)
        if not data:
            return None
        op = data[0]
        length = _LENGTHS.get(op)
        if length is not None:
            if len(data) < length:
                self._torn()
                return None
            self.position += length
            return _Op(op, begin, _I32.unpack_from(data, 1)[0] if length == 5 else 0, 0, 0, None, None)
        if op > REMOVE_TENTATIVE_XID:
            self._stop(f"the opcode {op}")
            return None
        if op == CONTINUE and self._is_state_dump(data):
            self.ended = True  # By its document it ends this file; what follows was for a reader that lags behind.
            return None
        return self._add(op, begin, data)

    def _add(self, op: int, begin: int, data: bytes) -> _Op | None:
        at, least = (5, 16) if op in (ADD_XID, CONTINUE) else (1, 4 if op == ADD else 16)
        if len(data) < at + 4:
            self._torn()
            return None
        size = _I32.unpack_from(data, at)[0]
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
        xid = _I32.unpack_from(data, 1)[0] if at == 5 else 0
        if op == ADD:
            seconds = _I32.unpack(fields)[0]
            return _Op(op, begin, xid, start + 4, size - 4, None, seconds * SECOND if seconds else None)
        added, expires = _TIMES.unpack(fields)
        return _Op(op, begin, xid, start + 16, size - 16, added, expires * MS if expires else None)

    def _is_state_dump(self, data: bytes) -> bool:
        """
        Tell the two meanings of opcode 8 apart by what they need: `xid, size >= 16, times, data`, or `xid, count`.

        A dump announces *count* transactions, each an ADD_XID and a REMOVE_TENTATIVE; so the first of them, or for
        a count below 16 the impossible size, gives it away. A CONTINUE with sane times never looks like that.
        """
        if self._rules.state_dump is not None:
            return self._rules.state_dump
        if len(data) < 9:
            return False
        count = _I32.unpack_from(data, 5)[0]
        if count == 0:
            return True
        if count < 0:
            return False
        following = self.source.read(self.position + 9, 9)
        if len(following) < 9 or following[0] != ADD_XID:
            return count < 16 and self.position + 9 == self.size()
        size = _I32.unpack_from(following, 5)[0]
        after = self.position + 18 + size
        return size >= 16 and after < self.size() and self.source.read(after, 1) == bytes((REMOVE_TENTATIVE,))

    def _torn(self) -> None:
        # While its program writes, a file may end inside a record: the rest is to come.
        if not self._growing:
            self._stop("ends inside a record")

    def _stop(self, reason: str) -> None:
        self.ended = True
        self.problem = Problem(self.name, self.position, f"{reason}; the rest of this file cannot be read")


# ---------------------------------------------------------------------------------------------- the whole queue


class _Replay:
    """
    What a queue is after its operations, in a few numbers: which ordinals are left, and in which order.

    Items are numbered as they are added. What is left is a run at the end (`next` .. `added`), what was put back in
    front of it, and what is open; so the memory is that of the open and the put back ones, not that of the queue.
    """

    def __init__(self, *, as_program: bool) -> None:
        self.next = 0
        self.added = 0
        self.front: deque[int] = deque()
        self.open: dict[int, int] = {}
        self.twice: int | None = None
        """A transaction id that was given out again while it was open, since this was last looked at."""
        self._named: dict[int, int] = {}
        """Items that an ADD_XID has named, until they are taken for the first time."""
        self._taken_name: int | None = None
        self._counter = 0
        self._highest = 0
        self._patience = 5_000_000
        """How many open ids may be passed over in search of the next free one, in all."""
        self._as_program = as_program

    def apply(self, one: _Op) -> None:  # noqa: C901  ten operations
        """Do one operation."""
        op = one.op
        if op == _RUN:
            self.added += one.xid
        elif op == REMOVE:
            self._take()
        elif op == REMOVE_TENTATIVE_XID:
            self._counter = one.xid
            self._open(one.xid)
        elif op == CONFIRM_REMOVE:
            self.open.pop(one.xid, None)
        elif op == UNREMOVE:
            item = self.open.pop(one.xid, None)
            if item is not None:
                self.front.appendleft(item)
        elif op == REMOVE_TENTATIVE:
            self._open(None)
        elif op == SAVE_XID:
            self._counter = one.xid
        else:
            if op == CONTINUE:
                self.open.pop(one.xid, None)
            elif op == ADD_XID and not self._as_program:
                self._named[self.added] = one.xid
            self.added += 1

    def _take(self) -> int | None:
        if self.front:
            item = self.front.popleft()
        elif self.next < self.added:
            item = self.next
            self.next += 1
        else:
            return None
        if self._named:
            self._taken_name = self._named.pop(item, None)
        return item

    def _open(self, xid: int | None) -> None:
        """Move the head into the open transactions: under *xid*, or the item's own, or the next one."""
        self._taken_name = None
        item = self._take()
        if item is None:
            return
        if xid is None:
            xid = self._next_xid() if self._taken_name is None else self._taken_name
        if xid in self.open:
            self.twice = xid
        self.open[xid] = item
        self._highest = max(self._highest, xid)

    def _next_xid(self) -> int:
        if self._as_program:
            # Head Kestrel reads opcode 3 as "xid 0", for all of them: the later ones replace the earlier.
            self._counter = 0
            return 0
        while self._patience:
            self._counter = -(1 << 31) if self._counter == (1 << 31) - 1 else self._counter + 1
            if self._counter and self._counter not in self.open:
                return self._counter
            self._patience -= 1
        # Only a journal made for it sets the counter back below thousands of open transactions, again and again.
        return self._highest + 1

    def live(self) -> int:
        """Return how many items the queue has, the open ones included."""
        return len(self.open) + len(self.front) + self.added - self.next


@dataclass(slots=True)
class _Known:
    """A file that was replayed: how far, and the ordinal of its first item."""

    name: str
    identity: tuple[int, int]
    first: int
    end: int
    limit: int | None


class _Tail:
    """A queue's journal: replayed once, delivered, and then followed if wanted."""

    tick = 1.0

    def __init__(self, folder: Path, queue: str, rules: _Rules, *, growing: bool) -> None:
        self._folder = folder
        self._queue = queue
        self._rules = rules
        self._growing = growing
        self._replay = _Replay(as_program=rules.as_program)
        self._known: list[_Known] = []
        self._current: _Journal | None = None
        self._at_hand: _Reopened | None = None
        """The file of the last single item that was fetched: the next one is likely there too."""
        self._started = False
        self._latest_ms = 0
        self._at_latest: list[int] = []
        """Hashes of the payloads that were delivered with the latest add time: the clock counts only milliseconds."""
        self._restated = False
        """Whether the current file took the place of one that was gone, so that the next may repeat it, too."""
        self._carried = 0
        """At most so many entries delivered from files before the current one may still be in the queue."""
        self._skip = 0
        self.problems: list[Problem] = []

    # -- replay

    def names(self) -> list[str]:
        """Return the files that were replayed, in order."""
        return [known.name for known in self._known]

    def live(self) -> int:
        """Return how many entries there are to deliver."""
        return self._replay.live()

    def replay(self) -> None:
        """Do every operation of every file, and remember how far each went."""
        names, problems = _in_replay_order(self._folder, self._queue, as_program=self._rules.as_program)
        for problem in problems:
            self._report(problem)
        cut: int | None = None
        for name in names:
            last = name == names[-1]
            limit = cut if name == self._queue else None
            journal = _Journal(self._folder / name, self._rules, growing=self._growing and last, limit=limit)
            first = self._replay.added
            self._replay_file(journal)
            self._known.append(_Known(name, journal.source.identity(), first, journal.position, limit))
            if journal.problem is not None:
                self._report(journal.problem)
                if self._rules.as_program:
                    # The real program cuts the current file, whichever one is broken.
                    cut = journal.position if cut is None else min(cut, journal.position)
            if last:
                self._current = journal
            else:
                journal.source.close()

    def _replay_steadily(self) -> None:
        """Replay, and again from the beginning if a rotation or a rewrite took a file away meanwhile."""
        for attempt in range(_ATTEMPTS):
            try:
                self.replay()
            except NotFound:
                if attempt == _ATTEMPTS - 1:
                    raise
                self._replay = _Replay(as_program=self._rules.as_program)
                self._known.clear()
                self.problems.clear()
            else:
                return

    def _replay_file(self, journal: _Journal) -> None:
        apply = self._replay.apply
        for one in journal.operations():
            apply(one)
            if self._replay.twice is not None:
                reason = f"transaction {self._replay.twice} was opened while it was open; the item it had is gone"
                self._report(Problem(journal.name, one.begin, reason))
                self._replay.twice = None

    # -- delivery

    def available(self) -> Iterator[Entry]:
        """Deliver what is in the queue; when called again, what was added since."""
        if not self._started:
            self._started = True
            self._replay_steadily()
            yield from self._left()
        if self._growing:
            yield from self._added_since()

    def opened(self) -> Iterator[tuple[int, Entry]]:
        """Deliver the open transactions, lowest id first."""
        places = self._positions(set(self._replay.open.values()))
        for xid in sorted(self._replay.open):
            entry = self._at(places[self._replay.open[xid]])
            yield xid, entry._replace(extra={**(entry.extra or {}), "xid": xid})

    def _left(self) -> Iterator[Entry]:
        replay = self._replay
        front = list(replay.front)
        places = self._positions({*replay.open.values(), *front})
        for xid in sorted(replay.open):
            entry = self._at(places[replay.open[xid]])
            self._note(entry)
            yield entry._replace(extra={**(entry.extra or {}), "xid": xid})
        for ordinal in front:
            entry = self._at(places[ordinal])
            self._note(entry)
            yield entry
        del places
        track = self._growing
        for _, _, found in self._adds_from(replay.next, replay.next, set()):
            if found is not None:
                if track:
                    self._note(found)
                yield found

    def _note(self, entry: Entry) -> None:
        """Remember what is needed to know *entry* again in a file that was rewritten."""
        added_ms = (entry.time_ns or 0) // MS
        if added_ms > self._latest_ms:
            self._latest_ms = added_ms
            self._at_latest.clear()
        if added_ms == self._latest_ms:
            self._at_latest.append(hash(entry.payload))

    def _positions(self, wanted: set[int]) -> dict[int, tuple[_Known, int]]:
        """Find the *wanted* ordinals: the files and positions of the records that added them."""
        if not wanted:
            return {}
        found: dict[int, tuple[_Known, int]] = {}
        for known, ordinal, position in self._seek(wanted):
            found[ordinal] = known, position
            if len(found) == len(wanted):
                break
        return found

    def _seek(self, wanted: set[int]) -> Iterator[tuple[_Known, int, int]]:
        highest = max(wanted) + 1
        for known in self._from(min(wanted)):
            if known.first >= highest:
                return
            with closing(self._reopen(known)) as journal:
                for ordinal, position, _ in journal.adds(known.first, highest, wanted, known.end):
                    if ordinal >= highest:
                        return
                    yield known, ordinal, position

    def _adds_from(self, ordinal: int, floor: int, wanted: set[int]) -> Iterator[tuple[int, int, Entry | None]]:
        if ordinal >= self._replay.added:
            return
        for known in self._from(ordinal):
            with closing(self._reopen(known)) as journal:
                yield from journal.adds(known.first, floor, wanted, known.end)

    def _from(self, ordinal: int) -> list[_Known]:
        """Return the files that hold *ordinal* and what comes after it."""
        firsts = [known.first for known in self._known]
        return self._known[max(0, bisect_right(firsts, ordinal) - 1) :]

    def _at(self, place: tuple[_Known, int]) -> Entry:
        known, position = place
        journal = self._at_hand
        if journal is None or journal.source.identity() != known.identity:
            if journal is not None:
                journal.close()
            journal = self._at_hand = self._reopen(known)
        journal.position = position
        one = journal.one()
        if one is None:
            msg = f"{self._folder / known.name} at {position}: the record that was there is gone"
            raise Corrupt(msg)
        return journal.entry(one)

    def _reopen(self, known: _Known) -> _Reopened:
        current = self._current
        if current is not None and current.source.identity() == known.identity:
            path = Path(f"/proc/self/fd/{current.source.fd}")  # also when it was renamed meanwhile
        else:
            path = self._folder / known.name
        try:
            journal = _Reopened(path, self._rules, limit=known.limit)
        except NotFound as error:
            raise self._changed(known.name) from error
        journal.name = known.name
        if journal.source.identity() != known.identity:
            journal.close()
            raise self._changed(known.name)
        return journal

    def _changed(self, name: str) -> Corrupt:
        return Corrupt(
            f"{self._folder / name}: replaced while it was being read; what was delivered is whole: read again"
        )

    # -- following

    def _added_since(self) -> Iterator[Entry]:
        """
        Deliver what the current file has gained, and go on to its successors.

        A file is left only after it was read once more behind the look that showed its successor: its program
        writes no more to it then, so that nothing can be missed.
        """
        while True:
            if self._current is not None:
                yield from self._gained(self._current)
            successor, rewritten = self._successor()
            if successor is None:
                return
            if self._current is not None:
                yield from self._gained(self._current)
                self._current.source.close()
            if rewritten or self._restated:
                self._carried += self._replay.live()
                self._skip = self._carried
            if rewritten:
                self._replay = _Replay(as_program=False)
            self._restated = rewritten
            self._current = successor

    def _gained(self, journal: _Journal) -> Iterator[Entry]:
        if journal.size() < journal.position:
            msg = f"{self._folder / journal.name}: became shorter than the {journal.position} bytes that were read"
            raise Corrupt(msg)
        while (one := journal.one()) is not None:
            self._replay.apply(one)
            if one.op not in _ADDS:
                continue
            entry = journal.entry(one)
            if self._skip and self._delivered_before(entry):
                self._skip -= 1
                self._carried = 0  # the file does repeat what is left: its own replay counts that from now on
                continue
            self._skip = 0
            self._note(entry)
            yield entry
        if journal.problem is not None:
            problem = journal.problem
            msg = f"{self._folder / problem.file} at {problem.position}: {problem.reason}"
            raise Corrupt(msg)

    def _delivered_before(self, entry: Entry) -> bool:
        """Whether *entry*, at the beginning of a file that may repeat others, came from one of those."""
        added_ms = (entry.time_ns or 0) // MS
        if added_ms != self._latest_ms:
            return added_ms < self._latest_ms
        return hash(entry.payload) in self._at_latest

    def _successor(self) -> tuple[_Journal | None, bool]:
        """
        Open the file to go on with, if the current one is not the current one any more; and say if it is a rewrite.

        A rotated file keeps its identity under a new name: its successors are the higher numbers, then `Q`. A file
        that is gone was replaced by a rewrite, which begins with the items that are left: those were delivered, and
        are passed over by their number and their add times. In the middle of a rewrite, though, what stands first may
        be a file that repeats nothing, and the next one the rewrite; or the rewrite, and the next one what it repeats.
        """
        files = self._files()
        if not files:
            return None, False
        if self._current is None:
            return self._follow_on(*files[0]), False
        mine = self._current.source.identity()
        at = next((at for at, (_, identity) in enumerate(files, 1) if identity == mine), 0)
        if at:
            return (self._follow_on(*files[at]) if at < len(files) else None), False
        if os.fstat(self._current.source.fd).st_nlink:
            return None, False  # between two names
        return self._follow_on(*files[0]), True

    def _files(self) -> list[tuple[str, tuple[int, int] | None]]:
        """Return the names in replay order with the files they name; none while they change from look to look."""
        seen = None
        for _ in range(_ATTEMPTS):
            names, _ = _in_replay_order(self._folder, self._queue, as_program=False)
            files = [(name, _identity(self._folder / name)) for name in names]
            if files == seen:
                return files
            seen = files
        return []

    def _follow_on(self, name: str, identity: tuple[int, int] | None) -> _Journal | None:
        """Open *name*, unless it has become the name of another file than the one of that *identity*."""
        with suppress(NotFound):
            journal = _Journal(self._folder / name, self._rules, growing=True)
            if journal.source.identity() == identity:
                return journal
            journal.source.close()
        return None

    # -- the rest

    def directories(self) -> list[Path]:
        """Return what to watch."""
        return [self._folder]

    def _report(self, problem: Problem) -> None:
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(problem)
        if self._rules.strict:
            msg = f"{self._folder / problem.file} at {problem.position}: {problem.reason}; nothing was delivered"
            raise Corrupt(msg)

    def close(self) -> None:
        """Close the files that are held."""
        if self._current is not None:
            self._current.source.close()
        if self._at_hand is not None:
            self._at_hand.close()


class _Reopened(_Journal):
    """A journal that was replayed before and is read again."""

    def close(self) -> None:
        """Close it."""
        self.source.close()


def _place_of_child(folder: Path, queue: str, child: str, count: int) -> Place:
    """Return how many of the parent's entries come before the child's, if the child has the parent's last ones."""
    with closing(_Tail(folder, f"{queue}+{child}", _Rules(), growing=False)) as tail:
        tail.replay()
        ahead = count - tail.live()
    if ahead < 0:
        return None, ()
    mine = read(folder, f"{queue}+{child}")
    theirs = islice(read(folder, queue), ahead, None)
    same = all(one.payload == other.payload for one, other in zip(mine, theirs, strict=True))
    return (ahead if same else None), ()


# ---------------------------------------------------------------------------------------------- writing


@dataclass(frozen=True, slots=True)
class _Form:
    """How to write: what the caller asked for."""

    layout: str
    rotate_bytes: int
    number: int
    dialect: str
    lossy: bool


class _Writer:
    """One queue's journal: open transactions first, then the items, rotated if wanted."""

    def __init__(self, stage: _files.Stage, queue: str, form: _Form) -> None:
        self._stage = stage
        self._queue = queue
        self._form = form
        self._number = form.number
        self._now = time.time_ns()
        self._opened: dict[int, Entry] | None = {}
        self._length = 0
        endings = {"pack": f".{form.number}.pack", "rotated": f".{form.number}", "current": ""}
        self._name = queue + endings[form.layout]
        self._file: BinaryIO = stage.create(self._name)

    def put(self, entry: Entry, *, plain: bool) -> None:
        """Add one item; with an xid it is an open transaction, unless *plain* (in a fan-out child)."""
        self._refuse_losses(entry)
        if entry.time_ns is None:
            entry = entry._replace(time_ns=self._now)
        xid = None if plain else (entry.extra or {}).get("xid")
        if xid is not None:
            if self._opened is None:
                msg = f"cannot write transaction {xid} of {self._queue}: open transactions come before all other items"
                raise BadFormat(msg)
            self._opened[xid] = entry
            return
        if self._opened is not None:
            self._write_opened()
        if self._form.layout == "rotated" and self._length > self._form.rotate_bytes:
            self._rotate()
        self._write(record(ADD if self._form.dialect == "starling" else ADDX, entry=entry))

    def _refuse_losses(self, entry: Entry) -> None:
        if self._form.lossy:
            return
        if (
            entry.key
            or entry.type
            or entry.attempts
            or (self._form.dialect == "starling" and entry.time_ns is not None)
        ):
            msg = f"cannot write to {self._queue}: an entry has a key, a type, attempts or a time, which would be lost"
            raise Unsafe(msg)

    def _write_opened(self) -> None:
        """Write the open transactions as the releases do: newest first, each added and taken at once."""
        opened, self._opened = self._opened or {}, None
        for xid in sorted(opened, reverse=True):
            if self._form.dialect == "2":
                self._write(record(ADDX, entry=opened[xid]) + record(REMOVE_TENTATIVE_XID, xid=xid))
            elif self._form.dialect == "1":
                self._write(record(ADD_XID, xid=xid, entry=opened[xid]) + record(REMOVE_TENTATIVE))
            elif not self._form.lossy:
                msg = f"cannot write transaction {xid} of {self._queue}: Starling has no transactions"
                raise Unsafe(msg)
            else:
                self._write(record(ADD, entry=opened[xid]))
        if self._form.dialect == "1":
            self._write(record(SAVE_XID, xid=max(opened, default=0)))

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self._length += len(data)

    def _rotate(self) -> None:
        self._stage.finish(self._name)
        self._number += 1
        self._name = f"{self._queue}.{self._number}"
        self._file = self._stage.create(self._name)
        self._length = 0

    def close(self) -> None:
        """Finish; of rotated files the last one becomes the current one."""
        if self._opened:
            self._write_opened()
        self._stage.finish(self._name)
        if self._form.layout == "rotated":
            (self._stage.root / self._name).rename(self._stage.root / self._queue)


# ---------------------------------------------------------------------------------------------- names


def _in_replay_order(folder: Path, queue: str, *, as_program: bool) -> tuple[list[str], list[Problem]]:
    """
    Return the files to replay, oldest first, and what is wrong with the others.

    A pack file stands for every file with its number or a smaller one, which are dead.
    """
    rotated: list[tuple[int, bool, str]] = []
    current: list[str] = []
    for name in _files.regular_files(folder):
        place = _place_of(name, queue, any_ending=as_program)
        if place is not None:
            rotated.append((*place, name))
        elif name == queue:
            current = [name]
    rotated.sort()
    packs = [(number, name) for number, packed, name in rotated if packed]
    if not packs:
        return [name for _, _, name in rotated] + current, []
    newest, pack = packs[-1]
    live = [pack] + [name for number, packed, name in rotated if number > newest and not packed]
    problems = []
    if _size(folder / pack) == 0 and len(rotated) > 1:
        dead = ", ".join(name for _, _, name in rotated if name not in live)
        reason = f"an empty pack file: by the format it replaces {dead}, whose items are not delivered"
        problems.append(Problem(pack, 0, reason))
    return live + current, problems


def _place_of(name: str, queue: str, *, any_ending: bool = False) -> tuple[int, bool] | None:
    """Return (number, is it a pack) of a rotated file of *queue*. The program looks at the second field only."""
    if not name.startswith(f"{queue}.") or "~~" in name:
        return None
    number, _, rest = name[len(queue) + 1 :].partition(".")
    if not _NUMBER.match(number) or not -_I64_MAX - 1 <= int(number) <= _I64_MAX:
        return None
    if rest and rest != "pack" and not any_ending:
        return None
    return int(number), rest.endswith("pack")


def _queue_of(name: str) -> str | None:
    """Return the queue that the file *name* belongs to, if it is named as a journal."""
    queue = name.partition(".")[0]
    if "~" in name or not queue:
        return None
    return queue if name == queue or _place_of(name, queue) is not None else None


def _at(path: str | os.PathLike[str], queue: str | None) -> tuple[Path, str]:
    """Return the folder and the queue that are meant; the path of one of its files will do."""
    place = Path(path)
    if queue is None and place.is_file():
        place, queue = place.parent, place.name.partition(".")[0]
    folder = _files.directory(place)
    return folder, _queue(folder, queue)


def _queue(folder: Path, queue: str | None) -> str:
    if queue is None:
        found = queues(folder)
        # Fan-out children come with their parent; the parent is the queue that is meant.
        return _files.only_queue(
            folder, [name for name in found if name.partition("+")[0] not in found or "+" not in name], NAME
        )
    if not _QUEUE.match(queue):
        msg = f"cannot read a Kestrel queue named {queue!r}: a name has no '.', '/' and '~'"
        raise BadFormat(msg)
    if not _in_replay_order(folder, queue, as_program=False)[0]:
        msg = f"no Kestrel queue {queue!r} in {folder}; there are {queues(folder)}"
        raise NotFound(msg)
    return queue


def _children(folder: Path, queue: str) -> list[str]:
    prefix = f"{queue}+"
    owners = {_queue_of(name) for name in _files.regular_files(folder)}
    return sorted(name[len(prefix) :] for name in owners if name is not None and name.startswith(prefix))


def _names_of(folder: Path, queue: str) -> list[str]:
    """Return every file that is a part of *queue*, temporary ones too."""
    names = _files.regular_files(folder)
    return [
        name
        for name in names
        if name == queue or name.startswith(f"{queue}~~") or _place_of(name, queue, any_ending=True) is not None
    ]


def _identity(path: Path) -> tuple[int, int] | None:
    with suppress(FileNotFoundError):
        found = path.stat()
        return found.st_dev, found.st_ino
    return None


def _size(path: Path) -> int | None:
    with suppress(FileNotFoundError):
        return path.stat().st_size
    return None


def _plausible(path: Path) -> bool | None:
    """Say whether *path* begins as a journal: True, or False for an empty file, or None if it does not."""
    with suppress(NotFound, BadFormat, PermissionError):
        journal = _Journal(path, _Rules())
        with closing(journal.source):
            if not journal.size():
                return False
            if journal.one() is not None:
                for _ in range(3):
                    journal.one()
                ends_well = journal.problem is None or "ends inside" in journal.problem.reason
                return True if ends_well or journal.position > _ADDX_FIXED else None
    return None


def detect(folder: Path, names: list[str]) -> bool:
    """
    Say whether *folder*, whose files are *names*, holds Kestrel queues.

    One file that begins as a journal is enough; of empty files, all must be named as one.
    """
    named = [name for name in names if not name.startswith(".")]
    found = [_plausible(folder / name) for name in named if _queue_of(name) is not None]
    return True in found or (bool(found) and len(found) == len(named) and not any(one is None for one in found))


def detect_file(path: Path) -> bool:
    """Say whether *path* is a Kestrel journal that holds something."""
    return _queue_of(path.name) is not None and _plausible(path) is True

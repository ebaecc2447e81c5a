"""
`open`: a queue in place, appended to and taken from, while its program does not run.

What is done becomes records at the end of the current journal, as its program writes them: that is all a journal is.
A record that a stop has cut off is cut away by the next one who opens it, here as there. Rotated journals and packs
are left to the program, which puts them in order when it starts.

There is no lock. A process in sight that has the journal open for writing is refused, and so are others of ours (flock
on the current journal, which the program does not look at).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections import deque
from contextlib import closing
from typing import TYPE_CHECKING

from shmq.errors import BadFormat, Busy, Corrupt, NotFound
from shmq.formats import _files, _locks
from shmq.formats._owned import Owned, sync_directory
from shmq.formats.kestrel.folder import at, children, queue_in
from shmq.formats.kestrel.journal import Journal, Rules
from shmq.formats.kestrel.names import QUEUE, names_of
from shmq.formats.kestrel.queue import Journals
from shmq.formats.kestrel.read import consumers
from shmq.formats.kestrel.records import (
    ADDX,
    CONFIRM_REMOVE,
    REMOVE,
    REMOVE_TENTATIVE_XID,
    UNREMOVE,
    record,
)
from shmq.formats.model import Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

_LAST_XID = (1 << 31) - 1


@contextlib.contextmanager
def open(  # noqa: A001  as shmq.open
    path: str | os.PathLike[str],
    queue: str | None = None,
    *,
    consumer: str | None = None,
    sync: bool = True,
    mode: int = 0o600,
    tell: Callable[[str], object] | None = None,
) -> Iterator[Opened]:
    """
    Open *queue* in the folder *path* to put and take items, while its program does not run; made if it is not there.

    *consumer* is a fan-out child of it, which has its own items. What is put into a queue goes to its children, too, as
    its program does it. With *sync* what was done is on the disk before a call returns. Its program has no lock: what
    nobody can know is said to *tell*.

    Raises:
        Busy: a process in sight has the journal open for writing.
        Corrupt: a file is damaged: `repair` it first. Nothing was changed.
        NotFound: there is no such folder, or child.
    """
    folder, queue = _at(path, queue, consumer)
    names = [queue, *(f"{queue}+{child}" for child in children(folder, queue))]
    files = [folder / name for each in names for name in names_of(folder, each)]
    _locks.unused(files, f"open {queue} in {folder}", tell)
    with contextlib.ExitStack() as stack:
        journals = [stack.enter_context(closing(_Current(folder, name, mode))) for name in names]
        opened = Opened(folder, journals, sync=sync)
        stack.callback(opened.close)
        len(opened)
        yield opened


def _at(path: str | os.PathLike[str], queue: str | None, consumer: str | None) -> tuple[Path, str]:
    if queue is None or consumer is not None:
        folder, queue = at(path, queue)
        return folder, queue if consumer is None else queue_in(folder, f"{queue}+{consumer}")
    if not QUEUE.match(queue):
        msg = f"cannot open a Kestrel queue named {queue!r}: a name has no '.', '/' and '~'"
        raise BadFormat(msg)
    return _files.directory(path), queue


class _Current:
    """The current journal of a queue, open at its end and locked against others of ours."""

    def __init__(self, folder: Path, queue: str, mode: int) -> None:
        self.folder = folder
        self.queue = queue
        self._pid = os.getpid()
        self.path = folder / queue
        made = not self.path.exists()
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY
        self.fd = os.open(self.path, flags, mode)
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self.fd)
            if error.errno != errno.EWOULDBLOCK:
                raise
            msg = f"cannot open {self.path}: somebody has it open here; nothing was changed"
            raise Busy(msg) from error
        if made:
            sync_directory(folder)

    def replayed(self) -> Journals:
        """All journals of the queue, replayed; a record that is cut off at the end of the current one is cut away."""
        whole = Journals(self.folder, self.queue, Rules())
        try:
            whole.replay()
            for problem in whole.problems:
                if problem.file != self.queue or "ends inside a record" not in problem.reason:
                    msg = f"cannot open {self.path}: {problem.file} at {problem.position}: {problem.reason}: repair it"
                    raise Corrupt(f"{msg} first; nothing was changed")
            for problem in whole.problems:
                os.ftruncate(self.fd, problem.position)
        except BaseException:
            whole.close()
            raise
        return whole

    def append(self, data: bytes, *, sync: bool) -> None:
        """Append *data*; when that fails, nothing of it is left."""
        before = os.fstat(self.fd).st_size
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(self.fd, view) :]
            if sync:
                os.fdatasync(self.fd)
        except OSError:
            os.ftruncate(self.fd, before)
            raise

    def close(self) -> None:
        if os.getpid() == self._pid:  # a child that was forked meanwhile has it open, too
            fcntl.flock(self.fd, fcntl.LOCK_UN)
        os.close(self.fd)


class Opened(Owned):
    """A queue that is ours as long as it is open; made by `open`."""

    def __init__(self, folder: Path, journals: list[_Current], *, sync: bool) -> None:
        """*journals* are its own and those of its children, open and locked."""
        self._own, *self._children = journals
        super().__init__(os.fspath(self._own.path))
        self._folder = folder
        self._sync = sync
        self._whole: Journals | None = None
        self._front: deque[Entry] = deque()
        """What was put back, the next one first."""
        self._ahead: deque[Entry] = deque()
        """What was read of the rest."""
        self._rest: Iterator[list[Entry]] = iter(())
        self._end: Journal | None = None
        """The current journal, from where it was when it was opened."""
        self._open: dict[int, Entry] = {}
        self._waiting = 0
        """How many items are neither taken nor open."""
        self._xid = 0
        self._children_checked = False

    # -- the calls

    def __len__(self) -> int:
        """How many items wait to be taken; open ones do not."""
        with self._call():
            return self._waiting

    @property
    def open(self) -> dict[int, Entry]:
        """The open transactions: {id: item}, ascending."""
        with self._call():
            return dict(sorted(self._open.items()))

    def put(self, item: bytes | Entry) -> None:
        """
        Append an item, here and in each child. Without a time it gets that of now.

        Raises:
            TooLarge: an item of 2 GiB, or a time outside its field.
        """
        self.put_many([item])

    def put_many(self, items: Iterable[bytes | Entry]) -> None:
        """Append items, with one write to each journal: after a stop, those in front may be in."""
        now = time.time_ns()
        with self._call():
            entries = [item if isinstance(item, Entry) else Entry(item) for item in items]
            entries = [entry if entry.time_ns is not None else entry._replace(time_ns=now) for entry in entries]
            data = b"".join(record(ADDX, entry=entry) for entry in entries)
            for journal in (*self._children, self._own):  # in the program's order
                journal.append(data, sync=self._sync)
            self._waiting += len(entries)

    def peek(self) -> Entry | None:
        """Return the item that is the next to be taken; None if there is none."""
        with self._call():
            return self._next()

    def take(self) -> Entry | None:
        """Remove the next item and return it; None if there is none. Expired ones before it are removed, too."""
        with self._call():
            entry = self._next()
            if entry is not None:
                self._write(REMOVE)
                self._pop()
            return entry

    def remove(self, count: int) -> int:
        """Remove the next *count* items, expired or not; how many there were."""
        with self._call():
            count = min(count, self._waiting)
            for _ in range(count):
                self._head()
                self._pop()
            self._own.append(record(REMOVE) * count, sync=self._sync)
            return count

    def begin(self) -> Entry | None:
        """
        Open a transaction: the next item, with its id as extra["xid"]; None if there is none.

        It waits for `confirm` or `abort`; what is open when the program starts is put back by that.
        """
        with self._call():
            entry = self._next()
            if entry is None:
                return None
            xid = self._free_xid()
            self._write(REMOVE_TENTATIVE_XID, xid)
            self._pop()
            self._xid = xid
            self._open[xid] = entry = entry._replace(extra={**(entry.extra or {}), "xid": xid})
            return entry

    def confirm(self, xid: int) -> None:
        """
        Remove the item of an open transaction for good.

        Raises:
            NotFound: it is not open.
        """
        with self._call():
            self._opened(xid)
            self._write(CONFIRM_REMOVE, xid)
            del self._open[xid]

    def abort(self, xid: int) -> None:
        """
        Put the item of an open transaction back: it is the next one.

        Raises:
            NotFound: it is not open.
        """
        with self._call():
            entry = self._opened(xid)
            self._write(UNREMOVE, xid)
            del self._open[xid]
            self._front.appendleft(entry._replace(extra=None))
            self._waiting += 1

    # -- reading

    def _load(self) -> None:
        self._let_go()
        self._whole = whole = self._own.replayed()
        for child in self._children if not self._children_checked else []:
            child.replayed().close()
        self._children_checked = True
        self._open = dict(whole.opened())
        self._front = deque(whole.put_back())
        self._rest = whole.run()
        self._ahead.clear()
        self._end = Journal(self._own.path, Rules())
        self._end.position = os.fstat(self._own.fd).st_size
        self._waiting = whole.live() - len(self._open)
        self._xid = max([*self._open, 0])

    def _next(self) -> Entry | None:
        """The next item that is not expired; those that are, are removed, as the program does at its head."""
        now = time.time_ns()
        while (entry := self._head()) is not None and entry.expires_ns is not None and entry.expires_ns < now:
            self._write(REMOVE)
            self._pop()
        return entry

    def _head(self) -> Entry | None:
        if self._front:
            return self._front[0]
        while not self._ahead and self._waiting:
            found = next(self._rest, None)
            if found is None:  # what was put since it was opened
                assert self._end is not None  # noqa: S101  it is loaded
                self._rest = self._end.added(0, self._end.size())
                found = next(self._rest, None)
                if found is None:
                    msg = f"{self._own.path}: {self._waiting} items that were added are gone"
                    raise Corrupt(msg)
            self._ahead.extend(found)
        return self._ahead[0] if self._ahead else None

    def _pop(self) -> None:
        (self._front or self._ahead).popleft()
        self._waiting -= 1

    def _opened(self, xid: int) -> Entry:
        if xid not in self._open:
            msg = f"{self._own.path}: transaction {xid} is not open; those are {sorted(self._open)}"
            raise NotFound(msg)
        return self._open[xid]

    def _free_xid(self) -> int:
        xid = self._xid
        while True:
            xid = xid + 1 if xid < _LAST_XID else 1
            if xid not in self._open:
                return xid

    def _write(self, op: int, xid: int | None = None) -> None:
        self._own.append(record(op, xid=xid), sync=self._sync)

    # -- the end

    def _let_go(self) -> None:
        if self._whole is not None:
            self._whole.close()
            self._whole = None
        if self._end is not None:
            self._end.close()
            self._end = None

    def close(self) -> None:
        """Give it back, as leaving the block does, but for the lock; again is harmless."""
        if os.getpid() == self._pid:
            self._closed = True
        self._let_go()


def append(
    path: str | os.PathLike[str],
    entries: Iterable[Entry],
    queue: str | None = None,
    *,
    tell: Callable[[str], object] | None = None,
) -> int:
    """Put *entries* at the end of *queue*, which is there, and of its children; as `open` and `put_many`."""
    with open(*at(path, queue), tell=tell) as opened:
        found = list(entries)
        opened.put_many(found)
        return len(found)


def commit(
    path: str | os.PathLike[str],
    consumer: str,
    head: int,
    done: Iterable[int] = (),
    queue: str | None = None,
    *,
    tell: Callable[[str], object] | None = None,
) -> None:
    """
    Have the fan-out child *consumer* stand behind the first *head* entries of its parent, as `state` counts them.

    What it had still to see of those is removed from it: open transactions are confirmed, and come first. "" is the
    queue itself, of which the first *head* entries are removed.

    Raises:
        BadFormat: it would have to go back, or it holds other items than its parent, or *done* is given: a journal has
            no place for what is finished out of order.
    """
    folder, queue = at(path, queue)
    before = 0 if not consumer else consumers(folder, queue).get(consumer, (None, ()))[0]
    left = -1 if before is None else head - before
    if left < 0 or list(done):
        msg = (
            f"cannot commit {consumer!r} of {folder / queue} to {head}: it stands at {before}, and a journal knows no "
            "way back and nothing that is finished out of order; nothing was changed"
        )
        raise BadFormat(msg)
    with open(folder, queue, consumer=consumer or None, tell=tell) as opened:
        for xid in list(opened.open)[:left]:
            opened.confirm(xid)
            left -= 1
        opened.remove(left)

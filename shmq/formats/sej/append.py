"""
Appending to a sej directory that is in use, as its own writer does it; and committing a reader's offset.

The writer's lock is held meanwhile, so either it or the real program writes, and readers of both follow. Messages are
whole for a reader when their last byte is there; what a killed process leaves is what the real writer leaves.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from typing import TYPE_CHECKING

from shmq.errors import BadFormat, Closed, Corrupt, Forked, TooLarge, Unsafe
from shmq.formats import _files, _locks
from shmq.formats.sej.journal import Journal
from shmq.formats.sej.messages import HEAD, I32, SEGMENT_BYTES, SMALLEST, U64, message
from shmq.formats.sej.names import JOURNAL, LOCK, OFFSETS, directories, segment_name, segments_in
from shmq.formats.sej.offsets import split_consumer

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType
    from typing import Self

    from shmq.formats.model import Entry

_MODE = 0o644
_BATCH_BYTES = 1 << 20


class Appender:
    """The one writer of a sej directory, until it is closed; also as a context manager."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        queue: str | None = None,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        cut: bool = False,
    ) -> None:
        """
        Take the lock of the sej directory *path* (or of its child *queue*), and go behind its last message.

        A segment is closed once it is at least *segment_bytes* long: the SegmentSize of the real writer. A newest
        segment that does not end in a whole message is Corrupt; with *cut* what is not whole is cut off, as the real
        writer does it when it is opened.

        Raises:
            Busy: another writer has the lock.
            NotFound: no sej directory is there.
            BadFormat: there are several.
            Corrupt: the newest segment does not end in a whole message.
        """
        root = _files.directory(path)
        labels = directories(root, queue)
        if len(labels) != 1:
            msg = f"cannot append to {root}: it holds {len(labels)} sej directories ({', '.join(labels[:8])}): name one"
            raise BadFormat(msg)
        self._folder = root / labels[0]
        self._segment_bytes = segment_bytes
        self._pid = os.getpid()
        self._mutex = threading.Lock()
        self._fd = -1
        with contextlib.ExitStack() as stack:
            stack.enter_context(_locks.held([self._folder / LOCK], f"append to {self._folder}"))
            segments = segments_in(self._folder / JOURNAL)
            first, name = segments[-1] if segments else (0, segment_name(0))
            self._open(name, os.O_CREAT)
            stack.callback(self._close_file)
            self._next = first if not self._length else self._behind_last(first, name, cut=cut)
            self._held = stack.pop_all()

    @property
    def next(self) -> int:
        """The offset that the next message gets."""
        return self._next

    def append(self, *entries: Entry) -> range:
        """
        Append messages, and return their offsets; those that the entries have are not looked at.

        They are there for every reader when this returns, and on the disk after `sync` or `close`.

        Raises:
            TooLarge: a payload, key or number does not fit its field. Some of the messages before it may be in; `next`
                tells how many.
            Unsafe: an entry has an expiry or attempts, likewise.
            OSError: the disk is full, or worse. Whole messages before that are in, and nothing else.
        """
        with self._mutex:
            self._check()
            begin = self._next
            pending: list[bytes] = []
            size = 0
            for entry in entries:
                if entry.expires_ns is not None or entry.attempts:
                    msg = f"cannot append offset {self._next}: it has an expiry or attempts, which sej cannot hold"
                    raise Unsafe(msg)
                pending.append(message(self._next + len(pending), entry))
                size += len(pending[-1])
                if self._length + size >= self._segment_bytes:
                    self._write(pending)
                    self._roll()
                    size = 0
                elif size >= _BATCH_BYTES:
                    self._write(pending)
                    size = 0
            self._write(pending)
            return range(begin, self._next)

    def sync(self) -> None:
        """Force to the disk what was appended."""
        with self._mutex:
            self._check()
            os.fsync(self._fd)

    def close(self) -> None:
        """Force what was appended to the disk, and give the lock back. Again, or in a forked child, it is harmless."""
        if self._pid != os.getpid():
            return
        with self._mutex:
            try:
                if self._fd >= 0:
                    os.fsync(self._fd)
            finally:  # also when the disk refuses it, or a signal's handler raises, as nobody calls this again
                self._held.close()

    def _check(self) -> None:
        if self._pid != os.getpid():
            msg = f"this appender to {self._folder} belongs to process {self._pid}"
            raise Forked(msg)
        if self._fd < 0:
            msg = f"this appender to {self._folder} was closed"
            raise Closed(msg)

    def _write(self, pending: list[bytes]) -> None:
        data = memoryview(b"".join(pending))
        done = 0
        try:
            while done < len(data):
                done += os.write(self._fd, data[done:])
        except OSError:
            self._keep_whole(pending, done)
            raise
        self._length += len(data)
        self._next += len(pending)
        pending.clear()

    def _keep_whole(self, pending: list[bytes], done: int) -> None:
        """Cut off what is not a whole message: the others may have been read already."""
        for each in pending:
            if done < len(each):
                break
            done -= len(each)
            self._length += len(each)
            self._next += 1
        os.ftruncate(self._fd, self._length)

    def _roll(self) -> None:
        if self._next >= 1 << 64:
            msg = f"cannot append offset {self._next}: sej's offsets end at 2^64-1"
            raise TooLarge(msg)
        os.fsync(self._fd)
        self._close_file()
        self._open(segment_name(self._next), os.O_CREAT | os.O_EXCL)
        _files.sync_directory(self._folder / JOURNAL)

    def _open(self, name: str, how: int) -> None:
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | how
        self._fd = os.open(self._folder / JOURNAL / name, flags, _MODE)
        self._length = os.fstat(self._fd).st_size

    def _close_file(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _behind_last(self, first: int, name: str, *, cut: bool) -> int:
        """Return the offset behind the last message of the newest segment, which is read backward."""
        offset = self._last()
        if offset is not None and offset >= first:
            return offset + 1
        with contextlib.closing(Journal(self._folder, "", first)) as journal:
            count = sum(map(len, journal.lists()))
            whole, broken = journal.position, journal.broken
        if broken:
            msg = f"cannot append to {self._folder / JOURNAL / name}: {journal.problems[-1].reason}; repair it"
            raise Corrupt(msg)
        if not cut:
            msg = f"cannot append to {self._folder / JOURNAL / name}: behind {whole} bytes it ends in a message that is"
            msg += f" not whole ({self._length - whole} bytes); cut=True cuts that off, as the real writer does"
            raise Corrupt(msg)
        os.ftruncate(self._fd, whole)
        os.fsync(self._fd)
        self._length = whole
        return first + count

    def _last(self) -> int | None:
        """Return the offset of the last message, None if it is not whole."""
        if self._length < SMALLEST:
            return None
        size = I32.unpack(os.pread(self._fd, 4, self._length - 4))[0]
        if not SMALLEST <= size <= self._length:
            return None
        begin = self._length - size
        offset, _, _, key = HEAD.unpack(os.pread(self._fd, HEAD.size, begin))
        if not 0 <= key <= size - SMALLEST:
            return None
        value = I32.unpack(os.pread(self._fd, 4, begin + HEAD.size + key))[0]
        return int(offset) if SMALLEST + key + value == size else None

    def __enter__(self) -> Self:
        """Return this."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close it."""
        self.close()


def append(
    path: str | os.PathLike[str],
    entries: Iterable[Entry],
    queue: str | None = None,
    *,
    segment_bytes: int = SEGMENT_BYTES,
    cut: bool = False,
) -> int:
    """Append *entries* to a sej directory that is there, and return how many; see `Appender`."""
    count, entries = 0, iter(entries)
    with Appender(path, queue, segment_bytes=segment_bytes, cut=cut) as appender:
        while some := list(itertools.islice(entries, _files.LIST)):
            count += len(appender.append(*some))
    return count


def commit(
    path: str | os.PathLike[str],
    consumer: str,
    head: int,
    done: Iterable[int] = (),
    queue: str | None = None,
) -> None:
    """
    Commit *head*, the next offset that the reader *consumer* wants (`dir/reader` in a root), as the real program does.

    A reader that is not there is made. It may go back; nothing is held against the journal.

    Raises:
        Busy: the reader is in use: somebody has its lock.
        Unsafe: messages are *done* out of order, for which sej has no place.
        TooLarge: no offset.
    """
    root = _files.directory(path)
    label, reader = split_consumer(consumer, directories(root, queue))
    if not reader or "\0" in reader:
        msg = f"cannot commit for the reader {consumer!r}: a reader needs a name"
        raise BadFormat(msg)
    if tuple(done):
        msg = f"cannot commit for {consumer!r}: sej has no place for messages done out of order; nothing was changed"
        raise Unsafe(msg)
    if not 0 <= head < 1 << 64:
        msg = f"cannot commit offset {head} for {consumer!r}: offsets are 0 .. 2^64-1"
        raise TooLarge(msg)
    folder = root / label / OFFSETS
    folder.mkdir(exist_ok=True)
    with _locks.held([folder / f"{reader}.lck"], f"commit for {consumer!r}"):
        _files.replace(folder / f"{reader}.ofs", U64.pack(head), unfinished=f"{reader}.ofs.tmp")

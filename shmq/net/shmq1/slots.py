"""
Which producer a client's puts are of: one of 1,024 for each queue, and those of clients with a name.

So a million clients that come and go are not a million producers for the queue to remember. A session, 128 random bits,
keeps its slot until it says good-bye, or is silent for a week, or is the one silent for longest when a slot is needed.
What a slot is given is on the disk before the first put goes by it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import struct
import threading
import time
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from shmq import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator

SLOTS = 1024
NAMED = 10_000
WEEK = 7 * 24 * 3600
_RECORD = struct.Struct("<16s16sQQI")
_SUM = struct.Struct("<I")
_BYTES = 64
_FREE, _TAKEN = 0, 1
NOBODY = bytes(16)


@dataclass
class Slot:
    """
    What one slot is given to.

    Attributes:
        session: whose it is.
        name: a digest of the client's name; zeros without one.
        base: the number in the queue of that session's first batch.
        seen: when it was last heard of, in seconds since 1970.
    """

    number: int
    session: bytes = NOBODY
    name: bytes = NOBODY
    base: int = 0
    seen: int = 0
    taken: bool = False

    @property
    def producer(self) -> str:
        """Under which name the queue remembers its batches."""
        return f"net/{self.number}"

    def packed(self, queue_id: bytes) -> bytes:
        """Return its bytes in the table of that queue."""
        body = _RECORD.pack(self.session, self.name, self.base, self.seen, _TAKEN if self.taken else _FREE)
        return (body + _SUM.pack(zlib.crc32(body + queue_id))).ljust(_BYTES, b"\0")


def _unpacked(number: int, data: bytes, queue_id: bytes) -> Slot:
    """
    The slot of those bytes. One that a power cut has torn is free: no put ever went by it. So is one of another queue,
    which had the name before: that it knows a batch says nothing of this one.
    """
    body, (total,) = data[: _RECORD.size], _SUM.unpack_from(data, _RECORD.size)
    if zlib.crc32(body + queue_id) != total:
        return Slot(number)
    session, name, base, seen, state = _RECORD.unpack(body)
    return Slot(number, session, name, base, seen, state == _TAKEN)


class Slots:
    """The table of one queue, for several threads. All of it may block."""

    def __init__(self, root: str, queue: str, queue_id: str, adopted: Callable[[str], Any]) -> None:
        """
        Open that of *queue*, which has that id.

        *adopted*: says what the queue has as the last batch of a producer, as `shmq.Queue.adopted`.
        """
        folder = os.path.join(root, ".serve", "sessions")
        self._queue = queue
        self._id = queue_id.encode()
        self._lock = threading.Lock()
        self._path = os.path.join(folder, quote(queue, safe=""))
        self._adopted = adopted
        with self._told_if_full():
            self._open(root, folder)

    def _open(self, root: str, folder: str) -> None:
        _put_aside(folder, stat.S_ISDIR)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        _put_aside(self._path, stat.S_ISREG)
        is_new = not os.path.exists(self._path)
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        if is_new:
            for each in (folder, os.path.dirname(folder), root):
                _sync_directory(each)
        data = os.pread(self._fd, (SLOTS + NAMED) * _BYTES, 0)
        parts = (data[at : at + _BYTES] for at in range(0, len(data) - _BYTES + 1, _BYTES))
        self._slots = [_unpacked(number, part, self._id) for number, part in enumerate(parts)]

    def find(self, session: bytes) -> Slot | None:
        """Return the slot of that session, if it still has one."""
        return next((slot for slot in self._slots if slot.taken and slot.session == session), None)

    def take(self, session: bytes, client: str | None, busy: Container[bytes]) -> Slot:
        """
        Return the slot of that session; a new one if it has none.

        Args:
            client: the client's name, whose slot is its own for ever; what an older session of it has sent and was not
                told of is not put any more.
            busy: the sessions that are connected, whose slots are not taken away.

        Raises:
            TooMany: every slot is a connected client's.
            DiskFull, OSError: the disk refused; whoever had the slot has it still.
        """
        with self._lock, self._told_if_full():
            known = self.find(session)
            found = known or (self._choose(busy) if client is None else self._of_name(_digest(client)))
            before = dict(vars(found))
            try:
                if known is None:
                    self._give(found, session)
                found.seen = int(time.time())
                self._write(found)
                os.fdatasync(self._fd)
            except BaseException:
                vars(found).update(before)
                raise
            return found

    def _give(self, found: Slot, session: bytes) -> None:
        last = self._adopted(found.producer)
        found.session, found.taken = session, True
        found.base = 0 if last is None else last[0] + 1

    @contextlib.contextmanager
    def _told_if_full(self) -> Iterator[None]:
        try:
            yield
        except OSError as problem:
            if problem.errno not in {errno.ENOSPC, errno.EDQUOT}:
                raise
            raise errors.DiskFull(
                f"cannot put into {self._queue}: the server has no room on its disk to remember this client; nothing "
                "was put"
            ) from problem

    def _choose(self, busy: Container[bytes]) -> Slot:
        self._fill(SLOTS)
        plain = self._slots[:SLOTS]
        old = time.time() - WEEK
        free = next((slot for slot in plain if not slot.taken or (slot.seen < old and slot.session not in busy)), None)
        if free is not None:
            return free
        silent = [slot for slot in plain if slot.session not in busy]
        if not silent:
            raise errors.TooMany(f"{SLOTS} clients put into this queue already; nothing was put")
        return min(silent, key=lambda slot: slot.seen)

    def _of_name(self, digest: bytes) -> Slot:
        self._fill(SLOTS)
        known = next((slot for slot in self._slots[SLOTS:] if slot.name == digest), None)
        if known is not None:
            return known
        for slot in self._slots[SLOTS:]:
            if slot.name == NOBODY:
                slot.name = digest
                return slot
        if len(self._slots) >= SLOTS + NAMED:
            raise errors.TooMany(f"{NAMED} clients with a name have put into this queue already; nothing was put")
        self._slots.append(Slot(len(self._slots), name=digest))
        return self._slots[-1]

    def _fill(self, count: int) -> None:
        self._slots += [Slot(number) for number in range(len(self._slots), count)]

    def seen(self, slot: Slot) -> None:
        """Its client was here until now. It need not be on the disk: a week is long."""
        with self._lock:
            slot.seen = int(time.time())
            self._write(slot)

    def free(self, slot: Slot) -> None:
        """Its client has said good-bye. One with a name keeps it."""
        if slot.name == NOBODY:
            slot.taken = False
        self.seen(slot)

    def _write(self, slot: Slot) -> None:
        os.pwrite(self._fd, slot.packed(self._id), slot.number * _BYTES)

    def close(self) -> None:
        """Close the file. Closing twice is fine."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _digest(client: str) -> bytes:
    return hashlib.blake2b(client.encode(), digest_size=16).digest()


def _put_aside(path: str, is_fit: Callable[[int], bool]) -> None:
    """
    Rename what is at *path* and cannot be what belongs there, so that this is made anew.

    Raises:
        OSError: it is a link, which nobody follows.
    """
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISLNK(mode):
        raise OSError(errno.ELOOP, "symbolic links are not followed here", path)
    if not is_fit(mode):
        os.rename(path, f"{path}.damaged-{time.time_ns()}")


def _sync_directory(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

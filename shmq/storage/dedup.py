"""
What was put with dedup: once for each (producer, sequence), whoever is killed wherever.

The record itself says who put it and which of his it is, so there is no moment at which a message is in the queue and
its id is not. Everything else is a cache that is made again by walking the records:

    in a process     {producer: the last of his}, and how far the walk has come
    dedup.shmq       the same for whole chunks, so that nobody walks from the beginning; what retires a chunk notes
                     first what is in it, and what is noted is on the disk before the note

Puts and adoptions with dedup take turns, by an OFD lock on a byte of control.shmq. So whoever holds it knows of every
open claim that it is none of these: it belongs to a put without dedup, or to somebody who was killed.
"""

from __future__ import annotations

import contextlib
import functools
import os
import struct
import time
from typing import TYPE_CHECKING, Any

from shmq import _native, errors
from shmq.storage import staging
from shmq.storage.directory import ADMIN_TIMEOUT, CONTROL, DEDUP, DEDUP_NEW, LEDGER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmq.storage.chain import Chain
    from shmq.storage.directory import Directory

NOTE_CHUNKS = 4
"""How many whole chunks a walk has passed when it is noted how far it came."""
_FIELD = struct.Struct("<16sQ")
_NAP_FIRST, _NAP_MAX = 0.00005, 0.005

Batches = dict[bytes, staging.Adopted]


@functools.lru_cache(maxsize=1024)
def identity(producer: bytes) -> bytes:
    """What a record says instead of a producer's name."""
    import hashlib  # noqa: PLC0415  # only who uses it pays for it

    return hashlib.blake2b(producer, digest_size=16).digest()


def field(producer: bytes, sequence: int) -> _native.Fixed:
    """What a record has: struct field_dedup of layout.h."""
    return _native.RECORD_DEDUP, _FIELD.pack(identity(producer), sequence)


def is_used(home: Directory) -> bool:
    """Whether anything was ever put with dedup here."""
    try:
        os.stat(DEDUP, dir_fd=home.fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


# ---------------------------------------------------------------- the note
def read_note(home: Directory) -> tuple[int, Batches] | None:
    """
    The first chunk that is not noted, and the last put of each identity before it; None when there is no note.

    Raises:
        Corrupt: it is damaged.
    """
    try:
        stored = staging.read_record(home, home.fd, DEDUP, home.path)
    except FileNotFoundError:
        return None
    with contextlib.suppress(TypeError, ValueError, AttributeError):
        sequence, batches = stored
        return int(sequence), {who: staging.Adopted(*batch) for who, batch in batches.items()}
    raise errors.Corrupt(f"cannot read {home.path}/{DEDUP}: it is no note of what was put; nothing was changed")


def write_note(home: Directory, sequence: int, batches: Batches) -> None:
    """Replace the note, synced. Under the administrative lock only."""
    content = [sequence, {who: list(batch) for who, batch in batches.items()}]
    staging.replace_record(home, DEDUP, DEDUP_NEW, content, "dedup")


def begin(home: Directory) -> None:
    """Have a note before the first put with dedup: from then on nothing retires unnoted."""
    if not is_used(home):
        with home.admin():
            if not is_used(home):
                write_note(home, 0, {})


def note(home: Directory, chain: Chain, before: int) -> bool:
    """
    Note what is in the chunks before that sequence; False when one of them has an open claim.

    Under the administrative lock only. What is noted is synced first: a power cut takes nothing that is noted.
    """
    known = read_note(home)
    if known is None or known[0] >= before:
        return True
    sequence, batches = known
    for number, base in chain.names():
        if sequence <= number < before:
            chunk = chain.open(number, base)
            if chunk.resolved().code != _native.ROLL:
                return False
            _walk(chunk, 0, 0, batches)
    staging.sync_up_to(home, before - 1)
    write_note(home, before, batches)
    return True


def _walk(chunk: _native.Chunk, position: int, ordinal: int, batches: Batches) -> tuple[int, int, int]:
    """Enter what is in the chunk from there on: (code, position, ordinal) of where the walk ends."""
    while True:
        code, position, ordinal, found = chunk.next_dedup(position, ordinal)
        if found is None:
            return code, position, ordinal
        _enter(batches, found.producer, staging.Adopted(found.sequence, found.first, found.indexes))


def _enter(batches: Batches, who: bytes, batch: staging.Adopted) -> None:
    before = batches.get(who)
    if before is None or before.sequence < batch.sequence:
        batches[who] = batch


# ---------------------------------------------------------------- taking turns
@contextlib.contextmanager
def alone(home: Directory, deadline_ns: int, tried: str) -> Iterator[None]:
    """
    Be the only one in all processes and threads who puts or adopts with dedup.

    Raises:
        Busy: somebody was at it all that time.
    """
    nap = _NAP_FIRST
    while True:
        fd, _ = home.open(home.fd, CONTROL, writable=True)
        lock = _native.Lock(fd)
        try:
            if lock.take(_native.LOCK_DEDUP):
                yield
                return
        finally:
            lock.free()
        if 0 <= deadline_ns <= _native.monotonic_ns():
            raise errors.Busy(f"cannot {tried} {home.path}: somebody else was at it all the time; nothing was put")
        time.sleep(nap)
        nap = min(nap * 2, _NAP_MAX)


def admin_deadline() -> int:
    """When an administrative action gives up."""
    return _native.monotonic_ns() + int(ADMIN_TIMEOUT * 1e9)


# ---------------------------------------------------------------- what was put
class Known:
    """The last batch of every producer, put or adopted, as far as one process has looked. For one thread at a time."""

    def __init__(self, home: Directory, chain: Chain) -> None:
        """Nothing is known yet."""
        self._home = home
        self._chain = chain
        self._forget()

    def _forget(self) -> None:
        self._chunk: _native.Chunk | None = None
        self._place = (0, 0)
        self._noted = 0
        self._put: Batches = {}
        self._adopted: Batches = {}
        self._ledger_seen: Any = None

    def last(self, producer: bytes) -> staging.Adopted | None:
        """
        The last batch of that producer. Who is about to put holds the lock meanwhile.

        Raises:
            Corrupt: a note or a chunk is damaged.
        """
        self._look_at_ledger()
        while True:
            try:
                self._walk_on()
                break
            except (errors.Gone, FileNotFoundError):  # retired meanwhile, and noted before that
                self._forget()
                self._look_at_ledger()
        who = identity(producer)
        found = [batch for batch in (self._put.get(who), self._adopted.get(who)) if batch is not None]
        return max(found, key=lambda batch: batch.sequence, default=None)

    def worth_noting(self) -> int:
        """Before which chunk to note now; 0 when it is not worth it."""
        if self._chunk is None or self._chunk.sequence < self._noted + NOTE_CHUNKS:
            return 0
        return self._chunk.sequence

    def noted(self, before: int) -> None:
        """It was."""
        self._noted = before

    def _look_at_ledger(self) -> None:
        try:
            info = os.stat(LEDGER, dir_fd=self._home.fd, follow_symlinks=False)
        except FileNotFoundError:
            return
        seen = (info.st_ino, info.st_mtime_ns, info.st_size)
        if seen != self._ledger_seen:
            for producer, batch in staging.ledger(self._home).items():
                _enter(self._adopted, identity(producer), batch)
            self._ledger_seen = seen

    def _walk_on(self) -> None:
        if self._chunk is None:
            self._begin()
        while self._chunk is not None:
            code, *place = _walk(self._chunk, *self._place, self._put)
            self._place = (place[0], place[1])
            following = self._chain.after(self._chunk) if code == _native.ROLL else None
            if following is None:
                return
            self._pass(self._chunk)
            self._chunk, self._place = following, (0, 0)

    def _begin(self) -> None:
        self._noted, self._put = read_note(self._home) or (0, {})
        live = [name for name in self._chain.names() if name[0] >= self._noted]
        if live:
            self._noted = max(self._noted, live[0][0])
            self._chunk, self._place = self._chain.open(*live[0]), (0, 0)

    def _pass(self, chunk: _native.Chunk) -> None:
        """What was adopted behind that chunk is in the ledger, or will be: then its manifest says the same."""
        adoption = chunk.adoption()
        if not adoption:
            return
        try:
            with staging.open_set(self._home, f"{adoption:010x}") as found:
                manifest = found.manifest()
                if manifest.producer and chunk.chunk_id() not in manifest.chunk_ids:
                    base = chunk.sealed() or 0
                    batch = staging.Adopted(manifest.sequence, base, sum(manifest.counts))
                    _enter(self._adopted, identity(manifest.producer), batch)
        except FileNotFoundError:
            self._ledger_seen = None
            self._look_at_ledger()


def known(last: staging.Adopted | None, producer: bytes, sequence: int, tried: str) -> range | None:
    """
    What that batch was put or adopted as; None when it was not.

    Raises:
        Mismatch: a later one was.
    """
    if last is None or last.sequence < sequence:
        return None
    if last.sequence > sequence:
        raise errors.Mismatch(
            f"cannot {tried}: it is batch {sequence} of {producer!r}, batch {last.sequence} was put or adopted before "
            "it, and sequences ascend; nothing was changed"
        )
    return range(last.first, last.first + last.indexes)


def rewind(home: Directory, end: int, *, last: int) -> None:
    """
    After a power cut: forget what is not there any more. By whoever recovers the queue.

    *end*: the index behind what is kept; *last*: the last chunk that is.
    """
    with contextlib.suppress(FileNotFoundError):
        os.unlink(DEDUP_NEW, dir_fd=home.fd)
    try:
        found = read_note(home)
    except errors.Corrupt:
        return  # whoever puts next is told
    if found is None:
        return
    batches = {who: batch for who, batch in found[1].items() if batch.first + batch.indexes <= end}
    if len(batches) != len(found[1]) or found[0] > last:
        write_note(home, 0, batches)  # what is left is looked for in all there is

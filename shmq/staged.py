"""
Messages built aside: as many as you like, seen by nobody, until a queue adopts all of them at once.

A Staged is a producer whose chain is a folder of its own. Forgotten or killed it leaves nothing visible.
"""

from __future__ import annotations

import contextlib
import operator
import os
import time
from typing import TYPE_CHECKING, Any

from shmq import _native, errors
from shmq.producer import Producer
from shmq.storage import staging, sync
from shmq.storage.chain import Chain

if TYPE_CHECKING:
    from shmq.queue import Queue
    from shmq.storage.directory import Directory

_SEQUENCE_MAX = (1 << 63) - 1
_SETTLE_SECONDS = 30.0


class _Aside:
    """The chunks of one staged set, in place of a chain."""

    def __init__(self, home: Directory, member: _native.Member, chunks: staging.Set) -> None:
        """No chunk yet."""
        self._home = home
        self._member = member
        self._set = chunks
        self.files: list[str] = []
        self.bases: list[int] = []

    def tail(self) -> _native.Chunk:
        """The first chunk."""
        return self._make(0, 0)

    def roll(self, chunk: _native.Chunk, region: int = 0) -> _native.Chunk:
        """The chunk behind a sealed one."""
        base = chunk.sealed()
        return chunk if base is None else self._make(base, region)

    def _make(self, base: int, region: int) -> _native.Chunk:
        fd, size, name = self._set.add(len(self.files), region)
        try:
            chunk = self._map(fd, size, name, len(self.files), base, writable=True)
        finally:
            os.close(fd)
        chunk.seals_as(self._set.adoption)
        self.files.append(name)
        self.bases.append(base)
        return chunk

    def _map(self, fd: int, size: int, name: str, number: int, base: int, *, writable: bool) -> _native.Chunk:
        return _native.Chunk(
            fd,
            size,
            base=base,
            sequence=number,
            queue_id=self._home.queue_id,
            member=self._member,
            path=f"{self._set.path}/{name}",
            writable=writable,
            padding=False,
            checksum=self._home.options.checksum,
        )

    def checked(self) -> tuple[list[int], list[int], list[int]]:
        """Chunk ids, counts and sizes, after reading every message back and syncing every file."""
        ids, counts, sizes = [], [], []
        for number, (name, base) in enumerate(zip(self.files, self.bases, strict=True)):
            fd, size = self._home.open(self._set.fd, name, writable=False)
            try:
                chunk = self._map(fd, size, name, number, base, writable=False)
                chunk.messages()
                end = chunk.sealed()
                if end is None:
                    raise errors.Corrupt(f"cannot adopt {chunk.path}: it is not sealed")
                ids.append(chunk.chunk_id())
                counts.append(end - base)
                sizes.append(size)
                sync.data(fd, "staged")
            finally:
                os.close(fd)
        return ids, counts, sizes


class Staged(Producer):
    """
    Messages that are not in the queue yet. Made by `Queue.stage`, joined by `Queue.adopt`; a context manager.

    `put`, `put_many` and `reserve` are a producer's; what they return counts from 0 within this Staged.
    """

    def __init__(self, queue: Queue) -> None:
        """See `Queue.stage`."""
        self._pid = os.getpid()
        self._set: staging.Set | None = None
        self._sealed = False
        self._tried = False
        super().__init__(queue)

    def _make_chain(self) -> Any:
        self._set = staging.begin(self._home)
        return _Aside(self._home, self._membership.member, self._set)

    def _make_syncer(self) -> None:
        """All of it is synced when it is adopted."""

    def _roll(self, tail: _native.Chunk, region: int) -> None:
        if self._sealed:
            raise errors.Closed(f"cannot put into what was staged for {self._home.path}: it is being adopted")
        with self._lock:
            if self._tail is tail:
                self._use(self._chain.roll(tail, region))

    def _rejoin(self) -> None:
        raise errors.Forked(
            f"what was staged for {self._home.path} belongs to the parent process {self._pid}; stage your own"
        )

    @property
    def queue_id(self) -> bytes:
        """The queue that it was staged for."""
        return self._home.queue_id

    def __len__(self) -> int:
        """How many indexes it will take."""
        return int(self._tail.next_index())

    def __bool__(self) -> bool:
        """True, also when nothing was put yet."""
        return True

    def close(self) -> None:
        """Forget what was staged, unless it was adopted. Closing twice is fine."""
        if os.getpid() != self._pid:
            return
        chunks, self._set = self._set, None
        super().close()
        if chunks is not None:
            with contextlib.suppress(OSError):  # the next opener sweeps it
                if not self._tried:  # else it may be committed, which is for the holder of the lock to find out
                    chunks.remove()
            chunks.close()

    # ---- adopting
    def _seal(self) -> None:
        """Nothing is put any more; the last chunk is sealed plainly, for the chain goes on behind it as ever."""
        with self._lock:
            self._sealed = True
            self._tail.seals_as(0)
            self._tail.seal()
            if self._tail.adoption():  # it was full, and nothing came behind it
                self._use(self._chain.roll(self._tail))
                self._tail.seals_as(0)
                self._tail.seal()

    def adopt(self, dedup: tuple[str | bytes, int] | None) -> range:
        """As `Queue.adopt`, which is how to call it."""
        self._check_open()
        if os.getpid() != self._pid:
            self._rejoin()
        producer, sequence = _check_dedup(dedup)
        self._seal()
        ids, counts, sizes = self._chain.checked()
        manifest = staging.Manifest(producer, sequence, self._chain.files, ids, counts, sizes)
        home, control = self._home, self._membership.control
        chain = Chain(home, self._membership.member)
        with home.admin():
            staging.fold(home, chain)
            known = _known(home, producer, sequence)
            if known is not None:
                return known
            if control.is_shut_down():
                raise errors.ShutDown(f"cannot adopt into {home.path}: it was shut down; nothing was adopted")
            if control.sync_failed():
                raise errors.SyncFailed(
                    f"cannot adopt into {home.path}: a sync of it failed before; nothing was adopted"
                )
            self._tried = True
            adopted = _join(self._set, manifest, chain) if sum(counts) else _nothing(home, chain, producer, sequence)
            staging.fold(home, chain)
        control.wake()
        return adopted


def _known(home: Directory, producer: bytes, sequence: int) -> range | None:
    """What this batch was adopted as, if it was."""
    before = staging.ledger(home).get(producer) if producer else None
    if before is None or before.sequence < sequence:
        return None
    if before.sequence > sequence:
        raise errors.Mismatch(
            f"cannot adopt batch {sequence} of {producer!r} into {home.path}: batch {before.sequence} was adopted "
            "before it, and sequences ascend; nothing was adopted"
        )
    return range(before.first, before.first + before.indexes)


def _join(chunks: staging.Set | None, manifest: staging.Manifest, chain: Chain) -> range:
    assert chunks is not None  # noqa: S101  # open, so it has one
    chunks.drop_manifest()  # of a try that failed
    chunks.commit_manifest(manifest)
    tail = chain.tail()
    chunks.home.raise_ceiling(tail.base + tail.size // _native.RECORD_BYTES_MIN + sum(manifest.counts))
    while not tail.seal_adopt(chunks.adoption):  # with this, it is adopted
        tail = chain.roll(tail)
        chunks.home.raise_ceiling(tail.base + tail.size // _native.RECORD_BYTES_MIN + sum(manifest.counts))
    chain.after(tail)
    placed = chunks.placed()
    assert placed is not None  # noqa: S101  # the line above placed it
    _settle(chunks.home, tail, placed[1])
    return range(placed[1], placed[1] + sum(manifest.counts))


def _settle(home: Directory, tail: _native.Chunk, first: int) -> None:
    """
    Have everything before the SEAL resolved, and then on the disk.

    A recovery cuts at the first claim that is open on the disk. One that a neighbour has not committed before the
    sync would take the SEAL, and the batch with it, although it was said to be adopted.
    """
    until = time.monotonic() + _SETTLE_SECONDS
    while tail.resolved().code == _native.WAITING:
        if time.monotonic() > until:
            raise errors.SyncPending(
                f"the batch is in {home.path} from index {first} on, but a put before it has not ended for "
                f"{_SETTLE_SECONDS:g} s; until it does, a power cut may take the batch. Do not adopt it again",
                first,
            )
        time.sleep(0.001)
    staging.sync_up_to(home, tail.sequence)


def _nothing(home: Directory, chain: Chain, producer: bytes, sequence: int) -> range:
    """An empty batch takes no place, but is remembered."""
    end = chain.next_index()
    if producer:
        staging.write_ledger(home, {**staging.ledger(home), producer: staging.Adopted(sequence, end, 0)})
    return range(end, end)


def check_producer(producer: str | bytes) -> bytes:
    """A producer's name as it is kept."""
    raw = producer.encode() if isinstance(producer, str) else bytes(producer)
    if not 0 < len(raw) <= staging.PRODUCER_MAX:
        raise ValueError(f"a producer's name of {len(raw)} bytes: 1 to {staging.PRODUCER_MAX}")
    return raw


def _check_dedup(dedup: tuple[str | bytes, int] | None) -> tuple[bytes, int]:
    if dedup is None:
        return b"", 0
    producer, sequence = dedup
    number = operator.index(sequence)
    if not 0 <= number <= _SEQUENCE_MAX:
        raise ValueError(f"sequence {number}: from 0 to 2^63-1")
    return check_producer(producer), number

"""The queue: verbs made of nouns. Opens a home, hands out producers, consumers and readers."""

from __future__ import annotations

import contextlib
import dataclasses
import operator
import os
from typing import TYPE_CHECKING, Any, Self, overload

from shmq import _native, errors, locks, membership
from shmq.access import Access, Extent
from shmq.codec import codec
from shmq.consumer import Consumer
from shmq.options import Options
from shmq.producer import Producer
from shmq.reader import Reader
from shmq.storage import directory, files, space, staging
from shmq.storage.chain import Chain

if TYPE_CHECKING:
    import datetime
    from collections.abc import Iterable, Mapping, Sequence
    from types import TracebackType

    from shmq.arrow import Batches
    from shmq.message import Message
    from shmq.producer import Slot
    from shmq.staged import HandedOver, Staged


@dataclasses.dataclass(frozen=True)
class ConsumerStats:
    """One consumer name: its head, how far it is behind the end, and its ack mode."""

    head: int
    lag: int
    ack: str


@dataclasses.dataclass(frozen=True)
class Stats:
    """
    What is in a queue and who is at it, as it was while looking.

    Attributes:
        first_index, next_index: the indexes there are; next_index is the next put's.
        chunks, disk_bytes: chunk files, and bytes the file system counts for all files.
        padded: indexes that a dead or aborted claim took, since the queue was made or the machine booted.
        fenced: commits that came too late, likewise.
        participants: processes that have it open.
        consumers: by name.
    """

    first_index: int
    next_index: int
    chunks: int
    disk_bytes: int
    padded: int
    fenced: int
    participants: int
    consumers: dict[str, ConsumerStats]


def open(  # noqa: A001  # shmq.open, as gzip.open
    path: str | os.PathLike[str],
    *,
    create: bool = True,
    read_only: bool = False,
    options: Options | None = None,
    trusted: bool = False,
    unsafe_filesystem: bool = False,
) -> Queue:
    """
    Open the queue in the directory *path*; make it if there is none.

    Args:
        path: the directory. The one above it must exist.
        create: whether to make the queue when it is absent.
        read_only: change nothing at all, not even a hint; then nothing can be put, and no consumer opened.
        options: what to make it with. For a queue that exists they are not needed; those given must agree with it.
        trusted: allow codec "pickle", whose messages run code when they are read.
        unsafe_filesystem: allow a network file system that you know only this machine uses.

    Raises:
        NotFound: there is none, and it was not to be made; or the directory above is missing.
        Mismatch: an option contradicts the queue.
        BadFormat, Corrupt, Unsafe, UnsafeFilesystem, Untrusted, DiskFull: as their names say.
    """
    return Queue(
        os.fspath(path),
        create=create,
        read_only=read_only,
        options=options,
        trusted=trusted,
        unsafe_filesystem=unsafe_filesystem,
    )


class Queue:
    """
    One queue, open. Made by `shmq.open`. Safe to share between threads; opens itself anew in a forked child.

    Attributes:
        path: its directory.
        options: what it was made with.
    """

    def __init__(
        self,
        path: str,
        *,
        create: bool = True,
        read_only: bool = False,
        options: Options | None = None,
        trusted: bool = False,
        unsafe_filesystem: bool = False,
    ) -> None:
        """See `shmq.open`."""
        if not isinstance(path, str) or not path:
            raise ValueError(f"{path!r} is no path")
        self.path = os.path.abspath(path)
        self._flags: dict[str, Any] = {
            "read_only": read_only,
            "trusted": trusted,
            "unsafe_filesystem": unsafe_filesystem,
        }
        self.closed = False
        self._lock = locks.Lock()
        self._producer: Producer | None = None
        self._membership: membership.Membership | None = None
        self._access: Access | None = None
        self._home = self._open_home(options, create=create and not read_only)
        self.options = self._home.options
        try:
            if options is not None:
                options.check_against(self.options, self.path)
            self._codec = self._find_codec(trusted=trusted)
            self._joined()
            self._chain().names()
            self._sweep()
        except BaseException:
            self.close()
            raise

    def _open_home(self, options: Options | None, *, create: bool) -> directory.Directory:
        above = os.path.dirname(self.path)
        if not self._flags["unsafe_filesystem"] and os.path.exists(above):
            files.refuse_network(self.path, self.path if os.path.exists(self.path) else above)
        try:
            return self._existing_home()
        except errors.NotFound:
            if not create:
                raise
        made = options or Options()
        codec(made.codec, trusted=self._flags["trusted"])  # refuse before anything is made
        directory.create(self.path, made)
        return self._existing_home()

    def _existing_home(self) -> directory.Directory:
        read_only = self._flags["read_only"]
        return directory.Directory(self.path, read_only=read_only, trust_owner=read_only)

    def _find_codec(self, *, trusted: bool) -> Any:
        try:
            return codec(self.options.codec, trusted=trusted)
        except errors.Untrusted as problem:
            raise errors.Untrusted(f"cannot open {self.path}: {problem}") from None

    def _joined(self) -> membership.Membership:
        """This process's membership; a new one in a forked child."""
        with self._lock:
            if self.closed:
                raise errors.Closed(f"{self.path} was closed; open it again")
            if self._membership is None or self._membership.member.forked():
                self._membership = membership.join(self._home)
            return self._membership

    def _lend(self) -> tuple[directory.Directory, membership.Membership]:
        """Home and membership for one handle more, which gives both back when it is closed."""
        with self._lock:
            joined = self._joined()
            return self._home.retain(), joined.retain()

    def _chain(self) -> Chain:
        return Chain(self._home, self._joined().member)

    def _sweep(self) -> None:
        """Finish or remove what killed processes have left in staging, unless somebody else administers the queue."""
        if not self._flags["read_only"] and staging.names(self._home):
            with contextlib.suppress(errors.Busy), self._home.admin(timeout=0):
                staging.fold(self._home, self._chain())

    # ---- putting
    def producer(self) -> Producer:
        """
        A producer of your own; `put` uses one that all threads share.

        Raises:
            DiskFull: there is no room for the first chunk.
            Closed: the queue was closed, or opened read-only.
        """
        self._refuse_read_only("put")
        return Producer(self)

    def _refuse_read_only(self, what: str) -> None:
        if self._flags["read_only"]:
            raise errors.Closed(f"cannot {what}: {self.path} was opened read-only")

    def _shared_producer(self) -> Producer:
        with self._lock:
            if self.closed:
                raise errors.Closed(f"cannot put into {self.path}: it was closed; open it again")
            if self._producer is None:
                self._producer = self.producer()
                self.__dict__["put"] = self._producer.put  # from now on a put costs one Python call less
            return self._producer

    def put(
        self,
        payload: Any,
        *,
        key: bytes | None = None,
        type: int = 0,  # noqa: A002  # the field's name everywhere
        time_ns: int | None = None,
        headers: Mapping[str, Any] | None = None,
    ) -> int:
        """
        Append *payload* and return its index.

        When this returns, every consumer in every process will see the message, even if this process is killed next.

        Args:
            payload: what the queue's codec takes; bytes-like by default.
            key: up to 65,535 bytes that say what it belongs to.
            type: 0 to 65535, the user's own.
            time_ns: its time in ns since 1970; now by default. Times need not ascend.
            headers: a small mapping of text to anything msgpack can hold.

        Raises:
            TooLarge: it fits no chunk; nothing was put.
            DiskFull: there is no room for another chunk; nothing was put.
            Fenced: this process was judged dead; the message is not in the queue.
            ShutDown, Closed: nothing was put.
        """
        producer = self._producer or self._shared_producer()
        return producer.put(payload, key=key, type=type, time_ns=time_ns, headers=headers)

    def put_many(
        self,
        payloads: Iterable[Any],
        *,
        keys: Sequence[bytes | None] | None = None,
        types: Sequence[int] | None = None,
        times_ns: Sequence[int] | None = None,
        headers: Sequence[Mapping[str, Any] | None] | None = None,
    ) -> range:
        """
        Append all *payloads* as one batch, and return their indexes: all of them become visible at once, or none.

        Args:
            payloads: up to 8,191 of them.
            keys, types, times_ns, headers: None, or one entry for each payload; as in `put`.

        Raises:
            TooMany: more than one claim can count; nothing was put.
            ValueError: the lengths differ; nothing was put.
        """
        producer = self._producer or self._shared_producer()
        return producer.put_many(payloads, keys=keys, types=types, times_ns=times_ns, headers=headers)

    def reserve(
        self,
        nbytes: int,
        *,
        key: bytes | None = None,
        type: int = 0,  # noqa: A002
        time_ns: int | None = None,
        headers: Mapping[str, Any] | None = None,
    ) -> Slot:
        """
        Room for a payload of up to *nbytes* bytes, to be filled in place.

            with q.reserve(n) as slot:
                slot.buffer[:] = ...

        The message appears when the block ends, or at `slot.commit(fewer)`; an exception gives the room up. Consumers
        wait at it meanwhile, so fill it at once.

        Raises:
            TooLarge, DiskFull, ShutDown, Closed: as `put`.
        """
        producer = self._producer or self._shared_producer()
        return producer.reserve(nbytes, key=key, type=type, time_ns=time_ns, headers=headers)

    # ---- any amount at once
    def stage(self) -> Staged:
        """
        Build messages aside, any number of them, seen by nobody until `adopt`.

            with q.stage() as staged:
                staged.put_many(...)
                q.adopt(staged)

        Closed, forgotten or killed without that, it leaves nothing behind.

        Raises:
            DiskFull: there is no room for the first chunk.
            Closed: the queue was closed, or opened read-only.
        """
        from shmq.staged import Staged  # noqa: PLC0415  # it knows this module

        self._refuse_read_only("stage")
        return Staged(self)

    def adopt(
        self,
        staged: Staged | HandedOver | str | Sequence[Staged | HandedOver | str],
        *,
        dedup: tuple[str | bytes, int] | None = None,
    ) -> range:
        """
        Append everything that was staged, all or nothing, beside running producers; return its indexes.

        When this returns the messages are on the disk too. Killed at any moment, either all of them are in the queue
        or none is.

        Args:
            staged: from `stage` of this queue; it is closed afterwards. Or a token, in whatever process it was handed
                over (`Staged.hand_over`). Or several, which are appended in the order given, all of them or none.
            dedup: (producer, sequence): who it is from and which batch of theirs, ascending. A batch that was adopted
                before is not adopted again, and what was staged for it goes; its first range is returned.

        Raises:
            Mismatch: a later batch of that producer was adopted already, or it was staged for another queue.
            NotFound: what a token stands for was adopted or swept before; nothing was adopted.
            Busy: something in it is reserved and not committed, or somebody administers the queue for long.
            ShutDown, DiskFull: nothing was adopted; what was handed over still waits.
        """
        from shmq import staged as module  # noqa: PLC0415  # it knows this module

        self._refuse_read_only("adopt")
        alone = isinstance(staged, (module.Staged, module.HandedOver, str))
        several: list[Any] = [staged] if alone else list(staged)  # type: ignore[arg-type]
        for each in several:
            if isinstance(each, module.Staged) and each.queue_id != self._home.queue_id:
                raise errors.Mismatch(f"cannot adopt into {self.path} what was staged for another queue")
        if alone and isinstance(staged, module.Staged) and staged.token is None:
            adopted = staged.adopt(dedup)
            staged.close()
            return adopted
        tokens = [
            each if isinstance(each, str) else each.hand_over() if isinstance(each, module.Staged) else each.token
            for each in several
        ]
        joined = self._joined()
        return module.adopt_handed(self._home, joined.member, joined.control, tokens, dedup)

    def staged(self, token: str) -> HandedOver:
        """
        What waits under that token of `Staged.hand_over`.

        Raises:
            NotFound: it was adopted or swept.
            Mismatch: it was staged for another queue.
        """
        from shmq import staged as module  # noqa: PLC0415

        found, handed = module.find(self._home, token)
        with found:
            return module.describe(self._home.queue_id, found.name, handed)

    def staged_sets(self, owner: str | bytes | None = None) -> list[HandedOver]:
        """Everything that was handed over and waits to be adopted; of that owner alone, if one is given."""
        from shmq import staged as module  # noqa: PLC0415

        raw = None if owner is None else module.check_producer(owner)
        return [
            module.describe(self._home.queue_id, name, handed)
            for name, handed in staging.handed_sets(self._home)
            if handed is not None and raw in (None, handed.owner)
        ]

    def sweep_staged(self, *, older_than: float | None = None, owner: str | bytes | None = None) -> int:
        """
        Remove what was handed over and never adopted; return how many sets. Their tokens are worth nothing afterwards.

        What is a week old goes by itself when the queue is opened or adopts something.

        Args:
            older_than: seconds since it was handed over. What is damaged counts as older.
            owner: of that owner alone. One of the two must be given.

        Raises:
            Busy: somebody administers the queue for long.
        """
        from shmq import staged as module  # noqa: PLC0415

        self._refuse_read_only("sweep")
        if owner is None and older_than is None:
            raise ValueError("sweep_staged() would remove what somebody is about to adopt: give older_than= or owner=")
        raw = None if owner is None else module.check_producer(owner)
        age_ns = 0 if older_than is None else int(older_than * 1e9)

        def unwanted(handed: staging.Handed | None) -> bool:
            if handed is None:
                return raw is None
            return raw in (None, handed.owner) and handed.age_ns() >= age_ns

        with self._home.admin():
            staging.fold(self._home, self._chain())
            return staging.remove_handed(self._home, unwanted)

    def adopted(self, producer: str | bytes) -> tuple[int, range] | None:
        """The last batch adopted from *producer*: its sequence and its indexes. None when there was none."""
        from shmq.staged import check_producer  # noqa: PLC0415

        name = check_producer(producer)
        self._sweep()
        batch = staging.ledger(self._home).get(name)
        return None if batch is None else (batch.sequence, range(batch.first, batch.first + batch.indexes))

    # ---- getting
    def consumer(self, name: str, *, ack: str = "auto", start: str | int | datetime.datetime = "earliest") -> Consumer:
        """
        Open the consumer *name*; make it if there is none. Every name sees every message, from where it stopped.

        Args:
            name: 1 to 64 of A-Z a-z 0-9 _ . - and no dot in front.
            ack: "auto": a message is finished when it is handed out, so it comes at most once. "explicit": when its
                `ack()` is called, so it comes at least once.
            start: where a new name begins: "earliest", "latest", an index, or a datetime: the first message of that
                time or later.

        Raises:
            Busy: another process (or handle) holds the name.
            Mismatch: it was made with the other ack mode.
            Corrupt: its checkpoint is damaged.
        """
        if self._flags["read_only"]:
            raise errors.Closed(f"cannot open a consumer of {self.path}: it was opened read-only; use reader()")
        return Consumer(self, name, ack=ack, start=start)

    def consumers(self) -> dict[str, ConsumerStats]:
        """Every name with a checkpoint here."""
        end = self.next_index
        found = {}
        for name in self._home.consumer_names():
            with contextlib.suppress(FileNotFoundError, errors.Corrupt):
                checkpoint = self._home.checkpoint(name)
                head = checkpoint.head
                ack = "explicit" if checkpoint.explicit else "auto"
                found[name] = ConsumerStats(head=head, lag=max(end - head, 0), ack=ack)
        return found

    def drop_consumer(self, name: str) -> None:
        """
        Forget the consumer *name* and its checkpoint.

        Raises:
            NotFound: there is none.
            Busy: somebody holds it.
        """
        file = f"{directory.check_consumer_name(name)}.checkpoint"
        self._refuse_read_only(f"drop consumer {name!r}")
        self._joined()
        with self._home.admin():
            try:
                fd, _ = self._home.open(self._home.consumers, file, writable=True)
            except FileNotFoundError:
                raise errors.NotFound(f"{self.path} has no consumer {name!r}") from None
            lock = _native.Lock(fd)
            try:
                if not lock.take():
                    raise errors.Busy(f"cannot drop consumer {name!r} of {self.path}: somebody holds it")
                os.unlink(file, dir_fd=self._home.consumers)
            finally:
                lock.free()
        space.retire(self._home, self._chain(), self._joined().control)  # what it alone held back may go

    def reader(
        self,
        start: int | datetime.datetime = 0,
        stop: int | datetime.datetime | None = None,
        *,
        reverse: bool = False,
        follow: bool = False,
    ) -> Reader:
        """
        Read from *start* on, without a checkpoint: changes nothing for anybody.

        Args:
            start: the first index; negative counts from the end. A datetime: the first message of that time or later.
            stop: the index before which to end; or the time, at the first message of that time or later.
            reverse: deliver the same messages from the last to the first. Regions that are claimed and not committed
                yet, at which reading forward ends, are left out.
            follow: wait for more at the end, until the queue is shut down or closed.

        Raises:
            ValueError: reverse and follow; there is no end to begin from.
        """
        return Reader(self, start, stop, reverse=reverse, follow=follow)

    def read_arrow(
        self,
        start: int | datetime.datetime = 0,
        stop: int | datetime.datetime | None = None,
        columns: Sequence[str] | None = None,
        max_bytes: int | None = None,
        *,
        max_rows: int = 10_000,
    ) -> Batches:
        """
        Read what is there from *start* on as pyarrow record batches, a million messages in a tenth of a second.

        As `reader` it changes nothing for anybody, and it ends at the same places: the stop, the end, a message that is
        claimed and not committed yet. A batch has the messages of one chunk file; they are copied, and stay valid.

        Args:
            start, stop: as in `reader`.
            columns: some of "index" (uint64), "time" (timestamp[ns, UTC]), "key" (binary; null when there is none),
                "type" (uint16), "payload" (binary: the bytes as they were put, whatever the codec), "headers" (binary,
                msgpack; null when there are none), in the order wanted; by default the first five. What is not named
                is not looked at: index, time and type alone are read without the payloads, whose checksums are then not
                checked either. With any of the others, they are.
            max_bytes: of keys, payloads and headers in a batch, 16 MiB by default; one message may have more.
            max_rows: messages in a batch.

        Raises:
            ImportError: there is no pyarrow: pip install 'shmq[arrow]'.
            Corrupt: while iterating: the next message is damaged; it says which. What came before it was delivered.
        """
        from shmq.arrow import Batches  # noqa: PLC0415  # only who uses it pays for it

        reader = Reader(self, start, stop, reverse=False, follow=False)
        try:
            return Batches(reader, columns, max_rows, max_bytes)
        except BaseException:
            reader.close()
            raise

    def _from_end(self, index: int) -> int:
        index = operator.index(index)
        return index if index >= 0 else max(self.next_index + index, 0)

    def _random(self) -> Access:
        """Random access for this process; made anew in a forked child."""
        access = self._access
        if access is None or access.forked():
            with self._lock:
                access = self._access = Access(self._home, self._joined(), self._codec.decode)
        return access

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        """
        The message at *index*; negative counts from the end. For a slice, the messages there are of it, as a list.

        Raises:
            IndexError: there is none; the text says why.
            Corrupt: it is damaged.
        """
        access = self._access
        if access is not None and type(index) is int and index >= 0:  # asked a million times a second
            try:
                return access.message(index)
            except errors.Forked:
                pass
        access = self._random()
        if isinstance(index, slice):
            return access.sliced(index)
        wanted = operator.index(index)
        if wanted < 0:
            wanted += access.next_index()
        if wanted < 0:
            first, end = access.first_index(), access.next_index()
            raise IndexError(f"{self.path} has no message {index}: its indexes go from {first} to {end - 1}")
        return access.message(wanted)

    def at(self, time: datetime.datetime | int) -> int:
        """
        The index of the first message whose time is *time* or later; `next_index` when there is none.

        Times given with a put need not ascend: it is the first by index. What is claimed and not committed yet has no
        time.

        Args:
            time: a datetime (without a zone: local), or ns since 1970.
        """
        return self._random().at(time)

    # ---- looking
    @property
    def first_index(self) -> int:
        """The first index still there."""
        return self._random().first_index()

    @property
    def next_index(self) -> int:
        """The index behind the last claimed one: the next put's, if nobody else puts."""
        return self._random().next_index()

    @property
    def committed_index(self) -> int:
        """
        The index behind the part that is decided: each message below it is there for good, and none will appear there.

        It is `next_index` unless somebody is in the middle of a put. Between two calls it never goes back.
        """
        return self._random().committed()

    @property
    def id(self) -> str:
        """What tells this queue from any other, also from one that is made at the same place later: 32 hex digits."""
        return self._home.queue_id.hex()

    def extents(self, start: int = 0, stop: int | None = None) -> list[Extent]:
        """
        Where messages lie: runs of indexes that share a chunk, with the bytes they take, in order.

        For sharing out a long read: cut at these, and within them at multiples of `options.index_spacing` from the
        chunk's first index, where a reader begins without a walk.
        """
        access = self._random()
        return access.extents(start, access.committed() if stop is None else stop)

    def __len__(self) -> int:
        """How many messages there are, for all consumers; what is padded is not counted."""
        return max(self.next_index - self.first_index - self._joined().control.counters()[0], 0)

    def __bool__(self) -> bool:
        """A queue is true, also when it is empty."""
        return True

    def stats(self) -> Stats:
        """Figures for people and monitors."""
        member = self._joined()
        padded, fenced = member.control.counters()
        seats = member.control.participants()
        return Stats(
            first_index=self.first_index,
            next_index=self.next_index,
            chunks=len(self._chain().names()),
            disk_bytes=self._home.disk_bytes(),
            padded=padded,
            fenced=fenced,
            participants=sum(member.member.slot_locked(slot) for slot, *_ in seats),
            consumers=self.consumers(),
        )

    # ---- ending
    def shutdown(self) -> None:
        """Refuse puts from now on; gets drain what is left, then raise ShutDown. It lasts until all processes left."""
        self._refuse_read_only("shut down")
        control = self._joined().control
        control.shut_down(on=True)
        control.wake()

    def close(self) -> None:
        """
        Close this handle. Closing twice is fine.

        Consumers and producers of it stay usable until they are closed; readers end.
        """
        with self._lock:
            if self.closed:
                return
            self.closed = True
            self._access = None
        if self._producer is not None:
            self._producer.close()
        if self._membership is not None:
            if not (self._flags["read_only"] or self._membership.member.forked()):
                self._membership.control.wake()  # readers that follow
            self._membership.leave()
        self._home.close()

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """A queue pickles to its place, so that it crosses spawn and forkserver."""
        return _reopen, (self.path, self._flags)

    def __repr__(self) -> str:
        """Its path, and whether it is closed."""
        return f"<shmq.Queue {self.path}{' (closed)' if self.closed else ''}>"


def _reopen(path: str, flags: dict[str, Any]) -> Queue:
    return Queue(path, create=False, **flags)


def delete(path: str | os.PathLike[str]) -> None:
    """
    Delete the queue at *path*, with everything in it.

    Raises:
        NotFound: there is none.
        Busy: a process has it open.
    """
    queue = Queue(os.fspath(path), create=False, trusted=True)
    try:
        with directory.admin_lock(queue.path):
            if queue.stats().participants > 1 or queue._joined().shared():  # noqa: SLF001
                raise errors.Busy(f"cannot delete {queue.path}: it is open, here or in another process")
            directory.delete(queue._home)  # noqa: SLF001  # this is its module
    finally:
        queue.close()

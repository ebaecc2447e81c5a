"""The queue as users see it: `open`, and Queue, whose methods put, read, and hand out producers and consumers."""

from __future__ import annotations

import contextlib
import operator
import os

from shmq import _native, ending, errors, given, habits, later
from shmq import filter as filters
from shmq.closable import Closable
from shmq.deadlines import deadline_of
from shmq.early import early_put
from shmq.hints import TYPE_CHECKING, Any, T, Unpack, cast
from shmq.options import OptionKeywords, Options, OtherKeywords
from shmq.putting.producer import Producer
from shmq.reading.access import INDEX_MAX, Access, Extent, nanoseconds, nanoseconds_of_int
from shmq.reading.reader import Reader
from shmq.session import Session
from shmq.storage import paths, pins, sources
from shmq.taking import names, subscribing
from shmq.taking.consumer import Consumer
from shmq.where import says_where

if TYPE_CHECKING:
    import datetime
    from collections.abc import Iterable, Mapping, Sequence
    from types import EllipsisType
    from typing import Literal, Never, overload  # where whoever reads for the site looks for it

    from shmq.codec import AsBytes, Codec
    from shmq.filter import Filter
    from shmq.message import Message
    from shmq.options import Retention
    from shmq.putting.handed import HandedOver
    from shmq.putting.producer import Slot
    from shmq.putting.staged import Staged
    from shmq.reading.arrow import Batches
    from shmq.reading.columns import Columns
    from shmq.reading.latest import Latest
    from shmq.stats import ConsumerStats, Stats
    from shmq.storage.copying import Copied
    from shmq.storage.recover.progress import Recovery
    from shmq.storage.repairing import Repaired
    from shmq.storage.verify import Verified
    from shmq.taking.group import GroupConsumer
    from shmq.taking.group_place import GroupPlace
    from shmq.taking.lone import LoneConsumer
else:
    from shmq.hints import overload


@overload
def open(  # noqa: A001
    path: str | os.PathLike[str] | None,
    *,
    create: bool = ...,
    read_only: bool = ...,
    options: None = ...,
    trusted: bool = ...,
    unsafe_filesystem: bool = ...,
    codec: Literal["bytes"] = ...,
    **keywords: Unpack[OtherKeywords],
) -> Queue[bytes]: ...
@overload
def open(  # noqa: A001
    path: str | os.PathLike[str] | None,
    *,
    create: bool = ...,
    read_only: bool = ...,
    options: None = ...,
    trusted: bool = ...,
    unsafe_filesystem: bool = ...,
    codec: Literal["text"],
    **keywords: Unpack[OtherKeywords],
) -> Queue[str]: ...
@overload
def open(  # noqa: A001
    path: str | os.PathLike[str] | None,
    *,
    create: bool = ...,
    read_only: bool = ...,
    options: None = ...,
    trusted: bool = ...,
    unsafe_filesystem: bool = ...,
    codec: Codec[T],
    **keywords: Unpack[OtherKeywords],
) -> Queue[T]: ...
@overload
def open(  # noqa: A001
    path: str | os.PathLike[str] | None,
    *,
    create: bool = ...,
    read_only: bool = ...,
    options: Options | None = ...,
    trusted: bool = ...,
    unsafe_filesystem: bool = ...,
    **keywords: Unpack[OptionKeywords],
) -> Queue[Any]: ...
def open(  # noqa: A001  # shmq.open, as gzip.open
    path: str | os.PathLike[str] | None,
    *,
    create: bool = True,
    read_only: bool = False,
    options: Options | None = None,
    trusted: bool = False,
    unsafe_filesystem: bool = False,
    **keywords: Unpack[OptionKeywords],
) -> Queue[Any]:
    """
    Open the queue in the directory *path*; make it if there is none.

    "csp://HOST:PORT/NAME" is one at a server, as `shmq.net.connect` opens it, with the keywords that this has.

    "shm:NAME" is a volatile queue in shared memory, gone when nobody has it open any more. None makes an anonymous one,
    which other processes get by fork or by pickling the queue. With group=, several users share it; a volatile one is
    "shm:GROUP:NAME" then.

    Args:
        path: the directory, "shm:NAME" or None. The directory above it must exist. "~" is the home directory.
        create: whether to make the queue when it is absent.
        read_only: change nothing at all, not even a hint; then nothing can be put, and no consumer opened.
        options: what to make it with. For a queue that exists they are not needed; those given must agree with it.
        keywords: the same one by one, as `Options` takes them: `shmq.open("orders", codec="json", durability="sync")`.
        trusted: allow codec "pickle", whose messages run code when they are read.
        unsafe_filesystem: allow a network file system that you know only this machine uses.

    Raises:
        NotFound: there is none, and it was not to be made; or the directory above is missing.
        Mismatch: an option contradicts the queue.
        TypeError, ValueError: *path* is no path, or an option is no option; nothing was made.
        BadFormat, Corrupt, Unsafe, UnsafeFilesystem, Untrusted, DiskFull: as their names say.
    """
    if isinstance(path, str) and path.startswith(given.REMOTE):
        if options is not None:
            raise TypeError(f"open({path!r}, options=...): they are of the queue; a server makes it with those it has")
        later.ready("shmq.net")
        from shmq.net.client.queue import opened  # noqa: PLC0415  # only who is remote pays for it

        return cast("Queue[Any]", opened(path, {**keywords, "read_only": read_only}))  # which has these verbs
    session = Session(
        None if path is None else given.path("path", path),
        create=given.flag("create", create),
        read_only=given.flag("read_only", read_only),
        options=Options.given(options, keywords),
        trusted=given.flag("trusted", trusted),
        unsafe_filesystem=given.flag("unsafe_filesystem", unsafe_filesystem),
    )
    return Queue(session)


@says_where(
    "path",
    "__init__",
    "__len__",
    "_getitem",
    "_shared_producer",
    public=True,
    but=("put", "put_many", "put_arrow", "reserve", "close"),
    closed="_session.closed",
)
class Queue(_native.Finder[T], Closable):
    """
    One queue, open. Made by `shmq.open`. Safe to share between threads; opens itself again in a forked child.

    Attributes:
        path: its directory.
        place: what opens it again: its directory, or shm:NAME.
        options: what it was made with, and what `configure` has changed since.
        recovery: what was found and done when this opening was the first one after a reboot; None when it was not.
    """

    def __init__(self, session: Session) -> None:
        """See `shmq.open`."""
        self._session = session
        self._producer: Producer[T] | None = None
        self._found_by: Access | None = None
        self._latest: Latest | None = None

    @property
    def path(self) -> str:
        """Its directory."""
        return self._session.path

    @property
    def place(self) -> str:
        """What opens it again: its directory, or shm:NAME."""
        return self._session.place

    @property
    def options(self) -> Options:
        """What they are now: what it was made with, and what `configure` has changed since."""
        return self._session.current_options()

    @property
    def recovery(self) -> Recovery | None:
        """What was found and done when this opening was the first one after a reboot; None when it was not."""
        return self._session.recovery

    @property
    def closed(self) -> bool:
        """Whether this handle was closed."""
        return self._session.closed

    # ---- putting
    def producer(self) -> Producer[T]:
        """
        A producer of your own; `put` uses one that all threads share.

        A queue that was finished before it was opened here is open for writing again then; a shard is not.

        Raises:
            DiskFull: there is no room for the first chunk.
            ShutDown: it is a shard that was finished.
            Closed: the queue was closed, or opened read-only.
        """
        self._session.refuse_change("put")
        ending.reopen(self._session.home, self._session.joined().control)
        return self._make_producer()

    def _make_producer(self) -> Producer[T]:
        self._session.refuse_read_only("put")
        return Producer(self._session)

    def _shared_producer(self) -> Producer[T]:
        with self._session.lock:
            if self._session.closed:
                raise errors.Closed(f"cannot put into {self.path}: it was closed; open it again")
            if self._producer is None:
                self._producer = self._make_producer()
                self.__dict__["put"] = self._producer.put  # from now on a put costs one Python call less
            return self._producer

    @early_put
    def put(
        self,
        payload: T | AsBytes,
        *_: Never,
        key: bytes | None = None,
        type: int = 0,  # noqa: A002  # the field's name everywhere
        time_ns: int | None = None,
        ttl: float | None = None,
        delay: float | None = None,
        headers: Mapping[str, Any] | None = None,
        dedup: tuple[str | bytes, int] | None = None,
        timeout: float | None = None,
        **keywords: Never,
    ) -> int:
        """
        Append *payload* and return its index.

        When this returns, every consumer in every process will see the message, even if this process is killed next.
        With Durability.SYNC it is on the disk too.

        Args:
            payload: what the queue's codec takes; bytes-like by default.
            key: up to 65,535 bytes that say what it belongs to.
            type: 0 to 65535, the user's own.
            time_ns: its time in ns since 1970; now by default. Times need not ascend.
            ttl: seconds after which no consumer gets it any more; the queue's own by default. Readers still see it.
            delay: seconds before which no consumer gets it. Groups, and who acknowledges, go on with what is behind it;
                one alone with ack="auto" waits.
            headers: a small mapping of text to anything msgpack can hold.
            dedup: (producer, sequence): who it is from and which message or batch of theirs, ascending, shared with
                `put_many` and `adopt`. What was put before is not put again: its first index is returned. Also after
                a kill, a restart, a power cut, and when two processes try at the same time. Puts of one producer take
                turns. The last 65,536 such puts are remembered, and the last one of each of as many producers.
            timeout: seconds that it may wait: for room, in a queue with bounds and full="block"; for the disk, with
                Durability.SYNC. None for as long as it takes.

        Raises:
            Full: a bound is reached, and the time is up or the queue was made with full="raise"; nothing was put.
            SyncPending: it is in the queue at `index`, and it is not known whether it is on the disk: the timeout
                passed, or a signal or `close` ended the wait. Do not put it again.
            SyncFailed: the disk refused. It is in the queue at `index`; when that is None, nothing was put.
            TooLarge: it fits no chunk, or no bound; nothing was put.
            DiskFull: there is no room for another chunk; nothing was put.
            Mismatch: with dedup: a later one of that producer is there already, and this one was never put, or is
                forgotten; nothing was put.
            Busy: with dedup: the timeout passed while others put as the same producer, or a process is stopped that may
                be putting as it; nothing was put.
            Fenced: this process was judged dead; the message is not in the queue.
            ShutDown, Closed: nothing was put.
        """
        if _ or keywords:
            given.no_block("put", _, keywords)
        producer = self._producer or self._shared_producer()
        return producer.put(
            payload,
            key=key,
            type=type,
            time_ns=time_ns,
            ttl=ttl,
            delay=delay,
            headers=headers,
            dedup=dedup,
            timeout=timeout,
        )

    def put_many(
        self,
        payloads: Iterable[T | AsBytes],
        *,
        keys: Sequence[bytes | None] | None = None,
        types: Sequence[int] | None = None,
        times_ns: Sequence[int] | None = None,
        headers: Sequence[Mapping[str, Any] | None] | None = None,
        ttl: float | None = None,
        dedup: tuple[str | bytes, int] | None = None,
        timeout: float | None = None,
    ) -> range:
        """
        Append all *payloads* as one batch, and return their indexes: all of them become visible at once, or none.

        Args:
            payloads: up to 8,191 of them.
            keys, types, times_ns, headers: None, or one entry for each payload; as in `put`.
            ttl: of all of them, as in `put`.
            dedup: (producer, sequence) of the whole batch; as in `put`. The indexes of the first time are returned.
            timeout: seconds to wait until there is room for all of them; as in `put`.

        Raises:
            TooMany: more than one claim can count, or than a bound allows; nothing was put.
            Full, TooLarge, DiskFull, Mismatch, Busy, Fenced, ShutDown, Closed: as `put`.
            ValueError: dedup of an empty batch; or the lengths differ; nothing was put.
        """
        producer = self._producer or self._shared_producer()
        return producer.put_many(
            payloads,
            keys=keys,
            types=types,
            times_ns=times_ns,
            headers=headers,
            ttl=ttl,
            dedup=dedup,
            timeout=timeout,
        )

    def put_arrow(
        self,
        batch: Any,
        *,
        ttl: float | None = None,
        dedup: tuple[str | bytes, int] | None = None,
        timeout: float | None = None,
    ) -> range:
        """
        Append the rows of a record batch, and return their indexes: all become visible at once, or none.

        The mirror of `read_arrow`, whose batches can be put as they are; no Python object is made for a message. A
        batch is pyarrow's, or what gives itself by Arrow's C interface: a data frame of pandas or polars, a result of
        duckdb.

        Args:
            batch: up to 8,191 rows. Column "payload" (binary or string), and perhaps "key" and "headers" (binary, as
                `read_arrow` has them; null for none), "type" (whole numbers; null for 0) and "time" (timestamp; null
                for now). "index" and "attempts" are passed over.
            ttl, dedup, timeout: as in `put_many`.

        Raises:
            ImportError: there is no pyarrow: pip install 'shmq[arrow]'.
            ValueError: a column is of another kind, missing, or a payload is null; or the queue has a codec, which is
                not for bytes; nothing was put.
            TooMany, Full, TooLarge, DiskFull, Mismatch, Busy, Fenced, ShutDown, Closed: as `put_many`.
        """
        producer = self._producer or self._shared_producer()
        return producer.put_arrow(batch, ttl=ttl, dedup=dedup, timeout=timeout)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """
        What is in the queue now, as a stream of Arrow's C interface: with that, duckdb, polars and pandas read a queue.

        The columns and the end are those of `read_arrow()`. Until the stream is read or let go of, nothing of it is
        retired; each call makes one anew.

        Raises:
            ImportError: there is no pyarrow: pip install 'shmq[arrow]'.
        """
        later.ready("shmq.reading.arrow")
        from shmq.reading.arrow import Batches  # noqa: PLC0415  # only who uses it pays for it

        reader = self.reader(0, self.next_index, pin=not self._session.flags["read_only"])
        try:
            return Batches(reader, None, 10_000, None).__arrow_c_stream__(requested_schema)
        except BaseException:
            reader.close()
            raise

    def reserve(
        self,
        nbytes: int | None = None,
        *,
        shape: int | Sequence[int] | None = None,
        dtype: Any = None,
        key: bytes | None = None,
        type: int = 0,  # noqa: A002
        time_ns: int | None = None,
        ttl: float | None = None,
        headers: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> Slot:
        """
        Room for a payload of up to *nbytes* bytes, to be filled in place.

            with q.reserve(n) as slot:
                slot.buffer[:] = ...

        Or for a numpy array of that *shape* and *dtype*, which whoever gets it has as `Message.array`:

            with q.reserve(shape=(1080, 1920, 3), dtype="u1") as slot:
                slot.array[:] = frame

        The message appears when the block ends, or at `slot.commit(fewer)`; an exception gives the room up. Consumers
        wait at it meanwhile, so fill it at once. An array made from the buffer may live on; what is stored there
        after the commit changes no message. A buffer below 8 MiB begins as zeros, a larger one as anything: what is
        not filled is sent as it is.

        Raises:
            Full, TooLarge, DiskFull, ShutDown, Closed: as `put`, whose timeout this has.
            TypeError: neither bytes nor an array were asked for, or both; or an array of what bytes cannot be.
        """
        producer = self._producer or self._shared_producer()
        return producer.reserve(
            nbytes,
            shape=shape,
            dtype=dtype,
            key=key,
            type=type,
            time_ns=time_ns,
            ttl=ttl,
            headers=headers,
            timeout=timeout,
        )

    # ---- any amount at once
    def stage(self) -> Staged[T]:
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
        later.ready("shmq.putting.staged")
        from shmq.putting.staged import Staged  # noqa: PLC0415  # it knows this module

        self._session.refuse_change("stage")
        return Staged(self._session)

    def adopt(
        self,
        staged: Staged | HandedOver | str | Sequence[Staged | HandedOver | str],
        *,
        dedup: tuple[str | bytes, int] | None = None,
    ) -> range:
        """
        Append everything that was staged, all or nothing, beside running producers; return its indexes.

        When this returns the messages are on the disk too. Killed at any moment, either all of them are in the queue
        or none is. When it was interrupted, by a signal's handler that raises or by an error that does not say that
        nothing was adopted, it can be repeated, with the same Staged or the same tokens: what was adopted already is
        not adopted again, and its range is returned.

        Args:
            staged: from `stage` of this queue; it is closed afterwards. Or a token, in whatever process it was handed
                over (`Staged.hand_over`). Or several, which are appended in the order given, all of them or none.
            dedup: (producer, sequence): who it is from and which batch of theirs, ascending. A batch that was adopted
                before is not adopted again, and what was staged for it goes; its first range is returned.

        Raises:
            Mismatch: a later batch of that producer was adopted already, or it was staged for another queue.
            NotFound: what a token stands for is not waiting, and nothing was adopted now: it was swept; or adopted so
                long ago that its first message was retired; or adopted in another order, or for another `dedup`, and
                then the error says where it is.
            Busy: something in it is reserved and not committed, or somebody administers the queue for long.
            Full: a bound has no room for all of it now; nothing was adopted. It can be tried again. An adoption
                neither waits nor drops the oldest, whatever `full` says.
            ShutDown, DiskFull, TooMany, TooLarge: nothing was adopted; what was handed over still waits.
            OSError: the system refused something, such as descriptors, of which eight must be free; repeat it.
        """
        self._session.refuse_change("adopt")
        later.ready("shmq.putting.staged")
        from shmq.putting import staged as module  # noqa: PLC0415

        return module.adopt(self._session, staged, dedup)

    def staged(self, token: str) -> HandedOver:
        """
        What waits under that token of `Staged.hand_over`.

        Raises:
            NotFound: it was adopted or swept.
            Mismatch: it was staged for another queue.
        """
        later.ready("shmq.putting.handed")
        from shmq.putting import handed  # noqa: PLC0415

        found, there = handed.find(self._session.home, given.text("token", token, "what hand_over() has returned"))
        with found:
            return handed.describe(self._session.home.queue_id, found.name, there)

    def staged_sets(self, owner: str | bytes | None = None) -> list[HandedOver]:
        """Everything that was handed over and waits to be adopted; of that owner alone, if one is given."""
        later.ready("shmq.putting.handed")
        from shmq.putting import handed  # noqa: PLC0415

        return handed.sets(self._session, owner)

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
        later.ready("shmq.putting.handed")
        from shmq.putting import handed  # noqa: PLC0415

        return handed.sweep(self._session, older_than, owner)

    def adopted(self, producer: str | bytes) -> tuple[int, range] | None:
        """
        The last batch of *producer*: its sequence and its indexes, adopted or put with dedup. None without one.

        Raises:
            Corrupt: what tells it is damaged.
        """
        later.ready("shmq.storage.dedup")
        from shmq.storage.dedup import last_of  # noqa: PLC0415

        name = given.producer(producer)
        self._session.sweep()
        batch = last_of(self._session.home, self._session.chain(), name)
        return None if batch is None else (batch.sequence, range(batch.first, batch.first + batch.indexes))

    # ---- getting
    @overload
    def consumer(
        self,
        name: str | None = None,
        *,
        group: Literal[False] = False,
        ack: Literal["auto"] | None = None,
        start: str | float | datetime.datetime = "earliest",
        skip_corrupt: bool = False,
        hold: bool | Literal["nothing"] | None = None,
        wait: Literal["spin", "hybrid", "sleep"] = "hybrid",
        filter: Filter | None = None,
        ephemeral: bool = False,
        expires: float | None = None,
    ) -> Consumer[T]: ...
    @overload
    def consumer(
        self,
        name: str | None = None,
        *,
        group: Literal[False] = False,
        ack: Literal["explicit"],
        lease: float | None = None,
        max_attempts: int | None = None,
        dead_letter: str | None = None,
        expire_to: str | None = None,
        ordered_by: str | None = None,
        window: int | None = None,
        start: str | float | datetime.datetime = "earliest",
        skip_corrupt: bool = False,
        hold: bool | Literal["nothing"] | None = None,
        wait: Literal["spin", "hybrid", "sleep"] = "hybrid",
        filter: Filter | None = None,
        ephemeral: bool = False,
        expires: float | None = None,
    ) -> LoneConsumer[T]: ...
    @overload
    def consumer(
        self,
        name: str | None = None,
        *,
        group: Literal[False] = False,
        ack: str | None = None,
        start: str | float | datetime.datetime = "earliest",
        skip_corrupt: bool = False,
        hold: bool | Literal["nothing"] | None = None,
        wait: Literal["spin", "hybrid", "sleep"] = "hybrid",
        filter: Filter | None = None,
        ephemeral: bool = False,
        expires: float | None = None,
    ) -> Consumer[T] | LoneConsumer[T]: ...
    @overload
    def consumer(
        self,
        name: str | None = None,
        *,
        group: Literal[True],
        ack: str | None = None,
        lease: float | None = None,
        max_attempts: int | None = None,
        dead_letter: str | None = None,
        expire_to: str | None = None,
        ordered_by: str | None = None,
        window: int | None = None,
        start: str | float | datetime.datetime = "earliest",
        skip_corrupt: bool = False,
        wait: Literal["spin", "hybrid", "sleep"] = "hybrid",
        filter: Filter | None = None,
        ephemeral: bool = False,
        expires: float | None = None,
    ) -> GroupConsumer[T]: ...
    def consumer(
        self,
        name: str | None = None,
        *,
        group: bool = False,
        ack: str | None = None,
        lease: float | None = None,
        max_attempts: int | None = None,
        dead_letter: str | None = None,
        expire_to: str | None = None,
        ordered_by: str | None = None,
        window: int | None = None,
        start: str | float | datetime.datetime = "earliest",
        skip_corrupt: bool = False,
        hold: bool | Literal["nothing"] | None = None,
        wait: Literal["spin", "hybrid", "sleep"] = "hybrid",
        filter: Filter | None = None,  # noqa: A002  # the field's word
        ephemeral: bool = False,
        expires: float | None = None,
    ) -> Consumer[T] | LoneConsumer[T] | GroupConsumer[T]:
        """
        Open the consumer *name*; make it if there is none. Every name sees every message, from where it stopped.

        Without *group*, one handle holds the name at a time. With it, any number of processes share the name and each
        message goes to one of them; what a dead one held goes to the others. What a name is made with stays: whoever
        opens it later may leave that out, and must not contradict it. *lease* to *window* are for names that
        acknowledge, and for groups.

        Args:
            name: 1 to 64 of A-Z a-z 0-9 _ . - and no dot in front. With *ephemeral* it may be left out: one is made up.
            ack: "auto": a message is finished when it is handed out, so it comes at most once. "explicit": when its
                `ack()` is called, so it comes at least once. None: as the name was made; "auto" for a new name.
            lease: seconds after which a message is taken from a living holder too; never by default.
            max_attempts: how often a message is handed out before it goes to the dead letters; no limit by default.
            dead_letter: that queue's path, beside this one unless it is absolute; <queue>.<name>.dead by default. It is
                made when it is needed. What does not lie beside this queue must be named by each member. Of a volatile
                queue it is volatile, shm:<queue>.<name>.dead, and lasts as long as that one has users.
            expire_to: the queue for messages that are older than their ttl, likewise; by default they are dropped, and
                counted. Where there is no room for them, or for dead letters, they are left aside for later.
            ordered_by: "key": a message is handed out when all before it that have its key are finished, so those of
                one key come in order, one at a time. Those without a key come in no order, as they all do by default.
                Needs ack="explicit".
            window: how many messages may be in flight: a power of two from 64 to 65,536, the default.
            start: where a new name begins: "earliest", "latest", an index, or a time as in `at`: the first message of
                that time or later. One that exists goes on where it stood, whatever this says: see `seek`.
            skip_corrupt: pass over what is damaged, and count it in `skipped`, instead of raising Corrupt there.
            hold: True: nothing that this name has not finished is retired, by age and bytes neither, whether it is open
                or not; for an archive. "nothing": neither retention nor bounds look at this name, so it holds nothing
                back and releases nothing; to show how far something is. False: as any name, which retention "acked" and
                bounds wait for. It lasts until the name is opened with another, or dropped. None leaves it as it
                is, False for a new name. What a bound drops (full="drop_oldest") and what `purge` finishes is not held.
            wait: how this handle waits when there is nothing: "sleep" at once, which costs no processor, and some 50 µs
                for whoever puts and for the wake-up; "spin", a processor for as long as it waits, and answers within a
                few µs where producer and consumer have one each; "hybrid" looks for some tens of µs, then sleeps.
            filter: which messages the name wants; by default all. The others are finished by whoever walks over them:
                they are no attempt, need no `ack`, and are not looked at otherwise, so damage in them is not told. It
                stays with the name, whoever opens it. A name that is closed holds back what does not match, too.
            ephemeral: the name goes with its holder, a group's with its last member, however they end.
            expires: seconds after which the name goes when nobody has it open; never earlier, and later when nobody
                looks, for it goes with the next look at what the names still need: a retirement, a put that waits for
                room, `consumers()`. By the clock that runs while the machine sleeps, after a reboot by the wall clock.
                Whoever comes after that begins at *start*.

        Raises:
            Busy: another process (or handle) holds the name.
            IndexError: *start* is an index beyond the end, or negative, and the name is new; it was not made.
            Mismatch: it was made with the other ack mode or kind, or the group with other options.
            NotFound, BadFormat, Unsafe, PermissionError: there can be no queue at `dead_letter` or `expire_to`.
            Corrupt: its checkpoint is damaged.
        """
        if self._session.flags["read_only"]:
            raise errors.Closed(f"cannot open a consumer of {self.path}: it was opened read-only; use reader()")
        self._session.refuse_change("open a consumer", taking=True)
        options = {
            "lease": lease,
            "max_attempts": max_attempts,
            "dead_letter": dead_letter,
            "expire_to": expire_to,
            "ordered_by": ordered_by,
        }
        subscription = subscribing.asked(filter, ephemeral=ephemeral, expires=expires)
        name = paths.check_consumer_name(subscribing.name_for(name, subscription))
        given.flag("skip_corrupt", skip_corrupt)
        if hold is not None and hold != pins.NOTHING:
            given.flag("hold", hold, wanted='True or False, or "nothing"')
        if given.flag("group", group, "; the name is the group's") and hold is not None:
            raise TypeError(f"consumer({name!r}, hold=...): a group holds nothing back; let a name of its own archive")
        if group:
            later.ready("shmq.taking.group")
            from shmq.taking.group import GroupConsumer  # noqa: PLC0415  # only groups pay for it

            return GroupConsumer(
                self._session,
                name,
                ack=ack,
                start=start,
                given=options,
                window=window,
                skip_corrupt=skip_corrupt,
                wait=wait,
                subscription=subscription,
            )
        strange = [option for option, value in {**options, "window": window}.items() if value is not None]
        if ack != "explicit" and not (strange and ack is None and names.is_lone(self._session, name)):
            if strange:
                raise TypeError(
                    f'consumer({name!r}, {strange[0]}=...) needs ack="explicit" or group=True: what is finished when '
                    "it is handed out, by one process alone, has no use for it"
                )
            with contextlib.suppress(names.IsLone):  # which is told by the checkpoint that it opens anyway
                return Consumer(
                    self._session,
                    name,
                    ack=ack,
                    start=start,
                    skip_corrupt=skip_corrupt,
                    hold=hold,
                    wait=wait,
                    subscription=subscription,
                )
        later.ready("shmq.taking.lone")
        from shmq.taking.lone import LoneConsumer  # noqa: PLC0415  # likewise

        return LoneConsumer(
            self._session,
            name,
            ack=ack,
            start=start,
            given=options,
            window=window,
            skip_corrupt=skip_corrupt,
            hold=hold,
            wait=wait,
            subscription=subscription,
        )

    def consumers(self) -> dict[str, ConsumerStats]:
        """Every name whose checkpoint can be read; `Stats.damaged` tells of the others."""
        later.ready("shmq.stats")
        from shmq import stats  # noqa: PLC0415  # rare

        return stats.of_consumers(self._session)

    def group_place(self, name: str) -> GroupPlace:
        """
        Where a group, or a consumer with explicit acknowledgements, stands: what is finished behind its head, and what
        somebody has. Nothing is changed.

        Raises:
            NotFound: there is no such name.
            Mismatch: it is no group.
            Corrupt: it stands behind the end of the queue.
        """
        later.ready("shmq.taking.group_place")
        from shmq.taking import group_place as module  # noqa: PLC0415  # only who asks pays for it

        return module.of(self._session, name)

    def drop_consumer(self, name: str) -> None:
        """
        Forget the consumer *name* and its checkpoint.

        Raises:
            NotFound: there is none.
            Busy: somebody holds it.
        """
        names.drop(self._session, name)

    def rename_consumer(self, old: str, new: str) -> None:
        """
        Give the consumer *old* the name *new*; it goes on where it stood.

        Raises:
            NotFound: there is none.
            Busy: somebody holds it.
            Mismatch: there is a consumer *new* already; nothing was changed.
        """
        names.rename(self._session, old, new)

    def purge(self) -> int:
        """
        Finish everything that is in the queue now, for every name, and give its disk space back.

        It returns the index after it.

        Whole chunks go, the last one stays until it is full; what is in it is passed over by every name, also by those
        that come later, after a reboot too. Each name's `dropped` tells how many indexes it missed. What is handed out
        and not acknowledged is not taken from whoever has it. In a group nothing that was there is handed out
        afterwards: what a member had in its hands and gives back, or leaves behind when it dies, is finished with that.

        Space that cannot be given back now (no descriptor, a full disk) goes with the next retirement, or the next
        purge; the log says so.

        Raises:
            Busy: somebody administers the queue for long; nothing was finished.
            OSError: it could not open what it needs, two files for each name that nobody holds; nothing was finished.
        """
        return names.purge(self._session)

    def reader(
        self,
        start: str | float | datetime.datetime = 0,
        stop: float | datetime.datetime | None = None,
        *,
        reverse: bool = False,
        follow: bool = False,
        skip_corrupt: bool = False,
        pin: bool | str = False,
        filter: Filter | None = None,  # noqa: A002  # the field's word
    ) -> Reader[T]:
        """
        Read from *start* on, without a checkpoint: changes nothing for anybody.

        Args:
            start: the first index; negative counts from the end. A time as in `at`: the first message of that time or
                later. "earliest" is the first message there is, "latest" the end.
            stop: the index before which to end; or a time, to end at the first message of that time or later.
            reverse: deliver the same messages from the last to the first. Regions that are claimed and not committed
                yet, at which reading forward ends, are left out.
            follow: wait for more at the end, until the queue is shut down, finished or closed.
            skip_corrupt: pass over what is damaged, and count it in `skipped`, instead of raising Corrupt there.
            pin: True, or a name for it: while this reader is open, nothing from its place on is retired, whatever the
                retention. Ends with `close`, or with its process. It is no consumer: no bound waits for it.
            filter: which messages to deliver; by default all. Damage in others is not told.

        Raises:
            Busy: another reader has a pin of that name.
            Closed: a pin in a queue that was opened read-only.
            ValueError: reverse and follow; there is no end to begin from.
        """
        for name, value in (("reverse", reverse), ("follow", follow), ("skip_corrupt", skip_corrupt)):
            given.flag(name, value)
        if not isinstance(pin, str):
            given.flag("pin", pin)
        if pin is not False:
            self._session.refuse_read_only("pin")
        return Reader(
            self._session,
            start,
            stop,
            reverse=reverse,
            follow=follow,
            skip_corrupt=skip_corrupt,
            pin=pin,
            wanted=filters.check(filter),
        )

    def read_arrow(
        self,
        start: str | float | datetime.datetime = 0,
        stop: float | datetime.datetime | None = None,
        columns: Sequence[str] | None = None,
        max_bytes: int | None = None,
        *,
        max_rows: int = 10_000,
        record: Any = None,
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
            record: numpy's dtype of payloads that are records of numbers, `numpy.dtype([("price", "<f8"), ...])`: each
                of its fields is a column behind *columns*, which are some of index, time and type then ("index" by
                default). `dtype[["price"]]` is a dtype of some fields. A payload of another size has nulls there.
                Every checksum is looked at.

        Raises:
            ImportError: there is no pyarrow: pip install 'shmq[arrow]'.
            ValueError: of a column, or of a field of *record*, there can be none.
            Corrupt: while iterating: the next message is damaged; it says which. What came before it was delivered.
        """
        later.ready("shmq.reading.arrow")
        from shmq.reading.arrow import Batches  # noqa: PLC0415  # only who uses it pays for it

        reader = Reader(self._session, start, stop, reverse=False, follow=False)
        try:
            return Batches(reader, columns, max_rows, max_bytes, record)
        except BaseException:
            reader.close()
            raise

    def read_columns(
        self,
        start: str | float | datetime.datetime = 0,
        stop: float | datetime.datetime | None = None,
        columns: Sequence[str] | None = None,
        *,
        max_rows: int = 4096,
        max_bytes: int = 8 << 20,
    ) -> Columns:
        """
        Read what is there from *start* on column by column as plain lists, many messages at a time: several times as
        fast as a `reader`, and without pyarrow.

        As `reader` it changes nothing for anybody, and it ends at the same places: the stop, the end, a message that is
        claimed and not committed yet. Each time it delivers one {name: list}, of messages of one chunk file.

        Args:
            start, stop: as in `reader`.
            columns: some of "index", "time_ns", "key", "type", "payload" (the bytes as they were put, whatever the
                codec), "headers", all by default; values as a Message has them. What is not named is not looked at:
                with neither keys, payloads nor headers, checksums are not checked either.
            max_rows: messages at a time.
            max_bytes: of keys, payloads and headers at a time; one message may have more.

        Raises:
            ValueError: no such column; no room for a message.
            Corrupt: while iterating: the next message is damaged; it says which. What came before it was delivered.
        """
        later.ready("shmq.reading.columns")
        from shmq.reading.columns import Columns  # noqa: PLC0415  # only who uses it pays for it

        reader = Reader(self._session, start, stop, reverse=False, follow=False)
        try:
            return Columns(reader, columns, max_rows, max_bytes)
        except BaseException:
            reader.close()
            raise

    def latest(self, key: bytes) -> Message[T] | None:
        """
        The newest message of that *key*, committed before this call and not expired; None when there is none.

        The last value of each key, of a queue of states: see retention "forever", or a consumer that holds them back.
        The first call of a process walks what is there; each further one, what was put since. What is damaged is
        passed over. It changes nothing for anybody. As for a reader, what is finished or purged is there until its
        chunk goes.

        Raises:
            TypeError, ValueError: *key* is no key.
            TooMany: the queue has more than 1,000,000 keys.
        """
        if not isinstance(key, bytes):
            raise given.wrong_type("key", key, "bytes", "; for text write key.encode()")
        if not key:
            raise ValueError("key=b'': that is not a key; a message that is put without one has none")
        latest = self._latest
        if latest is None:
            later.ready("shmq.reading.latest")
            from shmq.reading.latest import Latest  # noqa: PLC0415  # only who uses it pays for it

            latest = self._latest = Latest(self._session)
        return latest.of(key)

    def _find_by(self, access: Access) -> None:
        """Have the built-in look messages up there."""
        with self._session.lock:
            if not self._session.closed:
                self._find_in(access.shelf, self._session.codec.decode)
                self._found_by = access

    def _getitem(self, index: int | slice) -> Message[T] | list[Message[T]]:
        """
        What `queue[index]` does where the built-in does not.

        That is the message at *index*, which counts from the end if it is negative; of a slice the messages there are.

        Raises:
            IndexError: there is none; the text says why.
            Corrupt: it is damaged.
        """
        access = self._session.access()
        if access is not self._found_by:
            self._find_by(access)
        if isinstance(index, slice):
            return access.sliced(index)
        if not hasattr(type(index), "__index__"):
            raise given.wrong_type("index", index, "an index, or a slice,")
        wanted = operator.index(index)
        if wanted < 0:
            wanted += access.next_index()
        if wanted < 0:
            first, end = access.first_index(), access.next_index()
            raise IndexError(f"{self.path} has no message {index}: its indexes go from {first} to {end - 1}")
        return access.message(wanted)

    def at(self, time: datetime.datetime | float) -> int:
        """
        The index of the first message whose time is *time* or later; `next_index` when there is none.

        Times given with a put need not ascend: it is the first by index. What is claimed and not committed yet has no
        time.

        Args:
            time: a datetime, which is local time when it names no zone; or a float of seconds since 1970, such as
                `time.time()`, which a double holds to a quarter of a microsecond.

        Raises:
            TypeError: it is an int, which could be seconds or nanoseconds: see `at_ns`.
        """
        return self._session.access().at(nanoseconds(time))

    def at_ns(self, time_ns: int) -> int:
        """The same as `at`, of a time in nanoseconds since 1970, such as `time.time_ns()` or `Message.time_ns`."""
        return self._session.access().at(nanoseconds_of_int(time_ns))

    # ---- the disk
    def sync(self, timeout: float | None = None) -> None:
        """
        Return when everything that anybody put before is on the disk, and every acknowledgement. In any mode.

        It waits for messages that are reserved and not committed yet; and where puts wait for followers, until those
        have what was put.

        Args:
            timeout: seconds; None waits as long as it takes.

        Raises:
            SyncPending: the time is up.
            SyncFailed: the disk refused.
            OSError: it could not be asked, for want of a descriptor, say. Nothing is known to be wrong: sync again.
        """
        later.ready("shmq.durability")
        from shmq.durability import Syncer  # noqa: PLC0415  # only who syncs pays for it

        self._session.refuse_read_only("sync")
        if sources.any_of(self._session.home):
            later.ready("shmq.taking.lasting")
            from shmq.taking.lasting import take_all  # noqa: PLC0415  # only where something is forwarded

            take_all(self._session)
        session = self._session
        Syncer(session.home, session.joined(), is_over=lambda: session.closed).sync(deadline_of(timeout))

    # ---- looking
    @property
    def first_index(self) -> int:
        """The first index still there."""
        return self._session.access().first_index()

    @property
    def next_index(self) -> int:
        """The index after the last claimed one: the next put's, if nobody else puts."""
        return self._session.access().next_index()

    @property
    def committed_index(self) -> int:
        """
        The index after the settled part: each message below it is there for good, and no other will appear there.

        It is `next_index` unless somebody is in the middle of a put. Between two calls it never goes back.
        """
        return self._session.access().committed()

    @property
    def durable_index(self) -> int:
        """The index after what is known to be on the disk. With `Durability.PROCESS` only a `sync` moves it."""
        return self._session.joined().control.durable()

    @property
    def id(self) -> str:
        """What tells this queue from any other, even from one that is made at the same place later: 32 hex digits."""
        return self._session.home.queue_id.hex()

    def extents(self, start: int = 0, stop: int | None = None) -> list[Extent]:
        """
        Where messages lie: runs of indexes that share a chunk, with the bytes they take, in order.

        For sharing out a long read: cut at these, and within them at multiples of `options.index_spacing` from the
        chunk's first index, where a reader begins without a walk.
        """
        access = self._session.access()
        first = given.whole("start", start, 0, INDEX_MAX)
        return access.extents(first, access.committed() if stop is None else given.whole("stop", stop, 0, INDEX_MAX))

    def __len__(self) -> int:
        """How many messages there are, for all consumers; what is padded is not counted."""
        later.ready("shmq.taking.backlog")
        from shmq.taking import backlog  # noqa: PLC0415  # only who asks pays for it

        return backlog.messages(self._session)

    def __bool__(self) -> bool:
        """A queue is true, also when it is empty."""
        return True

    def stats(self) -> Stats:
        """Figures for people and monitors."""
        later.ready("shmq.stats")
        from shmq import stats  # noqa: PLC0415  # rare

        return stats.of_queue(self._session)

    # ---- bounds
    def set_bounds(
        self,
        *,
        max_messages: int | EllipsisType | None = ...,
        max_bytes: int | EllipsisType | None = ...,
    ) -> None:
        """
        Change the bounds of the queue for everybody, now: as `configure`, which changes more.

        Raises:
            As there.
        """
        self.configure(max_messages=max_messages, max_bytes=max_bytes)

    def configure(
        self,
        *,
        max_messages: int | EllipsisType | None = ...,
        max_bytes: int | EllipsisType | None = ...,
        full: Literal["block", "raise", "drop_oldest"] | EllipsisType = ...,
        retention: Retention | Literal["acked", "forever"] | EllipsisType = ...,
        ttl: float | EllipsisType | None = ...,
    ) -> None:
        """
        Change options of the queue for everybody, now, whoever has it open. What is left out stays; they outlast it.

        A put that begins after this has returned, in whatever process, goes by them. What is in the queue stays what it
        is, so a `ttl` is for what is put from now on. The others, such as `durability` and `codec`, are for life.

        Args:
            max_messages, max_bytes: bounds; None is none. One below what the queue holds loses nothing: nobody puts
                until it holds less, unless *full* is "drop_oldest".
            full: what a put does where a bound leaves no room.
            retention: as in `Options`. What it allows to take away goes with the next chunk that is begun or finished.
            ttl: seconds, for puts that name none; None for never.

        Raises:
            ValueError, TypeError: it is no such option; nothing was changed.
            Busy: somebody administers the queue for long; nothing was changed.
            Closed: it was opened read-only.
            OSError: the disk refused; nothing was changed.
        """
        self._session.refuse_change("configure", taking=True)
        asked = {
            "max_messages": max_messages,
            "max_bytes": max_bytes,
            "full": full,
            "retention": retention,
            "ttl": ttl,
        }
        changes = {name: value for name, value in asked.items() if value is not ...}
        Options(**changes)  # type: ignore[arg-type]  # refuses what means nothing
        self._session.configure(changes)

    # ---- whole or not
    def verify(self) -> Verified:
        """
        Walk every file and check every message, beside whoever works here. Changes nothing, and raises for no damage.

        What it returns is true when everything is whole, and lists each damaged place: file, position and reason.
        """
        later.ready("shmq.storage.verify")
        from shmq.storage import verify as module  # noqa: PLC0415  # rare

        return module.verify(self._session.home, given.nobody)

    def repair(self, to: str | os.PathLike[str] | None = None) -> Repaired:
        """
        Write a clean copy to *to*, beside this queue as PATH.repaired by default. This queue stays as it is.

        Every message that is whole keeps its index; what is not becomes padding.

        Raises:
            Unsafe: there is something at *to*.
            DiskFull: there is no room; nothing was written.
        """
        later.ready("shmq.storage.repairing")
        from shmq.storage import repairing  # noqa: PLC0415

        place = None if to is None else given.directory("to", to)
        return repairing.repair(self._session.home, place, given.nobody, in_place=False)

    def copy(
        self, to: str | os.PathLike[str], *, new_id: bool = False, progress: given.Progress | None = None
    ) -> Copied:
        """
        Copy the queue to the new directory *to*, exact up to one index, while producers and consumers go on. All that
        is in it now is before that index, unless somebody has reserved a message there and not committed it.

        What is not copied yet is not retired meanwhile. Names and groups stand there as they stood when it began.

        Args:
            to: must not exist.
            new_id: make it a queue of its own, whose groups are sources of their own where they forward. Without it, it
                is a backup: its first opening for writing goes on in a new epoch, above every index that this queue may
                have given.
            progress: called with "copied", how many messages were so far, and what share of all that was.

        Raises:
            Corrupt: something is damaged; nothing was written. `repair` writes what is whole.
            Gone: opened read-only, it can hold nothing back, and was overtaken again and again; nothing was written.
            Busy: somebody administers the queue for long; nothing was written.
            Unsafe, DiskFull, NotFound: as their names say; nothing was written.
        """
        later.ready("shmq.storage.copying")
        from shmq.storage import copying  # noqa: PLC0415

        place, anew, told = given.directory("to", to), given.flag("new_id", new_id), given.progress(progress)
        return copying.copy(self._session.home, self._session.chain(), place, told, new_id=anew)

    # ---- ending
    def shutdown(self, immediate: bool = False) -> None:  # as queue.Queue has it
        """
        Refuse puts from now on; gets drain what is left, then raise ShutDown. It lasts until all processes have left.

        A group has drained it when everything is finished: what somebody else holds is waited for, and what waits for
        its time. Who holds messages itself waits for those who work, and not for those who only wait for the end as it
        does: acknowledge what you hold when your loop has ended. Given back then, it comes to whoever asks next.

        Args:
            immediate: have gets raise ShutDown at once, and readers that follow end; what is left stays in the queue.

        Raises:
            Fenced: it follows another queue.
        """
        given.flag("immediate", immediate)
        self._session.refuse_change("shut down", taking=True)
        control = self._session.joined().control
        control.shut_down(on=True, at_once=immediate)
        control.wake()

    def finish(self) -> None:
        """
        End the stream for good: what is in the queue is all there is. Gets drain it, now or at any time later, even
        after a reboot, and then raise ShutDown; loops over consumers and readers that follow end.

        Handles that are open now get ShutDown from a put. One that is opened later and puts, or makes a producer, opens
        the queue for writing again, for all. Everything that was put is on the disk when this returns. It waits for
        messages that are reserved and not committed yet. Killed in the middle, it has finished the queue or has not. A
        second time it does nothing.

        Raises:
            SyncFailed: the disk refused; the queue is not finished.
            DiskFull, Busy: as their names say; the queue is not finished.
        """
        self._session.refuse_change("finish")
        ending.finish(self._session.home, self._session.joined())

    @property
    def finished(self) -> bool:
        """Whether the stream has ended for good: `finish` was called, and nobody has opened it for writing since."""
        if self._session.closed:
            raise errors.Closed(f"{self.path} was closed; open it again")
        return ending.is_finished(self._session.home.read_journal())

    def close(self) -> None:
        """
        Close this handle. Closing twice is fine.

        Consumers and producers of it stay usable until they are closed; readers end.
        """
        with self._session.lock:
            self._session.closed = True  # from now on nobody finds by the built-in, or makes the shared producer
            self._find_in(None, None)
        if self._producer is not None:
            self._producer.close()
        if self._latest is not None:
            self._latest.close()
        self._session.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """
        A queue pickles to its place, so that it crosses spawn and forkserver.

        A volatile one stays for a process that is being started with it, whatever its starter does with it meanwhile.
        """
        kept = self._session.kept_for_child()
        return _reopen, (self.place, self._session.flags, self._session.brought, *([] if kept is None else [kept]))

    def __dir__(self) -> list[str]:
        """What it has, without the names that only say what to use instead (shmq/habits.py)."""
        return [name for name in super().__dir__() if name not in habits.OF_QUEUES]

    def __repr__(self) -> str:
        """Its path, and whether it is closed."""
        return f"<shmq.Queue {self.place}{' (closed)' if self._session.closed else ''}>"


habits.tell(Queue, habits.OF_QUEUES)


def _reopen(path: str, flags: dict[str, Any], brought: Codec[Any] | None = None, kept: Any = None) -> Queue:
    options = None if brought is None else Options(codec=brought)
    try:
        return Queue(Session(path, create=False, options=options, **flags))
    finally:
        if kept is not None:
            os.close(kept.detach())

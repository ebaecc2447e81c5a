"""
Putting messages: the tail of the chain, and the way on when it is sealed.

A producer is safe to share between threads; claims are settled by the core, and only rolling takes a lock here.
"""

from __future__ import annotations

import contextlib
import functools
import os
from typing import TYPE_CHECKING, Any, Self, cast

from shmq import _native, errors, locks
from shmq.room import Room
from shmq.storage import space, sync, warm
from shmq.storage.chain import Chain
from shmq.walk import deadline_of
from shmq.where import says_where

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import TracebackType

    from shmq.durability import Syncer
    from shmq.membership import Membership
    from shmq.once import Turn
    from shmq.queue import Queue
    from shmq.storage.dedup import Known

_TYPE_MAX = 65535
_NOT_A_TIME = -(1 << 63)


@says_where("_home.path", "_settle", "close")
class Producer(_native.Tail):
    """What `Queue.put` uses. Made by `Queue.producer`; a context manager."""

    def __init__(self, queue: Queue) -> None:
        """See `Queue.producer`."""
        self._queue = queue
        self._encode = queue._codec.encode  # noqa: SLF001
        self._lock = locks.Lock()
        self._closed = False
        self._home, self._membership = queue._lend()  # noqa: SLF001
        self._chain = self._make_chain()
        self._syncer = self._make_syncer()
        self._room = Room(self._home, self._membership, self._chain)
        self._known: Known | None = None
        self._code_with(self._encode)
        try:
            self._use(self._chain.tail())
        except BaseException:
            self.close()
            raise

    def _make_chain(self) -> Any:
        return Chain(self._home, self._membership.member)

    def _make_syncer(self) -> Syncer | None:
        """What a put waits with; None when it does not wait."""
        if self._home.options.durability.kind != "sync":
            return None
        from shmq.durability import Syncer  # noqa: PLC0415  # only this mode pays for it

        return Syncer(self._home, self._membership)

    # ---- putting
    def _put(
        self,
        code: int,
        payload: Any,
        *,
        key: bytes | None = None,
        type: int = 0,  # noqa: A002
        time_ns: int | None = None,
        ttl: float | None = None,
        delay: float | None = None,
        headers: Mapping[str, Any] | None = None,
        dedup: tuple[str | bytes, int] | None = None,
        timeout: float | None = None,
    ) -> int:
        """What `put` does where the built-in does not: rolls, forks, errors. *code* is what its try answered."""
        self._check_open()
        syncer, deadline = self._syncer, deadline_of(timeout)
        if syncer is not None:
            syncer.check()
        turn = None if dedup is None else self._turn(dedup)
        fields, keep = self._fields(key, type, time_ns, headers, self._fixed(ttl, delay, turn))
        data = payload if self._encode is None else self._encode(payload)
        with _view(data) as view, _native.readable(view) as readable:
            if turn is not None:
                region = _native.record_bytes(fields, len(readable))
                put = turn.put(1, region, deadline, lambda tail: tail.put_record(fields, readable, len(readable)))
                del keep
                return put.start
            tail = self._tail
            while True:
                if code < 0:
                    self._settle(code, tail, _native.record_bytes(fields, len(readable)), 1, deadline)
                    tail = self._tail
                    warm.settle()
                code = tail.put_record(fields, readable, len(readable))
                if code >= 0:
                    del keep  # what the fields point at had to live until here
                    break
        if syncer is not None:
            self._wait(tail, code, deadline)
        return code

    def _wait(self, tail: _native.Chunk, index: int, deadline_ns: int = _native.FOREVER) -> int:
        """Wait until the message at *index*, in that chunk, is on the disk; *index*."""
        syncer = cast("Syncer", self._syncer)
        syncer.wait(tail, index, deadline_ns)
        self._sync_with(syncer.mark_due_ns, sync)
        return index

    def _interrupted(self, index: int, problem: BaseException) -> None:
        """Say what it means that *problem* ended the wait of the built-in for the message at *index*."""
        raise cast("Syncer", self._syncer).pending(index, problem) from problem

    def put_many(
        self,
        payloads: Iterable[Any],
        *,
        keys: Sequence[bytes | None] | None = None,
        types: Sequence[int] | None = None,
        times_ns: Sequence[int] | None = None,
        headers: Sequence[Mapping[str, Any] | None] | None = None,
        ttl: float | None = None,
        dedup: tuple[str | bytes, int] | None = None,
        timeout: float | None = None,
    ) -> range:
        """As `Queue.put_many`."""
        self._check_open()
        deadline = deadline_of(timeout)
        items = self._encode_all(payloads)
        count = len(items)
        _check_lengths(count, keys=keys, types=types, times_ns=times_ns, headers=headers)
        self._check_count(count)
        if count == 0:
            return self._nothing(dedup)
        turn = None if dedup is None else self._turn(dedup)
        batch = _batch(items, keys, types, times_ns, headers, self._fixed(ttl, None, turn))
        return self._put_batch(batch, turn, deadline)

    def put_arrow(
        self,
        batch: Any,
        *,
        ttl: float | None = None,
        dedup: tuple[str | bytes, int] | None = None,
        timeout: float | None = None,
    ) -> range:
        """As `Queue.put_arrow`."""
        from shmq.arrow import to_put  # noqa: PLC0415  # only who uses it pays for it

        self._check_open()
        deadline = deadline_of(timeout)
        if self._encode is not None:
            raise ValueError(
                f"cannot put a record batch into {self._home.path}: its codec {self._home.options.codec!r} takes "
                "objects, and payloads in Arrow are bytes already; nothing was put"
            )
        count = batch.num_rows
        self._check_count(count)
        if count == 0:
            return self._nothing(dedup)
        turn = None if dedup is None else self._turn(dedup)
        return self._put_batch(to_put(batch, self._fixed(ttl, None, turn)), turn, deadline)

    def _check_count(self, count: int) -> None:
        if count > _native.BATCH_MAX:
            raise errors.TooMany(
                f"cannot put {count} messages at once into {self._home.path}: one claim counts up to "
                f"{_native.BATCH_MAX}; nothing was put. Put them in several batches"
            )

    def _nothing(self, dedup: tuple[str | bytes, int] | None) -> range:
        """What a put of no messages answers."""
        if dedup is not None:
            raise ValueError("nothing to put, and so nothing that says which batch it is; nothing was put")
        end = self._queue.next_index
        return range(end, end)

    def _put_batch(self, batch: _native.Batch, turn: Turn | None, deadline: int) -> range:
        """Put all of it by one claim."""
        count = batch.count
        if turn is not None:
            return turn.put(count, batch.region_bytes(), deadline, lambda tail: tail.put_many(batch))
        if self._syncer is not None:
            self._syncer.check()
        tail, first = self._tail, 0
        while True:
            if first < 0:
                self._settle(first, tail, batch.region_bytes(), count, deadline)
                tail = self._tail
                warm.settle()
            first = tail.put_many(batch)
            if first >= 0:
                break
        if self._syncer is not None:
            self._wait(tail, first + count - 1, deadline)
        return range(first, first + count)

    def _encode_all(self, payloads: Iterable[Any]) -> list[bytes]:
        if self._encode is not None:
            return list(map(self._encode, payloads))
        items = list(payloads)
        if set(map(type, items)) <= {bytes}:
            return items
        return [_view(item).tobytes() for item in items]

    def reserve(
        self,
        nbytes: int,
        *,
        key: bytes | None = None,
        type: int = 0,  # noqa: A002
        time_ns: int | None = None,
        ttl: float | None = None,
        headers: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> Slot:
        """As `Queue.reserve`."""
        self._check_open()
        deadline = deadline_of(timeout)
        if nbytes < 0:
            raise ValueError(f"cannot reserve {nbytes} bytes")
        if nbytes > _native.CHUNK_BYTES_MAX:
            raise errors.TooLarge(f"cannot reserve {nbytes} bytes in {self._home.path}: no chunk is so large")
        if self._syncer is not None:
            self._syncer.check()
        fields, keep = self._fields(key, type, time_ns, headers, self._when(ttl))
        tail, code = self._tail, 0
        while True:
            if code < 0:
                self._settle(code, tail, _native.record_bytes(fields, nbytes), 1, deadline)
                tail = self._tail
                warm.settle()
            claim = tail.reserve(fields, nbytes)
            if isinstance(claim, _native.Claim):
                del keep
                return Slot(tail, claim, nbytes, self._membership, self._syncer)
            code = claim

    def _fields(
        self,
        key: bytes | None,
        record_type: int,
        time_ns: int | None,
        headers: Mapping[str, Any] | None,
        fixed: _native.Fixed,
    ) -> tuple[Any, Any]:
        time_ns = None if time_ns is None else _check_time(time_ns)
        return _native.header_fields(
            _check_key(key), _check_type(record_type), time_ns, _encode_headers(headers), fixed
        )

    def _when(self, ttl: float | None, delay: float | None = None) -> _native.Fixed:
        if ttl is None:
            ttl = self._home.options.ttl
        if ttl is None and delay is None:
            return 0, b""
        from shmq.when import when  # noqa: PLC0415  # only users of times pay for it

        return when(ttl, delay)

    def _fixed(self, ttl: float | None, delay: float | None, turn: Turn | None) -> _native.Fixed:
        """The fields of fixed size that its records have."""
        flags, content = self._when(ttl, delay)
        return (flags, content) if turn is None else (flags | turn.field[0], content + turn.field[1])

    def _turn(self, dedup: tuple[str | bytes, int]) -> Turn:
        """How a put with dedup goes."""
        from shmq.once import Turn  # noqa: PLC0415  # only who uses it pays for it

        if self._membership.member.forked():
            self._rejoin()
        return Turn(self, dedup)

    # ---- when a put does not go straight through
    def _settle(self, code: int, tail: _native.Chunk, region: int, count: int, deadline_ns: int) -> None:
        """Make the next try possible, or say why there is none."""
        self._check_open()
        if code == _native.ROLL:
            self._roll(tail, region)
        elif code == _native.FULL:
            self._room.make(tail, count, region, deadline_ns, self._check_open)
        elif code == _native.FORKED:
            self._rejoin()
        else:
            problem = _native.error(code, f"cannot put into {self._home.path}")
            problem.args = (f"{problem.args[0]}; nothing was put", *problem.args[1:])
            raise problem

    def _roll(self, tail: _native.Chunk, region: int) -> None:
        with self._lock:
            if self._tail is not tail:
                return  # another thread did it
            try:
                self._use(self._chain.roll(tail, region))
            except (errors.Gone, FileNotFoundError):
                self._use(self._chain.tail())  # retired while we rolled: start again from the live end
            self._membership.rolled(self._tail)
            options = self._home.options
            if options.retention.kind != "acked" or options.full == "drop_oldest":  # else consumers do it as they pass
                self._membership.forget_retired()
                space.retire(self._home, self._chain, self._membership.control)

    def _rejoin(self) -> None:
        """In a forked child: a seat of its own, and the tail as that seat's."""
        with self._lock:
            if self._membership.member.forked():
                self._membership = self._queue._joined().retain()  # noqa: SLF001
                self._chain = self._make_chain()
                self._syncer = self._make_syncer()
                self._room = Room(self._home, self._membership, self._chain)
                self._known = None
                self._use(self._chain.tail())

    def _use(self, chunk: _native.Chunk) -> None:
        self._tail = chunk
        self._membership.claims_from(self, chunk.sequence)
        self._move(chunk.address, 0, 0, chunk)
        if self._syncer is not None:
            self._sync_with(self._syncer.mark_due_ns, sync)

    # ---- closing
    def close(self) -> None:
        """No more puts through this handle. What was put is in the queue. Closing twice is fine."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._move(0, 0, 0, None)
        if not self._membership.member.forked():
            self._membership.control.room()  # another thread may be waiting in here
        self._membership.claims_from(self, None)
        self._membership.leave()
        self._home.close()

    def _check_open(self) -> None:
        if self._closed:
            raise errors.Closed(f"cannot put into {self._home.path}: this handle was closed; open it again")

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def __del__(self) -> None:
        """Close."""
        with contextlib.suppress(AttributeError):  # never finished opening
            self.close()


class MortalProducer(Producer):
    """For a queue whose messages expire unless a put says otherwise: each put needs a moment from Python."""

    def put(self, payload: Any, **given: Any) -> int:
        """As `Queue.put`."""
        return self._put(0, payload, **given)


class Slot:
    """
    Room for one message, to be filled in place. Consumers wait at it until it is committed or aborted.

    Attributes:
        buffer: its writable bytes; not to be used after commit.
        index: where the message will be.
    """

    def __init__(
        self,
        chunk: _native.Chunk,
        claim: _native.Claim,
        nbytes: int,
        membership: Membership,
        syncer: Syncer | None = None,
    ) -> None:
        """See `Queue.reserve`."""
        self._membership = membership.retain()  # a claim lives as long as its owner sits
        self._chunk = chunk
        self._claim = claim
        self._nbytes = nbytes
        self._syncer = syncer
        self._open = True
        self._membership.claims_from(self, chunk.sequence)
        self._pid = os.getpid()
        self.index = claim.at
        self.buffer = memoryview(chunk.map)[claim.payload : claim.payload + nbytes]

    def commit(self, nbytes: int | None = None) -> int:
        """
        Publish the first *nbytes* bytes of the buffer (all of it by default) and return the index.

        Raises:
            Fenced: this process was judged dead meanwhile; the message is not in the queue.
            Forked: it was reserved by the parent process.
            SyncPending, SyncFailed: as `Queue.put`.
        """
        length = self._nbytes if nbytes is None else nbytes
        if not 0 <= length <= self._nbytes:
            raise ValueError(f"cannot commit {length} bytes of {self._nbytes} that were reserved")
        self._end("commit", lambda: self._chunk.commit(self._claim, length))
        if self._syncer is not None:
            self._syncer.wait(self._chunk, self.index, _native.FOREVER)
        return self.index

    def abort(self) -> None:
        """Give the room up: its index stays unused, consumers go on behind it."""
        self._end("abort", lambda: self._chunk.abort(self._claim))

    def _end(self, what: str, call: Any) -> None:
        if not self._open:
            raise errors.Closed(f"cannot {what} message {self.index}: it was committed or aborted before")
        if os.getpid() != self._pid:
            raise errors.Forked(
                f"cannot {what} message {self.index}: it was reserved by the parent process {self._pid}"
            )
        code = call()
        self._open = False
        self._membership.claims_from(self, None)
        self._membership.leave()
        with contextlib.suppress(BufferError):  # an array still looks at it; that is its user's business
            self.buffer.release()
        if code != 0:
            raise _native.error(code, f"cannot {what} message {self.index} of {self._chunk.path}")

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Commit, or abort when an exception passes."""
        if self._open and os.getpid() == self._pid:
            if kind is None:
                self.commit()
            else:
                self.abort()

    def __del__(self) -> None:
        """Abort what was forgotten, unless this is a forked child's copy."""
        if getattr(self, "_open", False) and os.getpid() == self._pid:
            with contextlib.suppress(errors.ShmqError):
                self.abort()


def _view(data: Any) -> memoryview:
    """The contiguous bytes of anything bytes-like."""
    try:
        view = memoryview(data)
    except TypeError:
        raise TypeError(
            f"codec 'bytes' takes bytes-like objects, not {type(data).__name__}; "
            "make the queue with Options(codec=...) for others"
        ) from None
    return view.cast("B") if view.c_contiguous else memoryview(view.tobytes())


def _check_key(key: bytes | None) -> bytes:
    if key is None:
        return b""
    if not isinstance(key, bytes):
        raise TypeError(f"a key is bytes, not {type(key).__name__}")
    return key


def _check_keys(keys: Sequence[bytes | None]) -> Sequence[bytes]:
    if set(map(type, keys)) == {bytes}:
        return cast("Sequence[bytes]", keys)
    return [_check_key(key) for key in keys]


def _batch(
    items: list[bytes],
    keys: Sequence[bytes | None] | None,
    types: Sequence[int] | None,
    times_ns: Sequence[int] | None,
    headers: Sequence[Mapping[str, Any] | None] | None,
    fixed: _native.Fixed,
) -> _native.Batch:
    if types is not None and not 0 <= min(types) <= max(types) <= _TYPE_MAX:
        types = [_check_type(each) for each in types]
    if times_ns is not None and not _NOT_A_TIME < min(times_ns) <= max(times_ns) < -_NOT_A_TIME:
        times_ns = [_check_time(each) for each in times_ns]
    return _native.Batch(
        items,
        None if keys is None else _check_keys(keys),
        types,
        times_ns,
        None if headers is None else _encode_each(headers),
        fixed,
    )


def _check_lengths(count: int, **lists: Sequence[Any] | None) -> None:
    for name, values in lists.items():
        if values is not None and len(values) != count:
            raise ValueError(f"{name} has {len(values)} entries for {count} payloads; nothing was put")


def _check_type(record_type: int) -> int:
    if not 0 <= record_type <= _TYPE_MAX:
        raise ValueError(f"type={record_type}: from 0 to {_TYPE_MAX}")
    return record_type


def _check_time(time_ns: int) -> int:
    if not _NOT_A_TIME < time_ns < -_NOT_A_TIME:
        raise ValueError(f"time_ns={time_ns}: nanoseconds since 1970 in 64 bits")
    return time_ns


@functools.cache
def _headers_encoder() -> Callable[[Any], bytes]:
    import msgspec  # noqa: PLC0415  # only users of headers pay for it

    return msgspec.msgpack.Encoder().encode


def _encode_headers(headers: Mapping[str, Any] | None) -> bytes:
    return _headers_encoder()(headers if headers.__class__ is dict else dict(headers)) if headers else b""


def _encode_each(headers: Sequence[Mapping[str, Any] | None]) -> list[bytes]:
    if headers[0] is headers[-1] and len(set(map(id, headers))) == 1:  # of one origin: encoded once
        return [_encode_headers(headers[0])] * len(headers)
    if set(map(type, headers)) == {dict} and all(headers):
        return list(map(_headers_encoder(), headers))
    return [_encode_headers(each) for each in headers]

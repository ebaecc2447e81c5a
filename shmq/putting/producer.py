"""
Putting messages: the tail of the chain, and the way on when it is sealed.

A producer is safe to share between threads; claims are settled by the core, and only rolling takes a lock here.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import weakref

from shmq import _native, ending, errors, given, later, locks, log, roles
from shmq.alarm import Alarm, Armed
from shmq.closable import Forgotten
from shmq.codec import codec
from shmq.deadlines import deadline_of
from shmq.hints import TYPE_CHECKING, Any, T, cast
from shmq.loan import Loan
from shmq.message import EncodedHeaders
from shmq.putting.pace import Pace
from shmq.putting.room import Room
from shmq.session import Handle
from shmq.storage import space, sync, warm
from shmq.storage.chain import Chain
from shmq.where import says_where

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import TracebackType

    from shmq.arrays import Kind
    from shmq.durability import Syncer
    from shmq.membership import Membership
    from shmq.putting.once import DedupPut, Once
    from shmq.session import Session
    from shmq.storage.forwarded import Copies, Forwarded

_TYPE_MAX = 65535
_NOT_A_TIME = -(1 << 63)
_FOREVER = 1e9
"""Seconds, beyond which nobody can tell that a message did not expire."""
_PLAIN = {bytes, bytearray}
"""What is bytes and nothing more; what else has the buffer protocol may be an array."""
_NO_LISTS = (str, bytes, bytearray, memoryview, dict)
"""What can be iterated over, too, and is rarely meant so."""


@says_where("_home.path", "_settle", "_turn", "put_arrow", "_put_once", closed="_closed")
@says_where("_home.path", "close")
class Producer(_native.Tail[T], Handle):
    """What `Queue.put` uses. Made by `Queue.producer`; a context manager."""

    def __init__(self, session: Session) -> None:
        """See `Queue.producer`."""
        self._session = session
        self._encode = session.codec.encode
        self._lock = locks.Lock()
        self._closed = False
        self._loan = Loan()
        self._once: Once | None = None
        self._noted = False
        self._syncer: Syncer | None = None
        self._disk: Syncer | None = None
        self._forwarded: dict[bytes, Forwarded] = {}
        self._room: Room | None = None
        """What it knows of the room, once that was asked for."""
        try:
            self._borrow()
            roles.refuse(self._home, "put")
            self._chain = self._make_chain()
            self._syncer = self._make_syncer()
            self._code_with(self._encode)
            self._home.follow(self._membership.control)
            self._go_by_options()
            self._use(self._chain.tail())
        except BaseException:
            self.close()
            raise

    def _make_chain(self) -> Any:
        chain = Chain(self._home, self._membership.member)
        chain.looked_through = self._membership.looked_through()
        self._pace = Pace(self._home, chain, self._membership.control)
        # Weakly: a producer that nobody has any more is gone at once, and does not wait for the garbage collector.
        chain.make_room = functools.partial(_if_there, weakref.WeakMethod(self._make_room))
        chain.await_used = functools.partial(_if_there, weakref.WeakMethod(self._pace.await_used))
        return chain

    def _make_room(self) -> None:
        control, before = self._membership.control, None
        while control.first_live() != before:
            before = control.first_live()
            self._membership.let_go()  # what was retired and is mapped here, nobody can use again
            space.make_room(self._home, self._chain, control)
        self._membership.let_go()  # and what was unlinked and is mapped here keeps its space

    def _make_syncer(self) -> Syncer | None:
        """What a put waits with; None when it does not wait."""
        if not self._home.options.durability.waits:
            return None
        later.ready("shmq.durability")
        from shmq.durability import Syncer  # noqa: PLC0415  # only this mode pays for it

        return Syncer(self._home, self._membership, is_over=self._loan.is_over)

    # ---- putting
    def _put(
        self,
        code: int,
        payload: Any,
        *more: Any,
        key: bytes | None = None,
        type: int = 0,  # noqa: A002
        time_ns: int | None = None,
        ttl: float | None = None,
        delay: float | None = None,
        headers: Mapping[str, Any] | None = None,
        dedup: tuple[str | bytes, int] | None = None,
        timeout: float | None = None,
        **strange: Any,
    ) -> int:
        """What `put` does where the built-in does not: rolls, forks, errors. *code* is what its try answered."""
        if more or strange:
            given.no_block("Producer.put", more, strange)
        self._check_open()
        syncer, deadline = self._syncer, deadline_of(timeout)
        if syncer is not None:
            syncer.check()
        turn = None if dedup is None else self._turn(dedup)
        if headers:
            self._pack_with(_headers_encoder())  # from now on the built-in does
        data, headers = self._encoded(payload, headers)
        fields, keep = self._fields(key, type, time_ns, headers, self._fixed(ttl, delay, turn))
        with _view(data) as view, _native.readable(view) as readable:
            size = len(readable)
            tail = self._tail
            if turn is None and code >= 0:
                code = tail.put_record(fields, readable, size)
            if turn is not None or code < 0:
                region = _native.record_bytes(fields, size)

                def attempt(tail: _native.Chunk) -> int:
                    return tail.put_record(fields, readable, size)

                if turn is not None:
                    return self._put_once(turn, attempt, region, 1, deadline).start
                tail, code = self._until_put(attempt, region, 1, deadline, code)
            del keep  # what the fields point at had to live until here
        if syncer is not None:
            self._wait(tail, code, deadline)
        return code

    _put.__qualname__ = "Producer.put"  # which is what a wrong argument is told about

    def _wait(
        self, tail: _native.Chunk, index: int, deadline_ns: int = _native.FOREVER, first: int | None = None
    ) -> int:
        """Wait until the message at *index* in that chunk, the last of a batch from *first* on, is synced; *index*."""
        syncer = cast("Syncer", self._syncer)
        syncer.wait(tail, index, deadline_ns, first)
        self._sync_with(syncer.built_in_until_ns, sync)
        return index

    def _interrupted(self, index: int, problem: BaseException) -> None:
        """Say what it means that *problem* ended the wait of the built-in for the message at *index*."""
        raise cast("Syncer", self._syncer).pending(index, problem) from problem

    def _put_many(
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
        """What `put_many` does where the built-in does not."""
        self._check_open()
        deadline = deadline_of(timeout)
        items, arrays = self._encode_all(payloads)
        count = len(items)
        _check_lengths(count, keys=keys, types=types, times_ns=times_ns, headers=headers)
        if arrays:
            headers = [_with(each, more) for each, more in zip(headers or [None] * count, arrays, strict=True)]
        self._check_count(count)
        if count == 0:
            return self._nothing(dedup)
        turn = None if dedup is None else self._turn(dedup)
        batch = _batch(items, keys, types, times_ns, headers, self._fixed(ttl, None, turn))
        return self._put_batch(batch, turn, deadline)

    _put_many.__qualname__ = "Producer.put_many"

    def put_arrow(
        self,
        batch: Any,
        *,
        ttl: float | None = None,
        dedup: tuple[str | bytes, int] | None = None,
        timeout: float | None = None,
    ) -> range:
        """As `Queue.put_arrow`."""
        later.ready("shmq.reading.arrow")
        from shmq.reading.arrow import check_batch, one_batch, to_put  # noqa: PLC0415  # only who uses it pays for it

        self._check_open()
        deadline = deadline_of(timeout)
        if self._encode is not None:
            raise ValueError(
                f"cannot put a record batch into {self._home.path}: its codec {self._home.options.codec!r} takes "
                "objects, and payloads in Arrow are bytes already; nothing was put"
            )
        found = check_batch(batch)
        count = found.num_rows
        self._check_count(count)
        if count == 0:
            return self._nothing(dedup)
        turn = None if dedup is None else self._turn(dedup)
        return self._put_batch(to_put(one_batch(found), self._fixed(ttl, None, turn)), turn, deadline)

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
        end = self._session.next_index
        return range(end, end)

    def _put_batch(self, batch: _native.Batch, turn: DedupPut | None, deadline: int) -> range:
        """Put all of it by one claim."""
        count = batch.count
        if turn is not None:
            return self._put_once(turn, lambda tail: tail.put_many(batch), batch.region_bytes(), count, deadline)
        if self._syncer is not None:
            self._syncer.check()
        tail, first = self._until_put(lambda tail: tail.put_many(batch), batch.region_bytes(), count, deadline)
        if self._syncer is not None:
            self._wait(tail, first + count - 1, deadline, first)
        return range(first, first + count)

    def _encoded(self, payload: Any, headers: Mapping[str, Any] | None) -> tuple[Any, Mapping[str, Any] | None]:
        """The bytes of one, and its headers, which say, too, what it is an array of."""
        if self._encode is not None:
            return self._encode(payload), headers
        return (payload, headers) if payload.__class__ in _PLAIN else _described(payload, headers)

    def _encode_all(self, payloads: Iterable[Any]) -> tuple[list[bytes], list[dict[str, Any]]]:
        """The bytes of each, and what headers say of those that are arrays; none if none is."""
        if isinstance(payloads, _NO_LISTS) or not hasattr(payloads, "__iter__"):
            raise given.wrong_type("payloads", payloads, "a list of payloads", "; for one of them there is put()")
        if self._encode is not None:
            return list(map(self._encode, payloads)), []
        items = list(payloads)
        kinds = set(map(type, items))
        if kinds <= {bytes}:
            return items, []
        if kinds <= _PLAIN:
            return [_view(item).tobytes() for item in items], []
        found = [_described(item, None) for item in items]
        return [_view(data).tobytes() for data, _ in found], [dict(headers or {}) for _, headers in found]

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
        """As `Queue.reserve`."""
        self._check_open()
        deadline = deadline_of(timeout)
        kind = None
        if nbytes is None or shape is not None or dtype is not None:
            if self._encode is not None:
                raise TypeError(
                    f"cannot reserve room for an array in {self._home.path}: its payloads are of codec "
                    f"{self._session.codec.name!r}, and an array is bytes"
                )
            kind, nbytes = _room_for_array(nbytes, shape, dtype)
            headers = _with(headers, kind.headers())
        nbytes = given.whole("nbytes", nbytes, 0)
        if nbytes > _native.CHUNK_BYTES_MAX:
            raise errors.TooLarge(f"cannot reserve {nbytes} bytes in {self._home.path}: no chunk is so large")
        if self._syncer is not None:
            self._syncer.check()
        fields, keep = self._fields(key, type, time_ns, headers, self._when(ttl))
        slot: Slot | None = None

        def attempt(tail: _native.Chunk) -> int:
            nonlocal slot
            if slot is not None:
                slot.give_up()
            slot = Slot(self._membership, nbytes, self._syncer, kind)  # anew: a fork has another seat
            return slot.claim_in(tail, fields)

        try:
            self._until_put(attempt, _native.record_bytes(fields, nbytes), 1, deadline)
            del keep
            return cast("Slot", slot)
        except BaseException:
            if slot is not None:
                slot.give_up()
            raise

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
        later.ready("shmq.putting.when")
        from shmq.putting.when import when  # noqa: PLC0415  # only users of times pay for it

        return when(ttl, delay)

    def _fixed(self, ttl: float | None, delay: float | None, turn: DedupPut | None) -> _native.Fixed:
        """The fields of fixed size that its records have."""
        flags, content = self._when(ttl, delay)
        return (flags, content) if turn is None else (flags | turn.field[0], content + turn.field[1])

    def _turn(self, dedup: tuple[str | bytes, int]) -> DedupPut:
        """How a put with dedup goes."""
        later.ready("shmq.putting.once")
        from shmq.putting.once import DedupPut, Once  # noqa: PLC0415  # only who uses it pays for it

        if self._membership.member.forked():
            self._rejoin()
        if self._once is None:
            self._once = Once(self._home, self._membership.control, self._chain)
        return DedupPut(self._once, dedup)

    def _put_once(
        self, turn: DedupPut, attempt: Callable[[_native.Chunk], int], region: int, count: int, deadline_ns: int
    ) -> range:
        """Put it with *attempt*, unless it was put before: its indexes."""
        if self._syncer is not None:
            self._syncer.check()
        once = cast("Once", self._once)
        once.begin()

        def alone() -> int:
            self._check_open()
            outside = (_native.FULL, _native.SHUT_DOWN)
            tail, first = self._until_put(attempt, region, count, deadline_ns, outside=outside)
            if first >= 0 and self._syncer is None:
                name, known = turn.put_at(tail, first)
                self._once_as(name, (known.address, known))
            return first

        while True:
            done = turn.put(deadline_ns, alone)
            if not isinstance(done, int) or done >= 0:
                break
            # Somebody must make room, and may need this turn for it: it is waited for outside.
            self._settle(done, self._tail, region, count, deadline_ns)
        put = range(done, done + count) if isinstance(done, int) else done
        once.note()
        if self._syncer is not None and len(put):
            self._syncer.wait(None, put[-1], deadline_ns, put.start)  # also of one that was put before
        return put

    # ---- what is forwarded
    @property
    def path(self) -> str:
        """The queue's directory."""
        return self._home.path

    @property
    def place(self) -> str:
        """What opens the queue again: its directory, or shm:NAME."""
        return self._session.place

    def check_open(self) -> None:
        """
        Refuse what could not be put.

        Raises:
            Closed: this handle was closed.
            SyncFailed: an earlier sync failed.
        """
        self._check_open()
        if self._membership.member.forked():
            self._rejoin()
        if self._syncer is not None:
            self._syncer.check()

    def prepared(
        self,
        payload: Any,
        key: bytes | None,
        record_type: int,
        time_ns: int | None,
        headers: Mapping[str, Any] | None,
        ttl: float | None,
        delay: float | None,
        once: _native.Fixed,
    ) -> tuple[Any, Any, bytes]:
        """One message as `put_forwarded` takes it: its fields, what they point into, and its bytes."""
        data, headers = self._encoded(payload, headers)
        flags, content = self._when(ttl, delay)
        fields, keep = self._fields(key, record_type, time_ns, headers, (flags | once[0], content + once[1]))
        if headers:
            self._pack_with(_headers_encoder())  # from now on the built-in does
        if data.__class__ is not bytes:
            with _view(data) as view:
                data = view.tobytes()
        _native.check_fields(fields, len(data), f"cannot put into {self._home.path}")
        return fields, keep, data

    def prepared_again(
        self,
        data: bytes,
        key: bytes | None,
        record_type: int,
        time_ns: int | None,
        headers: bytes | None,
        fixed: _native.Fixed,
        once: _native.Fixed,
    ) -> tuple[Any, Any, bytes]:
        """The same of one that the built-in has prepared: all of it is encoded, and known to be good."""
        fields, keep = _native.header_fields(
            key, record_type, time_ns, headers, (fixed[0] | once[0], fixed[1] + once[1])
        )
        return fields, keep, data

    def begin_once(self) -> None:
        """Have the queue know that something is put once, so that what retires a chunk notes what is in it."""
        if not self._noted:
            later.ready("shmq.storage.dedup")
            from shmq.storage import dedup  # noqa: PLC0415  # only who forwards pays for it

            dedup.begin(self._home)
            self._noted = True

    def done_below(self, incarnation: bytes) -> int:
        """As far as this queue knows, all before that index of that source is done for good."""
        later.ready("shmq.storage.forgotten")
        from shmq.storage import forgotten  # noqa: PLC0415  # only who forwards pays for it

        floor = forgotten.floors(self._home).get(incarnation)
        return 0 if floor is None else floor.below

    def forwarded(self, incarnation: bytes) -> Copies:
        """What that source has put here, by now."""
        later.ready("shmq.storage.forwarded")
        from shmq.storage.forwarded import Forwarded  # noqa: PLC0415  # only who looks for it

        with self._lock:
            known = self._forwarded.get(incarnation)
            if known is None:
                known = self._forwarded[incarnation] = Forwarded(self._home, self._chain, incarnation)
            return known.look()

    def put_forwarded(self, each: _native.Each, deadline_ns: int, check: Callable[[], None]) -> int:
        """Put all of them by one claim, right before which *check* may refuse: the first index."""

        def attempt(tail: _native.Chunk) -> int:
            check()
            return tail.put_each(each)

        _, first = self._until_put(attempt, each.region, each.count, deadline_ns)
        return first

    def wait_for_disk(self, index: int, deadline_ns: int) -> None:
        """With SYNC: wait until what was put up to *index* is on the disk."""
        if self._syncer is not None:
            self._syncer.wait(None, index, deadline_ns)

    def have_on_disk(self, index: int, deadline_ns: int) -> None:
        """The same, whatever this queue's durability."""
        if self._disk is None:
            later.ready("shmq.durability")
            from shmq.durability import Syncer  # noqa: PLC0415  # rare

            self._disk = self._syncer or Syncer(self._home, self._membership, is_over=self._loan.is_over)
        self._disk.wait(None, index, deadline_ns)

    # ---- when a put does not go straight through
    def _until_put(
        self,
        attempt: Callable[[_native.Chunk], int],
        region: int,
        count: int,
        deadline_ns: int,
        code: int = 0,
        outside: tuple[int, ...] = (),
    ) -> tuple[_native.Chunk, int]:
        """
        Where it is and its first index, once *attempt* has put it; or what it answered, when that is for outside.

        *code* is what a try before this answered.
        """
        tail = self._tail
        while True:
            if code < 0:
                self._settle(code, tail, region, count, deadline_ns)
                tail = self._tail
                warm.settle()
            code = attempt(tail)
            if code >= 0 or code in outside:
                return tail, code

    def _settle(self, code: int, tail: _native.Chunk, region: int, count: int, deadline_ns: int) -> None:
        """Make the next try possible, or say why there is none."""
        self._check_open()
        if code == _native.ROLL:
            try:
                self._roll(tail, region, deadline_ns)
            except errors.DiskFull as full:
                log.say(log.WARNING, "%s", full.args[0])  # outside of the lock: a handler may put here
                raise
        elif code == _native.FULL:
            self._known_room().make(tail, count, region, deadline_ns, self._check_open)
        elif code == _native.FORKED:
            self._rejoin()
        elif code == _native.SHUT_DOWN and ending.reopen(self._home, self._membership.control):
            pass  # it goes on
        else:
            problem = _native.error(code, f"cannot put into {self._home.path}")
            problem.args = (f"{problem.args[0]}; nothing was put", *problem.args[1:])
            try:
                raise problem
            finally:  # its traceback leads here, and from here to it
                del problem

    def _known_room(self) -> Room:
        with self._lock:
            if self._room is None:
                self._room = Room(self._home, self._membership, self._chain)
            return self._room

    def _roll(self, tail: _native.Chunk, region: int, deadline_ns: int = _native.FOREVER) -> None:
        with self._lock:
            if self._tail is not tail:
                return  # another thread did it
            self._pace.deadline_ns = deadline_ns
            try:
                self._use(self._chain.roll(tail, region, deadline_ns=deadline_ns))
            except errors.DiskFull as problem:
                problem.args = (f"cannot put into {self._home.path}: {problem.args[0]}; nothing was put",)
                raise
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
                self._borrow()
                self._chain = self._make_chain()
                self._syncer = self._make_syncer()
                self._room = None
                self._once, self._disk = None, None
                self._forwarded.clear()
                self._use(self._chain.tail())

    def _use(self, chunk: _native.Chunk) -> None:
        self._tail = chunk
        self._membership.claims_from(self, chunk.sequence)
        self._move(chunk.address, 0, 0, chunk)
        if self._syncer is not None:
            self._sync_with(self._syncer.built_in_until_ns, sync)

    # ---- waiting without a sleep
    def alarm(self, call: Callable[[], object]) -> Alarm:
        """
        An alarm that calls *call* once there may be room where a put with timeout=0 raised Full; for event loops.

        From now on this handle does not wait for the disk, either: a put that is to be there raises `SyncPending` at
        once unless it is, and `Queue.sync`, in another thread, waits for it.

        Args:
            call: takes nothing; it is called in another thread, and should only tell this one to look.
        """
        if not callable(call):
            raise given.wrong_type("call", call, "a function without arguments")
        if self._syncer is not None:
            self._syncer.is_left = True
        return Alarm(self._begin_to_wait, self._may_sleep, lambda: None, call)

    def _begin_to_wait(self, call: Callable[[], object]) -> Armed:
        self._check_open()
        if self._membership.member.forked():
            self._rejoin()
        member = self._membership.member
        return Armed(member, member.room_bell(), member.room_begin(), call)

    def _may_sleep(self) -> tuple[bool, int | None]:
        self._membership.watch()
        return True, None

    # ---- closing
    def close(self) -> None:
        """No more puts through this handle. What was put is in the queue. Closing twice is fine."""
        with self._lock:
            self._closed = True
            self._move(0, 0, 0, None)
        if self._loan.is_over():
            return
        if self._once is not None:
            self._once.forget_built_in()
        waits = not self._membership.member.forked()
        if waits:
            self._membership.control.room()  # another thread may be waiting in here
        self._membership.claims_from(self, None)
        self._loan.give_back()
        if waits and self._syncer is not None:
            self._membership.control.wake()  # or for followers

    def _check_open(self) -> None:
        if self._closed:
            raise errors.Closed(f"cannot put into {self._home.path}: this handle was closed; open it again")
        if self._options is not self._home.follow(self._membership.control):
            self._go_by_options()

    def _go_by_options(self) -> None:
        self._options = self._home.options
        ttl = self._options.ttl
        self._expire_after(-1 if ttl is None else int(min(ttl, _FOREVER) * 1e9))

    def __reduce__(self) -> tuple[Any, ...]:
        """It does not pickle: its queue does."""
        raise given.no_pickle(self, f"a producer of {self._session.place}", "producer()")

    def __repr__(self) -> str:
        """Queue and state, for people."""
        return f"<shmq.Producer of {self._session.place}{' (closed)' if self._closed else ''}>"

    def __del__(self) -> None:
        """Close."""
        self._end_quietly(self.close)


def _if_there(method: weakref.WeakMethod[Callable[..., Any]], *given: Any) -> Any:
    """Call that method of an object, which whoever calls has in hand."""
    found = method()
    return None if found is None else found(*given)


class Slot(_native.Block, Forgotten):
    """
    Room for one message, to be filled in place. Consumers wait at it until it is committed or aborted.

    A context manager: commits at the end of the block, and aborts when an exception passes.

    Attributes:
        buffer: its writable bytes. An array made from them may live on; what is stored there after the commit is its
            own.
        index: where the message will be.
    """

    _claimed_in: _native.Chunk | None = None

    def __init__(self, membership: Membership, nbytes: int, syncer: Syncer | None, kind: Kind | None = None) -> None:
        """See `Queue.reserve`. It is here before its claim: whatever comes between, there is who gives that up."""
        self._pid = os.getpid()
        self._open = True
        self._claim = _native.Claim()
        self._nbytes = nbytes
        self._kind = kind
        self._syncer = syncer
        self._membership = membership
        self._seat = Loan()
        self._seat.sit(membership)  # a claim lives as long as its owner sits
        self.index = -1
        self._space = _native.Room(nbytes)
        self.buffer = self._space.view

    def claim_in(self, chunk: _native.Chunk, fields: Any) -> int:
        """Claim in that chunk: the index, or a negative code, and nothing was claimed."""
        self._claimed_in = chunk
        index = chunk.reserve(self._claim, fields, self._nbytes)
        if index >= 0:
            self.index = index
            self._membership.claims_from(self, chunk.sequence)
            self._space.stands(chunk, self._claim)
            self.buffer = self._space.view
        return index

    @property
    def array(self) -> Any:
        """
        The buffer as the numpy array that was asked for.

        Raises:
            Mismatch: bytes were asked for, not a shape.
        """
        if self._kind is None:
            raise errors.Mismatch(f"message {self.index} was reserved as bytes: give reserve(shape=, dtype=)")
        later.ready("shmq.arrays")
        from shmq.arrays import in_buffer  # noqa: PLC0415  # only users of arrays pay for it

        return in_buffer(self._kind, self.buffer)

    @property
    def _chunk(self) -> _native.Chunk:
        assert self._claimed_in is not None  # noqa: S101  # there is a claim
        return self._claimed_in

    def commit(self, nbytes: int | None = None, *, timeout: float | None = None) -> int:
        """
        Publish the first *nbytes* bytes of the buffer (all of it by default) and return the index.

        With SYNC it waits until that is on the disk, up to *timeout* seconds, and so until everything that was
        reserved before it is committed or given up: whoever has several slots commits them in their order.

        Where full="drop_oldest" has dropped what comes behind it meanwhile, it is dropped, too: no name gets it, and
        the `dropped` of each counts it.

        Raises:
            Fenced: this process was judged dead meanwhile; the message is not in the queue.
            Forked: it was reserved by the parent process.
            SyncPending, SyncFailed: as `Queue.put`.
        """
        length, deadline = self._nbytes if nbytes is None else given.whole("nbytes", nbytes), deadline_of(timeout)
        if not 0 <= length <= self._nbytes:
            raise ValueError(f"cannot commit {length} bytes of {self._nbytes} that were reserved: nbytes={nbytes}")
        self._check_mine("commit")
        self._end("commit", self._space.commit(self._chunk, self._claim, length))
        if self._syncer is not None:
            self._syncer.wait(self._chunk, self.index, deadline)
        return self.index

    def abort(self) -> None:
        """Give the room up: its index stays unused, consumers go on behind it."""
        self._check_mine("abort")
        self._end("abort", self._chunk.abort(self._claim))

    def _check_mine(self, what: str) -> None:
        if not self._open:
            raise errors.Closed(f"cannot {what} message {self.index}: it was committed or aborted before")
        if os.getpid() != self._pid:
            raise errors.Forked(
                f"cannot {what} message {self.index}: it was reserved by the parent process {self._pid}"
            )

    def _end(self, what: str, code: int) -> None:
        self._open = False
        self._leave_seat()
        self._space.shut()
        if code != 0:
            raise _native.error(code, f"cannot {what} message {self.index} of {self._chunk.path}")

    def _leave_seat(self) -> None:
        if not self._seat.is_over():
            self._membership.claims_from(self, None)
            self._seat.give_back()

    def _leave(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        """The block ends."""
        if self._open and os.getpid() == self._pid:
            if kind is None:
                self.commit()
            else:
                self.abort()

    def give_up(self) -> None:
        """Abort, unless it has ended, or is a forked child's copy. One that was committed stays so."""
        if os.getpid() != self._pid:
            return
        if self._open:
            with contextlib.suppress(errors.ShmqError, OSError):
                if self._claim.word:
                    self.abort()
            self._open = False
        self._leave_seat()  # also when its end was interrupted in the middle

    def __repr__(self) -> str:
        """Index, size and state, for people."""
        state = "open" if self._open else "committed or aborted"
        return f"<shmq.Slot for message {self.index}, {self._nbytes} bytes ({state})>"

    def __del__(self) -> None:
        """Abort what was forgotten, unless this is a forked child's copy."""
        self._end_quietly(self.give_up)


def _described(payload: Any, headers: Mapping[str, Any] | None) -> tuple[Any, Mapping[str, Any] | None]:
    """The bytes of what is not plainly bytes, and the headers that say, too, what it is an array of."""
    later.ready("shmq.arrays")
    from shmq.arrays import described  # noqa: PLC0415  # only users of arrays pay for it

    data, more = described(payload)
    return data, _with(headers, more) if more else headers


def _with(headers: Mapping[str, Any] | None, more: Mapping[str, Any]) -> Mapping[str, Any]:
    if headers is not None and not isinstance(headers, dict):
        _encode_headers(headers)  # says what is wrong with it
    return {**(headers or {}), **more}


def _room_for_array(nbytes: int | None, shape: int | Sequence[int] | None, dtype: Any) -> tuple[Kind, int]:
    if nbytes is not None or shape is None or dtype is None:
        raise TypeError("reserve() takes a number of bytes, or shape= and dtype= of an array; nothing was reserved")
    later.ready("shmq.arrays")
    from shmq.arrays import asked  # noqa: PLC0415  # only users of arrays pay for it

    return asked(shape, dtype)


def _view(data: Any) -> memoryview:
    """The contiguous bytes of anything bytes-like."""
    try:
        view = memoryview(data)
    except TypeError:
        raise TypeError(
            f"codec 'bytes' takes bytes-like objects, not {type(data).__name__}; for others make the queue with "
            "another codec, as shmq.open(path, codec='text'), 'json' or 'msgpack' do"
        ) from None
    return view.cast("B") if view.c_contiguous else memoryview(view.tobytes())


def _check_key(key: bytes | None) -> bytes:
    if key is None:
        return b""
    if not isinstance(key, bytes):
        raise TypeError(f"key={key!r}: bytes are wanted, not {type(key).__name__}; for text write key.encode()")
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
    if types is not None and not (set(map(type, types)) <= {int} and 0 <= min(types) <= max(types) <= _TYPE_MAX):
        types = [_check_type(each) for each in types]
    if times_ns is not None and not (
        set(map(type, times_ns)) <= {int} and _NOT_A_TIME < min(times_ns) <= max(times_ns) < -_NOT_A_TIME
    ):
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
        if values is None:
            continue
        if not hasattr(values, "__len__") or not hasattr(values, "__getitem__") or isinstance(values, _NO_LISTS):
            raise given.wrong_type(name, values, "a list with an entry for each payload")
        if len(values) != count:
            raise ValueError(f"{name} has {len(values)} entries for {count} payloads; nothing was put")


def _check_type(record_type: int) -> int:
    return given.whole("type", record_type, 0, _TYPE_MAX)


def _check_time(time_ns: int) -> int:
    found = given.whole("time_ns", time_ns)
    if not _NOT_A_TIME < found < -_NOT_A_TIME:
        raise ValueError(f"time_ns={given.shown(time_ns)}: nanoseconds since 1970 in 64 bits")
    return found


@functools.cache
def _headers_encoder() -> Callable[[Any], bytes]:
    return cast("Callable[[Any], bytes]", codec("msgpack").encode)  # only users of headers pay for importing msgspec


def _encode_headers(headers: Mapping[str, Any] | None) -> bytes:
    if headers is None:
        return b""
    if not hasattr(headers, "keys"):
        raise given.wrong_type("headers", headers, "a mapping")
    if not set(map(type, headers)) <= {str}:
        _check_names(headers)
    return _headers_encoder()(headers if headers.__class__ is dict else dict(headers)) if headers else b""


def _check_names(headers: Iterable[str]) -> None:
    for name in headers:
        given.text("a header's name", name)


def _encode_each(headers: Sequence[Mapping[str, Any] | None]) -> list[bytes]:
    if isinstance(headers, EncodedHeaders):
        return headers
    if headers[0] is headers[-1] and len(set(map(id, headers))) == 1:  # of one origin: encoded once
        return [_encode_headers(headers[0])] * len(headers)
    names = itertools.chain.from_iterable
    if set(map(type, headers)) == {dict} and all(headers) and set(map(type, names(cast("Any", headers)))) == {str}:
        return list(map(_headers_encoder(), headers))
    return [_encode_headers(each) for each in headers]

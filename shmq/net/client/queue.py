"""A queue at a server, with the verbs of a local one; and the way to it: `connect`."""

from __future__ import annotations

import concurrent.futures
import itertools
import operator
import os
import threading
from typing import TYPE_CHECKING, Any, ClassVar, Self

from shmq import errors
from shmq.net import packing
from shmq.net.client import verbs
from shmq.net.client.address import Address
from shmq.net.client.calls import Call, Put
from shmq.net.client.consumer import RemoteConsumer
from shmq.net.client.held import Held
from shmq.net.client.link import Link
from shmq.net.client.messages import RemoteMessage, coding, one, several
from shmq.net.client.reader import Place, RemoteReader
from shmq.net.client.waiting import deadline, left
from shmq.net.tokens import checked

if TYPE_CHECKING:
    import datetime
    import ssl
    from collections.abc import Iterable, Mapping, Sequence
    from types import TracebackType

    import shmq

_VERDICT = 1.0
_TIMEOUT = 10.0
_NAMED = {"client": None, "token": None, "tls": None, "timeout": None, "read_only": None}
"""What a queue at a server is opened with, in the order in which it is told."""


def connect(
    csp: str,
    *,
    client: str | None = None,
    token: str | None = None,
    tls: ssl.SSLContext | None = None,
    timeout: float = _TIMEOUT,
    read_only: bool = False,
) -> RemoteQueue:
    """
    Open a queue at a server: `csp://HOST:PORT/NAME`, or `csp+unix:///PATH/OF/SOCKET//NAME`.

    Args:
        csp: where; "acsp" is the same.
        client: a name of this client's own. What it has sent and was not told of is then remembered for ever, and not
            for a week of silence. One program at a time puts as it.
        token: what the server knows this client by.
        tls: with which the server is to be spoken to.
        timeout: seconds for each try to connect.
        read_only: change nothing; then nothing can be put, and no consumer opened.

    Raises:
        ValueError: it names no queue of a server; or nobody can show such a token.
        OSError: nobody is there. Later, when a connection is lost, it comes back by itself.
        NotFound: the server has no such queue, or none for this client.
        BadFormat: it speaks another protocol, or another version of this one.
    """
    if read_only is not True and read_only is not False:
        raise TypeError(f"read_only={read_only!r:.200}: True or False is wanted, not {type(read_only).__name__}")
    return RemoteQueue(
        Address.of(csp), client=client, token=checked(token), tls=tls, timeout=timeout, read_only=read_only
    )


def opened(csp: str, named: Mapping[str, Any]) -> RemoteQueue:
    """
    As `connect`, of whatever a program has *named*.

    Raises:
        TypeError: that is an option of the queue, which is the server's, or none at all.
    """
    strange = sorted(named.keys() - _NAMED)
    if strange:
        raise TypeError(
            f"open({csp!r}, {strange[0]}=...): a queue at a server is opened with {', '.join(_NAMED)}; what else there "
            "is to say of it, the server has"
        )
    return connect(csp, **named)


class RemoteQueue:
    """
    One queue at a server. Made by `connect`; safe to share between threads. A forked child has a session of its own.

    It pickles to its address. Its verbs are those of `shmq.Queue`, but for `reserve`, `stage`, `adopt` and Arrow.

    Attributes:
        place: what opens it again.
    """

    def __init__(
        self,
        address: Address,
        *,
        client: str | None,
        token: str | None,
        tls: ssl.SSLContext | None,
        timeout: float,
        read_only: bool = False,
    ) -> None:
        """Connect; see `connect`."""
        self._read_only = read_only
        self._address = address
        self._given: dict[str, Any] = {"client": client, "token": token, "tls": tls, "timeout": timeout}
        self._timeout = timeout
        self._lock = threading.Lock()
        self._cids = itertools.count(1)
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._link = Link(self._address, **self._given)
        self._encode, self.decode = coding(self._link.told["codec"])
        self._frame = int(self._link.told["frame"])

    def link(self) -> Link:
        """
        Return the connection; in a forked child, one of its own.

        Raises:
            Closed: this handle was closed.
        """
        if self._closed:
            raise errors.Closed(f"{self._address} was closed; open it again")
        if os.getpid() != self._pid:
            self._lock = threading.Lock()
            self._begin()
        return self._link

    def writable(self, what: str) -> Link:
        """
        Return the connection, for *what* changes something there.

        Raises:
            Closed: this handle was closed, or opened read-only.
        """
        if self._read_only:
            raise errors.Closed(f"cannot {what}: {self._address} was opened read-only")
        return self.link()

    def ask(self, call: Call) -> Any:
        """Return what the server answers."""
        return self.link().answer(call)

    def _call(self, name: str, *given: Any) -> Any:
        return self.ask(Call("call", (name, *given)))

    # ---- putting
    def put(
        self,
        payload: Any,
        *,
        key: bytes | None = None,
        type: int = 0,  # noqa: A002  # the field's name everywhere
        time_ns: int | None = None,
        ttl: float | None = None,
        delay: float | None = None,
        headers: Mapping[str, Any] | None = None,
        dedup: tuple[str | bytes, int] | None = None,
        timeout: float | None = None,
    ) -> int:
        """
        Append *payload* and return its index, as `shmq.Queue.put`: when this returns, the local one would have.

        It is put once, also when the connection breaks meanwhile.

        Raises:
            Full: a bound is reached in time; or the server was not reached in time, and nothing was sent.
            SyncPending: it was sent, and nobody knows yet whether it is there: the time is up, or the server knows
                nothing of this client any more. With an `index` it is there, and perhaps not on the disk.
            TooLarge: it fits in no frame, or no chunk; nothing was put.
            Otherwise as there.
        """
        given = {"ttl": ttl, "delay": delay, "headers": headers, "dedup": dedup, "timeout": timeout}
        found: int = self._put(self.made(payload, key=key, type=type, time_ns=time_ns, **given))
        return found

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
        """Append all *payloads* as one batch, as `shmq.Queue.put_many`, once; otherwise as `put`."""
        given = {"keys": keys, "types": types, "times_ns": times_ns, "headers": headers, "ttl": ttl, "dedup": dedup}
        found: range = self._put(self.made_many(payloads, timeout=timeout, **given))
        return found

    def submit(self, payload: Any, **named: Any) -> concurrent.futures.Future[int]:
        """
        As `put`, without waiting: a future of the index. Batches that are submitted one after the other are under way
        at a time, up to 32, and are put in that order.
        """
        return self._future(self.made(payload, **named))

    def submit_many(self, payloads: Iterable[Any], **named: Any) -> concurrent.futures.Future[range]:
        """As `put_many`, without waiting: a future of the range."""
        return self._future(self.made_many(payloads, **named))

    def made(self, payload: Any, **named: Any) -> Put:
        """Return the call that puts one message."""
        self.writable("put")
        return verbs.put(payload, self._encode, self._frame, **named)

    def made_many(self, payloads: Iterable[Any], **named: Any) -> Put:
        """Return the call that puts several."""
        self.writable("put")
        return verbs.put_many(payloads, self._encode, self._frame, **named)

    def _put(self, call: Put) -> Any:
        until = deadline(call.timeout)
        if not call.payloads:
            return range(0)
        link = self.link()
        try:
            link.begin(call)
            answered = call.wait(left(until))
        except BaseException:
            call.give_up()  # what a signal's handler raises keeps it from being sent; once sent, the link settles it
            raise
        if not answered and not (call.is_sent and link.is_up and call.wait(_VERDICT)):
            raise verbs.unanswered(call, self._address)
        return call.result()

    def _future(self, call: Put) -> concurrent.futures.Future[Any]:
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        future.set_running_or_notify_cancel()
        if not call.payloads:
            future.set_result(range(0))
            return future

        def settle() -> None:
            if call.error is not None:
                future.set_exception(call.error)
            else:
                future.set_result(call.value)

        call.when_done(settle)
        self.link().ask(call)
        return future

    def producer(self) -> Self:
        """What puts: this handle itself, whose puts of several threads go together."""
        self.writable("put")
        return self

    # ---- getting
    def consumer(self, name: str | None = None, *, prefetch: int | None = None, **options: Any) -> RemoteConsumer:
        """
        Open the consumer *name* with those *options*, as `shmq.Queue.consumer`.

        After 10 seconds without a connection, what it holds is given to others, and the name is free.

        Args:
            prefetch: how many messages the server may send ahead. With ack="auto" they are finished when they are sent,
                and a client that is killed loses them; with "explicit" they count as handed out. By default 1,000 for
                ack="auto" and no group, and else what is asked for. A group with ack="auto" is sent nothing ahead.

        Raises:
            As there.
        """
        if prefetch is not None and (isinstance(prefetch, bool) or not isinstance(prefetch, int) or prefetch < 1):
            raise ValueError(f"prefetch={prefetch!r:.200}: how many messages, 1 or more")
        link = self.writable("open a consumer")
        held = Held(next(self._cids), name, verbs.consumer_options(options), link.clock)
        link.consumers[held.cid] = held
        try:
            held.opened(self.ask(Call("consumer", (held.cid, *held.given))))
        except BaseException:
            link.consumers.pop(held.cid, None)
            raise
        held.given = (held.name, held.given[1])
        return RemoteConsumer(link, held, options, prefetch, self.decode)

    def reader(
        self,
        start: str | float | datetime.datetime = 0,
        stop: float | datetime.datetime | None = None,
        *,
        reverse: bool = False,
        follow: bool = False,
        skip_corrupt: bool = False,
        filter: shmq.Filter | None = None,  # noqa: A002  # the field's word
    ) -> RemoteReader:
        """Read from *start* on, as `shmq.Queue.reader`; no pin holds anything back meanwhile."""
        named = {"reverse": reverse, "follow": follow, "skip_corrupt": skip_corrupt, "filter": filter}
        return RemoteReader(self.ask, self.place_of(start, stop, **named), self.place)

    def place_of(self, start: Any, stop: Any, *, follow: Any = False, **options: Any) -> Place:
        """Return where a reader begins, and what it reads."""
        link = self.link()
        upto = None if stop is None else verbs.moment(stop)
        return Place(verbs.moment(start), upto, verbs.reading_options(**options), self.decode, follow=follow, link=link)

    def __getitem__(self, index: int | slice) -> RemoteMessage | list[RemoteMessage]:
        """
        The message at *index*, which counts from the end if it is negative; of a slice the messages there are.

        Raises:
            IndexError: there is none; the text says why.
            Corrupt: it is damaged.
        """
        if isinstance(index, slice):
            return several(self._call("messages", index.start, index.stop, index.step), self.decode)
        return one(self._call("message", operator.index(index)), self.decode)

    __iter__: ClassVar[None] = None
    """By its indexes it would go on for ever; a reader ends."""
    __contains__: ClassVar[None] = None

    def latest(self, key: bytes) -> RemoteMessage | None:
        """The newest message of that *key*, as `shmq.Queue.latest`."""
        columns = self._call("latest", key)
        return None if columns is None else one(columns, self.decode)

    def at(self, time: datetime.datetime | float) -> int:
        """The index of the first message whose time is *time* or later, as `shmq.Queue.at`."""
        if isinstance(time, int):
            raise TypeError(f"time={time!r}: a datetime or a float of seconds since 1970; of nanoseconds see at_ns")
        found: int = self._call("at", verbs.moment(time))
        return found

    def at_ns(self, time_ns: int) -> int:
        """The same, of a time in ns since 1970."""
        found: int = self._call("at_ns", operator.index(time_ns))
        return found

    # ---- consumers
    def consumers(self) -> dict[str, shmq.ConsumerStats]:
        """Every name, as `shmq.Queue.consumers`."""
        return verbs.consumer_statistics(self._call("consumers"))

    def drop_consumer(self, name: str) -> None:
        """Forget the consumer *name*, as `shmq.Queue.drop_consumer`."""
        self.writable(f"drop consumer {name!r}")
        self._call("drop_consumer", name)

    def rename_consumer(self, old: str, new: str) -> None:
        """Give the consumer *old* the name *new*, as `shmq.Queue.rename_consumer`."""
        self.writable(f"rename consumer {old!r}")
        self._call("rename_consumer", old, new)

    def adopted(self, producer: str | bytes) -> tuple[int, range] | None:
        """The last batch of *producer*, as `shmq.Queue.adopted`."""
        found = self._call("adopted", producer)
        return None if found is None else (found[0], range(found[1][0], found[1][0] + found[1][1]))

    # ---- the disk, the end
    def sync(self) -> None:
        """Return when everything put before is on the server's disk, as `shmq.Queue.sync`."""
        self.writable("sync")
        self._call("sync")

    def shutdown(self, immediate: bool = False) -> None:  # as queue.Queue has it
        """Refuse puts from now on, as `shmq.Queue.shutdown`; until the server has left."""
        self.writable("shut down")
        self._call("shutdown", immediate)

    def finish(self) -> None:
        """End the stream for good, as `shmq.Queue.finish`."""
        self.writable("finish")
        self._call("finish")

    @property
    def finished(self) -> bool:
        """Whether the stream has ended for good."""
        return bool(self._call("finished"))

    # ---- looking
    @property
    def place(self) -> str:
        """What opens it again."""
        return self._address.text

    @property
    def id(self) -> str:
        """What tells this queue from any other: 32 hex digits."""
        return str(self.link().told["id"])

    @property
    def closed(self) -> bool:
        """Whether this handle was closed."""
        return self._closed

    @property
    def first_index(self) -> int:
        """The first index still there."""
        return int(self._call("first_index"))

    @property
    def next_index(self) -> int:
        """The index behind the last claimed one."""
        return int(self._call("next_index"))

    @property
    def committed_index(self) -> int:
        """The index behind the part that is decided, as `shmq.Queue.committed_index`."""
        return int(self._call("committed_index"))

    @property
    def durable_index(self) -> int:
        """The index behind what is known to be on the server's disk."""
        return int(self._call("durable_index"))

    def __len__(self) -> int:
        """How many messages there are, for all consumers."""
        return int(self._call("len"))

    def __bool__(self) -> bool:
        """A queue is true, also when it is empty."""
        return True

    def stats(self) -> shmq.Stats:
        """Figures, as `shmq.Queue.stats`."""
        return verbs.statistics(self._call("stats"))

    # ---- closing
    def close(self) -> None:
        """
        Wait up to 10 seconds for what is under way, and part from the server. Closing twice is fine.

        Its consumers are closed with it.
        """
        if not self._closed:
            self._closed = True
            if os.getpid() == self._pid:
                self._link.close(packing.GRACE)

    def __enter__(self) -> Self:
        """Return this object, which the block closes."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """A queue pickles to its address, and what it was opened with."""
        if self._given["tls"] is not None:
            raise TypeError(f"cannot pickle {self!r}: its TLS context is of this process; connect there")
        return _again, (self.place, {**self._given, "read_only": self._read_only})

    def __repr__(self) -> str:
        """Its address, and whether it is closed."""
        return f"<shmq.net.RemoteQueue {self.place}{' (closed)' if self._closed else ''}>"


def _again(place: str, given: dict[str, Any]) -> RemoteQueue:
    return connect(place, **given)

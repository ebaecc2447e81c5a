"""
Messages that are put into other queues and finished by that, as one.

A message that is being forwarded says so in the ring, and no lease ends that: only its holder, or the holder's death.
So whoever has it next knows that it may have been put before, and looks for it there by what its records say: the group
it came from, and its index. Who knows of no earlier try puts without a look. docs/decisions/0054 says why.

One message, few puts, into queues that know its group from before: that is done by the built-in a Forward builds on
(cffi_build/src/python/hot_forward.c), without any of this; docs/decisions/0066 says how the two take turns.
"""

from __future__ import annotations

import functools
import os
import weakref

from shmq import _native, errors, given
from shmq.deadlines import deadline_of
from shmq.hints import TYPE_CHECKING
from shmq.putting.producer import Producer
from shmq.storage import dedup, sources, volatile
from shmq.taking import account as accounts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Protocol, Self

    from shmq._native import Message
    from shmq.storage.forwarded import Copies
    from shmq.taking.account import Account

    class _Queue(Protocol):
        """One that is open here."""

        def _shared_producer(self) -> Producer[Any]: ...


_AGAIN_NS = 1_000_000_000
"""When a message comes again whose outputs found no room."""


class _Output:
    """One message that is put."""

    __slots__ = ("at", "data", "fields", "keep")

    def __init__(self, at: int, fields: Any, keep: Any, data: bytes) -> None:
        self.at = at
        self.fields = fields
        self.keep = keep
        self.data = data


class _Target:
    """A queue that is put into, and what comes there of each message, by their places among the messages."""

    def __init__(self, producer: Producer[Any]) -> None:
        self.producer = producer
        self.outputs: dict[int, list[_Output]] = {}
        self.count = 0
        self.last = -1
        """The highest index that was put, or found."""


class _Input:
    """A message that is forwarded."""

    def __init__(self, message: Message, account: Account) -> None:
        self.message = message
        self.account = account
        self.taken = _native.taken_of(message)
        self.again = False
        self.source: sources.Source | None = None


class _Going:
    """Lives as long as what is forwarded is being put."""

    __slots__ = ("__weakref__",)


class Forward(_native.Onward):
    """
    What is put into other queues when the block ends, and what is finished by that.

    Made by `Message.forward`, and for several messages by `shmq.forward`.

    Attributes:
        indexes: behind the block, of each put in their order: the index that it has there. None where an earlier try
            had put less than this one.
    """

    def __init__(self, messages: tuple[Message, ...], timeout: float | None) -> None:
        """Nothing is put yet."""
        given.timeout(timeout)
        self._timeout = timeout
        self._is_of(messages)

    def _is_of(self, messages: tuple[Message, ...]) -> None:
        self._inputs = [_Input(message, accounts.account_of(message)) for message in messages]
        self._places = {id(message): at for at, message in enumerate(messages)}
        self._targets: dict[str, _Target] = {}
        self._count = 0
        self._pid = os.getpid()
        self._begun = False
        self._forwarding: set[int] = set()
        """By id: those that this one has begun to forward, and perhaps ended."""
        self._over = False
        self._indexes: list[int | None] = []

    def _carry_on(
        self, message: Message, begun: bool, over: bool, puts: list[tuple[Any, ...]], indexes: list[int | None]
    ) -> None:
        """The built-in made this, and was told these puts; from now on all of it is done here."""
        self._timeout = None
        self._is_of((message,))
        for producer, data, *fields, flags, moments in puts:
            self._keep(producer, 0, functools.partial(producer.prepared_again, data, *fields, (flags, moments)))
        self._begun, self._over, self._indexes = begun, over, indexes

    # ---- in the block
    def _put(
        self,
        queue: _Queue | Producer[Any],
        payload: Any,
        *,
        key: bytes | None = None,
        type: int = 0,  # noqa: A002  # the field's name everywhere
        time_ns: int | None = None,
        ttl: float | None = None,
        delay: float | None = None,
        headers: Mapping[str, Any] | None = None,
        message: Message | None = None,
    ) -> None:
        """What `put` does where the built-in does not."""
        if self._over:
            raise errors.Closed("cannot put: the block of this forward has ended")
        at = self._place_of(message)
        producer = queue if isinstance(queue, Producer) else _producer_of(queue)
        self._keep(producer, at, lambda once: producer.prepared(payload, key, type, time_ns, headers, ttl, delay, once))

    _put.__qualname__ = "Forward.put"  # which is what a wrong argument is told about

    def _keep(
        self, producer: Producer[Any], at: int, prepared: Callable[[_native.Fixed], tuple[Any, Any, bytes]]
    ) -> None:
        """Keep what comes of that message, to be put at the end."""
        target = self._target(producer)
        if target.count == _native.BATCH_MAX and len(self._inputs) == 1:
            raise errors.TooMany(
                f"cannot put more than {_native.BATCH_MAX} messages into {producer.path} for one: they are one claim; "
                "nothing was put"
            )
        mine = target.outputs.get(at)
        once = dedup.forwarded_field(self._source(at), self._inputs[at].message.index) if mine is None else (0, b"")
        fields, keep, data = prepared(once)
        output = _Output(self._count, fields, keep, data)
        if mine is None:
            target.outputs[at] = [output]
        else:
            mine.append(output)
        target.count += 1
        self._count += 1

    def _place_of(self, message: Message | None) -> int:
        if message is None:
            if len(self._inputs) > 1:
                raise TypeError("put(message=): of several messages that are forwarded, say which one this comes of")
            return 0
        at = self._places.get(id(message))
        if at is None:
            raise ValueError(f"put(message={message!r}): it is none of those that are forwarded here")
        return at

    def _source(self, at: int) -> bytes:
        each = self._inputs[at]
        if each.source is None:
            each.source = each.account.source()
        return each.source.incarnation

    def _target(self, producer: Producer[Any]) -> _Target:
        path = producer.path
        target = self._targets.get(path)
        if target is None:
            target = self._targets[path] = _Target(producer)
        return target

    # ---- at its end
    def _enter(self) -> Self:
        """The block begins."""
        if self._begun:
            raise errors.Closed("cannot forward twice by one object; call forward() again")
        self._begun = True
        for each in self._inputs:
            each.account.check_mine(each.message, "forward")
        return self

    def _leave(self, kind: type[BaseException] | None, *_: object) -> None:
        """Put all of it, and finish the messages; nothing after an exception."""
        self._over = True
        if kind is None:
            self._put_all()

    def _put_all(self) -> None:
        deadline_ns = deadline_of(self._timeout)
        targets = [self._targets[path] for path in sorted(self._targets)]
        for target in targets:  # what can be refused before anything has begun
            target.producer.check_open()
            self._note_target(target)
        going = _Going()
        try:
            for account in self._accounts():
                account.forwards(weakref.ref(going))
            self._put_and_finish(targets, deadline_ns)
        finally:
            del going  # before anything else, which may be interrupted
            for account in self._accounts():
                account.forwarded()
        for account in self._accounts():
            account.persist()
        if len(self._inputs) == 1:  # the next one need not come here
            for target in targets:
                self._inputs[0].account.leads_to(self._inputs[0].message, target.producer)

    def _put_and_finish(self, targets: list[_Target], deadline_ns: int) -> None:
        try:
            self._begin(deadline_ns)
            self._indexes = [None] * self._count
            for target in targets:
                self._put_into(target, deadline_ns)
            for target in targets:
                self._have_on_disk(target, deadline_ns)
            self._finish()
        finally:
            try:
                self._let_go()
            except BaseException:
                self._let_go()
                raise

    def _accounts(self) -> list[Account]:
        return list({id(each.account): each.account for each in self._inputs}.values())

    def _note_target(self, target: _Target) -> None:
        """Have the sources know where they put, and the queue that it is put into by such."""
        place = target.producer.place
        for at in target.outputs:
            each = self._inputs[at]
            assert each.source is not None  # noqa: S101  # its field is in the outputs
            if not each.account.has_met(place):
                each.account.meets(place, target.producer.done_below(each.source.incarnation))
                each.source = each.account.source(place)
        target.producer.begin_once()

    def _begin(self, deadline_ns: int) -> None:
        """Have the ring say of each that it is forwarded; of all or none."""
        try:
            for each in self._inputs:
                each.again = each.account.begin_forward(each.message, self._forwarding, deadline_ns)
        except errors.ShmqError:
            for each in self._inputs:
                if id(each.message) in self._forwarding:
                    each.account.keep_on(each.message)
            raise

    def _put_into(self, target: _Target, deadline_ns: int) -> None:
        there: dict[bytes, Copies] = {}
        batch: list[list[_Output]] = []
        count = size = 0
        for at, outputs in sorted(target.outputs.items()):
            each = self._inputs[at]
            if each.again:
                incarnation = self._source(at)
                if incarnation not in there:
                    there[incarnation] = target.producer.forwarded(incarnation)
                copy = there[incarnation].get(each.message.index)
                if copy is not None:
                    self._found(target, outputs, *copy)
                    continue
            if count + len(outputs) > _native.BATCH_MAX or (batch and size > _BATCH_BYTES):
                self._put_batch(target, batch, deadline_ns)
                batch, count, size = [], 0, 0
            batch.append(outputs)
            count += len(outputs)
            size += sum(len(output.data) for output in outputs)
        if batch:
            self._put_batch(target, batch, deadline_ns)

    def _found(self, target: _Target, outputs: list[_Output], first: int, count: int) -> None:
        """An earlier try has put them."""
        for output, index in zip(outputs, range(first, first + count), strict=False):
            self._indexes[output.at] = index
        target.last = max(target.last, first + count - 1)

    def _put_batch(self, target: _Target, batch: list[list[_Output]], deadline_ns: int) -> None:
        """What comes of several messages, by one claim; or by one for each, where the queue never has room for all."""
        try:
            self._put_claim(target, [output for outputs in batch for output in outputs], deadline_ns)
        except (errors.TooMany, errors.TooLarge):
            if len(batch) == 1:
                raise
            for outputs in batch:
                self._put_claim(target, outputs, deadline_ns)

    def _put_claim(self, target: _Target, outputs: list[_Output], deadline_ns: int) -> None:
        each = _native.Each([(output.fields, output.data) for output in outputs])
        first = target.producer.put_forwarded(each, deadline_ns, self._may_put)
        for index, output in enumerate(outputs, first):
            self._indexes[output.at] = index
        target.last = max(target.last, first + len(outputs) - 1)

    def _may_put(self) -> None:
        """Whether what is forwarded is still ours to put: right before the claim."""
        if os.getpid() != self._pid:
            raise errors.Forked(f"cannot forward: the parent process {self._pid} does")
        for account in self._accounts():
            account.check_seat()

    def _have_on_disk(self, target: _Target, deadline_ns: int) -> None:
        """Where a power cut may leave the message finished, what came of it must be on the disk before."""
        if target.last >= 0 and not volatile.is_volatile(target.producer.place):
            if any(self._inputs[at].account.syncs for at in target.outputs):
                target.producer.have_on_disk(target.last, deadline_ns)
            else:
                target.producer.wait_for_disk(target.last, deadline_ns)

    def _finish(self) -> None:
        lost: errors.ShmqError | None = None
        for each in self._inputs:
            try:
                each.account.end_forward(each.message)
            except errors.LeaseLost as problem:
                lost = problem
        self._forwarding.clear()
        if lost is not None:
            raise lost

    def _let_go(self) -> None:
        """What was begun and is not finished comes again, and whoever has it then looks whether it was put."""
        if self._forwarding and os.getpid() == self._pid:
            due_ns = _native.boottime_ns() + _AGAIN_NS
            for each in self._inputs:
                if id(each.message) in self._forwarding:
                    each.account.break_forward(each.message, due_ns)

    def __repr__(self) -> str:
        """Of what, and how much, for people."""
        if self._plainly is not None:
            which, count, over = self._plainly
            return _shown(str(which), count, over)
        return _shown(", ".join(str(each.message.index) for each in self._inputs), self._count, self._over)


_native.makes(Forward)  # from now on the built-in does, too


def _shown(which: str, count: int, over: bool) -> str:
    return f"<shmq.Forward of {which} ({count} puts{', over' if over else ''})>"


_BATCH_BYTES = 1 << 20
"""Of several messages, those that are together that large are one claim."""


def _producer_of(queue: Any) -> Producer[Any]:
    make = getattr(queue, "_shared_producer", None)
    found = None if make is None else make()
    if not isinstance(found, Producer):
        hint = "" if make is None else "; a shmq.aio.Queue's .plain is one"
        raise given.wrong_type("put(queue)", queue, "a queue that is open here", hint)
    return found

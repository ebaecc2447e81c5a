"""Bounds, purging and retention: what a queue may hold, and what of it goes."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import shmq

from .payloads import payload
from .recover import brief, check, damage, opened, recover

if TYPE_CHECKING:
    from .operations import Model, Name
    from .recover import Expected

BOUND = 5
LENGTH = 24
TAKES = 64
"""Bytes that a message of LENGTH takes with its header."""
BYTES = BOUND * TAKES + TAKES // 2
NAMES = {"a": "auto", "e": "explicit"}


# ---------------------------------------------------------------- what is true
class Truth:
    """What these verbs change in a Model."""

    names: dict[str, Name]
    next: int
    bound: int

    def _try(self, number: int, length: int) -> None:
        """There is no room, and there is none."""

    def _purge(self, number: int) -> None:
        for name in self.names.values():
            name.head = name.position = self.next
            name.pending = []

    def _set_bounds(self, number: int, messages: int | None, size: int | None) -> None:
        self.bound = messages if messages is not None else self.bound


# ---------------------------------------------------------------- doing it
class Hands:
    """The same verbs, through the public API."""

    queue: Any

    def _try(self, number: int, length: int) -> None:
        with contextlib.suppress(shmq.Full):
            self.queue.put(payload(number, 0, length))
            raise AssertionError("a put that has no room was done")

    def _purge(self, number: int) -> None:
        self.queue.purge()

    def _set_bounds(self, number: int, messages: int | None, size: int | None) -> None:
        self.queue.set_bounds(max_messages=messages, max_bytes=size)


# ---------------------------------------------------------------- what the next process finds
def _messages(queue: Any) -> dict[int, bytes]:
    return {message.index: message.payload for message in queue.reader()}


def _seen(queue: Any, expected: Expected) -> tuple[dict[int, bytes], list[Model]]:
    """What is there, and which runs of operations leave that, but for what was retired in front."""
    seen = _messages(queue)
    first = queue.first_index
    models = [
        model
        for model in expected.models
        if {index: data for index, data in model.messages.items() if index >= first} == seen
    ]
    check(bool(models), "no run of operations leaves these messages", brief(seen))
    return seen, models


def _fill(queue: Any) -> int:
    """Put until there is no room: how many went."""
    for count in range(4 * BOUND):
        try:
            queue.put(bytes(LENGTH))
        except shmq.Full:
            return count
    raise AssertionError("nothing bounds this queue any more")


def _holds(queue: Any) -> int:
    """How many indexes lie between the first message that some name has not finished, and the end."""
    heads = [known.head for known in queue.consumers().values()]
    behind = [message.index for message in queue.reader(start=min(heads))]
    return queue.next_index - min(behind, default=queue.next_index)


def judge_bound(path: str, expected: Expected, options: shmq.Options) -> None:
    """
    The bound holds exactly whoever died: so many more messages fit as are missing, and as many again once all are read.

    Raises:
        AssertionError, shmq.ShmqError: something that must be true is not.
    """
    with opened(path, create=False) as queue:
        seen, models = _seen(queue, expected)
        check(set(queue.consumers()) in [set(model.names) for model in models], "names are there half")
        bounds = {model.bound for model in models}
        for name, found in queue.consumers().items():
            expected.check_head(found.head, [model.names[name] for model in models])
        held = _holds(queue)
        more = _fill(queue)
        fits = {bound for bound in bounds if more == max(bound - held, 0)}
        check(bool(fits), "the bound is another", held, more, bounds)
        for name in queue.consumers():
            with queue.consumer(name, ack=NAMES[name]) as consumer:
                _read_all(consumer)
        again = _fill(queue)
        check(again in fits, "the bound is another once all is read", again, fits)
        check(list(_messages(queue))[: len(seen)] == list(seen), "messages are lost")


def _read_all(consumer: Any) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(shmq.Empty):
        with contextlib.suppress(shmq.Gone):
            messages = consumer.get_many(100, timeout=0)
            found += [message.index for message in messages]
            consumer.ack(*messages)
        while True:
            messages = consumer.get_many(100, timeout=0)
            found += [message.index for message in messages]
            consumer.ack(*messages)
    return found


def judge_dropping(path: str, expected: Expected, options: shmq.Options) -> None:
    """
    `drop_oldest`: a put goes through, and then each name has the newest ones, as many as fit, and nothing else.

    Raises:
        AssertionError, shmq.ShmqError: something that must be true is not.
    """
    with opened(path, create=False) as queue:
        seen, _ = _seen(queue, expected)
        index = queue.put(bytes(LENGTH))
        everything = [*seen, index]
        for name, found in queue.consumers().items():
            with queue.consumer(name, ack=NAMES[name]) as consumer:
                got = _read_all(consumer)
            newest = [each for each in everything if each >= found.head and each > index - BOUND]
            check(got == newest, "others than the newest are there", name, got, newest)  # padding takes room, too


def judge_kept(path: str, expected: Expected, options: shmq.Options) -> None:
    """
    Whole chunks may be gone, and nothing that a name has not finished; and space is used again.

    Raises:
        AssertionError, shmq.ShmqError: something that must be true is not.
    """
    with opened(path, create=False) as queue:
        seen, models = _seen(queue, expected)
        check(set(queue.consumers()) in [set(model.names) for model in models], "names are there half")
        for name, found in queue.consumers().items():
            heads = [model.names[name].head for model in models]
            check(min(heads) <= found.head <= max(heads), "a head is nowhere", name, found.head, heads)
            head = found.head + found.dropped
            head = queue.first_index if expected.has("by size") else head
            check(queue.first_index <= head, "what nobody has finished is retired", queue.first_index, found)
            with queue.consumer(name, ack=NAMES[name]) as consumer:
                begin = consumer.head  # what was acknowledged by whoever was killed is behind it now
                got = _read_all(consumer)
                dropped = queue.consumers()[name].dropped
            rest = [index for index in seen if index >= begin]
            check(got == rest[len(rest) - len(got) :], "a consumer gets something else", name, got, rest)
            check(got == rest or dropped >= len(rest) - len(got), "nobody says what was dropped", name, got, rest)
        end = queue.next_index
        many = [bytes(1500)] * 30  # some four chunks
        check(queue.put_many(many[:15]).start == end and queue.put_many(many[15:]).stop == end + 30, "a gap")
        check(len(_messages(queue)) >= 15, "new messages are not there")
        problems = damage(queue)
        check(not problems, "the chain is not whole", problems)


def judge_index(path: str, expected: Expected, options: shmq.Options) -> None:
    """
    As `recover`; and every index leads to its message, by an index block or by a walk.

    Raises:
        AssertionError, shmq.ShmqError: something that must be true is not.
    """
    recover(path, expected, options)
    with opened(path, create=False) as queue:
        seen = _messages(queue)
        for index in range(queue.next_index):
            try:
                found = queue[index].payload
            except IndexError:
                check(index not in seen, "a message cannot be found", index)
                continue
            check(seen.get(index) == found, "an index leads to another message", index)

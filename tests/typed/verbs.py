"""What type checkers know of payloads: each line here is one that they must agree with, and each ignore is needed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_type

import shmq
import shmq.aio
import shmq.codec


@dataclass
class Order:
    """What a queue carries."""

    id: int
    item: str


def bytes_by_default() -> None:
    """A queue of bytes takes what has bytes."""
    with shmq.open("q") as queue:
        assert_type(queue, shmq.Queue[bytes])
        queue.put(b"x")
        queue.put(memoryview(b"x"), key=b"k")
        queue.put_many([b"x", bytearray(1)])
        queue.put("x")  # type: ignore[arg-type]
        queue.put({"a": 1})  # type: ignore[arg-type]
        assert_type(queue[0], shmq.Message[bytes])
        assert_type(queue[0:1], list[shmq.Message[bytes]])
        assert_type(queue.latest(b"k"), shmq.Message[bytes] | None)


def by_codec() -> None:
    """The codec says what payloads are."""
    assert_type(shmq.open("q", codec="text"), shmq.Queue[str])
    assert_type(shmq.open("q", codec="json", max_messages=10), shmq.Queue[Any])
    assert_type(shmq.open("q", options=shmq.Options(codec="json")), shmq.Queue[Any])
    assert_type(shmq.open("q", durability="sync"), shmq.Queue[bytes])
    assert_type(shmq.open("q", codec=shmq.codec.struct(Order)), shmq.Queue[Order])


def orders() -> None:
    """Structs come back as themselves, by every verb."""
    with shmq.open("q", codec=shmq.codec.struct(Order)) as queue:
        queue.put(Order(1, "tea"))
        queue.put("tea")  # type: ignore[arg-type]
        with queue.producer() as producer:
            assert_type(producer, shmq.Producer[Order])
            producer.put_many([Order(1, "tea")])
        with queue.consumer("c") as consumer:
            assert_type(consumer, shmq.Consumer[Order])
            assert_type(consumer.take(), Order)
            assert_type(consumer.take_many(10), list[Order])
            assert_type(consumer.get().payload.item, str)
            for message in consumer:
                assert_type(message, shmq.Message[Order])
        with queue.consumer("l", ack="explicit") as lone:
            assert_type(lone.get_many(3), list[shmq.Message[Order]])
            lone.ack(*lone.get_many(3))
        with queue.consumer("g", group=True) as member:
            assert_type(member, shmq.GroupConsumer[Order])
            assert_type(member.take(), Order)
        with queue.reader(follow=True) as reader:
            assert_type(next(reader).payload, Order)


def anything(queue: shmq.Queue) -> shmq.Message:
    """Who does not say what payloads are may leave it out."""
    queue.put(object())
    assert_type(queue.consumer("c").take(), Any)
    return queue[0]


class Lines:
    """A codec of one's own."""

    name = "lines"

    def encode(self, value: list[str], /) -> bytes:
        """One line each."""
        return "\n".join(value).encode()

    def decode(self, data: bytes, /) -> list[str]:
        """Back again."""
        return data.decode().splitlines()


def own_codec() -> None:
    """What it decodes to is what payloads are."""
    assert_type(shmq.open("q", codec=Lines()).consumer("c").take(), list[str])


async def awaited() -> None:
    """The same in a loop."""
    async with await shmq.aio.open("q", codec=shmq.codec.struct(Order)) as queue:
        assert_type(queue, shmq.aio.Queue[Order])
        await queue.put(Order(1, "tea"))
        await queue.put("tea")  # type: ignore[arg-type]
        async with await queue.consumer("c") as consumer:
            assert_type(await consumer.take(), Order)
            async for message in consumer:
                assert_type(message.payload, Order)
    assert_type(await shmq.aio.open("q"), shmq.aio.Queue[bytes])


def urgent() -> None:
    """And of several levels."""
    with shmq.priorities.open("p", levels=2, codec=shmq.codec.struct(Order)) as jobs, jobs.consumer("c") as consumer:
        assert_type(jobs.put(Order(1, "tea"), priority=1), tuple[int, int])
        jobs.put("tea")  # type: ignore[arg-type]
        assert_type(consumer.take(), Order)
        for message in consumer:
            assert_type(message.payload, Order)
    assert_type(shmq.priorities.open("p").consumer("c").take(), Any)


def sharded() -> None:
    """And of shards."""
    with shmq.shards.open("s", shards=2, codec=shmq.codec.struct(Order)) as events, events.consumer("c") as consumer:
        assert_type(events.put(Order(1, "tea"), key=b"k"), shmq.shards.Place)
        events.put("tea")  # type: ignore[arg-type]
        assert_type(consumer.take(), Order)
        for message in consumer:
            assert_type(message.payload, Order)
        for number, message in events.reader():
            assert_type((number, message.payload), tuple[int, Order])
    assert_type(shmq.shards.open("s").consumer("c").take(), Any)

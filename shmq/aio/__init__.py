"""
Queues for event loops: the verbs of `shmq`, awaited. For asyncio, uvloop and trio.

    q = await shmq.aio.open("orders")
    await q.put(b"payload")
    async with await q.consumer("billing") as c:
        async for m in c:
            ...

A get that is cancelled while it waits has taken nothing: what it takes is taken in its own task, on the loop's thread,
and returned without another wait. One thread of the process sleeps for all that is awaited. An object belongs to the
loop it was opened in; a forked child opens its own.

A map of the package:
    queue                       `open`, and an open queue
    producer, consumer, reader  what it hands out; `message`, what consumers do
    line                        who waits for a handle, and in which order
    disk                        waiting for the disk
    loops                       what is needed of asyncio and trio
"""

from shmq.aio.consumer import Consumer
from shmq.aio.message import Message
from shmq.aio.producer import Producer
from shmq.aio.queue import Queue, open  # noqa: A004  # shmq.aio.open, as shmq.open
from shmq.aio.reader import Reader

__all__ = ["Consumer", "Message", "Producer", "Queue", "Reader", "open"]

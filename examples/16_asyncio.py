"""
Queues in an event loop: the verbs of shmq, awaited. Nothing blocks it, and a task that is cancelled loses nothing.

Another process puts; three tasks of this one take, and one of them gives up after a moment.

Prints:
    one task gave up, and took nothing
    the others got 100 readings
"""

import asyncio
import multiprocessing

import shmq
import shmq.aio

READINGS = 100


def measure(path):
    with shmq.open(path, codec="msgpack") as queue:
        queue.put_many(range(READINGS))
        queue.finish()


async def collect(queue):
    async with await queue.consumer("dashboard", group=True, ack="explicit") as consumer:
        got = []
        async for message in consumer:  # ends when the queue is finished and drained
            got.append(message.payload)
            await message.ack()
        return got


async def main():
    async with await shmq.aio.open("readings", codec="msgpack") as queue:
        try:
            async with asyncio.timeout(0.05), await queue.consumer("alarms") as consumer:
                await consumer.get()
        except TimeoutError:
            print("one task gave up, and took nothing")
        collecting = [asyncio.create_task(collect(queue)) for _ in range(2)]
        process = multiprocessing.get_context("spawn").Process(target=measure, args=("readings",))
        process.start()
        got = [each for part in await asyncio.gather(*collecting) for each in part]
        await asyncio.to_thread(process.join)
        print("the others got", len(got), "readings")
        assert sorted(got) == list(range(READINGS))


if __name__ == "__main__":
    asyncio.run(main())
    shmq.delete("readings")

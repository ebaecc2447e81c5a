"""
What an awaited queue costs: the time from a put in another process to the task that waited, beside other ways to wait;
and the processor time of many that are awaited while nothing comes.

    python -m benchmarks.aio [--rounds 2000] [--queues 1000] [--uvloop]
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import resource
import statistics
import struct
import time

import shmq
import shmq.aio

PAUSE = 0.0005
TIME = struct.Struct("<q")


def now() -> bytes:
    return TIME.pack(time.perf_counter_ns())


def age(payload: bytes) -> float:
    return (time.perf_counter_ns() - TIME.unpack(payload)[0]) / 1e3


def put_slowly(put, rounds):
    for _ in range(rounds):
        time.sleep(PAUSE)
        put(now())


def into_queue(queue, rounds):
    put_slowly(queue.put, rounds)


def into_pipe(pipe, rounds):
    put_slowly(pipe.send_bytes, rounds)


async def with_process(work, target, where, rounds):
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=target, args=(where, rounds))
    process.start()
    found = [await work() for _ in range(rounds)]
    await asyncio.to_thread(process.join)
    return sorted(found)


async def by_aio(rounds):
    async with await shmq.aio.open(None) as queue, await queue.consumer("c") as consumer:

        async def get():
            return age(await consumer.take())

        return await with_process(get, into_queue, queue.plain, rounds)


async def by_thread(rounds):
    with shmq.open(None) as queue, queue.consumer("c", wait="sleep") as consumer:

        async def get():
            return age(await asyncio.to_thread(consumer.take))

        return await with_process(get, into_queue, queue, rounds)


async def by_pipe(rounds):
    ours, theirs = multiprocessing.Pipe(duplex=False)
    ready = asyncio.Event()
    asyncio.get_running_loop().add_reader(ours.fileno(), ready.set)

    async def get():
        while not ours.poll():
            ready.clear()
            await ready.wait()
        return age(ours.recv_bytes())

    try:
        return await with_process(get, into_pipe, theirs, rounds)
    finally:
        asyncio.get_running_loop().remove_reader(ours.fileno())


async def idle(count, seconds):
    """Processor time a second, and threads, of so many that are awaited; and the latency of one more."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    names = [f"shm:benchmark-aio-{os.getpid()}-{number}" for number in range(count)]
    queues = [await shmq.aio.open(name) for name in names]
    consumers = [await queue.consumer("c") for queue in queues]
    waiting = [asyncio.create_task(each.take()) for each in consumers]
    await asyncio.sleep(3)
    threads = len(os.listdir("/proc/self/task"))
    before = time.process_time()
    await asyncio.sleep(seconds)
    used = (time.process_time() - before) / seconds
    hot = await by_aio(500)
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    for queue in queues:
        await queue.close()
    return used, threads, hot


async def verbs(count):
    """Microseconds of a put and of a take that need not wait."""
    async with await shmq.aio.open(None) as queue, await queue.consumer("c") as consumer:
        begin = time.perf_counter()
        for _ in range(count):
            await queue.put(b"12345678")
        between = time.perf_counter()
        for _ in range(count):
            await consumer.take()
        return (between - begin) / count * 1e6, (time.perf_counter() - between) / count * 1e6


def say(what, found):
    print(f"{what:<28} p50 {statistics.median(found):7.1f} us   p99 {found[int(len(found) * 0.99)]:7.1f} us")


async def main(given):
    put, take = await verbs(20_000)
    print(f"nothing to wait for: put {put:.2f} us, take {take:.2f} us")
    say("Pipe with add_reader", await by_pipe(given.rounds))
    say("shmq.aio", await by_aio(given.rounds))
    say("to_thread(take)", await by_thread(given.rounds))
    used, threads, hot = await idle(given.queues, 10)
    print(f"{given.queues} queues awaited, nothing comes: {used:.2%} of a processor, {threads} threads")
    say("one more beside them", hot)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--queues", type=int, default=1000)
    parser.add_argument("--uvloop", action="store_true")
    arguments = parser.parse_args()
    factory = None
    if arguments.uvloop:
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main(arguments))

"""shmq.aio when things go wrong: processes killed, a full disk, an interpreter that ends in the middle, Ctrl-C."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import random
import signal
import subprocess
import sys
import threading
import time
import weakref

import pytest
from loops import LONG, opened, run, waits
from support import Child, run_python

import shmq
import shmq.aio
from tests.disks import in_memory


async def take_all(consumer, got: set[int]) -> None:
    async for message in consumer:
        got.add(message.index)
        await message.ack()


def test_members_and_producers_that_are_killed_lose_nothing_that_was_committed(path, loop):
    """Each index that is there comes to the loop, whoever held it, and whoever died while it put."""
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)

    def put(say):
        say("ready")
        while True:
            queue.put(b"x")

    def hold(say):
        member = queue.consumer("c", group=True, ack="explicit")
        say("ready")
        held = []
        while True:
            held.append(member.get())
            time.sleep(0.0005)

    async def work():
        got = set()

        async with opened(path, group=True, ack="explicit") as (mine, consumer):
            taking = [asyncio.create_task(take_all(consumer, got)) for _ in range(3)]
            for _ in range(4):
                with Child(put) as putting, Child(hold) as holding:
                    for each in (putting, holding):
                        assert await asyncio.to_thread(each.hear) == "ready"
                    await asyncio.sleep(chance.random() * 0.05)
                    for each in chance.sample([putting, holding], 2):
                        await asyncio.to_thread(each.kill)
            while consumer.lag:
                await asyncio.sleep(0.002)
            assert got == {message.index for message in mine.plain.reader()}, f"seed {seed}"
            await mine.shutdown()
            await asyncio.gather(*taking)

    with shmq.open(path, chunk_bytes=16384, retention="forever") as queue:
        loop(work)


def test_a_full_disk_is_said_at_once_and_a_wait_goes_on(tmp_path, loop):
    async def work():
        async with opened(disk / "q", "c") as (queue, consumer):
            with pytest.raises(shmq.DiskFull):
                await asyncio.gather(*(queue.put(bytes(1000)) for _ in range(2000)))
            assert len(await consumer.take()) == 1000
            count = 1
            while count < queue.next_index:
                count += len(await consumer.take_many(100))
            waiting = asyncio.create_task(consumer.take())
            await waits(consumer, 1)
            await queue.put(b"x")
            assert await waiting == b"x"

    with in_memory(tmp_path, 1 << 20) as disk:
        loop(work)


def test_a_message_that_cannot_be_read_harms_no_other(path, loop):
    async def work():
        async with opened(path, options={"codec": "json"}) as (queue, consumer):
            waiting = []
            for count in (1, 2):
                waiting.append(asyncio.create_task(consumer.take()))
                await waits(consumer, count)
            with shmq.open(path) as raw:
                raw._session.codec = type(raw._session.codec)("bytes", None, None)
                raw.put(b"no json")
            await queue.put("json")
            first, second = await asyncio.gather(*waiting, return_exceptions=True)
            assert isinstance(first, shmq.Corrupt)
            assert second == "json"

    loop(work)


def test_a_loop_that_ended_is_not_told_of_anything(path, loop):
    """Its alarm still calls: into nothing."""
    kept = []

    async def work():
        queue = await shmq.aio.open(path)
        consumer = await queue.consumer("c")
        kept.extend((queue, consumer, asyncio.ensure_future(consumer.take())))
        await waits(consumer, 1)
        consumer._line._alarm.disarm = lambda: None  # as where the loop is torn down before its tasks

    loop(work)
    queue, consumer, _ = kept
    queue.plain.put(b"x")
    time.sleep(0.05)
    assert consumer.plain.take(timeout=LONG) == b"x"


ENDS = """
import asyncio, faulthandler, sys, threading
import shmq, shmq.aio

faulthandler.dump_traceback_later(30)

async def main():
    queue = await shmq.aio.open(sys.argv[1], durability="sync")
    consumer = await queue.consumer("c")
    waiting = [asyncio.create_task(consumer.take()) for _ in range(3)]
    await queue.put(b"x")
    await asyncio.sleep(0.05)
    print(sum(each.done() for each in waiting), flush=True)
    {end}

loop = asyncio.new_event_loop()
loop.run_until_complete(main())
"""


@pytest.mark.parametrize("end", ["pass", "sys.exit()", "threading.Thread(target=consumer.plain.close).start()"])
def test_an_interpreter_ends_in_the_middle(path, end):
    done = subprocess.run(
        [sys.executable, "-c", ENDS.format(end=end), path], capture_output=True, text=True, timeout=LONG, check=False
    )
    assert (done.stdout, done.returncode) == ("1\n", 0), done.stderr
    with shmq.open(path) as queue, queue.consumer("c") as consumer:
        assert consumer.head == 1


def test_ctrl_c_ends_a_program_that_waits(path):
    code = """
import asyncio, sys
import shmq, shmq.aio

async def main():
    async with await shmq.aio.open(sys.argv[1]) as queue, await queue.consumer("c") as consumer:
        print("ready", flush=True)
        await consumer.take()

asyncio.run(main())
"""
    with subprocess.Popen(
        [sys.executable, "-c", code, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout.readline() == "ready\n"
        time.sleep(0.05)
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=LONG)
    assert said.rstrip().endswith("KeyboardInterrupt"), said
    with shmq.open(path) as queue, queue.consumer("c") as consumer:
        assert consumer.head == 0


def _take(path, count):
    async def work():
        async with opened(path, group=True) as (_, consumer):
            for _ in range(count):
                await consumer.take()

    run("asyncio", work)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_of_all_kinds_share_a_queue(path, loop, method):
    async def work():
        async with opened(path, "c", group=True) as (queue, _):
            context = multiprocessing.get_context(method)
            process = context.Process(target=_in_process, args=(path,))
            process.start()  # in a thread, multiprocessing itself fails
            for turn in range(50):
                await queue.put(b"%d" % turn)
            await asyncio.to_thread(process.join, LONG)
            assert process.exitcode == 0

    loop(work)


def _in_process(path):
    asyncio.events._set_running_loop(None)  # of a parent that forked
    _take(path, 50)


def test_it_imports_no_loop_but_the_one_there_is():
    code = "import sys, shmq.aio; print(sorted({'trio', 'anyio', 'uvloop'} & {*sys.modules}))"
    assert run_python(code) == "[]\n"


def test_a_name_whose_opening_was_cancelled_is_free(path, loop):
    """It was Busy until the thread had opened it, and the collector had been."""

    async def work():
        async with opened(path, None) as queue:
            for times in (1, 3):
                opens, may = queue.plain.consumer, threading.Event()
                queue.plain.consumer = lambda name, opens=opens, may=may: may.wait(10) and opens(name)
                task = asyncio.ensure_future(queue.consumer("c"))
                await asyncio.sleep(0.01)
                for _ in range(times):
                    task.cancel()
                    await asyncio.sleep(0.001)
                assert not task.done()
                may.set()
                with pytest.raises(asyncio.CancelledError):
                    await task
                del queue.plain.consumer
                await (await queue.consumer("c")).close()

    gc.disable()
    try:
        loop(work)
    finally:
        gc.enable()


def test_an_opening_that_fails_when_it_was_cancelled_is_cancelled(path, loop):
    """Nobody is there to be told."""

    async def work():
        task = asyncio.ensure_future(shmq.aio.open(f"{path}/nowhere/q"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with opened(path, None) as queue:
            await queue.put(b"x")

    loop(work)


@pytest.mark.parametrize("durability", ["process", "sync"])
def test_what_is_dropped_without_a_close_is_gone_at_once(path, loop, durability):
    """In no cycle: neither a queue, nor what was made of it, nor a member with what it has not finished."""

    async def work():
        queue = await shmq.aio.open(path, durability=durability)
        await queue.put_many([b"1", b"2", b"3"])
        await queue.put(b"4")
        member, reader = await queue.consumer("g", group=True, ack="explicit"), queue.reader(follow=True)
        message, producer = await member.get(), await queue.producer()
        assert [(await reader.get()).index for _ in range(4)] == [0, 1, 2, 3]
        with pytest.raises(shmq.Empty):
            await reader.get(timeout=0.01)
        handles = [queue, member, reader, producer]
        known = [weakref.ref(each) for each in (*handles, *(each.plain for each in handles))]
        handles.clear()
        del queue, member, reader, producer, message
        for _ in range(1000):
            if not any(each() for each in known):
                break
            await asyncio.sleep(0.01)  # a thread that ends lets go of what it called
        assert [each() for each in known if each() is not None] == []

    gc.disable()
    try:
        loop(work)
    finally:
        gc.enable()

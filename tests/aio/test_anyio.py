"""The same through anyio, on all of its loops: who speaks to that needs to know of no loop."""

from __future__ import annotations

import threading

import pytest
from loops import LONG, opened
from support import in_child

import shmq

anyio = pytest.importorskip("anyio")
LOOPS = {"asyncio": ("asyncio", {}), "uvloop": ("asyncio", {"use_uvloop": True}), "trio": ("trio", {})}


@pytest.fixture(params=LOOPS)
def loop(request):
    pytest.importorskip(request.param)
    backend, options = LOOPS[request.param]

    def run(work):
        async def in_time():
            with anyio.fail_after(LONG):
                await work()

        anyio.run(in_time, backend=backend, backend_options=options)

    return run


async def lines_up(handle, count: int) -> None:
    line = handle._line
    while len(line._waiting) != count or (count and (line._waiting[0].is_set or armed(handle) is None)):
        await anyio.sleep(0.0005)


def armed(handle):
    return handle._line._alarm._armed and handle._line._alarm._armed.by


def test_what_is_put_is_got(path, loop):
    async def work():
        async with opened(path, group=True, ack="explicit") as (queue, consumer):
            for turn in range(200):
                assert await queue.put(b"%d" % turn) == turn
            for turn in range(100):
                message = await consumer.get()
                assert message.payload == b"%d" % turn
                await message.ack()
            await (await consumer.get()).reject("no")
            assert len(await consumer.take_many(1000)) == 99
            with pytest.raises(shmq.Empty):
                await consumer.take(timeout=0.01)
            assert consumer.pending == 0
            await queue.shutdown()
            assert [message async for message in consumer] == []

    loop(work)


def test_those_who_wait_are_served_in_order_and_the_cancelled_take_nothing(path, loop):
    async def work():
        got = {}

        async def take(consumer, mine, scope):
            with scope:
                got[mine] = await consumer.take()

        async with opened(path) as (queue, consumer), anyio.create_task_group() as tasks:
            scopes = [anyio.CancelScope() for _ in range(5)]
            for mine, scope in enumerate(scopes):
                tasks.start_soon(take, consumer, mine, scope)
                await lines_up(consumer, mine + 1)
            scopes[0].cancel()
            scopes[3].cancel()
            await lines_up(consumer, 3)
            in_child(lambda: queue.plain.put_many([b"0", b"1"]))
            while len(got) < 2:
                await anyio.sleep(0.0005)
            queue.plain.put(b"2")
            consumer._line._ring()
            scopes[4].cancel()  # woken first: some loops let it go on; else the message stays
            await lines_up(consumer, 0)
            assert (got.pop(4) if 4 in got else await consumer.take(timeout=0)) == b"2"
            assert got == {1: b"0", 2: b"1"}

    loop(work)


def test_a_put_waits_for_room_and_a_cancelled_one_has_put_nothing(path, loop):
    async def work():
        async with opened(path, options={"max_messages": 1}) as (queue, consumer):
            await queue.put(b"0")
            with anyio.move_on_after(0.02):
                await queue.put(b"no")
            with pytest.raises(shmq.Full):
                await queue.put(b"no", timeout=0.02)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(queue.put, b"1")
                await lines_up(queue._producer, 1)
                assert await consumer.take() == b"0"
            assert await consumer.take_many(9) == [b"1"]

    loop(work)


def test_a_put_waits_for_the_disk_and_a_cancelled_one_says_where_it_is(path, loop, monkeypatch):
    async def work():
        causes = []

        async def put(scope):
            with scope:
                try:
                    await queue.put(b"x")
                except BaseException as cancelled:
                    causes.append(cancelled.__cause__)
                    raise

        async with opened(path, None, options={"durability": "sync"}) as queue:
            async with anyio.create_task_group() as tasks:
                for _ in range(5):
                    tasks.start_soon(queue.put, b"x")
            assert queue.plain.durable_index == 5
            scope = anyio.CancelScope()
            monkeypatch.setattr(shmq.Queue, "sync", lambda _: anyio.from_thread)  # syncs nothing
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(put, scope)
                while queue.next_index == 5:
                    await anyio.sleep(0.0005)
                scope.cancel()
            assert [(type(each), each.index) for each in causes] == [(shmq.SyncPending, 5)]

    loop(work)


def test_what_is_closed_by_a_cancelled_task_is_closed(path, loop):
    async def work():
        with anyio.CancelScope() as scope:
            async with opened(path) as (queue, consumer):
                scope.cancel()
                await consumer.get()
        assert scope.cancelled_caught
        while not (queue.closed and consumer.plain._closed):  # a thread does it, whatever becomes of the task
            await anyio.sleep(0.0005)
        with pytest.raises(shmq.Closed):
            consumer.plain.take(timeout=0)

    loop(work)


def test_an_object_belongs_to_its_loop(path, loop):
    async def work():
        async with opened(path) as (queue, consumer):

            async def elsewhere():
                with pytest.raises(RuntimeError, match="belongs to the event loop"):
                    await consumer.get()

            for backend in ("asyncio", "trio"):
                await anyio.to_thread.run_sync(lambda backend=backend: anyio.run(elsewhere, backend=backend))
            await queue.put(b"x")
            assert await consumer.take() == b"x"

    pytest.importorskip("trio")
    loop(work)


def test_a_name_whose_opening_was_cancelled_is_free(path, loop):
    """The task ends when the thread has opened it, and it is closed again; in trio, too."""

    async def work():
        async with opened(path, None) as queue:
            opens, may = queue.plain.consumer, threading.Event()
            queue.plain.consumer = lambda name: may.wait(10) and opens(name)
            with anyio.move_on_after(0.01) as scope:
                threading.Timer(0.1, may.set).start()
                await queue.consumer("c")
            assert scope.cancelled_caught
            del queue.plain.consumer
            await (await queue.consumer("c")).close()

    loop(work)

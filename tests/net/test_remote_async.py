"""The verbs of a remote queue, awaited, and `shmq.aio.open` of a csp."""

from __future__ import annotations

import asyncio

import pytest
from remote import cable, payloads, serving

import shmq


def run(story, *given):
    return asyncio.run(asyncio.wait_for(story(*given), 60))


def test_aio_open_of_a_csp_has_the_verbs(orders, root):
    async def story(csp):
        async with await shmq.aio.open(csp) as queue:
            assert await queue.put(b"a", key=b"k") == 0
            assert await queue.put_many([b"b", b"c"]) == range(1, 3)
            assert await queue.put_many([]) == range(0)
            assert [await queue.next_index, await queue.first_index, await queue.length()] == [3, 0, 3]
            assert ((await queue[0]).key, (await queue[-1]).payload) == (b"k", b"c")
            assert [m.payload for m in await queue[0:2]] == [b"a", b"b"]
            assert [m.payload async for m in queue.reader(1)] == [b"b", b"c"]
            async with await queue.consumer("c") as plain:
                assert await plain.take() == b"a"
                assert await plain.take_many(9, timeout=5) == [b"b", b"c"]
                for timeout in (0, 0.02):
                    with pytest.raises(shmq.Empty):
                        await plain.get(timeout=timeout)
            async with await queue.consumer("g", group=True, ack="explicit") as group:
                first, second, third = await group.get_many(3)
                await first.ack()
                await group.ack(second, first)
                await third.nack()
                again = await group.get(timeout=5)
                assert (again.index, again.attempts) == (2, 2)
                await again.extend(5)
                await again.reject("why")
                assert await group.figures() == [0, 0, 3]
                with pytest.raises(shmq.Empty):
                    await group.get(timeout=0)
            with pytest.raises(IndexError):
                await queue[9]
            assert set(await queue.consumers()) == {"c", "g"}
            await queue.drop_consumer("c")
            await queue.finish()
            assert (await queue.stats()).finished
            async with await queue.consumer("late") as late:
                assert [m.payload async for m in late] == [b"a", b"b", b"c"]
        assert queue.closed

    with serving(root) as server:
        run(story, "a" + server.csp())


def test_puts_of_many_tasks_go_together_and_each_has_its_own_index(orders, root):
    async def story(csp):
        async with await shmq.aio.open(csp) as queue:
            found = await asyncio.gather(*(queue.put(b"%d" % each) for each in range(2000)))
            assert sorted(found) == list(range(2000))
            return {index: b"%d" % each for each, index in enumerate(found)}

    with serving(root) as server, cable(server) as link:
        put = run(story, server.csp(path=link.path))
    assert payloads(root / "orders") == [put[index] for index in range(2000)]


def test_a_get_that_is_cancelled_has_taken_nothing(orders, root):
    async def story(csp):
        async with await shmq.aio.open(csp) as queue:
            for name, options in (("plain", {}), ("g", {"group": True, "ack": "explicit"})):
                consumer = await queue.consumer(name, start="latest", **options)
                for each in range(20):
                    waits = asyncio.create_task(consumer.get())
                    await asyncio.sleep(0.001 * each)
                    waits.cancel()
                    index = orders.put(b"%d" % each)
                    taken = None
                    try:
                        taken = await waits
                    except asyncio.CancelledError:
                        taken = await consumer.get(timeout=10)
                    assert taken.index == index
                    await taken.ack()

    with serving(root) as server:
        run(story, server.csp())


def test_a_get_that_is_cancelled_keeps_nothing_from_other_members(orders, root):
    """The server was still asked, and sent it what nobody waited for."""

    async def story(csp):
        async with await shmq.aio.open(csp) as queue, await shmq.aio.open(csp) as others:
            member = await queue.consumer("g", group=True, ack="explicit")
            other = await others.consumer("g", group=True, ack="explicit")
            for each in range(5):
                waits = asyncio.create_task(member.get())
                await asyncio.sleep(0.02)
                waits.cancel()
                await asyncio.wait([waits])
                assert (await member.figures())[1] == 0  # by now the server knows
                await queue.put(b"%d" % each)
                assert (await other.take(timeout=10)) == b"%d" % each

    with serving(root) as server:
        run(story, server.csp())


def test_many_tasks_wait_and_none_keeps_the_others(orders, root):
    async def story(csp):
        async with await shmq.aio.open(csp) as queue:
            consumers = [
                await queue.consumer(f"c{number}", group=True, filter=shmq.Filter(types=[number]))
                for number in range(50)
            ]
            waits = [asyncio.create_task(consumer.take()) for consumer in consumers]
            for number in reversed(range(50)):
                await queue.put(b"%d" % number, type=number)
                assert await waits[number] == b"%d" % number
                assert not any(each.done() for each in waits[:number])

    with serving(root) as server:
        run(story, server.csp())

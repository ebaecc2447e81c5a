"""What a remote consumer leaves behind when a get was in vain, or when it closes: nothing that others wait for."""

from __future__ import annotations

import asyncio

import pytest
from remote import serving

import shmq
from shmq.net.client.calls import HELD, Call


@pytest.fixture
def server(root):
    """One for each test."""
    with serving(root) as started:
        yield started


@pytest.mark.parametrize("group", [False, True])
def test_what_is_put_as_a_consumer_closes_is_there_for_the_next(orders, server, group):
    """Its get in vain had asked for messages; the answer to that crosses the close."""
    with server.connect() as queue:
        for at in range(12):
            consumer = queue.consumer("g", prefetch=20, group=group)
            with pytest.raises(shmq.Empty):
                consumer.get(timeout=0.02)
            orders.put(b"%d" % at)
            consumer.close()
            with orders.consumer("g", group=group) as after:
                assert after.take(timeout=10) == b"%d" % at


def test_what_crosses_a_close_is_put_back(orders, server):
    """It was granted, and sent, and the client had not seen it yet when it closed."""
    with server.connect() as queue:
        for at in range(12):
            consumer = queue.consumer("g", prefetch=20)
            consumer.held.wants(20)
            queue.link().grant(consumer.held)
            assert consumer.lag == 0  # so that the server has the grant
            orders.put(b"%d" % at)
            consumer.close()
            with orders.consumer("g") as after:
                assert after.take(timeout=10) == b"%d" % at


@pytest.mark.parametrize("timeout", [0, 0.05])
def test_a_get_in_vain_keeps_nothing_from_other_members(orders, server, timeout):
    with (
        server.connect() as queue,
        queue.consumer("g", group=True, ack="explicit", prefetch=20) as idle,
        queue.consumer("g", group=True, ack="explicit") as other,
    ):
        for _ in range(5):
            with pytest.raises(shmq.Empty):
                idle.get(timeout=timeout)
            assert idle.lag == 0  # so that the server has all that was said
            orders.put(b"a")
            other.get(timeout=10).ack()
        orders.put_many([b"b"] * 3)
        idle.ack(*[idle.get(timeout=10) for _ in range(3)])  # it is sent messages ahead again
        assert idle.lag == 0


def test_an_awaited_get_in_vain_keeps_nothing_from_other_members(orders, server):
    async def story():
        async with await shmq.aio.open(server.csp()) as queue:
            idle = await queue.consumer("g", group=True, ack="explicit", prefetch=20)
            other = await queue.consumer("g", group=True, ack="explicit")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await idle.get()
            with pytest.raises(shmq.Empty):
                await idle.get(timeout=0.05)
            await idle.figures()
            await queue.put(b"a")
            await (await other.get(timeout=10)).ack()

    asyncio.run(asyncio.wait_for(story(), 60))


@pytest.mark.parametrize("wrong", [-1, "x", float("inf"), float("nan"), True, None])
def test_a_message_that_is_given_back_wrongly_is_still_held(orders, server, wrong):
    orders.put(b"a")
    with server.connect() as queue, queue.consumer("g", group=True, ack="explicit") as consumer:
        message = consumer.get(timeout=10)
        with orders.consumer("local", group=True, ack="explicit") as local:
            here = local.get(timeout=10)
            for verb in ("nack", "extend"):
                with pytest.raises((TypeError, ValueError)) as there:
                    getattr(here, verb)(wrong)
                with pytest.raises(there.type):
                    getattr(message, verb)(wrong)
        link, cid = queue.link(), consumer.held.cid
        call = Call("settle", (cid, "nack", message.index, wrong), HELD)  # of a client that does not look
        link.ask(call)
        assert call.wait(10)
        assert isinstance(call.error, (TypeError, ValueError))
        assert consumer.pending == 1
        message.ack()
        assert (consumer.pending, consumer.lag) == (0, 0)


def test_a_put_that_was_sent_and_is_cancelled_says_so(root, server):
    """It waits for room at the server, where nobody can call it back; it is put when there is some."""
    with shmq.open(root / "small", max_messages=2) as small:
        holder = small.consumer("c")
        small.put_many([b"a", b"b"])
        there = small.next_index

        async def story():
            async with await shmq.aio.open(server.csp("small")) as queue:
                await queue.length()
                waits = asyncio.create_task(queue.put(b"y"))
                link = queue.plain.link()
                while not link._batches:  # sent, and nothing tells a program so
                    await asyncio.sleep(0.01)
                waits.cancel()
                with pytest.raises(asyncio.CancelledError) as cancelled:
                    await waits
                assert isinstance(cancelled.value.__cause__, shmq.SyncPending)
                assert "do not put it again" in str(cancelled.value.__cause__)
                assert holder.take_many(2) == [b"a", b"b"]
                while small.next_index == there:
                    await asyncio.sleep(0.01)
                assert (await queue[there]).payload == b"y"

        asyncio.run(asyncio.wait_for(story(), 60))
        holder.close()

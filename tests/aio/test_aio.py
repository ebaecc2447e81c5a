"""shmq.aio in asyncio and uvloop: the verbs, who comes first, and that a cancelled task has taken and put nothing."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import time

import pytest
from loops import LONG, opened, run, waits
from support import Child, hold_until_killed, in_child

import shmq
import shmq.aio
from shmq.aio import line, loops

KINDS = [{}, {"group": True}, {"ack": "explicit"}, {"group": True, "ack": "explicit"}]
kinds = pytest.mark.parametrize("kind", KINDS, ids=["auto", "group", "lone", "acks"])


# ---------------------------------------------------------------- verbs
@kinds
def test_what_is_put_is_got(path, loop, kind):
    async def work():
        async with opened(path, **kind) as (queue, consumer):
            assert await queue.put({"a": 1}, key=b"k", type=7, headers={"h": 1}) == 0
            assert await queue.put_many(iter([[1], [2], [3]]), types=[1, 2, 3]) == range(1, 4)
            message = await consumer.get()
            assert (message.payload, message.key, message.type, message.headers) == ({"a": 1}, b"k", 7, {"h": 1})
            assert (message.index, message.attempts, bytes(message.view)) == (0, 1, b'{"a":1}')
            await message.ack()
            assert await consumer.take() == [1]
            assert [each.payload for each in await consumer.get_many(1)] == [[2]]
            assert await consumer.take_many(10) == [[3]]
            assert consumer.lag == (1 if consumer.ack_mode == "explicit" else 0)

    async def codec():
        async with opened(path, None, options={"codec": "json"}):
            await work()

    loop(codec)


@kinds
def test_a_name_that_wants_little_of_a_bounded_queue_never_hangs(path, loop, kind):
    async def work():
        wanted = shmq.Filter(key_prefix=b"eu/")
        bounds = {"max_messages": 10}
        async with opened(path, options=bounds, filter=wanted, **kind) as (queue, consumer):
            getting = asyncio.create_task(consumer.get(timeout=LONG))
            for _ in range(200):
                await queue.put(b"x", key=b"us/", timeout=LONG)
            index = await queue.put(b"last", key=b"eu/", timeout=LONG)
            message = await getting
            assert (message.index, message.payload, consumer.plain.filter) == (index, b"last", wanted)
            await message.ack()

    loop(work)


def test_an_ephemeral_name_needs_none_and_goes_with_its_task(path, loop):
    async def work():
        async with opened(path, None) as queue:
            async with await queue.consumer(ephemeral=True) as consumer:
                assert list(await queue.consumers()) == [consumer.plain.name]
            assert await queue.consumers() == {}

    loop(work)


def test_a_reader_that_follows_awaits_what_matches(path, loop):
    async def work():
        async with opened(path, None) as queue, queue.reader(follow=True, filter=shmq.Filter(types={1})) as reader:
            getting = asyncio.create_task(reader.get(timeout=LONG))
            for number in range(100):
                await queue.put(b"%d" % number, type=number // 99)
            assert (await getting).payload == b"99"

    loop(work)


def test_what_is_given_back_comes_again(path, loop):
    async def work():
        async with opened(path, group=True, ack="explicit", dead_letter="dead") as (queue, consumer):
            await queue.put(b"x")
            await (await consumer.get()).nack()
            await (await consumer.get()).nack(0.05)
            message = await consumer.get(timeout=LONG)
            assert message.attempts == 3
            await message.extend(60) if consumer.plain.options.get("lease") else None
            await message.reject("no")
            assert consumer.pending == 0
            assert (await queue.consumers())["c"].lag == 0

    loop(work)


def test_a_loop_ends_with_the_queue_and_with_the_consumer(path, loop):
    async def eat(consumer):
        return [message.index async for message in consumer]

    async def work():
        async with opened(path, group=True) as (queue, consumer):
            other = await queue.consumer("other")
            eating = [asyncio.create_task(eat(each)) for each in (consumer, other)]
            await queue.put_many([b"x"] * 200)
            await waits(consumer, 1)
            await consumer.close()
            assert await eating[0] == list(range(200))
            await queue.shutdown()
            assert await eating[1] == list(range(200))
            with pytest.raises(shmq.ShutDown):
                await other.get()
            with pytest.raises(shmq.Closed):
                await consumer.get()
            with pytest.raises(shmq.ShutDown):
                await queue.put(b"y")
            await other.close()

    loop(work)


@kinds
def test_a_get_ends_when_its_time_is_up(path, loop, kind):
    async def work():
        async with opened(path, **kind) as (queue, consumer):
            with pytest.raises(shmq.Empty):
                await consumer.get(timeout=0)
            with pytest.raises(shmq.Empty, match="in time"):
                await consumer.get(timeout=0.02)
            waiting = asyncio.create_task(consumer.take())
            await waits(consumer, 1)
            for timeout in (0, 0.02):
                with pytest.raises(shmq.Empty, match="others were first"):
                    await consumer.get(timeout)
            await queue.put(b"x")
            assert await waiting == b"x"
            for wrong, error in [("1", TypeError), (True, TypeError), (-1, ValueError), (float("nan"), ValueError)]:
                with pytest.raises(error, match="timeout="):
                    await consumer.get(wrong)
                with pytest.raises(error, match="timeout="):
                    await queue.put(b"x", timeout=wrong)

    loop(work)


@kinds
def test_a_put_of_another_process_wakes(path, loop, kind):
    async def work():
        async with opened(path, **kind) as (queue, consumer):
            for turn in range(3):
                waiting = asyncio.create_task(consumer.take())
                await waits(consumer, 1)
                assert in_child(lambda: queue.plain.put(b"x")) == str(turn)
                assert await waiting == b"x"

    loop(work)


def test_what_is_delayed_and_what_the_dead_held_wakes(path, loop):
    async def work():
        async with opened(path, group=True, ack="explicit") as (queue, consumer):
            await queue.put(b"late", delay=0.1)
            assert await consumer.take(LONG) == b"late"

            def hold(say):
                member = queue.plain.consumer("c", group=True, ack="explicit")
                member.get()
                hold_until_killed(say)

            with Child(hold) as child:
                await queue.put(b"held")
                assert await asyncio.to_thread(child.hear) == "ready"
                waiting = asyncio.create_task(consumer.get())
                await waits(consumer, 1)
                child.kill()
                assert (await waiting).attempts == 2

    loop(work)


@pytest.mark.parametrize("read_only", [False, True])
def test_a_reader_reads_on(path, loop, read_only):
    got = []

    async def follow(reader, into):
        async for message in reader:
            into.append(message.index)
        return into

    async def work():
        async with opened(path, None) as queue:
            await queue.put_many([b"x"] * 3)
            seen = queue if not read_only else await shmq.aio.open(path, read_only=True)
            assert [message.index async for message in seen.reader()] == [0, 1, 2]
            assert [message.index async for message in seen.reader(reverse=True, start=1)] == [2, 1]
            reader = seen.reader(1, follow=True)
            assert [(await reader.get()).index for _ in range(2)] == [1, 2]
            with pytest.raises(shmq.Empty):
                await reader.get(timeout=0.01)
            following = asyncio.create_task(follow(reader, got))
            stopping = asyncio.create_task(follow(seen.reader(2, 4, follow=True), []))
            await waits(reader, 1)
            for index in (3, 4):
                await queue.put(b"x")
                if index == 3:
                    assert await stopping == [2, 3]
                while index not in got:
                    await asyncio.sleep(0.0005)
            await (reader.close() if read_only else queue.shutdown())
            assert await following == [3, 4]
            if read_only:
                await seen.close()

    loop(work)


# ---------------------------------------------------------------- who comes first
def test_first_come_first_served(path, loop):
    async def work():
        async with opened(path) as (queue, consumer):
            waiting = []
            for count in range(1, 6):
                waiting.append(asyncio.create_task(consumer.take()))
                await waits(consumer, count)
            queue.plain.put_many([b"%d" % turn for turn in range(6)])
            newcomer = asyncio.create_task(consumer.take())
            assert await asyncio.gather(*waiting, newcomer) == [b"%d" % turn for turn in range(6)]

    loop(work)


def test_who_is_woken_and_cancelled_wakes_the_next(path, loop):
    async def work():
        async with opened(path) as (queue, consumer):
            first, second = (asyncio.create_task(consumer.take()) for _ in range(2))
            await waits(consumer, 2)
            queue.plain.put(b"x")
            consumer._line._ring()  # as the alarm does
            first.cancel()
            assert await second == b"x"
            with pytest.raises(asyncio.CancelledError):
                await first

    loop(work)


def test_who_finds_much_lets_others_run(path, loop):
    async def work():
        async with opened(path) as (queue, consumer):
            turns = 0

            async def other():
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            beside = asyncio.create_task(other())
            for _ in range(640):
                await queue.put(b"x")
            assert turns >= 9
            turns = 0
            for _ in range(320):
                await consumer.take()
            assert turns >= 4
            turns = 0
            async for message in consumer:
                if message.index == 639:
                    break
            assert turns >= 4
            beside.cancel()

    loop(work)


# ---------------------------------------------------------------- cancelled
async def taken_in_a_storm(consumer, count: int, chance: random.Random) -> list[int]:
    """So many payloads, taken by tasks of which many are cancelled."""
    got = []

    async def take():
        got.append(int(await consumer.take()))

    tasks: set[asyncio.Task] = set()
    while len(got) < count:
        tasks = {each for each in tasks if not each.done()}
        tasks |= {asyncio.create_task(take()) for _ in range(5 - len(tasks))}
        await asyncio.sleep(chance.choice([0, 0, 0.0005]))
        for each in [each for each in tasks if chance.random() < 0.4]:
            each.cancel()
    for each in tasks:
        each.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return got


@kinds
def test_a_cancelled_get_has_taken_nothing(path, loop, kind):
    """Tasks that are cancelled at any moment, beside a process that puts: each message comes to one task, once."""
    count, seed = 400, random.randrange(1 << 32)

    def put():
        chance = random.Random(seed)
        for turn in range(count):
            queue.put(b"%d" % turn)
            if chance.random() < 0.3:
                time.sleep(chance.random() * 0.002)

    async def work():
        async with opened(path, **kind) as (_, consumer):
            putting = asyncio.create_task(asyncio.to_thread(in_child, put))
            got = await taken_in_a_storm(consumer, count, random.Random(seed))
            await putting
            assert sorted(got) == list(range(count)), f"seed {seed}"

    with shmq.open(path, chunk_bytes=16384) as queue:
        loop(work)


def test_a_timeout_that_meets_a_message_loses_nothing(path, loop):
    async def work():
        async with opened(path) as (queue, consumer):
            got, late = [], 0
            for turn in range(200):
                asyncio.get_running_loop().call_later(0.001, queue.plain.put, b"%d" % turn)
                try:
                    async with asyncio.timeout(0.001):
                        got.append(await consumer.take())
                except TimeoutError:
                    late += 1
            while len(got) < 200:
                got.append(await consumer.take(LONG))
            assert got == [b"%d" % turn for turn in range(200)]

    loop(work)


def test_a_cancelled_put_has_put_nothing(path, loop):
    async def work():
        async with opened(path, options={"max_messages": 2}) as (queue, consumer):
            await queue.put_many([b"0", b"1"])
            with pytest.raises(shmq.Full):
                await queue.put(b"x", timeout=0)
            with pytest.raises(shmq.Full):
                await queue.put(b"x", timeout=0.02)
            cancelled, waiting, after = (asyncio.create_task(queue.put(each)) for each in (b"no", b"2", b"3"))
            await waits(queue._producer, 3)
            cancelled.cancel()
            await waits(queue._producer, 2)
            assert [await consumer.take(), await waiting] == [b"0", 2]
            assert [await consumer.take(), await after] == [b"1", 3]
            assert await consumer.take_many(9) == [b"2", b"3"]

    loop(work)


def test_what_a_queue_refuses_is_refused_at_once(path, loop):
    async def work():
        async with opened(path, options={"max_messages": 1, "full": "raise"}) as (queue, _):
            await queue.put(b"0")
            with pytest.raises(shmq.Full):
                await queue.put(b"1")
            for wrong in ("ab", b"ab", 7, None):
                with pytest.raises(TypeError):
                    await queue.put_many(wrong)

    loop(work)


# ---------------------------------------------------------------- the disk
def test_a_put_waits_for_the_disk_and_a_cancelled_one_says_where_it_is(path, loop, monkeypatch):
    held, let = threading.Event(), threading.Event()
    sync = shmq.Queue.sync

    def slow(queue):
        held.set()
        assert let.wait(LONG)
        sync(queue)

    async def work():
        async with opened(path, options={"durability": "sync"}, ack="explicit") as (queue, consumer):
            assert await asyncio.gather(*(queue.put(b"%d" % turn) for turn in range(5))) == list(range(5))
            assert queue.plain.durable_index == 5
            assert await queue.put_many([b"5", b"6"]) == range(5, 7)
            assert [await queue.put_many([b"7", b"8"], dedup=("p", 1)) for _ in range(2)] == [range(7, 9)] * 2
            await (await consumer.get()).ack()
            monkeypatch.setattr(shmq.Queue, "sync", slow)
            waiting, cancelled = (asyncio.create_task(queue.put(b"x")) for _ in range(2))
            await asyncio.to_thread(held.wait, LONG)
            with pytest.raises(shmq.SyncPending) as late:
                await queue.put(b"x", timeout=0.02)
            assert late.value.index == 11
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError) as said:
                await cancelled
            assert isinstance(said.value.__cause__, shmq.SyncPending)
            assert said.value.__cause__.index == 10
            let.set()
            assert await waiting == 9

            def refuse(queue):
                raise shmq.SyncFailed("the disk refused")

            monkeypatch.setattr(shmq.Queue, "sync", refuse)
            with pytest.raises(shmq.SyncFailed, match="refused") as failed:
                await queue.put(b"x")
            assert failed.value.index == 12

    loop(work)


# ---------------------------------------------------------------- where it belongs
def test_an_object_belongs_to_its_loop(path, loop):
    async def use(verb):
        with pytest.raises(RuntimeError, match="belongs to the event loop"):
            await verb()

    async def work():
        async with opened(path) as (queue, consumer):
            for verb in (consumer.get, lambda: queue.put(b"x"), queue.sync, lambda: queue.consumer("d")):
                await asyncio.to_thread(asyncio.run, use(verb))
            await queue.put(b"x")
            assert await consumer.take() == b"x"

    loop(work)
    with pytest.raises(RuntimeError, match="no such loop"):
        shmq.aio.open(path).send(None)


def test_loops_in_threads_have_their_own(path, loop):
    async def take(count):
        async with opened(path, "g", group=True) as (_, consumer):
            return [await consumer.take() for _ in range(count)]

    async def work():
        async with opened(path, "g", group=True) as (queue, _):
            taking = [asyncio.create_task(asyncio.to_thread(run, "asyncio", lambda: take(50))) for _ in range(2)]
            for turn in range(100):
                await queue.put(b"%d" % turn)
            got = [each for part in await asyncio.gather(*taking) for each in part]
            assert sorted(map(int, got)) == list(range(100))

    loop(work)


def test_a_forked_child_opens_its_own(path, loop):
    async def work():
        async with opened(path) as (queue, consumer):
            waiting = asyncio.create_task(consumer.take())
            await waits(consumer, 1)

            def child():
                said = []
                for verb in (consumer.get(), queue.put(b"x"), consumer.close(), queue.close()):
                    try:
                        verb.send(None)
                    except shmq.Forked:
                        said.append("forked")
                return said

            assert in_child(child) == str(["forked"] * 4)

            def own():
                asyncio.events._set_running_loop(None)
                return run("asyncio", put_one)

            async def put_one():
                async with opened(path, None) as mine:
                    return await mine.put(b"x")

            assert in_child(own) == "0"
            assert await waiting == b"x"

    loop(work)


def test_a_task_that_nobody_has_goes_on(path, loop):
    async def work():
        done = asyncio.Event()

        async def take():
            async with opened(path) as (_, consumer):
                assert await consumer.take() == b"x"
                done.set()

        task = asyncio.create_task(take())
        async with opened(path, None) as queue:
            while not queue.plain.consumers() or not any(each._waiting for each in line._awaited):
                await asyncio.sleep(0.001)
            del task
            gc.collect()
            await queue.put(b"x")
            await done.wait()

    loop(work)


def test_what_a_call_in_the_loop_raises_keeps_no_other_from_it(loop):
    async def work():
        mine, done = loops.current(), asyncio.Event()
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        for call in (lambda: 1 / 0, lambda: 1 / 0, done.set):
            mine.tell(call)
        await done.wait()

    loop(work)


def test_a_handle_that_nobody_has_is_closed_at_once(path, loop):
    async def work():
        async with opened(path, None) as queue:
            consumer = await queue.consumer("c")
            await queue.put(b"x")
            await consumer.take()
            with pytest.raises(shmq.Empty):
                await consumer.get(timeout=0.01)
            del consumer
            async with await queue.consumer("c"):
                pass

    loop(work)

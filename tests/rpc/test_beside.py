"""What runs beside other calls: coroutines and generators, Futures and tasks; and what of it is given up."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import gc
import itertools
import threading
import time
from collections.abc import AsyncIterator, Iterator  # noqa: TC003  # annotations are read
from typing import Protocol

import msgspec
import pytest
from servers import Sorrow
from support import Child, until

import shmq.rpc

LONG = 20


# ---------------------------------------------------------------- coroutines
def test_coroutines_run_beside_each_other(client, servers):
    begin = time.monotonic()
    futures = [client.submit("asleep", 0.5, f"{number}") for number in range(100)]
    until(lambda: sum("began" in each for each in servers.notes()) == 100)
    assert client.call("add", 1, 2) == 3  # and beside plain ones
    assert [each.result(LONG) for each in futures] == [f"{number}" for number in range(100)]
    assert time.monotonic() - begin < 25


def test_what_a_coroutine_returns_or_raises_comes_back(client):
    assert client.call("aadd", 1, 2) == 3
    with pytest.raises(shmq.rpc.WrongArguments):
        client.call("aadd", 1, "2")
    with pytest.raises(Sorrow):
        client.call("afail", "sorrow")
    with pytest.raises(shmq.rpc.RemoteError, match="SystemExit"):
        client.call("afail", "exit")
    with pytest.raises(shmq.rpc.RemoteError, match="CancelledError"):
        client.call("cancels_itself")
    assert 5 < client.call("aleft", timeout=10) <= 10


def test_a_coroutine_whose_time_is_up_is_cancelled(client, servers):
    with pytest.raises(shmq.rpc.TimedOut):
        client.call("asleep", LONG, timeout=1.5)
    until(lambda: servers.notes() == ["slept began", "slept was cancelled"])


def test_a_server_finishes_its_coroutines_before_it_stops(servers):
    child = servers.start()
    with shmq.rpc.Client(servers.path, timeout=LONG) as client:
        future = client.submit("asleep", 0.5)
        until(lambda: servers.notes() == ["slept began"])
        client.call("stop")
        assert future.result(LONG) == "slept"
        assert child.hear() == "over"


def test_ctrl_c_cancels_them(servers):
    child = servers.start()
    with shmq.rpc.Client(servers.path, timeout=LONG) as client:
        future = client.submit("asleep", LONG)
        until(lambda: servers.notes() == ["slept began"])
        child.signal(2)
        with pytest.raises(shmq.rpc.ServerDied, match="interrupted"):
            future.result(LONG)
        assert child.hear() == "over"


# ---------------------------------------------------------------- futures
def test_a_future_has_what_the_call_returns_or_raises(client):
    assert client.submit("add", 1, 2).result(LONG) == 3
    with pytest.raises(Sorrow):
        client.submit("fail", "sorrow").result(LONG)
    assert isinstance(client.submit("fail", "grief").exception(LONG), shmq.rpc.RemoteError)
    assert isinstance(client.submit("add", 1, 2), concurrent.futures.Future)
    done, waiting = concurrent.futures.wait([client.submit("add", each, 0) for each in range(9)], LONG)
    assert sorted(each.result() for each in done) == list(range(9))
    assert not waiting


def test_a_thousand_in_flight(client):
    """And more: the next ones wait for a slot."""
    futures = [client.submit("add", number, 1) for number in range(2500)]
    assert [each.result(LONG) for each in futures] == list(range(1, 2501))
    pump = client._link.inbox.pump
    assert pump.pending == {}
    assert client._link.inbox.waiting == {}


def test_whoever_has_a_thousand_waits_for_one(servers):
    with shmq.rpc.Client(servers.path) as client:
        futures = [client.submit("add", number, 1) for number in range(1000)]
        more = []
        thread = threading.Thread(target=lambda: more.append(client.submit("add", 7, 7)))
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
        futures[0].cancel()
        thread.join(LONG)
        servers.start()
        assert more[0].result(LONG) == 14
        assert futures[-1].result(LONG) == 1000


def test_a_future_learns_that_its_time_is_up(servers):
    with shmq.rpc.Client(servers.path) as client:
        slow = client.submit("add", 1, timeout=60)
        with pytest.raises(shmq.rpc.TimedOut):
            client.submit("add", 1, timeout=0.05).result(LONG)
        assert not slow.done()


def test_callbacks_may_raise_and_may_call(client):
    found = []

    def ask(future):
        found.append(future.result() + client.call("add", 1, 1))
        found.append(client.submit("add", 10, 10))
        raise RuntimeError("of a callback")  # concurrent.futures says so in the log

    client.submit("add", 1, 2).add_done_callback(ask)
    until(lambda: len(found) == 2)
    assert found[0] == 5
    assert found[1].result(LONG) == 20


def test_threads_may_call_beside_futures(client):
    """Whoever waits takes the replies for all."""
    stop = threading.Event()
    problems = []

    def call():
        try:
            while not stop.is_set():
                assert client.call("add", 1, 2) == 3
        except BaseException as problem:  # noqa: BLE001  # told below
            problems.append(problem)

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    futures = [client.submit("add", number, 0) for number in range(1000)]
    assert [each.result(LONG) for each in futures] == list(range(1000))
    stop.set()
    for thread in threads:
        thread.join(LONG)
    assert problems == []


def test_a_future_that_cannot_be_asked_for_takes_no_slot(client):
    for _ in range(1100):
        with pytest.raises(TypeError):
            client.submit("echo", object())
    assert client.submit("add", 1, 2).result(LONG) == 3


def test_futures_of_a_client_that_is_closed_say_so(servers):
    client = shmq.rpc.Client(servers.path)
    future = client.submit("add", 1)
    client.close()
    with pytest.raises(shmq.Closed):
        future.result(LONG)


def test_a_client_that_is_forgotten_goes_with_its_thread(client):
    other = shmq.rpc.Client(client.path, timeout=LONG)
    assert other.submit("add", 1, 2).result(LONG) == 3
    inbox = other._link.inbox
    thread = inbox.pump._thread
    del inbox, other
    gc.collect()
    thread.join(LONG)
    assert not thread.is_alive()


# ---------------------------------------------------------------- tasks
def test_calls_are_awaited(client):
    async def main():
        assert await client.acall("add", 1, 2) == 3
        assert await client.acall("aadd", 1, b=2) == 3
        with pytest.raises(Sorrow):
            await client.acall("fail", "sorrow")
        with pytest.raises(shmq.rpc.TimedOut):
            await client.acall("sleep", 1, timeout=0.05)
        return await asyncio.gather(*(client.acall("add", number, 0) for number in range(1500)))

    assert asyncio.run(main()) == list(range(1500))


def test_a_task_that_is_cancelled_gives_its_call_up(client, servers):
    async def main():
        task = asyncio.create_task(client.acall("asleep", LONG))
        while servers.notes() != ["slept began"]:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while "slept was cancelled" not in servers.notes():
            await asyncio.sleep(0.01)
        task = asyncio.create_task(client.acall("asleep", LONG, "again"))
        while "again began" not in servers.notes():
            await asyncio.sleep(0.01)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(task, 0.01)
        while "again was cancelled" not in servers.notes():
            await asyncio.sleep(0.01)
        return await client.acall("add", 1, 2)

    assert asyncio.run(main()) == 3
    assert client._link.inbox.waiting == {}


# ---------------------------------------------------------------- given up
def test_what_is_given_up_before_it_began_does_not_begin(servers):
    with shmq.rpc.Client(servers.path, timeout=LONG) as client:
        servers.start()
        busy = client.submit("sleep", 1.0, "busy")
        until(lambda: servers.notes() == ["busy began"])
        dropped, kept = client.submit("noted", "dropped"), client.submit("noted", "kept")
        assert dropped.cancel()
        assert dropped.cancelled()
        assert kept.result(LONG) == "kept"
        assert busy.result() == "busy"
        assert not kept.cancel()
    assert servers.notes() == ["busy began", "busy", "kept"]


def test_a_plain_function_can_ask(client, servers):
    future = client.submit("until_cancelled", "one")
    until(lambda: servers.notes() == ["one began"])
    future.cancel()
    until(lambda: servers.notes() == ["one began", "one saw it"])
    with contextlib.suppress(shmq.rpc.TimedOut):  # or the method was quicker to see it than this thread
        client.call("until_cancelled", "two", timeout=1.5)
    until(lambda: "two saw it" in servers.notes())
    assert shmq.rpc.current() is None


# ---------------------------------------------------------------- streams
@pytest.mark.parametrize("name", ["count", "acount"])
def test_a_generator_streams(client, name):
    assert list(client.call(name, 1000)) == list(range(1000))
    assert list(client.calc.count(0)) == []
    stream = client.call(name, 10, bad=3)
    assert [next(stream) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="bad") as caught:
        next(stream)
    assert caught.value.args == ("bad", 3)
    assert list(stream) == []
    with pytest.raises(shmq.rpc.WrongArguments):
        client.call(name, "x")
    assert "over" in repr(stream)


def test_what_it_yields_may_not_cross(client):
    stream = client.call("strange")
    assert next(stream) == 1
    with pytest.raises(TypeError, match="cannot cross"):
        next(stream)


@pytest.mark.parametrize("name", ["count", "acount"])
def test_a_stream_is_iterated_in_a_task(client, name):
    async def main():
        stream = await client.acall(name, 600)
        beside = asyncio.create_task(client.acall("add", 1, 2))
        found = [each async for each in stream]
        async with await client.acall(name, 10, bad=1) as stream:
            assert await anext(stream) == 0
            with pytest.raises(ValueError, match="bad"):
                await anext(stream)
        return found, await beside

    assert asyncio.run(main()) == (list(range(600)), 3)


@pytest.mark.parametrize("name", ["endless", "aendless"])
@pytest.mark.parametrize("how", ["closed", "forgotten", "killed", "given up"])
def test_a_generator_is_closed_when_nobody_reads_on(client, servers, name, how):
    def read(say):
        with shmq.rpc.Client(client.path, timeout=LONG) as mine:
            stream = mine.call(name, how)
            say(len(list(itertools.islice(stream, 3))))
            time.sleep(60)

    if how == "killed":
        with Child(read) as child:
            assert child.hear() == "3"
            child.kill()
    else:
        stream = client.call(name, how)
        assert len(list(itertools.islice(stream, 3))) == 3
        if how == "closed":
            stream.close()
            assert list(stream) == []
        elif how == "given up":
            client._link.giving.up(client._link.inbox.client, 1)
        else:
            del stream
            gc.collect()
    until(lambda: servers.notes() == [f"{how} was closed"])
    assert client.call("add", 1, 2) == 3


def test_a_stream_that_nobody_reads_holds_up_nothing_else(client, servers):
    """And its server is no further ahead than there is room."""
    left = [client.call("endless", f"{number}", 1000) for number in range(5)]
    left += [client.call("aendless", f"{number}") for number in range(5, 10)]
    until(lambda: all(each._queue.next_index >= 256 for each in left))
    assert [client.call("add", number, 0) for number in range(50)] == list(range(50))
    assert all(each._queue.next_index == 256 for each in left)
    assert servers.notes() == []
    for stream in left:
        stream.close()
    until(lambda: len(servers.notes()) == 10)


def test_so_many_streams_at_a_time_and_no_more(client):
    from shmq.rpc import streaming

    some = [client.call("endless", "x") for _ in range(streaming.STREAMS_MAX)]
    with pytest.raises(shmq.TooMany, match="64 streams"):
        client.call("endless", "one more")
    some.pop().close()
    until(lambda: not isinstance(attempt(client), shmq.TooMany))
    for stream in some:
        stream.close()


def attempt(client):
    try:
        return list(client.call("count", 3))
    except shmq.TooMany as problem:
        return problem


def test_a_stream_has_a_deadline(client, servers):
    stream = client.call("endless", "late", timeout=2)
    with pytest.raises(shmq.rpc.TimedOut, match="not over in time"):
        for _ in stream:
            pass
    until(lambda: servers.notes() == ["late was closed"])
    slow = client.call("slow", "s", timeout=2)
    next(slow)
    with pytest.raises(shmq.rpc.TimedOut):
        next(slow)


@pytest.mark.parametrize("count", [1, 2])
def test_a_server_that_dies_in_a_stream_is_missed(servers, count):
    """By another server, which says so; or by the reader, when there is none."""
    servers.start(count)
    with shmq.rpc.Client(servers.path, timeout=LONG) as client:
        stream = client.call("slow", "s")
        pid = next(stream)
        (server,) = [each for each in servers.children if each.pid == pid]
        server.kill()
        with pytest.raises(shmq.rpc.ServerDied, match="died while it streamed"):
            next(stream)
    assert servers.notes() == ["s began"]


@pytest.mark.parametrize("name", ["endless", "aendless"])
def test_a_server_that_stops_ends_its_streams(servers, name):
    child = servers.start()
    with shmq.rpc.Client(servers.path, timeout=LONG) as client:
        stream = client.call(name, "s")
        next(stream)
        client.call("stop")
        with pytest.raises(shmq.rpc.ServerDied, match="shut down"):
            for _ in stream:
                pass
        assert child.hear() == "over"
    assert servers.notes() == ["s was closed"]


# ---------------------------------------------------------------- by an interface
class Calc(Protocol):
    """What a program says of it."""

    def add(self, a: int, b: int = 1) -> int: ...
    async def aadd(self, a: int, b: int) -> int: ...
    def count(self, upto: int) -> Iterator[int]: ...
    async def acount(self, upto: int) -> AsyncIterator[int]: ...
    def move(self, point: dict, by: float) -> Place: ...
    def echo(self, thing: object) -> int: ...


class Place(msgspec.Struct):
    """As the client has it."""

    x: int
    y: int


def test_an_interface_says_what_comes_back(client):
    calc = client.typed(Calc)
    assert calc.add(1) == 11  # its own default is the server's business
    assert calc.add(1, b=3, timeout=LONG) == 4
    assert calc.move({"x": 1}, 2.0) == Place(3, 0)
    assert list(calc.count(3)) == [0, 1, 2]
    with pytest.raises(shmq.BadFormat, match="Expected `int`, got `str`"):
        calc.echo("x")

    async def main():
        found = [each async for each in await calc.acount(3)]
        return await calc.aadd(1, 2), found

    assert asyncio.run(main()) == (3, [0, 1, 2])
    with pytest.raises(TypeError, match="a class is wanted"):
        client.typed(calc)
    assert not hasattr(calc, "sub")


def test_what_another_server_says_may_come_before_the_reader_is_ready(client, monkeypatch):
    """It finds the queue, and says that the one which had the stream has died."""
    from shmq.rpc import places, wire

    own = places.own_stream

    def made(*key):
        queue = own(*key)
        with places.stream_of(*key) as there:
            there.put(wire.pack((key[1], wire.ITEM, "first")))
        return queue

    monkeypatch.setattr(places, "own_stream", made)
    stream = client.call("count", 2)
    assert next(stream) == "first"
    stream.close()

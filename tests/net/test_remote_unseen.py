"""What was sent ahead and nobody has seen: it is not handed out when it has expired, and goes back uncounted."""

import asyncio
import time

import pytest
from remote import serving
from support import DEADLINE, until

import shmq
from shmq.net import packing

_HOURS_NS = 5 * 3600 * 10**9


@pytest.fixture
def server(root):
    with serving(root) as started:
        yield started


def _all_is_here(consumer, count: int) -> None:
    until(lambda: sum(len(batch.indexes) for batch in consumer.held._batches) == count)


def _clocks_apart(monkeypatch, apart: int) -> None:
    there = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: there() + apart)
    monkeypatch.setattr(time, "time", lambda: (there() + apart) / 1e9)


@pytest.mark.parametrize("apart", [-_HOURS_NS, _HOURS_NS])
def test_a_message_that_was_sent_ahead_is_not_handed_out_when_it_has_expired(orders, server, monkeypatch, apart):
    """Whatever the client's clock shows: here it is hours before or behind the server's."""
    _clocks_apart(monkeypatch, apart)
    with server.connect() as remote, remote.consumer("c", prefetch=50) as consumer:
        with pytest.raises(shmq.Empty):
            consumer.get(timeout=0.01)
        remote.put(b"first")
        first = consumer.get(timeout=DEADLINE)
        for payload, ttl in ((b"short", 50.0), (b"long", 3600.0), (b"longer", 3600.0), (b"short too", 50.0)):
            remote.put(payload, ttl=ttl)
        remote.put(b"last")
        _all_is_here(consumer, 5)
        late, later = remote.reader(1, 3)
        assert [each.expired for each in (first, late, later)] == [False] * 3
        now = packing.boottime_ns
        monkeypatch.setattr(packing, "boottime_ns", lambda: now() + 60 * 10**9)  # a minute has passed
        assert [late.expired, later.expired] == [True, False]
        found = []
        while len(found) < 3:
            found += consumer.get_many(10, timeout=DEADLINE)
        assert [each.payload for each in found] == [b"long", b"longer", b"last"]


def test_what_expired_at_a_client_that_acknowledges_is_given_back(orders, server, monkeypatch):
    _clocks_apart(monkeypatch, -_HOURS_NS)
    with server.connect() as remote, remote.consumer("c", ack="explicit", prefetch=50) as consumer:
        remote.put_many([b"short", b"shorter"], ttl=1.0)
        remote.put(b"last")
        until(lambda: consumer.held._batches or remote.next_index == 3)
        time.sleep(1.0)
        message = consumer.get(timeout=DEADLINE)
        assert message.payload == b"last"
        message.ack()
        until(lambda: consumer.lag == 0)  # the server has what had expired back, and has dropped it
        assert consumer.pending == 0


def test_what_expired_at_a_client_goes_where_the_group_has_it_go(orders, server, root):
    with server.connect() as remote, shmq.open(root / "late") as late:
        consumer = remote.consumer("g", group=True, ack="explicit", prefetch=10, expire_to="late")
        remote.put_many([b"a", b"b"], ttl=0.5)
        remote.put(b"c")
        until(lambda: _next(consumer) is not None)
        until(lambda: b"b" in [each.payload for each in late.reader()])
        consumer.close()


def _next(consumer):
    """The message behind those that expire, when it comes."""
    message = consumer.get(timeout=DEADLINE)
    if message.payload == b"a":
        time.sleep(0.6)
    message.ack()
    return message if message.payload == b"c" else None


@pytest.mark.parametrize("how", ["consumer", "queue", "awaited"])
@pytest.mark.parametrize("group", [True, False])
def test_what_nobody_has_seen_goes_back_without_an_attempt(orders, server, how, group):
    orders.put_many([b"%d" % n for n in range(10)])
    if how == "awaited":
        seen = asyncio.run(_awaited(server, group))
    else:
        remote = server.connect()
        consumer = remote.consumer("g", group=group, ack="explicit", prefetch=8)
        seen = [consumer.get(timeout=DEADLINE).index for _ in range(3)]
        _all_is_here(consumer, 5 + len(seen))  # one was granted again for each
        if how == "consumer":
            consumer.close()
        remote.close()
        if how == "queue":
            assert consumer.held.closed
    with orders.consumer("g", group=group, ack="explicit") as after:
        messages = []
        while len(messages) < 10:
            messages += after.get_many(10, timeout=DEADLINE)
        assert {each.index: each.attempts for each in messages} == {n: 1 + (n in seen) for n in range(10)}


async def _awaited(server, group) -> list[int]:
    remote = await shmq.aio.open(server.csp().replace("csp", "acsp", 1))
    consumer = await remote.consumer("g", group=group, ack="explicit", prefetch=8)
    seen = [(await consumer.get(timeout=DEADLINE)).index for _ in range(3)]
    await consumer.close()
    await remote.close()
    return seen


def test_what_crosses_a_close_of_a_member_goes_back_without_an_attempt(orders, server):
    """It was granted, and sent, and the client had not seen it yet when it closed."""
    with server.connect() as remote:
        for at in range(5):
            consumer = remote.consumer("g", group=True, ack="explicit", prefetch=20)
            consumer.held.wants(20)
            remote.link().grant(consumer.held)
            assert consumer.lag == 0  # so that the server has the grant
            orders.put(b"%d" % at)
            consumer.close()
            with orders.consumer("g", group=True, ack="explicit") as after:
                message = after.get(timeout=DEADLINE)
                assert (message.payload, message.attempts) == (b"%d" % at, 1)
                message.ack()


def test_the_servers_clock_is_what_came_soonest(monkeypatch):
    """What came late says too little; what was said long ago is forgotten, for no two clocks go alike."""
    now = 10**12
    monkeypatch.setattr(packing, "boottime_ns", lambda: now)
    clock = packing.Clock()
    ahead = 5 * 10**9
    clock.begin(now + ahead - 300)
    assert clock.told(now + ahead - 7) == ahead - 7
    assert clock.told(now + ahead - 10**9) == ahead - 7
    for _ in range(3):
        now += 61 * 10**9
        ahead -= 1000
        found = clock.told(now + ahead - 7)
    assert found == ahead + 1000 - 7
    clock.begin(None)
    assert clock.told(now - 3) == -3

"""A program moves from a local queue to a remote one by changing one string: the verbs mean the same."""

from __future__ import annotations

import datetime
import pickle
import time

import pytest
from remote import serving
from support import Child, in_child

import shmq
from shmq.net.client.address import Address


@pytest.fixture
def server(root):
    with serving(root) as found:
        yield found


def facts(message):
    fields = ("index", "payload", "key", "type", "time_ns", "headers", "attempts", "expires")
    return {name: getattr(message, name) for name in fields} | {"view": bytes(message.view)}


def raised(call, *given, **named):
    try:
        return call(*given, **named)
    except Exception as problem:  # noqa: BLE001  # what it is, is compared
        return type(problem)


def story(queue):
    """What a program does with a queue, and what it sees: twice the same, here and there."""
    now = 1_700_000_000_000_000_000
    seen = [
        queue.put(b"a", time_ns=now),
        queue.put(bytearray(b"b"), key=b"k", type=7, time_ns=now + 1, headers={"x": [1]}),
    ]
    seen.append(
        queue.put_many([b"c", memoryview(b"d"), b""], keys=[b"k", None, b"e"], types=[1, 2, 3], times_ns=[now] * 3)
    )
    seen.append(queue.put_many([b"h"], headers=[{"y": None}], times_ns=[now + 5], ttl=1e6)[0])
    seen += [queue.put(b"once", dedup=("p", 4), time_ns=now + 9), queue.put(b"again", dedup=("p", 4))]
    seen += [queue.adopted("p"), queue.adopted("nobody"), len(queue), queue.first_index, queue.next_index]
    seen += [facts(queue[1]), facts(queue[-2]) | {"expires": None}, [facts(m) for m in queue[1:4]]]
    seen += [queue[5].expires is not None, facts(queue.latest(b"k")), queue.latest(b"none")]
    seen += [raised(queue.__getitem__, each) for each in (99, -99)]
    seen += [queue.at(now / 1e9), queue.at_ns(now + 5), queue.at(datetime.datetime.fromtimestamp(5e9, datetime.UTC))]
    for options in ({}, {"start": 2, "stop": -1}, {"reverse": True}, {"filter": shmq.Filter(key_prefix=b"k")}):
        seen.append([facts(m)["payload"] for m in queue.reader(**options)])
    for wrong in (
        {"payload": "text"},
        {"payload": b"", "key": "k"},
        {"payload": b"", "timeout": -1},
        {"payload": b"", "ttl": -1},
    ):
        found = raised(queue.put, **wrong)
        seen.append(found if isinstance(found, int) else issubclass(found, (TypeError, ValueError)))
    seen += [
        raised(queue.put_many, [b""] * 8192),
        raised(queue.put_many, [b"x", b"y"], types=[1]),
        raised(queue.put_many, b"xy"),
    ]
    seen.append(consumers(queue))
    queue.put(b"last")
    queue.finish()
    seen += [queue.finished, queue.stats().finished]
    with queue.consumer("late", start=7) as late:
        seen += [[m.payload for m in late], raised(late.get, timeout=1)]
    return seen


def consumers(queue):
    seen = []
    with queue.consumer("plain") as plain:
        seen += [
            plain.take(),
            facts(plain.get(timeout=1))["payload"],
            plain.take_many(3),
            [m.index for m in plain.get_many(9)],
        ]
        seen += [
            raised(plain.take, timeout=0),
            raised(plain.get_many, 5, timeout=0.01),
            raised(plain.get, timeout=True),
        ]
        seen += [raised(plain.get_many, 0), plain.lag, raised(queue.consumer, "plain")]
        plain.seek(2)
        seen += [plain.take(), facts(plain.peek() or plain.get())["index"]]
    with queue.consumer("group", group=True, ack="explicit", max_attempts=5) as group:
        first, second, third = group.get_many(3)
        seen += [group.pending, group.lag, group.ack_mode]
        first.ack()
        group.ack(second)
        third.nack()
        again = group.get(timeout=1)
        seen += [again.index, again.attempts, raised(first.ack), group.lag]
        again.extend(5)
        again.reject("no good")
        seen += [group.lag, raised(group.ack, "nothing"), group.take(timeout=1)]
    seen += [sorted(queue.consumers()), queue.consumers()["group"].lag]
    queue.rename_consumer("plain", "plainer")
    queue.drop_consumer("plainer")
    return [*seen, sorted(queue.consumers()), raised(queue.drop_consumer, "nobody")]


def test_a_program_sees_the_same_here_and_there(root, server):
    options = {"retention": "forever"}
    with shmq.open(root / "here", **options) as here, shmq.open(root / "there", **options):
        wanted = story(here)
        with server.connect("there") as there:
            for number, (has, want) in enumerate(zip(story(there), wanted, strict=True)):
                assert has == want, number


def test_text_and_json_are_encoded_as_the_queue_says(root, server):
    for codec, value in (("text", "grün"), ("json", {"a": [1, None]}), ("msgpack", {"a": b"x"})):
        shmq.open(root / codec, codec=codec).close()
        with server.connect(codec) as queue, queue.consumer("c") as consumer:
            queue.put_many([value])
            assert [queue[0].payload, consumer.take(timeout=5)] == [value, value]
            with pytest.raises(TypeError):
                queue.put(object())
            assert queue.next_index == 1


def test_a_bound_is_waited_for_as_long_as_was_said_and_then_it_is_full(root, server):
    shmq.open(root / "few", max_messages=3).close()
    with server.connect("few") as queue, queue.consumer("c") as consumer:
        queue.put_many([b"0", b"1", b"2"])
        with pytest.raises(shmq.Full):
            queue.put(b"3", timeout=0.05)
        with pytest.raises(shmq.Full):
            queue.put(b"3", timeout=0)
        waits = queue.submit(b"3")
        behind = queue.submit(b"4", timeout=30)
        assert not waits.done()
        consumer.take_many(2)
        until_settled = time.monotonic() + 20
        while not (waits.done() and behind.done()) and time.monotonic() < until_settled:
            consumer.take_many(1, timeout=1)
        assert [waits.result(), behind.result()] == [3, 4]


def test_a_queue_that_syncs_answers_when_it_is_on_the_disk(root, server):
    shmq.open(root / "synced", durability="sync").close()
    with server.connect("synced") as queue:
        ranges = [each.result() for each in [queue.submit_many([b"x"] * 10) for _ in range(40)]]
        assert [each.start for each in ranges] == list(range(0, 400, 10))
        assert queue.durable_index == 400
        with queue.consumer("c", group=True, ack="explicit") as consumer:
            consumer.ack(*consumer.get_many(10))
            assert consumer.lag == 390


def test_batches_that_are_submitted_are_put_in_order(orders, server):
    with server.connect() as queue:
        futures = [queue.submit_many([b"%d.%d" % (batch, each) for each in range(7)]) for batch in range(100)]
        ones = [queue.submit(b"one %d" % each, key=b"k%d" % (each % 3) if each % 2 else None) for each in range(500)]
        assert [future.result().start for future in futures] == list(range(0, 700, 7))
        assert [future.result() for future in ones] == list(range(700, 1200))
        assert queue[701].key == b"k1"
    assert [m.payload for m in orders.reader(700)] == [b"one %d" % each for each in range(500)]
    assert orders[5].payload == b"0.5"


def test_what_was_sent_ahead_is_there_for_whoever_opens_the_name_next(orders, server):
    orders.put_many([b"%d" % each for each in range(50)])
    with server.connect() as queue:
        with queue.consumer("c") as consumer:
            assert consumer.take_many(3) == [b"0", b"1", b"2"]
        with queue.consumer("c") as consumer:
            assert consumer.take() == b"3"
    with orders.consumer("c") as consumer:
        assert consumer.take() == b"4"


def test_many_that_wait_do_not_keep_each_other(orders, server):
    """Each long poll is its own: the one that has something is answered."""
    with server.connect() as queue:
        groups = [queue.consumer(f"g{number}", group=True, filter=shmq.Filter(types=[number])) for number in range(8)]
        readers = [iter(queue.reader("latest", follow=True))]
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(9) as pool:
            waiting = [pool.submit(group.get, 20) for group in groups]
            follows = pool.submit(next, readers[0])
            for number in reversed(range(8)):
                orders.put(b"%d" % number, type=number)
                assert waiting[number].result(20).payload == b"%d" % number
                assert [each.done() for each in waiting[:number]] == [False] * number
            assert follows.result(20).payload == b"7"


def test_a_server_that_makes_queues_makes_one_for_whoever_may_append(root):
    with (
        serving(root, create=True) as server,
        server.connect("shop/new") as queue,
        server.connect("shop/%6eew") as same,
    ):
        assert [queue.put(b"x"), same.put(b"y"), queue.put(b"z")] == [0, 1, 2]
    with shmq.open(root / "shop" / "new", create=False) as made:
        assert [m.payload for m in made.reader()] == [b"x", b"y", b"z"]


def test_over_tcp_it_is_the_same(orders, root):
    def serve(say):
        shmq.net.serve(root, listen="tcp:127.0.0.1:0", on_start=lambda told: say(told[0]))

    with Child(serve) as child:
        port = int(child.hear().rpartition(":")[2])
        with shmq.net.connect(f"csp://127.0.0.1:{port}/orders") as queue, queue.consumer("c") as consumer:
            assert queue.put_many([b"a", b"b"]) == range(2)
            assert consumer.take_many(2, timeout=5) == [b"a", b"b"]


def test_open_of_a_csp_is_the_same(orders, server):
    with shmq.open(server.csp(), client="till") as queue:
        assert (type(queue), queue.put(b"x"), queue.place) == (shmq.net.RemoteQueue, 0, server.csp())
    for wrong in ({"codec": "json"}, {"options": shmq.Options()}):
        with pytest.raises(TypeError):
            shmq.open(server.csp(), **wrong)


def test_large_messages_that_are_sent_ahead_wait_for_the_client(root, server):
    with shmq.open(root / "large", chunk_bytes=16 << 20) as large, server.connect("large") as queue:
        for number in range(40):
            large.put(bytes([number]) * (1 << 19))
        with queue.consumer("c") as consumer:
            assert consumer.take()[:1] == b"\0"
            assert [payload[0] for payload in (consumer.take(timeout=20) for _ in range(38))] == list(range(1, 39))
        with queue.consumer("g", group=True, ack="explicit") as group:
            while (messages := group.get_many(40, timeout=20))[-1].index < 39:
                group.ack(*messages)
        assert queue.put(bytes(3 << 20)) == 40
        with pytest.raises(shmq.TooLarge):
            queue.put(bytes(17 << 20))
        assert len(queue[40].payload) == 3 << 20


def test_a_queue_pickles_to_its_address(orders, server):
    with server.connect() as queue:
        with pickle.loads(pickle.dumps(queue)) as again:
            assert again.put(b"x") == 0
        with queue.consumer("c") as consumer, pytest.raises(TypeError, match="open it there with"):
            pickle.dumps(consumer)


def test_a_forked_child_has_a_session_of_its_own(orders, server):
    with server.connect() as queue:
        queue.put(b"parent")
        consumer = queue.consumer("c", group=True, ack="explicit")
        message = consumer.get(timeout=5)

        def child():
            queue.put(b"child")
            for refused in (message.ack, consumer.get):
                with pytest.raises(shmq.Forked):
                    refused()
            with queue.consumer("c", group=True, ack="explicit") as own:
                own.get(timeout=5).ack()
            queue.close()

        in_child(child)
        message.ack()
        assert [queue.put(b"parent"), consumer.lag] == [2, 1]


def test_what_is_not_there_is_not_found_and_nothing_of_the_disk_is_told(root, orders, server):
    for name in ("nothing", "orders/below", "..", ".serve"):
        with pytest.raises(shmq.NotFound) as refused:
            server.connect(name)
        assert str(root) not in str(refused.value)
    with server.connect() as queue:
        for wrong in (lambda: queue[7], lambda: queue.drop_consumer("c"), lambda: queue.consumer("c", start=99)):
            with pytest.raises((IndexError, shmq.NotFound)) as refused:
                wrong()
            assert str(root) not in str(refused.value)
    with pytest.raises(shmq.Closed):
        queue.put(b"x")
    with pytest.raises(OSError, match=r"\.nowhere|No such file"):
        shmq.net.connect(server.csp(path=f"{root}/.nowhere"))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("csp://host:9000/orders", ("host", 9000, "", "orders")),
        ("acsp://[::1]:9000/shop/orders#Queue", ("::1", 9000, "", "shop/orders")),
        ("csp+unix:///run/x.sock//orders", ("", 0, "/run/x.sock", "orders")),
        ("acsp+unix:///a/b//shop/orders", ("", 0, "/a/b", "shop/orders")),
    ],
)
def test_a_csp_names_a_server_and_a_queue(text, found):
    address = Address.of(text)
    assert (address.host, address.port, address.path, address.queue) == found


@pytest.mark.parametrize(
    "text", ["orders", "csp://host/orders", "csp://host:0/x", "csp://host:9000/", "csp+unix://a//b", "csp://h:1/x#Map"]
)
def test_what_is_no_csp_is_refused_with_one_that_is(text):
    with pytest.raises(ValueError, match=r"csp://HOST:PORT/NAME|a port is"):
        Address.of(text)


def test_a_put_from_elsewhere_does_not_open_a_finished_shard(server, root):
    """Its root's consumers are beyond it."""
    with shmq.shards.open(root / "events", shards=2) as events:
        events.grow()
        with server.connect("events/1.000") as remote, pytest.raises(shmq.ShutDown):
            remote.put(b"x")
        with server.connect("events/2.000") as remote:
            assert remote.put(b"x") == 0

"""Bridges to NATS and Redis and back: what travels, once and in order, and what each end is asked first."""

from __future__ import annotations

import contextlib
import shutil
import threading
import time

import pytest
from brokers import contents
from support import until

import shmq
from shmq import bridge
from shmq.bridge import ends, inward, jetstream, urls
from shmq.bridge.trail import Trail

STOP = threading.Event()
ODD = {
    "text": "plain",
    "ümlaut": "größe",
    " spaces ": " x ",
    "edges": " x ",
    "Nats-Msg-Id": "mine",
    "Shmq-Index": "7",
    "payload": "p",
    "source": "s",
    "number": 7,
    "none": None,
    "list": [1, b"\xff", {"a": 1.5}],
    "bytes": b"\0\xff",
    "empty": "",
    "lines": "a\r\nb: c",
    "colon:name": "x",
}


def fill(queue, count=10, first=0):
    for number in range(first, first + count):
        queue.put(b"%d" % number, type=number % 3)


def source_of(url, queue):
    return urls.source(urls.parse(url), queue.id, STOP)


def target_of(url, queue):
    return urls.target(urls.parse(url), queue.id, STOP)


def stored(url):
    """How many messages lie in a stream."""
    where = urls.parse(url)
    if where.scheme == "redis":
        import redis

        with redis.Redis.from_url(f"redis://{where.server}") as client:
            return client.xlen(where.name)
    return in_nats(url, lambda js: js.stream_info(where.name)).state.messages


def in_nats(url, call):
    """What JetStream answers."""
    link = jetstream._Link(urls.parse(url))
    try:
        link.connect()
        return link.run(call(link.js))
    finally:
        link.close()


def delete(url):
    """Delete a stream."""
    where = urls.parse(url)
    if where.scheme == "redis":
        import redis

        with redis.Redis.from_url(f"redis://{where.server}") as client:
            client.delete(where.name)
    else:
        in_nats(url, lambda js: js.delete_stream(where.name))


# ---------------------------------------------------------------- what travels
def test_everything_comes_back_the_same(url, a, b):
    a.put(b"", key=b"")
    a.put(b"\0\xff" * 1000, key=b"text key", type=65535, time_ns=1, headers=ODD)
    a.put(b"x", key=b" k ")
    a.put(b"x", key=b"\xff\0 ", time_ns=(1 << 62) + 1, headers={"a": "b"})
    fill(a, 1200)
    assert bridge.send(a, url, once=True) == 1204
    assert bridge.receive(url, b, once=True) == 1204
    assert contents(b) == contents(a)
    assert bridge.send(a, url, once=True) == bridge.receive(url, b, once=True) == 0


def test_index_and_queue_are_named_there(running, a):
    import redis

    fill(a, 3)
    for kind in ("redis", "nats"):
        bridge.send(a, running(kind).url("named"), once=True)
    with redis.Redis.from_url(running("redis").url("")) as client:
        entries = client.xrange("named")
    assert [(entry, fields[b"source"].decode()) for entry, fields in entries] == [
        (b"%d-1" % index, a.id) for index in range(3)
    ]
    last = in_nats(running("nats").url("named"), lambda js: js.get_msg("named", seq=3))
    assert last.headers["Shmq-Index"] == "2"
    assert last.headers["Nats-Msg-Id"] == f"{a.id}-2"
    assert last.headers["Shmq-Source"] == a.id


def test_what_others_write_becomes_payload_and_headers(running, queue):
    import redis

    url = running("redis").url("others")
    with redis.Redis.from_url(running("redis").url("")) as client:
        client.xadd("others", {"sensor": "7", "raw": b"\xff"}, id="5-1")
        client.xadd("others", {"payload": b"p", "type": "click"}, id="6-0")
    assert bridge.receive(url, queue("r"), once=True) == 2
    assert contents(queue("r")) == [
        (b"", None, 0, 5_000_000, {"sensor": "7", "raw": b"\xff"}),
        (b"p", None, 0, 6_000_000, {"type": "click"}),
    ]
    url = running("nats").url("others")
    in_nats(url, lambda js: js.add_stream(name="others", subjects=["theirs.*"]))
    in_nats(url, lambda js: js.publish("theirs.x", b"p", headers={"unit": "C"}))
    assert bridge.receive(url, queue("n"), once=True) == 1
    payload, key, kind, time_ns, headers = contents(queue("n"))[0]
    assert (payload, key, kind, headers) == (b"p", None, 0, {"unit": "C"})
    assert abs(time_ns - time.time_ns()) < 60e9


def test_objects_travel_between_queues_of_one_codec(url, queue):
    a, b = queue("ja", codec="json"), queue("jb", codec="json")
    a.put({"n": [1, "zwei"]})
    bridge.send(a, url, once=True)
    bridge.receive(url, b, once=True)
    assert b[0].payload == {"n": [1, "zwei"]}


def test_what_a_codec_cannot_read_is_told_and_all_before_it_is_in(url, a, queue):
    a.put(b"1")
    bridge.send(a, url, once=True)
    j = queue("j", codec="json")
    assert bridge.receive(url, j, once=True) == 1
    a.put(b"{")
    bridge.send(a, url, once=True)
    with pytest.raises(shmq.Corrupt, match="nothing for codec 'json'"):
        bridge.receive(url, j, once=True)
    assert [each.payload for each in j.reader()] == [1]


def test_nothing_is_made_into_a_pickle(url, queue):
    with pytest.raises(shmq.Untrusted):
        bridge.receive(url, queue("p", codec="pickle", trusted=True), once=True)


def test_what_has_expired_stays_and_what_is_delayed_waits(url, a):
    a.put(b"old", ttl=0.001)
    a.put(b"now")
    a.put(b"later", delay=60)
    a.put(b"behind it")
    time.sleep(0.01)
    assert bridge.send(a, url, once=True) == stored(url) == 1


def test_a_finished_queue_is_sent_and_the_bridge_ends(url, a):
    fill(a)
    a.finish()
    assert bridge.send(a, url) == 10


# ---------------------------------------------------------------- once
def test_a_bridge_that_was_here_before_sends_nothing_twice(url, a):
    """As if what a killed one left in its socket arrived when another had asked already."""
    fill(a, 20)
    batch = [ends.Outgoing(m.index, bridge_message(m, a)) for m in a.reader()]
    with contextlib.closing(target_of(url, a)) as first, contextlib.closing(target_of(url, a)) as second:
        assert first.place() is None
        assert second.place() is None
        second.send(batch[:10])
        with contextlib.suppress(ends.Unreachable):  # some servers know the ten, and take what is behind them
            first.send(batch[:15])
    with contextlib.closing(target_of(url, a)) as third:
        place = third.place()
        assert place in (9, 14)
        third.send(batch[place + 1 :])
    assert stored(url) == 20
    assert bridge.send(a, url, once=True) == 0


def test_what_does_not_come_next_is_refused(url, a):
    """Also when it was never there, so that it cannot be known."""
    fill(a, 20)
    batch = [ends.Outgoing(m.index, bridge_message(m, a)) for m in a.reader()]
    with contextlib.closing(target_of(url, a)) as first, contextlib.closing(target_of(url, a)) as second:
        first.place()
        second.place()
        second.send(batch[10:])
        with pytest.raises(ends.Unreachable):
            first.send(batch[:10])
    assert stored(url) == 10


def bridge_message(message, queue):
    from shmq.bridge import carried

    return carried.of(message, queue.id)


def test_what_was_put_and_not_confirmed_is_not_put_again(url, a, b, monkeypatch):
    fill(a)
    bridge.send(a, url, once=True)
    module = urls._module(urls.parse(url))

    def never(self, batch):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(module.Source, "confirm", never)
        with pytest.raises(KeyboardInterrupt):
            bridge.receive(url, b, once=True)
    assert len(b) == 10
    fill(a, 5, first=10)
    bridge.send(a, url, once=True)
    assert bridge.receive(url, b, once=True) == 5
    assert contents(b) == contents(a)


def test_what_was_on_its_way_to_a_bridge_that_died_comes_at_once_and_in_order(url, a, b):
    """The server would wait for it, and send what is newer meanwhile."""
    fill(a)
    bridge.send(a, url, once=True)
    dead = urls.source(urls.parse(url), b.id, STOP)
    dead.begin(lambda _: None)
    batch = None
    while not batch or not batch.messages:
        batch = dead.read(1.0)
    dead.close()
    fill(a, 5, first=10)
    bridge.send(a, url, once=True)
    assert bridge.receive(url, b, once=True) == 15
    assert contents(b) == contents(a)


def test_a_stream_made_anew_is_another_one(url, queue, b):
    """Its messages have the numbers of the one before."""
    one, two = queue("one"), queue("two")
    fill(one, 10)
    fill(two, 7, first=100)
    bridge.send(one, url, once=True)
    bridge.receive(url, b, once=True)
    delete(url)
    bridge.send(two, url, once=True)
    assert bridge.receive(url, b, once=True) == 7
    assert contents(b) == contents(one) + contents(two)


def test_a_stream_made_anew_while_the_bridge_runs_is_another_one(url, queue, tmp_path):
    one, two = queue("one"), queue("two")
    fill(one, 10)
    fill(two, 30, first=100)
    bridge.send(one, url, once=True)
    stop = threading.Event()
    with shmq.open(tmp_path / "b", retention="forever") as b:
        thread = threading.Thread(target=bridge.receive, args=(url, b), kwargs={"stop": stop})
        thread.start()
        until(lambda: len(b) == 10)
        delete(url)
        bridge.send(two, url, once=True)
        until(lambda: len(b) == 40)
        stop.set()
        thread.join()
        assert contents(b) == contents(one) + contents(two)


def test_found_a_stream_deleted_before_it_was_told_how_far_the_queue_is_ended_the_bridge(url, a, tmp_path):
    """Between a batch that was put and its receipt: it is another try, as at any other moment."""
    fill(a, 3)
    bridge.send(a, url, once=True)
    with shmq.open(tmp_path / "b") as b, contextlib.closing(source_of(url, b)) as source:
        source.begin({}.get)
        batch = source.read(1.0)
        delete(url)
        with contextlib.suppress(ends.Unreachable):
            source.confirm(batch)


def test_a_target_that_is_deleted_under_a_bridge_is_not_made_by_the_next_batch(url, a):
    """Else it would begin in the middle, and nobody would know."""
    fill(a, 20)
    batch = [ends.Outgoing(m.index, bridge_message(m, a)) for m in a.reader()]
    with contextlib.closing(target_of(url, a)) as target:
        target.place()
        target.send(batch[:10])
        delete(url)
        with pytest.raises(ends.Unreachable):
            target.send(batch[10:])
    assert bridge.send(a, url, once=True) == stored(url) == 20


def test_a_target_made_anew_gets_what_the_trail_has(url, a):
    fill(a, 10)
    bridge.send(a, url, once=True)
    delete(url)
    assert bridge.send(a, url, once=True) == 10
    delete(url)
    assert bridge.send(a, url, once=True, trail=0) == 10
    delete(url)
    assert bridge.send(a, url, once=True) == 0


def test_what_a_server_lost_after_it_answered_is_sent_again(own_server, a, b, tmp_path):
    """As after a power cut of the server, which had not synced."""
    url = own_server.url("power")
    fill(a, 50)
    bridge.send(a, url, once=True)
    own_server.kill()
    shutil.copytree(tmp_path / "server", tmp_path / "before")
    own_server.start()
    fill(a, 50, first=50)
    bridge.send(a, url, once=True)
    assert stored(url) == 100
    own_server.kill()
    shutil.rmtree(tmp_path / "server")
    shutil.move(tmp_path / "before", tmp_path / "server")
    own_server.start()
    assert stored(url) == 50
    assert bridge.send(a, url, once=True) == 50
    bridge.receive(url, b, once=True)
    assert contents(b) == contents(a)


def test_a_stream_whose_messages_are_gone_goes_on_where_it_was(running, a, queue):
    url = running("nats").url("drained")
    fill(a, 10)
    bridge.send(a, url, once=True)
    in_nats(url, lambda js: js.purge_stream("drained"))
    fill(a, 5, first=10)
    assert bridge.send(a, url, once=True) == stored(url) == 5
    url = running("redis").url("drained")
    import redis

    bridge.send(a, url, once=True)
    with redis.Redis.from_url(running("redis").url("")) as client:
        client.xtrim("drained", 0, approximate=False)
    assert bridge.send(a, url, once=True) == stored(url) == 0


def test_a_work_queue_is_drained_once(running, a, b):
    """JetStream forgets there what was acknowledged."""
    url = running("nats").url("work")
    in_nats(url, lambda js: js.add_stream(name="work", subjects=["work"], retention="workqueue"))
    fill(a)
    bridge.send(a, url, once=True)
    assert bridge.receive(url, b, once=True) == 10
    until(lambda: stored(url) == 0)
    fill(a, 10, first=10)
    assert bridge.send(a, url, once=True) == 10
    assert bridge.receive(url, b, once=True) == 10
    assert contents(b) == contents(a)


def test_only_what_is_on_the_disk_is_sent(a, monkeypatch):
    seen = []

    class Target(ends.Target):
        def place(self):
            return None

        def send(self, batch):
            seen.append((a.durable_index, batch[-1].at))

        def close(self):
            pass

    monkeypatch.setattr(urls, "target", lambda *_: Target())
    fill(a, 700)
    assert bridge.send(a, "nats://nowhere/x", once=True) == 700
    assert len(seen) == 2
    assert all(durable > last for durable, last in seen)


def test_the_trail_is_so_long_as_asked(a, monkeypatch):
    fill(a, 100)
    now = [1000.0]
    monkeypatch.setattr("shmq.bridge.trail.time.monotonic", lambda: now[0])
    names = Trail(a, "t", 60.0)
    for index in range(1, 101):
        names.reached(index)
        now[0] += 1.0
    assert names.confirmed == 100
    assert 39 <= names.begin <= 41
    now[0] += 60
    names.move()
    assert names.begin == 100
    names.close()
    assert a.consumers()["t.sent"].hold == "nothing"


# ---------------------------------------------------------------- who may
def test_a_second_bridge_is_told_that_there_is_one(url, a, b):
    fill(a)
    name = urls.parse(url).consumer("")
    with a.consumer(name), pytest.raises(shmq.Busy):
        bridge.send(a, url, once=True)
    bridge.send(a, url, once=True)
    with b.consumer(urls.parse(url).consumer("in"), hold="nothing"), pytest.raises(shmq.Busy):
        bridge.receive(url, b, once=True)


def test_a_stream_of_another_queue_is_refused(url, a, b):
    fill(a)
    fill(b)
    bridge.send(a, url, once=True)
    with pytest.raises(shmq.Mismatch, match=a.id):
        bridge.send(b, url, once=True)
    assert stored(url) == 10


def test_a_stream_with_messages_of_others_is_refused(running, a):
    import redis

    fill(a)
    with redis.Redis.from_url(running("redis").url("")) as client:
        client.xadd("foreign", {"a": "b"})
    with pytest.raises(shmq.Mismatch, match="no bridge has put"):
        bridge.send(a, running("redis").url("foreign"), once=True)
    url = running("nats").url("foreign")
    in_nats(url, lambda js: js.add_stream(name="foreign", subjects=["foreign"]))
    in_nats(url, lambda js: js.publish("foreign", b"x"))
    with pytest.raises(shmq.Mismatch, match="of no bridge"):
        bridge.send(a, url, once=True)


def test_a_target_that_has_more_than_the_queue_is_refused(url, a):
    """So the queue is an older copy of itself that does not know it."""
    fill(a, 10)
    ahead = target_of(url, a)
    ahead.place()
    ahead.send([ends.Outgoing(10, bridge_payload(10)._replace(source=a.id))])
    ahead.close()
    with pytest.raises(shmq.Mismatch, match="older copy"):
        bridge.send(a, url, once=True)
    a.put(b"10")
    assert bridge.send(a, url, once=True) == 0


def test_a_circle_is_refused(url, a):
    fill(a)
    bridge.send(a, url, once=True)
    with pytest.raises(shmq.Mismatch, match="itself"):
        bridge.receive(url, a, once=True)
    assert len(a) == 10


def test_there_must_be_a_stream_to_read(url, b):
    with pytest.raises(shmq.NotFound, match="no stream"):
        bridge.receive(url, b, once=True)


def test_a_stream_with_several_subjects_is_asked_for_one(running, a, b):
    url = running("nats").url("wild")
    in_nats(url, lambda js: js.add_stream(name="wild", subjects=["wild.>"]))
    fill(a, 3)
    with pytest.raises(bridge.Refused, match="subject="):
        bridge.send(a, url, once=True)
    assert bridge.send(a, f"{url}?subject=wild.a", once=True) == 3
    assert bridge.receive(f"{url}?subject=wild.a", b, once=True) == 3


def test_what_is_too_large_for_the_server_is_told_and_all_before_it_is_there(running, a):
    url = running("nats").url("large")
    fill(a, 3)
    a.put(b"x" * (2 << 20))
    with pytest.raises(shmq.TooLarge, match="message 3 has"):
        bridge.send(a, url, once=True)
    assert stored(url) == 3


# ---------------------------------------------------------------- room
def test_a_queue_with_a_small_bound_gets_it_in_pieces(url, a, queue):
    fill(a, 300)
    bridge.send(a, url, once=True)
    small = queue("small", max_messages=40, full="drop_oldest")
    assert bridge.receive(url, small, once=True) == 300
    assert contents(small)[-1] == contents(a)[-1]
    assert small.next_index == 300


def test_a_full_queue_is_waited_for(url, a, queue):
    fill(a, 60)
    bridge.send(a, url, once=True)
    small = queue("small", max_messages=40, retention="acked")
    with small.consumer("reader") as reader:
        thread = threading.Thread(target=bridge.receive, args=(url, small), kwargs={"once": True})
        thread.start()
        got = [reader.take(timeout=20) for _ in range(60)]
        thread.join()
    assert got == [b"%d" % number for number in range(60)]


def test_messages_that_are_gone_here_are_told(url, a, capsys, queue):
    small = queue("small", retention="acked", chunk_bytes=16384)
    small.put(b"first")
    bridge.send(small, url, once=True, trail=0)
    name = urls.parse(url).consumer("")
    small.drop_consumer(name)
    small.drop_consumer(f"{name}.sent")
    for number in range(2000):
        small.put(b"%d" % number)
    with small.consumer("other") as other:
        while other.lag:
            other.take_many(500, timeout=0)
    small.put(b"last")
    first = small.first_index
    assert first > 1
    assert bridge.send(small, url, once=True) == small.next_index - first
    assert "does not arrive" in capsys.readouterr().err


def test_what_is_confirmed_is_on_the_disk(b, monkeypatch):
    """A work queue forgets it then."""
    seen = []

    class Source(Fake):
        def confirm(self, batch):
            seen.append(b.durable_index)

    monkeypatch.setattr(inward.urls, "source", lambda *_: Source(range(10), range(10), range(30)))
    assert bridge.receive("nats://nowhere/x", b, once=True) == 30
    assert seen == [10, 10, 30]


class Fake(ends.Source):
    """A source that has these batches of numbers, and then nothing."""

    def __init__(self, *batches):
        self._left = list(batches)

    def begin(self, known):
        known("p")

    def read(self, timeout):
        if not self._left:
            return None
        return ends.Batch("p", [ends.Numbered(number, bridge_payload(number)) for number in self._left.pop(0)])

    def confirm(self, batch):
        pass

    def close(self):
        pass


def test_a_batch_is_known_by_its_last_number(b, monkeypatch):
    """However it is cut: what is below is not put again."""
    batches = (range(10), range(5, 15), range(15), range(12, 20))
    monkeypatch.setattr(inward.urls, "source", lambda *_: Fake(*batches))
    assert bridge.receive("nats://nowhere/x", b, once=True) == 20
    assert bridge.receive("nats://nowhere/x", b, once=True) == 0
    assert [each.payload for each in b.reader()] == [b"%d" % number for number in range(20)]


def bridge_payload(number):
    from shmq.bridge import carried

    return carried.Carried(b"%d" % number)

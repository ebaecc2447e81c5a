"""
Kafka, against the mock cluster that librdkafka brings: it has topics, offsets and transactions' calls, but shows what
was not committed, fences nobody, and knows no ids of topics. So these are not shown; nothing was tried on a real one.
"""

from __future__ import annotations

import time

import brokers
import pytest
from brokers import contents
from kills import Producer, wait_for_stream

import shmq
from shmq import bridge, cli
from shmq.bridge import urls

confluent_kafka = pytest.importorskip("confluent_kafka")


@pytest.fixture(scope="module")
def cluster():
    """The address of a mock cluster, which lives as long as this client."""
    host = confluent_kafka.Producer({"test.mock.num.brokers": 1, "log_level": 0})
    (broker,) = host.list_topics(timeout=10).brokers.values()
    yield f"{broker.host}:{broker.port}"
    host.flush(0)


@pytest.fixture
def url(cluster, request):
    return f"kafka://{cluster}/{request.node.name.replace('_', '-')}"


@pytest.fixture(autouse=True)
def one_topic(monkeypatch):
    """The mock cluster does not answer who asks for ids."""
    made = {"id": "first"}
    from shmq.bridge import kafka

    monkeypatch.setattr(kafka._Cluster, "topic_id", lambda _: made["id"])
    return made


def in_order(queue):
    """By partition there is order, so by key; compared by time, which is the order in which they were put."""
    return sorted(contents(queue), key=lambda each: each[3])


def test_everything_comes_back_the_same(url, a, b):
    odd = {"text": "plain", "shmq-index": "7", "ümlaut": "größe", "n": 7, "none": None, "bytes": b"\xff", "empty": ""}
    a.put(b"", key=b"")
    a.put(b"\0\xff" * 1000, key=b"\xffk", type=65535, headers=odd)
    for number in range(700):
        a.put(b"%d" % number, key=b"%d" % (number % 3), headers={"a": "b"} if number % 2 else None)
    assert bridge.send(a, url, once=True) == 702
    assert bridge.receive(url, b, once=True) == 702
    assert in_order(b) == contents(a)
    for key in (b"0", b"1", b"2"):
        mine = [each for each in contents(b) if each[1] == key]
        assert mine == [each for each in contents(a) if each[1] == key]
    assert bridge.send(a, url, once=True) == bridge.receive(url, b, once=True) == 0


def test_it_goes_on_where_it_was(url, a, b):
    for part in range(3):
        for number in range(100):
            a.put(b"%d" % number, key=b"k%d" % number)
        assert bridge.send(a, url, once=True) == 100
        assert bridge.receive(url, b, once=True) == 100, part
    assert in_order(b) == contents(a)


def test_a_topic_of_another_queue_is_refused(url, a, b):
    a.put(b"a")
    b.put(b"b")
    bridge.send(a, url, once=True)
    with pytest.raises(shmq.Mismatch, match="a topic of its own"):
        bridge.send(b, url, once=True)


def test_a_topic_with_another_id_is_another_one(url, a, b, one_topic):
    a.put(b"a")
    bridge.send(a, url, once=True)
    bridge.receive(url, b, once=True)
    one_topic["id"] = "second"
    assert bridge.receive(url, b, once=True) == 1


def test_what_is_too_large_is_told_and_all_before_it_is_there(url, a, b):
    a.put(b"first")
    a.put(b"x" * (2 << 20))
    with pytest.raises(shmq.TooLarge, match="message 1 has"):
        bridge.send(a, url, once=True)
    bridge.receive(url, b, once=True)
    assert contents(b) == contents(a)[:1]


def test_an_option_is_librdkafkas_and_a_wrong_one_is_said(a, capsys):
    assert cli.main(["bridge", a.path, "kafka://127.0.0.1:1/x?no.such=1", "--once"]) == 1
    assert "no.such" in capsys.readouterr().err
    with_password = urls.parse("kafka://h/x?sasl.password=secret")
    assert with_password.consumer("") == urls.parse("kafka://h/x").consumer("")


def test_a_bridge_that_is_killed_loses_and_doubles_nothing(url, a, b, tmp_path):
    """
    The way out: the way in asks for ids, which the mock cluster does not answer to another process either.

    By one key, into one partition: the mock cluster shows what was not committed, and of a batch that was cut off over
    several partitions it showed a part, behind which the bridge went on.
    """
    producer = Producer(a.path, 3, one_key=True)
    producer.start()
    try:
        with brokers.Bridge(tmp_path / "out", a.path, url) as out:
            for _ in range(2):
                wait_for_stream(a.path, url, out)
                time.sleep(0.2)
                out.kill()
                out.start()
            producer.end()
            out.kill()
    finally:
        producer.end()
    bridge.send(a, url, once=True)
    assert bridge.receive(url, b, once=True) == producer.count
    assert in_order(b) == contents(a)

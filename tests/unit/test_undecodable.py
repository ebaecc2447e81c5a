"""A payload that the queue's codec cannot read: one error, which says which message it is; and the rest still comes."""

import signal

import pytest

import shmq

BAD = {"text": b"\xff", "json": b"{", "msgpack": b"\xc1", "pickle": b"\x80\x04"}


@pytest.fixture(params=BAD)
def queue(request, path):
    """Three messages, of which the second has the bytes of another codec."""
    with shmq.open(path, codec=request.param, trusted=True, retention=shmq.Retention.forever()) as queue:
        queue.put("one")
        with queue.producer() as producer, producer.reserve(len(BAD[request.param])) as slot:
            slot.buffer[:] = BAD[request.param]
        queue.put("three")
        yield queue


def refused(verb):
    with pytest.raises(shmq.Corrupt, match=r"cannot decode message 1 in .*chunk: .*Queue.1..view has them") as info:
        verb()
    assert type(info.value.__cause__).__name__ in {"UnicodeDecodeError", "DecodeError", "EOFError"}


def test_what_was_taken_at_once_is_named_and_the_rest_comes(queue):
    with queue.consumer("all") as consumer:
        assert consumer.take(timeout=0) == "one"
        refused(lambda: consumer.take(timeout=0))
        assert consumer.take(timeout=0) == "three"
        consumer.seek(0)
        assert consumer.take_many(3, timeout=0) == ["one", "three"]
        refused(lambda: consumer.take_many(3, timeout=0))
        consumer.seek(0)
        one, bad, three = consumer.get_many(3, timeout=0)
        refused(lambda: bad.payload)
        assert (one.payload, three.payload) == ("one", "three")


@pytest.mark.parametrize("options", [{}, {"group": True}], ids=["alone", "group"])
def test_with_explicit_acks_it_is_not_acknowledged_and_comes_again(queue, options):
    with queue.consumer("all", ack="explicit", **options) as consumer:
        assert consumer.take_many(3, timeout=0) == ["one"]
        refused(lambda: consumer.take_many(3, timeout=0))
        refused(lambda: consumer.take(timeout=0))
        bad = consumer.get(timeout=0)
        refused(lambda: bad.payload)
        bad.ack()
        assert consumer.take(timeout=0) == "three"


def test_found_those_beside_it_became_dead_letters(queue):
    """They were claimed and given back with it as often as may be, and nobody ever saw them."""
    with queue.consumer("all", group=True, ack="explicit", max_attempts=2) as member:
        assert member.take_many(3, timeout=0) == ["one"]
        for _ in range(2):
            refused(lambda: member.take_many(3, timeout=0))
        third = member.get_many(3, timeout=0)
        assert [(message.payload, message.attempts) for message in third] == [("three", 1)]
        member.ack(*third)
        with pytest.raises(shmq.Empty):
            member.get(timeout=0)
    with shmq.open(f"{queue.path}.all.dead", trusted=True) as letters:
        assert len(letters) == 1


def test_a_group_that_acknowledges_at_once_and_readers_say_which(queue):
    with queue.consumer("all", group=True, ack="auto") as member:
        assert member.take_many(3, timeout=0) == ["one", "three"]
        refused(lambda: member.take_many(3, timeout=0))
    messages = list(queue.reader())
    refused(lambda: messages[1].payload)
    refused(lambda: queue[1].payload)
    assert bytes(queue[1].view) in BAD.values()
    assert [messages[0].payload, messages[2].payload] == ["one", "three"]


class Late:
    """Sends a signal while it is unpickled."""

    def __reduce__(self):
        return signal.raise_signal, (signal.SIGUSR1,)


class StopError(Exception):
    pass


def test_what_a_handler_raises_inside_a_codec_comes_out_as_it_is(path):
    def stop(*_):
        raise StopError

    before = signal.signal(signal.SIGUSR1, stop)
    try:
        with shmq.open(path, codec="pickle", trusted=True) as queue, queue.consumer("all") as consumer:
            for _ in range(4):
                queue.put(Late())
            for verb in (consumer.take, lambda: consumer.take_many(1), lambda: consumer.get().payload):
                with pytest.raises(StopError):
                    verb()
    finally:
        signal.signal(signal.SIGUSR1, before)

"""What people see when they look at a handle, and when they mistype: what it is, and what was wrong with what."""

from __future__ import annotations

import datetime

import pytest
from support import in_child

import shmq


def test_every_handle_says_what_it_is(queue, path):
    """With the queue's place; closed ones too."""
    queue.put_many([b"a", b"b"])
    consumer = queue.consumer("billing")
    consumer.take()
    group = queue.consumer("workers", group=True, ack="explicit")
    message = group.get()
    reader, backward = queue.reader(1), queue.reader(reverse=True)
    producer, staged, slot = queue.producer(), queue.stage(), queue.reserve(5)
    said = {
        consumer: (f"<shmq.Consumer 'billing' of {path} (ack=auto, head 1)>", f"'billing' of {path} (closed)>"),
        group: (f"<shmq.GroupConsumer 'workers' of {path} (ack=explicit, head 0, holds 1)>", "(closed)>"),
        reader: (f"<shmq.Reader of {path} (at 1)>", f"<shmq.Reader of {path} (closed)>"),
        backward: (f"<shmq.Reader of {path} (backward)>", "(closed)>"),
        producer: (f"<shmq.Producer of {path}>", f"<shmq.Producer of {path} (closed)>"),
        staged: (f"<shmq.Staged for {path}>", f"<shmq.Staged for {path} (closed)>"),
        queue: (f"<shmq.Queue {path}>", f"<shmq.Queue {path} (closed)>"),
    }
    assert repr(message) == "Message(index=0, 1 bytes)"
    assert repr(slot) == "<shmq.Slot for message 2, 5 bytes (open)>"
    slot.commit()
    assert repr(slot) == "<shmq.Slot for message 2, 5 bytes (committed or aborted)>"
    for handle, (open_, closed) in said.items():
        assert repr(handle) == open_
        handle.close()
        assert repr(handle).endswith(closed)


MISTAKES = [
    (lambda queue: queue.put("text"), r"not str; .*codec='text'"),
    (lambda queue: queue.put(b"a", key="eu"), r"key='eu': .*key\.encode\(\)"),
    (lambda queue: queue.put(b"a", type="a"), "type='a': an int is wanted, not str"),
    (lambda queue: queue.put(b"a", time_ns=1.5), "time_ns=1.5: an int is wanted, not float"),
    (lambda queue: queue.put_many([b"a"], types=["a"]), "type='a': an int is wanted, not str"),
    (lambda queue: queue.put(b"a", ttl="5"), "ttl='5': a number of seconds is wanted"),
    (lambda queue: queue.put(b"a", delay=datetime.timedelta(5)), "delay=.*: a number of seconds is wanted"),
    (lambda queue: queue.put(b"a", headers=["a"]), r"headers=\['a'\]: a mapping is wanted, not list"),
    (
        lambda queue: queue.put(b"a", headers=[], timeout="1", dedup=("a", 1)),
        "timeout='1': a number of seconds, or None",
    ),
    (lambda queue: queue.producer().put(b"a", tll=1), r"^Producer\.put\(\) got an unexpected keyword argument 'tll'"),
    (lambda queue: queue.consumer("c").take(timeot=1), r"^Consumer\.take\(\) got an unexpected keyword .*'timeot'"),
    (lambda queue: queue.consumer("c").take_many(), r"^Consumer\.take_many\(\) missing 1 .*'limit'"),
    (lambda queue: queue.consumer("c").get(timeout="1"), "timeout='1': a number of seconds, or None"),
    (
        lambda queue: queue.consumer("c", group="workers"),
        "group='workers': True or False .* the name is the group's",
    ),
    (lambda queue: shmq.wait(queue.consumer("c"), timeout=0), r"write wait\(\[consumer\]\)"),
    (lambda queue: shmq.wait([queue], timeout=0), r"is not a consumer; get one with queue.consumer\(name\)"),
]


@pytest.mark.parametrize(("mistake", "says"), MISTAKES)
def test_a_typical_mistake_is_a_type_error_that_names_it(queue, mistake, says):
    """And nothing is put or taken."""
    with pytest.raises(TypeError, match=says):
        mistake(queue)
    assert len(queue) == 0


def test_a_forked_child_may_print_what_it_cannot_use(queue):
    """A repr asks nobody and raises nothing."""
    consumer, group = queue.consumer("c"), queue.consumer("g", group=True)
    assert in_child(lambda: [len(repr(each)) > 20 for each in (consumer, group, queue)]) == "[True, True, True]"


@pytest.mark.parametrize(("verb", "given"), [("nack", ()), ("nack", (1.0,)), ("reject", ("why",)), ("extend", (5.0,))])
def test_what_is_finished_already_cannot_be_given_back_and_is_told_what_to_write(queue, verb, given):
    """Mismatch, not AttributeError; the message can still be acknowledged."""
    queue.put(b"a")
    consumer = queue.consumer("c")
    message = consumer.get()
    for each in (message, queue[0]):
        with pytest.raises(shmq.Mismatch, match=r"""message 0: .*ack="explicit".*"""):
            getattr(each, verb)(*given)
    message.ack()
    assert consumer.lag == 0

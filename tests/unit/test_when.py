"""Messages that expire, and messages that wait for their time; for groups and for consumers alone."""

from __future__ import annotations

import contextlib
import datetime
import threading
import time

import pytest
from support import make_unclean, records, until

import shmq

WAIT = 60


def join(queue, name="g", **options):
    return queue.consumer(name, group=True, ack="explicit", **options)


@pytest.fixture(params=["alone", "alone explicit", "group", "group auto"])
def consumer(request, queue):
    """A consumer of every kind."""
    ack = "explicit" if request.param in ("alone explicit", "group") else "auto"
    return queue.consumer("c", group=request.param.startswith("group"), ack=ack)


def test_what_has_expired_is_skipped_and_counted(queue, consumer):
    """Readers still see it."""
    queue.put(b"dead", ttl=0)
    queue.put_many([b"dead too"] * 3, ttl=0)
    with queue.reserve(4, ttl=0) as slot:
        slot.buffer[:] = b"dead"
    queue.put(b"alive", ttl=3600)
    queue.put(b"immortal")
    assert consumer.take_many(10, timeout=0) == [b"alive", b"immortal"]
    with pytest.raises(shmq.Empty):
        consumer.take(0)
    assert len(list(queue.reader())) == 7
    group = queue.consumers()["c"].group
    assert group is None or group.expired == 5


def test_expires_says_when(queue):
    """As a datetime; None for those that do not; and headers and keys are where they belong."""
    before = datetime.datetime.now(datetime.UTC)
    queue.put(b"x", ttl=1000, delay=0.001, key=b"k", headers={"a": 1})
    queue.put(b"y", headers={"b": 2})
    first, second = queue[0], queue[1]
    slack = datetime.timedelta(seconds=900)
    assert abs(first.expires - before - datetime.timedelta(seconds=1000)) < slack
    assert (first.payload, first.key, first.headers, second.expires) == (b"x", b"k", {"a": 1}, None)
    assert second.headers == {"b": 2}


def test_the_bytes_of_a_moment(queue, path):
    """Both fields, in the order of their bits, before the headers."""
    queue.put(b"x", ttl=5, delay=2, headers={"a": 1})
    (record,) = records(path)
    assert record.flags == 1 | 2 | 64
    expiry, delay = (int.from_bytes(record.extra[at : at + 8], "little") for at in (0, 24))
    assert 2.9e9 < expiry - delay < 3.1e9


def test_a_queue_may_have_a_ttl_of_its_own(make):
    """A put may say otherwise; it is stored with the queue."""
    queue = make(ttl=0.0)
    queue.put(b"dead")
    queue.put_many([b"dead"])
    queue.put(b"alive", ttl=3600)
    assert queue.consumer("c").take_many(9, 0) == [b"alive"]
    with pytest.raises(shmq.Mismatch, match="ttl"):
        make(ttl=5.0)


@pytest.mark.parametrize("given", [{"ttl": -1}, {"delay": -1}, {"ttl": float("nan")}])
def test_times_that_mean_nothing_are_refused(queue, given):
    """And nothing is put."""
    with pytest.raises(ValueError, match="seconds, 0 or more"):
        queue.put(b"x", **given)
    assert queue.next_index == 0


def test_a_delayed_message_waits_for_its_time_and_wakes_who_waits(queue, consumer):
    """The others of a group go on; a consumer alone keeps the order."""
    began = time.monotonic()
    queue.put(b"later", delay=0.3)
    assert consumer.take(WAIT) == b"later"
    assert time.monotonic() - began > 0.299
    queue.put(b"last")
    assert consumer.take(WAIT) == b"last"


def test_what_is_delayed_for_long_is_not_there(queue, consumer):
    """For anybody."""
    queue.put(b"in an hour", delay=3600)
    with pytest.raises(shmq.Empty):
        consumer.take(0)


def test_messages_delayed_by_an_hour_do_not_stop_the_others(queue):
    """Thousands of them, in a small window."""
    member = join(queue, window=64)
    for _ in range(5000):
        queue.put(b"in an hour", delay=3600)
    queue.put_many([b"%d" % i for i in range(500)])
    found = []
    while len(found) < 500:
        messages = member.get_many(20, WAIT)
        found += [message.payload for message in messages]
        member.ack(*messages)
    assert found == [b"%d" % i for i in range(500)]
    with pytest.raises(shmq.Empty):
        member.get(0)
    stats = queue.consumers()["g"]
    assert (stats.group.parked, stats.head) == (5000, 5500)


def test_an_earlier_time_wakes_who_sleeps_for_a_later_one(queue):
    """The sleeper had a deadline of its own."""
    member = join(queue)
    queue.put(b"in an hour", delay=3600)
    got = []
    waiter = threading.Thread(target=lambda: got.append(member.get(WAIT).payload))
    waiter.start()
    queue.put(b"soon", delay=0.05)
    waiter.join(WAIT)
    assert got == [b"soon"]


# ---------------------------------------------------------------- moving
def letters(queue):
    return [
        (each.payload, each.headers["shmq.cause"], each.headers["shmq.attempts"], each.headers["shmq.reason"])
        for each in queue.reader()
    ]


def test_reject_moves_to_the_dead_letters(queue, path):
    """With everything it carries, and where it is from."""
    queue.put(b"bad", key=b"k", type=7, time_ns=5, headers={"mine": 1})
    queue.put(b"good")
    member = join(queue)
    message = member.get(0)
    try:
        raise RuntimeError("cannot do it")
    except RuntimeError as problem:
        message.reject(problem)
    with shmq.open(f"{path}.g.dead", create=False) as dead:
        (letter,) = dead.reader()
        assert (letter.payload, letter.key, letter.type, letter.time_ns) == (b"bad", b"k", 7, 5)
        headers = letter.headers
        assert (headers["mine"], headers["shmq.index"], headers["shmq.group"]) == (1, 0, "g")
        assert headers["shmq.reason"] == "RuntimeError: cannot do it"
        assert 'raise RuntimeError("cannot do it")' in headers["shmq.traceback"]
        assert headers["shmq.queue"] == queue.path
    assert (member.head, member.get(0).payload) == (1, b"good")
    assert queue.consumers()["g"].group.moved == 1


def test_after_so_many_attempts_it_is_dead(queue, path):
    """And not handed out once more."""
    queue.put(b"bad")
    member = join(queue, max_attempts=3)
    for attempt in (1, 2, 3):
        message = member.get(0)
        assert (message.attempts, message.errors) == (attempt, attempt - 1)
        message.nack()
    with pytest.raises(shmq.Empty):
        member.get(0)
    with shmq.open(f"{path}.g.dead", create=False) as dead:
        assert letters(dead) == [(b"bad", "attempts", 3, "it was handed out 3 times and never finished")]
    assert member.head == 1


def test_what_expires_goes_where_it_should(queue, tmp_path):
    """Also what expired while somebody had it."""
    member = join(queue, expire_to="old")
    queue.put(b"dead", ttl=0)
    message = None
    while message is None:  # on a busy machine it may expire before it is handed out
        queue.put(b"soon", ttl=0.5)
        with contextlib.suppress(shmq.Empty):
            message = member.get(0)
    assert message.payload == b"soon"
    until(lambda: message.expired)
    message.nack()
    with pytest.raises(shmq.Empty):
        member.get(0)
    with shmq.open(str(tmp_path / "old"), create=False) as old:
        found = [letter[:2] for letter in letters(old)]
    assert found[0] == (b"dead", "expired")
    assert set(found[1:]) == {(b"soon", "expired")}
    assert member.lag == 0


@pytest.mark.parametrize("copied", [False, True])
def test_a_move_that_was_killed_is_finished_once(queue, path, copied):
    """Whether the copy was there when the mover died, or not."""
    from support import Child, hold_until_killed

    queue.put(b"bad")

    def die(say):
        from shmq.taking import dead

        put = dead.Mover.put

        def stop(self, *args, **options):
            if copied:
                put(self, *args, **options)
            hold_until_killed(say)

        dead.Mover.put = stop
        join(queue).get(0).reject("bad")

    with Child(die) as child:
        child.hear()
        child.kill()
    member = join(queue)
    until(lambda: not _has(member) and member.head == 1, WAIT)
    with shmq.open(f"{path}.g.dead", create=False) as dead:
        assert [letter[0] for letter in letters(dead)] == [b"bad"]


def _has(member):
    try:
        member.get(0)
    except shmq.Empty:
        return False
    return True


def test_a_move_that_fails_loses_nothing(queue, monkeypatch):
    """The message is held as before, and can be rejected again."""
    from shmq.taking import dead

    def fail(*_, **__):
        raise shmq.DiskFull("no room")

    queue.put(b"bad")
    member = join(queue)
    message = member.get(0)
    with monkeypatch.context() as patched:
        patched.setattr(dead.Mover, "put", fail)
        with pytest.raises(shmq.DiskFull, match=r"no room; message 0 of .* still holds it"):
            message.reject()
    assert member.pending == 1
    message.reject()
    assert (member.head, member.pending) == (1, 0)


@pytest.mark.parametrize(("ack", "order"), [("auto", None), ("explicit", None), ("explicit", "key")])
def test_what_a_group_has_seen_of_a_delayed_message_does_not_bring_it_early_after_a_reboot(path, ack, order):
    """The ring is made anew, and does not know any more when it is due; the message does."""
    options = {"group": True, "ack": ack, "ordered_by": order}
    with shmq.open(path) as queue, queue.consumer("g", **options) as member:
        queue.put(b"later", delay=3600, key=b"k")
        queue.put(b"other", key=b"l")
        assert member.take(timeout=0) == b"other"
        with pytest.raises(shmq.Empty):
            member.take(timeout=0)
        queue.sync()
    make_unclean(path)
    with shmq.open(path) as queue, queue.consumer("g", **options) as member:
        with pytest.raises(shmq.Empty):
            member.take(timeout=0)
        assert member.lag == 1


def test_what_a_message_has_are_properties_all_of_them(queue):
    """What is called does something; `m.expired` that was forgotten to be called was always true."""
    queue.put(b"x", headers={"a": 1}, delay=3600)
    message = queue[0]
    assert message.expired is False
    assert message.due_ns > message.time_ns
    assert message.weight > 1
    assert message.raw_headers == b"\x81\xa1a\x01"
    names = {name for name in dir(shmq.Message) if name[0] != "_"} - {"array"}  # of which this one has none
    verbs = {name for name in names if callable(getattr(message, name))}
    assert verbs == {"ack", "nack", "reject", "extend", "forward"}

"""Names that go by themselves, with their holder or after a time; and the name that alone holds everything back."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
import types
from pathlib import Path

import pytest
from support import Child, make_unclean

import shmq
from shmq import Filter, _native
from shmq.storage import departures, laggards

KINDS = {
    "auto": {},
    "lone": {"ack": "explicit"},
    "group": {"group": True},
    "explicit group": {"group": True, "ack": "explicit"},
}
kinds = pytest.mark.parametrize("kind", KINDS)
groups = pytest.mark.parametrize("kind", ["group", "explicit group"])


def files(path):
    return sorted(os.listdir(Path(path, "consumers")))


@pytest.fixture
def later(monkeypatch):
    """Have so many seconds pass, for what looks at the time of names."""
    shift = [0]
    boottime, wall = _native.boottime_ns, time.time_ns
    monkeypatch.setattr(departures._native, "boottime_ns", lambda: boottime() + shift[0])
    monkeypatch.setattr(departures.time, "time_ns", lambda: wall() + shift[0])

    def forward(seconds):
        shift[0] += int(seconds * 1e9)

    return forward


# ---------------------------------------------------------------- with their holder
@kinds
def test_an_ephemeral_name_goes_when_it_is_closed(queue, path, kind):
    queue.put(b"x")
    consumer = queue.consumer("c", ephemeral=True, **KINDS[kind])
    assert queue.consumers()["c"].ephemeral
    assert consumer.take(timeout=0) == b"x"
    consumer.close()
    consumer.close()
    assert (files(path), queue.consumers()) == ([], {})


@kinds
def test_a_name_is_made_up_for_who_needs_none(queue, kind):
    with (
        queue.consumer(ephemeral=True, **KINDS[kind]) as one,
        queue.consumer(ephemeral=True, **KINDS[kind]) as other,
    ):
        assert set(queue.consumers()) == {one.name, other.name}
    assert queue.consumers() == {}
    with pytest.raises(TypeError, match="only ephemeral=True makes one up"):
        queue.consumer(**KINDS[kind])


@kinds
def test_it_goes_when_its_holder_is_killed(queue, path, kind):
    def work(say):
        with shmq.open(path, create=False) as mine:
            consumer = mine.consumer("c", ephemeral=True, **KINDS[kind])
            say("holds it")
            time.sleep(60)
            consumer.close()

    child = Child(work)
    child.hear()
    assert list(queue.consumers()) == ["c"]
    child.kill()
    assert (queue.consumers(), files(path)) == ({}, [])


@kinds
def test_a_producer_that_waits_for_its_room_goes_on_when_its_holder_is_killed(make, path, kind):
    queue = make(max_messages=4)
    keeps_up = queue.consumer("keeps up".replace(" ", "-"))

    def work(say):
        with shmq.open(path, create=False) as mine:
            consumer = mine.consumer("c", ephemeral=True, **KINDS[kind])
            say("holds it")
            time.sleep(60)
            consumer.close()

    child = Child(work)
    child.hear()
    for _ in range(4):
        queue.put(b"x")
        keeps_up.take()
    threading.Timer(0.2, child.kill).start()
    queue.put(b"there is room", timeout=20)
    assert list(queue.consumers()) == ["keeps-up"]
    keeps_up.close()


@groups
def test_a_group_goes_with_its_last_member(queue, path, kind):
    one = queue.consumer("g", ephemeral=True, **KINDS[kind])
    other = queue.consumer("g", **KINDS[kind])
    one.close()
    assert list(queue.consumers()) == ["g"]
    queue.put(b"x")
    assert other.take(timeout=5) == b"x"
    other.close()
    assert files(path) == []


@kinds
def test_it_is_locked_before_anybody_can_see_it(queue, path, kind, monkeypatch):
    """The name is linked with its lock: whoever looks at that moment finds that it is held."""
    seen = []
    link = os.link

    def look(*arguments, **keywords):
        link(*arguments, **keywords)
        if arguments[1] == "c.checkpoint":
            seen.append(departures.settle(queue._session.home, "c"))
            seen.append("c.checkpoint" in files(path))

    monkeypatch.setattr(os, "link", look)
    with queue.consumer("c", ephemeral=True, **KINDS[kind]) as consumer:
        queue.put(b"x")
        assert consumer.take(timeout=5) == b"x"
    assert seen == [None, True]


@kinds
def test_a_dead_ones_name_begins_anew_for_whoever_opens_it_next(queue, path, kind):
    queue.put_many([b"%d" % number for number in range(5)])

    def work(say):
        with shmq.open(path, create=False) as mine:
            consumer = mine.consumer("c", ephemeral=True, filter=Filter(types={0}), **KINDS[kind])
            consumer.take_many(3)
            say("took some")
            time.sleep(60)

    child = Child(work)
    child.hear()
    child.kill()
    with queue.consumer("c", ephemeral=True, start=4, **KINDS[kind]) as consumer:
        assert (consumer.filter, consumer.take(timeout=5)) == (None, b"4")


def test_a_forked_child_that_does_nothing_keeps_no_name(queue, path):
    consumer = queue.consumer("c", ephemeral=True)

    def work(say):
        say("here")
        time.sleep(60)

    child = Child(work)
    child.hear()
    consumer.close()
    assert queue.consumers() == {}
    child.kill()


def test_held_by_another_it_is_busy(queue):
    with queue.consumer("c", ephemeral=True):
        with pytest.raises(shmq.Busy):
            queue.consumer("c", ephemeral=True)
        with pytest.raises(shmq.Busy):
            queue.drop_consumer("c")


@kinds
def test_what_one_is_made_with_is_not_contradicted(queue, kind):
    queue.consumer("plain", **KINDS[kind]).close()
    with pytest.raises(shmq.Mismatch, match="ephemeral=True: it was made with ephemeral=False"):
        queue.consumer("plain", ephemeral=True, **KINDS[kind])
    with pytest.raises(shmq.Mismatch, match=r"expires=5.0: it was made with expires=None"):
        queue.consumer("plain", expires=5, **KINDS[kind])
    queue.consumer("e", expires=60, **KINDS[kind]).close()
    with pytest.raises(shmq.Mismatch, match=r"expires=61.0: it was made with expires=60.0"):
        queue.consumer("e", expires=61, **KINDS[kind])
    queue.consumer("e", expires=60.0, **KINDS[kind]).close()
    queue.consumer("e", **KINDS[kind]).close()
    with pytest.raises(ValueError, match="expires= and ephemeral=True"):
        queue.consumer("x", ephemeral=True, expires=5)


# ---------------------------------------------------------------- after a time
@kinds
def test_a_name_that_nobody_came_for_goes_and_never_before(queue, path, kind, later):
    queue.consumer("c", expires=60, **KINDS[kind]).close()
    later(59)
    assert list(queue.consumers()) == ["c"]
    later(2)
    assert (queue.consumers(), files(path)) == ({}, [])


@kinds
def test_its_time_begins_when_it_is_closed_not_when_it_is_made(queue, kind, later):
    with queue.consumer("c", expires=60, **KINDS[kind]):
        later(1000)
        assert list(queue.consumers()) == ["c"]
    later(59)
    with queue.consumer("c", **KINDS[kind]):
        later(1000)
        assert list(queue.consumers()) == ["c"]
    later(59)
    assert list(queue.consumers()) == ["c"]
    later(2)
    assert list(queue.consumers()) == []


@kinds
def test_a_holder_that_was_killed_left_when_somebody_found_it(queue, path, kind, later):
    def work(say):
        with shmq.open(path, create=False) as mine:
            consumer = mine.consumer("c", expires=60, **KINDS[kind])
            say("holds it")
            time.sleep(60)
            consumer.close()

    child = Child(work)
    child.hear()
    child.kill()
    later(2 * 86400)
    assert list(queue.consumers()) == ["c"]
    later(59)
    assert list(queue.consumers()) == ["c"]
    later(2)
    assert list(queue.consumers()) == []


@kinds
def test_one_that_comes_too_late_begins_at_its_start(queue, kind, later):
    queue.put_many([b"0", b"1"])
    with queue.consumer("c", expires=60, **KINDS[kind]) as consumer:
        assert consumer.take() == b"0"
    with queue.consumer("c", start="latest", **KINDS[kind]) as consumer:
        assert consumer.take(timeout=5) == b"1"
    later(61)
    with queue.consumer("c", expires=60, **KINDS[kind]) as consumer:
        assert consumer.take(timeout=5) == b"0"


def test_after_a_reboot_the_wall_clock_decides(make, path, later):
    queue = make()
    queue.consumer("c", expires=60).close()
    queue.close()
    with open(Path(path, "consumers", "c.checkpoint"), "r+b") as file:
        place = _native.layout.checkpoint.left
        file.seek(place + 8)
        file.write((7 << 40).to_bytes(8, "little") + b"otherone")
    make_unclean(path)
    queue = make()
    later(50)
    assert list(queue.consumers()) == ["c"]
    later(11)
    assert list(queue.consumers()) == []


def test_a_wall_clock_that_was_put_back_makes_it_later_not_never(make, path, later):
    queue = make()
    queue.consumer("c", expires=60).close()
    with open(Path(path, "consumers", "c.checkpoint"), "r+b") as file:
        file.seek(_native.layout.checkpoint.left)
        file.write((time.time_ns() + 10**15).to_bytes(8, "little") + bytes(8) + b"otherone")
    assert list(queue.consumers()) == ["c"]
    later(61)
    assert list(queue.consumers()) == []


@kinds
def test_a_producer_that_waits_for_room_goes_on_when_its_time_is_over(make, kind):
    queue = make(max_messages=4)
    keeps_up = queue.consumer("k")
    consumer = queue.consumer("c", expires=0.4, **KINDS[kind])
    for _ in range(4):
        queue.put(b"x")
        keeps_up.take()
    threading.Timer(0.2, consumer.close).start()
    begun = time.monotonic()
    queue.put(b"there is room", timeout=20)
    assert time.monotonic() - begun >= 0.4
    keeps_up.close()


def test_retirement_looks_for_them_too(make, path, later):
    queue = make()
    queue.consumer("c", expires=60).close()
    queue.consumer("e", expires=1e6).close()
    with queue.consumer("k") as consumer:
        for _ in range(300):
            queue.put(bytes(500))
            consumer.take()
        assert queue.first_index == 0
        later(61)
        for _ in range(100):
            queue.put(bytes(500))
            consumer.take()
    assert "c.checkpoint" not in files(path)
    assert "e.checkpoint" in files(path)


def test_two_at_once_take_away_one_name_and_make_one_anew(make, path):
    """Whoever opens a name that goes meanwhile makes it anew, and nobody is told that it is not there."""
    queue = make()
    problems = []

    def work():
        with shmq.open(path, create=False) as mine:
            for _ in range(60):
                try:
                    with contextlib.suppress(shmq.Busy), mine.consumer("c", ephemeral=True):
                        pass
                    mine.consumers()
                except BaseException as problem:  # noqa: BLE001  # whatever it is
                    problems.append(problem)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert queue.consumers() == {}
    assert files(path) == []


def test_damage_keeps_a_name_and_says_so(queue, path):
    queue.consumer("c", expires=0.001).close()
    time.sleep(0.01)
    Path(path, "consumers", "c.subscription").write_bytes(b"nonsense")
    assert "c.subscription" in queue.consumers()["c"].problem
    with pytest.raises(shmq.Corrupt):
        queue.consumer("c")
    queue.drop_consumer("c")
    assert files(path) == []


def test_what_a_later_version_would_say_is_refused_and_stays(queue, path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Filter, "stored", lambda self: {"key_prefix": "00", "sql": "where"})
        with contextlib.suppress(shmq.BadFormat):
            queue.consumer("c", filter=Filter(key_prefix=b"\0"))
    with pytest.raises(shmq.BadFormat, match="'sql'"):
        queue.consumer("c")
    assert "'sql'" in queue.consumers()["c"].problem
    assert files(path) == ["c.checkpoint", "c.subscription"]


# ---------------------------------------------------------------- who holds everything back
@pytest.fixture
def heard(caplog, monkeypatch):
    """What the log said, each look at once."""
    monkeypatch.setattr(laggards, "_LOOK", 0.05)
    monkeypatch.setattr(laggards, "_told", {})
    monkeypatch.setattr(laggards, "_looked", {})
    with caplog.at_level(logging.WARNING, logger="shmq"):
        yield lambda: [each.getMessage() for each in caplog.records if "alone holds back" in each.getMessage()]


def test_the_name_that_alone_holds_everything_back_is_told_of_once(make, heard, monkeypatch):
    monkeypatch.setattr(laggards, "MUCH_BYTES", 1 << 17)
    queue = make()
    queue.consumer("slow").close()
    with queue.consumer("fast") as consumer:
        for _ in range(600):
            queue.put(bytes(500))
            consumer.take()
            time.sleep(0.0005)
    assert len(heard()) == 1
    assert "consumer 'slow' alone holds back" in heard()[0]
    held = queue.stats().held_by
    assert (held.name, held.messages, held.much) == ("slow", 600, True)
    assert 600 * 500 < held.bytes < 600 * 500 * 2
    queue.drop_consumer("slow")
    assert queue.stats().held_by is None


def test_of_two_that_are_behind_together_none_is(make, heard, monkeypatch):
    monkeypatch.setattr(laggards, "MUCH_BYTES", 1 << 17)
    queue = make()
    queue.consumer("slow").close()
    queue.consumer("slower").close()
    with queue.consumer("fast") as consumer:
        for _ in range(600):
            queue.put(bytes(500))
            consumer.take()
    assert heard() == []
    assert queue.stats().held_by is None


def test_half_of_a_bound_is_much(make, heard):
    queue = make(max_messages=10)
    slow = queue.consumer("slow")
    with queue.consumer("fast") as consumer:
        for number in range(10):
            queue.put(b"%d" % number)
            consumer.take()
            held = queue.stats().held_by
            assert (held.messages, held.much) == (number + 1, number >= 4)
        with pytest.raises(shmq.Full):
            queue.put(b"x", timeout=0.5)
        assert len(heard()) == 1
        slow.take()
        queue.put(b"x", timeout=5)
    slow.close()
    assert len(heard()) == 1


def test_a_bound_that_is_half_full_is_no_news_where_its_name_moves(make, heard, monkeypatch):
    """Between two looks there are three takes, however busy the machine is."""
    taken = []
    monkeypatch.setattr(laggards, "time", types.SimpleNamespace(monotonic=lambda: 0.02 * len(taken)))
    queue = make(max_messages=4)
    slow = queue.consumer("slow")

    def work():
        for _ in range(60):
            queue.put(b"x", timeout=20)

    thread = threading.Thread(target=work)
    thread.start()
    for _ in range(60):
        taken.append(slow.take(timeout=20))
        time.sleep(0.005)
    thread.join()
    slow.close()
    assert heard() == []


def test_who_holds_nothing_is_not_counted(make):
    queue = make()
    queue.consumer("monitor", hold="nothing").close()
    queue.put(b"x")
    assert queue.stats().held_by is None
    other = make(Path(queue.path).parent / "r", retention=shmq.Retention.forever())
    other.consumer("c").close()
    other.put(b"x")
    assert other.stats().held_by is None
    other.consumer("archive", hold=True).close()
    assert other.stats().held_by.name == "archive"

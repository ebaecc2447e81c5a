"""Following a queue while its program writes: growth, new files, rotation, rewrite, truncation, timeout."""

import mmap
import threading
import time

import pytest
from format_fixtures import place

from shmq import formats
from shmq.errors import Corrupt
from shmq.formats import Entry, _follow, kestrel, libkestrel, sej
from shmq.formats.kestrel.follow import Tail
from shmq.formats.kestrel.journal import Rules

QUIET = 0.3
"""Seconds without anything new after which following ends; by the clock below, not by the machine's."""
LOOKS = 3
"""So many looks without anything new pass in QUIET, once the writer has finished."""


class Clock:
    """Time as following sees it: it stands still while somebody writes, however slowly, and then goes by looks."""

    def __init__(self):
        self._writing = threading.Event()
        self._now = 0.0

    def monotonic(self):
        if not self._writing.is_set():
            self._now += QUIET / LOOKS
        return self._now

    def beside(self, work, entries):
        """Collect what *entries* delivers while *work* runs in a thread."""

        def write():
            try:
                work()
            finally:
                self._writing.clear()

        self._writing.set()
        thread = threading.Thread(target=write)
        thread.start()
        try:
            return list(entries)
        finally:
            thread.join()

    def while_following(self, entries, *steps):
        """Collect what *entries* delivers while each of *steps* is done in turn, a moment apart."""

        def work():
            for step in steps:
                time.sleep(0.08)
                step()

        return self.beside(work, entries)


@pytest.fixture
def clock(monkeypatch):
    """Have following go by that clock."""
    clock = Clock()
    monkeypatch.setattr(_follow, "time", clock)
    return clock


def put(index, text="x"):
    """One libkestrel PUT."""
    return libkestrel.PUT_FIELDS.pack(0x86, len(text), 0, index, 1000 + index) + text.encode()


def add(text, added_ms=0):
    """One Kestrel ADDX."""
    return kestrel.record(kestrel.ADDX, entry=Entry(text.encode(), None, added_ms * 1_000_000))


def message(offset):
    """One sej message."""
    return sej.message(offset, Entry(b"m%d" % offset, None, offset))


def append(path, data):
    with path.open("ab") as file:
        file.write(data)


def payloads(entries):
    return [entry.payload.decode() for entry in entries]


# ------------------------------------------------------------------------------------------ sej


def test_sej_grows_by_halves_of_messages_and_by_segments(tmp_path, clock):
    place(tmp_path, {"jnl/0000000000000000.jnl": message(0) + message(1)[:10]})
    found = clock.while_following(
        formats.read(tmp_path, follow=True, timeout=QUIET),
        lambda: append(tmp_path / "jnl/0000000000000000.jnl", message(1)[10:]),
        lambda: append(tmp_path / "jnl/0000000000000002.jnl", b""),
        lambda: append(tmp_path / "jnl/0000000000000002.jnl", message(2)),
    )
    assert [entry.index for entry in found] == [0, 1, 2]


def test_sej_shards_that_appear_are_followed(tmp_path, clock):
    place(tmp_path, {"o.1.000/jnl/0000000000000000.jnl": message(0)})
    found = clock.while_following(
        formats.read(tmp_path, follow=True, timeout=QUIET),
        lambda: place(tmp_path, {"o.1.001/jnl/0000000000000000.jnl": message(0)}),
        lambda: append(tmp_path / "o.1.000/jnl/0000000000000000.jnl", message(1)),
    )
    assert [(e.extra["dir"], e.index) for e in found] == [("o.1.000", 0), ("o.1.001", 0), ("o.1.000", 1)]


def test_sej_notices_that_its_file_was_cut(tmp_path):
    file = tmp_path / "jnl/0000000000000000.jnl"
    place(tmp_path, {"jnl/0000000000000000.jnl": message(0) + message(1)})
    entries = formats.read(tmp_path, follow=True, timeout=5)
    assert [next(entries).index, next(entries).index] == [0, 1]
    with file.open("r+b") as cut:
        cut.truncate(len(message(0)))
    with pytest.raises(Corrupt, match="became shorter"):
        next(entries)


def test_sej_does_not_wait_behind_a_broken_message(tmp_path):
    place(tmp_path, {"jnl/0000000000000000.jnl": message(0) + bytes(64)})
    entries = formats.read(tmp_path, follow=True, timeout=5)
    assert next(entries).index == 0
    with pytest.raises(Corrupt, match="offset 0 where 1 is next"):
        next(entries)


def test_following_ends_when_nothing_has_come_for_the_timeout(tmp_path):
    place(tmp_path, {"jnl/0000000000000000.jnl": message(0)})
    begin = time.monotonic()
    assert len(list(formats.read(tmp_path, follow=True, timeout=0.2))) == 1
    assert time.monotonic() - begin >= 0.2
    assert len(list(formats.read(tmp_path, follow=True, timeout=0))) == 1


# ------------------------------------------------------------------------------------------ libkestrel


def test_libkestrel_grows_in_place_and_by_segments(tmp_path, clock):
    """The program writes through a mapping into a file full of zeros, the command byte last, and no event tells."""
    first = bytes.fromhex("27642603") + put(1)
    path = tmp_path / "jobs.100"
    place(tmp_path, {"jobs.100": first + bytes(200)})

    def publish():
        with path.open("r+b") as file:
            file.seek(len(first) + 1)
            file.write(put(2)[1:])
            file.flush()
            file.seek(len(first))
            file.write(put(2)[:1])

    found = clock.while_following(
        formats.read(tmp_path, "libkestrel", "jobs", follow=True, timeout=QUIET),
        publish,
        lambda: place(tmp_path, {"jobs.101": bytes.fromhex("27642603") + bytes(90)}),
        lambda: place(tmp_path, {"jobs.101": bytes.fromhex("27642603") + put(3) + bytes(60)}),
    )
    assert [entry.index for entry in found] == [1, 2, 3]


# ------------------------------------------------------------------------------------------ Kestrel


def test_kestrel_delivers_what_is_left_and_then_what_is_added(tmp_path, clock):
    """An item that is taken again at once is delivered all the same: following shows what comes in."""
    place(tmp_path, {"cars": add("gone") + add("a") + kestrel.record(kestrel.REMOVE) + add("b")[:9]})
    found = clock.while_following(
        formats.read(tmp_path, "kestrel", follow=True, timeout=QUIET),
        lambda: append(tmp_path / "cars", add("b")[9:] + kestrel.record(kestrel.REMOVE)),
        lambda: append(tmp_path / "cars", add("c")),
    )
    assert payloads(found) == ["a", "b", "c"]


def test_kestrel_is_followed_through_a_rotation(tmp_path, clock):
    place(tmp_path, {"cars": add("a")})

    def rotate():
        append(tmp_path / "cars", add("b"))
        (tmp_path / "cars").rename(tmp_path / "cars.900")
        place(tmp_path, {"cars": add("c")})

    found = clock.while_following(formats.read(tmp_path, "kestrel", follow=True, timeout=QUIET), rotate)
    assert payloads(found) == ["a", "b", "c"]


def test_kestrel_is_followed_through_a_rewrite_without_repeating_what_was_left(tmp_path, clock):
    """A rewrite replaces the journal by one that begins with the open transactions and the items that are left."""
    place(tmp_path, {"cars": add("a", 1) + add("b", 2) + add("c", 3) + kestrel.record(kestrel.REMOVE)})
    opened = add("b", 2) + kestrel.record(kestrel.REMOVE_TENTATIVE_XID, xid=1)

    def rewrite():
        append(tmp_path / "cars", kestrel.record(kestrel.REMOVE_TENTATIVE_XID, xid=1))
        place(tmp_path, {"cars~~5": opened + add("c", 3)})
        (tmp_path / "cars~~5").rename(tmp_path / "cars")

    found = clock.while_following(
        formats.read(tmp_path, "kestrel", "cars", follow=True, timeout=QUIET),
        rewrite,
        lambda: append(tmp_path / "cars", add("d", 9)),
    )
    assert payloads(found) == ["b", "c", "d"]


def test_kestrel_is_followed_through_deletion_and_a_new_beginning(tmp_path, clock):
    place(tmp_path, {"cars": add("a", 1)})

    def begin_again():
        (tmp_path / "cars").unlink()
        place(tmp_path, {"cars": add("new", 50)})

    found = clock.while_following(formats.read(tmp_path, "kestrel", follow=True, timeout=QUIET), begin_again)
    assert payloads(found) == ["a", "new"]


def test_kestrel_notices_that_its_file_was_cut(tmp_path):
    place(tmp_path, {"cars": add("a") + add("b")})
    entries = formats.read(tmp_path, "kestrel", follow=True, timeout=5)
    assert payloads([next(entries), next(entries)]) == ["a", "b"]
    with (tmp_path / "cars").open("r+b") as cut:
        cut.truncate(3)
    with pytest.raises(Corrupt, match="became shorter"):
        next(entries)


def test_without_inotify_following_naps_and_looks(tmp_path, monkeypatch, clock):
    from shmq.formats import _inotify

    monkeypatch.setattr(_inotify.ctypes, "CDLL", lambda *_args, **_kwargs: object())
    place(tmp_path, {"cars": add("a")})
    found = clock.while_following(
        formats.read(tmp_path, "kestrel", follow=True, timeout=QUIET), lambda: append(tmp_path / "cars", add("b"))
    )
    assert payloads(found) == ["a", "b"]


# ------------------------------------------------------------------------------------------ under load


def test_sej_is_followed_while_its_writer_flushes_in_the_middle_of_messages(tmp_path, clock):
    """The real writer flushes a buffer of 4096 bytes wherever that falls, and the rest when it rolls."""
    count, flush, roll = 4000, 4096, 40_000
    place(tmp_path, {"jnl/0000000000000000.jnl": b""})

    def work():
        held, length, file = b"", 0, tmp_path / "jnl/0000000000000000.jnl"
        for offset in range(count):
            one = message(offset)
            held, length = held + one, length + len(one)
            if length >= roll:
                append(file, held)
                held, length, file = b"", 0, tmp_path / f"jnl/{offset + 1:016x}.jnl"
                append(file, b"")
            elif len(held) >= flush:
                append(file, held[:flush])
                held = held[flush:]
        append(file, held)

    found = clock.beside(work, formats.read(tmp_path, follow=True, timeout=QUIET))
    assert [entry.index for entry in found] == list(range(count))


def test_libkestrel_is_followed_while_its_writer_fills_a_mapping(tmp_path, clock):
    count, size = 3000, 1 << 14
    place(tmp_path, {"jobs.1": libkestrel.WRITER_MAGIC})

    def work():
        index, number = 1, 100
        while index <= count:
            with (tmp_path / f"jobs.{number}").open("w+b") as file:
                file.truncate(size)
                with mmap.mmap(file.fileno(), size) as bytes_:
                    bytes_[:4] = libkestrel.WRITER_MAGIC
                    at = 4
                    while index <= count and at + len(put(index)) <= size:
                        one = put(index)
                        bytes_[at + 1 : at + len(one)] = one[1:]
                        bytes_[at] = one[0]
                        at, index = at + len(one), index + 1
                file.truncate(at)
            number += 1

    found = clock.beside(work, formats.read(tmp_path, "libkestrel", "jobs", follow=True, timeout=QUIET))
    assert [entry.index for entry in found] == list(range(1, count + 1))


def test_kestrel_is_followed_through_many_rotations_and_rewrites(tmp_path, clock):
    """Nothing is missed and nothing comes twice, whatever step of a rotation or a rewrite the reader falls into."""
    count = 3000
    place(tmp_path, {"cars": b""})
    current = tmp_path / "cars"

    def rewrite(number, left):
        """The program's own steps: temporary, pack, delete what is older, drop the ending, replace the current."""
        place(tmp_path, {"cars~~1": b"".join(add(str(one), one) for one in left)})
        pack = tmp_path / f"cars.{number}.pack"
        (tmp_path / "cars~~1").rename(pack)
        for path in tmp_path.glob("cars.*[0-9]"):
            path.unlink()
        pack.rename(tmp_path / f"cars.{number}")
        current.unlink()
        (tmp_path / f"cars.{number}").rename(current)

    def work():
        begun.wait()
        left = []
        for one in range(count):
            append(current, add(str(one), one)[:9])
            append(current, add(str(one), one)[9:])
            left.append(one)
            if one % 3 == 0:
                append(current, kestrel.record(kestrel.REMOVE))
                left.pop(0)
            if one % 100 == 99:
                if one % 200 == 99:
                    current.rename(tmp_path / f"cars.{1000 + one}")
                    append(current, b"")
                else:
                    rewrite(1000 + one, left)
                time.sleep(0.003)

    begun = threading.Event()
    entries = formats.read(tmp_path, "kestrel", follow=True, timeout=QUIET)
    append(current, add("first"))
    assert next(entries).payload == b"first"
    append(current, kestrel.record(kestrel.REMOVE))
    begun.set()
    assert [int(entry.payload) for entry in clock.beside(work, entries)] == list(range(count))


def test_a_rewrite_is_known_in_whatever_order_its_steps_are_seen(tmp_path):
    """Each step of a rewrite falls between two looks: the file with the rest is gone, the pack stands beside it."""
    place(tmp_path, {"cars": add("first")})
    tail = Tail(tmp_path, "cars", Rules())

    def seen():
        return [entry.payload.decode() for entry in tail.available()]

    def named(name, *texts, old=()):
        place(tmp_path, {name: b"".join(add(text, int(text)) for text in texts)})
        for each in old:
            (tmp_path / each).unlink()

    assert seen() == ["first"]
    (tmp_path / "cars").rename(tmp_path / "cars.1000")
    named("cars", "1", "2")
    assert seen() == ["1", "2"]
    (tmp_path / "cars").rename(tmp_path / "cars.1001")
    assert seen() == []
    named("cars", "3", "4", old=["cars.1000", "cars.1001"])  # a rewrite has deleted the older files, and is not there
    assert seen() == ["3", "4"]
    named("cars.1002", "2", "3", "4")  # now it is, beside the file that it repeats
    (tmp_path / "cars").rename(tmp_path / "aside")
    (tmp_path / "aside").unlink()
    assert seen() == []
    named("cars", "3", "4", "5")  # and again with that file, which has gained one
    assert seen() == ["5"]
    named("cars.1003", "4", "5", "6", old=["cars.1002", "cars"])
    (tmp_path / "cars.1003").rename(tmp_path / "cars")
    assert seen() == ["6"]
    append(tmp_path / "cars", add("6", 6))  # the same text in the same millisecond, but added behind
    assert seen() == ["6"]
    tail.close()

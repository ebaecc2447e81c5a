"""Following a queue while its program writes: growth, new files, rotation, rewrite, truncation, timeout."""

import mmap
import os
import threading
import time
from pathlib import Path

import pytest
from format_fixtures import place

from shmq import formats
from shmq.errors import Corrupt
from shmq.formats import Entry, _follow, _inotify, kestrel, libkestrel, sej
from shmq.formats.kestrel.follow import Marks, Tail
from shmq.formats.kestrel.generations import Generations
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


class Kestrel:
    """What the real program does to its files, in its own steps; *step* is called after each."""

    def __init__(self, folder, step=lambda: None):
        self.folder = folder
        self.current = folder / "cars"
        self.left = []
        self._number = 1000
        self._step = step
        place(folder, {"cars": b""})

    def add(self, text, added_ms=0):
        append(self.current, add(text, added_ms)[:9])
        append(self.current, add(text, added_ms)[9:])
        self.left.append((text, added_ms))
        self._step()

    def remove(self):
        append(self.current, kestrel.record(kestrel.REMOVE))
        self.left.pop(0)
        self._step()

    def rotate(self):
        """Make a name of its own, take it, begin anew."""
        name = self._numbered()
        for step in (name.touch, lambda: self.current.rename(name), self.current.touch):
            step()
            self._step()
        return name

    def rewrite(self, until=9):
        """Temporary, pack, delete what is older, drop the ending, delete the current one, take its name."""
        temporary, name = self.folder / "cars~~1", self._numbered()
        pack = name.with_name(f"{name.name}.pack")
        older = sorted(self.folder.glob("cars.*[0-9]"))
        steps = [
            lambda: temporary.write_bytes(b"".join(add(*each) for each in self.left)),
            pack.touch,
            lambda: temporary.rename(pack),
            *(each.unlink for each in older),
            lambda: pack.rename(name),
            self.current.unlink,
            lambda: name.rename(self.current),
        ]
        for step in steps[:until]:
            step()
            self._step()

    def pack(self, rotated, *texts):
        """Put a file that holds *texts* in the place of those up to *rotated*."""
        temporary, pack = self.folder / "cars~~2", rotated.with_name(f"{rotated.name}.pack")
        temporary.write_bytes(b"".join(add(*each) for each in texts))
        temporary.rename(pack)
        self._step()
        for each in sorted(self.folder.glob("cars.*[0-9]")):
            if each <= rotated:
                each.unlink()
                self._step()
        pack.rename(rotated)
        self._step()

    def _numbered(self):
        self._number += 1
        return self.folder / f"cars.{self._number}"


class Looks:
    """Followers of Kestrel, and how often they have looked at the names."""

    def __init__(self, monkeypatch):
        self._count = 0
        self._changed = threading.Condition()
        real = Generations.look

        def look(generations):
            real(generations)
            with self._changed:
                self._count += 1
                self._changed.notify_all()

        monkeypatch.setattr(Generations, "look", look)

    def wait(self):
        """Wait for a look that begins from now on."""
        with self._changed:
            wanted = self._count + 2
            assert self._changed.wait_for(lambda: self._count >= wanted, timeout=60)


def test_kestrel_is_followed_through_many_rotations_and_rewrites(tmp_path, clock, monkeypatch):
    """Nothing is missed and nothing comes twice, whatever step of a rotation or a rewrite the reader falls into."""
    count, looks = 2000, Looks(monkeypatch)
    program = Kestrel(tmp_path)

    def work():
        begun.wait()
        for one in range(count):
            program.add(str(one), one * 7919 % 1000)  # by a clock that goes back
            if one % 3 == 0:
                program.remove()
            if one % 100 == 99:
                (program.rotate if one % 200 == 99 else program.rewrite)()
                looks.wait()

    begun = threading.Event()
    entries = formats.read(tmp_path, "kestrel", follow=True, timeout=QUIET)
    program.add("first")
    assert next(entries).payload == b"first"
    program.remove()
    begun.set()
    assert [int(entry.payload) for entry in clock.beside(work, entries)] == list(range(count))


def test_kestrel_is_followed_from_within_any_step(tmp_path):
    """There is a look between any two steps, and one of them is never the first."""
    tail = Tail(tmp_path, "cars", Rules())
    found = []
    program = Kestrel(tmp_path, step=lambda: found.extend(payloads(tail.available())))
    wanted = []
    for one in range(60):
        program.add(f"{one}", one % 7)
        wanted.append(f"{one}")
        if one % 4 == 0:
            program.remove()
        if one % 10 == 5:
            rotated = program.rotate()
        if one % 10 == 8:
            program.pack(rotated, *program.left[:-2], ("", 0), ("", 0))
        if one % 20 == 19:
            program.rewrite()
    assert found == wanted
    tail.close()


@pytest.mark.parametrize("steps", range(8))
def test_kestrel_is_followed_from_the_middle_of_a_rewrite(tmp_path, steps):
    """Who begins then waits until it has ended, and otherwise takes the files as the program would after a stop."""
    program = Kestrel(tmp_path)
    for text in "abc":
        program.add(text)
    program.rotate()
    program.add("d")
    tail = Tail(tmp_path, "cars", Rules())
    others = Kestrel.__new__(Kestrel)
    others.__dict__.update(program.__dict__)
    looked = threading.Event()
    gone_on = []

    def step():
        gone_on.append(1)
        if len(gone_on) == steps:
            looked.wait(0.05)

    others._step = step
    thread = threading.Thread(target=others.rewrite)
    thread.start()
    while len(gone_on) < steps:
        time.sleep(0)
    found = payloads(tail.available())
    thread.join()
    others.add("e")
    assert found + payloads(tail.available()) == ["a", "b", "c", "d", "e"]
    tail.close()


def test_kestrel_holds_what_is_rotated_while_somebody_works_on_an_entry(tmp_path):
    """The program packs two journals away before they were read: they were held at the looks in between."""
    program = Kestrel(tmp_path)
    program.add("a")
    program.add("b")
    entries = formats.read(tmp_path, "kestrel", follow=True, timeout=0)
    assert payloads([next(entries)]) == ["a"]
    program.rotate()
    program.add("c")
    time.sleep(0.003)  # a look has its time
    assert payloads([next(entries)]) == ["b"]
    rotated = program.rotate()
    for text in "def":
        program.add(text)
    time.sleep(0.003)
    assert payloads([next(entries)]) == ["c"]
    program.pack(rotated, ("c", 0), ("", 0))
    for _ in range(5):
        program.remove()
    program.rewrite()
    program.add("g")
    assert payloads(entries) == ["d", "e", "f", "g"]


def test_kestrel_says_that_a_journal_came_and_went_between_two_looks(tmp_path):
    """What was in it is unknown: also when nothing but what was known is left."""
    program = Kestrel(tmp_path)
    program.add("a")
    tail = Tail(tmp_path, "cars", Rules())
    assert payloads(tail.available()) == ["a"]
    program.rotate()
    program.add("lost")
    program.left.pop()
    program.rewrite()
    with pytest.raises(Corrupt, match="between two looks"):
        list(tail.available())
    tail.close()


def test_kestrel_says_that_its_program_has_recovered_something_else(tmp_path):
    """A stop in the middle of a rewrite leaves the items twice: the program has them twice, and rewrites them so."""
    program = Kestrel(tmp_path)
    program.add("a")
    program.add("b")
    tail = Tail(tmp_path, "cars", Rules())
    assert payloads(tail.available()) == ["a", "b"]
    program.rewrite(until=3)
    program.add("c")
    assert payloads(tail.available()) == ["c"]
    program.left = [("a", 0), ("b", 0), ("a", 0), ("b", 0), ("c", 0)]
    program.rewrite()
    with pytest.raises(Corrupt, match="with other items"):
        list(tail.available())
    tail.close()


@pytest.mark.parametrize("left", [[("x", 0)], [("b", 0)], [], [("b", 1), ("c", 0)]])
def test_kestrel_does_not_take_a_rewrite_for_one_of_the_items_it_knows(tmp_path, left):
    """Other items, fewer of them, another time: nothing shows which of them are new."""
    program = Kestrel(tmp_path)
    for text in "abc":
        program.add(text)
    program.remove()
    tail = Tail(tmp_path, "cars", Rules())
    assert payloads(tail.available()) == ["b", "c"]
    program.left = left
    program.rewrite()
    with pytest.raises(Corrupt, match="with other items"):
        list(tail.available())
    tail.close()


def test_kestrel_delivers_again_what_is_put_again_in_the_same_millisecond(tmp_path):
    """The same text at the same time behind a rewrite, and one whose time goes back: both were added."""
    program = Kestrel(tmp_path)
    program.add("a", 5)
    tail = Tail(tmp_path, "cars", Rules())
    assert payloads(tail.available()) == ["a"]
    program.rewrite()
    program.add("a", 5)
    program.add("earlier", 1)
    assert payloads(tail.available()) == ["a", "earlier"]
    tail.close()


def test_kestrel_begins_anew_when_its_queue_is_deleted(tmp_path):
    program = Kestrel(tmp_path)
    program.add("a")
    tail = Tail(tmp_path, "cars", Rules())
    assert payloads(tail.available()) == ["a"]
    program.current.unlink()
    program.left.clear()
    program.current.touch()
    program.add("b")
    assert payloads(tail.available()) == ["b"]
    program.rewrite()
    program.add("c")
    assert payloads(tail.available()) == ["c"]
    tail.close()


def test_kestrel_says_that_another_hand_has_replaced_its_file(tmp_path):
    program = Kestrel(tmp_path)
    program.add("a")
    tail = Tail(tmp_path, "cars", Rules())
    assert payloads(tail.available()) == ["a"]
    (tmp_path / "mine").write_bytes(add("x"))
    (tmp_path / "mine").rename(program.current)
    with pytest.raises(Corrupt, match="another hand"):
        list(tail.available())
    tail.close()


def test_kestrel_says_that_a_journal_was_left_in_the_middle_of_a_record(tmp_path):
    program = Kestrel(tmp_path)
    program.add("a")
    tail = Tail(tmp_path, "cars", Rules())
    assert payloads(tail.available()) == ["a"]
    append(program.current, add("b")[:9])
    program.rotate()
    with pytest.raises(Corrupt, match="ends inside a record"):
        list(tail.available())
    tail.close()


@pytest.mark.parametrize("deaf", ["no inotify", "overflow"])
def test_kestrel_without_word_of_the_names_goes_on_as_long_as_that_is_sure(tmp_path, monkeypatch, deaf):
    """A rotation shows in the names that are there; a rewrite does not."""
    program = Kestrel(tmp_path)
    program.add("a")
    if deaf == "no inotify":
        monkeypatch.setattr(_inotify.ctypes, "CDLL", lambda *_args, **_kwargs: object())
    tail = Tail(tmp_path, "cars", Rules())
    assert payloads(tail.available()) == ["a"]
    if deaf == "overflow":
        for _ in range(int(Path("/proc/sys/fs/inotify/max_queued_events").read_text()) // 2 + 1):
            (tmp_path / "other").touch()
            (tmp_path / "other").unlink()
    program.rotate()
    program.add("b")
    program.rotate()
    program.add("c")
    assert payloads(tail.available()) == ["b", "c"]
    program.rewrite()
    with pytest.raises(Corrupt, match="was replaced, and"):
        list(tail.available())
    tail.close()


def test_kestrel_notices_a_file_system_that_does_not_tell(tmp_path, monkeypatch):
    """As one that another machine writes to."""
    program = Kestrel(tmp_path)
    program.add("a")
    tail = Tail(tmp_path, "cars", Rules())
    assert payloads(tail.available()) == ["a"]
    monkeypatch.setattr(_inotify.Names, "new", lambda _self: [])
    program.rotate()
    program.add("b")
    assert payloads([*tail.available(), *tail.available()]) == ["b"]
    tail.close()


def test_kestrel_gives_back_every_file_it_has_held(tmp_path):
    program = Kestrel(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    tail = Tail(tmp_path, "cars", Rules())
    for one in range(12):
        program.add(str(one))
        assert payloads(tail.available()) == [str(one)]
        program.rotate()
    assert len(os.listdir("/proc/self/fd")) - before <= 4
    tail.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_kestrel_knows_the_newest_items_of_a_long_queue_again(tmp_path, monkeypatch):
    """Of the older ones it counts how many there are."""
    monkeypatch.setattr(Marks, "most", 4)
    program = Kestrel(tmp_path)
    tail = Tail(tmp_path, "cars", Rules())
    for one in range(40):
        program.add(str(one))
    assert len(list(tail.available())) == 40
    program.rewrite()
    program.add("new")
    assert payloads(tail.available()) == ["new"]
    program.left[-1] = "other", 0
    program.rewrite()
    with pytest.raises(Corrupt, match="with other items"):
        list(tail.available())
    tail.close()


def test_kestrel_says_that_its_program_has_items_again_that_were_taken(tmp_path):
    """As when it starts from a pack: here none are left, and there is one."""
    program = Kestrel(tmp_path)
    program.add("a", 7)
    tail = Tail(tmp_path, "cars", Rules())
    assert payloads(tail.available()) == ["a"]
    rotated = program.rotate()
    list(tail.available())
    program.pack(rotated, ("a", 7))
    program.remove()
    list(tail.available())
    program.left = [("a", 7)]
    program.rewrite()
    with pytest.raises(Corrupt, match="with other items"):
        list(tail.available())
    tail.close()

"""
Following and reading beside a writer that makes thousands of segments, through listings that are not atomic.

What POSIX says of a listing: a file that was there before it began is in it; of those that come meanwhile, some are
and some are not, in any order. `Busy` lets a writer work in the middle of each listing and shows the newest file only.
"""

import os
import shutil
from types import SimpleNamespace

import pytest
from format_fixtures import place

import shmq
from shmq import formats
from shmq.errors import Corrupt
from shmq.formats import Entry, _files, libkestrel, sej

COUNT = 120
STEP = 7
"""So many files appear in the middle of each listing."""
HEAD = libkestrel.WRITER_MAGIC


class Busy:
    """A writer that makes its next files whenever somebody lists a folder, and what such a listing shows of them."""

    def __init__(self, files):
        self._files = iter(files)
        self.listings = 0

    def scandir(self, path):
        """What is there before, and of what comes meanwhile the newest."""
        self.listings += 1
        with os.scandir(path) as found:
            before = {entry.name for entry in found}
        for _ in range(STEP):
            make = next(self._files, None)
            if make is not None:
                make()
        with os.scandir(path) as found:
            names = {entry.name: entry for entry in found}
        new = sorted(set(names) - before, key=lambda name: int(name.split(".")[name.startswith("jobs.")], 16))
        return _Listing([names[name] for name in [*before, *new[-1:]]])


class _Listing(list):
    def __enter__(self):
        return iter(self)

    def __exit__(self, *_):
        pass


@pytest.fixture
def busy(monkeypatch):
    """Have the listings of the formats go by such a writer."""

    def start(files):
        writer = Busy(files)
        monkeypatch.setattr(_files, "os", SimpleNamespace(**{**vars(os), "scandir": writer.scandir}))
        return writer

    return start


def sej_files(folder, count=COUNT, first=0):
    """Each message in a segment of its own; the segment is whole before the next one is made."""
    for offset in range(first, count):
        data = sej.message(offset, Entry(b"m%d" % offset, None, offset))
        yield lambda offset=offset, data=data: place(folder, {f"jnl/{offset:016x}.jnl": data})


def libkestrel_files(folder, count=COUNT, first=1):
    for index in range(first, count + 1):
        data = HEAD + libkestrel.PUT_FIELDS.pack(libkestrel.PUT, 1, 0, index, 1000) + b"x" + bytes(40)
        yield lambda index=index, data=data: place(folder, {f"jobs.{10_000 + index:05d}": data})


def some_first(files):
    for _ in range(3):
        next(files)()
    return files


def indexes(entries):
    return [entry.index for entry in entries]


@pytest.mark.parametrize("follow", [True, False])
def test_no_sej_segment_is_passed_over_by_a_listing_that_lacks_it(tmp_path, busy, follow):
    writer = busy(some_first(sej_files(tmp_path)))
    options = {"follow": True, "timeout": 0.05} if follow else {"strict": True}
    assert indexes(sej.read(tmp_path, **options)) == list(range(COUNT))
    assert writer.listings > COUNT / STEP


@pytest.mark.parametrize("follow", [True, False])
def test_no_libkestrel_segment_is_passed_over_by_a_listing_that_lacks_it(tmp_path, busy, follow):
    writer = busy(some_first(libkestrel_files(tmp_path)))
    options = {"follow": True, "timeout": 0.05} if follow else {"strict": True}
    assert indexes(libkestrel.read(tmp_path, "jobs", **options)) == list(range(1, COUNT + 1))
    assert writer.listings > COUNT / STEP


@pytest.mark.parametrize("kind", ["sej", "libkestrel"])
def test_an_import_beside_a_busy_writer_brings_every_message_once(tmp_path, busy, kind):
    source = tmp_path / "source"
    busy(some_first((sej_files if kind == "sej" else libkestrel_files)(source)))
    with shmq.open(tmp_path / "q") as queue:
        for _ in range(COUNT):
            if not formats.import_queue(source, queue, kind, resume=True, part=50, lossy=True).messages:
                break
        with queue.reader() as reader:
            found = [message.headers["source"]["index"] for message in reader]
    assert found == list(range(kind == "libkestrel", COUNT + (kind == "libkestrel")))


@pytest.mark.parametrize(
    ("kind", "files", "lost", "reason"),
    [
        ("sej", sej_files, "jnl/000000000000003c.jnl", "begins at offset 61, but 60 is next"),
        ("libkestrel", libkestrel_files, "jobs.10060", "begins with id 61, but 60 is next"),
    ],
)
def test_what_a_follower_leaves_out_is_heard(tmp_path, kind, files, lost, reason):
    """Raised, or told to whoever wants to go on; by reading at rest it is found in the state, as before."""
    for make in files(tmp_path):
        make()
    (tmp_path / lost).unlink()
    entries = formats.read(tmp_path, kind, follow=True, timeout=0.05)
    seen = []
    with pytest.raises(Corrupt, match=reason):
        seen.extend(entry.index for entry in entries)
    told = []
    everything = indexes(formats.read(tmp_path, kind, follow=True, timeout=0.05, tell=told.append))
    assert everything == [index for index in range(kind == "libkestrel", COUNT + (kind == "libkestrel")) if index != 60]
    assert [problem.reason[: len(reason)] for problem in told] == [reason]
    assert indexes(formats.read(tmp_path, kind)) == everything
    behind = formats.read(tmp_path, kind, start=61, follow=True, timeout=0.05)
    assert indexes(behind) == everything[-len(everything) + 60 - (kind == "libkestrel") :]


@pytest.mark.parametrize("kind", ["sej", "libkestrel"])
def test_a_broken_segment_in_the_middle_is_heard(tmp_path, kind):
    for make in (sej_files if kind == "sej" else libkestrel_files)(tmp_path, 9):
        make()
    name = "jnl/0000000000000004.jnl" if kind == "sej" else "jobs.10004"
    with (tmp_path / name).open("r+b") as file:
        file.seek(4 if kind == "libkestrel" else 0)
        file.write(b"\xf0" + bytes(3))
    with pytest.raises(Corrupt, match=name):
        list(formats.read(tmp_path, kind, follow=True, timeout=0.05))
    told = []
    assert len(list(formats.read(tmp_path, kind, follow=True, timeout=0.05, tell=told.append))) == 8
    assert {problem.file for problem in told} >= {name}


def test_a_consumer_whose_messages_are_gone_hears_of_it(tmp_path):
    for make in sej_files(tmp_path, 9, first=5):
        make()
    place(tmp_path, {"ofs/late.ofs": bytes(7) + b"\x02"})
    with pytest.raises(Corrupt, match="begins at offset 5, and 2 was wanted"):
        list(sej.read(tmp_path, consumer="late", follow=True, timeout=0.05))
    assert indexes(sej.read(tmp_path, consumer="late")) == indexes(sej.read(tmp_path)) == [5, 6, 7, 8]


def test_a_journal_that_was_put_in_the_place_of_the_followed_one_is_heard(tmp_path):
    """As a repair in place does; the messages that come then are numbered anew, and in another file."""
    for make in sej_files(tmp_path, 4):
        make()
    entries = sej.read(tmp_path, follow=True, timeout=5)
    assert [next(entries).index for _ in range(4)] == [0, 1, 2, 3]
    shutil.move(tmp_path / "jnl", tmp_path / "was")
    place(tmp_path, {"jnl/0000000000000000.jnl": sej.message(0, Entry(b"new", None, 0))})
    with pytest.raises(Corrupt, match="has gone, or another one is in its place"):
        next(entries)


def test_a_followed_segment_that_is_deleted_behind_a_later_one_is_no_loss(tmp_path):
    first, second, third = sej_files(tmp_path, 3)
    first()
    second()
    entries = sej.read(tmp_path, follow=True, timeout=5)
    assert [next(entries).index, next(entries).index] == [0, 1]
    third()
    (tmp_path / "jnl/0000000000000001.jnl").unlink()
    assert next(entries).index == 2


def test_gaps_without_end_are_read_in_a_few_listings(tmp_path, busy):
    """Every other segment is missing: that is seen by two listings, and not by one for each gap."""
    for make in list(sej_files(tmp_path))[::2]:
        make()
    writer = busy(iter(()))
    assert indexes(sej.read(tmp_path)) == list(range(0, COUNT, 2))
    assert writer.listings < 9


def test_a_segment_that_gets_its_first_put_while_we_read_is_not_passed_over(tmp_path):
    """At rest, too: the real program makes the file, and puts into it, and rolls, between two of our looks."""
    segment = next(libkestrel_files(tmp_path, 4))
    segment()
    place(tmp_path, {"jobs.10002": HEAD + bytes(40)})
    entries = libkestrel.read(tmp_path)
    assert next(entries).index == 1
    for make in libkestrel_files(tmp_path, 4):
        make()
    assert indexes(entries) == [2, 3, 4]

"""Appending to queues that are there and committing for their readers, under the locks of their own programs."""

import contextlib
import errno
import fcntl
import mmap
import os

import pytest
from format_fixtures import place, tree
from support import Child, hold_until_killed

import shmq
from shmq import formats
from shmq.errors import BadFormat, Busy, Closed, Corrupt, Forked, Mismatch, NotFound, TooLarge, Unsafe
from shmq.formats import Entry, libkestrel, sej

SOME = [Entry(b"a", None, 5, None, b"k", 7), Entry(b"bb", None, 6)]
MORE = [Entry(b"c" * 40, None, 7), Entry(b"d")]


def holding(path):
    """A process that holds a lock as the real sej takes it."""

    def hold(say):
        fd = os.open(path, os.O_RDWR | os.O_CREAT)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        hold_until_killed(say)

    child = Child(hold)
    child.hear()
    return child


def journal(folder):
    return {name: data for name, data in tree(folder).items() if not name.endswith(".lck")}


# ------------------------------------------------------------------------------------------ sej


@pytest.mark.parametrize("size", [1, 60, 1 << 30])
def test_what_is_appended_is_what_one_writer_would_have_left(tmp_path, size):
    sej.write(tmp_path / "q", SOME, segment_bytes=size)
    assert formats.append(tmp_path / "q", MORE, segment_bytes=size) == 2
    sej.write(tmp_path / "whole", SOME + MORE, segment_bytes=size)
    assert journal(tmp_path / "q") == journal(tmp_path / "whole")
    with sej.Appender(tmp_path / "q", segment_bytes=size) as appender:
        assert appender.next == 4
        assert appender.append(*SOME) == range(4, 6)
        assert [entry.index for entry in sej.read(tmp_path / "q")] == [0, 1, 2, 3, 4, 5]  # at once, for all


def test_an_empty_journal_and_one_that_begins_late_are_appended_to(tmp_path):
    place(tmp_path, {"none/jnl/x": b"", "late/jnl/0000000000000007.jnl": b""})
    assert sej.append(tmp_path / "none", SOME) == sej.append(tmp_path / "late", SOME) == 2
    assert [entry.index for entry in sej.read(tmp_path / "late")] == [7, 8]
    assert sej.append(tmp_path, MORE, "late") == 2
    assert sej.state(tmp_path / "late").last == 10


def test_only_one_writer_is_there(tmp_path):
    sej.write(tmp_path / "q", SOME)
    before = tree(tmp_path)
    with holding(tmp_path / "q/jnl.lck") as child, pytest.raises(Busy, match=f"process {child.pid} holds"):
        sej.append(tmp_path / "q", MORE)
    assert journal(tmp_path / "q") == {name.removeprefix("q/"): data for name, data in before.items()}
    with sej.Appender(tmp_path / "q") as appender:
        with pytest.raises(Busy, match=f"process {os.getpid()} holds"):
            sej.Appender(tmp_path / "q")
        assert appender.append(*MORE) == range(2, 4)
    with pytest.raises(Closed):
        appender.append(*MORE)
    sej.Appender(tmp_path / "q").close()


@pytest.mark.parametrize(
    "torn", [b"t", sej.message(2, SOME[0])[:-1], sej.message(2, SOME[0])[:19]], ids=["byte", "last", "head"]
)
def test_a_torn_end_is_refused_and_cut_as_the_real_writer_does(tmp_path, torn):
    sej.write(tmp_path / "q", SOME)
    segment = tmp_path / "q/jnl/0000000000000000.jnl"
    whole = segment.read_bytes()
    segment.write_bytes(whole + torn)
    with pytest.raises(Corrupt, match=f"behind {len(whole)} bytes it ends .*{len(torn)} bytes.*cut=True"):
        sej.append(tmp_path / "q", MORE)
    assert segment.read_bytes() == whole + torn
    assert sej.append(tmp_path / "q", MORE, cut=True) == 2
    assert sej.verify(tmp_path / "q") == []
    assert [entry.index for entry in sej.read(tmp_path / "q")] == [0, 1, 2, 3]


def test_nothing_is_cut_off_behind_a_break(tmp_path):
    """The real writer would cut off the whole message behind it, too."""
    sej.write(tmp_path / "q", SOME)
    segment = tmp_path / "q/jnl/0000000000000000.jnl"
    segment.write_bytes(segment.read_bytes() + bytes(30) + sej.message(2, SOME[0]) + b"torn")
    with pytest.raises(Corrupt, match="repair it"):
        sej.append(tmp_path / "q", MORE, cut=True)


def test_a_full_disk_leaves_whole_messages_only(tmp_path, monkeypatch):
    """Those may have been read already."""
    sej.write(tmp_path / "q", SOME)
    write, calls = os.write, []

    def full(fd, data):
        calls.append(len(data))
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, data[: len(sej.message(0, MORE[0])) + 3])

    with sej.Appender(tmp_path / "q") as appender:
        monkeypatch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space left"):
            appender.append(*MORE)
        monkeypatch.undo()
        assert appender.next == 3
        assert appender.append(MORE[1]) == range(3, 4)
    assert sej.verify(tmp_path / "q") == []
    assert [entry.payload for entry in sej.read(tmp_path / "q")] == [b"a", b"bb", b"c" * 40, b"d"]


def test_a_forked_child_has_no_part_in_it_and_does_not_keep_the_lock(tmp_path):
    sej.write(tmp_path / "q", SOME)
    appender = sej.Appender(tmp_path / "q")

    def use(say):
        with contextlib.suppress(Forked):
            appender.append(*MORE)
        appender.close()
        hold_until_killed(say)

    with Child(use) as child:
        child.hear()
        with pytest.raises(Busy):
            sej.Appender(tmp_path / "q")
        assert appender.append(*MORE) == range(2, 4)
        appender.close()
        sej.append(tmp_path / "q", MORE)  # though the child lives
    assert sej.state(tmp_path / "q").messages == 6


def test_a_killed_appender_leaves_whole_messages_and_a_free_lock(tmp_path):
    sej.write(tmp_path / "q", [])

    def work(say):
        with sej.Appender(tmp_path / "q", segment_bytes=500) as appender:
            for number in range(1_000_000):
                appender.append(Entry(b"%d" % number, None, number))
                if number == 200:
                    say("on the way")

    with Child(work) as child:
        child.hear()
        child.kill()
    count = sej.append(tmp_path / "q", [Entry(b"last")], cut=True)
    found = [entry.payload for entry in sej.read(tmp_path / "q", strict=True)]
    assert count == 1
    assert found[:-1] == [b"%d" % number for number in range(len(found) - 1)]
    assert len(found) > 200


def test_what_sej_cannot_hold_is_not_appended(tmp_path):
    sej.write(tmp_path / "q", SOME)
    before = journal(tmp_path / "q")
    for entry, error in (
        (Entry(b"x", expires_ns=1), Unsafe),
        (Entry(b"x", attempts=1), Unsafe),
        (Entry(b"x", key=b"k" * 128), TooLarge),
    ):
        with pytest.raises(error):
            sej.append(tmp_path / "q", [entry])
    with pytest.raises(NotFound):
        sej.append(tmp_path, [], "other")
    sej.write(tmp_path / "r", SOME)
    with pytest.raises(BadFormat, match="name one"):
        sej.append(tmp_path, SOME)
    assert journal(tmp_path / "q") == before


def test_an_offset_is_committed_under_the_readers_lock(tmp_path):
    sej.write(tmp_path / "q", SOME)
    formats.commit(tmp_path / "q", "r", 1)
    assert sej.consumers(tmp_path / "q") == {"r": (1, ())}
    with holding(tmp_path / "q/ofs/r.lck") as child, pytest.raises(Busy, match=f"process {child.pid}"):
        formats.commit(tmp_path / "q", "r", 2)
    formats.commit(tmp_path / "q", "r", 0)
    assert tree(tmp_path / "q/ofs") == {"r.lck": b"", "r.ofs": bytes(8)}
    formats.commit(tmp_path, "q/s", 2)
    assert sej.consumers(tmp_path) == {"q/r": (0, ()), "q/s": (2, ())}
    for consumer, head, done, error in (
        ("r", 1, (3,), Unsafe),
        ("r", -1, (), TooLarge),
        ("", 1, (), BadFormat),
        ("x/r", 1, (), NotFound),
    ):
        with pytest.raises(error):
            formats.commit(tmp_path / "q", consumer, head, done)


# ------------------------------------------------------------------------------------------ libkestrel


def test_what_is_appended_to_libkestrel_goes_on_behind_the_newest_id(tmp_path):
    libkestrel.write(tmp_path, [Entry(b"a", 5), Entry(b"b", 6)], "jobs", {"r": (5, ())})
    before = tree(tmp_path)
    told = []
    assert formats.append(tmp_path, [Entry(b"c", 1), Entry(b"d")], "jobs", tell=told.append) == 2
    assert [(entry.index, entry.payload) for entry in libkestrel.read(tmp_path)] == [
        (5, b"a"),
        (6, b"b"),
        (7, b"c"),
        (8, b"d"),
    ]
    assert before.items() <= tree(tmp_path).items()
    assert libkestrel.verify(tmp_path) == []
    assert ["nobody can know" in sentence for sentence in told] == [True]
    reading = libkestrel.read(tmp_path)  # who only reads is in nobody's way
    assert next(reading).index == 5
    assert formats.append(tmp_path, [], "jobs") == 0
    assert len(list(tmp_path.iterdir())) == 3


def test_a_queue_without_a_checkpoint_gets_one_before_its_oldest_item(tmp_path):
    libkestrel.write(tmp_path, [Entry(b"a", 5)], "jobs")
    (tmp_path / "jobs.read.").unlink()
    libkestrel.append(tmp_path, [Entry(b"b")])
    assert libkestrel.state(tmp_path).consumers == {"": (4, ())}


def test_a_libkestrel_queue_that_is_in_use_is_left_alone(tmp_path):
    libkestrel.write(tmp_path, [Entry(b"a")], "jobs")
    before = tree(tmp_path)
    (segment,) = tmp_path.glob("jobs.[0-9]*")

    def use(say):
        with segment.open("r+b") as file:
            mapped = mmap.mmap(file.fileno(), 0)
        hold_until_killed(say)
        mapped.close()

    with Child(use) as child:
        child.hear()
        for work in (lambda: libkestrel.append(tmp_path, SOME), lambda: libkestrel.commit(tmp_path, "", 1)):
            with pytest.raises(Busy, match=f"process {child.pid} has .* open"):
                work()
    with holding_folder(tmp_path), pytest.raises(Busy, match="another one of ours"):
        libkestrel.append(tmp_path, [Entry(b"b")])
    assert tree(tmp_path) == before


@contextlib.contextmanager
def holding_folder(folder):
    fd = os.open(folder, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    yield
    os.close(fd)


def test_ids_that_lead_back_are_not_gone_on_behind(tmp_path):
    record = libkestrel.PUT_FIELDS.pack(libkestrel.PUT, 0, 0, 9, 1) + libkestrel.PUT_FIELDS.pack(
        libkestrel.PUT, 0, 0, 3, 1
    )
    place(tmp_path, {"jobs.1": libkestrel.WRITER_MAGIC + record})
    with pytest.raises(Corrupt, match="repair numbers them anew"):
        libkestrel.append(tmp_path, [Entry(b"x")])


def test_a_libkestrel_reader_is_committed(tmp_path):
    libkestrel.write(tmp_path, [Entry(b"%d" % n) for n in range(6)], "jobs", {"r": (0, ())})
    formats.commit(tmp_path, "r", 2, (5, 4))
    assert libkestrel.state(tmp_path).consumers == {"r": (2, (4, 5))}
    formats.commit(tmp_path, "late", 6)
    assert sorted(name for name in tree(tmp_path) if ".read." in name) == ["jobs.read.late", "jobs.read.r"]
    for consumer, head, done, error in (
        ("r", 7, (), Mismatch),
        ("r", -1, (), Mismatch),
        ("r", 3, (3,), Mismatch),
        ("r", 3, (7,), Mismatch),
        ("", 3, (), Unsafe),
        ("a/b", 3, (), BadFormat),
    ):
        with pytest.raises(error):
            formats.commit(tmp_path, consumer, head, done)


def test_nothing_is_appended_where_nothing_is(tmp_path):
    with pytest.raises(NotFound):
        formats.append(tmp_path / "none", SOME)
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------------------------------ sizes and directories


def exported(tmp_path, run=None, consumers=("default",), **options):
    with shmq.open(tmp_path / "q") as queue:
        for number in range(20):
            queue.put(b"%d" % number, key=b"k%d" % (number % 5), time_ns=number)
        for at, name in enumerate(consumers):
            queue.consumer(name, start=4 + at).close()
    return tmp_path / "q"


def test_the_nameless_reader_is_written_only_where_it_is_alone(tmp_path):
    """Beside others the real program deletes it, and whoever was `default` begins anew."""
    source = exported(tmp_path, consumers=("default", "other"))
    formats.export_queue(source, tmp_path / "two", "libkestrel", "jobs", lossy=True)
    assert libkestrel.consumers(tmp_path / "two") == {"default": (4, ()), "other": (5, ())}
    with shmq.open(source) as queue:
        queue.drop_consumer("other")
    formats.export_queue(source, tmp_path / "one", "libkestrel", "jobs", lossy=True)
    assert libkestrel.consumers(tmp_path / "one") == {"": (4, ())}


def test_sizes_of_the_program_are_given_on_the_command_line(tmp_path, capsys):
    from shmq.cli import main

    source = exported(tmp_path)

    def run(*words):
        status = main([str(word) for word in words])
        return status, capsys.readouterr().err

    assert run("export", source, "--to", "sej", tmp_path / "sej", "--segment-bytes", 60)[0] == 0
    assert len(list((tmp_path / "sej/jnl").iterdir())) == 9
    assert (
        run("convert", tmp_path / "sej", tmp_path / "lk", "--to", "libkestrel", "--journal-bytes", 80, "--lossy")[0]
        == 0
    )
    assert max(path.stat().st_size for path in (tmp_path / "lk").iterdir()) <= 80
    assert run("repair", tmp_path / "lk", "--to", tmp_path / "clean", "--journal-bytes", 60)[0] == 0
    assert max(path.stat().st_size for path in (tmp_path / "clean").iterdir()) <= 60
    status, err = run("export", source, "--to", "sej", tmp_path / "no", "--journal-bytes", 60)
    assert (status, "--journal-bytes is for libkestrel, and this is sej" in err) == (2, True)


def test_a_queue_is_exported_into_shards_and_a_hub_and_each_reader_stands_in_all(tmp_path, capsys):
    from shmq.cli import main

    source = exported(tmp_path, consumers=("a", "b", "end"))
    words = ["export", source, "--to", "sej", tmp_path / "root", "--shard-bit", 1, "--prefix", "o", "--client", "c"]
    assert main([str(word) for word in words]) == 0, capsys.readouterr().err
    names = ["c.o.1.000", "c.o.1.001"]
    assert sej.directories(tmp_path / "root") == names
    seen = [[int(entry.payload) for entry in sej.read(tmp_path / "root" / name)] for name in names]
    assert sorted(seen[0] + seen[1]) == list(range(20))
    for name, wanted in (("a", 4), ("b", 5), ("end", 6)):
        behind = [int(entry.payload) for each in names for entry in sej.read(tmp_path / "root" / each, consumer=name)]
        assert sorted(behind) == list(range(wanted, 20))


def test_directories_stay_what_they_are_by_dir(tmp_path):
    """By convert with their readers in them; by import and export, with readers of all of them."""
    for number, name in enumerate(("x.1.000", "x.1.001")):
        entries = [Entry(b"%d" % n, None, n) for n in range(number, 10, 2)]
        sej.write(tmp_path / "root", entries, name, {"r": (number + 1, ()), f"only{number}": (2, ())})
    formats.convert_queue(tmp_path / "root", tmp_path / "again", "sej", by_dir=True)
    assert journal(tmp_path / "again") == journal(tmp_path / "root")
    formats.import_queue(tmp_path / "root", tmp_path / "q", lossy=True)
    formats.export_queue(tmp_path / "q", tmp_path / "back", "sej", by_dir=True)
    before, after = (
        {name: data for name, data in tree(tmp_path / folder).items() if name.endswith(".jnl")}
        for folder in ("root", "back")
    )
    assert before == after
    assert sorted(sej.consumers(tmp_path / "back"))[:2] == ["x.1.000/x.1.000.only0", "x.1.000/x.1.000.r"]


# ------------------------------------------------------------------------------------------ verify


def test_records_of_other_commands_are_named(tmp_path):
    put = libkestrel.PUT_FIELDS.pack(libkestrel.PUT, 1, 0, 1, 1000) + b"x"
    segment = (
        libkestrel.WRITER_MAGIC + put + b"\x02" + bytes(8) + b"\xf1" + b"\x02\0\0\0zz" + put[:13] + b"\x02" + put[14:]
    )
    checkpoint = libkestrel.checkpoint(0) + b"\x31" + bytes(4) + put
    place(tmp_path, {"jobs.1": segment + b"\x10", "jobs.read.r": checkpoint})
    found = {(problem.file, problem.position): problem.reason for problem in libkestrel.verify(tmp_path)}
    assert found == {
        ("jobs.1", 30): "a record of READ_HEAD, which has no place here, is skipped",
        ("jobs.1", 39): "a record of the unknown command 15, which has no place here, is skipped",
        ("jobs.1", 72): "a record of the unknown command 1, which has no place here, is skipped",
        ("jobs.read.r", 18): "a record of the unknown command 3, which has no place here, is skipped",
        ("jobs.read.r", 23): "a record of PUT, which has no place here, is skipped",
    }
    done = libkestrel.repair(tmp_path, to=tmp_path / "clean")
    assert libkestrel.verify(done.path) == []


@pytest.mark.parametrize("where", ["fsync", "flock", "fstat", "write"])
def test_who_is_interrupted_gives_the_lock_back(tmp_path, monkeypatch, where):
    """At the end of a sync, in the middle of taking it: a living process would keep all others out for ever."""
    sej.write(tmp_path / "q", SOME)
    module = fcntl if where == "flock" else os
    real = getattr(module, where)

    def interrupted(*arguments):
        real(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, where, interrupted)
    with pytest.raises(KeyboardInterrupt):
        sej.append(tmp_path / "q", MORE)
    monkeypatch.undo()
    assert sej.append(tmp_path / "q", MORE) == 2
    assert sej.verify(tmp_path / "q") == []

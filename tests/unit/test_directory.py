"""A queue's directory and its chain: how large the next chunk is, what is written down, and what is refused."""

from __future__ import annotations

import errno
import os
import re
import stat
import threading
import time
import types

import pytest
from support import Child, chunk_files, hold_until_killed, journal_slots

import shmq
from shmq import _native, errors
from shmq.storage import admin, boots, directory, files, making, new_chunks, paths, shm, spares, staging, sync
from shmq.storage import chain as chains
from shmq.storage.chain import break_in

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


def whole(text):
    return f"^{re.escape(text)}$"


@pytest.fixture
def home(make):
    """The directory of an open queue of large chunks."""
    return make(chunk_bytes=GIB)._session.home


# ---------------------------------------------------------------- the size of the next chunk
@pytest.mark.parametrize(("given", "size"), [
    ((0, 0), 64 * KIB), ((1, 0), 256 * KIB), ((2, 0), MIB), ((3, 0), MIB), ((3, 1), 4 * MIB), ((40, 4), 4 * MIB),
    ((4, 5), 16 * MIB), ((2, 7), MIB), ((40, 8), 16 * MIB), ((40, 9), 64 * MIB), ((40, 17), GIB), ((90, 80), GIB),
    ((9, 5, 0, 0), 16 * KIB), ((9, 5, 0, 1), 64 * KIB), ((9, 5, 0, 16 * KIB), 64 * KIB), ((9, 5, 0, 20_000), 77_824),
    ((9, 5, 0, GIB), 16 * MIB), ((9, 0, 0, GIB), MIB),
    ((0, 0, 1000), 64 * KIB), ((0, 0, 100_000), 1_601_536), ((0, 0, MIB), 8 * MIB), ((0, 0, 3 * MIB), 8 * MIB),
    ((0, 0, 3 * MIB // 2), 8 * MIB), ((9, 5, 100_000, 0), 1_601_536), ((9, 5, GIB), GIB),
    ((0, 0, 16 * MIB), 16 * MIB + 512 * KIB + 16 * KIB),
])  # fmt: skip
def test_chunks_grow_with_their_number_and_with_what_is_in_use_and_have_room_for_some_messages(home, given, size):
    assert new_chunks.chunk_size(home, *given) == size


def test_no_chunk_is_larger_than_the_option_and_shared_memory_is_shared(home, monkeypatch):
    home.options = shmq.Options(chunk_bytes=128 * KIB)
    assert new_chunks.chunk_size(home, 9, 5) == new_chunks.chunk_size(home, 9, 5, MIB) == 128 * KIB
    home.options = shmq.Options(chunk_bytes=GIB)
    home.volatile = True
    room = types.SimpleNamespace(f_bavail=80_000, f_blocks=160_000, f_frsize=4096)
    monkeypatch.setattr(os, "fstatvfs", lambda fd: room)
    share = 80_000 * 4096 // 8
    assert new_chunks.chunk_size(home, 0, 0) == 256 * KIB  # not less, however small its number is
    assert new_chunks.chunk_size(home, 9, 17) == share & -4096
    assert new_chunks.chunk_size(home, 9, 9, 0, 16 * KIB) == 64 * KIB
    room.f_bavail = 3
    assert new_chunks.chunk_size(home, 9, 9) == 16 * KIB
    assert new_chunks.room_for_spares(home) == min(64 * MIB, 160_000 * 4096 // 8) == 64 * MIB
    room.f_blocks = 8000
    assert new_chunks.room_for_spares(home) == 8000 * 4096 // 8
    assert new_chunks.worth_keeping(home) == 256 * KIB
    home.volatile = False
    assert (new_chunks.room_for_spares(home), new_chunks.worth_keeping(home)) == (64 * MIB, 4 * MIB)


@pytest.mark.parametrize(("region", "messages", "size", "grain"), [
    (64 * KIB, 0, 0, 4096), (64 * KIB - 1, 0, 0, 1024), (16 * KIB, 0, 0, 1024), (16 * KIB - 1, 0, 0, 256),
    (4 * KIB, 0, 0, 256), (4 * KIB - 1, 0, 0, 0), (256 * MIB - 1, 0, 0, 4096), (256 * MIB, 0, 0, 0),
    (MIB, 16, MIB, 4096), (MIB, 17, MIB, 0), (MIB, 16, MIB - 1, 0),
    (16 * KIB, 64, MIB, 1024), (16 * KIB, 65, MIB, 0),
])  # fmt: skip
def test_a_chunk_for_large_messages_has_a_grain_where_few_are_small(region, messages, size, grain):
    assert new_chunks.grain_for(region, messages, size) == grain


class Made:
    """Notes what would be made, in the place of `_of_spare` and `_of_new_file`; None or DiskFull until it may."""

    def __init__(self, monkeypatch, answers):
        self.calls, self.answers = [], answers
        monkeypatch.setattr(new_chunks, "_of_spare", lambda _, *given: self.answer("spare", *given))
        monkeypatch.setattr(new_chunks, "_of_new_file", lambda _, *given: self.answer("new", *given))
        monkeypatch.setattr(spares, "drop", lambda fd: self.calls.append(("drop", fd)))

    def answer(self, *call):
        self.calls.append(call)
        answer = self.answers.pop(0)
        if answer == "full":
            raise errors.DiskFull("full")
        return answer


def test_a_used_file_serves_first_then_a_new_one_then_any_used_one_then_the_smallest_new_one(home, monkeypatch):
    room = lambda: made.calls.append(("room",))  # noqa: E731
    spacing = home.options.index_spacing
    needed, large = _native.Chunk.bytes_for(0, spacing), _native.Chunk.bytes_for(3 * MIB, spacing, 4096)
    made = Made(monkeypatch, [None, "full", None, True])
    with home.at_hand():
        assert new_chunks.make_chunk(home, 700, 20, make_room=room) is True
        assert made.calls == [
            ("spare", 700, 20, 0, 4 * MIB, GIB),
            ("new", 700, 20, 0, GIB, GIB, needed),
            ("room",),
            ("spare", 700, 20, 0, needed, _native.CHUNK_BYTES_MAX),
            ("drop", home.chunks),
            ("new", 700, 20, 0, GIB, needed, needed),
        ]
    made = Made(monkeypatch, [False])
    assert new_chunks.make_chunk(home, 700, 9, 3 * MIB, 2, 4096) is False
    assert made.calls == [("spare", 700, 9, 4096, 8 * MIB, 16 * MIB)]
    made = Made(monkeypatch, [None, True])
    assert new_chunks.make_chunk(home, 700, 20, 3 * MIB, 20, 4096) is True
    assert made.calls == [("spare", 700, 20, 4096, max(large, 4 * MIB), GIB), ("new", 700, 20, 4096, GIB, GIB, large)]
    made = Made(monkeypatch, [None, "full", False])
    assert new_chunks.make_chunk(home, 0, 0) is False
    assert made.calls[0] == ("spare", 0, 0, 0, 64 * KIB, 16 * MIB)
    assert made.calls[2] == ("spare", 0, 0, 0, needed, _native.CHUNK_BYTES_MAX)
    made = Made(monkeypatch, [None, True])
    new_chunks.make_chunk(home, 5, 3, 0, 1, 0, None, 20_000)
    assert made.calls[1] == ("new", 5, 3, 0, 77_824, 77_824, needed)


def test_where_chunks_fill_quickly_they_are_larger_and_rolls_rarer(home, monkeypatch):
    assert new_chunks.chunk_size(home, 9, 1, busy=True) == new_chunks.chunk_size(home, 4, 1, busy=True) == 4 * MIB
    assert new_chunks.chunk_size(home, 3, 1, busy=True) == 4 * MIB  # not before the queue has put some
    assert new_chunks.chunk_size(home, 9, 9, busy=True) == 64 * MIB
    home.options = shmq.Options(chunk_bytes=MIB)
    assert new_chunks.chunk_size(home, 9, 1, busy=True) == MIB
    home.options = shmq.Options(chunk_bytes=GIB)
    made = Made(monkeypatch, [None, True])
    new_chunks.make_chunk(home, 5, 9, 0, 1, busy=True)  # a smaller one would not do
    assert [call[4] for call in made.calls] == [4 * MIB, 4 * MIB]


@pytest.mark.parametrize(("age_ns", "quick"), [(1_999_999, True), (2_000_000, False), (-1, True)])
def test_a_chunk_fills_quickly_that_has_4_mib_after_2_ms(monkeypatch, age_ns, quick):
    monkeypatch.setattr(new_chunks, "QUICK", 2 * MIB)
    monkeypatch.setattr(new_chunks.time, "time_ns", lambda: 10**18 + age_ns)
    assert new_chunks.is_quick(10**18, 4 * MIB) == quick


def test_before_a_new_file_is_made_it_is_asked_whether_a_used_one_came_back(home, monkeypatch):
    asked = []

    def came_back(size):
        asked.append(size)
        return answers.pop(0)

    answers = [True]
    made = Made(monkeypatch, [None, True])
    assert new_chunks.make_chunk(home, 5, 9, 0, 1, await_used=came_back) is True
    assert [call[0] for call in made.calls] == ["spare", "spare"]
    answers = [True, False]
    for tries in ([None, None, True], [None, True]):
        made = Made(monkeypatch, tries)
        new_chunks.make_chunk(home, 5, 9, 0, 1, await_used=came_back)
        assert made.calls[-1][0] == "new"
    assert asked == [4 * MIB] * 3
    made = Made(monkeypatch, [None, True])
    new_chunks.make_chunk(home, 5, 1, 0, 1, await_used=came_back)  # a small one is made at once
    assert len(asked) == 3


@pytest.mark.parametrize(("size", "needed", "chunk_bytes", "tried"), [
    (GIB, 0, GIB, [GIB, 256 * MIB, 64 * MIB, 16 * MIB, 4 * MIB, MIB, 256 * KIB, 64 * KIB, 16 * KIB]),
    (GIB, 100 * MIB, GIB, [GIB, 256 * MIB, 100 * MIB]), (64 * KIB, 0, GIB, [64 * KIB, 16 * KIB]),
    (100 * KIB, 0, 16 * KIB, [100 * KIB, 24 * KIB, 16 * KIB]), (64 * KIB, 32 * KIB, 16 * KIB, [64 * KIB, 32 * KIB]),
])  # fmt: skip
def test_where_the_disk_has_no_room_a_smaller_chunk_will_do(home, monkeypatch, size, needed, chunk_bytes, tried):
    sizes = []

    def full(folder, size, path):
        sizes.append(size)
        assert (folder, path) == (home.chunks, "there")
        raise errors.DiskFull("full")

    monkeypatch.setattr(files, "new_file", full)
    home.options = shmq.Options(chunk_bytes=chunk_bytes)
    with home.at_hand(), pytest.raises(errors.DiskFull):
        new_chunks.new_chunk_file(home.chunks, size, needed, "there")
    assert sizes == tried


def test_a_chunk_is_written_through_the_mapping_that_is_there_if_it_is_as_long(home, monkeypatch):
    written = []
    monkeypatch.setattr(_native.Chunk, "format", lambda memory, *given: written.append((memory, *given)))
    monkeypatch.setattr(os, "urandom", lambda count: b"\xfe" + bytes(count - 2) + b"\x80")
    monkeypatch.setattr(new_chunks.time, "time_ns", lambda: 4711)
    new_chunks.format_chunk(home, 3, 4, 5, 6, grain=7, mapped=b"1234")
    chunk_id = (0x80 << 56 | 0xFE) >> 1 | 1
    assert written == [
        (b"1234", home.queue_id, chunk_id, home.journal.epoch, 5, 6, home.options.index_spacing, 7, 4711)
    ]


# ---------------------------------------------------------------- the journal
def test_the_two_slots_of_the_journal_take_turns_and_one_is_on_the_disk_before_the_other_is_written(home, monkeypatch):
    events = []
    write = sync.write
    monkeypatch.setattr(sync, "data", lambda fd, what: events.append(what))
    monkeypatch.setattr(
        sync, "write", lambda fd, content, at, what: (write(fd, content, at, what), events.append(at))[0]
    )
    for turn in (2, 3, 4):
        home.write_journal(home.journal._replace(epoch=100 + turn))
        assert events == [4096 * (2 - turn % 2), "journal"]
        assert home.read_journal()[:2] == (turn, 100 + turn)
        del events[:]
    home._settled = 3  # it was somebody else who wrote the fourth
    home.write_journal(home.journal)
    assert events == ["journal", 4096, "journal"]
    assert len(journal_slots(home.path)) == 2


def test_a_journal_that_the_disk_refuses_names_its_file_and_is_not_believed(home, monkeypatch):
    before = home.journal

    def refuse(*_):
        raise OSError(errno.EIO, "no")

    monkeypatch.setattr(sync, "write", refuse)
    with pytest.raises(OSError, match="no") as caught:
        home.write_journal(home.journal._replace(epoch=9))
    assert caught.value.filename == f"{home.path}/queue.shmq"
    assert home.journal == before


def test_the_ceiling_is_raised_ahead_and_a_slot_counts_once_the_other_was_written(home, monkeypatch):
    raised = []
    raise_ceiling = home.raise_ceiling
    monkeypatch.setattr(home, "raise_ceiling", lambda top: (raised.append(top), raise_ceiling(top)))
    assert home.journal.ceiling == 65536
    home.cover(0, 65536 * _native.RECORD_BYTES_MIN)
    assert raised == []
    home.cover(1, 65536 * _native.RECORD_BYTES_MIN)
    assert raised == [65537]
    assert home.journal.ceiling == 65537 + 65536
    assert home._covered == home.journal.ceiling
    home.cover(65536, 65537 * _native.RECORD_BYTES_MIN)
    assert raised == [65537]
    home._covered = 0  # another process: of the newest slot it does not know whether it was synced
    home.cover(0, 65537 * _native.RECORD_BYTES_MIN)
    assert raised == [65537] * 2
    home._covered = 0
    home.cover(0, 65537 * _native.RECORD_BYTES_MIN)
    assert raised == [65537] * 2  # the older one says so now
    home.raise_ceiling(5)
    assert home.journal.ceiling == 65537 + 65536


def test_the_ceiling_waits_for_nobody_who_administers(home, monkeypatch):
    waited = []

    def busy(timeout):
        waited.append(timeout)
        raise errors.Busy("busy")

    monkeypatch.setattr(home, "admin", busy)
    monkeypatch.setattr(sync, "directory", lambda fd, what: waited.append(what))
    home.cover(1, 65536 * _native.RECORD_BYTES_MIN)
    assert waited == [0, "chunks"]


def test_a_copy_is_told_by_the_file_that_is_another_one(home):
    home.look_at_boot()
    assert (home.same_boot, home.copied, home.unclean()) == (True, False, False)
    for change, copied in (
        ({"inode": home.journal.inode + 1}, True),
        ({"device": 5}, True),
        ({"inode": 0, "device": 5}, False),
    ):
        journal, home.journal = home.journal, home.journal._replace(**change)
        home.look_at_boot()
        assert (home.same_boot, home.copied, home.unclean()) == (True, copied, copied)
        home.journal = journal
    home.journal = home.journal._replace(boot_id=bytes(16))
    home.look_at_boot()
    assert (home.same_boot, home.copied, home.unclean()) == (False, False, True)
    os.rename(f"{home.path}/control.shmq", f"{home.path}/c")
    home.look_at_boot()
    assert home.copied is False


def test_bounds_that_no_queue_has_are_corrupt_and_others_are_the_options(home):
    home.note(home.journal._replace(max_messages=(1 << 62) - 1, max_bytes=0))
    assert (home.options.max_messages, home.options.max_bytes) == ((1 << 62) - 1, None)
    home.note(home.journal._replace(max_bytes=7))
    assert (home.options.max_messages, home.options.max_bytes) == (None, 7)
    with pytest.raises(
        errors.Corrupt, match=whole(f"cannot read {home.path}/queue.shmq: no queue has bounds of (None, {1 << 62})")
    ):
        home.note(home.journal._replace(max_bytes=1 << 62))


# ---------------------------------------------------------------- what is refused
def test_a_queue_file_that_is_none_is_told_in_its_own_words(path):
    shmq.open(path).close()
    file = f"{path}/queue.shmq"
    with open(file, "rb") as opened:
        content = opened.read()

    def refused(kind, text):
        with pytest.raises(kind, match=whole(text)):
            directory.Directory(path, read_only=False)

    os.truncate(file, len(content) - 1)
    refused(errors.Corrupt, f"cannot read {file}: it has {len(content) - 1} bytes instead of {len(content)}")
    os.truncate(file, len(content) + 1)
    refused(errors.Corrupt, f"cannot read {file}: it has {len(content) + 1} bytes instead of {len(content)}")
    os.truncate(file, 4095)
    refused(errors.BadFormat, f"cannot read {file}: it has only 4095 bytes; it was not touched")
    with open(file, "wb") as opened:
        opened.write(content[:4096] + bytes(2 * 4096) + content[3 * 4096 :])
    refused(errors.Corrupt, f"cannot read {file}: neither of its two journal slots is valid")
    with open(file, "wb") as opened:
        opened.write(content)
    os.rename(f"{path}/chunks", f"{path}/c")
    refused(errors.Corrupt, f"cannot open {path}: its folder chunks is missing")
    os.rename(f"{path}/c", f"{path}/chunks")
    os.unlink(file)
    refused(errors.NotFound, f"cannot open {path}: the directory is there, but it is not a queue (no queue.shmq)")


def test_a_place_for_a_queue_that_is_taken_or_missing_is_told(tmp_path):
    options = shmq.Options()
    with pytest.raises(
        errors.NotFound, match=whole(f"cannot create {tmp_path}/a/b: the directory above it does not exist")
    ):
        making.create(f"{tmp_path}/a/b", options)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(errors.NotFound, match=whole(f"cannot create {tmp_path}/file/b: something above it is a file")):
        making.create(f"{tmp_path}/file/b", options)
    there = tmp_path / "there"
    there.mkdir(mode=0o700)
    for count, told in ((1, "0"), (3, "0, 1, 2"), (4, "0, 1, 2, ...")):
        for each in range(count):
            (there / str(each)).write_bytes(b"")
        said = f"cannot create a queue in {there}: there are other files in it ({told}); they were not touched. Use an "
        with pytest.raises(errors.BadFormat, match=whole(f"{said}empty or a new directory")):
            making.create(str(there), options)
        for each in range(count):
            (there / str(each)).unlink()
    for name in ("chunks", "consumers"):
        (there / name).mkdir(mode=0o700)
        (there / name / "x").write_bytes(b"")
        said = f"cannot create a queue in {there}: there is no queue.shmq, but 1 files lie in {name}/. If this was a "
        with pytest.raises(errors.Corrupt, match=whole(f"{said}queue, put its queue.shmq back; nothing was touched")):
            making.create(str(there), options)
        (there / name / "x").unlink()
    (there / "control.shmq").write_bytes(b"of a creation that was killed")
    there.chmod(0o755)
    making.create(str(there), options)
    assert stat.S_IMODE(there.stat().st_mode) == 0o700
    before = (there / "queue.shmq").read_bytes()
    making.create(str(there), options)
    assert (there / "queue.shmq").read_bytes() == before
    shmq.open(there).close()


def test_a_queue_that_is_made_begins_with_these_words_in_its_journal(tmp_path):
    path = str(tmp_path / "q")
    making.create(path, shmq.Options(max_messages=5, max_bytes=7000))
    home = directory.Directory(path, read_only=False)
    control = os.stat(f"{path}/control.shmq")
    assert home.journal == _native.Journal(
        sequence=1, epoch=1, boot_id=boots.boot_id(), ceiling=65536, first_live=0, first_index=0,
        device=control.st_dev, inode=control.st_ino, max_messages=5, max_bytes=7000, dropped=0, flags=0,
    )  # fmt: skip
    home.close()


def test_a_queue_that_was_being_deleted_is_finished_by_who_makes_one_there_or_deletes_again(tmp_path):
    path = tmp_path / "q"
    for finish in (lambda: making.create(str(path), shmq.Options()), lambda: making.finish_deletion(str(path))):
        with shmq.open(path) as queue:
            queue.put(b"x")
            queue.put(b"y", dedup=("p", 1))
        assert making.finish_deletion(str(path)) is False
        (path / "queue.shmq").rename(path / "deleted.shmq")
        (path / "aside").mkdir(mode=0o700)
        (path / "aside" / "x").write_bytes(b"")
        assert finish() in (None, True)
        if path.exists():
            assert sorted(each.name for each in path.iterdir()) == [
                "admin.lock", "chunks", "consumers", "control.shmq", "queue.shmq"
            ]  # fmt: skip
            assert list((path / "chunks").iterdir()) == []
    assert not path.exists()
    assert making.finish_deletion(str(path)) is False
    path.mkdir(mode=0o700)
    assert making.finish_deletion(str(path)) is False  # it is nobody's
    (path / "admin.lock").write_bytes(b"")
    (path / "admin.lock").chmod(0o600)
    assert making.finish_deletion(str(path)) is True
    assert not path.exists()


@pytest.mark.parametrize("more", [0, 1, 2])
def test_a_queue_with_strange_files_is_not_deleted_and_one_that_was_moved_neither(path, more):
    shmq.open(path).close()
    home = directory.Directory(path, read_only=False)
    for name in ["a", "b", "c"][: more + 1]:
        with open(f"{path}/{name}", "wb"):
            pass
    others = f", and {more} more," if more else ""
    said = f"cannot delete {path}: 'a' lies in it{others} and is not of the queue; nothing was deleted"
    with pytest.raises(errors.Unsafe, match=whole(said)):
        making.delete(home)
    assert os.path.exists(f"{path}/queue.shmq")
    os.rename(path, f"{path}-moved")
    for there in (False, True):
        if there:
            os.mkdir(path)
        said = f"cannot try {path}: it was moved or removed meanwhile; nothing was changed"
        with pytest.raises(errors.NotFound, match=whole(said)):
            home.refuse_moved("try")
    home.close()


def test_the_administrative_lock_is_waited_for_so_long_and_no_longer(home, monkeypatch):
    naps, clock = [], [100.0]
    mine, sleep = threading.get_ident(), time.sleep
    monkeypatch.setattr(admin.time, "monotonic", lambda: clock[0])

    def nap(seconds):
        if threading.get_ident() != mine:  # a thread that an earlier test has left
            sleep(seconds)
            return
        naps.append(seconds)
        clock[0] += seconds

    monkeypatch.setattr(admin.time, "sleep", nap)

    def hold(say):
        with home.admin():
            hold_until_killed(say)

    with Child(hold) as child:
        assert child.hear() == "ready"
        for timeout, slept in ((0, []), (0.12, [0.05, 0.05, 0.02])):
            said = f"cannot administer {home.path}: admin.lock has been held by somebody for {timeout} s"
            with pytest.raises(errors.Busy, match=whole(said)):
                home.admin(timeout)
            assert [round(each, 6) for each in naps] == slept
        monkeypatch.undo()  # who waits for the child needs the clock
        child.kill()
    with home.admin(0):
        pass
    assert stat.S_IMODE(os.stat(f"{home.path}/admin.lock").st_mode) == 0o600


def test_a_lock_whose_file_was_replaced_is_not_it(home, monkeypatch):
    opened = admin._open_admin

    def replaced(fd, path):
        held = opened(fd, path)
        os.unlink(f"{path}/admin.lock")
        monkeypatch.setattr(admin, "_open_admin", opened)
        return held

    monkeypatch.setattr(admin, "_open_admin", replaced)
    assert admin._try_admin(home.fd, home.path) is None
    with admin._try_admin(home.fd, home.path):
        pass


def test_names_of_consumers_are_checkpoints_of_such_names_in_order(home):
    for name in ("b.checkpoint", "a.checkpoint", ".c.checkpoint", "d.checkpoin", "e.checkpoint.x", "a.pin"):
        with open(f"{home.path}/consumers/{name}", "wb"):
            pass
    assert home.consumer_names() == ["a", "b"]
    for name in ("a" * 64, "A-z_0.9", "_", "-"):
        assert paths.check_consumer_name(name) == name
    for name in ("", "a" * 65, ".a", "a/b", "ä", "a\n"):
        said = f"{name!r} is not a consumer name: 1 to 64 of A-Z a-z 0-9 _ . - and no dot in front"
        with pytest.raises(ValueError, match=whole(said)):
            paths.check_consumer_name(name)


def test_names_of_chunks_are_read_as_they_are_written():
    assert paths.chunk_name(0xABC, 0x12) == "0000000000000abc-00000012.chunk"
    assert paths.parse_chunk_name("0000000000000abc-00000012.chunk") == (0x12, 0xABC)
    for name in ("0000000000000abc-00000012.chunk.x", "x0000000000000abc-00000012.chunk", "retired-00"):
        assert paths.parse_chunk_name(name) is None


def test_the_disk_bytes_are_those_of_the_files_alone(home):
    used = sum(
        os.stat(f"{folder}/{name}").st_blocks * 512
        for folder in (home.path, f"{home.path}/chunks", f"{home.path}/consumers")
        for name in os.listdir(folder)
        if os.path.isfile(f"{folder}/{name}")
    )
    assert home.disk_bytes() == used > 0
    with files.new_file(home.chunks, 1 << 20, "") as made:
        files.link_file(made, home.chunks, "more", "")
        assert home.disk_bytes() == used + os.fstat(made).st_blocks * 512


def test_a_directory_is_closed_with_its_last_user_and_what_follows_is_told(path):
    shmq.open(path).close()
    home = directory.Directory(path, read_only=False)
    ends = []
    home.at_end = lambda: ends.append(True)
    users = [object(), object()]
    for user in users:
        home.retain(user)
    home.close(users[0])
    home.close(users[0])
    os.fstat(home.fd)
    assert ends == []
    home.close(users[1])
    assert ends == [True]
    assert home.fd.fileno() < 0


def test_a_folder_below_a_folder_is_opened_or_missing_as_a_file_is(home):
    os.makedirs(f"{home.path}/staging/0000000001", 0o700)
    os.chmod(f"{home.path}/staging", 0o700)
    with home.below_path("staging/0000000001") as fd:
        assert os.fstat(fd).st_ino == os.stat(f"{home.path}/staging/0000000001").st_ino
        assert home._place_of(fd) == f"{home.path}/staging/0000000001"
    with pytest.raises(FileNotFoundError, match="staging/0000000002"):
        home.below_path("staging/0000000002")


def test_a_small_file_is_read_with_one_byte_more_than_it_may_have(home):
    for size, limit, read in ((10, 20, 10), (20, 20, 20), (21, 20, 21), (30, 20, 21)):
        with open(f"{home.path}/f", "wb") as file:
            file.write(bytes(size))
        os.chmod(f"{home.path}/f", 0o600)
        assert len(home.read(home.fd, "f", limit)) == read


# ---------------------------------------------------------------- the chain
def test_a_break_in_the_chain_is_named():
    name = paths.chunk_name
    assert break_in([]) == break_in([(5, 9)]) == break_in([(5, 9), (6, 9), (7, 12)]) == ""
    assert break_in([(5, 9), (5, 12)]) == f"there are two chunks of sequence 5, {name(9, 5)} and {name(12, 5)}"
    assert break_in([(5, 9), (7, 12)]) == f"chunk 6 is missing between {name(9, 5)} and {name(12, 7)}"
    assert break_in([(5, 9), (6, 8)]) == f"chunk 6 is missing between {name(9, 5)} and {name(8, 6)}"


@pytest.fixture
def long(make):
    """A queue of four chunks."""
    queue = make(retention=shmq.Retention.forever())
    while len(queue._session.chain().names()) < 4:
        queue.put(bytes(1000))
    return queue


@pytest.mark.parametrize("which", range(4))
def test_a_chunk_that_is_missing_is_named_as_what_it_was(long, which):
    names = [paths.chunk_name(base, sequence) for sequence, base in long._session.chain().names()]
    chunk_files(long.path)[which].unlink()
    told = {
        0: "chunk 0 is missing, where the queue begins",
        1: f"chunk 1 is missing between {names[0]} and {names[2]}",
        2: f"chunk 2 is missing between {names[1]} and {names[3]}",
        3: "chunk 3 is missing, where the queue ends",
    }
    said = f"cannot read {long.path}: {told[which]}; nothing was changed"
    with pytest.raises(errors.Corrupt, match=whole(said)):
        long._session.chain().names()


def test_who_goes_on_is_told_what_is_missing_behind_where_it_stands(long):
    chain = long._session.chain()
    opened = [chain.open(*name) for name in chain.names()]
    names = [paths.chunk_name(base, sequence) for sequence, base in chain.names()]
    chunk_files(long.path)[2].unlink()
    said = f"cannot go on after {opened[1].path}: {names[2]} is missing, and {names[3]} is there; nothing was changed"
    with pytest.raises(errors.Corrupt, match=whole(said)):
        chain.after(opened[1])
    chunk_files(long.path)[2].unlink()
    said = f"cannot go on after {opened[2].path}: {names[3]} is missing, and has been there; nothing was changed"
    with pytest.raises(errors.Corrupt, match=whole(said)):
        chain.after(opened[2])
    assert chain.after(opened[3]) is None


def test_who_goes_on_where_all_was_retired_is_told_where_the_queue_begins(long):
    chain = long._session.chain()
    first = chain.open(*chain.names()[0])
    live = chain.names()
    home = long._session.home
    with home.admin():
        home.write_journal(home.read_journal()._replace(first_live=2, first_index=live[2][1]))
        long._session.joined().control.raise_first_live(2)
    for sequence, base in live[:2]:
        home.drop_chunk(base, sequence)
    said = f"cannot go on after {first.path}: what followed it was retired; the first index still there is {live[2][1]}"
    with pytest.raises(errors.Gone, match=whole(said)) as caught:
        chain.after(first)
    assert caught.value.first_index == live[2][1] == chain.first_index()
    assert chain.first() == live[2]
    said = f"cannot put into {first.path}: it was retired meanwhile; the first index still there is {live[2][1]}"
    with pytest.raises(errors.Gone, match=whole(said)):
        chain._enter(first)


@pytest.mark.parametrize(("size", "word"), [(4095, "few"), (4096, ""), (0, "few")])
def test_a_chunk_file_of_a_size_that_none_has_is_refused(long, size, word):
    file = chunk_files(long.path)[0]
    os.truncate(file, size)
    with pytest.raises(errors.ShmqError) as caught:
        long._session.chain().open(0, 0)
    said = f"cannot open {file}: it has {size} bytes, and no chunk has so few; nothing was changed"
    assert (caught.value.args[0] == said) == bool(word)


def test_a_chunk_file_that_is_larger_than_any_is_refused(long):
    file = chunk_files(long.path)[0]
    os.truncate(file, _native.CHUNK_BYTES_MAX + 1)  # nothing but its size is looked at
    said = (
        f"cannot open {file}: it has {_native.CHUNK_BYTES_MAX + 1} bytes, and no chunk has so many; nothing was changed"
    )
    with pytest.raises(errors.Corrupt, match=whole(said)):
        long._session.chain().open(0, 0)


@pytest.mark.parametrize("at", [0, 1, 50, 10**6])
def test_an_index_is_located_in_the_last_chunk_that_begins_at_or_before_it(long, at):
    live = long._session.chain().names()
    for sequence, base in live:
        index = base + at
        assert long._session.chain().locate(index) == max(name for name in live if name[1] <= index), sequence
    assert long._session.chain().locate(-1) == live[0]


def test_of_an_empty_queue_nothing_is_located(queue):
    chain = queue._session.chain()
    assert (chain.locate(0), chain.first(), chain.last_adoption(), chain.next_index()) == (None, None, 0, 0)
    assert chain.first_index() == queue._session.home.journal.first_index


def test_who_looks_for_the_tail_gives_up_when_it_goes_all_the_time(long, monkeypatch):
    chain, tries = long._session.chain(), []

    def gone(*given):
        tries.append(given)
        raise FileNotFoundError

    monkeypatch.setattr(chain, "_open_tail", gone)
    said = f"cannot put into {long.path}: its last chunk went 1000 times while it was opened; the first index still "
    said += "there is 0"
    with pytest.raises(errors.Gone, match=whole(said)):
        chain.tail()
    assert tries == [chain.names()[-1]] * chains._TRIES


def test_the_next_chunk_is_made_for_what_it_is_to_hold_and_for_what_was_in_the_one_before(long, monkeypatch):
    chain, made = long._session.chain(), []
    last = chain.open(*chain.names()[-1], writable=True)
    assert chain.roll(last) is last
    assert chain.roll(chain.open(*chain.names()[0], writable=True)).sequence == 1
    make_chunk = new_chunks.make_chunk
    monkeypatch.setattr(
        new_chunks, "make_chunk", lambda *given, **more: made.append((*given[1:], more)) or make_chunk(*given, **more)
    )
    filled = last.filled()[1]
    assert 0 < 2 * filled < last.size
    last.seal()
    base = last.sealed()
    following = chain.roll(last, 100)
    assert (following.sequence, following.base) == (4, base)
    more = {"busy": False, "await_used": chain.await_used, "alone": False, "deadline_ns": _native.FOREVER}
    assert callable(made[0][-1].pop("renew"))
    assert made == [(base, 4, 100, 4, 0, chain.make_room, filled, more)]
    following.seal()
    last = chain.roll(following, 70_000, to_seal=True)
    grain = new_chunks.grain_for(70_000, 0, following.size)
    assert callable(made[1][-1].pop("renew"))
    assert made[1] == (base, 5, 70_000, 5, grain, chain.make_room, 0, more | {"alone": True})
    assert last.base == base
    while 2 * last.filled()[1] < last.size:
        long.put(bytes(1000))
    last.seal()
    chain.roll(last)
    assert made[2][-2] == last.size


def test_a_chunk_that_was_made_beside_a_retirement_is_taken_away_by_its_maker_alone(long, monkeypatch):
    chain = long._session.chain()
    last = chain.open(*chain.names()[-1], writable=True)
    last.seal()

    def retired(chunk):
        raise errors.Gone("gone", 0)

    monkeypatch.setattr(chain, "_enter", retired)
    with pytest.raises(errors.Gone):
        chain.roll(last)
    assert len(chunk_files(long.path)) == 4
    with monkeypatch.context() as patched:
        make_chunk = new_chunks.make_chunk
        patched.setattr(new_chunks, "make_chunk", lambda *given, **more: make_chunk(*given, **more) and False)
        with pytest.raises(errors.Gone):
            chain.roll(last)
    assert len(chunk_files(long.path)) == 5


def test_a_chunk_of_a_staged_set_is_no_part_of_the_chain(queue):
    with queue.stage() as staged:
        staged.put(b"x")
        folder = next(iter(staging.names(queue._session.home)))
        with staging.open_set(queue._session.home, folder) as found:
            fd, size = queue._session.home.open(found.fd, "00000000.chunk", writable=True)
            with fd:
                chunk = queue._session.chain().map_staged(fd, size, "there", 7)
                assert (chunk.base, chunk.sequence, chunk.adoption()) == (0, 7, 0)
                assert chunk.next_index() == 1


def test_the_home_of_a_queue_in_shared_memory_is_known_by_its_path():
    assert shm.is_inside(f"{shm.base()}/q.queue")
    assert not shm.is_inside(shm.base())

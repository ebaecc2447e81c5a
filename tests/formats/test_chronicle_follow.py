"""Following a Chronicle queue: through a mapping, over rolls and half-made files, and never past something unheard."""

import mmap
import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from chronicle_files import END_MARK, EOF, NOT_READY, cq4, document, table, word
from format_fixtures import place

from shmq import formats
from shmq.errors import Corrupt, NotFound
from shmq.formats import chronicle
from shmq.formats.chronicle import follow as follow_module
from shmq.formats.chronicle.folder import Folder
from shmq.formats.chronicle.follow import Follower

ROOM = 1 << 14
FIRST, SECOND, THIRD = "20231115F.cq4", "20231116F.cq4", "20231117F.cq4"


class Looked:
    """A follower whose looks are made one by one, with no time between them."""

    def __init__(self, path, **options):
        self.follower = Follower(Folder(path), lambda: (0, 0), **options)

    def __call__(self):
        return [entry.payload for entry in self.follower.available()]


@pytest.fixture
def looked(monkeypatch):
    """Make followers that are closed in the end, and do not wait to list a directory again."""
    monkeypatch.setattr(follow_module, "_SELDOM", 0.0)
    made = []

    def make(path, **options):
        made.append(Looked(path, **options))
        return made[-1]

    yield make
    for each in made:
        each.follower.close()


def queue(path, files, **keys):
    """A queue with room in its files, and a table whose *keys* have points for underlines."""
    named = {name.replace("_", "."): value for name, value in keys.items()}
    return place(path, {"metadata.cq4t": table(named)} | files)


def written(path, position, data):
    """Write as Java does: through a mapping, the word last."""
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[position + 4 : position + len(data)] = data[4:]
        mapped[position : position + 4] = data[:4]


def end_of(path):
    """Where the next word of *path* goes."""
    with_store = Folder(path).store(0, path.name)
    with_store.walk(1 << 40)
    with_store.close()
    return with_store.position


def add(path, *payloads, mark=b""):
    at = end_of(path)
    for payload in payloads:
        written(path, at, document(payload))
        at += len(document(payload))
    if mark:
        written(path, at, mark)


def test_what_is_written_through_a_mapping_comes_at_the_next_look(tmp_path, looked):
    queue(tmp_path, {FIRST: cq4([b"a"], size=ROOM)})
    look = looked(tmp_path)
    assert [look(), look()] == [[b"a"], []]
    add(tmp_path / FIRST, b"b", b"c")
    assert [look(), look()] == [[b"b", b"c"], []]


def test_a_roll_is_followed_whichever_of_mark_and_file_is_seen_first(tmp_path, looked):
    queue(tmp_path, {FIRST: cq4([b"a"], size=ROOM)})
    look = looked(tmp_path)
    assert look() == [b"a"]
    add(tmp_path / FIRST, b"b", mark=END_MARK)
    assert look() == [b"b"]
    place(tmp_path, {SECOND: cq4([b"c"], size=ROOM)})
    assert look() == [b"c"]
    place(tmp_path, {THIRD: cq4([], size=ROOM)})
    assert look() == []
    add(tmp_path / SECOND, b"d")
    assert look() == [b"d"]
    add(tmp_path / SECOND, mark=END_MARK)
    add(tmp_path / THIRD, b"e")
    assert look() == [b"e"]


def test_a_file_that_is_half_made_is_waited_for(tmp_path, looked):
    """Its maker claims it with a word that is not ready, and writes the header and the index before that is."""
    queue(tmp_path, {FIRST: cq4([b"a"], end=END_MARK)})
    look = looked(tmp_path)
    assert look() == [b"a"]
    whole = cq4([b"b"], size=ROOM)
    for begun in (b"", bytes(ROOM), word(NOT_READY) + bytes(ROOM), word(NOT_READY) + whole[4:]):
        (tmp_path / SECOND).write_bytes(begun)
        assert look() == []
    with (tmp_path / SECOND).open("r+b") as file:
        file.write(whole)
    assert look() == [b"b"]


def test_a_half_made_file_that_is_moved_aside_is_read_anew(tmp_path, looked):
    queue(tmp_path, {FIRST: cq4([b"a"], end=END_MARK), SECOND: word(NOT_READY) + bytes(100)})
    look = looked(tmp_path)
    assert [look(), look()] == [[b"a"], []]
    (tmp_path / SECOND).rename(tmp_path / f"{SECOND}-1700000000000.discard")
    assert look() == []
    place(tmp_path, {SECOND: cq4([b"b"])})
    assert [look(), look()] == [[], [b"b"]]


def test_a_queue_that_is_being_made_is_followed_from_its_first_message(tmp_path, looked):
    """The table comes before it says how the queue is cut, and before any file."""
    place(tmp_path, {"metadata.cq4t": b""})
    look = looked(tmp_path)
    assert look() == []
    place(tmp_path, {"metadata.cq4t": table((), 60_000, b"yyyyMMdd-HHmm")})
    assert look() == []
    place(tmp_path, {"20231115-2213.cq4": cq4([b"a"])})
    assert look() == [b"a"]
    assert look.follower.folder.roll.name == "MINUTELY"


def test_a_file_without_its_mark_is_left_only_for_messages_behind_it(tmp_path, looked):
    queue(tmp_path, {FIRST: cq4([b"a"], size=ROOM), SECOND: cq4([], size=ROOM)})
    look = looked(tmp_path)
    assert [look(), look()] == [[b"a"], []]
    add(tmp_path / FIRST, b"b")
    assert look() == [b"b"]
    add(tmp_path / SECOND, b"c")
    assert look() == [b"c"]
    assert [problem.file for problem in look.follower.problems] == [FIRST]


def test_javas_tailer_waits_for_the_mark(tmp_path, looked):
    queue(tmp_path, {FIRST: cq4([b"a"], size=ROOM), SECOND: cq4([b"b"], size=ROOM)})
    look = looked(tmp_path, as_program=True)
    assert [look(), look()] == [[b"a"], []]
    add(tmp_path / FIRST, mark=END_MARK)
    assert look() == [b"b"]


def test_a_file_without_its_mark_is_looked_at_again_before_it_is_left(tmp_path, looked, monkeypatch):
    """Its writer writes there until a moment before the lock was found free."""
    queue(tmp_path, {FIRST: cq4([b"a"], size=ROOM), SECOND: cq4([], size=ROOM)})
    look = looked(tmp_path)
    assert [look(), look()] == [[b"a"], []]
    add(tmp_path / SECOND, b"c")
    real = look.follower._lock_is_held

    def held():
        add(tmp_path / FIRST, b"b", mark=END_MARK)
        monkeypatch.setattr(look.follower, "_lock_is_held", real)
        return False

    monkeypatch.setattr(look.follower, "_lock_is_held", held)
    assert [look(), look()] == [[], [b"b", b"c"]]


@pytest.fixture
def somebody():
    """A process that lives."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.communicate()


def test_a_file_without_its_mark_is_not_left_while_a_writer_holds_the_lock(tmp_path, looked, somebody, monkeypatch):
    files = {FIRST: cq4([b"a"], size=ROOM), SECOND: cq4([b"b"], size=ROOM)}
    queue(tmp_path, files, chronicle_write_lock=1 << 40 | somebody.pid)  # the high half held a thread's id once
    look = looked(tmp_path)
    assert [look(), look(), look()] == [[b"a"], [], []]
    add(tmp_path / FIRST, b"late")
    assert [look(), look()] == [[b"late"], []]
    monkeypatch.setattr(follow_module, "_PATIENCE", 0.0)
    assert look() == [b"b"]


def test_the_lock_of_the_dead_holds_nobody_for_long(tmp_path, looked, somebody, monkeypatch):
    """The holder may live in another container, where its number is another: but then it gives the lock back soon."""
    somebody.communicate()
    files = {FIRST: cq4([b"a"], size=ROOM), SECOND: cq4([b"b"], size=ROOM)}
    queue(tmp_path, files, chronicle_write_lock=somebody.pid)
    look = looked(tmp_path)
    monkeypatch.setattr(follow_module, "_GONE", 1000.0)
    assert [look(), look()] == [[b"a"], []]
    monkeypatch.setattr(follow_module, "_GONE", 0.0)
    assert look() == [b"b"]


@pytest.mark.parametrize("end", [bytes(8), word(NOT_READY | 9) + bytes(40)])
def test_what_is_written_behind_the_follower_is_heard(tmp_path, looked, end):
    files = {FIRST: cq4([b"a"], end=end, size=ROOM), SECOND: cq4([b"b"], size=ROOM), THIRD: cq4([b"c"], size=ROOM)}
    queue(tmp_path, files)
    look = looked(tmp_path)
    assert [look(), look()] == [[b"a", b"b", b"c"], []]
    add(tmp_path / FIRST, b"late")
    with pytest.raises(Corrupt, match=rf"{FIRST} at \d+: a message was written here after it had been passed"):
        look()


def test_a_mark_that_comes_late_is_no_message(tmp_path, looked):
    queue(tmp_path, {FIRST: cq4([b"a"], size=ROOM), SECOND: cq4([b"b"], size=ROOM)})
    look = looked(tmp_path)
    assert [look(), look()] == [[b"a", b"b"], []]
    add(tmp_path / FIRST, mark=word(EOF))
    assert look() == []
    add(tmp_path / SECOND, b"c")
    assert look() == [b"c"]


def test_a_file_of_an_earlier_cycle_that_comes_late_is_heard_when_it_has_a_message(tmp_path, looked):
    queue(tmp_path, {FIRST: cq4([b"a"], end=END_MARK), THIRD: cq4([b"c"], size=ROOM)})
    look = looked(tmp_path)
    assert [look(), look()] == [[b"a", b"c"], []]
    place(tmp_path, {SECOND: cq4([], size=ROOM)})
    assert look() == []
    add(tmp_path / SECOND, b"late")
    with pytest.raises(Corrupt, match=f"{SECOND} at"):
        look()


def test_a_file_that_is_cut_is_heard(tmp_path, looked):
    queue(tmp_path, {FIRST: cq4([b"a", b"b" * 50], size=ROOM)})
    look = looked(tmp_path)
    assert len(look()) == 2
    with (tmp_path / FIRST).open("r+b") as file:
        file.truncate(440)
    with pytest.raises(Corrupt, match="became shorter"):
        look()


def test_a_file_that_is_cut_and_grows_again_is_heard(tmp_path, looked):
    queue(tmp_path, {FIRST: cq4([b"a", b"b" * 50], size=ROOM)})
    look = looked(tmp_path)
    assert len(look()) == 2
    with (tmp_path / FIRST).open("r+b") as file:
        file.truncate(end_of(tmp_path / FIRST) - 58)
        file.truncate(ROOM)
    with pytest.raises(Corrupt, match="what was read here is no longer here"):
        look()


def test_a_file_that_is_replaced_is_heard(tmp_path, looked):
    queue(tmp_path, {FIRST: cq4([b"a"], size=ROOM)})
    look = looked(tmp_path)
    assert look() == [b"a"]
    place(tmp_path, {"new": cq4([b"x", b"y"], size=ROOM)})
    (tmp_path / "new").rename(tmp_path / FIRST)
    with pytest.raises(Corrupt, match="replaced"):
        look()


def test_damage_in_the_newest_file_is_heard_and_passed_in_an_older_one(tmp_path, looked):
    queue(tmp_path, {FIRST: cq4([b"a"], end=word(9999)), SECOND: cq4([b"b"], size=ROOM)})
    look = looked(tmp_path)
    assert look() == [b"a", b"b"]
    add(tmp_path / SECOND, b"c")
    written(tmp_path / SECOND, end_of(tmp_path / SECOND), word(1 << 29) + bytes(4))
    entries = look.follower.available()
    assert next(entries).payload == b"c"
    with pytest.raises(Corrupt, match="runs past the end"):
        next(entries)


def test_files_that_are_deleted_when_they_are_done_with_are_not_missed(tmp_path, looked):
    queue(tmp_path, {FIRST: cq4([b"a"], end=END_MARK), SECOND: cq4([b"b"], size=ROOM)})
    look = looked(tmp_path)
    assert look() == [b"a", b"b"]
    (tmp_path / FIRST).unlink()
    add(tmp_path / SECOND, b"c")
    held = end_of(tmp_path / SECOND)
    with (tmp_path / SECOND).open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        (tmp_path / SECOND).unlink()
        mapped[held : held + 12] = document(b"last") + word(EOF)
    place(tmp_path, {THIRD: cq4([b"d"])})
    assert look() == [b"c", b"last", b"d"]


def test_a_directory_that_is_gone_is_said(tmp_path, looked):
    folder = queue(tmp_path / "q", {FIRST: cq4([b"a"], end=END_MARK)})
    look = looked(folder)
    assert look() == [b"a"]
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    with pytest.raises(NotFound, match="the directory is gone"):
        look()


def test_following_begins_at_an_index_that_is_still_to_come(tmp_path):
    queue(tmp_path, {FIRST: cq4([b"a", b"b"], size=ROOM)})
    folder = Folder(tmp_path)
    cycle = folder.listing()[0][0]
    look = Looked(tmp_path)
    look.follower = Follower(folder, lambda: (cycle, 3))
    assert look() == []
    add(tmp_path / FIRST, b"c")
    assert look() == []
    add(tmp_path / FIRST, b"d", b"e")
    assert look() == [b"d", b"e"]
    look.follower.close()


def test_looks_come_soon_after_messages_and_then_less_often_and_never_busily(tmp_path, looked):
    queue(tmp_path, {FIRST: cq4([b"a"], size=ROOM)})
    look = looked(tmp_path)
    ticks = []
    for _ in range(9):
        look()
        ticks.append(look.follower.tick)
    assert ticks[0] <= 0.002
    assert ticks == sorted(ticks)
    assert 0.02 <= ticks[-1] <= 0.1
    add(tmp_path / FIRST, b"b")
    look()
    assert look.follower.tick == ticks[0]


def test_a_quiet_directory_is_listed_once_a_minute(tmp_path, looked, monkeypatch):
    queue(tmp_path, {FIRST: cq4([b"a"], size=ROOM)})
    old = time.time() - 60
    os.utime(tmp_path, (old, old))
    look = looked(tmp_path)
    assert look() == [b"a"]
    look()
    # The directory is listed when it has changed and no next file is there.
    monkeypatch.setattr(look.follower.folder, "names", lambda: pytest.fail("listed again"))
    assert look() == []
    add(tmp_path / FIRST, mark=END_MARK)
    place(tmp_path, {SECOND: cq4([b"b"], end=END_MARK)})
    assert next(look.follower.available()).payload == b"b"  # the next cycle is found by its name
    monkeypatch.undo()
    place(tmp_path, {"20231119F.cq4": cq4([b"c"])})
    assert look() == [b"c"]
    place(tmp_path, {"20231120F.cq4": cq4([b"d"])})
    add(tmp_path / "20231119F.cq4", mark=END_MARK)
    os.utime(tmp_path, (old, old))
    look.follower._changed = tmp_path.stat().st_mtime_ns  # a file system whose clock stood still
    monkeypatch.setattr(follow_module, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + 61, time=time.time))
    assert look() == [b"d"]


def test_without_a_mark_a_changing_directory_is_listed_seldom(tmp_path, looked, monkeypatch):
    queue(tmp_path, {FIRST: cq4([b"a"], size=ROOM)})
    look = looked(tmp_path)
    assert look() == [b"a"]
    monkeypatch.setattr(follow_module, "_SELDOM", 1000.0)
    place(tmp_path, {"something": b""})
    with monkeypatch.context() as patch:
        patch.setattr(look.follower.folder, "names", lambda: pytest.fail("listed again"))
        assert look() == []
    add(tmp_path / FIRST, mark=END_MARK)
    place(tmp_path, {THIRD: cq4([b"b"])})
    assert look() == [b"b"]


def test_a_file_that_comes_within_one_tick_of_the_clock_is_seen(tmp_path, looked):
    """A directory's time of change is as coarse as the kernel's clock: two changes may have the same."""
    queue(tmp_path, {FIRST: cq4([b"a"], end=END_MARK)})
    now = time.time_ns()
    os.utime(tmp_path, ns=(now, now))
    look = looked(tmp_path)
    assert look() == [b"a"]
    place(tmp_path, {SECOND: cq4([b"b"])})
    os.utime(tmp_path, ns=(now, now))
    assert look() == [b"b"]


def test_following_a_living_writer_ends_after_the_timeout_and_misses_nothing(tmp_path):
    """A process rolls through forty files of twenty messages, as Java does it: mark, then the next file."""
    count, many = 40, 20
    code = """
import mmap, struct, sys, time
from pathlib import Path
folder, count, many = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
empty = (folder / "empty").read_bytes()
at = empty.index(b"0123456789abcdef")
empty = empty[:at - 4] + bytes(len(empty) - at + 4)
for cycle in range(count):
    path = folder / f"20231115-{cycle:02}T.cq4" if cycle < 24 else folder / f"20231116-{cycle - 24:02}T.cq4"
    with path.open("x+b") as file:
        file.truncate(len(empty))
        with mmap.mmap(file.fileno(), 0) as mapped:
            mapped[4:at] = empty[4:at]
            mapped[:4] = empty[:4]
            where = at - 4
            for number in range(many):
                payload = b"%d %d" % (cycle, number)
                mapped[where + 4 : where + 4 + len(payload)] = payload
                mapped[where : where + 4] = struct.pack("<I", len(payload))
                where += 4 + len(payload)
                where += -where % 4
                time.sleep(0.0005)
            mapped[where : where + 4] = struct.pack("<I", 0xC0000000)
"""
    queue(tmp_path, {"empty": cq4([b"0123456789abcdef"], size=ROOM)})
    place(tmp_path, {"metadata.cq4t": table((), 3_600_000, b"yyyyMMdd-HH'T'")})
    entries = formats.read(tmp_path, "chronicle", follow=True, timeout=20)
    writer = subprocess.Popen([sys.executable, "-c", code, str(tmp_path), str(count), str(many)])
    try:
        found = [next(entries).payload for _ in range(count * many)]
        entries.close()
    finally:
        writer.wait()
    assert found == [b"%d %d" % (cycle, number) for cycle in range(count) for number in range(many)]
    begin = time.monotonic()
    assert len(list(chronicle.read(tmp_path, follow=True, timeout=0.1))) == count * many
    assert time.monotonic() - begin >= 0.1

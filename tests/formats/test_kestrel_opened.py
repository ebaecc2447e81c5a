"""Kestrel in place: what is put, taken, opened and confirmed while its program does not run."""

import os
import random
import resource
import signal

import pytest
from format_fixtures import place, tree
from support import Child, hold_until_killed, start

from shmq import formats
from shmq.errors import BadFormat, Busy, Closed, Corrupt, Forked, NotFound, TooLarge
from shmq.formats import Entry, kestrel
from shmq.formats.kestrel import ADDX, REMOVE, REMOVE_TENTATIVE_XID, UNREMOVE, record

MS = 1_000_000


def add(text, added_ms=1000, expires_ms=None):
    expires_ns = None if expires_ms is None else expires_ms * MS
    return record(ADDX, entry=Entry(text.encode(), None, added_ms * MS, expires_ns))


def names(path, queue=None, **options):
    return [entry.payload.decode() for entry in kestrel.read(path, queue, **options)]


def text(entry):
    return None if entry is None else entry.payload.decode()


def test_items_are_put_taken_opened_and_confirmed_as_the_program_writes_it(tmp_path):
    place(tmp_path, {"cars": add("a") + add("b"), "cars.5": add("0")})
    before = (tmp_path / "cars").read_bytes()
    with kestrel.open(tmp_path) as cars:
        assert (len(cars), text(cars.peek()), text(cars.take())) == (3, "0", "0")
        entry = Entry(b"c", None, 7_000 * MS, 9_000_000_000_000 * MS)
        cars.put(entry)
        one = cars.begin()
        two = cars.begin()
        assert (text(one), one.extra["xid"], text(two), two.extra["xid"], list(cars.open)) == ("a", 1, "b", 2, [1, 2])
        cars.abort(1)
        cars.confirm(2)
        assert (len(cars), text(cars.take()), text(cars.take()), cars.take(), len(cars)) == (2, "a", "c", None, 0)
        with pytest.raises(NotFound, match="transaction 2 is not open"):
            cars.confirm(2)
    assert (tmp_path / "cars").read_bytes() == before + b"".join(
        [
            record(REMOVE),
            record(ADDX, entry=entry),
            record(REMOVE_TENTATIVE_XID, xid=1),
            record(REMOVE_TENTATIVE_XID, xid=2),
            record(UNREMOVE, xid=1),
            record(kestrel.CONFIRM_REMOVE, xid=2),
            record(REMOVE) * 2,
        ]
    )
    assert names(tmp_path) == []


def test_what_was_open_and_put_back_before_is_there(tmp_path):
    journal = [
        *map(add, "abcd"),
        *(record(REMOVE_TENTATIVE_XID, xid=xid) for xid in (4, 7, 9)),
        record(UNREMOVE, xid=7),
    ]
    place(tmp_path, {"cars": b"".join(journal)})
    with kestrel.open(tmp_path) as cars:
        assert {xid: text(entry) for xid, entry in cars.open.items()} == {4: "a", 9: "c"}
        cars.confirm(4)
        assert (text(cars.peek()), cars.begin().extra["xid"], text(cars.begin())) == ("b", 10, "d")
        cars.abort(9)
        assert text(cars.take()) == "c"
    assert names(tmp_path) == ["b", "d"]
    assert list(kestrel.state(tmp_path).open) == [10, 11]


def test_a_queue_that_is_not_there_is_made(tmp_path):
    with kestrel.open(tmp_path, "cars") as cars:
        assert cars.take() is None
        cars.put_many([b"a", Entry(b"b")])
    assert names(tmp_path) == ["a", "b"]
    assert all(entry.time_ns for entry in kestrel.read(tmp_path))
    with pytest.raises(BadFormat), kestrel.open(tmp_path, "a.b"):
        pass
    for words in ((tmp_path / "nowhere", "cars"), (tmp_path, "cars", "fan")):
        with pytest.raises(NotFound), kestrel.open(*words[:2], consumer=(*words, None)[2]):
            pass


def test_what_is_put_goes_to_the_children_too(tmp_path):
    """Each has its own copy, and is taken from by itself."""
    place(tmp_path, {"cars": add("a"), "cars+one": add("a"), "cars+two": b"", "cars2": b""})
    with kestrel.open(tmp_path, "cars") as cars:
        cars.put(b"b")
        assert text(cars.take()) == "a"
    with kestrel.open(tmp_path, "cars", consumer="one") as one:
        assert (text(one.take()), len(one)) == ("a", 1)
        one.put(b"only here")
    assert [names(tmp_path, each) for each in ("cars", "cars+one", "cars+two", "cars2")] == [
        ["b"],
        ["b", "only here"],
        ["b"],
        [],
    ]


def test_expired_items_are_removed_at_the_head(tmp_path):
    place(tmp_path, {"cars": add("old", 1, 2) + add("older", 1, 2) + add("a") + add("old", 1, 2)})
    with kestrel.open(tmp_path) as cars:
        assert (text(cars.take()), cars.take(), len(cars)) == ("a", None, 0)
    assert names(tmp_path) == []


def test_whatever_is_done_is_what_the_files_say(tmp_path):
    """Against lists; opened anew now and then, and through windows of the journal."""
    dice, waiting, opened, number = random.Random(3), [], {}, 0
    place(tmp_path, {"cars": b""})
    for _ in range(12):
        with kestrel.open(tmp_path, sync=False) as cars:
            for _ in range(dice.randrange(60)):
                what = dice.choice(["put", "put", "take", "begin", "abort", "confirm"])
                if what == "put":
                    some = [b"%d " % number + dice.randbytes(dice.choice([0, 9, 30_000]))] * dice.choice([1, 4])
                    number += 1
                    cars.put_many(some)
                    waiting += some
                elif what in ("take", "begin"):
                    entry = getattr(cars, what)()
                    assert (entry and entry.payload) == (waiting[0] if waiting else None)
                    if what == "begin" and entry:
                        opened[entry.extra["xid"]] = waiting[0]
                    del waiting[:1]
                elif opened:
                    xid = dice.choice(sorted(opened))
                    getattr(cars, what)(xid)
                    waiting[:0] = [opened.pop(xid)] if what == "abort" else [] * len([opened.pop(xid)])
            assert len(cars) == len(waiting)
            assert {xid: entry.payload for xid, entry in cars.open.items()} == opened
        left = [opened[xid] for xid in sorted(opened)] + waiting
        assert [entry.payload for entry in kestrel.read(tmp_path)] == left


def test_somebody_in_sight_who_writes_is_refused_and_one_who_reads_is_not(tmp_path):
    place(tmp_path, {"cars": add("a")})

    def use(say, path, how):
        file = path.open(how)
        hold_until_killed(say)
        file.close()

    told = []
    with Child(use, tmp_path / "cars", "ab") as child:
        child.hear()
        with (
            pytest.raises(Busy, match=f"process {child.pid} has .*cars open"),
            kestrel.open(tmp_path, "cars", tell=told.append),
        ):
            pass
    assert told == []
    with Child(use, tmp_path / "cars", "rb") as child:
        child.hear()
        with kestrel.open(tmp_path, "cars", tell=told.append) as cars:
            assert text(cars.take()) == "a"
            with pytest.raises(Busy), kestrel.open(tmp_path, "cars"):
                pass
    assert len(told) == 1
    with pytest.raises(Closed):
        cars.take()


def test_two_of_ours_that_come_at_once_exclude_each_other(tmp_path, monkeypatch):
    """Neither has seen the other: the lock decides."""
    monkeypatch.setattr("shmq.formats._locks.unused", lambda *_, **__: None)
    with (
        kestrel.open(tmp_path, "cars"),
        pytest.raises(Busy, match="somebody has it open here"),
        kestrel.open(tmp_path, "cars"),
    ):
        pass
    with kestrel.open(tmp_path, "cars"):
        pass


def test_a_forked_child_neither_uses_it_nor_keeps_it(tmp_path):
    place(tmp_path, {"cars": add("a")})
    with kestrel.open(tmp_path) as cars:

        def use():
            with pytest.raises(Forked):
                cars.take()
            cars.close()

        assert os.waitpid(start(use), 0)[1] == 0
        assert text(cars.take()) == "a"


@pytest.mark.parametrize("damage", ["opcode", "rotated"])
def test_a_damaged_queue_is_not_opened_and_not_changed(tmp_path, damage):
    place(
        tmp_path,
        {"cars": add("a") + b"\x7f" * (damage == "opcode"), "cars.5": add("b")[: -(damage == "rotated") or 99]},
    )
    before = tree(tmp_path)
    with pytest.raises(Corrupt, match="nothing was changed"), kestrel.open(tmp_path):
        pass
    assert tree(tmp_path) == before


def test_what_cannot_be_put_leaves_nothing(tmp_path):
    with kestrel.open(tmp_path, "cars") as cars:
        with pytest.raises(TooLarge):
            cars.put_many([b"a", Entry(b"x", time_ns=1 << 90)])
        cars.put(b"b")
        assert len(cars) == 1
    assert names(tmp_path) == ["b"]


def test_a_disk_that_is_full_leaves_no_part_of_a_record(tmp_path):
    """As a limit on the size of files, which a write meets in the middle."""

    def use(say, path):
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        with kestrel.open(path, "cars", sync=False) as cars:
            cars.put(b"x" * 100)
            resource.setrlimit(resource.RLIMIT_FSIZE, (200, resource.RLIM_INFINITY))
            try:
                cars.put(b"y" * 100)
            except OSError as error:
                say(str(error.filename))
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            cars.put(b"z")

    with Child(use, tmp_path) as child:
        assert child.hear() == str(tmp_path / "cars")
        assert child.join() == 0
    assert names(tmp_path) == ["x" * 100, "z"]
    assert kestrel.verify(tmp_path) == []


@pytest.mark.parametrize("cut", range(1, 24))
def test_who_is_stopped_within_a_record_has_not_written_it(tmp_path, cut):
    """Neither for the next one who opens it, who cuts it away as the program does; also in a child."""
    place(tmp_path, {"cars": add("a") + add("b")[:-cut], "cars+fan": add("a") + add("b")[:-cut]})
    with kestrel.open(tmp_path, "cars") as cars:
        cars.put(b"c")
    assert names(tmp_path, "cars", strict=True) == names(tmp_path, "cars+fan", strict=True) == ["a", "c"]


def test_who_is_killed_leaves_what_it_has_acknowledged(tmp_path):
    """Put and take by turns, killed again and again: each item comes once, in order."""

    def work(say, path, seed):
        dice, number = random.Random(seed), 0
        with kestrel.open(path, "cars", sync=False) as cars:
            say("open")
            while True:
                some = dice.randrange(1, 9)
                cars.put_many(b"%d %d" % (seed, number + more) for more in range(some))
                number += some
                for _ in range(dice.randrange(9)):
                    entry = cars.begin()
                    if entry is not None:
                        (cars.abort if dice.random() < 0.1 else cars.confirm)(entry.extra["xid"])

    place(tmp_path, {"cars+fan": b""})
    for seed in range(5):
        with Child(work, tmp_path, seed) as child:
            child.hear()
            child.speaks_within(0.03)
            child.kill()
        found = [tuple(map(int, each.split())) for each in names(tmp_path, "cars")]
        assert found == sorted(found)
        whole = [tuple(map(int, each.split())) for each in names(tmp_path, "cars+fan")]
        assert whole == sorted(set(whole))
        assert set(found) <= set(whole)  # nothing of the child is taken, and it is written first


def test_the_verbs_append_and_commit_work_on_a_journal_too(tmp_path):
    """A child goes on behind what its parent has; what is open in it comes first."""
    place(tmp_path, {"cars": b"".join(map(add, "abc")), "cars+fan": b"".join(map(add, "abc"))})
    with kestrel.open(tmp_path, "cars", consumer="fan") as fan:
        fan.begin()
    assert formats.append(tmp_path, [Entry(b"d", None, 5 * MS, 6 * MS)], "cars", "kestrel") == 1
    formats.commit(tmp_path, "fan", 2, queue="cars", format="kestrel")
    assert (names(tmp_path, "cars+fan"), kestrel.state(tmp_path).open) == (["c", "d"], {})
    formats.commit(tmp_path, "", 1, queue="cars", format="kestrel")
    assert names(tmp_path, "cars") == ["b", "c", "d"]
    assert kestrel.consumers(tmp_path, "cars") == {"fan": (1, ())}
    for head, done in ((0, ()), (2, (3,))):
        with pytest.raises(BadFormat, match="it stands at 1"):
            formats.commit(tmp_path, "fan", head, done, "cars", "kestrel")
    formats.commit(tmp_path, "fan", 3, queue="cars", format="kestrel")  # the last one has expired, and counts
    assert names(tmp_path, "cars+fan") == []

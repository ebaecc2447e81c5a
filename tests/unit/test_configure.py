"""`configure`: options that are changed while others have the queue open, and what goes by them."""

import threading
import time
from pathlib import Path

import pytest
from support import Child, chunk_files, in_child, journal_slots, make_unclean, patch

import shmq
from shmq import _native

BIG = bytes(6000)


@pytest.fixture
def queue(make):
    return make()


def test_all_that_can_be_changed_is_changed_for_everybody_and_outlasts_the_queue(queue, path):
    queue.configure(max_messages=7, max_bytes=1 << 20, full="raise", retention="forever", ttl=60)
    wanted = {
        "max_messages": 7,
        "max_bytes": 1 << 20,
        "full": "raise",
        "retention": shmq.Retention.forever(),
        "ttl": 60,
    }
    assert queue.options == shmq.Options(chunk_bytes=16384, **wanted)
    assert in_child(options_of, path) == repr(queue.options)
    queue.configure(ttl=None, max_bytes=None)
    wanted |= {"ttl": None, "max_bytes": None}
    queue.close()
    with shmq.open(path) as again:
        assert again.options == shmq.Options(chunk_bytes=16384, **wanted)
        again.configure(full="block", retention="acked", max_messages=None)
        assert again.options == shmq.Options(chunk_bytes=16384)
        assert journal_slots(path)[-1][1][96:100] == bytes(4)
        assert "retention" not in Path(path, "queue.shmq").read_bytes()[4096:12288].decode("latin-1").split("\0")[-1]


def options_of(path):
    with shmq.open(path) as queue:
        return repr(queue.options)


def test_options_are_what_they_are_now_whoever_has_changed_them(queue, path):
    with shmq.open(path) as other, shmq.open(path, read_only=True) as looking:
        other.configure(ttl=5)
        assert queue.options.ttl == looking.options.ttl == other.options.ttl == 5
        looking.close()
        other.configure(ttl=6)
        assert looking.options.ttl == 5, "what it knew when it was closed"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"max_messages": 0}, "max_messages"),
        ({"full": "no"}, "full='no'"),
        ({"retention": "gone"}, "retention='gone'"),
        ({"ttl": -1}, "ttl"),
        ({"ttl": 5, "max_bytes": "7"}, "max_bytes"),
    ],
)
def test_what_is_no_option_changes_nothing(queue, path, changes, text):
    before = Path(path, "queue.shmq").read_bytes()
    with pytest.raises((ValueError, TypeError), match=text):
        queue.configure(**changes)
    assert Path(path, "queue.shmq").read_bytes() == before
    with pytest.raises(TypeError):
        queue.configure(durability="sync")


def test_who_may_not_write_may_not_configure(queue, path):
    with shmq.open(path, read_only=True) as looking, pytest.raises(shmq.Closed, match="cannot configure"):
        looking.configure(ttl=1)


# ---------------------------------------------------------------- what goes by them
PUTS = {
    "put": lambda it: it.put(b"x"),
    "put_many": lambda it: it.put_many([b"x"]),
    "reserve": lambda it: it.reserve(1).commit(),
    "dedup": lambda it: it.put(b"x", dedup=("p", 1)),
}


@pytest.mark.parametrize("put", PUTS)
def test_the_next_put_of_every_handle_has_the_new_ttl(queue, path, put):
    """The built-ins had a limit that was good, and the old one in hand."""
    with shmq.open(path) as other, queue.producer() as producer:
        for each in (queue, producer, other):
            each.put(b"before")
        other.configure(ttl=1e-9)
        for each in (queue, producer, other):
            PUTS[put](each)
        other.configure(ttl=None)
        for each in (queue, producer, other):
            each.put(b"after")
        times = [message.expires for message in queue.reader()]
        assert [time is not None for time in times] == [False] * 3 + [True] * (len(times) - 6) + [False] * 3
        assert len(times) == (7 if put == "dedup" else 9)


def test_a_putter_of_another_process_goes_by_them_at_its_next_put(queue, path):
    with Child(put_until_the_last, path) as child:
        assert child.hear() == "ready"
        queue.configure(ttl=1e-9)
        queue.put(b"last")
        assert child.hear() == "put"
        assert queue[-1].expires is not None


def put_until_the_last(say, path):
    with shmq.open(path) as queue, queue.reader(follow=True) as reader:
        queue.put(b"x")
        say("ready")
        while next(reader).payload != b"last":
            pass
        queue.put(b"x")
        say("put")


@pytest.mark.parametrize("how", ["raise", "drop_oldest"])
def test_a_put_that_waits_for_room_goes_by_what_full_is_now(make, path, how):
    queue = make(max_messages=2)
    queue.consumer("c").close()
    queue.put_many([b"0", b"1"])
    found = []

    def wait():
        try:
            found.append(queue.put(b"2", timeout=30))
        except shmq.Full:
            found.append("full")

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.1)
    with shmq.open(path) as other:
        other.configure(full=how)
    thread.join(30)
    assert found == (["full"] if how == "raise" else [2])


def test_a_bound_wakes_who_waits_when_it_is_taken_away(make):
    queue = make(max_messages=1)
    queue.put(b"0")
    thread = threading.Thread(target=queue.put, args=(b"1",), kwargs={"timeout": 30})
    thread.start()
    queue.configure(max_messages=None)
    thread.join(30)
    assert len(queue) == 2


def fill(queue, chunks=6):
    for _ in range(2 * chunks):
        queue.put(BIG)


def test_what_is_to_stay_for_ever_is_taken_away_by_nobody_who_has_it_open(make, path):
    """A consumer of another handle knew that what it finishes may go."""
    queue = make()
    with shmq.open(path) as other, other.consumer("c") as consumer:
        fill(queue)
        queue.configure(retention="forever")
        before = len(chunk_files(path))
        while True:
            try:
                consumer.take(timeout=0)
            except shmq.Empty:
                break
        fill(queue, 2)
        assert len(chunk_files(path)) >= before
        assert queue.first_index == 0


def test_what_may_go_now_goes_as_others_put_and_take(make, path):
    queue = make(retention="forever")
    with shmq.open(path) as other, other.consumer("c") as consumer:
        fill(queue)
        queue.configure(retention="acked")
        while consumer.lag:
            consumer.take_many(100)
        assert queue.first_index > 0, "the consumer is alone with it"


def test_who_was_about_to_retire_takes_nothing_that_is_to_stay_now(make, path, monkeypatch):
    """It had looked, and waited for the administrative lock."""
    queue = make()
    with shmq.open(path) as other, other.consumer("c") as consumer:
        fill(queue)
        home = other._session.home
        admin = home.admin

        def later(*given, **more):
            queue.configure(retention="forever")
            return admin(*given, **more)

        monkeypatch.setattr(home, "admin", later)
        while consumer.lag:
            consumer.take_many(100)
        assert queue.options.retention == shmq.Retention.forever()
        assert queue.first_index == 0


def test_a_retention_by_bytes_takes_from_who_is_late_and_that_one_is_told(make, path):
    """Also where it was changed back meanwhile: what has gone need not have been finished."""
    queue = make()
    with shmq.open(path) as other, other.consumer("late") as late:
        assert late.peek() is None
        fill(queue)
        queue.configure(retention=shmq.Retention.bytes(1))
        fill(queue, 2)
        queue.configure(retention="acked")
        assert queue.first_index > 0
        with pytest.raises(shmq.Gone):
            late.take(timeout=0)


# ---------------------------------------------------------------- what may happen to it
def test_a_copy_and_a_repaired_queue_have_them(queue, tmp_path):
    queue.configure(ttl=7, retention=shmq.Retention.age(1e6), full="drop_oldest", max_messages=5)
    queue.put(b"x")
    queue.copy(tmp_path / "copy")
    queue.repair(tmp_path / "repaired")
    for name in ("copy", "repaired"):
        with shmq.open(tmp_path / name) as other:
            assert other.options == queue.options
            other.configure(ttl=None)
            assert other.options == queue.options.__replace__(ttl=None)
            assert list(other.verify().problems) == []


def test_they_outlast_a_power_cut(queue, path):
    queue.configure(ttl=7, retention=shmq.Retention.age(1e6))
    queue.put(b"x")
    queue.close()
    make_unclean(path)
    with shmq.open(path) as again:
        assert again.recovery is not None
        assert (again.options.ttl, again.options.retention) == (7, shmq.Retention.age(1e6))


def test_that_something_may_have_gone_unfinished_outlasts_a_power_cut(queue, path):
    queue.configure(retention=shmq.Retention.bytes(1))
    queue.configure(retention="acked")
    queue.close()
    make_unclean(path)
    with shmq.open(path) as again:
        assert again._session.home.loses
        again.copy(f"{path}.copy")
    with shmq.open(f"{path}.copy") as copied:
        assert copied._session.home.loses


def test_who_read_the_journal_before_others_does_not_go_back_to_it(queue):
    home = queue._session.home
    before = home.read_journal()
    queue.configure(ttl=5)
    home.note(before)
    assert queue._session.home.options.ttl == 5


def test_a_slot_whose_options_are_damaged_is_not_valid_and_the_other_one_counts(queue, path):
    queue.configure(ttl=7)
    queue.configure(ttl=8)
    queue.close()
    position = journal_slots(path)[-1][0]
    patch(Path(path, "queue.shmq"), position + 120, b"?")
    with shmq.open(path) as again:
        assert again.options.ttl == 7


@pytest.mark.parametrize(
    ("stored", "error"),
    [(b"[]", shmq.Corrupt), (b'{"ttl":-1}', shmq.Corrupt), (b'{"mode":511}', shmq.BadFormat), (b"{", shmq.Corrupt)],
)
def test_options_that_are_none_are_refused_with_the_file(queue, path, stored, error):
    """Somebody made them with a right checksum."""
    home = queue._session.home
    with home.admin():
        home.write_journal(home.read_journal()._replace(changed=stored))
    queue.close()
    with pytest.raises(error, match=r"cannot read .*queue.shmq"):
        shmq.open(path)


def test_more_than_a_page_holds_is_refused_and_nothing_changes(queue, path):
    home = queue._session.home
    with home.admin(), pytest.raises(shmq.TooLarge, match="cannot store the options"):
        home.write_journal(home.read_journal()._replace(changed=bytes(4000)))
    assert home.read_journal().changed == b""


def test_what_others_write_into_the_journal_keeps_them(queue):
    queue.configure(ttl=7)
    queue.set_bounds(max_messages=10)
    queue.put(b"x")
    queue.finish()
    assert queue._session.home.read_journal().flags == _native.JOURNAL_FINISHED
    assert (queue.options.ttl, queue.options.max_messages) == (7, 10)


def test_many_who_configure_at_once_leave_one_of_their_wishes(queue, path):
    def work(number):
        with shmq.open(path) as mine:
            for turn in range(20):
                mine.configure(ttl=number * 100 + turn, max_messages=number * 100 + turn + 1)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert queue.options.ttl % 100 == 19
    assert queue.options.max_messages == queue.options.ttl + 1

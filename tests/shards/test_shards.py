"""Shards: the directory and its map, where puts go, and one consumer over all of them."""

from __future__ import annotations

import collections
import contextlib
import hashlib
import json
import multiprocessing
import os
import pickle
import threading
from pathlib import Path

import pytest
from support import CHANGING, Child, in_child, killed_at

import shmq
from shmq.shards import place, read, shard_of

LONG = 20.0
STEPS = CHANGING | {"replace"}


def names(path):
    return sorted(name for name in os.listdir(path) if not name.startswith("shards."))


def drained(consumer):
    """What there is now, by key."""
    found = collections.defaultdict(list)
    while True:
        try:
            for message in consumer.get_many(100, timeout=0):
                found[message.key].append(message.payload)
                message.ack()
        except shmq.Empty:
            return found


# ---------------------------------------------------------------- the directory
def test_shards_are_queues_that_are_called_as_sej_calls_them(tmp_path):
    """With a prefix and without; each opens by itself; a single one is called by the prefix alone."""
    with shmq.shards.open(tmp_path / "a", shards=4) as a, shmq.shards.open(tmp_path / "b", shards=16, prefix="x") as b:
        assert names(a.path) == ["2.000", "2.001", "2.002", "2.003"]
        assert names(b.path) == [f"x.4.{index:03x}" for index in range(16)]
        place_of_it = a.put(b"v", key=b"k")
    with shmq.open(tmp_path / "a" / f"2.{place_of_it.shard:03x}", create=False) as queue:
        assert queue[place_of_it.index].payload == b"v"
    with shmq.shards.open(tmp_path / "c", shards=1, prefix="only") as c:
        assert names(c.path) == ["only"]
        assert c.put(b"v", key=b"k") == (0, 0)
    with pytest.raises(ValueError, match="shards=1 needs a prefix="):
        shmq.shards.open(tmp_path / "d", shards=1)


def test_what_is_there_is_opened_without_a_number(tmp_path):
    """And another number, prefix or option is refused."""
    shmq.shards.open(tmp_path / "e", shards=4, chunk_bytes=65536).close()
    with shmq.shards.open(tmp_path / "e") as again:
        assert (again.shards, again.prefix, again.queues[3].options.chunk_bytes) == (4, "", 65536)
    with pytest.raises(shmq.Mismatch, match=r"shards=8: it has 4; leave the argument out, and call grow\(\)"):
        shmq.shards.open(tmp_path / "e", shards=8)
    with pytest.raises(shmq.Mismatch, match="prefix='x'"):
        shmq.shards.open(tmp_path / "e", prefix="x")
    with pytest.raises(shmq.Mismatch, match="chunk_bytes"):
        shmq.shards.open(tmp_path / "e", chunk_bytes=1 << 20)


@pytest.mark.parametrize("shards", [0, 3, 2048, -2])
def test_there_are_a_power_of_two(tmp_path, shards):
    with pytest.raises(ValueError, match="a power of two from 1 to 1024"):
        shmq.shards.open(tmp_path / "e", shards=shards)
    assert names(tmp_path) == []


@pytest.mark.parametrize("shards", [True, 4.0, "4"])
def test_a_number_is_wanted(tmp_path, shards):
    with pytest.raises(TypeError, match="an int is wanted"):
        shmq.shards.open(tmp_path / "e", shards=shards)


def test_where_nothing_is_somebody_has_to_say_how_many(tmp_path):
    with pytest.raises(shmq.NotFound, match="say how many: shards=8"):
        shmq.shards.open(tmp_path / "e")
    with pytest.raises(shmq.NotFound, match="create=False"):
        shmq.shards.open(tmp_path / "e", shards=4, create=False)
    with pytest.raises(shmq.NotFound, match="the directory above"):
        shmq.shards.open(tmp_path / "no" / "e", shards=4)
    assert names(tmp_path) == []


def test_something_else_is_left_alone(tmp_path):
    """A queue, a file, a directory with other things in it."""
    shmq.open(tmp_path / "queue").close()
    (tmp_path / "file").write_text("x")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes").write_text("x")
    with pytest.raises(shmq.BadFormat, match="it is a queue already"):
        shmq.shards.open(tmp_path / "queue", shards=4)
    with pytest.raises(shmq.BadFormat, match="not a directory"):
        shmq.shards.open(tmp_path / "file", shards=4)
    with pytest.raises(shmq.BadFormat, match="something else, 'notes' among it"):
        shmq.shards.open(tmp_path / "full", shards=4)
    assert names(tmp_path / "full") == ["notes"]
    with pytest.raises(ValueError, match="no volatile shards"):
        shmq.shards.open("shm:x", shards=4)


@pytest.mark.parametrize("verb", [shmq.shards.open, shmq.shards.delete])
def test_found_the_address_of_a_server_was_taken_for_a_path(verb, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        ValueError, match=r"'csp://.*': that is at a server, where shmq\.open opens one queue; all shards"
    ):
        verb("csp://localhost:9000/x")


def test_a_directory_that_others_may_write_is_refused(root):
    os.chmod(root.path, 0o777)
    with pytest.raises(shmq.Unsafe, match="others may write"):
        shmq.shards.open(root.path)


def test_a_map_that_was_damaged_or_is_newer_is_refused(root):
    file = Path(root.path, "shards.shmq")
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b'"prefix":""', b'"prefix":"x"'))
    with pytest.raises(shmq.Corrupt, match="does not agree with its checksum"):
        shmq.shards.open(root.path)
    line = json.dumps({**json.loads(whole.splitlines()[0]), "version": 2}).encode()
    file.write_bytes(line + b"\n" + hashlib.blake2b(line, digest_size=16).hexdigest().encode() + b"\n")
    with pytest.raises(shmq.BadFormat, match="version 2"):
        shmq.shards.open(root.path)


@pytest.mark.parametrize("name", ["shards.shmq", "shards.shmq.new", "shards.lock"])
@pytest.mark.parametrize("kind", ["pipe", "directory", "link", "stranger"])
def test_what_is_no_file_of_ours_in_the_place_of_one_is_refused(root, tmp_path, kind, name):
    """At once, by whatever comes to it: nobody waits for a pipe that nobody writes."""
    root.put(b"v")
    file = Path(root.path, name)
    content = file.read_bytes() if file.exists() else b""
    file.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "directory":
        file.mkdir()
    elif kind == "link":
        (tmp_path / "elsewhere").write_bytes(content)
        file.symlink_to(tmp_path / "elsewhere")
    else:
        if os.geteuid():
            pytest.skip("only root gives files away")
        file.write_bytes(content)
        os.chown(file, 12345, 12345)

    def each() -> None:
        for what in (lambda: shmq.shards.open(root.path), root.grow, root.stats, lambda: root.put(b"w")):
            with contextlib.suppress(shmq.BadFormat, shmq.Unsafe):  # the map is looked at by some of them
                what()

    with Child(lambda _: each()) as child:
        assert child.join(60.0) == 0
    with pytest.raises(shmq.BadFormat if kind in ("pipe", "directory") else shmq.Unsafe, match=f"its {name} is "):
        root.grow()
    if name == "shards.shmq":
        with pytest.raises((shmq.BadFormat, shmq.Unsafe), match=r"its shards\.shmq is "):
            shmq.shards.open(root.path)


def test_a_map_that_this_user_may_not_read_is_refused(root, monkeypatch):
    real = os.open

    def refused(path, *arguments, **options):
        if os.fspath(path).endswith("shards.shmq"):
            raise PermissionError(13, "Permission denied", path)
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(shmq.Unsafe, match=r"this user may not open its shards\.shmq \(Permission denied\)"):
        shmq.shards.open(root.path)


def test_shards_without_their_map_are_not_taken_for_none(tmp_path):
    """Nor is a new map made beside them, whatever number is given."""
    with shmq.shards.open(tmp_path / "e", shards=2, chunk_bytes=65536) as root:
        root.put_many([b"v"] * 10)
        root.grow()
        root.put_many([b"w"] * 10)
    whole = (tmp_path / "e" / "shards.shmq").read_bytes()
    (tmp_path / "e" / "shards.shmq").unlink()
    before = names(tmp_path / "e")
    for more in ({}, {"shards": 2}, {"shards": 4}, {"shards": 8}, {"create": False}):
        with pytest.raises(
            shmq.BadFormat, match=r"shards of queues are there .*without their map.*nothing was changed"
        ):
            shmq.shards.open(tmp_path / "e", **more)
    for index in range(2):
        shmq.delete(tmp_path / "e" / f"1.00{index}")  # as a growth does when it is over
    with pytest.raises(shmq.BadFormat, match=r"\(2.000, 2.001, 2.002, 2.003\) without their map"):
        shmq.shards.open(tmp_path / "e", shards=4)
    assert names(tmp_path / "e") == [name for name in before if not name.startswith("1.")]
    (tmp_path / "e" / "shards.shmq").write_bytes(whole)


@pytest.mark.parametrize("every", [10, pytest.param(1, marks=pytest.mark.slow)])
def test_whoever_is_killed_while_making_it_has_made_it_or_not(tmp_path, every):
    """At any step; the next one finds what was made, with its options."""
    for step in range(0, 1000, every):
        top = tmp_path / str(step)
        killed = killed_at(step, lambda top=top: shmq.shards.open(top, shards=2, chunk_bytes=65536).close(), STEPS)
        assert (read(top) is None) or (read(top).bits == ((1, "open"),))
        with shmq.shards.open(top, shards=2) as root:
            sizes = {queue.options.chunk_bytes for queue in root.queues}
            assert len(sizes) == 1
            assert root.put(b"v") in [(0, 0), (1, 0)]
        if not killed:
            break
    assert step > 10


def test_two_that_make_it_at_once_make_one(tmp_path):
    def make(say):
        for number in range(10):
            with shmq.shards.open(tmp_path / str(number), shards=2) as root:
                root.put(b"v")
        say("done")

    with Child(make) as one, Child(make) as other:
        assert [one.hear(), other.hear()] == ["done", "done"]
    for number in range(10):
        with shmq.shards.open(tmp_path / str(number)) as root:
            assert len(root) == 2


def test_what_is_deleted_is_gone(root):
    """With dead letters and the seats of groups; not while somebody has it."""
    with root.consumer("g", group=True, max_attempts=1, ack="explicit") as c:
        root.put(b"v", key=b"k")
        c.get(timeout=LONG).reject("why")
        with pytest.raises(shmq.Busy):
            in_child_delete(root.path)
    root.close()
    Path(root.path, "notes").mkdir()
    Path(root.path, "notes", "x").write_text("x")
    with pytest.raises(shmq.Unsafe, match="'notes'"):
        shmq.shards.delete(root.path)
    Path(root.path, "notes", "x").unlink()
    Path(root.path, "notes").rmdir()
    shmq.shards.delete(root.path)
    assert not os.path.exists(root.path)
    with pytest.raises(shmq.NotFound):
        shmq.shards.delete(root.path)


def in_child_delete(path):
    """What another process gets."""
    kind = in_child(lambda: type_of(lambda: shmq.shards.delete(path)))
    raise getattr(shmq, kind)


def type_of(work):
    try:
        work()
    except shmq.ShmqError as problem:
        return type(problem).__name__
    return "nothing"


# ---------------------------------------------------------------- where puts go
def test_the_hash_is_what_the_documentation_says():
    """These numbers never change: what was put with one key lies where they say."""
    assert [shard_of(key, 10) for key in (b"", b"k", b"user-7", bytes(100))] == [740, 684, 574, 659]
    for bit in range(11):
        assert shard_of(b"user-7", bit) == shard_of(b"user-7", 10) & ((1 << bit) - 1)


def test_keys_go_to_their_shard_and_the_rest_in_turn(root):
    """A put says where it went; an empty key is none, as in a queue."""
    for number in range(100):
        key = b"key %d" % number
        assert root.put(b"v", key=key).shard == shard_of(key, 2)
    assert {root.put(b"v").shard for _ in range(4)} == {0, 1, 2, 3}
    assert {root.put(b"v", key=b"").shard for _ in range(4)} == {0, 1, 2, 3}
    with pytest.raises(TypeError, match=r"write key.encode\(\)"):
        root.put(b"v", key="text")
    with pytest.raises(TypeError, match="shards have none"):
        root.put(b"v", dedup=("p", 1))
    assert len(root) == 108


def test_a_batch_is_spread_and_each_shard_has_its_part_at_once(root):
    """The places come in the order of the payloads; fields go along."""
    keys = [b"key %d" % (number % 7) if number % 3 else None for number in range(60)]
    places = root.put_many(
        [b"%d" % n for n in range(60)], keys=keys, types=list(range(60)), headers=[{"n": n} for n in range(60)]
    )
    for number, (key, (shard, index)) in enumerate(zip(keys, places, strict=True)):
        message = root.queues[shard][index]
        assert (message.payload, message.key, message.type, message.headers) == (
            b"%d" % number,
            key,
            number,
            {"n": number},
        )
        assert key is None or shard == shard_of(key, 2)
    assert len({shard for key, (shard, _) in zip(keys, places, strict=True) if key is None}) == 1
    assert root.put_many([]) == []
    with pytest.raises(ValueError, match="keys has 1 entries for 2 payloads"):
        root.put_many([b"a", b"b"], keys=[None])


def test_a_batch_that_one_shard_refuses_says_what_was_put(tmp_path):
    """All or nothing for each shard: the error has the places of the others."""
    with shmq.shards.open(tmp_path / "e", shards=2, max_messages=10, full="raise") as root:
        one = next(b"%d" % n for n in range(99) if shard_of(b"%d" % n, 1) == 0)
        other = next(b"%d" % n for n in range(99) if shard_of(b"%d" % n, 1) == 1)
        root.put_many([b"v"] * 8, keys=[other] * 8)
        with pytest.raises(shmq.Full) as refused:
            root.put_many([b"v"] * 8, keys=[one, other] * 4)
        assert refused.value.places == [(0, 0), None, (0, 1), None, (0, 2), None, (0, 3), None]
        assert len(root) == 12


def test_it_crosses_fork_and_spawn(root):
    """As a path, and as itself in a child that was forked."""
    assert in_child(lambda: root.put(b"f", key=b"k")) == f"Place(shard={shard_of(b'k', 2)}, index=0)"
    with pickle.loads(pickle.dumps(root)) as copy:
        assert copy.put(b"p", key=b"k") == (shard_of(b"k", 2), 1)
    child = multiprocessing.get_context("spawn").Process(target=put_one, args=(root,))
    child.start()
    child.join(LONG)
    assert child.exitcode == 0
    with root.consumer("c") as c:
        assert [c.take(timeout=LONG) for _ in range(3)] == [b"f", b"p", b"s"]


def put_one(root):
    root.put(b"s", key=b"k")


def test_a_codec_that_is_brought_goes_along(tmp_path):
    with shmq.shards.open(tmp_path / "e", shards=2, codec="json") as root:
        root.put({"n": 1}, key=b"k")
        with root.consumer("c") as c:
            assert c.take(timeout=LONG) == {"n": 1}


# ---------------------------------------------------------------- one consumer over all
def test_each_key_comes_in_order(root):
    for number in range(300):
        root.put(b"%d" % number, key=b"key %d" % (number % 13))
    with root.consumer("c", ack="explicit") as c:
        assert c.shards == (0, 1, 2, 3)
        assert c.lag == 300
        found = drained(c)
        assert c.lag == 0
    assert found == {b"key %d" % k: [b"%d" % n for n in range(k, 300, 13)] for k in range(13)}


def test_a_name_is_one_handles_and_goes_on_where_it_stopped(root):
    for number in range(8):
        root.put(b"%d" % number)
    with root.consumer("c") as c:
        first = [c.take(timeout=0) for _ in range(3)]
        with pytest.raises(shmq.Busy):
            root.consumer("c")
        assert c.shards == (0, 1, 2, 3)
    with root.consumer("c") as c:
        rest = [c.take(timeout=0) for _ in range(5)]
        with pytest.raises(shmq.Empty, match="none of the 4 shards"):
            c.take(timeout=0)
    assert sorted(first + rest) == [b"%d" % n for n in range(8)]
    with pytest.raises(shmq.Mismatch):
        root.consumer("c", ack="explicit")


def test_no_shard_waits_for_the_others(root):
    """However much there is in one of them."""
    root.put_many([b"much"] * 5000, keys=[b"k"] * 5000)
    other = next(b"%d" % n for n in range(99) if shard_of(b"%d" % n, 2) != shard_of(b"k", 2))
    with root.consumer("c") as c:
        for _ in range(100):
            assert c.take(timeout=0) == b"much"
        root.put(b"one", key=other)
        assert b"one" in [c.take(timeout=0) for _ in range(2000)]


def test_what_is_given_back_comes_again(root):
    root.put(b"a", key=b"k")
    with root.consumer("c", ack="explicit") as c:
        message = c.get(timeout=0)
        assert c.pending == 1
        c.nack(message)
        again = c.get(timeout=LONG)
        assert (again.payload, again.attempts, c.pending) == (b"a", 2, 1)
        c.ack(again)
        assert (c.pending, c.lag) == (0, 0)


def test_who_waits_sleeps_until_something_is_put(root, monkeypatch):
    """In whatever shard; it looks no more often than it is woken."""
    looks = []
    wait = shmq.wait
    monkeypatch.setattr(shmq, "wait", lambda *given, **named: looks.append(1) or wait(*given, **named))
    got = []
    with root.consumer("c") as c:
        waiter = threading.Thread(target=lambda: [got.append(c.take(timeout=LONG)) for _ in range(4)])
        waiter.start()
        waiter.join(0.5)
        assert len(looks) == 1
        for queue in root.queues:
            queue.put(b"v")
        waiter.join(LONG)
    assert got == [b"v"] * 4


def test_a_loop_ends_when_all_are_over(root):
    """By a shutdown, and for good by a finish; what is there comes first."""
    root.put_many([b"v"] * 10, keys=[b"%d" % n for n in range(10)])
    root.shutdown()
    with root.consumer("c", ack="explicit") as c:
        held = list(c)  # and none of them is acknowledged
        assert len(held) == 10
        c.ack(*held)
        with pytest.raises(shmq.ShutDown):
            c.get()
    with pytest.raises(shmq.ShutDown, match="shut down or finished"):
        root.put(b"v", key=b"k")


def test_what_is_finished_stays_so(root):
    """Also for a handle that is opened behind the end; a queue's own would open it again."""
    root.put(b"v", key=b"k")
    root.finish()
    assert root.finished
    for opened in (root, pickle.loads(pickle.dumps(root))):
        with opened, pytest.raises(shmq.ShutDown):
            opened.put(b"late", key=b"k")
    with shmq.shards.open(root.path) as again:
        assert again.finished
        with again.consumer("c") as c:
            assert [m.payload for m in c] == [b"v"]


def test_names_are_known_and_dropped(root):
    root.put_many([b"v"] * 10, keys=[b"%d" % n for n in range(10)])
    with root.consumer("c"), pytest.raises(shmq.Busy):
        root.drop_consumer("c")
    assert sum(stats.lag for stats in root.consumers()["c"].values()) == root.lag("c") == 10
    with root.consumer("late", start="latest") as late:
        assert late.lag == 0
    root.drop_consumer("c")
    assert list(root.consumers()) == ["late"]
    for call in (root.drop_consumer, root.lag):
        with pytest.raises(shmq.NotFound):
            call("c")


def test_a_consumer_is_sent_to_a_place_in_each_shard(root):
    """By the shard's number; only there, and only where it has the shard."""
    for number in range(8):
        root.queues[number % 2].put(b"%d" % number)
    with root.consumer("c") as c:
        drained(c)
        c.seek({1: 2})
        assert drained(c) == {None: [b"5", b"7"]}
        with pytest.raises(ValueError, match="shard 9"):
            c.seek({9: 0})


def test_a_reader_goes_by_a_place_in_each_shard(root):
    """It sees what was there when it began, each key in order, also over a growth; and goes on from its place."""
    for number in range(60):
        root.put(b"%d" % number, key=b"key %d" % (number % 7))
        if number == 30:
            root.grow()
    reader = root.reader()
    root.put(b"later", key=b"key 0")
    found = collections.defaultdict(list)
    for shard, message in reader:
        assert shard_of(message.key, 3 if shard >= 1024 else 2) == shard & 1023
        found[message.key].append(message.payload)
    assert found == {b"key %d" % k: [b"%d" % n for n in range(k, 60, 7)] for k in range(7)}
    assert [message.payload for _, message in root.reader(reader.place)] == [b"later"]
    with pytest.raises(ValueError, match="no shard 77"):
        root.reader({77: 0})


def test_what_is_closed_says_so(root):
    c = root.consumer("c")
    c.close()
    c.close()
    assert c.closed
    assert list(c) == []
    with pytest.raises(shmq.Closed):
        c.get(timeout=0)
    root.close()
    with pytest.raises(shmq.Closed):
        root.put(b"v")


def test_a_consumer_alone_is_the_parents(root):
    with root.consumer("c") as c:
        assert in_child(lambda: type_of(lambda: c.get(timeout=0))) == "Forked"


def test_figures_are_by_shard(root):
    root.put(b"v", key=b"k")
    root.sync()
    assert {number: stats.next_index for number, stats in root.stats().items()} == {
        number: int(number == shard_of(b"k", 2)) for number in range(4)
    }
    assert "4 shards" in repr(root)


def test_the_lock_is_one_threads_and_one_processs(root):
    with place.locked(root.path) as mine:
        assert mine
        with place.locked(root.path, wait=False) as again:
            assert not again
        assert in_child(lambda: locked_now(root.path)) == "False"
    assert in_child(lambda: locked_now(root.path)) == "True"


def locked_now(path):
    with place.locked(path, wait=False) as mine:
        return mine

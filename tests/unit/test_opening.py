"""What it takes to open a queue, to put the first message and to make a name: counted, for times vary."""

from __future__ import annotations

import collections
import errno
import operator
import os
import signal
import sys
import time

import pytest
from support import in_child, start

import shmq
from shmq import _native
from shmq.storage import blocks, files, laggards, space, spares
from shmq.storage import chain as chains
from shmq.storage.directory import Directory
from shmq.storage.paths import chunk_name, parse_chunk_name

_calls: list[list[tuple[str, str]]] = []


def hear(event, arguments):
    """For `sys.addaudithook`, which nobody can take away again."""
    if _calls and event in ("open", "os.listdir", "os.scandir"):
        _calls[-1].append((event, str(arguments[0])))


@pytest.fixture(scope="module", autouse=True)
def _heard():
    sys.addaudithook(hear)


def during(work):
    """What it returned, and how often it opened each file by its name, and read a folder."""
    _calls.append([])
    try:
        done = work()
    finally:
        heard = _calls.pop()
    names = collections.Counter(
        "a folder" if event != "open" else os.path.basename(name) for event, name in heard if "/self/fd/" not in name
    )
    return done, names


@pytest.fixture
def there(path):
    """A queue with a message, which nobody has open."""
    with shmq.open(path) as queue:
        queue.put(b"first")
    return path


def test_each_file_is_opened_once_to_open_a_queue(there):
    queue, opened = during(lambda: shmq.open(there))
    with queue:
        assert opened["queue.shmq"] == opened["control.shmq"] == opened["boot_id"] == 1
        assert opened["mountinfo"] <= 1
        assert opened["a folder"] <= 2  # the chunks; the rings, after a death
        assert max(opened.values()) <= 2, opened


def test_a_first_put_reads_no_journal(there):
    """The opening has read it, and looked again behind the word that whoever changes options moves."""
    with shmq.open(there) as queue:
        _, opened = during(lambda: queue.put(b"x"))
    assert opened["queue.shmq"] == 0
    assert opened["a folder"] <= 1


@pytest.mark.parametrize("when", ["before the word is read", "behind that, before the journal is"])
def test_options_that_are_changed_while_a_queue_is_opened_count_for_its_first_put(there, monkeypatch, when):
    bounds, changed = _native.Control.bounds, []

    def change(control):
        if changed:
            return bounds(control)
        changed.append(1)
        found = bounds(control) if when.startswith("behind") else None
        other.configure(ttl=7.0, full="raise", max_messages=1)
        return found or bounds(control)

    with shmq.open(there) as other:
        follow_from = Directory.follow_from

        def patched(home, control):
            with monkeypatch.context() as during_that:
                during_that.setattr(_native.Control, "bounds", change)
                return follow_from(home, control)

        monkeypatch.setattr(Directory, "follow_from", patched)
        with shmq.open(there) as queue:
            assert changed
            queue.consumer("c", start="latest").close()
            queue.put(b"second")
            assert (queue._producer._options.ttl, queue._producer._options.full) == (7.0, "raise")
            with pytest.raises(shmq.Full):
                queue.put(b"third")


@pytest.fixture
def left_open(there):
    """The same, whose last producer was killed while a claim of its was open."""

    def work():
        queue = shmq.open(there)
        queue.reserve(8)
        os.kill(os.getpid(), signal.SIGKILL)

    assert os.waitstatus_to_exitcode(os.waitpid(start(work), 0)[1]) == -signal.SIGKILL
    return there


def test_after_a_death_the_last_chunk_is_opened_once_and_each_folder_at_most_once(left_open):
    queue, opened = during(lambda: shmq.open(left_open))
    with queue:
        assert [count for name, count in opened.items() if name.endswith(".chunk")] == [1]
        assert opened["chunks"] <= 1
        assert opened["consumers"] <= 1
        index, opened = during(lambda: queue.put(b"behind"))
        assert index == 2
        assert [name for name in opened if name.endswith(".chunk")] == []
        assert [message.payload for message in queue.reader()] == [b"first", b"behind"]


def test_a_new_name_lists_nothing_and_looks_at_one_chunk(there):
    with shmq.open(there) as queue:
        consumer, opened = during(lambda: queue.consumer("new"))
        assert opened["a folder"] == 0
        assert sum(count for name, count in opened.items() if name.endswith(".chunk")) <= 2, opened
        assert consumer.take(timeout=0) == b"first"


def test_a_new_name_begins_behind_what_is_empty_and_retires_nothing_for_that(make, monkeypatch):
    """The first chunk is empty where the first message, or batch, was too large for it."""
    queue = make()
    queue.put(bytes(200_000))
    chain, control = queue._session.chain(), queue._session.joined().control
    assert [base for _, base in chain.names()] == [0, 0]
    for made_so in (True, False):  # by how the second one was made, and by the SEAL of the first
        if not made_so:
            monkeypatch.setattr(chains.Chain, "_was_made_as", lambda *_: False)
        assert chain.locate(0) == (1, 0)
    assert not chain._was_made_as(7, 0)
    with queue.consumer("new") as consumer:
        assert len(consumer.take(timeout=0)) == 200_000
        assert control.first_live() == 0


def test_a_chunk_under_the_name_of_what_follows_an_empty_one_is_found_wrong(make):
    """It was not made under that: so what is in the first one is not passed over, and the damage is told behind it."""
    queue = make()
    for number in range(20):
        queue.put(bytes([number]) * 9000)
    path = queue.path
    (_, first), (_, second) = queue._session.chain().names()[:2]
    assert first == 0 < second
    queue.close()
    folder = os.path.join(path, "chunks")
    os.rename(os.path.join(folder, chunk_name(second, 1)), os.path.join(folder, chunk_name(0, 1)))
    with shmq.open(path) as queue, queue.consumer("new") as consumer:
        assert [consumer.take(timeout=0)[0] for _ in range(second)] == list(range(second))
        with pytest.raises(shmq.Corrupt):
            consumer.take(timeout=0)


def test_an_adopted_chunk_under_the_name_of_what_follows_an_empty_one_is_found_wrong(make):
    """It was made under no name, so the SEAL of the first one is asked, which is not empty."""
    queue = make()
    queue.put(b"first")
    with queue.stage() as staged:
        staged.put(b"second")
        queue.adopt(staged)
    path = queue.path
    queue.put(b"third")
    (_, first), (_, second) = queue._session.chain().names()[:2]
    assert (first, second) == (0, 1)
    queue.close()
    folder = os.path.join(path, "chunks")
    os.rename(os.path.join(folder, chunk_name(1, 1)), os.path.join(folder, chunk_name(0, 1)))
    with shmq.open(path) as queue, queue.consumer("new") as consumer:
        assert consumer.take(timeout=0) == b"first"
        with pytest.raises(shmq.Corrupt):
            consumer.take(timeout=0)


def is_held(queue):
    """Whether anybody has the last chunk mapped, so that its file serves nobody else."""
    sequence, base = queue._session.chain().names()[-1]
    with open(os.path.join(queue.path, "chunks", chunk_name(base, sequence)), "rb") as file:
        return spares.is_locked(file.fileno())


def test_what_was_looked_through_behind_a_death_is_let_go_of_where_nobody_puts(left_open):
    with shmq.open(left_open) as queue:
        assert is_held(queue)
        queue._session.joined().let_go()
        assert not is_held(queue)
        assert queue.put(b"behind") == 2
        assert is_held(queue)
    assert [message.payload for message in shmq.open(left_open).reader()] == [b"first", b"behind"]


def roll(path):
    with shmq.open(path) as other:
        other.put(bytes(200_000))
    return ""


def test_what_was_looked_through_behind_a_death_is_put_into_only_while_it_is_the_last(left_open):
    with shmq.open(left_open) as queue:
        known = queue._session.joined()._looked_through
        in_child(roll, left_open)
        assert queue.put(b"behind") == 3
        assert queue._producer._tail.sequence > known.sequence
        assert known.sealed() == 2


def fill(path):
    """Some chunks, so that a consumer takes the first ones away on its way."""
    with shmq.open(path) as other:
        for _ in range(80):
            other.put(bytes(200_000))
    return ""


def test_found_a_consumer_that_never_sleeps_kept_what_was_looked_through_when_that_was_retired(left_open):
    """Its file served nobody else, and where it was unlinked its space came back to nobody."""
    with shmq.open(left_open) as queue, queue.consumer("busy") as consumer:
        membership = queue._session.joined()
        first = membership._looked_through.sequence
        in_child(fill, left_open)
        while membership.control.first_live() <= first:
            consumer.take(timeout=0)
        consumer.take(timeout=0)
        membership.forget_retired()
        assert membership._looked_through is None


def test_a_forked_child_has_nothing_that_was_looked_through(left_open):
    with shmq.open(left_open) as queue:
        membership = queue._session.joined()
        assert in_child(lambda: str(membership.looked_through())) == "None"
        assert membership.looked_through() is not None


NAMES = [
    "0000000000000000-00000000.chunk",
    "fedcba9876543210-ffffffff.chunk",
    "ffffffffffffffff-89abcdef.chunk",
    "FEDCBA9876543210-FFFFFFFF.chunk",
    "fedcba9876543210-fffffffg.chunk",
    "fedcba9876543210_ffffffff.chunk",
    "fedcba9876543210-ffffffff.chunks",
    "fedcba9876543210-ffffffff.chun",
    "fedcba9876543210-ffffffff",
    "fedcba987654321-ffffffff.chunk",
    "0fedcba9876543210-ffffffff.chunk",
    "fedcba9876543210-0ffffffff.chunk",
    "fedcba9876543210-fffffff.chunk",
    "/edcba9876543210-ffffffff.chunk".replace("/", ":"),
    "`edcba9876543210-ffffffff.chunk",
    "fedcba9876543210",
    "f",
    "-",
    "retired-0",
]


@pytest.mark.parametrize("more", [0, 63, 64, 5000])
def test_chunks_are_told_by_their_names_as_the_expression_tells_them(tmp_path, more):
    for name in NAMES + [chunk_name(7 * number, number) for number in range(1, more + 1)]:
        (tmp_path / name).touch()
    with _native.Fd.of(os.open, tmp_path, os.O_RDONLY) as fd:
        found = _native.chunks_in(fd)
    assert sorted(found) == sorted(filter(None, map(parse_chunk_name, os.listdir(tmp_path))))
    assert len(found) == more + 3


@pytest.mark.parametrize("more", [0, 500])
def test_names_with_an_ending_are_those_that_have_it(tmp_path, more):
    names = ["a.ring", ".ring", "ring", "b.rin", "b.ring.c", "ü.ring", "a.group"]
    for name in names + [f"{number:0>200}.ring" for number in range(more)]:
        (tmp_path / name).touch()
    with _native.Fd.of(os.open, tmp_path, os.O_RDONLY) as fd:
        found = _native.ended_in(fd, ".ring")
    assert sorted(found) == sorted(name for name in os.listdir(tmp_path) if name.endswith(".ring"))
    assert len(found) == more + 3
    with pytest.raises(OSError, match="Bad file descriptor"):
        _native.ended_in(-1, ".ring")


def test_a_folder_that_cannot_be_read_says_which_it_is(there, monkeypatch):
    with pytest.raises(OSError, match="Bad file descriptor"):
        _native.chunks_in(-1)
    with shmq.open(there) as queue:
        home = queue._session.home

        def refuse(fd):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        monkeypatch.setattr(_native, "chunks_in", refuse)
        with pytest.raises(OSError, match="Too many open files") as refused:
            home.chunk_names()
        assert refused.value.filename == f"{queue.path}/chunks"


def test_a_name_opens_its_checkpoint_once(there):
    with shmq.open(there) as queue:
        for ack in ("auto", "explicit"):
            queue.consumer(ack, ack=ack).close()
            consumer, opened = during(lambda ack=ack: queue.consumer(ack))
            with consumer:
                assert consumer.ack_mode == ack
                assert opened[f"{ack}.checkpoint"] == (1 if ack == "auto" else 2)


def test_in_a_long_queue_nothing_is_listed_by_who_opens_puts_takes_or_retires(make):
    """What takes as long as there are chunks would show up here, however short it is."""
    queue = make()
    path = queue.path
    for _ in range(100):
        queue.put(bytes(9000))
    queue.close()

    def all_of_it():
        with shmq.open(path) as queue:
            queue.put(b"last")
            with queue.consumer("new") as consumer:
                assert [len(consumer.take(timeout=0)) for _ in range(30)] == [9000] * 30
            assert queue.first_index == 29
            with queue.consumer("new") as consumer:  # which remembers where it stood
                assert len(consumer.take(timeout=0)) == 9000
        return path

    listed, listdir, chunk_names = [], os.listdir, Directory.chunk_names

    def told(folder):
        if os.readlink(f"/proc/self/fd/{operator.index(folder)}").endswith("/chunks"):
            listed.append(folder)
        return listdir(folder)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "listdir", told)
        patched.setattr(Directory, "chunk_names", lambda home: listed.append(home) or chunk_names(home))
        # How much the slowest name holds back is looked for every five seconds, in a listing.
        patched.setitem(laggards._looked, path, laggards._Look(time.monotonic()))
        all_of_it()
    assert listed == []


def test_a_name_whose_holder_was_killed_is_found_without_a_listing_of_a_long_queue(make, monkeypatch):
    queue = make()
    path = queue.path
    for number in range(200):
        queue.put(bytes([number]) * 9000)
    queue.close()

    def work():
        with shmq.open(path) as queue:
            consumer = queue.consumer("c")
            for _ in range(50):
                consumer.take()
            os.kill(os.getpid(), signal.SIGKILL)

    assert os.waitstatus_to_exitcode(os.waitpid(start(work), 0)[1]) == -signal.SIGKILL
    listed, chunk_names, names_in = [], Directory.chunk_names, files.names_in
    monkeypatch.setattr(Directory, "chunk_names", lambda home: listed.append(home) or chunk_names(home))
    monkeypatch.setitem(laggards._looked, path, laggards._Look(time.monotonic()))  # see above
    with shmq.open(path) as queue:
        folder = queue._session.home.chunks

        def told(directory):
            if os.fstat(directory).st_ino == os.fstat(folder).st_ino:
                listed.append(directory)
            return names_in(directory)

        monkeypatch.setattr(files, "names_in", told)
        consumer = queue.consumer("c")
        assert consumer.take(timeout=0)[0] == 50
        assert consumer.head == 51
    assert listed == []


def test_a_chunk_that_came_back_under_a_retired_name_is_taken_away_by_the_next_retirement(make):
    """A slow roller that is killed before it finds out leaves one. It was seen in the listing that is made anyway."""
    queue = make()
    for _ in range(10):
        queue.put(bytes(9000))
    folder = os.path.join(queue.path, "chunks")
    names = sorted(os.listdir(folder))
    consumer = queue.consumer("c")
    for _ in range(4):
        consumer.take()
    assert names[1] not in os.listdir(folder)
    with open(os.open(os.path.join(folder, names[1]), os.O_CREAT | os.O_WRONLY, 0o600), "wb") as file:
        file.truncate(16384)
    for _ in range(2):
        consumer.take()
    assert names[1] not in os.listdir(folder)
    assert [len(consumer.take()) for _ in range(4)] == [9000] * 4


def test_which_chunks_go_is_asked_of_each_until_one_stays(make, monkeypatch):
    queue = make()
    for _ in range(8):
        queue.put(bytes(9000))
    chain = queue._session.chain()
    live = chain.names()
    asked = []

    def goes(name):
        asked.append(name)
        return name[0] <= 3

    for few in (64, 0):  # as they are listed, and one by one
        monkeypatch.setattr(chains, "_FEW", few)
        asked.clear()
        assert chain.oldest(goes) == live[:4]
        assert asked == live[1:5]
        assert chain.oldest(lambda _: True) == live
        assert chain.oldest(lambda _: False) == live[:1]


def test_of_an_empty_queue_nothing_goes(queue):
    assert queue._session.chain().oldest(lambda _: True) == []


def test_the_names_that_retirement_has_mapped_are_those_that_are_there(make):
    """One that was dropped and made again between two retirements is another one, and has finished nothing."""
    queue = make()
    for _ in range(10):
        queue.put(bytes(9000))
    home, chain = queue._session.home, queue._session.chain()
    with queue.consumer("a") as consumer:
        for _ in range(3):
            consumer.take()
    with home.admin():
        first = space.floor(home, chain)
        known = home.names_known[0]
    assert first == 3
    queue.drop_consumer("a")
    queue.consumer("a").close()
    with home.admin():
        assert space.floor(home, chain) == queue.first_index < 3
        assert home.names_known[0] is known


@pytest.mark.parametrize("place", ["disk", "memory"])
def test_the_type_of_a_file_system_by_its_device_is_the_one_by_its_path(place, tmp_path):
    path = str(tmp_path) if place == "disk" else "/dev/shm"
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        assert files.filesystem_type(path) == files.filesystem_type(path, file.read())


@pytest.mark.parametrize(("kind", "asked"), [("ext4", 0), ("tmpfs", 0), ("btrfs", 1), ("overlay", 1), ("nfs4", 1)])
def test_only_what_has_nothing_else_below_it_goes_by_its_device(kind, asked, tmp_path, monkeypatch):
    """A mount may have any source, also one that looks like the number of a device; only its own field is that."""
    device = os.stat(tmp_path).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    lines = [f"20 1 0:99 / /x rw - zfs {number} rw", f"21 1 {number} / / rw shared:1 - {kind} /dev/a rw"]
    mounts = "\n".join([*lines, "22 1 0:98 / /y rw - xfs z rw"])
    monkeypatch.setattr(files, "small_file", lambda _: mounts.encode())
    real, looked = os.path.realpath, []
    monkeypatch.setattr(os.path, "realpath", lambda path: looked.append(path) or real(path))
    assert (files.filesystem_type(str(tmp_path)), len(looked)) == (kind, asked)


def test_what_never_shares_blocks_is_no_network_and_nothing_that_has_other_types_below_it():
    assert blocks.NEVER_SHARED <= files.PLAIN
    assert not files.PLAIN & (files.NETWORK | blocks._ELSEWHERE | {"btrfs", "overlay", "fuseblk"})

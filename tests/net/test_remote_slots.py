"""Which producer a client's puts are of: the table of slots, whoever comes, goes, or is cut off while it is written."""

from __future__ import annotations

import errno
import os
import time

import pytest
from remote import cable, serving

import shmq
from shmq.net.shmq1 import slots
from shmq.net.shmq1.slots import SLOTS, WEEK, Slots

ID = "00112233445566778899aabbccddeeff"


def session(number: int) -> bytes:
    return number.to_bytes(16, "big")


@pytest.fixture
def last():
    """What the queue has as the last batch of a producer."""
    return {}


@pytest.fixture
def table(tmp_path, last):
    made = []

    def open_again() -> Slots:
        made.append(Slots(str(tmp_path), "shop/orders", ID, last.get))
        return made[-1]

    yield open_again
    for each in made:
        each.close()


def test_a_session_finds_its_slot_again(table, last):
    first = table()
    assert [first.take(session(number), None, {}).number for number in (1, 2, 3)] == [0, 1, 2]
    last["net/1"] = (41, range(3))
    again = table()
    found = again.find(session(2))
    assert (found.number, found.base, found.producer) == (1, 0, "net/1")
    assert again.take(session(2), None, {}).base == 0
    assert again.find(session(9)) is None


def test_a_slot_that_was_left_is_given_away_and_numbers_go_on(table, last):
    found = table()
    found.free(found.take(session(1), None, {}))
    last["net/0"] = (41, range(3))
    assert found.find(session(1)) is None
    taken = found.take(session(2), None, {})
    assert (taken.number, taken.base) == (0, 42)


def test_when_none_is_free_the_one_silent_for_longest_goes_and_no_connected_one(table, monkeypatch):
    monkeypatch.setattr(os, "fdatasync", lambda _: None)
    found = table()
    for number in range(SLOTS):
        found.take(session(number), None, {})
    now = int(time.time())
    for slot in found._slots:
        slot.seen = now - 10 + (slot.number == 5)
    found._slots[7].seen = now - 20
    busy = {session(number): None for number in range(SLOTS)}
    with pytest.raises(shmq.TooMany, match="1024 clients"):
        found.take(session(5000), None, busy)
    del busy[session(7)], busy[session(8)]
    assert found.take(session(5001), None, busy).number == 7
    found._slots[3].seen = now - WEEK - 9
    del busy[session(3)]
    assert found.take(session(5002), None, busy).number == 3


def test_a_name_keeps_its_slot_and_the_newer_session_has_it(table, last):
    found = table()
    old = found.take(session(1), "till", {})
    assert old.number == SLOTS
    found.free(old)
    assert table().find(session(1)).number == SLOTS
    last[old.producer] = (9, range(1))
    new = table().take(session(2), "till", {})
    assert (new.number, new.base, new.session) == (SLOTS, 10, session(2))
    assert table().take(session(3), "other", {}).number == SLOTS + 1


def test_it_is_on_the_disk_before_anything_is_put(table, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    found = table()
    found.take(session(1), None, {})
    assert len(synced) == 1


def test_what_a_power_cut_has_torn_is_free(table, tmp_path):
    found = table()
    found.take(session(1), None, {})
    found.take(session(2), None, {})
    with open(found._path, "r+b") as file:
        file.seek(20)
        file.write(b"torn")
    again = table()
    assert again.find(session(1)) is None
    assert again.find(session(2)).number == 1
    assert again.take(session(3), None, {}).number == 0


def test_a_table_that_is_a_link_is_not_followed(tmp_path):
    (tmp_path / ".serve" / "sessions").mkdir(parents=True)
    (tmp_path / ".serve" / "sessions" / "orders").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        Slots(str(tmp_path), "orders", ID, {}.get)
    assert not (tmp_path / "elsewhere").exists()
    assert slots.NAMED == 10_000


def test_what_is_no_table_is_put_aside_and_one_is_made_anew(tmp_path):
    """A directory there, or a file where the tables' directory was; nothing of it is thrown away."""
    tables = tmp_path / ".serve" / "sessions"
    (tables / "orders" / "kept").mkdir(parents=True)
    assert Slots(str(tmp_path), "orders", ID, {}.get).take(session(1), None, {}).number == 0
    assert [name.partition("-")[0] for name in sorted(os.listdir(tables))] == ["orders", "orders.damaged"]
    tables.rename(tmp_path / "old")
    tables.write_bytes(b"garbage")
    found = Slots(str(tmp_path), "orders", ID, {}.get)
    assert found.find(session(1)) is None
    assert found.take(session(2), None, {}).number == 0
    (tables / "orders").write_bytes(os.urandom(999))
    assert Slots(str(tmp_path), "orders", ID, {}.get).find(session(2)) is None


def test_a_full_disk_is_said_to_be_one_and_takes_no_slot_away(table, monkeypatch):
    found = table()
    old = found.take(session(1), "till", {})

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fdatasync", full)
    with pytest.raises(shmq.DiskFull, match="nothing was put"):
        found.take(session(2), "till", {})
    with pytest.raises(shmq.DiskFull):
        found.take(session(3), None, {})
    assert (old.session, found.find(session(3))) == (session(1), None)


def test_a_week_of_killed_clients_keeps_no_new_one_out(root, orders):
    """All slots are theirs, and recent; the one silent for longest goes, and its session is unknown then."""
    full = Slots(str(root), "orders", orders.id, orders.adopted)
    full._fill(SLOTS)
    now = int(time.time())
    for slot in full._slots:
        slot.session, slot.taken, slot.seen = session(slot.number + 1), True, now - 1 - (slot.number == 9)
        full._write(slot)
    full.close()
    with serving(root) as server, server.connect() as queue:
        assert queue.put(b"new") == 0
    again = Slots(str(root), "orders", orders.id, orders.adopted)
    assert again.find(session(10)) is None
    assert again.find(session(9)) is not None


def test_a_session_that_the_server_does_not_know_cannot_be_told_of_its_batch(root, orders):
    """Its table was damaged while it was away."""
    with serving(root) as server, cable(server) as link, shmq.net.connect(server.csp(path=link.path)) as queue:
        queue.put(b"first")
        link.refuses = True
        link.cut()
        waiting = queue.submit(b"second")
        server.kill()
        (root / ".serve" / "sessions" / "orders").write_bytes(b"garbage" * 99)
        server.start()
        link.refuses = False
        assert waiting.result(timeout=20) == 1
        assert queue.put(b"third") == 2


def test_a_private_directory_that_is_a_link_is_refused(root, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (root / ".serve").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(shmq.Unsafe, match="is not a directory of its own"):
        shmq.net.serve(root)
    assert os.listdir(tmp_path / "elsewhere") == []

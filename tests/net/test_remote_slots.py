"""Which producer a client's puts are of: the table of slots, whoever comes, goes, or is cut off while it is written."""

from __future__ import annotations

import os
import time

import pytest

import shmq
from shmq.net.shmq1 import slots
from shmq.net.shmq1.slots import SLOTS, WEEK, Slots


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
        made.append(Slots(str(tmp_path), "shop/orders", last.get))
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
        Slots(str(tmp_path), "orders", {}.get)
    assert not (tmp_path / "elsewhere").exists()
    assert slots.NAMED == 10_000

"""A durability with followers: how it is written, what the journal keeps beside it, and its marks."""

from __future__ import annotations

import json

import pytest

import shmq
from shmq import _native
from shmq.storage import eras, marks

TWO = shmq.Durability.replicated(1, ["b", "c"], name="a")


def test_it_is_compared_printed_and_kept_with_its_followers():
    assert repr(TWO) == (
        "Durability(kind='replicated', seconds=0, n=1, followers=('b', 'c'), name='a')"  # which makes an equal one
    )
    assert shmq.Durability(**json.loads(json.dumps(TWO.to_json()))) == TWO
    assert shmq.Durability.replicated(2, ["b", "c"], "a") != TWO
    assert shmq.Durability.SYNC.to_json() == {"kind": "sync", "seconds": 0}, "as an earlier version knows it"
    assert [each.waits for each in (TWO, shmq.Durability.SYNC, shmq.Durability.PROCESS)] == [True, True, False]
    for wrong in ({"n": 1}, {"followers": ["b"]}, {"name": "a"}):
        with pytest.raises(ValueError, match="has no followers"):
            shmq.Durability("sync", **wrong)


def test_a_queue_in_memory_has_no_followers():
    with pytest.raises(ValueError, match="a volatile queue is in memory"):
        shmq.open(None, durability=TWO)


@pytest.fixture
def queue(tmp_path):
    with shmq.open(str(tmp_path / "q"), durability=TWO) as made:
        yield made


def test_an_era_is_what_the_queue_was_made_with_and_then_what_the_journal_says(queue):
    home = queue._session.home
    first = eras.era_of(home)
    assert first == eras.Era(1, "", "a", ("b", "c"))

    second = eras.after(first, eras.Part("b", "its id"), "0123456789abcdef", 7)
    assert second == eras.Era(2, "0123456789abcdef", "b", ("c", "a"), 7, ("its id",))
    assert eras.after(second._replace(promoted=("x",) * 16), eras.Part("c", "y"), "", 0).promoted == ("x",) * 15 + (
        "y",
    )

    with home.admin():
        home.write_journal(home.read_journal()._replace(changed=eras.with_era(b"", second)))
    queue.configure(ttl=60)
    assert eras.era_of(home) == second, "another option changes, and it stays"
    assert queue.options.durability == shmq.Durability.replicated(1, ["c", "a"], "b")
    with shmq.open(queue.path, ttl=60) as again:
        assert again.options.durability == queue.options.durability


def test_a_part_is_a_followers_alone(queue, tmp_path):
    home = queue._session.home
    part = eras.Part("b", "0123456789abcdef", begun=True, fence="f", given="g")
    with home.admin():
        home.write_journal(home.read_journal()._replace(changed=eras.with_part(b"", part)))
    assert eras.part_of(home.journal) is None
    follower = home.journal._replace(flags=_native.JOURNAL_FOLLOWER)
    assert eras.part_of(follower) == part
    assert eras.with_part(follower.changed, None) == b""

    queue.copy(str(tmp_path / "copy"))
    with shmq.open(str(tmp_path / "copy")) as copied:
        assert copied._session.home.journal.changed == b"", "a copy has promised nothing"


@pytest.mark.parametrize(
    "stored", [{"replicated": 7}, {"replicated": {}}, {"follower": 7}, {"follower": {"name": "b"}}, 7]
)
def test_a_journal_that_tells_something_else_is_damage(stored):
    changed = json.dumps(stored).encode()
    journal = _native.Journal(1, 1, 0, 0, 0, 0, 0, 0, 0, 0, _native.JOURNAL_FOLLOWER, bytes(16), changed)
    with pytest.raises(shmq.Corrupt, match="a journal tells no"):
        _ = eras.era_in(TWO, changed), eras.part_of(journal)


def test_what_is_sure_is_what_n_have(queue):
    found = marks.Followers(queue._session.home)
    found.store("c", 7)
    assert (found.mark("b"), found.mark("c"), found.sure()) == (0, 7, 7)
    found.store("c", 5)
    assert found.sure() == 7, "it only rises"
    found.store("b", 9)
    assert found.sure() == 9
    assert marks.Followers(queue._session.home).sure() == 9, "in every process"

    marks.doubt(queue._session.home, 8)
    assert (found.mark("b"), found.mark("c")) == (0, 7), "no queue that ends at 8 has been so far"
    home = queue._session.home
    with home.admin():
        home.write_journal(home.read_journal()._replace(epoch=2))
    marks.doubt(home, 0)
    assert found.mark("c") == 7, "of another epoch, so it counts for nobody"
    assert marks.Followers(home).sure() == 0

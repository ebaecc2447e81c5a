"""Puts that wait for followers: what they wait for, and what a promotion keeps of them."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import shutil
import threading
from pathlib import Path

import msgspec
import pytest
from following import content, follow_once
from support import Child, hold_until_killed, until

import shmq
from shmq import durability, replica
from shmq.cli import main
from shmq.replica import receipts
from shmq.replica.follower import Follower
from shmq.replica.pieces import Mark
from shmq.replica.source import Source
from shmq.storage import sync

SHORT = 0.02


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def made(n=1, followers=("b", "c"), path="a", **more):
    return shmq.open(path, durability=shmq.Durability.replicated(n, followers, "a"), **more)


@contextlib.contextmanager
def following(*names, source="a"):
    """Have them follow meanwhile."""
    stops, threads = [], []
    for name in names:
        stop = replica.Stop()
        thread = threading.Thread(target=replica.replicate, args=(source, name), kwargs={"name": name, "stop": stop})
        thread.start()
        stops.append(stop)
        threads.append(thread)
    try:
        yield
    finally:
        for stop, thread in zip(stops, threads, strict=True):
            stop()
            thread.join()


def pending(call, *given, **more) -> shmq.SyncPending:
    with pytest.raises(shmq.SyncPending) as caught:
        call(*given, timeout=SHORT, **more)
    return caught.value


# ---- waiting
def test_without_its_followers_each_put_is_there_and_pending():
    """Consumers have it, its index is told, and it never falls back."""
    with made() as queue, queue.consumer("c") as consumer:
        assert pending(queue.put, b"one").index == 0
        assert "not on those of 1 follower in time" in str(pending(queue.put, b"two"))
        assert pending(queue.put_many, [b"three", b"four"]).index == 2
        assert pending(queue.put, b"five", dedup=("p", 1)).index == 4
        assert pending(queue.put, b"five", dedup=("p", 1)).index == 4, "it is in, and waits again"
        with pytest.raises(shmq.SyncPending):
            queue.sync(timeout=SHORT)
        slot = queue.reserve(3)
        slot.buffer[:] = b"six"
        assert pending(slot.commit).index == 5

        assert consumer.take_many(10, timeout=0) == [b"one", b"two", b"three", b"four", b"five", b"six"]
        assert queue.durable_index == 6


def test_with_a_follower_every_way_to_put_returns():
    with made() as queue, following("b"):
        assert queue.put(b"one") == 0
        assert queue.put_many([b"two", b"three"]) == range(1, 3)
        assert queue.put(b"four", dedup=("p", 1)) == queue.put(b"four", dedup=("p", 1)) == 3
        with queue.reserve(4) as slot:
            slot.buffer[:] = b"five"
        with queue.stage() as staged:
            staged.put_many([b"six"] * 300)
            adopted = queue.adopt(staged, dedup=("q", 1))
        assert len(content("b")) == adopted.stop == 305
        queue.sync()


def test_a_sync_waits_for_no_padding():
    """A follower is told of it with the next message only."""
    with made() as queue, following("b"):
        queue.put(b"one")
        with contextlib.suppress(ValueError), queue.reserve(10):
            raise ValueError
        queue.sync(timeout=30)


def test_the_nth_largest_mark_counts():
    with made(n=2, followers=("b", "c", "d")) as queue:
        pending(queue.put, b"one")
        for name in ("b", "d"):
            with pytest.raises(shmq.SyncPending):
                queue.sync(timeout=SHORT)
            follow_once("a", name, name)
        queue.sync(timeout=30)
        assert content("b") == content("d") == content("a")


def test_a_task_that_awaits_a_put_waits_for_followers():
    made().close()

    async def put() -> None:
        async with await shmq.aio.open("a") as queue:
            with pytest.raises(shmq.SyncPending):
                await queue.put(b"one", timeout=SHORT)
            with following("b"):
                assert await queue.put(b"two") == 1
                assert await queue.put_many([b"three", b"four"]) == range(2, 4)

    asyncio.run(put())
    assert len(content("b")) == 4


def test_a_remote_put_waits_for_followers():
    os.mkdir("root")
    made(path="root/orders").close()

    def serve(say) -> None:
        shmq.net.serve("root", listen="unix:s", on_start=lambda _: say("ready"))

    with Child(serve) as server:
        server.hear()
        with shmq.net.connect(f"csp+unix://{os.getcwd()}/s//orders") as queue:
            with pytest.raises(shmq.SyncPending):
                queue.put(b"one", timeout=1.0)
            with following("b", source="root/orders"):
                assert queue.put(b"two") == 1
                assert queue.put_many([b"three", b"four"]) == range(2, 4)
    assert len(content("b")) == 4


def test_a_put_that_waits_hears_that_its_queue_is_fenced():
    """Nobody will have it from there: whether the one that was promoted has it is to be looked for."""
    with made(followers=("b",)) as queue:
        pending(queue.put, b"one")
        follow_once("a", "b", "b")
        replica.promote("b")
        told = []

        def put() -> None:
            try:
                queue.put(b"two")
            except shmq.SyncPending as problem:
                told.append(problem)

        thread = threading.Thread(target=put)
        thread.start()
        until(lambda: queue.durable_index == 2)
        with pytest.raises(shmq.Fenced):
            follow_once("a", "b", "b")
        thread.join()

        assert [problem.index for problem in told] == [1]
        assert "fenced before enough followers had it" in str(told[0])


@pytest.mark.parametrize("first", ["wait", "close"])
@pytest.mark.parametrize("call", ["put", "put_many", "sync", "adopt"])
def test_found_a_put_that_waits_for_followers_outlived_its_queue(call, first, monkeypatch):
    """Whoever closes the queue in another thread ends the wait, or one about to begin; what was put is there."""
    queue = made()
    pending(queue.put, b"x")
    staged = queue.stage()
    staged.put(b"y")
    given = {"put": (b"y",), "put_many": ([b"y"],), "sync": (), "adopt": (staged,)}[call]
    began, closed = threading.Event(), threading.Event()
    caught, await_followers = [], durability.Syncer._await_followers

    def begin(self, *words):
        if first == "wait":
            self._followers()  # open by now
        began.set()
        assert first == "wait" or closed.wait(60)
        await_followers(self, *words)

    def wait():
        with pytest.raises(shmq.SyncPending) as problem:
            getattr(queue, call)(*given)
        caught.append(problem.value)

    monkeypatch.setattr(durability.Syncer, "_await_followers", begin)
    waiting = threading.Thread(target=wait)
    waiting.start()
    assert began.wait(60)
    queue.close()
    closed.set()
    waiting.join(60)
    assert "was not on those of 1 follower before this handle was closed" in str(caught[0])
    assert caught[0].index == (None if call == "sync" else 1)


def test_found_ctrl_c_that_ends_a_wait_for_followers_was_no_interrupt_of_the_command(capsys, monkeypatch):
    """What was put is said, and that it was interrupted is the exit status."""
    with made() as queue:

        def interrupted(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr(durability.Syncer, "_await_followers", interrupted)
        assert main(["put", "a", "x"]) == 130
        assert "not known whether it is on the disk (KeyboardInterrupt). Do not put" in capsys.readouterr().err
        assert queue[0].payload == b"x"


def test_what_is_rejected_waits_for_its_own_disk():
    """Nobody follows the queue of letters, which was made beside the first one."""
    with made() as queue:
        pending(queue.put, b"one")
        with queue.consumer("g", group=True, ack="explicit", dead_letter="dead") as group:
            group.get().reject("no")
        with shmq.open("dead", create=False) as dead:
            assert dead.options.durability == shmq.Durability.SYNC


# ---- marks
def test_marks_mean_nothing_in_another_epoch(monkeypatch):
    """Until the follower has been met again, whose history is compared then."""
    with made() as queue:
        pending(queue.put, b"one")
        follow_once("a", "b", "b")
        queue.sync(timeout=30)
    monkeypatch.setattr("shmq.storage.boots.boot_id", lambda: b"another boot 16b")
    with made() as queue:
        with pytest.raises(shmq.SyncPending):
            queue.sync(timeout=SHORT)
        follow_once("a", "b", "b")
        queue.sync(timeout=30)


def test_a_source_restored_from_an_older_copy_goes_by_no_newer_mark():
    with made() as queue:
        pending(queue.put, b"one")
    shutil.copytree("a/chunks", "older")
    with made() as queue:
        pending(queue.put, b"two")
        follow_once("a", "b", "b")
        queue.sync(timeout=30)
    for chunk in os.listdir("older"):
        shutil.copyfile(f"older/{chunk}", f"a/chunks/{chunk}")
    with made() as queue:
        assert pending(queue.put, b"another").index == 1
    with pytest.raises(shmq.Mismatch, match="no common history"):
        follow_once("a", "b", "b")
    with pytest.raises(shmq.Fenced, match="one of the two is an older copy"):
        follow_once("a", "b", "b", reset=True)
    assert content("b")[-1][1] == b"two"


def test_what_nobody_waited_for_is_set_aside():
    """What a follower has of before a promotion, and the one that was promoted has not: then it is another follower."""
    with made(followers=("b", "c", "d"), n=3) as queue, following("b", "c", "d"):
        queue.put(b"one")
    with made(followers=("b", "c", "d"), n=3) as queue:
        pending(queue.put, b"two")
        follow_once("a", "c", "c")
    replica.promote("b")
    with pytest.raises(shmq.Mismatch, match="no common history"):
        follow_once("b", "c", "c")
    follow_once("b", "c", "c", reset=True)
    with shmq.open("b") as queue:
        pending(queue.put, b"three")
    follow_once("b", "c", "c")
    assert content("c") == content("b")


@pytest.mark.parametrize("rest", [b"", b"\0" * 576, b"x" * 576, b"x" * 577])
def test_a_file_of_marks_that_a_power_cut_left_without_them_is_made_anew(rest):
    """Its name may be on the disk before what is in it."""
    with made() as queue:
        pending(queue.put, b"one")
    with open("a/marks.shmq", "wb") as file:
        file.write(rest)
    with made() as queue:
        with pytest.raises(shmq.SyncPending):
            queue.sync(timeout=SHORT)
        follow_once("a", "b", "b")
        queue.sync(timeout=30)


def test_a_mark_only_rises():
    with made() as queue:
        pending(queue.put_many, [b"one", b"two"])
        with Source("a", "b") as there, Follower("b") as here:
            there.begin(here.answer(there.hello()))
            there.acknowledged(Mark(0, 0, 2))
            there.acknowledged(Mark(0, 0, 1))
        queue.sync(timeout=30)


def test_what_a_killed_follower_left_in_memory_is_on_its_disk_before_it_says_so(monkeypatch):
    """It had been seen, and no sync had come to it: who comes next says where that ends, which is a mark."""
    with made() as queue, Source("a", "b") as there:
        pending(queue.put, b"one")

        def take_and_hold(say) -> None:
            here = Follower("b")
            there.begin(here.answer(there.hello()))
            for piece in there.pieces():
                here.take(piece)
            say("taken")
            hold_until_killed(say)

        with Child(take_and_hold) as child:
            child.hear()
            child.kill()
        synced = []
        asked = sync.data
        monkeypatch.setattr(sync, "data", lambda fd, what: (synced.append(os.fstat(fd).st_ino), asked(fd, what)))
        with Follower("b") as here:
            answer = here.answer(there.hello())
        assert (answer.ordinal, os.stat(next(Path("b/chunks").iterdir())).st_ino in synced) == (1, True)


def test_what_a_disk_has_refused_is_no_mark_when_it_is_asked_again(monkeypatch):
    """What it has refused once it takes for written: so that is written once more."""
    refuses = [False]
    asked = sync.data

    def data(fd, what):
        if refuses[0] and what == "chunk":
            raise OSError(errno.EIO, "refused")
        asked(fd, what)

    with made() as queue:
        pending(queue.put, b"one")
        with Source("a", "b") as there, Follower("b") as here:
            there.begin(here.answer(there.hello()))
            for piece in there.pieces():
                here.take(piece)
            monkeypatch.setattr(sync, "data", data)
            refuses[0] = True
            for _ in range(2):
                with pytest.raises(OSError, match="refused"):
                    here.flush()
            refuses[0] = False
            assert here.flush().index == 1
    with shmq.open("b") as follower:
        assert len(follower) == 1, "it was looked at when it was opened"


# ---- who counts
def test_only_who_is_listed_follows():
    made().close()
    with pytest.raises(shmq.Mismatch, match="its puts wait for b, c"):
        follow_once("a", "d", "d")
    with pytest.raises(shmq.Mismatch, match="never given up"):
        Source("a", "b", 1000)
    with shmq.open("a") as queue:
        assert queue.consumers() == {}


def test_one_follower_counts_once():
    made().close()
    follow_once("a", "b", "b")
    with pytest.raises(shmq.Mismatch, match="it is the follower 'b'"):
        follow_once("a", "b", "c")


def test_a_follower_that_was_made_anew_is_another_one():
    """What the first one has signed may be in somebody's hands, for a promotion that goes by it."""
    with made() as queue:
        pending(queue.put, b"one")
        follow_once("a", "b", "b")
        shutil.rmtree("b")
        pending(queue.put, b"two")
        for how in ({}, {"reset": True}):
            with pytest.raises(shmq.Fenced, match="another follower of that name has promised"):
                follow_once("a", "b", "b", **how)
        with pytest.raises(shmq.SyncPending):
            queue.sync(timeout=SHORT)
    with pytest.raises(shmq.Mismatch, match="promised nothing"):
        replica.fence("b")


def test_an_older_copy_of_a_follower_is_another_one():
    with made() as queue:
        pending(queue.put, b"one")
        follow_once("a", "b", "b")
        shutil.copytree("b", "older")
        pending(queue.put, b"two")
        follow_once("a", "b", "b")
        shutil.rmtree("b")
        shutil.move("older", "b")
        with pytest.raises(shmq.Fenced, match="an older copy of itself"):
            follow_once("a", "b", "b")


# ---- fences, receipts and promotions
@pytest.fixture
def three():
    """A source, and two that have all of it."""
    with made() as queue:
        pending(queue.put_many, [b"%d" % number for number in range(10)])
    for name in ("b", "c"):
        follow_once("a", name, name)
    return content("a")


def given(voter, candidate) -> str:
    return replica.fence(voter, give_to=replica.fence(candidate))


def test_whoever_is_fenced_takes_nothing_more(three):
    receipt = replica.fence("b")
    assert replica.fence("b") == receipt, "it can be said again"
    with pytest.raises(shmq.Fenced, match="takes nothing until it follows one that was promoted"):
        follow_once("a", "b", "b")
    with pytest.raises(shmq.Fenced):
        follow_once("a", "b", "b", reset=True)
    assert replica.fence("b", lift=True) == ""
    follow_once("a", "b", "b")


def test_a_promotion_wants_enough_receipts(three):
    with pytest.raises(shmq.Mismatch, match="2 of its followers b, c are to be fenced, and these are: b"):
        replica.promote("b")
    own = replica.fence("b")
    with pytest.raises(shmq.Mismatch, match="and these are: b"):
        replica.promote("b", fenced=[own, own])
    with pytest.raises(shmq.Mismatch, match="'c' has given its receipt to nobody"):
        replica.promote("b", fenced=[replica.fence("c")])

    replica.promote("b", fenced=[given("c", "b"), own])

    assert content("b") == three


def test_the_list_changes_with_a_promotion_and_it_goes_on(three):
    """The name of the new source goes, and that of the old one comes: so n followers can be there."""
    replica.promote("b", fenced=[given("c", "b")])
    with pytest.raises(shmq.Fenced):
        follow_once("a", "b", "b")
    follow_once("b", "c", "c")
    follow_once("b", "a", "a", rejoin=True)
    with shmq.open("b") as queue, following("a", source="b"):
        assert queue.options.durability == shmq.Durability.replicated(1, ("c", "a"), "b")
        queue.put(b"on")
        queue.configure(ttl=1000)
        queue.put(b"and on")
    assert content("a") == content("b")
    with pytest.raises(shmq.Mismatch, match="2 of its followers c, a"):
        replica.promote("a")
    follow_once("b", "c", "c")
    replica.promote("c", fenced=[given("a", "c")])
    assert content("c") == content("b")


def test_a_receipt_of_an_older_era_is_of_no_use(three):
    old = given("c", "b")
    replica.promote("b", fenced=[old])
    follow_once("b", "c", "c")
    with pytest.raises(shmq.Fenced):
        follow_once("a", "b", "b")
    follow_once("b", "a", "a", rejoin=True)
    with pytest.raises(shmq.Mismatch, match="is of another time"):
        replica.promote("a", fenced=[old])


def test_a_receipt_is_of_one_candidate_alone(three):
    """Else a second one could be promoted by it, that lacks what the first one has acknowledged since."""
    receipt = given("c", "b")
    with pytest.raises(shmq.Fenced, match="its receipt was given"):
        replica.fence("c", lift=True)
    with pytest.raises(shmq.Fenced, match="it has given its receipt to another follower"):
        replica.promote("c", fenced=[replica.fence("b")])
    replica.fence("b", lift=True)
    follow_once("a", "b", "b")
    with pytest.raises(shmq.Fenced):
        follow_once("a", "c", "c")
    replica.promote("b", fenced=[receipt])


def test_two_people_cannot_promote_two_followers():
    """With three followers, of which two are to have it: each has but its own and one receipt, given once."""
    with made(n=2, followers=("b", "c", "d")):
        pass
    for name in ("b", "c", "d"):
        follow_once("a", name, name)
    mine, theirs = replica.fence("b"), replica.fence("d")
    receipt = replica.fence("c", give_to=mine)
    with pytest.raises(shmq.Mismatch, match="'c' has given its receipt to another follower"):
        replica.promote("d", fenced=[receipt])
    replica.promote("b", fenced=[receipt])
    with pytest.raises(shmq.Mismatch, match="'c' has given its receipt to another follower"):
        replica.promote("d", fenced=[receipt])
    with pytest.raises(shmq.Fenced, match="another follower has it, for good"):
        replica.fence("c", give_to=theirs)
    with pytest.raises(shmq.Mismatch, match="and these are: d"):
        replica.promote("d")
    follow_once("b", "d", "d")


def test_whoever_has_more_is_to_be_promoted(three):
    with shmq.open("a") as queue:
        pending(queue.put, b"more")
        follow_once("a", "c", "c")
    with pytest.raises(shmq.Mismatch, match="that one ends at 10, and this one at 11") as caught:
        given("c", "b")
    receipt = str(caught.value).rsplit(" ", 1)[1]
    replica.promote("c", fenced=[replica.fence("b", give_to=receipt)])
    assert content("c")[-1][1] == b"more"


def test_a_mark_that_is_under_way_is_of_what_the_receipt_says(three):
    """Nobody is fenced while somebody replicates to it; what it marked before that is in its receipt."""
    with shmq.open("a") as queue:
        with Source("a", "c") as there, Follower("c") as here:
            there.begin(here.answer(there.hello()))
            pending(queue.put, b"more")
            for piece in there.pieces():
                here.take(piece)
            mark = here.flush()
            with pytest.raises(shmq.Busy):
                replica.fence("c")
            here.close()
            receipt = replica.fence("c")
            there.acknowledged(mark)  # it comes late
        queue.sync(timeout=30)
    replica.promote("c", fenced=[replica.fence("b", give_to=receipt)])
    assert content("c")[-1][1] == b"more"


def test_a_receipt_of_more_than_is_here_is_refused(three):
    """Also where the one that gave it did not know better: what it was given to has lost its end since."""
    told = receipts.read(given("c", "b"))
    longer = msgspec.structs.replace(told, ordinal=told.ordinal + 1)
    with pytest.raises(shmq.Mismatch, match="has all before index 11, and this one ends at 10: promote that one"):
        replica.promote("b", fenced=[longer.line()])
    other = msgspec.structs.replace(told, digest=told.digest ^ 1)
    with pytest.raises(shmq.Mismatch, match="has another history"):
        replica.promote("b", fenced=[other.line()])


def test_whoever_gave_its_receipt_follows_that_one_alone():
    """Though it was not needed, and not shown: the other one may still be promoted by it."""
    names = ("b", "c", "d")
    with made(n=3, followers=names) as queue, following(*names):
        queue.put(b"one")
    given("c", "d")
    given("d", "b")
    replica.promote("b")
    with pytest.raises(shmq.Fenced, match="given to another follower than to the one that was promoted"):
        follow_once("b", "c", "c")
    follow_once("b", "d", "d")
    assert content("d") == content("b")


def test_a_promotion_by_force_takes_none(three):
    replica.promote("b", force=True)
    follow_once("b", "c", "c")
    with pytest.raises(shmq.Mismatch, match="promoted since"):
        follow_once("a", "c", "c")


def test_a_follower_of_a_later_era_takes_nothing_of_the_old_source(three):
    replica.promote("b", fenced=[given("c", "b")])
    follow_once("b", "c", "c")
    with pytest.raises(shmq.Mismatch, match="a queue that was promoted since"):
        follow_once("a", "c", "c")


@pytest.mark.parametrize("n", [1, 2])
def test_with_as_many_followers_as_are_waited_for_none_but_it_is_fenced(n):
    names = ("b", "c")[:n]
    with made(n=n, followers=names) as queue, following(*names):
        queue.put(b"one")
    replica.promote("b")
    assert content("b") == content("a")


def test_whoever_lacks_what_was_there_before_its_era_has_no_voice():
    """A new disk follows the one that was promoted: alone it would be enough, and has nothing of before."""
    names = ("b", "c")
    with made(n=2, followers=names) as queue, following(*names):
        queue.put(b"one")
    shutil.rmtree("c")
    replica.promote("b")
    with Source("b", "c") as there, Follower("c") as here:
        there.begin(here.answer(there.hello()))
        here.take(next(there.pieces()))
        here.flush()
    for call in (replica.promote, replica.fence):
        with pytest.raises(shmq.Mismatch, match="promised nothing"):
            call("c")
    follow_once("b", "c", "c")
    replica.promote("c")
    assert content("c") == content("b") == content("a")


def test_of_two_that_were_promoted_one_gives_up():
    """Each by itself, as both had all. Neither can have its followers before the other one follows it."""
    names = ("b", "c")
    with made(n=2, followers=names) as queue, following(*names):
        queue.put(b"one")
    for name in names:
        replica.promote(name)
    with shmq.open("c") as lone:
        assert "b before 0, a before 0" in str(pending(lone.put, b"lost to nobody"))
    with pytest.raises(shmq.Fenced):
        follow_once("c", "b", "b")
    with pytest.raises(shmq.Fenced):
        follow_once("a", "b", "b")
    follow_once("b", "c", "c", rejoin=True)
    follow_once("b", "a", "a", rejoin=True)
    with shmq.open("b") as queue:
        pending(queue.put, b"two")
        for name in ("a", "c"):
            follow_once("b", name, name)
        queue.sync(timeout=30)
    assert content("a") == content("b") == content("c")


def test_others_promote_as_ever():
    with shmq.open("plain", durability="sync") as queue:
        queue.put(b"one")
    follow_once("plain", "copy", "copy")
    with pytest.raises(shmq.Mismatch, match="no put waits for it"):
        replica.fence("copy")
    with pytest.raises(shmq.Mismatch, match="follows no other queue"):
        replica.fence("plain")
    replica.promote("copy")


def test_what_is_no_receipt_is_refused(three):
    receipt = given("c", "b")
    other = "B" if receipt[40] == "A" else "A"
    for line in ("", "x", receipt[:-4], receipt.replace("-1-", "-2-"), receipt[:40] + other + receipt[41:]):
        with pytest.raises(shmq.BadFormat):
            replica.promote("b", fenced=[line])
    with made(path="other"):
        pass
    follow_once("other", "others", "b")
    with pytest.raises(shmq.Mismatch, match="of another queue"):
        replica.promote("b", fenced=[replica.fence("others")])


# ---- the shell
def told(capsys, *words) -> str:
    assert main(list(words)) == 0
    return capsys.readouterr().out


def test_the_verbs_do_it(capsys):
    told(capsys, "create", "a", "--durability", "replicated:1", "--followers", "b,c", "--called", "a")
    for name in ("b", "c"):
        told(capsys, "replicate", "a", name, "--once")
    assert main(["promote", "b"]) == 1
    receipt = told(capsys, "fence", "b").strip()
    other = json.loads(told(capsys, "fence", "c", "--give-to", receipt, "--json"))["receipt"]
    assert "epoch 2" in told(capsys, "promote", "b", "--fenced", other)
    assert "'c', 'a'" in told(capsys, "stat", "b")
    assert main(["create", "d", "--durability", "replicated=1"]) == 2
    assert main(["create", "d", "--durability", "sync", "--followers", "b"]) == 2

"""What a queue has that the one which it is to follow has not is set aside, counted, and never deleted."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import threading

import pytest
from following import content, files, follow_once
from support import chunk_files, killed_at

import shmq
from shmq import replica
from shmq.cli import main
from shmq.replica.follower import Follower
from shmq.replica.link import Link, to_follower, to_source
from shmq.replica.service import Stop, receive, send
from shmq.replica.source import Source


@pytest.fixture
def pair(tmp_path):
    """One of 300 messages, and its follower."""
    a, b = tmp_path / "a", tmp_path / "b"
    with shmq.open(str(a), chunk_bytes=1 << 18) as queue:
        fill(queue, 300)
        follow_once(a, b)
        yield queue, a, b


def fill(queue, count, what=b"%d ") -> None:
    for number in range(count):
        queue.put(what % number * 30)


def payloads(path) -> list[bytes]:
    return [each[1] for each in content(path)]


def kept_aside(path) -> set[bytes]:
    """All payloads that lie in the folder aside/ of that queue."""
    found = set()
    for epoch in shmq.verify(path).aside:
        made = f"{path}.kept-{epoch}"
        with contextlib.suppress(shmq.NotFound):
            shmq.repair(path, made, aside=epoch)
            found |= set(payloads(made))
            shmq.delete(made)
    return found


def is_follower_of(a, b) -> None:
    """b has all of a, is whole, and goes on with it."""
    assert content(b) == content(a)
    assert shmq.verify(b).problems == ()
    with shmq.open(str(b)) as follower:
        assert follower.stats().role == "follower"
        with pytest.raises(shmq.Fenced):
            follower.put(b"x")
    with shmq.open(str(a)) as queue:
        fill(queue, 20, b"and on %d")
    follow_once(a, b)
    assert content(b) == content(a)


def fenced(a, b, tail=10) -> list[bytes]:
    """Promote b over a, which had gone on, with *tail* messages more, and learns of it: those."""
    with shmq.open(str(a)) as queue:
        fill(queue, tail, b"only there %d ")
        gone = payloads(a)[-tail:] if tail else []
    replica.promote(b)
    with shmq.open(str(b)) as queue:
        fill(queue, 40, b"promoted %d ")
    with pytest.raises(shmq.Fenced, match="was promoted"):
        follow_once(a, b)
    return gone


@pytest.mark.parametrize("how", [{}, {"group": True, "ack": "explicit"}], ids=["alone", "group"])
def test_who_drains_a_fenced_queue_is_told_that_no_more_comes(pair, how):
    """Also who opens it after its writers have gone: there it waited for ever. A follower again, it waits for more."""
    queue, a, b = pair
    queue.close()
    fenced(a, b, tail=2)
    with shmq.open(str(a)) as again, again.consumer("c", **how) as consumer:
        for _ in range(302):
            message = consumer.get(timeout=0)
            if how:
                message.ack()
        with pytest.raises(shmq.ShutDown, match=r"is fenced, and .* has drained it"):
            consumer.get(timeout=60)
        assert len(list(again.reader(follow=True))) == 302
    follow_once(b, a, rejoin=True)
    with (
        shmq.open(str(a), read_only=True) as follower,
        follower.reader("latest", follow=True) as reader,
        pytest.raises(shmq.Empty),
    ):
        reader.get(timeout=0.01)


# ---------------------------------------------------------------- a follower of another history
@pytest.mark.parametrize(("more", "others"), [(10, 0), (10, 1500), (1500, 10)])
def test_a_follower_that_went_another_way_is_reset(pair, caplog, more, others):
    """What only it has is counted and kept, in the chunk that both have and behind it; what both have stays."""
    queue, a, b = pair
    older = a.parent / "older"
    shutil.copytree(a, older)
    fill(queue, more, b"lost %d ")
    follow_once(a, b)
    lost = payloads(a)[300:]
    with shmq.open(str(older)) as other:
        fill(other, others, b"other %d ")
    with pytest.raises(shmq.Mismatch, match="no common history"):
        follow_once(older, b)
    follow_once(older, b, reset=True)
    assert f"follows from index 300 on. {more:,} messages" in caplog.text
    is_follower_of(older, b)
    assert set(lost) <= kept_aside(b)
    assert payloads(b)[:300] == payloads(a)[:300]


def test_a_reset_is_of_what_differs_and_once(pair, caplog):
    """Where nothing does, nothing is done."""
    queue, a, b = pair
    before = os.stat(b).st_ino
    fill(queue, 10)
    follow_once(a, b, reset=True)
    assert (caplog.text, shmq.verify(b).aside, os.stat(b).st_ino) == ("", {}, before)


def test_who_lacks_what_was_retired_begins_anew_beside_what_it_had(pair, caplog):
    """A queue for readers, under another name."""
    queue, a, b = pair
    had = content(b)
    fill(queue, 6000)
    queue.purge()
    fill(queue, 5)
    with pytest.raises(shmq.Gone, match="was retired here"):
        follow_once(a, b)
    follow_once(a, b, reset=True)
    assert f"300 messages, is in {b}.aside-1" in caplog.text
    assert content(f"{b}.aside-1") == had
    is_follower_of(a, b)


def test_several_resets_keep_what_each_has_set_aside(pair, tmp_path):
    """Of one chunk, at one place, each under an epoch of its own."""
    queue, a, b = pair
    kept = set()
    for number in range(3):
        older = tmp_path / f"older-{number}"
        shutil.copytree(a, older)
        fill(queue, 5, b"%d of " + b"%d " % number)
        kept |= set(payloads(a)[-5:])
        follow_once(a, b)
        queue.close()
        a, queue = older, shmq.open(str(older))
        follow_once(a, b, reset=True)
    queue.close()
    assert kept <= kept_aside(b)
    is_follower_of(a, b)


# ---------------------------------------------------------------- a fenced one
@pytest.mark.parametrize("tail", [0, 10, 1500])
def test_a_fenced_queue_follows_the_one_that_was_promoted(pair, caplog, tail):
    """In place: what both have is not sent again; its consumers stand where those of the other one do."""
    queue, a, b = pair
    with queue.consumer("c") as consumer:
        consumer.take_many(100)
    follow_once(a, b)
    queue.close()
    gone = fenced(a, b, tail)
    with pytest.raises(shmq.Fenced, match="With rejoin it follows"):
        follow_once(b, a, "a")
    first = chunk_files(a)[0].stat().st_ino
    follow_once(b, a, "a", rejoin=True)
    assert "follows from index 300 on" in caplog.text
    assert (f"{tail:,} messages" in caplog.text) == bool(tail)
    assert set(gone) <= kept_aside(a)
    is_follower_of(b, a)
    assert chunk_files(a)[0].stat().st_ino == first
    with shmq.open(str(a), read_only=True) as there:
        assert {name: each.head for name, each in there.consumers().items()} == {"c": 100}


def test_what_was_put_once_or_adopted_in_a_tail_is_not_there_any_more(pair):
    """So it can be put again, once it is promoted itself."""
    queue, a, b = pair
    queue.put(b"both", dedup=("p", 1))
    follow_once(a, b)
    queue.put(b"only there", dedup=("p", 2))
    with queue.stage() as staged:
        for number in range(6000):
            staged.put(b"staged %d" % number * 10)
        queue.adopt(staged)
    queue.close()
    fenced(a, b)
    follow_once(b, a, "a", rejoin=True)
    is_follower_of(b, a)
    kept = kept_aside(a)
    assert {b"only there", b"staged 5999" * 10} <= kept
    replica.promote(a)
    with shmq.open(str(a)) as again:
        assert again.put(b"both", dedup=("p", 1)) == 300
        assert again.put(b"only there", dedup=("p", 2)) > 301
        assert again.verify().problems == ()


def test_of_two_that_were_promoted_one_rejoins(pair):
    """Each had gone on; the one that is fenced follows, with what only it has aside."""
    queue, a, b = pair
    c = a.parent / "c"
    follow_once(a, c, "c")
    queue.close()
    for each in (b, c):
        replica.promote(each)
        with shmq.open(str(each)) as promoted:
            fill(promoted, 10, b"%d of " + each.name.encode())
    tail = payloads(b)[300:]
    with pytest.raises(shmq.Fenced):
        follow_once(b, c, "c")
    with pytest.raises(shmq.Fenced, match="With rejoin it follows"):
        follow_once(c, b)
    with shmq.open(str(c)) as promoted:
        promoted.put(b"it is not fenced by one that is")
    follow_once(c, b, rejoin=True)
    assert set(tail) <= kept_aside(b)
    is_follower_of(c, b)


# ---------------------------------------------------------------- refused
def test_nothing_is_set_aside_of_what_is_open_or_another_queue(pair):
    """Not a byte is another one."""
    queue, a, b = pair
    other = a.parent / "other"
    with shmq.open(str(other)) as own:
        own.put(b"x")
    copied = a.parent / "copied"
    queue.copy(copied)
    shmq.open(str(copied)).close()
    for target, error in ((other, shmq.Mismatch), (copied, shmq.Unsafe)):
        before = files(target)
        with pytest.raises(error, match=r"another queue|a queue of its own"):
            follow_once(a, target, "x", rejoin=True)
        assert files(target) == before
    queue.close()
    fenced(a, b)
    before = files(a)
    with shmq.open(str(a)), pytest.raises(shmq.Busy, match="somebody has it open"):
        follow_once(b, a, "a", rejoin=True)
    assert files(a) == before
    follow_once(b, a, "a", rejoin=True)


def through(source, target, **how) -> Exception | None:
    """Through a link; what the source had to say."""
    near, far = socket.socketpair()

    def follow() -> None:
        with Follower(str(target), **how) as follower, Link(far, to_follower) as link:
            receive(follower, link)

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        with Source(str(source), "a") as there, Link(near, to_source) as link:
            send(there, link, Stop(), once=True)
    except shmq.ShmqError as problem:
        return problem
    finally:
        thread.join()
    return None


def test_through_a_link_who_listens_says_it(pair):
    """Else nothing is set aside, whatever comes."""
    queue, a, b = pair
    queue.close()
    gone = fenced(a, b)
    before = files(a)
    assert isinstance(through(b, a), shmq.Fenced)
    assert isinstance(through(b, a, reset=True), shmq.Fenced)
    assert files(a) == before
    assert through(b, a, rejoin=True) is None
    assert set(gone) <= kept_aside(a)
    is_follower_of(b, a)
    follower = Follower(str(a))
    with follower, Source(str(b), "a") as there:
        answer = follower.answer(there.hello())
        with pytest.raises(shmq.Unsafe, match="nobody asked for that"):
            follower.reset(there.common(answer))


# ---------------------------------------------------------------- killed
@pytest.mark.parametrize("whole", [False, True])
def test_killed_before_every_call_that_changes_something(pair, tmp_path, whole):
    """Each message of the tail is in the queue or in what is aside, and who comes next goes on."""
    queue, a, b = pair
    queue.close()
    gone = set(fenced(a, b, 1500))
    if whole:
        with shmq.open(str(b)) as promoted:
            fill(promoted, 1500, b"more %d ")
            promoted.purge()
            fill(promoted, 3, b"and %d ")
    step = 0
    while True:
        at = tmp_path / f"fenced-{step}"
        shutil.copytree(a, at)
        shmq.open(str(at)).close()  # of a copy
        killed = killed_at(step, lambda: follow_once(b, at, "a", rejoin=True))  # noqa: B023
        with contextlib.suppress(shmq.NotFound):  # it was moved, and none was made yet
            shmq.open(str(at), create=False).close()
            assert shmq.verify(at).problems == ()
            assert whole or content(at)[:300] == content(a)[:300]
        follow_once(b, at, "a", rejoin=True)
        assert content(at) == content(b)
        assert shmq.verify(at).problems == ()
        beside = [place for place in tmp_path.iterdir() if place.name.startswith(f"fenced-{step}.aside-")]
        there = kept_aside(at).union(*(payloads(place) for place in beside))
        assert gone <= there
        if not killed:
            break
        step += 23 if whole else 9
    assert step > 30


def test_a_command_rejoins(pair, capfd, monkeypatch):
    queue, a, b = pair
    monkeypatch.setattr("signal.signal", lambda *_: None)
    queue.close()
    fenced(a, b)
    words = ["replicate", "--once", "--name", "a", str(b), str(a)]
    assert main(words) == 1
    assert "With rejoin it follows" in capfd.readouterr().err
    assert main([*words, "--rejoin"]) == 0
    assert content(a) == content(b)
    assert main(["replicate", "--reset", str(a), "unix:door"]) == 2

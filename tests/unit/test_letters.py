"""What a group does with messages that go to another queue: when that is full, far away, many, or somebody else's."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time

import pytest
from support import Child, hold_until_killed, until

import shmq
from shmq.cli import main
from shmq.storage import ring as rings
from shmq.storage import shm
from shmq.taking import dead

WAIT = 60
"""Seconds after which something that should happen at once is taken not to happen."""


def join(queue, name="g", **options):
    return queue.consumer(name, group=True, **{"ack": "explicit", **options})


def payloads(place):
    with shmq.open(place, create=False) as queue:
        return [message.payload for message in queue.reader()]


@pytest.fixture
def full(path):
    """The group's dead letters, with room for one."""
    with shmq.open(f"{path}.g.dead", options=shmq.Options(max_messages=1)) as letters:
        letters.consumer(dead.GROUP, group=True, ack="explicit").close()
        yield letters


def make_room(letters):
    with letters.consumer(dead.GROUP, group=True, ack="explicit") as operator:
        while True:
            try:
                operator.get(0).ack()
            except shmq.Empty:
                return


# ---------------------------------------------------------------- no room
def test_a_reject_into_a_full_queue_is_full_at_once_and_the_message_is_still_held(queue, full):
    queue.put_many([b"one", b"two", b"good"])
    with join(queue) as member:
        one, two = member.get_many(2, 0)
        one.reject()
        with pytest.raises(shmq.Full, match=r"message 1 of .* still holds it"):
            two.reject("no room")
        assert member.pending == 1
        assert member.get(0).payload == b"good"
        make_room(full)
        two.reject("again")
        assert member.head == 2
    assert payloads(full.path)[-1] == b"two"


@pytest.mark.parametrize("verb", ["ack", "nack", "extend"])
def test_what_could_not_be_rejected_can_be_finished_otherwise(queue, full, verb):
    queue.put_many([b"one", b"two"])
    with join(queue, lease=1000) as member:
        one, two = member.get_many(2, 0)
        one.reject()
        with pytest.raises(shmq.Full):
            two.reject()
        assert queue.consumers()["g"].group.unmoved == 0  # nothing was left aside
        two.extend(1000) if verb == "extend" else getattr(two, verb)()
        if verb == "nack":
            again = member.get(WAIT)
            assert (again.payload, again.attempts) == (b"two", 2)
        else:
            with pytest.raises(shmq.Empty):
                member.get(0)
        assert member.head == (1 if verb == "extend" else 2)


def test_poison_that_finds_no_room_is_left_aside_and_the_others_go_on(queue, full):
    queue.put_many([b"bad", b"bad", b"good"])
    with join(queue, max_attempts=1) as member:
        with pytest.warns(RuntimeWarning, match="cannot move 1 messages to .*nothing is lost"):
            good = _poison_aside(member)
        assert [message.payload for message in good] == [b"good"]
        stats = queue.stats().consumers["g"].group
        assert (stats.parked, stats.moved, stats.unmoved) == (1, 1, 1)
        make_room(full)
        until(lambda: not _all(member) and queue.stats().consumers["g"].group.moved == 2, WAIT)
    with full.reader() as letters:
        assert [(letter.payload, letter.headers["shmq.attempts"]) for letter in letters] == [(b"bad", 1)] * 2


def _poison_aside(member):
    """What is left when two were given back for the last time: they go to the dead letters at once, if they can."""
    for message in member.get_many(2, 0):
        message.nack()
    return _all(member)


def _all(member):
    found = []
    while True:
        try:
            found.append(member.get(0))
        except shmq.Empty:
            return found


@pytest.mark.parametrize("option", ["dead_letter", "expire_to"])
@pytest.mark.parametrize("name", ["x" * 300, "x" * 5000, "\ud800", "a\ud800b"])
def test_a_name_that_no_queue_can_have_is_refused_when_the_group_is_opened(queue, option, name):
    with pytest.raises(
        ValueError, match=f"cannot open consumer 'g' of .* with {option}='.*that is not the name of a queue"
    ):
        queue.consumer("g", group=True, ack="explicit", **{option: name})


@pytest.mark.parametrize("name", ["x" * 300, "\ud800"])
def test_a_stored_name_that_no_queue_can_have_is_corrupt(queue, name):
    with pytest.raises(
        shmq.Corrupt, match=f"cannot open consumer 'g' of {queue.path} with dead_letter='.*is not the name"
    ):
        dead.check_paths(queue._session, "g", {"dead_letter": name}, named_here={})


def test_a_directory_with_other_files_is_refused_when_the_group_is_opened(queue, tmp_path):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "letter.txt").write_text("x")
    with pytest.raises(shmq.BadFormat, match=r"with dead_letter='taken': .*there are other files in it \(letter.txt\)"):
        queue.consumer("g", group=True, ack="explicit", dead_letter="taken")
    (tmp_path / "taken" / "letter.txt").unlink()
    queue.put(b"x")
    with queue.consumer("g", group=True, ack="explicit", dead_letter="taken") as member:
        member.get(30).reject("no")
    with shmq.open(tmp_path / "taken", create=False) as letters:
        assert len(letters) == 1


def test_what_is_left_aside_while_the_other_queue_rests_is_counted(queue, path):
    with shmq.open(f"{path}.g.dead", options=shmq.Options(max_messages=1)) as letters:
        letters.put(b"full")
        queue.put_many([b"x"] * 7)
        with queue.consumer("g", group=True, ack="explicit", max_attempts=1) as member:
            first, *others = member.get_many(7)
            with pytest.warns(RuntimeWarning, match="cannot move 1 messages"):
                first.nack()
            for message in others:
                message.nack()
            with pytest.raises(shmq.Empty):
                member.get(0)
            figures = queue.consumers()["g"].group
            assert (figures.unmoved, figures.parked) == (7, 7)


def test_while_one_thread_waits_for_the_disk_the_others_get_and_ack(queue, path, monkeypatch):
    """The copy of a rejected message is on its way; nobody else waits for that."""
    at_it, go_on = threading.Event(), threading.Event()
    real = dead.Mover.sync

    def sync(self, index):
        at_it.set()
        assert go_on.wait(WAIT)
        real(self, index)

    queue.put_many([b"bad", b"good"])
    monkeypatch.setattr(dead.Mover, "sync", sync)
    with join(queue) as member:
        bad = member.get(0)
        thread = threading.Thread(target=bad.reject)
        thread.start()
        assert at_it.wait(WAIT)
        good = member.get(0)
        good.ack()
        assert (good.payload, member.pending) == (b"good", 0)
        go_on.set()
        thread.join(WAIT)
        assert member.head == 2
    assert payloads(f"{path}.g.dead") == [b"bad"]


@pytest.mark.parametrize("ack", ["explicit", "auto"])
def test_what_expired_and_finds_no_room_is_moved_when_there_is_some(queue, tmp_path, ack):
    """Also where a message counts as finished once it was handed out: it was not."""
    with shmq.open(str(tmp_path / "old"), options=shmq.Options(max_messages=1)) as old:
        old.consumer(dead.GROUP, group=True, ack="explicit").close()
        queue.put_many([b"0", b"1", b"2"], ttl=0)
        queue.put(b"good")
        with join(queue, ack=ack, expire_to="old") as member:
            with pytest.warns(RuntimeWarning, match="cannot move 2 messages"):
                assert [message.payload for message in _all(member)] == [b"good"]
            seen = [b"0"]
            for number in (2, 3):
                make_room(old)
                until(lambda many=number: not _all(member) and old.next_index == many, WAIT)
                seen.append(old[-1].payload)
            assert sorted(seen) == [b"0", b"1", b"2"]


# ---------------------------------------------------------------- looking on
def test_a_new_member_whose_first_messages_are_poison_finds_nothing_and_says_so(queue, path):
    queue.put(b"bad")
    with join(queue, max_attempts=1) as member:
        member.get(0).nack()
    with join(queue) as member, pytest.raises(shmq.Empty):
        member.get(timeout=0)
    assert payloads(f"{path}.g.dead") == [b"bad"]


@pytest.mark.parametrize("timeout", [0, 0.01])
def test_get_finds_the_good_one_behind_all_that_expired(queue, timeout):
    for _ in range(3):
        queue.put_many([b"old"] * 1000, ttl=0)
    queue.put(b"good")
    with join(queue, expire_to="old") as member:
        assert member.get(timeout).payload == b"good"


def test_one_sync_serves_many_that_expired(queue, tmp_path, monkeypatch):
    syncs = []
    real = dead.Mover.sync
    monkeypatch.setattr(dead.Mover, "sync", lambda self, index: (syncs.append(index), real(self, index)))
    queue.put_many([b"%d" % number for number in range(3000)], ttl=0)
    with join(queue, expire_to="old") as member, pytest.raises(shmq.Empty):
        member.get(0)
    assert len(syncs) <= 4
    assert payloads(str(tmp_path / "old")) == [b"%d" % number for number in range(3000)]


def test_what_expired_is_moved_though_its_finder_goes_on_with_something_else(queue, tmp_path):
    queue.put(b"old", ttl=0)
    queue.put(b"good")
    with join(queue, expire_to="old") as member:
        assert member.get(0).payload == b"good"
        until(lambda: member.head == 1, WAIT)
        assert payloads(str(tmp_path / "old")) == [b"old"]


@pytest.mark.parametrize("verb", ["take", "take_many", "again"])
def test_what_cannot_be_decoded_is_not_acknowledged(make, verb):
    queue = make(codec="json")
    with queue.reader(), shmq.open(queue.path) as raw:
        dead._Raw(raw._session).put(b"{not json")
        with join(queue) as member:
            if verb == "again":
                member.get(0).nack()
            with pytest.raises(Exception, match=r"malformed|JSON|decode"):
                member.take_many(5, 0) if verb == "take_many" else member.take(0)
            assert (member.head, member.pending) == (0, 0) if verb != "again" else member.pending == 0
            again = member.get(WAIT)
            assert (again.index, bytes(again.view)) == (0, b"{not json")


@pytest.mark.parametrize("verb", ["take", "take_many"])
def test_what_one_alone_cannot_decode_is_not_acknowledged_either(make, verb):
    queue = make(codec="json")
    with shmq.open(queue.path) as raw:
        queue.put(1)
        dead._Raw(raw._session).put(b"{not json")
        queue.put(2)
    with queue.consumer("one", ack="explicit") as consumer:
        assert consumer.take(0) == 1
        for _ in range(2):
            with pytest.raises(Exception, match=r"malformed|JSON|decode"):
                consumer.take_many(5, 0) if verb == "take_many" else consumer.take(0)
            assert consumer.head == 1
        consumer.get(0).ack()
        assert (consumer.take(0), consumer.head) == (2, 3)


# ---------------------------------------------------------------- opening
def test_a_window_that_contradicts_the_group_is_a_mismatch(queue):
    join(queue, window=128).close()
    with pytest.raises(shmq.Mismatch, match=r"window=64.*made with window=128"):
        join(queue, window=64)
    with join(queue, window=128), join(queue):
        pass


def test_a_start_is_for_a_new_name_only(queue):
    queue.put_many([b"0", b"1"])
    join(queue).close()
    with join(queue, start="latest") as member:
        assert member.get(0).payload == b"0"


@pytest.mark.parametrize("option", ["dead_letter", "expire_to"])
@pytest.mark.parametrize(
    ("target", "problem"),
    [("no/such/x", shmq.NotFound), ("file", shmq.BadFormat), ("file/x", shmq.NotFound), ("q", shmq.Mismatch)],
)
def test_a_path_where_no_letter_can_go_is_found_when_the_group_is_opened(queue, tmp_path, option, target, problem):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(problem, match=f"cannot open consumer 'g' of .* with {option}='{target}'"):
        join(queue, **{option: target})
    assert queue.consumers() == {}


@pytest.mark.parametrize("option", ["dead_letter", "expire_to"])
@pytest.mark.parametrize("stored", ["../x", "/tmp/shmq-outside-the-queue", "sub/x", "..", ".", "", "a/../../x"])
def test_a_stored_path_that_leads_away_is_not_followed_by_who_named_none(queue, path, option, stored):
    """In the archive of somebody else. Nothing is made there, and who trusts it says so."""
    join(queue).close()
    home = queue._session.home
    options = {**rings.options(home, "g"), option: stored}
    content = json.dumps(options, separators=(",", ":"), sort_keys=True).encode()
    from shmq import _native

    head = rings._GROUP.pack(rings._GROUP_MAGIC, home.queue_id, len(content), _native.crc32c(content))
    with open(f"{path}/consumers/g.group", "wb") as file:
        file.write(head + content)
    queue.put(b"x", ttl=0)
    with pytest.raises(shmq.Unsafe if "/" in stored else shmq.NotFound, match="cannot open consumer 'g'"):
        join(queue)
    assert not os.path.exists("/tmp/shmq-outside-the-queue")


def test_a_path_elsewhere_is_for_who_names_it(queue, tmp_path):
    (tmp_path / "away").mkdir()
    away = str(tmp_path / "away" / "x")
    queue.put(b"bad")
    with join(queue, dead_letter=away) as member:
        member.get(0).nack()
    with pytest.raises(shmq.Unsafe, match="names it, too"):
        join(queue)
    with join(queue, dead_letter=away) as member:
        member.get(0).reject()
    assert payloads(away) == [b"bad"]


def test_a_backlog_of_what_expired_is_moved_in_seconds(queue, tmp_path):
    for _ in range(2):
        queue.put_many([b"x"] * 8000, ttl=0)
    began = time.monotonic()
    with join(queue, expire_to="old") as member, pytest.raises(shmq.Empty):
        member.get(0)
    assert time.monotonic() - began < 10
    assert len(payloads(str(tmp_path / "old"))) == 16000


# ---------------------------------------------------------------- volatile queues
def dying(place, **options):
    """Open it, reject a message, say so, and be killed."""

    def die(say):
        queue = shmq.open(place)
        queue.put(b"bad")
        join(queue, **options).get(0).reject()
        hold_until_killed(say)

    return die


def left(root):
    base = shm.base()
    return sorted(os.listdir(base)) if os.path.isdir(base) else []


@pytest.mark.parametrize(
    ("place", "options", "letters"),
    [
        ("shm:orders", {}, "shm:orders.g.dead"),
        ("shm:orders", {"dead_letter": "bad.ones"}, "shm:bad.ones"),
        ("shm:orders", {"dead_letter": "shm:bad.ones"}, "shm:bad.ones"),
        (None, {}, None),
    ],
)
def test_letters_of_a_volatile_queue_last_as_long_as_it_has_users(shm_root, place, options, letters):
    """Whoever wrote them may go; the last user of the queue takes them along."""
    with shmq.open(place) as queue:
        letters = letters or f"{queue.place}.g.dead"
        queue.put(b"bad")
        with join(queue, **options) as member:
            member.get(0).reject()
        assert payloads(letters) == payloads(letters) == [b"bad"]
        assert shmq.gc() == []
        assert payloads(letters) == [b"bad"]
    assert left(shm_root) == []


def test_letters_that_somebody_reads_last_until_then_and_are_not_inherited(shm_root):
    queue = shmq.open("shm:orders")
    queue.put(b"bad")
    with join(queue) as member:
        member.get(0).reject()
    letters = shmq.open("shm:orders.g.dead", create=False)
    queue.close()
    assert [message.payload for message in letters.reader()] == [b"bad"]
    with shmq.open("shm:orders"):
        letters.close()
        with pytest.raises(shmq.NotFound):
            shmq.open("shm:orders.g.dead", create=False)
    assert left(shm_root) == []


@pytest.mark.parametrize("who", ["gc", "the next opener", "who looks for them"])
def test_letters_of_a_queue_whose_users_were_killed_go_with_it(shm_root, who):
    with Child(dying("shm:orders")) as child:
        child.hear()
        assert shmq.gc() == []
        assert payloads("shm:orders.g.dead") == [b"bad"]
        child.kill()
    if who == "gc":
        assert sorted(shmq.gc()) == ["shm:orders", "shm:orders.g.dead"]
    elif who == "the next opener":
        with shmq.open("shm:orders") as queue:
            queue.put(b"worse")
            with join(queue) as member:
                member.get(0).reject()
            assert payloads("shm:orders.g.dead") == [b"worse"]
    else:
        with pytest.raises(shmq.NotFound):
            shmq.open("shm:orders.g.dead", create=False)
        shmq.gc()
    assert left(shm_root) == []


def test_what_expired_in_a_volatile_queue_lasts_as_long_too(shm_root):
    with shmq.open("shm:orders") as queue:
        queue.put(b"old", ttl=0)
        with join(queue, expire_to="old") as member, pytest.raises(shmq.Empty):
            member.get(0)
        assert payloads("shm:old") == [b"old"]
    assert left(shm_root) == []


def test_two_queues_may_share_their_letters(shm_root):
    with shmq.open("shm:one") as one:
        with shmq.open("shm:two") as two:
            for queue in (one, two):
                queue.put(queue.place.encode())
                with join(queue, dead_letter="bad") as member:
                    member.get(0).reject()
        assert payloads("shm:bad") == [b"shm:one", b"shm:two"]
    assert left(shm_root) == []


def test_letters_of_a_volatile_queue_are_put_back(shm_root, capsys):
    with shmq.open("shm:orders") as queue:
        queue.put(b"bad")
        with join(queue) as member:
            member.get(0).reject("why not")
            assert main(["dead", "requeue", "shm:orders.g.dead", "0"]) == 0
            assert member.get(WAIT).payload == b"bad"
    assert "message 1 of shm:orders" in capsys.readouterr().out


def test_letters_of_a_queue_on_the_disk_do_not_go_to_memory(queue):
    with pytest.raises(shmq.Mismatch, match="must not be in memory only"):
        join(queue, dead_letter="shm:bad")


def test_a_letter_that_claims_to_be_from_elsewhere_is_not_put_back_there(queue, tmp_path, capsys):
    """Somebody else may have written it."""
    (tmp_path / "away").mkdir()
    with shmq.open(tmp_path / "away" / "victim") as victim, shmq.open(f"{queue.path}.g.dead") as letters:
        headers = {"shmq.queue": victim.path, "shmq.origin": [queue.id, 1, 0, "g", "rejected"]}
        letters.put(b"evil", headers=headers)
        assert main(["dead", "requeue", letters.path, "0"]) == 1
        assert "that is another queue now" in capsys.readouterr().err
        assert len(victim) == 0


def test_found_a_close_that_moved_what_was_set_aside_forgot_the_thread_that_would_have(queue, path):
    """It lived on for a moment behind the close, and with it everything that the member had open."""
    with join(queue, expire_to="expired") as group:
        queue.put(b"too late", ttl=1e-9)
        queue.put(b"in time")
        assert group.get(timeout=WAIT).payload == b"in time"
        assert group._aside._timer is not None  # it is asked for, and may not be there yet
    assert "shmq-mover" not in {thread.name for thread in threading.enumerate()}
    assert payloads(os.path.join(os.path.dirname(path), "expired")) == [b"too late"]


def test_found_what_expired_was_copied_twice_when_the_first_copy_may_not_be_on_the_disk(queue, path, monkeypatch):
    """It went back to the group as if nobody had copied it; too few descriptors for the sync were enough."""
    queue.put_many([b"old"] * 3, ttl=0)
    sync = dead.Mover.sync

    def refused(mover, index):
        raise shmq.SyncPending(f"message {index} may not be on the disk", index)

    with join(queue, expire_to="old") as member, join(queue, expire_to="old") as other:
        monkeypatch.setattr(dead.Mover, "sync", refused)
        with pytest.warns(RuntimeWarning, match="cannot move 3 messages"), pytest.raises(shmq.Empty):
            member.get(0)
        monkeypatch.setattr(dead.Mover, "sync", sync)
        until(lambda: (with_nothing(other), not queue.consumers()["g"].lag)[1])
    assert payloads(f"{os.path.dirname(path)}/old") == [b"old"] * 3


def test_found_what_was_tried_again_and_interrupted_was_to_be_moved_twice(queue, monkeypatch):
    """It stood among what was interrupted, and among what perhaps is not on the disk."""
    queue.put_many([b"old"] * 3, ttl=0)

    def refused(mover, index):
        raise shmq.SyncPending(f"message {index} may not be on the disk", index)

    def interrupted(moving, moves, outcomes):
        raise KeyboardInterrupt

    with join(queue, expire_to="old") as member:
        with monkeypatch.context() as broken:
            broken.setattr(dead.Mover, "sync", refused)
            broken.setattr(member._aside, "move_soon", lambda: None)
            with pytest.warns(RuntimeWarning, match="cannot move 3 messages"), pytest.raises(shmq.Empty):
                member.get(0)
            broken.setattr(dead.Moving, "carry_out", interrupted)
            member._aside.take_up_copied()
            with pytest.raises(KeyboardInterrupt):
                member._aside._move_now()
        assert (len(member._aside), len(member._aside._copied)) == (3, 0)


def with_nothing(member):
    with pytest.raises(shmq.Empty):
        member.get(0)


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of a listing that was interrupted
def test_found_a_reject_that_was_interrupted_once_left_its_message_to_nobody(queue, path):
    """Between the two lines that noted it; the floor stood still, and a loop over the finished queue did not end."""
    from interrupts import Round

    member = join(queue)
    queue.put(b"x")
    member.get(0).reject("warm")
    rejects = 1
    for place in range(1, 400):
        this = Round(place)
        queue.put(b"x")
        message = member.get(5)
        with this.interrupted():
            message.reject("bad")
        with contextlib.suppress(shmq.LeaseLost):  # the mover was quicker: its letter is counted below
            message.reject("bad")
        rejects += 1
        if not this.raised:
            break
    member.close()
    assert queue.consumers()["g"].lag == 0
    with shmq.open(f"{path}.g.dead", create=False) as letters:
        assert len(letters) == rejects


def test_found_a_reason_with_what_no_utf8_can_say_was_a_unicode_error(queue, path):
    """A name of a file, as the system calls give it."""
    member = join(queue)
    queue.put(b"x")
    member.get(5).reject("cannot read \udcff\udc80.txt")
    member.close()
    with shmq.open(f"{path}.g.dead", create=False) as letters:
        assert letters[0].headers["shmq.reason"] == "cannot read \\udcff\\udc80.txt"

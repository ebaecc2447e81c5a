"""How much is not finished: exactly, whoever asks, whatever became of the indexes in between."""

from __future__ import annotations

import time

import pytest
from support import DEADLINE, Child, chunk_files, hold_until_killed, make_unclean, patch, peek

import shmq
from shmq.cli import main
from shmq.storage.chain import Chain

RESOLVED_HINT = 320  # in a chunk's header


def gap(queue, count=3):
    """Indexes that never become messages."""
    for _ in range(count):
        queue.reserve(8).abort()


def group(queue, name="g", **given):
    return queue.consumer(name, group=True, ack="explicit", **given)


def test_padding_is_no_message(queue):
    """Before, between and behind; in chunks that are full, and for a group that has walked over some of it."""
    consumer, member = queue.consumer("c"), group(queue)
    gap(queue)
    for _ in range(50):
        queue.put(bytes(1000))
        gap(queue, 1)
    gap(queue)
    assert consumer.lag == member.lag == 50
    assert (queue.consumers()["c"].lag, queue.consumers()["g"].lag) == (50, 50)
    consumer.take_many(10)
    while consumer.lag > 7:
        consumer.take()
    held = [member.get() for _ in range(30)]
    for message in held[1:]:
        message.ack()
    assert (consumer.lag, member.lag) == (7, 21)
    assert member.floor == held[0].index == queue.consumers()["g"].floor
    held[0].ack()
    for message in member.get_many(20, timeout=0):
        message.ack()
    while member.lag:
        member.take(timeout=DEADLINE)
    while consumer.lag:
        consumer.take(timeout=DEADLINE)
    assert member.floor == queue.consumers()["c"].floor == queue.next_index


def test_a_gap_of_an_epoch_is_no_message(tmp_path):
    """A recovery goes on far above what was given."""
    path = str(tmp_path / "q")
    with shmq.open(path) as queue:
        queue.put(b"a")
        queue.consumer("c").close()
        group(queue).close()
        queue.sync()
    make_unclean(path)
    with shmq.open(path) as queue:
        queue.put(b"b")
        assert queue.next_index > 1000
        with queue.consumer("c") as consumer, group(queue) as member:
            assert consumer.lag == member.lag == 2
            assert consumer.take() == member.take() == b"a"
            assert consumer.lag == member.lag == 1
            assert consumer.take() == member.take() == b"b"
            assert consumer.lag == member.lag == 0
            assert [each.lag for each in queue.consumers().values()] == [0, 0]
    with shmq.open(path, create=False, read_only=True) as looking:
        assert [each.lag for each in looking.consumers().values()] == [0, 0]


def test_what_is_parked_handed_out_or_waits_counts_and_what_is_finished_above_the_head_does_not(queue):
    """As `while c.lag` needs it."""
    queue.put_many([b"x"] * 10)
    queue.put(b"later", delay=3600)
    with group(queue) as member:
        held = member.get_many(6)
        held[0].nack(delay=3600)
        held[3].ack()
        held[4].ack()
        for message in member.get_many(4):
            message.ack()
        with pytest.raises(shmq.Empty):
            member.get(timeout=0)
        stats = queue.consumers()["g"]
        assert (member.lag, stats.lag, stats.pending, stats.group.parked) == (5, 5, 3, 2)
        assert (member.floor, stats.floor, member.head) == (0, 0, 1)
        held[1].reject("no")
        held[2].nack()
        assert member.lag == 4
        queue.consumers()


def test_keys_that_wait_count(queue):
    """In the window and parked."""
    queue.put_many([b"x"] * 5, keys=[b"k"] * 5)
    with group(queue, ordered_by="key") as member:
        first = member.get()
        with pytest.raises(shmq.Empty):
            member.get(timeout=0)
        stats = queue.consumers()["g"]
        assert (member.lag, stats.group.waiting, stats.pending) == (5, 4, 1)
        first.ack()
        while member.lag:
            member.take(timeout=DEADLINE)


def test_out_of_order_acknowledgements_of_one_process(queue):
    """All know them."""
    queue.put_many([b"x"] * 5)
    with queue.consumer("c", ack="explicit") as consumer:
        messages = consumer.get_many(3)
        messages[1].ack()
        stats = queue.consumers()["c"]
        assert (consumer.lag, consumer.pending, stats.lag, stats.pending) == (4, 2, 4, 2)
        messages[0].ack()
        assert (consumer.lag, queue.consumers()["c"].lag) == (3, 3)


@pytest.mark.parametrize("given", [{}, {"ack": "explicit"}, {"group": True}, {"group": True, "ack": "explicit"}])
def test_what_has_expired_does_not_stay_for_ever(queue, given):
    """Once somebody has asked, there is nothing left to do."""
    queue.put_many([b"x"] * 3, ttl=0.001)
    consumer = queue.consumer("c", **given)
    assert consumer.lag == 3
    time.sleep(0.002)
    with pytest.raises(shmq.Empty):
        consumer.get(timeout=0)
    assert consumer.lag == 0


def test_found_what_had_expired_before_what_is_held_is_finished(make):
    """Who was handed the next message has passed it: it counts for nobody, and a bound has room for another one."""
    queue = make(max_messages=2)
    queue.put(b"late", ttl=0.0)
    queue.put(b"held")
    with queue.consumer("c", ack="explicit") as consumer:
        assert consumer.get(timeout=0).index == 1
        assert (consumer.head, consumer.lag, queue.consumers()["c"].lag) == (1, 1, 1)
        assert queue.put(b"next", timeout=0) == 2


def test_found_a_claim_of_the_dead_at_the_end_of_a_full_chunk_is_no_message(make):
    """The chunks behind it are looked at, and so is what they follow."""
    queue = make(chunk_bytes=16384)
    queue.consumer("c").close()
    queue.put(b"first")

    def claim(say):
        slot = queue.reserve(8)
        say(slot.index)
        hold_until_killed(say)

    with Child(claim) as child:
        assert child.hear() == "1"
        child.kill()
    slot = queue.reserve(20_000)  # which begins a chunk
    assert (len(queue), queue.consumers()["c"].lag) == (2, 2)
    slot.abort()
    assert (len(queue), queue.consumers()["c"].lag) == (1, 1)


def test_found_what_retention_has_taken_from_its_holder_is_not_behind(make):
    """Neither for whoever holds it nor for anybody else."""
    queue = make(retention=shmq.Retention.bytes(40_000))
    queue.put(b"held")
    with queue.consumer("c", ack="explicit") as consumer:
        consumer.get(timeout=0)
        for _ in range(100):
            queue.put(bytes(1000))
        assert queue.first_index > 1
        assert consumer.lag == queue.consumers()["c"].lag == len(queue)
        assert consumer.pending == 1


def test_what_was_retired_or_dropped_is_not_behind(make):
    """Nobody can finish it any more."""
    queue = make(retention=shmq.Retention.bytes(40_000))
    consumer = queue.consumer("c")
    for _ in range(100):
        queue.put(bytes(1000))
    assert queue.first_index > 0
    assert consumer.lag == queue.consumers()["c"].lag == len(queue)


def test_after_the_last_allowed_nack_the_letter_is_there(queue):
    """Whoever gives it back for the last time moves it."""
    queue.put(b"bad")
    with group(queue, max_attempts=2, dead_letter="letters") as member:
        member.get().nack()
        assert member.lag == 1
        second = member.get(timeout=DEADLINE)
        second.nack(delay=3600)
        assert (member.lag, member.pending) == (0, 0)
        second.nack()  # what its holder has ended stays as it is
        assert (member.lag, member.pending) == (0, 0)
        with shmq.open(queue.path.rpartition("/")[0] + "/letters", create=False) as letters:
            (letter,) = letters.reader()
            assert letter.headers["shmq.attempts"] == 2
            assert letter.headers["shmq.cause"] == "attempts"


def test_the_age_of_the_oldest(queue):
    """Of what is not finished, by its time; parked messages too."""
    hour = time.time_ns() - 3600 * 10**9
    queue.put(b"old", time_ns=hour)
    queue.put(b"new")
    with group(queue) as member, queue.consumer("c") as alone:
        assert 3600 <= queue.consumers()["c"].oldest < 3700
        old = member.get()
        alone.take()
        old.nack(delay=100)
        member.take()
        assert 3600 <= queue.consumers()["g"].oldest < 3700
        assert queue.consumers()["c"].oldest < 100
        alone.take()
        assert queue.consumers()["c"].oldest is None


def test_it_does_not_cost_the_history(queue):
    """Nothing is walked over where nothing is missing; and else once."""
    consumer, member = queue.consumer("c"), group(queue)
    for _ in range(20):
        queue.put_many([b"x"] * 100)
    gap(queue, 1)
    assert consumer.lag == 2000
    walked = queue._session.joined().missing._parts
    assert [part.sealed for part in walked.values()].count(False) == 1
    before = dict(walked)
    assert (consumer.lag, member.lag) == (2000, 2000)
    assert queue._session.joined().missing._parts == before


def test_what_was_found_settled_is_not_walked_over_again(queue, path):
    """Whoever asks notes in the chunk how far everything is settled."""
    consumer = queue.consumer("c")
    queue.put_many([b"x"] * 100)
    gap(queue)
    assert peek(chunk_files(path)[-1], RESOLVED_HINT) == 0
    assert consumer.lag == 100
    noted = peek(chunk_files(path)[-1], RESOLVED_HINT)
    assert noted & (1 << 36) - 1 == queue.next_index
    queue.put(b"y")
    assert consumer.lag == 101
    assert peek(chunk_files(path)[-1], RESOLVED_HINT) > noted


def test_a_nack_opens_no_chunk(queue, monkeypatch):
    """Where the end is, its group knows from what it has mapped."""
    queue.put_many([b"x"] * 3)
    with group(queue) as member:
        first, second, _ = member.get_many(3)
        first.nack()
        opened = []
        usual = Chain.open
        monkeypatch.setattr(Chain, "open", lambda *given, **more: opened.append(given) or usual(*given, **more))
        second.nack()
        assert opened == []


@pytest.mark.parametrize("damage", [b"\0", b"\x09"])
def test_a_group_with_a_damaged_ring_is_listed_with_what_is_wrong(queue, path, capsys, damage):
    """Its checkpoint tells what is known to be finished; all else may be to be done, and counts."""
    queue.put_many([b"x"] * 10)
    with group(queue) as member:
        for message in member.get_many(4):
            message.ack()
    queue.consumer("c").close()
    patch(f"{path}/consumers/g.ring", 0 if damage == b"\0" else 12, damage)
    found = queue.consumers()
    assert list(found) == ["c", "g"]
    assert found["c"].problem is None
    assert found["g"].group is None
    assert "g.ring" in found["g"].problem
    assert (found["g"].head, found["g"].lag, found["g"].floor) == (4, 6, 4)
    for verb in (["stat", path], ["ls", path], ["consumer", "ls", path]):
        assert main(verb) == 0
        assert "g.ring" in capsys.readouterr().out


def test_listings_show_it(queue, capsys):
    """ls, consumer ls and stat, for people."""
    queue.put_many([b"x"] * 3)
    with group(queue) as member:
        member.get()
        member.get().nack(delay=3600)
        with queue.consumer("alone"):
            for verb in (["ls"], ["consumer", "ls"], ["stat"]):
                assert main([*verb, queue.place]) == 0
                shown = capsys.readouterr().out
                for word in ("pending", "parked", "waiting", "oldest"):
                    assert word in shown.lower(), (verb, shown)


# ---------------------------------------------------------------- where a group stands
def test_one_parked_far_behind_hides_nothing(queue):
    """What is finished is finished, far beyond a window from it."""
    many = 3000
    for _ in range(many // 1000):
        queue.put_many([b"x"] * 1000)
    with group(queue, window=64) as member:
        member.get().nack(delay=3600)
        for _ in range(many - 2):
            member.get(timeout=DEADLINE).ack()
        held = member.get(timeout=DEADLINE)
        place = queue.group_place("g")
        assert (place.head, place.open, place.parked) == (0, (held.index,), (0,))
        assert place.done == tuple(range(1, many - 1))
        assert (member.floor, member.lag) == (0, 2)


def test_skip_says_what_it_did(queue):
    """How many it finished, and which are somebody's."""
    queue.put_many([b"x"] * 10)
    with group(queue) as member:
        member.get().nack(delay=3600)
        held = member.get()
        member.get().ack()
        assert member.skip(*range(6)) == shmq.taking.group.Skipped(finished=3, left=(0, held.index))
        assert member.skip() == shmq.taking.group.Skipped(0, ())
        assert member.skip(4, 6) == shmq.taking.group.Skipped(1, ())
        assert member.lag == 5


# ---------------------------------------------------------------- waiting for groups, and Arrow
def test_a_wait_for_a_group(queue):
    """For what is fresh, what comes back, what is due, and the end; nothing is handed out."""
    with group(queue) as member, group(queue) as other, queue.consumer("c") as alone:
        assert shmq.wait([member, alone], timeout=0) == []
        queue.put(b"a")
        assert shmq.wait([member, alone], timeout=DEADLINE) == [member, alone]
        assert shmq.wait([member]) == [member]
        message = other.get()
        assert message.attempts == 1
        assert shmq.wait([member], timeout=0) == []
        message.nack(delay=0.1)
        started = time.monotonic()
        assert shmq.wait([member], timeout=DEADLINE) == [member]
        assert time.monotonic() - started < DEADLINE / 2
        message = other.get(timeout=DEADLINE)
        message.nack()
        assert shmq.wait([member], timeout=DEADLINE) == [member]
        member.take(timeout=DEADLINE)
        queue.shutdown()
        assert shmq.wait([member], timeout=DEADLINE) == [member]


def test_a_wait_sees_the_time_of_what_is_delayed(queue):
    """It rings no bell."""
    queue.put(b"later", delay=0.1)
    with queue.consumer("c") as alone, group(queue) as member:
        started = time.monotonic()
        assert shmq.wait([alone], timeout=DEADLINE) == [alone]
        assert shmq.wait([member], timeout=DEADLINE) == [member]
        assert time.monotonic() - started < DEADLINE / 2


def test_a_wait_sees_what_a_dead_member_had(queue):
    """And what waits for its key is nothing."""
    queue.put_many([b"x"] * 2, keys=[b"k"] * 2)

    def hold(say):
        member = group(queue, ordered_by="key")
        member.get()
        hold_until_killed(say)

    with Child(hold) as child:
        child.hear()
        with group(queue, ordered_by="key") as member:
            assert shmq.wait([member], timeout=0) == []
            child.kill()
            assert shmq.wait([member], timeout=DEADLINE) == [member]
            assert member.get(timeout=0).index == 0


def test_a_batch_of_a_group(queue):
    """As that of a name alone has it; what came back is in it, and it is acknowledged."""
    arrow = pytest.importorskip("pyarrow")
    queue.put(b"a", key=b"k", type=3, time_ns=7, headers={"h": 1})
    queue.put_many([b"b", b"c", b"d" * 100])
    with group(queue) as member, queue.consumer("c") as alone:
        every = ["index", "time", "key", "type", "payload", "headers", "attempts"]
        wanted = alone.take_arrow(10, columns=every)
        batch = member.take_arrow(10, columns=every)
        assert isinstance(batch, arrow.RecordBatch)
        assert batch.equals(wanted)
        assert (member.lag, member.pending) == (0, 0)
        with pytest.raises(shmq.Empty):
            member.take_arrow(10, timeout=0)
        queue.put_many([bytes(1000)] * 10)
        member.get().nack()
        assert member.take_arrow(10, max_bytes=2500).num_rows == 3
        rest = 0
        while member.lag:
            rest += member.take_arrow(4, timeout=DEADLINE).num_rows
        assert rest == 7
    with queue.consumer("auto", group=True) as member:
        assert member.take_arrow(100).num_rows == 14
        with pytest.raises(ValueError, match="some of"):
            member.take_arrow(1, columns=["nothing"])


def test_what_the_dead_claimed_behind_an_open_claim_is_not_counted(queue, path):
    """It will never be a message; the open one may be."""
    consumer = queue.consumer("c")
    slot = queue.reserve(8)

    def claim(say):
        claimed = shmq.open(path).reserve(8)
        hold_until_killed(say)
        claimed.abort()

    with Child(claim) as child:
        child.hear()
        assert consumer.lag == 2
        child.kill()
    queue.put(b"x")
    assert consumer.lag == 2
    slot.abort()
    assert consumer.lag == 1
    consumer.close()


def test_what_was_purged_behind_a_message_in_hand_is_not_in_its_holders_lag(queue):
    """Handed out, purged, handed out: what lies between the two was passed."""
    consumer = queue.consumer("x", ack="explicit")
    queue.put(b"in hand")
    first = consumer.get()
    queue.put(b"purged")
    queue.purge()
    queue.put(b"new")
    second = consumer.get()
    assert consumer.pending == consumer.lag == 2
    second.ack()
    assert consumer.lag == 1
    first.ack()
    assert consumer.lag == 0

"""Staged in one process, adopted by another, several sets at once; whoever is killed wherever."""

import contextlib
import gc
import json
import os
import pickle
import re
import shutil
import tempfile
import time

import pytest
from support import Child, flip, in_child, killed_at, strides
from test_adopt import payloads, staging

import shmq
from shmq._native import Chunk
from shmq.storage import boots, ledger, records
from shmq.storage import staging as module

BEFORE = [b"one", b"two"]
SETS = [[b"%d %03d" % (part, number) + bytes(150) for number in range(120)] for part in range(3)]
ALL = [payload for batch in SETS for payload in batch]


@pytest.fixture
def path(tmp_path):
    """In memory, where there is some: what is killed here at every step syncs a hundred times."""
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tmp_path
    folder = tempfile.mkdtemp(prefix="shmq-test-", dir=place)
    yield f"{folder}/q"
    shutil.rmtree(folder)


def stage(path, batch, owner=None):
    """The token of a set."""
    with shmq.open(path, create=False) as queue, queue.stage() as staged:
        for at in range(0, len(batch), 50):
            staged.put_many(batch[at : at + 50])
        return staged.hand_over(owner=owner)


def begin(path):
    """A queue with something in it, and three sets that wait, of processes that have ended."""
    with shmq.open(path, options=shmq.Options(chunk_bytes=16384)) as queue:
        queue.put_many(BEFORE)
    return [in_child(stage, path, batch) for batch in SETS]


def begin_here(path):
    """The same in no time."""
    tokens = []
    with shmq.open(path, options=shmq.Options(chunk_bytes=16384)) as queue:
        queue.put_many(BEFORE)
        for batch in SETS:
            staged = queue.stage()
            staged.put_many(batch[:60])
            staged.put_many(batch[60:])
            tokens.append(staged.hand_over())
    return tokens


def adopt(path, tokens, dedup=("p", 1)):
    with shmq.open(path, create=False) as queue:
        return queue.adopt(tokens, dedup=dedup)


# ---------------------------------------------------------------- what it does
def test_what_another_process_staged_is_adopted_after_it_ended(path):
    tokens = begin(path)
    assert payloads(path) == BEFORE
    with shmq.open(path) as queue:
        assert len(queue) == 2
        assert queue.put(b"beside") == 2
        assert range(3, 123) == queue.adopt(tokens[1])
        assert queue.put(b"after") == 123
        assert range(124, 244) == queue.adopt(queue.staged(tokens[0]))
        assert queue[200].payload == SETS[0][76]
    assert payloads(path) == [*BEFORE, b"beside", *SETS[1], b"after", *SETS[0]]
    assert len(staging(path)) == 1


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1], [1, 2], [2]])
def test_several_sets_are_one_batch_in_the_order_given(path, order):
    tokens = begin(path)
    count = 120 * len(order)
    assert range(2, 2 + count) == adopt(path, [tokens[at] for at in order])
    with shmq.open(path) as queue:
        assert queue.put(b"after") == 2 + count
        assert queue.adopted("p") == (1, range(2, 2 + count))
        assert len(queue.staged_sets()) == 3 - len(order)
    assert payloads(path) == [*BEFORE, *(payload for at in order for payload in SETS[at]), b"after"]
    assert len(staging(path)) == 3 - len(order)


def test_sets_of_this_process_and_empty_ones_go_with_the_others(path):
    token = begin(path)[0]
    with shmq.open(path) as queue:
        staged, empty, last = queue.stage(), queue.stage(), queue.stage()
        staged.put(b"mine")
        tokens = [empty.hand_over(), token, staged, in_child(stage, path, []), last]
        assert range(2, 123) == queue.adopt(tokens)
        with pytest.raises(shmq.Closed):
            staged.put(b"x")
        assert empty.token == empty.hand_over()
    assert payloads(path) == [*BEFORE, *SETS[0], b"mine"]
    assert len(staging(path)) == 2
    with shmq.open(path) as queue:
        assert range(123, 123) == queue.adopt([in_child(stage, path, [])], dedup=("q", 1))
        assert range(123, 123) == queue.adopt([], dedup=("q", 2))
        assert queue.adopted("q") == (2, range(123, 123))
    assert len(staging(path)) == 2


def test_a_batch_that_is_staged_again_is_not_adopted_again_and_goes(path):
    tokens = begin(path)
    first = adopt(path, tokens)
    again = [in_child(stage, path, batch) for batch in SETS]
    assert first == adopt(path, again) == adopt(path, tokens) == range(2, 362)
    assert payloads(path) == BEFORE + ALL
    assert staging(path) == []
    later = in_child(stage, path, SETS[0])
    with pytest.raises(shmq.Mismatch, match="was put or adopted before it"):
        adopt(path, [later], ("p", 0))
    assert range(362, 482) == adopt(path, [later], ("p", 2))


def test_it_waits_for_its_adopter_through_restarts_and_collections(path):
    begin(path)
    for _ in range(3):
        with shmq.open(path) as queue:
            queue.adopt(queue.stage())
            assert [len(each) for each in queue.staged_sets()] == [120] * 3
        gc.collect()
    with shmq.open(path, read_only=True) as queue:
        tokens = [each.token for each in queue.staged_sets()]
    assert len(adopt(path, tokens)) == 360


def test_a_token_is_text_and_what_it_stands_for_pickles_but_a_staged_does_not(path):
    tokens = begin(path)
    with shmq.open(path) as queue:
        assert json.loads(json.dumps(tokens)) == tokens
        waiting = pickle.loads(pickle.dumps(queue.staged(tokens[0])))
        assert (waiting.token, len(waiting), waiting.owner, bool(waiting)) == (tokens[0], 120, b"", True)
        assert waiting.disk_bytes >= 120 * 190
        assert abs(waiting.time_ns - time.time_ns()) < 600e9
        with queue.stage() as staged, pytest.raises(TypeError, match="hand_over"):
            pickle.dumps(staged)


def test_a_token_that_does_not_fit_is_refused_and_nothing_happens(path, make):
    tokens = begin(path)
    with shmq.open(path) as queue:
        queue.adopt(tokens[0])
        for bad, error in (
            ([tokens[1], tokens[0]], shmq.NotFound),
            ([tokens[1], tokens[1]], ValueError),
            ([tokens[1], "token"], ValueError),
            ([tokens[1], re.sub(r"-[0-9a-f]{16}-", f"-{0:016x}-", tokens[1])], shmq.NotFound),
        ):
            with pytest.raises(error):
                queue.adopt(bad)
        other = make(f"{path}-other")
        for call in (other.adopt, other.staged):
            with pytest.raises(shmq.Mismatch, match="another queue"):
                call(tokens[1])
        with pytest.raises(
            shmq.NotFound, match="it was adopted, and is in the queue at 2 to 121; nothing was adopted now"
        ):
            queue.staged(tokens[0])
        with shmq.open(path, read_only=True) as reader:
            for refused in (lambda: reader.adopt(tokens[1]), lambda: reader.sweep_staged(older_than=0)):
                with pytest.raises(shmq.Closed, match="read-only"):
                    refused()
        queue.shutdown()
        with pytest.raises(shmq.ShutDown, match="nothing was adopted"):
            queue.adopt(tokens[1:])
        assert {each.token for each in queue.staged_sets()} == set(tokens[1:])
    assert len(payloads(path)) == 122
    assert len(adopt(path, tokens[1:])) == 240


def test_a_reservation_must_be_committed_before_it_is_handed_over(path):
    with shmq.open(path) as queue:
        staged = queue.stage()
        slot = staged.reserve(3)
        with pytest.raises(shmq.Busy, match="reserved and not committed"):
            staged.hand_over()
        slot.buffer[:] = b"abc"
        slot.commit()
        assert in_child(lambda: _refusal(staged.hand_over)) == "Forked"
        queue.adopt(staged.hand_over())
        closed = queue.stage()
        closed.close()
        assert _refusal(closed.hand_over) == "Closed"
    assert payloads(path) == [b"abc"]


def _refusal(call):
    try:
        call()
    except shmq.ShmqError as problem:
        return type(problem).__name__
    return "none"


# ---------------------------------------------------------------- never adopted
def test_it_is_found_and_swept_by_its_owner(path):
    tokens = [begin(path)[0], *(in_child(stage, path, SETS[1], owner) for owner in ("a/1", b"a/1", "a/2"))]
    with shmq.open(path) as queue:
        assert {each.token for each in queue.staged_sets("a/1")} == set(tokens[1:3])
        assert [each.owner for each in queue.staged_sets(b"a/2")] == [b"a/2"]
        assert queue.sweep_staged(owner="a/1") == 2
        assert queue.sweep_staged(owner="a/1") == 0
        assert queue.staged(tokens[3])
        with pytest.raises(shmq.NotFound):
            queue.adopt([tokens[0], tokens[1]])
        assert queue.adopt([tokens[0], tokens[3]]) == range(2, 242)


def test_it_is_swept_by_age_and_what_is_being_built_is_not(path):
    begin(path)
    with shmq.open(path) as queue, queue.stage() as mine:
        mine.put(b"mine")
        assert queue.sweep_staged(older_than=3600) == 0
        with pytest.raises(ValueError, match="older_than"):
            queue.sweep_staged()
        assert queue.sweep_staged(older_than=0) == 3
        assert len(staging(path)) == 1
        queue.adopt(mine)
    assert payloads(path) == [*BEFORE, b"mine"]


def test_after_a_week_it_goes_by_itself(path, monkeypatch):
    begin(path)
    shmq.open(path).close()
    assert len(staging(path)) == 3
    monkeypatch.setattr(ledger, "HANDED_DAYS", 0)
    shmq.open(path).close()
    assert staging(path) == []


def test_its_age_is_that_of_the_boot_and_after_a_reboot_that_of_the_wall_clock(monkeypatch):
    now, clock = time.time_ns(), time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    hour = 3600 * 10**9
    far_clock = records.Handed(b"", [], [], [], [], boots.boot_id(), clock, now - 100 * hour)
    assert 0 <= far_clock.age_ns() < hour
    rebooted = far_clock._replace(boot=bytes(16), since_boot_ns=clock + hour)
    assert 100 * hour <= rebooted.age_ns() < 101 * hour


# ---------------------------------------------------------------- killed at every step
STRIDES = pytest.mark.parametrize("stride", [9, pytest.param(1, marks=pytest.mark.slow)])
"""Each step takes a quarter of a second: every ninth one always, all of them by `pytest -m slow`."""


def every_step(tmp, stride, work, check, least):
    """Run work(path, tokens) killed before each call that changes something; check: whether it is done."""
    outcomes, step, alive = [], 0, True
    while alive:
        path = f"{tmp}{step}"
        tokens = begin_here(path)
        alive = killed_at(step, lambda path=path, tokens=tokens: work(path, tokens))
        outcomes.append(check(path, tokens))
        shmq.delete(path)
        step += stride
    assert outcomes == sorted(outcomes)  # one step commits, and nothing after it takes it back
    assert (outcomes[0], outcomes[-1]) == (False, True)
    assert step > least


@STRIDES
def test_killed_while_handing_over_it_is_there_whole_or_not_at_all(path, stride):
    def check(path, tokens):
        with shmq.open(path) as queue:
            (*waiting,) = (each for each in queue.staged_sets() if each.token not in tokens)
            assert len(staging(path)) == 3 + len(waiting)
            if waiting:
                assert queue.adopt(waiting) == range(2, 122)
        assert payloads(path) == BEFORE + (SETS[1] if waiting else [])
        return bool(waiting)

    every_step(path, stride, lambda path, _: stage(path, SETS[1]), check, 15)


def by_producer(path, tokens):
    with shmq.open(path) as queue:
        queue.put(b"after")
    found = payloads(path)
    assert found in ([*BEFORE, b"after"], [*BEFORE, *ALL, b"after"])
    return len(found) > 3


def by_reader(path, tokens):
    found = payloads(path, read_only=True)
    assert found in (BEFORE, BEFORE + ALL)
    return len(found) > 2


@pytest.mark.parametrize("first", [by_producer, by_reader])
@STRIDES
def test_killed_while_adopting_several_all_or_nothing(path, stride, first):
    def check(path, tokens):
        committed = first(path, tokens)
        again = adopt(path, tokens)  # as long as nothing was adopted, all of it still waits
        assert len(again) == len(ALL)
        assert committed == (again.start == 2) or first is by_reader
        found = payloads(path)
        assert found.count(ALL[0]) == 1
        assert found[again.start : again.stop] == ALL
        assert staging(path) == []
        return committed

    every_step(path, stride, adopt, check, 40)


@STRIDES
def test_killed_while_finishing_for_another(path, stride):
    """The adopter dies right behind the SEAL; whoever goes on for it dies at every step of that."""

    def commit_only(path, tokens):
        from shmq._native import Chunk

        seal = Chunk.seal_adopt

        def seal_and_die(self, adoption):
            seal(self, adoption)
            os.kill(os.getpid(), 9)

        Chunk.seal_adopt = seal_and_die
        adopt(path, tokens)

    step, alive = 0, True
    while alive:
        where = f"{path}{step}"
        tokens = begin_here(where)
        assert killed_at(10**9, lambda where=where, tokens=tokens: commit_only(where, tokens))
        alive = killed_at(step, lambda where=where: shmq.open(where).put(b"after"))
        assert payloads(where, read_only=True)[:362] == BEFORE + ALL
        assert payloads(where)[:362] == BEFORE + ALL
        assert adopt(where, tokens) == range(2, 362)
        assert staging(where) == []
        shmq.delete(where)
        step += stride
    assert step > 10


@pytest.mark.parametrize("read_only", [False, True])
def test_sets_moved_half_way_are_finished_by_whoever_is_there(path, read_only):
    step, alive = 0, True
    while alive:
        where = f"{path}{step}"
        tokens = begin_here(where)
        with shmq.open(where) as queue, queue.consumer("c") as consumer:
            assert consumer.take_many(10) == BEFORE
            with shmq.open(where, read_only=True) as other:
                follower = other.reader()
                assert [next(follower).payload for _ in BEFORE] == BEFORE
                alive = killed_at(step, lambda where=where, tokens=tokens: adopt(where, tokens), {"shmq_rename_new"})
                if read_only:
                    assert [message.payload for message in follower] == ALL
                    assert other.next_index == 362
                    assert other[300].payload == ALL[298]
                assert queue.put(b"after") == 362
                got = []
                while len(got) < 361:
                    got += consumer.take_many(500, 0)
                assert got == [*ALL, b"after"]
        shmq.delete(where)
        step += 1
    assert step > 6  # two chunks of each set


def test_without_room_nothing_is_adopted_and_everything_still_waits(path, monkeypatch):
    tokens = begin_here(path)

    def refuse(*_):
        raise shmq.DiskFull("no room")

    with monkeypatch.context() as full:
        full.setattr(module.Set, "commit_manifest", refuse)
        with pytest.raises(shmq.DiskFull):
            adopt(path, tokens)
    assert payloads(path) == BEFORE
    assert adopt(path, tokens[::-1]) == range(2, 362)  # in another order than its chunks were sealed for before
    assert payloads(path) == BEFORE + SETS[2] + SETS[1] + SETS[0]


# ---------------------------------------------------------------- racing
def test_stagers_producers_and_two_adopters_of_the_same_tokens(path):
    tokens = begin(path)

    def produce(say):
        with shmq.open(path) as mine:
            for number in range(300):
                mine.put(b"x %d" % number)

    def drive(say):
        with contextlib.suppress(shmq.NotFound):
            say(adopt(path, tokens, ("driver", 1)).start)
            return
        say("not found")

    with Child(produce) as one, Child(drive) as two, Child(drive) as three:
        firsts = [child.hear(60) for child in (two, three)]
        assert [child.join(60) for child in (one, two, three)] == [0, 0, 0]
    assert firsts[0] == firsts[1]
    found = payloads(path)
    assert found[int(firsts[0]) :][: len(ALL)] == ALL
    assert len(found) == 2 + 300 + len(ALL)


# ---------------------------------------------------------------- garbage
def test_what_was_changed_after_it_was_handed_over_is_not_adopted(path):
    tokens = begin(path)
    folder = f"{path}/staging/{tokens[1].split('-')[1]}"
    (*chunks,) = sorted(name for name in os.listdir(folder) if name.endswith(".chunk"))
    os.unlink(f"{folder}/{chunks[0]}")
    with pytest.raises(shmq.Corrupt, match="is missing; nothing was adopted"):
        adopt(path, tokens)
    os.rename(f"{folder}/{chunks[1]}", f"{folder}/{chunks[0]}")
    with pytest.raises(shmq.Corrupt, match="not what was handed over; nothing was adopted"):
        adopt(path, tokens)
    assert payloads(path) == BEFORE
    assert adopt(path, [tokens[2], tokens[0]]) == range(2, 242)


@pytest.mark.parametrize("content", ["flipped", "nonsense", "elsewhere"])
def test_what_says_nothing_sensible_of_itself_holds_nobody_up_but_its_adopter(path, content):
    tokens = begin(path)
    name = tokens[1].split("-")[1]
    file = f"{path}/staging/{name}/handed"
    if content == "flipped":
        flip(file, os.stat(file).st_size - 1)
    else:
        handed = records.Handed(b"", ["../../control.shmq"], [1], [1], [1], bytes(16), 0, 0)
        with open(file, "wb") as target:
            target.write(records.pack([1] if content == "nonsense" else list(handed)))
    with pytest.raises(shmq.Corrupt, match="handed"):
        adopt(path, tokens)
    with shmq.open(path) as queue:
        assert len(queue.staged_sets()) == 2
        assert queue.adopt([tokens[0], tokens[2]]) == range(2, 242)
        assert queue.sweep_staged(owner="somebody") == 0
        assert queue.sweep_staged(older_than=10**6) == 1
    assert staging(path) == []


# ---------------------------------------------------------------- interrupted
class Interrupted(BaseException):
    """What a signal's handler raises."""


def test_a_repeat_of_an_adoption_that_was_interrupted_behind_its_commit_returns_its_range(path, monkeypatch):
    tokens = begin(path)
    seal = Chunk.seal_adopt

    def seal_and_raise(self, adoption):
        if seal(self, adoption):
            raise Interrupted

    with shmq.open(path) as queue:
        with monkeypatch.context() as signal:
            signal.setattr(Chunk, "seal_adopt", seal_and_raise)
            with pytest.raises(Interrupted):
                queue.adopt(tokens[:2])
        assert [each.token for each in queue.staged_sets()] == [tokens[2]]
        with shmq.open(path, read_only=True) as reader:
            assert [each.token for each in reader.staged_sets()] == [tokens[2]]
        assert queue.adopt(tokens[:2]) == queue.adopt(tokens[:2]) == range(2, 242)
        assert queue.adopt(tokens[1]) == range(122, 242)
        for other, told in ((tokens[1::-1], "is in the queue at 122 to 241"), (tokens[1:], "is in the queue at 122")):
            with pytest.raises(shmq.NotFound, match=told):
                queue.adopt(other)
        with pytest.raises(shmq.NotFound, match="is in the queue at 2 to 121"):
            queue.adopt(tokens[0], dedup=("p", 1))
        assert [each.token for each in queue.staged_sets()] == [tokens[2]]
        assert queue.adopt(tokens[2]) == range(242, 362)
    assert payloads(path) == BEFORE + ALL


def test_a_repeat_after_its_messages_were_retired_says_so(path):
    token = begin(path)[0]
    with shmq.open(path) as queue:
        queue.adopt(token)
        with queue.stage() as empty:
            nothing = empty.hand_over()
        assert queue.adopt(nothing) == queue.adopt(nothing) == range(122, 122)
        queue.put(b"after")
        with queue.consumer("c") as consumer:
            while consumer.take_many(500, 0)[-1] != b"after":
                pass
        queue.purge()
        with pytest.raises(shmq.NotFound, match="was swept, or adopted and retired since; nothing was adopted now"):
            queue.adopt(token)


def test_killed_at_every_step_the_repeat_of_a_token_returns_its_range(path):
    """Without dedup: what is in the queue is found by its first chunk."""
    step, alive = 0, True
    onward = strides()
    while alive:
        with shmq.open(path, options=shmq.Options(chunk_bytes=16384)) as queue:
            queue.put_many(BEFORE)
            with queue.stage() as staged:
                staged.put_many([bytes(5000)] * 5)
                token = staged.hand_over()
        alive = killed_at(step, lambda token=token: adopt(path, token, None))
        with shmq.open(path) as queue:
            assert len(queue.staged_sets()) == (len(payloads(path)) == 2)
        assert adopt(path, token, None) == range(2, 7)
        assert len(payloads(path)) == 7
        assert staging(path) == []
        shmq.delete(path)
        step += next(onward)
    assert step > 30

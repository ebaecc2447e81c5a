"""Staging and adopting: any amount, all or nothing, once; whoever is killed wherever."""

import errno
import gc
import os
import resource
import signal

import pytest
from support import Child, chunk_files, flip, in_child, killed_at, strides, until

import shmq

BEFORE = [b"one", b"two", b"three"]
BATCH = [b"%05d" % number + bytes(200) for number in range(300)]


def payloads(path, **flags):
    with shmq.open(path, create=False, **flags) as queue:
        return [message.payload for message in queue.reader()]


def staging(path):
    folder = f"{path}/staging"
    return os.listdir(folder) if os.path.isdir(folder) else []


def adopt(path, dedup=("p", 1), batch=BATCH):
    with shmq.open(path, create=False) as queue, queue.stage() as staged:
        for at in range(0, len(batch), 50):
            staged.put_many(batch[at : at + 50])
        return queue.adopt(staged, dedup=dedup)


# ---------------------------------------------------------------- what it does
def test_what_is_staged_is_seen_by_nobody_until_it_is_adopted_and_then_all_of_it(queue, path):
    queue.put_many(BEFORE)
    with queue.stage() as staged:
        assert [0, range(1, 3)] == [staged.put(b"a", key=b"k", type=7, time_ns=5), staged.put_many([b"b", b"c"])]
        assert len(staged) == 3
        assert len(queue) == 3
        assert queue.put(b"beside") == 3
        assert range(4, 7) == queue.adopt(staged)
    assert queue.put(b"after") == 7
    assert [*BEFORE, b"beside", b"a", b"b", b"c", b"after"] == payloads(path)
    assert (queue[4].key, queue[4].type, queue[4].time_ns) == (b"k", 7, 5)
    assert staging(path) == []


def test_a_large_batch_goes_over_many_chunks_and_keeps_its_checksums(queue, path):
    queue.put(b"first")
    batch = [os.urandom(100) for _ in range(5000)]
    assert range(1, 5001) == adopt(path, None, batch)
    assert len(os.listdir(f"{path}/chunks")) > 20
    assert [b"first", *batch] == payloads(path)
    assert queue[2500].payload == batch[2499]
    assert queue.consumer("c", start=4999).take(0) == batch[4998]


def test_into_a_queue_without_any_chunk(queue, path):
    assert range(300) == adopt(path)
    assert payloads(path) == BATCH


def test_a_sleeping_consumer_gets_what_is_adopted(queue, path):
    def wait(say):
        with shmq.open(path) as mine, mine.consumer("c") as consumer:
            say("here")
            say(consumer.take(20).decode())

    with Child(wait) as child:
        child.hear()
        adopt(path, None, [b"wake up"])
        assert child.hear() == "wake up"


def test_nothing_staged_adopts_nothing(queue, path):
    queue.put(b"x")
    assert range(1, 1) == adopt(path, None, [])
    assert range(1, 1) == adopt(path, ("p", 1), [])
    queue.put(b"y")
    assert range(1, 1) == adopt(path, ("p", 1), BATCH)
    assert range(2, 302) == adopt(path, ("p", 2), BATCH)


def test_a_batch_is_adopted_once_also_after_a_restart(make, path):
    queue = make()
    queue.put_many(BEFORE)
    assert queue.adopted("p") is None
    first = adopt(path)
    queue.put(b"between")
    queue.close()
    assert first == adopt(path) == range(3, 303)
    queue = make()
    assert (1, first) == queue.adopted("p") == queue.adopted(b"p")
    assert range(304, 305) == adopt(path, ("p", 5), [b"next"])
    with pytest.raises(shmq.Mismatch, match="batch 5 was put or adopted before it"):
        adopt(path, ("p", 1))
    assert range(305, 306) == adopt(path, ("other", 1), [b"next"])


def test_forgotten_or_closed_it_leaves_nothing(queue, path):
    staged = queue.stage()
    staged.put(b"x")
    assert len(staging(path)) == 1
    staged.close()
    assert staging(path) == []
    staged = queue.stage()
    del staged
    gc.collect()
    assert staging(path) == []
    with pytest.raises(TypeError), queue.stage() as staged:
        staged.put("no bytes")
    assert staging(path) == []


def test_what_a_killed_stager_leaves_is_swept_and_what_a_living_one_builds_is_not(queue, path):
    def work(say):
        staged = queue.stage()
        staged.put(b"never")
        say("staged")
        until(lambda: False, 60)

    with queue.stage() as mine, Child(work) as child:
        mine.put(b"mine")
        child.hear()
        shmq.open(path).close()
        assert len(staging(path)) == 2
        child.kill()
        shmq.open(path).close()
        assert len(staging(path)) == 1
        queue.adopt(mine)
    assert payloads(path) == [b"mine"]


def test_a_reservation_must_be_committed_first(queue):
    staged = queue.stage()
    slot = staged.reserve(10)
    with pytest.raises(shmq.Busy, match="reserved and not committed"):
        queue.adopt(staged)
    slot.commit()
    assert range(1) == queue.adopt(staged)
    with pytest.raises(shmq.Closed):
        staged.put(b"x")
    with pytest.raises(shmq.Closed):
        queue.adopt(staged)


def test_it_is_refused_where_it_makes_no_sense(make, queue, path, tmp_path):
    other = make(str(tmp_path / "other"))
    with queue.stage() as staged, pytest.raises(shmq.Mismatch, match="another queue"):
        other.adopt(staged)
    with shmq.open(path, read_only=True) as reader, pytest.raises(shmq.Closed, match="read-only"):
        reader.stage()
    with queue.stage() as staged:
        for dedup in (("", 1), ("p", -1), ("p" * 1025, 1)):
            with pytest.raises(ValueError):
                queue.adopt(staged, dedup=dedup)
        answers = in_child(lambda: _refusal(staged.put, b"x"))
        assert answers == "Forked"
    with queue.stage() as staged:
        staged.put(b"x")
        queue.shutdown()
        with pytest.raises(shmq.ShutDown, match="nothing was adopted"):
            queue.adopt(staged)


def _refusal(call, *arguments):
    try:
        call(*arguments)
    except shmq.ShmqError as problem:
        return type(problem).__name__
    return "none"


def test_adopted_chunks_retire_as_others_do(queue, path):
    adopt(path)
    queue.put_many(BEFORE)
    chunks = len(os.listdir(f"{path}/chunks"))
    with queue.consumer("c") as consumer:
        got = []
        while len(got) < 303:
            got += consumer.take_many(50, 0)
        assert got == BATCH + BEFORE
    assert len([name for name in os.listdir(f"{path}/chunks") if name.endswith(".chunk")]) < chunks
    assert range(300) == adopt(path)  # the ledger needs no chunk


def test_an_adopted_chunk_is_as_old_as_its_adoption(make, path):
    queue = make(retention=shmq.Retention.age(3600))
    staged = queue.stage()
    staged.put(b"x")
    (folder,) = staging(path)
    (file,) = [name for name in os.listdir(f"{path}/staging/{folder}") if name.endswith(".chunk")]
    made = os.stat(f"{path}/staging/{folder}/{file}").st_mtime_ns
    queue.adopt(staged)
    from shmq.storage import space

    live = queue._session.chain().names()
    assert space._created(queue._session.home, live[-1]) > made


# ---------------------------------------------------------------- killed at every step
def check_by_producer(path):
    with shmq.open(path) as queue:
        queue.put(b"after")
    found = payloads(path)
    assert found in ([*BEFORE, b"after"], [*BEFORE, *BATCH, b"after"])
    return len(found) > 4


def check_by_reader(path):
    found = payloads(path, read_only=True)
    assert found in (BEFORE, BEFORE + BATCH)
    return len(found) > 3


def check_by_adopter(path):
    committed = check_by_reader(path)
    assert range(3, 303) == adopt(path)
    assert payloads(path) == BEFORE + BATCH
    return committed


@pytest.mark.parametrize("check", [check_by_producer, check_by_reader, check_by_adopter])
def test_killed_at_every_step_all_or_nothing(tmp_path, check):
    outcomes = []
    step, alive = 0, True
    onward = strides()
    while alive:
        path = str(tmp_path / f"q{step}")
        with shmq.open(path, options=shmq.Options(chunk_bytes=16384)) as queue:
            queue.put_many(BEFORE)
        alive = killed_at(step, lambda path=path: adopt(path))
        committed = check(path)
        outcomes.append(committed)
        again = adopt(path)
        assert len(again) == 300
        if committed:
            assert again == range(3, 303)
        found = payloads(path)
        assert found.count(BATCH[0]) == 1
        assert staging(path) == []
        shmq.delete(path)
        step += next(onward)
    assert outcomes == sorted(outcomes)  # one step commits, and nothing after it takes it back
    assert outcomes[0] is False
    assert outcomes[-1] is True
    assert step > 40


def test_killed_again_while_finishing(tmp_path):
    """Whoever finishes another's adoption may be killed at every step of that too."""

    def put(path):
        with shmq.open(path) as queue:
            queue.put(b"after")

    step, alive = 0, True
    onward = strides()
    while alive:
        path = str(tmp_path / f"q{step}")
        with shmq.open(path, options=shmq.Options(chunk_bytes=16384)) as queue:
            queue.put_many(BEFORE)

        def commit_only(path):
            from shmq._native import Chunk

            seal = Chunk.seal_adopt

            def seal_and_die(self, adoption):
                seal(self, adoption)
                os.kill(os.getpid(), signal.SIGKILL)

            Chunk.seal_adopt = seal_and_die
            adopt(path)

        assert killed_at(10**9, lambda path=path: commit_only(path))
        alive = killed_at(step, lambda path=path: put(path))
        assert payloads(path, read_only=True)[:303] == BEFORE + BATCH
        assert payloads(path)[:303] == BEFORE + BATCH
        assert range(3, 303) == adopt(path)
        shmq.delete(path)
        step += next(onward)
    assert step > 10


@pytest.mark.parametrize("read_only", [False, True])
def test_a_set_moved_half_way_is_finished_by_whoever_is_there(tmp_path, read_only):
    """No opener has swept: a producer, a consumer and a reader that were there before meet the half-moved set."""
    step, alive = 0, True
    while alive:
        path = str(tmp_path / f"q{step}")
        with shmq.open(path, options=shmq.Options(chunk_bytes=16384)) as queue:
            queue.put_many(BEFORE)
            consumer = queue.consumer("c")
            assert consumer.take_many(10) == BEFORE
            with shmq.open(path, read_only=True) as other:
                follower = other.reader()
                assert [next(follower).payload for _ in BEFORE] == BEFORE
                alive = killed_at(step, lambda path=path: adopt(path), {"shmq_rename_new"})
                if read_only:
                    assert [message.payload for message in follower] == BATCH
                    assert other.next_index == 303
                    assert other[200].payload == BATCH[197]
                assert queue.put(b"after") == 303
                got = []
                while len(got) < 301:
                    got += consumer.take_many(500, 0)
                assert got == [*BATCH, b"after"]
            consumer.close()
        shmq.delete(path)
        step += 1
    assert step > 4


def test_who_comes_too_late_to_finish_goes_on(queue, path):
    """The set was finished, entered and removed between somebody's look for the successor and its look for the set."""
    from shmq.storage import staging as module

    queue.put(b"x")
    tail = queue._session.chain().tail()
    adopt(path)
    assert not module.finish(queue._session.home, queue._session.joined().control, tail, tail.adoption(), 1)
    assert queue._session.chain().after(tail) is not None


def test_a_set_that_is_swept_before_it_is_held_is_made_again(queue, path, monkeypatch):
    from shmq.storage import staging as module

    hold, swept = module.Set.hold, []

    def sweep_and_hold(self):
        if len(swept) < 3:
            swept.append(self.name)
            os.rmdir(self.path)
        hold(self)

    monkeypatch.setattr(module.Set, "hold", sweep_and_hold)
    with queue.stage() as staged:
        staged.put(b"x")
        assert len(swept) == 3
        assert range(1) == queue.adopt(staged)


def test_a_set_that_is_removed_while_somebody_finishes_it_was_finished_by_another(queue, monkeypatch):
    from shmq.storage import staging as module

    queue.put(b"x")
    read = module.Set.manifest

    def read_and_lose(self):
        manifest = read(self)
        self.remove()
        return manifest

    with queue.stage() as staged:
        adoption = staged._set.adoption
        staged._set.commit_manifest(module.Manifest(b"", 0, [], [], [], []))
        monkeypatch.setattr(module.Set, "manifest", read_and_lose)
        assert not module.finish(
            queue._session.home, queue._session.joined().control, queue._session.chain().tail(), adoption, 1
        )


# ---------------------------------------------------------------- racing
def test_producers_and_two_adopters_of_each_batch(make, path):
    queue = make()
    rounds, each = 6, 400

    def produce(say, name):
        with shmq.open(path) as mine:
            for number in range(each):
                mine.put(b"%s %d" % (name, number))

    def drive(say):
        with shmq.open(path) as mine:
            for number in range(rounds):
                with mine.stage() as staged:
                    staged.put_many([b"batch %d %d" % (number, at) + bytes(100) for at in range(200)])
                    say(mine.adopt(staged, dedup=(f"batch {number}", 1)).start)

    with Child(produce, b"x") as one, Child(produce, b"y") as two, Child(drive) as three, Child(drive) as four:
        firsts = [[child.hear() for _ in range(rounds)] for child in (three, four)]
        assert [child.join() for child in (one, two, three, four)] == [0, 0, 0, 0]
    assert firsts[0] == firsts[1]
    found = [bytes(message.view).rstrip(b"\0") for message in queue.reader()]
    assert len(found) == 2 * each + 200 * rounds
    for name in (b"x", b"y"):
        assert [b"%s %d" % (name, number) for number in range(each)] == [
            text for text in found if text.startswith(name + b" ")
        ]
    for number, first in enumerate(firsts[0]):
        assert found[int(first) : int(first) + 200] == [b"batch %d %d" % (number, at) for at in range(200)]


# ---------------------------------------------------------------- garbage
def test_a_seal_that_names_no_set_is_corrupt(queue, path):
    queue.put(b"x")
    queue._session.chain().tail().seal_adopt(0x123456789A)
    for call in (lambda: queue.put(b"y"), lambda: payloads(path), lambda: payloads(path, read_only=True)):
        with pytest.raises(shmq.Corrupt, match="adoption 123456789a"):
            call()


def test_a_damaged_manifest_or_ledger_is_corrupt(queue, path):
    queue.put_many(BEFORE)
    adopt(path)
    ledger = f"{path}/ledger.shmq"
    flip(ledger, os.stat(ledger).st_size - 1)
    with pytest.raises(shmq.Corrupt, match=r"ledger\.shmq: it fails its checksum"):
        adopt(path)
    assert payloads(path) == BEFORE + BATCH


@pytest.mark.parametrize("handed_over", [False, True])
def test_padding_of_a_set_counts_once_it_is_adopted(make, handed_over):
    """A reservation that was given up aside made len() of the queue too small."""
    queue = make()
    queue.put_many([b"1", b"2", b"3"])
    with queue.stage() as dropped:
        dropped.reserve(10).abort()
        assert (len(queue), queue.stats().padded) == (3, 0)
    staged = queue.stage()
    staged.reserve(10).abort()
    staged.put(b"4")
    assert (len(queue), queue.stats().padded) == (3, 0)
    queue.adopt(staged.hand_over() if handed_over else staged)
    assert (len(queue), queue.stats().padded) == (4, 1)
    assert [message.payload for message in queue.reader()] == [b"1", b"2", b"3", b"4"]


def adopt_little(queue, handed_over=False):
    with queue.stage() as staged:
        staged.put(b"y" * 20)
        queue.adopt(staged.hand_over() if handed_over else staged)


@pytest.mark.parametrize("handed_over", [False, True])
@pytest.mark.parametrize("puts", [0, 1])
def test_many_small_adoptions_take_little_disk(make, path, puts, handed_over):
    """Each seals the chunk that takes the puts, however little is in it."""
    queue = make(chunk_bytes=1 << 26, retention=shmq.Retention.forever())
    for _ in range(20):
        for _ in range(puts):
            queue.put(b"x" * 20)
        adopt_little(queue, handed_over)
    assert sum(map(os.path.getsize, chunk_files(path))) < 20 * 160_000
    assert len(queue) == 20 + 20 * puts


def test_behind_an_adoption_chunks_grow_with_what_is_put(make, path):
    queue = make(chunk_bytes=1 << 26, retention=shmq.Retention.forever())
    before = 0
    for _ in range(3):
        adopt_little(queue)
        queue.put_many([bytes(1000)] * 2000)
        sizes = [os.path.getsize(file) for file in chunk_files(path)][before:]
        before += len(sizes)
        assert sum(sizes) < 4 * 2_100_000 + 200_000
        assert len(sizes) < 10


# ---------------------------------------------------------------- no room, no descriptors
def no_room(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("handed_over", [False, True])
def test_what_is_adopted_is_read_where_it_is_when_there_is_no_room_to_move_it(queue, path, monkeypatch, handed_over):
    """A folder may need one more block for a name. Who would put behind it has to wait for that, nobody else."""
    queue.put_many(BEFORE)
    consumer = queue.consumer("c")
    with monkeypatch.context() as full:
        full.setattr("shmq._native.rename_new", no_room)
        staged = queue.stage()
        staged.put_many(BATCH)
        assert queue.adopt(staged.hand_over() if handed_over else staged, dedup=("p", 1)) == range(3, 303)
        assert queue.staged_sets() == []
        assert payloads(path) == payloads(path, read_only=True) == BEFORE + BATCH
        assert queue.adopted("p") == (1, range(3, 303))
        assert (queue.next_index, queue[200].payload) == (303, BATCH[197])
        got = []
        while len(got) < 303:
            got += consumer.take_many(500, 0)
        assert got == BEFORE + BATCH
        with pytest.raises(shmq.DiskFull):
            queue.put(b"after")
        with queue.stage() as again:
            again.put(b"another")
            with pytest.raises(shmq.DiskFull):
                queue.adopt(again)
    assert queue.put(b"after") == 303
    assert range(3, 303) == adopt(path)
    assert payloads(path) == [*BEFORE, *BATCH, b"after"]
    assert staging(path) == []


def adopt_with_few(path, handed_over, free):
    """In a child: what became of it with that many descriptors; the repeat has enough of them."""
    with shmq.open(path) as queue:
        staged = queue.stage()
        staged.put(b"set")
        waiting = staged.hand_over() if handed_over else staged
        highest = max(map(int, os.listdir("/proc/self/fd")))
        taken = [os.dup(0)]
        while taken[-1] <= highest:  # so that no hole is left below
            taken.append(os.dup(0))
        most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (taken[-1] + 1 + free, most[1]))
        try:
            queue.adopt(waiting)
            refused = False
        except OSError as problem:
            assert problem.errno == errno.EMFILE  # noqa: PT017
            refused = True
        resource.setrlimit(resource.RLIMIT_NOFILE, most)
        assert payloads(path) == [b"before", *([] if refused else [b"set"])]
        assert not refused or queue.adopt(waiting) == range(1, 2)
        return "refused" if refused else "adopted"


@pytest.mark.parametrize("handed_over", [False, True])
def test_with_too_few_descriptors_nothing_is_adopted_and_the_repeat_adopts_it(tmp_path, handed_over):
    """The SEAL is not made where what follows it could not be done."""
    free, became = 0, "refused"
    while became == "refused":
        path = str(tmp_path / f"q{free}")
        with shmq.open(path, options=shmq.Options(chunk_bytes=16384)) as queue:
            queue.put(b"before")
        became = in_child(adopt_with_few, path, handed_over, free)
        assert payloads(path) == [b"before", b"set"]
        free += 1
    assert free > 3  # how many are too few hangs on what this process has open already


def test_a_place_is_blank_until_it_is_filled_in_and_is_filled_in_once(queue, path):
    """It is made first, so that no room is needed behind the SEAL; what is neither blank nor whole is damage."""
    with queue.stage() as staged:
        staged.put(b"x")
        staged._set.make_room()
        staged._set.make_room()
        assert staged._set.placed() is None
        (folder,) = staging(path)
        file = f"{path}/staging/{folder}/placed"
        staged._set.place(1, 2)
        assert staged._set.placed() == (1, 2)
        size = os.path.getsize(file)
        staged._set.place(1, 2)
        assert os.path.getsize(file) == size
        with pytest.raises(shmq.Corrupt, match="was placed at"):
            staged._set.place(1, 3)
        flip(file, size - 1)
        with pytest.raises(shmq.Corrupt, match="fails its checksum"):
            staged._set.placed()


def test_a_set_that_is_closed_is_not_forgotten(queue, path):
    """It is whoever's has it: only what is open is taken away."""
    from shmq.storage import staging as module

    made = module.new_set(queue._session.home)
    assert made.begin()
    made.close()
    made.forget()
    assert os.listdir(f"{path}/staging") == [made.name]
    with made.open():
        made.forget()
    assert os.listdir(f"{path}/staging") == []
    made.forget()

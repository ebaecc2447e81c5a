"""Volatile queues: the same queue in shared memory, ours alone, and gone with its last user, however that one ended."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from support import Child, hold_until_killed, in_child, in_tiny, until

import shmq
from shmq.storage import files, shm, spares, volatile

NAME = "shm:orders"
PATIENCE = 120.0


@pytest.fixture
def root(shm_root) -> Path:
    """Where this test's volatile queues live."""
    return shm_root


def left(root) -> list[str]:
    """What lies in the place of this user's volatile queues."""
    base = Path(shm.base())
    assert base.parent == root
    return sorted(file.name for file in base.iterdir()) if base.exists() else []


def test_a_named_queue_goes_with_its_last_user(root):
    """A queue, a consumer and a second handle keep it; when all are closed nothing is left."""
    queue = shmq.open(NAME)
    assert queue.put(b"one") == 0
    assert queue.place == NAME
    assert shmq.volatile_queues() == [NAME]
    again = shmq.open(NAME, create=False)
    consumer = again.consumer("c")
    queue.close()
    again.close()
    assert consumer.take(timeout=0) == b"one"
    assert left(root) == ["orders.queue", "orders.users"]

    consumer.close()

    assert left(root) == []
    with pytest.raises(shmq.NotFound, match="there is no such volatile queue"):
        shmq.open(NAME, create=False)


def test_a_queue_that_was_forgotten_goes_too(root):
    """Without close, when it is collected."""
    import gc

    queue = shmq.open(None)
    assert len(left(root)) == 2
    queue.consumer("c")
    del queue
    gc.collect()
    assert left(root) == []


def test_an_interpreter_that_ends_takes_its_queue_along(root):
    """Also when nothing was closed."""
    code = (
        "import sys, shmq; from shmq.storage import shm; shm.ROOT = sys.argv[1];"
        "q = shmq.open(None); q.put(b'x'); print(len(shmq.volatile_queues()))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(root)], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"
    assert left(root) == []


def stay(say, place) -> None:
    """Open it and put a message; then be killed."""
    queue = shmq.open(place)  # it ends with its last user
    queue.put(b"of the dead")
    hold_until_killed(say)


def test_after_kill_nine_gc_takes_it_away_and_nothing_that_is_used(root):
    """The lock of the dead is gone with them; that of the living stays."""
    with Child(stay, NAME) as child, shmq.open("shm:used") as used:
        assert child.hear(PATIENCE) == "ready"
        assert shmq.gc() == []
        child.kill()
        assert shmq.volatile_queues() == [NAME, "shm:used"]

        assert shmq.gc() == [NAME]

        assert shmq.volatile_queues() == ["shm:used"]
        assert used.put(b"lives") == 0


def test_after_kill_nine_the_next_opener_begins_anew(root):
    """What the dead had put is not the new queue's; whoever only wants to look finds none."""
    for create in (True, False):
        with Child(stay, NAME) as child:
            assert child.hear(PATIENCE) == "ready"
            with shmq.open(NAME, create=False) as both:
                assert both[0].payload == b"of the dead"
            child.kill()
        if create:
            with shmq.open(NAME) as queue:
                assert len(queue) == 0
                assert queue.put(b"mine") == 0
        else:
            with pytest.raises(shmq.NotFound):
                shmq.open(NAME, create=False)
        assert left(root) == []


def test_the_next_anonymous_queue_takes_dead_ones_away(root, monkeypatch):
    """They have no name that anybody would open again. The next of a process that has not looked for a minute."""
    monkeypatch.setattr(volatile, "_swept_at", None)
    with Child(stay, None) as child:
        assert child.hear(PATIENCE) == "ready"
        child.kill()
    (dead,) = shmq.volatile_queues()
    with shmq.open(None) as queue:
        assert shmq.volatile_queues() == [queue.place]
        assert queue.place != dead


def test_an_opener_killed_while_making_it_is_no_obstacle(root, monkeypatch):
    """Before every step that changes something: the next one makes the queue."""
    for step in range(1, 40):

        def die(say, step=step) -> None:
            counted = [0]

            def dying(real):
                def call(*arguments, **keywords):
                    counted[0] += 1
                    if counted[0] == step:
                        os._exit(9)
                    return real(*arguments, **keywords)

                return call

            for name in ("new_file", "link_file", "make_directory"):
                setattr(files, name, dying(getattr(files, name)))
            spares.lock_alone = dying(spares.lock_alone)
            shmq.open(NAME)
            say("opened")
            os._exit(0)

        with Child(die) as child:
            status = child.join(PATIENCE)
        with shmq.open(NAME) as queue:
            assert queue.put(b"x") == 0
        assert left(root) == []
        if status == 0:
            break
    assert step > 5


def test_a_forked_child_keeps_it(root):
    """It shares the lock of its parent, who cannot take the queue away from under it."""
    queue = shmq.open(None)
    read, write = os.pipe()

    def use(say) -> None:
        say("ready")
        os.read(read, 1)
        say(queue.put(b"from the child"))

    with Child(use) as child:
        assert child.hear(PATIENCE) == "ready"
        queue.close()
        assert len(left(root)) == 2
        os.write(write, b"g")
        assert child.hear(PATIENCE) == "0"
        child.join(PATIENCE)
    assert shmq.gc() == [queue.place]
    os.close(read)
    os.close(write)


def _put_in_spawned(queue, base) -> None:
    queue.put(b"spawned")
    queue.close()


def test_an_anonymous_queue_crosses_spawn_and_fork(tmp_path):
    """By pickling: to the same queue, without anybody knowing its name."""
    with shmq.open(None) as queue, queue.consumer("c") as consumer:
        process = multiprocessing.get_context("spawn").Process(target=_put_in_spawned, args=(queue, ""))
        process.start()
        assert consumer.take(timeout=PATIENCE) == b"spawned"
        process.join(PATIENCE)
        assert in_child(lambda: queue.put(b"forked")) == "1"
        assert consumer.take(timeout=PATIENCE) == b"forked"
        with pickle.loads(pickle.dumps(queue)) as again:
            assert again.put(b"pickled") == 2
        place = queue.path
        assert os.path.isdir(place)
    assert not os.path.exists(place)


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_child_that_is_started_with_a_queue_finds_it_whatever_its_starter_does(method):
    """It was gone when the child came to open it, where its starter had closed or forgotten it."""
    queue = shmq.open(None)
    queue.put(b"x")
    place = queue.path
    process = multiprocessing.get_context(method).Process(target=take_one, args=(queue,))
    process.start()
    queue.close()
    process.join(PATIENCE)
    assert process.exitcode == 0
    shmq.gc()  # a child of a server ends without saying so
    assert not os.path.exists(place)


def take_one(queue):
    assert queue.consumer("c").take(timeout=5) == b"x"


def test_many_openers_and_leavers_agree(root):
    """Opened and closed by several processes at once: each finds a whole queue, and at the end nothing is left."""

    def churn(say) -> None:
        for _ in range(40):
            with shmq.open(NAME) as queue:
                index = queue.put(b"x" * 100)
                assert queue[index].payload == b"x" * 100
        say("done")

    children = [Child(churn) for _ in range(4)]
    for child in children:
        assert child.hear(PATIENCE) == "done"
        assert child.join(PATIENCE) == 0
    assert left(root) == []


# ---------------------------------------------------------------- whose place it is
def test_the_place_is_ours_alone(root):
    """Directory 0700, files 0600."""
    with shmq.open(NAME) as queue:
        queue.put(b"x")
        for folder, _, names in os.walk(shm.base()):
            assert os.stat(folder).st_mode & 0o777 == 0o700
            for name in names:
                assert os.stat(f"{folder}/{name}").st_mode & 0o777 in (0o600, 0o400), name


@pytest.mark.parametrize("mode", [0o777, 0o755, 0o750, 0o500])
def test_a_place_with_another_mode_is_refused(root, mode):
    """Somebody may have made it for us."""
    Path(shm.base()).mkdir()
    os.chmod(shm.base(), mode)
    with pytest.raises(shmq.Unsafe):
        shmq.open(NAME)
    assert left(root) == []


@pytest.mark.parametrize("what", ["link", "file"])
def test_a_place_that_is_no_directory_is_refused(root, tmp_path, what):
    """Nothing is followed, nothing is changed."""
    (tmp_path / "theirs").mkdir()
    if what == "link":
        Path(shm.base()).symlink_to(tmp_path / "theirs")
    else:
        Path(shm.base()).write_bytes(b"")
    with pytest.raises(shmq.Unsafe):
        shmq.open(NAME)
    assert list((tmp_path / "theirs").iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a directory for somebody else")
def test_a_place_of_another_user_is_refused(root):
    """Names in /dev/shm can be guessed."""
    Path(shm.base()).mkdir(0o700)
    os.chown(shm.base(), 12345, 12345)
    with pytest.raises(shmq.Unsafe, match="belongs to user 12345"):
        shmq.open(NAME)


@pytest.mark.parametrize("part", ["orders.users", "orders.queue"])
def test_links_inside_the_place_are_refused(root, tmp_path, part):
    """They cannot come from us."""
    Path(shm.base()).mkdir(0o700)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "precious").write_bytes(b"precious")
    Path(shm.base(), part).symlink_to(tmp_path / "theirs")
    with pytest.raises((shmq.Unsafe, shmq.BadFormat)):
        shmq.open(NAME)
    assert (tmp_path / "theirs" / "precious").read_bytes() == b"precious"


@pytest.mark.parametrize("name", ["", "a/b", "../x", ".hidden", "x" * 201, "a b"])
def test_a_name_is_a_word(root, name):
    """Nothing that leads elsewhere."""
    with pytest.raises(ValueError, match="names no volatile queue"):
        shmq.open(f"shm:{name}")


# ---------------------------------------------------------------- how much there is
def test_chunks_begin_small(root):
    """256 KiB, then four times that."""
    with shmq.open(NAME) as queue:
        for _ in range(10):
            queue.put(bytes(100_000))
        sizes = sorted(file.stat().st_size for file in Path(queue.path, "chunks").iterdir())
    assert sizes == [256 << 10, 1 << 20]


def test_a_full_dev_shm_is_disk_full_with_the_remedy(tmp_path):
    """No SIGBUS: what was put can be read, and when it was taken there is room again."""
    said = in_tiny(
        """
q = shmq.open("shm:full")
c = q.consumer("c")
n = 0
try:
    while True:
        q.put(n.to_bytes(4, "big") * 5000)
        n += 1
except shmq.DiskFull as problem:
    print("--shm-size" in str(problem))
print(n * 20000 > 4 << 20)
print(all(c.take(timeout=0) == i.to_bytes(4, "big") * 5000 for i in range(n)))
print(q.put(b"again") == n)
""",
        "8m",
    )
    assert said.split() == ["True"] * 4


def test_the_64_mb_of_a_container_carry_any_amount(tmp_path):
    """A consumer that keeps up needs little room, also for large messages."""
    said = in_tiny(
        """
with shmq.open(None) as q, q.consumer("c") as c:
    for i in range(200):
        q.put(bytes([i]) * (1 << 20))
        assert c.take(timeout=0) == bytes([i]) * (1 << 20)
    print(sum(os.stat(os.path.join(q.path, "chunks", f)).st_size for f in os.listdir(q.path + "/chunks")) < 40 << 20)
print(os.listdir("/dev/shm/shmq-0"))
""",
        "64m",
    )
    assert said.split() == ["True", "[]"]


def test_a_queue_that_was_full_once_leaves_room_for_another(tmp_path):
    """It kept all its used files to serve again, up to 64 MiB of them, which was all there was."""
    said = in_tiny(
        """
q, other = shmq.open("shm:full"), shmq.open("shm:other")
c = q.consumer("c")
try:
    while True:
        q.put(bytes(1 << 20))
except shmq.DiskFull:
    pass
try:
    while True:
        c.take(timeout=0)
except shmq.Empty:
    pass
room = os.statvfs("/dev/shm")
print(room.f_bavail * room.f_frsize > 32 << 20)
print([other.put(bytes(1 << 20)) for _ in range(20)] == list(range(20)))
""",
        "64m",
    )
    assert said.split() == ["True"] * 2


def test_delete_by_name(root):
    """As any queue; refused while somebody else has it open."""
    queue = shmq.open(NAME)
    with pytest.raises(shmq.Busy):
        shmq.delete(NAME)
    queue.close()
    with Child(stay, NAME) as child:
        child.hear(PATIENCE)
        with pytest.raises(shmq.Busy):
            shmq.delete(NAME)
    until(lambda: shmq.gc() == [NAME])
    with pytest.raises(shmq.NotFound):
        shmq.delete(NAME)


def test_no_disk_keeps_it_so_no_durability_is_promised():
    with pytest.raises(ValueError, match="no disk keeps it"):
        shmq.open(None, options=shmq.Options(durability=shmq.Durability.SYNC))


def test_found_the_name_of_a_volatile_queue_was_taken_for_a_path(root, tmp_path, monkeypatch):
    """Where a queue is looked after: `verify` found no such directory, and `copy` made it."""
    monkeypatch.chdir(tmp_path)
    with shmq.open("shm:kept") as queue:
        queue.put(b"one")
        found = shmq.verify("shm:kept")
        assert (bool(found), found.messages, found) == (True, 1, queue.verify())
        for work in (queue.copy, queue.repair, lambda to: shmq.repair(tmp_path, to), shmq.repair):
            with pytest.raises(
                ValueError, match="'shm:other' is the name of a volatile queue, and a directory is wanted"
            ):
                work("shm:other")
    with pytest.raises(shmq.NotFound, match="shm:kept"):
        shmq.verify("shm:kept")
    for work in (shmq.verify, shmq.delete):
        with pytest.raises(
            ValueError, match=r"'csp://h:1/x' is the address of a queue at a server, and a directory is"
        ):
            work("csp://h:1/x")
    assert list(tmp_path.iterdir()) == []

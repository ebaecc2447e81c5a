"""What users of one group do with one queue, by real uids: all that one user does with it alone."""

import os
import pickle
import signal
from pathlib import Path

import shmq
from shmq.storage import files
from tests.support import chunk_files, flip, hold_until_killed, killed_at, make_unclean, until, words
from tests.users.people import ALICE, APP, BOB, EVE, become, by, misfits, owners, person, several

pytestmark = several


def asleep(pid):
    """Whether its first thread waits on a futex."""
    return "futex" in Path(f"/proc/{pid}/wchan").read_text() or Path(f"/proc/{pid}/syscall").read_text().startswith(
        "202"
    )


def everything(path, name):
    """Whatever makes, changes or removes a file of the queue, with a umask that leaves others nothing."""
    os.umask(0o077)
    with shmq.open(path, group=APP, chunk_bytes=16384) as queue:
        for number in range(60):
            queue.put(b"%d" % number + bytes(2000), dedup=(name, number + 1))
        with queue.consumer(f"one-{name}", ack="explicit") as one:
            for message in one.get_many(30, timeout=5):
                message.ack()
        with queue.consumer("work", group=True, ack="explicit", max_attempts=1) as work:
            for message in work.get_many(40, timeout=5):
                message.ack() if message.index % 3 else message.reject("not this one")
        with (
            shmq.open(f"{path}.next", group=APP) as following,
            queue.consumer("passes", group=True, ack="explicit") as passing,
            passing.get(timeout=5).forward() as into,
        ):
            into.put(following, b"passed on")
        with queue.stage() as staged:
            staged.put_many([b"x" * 100] * 500)
            queue.adopt(staged, dedup=(f"set-{name}", 1))
        with queue.pin() if hasattr(queue, "pin") else queue.reader() as reader:
            next(iter(reader), None)
        queue.configure(max_messages=100_000)
        queue.consumer("some", filter=shmq.Filter(types={1}), group=True).close()
        queue.consumer("short", expires=60.0).close()
        queue.consumer(ephemeral=True).close()
        queue.put(b"by key", key=b"k")
        assert queue.latest(b"k").payload == b"by key"
        queue.drop_consumer(f"one-{name}")
        queue.consumer("held", hold=True).close()
        queue.sync()
        queue.copy(f"{path}.copy-{name}")
        shmq.repair(path, f"{path}.repaired-{name}")
        queue.finish()
    with shmq.open(path, group=APP) as queue:
        queue.put(b"open again")
        assert not queue.verify().problems
    return "done"


def test_each_does_everything_after_the_other_and_all_of_it_stays_the_groups(place):
    """Directories 2770, files 0660, of that group; whoever made them, whatever its umask."""
    path = f"{place}/q"
    for uid, name in [(ALICE, "a"), (BOB, "b"), (ALICE, "c"), (BOB, "d")]:
        assert by(uid, everything, path, name) == "done"
    assert misfits(path) == []
    assert owners(path) == {ALICE, BOB}
    made = os.listdir(place)
    copies = {f"q.{what}-{name}" for what in ("copy", "repaired") for name in "abcd"}
    assert set(made) == {"q", "q.next", "q.work.dead"} | copies
    for each in made:
        assert misfits(f"{place}/{each}") == []


def test_what_one_puts_the_other_takes_at_once(place):
    """A sleeper of another user is woken; the options say how it is shared."""

    def takes(say):
        with shmq.open(f"{place}/q", group=APP) as queue, queue.consumer("c") as consumer:
            say("ready")
            say(consumer.take(timeout=20))
            assert (queue.options.mode, queue.options.group) == (0o660, APP)

    def puts():
        with shmq.open(f"{place}/q", mode=0o660, group=APP) as queue:
            return queue.put(b"hello")

    with person(BOB, takes) as bob:
        assert bob.hear() == "ready"
        assert by(ALICE, puts) == "0"
        assert bob.hear() == "b'hello'"
        assert bob.join() == 0


def test_a_claim_of_a_killed_user_comes_to_the_other_and_its_death_is_watched(place):
    """By pidfd, which asks nobody's leave: no lock is polled."""

    def holds(say):
        queue = shmq.open(f"{place}/q", group=APP)
        queue.put(b"once more")
        work = queue.consumer("work", group=True, ack="explicit")
        say(work.get(timeout=20).attempts)
        hold_until_killed(say)

    def waits(say):
        from shmq import watcher

        with (
            shmq.open(f"{place}/q", group=APP) as queue,
            queue.consumer("work", group=True, ack="explicit") as work,
        ):
            say("ready")
            message = work.get(timeout=20)
            say([len(watched.unseen) for watched in watcher._watcher.queues])
            say(message.attempts)
            message.ack()

    with person(ALICE, holds) as alice:
        assert alice.hear() == "1"
        assert alice.hear() == "ready"
        with person(BOB, waits) as bob:
            assert bob.hear() == "ready"
            until(lambda: asleep(bob.pid))
            alice.kill()
            assert bob.hear() == "[0]"
            assert bob.hear() == "2"
            assert bob.join() == 0


def test_a_file_that_one_user_retired_serves_the_other_again(place):
    """Zeroed where it lies: what is another's can be mapped, written, renamed."""
    path = f"{place}/q"

    def rolls(count):
        with shmq.open(path, group=APP, chunk_bytes=4 << 20) as queue, queue.consumer("c") as consumer:
            for number in range(count):
                queue.put(b"%d" % number + bytes(1 << 20))
                consumer.take(timeout=5)
        return "done"

    assert by(ALICE, rolls, 30) == "done"
    before = {os.stat(each).st_ino for each in Path(path, "chunks").iterdir()}
    assert by(BOB, rolls, 30) == "done"
    again = [os.stat(each) for each in chunk_files(path)]
    assert any(info.st_ino in before and info.st_uid == ALICE for info in again)
    assert misfits(path) == []


def test_who_comes_first_after_a_reboot_recovers_what_the_other_made(place):
    """And the other goes on with that; what was cut off is set aside for both."""
    path = f"{place}/q"

    def puts(count):
        with shmq.open(path, group=APP) as queue:
            for number in range(count):
                queue.put(b"%d" % number)
            return len(queue), queue.recovery is not None

    assert by(ALICE, puts, 20) == "(20, False)"
    make_unclean(path)
    assert by(BOB, puts, 5) == "(25, True)"
    assert by(ALICE, puts, 5) == "(30, False)"
    make_unclean(path)
    assert by(ALICE, puts, 5) == "(35, True)"
    assert misfits(path) == []


def test_a_damaged_queue_is_repaired_in_place_by_whoever_notices(place):
    """Its place is the group's."""
    path = f"{place}/q"

    def puts():
        with shmq.open(path, group=APP) as queue:
            for _ in range(100):
                queue.put(b"x" * 50)
        return "done"

    def repairs():
        return shmq.repair(path, in_place=True).messages

    assert by(ALICE, puts) == "done"
    flip(chunk_files(path)[0], words(path)[50].position + 60)
    assert by(BOB, repairs) == "99"
    assert misfits(path) == []
    assert by(ALICE, puts) == "done"


def test_deletion_by_the_other_leaves_nothing(place):
    """Also of what was being made in a folder when somebody was killed."""
    path = f"{place}/q"
    assert by(ALICE, everything, path, "a") == "done"
    os.mkdir(f"{path}/staging.making-12345678")
    assert by(BOB, lambda: shmq.delete(path)) == "None"
    assert not os.path.exists(path)


def test_a_queue_crosses_to_another_user_by_its_pickle(place):
    """Which says for whom it is shared, so the receiver need not."""

    def makes():
        with shmq.open(f"{place}/q", group=APP) as queue:
            queue.put(b"x")
            return pickle.dumps(queue).hex()

    made = by(ALICE, makes)

    def takes():
        with pickle.loads(bytes.fromhex(made)) as queue, queue.consumer("c") as consumer:
            return consumer.take(timeout=5)

    assert by(BOB, takes) == "b'x'"


def test_an_empty_directory_of_ours_becomes_the_groups(place):
    """As one that the administrator has made for it serves as it is."""

    def creates(name):
        shmq.open(f"{place}/{name}", group=APP).close()
        return "made"

    os.mkdir(f"{place}/mine", 0o755)
    os.chown(f"{place}/mine", ALICE, ALICE)
    os.mkdir(f"{place}/given")
    os.chown(f"{place}/given", 0, APP)
    os.chmod(f"{place}/given", 0o2770)
    os.mkdir(f"{place}/bobs", 0o755)
    os.chown(f"{place}/bobs", BOB, BOB)
    for name in ("mine", "given"):
        assert by(ALICE, creates, name) == "made"
        assert misfits(f"{place}/{name}") == []
    assert by(ALICE, creates, "bobs").startswith(f"Unsafe: cannot open {place}/bobs: it belongs to user {BOB}")
    assert os.listdir(f"{place}/bobs") == []


# ---------------------------------------------------------------- volatile
def test_a_volatile_queue_of_the_group_is_found_by_both_and_gone_with_the_last(place):
    """Under shm:GROUP:NAME, in a directory that is the group's."""

    def stays(say):
        queue = shmq.open("shm:orders", group=APP)
        queue.put(b"x")
        say(queue.place)
        while os.getppid() != 1:
            signal.pause()

    def takes():
        with shmq.open(f"shm:{APP}:orders", create=False) as queue, queue.consumer("c") as consumer:
            return consumer.take(timeout=5), queue.options.group

    with person(ALICE, stays) as alice:
        assert alice.hear() == f"shm:{APP}:orders"
        assert by(BOB, takes) == f"(b'x', {APP})"
        assert misfits(f"/dev/shm/shmq-g{APP}") == []
        assert by(EVE, takes, groups=()).startswith("PermissionError: ")
        alice.kill()
    assert by(BOB, shmq.volatile_queues) == f"['shm:{APP}:orders']"
    assert by(BOB, shmq.gc) == f"['shm:{APP}:orders']"  # what another user's death has left
    assert os.listdir(f"/dev/shm/shmq-g{APP}") == []


def test_letters_of_a_volatile_queue_lie_beside_it(place):
    """And last as long as it does."""

    def rejects():
        with shmq.open("shm:jobs", group=APP) as queue:
            queue.put(b"bad")
            with queue.consumer("work", group=True, ack="explicit") as work:
                work.get(timeout=5).reject("bad")
            with shmq.open(f"shm:{APP}:jobs.work.dead", create=False) as letters:
                return letters[0].payload, shmq.volatile_queues()

    assert by(ALICE, rejects) == f"(b'bad', ['shm:{APP}:jobs', 'shm:{APP}:jobs.work.dead'])"
    assert os.listdir(f"/dev/shm/shmq-g{APP}") == []


def test_an_anonymous_queue_goes_to_another_user_by_its_pickle(place):
    """It is in the group's directory; and ends with both."""

    def makes(say):
        queue = shmq.open(None, group=APP)
        queue.put(b"x")
        say(pickle.dumps(queue).hex())
        hold_until_killed(say)

    with person(ALICE, makes) as alice:
        made = alice.hear()

        def takes():
            with pickle.loads(bytes.fromhex(made)) as queue, queue.consumer("c") as consumer:
                return consumer.take(timeout=5)

        assert by(BOB, takes) == "b'x'"
        alice.kill()
    shmq.open(None).close()  # this process has looked not long ago, and the next one that it forks looks all the same
    by(BOB, lambda: shmq.open(None, group=APP).close())
    assert os.listdir(f"/dev/shm/shmq-g{APP}") == []


# ---------------------------------------------------------------- on the command line
def test_the_command_makes_one_and_another_user_uses_it(place, capfd):
    """With --group; --mode says nothing more."""
    from shmq import cli

    def run(*words):
        return cli.main([str(word) for word in words])

    assert by(ALICE, run, "create", f"{place}/q", "--group", APP, "--mode", "660") == "0"
    assert by(BOB, run, "put", f"{place}/q", "hello") == "0"
    assert by(ALICE, run, "take", f"{place}/q", "c") == "0"
    assert by(ALICE, run, "stat", f"{place}/q") == "0"
    told = capfd.readouterr().out
    assert f"made {place}/q (codec bytes, shared by group {APP})" in told
    assert "hello" in told
    assert f"mode=0o660, group={APP}" in told
    assert by(BOB, run, "create", f"{place}/r", "--mode", "660") == "2"
    assert "by group=" in capfd.readouterr().err
    assert by(EVE, run, "stat", f"{place}/q", groups=()) == "1"
    assert f"group {APP} shares it, and user {EVE} is not in that group" in capfd.readouterr().err


def test_a_creation_that_was_killed_at_any_step_is_finished_by_the_other(place):
    """Nothing has a name before it has the group's rights, which nobody else could give it."""

    def creates(path):
        with shmq.open(path, group=APP) as queue, queue.stage() as staged:
            staged.put(b"x")
            queue.adopt(staged)
        return "made"

    for step in range(1000):
        path = f"{place}/q{step}"

        def of_alice(path=path):
            become(ALICE, APP)
            creates(path)

        killed = killed_at(step, of_alice, {"chmod", "chown", "fchmod", "link", "mkdir", "shmq_rename_new"})
        assert by(BOB, creates, path) == "made"
        assert [each for each in misfits(path) if files.MAKING not in each] == []
        assert by(BOB, shmq.delete, path) == "None"
        assert not os.path.exists(path)
        if not killed:
            break
    assert step > 20

"""Containers whose users are not one share a queue by its group; a death in one is seen in the others."""

import os
import shutil
import stat

import pytest

import shmq
from tests.support import hold_until_killed, in_child, until
from tests.users import containers, people
from tests.users.people import ALICE, APP, BOB, become, misfits, owners, person

pytestmark = pytest.mark.skipif(
    bool(containers.why_not() or people.REASON), reason=containers.why_not() or people.REASON
)

FIRST, SECOND = APP << 3, (APP << 3) + 1000
"""Where the users of the two containers begin, out here."""


def puts(say, path, group, count):
    with shmq.open(path, group=group) as queue:
        for number in range(count):
            queue.put(b"%d" % number)
        say((queue.options.group, os.geteuid(), os.getpid()))


def takes(say, path, group, count):
    with shmq.open(path, group=group) as queue, queue.consumer("work", group=True, ack="explicit") as work:
        say("ready")
        for _ in range(count):
            message = work.get(timeout=20)
            message.ack()
        say((bytes(message.payload), message.attempts, queue.options.group))


def holds(say, path, group):
    queue = shmq.open(path, group=group)
    work = queue.consumer("work", group=True, ack="explicit")
    say(work.get(timeout=20).attempts)
    hold_until_killed(say)


@pytest.mark.parametrize("inside", [2000, 3000])
def test_containers_with_other_users_share_by_the_group(place, inside):
    """Whatever number it has in each: files know one. All are user 0 and process 1, for themselves."""
    path = f"{place}/q"
    with containers.Container(FIRST, {2000: APP}, puts, path, 2000, 50) as first:
        assert first.hear() == "(2000, 0, 1)"
        assert first.join() == 0
    with containers.Container(SECOND, {inside: APP}, puts, path, inside, 50) as second:
        assert second.hear() == f"({inside}, 0, 1)"
        assert second.join() == 0
    assert misfits(path) == []
    assert owners(path) >= {FIRST}
    with person(ALICE, takes, path, APP, 100) as outside:
        assert outside.hear() == "ready"
        assert outside.hear() == f"(b'49', 1, {APP})"


def test_a_death_in_a_container_is_seen_in_another_while_that_sleeps(place):
    """By the lock on its seat: nobody's pid means anything there."""
    path = f"{place}/q"
    with containers.Container(FIRST, {2000: APP}, puts, path, 2000, 1) as first:
        assert first.join() == 0
    with containers.Container(FIRST, {2000: APP}, holds, path, 2000) as first:
        assert first.hear() == "1"
        assert first.hear() == "ready"
        with containers.Container(SECOND, {3000: APP}, takes, path, 3000, 1) as second:
            assert second.hear() == "ready"
            until(lambda: asleep(second.inner))
            first.kill()
            assert second.hear() == "(b'0', 2, 3000)"
            assert second.join() == 0


def asleep(pid):
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(") ")[2].startswith("S")


def test_a_death_is_seen_where_other_users_processes_are_hidden(place):
    """hidepid: a pid that can be opened and not looked at is no witness, so the lock is tested."""
    path = f"{place}/q"

    def hidden(say, other):
        try:
            containers.hide_processes()
        except OSError as problem:
            say(f"no hidepid here: {problem}")
            return
        become(BOB, APP)
        say(os.path.exists(f"/proc/{other}"))
        takes(say, path, APP, 1)

    with person(ALICE, puts, path, APP, 1) as alice:
        assert alice.join() == 0
    with person(ALICE, holds, path, APP) as alice:
        assert alice.hear() == "1"
        assert alice.hear() == "ready"
        with people.Child(hidden, alice.pid) as bob:
            said = bob.hear()
            if said.startswith("no hidepid"):
                pytest.skip(said)
            assert said == "False"
            assert bob.hear() == "ready"
            until(lambda: asleep(bob.pid))
            alice.kill()
            assert bob.hear() == f"(b'0', 2, {APP})"


def test_a_container_that_has_no_number_for_the_group_is_refused_by_that(place):
    """All such groups look alike there, so one of them could be any other."""
    path = f"{place}/q"
    with person(ALICE, puts, path, APP, 1) as alice:
        assert alice.join() == 0

    def tries(say):
        info = os.stat(path)
        say((stat.S_IMODE(info.st_mode), info.st_gid, os.access(f"{path}/queue.shmq", os.W_OK)))
        for group in (None, 2000, info.st_gid):
            try:
                shmq.open(path, group=group)
            except (shmq.ShmqError, OSError, ValueError) as problem:
                say(f"{type(problem).__name__}: {problem}")

    def kept(say):
        pid, (read, write) = os.getpid(), os.pipe()
        os.setgroups([APP])
        outside = people.Child(lambda tell: (os.read(read, 1), containers.write_maps(pid, FIRST, {}), tell("mapped")))
        people.unshare(people.CLONE_NEWUSER)
        os.write(write, b"!")
        outside.hear()
        os.setresuid(0, 0, 0)  # of in here; its groups stay
        tries(say)

    with people.Child(kept) as child:
        assert child.hear() == f"({0o2770}, 65534, True)"  # the kernel would let it
        assert child.hear().startswith(f"Unsafe: cannot open {path}: it belongs to user 65534")
        assert child.hear().startswith(f"Unsafe: cannot open {path}: it is of group 65534")
        assert child.hear().startswith(
            "ValueError: group=65534: 65534 is what every group is shown as that has no number"
        )


def test_a_volatile_queue_is_shared_where_the_group_has_the_same_number():
    """Its directory is named by that; containers have /dev/shm in common as they have a volume."""

    def stays(say):
        queue = shmq.open("shm:q", group=2000)
        queue.put(b"x")
        say(queue.place)
        hold_until_killed(say)

    def other(say):
        with shmq.open("shm:2000:q", create=False) as queue, queue.consumer("c") as consumer:
            say(consumer.take(timeout=20))

    base = "/dev/shm/shmq-g2000"
    if os.path.exists(base):
        pytest.skip(f"{base} is somebody's")
    try:
        with containers.Container(FIRST, {2000: APP}, stays) as first:
            assert first.hear() == "shm:2000:q"
            with containers.Container(SECOND, {2000: APP}, other) as second:
                assert second.hear() == "b'x'"
                assert second.join() == 0
            first.kill()
    finally:
        shutil.rmtree(base, ignore_errors=True)
    assert in_child(os.path.exists, base) == "False"

"""Who is not in the group gets nothing, and is told why; what is not shared exactly as it should be is not opened."""

import errno
import grp
import json
import os
import shutil
import stat
import struct
from pathlib import Path

import pytest

import shmq
from shmq import _native, user_group
from shmq.storage import spares
from tests.support import crc32c_by_bits, patch
from tests.users.people import ALICE, APP, BOB, EVE, OTHER, by, misfits, several

NOBODYS = "no-such-group-here"


def opens(path, **keywords):
    with shmq.open(path, create=keywords.pop("create", False), **keywords) as queue:
        return len(queue)


def creates(path, group=APP):
    with shmq.open(path, group=group) as queue:
        queue.put(b"x")
        queue.consumer("c", ack="explicit").close()
    return "made"


@pytest.fixture
def path(place):
    """A queue that Alice has made for the group."""
    assert by(ALICE, creates, f"{place}/q") == "made"
    return f"{place}/q"


# ---------------------------------------------------------------- options
def test_a_group_is_given_by_name_or_number_and_kept_as_its_number():
    """Names differ between containers."""
    known = grp.getgrall()[1]
    assert shmq.Options(group=known.gr_name).group == known.gr_gid
    options = shmq.Options(group=APP)
    assert (options.group, options.mode) == (APP, 0o660)
    assert options == shmq.Options(mode=0o660, group=APP)
    assert shmq.Options().group is None
    assert "group" not in shmq.Options().to_json()  # so an earlier version opens it


@pytest.mark.parametrize(
    ("keywords", "kind", "text"),
    [
        ({"group": NOBODYS}, ValueError, "this machine knows no group of that name"),
        ({"group": "12345"}, ValueError, "write group=12345 for a number"),
        ({"group": True}, TypeError, "the name of a group, or its number"),
        ({"group": -1}, ValueError, "from 0 to"),
        ({"group": 1 << 32}, ValueError, "from 0 to"),
        ({"group": 65534}, ValueError, "names none"),
        ({"mode": 0o660}, ValueError, "say which by group="),
        ({"mode": 0o600, "group": APP}, ValueError, "what a group shares has mode 0o660"),
        ({"mode": 0o666, "group": APP}, ValueError, "what a group shares has mode 0o660"),
        ({"mode": 0o640}, ValueError, "0o600 or 0o700, or 0o660 with group="),
        ({"codec": "pickle", "group": APP}, ValueError, "a pickle runs code"),
    ],
)
def test_what_can_be_no_sharing_is_refused_before_anything_is_made(tmp_path, keywords, kind, text):
    """By the name of the option."""
    with pytest.raises(kind, match=text):
        shmq.open(tmp_path / "q", trusted=True, **keywords)
    assert not (tmp_path / "q").exists()


def test_compat_shares_with_nobody():
    """It holds pickles."""
    from shmq import compat

    for kind in (compat.Queue, compat.JoinableQueue, compat.SimpleQueue):
        with pytest.raises(TypeError, match="group"):
            kind(group=APP)


# ---------------------------------------------------------------- who is not in it
@several
def test_who_is_not_in_the_group_is_refused_by_name_also_to_read(path, place):
    """And leaves nothing behind where it would have shared something."""
    why = f"group {APP} shares it, and user {EVE} is not in that group"
    for keywords in ({}, {"group": APP}, {"read_only": True}):
        assert by(EVE, opens, path, groups=()).startswith("PermissionError: ")
        assert why in by(EVE, lambda keywords=keywords: opens(path, **keywords), groups=())
    assert by(EVE, shmq.verify, path, groups=()).startswith("PermissionError: ")
    assert by(EVE, shmq.delete, path, groups=()).startswith("PermissionError: ")
    before = os.listdir(place)
    os.chmod(place, 0o2777)
    assert why in by(EVE, creates, f"{place}/mine", groups=())
    assert os.listdir(place) == before


@several
def test_root_that_is_not_in_the_group_may_look_and_no_more(path):
    """As with a queue of any other user; a copy that it makes is its own."""
    assert opens(path, read_only=True) == 1
    with pytest.raises(PermissionError, match="user 0 is not in that group"):
        shmq.open(path, group=APP)
    with shmq.open(path, read_only=True) as queue:
        queue.copy(f"{path}.copy")
    assert stat.S_IMODE(os.stat(f"{path}.copy").st_mode) == 0o700
    with shmq.open(f"{path}.copy") as queue:
        assert (queue.options.mode, queue.options.group) == (0o600, None)
        assert queue.put(b"y") >= 1


@several
def test_another_users_queue_is_opened_only_by_who_names_its_group(path):
    """Else whoever shares any group with us could have a queue ready where we look for ours."""
    refused = by(BOB, opens, path)
    assert refused.startswith(f"Unsafe: cannot open {path}: it belongs to user {ALICE}, and this is user {BOB}. ")
    assert f"Group {APP} shares it: group={APP} says that you mean it" in refused
    assert by(BOB, lambda: opens(path, create=True)).startswith("Unsafe: ")
    assert by(BOB, lambda: opens(path, group=APP)) == "1"
    assert by(BOB, lambda: opens(path, read_only=True)) == "1"
    assert by(ALICE, opens, path) == "1"  # its maker
    wrong = by(BOB, lambda: opens(path, group=OTHER), groups=(APP, OTHER))
    assert wrong.startswith(
        f"Unsafe: cannot open {path}: it is of group {APP}, and belongs among files of group {OTHER}"
    )
    assert by(ALICE, lambda: opens(path, group=None)).startswith("Mismatch: ")


@several
def test_where_there_is_one_users_queue_a_group_is_a_contradiction(place):
    """It was made for one alone."""
    assert by(ALICE, lambda: shmq.open(f"{place}/q").close()) == "None"
    assert by(ALICE, lambda: opens(f"{place}/q", group=APP)).startswith("Mismatch: ")
    assert by(BOB, lambda: opens(f"{place}/q", group=APP)).startswith("PermissionError: ")
    os.chmod(f"{place}/q", 0o755)
    assert f"it belongs to user {ALICE}" in by(BOB, lambda: opens(f"{place}/q", group=APP))


# ---------------------------------------------------------------- what is not as it should be
@several
@pytest.mark.parametrize(
    ("mode", "text"),
    [(0o770, "others may write there (mode 0o770)"), (0o2775, "others may write"), (0o3770, "others may write")],
)
def test_a_directory_with_other_rights_is_refused(path, mode, text):
    """The setgid bit lost, the world let in, a sticky bit."""
    os.chmod(path, mode)
    for uid in (ALICE, BOB):
        refused = by(uid, lambda: opens(path, group=APP))
        assert refused.startswith("Unsafe: ")
        assert text in refused or uid == BOB


@several
@pytest.mark.parametrize("name", ["queue.shmq", "control.shmq", "consumers/c.checkpoint", "chunks", "chunks/*"])
def test_a_file_with_other_rights_or_of_another_group_is_refused(path, name):
    """Whoever finds it says which, and what it should have."""
    (file,) = Path(path).glob(name)
    kept = os.stat(file)

    def uses():
        with shmq.open(path, group=APP) as queue, queue.consumer("c", ack="explicit") as consumer:
            return consumer.get(timeout=0).payload

    for mode in (0o640, 0o664, 0o600) if file.is_file() else (0o2775, 0o770):
        os.chmod(file, mode)
        refused = by(BOB, uses, groups=(APP,))
        assert "Unsafe: " in refused or "PermissionError: " in refused, (mode, refused)
        assert str(file) in refused
        os.chmod(file, stat.S_IMODE(kept.st_mode))
    os.chown(file, -1, OTHER)
    os.chmod(file, stat.S_IMODE(kept.st_mode))
    refused = by(BOB, uses, groups=(APP, OTHER))
    assert f"it is of group {OTHER}, and belongs among files of group {APP}" in refused
    os.chown(file, -1, APP)
    os.chmod(file, stat.S_IMODE(kept.st_mode))
    assert by(BOB, uses) == "b'x'"


def acl(*entries):
    """An extended access control list, as the kernel has it: (tag, rights, id)."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


NAMED = acl((1, 6, 0xFFFFFFFF), (2, 6, EVE), (4, 6, 0xFFFFFFFF), (16, 6, 0xFFFFFFFF), (32, 0, 0xFFFFFFFF))
NAMED_DIR = acl((1, 7, 0xFFFFFFFF), (2, 7, EVE), (4, 7, 0xFFFFFFFF), (16, 7, 0xFFFFFFFF), (32, 0, 0xFFFFFFFF))


def list_rights(path, name, value):
    try:
        os.setxattr(path, name, value)
    except OSError as problem:
        if problem.errno == errno.EOPNOTSUPP:
            pytest.skip("this file system has no access control lists")
        raise


@several
@pytest.mark.parametrize("name", [".", "chunks", "queue.shmq", "control.shmq"])
def test_an_access_control_list_that_lets_others_in_is_refused(path, name):
    """The mode shows nothing of it."""
    file = os.path.join(path, name)
    mode = os.stat(file).st_mode
    list_rights(file, "system.posix_acl_access", NAMED_DIR if os.path.isdir(file) else NAMED)
    assert os.stat(file).st_mode == mode
    assert "an access control list gives others rights to it" in by(BOB, lambda: opens(path, group=APP))
    os.removexattr(file, "system.posix_acl_access")
    assert by(BOB, lambda: opens(path, group=APP)) == "1"


@several
def test_a_list_that_new_files_would_inherit_is_refused(path, place):
    """Of the directory; and where a queue is made below one that has it, nothing is made."""
    list_rights(path, "system.posix_acl_default", NAMED_DIR)
    assert "an access control list" in by(BOB, lambda: opens(path, group=APP))
    list_rights(place, "system.posix_acl_default", NAMED_DIR)
    before = os.listdir(place)
    refused = by(ALICE, creates, f"{place}/new")
    assert refused.startswith(f"Unsafe: cannot make {place}/new: an access control list")
    assert os.listdir(place) == before


@several
def test_a_setgid_bit_that_the_kernel_takes_away_is_noticed(place):
    """Before the directory has its name."""

    def loses():
        real = os.chmod
        os.chmod = lambda path, mode, **given: real(path, mode & 0o777, **given)
        return creates(f"{place}/q")

    refused = by(ALICE, loses)
    assert refused.startswith(
        f"Unsafe: cannot make {place}/q: its mode is 0o770, and 0o2770 what its group shares; the set"
    )
    assert os.listdir(place) == []


@several
def test_a_queue_of_one_user_does_not_become_the_groups_by_chmod(place):
    """Its options say whom it was made for, and its maker may not know."""
    path = f"{place}/q"
    assert by(ALICE, lambda: shmq.open(path).close()) == "None"
    for folder, _, names in os.walk(path):
        for each in (folder, *(f"{folder}/{name}" for name in names)):
            os.chown(each, -1, APP)
            os.chmod(each, 0o2770 if os.path.isdir(each) else 0o660)
    for uid in (ALICE, BOB):
        assert "it was made for one user alone" in by(uid, lambda: opens(path, group=APP))
    assert by(ALICE, opens, path).startswith("Unsafe: ")


@several
def test_a_private_copy_of_a_shared_queue_is_ones_own(path, place):
    """As `cp -r` makes it, below a directory that gives nobody rights."""
    os.chmod(place, 0o777)

    def copies():
        os.umask(0o077)
        shutil.copytree(path, f"{place}/copy", copy_function=shutil.copyfile)
        for folder in (f"{place}/copy", f"{place}/copy/chunks", f"{place}/copy/consumers"):
            os.chmod(folder, 0o700)
        with shmq.open(f"{place}/copy") as queue:
            queue.put(b"y")
            return len(queue), queue.options.mode, queue.options.group

    assert by(BOB, copies) == f"(2, {0o600}, None)"
    assert {os.stat(each).st_mode & 0o7777 for each in Path(f"{place}/copy").rglob("*.*")} == {0o600}


# ---------------------------------------------------------------- members who mean ill
@several
def test_a_codec_that_a_member_wrote_into_the_file_runs_nothing(path):
    """Pickle, whatever the opener trusts."""
    with open(f"{path}/queue.shmq", "rb") as file:
        page = bytearray(file.read(4096))
    queue_id, stored = _native.check_queue(bytes(page), path)
    options = {**json.loads(stored), "codec": "pickle"}
    forged = _native.format_queue(queue_id, 1, json.dumps(options).encode())
    patch(f"{path}/queue.shmq", 0, forged[:4096])
    for keywords in ({"trusted": True}, {"trusted": True, "read_only": True}, {}):
        refused = by(BOB, lambda keywords=keywords: opens(path, group=APP, **keywords))
        assert refused.startswith("Untrusted: "), refused
        assert f"group {APP} may write it" in refused


@several
@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_what_a_member_has_another_zero_by_a_link_stays(path, place, link):
    """A retired file is used again only if it is one of the group's, with one name."""
    victim = f"{place}/victim"
    Path(victim).write_bytes(b"mine" * 4096)
    os.chown(victim, BOB, BOB)
    os.chmod(victim, 0o600)
    for slot in range(3):
        link(victim, f"{path}/chunks/retired-{slot}")

    def uses():
        with shmq.open(path, group=APP) as queue:
            chunks = queue._session.home.chunks
            taken = spares.take(chunks, 1, 1 << 30, {}, spares.Fresh(64, 0))
            for _ in range(40):
                queue.put(bytes(60000))
            spares.drop(chunks)
            return taken

    assert by(BOB, uses) == "None"
    assert Path(victim).read_bytes() == b"mine" * 4096


@several
def test_what_a_member_links_into_a_volatile_queues_home_is_not_followed_when_that_is_removed():
    """Below a directory that all of them may change, nothing goes by a path."""
    victim = Path(f"/dev/shm/shmq-test-{os.getpid()}")
    victim.mkdir()
    (victim / "file").write_bytes(b"mine")
    base = f"/dev/shm/shmq-g{APP}"
    try:

        def kills():
            queue = shmq.open("shm:q", group=APP)
            queue.put(b"x")
            os._exit(0)

        with pytest.raises(AssertionError):
            by(ALICE, kills)
        os.rename(f"{base}/q.queue/chunks", f"{base}/aside")
        os.symlink(victim, f"{base}/q.queue/chunks")
        assert by(BOB, shmq.gc) == f"['shm:{APP}:q']"
        assert (victim / "file").read_bytes() == b"mine"
    finally:
        shutil.rmtree(victim)
        shutil.rmtree(base, ignore_errors=True)


@several
def test_an_outsider_cannot_have_the_groups_place_in_shared_memory_ready():
    """It can take the name, and then everybody is told; it cannot give it the group."""
    base = f"/dev/shm/shmq-g{APP}"

    def claims():
        os.mkdir(base)
        os.chmod(base, 0o2777)
        try:
            os.chown(base, -1, APP)
        except PermissionError:
            return "not that"

    try:
        assert by(EVE, claims, groups=()) == "not that"
        for uid in (ALICE, BOB):
            refused = by(uid, lambda: shmq.open("shm:q", group=APP))
            assert refused.startswith(f"Unsafe: cannot open {base}: it belongs to user {EVE}")
        os.chmod(base, 0o2770)
        refused = by(ALICE, lambda: shmq.open("shm:q", group=APP))
        assert refused.startswith(f"Unsafe: cannot open {base}: it is of group {EVE}, and belongs")
        assert by(ALICE, shmq.volatile_queues) == "[]"  # and nobody's own queues suffer
        assert os.listdir(base) == []
    finally:
        shutil.rmtree(base)


# ---------------------------------------------------------------- volatile names
@pytest.mark.parametrize("place", ["shm:a:b:c", "shm::q", f"shm:{NOBODYS}:q", "shm:65534:q", "shm:-1:q", "shm:²:q"])
def test_what_names_no_group_names_no_queue(place):
    """In its place before the last colon."""
    with pytest.raises(ValueError, match=r"names no volatile queue|no group|names none"):
        shmq.open(place)


@several
def test_a_place_and_an_option_may_not_name_two_groups(place):
    """It says both."""
    with pytest.raises(ValueError, match=f"names group {APP}, and group={OTHER} was given"):
        shmq.open(f"shm:{APP}:q", group=OTHER)


def test_a_group_is_told_by_name_where_it_has_one():
    """For who reads an error."""
    known = grp.getgrgid(os.getegid())
    assert user_group.told(known.gr_gid) == f"group {known.gr_gid} ({known.gr_name})"
    assert user_group.told(APP) == f"group {APP}"
    assert user_group.refusal(os.getegid()) == ""


def test_the_checksum_of_this_test_is_the_cores():
    """So that what is forged here is refused for what it says."""
    assert crc32c_by_bits(b"123456789") == _native.crc32c(b"123456789")


@several
def test_all_that_two_users_left_is_as_it_should_be(path):
    """The check of these tests sees a wrong mode and a wrong group."""
    assert misfits(path) == []
    os.chmod(f"{path}/queue.shmq", 0o640)
    assert len(misfits(path)) == 1
    assert len(misfits(path, OTHER)) > 3

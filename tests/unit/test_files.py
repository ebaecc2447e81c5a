"""How files are opened, made, judged and used again: each refusal in its words, each size to the byte."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import stat
import subprocess
import types

import pytest
from support import in_child

import shmq
from shmq import _native, errors
from shmq._native import mapping
from shmq.storage import blocks, files, mapped, shm, spares, warm

BTRFS_6_16, BTRFS_6_17 = "6.16.12-generic", "6.17.0"


def whole(text):
    return f"^{re.escape(text)}$"


@pytest.fixture
def folder(tmp_path):
    """(a descriptor of an empty folder of ours, its path)."""
    tmp_path.chmod(0o700)
    with files.open_directory(str(tmp_path)) as fd:
        yield fd, str(tmp_path)


# ---------------------------------------------------------------- directories
def test_a_directory_that_is_none_is_told_from_one_that_is_missing(tmp_path):
    here = str(tmp_path)
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    os.symlink(f"{here}/folder", f"{here}/link")
    os.symlink(f"{here}/file", f"{here}/linked file")
    told = {
        "missing": (errors.NotFound, f"cannot open {here}/missing: there is no such directory"),
        "file": (
            errors.BadFormat,
            f"cannot open {here}/file: it is not a directory, as a queue and its folders are; it was not touched",
        ),
        "file/below": (errors.NotFound, f"cannot open {here}/file/below: something above it is a file"),
        "link": (errors.Unsafe, f"cannot open {here}/link: it is a symbolic link; name the directory itself"),
        "linked file": (
            errors.Unsafe,
            f"cannot open {here}/linked file: it is a symbolic link; name the directory itself",
        ),
    }
    for name, (kind, text) in told.items():
        with pytest.raises(kind, match=whole(text)):
            files.open_directory(f"{here}/{name}")


def test_a_directory_of_others_is_refused_unless_its_owner_is_trusted(tmp_path, monkeypatch):
    here = str(tmp_path)
    me = os.geteuid()
    for mode in (0o720, 0o702):
        tmp_path.chmod(mode)
        text = f"cannot open {here}: others may write there (mode {mode:#o}); chmod go-w it if they must not, or use "
        for trusted in (False, True):
            with pytest.raises(errors.Unsafe, match=whole(f"{text}another directory")):
                files.open_directory(here, trust_owner=trusted)
    tmp_path.chmod(0o755)
    files.open_directory(here).close()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    with pytest.raises(
        errors.Unsafe, match=whole(f"cannot open {here}: it belongs to user {me}, and this is user {me + 1}")
    ):
        files.open_directory(here)
    files.open_directory(here, trust_owner=True).close()


def test_a_directory_that_the_kernel_refuses_is_named_whole(folder, monkeypatch):
    fd, here = folder
    os.mkdir(f"{here}/below")
    files.open_directory(f"/elsewhere/{here}/below", above=fd).close()  # by its last name

    def refuse(*_, **__):
        raise OSError(errno.EMFILE, "no more", "below")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(OSError, match="no more") as caught:
        files.open_directory(f"{here}/below", above=fd)
    assert (caught.value.errno, caught.value.filename) == (errno.EMFILE, f"{here}/below")


def test_a_directory_that_was_removed_under_who_has_it_open_is_told(folder):
    fd, here = folder
    files.refuse_removed(fd, here)
    os.mkdir(f"{here}/below")
    with files.open_directory(f"{here}/below") as below:
        os.rmdir(f"{here}/below")
        text = (
            f"cannot use {here}/below: the directory was removed while it was open. What is mapped here can still be "
        )
        text += "read; nothing was put, and nothing was made again in its place"
        for tried in (
            lambda: files.refuse_removed(below, f"{here}/below"),
            lambda: files.new_file(below, 1, f"{here}/below"),
            lambda: files.new_directory(f"{here}/below/more", below),
        ):
            with pytest.raises(errors.NotFound, match=whole(text)):
                tried()


def test_a_new_directory_is_for_us_alone_and_one_that_is_there_stays(folder):
    fd, here = folder
    before = os.umask(0o777)
    try:
        files.new_directory(f"{here}/a", fd)
        files.make_directory(f"{here}/a", fd)
        with pytest.raises(FileExistsError) as there:
            files.new_directory(f"{here}/a", fd)
    finally:
        os.umask(before)
    assert there.value.filename == f"{here}/a"
    assert stat.S_IMODE(os.stat(f"{here}/a").st_mode) == 0o700
    os.chmod(f"{here}/a", 0o750)
    files.make_directory(f"{here}/a", fd)
    assert stat.S_IMODE(os.stat(f"{here}/a").st_mode) == 0o750


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES])
def test_where_there_is_no_room_it_is_said_of_what_and_how_much_is_free(folder, monkeypatch, number):
    fd, here = folder

    def refuse(*_, **__):
        raise OSError(number, os.strerror(number))

    tried = {
        "mkdir": (lambda: files.new_directory(f"{here}/a", fd), "make a file", f"{here}/a"),
        "link": (lambda: files.link_file(made, fd, "name", here), "make a file", f"{here}/name"),
        "posix_fallocate": (lambda: files.new_file(fd, 12345, here), "get 12,345 bytes", here),
    }
    with files.new_file(fd, 1, here) as made:
        for call, (work, what, where) in tried.items():
            with monkeypatch.context() as patched:
                patched.setattr(os, call, refuse)
                room = os.statvfs(here)
                free = f"{room.f_bavail * room.f_frsize:,}"
                patched.setattr(os, "statvfs", lambda _, room=room: room)
                with pytest.raises((errors.DiskFull, OSError)) as caught:
                    work()
            if number == errno.EACCES:
                assert (type(caught.value), caught.value.filename) == (PermissionError, where)
                continue
            assert caught.value.args[0] == (
                f"cannot {what} in {here}: {os.strerror(number)} ({free} bytes free); nothing was lost, and the queue "
                "can still be read; make room on that disk, or have messages finished: what all names have finished is "
                "given back"
            )
    assert os.listdir(here) == []


def test_shared_memory_that_is_full_has_its_own_remedy(shm_root):
    problem = files.disk_full(f"{shm.base()}/q.queue", 0, OSError(errno.ENOSPC, "No space"))
    assert "(? bytes free)" in str(problem)
    assert str(problem).endswith(shm.REMEDY)


# ---------------------------------------------------------------- files
def test_a_file_that_is_not_ours_alone_is_refused_in_its_own_words(folder, monkeypatch):
    fd, here = folder
    me = os.geteuid()

    def refused(name, kind=errors.Unsafe, **flags):
        with pytest.raises(kind) as caught:
            files.open_file(fd, name, here, writable=False, **flags)
        return caught.value.args[0]

    path = f"{here}/f"
    with open(path, "wb") as file:
        file.write(b"12345")
    for mode in (0o640, 0o604, 0o601):
        os.chmod(path, mode)
        assert refused("f") == f"cannot open {path}: others have rights to it (mode {mode:#o})"
    os.chmod(path, 0o600)
    opened, size = files.open_file(fd, "f", here, writable=True)
    with opened:
        assert size == 5
        os.pwrite(opened, b"x", 0)
    opened, _ = files.open_file(fd, "f", here, writable=False)
    with opened, pytest.raises(OSError, match="Bad file"):
        os.pwrite(opened, b"x", 0)
    os.link(path, f"{here}/g")
    assert refused("f") == f"cannot open {path}: it has 2 names; a file of a queue has one"
    os.unlink(f"{here}/g")
    os.mkfifo(f"{here}/fifo", 0o600)
    assert refused("fifo") == f"cannot open {here}/fifo: it is not a regular file"
    os.symlink(path, f"{here}/link")
    assert refused("link") == f"cannot open {here}/link: it is a symbolic link"
    os.mkdir(f"{here}/folder")
    assert refused("folder") == f"cannot open {here}/folder: it is not a regular file"
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    assert refused("f") == f"cannot open {path}: it belongs to user {me}, and this is user {me + 1}"
    files.open_file(fd, "f", here, writable=False, trust_owner=True)[0].close()


def test_what_the_kernel_says_of_a_file_becomes_an_error_of_ours_where_there_is_one():
    def of(number):
        return files.explained(OSError(number, os.strerror(number)), "/q", "f")

    assert (type(of(errno.ELOOP)), str(of(errno.ELOOP))) == (errors.Unsafe, "cannot open /q/f: it is a symbolic link")
    for number in (errno.EISDIR, errno.ENXIO, errno.ENODEV):
        assert (type(of(number)), str(of(number))) == (errors.Unsafe, "cannot open /q/f: it is not a regular file")
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        assert isinstance(of(number), errors.DiskFull)
        assert str(of(number)).startswith("cannot make a file in /q: ")
    problem = of(errno.EIO)
    assert (type(problem), problem.filename) == (OSError, "/q/f")


def test_a_name_that_is_unlinked_each_time_it_is_opened_is_asked_for_a_hundred_times(folder, monkeypatch):
    fd, here = folder
    opened = []

    def open_nameless(name, *_, **__):
        opened.append(name)
        return os.dup(nameless)

    with files.new_file(fd, 1, here) as nameless:
        monkeypatch.setattr(os, "open", open_nameless)
        with pytest.raises(FileNotFoundError) as caught:
            files.open_file(fd, "f", here, writable=False)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOENT, f"{here}/f")
    assert opened == ["f"] * 100


def test_a_new_file_has_its_size_its_mode_and_no_name_until_it_is_linked_once(folder):
    fd, here = folder
    before = os.umask(0o777)
    try:
        made = files.new_file(fd, 10000, here)
    finally:
        os.umask(before)
    with made:
        info = os.fstat(made)
        assert (info.st_size, stat.S_IMODE(info.st_mode), info.st_nlink) == (10000, 0o600, 0)
        assert info.st_blocks * 512 >= 10000
        assert files.link_file(made, fd, "f", here) is True
        assert os.fstat(made).st_nlink == 1
        with files.new_file(fd, 1, here) as second:
            assert files.link_file(second, fd, "f", here) is False
    assert os.listdir(here) == ["f"]


def test_a_place_without_nameless_files_is_refused(folder, monkeypatch):
    fd, here = folder
    for number in (errno.EOPNOTSUPP, errno.EISDIR, errno.EMFILE, errno.ENOSPC):

        def refuse(*_, number=number, **__):
            raise OSError(number, os.strerror(number))

        kinds = {errno.EMFILE: OSError, errno.ENOSPC: errors.DiskFull}
        with monkeypatch.context() as patched:
            patched.setattr(os, "open", refuse)
            with pytest.raises(kinds.get(number, errors.UnsafeFilesystem)) as caught:
                files.new_file(fd, 77, here)
        if number == errno.EMFILE:
            assert caught.value.filename == here
        elif number == errno.ENOSPC:
            assert str(caught.value).startswith(f"cannot get 77 bytes in {here}: ")
        else:
            said = f"cannot make files in {here}: its file system has no nameless files (O_TMPFILE)"
            assert caught.value.args[0] == said


def test_a_file_is_made_whole_and_synced_if_it_is_to_be(folder, monkeypatch):
    fd, here = folder
    seen = []
    monkeypatch.setattr(
        files.sync, "data", lambda fd, what: seen.append((what, os.fstat(fd).st_nlink, os.pread(fd, 9, 0)))
    )
    assert files.make_file(fd, "a", b"content", here, "queue") is True
    assert files.make_file(fd, "a", b"another", here) is False
    assert seen == [("queue", 0, b"content")]
    with open(f"{here}/a", "rb") as file:
        assert file.read() == b"content"


def test_a_copy_of_a_part_has_so_many_bytes_and_says_when_the_source_is_shorter(folder):
    fd, here = folder
    size = (1 << 20) + 5000
    content = os.urandom(size)
    with files.new_file(fd, size, here) as source, files.new_file(fd, 1, here) as target:
        os.pwrite(source, content, 0)
        for count in (size - 1, 1 << 20, 77, 0):
            os.truncate(target, 0)
            files.transfer(source, target, count, whole=False)
            assert os.pread(target, size + 1, 0) == content[:count]
        os.truncate(target, 0)
        files.transfer(source, target, size, whole=True)
        assert os.pread(target, size + 1, 0) == content
        with pytest.raises(errors.Corrupt, match=whole("a chunk was cut short while it was copied")):
            files.transfer(source, target, size + 1, whole=False)


def test_a_whole_copy_is_a_clone_where_the_file_system_can(folder, monkeypatch):
    fd, here = folder
    asked = []
    with files.new_file(fd, 9, here) as source, files.new_file(fd, 1, here) as target:
        os.truncate(target, 0)
        monkeypatch.setattr(fcntl, "ioctl", lambda *given: asked.append(given))
        files.transfer(source, target, 9, whole=True)
        assert asked == [(target, files._FICLONE, source)]
        assert os.fstat(target).st_size == 0
        files.transfer(source, target, 9, whole=False)
        assert os.fstat(target).st_size == 9


# ---------------------------------------------------------------- file systems
def mount(point, kind, options="rw"):
    return f"36 35 98:0 / {point} rw,noatime - {kind} /dev/x {options}"


def test_the_type_of_a_place_is_that_of_the_longest_mount_above_it_and_of_the_last_one_there(tmp_path):
    mounts = "\n".join(
        [
            mount("/", "ext4"),
            mount("/srv", "xfs"),
            mount("/srv", "tmpfs"),
            mount("/srv/a\\040b\\011c", "nfs4"),
            mount("/srv/data", "btrfs"),
            mount("/srv/data/deep", "zfs"),
            mount("/", "ext3"),
        ]
    )
    for path, kind in {
        "/": "ext3",
        "/else": "ext3",
        "/srv": "tmpfs",
        "/srvx": "ext3",
        "/srv/a b\tc/q": "nfs4",
        "/srv/data": "btrfs",
        "/srv/data/x": "btrfs",
        "/srv/database": "tmpfs",
        "/srv/data/deep/q": "zfs",
    }.items():
        assert files.filesystem_type(path, mounts) == kind, path
    assert files.filesystem_type("/x", "") == "unknown"


def test_what_an_overlay_is_written_to_counts_where_it_can_be_seen(tmp_path):
    upper = tmp_path / "upper"
    upper.mkdir()
    over = mount("/over", "overlay", f"rw,lowerdir=/l,upperdir={upper},workdir=/w")
    lines = [mount("/", "ext4"), mount(tmp_path, "nfs"), over]
    assert files.filesystem_type("/over/q", "\n".join(lines)) == "nfs"
    assert (
        files.filesystem_type("/over/q", "\n".join([*lines[:2], over.replace(str(upper), f"{upper}-gone")]))
        == "overlay"
    )
    inside = mount(tmp_path, "overlay", f"rw,upperdir={upper}")
    assert files.filesystem_type(f"{tmp_path}/q", "\n".join([lines[0], inside])) == "overlay"
    assert files.filesystem_type("/over/q", "\n".join([*lines[:2], mount("/over", "overlay", "rw")])) == "overlay"


def test_a_file_system_that_machines_may_share_is_refused_and_said(monkeypatch):
    kinds = {
        "ext4": None,
        "fuseblk": None,
        "fuse.ntfs": None,
        "fuse.fuse-overlayfs": None,
        "nfs4": "a network file system",
        "fuse.sshfs": "a network file system",
        "fuse": "perhaps a network file system",
        "fuse.unheard": "perhaps a network file system",
    }
    for kind, what in kinds.items():
        monkeypatch.setattr(files, "filesystem_type", lambda _, kind=kind: kind)
        if what is None:
            assert files.refuse_network("/q", "/") == kind
            continue
        said = f"cannot use /q: it is on {kind}, {what}, where processes do not share memory and locks; nothing was "
        said += "touched. Use a local directory, or pass unsafe_filesystem=True if only this machine uses it"
        with pytest.raises(errors.UnsafeFilesystem, match=whole(said)):
            files.refuse_network("/q", "/")


class Kernel:
    """Stands for a file system that copies on write: inode flags, and the extents of every file."""

    def __init__(self, monkeypatch, flags=0, extents=(), release=BTRFS_6_17):
        self.flags, self.extents, self.asked = flags, list(extents), []
        monkeypatch.setattr(fcntl, "ioctl", self.ioctl)
        monkeypatch.setattr(os, "uname", lambda: types.SimpleNamespace(release=release))

    def ioctl(self, fd, request, given):
        if request == blocks._GET_FLAGS:
            assert len(given) == 8
            return self.flags.to_bytes(4, "little") + b"\xff\xff\xff\xff"
        if request == blocks._SET_FLAGS:
            assert len(given) == 8
            self.flags = int.from_bytes(given, "little")
            self.asked.append(self.flags)
            return given
        assert request == blocks._FIEMAP
        start, length, flags, _, room, _ = blocks._FIEMAP_HEAD.unpack_from(given)
        assert (start + length, flags) == ((1 << 64) - 1, 0)
        assert len(given) == blocks._FIEMAP_HEAD.size + room * blocks._FIEMAP_EXTENT.size
        found = [each for each in self.extents if each[0] >= start][:room]
        self.asked.append(start)
        blocks._FIEMAP_HEAD.pack_into(given, 0, start, length, flags, len(found), room, 0)
        for at, (logical, size, shared) in enumerate(found):
            place = blocks._FIEMAP_HEAD.size + at * blocks._FIEMAP_EXTENT.size
            blocks._FIEMAP_EXTENT.pack_into(given, place, logical, 1 << 40, size, shared)
        return 0


def test_on_a_plain_disk_nothing_is_asked_for_that_it_does_anyway(monkeypatch, tmp_path):
    kernel = Kernel(monkeypatch, flags=0x10)
    monkeypatch.setattr(_native, "disk_type", lambda _: "ext4")
    blocks.write_in_place(3)
    assert kernel.asked == []


def test_new_files_are_written_in_place_and_not_compressed(monkeypatch):
    monkeypatch.setattr(_native, "disk_type", lambda _: "")
    kernel = Kernel(monkeypatch, flags=0x10)
    blocks.write_in_place(3)
    assert kernel.asked == [0x800010]
    kernel = Kernel(monkeypatch, flags=0x14)
    blocks.write_in_place(3)
    assert kernel.asked == [0x10, 0x800010]  # one, and then the other

    def refuse(*_):
        raise OSError(errno.ENOTTY, "no such thing")

    monkeypatch.setattr(fcntl, "ioctl", refuse)
    blocks.write_in_place(3)
    assert blocks.shared(3) is False
    assert blocks._flags_of(3) == 0


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 128, 200])
def test_a_file_that_shares_a_block_is_found_however_many_extents_it_has(monkeypatch, count):
    extents = [(at * 4096, 4096, 0x1) for at in range(count)]
    kernel = Kernel(monkeypatch, extents=extents)
    assert blocks.shared(3) is False
    assert kernel.asked == [64 * 4096 * turn for turn in range(count // 64 + 1)]
    for at in {0, count // 2, count - 1} if count else ():
        Kernel(monkeypatch, extents=[(*each[:2], 0x2001 if each == extents[at] else 1) for each in extents])
        assert blocks.shared(3) is True


def test_why_a_full_disk_may_kill_is_said_of_each_kind(monkeypatch):
    def told(kind, flags, release=BTRFS_6_17, extents=()):
        Kernel(monkeypatch, flags, extents, release)
        return blocks.may_run_out(kind, 3)

    elsewhere = "writes each block elsewhere, whatever was preallocated"
    assert [told(kind, 0) for kind in ("zfs", "bcachefs", "nilfs2")] == [
        f"{kind} {elsewhere}" for kind in ("zfs", "bcachefs", "nilfs2")
    ]
    assert told("zfs", 0x4) == f"zfs {elsewhere}"
    compressed = "its files are compressed, so what is preallocated may not be enough"
    assert told("btrfs", 0x4) == told("f2fs", 0x4) == told("btrfs", 0x800004) == compressed
    copied = "its files are copy-on-write, as those are that came here by cp, tar or rsync; `shmq copy` makes others"
    assert told("btrfs", 0) == copied
    older = "btrfs of a Linux before 6.17 looks for free space at each such write"
    assert [told("btrfs", 0x800000, release) for release in (BTRFS_6_16, "5.99.1", BTRFS_6_17, "6.18", "7.0.1")] == [
        older, older, "", "", ""
    ]  # fmt: skip
    assert told("ext4", 0) == told("xfs", 0, "5.1") == ""
    shared = "a snapshot or a reflink shares its blocks, so the first write to each of them needs another one"
    assert told("xfs", 0, extents=[(0, 4096, 0x2000)]) == shared
    assert told("btrfs", 0x800000, extents=[(0, 4096, 0x2000)]) == shared


# ---------------------------------------------------------------- used files
def spare(here, name, size, *, hint=None, seal=True, grain=0):
    """A retired chunk that was written up to *hint*."""
    content = bytearray(os.urandom(size))
    content[92:96] = grain.to_bytes(4, "little")
    position = size if hint is None else hint
    content[128:136] = (position >> 3 << 36 | 77).to_bytes(8, "little")
    if position + 8 <= size:
        content[position : position + 8] = ((5 if seal else 2) << 61 | 3).to_bytes(8, "little")
    with open(f"{here}/{name}", "wb") as file:
        file.write(content)
    os.chmod(f"{here}/{name}", 0o600)
    return bytes(content)


NOTHING: dict[tuple[int, int, bool], object] = {}
FRESH = spares.Fresh(64, 0)


@pytest.mark.parametrize(("size", "at_least", "normal", "serves"), [
    (65536, 65536, 65536, True), (65536, 65537, 1 << 20, False), (65536, 16384, 65535, False),
    (65536, 65536, 16384, True), (65536, 65537, 16384, False), (65536, 1, 65536, True),
])  # fmt: skip
def test_a_used_file_serves_when_it_is_large_enough_and_not_larger_than_is_normal(
    folder, size, at_least, normal, serves
):
    fd, here = folder
    spare(here, "retired-1", size)
    taken = spares.take(fd, at_least, normal, NOTHING, FRESH)
    assert (taken is not None) == serves
    if taken:
        with taken:
            assert taken.size == size


def retire_after(here, name, other):
    """Make a used file that was retired later than that other one, as the file system counts time."""
    spare(here, name, 16384)
    while os.stat(f"{here}/{name}").st_ctime_ns <= os.stat(f"{here}/{other}").st_ctime_ns:
        os.chmod(f"{here}/{name}", 0o600)


def test_the_one_used_last_serves_first_and_the_others_are_not_opened(folder, monkeypatch):
    fd, here = folder
    opened, lock_retired = [], spares._lock_retired
    monkeypatch.setattr(spares, "_lock_retired", lambda *given: opened.append(given[1].name) or lock_retired(*given))
    for name in ("retired-a", "other"):
        spare(here, name, 16384)
    retire_after(here, "retired-b", "retired-a")
    retire_after(here, "retired-c", "retired-b")
    with spares.take(fd, 1, 16384, NOTHING, FRESH) as taken:
        assert opened == [taken._name] == ["retired-c"]
        with spares.take(fd, 1, 16384, NOTHING, FRESH) as other:
            assert other._name == "retired-b"
    assert opened == ["retired-c", "retired-c", "retired-b"]


def test_one_that_goes_while_it_is_looked_at_is_passed_over(folder, monkeypatch):
    fd, here = folder
    spare(here, "retired-a", 16384)
    numbered = _native.numbered

    def gone(*given):
        found = numbered(*given)
        os.unlink(f"{here}/retired-a")
        return found

    monkeypatch.setattr(_native, "numbered", gone)
    assert spares.take(fd, 1, 16384, NOTHING, FRESH) is None
    monkeypatch.undo()
    spare(here, "retired-b", 16384)
    (seen,) = spares._retired(fd)
    os.unlink(f"{here}/retired-b")
    assert spares._lock_retired(fd, seen) is None


def test_a_file_that_is_mapped_here_serves_before_one_that_was_used_later(folder):
    fd, here = folder
    spare(here, "retired-a", 16384)
    wanted = os.stat(f"{here}/retired-a")
    with open(f"{here}/retired-a", "r+b") as file:
        memory = _native.map_file(file.fileno(), 16384, writable=True)
    retire_after(here, "retired-b", "retired-a")

    known = {(wanted.st_dev, wanted.st_ino, True): memory}
    with spares.take(fd, 1, 16384, known, FRESH) as taken:
        assert taken._name == "retired-a"
        assert taken.map is memory
    assert bytes(memory[:]) == bytes(16384)


@pytest.mark.parametrize(("hint", "seal", "grain", "fresh", "used"), [
    (8192, True, 0, 0, 8200), (8192, True, 4096, 4096, 8200), (8192, True, 4096, 0, 300_000),
    (8192, True, 0, 4096, 8200), (8192, False, 0, 0, 300_000), (299_992, True, 0, 0, 300_000),
    (299_984, True, 0, 0, 299_992), (None, True, 0, 0, 300_000),
])  # fmt: skip
def test_a_used_file_is_zeroed_to_its_seal_or_whole_and_nothing_more_is_written(folder, hint, seal, grain, fresh, used):
    """What lies behind a SEAL was never written in a real chunk: here it tells how far the zeros go."""
    fd, here = folder
    before = spare(here, "retired-1", 300_000, hint=hint, seal=seal, grain=grain)
    with spares.take(fd, 1, 300_000, NOTHING, spares.Fresh(64, fresh)) as taken:
        after = os.pread(taken.fd, 300_001, 0)
    assert after[:used] == bytes(used)
    assert after[used:] == before[used:]


def test_a_used_file_that_shares_blocks_is_unlinked_and_one_that_cannot_be_zeroed_stays(folder, monkeypatch):
    fd, here = folder
    spare(here, "retired-1", 16384)
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "no")))
        assert spares.take(fd, 1, 16384, NOTHING, FRESH) is None
    assert os.listdir(here) == ["retired-1"]
    monkeypatch.setattr(blocks, "shared", lambda _: True)
    assert spares.take(fd, 1, 16384, NOTHING, FRESH) is None
    assert os.listdir(here) == []


def test_a_used_file_takes_its_place_once_and_may_be_mapped_then(folder):
    fd, here = folder
    spare(here, "retired-1", 16384)
    with spares.take(fd, 1, 16384, NOTHING, FRESH) as taken:
        with open(f"{here}/retired-1", "r+b") as file:
            assert not spares.lock_as_mapper(file.fileno())
        spare(here, "there", 16384)
        assert taken.become("there") is False
        assert sorted(os.listdir(here)) == ["retired-1", "there"]
        assert taken.become("free") is True
        with open(f"{here}/free", "r+b") as file:
            assert spares.lock_as_mapper(file.fileno())
        assert spares.is_locked(taken.fd) is False
        taken.unlink()  # of a name that it has no more


def test_who_has_a_file_mapped_keeps_it_from_being_used_and_says_so(folder):
    fd, here = folder
    spare(here, "retired-1", 16384)
    with open(f"{here}/retired-1", "r+b") as mine, open(f"{here}/retired-1", "r+b") as other:
        spares.hold_as_mapper(mine.fileno(), "retired-1", fd)
        assert spares.lock_as_mapper(other.fileno())
        assert spares.is_locked(other.fileno())
        spares.unlock(other.fileno())
        assert not spares.lock_alone(other.fileno())
        assert spares.take(fd, 1, 16384, NOTHING, FRESH) is None
        spares.drop(fd)
        assert os.listdir(here) == ["retired-1"]
        spares.unlock(mine.fileno())
        assert not spares.is_locked(other.fileno())
        assert spares.lock_alone(other.fileno())
        with pytest.raises(FileNotFoundError, match="retired-1"):
            spares.hold_as_mapper(mine.fileno(), "retired-1", fd)
        spares.unlock(other.fileno())
        spare(here, "retired-2", 16384)
        with pytest.raises(FileNotFoundError, match="retired-2"):  # another file has that name now
            spares.hold_as_mapper(mine.fileno(), "retired-2", fd)
        spares.unlock(mine.fileno())
    spares.drop(fd)
    assert os.listdir(here) == []


@pytest.mark.parametrize(("sizes", "worth", "room", "left"), [
    ([100] * 4, 100, 0, 2), ([100] * 4, 101, 1000, 0), ([100] * 4, 100, 300, 3), ([100] * 4, 100, 299, 2),
    ([100] * 4, 100, 400, 4), ([100, 100, 50], 100, 0, 2),
])  # fmt: skip
def test_two_used_files_are_kept_and_more_while_all_are_small(folder, sizes, worth, room, left):
    fd, here = folder
    for at, size in enumerate(sizes):
        with open(f"{here}/retired-{at}", "wb") as file:
            file.write(bytes(size))
            os.chmod(file.fileno(), 0o600)
    with open(f"{here}/chunk", "wb") as file:
        file.write(b"is no spare")
    spares.reclaim(fd, worth, room)
    assert len(os.listdir(here)) == left + 1


def test_a_retired_file_has_one_of_a_few_names_or_goes(folder):
    fd, here = folder
    for at in range(17):
        with open(f"{here}/{at}.chunk", "wb"):
            pass
        spares.retire(fd, f"{at}.chunk")
    spares.retire(fd, "17.chunk")  # somebody else was faster
    assert sorted(os.listdir(here)) == [f"retired-{slot:x}" for slot in range(16)]


def test_found_whoever_wanted_a_used_file_listed_all_chunks(folder, monkeypatch):
    fd, here = folder
    spare(here, "retired-3", 16384)
    monkeypatch.setattr(spares.files, "names_in", lambda _: pytest.fail("it listed them"))
    with spares.take(fd, 16384, 16384, NOTHING, spares.Fresh(64, 0)) as taken:
        assert taken._name == "retired-3"
    spares.reclaim(fd, 1, 0)


# ---------------------------------------------------------------- mappings that wait
@pytest.fixture
def waiting(folder, monkeypatch):
    """Notes mappings of that size under a number: what is kept, by number."""
    fd, here = folder
    monkeypatch.setattr(warm, "_entries", [])
    held = {}

    def note(number, size=4096, queue=b"q"):
        with files.new_file(fd, size, here) as made:
            files.link_file(made, fd, f"f{number}", here)
            assert spares.lock_as_mapper(made)
            held[number] = _native.map_held(made, size, writable=True)
            warm.keep((0, number, True), held[number], queue)

    return note, held, here


def take(here, number, key=None):
    """What waits under that key, for whoever has the file of that number open."""
    with open(f"{here}/f{number}", "r+b") as file:
        return warm.take((0, key or number, True), file.fileno())


def kept():
    return [entry.key[1] for entry in warm._entries]


def test_a_mapping_waits_when_nobody_uses_it_without_its_lock_and_comes_back_with_it(waiting):
    note, held, here = waiting
    note(1)
    warm.settle()
    assert take(here, 1) is None  # it is in use
    assert warm.idle(b"q") == {}
    held.clear()
    warm.settle()
    with open(f"{here}/f1", "r+b") as other:
        assert not spares.is_locked(other.fileno())
        assert [(key, len(memory)) for key, memory in warm.idle(b"q").items()] == [((0, 1, True), 4096)]
        assert warm.idle(b"other") == {}
        assert take(here, 1, 2) is None
        assert spares.lock_alone(other.fileno())
        assert take(here, 1) is None  # it is being zeroed for somebody else
        spares.unlock(other.fileno())
        memory = take(here, 1)
        assert len(memory) == 4096
        assert spares.is_locked(other.fileno())
        assert take(here, 1) is None
        del memory
        warm.settle()
        assert not spares.is_locked(other.fileno())


def test_as_many_wait_as_are_allowed_and_the_oldest_go_first(waiting):
    note, held, _ = waiting
    for number in range(warm.IDLE + 2):
        note(number)
        if number == 5:
            del held[3]
            warm.settle()
    held.clear()
    warm.settle()
    assert kept() == [1, 2, *range(4, warm.IDLE + 2)]


@pytest.mark.parametrize(("room", "left"), [(4 * 4096, [1, 2, 3, 4]), (4 * 4096 - 1, [2, 3, 4]), (2 * 4096, [3, 4])])
def test_what_waits_has_so_much_together_and_the_oldest_goes_first(waiting, monkeypatch, room, left):
    note, held, _ = waiting
    for number in (1, 2, 3, 4):
        note(number)
    monkeypatch.setattr(warm, "IDLE_BYTES", room)
    for number in (1, 2, 3, 4):
        del held[number]
        warm.settle()
    assert kept() == left


def test_only_small_mappings_are_kept_not_too_many_and_a_queue_that_is_left_is_forgotten(waiting, monkeypatch):
    note, _, _ = waiting
    monkeypatch.setattr(warm, "IDLE_BYTES", 8192)
    monkeypatch.setattr(warm, "KNOWN", 3)
    note(1, 8192)
    note(2, 8193)
    assert kept() == [1]
    note(3, queue=b"other")
    note(4)
    note(5)
    assert kept() == [1, 3, 4]
    warm.forget(b"other")
    assert kept() == [1, 4]
    warm.forget(b"q")
    assert kept() == []


def test_who_forks_keeps_nothing(waiting):
    note, held, _ = waiting
    note(1)
    held.clear()
    warm.settle()
    assert in_child(kept) == "[]"
    assert kept() == []
    note(2)
    assert kept() == [2]


# ---------------------------------------------------------------- mappings for random access
class Shelf:
    """Notes what the built-in is told."""

    def __init__(self):
        self.known = []

    def put(self, base, last, sequence, *_):
        self.known.append((sequence, base, last))

    def drop(self, first, last):
        self.known = [each for each in self.known if not first <= each[0] <= last]


def chunk(sequence):
    return types.SimpleNamespace(sequence=sequence, base=10 * sequence, address=0)


@pytest.fixture
def keeps(monkeypatch):
    """Makes what keeps chunks; all together three at most."""
    import weakref

    monkeypatch.setattr(mapped, "_all", weakref.WeakSet())
    monkeypatch.setattr(mapped, "_crowded", False)
    monkeypatch.setattr(mapped, "LIMIT", 3)
    made = []

    def make():
        made.append(mapped.Mapped())
        made[-1].shelf = Shelf()
        return made[-1]

    return make


def test_the_one_unused_for_longest_goes_when_there_are_too_many(keeps):
    mine = keeps()
    chunks = [chunk(at) for at in range(6)]
    for each in chunks[:3]:
        mine.keep(each)
    assert mapped._crowded
    mine.use(chunks[0])
    mine.use(chunks[5])  # it is not kept
    mine.keep(chunks[3])
    assert list(mine._chunks) == [2, 0, 3]
    assert (len(mine), mine.get(1), mine.get(2)) == (3, None, chunks[2])


def test_a_use_costs_nothing_while_there_is_room(keeps):
    mine = keeps()
    for at in range(2):
        mine.keep(chunk(at))
    assert not mapped._crowded
    mine.use(mine.get(0))
    assert list(mine._chunks) == [0, 1]


def test_the_queue_that_keeps_most_gives_one_up_for_another(keeps):
    mine, other = keeps(), keeps()
    for at in range(3):
        mine.keep(chunk(at))
    other.keep(chunk(7))
    assert (list(mine._chunks), list(other._chunks)) == ([1, 2], [7])


def test_the_built_in_knows_only_what_is_kept_and_up_to_its_end(keeps):
    mine = keeps()
    kept, gone = chunk(1), chunk(2)
    mine.keep(kept)
    mine.show(kept, 15)
    mine.show(gone, 25)
    mine.show(chunk(1), 99)  # another one than is kept
    assert mine.shelf.known == [(1, 10, 15)]
    mine.keep(kept)
    assert mine.shelf.known == []
    mine.show(kept, None)
    assert mine.shelf.known == [(1, 10, (1 << 64) - 1)]
    mine.keep(gone)
    mine.show(gone, 0)
    mine.forget_below(2)
    assert (list(mine._chunks), mine.shelf.known) == ([2], [(2, 20, 0)])
    mine.keep(kept)
    mine.forget_below(2)  # it was told that already
    assert sorted(mine._chunks) == [1, 2]
    mine.clear()
    assert (len(mine), mine.shelf.known) == (0, [])


def test_a_directory_is_listed_with_the_inodes_and_its_refusal_names_it(folder, monkeypatch):
    fd, here = folder
    with open(f"{here}/a", "wb"):
        pass
    assert files.inodes_in(fd) == {"a": os.stat(f"{here}/a").st_ino}
    assert files.names_in(fd) == ["a"]

    def refuse(*_, **__):
        raise OSError(errno.EMFILE, "no more", ".")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(OSError, match="no more") as caught:
        files.names_in(fd)
    assert caught.value.filename == here


def test_a_queue_says_which_of_its_places_has_no_such_file(queue):
    home = queue._session.home
    for directory, place in ((home.fd, ""), (home.chunks, "/chunks"), (home.consumers, "/consumers")):
        os.symlink("/nowhere", f"{queue.path}{place}/link")
        with pytest.raises(shmq.Unsafe, match=whole(f"cannot open {queue.path}{place}/link: it is a symbolic link")):
            home.open(directory, "link", writable=False)
        os.unlink(f"{queue.path}{place}/link")


# ---------------------------------------------------------------- what is mapped keeps no descriptor
@pytest.fixture
def numbered(tmp_path):
    """A file of two pages, of ascending bytes."""
    path = tmp_path / "numbered"
    path.write_bytes(bytes(range(256)) * 32)
    return path


def map_of(path, *, writable=True, private=False):
    with path.open("r+b" if writable else "rb") as file:
        if private:
            return _native.map_private(file.fileno(), 8192)
        return _native.map_file(file.fileno(), 8192, writable=writable)


def test_a_mapping_is_the_file_and_keeps_its_lock_but_no_descriptor(numbered):
    before = os.listdir("/proc/self/fd")
    with numbered.open("r+b") as file:
        assert spares.lock_as_mapper(file.fileno())
        memory = _native.map_file(file.fileno(), 8192, writable=True)
    assert os.listdir("/proc/self/fd") == before
    with numbered.open("r+b") as other:
        assert not spares.lock_alone(other.fileno())
        assert (len(memory), memory[0], memory[-1], memory[255:258]) == (8192, 0, 255, b"\xff\0\1")
        memory[1], memory[-2:] = 77, b"zz"
        assert (os.pread(other.fileno(), 3, 0), os.pread(other.fileno(), 3, 8189)) == (b"\0M\2", b"\xfdzz")
        view = memoryview(memory)
        with pytest.raises(BufferError):
            memory.close()
        del memory
        assert not spares.lock_alone(other.fileno())  # the view keeps it
        view.release()
        del view
        assert spares.lock_alone(other.fileno())


def test_a_mapping_that_was_closed_or_is_to_be_read_refuses(numbered):
    memory = map_of(numbered, writable=False)
    assert memoryview(memory).readonly
    for place, what in ((0, 1), (slice(0, 1), b"x")):
        with pytest.raises(TypeError):
            memory[place] = what
    memory.close()
    memory.close()
    for use in (lambda: memory[0], lambda: len(memory), lambda: memoryview(memory), lambda: memory[:]):
        with pytest.raises(ValueError, match="unmapped"):
            use()


def test_a_mapping_has_no_bytes_but_its_own(numbered):
    memory = map_of(numbered)
    assert (memory[8190:9000], memory[9000:], memory[5:3], memory[-8192]) == (b"\xfe\xff", b"", b"", 0)
    for place in (8192, -8193, 1 << 70):
        with pytest.raises(IndexError):
            memory[place]
    for place, what, problem in (
        (slice(0, 2), b"x", ValueError),
        (slice(8190, 9000), b"xyz", ValueError),
        (slice(0, 8, 2), b"abcd", ValueError),
        (0, 256, ValueError),
        (0, -1, ValueError),
        (0, b"x", TypeError),
        ("0", 1, TypeError),
    ):
        with pytest.raises(problem):
            memory[place] = what
    with pytest.raises(TypeError):
        del memory[0]
    assert memory[:] == numbered.read_bytes() == bytes(range(256)) * 32


def test_a_private_mapping_changes_no_file(numbered):
    memory = map_of(numbered, private=True)
    memory[0:2] = b"zz"
    assert (memory[:2], numbered.read_bytes()[:2]) == (b"zz", b"\0\1")


def test_what_cannot_be_mapped_is_told_with_the_file(numbered, tmp_path):
    with pytest.raises(ValueError, match="empty"), numbered.open("rb") as file:
        _native.map_file(file.fileno(), 0, writable=False)
    with pytest.raises(PermissionError) as refused, numbered.open("rb") as file:
        _native.map_file(file.fileno(), 8192, writable=True)
    assert refused.value.filename == str(numbered)


@pytest.mark.parametrize(("place", "count"), [("path", 1), (None, 0)])
def test_a_queue_has_one_descriptor_a_volatile_one_none_and_what_opens_it_none(path, place, count):
    """Neither seats, names, pins nor what is mapped; of a queue in a directory that directory itself is open."""
    before = len(os.listdir("/proc/self/fd"))
    with shmq.open(path if place else None) as queue:
        queue.put_many([b"x"] * 3)
        with (
            queue.consumer("c") as consumer,
            queue.consumer("g", group=True) as group,
            queue.reader(pin=True) as reader,
        ):
            assert (consumer.take(0), group.take(0), next(reader).payload) == (b"x", b"x", b"x")
            assert len(os.listdir("/proc/self/fd")) - before == count
    assert len(os.listdir("/proc/self/fd")) == before  # the queue was closed, and is still known here
    assert queue.closed


@pytest.fixture
def overlay(tmp_path):
    """A folder of an overlay over others, where one may be mounted here; elsewhere the test is skipped."""
    for name in ("lower", "upper", "work", "merged"):
        (tmp_path / name).mkdir()
    below = f"lowerdir={tmp_path}/lower,upperdir={tmp_path}/upper,workdir={tmp_path}/work"
    command = ["mount", "-t", "overlay", "overlay", "-o", below, f"{tmp_path}/merged"]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no overlay can be mounted here")
    yield tmp_path / "merged"
    subprocess.run(["umount", "-l", f"{tmp_path}/merged"], check=True)


def lock_lasts(path):
    """Whether a chunk's lock is there as long as its mapping, and not longer."""
    with path.open("r+b") as file:
        assert spares.lock_as_mapper(file.fileno())
        memory = _native.map_file(file.fileno(), 8192, writable=True)
    with path.open("r+b") as other:
        assert spares.is_locked(other.fileno())
        memory.close()
        return not spares.is_locked(other.fileno())


def test_a_mapping_keeps_its_lock_also_where_the_kernel_maps_another_file_than_was_opened(overlay):
    """Overlayfs maps the file below, so a mapping keeps no lock by itself: there it keeps a descriptor."""
    path = overlay / "numbered"
    path.write_bytes(bytes(8192))
    with path.open("r+b") as file:
        # What had that number of a device before, and is unmounted, may have been of another kind.
        mapping._keeping.update({(os.fstat(file.fileno()).st_dev, 0): True})
        assert not mapping.keeps_locks(file.fileno())
    assert lock_lasts(path)


def test_what_is_known_of_a_plain_disk_and_a_trial_with_a_lock_agree(numbered):
    with numbered.open("r+b") as file:
        on_a_disk = mapping.disk_type(file.fileno())
        assert mapping._try_whether_it_keeps(file.fileno()) or not on_a_disk
    assert lock_lasts(numbered)


def test_an_overlay_on_a_disk_is_no_plain_disk(overlay):
    path = overlay / "numbered"
    path.write_bytes(bytes(8192))
    assert blocks.disk_type(str(overlay)) == ""
    with path.open("r+b") as file:
        assert mapping.disk_type(file.fileno()) == ""


@pytest.mark.parametrize("place", ["disk", "memory", "processes", "nowhere"])
def test_a_disk_is_known_as_the_mounts_tell_it(place, tmp_path):
    path = {"disk": str(tmp_path), "memory": "/dev/shm", "processes": "/proc", "nowhere": f"{tmp_path}/x"}[place]
    kind = blocks.disk_type(path)
    if place == "disk":
        named = files.filesystem_type(path)
        assert kind == (named if named in {"ext4", "xfs"} else "ext4" if named in {"ext2", "ext3"} else "")
        with _native.Fd.of(os.open, path, os.O_RDONLY) as fd:
            assert _native.disk_type(fd) == kind
    else:
        assert kind == ""


@pytest.mark.parametrize("keeps", [True, False])
def test_what_is_mapped_by_an_opening_of_its_own_lets_go_of_a_lock_without_being_unmapped(numbered, monkeypatch, keeps):
    if not keeps:
        monkeypatch.setattr(mapping, "keeps_locks", lambda _: False)
    before = len(os.listdir("/proc/self/fd"))
    with numbered.open("r+b") as file:
        assert spares.lock_as_mapper(file.fileno())
        memory = _native.map_held(file.fileno(), 8192, writable=True)
    with numbered.open("r+b") as other:
        assert spares.is_locked(other.fileno())
        memory.keep(None)
        assert not spares.is_locked(other.fileno())
    memory[:2] = b"ab"
    assert numbered.read_bytes()[:2] == memory[:2] == b"ab"
    memory.close()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("keeps", [True, False])
def test_what_cannot_be_mapped_by_an_opening_of_its_own_is_named_and_leaves_nothing(numbered, monkeypatch, keeps):
    monkeypatch.setattr(mapping, "keeps_locks", lambda _: keeps)
    before = len(os.listdir("/proc/self/fd"))
    with numbered.open("rb") as file:
        with pytest.raises(PermissionError) as refused:
            _native.map_held(file.fileno(), 8192, writable=True)
        assert refused.value.filename == str(numbered)
        with pytest.raises(ValueError, match="empty file"):
            _native.map_held(file.fileno(), 0, writable=False)
    del refused  # whose traceback leads to what was open
    assert len(os.listdir("/proc/self/fd")) == before
    with pytest.raises(OSError, match="Bad file descriptor"):
        _native.FileMap.held(-1, 4096, False)


def test_whether_a_mapping_keeps_locks_is_tried_once_for_each_file_system(numbered, monkeypatch):
    tried = []
    monkeypatch.setattr(mapping, "_keeping", {})
    monkeypatch.setattr(mapping, "disk_type", lambda _: "")
    monkeypatch.setattr(mapping, "_try_whether_it_keeps", lambda fd: bool(tried.append(fd)))
    before = len(os.listdir("/proc/self/fd"))
    memories = [map_of(numbered), map_of(numbered, private=True), map_of(numbered)]
    assert (len(tried), len(os.listdir("/proc/self/fd")) - before) == (1, 3)
    memories.clear()
    assert len(os.listdir("/proc/self/fd")) == before
    assert lock_lasts(numbered)

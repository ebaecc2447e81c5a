"""
Bad input: one clear error each, and nothing lost.

Every test ends with what is still true: the data that was healthy before can be read afterwards.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gc
import json
import mmap
import os
import random
import resource
import shutil
import struct
import subprocess
import warnings
from pathlib import Path

import pytest
from support import (
    DONE,
    HANDED,
    HEAD,
    HINT,
    PAGE,
    Child,
    chunk_files,
    crc32c_by_bits,
    flip,
    hold_until_killed,
    in_child,
    patch,
    states,
    words,
)

import shmq
from shmq import _native
from shmq.storage import blocks, files

ROOT = os.geteuid() == 0
NOBODY = 65534
F_OFD_SETLK = 37


@pytest.fixture
def healthy(make, path):
    """A queue that was closed whole: 40 messages over several chunks, consumer "c" after ten of them."""
    with make(retention=shmq.Retention.forever()) as queue:
        for i in range(40):
            queue.put(b"%d" % i + bytes(1500))
        with queue.consumer("c") as consumer:
            consumer.take_many(5, timeout=0), consumer.take_many(5, timeout=0)
            consumer.seek(10)
    return Path(path)


def payloads(path, start=0, stop=None):
    with shmq.open(path, create=False, read_only=True) as queue:
        return [int(message.payload.rstrip(b"\0")) for message in queue.reader(start, stop)]


def refuses(error, says, path, **flags):
    """Opening, by both ways, raises exactly that class, with these words."""
    for mode in ({}, {"create": False}, {"read_only": True}):
        with pytest.raises(error, match=says) as caught:
            shmq.open(path, **mode, **flags)
        assert type(caught.value) is error
        assert str(path) in str(caught.value)


def everything(path):
    return {file: file.read_bytes() for file in Path(path).rglob("*") if file.is_file() and not file.is_symlink()}


# ---------------------------------------------------------------- the path
def test_a_path_that_is_a_file(tmp_path):
    """BadFormat; the file is not touched."""
    file = tmp_path / "file"
    file.write_text("mine")
    refuses(shmq.BadFormat, "it is not a directory.*not touched", file)
    assert file.read_text() == "mine"


def test_a_path_that_is_a_symlink(healthy, tmp_path):
    """Unsafe, to a queue and to nothing; the queue itself can be opened by its name."""
    link, dangling = tmp_path / "link", tmp_path / "dangling"
    link.symlink_to(healthy)
    dangling.symlink_to(tmp_path / "none")
    refuses(shmq.Unsafe, "symbolic link; name the directory itself", link)
    with pytest.raises(shmq.Unsafe, match="symbolic link"):
        shmq.open(f"{link}/")
    refuses(shmq.Unsafe, "symbolic link", dangling)
    assert not (tmp_path / "none").exists()
    assert payloads(healthy) == list(range(40))


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777, 0o1777])
def test_a_directory_writable_by_others(healthy, mode):
    """Unsafe, with the mode and the remedy; after the remedy all is there."""
    healthy.chmod(mode)
    refuses(shmq.Unsafe, rf"others may write there \(mode 0o{mode:o}\); chmod go-w", healthy)
    healthy.chmod(0o700)
    assert payloads(healthy) == list(range(40))


@pytest.mark.parametrize("folder", ["chunks", "consumers"])
def test_a_folder_of_a_queue_that_is_not_safe(healthy, folder):
    """Writable by others, a link, a file, or missing: the same care as for the queue itself."""
    below = healthy / folder
    below.chmod(0o777)
    refuses(shmq.Unsafe, f"{folder}: others may write there", healthy)
    below.chmod(0o700)
    below.rename(healthy.with_name("aside"))
    refuses(shmq.Corrupt, f"its folder {folder} is missing", healthy)
    below.symlink_to(healthy.with_name("aside"))
    refuses(shmq.Unsafe, "symbolic link", healthy)
    below.unlink()
    below.write_text("")
    refuses(shmq.BadFormat, "it is not a directory", healthy)
    below.unlink()
    healthy.with_name("aside").rename(below)
    assert payloads(healthy) == list(range(40))


@pytest.mark.skipif(not ROOT, reason="only root can be somebody else")
def test_a_queue_that_is_not_ours(healthy):
    """Unsafe: a foreign directory, and a foreign file in ours; each names both users."""
    os.chown(healthy, NOBODY, NOBODY)
    for mode in ({}, {"create": False}):
        with pytest.raises(shmq.Unsafe, match=f"belongs to user {NOBODY}, and this is user 0"):
            shmq.open(healthy, **mode)
    os.chown(healthy, 0, 0)
    for file in ("queue.shmq", "control.shmq"):
        os.chown(healthy / file, NOBODY, NOBODY)
        with pytest.raises(shmq.Unsafe, match=f"{file}: it belongs to user {NOBODY}"):
            shmq.open(healthy)
        os.chown(healthy / file, 0, 0)
    assert payloads(healthy) == list(range(40))


@pytest.mark.skipif(not ROOT, reason="only root can become somebody else")
def test_permissions(healthy, tmp_path):
    """
    Somebody who may not look gets PermissionError with the path; one who may look, but is not the owner, Unsafe; one
    who may not make a directory there, PermissionError. Nothing changes.
    """
    for above in (tmp_path, *tmp_path.parents[:3]):
        if above != Path("/tmp"):
            above.chmod(0o755)
    before = everything(healthy)

    def as_nobody(mode):
        healthy.chmod(mode)

        def attempt():
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            try:
                shmq.open(healthy if mode else tmp_path / "new")
            except (shmq.ShmqError, OSError) as problem:
                return f"{type(problem).__name__}: {problem}"

        return in_child(attempt)

    assert as_nobody(0o700).startswith("PermissionError: ")
    assert str(healthy) in as_nobody(0o700)
    assert f"Unsafe: cannot open {healthy}: it belongs to user 0" in as_nobody(0o755)
    assert as_nobody(0).startswith("PermissionError: ")
    healthy.chmod(0o700)
    assert everything(healthy) == before


def test_a_directory_we_may_not_write(healthy, make):
    """As another user without rights to write: reading read-only needs none, putting says what is missing."""

    def attempt():
        for folder in (healthy, healthy / "chunks"):
            folder.chmod(0o500)
        if ROOT:
            os.chown(healthy, NOBODY, NOBODY)
            for each in healthy.rglob("*"):
                os.chown(each, NOBODY, NOBODY)
            for above in healthy.parents[:4]:
                if above != Path("/tmp"):
                    above.chmod(0o755)
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        with shmq.open(healthy) as queue:
            assert queue.put(b"small, and fits") == 40
            with pytest.raises(PermissionError, match="chunks"):
                queue.put(bytes(16000))
            return len(list(queue.reader()))

    assert in_child(attempt) == "41"


@pytest.mark.filterwarnings("ignore:on a full disk:RuntimeWarning")
@pytest.mark.parametrize(
    ("kind", "refused"),
    [
        ("nfs4", True),
        ("cifs", True),
        ("9p", True),
        ("fuse.sshfs", True),
        ("fuse.something-new", True),
        ("fuse", True),
        ("ext4", False),
        ("xfs", False),
        ("btrfs", False),
        ("tmpfs", False),
        ("overlay", False),
        ("fuseblk", False),
        ("fuse.fuse-overlayfs", False),
    ],
)
def test_a_network_file_system(tmp_path, monkeypatch, kind, refused):
    """UnsafeFilesystem names the kind and the way out; local ones are taken; nothing is made where it is refused."""
    monkeypatch.setattr(blocks, "disk_type", lambda _: "")
    monkeypatch.setattr(files, "filesystem_type", lambda *_: kind)
    path = tmp_path / "q"
    if refused:
        refuses(shmq.UnsafeFilesystem, f"it is on {kind}, .*network.*unsafe_filesystem=True", path)
        assert not path.exists()
        with shmq.open(path, unsafe_filesystem=True) as queue:
            queue.put(b"0")
        refuses(shmq.UnsafeFilesystem, kind, path)
        with shmq.open(path, unsafe_filesystem=True) as queue:
            assert len(queue) == 1
    else:
        shmq.open(path).close()


MOUNTS = r"""22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/root rw
30 22 0:25 / /mnt rw - tmpfs tmpfs rw
31 30 0:40 / /mnt/nfs rw shared:5 master:2 - nfs4 server:/export rw,vers=4.2
32 30 0:41 / /mnt/with\040space\011tab\134slash rw - cifs //server/share rw
33 30 0:42 / /mnt/données rw - fuse.sshfs host:/ rw
34 30 0:43 / /mnt/over rw - nfs server:/ rw
35 34 8:2 / /mnt/over rw - xfs /dev/sdb rw
36 31 8:3 / /mnt/nfs/local rw - ext4 /dev/sdc rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/q", "ext4"),
        ("/mnt/q", "tmpfs"),
        ("/mnt/nfs", "nfs4"),
        ("/mnt/nfs/q", "nfs4"),
        ("/mnt/nfs-not/q", "tmpfs"),
        ("/mnt/nfs/local/q", "ext4"),
        ("/mnt/with space\ttab\\slash/q", "cifs"),
        ("/mnt/données/q", "fuse.sshfs"),
        ("/mnt/over/q", "xfs"),
    ],
)
def test_the_kind_of_a_file_system_is_read_from_mountinfo(path, kind):
    """The longest mount point above decides, the last one of its name; escapes and letters beyond ASCII are read."""
    assert files.filesystem_type(path, MOUNTS) == kind


def test_a_directory_that_is_not_a_queue(tmp_path):
    """With something in it: BadFormat, and nothing in it is touched. Empty, and not to be created: NotFound."""
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "letter.txt").write_text("mine")
    with pytest.raises(shmq.BadFormat, match=r"other files in it \(letter.txt\); they were not touched"):
        shmq.open(tmp_path / "d")
    with pytest.raises(shmq.NotFound, match="not a queue"):
        shmq.open(tmp_path / "d", create=False)
    assert everything(tmp_path) == {tmp_path / "d" / "letter.txt": b"mine"}


@pytest.mark.parametrize("folder", ["chunks", "consumers"])
def test_a_directory_that_lost_its_queue_file_keeps_its_data(healthy, folder):
    """Creating a queue there would bury what is left of the old one: Corrupt, and every byte stays."""
    file = healthy / "queue.shmq"
    content = file.read_bytes()
    file.unlink()
    if folder == "consumers":
        shutil.move(healthy / "chunks", healthy.with_name("chunks"))
    before = everything(healthy)
    with pytest.raises(shmq.Corrupt, match=r"there is no queue.shmq, but \d+ files lie in .*nothing was touched"):
        shmq.open(healthy)
    assert {each: everything(healthy)[each] for each in before if each.parent != healthy} == {
        each: content for each, content in before.items() if each.parent != healthy
    }
    if folder == "consumers":
        (healthy / "chunks").rmdir()
        shutil.move(healthy.with_name("chunks"), healthy / "chunks")
    file.write_bytes(content)
    file.chmod(0o600)
    assert payloads(healthy) == list(range(40))


def test_absent_and_not_to_be_created(tmp_path):
    """NotFound with the path; nothing is made. Nor below a directory that is missing or a file."""
    with pytest.raises(shmq.NotFound, match=f"cannot open {tmp_path}/none: there is no such directory"):
        shmq.open(tmp_path / "none", create=False)
    with pytest.raises(shmq.NotFound, match="the directory above it does not exist"):
        shmq.open(tmp_path / "no" / "q")
    (tmp_path / "file").write_text("")
    with pytest.raises(shmq.NotFound, match="something above it is a file"):
        shmq.open(tmp_path / "file" / "q")
    assert sorted(os.listdir(tmp_path)) == ["file"]


@pytest.mark.parametrize("path", ["", 5, b"bytes", "nul\0byte"])
def test_what_is_no_path(path):
    """ValueError or TypeError, at once."""
    with pytest.raises((ValueError, TypeError)):
        shmq.open(path)


def test_a_name_too_long_for_the_file_system(tmp_path):
    """OSError with the path."""
    with pytest.raises(OSError, match="File name too long"):
        shmq.open(tmp_path / ("x" * 300))


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".hidden", "a/b", "a b", "a\0b", "a\n", "ä", "x" * 65, "../c", None, 5, b"c", "a:b", "%41"]
)
def test_a_bad_consumer_name(healthy, name):
    """An error that says what a name is; no file is made; the good ones go on."""
    error = (ValueError, "a consumer name: 1 to 64 of") if isinstance(name, str) else (TypeError, "name of a consumer")
    with shmq.open(healthy) as queue:
        for verb in (queue.consumer, queue.drop_consumer):
            with pytest.raises(error[0], match=error[1]):
                verb(name)
        assert os.listdir(healthy / "consumers") == ["c.checkpoint"]
        for good in ("x" * 64, "-", "_", "A.b-c_9"):
            queue.consumer(good).close()


# ---------------------------------------------------------------- the queue file
@pytest.mark.parametrize(
    ("position", "data", "error", "says"),
    [
        (0, b"notshmq!", shmq.BadFormat, "it is not the queue file"),
        (8, b"\x01\x02\x03\x04", shmq.BadFormat, "the other byte order"),
        (12, b"\x02\0\0\0", shmq.BadFormat, "format version 2; this library knows version 1"),
        (12, b"\xff\xff\xff\xff", shmq.BadFormat, "format version 4294967295"),
        (16, b"\x04\0\0\0", shmq.BadFormat, "uses features 0x4 that this library does not know"),
        (24, b"\0" * 16, shmq.Corrupt, "first page fails its checksum"),
        (48, b"\xff\xff\xff\xff", shmq.Corrupt, "first page fails its checksum"),
        (60, b"\0", shmq.Corrupt, "first page fails its checksum"),
        (0, bytes(20480), shmq.BadFormat, "it is not the queue file"),
        (PAGE, bytes(2 * PAGE), shmq.Corrupt, "neither of its two journal slots"),
    ],
)
def test_a_newer_foreign_or_damaged_queue_file(healthy, position, data, error, says):
    """Refused by name, untouched; put right again, all is there."""
    file = healthy / "queue.shmq"
    content = file.read_bytes()
    patch(file, position, data)
    before = everything(healthy)
    refuses(error, f"queue.shmq: .*{says}", healthy)
    assert everything(healthy) == before
    file.write_bytes(content)
    assert payloads(healthy) == list(range(40))


def rewrite_options(file, stored: bytes):
    """Stored options with a right checksum."""
    page = bytearray(file.read_bytes()[:PAGE])
    page[48:56] = struct.pack("<II", len(stored), 0)
    page[56:] = stored.ljust(PAGE - 56, b"\0")
    page[52:56] = struct.pack("<I", crc32c_by_bits(bytes(page)))
    patch(file, 0, bytes(page))


@pytest.mark.parametrize(
    ("stored", "error"),
    [
        (b"", shmq.Corrupt),
        (b"not json", shmq.Corrupt),
        (b"\xff\xfe", shmq.Corrupt),
        (b"[1, 2]", shmq.Corrupt),
        (b"7", shmq.Corrupt),
        (b"null", shmq.Corrupt),
        (b"[" * 3000, shmq.Corrupt),
        (b'{"chunk_bytes": "big"}', shmq.Corrupt),
        (b'{"chunk_bytes": -1}', shmq.Corrupt),
        (b'{"chunk_bytes": 1e308}', shmq.Corrupt),
        (b'{"mode": 511}', shmq.Corrupt),
        (b'{"time_travel": true}', shmq.BadFormat),
    ],
)
def test_stored_options_that_are_no_options(healthy, stored, error):
    """Somebody made them with a right checksum: Corrupt or BadFormat with the file's name, never a Python error."""
    content = (healthy / "queue.shmq").read_bytes()
    rewrite_options(healthy / "queue.shmq", stored)
    refuses(error, "cannot read .*queue.shmq", healthy)
    patch(healthy / "queue.shmq", 0, content)
    assert payloads(healthy) == list(range(40))


@pytest.mark.parametrize("name", ["exec", "struct:os.system", "\x1b[2J", "", "pickle "])
def test_a_stored_codec_that_is_none_of_ours_runs_nothing(healthy, name):
    """It is whoever opens the queue that brings it; a name alone loads no code."""
    rewrite_options(healthy / "queue.shmq", json.dumps({"codec": name}).encode())
    with pytest.raises(shmq.BadFormat, match="its payloads are of codec") as caught:
        shmq.open(healthy)
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize("size", [0, 1, 55, PAGE - 1, PAGE, 20479, 20481, 1 << 40])
def test_a_queue_file_of_the_wrong_size(healthy, size):
    """Cut or grown, however far: refused, with its size, and no memory is spent on it."""
    content = (healthy / "queue.shmq").read_bytes()
    os.truncate(healthy / "queue.shmq", size)
    refuses(shmq.Corrupt if size >= PAGE else shmq.BadFormat, rf"queue.shmq: it has (only )?{size} bytes", healthy)
    (healthy / "queue.shmq").write_bytes(content)
    assert payloads(healthy) == list(range(40))


@pytest.mark.parametrize("damage", ["missing", "zeroed", "cut", "grown", "version", "other queue"])
def test_a_damaged_control_file(healthy, make, tmp_path, damage):
    """It holds no data, so none is lost: the error names it, and with a good one all is there."""
    file = healthy / "control.shmq"
    content = file.read_bytes()
    error = shmq.BadFormat if damage == "version" else shmq.Corrupt
    if damage == "missing":
        file.unlink()
    elif damage == "zeroed":
        patch(file, 0, bytes(len(content)))
    elif damage == "cut":
        os.truncate(file, 5000)
    elif damage == "grown":
        os.truncate(file, 1 << 40)
    elif damage == "version":
        patch(file, 12, b"\x02")
    else:
        make(str(tmp_path / "other")).close()
        file.write_bytes((tmp_path / "other" / "control.shmq").read_bytes())
    refuses(error, "control.shmq", healthy)
    file.write_bytes(content)
    file.chmod(0o600)
    assert payloads(healthy) == list(range(40))


# ---------------------------------------------------------------- files that are not what they seem
@pytest.mark.parametrize("name", ["queue.shmq", "control.shmq", "chunk", "c.checkpoint"])
@pytest.mark.parametrize("kind", ["hard link", "symlink", "fifo", "directory", "device", "readable by others"])
def test_a_file_that_is_something_else(healthy, tmp_path, name, kind):
    """A second name, a link, a FIFO, a directory, a device, rights of others: Unsafe, at once, and with a reason."""
    file = {"chunk": chunk_files(healthy)[0], "c.checkpoint": healthy / "consumers" / name}.get(name, healthy / name)
    aside = tmp_path / "aside"
    if kind == "readable by others":
        file.chmod(0o644)
    elif kind == "hard link":
        os.link(file, aside)
    else:
        file.rename(aside)
        if kind == "symlink":
            file.symlink_to(aside)
        elif kind == "fifo":
            os.mkfifo(file, 0o600)
        elif kind == "device":
            if not ROOT:
                pytest.skip("only root makes devices")
            os.mknod(file, 0o600 | 0o020000, os.makedev(1, 5))
        else:
            file.mkdir(mode=0o700)
    says = f"{file.name}: .*(symbolic link|not a regular file|2 names|others have rights)"
    with pytest.raises(shmq.Unsafe, match=says), shmq.open(healthy, create=False) as queue:
        queue.consumer("c") if name == "c.checkpoint" else list(queue.reader())
    if kind == "readable by others":
        file.chmod(0o600)
    elif kind == "hard link":
        aside.unlink()
    else:
        file.rmdir() if kind == "directory" else file.unlink()
        aside.rename(file)
    assert payloads(healthy) == list(range(40))


@pytest.mark.parametrize("kind", ["symlink", "directory"])
def test_an_admin_lock_that_is_something_else(healthy, kind):
    """Unsafe; what needs no administration goes on."""
    lock = healthy / "admin.lock"
    lock.unlink(missing_ok=True)
    if kind == "symlink":
        lock.symlink_to(healthy / "queue.shmq")
    else:
        lock.mkdir()
    content = (healthy / "queue.shmq").read_bytes()
    with shmq.open(healthy) as queue:
        with pytest.raises(shmq.Unsafe, match=r"admin\.lock"):
            queue.consumer("new")
        assert queue.put(b"40") == 40
    assert (healthy / "queue.shmq").read_bytes() == content


# ---------------------------------------------------------------- chunks
@pytest.mark.parametrize("which", [0, 1, -1])
@pytest.mark.parametrize("damage", ["cut to nothing", "cut", "cut by a page", "grown", "huge", "zeroed", "no header"])
def test_a_truncated_or_zeroed_chunk(healthy, which, damage):
    """Corrupt with file and reason; what lies before it is read; put right again, all is there."""
    file = chunk_files(healthy)[which]
    content = file.read_bytes()
    size = len(content)
    first = int(file.name[:16], 16)
    if damage == "zeroed":
        patch(file, 0, bytes(size))
    elif damage == "no header":
        patch(file, 0, bytes(PAGE))
    else:
        sizes = {"cut to nothing": 0, "cut": 5000, "cut by a page": size - PAGE, "grown": size + PAGE, "huge": 1 << 40}
        os.truncate(file, sizes[damage])
    with shmq.open(healthy, read_only=True) as queue:
        assert not first or [message.index for message in queue.reader(0, first)] == list(range(first))
        with pytest.raises(shmq.Corrupt, match=file.name):
            list(queue.reader())
    with shmq.open(healthy) as queue, pytest.raises(shmq.Corrupt, match=file.name):
        queue.consumer("d", start=first).take(timeout=0)
    file.write_bytes(content)
    assert payloads(healthy) == list(range(40))


@pytest.mark.parametrize("which", ["first", "middle", "last"])
def test_a_missing_chunk(healthy, which):
    """
    Corrupt, and it says which: when the queue is opened, and when it goes missing under an open one. It is not made
    anew: its indexes are not given to other messages.
    """
    at = {"first": 0, "middle": 1, "last": -1}[which]
    file = chunk_files(healthy)[at]
    aside = healthy.with_name("aside")
    with shmq.open(healthy) as queue:
        reader = queue.reader()
        next(reader)
        file.rename(aside)
        if which != "first":
            with pytest.raises(shmq.Corrupt, match=f"(?i){file.name} is missing|chunk .* is missing"):
                list(reader)
        with pytest.raises(shmq.Corrupt, match=r"chunk .* is missing"):
            queue.put(b"x")
    refuses(shmq.Corrupt, "chunk .* is missing.*nothing was changed", healthy)
    aside.rename(file)
    assert payloads(healthy) == list(range(40))


def test_all_chunks_missing(healthy):
    """Corrupt, not an empty queue."""
    shutil.move(healthy / "chunks", healthy.with_name("chunks"))
    (healthy / "chunks").mkdir(mode=0o700)
    refuses(shmq.Corrupt, "chunk 3 is missing, where the queue ends|chunk . is missing", healthy)
    (healthy / "chunks").rmdir()
    shutil.move(healthy.with_name("chunks"), healthy / "chunks")
    assert payloads(healthy) == list(range(40))


def test_a_duplicated_chunk(healthy):
    """A copy of the same sequence under another base; one under the next name: Corrupt where the queue goes on."""
    first, last = chunk_files(healthy)[0], chunk_files(healthy)[-1]
    twin = first.with_name(f"{7:016x}-00000000.chunk")
    shutil.copy(first, twin)
    refuses(shmq.Corrupt, "two chunks of sequence 0", healthy)
    twin.unlink()
    base, sequence = (int(part, 16) for part in last.stem.split("-"))
    follower = last.with_name(f"{40:016x}-{sequence + 1:08x}.chunk")
    shutil.copy(last, follower)
    with shmq.open(healthy) as queue:
        large = iter(lambda: queue.put(bytes(200_000)), None)
        with pytest.raises(shmq.Corrupt, match=rf"{follower.name}: it was made as {base:016x}-{sequence:08x}"):
            list(large)
        assert [message.index for message in queue.reader(0, 40)] == list(range(40))
    follower.unlink()
    assert payloads(healthy)[:40] == list(range(40))


def test_swapped_chunks(healthy):
    """Two chunks under each other's names: Corrupt; neither's messages are delivered as the other's."""
    zero, one = chunk_files(healthy)[:2]
    aside = healthy / "aside"

    def swap():
        zero.rename(aside)
        one.rename(zero)
        aside.rename(one)

    swap()
    with shmq.open(healthy, read_only=True) as queue, pytest.raises(shmq.Corrupt, match=f"{zero.name}: it was made as"):
        list(queue.reader())
    swap()
    assert payloads(healthy) == list(range(40))


def test_a_chunk_of_another_queue(healthy, make, tmp_path):
    """Same name, same place: Corrupt."""
    with make(str(tmp_path / "other")) as other:
        for i in range(40):
            other.put(b"%d" % i + bytes(1500))
    file = chunk_files(healthy)[1]
    content = file.read_bytes()
    file.write_bytes(chunk_files(tmp_path / "other")[1].read_bytes())
    with shmq.open(healthy, read_only=True) as queue, pytest.raises(shmq.Corrupt, match="it belongs to another queue"):
        list(queue.reader())
    file.write_bytes(content)
    assert payloads(healthy) == list(range(40))


@pytest.mark.parametrize("where", ["payload", "length", "crc", "ordinal", "time", "span", "count", "state"])
def test_a_bit_flip_in_a_message(healthy, where):
    """Corrupt with file, position and reason; not delivered; the messages of other chunks can be read."""
    file = chunk_files(healthy)[1]
    first, second = (int(each.name[:16], 16) for each in chunk_files(healthy)[1:3])
    word = words(healthy, 1)[0]
    position, bit = {
        "payload": (word.position + 40, 0),
        "length": (word.position + 8, 3),
        "crc": (word.position + 12, 5),
        "ordinal": (word.position + 16, 0),
        "time": (word.position + 24, 1),
        "span": (word.position, 4),
        "count": (word.position + 6, 1),
        "state": (word.position + 7, 5),
    }[where]
    flip(file, position, bit)
    with shmq.open(healthy) as queue:
        with pytest.raises(shmq.Corrupt, match=rf"cannot read .*{file.stem}.*position {word.position}: "):
            list(queue.reader(first))
        with pytest.raises(shmq.Corrupt):
            queue[first]
        with pytest.raises(shmq.Corrupt):
            queue.consumer("d", start=first).take(timeout=0)
        assert queue.consumers()["d"].head == first
        assert [message.index for message in queue.reader(0, first)] == list(range(first))
        assert [message.index for message in queue.reader(second)] == list(range(second, 40))
        assert queue.put(b"40") == 40
    flip(file, position, bit)
    assert payloads(healthy, 0, 40) == list(range(40))


def test_a_flip_behind_a_head_disturbs_nobody(healthy):
    """What a consumer has handed out is not looked at again."""
    flip(chunk_files(healthy)[0], words(healthy)[2].position + 50)
    with shmq.open(healthy) as queue:
        assert queue.consumer("c").get(timeout=0).index == 10


def test_foreign_files_among_the_chunks(healthy):
    """What does not look like a chunk is let alone; what looks like one far ahead is a hole in the chain."""
    note = healthy / "chunks" / "README"
    note.write_text("mine")
    assert payloads(healthy) == list(range(40))
    far = healthy / "chunks" / f"{1 << 40:016x}-{1 << 20:08x}.chunk"
    far.write_bytes(b"")
    refuses(shmq.Corrupt, "is missing between", healthy)
    far.unlink()
    assert note.read_text() == "mine"


# ---------------------------------------------------------------- every bit
FLAG = "SHMQ_WHOLE_SWEEP"


def test_every_bit_of_a_chunk(make, path):
    """
    Flip each bit of a small chunk in turn (a sample of them; all with SHMQ_WHOLE_SWEEP=1): opening and reading end,
    nothing but the messages that were put is ever delivered, in their order and under their indexes.
    """
    queue = make()
    queue.put_many([b"a", b"bb" * 20, b""], keys=[b"k", None, None], headers=[None, {"h": 1}, None])
    with queue.reserve(40) as slot:
        slot.buffer[:] = b"s" * 40
        slot.commit(16)
    queue.reserve(8).abort()
    queue.put(b"last", time_ns=5)
    truth = {message.index: fields_of(message) for message in queue.reader()}
    queue.close()
    (file,) = chunk_files(path)
    end = words(path)[-1].position + words(path)[-1].span * 8
    interesting = [*range(128), *range(HINT, HINT + 8), *range(PAGE, end + 16)]
    bits = [(position, bit) for position in interesting for bit in range(8)]
    bits += [(position, 0) for position in range(16384 - 64, 16384)]
    if not os.environ.get(FLAG):
        bits = random.Random(1).sample(bits, 1500)
    outcomes = {"whole": 0, "refused": 0, "stopped": 0, "short": 0}
    for position, bit in bits:
        flip(file, position, bit)
        try:
            outcomes[judge(path, truth)] += 1
        finally:
            flip(file, position, bit)
    assert judge(path, truth) == "whole"
    assert sum(outcomes.values()) == len(bits)
    # Flips that hide messages are those of PAD words, which have no checksum; a hundredth at most.
    assert outcomes["short"] <= len(bits) // 100, outcomes
    assert outcomes["refused"] > 0 < outcomes["stopped"]


def fields_of(message):
    return message.payload, message.key, message.headers, message.time_ns, message.type


def judge(path, truth) -> str:
    """How a reader fares: everything read, refused at opening, stopped by an error, or an early end."""
    seen = 0
    try:
        with shmq.open(path, read_only=True) as queue:
            for message in queue.reader():
                assert fields_of(message) == truth[message.index]
                seen += 1
    except (shmq.Corrupt, shmq.BadFormat):
        return "stopped" if seen else "refused"
    return "whole" if seen == len(truth) else "short"


@pytest.mark.parametrize("seed", range(6))
def test_random_bytes_anywhere(healthy, seed):
    """Blocks of noise over any of the files: every verb ends with what was put or with one of our errors."""
    randomly = random.Random(seed)
    before = everything(healthy)
    truth = {i: b"%d" % i + bytes(1500) for i in range(40)}
    for _ in range(25):
        file = randomly.choice([each for each in before if each.name != "admin.lock"])
        at = randomly.randrange(len(before[file]))
        patch(file, at, randomly.randbytes(min(randomly.choice([1, 8, 64, 4096]), len(before[file]) - at)))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)
                with shmq.open(healthy, create=False) as queue:
                    for message in queue.reader():
                        assert message.payload == truth.get(message.index, message.payload[:6])
                    with queue.consumer("c") as consumer:
                        consumer.take_many(100, timeout=0)
                    queue.consumers(), queue.stats(), len(queue)
        except (shmq.ShmqError, IndexError):
            pass
        for each, content in before.items():
            each.write_bytes(content)
    assert payloads(healthy) == list(range(40))


# ---------------------------------------------------------------- checkpoints
@pytest.mark.parametrize(
    ("position", "value", "head"),
    [(HEAD, 1 << 40, 40), (HEAD, (1 << 64) - 1, 40), (HANDED, 1 << 40, 10), (HEAD, 41, 40)],
)
def test_a_checkpoint_beyond_the_end_is_clamped_and_said(healthy, position, value, head):
    """RuntimeWarning with file and both indexes; from there the name goes on."""
    patch(healthy / "consumers" / "c.checkpoint", position, value.to_bytes(8, "little"))
    with shmq.open(healthy) as queue:
        with pytest.warns(
            RuntimeWarning, match=rf"c.checkpoint stood at .*{value}.*end of the queue at 40.*moved back"
        ):
            consumer = queue.consumer("c")
        assert consumer.head == head
        queue.put(b"40")
        assert consumer.get(timeout=0).index == head
    assert payloads(healthy, 0, 40) == list(range(40))


@pytest.mark.parametrize("cursor", [struct.pack("<4Q", 0, 5000 << 33, 10, 0), b"\xff" * 32, bytes(32)])
def test_a_damaged_cursor_is_walked_for_instead(healthy, cursor):
    """It is a hint with a check of its own."""
    patch(healthy / "consumers" / "c.checkpoint", 256, cursor)
    with shmq.open(healthy) as queue:
        assert queue.consumer("c").get(timeout=0).index == 10


@pytest.mark.parametrize("cursor", [(0, 0, 3), (0, 4096 + 24, 3), (1, 8192, 9), (99, 8192, 9), (0, (1 << 31) - 8, 9)])
def test_a_cursor_that_lies_is_not_believed(healthy, cursor):
    """One with a right check that names no word, or no chunk: the name still goes on at its head."""
    sequence, position, index = cursor
    place = position // 8 << 36 | index
    words_ = struct.pack("<QQQ", sequence, place, index)
    check = struct.pack("<Q", 1 << 32 | crc32c_by_bits(words_))
    patch(healthy / "consumers" / "c.checkpoint", 256, words_ + check)
    with shmq.open(healthy) as queue, contextlib.suppress(shmq.Corrupt):  # said, not delivered wrong
        assert queue.consumer("c").get(timeout=0).index == 10
    assert payloads(healthy) == list(range(40))


@pytest.mark.parametrize("damage", ["zeroed", "cut", "grown", "name", "bit", "version", "other queue"])
def test_a_damaged_checkpoint_is_named_with_the_way_out(healthy, make, tmp_path, damage):
    """Corrupt (a newer one: BadFormat), names file and remedy; other names go on; dropped, it begins anew."""
    file = healthy / "consumers" / "c.checkpoint"
    if damage == "zeroed":
        patch(file, 0, bytes(28672))
    elif damage == "cut":
        os.truncate(file, 100)
    elif damage == "grown":
        os.truncate(file, 1 << 40)
    elif damage == "name":
        patch(file, 64, b"d")
    elif damage == "bit":
        flip(file, 48)
    elif damage == "version":
        patch(file, 12, b"\x09")
    else:
        with make(str(tmp_path / "other")) as other:
            other.consumer("c").close()
        file.write_bytes((tmp_path / "other" / "consumers" / "c.checkpoint").read_bytes())
    with shmq.open(healthy) as queue:
        error = shmq.BadFormat if damage == "version" else shmq.Corrupt
        with pytest.raises(error, match=r"c.checkpoint.*drop_consumer\('c'\) removes it"):
            queue.consumer("c")
        assert queue.consumer("d").get(timeout=0).index == 0
        queue.drop_consumer("c")
        assert queue.consumer("c").get(timeout=0).index == 0


# ---------------------------------------------------------------- no room
def fill_until_full(queue) -> int:
    count = 0
    with contextlib.suppress(shmq.DiskFull):
        while queue.put(b"%d" % count + bytes(1500)) == count:
            count += 1
    with pytest.raises(shmq.DiskFull) as caught:
        queue.put(bytes(1500))
    says = str(caught.value)
    assert "bytes free" in says
    assert "nothing was lost, and the queue can still be read" in says
    assert isinstance(caught.value, shmq.Full)
    return count


@pytest.fixture
def tiny(tmp_path):
    """A file system of 320 KiB."""
    if not ROOT:
        pytest.skip("only root mounts")
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=320k,mode=700", "tmpfs", disk], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount here: {mounted.stderr.decode().strip()}")
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


def test_a_full_disk(tiny):
    """
    DiskFull before anything is visible; reading, acknowledging and small puts go on; with room, put works again.
    """
    ballast = tiny / "ballast"
    ballast.write_bytes(bytes(100_000))
    with shmq.open(tiny / "q", options=shmq.Options(chunk_bytes=16384)) as queue:
        consumer = queue.consumer("c", ack="explicit", window=64)
        count = fill_until_full(queue)
        assert count > 5
        before = len(chunk_files(tiny / "q"))
        for refused in (
            lambda: queue.put(bytes(2000)),
            lambda: queue.put_many([bytes(2000)] * 3),
            lambda: queue.reserve(2000),
            lambda: queue.put(bytes(1 << 20)),
        ):
            with pytest.raises(shmq.DiskFull, match=r"cannot get .* bytes in .*chunks: No space left on device"):
                refused()
        assert len(chunk_files(tiny / "q")) == before
        with pytest.raises(shmq.DiskFull):
            queue.consumer("new")
        assert [message.index for message in queue.reader()] == list(range(count))
        first = consumer.get(timeout=0)
        first.ack()
        ballast.unlink()
        assert queue.put(b"room again") == count
        assert queue[count].payload == b"room again"
        assert consumer.get(timeout=0).index == 1


def test_a_disk_too_full_to_make_a_queue(tiny):
    """DiskFull, however little room there is; with room, the same path works."""
    ballast = tiny / "ballast"
    for free in (0, 4096, 16384, 40960, 81920):
        ballast.write_bytes(b"")
        room = os.statvfs(tiny)
        ballast.write_bytes(bytes(max(room.f_bavail * room.f_frsize - free, 0)))
        with pytest.raises(shmq.DiskFull, match="bytes free"):
            shmq.open(tiny / "q")
    ballast.unlink()
    with shmq.open(tiny / "q", options=shmq.Options(chunk_bytes=16384)) as queue:
        assert queue.put(b"x") == 0


def test_a_limit_like_a_quota(tmp_path):
    """RLIMIT_FSIZE answers EFBIG: DiskFull for the message that needs a larger file, and smaller ones go on."""

    def limited():
        with shmq.open(tmp_path / "q", options=shmq.Options(chunk_bytes=65536)) as queue:
            queue.put(b"0")
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
            with pytest.raises(shmq.DiskFull, match=r"File too large.*nothing was put"):
                queue.put(bytes(200_000))
            assert queue.put(b"1") == 1
            return [message.payload for message in queue.reader()]

    assert in_child(limited) == "[b'0', b'1']"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
@pytest.mark.parametrize("call", ["posix_fallocate", "link", "open"])
def test_no_room_at_any_step_of_a_roll(queue, path, monkeypatch, call, number):
    """ENOSPC, EDQUOT and EFBIG where the file is made, gets its space, or its name: DiskFull, and nothing is left."""
    queue.put(bytes(15000 - 4096))
    real = getattr(os, call)

    def refuse(*arguments, **options):
        if call != "open" or arguments[1] & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(number, os.strerror(number))
        return real(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(os, call, refuse)
        with pytest.raises(shmq.DiskFull, match=os.strerror(number)):
            queue.put(bytes(5000))
    assert len(list(Path(path, "chunks").iterdir())) == 1
    assert queue.put(bytes(5000)) == 1


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.EIO, errno.ENOMEM])
def test_other_troubles_are_oserrors_with_the_path(queue, path, monkeypatch, number):
    """Not a full disk, and not hidden: OSError with its number and where; afterwards put works."""
    queue.put(bytes(15000 - 4096))

    def refuse(*_):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", refuse)
        with pytest.raises(OSError, match=f"{path}/chunks") as caught:
            queue.put(bytes(5000))
        assert caught.value.errno == number
    assert queue.put(bytes(5000)) == 1


def test_a_file_system_without_nameless_files(tmp_path, monkeypatch):
    """UnsafeFilesystem names what it lacks."""
    real = os.open

    def refuse(path, flags, *rest, **options):
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "no")
        return real(path, flags, *rest, **options)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(shmq.UnsafeFilesystem, match="O_TMPFILE"):
        shmq.open(tmp_path / "q")


def test_too_few_descriptors(healthy):
    """EMFILE while opening: OSError, nothing leaks, and with descriptors it opens."""

    def starve():
        gc.collect()  # what other tests have left
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        found = [len(os.listdir("/proc/self/fd"))]
        for _ in range(3):  # the first time what was kept warm is given back for want of room
            for spare in range(12):
                resource.setrlimit(resource.RLIMIT_NOFILE, (found[-1] + spare, hard))
                try:
                    shmq.open(healthy).close()
                except OSError as problem:
                    assert problem.errno == errno.EMFILE  # noqa: PT017
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            found.append(len(os.listdir("/proc/self/fd")))
        assert found[0] >= found[1] == found[2] == found[3]
        return payloads(healthy) == list(range(40))

    assert in_child(starve) == "True"


# ---------------------------------------------------------------- sizes
def test_everything_over_its_limit(healthy):
    """Payload, key, headers, batch: TooLarge or TooMany with the limit; not one byte changes."""
    with shmq.open(healthy) as queue:
        queue.producer()
        before = everything(healthy)
        with mmap.mmap(-1, 1 << 30) as gigabyte, memoryview(gigabyte) as view:
            attempts = [
                (shmq.TooLarge, "at most 1073741816", lambda: queue.put(view)),
                (shmq.TooLarge, "at most 1073741816", lambda: queue.reserve(len(view))),
                (shmq.TooLarge, "at most 65535", lambda: queue.put(b"", key=bytes(65536))),
                (shmq.TooLarge, "at most 524280", lambda: queue.put(b"", headers={"x": "y" * 524280})),
                (shmq.TooLarge, "at most 65535", lambda: queue.put_many([b"", b""], keys=[b"", bytes(65536)])),
                (shmq.TooMany, "up to 8191", lambda: queue.put_many([b""] * 8192)),
            ]
            for error, says, attempt in attempts:
                with pytest.raises(error, match=says) as caught:
                    attempt()
                assert "nothing was put" in str(caught.value)
        assert everything(healthy) == before
    assert payloads(healthy) == list(range(40))


# ---------------------------------------------------------------- who else is there
def test_two_processes_create_the_same_queue_at_once(tmp_path):
    """Fifteen rounds of four: one queue, one id, everybody's put is in it."""
    for turn in range(15):
        path = tmp_path / f"q{turn}"

        def create_and_put(say, path=path):
            say("ready")
            while not (path.parent / "go").exists():
                pass
            with shmq.open(path, options=shmq.Options(chunk_bytes=16384)) as queue:
                say(queue.put(b"x"))

        children = [Child(create_and_put) for _ in range(4)]
        for child in children:
            child.hear()
        (tmp_path / "go").touch()
        assert sorted(child.hear() for child in children) == ["0", "1", "2", "3"]
        assert [child.join() for child in children] == [0] * 4
        (tmp_path / "go").unlink()
        assert states(path) == [DONE] * 4


def test_a_creation_that_was_killed_is_finished_by_the_next(tmp_path, monkeypatch):
    """Killed before each of its files: what it left is no queue, and in nobody's way."""
    for step in range(1, 3):
        path = tmp_path / f"q{step}"
        calls = []
        real = files.make_file

        def make_or_die(*arguments, step=step, calls=calls, real=real):
            calls.append(1)
            if len(calls) == step:
                os._exit(9)
            return real(*arguments)

        def create(say, path=path, make_or_die=make_or_die):
            monkeypatch.setattr(files, "make_file", make_or_die)
            shmq.open(path)
            say("made")

        with Child(create) as child:
            assert child.join() == 9
        with pytest.raises(shmq.NotFound):
            shmq.open(path, create=False)
        with shmq.open(path) as queue:
            assert queue.put(b"x") == 0


def test_a_creation_contradicted_by_another(make, path):
    """The loser of the race has other options: Mismatch names both values; the queue is the winner's."""
    make(chunk_bytes=32768).put(b"x")
    with pytest.raises(shmq.Mismatch, match=r"chunk_bytes=65536.*chunk_bytes=32768"):
        make(chunk_bytes=65536)
    assert states(path) == [DONE]


def test_an_exclusive_name_held_twice(healthy):
    """Busy names the process that has it; the holder is not disturbed."""

    def hold(say):
        queue = shmq.open(healthy)
        held = queue.consumer("c")
        hold_until_killed(say)
        held.close()

    with Child(hold) as child, shmq.open(healthy) as queue:
        child.hear()
        with pytest.raises(
            shmq.Busy, match=f"consumer 'c' of {healthy} is held by process {child.pid}; use another name"
        ):
            queue.consumer("c")
        assert queue.consumer("d").get(timeout=0).index == 0


def test_the_parents_things_in_a_forked_child(queue):
    """Forked, each with whose it is; the parent's work on. (tests/unit/test_fork.py has the rest.)"""
    queue.put(b"a")
    consumer = queue.consumer("c", ack="explicit")
    message, slot, reader = consumer.get(timeout=0), queue.reserve(1), queue.reader()

    def refused():
        for verb in (message.ack, slot.commit, slot.abort, lambda: consumer.take(timeout=0), lambda: next(reader)):
            with pytest.raises(shmq.Forked, match="parent process"):
                verb()
        return "all"

    assert in_child(refused) == "all"
    slot.commit()
    message.ack()
    assert (consumer.head, len(queue)) == (1, 2)


def test_more_participants_than_slots(healthy):
    """All 1,024 seats taken: TooMany; reading read-only needs none."""
    fd = os.open(healthy / "control.shmq", os.O_RDWR)
    fcntl.fcntl(fd, F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 1 << 40, 1024, 0))
    try:
        with pytest.raises(shmq.TooMany, match="all 1024 participant slots are taken"):
            shmq.open(healthy)
        assert payloads(healthy) == list(range(40))
    finally:
        os.close(fd)
    shmq.open(healthy).close()


def test_a_hint_that_lies_in_the_control_page(healthy):
    """A first_live of nonsense is found out, and does not make the queue look empty."""
    for value in (1 << 40, (1 << 64) - 1):
        patch(healthy / "control.shmq", 256, value.to_bytes(8, "little"))
        refuses(shmq.Corrupt, "is missing", healthy)
    patch(healthy / "control.shmq", 256, bytes(8))
    assert payloads(healthy) == list(range(40))


def test_stored_options_are_json_that_people_can_read(healthy):
    """For the record: what is stored is what was given."""
    page = (healthy / "queue.shmq").read_bytes()[:PAGE]
    (length,) = struct.unpack_from("<I", page, 48)
    assert json.loads(page[56 : 56 + length])["chunk_bytes"] == 16384


def test_the_class_of_an_error_is_a_code_and_no_word_of_its_story(healthy, monkeypatch):
    """Whatever the core's words are: a foreign file is BadFormat as a queue, and Corrupt within one."""
    monkeypatch.setattr(_native.core, "story", lambda: "whatever")
    for file, error in {"queue.shmq": shmq.BadFormat, "control.shmq": shmq.Corrupt}.items():
        there = (healthy / file).read_bytes()
        patch(healthy / file, 0, b"\1")
        refuses(error, "whatever", healthy)
        (healthy / file).write_bytes(there)
        patch(healthy / file, 12, b"\x63")
        refuses(shmq.BadFormat, "whatever", healthy)
        (healthy / file).write_bytes(there)

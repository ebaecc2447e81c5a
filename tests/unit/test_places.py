"""Where a queue lies: moved, removed, listed while it changes, on file systems with ways of their own."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import resource
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from disks import mounted
from support import in_child, run_python

import shmq
from shmq import where
from shmq.storage import acks, blocks, files, mapped, volatile


# ---------------------------------------------------------------- moved, removed
def test_those_who_have_a_queue_open_share_one_administrative_lock_after_mv(make, path, tmp_path):
    """It goes by the directory that is open, not by the path that led there once."""
    queue = make()
    moved = tmp_path / "moved"
    os.rename(path, moved)
    with (
        shmq.open(moved) as other,
        queue._session.home.admin(),
        pytest.raises(shmq.Busy),
        other._session.home.admin(timeout=0),
    ):
        pass
    Path(path).mkdir()  # whatever lies at the old place by now
    with (
        shmq.open(moved) as other,
        other._session.home.admin(),
        pytest.raises(shmq.Busy),
        queue._session.home.admin(timeout=0),
    ):
        pass
    assert os.listdir(path) == []


def test_a_queue_that_is_moved_while_it_is_deleted_stays(make, path, tmp_path, monkeypatch):
    """What goes by its path does not take what lies there by now."""
    make().put(b"x")
    make().close()
    real = shmq.manage.making.delete

    def moved_first(home):
        os.rename(path, tmp_path / "moved")
        Path(path).mkdir()
        real(home)

    monkeypatch.setattr(shmq.manage.making, "delete", moved_first)
    monkeypatch.setattr(shmq.session.membership.Membership, "shared", lambda _: False)
    with pytest.raises(shmq.NotFound, match="moved or removed"):
        shmq.delete(path)
    assert Path(path).is_dir()
    assert shmq.verify(tmp_path / "moved").messages == 1


@pytest.mark.parametrize("verb", ["put", "put_many", "stage", "consumer", "purge", "set_bounds", "drop_consumer"])
def test_after_rm_rf_every_verb_says_that_the_directory_is_gone_and_nothing_comes_back(make, path, verb):
    """Not PermissionError, not Corrupt, and no new directory with a lock file in it."""
    queue = make(retention=shmq.Retention.acked())
    consumer = queue.consumer("c")
    for _ in range(3):
        queue.put(bytes(6000))
    shutil.rmtree(path)
    verbs = {
        "put": lambda: [queue.put(bytes(6000)) for _ in range(10)],
        "put_many": lambda: [queue.put_many([bytes(3000)] * 4) for _ in range(10)],
        "stage": queue.stage,
        "consumer": lambda: queue.consumer("d"),
        "purge": queue.purge,
        "set_bounds": lambda: queue.set_bounds(max_messages=7),
        "drop_consumer": lambda: queue.drop_consumer("c"),
    }
    with pytest.raises(shmq.NotFound, match=f"{path}.*removed while it was open"):
        verbs[verb]()
    consumer.close()
    queue.close()
    assert not os.path.lexists(path)


# ---------------------------------------------------------------- listings
@pytest.mark.parametrize("unlisted", [0, 1, 3, -2, -1, slice(1, 4), slice(-3, None)])
def test_a_chunk_that_a_listing_leaves_out_is_looked_for_by_its_name(make, monkeypatch, unlisted):
    """A listing of thousands of names beside fast rolls is no snapshot: what is there is not called missing."""
    queue = make(retention=shmq.Retention.forever())
    for _ in range(20):
        queue.put(bytes(6000))
    whole = queue._session.chain().names()
    assert len(whole) > 7
    listed = list(whole)
    del listed[unlisted]
    monkeypatch.setattr(queue._session.home, "chunk_names", lambda: list(listed))
    assert queue._session.chain().names() == whole
    (left_out, *_) = [name for name in whole if name not in listed]
    os.unlink(f"{queue.path}/chunks/{left_out[1]:016x}-{left_out[0]:08x}.chunk")
    with pytest.raises(shmq.Corrupt, match=f"chunk ({left_out[0]}|{whole[-1][0]}) is missing"):
        queue._session.chain().names()


def test_verify_beside_rolls_reports_no_chunk_that_a_listing_left_out(make, monkeypatch):
    """A second listing has everything up to the last of the first."""
    queue = make()
    for _ in range(20):
        queue.put(bytes(6000))
    real, listings = queue._session.home.chunk_names, []

    def lagging():
        listings.append(real())
        return [name for name in listings[-1] if len(listings) > 1 or name[0] != 4]

    monkeypatch.setattr(queue._session.home, "chunk_names", lagging)
    assert queue.verify()


def test_a_file_that_is_unlinked_while_it_is_opened_has_vanished(make, monkeypatch):
    """Not Unsafe with 0 names; and one that was replaced meanwhile is the new one."""
    queue = make()
    queue.consumer("c").close()
    home, real = queue._session.home, os.open
    replace_with = [b"another", None]

    def unlinks(name, *rest, **options):
        fd = real(name, *rest, **options)
        if name == "c.checkpoint" and replace_with:
            os.unlink(name, dir_fd=home.consumers)
            content = replace_with.pop(0)
            if content is not None:
                files.make_file(home.consumers, name, content, queue.path)
        return fd

    monkeypatch.setattr(os, "open", unlinks)
    with pytest.raises(FileNotFoundError):
        home.open(home.consumers, "c.checkpoint", writable=False)
    replace_with[:] = [b"the new one"]
    files.make_file(home.consumers, "c.checkpoint", b"another", queue.path)
    assert home.read(home.consumers, "c.checkpoint", 100) == b"the new one"


def test_only_one_place_reads_directories():
    """`files` knows the traps; `os.walk` of what nobody uses has none of them."""
    root = Path(shmq.__file__).parent
    for source in [*root.glob("*.py"), *(root / "storage").rglob("*.py")]:
        found = re.findall(r"\b(?:os\.listdir|os\.scandir|\.iterdir|\.glob)\(", source.read_text())
        assert not found or source.name == "files.py", source


def test_a_name_that_is_younger_than_the_descriptor_is_listed_on_btrfs(tmp_path):
    """So the first ack of a new name is on the disk, and sync() forgets no acknowledgement."""
    with mounted("btrfs", tmp_path) as disk, shmq.open(disk / "q") as queue:
        queue.put(b"x")
        names = acks.Names(queue._session.home)
        with queue.consumer("c", ack="explicit") as consumer:
            assert list(names._there()) == ["c"]
            consumer.get(timeout=0).ack()
            queue.sync()
        assert queue._session.home.checkpoint("c").newest_snapshot().head == 1


# ---------------------------------------------------------------- rights
def test_directories_have_their_rights_whatever_the_umask(tmp_path):
    """0700, by chmod of the directory that was made; a setgid bit that it inherited is gone, too."""

    def made():
        os.umask(0o777)
        with shmq.open(tmp_path / "q") as queue:
            queue.put(b"x")
            with queue.stage() as staged:
                staged.put(b"y")
                queue.copy(tmp_path / "copy")
        return "made"

    tmp_path.chmod(0o2755)
    assert in_child(made) == "made"
    for folder in ["q", "q/chunks", "q/consumers", "q/staging", "copy", "copy/chunks", "copy/consumers"]:
        assert stat.S_IMODE((tmp_path / folder).stat().st_mode) == 0o700, folder


# ---------------------------------------------------------------- one damaged name
def damage(queue, name):
    """Flip a bit that the checkpoint's checksum covers."""
    with open(f"{queue.path}/consumers/{name}.checkpoint", "r+b") as file:
        file.seek(20)
        byte = file.read(1)
        file.seek(20)
        file.write(bytes([byte[0] ^ 1]))


@pytest.mark.parametrize("kind", ["acked", "bytes"])
def test_a_damaged_checkpoint_stops_nobody_but_its_name_and_holds_back_what_it_may_need(make, caplog, kind):
    """Others take, put and purge; it is told in the log, in stats and by verify; opening that name is Corrupt."""
    retention = shmq.Retention.acked() if kind == "acked" else shmq.Retention.bytes(1 << 15)
    queue = make(retention=retention)
    for name in ("damaged", "held"):
        queue.consumer(name, hold=name == "held" or None).close()
    if kind == "bytes":
        queue.drop_consumer("damaged")
    bad = "damaged" if kind == "acked" else "held"
    damage(queue, bad)
    with queue.consumer("c") as consumer:
        for number in range(60):
            queue.put(b"%d" % number + bytes(3000))
            assert consumer.take(timeout=1).startswith(b"%d" % number)
    assert queue.first_index == 0
    assert queue[0].payload.startswith(b"0")
    assert f"consumer '{bad}' holds back everything" in caplog.text
    assert "checksum" in queue.stats().damaged[bad]
    assert [problem.file for problem in queue.verify().problems] == [f"consumers/{bad}.checkpoint"]
    with pytest.raises(shmq.Corrupt, match=f"drop_consumer\\('{bad}'\\) removes it"):
        queue.consumer(bad)
    queue.drop_consumer(bad)
    queue.consumer("c").close()
    assert queue.first_index > 0 or queue.purge()
    assert queue.stats().damaged == {}


def test_a_damaged_checkpoint_counts_for_bounds_as_one_that_has_finished_nothing(make):
    """A producer is told who holds the room, not Corrupt; drop_oldest and purge go on."""
    queue = make(max_messages=5, full="raise")
    queue.consumer("c").close()
    damage(queue, "c")
    for _ in range(5):
        queue.put(b"x")
    with pytest.raises(shmq.Full, match="consumer 'c' is the furthest behind, at index 0"):
        queue.put(b"x")
    queue.purge()
    assert queue.put(b"y") == 5


def test_a_damaged_checkpoint_does_not_stop_drop_oldest(make):
    """What is dropped is dropped for it too."""
    queue = make(max_messages=5, full="drop_oldest")
    queue.consumer("c").close()
    damage(queue, "c")
    assert [queue.put(b"x", timeout=5) for _ in range(20)] == list(range(20))


@pytest.mark.parametrize("size", [0, 3])
def test_a_pin_that_is_too_short_holds_back_everything(make, size):
    """Not struct.error for whoever retires."""
    queue = make(retention=shmq.Retention.acked())
    with queue.reader(pin="p"):
        os.truncate(f"{queue.path}/consumers/p.pin", size)
        with queue.consumer("c") as consumer:
            for _ in range(20):
                queue.put(bytes(6000))
                consumer.take(timeout=1)
        assert queue.first_index == 0


# ---------------------------------------------------------------- what a process has
def test_all_queues_of_a_process_share_one_budget_of_mappings(make, tmp_path, monkeypatch):
    """Each that is kept holds a descriptor, and those are the process's."""
    monkeypatch.setattr(mapped, "LIMIT", 30)
    queues = [make(str(tmp_path / f"q{number}"), retention=shmq.Retention.forever()) for number in range(4)]
    for queue in queues:
        for _ in range(50):
            queue.put(bytes(6000))
    for _ in range(2):
        for queue in queues:
            assert [queue[index].index for index in range(50)] == list(range(50))
            kept = [len(each._session.joined().mapped._chunks) for each in queues]
            assert sum(kept) <= 30
    assert min(kept) > 3, "one that is used takes from the one that keeps most, not all from one"


def test_many_long_queues_under_few_descriptors(tmp_path):
    """Six of 120 chunks each with room for 300 files: read at random, put, roll, retire; no EMFILE."""

    def use():
        most = max(map(int, os.listdir("/proc/self/fd"))) + 300
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        queues = []
        for number in range(6):
            options = shmq.Options(chunk_bytes=16384, retention=shmq.Retention.forever())
            queues.append(shmq.open(tmp_path / f"q{number}", options=options))
            for _ in range(120):
                queues[-1].put_many([bytes(1400)] * 8)
        for queue in queues:
            assert sum(len(queue[index].payload) for index in range(0, 960, 4)) == 1400 * 240
        return [queue.put(bytes(9000)) for queue in queues]

    assert in_child(use) == str([960] * 6)


SCARCE = {
    "verify": lambda queue, _: queue.verify(),
    "copy": lambda queue, to: queue.copy(to),
    "stats": lambda queue, _: queue.stats(),
    "consumers": lambda queue, _: queue.consumers(),
    "sync": lambda queue, _: queue.sync(),
    "finish": lambda queue, _: queue.finish(),
    "put(dedup=)": lambda queue, _: queue.put(b"x", dedup=("p", 1)),
    "put_arrow": lambda queue, _: queue.put_arrow(None),
    "shmq.verify": lambda queue, _: shmq.verify(queue.path),
    "shmq.repair": lambda queue, to: shmq.repair(queue.path, to),
}


@pytest.mark.parametrize("verb", SCARCE)
def test_a_first_use_without_a_descriptor_names_the_queue_and_no_module(tmp_path, verb):
    """What a verb needs is imported at its first use: the process is a fresh one."""
    problem = run_python(WITHOUT_A_DESCRIPTOR, tmp_path / "q", tmp_path / "to", verb, os.path.dirname(__file__))
    assert problem.startswith(f"OSError [Errno 24] Too many open files: '{tmp_path}/q"), problem
    assert ".py" not in problem


WITHOUT_A_DESCRIPTOR = """
import os, resource, sys
import shmq
path, to, verb, tests = sys.argv[1:]
sys.path[:0] = [tests, os.path.dirname(tests)]
from test_places import SCARCE
work = SCARCE[verb]
queue = shmq.open(path)
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, most))
try:
    while True:
        os.open("/dev/null", os.O_RDONLY)
except OSError:
    pass
try:
    work(queue, to)
except BaseException as problem:
    os.write(1, f"{type(problem).__name__} {problem}".encode())
os._exit(0)
"""


def test_an_anonymous_queue_that_has_no_descriptor_says_so(shm_root):
    problem = in_child(open_anonymous_without_a_descriptor)
    assert problem.startswith("[Errno 24] Too many open files: '"), problem


def open_anonymous_without_a_descriptor():
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    with contextlib.suppress(OSError):
        while True:
            os.open("/dev/null", os.O_RDONLY)
    try:
        shmq.open(None)
    except OSError as problem:
        return str(problem)
    return "opened"


def test_opening_an_anonymous_queue_does_not_look_at_all_others_each_time(shm_root, monkeypatch):
    """What dead users left is swept once a process, and then once a minute."""
    looked = []
    real = volatile.gc
    monkeypatch.setattr(volatile, "gc", lambda **flags: looked.append(flags) or real(**flags))
    monkeypatch.setattr(volatile, "_swept_at", None)
    queues = [shmq.open(None) for _ in range(5)]
    assert looked == [{"anonymous_only": True}]
    monkeypatch.setattr(volatile, "_swept_at", volatile._swept_at - volatile.SWEEP_SECONDS)
    queues.append(shmq.open(None))
    assert len(looked) == 2
    for queue in queues:
        queue.close()


# ---------------------------------------------------------------- copy-on-write
def fill(disk):
    """Have no block left for anybody's data."""
    with open(disk / "filler", "wb") as file:
        size = 64 << 20
        while size >= 4096:
            try:
                os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, size)
            except OSError:
                size //= 2
    os.sync()


def test_a_full_btrfs_is_an_exception_and_no_sigbus(tmp_path):
    """What was preallocated is kept: opening, taking and putting go on to the chunk's end, and then it is DiskFull."""
    with mounted("btrfs", tmp_path, 128 << 20) as disk:
        options = shmq.Options(chunk_bytes=16384, retention=shmq.Retention.forever())
        with shmq.open(disk / "q", options=options) as queue:
            queue.put(b"first")
        fill(disk)

        def use():
            with shmq.open(disk / "q") as queue, queue.reader() as reader:
                put = 1
                try:
                    while True:
                        queue.put(bytes(3000))
                        put += 1
                except shmq.DiskFull:
                    return put, len(list(reader))

        assert in_child(use) == "(5, 5)"


@pytest.mark.parametrize("options", ["", "compress-force=zstd"])
def test_files_on_btrfs_are_written_in_place(tmp_path, options):
    """Also where it compresses; a directory that does so by a property too. Opening them warns of nothing."""
    with mounted("btrfs", tmp_path, 128 << 20, options) as disk:
        subprocess.run(["chattr", "+c", str(disk)], check=True)
        with shmq.open(disk / "q") as queue:
            queue.put(b"x")
            queue.consumer("c").close()
            queue.consumer("g", group=True).close()
            queue.copy(disk / "copy")
        shmq.open(disk / "copy").close()
        files = [file for file in disk.rglob("*") if file.is_file() and file.name != "admin.lock"]
        assert len(files) > 8
        for file in files:
            with open(file, "rb") as opened:
                assert blocks._flags_of(opened.fileno()) & 0x800004 == 0x800000, file


def test_opening_warns_where_a_full_disk_may_kill(tmp_path):
    """Copy-on-write files that came here by cp, and a snapshot or reflink; reading needs no warning."""
    with mounted("btrfs", tmp_path, 128 << 20) as disk:
        shmq.open(disk / "q").close()
        shutil.copytree(disk / "q", disk / "copied")
        with pytest.warns(RuntimeWarning, match="SIGBUS: its files are copy-on-write"):
            shmq.open(disk / "copied").close()
        shmq.open(disk / "copied", read_only=True).close()
        with open(disk / "q" / "control.shmq", "rb") as source, open(disk / "clone", "wb") as clone:
            subprocess.run(["chattr", "+C", str(disk / "clone")], check=True)
            fcntl.ioctl(clone, 0x40049409, source.fileno())
        os.sync()
        with pytest.warns(RuntimeWarning, match="SIGBUS: a snapshot or a reflink"):
            shmq.open(disk / "q").close()


def test_a_copy_shares_no_block_of_the_newest_chunk(tmp_path):
    """Where it did, the living queue's next puts needed space that nobody had promised."""
    for number, kind in enumerate(["btrfs", "xfs"][: 1 + (shutil.which("mkfs.xfs") is not None)]):
        folder = tmp_path / str(number)
        folder.mkdir()
        with mounted(kind, folder) as disk, shmq.open(disk / "q") as queue:
            for _ in range(100):
                queue.put(bytes(3000))
            queue.sync()
            queue.copy(disk / "copy")
            os.sync()
            newest = max((disk / "q" / "chunks").iterdir(), key=lambda file: file.name.split("-")[1])
            with open(newest, "rb") as file:
                assert not blocks.shared(file.fileno())


@pytest.mark.parametrize("never", [False, True])
def test_a_retired_file_that_shares_blocks_does_not_serve_again(make, path, monkeypatch, never):
    """Zeroing it through its mapping would need space, too. Nobody asks where no file ever shares any."""
    here = {files.filesystem_type(os.path.dirname(path))}
    monkeypatch.setattr(blocks, "NEVER_SHARED", here if never else set())
    queue = make(retention=shmq.Retention.acked(), chunk_bytes=8 << 20)
    shared = []
    monkeypatch.setattr(blocks, "shared", lambda fd: shared.append(fd) or True)
    with queue.consumer("c") as consumer:
        for _ in range(60):
            queue.put(bytes(1 << 20))
            consumer.take(timeout=1)
    assert bool(shared) is not never
    assert not [name for name in os.listdir(f"{queue.path}/chunks") if name.startswith("retired-")][2:]


@pytest.mark.parametrize(("kind", "told"), [("zfs", "zfs writes"), ("bcachefs", "bcachefs"), ("ext4", ""), ("xfs", "")])
def test_file_systems_that_write_elsewhere_are_warned_of(kind, told, tmp_path):
    """By their type; what preallocates is not."""
    with open(tmp_path / "file", "wb") as file:
        reason = blocks.may_run_out(kind, file.fileno())
        assert told in reason
        assert bool(told) == bool(reason)


def test_of_an_overlay_what_is_written_to_counts(tmp_path):
    """Where it can be seen from here."""
    upper = tmp_path / "upper"
    upper.mkdir()
    mounts = (
        "1 0 0:1 / / rw - ext4 /dev/x rw\n"
        f"2 1 0:2 / {tmp_path} rw - zfs pool rw\n"
        f"3 1 0:3 / /merged rw - overlay overlay rw,lowerdir=/l,upperdir={upper},workdir=/w\n"
        "4 1 0:4 / /other rw - overlay overlay rw,lowerdir=/l,upperdir=/not/to/be/seen,workdir=/w\n"
    )
    assert files.filesystem_type("/merged/q", mounts) == "zfs"
    assert files.filesystem_type("/other/q", mounts) == "overlay"


def test_a_queue_with_something_else_in_its_directory_is_not_deleted(path):
    """It would be half gone, and its messages with it, before that is met."""
    with shmq.open(path) as queue:
        queue.put(b"x")
    Path(path, "README").touch()
    with pytest.raises(shmq.Unsafe, match="nothing was deleted"):
        shmq.delete(path)
    with shmq.open(path) as queue:
        assert queue[0].payload == b"x"
    Path(path, "README").unlink()
    shmq.delete(path)
    assert not os.path.exists(path)


def test_a_closed_queue_says_that_it_is_closed_when_asked_whether_it_is_finished(path):
    queue = shmq.open(path)
    queue.close()
    with pytest.raises(shmq.Closed):
        _ = queue.finished


def test_an_error_of_the_kernel_names_one_file(tmp_path):
    """It ended with "-> None"."""
    problem = OSError(errno.EROFS, "Read-only file system", "control.shmq", None, "other")
    where._say(problem, str(tmp_path))
    assert str(problem) == f"[Errno 30] Read-only file system: '{tmp_path}'"


def test_an_empty_directory_that_becomes_a_queue_is_for_its_owner_alone(tmp_path):
    """It was there, and others could look into it; SECURITY.md says 0700."""
    os.mkdir(tmp_path / "q")
    os.chmod(tmp_path / "q", 0o755)
    shmq.open(tmp_path / "q").close()
    assert stat.S_IMODE(os.stat(tmp_path / "q").st_mode) == 0o700
    os.chmod(tmp_path / "q", 0o711)
    shmq.open(tmp_path / "q").close()
    assert stat.S_IMODE(os.stat(tmp_path / "q").st_mode) == 0o711  # of one that is a queue it is its owner's to say


def test_a_disk_without_inodes_is_said_to_have_none(monkeypatch, tmp_path):
    """So many bytes free alone would make no sense."""
    problem = OSError(errno.ENOSPC, "No space left on device")
    assert "no inode" not in str(files.disk_full(str(tmp_path), 4096, problem))
    room = os.statvfs(tmp_path)
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result((*room[:5], 1000, 0, 0, *room[8:10])))
    assert "bytes free, but no inode for one more file)" in str(files.disk_full(str(tmp_path), 4096, problem))
